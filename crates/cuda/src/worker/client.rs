//! The parent's side: a process that holds a device, asked for one run after the other, each with a deadline.

use super::command::WorkerCommand;
use super::protocol::{BlobHead, Difference, End, Fill, Message, Overrun, PROTOCOL, RanHead, Reply, Request, Run};
use super::wire::{self, WireError};
use crate::device::DeviceInfo;
use crate::ffi::process;
use std::collections::{HashMap, HashSet};
use std::io::{BufReader, BufWriter, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Contents by hash; what the worker lacks is sent.
pub type Blobs<'a> = HashMap<String, &'a [u8]>;

/// Lines and bytes that launchers may print before the worker's first reply.
const NOISE_LINES: usize = 1000;
/// Bytes of the worker's standard error that are kept.
const SAID: usize = 4 << 10;
/// Seconds that the worker's own deadline comes after the parent's.
const GRACE: u64 = 5;

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
        }
    }

    /// What to do next.
    pub fn hint(&self) -> &'static str {
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

type Received = Result<(Message<Reply>, Vec<Vec<u8>>), WireError>;

/// A running worker. Dropping it ends the process.
pub struct Worker {
    link: Link,
    /// Blobs that it was sent.
    sent: HashSet<String>,
    device: DeviceInfo,
    version: String,
}

/// The process and its streams.
struct Link {
    child: Option<Child>,
    input: Option<ChildStdin>,
    replies: Receiver<Received>,
    said: Arc<Mutex<Vec<u8>>>,
    next: u64,
}

impl Worker {
    /// Starts the process and waits until it has the device, so long at most.
    pub fn start(command: &WorkerCommand, ordinal: u32, seconds: u64) -> Result<Worker, WorkerError> {
        let (child, input, output, said) = spawn(command)?;
        let (tx, replies) = mpsc::channel();
        std::thread::spawn(move || receive(output, &tx));
        let mut link = Link { child: Some(child), input: Some(input), replies, said, next: 1 };
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
        self.link.child.as_ref().map(Child::id)
    }

