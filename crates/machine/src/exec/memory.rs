//! `ld` and `st` in every space, with the checks: bounds, alignment, undefined bytes, races, copies in flight.
//!
//! An access of all lanes at consecutive addresses (or at one address) is checked as one range. Source: PTX ISA 9.0,
//! "Data Movement and Conversion Instructions", "Alignment".

use std::collections::HashMap;

use crate::api::{FindingKind, Place};
use crate::code::{AddressOperand, Area, Instr, MemOp, Pc, Width};
use crate::cta::Cta;
use crate::exec::rare::lanes_of;
use crate::exec::undefined;
use crate::memory::{DEFINED, LOCAL_WINDOW, SHARED_WINDOW, WINDOW_BYTES, slot_of};
use crate::shared::{Accessor, Conflict};
use crate::warp::Warp;

/// Where a generic address points.
#[inline(always)]
pub fn classify(address: u64) -> (Area, u64) {
    if address.wrapping_sub(SHARED_WINDOW) < WINDOW_BYTES {
        (Area::Shared, address - SHARED_WINDOW)
    } else if address.wrapping_sub(LOCAL_WINDOW) < WINDOW_BYTES {
        (Area::Local, address - LOCAL_WINDOW)
    } else {
        (Area::Global, address)
    }
}

/// The addresses of all lanes.
#[inline(always)]
pub fn addresses(w: &Warp, a: &AddressOperand) -> [u64; 32] {
    let mut t = [0u64; 32];
    if a.wide {
        let r = w.regs.r64(a.row);
        for l in 0..32 {
            t[l] = r[l].wrapping_add(a.offset as u64);
        }
    } else {
        let r = w.regs.r32(a.row);
        for l in 0..32 {
            t[l] = u64::from(r[l].wrapping_add(a.offset as u32));
        }
    }
    t
}

/// Undefined address: a finding that ends the run.
#[inline(always)]
pub fn address_undefined(cta: &mut Cta, w: &Warp, a: &AddressOperand, pc: Pc, m: u32) -> bool {
    undefined::reaches(cta, w, a.row, pc, m, "the value is used as an address")
}

/// Groups of lanes by the area they address, with addresses made relative to it.
pub fn areas(area: Area, at: &mut [u64; 32], m: u32) -> [(Area, u32); 3] {
    if area != Area::Generic {
        return [(area, m), (Area::Local, 0), (Area::Local, 0)];
    }
    let mut masks = [(Area::Global, 0u32), (Area::Shared, 0), (Area::Local, 0)];
    for l in lanes_of(m) {
        let (area, relative) = classify(at[l]);
        at[l] = relative;
        let n = match area {
            Area::Shared => 1,
            Area::Local => 2,
            _ => 0,
        };
        masks[n].1 |= 1 << l;
    }
    masks
}

/// How the lanes' addresses lie.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// One address for all.
    Same,
    /// Lane l at the first address plus l spans; all lanes active.
    Row,
    Any,
}

#[inline(always)]
fn shape(at: &[u64; 32], m: u32, span: u64) -> Shape {
    if m != u32::MAX {
        return Shape::Any;
    }
    let (mut row, mut same) = (0u64, 0u64);
    for l in 0..32 {
        row |= at[l] ^ at[0].wrapping_add(l as u64 * span);
        same |= at[l] ^ at[0];
    }
    if row == 0 {
        Shape::Row
    } else if same == 0 {
        Shape::Same
    } else {
        Shape::Any
    }
}

