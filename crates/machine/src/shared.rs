//! A CTA's shared memory: bytes, one shadow byte each, and who accessed which word since when.
//!
//! Races are found with vector clocks. A warp's own clock is the number of its current interval (it advances at each
//! release: a barrier arrival, an atomic); `clock[u]` is the last interval of warp u that it knows to be over. An access
//! of warp u is ordered before one of warp w if its interval is at most w's clock for u. For each word and warp the last
//! read and the last write are kept, with a mask of the word's bytes, so that neighbouring bytes are no conflict.
//! Lanes of one warp are ordered by what begins a new interval (`bar.warp.sync` too), else they race, for since Volta they may
//! run apart: an entry keeps its lane, or that there were several. A matrix instruction waits for all lanes before it begins,
//! so that hardware orders it with what stands before, though PTX promises no order of memory: that is a note.
//! Source: FastTrack (Flanagan and Freund, PLDI 2009), with full vectors instead of epochs; HiRace (arXiv 2401.04701); PTX ISA
//! 9.0, "bar.warp.sync" (orders memory) and "shfl.sync" (does not).
//! Limits: which of several lanes touched which byte of a word is not kept, so such words are in doubt silent; atomics and
//! strong accesses order more than they need to.

use std::collections::HashMap;

use crate::code::Pc;
use crate::memory::{DEFINED, IN_FLIGHT};

const STAMP_SHIFT: u32 = 37;
const ATOMIC: u64 = 1 << 36;
const BYTES_SHIFT: u32 = 32;
const BYTES: u64 = 15 << BYTES_SHIFT;
/// By a matrix instruction, which all lanes of the warp execute together.
const WIDE: u64 = 1 << 31;
/// Several lanes, and not each of them all bytes.
const PARTIAL: u64 = 1 << 30;
/// Several lanes; else the lane is in the bits of [`LANE`].
const SEVERAL: u64 = 1 << 29;
const LANE_SHIFT: u32 = 24;
const LANE: u64 = 31 << LANE_SHIFT;
/// Programs of more instructions are not loaded: their text would be over the limit.
const PC: u64 = (1 << 24) - 1;
/// Beyond this stamp the planes are cleared before the next CTA.
const STAMP_RESET: u32 = 1 << 25;

/// Who accesses.
#[derive(Debug, Clone, Copy)]
pub struct Accessor<'a> {
    pub warp: usize,
    pub clock: &'a [u32],
    pub pc: Pc,
    pub atomic: bool,
    pub lanes: Lanes,
}

/// Which lanes of a warp access which words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lanes {
    One(u32),
    /// Lane l from `start + l * span` on.
    Row {
        start: usize,
        span: usize,
    },
    /// Several lanes the same bytes.
    Same,
    /// A matrix instruction.
    Wide,
}

impl Lanes {
    /// Those of a group at one place.
    #[inline(always)]
    pub fn together(mask: u32) -> Lanes {
        if mask.count_ones() == 1 { Lanes::One(mask.trailing_zeros()) } else { Lanes::Same }
    }

    /// An entry's bits for a word.
    #[inline(always)]
    fn tag(self, word: usize) -> u64 {
        match self {
            Lanes::One(l) => u64::from(l) << LANE_SHIFT,
            Lanes::Row { start, span } if span >= 4 => {
                (((4 * word).saturating_sub(start) / span) as u64 & 31) << LANE_SHIFT
            }
            Lanes::Row { .. } => SEVERAL | PARTIAL,
            Lanes::Same => SEVERAL,
            Lanes::Wide => SEVERAL | WIDE,
        }
    }
}

/// The access that a new one is not ordered with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conflict {
    pub warp: usize,
    pub pc: Pc,
    pub write: bool,
    /// First byte in question.
    pub at: usize,
    /// Its lane, where it is known; for an access of the same warp.
    pub lane: Option<u32>,
    /// Both lanes came together in a matrix instruction: ordered on hardware, not by PTX's memory model.
    pub converged: bool,
}

/// Last accesses of each warp to each word.
#[derive(Debug, Default)]
struct Planes {
    entries: Vec<Vec<u64>>,
    /// The latest interval in which a warp made an entry.
    latest: Vec<u32>,
    /// Words that each warp's entries of its last intervals lie in.
    recent: Vec<Recent>,
}

