//! Who read and wrote which word of global memory in this launch: races between CTAs, and between warps of one.
//!
//! Each word has three cells: the last write, the first reader and the latest other one (until the first release of a launch: of
//! another CTA); in buffers that are written, `readers` keeps the others. A cell names an agent (a warp of a
//! CTA), the bytes, whether the access was strong, and a record: the interval and the instruction. Accesses of one CTA are
//! ordered by its vector clocks (see `shared`). A CTA's accesses are ordered before another's if the other has read, by a
//! strong read or an atomic, an address to which the first has released them: by a `.release` store or atomic, or by a strong
//! store or atomic after a fence of at least GPU scope. A barrier hands a fence on to the warps that it joins, as
//! `__threadfence(); __syncthreads(); if (tid == 0) atomicAdd(...)` needs it. The end of a launch orders everything.
//! Source: PTX ISA 9.0, "Memory Consistency Model"; HiRace (arXiv 2401.04701) for cells that forget; FastTrack for clocks.
//!
//! A relaxed or volatile load hands on what was released only with the next fence; `.cta` hands nothing to other CTAs.
//! Limits: atomics acquire without a fence, as the CUDA guide's sum by the last block relies on; strong accesses are no race with each
//! other, but where a reader has seen a later write of the writer's warp that no fence parts from what it reads; buffers
//! over 256 MiB, grids of more than 2^27 CTAs and more than 16 million (warp, interval, instruction)s are not looked at; with
//! several host threads, which of two racing CTAs comes first is as undecided as on hardware, so a finding's counts may differ.

mod readers;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*, fence};
use std::sync::{Arc, Mutex, OnceLock};

use crate::code::Pc;
use crate::memory::Buffer;
use readers::Readers;

/// Larger buffers are not looked at: their cells would take six times as much.
const MAX_BYTES: u64 = 256 << 20;
/// Agents have 27 bits for the CTA.
pub const MAX_CTA: u64 = (1 << 27) - 2;
const CHUNK: usize = 1 << 12;
const CHUNKS: usize = 1 << 12;
/// CTAs whose releases an address remembers.
const MAX_RELEASED: usize = 1 << 16;

const AGENT: u32 = 32;
const STRONG: u64 = 1 << 31;
const MASK: u32 = 27;
const RECORD: u64 = (1 << 27) - 1;

/// Accesses to all buffers of a launch, shared by the host's threads.
#[derive(Debug)]
pub struct GlobalShadow {
    buffers: Vec<OnceLock<Option<Cells>>>,
    /// Whether a launch has written the buffer: the memory's own.
    written: Vec<Arc<AtomicBool>>,
    /// Interval and instruction of each record, in pieces that threads take one by one.
    records: Vec<OnceLock<Box<[AtomicU64]>>>,
    next_chunk: AtomicU32,
    pub releases: Releases,
    /// What would be released if only there were a fence: see [`GlobalShadow::stale`].
    pub unfenced: Releases,
}

#[derive(Debug)]
struct Cells {
    writes: Box<[AtomicU64]>,
    /// Two for each word.
    reads: Box<[AtomicU64]>,
    others: Readers,
}

/// Zeroed pages that cost nothing until they are touched.
fn zeroed(len: usize) -> Box<[AtomicU64]> {
    let words = vec![0u64; len].into_boxed_slice();
    // SAFETY: AtomicU64 has the size, and on 64-bit hosts the alignment, of u64, and zero is a value of both; the box owns the memory.
    #[cfg(target_pointer_width = "64")]
    return unsafe { Box::from_raw(Box::into_raw(words) as *mut [AtomicU64]) };
    #[cfg(not(target_pointer_width = "64"))]
    words.iter().map(|w| AtomicU64::new(*w)).collect()
}

/// An access that a new one is not ordered with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clash {
    pub cta: u64,
    pub warp: usize,
    pub pc: Pc,
    pub write: bool,
    /// Byte offset of the word in the buffer.
    pub at: usize,
}

