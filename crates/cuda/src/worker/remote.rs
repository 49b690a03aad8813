//! The way to another machine: a launcher starts `sh` there, which is fed a small script (`remote.sh`); it takes our program if it does
//! not have it yet, and becomes the worker on the same streams.
//!
//! Picture: [`Remote::open`] -> launcher's streams -> greeting, platform -> `have HASH`? -> bytes, once -> `start` -> [`Connection`].
//! Lines of the script begin with a mark that is drawn for each connection; what anybody else prints before is skipped. Nothing is sent
//! unless a marked line asked for it. The journal, the candidate's text and its reference stay here.
//! Limits: a connection on which nothing moves for [`IDLE_SECONDS`] is given up, a build there after [`BUILD_SECONDS`].

use super::WorkerError;
use super::launcher::{Launcher, last_lines};
use super::remote_binary::{self, Platform, WorkerBinary};
use super::streams::{self, Said};
use crate::ffi::process;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Nothing moved for so long: the connection is gone, or somebody waits for an answer that nobody gives.
pub const IDLE_SECONDS: u64 = 60;
/// A build of the worker takes minutes.
pub const BUILD_SECONDS: u64 = 1800;
/// Bytes of a line of the script's, and of what may be printed before its first one.
const MAX_LINE: u64 = 64 << 10;
const MAX_NOISE: u64 = 4 << 20;
/// Bytes that are sent between two looks at the clock.
const PART: usize = 256 << 10;
const SCRIPT: &str = include_str!("remote.sh");

/// A way to another machine; clones share what is known of it and its clock.
#[derive(Debug, Clone)]
pub struct Remote(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    launcher: Launcher,
    binary: WorkerBinary,
    idle_seconds: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    held: Held,
    open: u32,
    since: Option<Instant>,
}

/// What was had of the other machine.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Held {
    /// Seconds during which a launcher ran, from its start to its end.
    pub seconds: f64,
    /// Launchers that were started.
    pub connections: u64,
    /// Those that led to a program of ours.
    pub reached: u64,
    /// Bytes of programs and sources that were sent.
    pub program_bytes: u64,
    pub platform: Option<Platform>,
    /// Hash of the program there, or of the sources that it was built from.
    pub program: Option<String>,
}

impl PartialEq for Remote {
    fn eq(&self, other: &Remote) -> bool {
        self.0.launcher == other.0.launcher && self.0.binary == other.0.binary
    }
}

impl Eq for Remote {}

/// A program of ours that runs on the other machine, and its streams. Dropping it ends the launcher.
pub struct Connection {
    child: Option<Child>,
    input: Option<ChildStdin>,
    output: Option<BufReader<ChildStdout>>,
    said: Said,
    /// What the script's own lines begin with; the last one says how the program ended.
    mark: String,
    clock: Option<Clock>,
}

/// Counts as long as it lives.
#[derive(Debug)]
pub(super) struct Clock(Arc<Inner>);

impl Remote {
    pub fn new(launcher: Launcher, binary: WorkerBinary) -> Remote {
        Remote::with_idle_seconds(launcher, binary, IDLE_SECONDS)
    }

    /// The same with another limit on silence.
    pub fn with_idle_seconds(launcher: Launcher, binary: WorkerBinary, idle_seconds: u64) -> Remote {
        Remote(Arc::new(Inner { launcher, binary, idle_seconds, state: Mutex::default() }))
    }

    pub fn launcher(&self) -> &Launcher {
        &self.0.launcher
    }

    /// The limit on silence.
    pub fn idle_seconds(&self) -> u64 {
        self.0.idle_seconds
    }

    /// What was had so far.
    pub fn held(&self) -> Held {
        let state = self.0.lock();
        let mut held = state.held.clone();
        held.seconds += state.since.map_or(0.0, |s| s.elapsed().as_secs_f64());
        held
    }