/// The words of a warp's last intervals, and of all earlier ones together: most accesses of other warps are elsewhere.
#[derive(Debug, Clone, Copy)]
struct Recent {
    /// (interval, first word, last word), the latest first.
    spans: [(u32, u32, u32); 3],
}

impl Default for Recent {
    fn default() -> Recent {
        Recent { spans: [(0, u32::MAX, 0); 3] }
    }
}

impl Recent {
    #[inline(always)]
    fn add(&mut self, stamp: u32, first: usize, last: usize) {
        let (first, last) = (first as u32, last as u32);
        if self.spans[0].0 != stamp {
            let [a, b, c] = self.spans;
            self.spans = [(stamp, first, last), a, (b.0.max(c.0), b.1.min(c.1), b.2.max(c.2))];
        } else {
            let s = &mut self.spans[0];
            (s.1, s.2) = (s.1.min(first), s.2.max(last));
        }
    }

    /// Whether an entry newer than `known` may lie in the words.
    #[inline(always)]
    fn touches(&self, known: u32, first: usize, last: usize) -> bool {
        self.spans.iter().any(|s| s.0 > known && s.1 as usize <= last && first <= s.2 as usize)
    }
}

impl Planes {
    fn reset(&mut self, warps: usize, words: usize, clear: bool) {
        if clear {
            self.entries.clear();
        }
        self.entries.resize_with(warps, Vec::new);
        for e in &mut self.entries {
            if e.len() < words {
                e.resize(words, 0);
            }
        }
        self.latest.clear();
        self.latest.resize(warps, 0);
        self.recent.clear();
        self.recent.resize(warps, Recent::default());
    }

    /// No other warp has made an entry in these words since this one last heard of it.
    #[inline(always)]
    fn quiet(&self, who: &Accessor, first: usize, last: usize) -> bool {
        for (u, (latest, known)) in self.latest.iter().zip(who.clock).enumerate() {
            if latest > known && u != who.warp && self.recent[u].touches(*known, first, last) {
                return false;
            }
        }
        true
    }

    /// Records whole words of 32 lanes.
    #[inline(always)]
    fn record_lanes(&mut self, who: &Accessor, m: u32, at: &[u32; 32], words: usize, first: usize, last: usize) {
        let stamp = who.clock[who.warp];
        self.latest[who.warp] = stamp;
        self.recent[who.warp].add(stamp, first, last);
        let entry = entry(who, stamp) | BYTES;
        let plane = &mut self.entries[who.warp][..];
        let rest = m.trailing_zeros();
        for (l, a) in at.iter().enumerate() {
            let a = *a as usize / 4;
            let lane = if m >> l & 1 != 0 { l as u32 } else { rest };
            let new = entry | u64::from(lane) << LANE_SHIFT;
            // PERF: a lane's first word speaks for all of them; accesses of several words are seldom laid out otherwise.
            let old = plane[a];
            let new = if old >> STAMP_SHIFT == u64::from(stamp) && old != new { merge(old, new) } else { new };
            for e in &mut plane[a..a + words] {
                *e = new;
            }
        }
    }

    /// No lane of this warp has touched, in this interval, what another one touches now.
    #[inline(always)]
    fn lanes_apart(&self, who: &Accessor, m: u32, at: &[u32; 32], span: usize, first: usize, last: usize) -> bool {
        let stamp = who.clock[who.warp];
        let s = self.recent[who.warp].spans[0];
        if s.0 != stamp || s.1 as usize > last || first > s.2 as usize {
            return true;
        }
        let plane = &self.entries[who.warp][..];
        let mut close = false;
        for (l, a) in at.iter().enumerate() {
            for n in 0..span.div_ceil(4) {
                let e = plane[*a as usize / 4 + n];
                close |= e >> STAMP_SHIFT == u64::from(stamp) && e & (LANE | SEVERAL | WIDE) != lane_tag(m, l);
            }
        }
        !close
    }

