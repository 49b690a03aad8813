//! `cp.async`: copies from global to shared memory that are in flight until waited for.
//!
//! A copy is checked twice: at issue, against everybody who still uses the old bytes, and when it lands, as a write of the
//! waiting warp. In between its bytes are marked as in flight. With late copies the bytes arrive at the wait, with early
//! ones at issue; a right kernel gives the same result either way. Groups are counted for each thread.
//! Source: PTX ISA 9.0, "cp.async, cp.async.commit_group, cp.async.wait_group".

use crate::api::AsyncCopies;
use crate::code::{Area, CopyOp, Instr, Pc};
use crate::cta::Cta;
use crate::exec::memory::{address_undefined, addresses, bad_access, classify, in_flight, race};
use crate::exec::rare::lanes_of;
use crate::exec::rows::{ANY, mask_of, versions};
use crate::exec::{global_races, traffic, undefined};
use crate::memory::{ALL_DEFINED, DEFINED, slot_of};
use crate::shared::{Accessor, Lanes, Places};
use crate::warp::Warp;

/// Copies of one `cp.async` that have not been waited for: those of the lanes of `mask`.
#[derive(Debug, Clone)]
pub struct Flight {
    pub pc: Pc,
    warp: usize,
    mask: u32,
    bytes: usize,
    /// The lanes' group number.
    group: u32,
    /// Issued as a whole: no two lanes write one place, and lanes that take no part stand where the first one that does stands.
    whole: bool,
    /// Shared offsets.
    to: [u32; 32],
    /// Global addresses, and bytes that are read there.
    from: [u64; 32],
    size: [u8; 32],
}

impl Flight {
    /// Whether it writes any of so many bytes of shared memory.
    pub fn covers(&self, at: usize, len: usize) -> bool {
        lanes_of(self.mask).any(|l| (self.to[l] as usize) < at + len && at < self.to[l] as usize + self.bytes)
    }

    /// Whether it reads any byte of global memory from `start` up to `end`.
    pub fn reads(&self, start: u64, end: u64) -> bool {
        lanes_of(self.mask).any(|l| self.from[l] < end && start < self.from[l] + u64::from(self.size[l]))
    }
}

versions! {
    /// Starts the copies of the active lanes.
    fn issue(cta: &mut Cta, w: &mut Warp, i: &Instr, pc: Pc, m: u32) = issue_body
}

#[inline(always)]
fn issue_body(cta: &mut Cta, w: &mut Warp, i: &Instr, pc: Pc, m: u32) {
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
    let mut f = match cta.landed.pop() {
        Some(f) => f,
        None => Box::new(Flight {
            pc,
            warp: 0,
            mask: 0,
            bytes: 0,
            group: 0,
            whole: false,
            to: [0; 32],
            from,
            size: [0; 32],
        }),
    };
    (f.pc, f.warp, f.mask, f.bytes, f.from) = (pc, w.index, m, op.bytes as usize, from);
    f.size = sizes(w, op);
    let first = m.trailing_zeros() as usize & 31;
    for (l, a) in f.to.iter_mut().enumerate() {
        let at = to[if m >> l & 1 != 0 { l } else { first }];
        let at = relative(at);
        // Beyond 32 bits it is out of bounds like the last address.
        *a = u32::try_from(at).unwrap_or(u32::MAX);
    }
    f.whole = quick(cta, w, &f);
    if !f.whole {
        f.mask = slow(cta, w, &f, &to);
    }
    launch(cta, w, f);
}

/// An offset in shared memory; a generic pointer to it is accepted too.
#[inline(always)]
fn relative(address: u64) -> u64 {
    match classify(address) {
        (Area::Shared, relative) => relative,
        _ => address,
    }
}

