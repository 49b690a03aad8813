//! A batch: candidates on one workload, taken through the gates and then measured against each other and the baselines in common rounds.

use super::agree;
use super::candidate::Entrant;
use super::diagnose::{Sanitize, diagnose};
use super::fill;
use super::lots::Lots;
use super::measure::{Contender, MOST_CALLS, Out, Plan, Series, measure};
use super::peers::{Peer, PeerAsk, Peers};
use super::stability::{self, Trial, place};
use super::timed::{Method, Resident, Stop, TimedBackend};
use crate::error::EvalError;
use crate::evaluate::{Context, Evaluated, Ready, add_findings, evaluate_ready};
use crate::finding::Code;
use crate::oracle::{Oracle, Secrets};
use crate::oracles::Oracles;
use crate::pipeline::Step;
use std::sync::Arc;
use warpsmith_cuda::worker::WorkerError;
use warpsmith_spec::record::{
    AgreementRecord, FindingRecord, GateStatus, MeasurementRecord, ResultRecord, VerdictWord,
};
use warpsmith_spec::words::Distribution;
use warpsmith_spec::workload::Workload;

const GATE: &str = "performance";
/// Sets of inputs that candidates are timed on.
const BASES: u64 = 2;

/// What all batches of a run share.
pub struct BenchContext<'a> {
    /// Gates 1 and 2, on the timed backend.
    pub gates: &'a Context<'a>,
    pub timed: &'a dyn TimedBackend,
    /// Gates 1 and 2 on the PTX machine, to compare; None where gate 2 runs there anyway.
    pub machine: Option<&'a Context<'a>>,
    pub peers: &'a dyn Peers,
    pub sanitizer: Option<&'a dyn Sanitize>,
    pub plan: &'a Plan,
    /// Launches for stability, if asked for.
    pub stability: Option<u64>,
    /// The inputs that candidates are timed on, where several runs have them in common; else each run draws its own from the plan's secret.
    pub inputs: Option<&'a TimedInputs>,
}

/// Secret inputs with their oracles, computed once for each workload.
pub struct TimedInputs {
    bases: Vec<Oracles>,
}

impl TimedInputs {
    /// Drawn from this secret, as a run with it draws them.
    pub fn of(secret: u64) -> TimedInputs {
        TimedInputs { bases: (0..BASES).map(|base| Oracles::new(secrets(secret, base))).collect() }
    }
}

fn secrets(secret: u64, base: u64) -> Secrets {
    let mut lots = Lots::of(secret, "inputs", base);
    Secrets { inputs: lots.draw() | 1, rows: lots.draw() }
}

/// Who is measured, and against whom.
pub(super) struct Batch<'a> {
    pub rows: Vec<Row<'a>>,
    /// Peers by name.
    pub peers: &'a [String],
    /// Tells this batch from the run's others.
    pub place: u64,
}

/// A candidate in a batch.
pub(super) struct Row<'a> {
    pub step: Step<'a>,
    /// It is one of the run's results; else it is there to be compared with.
    pub judged: bool,
    /// It is a baseline of this name for the others.
    pub baseline: Option<String>,
    /// Why it cannot be one, if that is known before.
    pub missing: Option<String>,
}

/// What is known of a row on its way.
struct State<'a> {
    record: Option<ResultRecord>,
    ready: Option<Ready>,
    agreement: Option<AgreementRecord>,
    entrant: Option<Entrant<'a>>,
    series: Series,
}

