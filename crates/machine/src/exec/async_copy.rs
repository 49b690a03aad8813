//! `cp.async`: copies from global to shared memory that are in flight until waited for.
//!
//! A copy is checked twice: at issue, against everybody who still uses the old bytes, and when it lands, as a write of the
//! waiting warp. In between its bytes are marked as in flight. With late copies the bytes arrive at the wait, with early
//! ones at issue; a right kernel gives the same result either way. Groups are counted for each thread.
//! Source: PTX ISA 9.0, "cp.async, cp.async.commit_group, cp.async.wait_group".

use crate::api::AsyncCopies;
use crate::code::{Area, Instr, Pc};
use crate::cta::{Cta, Flight};
use crate::exec::memory::{address_undefined, addresses, bad_access, classify, in_flight, race};
use crate::exec::rare::lanes_of;
use crate::exec::{global_races, traffic, undefined};
use crate::memory::{DEFINED, slot_of};
use crate::shared::{Accessor, Lanes};
use crate::warp::{PendingCopy, Warp};

/// Starts the copies of the active lanes.
pub fn issue(cta: &mut Cta, w: &mut Warp, i: &Instr, pc: Pc, m: u32) {
    let op = &cta.m.code.sides.copies[i.side as usize];
    if address_undefined(cta, w, &op.shared, pc, m) || address_undefined(cta, w, &op.global, pc, m) {
        return;
    }
    if let Some(row) = op.src_size
        && undefined::reaches(cta, w, row, pc, m, "the value is the size of a copy")
    {
        return;
    }
    let (to, from) = (addresses(w, &op.shared), addresses(w, &op.global));
    if !cta.traffic.is_empty() {
        // Both sides of the copy; lanes that are out of bounds are reported below.
        let inside = |l: usize| if m >> l & 1 != 0 { l } else { m.trailing_zeros() as usize & 31 };
        traffic::shared(cta, pc, m, &std::array::from_fn(|l| to[inside(l)] as u32), op.bytes as usize);
        traffic::global(cta, pc, m, &std::array::from_fn(|l| from[inside(l)] as usize), op.bytes as usize);
    }
    let limit = cta.shared.len() as u64;
    let bytes = op.bytes as usize;
    for l in lanes_of(m) {
        let mut src = op.src_size.map_or(op.bytes, |row| w.regs.r32(row)[l].min(op.bytes));
        if let Some((row, negated)) = op.ignore
            && (w.regs.pred(row) >> l & 1 != 0) != negated
        {
            src = 0;
        }
        // A generic pointer to shared memory is accepted too.
        let start = match classify(to[l]) {
            (Area::Shared, relative) => relative,
            _ => to[l],
        };
        if start % u64::from(op.bytes) != 0 || start.saturating_add(op.bytes.into()) > limit {
            bad_access(cta, w, pc, Area::Shared, start, op.bytes, op.bytes, 1 << l, true);
            return;
        }
        // With no source bytes nothing is read, wherever the address points; it must be aligned all the same.
        if src > 0 && !readable(cta, from[l], src) || from[l] % u64::from(op.bytes) != 0 {
            bad_access(cta, w, pc, Area::Global, from[l], src, op.bytes, 1 << l, false);
            return;
        }
        let at = start as usize;
        let who = Accessor { warp: w.index, clock: &w.clock, pc, atomic: false, lanes: Lanes::One(l as u32) };
        if let Some(c) = cta.shared.check_write(at, bytes, &who) {
            race(cta, w, pc, c, 1 << l, true);
        }
        if cta.shared.in_flight(at, bytes) {
            in_flight(cta, w, pc, at, bytes, 1 << l, true);
        }
        cta.shared.set_flight(at, bytes, true);
        cta.flights.push(Flight { at, bytes, source: from[l], source_bytes: src as usize, pc });
        if src > 0 {
            read_source(cta, w, pc, from[l], src, l);
        }
        let copy = PendingCopy {
            lane: l as u8,
            bytes: op.bytes as u8,
            src_bytes: src as u8,
            group: w.committed[l],
            shared: start as u32,
            global: from[l],
            pc,
        };
        if cta.m.options.async_copies == AsyncCopies::Early {
            transfer(cta, &copy);
            // The bytes are there, but nobody may count on it yet.
            cta.shared.set_flight(at, bytes, true);
        }
        w.copies.push(copy);
    }
}

