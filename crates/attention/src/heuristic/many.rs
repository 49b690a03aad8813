//! Many queries over many keys: forward_f16.cu, forward_e4m3.cu and forward.cu, over V as it comes or over V^T that is made before.

use super::{Choice, MEMORY_RATE, Shape, cache_bytes, sections};
use crate::problem::Mask;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum File {
    F16,
    E4m3,
    Exact,
}

/// A kernel for many queries, its consumers, and how it takes V and scales.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Kernel {
    file: File,
    groups: u32,
    /// V^T is made before, instead of in shared memory for each row tile.
    made: bool,
    /// One tile of keys to a step, as scales by block want it, but for packed values.
    by_one: bool,
}

/// Bytes of V^T, scratch that a call may ask for.
pub(super) const MOST_TRANSPOSED: u64 = 1 << 28;

fn may_transpose(s: &Shape) -> bool {
    !s.packed && s.head_dim != 64 && s.batch * s.heads_kv <= 65_535 && transposed_bytes(s) <= MOST_TRANSPOSED
}

/// CTAs, an SM each, that make V^T while attention begins on the others: a power of two.
const MAKERS: u32 = 32;

/// Bytes of V^T that are made beside attention behind the mask.
const MUCH_TRANSPOSED: u64 = 24 << 20;

/// Whether forward_e4m3.cu's V^T is made by some SMs while attention begins on the others: without the mask, where so many SMs have a row tile less to do than others, which takes
/// as long as making it. Behind the mask, where SMs that begin later draw less, where there is much of it (H100, 2026-11-27, of 25 MB and more: D 128 1 to 3% faster, D 256 1 to 2%,
/// but of 8,192 keys and more 2% slower; of less alike).
fn beside(s: &Shape, groups: u32, sms: u32) -> bool {
    let row_tiles = row_tiles(s, groups);
    if s.mask == Mask::Causal {
        return s.plain
            && (s.head_dim == 128 || s.seqlen_k <= 4096)
            && transposed_bytes(s) >= MUCH_TRANSPOSED
            && row_tiles > 3 * sms;
    }
    let fewer = row_tiles.next_multiple_of(sms) - row_tiles;
    let (of_tile, _) =
        cycles(&Shape { fast: false, ..*s }, Kernel { file: File::E4m3, groups, made: true, by_one: false });
    let of_row_tile = u64::from(s.seqlen_k.div_ceil(128)) * of_tile * 4 / 7;
    s.plain && fewer >= MAKERS && of_row_tile >= transposed_bytes(s) / 1200
}

/// The launch of transpose.cu that makes V^T, (batch, heads_kv, head_dim, keys in whole tiles of 128), for that choice: by few CTAs beside it, or before, by all SMs.
pub fn transposition(s: &Shape, choice: &Choice, sms: u32) -> Choice {
    let groups = 256 / s.head_dim; // tiles at once
    let tiles = s.seqlen_k.div_ceil(128) * s.heads_kv * s.batch;
    let ctas = if choice.tiles_per_worker > 0 { MAKERS } else { tiles.div_ceil(groups).min(sms) };
    let shared = groups * (6 * 128 * s.head_dim + 96);
    Choice::new("transpose", vec![("WS_D", s.head_dim)], [ctas, 1, 1], 320 * groups, shared)
}

/// Of that V^T.
pub(super) fn transposed_bytes(s: &Shape) -> u64 {
    u64::from(s.batch * s.kv_heads()) * u64::from(s.head_dim) * 128 * u64::from(s.seqlen_k.div_ceil(128))
}