/// Where the current thread puts records.
#[derive(Debug, Default)]
pub struct RecordSpace {
    next: u32,
    end: u32,
}

/// Who accesses.
#[derive(Debug, Clone, Copy)]
pub struct Agent<'a> {
    pub cta: u64,
    pub warp: usize,
    pub clock: &'a [u32],
    pub known: &'a [Known],
    pub record: u32,
    pub strong: bool,
}

impl Agent<'_> {
    fn number(&self) -> u64 {
        (self.cta << 5 | self.warp as u64) + 1
    }

    /// Whether an interval of another warp is over for this one.
    fn knows(&self, cta: u64, warp: usize, stamp: u32) -> bool {
        let own = cta == self.cta;
        own && (warp == self.warp || self.clock[warp] >= stamp)
            || self.known.iter().any(|k| {
                (k.by == self.warp || self.clock[k.by] >= k.since)
                    && (k.what.everything
                        || k.what.clocks.get(&cta).is_some_and(|c| c.get(warp).is_some_and(|s| *s >= stamp)))
            })
    }
}

impl GlobalShadow {
    /// For these buffers; nothing is allocated before it is needed.
    pub fn new(buffers: &[Buffer]) -> GlobalShadow {
        GlobalShadow::noting(buffers.iter().map(|b| b.written.clone()).collect())
    }

    fn noting(written: Vec<Arc<AtomicBool>>) -> GlobalShadow {
        GlobalShadow {
            buffers: written.iter().map(|_| OnceLock::new()).collect(),
            written,
            records: (0..CHUNKS).map(|_| OnceLock::new()).collect(),
            next_chunk: AtomicU32::new(0),
            releases: Releases::default(),
            unfenced: Releases::default(),
        }
    }

    /// A new record; 0 when there is no room for more.
    pub fn record(&self, space: &mut RecordSpace, stamp: u32, pc: Pc) -> u32 {
        if space.next == space.end {
            let chunk = self.next_chunk.fetch_add(1, Relaxed);
            if chunk as usize >= CHUNKS {
                self.next_chunk.store(CHUNKS as u32, Relaxed);
                return 0;
            }
            let _ = self.records[chunk as usize].set(zeroed(CHUNK));
            // Record 0 is nobody's.
            space.next = chunk * CHUNK as u32 + u32::from(chunk == 0);
            space.end = (chunk + 1) * CHUNK as u32;
        }
        let record = space.next;
        space.next += 1;
        if let Some(chunk) = self.records[record as usize / CHUNK].get() {
            chunk[record as usize % CHUNK].store(u64::from(stamp) << 32 | u64::from(pc), Relaxed);
        }
        // Whoever sees a cell that names the record sees the record.
        fence(Release);
        record
    }

    /// Interval and instruction.
    fn resolve(&self, cell: u64) -> (u32, Pc) {
        fence(Acquire);
        let record = (cell & RECORD) as usize;
        let word = self.records[record / CHUNK].get().map_or(0, |c| c[record % CHUNK].load(Relaxed));
        ((word >> 32) as u32, word as u32)
    }

    #[inline(always)]
    fn cells(&self, slot: usize, bytes: u64) -> Option<&Cells> {
        self.buffers.get(slot)?.get_or_init(|| Self::allocate(bytes)).as_ref()
    }

    #[cold]
    fn allocate(bytes: u64) -> Option<Cells> {
        let words = bytes.div_ceil(4) as usize;
        (bytes <= MAX_BYTES).then(|| Cells {
            writes: zeroed(words),
            reads: zeroed(2 * words),
            others: Readers::default(),
        })
    }

    /// Whether another agent's cell is no conflict.
    #[inline(always)]
    fn harmless(&self, cell: u64, mask: u64, me: &Agent) -> bool {
        cell == 0
            || cell >> AGENT == me.number()
            || cell >> MASK & 15 & mask == 0
            || cell & STRONG != 0 && me.strong
            || self.ordered(cell, me)
    }

