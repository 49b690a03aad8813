//! What a loop was asked to do: everything that decides its course. It is the first event's content, so that nothing else is needed
//! to go on with the loop or to work it through again.

use crate::archive::PopulationKind;
use crate::budget::Budget;
use crate::llm::{Price, Provider};
use crate::space::Space;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use warpsmith_spec::LeverValue;
use warpsmith_spec::record::CeilingsRecord;

/// The paper's variants: which information a proposer is given, and which operators and population they come with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Variant {
    /// Task context (I1) and the current best.
    #[default]
    Free,
    /// Task context and optimisation insights (I1 + I3).
    Insight,
    /// Task context, historical solutions and insights (I1 + I2 + I3), with crossover and an elite.
    Full,
}

impl Variant {
    pub const ALL: [Variant; 3] = [Variant::Free, Variant::Insight, Variant::Full];

    pub fn word(self) -> &'static str {
        match self {
            Variant::Free => "free",
            Variant::Insight => "insight",
            Variant::Full => "full",
        }
    }

    /// Whether prompts hold earlier solutions (I2).
    pub fn has_history(self) -> bool {
        self == Variant::Full
    }

    /// Whether prompts hold insights (I3).
    pub fn has_insights(self) -> bool {
        self != Variant::Free
    }

    /// The population that the paper gives it.
    pub fn population(self) -> PopulationKind {
        match self {
            Variant::Free | Variant::Insight => PopulationKind::Single,
            Variant::Full => PopulationKind::Elite { keep: 3 },
        }
    }
}

/// Who makes proposals.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProposerKind {
    /// No model: moves in the candidate's lever space.
    Levers,
    /// The lines of a file, one after the other.
    Replay { lines: Vec<ReplayLine> },
    /// A command that reads the prompt and writes a candidate.
    Agent { command: String, seconds: u64 },
    /// A language model.
    Llm {
        provider: Provider,
        model: String,
        base_url: Option<String>,
        /// For one call.
        seconds: u64,
        /// Of one answer.
        answer_tokens: u64,
        /// None: not known, and a budget in dollars was not asked for.
        price: Option<Price>,
    },
}

/// A task that the program does not carry, as it was read: the loop depends on no file that may change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskText {
    pub toml: String,
    /// The reference's file beside it, with its text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<(String, String)>,
}

/// What the prompts of a proposer outside are made with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PromptRequest {
    /// Tokens of one prompt.
    pub tokens: usize,
    /// Templates in place of the program's own, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub templates: BTreeMap<String, String>,
}

impl Default for PromptRequest {
    fn default() -> PromptRequest {
        PromptRequest { tokens: crate::prompt::DEFAULT_TOKENS, templates: BTreeMap::new() }
    }
}

impl ProposerKind {
    /// Whether asking it is an effect outside of the loop.
    pub fn is_external(&self) -> bool {
        matches!(self, ProposerKind::Agent { .. } | ProposerKind::Llm { .. })
    }
}

/// One line of a replay file, resolved: the text's hash and its name in the run's folder.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReplayLine {
    pub candidate: String,
    pub source_sha256: String,
    pub levers: std::collections::BTreeMap<String, LeverValue>,
}

/// Rules of the search, with the paper's words where it has them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Rules {
    /// A new best is announced from this gain on, its interval clear of noise.
    pub announce: f64,
    /// A solution that is slower than its parent by more than this ratio ...
    pub regression: f64,
    /// ... on so many shapes is discarded whatever its mean.
    pub regression_shapes: usize,
    /// The least gain that entry to the population demands ...
    pub elite_min_speedup: f64,
    /// ... over this.
    #[serde(default)]
    pub elite_against: Against,
}

/// Over what a gain is demanded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Against {
    /// What the loop began with.
    #[default]
    Baseline,
    /// What a solution came from; of two parents the better one.
    Parent,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules {
            announce: 1.03,
            regression: 1.10,
            regression_shapes: 2,
            elite_min_speedup: 1.0,
            elite_against: Against::Baseline,
        }
    }
}

/// A loop's whole input.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoopRequest {
    pub task: String,
    /// Where the task is one of somebody's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_text: Option<TaskText>,
    /// Shapes as typed; empty: the task's default ones.
    pub shapes: Vec<String>,
    pub target: String,
    /// `ptx_machine` | `gpu` | `fake`: decides whether scores are estimates or times.
    pub backend: String,
    /// For estimates: whose rates.
    pub device: String,
    pub variant: Variant,
    pub population: PopulationKind,
    pub proposer: ProposerKind,
    pub rules: Rules,
    pub budget: Budget,
    /// Fixer turns for one failed solution at most.
    #[serde(default)]
    pub fixes: u64,
    pub seed: u64,
    /// Solutions that are proposed before the first of them is judged: decides the course, unlike the number of workers.
    pub batch: usize,
    /// The settings of the start's levers; empty for a candidate without levers.
    pub space: Space,
    /// The lessons that were read, as text; None: none were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lessons: Option<String>,
    #[serde(default)]
    pub prompts: PromptRequest,
    /// Whether a best that holds all of the task's criteria of acceptance ends the loop.
    #[serde(default)]
    pub until_accepted: bool,
    /// What those criteria compare with, by name: timed when the loop begins, and beside a winner.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub compared: Vec<String>,
    /// What was measured of the device that times, for prompts; None: nothing was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceilings: Option<CeilingsRecord>,
    /// Where the backend is `fake`: the text of its file, by hash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times_sha256: Option<String>,
}
