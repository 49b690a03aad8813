//! Which kernel runs a problem, with which levers and which grid: pure functions of the shape.
//!
//! `python/warpsmith/attention/_heuristic.py` is the same in Python, for checkouts without this library; `tests/choices.tsv` holds what both
//! must give, and each side's tests compare with it. Figures behind the choices: docs/ledger.md.

mod few;
mod odd;
mod sections;

pub(crate) use few::boxes as few_boxes;

use crate::instance::Instance;
use crate::problem::{Mask, Problem};

/// SMs of an H100 SXM or H200.
pub const SMS: u32 = 132;
const MAX_SHARED: u32 = 232_448;

/// A problem as the heuristic sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    pub batch: u32,
    pub heads_kv: u32,
    /// Query heads that share a key head.
    pub group: u32,
    pub seqlen_q: u32,
    pub seqlen_k: u32,
    pub head_dim: u32,
    pub mask: Mask,
    /// No scale differs between blocks of tokens.
    pub plain: bool,
    /// V comes transposed, in whole tiles.
    pub packed: bool,
    /// The log-sum-exp is wanted.
    pub lse: bool,
    /// Queries are of the output's 16 bits: with packed values only, and without log-sum-exps.
    pub wide: bool,
}

/// Without the log-sum-exp: launches say whether they want it, problems do not.
impl From<&Problem> for Shape {
    fn from(p: &Problem) -> Shape {
        Shape {
            batch: p.batch,
            heads_kv: p.heads_kv,
            group: p.group(),
            seqlen_q: p.seqlen_q,
            seqlen_k: p.seqlen_k,
            head_dim: p.head_dim,
            mask: p.mask,
            plain: p.plain_scales(),
            packed: p.packed_values,
            lse: false,
            wide: p.wide_queries,
        }
    }
}

impl Shape {
    /// Query rows of a key head.
    fn rows(&self) -> u32 {
        self.group * self.seqlen_q
    }

    fn causal(&self) -> u32 {
        u32::from(self.mask == Mask::Causal)
    }
}

/// An instance, its launch, and the figures that its parameters need.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    pub instance: Instance,
    pub grid: [u32; 3],
    pub block: u32,
    /// Dynamic shared memory.
    pub shared_bytes: u32,
    pub tiles_per_unit: u32,
    pub tiles_per_worker: u32,
    pub total_tiles: u32,
    pub row_tiles: u32,
    pub section: u32,
    /// Scratch memory, in f32.
    pub partial_floats: u64,
    /// Counters that are zero between launches.
    pub units: u32,
    /// Rows of q's, and of k's and v's, boxes, where the kernel takes tensor maps.
    pub boxes: Option<(u32, u32)>,
    /// The kernel takes V^T, which [`transposition`]'s launch makes before, in the first of its scratch.
    pub transposes: bool,
}

