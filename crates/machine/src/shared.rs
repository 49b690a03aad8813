//! A CTA's shared memory: bytes, one shadow byte each, and who accessed which word since when.
//!
//! Races are found with vector clocks. A warp's own clock is the number of its current interval (it advances at each
//! release: a barrier arrival, an atomic); `clock[u]` is the last interval of warp u that it knows to be over. An access
//! of warp u is ordered before one of warp w if its interval is at most w's clock for u. For each word and warp the last
//! read and the last write are kept, with a mask of the word's bytes, so that neighbouring bytes are no conflict. The lanes
//! of one warp are taken as ordered; two lanes that write different values to a byte in one instruction are not.
//! Source: FastTrack (Flanagan and Freund, PLDI 2009), with full vectors instead of epochs; HiRace (arXiv 2401.04701).
//! Limits: missing `__syncwarp` between lanes of a warp is not found; atomics and strong accesses order more than they
//! need to.

use std::collections::HashMap;

use crate::code::Pc;
use crate::memory::{DEFINED, IN_FLIGHT};

const STAMP_SHIFT: u32 = 37;
const ATOMIC: u64 = 1 << 36;
const BYTES_SHIFT: u32 = 32;
/// Beyond this stamp the planes are cleared before the next CTA.
const STAMP_RESET: u32 = 1 << 25;

/// Who accesses.
#[derive(Debug, Clone, Copy)]
pub struct Accessor<'a> {
    pub warp: usize,
    pub clock: &'a [u32],
    pub pc: Pc,
    pub atomic: bool,
}

/// The access that a new one is not ordered with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conflict {
    pub warp: usize,
    pub pc: Pc,
    pub write: bool,
    /// First byte in question.
    pub at: usize,
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
    fn record_lanes(&mut self, who: &Accessor, at: &[u32; 32], words: usize, first: usize, last: usize) {
        let stamp = who.clock[who.warp];
        self.latest[who.warp] = stamp;
        self.recent[who.warp].add(stamp, first, last);
        let entry = entry(who, stamp) | 15 << BYTES_SHIFT;
        let plane = &mut self.entries[who.warp][..];
        for a in at {
            for n in 0..words {
                plane[*a as usize / 4 + n] = entry;
            }
        }
    }

    /// Records one or two bytes of a word for each of 32 lanes.
    #[inline(always)]
    fn record_pieces(&mut self, who: &Accessor, at: &[u32; 32], bytes: usize, first: usize, last: usize) {
        let stamp = who.clock[who.warp];
        self.latest[who.warp] = stamp;
        self.recent[who.warp].add(stamp, first, last);
        let base = entry(who, stamp);
        let piece = (1u64 << bytes) - 1;
        let plane = &mut self.entries[who.warp][..];
        for a in at {
            let e = &mut plane[*a as usize / 4];
            let mask = piece << (a % 4) << BYTES_SHIFT;
            // Accesses of one interval add up their bytes.
            *e = if *e >> STAMP_SHIFT == u64::from(stamp) { *e & (base | !ATOMIC) | mask } else { base | mask };
        }
    }

    #[inline(always)]
    fn conflict(
        &self,
        who: &Accessor,
        first: usize,
        masks: impl Fn(usize) -> u64,
        words: usize,
    ) -> Option<(usize, usize, Pc)> {
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
                    return Some((u, first + n, *entry as Pc));
                }
            }
        }
        None
    }

    #[inline(always)]
    fn record(&mut self, who: &Accessor, first: usize, masks: impl Fn(usize) -> u64, words: usize) {
        let stamp = who.clock[who.warp];
        self.latest[who.warp] = stamp;
        self.recent[who.warp].add(stamp, first, first + words - 1);
        let base = entry(who, stamp);
        for (n, entry) in self.entries[who.warp][first..first + words].iter_mut().enumerate() {
            let mask = masks(n);
            *entry = if mask == 15 || *entry >> STAMP_SHIFT != u64::from(stamp) {
                base | mask << BYTES_SHIFT
            } else {
                // Several accesses of one interval: their bytes add up; plain beats atomic.
                (base & (*entry | !ATOMIC)) | (*entry >> BYTES_SHIFT & 15 | mask) << BYTES_SHIFT
            };
        }
    }
}

