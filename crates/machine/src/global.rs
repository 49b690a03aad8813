//! Who read and wrote which word of global memory in this launch: races between CTAs, and between warps of one.
//!
//! Each word has three cells: the last write, the first reader and the latest other one (until the first release of a launch: of
//! another CTA); in buffers that are written, `forgotten` keeps the others, and those of single bytes. A cell names an agent (a warp of a
//! CTA), the bytes, whether the access was strong, and a record: the interval and the instruction. Accesses of one CTA are
//! ordered by its vector clocks (see `shared`). A CTA's accesses are ordered before another's if the other has read, by a
//! strong read or an atomic, an address to which the first has released them: by a `.release` store or atomic, or by a strong
//! store or atomic after a fence of at least GPU scope. A barrier hands a fence on to the warps that it joins, as
//! `__threadfence(); __syncthreads(); if (tid == 0) atomicAdd(...)` needs it. The end of a launch orders everything.
//! Source: PTX ISA 9.0, "Memory Consistency Model"; HiRace (arXiv 2401.04701) for cells that forget; FastTrack for clocks.
//!
//! A relaxed or volatile load hands on what was released only with the next fence; `.cta` hands nothing to other CTAs.
//! Limits: atomics acquire without a fence, as the CUDA guide's sum by the last block relies on; strong accesses are no race with each
//! other, but where a reader has seen a later write of the writer's warp that no fence parts from what it reads, and knows of no
//! earlier strong write of that CTA there (whoever does has to reckon with what that left, and waits for more); buffers
//! over 256 MiB, grids of more than 2^27 CTAs and more than 16 million (warp, interval, instruction)s are not looked at; with
//! several host threads, which of two racing CTAs comes first is as undecided as on hardware, so a finding's counts may differ.
//!
//! Host threads lose no access to each other: each one marks its own before it looks for others', with a full fence in between, so of
//! two that come at the same moment at least one sees the other; and a cell is taken by an atomic exchange only.

mod forgotten;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*, fence};
use std::sync::{Arc, Mutex, OnceLock};