/// All that can run it.
fn kernels(s: &Shape, sms: u32) -> Vec<Kernel> {
    let causal = s.mask == Mask::Causal;
    let one = !s.packed && !s.plain;
    let of = |file, groups, made, by_one| Kernel { file, groups, made, by_one };
    let mut found = Vec::new();
    match (s.head_dim, s.lse) {
        (64, lse) if lse || one => {
            let groups: &[u32] = if causal { &[2, 3, 4] } else { &[3, 4] };
            found.extend(groups.iter().map(|n| of(File::Exact, *n, false, one)));
        }
        (64, _) => found.extend([2, 4].map(|n| of(File::F16, n, false, false))),
        (128, false) => {
            let steps: &[bool] = match (s.packed, one) {
                (true, _) => &[false],
                (_, true) => &[true],
                _ => &[false, true],
            };
            for by_one in steps {
                for made in [false, true] {
                    for groups in [2, 3] {
                        // By one tile where scales would allow two: where steps of two are half empty.
                        let odd = *by_one && !one;
                        let fits =
                            !odd || groups == 2 && !made && !(causal && drawn(s, of(File::E4m3, 2, false, false), sms));
                        if fits {
                            found.push(of(File::E4m3, groups, made, *by_one));
                        }
                    }
                }
            }
            if !one && !s.packed {
                found.push(of(File::Exact, 3, false, false));
            }
        }
        (d, lse) => {
            let groups = if d == 128 { 3 } else { 2 };
            found.extend([false, true].map(|made| of(File::Exact, groups, made, one && d == 256)));
            // Over fewer keys 1.02 times FA3 FP8's error.
            if d == 256 && !one && !lse && s.seqlen_k >= if causal { 768 } else { 896 } {
                found.push(of(File::E4m3, 2, !s.packed, false));
            }
        }
    }
    found.retain(|k| !k.made || may_transpose(s));
    found
}

/// Whether fewer of forward_e4m3.cu's weights may be linear (at D 128 none), as there is no mask and keys are few: FA3 FP8 errs less then, as fewer of its weights lie far below
/// their largest, while references of each step's own maxima do not care. H100, 2026-11-26, normal inputs, a half linear: 1.026 times FA3's error over 512 keys,
/// 1.014 over 2,048, 1.003 over 16,384. Two consumers at D 128 have none that are.
fn short(s: &Shape, k: Kernel) -> bool {
    let few = match (s.head_dim, k.groups, k.made || s.packed) {
        (256, ..) => s.seqlen_k < 4096,
        (_, 3, true) => s.seqlen_k <= 1536,
        (_, 3, false) => s.seqlen_k < 1024,
        _ => false,
    };
    few && k.file == File::E4m3 && s.mask == Mask::Full && !k.by_one && !s.fast
}

/// Whether more of forward_e4m3.cu's weights are exact behind the mask, by three consumers over V^T that is made: over 16,384 keys the error was at 1.008 of FA3 FP8's in the mean,
/// 1.0065 to 1.0225 in samples of 512 rows, and there it costs no time.
fn long(s: &Shape, k: Kernel) -> bool {
    s.mask == Mask::Causal && s.plain && k.made && k.groups == 3 && !k.by_one && s.seqlen_k > 8192
}

