//! Accesses of a word that its cells have no room for.
//!
//! Plain readers, in buffers that are written too: a write must be ordered after every reader, and two cells remember two of them. What
//! all CTAs read and none writes needs no more, and most memory is of that kind: so only words of buffers that a launch has written (this
//! one, or an earlier one or another schedule of the same memory) are kept here. A reader that a later one comes after is dropped, for
//! whoever is ordered after the later is after both. And accesses of bytes beside which another agent, or another interval, has written or
//! read the word's other bytes since.
//! Source: FastTrack's read vectors (Flanagan and Freund, PLDI 2009).
//! Limits: 1,024 accesses of a word and four million of a buffer; what exceeds them is forgotten, so a race may be missed.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

const SHARDS: usize = 16;
const MAX_OF_WORD: usize = 1 << 10;
const MAX_OF_BUFFER: usize = 1 << 22;

/// Such accesses of one buffer, as cells.
#[derive(Debug, Default)]
pub struct Forgotten {
    any: AtomicBool,
    count: AtomicUsize,
    shards: [Mutex<HashMap<usize, Vec<u64>>>; SHARDS],
}

impl Forgotten {
    /// Keeps one; those that `gone` holds for are dropped.
    #[cold]
    #[inline(never)]
    pub fn keep(&self, word: usize, cell: u64, gone: impl Fn(u64) -> bool) {
        self.any.store(true, Relaxed);
        let mut shard = self.shards[word % SHARDS].lock().unwrap_or_else(|e| e.into_inner());
        let cells = shard.entry(word).or_default();
        let before = cells.len();
        cells.retain(|c| !gone(*c));
        if cells.len() < MAX_OF_WORD && self.count.load(Relaxed) < MAX_OF_BUFFER {
            cells.push(cell);
        }
        let after = cells.len();
        self.count.fetch_add(after, Relaxed);
        self.count.fetch_sub(before, Relaxed);
    }

    /// The first of a word that `clashes` holds for.
    #[inline(always)]
    pub fn find(&self, word: usize, clashes: impl Fn(u64) -> bool) -> Option<u64> {
        if !self.any.load(Relaxed) {
            return None;
        }
        self.shards[word % SHARDS]
            .lock()
            .unwrap_or_else(|e| e.into_inner())
            .get(&word)?
            .iter()
            .copied()
            .find(|c| clashes(*c))
    }

    /// All bytes of a word have been written: who is ordered after that is ordered after all of these.
    #[inline(always)]
    pub fn clear(&self, word: usize) {
        if self.any.load(Relaxed)
            && let Some(cells) = self.shards[word % SHARDS].lock().unwrap_or_else(|e| e.into_inner()).remove(&word)
        {
            self.count.fetch_sub(cells.len(), Relaxed);
        }
    }
}
