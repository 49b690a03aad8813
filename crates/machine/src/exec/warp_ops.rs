//! Instructions in which lanes of a warp wait for each other: shuffles, votes, matches, reductions, barriers.
//!
//! A member mask names who takes part. A group that executes the instruction without all living members waits until the
//! others come to it. Source: PTX ISA 9.0, "shfl.sync", "vote.sync", "match.sync", "redux.sync", "bar.warp.sync", "barrier".

use crate::api::FindingKind;
use crate::code::{AtomOp, BarrierKind, Instr, Op, Pc, RowId, ShflMode, VoteMode};
use crate::cta::{Cta, lanes_text};
use crate::exec::lane_float::{self, FloatOp};
use crate::exec::rare::lanes_of;
use crate::exec::{Step, undefined};
use crate::warp::{State, Warp};

/// Whether all living members are here. If not, the group parks; a lane outside its own mask is a finding.
fn gathered(cta: &mut Cta, w: &mut Warp, at: usize, pc: Pc, members: RowId, mask: u32) -> bool {
    if undefined::reaches(cta, w, members, pc, mask, "the value is a member mask") {
        return false;
    }
    let wanted = w.regs.r32(members);
    let (mut missing, mut outside) = (0, 0);
    for l in lanes_of(mask) {
        missing |= wanted[l] & w.live & !mask;
        outside |= u32::from(wanted[l] >> l & 1 == 0) << l;
    }
    if outside != 0 {
        let named = wanted[outside.trailing_zeros() as usize];
        cta.report(FindingKind::InactiveLane, w, pc, None, outside, true, |_| {
            (
                format!(
                    "executed by {} with a member mask of {named:#010x}, which does not name them",
                    lanes_text(outside)
                ),
                None,
            )
        });
        return false;
    }
    if missing != 0 {
        w.groups[at].state = State::Parked;
        w.groups[at].pc = pc;
        return false;
    }
    true
}

/// Groups that wait at different `bar.warp.sync` of one mask: together they are complete. True: some can go on.
pub fn rendezvous(cta: &mut Cta, w: &mut Warp) -> bool {
    let code = cta.m.code;
    let mut together = 0;
    for g in w.groups.iter().filter(|g| g.state == State::Parked && code.instrs[g.pc as usize].op == Op::BarWarp) {
        together |= g.mask;
    }
    if together == 0 {
        return false;
    }
    let mut any = false;
    for n in 0..w.groups.len() {
        let g = w.groups[n];
        let i = &code.instrs[g.pc as usize];
        if g.state != State::Parked || i.op != Op::BarWarp {
            continue;
        }
        w.regs.select(w.frames[g.frame as usize].base);
        let wanted = w.regs.r32(i.a)[g.mask.trailing_zeros() as usize];
        if wanted & w.live & !together == 0 {
            w.groups[n].state = State::Ready;
            w.groups[n].pc = g.pc + 1;
            any = true;
        }
    }
    if any {
        interval(cta, w);
    }
    any
}

/// What the lanes did before `bar.warp.sync` comes before what they do next.
fn interval(cta: &mut Cta, w: &mut Warp) {
    if cta.shared.used(w.index, w.clock[w.index]) {
        w.clock[w.index] = cta.shared.tick();
    }
}

pub fn barrier(cta: &mut Cta, w: &mut Warp, at: usize, i: &Instr, pc: Pc, mask: u32) -> Step {
    let machine = cta.m;
    let op = &machine.code.sides.barriers[i.side as usize];
    w.passed &= !mask;
    for row in [Some(op.id), op.count].into_iter().flatten() {
        if undefined::reaches(cta, w, row, pc, mask, "the value is a barrier's number or count") {
            return Step::Next;
        }
    }
    if let Some((row, _)) = op.pred {
        undefined::notes(cta, w, row, pc, mask, "the value takes part in a barrier's reduction");
    }
    let first = mask.trailing_zeros() as usize;
    let (id, count) = (w.regs.r32(op.id)[first], op.count.map(|c| w.regs.r32(c)[first]));
    let differs =
        lanes_of(mask).any(|l| w.regs.r32(op.id)[l] != id || op.count.is_some_and(|c| Some(w.regs.r32(c)[l]) != count));
    let wrong = if differs {
        Some("lanes of one warp name different barriers".to_string())
    } else if id > 15 {
        Some(format!("barrier {id} does not exist: there are 16"))
    } else if count.is_some_and(|c| c == 0 || c % 32 != 0) {
        Some(format!("{} threads are expected at barrier {id}: not a multiple of the warp's 32", count.unwrap_or(0)))
    } else {
        None
    };
    if let Some(text) = wrong {
        cta.report(FindingKind::BarrierDivergence, w, pc, None, mask, true, |_| (text, None));
        return Step::Next;
    }
    if op.kind == BarrierKind::Arrive && count.is_none() {
        cta.report(FindingKind::BarrierDivergence, w, pc, None, mask, true, |_| {
            ("an arrival without a count of threads".into(), None)
        });
        return Step::Next;
    }
    if cta.arrive(w, pc, op, id as usize, count, mask) {
        w.groups[at].state = State::Barrier(id as u8);
        w.groups[at].pc = pc;
        return Step::Switch;
    }
    Step::Next
}