    #[inline(never)]
    fn ordered(&self, cell: u64, me: &Agent) -> bool {
        let agent = (cell >> AGENT) - 1;
        let (stamp, _) = self.resolve(cell);
        me.knows(agent >> 5, (agent & 31) as usize, stamp)
    }

    #[cold]
    fn clash(&self, cell: u64, word: usize, write: bool) -> Clash {
        let agent = (cell >> AGENT) - 1;
        Clash { cta: agent >> 5, warp: (agent & 31) as usize, pc: self.resolve(cell).1, write, at: 4 * word }
    }

    /// A read of a range within the buffer.
    #[inline(always)]
    pub fn read(&self, slot: usize, bytes: u64, at: usize, len: usize, me: &Agent) -> Option<Clash> {
        let cells = self.cells(slot, bytes)?;
        let base = me.number() << AGENT | u64::from(me.record) | if me.strong { STRONG } else { 0 };
        let (first, last) = (at / 4, (at + len).div_ceil(4));
        let mut found = None;
        let released = self.releases.any.load(Relaxed);
        let written = self.written[slot].load(Relaxed);
        let whole = at.is_multiple_of(4) && len.is_multiple_of(4);
        for word in first..last {
            let mask = if whole { 15 } else { byte_mask(at, len, word) };
            let w = cells.writes[word].load(Relaxed);
            if !self.harmless(w, mask, me) && found.is_none() {
                found = Some(self.clash(w, word, true));
            }
            let new = base | mask << MASK;
            // The first reader keeps its cell: without releases, a race with it is a race with the reader that the other one forgot.
            let (one, other) = (&cells.reads[2 * word], &cells.reads[2 * word + 1]);
            let (first, last) = (one.load(Relaxed), other.load(Relaxed));
            if first == 0 || first >> AGENT == new >> AGENT {
                one.store(merge(first, new), Relaxed);
            } else if released || written || !settled(first, last, mask) {
                if written && last & !RECORD != 0 && last & STRONG == 0 && last >> AGENT != new >> AGENT {
                    self.keep(cells, word, last, me);
                }
                other.store(merge(last, new), Relaxed);
            }
        }
        found
    }

    /// A reader gives its cell to `me`.
    #[cold]
    #[inline(never)]
    fn keep(&self, cells: &Cells, word: usize, cell: u64, me: &Agent) {
        let over = |c: u64| c >> AGENT == me.number() && c >> MASK & 15 == 15 || self.ordered(c, me);
        if !over(cell) {
            cells.others.keep(word, cell, over);
        }
    }

    /// A strong read of what a strong write of another CTA left, where the reader has since seen a later write of that CTA at another
    /// address: data and its flag, or a partial sum and its ticket, but no fence between the two writes. What is read may be older.
    #[cold]
    pub fn stale(&self, slot: usize, bytes: u64, at: usize, len: usize, me: &Agent, seen: &[Known]) -> Option<Clash> {
        let cells = self.cells(slot, bytes)?;
        let base = crate::memory::address_of(slot as u32);
        (at / 4..(at + len).div_ceil(4)).find_map(|word| {
            let cell = cells.writes[word].load(Relaxed);
            let other = cell != 0 && cell & STRONG != 0 && cell >> MASK & 15 & byte_mask(at, len, word) != 0;
            let cta = (cell >> AGENT).wrapping_sub(1) >> 5;
            if !other || cta == me.cta || self.ordered(cell, me) {
                return None;
            }
            let here = granule(base + 4 * word as u64);
            let warp = (((cell >> AGENT) - 1) & 31) as usize;
            let stamp = self.resolve(cell).0;
            let told = seen
                .iter()
                .filter(|k| k.address != here && (k.by == me.warp || me.clock[k.by] >= k.since))
                .any(|k| k.what.of(cta).is_some_and(|c| c.get(warp).is_some_and(|s| *s >= stamp)));
            told.then(|| self.clash(cell, word, true))
        })
    }