/// Misaligned or out of bounds: one finding, fatal. `place` names the spot.
#[cold]
#[inline(never)]
pub fn bad_access(cta: &mut Cta, w: &Warp, pc: Pc, area: Area, at: u64, bytes: u32, align: u32, lanes: u32, write: bool) {
    let m = cta.m;
    let verb = if write { "written" } else { "read" };
    let place: Option<Place> = match area {
        Area::Shared => Some(m.shared_place(at as u32 as i32 as i64, bytes)),
        Area::Local => {
            let f = &m.code.functions[w.frames[w.frame].function];
            let at = at as i64 - i64::from(w.local_base());
            let near = f.locals.iter().rev().find(|l| i64::from(l.offset) <= at);
            Some(Place {
                space: "local",
                object: near.map(|n| n.name.clone()),
                offset: at - near.map_or(0, |n| i64::from(n.offset)),
                bytes,
                object_bytes: near.map_or(f.local_bytes, |n| n.bytes).into(),
            })
        }
        _ => slot_of(at).and_then(|(slot, offset)| m.global_place(slot, offset, bytes)),
    };
    if at % u64::from(align) != 0 {
        cta.report(FindingKind::MisalignedAccess, w, pc, None, lanes, true, |_| {
            (format!("{bytes} bytes are {verb} at address {at:#x}, which is not a multiple of {align}{}", whose(&place)), place)
        });
        return;
    }
    cta.report(FindingKind::OutOfBounds, w, pc, None, lanes, true, |_| {
        let text = match &place {
            Some(p) => {
                let object = p.object.clone().unwrap_or_else(|| format!("{} memory", p.space));
                let size = p.object_bytes;
                if p.offset < 0 {
                    format!("{bytes} bytes are {verb} {} bytes before the start of {object} ({size} bytes)", -p.offset)
                } else {
                    let over = p.offset + i64::from(bytes) - size as i64;
                    format!("{bytes} bytes are {verb} at offset {} of {object}, which has {size} bytes: {over} too far", p.offset)
                }
            }
            None => format!("{bytes} bytes are {verb} at address {at:#x}, where nothing is allocated"),
        };
        (text, place)
    });
}

fn whose(place: &Option<Place>) -> String {
    match place {
        Some(Place { object: Some(o), offset, .. }) => format!(" (offset {offset} of {o})"),
        _ => String::new(),
    }
}

/// A conflicting access by another warp.
#[cold]
#[inline(never)]
pub fn race(cta: &mut Cta, w: &Warp, pc: Pc, c: Conflict, lanes: u32, write: bool) {
    let (mine, theirs) = (if write { "write" } else { "read" }, if c.write { "wrote" } else { "read" });
    cta.report(FindingKind::SharedRace, w, pc, Some(c.pc), lanes, false, |m| {
        let place = m.shared_place(c.at as i64, 4);
        let object = place.object.clone().unwrap_or_else(|| "shared memory".into());
        let text = format!(
            "warps {} and {} use byte {} of {object} with no barrier in between: this {mine} may come before or after what warp {} {theirs}",
            w.index, c.warp, place.offset, c.warp
        );
        (text, Some(place))
    });
}

/// Bytes that an asynchronous copy has in flight are accessed.
#[cold]
#[inline(never)]
pub fn in_flight(cta: &mut Cta, w: &Warp, pc: Pc, at: usize, len: usize, lanes: u32, write: bool) {
    let other = cta.flights.iter().find(|f| f.0 < at + len && at < f.0 + f.1).map(|f| f.2);
    cta.report(FindingKind::AsyncInFlight, w, pc, other, lanes, false, |m| {
        let place = m.shared_place(at as i64, len as u32);
        let object = place.object.clone().unwrap_or_else(|| "shared memory".into());
        let verb = if write { "written" } else { "read" };
        (format!("byte {} of {object} is {verb} while a cp.async into it has not been waited for", place.offset), Some(place))
    });
}

/// Undefined bytes were read: remembers what they are called.
fn note_place(places: &mut HashMap<Pc, Place>, pc: Pc, place: impl FnOnce() -> Option<Place>) {
    if let std::collections::hash_map::Entry::Vacant(e) = places.entry(pc)
        && let Some(p) = place()
    {
        e.insert(p);
    }
}

/// What a load brought: values by element, the mask of undefined lanes and where those come from.
struct Loaded {
    values: [[u64; 32]; 8],
    poison: u32,
    origin: Pc,
}