pub fn run(cta: &mut Cta, w: &mut Warp, at: usize, i: &Instr, pc: Pc, mask: u32) -> Step {
    let machine = cta.m;
    let sides = &machine.code.sides;
    let n = i.side as usize;
    let members = match i.op {
        Op::Shfl => sides.shfls[n].members,
        Op::Vote => sides.votes[n].members,
        Op::Match => sides.matches[n].members,
        Op::Redux => sides.reduxes[n].members,
        Op::BarWarp | Op::Elect => i.a,
        _ => {
            if i.op == Op::ActiveMask {
                w.regs.put32(i.d, &[mask; 32], mask);
                w.regs.define(i.d, mask);
            }
            return Step::Next;
        }
    };
    if !gathered(cta, w, at, pc, members, mask) {
        return Step::Switch;
    }
    match i.op {
        Op::Shfl => shuffle(cta, w, i, pc, mask),
        Op::Vote => vote(cta, w, i, pc, mask),
        Op::Match => matching(cta, w, i, pc, mask),
        Op::Redux => redux(cta, w, i, pc, mask),
        Op::Elect => {
            let wanted = *w.regs.r32(i.a);
            let t: [u32; 32] = std::array::from_fn(|l| (wanted[l] & mask).trailing_zeros());
            let leader = lanes_of(mask).filter(|&l| t[l] as usize == l).fold(0, |a, l| a | 1 << l);
            w.regs.put32(i.d, &t, mask);
            w.regs.put_pred(i.d2, leader, mask);
            w.regs.define(i.d, mask);
            w.regs.define(i.d2, mask);
        }
        Op::BarWarp => interval(cta, w),
        _ => {}
    }
    Step::Next
}

fn shuffle(cta: &mut Cta, w: &mut Warp, i: &Instr, pc: Pc, mask: u32) {
    let machine = cta.m;
    let op = &machine.code.sides.shfls[i.side as usize];
    for row in [op.b, op.c] {
        if undefined::reaches(cta, w, row, pc, mask, "the value says which lane a shuffle reads") {
            return;
        }
    }
    let (a, b, c, wanted) = (*w.regs.r32(op.a), *w.regs.r32(op.b), *w.regs.r32(op.c), *w.regs.r32(op.members));
    let poison = w.regs.poison(op.a);
    let (mut t, mut valid, mut spread, mut crossed, mut absent) = ([0u32; 32], 0u32, 0u32, 0u32, 0u32);
    // PERF: sources of all lanes first, then what is rare only if it can be.
    let mut sources = [0u32; 32];
    for l in 0..32 {
        let lane = l as u32;
        let (clamp, segment, value) = (c[l] & 31, c[l] >> 8 & 31, b[l] & 31);
        let high = (lane & segment) | (clamp & !segment);
        let (source, ok) = match op.mode {
            ShflMode::Up => (lane.wrapping_sub(value), lane as i32 - value as i32 >= high as i32),
            ShflMode::Down => (lane + value, lane + value <= high),
            ShflMode::Bfly => (lane ^ value, lane ^ value <= high),
            ShflMode::Idx => {
                let source = lane & segment | value & !segment;
                (source, source <= high)
            }
        };
        sources[l] = if ok { source & 31 } else { lane };
        valid |= u32::from(ok) << l;
    }
    for l in 0..32 {
        t[l] = a[sources[l] as usize & 31];
    }
    let all = mask == u32::MAX && wanted == [u32::MAX; 32];
    if !all || poison != 0 {
        for l in lanes_of(mask) {
            let s = sources[l] as usize & 31;
            if mask >> s & 1 == 0 || wanted[l] >> s & 1 == 0 {
                absent |= 1 << l;
            } else if poison >> s & 1 != 0 {
                spread |= 1 << l;
                crossed |= u32::from(s != l) << l;
            }
        }
    }
    if absent != 0 {
        cta.report(FindingKind::InactiveLane, w, pc, None, absent, false, |_| {
            (
                format!(
                    "{} reads a lane that does not take part in the shuffle: the value is undefined",
                    lanes_text(absent)
                ),
                None,
            )
        });
    }
    let origin = w.regs.origin(op.a, pc);
    if crossed != 0 {
        undefined::found(cta, w, origin, pc, crossed, false, "a shuffle hands the value to another lane");
        // Reported where it happened: what follows from it would say the same again.
        spread &= !crossed;
    }
    w.regs.put32(op.d, &t, mask);
    w.regs.set_poison(op.d, spread, mask, origin);
    if let Some(p) = op.pred {
        w.regs.put_pred(p, valid, mask);
        w.regs.define(p, mask);
    }
}

