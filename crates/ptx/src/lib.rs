//! PTX text -> typed tree. Knows the language, not the meaning of any instruction.
pub mod ast;
