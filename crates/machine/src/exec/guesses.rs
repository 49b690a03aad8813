//! Plain reads whose value is only a guess, for an atomic operation of the same lane on the same address checks it.
//!
//! `old = *p; do { seen = old; old = atomicCAS(p, seen, f(seen)); } while (seen != old);` is how the CUDA C++ Programming Guide writes atomic
//! operations that hardware lacks ("Atomic Functions"), and cuda_bf16.h too: the read races with the other lanes' `atomicCAS`, but a stale
//! value costs a round and no more. Such a race is no finding. `if (*p < v) atomicMax(p, v);` looks before it leaps: a stale value is
//! harmless there while the values go one way only, which nobody here knows: that race is a note.
//! Limits: eight loads of a warp are remembered, of one element each; a load counts as a guess everywhere if it was one once; what else
//! the kernel makes of the value is not looked at.

use crate::api::{FindingKind, Severity};
use crate::code::{Area, AtomOp, Code, MemOp, Op, Pc};
use crate::cta::Cta;
use crate::exec::memory::classify;
use crate::findings::{Findings, RawFinding};
use crate::memory::SHARED_WINDOW;
use crate::warp::Warp;

/// Loads of a warp that are remembered.
const LOADS: usize = 8;

/// A plain load.
#[derive(Debug, Clone)]
pub struct Load {
    pc: Pc,
    mask: u32,
    at: [u64; 32],
    values: [u64; 32],
}

/// Loads that were found to be guesses.
#[derive(Debug, Clone, Default)]
pub struct Guesses {
    /// An `atom.cas` compared with the value.
    verified: Vec<Pc>,
    /// A minimum, a maximum, a bit set or cleared came after it.
    checked: Vec<Pc>,
}

impl Guesses {
    /// Takes over what another CTA found.
    pub fn append(&mut self, other: &Guesses) {
        other.verified.iter().for_each(|pc| remember(&mut self.verified, *pc));
        other.checked.iter().for_each(|pc| remember(&mut self.checked, *pc));
    }

    /// Races of guesses with atomic operations are no findings, or notes.
    pub fn apply(&self, code: &Code, findings: &mut Findings) {
        let races = |f: &RawFinding, loads: &[Pc]| {
            let race = matches!(f.kind, FindingKind::GlobalRace | FindingKind::SharedRace);
            let atomic = |pc: Pc| code.instrs[pc as usize].op == Op::Atom;
            race && f.other.is_some_and(|o| loads.contains(&o) && atomic(f.pc) || loads.contains(&f.pc) && atomic(o))
        };
        findings.list.retain(|f| !races(f, &self.verified));
        for f in findings.list.iter_mut().filter(|f| f.severity == Severity::Error) {
            if races(f, &self.checked) {
                f.severity = Severity::Note;
                f.message.push_str("; the same lane's atomic operation on it comes after the read, which may be older");
            }
        }
    }
}

fn remember(list: &mut Vec<Pc>, pc: Pc) {
    if !list.contains(&pc) {
        list.push(pc);
    }
}

/// Whether a kernel has atomic operations that may check a guess: without them nothing is remembered.
pub fn possible(code: &Code) -> bool {
    code.sides.atoms.iter().any(|a| checks(a.op))
}

fn checks(op: AtomOp) -> bool {
    matches!(op, AtomOp::Cas | AtomOp::Min | AtomOp::Max | AtomOp::And | AtomOp::Or)
}

/// One address for a byte, whichever way it is named.
fn named(area: Area, at: u64) -> u64 {
    if area == Area::Shared { SHARED_WINDOW + at } else { at }
}

/// A plain load of one element has been executed, from addresses as the instruction has them.
#[inline(never)]
pub fn loaded(w: &mut Warp, op: &MemOp, pc: Pc, mask: u32, at: &[u64; 32]) {
    // What is on the stack is nobody else's.
    if classify(at[mask.trailing_zeros() as usize & 31]).0 == Area::Local {
        return;
    }
    let cut = if op.bytes >= 8 { u64::MAX } else { (1 << (8 * op.bytes)) - 1 };
    let (row, width) = op.rows[0];
    let wide = width == crate::code::Width::W64;
    let values = std::array::from_fn(|l| w.regs.lane(row, wide, l) & cut);
    let load = Load { pc, mask, at: at.map(|a| named(op.area, a)), values };
    match w.loads.iter().position(|l| l.pc == pc) {
        Some(n) => w.loads[n] = load,
        None if w.loads.len() < LOADS => w.loads.push(load),
        None => w.loads[pc as usize % LOADS] = load,
    }
}

/// A lane is about to execute an atomic operation: which of its loads were guesses at the value.
pub fn atomic(cta: &mut Cta, w: &Warp, op: AtomOp, (area, at): (Area, u64), lane: usize, compare: u64) {
    if w.loads.is_empty() || !checks(op) {
        return;
    }
    let at = named(area, at);
    for load in w.loads.iter().filter(|l| l.mask >> lane & 1 != 0 && l.at[lane] == at) {
        match op {
            AtomOp::Cas if load.values[lane] == compare => remember(&mut cta.guesses.verified, load.pc),
            AtomOp::Cas => {}
            _ => remember(&mut cta.guesses.checked, load.pc),
        }
    }
}
