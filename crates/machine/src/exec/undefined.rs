//! Undefined values: how they spread, and when they are a finding.
//!
//! As in MemorySanitizer, reading an undefined value is no finding; it becomes one where it matters: when it decides a
//! branch or a guard, is an address, is exchanged between lanes, or reaches global memory. The finding's site is where it
//! was first read. Logic, shifts, moves and packing follow single bits (`undefined_bits`), so that a byte taken out of a
//! word that is undefined elsewhere is defined; all other operations are undefined if an operand is in any bit, and
//! multiplication by zero makes nothing defined. A selection of the defined side is defined. Copying a structure with its
//! padding is no finding: bytes that were read beside defined ones and are stored unchanged stay undefined in silence.
//! Source: Stepanov and Serebryany, "MemorySanitizer: fast detector of uninitialized memory use in C++" (CGO 2015).

use crate::api::FindingKind;
use crate::code::{CARRY, Instr, Op, Pc, RowId, Sides, flag};
use crate::cta::Cta;
use crate::exec::undefined_bits;
use crate::registers::Registers;
use crate::warp::Warp;

/// Undefined lanes of any source.
#[inline(always)]
pub fn sources(r: &Registers, i: &Instr) -> u32 {
    r.poison(i.a) | r.poison(i.b) | r.poison(i.c)
}

/// Operations whose operands are not all in a, b and c.
#[inline(always)]
pub fn special(op: Op) -> bool {
    matches!(op, Op::PackMany | Op::UnpackMany | Op::Bfi | Op::Lop3Pred)
}

/// Works out which lanes of the results are undefined; before the values are computed.
#[cold]
#[inline(never)]
pub fn pure(w: &mut Warp, i: &Instr, m: u32, pc: Pc, sides: &Sides) {
    let r = &mut w.regs;
    let (a, b, c) = (r.poison(i.a), r.poison(i.b), r.poison(i.c));
    if undefined_bits::follows(i.op) {
        undefined_bits::pure(r, i, m, pc);
        return;
    }
    let mut rows = vec![i.a, i.b, i.c];
    let poison = match i.op {
        Op::AndPred => (a | b) & !(!a & !r.pred(i.a)) & !(!b & !r.pred(i.b)),
        Op::OrPred => (a | b) & !(!a & r.pred(i.a)) & !(!b & r.pred(i.b)),
        Op::Selp32 | Op::Selp64 => {
            let p = r.pred(i.c);
            c | (p & a) | (!p & b)
        }
        _ if i.flags & flag::COMBINE != 0 => {
            let p = r.pred(i.c) ^ if i.flags & flag::COMBINE_NOT != 0 { u32::MAX } else { 0 };
            // A defined third predicate may settle the result whatever the comparison gives.
            let settled = match i.imm {
                1 => !c & !p,
                2 => !c & p,
                _ => 0,
            };
            (a | b | c) & !settled
        }
        Op::PackMany => {
            rows = sides.packs[i.side as usize].rows.clone();
            rows.iter().fold(0, |p, row| p | r.poison(*row))
        }
        Op::Bfi | Op::Lop3Pred => {
            rows.push(i.side);
            a | b | c | r.poison(i.side)
        }
        Op::Carry if i.sub & 16 != 0 => a | b | c | r.poison(CARRY),
        _ => a | b | c,
    };
    let from = rows.iter().find(|row| r.poison(**row) & m != 0).map_or(pc, |row| r.origin(*row, pc));
    if i.op == Op::UnpackMany {
        for row in &sides.packs[i.side as usize].rows {
            r.set_poison(*row, poison, m, from);
        }
        return;
    }
    r.set_poison(i.d, poison, m, from);
    r.set_poison(i.d2, poison, m, from);
}

/// A finding if a row is undefined in any lane of the mask. True: there is one, and it is fatal.
#[inline(always)]
pub fn reaches(cta: &mut Cta, w: &Warp, row: RowId, pc: Pc, m: u32, how: &str) -> bool {
    let p = w.regs.poison(row) & m;
    if p == 0 {
        return false;
    }
    found(cta, w, w.regs.origin(row, pc), pc, p, true, how);
    true
}

/// The same, but the run goes on.
#[inline(always)]
pub fn notes(cta: &mut Cta, w: &Warp, row: RowId, pc: Pc, m: u32, how: &str) {
    let p = w.regs.poison(row) & m;
    if p != 0 {
        found(cta, w, w.regs.origin(row, pc), pc, p, false, how);
    }
}

/// A value is stored to global memory: a finding, but for padding that is copied along.
#[inline(always)]
pub fn stored(cta: &mut Cta, w: &Warp, row: RowId, pc: Pc, m: u32) {
    let p = w.regs.poison(row) & m;
    if p != 0 && p & !w.regs.copied(row) != 0 {
        let lanes = p & !w.regs.copied(row);
        found(cta, w, w.regs.origin(row, pc), pc, lanes, false, "the value is stored to global memory");
    }
}

/// Adds the finding: read at `origin`, used at `pc`.
#[cold]
#[inline(never)]
pub fn found(cta: &mut Cta, w: &Warp, origin: Pc, pc: Pc, lanes: u32, fatal: bool, how: &str) {
    let place = cta.undefined_places.get(&origin).cloned();
    let other = (origin != pc).then_some(pc);
    cta.report(FindingKind::UninitializedRead, w, origin, other, lanes, fatal, |_| {
        let what = match &place {
            Some(p) => format!(
                "bytes of {} memory{} that were never written are read",
                p.space,
                p.object.as_ref().map_or(String::new(), |o| format!(" ({o})"))
            ),
            None => "a variable that was never written on this path is used".to_string(),
        };
        (format!("{what}; {how}"), place)
    });
}

/// A guard of undefined value.
#[cold]
#[inline(never)]
pub fn guard(cta: &mut Cta, w: &mut Warp, i: &Instr, pc: Pc, mask: u32) {
    let how =
        if i.op == Op::Bra { "the value decides a branch" } else { "the value decides whether an instruction runs" };
    notes(cta, w, i.guard, pc, mask, how);
}
