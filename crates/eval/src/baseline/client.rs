//! The parent's side: one Python process with all baselines, started anew when one of them has broken it.
//!
//! Whatever a baseline does is [`Absent`] with the reason, for that baseline alone: the others are made resident again in the next process,
//! and nobody asks the broken one again. The process is started ahead, as importing PyTorch takes seconds. Limits: every request has a time,
//! and after [`RESTARTS`] processes no further one is started.

use super::command;
use super::given::Given;
use super::name::Name;
use super::protocol::{
    Fake, Greeting, Hello, OutputHead, PROTOCOL, Prepare, Ready, Reply, Request, SampledHead, TensorHead, Time,
    TimedHead,
};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use warpsmith_cuda::worker::{Answer, Link, WorkerCommand, WorkerError, sha256};

/// Processes that are started at most after the first.
const RESTARTS: u32 = 8;
/// Seconds that the process's own deadline comes after the parent's.
const GRACE: u64 = 5;

/// Why a baseline has no time: what is not installed and how to get it, that it does not take the problem, or how it broke.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct Absent {
    pub why: String,
}

impl Absent {
    pub fn new(why: impl Into<String>) -> Absent {
        Absent { why: why.into() }
    }
}

/// How the process is started and what it may take.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// A Python; on another machine where it says so ([`Options::new`]).
    pub command: WorkerCommand,
    /// What it runs.
    pub program: Arc<str>,
    /// Of the device that the candidates run on.
    pub device_uuid: Option<String>,
    /// For the start: Python, PyTorch and its CUDA context.
    pub start_seconds: u64,
    /// For everything else.
    pub seconds: u64,
    /// Instead of PyTorch; for tests.
    pub fake: Option<Fake>,
}

impl Options {
    /// `python`: `--python`'s value, else `python3`. `program` is `warpsmith_builtin::baseline_program()`. 120 seconds for the start, 60 for
    /// a request. With a launcher set [`WorkerCommand::remote`] of the command.
    pub fn new(python: Option<&Path>, program: impl Into<Arc<str>>) -> Options {
        Options {
            command: command::command(python),
            program: program.into(),
            device_uuid: None,
            start_seconds: 120,
            seconds: 60,
            fake: None,
        }
    }
}

/// What came of timing.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Timed {
    pub head: TimedHead,
    /// By hash: the values of the sampled outputs, f32.
    pub contents: HashMap<String, Vec<u8>>,
}

impl Timed {
    /// The sampled outputs with their values.
    pub fn outputs(&self) -> impl Iterator<Item = (&SampledHead, &[u8])> {
        self.head.sampled.iter().filter_map(|s| Some((s, self.contents.get(&s.output.sha256)?.as_slice())))
    }
}

/// The baselines of a run.
pub struct Baselines {
    options: Options,
    state: State,
    /// Processes that were started.
    started: u32,
    subjects: BTreeMap<String, Subject>,
}

enum State {
    /// The next one who asks starts it.
    Idle,
    Starting(JoinHandle<Result<Process, String>>),
    Running(Box<Process>),
    /// No further one is started, and why.
    Ended(String),
}

struct Process {
    link: Link<Reply>,
    greeting: Greeting,
    sent: HashSet<String>,
}

struct Subject {
    request: Prepare,
    blobs: HashMap<String, Arc<Vec<u8>>>,
    /// In which process it is resident, counted from 1; 0: in none.
    resident: u32,
    ready: Option<Ready>,
    broken: Option<Absent>,
}

impl Answer for Reply {
    fn complaint(&self) -> Option<&str> {
        match self {
            Reply::Error { message, .. } => Some(message),
            _ => None,
        }
    }
}

impl Baselines {
    /// Starts the process and does not wait for it.
    pub fn start(options: Options) -> Baselines {
        let state = State::begin(&options);
        Baselines { options, state, started: 1, subjects: BTreeMap::new() }
    }

    /// Who answers: versions and device. Waits for the start.
    pub fn greeting(&mut self) -> Result<Greeting, Absent> {
        self.process().map(|p| p.greeting.clone())
    }

