//! Gate 3: candidates that passed gates 1 and 2 are timed against what people use, and tried for stability.
//!
//! Picture: steps on one workload -> [`batch`] -> gates 1-2 -> [`candidate`] (judged on secret inputs) -> [`measure`] (rounds, random order)
//! -> [`stats`], [`floor`], [`stability`], [`diagnose`] -> `MeasurementRecord`. [`timed`] is who times: a GPU's worker or [`fake`].
//!
//! Nothing is timed before it is proved right, and a pass that is remembered counts by the hash of all that made it. Gate 3 fails on errors,
//! instability and broken rules only: a slow kernel has passed. Order, inputs and samples are drawn from one secret of the run.

pub mod agree;
mod batch;
mod candidate;
pub mod diagnose;
pub mod fake;
pub mod fake_file;
mod fill;
pub mod floor;
pub mod lots;
pub mod measure;
pub mod peers;
pub mod python_peers;
mod run;
pub mod sanitize;
pub mod stability;
pub mod stats;
pub mod timed;

pub use batch::{BenchContext, TimedInputs};
pub use fake::Fake;
pub use fake_file::FakeFile;
pub use lots::fresh_secret;
pub use measure::{Length, Plan};
pub use run::{BenchEvent, BenchRequest, key, key_of_record, run};
pub use timed::{Method, TimedBackend};