/// Takes a batch through all gates; gives the records of its judged rows, in their order.
pub(super) fn run<'a>(
    ctx: &BenchContext<'a>,
    batch: &'a Batch<'a>,
    started: &mut dyn FnMut(&Step),
    measuring: &mut dyn FnMut(usize),
) -> Result<Vec<ResultRecord>, EvalError> {
    let mut states = Vec::new();
    for row in &batch.rows {
        if row.judged {
            started(&row.step);
        }
        states.push(gates_1_and_2(ctx, row)?);
    }
    let workload = timed_workload(batch);
    let mut bases = Vec::new();
    if states.iter().any(|s| s.ready.is_some()) {
        bases = draw_bases(ctx, batch, &workload)?;
    }
    let contenders = states.iter().filter(|s| s.ready.is_some()).count() + batch.peers.len();
    let share = ctx.timed.memory_bytes() / 4 / contenders.max(1) as u64;
    for (i, (row, state)) in batch.rows.iter().zip(&mut states).enumerate() {
        enter(ctx, row, state, &format!("{}-{i}", batch.place), &workload, &bases, share)?;
    }
    let entered = states.iter().filter(|s| s.entrant.is_some()).count();
    if entered > 0 {
        measuring(entered);
        hold(ctx.timed)?;
        let measured = measure_all(ctx, batch, &mut states, &workload, &bases, share);
        ctx.timed.release();
        measured?;
    }
    Ok(batch.rows.iter().zip(states).filter(|(row, _)| row.judged).filter_map(|(_, s)| s.record).collect())
}

fn gates_1_and_2<'a>(ctx: &BenchContext, row: &Row) -> Result<State<'a>, EvalError> {
    let none = State { record: None, ready: None, agreement: None, entrant: None, series: Series::default() };
    if row.missing.is_some() {
        return Ok(none);
    }
    let Step { subject, setting, workload, target } = &row.step;
    let Evaluated { mut record, ready } = evaluate_ready(ctx.gates, subject, setting, workload, target)?;
    let mut agreement = None;
    if let (Some(machine), true) = (ctx.machine, row.judged) {
        let (compared, disagreement) = agree::compare(machine, subject, setting, workload, target, &record)?;
        agreement = Some(compared);
        if let Some(finding) = disagreement {
            record.verdict = VerdictWord::Rejected;
            record.gates.correctness = GateStatus::Failed;
            add_findings(&mut record, subject, vec![finding]);
        }
    }
    let passed = record.verdict == VerdictWord::Passed;
    record.gates.performance = if passed { GateStatus::NotRun } else { GateStatus::Blocked };
    Ok(State { record: Some(record), ready: ready.filter(|_| passed), agreement, ..none })
}

/// The workload of the batch as it is timed: the same but for the distribution.
fn timed_workload(batch: &Batch) -> Workload {
    let Some(row) = batch.rows.first() else {
        return Workload {
            task: String::new(),
            shape: String::new(),
            symbols: Default::default(),
            causal: false,
            format: warpsmith_spec::words::Format::E4m3,
            scales: warpsmith_spec::words::ScaleLayout::None,
            distribution: Distribution::Normal,
            seed: 0,
            variant: Default::default(),
        };
    };
    Workload { distribution: row.step.subject.task.timed_on, ..row.step.workload.clone() }
}

/// Inputs that nobody could foresee, with their oracles.
fn draw_bases(ctx: &BenchContext, batch: &Batch, workload: &Workload) -> Result<Vec<Arc<Oracle>>, EvalError> {
    let task = &batch.rows[0].step.subject.task;
    match ctx.inputs {
        Some(kept) => kept.bases.iter().map(|oracles| oracles.get(task, workload)).collect(),
        None => {
            let drawn = |base| Ok(Arc::new(Oracle::new(task, workload, secrets(ctx.plan.secret, base))?));
            (0..BASES).map(drawn).collect()
        }
    }
}

/// Judges a row that passed on the timed inputs and makes it resident.
fn enter<'a>(
    ctx: &BenchContext<'a>,
    row: &'a Row<'a>,
    state: &mut State<'a>,
    name: &str,
    workload: &Workload,
    bases: &[Arc<Oracle>],
    share: u64,
) -> Result<(), EvalError> {
    let (Some(ready), Some(record)) = (state.ready.take(), state.record.as_mut()) else { return Ok(()) };
    let subject = row.step.subject;
    let resident = Arc::new(Resident {
        name: format!("{name}-{}", subject.candidate.stem()),
        candidate: subject.candidate.name.clone(),
        config: row.step.setting.config.clone(),
        levers: row.step.setting.levers.clone(),
        workload: workload.clone(),
        artifact: ready.artifact,
        plan: ready.plan,
        target: row.step.target,
        bases: bases.to_vec(),
        copies: MOST_CALLS,
        copies_bytes: share,
    });
    let entrant = match Entrant::judge(ctx.timed, subject, resident.clone())? {
        Ok(entrant) => entrant,
        Err(failed) => {
            record.verdict = failed.0;
            record.gates.performance = GateStatus::Failed;
            add_findings(record, subject, failed.1);
            return Ok(());
        }
    };
    if let Some(stop) = ctx.timed.prepare(&resident)? {
        conclude(ctx, row, record, &resident, stop)?;
        return Ok(());
    }
    state.entrant = Some(entrant);
    Ok(())
}

