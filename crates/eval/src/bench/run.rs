//! A run of gate 3: everything asked for, workload by workload in batches, each batch's results handed over when it is done.
//!
//! A batch is what is measured in common rounds: candidates on one workload, with the baselines. What a candidate does is a verdict; an error
//! ends the run, and what was handed over stays. A run that was cut off goes on where it was: evaluations that are done are left out, and
//! what remains is drawn from the same secret.

use super::batch::{self, Batch, BenchContext, Row};
use crate::compile_gate::Subject;
use crate::error::EvalError;
use crate::pipeline::{RunRequest, Step, nothing_left, plan};
use std::collections::{BTreeMap, BTreeSet};
use warpsmith_spec::levers::Setting;
use warpsmith_spec::record::{NotApplicable, ResultRecord};
use warpsmith_spec::target::Target;
use warpsmith_spec::workload::Workload;

/// Candidates of one batch at most: their buffers are resident together.
const BATCH: usize = 16;

/// What is asked of a run.
pub struct BenchRequest<'a> {
    pub gates: RunRequest<'a>,
    /// The device's targets, the most specific first: a candidate is compiled for the first that it has.
    pub preferred: Vec<String>,
    /// Own kernels as baselines, by name.
    pub own_baselines: &'a [(String, Subject, Setting)],
    /// Peers as baselines, by name, for each task.
    pub peers: &'a BTreeMap<String, Vec<String>>,
    /// Evaluations that are done, by [`key`].
    pub done: &'a BTreeSet<String>,
}

/// What happens on the way.
#[derive(Debug)]
pub enum BenchEvent<'a> {
    Planned {
        evaluations: usize,
        not_applicable: usize,
        done: usize,
    },
    Started {
        candidate: &'a str,
        setting: &'a Setting,
        workload: &'a Workload,
        target: &'a str,
    },
    /// So many candidates are timed now, in common rounds.
    Measuring {
        workload: &'a Workload,
        candidates: usize,
    },
    Finished {
        result: &'a ResultRecord,
    },
}

/// How a run ended.
#[derive(Debug, Default)]
pub struct BenchEnd {
    pub not_applicable: Vec<NotApplicable>,
    /// Ended before its time by the caller.
    pub cancelled: bool,
}

/// Runs. `cancelled` is asked before each batch.
pub fn run<'a>(
    request: &'a BenchRequest<'a>,
    ctx: &BenchContext<'a>,
    cancelled: &dyn Fn() -> bool,
    events: &mut dyn FnMut(BenchEvent),
) -> Result<BenchEnd, EvalError> {
    let (steps, not_applicable) = plan(&request.gates, &request.preferred)?;
    if steps.is_empty() {
        return Err(nothing_left(&not_applicable).into());
    }
    let total = steps.len();
    let batches = batches(request, steps);
    let left: usize = batches.iter().map(|b| b.rows.iter().filter(|r| r.judged).count()).sum();
    events(BenchEvent::Planned { evaluations: left, not_applicable: not_applicable.len(), done: total - left });
    let mut end = BenchEnd { not_applicable, cancelled: false };
    for batch in &batches {
        if cancelled() {
            end.cancelled = true;
            break;
        }
        // Both report to the same listener, one after the other.
        let events = std::cell::RefCell::new(&mut *events);
        let mut started = |step: &Step| {
            (events.borrow_mut())(BenchEvent::Started {
                candidate: &step.subject.candidate.name,
                setting: step.setting,
                workload: &step.workload,
                target: step.target.name,
            });
        };
        let mut measuring = |candidates: usize| {
            if let Some(row) = batch.rows.first() {
                (events.borrow_mut())(BenchEvent::Measuring { workload: &row.step.workload, candidates });
            }
        };
        for result in batch::run(ctx, batch, &mut started, &mut measuring)? {
            (events.borrow_mut())(BenchEvent::Finished { result: &result });
        }
    }
    Ok(end)
}

