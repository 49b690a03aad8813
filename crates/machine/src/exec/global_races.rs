//! What accesses of global memory mean for races: records them, and says who clashes with whom.
//!
//! The bookkeeping is `global`'s. Both sides of a race are named the same way whichever ran first: the write is the site.
//! Two writes of the same value are a note: they change no result, but C++ calls them a race all the same.

use std::sync::Arc;
use std::sync::atomic::{self, Ordering::SeqCst};

use crate::api::{FindingKind, Severity};
use crate::code::Pc;
use crate::cta::Cta;
use crate::exec::memory::synchronise;
use crate::exec::nearly::{self, Apart};
use crate::exec::rare::lanes_of;
use crate::global::{Agent, Clash, MAX_CTA, Released};
use crate::memory::Buffer;
use crate::warp::Warp;

/// Where the lanes of an access are, in one buffer.
#[derive(Clone, Copy)]
pub struct Lanes<'a> {
    pub slot: usize,
    pub mask: u32,
    pub at: &'a [usize; 32],
    /// Bytes of a lane.
    pub span: usize,
    /// All lanes in a row, or all at one place: one range.
    pub range: Option<usize>,
}

impl Lanes<'_> {
    /// Ranges to look at: offset and length.
    #[inline(always)]
    fn each(&self, mut f: impl FnMut(usize, usize)) {
        match self.range {
            Some(len) => f(self.at[self.mask.trailing_zeros() as usize & 31], len),
            None => {
                for l in lanes_of(self.mask) {
                    f(self.at[l], self.span);
                }
            }
        }
    }
}

#[inline(always)]
fn agent<'a>(cta: &'a Cta, w: &'a Warp, record: u32, strong: bool) -> Agent<'a> {
    Agent { cta: cta.linear, warp: w.index, clock: &w.clock, known: &cta.known, record, strong }
}

/// Lanes read.
#[inline(always)]
pub fn read(cta: &mut Cta, w: &Warp, pc: Pc, b: &Buffer, lanes: Lanes, strong: bool) {
    if !cta.detects {
        return;
    }
    let record = cta.mark(w, pc);
    if b.read_only || record == 0 {
        return;
    }
    let shadow = &cta.m.global;
    let me = agent(cta, w, record, strong);
    lanes.each(|at, len| shadow.mark_read(lanes.slot, b.bytes, at, len, &me));
    atomic::fence(SeqCst);
    let mut found = None;
    lanes.each(|at, len| found = found.or_else(|| shadow.last_write(lanes.slot, b.bytes, at, len, &me)));
    if let Some(clash) = found {
        report(cta, w, pc, lanes, clash, false, Severity::Error);
    } else if strong && !cta.seen.is_empty() {
        let mut found = None;
        lanes.each(|at, len| found = found.or_else(|| shadow.stale(lanes.slot, b.bytes, at, len, &me, &cta.seen)));
        if let Some(clash) = found {
            report(cta, w, pc, lanes, clash, false, Severity::Error);
        }
    }
}

/// Lanes are about to write; `same` says whether what a lane writes is there already.
#[inline(always)]
pub fn write(cta: &mut Cta, w: &Warp, pc: Pc, b: &Buffer, lanes: Lanes, strong: bool, same: impl Fn(usize) -> bool) {
    if !cta.detects {
        return;
    }
    let record = cta.mark(w, pc);
    if record == 0 {
        return;
    }
    if !strong {
        w.plain_since_fence.set(true);
    }
    let shadow = &cta.m.global;
    let me = agent(cta, w, record, strong);
    let (mut written, mut read) = (None, None);
    lanes.each(|at, len| written = written.or(shadow.mark_write(lanes.slot, b.bytes, at, len, &me)));
    atomic::fence(SeqCst);
    lanes.each(|at, len| read = read.or(shadow.readers(lanes.slot, b.bytes, at, len, &me)));
    if written.is_some() || read.is_some() {
        write_clash(cta, w, pc, lanes, written, read, same);
    }
    if !cta.flights.is_empty() {
        sources_in_flight(cta, w, pc, lanes);
    }
}

/// A write clashes with a write, or with a read: decides whether the value makes a difference.
#[cold]
#[inline(never)]
fn write_clash(
    cta: &mut Cta,
    w: &Warp,
    pc: Pc,
    lanes: Lanes,
    written: Option<Clash>,
    read: Option<Clash>,
    same: impl Fn(usize) -> bool,
) {
    if let Some(clash) = written {
        let touched = |l: usize| lanes.at[l] < clash.at + 4 && clash.at < lanes.at[l] + lanes.span;
        if !lanes_of(lanes.mask).filter(|l| touched(*l)).all(&same) {
            report(cta, w, pc, lanes, clash, true, Severity::Error);
            return;
        }
        report(cta, w, pc, lanes, clash, true, Severity::Note);
    }
    // A reader sees the same whichever of two equal writes stays, but one that came before the first of the writers did not.
    if let Some(clash) = read {
        report(cta, w, pc, lanes, clash, true, Severity::Error);
    }
}

