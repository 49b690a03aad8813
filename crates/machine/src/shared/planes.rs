//! Who accessed which word of shared memory since when: an entry for each word and warp, for reads and for writes.
//!
//! [`super`] says what entries mean and when two accesses are a race. Entries are looked at for single ranges (`find`, `record`) or,
//! where nobody else has been near, for the lanes of an instruction at once (`quiet`, `lanes_apart`, `record_places`).

use super::places::Places;
use crate::code::Pc;

const STAMP_SHIFT: u32 = 37;
const ATOMIC: u64 = 1 << 36;
const BYTES_SHIFT: u32 = 32;
const BYTES: u64 = 15 << BYTES_SHIFT;
/// By a matrix instruction, which all lanes of the warp execute together.
const WIDE: u64 = 1 << 31;
/// Several lanes, and not each of them all bytes.
const PARTIAL: u64 = 1 << 30;
/// Several lanes; else the lane is in the bits of [`LANE`].
pub(super) const SEVERAL: u64 = 1 << 29;
pub(super) const LANE_SHIFT: u32 = 24;
const LANE: u64 = 31 << LANE_SHIFT;
/// Programs of more instructions are not loaded: their text would be over the limit.
const PC: u64 = (1 << 24) - 1;
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
pub(super) struct Planes {
    entries: Vec<Vec<u64>>,
    /// The latest interval in which a warp made an entry.
    pub(super) latest: Vec<u32>,
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
    pub(super) fn reset(&mut self, warps: usize, words: usize, clear: bool) {
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

    /// No other warp has made an entry in these words since this one last heard of it: those of `span` bytes at each of `at`,
    /// which lie from `first` to `last`.
    #[inline(always)]
    pub(super) fn quiet(&self, who: &Accessor, at: &[u32], span: usize, first: usize, last: usize) -> bool {
        for (u, (latest, known)) in self.latest.iter().zip(who.clock).enumerate() {
            if latest > known && u != who.warp && self.recent[u].touches(*known, first, last) {
                // PERF: its words are often among these, as warps copy their parts of a tile, but seldom the same ones.
                if !Self::older(&self.entries[u], at, span, u64::from(*known)) {
                    return false;
                }
            }
        }
        true
    }

    /// Whether all entries in the words at `at` are of intervals up to `known`.
    #[inline(never)]
    fn older(plane: &[u64], at: &[u32], span: usize, known: u64) -> bool {
        let mut latest = 0;
        match span.div_ceil(4) {
            1 => {
                for a in at {
                    latest = latest.max(plane[*a as usize / 4]);
                }
            }
            4 => {
                let mut four = [0u64; 4];
                for a in at {
                    if let Some(entries) = plane[*a as usize / 4..].first_chunk::<4>() {
                        for (most, entry) in four.iter_mut().zip(entries) {
                            *most = (*most).max(*entry);
                        }
                    }
                }
                latest = four.into_iter().fold(0, u64::max);
            }
            words => {
                for a in at {
                    for entry in &plane[*a as usize / 4..][..words] {
                        latest = latest.max(*entry);
                    }
                }
            }
        }
        latest >> STAMP_SHIFT <= known
    }

    /// Records whole words.
    #[inline(always)]
    pub(super) fn record_places(&mut self, who: &Accessor, places: &Places, words: usize, first: usize, last: usize) {
        match words {
            1 => self.record_words::<1>(who, places, first, last),
            2 => self.record_words::<2>(who, places, first, last),
            4 => self.record_words::<4>(who, places, first, last),
            _ => {
                for n in 0..words {
                    self.record_each::<1>(who, places, n, first, last);
                }
            }
        }
    }

    #[inline(always)]
    fn record_words<const WORDS: usize>(&mut self, who: &Accessor, places: &Places, first: usize, last: usize) {
        self.record_each::<WORDS>(who, places, 0, first, last);
    }

    /// Words from the `skip`-th of each place on.
    #[inline(always)]
    fn record_each<const WORDS: usize>(
        &mut self,
        who: &Accessor,
        places: &Places,
        skip: usize,
        first: usize,
        last: usize,
    ) {
        let stamp = who.clock[who.warp];
        self.latest[who.warp] = stamp;
        self.recent[who.warp].add(stamp, first, last);
        let entry = entry(who, stamp) | BYTES;
        let plane = &mut self.entries[who.warp][..];
        for (at, tag) in places.tagged() {
            let Some(entries) = plane[at / 4 + skip..].first_chunk_mut::<WORDS>() else { continue };
            let new = entry | tag;
            // PERF: a place's first word speaks for all of them; accesses of several words are seldom laid out otherwise.
            let old = entries[0];
            let new = if old >> STAMP_SHIFT == u64::from(stamp) && old != new { merge(old, new) } else { new };
            *entries = [new; WORDS];
        }
    }

    /// No lane of this warp has touched, in this interval, what another one touches now.
    #[inline(always)]
    pub(super) fn lanes_apart(&self, who: &Accessor, places: &Places, span: usize, first: usize, last: usize) -> bool {
        let stamp = who.clock[who.warp];
        if !self.own_near(who, first, last) {
            return true;
        }
        let plane = &self.entries[who.warp][..];
        let mut close = false;
        for (at, tag) in places.tagged() {
            for e in &plane[at / 4..][..span.div_ceil(4)] {
                close |=
                    e >> STAMP_SHIFT == u64::from(stamp) && (e & (LANE | SEVERAL | WIDE) != tag || tag & SEVERAL != 0);
            }
        }
        !close
    }

    /// Whether this warp has made no entry in these words in its current interval.
    #[inline(always)]
    pub(super) fn own_quiet(&self, who: &Accessor, at: &[u32], span: usize, first: usize, last: usize) -> bool {
        let stamp = who.clock[who.warp];
        !self.own_near(who, first, last)
            || Self::older(&self.entries[who.warp], at, span, u64::from(stamp).saturating_sub(1))
    }

    #[inline(always)]
    fn own_near(&self, who: &Accessor, first: usize, last: usize) -> bool {
        let s = self.recent[who.warp].spans[0];
        s.0 == who.clock[who.warp] && s.1 as usize <= last && first <= s.2 as usize
    }

    /// Records rows of sixteen bytes that a matrix instruction accesses.
    #[inline(always)]
    pub(super) fn record_rows(&mut self, who: &Accessor, at: &[u32], first: usize, last: usize) {
        let stamp = who.clock[who.warp];
        self.latest[who.warp] = stamp;
        self.recent[who.warp].add(stamp, first, last);
        let entry = entry(who, stamp) | BYTES | SEVERAL | WIDE;
        let plane = &mut self.entries[who.warp][..];
        for a in at {
            plane[*a as usize / 4..][..4].fill(entry);
        }
    }

    /// Records one or two bytes of a word for each of 32 lanes.
    #[inline(always)]
    pub(super) fn record_pieces(
        &mut self,
        who: &Accessor,
        m: u32,
        at: &[u32; 32],
        bytes: usize,
        first: usize,
        last: usize,
    ) {
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
    pub(super) fn find(
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
    pub(super) fn record(
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

/// Which bytes of a word the range covers.
#[inline(always)]
pub(super) fn byte_mask(at: usize, len: usize, word: usize) -> u64 {
    let low = at.saturating_sub(word * 4).min(4);
    let high = (at + len - word * 4).min(4);
    (0xF << low) & 0xF & (0xF >> (4 - high))
}
