//! The register file of a warp: rows of 32 lanes, with a mask of undefined lanes and the origin of what is undefined.
//!
//! Invariants, which decoding keeps: every row index of an instruction lies within its frame's window; a 64-bit operand
//! names the first of two rows; a predicate is a mask in the first word of its row; 8- and 16-bit values are
//! zero-extended. A row's poison bit says that the lane's value is undefined; its origin is where it was first read.

use std::collections::HashMap;

use crate::code::{Pc, RowId};

/// The lanes of one 32-bit register.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub struct Row(pub [u32; 32]);

/// The origin of registers that were never written: the instruction that first uses them.
pub const NEVER_WRITTEN: Pc = Pc::MAX;

/// Rows of all frames of a warp; one frame's window is current.
#[derive(Debug)]
pub struct Registers {
    rows: Vec<Row>,
    poison: Vec<u32>,
    origin: Vec<Pc>,
    base: usize,
    /// By row: lanes of which only some bits are undefined. Kept for few rows; absent: all bits of an undefined lane are.
    details: HashMap<usize, Detail>,
}

/// Which bits of a row's undefined lanes are undefined.
#[derive(Debug, Clone)]
pub struct Detail {
    pub bits: [u64; 32],
    /// Lanes whose value is an unchanged copy of memory of which neighbouring bytes were defined: padding of a structure.
    pub copied: u32,
}

impl Registers {
    /// No frames yet.
    pub fn new() -> Registers {
        Registers { rows: Vec::new(), poison: Vec::new(), origin: Vec::new(), base: 0, details: HashMap::new() }
    }

    /// Rows in use.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Adds a window of `rows` rows, all undefined, and makes it current.
    pub fn push_window(&mut self, rows: usize) -> usize {
        let base = self.rows.len();
        self.rows.resize(base + rows, Row([0; 32]));
        self.poison.resize(base + rows, u32::MAX);
        self.origin.resize(base + rows, NEVER_WRITTEN);
        self.base = base;
        base
    }

    /// Makes lanes of the current window's first `rows` rows undefined again, as if they had never been written.
    pub fn renew(&mut self, rows: usize, lanes: u32) {
        for at in self.base..self.base + rows {
            if self.poison[at] & !lanes == 0 {
                self.origin[at] = NEVER_WRITTEN;
            }
            self.poison[at] |= lanes;
            if !self.details.is_empty() {
                self.forget_details(at, lanes);
            }
        }
    }

    /// Forgets all rows from `len` on.
    pub fn truncate(&mut self, len: usize) {
        self.details.retain(|row, _| *row < len);
        self.rows.truncate(len);
        self.poison.truncate(len);
        self.origin.truncate(len);
    }

    /// Makes the window at `base` current.
    pub fn select(&mut self, base: usize) {
        debug_assert!(base <= self.rows.len());
        self.base = base;
    }

    #[inline(always)]
    fn at(&self, row: RowId) -> usize {
        let at = self.base + row as usize;
        debug_assert!(at < self.rows.len());
        at
    }

    /// A 32-bit row.
    #[inline(always)]
    pub fn r32(&self, row: RowId) -> &[u32; 32] {
        // SAFETY: the module's invariant: the row is within the current window.
        unsafe { &self.rows.get_unchecked(self.at(row)).0 }
    }

    #[inline(always)]
    pub fn m32(&mut self, row: RowId) -> &mut [u32; 32] {
        let at = self.at(row);
        // SAFETY: as above.
        unsafe { &mut self.rows.get_unchecked_mut(at).0 }
    }

    /// A 64-bit row: two 32-bit rows seen as 32 values.
    #[inline(always)]
    pub fn r64(&self, row: RowId) -> &[u64; 32] {
        let at = self.at(row);
        debug_assert!(at + 1 < self.rows.len());
        // SAFETY: both rows are within the window, adjacent (Row has no padding) and aligned to 64 bytes.
        unsafe { &*self.rows.as_ptr().add(at).cast() }
    }

    #[inline(always)]
    pub fn m64(&mut self, row: RowId) -> &mut [u64; 32] {
        let at = self.at(row);
        debug_assert!(at + 1 < self.rows.len());
        // SAFETY: as above; self is borrowed mutably.
        unsafe { &mut *self.rows.as_mut_ptr().add(at).cast() }
    }

    /// A predicate's mask.
    #[inline(always)]
    pub fn pred(&self, row: RowId) -> u32 {
        self.r32(row)[0]
    }

    #[inline(always)]
    pub fn put32(&mut self, row: RowId, values: &[u32; 32], mask: u32) {
        let d = self.m32(row);
        if mask == u32::MAX { *d = *values } else { blend32(d, values, mask) }
    }

    #[inline(always)]
    pub fn put64(&mut self, row: RowId, values: &[u64; 32], mask: u32) {
        let d = self.m64(row);
        if mask == u32::MAX { *d = *values } else { blend64(d, values, mask) }
    }

    #[inline(always)]
    pub fn put_pred(&mut self, row: RowId, value: u32, mask: u32) {
        let d = &mut self.m32(row)[0];
        *d = *d & !mask | value & mask;
    }

    /// One lane of a row of either width.
    #[inline(always)]
    pub fn lane(&self, row: RowId, wide: bool, lane: usize) -> u64 {
        if wide { self.r64(row)[lane] } else { u64::from(self.r32(row)[lane]) }
    }

    /// The mask of undefined lanes.
    #[inline(always)]
    pub fn poison(&self, row: RowId) -> u32 {
        // SAFETY: `poison` has the length of `rows`.
        unsafe { *self.poison.get_unchecked(self.at(row)) }
    }