    /// Records one or two bytes of a word for each of 32 lanes.
    #[inline(always)]
    fn record_pieces(&mut self, who: &Accessor, m: u32, at: &[u32; 32], bytes: usize, first: usize, last: usize) {
        let stamp = who.clock[who.warp];
        self.latest[who.warp] = stamp;
        self.recent[who.warp].add(stamp, first, last);
        let base = entry(who, stamp);
        let piece = (1u64 << bytes) - 1;
        let plane = &mut self.entries[who.warp][..];
        for (l, a) in at.iter().enumerate() {
            let e = &mut plane[*a as usize / 4];
            *e = merge(*e, base | piece << (a % 4) << BYTES_SHIFT | lane_tag(m, l));
        }
    }

    /// An access of this warp's own interval by another lane.
    #[inline(always)]
    fn own_conflict(
        &self,
        who: &Accessor,
        first: usize,
        masks: impl Fn(usize) -> u64,
        words: usize,
        write: bool,
    ) -> Option<Conflict> {
        let stamp = who.clock[who.warp];
        let s = self.recent[who.warp].spans[0];
        if s.0 != stamp || s.1 as usize >= first + words || first > s.2 as usize {
            return None;
        }
        for (n, entry) in self.entries[who.warp][first..first + words].iter().enumerate() {
            let (mask, tag) = (masks(n), who.lanes.tag(first + n));
            if entry >> STAMP_SHIFT == u64::from(stamp)
                && entry >> BYTES_SHIFT & mask & 15 != 0
                && !(who.atomic && entry & ATOMIC != 0)
                && other_lane(*entry, tag, mask, write)
            {
                return Some(Conflict {
                    warp: who.warp,
                    pc: (entry & PC) as Pc,
                    write,
                    at: (first + n) * 4,
                    lane: (entry & SEVERAL == 0).then_some((entry >> LANE_SHIFT & 31) as u32),
                    converged: tag & WIDE != 0 || entry & WIDE != 0 && !write,
                });
            }
        }
        None
    }

    /// An access that a new one is not ordered with: another warp's, or another lane's. `write` says what this plane holds.
    #[inline(always)]
    fn find(
        &self,
        who: &Accessor,
        first: usize,
        masks: impl Fn(usize) -> u64 + Copy,
        words: usize,
        write: bool,
    ) -> Option<Conflict> {
        self.conflict(who, first, masks, words, write).or_else(|| self.own_conflict(who, first, masks, words, write))
    }

    #[inline(always)]
    fn conflict(
        &self,
        who: &Accessor,
        first: usize,
        masks: impl Fn(usize) -> u64,
        words: usize,
        write: bool,
    ) -> Option<Conflict> {
        for (u, plane) in self.entries.iter().enumerate() {
            if u == who.warp
                || self.latest[u] <= who.clock[u]
                || !self.recent[u].touches(who.clock[u], first, first + words - 1)
            {
                continue;
            }
            let known = u64::from(who.clock[u]);
            for (n, entry) in plane[first..first + words].iter().enumerate() {
                if entry >> STAMP_SHIFT > known
                    && entry >> BYTES_SHIFT & masks(n) & 15 != 0
                    && !(who.atomic && entry & ATOMIC != 0)
                {
                    let pc = (entry & PC) as Pc;
                    return Some(Conflict { warp: u, pc, write, at: (first + n) * 4, lane: None, converged: false });
                }
            }
        }
        None
    }

    #[inline(always)]
    fn record(
        &mut self,
        who: &Accessor,
        first: usize,
        masks: impl Fn(usize) -> u64,
        words: usize,
        words_are_whole: bool,
    ) {
        let stamp = who.clock[who.warp];
        self.latest[who.warp] = stamp;
        self.recent[who.warp].add(stamp, first, first + words - 1);
        let base = entry(who, stamp);
        if words_are_whole && matches!(who.lanes, Lanes::Same | Lanes::Wide) {
            // PERF: whole words by several lanes: nothing that an older entry says adds to that.
            let entry = base | BYTES | who.lanes.tag(first);
            self.entries[who.warp][first..first + words].fill(entry);
            return;
        }
        for (n, entry) in self.entries[who.warp][first..first + words].iter_mut().enumerate() {
            *entry = merge(*entry, base | masks(n) << BYTES_SHIFT | who.lanes.tag(first + n));
        }
    }
}

