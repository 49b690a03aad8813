//! `atom` and `red`: lane after lane, in lane order.
//! Source: PTX ISA 9.0, "atom". Global atomics are the host's, so that CTAs on other threads see them whole.

use std::sync::atomic::Ordering::SeqCst;

use crate::api::FindingKind;
use crate::code::{Area, AtomOp, AtomTy, AtomicOp, Instr, Pc, RowId};
use crate::cta::Cta;
use crate::exec::global_races::{self, Lanes, Learns};
use crate::exec::guesses;
use crate::exec::lane_float::{self, FloatOp};
use crate::exec::memory::{address_undefined, addresses, areas, bad_access, in_flight, race, synchronise};
use crate::exec::rare::lanes_of;
use crate::exec::undefined;
use crate::memory::{Buffer, DEFINED, slot_of};
use crate::shared::{self, Accessor};
use crate::warp::Warp;

fn bytes_of(ty: AtomTy) -> usize {
    match ty {
        AtomTy::U64 | AtomTy::S64 | AtomTy::F64 => 8,
        AtomTy::B16 | AtomTy::F16 | AtomTy::Bf16 => 2,
        _ => 4,
    }
}

/// The value that replaces `old`.
fn combine(op: AtomOp, ty: AtomTy, old: u64, b: u64, c: u64) -> u64 {
    let float = |kind: u64, pair: bool| {
        let f = match op {
            AtomOp::Min => FloatOp::Min,
            AtomOp::Max => FloatOp::Max,
            _ => FloatOp::Add,
        };
        let imm = lane_float::imm(f, kind, lane_float::RN, 0);
        if pair { lane_float::pair(old, b, 0, imm) } else { lane_float::scalar(old, b, 0, imm) }
    };
    match (op, ty) {
        (AtomOp::Exch, _) => b,
        (AtomOp::Cas, _) => {
            if old == b {
                c
            } else {
                old
            }
        }
        (_, AtomTy::F32) => float(lane_float::F32, false),
        (_, AtomTy::F64) => float(lane_float::F64, false),
        (_, AtomTy::F16) => float(lane_float::F16, false),
        (_, AtomTy::Bf16) => float(lane_float::BF16, false),
        (_, AtomTy::F16x2) => float(lane_float::F16, true),
        (_, AtomTy::Bf16x2) => float(lane_float::BF16, true),
        (AtomOp::Add, _) => old.wrapping_add(b),
        (AtomOp::And, _) => old & b,
        (AtomOp::Or, _) => old | b,
        (AtomOp::Xor, _) => old ^ b,
        (AtomOp::Inc, _) => {
            if old >= b {
                0
            } else {
                old + 1
            }
        }
        (AtomOp::Dec, _) => {
            if old == 0 || old > b {
                b
            } else {
                old - 1
            }
        }
        (AtomOp::Min, AtomTy::S32) => (old as i32).min(b as i32) as u32 as u64,
        (AtomOp::Max, AtomTy::S32) => (old as i32).max(b as i32) as u32 as u64,
        (AtomOp::Min, AtomTy::S64) => (old as i64).min(b as i64) as u64,
        (AtomOp::Max, AtomTy::S64) => (old as i64).max(b as i64) as u64,
        (AtomOp::Min, _) => old.min(b),
        (AtomOp::Max, _) => old.max(b),
    }
}

/// [`combine`] in global memory, where a sum of f32 flushes subnormal numbers (PTX ISA 9.0, "atom"), and one of f64 leaves a NaN as it is (an H200).
fn combine_in_global(op: AtomOp, ty: AtomTy, old: u64, b: u64, c: u64) -> u64 {
    match (op, ty) {
        (AtomOp::Add, AtomTy::F32) => {
            let imm = lane_float::imm(FloatOp::Add, lane_float::F32, lane_float::RN, lane_float::FTZ);
            lane_float::scalar(old, b, 0, imm)
        }
        (AtomOp::Add, AtomTy::F64) if f64::from_bits(old).is_nan() => old,
        (AtomOp::Add, AtomTy::F64) if f64::from_bits(b).is_nan() => b,
        _ => combine(op, ty, old, b, c),
    }
}

fn cut(bytes: usize) -> u64 {
    if bytes == 8 { u64::MAX } else { (1 << (8 * bytes)) - 1 }
}