/// Cycles of a tile of keys, and of a row tile's start and end: without the mask and behind it.
fn cycles(s: &Shape, k: Kernel) -> (u64, u64) {
    let v_t = k.made || s.packed && s.head_dim != 64;
    // Linear weights.
    if s.fast && k.file == File::E4m3 {
        let [full, causal] = match (s.head_dim, k.groups, v_t, k.by_one) {
            (128, 2, false, false) => [(1365, 2795), (1400, 3465)],
            (128, _, false, false) => [(1915, 3830), (1980, 4130)],
            (128, 2, true, false) => [(1315, 2840), (1315, 3435)],
            (128, _, true, false) => [(1755, 3845), (1780, 4120)],
            (128, 2, false, true) => [(1615, 2475), (1595, 2815)],
            (128, _, false, true) => [(2375, 3490), (2340, 3575)],
            (128, 2, true, true) => [(1740, 3530), (1740, 3525)],
            (128, _, true, true) => [(2225, 4480), (2200, 4500)],
            _ => [(2290, 5145), (2230, 6065)],
        };
        return if s.mask == Mask::Causal { causal } else { full };
    }
    let [full, causal] = match (k.file, s.head_dim, k.groups, v_t, k.by_one) {
        (File::F16, _, 2, ..) => [(1160, 1840), (1160, 2075)],
        (File::F16, ..) => [(1750, 2700), (1760, 2800)],
        (File::E4m3, 128, 2, false, false) => [(1460, 3120), (1505, 3450)],
        (File::E4m3, 128, _, false, false) => [(1990, 4520), (2060, 4100)],
        (File::E4m3, 128, 2, false, true) => [(1800, 2480), (1830, 2890)],
        (File::E4m3, 128, _, false, true) => [(2380, 3450), (2375, 3605)],
        (File::E4m3, 128, 2, true, false) => [(1370, 3230), (1385, 3555)],
        (File::E4m3, 128, _, true, false) => [(1830, 4595), (1845, 4300)],
        (File::E4m3, 128, 2, true, true) => [(1655, 3535), (1755, 3710)],
        (File::E4m3, 128, _, true, true) => [(2250, 4430), (2290, 4330)],
        (File::E4m3, ..) => [(2520, 5945), (2485, 5890)],
        (File::Exact, 64, 2, _, false) => [(1970, 2205), (1970, 2205)],
        (File::Exact, 64, 3, _, false) => [(2145, 2925), (2330, 2765)],
        (File::Exact, 64, _, _, false) => [(2860, 4060), (2755, 3505)],
        (File::Exact, 64, 2, _, true) => [(2365, 1420), (2365, 1420)],
        (File::Exact, 64, 3, _, true) => [(2840, 1680), (2700, 1800)],
        (File::Exact, 64, _, _, true) => [(3520, 2950), (3315, 2940)],
        (File::Exact, 128, _, false, _) => [(2745, 3315), (2770, 3535)],
        (File::Exact, 128, _, true, _) => [(2545, 4590), (2630, 3725)],
        (File::Exact, _, _, false, false) => [(3010, 4850), (3040, 4880)],
        (File::Exact, _, _, true, false) => [(2800, 5040), (2825, 5120)],
        (File::Exact, _, _, false, true) => [(4580, 2900), (5310, 2860)],
        (File::Exact, _, _, true, true) => [(4090, 5305), (4780, 4890)],
    };
    if s.mask == Mask::Causal { causal } else { full }
}

/// About how long one of them takes, in nanoseconds at 1.75 GHz: 5 to 11% off (root of the mean square; H100, 2026-11-26).
fn ns(s: &Shape, k: Kernel, sms: u32) -> u64 {
    let (of_keys, of_rows) = slowed(s, k);
    let by_two = k.file == File::E4m3 && !k.by_one;
    let draws = k.file != File::Exact && drawn(s, k, sms);
    let next_to = k.made && by_two && beside(s, k.groups, sms);
    let memory = cache_bytes(s) / MEMORY_RATE;
    // For each megabyte.
    let rate = match (s.head_dim, s.mask) {
        (128, Mask::Full) => 400,
        (128, Mask::Causal) => 510 - if next_to { 200 } else { 0 },
        (_, Mask::Full) => 560,
        (_, Mask::Causal) => 700 - if next_to { 80 } else { 0 },
    };
    let making = match k.made {
        false => 0,
        true if next_to && s.mask == Mask::Full => 2000,
        true => 1200 + transposed_bytes(s) * rate / 1_000_000,
    };
    let begin = 2000 + making;
    // As measured beside those that are not drawn.
    if draws && by_two && s.mask == Mask::Causal {
        let (cycles, _) = sections::drawn(s, k.groups, (of_keys, of_rows), sms);
        return begin + (cycles * if s.head_dim == 256 { 55 } else { 57 } / 100).max(memory);
    }
    let (tiles, row_tiles) = busiest(s, k, draws, sms);
    let tiles =
        if by_two && s.mask == Mask::Full { row_tiles * 2 * u64::from(s.seqlen_k.div_ceil(256)) } else { tiles };
    begin + (of_keys * tiles * 4 / 7).max(memory) + of_rows * row_tiles * 4 / 7
}

