//! Bit-exact numbers (being written).
pub mod tensor_core;