    /// What a write of a range would clash with: writes, then reads.
    #[inline(always)]
    pub fn check_write(
        &self,
        slot: usize,
        bytes: u64,
        at: usize,
        len: usize,
        me: &Agent,
        reads_only: bool,
    ) -> Option<Clash> {
        let cells = self.cells(slot, bytes)?;
        for word in at / 4..(at + len).div_ceil(4) {
            let mask = byte_mask(at, len, word);
            let w = cells.writes[word].load(Relaxed);
            if !reads_only && !self.harmless(w, mask, me) {
                return Some(self.clash(w, word, true));
            }
            for n in 0..2 {
                let r = cells.reads[2 * word + n].load(Relaxed);
                if !self.harmless(r, mask, me) {
                    return Some(self.clash(r, word, false));
                }
            }
            if let Some(r) = cells.others.find(word, |r| !self.harmless(r, mask, me)) {
                return Some(self.clash(r, word, false));
            }
        }
        None
    }

    /// Records a write of a range within the buffer.
    #[inline(always)]
    pub fn write(&self, slot: usize, bytes: u64, at: usize, len: usize, me: &Agent) {
        let Some(cells) = self.cells(slot, bytes) else { return };
        if !self.written[slot].load(Relaxed) {
            self.written[slot].store(true, Relaxed);
        }
        let base = me.number() << AGENT | u64::from(me.record) | if me.strong { STRONG } else { 0 };
        for word in at / 4..(at + len).div_ceil(4) {
            let mask = byte_mask(at, len, word);
            let new = base | mask << MASK;
            if mask == 15 {
                cells.others.clear(word);
            }
            let cell = &cells.writes[word];
            cell.store(merge(cell.load(Relaxed), new), Relaxed);
        }
    }
}

/// Whether readers of two CTAs are there, with all bytes of `mask`: while nobody has released anything, no CTA is ordered with both.
///
/// PERF: what all CTAs read is written by none of them then, and host threads need not take its cells from each other.
#[inline(always)]
fn settled(first: u64, last: u64, mask: u64) -> bool {
    let cta = |cell: u64| ((cell >> AGENT) - 1) >> 5;
    last != 0 && first & last & mask << MASK == mask << MASK && (first | last) & STRONG == 0 && cta(first) != cta(last)
}

/// Accesses by one record add up their bytes; a later one takes an earlier one's place.
#[inline(always)]
fn merge(old: u64, new: u64) -> u64 {
    const BYTES: u64 = 15 << MASK;
    if (old ^ new) & !BYTES == 0 { old | new } else { new }
}

/// Which bytes of a word the range covers.
#[inline(always)]
fn byte_mask(at: usize, len: usize, word: usize) -> u64 {
    let low = at.saturating_sub(word * 4).min(4);
    let high = (at + len - word * 4).min(4);
    (0xF << low) & 0xF & (0xF >> (4 - high))
}

/// What was released at an address: for each CTA, the intervals of its warps that were over.
#[derive(Debug, Clone, Default)]
pub struct Released {
    clocks: HashMap<u64, Arc<[u32]>>,
    /// Too many CTAs to tell apart: taken as all.
    everything: bool,
}

impl Released {
    /// The released intervals of a CTA's warps.
    pub fn of(&self, cta: u64) -> Option<&[u32]> {
        self.clocks.get(&cta).map(|c| &c[..])
    }

    fn join(&mut self, cta: u64, clock: &Arc<[u32]>) {
        if self.clocks.len() >= MAX_RELEASED {
            self.everything = true;
            return;
        }
        match self.clocks.get_mut(&cta) {
            Some(mine) if Arc::ptr_eq(mine, clock) => {}
            Some(mine) => {
                *mine = (0..mine.len().max(clock.len()))
                    .map(|n| mine.get(n).copied().unwrap_or(0).max(clock.get(n).copied().unwrap_or(0)))
                    .collect();
            }
            None => {
                self.clocks.insert(cta, clock.clone());
            }
        }
    }
}

/// Something that a warp of this CTA has acquired, and in which of its intervals.
#[derive(Debug, Clone)]
pub struct Known {
    what: Arc<Released>,
    address: u64,
    by: usize,
    since: u32,
}

