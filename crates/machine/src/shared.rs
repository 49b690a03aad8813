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

mod places;
mod planes;
pub use places::Places;
pub use planes::{Accessor, Conflict, Lanes};
use planes::{Planes, byte_mask};

/// Beyond this stamp the planes are cleared before the next CTA.
const STAMP_RESET: u32 = 1 << 25;

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

    /// Sixteen bytes as four words; within the memory.
    #[inline(always)]
    pub fn sixteen(&self, at: usize) -> [u32; 4] {
        debug_assert!(at + 16 <= self.len);
        // SAFETY: within `len`, which `words` covers, as callers check; unaligned reads are fine.
        unsafe { self.words.as_ptr().cast::<u8>().add(at).cast::<[u32; 4]>().read_unaligned() }
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

    /// Adds or removes the in-flight bit for 4, 8 or 16 bytes of each lane.
    #[inline(always)]
    pub fn lanes_flight(&mut self, m: u32, at: &[u32; 32], span: usize, flight: bool) {
        match span {
            16 => self.pieces_flight::<16>(m, at, 1, flight),
            8 => self.pieces_flight::<8>(m, at, 1, flight),
            _ => self.pieces_flight::<4>(m, at, span / 4, flight),
        }
    }

    #[inline(always)]
    fn pieces_flight<const PIECE: usize>(&mut self, m: u32, at: &[u32; 32], pieces: usize, flight: bool) {
        for (l, a) in at.iter().enumerate() {
            if m >> l & 1 != 0 {
                for piece in self.shadow[*a as usize..][..PIECE * pieces].as_chunks_mut::<PIECE>().0 {
                    *piece = piece.map(|s| if flight { s | IN_FLIGHT } else { s & !IN_FLIGHT });
                }
            }
        }
    }

    /// Whether any of so many bytes (4, 8, 16) at every offset is in flight.
    #[inline(always)]
    pub fn any_in_flight(&self, at: &[u32; 32], span: usize) -> bool {
        match span {
            16 => self.pieces_in_flight::<16>(at, 1),
            8 => self.pieces_in_flight::<8>(at, 1),
            _ => self.pieces_in_flight::<4>(at, span / 4),
        }
    }

    #[inline(always)]
    fn pieces_in_flight<const PIECE: usize>(&self, at: &[u32; 32], pieces: usize) -> bool {
        let mut any = [0u8; PIECE];
        for a in at {
            for piece in self.shadow[*a as usize..][..PIECE * pieces].as_chunks::<PIECE>().0 {
                for (any, shadow) in any.iter_mut().zip(piece) {
                    *any |= shadow;
                }
            }
        }
        any.iter().fold(0, |a, s| a | s) & IN_FLIGHT != 0
    }

    /// Whether the bytes at every offset are defined and none is in flight; `span` is a power of two up to 16 or more.
    #[inline(always)]
    pub fn lanes_defined(&self, at: &[u32], span: usize) -> bool {
        match span {
            1 => self.pieces_defined::<1>(at, 1),
            2 => self.pieces_defined::<2>(at, 1),
            4 => self.pieces_defined::<4>(at, 1),
            8 => self.pieces_defined::<8>(at, 1),
            16 => self.pieces_defined::<16>(at, 1),
            _ => self.pieces_defined::<16>(at, span / 16),
        }
    }

    #[inline(always)]
    fn pieces_defined<const PIECE: usize>(&self, at: &[u32], pieces: usize) -> bool {
        let mut bad = [0u8; PIECE];
        for a in at {
            for piece in self.shadow[*a as usize..][..PIECE * pieces].as_chunks::<PIECE>().0 {
                for (bad, shadow) in bad.iter_mut().zip(piece) {
                    *bad |= shadow ^ DEFINED;
                }
            }
        }
        bad == [0; PIECE]
    }

    /// A read by all lanes when no other warp has written anything new; false: look at each lane.
    #[inline(always)]
    pub fn read_lanes(&mut self, m: u32, at: &[u32; 32], places: &Places, span: usize, who: &Accessor) -> bool {
        let (first, last) = words_of(at, span);
        if !self.writes.quiet(who, places.at(), span, first, last)
            || !self.writes.lanes_apart(who, places, span, first, last)
        {
            return false;
        }
        if span >= 4 {
            self.reads.record_places(who, places, span / 4, first, last);
        } else {
            self.reads.record_pieces(who, m, at, span, first, last);
        }
        true
    }

    /// The same for a write.
    #[inline(always)]
    pub fn write_lanes(&mut self, m: u32, at: &[u32; 32], span: usize, who: &Accessor) -> bool {
        let places = Places::new(m, at);
        if !self.lanes_quiet(&places, span, who) {
            return false;
        }
        let (first, last) = words_of(at, span);
        if span >= 4 {
            self.writes.record_places(who, &places, span / 4, first, last);
        } else {
            self.writes.record_pieces(who, m, at, span, first, last);
        }
        true
    }

    /// A read of rows of sixteen bytes by a matrix instruction, when nothing near them is new; false: look at each row.
    #[inline(always)]
    pub fn read_rows(&mut self, at: &[u32], who: &Accessor) -> bool {
        let (first, last) = words_of(at, 16);
        if !self.writes.quiet(who, at, 16, first, last) || !self.writes.own_quiet(who, at, 16, first, last) {
            return false;
        }
        self.reads.record_rows(who, at, first, last);
        true
    }

    /// Whether a write of whole words by all lanes would surely clash with nothing, as it is to be made later.
    #[inline(always)]
    pub fn lanes_quiet(&self, places: &Places, span: usize, who: &Accessor) -> bool {
        let at = places.at();
        let (first, last) = words_of(at, span);
        self.writes.quiet(who, at, span, first, last)
            && self.reads.quiet(who, at, span, first, last)
            && self.writes.lanes_apart(who, places, span, first, last)
            && self.reads.lanes_apart(who, places, span, first, last)
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
fn words_of(at: &[u32], span: usize) -> (usize, usize) {
    let (mut low, mut high) = (u32::MAX, 0);
    for a in at {
        low = low.min(*a);
        high = high.max(*a);
    }
    (low as usize / 4, (high as usize + span - 1) / 4)
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