    #[inline(always)]
    pub fn define(&mut self, row: RowId, mask: u32) {
        let at = self.at(row);
        // SAFETY: as above.
        unsafe { *self.poison.get_unchecked_mut(at) &= !mask };
    }

    /// Sets the lanes of `mask` undefined where `poison` says so, defined elsewhere.
    pub fn set_poison(&mut self, row: RowId, poison: u32, mask: u32, origin: Pc) {
        let at = self.at(row);
        self.poison[at] = self.poison[at] & !mask | poison & mask;
        if poison & mask != 0 {
            self.origin[at] = origin;
            if !self.details.is_empty() {
                self.forget_details(at, mask);
            }
        }
    }

    /// The lanes of `mask` are wholly undefined now; the others keep what is known of them, for lanes write a row in turns where they diverge.
    #[cold]
    fn forget_details(&mut self, at: usize, mask: u32) {
        let others = self.poison[at] & !mask;
        if others == 0 {
            self.details.remove(&at);
        } else if let Some(d) = self.details.get_mut(&at) {
            d.copied &= !mask;
            (0..32).filter(|l| mask >> l & 1 != 0).for_each(|l| d.bits[l] = u64::MAX);
        }
    }

    /// As [`Registers::set_poison`], where the undefined bits of each lane are known: lanes without any are defined.
    pub fn set_bits(&mut self, row: RowId, bits: &[u64; 32], copied: u32, mask: u32, origin: Pc) {
        let undefined = (0..32).fold(0, |a, l| a | u32::from(bits[l] != 0) << l);
        let before = self.poison(row) & !mask;
        let at = self.at(row);
        let old = if before != 0 { self.details.get(&at).cloned() } else { None };
        self.set_poison(row, undefined, mask, origin);
        if undefined & mask != 0 {
            // Other lanes keep what was known of their older values.
            let older = |l: usize| old.as_ref().map_or(u64::MAX, |d| d.bits[l]);
            let bits = std::array::from_fn(|l| if before >> l & 1 != 0 { older(l) } else { bits[l] });
            let copied = copied & mask | old.as_ref().map_or(0, |d| d.copied) & before;
            self.details.insert(at, Detail { bits, copied });
        }
    }

    /// The undefined bits of a lane.
    pub fn undefined_bits(&self, row: RowId, lane: usize) -> u64 {
        if self.poison(row) >> lane & 1 == 0 {
            return 0;
        }
        self.details.get(&self.at(row)).map_or(u64::MAX, |d| d.bits[lane])
    }

    /// Lanes whose undefined bits are padding that was copied along.
    pub fn copied(&self, row: RowId) -> u32 {
        self.details.get(&self.at(row)).map_or(0, |d| d.copied)
    }

    /// Where the undefined value of a row was first read; `here` for a register that was never written.
    pub fn origin(&self, row: RowId, here: Pc) -> Pc {
        match self.origin[self.at(row)] {
            NEVER_WRITTEN => here,
            pc => pc,
        }
    }
}

/// PERF: in line, for a function that is given the address of a loop's result keeps the loop from being vectorised.
#[inline(always)]
fn blend32(d: &mut [u32; 32], values: &[u32; 32], mask: u32) {
    for lane in 0..32 {
        d[lane] = if mask >> lane & 1 != 0 { values[lane] } else { d[lane] };
    }
}

#[inline(always)]
fn blend64(d: &mut [u64; 32], values: &[u64; 32], mask: u32) {
    for lane in 0..32 {
        d[lane] = if mask >> lane & 1 != 0 { values[lane] } else { d[lane] };
    }
}

impl Default for Registers {
    fn default() -> Self {
        Registers::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_written_under_a_mask_and_wide_rows_span_two() {
        let mut r = Registers::new();
        r.push_window(8);
        r.put32(5, &[7; 32], 0b101);
        assert_eq!(r.r32(5)[..4], [7, 0, 7, 0]);
        r.put64(6, &[u64::MAX; 32], 1 << 31);
        assert_eq!((r.r64(6)[30], r.r64(6)[31]), (0, u64::MAX));
        assert_eq!(r.r32(7)[30..], [u32::MAX, u32::MAX]);
        r.put_pred(5, u32::MAX, 0xF0);
        assert_eq!(r.pred(5), 0xF7);
    }

    #[test]
    fn undefined_until_written() {
        let mut r = Registers::new();
        r.push_window(8);
        assert_eq!(r.poison(5), u32::MAX);
        assert_eq!(r.origin(5, 42), 42);
        r.define(5, 0xFFFF_0000);
        assert_eq!(r.poison(5), 0xFFFF);
        r.set_poison(5, 1, 3, 9);
        assert_eq!((r.poison(5), r.origin(5, 42)), (0xFFFD, 9));
    }

    #[test]
    fn lanes_that_write_in_turns_keep_what_is_known_of_their_bits() {
        let mut r = Registers::new();
        r.push_window(8);
        r.set_bits(5, &[0xFF00; 32], u32::MAX, u32::MAX, 1);
        r.set_bits(5, &[0x0F; 32], 0, 0b10, 2);
        assert_eq!([0, 1].map(|l| r.undefined_bits(5, l)), [0xFF00, 0x0F]);
        r.set_poison(5, 0b100, 0b100, 3);
        assert_eq!([0, 1, 2].map(|l| r.undefined_bits(5, l)), [0xFF00, 0x0F, u64::MAX]);
        assert_eq!(r.copied(5), !0b110);
    }
}
