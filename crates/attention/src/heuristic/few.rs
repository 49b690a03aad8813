//! few.cuh: few packed rows, or row tiles too few for the SMs, over many keys.

use super::{Choice, MEMORY_RATE, Shape, cache_bytes};
use crate::problem::Mask;

/// CTAs of a row tile, at most: whatever more would leave each is soon read.
const MOST_WAYS: u32 = 33;

/// Numbers of CTAs of a row tile that are looked at where sequences differ: each new number of tokens is chosen for.
pub(super) const SOME_WAYS: [u32; 13] = [1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32];
/// Floats of parts, where sequences differ.
const MOST_PARTS: u64 = 1 << 26;

/// Of so many consumers: what a launch takes, in cycles.
pub(super) struct Consumers {
    pub(super) groups: u32,
    /// A tile of keys.
    of_keys: u64,
    /// Hundredths of it where no consumer but one has rows.
    alone: u64,
    /// A row tile's start and end.
    of_rows: u64,
    /// Each time that parts are added.
    pub(super) of_adding: u64,
    /// A tile of keys, and a row tile, where a CTA has several, whose starts and ends other warps hide.
    each: (u64, u64),
    /// Hundredths of tiles of keys behind the mask.
    masked: u64,
}

impl Consumers {
    const fn new(
        groups: u32,
        of_keys: u64,
        alone: u64,
        of_rows: u64,
        of_adding: u64,
        each: (u64, u64),
        masked: u64,
    ) -> Consumers {
        Consumers { groups, of_keys, alone, of_rows, of_adding, each, masked }
    }

    pub(super) fn row_tiles(&self, s: &Shape) -> u32 {
        s.rows().div_ceil(64 * self.groups)
    }

    /// Row tiles of all heads.
    pub(super) fn units(&self, s: &Shape) -> u32 {
        s.batch * s.heads_kv * self.row_tiles(s)
    }

    /// Numbers of CTAs of a row tile that may pay: two tiles of keys for each, two row tiles for each SM.
    pub(super) fn most_ways(&self, s: &Shape, sms: u32) -> u32 {
        MOST_WAYS.min(2 * sms / self.units(s)).min(s.seqlen_k.div_ceil(256)).max(1)
    }

    /// The same where sequences differ, of which [`Self::uneven_ns`] knows: any of [`SOME_WAYS`], as long as counters, so many, and parts are few.
    pub(super) fn some_ways(&self, s: &Shape, counters: u64) -> impl Iterator<Item = u32> {
        let threads = 128 * u64::from(self.groups);
        let most =
            (counters / (4 * u64::from(self.groups))).min(MOST_PARTS / (threads * u64::from(s.head_dim / 4 + 4)));
        let most = (most / u64::from(self.units(s))).min(u64::from(MOST_WAYS.min(s.seqlen_k.div_ceil(256)))).max(1);
        SOME_WAYS.into_iter().filter(move |ways| u64::from(*ways) <= most)
    }

    /// Hundredths of cycles of a tile of keys, and cycles of a row tile of so many rows, where a CTA has several or not. `adding`: tenths of what parts take that are added.
    pub(super) fn cycles(&self, s: &Shape, ways: u32, rows: u64, several: bool, adding: u64) -> (u64, u64) {
        let (of_keys, of_rows) = if ways == 1 && several { self.each } else { (self.of_keys, self.of_rows) };
        // Queries row by row.
        let apart = match (s.head_dim, self.groups) {
            _ if boxes(s.group) => 0,
            (64, 2) => 150,
            (64, 3) => 400,
            (64, _) => 950,
            (128, 2) => 400,
            (128, _) => 600,
            (_, 1) => 2000,
            _ => 5000,
        };
        let times = u64::from(ways > 1) + u64::from(ways > 4) + u64::from(ways > 16);
        let of_rows = of_rows + apart + times * self.of_adding * adding / 10;
        // Consumers without rows, of all but one.
        let groups = u64::from(self.groups);
        let (idle, others) = (groups - groups.min(rows.div_ceil(64)), groups - 1);
        let (of_keys, of_rows) = if idle > 0 && others > 0 {
            let percent = (100 * others) - (100 - self.alone) * idle;
            (of_keys * percent / (100 * others), of_rows * (10 * others - 3 * idle) / (10 * others))
        } else {
            (of_keys, of_rows)
        };
        (of_keys * if s.mask == Mask::Causal { self.masked } else { 100 }, of_rows)
    }