impl Choice {
    fn new(
        file: &'static str,
        defines: Vec<(&'static str, u32)>,
        grid: [u32; 3],
        block: u32,
        shared_bytes: u32,
    ) -> Choice {
        Choice {
            instance: Instance { file, defines },
            grid,
            block,
            shared_bytes,
            tiles_per_unit: 0,
            tiles_per_worker: 0,
            total_tiles: 0,
            row_tiles: 0,
            section: 1,
            partial_floats: 0,
            units: 0,
            boxes: None,
            transposes: false,
        }
    }
}

/// The kernel that we would run on a Hopper device of so many SMs. Packed V is taken by those for many queries over many keys
/// alone; [`packed_fits`] says where that is what to run.
pub fn choose(s: &Shape, sms: u32) -> Choice {
    choose_with(s, sms, true)
}

/// `few`: few.cuh may where there are others.
fn choose_with(s: &Shape, sms: u32, few: bool) -> Choice {
    if s.packed {
        return choose_many(s, sms);
    }
    let rows = s.rows();
    let small = choose_tiny(s, sms)
        .map(|tiny| (size_of(&tiny), tiny))
        .filter(|(size, _)| *size <= u64::from(if rows <= 16 { sms } else { 4 * sms }));
    match (small, rows) {
        (Some((size, _)), _) if s.plain && crowded(s, size, sms) => choose_many(s, sms),
        (Some((_, tiny)), _) if s.plain => tiny,
        (_, 0..=8) => choose_decode(s, 8, sms),
        (_, 9..=16) if few::takes_as_decode(s, sms) => few::choose_as_decode(s, sms).1,
        (_, 9..=16) => choose_decode(s, 16, sms),
        (small, _) => choose_some(s, sms, few, small.is_some()),
    }
}

/// In CTAs of 64 rows by 128 keys, however large those of this choice of [`choose_tiny`] are.
fn size_of(tiny: &Choice) -> u64 {
    let ctas = tiny.grid.iter().map(|n| u64::from(*n)).product::<u64>();
    let keys = tiny.instance.defines.iter().find(|(name, _)| *name == "WS_KEYS").map_or(128, |(_, keys)| *keys);
    ctas * u64::from(tiny.block / 128 * (keys / 128).max(1))
}

/// Whether a kernel for many queries is faster than tiny.cu's many CTAs: it may have fewer. (Both times are those of their launches alone.)
fn crowded(s: &Shape, size: u64, sms: u32) -> bool {
    let ns = match s.head_dim {
        64 => 6,
        128 => 9,
        _ => 15,
    };
    size > u64::from(2 * sms) && !s.lse && 10 * (many_ns(s, sms) - 1700) < 9 * (3600 + ns * size)
}

/// More than 16 packed rows, and perhaps too few for a kernel for many queries, whose row tiles are 128 or 192 queries of one head. `small`: tiny.cu would
/// fit, did it take scales by block.
fn choose_some(s: &Shape, sms: u32, few: bool, small: bool) -> Choice {
    let rows = s.rows();
    let many = many_ns(s, sms);
    let few = (few && few::takes(s, sms)).then(|| few::choose(s, sms)).filter(|(ns, _)| ns * 106 < many * 100);
    let more = (rows <= 256).then(|| choose_more(s, sms));
    let split = (small && (rows > 64 || s.seqlen_k <= 1024)).then(|| choose_split(s));
    let split = split.map(|choice| (split_ns(s, &choice, sms), choice));
    let fastest = [few, more, split].into_iter().flatten().min_by_key(|(ns, _)| *ns);
    fastest.filter(|(ns, _)| *ns < many).map_or_else(|| choose_many(s, sms), |(_, choice)| choice)
}

/// Bytes of K and V.
fn cache_bytes(s: &Shape) -> u64 {
    2 * u64::from(s.batch * s.heads_kv) * u64::from(s.seqlen_k) * u64::from(s.head_dim)
}

/// Every way of [`choose_more`]: which of them is the fastest depends on the card, so a build has all.
pub(crate) fn decodes(s: &Shape, sms: u32) -> Vec<Choice> {
    let by: &[u32] = if s.head_dim < 256 { &[16, 32] } else { &[16] };
    let by = if s.packed || !(17..=256).contains(&s.rows()) { &[] } else { by };
    by.iter().map(|rows| choose_decode(s, *rows, sms)).collect()
}

/// Decode of more than 16 packed rows: 16 at a time, or 32, which want more room and have a longer end. With its time.
fn choose_more(s: &Shape, sms: u32) -> (u64, Choice) {
    let timed = |rows| {
        let choice = choose_decode(s, rows, sms);
        (decode_ns(s, rows, &choice), choice)
    };
    let by_16 = timed(16);
    let by_32 = (s.head_dim < 256).then(|| timed(32));
    by_32.filter(|(ns, _)| *ns < by_16.0).unwrap_or(by_16)
}

/// About how long [`choose_decode`]'s takes, in nanoseconds on an H200: each 16 or 32 rows take the keys again, the first from memory.
fn decode_ns(s: &Shape, of_rows: u32, c: &Choice) -> u64 {
    // Bytes in a nanosecond that 132 SMs take with so many rows; and its beginning and end.
    let (rate, ends) = match (of_rows, s.head_dim) {
        (32, 64) => (2900, 14_000),
        (32, _) => (3200, 14_000),
        (_, 64) => (3700, 4500),
        (_, 128) => (4400, 6000),
        _ => (3900, 8000),
    };
    let (team, keys) = (c.tiles_per_worker, c.boxes.map_or(0, |(_, keys)| keys));
    // Of a CTA: units, and what one takes, which is so much however few its keys are.
    let units = u64::from(c.total_tiles.div_ceil(c.grid[0] / team));
    let tiles = u64::from(c.tiles_per_unit.div_ceil(team));
    let least = match s.head_dim {
        _ if units == 1 => 0,
        64 => 3400,
        128 => 4400,
        _ => 5600,
    };
    let unit = (tiles * u64::from(2 * keys * s.head_dim) * u64::from(SMS) / rate).max(least);
    ends + (cache_bytes(s) / 4200).max(units * unit)
}

/// The same of [`choose_split`]'s, with scales by block: rounds of CTAs, each warpgroup's tiles of keys one after the other.
fn split_ns(s: &Shape, c: &Choice, sms: u32) -> u64 {
    let (begin, of_rows, of_keys) = match s.head_dim {
        64 => (400, 0, 4600),
        128 => (0, 5650, 2400),
        _ => (800, 4050, 2150),
    };
    let ctas = c.grid.iter().product::<u32>();
    let tiles = s.seqlen_k.div_ceil(c.instance.define("WS_KEYS") * c.instance.define("WS_WGS"));
    begin + u64::from(ctas.div_ceil(sms)) * (of_rows + of_keys * u64::from(tiles))
}

/// The same of [`choose_many`]'s with a log-sum-exp or scales by block: by forward.cu, or at D 128 with those scales forward_e4m3.cu.
fn exact_ns(s: &Shape, sms: u32) -> u64 {
    let choice = choose_many(s, sms);
    let (exact, groups) = (choice.instance.file == "forward", choice.instance.define("WS_WGS"));
    let (of_keys, of_rows) = match (s.head_dim, exact, transposes(s), groups) {
        (64, _, _, 2) => (1870, 0),
        (64, _, _, 3) => (2100, 2400),
        (64, ..) => (2850, 3400),
        (128, true, false, _) => (2600, 2850),
        (128, true, true, _) => (2540, 4900),
        (128, false, false, 2) => (1770, 2050),
        (128, false, false, _) => (2500, 3800),
        (128, false, true, 2) => (1870, 3460),
        (128, false, true, _) => (2330, 5480),
        (_, _, false, _) => (2860, 3800),
        (_, _, true, _) => (2750, 5350),
    };
    let (tiles, row_tiles) = busiest(s, groups, sms);
    4000 + (of_keys * tiles + of_rows * row_tiles) * 4 / 7
}

/// The same of [`choose_many`]'s, at 1.75 GHz.
fn many_ns(s: &Shape, sms: u32) -> u64 {
    if odd::takes(s) {
        return 4000 + odd::least_cycles(s, sms) * 4 / 7;
    }
    if s.lse || !s.plain {
        return exact_ns(s, sms);
    }
    let made = transposes(s);
    let groups = if s.head_dim != 64 {
        e4m3_groups(s, sms)
    } else if forward_f16_cycles(s, 2, sms) <= forward_f16_cycles(s, 4, sms) {
        2
    } else {
        4
    };
    // Of a tile of keys, and of a row tile's start and end: over V as it comes, and over V^T.
    let (of_keys, of_rows) = match (s.head_dim, groups, made) {
        (64, 2, _) => (1250, 1550),
        (64, ..) => (1910, 2700),
        (128, 2, false) => (1600, 2900),
        (128, 2, true) => (1400, 3700),
        (128, _, false) => (2500, 3300),
        (128, _, true) => (2430, 2900),
        (_, _, false) => (3190, 3200),
        (_, _, true) => (2500, 7000),
    };
    let (tiles, row_tiles) = busiest(s, groups, sms);
    let by_two = s.mask == Mask::Full && (s.head_dim == 128 || s.head_dim == 256 && made);
    let tiles = if by_two { row_tiles * 2 * u64::from(s.seqlen_k.div_ceil(256)) } else { tiles };
    let cycles = of_keys * tiles + of_rows * row_tiles;
    4000 + cycles * 4 / 7
}

/// Many queries over many keys, by the fastest kernel that gives what is wanted.
fn choose_many(s: &Shape, sms: u32) -> Choice {
    if odd::takes(s) {
        odd::choose(s, sms)
    } else if takes_forward_f16(s) {
        choose_forward_f16(s, sms)
    } else if takes_forward_e4m3(s) {
        choose_forward_e4m3(s, e4m3_groups(s, sms), s.plain, sms)
    } else {
        choose_forward(s, sms)
    }
}

/// Whether packed values are worth their kernel: where row-major ones with a scale for each head and a log-sum-exp would get it too.
pub fn packed_fits(s: &Shape, sms: u32) -> bool {
    choose_with(&Shape { plain: true, packed: false, lse: true, wide: false, ..*s }, sms, false).instance.file
        == "forward"
}

fn split_defines(s: &Shape, keys: u32, groups: u32, stages: u32, poly: u32) -> Vec<(&'static str, u32)> {
    vec![
        ("WS_D", s.head_dim),
        ("WS_KEYS", keys),
        ("WS_WGS", groups),
        ("WS_STAGES", stages),
        ("WS_CAUSAL", s.causal()),
        ("WS_POLY", poly),
    ]
}

fn group_bytes(head_dim: u32, keys: u32, stages: u32) -> u32 {
    (2 * stages + 1) * keys * head_dim
}

/// Keys over the warpgroups of a CTA: whatever no other kernel takes.
fn choose_split(s: &Shape) -> Choice {
    let groups = if s.head_dim == 256 { 2 } else { 4 };
    let keys = if s.head_dim == 64 && s.seqlen_k > 64 * groups { 128 } else { 64 };
    let stages = if s.seqlen_k.div_ceil(keys) <= groups { 1 } else { 2 };
    let shared = (groups * group_bytes(s.head_dim, keys, stages)).max(groups * 512 + groups * s.head_dim * 256);
    let grid = [s.rows().div_ceil(64), s.heads_kv, s.batch];
    Choice::new("split", split_defines(s, keys, groups, stages, 2), grid, groups * 128, shared)
}

/// One tile of keys for each CTA of a cluster, with scales of a whole head, where that fits.
fn choose_tiny(s: &Shape, sms: u32) -> Option<Choice> {
    let d = s.head_dim;
    let count = |keys: u32| {
        u64::from(s.rows().div_ceil(64))
            * u64::from(s.seqlen_k.div_ceil(keys))
            * u64::from(s.heads_kv)
            * u64::from(s.batch)
    };
    // Where CTAs of 64 rows by 128 keys are more than one for each SM, fewer and larger ones have less to exchange.
    let keys = match d {
        256 => 64,
        _ if count(128) > u64::from(sms) => 256,
        _ => 128,
    };
    let ctas = [1, 2, 4, 8].into_iter().find(|n| n * keys >= s.seqlen_k).unwrap_or(8);
    let groups = if keys == 256 && count(256) > u64::from(sms) { 2 } else { 1 };
    if s.seqlen_k > keys * ctas || !(d / 16).is_multiple_of(ctas) {
        return None;
    }
    // CTAs on an SM: registers left for the next launch, too.
    // Larger clusters find their places late unless two CTAs fit an SM: one span's scores in registers at a time.
    let serial = d == 64 && groups == 2 && ctas >= 4;
    let blocks = match (keys, d) {
        _ if serial => 4,
        (256, _) | (_, 256) => 2,
        (_, 64) => 4,
        _ => 3,
    } / groups;
    // Of eight exponentials, those on the FMA pipe.
    let poly = if d == 128 && keys == 256 { 2 } else { 3 };
    let shared = groups * 64 * d + 3 * keys * d + groups * (d / 16 * 2048 + ctas * 512) + 128;
    if shared > MAX_SHARED {
        return None;
    }
    let mut defines = vec![
        ("WS_D", d),
        ("WS_KEYS", keys),
        ("WS_WGS", groups),
        ("WS_CTAS", ctas),
        ("WS_CAUSAL", s.causal()),
        ("WS_GROUPED", u32::from(s.group > 1)),
        ("WS_POLY", poly),
        ("WS_BLOCKS", blocks.max(1)),
    ];
    // Two row tiles of a causal CTA come from both ends, so that all CTAs have as much to do.
    let folded = s.mask == Mask::Causal && groups == 2;
    if folded {
        defines.push(("WS_FOLDED", 1));
    }
    if serial {
        defines.push(("WS_SERIAL", 1));
    }
    let grid = [s.rows().div_ceil(64 * groups) * ctas, s.heads_kv, s.batch];
    let mut choice = Choice::new("tiny", defines, grid, groups * 128, shared);
    choice.boxes = Some(if folded { (64, 128) } else { (64 * groups, keys) });
    Some(choice)
}

/// Few queries over long caches: at most `rows` packed rows to a unit, 8, 16 or, up to D 128, 32.
fn choose_decode(s: &Shape, rows: u32, sms: u32) -> Choice {
    let d = s.head_dim;
    let (keys, warps, stages) = match d {
        64 => (64, 8, 3),
        128 => (32, 8, 3),
        _ => (16, 8, 2),
    };
    let row_tiles = s.rows().div_ceil(rows);
    let (per_unit, units) = (s.seqlen_k.div_ceil(keys), s.batch * s.heads_kv * row_tiles);
    let team = decode_team(units, per_unit, warps, sms);
    let ctas = team * units.min(sms / team);
    // One unit to a CTA: the exchange lies in the ring, and at D 256 a third stage finds room.
    let ring = d == 256 && units <= sms / team;
    let stages = match rows {
        32 => 2,
        _ if ring => 3,
        _ => stages,
    };
    let mut defines = vec![
        ("WS_D", d),
        ("WS_KEYS", keys),
        ("WS_WARPS", warps),
        ("WS_STAGES", stages),
        ("WS_ROWS", rows),
        ("WS_CAUSAL", s.causal()),
    ];
    if ring {
        defines.push(("WS_RING", 1));
    }
    if row_tiles > 1 {
        defines.push(("WS_MORE", 1));
    }
    let exchange = if ring { 0 } else { warps * 8 * (d + 4) * 4 };
    let barriers = if d == 256 || rows >= 16 { 16 } else { 8 }; // of a stage's tile: WS_APART
    let tiles = warps * stages * 2 * keys * d + warps * 64 + exchange;
    // 32 rows: a copy of the queries for each warp.
    let queries = if rows == 32 { tiles.next_multiple_of(128) + warps * 32 * d * 2 } else { tiles };
    let shared = queries + warps * stages * barriers + 16;
    let mut choice = Choice::new("decode", defines, [ctas, 1, 1], warps * 32, shared);
    choice.tiles_per_unit = per_unit;
    choice.tiles_per_worker = team;
    choice.total_tiles = units;
    choice.row_tiles = if row_tiles > 1 { row_tiles } else { 0 };
    choice.boxes = Some((8, keys));
    if team > 1 {
        choice.units = units * (rows / 8) * warps;
        choice.partial_floats = u64::from(units * team) * u64::from(rows * (d + if d == 256 { 4 } else { 2 }));
    }
    choice
}

/// How many CTAs work on a unit together: as many as leave few idle, while each warp has two tiles.
fn decode_team(units: u32, per_unit: u32, warps: u32, sms: u32) -> u32 {
    let most = (per_unit / (2 * warps)).max(1);
    let one_round = most.min(sms / units).max(1);
    if u64::from(units) * u64::from(one_round) * 10 >= 9 * u64::from(sms) || (units <= sms && one_round == most) {
        return one_round;
    }
    // In hundredths of a percent; above 96% nothing is gained, and teams of four are best.
    let busy = |team: u32| {
        let rounds = u64::from(units.div_ceil(sms / team));
        (u64::from(units) * u64::from(team) * 10_000 / (rounds * u64::from(sms))).min(9_600)
    };
    let mut best = 1;
    for team in 2..=most.min(32).min(sms) {
        if (busy(team), -team.abs_diff(4).cast_signed()) > (busy(best), -best.abs_diff(4).cast_signed()) {
            best = team;
        }
    }
    best
}

/// Mirrors the shared-memory map of forward.cu: slots of Q, of K, of V and of V^T, barriers, and scales of tiles.
fn forward_shared(s: &Shape, groups: u32, plain: bool) -> u32 {
    let v_t = s.packed || transposes(s);
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

/// Row tiles of 128 queries that have to read each tile of V for V^T to be made before: of outputs alone with scales of whole heads, of outputs with
/// scales by block, with log-sum-exps.
fn transposed_from(s: &Shape) -> u32 {
    let [outputs, blocks, with_lse] = match (s.head_dim, s.mask) {
        (128, Mask::Full) => [24, 32, 32],
        (128, Mask::Causal) => [32, 128, 128],
        (256, Mask::Full) => [12, 32, 16],
        (256, Mask::Causal) => [24, 32, 64],
        _ => [u32::MAX; 3],
    };
    match (s.lse, s.plain) {
        (true, _) => with_lse,
        (false, false) => blocks,
        (false, true) => outputs,
    }
}

/// Bytes of V^T, scratch that a call may ask for.
const MOST_TRANSPOSED: u64 = 1 << 28;

/// Bytes of V^T from which on it is worth a launch. Of outputs alone behind the mask visits say it.
fn least_transposed(s: &Shape) -> u64 {
    match s.mask {
        Mask::Full => 1 << 19,
        Mask::Causal if s.plain && !s.lse => 0,
        Mask::Causal => 8 << 20,
    }
}

/// Whether V^T is made once, before, instead of in shared memory for each row tile: where so many row tiles read each tile of V that the launch costs
/// less.
fn transposes(s: &Shape) -> bool {
    let bytes = least_transposed(s)..=MOST_TRANSPOSED;
    let fits = s.batch * s.heads_kv <= 65_535 && bytes.contains(&transposed_bytes(s));
    !s.packed && fits && !too_few_keys(s) && s.group * s.seqlen_q.div_ceil(128) >= transposed_from(s)
}

/// Of outputs alone: without a mask a step of two tiles is half empty at D 256 over few keys; or a launch costs more than all row tiles save, where visits of
/// tiles of keys by row tiles of 128 queries, seen or not, take less than 20 to 65 us.
fn too_few_keys(s: &Shape) -> bool {
    let (tiles, row_tiles) = (u64::from(s.seqlen_k.div_ceil(128)), u64::from(s.seqlen_q.div_ceil(128)));
    let visits = u64::from(s.heads_kv * s.group * s.batch) * row_tiles * tiles;
    let few = match (s.head_dim, s.mask) {
        (128, Mask::Full) => visits < 4096,
        (128, Mask::Causal) => visits < 16_384,
        (_, Mask::Full) => tiles < 6,
        (_, Mask::Causal) => tiles < 3 || visits < 8192,
    };
    s.plain && !s.lse && (few || odd::takes(s))
}

/// The launch of transpose.cu that makes V^T, (batch, heads_kv, head_dim, keys in whole tiles of 128).
pub fn transposition(s: &Shape) -> Choice {
    let grid = [s.seqlen_k.div_ceil(128), s.heads_kv * s.batch, 1];
    Choice::new("transpose", vec![("WS_D", s.head_dim)], grid, 2 * s.head_dim, 0)
}

/// Of that V^T.
fn transposed_bytes(s: &Shape) -> u64 {
    u64::from(s.batch * s.heads_kv) * u64::from(s.head_dim) * 128 * u64::from(s.seqlen_k.div_ceil(128))
}

/// With room for V^T, where it is made before.
fn with_scratch(s: &Shape, choice: Choice) -> Choice {
    match transposes(s) {
        true => Choice { transposes: true, partial_floats: transposed_bytes(s) / 4, ..choice },
        false => choice,
    }
}

/// Row tiles of so many consumers, of all heads.
fn row_tiles(s: &Shape, groups: u32) -> u32 {
    s.seqlen_q.div_ceil(64 * groups) * s.heads_kv * s.group * s.batch
}

/// What the kernels for many queries are told of their tensors. `plain`: scales of whole heads; where V is packed its own layout says so already.
fn layouts(s: &Shape, plain: bool) -> impl Iterator<Item = (&'static str, u32)> {
    let made = transposes(s);
    let values = if s.packed || made { Some(("WS_PACKED", 1)) } else { (!plain).then_some(("WS_BLOCKS", 1)) };
    let same = (made && plain).then_some(("WS_BLOCKS", 0));
    [values, same, s.wide.then_some(("WS_WIDEQ", 1))].into_iter().flatten()
}

/// Many queries over many keys.
fn choose_forward(s: &Shape, sms: u32) -> Choice {
    let tiles_of = |groups: u32| row_tiles(s, groups);
    // Causal row tiles differ in length: where there are few, small ones are shared out more evenly.
    let few = s.mask == Mask::Causal && tiles_of(3) < 2 * sms;
    // Four consumers want 1.45 times as long as three for a third more rows; causal, where they keep apart better, 1.25 times.
    let cost = if s.mask == Mask::Causal { 125 } else { 145 };
    let four = cost * u64::from(tiles_of(4).div_ceil(sms)) < 100 * u64::from(tiles_of(3).div_ceil(sms));
    let groups = match s.head_dim {
        256 => 2,
        64 if few => 2,
        64 if four => 4,
        _ => 3,
    };
    // Scales by block take any layout of them, and at D 128 without a mask their code is 3% faster over few keys, 1% slower over 16,384.
    let plain = s.plain && !(s.head_dim == 128 && s.mask == Mask::Full && s.seqlen_k <= 2048);
    let serial = groups == 4; // their registers do not hold all scores of a tile
    let mut defines =
        vec![("WS_D", s.head_dim), ("WS_WGS", groups), ("WS_CAUSAL", s.causal()), ("WS_KEEP", 0), ("WS_POLY", 0)];
    let v_t = s.packed || transposes(s);
    // Consumers in turns: 2 to 8% faster causal and at D 256 (where V^T comes causal only), 1 to 2% slower elsewhere.
    if s.mask == Mask::Causal && !serial || s.head_dim == 256 && !v_t {
        defines.push(("WS_TURNS", 1));
    }
    // Shared memory and the card's power bound D 256, and power D 128: Q is read once for a tile instead of twice. V^T leaves room for twice.
    if s.head_dim == 256 || s.head_dim == 128 && s.mask == Mask::Full && !(v_t && s.seqlen_k > 2048) {
        defines.push(("WS_WIDE", 1));
    }
    if serial {
        defines.push(("WS_SERIAL", 1));
    }
    // Of few keys the largest weighs much, and is exact where it is the reference: one more tile's maxima are looked at.
    if s.mask == Mask::Full && s.seqlen_k <= 2048 {
        defines.push(("WS_LOOKS", 2));
    }
    defines.extend(layouts(s, plain));
    let ctas = tiles_of(groups).min(sms);
    let mut choice =
        Choice::new("forward", defines, [ctas, 1, 1], (groups + 1) * 128, forward_shared(s, groups, plain));
    choice.row_tiles = s.seqlen_q.div_ceil(64 * groups);
    choice.section = sections::section(s, groups, false, sms);
    choice.boxes = Some((64, 128));
    with_scratch(s, choice)
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

/// (tiles of keys, row tiles) of the SM that has most to do with so many consumers.
fn busiest(s: &Shape, groups: u32, sms: u32) -> (u64, u64) {
    let heads = s.heads_kv * s.group * s.batch;
    let of_rows = row_tiles(s, groups).div_ceil(sms);
    let of_keys = match s.mask {
        Mask::Full => u64::from(s.seqlen_k.div_ceil(128)) * u64::from(of_rows),
        Mask::Causal => {
            let lengths = sections::lengths(s, groups);
            if of_rows > 16 || drawn(s, groups, sms) {
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

/// How long the busiest SM works, in cycles.
fn forward_f16_cycles(s: &Shape, groups: u32, sms: u32) -> u64 {
    let of_keys = if groups == 2 { 1342 } else { 2055 };
    of_keys * busiest(s, groups, sms).0
}

/// Whether forward_f16.cu runs it: its weights are linear between powers of two, which outputs hardly see, and log-sum-exps would (3%).
fn takes_forward_f16(s: &Shape) -> bool {
    s.head_dim == 64 && (s.plain || s.packed) && !s.lse
}

/// Many queries over many keys at D 64, with scales of a whole head or packed values, and no log-sum-exp.
fn choose_forward_f16(s: &Shape, sms: u32) -> Choice {
    let groups = if forward_f16_cycles(s, 2, sms) <= forward_f16_cycles(s, 4, sms) { 2 } else { 4 };
    let mut defines = vec![("WS_D", 64), ("WS_WGS", groups), ("WS_CAUSAL", s.causal())];
    defines.extend(layouts(s, true));
    let ctas = row_tiles(s, groups).min(sms);
    let mut choice =
        Choice::new("forward_f16", defines, [ctas, 1, 1], (groups + 1) * 128, forward_f16_shared(groups, s.packed));
    choice.row_tiles = s.seqlen_q.div_ceil(64 * groups);
    choice.section = sections::section(s, groups, drawn(s, groups, sms), sms);
    choice.boxes = Some((64, 128));
    perhaps_drawn(s, groups, sms, choice)
}

/// Whether row tiles are drawn from a counter: where they are causal and of three rounds and more, by those kernels that stay fast so (D 256 gains nothing, and
/// three consumers at D 128 are serialised).
fn drawn(s: &Shape, groups: u32, sms: u32) -> bool {
    let takes = s.head_dim == 64 || s.head_dim == 128 && groups == 2;
    s.mask == Mask::Causal && s.plain && !s.packed && takes && row_tiles(s, groups) > 3 * sms
}

fn perhaps_drawn(s: &Shape, groups: u32, sms: u32, mut choice: Choice) -> Choice {
    if drawn(s, groups, sms) {
        choice.instance.defines.push(("WS_DRAWN", 1));
        choice.units = 1;
    }
    choice
}

/// Mirrors the shared-memory map of forward_e4m3.cu: slots of Q, of K, of V and of V^T (with ones behind), barriers, scales of tiles, and
/// what consumers are told of row tiles.
fn forward_e4m3_shared(s: &Shape, groups: u32, plain: bool) -> u32 {
    let (k, vt) = if s.head_dim == 256 { (3, 2) } else { (4, 4) };
    let tile = 128 * s.head_dim;
    let tiles = (k + if s.packed || transposes(s) { 0 } else { 2 }) * tile + vt * (tile + 1024);
    let scales = if plain && !s.packed { 0 } else { 64 };
    2 * 64 * groups * s.head_dim + tiles + 256 + scales + 2 * 32
}

/// How long the busiest SM works, in cycles: tiles of keys, and row tiles' starts and ends.
fn forward_e4m3_cycles(s: &Shape, groups: u32, sms: u32) -> u64 {
    // Without scales by block they take two tiles of keys at a time.
    let by_two = s.plain && !s.packed;
    let (of_keys, of_rows) = match (groups, by_two, s.mask) {
        (2, false, _) => (1710, 2400),
        (_, false, Mask::Full) => (2300, 3200),
        (_, false, Mask::Causal) => (2140, 2980),
        (2, true, Mask::Full) => (1580, 2400),
        (_, true, Mask::Full) => (2230, 3200),
        (2, true, Mask::Causal) => (1600, 2600),
        (_, true, Mask::Causal) => (2160, 3260),
    };
    let (tiles, row_tiles) = busiest(s, groups, sms);
    of_keys * tiles + of_rows * row_tiles
}

/// Whether forward_e4m3.cu runs it: it makes no log-sum-exp, and at D 256 takes V^T with scales of whole heads alone.
fn takes_forward_e4m3(s: &Shape) -> bool {
    !s.lse && (s.head_dim == 128 || s.head_dim == 256 && s.plain && transposes(s))
}

/// Its consumers: over V^T three are slower.
fn e4m3_groups(s: &Shape, sms: u32) -> u32 {
    let two = s.head_dim == 256 || s.mask == Mask::Full && s.plain && transposes(s);
    if two || forward_e4m3_cycles(s, 2, sms) <= forward_e4m3_cycles(s, 3, sms) { 2 } else { 3 }
}

/// Many queries over many keys at D 128, with any scales, packed or not, or at D 256 over V^T that is made before; no log-sum-exp.
/// `plain`: scales of whole heads, and so two tiles of keys at a time; else they may differ between blocks, and tiles come one by one.
fn choose_forward_e4m3(s: &Shape, groups: u32, plain: bool, sms: u32) -> Choice {
    let mut defines = vec![("WS_D", s.head_dim), ("WS_WGS", groups), ("WS_CAUSAL", s.causal())];
    defines.extend(layouts(s, plain));
    let ctas = row_tiles(s, groups).min(sms);
    let mut choice =
        Choice::new("forward_e4m3", defines, [ctas, 1, 1], (groups + 1) * 128, forward_e4m3_shared(s, groups, plain));
    choice.row_tiles = s.seqlen_q.div_ceil(64 * groups);
    choice.section = sections::section(s, groups, drawn(s, groups, sms), sms);
    choice.boxes = Some((64, 128));
    perhaps_drawn(s, groups, sms, with_scratch(s, choice))
}

/// Every card that is no Hopper: 64 packed rows to a CTA, keys in turn.
pub fn choose_portable(s: &Shape) -> Choice {
    let defines = vec![("WS_D", s.head_dim), ("WS_CAUSAL", s.causal())];
    let grid = [s.rows().div_ceil(64), s.heads_kv, s.batch];
    Choice::new("portable", defines, grid, 128, 3 * 64 * (s.head_dim + 8) * 2)
}
