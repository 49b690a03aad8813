//! What samples amount to: quantiles, a ratio with its interval, the noise floor, the class. Pure functions of numbers.
//!
//! Intervals are percentile bootstraps over *rounds*: subjects are timed once in each round, so what disturbs a round disturbs both sides of
//! a ratio, and resampling whole rounds keeps them paired. Source: Efron and Tibshirani, An Introduction to the Bootstrap, chapter 13. The
//! same samples give the same interval: the resampling is seeded by a constant. Limit: below 3 rounds there is no interval, and a ratio
//! without one is ambiguous.

use super::lots::Lots;
use warpsmith_spec::record::TimesRecord;
use warpsmith_spec::task::Thresholds;

/// Samples of one subject by one method, round by round.
pub type Rounds = Vec<Vec<f64>>;

/// Resamplings of a bootstrap.
const RESAMPLED: usize = 400;
/// Rounds that an interval needs.
pub const FEWEST_ROUNDS: usize = 3;
/// What two times of the same thing may differ by in any case.
pub const LEAST_NOISE: f64 = 0.01;

/// The `p`-th part of sorted numbers, between neighbours by proportion; 0 where there is none.
pub fn quantile(sorted: &[f64], p: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    let at = p.clamp(0.0, 1.0) * last as f64;
    let below = at.floor() as usize;
    let above = (below + 1).min(last);
    sorted[below] + (sorted[above] - sorted[below]) * (at - below as f64)
}

/// The middle of numbers in any order; 0 where there is none.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    quantile(&sorted, 0.5)
}

/// Rounds as the record has them.
pub fn times(rounds: &Rounds) -> TimesRecord {
    let samples = rounds.concat();
    let mut sorted = samples.clone();
    sorted.sort_by(f64::total_cmp);
    TimesRecord {
        median_us: quantile(&sorted, 0.5),
        p10_us: quantile(&sorted, 0.1),
        p90_us: quantile(&sorted, 0.9),
        n: samples.len(),
        samples,
        rounds: rounds.len(),
    }
}

/// A figure and the interval that holds it with 95%.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    pub value: f64,
    /// Low and high; None with fewer rounds than an interval needs.
    pub interval: Option<(f64, f64)>,
}

impl Estimate {
    /// The interval's width, relative to the figure.
    pub fn width(&self) -> Option<f64> {
        self.interval.map(|(low, high)| (high - low) / self.value.abs().max(f64::MIN_POSITIVE))
    }
}

/// Baseline's median / ours, paired by round: only rounds that both have count.
pub fn ratio(baseline: &Rounds, ours: &Rounds) -> Option<Estimate> {
    let n = baseline.len().min(ours.len());
    let value = whole(&baseline[..n])? / whole(&ours[..n])?;
    estimate(value, n, |chosen| Some(pick(baseline, chosen)? / pick(ours, chosen)?))
}

/// Our median.
pub fn typical(ours: &Rounds) -> Option<Estimate> {
    estimate(whole(ours)?, ours.len(), |chosen| pick(ours, chosen))
}

fn estimate(value: f64, rounds: usize, figure: impl Fn(&[usize]) -> Option<f64>) -> Option<Estimate> {
    if !value.is_finite() {
        return None;
    }
    if rounds < FEWEST_ROUNDS {
        return Some(Estimate { value, interval: None });
    }
    let mut lots = Lots::new(0x0b00_7574);
    let mut chosen = vec![0; rounds];
    let mut found: Vec<f64> = (0..RESAMPLED)
        .filter_map(|_| {
            chosen.iter_mut().for_each(|c| *c = lots.below(rounds as u64) as usize);
            figure(&chosen).filter(|x| x.is_finite())
        })
        .collect();
    found.sort_by(f64::total_cmp);
    let interval =
        (!found.is_empty()).then(|| (quantile(&found, 0.025).min(value), quantile(&found, 0.975).max(value)));
    Some(Estimate { value, interval })
}

fn whole(rounds: &[Vec<f64>]) -> Option<f64> {
    let all = rounds.concat();
    (!all.is_empty()).then(|| median(&all)).filter(|m| *m > 0.0)
}

fn pick(rounds: &Rounds, chosen: &[usize]) -> Option<f64> {
    let all: Vec<f64> = chosen.iter().filter_map(|i| rounds.get(*i)).flatten().copied().collect();
    (!all.is_empty()).then(|| median(&all)).filter(|m| *m > 0.0)
}

/// How far the even rounds of a subject lie from its odd ones, relative: what two times of the same thing differ by here.
pub fn noise(rounds: &Rounds) -> f64 {
    let half = |odd: usize| rounds.iter().skip(odd).step_by(2).flatten().copied().collect::<Vec<f64>>();
    let (even, odd) = (half(0), half(1));
    if even.is_empty() || odd.is_empty() {
        return LEAST_NOISE;
    }
    let (a, b) = (median(&even), median(&odd));
    let apart = (a / b.max(f64::MIN_POSITIVE) - 1.0).abs();
    if apart.is_finite() { apart.max(LEAST_NOISE) } else { LEAST_NOISE }
}

/// The word for a ratio that is no difference as far as can be seen.
pub const AMBIGUOUS: &str = "ambiguous";

