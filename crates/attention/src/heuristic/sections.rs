//! The order of causal row tiles: how many heads' come together, and what the SM that has most to do has.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use super::Shape;
use crate::problem::Mask;

/// Heads of K and V that CTAs work on side by side: up to so many the L2 serves them as one.
const FEW_HEADS: u32 = 48;
/// From more than so many on drawn row tiles at D 64 come in sections.
const MANY_HEADS: u32 = 64;
/// Heads of K and V of a section that are looked at: also those that fill rounds of 132 SMs.
const SECTIONS: [u32; 14] = [4, 8, 11, 12, 16, 22, 24, 32, 33, 44, 48, 64, 66, 96];
/// Steps that looking at one may take, or row tiles that are drawn.
const MOST_PIECES: u64 = 2048;

/// Tiles of keys of a head's causal row tiles, the longest first. `passes`: less of the last rows' ones for each consumer without rows, which passes over them:
/// half of its share (H100, 2026-11-27: of four consumers three, two, one less 50, 25, 14%).
pub(super) fn lengths(s: &Shape, groups: u32, passes: bool) -> Vec<u64> {
    let rows = 64 * groups;
    let length = |tile: u32| {
        let last = s.seqlen_q.min((tile + 1).saturating_mul(rows));
        u64::from((s.seqlen_k + last).saturating_sub(s.seqlen_q).div_ceil(128))
    };
    let mut lengths: Vec<_> = (0..s.seqlen_q.div_ceil(rows)).rev().map(length).collect();
    if let (true, Some(last)) = (passes, lengths.first_mut()) {
        let idle = (s.seqlen_q.next_multiple_of(rows) - s.seqlen_q) / 64;
        *last -= *last * u64::from(idle) / u64::from(2 * groups);
    }
    lengths
}

/// What the SM that has most to do has, as `work_of` of forward_work.cuh shares row tiles out: by sections of heads, the longest first, rounds forwards and
/// backwards in turn. A row tile takes `of_keys` for each tile of keys, and `of_rows`.
pub(super) fn shared_out(lengths: &[u64], heads: u32, section: u32, sms: u32, of_keys: u64, of_rows: u64) -> u64 {
    let sms = u64::from(sms);
    let mut more = vec![0i64; sms as usize + 1]; // what each SM has more than the one before it
    let mut at = 0;
    for first in (0..heads).step_by(section as usize) {
        let together = u64::from(section.min(heads - first));
        for length in lengths {
            let of = (of_keys * length + of_rows) as i64;
            let end = at + together;
            while at < end {
                let (turn, place) = (at / sms, at % sms);
                let n = (end - at).min(sms - place);
                let begin = if turn % 2 == 1 { sms - place - n } else { place };
                more[begin as usize] += of;
                more[(begin + n) as usize] -= of;
                at += n;
            }
        }
    }
    let mut have = 0;
    more.into_iter().fold(0, |most, x| {
        have += x;
        most.max(have as u64)
    })
}

/// When the last SM ends where each draws another row tile once it has none: by sections of heads, the longest first.
fn drawn_out(lengths: &[u64], heads: u32, section: u32, sms: u32, (of_keys, of_rows): (u64, u64)) -> u64 {
    let mut ends: BinaryHeap<_> = (0..sms).map(|_| Reverse(0)).collect();
    for first in (0..heads).step_by(section as usize) {
        for length in lengths {
            for _ in 0..section.min(heads - first) {
                if let Some(mut end) = ends.peek_mut() {
                    end.0 += of_keys * length + of_rows;
                }
            }
        }
    }
    ends.into_iter().map(|Reverse(end)| end).max().unwrap_or(0)
}

