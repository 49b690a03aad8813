//! How the process that holds the device is started.

use super::{WORKER_ARG, WorkerError};
use std::ffi::OsString;
use std::path::PathBuf;

/// A command whose standard streams speak the worker's protocol: this program started again, another worker, or any launcher in front
/// of one (`ssh gpu warpsmith __warpsmith-worker`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerCommand {
    pub program: PathBuf,
    pub args: Vec<OsString>,
    /// Added to this process's environment.
    pub env: Vec<(OsString, OsString)>,
}

impl WorkerCommand {
    /// This very program, which has to call [`super::worker_main`] when it sees [`WORKER_ARG`].
    pub fn this_program() -> Result<WorkerCommand, WorkerError> {
        let program = std::env::current_exe()
            .map_err(|e| WorkerError::Spawn { program: PathBuf::from("warpsmith"), why: e.to_string() })?;
        Ok(WorkerCommand::program(program))
    }

    /// Another program that takes [`WORKER_ARG`].
    pub fn program(program: impl Into<PathBuf>) -> WorkerCommand {
        WorkerCommand { program: program.into(), args: vec![WORKER_ARG.into()], env: Vec::new() }
    }
}
