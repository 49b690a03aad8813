//! A process on the other end of two streams that speak lines and blobs (`docs/worker-protocol.md`, framing): one request at a time, each
//! with a deadline, and an end for the process whatever it does.
//!
//! It knows nothing of what is said: both the worker that holds the device and the one that holds the baselines are reached by it.

use super::client::WorkerError;
use super::command::WorkerCommand;
use super::protocol::{BlobHead, Message};
use super::wire::{self, WireError};
use crate::ffi::process;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Lines and bytes that launchers may print before the first reply.
const NOISE_LINES: usize = 1000;
/// Bytes of the process's standard error that are kept.
const SAID: usize = 4 << 10;

/// What a reply has to tell about itself.
pub trait Answer: DeserializeOwned + Send + 'static {
    /// Why the other side could not make sense of what it was sent, if this says so.
    fn complaint(&self) -> Option<&str>;
}

type Received<R> = Result<(Message<R>, Vec<Vec<u8>>), WireError>;

/// The process and its streams. Dropping it ends the process.
pub struct Link<R> {
    child: Option<Child>,
    input: Option<ChildStdin>,
    replies: Receiver<Received<R>>,
    said: Arc<Mutex<Vec<u8>>>,
    next: u64,
}

impl<R: Answer> Link<R> {
    /// Starts the process. Lines that are no message are skipped until its first reply.
    pub fn start(command: &WorkerCommand) -> Result<Link<R>, WorkerError> {
        let (child, input, output, said) = spawn(command)?;
        let (tx, replies) = mpsc::channel();
        std::thread::spawn(move || receive(output, &tx));
        Ok(Link { child: Some(child), input: Some(input), replies, said, next: 1 })
    }

    /// Sends a request and waits for its reply. An error ends the process.
    pub fn ask(
        &mut self,
        body: impl Serialize + Send,
        blobs: &[(&str, &[u8])],
        seconds: u64,
    ) -> Result<(R, Vec<(String, Vec<u8>)>), WorkerError> {
        let id = self.next;
        self.next += 1;
        let heads =
            blobs.iter().map(|(sha, b)| BlobHead { sha256: (*sha).to_string(), bytes: b.len() as u64 }).collect();
        let message = Message { id, body, blobs: heads };
        let bytes: Vec<&[u8]> = blobs.iter().map(|(_, b)| *b).collect();
        self.exchange(id, seconds, move |out| wire::send(out, &message, &bytes))
    }

    /// Sends bytes that are no message, as a program for an interpreter, and waits for a reply with the number 0.
    pub fn feed(&mut self, bytes: &[u8], seconds: u64) -> Result<R, WorkerError> {
        let send = |out: &mut BufWriter<&mut ChildStdin>| out.write_all(bytes).and_then(|()| out.flush());
        self.exchange(0, seconds, send).map(|(reply, _)| reply)
    }

    fn exchange(
        &mut self,
        id: u64,
        seconds: u64,
        write: impl FnOnce(&mut BufWriter<&mut ChildStdin>) -> io::Result<()> + Send,
    ) -> Result<(R, Vec<(String, Vec<u8>)>), WorkerError> {
        let Some(mut input) = self.input.take() else {
            return Err(WorkerError::Died { how: "it had ended before".into(), said: String::new() });
        };
        let deadline = Instant::now() + Duration::from_secs(seconds);
        let received = std::thread::scope(|scope| {
            let input = &mut input;
            // A worker that takes nothing more would block us: the deadline has to hold while we write too.
            scope.spawn(move || write(&mut BufWriter::with_capacity(1 << 16, input)));
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
            Ok(Ok((message, _))) => WorkerError::Garbled {
                what: message.body.complaint().unwrap_or("a reply to another request").to_string(),
            },
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
}

impl<R> Link<R> {
    /// The process's id here; that of the launcher if there is one.
    pub fn process_id(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
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
    pub fn end(&mut self) {
        self.input = None;
        self.kill();
        if let Some(mut child) = self.child.take() {
            std::thread::spawn(move || child.wait());
        }
    }
}

impl<R> Drop for Link<R> {
    fn drop(&mut self) {
        self.end();
    }
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
fn receive<R: DeserializeOwned>(output: ChildStdout, replies: &mpsc::Sender<Received<R>>) {
    let mut output = BufReader::with_capacity(1 << 16, output);
    let mut greeted = false;
    let mut noise = 0;
    loop {
        let received = wire::line(&mut output).and_then(|line| {
            if !greeted && serde_json::from_str::<Message<R>>(&line).is_err() {
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