/// Things acquired that a CTA keeps apart.
const MAX_KNOWN: usize = 64;

/// Releases by address, over all CTAs of the launch.
#[derive(Debug, Default)]
pub struct Releases {
    any: AtomicBool,
    by_address: Mutex<HashMap<u64, Arc<Released>>>,
}

/// Flags are told apart by words of eight bytes.
fn granule(address: u64) -> u64 {
    address & !7
}

impl Releases {
    /// A strong write or an atomic that releases `clock`, and what the warp knows of other CTAs.
    pub fn publish(&self, address: u64, me: &Agent, clock: Vec<u32>) {
        self.any.store(true, Relaxed);
        let mut all = self.by_address.lock().unwrap_or_else(|e| e.into_inner());
        let released = Arc::make_mut(all.entry(granule(address)).or_default());
        for k in me.known.iter().filter(|k| k.by == me.warp || me.clock[k.by] >= k.since) {
            released.everything |= k.what.everything;
            for (cta, clock) in &k.what.clocks {
                released.join(*cta, clock);
            }
        }
        released.join(me.cta, &Arc::from(clock));
        drop(all);
        // The value that says so is written after this.
        fence(SeqCst);
    }

    /// A strong read or an atomic: what was released at the address so far.
    pub fn acquire(&self, address: u64, known: &mut Vec<Known>, warp: usize, clock: &[u32]) -> Option<Arc<Released>> {
        if !self.any.load(Relaxed) {
            return None;
        }
        let what = self.by_address.lock().unwrap_or_else(|e| e.into_inner()).get(&granule(address))?.clone();
        let address = granule(address);
        let since = clock[warp];
        let room = known.len() < MAX_KNOWN;
        let mut mine = known.iter_mut().filter(|k| k.address == address && k.by == warp);
        match (mine.next(), mine.next()) {
            // What is newer holds what is older. Of several intervals the first and the latest are kept apart; in between, the
            // earlier one is taken to have known it already.
            (Some(k), None) | (_, Some(k)) if Arc::ptr_eq(&k.what, &what) => {}
            (Some(k), None) if k.since == since => k.what = what.clone(),
            (_, Some(k)) => k.what = what.clone(),
            _ if !room => {
                // Too much to tell apart: nothing of other CTAs is a race any more.
                let all = Released { everything: true, ..Released::default() };
                known[0] = Known { what: Arc::new(all), address, by: warp, since: 0 };
            }
            _ => known.push(Known { what: what.clone(), address, by: warp, since }),
        }
        Some(what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent<'a>(
        shadow: &GlobalShadow,
        cta: u64,
        warp: usize,
        clock: &'a [u32],
        known: &'a [Known],
        pc: Pc,
    ) -> Agent<'a> {
        let record = shadow.record(&mut RecordSpace::default(), clock[warp], pc);
        Agent { cta, warp, clock, known, record, strong: false }
    }

    #[test]
    fn accesses_of_ctas_are_ordered_by_release_and_acquire_only() {
        let shadow = GlobalShadow::noting(vec![Arc::default()]);
        let writer = agent(&shadow, 0, 0, &[7], &[], 10);
        shadow.write(0, 64, 8, 4, &writer);
        let clock = [3, 0];
        let reader = agent(&shadow, 1, 0, &clock, &[], 20);
        let clash = shadow.read(0, 64, 8, 4, &reader).expect("not ordered");
        assert_eq!((clash.cta, clash.pc, clash.write, clash.at), (0, 10, true, 8));
        assert_eq!(shadow.read(0, 64, 12, 4, &reader), None, "another word");
        shadow.releases.publish(0x1000, &writer, vec![7]);
        let mut known = Vec::new();
        assert!(shadow.releases.acquire(0x2000, &mut known, 0, &clock).is_none());
        assert!(shadow.releases.acquire(0x1004, &mut known, 0, &clock).is_some());
        let reader = agent(&shadow, 1, 0, &clock, &known, 20);
        assert_eq!(shadow.read(0, 64, 8, 4, &reader), None);
        // Another warp of the CTA knows it after a barrier only.
        let clock = [3, 4];
        assert!(shadow.read(0, 64, 8, 4, &agent(&shadow, 1, 1, &[2, 4], &known, 30)).is_some());
        assert_eq!(shadow.read(0, 64, 8, 4, &agent(&shadow, 1, 1, &clock, &known, 30)), None);
    }

