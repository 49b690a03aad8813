//! The oracle: attention in f64, over all rows or the chosen ones.
//!
//! Scores, exponentials and sums are f64 throughout; the result's error is below 1e-12 relative, far under any
//! limit. Work is spread over cores by blocks of rows; each output is computed by one thread in a fixed order, so
//! the result has the same bits on every machine (`matmul`, `exp`). Knows no formats, only numbers and scales.

use super::exp::exp_f64;
use super::matmul::{Rows, multiply_f64};
use super::problem::{Operand, Problem, RowSet};
use rayon::prelude::*;

/// Keys in a packed panel.
const PANEL: usize = 64;
/// Scores that a block of rows may hold, so that they stay in the cache of one core.
const SCORES: usize = 1 << 16;

/// The outputs of the judged rows, head_dim numbers each, in the order of [`RowSet::iter`].
pub fn attention(p: &Problem, rows: &RowSet) -> Vec<f64> {
    attention_lse(p, rows).0
}

/// The same, and of each row the natural logarithm of its sum of exponentials, -inf where it sees no key.
pub fn attention_lse(p: &Problem, rows: &RowSet) -> (Vec<f64>, Vec<f64>) {
    let d = p.geometry.head_dim;
    let (mut out, mut lse) = (vec![0.0; rows.len() * d], vec![f64::NEG_INFINITY; rows.len()]);
    let (mut rest, mut rest_lse) = (out.as_mut_slice(), lse.as_mut_slice());
    for (head, list) in rows.heads.iter().enumerate() {
        let (mine, next) = std::mem::take(&mut rest).split_at_mut(list.len() * d);
        let (mine_lse, next_lse) = std::mem::take(&mut rest_lse).split_at_mut(list.len());
        (rest, rest_lse) = (next, next_lse);
        if list.is_empty() {
            continue;
        }
        let keys = Head::pack(p, p.geometry.key_head(head));
        let block = (SCORES / keys.padded).clamp(4, 32);
        mine.par_chunks_mut(block * d)
            .zip(mine_lse.par_chunks_mut(block))
            .zip(list.par_chunks(block))
            .for_each(|((out, lse), list)| keys.rows(p, head, list, out, lse));
    }
    (out, lse)
}

/// One head's keys and values in f64.
struct Head {
    /// Panels of [head_dim][PANEL] keys, the last padded with zeros.
    keys: Vec<f64>,
    /// [padded][head_dim]
    values: Vec<f64>,
    padded: usize,
}

impl Head {
    fn pack(p: &Problem, head: usize) -> Head {
        let g = p.geometry;
        let d = g.head_dim;
        let padded = g.seqlen_k.next_multiple_of(PANEL);
        let (mut keys, mut values) = (vec![0.0; padded * d], vec![0.0; padded * d]);
        let mean = |operand: &Operand, x: usize| operand.mean(d, head).map_or(0.0, |m| m[x] as f64);
        for token in 0..g.seqlen_k {
            let scale = p.k.scale(head, token) as f64;
            let panel = &mut keys[token / PANEL * PANEL * d..];
            for (x, &code) in p.k.row(g.seqlen_k, d, head, token).iter().enumerate() {
                panel[x * PANEL + token % PANEL] = code as f64 * scale + mean(&p.k, x);
            }
            let scale = p.v.scale(head, token) as f64;
            let row = p.v.row(g.seqlen_k, d, head, token);
            for (x, (to, &code)) in values[token * d..(token + 1) * d].iter_mut().zip(row).enumerate() {
                *to = code as f64 * scale + mean(&p.v, x);
            }
        }
        Head { keys, values, padded }
    }

    /// The outputs of a few rows of the head.
    fn rows(&self, p: &Problem, head: usize, rows: &[u32], out: &mut [f64], lse: &mut [f64]) {
        let g = p.geometry;
        let d = g.head_dim;
        let n = rows.len();
        let mut q = Vec::with_capacity(n * d);
        for &row in rows {
            let scale = p.q.scale(head, row as usize) as f64 * p.softmax_scale as f64;
            q.extend(p.q.row(g.seqlen, d, head, row as usize).iter().map(|&code| code as f64 * scale));
        }
        let seen = rows.iter().map(|&r| p.visible(head, r as usize)).max().unwrap_or(0);
        let panels = seen.div_ceil(PANEL);
        let width = panels * PANEL;
        if width == 0 {
            return;
        }
        let mut scores = vec![0.0; n * width];
        for panel in 0..panels {
            let b = Rows { data: &self.keys[panel * PANEL * d..], stride: PANEL };
            multiply_f64(&mut scores[panel * PANEL..], width, Rows { data: &q, stride: d }, b, n, PANEL, d);
        }
        for ((line, &row), lse) in scores.chunks_mut(width).zip(rows).zip(lse) {
            *lse = softmax(line, p.visible(head, row as usize));
        }
        for panel in 0..panels {
            let b = Rows { data: &self.values[panel * PANEL * d..], stride: d };
            multiply_f64(out, d, Rows { data: &scores[panel * PANEL..], stride: width }, b, n, d, PANEL);
        }
    }
}

/// Scores become weights; those past `seen` become zero. Gives the logarithm of the sum.
fn softmax(line: &mut [f64], seen: usize) -> f64 {
    let (mine, masked) = line.split_at_mut(seen);
    masked.fill(0.0);
    let top = mine.iter().fold(f64::NEG_INFINITY, |m, &x| if x > m { x } else { m });
    for x in mine.iter_mut() {
        *x -= top;
    }
    exp_f64(mine);
    let sum: f64 = mine.iter().sum();
    for x in mine.iter_mut() {
        *x /= sum;
    }
    if seen == 0 { f64::NEG_INFINITY } else { top + libm::log(sum) }
}