#[inline(always)]
fn entry(who: &Accessor, stamp: u32) -> u64 {
    u64::from(stamp) << STAMP_SHIFT | u64::from(who.pc) & PC | if who.atomic { ATOMIC } else { 0 }
}

/// The lane's bits; lanes that do not take part stand where the first active one does.
#[inline(always)]
fn lane_tag(m: u32, l: usize) -> u64 {
    let lane = if m >> l & 1 != 0 { l as u32 } else { m.trailing_zeros() };
    u64::from(lane) << LANE_SHIFT
}

/// A word's entry after one more access. Those of one interval add up their bytes and lanes; plain beats atomic.
#[inline(always)]
fn merge(old: u64, new: u64) -> u64 {
    if old >> STAMP_SHIFT != new >> STAMP_SHIFT {
        return new;
    }
    let several = (old ^ new) & (LANE | SEVERAL) != 0;
    let partial = several && old & new & BYTES != BYTES;
    let flags = if several { SEVERAL } else { 0 } | if partial { PARTIAL } else { 0 };
    (new & (old | !ATOMIC)) | old & (BYTES | SEVERAL | PARTIAL) | flags
}

/// Whether an entry of the same interval is surely, in part at least, another lane's.
#[inline(always)]
fn other_lane(entry: u64, tag: u64, mask: u64, write: bool) -> bool {
    if (entry | tag) & WIDE != 0 {
        // Two matrix instructions: a tile that is read, changed and written back in fragments has each lane at its own places.
        return entry & tag & WIDE == 0;
    }
    match (entry & SEVERAL != 0, tag & SEVERAL != 0) {
        (false, false) => (entry ^ tag) & LANE != 0,
        // Of several lanes one at least is not the entry's.
        (false, true) => mask == 15 || entry & BYTES == BYTES,
        // Several lanes that wrote one word have written the same value, or were reported then.
        (true, _) => !write && entry & PARTIAL == 0,
    }
}

/// Shared memory of the CTA that runs now.
#[derive(Debug, Default)]
pub struct Shared {
    words: Vec<u64>,
    shadow: Vec<u8>,
    len: usize,
    reads: Planes,
    writes: Planes,
    /// Where undefined values that were stored come from, by byte.
    pub origins: HashMap<usize, Pc>,
    /// The last interval handed out.
    stamp: u32,
}

impl Shared {
    /// Prepares for a CTA: all bytes undefined. Returns the stamp that everything before it has.
    pub fn reset(&mut self, len: usize, warps: usize) -> u32 {
        self.len = len;
        self.words.clear();
        self.words.resize(len.div_ceil(8) + 1, 0);
        self.shadow.clear();
        self.shadow.resize(len, 0);
        self.origins.clear();
        let clear = self.stamp > STAMP_RESET;
        if clear {
            self.stamp = 0;
        }
        self.reads.reset(warps, len.div_ceil(4), clear);
        self.writes.reset(warps, len.div_ceil(4), clear);
        self.stamp
    }

    /// A new interval.
    pub fn tick(&mut self) -> u32 {
        self.stamp += 1;
        self.stamp
    }

    /// Bytes of the CTA's shared memory.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the warp has accessed anything in its current interval.
    pub fn used(&self, warp: usize, stamp: u32) -> bool {
        self.reads.latest[warp] == stamp || self.writes.latest[warp] == stamp
    }

    /// Reads 1, 2, 4 or 8 bytes; the caller has checked bounds and alignment.
    #[inline(always)]
    pub fn load(&self, at: usize, bytes: usize) -> u64 {
        debug_assert!(at + bytes <= self.len && at.is_multiple_of(bytes));
        // SAFETY: within `len`, which `words` covers, as callers check and tests assert.
        let p = unsafe { self.words.as_ptr().cast::<u8>().add(at) };
        // SAFETY: as above; unaligned reads are fine.
        unsafe {
            match bytes {
                1 => u64::from(p.read()),
                2 => u64::from(p.cast::<u16>().read_unaligned()),
                4 => u64::from(p.cast::<u32>().read_unaligned()),
                _ => p.cast::<u64>().read_unaligned(),
            }
        }
    }

