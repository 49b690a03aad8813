//! The parent's side: a process that holds a device, asked for one run after the other, each with a deadline.

mod timing;

pub use timing::Timed;

use super::blob_cache::SMALLEST;
use super::command::WorkerCommand;
use super::link::{Answer, Link};
use super::protocol::{Difference, End, Fill, Overrun, PROTOCOL, RanHead, Reply, Request, Run};
use crate::device::DeviceInfo;
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

/// Contents by hash; what the worker lacks is sent.
pub type Blobs<'a> = HashMap<String, &'a [u8]>;

/// Seconds that the worker's own deadline comes after the parent's.
pub(super) const GRACE: u64 = 5;

/// Why a worker gave no result. Whatever it is, the worker is of no use any more, except after [`WorkerError::Refused`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WorkerError {
    #[error("cannot run {}: {why}", program.display())]
    Spawn { program: PathBuf, why: String },

    /// It cannot use the device, or failed with it.
    #[error("{message}")]
    Device { code: String, message: String },

    /// It did not accept a request; it goes on.
    #[error("the worker refuses the request: {message}")]
    Refused { message: String },

    #[error("the worker did not answer within {seconds} s")]
    TimedOut { seconds: u64 },

    #[error("the worker ended without an answer ({how}){}{said}", if .said.is_empty() { "" } else { ": " })]
    Died { how: String, said: String },

    #[error("the worker's answer is not of its protocol: {what}")]
    Garbled { what: String },

    /// The other machine was not reached, or has no worker.
    #[error("{message}")]
    Launcher { code: &'static str, message: String, hint: String },

    /// The other machine was reached, and then no more.
    #[error("the connection to the other machine was lost ({how}){}{said}", if .said.is_empty() { "" } else { ": " })]
    Lost { how: String, said: String },
}

impl WorkerError {
    /// kebab-case id for the record and for `warpsmith explain`.
    pub fn code(&self) -> &str {
        match self {
            WorkerError::Spawn { .. } => "cannot-run",
            WorkerError::Device { code, .. } => code,
            WorkerError::Refused { .. } => "tool-defect",
            WorkerError::TimedOut { .. } => "time-limit",
            WorkerError::Died { .. } | WorkerError::Garbled { .. } => "worker-failed",
            WorkerError::Launcher { code, .. } => code,
            WorkerError::Lost { .. } => "connection-lost",
        }
    }

    /// What to do next.
    pub fn hint(&self) -> &str {
        match self {
            WorkerError::Spawn { .. } => "is the program there, and may it be executed?",
            WorkerError::Device { code, .. } if code == "no-device" => {
                "`nvidia-smi` has to work first; --backend cpu runs the PTX machine, which needs no device"
            }
            WorkerError::Device { .. } => "`nvidia-smi` and `dmesg` say more about the device",
            WorkerError::Refused { .. } => {
                "this is a defect of Warpsmith; please report it with the command that led here"
            }
            WorkerError::TimedOut { .. } => "is the device busy, or the machine under load? run again",
            WorkerError::Died { .. } => "run again; `dmesg` says whether the system has killed it",
            WorkerError::Garbled { .. } => {
                "nothing but the worker may write to its standard output, and both sides need the same Warpsmith"
            }
            WorkerError::Launcher { hint, .. } => hint,
            WorkerError::Lost { .. } => "is the other machine still there? run again: what was judged before is kept",
        }
    }
}

/// What came of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Ran {
    pub end: End,
    /// In the order of [`Run::want`]; empty unless it completed.
    pub outputs: Vec<Contents>,
    pub overruns: Vec<Overrun>,
    pub undefined: Vec<Difference>,
    pub printed: String,
    /// The worker has ended.
    pub last: bool,
}

/// A buffer after the launches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contents {
    pub name: String,
    /// None: what it was filled with.
    pub bytes: Option<Vec<u8>>,
    /// Ranges of poisoned bytes that were never written, as [first, count].
    pub unwritten: Vec<[u64; 2]>,
}

/// A running worker. Dropping it ends the process.
pub struct Worker {
    link: Link<Reply>,
    /// Blobs that it was sent.
    sent: HashSet<String>,
    device: DeviceInfo,
    version: String,
}

impl Worker {
    /// Starts the process and waits until it has the device, so long at most.
    pub fn start(command: &WorkerCommand, ordinal: u32, seconds: u64) -> Result<Worker, WorkerError> {
        let mut link = Link::start(command)?;
        let (reply, _) = link.ask(Request::Hello { protocol: PROTOCOL, device: ordinal }, &[], seconds)?;
        match reply {
            Reply::Hello { protocol: PROTOCOL, version, device } => {
                Ok(Worker { link, sent: HashSet::new(), device, version })
            }
            Reply::Hello { protocol, version, .. } => Err(WorkerError::Garbled {
                what: format!(
                    "it is Warpsmith {version} and speaks protocol {protocol}, this one {PROTOCOL}: use the same version on both sides"
                ),
            }),
            Reply::Error { code, message } => Err(WorkerError::Device { code, message }),
            other => Err(unexpected(&other)),
        }
    }

    pub fn device(&self) -> &DeviceInfo {
        &self.device
    }

    /// The worker's version of Warpsmith.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The process's id here; that of the launcher if there is one.
    pub fn process_id(&self) -> Option<u32> {
        self.link.process_id()
    }

