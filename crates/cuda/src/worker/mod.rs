//! A process that holds the device, and whoever speaks to it: `docs/worker-protocol.md` is the contract between them.
//!
//! Picture: [`Worker`] (parent) -- lines and blobs --> [`serve`] -> [`session`] (poison, red zones, repeats) -> [`Device`];
//! and for what is timed: [`serve`] -> [`subject`] (copies, sets of inputs) -> [`timing`], [`steady`] -> [`Device`].
//!
//! The worker knows buffers, launches, bytes and times. It holds no reference and no expected output: whatever a kernel does to it can
//! spoil that kernel's own evaluation only.

mod answer;
mod blob_cache;
mod client;
mod command;
mod cuda_device;
mod device;
pub mod fake;
mod launcher;
mod link;
mod lock;
pub mod protocol;
mod remote;
mod remote_binary;
mod serve;
mod session;
mod steady;
mod streams;
mod subject;
mod timing;
mod wire;

pub use answer::answer;
pub use blob_cache::{BlobCache, LIMIT as BLOB_BYTES};
pub use client::{Blobs, Contents, Ran, Timed, Worker, WorkerError};
pub use command::WorkerCommand;
pub use cuda_device::CudaDevice;
pub use device::{Check, Code, Device, Failed, Found, LaunchValues, Move, Ready, Recorded, Value};
pub use launcher::Launcher;
pub use link::{Answer, Link};
pub use remote::{Connection, Held, Remote};
pub use remote_binary::{Platform, WorkerBinary, checkout};
pub use serve::{ServeOptions, serve, serve_with, worker_main};
pub use wire::sha256;

/// First argument of the process that holds the device. A `main` that sees it calls [`worker_main`] at once.
pub const WORKER_ARG: &str = "__warpsmith-worker";
