//! A backend whose values come from the PTX machine and whose times come from a file ([`super::fake_file`]).
//!
//! Nothing it reports is a time: records say `"backend": "fake"`. Its clock is made up too, so a run with it depends on nothing but its
//! inputs. It can fault, hang, lose its connection, be unstable and give wrong outputs where the file says so.

use super::fake_file::{FakeFile, FakeSubject};
use super::lots::Lots;
use super::timed::{
    Ask, Faulted, FirstDifference, Method, Rated, Reading, Resident, SampledOutput, SteadyRun, Stop, Timed,
    TimedBackend,
};
use crate::backend::{Backend, Job, PtxMachine, RunEnd, RunOutcome, Written};
use crate::error::EvalError;
use crate::finding::{Code, blank};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use warpsmith_spec::record::Severity;

/// Launches that a subject has in flight together when it is tried for stability.
const IN_FLIGHT: u64 = 8;
/// What a replay costs beside its calls, in seconds of the made-up clock.
const OVERHEAD: f64 = 1e-4;

/// The backend.
pub struct Fake {
    pub(super) file: FakeFile,
    machine: Box<dyn Backend + Send>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    seconds: f64,
    residents: HashMap<String, Living>,
}

/// A subject that is resident.
struct Living {
    resident: Arc<Resident>,
    launches: u64,
    asks: u64,
    /// Outputs by base, made when they are first wanted.
    outputs: HashMap<usize, Vec<Written>>,
}

impl Fake {
    pub fn new(file: FakeFile) -> Fake {
        Fake { file, machine: Box::new(PtxMachine::new(0)), state: Mutex::default() }
    }

    /// The same with values from another backend: a fake device on another machine.
    pub fn over(self, backend: Box<dyn Backend + Send>) -> Fake {
        Fake { machine: backend, ..self }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The device's own target, if the file has one.
    pub fn target(&self) -> Option<&str> {
        self.file.target.as_deref()
    }

    fn row(&self, r: &Resident) -> FakeSubject {
        self.found(r).cloned().unwrap_or_default()
    }

    fn found(&self, r: &Resident) -> Option<&FakeSubject> {
        self.file.subject(&r.candidate, r.config.as_deref(), &r.levers, &r.workload.shape, r.workload.causal)
    }

    pub(super) fn reading(&self) -> Reading {
        let c = &self.file.conditions;
        Reading {
            sm_mhz: c.sm_mhz,
            memory_mhz: c.memory_mhz,
            power_w: c.power_w,
            temperature_c: c.temperature_c,
            throttle: c.throttle.clone(),
        }
    }

    /// Samples around what the row says.
    pub(super) fn samples(&self, row: &FakeSubject, name: &str, ask: &Ask, asks: u64) -> Vec<f64> {
        let us = row.us(ask.method.word()) * (1.0 + row.drift * asks as f64).max(0.01);
        let noise = row.noise.unwrap_or(self.file.noise);
        let mut lots = Lots::of(self.file.seed ^ ask.seed, name, asks);
        (0..ask.replays).map(|_| us * (1.0 + noise * lots.normal()).max(0.01)).collect()
    }

    pub(super) fn spend(&self, seconds: f64) {
        self.lock().seconds += seconds;
    }

    /// The outputs on a base, as the PTX machine computes them.
    fn outputs(&self, living: &mut Living, base: usize) -> Result<Vec<Written>, EvalError> {
        if let Some(known) = living.outputs.get(&base) {
            return Ok(known.clone());
        }
        let resident = living.resident.clone();
        let job = resident.job(base).ok_or_else(|| EvalError::Defect("a base that there is not".into()))?;
        let done = self.machine.run(&job)?;
        if done.end != RunEnd::Completed {
            return Err(EvalError::Defect("what passed on the PTX machine does not run on it".into()));
        }
        living.outputs.insert(base, done.outputs.clone());
        Ok(done.outputs)
    }
}

/// What happens in the launches from `first` (counted from 0) on, so many together.
fn stop(row: &FakeSubject, resident: &Resident, first: u64, together: u64, marked: bool) -> Option<Stop> {
    let within = |at: Option<u64>| at.is_some_and(|at| at > first && at <= first + together);
    if within(row.lost_at) {
        return Some(Stop::Lost { why: "the connection was lost, as the file says".into() });
    }
    if within(row.fault_at) && !(row.fault_in_flight_only && together == 1) {
        let launch = resident.plan.launches.first();
        let mut finding = blank(
            Severity::Error,
            "invalid-access",
            "performance",
            "the device reported an illegal address (as the file says)".into(),
        );
        finding.entry = launch.map(|l| l.entry.clone());
        let grid = launch.map_or([1; 3], |l| l.grid);
        let unfinished = if marked { row.fault_at.into_iter().collect() } else { Vec::new() };
        return Some(Stop::Fault(Box::new(Faulted { finding, before: first, together, grid, unfinished, ask: None })));
    }
    None
}

/// Outputs as they are at this launch.
fn altered(row: &FakeSubject, launch: u64, mut outputs: Vec<Written>) -> Vec<Written> {
    let from = |at: Option<u64>| at.is_some_and(|at| launch >= at);
    for written in &mut outputs {
        if from(row.wrong_from) {
            written.bytes.iter_mut().for_each(|b| *b ^= 0x40);
        } else if from(row.unstable_from)
            && let Some(b) = written.bytes.first_mut()
        {
            *b ^= 1;
        }
    }
    outputs
}

impl Backend for Fake {
    fn word(&self) -> &'static str {
        "fake"
    }

    fn version(&self) -> String {
        format!("fake, values from {}", self.machine.version())
    }

