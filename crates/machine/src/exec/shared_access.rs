//! `ld.shared` and `st.shared` of 32 lanes, with the checks: bounds, alignment, undefined bytes, races, copies in flight.
//!
//! Lanes that do not take part stand at the first active lane's address, so that loops need no mask. An access of all lanes at
//! consecutive addresses, or of any at one address, is checked as one range.

use crate::api::FindingKind;
use crate::code::{Area, MemOp, Pc, Width};
use crate::cta::Cta;
use crate::exec::memory::{
    bad_access, fill, in_flight, note_place, put, put_defined, put_undefined, race, synchronise, undefined_bytes,
};
use crate::exec::nearly::{self, Apart, lanes_apart};
use crate::exec::rare::lanes_of;
use crate::exec::traffic;
use crate::exec::turn::turn_words;
use crate::memory::DEFINED;
use crate::shared::{Accessor, Conflict, Lanes, Places};
use crate::warp::Warp;

/// How the lanes' addresses lie.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// One address for all.
    Same,
    /// Lane l at the first address plus l spans; all lanes active.
    Row,
    Any,
}

/// Which lanes touch which words.
#[inline(always)]
fn lanes_at(shape: Shape, start: usize, span: usize, m: u32) -> Lanes {
    if shape == Shape::Row { Lanes::Row { start, span } } else { Lanes::together(m) }
}

/// Offsets of all lanes, checked; None: a finding ended the run.
#[inline(always)]
fn offsets(
    cta: &mut Cta,
    w: &Warp,
    pc: Pc,
    m: u32,
    at: &[u64; 32],
    span: usize,
    write: bool,
) -> Option<([u32; 32], Shape)> {
    let first = at[m.trailing_zeros() as usize & 31];
    let limit = cta.shared.len() as u64;
    let mut t = [0u32; 32];
    let mut bad = 0u64;
    let (mut row, mut same) = (0u32, 0u32);
    // A span is a power of two.
    let step = span.trailing_zeros();
    for l in 0..32 {
        let a = if m >> l & 1 != 0 { at[l] } else { first };
        bad |= u64::from(a.wrapping_add(span as u64) > limit) | u64::from(a > limit) | a & (span as u64 - 1);
        t[l] = a as u32;
        row |= t[l] ^ (first as u32).wrapping_add((l as u32) << step);
        same |= t[l] ^ first as u32;
    }
    if bad != 0 {
        let wrong = |l: &usize| !at[*l].is_multiple_of(span as u64) || at[*l].saturating_add(span as u64) > limit;
        let lane = lanes_of(m).find(wrong).unwrap_or(0);
        bad_access(cta, w, pc, Area::Shared, at[lane], span as u32, span as u32, 1 << lane, write);
        return None;
    }
    let shape = match (row == 0 && m == u32::MAX, same == 0) {
        (true, _) => Shape::Row,
        (_, true) => Shape::Same,
        _ => Shape::Any,
    };
    Some((t, shape))
}

#[inline(always)]
pub fn load(cta: &mut Cta, w: &mut Warp, op: &MemOp, pc: Pc, m: u32, at: &[u64; 32]) {
    let span = op.bytes as usize * op.rows.len();
    let Some((t, shape)) = offsets(cta, w, pc, m, at, span, false) else { return };
    if op.strong {
        w.poll();
        synchronise(cta, w, u64::from(t[0]), op.acquire || !op.release, op.release);
    }
    traffic::shared(cta, pc, m, &t, span);
    let start = t[0] as usize;
    let lanes = lanes_at(shape, start, span, m);
    let who = Accessor { warp: w.index, clock: &w.clock, pc, atomic: op.strong, lanes };
    let defined = match shape {
        _ if !cta.detects => true,
        Shape::Same | Shape::Row => {
            let len = if shape == Shape::Row { 32 * span } else { span };
            let conflict = cta.shared.read(start, len, &who);
            if let Some(c) = conflict {
                race(cta, w, pc, c, m, false);
            }
            cta.shared.is_defined(start, len)
        }
        Shape::Any => {
            let places = Places::new(m, &t);
            if !cta.shared.read_lanes(m, &t, &places, span, &who) {
                for l in lanes_of(m) {
                    let lanes = Lanes::One(l as u32);
                    let who = Accessor { warp: w.index, clock: &w.clock, pc, atomic: op.strong, lanes };
                    if let Some(c) = cta.shared.read(t[l] as usize, span, &who) {
                        race(cta, w, pc, c, 1 << l, false);
                    }
                }
            }
            cta.shared.lanes_defined(places.at(), span)
        }
    };
    let fours = op.bytes == 4 && op.rows.len() == 4 && m == u32::MAX && shape != Shape::Same && op.extend == 0;
    let fours = fours && op.rows.iter().all(|(_, width)| *width == Width::W32);
    if fours {
        load_fours(cta, w, op, &t);
    }
    for e in 0..if fours { 0 } else { op.rows.len() } {
        let step = e * op.bytes as usize;
        let (row, width) = op.rows[e];
        if shape == Shape::Same {
            let v = cta.shared.load(start + step, op.bytes as usize);
            if width == Width::W32 && op.extend == 0 {
                w.regs.put32(row, &[v as u32; 32], m);
            } else {
                put(w, op, e, &[v; 32], m);
            }
            continue;
        }
        let shared = &cta.shared;
        match op.bytes {
            1 => fill(w, op, e, m, |l| shared.load(t[l] as usize + step, 1)),
            2 => fill(w, op, e, m, |l| shared.load(t[l] as usize + step, 2)),
            4 => fill(w, op, e, m, |l| shared.load(t[l] as usize + step, 4)),
            _ => fill(w, op, e, m, |l| shared.load(t[l] as usize + step, 8)),
        }
    }
    if defined {
        put_defined(w, op, m);
    } else {
        undefined(cta, w, op, pc, m, &t);
    }
}

