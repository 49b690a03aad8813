//! Tensor maps without their addresses: what a kernel loads by boxes, as the problem and its choice say. Pure.

use crate::driver;
use crate::error::Error;
use crate::heuristic::{self, Choice};
use crate::params::TensorMap;
use crate::problem::{Lengths, Problem};

/// Keys of a tile of V^T.
const TILE: u64 = 128;

/// Sizes and box innermost first, strides in bytes from the second dimension on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MapShape {
    sizes: [u64; 4],
    strides: [u64; 3],
    boxes: [u32; 4],
}

impl MapShape {
    /// Of codes with those sizes and steps; a dimension of one element may have any step, and the driver wants a whole one.
    fn new(sizes: [u64; 4], steps: [i64; 3], boxes: [u32; 4]) -> MapShape {
        let whole =
            |(step, n): (i64, u64)| if n == 1 { (step.max(16) as u64).next_multiple_of(16) } else { step as u64 };
        let [a, b, c] = steps;
        let strides = [(a, sizes[1]), (b, sizes[2]), (c, sizes[3])].map(whole);
        MapShape { sizes, strides, boxes }
    }

    /// V^T in whole tiles, one of which is a box.
    fn made(head_dim: u32, heads: u32, tiles: u64, sequences: u32) -> MapShape {
        let (keys, head_dim, heads) = (TILE * tiles, u64::from(head_dim), u64::from(heads));
        MapShape {
            sizes: [keys, head_dim, heads, sequences.into()],
            strides: [keys, keys * head_dim, keys * head_dim * heads],
            boxes: [TILE as u32, head_dim as u32, 1, 1],
        }
    }

    pub fn encode(&self, address: u64) -> Result<TensorMap, Error> {
        driver::encode_bytes(address, self.sizes, self.strides, self.boxes)
    }
}

/// Those of one launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Maps {
    /// `None`: the kernel does not load queries by boxes.
    pub q: Option<MapShape>,
    pub k: MapShape,
    /// As attention takes it: V, or V^T.
    pub v: MapShape,
    /// V as it comes, where V^T is made of it.
    pub rows: MapShape,
}

impl Maps {
    /// `None` where the kernel takes none.
    pub fn new(p: &Problem, choice: &Choice) -> Option<Maps> {
        let (rows_q, rows_k) = choice.boxes?;
        let (few, width) = (choice.instance.define("WS_FEW") == 1, p.head_dim.min(128));
        let codes = |which: usize, [tokens, heads, outer]: [u64; 3], rows: u32| {
            let s = &p.strides[which];
            MapShape::new([p.head_dim.into(), tokens, heads, outer], [s.token, s.head, s.batch], [width, rows, 1, 1])
        };
        let heads = u64::from(p.heads_kv);
        let (of_q, of_k, keys) = match p.lengths {
            Lengths::Equal | Lengths::Used => {
                ([p.seqlen_q.into(), p.batch.into()], [p.seqlen_k.into(), heads, p.batch.into()], rows_k)
            }
            Lengths::Paged { page_size, pages, .. } => {
                ([p.seqlen_q.into(), p.batch.into()], [page_size.into(), heads, pages.into()], rows_k.min(page_size))
            }
            Lengths::Varlen { tokens_q, tokens_k } => ([tokens_q.into(), 1], [tokens_k.into(), heads, 1], rows_k),
        };
        let [queries, sequences]: [u64; 2] = of_q;
        let group = choice.group(p);
        let q = if p.wide_queries {
            None
        } else if few && heuristic::few_boxes(group) {
            // A box is 64 packed rows: whole groups of heads.
            let (s, heads_q) = (&p.strides[0], u64::from(p.heads_q));
            let sizes = [p.head_dim.into(), heads_q, queries, sequences];
            Some(MapShape::new(sizes, [s.head, s.token, s.batch], [width, group, 64 / group, 1]))
        } else if p.lengths == Lengths::Equal {
            Some(codes(0, [queries, p.heads_q.into(), sequences], rows_q))
        } else {
            None
        };
        let (k, rows) = (codes(1, of_k, keys), codes(2, of_k, keys));
        let tiles = u64::from(p.seqlen_k).div_ceil(TILE);
        let v = match p.lengths {
            Lengths::Equal if !(p.packed_values || choice.transposes) => rows,
            Lengths::Varlen { tokens_k, .. } if choice.transposes => {
                MapShape::made(p.head_dim, p.heads_kv, u64::from(tokens_k) / TILE + u64::from(p.batch), 1)
            }
            _ if p.packed_values || choice.transposes => MapShape::made(p.head_dim, p.heads_kv, tiles, p.batch),
            _ => rows,
        };
        Some(Maps { q, k, v, rows })
    }
}
