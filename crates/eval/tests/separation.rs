//! The limits let honest kernels pass and refuse wrong ones, at every length from 32 to 65,536 keys.
//!
//! Rows are styles and mistakes; the kernels are emulated on the judged rows, as changes made to right results.
//! The figures that the limits come from say which mistakes which distribution can see; needles see them all.

use rayon::prelude::*;
use warpsmith_eval::attention::rounding::Weights;
use warpsmith_eval::attention::{
    Accumulation, Geometry, Operand, Problem, RowSet, Scales, Sight, Style, attention, honest,
};
use warpsmith_eval::draw::Source;
use warpsmith_eval::metrics::{Relative, relative};
use warpsmith_eval::rows;
use warpsmith_num::e4m3;
use warpsmith_spec::words::Distribution;

const SINGLE: Accumulation = Accumulation::Single;
const ADA: Accumulation = Accumulation::Narrow { chunk: 16, fold: 512 };

/// Multiply-adds of one kernel here; longer sequences are judged on some rows, as the pipeline does it.
const WORK: u128 = 1 << 25;

/// One workload with its oracle and limits.
struct Case {
    name: String,
    problem: Problem,
    rows: RowSet,
    oracle: Vec<f64>,
    limit: Relative,
}

impl Case {
    fn new(
        distribution: Distribution,
        seqlen: usize,
        head_dim: usize,
        causal: bool,
        accumulation: Accumulation,
        seed: u64,
    ) -> Case {
        let geometry = Geometry::square(1, seqlen, head_dim);
        let drawn = Source::new(seed, 0).attention(distribution, geometry, causal);
        let problem = Problem {
            geometry,
            sight: Sight::full(causal),
            softmax_scale: 1.0 / (head_dim as f32).sqrt(),
            q: quantised(&drawn.q),
            k: quantised(&drawn.k),
            v: quantised(&drawn.v),
        };
        let rows = rows::judged(geometry, &drawn.needles, WORK, 1);
        let oracle = attention(&problem, &rows);
        let base = relative(&wide(&honest(&problem, &rows, &Style::fp8(accumulation, -6))), &oracle, head_dim);
        let limit =
            Relative { frobenius: (2.0 * base.frobenius).max(0.0125), worst_row: (3.0 * base.worst_row).max(0.06) };
        let name =
            format!("{distribution}, {seqlen} keys, D {head_dim}, causal {causal}, {accumulation:?}, seed {seed}");
        Case { name, problem, rows, oracle, limit }
    }

    fn score(&self, got: &[f64]) -> f64 {
        relative(got, &self.oracle, self.problem.geometry.head_dim).score(self.limit)
    }

    fn run(&self, problem: &Problem, style: &Style) -> Vec<f64> {
        wide(&honest(problem, &self.rows, style))
    }

    fn changed(&self, change: impl FnOnce(&mut Problem)) -> Problem {
        let mut p = self.problem.clone();
        change(&mut p);
        p
    }
}

fn wide(x: &[f32]) -> Vec<f64> {
    x.iter().map(|&x| x as f64).collect()
}

fn quantised(x: &[f32]) -> Operand {
    let largest = x.iter().fold(0.0f32, |m, x| m.max(x.abs()));
    let scale = (largest / 448.0).max(1e-30);
    Operand {
        values: x.iter().map(|x| e4m3::to_f32(e4m3::from_f32(x / scale))).collect(),
        scales: Scales::Tensor(scale),
        means: Vec::new(),
    }
}

/// Ways to be right.
fn honest_styles(accumulation: Accumulation) -> Vec<(&'static str, Style)> {
    let base = Style::fp8(accumulation, -6);
    vec![
        ("P in f32", Style { weights: Weights::F32, offset: 0.0, accumulation: SINGLE, ..base }),
        ("P in f16", Style { weights: Weights::F16, offset: 0.0, accumulation: SINGLE, ..base }),
        ("P in bf16", Style { weights: Weights::Bf16, offset: 0.0, accumulation: SINGLE, ..base }),
        ("no offset", Style { offset: 0.0, ..base }),
        ("offset 4", Style { offset: 4.0, ..base }),
        ("tiles of 16", Style { tile: 16, ..base }),
        ("tiles of 256", Style { tile: 256, ..base }),
        ("sum of rounded P", Style { sum_rounded: true, ..base }),
        ("maximum known", Style { final_maximum: true, ..base }),
        ("f32 accumulation", Style { accumulation: SINGLE, ..base }),
    ]
}