/// The class of a ratio: `ambiguous` where its interval holds 1, or it lies within the noise; else by the task's thresholds.
pub fn class(ratio: &Estimate, noise_floor: f64, thresholds: &Thresholds) -> &'static str {
    let within = (1.0 / (1.0 + noise_floor)..=1.0 + noise_floor).contains(&ratio.value);
    match ratio.interval {
        Some((low, high)) if !(low..=high).contains(&1.0) && !within => thresholds.class(ratio.value),
        _ => AMBIGUOUS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THRESHOLDS: Thresholds = Thresholds { excellent: 2.0, good: 1.5, modest: 1.1, parity: 0.9 };

    /// `n` rounds of 3 samples around `us`, apart by so much of it; every other round slower by `sway`.
    fn rounds(us: f64, spread: f64, sway: f64, n: usize) -> Rounds {
        let round = |i: usize| if i % 2 == 1 { us * (1.0 + sway) } else { us };
        (0..n).map(|i| [-1.0, 0.0, 1.0].map(|s| round(i) * (1.0 + spread * s)).to_vec()).collect()
    }

    #[test]
    fn quantiles_lie_between_neighbours() {
        let x = [1.0, 2.0, 3.0, 4.0, 5.0];
        for (p, want) in [(0.0, 1.0), (0.1, 1.4), (0.5, 3.0), (0.9, 4.6), (1.0, 5.0), (7.0, 5.0)] {
            assert!((quantile(&x, p) - want).abs() < 1e-12, "{p}");
        }
        assert_eq!((quantile(&[], 0.5), quantile(&[7.0], 0.9), median(&[4.0, 1.0])), (0.0, 7.0, 2.5));
    }

    #[test]
    fn times_keep_all_samples() {
        let t = times(&rounds(10.0, 0.1, 0.0, 4));
        assert_eq!((t.n, t.rounds, t.samples.len(), t.median_us), (12, 4, 12, 10.0));
        assert!(t.p10_us >= 9.0 && t.p10_us < 10.0 && t.p90_us > 10.0);
        assert_eq!(times(&Vec::new()), TimesRecord::default());
    }

    #[test]
    fn ratios_have_classes_only_outside_of_the_noise() {
        // (baseline us, our us, spread, sway, rounds, class)
        for (theirs, ours, spread, sway, n, class_) in [
            (20.0, 10.0, 0.001, 0.0, 10, "excellent"),
            (16.0, 10.0, 0.001, 0.0, 10, "good"),
            (12.0, 10.0, 0.001, 0.0, 10, "modest"),
            (10.5, 10.0, 0.001, 0.0, 10, "parity"),
            (5.0, 10.0, 0.001, 0.0, 10, "regression"),
            (10.0, 10.0, 0.001, 0.0, 10, "ambiguous"),
            (10.05, 10.0, 0.0, 0.0, 10, "ambiguous"),
            (20.0, 10.0, 0.001, 0.0, 2, "ambiguous"),
            (10.5, 10.0, 0.0, 0.2, 10, "ambiguous"),
        ] {
            let (b, o) = (rounds(theirs, spread, 0.0, n), rounds(ours, spread, sway, n));
            let r = ratio(&b, &o).expect("there are samples");
            let floor = noise(&b).max(noise(&o));
            assert_eq!(class(&r, floor, &THRESHOLDS), class_, "{theirs} / {ours}: {r:?} {floor}");
            if let Some((low, high)) = r.interval {
                assert!(low <= r.value && r.value <= high);
            }
        }
    }

    #[test]
    fn what_disturbs_a_round_disturbs_both_sides() {
        // Rounds differ by a factor of two, the ratio within each does not.
        let slow = |us: f64| (0..12).map(|i| vec![us * (1.0 + i as f64 / 12.0); 3]).collect::<Rounds>();
        let paired = ratio(&slow(15.0), &slow(10.0)).expect("there are samples");
        assert!(paired.width().expect("twelve rounds") < 1e-9, "{paired:?}");
        assert!(typical(&slow(10.0)).and_then(|t| t.width()).expect("twelve rounds") > 0.1);
    }

    #[test]
    fn intervals_narrow_with_more_rounds_and_repeat() {
        let noisy = |n: usize, seed: u64| {
            let mut lots = Lots::new(seed);
            (0..n).map(|_| (0..4).map(|_| 10.0 * (1.0 + 0.05 * lots.normal())).collect()).collect::<Rounds>()
        };
        let width = |n| ratio(&noisy(n, 1), &noisy(n, 2)).and_then(|r| r.width()).expect("rounds");
        assert!(width(100) < width(8) / 2.0, "{} {}", width(100), width(8));
        assert_eq!(width(8), width(8));
        // Equal things are told apart in at most one pair of twenty or so.
        let told = (0..60).filter(|i| {
            let (a, b) = (noisy(20, 100 + 2 * i), noisy(20, 101 + 2 * i));
            class(&ratio(&a, &b).expect("rounds"), noise(&a).max(noise(&b)), &THRESHOLDS) != AMBIGUOUS
        });
        assert!(told.count() <= 6);
    }

    #[test]
    fn no_samples_give_no_ratio() {
        assert_eq!(ratio(&Vec::new(), &rounds(1.0, 0.0, 0.0, 5)), None);
        assert_eq!(ratio(&vec![vec![0.0]; 5], &rounds(1.0, 0.0, 0.0, 5)), None);
        assert_eq!(noise(&Vec::new()), LEAST_NOISE);
    }
}