    /// Has a run carried out within `seconds`, the transfer of what it needs included. [`Run::seconds`] is set from it.
    ///
    /// `blobs` holds at least what the run names by hash.
    pub fn run(&mut self, run: &Run, blobs: &Blobs, seconds: u64) -> Result<Ran, WorkerError> {
        let run = Run { seconds: seconds + GRACE, ..run.clone() };
        match self.ask(Request::Run(run.clone()), &needed(&run), blobs, seconds)? {
            (Reply::Ran(head), received) => self.ran(&run, head, received),
            (other, _) => {
                self.link.end();
                Err(unexpected(&other))
            }
        }
    }

    /// Sends a request with those of the blobs that it needs which the worker does not have, and again with what it says it has lost.
    fn ask(
        &mut self,
        request: Request,
        needed: &[&String],
        blobs: &Blobs,
        seconds: u64,
    ) -> Result<(Reply, Vec<(String, Vec<u8>)>), WorkerError> {
        // A worker on another machine may have large ones from before: it is asked first.
        let ask_first =
            |sha: &String| self.link.is_remote() && blobs.get(sha).is_some_and(|b| b.len() as u64 >= SMALLEST);
        let unsent = needed.iter().filter(|sha| !self.sent.contains(**sha));
        let mut new: Vec<&String> = unsent.filter(|sha| !ask_first(sha)).copied().collect();
        let mut sent_again = false;
        loop {
            let found: Option<Vec<(&str, &[u8])>> =
                new.iter().map(|sha| blobs.get(*sha).map(|bytes| (sha.as_str(), *bytes))).collect();
            let found = found
                .ok_or_else(|| WorkerError::Refused { message: "a blob that the request names is not given".into() })?;
            let (reply, received) = self.link.ask(request.clone(), &found, seconds)?;
            self.sent.extend(new.drain(..).cloned());
            match reply {
                Reply::Missing { sha256 } if !sent_again => {
                    sent_again = true;
                    self.sent.clear();
                    new = needed.iter().filter(|sha| sha256.contains(sha)).copied().collect();
                }
                Reply::Error { code, message } if code == "bad-request" => {
                    return Err(WorkerError::Refused { message });
                }
                Reply::Error { code, message } => {
                    self.link.end();
                    return Err(WorkerError::Device { code, message });
                }
                reply => return Ok((reply, received)),
            }
        }
    }

    /// Joins outputs and blobs.
    fn ran(&mut self, run: &Run, head: RanHead, received: Vec<(String, Vec<u8>)>) -> Result<Ran, WorkerError> {
        if head.last {
            self.link.end();
        }
        let mut received = received.into_iter();
        let complete = head.end == End::Completed;
        if complete && head.outputs.iter().map(|o| &o.name).ne(&run.want) {
            return self.garbled("it leaves out an output, or has one that was not asked for");
        }
        let mut outputs = Vec::new();
        for output in head.outputs {
            let buffer = run.buffers.iter().find(|b| b.name == output.name);
            let Some(buffer) = buffer.filter(|_| complete) else { return self.garbled("an output that has no place") };
            let bytes = if buffer.fill == Fill::Contents(output.sha256.clone()) {
                None
            } else {
                match received.next() {
                    Some((sha, bytes)) if sha == output.sha256 && bytes.len() as u64 == buffer.bytes => Some(bytes),
                    _ => return self.garbled("an output's bytes are missing, or are not its own"),
                }
            };
            outputs.push(Contents { name: output.name, bytes, unwritten: output.unwritten });
        }
        Ok(Ran {
            end: head.end,
            outputs,
            overruns: head.overruns,
            undefined: head.undefined,
            printed: head.printed,
            last: head.last,
        })
    }

    /// Ends the process in peace, with so many seconds for what it, or a tool in front of it, still wants to write.
    pub fn finish(&mut self, seconds: u64) -> bool {
        self.link.finish(seconds)
    }

    fn garbled<T>(&mut self, what: &str) -> Result<T, WorkerError> {
        self.link.end();
        Err(WorkerError::Garbled { what: what.into() })
    }
}

impl Answer for Reply {
    fn complaint(&self) -> Option<&str> {
        match self {
            Reply::Error { message, .. } => Some(message),
            _ => None,
        }
    }
}

fn unexpected(reply: &Reply) -> WorkerError {
    let what = match reply {
        Reply::Hello { .. } => "a greeting",
        Reply::Ran(_) => "the result of a run",
        Reply::Prepared(_) => "that a subject is there",
        Reply::Timed(_) => "times",
        Reply::Steady(_) => "what came of many launches",
        Reply::Held(_) => "who has the device",
        Reply::Done => "that it is done",
        Reply::Missing { .. } => "that something is still missing",
        Reply::Error { message, .. } => message,
    };
    WorkerError::Garbled { what: format!("it says {what} where nobody asked for it") }
}

/// Hashes that a request names, without repetition.
pub(super) fn hashes(request: &Request) -> Vec<&String> {
    match request {
        Request::Run(run) => needed(run),
        Request::Prepare(prepare) => timing::needed(prepare),
        _ => Vec::new(),
    }
}

/// Hashes that a run names, without repetition.
fn needed(run: &Run) -> Vec<&String> {
    let mut found = vec![&run.image];
    for buffer in &run.buffers {
        if let Fill::Contents(sha) = &buffer.fill
            && !found.contains(&sha)
        {
            found.push(sha);
        }
    }
    found
}
