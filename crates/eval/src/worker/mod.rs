//! Gates 2 and 3 on a GPU: the backend that has candidates executed by a worker process, and judges nothing itself.
//!
//! Picture: `Job` -> [`request`] -> `warpsmith_cuda::worker::Worker` -> [`outcome`] -> `RunOutcome`; [`GpuBackend`] keeps workers
//! running and replaces those that a candidate took down. The process itself is `warpsmith_cuda`'s: it knows no tasks and no references.

mod backend;
mod fake_device;
pub(crate) mod outcome;
pub(crate) mod request;
mod timed;

pub use backend::{GpuBackend, GpuOptions};
pub use fake_device::fake_device;
pub use warpsmith_cuda::DeviceInfo;
pub use warpsmith_cuda::worker::{
    Connection, Held, Launcher, Platform, Remote, WORKER_ARG, WorkerBinary, WorkerCommand, WorkerError, checkout,
};

use warpsmith_cuda::worker::{BLOB_BYTES, BlobCache, CudaDevice, Device, ServeOptions, serve_with};

/// Argument behind [`WORKER_ARG`]: the worker serves [`fake_device`].
pub const FAKE_ARG: &str = "--fake-device";
/// Argument behind [`WORKER_ARG`], with a folder behind it: blobs outlive the worker there.
pub const BLOBS_ARG: &str = "--blobs";

/// The process that holds a device, from its start to its end; `args` are those behind [`WORKER_ARG`].
pub fn worker_main(args: &[std::ffi::OsString]) -> ! {
    let folder = args.iter().position(|a| a == BLOBS_ARG).and_then(|i| args.get(i + 1));
    let options = ServeOptions { blobs: folder.map(|f| BlobCache::new(f, BLOB_BYTES)) };
    if args.iter().any(|a| a == FAKE_ARG) {
        serve_with(options, |_| Ok(fake_device()))
    }
    serve_with(options, |ordinal| CudaDevice::open(ordinal).map(|d| Box::new(d) as Box<dyn Device>))
}