/// Bytes to read for each lane.
#[inline(always)]
fn sizes(w: &Warp, op: &CopyOp) -> [u8; 32] {
    let mut size = [op.bytes as u8; 32];
    if let Some(row) = op.src_size {
        let asked = w.regs.r32(row);
        for l in 0..32 {
            size[l] = asked[l].min(op.bytes) as u8;
        }
    }
    if let Some((row, negated)) = op.ignore {
        let ignored = w.regs.pred(row) ^ if negated { u32::MAX } else { 0 };
        for l in lanes_of(ignored) {
            size[l] = 0;
        }
    }
    size
}

/// PERF: the usual case at once: all lanes copy whole pieces from one buffer, and nobody is near what they overwrite.
#[inline(always)]
fn quick(cta: &mut Cta, w: &Warp, f: &Flight) -> bool {
    let (m, bytes) = (f.mask, f.bytes);
    let machine = cta.m;
    let first = m.trailing_zeros() as usize & 31;
    let Some((slot, offset)) = slot_of(f.from[first]) else { return false };
    let Some(b) = machine.buffers.get(slot) else { return false };
    let base = f.from[first].wrapping_sub(offset as u64);
    let limit = cta.shared.len() as u64;
    let (mut bad, mut at) = (0u64, [0usize; 32]);
    for (l, at) in at.iter_mut().enumerate() {
        let active = m >> l & 1 != 0;
        let o = f.from[if active { l } else { first }].wrapping_sub(base);
        bad |= u64::from(o > b.bytes) | u64::from(o.wrapping_add(bytes as u64) > b.bytes) | o & (bytes as u64 - 1);
        bad |= u64::from(u64::from(f.to[l]) + bytes as u64 > limit) | u64::from(f.to[l]) & (bytes as u64 - 1);
        bad |= u64::from(active && usize::from(f.size[l]) != bytes);
        *at = o as usize;
    }
    // Bit sets of the places' low bits: two lanes that write one place are looked at one by one. A power of two each.
    let (mut twice, mut seen, piece) = (0, [0u64; 16], bytes.trailing_zeros());
    for (l, to) in f.to.iter().enumerate() {
        let place = (to >> piece) as usize % 1024;
        let bit = u64::from(m >> l & 1) << (place % 64);
        twice |= seen[place / 64] & bit;
        seen[place / 64] |= bit;
    }
    if bad | twice != 0 {
        return false;
    }
    let who = Accessor { warp: w.index, clock: &w.clock, pc: f.pc, atomic: false, lanes: Lanes::Same };
    if !cta.detects {
        return true;
    }
    if cta.shared.any_in_flight(&f.to, bytes) || !cta.shared.lanes_quiet(&Places::new(m, &f.to), bytes, &who) {
        return false;
    }
    cta.shared.lanes_flight(m, &f.to, bytes, true);
    let lanes = global_races::Lanes { slot, mask: m, at: &at, span: bytes, range: None };
    global_races::read(cta, w, f.pc, b, lanes, false);
    true
}

/// Lane after lane, with what there is to report; the lanes whose copies begin.
#[cold]
#[inline(never)]
fn slow(cta: &mut Cta, w: &Warp, f: &Flight, to: &[u64; 32]) -> u32 {
    let (pc, bytes) = (f.pc, f.bytes as u32);
    let limit = cta.shared.len() as u64;
    let mut started = 0;
    for l in lanes_of(f.mask) {
        let (from, src) = (f.from[l], u32::from(f.size[l]));
        let start = relative(to[l]);
        if !start.is_multiple_of(bytes.into()) || start.saturating_add(bytes.into()) > limit {
            bad_access(cta, w, pc, Area::Shared, start, bytes, bytes, 1 << l, true);
            break;
        }
        // With no source bytes nothing is read, wherever the address points; it must be aligned all the same.
        if src > 0 && !readable(cta, from, src) || from % u64::from(bytes) != 0 {
            bad_access(cta, w, pc, Area::Global, from, src, bytes, 1 << l, false);
            break;
        }
        let at = start as usize;
        let who = Accessor { warp: w.index, clock: &w.clock, pc, atomic: false, lanes: Lanes::One(l as u32) };
        if let Some(c) = cta.shared.check_write(at, f.bytes, &who) {
            race(cta, w, pc, c, 1 << l, true);
        }
        if cta.shared.in_flight(at, f.bytes) {
            in_flight(cta, w, pc, at, f.bytes, 1 << l, true);
        }
        cta.shared.set_flight(at, f.bytes, true);
        if src > 0 {
            read_source(cta, w, pc, from, src, l);
        }
        started |= 1 << l;
    }
    started
}