/// [`cycles`], where fewer weights than elsewhere may be linear.
fn slowed(s: &Shape, k: Kernel) -> (u64, u64) {
    let (of_keys, of_rows) = cycles(s, k);
    (if short(s, k) { of_keys * 104 / 100 } else { of_keys }, of_rows)
}

fn choice(s: &Shape, k: Kernel, sms: u32) -> Choice {
    match k.file {
        File::F16 => forward_f16(s, k.groups, sms),
        File::E4m3 => forward_e4m3(s, k, sms),
        File::Exact => forward(s, k, sms),
    }
}

/// The fastest, with its time.
pub(super) fn choose(s: &Shape, sms: u32) -> (u64, Choice) {
    let timed = kernels(s, sms).into_iter().map(|k| (ns(s, k, sms), k));
    let exact = Kernel { file: File::Exact, groups: 3, made: false, by_one: false };
    let (ns, kernel) = timed.min_by_key(|(ns, _)| *ns).unwrap_or((u64::MAX, exact));
    (ns, choice(s, kernel, sms))
}

/// All of them.
pub(super) fn candidates(s: &Shape, sms: u32) -> Vec<Choice> {
    if s.rows() <= 16 && !s.packed {
        return Vec::new();
    }
    kernels(s, sms).into_iter().map(|k| choice(s, k, sms)).collect()
}

/// Mirrors the shared-memory map of forward.cu: slots of Q, of K, of V and of V^T, barriers, and scales of tiles.
fn forward_shared(s: &Shape, groups: u32, plain: bool, v_t: bool) -> u32 {
    let (q, k, transposed) = match (s.head_dim, v_t) {
        (256, true) if s.mask == Mask::Causal || s.wide => (1, 4, 2),
        (256, true) => (2, 3, 2),
        (256, false) => (1, 2, 2),
        _ => (2, 4, 4),
    };
    let others = k + transposed + if v_t { 0 } else { 2 };
    let scales = if plain && !v_t { 0 } else { 64 };
    q * 64 * groups * s.head_dim + others * 128 * s.head_dim + 256 + scales
}

/// With room for V^T, where it is made before.
fn with_scratch(s: &Shape, made: bool, choice: Choice) -> Choice {
    match made {
        true => Choice { transposes: true, partial_floats: transposed_bytes(s) / 4, ..choice },
        false => choice,
    }
}

/// Row tiles of so many consumers, of all heads.
fn row_tiles(s: &Shape, groups: u32) -> u32 {
    s.seqlen_q.div_ceil(64 * groups) * s.heads_kv * s.group * s.batch
}

/// What the kernels for many queries are told of their tensors. `plain`: scales of whole heads; where V is packed its own layout says so already.
fn layouts(s: &Shape, plain: bool, made: bool) -> impl Iterator<Item = (&'static str, u32)> {
    let values = if s.packed || made { Some(("WS_PACKED", 1)) } else { (!plain).then_some(("WS_BLOCKS", 1)) };
    let same = (made && plain).then_some(("WS_BLOCKS", 0));
    [values, same, s.wide.then_some(("WS_WIDEQ", 1))].into_iter().flatten()
}

