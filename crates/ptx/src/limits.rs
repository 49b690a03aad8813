//! How large a PTX text may be in each direction, so that no text can take all memory or the stack.
//!
//! NVRTC's largest output seen so far (an unrolled attention kernel with software FP8 conversion) has 0.7 MB,
//! 30,000 instructions and 20,000 registers.

/// Bytes of one text.
pub const TEXT_BYTES: usize = 64 << 20;
/// Instructions of one module.
pub const INSTRUCTIONS: usize = 1_000_000;
/// Operands, modifiers and directive words of one module, parts of vectors and lists included.
pub const WORDS: usize = 8_000_000;
/// Registers of one module, all functions together.
pub const REGISTERS: usize = 1_000_000;
/// Depth of nested scopes, operands, expressions and initialisers.
pub const DEPTH: usize = 64;
/// Bytes of one variable.
pub const VARIABLE_BYTES: u64 = 1 << 30;
/// Initialised bytes of one module.
pub const INITIALISED_BYTES: u64 = 64 << 20;
/// Call sites kept of one chain of inlined functions.
pub const INLINE_CHAIN: usize = 32;