    /// About how long it takes, in nanoseconds: 4 to 10% off over 150 to 2,800 launches each (root of the mean square; H100, 2026-11-26). `step`: tiles of
    /// keys at a time; `drawn`: row tiles are drawn by whoever is free.
    pub(super) fn ns(&self, s: &Shape, ways: u32, sms: u32, step: u32, drawn: bool) -> u64 {
        let rounds = u64::from((self.units(s) * ways).div_ceil(sms));
        let (of_keys, of_rows) = self.cycles(s, ways, u64::from(s.rows()), rounds > 1, 10);
        let keys = self.busiest(s, ways, sms, step, drawn) * of_keys / 175;
        let reading = cache_bytes(s) / MEMORY_RATE;
        2000 + keys.max(reading) + keys.min(reading) / 8 + rounds * of_rows * 4 / 7
    }

    /// The same where sequences differ, of which the longest one's lengths and the tokens of all, of queries and of keys, are known, and the others are taken for alike: whoever is free draws the
    /// next share of a row tile's keys, and somewhat less than half of the longest share is left for the end.
    pub(super) fn uneven_ns(&self, s: &Shape, ways: u32, tokens: (u64, u64), sms: u32, step: u32) -> u64 {
        let [batch, group, queries, keys] = [s.batch, s.group, s.seqlen_q, s.seqlen_k].map(u64::from);
        let (rows, ways_of, step) = (64 * u64::from(self.groups), u64::from(ways), u64::from(step));
        // Row tiles of n sequences of so many tokens together, and the tiles of keys of each.
        let row_tiles_and_steps = |n: u64, q: u64, k: u64| {
            let whole = q == n * queries;
            let row_tiles = if whole { n * (group * queries).div_ceil(rows) } else { (group * q).div_ceil(rows) };
            let seen = k.saturating_sub(if s.mask == Mask::Causal { q / 2 } else { 0 });
            (u64::from(s.heads_kv) * row_tiles, (seen / n.max(1)).max(1).div_ceil(128 * step) * step)
        };
        let (first, first_steps) = row_tiles_and_steps(1, queries, keys);
        let (others, other_steps) =
            row_tiles_and_steps(batch - 1, tokens.0.saturating_sub(queries), tokens.1.saturating_sub(keys));
        let shares = (first + others) * ways_of;
        let (of_keys, of_rows) = self.cycles(s, ways, (group * tokens.0 / batch).max(1), shares > u64::from(sms), 8);
        let longest = keys.div_ceil(128 * step).div_ceil(ways_of) * step * of_keys / 100 + of_rows;
        let all = (first * first_steps + others * other_steps) * of_keys / 100 + shares * of_rows;
        let working =
            if shares > u64::from(sms) { longest.max(all / u64::from(sms) + longest * 9 / 20) } else { longest };
        let (working, reading) =
            (working * 4 / 7, 2 * tokens.1 * u64::from(s.kv_heads()) * u64::from(s.head_dim) / MEMORY_RATE);
        2000 + working.max(reading) + working.min(reading) / 8
    }

