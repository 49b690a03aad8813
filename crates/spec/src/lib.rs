//! The nouns of Warpsmith: tasks, candidates with their launch plans, workloads, and the record of a run. Pure data.
//!
//! Parsing, validation and resolution of what people write, with errors that name file and line. It does no input or output: callers
//! give it texts. It knows no compiler, no machine, no arithmetic of formats and no measurement.

pub mod accept;
pub mod candidate;
pub mod ceilings;
mod document;
pub mod error;
pub mod exec;
pub mod formula;
pub mod levers;
mod measurement;
pub mod opcode;
pub mod plan;
pub mod profile;
pub mod protocol;
pub mod record;
pub mod speedups;
pub mod suggest;
pub mod suppressions;
pub mod target;
pub mod task;
pub mod templates;
mod tensor_map;
pub mod words;
pub mod workload;

pub use candidate::{Candidate, LaunchPlan};
pub use error::{SpecCode, SpecError};
pub use levers::{LeverRequest, LeverValue, Setting};
pub use plan::{PlanProblem, ResolvedArg, ResolvedLaunch, ResolvedPlan, ScalarValue};
pub use suppressions::Suppressions;
pub use task::Task;
pub use task::set::TaskSet;
pub use words::{DType, Distribution, Format, Mask, Precision, ScaleLayout};
pub use workload::{Workload, WorkloadRequest};