/// forward.cu, which takes everything.
fn forward(s: &Shape, kernel: Kernel, sms: u32) -> Choice {
    let Kernel { groups, made, .. } = kernel;
    let (full, v_t) = (s.mask == Mask::Full, s.packed || made);
    // Of few keys the largest weighs much, and is exact where it is the reference: one more tile's maxima are looked at. So where the first tile, the
    // one in which keys end, has few (then up to 1.34 times as fast).
    let few = full && (s.seqlen_k <= 2048 || !s.seqlen_k.is_multiple_of(128));
    // Scales by block take any layout of them, and at D 128 without a mask their code is 3% faster over few keys, 1% slower over 16,384.
    let plain = s.plain && !(s.head_dim == 128 && few);
    let serial = s.head_dim == 64 && groups == 4; // their registers do not hold all scores of a tile
    let mut defines =
        vec![("WS_D", s.head_dim), ("WS_WGS", groups), ("WS_CAUSAL", s.causal()), ("WS_KEEP", 0), ("WS_POLY", 0)];
    // Consumers in turns: 2 to 8% faster causal and at D 256 (where V^T comes causal only), 1 to 2% slower elsewhere.
    if !full && !serial || s.head_dim == 256 && !v_t {
        defines.push(("WS_TURNS", 1));
    }
    if serial {
        defines.push(("WS_SERIAL", 1));
    }
    if few {
        defines.push(("WS_LOOKS", 2));
    }
    defines.extend(layouts(s, plain, made));
    let ctas = row_tiles(s, groups).min(sms);
    let shared = forward_shared(s, groups, plain, v_t);
    let mut choice = Choice::new("forward", defines, [ctas, 1, 1], (groups + 1) * 128, shared);
    choice.row_tiles = s.seqlen_q.div_ceil(64 * groups);
    choice.section = sections::section(s, groups, false, sms);
    choice.boxes = Some((64, 128));
    with_scratch(s, made, choice)
}

/// Mirrors the shared-memory map of forward_f16.cu: slots of Q, of K, of V and of V in f16 (packed: with ones behind), barriers, scales, what
/// consumers are told of two row tiles; and, aligned, the ones.
fn forward_f16_shared(groups: u32, packed: bool) -> u32 {
    let fixed = 2 * 64 * groups * 64 + (4 + 2) * 128 * 64 + 256 + 2 * 32;
    match packed {
        true => fixed + 4 * 2 * (128 * 64 + 1024) + 64,
        false => (fixed + 4 * 2 * 128 * 64).next_multiple_of(1024) + 2048,
    }
}

/// (tiles of keys, row tiles) of the SM that has most to do; `draws`: where row tiles are drawn.
fn busiest(s: &Shape, Kernel { file, groups, .. }: Kernel, draws: bool, sms: u32) -> (u64, u64) {
    let heads = s.heads_kv * s.group * s.batch;
    let of_rows = row_tiles(s, groups).div_ceil(sms);
    let of_keys = match s.mask {
        Mask::Full => u64::from(s.seqlen_k.div_ceil(128)) * u64::from(of_rows),
        Mask::Causal => {
            let lengths = sections::lengths(s, groups, file != File::Exact);
            if of_rows > 16 || draws {
                // Shared out evenly, but none is divided.
                lengths
                    .first()
                    .copied()
                    .unwrap_or(0)
                    .max((lengths.iter().sum::<u64>() * u64::from(heads)).div_ceil(u64::from(sms)))
            } else {
                sections::shared_out(&lengths, heads, sections::section(s, groups, false, sms), sms, 1, 0)
            }
        }
    };
    (of_keys, u64::from(of_rows))
}

/// At D 64, with scales of a whole head or packed values, and no log-sum-exp: its weights are linear between powers of two, which outputs hardly see,
/// and log-sum-exps would (3%).
fn forward_f16(s: &Shape, groups: u32, sms: u32) -> Choice {
    let mut defines = vec![("WS_D", 64), ("WS_WGS", groups), ("WS_CAUSAL", s.causal())];
    defines.extend(layouts(s, true, false));
    let ctas = row_tiles(s, groups).min(sms);
    let mut choice =
        Choice::new("forward_f16", defines, [ctas, 1, 1], (groups + 1) * 128, forward_f16_shared(groups, s.packed));
    choice.row_tiles = s.seqlen_q.div_ceil(64 * groups);
    let draws = drawn(s, Kernel { file: File::F16, groups, made: false, by_one: false }, sms);
    choice.section = sections::section(s, groups, draws, sms);
    choice.boxes = Some((64, 128));
    if draws { with_counter(choice) } else { choice }
}