    /// Makes a baseline resident in up to `copies` copies, within so many bytes, under a name for [`Baselines::time`].
    pub fn prepare(
        &mut self,
        subject: &str,
        name: Name,
        given: &Given,
        copies: u32,
        copies_bytes: u64,
    ) -> Result<Ready, Absent> {
        let mut blobs = HashMap::new();
        let mut bases = Vec::new();
        for base in &given.bases {
            let heads = base.iter().map(|tensor| {
                let sha = sha256(&tensor.bytes);
                blobs.entry(sha.clone()).or_insert_with(|| Arc::new(tensor.bytes.clone()));
                let dtype = tensor.dtype.as_str().to_string();
                TensorHead { name: tensor.name.clone(), dtype, shape: tensor.shape.clone(), sha256: sha }
            });
            bases.push(heads.collect());
        }
        let request = Prepare {
            subject: subject.to_string(),
            baseline: name.as_str().to_string(),
            causal: given.causal,
            scalars: given.scalars.clone(),
            bases,
            copies,
            copies_bytes,
            seconds: self.options.seconds + GRACE,
        };
        let fresh = Subject { request, blobs, resident: 0, ready: None, broken: None };
        self.subjects.insert(subject.to_string(), fresh);
        let prepared = self.reside(subject);
        if prepared.is_err() {
            self.subjects.remove(subject);
        }
        prepared
    }

    /// Times a resident baseline. [`Time::seconds`] is set here.
    pub fn time(&mut self, time: &Time) -> Result<Timed, Absent> {
        self.reside(&time.subject)?;
        let seconds = time.seconds.max(self.options.seconds);
        let request = Request::Time(Time { seconds: seconds + GRACE, ..time.clone() });
        match self.ask(&time.subject, request, seconds)? {
            (Reply::Timed(head), contents) => {
                if head.sampled.iter().any(|s| !contents.contains_key(&s.output.sha256)) {
                    return Err(self.broke(&time.subject, "a sampled output's values are missing"));
                }
                if head.samples.len() as u32 != time.replays || head.samples.iter().any(|x| !x.is_finite() || *x <= 0.0)
                {
                    return Err(self.broke(&time.subject, "it gave no time for some replays"));
                }
                Ok(Timed { head: *head, contents })
            }
            (other, _) => Err(self.stray(&time.subject, &other)),
        }
    }

    /// One call on a base: the output's values, f32, in the task's order.
    pub fn output(&mut self, subject: &str, base: usize) -> Result<Vec<u8>, Absent> {
        self.reside(subject)?;
        let seconds = self.options.seconds;
        let request = Request::Output { subject: subject.to_string(), base, seconds: seconds + GRACE };
        match self.ask(subject, request, seconds)? {
            (Reply::Output(OutputHead { sha256, .. }), mut contents) => match contents.remove(&sha256) {
                Some(values) => Ok(values),
                None => Err(self.broke(subject, "its output's values are missing")),
            },
            (other, _) => Err(self.stray(subject, &other)),
        }
    }

    /// Forgets a baseline and gives its memory back.
    pub fn discard(&mut self, subject: &str) {
        let Some(known) = self.subjects.remove(subject) else { return };
        if known.resident == self.started
            && let State::Running(process) = &mut self.state
        {
            let request = Request::Discard { subject: subject.to_string() };
            if process.link.ask(request, &[], self.options.seconds).is_err() {
                self.restart();
            }
        }
    }

    /// Has a baseline resident in the process that there is now.
    fn reside(&mut self, subject: &str) -> Result<Ready, Absent> {
        let known =
            self.subjects.get(subject).ok_or_else(|| Absent::new(format!("nothing is prepared as {subject}")))?;
        if let Some(broken) = &known.broken {
            return Err(broken.clone());
        }
        self.process()?;
        let known = &self.subjects[subject];
        if let Some(ready) = known.ready.as_ref().filter(|_| known.resident == self.started) {
            return Ok(ready.clone());
        }
        let request = Request::Prepare(known.request.clone());
        match self.ask(subject, request, self.options.seconds)? {
            (Reply::Prepared(ready), _) => {
                let started = self.started;
                if let Some(known) = self.subjects.get_mut(subject) {
                    (known.resident, known.ready) = (started, Some(ready.clone()));
                }
                Ok(ready)
            }
            (other, _) => Err(self.stray(subject, &other)),
        }
    }

