//! The PTX machine (being written).
pub mod api;
