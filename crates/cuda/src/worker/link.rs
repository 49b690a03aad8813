//! A process on the other end of two streams that speak lines and blobs (`docs/worker-protocol.md`, framing): one request at a time, each
//! with a deadline, and an end for the process whatever it does.
//!
//! It knows nothing of what is said: both the worker that holds the device and the one that holds the baselines are reached by it.

use super::client::{GRACE, WorkerError};
use super::command::WorkerCommand;
use super::protocol::{BlobHead, Message};
use super::remote::{self, Clock};
use super::serve::exit;
use super::streams::{self, Said};
use super::wire::{self, WireError};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, BufReader, BufWriter, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Lines and bytes that launchers may print before the first reply.
const NOISE_LINES: usize = 1000;

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
    said: Said,
    next: u64,
    /// On another machine; its clock runs as long as the link is there.
    there: Option<There>,
}

struct There {
    _clock: Option<Clock>,
    /// How much longer than the worker's own limit is waited, before it is the connection that is slow.
    patience: u64,
}

/// Bytes a second that a connection carries at least.
const SLOWEST: u64 = 1 << 20;

impl<R: Answer> Link<R> {
    /// Starts the process. Lines that are no message are skipped until its first reply.
    pub fn start(command: &WorkerCommand) -> Result<Link<R>, WorkerError> {
        let (tx, replies) = mpsc::channel();
        if let Some(remote) = &command.remote {
            let mut connection = command.open(remote)?;
            let there = There { _clock: connection.take_clock(), patience: remote.idle_seconds() };
            let mark = Some(connection.mark().to_string());
            let said = connection.said_so_far();
            let (child, input) = (connection.take_child(), connection.take_input());
            if let Some(output) = connection.take_output() {
                std::thread::spawn(move || receive(output, mark.as_deref(), &tx));
            }
            return Ok(Link { child, input, replies, said, next: 1, there: Some(there) });
        }
        let mut process = Command::new(&command.program);
        process.args(&command.args).envs(command.env.iter().map(|(k, v)| (k, v)));
        let (child, input, output, said) = streams::spawn(process, &command.program.to_string_lossy())?;
        let output = BufReader::with_capacity(1 << 16, output);
        std::thread::spawn(move || receive(output, None, &tx));
        Ok(Link { child: Some(child), input: Some(input), replies, said, next: 1, there: None })
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
        let total: u64 = bytes.iter().map(|b| b.len() as u64).sum();
        self.exchange(id, seconds, total, move |out| wire::send(out, &message, &bytes))
    }

    /// Sends bytes that are no message, as a program for an interpreter, and waits for a reply with the number 0.
    pub fn feed(&mut self, bytes: &[u8], seconds: u64) -> Result<R, WorkerError> {
        let send = |out: &mut BufWriter<&mut ChildStdin>| out.write_all(bytes).and_then(|()| out.flush());
        self.exchange(0, seconds, bytes.len() as u64, send).map(|(reply, _)| reply)
    }

    fn exchange(
        &mut self,
        id: u64,
        seconds: u64,
        bytes: u64,
        write: impl FnOnce(&mut BufWriter<&mut ChildStdin>) -> io::Result<()> + Send,
    ) -> Result<(R, Vec<(String, Vec<u8>)>), WorkerError> {
        let Some(mut input) = self.input.take() else {
            return Err(WorkerError::Died { how: "it had ended before".into(), said: String::new() });
        };
        // A worker on another machine ends itself at its limit: who says nothing even then is a connection that is gone.
        let wait = self.there.as_ref().map_or(seconds, |t| seconds + GRACE + t.patience + bytes / SLOWEST);
        let deadline = Instant::now() + Duration::from_secs(wait);
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
            Ok(Err(WireError::Ended(exit::DEADLINE))) => WorkerError::TimedOut { seconds },
            Ok(Err(WireError::Ended(code))) => {
                WorkerError::Died { how: format!("exit status: {code}, there"), said: self.said() }
            }
            Ok(Err(e)) if self.there.is_some() => self.lost(match e {
                WireError::Garbled(what) => format!("what arrives is not of the worker's protocol: {what}"),
                WireError::Broken(why) => why,
                WireError::Closed | WireError::Ended(_) => "it closed".into(),
            }),
            Err(RecvTimeoutError::Timeout) if self.there.is_some() => self.lost(format!("silent for {wait} s")),
            Err(RecvTimeoutError::Disconnected) if self.there.is_some() => self.lost("it closed".into()),
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

    /// Whether the process runs on another machine.
    pub fn is_remote(&self) -> bool {
        self.there.is_some()
    }

    fn said(&self) -> String {
        self.said.last_words()
    }

    fn lost(&mut self, what: String) -> WorkerError {
        WorkerError::Lost { how: format!("{what}; the launcher: {}", self.how()), said: self.said() }
    }

    /// How the process ended, if it has within a second.
    fn how(&mut self) -> String {
        self.child.as_mut().map_or_else(|| "it had ended before".into(), streams::how)
    }

    fn kill(&mut self) {
        self.child.iter_mut().for_each(streams::kill);
    }

    /// Ends the process in peace: its input ends, and it has so many seconds for what it still wants to write. Whether it ended by itself.
    pub fn finish(&mut self, seconds: u64) -> bool {
        self.input = None;
        let until = Instant::now() + Duration::from_secs(seconds);
        while let Some(child) = &mut self.child {
            match child.try_wait() {
                Ok(None) if Instant::now() < until => std::thread::sleep(Duration::from_millis(20)),
                Ok(Some(_)) => {
                    self.child = None;
                    return true;
                }
                _ => break,
            }
        }
        self.end();
        false
    }

    /// Ends the process. It may take the driver seconds to be rid of a kernel; nobody waits for that.
    pub fn end(&mut self) {
        self.input = None;
        if self.there.is_some()
            && let Some(child) = self.child.take()
        {
            // A launcher is let go: its other side has things to put away.
            return streams::let_go(child);
        }
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

/// Hands replies on until the stream ends or makes no sense. Before the first reply launchers may print what they like.
/// `mark` begins the line that tells the end of a program on another machine.
fn receive<R: DeserializeOwned>(
    mut output: BufReader<ChildStdout>,
    mark: Option<&str>,
    replies: &mpsc::Sender<Received<R>>,
) {
    let mut greeted = false;
    let mut noise = 0;
    loop {
        let received = wire::line(&mut output).and_then(|line| {
            if let Some(code) = mark.and_then(|mark| remote::ended(mark, &line)) {
                return Err(WireError::Ended(code));
            }
            // A worker's output begins, and the line about its end is preceded, by an empty one.
            if mark.is_some() && line.is_empty() {
                return Ok(None);
            }
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