#[inline(always)]
pub fn load(cta: &mut Cta, w: &mut Warp, i: &Instr, pc: Pc, m: u32) {
    let op = &cta.m.code.sides.mems[i.side as usize];
    if address_undefined(cta, w, &op.address, pc, m) {
        return;
    }
    let mut at = addresses(w, &op.address);
    let mut out = Loaded { values: [[0; 32]; 8], poison: 0, origin: pc };
    for (area, mask) in areas(op.area, &mut at, m) {
        if mask == 0 {
            continue;
        }
        let ok = match area {
            Area::Shared => load_shared(cta, w, op, pc, mask, &at, &mut out),
            Area::Local => load_local(cta, w, op, pc, mask, &at, &mut out),
            _ => load_global(cta, w, op, pc, mask, &at, &mut out),
        };
        if !ok {
            return;
        }
    }
    for (n, (row, width)) in op.rows.iter().enumerate() {
        let v = &mut out.values[n];
        if op.extend != 0 {
            let shift = 64 - 8 * op.bytes;
            let cut = if op.extend >= 64 { u64::MAX } else { (1 << op.extend) - 1 };
            for x in v.iter_mut() {
                *x = ((*x << shift) as i64 >> shift) as u64 & cut;
            }
        }
        match width {
            Width::W64 => w.regs.put64(*row, v, m),
            _ => {
                let mut t = [0u32; 32];
                for l in 0..32 {
                    t[l] = v[l] as u32;
                }
                w.regs.put32(*row, &t, m);
            }
        }
        if out.poison != 0 {
            w.regs.set_poison(*row, out.poison, m, out.origin);
        } else {
            w.regs.define(*row, m);
        }
    }
}

#[inline(always)]
fn load_shared(cta: &mut Cta, w: &mut Warp, op: &MemOp, pc: Pc, m: u32, at: &[u64; 32], out: &mut Loaded) -> bool {
    let count = op.rows.len();
    let span = op.bytes as usize * count;
    let limit = cta.shared.len() as u64;
    let shape = shape(at, m, span as u64);
    if op.strong {
        synchronise(cta, w, at[m.trailing_zeros() as usize], op.acquire || !op.release, op.release);
    }
    let (ranges, len) = match shape {
        Shape::Same => (1u32, span),
        Shape::Row => (1, 32 * span),
        Shape::Any => (m, span),
    };
    for l in lanes_of(ranges) {
        let start = at[l];
        if start % span as u64 != 0 || start + len as u64 > limit {
            let (lane, start) = first_bad(at, m, span as u64, limit);
            bad_access(cta, w, pc, Area::Shared, start, span as u32, span as u32, 1 << lane, false);
            return false;
        }
        let start = start as usize;
        let who = Accessor { warp: w.index, clock: &w.clock, pc, atomic: op.strong };
        if let Some(c) = cta.shared.read(start, len, &who) {
            race(cta, w, pc, c, 1 << l, false);
        }
        if !cta.shared.is_defined(start, len) {
            shared_undefined(cta, w, pc, m, at, span, shape == Shape::Any, l, out);
        }
    }
    for e in 0..count {
        let step = e * op.bytes as usize;
        match shape {
            Shape::Same => out.values[e] = [cta.shared.load(at[0] as usize + step, op.bytes as usize); 32],
            _ if op.bytes == 4 => {
                for l in lanes_of(m) {
                    out.values[e][l] = cta.shared.load(at[l] as usize + step, 4);
                }
            }
            _ => {
                for l in lanes_of(m) {
                    out.values[e][l] = cta.shared.load(at[l] as usize + step, op.bytes as usize);
                }
            }
        }
    }
    true
}

fn first_bad(at: &[u64; 32], m: u32, span: u64, limit: u64) -> (usize, u64) {
    let bad = lanes_of(m).find(|&l| at[l] % span != 0 || at[l].saturating_add(span) > limit);
    let l = bad.unwrap_or(m.trailing_zeros() as usize);
    (l, at[l])
}

#[cold]
#[inline(never)]
fn shared_undefined(cta: &mut Cta, w: &Warp, pc: Pc, m: u32, at: &[u64; 32], span: usize, one: bool, lane: usize, out: &mut Loaded) {
    let lanes = if one { 1 << lane } else { m };
    for l in lanes_of(lanes) {
        let start = at[l] as usize;
        if cta.shared.in_flight(start, span) {
            in_flight(cta, w, pc, start, span, 1 << l, false);
        }
        if !cta.shared.is_value_defined(start, span) {
            out.poison |= 1 << l;
            out.origin = cta.shared.origins.get(&start).copied().unwrap_or(pc);
            let m = cta.m;
            note_place(&mut cta.undefined_places, pc, || Some(m.shared_place(start as i64, span as u32)));
        }
    }
}

