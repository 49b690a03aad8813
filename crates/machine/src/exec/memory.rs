//! `ld` and `st`: addresses, which space they are in, and the findings that any access may make.
//! The spaces themselves are `shared_access`, `global_access` and `local_access`.
//! Source: PTX ISA 9.0, "Data Movement and Conversion Instructions", "Alignment", "Generic Addressing".

use std::collections::HashMap;

use crate::api::{FindingKind, Place};
use crate::code::{AddressOperand, Area, Instr, MemOp, Pc, Width};
use crate::cta::Cta;
use crate::exec::rare::lanes_of;
use crate::exec::rows::versions;
use crate::exec::{global_access, guesses, local_access, shared_access, undefined};
use crate::memory::{LOCAL_WINDOW, SHARED_WINDOW, WINDOW_BYTES, slot_of};
use crate::shared::Conflict;
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

/// Misaligned or out of bounds: one finding, fatal. `place` names the spot.
#[cold]
#[inline(never)]
pub fn bad_access(
    cta: &mut Cta,
    w: &Warp,
    pc: Pc,
    area: Area,
    at: u64,
    bytes: u32,
    align: u32,
    lanes: u32,
    write: bool,
) {
    let m = cta.m;
    let verb = if write { "written" } else { "read" };
    let place: Option<Place> = match area {
        Area::Shared => i32::try_from(at as i64).ok().map(|at| m.shared_place(at.into(), bytes)),
        Area::Local => {
            let f = &m.code.functions[w.frames[w.frame].function];
            let at = at as i64 - i64::from(w.local_base());
            let near = f.locals.iter().rev().find(|l| i64::from(l.offset) <= at);
            Some(Place {
                space: "local",
                // The compiler's own name for a function's arrays says nothing to people.
                object: near.map(|n| n.name.clone()).filter(|n| !n.starts_with("__local_depot")),
                offset: at - near.map_or(0, |n| i64::from(n.offset)),
                bytes,
                object_bytes: near.map_or(f.local_bytes, |n| n.bytes).into(),
            })
        }
        _ => slot_of(at).and_then(|(slot, offset)| m.global_place(slot, offset, bytes)),
    };
    if !at.is_multiple_of(u64::from(align)) {
        cta.report(FindingKind::MisalignedAccess, w, pc, None, lanes, true, |_| {
            (
                format!(
                    "{bytes} bytes are {verb} at address {at:#x}, which is not a multiple of {align}{}",
                    whose(&place)
                ),
                place,
            )
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
                    format!(
                        "{bytes} bytes are {verb} at offset {} of {object}, which has {size} bytes: {over} too far",
                        p.offset
                    )
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

/// A conflicting access by another warp, or by another lane of this one.
#[cold]
#[inline(never)]
pub fn race(cta: &mut Cta, w: &Warp, pc: Pc, c: Conflict, lanes: u32, write: bool) {
    if c.warp == w.index {
        lanes_race(cta, w, pc, c, lanes, write);
        return;
    }
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

/// Two lanes of one warp, with no `__syncwarp` in between.
fn lanes_race(cta: &mut Cta, w: &Warp, pc: Pc, c: Conflict, lanes: u32, write: bool) {
    let (mine, theirs) = (if write { "write" } else { "read" }, if c.write { "wrote" } else { "read" });
    let text = |m: &crate::machine::Machine| {
        let place = m.shared_place(c.at as i64, 4);
        let object = place.object.clone().unwrap_or_else(|| "shared memory".into());
        let who = c.lane.map_or_else(|| "other lanes".to_string(), |l| format!("lane {l}"));
        let end = if c.converged {
            "a matrix instruction brings the lanes together, but no __syncwarp() orders their memory"
        } else {
            "no __syncwarp() is in between, and lanes of a warp need not run in step"
        };
        let at = place.offset;
        (
            format!(
                "this {mine} of byte {at} of {object} may come before or after what {who} of the same warp {theirs}; {end}"
            ),
            Some(place),
        )
    };
    if c.converged {
        cta.note(FindingKind::SharedRace, w, pc, Some(c.pc), lanes, text);
    } else {
        cta.report(FindingKind::SharedRace, w, pc, Some(c.pc), lanes, false, text);
    }
}

/// Bytes that an asynchronous copy has in flight are accessed.
#[cold]
#[inline(never)]
pub fn in_flight(cta: &mut Cta, w: &Warp, pc: Pc, at: usize, len: usize, lanes: u32, write: bool) {
    let (start, end) = (at as u32, (at + len) as u32);
    if let Some((from, _)) = cta.m.guards.iter().find(|(from, to)| *from < end && start < *to) {
        let first = u64::from(start.max(*from));
        return bad_access(cta, w, pc, Area::Shared, first, len as u32, 1, lanes, write);
    }
    let other = cta.flights.iter().find(|f| f.covers(at, len)).map(|f| f.pc);
    cta.report(FindingKind::AsyncInFlight, w, pc, other, lanes, false, |m| {
        let place = m.shared_place(at as i64, len as u32);
        let object = place.object.clone().unwrap_or_else(|| "shared memory".into());
        let verb = if write { "written" } else { "read" };
        (
            format!("byte {} of {object} is {verb} while a cp.async into it has not been waited for", place.offset),
            Some(place),
        )
    });
}

/// Undefined bytes were read: remembers what they are called.
pub fn note_place(places: &mut HashMap<Pc, Place>, pc: Pc, place: impl FnOnce() -> Option<Place>) {
    if let std::collections::hash_map::Entry::Vacant(e) = places.entry(pc)
        && let Some(p) = place()
    {
        e.insert(p);
    }
}

versions! {
    /// `ld` of the active lanes.
    fn load(cta: &mut Cta, w: &mut Warp, i: &Instr, pc: Pc, m: u32) = load_body
}

versions! {
    /// `st` of the active lanes.
    fn store(cta: &mut Cta, w: &mut Warp, i: &Instr, pc: Pc, m: u32) = store_body
}

#[inline(always)]
fn load_body(cta: &mut Cta, w: &mut Warp, i: &Instr, pc: Pc, m: u32) {
    let op = &cta.m.code.sides.mems[i.side as usize];
    if address_undefined(cta, w, &op.address, pc, m) {
        return;
    }
    let mut at = addresses(w, &op.address);
    // An address in the register that is loaded is gone afterwards.
    let guess = cta.m.guesses && !op.strong && op.rows.len() == 1 && op.area != Area::Local;
    let named = guess.then_some(at);
    match op.area {
        Area::Shared => shared_access::load(cta, w, op, pc, m, &at),
        Area::Local => local_access::load(cta, w, op, pc, m, &at),
        Area::Global => global_access::load(cta, w, op, pc, m, &at),
        Area::Generic => {
            for (area, mask) in areas(op.area, &mut at, m) {
                if mask != 0 && cta.fault.is_none() {
                    match area {
                        Area::Shared => shared_access::load(cta, w, op, pc, mask, &at),
                        Area::Local => local_access::load(cta, w, op, pc, mask, &at),
                        _ => global_access::load(cta, w, op, pc, mask, &at),
                    }
                }
            }
        }
    }
    if let Some(named) = named
        && cta.fault.is_none()
    {
        guesses::loaded(w, op, pc, m, &named);
    }
}

#[inline(always)]
fn store_body(cta: &mut Cta, w: &mut Warp, i: &Instr, pc: Pc, m: u32) {
    let op = &cta.m.code.sides.mems[i.side as usize];
    if address_undefined(cta, w, &op.address, pc, m) {
        return;
    }
    let mut at = addresses(w, &op.address);
    for (area, mask) in areas(op.area, &mut at, m) {
        if mask != 0 && cta.fault.is_none() {
            match area {
                Area::Shared => shared_access::store(cta, w, op, pc, mask, &at),
                Area::Local => local_access::store(cta, w, op, pc, mask, &at),
                _ => global_access::store(cta, w, op, pc, mask, &at),
            }
        }
    }
}

/// Writes what `f` gives for each lane into an element's register. Lanes that do not take part are asked too.
///
/// PERF: a full row is written in place; through a temporary, the vector copy would wait for 32 narrow stores.
#[inline(always)]
pub fn fill(w: &mut Warp, op: &MemOp, element: usize, m: u32, f: impl Fn(usize) -> u64) {
    let (row, width) = op.rows[element];
    if op.extend == 0 && m == u32::MAX {
        if width == Width::W64 {
            for (l, d) in w.regs.m64(row).iter_mut().enumerate() {
                *d = f(l);
            }
        } else {
            for (l, d) in w.regs.m32(row).iter_mut().enumerate() {
                *d = f(l) as u32;
            }
        }
        return;
    }
    let mut t = [0u64; 32];
    for (l, v) in t.iter_mut().enumerate() {
        *v = f(l);
    }
    put(w, op, element, &t, m);
}

/// Writes a loaded element into its register: extended by its sign if the load asks for it.
#[inline(always)]
pub fn put(w: &mut Warp, op: &MemOp, element: usize, values: &[u64; 32], m: u32) {
    let (row, width) = op.rows[element];
    let mut t = *values;
    if op.extend != 0 {
        let shift = 64 - 8 * op.bytes;
        let cut = if op.extend >= 64 { u64::MAX } else { (1 << op.extend) - 1 };
        for x in &mut t {
            *x = ((*x << shift) as i64 >> shift) as u64 & cut;
        }
    }
    match width {
        Width::W64 => w.regs.put64(row, &t, m),
        _ => {
            let mut narrow = [0u32; 32];
            for l in 0..32 {
                narrow[l] = t[l] as u32;
            }
            w.regs.put32(row, &narrow, m);
        }
    }
}

/// All that was loaded is defined.
#[inline(always)]
pub fn put_defined(w: &mut Warp, op: &MemOp, m: u32) {
    for (row, _) in &op.rows {
        w.regs.define(*row, m);
    }
}

/// Some of what was loaded is undefined: `f` gives the undefined bits of an element of a lane.
#[cold]
#[inline(never)]
pub fn put_undefined(w: &mut Warp, op: &MemOp, m: u32, origin: Pc, f: impl Fn(usize, usize) -> u64) {
    let all = if op.bytes == 8 { u64::MAX } else { (1 << (8 * op.bytes)) - 1 };
    let mut partly = 0;
    for l in lanes_of(m) {
        partly |= u32::from((0..op.rows.len()).any(|e| f(e, l) != all)) << l;
    }
    for (e, (row, _)) in op.rows.iter().enumerate() {
        let mut bits = [0u64; 32];
        for l in lanes_of(m) {
            bits[l] = f(e, l);
            if op.extend != 0 && bits[l] != 0 {
                bits[l] = u64::MAX;
            }
        }
        w.regs.set_bits(*row, &bits, partly, m, origin);
    }
}

/// The shadow of a register's lane that is stored: one byte for each, set where a bit is undefined.
#[inline(always)]
pub fn undefined_bytes(w: &Warp, row: crate::code::RowId, l: usize, bytes: u32) -> u32 {
    let bits = w.regs.undefined_bits(row, l);
    (0..bytes).fold(0, |a, n| a | u32::from(bits >> (8 * n) & 0xFF != 0) << n)
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
