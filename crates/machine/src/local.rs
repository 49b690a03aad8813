//! Local memory of a warp's threads: word w of all 32 lanes is one row, as hardware interleaves it, so that the usual access
//! (all lanes at one offset) is a row copy. Each lane's word has four bits that say which of its bytes are defined.

use std::collections::HashMap;

use crate::code::Pc;
use crate::registers::Row;

/// The most local memory a thread may have (CUDA's own limit is 512 KiB).
pub const MAX_LOCAL: u32 = 512 << 10;

/// Local memory of one warp.
#[derive(Debug, Default)]
pub struct Local {
    words: Vec<Row>,
    defined: Vec<[u8; 32]>,
    /// Where undefined values that were stored come from.
    origins: HashMap<(usize, usize), Pc>,
    /// Undefined bits of bytes of which some are defined: bit fields that are set one after the other.
    partial: HashMap<(usize, u32), u8>,
}

impl Local {
    /// Bytes of each thread.
    pub fn len(&self) -> u32 {
        4 * self.words.len() as u32
    }

    /// Makes it `bytes` long; new bytes are undefined.
    pub fn resize(&mut self, bytes: u32) {
        if bytes < self.len() && !self.partial.is_empty() {
            self.partial.retain(|(_, at), _| *at < bytes);
        }
        let words = bytes.div_ceil(4) as usize;
        self.words.resize(words, Row([0; 32]));
        self.defined.resize(words, [0; 32]);
    }

    /// Makes `bytes` bytes of some lanes undefined again.
    pub fn renew(&mut self, at: u32, bytes: u32, lanes: u32) {
        let end = at + bytes;
        for d in &mut self.defined[at as usize / 4..end.div_ceil(4) as usize] {
            (0..32).filter(|l| lanes >> l & 1 != 0).for_each(|l| d[l] = 0);
        }
        self.partial.retain(|(lane, b), _| lanes >> lane & 1 == 0 || !(at..end).contains(b));
        self.origins.retain(|(lane, word), _| lanes >> lane & 1 == 0 || !(at..end).contains(&(4 * *word as u32)));
    }

    /// Reads 1, 2, 4 or 8 bytes at an aligned offset within the memory; and whether all were defined.
    #[inline(always)]
    pub fn load(&self, lane: usize, at: u32, bytes: u32) -> (u64, bool) {
        let (word, shift) = (at as usize / 4, at % 4);
        let need = if bytes >= 4 { 15 } else { ((1u8 << bytes) - 1) << shift };
        let low = u64::from(self.words[word].0[lane]) >> (8 * shift);
        let ok = self.defined[word][lane] & need == need;
        match bytes {
            1 => (low & 0xFF, ok),
            2 => (low & 0xFFFF, ok),
            4 => (low, ok),
            _ => (low | u64::from(self.words[word + 1].0[lane]) << 32, ok && self.defined[word + 1][lane] == 15),
        }
    }

    /// Writes 1, 2, 4 or 8 bytes at an aligned offset within the memory.
    #[inline(always)]
    pub fn store(&mut self, lane: usize, at: u32, bytes: u32, value: u64, defined: bool) {
        if bytes == 8 {
            self.store(lane, at, 4, value & 0xFFFF_FFFF, defined);
            self.store(lane, at + 4, 4, value >> 32, defined);
            return;
        }
        let (word, shift) = (at as usize / 4, at % 4);
        let which = if bytes == 4 { 15 } else { ((1u8 << bytes) - 1) << shift };
        let keep = if bytes == 4 { 0 } else { !(((1u32 << (8 * bytes)) - 1) << (8 * shift)) };
        let w = &mut self.words[word].0[lane];
        *w = *w & keep | ((value as u32) << (8 * shift)) & !keep;
        let d = &mut self.defined[word][lane];
        *d = if defined { *d | which } else { *d & !which };
    }

    /// The undefined bits of 1, 2, 4 or 8 bytes.
    pub fn undefined_bits(&self, lane: usize, at: u32, bytes: u32) -> u64 {
        let byte = |n: u32| match self.load(lane, at + n, 1).1 {
            true => 0,
            false => u64::from(self.partial.get(&(lane, at + n)).copied().unwrap_or(0xFF)),
        };
        (0..bytes).fold(0, |a, n| a | byte(n) << (8 * n))
    }