    /// Tiles of keys of the CTA that has most to do: a list that CTAs take in turn, a key head's row tiles one behind another, the last rows first; or row tiles drawn by whoever is free.
    fn busiest(&self, s: &Shape, ways: u32, sms: u32, step: u32, drawn: bool) -> u64 {
        let (rows, row_tiles) = (64 * self.groups, self.row_tiles(s));
        let share = u64::from(s.seqlen_k.div_ceil(128 * step).div_ceil(ways) * step);
        let rounds = u64::from((self.units(s) * ways).div_ceil(sms));
        if s.mask == Mask::Full || rounds == 1 {
            return share * rounds;
        }
        let length = |tile: u32| {
            let last = (s.rows().min((tile + 1) * rows) - 1) / s.group;
            u64::from((s.seqlen_k + last + 1).saturating_sub(s.seqlen_q).div_ceil(128))
        };
        // Shares of keys.
        let shares = |tile| std::iter::repeat_n(length(tile).div_ceil(u64::from(ways)), ways as usize);
        let lengths: Vec<u64> = (0..row_tiles).rev().flat_map(shares).collect();
        if drawn {
            let even = lengths.iter().sum::<u64>() * u64::from(s.batch * s.heads_kv);
            return lengths.first().copied().unwrap_or(0).max(even.div_ceil(u64::from(sms)));
        }
        let (row_tiles, units) = (row_tiles * ways, self.units(s) * ways);
        if rounds <= 16 {
            let of_cta =
                |cta: u32| (cta..units).step_by(sms as usize).map(|t| lengths[(t % row_tiles) as usize]).sum::<u64>();
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

/// The same with row tiles of one query head each: queries come by boxes so, rows of a tile see more different keys, and where queries are few row tiles are more and emptier. `None` at head
/// dimensions 64 and 128, where nothing is gained, where 64 packed rows are whole groups of heads, or where row tiles would be too many for 32 bits.
pub(super) fn heads_apart(s: &Shape) -> Option<Shape> {
    let heads = s.heads_kv * s.group;
    let numbers = u128::from(s.batch) * u128::from(heads) * u128::from(s.seqlen_q.div_ceil(64)) * u128::from(MOST_WAYS);
    let apart = Shape { heads_kv: heads, group: 1, shared: s.group, ..*s };
    (s.head_dim == 256 && !boxes(s.group) && numbers < 1 << 31).then_some(apart)
}

/// A kernel that can run it, by head dimensions 64, 128 and 256.
#[derive(Clone, Copy)]
pub(super) struct Kernel {
    pub(super) file: &'static str,
    consumers: [&'static [Consumers]; 3],
}

impl Kernel {
    pub(super) fn of(&self, s: &Shape) -> &'static [Consumers] {
        self.consumers[match s.head_dim {
            64 => 0,
            128 => 1,
            _ => 2,
        }]
    }

    /// Tiles of keys that a step takes.
    pub(super) fn step(&self, s: &Shape) -> u32 {
        let two = self.file == "forward_e4m3" && s.plain && s.head_dim == 128 && s.mask == Mask::Full;
        1 + u32::from(two)
    }
}

/// Scales of whole heads, outputs alone: at D 64 forward_f16.cu, elsewhere forward_e4m3.cu.
const PLAIN: [&[Consumers]; 3] = [
    &[
        Consumers::new(2, 1045, 81, 2945, 3570, (1160, 2667), 102),
        Consumers::new(4, 1715, 47, 4615, 4011, (1720, 4769), 104),
    ],
    &[Consumers::new(2, 1395, 72, 4945, 5131, (1425, 4906), 108)],
    &[
        Consumers::new(1, 1910, 100, 5076, 5666, (2145, 4964), 103),
        Consumers::new(2, 3211, 80, 6945, 7980, (3562, 7197), 98),
    ],
];

/// The same where sequences lie one behind another, by 503 calls at D 256 (H200, 2026-11-28).
const TOKENS: [&[Consumers]; 3] = [
    PLAIN[0],
    PLAIN[1],
    &[
        Consumers::new(1, 2101, 100, 5584, 5666, (1930, 4964), 103),
        Consumers::new(2, 3211, 80, 6250, 7980, (3206, 7197), 98),
    ],
];

/// Over V^T, which is made before where only the device knows lengths.
pub(super) const MADE: Kernel = Kernel {
    file: "forward_e4m3",
    consumers: [
        &[],
        &[
            Consumers::new(2, 1216, 100, 6480, 0, (1125, 6165), 101),
            Consumers::new(3, 1837, 100, 10553, 0, (2222, 7825), 90),
        ],
        &[Consumers::new(2, 2658, 100, 12331, 0, (2662, 8170), 98)],
    ],
};

/// With scales by block: at D 64 forward.cu, elsewhere forward_e4m3.cu.
const BLOCKS: [&[Consumers]; 3] = [
    &[
        Consumers::new(2, 2491, 79, 2225, 3572, (2412, 2163), 97),
        Consumers::new(3, 3072, 64, 3331, 3604, (2832, 2943), 98),
    ],
    &[Consumers::new(2, 1754, 73, 4255, 4871, (1753, 4047), 105)],
    &[
        Consumers::new(1, 2043, 100, 3434, 5969, (2086, 4889), 110),
        Consumers::new(2, 3282, 90, 5154, 7221, (3342, 7238), 103),
    ],
];

/// forward.cu, with log-sum-exps; its row tiles have shorter ends.
const EXACT: Kernel = Kernel {
    file: "forward",
    consumers: [
        &[
            Consumers::new(2, 1659, 83, 2913, 4357, (1639, 3402), 112),
            Consumers::new(3, 2064, 67, 4088, 4284, (1999, 4423), 112),
        ],
        &[Consumers::new(2, 1927, 86, 4314, 5362, (2170, 3942), 107)],
        &[
            Consumers::new(1, 2075, 100, 5012, 5979, (2319, 5365), 106),
            Consumers::new(2, 2734, 79, 6908, 8381, (3309, 7219), 104),
        ],
    ],
};

/// forward_e4m3.cu with weights linear between powers of two, at D 128: with scales of whole heads, and by block.
const PLAIN_FAST: [&[Consumers]; 3] = [&[], &[Consumers::new(2, 1227, 65, 5496, 4798, (1321, 4875), 108)], &[]];
const BLOCKS_FAST: [&[Consumers]; 3] = [&[], &[Consumers::new(2, 1758, 67, 4106, 4832, (1784, 3946), 98)], &[]];

/// Those that can run it; `tokens`: sequences lie one behind another.
pub(super) fn kernels(s: &Shape, tokens: bool) -> Vec<Kernel> {
    let narrow = if s.head_dim == 64 { "forward_f16" } else { "forward_e4m3" };
    let (plain, blocks) = match (linear(s), tokens) {
        (true, _) => (PLAIN_FAST, BLOCKS_FAST),
        (false, true) => (TOKENS, BLOCKS),
        (false, false) => (PLAIN, BLOCKS),
    };
    match (s.lse, s.plain) {
        (false, true) => vec![Kernel { file: narrow, consumers: plain }, EXACT],
        (false, false) => {
            vec![Kernel { file: if s.head_dim == 64 { EXACT.file } else { narrow }, consumers: blocks }]
        }
        _ => vec![EXACT],
    }
}

/// Whether forward_e4m3.cu's weights are linear between powers of two: at D 256 that gains nothing, and where a key head has one row tile memory is what
/// takes time.
fn linear(s: &Shape) -> bool {
    s.fast && s.head_dim == 128 && s.rows() > 128
}

/// Whether it can run it: row-major values; rows whose queries a product of 32 bits finds, and whose places 31 bits in 16 bytes, in slices too.
pub(super) fn fits(s: &Shape) -> bool {
    let [group, heads_kv, queries, head_dim] = [s.group, s.heads_kv, s.seqlen_q, s.head_dim].map(u64::from);
    let found = group * group * queries < 1 << 31 && group * heads_kv * queries * head_dim < 1 << 33;
    !s.packed && !s.wide && found
}

/// Whether it may where there are others: few rows, heads in groups, whose rows it packs, or no more than two row tiles for each SM, beyond which the
/// others' order of work is the better one.
pub(super) fn takes(s: &Shape, sms: u32) -> bool {
    fits(s) && (s.rows() <= 256 || s.group > 1 || s.batch * s.heads_kv * s.rows().div_ceil(128) <= 2 * sms)
}

/// Mirrors the map of forward_f16.cu and forward_e4m3.cu with `WS_FEW`: slots of Q, K, V and V^T as for many queries, barriers, what consumers are told
/// of row tiles (`lengths`: more of them), a factor for each row of Q; and, aligned, ones.
pub(super) fn shared(head_dim: u32, groups: u32, lengths: bool) -> u32 {
    let slots = if head_dim == 256 { 1 } else { 2 };
    let tile = 128 * head_dim;
    let q = slots * 64 * groups * head_dim;
    let rest = 256 + 2 * if lengths { 48 } else { 32 } + slots * 4 * 64 * groups;
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
    let ways = |consumers: &Consumers| (1..=consumers.most_ways(s, sms)).collect();
    fastest(s, &kernels(s, false), sms, ways, |kernel, consumers, ways| {
        consumers.ns(s, ways, sms, kernel.step(s), false)
    })
}

/// That of the least time, of numbers of CTAs that may pay for these consumers.
pub(super) fn fastest(
    s: &Shape,
    kernels: &[Kernel],
    sms: u32,
    ways_of: impl Fn(&Consumers) -> Vec<u32>,
    ns_of: impl Fn(&Kernel, &Consumers, u32) -> u64,
) -> (u64, Choice) {
    let mut best: Option<((u64, u32, u32), &'static str, &'static Consumers)> = None;
    for kernel in kernels {
        for consumers in kernel.of(s) {
            for ways in ways_of(consumers) {
                let found = (ns_of(kernel, consumers, ways), ways, consumers.groups);
                if best.is_none_or(|(least, ..)| found < least) {
                    best = Some((found, kernel.file, consumers));
                }
            }
        }
    }
    let ((ns, ways, _), file, consumers) = best.unwrap_or(((u64::MAX, 1, 2), EXACT.file, &EXACT.of(s)[0]));
    (ns, choice(s, file, consumers, ways, sms))
}

/// All of them, with one CTA to a row tile.
pub(super) fn candidates(s: &Shape, sms: u32) -> Vec<Choice> {
    if !takes(s, sms) {
        return Vec::new();
    }
    let of = |kernel: &Kernel| kernel.of(s).iter().map(|c| choice(s, kernel.file, c, 1, sms)).collect::<Vec<_>>();
    kernels(s, false).iter().flat_map(of).collect()
}

pub(super) fn choice(s: &Shape, file: &'static str, consumers: &Consumers, ways: u32, sms: u32) -> Choice {
    let groups = consumers.groups;
    let (mut defines, shared) = if file == EXACT.file {
        exact(s, groups)
    } else {
        let scales = if s.plain { 0 } else { 64 };
        (
            vec![("WS_D", s.head_dim), ("WS_WGS", groups), ("WS_CAUSAL", s.causal())],
            shared(s.head_dim, groups, false) + scales,
        )
    };
    defines.push(("WS_FEW", 1));
    if !s.plain {
        defines.push(("WS_BLOCKS", 1));
    }
    if linear(s) && file == "forward_e4m3" {
        defines.push(("WS_FAST", 1));
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
    choice
}
