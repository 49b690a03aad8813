//! What accesses cost the memory system, by instruction: wavefronts of shared memory against the fewest, sectors of global
//! memory against the fewest. Counted only where the options ask for it, for it takes time.
//!
//! Shared memory has 32 banks of four bytes. A request of up to four bytes a lane is one wavefront if no two lanes want different
//! words of one bank; of eight bytes, each half of the warp is a request of its own, of sixteen each quarter; a matrix of
//! `ldmatrix` or `stmatrix` is eight rows of sixteen bytes in one wavefront. Global memory moves sectors of 32 bytes.
//! Source: NVIDIA's Nsight Compute documentation ("Memory Tables") and the CUDA C++ programming guide ("Shared Memory", 5.x to 9.x).
//! Limits: halves or quarters that hardware merges because their words are the same are counted apart; atomics and wmma's loads
//! and stores are not counted; caches are not modelled.

use std::collections::BTreeMap;

use crate::api::{LineCounters, PlaceCounters, Traffic};
use crate::code::{Code, Op, Pc};
use crate::cta::Cta;
use crate::exec::rare::lanes_of;

/// A sector of global memory.
const SECTOR: u64 = 32;

/// Lanes access shared memory, each `span` bytes from its offset on.
#[inline(always)]
pub fn shared(cta: &mut Cta, pc: Pc, m: u32, at: &[u32; 32], span: usize) {
    if !cta.traffic.is_empty() {
        count_shared(cta, pc, m, at, span);
    }
}

#[cold]
#[inline(never)]
fn count_shared(cta: &mut Cta, pc: Pc, m: u32, at: &[u32; 32], span: usize) {
    let group = match span {
        0..=4 => 32,
        5..=8 => 16,
        _ => 8,
    };
    let (mut wavefronts, mut ideal) = (0, 0);
    for first in (0..32).step_by(group) {
        let lanes = m & (((1u64 << group) - 1) << first) as u32;
        if lanes != 0 {
            wavefronts += u64::from(conflicts(lanes_of(lanes).flat_map(|l| words(at[l], span))));
            ideal += 1;
        }
    }
    let t = &mut cta.traffic[pc as usize];
    t.shared_requests += 1;
    t.shared_wavefronts += wavefronts;
    t.shared_ideal += ideal;
}

fn words(at: u32, span: usize) -> impl Iterator<Item = u32> {
    at / 4..(at + span as u32).div_ceil(4)
}

/// Rows of sixteen bytes, eight to a wavefront.
#[inline(always)]
pub fn rows(cta: &mut Cta, pc: Pc, at: &[u64]) {
    if cta.traffic.is_empty() {
        return;
    }
    let (mut wavefronts, mut ideal) = (0, 0);
    for matrix in at.chunks(8) {
        wavefronts += u64::from(conflicts(matrix.iter().flat_map(|a| words(*a as u32, 16))));
        ideal += 1;
    }
    let t = &mut cta.traffic[pc as usize];
    t.shared_requests += 1;
    t.shared_wavefronts += wavefronts;
    t.shared_ideal += ideal;
}

/// The most different words that one bank has to give.
fn conflicts(words: impl Iterator<Item = u32>) -> u32 {
    // At most 32 lanes of four bytes, or as many words in fewer lanes.
    let (mut seen, mut count) = ([0u32; 64], 0);
    let mut banks = [0u8; 32];
    for w in words {
        if count < seen.len() && !seen[..count].contains(&w) {
            seen[count] = w;
            count += 1;
            banks[w as usize % 32] += 1;
        }
    }
    banks.iter().copied().max().unwrap_or(0).into()
}

/// Lanes access a buffer of global memory.
#[inline(always)]
pub fn global(cta: &mut Cta, pc: Pc, m: u32, at: &[usize; 32], span: usize) {
    if !cta.traffic.is_empty() {
        count_global(cta, pc, m, at, span);
    }
}

#[cold]
#[inline(never)]
fn count_global(cta: &mut Cta, pc: Pc, m: u32, at: &[usize; 32], span: usize) {
    let mut places: Vec<u64> = lanes_of(m).map(|l| at[l] as u64).collect();
    places.sort_unstable();
    places.dedup();
    let (mut sectors, mut last) = (0, u64::MAX);
    for a in &places {
        for s in a / SECTOR..(a + span as u64).div_ceil(SECTOR) {
            if s != last {
                sectors += 1;
                last = s;
            }
        }
    }
    let t = &mut cta.traffic[pc as usize];
    t.global_requests += 1;
    t.global_sectors += sectors;
    t.global_ideal += (places.len() as u64 * span as u64).div_ceil(SECTOR);
}

/// Counters by source line, most executed first.
pub fn by_line(
    code: &Code,
    range: impl Iterator<Item = usize>,
    counts: &[u64],
    traffic: &[Traffic],
) -> Vec<LineCounters> {
    let mut lines: BTreeMap<(Option<&str>, Option<u32>), LineCounters> = BTreeMap::new();
    for pc in range.filter(|pc| counts[*pc] > 0) {
        let site = &code.sites[pc];
        let line = lines.entry((site.file.as_deref(), site.line)).or_insert_with(|| LineCounters {
            file: site.file.clone(),
            line: site.line,
            ..LineCounters::default()
        });
        line.warp_instructions += counts[pc];
        line.tensor_ops += if code.instrs[pc].op == Op::Mma { counts[pc] } else { 0 };
        if let Some(t) = traffic.get(pc) {
            line.traffic.add(t);
        }
    }
    let mut lines: Vec<LineCounters> = lines.into_values().collect();
    lines.sort_by_key(|l| std::cmp::Reverse(l.warp_instructions));
    lines
}

/// Counters by chain of call sites; nothing unless traffic was counted.
pub fn by_place(
    code: &Code,
    range: impl Iterator<Item = usize>,
    counts: &[u64],
    traffic: &[Traffic],
) -> Vec<PlaceCounters> {
    let mut places: BTreeMap<u32, PlaceCounters> = BTreeMap::new();
    for pc in range.filter(|pc| counts[*pc] > 0) {
        let Some(t) = traffic.get(pc) else { break };
        let n = code.chains[pc];
        let place = places.entry(n).or_insert_with(|| PlaceCounters {
            chain: code.places.get(n as usize).cloned().unwrap_or_default(),
            ..PlaceCounters::default()
        });
        place.warp_instructions += counts[pc];
        place.tensor_ops += if code.instrs[pc].op == Op::Mma { counts[pc] } else { 0 };
        place.traffic.add(t);
    }
    places.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_one_bank_take_turns() {
        let of = |step: u32, n: u32| conflicts((0..n).map(|l| l * step));
        assert_eq!((of(1, 32), of(0, 32), of(2, 32), of(32, 32), of(33, 32)), (1, 1, 2, 32, 1));
    }
}
