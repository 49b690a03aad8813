//! Old time / new time with an interval, and what may be said of it.

use crate::measured::{METHODS, Measured, Timing};
use serde::Serialize;

/// Resamples of the bootstrap, and samples that each side gives to it at most.
const RESAMPLES: usize = 1000;
const MAX_SAMPLES: usize = 256;
/// What is closer to 1 than this is noise whatever the samples say.
const LEAST_FLOOR: f64 = 0.01;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SpeedClass {
    Faster,
    Slower,
    Ambiguous,
}

impl SpeedClass {
    pub fn word(self) -> &'static str {
        match self {
            SpeedClass::Faster => "faster",
            SpeedClass::Slower => "slower",
            SpeedClass::Ambiguous => "AMBIGUOUS",
        }
    }
}

/// How the new time stands to the old one.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Speed {
    pub method: String,
    pub old_us: f64,
    pub new_us: f64,
    /// Old time / new time, with the interval that holds it with 95%.
    pub ratio: f64,
    pub ratio_low: f64,
    pub ratio_high: f64,
    /// What is within it of 1 is no difference.
    pub noise_floor: f64,
    pub class: SpeedClass,
    /// How the baselines that both sides timed moved (old / new): a device that changed, not a kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub baselines_moved: Option<f64>,
    /// Replayed for a test; no times.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub replayed: bool,
}

/// None where the sides have no method in common.
pub(super) fn speed(old: &Measured, new: &Measured) -> Option<Speed> {
    let preferred = old.method.iter().chain(&new.method).map(String::as_str);
    let method = preferred.chain(METHODS).find(|m| old.timing(m).is_some() && new.timing(m).is_some())?.to_string();
    let (a, b) = (old.timing(&method)?, new.timing(&method)?);
    let ratio = a.median_us / b.median_us;
    let (low, high) = interval(a, b);
    let moved = moved(old, new, &method);
    let floor = [spread(a), spread(b), moved.map_or(0.0, |m| (m - 1.0).abs())].into_iter().fold(LEAST_FLOOR, f64::max);
    let class = match () {
        () if low > 1.0 && ratio > 1.0 + floor => SpeedClass::Faster,
        () if high < 1.0 && ratio < 1.0 / (1.0 + floor) => SpeedClass::Slower,
        () => SpeedClass::Ambiguous,
    };
    Some(Speed {
        old_us: a.median_us,
        new_us: b.median_us,
        ratio,
        ratio_low: low,
        ratio_high: high,
        noise_floor: floor,
        class,
        baselines_moved: moved,
        replayed: old.replayed || new.replayed,
        method,
    })
}

/// The middle one of old / new of the baselines that both timed by this method.
fn moved(old: &Measured, new: &Measured, method: &str) -> Option<f64> {
    let time = |m: &Measured, name: &str| {
        m.baselines.iter().find(|b| b.name == name)?.timings.iter().find(|t| t.method == method).map(|t| t.median_us)
    };
    let mut found: Vec<f64> =
        old.baselines.iter().filter_map(|b| Some(time(old, &b.name)? / time(new, &b.name)?)).collect();
    found.sort_by(f64::total_cmp);
    found.get(found.len() / 2).copied()
}

/// How far the halves of one side's samples lie apart.
fn spread(t: &Timing) -> f64 {
    if t.samples.len() < 8 {
        return LEAST_FLOOR;
    }
    let (a, b) = t.samples.split_at(t.samples.len() / 2);
    let (a, b) = (median(&mut a.to_vec()), median(&mut b.to_vec()));
    (a / b - 1.0).abs()
}

/// Percentiles 2.5 and 97.5 of the ratio of resampled medians; where samples are missing, what the 10% and 90% marks allow.
fn interval(a: &Timing, b: &Timing) -> (f64, f64) {
    if a.samples.len() < 4 || b.samples.len() < 4 {
        let (low, high) = (a.p10_us / b.p90_us, a.p90_us / b.p10_us);
        return (low.min(high), low.max(high));
    }
    let (old, new) = (thinned(&a.samples), thinned(&b.samples));
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    let mut ratios: Vec<f64> =
        (0..RESAMPLES).map(|_| resampled(&old, &mut random) / resampled(&new, &mut random)).collect();
    ratios.sort_by(f64::total_cmp);
    (ratios[RESAMPLES / 40], ratios[RESAMPLES - 1 - RESAMPLES / 40])
}

fn thinned(samples: &[f64]) -> Vec<f64> {
    samples.iter().step_by(samples.len().div_ceil(MAX_SAMPLES)).copied().collect()
}

/// The median of as many samples drawn with replacement; the numbers are the same in every run.
fn resampled(samples: &[f64], random: &mut u64) -> f64 {
    let mut drawn: Vec<f64> = (0..samples.len())
        .map(|_| {
            // xorshift64* (Vigna 2016).
            *random ^= *random >> 12;
            *random ^= *random << 25;
            *random ^= *random >> 27;
            let high = random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
            samples[high as usize % samples.len()]
        })
        .collect();
    median(&mut drawn)
}

fn median(values: &mut [f64]) -> f64 {
    let at = values.len() / 2;
    *values.select_nth_unstable_by(at, f64::total_cmp).1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(center: f64, jitter: f64, baseline: Option<f64>) -> Measured {
        let samples: Vec<f64> =
            (0..64).map(|i| center * (1.0 + jitter * (f64::from(i * 37 % 64) / 64.0 - 0.5))).collect();
        let timing = |median_us: f64, samples: Vec<f64>| Timing {
            method: "graph_cold".into(),
            median_us,
            p10_us: median_us,
            p90_us: median_us,
            n: 64,
            samples,
        };
        let baselines = baseline
            .map(|b| crate::measured::Against {
                name: "sdpa:auto".into(),
                ratio: None,
                class: String::new(),
                timings: vec![timing(b, vec![])],
                missing: None,
            })
            .into_iter()
            .collect();
        Measured {
            device: None,
            method: None,
            conditions: vec![],
            timings: vec![timing(center, samples)],
            baselines,
            stability: None,
            replayed: false,
        }
    }

    #[test]
    fn classes_by_ratio_noise_and_drift() {
        let rows = [
            ("the same", 10.0, 10.0, 0.02, None, SpeedClass::Ambiguous),
            ("clearly faster", 10.0, 8.0, 0.02, None, SpeedClass::Faster),
            ("clearly slower", 8.0, 10.0, 0.02, None, SpeedClass::Slower),
            ("within a percent", 10.0, 9.93, 0.001, None, SpeedClass::Ambiguous),
            ("within the noise", 10.0, 9.8, 0.5, None, SpeedClass::Ambiguous),
            ("the device got faster, not the kernel", 10.0, 9.0, 0.02, Some((9.0, 8.0)), SpeedClass::Ambiguous),
        ];
        for (name, old, new, jitter, baselines, class) in rows {
            let s =
                speed(&measured(old, jitter, baselines.map(|b| b.0)), &measured(new, jitter, baselines.map(|b| b.1)))
                    .unwrap();
            assert_eq!(s.class, class, "{name}: {s:?}");
            assert!(s.ratio_low <= s.ratio * 1.001 && s.ratio <= s.ratio_high * 1.001, "{name}: {s:?}");
        }
    }

    #[test]
    fn methods_are_never_mixed() {
        let (a, mut b) = (measured(10.0, 0.01, None), measured(5.0, 0.01, None));
        b.timings[0].method = "eager".into();
        assert!(speed(&a, &b).is_none());
    }
}
