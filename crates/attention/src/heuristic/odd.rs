//! One tile of keys, or three, at head dimension 128 without a mask: steps of two tiles are not worth it.

use super::{Choice, Mask, Shape, choose_forward, choose_forward_e4m3, row_tiles};

/// Whether one tile after the other is faster: by up to 39% over one of them, 19% over three; of nine they are alike.
pub(super) fn takes(s: &Shape) -> bool {
    let alone = s.plain && !s.packed && !s.lse;
    s.head_dim == 128 && s.mask == Mask::Full && alone && s.seqlen_k <= 384 && s.seqlen_k.div_ceil(128) % 2 == 1
}

/// How long the busiest SM works, in cycles: three consumers of forward.cu, two of forward_e4m3.cu by one tile.
fn cycles(s: &Shape, sms: u32) -> [u64; 2] {
    let tiles = u64::from(s.seqlen_k.div_ceil(128));
    [(3, 2900, 3300), (2, 1840, 3085)]
        .map(|(groups, of_keys, of_rows)| u64::from(row_tiles(s, groups).div_ceil(sms)) * (of_keys * tiles + of_rows))
}

pub(super) fn least_cycles(s: &Shape, sms: u32) -> u64 {
    let [three, two] = cycles(s, sms);
    three.min(two)
}

pub(super) fn choose(s: &Shape, sms: u32) -> Choice {
    let [three, two] = cycles(s, sms);
    if three <= two { choose_forward(s, sms) } else { choose_forward_e4m3(s, 2, false, sms) }
}
