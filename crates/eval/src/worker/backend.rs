//! The GPU as a backend: a worker process that serves one job after the other, and a second one kept ready for when the first is gone.
//!
//! A candidate that faults or hangs takes its worker with it and nothing else; the next job finds the one that was kept ready, so that
//! nobody waits for a context. A worker that dies without a word is given the job once more: if it dies again, the candidate did it.
//! Behind a launcher a lost connection ends one job, and the next one starts anew; where that fails [`MAX_LOST`] times in a row, the run ends.
//! What it does for gate 3 is beside it (`timed.rs`). Limit: one device, one job at a time.

use super::{outcome, request};
use crate::backend::{Backend, Job, RunOutcome};
use crate::bench::timed::Resident;
use crate::error::EvalError;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;
use warpsmith_cuda::DeviceInfo;
use warpsmith_cuda::worker::{Worker, WorkerCommand, WorkerError};

/// How workers are started and how long they may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuOptions {
    pub command: WorkerCommand,
    /// The driver's ordinal.
    pub device: u32,
    /// For one job: transfers, repeats and launches, without what the driver compiles.
    pub seconds: u64,
    /// For the start of a worker.
    pub start_seconds: u64,
    /// The worker serves a fake device: the record says so.
    pub fake: bool,
}

/// Jobs in a row whose machine could not be reached.
const MAX_LOST: u64 = 3;

impl GpuOptions {
    /// This program as its own worker on the first device; 30 seconds for a job, 60 for a start.
    pub fn this_program() -> Result<GpuOptions, WorkerError> {
        Ok(GpuOptions::of(WorkerCommand::this_program()?))
    }

    /// The same limits for any worker.
    pub fn of(command: WorkerCommand) -> GpuOptions {
        GpuOptions { command, device: 0, seconds: 30, start_seconds: 60, fake: false }
    }

    /// Whether a second worker may wait while the first one works. A launcher may hold a whole machine for each; `ssh` does not.
    fn starts_ahead(&self) -> bool {
        self.command.remote.as_ref().is_none_or(|remote| remote.launcher().is_ssh())
    }
}

/// The backend.
pub struct GpuBackend {
    options: GpuOptions,
    device: DeviceInfo,
    workers: Mutex<Workers>,
    /// No second worker is kept ready.
    alone: bool,
    pub(super) begun: Instant,
}

#[derive(Default)]
pub(super) struct Workers {
    ready: Option<Worker>,
    /// How many were taken so far: the number of the one that is ready.
    pub(super) taken: u64,
    /// Subjects that are to be resident, and the number of the worker in which each is.
    pub(super) residents: HashMap<String, (Arc<Resident>, Option<u64>)>,
    /// The device is to be held, and the number of the worker that holds it.
    pub(super) holding: Option<Option<u64>>,
    /// Being started, or started already.
    ahead: Option<JoinHandle<Result<Worker, WorkerError>>>,
    /// How many jobs took their worker with them.
    lost: u64,
    /// Code (by its PTX) that came to no end before: it is waited for less when it comes again.
    pub(super) endless: HashSet<String>,
    /// How many jobs in a row were not carried out because the other machine was not there.
    unreached: u64,
}

impl GpuBackend {
    /// Starts a worker and waits until it has the device. Without one the error's code is `no-device`.
    pub fn start(options: GpuOptions) -> Result<GpuBackend, WorkerError> {
        let mut backend = GpuBackend::alone(options)?;
        backend.alone = false;
        backend.prepare_another(&mut backend.lock());
        Ok(backend)
    }

    /// One worker, and no second one that is kept ready: for a tool in front of it that bears no other beside it.
    pub fn alone(options: GpuOptions) -> Result<GpuBackend, WorkerError> {
        let worker = start(&options)?;
        let device = worker.device().clone();
        let workers = Mutex::new(Workers { ready: Some(worker), taken: 1, ..Workers::default() });
        Ok(GpuBackend { options, device, workers, alone: true, begun: Instant::now() })
    }

    /// Ends the worker in peace; whoever stands in front of it has so many seconds to write what it has. Whether it ended by itself.
    pub fn finish(self, seconds: u64) -> bool {
        let worker = self.lock().ready.take();
        worker.is_some_and(|mut w| w.finish(seconds))
    }

    pub fn device(&self) -> &DeviceInfo {
        &self.device
    }

    /// Whether it executes artifacts for this target: machine code, or PTX that the driver compiles.
    pub fn runs(&self, target: &str) -> bool {
        self.device.runs_ptx(target)
    }

    /// How many jobs took their worker with them.
    pub fn workers_lost(&self) -> u64 {
        self.lock().lost
    }

