//! The oracle: attention in f64, over all rows or the chosen ones.
//!
//! Scores, exponentials and sums are f64 throughout; the result's error is below 1e-12 relative, far under any
//! limit. Work is spread over cores by blocks of rows; each output is computed by one thread in a fixed order, so
//! the result has the same bits on every machine (`matmul`, `exp`). Knows no formats, only numbers and scales.

use super::exp::exp_f64;
use super::matmul::{Rows, multiply_f64};
use super::problem::{Problem, RowSet};
use rayon::prelude::*;

/// Keys in a packed panel.
const PANEL: usize = 64;
/// Scores that a block of rows may hold, so that they stay in the cache of one core.
const SCORES: usize = 1 << 16;

/// The outputs of the judged rows, head_dim numbers each, in the order of [`RowSet::iter`].
pub fn attention(p: &Problem, rows: &RowSet) -> Vec<f64> {
    let d = p.geometry.head_dim;
    let mut out = vec![0.0; rows.len() * d];
    let mut rest = out.as_mut_slice();
    for (head, list) in rows.heads.iter().enumerate() {
        let (mine, next) = std::mem::take(&mut rest).split_at_mut(list.len() * d);
        rest = next;
        if list.is_empty() {
            continue;
        }
        let keys = Head::pack(p, head);
        let block = (SCORES / keys.padded).clamp(4, 32);
        mine.par_chunks_mut(block * d)
            .zip(list.par_chunks(block))
            .for_each(|(out, list)| keys.rows(p, head, list, out));
    }
    out
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
        let padded = g.seqlen.next_multiple_of(PANEL);
        let (mut keys, mut values) = (vec![0.0; padded * d], vec![0.0; padded * d]);
        for token in 0..g.seqlen {
            let scale = p.k.scale(head, token) as f64;
            let panel = &mut keys[token / PANEL * PANEL * d..];
            for (x, &code) in p.k.row(g, head, token).iter().enumerate() {
                panel[x * PANEL + token % PANEL] = code as f64 * scale;
            }
            let scale = p.v.scale(head, token) as f64;
            for (to, &code) in values[token * d..(token + 1) * d].iter_mut().zip(p.v.row(g, head, token)) {
                *to = code as f64 * scale;
            }
        }
        Head { keys, values, padded }
    }

    /// The outputs of a few rows of the head.
    fn rows(&self, p: &Problem, head: usize, rows: &[u32], out: &mut [f64]) {
        let g = p.geometry;
        let d = g.head_dim;
        let n = rows.len();
        let mut q = Vec::with_capacity(n * d);
        for &row in rows {
            let scale = p.q.scale(head, row as usize) as f64 * p.softmax_scale as f64;
            q.extend(p.q.row(g, head, row as usize).iter().map(|&code| code as f64 * scale));
        }
        let seen = rows.iter().map(|&r| p.visible(r as usize)).max().unwrap_or(0);
        let panels = seen.div_ceil(PANEL);
        let width = panels * PANEL;
        let mut scores = vec![0.0; n * width];
        for panel in 0..panels {
            let b = Rows { data: &self.keys[panel * PANEL * d..], stride: PANEL };
            multiply_f64(&mut scores[panel * PANEL..], width, Rows { data: &q, stride: d }, b, n, PANEL, d);
        }
        for (line, &row) in scores.chunks_mut(width).zip(rows) {
            softmax(line, p.visible(row as usize));
        }
        for panel in 0..panels {
            let b = Rows { data: &self.values[panel * PANEL * d..], stride: d };
            multiply_f64(out, d, Rows { data: &scores[panel * PANEL..], stride: width }, b, n, d, PANEL);
        }
    }
}

/// Scores become weights; those past `seen` become zero.
fn softmax(line: &mut [f64], seen: usize) {
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
}