/// The copy's reading side, for races through global memory.
fn read_source(cta: &mut Cta, w: &Warp, pc: Pc, from: u64, bytes: u32, lane: usize) {
    let machine = cta.m;
    if let Some((slot, offset)) = slot_of(from)
        && let Some(b) = machine.buffers.get(slot)
    {
        let at = [offset as usize; 32];
        let span = bytes as usize;
        let lanes = global_races::Lanes { slot, mask: 1 << lane, at: &at, span, range: Some(span) };
        global_races::read(cta, w, pc, b, lanes, false);
    }
}

fn readable(cta: &Cta, at: u64, bytes: u32) -> bool {
    slot_of(at).is_some_and(|(slot, offset)| {
        cta.m.buffers.get(slot).is_some_and(|b| offset >= 0 && offset as u64 + u64::from(bytes) <= b.bytes)
    })
}

/// Moves the bytes and their shadow; what is beyond the source size becomes zero.
fn transfer(cta: &mut Cta, c: &PendingCopy) {
    let at = c.shared as usize;
    let Some((slot, offset)) = slot_of(c.global).or((c.src_bytes == 0).then_some((0, 0))) else { return };
    let buffer = cta.m.buffers.get(slot);
    for n in 0..usize::from(c.bytes) / 4 {
        let inside = usize::from(c.src_bytes).saturating_sub(4 * n).min(4);
        let (mut value, mut ok) = (0u64, true);
        if let Some(b) = buffer
            && inside > 0
        {
            let from = offset as usize + 4 * n;
            for k in 0..inside {
                value |= b.data.load(from + k, 1) << (8 * k);
                ok &= b.shadow.as_ref().is_none_or(|s| s.load8(from + k) & DEFINED != 0);
            }
        }
        cta.shared.store(at + 4 * n, 4, value);
        cta.shared.mark(at + 4 * n, 4, if ok { DEFINED } else { 0 });
        if !ok {
            cta.shared.origins.insert(at + 4 * n, c.pc);
            if let Some(place) = cta.m.global_place(slot, offset, c.bytes.into()) {
                cta.undefined_places.entry(c.pc).or_insert(place);
            }
        }
    }
}

/// Closes the current group of each active lane.
pub fn commit(w: &mut Warp, m: u32) {
    for l in lanes_of(m) {
        w.committed[l] += 1;
    }
}

/// Waits until at most so many of the latest groups are in flight.
pub fn wait(cta: &mut Cta, w: &mut Warp, i: &Instr, m: u32) {
    let keep = u32::try_from(i.imm).unwrap_or(0);
    let all = i.sub == 1;
    let committed = w.committed;
    finish(cta, w, |c| m >> c.lane & 1 != 0 && (all || c.group + keep < committed[usize::from(c.lane)]));
}

/// All copies of these lanes have come: for an mbarrier that tracks them.
pub fn land(cta: &mut Cta, w: &mut Warp, m: u32) {
    finish(cta, w, |c| m >> c.lane & 1 != 0);
}

fn finish(cta: &mut Cta, w: &mut Warp, done: impl Fn(&PendingCopy) -> bool) {
    let copies = std::mem::take(&mut w.copies);
    let mut left = Vec::with_capacity(copies.len());
    for c in copies {
        if !done(&c) {
            left.push(c);
            continue;
        }
        let (at, bytes) = (c.shared as usize, usize::from(c.bytes));
        cta.shared.set_flight(at, bytes, false);
        if cta.m.options.async_copies == AsyncCopies::Late {
            transfer(cta, &c);
        }
        if let Some(n) = cta.flights.iter().position(|f| f.at == at && f.bytes == bytes && f.pc == c.pc) {
            cta.flights.swap_remove(n);
        }
        // The write counts from the copy's own place, in the interval in which it was waited for.
        let who =
            Accessor { warp: w.index, clock: &w.clock, pc: c.pc, atomic: false, lanes: Lanes::One(c.lane.into()) };
        if let Some(conflict) = cta.shared.write(at, bytes, &who) {
            race(cta, w, c.pc, conflict, 1 << c.lane, true);
        }
    }
    w.copies = left;
}
