//! How the process that holds the device is started.

use super::remote::{Connection, Remote};
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
    /// The other machine on which it runs. The program's path is then one there; empty: our own program, which is sent.
    pub remote: Option<Remote>,
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
        WorkerCommand { program: program.into(), args: vec![WORKER_ARG.into()], env: Vec::new(), remote: None }
    }

    /// Our own program on another machine, with these arguments.
    pub fn on(remote: &Remote, args: &[&str]) -> WorkerCommand {
        WorkerCommand {
            program: PathBuf::new(),
            args: args.iter().map(|a| (*a).into()).collect(),
            env: Vec::new(),
            remote: Some(remote.clone()),
        }
    }

    /// Starts it on the other machine.
    pub(super) fn open(&self, remote: &Remote) -> Result<Connection, WorkerError> {
        let text = |s: &OsString| s.to_string_lossy().into_owned();
        let args: Vec<String> = self.args.iter().map(text).collect();
        if self.program.as_os_str().is_empty() {
            return remote.open(&args.iter().map(String::as_str).collect::<Vec<_>>());
        }
        let mut words: Vec<String> = Vec::new();
        if !self.env.is_empty() {
            words.push("env".into());
            words.extend(self.env.iter().map(|(name, value)| format!("{}={}", text(name), text(value))));
        }
        words.push(self.program.display().to_string());
        words.extend(args);
        remote.open_program(&words.iter().map(String::as_str).collect::<Vec<_>>())
    }
}
