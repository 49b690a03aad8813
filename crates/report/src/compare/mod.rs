//! Two sides of a comparison: what got faster, slower, or cannot be told; what else changed. Pure functions of records.
//!
//! One definition: ratio = old time / new time, above 1 the new one is faster. It is made only of times by one method under equal
//! conditions; what differs is listed, and whoever calls refuses or is told to go on. A ratio inside the noise is AMBIGUOUS.
//! Limits: outputs are compared by their hashes, so of outputs that differ only a bound on the difference is known.

mod explained;
mod pairs;
mod rule;
mod speed;
mod text;

pub use explained::Explained;
pub use pairs::{Difference, Outputs, Pair, Side};
pub use rule::{Rule, RuleStatus};
pub use speed::{Speed, SpeedClass};
pub use text::comparison_text;

use serde::Serialize;
use warpsmith_spec::record::VerdictWord;

/// What there is to say of two sides.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    pub schema: &'static str,
    pub old: String,
    pub new: String,
    /// Conditions that differ; empty: what is compared is comparable.
    pub unequal: Vec<Difference>,
    pub pairs: Vec<Pair>,
    /// Results that only one side has.
    pub only_old: Vec<String>,
    pub only_new: Vec<String>,
    pub rules: Vec<RuleResult>,
}

/// A rule of `--fail-if` and what became of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RuleResult {
    pub rule: String,
    pub status: RuleStatus,
    /// Which pairs broke it.
    pub broken_by: Vec<String>,
}

impl Comparison {
    /// Compares, and judges the rules.
    pub fn of(old: &Side, new: &Side, rules: &[Rule]) -> Comparison {
        let (pairs, only_old, only_new, unequal) = pairs::pair_up(old, new);
        let rules = rules.iter().map(|r| r.judge(&pairs)).collect();
        Comparison {
            schema: "warpsmith.compare/1",
            old: old.name.clone(),
            new: new.name.clone(),
            unequal,
            pairs,
            only_old,
            only_new,
            rules,
        }
    }

    /// Pairs whose old side passed and whose new side does not.
    pub fn lost(&self) -> impl Iterator<Item = &Pair> {
        self.pairs.iter().filter(|p| p.old_verdict == VerdictWord::Passed && p.new_verdict != VerdictWord::Passed)
    }

    /// Nothing that passed is lost, and no rule is missed.
    pub fn holds(&self) -> bool {
        self.lost().next().is_none() && !self.rules.iter().any(|r| r.status == RuleStatus::Missed)
    }
}
