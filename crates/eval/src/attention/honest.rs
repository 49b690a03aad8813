//! The honest kernel, emulated: attention as a careful low-precision kernel computes it, on the same rows as the oracle.
//!
//! Tiles of 64 keys, a running maximum, probabilities times 2^8 in e4m3 (or plain in f16), sums of the unrounded
//! probabilities, products in f32 or in the tensor core's narrow accumulator, which is added to an f32 one at least
//! every 512 keys. Its error against the oracle is the base of the limits. Source: the measurements that the limits
//! come from (relative limits separate right kernels from wrong ones on needles, 32 to 65,536 keys).

use super::exp::exp2_f32;
use super::matmul::{Rows, multiply_f32};
use super::narrow::{self, Factors};
use super::problem::{Problem, RowSet};
use super::rounding::Weights;
use rayon::prelude::*;

const PANEL: usize = 64;
/// Scores that a block of rows may hold.
const SCORES: usize = 1 << 17;

/// How the tensor core adds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Accumulation {
    /// In f32: f16 products on every GPU, FP8 products where they are widened to f16.
    Single,
    /// With 13 fractional bits, `chunk` products at once, added to an f32 accumulator every `fold` keys.
    Narrow { chunk: usize, fold: usize },
}

/// The choices an honest kernel has.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Style {
    pub weights: Weights,
    /// Probabilities are multiplied by 2^offset before they are rounded.
    pub offset: f32,
    /// Keys in a step.
    pub tile: usize,
    /// The row's sum adds rounded probabilities.
    pub sum_rounded: bool,
    /// The maximum is known before the first step.
    pub final_maximum: bool,
    pub accumulation: Accumulation,
    /// Smallest normal exponent of the inputs' format, for the narrow accumulator.
    pub smallest_exponent: i32,
}

impl Style {
    /// Probabilities in e4m3, times 2^8.
    pub fn fp8(accumulation: Accumulation, smallest_exponent: i32) -> Style {
        Style {
            weights: Weights::E4m3,
            offset: 8.0,
            tile: 64,
            sum_rounded: false,
            final_maximum: false,
            accumulation,
            smallest_exponent,
        }
    }

    /// Probabilities in f16, products in f32.
    pub fn f16() -> Style {
        Style {
            weights: Weights::F16,
            offset: 0.0,
            accumulation: Accumulation::Single,
            ..Style::fp8(Accumulation::Single, -6)
        }
    }
}

/// The outputs of the judged rows, in the order of [`RowSet::iter`].
pub fn honest(p: &Problem, rows: &RowSet, style: &Style) -> Vec<f32> {
    honest_lse(p, rows, style).0
}

/// The same, and each row's logarithm of its sum.
pub fn honest_lse(p: &Problem, rows: &RowSet, style: &Style) -> (Vec<f32>, Vec<f32>) {
    let d = p.geometry.head_dim;
    let (mut out, mut lse) = (vec![0.0; rows.len() * d], vec![f32::NEG_INFINITY; rows.len()]);
    let (mut rest, mut rest_lse) = (out.as_mut_slice(), lse.as_mut_slice());
    for (head, list) in rows.heads.iter().enumerate() {
        let (mine, next) = std::mem::take(&mut rest).split_at_mut(list.len() * d);
        let (mine_lse, next_lse) = std::mem::take(&mut rest_lse).split_at_mut(list.len());
        (rest, rest_lse) = (next, next_lse);
        if list.is_empty() {
            continue;
        }
        let keys = Head::pack(p, head, style);
        let block = (SCORES / keys.padded).clamp(4, 32);
        mine.par_chunks_mut(block * d)
            .zip(mine_lse.par_chunks_mut(block))
            .zip(list.par_chunks(block))
            .for_each(|((out, lse), list)| keys.rows(list, out, lse));
    }
    (out, lse)
}

/// One head's operands, as the kernel's shared memory would hold them.
struct Head<'a> {
    problem: &'a Problem,
    style: &'a Style,
    /// The query head, and its key head.
    head: usize,
    key_head: usize,
    /// Panels of [head_dim][PANEL] keys.
    keys: Factors,
    /// [padded][head_dim]
    values: Factors,
    /// softmax_scale * log2(e) * k's scale, for each key.
    key_scale: Vec<f32>,
    padded: usize,
}

/// Output rows in progress.
struct Running {
    /// The accumulator that the tensor core adds to, without v's scale.
    tensor: Vec<f32>,
    /// The f32 accumulator, with it.
    folded: Vec<f32>,
    /// Keys added to `tensor` since it was last folded, and their common scale of v.
    keys: usize,
    v_scale: f32,
}