    /// Starts the launcher, sends our program if it is not there yet, and starts it with these arguments. One that begins with `@cache/` is
    /// a place in Warpsmith's cache folder there.
    pub fn open(&self, args: &[&str]) -> Result<Connection, WorkerError> {
        self.start(&Start::Ours, args)
    }

    /// The same with a program that is there already.
    pub fn open_program(&self, words: &[&str]) -> Result<Connection, WorkerError> {
        self.start(&Start::Theirs, words)
    }

    fn start(&self, what: &Start, words: &[&str]) -> Result<Connection, WorkerError> {
        if words.iter().any(|w| w.contains(['\n', '\r', '\0'])) {
            return Err(WorkerError::Refused { message: "an argument of more than one line".into() });
        }
        let clock = self.0.tick();
        let (child, input, output, said) = streams::spawn(self.0.launcher.command(), self.0.launcher.program())?;
        let mark = fresh_mark();
        let connection = Connection {
            child: Some(child),
            input: Some(input),
            output: Some(BufReader::with_capacity(1 << 16, output)),
            said,
            mark: format!("@ws:{mark}@"),
            clock: Some(clock),
        };
        let id = connection.child.as_ref().map_or(0, Child::id);
        let watch = Watch::start(id, self.0.idle_seconds);
        let mut opening = Opening { remote: self, connection, watch, mark };
        match opening.run(what, words) {
            Ok(()) => {
                let Opening { mut connection, watch, .. } = opening;
                // From here on the one who uses it has limits of its own.
                if watch.stop() {
                    return Err(connection.failed(&self.0.launcher, Some(self.0.idle_seconds)));
                }
                self.0.lock().held.reached += 1;
                Ok(connection)
            }
            Err(Step::Failed(e)) => Err(*e),
            Err(Step::Closed) => {
                let Opening { mut connection, watch, .. } = opening;
                let idle = watch.stop().then_some(self.0.idle_seconds);
                Err(connection.failed(&self.0.launcher, idle))
            }
        }
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tick(self: &Arc<Inner>) -> Clock {
        let mut state = self.lock();
        state.open += 1;
        state.held.connections += 1;
        state.since.get_or_insert_with(Instant::now);
        Clock(self.clone())
    }
}

impl Drop for Clock {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.open -= 1;
        if state.open == 0
            && let Some(since) = state.since.take()
        {
            state.held.seconds += since.elapsed().as_secs_f64();
        }
    }
}

impl Connection {
    /// The program's standard input; it can be taken once.
    pub fn take_input(&mut self) -> Option<ChildStdin> {
        self.input.take()
    }

    /// The program's standard output; it can be taken once. Its last line is [`Connection::ended`].
    pub fn take_output(&mut self) -> Option<BufReader<ChildStdout>> {
        self.output.take()
    }

    /// How the program ended, where this is the line that says so.
    pub fn ended(&self, line: &str) -> Option<i32> {
        ended(&self.mark, line)
    }

    pub(super) fn mark(&self) -> &str {
        &self.mark
    }

    pub(super) fn take_child(&mut self) -> Option<Child> {
        self.child.take()
    }

    pub(super) fn take_clock(&mut self) -> Option<Clock> {
        self.clock.take()
    }

    pub(super) fn said_so_far(&self) -> Said {
        self.said.clone()
    }

    /// The end of what was said on the standard error.
    pub fn said(&self) -> String {
        self.said.text()
    }

    /// Why no shell, or no program, was reached.
    fn failed(&mut self, launcher: &Launcher, idle: Option<u64>) -> WorkerError {
        self.input = None;
        let how = match (idle, &mut self.child) {
            (Some(seconds), _) => format!("nothing came back for {seconds} s"),
            (None, Some(child)) => streams::how(child),
            (None, None) => "it had ended before".into(),
        };
        launcher.failure(&how, &self.said.last_words())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        drop(self.input.take());
        drop(self.output.take());
        if let Some(child) = self.child.take() {
            streams::let_go(child);
        }
    }
}

