//! What is expected of a setting that was not tried, from those that were: a Gaussian process over log(cost).
//!
//! Two settings are alike by the product over the levers of 1 where they agree and a figure below 1 where not, which holds both a lever's
//! own effect and what pairs do together; each lever's figure is the likeliest one for what was seen, near [`UNLIKE`] while that is little.
//! The expected improvement ranks settings: it is large where the prediction is low or little is known.
//! Source: Jones, Schonlau, Welch, "Efficient Global Optimization" (1998). It knows levers and costs, nothing else.

use crate::solution::Levers;
use crate::state::State;
use std::collections::BTreeSet;

/// How alike two settings are that differ in one lever, before anything was seen; what it may become by lever; and how much it takes to
/// move it there, in log-likelihood.
const UNLIKE: f64 = 0.75;
const GRID: [f64; 6] = [0.4, 0.6, 0.75, 0.85, 0.93, 0.98];
const PRIOR: f64 = 0.5;
/// The latest observations from which that is learned, and how many there have to be.
const MAX_FIT: usize = 64;
const MIN_FIT: usize = 4;
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
    unlike: Unlike,
}

/// By lever, how alike two settings are that differ in it.
type Unlike = Vec<(String, f64)>;

impl<'a> Surrogate<'a> {
    /// From all solutions that were judged; those still to be judged are believed to be what is predicted of them, so that two of a batch
    /// do not try the same thing. None before one passed.
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
        let mut y: Vec<f64> = seen.iter().map(|(_, y)| y.unwrap_or(worst + FAILED)).collect();
        let mut rows: Vec<&Levers> = seen.iter().map(|(l, _)| *l).collect();
        let unlike = fit(&rows, &y);
        let pending = state.pending();
        if !pending.is_empty() {
            let known = Surrogate::with(rows.clone(), &y, unlike.clone());
            for id in pending {
                let levers = &state.solutions[id as usize].levers;
                y.push(known.predicted(levers));
                rows.push(levers);
            }
        }
        Some(Surrogate { best: y.iter().copied().fold(best, f64::min), ..Surrogate::with(rows, &y, unlike) })
    }

    fn with(rows: Vec<&'a Levers>, y: &[f64], unlike: Unlike) -> Surrogate<'a> {
        let n = y.len() as f64;
        let mean = y.iter().sum::<f64>() / n;
        // Before anything differed a spread of a fifth is supposed.
        let variance = (y.iter().map(|y| (y - mean) * (y - mean)).sum::<f64>() / n).max(0.04);
        let factor = cholesky(rows.len(), &|i, j| likeness(&unlike, rows[i], rows[j]));
        let centred: Vec<f64> = y.iter().map(|y| y - mean).collect();
        let weights = backward(&factor, &forward(&factor, &centred));
        Surrogate { rows, factor, weights, mean, variance, best: f64::INFINITY, unlike }
    }

    /// log(cost) that is expected.
    fn predicted(&self, levers: &Levers) -> f64 {
        self.mean
            + self.rows.iter().zip(&self.weights).map(|(row, w)| likeness(&self.unlike, row, levers) * w).sum::<f64>()
    }

    /// By how much log(cost) is expected to fall under the best seen.
    pub fn expected_improvement(&self, levers: &Levers) -> f64 {
        let k: Vec<f64> = self.rows.iter().map(|row| likeness(&self.unlike, row, levers)).collect();
        let mean = self.mean + k.iter().zip(&self.weights).map(|(k, w)| k * w).sum::<f64>();
        let explained: f64 = forward(&self.factor, &k).iter().map(|v| v * v).sum();
        let deviation = libm::sqrt((self.variance * (1.0 - explained)).max(1e-12));
        let z = (self.best - mean) / deviation;
        let density = libm::exp(-0.5 * z * z) / libm::sqrt(core::f64::consts::TAU);
        let share = 0.5 * libm::erfc(-z / core::f64::consts::SQRT_2);
        (self.best - mean) * share + deviation * density
    }
}

fn likeness(unlike: &Unlike, a: &Levers, b: &Levers) -> f64 {
    let differs = |name: &str| a.get(name) != b.get(name);
    unlike.iter().filter(|(name, _)| differs(name)).fold(1.0, |product, (_, u)| product * u)
}

/// How alike settings are by each lever, as the rows make it likeliest, beside a prior that holds it near [`UNLIKE`].
fn fit(rows: &[&Levers], y: &[f64]) -> Unlike {
    let names: BTreeSet<&String> = rows.iter().flat_map(|r| r.keys()).collect();
    let start: Unlike = names.into_iter().map(|n| (n.clone(), UNLIKE)).collect();
    let from = rows.len().saturating_sub(MAX_FIT);
    let (rows, y) = (&rows[from..], &y[from..]);
    if rows.len() < MIN_FIT {
        return start;
    }
    let mean = y.iter().sum::<f64>() / y.len() as f64;
    let centred: Vec<f64> = y.iter().map(|y| y - mean).collect();
    // In which levers two rows differ, a bit each.
    let bits = |a: &Levers, b: &Levers| {
        let differing = start.iter().take(64).enumerate().filter(|(_, (name, _))| a.get(name) != b.get(name));
        differing.fold(0u64, |bits, (at, _)| bits | 1 << at)
    };
    let differ: Vec<Vec<u64>> =
        rows.iter().enumerate().map(|(i, a)| rows[..i].iter().map(|b| bits(a, b)).collect()).collect();
    let price = |unlike: &Unlike| {
        let alike = |i: usize, j: usize| {
            let of = |at: usize| if differ[i][j] >> at & 1 == 1 { unlike[at].1 } else { 1.0 };
            (0..unlike.len().min(64)).map(of).product()
        };
        let factor = cholesky(rows.len(), &alike);
        let n = y.len() as f64;
        let explained: f64 = forward(&factor, &centred).iter().map(|v| v * v).sum();
        let volume: f64 = factor.iter().enumerate().map(|(i, line)| libm::log(line[i])).sum();
        let scale = |u: f64| libm::log(-libm::log(u));
        let far: f64 = unlike.iter().map(|(_, u)| (scale(*u) - scale(UNLIKE)) * (scale(*u) - scale(UNLIKE))).sum();
        n / 2.0 * libm::log((explained / n).max(1e-12)) + volume + PRIOR * far
    };
    let mut unlike = start.clone();
    let mut least = price(&unlike);
    for _ in 0..2 {
        for at in 0..unlike.len() {
            for u in GRID {
                let mut other = unlike.clone();
                other[at].1 = u;
                let found = price(&other);
                if found < least {
                    (least, unlike) = (found, other);
                }
            }
        }
    }
    unlike
}

/// Of the matrix with 1 and noise on its diagonal and `alike(i, j)`, i above j, beside it.
fn cholesky(n: usize, alike: &dyn Fn(usize, usize) -> f64) -> Vec<Vec<f64>> {
    let mut factor: Vec<Vec<f64>> = Vec::with_capacity(n);
    for i in 0..n {
        let mut line: Vec<f64> = Vec::with_capacity(i + 1);
        for (j, other) in factor.iter().enumerate() {
            let dot: f64 = line.iter().zip(other).map(|(a, b)| a * b).sum();
            line.push((alike(i, j) - dot) / other[j]);
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