use crate::code::Pc;
use crate::memory::Buffer;
use forgotten::Forgotten;

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
const BYTES: u64 = 15 << MASK;
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
    other_reads: Forgotten,
    other_writes: Forgotten,
    /// Strong writes that the same CTA has followed by another.
    before_last: Forgotten,
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
            other_reads: Forgotten::default(),
            other_writes: Forgotten::default(),
            before_last: Forgotten::default(),
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

    /// A range within the buffer is about to be read: notes it. [`GlobalShadow::last_write`] comes after it.
    #[inline(always)]
    pub fn mark_read(&self, slot: usize, bytes: u64, at: usize, len: usize, me: &Agent) {
        let Some(cells) = self.cells(slot, bytes) else { return };
        let base = me.number() << AGENT | u64::from(me.record) | if me.strong { STRONG } else { 0 };
        let released = self.releases.any.load(Relaxed);
        let written = self.written[slot].load(Relaxed);
        let whole = at.is_multiple_of(4) && len.is_multiple_of(4);
        for word in at / 4..(at + len).div_ceil(4) {
            let mask = if whole { 15 } else { byte_mask(at, len, word) };
            let new = base | mask << MASK;
            // The first reader keeps its cell: without releases, a race with it is a race with the reader that the other one forgot.
            let (one, other) = (&cells.reads[2 * word], &cells.reads[2 * word + 1]);
            let mut first = one.load(Relaxed);
            if first == 0 {
                match one.compare_exchange(0, new, Relaxed, Relaxed) {
                    Ok(_) => continue,
                    Err(now) => first = now,
                }
            }
            let last = other.load(Relaxed);
            if first >> AGENT == new >> AGENT {
                // Nobody else changes it now.
                one.store(self.joined(&cells.other_reads, word, first, new), Relaxed);
            } else if released || written || !settled(first, last, mask) {
                self.replace(cells, word, last, new, written, me);
            }
        }
    }

    /// Takes the second reader's cell. What was there is kept before it goes, so that a writer finds it here or there.
    #[inline(always)]
    fn replace(&self, cells: &Cells, word: usize, mut last: u64, new: u64, written: bool, me: &Agent) {
        let other = &cells.reads[2 * word + 1];
        loop {
            let own = last >> AGENT == new >> AGENT;
            if written && last & !RECORD != 0 && last & STRONG == 0 && !own {
                self.keep(cells, word, last, me);
            }
            let cell = if own { self.joined(&cells.other_reads, word, last, new) } else { new };
            match other.compare_exchange_weak(last, cell, SeqCst, Relaxed) {
                Ok(_) => return,
                Err(now) => last = now,
            }
        }
    }

    /// What an agent's next access of a word makes of its cell: bytes that only the earlier one touched are not forgotten.
    #[inline(always)]
    fn joined(&self, forgotten: &Forgotten, word: usize, old: u64, new: u64) -> u64 {
        if old & BYTES & !new == 0 {
            new
        } else if (old ^ new) & !BYTES == 0 {
            old | new
        } else {
            self.join_bytes(forgotten, word, old, new)
        }
    }

    #[cold]
    #[inline(never)]
    fn join_bytes(&self, forgotten: &Forgotten, word: usize, old: u64, new: u64) -> u64 {
        if (old ^ new) & STRONG == 0 && self.resolve(old).0 == self.resolve(new).0 {
            return new | old & BYTES;
        }
        self.set_aside(forgotten, word, old);
        new
    }

    /// Keeps an access of some bytes; what the same agent did before to no more bytes need not be.
    #[cold]
    #[inline(never)]
    fn set_aside(&self, forgotten: &Forgotten, word: usize, cell: u64) {
        forgotten.keep(word, cell, |c| c >> AGENT == cell >> AGENT && c & BYTES & !cell == 0);
    }

    /// A conflict with an access that the word's cells have forgotten.
    #[inline(always)]
    fn forgotten(&self, kept: &Forgotten, word: usize, mask: u64, write: bool, me: &Agent) -> Option<Clash> {
        kept.find(word, |c| !self.harmless(c, mask, me)).map(|c| self.clash(c, word, write))
    }

    /// The write that a read of this range, marked before and with a [`SeqCst`] fence in between, is not ordered with.
    #[inline(always)]
    pub fn last_write(&self, slot: usize, bytes: u64, at: usize, len: usize, me: &Agent) -> Option<Clash> {
        let cells = self.cells(slot, bytes)?;
        for word in at / 4..(at + len).div_ceil(4) {
            let w = cells.writes[word].load(Relaxed);
            let mask = byte_mask(at, len, word);
            if !self.harmless(w, mask, me) {
                return Some(self.clash(w, word, true));
            }
            let found = self.forgotten(&cells.other_writes, word, mask, true, me);
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// A reader gives its cell to `me`.
    #[cold]
    #[inline(never)]
    fn keep(&self, cells: &Cells, word: usize, cell: u64, me: &Agent) {
        let over = |c: u64| c >> AGENT == me.number() && c >> MASK & 15 == 15 || self.ordered(c, me);
        if !over(cell) {
            cells.other_reads.keep(word, cell, over);
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
            let prepared = || cells.before_last.find(word, |c| self.ordered(c, me)).is_some();
            (told && !prepared()).then(|| self.clash(cell, word, true))
        })
    }

    /// A range within the buffer is about to be written: notes it; the write that came before, if nothing orders the two.
    #[inline(always)]
    pub fn mark_write(&self, slot: usize, bytes: u64, at: usize, len: usize, me: &Agent) -> Option<Clash> {
        let cells = self.cells(slot, bytes)?;
        if !self.written[slot].load(Relaxed) {
            self.written[slot].store(true, Relaxed);
        }
        let base = me.number() << AGENT | u64::from(me.record) | if me.strong { STRONG } else { 0 };
        let mut found = None;
        for word in at / 4..(at + len).div_ceil(4) {
            let mask = byte_mask(at, len, word);
            let (cell, new) = (&cells.writes[word], base | mask << MASK);
            let mut old = cell.load(Relaxed);
            loop {
                let own = old >> AGENT == new >> AGENT;
                if !own && old & BYTES & !new != 0 {
                    self.set_aside(&cells.other_writes, word, old);
                }
                let next = if own { self.joined(&cells.other_writes, word, old, new) } else { new };
                match cell.compare_exchange_weak(old, next, SeqCst, Relaxed) {
                    Ok(_) => break,
                    Err(now) => old = now,
                }
            }
            if me.strong && old & STRONG != 0 && mask == 15 && (old >> AGENT).wrapping_sub(1) >> 5 == me.cta {
                cells.before_last.keep(word, old, |_| true);
            }
            if found.is_none() && !self.harmless(old, mask, me) {
                found = Some(self.clash(old, word, true));
            }
            found = found.or_else(|| self.forgotten(&cells.other_writes, word, mask, true, me));
            if mask == 15 {
                cells.other_writes.clear(word);
            }
        }
        found
    }

    /// The reader that a write of this range, marked before and with a [`SeqCst`] fence in between, is not ordered with.
    #[inline(always)]
    pub fn readers(&self, slot: usize, bytes: u64, at: usize, len: usize, me: &Agent) -> Option<Clash> {
        let cells = self.cells(slot, bytes)?;
        let mut found = None;
        for word in at / 4..(at + len).div_ceil(4) {
            let mask = byte_mask(at, len, word);
            for n in 0..2 {
                let r = cells.reads[2 * word + n].load(Relaxed);
                if found.is_none() && !self.harmless(r, mask, me) {
                    found = Some(self.clash(r, word, false));
                }
            }
            found = found.or_else(|| self.forgotten(&cells.other_reads, word, mask, false, me));
            if mask == 15 {
                cells.other_reads.clear(word);
            }
        }
        found
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
        let what = self.so_far(address)?;
        self.learn(address, &what, known, warp, clock);
        Some(what)
    }

    /// The same, for who does not acquire it yet.
    pub fn so_far(&self, address: u64) -> Option<Arc<Released>> {
        if !self.any.load(Relaxed) {
            return None;
        }
        self.by_address.lock().unwrap_or_else(|e| e.into_inner()).get(&granule(address)).cloned()
    }

    /// A warp acquires what it has read of.
    pub fn learn(&self, address: u64, what: &Arc<Released>, known: &mut Vec<Known>, warp: usize, clock: &[u32]) {
        let address = granule(address);
        let since = clock[warp];
        let room = known.len() < MAX_KNOWN;
        let mut mine = known.iter_mut().filter(|k| k.address == address && k.by == warp);
        match (mine.next(), mine.next()) {
            // What is newer holds what is older. Of several intervals the first and the latest are kept apart; in between, the
            // earlier one is taken to have known it already.
            (Some(k), None) | (_, Some(k)) if Arc::ptr_eq(&k.what, what) => {}
            (Some(k), None) if k.since == since => k.what = what.clone(),
            (_, Some(k)) => k.what = what.clone(),
            _ if !room => {
                // Too much to tell apart: nothing of other CTAs is a race any more.
                let all = Released { everything: true, ..Released::default() };
                known[0] = Known { what: Arc::new(all), address, by: warp, since: 0 };
            }
            _ => known.push(Known { what: what.clone(), address, by: warp, since }),
        }
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

    fn read(shadow: &GlobalShadow, at: usize, len: usize, me: &Agent) -> Option<Clash> {
        shadow.mark_read(0, 64, at, len, me);
        fence(SeqCst);
        shadow.last_write(0, 64, at, len, me)
    }

    fn write(shadow: &GlobalShadow, at: usize, len: usize, me: &Agent) -> Option<Clash> {
        let written = shadow.mark_write(0, 64, at, len, me);
        fence(SeqCst);
        let read = shadow.readers(0, 64, at, len, me);
        written.or(read)
    }

    #[test]
    fn accesses_of_ctas_are_ordered_by_release_and_acquire_only() {
        let shadow = GlobalShadow::noting(vec![Arc::default()]);
        let writer = agent(&shadow, 0, 0, &[7], &[], 10);
        assert_eq!(write(&shadow, 8, 4, &writer), None);
        let clock = [3, 0];
        let reader = agent(&shadow, 1, 0, &clock, &[], 20);
        let clash = read(&shadow, 8, 4, &reader).expect("not ordered");
        assert_eq!((clash.cta, clash.pc, clash.write, clash.at), (0, 10, true, 8));
        assert_eq!(read(&shadow, 12, 4, &reader), None, "another word");
        shadow.releases.publish(0x1000, &writer, vec![7]);
        let mut known = Vec::new();
        assert!(shadow.releases.acquire(0x2000, &mut known, 0, &clock).is_none());
        assert!(shadow.releases.acquire(0x1004, &mut known, 0, &clock).is_some());
        let reader = agent(&shadow, 1, 0, &clock, &known, 20);
        assert_eq!(read(&shadow, 8, 4, &reader), None);
        // Another warp of the CTA knows it after a barrier only.
        let clock = [3, 4];
        assert!(read(&shadow, 8, 4, &agent(&shadow, 1, 1, &[2, 4], &known, 30)).is_some());
        assert_eq!(read(&shadow, 8, 4, &agent(&shadow, 1, 1, &clock, &known, 30)), None);
    }

    #[test]
    fn bytes_beside_each_other_and_strong_accesses_do_not_clash() {
        let shadow = GlobalShadow::noting(vec![Arc::default()]);
        let a = agent(&shadow, 0, 0, &[1], &[], 1);
        let b = agent(&shadow, 1, 0, &[1], &[], 2);
        assert_eq!(write(&shadow, 0, 2, &a), None);
        assert_eq!(write(&shadow, 2, 2, &b), None);
        // Who wrote a byte is known still when others have written the rest of its word, or read it.
        let c = agent(&shadow, 2, 0, &[1], &[], 3);
        for (at, cta) in [(0, 0), (1, 0), (2, 1)] {
            let clash = read(&shadow, at, 1, &c).expect("not ordered");
            assert_eq!((clash.cta, clash.write), (cta, true), "byte {at}");
        }
        let clash = write(&shadow, 1, 1, &b).expect("not ordered");
        assert_eq!((clash.cta, clash.write), (0, true));
        // Bytes that one warp read one after the other, in one interval and in two.
        for (at, clock) in [(20, [1]), (21, [1]), (22, [2])] {
            assert_eq!(read(&shadow, at, 1, &agent(&shadow, 0, 0, &clock, &[], 4)), None);
        }
        for at in 20..23 {
            let clash = shadow.readers(0, 64, at, 1, &b).expect("not ordered");
            assert_eq!((clash.cta, clash.write), (0, false), "byte {at}");
        }
        assert_eq!(shadow.readers(0, 64, 23, 1, &b), None);
        let strong = |x: Agent<'static>| Agent { strong: true, ..x };
        assert_eq!(write(&shadow, 32, 4, &strong(a)), None);
        assert_eq!(write(&shadow, 32, 4, &strong(b)), None);
        assert!(write(&shadow, 32, 4, &c).is_some());
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
                read(&shadow, 0, 4, &agent(&shadow, cta, 0, &[1], &[], cta as u32));
            }
            for (cta, other) in [(0, kept), (kept, 0), (5, 0)] {
                let clash = shadow.readers(0, 64, 0, 4, &agent(&shadow, cta, 0, &[2], &[], 9));
                assert_eq!(clash.map(|c| (c.cta, c.write)), Some((other, false)));
            }
        }
    }

    #[test]
    fn readers_of_what_is_written_are_all_kept() {
        // Six CTAs read a word; one that has acquired from all but CTA n (6: from all) writes it. Another word is written first.
        for n in 0..7 {
            let shadow = GlobalShadow::noting(vec![Arc::default()]);
            assert_eq!(write(&shadow, 32, 4, &agent(&shadow, 7, 0, &[1], &[], 1)), None);
            for cta in 0..6 {
                let reader = agent(&shadow, cta, 0, &[1], &[], cta as u32);
                assert_eq!(read(&shadow, 0, 4, &reader), None);
                if cta != n {
                    shadow.releases.publish(0x1000, &reader, vec![1]);
                }
            }
            let (clock, mut known) = ([5], Vec::new());
            shadow.releases.acquire(0x1000, &mut known, 0, &clock);
            let clash = write(&shadow, 0, 4, &agent(&shadow, 9, 0, &clock, &known, 20));
            assert_eq!(clash.map(|c| (c.cta, c.pc, c.write)), (n < 6).then_some((n, n as u32, false)));
            // After the write nobody need be remembered.
            assert_eq!(shadow.cells(0, 64).and_then(|c| c.other_reads.find(0, |_| true)), None);
        }
    }

    #[test]
    fn host_threads_lose_no_access_to_each_other() {
        const THREADS: u64 = 4;
        let meet = std::sync::Barrier::new(THREADS as usize);
        for _ in 0..200 {
            // All read one word of a buffer that is written: each is found. All write another: all but the first see one before them.
            let shadow = GlobalShadow::noting(vec![Arc::new(true.into())]);
            let late = std::sync::atomic::AtomicUsize::new(0);
            // Two at a time, one that reads and one that writes: at least one sees the other.
            let met: Vec<AtomicBool> = (0..2).map(|_| AtomicBool::default()).collect();
            std::thread::scope(|s| {
                for cta in 0..THREADS {
                    let (shadow, meet, late, met) = (&shadow, &meet, &late, &met);
                    s.spawn(move || {
                        let me = agent(shadow, cta, 0, &[1], &[], cta as u32);
                        meet.wait();
                        assert_eq!(read(shadow, 0, 4, &me), None);
                        meet.wait();
                        late.fetch_add(usize::from(write(shadow, 8, 4, &me).is_some()), Relaxed);
                        meet.wait();
                        let (word, pair) = (16 + 4 * (cta as usize / 2), cta as usize / 2);
                        let clash = if cta % 2 == 0 { read(shadow, word, 4, &me) } else { write(shadow, word, 4, &me) };
                        met[pair].fetch_or(clash.is_some(), Relaxed);
                    });
                }
            });
            assert_eq!(late.into_inner(), THREADS as usize - 1);
            assert!(met.iter().all(|m| m.load(Relaxed)), "{met:?}");
            let cells = shadow.cells(0, 64).expect("of this buffer");
            for cta in 0..THREADS {
                let of = |cell: u64| cell >> AGENT == (cta << 5) + 1;
                let kept = of(cells.reads[0].load(Relaxed)) || of(cells.reads[1].load(Relaxed));
                assert!(kept || cells.other_reads.find(0, of).is_some(), "CTA {cta} read the word and is forgotten");
            }
        }
    }
}
