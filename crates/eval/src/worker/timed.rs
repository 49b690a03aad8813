//! Gate 3 on a GPU: subjects resident in the worker, made resident again in the next one when a fault has taken the worker down.
//!
//! Source of the messages: `docs/worker-protocol.md`. What it cannot miss: the worker says which base a sampled output had, and it is
//! compared with what was drawn.

use super::backend::{GpuBackend, SECONDS_FOR_ENDLESS, Workers};
use super::{outcome, request};
use crate::backend::{Backend, Job, RunEnd};
use crate::bench::floor;
use crate::bench::timed::{
    Ask, Faulted, FirstDifference, Rated, Resident, SampledOutput, SteadyRun, Stop, Timed, TimedBackend,
};
use crate::error::EvalError;
use crate::finding::Code;
use std::collections::BTreeMap;
use std::sync::Arc;
use warpsmith_cuda::worker::protocol::{
    Bases, Changed, CopyOverrun, End, Prepare, Steady, Stop as Place, Time, TimedHead,
};
use warpsmith_cuda::worker::{Contents, Worker, WorkerError, sha256};
use warpsmith_spec::record::FindingRecord;

const GATE: &str = "performance";
/// For making a subject resident, transfers included.
const PREPARE_SECONDS: u64 = 60;
/// For a steady run beyond the time for its launches: making copies, comparing, reading back.
const STEADY_GRACE: u64 = 15;
/// Others on the device may finish what they time.
const WAIT_SECONDS: u64 = 300;

/// What was asked for came to be, or a worker's end says why not.
type Answer<T> = Result<Result<T, Stop>, EvalError>;

impl GpuBackend {
    /// Does something with a worker in which the subject is resident. A worker that dies without a word gets the job once more.
    fn with_resident<T>(
        &self,
        name: &str,
        seconds: u64,
        act: &mut dyn FnMut(&mut Worker) -> Result<(T, bool), WorkerError>,
    ) -> Answer<T> {
        let mut workers = self.lock();
        let code = workers.residents.get(name).and_then(|(r, _)| Some(r.job(0)?.artifact.ptx_sha256.clone()));
        let mut died: Option<WorkerError> = None;
        loop {
            let mut worker = match self.take(&mut workers) {
                Ok(worker) => worker,
                Err(e) => return Ok(Err(Stop::Lost { why: e.to_string() })),
            };
            let done = match self.settle(&mut workers, &mut worker, name)? {
                Ok(()) => act(&mut worker),
                Err(Settled::Stopped(stop)) => {
                    self.put_back(&mut workers, worker, false);
                    return Ok(Err(stop));
                }
                Err(Settled::Failed(e)) => Err(e),
            };
            let over = match &done {
                Ok((_, last)) => *last,
                Err(WorkerError::Refused { .. }) => false,
                Err(_) => true,
            };
            self.put_back(&mut workers, worker, over);
            match done {
                Ok((answer, _)) => return Ok(Ok(answer)),
                Err(WorkerError::TimedOut { .. }) => {
                    workers.endless.extend(code);
                    return Ok(Err(Stop::TimedOut { seconds }));
                }
                Err(e @ (WorkerError::Refused { .. } | WorkerError::Spawn { .. })) => return Err(e.into()),
                Err(e) => match died.replace(e) {
                    None => continue,
                    Some(_) => {
                        let why = died.map_or_else(String::new, |e| e.to_string());
                        return Ok(Err(Stop::Lost { why }));
                    }
                },
            }
        }
    }

    /// The device is held and the subject resident in this worker, as they are to be.
    fn settle(&self, workers: &mut Workers, worker: &mut Worker, name: &str) -> Result<Result<(), Settled>, EvalError> {
        let number = workers.taken;
        if workers.holding.is_some_and(|by| by != Some(number)) {
            match worker.hold(WAIT_SECONDS) {
                Ok(head) if head.held => workers.holding = Some(Some(number)),
                Ok(_) => {
                    return Ok(Err(Settled::Stopped(Stop::Lost {
                        why: "another process has taken the device".into(),
                    })));
                }
                Err(e) => return Ok(Err(Settled::Failed(e))),
            }
        }
        let Some((resident, within)) = workers.residents.get_mut(name) else {
            return Err(EvalError::Defect(format!("{name} was not made resident")));
        };
        if *within == Some(number) {
            return Ok(Ok(()));
        }
        match self.reside(worker, resident)? {
            Ok(None) => {
                *within = Some(number);
                Ok(Ok(()))
            }
            Ok(Some(stop)) => Ok(Err(Settled::Stopped(stop))),
            Err(e) => Ok(Err(Settled::Failed(e))),
        }
    }

