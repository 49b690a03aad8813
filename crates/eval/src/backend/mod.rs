//! Who executes a candidate: one trait, so that the gates do not know whether it was the PTX machine, a GPU or a fake.
//!
//! A backend gets the artifact, the resolved plan and copies of the inputs; it holds no reference and no limits. It reports what
//! happened, with file names as the compiler knows them; verdicts are made elsewhere.

mod ptx_machine;

pub use ptx_machine::PtxMachine;

use crate::error::EvalError;
use crate::values::{OutputSpec, Tensor};
use warpsmith_compile::Artifact;
use warpsmith_spec::plan::ResolvedPlan;
use warpsmith_spec::record::{ExecutionRecord, FindingRecord};
use warpsmith_spec::target::Target;

/// How tensor-core arithmetic is imitated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NumericsChoice {
    /// As the target's generation computes.
    Faithful,
    /// Plain f32 sums: quicker.
    Fast,
}

impl NumericsChoice {
    /// The word in the record.
    pub fn as_str(self) -> &'static str {
        match self {
            NumericsChoice::Faithful => "faithful",
            NumericsChoice::Fast => "fast",
        }
    }
}

/// Which legal order of events is imitated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Schedule {
    pub seed: u64,
    /// Asynchronous copies land at once, not at the last legal moment.
    pub early_copies: bool,
}

/// Everything that one execution needs.
#[derive(Debug, Clone, Copy)]
pub struct Job<'a> {
    pub artifact: &'a Artifact,
    pub plan: &'a ResolvedPlan,
    pub target: &'static Target,
    pub inputs: &'a [Tensor],
    pub outputs: &'a [OutputSpec],
    pub numerics: NumericsChoice,
    pub schedule: Schedule,
    /// Warp-instructions of all launches together.
    pub max_instructions: u64,
}

/// How an execution ended.
#[derive(Debug, Clone, PartialEq)]
pub enum RunEnd {
    Completed,
    /// Stopped by an error; the findings say which.
    Faulted,
    LimitReached {
        what: String,
        limit: u64,
    },
    /// The backend lacks something that the candidate uses.
    Unsupported {
        what: String,
        file: Option<String>,
        line: Option<u32>,
    },
    /// The launch is impossible; the finding says why.
    Rejected(Box<FindingRecord>),
    /// The backend was lost on the way; the finding says how. Nothing is said about the kernel.
    Unavailable(Box<FindingRecord>),
}

/// An output after the last launch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    pub bytes: Vec<u8>,
    /// For each byte, whether the kernel gave it a defined value.
    pub defined: Vec<bool>,
}

/// All that is left of an execution.
#[derive(Debug, Clone, PartialEq)]
pub struct RunOutcome {
    pub end: RunEnd,
    /// In the order of [`Job::outputs`]; empty unless it completed.
    pub outputs: Vec<Written>,
    /// The inputs' bytes afterwards, in the order of [`Job::inputs`]; empty unless it completed.
    pub inputs: Vec<Written>,
    pub findings: Vec<FindingRecord>,
    pub execution: ExecutionRecord,
    /// Atomic operations ran: sums of floating point may then depend on the schedule.
    pub atomics: bool,
    /// What the kernel printed.
    pub printed: String,
    /// By chain of call sites, where traffic was counted.
    pub places: Vec<crate::profile::phases::Place>,
}

impl RunOutcome {
    /// An execution that did not come to its end.
    pub fn ended(end: RunEnd) -> RunOutcome {
        RunOutcome {
            end,
            outputs: Vec::new(),
            inputs: Vec::new(),
            findings: Vec::new(),
            execution: ExecutionRecord::default(),
            atomics: false,
            printed: String::new(),
            places: Vec::new(),
        }
    }
}

/// Executes candidates.
pub trait Backend: Sync {
    /// The word in the record: `ptx_machine`, `gpu`, `fake`.
    fn word(&self) -> &'static str;

    /// Part of the key of remembered passes: changes whenever results may.
    fn version(&self) -> String;

    /// Runs the plan's launches in order on one memory. An error is the backend's own failure, never the candidate's.
    fn run(&self, job: &Job) -> Result<RunOutcome, EvalError>;
}
