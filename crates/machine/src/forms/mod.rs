//! The table of instruction forms: every opcode, with its modifiers and types, that the machine claims to have or is known to lack.
//!
//! The files `*.forms` beside this one are the table, one row for a family of opcodes. From them come the test that each form is
//! decoded and executed, the page of what is supported, and the kernels that are compared with hardware bit by bit ([`kernel()`]).
//!
//! ```text
//! # a comment
//! [Group] exact | approximate | modelled
//! opcode operands | what it needs
//! ```
//!
//! In an opcode `{a,b}` is a choice and `[.a|.b]` a choice or nothing; in operands `<a,b>` is a choice. `=T` is a register that is written,
//! `$T` one that is read, `=T*4` and `$T*4` (in braces) four of them; T is a type, or `t` for the opcode's last and `t1` for its first type.
//! `[a+8]` is memory in the opcode's own space, `[g]`, `[s]` and `[l]` in global, shared and local memory, `[A]` that of the whole warp; `-` are no
//! operands. What follows is any of: `sm_90`, `ptx78` (the least that ptxas wants, where it is more than sm_80 and 7.0), `only=x,y` (opcodes that contain one
//! of these), `decode-only` (what it yields differs between machines), `elsewhere` (it has no kernel here, other tests run it), `before=`, `after=` (an instruction that has to go along) and `unsupported: why`.
//!
//! Source: PTX ISA 9.0, "Instruction Set"; needs as ptxas 13.0.88 has them. It refuses to know what an instruction does.

mod expand;
mod harness;
mod page;
pub mod trial;
pub mod vectors;

use std::sync::OnceLock;

pub use harness::{BLOCK, GLOBAL_BYTES, Kernel, Slot, bare, kernel};
pub use page::page;

/// How close the machine's result is to the hardware's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Exactness {
    /// Bit for bit what PTX defines.
    Exact,
    /// Within an error that is measured, of a function that hardware approximates in its own way.
    Approximate,
    /// A tensor core's sum by the named model, chosen by target.
    Modelled,
    /// Not executed: a launch that reaches it ends as unsupported, by name.
    Unsupported,
}

impl Exactness {
    /// The word in the table and on the page.
    pub fn word(self) -> &'static str {
        match self {
            Exactness::Exact => "exact",
            Exactness::Approximate => "approximate",
            Exactness::Modelled => "modelled",
            Exactness::Unsupported => "unsupported",
        }
    }
}

/// One opcode with its operands' form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Form {
    pub group: &'static str,
    /// The row of the table that it comes from, as written there.
    pub row: &'static str,
    /// As PTX has it: `add.rn.ftz.f32`.
    pub opcode: String,
    /// Operands in the table's words, types resolved: `=f32, $f32, $f32`.
    pub operands: String,
    pub exactness: Exactness,
    /// Least target: 80, 89, 90 ...; `arch_specific` asks for `sm_100a` and its like.
    pub sm: u32,
    pub arch_specific: bool,
    /// Least PTX version, 78 for 7.8.
    pub ptx: u32,
    /// What it yields differs between machines: it is run, not compared.
    pub decode_only: bool,
    /// It has no kernel of its own.
    pub elsewhere: bool,
    pub before: Option<&'static str>,
    pub after: Option<&'static str>,
    /// Why it is not supported.
    pub why: Option<&'static str>,
}

impl Form {
    /// Opcode and operands: no two forms have the same.
    pub fn name(&self) -> String {
        if self.operands == "-" { self.opcode.clone() } else { format!("{} {}", self.opcode, self.operands) }
    }
}

const TABLES: [&str; 6] = [
    include_str!("integer.forms"),
    include_str!("float.forms"),
    include_str!("memory.forms"),
    include_str!("warp.forms"),
    include_str!("control.forms"),
    include_str!("absent.forms"),
];

/// Every form of the table, in its order.
///
/// # Panics
/// If a table is not as this module's header says, which a test of the crate would have found.
pub fn all() -> &'static [Form] {
    static FORMS: OnceLock<Vec<Form>> = OnceLock::new();
    FORMS.get_or_init(|| match TABLES.iter().map(|t| expand::table(t)).collect::<Result<Vec<_>, _>>() {
        Ok(forms) => forms.concat(),
        Err(why) => panic!("the table of forms: {why}"),
    })
}

/// The form of an opcode as a module writes it, whatever its operands.
pub fn find(opcode: &str) -> Option<&'static Form> {
    all().iter().find(|f| f.opcode == opcode)
}
