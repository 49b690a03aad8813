//! Who times candidates: one trait, so that gate 3 does not know whether it is a GPU or a file that replays times.
//!
//! A subject is made *resident* once, with several sets of inputs (bases) in several copies of its buffers, and is then timed and launched
//! as often as asked. The backend holds no expected output: it gives outputs back, and they are judged elsewhere. Whatever a subject does is
//! data ([`Stop`], findings); an error is the backend's own failure.

use crate::backend::{Backend, Job, NumericsChoice, Schedule, Written};
use crate::error::EvalError;
use crate::oracle::Oracle;
use std::collections::BTreeMap;
use std::sync::Arc;
use warpsmith_compile::Artifact;
pub use warpsmith_cuda::worker::protocol::{Method, Reading};
use warpsmith_spec::levers::LeverValue;
use warpsmith_spec::plan::ResolvedPlan;
use warpsmith_spec::record::FindingRecord;
use warpsmith_spec::target::Target;
use warpsmith_spec::workload::Workload;

/// A candidate on one workload, with the inputs that it is timed on.
#[derive(Debug, Clone)]
pub struct Resident {
    /// Its name at the backend; unique among those that are resident.
    pub name: String,
    /// As people name the candidate, with its configuration.
    pub candidate: String,
    pub config: Option<String>,
    pub levers: BTreeMap<String, LeverValue>,
    /// What is timed: the distribution is the task's for timing.
    pub workload: Workload,
    pub artifact: Arc<Artifact>,
    pub plan: Arc<ResolvedPlan>,
    pub target: &'static Target,
    /// Inputs; the expected outputs beside them never leave this process.
    pub bases: Vec<Arc<Oracle>>,
    /// So many copies of its buffers are wanted, within so many bytes.
    pub copies: u32,
    pub copies_bytes: u64,
}

impl Resident {
    /// One run of it on one of its bases.
    pub fn job(&self, base: usize) -> Option<Job<'_>> {
        let inputs = &self.bases.get(base)?.inputs;
        Some(Job {
            artifact: &self.artifact,
            plan: &self.plan,
            target: self.target,
            inputs: &inputs.tensors,
            outputs: &inputs.outputs,
            numerics: NumericsChoice::Faithful,
            schedule: Schedule { seed: 1, early_copies: false },
            max_instructions: crate::evaluate::INSTRUCTIONS.saturating_add(2 * self.bases.get(base)?.work()),
        })
    }

    /// `level_04 mission causal`: for people, profilers and messages.
    pub fn label(&self) -> String {
        let config = self.config.as_ref().map_or(String::new(), |c| format!(" {c}"));
        format!("{}{config} {} {}", self.candidate, self.workload.shape, self.workload.mask())
    }
}

/// One measurement of one subject by one method.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Ask {
    pub method: Method,
    /// Samples that are kept.
    pub replays: u32,
    /// Replays before, which are not.
    pub warmup: u32,
    /// Calls of one replay; 0: one on each copy.
    pub calls: u32,
    /// Decides which base each copy has in each replay.
    pub seed: u64,
    /// Outputs that are wanted, as [replay, copy]; a copy that is not used is left out.
    pub sample: Vec<[u32; 2]>,
    /// Each launch leaves word of its beginning and end, so that a fault has a number; its times are no measurement.
    pub marked: bool,
    /// Its limit.
    pub seconds: u64,
}

/// What came of an [`Ask`].
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Timed {
    /// Microseconds for one call.
    pub samples: Vec<f64>,
    pub outputs: Vec<SampledOutput>,
    /// Inputs changed, memory beside the buffers written.
    pub findings: Vec<FindingRecord>,
    pub readings: Vec<Reading>,
    /// None: it came to its end.
    pub stop: Option<Stop>,
}

/// The outputs of one timed call.
#[derive(Debug, Clone, PartialEq)]
pub struct SampledOutput {
    pub replay: u32,
    pub copy: u32,
    pub base: usize,
    /// In the task's order.
    pub outputs: Vec<Written>,
}

/// Why a subject did not go on.
#[derive(Debug, Clone, PartialEq)]
pub enum Stop {
    /// The device reported a fault. The finding says which; it names no launch yet.
    Fault(Box<Faulted>),
    /// No end within so many seconds.
    TimedOut {
        seconds: u64,
    },
    /// A launch that no device makes.
    Rejected(Box<FindingRecord>),
    Unsupported {
        what: String,
    },
    OutOfMemory {
        what: String,
    },
    /// The connection to the device was lost, which says nothing about the subject.
    Lost {
        why: String,
    },
}

impl Stop {
    /// A fault knows what was asked for.
    pub fn asked(mut self, ask: &Ask) -> Stop {
        if let Stop::Fault(fault) = &mut self {
            fault.ask = Some(Box::new(ask.clone()));
        }
        self
    }
}

/// A fault, and where it was seen.
#[derive(Debug, Clone, PartialEq)]
pub struct Faulted {
    pub finding: FindingRecord,
    /// The calls before it, and how many were under way together; 1: it is this very one.
    pub before: u64,
    pub together: u64,
    pub grid: [u32; 3],
    /// The calls, counted from 1, that had begun and not ended; empty where nobody knows.
    pub unfinished: Vec<u64>,
    /// What was asked for when it came, if it came while something was timed: to ask again.
    pub ask: Option<Box<Ask>>,
}

impl Faulted {
    /// The call that it is, counted from 1, where that is known.
    pub fn call(&self) -> Option<u64> {
        match self.unfinished[..] {
            [one] => Some(one),
            [] if self.together <= 1 => Some(self.before + 1),
            _ => None,
        }
    }
}

/// What came of launching a subject many times.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SteadyRun {
    pub done: u64,
    /// Calls whose outputs differ from the first one's.
    pub differing: u64,
    pub first: Option<FirstDifference>,
    pub findings: Vec<FindingRecord>,
    pub stop: Option<Stop>,
}

/// The first call that left other bits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirstDifference {
    /// From 1.
    pub launch: u64,
    pub tensor: String,
    /// Of the first byte that differs.
    pub offset: u64,
    pub bytes: u64,
}

/// What the device is rated at, for floors; absent where it is not known.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Rated {
    pub bytes_per_second: Option<f64>,
    /// Of the fastest 8-bit tensor-core product: no 8- or 16-bit kernel can be faster.
    pub operations_per_second: Option<f64>,
}

/// Times candidates, and runs them as any backend does.
pub trait TimedBackend: Backend {
    /// `NVIDIA H200`
    fn device_name(&self) -> String;

    fn rated(&self) -> Rated;

    /// Of the device.
    fn memory_bytes(&self) -> u64;

    /// Seconds by the clock that the length of measurements is counted with; only differences mean anything.
    fn seconds(&self) -> f64;

    /// Makes a subject resident, in place of one of the same name. `Some`: why it is not.
    fn prepare(&self, resident: &Arc<Resident>) -> Result<Option<Stop>, EvalError>;

    /// Times a subject that was made resident; where its worker has died meanwhile it is made resident again.
    fn time(&self, name: &str, ask: &Ask) -> Result<Timed, EvalError>;

    /// Launches a subject so many times, for so many seconds at most.
    fn steady(&self, name: &str, launches: u64, seconds: f64) -> Result<SteadyRun, EvalError>;

    /// Forgets a subject.
    fn discard(&self, name: &str);

    /// Takes the device for itself alone. Err: who has it, in words.
    fn hold(&self) -> Result<Result<(), String>, EvalError>;

    fn release(&self);

    /// As a plain backend.
    fn as_backend(&self) -> &dyn Backend;
}