/// A wrong kernel's result on a case, or None where the mistake does not exist at that size.
type Mistake = (&'static str, fn(&Case) -> Option<Vec<f64>>);

const MISTAKES: &[Mistake] = &[
    ("last key skipped", |c| Some(kept_keys(c, |key, n| key + 1 < n))),
    ("last 3% of the keys skipped", |c| {
        (c.problem.geometry.seqlen >= 64).then(|| kept_keys(c, |key, n| (key as f64) < n as f64 * 0.97))
    }),
    ("even keys only", |c| Some(kept_keys(c, |key, _| key % 2 == 0))),
    ("first half of the keys", |c| Some(kept_keys(c, |key, n| key < n / 2))),
    ("v_scale -25%", |c| Some(scaled(c, 0.75))),
    ("v_scale -5%", |c| Some(scaled(c, 0.95))),
    ("softmax scale x 0.5", |c| Some(c.run(&c.changed(|p| p.softmax_scale *= 0.5), &Style::fp8(SINGLE, -6)))),
    ("softmax scale x 0.9", |c| Some(c.run(&c.changed(|p| p.softmax_scale *= 0.9), &Style::fp8(SINGLE, -6)))),
    ("uniform weights", |c| Some(c.run(&c.changed(|p| p.softmax_scale = 0.0), &Style::fp8(SINGLE, -6)))),
    ("zeros", |c| Some(vec![0.0; c.oracle.len()])),
    ("half of D in Q.K", |c| {
        Some(c.run(
            &c.changed(|p| {
                let d = p.geometry.head_dim;
                p.q.values.iter_mut().enumerate().filter(|(i, _)| i % d >= d / 2).for_each(|(_, x)| *x = 0.0);
            }),
            &Style::fp8(SINGLE, -6),
        ))
    }),
    ("K in 4 bits", |c| {
        Some(c.run(
            &c.changed(|p| p.k.values.iter_mut().for_each(|x| *x = (*x / 64.0).round() * 64.0)),
            &Style::fp8(SINGLE, -6),
        ))
    }),
    ("P as powers of two", |c| {
        let g = c.problem.geometry;
        Some(by_row(c, |row, scores| {
            let top = scores.iter().fold(f64::MIN, |m, &x| m.max(x));
            let p: Vec<f64> = scores.iter().map(|s| (s - top).exp()).collect();
            let sum: f64 = p.iter().sum();
            let _ = row;
            weighted(c, g, p.iter().map(|p| if *p > 0.0 { p.log2().round().exp2() / sum } else { 0.0 }))
        }))
    }),
    ("one row never written", |c| {
        let d = c.problem.geometry.head_dim;
        let mut out = c.run(&c.problem, &Style::fp8(SINGLE, -6));
        let n = out.len();
        out[n - d..].fill(0.0);
        Some(out)
    }),
    ("last 2 of D never written", |c| {
        let d = c.problem.geometry.head_dim;
        let mut out = c.run(&c.problem, &Style::fp8(SINGLE, -6));
        out.iter_mut().enumerate().filter(|(i, _)| i % d >= d - 2).for_each(|(_, x)| *x = 0.0);
        Some(out)
    }),
    ("exp as 1 + x + x*x/2", |c| {
        let g = c.problem.geometry;
        Some(by_row(c, |_, scores| {
            let p: Vec<f64> = scores.iter().map(|s| (1.0 + s + s * s / 2.0).max(0.0)).collect();
            let sum: f64 = p.iter().sum();
            weighted(c, g, p.iter().map(|p| p / sum))
        }))
    }),
    ("window of 128 keys", |c| {
        let g = c.problem.geometry;
        (g.seqlen > 256).then(|| {
            by_row(c, |row, scores| {
                let inside = |key: usize| key.abs_diff(row) < 64;
                let top = scores.iter().enumerate().filter(|(k, _)| inside(*k)).fold(f64::MIN, |m, (_, &x)| m.max(x));
                let p: Vec<f64> =
                    scores.iter().enumerate().map(|(k, s)| if inside(k) { (s - top).exp() } else { 0.0 }).collect();
                let sum: f64 = p.iter().sum();
                weighted(c, g, p.iter().map(|p| p / sum))
            })
        })
    }),
];

/// Attention over some of the keys.
fn kept_keys(c: &Case, keep: impl Fn(usize, usize) -> bool + Sync) -> Vec<f64> {
    let g = c.problem.geometry;
    by_row(c, |_, scores| {
        let top = scores.iter().fold(f64::MIN, |m, &x| m.max(x));
        let p: Vec<f64> =
            scores.iter().enumerate().map(|(k, s)| if keep(k, g.seqlen) { (s - top).exp() } else { 0.0 }).collect();
        let sum: f64 = p.iter().sum::<f64>().max(1e-300);
        weighted(c, g, p.iter().map(|p| p / sum))
    })
}

fn scaled(c: &Case, factor: f64) -> Vec<f64> {
    c.run(&c.problem, &Style::fp8(SINGLE, -6)).iter().map(|x| x * factor).collect()
}

/// One output row at a time, from its scores.
fn by_row(c: &Case, f: impl Fn(usize, &[f64]) -> Vec<f64> + Sync) -> Vec<f64> {
    let p = &c.problem;
    let g = p.geometry;
    let rows: Vec<usize> = c.rows.iter().map(|(_, row)| row).collect();
    rows.par_iter()
        .flat_map_iter(|&row| {
            let scale = (p.q.scale(0, row) * p.k.scale(0, 0) * p.softmax_scale) as f64;
            let q = p.q.row(g.seqlen, g.head_dim, 0, row);
            let scores: Vec<f64> = (0..p.visible(0, row))
                .map(|key| {
                    p.k.row(g.seqlen, g.head_dim, 0, key).iter().zip(q).map(|(a, b)| a * b).sum::<f32>() as f64 * scale
                })
                .collect();
            f(row, &scores)
        })
        .collect()
}

fn weighted(c: &Case, g: Geometry, weights: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut out = vec![0.0f64; g.head_dim];
    for (key, w) in weights.enumerate() {
        for (o, v) in out.iter_mut().zip(c.problem.v.row(g.seqlen, g.head_dim, 0, key)) {
            *o += w * *v as f64;
        }
    }
    let scale = c.problem.v.scale(0, 0) as f64;
    out.iter().map(|x| x * scale).collect()
}

const SIZES: &[(usize, usize)] =
    &[(32, 64), (256, 64), (512, 64), (512, 128), (2048, 64), (4096, 128), (16384, 64), (65536, 64)];

#[test]
fn honest_kernels_pass_on_every_distribution() {
    let mut largest = (0.0, String::new());
    for &(seqlen, head_dim) in SIZES {
        for distribution in [
            Distribution::Needles,
            Distribution::Normal,
            Distribution::Outliers,
            Distribution::Peaked,
            Distribution::Shifted,
        ] {
            if seqlen > 2048 && distribution != Distribution::Needles {
                continue;
            }
            for accumulation in [SINGLE, ADA] {
                for causal in [false, true] {
                    if causal && seqlen != 256 && seqlen != 2048 {
                        continue;
                    }
                    let case = Case::new(distribution, seqlen, head_dim, causal, accumulation, 0);
                    // The narrow accumulator costs five times as much: every third style.
                    let step = if accumulation == SINGLE { 1 } else { 3 };
                    for (name, style) in honest_styles(accumulation).into_iter().step_by(step) {
                        let score = case.score(&case.run(&case.problem, &style));
                        assert!(score <= 1.0, "{name} is refused with {score:.2}: {}", case.name);
                        if score > largest.0 {
                            largest = (score, format!("{name}, {}", case.name));
                        }
                    }
                }
            }
        }
    }
    println!("the largest score of an honest kernel is {:.2}: {}", largest.0, largest.1);
}

#[test]
fn wrong_kernels_are_refused_on_needles_at_every_length() {
    let mut least = (f64::MAX, String::new());
    for &(seqlen, head_dim) in SIZES {
        for accumulation in [SINGLE, ADA] {
            let case = Case::new(Distribution::Needles, seqlen, head_dim, false, accumulation, 0);
            for (name, wrong) in MISTAKES {
                let Some(got) = wrong(&case) else { continue };
                let score = case.score(&got);
                assert!(score > 1.0, "{name} passes with {score:.2}: {}", case.name);
                if score < least.0 {
                    least = (score, format!("{name}, {}", case.name));
                }
            }
        }
    }
    println!("the least score of a wrong kernel is {:.2}: {}", least.0, least.1);
}
