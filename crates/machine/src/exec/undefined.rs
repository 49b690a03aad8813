//! Undefined values: how they spread, and when they are a finding.
//!
//! As in MemorySanitizer, reading an undefined value is no finding; it becomes one where it matters: when it decides a
//! branch or a guard, is an address, is exchanged between lanes, or reaches global memory. The finding's site is where it
//! was first read. A lane's register is undefined as a whole. Logic with a defined zero (and) or all ones (or) is defined,
//! and so is a selection of the defined side; multiplication by zero is not.
//! Source: Stepanov and Serebryany, "MemorySanitizer: fast detector of uninitialized memory use in C++" (CGO 2015).
//! Limit: an undefined byte makes its whole register undefined.

use crate::api::FindingKind;
use crate::code::{CARRY, Instr, Op, Pc, RowId, Sides, flag};
use crate::cta::Cta;
use crate::exec::rare::lanes_of;
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
    matches!(op, Op::PackMany | Op::UnpackMany | Op::Bfi)
}

/// Works out which lanes of the results are undefined; before the values are computed.
#[cold]
#[inline(never)]
pub fn pure(w: &mut Warp, i: &Instr, m: u32, pc: Pc, sides: &Sides) {
    let r = &mut w.regs;
    let (a, b, c) = (r.poison(i.a), r.poison(i.b), r.poison(i.c));
    let wide = |row: RowId, want: u64, p: u32| {
        lanes_of(m & !p).filter(|&l| r.r64(row)[l] == want).fold(0, |x, l| x | 1u32 << l)
    };
    let narrow = |row: RowId, want: u32, p: u32| {
        lanes_of(m & !p).filter(|&l| r.r32(row)[l] == want).fold(0, |x, l| x | 1u32 << l)
    };
    let mut rows = vec![i.a, i.b, i.c];
    let poison = match i.op {
        Op::And32 => (a | b) & !narrow(i.a, 0, a) & !narrow(i.b, 0, b),
        Op::Or32 => (a | b) & !narrow(i.a, u32::MAX, a) & !narrow(i.b, u32::MAX, b),
        Op::And64 => (a | b) & !wide(i.a, 0, a) & !wide(i.b, 0, b),
        Op::Or64 => (a | b) & !wide(i.a, u64::MAX, a) & !wide(i.b, u64::MAX, b),
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
        Op::Bfi => {
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