/// Puts copies that have begun among those in flight, lanes of different group numbers apart.
fn launch(cta: &mut Cta, w: &Warp, mut f: Box<Flight>) {
    if cta.m.options.async_copies == AsyncCopies::Early {
        for l in lanes_of(f.mask) {
            transfer(cta, &f, l);
        }
        // The bytes are there, but nobody may count on it yet.
        cta.shared.lanes_flight(f.mask, &f.to, f.bytes, true);
    }
    while f.mask != 0 {
        f.group = w.committed[f.mask.trailing_zeros() as usize & 31];
        let same = mask_of(|l| w.committed[l] == f.group);
        let rest = f.mask & !same;
        if rest == 0 {
            cta.flights.push(f);
            return;
        }
        cta.flights.push(Box::new(Flight { mask: f.mask & same, whole: false, ..(*f).clone() }));
        (f.mask, f.whole) = (rest, false);
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

/// Moves a lane's bytes and their shadow; what is beyond the source size becomes zero.
#[inline(always)]
fn transfer(cta: &mut Cta, f: &Flight, l: usize) {
    let (at, size) = (f.to[l] as usize, usize::from(f.size[l]));
    let Some((slot, offset)) = slot_of(f.from[l]).or((size == 0).then_some((0, 0))) else { return };
    let buffer = cta.m.buffers.get(slot);
    // PERF: whole pieces of defined bytes by words of eight; both sides were checked at issue.
    if let Some(b) = buffer
        && size == f.bytes
        && size.is_multiple_of(8)
    {
        let words = (0..size / 8).map(|n| offset as usize + 8 * n);
        if b.shadow.as_ref().is_none_or(|s| words.clone().all(|from| s.load64(from) == ALL_DEFINED)) {
            for (n, from) in words.enumerate() {
                cta.shared.store(at + 8 * n, 8, b.data.load64(from));
            }
            cta.shared.mark(at, size, DEFINED);
            return;
        }
    }
    transfer_words(cta, f, l, slot, offset);
}

/// PERF: all lanes of a copy that began as a whole, from one buffer and each of all its bytes, where all are defined. False: nothing was done.
#[inline(always)]
fn transfer_whole(cta: &mut Cta, f: &Flight, lanes: u32) -> bool {
    match f.bytes {
        16 => transfer_pieces::<2>(cta, f, lanes),
        8 => transfer_pieces::<1>(cta, f, lanes),
        _ => false,
    }
}

#[inline(always)]
fn transfer_pieces<const WORDS: usize>(cta: &mut Cta, f: &Flight, lanes: u32) -> bool {
    let Some((slot, offset)) = slot_of(f.from[lanes.trailing_zeros() as usize & 31]) else { return false };
    let base = f.from[lanes.trailing_zeros() as usize & 31].wrapping_sub(offset as u64);
    let Some(b) = cta.m.buffers.get(slot) else { return false };
    if let Some(shadow) = &b.shadow {
        let mut undefined = 0;
        for l in lanes_of(lanes) {
            let from = f.from[l].wrapping_sub(base) as usize;
            for n in 0..WORDS {
                undefined |= shadow.load64(from + 8 * n) ^ ALL_DEFINED;
            }
        }
        if undefined != 0 {
            return false;
        }
    }
    for l in lanes_of(lanes) {
        let (to, from) = (f.to[l] as usize, f.from[l].wrapping_sub(base) as usize);
        for n in 0..WORDS {
            cta.shared.store(to + 8 * n, 8, b.data.load64(from + 8 * n));
        }
        cta.shared.mark(to, 8 * WORDS, DEFINED);
    }
    true
}

#[cold]
#[inline(never)]
fn transfer_words(cta: &mut Cta, f: &Flight, l: usize, slot: usize, offset: i64) {
    let (at, size) = (f.to[l] as usize, usize::from(f.size[l]));
    let buffer = cta.m.buffers.get(slot);
    for n in 0..f.bytes / 4 {
        let inside = size.saturating_sub(4 * n).min(4);
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
            cta.shared.origins.insert(at + 4 * n, f.pc);
            if let Some(place) = cta.m.global_place(slot, offset, f.bytes as u32) {
                cta.undefined_places.entry(f.pc).or_insert(place);
            }
        }
    }
}

/// Closes the current group of each active lane.
pub fn commit(w: &mut Warp, m: u32) {
    for l in 0..32 {
        w.committed[l] += m >> l & 1;
    }
}

/// Waits until at most so many of the latest groups are in flight.
pub fn wait<const WIDE: u8>(cta: &mut Cta, w: &mut Warp, i: &Instr, m: u32) {
    let keep = u32::try_from(i.imm).unwrap_or(0);
    let all = i.sub == 1;
    let committed = w.committed;
    finish::<WIDE>(cta, w, m, |group| if all { m } else { mask_of(|l| group.saturating_add(keep) < committed[l]) });
}

/// All copies of these lanes have come: for an mbarrier that tracks them.
pub fn land(cta: &mut Cta, w: &mut Warp, m: u32) {
    finish::<ANY>(cta, w, m, |_| m);
}

/// Lets copies of the lanes of `m` land; `done` says of which lanes, by the group's number.
fn finish<const WIDE: u8>(cta: &mut Cta, w: &Warp, m: u32, done: impl Fn(u32) -> u32) {
    let mut flights = std::mem::take(&mut cta.flights);
    let mut kept = 0;
    for n in 0..flights.len() {
        let f = &mut flights[n];
        let lanes = if f.warp == w.index { f.mask & m & done(f.group) } else { 0 };
        if lanes != 0 {
            f.whole &= lanes == f.mask;
            touch_down::<WIDE>(cta, w, f, lanes);
            f.mask &= !lanes;
        }
        if f.mask != 0 {
            flights.swap(kept, n);
            kept += 1;
        }
    }
    cta.landed.extend(flights.drain(kept..));
    cta.flights = flights;
}

versions! {
    /// The copies of some lanes have come.
    fn touch_down(cta: &mut Cta, w: &Warp, f: &Flight, lanes: u32) = touch_down_body
}

#[inline(always)]
fn touch_down_body(cta: &mut Cta, w: &Warp, f: &Flight, lanes: u32) {
    let late = cta.m.options.async_copies == AsyncCopies::Late;
    if !(late && f.whole && transfer_whole(cta, f, lanes)) {
        cta.shared.lanes_flight(lanes, &f.to, f.bytes, false);
        if late {
            for l in lanes_of(lanes) {
                transfer(cta, f, l);
            }
        }
    }
    if !cta.detects {
        return;
    }
    // The write counts from the copy's own place, in the interval in which it was waited for.
    let who = Accessor { warp: w.index, clock: &w.clock, pc: f.pc, atomic: false, lanes: Lanes::Same };
    if f.whole && cta.shared.write_lanes(lanes, &f.to, f.bytes, &who) {
        return;
    }
    for l in lanes_of(lanes) {
        let who = Accessor { lanes: Lanes::One(l as u32), ..who };
        if let Some(conflict) = cta.shared.write(f.to[l] as usize, f.bytes, &who) {
            race(cta, w, f.pc, conflict, 1 << l, true);
        }
    }
}
