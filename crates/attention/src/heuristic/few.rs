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

    /// About how long it takes, in nanoseconds: 5 to 8% off in the mean over 220 to 580 launches each, of 4 to 600 us (2026-11-26, on an H100; the rate
    /// of an H200). `step`: tiles of keys at a time.
    fn ns(&self, s: &Shape, ways: u32, sms: u32, step: u32) -> u64 {
        // Bytes of K and V in a cycle that an SM gets from memory where all ask.
        let rate = match s.head_dim {
            64 => 17,
            128 => 21,
            _ => 18,
        };
        let ctas = self.units(s) * ways;
        let rounds = u64::from(ctas.div_ceil(sms));
        let (of_keys, of_rows) = if ways == 1 && rounds > 1 {
            let percent = match s.mask {
                Mask::Full => 100,
                Mask::Causal if s.head_dim < 256 => 104,
                Mask::Causal => 96,
            };
            (self.each.0 * percent / 100, self.each.1 * percent / 100)
        } else {
            (self.of_keys, self.of_rows)
        };
        // Queries row by row.
        let apart = match s.head_dim {
            _ if boxes(s.group) => 0,
            64 => 400,
            128 => 500,
            _ => 3000,
        };
        let of_rows = of_rows + apart;
        let alone = s.rows() <= 64 * (self.groups - 1);
        let of_keys = if alone { of_keys * self.alone / 100 } else { of_keys };
        // A head's row tiles read the same keys.
        let bytes = u64::from(256 * s.head_dim) * u64::from(sms.min(ctas));
        let of_keys = of_keys.max(bytes / (u64::from(sms) * rate * u64::from(self.row_tiles(s))));
        let adding = u64::from(ways > 1) + u64::from(ways > 4) + u64::from(ways > 16);
        let cycles = self.busiest(s, ways, sms, step) * of_keys + rounds * of_rows + adding * self.of_adding;
        3900 + cycles * 4 / 7
    }

    /// Tiles of keys of the CTA that has most to do: a list that CTAs take in turn, a key head's row tiles one behind another, the last rows first.
    fn busiest(&self, s: &Shape, ways: u32, sms: u32, step: u32) -> u64 {
        let (rows, row_tiles) = (64 * self.groups, self.row_tiles(s));
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

/// Whether 64 packed rows are whole groups of heads, so that their queries come by boxes of (head dimension, heads of a group, queries) and not row by row.
pub(crate) fn boxes(group: u32) -> bool {
    group <= 64 && group.is_power_of_two()
}

/// A kernel that can run it, by head dimensions 64, 128 and 256.
struct Kernel {
    file: &'static str,
    consumers: [&'static [Consumers]; 3],
}

/// Scales of whole heads, outputs alone: at D 64 forward_f16.cu, elsewhere forward_e4m3.cu.
const PLAIN: [&[Consumers]; 3] = [
    &[Consumers::new(2, 1195, 72, 1150, 3830, (1185, 2190)), Consumers::new(4, 1880, 59, 2360, 4280, (1870, 3770))],
    &[Consumers::new(2, 1610, 69, 2620, 5100, (1610, 4180))],
    &[Consumers::new(1, 2060, 100, 2040, 8100, (2210, 4640)), Consumers::new(2, 3280, 87, 3840, 8540, (3510, 6850))],
];

/// forward_e4m3.cu with scales by block.
const BLOCKS: [&[Consumers]; 3] = [
    &[],
    &[Consumers::new(2, 1960, 74, 2180, 4600, (1980, 3730))],
    &[Consumers::new(1, 2710, 100, 985, 7100, (2620, 3940)), Consumers::new(2, 3610, 84, 3725, 7900, (3590, 7325))],
];

/// forward.cu, with log-sum-exps and any scales; its row tiles have shorter ends.
const EXACT: Kernel = Kernel {
    file: "forward",
    consumers: [
        &[Consumers::new(2, 1850, 78, 460, 4155, (1815, 2525)), Consumers::new(3, 2290, 70, 1835, 4235, (2180, 3470))],
        &[Consumers::new(2, 2150, 79, 1610, 5300, (2155, 3380))],
        &[
            Consumers::new(1, 2305, 100, 1630, 8280, (2350, 5430)),
            Consumers::new(2, 3050, 75, 3475, 9390, (3515, 6640)),
        ],
    ],
};

/// Those that can run it.
fn kernels(s: &Shape) -> Vec<Kernel> {
    let narrow = if s.head_dim == 64 { "forward_f16" } else { "forward_e4m3" };
    match (s.lse, s.plain) {
        (false, true) => vec![Kernel { file: narrow, consumers: PLAIN }, EXACT],
        (false, false) if s.head_dim != 64 => vec![Kernel { file: narrow, consumers: BLOCKS }],
        _ => vec![EXACT],
    }
}

/// Whether it can run it: row-major values; rows whose queries a product of 32 bits finds, and whose places 31 bits in 16 bytes, in slices too.
fn fits(s: &Shape) -> bool {
    let [group, heads_kv, queries, head_dim] = [s.group, s.heads_kv, s.seqlen_q, s.head_dim].map(u64::from);
    let found = group * group * queries < 1 << 31 && group * heads_kv * queries * head_dim < 1 << 33;
    !s.packed && !s.wide && found
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
    s.plain
        && !s.lse
        && fits(s)
        && s.head_dim == 128
        && rows
        && s.seqlen_k >= 4096
        && s.batch * s.heads_kv * 10 >= 9 * sms
}

/// Mirrors the map of forward_f16.cu and forward_e4m3.cu with `WS_FEW`: slots of Q, K, V and V^T as for many queries, barriers, what consumers are told
/// of row tiles, a factor for each row of Q; and, aligned, ones.
fn shared(head_dim: u32, groups: u32) -> u32 {
    let slots = if head_dim == 256 { 1 } else { 2 };
    let tile = 128 * head_dim;
    let q = slots * 64 * groups * head_dim;
    let rest = 256 + 2 * 32 + slots * 4 * 64 * groups;
    match head_dim {
        64 => (q + (4 + 2) * tile + 4 * 2 * tile + rest).div_ceil(1024) * 1024 + 2048,
        128 => q + (4 + 2) * tile + 4 * (tile + 1024) + rest,
        // Two slots of K, three of V less a consumer's, two of V^T.
        _ => q + (5 - groups) * tile + 2 * (tile + 1024) + rest,
    }
}

/// What forward.cu is compiled with, and its shared memory: its own map, and a factor for each row of Q.
fn exact(s: &Shape, groups: u32) -> (Vec<(&'static str, u32)>, u32) {
    let mut defines = vec![("WS_D", s.head_dim), ("WS_WGS", groups), ("WS_CAUSAL", s.causal()), ("WS_POLY", 0)];
    if groups > 1 {
        defines.push(("WS_TURNS", 1));
    }
    if s.head_dim == 256 && groups == 2 {
        defines.push(("WS_WIDE", 1));
    }
    if s.mask == Mask::Full {
        defines.push(("WS_LOOKS", 2));
    }
    // Slots of Q, and of K, V and V^T together.
    let (slots, tiles) = if s.head_dim == 256 { (1, 2 + 2 + 2) } else { (2, 4 + 2 + 4) };
    let scales = if s.plain { 0 } else { 64 };
    (defines, slots * 64 * groups * (s.head_dim + 4) + tiles * 128 * s.head_dim + 256 + scales)
}

/// Row tiles of whole groups of heads, and CTAs that share a row tile's keys; with its time.
pub(super) fn choose(s: &Shape, sms: u32) -> (u64, Choice) {
    choose_of(kernels(s), s, sms)
}

/// The same by the first of them alone, which is what was timed beside decode.cu: for what [`takes_as_decode`].
pub(super) fn choose_as_decode(s: &Shape, sms: u32) -> (u64, Choice) {
    choose_of(kernels(s).into_iter().take(1).collect(), s, sms)
}

fn choose_of(kernels: Vec<Kernel>, s: &Shape, sms: u32) -> (u64, Choice) {
    let by_dim = match s.head_dim {
        64 => 0,
        128 => 1,
        _ => 2,
    };
    let mut best: Option<(u64, u32, u32, &'static str, &'static Consumers)> = None;
    for kernel in &kernels {
        let two = kernel.file == "forward_e4m3" && s.plain && s.head_dim == 128 && s.mask == Mask::Full;
        for consumers in kernel.consumers[by_dim] {
            for ways in 1..=consumers.most_ways(s, sms) {
                let found = (consumers.ns(s, ways, sms, 1 + u32::from(two)), ways, consumers.groups);
                if best.is_none_or(|(ns, ways, groups, ..)| found < (ns, ways, groups)) {
                    best = Some((found.0, found.1, found.2, kernel.file, consumers));
                }
            }
        }
    }
    let (ns, ways, groups, file, consumers) = best.unwrap_or((u64::MAX, 1, 2, EXACT.file, &EXACT.consumers[by_dim][0]));
    let (mut defines, shared) = if file == EXACT.file {
        exact(s, groups)
    } else {
        let scales = if s.plain { 0 } else { 64 };
        (vec![("WS_D", s.head_dim), ("WS_WGS", groups), ("WS_CAUSAL", s.causal())], shared(s.head_dim, groups) + scales)
    };
    defines.push(("WS_FEW", 1));
    if !s.plain {
        defines.push(("WS_BLOCKS", 1));
    }
    let (ctas, threads) = (consumers.units(s) * ways, 128 * groups);
    let mut choice = Choice::new(file, defines, [ctas.min(sms), 1, 1], threads + 128, shared);
    choice.tiles_per_worker = ways;
    choice.row_tiles = consumers.row_tiles(s);
    choice.boxes = Some((64, 128));
    if ways > 1 {
        choice.partial_floats = u64::from(ctas * threads) * u64::from(s.head_dim / 4 + 4);
        choice.units = ctas * 4 * groups;
    }
    (ns, choice)
}