/// Whether row tiles are drawn from a counter, which only forward_f16.cu and forward_e4m3.cu by two tiles of keys do: over V^T behind the mask (but three consumers that load queries of
/// 16 bits: C7511), and without it where V^T is made beside attention, as CTAs begin at different times then; of three rounds and more D 64 behind the mask, and two consumers over
/// rows of V. (Three consumers over rows of V gain nothing behind the mask, and spill without it.)
fn drawn(s: &Shape, k: Kernel, sms: u32) -> bool {
    let causal = s.mask == Mask::Causal;
    let many = row_tiles(s, k.groups) > 3 * sms;
    let draws = match s.head_dim {
        64 => causal && !s.packed && many,
        _ if k.made || s.packed => causal && !(s.wide && k.groups == 3) || k.made && beside(s, k.groups, sms),
        d => d == 128 && k.groups == 2 && many,
    };
    draws && !k.by_one && (s.plain || s.packed)
}

fn with_counter(mut choice: Choice) -> Choice {
    choice.instance.defines.push(("WS_DRAWN", 1));
    choice.units = 1;
    choice
}

/// Mirrors the shared-memory map of forward_e4m3.cu: slots of Q, of K, of V and of V^T (with ones behind), barriers, scales of tiles, and
/// what consumers are told of row tiles.
pub(super) fn forward_e4m3_shared(s: &Shape, groups: u32, plain: bool, v_t: bool) -> u32 {
    let (k, vt) = if s.head_dim == 256 { (3, 2) } else { (4, 4) };
    let tile = 128 * s.head_dim;
    let tiles = (k + if v_t { 0 } else { 2 }) * tile + vt * (tile + 1024);
    let scales = if plain && !s.packed { 0 } else { 64 };
    2 * 64 * groups * s.head_dim + tiles + 256 + scales + 2 * 32
}

/// At D 128, with any scales, packed or not, or at D 256 over V^T; no log-sum-exp.
fn forward_e4m3(s: &Shape, kernel: Kernel, sms: u32) -> Choice {
    let Kernel { groups, made, .. } = kernel;
    // Scales of whole heads, or packed values, whose scales are one wherever they can be, and so two tiles of keys at a time; else tiles come one by one.
    let plain = !kernel.by_one;
    let mut defines = vec![("WS_D", s.head_dim), ("WS_WGS", groups), ("WS_CAUSAL", s.causal())];
    defines.extend(layouts(s, plain, made));
    if s.packed {
        defines.push(("WS_EVEN", 1));
    }
    if s.fast {
        defines.push(("WS_FAST", 1));
    } else if short(s, kernel) {
        defines.push(("WS_SHORT", 1));
    } else if long(s, kernel) {
        defines.push(("WS_LONG", 1));
    }
    let ctas = row_tiles(s, groups).min(sms);
    let mut choice = Choice::new(
        "forward_e4m3",
        defines,
        [ctas, 1, 1],
        (groups + 1) * 128,
        forward_e4m3_shared(s, groups, plain, s.packed || made),
    );
    choice.row_tiles = s.seqlen_q.div_ceil(64 * groups);
    let draws = drawn(s, kernel, sms);
    choice.section = match draws && s.mask == Mask::Causal {
        true => sections::drawn(s, groups, slowed(s, kernel), sms).1,
        false => sections::section(s, groups, false, sms),
    };
    choice.boxes = Some((64, 128));
    choice = with_scratch(s, made, choice);
    if draws {
        choice = with_counter(choice);
    }
    if draws && made && beside(s, groups, sms) {
        // V^T is waited for tile by tile, which come in the order of these sections.
        let workers = MAKERS * 256 / s.head_dim;
        choice.tiles_per_worker = workers.ilog2();
        choice.tiles_per_unit = (choice.section / s.group).max(1);
        choice.units = workers + 3;
    }
    choice
}