#[inline(always)]
fn entry(who: &Accessor, stamp: u32) -> u64 {
    u64::from(stamp) << STAMP_SHIFT | u64::from(who.pc) | if who.atomic { ATOMIC } else { 0 }
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
    pub fn read_lanes(&mut self, at: &[u32; 32], span: usize, who: &Accessor) -> bool {
        let (first, last) = words_of(at, span);
        if !self.writes.quiet(who, first, last) {
            return false;
        }
        if span >= 4 {
            self.reads.record_lanes(who, at, span / 4, first, last);
        } else {
            self.reads.record_pieces(who, at, span, first, last);
        }
        true
    }

    /// The same for a write.
    #[inline(always)]
    pub fn write_lanes(&mut self, at: &[u32; 32], span: usize, who: &Accessor) -> bool {
        let (first, last) = words_of(at, span);
        if !self.writes.quiet(who, first, last) || !self.reads.quiet(who, first, last) {
            return false;
        }
        if span >= 4 {
            self.writes.record_lanes(who, at, span / 4, first, last);
        } else {
            self.writes.record_pieces(who, at, span, first, last);
        }
        true
    }

    /// A read: conflicts with writes of other warps.
    #[inline(always)]
    pub fn read(&mut self, at: usize, len: usize, who: &Accessor) -> Option<Conflict> {
        let (first, words) = (at / 4, (at + len).div_ceil(4) - at / 4);
        let masks = |n| byte_mask(at, len, first + n);
        let found = if at.is_multiple_of(4) && len.is_multiple_of(4) {
            let found = self.writes.conflict(who, first, |_| 15, words);
            self.reads.record(who, first, |_| 15, words);
            found
        } else {
            let found = self.writes.conflict(who, first, masks, words);
            self.reads.record(who, first, masks, words);
            found
        };
        found.map(|(warp, word, pc)| Conflict { warp, pc, write: true, at: word * 4 })
    }

    /// A write: conflicts with reads and writes of other warps.
    #[inline(always)]
    pub fn write(&mut self, at: usize, len: usize, who: &Accessor) -> Option<Conflict> {
        let found = self.check_write(at, len, who);
        let (first, words) = (at / 4, (at + len).div_ceil(4) - at / 4);
        self.writes.record(who, first, |n| byte_mask(at, len, first + n), words);
        found
    }

    /// Reads of other warps that a write would conflict with, without recording it.
    pub fn check_reads(&self, at: usize, len: usize, who: &Accessor) -> Option<Conflict> {
        let (first, words) = (at / 4, (at + len).div_ceil(4) - at / 4);
        let found = self.reads.conflict(who, first, |n| byte_mask(at, len, first + n), words);
        found.map(|(warp, word, pc)| Conflict { warp, pc, write: false, at: word * 4 })
    }

    /// What a write would conflict with, without recording it.
    #[inline(always)]
    pub fn check_write(&self, at: usize, len: usize, who: &Accessor) -> Option<Conflict> {
        let (first, words) = (at / 4, (at + len).div_ceil(4) - at / 4);
        let masks = |n| byte_mask(at, len, first + n);
        let write = self.writes.conflict(who, first, masks, words).map(|f| (f, true));
        let found = write.or_else(|| self.reads.conflict(who, first, masks, words).map(|f| (f, false)));
        found.map(|((warp, word, pc), write)| Conflict { warp, pc, write, at: word * 4 })
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
        Accessor { warp, clock, pc, atomic: false }
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
        assert_eq!(found, Some(Conflict { warp: 0, pc: 10, write: true, at: 0 }));
        // After a barrier warp 1 knows that warp 0's interval 1 is over.
        assert_eq!(s.read(0, 4, &who(1, &[1, 2], 13)), None);
        // A write by warp 0 in interval 3 without a barrier since: conflicts with that read.
        let found = s.write(0, 4, &who(0, &[3, 1], 14));
        assert_eq!(found, Some(Conflict { warp: 1, pc: 13, write: false, at: 0 }));
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
        let atomic = |warp, clock, pc| Accessor { warp, clock, pc, atomic: true };
        assert_eq!(s.write(8, 4, &atomic(0, &[1, 0], 1)), None);
        assert_eq!(s.write(8, 4, &atomic(1, &[0, 1], 2)), None);
        assert!(s.read(8, 4, &who(1, &[0, 1], 3)).is_some());
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