    /// Writes 1, 2, 4 or 8 bytes; the caller has checked bounds and alignment.
    #[inline(always)]
    pub fn store(&mut self, at: usize, bytes: usize, value: u64) {
        debug_assert!(at + bytes <= self.len && at.is_multiple_of(bytes));
        // SAFETY: within `len`, which `words` covers.
        let p = unsafe { self.words.as_mut_ptr().cast::<u8>().add(at) };
        // SAFETY: as above.
        unsafe {
            match bytes {
                1 => p.write(value as u8),
                2 => p.cast::<u16>().write_unaligned(value as u16),
                4 => p.cast::<u32>().write_unaligned(value as u32),
                _ => p.cast::<u64>().write_unaligned(value),
            }
        }
    }

    /// Whether all bytes of a range have defined values and none is in flight.
    #[inline(always)]
    pub fn is_defined(&self, at: usize, len: usize) -> bool {
        self.shadow[at..at + len].iter().fold(0, |a, s| a | (s ^ DEFINED)) == 0
    }

    /// Whether all bytes of a range have defined values, in flight or not.
    pub fn is_value_defined(&self, at: usize, len: usize) -> bool {
        self.shadow[at..at + len].iter().fold(DEFINED, |a, s| a & s) != 0
    }

    /// Whether an asynchronous copy has any byte of a range in flight.
    #[inline(always)]
    pub fn in_flight(&self, at: usize, len: usize) -> bool {
        self.shadow[at..at + len].iter().fold(0, |a, s| a | s) & IN_FLIGHT != 0
    }

    /// The undefined bits of 1, 2, 4 or 8 bytes.
    pub fn undefined_bits(&self, at: usize, bytes: usize) -> u64 {
        let shadow = &self.shadow[at..at + bytes];
        shadow.iter().enumerate().fold(0, |a, (n, s)| if s & DEFINED == 0 { a | 0xFF << (8 * n) } else { a })
    }

    /// Where an undefined value within a range comes from, if it was stored.
    pub fn origin_within(&self, at: usize, len: usize) -> Option<Pc> {
        if self.origins.is_empty() {
            return None;
        }
        (at..at + len).find_map(|n| self.origins.get(&n).copied())
    }

    /// Sets the shadow of a range.
    #[inline(always)]
    pub fn mark(&mut self, at: usize, len: usize, shadow: u8) {
        self.shadow[at..at + len].fill(shadow);
    }

    /// Adds or removes the in-flight bit.
    pub fn set_flight(&mut self, at: usize, len: usize, flight: bool) {
        for s in &mut self.shadow[at..at + len] {
            *s = if flight { *s | IN_FLIGHT } else { *s & !IN_FLIGHT };
        }
    }

    /// Whether the bytes at every lane's offset are defined and none is in flight; `span` is a power of two up to 16 or more.
    #[inline(always)]
    pub fn lanes_defined(&self, at: &[u32; 32], span: usize) -> bool {
        let mut bad = 0u64;
        let p = self.shadow.as_ptr();
        for a in at {
            debug_assert!(*a as usize + span <= self.len);
            // SAFETY: the caller has checked that offset plus span is within the shadow's length, which is `len`.
            unsafe {
                let p = p.add(*a as usize);
                bad |= match span {
                    1 => u64::from(p.read() ^ DEFINED),
                    2 => u64::from(p.cast::<u16>().read_unaligned() ^ 0x0101),
                    4 => u64::from(p.cast::<u32>().read_unaligned() ^ 0x0101_0101),
                    8 => p.cast::<u64>().read_unaligned() ^ 0x0101_0101_0101_0101,
                    _ => {
                        let mut bad = 0;
                        for n in 0..span / 8 {
                            bad |= p.cast::<u64>().add(n).read_unaligned() ^ 0x0101_0101_0101_0101;
                        }
                        bad
                    }
                };
            }
        }
        bad == 0
    }

    /// A read of whole words by all lanes when no other warp has written anything new; false: look at each lane.
    #[inline(always)]
    pub fn read_lanes(&mut self, m: u32, at: &[u32; 32], span: usize, who: &Accessor) -> bool {
        let (first, last) = words_of(at, span);
        if !self.writes.quiet(who, first, last) || !self.writes.lanes_apart(who, m, at, span, first, last) {
            return false;
        }
        if span >= 4 {
            self.reads.record_lanes(who, m, at, span / 4, first, last);
        } else {
            self.reads.record_pieces(who, m, at, span, first, last);
        }
        true
    }

