//! What the search minimises: a time from a GPU, or an estimate from the PTX machine's counters. Never one for the other.
//!
//! Both are lower for better; a gain is old / new, above 1 is faster. Comparing an estimate with a time is refused by giving no gain.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The unit of every estimate; there is no conversion to seconds.
pub const MODEL_CYCLES: &str = "model_cycles";

/// What a model makes of the PTX machine's counters. Not a time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// Geometric mean over the shapes.
    pub value: f64,
    /// [`MODEL_CYCLES`].
    pub unit: String,
    /// The device whose rates the model was given, by name: `L4`, `H100`.
    pub device: String,
    /// The model with its version.
    pub model: String,
    /// By shape and mask.
    pub shapes: BTreeMap<String, f64>,
}

/// A time on a GPU with the interval of its median.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ShapeTime {
    pub median_us: f64,
    pub low_us: f64,
    pub high_us: f64,
}

/// Times of one solution, taken in one run by one method.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Timed {
    /// Geometric mean over the shapes.
    pub time_us: f64,
    pub device: String,
    /// `graph_cold` | `graph_warm` | `event` | `eager`
    pub method: String,
    /// By shape and mask.
    pub shapes: BTreeMap<String, ShapeTime>,
}

/// The cost of a correct solution.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Score {
    Estimate(Estimate),
    Timed(Timed),
}

/// How much less one cost is than another, as old / new, with its interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Gain {
    pub ratio: f64,
    pub low: f64,
    pub high: f64,
}

impl Estimate {
    /// From the figures by shape. None where there are none, or one is not a positive number.
    pub fn new(device: &str, model: &str, shapes: BTreeMap<String, f64>) -> Option<Estimate> {
        let value = geometric_mean(shapes.values().copied())?;
        Some(Estimate { value, unit: MODEL_CYCLES.into(), device: device.into(), model: model.into(), shapes })
    }
}

impl Timed {
    /// From the times by shape. None where there are none, or one is not a positive number.
    pub fn new(device: &str, method: &str, shapes: BTreeMap<String, ShapeTime>) -> Option<Timed> {
        let time_us = geometric_mean(shapes.values().map(|s| s.median_us))?;
        Some(Timed { time_us, device: device.into(), method: method.into(), shapes })
    }
}

impl Score {
    /// The figure that is minimised; comparable only with scores of the same kind.
    pub fn value(&self) -> f64 {
        match self {
            Score::Estimate(e) => e.value,
            Score::Timed(t) => t.time_us,
        }
    }

    /// old / self over the shapes that both have. None between an estimate and a time, between estimates of different models or
    /// devices, and where no shape is common.
    pub fn gain_over(&self, old: &Score) -> Option<Gain> {
        let by_shape = self.gains_by_shape(old)?;
        let mean = |pick: fn(&Gain) -> f64| geometric_mean(by_shape.values().map(pick));
        Some(Gain { ratio: mean(|g| g.ratio)?, low: mean(|g| g.low)?, high: mean(|g| g.high)? })
    }

    /// [`Score::gain_over`] for each common shape.
    pub fn gains_by_shape(&self, old: &Score) -> Option<BTreeMap<String, Gain>> {
        let gains: BTreeMap<String, Gain> = match (self, old) {
            (Score::Estimate(new), Score::Estimate(old)) if (&new.model, &new.device) == (&old.model, &old.device) => {
                new.shapes
                    .iter()
                    .filter_map(|(shape, new)| {
                        let ratio = old.shapes.get(shape)? / new;
                        Some((shape.clone(), Gain { ratio, low: ratio, high: ratio }))
                    })
                    .collect()
            }
            (Score::Timed(new), Score::Timed(old)) if (&new.method, &new.device) == (&old.method, &old.device) => new
                .shapes
                .iter()
                .filter_map(|(shape, new)| {
                    let old = old.shapes.get(shape)?;
                    let gain = Gain {
                        ratio: old.median_us / new.median_us,
                        low: old.low_us / new.high_us,
                        high: old.high_us / new.low_us,
                    };
                    Some((shape.clone(), gain))
                })
                .collect(),
            _ => return None,
        };
        (!gains.is_empty()).then_some(gains)
    }
}

/// None of nothing, and of anything that is not positive and finite.
pub fn geometric_mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (mut sum, mut n) = (0.0, 0u32);
    for value in values {
        if !(value.is_finite() && value > 0.0) {
            return None;
        }
        sum += libm::log(value);
        n += 1;
    }
    (n > 0).then(|| libm::exp(sum / f64::from(n)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn estimate(device: &str, figures: &[(&str, f64)]) -> Score {
        let shapes = figures.iter().map(|(s, v)| ((*s).to_string(), *v)).collect();
        Score::Estimate(Estimate::new(device, "m/1", shapes).unwrap())
    }

    fn timed(figures: &[(&str, f64, f64, f64)]) -> Score {
        let shapes = figures
            .iter()
            .map(|(s, low_us, median_us, high_us)| {
                ((*s).to_string(), ShapeTime { median_us: *median_us, low_us: *low_us, high_us: *high_us })
            })
            .collect();
        Score::Timed(Timed::new("H200", "graph_cold", shapes).unwrap())
    }

    #[test]
    fn a_gain_is_old_by_new_over_the_common_shapes() {
        let old = estimate("L4", &[("tiny", 100.0), ("mission", 400.0), ("long", 1.0)]);
        let new = estimate("L4", &[("tiny", 50.0), ("mission", 50.0)]);
        let gain = new.gain_over(&old).unwrap();
        assert!((gain.ratio - 4.0).abs() < 1e-12 && gain.low == gain.ratio);
        assert!((old.gain_over(&new).unwrap().ratio - 0.25).abs() < 1e-12);
    }

    #[test]
    fn intervals_of_times_widen_the_gain() {
        let gain = timed(&[("tiny", 4.5, 5.0, 5.5)]).gain_over(&timed(&[("tiny", 9.0, 10.0, 11.0)])).unwrap();
        assert!((gain.ratio - 2.0).abs() < 1e-12);
        assert!((gain.low - 9.0 / 5.5).abs() < 1e-12 && (gain.high - 11.0 / 4.5).abs() < 1e-12);
    }

    #[test]
    fn what_cannot_be_compared_has_no_gain() {
        let l4 = estimate("L4", &[("tiny", 1.0)]);
        assert_eq!(l4.gain_over(&timed(&[("tiny", 1.0, 1.0, 1.0)])), None);
        assert_eq!(l4.gain_over(&estimate("H100", &[("tiny", 1.0)])), None);
        assert_eq!(l4.gain_over(&estimate("L4", &[("long", 1.0)])), None);
        assert!(Estimate::new("L4", "m/1", BTreeMap::from([("tiny".into(), 0.0)])).is_none());
    }
}
