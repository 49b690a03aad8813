//! Sequences whose lengths only the device knows, in caches or pages: decode.cu, few.cuh and ragged.cu, and what tells their kernels so.

use super::few::{self, Consumers, Kernel};
use super::{Choice, Shape, cache_bytes, decode, group_bytes, many};
use crate::instance::Instance;
use crate::problem::Mask;

/// For each SM, of row tiles whose keys CTAs share.
pub(super) const MOST_SHARES: u32 = 8;
/// That a stream's slot has in Python, beside the one that row tiles are drawn from.
const MOST_COUNTERS: u64 = 16_383;

/// How a kernel finds its sequences: `WS_LENS`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Places {
    /// In caches or pages.
    Caches = 1,
    /// One behind another.
    Tokens = 2,
}

/// The kernel for caches of which each sequence uses a part, at most `seqlen_k` keys, perhaps by pages of so many: few queries go to decode.cu, more to few.cuh, as far as pages are parts of its
/// tiles or whole ones, all else to ragged.cu.
pub fn choose_lengths(s: &Shape, sms: u32, page: Option<u32>) -> Choice {
    let rows = s.rows();
    // Of 1,196 random calls within 0.9% of the faster one's times in the geometric mean; by teams 7% (H200, 2026-11-28).
    let even = decode::spread_of(s, sms, page, true);
    if let Some(even) = even.filter(|_| s.batch > 2 && cache_bytes(s) >= 40 << 20) {
        return with_lengths(s, even, Places::Caches);
    }
    let used = some_used(s);
    let whole = |page: u32| page.is_multiple_of(8) && (page.is_multiple_of(128) || 128 % page == 0);
    let (least, mut choice) = if few::fits(s) && page.is_none_or(whole) {
        choose_caches(s, sms)
    } else {
        (used.iter().map(ragged_ns).fold(1, u128::saturating_mul), choose_ragged(s, sms))
    };
    // Of 9 to 16 rows few.cuh takes 0.89 of decode.cu's time at D 256 (1,570 random calls; H200, 2026-11-28), 1.06 to 1.10 at D 64 and 128.
    if rows <= if s.head_dim == 256 && choice.instance.file != "ragged" { 8 } else { 256 } {
        let (ns, decode) = decode::choose_used(s, sms, page, &used);
        let ns = if rows <= 16 { 0 } else { ns * 115 / 100 };
        let keys = decode.boxes.map_or(1, |(_, keys)| keys);
        if page.is_none_or(|page| page % keys == 0) && ns < least {
            choice = decode;
        }
    }
    if choice.instance.file == "ragged" { choice } else { with_lengths(s, choice, Places::Caches) }
}

/// What may be used of caches, of which nobody knows but the device: all of them, and half as often an eighth, but by all sequences but one half of that ([`some_tokens`]). A choice is the one
/// of the least product of times.
fn some_used(s: &Shape) -> [Shape; 3] {
    [*s, *s, Shape { seqlen_k: s.seqlen_k.min(s.seqlen_q.max(s.seqlen_k / 8)), ..*s }]
}

/// Those of queries, and of keys.
fn some_tokens(s: &Shape) -> (u64, u64) {
    let [batch, queries, keys] = [s.batch, s.seqlen_q, s.seqlen_k].map(u64::from);
    (batch * queries, keys + (batch - 1) * keys / 2)
}

/// few.cuh, with the product of its times, by whole groups of heads or by heads apart.
fn choose_caches(s: &Shape, sms: u32) -> (u128, Choice) {
    let groups = caches_of(s, sms);
    match few::heads_apart(s).map(|apart| caches_of(&apart, sms)) {
        // Products of three times.
        Some((cost, apart)) if cost / 1331 < groups.0 / 1000 => (cost, Choice { splits: s.group, ..apart }),
        _ => groups,
    }
}