fn hold(timed: &dyn TimedBackend) -> Result<(), EvalError> {
    timed.hold()?.map_err(|who| {
        let message =
            format!("the device is held by {who}, which is timing on it; this run has waited for it long enough");
        EvalError::Worker(WorkerError::Device { code: "device-held".into(), message })
    })
}

fn measure_all<'a>(
    ctx: &BenchContext<'a>,
    batch: &'a Batch<'a>,
    states: &mut [State<'a>],
    workload: &Workload,
    bases: &[Arc<Oracle>],
    share: u64,
) -> Result<(), EvalError> {
    let task = &batch.rows[0].step.subject.task;
    let mut peers: Vec<Result<Box<dyn Peer + 'a>, String>> = Vec::new();
    let target = batch.rows[0].step.target.name;
    for name in batch.peers {
        let ask = PeerAsk { name, task, workload, target, bases, copies: MOST_CALLS, copies_bytes: share };
        peers.push(ctx.peers.peer(&ask)?);
    }
    let mut contenders: Vec<&mut dyn Contender> = Vec::new();
    let mut baselines = Vec::new();
    let mut rows = Vec::new();
    for (i, (row, state)) in batch.rows.iter().zip(states.iter_mut()).enumerate() {
        if let Some(entrant) = &mut state.entrant {
            if row.baseline.is_some() {
                baselines.push(contenders.len());
            }
            rows.push(i);
            contenders.push(entrant);
        }
    }
    let mut present = Vec::new();
    for (i, peer) in peers.iter_mut().enumerate() {
        if let Ok(peer) = peer {
            baselines.push(contenders.len());
            present.push(i);
            contenders.push(&mut **peer);
        }
    }
    let clock = || ctx.timed.seconds();
    let mut all = measure(&mut contenders, &baselines, ctx.plan, batch.place, &clock)?.into_iter();
    drop(contenders);
    for (i, series) in rows.into_iter().zip(&mut all) {
        states[i].series = series;
    }
    let mut measured_peers = Vec::new();
    for (i, name) in batch.peers.iter().enumerate() {
        let series = if present.contains(&i) { all.next() } else { None };
        measured_peers.push(fill::peer(name, &peers[i], series));
    }
    for i in 0..states.len() {
        if batch.rows[i].judged && states[i].entrant.is_some() {
            let mut measurement = fill::measurement(ctx, batch, i, &fill_inputs(states), &measured_peers);
            measurement.floor = bases.first().and_then(|b| fill::floor_of(ctx, &b.inputs));
            let (row, state) = (&batch.rows[i], &mut states[i]);
            finish(ctx, row, state, measurement)?;
        }
    }
    for state in states.iter() {
        if let Some(entrant) = &state.entrant {
            ctx.timed.discard(&entrant.resident.name);
        }
    }
    Ok(())
}

fn fill_inputs<'s>(states: &'s [State]) -> Vec<fill::Seen<'s>> {
    let seen = |s: &'s State| fill::Seen {
        series: s.entrant.as_ref().map(|_| &s.series),
        record: s.record.as_ref(),
        outputs: s.entrant.as_ref().map(|e| &e.seen),
        agreement: s.agreement.as_ref(),
    };
    states.iter().map(seen).collect()
}