/// Runs one atomic instruction; the elements of a vector are atomic each by itself.
pub fn atomic(cta: &mut Cta, w: &mut Warp, i: &Instr, pc: Pc, m: u32) {
    let machine = cta.m;
    let op = &machine.code.sides.atoms[i.side as usize];
    if address_undefined(cta, w, &op.address, pc, m) {
        return;
    }
    let bytes = bytes_of(op.ty);
    let mut at = addresses(w, &op.address);
    w.poll();
    let Some(first) = element(cta, w, op, pc, m, (&at, op.b)) else { return };
    if op.more.is_empty() {
        keep(cta, w, op.d, first, bytes, pc, m);
        return;
    }
    let whole = (bytes * (op.more.len() + 1)) as u64;
    if let Some(l) = lanes_of(m).find(|l| !at[*l].is_multiple_of(whole)) {
        bad_access(cta, w, pc, Area::Global, at[l], whole as u32, whole as u32, 1 << l, true);
        return;
    }
    // A destination may be the row of a later element's operand: all are read before any is written.
    let mut olds = vec![(op.d, first)];
    for (d, b) in &op.more {
        at = at.map(|a| a.wrapping_add(bytes as u64));
        let Some(old) = element(cta, w, op, pc, m, (&at, *b)) else { return };
        olds.push((*d, old));
    }
    for (d, old) in olds {
        keep(cta, w, d, old, bytes, pc, m);
    }
}

/// One element for all lanes: the old values and which of them are undefined. None: a finding ended the run.
fn element(
    cta: &mut Cta,
    w: &mut Warp,
    op: &AtomicOp,
    pc: Pc,
    m: u32,
    (at, row): (&[u64; 32], RowId),
) -> Option<([u64; 32], u32)> {
    let bytes = bytes_of(op.ty);
    let mut old = [0u64; 32];
    let mut poison = 0;
    let mut places = *at;
    for (area, mask) in areas(op.area, &mut places, m) {
        for l in lanes_of(mask) {
            let (b, c) = (w.regs.lane(row, bytes == 8, l) & cut(bytes), w.regs.lane(op.c, bytes == 8, l) & cut(bytes));
            guesses::atomic(cta, w, op.op, (op.area, at[l]), l, b);
            let undefined = (w.regs.poison(row) | w.regs.poison(op.c)) >> l & 1 != 0;
            let (value, known) = match area {
                Area::Shared => in_shared(cta, w, op, pc, l, places[l], b, c, undefined),
                Area::Local => {
                    cta.report(FindingKind::InvalidAccess, w, pc, None, 1 << l, true, |_| {
                        ("an atomic on local memory".into(), None)
                    });
                    None
                }
                _ => in_global(cta, w, op, pc, l, places[l], b, c, undefined),
            }?;
            old[l] = value;
            poison |= u32::from(!known) << l;
        }
    }
    Some((old, poison))
}

/// What becomes of the old values.
fn keep(cta: &mut Cta, w: &mut Warp, d: Option<RowId>, (old, poison): ([u64; 32], u32), bytes: usize, pc: Pc, m: u32) {
    if let Some(d) = d {
        if bytes == 8 {
            w.regs.put64(d, &old, m)
        } else {
            w.regs.put32(d, &old.map(|v| v as u32), m)
        }
        w.regs.set_poison(d, poison, m, pc);
    } else if poison != 0 {
        // A reduction onto bytes that were never written: nobody reads the old value, but the sum is garbage.
        undefined::found(cta, w, pc, pc, poison, false, "an atomic adds to them");
    }
}

fn in_shared(
    cta: &mut Cta,
    w: &mut Warp,
    op: &AtomicOp,
    pc: Pc,
    l: usize,
    at: u64,
    b: u64,
    c: u64,
    undefined: bool,
) -> Option<(u64, bool)> {
    let bytes = bytes_of(op.ty);
    if !at.is_multiple_of(bytes as u64) || at + bytes as u64 > cta.shared.len() as u64 {
        bad_access(cta, w, pc, Area::Shared, at, bytes as u32, bytes as u32, 1 << l, true);
        return None;
    }
    synchronise(cta, w, at, true, false);
    let start = at as usize;
    let who = Accessor { warp: w.index, clock: &w.clock, pc, atomic: true, lanes: shared::Lanes::One(l as u32) };
    if let Some(c) = cta.shared.write(start, bytes, &who) {
        race(cta, w, pc, c, 1 << l, true);
    }
    if cta.shared.in_flight(start, bytes) {
        in_flight(cta, w, pc, start, bytes, 1 << l, true);
    }
    let known = cta.shared.is_value_defined(start, bytes);
    let old = cta.shared.load(start, bytes);
    let new = combine(op.op, op.ty, old, b, c);
    cta.shared.store(start, bytes, new);
    if new != old {
        cta.progressed();
    }
    let defined = !undefined && (known || op.op == AtomOp::Exch);
    cta.shared.mark(start, bytes, if defined { DEFINED } else { 0 });
    if !known {
        let place = cta.m.shared_place(at as i64, bytes as u32);
        cta.undefined_places.entry(pc).or_insert(place);
    }
    synchronise(cta, w, at, false, true);
    Some((old, known))
}

