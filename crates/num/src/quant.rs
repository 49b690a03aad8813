//! Quantisers (next commit).