/// (cycles, heads of a section) for causal row tiles of forward_e4m3.cu that are drawn; `cycles`: of a tile of keys, and of a row tile's start and end.
///
/// Small sections share the L2, where each megabyte of K and V beyond 8 costs 0.05% (D 256: 0.12%); sections of whole rounds leave SMs even, if the last one is
/// no smaller. H100, 2026-11-27, times as long as the list that came before: 4x8x4096x256 by 2, 4, 6, 8, 16, 32 heads 1.004, 0.935, 1.06, 0.953, 0.966, 1.01;
/// 4x16x4096x128 by 4, 8, 12, 16, 32, 64 1.016, 0.988, 1.037, 0.985, 0.979, 1.00.
pub(super) fn drawn(s: &Shape, groups: u32, cycles: (u64, u64), sms: u32) -> (u64, u32) {
    let (kv_heads, lengths) = (s.heads_kv * s.batch, lengths(s, groups, true));
    let heads = kv_heads * s.group;
    let row_tiles = |heads_kv: u32| u64::from(heads_kv * s.group) * lengths.len() as u64;
    let rounds = |heads_kv: u32| row_tiles(heads_kv) * 10 / (9 * u64::from(sms));
    let mut whole = vec![kv_heads];
    for k in 2..=kv_heads {
        let n = kv_heads.div_ceil(k);
        if rounds(n) == 0 {
            break;
        }
        // Of a section for each of K and V's heads but the last: what it has.
        if 4 * i64::from(kv_heads) - 4 * i64::from(k - 1) * i64::from(n) >= 3 * i64::from(n) {
            whole.push(n);
        }
    }
    let least = |most: u64| whole.iter().copied().filter(|n| rounds(*n) >= most).min().unwrap_or(kv_heads);
    let rate = if s.head_dim == 256 { 12 } else { 5 };
    let alone = |n: u32| {
        let megabytes = (u64::from(n) * u64::from(s.seqlen_k) * 2 * u64::from(s.head_dim)) >> 20;
        1000 + (megabytes.saturating_sub(8) * rate / 10).min(60)
    };
    if row_tiles(kv_heads) > MOST_PIECES {
        // So many are even.
        let n = least(2);
        let of_head = cycles.0 * lengths.iter().sum::<u64>() + cycles.1 * lengths.len() as u64;
        return ((of_head * u64::from(heads)).div_ceil(u64::from(sms)) * alone(n) / 1000, n * s.group);
    }
    let cost = |n: u32| (drawn_out(&lengths, heads, n * s.group, sms, cycles) * alone(n) / 1000, n);
    let tried = BTreeSet::from([least(1), least(2), least(4), kv_heads]); // often the same
    tried.into_iter().map(cost).min().map_or((0, heads), |(cycles, n)| (cycles, n * s.group))
}

/// How many heads' row tiles come together, the longest first; `counted`: they are drawn from a counter.
///
/// With more heads of K and V than [`FEW_HEADS`] their CTAs have none in common, and all read from memory (up to 8 to 13% slower); a section less than all
/// leaves SMs uneven at its end, by up to half of the time: whichever costs least.
pub(super) fn section(s: &Shape, groups: u32, counted: bool, sms: u32) -> u32 {
    let kv_heads = s.heads_kv * s.batch;
    if s.mask == Mask::Full {
        return 1;
    }
    if kv_heads <= FEW_HEADS {
        return s.group * kv_heads;
    }
    if counted {
        return s.group * kv_heads.div_ceil(kv_heads.div_ceil(MANY_HEADS)); // those are even
    }
    let lengths = lengths(s, groups, false);
    let (row_tiles, heads) = (lengths.len() as u64, s.group * kv_heads);
    let rounds = (row_tiles * u64::from(heads)).div_ceil(u64::from(sms));
    let fits = |n: &u32| *n < kv_heads && u64::from(kv_heads.div_ceil(*n)) * row_tiles + rounds <= MOST_PIECES;
    // A row tile's start and end take as long as a tile and a half of keys.
    let costs = |n: u32| {
        let alone = u64::from(n.saturating_sub(FEW_HEADS).min(80));
        (shared_out(&lengths, heads, n * s.group, sms, 2, 3) * (1000 + alone), n)
    };
    let least = SECTIONS.into_iter().filter(fits).map(costs).min();
    least.map_or(heads, |least| least.min(costs(kv_heads)).1 * s.group)
}
