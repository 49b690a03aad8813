//! Nouns (being written).
pub mod record;