/// `write` says what the new access does.
#[cold]
#[inline(never)]
fn report(cta: &mut Cta, w: &Warp, pc: Pc, lanes: Lanes, c: Clash, write: bool, severity: Severity) {
    let touched = lanes_of(lanes.mask).filter(|l| lanes.at[*l] < c.at + 4 && c.at < lanes.at[*l] + lanes.span);
    let mask = touched.fold(0, |m, l| m | 1u32 << l);
    let machine = cta.m;
    let (mine, theirs) = ((cta.linear, w.index, pc), (c.cta, c.warp, c.pc));
    // The write comes first; of two writes that of the earlier CTA.
    let swap = c.write && (!write || theirs < mine);
    let (first, second) = if swap { (theirs, mine) } else { (mine, theirs) };
    let lane = (!swap && mask != 0).then(|| mask.trailing_zeros());
    let both = write && c.write;
    let cta_text = |n: u64| {
        let [x, y, z] = machine.cta_index(n);
        format!("CTA ({x}, {y}, {z})")
    };
    cta.add(FindingKind::GlobalRace, severity, first.2, Some(second.2), u64::from(mask.count_ones().max(1)), || {
        let place = machine.global_place(lanes.slot, c.at as i64, 4);
        let object = place.as_ref().and_then(|p| p.object.clone()).unwrap_or_else(|| "global memory".into());
        let verb = if both { "writes too" } else { "reads" };
        let end = match severity {
            Severity::Note => "nothing orders the two, but both write the same value",
            Severity::Error if first.0 == second.0 => "no barrier is in between",
            Severity::Error => {
                "nothing orders the two: neither the end of a launch nor a release that the other has acquired"
            }
        };
        let (a, b) = if first.0 == second.0 {
            (format!("warp {}", first.1), format!("warp {}", second.1))
        } else {
            (cta_text(first.0), cta_text(second.0))
        };
        let text = format!("{a} writes byte {} of {object}, which {b} {verb}; {end}", c.at);
        (text, place, machine.cta_index(first.0), first.1 as u32, lane)
    });
}

/// Bytes are written from which a `cp.async` that has not been waited for still copies.
#[cold]
#[inline(never)]
fn sources_in_flight(cta: &mut Cta, w: &Warp, pc: Pc, lanes: Lanes) {
    let base = crate::memory::address_of(lanes.slot as u32);
    for l in lanes_of(lanes.mask) {
        let (start, end) = (base + lanes.at[l] as u64, base + (lanes.at[l] + lanes.span) as u64);
        let copy = cta.flights.iter().find(|f| f.reads(start, end)).map(|f| f.pc);
        if let Some(copy) = copy {
            cta.report(FindingKind::AsyncInFlight, w, pc, Some(copy), 1 << l, false, |m| {
                let place = m.global_place(lanes.slot, lanes.at[l] as i64, lanes.span as u32);
                let object = place.as_ref().and_then(|p| p.object.clone()).unwrap_or_else(|| "global memory".into());
                let text = format!(
                    "byte {} of {object} is written while a cp.async from it has not been waited for",
                    lanes.at[l]
                );
                (text, place)
            });
            return;
        }
    }
}

/// Different values to one place in one instruction: which one stays is not defined. `compare` two lanes.
#[inline(always)]
pub fn same_place(cta: &mut Cta, w: &Warp, pc: Pc, lanes: Lanes, compare: impl Fn(usize, usize) -> Apart) {
    if lanes.mask.count_ones() < 2 || lanes.range.is_some_and(|len| len != lanes.span) {
        return;
    }
    // Bit sets of the addresses' low bits: distinct ones need no closer look.
    let (mut seen, mut twice) = ([0u64; 16], false);
    for l in lanes_of(lanes.mask) {
        let slot = (lanes.at[l] / lanes.span) % 1024;
        twice |= seen[slot / 64] >> (slot % 64) & 1 != 0;
        seen[slot / 64] |= 1 << (slot % 64);
    }
    if twice {
        find_same_place(cta, w, pc, lanes, compare);
    }
}