fn load_local(cta: &mut Cta, w: &mut Warp, op: &MemOp, pc: Pc, m: u32, at: &[u64; 32], out: &mut Loaded) -> bool {
    let count = op.rows.len();
    let span = u64::from(op.bytes) * count as u64;
    let limit = u64::from(w.local.len());
    let same = shape(at, m, span) == Shape::Same;
    for l in lanes_of(m) {
        if at[l] % span.min(16) != 0 || at[l].saturating_add(span) > limit {
            bad_access(cta, w, pc, Area::Local, at[l], span as u32, span.min(16) as u32, 1 << l, false);
            return false;
        }
        if same {
            break;
        }
    }
    let mut poison = 0;
    for e in 0..count {
        let step = e as u32 * op.bytes;
        if same && op.bytes == 4 {
            let (row, defined) = w.local.row(at[0] as u32 + step);
            for l in 0..32 {
                out.values[e][l] = u64::from(row[l]);
            }
            poison |= m & !defined;
            continue;
        }
        for l in lanes_of(m) {
            let (v, ok) = w.local.load(l, at[l] as u32 + step, op.bytes);
            out.values[e][l] = v;
            poison |= u32::from(!ok) << l;
        }
    }
    if poison != 0 {
        out.poison |= poison;
        let l = poison.trailing_zeros() as usize;
        out.origin = w.local.origin(l, at[l] as u32).unwrap_or(pc);
        let f = &cta.m.code.functions[w.frames[w.frame].function];
        let offset = at[l] as i64 - i64::from(w.local_base());
        note_place(&mut cta.undefined_places, pc, || {
            let near = f.locals.iter().rev().find(|n| i64::from(n.offset) <= offset)?;
            // The compiler's own name for a function's arrays says nothing to people.
            let object = (!near.name.starts_with("__local_depot")).then(|| near.name.clone());
            let offset = offset - i64::from(near.offset);
            Some(Place { space: "local", object, offset, bytes: span as u32, object_bytes: near.bytes.into() })
        });
    }
    true
}

#[inline(always)]
fn load_global(cta: &mut Cta, w: &mut Warp, op: &MemOp, pc: Pc, m: u32, at: &[u64; 32], out: &mut Loaded) -> bool {
    let count = op.rows.len();
    let size = op.bytes as usize;
    let span = size * count;
    let buffers = cta.m.buffers;
    let same = shape(at, m, span as u64) == Shape::Same;
    let lanes = if same { 1 } else { m };
    let mut known = usize::MAX;
    let mut buffer = None;
    for l in lanes_of(lanes) {
        let inside = slot_of(at[l]).and_then(|(slot, offset)| {
            if slot != known {
                known = slot;
                buffer = buffers.get(slot);
            }
            let b = buffer?;
            (offset >= 0 && offset as u64 + span as u64 <= b.bytes && offset as usize % span == 0).then_some((b, offset as usize))
        });
        let Some((b, offset)) = inside else {
            bad_access(cta, w, pc, Area::Global, at[l], span as u32, span as u32, 1 << l, false);
            return false;
        };
        for e in 0..count {
            out.values[e][l] = b.data.load(offset + e * size, size);
        }
        if let Some(s) = &b.shadow {
            let mut ok = true;
            for e in 0..count {
                let all = if size == 8 { u64::MAX } else { (1 << (8 * size)) - 1 };
                ok &= s.load(offset + e * size, size) == 0x0101_0101_0101_0101 & all;
            }
            if !ok {
                out.poison |= if same { m } else { 1 << l };
                let slot = known;
                let m = cta.m;
                note_place(&mut cta.undefined_places, pc, || m.global_place(slot, offset as i64, span as u32));
            }
        }
    }
    if same {
        for e in 0..count {
            out.values[e] = [out.values[e][0]; 32];
        }
    }
    true
}

