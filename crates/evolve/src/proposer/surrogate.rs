//! What is expected of a setting that was not tried, from those that were: a Gaussian process over log(cost).
//!
//! Two settings are alike by the product over the levers of 1 where they agree and [`UNLIKE`] where not, which holds both a lever's own
//! effect and what pairs do together. The expected improvement ranks settings: it is large where the prediction is low or little is known.
//! Source: Jones, Schonlau, Welch, "Efficient Global Optimization" (1998). It knows levers and costs, nothing else.

use crate::solution::Levers;
use crate::state::State;

/// How alike two settings are that differ in one lever.
const UNLIKE: f64 = 0.75;
/// Variance of noise as a share of the variance of what was seen: costs repeat to a percent.
const NOISE: f64 = 1e-3;
/// Observations that are used at most; the latest.
const MAX_ROWS: usize = 256;
/// log(cost) that a setting is given that did not pass: so much above the worst that was seen.
const FAILED: f64 = core::f64::consts::LN_2;

pub struct Surrogate<'a> {
    rows: Vec<&'a Levers>,
    /// Lower triangle of the Cholesky factor of the rows' covariance, row by row.
    factor: Vec<Vec<f64>>,
    /// covariance^-1 (y - mean).
    weights: Vec<f64>,
    mean: f64,
    variance: f64,
    best: f64,
}

impl<'a> Surrogate<'a> {
    /// From all solutions of the start's text that were judged. None before one passed.
    pub fn of(state: &'a State) -> Option<Surrogate<'a>> {
        let mut seen: Vec<(&Levers, Option<f64>)> = state
            .solutions
            .iter()
            .filter(|s| state.judged.contains_key(&s.id))
            .map(|s| (&s.levers, state.score(s.id).map(|score| libm::log(score.value()))))
            .collect();
        seen.drain(..seen.len().saturating_sub(MAX_ROWS));
        let passed: Vec<f64> = seen.iter().filter_map(|(_, y)| *y).collect();
        let worst = passed.iter().copied().reduce(f64::max)?;
        let best = passed.iter().copied().reduce(f64::min)?;
        let y: Vec<f64> = seen.iter().map(|(_, y)| y.unwrap_or(worst + FAILED)).collect();
        let n = y.len() as f64;
        let mean = y.iter().sum::<f64>() / n;
        // Before anything differed a spread of a fifth is supposed.
        let variance = (y.iter().map(|y| (y - mean) * (y - mean)).sum::<f64>() / n).max(0.04);
        let rows: Vec<&Levers> = seen.iter().map(|(l, _)| *l).collect();
        let factor = cholesky(&rows);
        let centred: Vec<f64> = y.iter().map(|y| y - mean).collect();
        let weights = backward(&factor, &forward(&factor, &centred));
        Some(Surrogate { rows, factor, weights, mean, variance, best })
    }

    /// By how much log(cost) is expected to fall under the best seen.
    pub fn expected_improvement(&self, levers: &Levers) -> f64 {
        let k: Vec<f64> = self.rows.iter().map(|row| likeness(row, levers)).collect();
        let mean = self.mean + k.iter().zip(&self.weights).map(|(k, w)| k * w).sum::<f64>();
        let explained: f64 = forward(&self.factor, &k).iter().map(|v| v * v).sum();
        let deviation = libm::sqrt((self.variance * (1.0 - explained)).max(1e-12));
        let z = (self.best - mean) / deviation;
        let density = libm::exp(-0.5 * z * z) / libm::sqrt(core::f64::consts::TAU);
        let share = 0.5 * libm::erfc(-z / core::f64::consts::SQRT_2);
        (self.best - mean) * share + deviation * density
    }
}

fn likeness(a: &Levers, b: &Levers) -> f64 {
    b.iter().filter(|(name, value)| a.get(*name) != Some(value)).fold(1.0, |product, _| product * UNLIKE)
}

fn cholesky(rows: &[&Levers]) -> Vec<Vec<f64>> {
    let mut factor: Vec<Vec<f64>> = Vec::with_capacity(rows.len());
    for (i, row) in rows.iter().enumerate() {
        let mut line: Vec<f64> = Vec::with_capacity(i + 1);
        for (j, other) in rows[..i].iter().enumerate() {
            let dot: f64 = line.iter().zip(&factor[j]).map(|(a, b)| a * b).sum();
            line.push((likeness(row, other) - dot) / factor[j][j]);
        }
        let dot: f64 = line.iter().map(|a| a * a).sum();
        line.push(libm::sqrt((1.0 + NOISE - dot).max(NOISE * 0.1)));
        factor.push(line);
    }
    factor
}

/// factor^-1 y.
fn forward(factor: &[Vec<f64>], y: &[f64]) -> Vec<f64> {
    let mut x: Vec<f64> = Vec::with_capacity(y.len());
    for (line, y) in factor.iter().zip(y) {
        let dot: f64 = line.iter().zip(&x).map(|(a, b)| a * b).sum();
        x.push((y - dot) / line[x.len()]);
    }
    x
}

/// factor^-T y.
fn backward(factor: &[Vec<f64>], y: &[f64]) -> Vec<f64> {
    let n = y.len();
    let mut x = vec![0.0; n];
    for i in (0..n).rev() {
        let dot: f64 = (i + 1..n).map(|k| factor[k][i] * x[k]).sum();
        x[i] = (y[i] - dot) / factor[i][i];
    }
    x
}
