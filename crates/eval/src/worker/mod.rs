//! Gate 2 on a GPU: the backend that has candidates executed by a worker process, and judges nothing itself.
//!
//! Picture: `Job` -> [`request`] -> `warpsmith_cuda::worker::Worker` -> [`outcome`] -> `RunOutcome`; [`GpuBackend`] keeps workers
//! running and replaces those that a candidate took down. The process itself is `warpsmith_cuda`'s: it knows no tasks and no references.

mod backend;
mod outcome;
mod request;

pub use backend::{GpuBackend, GpuOptions};
pub use warpsmith_cuda::DeviceInfo;
pub use warpsmith_cuda::worker::{WORKER_ARG, WorkerCommand, WorkerError, worker_main};