    fn reside(&self, worker: &mut Worker, resident: &Resident) -> Result<Result<Option<Stop>, WorkerError>, EvalError> {
        let job = resident.job(0).ok_or_else(|| EvalError::Defect("a subject without inputs".into()))?;
        let mut prepared = match request::prepare(&job, self.device()) {
            Ok(prepared) => prepared,
            Err(end) => return Ok(Ok(Some(impossible(*end)))),
        };
        let mut bases = Vec::new();
        for oracle in &resident.bases {
            let mut base = BTreeMap::new();
            for tensor in &oracle.inputs.tensors {
                let sha = sha256(&tensor.bytes);
                prepared.blobs.insert(sha.clone(), &tensor.bytes);
                base.insert(tensor.name.clone(), sha);
            }
            bases.push(base);
        }
        let want: Vec<String> = job.outputs.iter().map(|o| o.name.clone()).collect();
        let run = &prepared.run;
        let prepare = Prepare {
            label: resident.label(),
            bases,
            copies: resident.copies,
            copies_bytes: resident.copies_bytes,
            ..Prepare::new(&resident.name, &run.image, &run.buffers, &run.launches, &want)
        };
        let seconds = PREPARE_SECONDS + request::compile_seconds(&job, self.device());
        let head = match worker.prepare(&prepare, &prepared.blobs, seconds) {
            Ok(head) => head,
            Err(e) => return Ok(Err(e)),
        };
        Ok(Ok(stop(&job, &head.end, None, seconds)?))
    }

    /// Seconds for a request: few for code that came to no end before.
    fn patience(&self, resident: &Resident, seconds: u64) -> u64 {
        let workers = self.lock();
        let endless = resident.job(0).is_some_and(|job| workers.endless.contains(&job.artifact.ptx_sha256));
        if endless { seconds.min(SECONDS_FOR_ENDLESS + 2) } else { seconds }
    }

    fn known(&self, name: &str) -> Result<Arc<Resident>, EvalError> {
        let found = self.lock().residents.get(name).map(|(r, _)| r.clone());
        found.ok_or_else(|| EvalError::Defect(format!("{name} was not made resident")))
    }
}

/// Why a worker is not ready for a subject.
enum Settled {
    Stopped(Stop),
    Failed(WorkerError),
}

impl TimedBackend for GpuBackend {
    fn device_name(&self) -> String {
        self.device().name.clone()
    }

    fn rated(&self) -> Rated {
        floor::rated(self.device())
    }

    fn memory_bytes(&self) -> u64 {
        self.device().memory_bytes
    }

    fn seconds(&self) -> f64 {
        self.begun.elapsed().as_secs_f64()
    }

    fn prepare(&self, resident: &Arc<Resident>) -> Result<Option<Stop>, EvalError> {
        let name = resident.name.clone();
        self.lock().residents.insert(name.clone(), (resident.clone(), None));
        // Making it resident is all that is asked for.
        match self.with_resident(&name, PREPARE_SECONDS, &mut |_| Ok(((), false)))? {
            Ok(()) => Ok(None),
            Err(stop) => Ok(Some(stop)),
        }
    }

    fn time(&self, name: &str, ask: &Ask) -> Result<Timed, EvalError> {
        let resident = self.known(name)?;
        let bases = Bases::Seed(ask.seed);
        let time = Time {
            subject: name.to_string(),
            method: ask.method,
            replays: ask.replays,
            warmup: ask.warmup,
            calls: ask.calls,
            bases: bases.clone(),
            sample: ask.sample.clone(),
            marked: ask.marked,
            seconds: 0,
        };
        let seconds = self.patience(&resident, ask.seconds);
        let answer = self.with_resident(name, seconds, &mut |worker| {
            let timed = worker.time(&time, seconds)?;
            let last = timed.head.last;
            Ok((timed, last))
        })?;
        let timed = match answer {
            Ok(timed) => timed,
            Err(stop) => return Ok(Timed { stop: Some(stop), ..Timed::default() }),
        };
        let job = resident.job(0).ok_or_else(|| EvalError::Defect("a subject without inputs".into()))?;
        let head = timed.head;
        let mut outputs = Vec::new();
        for sampled in &head.sampled {
            if sampled.base != bases.at(sampled.replay, sampled.copy, resident.bases.len() as u32) {
                return Err(EvalError::Defect("the worker used other inputs than were drawn".into()));
            }
            let mut contents = Vec::new();
            for o in &sampled.outputs {
                let bytes = timed.contents.get(&o.sha256).cloned();
                let one = Contents { name: o.name.clone(), bytes, unwritten: o.unwritten.clone() };
                let left_out = || EvalError::Defect("the worker left out a sampled output".into());
                contents.push(outcome::written(one, None).ok_or_else(left_out)?);
            }
            let (replay, copy) = (sampled.replay, sampled.copy);
            outputs.push(SampledOutput { replay, copy, base: sampled.base as usize, outputs: contents });
        }
        let TimedHead { end, samples, changed, overruns, conditions, at, .. } = head;
        Ok(Timed {
            samples,
            outputs,
            findings: broken_rules(&job, &changed, &overruns),
            readings: [conditions.before, conditions.during, conditions.after].into_iter().flatten().collect(),
            stop: stop(&job, &end, at.as_ref(), seconds)?.map(|stop| stop.asked(ask)),
        })
    }