impl Running {
    fn fold(&mut self) {
        for (to, from) in self.folded.iter_mut().zip(&mut self.tensor) {
            *to += *from * self.v_scale;
            *from = 0.0;
        }
        self.keys = 0;
    }
}

impl<'a> Head<'a> {
    fn pack(problem: &'a Problem, head: usize, style: &'a Style) -> Head<'a> {
        let g = problem.geometry;
        let d = g.head_dim;
        let key_head = g.key_head(head);
        let padded = g.seqlen_k.next_multiple_of(PANEL);
        let (mut keys, mut values) = (vec![0.0; padded * d], vec![0.0; padded * d]);
        let mut key_scale = vec![0.0; padded];
        for token in 0..g.seqlen_k {
            let panel = &mut keys[token / PANEL * PANEL * d..];
            for (x, &code) in problem.k.row(g.seqlen_k, d, key_head, token).iter().enumerate() {
                panel[x * PANEL + token % PANEL] = code;
            }
            values[token * d..(token + 1) * d].copy_from_slice(problem.v.row(g.seqlen_k, d, key_head, token));
            key_scale[token] = problem.softmax_scale * std::f32::consts::LOG2_E * problem.k.scale(key_head, token);
        }
        let smallest = style.smallest_exponent;
        Head {
            problem,
            style,
            head,
            key_head,
            keys: Factors::new(keys, smallest),
            values: Factors::new(values, smallest),
            key_scale,
            padded,
        }
    }

    fn rows(&self, rows: &[u32], out: &mut [f32], lse: &mut [f32]) {
        let g = self.problem.geometry;
        let (d, n, tile) = (g.head_dim, rows.len(), self.style.tile);
        let seen = rows.iter().map(|&r| self.problem.visible(self.head, r as usize)).max().unwrap_or(0);
        let width = seen.next_multiple_of(PANEL);
        if width == 0 {
            return;
        }
        let mut scores = self.scores(rows, width);
        let mut top: Vec<f32> = vec![f32::NEG_INFINITY; n];
        if self.style.final_maximum {
            top = scores.chunks(width).map(maximum).collect();
        }
        let mut sums = vec![0.0f32; n];
        let mut powers = vec![0.0f32; if self.narrow().is_some() { scores.len() } else { 0 }];
        let mut run = Running { tensor: vec![0.0; n * d], folded: vec![0.0; n * d], keys: 0, v_scale: 0.0 };
        for start in (0..width).step_by(tile) {
            let end = (start + tile).min(width);
            for r in 0..n {
                let line = &mut scores[r * width + start..r * width + end];
                let new = if self.style.final_maximum { top[r] } else { top[r].max(maximum(line)) };
                let keep = one_exp2(top[r] - new);
                top[r] = new;
                sums[r] *= keep;
                if keep != 1.0 {
                    for x in run.tensor[r * d..(r + 1) * d].iter_mut().chain(&mut run.folded[r * d..(r + 1) * d]) {
                        *x *= keep;
                    }
                }
                // A row that sees nothing yet has no maximum.
                let new = if new == f32::NEG_INFINITY { 0.0 } else { new };
                for x in line.iter_mut() {
                    *x = *x - new + self.style.offset;
                }
                exp2_f32(line);
                if !self.style.sum_rounded {
                    sums[r] += sum(line);
                }
                self.style.weights.round(line);
                if self.style.sum_rounded {
                    sums[r] += sum(line);
                }
                if !powers.is_empty() {
                    let at = r * width + start;
                    narrow::write_powers(&scores[at..r * width + end], &mut powers[at..r * width + end], -6);
                }
            }
            self.add_values(&scores, &powers, width, start..end, n, &mut run);
        }
        run.fold();
        for (r, (to, from)) in out.chunks_mut(d).zip(run.folded.chunks(d)).enumerate() {
            if top[r] == f32::NEG_INFINITY {
                continue;
            }
            for (to, from) in to.iter_mut().zip(from) {
                *to = from / sums[r];
            }
            lse[r] = (top[r] - self.style.offset + libm::log2f(sums[r])) * std::f32::consts::LN_2;
            self.add_means(rows[r] as usize, to, &mut lse[r]);
        }
    }

    /// What was taken out of v belongs to every weighted sum; what was taken out of k moves all scores of a row by one amount, which
    /// its logarithm of the sum alone shows.
    fn add_means(&self, row: usize, out: &mut [f32], lse: &mut f32) {
        let p = self.problem;
        let d = p.geometry.head_dim;
        if let Some(mean) = p.v.mean(d, self.key_head) {
            out.iter_mut().zip(mean).for_each(|(to, mean)| *to += mean);
        }
        if let Some(mean) = p.k.mean(d, self.key_head) {
            let dot: f32 = p.q.row(p.geometry.seqlen, d, self.head, row).iter().zip(mean).map(|(q, m)| q * m).sum();
            *lse += dot * p.q.scale(self.head, row) * p.softmax_scale;
        }
    }

    fn narrow(&self) -> Option<(usize, usize)> {
        match self.style.accumulation {
            Accumulation::Single => None,
            Accumulation::Narrow { chunk, fold } => Some((chunk, fold)),
        }
    }

    /// Scores in units of log2, minus infinity where the mask hides the key.
    fn scores(&self, rows: &[u32], width: usize) -> Vec<f32> {
        let g = self.problem.geometry;
        let (d, n) = (g.head_dim, rows.len());
        let mut q = Vec::with_capacity(n * d);
        for &row in rows {
            q.extend_from_slice(self.problem.q.row(g.seqlen, d, self.head, row as usize));
        }
        let mut scores = vec![0.0; n * width];
        let q = Factors::new(q, self.style.smallest_exponent);
        for panel in (0..width).step_by(PANEL) {
            let to = &mut scores[panel..];
            let at = panel * d;
            match self.narrow() {
                None => multiply_f32(
                    to,
                    width,
                    Rows { data: &q.values, stride: d },
                    Rows { data: &self.keys.values[at..], stride: PANEL },
                    n,
                    PANEL,
                    d,
                ),
                Some((chunk, _)) => {
                    let a = narrow::Operand { values: &q.values, powers: &q.powers, stride: d };
                    let b = narrow::Operand {
                        values: &self.keys.values[at..],
                        powers: &self.keys.powers[at..],
                        stride: PANEL,
                    };
                    narrow::multiply(to, width, a, b, n, PANEL, d, chunk)
                }
            }
        }
        for (line, &row) in scores.chunks_mut(width).zip(rows) {
            let q_scale = self.problem.q.scale(self.head, row as usize);
            for (x, scale) in line.iter_mut().zip(&self.key_scale) {
                *x *= scale * q_scale;
            }
            line[self.problem.visible(self.head, row as usize).min(width)..].fill(f32::NEG_INFINITY);
        }
        scores
    }

    /// Adds a tile's probabilities times its values, folding where the accumulator is full or v's scale changes.
    fn add_values(
        &self,
        weights: &[f32],
        powers: &[f32],
        width: usize,
        tile: std::ops::Range<usize>,
        n: usize,
        run: &mut Running,
    ) {
        let d = self.problem.geometry.head_dim;
        let mut at = tile.start;
        while at < tile.end.min(self.problem.geometry.seqlen_k) {
            let v_scale = self.problem.v.scale(self.key_head, at);
            let end = (at + PANEL - at % PANEL).min(tile.end);
            let full = self.narrow().is_some_and(|(_, fold)| run.keys + (end - at) > fold);
            if run.keys > 0 && (full || v_scale != run.v_scale) {
                run.fold();
            }
            run.v_scale = v_scale;
            run.keys += end - at;
            let k = end - at;
            match self.narrow() {
                None => {
                    let b = Rows { data: &self.values.values[at * d..], stride: d };
                    multiply_f32(&mut run.tensor, d, Rows { data: &weights[at..], stride: width }, b, n, d, k)
                }
                Some((chunk, _)) => {
                    let a = narrow::Operand { values: &weights[at..], powers: &powers[at..], stride: width };
                    let b = narrow::Operand {
                        values: &self.values.values[at * d..],
                        powers: &self.values.powers[at * d..],
                        stride: d,
                    };
                    narrow::multiply(&mut run.tensor, d, a, b, n, d, k, chunk)
                }
            }
            at = end;
        }
    }
}

fn maximum(line: &[f32]) -> f32 {
    line.iter().fold(f32::NEG_INFINITY, |m, &x| if x > m { x } else { m })
}

/// In eight partial sums, whatever the vector width.
fn sum(line: &[f32]) -> f32 {
    let mut lanes = [0.0f32; 8];
    for chunk in line.chunks(8) {
        for (lane, x) in lanes.iter_mut().zip(chunk) {
            *lane += x;
        }
    }
    lanes.iter().sum()
}

fn one_exp2(x: f32) -> f32 {
    let mut v = [x];
    exp2_f32(&mut v);
    // No maximum yet: there is nothing to keep.
    if x.is_nan() { 1.0 } else { v[0] }
}
