//! Which kernel runs a problem, with which levers and which grid: pure functions of the shape.
//!
//! `python/warpsmith/attention/_heuristic.py` is the same in Python, for checkouts without this library; `tests/choices.tsv` holds what both
//! must give, and each side's tests compare with it. Figures behind the choices: docs/ledger.md.

mod decode;
mod few;
mod lengths;
mod many;
mod portable;
mod sections;
mod tiny;
mod tokens;

pub(crate) use few::boxes as few_boxes;
pub use lengths::choose_lengths;
pub(crate) use lengths::{instances as lengths_instances, transposition as lengths_transposition};
pub use many::transposition;
pub use portable::{choose_portable, choose_portable_lengths};
pub use tokens::choose_varlen;

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
    /// Weights may be linear between powers of two.
    pub fast: bool,
    /// How many of `heads_kv` have one head of K and V: 1, but for few.cuh's row tiles of one query head each (`few::heads_apart`).
    pub shared: u32,
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
            mask: if p.seqlen_q == 1 { Mask::Full } else { p.mask }, // the last query sees all keys
            plain: p.plain_scales(),
            packed: p.packed_values,
            lse: false,
            wide: p.wide_queries,
            fast: p.fast,
            shared: 1,
        }
    }
}

impl Shape {
    /// One query over one key, at head dimension 64: a shape to change.
    pub(crate) fn of_one() -> Shape {
        Shape {
            batch: 1,
            heads_kv: 1,
            group: 1,
            seqlen_q: 1,
            seqlen_k: 1,
            head_dim: 64,
            mask: Mask::Full,
            plain: true,
            packed: false,
            lse: false,
            wide: false,
            fast: false,
            shared: 1,
        }
    }

    /// Query rows of a key head.
    fn rows(&self) -> u32 {
        self.group * self.seqlen_q
    }

    /// Those of K and V.
    fn kv_heads(&self) -> u32 {
        self.heads_kv / self.shared
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
    /// ragged.cu: shares of keys. few.cuh: query heads that have one head of K and V, where row tiles are of one query head each.
    pub splits: u32,
}

impl Choice {
    /// Query heads of a row tile.
    pub(crate) fn group(&self, problem: &Problem) -> u32 {
        if self.instance.define("WS_FEW") == 1 && self.splits > 1 { 1 } else { problem.group() }
    }

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
            splits: 1,
        }
    }
}

/// The kernel that we would run on a Hopper device of so many SMs: what is thought to take least time. Packed V is taken by those for many
/// queries over many keys alone; [`packed_fits`] says where that is what to run.
pub fn choose(s: &Shape, sms: u32) -> Choice {
    choose_with(s, sms, true)
}

/// `few`: few.cuh may.
fn choose_with(s: &Shape, sms: u32, few: bool) -> Choice {
    let many = || many::choose(s, sms);
    if s.packed {
        return many().1;
    }
    let rows = s.rows();
    if let Some(choice) = decode::spread(s, sms) {
        return choice;
    }
    let mut found: Vec<(u64, Choice)> = Vec::new();
    if s.plain {
        found.extend(tiny::choices(s).into_iter().map(|choice| (tiny::ns(s, &choice, sms), choice)));
    }
    if rows <= 256 {
        found.push(decode::choose(s, sms));
    }
    if splits(s) {
        let choice = choose_split(s);
        found.push((split_ns(s, &choice, sms) * 110 / 100, choice));
    }
    if few && few::takes(s, sms) {
        let (ns, choice) = few::choose(s, sms);
        // Of few rows decode.cu reads as fast, and its error is less; of many the others' order of work is the better one.
        let percent = match rows {
            0..=8 => 112,
            9..=16 if s.head_dim == 64 => 112,
            257.. if s.plain => 108,
            _ => 100,
        };
        found.push((ns * percent / 100, choice));
    }
    if rows > 16 {
        found.push(many());
    }
    let fastest = found.into_iter().min_by_key(|(ns, _)| *ns); // the first of equal ones
    fastest.map_or_else(|| many().1, |(_, choice)| choice)
}

/// Whatever [`choose`] may give for problems like this one: which it is depends on times, and a build has all.
pub(crate) fn candidates(s: &Shape, sms: u32) -> Vec<Choice> {
    let mut found = many::candidates(s, sms);
    if s.packed {
        return found;
    }
    found.extend(few::candidates(s, sms));
    found.extend(decode::candidates(s, sms));
    if s.plain {
        found.extend(tiny::choices(s));
    }
    if splits(s) {
        found.push(choose_split(s));
    }
    found
}

/// Whether a grid may have sequences and heads of K and V as its third and second dimensions.
fn grid_fits(s: &Shape) -> bool {
    s.batch.max(s.heads_kv) <= 65_535
}

/// Whether split.cu may run it: scales by block, which tiny.cu does not take, over few keys.
fn splits(s: &Shape) -> bool {
    !s.plain && s.seqlen_k <= 1024 && grid_fits(s)
}

/// Bytes of K and V.
fn cache_bytes(s: &Shape) -> u64 {
    2 * u64::from(s.batch * s.heads_kv) * u64::from(s.seqlen_k) * u64::from(s.head_dim)
}

/// Bytes of K and V in a nanosecond that all SMs get from an H100's memory.
const MEMORY_RATE: u64 = 2900;

/// About how long [`choose_split`]'s takes, in nanoseconds, with scales by block: rounds of CTAs, each warpgroup's tiles of keys one after the other.
fn split_ns(s: &Shape, c: &Choice, sms: u32) -> u64 {
    let (begin, of_rows, of_keys) = match (s.head_dim, c.instance.define("WS_KEYS")) {
        (64, 64) => (0, 1530, 2070),
        (64, _) => (2000, 2200, 2750),
        (128, _) => (0, 5650, 2400),
        _ => (0, 3550, 2320),
    };
    let ctas = c.grid.iter().product::<u32>();
    let tiles = s.seqlen_k.div_ceil(c.instance.define("WS_KEYS") * c.instance.define("WS_WGS"));
    let whole = begin
        + u64::from(ctas.div_ceil(sms)) * (of_rows + of_keys * u64::from(tiles))
        + cache_bytes(s) / MEMORY_RATE / 3;
    // A round that is not full.
    if s.head_dim == 64 && ctas <= sms { whole + 20 * u64::from(ctas) - 300 } else { whole }
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
