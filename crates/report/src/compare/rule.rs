//! Rules of `--fail-if`: `slower-than 3%` and its like, as data in one table.

use super::pairs::Pair;
use super::{RuleResult, SpeedClass};
use serde::Serialize;

/// How a rule stands. `NotRun`: no pair has the figure, so it is neither held nor missed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RuleStatus {
    Held,
    Missed,
    NotRun,
}

/// One rule.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    text: String,
    kind: &'static Kind,
    limit: f64,
}

/// How much worse a pair got: None where it has no such figure. Shares (3% is 0.03) or plain numbers.
struct Kind {
    name: &'static str,
    percent: bool,
    worse: fn(&Pair) -> Option<f64>,
}

impl std::fmt::Debug for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for Kind {
    fn eq(&self, other: &Kind) -> bool {
        self.name == other.name
    }
}

static KINDS: [Kind; 6] = [
    // An ambiguous difference breaks no rule: it is none.
    Kind {
        name: "slower-than",
        percent: true,
        worse: |p| p.speed.as_ref().map(|s| if s.class == SpeedClass::Slower { 1.0 / s.ratio - 1.0 } else { 0.0 }),
    },
    Kind {
        name: "more-error-than",
        percent: true,
        worse: |p| p.rel_frobenius.map(|(a, b)| if a > 0.0 { b / a - 1.0 } else { f64::from(u8::from(b > 0.0)) }),
    },
    Kind {
        name: "more-work-than",
        percent: true,
        worse: |p| p.warp_instructions.map(|(a, b)| b as f64 / a.max(1) as f64 - 1.0),
    },
    Kind {
        name: "more-registers-than",
        percent: false,
        worse: |p| p.registers.map(|(a, b)| f64::from(b) - f64::from(a)),
    },
    Kind { name: "more-shared-than", percent: false, worse: |p| p.shared_bytes.map(|(a, b)| b as f64 - a as f64) },
    Kind {
        name: "more-spills-than",
        percent: false,
        worse: |p| p.spill_bytes.map(|(a, b)| f64::from(b) - f64::from(a)),
    },
];

impl Rule {
    /// # Errors
    /// What is wrong with the words, and which there are.
    pub fn parse(text: &str) -> Result<Rule, String> {
        let known = KINDS
            .iter()
            .map(|k| format!("`{} {}`", k.name, if k.percent { "3%" } else { "8" }))
            .collect::<Vec<_>>()
            .join(", ");
        let wrong = |why: &str| {
            format!("the rule `{}` cannot be read: {why}; there are {known}", text.chars().take(80).collect::<String>())
        };
        let mut words = text.split_whitespace();
        let (Some(name), Some(limit), None) = (words.next(), words.next(), words.next()) else {
            return Err(wrong("it has to be a name and a limit"));
        };
        let kind = KINDS.iter().find(|k| k.name == name).ok_or_else(|| wrong("its name is unknown"))?;
        let number = match (kind.percent, limit.strip_suffix('%')) {
            (true, Some(n)) => n,
            (true, None) => return Err(wrong("its limit has to be in percent")),
            (false, Some(_)) => return Err(wrong("its limit is a number, not in percent")),
            (false, None) => limit,
        };
        let value: f64 = number.parse().map_err(|_| wrong("its limit is no number"))?;
        if !(value.is_finite() && value >= 0.0) {
            return Err(wrong("its limit has to be zero or more"));
        }
        Ok(Rule { text: text.trim().into(), kind, limit: if kind.percent { value / 100.0 } else { value } })
    }

    pub(super) fn judge(&self, pairs: &[Pair]) -> RuleResult {
        let figures: Vec<(&Pair, f64)> = pairs.iter().filter_map(|p| Some((p, (self.kind.worse)(p)?))).collect();
        let broken_by: Vec<String> =
            figures.iter().filter(|(_, x)| *x > self.limit + 1e-12).map(|(p, _)| p.label()).collect();
        let status = match (figures.is_empty(), broken_by.is_empty()) {
            (true, _) => RuleStatus::NotRun,
            (_, true) => RuleStatus::Held,
            _ => RuleStatus::Missed,
        };
        RuleResult { rule: self.text.clone(), status, broken_by }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_and_wrong_ones_say_what_there_is() {
        for text in ["slower-than 3%", " more-registers-than 8", "more-error-than 0%", "more-work-than 1.5%"] {
            assert!(Rule::parse(text).is_ok(), "{text}");
        }
        for text in [
            "",
            "slower-than",
            "slower-than 3",
            "slower-than -3%",
            "slower-than x%",
            "faster-than 3%",
            "more-spills-than 3%",
            "slower-than 3% 4%",
            "slower-than NaN%",
        ] {
            let why = Rule::parse(text).unwrap_err();
            assert!(why.contains("slower-than 3%"), "{text}: {why}");
        }
    }
}