/// Four words of each lane.
///
/// PERF: four lanes' sixteen bytes are turned into four registers' words at once.
#[inline(always)]
fn load_fours(cta: &Cta, w: &mut Warp, op: &MemOp, t: &[u32; 32]) {
    let [a, b, c, d] = [op.rows[0].0, op.rows[1].0, op.rows[2].0, op.rows[3].0];
    for group in (0..32).step_by(4) {
        let lane = |n: usize| cta.shared.sixteen(t[group + n] as usize);
        let words = turn_words([lane(0), lane(1), lane(2), lane(3)]);
        w.regs.m32(a)[group..group + 4].copy_from_slice(&words[0]);
        w.regs.m32(b)[group..group + 4].copy_from_slice(&words[1]);
        w.regs.m32(c)[group..group + 4].copy_from_slice(&words[2]);
        w.regs.m32(d)[group..group + 4].copy_from_slice(&words[3]);
    }
}

/// Marks what is undefined, with where it comes from; bytes in flight are findings.
#[cold]
#[inline(never)]
fn undefined(cta: &mut Cta, w: &mut Warp, op: &MemOp, pc: Pc, m: u32, t: &[u32; 32]) {
    let size = op.bytes as usize;
    let span = size * op.rows.len();
    let mut origin = pc;
    for l in lanes_of(m) {
        let start = t[l] as usize;
        if cta.shared.in_flight(start, span) {
            in_flight(cta, w, pc, start, span, 1 << l, false);
        }
        if !cta.shared.is_value_defined(start, span) {
            origin = cta.shared.origin_within(start, span).unwrap_or(pc);
            let m = cta.m;
            note_place(&mut cta.undefined_places, pc, || Some(m.shared_place(start as i64, span as u32)));
        }
    }
    let shared = &cta.shared;
    put_undefined(w, op, m, origin, |e, l| shared.undefined_bits(t[l] as usize + e * size, size));
}

