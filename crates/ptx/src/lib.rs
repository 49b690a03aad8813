//! PTX text -> typed tree. Knows the language, not the meaning of any instruction.
//!
//! [`parse`] is a hand-written lexer and a recursive descent over it, one pass, linear in the text. It reads
//! what NVRTC and nvcc 12.x to 13.x write at every optimisation level (`-G` included), LLVM's dialect (clang,
//! Triton) and the inline assembly that people put into either.
//!
//! Source: PTX ISA 9.0, "Syntax", "State spaces, types, and variables", "Instruction operands", "Directives".
//! Limits: [`limits`]. Textures keep their sampler as the first coordinate; `.calltargets` lists are read and
//! dropped; a 32-bit address size is read as any other.

#![forbid(unsafe_code)]

pub mod ast;
mod lexer;
pub mod limits;
mod parser;

/// Why a text is no PTX module, and where: both positions count from 1, the column in bytes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("PTX line {line}, column {column}: {message}")]
pub struct ParseError {
    pub line: u32,
    pub column: u32,
    /// What was expected and what stood there.
    pub message: String,
}

/// Reads one PTX translation unit.
///
/// # Errors
/// At the first token that does not fit: an undeclared name, a syntax error, or a text above a limit.
pub fn parse(text: &str) -> Result<ast::Module, ParseError> {
    parser::module(text)
}