#[cold]
#[inline(never)]
fn find_same_place(cta: &mut Cta, w: &Warp, pc: Pc, lanes: Lanes, compare: impl Fn(usize, usize) -> Apart) {
    let mut worst: Option<(Apart, usize, usize)> = None;
    for l in lanes_of(lanes.mask) {
        for k in lanes_of(lanes.mask & u32::MAX.checked_shl(l as u32 + 1).unwrap_or(0)) {
            if lanes.at[l] == lanes.at[k] {
                let apart = compare(l, k);
                if apart > worst.map_or(Apart::Not, |f| f.0) {
                    worst = Some((apart, l, k));
                }
            }
        }
    }
    let Some((apart, l, k)) = worst else { return };
    let what = |m: &crate::machine::Machine| {
        let place = m.global_place(lanes.slot, lanes.at[l] as i64, lanes.span as u32);
        let object = place.as_ref().and_then(|p| p.object.clone()).unwrap_or_else(|| "global memory".into());
        (nearly::told(apart, l, k, lanes.at[l] as i64, &object), place)
    };
    let both = 1 << l | 1 << k;
    match apart {
        Apart::Values => cta.report(FindingKind::GlobalRace, w, pc, None, both, false, what),
        _ => cta.note(FindingKind::GlobalRace, w, pc, None, both, what),
    }
}

/// A fence. Of GPU scope: what this warp knows may be released by strong writes from now on.
pub fn fence(cta: &mut Cta, w: &mut Warp, gpu: bool) {
    cta.fences += 1;
    if gpu {
        for (address, what) in std::mem::take(&mut w.seen) {
            cta.m.global.releases.learn(address, &what, &mut cta.known, w.index, &w.clock);
            join(w, &what, cta.linear);
        }
        w.fenced.clone_from(&w.clock);
        w.fresh_fence.set(true);
        w.plain_since_fence.set(false);
        w.clock[w.index] = cta.shared.tick();
    }
}

/// A strong write or an atomic that no fence precedes comes next, and has not been marked: what came before it is known to whoever sees it,
/// but not ordered (see [`crate::global::GlobalShadow::stale`]).
pub fn tell(cta: &mut Cta, w: &mut Warp, address: u64, release: bool, narrow: bool) {
    if !narrow && !release && w.fenced.is_empty() && w.told.get() && cta.linear <= MAX_CTA {
        let me = Agent { known: &cta.seen, ..agent(cta, w, 0, true) };
        cta.m.global.unfenced.publish(address, &me, w.clock.clone());
        w.clock[w.index] = cta.shared.tick();
    }
}

/// A strong write or an atomic of global memory, marked already, is about to happen at `address`: it is part of what it releases, so that
/// who sees its value may overwrite it. `narrow`: for this CTA only.
pub fn release(cta: &mut Cta, w: &mut Warp, address: u64, release: bool, narrow: bool) {
    cta.spoke = true;
    if cta.fences > 0 || release {
        synchronise(cta, w, address, false, true);
    }
    if narrow || !release && w.fenced.is_empty() {
        return;
    }
    let clock = if release {
        cta.published = true;
        w.clock.clone()
    } else {
        cta.published |= w.fresh_fence.replace(false);
        let mut clock = w.fenced.clone();
        if !w.plain_since_fence.get() {
            clock[w.index] = w.clock[w.index];
        }
        clock
    };
    if cta.linear <= MAX_CTA {
        let me = agent(cta, w, 0, true);
        cta.m.global.releases.publish(address, &me, clock);
    }
    w.clock[w.index] = cta.shared.tick();
}

/// Addresses whose relaxed loads wait for a fence; what exceeds them is taken to be acquired at once.
const MAX_SEEN: usize = 16;

/// What a strong read learns from those who wrote there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Learns {
    /// All that they released.
    Now,
    /// The same, but not before this warp's next fence: `ld.relaxed`, `ld.volatile`.
    AtAFence,
    /// What its own CTA released: `.cta`.
    OfItsCta,
}

/// A strong read or an atomic of global memory has happened at `address`.
pub fn acquire(cta: &mut Cta, w: &mut Warp, address: u64, learns: Learns) {
    cta.spoke = true;
    if cta.fences > 0 || learns == Learns::OfItsCta {
        synchronise(cta, w, address, true, false);
    }
    let _ = cta.m.global.unfenced.acquire(address, &mut cta.seen, w.index, &w.clock);
    match learns {
        Learns::Now => learn(cta, w, address),
        Learns::OfItsCta => {}
        // What had been released when it was read: not what others do between the read and the fence.
        Learns::AtAFence => {
            let Some(what) = cta.m.global.releases.so_far(address) else { return };
            match w.seen.iter().position(|s| s.0 == address) {
                Some(n) => w.seen[n].1 = what,
                None if w.seen.len() < MAX_SEEN => w.seen.push((address, what)),
                None => learn(cta, w, address),
            }
        }
    }
}

/// Takes over what others released at the address.
fn learn(cta: &mut Cta, w: &mut Warp, address: u64) {
    if let Some(found) = cta.m.global.releases.acquire(address, &mut cta.known, w.index, &w.clock) {
        join(w, &found, cta.linear);
    }
}

/// What other warps of its own CTA released.
fn join(w: &mut Warp, what: &Arc<Released>, cta: u64) {
    if let Some(own) = what.of(cta) {
        for (mine, theirs) in w.clock.iter_mut().zip(own) {
            *mine = (*mine).max(*theirs);
        }
    }
}