    /// How its workers are started.
    pub fn options(&self) -> &GpuOptions {
        &self.options
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Workers> {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn prepare_another(&self, workers: &mut Workers) {
        if !self.alone && workers.ahead.is_none() && self.options.starts_ahead() {
            let options = self.options.clone();
            workers.ahead = Some(std::thread::spawn(move || start(&options)));
        }
    }

    /// A worker that is ready. One that could not be started ahead, as on a device that only one process may have, is started now.
    pub(super) fn take(&self, workers: &mut Workers) -> Result<Worker, WorkerError> {
        if let Some(worker) = workers.ready.take() {
            return Ok(worker);
        }
        workers.taken += 1;
        if let Some(Ok(Ok(worker))) = workers.ahead.take().map(JoinHandle::join) {
            return Ok(worker);
        }
        start(&self.options)
    }
}

impl GpuBackend {
    /// The outcome of a job whose machine went away; an error where it stays away.
    fn lost(&self, workers: &mut Workers, e: WorkerError) -> Result<RunOutcome, EvalError> {
        workers.unreached += 1;
        if workers.unreached >= MAX_LOST { Err(e.into()) } else { Ok(outcome::connection_lost(&e)) }
    }

    /// After a job: the worker is ready for the next one, unless it is over with it.
    pub(super) fn put_back(&self, workers: &mut Workers, worker: Worker, over: bool) {
        if over {
            workers.lost += 1;
            drop(worker);
        } else {
            workers.ready = Some(worker);
        }
        // Not before the old one is gone, but while this job's outcome is being judged.
        self.prepare_another(workers);
    }
}

impl Drop for GpuBackend {
    fn drop(&mut self) {
        // A worker that is still on its way would outlive us by its greeting.
        if let Some(ahead) = self.lock().ahead.take() {
            let _ = ahead.join();
        }
    }
}

fn start(options: &GpuOptions) -> Result<Worker, WorkerError> {
    Worker::start(&options.command, options.device, options.start_seconds)
}

/// Seconds that a job may take whatever its work: transfers, and others who have the device.
const SECONDS_FOR_ANY: u64 = 10;
/// Seconds for code that came to no end before.
pub(super) const SECONDS_FOR_ENDLESS: u64 = 3;
/// Multiply-adds a second that the slowest kernel worth judging makes; a scalar one makes a thousand times as many on an H200.
const SLOWEST: u64 = 500_000_000;

impl GpuBackend {
    /// By the job's work, so that a kernel that never ends is given up soon; over a launcher transfers may be slow. The driver's compiler
    /// has its time on top.
    fn deadline(&self, workers: &Workers, job: &Job) -> u64 {
        let own = match self.options.command.remote {
            Some(_) => self.options.seconds,
            None if workers.endless.contains(&job.artifact.ptx_sha256) => SECONDS_FOR_ENDLESS,
            None => self.options.seconds.min(SECONDS_FOR_ANY.saturating_add(job.max_instructions / SLOWEST)),
        };
        own + request::compile_seconds(job, &self.device)
    }
}

impl Backend for GpuBackend {
    fn word(&self) -> &'static str {
        if self.options.fake { "fake" } else { "gpu" }
    }

    fn version(&self) -> String {
        let d = &self.device;
        let word = self.word();
        format!(
            "{word} {} {} {} driver {} warpsmith {}",
            d.name,
            d.target(),
            d.uuid,
            d.driver,
            env!("CARGO_PKG_VERSION")
        )
    }

    fn run(&self, job: &Job) -> Result<RunOutcome, EvalError> {
        let prepared = match request::prepare(job, &self.device) {
            Ok(prepared) => prepared,
            Err(end) => return Ok(RunOutcome::ended(*end)),
        };
        let mut workers = self.lock();
        let seconds = self.deadline(&workers, job);
        let mut died: Option<WorkerError> = None;
        loop {
            let mut worker = match self.take(&mut workers) {
                Ok(worker) => worker,
                // The first worker was started with the backend: this machine was there once.
                Err(e) if self.options.command.remote.is_some() => return self.lost(&mut workers, e),
                Err(e) => return Err(e.into()),
            };
            let done = worker.run(&prepared.run, &prepared.blobs, seconds);
            let over = match &done {
                Ok(ran) => ran.last,
                Err(WorkerError::Refused { .. }) => false,
                Err(_) => true,
            };
            self.put_back(&mut workers, worker, over);
            if let Err(e @ WorkerError::Lost { .. }) = done {
                return self.lost(&mut workers, e);
            }
            workers.unreached = 0;
            match done {
                Ok(ran) => return outcome::outcome(job, ran, seconds),
                Err(WorkerError::TimedOut { .. }) => {
                    workers.endless.insert(job.artifact.ptx_sha256.clone());
                    return Ok(outcome::timed_out(seconds));
                }
                Err(e @ WorkerError::Refused { .. }) => return Err(e.into()),
                Err(e @ WorkerError::Spawn { .. }) => return Err(e.into()),
                Err(e) => match died.replace(e) {
                    None => continue,
                    // A device that fails without naming a fault says nothing about the kernel.
                    Some(WorkerError::Device { .. }) => {
                        return Err(died.unwrap_or(WorkerError::TimedOut { seconds }).into());
                    }
                    Some(_) => {
                        return Ok(outcome::killed_the_worker(&died.map_or_else(String::new, |e| e.to_string())));
                    }
                },
            }
        }
    }
}
