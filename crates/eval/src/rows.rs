//! Which query rows are judged: all where that is affordable, else a secret choice that covers every tile.
//!
//! The secret is drawn anew for each evaluation, after the candidate is known, so no candidate can be right on just
//! the rows that will be looked at. It does not know what the rows hold; rows that must be judged are given to it.

use crate::attention::{Geometry, RowSet, Sight};
use crate::draw::{Dice, Needle};

/// Multiply-adds that one oracle may cost: 2 x 8 x 2048 x 64 is done whole in a few seconds on two cores.
pub const ORACLE_WORK: u128 = 1 << 33;
/// Rows of the smallest tile in use; each such tile has a judged row, unless even that is too much work.
const TILE: usize = 16;

/// Every row, or one of each tile of 16 rows, chosen by `secret`, and the needles of each head's first and last key.
pub fn judged(g: Geometry, needles: &[Vec<Needle>], work: u128, secret: u64) -> RowSet {
    judged_of(g, &Sight::full(false), needles, work, secret)
}

/// The same of sequences with lengths of their own: the last row and the last key are those of each.
pub fn judged_of(g: Geometry, sight: &Sight, needles: &[Vec<Needle>], work: u128, secret: u64) -> RowSet {
    let all = g.heads * g.seqlen;
    if g.work(all) <= work {
        return RowSet::all(g).existing(g, sight);
    }
    let affordable = (work / g.work(1).max(1)).max(g.heads as u128) as usize;
    let mut tile = TILE;
    while g.heads * g.seqlen.div_ceil(tile) > affordable && tile < g.seqlen {
        tile *= 2;
    }
    let mut dice = Dice::new(secret, 0x726f_7773);
    let heads = (0..g.heads)
        .map(|head| {
            let mut rows: Vec<u32> =
                (0..g.seqlen).step_by(tile).map(|b| (b + dice.below(tile.min(g.seqlen - b))) as u32).collect();
            let length = sight.length(g, head);
            let (last, last_key) = (length.q.saturating_sub(1) as u32, length.k.saturating_sub(1) as u32);
            let edge = |n: &&Needle| n.key == 0 || n.key == last_key;
            rows.extend(needles.get(head).into_iter().flatten().filter(edge).map(|n| n.row));
            rows.push(last);
            rows.sort_unstable();
            rows.dedup();
            rows
        })
        .collect();
    RowSet { heads, all }.existing(g, sight)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::Source;
    use warpsmith_spec::words::Distribution;

    #[test]
    fn small_shapes_are_judged_whole() {
        let g = Geometry::square(16, 2048, 64);
        assert_eq!(judged(g, &[], ORACLE_WORK, 1).len(), 16 * 2048);
    }

    #[test]
    fn every_tile_of_a_large_shape_has_a_row_and_the_choice_is_secret() {
        let g = Geometry::square(64, 4096, 64);
        let a = judged(g, &[], ORACLE_WORK, 1);
        assert!(a.len() < 64 * 4096 / 15);
        for rows in &a.heads {
            for tile in 0..256u32 {
                assert!(rows.iter().any(|r| r / 16 == tile), "tile {tile}");
            }
        }
        assert_ne!(a, judged(g, &[], ORACLE_WORK, 2));
    }

    #[test]
    fn the_needle_of_the_last_key_is_always_judged() {
        let g = Geometry::square(2, 4096, 8);
        let needles = Source::new(0, 0).attention(Distribution::Needles, g, false).needles;
        let rows = judged(g, &needles, 1 << 22, 5);
        for (head, list) in rows.heads.iter().enumerate() {
            let needle = needles[head].iter().find(|n| n.key == 4095).expect("a needle for the last key");
            assert!(list.contains(&needle.row));
        }
    }
}