    fn run(&self, job: &Job) -> Result<RunOutcome, EvalError> {
        self.machine.run(job)
    }
}

impl TimedBackend for Fake {
    fn device_name(&self) -> String {
        self.file.device.clone()
    }

    fn rated(&self) -> Rated {
        Rated {
            bytes_per_second: self.file.terabytes_per_second.map(|x| x * 1e12),
            operations_per_second: self.file.teraoperations_per_second.map(|x| x * 1e12),
        }
    }

    fn memory_bytes(&self) -> u64 {
        1 << 34
    }

    fn seconds(&self) -> f64 {
        self.lock().seconds
    }

    fn prepare(&self, resident: &Arc<Resident>) -> Result<Option<Stop>, EvalError> {
        if self.file.strict && self.found(resident).is_none() {
            return Ok(Some(Stop::Unsupported { what: "the record that is replayed has no time of it".into() }));
        }
        let living = Living { resident: resident.clone(), launches: 0, asks: 0, outputs: HashMap::new() };
        self.lock().residents.insert(resident.name.clone(), living);
        Ok(None)
    }

    fn time(&self, name: &str, ask: &Ask) -> Result<Timed, EvalError> {
        let mut state = self.lock();
        let living = state.residents.get_mut(name).ok_or_else(|| absent(name))?;
        let row = self.row(&living.resident);
        let reading = self.reading();
        let mut timed = Timed { readings: vec![reading.clone(), reading], ..Timed::default() };
        if row.hang {
            timed.stop = Some(Stop::TimedOut { seconds: ask.seconds });
            return Ok(timed);
        }
        let copies = living.resident.copies.max(1);
        let calls = if ask.method == Method::Event {
            1
        } else if ask.calls == 0 {
            copies
        } else {
            ask.calls
        };
        let samples = self.samples(&row, name, ask, living.asks);
        living.asks += 1;
        let together = if ask.method == Method::Event { 1 } else { u64::from(calls) };
        let first_kept = living.launches + u64::from(ask.warmup) * u64::from(calls);
        let mut choice = Lots::of(ask.seed, "bases", 0);
        let bases = living.resident.bases.len().max(1) as u64;
        for replay in 0..ask.warmup + ask.replays {
            let stopped = stop(&row, &living.resident, living.launches, together, ask.marked);
            timed.stop = stopped.map(|stop| stop.asked(ask));
            if timed.stop.is_some() {
                // A fault takes the worker with it; the next one begins to count anew.
                living.launches = 0;
                break;
            }
            living.launches += u64::from(calls);
            if let Some(kept) = replay.checked_sub(ask.warmup) {
                timed.samples.push(samples[kept as usize]);
            }
        }
        if timed.stop.is_none() {
            for [replay, copy] in ask.sample.iter().filter(|[r, c]| *r < ask.replays && *c < calls.min(copies)) {
                let base = choice.below(bases) as usize;
                let launch = first_kept + u64::from(*replay) * u64::from(calls) + u64::from(*copy) + 1;
                let outputs = altered(&row, launch, self.outputs(living, base)?);
                timed.outputs.push(SampledOutput { replay: *replay, copy: *copy, base, outputs });
            }
            if row.changes_input {
                let name = living.resident.bases.first().and_then(|b| b.inputs.tensors.first());
                let mut f = Code::InputChangedInTiming.error("performance", "a timed call has changed its input");
                f.tensor = name.map(|t| t.name.clone());
                timed.findings.push(f);
            }
        }
        let spent: f64 = timed.samples.iter().map(|us| us * 1e-6 * f64::from(calls) + OVERHEAD).sum();
        state.seconds += spent;
        Ok(timed)
    }

    fn steady(&self, name: &str, launches: u64, seconds: f64) -> Result<SteadyRun, EvalError> {
        let mut state = self.lock();
        let living = state.residents.get_mut(name).ok_or_else(|| absent(name))?;
        let row = self.row(&living.resident);
        let mut run = SteadyRun::default();
        if row.hang {
            run.stop = Some(Stop::TimedOut { seconds: seconds.ceil() as u64 });
            return Ok(run);
        }
        let us = row.us("graph_cold");
        let fits = (seconds / (us * 1e-6)).clamp(1.0, 1e12) as u64;
        let total = launches.min(fits);
        while run.done < total {
            let together = IN_FLIGHT.min(total - run.done);
            run.stop = stop(&row, &living.resident, living.launches, together, false);
            if run.stop.is_some() {
                living.launches = 0;
                break;
            }
            living.launches += together;
            run.done += together;
        }
        let differs = row.unstable_from.into_iter().chain(row.wrong_from).min().filter(|at| *at <= living.launches);
        if let (Some(at), Some(output)) =
            (differs, living.resident.bases.first().and_then(|b| b.inputs.outputs.first()))
        {
            let launch = at.saturating_sub(living.launches - run.done).max(2);
            run.differing = run.done.saturating_sub(launch) + 1;
            run.first = Some(FirstDifference { launch, tensor: output.name.clone(), offset: 0, bytes: 1 });
        }
        state.seconds += run.done as f64 * us * 1e-6;
        Ok(run)
    }

    fn discard(&self, name: &str) {
        self.lock().residents.remove(name);
    }

    fn hold(&self) -> Result<Result<(), String>, EvalError> {
        Ok(self.file.held_by.clone().map_or(Ok(()), Err))
    }

    fn release(&self) {}

    fn as_backend(&self) -> &dyn Backend {
        self
    }
}

fn absent(name: &str) -> EvalError {
    EvalError::Defect(format!("{name} was not made resident"))
}