#[inline(always)]
pub fn store(cta: &mut Cta, w: &mut Warp, i: &Instr, pc: Pc, m: u32) {
    let op = &cta.m.code.sides.mems[i.side as usize];
    if address_undefined(cta, w, &op.address, pc, m) {
        return;
    }
    let mut at = addresses(w, &op.address);
    for (area, mask) in areas(op.area, &mut at, m) {
        if mask == 0 {
            continue;
        }
        let ok = match area {
            Area::Shared => store_shared(cta, w, op, pc, mask, &at),
            Area::Local => store_local(cta, w, op, pc, mask, &at),
            _ => store_global(cta, w, op, pc, mask, &at),
        };
        if !ok {
            return;
        }
    }
}

#[inline(always)]
fn store_shared(cta: &mut Cta, w: &mut Warp, op: &MemOp, pc: Pc, m: u32, at: &[u64; 32]) -> bool {
    let count = op.rows.len();
    let size = op.bytes as usize;
    let span = size * count;
    let limit = cta.shared.len() as u64;
    let shape = shape(at, m, span as u64);
    let (ranges, len) = match shape {
        Shape::Same => (1u32, span),
        Shape::Row => (1, 32 * span),
        Shape::Any => (m, span),
    };
    for l in lanes_of(ranges) {
        let start = at[l];
        if start % span as u64 != 0 || start + len as u64 > limit {
            let (lane, start) = first_bad(at, m, span as u64, limit);
            bad_access(cta, w, pc, Area::Shared, start, span as u32, span as u32, 1 << lane, true);
            return false;
        }
        let start = start as usize;
        let who = Accessor { warp: w.index, clock: &w.clock, pc, atomic: op.strong };
        if let Some(c) = cta.shared.write(start, len, &who) {
            race(cta, w, pc, c, 1 << l, true);
        }
        if cta.shared.in_flight(start, len) {
            in_flight(cta, w, pc, start, len, 1 << l, true);
        }
        cta.shared.mark(start, len, DEFINED);
    }
    for (e, (row, width)) in op.rows.iter().enumerate() {
        let p = w.regs.poison(*row) & m;
        let step = e * size;
        match width {
            Width::W64 => {
                let v = w.regs.r64(*row);
                for l in lanes_of(m) {
                    cta.shared.store(at[l] as usize + step, size, v[l]);
                }
            }
            _ => {
                let v = w.regs.r32(*row);
                for l in lanes_of(m) {
                    cta.shared.store(at[l] as usize + step, size, u64::from(v[l]));
                }
            }
        }
        if p != 0 {
            for l in lanes_of(p) {
                let at = at[l] as usize + step;
                cta.shared.mark(at, size, 0);
                let origin = w.regs.origin(*row, pc);
                cta.shared.origins.insert(at, origin);
            }
        }
    }
    if shape == Shape::Same || shape == Shape::Any {
        same_byte(cta, w, op, pc, m, at, span);
    }
    if op.strong {
        synchronise(cta, w, at[m.trailing_zeros() as usize], op.acquire, op.release || !op.acquire);
    }
    true
}

/// Two lanes that write different values to one place in one instruction: which one stays is not defined.
fn same_byte(cta: &mut Cta, w: &Warp, op: &MemOp, pc: Pc, m: u32, at: &[u64; 32], span: usize) {
    if op.strong || m.count_ones() < 2 {
        return;
    }
    // Bit sets of the addresses' low bits: distinct ones need no closer look.
    let (mut seen, mut twice) = ([0u64; 16], false);
    for l in lanes_of(m) {
        let slot = (at[l] as usize / span) % 1024;
        twice |= seen[slot / 64] >> (slot % 64) & 1 != 0;
        seen[slot / 64] |= 1 << (slot % 64);
    }
    if !twice {
        return;
    }
    for l in lanes_of(m) {
        for k in lanes_of(m & (u32::MAX << l) & !(1 << l)) {
            let differ = op.rows.iter().any(|(row, width)| {
                let wide = *width == Width::W64;
                let cut = if op.bytes == 8 { u64::MAX } else { (1 << (8 * op.bytes)) - 1 };
                (w.regs.lane(*row, wide, l) ^ w.regs.lane(*row, wide, k)) & cut != 0
            });
            if at[l] == at[k] && differ {
                let lanes = 1 << l | 1 << k;
                cta.report(FindingKind::SharedRace, w, pc, None, lanes, false, |machine| {
                    let place = machine.shared_place(at[l] as i64, span as u32);
                    let object = place.object.clone().unwrap_or_else(|| "shared memory".into());
                    (format!("lanes {l} and {k} write different values to byte {} of {object} in one instruction", place.offset), Some(place))
                });
                return;
            }
        }
    }
}