    /// The same for a write.
    #[inline(always)]
    pub fn write_lanes(&mut self, m: u32, at: &[u32; 32], span: usize, who: &Accessor) -> bool {
        let (first, last) = words_of(at, span);
        if !self.writes.quiet(who, first, last)
            || !self.reads.quiet(who, first, last)
            || !self.writes.lanes_apart(who, m, at, span, first, last)
            || !self.reads.lanes_apart(who, m, at, span, first, last)
        {
            return false;
        }
        if span >= 4 {
            self.writes.record_lanes(who, m, at, span / 4, first, last);
        } else {
            self.writes.record_pieces(who, m, at, span, first, last);
        }
        true
    }

    /// A read: conflicts with writes of other warps.
    #[inline(always)]
    pub fn read(&mut self, at: usize, len: usize, who: &Accessor) -> Option<Conflict> {
        let (first, words) = (at / 4, (at + len).div_ceil(4) - at / 4);
        let masks = |n| byte_mask(at, len, first + n);
        if at.is_multiple_of(4) && len.is_multiple_of(4) {
            let found = self.writes.find(who, first, |_| 15, words, true);
            self.reads.record(who, first, |_| 15, words, true);
            found
        } else {
            let found = self.writes.find(who, first, masks, words, true);
            self.reads.record(who, first, masks, words, false);
            found
        }
    }

    /// A write: conflicts with reads and writes of other warps.
    #[inline(always)]
    pub fn write(&mut self, at: usize, len: usize, who: &Accessor) -> Option<Conflict> {
        let found = self.check_write(at, len, who);
        let (first, words) = (at / 4, (at + len).div_ceil(4) - at / 4);
        self.writes.record(
            who,
            first,
            |n| byte_mask(at, len, first + n),
            words,
            at.is_multiple_of(4) && len.is_multiple_of(4),
        );
        found
    }

    /// Reads of other warps that a write would conflict with, without recording it.
    pub fn check_reads(&self, at: usize, len: usize, who: &Accessor) -> Option<Conflict> {
        let (first, words) = (at / 4, (at + len).div_ceil(4) - at / 4);
        self.reads.find(who, first, |n| byte_mask(at, len, first + n), words, false)
    }

    /// What a write would conflict with, without recording it.
    #[inline(always)]
    pub fn check_write(&self, at: usize, len: usize, who: &Accessor) -> Option<Conflict> {
        let (first, words) = (at / 4, (at + len).div_ceil(4) - at / 4);
        let masks = |n| byte_mask(at, len, first + n);
        let write = self.writes.find(who, first, masks, words, true);
        write.or_else(|| self.reads.find(who, first, masks, words, false))
    }
}

/// The first and the last word that the lanes touch.
#[inline(always)]
fn words_of(at: &[u32; 32], span: usize) -> (usize, usize) {
    let (mut low, mut high) = (u32::MAX, 0);
    for a in at {
        low = low.min(*a);
        high = high.max(*a);
    }
    (low as usize / 4, (high as usize + span - 1) / 4)
}