    #[test]
    fn bytes_beside_each_other_and_strong_accesses_do_not_clash() {
        let shadow = GlobalShadow::noting(vec![Arc::default()]);
        let a = agent(&shadow, 0, 0, &[1], &[], 1);
        let b = agent(&shadow, 1, 0, &[1], &[], 2);
        shadow.write(0, 64, 0, 2, &a);
        assert_eq!(shadow.check_write(0, 64, 2, 2, &b, false), None);
        assert!(shadow.check_write(0, 64, 1, 1, &b, false).is_some());
        let strong = |x: Agent<'static>| Agent { strong: true, ..x };
        shadow.write(0, 64, 32, 4, &strong(a));
        assert_eq!(shadow.check_write(0, 64, 32, 4, &strong(b), false), None);
        assert!(shadow.check_write(0, 64, 32, 4, &b, false).is_some());
    }

    #[test]
    fn a_write_clashes_with_the_first_reader_and_another() {
        // Without a release two CTAs are enough, whatever reads later; after one it is the latest reader.
        for (released, kept) in [(false, 1), (true, 2)] {
            let shadow = GlobalShadow::noting(vec![Arc::default()]);
            if released {
                shadow.releases.publish(0x1000, &agent(&shadow, 9, 0, &[1], &[], 0), vec![1]);
            }
            for cta in 0..3 {
                shadow.read(0, 64, 0, 4, &agent(&shadow, cta, 0, &[1], &[], cta as u32));
            }
            for (cta, other) in [(0, kept), (kept, 0), (5, 0)] {
                let clash = shadow.check_write(0, 64, 0, 4, &agent(&shadow, cta, 0, &[2], &[], 9), true);
                assert_eq!(clash.map(|c| (c.cta, c.write)), Some((other, false)));
            }
        }
    }

    #[test]
    fn readers_of_what_is_written_are_all_kept() {
        // Six CTAs read a word; one that has acquired from all but CTA n writes it. `written`: by another word's write, or before this launch.
        for n in 0..6 {
            let shadow = GlobalShadow::noting(vec![Arc::default()]);
            shadow.write(0, 64, 32, 4, &agent(&shadow, 7, 0, &[1], &[], 1));
            for cta in 0..6 {
                let reader = agent(&shadow, cta, 0, &[1], &[], cta as u32);
                assert_eq!(shadow.read(0, 64, 0, 4, &reader), None);
                if cta != n {
                    shadow.releases.publish(0x1000, &reader, vec![1]);
                }
            }
            let (clock, mut known) = ([5], Vec::new());
            shadow.releases.acquire(0x1000, &mut known, 0, &clock);
            let writer = agent(&shadow, 9, 0, &clock, &known, 20);
            let clash = shadow.check_write(0, 64, 0, 4, &writer, false).expect("one is not ordered");
            assert_eq!((clash.cta, clash.pc, clash.write), (n, n as u32, false));
            // Once that one has released too, all is well; and after the write nobody need be remembered.
            shadow.releases.publish(0x1000, &agent(&shadow, n, 0, &[1], &[], 0), vec![1]);
            shadow.releases.acquire(0x1000, &mut known, 0, &clock);
            let writer = agent(&shadow, 9, 0, &clock, &known, 20);
            assert_eq!(shadow.check_write(0, 64, 0, 4, &writer, false), None);
            shadow.write(0, 64, 0, 4, &writer);
            assert_eq!(shadow.cells(0, 64).and_then(|c| c.others.find(0, |_| true)), None);
        }
    }
}
