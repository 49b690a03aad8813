//! Ranges of shared or global memory that a warp accesses as a whole: rows of matrices.

use crate::api::FindingKind;
use crate::code::{Area, Pc};
use crate::cta::Cta;
use crate::exec::global_races;
use crate::exec::memory::{bad_access, classify, in_flight, race};
use crate::exec::undefined;
use crate::memory::{DEFINED, slot_of};
use crate::shared::{Accessor, Lanes};
use crate::warp::Warp;

/// The area of an address, and the address relative to it.
pub fn resolve(area: Area, at: u64) -> (Area, u64) {
    if area == Area::Generic { classify(at) } else { (area, at) }
}

/// Checks a range before it is read or written; false: a finding ended the run.
pub fn check(
    cta: &mut Cta,
    w: &Warp,
    pc: Pc,
    area: Area,
    at: u64,
    len: u32,
    align: u32,
    lane: usize,
    write: bool,
) -> bool {
    let lanes = 1 << lane;
    match area {
        Area::Shared => {
            if !at.is_multiple_of(u64::from(align)) || at.saturating_add(len.into()) > cta.shared.len() as u64 {
                bad_access(cta, w, pc, area, at, len, align, lanes, write);
                return false;
            }
            let (at, len) = (at as usize, len as usize);
            let who = Accessor { warp: w.index, clock: &w.clock, pc, atomic: false, lanes: Lanes::Wide };
            let found = if write { cta.shared.write(at, len, &who) } else { cta.shared.read(at, len, &who) };
            if let Some(c) = found {
                race(cta, w, pc, c, lanes, write);
            }
            if cta.shared.in_flight(at, len) {
                in_flight(cta, w, pc, at, len, lanes, write);
            }
        }
        Area::Local => {
            cta.report(FindingKind::InvalidAccess, w, pc, None, lanes, true, |_| {
                ("a matrix instruction on local memory".into(), None)
            });
            return false;
        }
        _ => {
            let inside = slot_of(at).and_then(|(slot, offset)| {
                let b = cta.m.buffers.get(slot)?;
                (offset >= 0
                    && offset as u64 + u64::from(len) <= b.bytes
                    && (offset as u64).is_multiple_of(u64::from(align)))
                .then_some((slot, offset, b))
            });
            let Some((slot, offset, b)) = inside else {
                bad_access(cta, w, pc, area, at, len, align, lanes, write);
                return false;
            };
            let (place, span) = ([offset as usize; 32], len as usize);
            let range = global_races::Lanes { slot, mask: 1 << lane, at: &place, span, range: Some(span) };
            if write && b.read_only {
                let place = cta.m.global_place(slot, offset, len);
                cta.report(FindingKind::InvalidAccess, w, pc, None, lanes, true, |_| {
                    (format!("a write to {} memory ({})", b.space, b.name), place)
                });
                return false;
            }
            if write {
                global_races::write(cta, w, pc, b, range, false, |_| false);
            } else {
                global_races::read(cta, w, pc, b, range, false);
            }
        }
    }
    true
}

/// An element of a checked range, and whether it is defined; undefined ones are remembered by name.
#[inline(always)]
pub fn fetch(cta: &mut Cta, pc: Pc, area: Area, at: u64, bytes: usize) -> (u64, bool) {
    if area == Area::Shared {
        let start = at as usize;
        let ok = cta.shared.is_value_defined(start, bytes);
        if !ok {
            let place = cta.m.shared_place(at as i64, bytes as u32);
            cta.undefined_places.entry(pc).or_insert(place);
        }
        return (cta.shared.load(start, bytes), ok);
    }
    let machine = cta.m;
    let Some((slot, offset)) = slot_of(at) else { return (0, false) };
    let Some(b) = machine.buffers.get(slot) else { return (0, false) };
    let offset = offset as usize;
    let all = if bytes == 8 { u64::MAX } else { (1 << (8 * bytes)) - 1 };
    let ok = b.shadow.as_ref().is_none_or(|s| s.load(offset, bytes) == 0x0101_0101_0101_0101 & all);
    if !ok && let Some(place) = machine.global_place(slot, offset as i64, bytes as u32) {
        cta.undefined_places.entry(pc).or_insert(place);
    }
    (b.data.load(offset, bytes), ok)
}

/// Writes an element of a checked range. Undefined values that reach global memory are findings.
pub fn put(
    cta: &mut Cta,
    w: &Warp,
    pc: Pc,
    area: Area,
    at: u64,
    bytes: usize,
    value: u64,
    undefined_from: Option<Pc>,
    lane: usize,
) {
    if area == Area::Shared {
        let start = at as usize;
        cta.shared.store(start, bytes, value);
        cta.shared.mark(start, bytes, if undefined_from.is_none() { DEFINED } else { 0 });
        if let Some(origin) = undefined_from {
            cta.shared.origins.insert(start, origin);
        }
        return;
    }
    if let Some((slot, offset)) = slot_of(at)
        && let Some(b) = cta.m.buffers.get(slot)
    {
        b.data.store(offset as usize, bytes, value);
        if let Some(s) = &b.shadow {
            s.store(offset as usize, bytes, if undefined_from.is_none() { 0x0101_0101_0101_0101 } else { 0 });
        }
    }
    if let Some(origin) = undefined_from {
        undefined::found(cta, w, origin, pc, 1 << lane, false, "the value is stored to global memory");
    }
}