/// Names an evaluation among a run's.
pub fn key(candidate: &str, setting: &Setting, workload: &Workload, target: &str) -> String {
    let levers = serde_json::to_string(&setting.levers).unwrap_or_default();
    let Workload { shape, causal, format, scales, distribution, seed, variant, .. } = workload;
    format!(
        "{candidate}|{}|{levers}|{shape}|{causal}|{format}|{scales}|{distribution}|{seed}|{variant}|{target}",
        setting.config.as_deref().unwrap_or("")
    )
}

/// The same of a result; `candidate` is the name in [`key`].
pub fn key_of_record(candidate: &str, r: &ResultRecord) -> String {
    let levers = serde_json::to_string(&r.levers).unwrap_or_default();
    format!(
        "{candidate}|{}|{levers}|{}|{}|{}|{}|{}|{}|{}|{}",
        r.config.as_deref().unwrap_or(""),
        r.shape,
        r.causal,
        r.format,
        r.scales,
        r.distribution,
        r.seed,
        r.variant,
        r.target
    )
}

/// Steps by workload, in the order in which workloads first come; batches are numbered as if nothing were done yet, so that a run that is
/// taken up again draws the same lots.
fn batches<'a>(request: &'a BenchRequest<'a>, steps: Vec<Step<'a>>) -> Vec<Batch<'a>> {
    let mut groups: Vec<(Workload, Vec<Step>)> = Vec::new();
    for step in steps {
        match groups.iter_mut().find(|(w, _)| *w == step.workload) {
            Some((_, group)) => group.push(step),
            None => groups.push((step.workload.clone(), vec![step])),
        }
    }
    let mut found = Vec::new();
    let mut place = 0;
    for (_, group) in groups {
        for chunk in group.chunks(BATCH) {
            let mut rows: Vec<Row> = chunk
                .iter()
                .filter(|s| {
                    !request.done.contains(&key(&s.subject.candidate.name, s.setting, &s.workload, s.target.name))
                })
                .map(|s| Row { step: s.clone(), judged: true, baseline: None, missing: None })
                .collect();
            if let Some(first) = chunk.first().filter(|_| !rows.is_empty()) {
                add_own_baselines(request, first, &mut rows);
                let peers = request.peers.get(&first.subject.task.name).map_or(&[][..], Vec::as_slice);
                found.push(Batch { rows, peers, place });
            }
            place += 1;
        }
    }
    found
}

/// Marks rows that are baselines, and adds those that are not there.
fn add_own_baselines<'a>(request: &'a BenchRequest<'a>, like: &Step<'a>, rows: &mut Vec<Row<'a>>) {
    for (name, subject, setting) in request.own_baselines {
        let same = |r: &&mut Row| r.step.subject.candidate.name == subject.candidate.name && r.step.setting == setting;
        if let Some(row) = rows.iter_mut().find(same) {
            row.baseline = Some(name.clone());
            continue;
        }
        let target = target_of(request, subject).unwrap_or(like.target);
        let step = Step { subject, setting, workload: like.workload.clone(), target };
        let missing = if subject.candidate.task != like.subject.candidate.task {
            Some(format!("it computes {}, not {}", subject.candidate.task, like.subject.candidate.task))
        } else {
            subject.candidate.applicable(setting, &like.workload, target).err()
        };
        rows.push(Row { step, judged: false, baseline: Some(name.clone()), missing });
    }
}

fn target_of(request: &BenchRequest, subject: &Subject) -> Option<&'static Target> {
    let has = |name: &str| subject.candidate.targets.iter().any(|t| t == name);
    let asked = request.gates.target.filter(|t| has(t));
    let preferred = || request.preferred.iter().map(String::as_str).find(|t| has(t));
    let first = || subject.candidate.targets.first().map(String::as_str);
    warpsmith_spec::target::find(asked.or_else(preferred).or_else(first)?).ok()
}