    /// Asks on behalf of a subject, with the blobs that it needs; whatever goes wrong is that subject's.
    fn ask(
        &mut self,
        subject: &str,
        request: Request,
        seconds: u64,
    ) -> Result<(Reply, HashMap<String, Vec<u8>>), Absent> {
        let blobs = match (&request, self.subjects.get(subject)) {
            (Request::Prepare(_), Some(known)) => known.blobs.clone(),
            _ => HashMap::new(),
        };
        let process = self.process()?;
        let mut again = false;
        let done = loop {
            let new: Vec<(&str, &[u8])> = blobs
                .iter()
                .filter(|(sha, _)| !process.sent.contains(*sha))
                .map(|(sha, bytes)| (sha.as_str(), bytes.as_slice()))
                .collect();
            let names: Vec<String> = new.iter().map(|(sha, _)| (*sha).to_string()).collect();
            match process.link.ask(request.clone(), &new, seconds) {
                Ok((Reply::Missing { .. }, _)) if !again => {
                    again = true;
                    process.sent.clear();
                }
                Ok((reply, contents)) => {
                    process.sent.extend(names);
                    break Ok((reply, contents));
                }
                Err(e) => break Err(e),
            }
        };
        match done {
            Ok((Reply::Absent { why }, _)) => Err(self.out(subject, Absent::new(why))),
            Ok((Reply::Failed { why, last }, _)) => {
                if last {
                    self.restart();
                }
                Err(self.out(subject, Absent::new(format!("it failed: {why}"))))
            }
            Ok((Reply::Error { message, .. }, _)) => {
                Err(self.out(subject, Absent::new(format!("its process refuses the request: {message}"))))
            }
            Ok((reply, contents)) => Ok((reply, contents.into_iter().collect())),
            Err(e) => {
                let why = match e {
                    WorkerError::TimedOut { seconds } => format!("it did not answer within {seconds} s"),
                    other => format!("its process ended: {other}"),
                };
                self.restart();
                Err(self.out(subject, Absent::new(why)))
            }
        }
    }

    /// Nobody asks it again.
    fn out(&mut self, subject: &str, why: Absent) -> Absent {
        if let Some(known) = self.subjects.get_mut(subject) {
            known.broken = Some(why.clone());
        }
        why
    }

    fn broke(&mut self, subject: &str, why: &str) -> Absent {
        self.restart();
        self.out(subject, Absent::new(why))
    }

    fn stray(&mut self, subject: &str, reply: &Reply) -> Absent {
        let word = serde_json::to_value(reply).ok().and_then(|v| Some(v.get("reply")?.as_str()?.to_string()));
        self.broke(subject, &format!("its process answers `{}` where that is no answer", word.unwrap_or_default()))
    }

    /// The process ends; another is started when somebody asks.
    fn restart(&mut self) {
        self.state = if self.started > RESTARTS {
            State::Ended(format!("the process with the baselines ended {} times", self.started))
        } else {
            State::Idle
        };
    }

    /// The process, once it has started.
    fn process(&mut self) -> Result<&mut Process, Absent> {
        if let State::Idle = &self.state {
            self.state = State::begin(&self.options);
            self.started += 1;
        }
        if let State::Starting(_) = &self.state
            && let State::Starting(handle) = std::mem::replace(&mut self.state, State::Ended(String::new()))
        {
            self.state = match handle.join() {
                Ok(Ok(process)) => State::Running(Box::new(process)),
                Ok(Err(why)) => State::Ended(why),
                Err(_) => State::Ended("the thread that starts Python panicked".into()),
            };
        }
        match &mut self.state {
            State::Running(process) => match &process.greeting.unusable {
                Some(why) => Err(Absent::new(why.clone())),
                None => Ok(process),
            },
            State::Ended(why) => Err(Absent::new(why.clone())),
            State::Idle | State::Starting(_) => Err(Absent::new("the process with the baselines has not started")),
        }
    }
}

impl Drop for Baselines {
    fn drop(&mut self) {
        // A process that is still on its way would outlive us by its greeting.
        if let State::Starting(handle) = std::mem::replace(&mut self.state, State::Ended(String::new())) {
            let _ = handle.join();
        }
    }
}

impl State {
    fn begin(options: &Options) -> State {
        let options = options.clone();
        State::Starting(std::thread::spawn(move || begin(&options)))
    }
}

/// Starts Python, gives it the program, and waits for the greeting.
fn begin(options: &Options) -> Result<Process, String> {
    let python = options.command.program.display().to_string();
    let failed = |e: WorkerError| match e {
        WorkerError::Spawn { .. } => {
            format!("{python} was not found, and baselines need Python with PyTorch: --python names one")
        }
        WorkerError::TimedOut { seconds } => format!("{python} did not import PyTorch within {seconds} s"),
        other => format!("{python} cannot hold the baselines: {other}"),
    };
    let mut link: Link<Reply> = Link::start(&options.command).map_err(failed)?;
    match link.feed(&command::payload(&options.program), options.start_seconds).map_err(failed)? {
        Reply::Ready => {}
        other => return Err(format!("{python} does not take the program: {other:?}")),
    }
    let hello = Hello {
        protocol: PROTOCOL,
        device_uuid: options.device_uuid.clone(),
        device: 0,
        fake: options.fake.clone(),
        seconds: options.start_seconds + GRACE,
    };
    match link.ask(Request::Hello(hello), &[], options.start_seconds).map_err(failed)?.0 {
        Reply::Hello(greeting) => Ok(Process { link, greeting, sent: HashSet::new() }),
        Reply::Failed { why, .. } => Err(format!("PyTorch does not start: {why}")),
        other => Err(format!("{python} answers {other:?} to the greeting")),
    }
}