    fn steady(&self, name: &str, launches: u64, seconds: f64) -> Result<SteadyRun, EvalError> {
        let resident = self.known(name)?;
        let limit = self.patience(&resident, seconds.ceil() as u64 + STEADY_GRACE);
        let steady = Steady {
            subject: name.to_string(),
            launches,
            seconds_at_most: seconds.min(limit as f64 - 1.0),
            base: 0,
            seconds: 0,
        };
        let answer = self.with_resident(name, limit, &mut |worker| {
            let head = worker.steady(&steady, limit)?;
            let last = head.last;
            Ok((head, last))
        })?;
        let head = match answer {
            Ok(head) => head,
            Err(stop) => return Ok(SteadyRun { stop: Some(stop), ..SteadyRun::default() }),
        };
        let job = resident.job(0).ok_or_else(|| EvalError::Defect("a subject without inputs".into()))?;
        Ok(SteadyRun {
            done: head.done,
            differing: head.differing,
            first: head.first.as_ref().map(|f| FirstDifference {
                launch: f.launch + 1,
                tensor: f.buffer.clone(),
                offset: f.offset,
                bytes: f.bytes,
            }),
            findings: broken_rules(&job, &head.changed, &head.overruns),
            stop: stop(&job, &head.end, head.at.as_ref(), limit)?,
        })
    }

    fn discard(&self, name: &str) {
        let mut workers = self.lock();
        let within = workers.residents.remove(name).and_then(|(_, within)| within);
        if within == Some(workers.taken)
            && let Ok(mut worker) = self.take(&mut workers)
        {
            let over = worker.discard(name).is_err();
            self.put_back(&mut workers, worker, over);
        }
    }

    fn hold(&self) -> Result<Result<(), String>, EvalError> {
        let mut workers = self.lock();
        let mut worker = self.take(&mut workers)?;
        let answer = worker.hold(WAIT_SECONDS);
        self.put_back(&mut workers, worker, answer.is_err());
        let head = answer?;
        if head.held {
            workers.holding = Some(Some(workers.taken));
            return Ok(Ok(()));
        }
        Ok(Err(head.holder.map_or_else(|| "another process".into(), |pid| format!("process {pid}"))))
    }

    fn release(&self) {
        let mut workers = self.lock();
        let by = workers.holding.take().flatten();
        if by == Some(workers.taken)
            && let Ok(mut worker) = self.take(&mut workers)
        {
            let over = worker.release().is_err();
            self.put_back(&mut workers, worker, over);
        }
    }

    fn as_backend(&self) -> &dyn Backend {
        self
    }
}

/// What the end of a request means for the subject.
fn stop(job: &Job, end: &End, at: Option<&Place>, seconds: u64) -> Result<Option<Stop>, EvalError> {
    Ok(Some(match end {
        End::Completed => return Ok(None),
        End::Faulted { launch, kind, code, name } => {
            let seen = outcome::faulted(job, *launch, *kind, *code, name, seconds)?;
            let Some(finding) = seen.findings.into_iter().next() else { return Ok(Some(Stop::TimedOut { seconds })) };
            let grid = job.plan.launches.get(*launch).map_or([1; 3], |l| l.grid);
            let (before, together, grid) = at.map_or((0, 1, grid), |p| (p.first, p.count, p.grid));
            let unfinished = at.map_or(Vec::new(), |p| p.unfinished.iter().map(|call| call + 1).collect());
            Stop::Fault(Box::new(Faulted { finding, before, together, grid, unfinished, ask: None }))
        }
        End::Rejected { launch, what } => {
            let step = outcome::step(job, *launch)?;
            Stop::Rejected(Box::new(request::at(Code::InvalidLaunch.error(GATE, what.clone()), step, step.line)))
        }
        End::MissingEntry { .. } => return Err(EvalError::Defect("an entry that gate 2 has found is missing".into())),
        End::Unsupported { what } => Stop::Unsupported { what: what.clone() },
        End::OutOfMemory { what } => Stop::OutOfMemory { what: what.clone() },
    }))
}

/// A launch that is impossible before it is sent; gate 2 has seen it already, as a rule.
fn impossible(end: RunEnd) -> Stop {
    match end {
        RunEnd::Rejected(finding) => Stop::Rejected(finding),
        RunEnd::Unsupported { what, .. } => Stop::Unsupported { what },
        other => Stop::Unsupported { what: format!("{other:?}") },
    }
}

/// Inputs changed and memory written that is nobody's, each tensor once.
fn broken_rules(job: &Job, changed: &[Changed], overruns: &[CopyOverrun]) -> Vec<FindingRecord> {
    let mut findings: Vec<FindingRecord> = Vec::new();
    for c in changed {
        let message = format!(
            "a timed call has changed {} bytes of its input {} (call {} of replay {})",
            c.bytes,
            c.buffer,
            c.copy + 1,
            c.replay + 1
        );
        let mut f = Code::InputChangedInTiming.error(GATE, message);
        (f.tensor, f.count) = (Some(c.buffer.clone()), Some(c.bytes));
        findings.push(f);
    }
    findings.extend(overruns.iter().map(|o| FindingRecord { gate: GATE.into(), ..outcome::overrun(job, &o.overrun) }));
    let mut seen = std::collections::BTreeSet::new();
    findings.retain(|f| seen.insert((f.code.clone(), f.tensor.clone())));
    findings
}
