//! few.cuh: few packed rows, or row tiles too few for the SMs, over many keys.

use super::{Choice, Shape};
use crate::problem::Mask;

/// CTAs of a row tile, at most: whatever more would leave each is soon read.
const MOST_WAYS: u32 = 33;

/// Of so many consumers: what a launch takes, in cycles.
struct Consumers {
    groups: u32,
    /// A tile of keys.
    of_keys: u64,
    /// Hundredths of it where the last consumer has no rows.
    alone: u64,
    /// A row tile's start and end.
    of_rows: u64,
    /// Each time that parts are added.
    of_adding: u64,
    /// A tile of keys, and a row tile, where a CTA has several, whose starts and ends other warps hide.
    each: (u64, u64),
}

impl Consumers {
    const fn new(groups: u32, of_keys: u64, alone: u64, of_rows: u64, of_adding: u64, each: (u64, u64)) -> Consumers {
        Consumers { groups, of_keys, alone, of_rows, of_adding, each }
    }

    fn row_tiles(&self, s: &Shape) -> u32 {
        s.rows().div_ceil(64 * self.groups)
    }

    /// Row tiles of all heads.
    fn units(&self, s: &Shape) -> u32 {
        s.batch * s.heads_kv * self.row_tiles(s)
    }

    /// Numbers of CTAs of a row tile that may pay: two tiles of keys for each, two row tiles for each SM.
    fn most_ways(&self, s: &Shape, sms: u32) -> u32 {
        MOST_WAYS.min(2 * sms / self.units(s)).min(s.seqlen_k.div_ceil(256)).max(1)
    }

    /// About how long it takes, in nanoseconds on an H200: 6% off in the mean over 184 launches, from 10 to 270 us, of one row tile a CTA; up to a tenth
    /// where it has several (2026-11-25).
    fn ns(&self, s: &Shape, ways: u32, sms: u32) -> u64 {
        // Bytes of K and V in a cycle that an SM gets from memory where all ask.
        let rate = match s.head_dim {
            64 => 17,
            128 => 21,
            _ => 18,
        };
        let ctas = self.units(s) * ways;
        let rounds = u64::from(ctas.div_ceil(sms));
        let (of_keys, of_rows) = if ways == 1 && rounds > 1 {
            let percent = if s.mask == Mask::Causal && s.head_dim < 256 { 107 } else { 100 };
            (self.each.0 * percent / 100, self.each.1 * percent / 100)
        } else {
            (self.of_keys, self.of_rows)
        };
        let alone = s.rows() <= 64 * (self.groups - 1);
        let of_keys = if alone { of_keys * self.alone / 100 } else { of_keys };
        // A head's row tiles read the same keys.
        let bytes = u64::from(256 * s.head_dim) * u64::from(sms.min(ctas));
        let of_keys = of_keys.max(bytes / (u64::from(sms) * rate * u64::from(self.row_tiles(s))));
        let adding = u64::from(ways > 1) + u64::from(ways > 4) + u64::from(ways > 16);
        let cycles = self.busiest(s, ways, sms) * of_keys + rounds * of_rows + adding * self.of_adding;
        3900 + cycles * 4 / 7
    }