/// Stability, and the verdict of what was seen.
fn finish(
    ctx: &BenchContext,
    row: &Row,
    state: &mut State,
    mut measurement: MeasurementRecord,
) -> Result<(), EvalError> {
    let (Some(record), Some(entrant)) = (state.record.as_mut(), state.entrant.as_ref()) else { return Ok(()) };
    let subject = row.step.subject;
    record.gates.performance = GateStatus::Passed;
    add_findings(record, subject, entrant.findings.clone());
    if let Some((_, out)) = state.series.out.clone() {
        match out {
            Out::Violated => reject(record, VerdictWord::Rejected),
            Out::Stopped(stop) => conclude(ctx, row, record, &entrant.resident, stop)?,
        }
        record.measurement = Some(measurement);
        return Ok(());
    }
    if let Some(finding) = impossible(ctx, &measurement) {
        reject(record, VerdictWord::Rejected);
        add_findings(record, subject, vec![finding]);
    }
    let trial = Trial::of(&subject.task, &row.step.workload, ctx.stability);
    let tried = stability::judge(ctx.timed, &entrant.resident.name, trial, entrant.unordered)?;
    measurement.stability = Some(tried.record);
    add_findings(record, subject, tried.findings);
    if let Some(verdict) = tried.verdict {
        reject(record, verdict);
    }
    if let Some(stop) = tried.stop {
        conclude(ctx, row, record, &entrant.resident, stop)?;
    }
    record.measurement = Some(measurement);
    Ok(())
}

fn reject(record: &mut ResultRecord, verdict: VerdictWord) {
    if record.verdict == VerdictWord::Passed {
        record.verdict = verdict;
    }
    record.gates.performance = GateStatus::Failed;
}

/// A time under the floor, by any method that the floor is about.
fn impossible(ctx: &BenchContext, measurement: &MeasurementRecord) -> Option<FindingRecord> {
    let floor = measurement.floor.as_ref()?;
    let method: &Method = ctx.plan.methods.first()?;
    let times = measurement.methods.get(method.word())?;
    super::floor::below(floor, times.median_us).then(|| {
        let message = format!(
            "{:.3} us by {} are out of physics on {}: {}; the work was not done, or not timed",
            times.median_us, measurement.method, measurement.device, floor.why
        );
        let mut f = Code::BelowPhysics.error(GATE, message);
        f.limit = Some(format!("{:.3} us", floor.us));
        f
    })
}

/// The verdict of a subject that stopped, with the diagnosis of a fault.
fn conclude(
    ctx: &BenchContext,
    row: &Row,
    record: &mut ResultRecord,
    resident: &Arc<Resident>,
    stop: Stop,
) -> Result<(), EvalError> {
    let mut findings = Vec::new();
    match stop {
        Stop::Fault(fault) => {
            reject(record, VerdictWord::Faulted);
            let machine = ctx.machine.unwrap_or(ctx.gates).backend;
            let found = diagnose(ctx.timed, machine, ctx.sanitizer, resident, &fault)?;
            let mut f = fault.finding.clone();
            f.gate = GATE.into();
            f.message = format!("{}, at {}; {}", f.message, place(&fault), found.text());
            findings.push(f);
            findings.extend(found.findings);
        }
        Stop::TimedOut { seconds } => {
            reject(record, VerdictWord::TimedOut);
            let mut f = Code::TimeLimit
                .error(GATE, format!("when it was launched many times it came to no end within {seconds} s"));
            f.limit = Some(seconds.to_string());
            findings.push(f);
        }
        Stop::Rejected(finding) => {
            reject(record, VerdictWord::Rejected);
            findings.push(FindingRecord { gate: GATE.into(), ..*finding });
        }
        Stop::Unsupported { what } | Stop::OutOfMemory { what } => {
            record.gates.performance = GateStatus::Unavailable;
            findings.push(Code::NotMeasured.note(GATE, format!("it was not measured: {what}")));
        }
        Stop::Lost { why } => {
            record.verdict = VerdictWord::Unsupported;
            record.gates.performance = GateStatus::Unavailable;
            findings.push(Code::ConnectionLost.error(
                GATE,
                format!("the connection to the device was lost ({why}); nothing is said about the kernel, and `bench --resume` takes it up again"),
            ));
        }
    }
    add_findings(record, row.step.subject, findings);
    Ok(())
}