fn store_local(cta: &mut Cta, w: &mut Warp, op: &MemOp, pc: Pc, m: u32, at: &[u64; 32]) -> bool {
    let span = u64::from(op.bytes) * op.rows.len() as u64;
    let limit = u64::from(w.local.len());
    let same = shape(at, m, span) == Shape::Same;
    for l in lanes_of(m) {
        if at[l] % span.min(16) != 0 || at[l].saturating_add(span) > limit {
            bad_access(cta, w, pc, Area::Local, at[l], span as u32, span.min(16) as u32, 1 << l, true);
            return false;
        }
        if same {
            break;
        }
    }
    for (e, (row, width)) in op.rows.iter().enumerate() {
        let step = e as u32 * op.bytes;
        let p = w.regs.poison(*row) & m;
        if same && op.bytes == 4 && p == 0 && *width == Width::W32 {
            w.local.store_row(at[0] as u32 + step, w.regs.r32(*row), m);
            continue;
        }
        for l in lanes_of(m) {
            let v = w.regs.lane(*row, *width == Width::W64, l);
            w.local.store(l, at[l] as u32 + step, op.bytes, v, p >> l & 1 == 0);
            if p >> l & 1 != 0 {
                let origin = w.regs.origin(*row, pc);
                w.local.set_origin(l, at[l] as u32 + step, origin);
            }
        }
    }
    true
}

#[inline(always)]
fn store_global(cta: &mut Cta, w: &mut Warp, op: &MemOp, pc: Pc, m: u32, at: &[u64; 32]) -> bool {
    let size = op.bytes as usize;
    let span = size * op.rows.len();
    let buffers = cta.m.buffers;
    let mut known = usize::MAX;
    let mut buffer = None;
    for l in lanes_of(m) {
        let inside = slot_of(at[l]).and_then(|(slot, offset)| {
            if slot != known {
                known = slot;
                buffer = buffers.get(slot);
            }
            let b = buffer?;
            (offset >= 0 && offset as u64 + span as u64 <= b.bytes && offset as usize % span == 0).then_some((b, offset as usize))
        });
        let Some((b, offset)) = inside else {
            bad_access(cta, w, pc, Area::Global, at[l], span as u32, span as u32, 1 << l, true);
            return false;
        };
        if b.read_only {
            let place = cta.m.global_place(known, offset as i64, span as u32);
            cta.report(FindingKind::InvalidAccess, w, pc, None, 1 << l, true, |_| {
                (format!("a write to {} memory ({})", b.space, b.name), place)
            });
            return false;
        }
        for (e, (row, width)) in op.rows.iter().enumerate() {
            let v = w.regs.lane(*row, *width == Width::W64, l);
            b.data.store(offset + e * size, size, v);
            if let Some(s) = &b.shadow {
                let defined = w.regs.poison(*row) >> l & 1 == 0;
                s.store(offset + e * size, size, if defined { 0x0101_0101_0101_0101 } else { 0 });
            }
        }
    }
    for (row, _) in &op.rows {
        undefined::notes(cta, w, *row, pc, m, "the value is stored to global memory");
    }
    true
}

/// A strong access or an atomic: takes over what others released at this address, or releases.
#[cold]
#[inline(never)]
pub fn synchronise(cta: &mut Cta, w: &mut Warp, at: u64, acquire: bool, release: bool) {
    let clock = cta.sync_clocks.entry(at).or_insert_with(|| vec![0; w.clock.len()]);
    if acquire {
        for (mine, theirs) in w.clock.iter_mut().zip(clock.iter()) {
            *mine = (*mine).max(*theirs);
        }
    }
    if release {
        for (mine, theirs) in clock.iter_mut().zip(&w.clock) {
            *mine = (*mine).max(*theirs);
        }
        w.clock[w.index] = cta.shared.tick();
    }
}