/// How a program ended, if this line of the script's says so.
pub(super) fn ended(mark: &str, line: &str) -> Option<i32> {
    line.trim_end().strip_prefix(mark)?.strip_prefix(" ended ")?.parse().ok()
}

/// What is started behind the launcher.
enum Start {
    Ours,
    Theirs,
}

enum Step {
    /// The stream ended, or was made to end.
    Closed,
    Failed(Box<WorkerError>),
}

impl From<std::io::Error> for Step {
    fn from(_: std::io::Error) -> Step {
        Step::Closed
    }
}

impl From<WorkerError> for Step {
    fn from(e: WorkerError) -> Step {
        Step::Failed(Box::new(e))
    }
}

/// A connection on its way.
struct Opening<'a> {
    remote: &'a Remote,
    connection: Connection,
    watch: Watch,
    mark: String,
}

impl Opening<'_> {
    fn run(&mut self, what: &Start, words: &[&str]) -> Result<(), Step> {
        self.send(SCRIPT.replace("@MARK@", &self.mark).as_bytes())?;
        let greeting = self.answer()?;
        let Some(("hello", said)) = greeting.split_once(' ') else { return Err(self.surprised(&greeting)) };
        let platform = Platform::of(&said.split(' ').collect::<Vec<_>>()).ok_or_else(|| self.surprised(&greeting))?;
        self.remote.0.lock().held.platform = Some(platform.clone());
        let start = match what {
            Start::Ours => format!("start {}", self.bring(&platform)?),
            Start::Theirs => "plain".to_string(),
        };
        for word in words {
            self.send(format!("word {word}\n").as_bytes())?;
        }
        let answer = self.ask(&start)?;
        match answer.split_once(' ').unwrap_or((&answer, "")) {
            ("started", _) => Ok(()),
            ("unrunnable", why) => {
                Err(remote_binary::unfit(format!("it does not start on {platform}: {why}"), &platform).into())
            }
            ("missing", program) => Err(WorkerError::Spawn { program: program.into(), why: "not there".into() }.into()),
            _ => Err(self.surprised(&answer)),
        }
    }

    /// Sees to it that our program is there; its name there.
    fn bring(&mut self, platform: &Platform) -> Result<String, Step> {
        let load = remote_binary::choose(&self.remote.0.binary, platform)?;
        self.watch.touch();
        let size = if load.sources { "-".to_string() } else { load.bytes.len().to_string() };
        match self.ask(&format!("have {} {size}", load.sha256))?.as_str() {
            "have" => {}
            "want" => self.put(&load, platform)?,
            other => return Err(self.surprised(other)),
        }
        self.remote.0.lock().held.program = Some(load.sha256.clone());
        Ok(load.sha256)
    }

    /// Sends a program, or sources that are built there.
    fn put(&mut self, load: &remote_binary::Load, platform: &Platform) -> Result<(), Step> {
        let op = if load.sources { "build" } else { "put" };
        let ready = self.ask(&format!("{op} {} {}", load.sha256, load.bytes.len()))?;
        let failed = |answer: &str| {
            let why = answer.strip_prefix("broken ").unwrap_or(answer);
            let why = if load.sources { format!("building it there failed: {why}") } else { why.to_string() };
            Step::from(remote_binary::unfit(why, platform))
        };
        if ready != "ready" {
            return Err(failed(&ready));
        }
        for part in load.bytes.chunks(PART) {
            self.send(part)?;
        }
        self.remote.0.lock().held.program_bytes += load.bytes.len() as u64;
        if load.sources {
            self.watch.allow(BUILD_SECONDS);
        }
        let stored = self.answer()?;
        self.watch.allow(self.remote.0.idle_seconds);
        if stored == "stored" { Ok(()) } else { Err(failed(&stored)) }
    }

    fn surprised(&self, answer: &str) -> Step {
        let said = self.connection.said();
        let hint =
            "does the launcher pass bytes on as they are? Leave out `-t` and `-it`: a terminal in between changes them"
                .to_string();
        let message = format!(
            "`{}` leads to something that answers strangely: {}{}{}",
            self.remote.0.launcher.text(),
            answer.chars().filter(|c| !c.is_control()).take(200).collect::<String>(),
            if said.is_empty() { "" } else { ": " },
            last_lines(&said, 4)
        );
        WorkerError::Launcher { code: "launcher-failed", message, hint }.into()
    }

    fn ask(&mut self, line: &str) -> Result<String, Step> {
        self.send(format!("{line}\n").as_bytes())?;
        self.answer()
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), Step> {
        let input = self.connection.input.as_mut().ok_or(Step::Closed)?;
        input.write_all(bytes)?;
        input.flush()?;
        self.watch.touch();
        Ok(())
    }

    /// The script's next line without its mark.
    fn answer(&mut self) -> Result<String, Step> {
        let mut noise = 0;
        loop {
            let output = self.connection.output.as_mut().ok_or(Step::Closed)?;
            let mut bytes = Vec::new();
            let n = output.take(MAX_LINE).read_until(b'\n', &mut bytes)?;
            if n == 0 {
                return Err(Step::Closed);
            }
            let line = String::from_utf8_lossy(&bytes);
            let line = line.strip_suffix('\n').unwrap_or(&line);
            if let Some(answer) = line.strip_prefix(&self.connection.mark) {
                self.watch.touch();
                if answer.ends_with('\r') {
                    return Err(self.surprised("lines that end as a terminal's do"));
                }
                return Ok(answer.trim().to_string());
            }
            // Noise is no sign of life: a launcher that only talks is given up as well.
            noise += n as u64;
            if noise > MAX_NOISE {
                return Err(self.surprised("text without end"));
            }
        }
    }
}

