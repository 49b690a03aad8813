//! What happens in a loop. The journal of these is its only state.

use crate::outcome::{Baselined, Judged};
use crate::request::LoopRequest;
use crate::solution::Solution;
use serde::{Deserialize, Serialize};

/// Why a proposal became no solution.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// The same text with the same levers as this one.
    Duplicate { of: u64 },
    /// The answer holds no candidate that could be read.
    Unreadable { why: String },
    /// The model would not, or said nothing.
    Empty,
    /// A candidate, but not one for this task and these shapes, or with front matter that is wrong.
    NotApplicable { why: String },
}

impl Refusal {
    /// For people.
    pub fn words(&self) -> String {
        match self {
            Refusal::Duplicate { of } => format!("the same as #{of}"),
            Refusal::Unreadable { why } | Refusal::NotApplicable { why } => why.clone(),
            Refusal::Empty => "an empty answer".into(),
        }
    }
}

/// What is asked of somebody outside.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "effect")]
pub enum Effect {
    /// Gates 1 to 2 or 3 of these solutions.
    Evaluate { ids: Vec<u64> },
    /// A proposal; the prompt is kept in the run's folder under this hash.
    Propose { turn: u64, parents: Vec<u64>, fixes: Option<u64>, prompt_sha256: String },
    /// What the criteria of acceptance compare with, timed beside this correct solution.
    Baseline { beside: u64 },
    /// The winner measured once more.
    Remeasure { id: u64 },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// Always the first.
    Started { request: Box<LoopRequest>, start: Box<Solution> },
    /// Precedes every effect outside. Without its answer it is done again, as a new one.
    Asked { asked: Effect },
    /// A proposer's answer, with what was read out of it; its text is kept in the run's folder under this hash.
    Answered {
        turn: u64,
        /// What will be judged.
        solutions: Vec<Solution>,
        /// What will not.
        refusals: Vec<Refusal>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        answer_sha256: Option<String>,
        tokens: u64,
        usd: f64,
        seconds: f64,
        /// Wall seconds since the loop's event before.
        #[serde(default)]
        elapsed: f64,
        /// Why there is no answer: refused, limited, no connection.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failure: Option<String>,
    },
    /// A proposal of the loop's own (levers, a replay's line) that will be judged.
    Proposed { solution: Box<Solution> },
    /// One that will not.
    Refused { refusal: Refusal },
    Evaluated {
        id: u64,
        judged: Box<Judged>,
        #[serde(default)]
        elapsed: f64,
    },
    Baselined {
        beside: u64,
        baselined: Box<Baselined>,
        #[serde(default)]
        elapsed: f64,
    },
    Remeasured {
        id: u64,
        judged: Box<Judged>,
        #[serde(default)]
        elapsed: f64,
    },
    /// The last of a loop that came to its end, with the reason in words.
    Finished { reason: String },
}