    /// Marks single bits as undefined; the bytes that hold them were just written.
    pub fn undefine(&mut self, lane: usize, at: u32, bits: u64) {
        for n in (0..8).filter(|n| bits >> (8 * n) & 0xFF != 0) {
            let value = self.load(lane, at + n, 1).0;
            self.store(lane, at + n, 1, value, false);
            self.partial.insert((lane, at + n), (bits >> (8 * n)) as u8);
        }
    }

    /// Copies bytes with what is undefined of them, within a lane's memory.
    pub fn copy(&mut self, lane: usize, from: u32, to: u32, bytes: u32) {
        for n in 0..bytes {
            let (value, undefined) = (self.load(lane, from + n, 1).0, self.undefined_bits(lane, from + n, 1));
            self.store(lane, to + n, 1, value, true);
            self.undefine(lane, to + n, undefined);
        }
    }

    /// Remembers where an undefined value that is stored comes from.
    pub fn set_origin(&mut self, lane: usize, at: u32, origin: Pc) {
        self.origins.insert((lane, at as usize / 4), origin);
    }

    /// Where the undefined value at an offset comes from, if it was stored.
    pub fn origin(&self, lane: usize, at: u32) -> Option<Pc> {
        self.origins.get(&(lane, at as usize / 4)).copied()
    }

    /// The row of a word and which lanes have it all defined: the quick way for 4-byte accesses at one offset.
    #[inline(always)]
    pub fn row(&self, at: u32) -> (&[u32; 32], u32) {
        let word = at as usize / 4;
        let d = &self.defined[word];
        let mut mask = 0;
        for (lane, v) in d.iter().enumerate() {
            mask |= u32::from(*v == 15) << lane;
        }
        (&self.words[word].0, mask)
    }

    /// Writes a whole row under a mask, all defined.
    #[inline(always)]
    pub fn store_row(&mut self, at: u32, values: &[u32; 32], mask: u32) {
        let word = at as usize / 4;
        let (w, d) = (&mut self.words[word].0, &mut self.defined[word]);
        for lane in 0..32 {
            if mask >> lane & 1 != 0 {
                w[lane] = values[lane];
                d[lane] = 15;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_words_are_defined_one_by_one() {
        let mut l = Local::default();
        l.resize(16);
        l.store(3, 5, 1, 0xAB, true);
        assert_eq!(l.load(3, 5, 1), (0xAB, true));
        assert_eq!(l.load(3, 4, 2), (0xAB00, false));
        l.store(3, 8, 8, 0x1122_3344_5566_7788, true);
        assert_eq!(l.load(3, 8, 8), (0x1122_3344_5566_7788, true));
        assert!(!l.load(4, 8, 8).1);
        l.store(3, 12, 4, 0, false);
        assert!(!l.load(3, 8, 8).1);
    }

    #[test]
    fn what_some_lanes_had_is_undefined_again_and_the_others_keep_theirs() {
        let mut l = Local::default();
        l.resize(16);
        for lane in [1, 2] {
            l.store(lane, 8, 4, 7, true);
            l.store(lane, 4, 4, 7, true);
            l.undefine(lane, 8, 1);
        }
        l.renew(8, 8, 0b10);
        assert_eq!([1, 2].map(|n| l.undefined_bits(n, 8, 4)), [0xFFFF_FFFF, 1]);
        assert_eq!((l.load(1, 4, 4), l.load(2, 8, 4)), ((7, true), (7, false)));
    }

    #[test]
    fn bits_of_a_byte_are_defined_one_by_one_until_it_is_written_or_gone() {
        let mut l = Local::default();
        l.resize(16);
        l.store(0, 4, 2, 0, true);
        l.undefine(0, 4, 0x8001);
        assert_eq!(l.undefined_bits(0, 4, 4), 0xFFFF_8001);
        l.copy(0, 4, 8, 2);
        assert_eq!(l.undefined_bits(0, 8, 2), 0x8001);
        l.store(0, 8, 1, 0, true);
        assert_eq!(l.undefined_bits(0, 8, 2), 0x8000);
        l.resize(4);
        l.resize(16);
        assert_eq!(l.undefined_bits(0, 4, 2), 0xFFFF);
    }
}