    /// Has a run carried out within `seconds`, the transfer of what it needs included. [`Run::seconds`] is set from it.
    ///
    /// `blobs` holds at least what the run names by hash.
    pub fn run(&mut self, run: &Run, blobs: &Blobs, seconds: u64) -> Result<Ran, WorkerError> {
        let run = Run { seconds: seconds + GRACE, ..run.clone() };
        let needed = needed(&run);
        let mut new: Vec<&String> = needed.iter().filter(|sha| !self.sent.contains(**sha)).copied().collect();
        let mut sent_again = false;
        loop {
            let found: Option<Vec<(&str, &[u8])>> =
                new.iter().map(|sha| blobs.get(*sha).map(|bytes| (sha.as_str(), *bytes))).collect();
            let found = found
                .ok_or_else(|| WorkerError::Refused { message: "a blob that the run names is not given".into() })?;
            let (reply, received) = self.link.ask(Request::Run(run.clone()), &found, seconds)?;
            self.sent.extend(new.drain(..).cloned());
            match reply {
                Reply::Ran(head) => return self.ran(&run, head, received),
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
                other => {
                    self.link.end();
                    return Err(unexpected(&other));
                }
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

    fn garbled<T>(&mut self, what: &str) -> Result<T, WorkerError> {
        self.link.end();
        Err(WorkerError::Garbled { what: what.into() })
    }
}

impl Link {
    /// Sends a request and waits for its reply. An error ends the worker.
    fn ask(
        &mut self,
        body: Request,
        blobs: &[(&str, &[u8])],
        seconds: u64,
    ) -> Result<(Reply, Vec<(String, Vec<u8>)>), WorkerError> {
        let id = self.next;
        self.next += 1;
        let Some(mut input) = self.input.take() else {
            return Err(WorkerError::Died { how: "it had ended before".into(), said: String::new() });
        };
        let heads =
            blobs.iter().map(|(sha, b)| BlobHead { sha256: (*sha).to_string(), bytes: b.len() as u64 }).collect();
        let message = Message { id, body, blobs: heads };
        let bytes: Vec<&[u8]> = blobs.iter().map(|(_, b)| *b).collect();
        let deadline = Instant::now() + Duration::from_secs(seconds);
        let received = std::thread::scope(|scope| {
            let input = &mut input;
            // A worker that takes nothing more would block us: the deadline has to hold while we write too.
            scope.spawn(move || wire::send(&mut BufWriter::with_capacity(1 << 16, input), &message, &bytes));
            let received = self.replies.recv_timeout(deadline.saturating_duration_since(Instant::now()));
            if !matches!(received, Ok(Ok(_))) {
                // Only a dead reader frees the writer.
                self.kill();
            }
            received
        });
        let failed = match received {
            Ok(Ok((reply, blobs))) if reply.id == id => {
                self.input = Some(input);
                let shas = reply.blobs.into_iter().map(|b| b.sha256);
                return Ok((reply.body, shas.zip(blobs).collect()));
            }
            Ok(Ok((Message { body: Reply::Error { message, .. }, .. }, _))) => WorkerError::Garbled { what: message },
            Ok(Ok(_)) => WorkerError::Garbled { what: "a reply to another request".into() },
            Ok(Err(WireError::Garbled(what))) => WorkerError::Garbled { what },
            Err(RecvTimeoutError::Timeout) => WorkerError::TimedOut { seconds },
            Ok(Err(WireError::Broken(why))) => {
                WorkerError::Died { how: format!("{why}; {}", self.how()), said: self.said() }
            }
            Ok(Err(WireError::Closed)) | Err(RecvTimeoutError::Disconnected) => {
                WorkerError::Died { how: self.how(), said: self.said() }
            }
        };
        self.end();
        Err(failed)
    }

    fn said(&self) -> String {
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&said).trim().to_string()
    }

    /// How the process ended, if it has within a second.
    fn how(&mut self) -> String {
        let Some(child) = &mut self.child else { return "it had ended before".into() };
        for _ in 0..100 {
            match child.try_wait() {
                Ok(Some(status)) => return status.to_string(),
                Ok(None) => std::thread::sleep(Duration::from_millis(10)),
                Err(e) => return e.to_string(),
            }
        }
        "it closed its output".into()
    }

    fn kill(&mut self) {
        if let Some(child) = &mut self.child {
            // Its status was not taken yet, so the number is still its own.
            if !matches!(child.try_wait(), Ok(Some(_))) {
                process::kill_group(child.id());
                let _ = child.kill();
            }
        }
    }

    /// Ends the process. It may take the driver seconds to be rid of a kernel; nobody waits for that.
    fn end(&mut self) {
        self.input = None;
        self.kill();
        if let Some(mut child) = self.child.take() {
            std::thread::spawn(move || child.wait());
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.end();
    }
}

fn unexpected(reply: &Reply) -> WorkerError {
    let what = match reply {
        Reply::Hello { .. } => "a greeting",
        Reply::Ran(_) => "the result of a run",
        Reply::Missing { .. } => "that something is still missing",
        Reply::Error { message, .. } => message,
    };
    WorkerError::Garbled { what: format!("it says {what} where nobody asked for it") }
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

type Streams = (Child, ChildStdin, ChildStdout, Arc<Mutex<Vec<u8>>>);

fn spawn(command: &WorkerCommand) -> Result<Streams, WorkerError> {
    let failed = |why: String| WorkerError::Spawn { program: command.program.clone(), why };
    let mut process = Command::new(&command.program);
    process.args(&command.args).envs(command.env.iter().map(|(k, v)| (k, v)));
    process.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // A group of its own: a launcher's children end with it, and Ctrl-C reaches us only, who end the worker in order.
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut process, 0);
    let mut tries = 0;
    let mut child = loop {
        match process.spawn() {
            Ok(child) => break child,
            // A program that was just written may still be open for writing in a process that another thread is about to start.
            Err(e) if e.kind() == std::io::ErrorKind::ExecutableFileBusy && tries < 50 => {
                tries += 1;
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(e) => return Err(failed(e.to_string())),
        }
    };
    let streams = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (Some(input), Some(output), Some(mut errors)) = streams else {
        return Err(failed("it has no standard streams".into()));
    };
    let said = Arc::new(Mutex::new(Vec::new()));
    let kept = said.clone();
    std::thread::spawn(move || {
        let mut part = [0; 1024];
        while let Ok(n @ 1..) = errors.read(&mut part) {
            let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.extend_from_slice(&part[..n]);
            let over = kept.len().saturating_sub(SAID);
            kept.drain(..over);
        }
    });
    Ok((child, input, output, said))
}

/// Hands replies on until the stream ends or makes no sense. Before the first reply launchers may print what they like.
fn receive(output: ChildStdout, replies: &mpsc::Sender<Received>) {
    let mut output = BufReader::with_capacity(1 << 16, output);
    let mut greeted = false;
    let mut noise = 0;
    loop {
        let received = wire::line(&mut output).and_then(|line| {
            if !greeted && serde_json::from_str::<Message<Reply>>(&line).is_err() {
                return Ok(None);
            }
            wire::message(&line, &mut output).map(Some)
        });
        let send = match received {
            Ok(None) if noise < NOISE_LINES => {
                noise += 1;
                continue;
            }
            Ok(None) => Err(WireError::Garbled(format!("{NOISE_LINES} lines that are no message"))),
            Err(WireError::Garbled(_)) if !greeted && noise < NOISE_LINES => {
                noise += 1;
                continue;
            }
            Ok(Some(message)) => Ok(message),
            Err(e) => Err(e),
        };
        greeted = true;
        let stop = send.is_err();
        if replies.send(send).is_err() || stop {
            return;
        }
    }
}