    /// Tiles of keys of the CTA that has most to do: a list that CTAs take in turn, a key head's row tiles one behind another, the last rows first.
    fn busiest(&self, s: &Shape, ways: u32, sms: u32) -> u64 {
        let (rows, row_tiles) = (64 * self.groups, self.row_tiles(s));
        let step = if s.mask == Mask::Causal || s.head_dim != 128 { 1 } else { 2 };
        let share = u64::from(s.seqlen_k.div_ceil(128 * step).div_ceil(ways) * step);
        let rounds = u64::from((self.units(s) * ways).div_ceil(sms));
        if s.mask == Mask::Full || ways > 1 || rounds == 1 {
            return share * rounds;
        }
        let length = |tile: u32| {
            let last = (s.rows().min((tile + 1) * rows) - 1) / s.group;
            u64::from((s.seqlen_k + last + 1).saturating_sub(s.seqlen_q).div_ceil(128))
        };
        let lengths: Vec<u64> = (0..row_tiles).rev().map(length).collect();
        if rounds <= 16 {
            let of_cta = |cta: u32| {
                (cta..self.units(s)).step_by(sms as usize).map(|t| lengths[(t % row_tiles) as usize]).sum::<u64>()
            };
            return (0..sms).map(of_cta).max().unwrap_or(0);
        }
        let apart = gcd(sms, row_tiles); // a CTA's row tiles are of as many kinds
        let of_kind = |kind: u32| lengths.iter().skip(kind as usize).step_by(apart as usize).sum::<u64>();
        (0..apart).map(|kind| rounds * of_kind(kind) * u64::from(apart) / u64::from(row_tiles)).max().unwrap_or(0)
    }
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

const OF_64: &[Consumers] =
    &[Consumers::new(2, 1150, 50, 10_400, 200, (1250, 2000)), Consumers::new(4, 1800, 45, 8800, 1800, (1910, 4000))];
const OF_128: &[Consumers] = &[Consumers::new(2, 1450, 70, 8700, 4000, (1660, 4300))];
const OF_256: &[Consumers] = &[
    Consumers::new(1, 1940, 100, 11_500, 4600, (2230, 7300)),
    Consumers::new(2, 3060, 92, 13_200, 4900, (3400, 10_700)),
];

/// Whether it can run it: row-major values, scales of whole heads, no log-sum-exp; rows whose queries a product of 32 bits finds, and whose places 31 bits
/// in 16 bytes, in slices too.
fn fits(s: &Shape) -> bool {
    let [group, heads_kv, queries, head_dim] = [s.group, s.heads_kv, s.seqlen_q, s.head_dim].map(u64::from);
    let found = group * group * queries < 1 << 31 && group * heads_kv * queries * head_dim < 1 << 33;
    s.plain && !s.packed && !s.lse && !s.wide && found
}

/// Whether it may where there are others: few rows, heads in groups, whose rows it packs, or no more than two row tiles for each SM, beyond which the
/// others' order of work is the better one.
pub(super) fn takes(s: &Shape, sms: u32) -> bool {
    fits(s) && (s.rows() <= 256 || s.group > 1 || s.batch * s.heads_kv * s.rows().div_ceil(128) <= 2 * sms)
}

/// Whether it reads large caches faster than decode.cu: with 9 to 16 rows, whose products are twice those of 8 there, at D 128, where each SM has a head
/// at least (2 to 3%, at FA3 FP8's error instead of less).
pub(super) fn takes_as_decode(s: &Shape, sms: u32) -> bool {
    let rows = (9..=16).contains(&s.rows());
    fits(s) && s.head_dim == 128 && rows && s.seqlen_k >= 4096 && s.batch * s.heads_kv * 10 >= 9 * sms
}

/// Mirrors the map of forward_f16.cu and forward_e4m3.cu with `WS_FEW`: slots of Q, K, V and V^T as for many queries, barriers, what consumers are told
/// of row tiles, a factor for each row of Q; and, aligned, ones.
fn shared(head_dim: u32, groups: u32) -> u32 {
    let slots = if head_dim == 256 { 1 } else { 2 };
    let tile = 128 * head_dim;
    let q = slots * 64 * groups * head_dim;
    let rest = 256 + slots * (32 + 4 * 64 * groups);
    match head_dim {
        64 => (q + (4 + 2) * tile + 4 * 2 * tile + rest).div_ceil(1024) * 1024 + 2048,
        128 => q + (4 + 2) * tile + 4 * (tile + 1024) + rest,
        // Two slots of K, three of V less a consumer's, two of V^T.
        _ => q + (5 - groups) * tile + 2 * (tile + 1024) + rest,
    }
}

/// Row tiles of whole groups of heads, and CTAs that share a row tile's keys; with its time.
pub(super) fn choose(s: &Shape, sms: u32) -> (u64, Choice) {
    let all = match s.head_dim {
        64 => OF_64,
        128 => OF_128,
        _ => OF_256,
    };
    let timed = all.iter().flat_map(|c| (1..=c.most_ways(s, sms)).map(move |ways| (c.ns(s, ways, sms), ways, c)));
    let (ns, ways, consumers) =
        timed.min_by_key(|(ns, ways, c)| (*ns, *ways, c.groups)).unwrap_or_else(|| (all[0].ns(s, 1, sms), 1, &all[0]));
    let groups = consumers.groups;
    let file = if s.head_dim == 64 { "forward_f16" } else { "forward_e4m3" };
    let defines = vec![("WS_D", s.head_dim), ("WS_WGS", groups), ("WS_CAUSAL", s.causal()), ("WS_FEW", 1)];
    let (ctas, threads) = (consumers.units(s) * ways, 128 * groups);
    let mut choice = Choice::new(file, defines, [ctas.min(sms), 1, 1], threads + 128, shared(s.head_dim, groups));
    choice.tiles_per_worker = ways;
    choice.row_tiles = consumers.row_tiles(s);
    choice.boxes = Some((64, 128));
    if ways > 1 {
        choice.partial_floats = u64::from(ctas * threads) * u64::from(s.head_dim / 4 + 4);
        choice.units = ctas * 4 * groups;
    }
    (ns, choice)
}