/// Which bytes of a word the range covers.
#[inline(always)]
fn byte_mask(at: usize, len: usize, word: usize) -> u64 {
    let low = at.saturating_sub(word * 4).min(4);
    let high = (at + len - word * 4).min(4);
    (0xF << low) & 0xF & (0xF >> (4 - high))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who(warp: usize, clock: &[u32], pc: Pc) -> Accessor<'_> {
        Accessor { warp, clock, pc, atomic: false, lanes: Lanes::One(0) }
    }

    #[test]
    fn ordered_accesses_do_not_conflict_and_others_do() {
        let mut s = Shared::default();
        assert_eq!(s.reset(64, 2), 0);
        // Both warps are in interval 1 and know nothing of each other.
        let (w0, w1) = ([1, 0], [0, 1]);
        assert_eq!(s.write(0, 4, &who(0, &w0, 10)), None);
        assert_eq!(s.read(0, 4, &who(0, &w0, 11)), None, "a warp does not race with itself");
        let found = s.read(0, 4, &who(1, &w1, 12));
        let conflict = |warp, pc, write| Some(Conflict { warp, pc, write, at: 0, lane: None, converged: false });
        assert_eq!(found, conflict(0, 10, true));
        // After a barrier warp 1 knows that warp 0's interval 1 is over.
        assert_eq!(s.read(0, 4, &who(1, &[1, 2], 13)), None);
        // A write by warp 0 in interval 3 without a barrier since: conflicts with that read.
        let found = s.write(0, 4, &who(0, &[3, 1], 14));
        assert_eq!(found, conflict(1, 13, false));
    }

    #[test]
    fn neighbouring_bytes_are_no_conflict() {
        let mut s = Shared::default();
        s.reset(64, 2);
        for (at, len) in [(4usize, 1usize), (6, 2)] {
            assert_eq!(s.write(at, len, &who(0, &[1, 0], 1)), None);
        }
        assert_eq!(s.write(5, 1, &who(1, &[0, 1], 2)), None);
        assert!(s.write(6, 1, &who(1, &[0, 1], 3)).is_some());
        assert!(s.read(4, 4, &who(1, &[0, 1], 4)).is_some());
    }

    #[test]
    fn atomics_do_not_race_with_each_other_but_with_plain_accesses() {
        let mut s = Shared::default();
        s.reset(64, 2);
        let atomic = |warp, clock, pc| Accessor { warp, clock, pc, atomic: true, lanes: Lanes::One(0) };
        assert_eq!(s.write(8, 4, &atomic(0, &[1, 0], 1)), None);
        assert_eq!(s.write(8, 4, &atomic(1, &[0, 1], 2)), None);
        assert!(s.read(8, 4, &who(1, &[0, 1], 3)).is_some());
    }

    #[test]
    fn lanes_of_one_interval_race_unless_it_is_one_lane() {
        let lane = |l, pc| Accessor { lanes: Lanes::One(l), ..who(0, &[1], pc) };
        let mut s = Shared::default();
        s.reset(256, 1);
        assert_eq!(s.write(0, 4, &lane(3, 1)), None);
        assert_eq!(s.read(0, 4, &lane(3, 2)), None, "its own value");
        let found = s.read(0, 4, &lane(4, 2)).expect("another lane's");
        assert_eq!((found.warp, found.pc, found.lane, found.converged), (0, 1, Some(3), false));
        assert_eq!(s.read(0, 4, &Accessor { clock: &[2], ..lane(4, 2) }), None, "a new interval");
        // Lanes in a row write their words, then each reads its neighbour's.
        let row = Accessor { lanes: Lanes::Row { start: 128, span: 4 }, ..who(0, &[3], 5) };
        assert_eq!(s.write(128, 128, &row), None);
        assert_eq!(s.read(128, 128, &row), None);
        assert_eq!(s.read(132, 4, &Accessor { clock: &[3], ..lane(0, 6) }).map(|c| c.lane), Some(Some(1)));
        // Halves of a word by two lanes are in doubt; a word that all lanes read is written by one of them.
        let at = |l, pc| Accessor { clock: &[9], ..lane(l, pc) };
        assert_eq!(
            (s.write(64, 2, &at(0, 7)), s.write(66, 2, &at(1, 7)), s.read(64, 2, &at(0, 8))),
            (None, None, None)
        );
        assert_eq!(s.read(32, 4, &Accessor { lanes: Lanes::Same, ..at(0, 8) }), None);
        assert!(s.write(32, 4, &at(0, 9)).is_some());
        // A matrix instruction has waited for the lanes.
        assert_eq!(s.write(16, 4, &at(2, 1)), None);
        assert_eq!(s.read(16, 16, &Accessor { lanes: Lanes::Wide, ..at(0, 2) }).map(|c| c.converged), Some(true));
    }

    #[test]
    fn byte_masks() {
        for (at, len, word, mask) in
            [(0, 4, 0, 15), (1, 1, 0, 2), (3, 2, 0, 8), (3, 2, 1, 1), (6, 10, 1, 12), (6, 10, 2, 15)]
        {
            assert_eq!(byte_mask(at, len, word), mask, "{at} {len} {word}");
        }
    }
}
