//! The rules by which a correct solution is taken or left: pure functions over scores.

use crate::request::Rules;
use crate::score::{Gain, Score};

/// What the rules say of a correct solution against the one that was best.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Step {
    /// Better by enough, clear of noise: told to people.
    Announce(Gain),
    /// Better, clear of noise, by less: the search goes on from it.
    Move(Gain),
    /// Not better, or inside the noise.
    Stay(Gain),
    /// Slower by too much on too many shapes.
    Discard(Gain),
    /// The scores cannot be compared.
    Incomparable,
}

impl Step {
    pub fn is_better(&self) -> bool {
        matches!(self, Step::Announce(_) | Step::Move(_))
    }
}

/// `new` against the best so far.
pub fn against_best(rules: &Rules, new: &Score, best: &Score) -> Step {
    let Some(gain) = new.gain_over(best) else { return Step::Incomparable };
    if regresses(rules, new, best) {
        return Step::Discard(gain);
    }
    if gain.low <= 1.0 {
        return Step::Stay(gain);
    }
    if gain.ratio >= rules.announce { Step::Announce(gain) } else { Step::Move(gain) }
}

/// Whether it is slower than `parent` by more than the rules allow on as many shapes, each clear of noise.
pub fn regresses(rules: &Rules, new: &Score, parent: &Score) -> bool {
    let Some(gains) = new.gains_by_shape(parent) else { return false };
    let slower = gains.values().filter(|g| g.ratio < 1.0 / rules.regression && g.high < 1.0).count();
    slower >= rules.regression_shapes.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::score::{Estimate, ShapeTime, Timed};

    fn timed(rows: &[(f64, f64)]) -> Score {
        let shapes = rows
            .iter()
            .enumerate()
            .map(|(i, (t, noise))| {
                (format!("s{i}"), ShapeTime { median_us: *t, low_us: t * (1.0 - noise), high_us: t * (1.0 + noise) })
            })
            .collect();
        Score::Timed(Timed::new("H200", "graph_cold", shapes).unwrap())
    }

    #[test]
    fn small_gains_move_and_large_ones_are_announced() {
        let rules = Rules::default();
        let best = timed(&[(100.0, 0.001), (100.0, 0.001)]);
        for (new, want) in [
            (timed(&[(96.0, 0.001), (96.0, 0.001)]), "announce"),
            (timed(&[(99.0, 0.001), (99.0, 0.001)]), "move"),
            (timed(&[(96.0, 0.05), (96.0, 0.05)]), "stay"),
            (timed(&[(101.0, 0.001), (101.0, 0.001)]), "stay"),
            (timed(&[(120.0, 0.001), (120.0, 0.001)]), "discard"),
            (timed(&[(120.0, 0.001), (50.0, 0.001)]), "announce"),
        ] {
            let step = against_best(&rules, &new, &best);
            let word = match step {
                Step::Announce(_) => "announce",
                Step::Move(_) => "move",
                Step::Stay(_) => "stay",
                Step::Discard(_) => "discard",
                Step::Incomparable => "incomparable",
            };
            assert_eq!(word, want, "{new:?}");
        }
        let estimate = Estimate::new("L4", "m/1", [("s0".to_string(), 1.0)].into()).unwrap();
        assert_eq!(against_best(&rules, &Score::Estimate(estimate), &best), Step::Incomparable);
    }
}
