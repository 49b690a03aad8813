//! FP8 (e4m3) attention over device pointers and a stream.
//!
//! ```no_run
//! # use warpsmith_attention::*;
//! # fn main() -> Result<(), Error> {
//! # let (pointers, stream) = (Pointers::default(), RawStream(std::ptr::null_mut()));
//! let problem = Problem::dense(1, 8, 8, 512, 512, 64);            // contiguous, a scale for each head
//! let plan = Plan::new(&problem, &Device::current()?)?;           // checks every argument, chooses kernel and grid; pure
//! let ready = plan.load()?;                                       // the kernel, in the current context
//! ready.launch(&pointers, stream)?;                               // one launch: no allocation, no waiting, capturable
//! # Ok(()) }
//! ```
//!
//! A plan can be launched by any number of threads at once, as long as launches that may overlap have scratch memory and counters of their
//! own ([`Workspace`]). The heuristic ([`heuristic::choose`]) is a pure function of problem and device. Machine code is embedded where the
//! build found it (`cargo xtask attention-kernels`); [`bundle::Bundle::embedded`] says what there is, and a build without any says so in
//! [`Error::NoKernel`]. The C interface is `include/warpsmith_attention.h`.
//!
//! Knows nothing of tasks, gates or Python. Source of the kernels: `kernels/attention/hopper`, where each states what it assumes.

pub mod bundle;
mod capi;
mod capi_quantise;
mod driver;
mod error;
pub mod header;
pub mod heuristic;
mod instance;
mod maps;
pub mod params;
mod plan;
mod problem;
pub mod quantise;
mod way;

/// Single calls of the driver, for wrappers that plan by themselves.
pub mod raw {
    pub use crate::driver::{Function, context, encode_bytes, is_capturing};
    pub use crate::params::TensorMap;
}

pub use driver::{Device, RawStream};
pub use error::{Error, ProblemError};
pub use heuristic::Choice;
pub use instance::{Instance, PORTABLE_TARGETS, instances, portable_instances};
pub use plan::{DevicePtr, LoadedPlan, Plan, Pointers, Workspace};
pub use problem::{Lengths, Mask, Output, Problem, ScaleStrides, Strides, check_scales};
pub use quantise::{LoadedQuantisePlan, Quantisation, QuantisePlan, Quantised, Scales, Wide};