fn vote(cta: &mut Cta, w: &mut Warp, i: &Instr, pc: Pc, mask: u32) {
    let machine = cta.m;
    let op = &machine.code.sides.votes[i.side as usize];
    undefined::notes(cta, w, op.pred, pc, mask, "the value takes part in a vote");
    let p = w.regs.pred(op.pred) ^ if op.negated { u32::MAX } else { 0 };
    let wanted = *w.regs.r32(op.members);
    let mut t = [0u32; 32];
    let mut bits = 0;
    for l in lanes_of(mask) {
        let members = wanted[l] & mask;
        let yes = p & members;
        t[l] = yes;
        let result = match op.mode {
            VoteMode::All => yes == members,
            VoteMode::Any => yes != 0,
            VoteMode::Uni => yes == 0 || yes == members,
            VoteMode::Ballot => false,
        };
        bits |= u32::from(result) << l;
    }
    if op.mode == VoteMode::Ballot {
        w.regs.put32(op.d, &t, mask)
    } else {
        w.regs.put_pred(op.d, bits, mask)
    }
    w.regs.define(op.d, mask);
}

fn matching(cta: &mut Cta, w: &mut Warp, i: &Instr, pc: Pc, mask: u32) {
    let machine = cta.m;
    let op = &machine.code.sides.matches[i.side as usize];
    undefined::notes(cta, w, op.a, pc, mask, "the value is compared across lanes");
    let wanted = *w.regs.r32(op.members);
    let value: [u64; 32] = std::array::from_fn(|l| w.regs.lane(op.a, op.wide, l));
    let mut t = [0u32; 32];
    let mut bits = 0;
    for l in lanes_of(mask) {
        let members = wanted[l] & mask;
        let same = lanes_of(members).filter(|&k| value[k] == value[l]).fold(0, |a, k| a | 1u32 << k);
        t[l] = if !op.all || same == members { same } else { 0 };
        bits |= u32::from(same == members) << l;
    }
    w.regs.put32(op.d, &t, mask);
    w.regs.define(op.d, mask);
    if let Some(p) = op.pred {
        w.regs.put_pred(p, bits, mask);
        w.regs.define(p, mask);
    }
}

fn redux(cta: &mut Cta, w: &mut Warp, i: &Instr, pc: Pc, mask: u32) {
    let machine = cta.m;
    let op = &machine.code.sides.reduxes[i.side as usize];
    undefined::notes(cta, w, op.a, pc, mask, "the value takes part in a reduction over lanes");
    let (a, wanted) = (*w.regs.r32(op.a), *w.regs.r32(op.members));
    let mut t = [0u32; 32];
    let fold = |x: u32, y: u32| match (op.op, op.signed, op.float) {
        (AtomOp::Add, ..) => x.wrapping_add(y),
        (AtomOp::And, ..) => x & y,
        (AtomOp::Or, ..) => x | y,
        (AtomOp::Xor, ..) => x ^ y,
        (which, _, Some((abs, nan))) => {
            let f = if which == AtomOp::Min { FloatOp::Min } else { FloatOp::Max };
            let cut = if abs { 0x7FFF_FFFF } else { u32::MAX };
            let imm = lane_float::imm(f, lane_float::F32, lane_float::RN, if nan { lane_float::NAN } else { 0 });
            lane_float::scalar((x & cut).into(), (y & cut).into(), 0, imm) as u32
        }
        (AtomOp::Min, true, _) => (x as i32).min(y as i32) as u32,
        (AtomOp::Max, true, _) => (x as i32).max(y as i32) as u32,
        (AtomOp::Min, ..) => x.min(y),
        _ => x.max(y),
    };
    for l in lanes_of(mask) {
        t[l] = lanes_of(wanted[l] & mask).map(|k| a[k]).reduce(fold).unwrap_or(0);
    }
    w.regs.put32(op.d, &t, mask);
    w.regs.define(op.d, mask);
}
