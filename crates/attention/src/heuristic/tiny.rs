//! tiny.cu: one tile of keys for each CTA of a cluster, for launches that are bound by latencies.

use super::{Choice, MAX_SHARED, Shape, grid_fits};
use crate::problem::Mask;

/// By keys and consumers of a CTA: what launches take, in nanoseconds, 6 to 14% off (root of the mean square; H100, 2026-11-27).
struct Times {
    keys: u32,
    groups: u32,
    of_launch: u64,
    /// As many CTAs as the SMs hold at once.
    of_all: u64,
    /// One CTA on each SM, two, and so on, as they come beside full rounds.
    parts: &'static [u64],
    /// Percent of what one more on each SM takes that the first of them takes.
    jump: u64,
    /// Percent of these where heads come in groups, behind the mask, and in clusters of 8.
    grouped: u64,
    masked: u64,
    eight: u64,
    /// With a log-sum-exp.
    logs: u64,
}

const D64: &[Times] = &[
    Times {
        keys: 128,
        groups: 1,
        of_launch: 2290,
        of_all: 3780,
        parts: &[450, 1590, 2780, 2900],
        jump: 43,
        grouped: 110,
        masked: 105,
        eight: 100,
        logs: 103,
    },
    Times {
        keys: 256,
        groups: 1,
        of_launch: 2870,
        of_all: 4000,
        parts: &[710, 2360],
        jump: 65,
        grouped: 107,
        masked: 105,
        eight: 100,
        logs: 108,
    },
    Times {
        keys: 256,
        groups: 2,
        of_launch: 3780,
        of_all: 3510,
        parts: &[1220],
        jump: 26,
        grouped: 110,
        masked: 91,
        eight: 100,
        logs: 110,
    },
];
const D128: &[Times] = &[
    Times {
        keys: 128,
        groups: 1,
        of_launch: 2940,
        of_all: 5400,
        parts: &[800, 3120, 3750],
        jump: 18,
        grouped: 105,
        masked: 100,
        eight: 112,
        logs: 102,
    },
    Times {
        keys: 256,
        groups: 1,
        of_launch: 3630,
        of_all: 7740,
        parts: &[1180, 5680],
        jump: 64,
        grouped: 107,
        masked: 103,
        eight: 114,
        logs: 106,
    },
    Times {
        keys: 256,
        groups: 2,
        of_launch: 4580,
        of_all: 5300,
        parts: &[1800],
        jump: 0,
        grouped: 112,
        masked: 96,
        eight: 119,
        logs: 108,
    },
];
const D256: &[Times] = &[Times {
    keys: 64,
    groups: 1,
    of_launch: 3040,
    of_all: 5090,
    parts: &[850, 2980],
    jump: 25,
    grouped: 108,
    masked: 98,
    eight: 115,
    logs: 101,
}];

fn times(s: &Shape) -> &'static [Times] {
    match s.head_dim {
        64 => D64,
        128 => D128,
        _ => D256,
    }
}

/// Those that fit.
pub(super) fn choices(s: &Shape) -> Vec<Choice> {
    times(s).iter().filter_map(|t| choose(s, t.keys, t.groups)).collect()
}

/// About how long one of them takes, in nanoseconds.
pub(super) fn ns(s: &Shape, c: &Choice, sms: u32) -> u64 {
    let (keys, groups) = (c.instance.define("WS_KEYS"), c.instance.define("WS_WGS"));
    let Some(t) = times(s).iter().find(|t| t.keys == keys && t.groups == groups) else { return u64::MAX };
    let ctas = c.grid.iter().map(|n| u64::from(*n)).product::<u64>();
    // A cluster lies within one of the card's parts, and some SMs of each are left over.
    let sms = u64::from(if c.instance.define("WS_CTAS") >= 4 { sms * 10 / 11 } else { sms });
    let at_once = t.parts.len() as u64 * sms;
    let (full, rest) = ((ctas - 1) / at_once, (ctas - 1) % at_once + 1); // at least one is left
    let (whole, part) = ((rest / sms) as usize, rest % sms);
    let from = if whole == 0 { 0 } else { t.parts[whole - 1] };
    let to = t.parts.get(whole).copied().unwrap_or(0);
    let jump = if part > 0 && (full > 0 || whole > 0) { t.jump } else { 0 };
    let more = to.saturating_sub(from) * (jump * sms + (100 - jump) * part) / (100 * sms);
    let base = t.of_launch + full * t.of_all + from + more;
    let more = [
        if s.group > 1 { t.grouped } else { 100 },
        if s.mask == Mask::Causal { t.masked } else { 100 },
        if c.instance.define("WS_CTAS") == 8 { t.eight } else { 100 },
        if s.lse { t.logs } else { 100 },
    ];
    more.into_iter().fold(base, |ns, percent| ns * percent / 100)
}

/// With scales of a whole head, where that fits.
fn choose(s: &Shape, keys: u32, groups: u32) -> Option<Choice> {
    let d = s.head_dim;
    let ctas = [1, 2, 4, 8].into_iter().find(|n| n * keys >= s.seqlen_k).unwrap_or(8);
    if s.seqlen_k > keys * ctas || !(d / 16).is_multiple_of(ctas) || !grid_fits(s) {
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
    // Behind V^T: sums of weights that are made as codes.
    let ones = if s.lse || serial { 0 } else { 8 * keys };
    let shared = groups * 64 * d + 3 * keys * d + ones + groups * (d / 16 * 2048 + ctas * 512) + 128;
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
    } else if s.lse {
        defines.push(("WS_LSE", 1));
    }
    let grid = [s.rows().div_ceil(64 * groups) * ctas, s.heads_kv, s.batch];
    let mut choice = Choice::new("tiny", defines, grid, groups * 128, shared);
    choice.boxes = Some(if folded { (64, 128) } else { (64 * groups, keys) });
    Some(choice)
}