fn in_global(
    cta: &mut Cta,
    w: &mut Warp,
    op: &AtomicOp,
    pc: Pc,
    l: usize,
    at: u64,
    b: u64,
    c: u64,
    undefined: bool,
) -> Option<(u64, bool)> {
    let bytes = bytes_of(op.ty);
    let machine = cta.m;
    let found = slot_of(at).and_then(|(slot, offset)| {
        let buffer = machine.buffers.get(slot)?;
        (offset >= 0 && offset as u64 + bytes as u64 <= buffer.bytes && (offset as usize).is_multiple_of(bytes))
            .then_some((slot, buffer, offset as usize))
    });
    let Some((slot, buffer, offset)) = found else {
        bad_access(cta, w, pc, Area::Global, at, bytes as u32, bytes as u32, 1 << l, true);
        return None;
    };
    if buffer.read_only {
        let place = machine.global_place(slot, offset as i64, bytes as u32);
        cta.report(FindingKind::InvalidAccess, w, pc, None, 1 << l, true, |_| {
            (format!("an atomic on {} memory ({})", buffer.space, buffer.name), place)
        });
        return None;
    }
    global_races::tell(cta, w, at, op.release, op.narrow);
    let place = [offset; 32];
    let lanes = Lanes { slot, mask: 1 << l, at: &place, span: bytes, range: None };
    // What is released has this access in it: who sees its value is ordered after it.
    global_races::write(cta, w, pc, buffer, lanes, true, |_| false);
    global_races::release(cta, w, at, op.release, op.narrow);
    let old = update(buffer, offset, bytes, |old| combine_in_global(op.op, op.ty, old, b, c));
    if combine_in_global(op.op, op.ty, old, b, c) != old {
        cta.progressed();
    }
    if op.d.is_some() {
        global_races::acquire(cta, w, at, if op.narrow { Learns::OfItsCta } else { Learns::Now });
    }
    let all = cut(bytes) & 0x0101_0101_0101_0101;
    let known = buffer.shadow.as_ref().is_none_or(|s| s.load(offset, bytes) == all);
    if let Some(s) = &buffer.shadow
        && (undefined || op.op == AtomOp::Exch)
    {
        s.store(offset, bytes, if undefined { 0 } else { all });
    }
    if undefined {
        undefined::notes(cta, w, op.b, pc, 1 << l, "the value goes to global memory");
    }
    if !known {
        let place = machine.global_place(slot, offset as i64, bytes as u32);
        if let Some(p) = place {
            cta.undefined_places.entry(pc).or_insert(p);
        }
    }
    Some((old, known))
}

/// Replaces a value atomically; the old one. 16-bit values go through the word that holds them.
fn update(buffer: &Buffer, offset: usize, bytes: usize, f: impl Fn(u64) -> u64) -> u64 {
    let changed = match bytes {
        8 => buffer.data.atomic64(offset).fetch_update(SeqCst, SeqCst, |old| Some(f(old))),
        4 => buffer
            .data
            .atomic32(offset)
            .fetch_update(SeqCst, SeqCst, |old| Some(f(old.into()) as u32))
            .map(u64::from)
            .map_err(u64::from),
        _ => {
            let shift = 8 * (offset % 4);
            let word = buffer.data.atomic32(offset & !3);
            let changed = word.fetch_update(SeqCst, SeqCst, |old| {
                let new = f(u64::from(old >> shift) & 0xFFFF) as u32 & 0xFFFF;
                Some(old & !(0xFFFF << shift) | new << shift)
            });
            changed.map(|old| u64::from(old >> shift) & 0xFFFF).map_err(|old| u64::from(old >> shift) & 0xFFFF)
        }
    };
    match changed {
        Ok(old) | Err(old) => old,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations() {
        let f = |v: f32| u64::from(v.to_bits());
        for (op, ty, old, b, c, expected) in [
            (AtomOp::Add, AtomTy::U32, 5, 7, 0, 12),
            (AtomOp::Inc, AtomTy::U32, 7, 7, 0, 0),
            (AtomOp::Inc, AtomTy::U32, 6, 7, 0, 7),
            (AtomOp::Dec, AtomTy::U32, 0, 7, 0, 7),
            (AtomOp::Dec, AtomTy::U32, 9, 7, 0, 7),
            (AtomOp::Cas, AtomTy::U32, 5, 5, 9, 9),
            (AtomOp::Cas, AtomTy::U32, 6, 5, 9, 6),
            (AtomOp::Min, AtomTy::S32, 0xFFFF_FFFF, 1, 0, 0xFFFF_FFFF),
            (AtomOp::Min, AtomTy::U32, 0xFFFF_FFFF, 1, 0, 1),
            (AtomOp::Add, AtomTy::F32, f(1.5), f(2.0), 0, f(3.5)),
        ] {
            assert_eq!(combine(op, ty, old, b, c), expected, "{op:?} {ty:?}");
        }
    }
}
