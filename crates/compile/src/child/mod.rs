//! The compiler in a process of its own. NVRTC is a large C++ program that reads hostile text: it gets a folder with copies of the files it
//! may read, a deadline, a limit of memory, and, where the system can (Linux: Landlock), a fence around everything else.
//!
//! The process is our own program, started again with a hidden first argument ([`CHILD_ARG`]). It reads one request from its standard input
//! as JSON and writes one reply to its standard output, behind a mark that only this request knows, so that noise does no harm.
//!
//! NOTE: on systems without resource limits or Landlock the deadline and the include resolver are what holds.

mod nvrtc;
pub(crate) mod sandbox;
mod serve;

pub use serve::child_main;

use crate::error::ToolError;
use crate::process::{self, Bounds};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

/// First argument of the process that runs NVRTC. A `main` that sees it calls [`child_main`] at once.
pub const CHILD_ARG: &str = "__warpsmith-nvrtc-child";

/// What one compilation may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Wall clock for each of NVRTC, ptxas and the disassembler.
    pub seconds: u64,
    /// Address space of each.
    pub memory_bytes: u64,
    /// Largest PTX.
    pub ptx_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { seconds: 120, memory_bytes: 6 << 30, ptx_bytes: 64 << 20 }
    }
}

/// How to start the process that runs NVRTC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChildCommand {
    pub program: PathBuf,
    pub args: Vec<OsString>,
}

impl ChildCommand {
    /// This very program, which has to call [`child_main`] when it sees [`CHILD_ARG`].
    pub fn this_program() -> Result<ChildCommand, ToolError> {
        let program = std::env::current_exe()
            .map_err(|e| ToolError::Spawn { path: PathBuf::from("warpsmith"), why: e.to_string() })?;
        Ok(ChildCommand { program, args: vec![CHILD_ARG.into()] })
    }

    /// Another program that does nothing else, such as `warpsmith-nvrtc-child`.
    pub fn program(program: impl Into<PathBuf>) -> ChildCommand {
        ChildCommand { program: program.into(), args: Vec::new() }
    }
}

/// What the child is asked for.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ChildRequest {
    pub mark: String,
    pub nvrtc: PathBuf,
    pub builtins: Option<PathBuf>,
    /// What may be read besides the working folder.
    pub readable: Vec<PathBuf>,
    pub memory_bytes: u64,
    pub seconds: u64,
    pub job: Job,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Job {
    /// What is this library?
    Probe,
    Compile {
        name: String,
        source: String,
        options: Vec<String>,
        expressions: Vec<String>,
        ptx_limit: u64,
    },
}

/// What it answers.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ChildReply {
    Probed {
        version: (i32, i32),
        architectures: Vec<u32>,
        release: String,
    },
    /// `code` is NVRTC's own; 0 is success.
    Compiled {
        code: i32,
        log: String,
        ptx: String,
        ptx_bytes: u64,
        lowered: Vec<String>,
    },
    /// The library could not be used at all.
    Broken {
        why: String,
    },
}

/// How the child ended when it gave no reply.
#[derive(Debug)]
pub(crate) enum ChildEnd {
    Reply(ChildReply),
    TimedOut,
    OutOfMemory,
    Died { how: String, said: String },
}

/// Starts the child in this folder and waits for its reply.
pub(crate) fn ask(command: &ChildCommand, folder: &Path, request: &ChildRequest) -> Result<ChildEnd, ToolError> {
    let input = serde_json::to_vec(request).map_err(|e| ToolError::Child { why: e.to_string() })?;
    let mut process = Command::new(&command.program);
    process.args(&command.args).current_dir(folder).env_clear().env("LC_ALL", "C");
    // Some systems load no library without these; nothing else of the environment can reach the compiler.
    for name in ["SystemRoot", "TEMP", "TMP"] {
        if let Some(value) = std::env::var_os(name) {
            process.env(name, value);
        }
    }
    // PTX as JSON may take twice its size, and a log besides.
    let output_bytes = match &request.job {
        Job::Compile { ptx_limit, .. } => 2 * ptx_limit + (16 << 20),
        Job::Probe => 1 << 20,
    };
    let bounds = Bounds { seconds: request.seconds, memory_bytes: None, output_bytes };
    let ended = process::run(process, input, bounds, &mut || {})?;
    if ended.timed_out || sandbox::is_cpu_limit(&ended.status) {
        return Ok(ChildEnd::TimedOut);
    }
    if let Some(reply) = find_reply(&ended.stdout, &request.mark) {
        return Ok(ChildEnd::Reply(reply));
    }
    let said = ended.stderr_text();
    let lower = said.to_lowercase();
    if ["bad_alloc", "out of memory", "cannot allocate", "allocation failed", "memory allocation", "length_error"]
        .iter()
        .any(|w| lower.contains(w))
    {
        return Ok(ChildEnd::OutOfMemory);
    }
    let tail: String = said.lines().rev().take(8).collect::<Vec<_>>().into_iter().rev().collect::<Vec<_>>().join("\n");
    Ok(ChildEnd::Died { how: ended.how(), said: tail })
}

fn find_reply(stdout: &[u8], mark: &str) -> Option<ChildReply> {
    let text = String::from_utf8_lossy(stdout);
    let line = text.lines().rev().find_map(|l| l.strip_prefix(mark))?;
    serde_json::from_str(line).ok()
}

/// A mark that no noise, and no candidate, can know.
pub(crate) fn fresh_mark() -> String {
    use std::hash::{BuildHasher, Hasher};
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let mut hasher = std::collections::hash_map::RandomState::new().build_hasher();
    hasher.write_u64(COUNT.fetch_add(1, Ordering::Relaxed));
    hasher.write_u32(std::process::id());
    format!("warpsmith-reply-{:016x} ", hasher.finish())
}