#[inline(always)]
pub fn store(cta: &mut Cta, w: &mut Warp, op: &MemOp, pc: Pc, m: u32, at: &[u64; 32]) {
    let size = op.bytes as usize;
    let span = size * op.rows.len();
    let Some((t, shape)) = offsets(cta, w, pc, m, at, span, true) else { return };
    traffic::shared(cta, pc, m, &t, span);
    let start = t[0] as usize;
    let lanes = lanes_at(shape, start, span, m);
    let who = Accessor { warp: w.index, clock: &w.clock, pc, atomic: op.strong, lanes };
    match shape {
        _ if !cta.detects => {}
        Shape::Same | Shape::Row => {
            let len = if shape == Shape::Row { 32 * span } else { span };
            let conflict = cta.shared.write(start, len, &who);
            if let Some(c) = conflict {
                write_race(cta, w, op, pc, m, &t, c);
            }
            if cta.shared.in_flight(start, len) {
                in_flight(cta, w, pc, start, len, m, true);
            }
            cta.shared.mark(start, len, DEFINED);
        }
        Shape::Any => {
            let quiet = cta.shared.write_lanes(m, &t, span, &who);
            for l in lanes_of(m) {
                let start = t[l] as usize;
                if !quiet {
                    let lanes = Lanes::One(l as u32);
                    let who = Accessor { warp: w.index, clock: &w.clock, pc, atomic: op.strong, lanes };
                    let conflict = cta.shared.write(start, span, &who);
                    if let Some(c) = conflict {
                        write_race(cta, w, op, pc, 1 << l, &t, c);
                    }
                }
                if cta.shared.in_flight(start, span) {
                    in_flight(cta, w, pc, start, span, 1 << l, true);
                }
                cta.shared.mark(start, span, DEFINED);
            }
        }
    }
    for (e, (row, width)) in op.rows.iter().enumerate() {
        let step = e * size;
        if *width == Width::W64 {
            let v = w.regs.r64(*row);
            for l in lanes_of(m) {
                cta.shared.store(t[l] as usize + step, size, v[l]);
            }
        } else {
            let v = w.regs.r32(*row);
            for l in lanes_of(m) {
                cta.shared.store(t[l] as usize + step, size, u64::from(v[l]));
            }
        }
        let p = w.regs.poison(*row) & m;
        if p != 0 {
            let origin = w.regs.origin(*row, pc);
            for l in lanes_of(p) {
                let bytes = undefined_bytes(w, *row, l, op.bytes);
                for n in (0..size).filter(|n| bytes >> n & 1 != 0) {
                    let at = t[l] as usize + step + n;
                    cta.shared.mark(at, 1, 0);
                    cta.shared.origins.insert(at, origin);
                }
            }
        }
    }
    if shape != Shape::Row && cta.detects {
        same_byte(cta, w, op, pc, m, &t, span);
    }
    if op.strong {
        cta.progressed();
        synchronise(cta, w, u64::from(t[0]), op.acquire, op.release || !op.acquire);
    }
}

/// A write that is not ordered with another warp's access. Writing once more what is there already (several warps set a
/// flag) changes nothing for other writers: then only readers count.
#[cold]
#[inline(never)]
fn write_race(cta: &mut Cta, w: &Warp, op: &MemOp, pc: Pc, m: u32, t: &[u32; 32], conflict: Conflict) {
    let size = op.bytes as usize;
    let cut = if size == 8 { u64::MAX } else { (1 << (8 * size)) - 1 };
    for l in lanes_of(m) {
        let lanes = Lanes::One(l as u32);
        let who = Accessor { warp: w.index, clock: &w.clock, pc, atomic: op.strong, lanes };
        let start = t[l] as usize;
        let span = size * op.rows.len();
        let same = conflict.write
            && cta.shared.is_value_defined(start, span)
            && op.rows.iter().enumerate().all(|(e, (row, width))| {
                let new = w.regs.lane(*row, *width == Width::W64, l) & cut;
                w.regs.poison(*row) >> l & 1 == 0 && cta.shared.load(start + e * size, size) == new
            });
        let found =
            if same { cta.shared.check_reads(start, span, &who) } else { cta.shared.check_write(start, span, &who) };
        if let Some(c) = found {
            race(cta, w, pc, c, 1 << l, true);
        }
    }
}

/// Two lanes that write different values to one place in one instruction: which one stays is not defined.
fn same_byte(cta: &mut Cta, w: &Warp, op: &MemOp, pc: Pc, m: u32, t: &[u32; 32], span: usize) {
    if op.strong || m.count_ones() < 2 {
        return;
    }
    // Bit sets of the addresses' low bits: distinct ones need no closer look.
    let (mut seen, mut twice) = ([0u64; 16], false);
    for l in lanes_of(m) {
        let slot = (t[l] as usize / span) % 1024;
        twice |= seen[slot / 64] >> (slot % 64) & 1 != 0;
        seen[slot / 64] |= 1 << (slot % 64);
    }
    if !twice {
        return;
    }
    let mut worst: Option<(Apart, usize, usize)> = None;
    for l in lanes_of(m) {
        for k in lanes_of(m & u32::MAX.checked_shl(l as u32 + 1).unwrap_or(0)) {
            if t[l] == t[k] {
                let apart = lanes_apart(w, op, l, k);
                if apart > worst.map_or(Apart::Not, |f| f.0) {
                    worst = Some((apart, l, k));
                }
            }
        }
    }
    let Some((apart, l, k)) = worst else { return };
    let what = |machine: &crate::machine::Machine| {
        let place = machine.shared_place(t[l].into(), span as u32);
        let object = place.object.clone().unwrap_or_else(|| "shared memory".into());
        (nearly::told(apart, l, k, place.offset, &object), Some(place))
    };
    let lanes = 1 << l | 1 << k;
    match apart {
        Apart::Values => cta.report(FindingKind::SharedRace, w, pc, None, lanes, false, what),
        _ => cta.note(FindingKind::SharedRace, w, pc, None, lanes, what),
    }
}
