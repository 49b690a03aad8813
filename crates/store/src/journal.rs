//! The journal: one JSON object a line, numbered by `seq` from 0, and the fold that turns it into a record.

use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use warpsmith_spec::record::{AcceptRecord, Environment, NotApplicable, RUN_SCHEMA, ResultRecord, RunInfo, RunRecord};
use warpsmith_spec::speedups;

const MAX_LINE_BYTES: usize = 16 << 20;

/// What can happen in a run. The journal is the run's only state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// Always the first.
    RunStarted { run: RunInfo, environment: Environment },
    /// What is known of the environment only later: which toolkit made the artifacts.
    Environment { environment: Environment },
    /// A candidate and shape that its constraints exclude.
    NotApplicable { entry: NotApplicable },
    /// A kernel shown because it must fail.
    Example { result: Box<ResultRecord> },
    /// One candidate judged on one workload.
    Result { result: Box<ResultRecord> },
    /// The criteria that the task or the candidate states.
    Accept { criteria: Vec<AcceptRecord> },
    /// The run was ended from outside, in order.
    Interrupted,
    /// A run that had not come to its end was taken up again by this command.
    Resumed { command: Vec<String> },
    /// Always the last of a run that came to its end.
    RunFinished { exit_code: i32 },
}

/// One line.
#[derive(Serialize, Deserialize)]
pub(crate) struct Line {
    pub seq: u64,
    pub at: String,
    #[serde(flatten)]
    pub event: Event,
}

#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    #[error("cannot read {path}: {source}", path = .path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{path}:{line}: not an event of a warpsmith journal: {why}", path = .path.display())]
    Line { path: PathBuf, line: usize, why: String },
    #[error("{path} does not begin with a `run_started` event: not a run's journal, or the run never began", path = .path.display())]
    NoStart { path: PathBuf },
}

/// Reads a journal back. A torn last line is what a kill leaves, and is dropped; a damaged line before it is an error.
///
/// # Errors
/// The file cannot be read, a line is no event, or the numbers do not run 0, 1, 2 ...
pub fn read_journal(path: &Path) -> Result<Vec<Event>, JournalError> {
    let text = fs::read_to_string(path).map_err(|source| JournalError::Read { path: path.into(), source })?;
    let mut events = Vec::new();
    let complete = text.rfind('\n').map_or("", |end| &text[..end]);
    for (i, line) in complete.lines().enumerate() {
        let at = |why: String| JournalError::Line { path: path.into(), line: i + 1, why };
        if line.len() > MAX_LINE_BYTES {
            return Err(at(format!("the line has {} bytes, more than {MAX_LINE_BYTES}", line.len())));
        }
        let line: Line = serde_json::from_str(line).map_err(|e| at(e.to_string()))?;
        if line.seq != i as u64 {
            return Err(at(format!("seq is {}, expected {i}", line.seq)));
        }
        events.push(line.event);
    }
    Ok(events)
}

/// The record that a run's events amount to.
///
/// # Errors
/// The first event is not [`Event::RunStarted`].
pub fn fold(path: &Path, events: &[Event]) -> Result<RunRecord, JournalError> {
    let Some(Event::RunStarted { run, environment }) = events.first() else {
        return Err(JournalError::NoStart { path: path.into() });
    };
    let mut record = RunRecord {
        schema: RUN_SCHEMA.into(),
        run: run.clone(),
        environment: environment.clone(),
        not_applicable: Vec::new(),
        examples: Vec::new(),
        results: Vec::new(),
        accept: Vec::new(),
        geomean: None,
        best: None,
        worst: None,
        speedups: Vec::new(),
    };
    for event in &events[1..] {
        match event {
            Event::Environment { environment } => record.environment.clone_from(environment),
            Event::NotApplicable { entry } => record.not_applicable.push(entry.clone()),
            Event::Example { result } => record.examples.push((**result).clone()),
            Event::Result { result } => match record.results.iter_mut().find(|r| is_lost(r) && same(r, result)) {
                Some(lost) => lost.clone_from(result),
                None => record.results.push((**result).clone()),
            },
            Event::Accept { criteria } => record.accept.clone_from(criteria),
            Event::RunStarted { .. } | Event::Resumed { .. } | Event::Interrupted | Event::RunFinished { .. } => {}
        }
    }
    let order: Vec<String> = first_baselines(&record);
    let summary = speedups::summary(&record.results, &order);
    (record.geomean, record.best, record.worst) = (summary.geomean, summary.best, summary.worst);
    record.speedups = summary.speedups;
    Ok(record)
}

/// The order in which a run speaks of its baselines: as its first measured result has them, peers first.
fn first_baselines(record: &RunRecord) -> Vec<String> {
    let measured = record.results.iter().find_map(|r| r.measurement.as_ref());
    let names: Vec<String> = measured.map(|m| m.baselines.keys().cloned().collect()).unwrap_or_default();
    let (peers, own): (Vec<String>, Vec<String>) = names.into_iter().partition(|n| warpsmith_spec::record::is_peer(n));
    // PyTorch's own choice is what people use.
    let (usual, others): (Vec<String>, Vec<String>) = peers.into_iter().partition(|n| n == "sdpa:auto");
    usual.into_iter().chain(others).chain(own).collect()
}

/// The connection was lost in the middle of it: the same evaluation, done again, takes its place.
fn is_lost(result: &ResultRecord) -> bool {
    result.finding.as_ref().is_some_and(|f| f.code == "connection-lost")
}

fn same(a: &ResultRecord, b: &ResultRecord) -> bool {
    let key =
        |r: &ResultRecord| (r.candidate.clone(), r.shape.clone(), r.causal, r.seed, r.target.clone(), r.config.clone());
    let inputs = |r: &ResultRecord| (r.format.clone(), r.scales.clone(), r.distribution.clone(), r.variant.clone());
    key(a) == key(b) && inputs(a) == inputs(b) && a.levers == b.levers
}
