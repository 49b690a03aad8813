//! Budgets and what was spent of them. Failed parses and empty answers are calls, not evaluations; duplicates are neither.
//!
//! Some limits end the loop at once; those of asking (calls, tokens, dollars) end the asking, and what was paid for is still judged.

use serde::{Deserialize, Serialize};

/// Limits of a loop; what is not set is not limited, but evaluations always are.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Budget {
    pub evaluations: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usd: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_seconds: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// Fixer turns of the whole loop; reaching it ends the mending, not the loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fixes: Option<u64>,
}

/// Where only other limits are given.
const DEFAULT_EVALUATIONS: u64 = 40;
/// More than any search here needs; a typing error is likelier.
const MAX_EVALUATIONS: u64 = 1_000_000;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "--budget {text:?}: {why}; write a number of evaluations, or evaluations=40,calls=30,tokens=200000,usd=5,gpu_seconds=600,seconds=3600"
)]
pub struct BudgetError {
    pub text: String,
    pub why: String,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget {
            evaluations: DEFAULT_EVALUATIONS,
            calls: None,
            tokens: None,
            usd: None,
            gpu_seconds: None,
            seconds: None,
            fixes: None,
        }
    }
}

impl std::str::FromStr for Budget {
    type Err = BudgetError;

    fn from_str(text: &str) -> Result<Budget, BudgetError> {
        let wrong = |why: String| BudgetError { text: text.to_string(), why };
        let whole = |name: &str, value: &str| {
            value.parse::<u64>().map_err(|_| wrong(format!("{name} is a whole number, not {value:?}")))
        };
        let number = |name: &str, value: &str| match value.parse::<f64>() {
            Ok(n) if n.is_finite() && n >= 0.0 => Ok(n),
            _ => Err(wrong(format!("{name} is a number of at least 0, not {value:?}"))),
        };
        let mut budget = Budget::default();
        let mut seen: Vec<&str> = Vec::new();
        for part in text.split(',').map(str::trim) {
            let (name, value) = part.split_once('=').map_or(("evaluations", part), |(n, v)| (n.trim(), v.trim()));
            if seen.contains(&name) {
                return Err(wrong(format!("{name} is given twice")));
            }
            seen.push(name);
            match name {
                "evaluations" => budget.evaluations = whole(name, value)?,
                "calls" => budget.calls = Some(whole(name, value)?),
                "fixes" => budget.fixes = Some(whole(name, value)?),
                "tokens" => budget.tokens = Some(whole(name, value)?),
                "usd" => budget.usd = Some(number(name, value)?),
                "gpu_seconds" => budget.gpu_seconds = Some(number(name, value)?),
                "seconds" => budget.seconds = Some(number(name, value)?),
                _ => return Err(wrong(format!("there is no budget of {name:?}"))),
            }
        }
        if budget.evaluations == 0 || budget.evaluations > MAX_EVALUATIONS {
            return Err(wrong(format!("evaluations are from 1 to {MAX_EVALUATIONS}")));
        }
        Ok(budget)
    }
}

/// What was spent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Account {
    pub evaluations: u64,
    /// Requests to a model or an agent, unanswered ones too.
    pub calls: u64,
    pub tokens: u64,
    pub usd: f64,
    pub gpu_seconds: f64,
    /// Of calls and evaluations, added up: two at once count twice.
    pub seconds: f64,
    /// Wall time while the loop ran, over all of its processes; what a killed one did after its last event is not in it.
    #[serde(default)]
    pub wall_seconds: f64,
    /// Calls that were fixer turns.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub fixes: u64,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

impl Budget {
    /// Which limit is reached, in words; None while there is something left of all.
    pub fn reached(&self, spent: &Account) -> Option<String> {
        self.judging_ended(spent).or_else(|| self.asking_ended(spent))
    }

    /// Which limit is reached after which nothing is judged any more.
    pub fn judging_ended(&self, spent: &Account) -> Option<String> {
        if spent.evaluations >= self.evaluations {
            return Some(format!("{} evaluations", self.evaluations));
        }
        over(self.gpu_seconds, spent.gpu_seconds)
            .map(|l| format!("{l} GPU seconds"))
            .or_else(|| over(self.seconds, spent.wall_seconds).map(|l| format!("{l} seconds")))
    }

    /// Which limit is reached after which nobody is asked any more.
    fn asking_ended(&self, spent: &Account) -> Option<String> {
        if let Some(limit) = self.calls.filter(|limit| spent.calls >= *limit) {
            return Some(format!("{limit} calls"));
        }
        if let Some(limit) = self.tokens.filter(|limit| spent.tokens >= *limit) {
            return Some(format!("{limit} tokens"));
        }
        over(self.usd, spent.usd).map(|l| format!("{l} USD"))
    }

    /// Seconds of wall time that are left, where they are limited.
    pub fn seconds_left(&self, spent: &Account) -> Option<f64> {
        self.seconds.map(|limit| (limit - spent.wall_seconds).max(0.0))
    }
}

fn over(limit: Option<f64>, used: f64) -> Option<f64> {
    limit.filter(|limit| used >= *limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts() {
        assert_eq!("40".parse::<Budget>().unwrap(), Budget::default());
        let all = "evaluations=7, calls=30,tokens=200000,usd=5,gpu_seconds=600,seconds=3600".parse::<Budget>().unwrap();
        assert_eq!((all.evaluations, all.calls, all.usd, all.seconds), (7, Some(30), Some(5.0), Some(3600.0)));
        assert_eq!("usd=0.5".parse::<Budget>().unwrap().evaluations, DEFAULT_EVALUATIONS);
        for wrong in ["", "x", "0", "-1", "usd=x", "usd=inf", "usd=-1", "euro=1", "calls=1,calls=2", "40,"] {
            assert!(wrong.parse::<Budget>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn each_limit_ends_it() {
        let budget = "evaluations=10,calls=3,tokens=100,usd=1,gpu_seconds=5,seconds=9".parse::<Budget>().unwrap();
        assert_eq!(budget.reached(&Account::default()), None);
        for (spent, word) in [
            (Account { evaluations: 10, ..Account::default() }, "evaluations"),
            (Account { calls: 3, ..Account::default() }, "calls"),
            (Account { tokens: 120, ..Account::default() }, "tokens"),
            (Account { usd: 1.0, ..Account::default() }, "USD"),
            (Account { gpu_seconds: 5.5, ..Account::default() }, "GPU"),
            (Account { wall_seconds: 9.0, ..Account::default() }, "9 seconds"),
        ] {
            assert!(budget.reached(&spent).is_some_and(|w| w.contains(word)), "{word}");
            // What was paid for is judged when only the asking has ended.
            let asking = ["calls", "tokens", "USD"].contains(&word);
            assert_eq!(budget.judging_ended(&spent).is_none(), asking, "{word}");
        }
        assert_eq!(
            budget.reached(&Account { seconds: 99.0, ..Account::default() }),
            None,
            "two at once are no wall time"
        );
    }
}