/// A mark that no noise can know.
fn fresh_mark() -> String {
    use std::hash::{BuildHasher, Hasher};
    format!("{:016x}", std::collections::hash_map::RandomState::new().build_hasher().finish())
}

/// Kills a launcher's process group when nothing has moved for too long: only that frees whoever reads from it or writes to it.
struct Watch {
    shared: Arc<(Mutex<Watched>, Condvar)>,
}

struct Watched {
    deadline: Instant,
    seconds: u64,
    stopped: bool,
    fired: bool,
}

impl Watch {
    fn start(id: u32, seconds: u64) -> Watch {
        let watched =
            Watched { deadline: Instant::now() + Duration::from_secs(seconds), seconds, stopped: false, fired: false };
        let shared = Arc::new((Mutex::new(watched), Condvar::new()));
        let theirs = shared.clone();
        std::thread::spawn(move || {
            let (lock, changed) = &*theirs;
            let mut watched = lock.lock().unwrap_or_else(PoisonError::into_inner);
            while !watched.stopped {
                let left = watched.deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    watched.fired = true;
                    // The child is not waited for while it is watched, so that the number is its own.
                    process::kill_group(id);
                    return;
                }
                watched = changed.wait_timeout(watched, left).unwrap_or_else(PoisonError::into_inner).0;
            }
        });
        Watch { shared }
    }

    fn lock(&self) -> MutexGuard<'_, Watched> {
        self.shared.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something moved.
    fn touch(&self) {
        let mut watched = self.lock();
        watched.deadline = Instant::now() + Duration::from_secs(watched.seconds);
    }

    /// Another limit from now on.
    fn allow(&self, seconds: u64) {
        self.lock().seconds = seconds;
        self.touch();
    }

    /// Ends the watch; true where it has killed.
    fn stop(&self) -> bool {
        let mut watched = self.lock();
        watched.stopped = true;
        self.shared.1.notify_all();
        watched.fired
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop();
    }
}
