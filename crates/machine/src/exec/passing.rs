//! Lanes that go past a barrier at which others of their warp wait, and exit: a barrier in divergent code.
//!
//! `bar.sync` is `.aligned`: all lanes of a warp come to it, or none. Hardware counts what has exited as arrived, so such code often
//! ends well, and the scheduler here lets it. Lanes that leave before a barrier (`if (i >= n) return;`) are no finding, for too much
//! code in the field does that: only those are that ran what also comes behind the barrier for those who wait.
//! Source: PTX ISA 9.0, "bar, barrier"; CUDA C++ Programming Guide, "Synchronization Functions".
//! Limits: looks at lanes that exit; those that meet another barrier or shuffle are `cta`'s and `warp_ops`'.

use crate::api::FindingKind;
use crate::code::{ALWAYS, Code, Op, Pc};
use crate::cta::{Cta, lanes_text};
use crate::warp::{State, Warp};

/// A group of a warp with several is about to run: notes whether it is past a barrier that others wait at.
#[inline(always)]
pub fn look(cta: &Cta, w: &mut Warp, at: usize) {
    if w.groups.iter().any(|g| g.state == State::Parked) {
        note(cta, w, at);
    }
}

#[cold]
#[inline(never)]
fn note(cta: &Cta, w: &mut Warp, at: usize) {
    let code = cta.m.code;
    let running = w.groups[at];
    for g in w.groups.iter().filter(|g| g.state == State::Parked && code.instrs[g.pc as usize].op == Op::Barrier) {
        // Where the waiting lanes are in the running group's own function: at the barrier, or at the call that led there.
        let mut place = (g.frame, g.pc);
        while place.0 != running.frame {
            match w.frames[place.0 as usize].parent {
                Some(parent) => place = parent,
                None => break,
            }
        }
        if place.0 == running.frame
            && running.pc > place.1
            && !leaves(code, running.pc)
            && reaches(code, place.1 + 1, running.pc)
        {
            w.passed |= running.mask;
            return;
        }
    }
}

/// Whether nothing but the way out comes next.
fn leaves(code: &Code, mut pc: Pc) -> bool {
    for _ in 0..8 {
        let Some(i) = code.instrs.get(pc as usize) else { return true };
        match i.op {
            Op::Exit | Op::Ret if i.guard == ALWAYS => return true,
            Op::Bra if i.guard == ALWAYS => pc = i.imm as Pc,
            _ => return false,
        }
    }
    false
}

/// Whether control can come from one place of a function to another, calls left out.
fn reaches(code: &Code, from: Pc, to: Pc) -> bool {
    let (mut seen, mut next) = (vec![false; code.instrs.len()], vec![from]);
    while let Some(mut pc) = next.pop() {
        while let Some(i) = code.instrs.get(pc as usize) {
            if pc == to {
                return true;
            }
            if std::mem::replace(&mut seen[pc as usize], true) {
                break;
            }
            match i.op {
                Op::Bra => next.push(i.imm as Pc),
                Op::BraIndex => next.extend(&code.sides.tables[i.side as usize]),
                _ => {}
            }
            if matches!(i.op, Op::Bra | Op::BraIndex | Op::Exit | Op::Ret | Op::Trap) && i.guard == ALWAYS {
                break;
            }
            pc += 1;
        }
    }
    false
}

/// Lanes exit; some of them went past a barrier.
#[cold]
#[inline(never)]
pub fn exited(cta: &mut Cta, w: &mut Warp, pc: Pc, m: u32) {
    let code = cta.m.code;
    let passed = w.passed & m;
    w.passed &= !m;
    let at_barrier = |g: &&crate::warp::Group| g.state == State::Parked && code.instrs[g.pc as usize].op == Op::Barrier;
    if let Some(g) = w.groups.iter().find(at_barrier).copied() {
        cta.report(FindingKind::BarrierDivergence, w, g.pc, Some(pc), g.mask, false, |_| {
            let (waiting, gone) = (lanes_text(g.mask), lanes_text(passed));
            let text = format!(
                "a barrier is reached by some lanes of a warp only: {waiting} of warp {} wait, {gone} went on without it and exited",
                w.index
            );
            (text, None)
        });
    }
}
