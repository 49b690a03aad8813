//! The typed tree of one PTX module, as the machine reads it.
//!
//! Scopes are gone: the parser gives every register of a function (nested `{ }` scopes included) a dense
//! [`RegId`] and turns every label into an instruction index, so that `LAB_WAIT` in two inlined asm blocks
//! are two labels. What an opcode *means* is not known here; modifiers stay words in source order.
//! Source: PTX ISA 9.0, "Syntax", "Directives" and "Instruction operands".

use std::collections::BTreeMap;

/// A register of one function: an index into [`Function::registers`].
pub type RegId = u32;
/// An instruction of one function: an index into [`Function::instructions`]; `instructions.len()` is "past the end".
pub type InstrId = u32;

/// One PTX translation unit.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Module {
    /// `.version 9.0` is `(9, 0)`.
    pub version: (u32, u32),
    /// First word of `.target`, for example `sm_89`.
    pub target: String,
    /// `.file` index -> path as written.
    pub files: BTreeMap<u32, String>,
    /// Module-scope `.global`, `.const` and `.shared` variables, `.extern` ones included.
    pub variables: Vec<Variable>,
    /// `.entry` and `.func`; declarations have no body.
    pub functions: Vec<Function>,
    /// `address_size 64`, `target debug`: words without the dot. Names of inlined functions
    /// (`.loc ..., function_name`) are not kept; `.alias` is resolved, so that only aliasees are named.
    pub directives: Vec<String>,
}

/// A position in the CUDA source, from `.loc`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Loc {
    /// Key of [`Module::files`].
    pub file: u32,
    /// 1-based line.
    pub line: u32,
    /// 1-based column; 0 where PTX gives none.
    pub column: u32,
}

/// PTX's state spaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Space {
    Reg,
    Global,
    Shared,
    Local,
    Const,
    Param,
}

/// PTX's fundamental types.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ty {
    B8,
    B16,
    B32,
    B64,
    B128,
    U8,
    U16,
    U32,
    U64,
    S8,
    S16,
    S32,
    S64,
    F16,
    F16x2,
    Bf16,
    Bf16x2,
    F32,
    F64,
    Pred,
}

/// A variable outside registers: module scope, function scope or a parameter.
#[derive(Debug, Clone, PartialEq)]
pub struct Variable {
    pub name: String,
    pub space: Space,
    pub ty: Ty,
    /// Bytes, a power of two; the type's own where the source gives none.
    pub align: u32,
    /// Bytes of the whole array; 0 for an unsized `.extern .shared x[]`.
    pub bytes: u64,
    pub is_extern: bool,
    /// Initial contents, at most `bytes` long (the rest is zero); symbols have `(byte offset, symbol, addend)`,
    /// their bytes being zero in `init`. In arrays of bytes an address has 8 bytes, else one element.
    pub init: Vec<u8>,
    pub init_symbols: Vec<(u64, String, i64)>,
}

/// A register declaration.
#[derive(Debug, Clone, PartialEq)]
pub struct Register {
    pub name: String,
    pub ty: Ty,
}

/// An `.entry` or a `.func`.
#[derive(Debug, Clone, PartialEq)]
pub struct Function {
    pub name: String,
    pub is_entry: bool,
    pub params: Vec<Variable>,
    /// Return parameters of a `.func`.
    pub returns: Vec<Variable>,
    pub registers: Vec<Register>,
    /// Function-scope `.shared`, `.local` and `.param` (call argument) variables; names are unique after scoping:
    /// the second `param0` of a function is `param0@2`, as is one that hides a module-scope variable.
    pub variables: Vec<Variable>,
    /// None: a declaration only.
    pub instructions: Vec<Instruction>,
    pub has_body: bool,
    /// `maxntid`, `reqntid`, `minnctapersm`, `maxnreg`, `explicitcluster`, `reqnctapercluster`, ... with their
    /// numbers; the words are without the dot.
    pub directives: Vec<(String, Vec<u64>)>,
    /// `.callprototype` labels of indirect calls: name -> (returns, params).
    pub prototypes: BTreeMap<String, (Vec<Variable>, Vec<Variable>)>,
    /// `.branchtargets` tables: name -> instruction indices.
    pub branch_targets: BTreeMap<String, Vec<InstrId>>,
}

/// The predicate in front of an instruction: `@p` or `@!p`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guard {
    pub reg: RegId,
    pub negated: bool,
}

/// One instruction. `ld.global.nc.v4.f32` has the mnemonic `ld` and the modifiers `global, nc, v4, f32`;
/// `shared::cta` and `L2::128B` stay one word.
#[derive(Debug, Clone, PartialEq)]
pub struct Instruction {
    pub guard: Option<Guard>,
    pub mnemonic: String,
    pub modifiers: Vec<String>,
    pub operands: Vec<Operand>,
    /// The CUDA line, where the source has `.loc`: the outermost place is the first of `loc`, `inlined_at` follows.
    pub loc: Option<Loc>,
    /// Where the function that `loc` lies in was inlined (`.loc ..., inlined_at`), innermost call site first.
    pub inlined_at: Vec<Loc>,
    /// 1-based line of the PTX text.
    pub ptx_line: u32,
}

impl Instruction {
    /// The opcode as written: mnemonic and modifiers joined by dots.
    pub fn opcode(&self) -> String {
        let mut s = self.mnemonic.clone();
        for m in &self.modifiers {
            s.push('.');
            s.push_str(m);
        }
        s
    }
}

/// One operand, in source order. A dual destination `d|p` is two operands wrapped in [`Operand::Pair`].
#[derive(Debug, Clone, PartialEq)]
pub enum Operand {
    Reg(RegId),
    /// `!p`
    NotReg(RegId),
    /// A decimal, hexadecimal, octal or binary integer, as its 64-bit two's complement.
    Int(i64),
    /// `0f3F800000`
    F32(u32),
    /// `0d...`, and decimal floating literals
    F64(u64),
    /// `%tid.x`, `%laneid`, `WARP_SZ`, ... without the `%`
    Special(String),
    /// A variable's or function's name plus a byte offset: its address
    Symbol(String, i64),
    /// `[base + offset]`
    Address(AddressBase, i64),
    /// `[ptr, {x, y}]`: TMA coordinates; the address first
    Tensor(AddressBase, i64, Vec<Operand>),
    /// `{a, b, c, d}`
    Vector(Vec<Operand>),
    /// `d|p`
    Pair(Box<Operand>, Box<Operand>),
    /// `_`
    Sink,
    /// A branch target, resolved
    Label(InstrId),
    /// `(a, b)` of a call: returns or arguments
    List(Vec<Operand>),
}

/// What an address starts from.
#[derive(Debug, Clone, PartialEq)]
pub enum AddressBase {
    Reg(RegId),
    Symbol(String),
    /// `[1024]`: an absolute address in the offset
    None,
}
