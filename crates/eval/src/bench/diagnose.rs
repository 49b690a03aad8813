//! Why a kernel faulted that had passed: it is launched again, each time in another way, and the first that shows the fault explains it.
//!
//! In this order: the same replay with each launch leaving word, where it is not known which one it was; one launch alone; launches one
//! after the other, none in flight with another; the PTX machine; compute-sanitizer's tools.
//! Each in a worker of its own, because a fault takes the worker down. What was tried stands in the finding, explained or not.

use super::stability::place;
use super::timed::{Ask, Faulted, Method, Resident, Stop, TimedBackend};
use crate::backend::{Backend, RunEnd};
use crate::error::EvalError;
use std::sync::Arc;
use warpsmith_spec::record::{FindingRecord, Severity};

/// Multiply-adds of a workload for each of this machine's processors: about two seconds of the PTX machine's.
const WITHIN_REACH: u64 = 600_000_000;
/// Launches that are made one by one at most, and the seconds for them.
const ONE_BY_ONE: u64 = 20_000;
const SECONDS: u64 = 60;
/// Replays at least when a measurement is made again.
const AGAIN: u32 = 64;

/// The sanitizer's side, where there is one: findings of its four tools on a resident subject, or why it cannot be had.
pub trait Sanitize {
    fn sanitize(&self, resident: &Resident) -> Result<Vec<FindingRecord>, String>;
}

/// What was found out.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Diagnosis {
    /// One sentence for each thing that was tried.
    pub tried: Vec<String>,
    /// The last of them shows the fault.
    pub explained: bool,
    /// What the PTX machine or the sanitizer found.
    pub findings: Vec<FindingRecord>,
}

impl Diagnosis {
    fn explain(mut self, what: String, findings: Vec<FindingRecord>) -> Diagnosis {
        self.tried.push(what);
        self.explained = true;
        self.findings = findings;
        self
    }

    /// For the finding's message.
    pub fn text(&self) -> String {
        let end = if self.explained { "" } else { "; nothing that was tried explains it" };
        format!("{}{end}", self.tried.join("; "))
    }
}

/// Multiply-adds of a workload that the PTX machine is asked to repeat here.
pub fn within_reach() -> u64 {
    let processors = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    WITHIN_REACH.saturating_mul(processors)
}

/// Looks for the cause of a fault.
pub fn diagnose(
    backend: &dyn TimedBackend,
    machine: &dyn Backend,
    sanitizer: Option<&dyn Sanitize>,
    resident: &Arc<Resident>,
    fault: &Faulted,
) -> Result<Diagnosis, EvalError> {
    let mut d = Diagnosis::default();
    let job = resident.job(0).ok_or_else(|| EvalError::Defect("a subject without inputs".into()))?;
    if let (None, Some(ask)) = (fault.call(), &fault.ask) {
        d.tried.push(match marked(backend, resident, ask)? {
            Some(again) => format!("seen again with each launch leaving word, it is {}", place(&again)),
            None => "the same measurement with each launch leaving word does not fault".into(),
        });
    }
    let alone = backend.run(&job)?;
    if !matches!(alone.end, RunEnd::Completed) {
        return Ok(d.explain("one launch alone faults too".into(), Vec::new()));
    }
    d.tried.push("one launch alone does not fault".into());
    match one_by_one(backend, resident, fault)? {
        Some(again) => {
            let what = format!(
                "launches one after the other fault too, at {}: what one launch leaves behind decides about another",
                place(&again)
            );
            return Ok(d.explain(what, Vec::new()));
        }
        None => d.tried.push("launches one after the other do not fault, so it takes several in flight".into()),
    }
    if resident.bases.first().is_some_and(|b| b.work() <= within_reach()) {
        let run = machine.run(&job)?;
        let errors: Vec<FindingRecord> = run.findings.into_iter().filter(|f| f.severity == Severity::Error).collect();
        if let Some(first) = errors.first() {
            let what = format!("the PTX machine finds {}: {}", first.kind, first.message);
            return Ok(d.explain(what, errors));
        }
        let said = if matches!(run.end, RunEnd::Completed) { "finds nothing" } else { "cannot execute it to its end" };
        d.tried.push(format!("the PTX machine {said}"));
    } else {
        d.tried.push("the shape is too large for the PTX machine on so few processors".into());
    }
    match sanitizer.map(|s| s.sanitize(resident)) {
        None => d.tried.push("compute-sanitizer was not asked, as there is no device".into()),
        Some(Err(why)) => d.tried.push(why),
        Some(Ok(found)) => match found.iter().find(|f| f.severity == Severity::Error) {
            Some(first) => {
                let what = first.message.clone();
                return Ok(d.explain(what, found));
            }
            None => d.tried.push("compute-sanitizer's four tools find nothing".into()),
        },
    }
    Ok(d)
}

/// The measurement in which the fault came, made again from its start by a worker of its own, each launch leaving word.
fn marked(backend: &dyn TimedBackend, resident: &Arc<Resident>, ask: &Ask) -> Result<Option<Faulted>, EvalError> {
    if backend.prepare(resident)?.is_some() {
        return Ok(None);
    }
    // A worker of its own counts its launches from the first: those that other requests had made before are made up for.
    let replays = ask.replays.max(AGAIN);
    let ask = Ask { marked: true, replays, sample: Vec::new(), ..ask.clone() };
    Ok(match backend.time(&resident.name, &ask)?.stop {
        Some(Stop::Fault(fault)) if fault.call().is_some() => Some(*fault),
        _ => None,
    })
}

/// Launches with nothing else in flight, as far as the fault was and somewhat farther.
fn one_by_one(
    backend: &dyn TimedBackend,
    resident: &Arc<Resident>,
    fault: &Faulted,
) -> Result<Option<Faulted>, EvalError> {
    if backend.prepare(resident)?.is_some() {
        return Ok(None);
    }
    let replays = (fault.before + fault.together).saturating_add(32).min(ONE_BY_ONE) as u32;
    let ask = Ask { method: Method::Event, replays, calls: 1, seconds: SECONDS, ..Ask::default() };
    Ok(match backend.time(&resident.name, &ask)?.stop {
        Some(Stop::Fault(fault)) => Some(*fault),
        _ => None,
    })
}
