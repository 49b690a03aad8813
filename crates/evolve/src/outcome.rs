//! What the gates said of a solution, as far as the search needs it.

use crate::score::{Gain, Score};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use warpsmith_spec::record::{AcceptRecord, VerdictWord};

/// Findings that are kept of one evaluation.
pub const MAX_FINDINGS: usize = 8;

/// A finding in short.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Brief {
    pub code: String,
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
}

/// Resources of the entry that uses most, for the judged target.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resources {
    pub registers: u32,
    pub shared_bytes: u64,
    pub spill_bytes: u64,
}

/// The evaluator's answer for one solution on all shapes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Judged {
    /// The first that is not `passed`, in the order of the workloads.
    pub verdict: VerdictWord,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<Brief>,
    /// Of a solution that passed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<Score>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
    /// Of everything that executes: machine code where there is one, else PTX, with the launch plan. Equal ones are the same kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code_sha256: Option<String>,
    /// An earlier solution with the same code: it was not judged again, and is no evaluation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duplicate_of: Option<u64>,
    /// What the gates saw that explains the score, as short sentences: insights for prompts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub insights: Vec<String>,
    /// Moves of its levers that the evidence advises: what `levers` tries first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub moves: Vec<Move>,
    /// On which shape it failed, and where the output errs, a line each: what a fixer is shown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub wrong_at: Vec<String>,
    /// What it was measured beside, in common rounds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<Beside>,
    /// The task's criteria of acceptance, as they stand for it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accept: Vec<AcceptRecord>,
    /// Whether `accept` divides by times of the loop's beginning instead of by some of the same rounds: enough to ask, not to end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub provisional: bool,
    /// Seconds that it took; GPU seconds are those that a device was held.
    #[serde(default)]
    pub seconds: f64,
    #[serde(default)]
    pub gpu_seconds: f64,
}

/// A move of a lever that the evidence advises.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Move {
    pub lever: String,
    /// Of its value.
    pub more: bool,
    /// What is expected: old cost / new cost.
    pub gain: f64,
    /// Why, in a word.
    pub rule: String,
}

/// What the task's criteria compare with, as it was timed beside one solution when the loop began.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Baselined {
    /// By name, `sdpa:auto` or a kernel of our own.
    pub baselines: BTreeMap<String, BaselineTimes>,
    /// The criteria as they stood for that solution, in common rounds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accept: Vec<AcceptRecord>,
    pub seconds: f64,
    pub gpu_seconds: f64,
}

/// The times of one baseline by shape and mask.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct BaselineTimes {
    /// The median.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub us: BTreeMap<String, f64>,
    /// Why there is none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub missing: BTreeMap<String, String>,
}

/// Another solution that was measured in the same rounds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Beside {
    pub of: u64,
    /// Its time / ours, as the geometric mean over the shapes: above 1 we are faster.
    pub gain: Gain,
    /// By shape and mask.
    pub shapes: BTreeMap<String, Gain>,
}

impl Judged {
    /// Nothing but a verdict is known.
    pub fn of(verdict: VerdictWord) -> Judged {
        Judged {
            verdict,
            findings: Vec::new(),
            score: None,
            resources: None,
            code_sha256: None,
            duplicate_of: None,
            insights: Vec::new(),
            moves: Vec::new(),
            wrong_at: Vec::new(),
            beside: Vec::new(),
            accept: Vec::new(),
            provisional: false,
            seconds: 0.0,
            gpu_seconds: 0.0,
        }
    }

    /// Whether the task has criteria and all of them hold; one whose gate did not run does not.
    pub fn accepted(&self) -> bool {
        self.passed() && !self.accept.is_empty() && self.accept.iter().all(|a| a.status == "held")
    }

    pub fn passed(&self) -> bool {
        self.verdict == VerdictWord::Passed
    }
}