/// The device decides how many CTAs share a row tile's keys, up to a number (few_decide of few.cuh), by the estimate of [`Consumers::uneven_ns`], or each sequence's own number; or over V^T, where
/// nobody does.
fn caches_of(s: &Shape, sms: u32) -> (u128, Choice) {
    let used = some_used(s);
    let kernels = few::kernels(s, false);
    let mut best: Option<((u128, usize, u32, u32), Kernel, &'static Consumers)> = None;
    for (i, kernel) in kernels.iter().enumerate() {
        for consumers in kernel.of(s) {
            let units = u64::from(consumers.units(s));
            let most = units.max(u64::from(MOST_SHARES * sms));
            let ways: Vec<u32> =
                consumers.some_ways(s, MOST_COUNTERS).filter(|n| u64::from(*n) * units <= most).collect();
            let asked = if ways.len() > 1 { 600 } else { 0 };
            let ns = |x: &Shape| {
                let of = |n: &u32| consumers.uneven_ns(x, *n, some_tokens(x), sms, kernel.step(x));
                u128::from(ways.iter().map(of).min().unwrap_or(0) + asked)
            };
            let found = (used.iter().map(ns).product(), i, consumers.groups, ways.last().copied().unwrap_or(1));
            if best.as_ref().is_none_or(|(least, ..)| found < *least) {
                best = Some((found, *kernel, consumers));
            }
        }
    }
    let Some(((mut least, _, _, ways), kernel, consumers)) = best else {
        return (u128::MAX, choose_ragged(s, sms));
    };
    if s.shared > 1 {
        least = (least / 1000).saturating_mul(1331); // heads apart take 1.1 times as long by this estimate (526 calls; H200, 2026-11-29)
    }
    let mut choice = few::choice(s, kernel.file, consumers, ways.min(32), sms);
    if choice.tiles_per_worker > 1 {
        choice = told_times(s, choice, consumers, u64::from(s.rows()));
    }
    let made = many::transposed_bytes(s);
    if may_make(s, made) {
        for consumers in few::MADE.of(s) {
            if consumers.groups == 3 || s.head_dim == 256 || s.mask == Mask::Full {
                let ns = |x: &Shape| u128::from(made_ns(x, consumers, some_tokens(x), sms));
                let found = used.iter().map(ns).product::<u128>();
                if found < least {
                    least = found;
                    choice = choose_made(s, consumers.groups, made);
                    choice.row_tiles = consumers.row_tiles(s);
                    choice.grid = [consumers.units(s).min(sms), 1, 1];
                }
            }
        }
    }
    (least, choice)
}

/// few.cuh's choice with what the device has to know to decide: cycles of a tile of keys and of a row tile of so many rows, in upper halves where a CTA has several whose keys nobody shares, and of
/// each time that parts are added.
pub(super) fn told_times(s: &Shape, mut choice: Choice, consumers: &Consumers, rows: u64) -> Choice {
    let (alone, of_rows) = consumers.cycles(s, 2, rows, false, 0);
    let (each, of_rows_each) = consumers.cycles(s, 1, rows, true, 0);
    let halves = |low: u64, high: u64| (low | high << 16) as u32;
    choice.tiles_per_unit = halves(alone / 100, each / 100);
    choice.total_tiles = halves(of_rows, of_rows_each);
    choice.section = (consumers.of_adding * 8 / 10) as u32;
    choice
}

/// Whether so many bytes of V^T may be made before where only the device knows lengths: scales of whole heads, no log-sum-exps; at D 256 whose heads' factors recur every 64 rows; and where it is
/// not too large.
pub(super) fn may_make(s: &Shape, made: u64) -> bool {
    s.head_dim != 64 && s.plain && !s.lse && (s.head_dim == 128 || few::boxes(s.group)) && made <= many::MOST_TRANSPOSED
}

/// About how long few.cuh takes over that V^T, with its making. By it the choice takes 1.012 times as long as the fastest measured (1,344 calls one behind another; H200, 2026-11-28).
pub(super) fn made_ns(s: &Shape, consumers: &Consumers, tokens: (u64, u64), sms: u32) -> u64 {
    let tiles = tokens.1 / 128 + u64::from(s.batch);
    let making = 2059 + tiles * 128 * u64::from(s.kv_heads()) * u64::from(s.head_dim) * 540 / 1_000_000;
    let ns = making + consumers.uneven_ns(s, 1, tokens, sms, few::MADE.step(s));
    // Of chunks less is known: the longest sequence need not be the one with most queries.
    if tokens.0 == tokens.1 { ns } else { ns * 103 / 100 }
}

/// few.cuh over so many bytes of that V^T: as forward_e4m3.cu for many queries, and nobody shares keys. Its grid is the caller's.
pub(super) fn choose_made(s: &Shape, groups: u32, made: u64) -> Choice {
    let defines = vec![
        ("WS_D", s.head_dim),
        ("WS_WGS", groups),
        ("WS_CAUSAL", s.causal()),
        ("WS_PACKED", 1),
        ("WS_BLOCKS", 0),
        ("WS_FEW", 1),
    ];
    let factors = 2 * 4 * if s.head_dim == 256 { 64 } else { 64 * groups }; // of rows
    let shared = many::forward_e4m3_shared(s, groups, true, true) + factors;
    let mut choice = Choice::new("forward_e4m3", defines, [0, 1, 1], 128 * groups + 128, shared);
    choice.tiles_per_worker = 1;
    choice.boxes = Some((64, 128));
    choice.transposes = true;
    choice.partial_floats = made / 4;
    choice
}

/// The launch of transpose.cu that makes so many bytes of V^T, at most, where only the device knows lengths.
pub(crate) fn transposition(head_dim: u32, places: u32, made: u64, sms: u32) -> Choice {
    let groups = 256 / head_dim; // tiles at once
    let ctas = made.div_ceil(u64::from(128 * head_dim * groups)).min(u64::from(sms)) as u32;
    let shared = groups * (6 * 128 * head_dim + 96);
    Choice::new("transpose", vec![("WS_D", head_dim), ("WS_LENS", places)], [ctas, 1, 1], 320 * groups, shared)
}

/// The choice where only the device knows lengths: few.cuh's row tiles are drawn from a counter, and consumers are told more of them.
pub(super) fn with_lengths(s: &Shape, mut choice: Choice, places: Places) -> Choice {
    choice.instance.defines.push(("WS_LENS", places as u32));
    if choice.instance.define("WS_FEW") == 1 {
        let groups = choice.instance.define("WS_WGS");
        choice.shared_bytes += match choice.instance.file {
            "forward" => 2 * 48,
            _ if choice.transposes => 2 * 16,
            _ => few::shared(s.head_dim, groups, true) - few::shared(s.head_dim, groups, false),
        };
        choice.units += 1;
    }
    choice
}

/// Keys of a tile, warpgroups and stages of ragged.cu.
fn ragged(head_dim: u32) -> (u32, u32, u32) {
    if head_dim == 256 { (64, 2, 1) } else { (64, 4, 2) }
}

/// Whatever no other kernel takes: pages that are no parts of tiles, and row tiles that are too many for 32 bits.
pub(super) fn choose_ragged(s: &Shape, sms: u32) -> Choice {
    let (keys, groups, stages) = ragged(s.head_dim);
    let row_tiles = s.rows().div_ceil(64);
    let ctas = u64::from(row_tiles) * u64::from(s.heads_kv) * u64::from(s.batch);
    let room = if ctas < u64::from(sms) { sms / ctas as u32 } else { 1 };
    let splits = room.min(s.seqlen_k.div_ceil(2 * keys * groups)).clamp(1, 64);
    let defines =
        vec![("WS_D", s.head_dim), ("WS_KEYS", keys), ("WS_WGS", groups), ("WS_CAUSAL", s.causal()), ("WS_GROUPED", 1)];
    let shared = (groups * group_bytes(s.head_dim, keys, stages)).max(groups * (512 + s.head_dim * 256)) + 16;
    let grid = [row_tiles, s.heads_kv * splits, s.batch];
    let mut choice = Choice::new("ragged", defines, grid, groups * 128, shared);
    choice.splits = splits;
    if splits > 1 {
        choice.units = ctas as u32; // fewer than SMs
        choice.partial_floats = ctas * u64::from(splits * 64 * (s.head_dim + 2));
    }
    choice
}

/// About how long that takes: each 64 rows read the keys. Nanoseconds on an H200.
fn ragged_ns(s: &Shape) -> u128 {
    let bytes = u128::from(s.rows().div_ceil(64)) * u128::from(cache_bytes(s));
    8000 + bytes / if s.head_dim == 256 { 900 } else { 2000 }
}

/// Instances of these kernels, of the other functions' list: in caches or pages, and one behind another.
pub(crate) fn instances(dense: &[Instance]) -> Vec<Instance> {
    let mut found = Vec::new();
    for instance in dense {
        let kinds: &[Places] = match instance.file {
            "decode" if instance.define("WS_SPREAD") == 1 => &[Places::Caches, Places::Tokens],
            "decode" => &[Places::Caches],
            _ if instance.define("WS_FEW") == 1 => &[Places::Caches, Places::Tokens],
            _ => &[],
        };
        for kind in kinds {
            let mut lengths = instance.clone();
            lengths.defines.insert(lengths.defines.len() - 1, ("WS_LENS", *kind as u32)); // the output's format comes last
            found.push(lengths);
        }
    }
    let shape = |head_dim, mask| Shape { head_dim, mask, ..Shape::of_one() };
    // The same over V^T, which is made before for all row tiles.
    for kind in [Places::Caches, Places::Tokens] {
        for (head_dim, groups, mask) in [
            (128, 2, Mask::Full),
            (128, 3, Mask::Full),
            (128, 3, Mask::Causal),
            (256, 2, Mask::Full),
            (256, 2, Mask::Causal),
        ] {
            let s = shape(head_dim, mask);
            let instance = with_lengths(&s, choose_made(&s, groups, 0), kind).instance;
            found.extend((0..3).map(|output| instance.with_output(output)));
        }
        found.extend([128, 256].map(|head_dim| transposition(head_dim, kind as u32, 0, 1).instance));
    }
    for head_dim in [64, 128, 256] {
        for mask in [Mask::Full, Mask::Causal] {
            let instance = choose_ragged(&shape(head_dim, mask), super::SMS).instance;
            found.extend((0..3).map(|kind| instance.with_output(kind)));
        }
    }
    found
}
