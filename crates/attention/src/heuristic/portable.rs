//! The kernel for every card that is no Hopper: one for Ada and Blackwell, products in e4m3 (`ada`), another for the rest.

use super::{Choice, Shape};

/// Bytes of what CTAs that share keys leave.
const MOST_SCRATCH: u64 = 64 << 20;
/// That a stream's slot has in Python, beside the one that row tiles are drawn from.
const MOST_COUNTERS: u64 = 16_383;
const GRID: u64 = 65_535;
/// Whose largest scores and sums find room in shared memory at once (portable.cu).
const MOST_SHARES: u64 = 2048;

/// 64 packed rows to a CTA. Where these are few, CTAs share a row tile's keys.
pub fn choose_portable(s: &Shape, sms: u32, ada: bool) -> Choice {
    choice(s, sms, ada, units(s), &[])
}

/// The same where only the device knows lengths: of so many tokens one behind another, or in caches or pages.
pub fn choose_portable_lengths(s: &Shape, sms: u32, tokens_q: Option<u64>, ada: bool) -> Choice {
    let most = u64::from(s.batch) * row_tiles(s);
    let row_tiles =
        tokens_q.map_or(most, |tokens| most.min((tokens * u64::from(s.group)).div_ceil(64) + u64::from(s.batch)));
    choice(s, sms, ada, u64::from(s.heads_kv) * row_tiles, &[("WS_LENS", 1)])
}

fn row_tiles(s: &Shape) -> u64 {
    u64::from(s.rows().div_ceil(64))
}

fn units(s: &Shape) -> u64 {
    u64::from(s.batch) * u64::from(s.heads_kv) * row_tiles(s)
}

/// Where products are in e4m3 Q and two stages of K and V in bytes (portable_e4m3.cuh); else Q and a tile of K and V in halves, and K and V in bytes (portable_f16.cuh).
fn shared_bytes(width: u32, ada: bool) -> u32 {
    let keys = if width == 256 { 32 } else { 64 };
    if ada { (64 + 4 * keys) * width } else { (64 + 2 * keys) * (width + 8) * 2 + 2 * keys * width }
}

fn choice(s: &Shape, sms: u32, ada: bool, ctas: u64, more: &[(&'static str, u32)]) -> Choice {
    let mut defines = vec![("WS_D", s.head_dim), ("WS_CAUSAL", s.causal())];
    defines.extend(more);
    let (shares, rows) = (shares(s, sms, ada, ctas), u64::from(s.rows().min(64)));
    let grid = [row_tiles(s) as u32, s.heads_kv * shares, s.batch];
    let shared = u64::from(shares > 1) * units(s);
    Choice {
        tiles_per_worker: shares,
        partial_floats: shared * u64::from(shares) * rows * u64::from(s.head_dim + 4),
        units: shared as u32,
        ..Choice::new("portable", defines, grid, 128, shared_bytes(s.head_dim, ada))
    }
}

/// How many CTAs share a row tile's keys, of which `ctas` have some to do: as many as find room, each with a block of 128 keys; and no more than one CTA adds in the time that they save
/// (of few rows more). Fitted to 130 shapes and either kernel, up to seventeen numbers each, on an H200: 1.5% above the best in the geometric mean, most 1.19 (docs/ledger.md).
fn shares(s: &Shape, sms: u32, ada: bool, ctas: u64) -> u32 {
    let (rows, blocks) = (u64::from(s.rows().min(64)), u64::from(s.seqlen_k.div_ceil(128)));
    let of_sm = match s.head_dim {
        64 => 3 + u64::from(ada),
        _ => 2,
    };
    let room = u64::from(sms) * of_sm / ctas.max(1);
    let scratch = MOST_SCRATCH / (4 * units(s) * rows * u64::from(s.head_dim + 4));
    let most = [blocks, (192 * blocks / rows).isqrt(), MOST_SHARES, GRID / u64::from(s.heads_kv), scratch];
    let shares = most.into_iter().fold(room, u64::min);
    if shares <= 1 || units(s) > MOST_COUNTERS {
        return 1;
    }
    let of_one = blocks.div_ceil(shares);
    if rows > 16 && blocks - of_one < 2 + u64::from(ada) {
        return 1; // adding takes as long
    }
    blocks.div_ceil(of_one) as u32 // no more than have keys
}
