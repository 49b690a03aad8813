//! One candidate, one setting, one workload, one target: gates 1 and 2, and the verdict.
//!
//! Order of blame: it does not compile; the launch is impossible; it faults; it never ends or cannot be executed here; it breaks a
//! rule (inputs changed, outputs unwritten); its outputs are wrong. Later steps are not looked at after a failure.

use crate::backend::{Backend, Job, NumericsChoice, RunEnd, RunOutcome, Schedule};
use crate::check::check;
use crate::compile_gate::{CompileGate, Compiled, Subject, typed};
use crate::error::EvalError;
use crate::finding::Code;
use crate::guard;
use crate::oracle::Oracle;
use crate::oracles::Oracles;
use crate::passes::{PassKey, Passes};
use std::collections::BTreeMap;
use std::sync::Arc;
use warpsmith_compile::Artifact;
use warpsmith_spec::levers::Setting;
use warpsmith_spec::plan::{PlanProblem, ResolvedPlan};
use warpsmith_spec::record::{CheckRecord, FindingRecord, GateStatus, Gates, ResultRecord, Severity, VerdictWord};
use warpsmith_spec::target::Target;
use warpsmith_spec::workload::Workload;

/// What every evaluation of a run shares.
pub struct Context<'a> {
    pub compile: &'a CompileGate<'a>,
    pub backend: &'a dyn Backend,
    pub oracles: &'a Oracles,
    pub numerics: NumericsChoice,
    /// Passes earned before on this machine; None: each is earned anew.
    pub passes: Option<&'a Passes>,
    /// Gate 1 alone is asked for.
    pub compile_only: bool,
    /// compute-sanitizer's tools, where they are asked for.
    pub sanitizer: Option<&'a dyn SanitizeJob>,
}

/// Somebody who looks at one execution of a job with other eyes. Err: why it cannot be done.
pub trait SanitizeJob {
    fn sanitize_job(&self, job: &Job) -> Result<Vec<FindingRecord>, String>;
}

/// Warp-instructions that any launch may take; work on the shape comes on top.
pub(crate) const INSTRUCTIONS: u64 = 50_000_000;
/// Runs of up to so many warp-instructions are repeated under other schedules, whose outputs have to agree: longer ones under
/// the first of them only.
const REPEATED: u64 = 500_000;
const REPEATED_OFTEN: u64 = 50_000;
const FIRST: Schedule = Schedule { seed: 1, early_copies: false };
/// Warps in other orders; CTAs backwards, in steps through the grid, backwards (see the machine's `Options::schedule_seed`).
const OTHERS: [Schedule; 3] = [
    Schedule { seed: 0x5eed, early_copies: true },
    Schedule { seed: 0x1dea, early_copies: false },
    Schedule { seed: 0xbeef, early_copies: false },
];

/// The code of a backend that went away.
pub(crate) const CONNECTION_LOST: &str = "connection-lost";

/// An evaluation through gates 1 and 2, with what gate 3 goes on from.
pub struct Evaluated {
    pub record: ResultRecord,
    /// None unless it compiled and its launches resolve.
    pub ready: Option<Ready>,
}

/// A candidate that compiled, at one shape.
pub struct Ready {
    pub artifact: Arc<Artifact>,
    pub plan: Arc<ResolvedPlan>,
}

/// Judges, gates 1 and 2.
pub fn evaluate(
    ctx: &Context,
    subject: &Subject,
    setting: &Setting,
    workload: &Workload,
    target: &'static Target,
) -> Result<ResultRecord, EvalError> {
    Ok(evaluate_ready(ctx, subject, setting, workload, target)?.record)
}

/// [`evaluate`], for who goes on.
pub fn evaluate_ready(
    ctx: &Context,
    subject: &Subject,
    setting: &Setting,
    workload: &Workload,
    target: &'static Target,
) -> Result<Evaluated, EvalError> {
    let plan = subject.candidate.resolve(&subject.task, setting, workload, target);
    let compiled = ctx.compile.judge(subject, setting, workload, plan.as_ref().ok())?;
    let mut result = blank(ctx, subject, setting, workload, target, &compiled);
    if !compiled.passed() {
        return Ok(Evaluated { record: result, ready: None });
    }
    result.gates.compile = GateStatus::Passed;
    let mut ready = None;
    let outcome = match plan {
        _ if ctx.compile_only => {
            result.gates.correctness = GateStatus::NotRun;
            result.verdict = VerdictWord::Passed;
            return Ok(Evaluated { record: result, ready: None });
        }
        Err(problem) => Judged::of(VerdictWord::Rejected, vec![rejected(&problem)]),
        Ok(plan) => {
            let mut judged = run_and_judge(ctx, subject, workload, target, &compiled, &plan, &mut result)?;
            let artifact = compiled.artifacts.get(target.name).cloned();
            if let (Some(sanitizer), Some(artifact)) = (ctx.sanitizer, &artifact) {
                let oracle = ctx.oracles.get(&subject.task, workload)?;
                sanitize(sanitizer, &job(ctx, artifact, &plan, target, &oracle), &mut judged);
            }
            ready = artifact.map(|artifact| Ready { artifact, plan: Arc::new(plan) });
            judged
        }
    };
    result.gates.correctness = match outcome.verdict {
        VerdictWord::Passed => GateStatus::Passed,
        // Nobody has looked at what the kernel did.
        _ if outcome.findings.first().is_some_and(|f| f.code == CONNECTION_LOST) => GateStatus::Unavailable,
        _ => GateStatus::Failed,
    };
    result.verdict = outcome.verdict;
    result.check = outcome.check;
    add_findings(&mut result, subject, outcome.findings);
    Ok(Evaluated { record: result, ready })
}

/// Adds findings to a result, with the candidate's file as it was named.
pub(crate) fn add_findings(result: &mut ResultRecord, subject: &Subject, findings: Vec<FindingRecord>) {
    for mut finding in findings {
        finding.file = Some(finding.file.map_or_else(|| subject.candidate.name.clone(), |f| typed(subject, &f)));
        result.findings.push(finding);
    }
    // Errors first, each in the order it was found; the first is what people read.
    result.findings.sort_by_key(|f| f.severity == Severity::Note);
    result.finding = result.findings.first().filter(|f| f.severity == Severity::Error).cloned();
}

/// What gate 2 says.
pub(crate) struct Judged {
    pub verdict: VerdictWord,
    pub findings: Vec<FindingRecord>,
    pub check: Option<BTreeMap<String, CheckRecord>>,
}

impl Judged {
    fn of(verdict: VerdictWord, findings: Vec<FindingRecord>) -> Judged {
        Judged { verdict, findings, check: None }
    }
}

/// The record before gate 2, with the verdict that it has if gate 1 failed.
fn blank(
    ctx: &Context,
    subject: &Subject,
    setting: &Setting,
    workload: &Workload,
    target: &Target,
    compiled: &Compiled,
) -> ResultRecord {
    let mut findings = compiled.findings.clone();
    findings.sort_by_key(|f| f.severity == Severity::Note);
    ResultRecord {
        candidate: subject.candidate.name.clone(),
        task: subject.task.name.clone(),
        shape: workload.shape.clone(),
        symbols: workload.symbols.clone(),
        causal: workload.causal,
        format: workload.format.to_string(),
        distribution: workload.distribution.to_string(),
        scales: workload.scales.to_string(),
        seed: workload.seed,
        variant: workload.variant.clone(),
        target: target.name.to_string(),
        source_sha256: Some(crate::error_map::sha256(subject.candidate.source.as_bytes())),
        config: setting.config.clone(),
        levers: setting.levers.clone(),
        backend: ctx.backend.word().to_string(),
        numerics: ctx.numerics.as_str().to_string(),
        gates: Gates {
            compile: GateStatus::Failed,
            correctness: GateStatus::Blocked,
            performance: GateStatus::NotRun,
            profile: GateStatus::NotRun,
        },
        verdict: VerdictWord::CompileFailed,
        finding: findings.first().filter(|f| f.severity == Severity::Error).cloned(),
        findings,
        compile: compiled.records.clone(),
        check: None,
        measurement: None,
        profile: None,
        execution: None,
        cached: false,
        check_of: None,
    }
}

fn rejected(problem: &PlanProblem) -> FindingRecord {
    let block = problem.limit.is_some() && problem.message.starts_with("the block");
    let code = if block { Code::BlockTooLarge } else { Code::InvalidLaunch };
    let mut f = code.error("correctness", problem.message.clone());
    (f.line, f.limit) = (problem.line, problem.limit.clone());
    f
}

/// What the tools say joins what gate 2 has found; a fault that it has seen already keeps its verdict.
fn sanitize(sanitizer: &dyn SanitizeJob, job: &Job, judged: &mut Judged) {
    match sanitizer.sanitize_job(job) {
        Err(why) => judged.findings.push(Code::SanitizerMissing.note("correctness", why)),
        Ok(found) => {
            if judged.verdict == VerdictWord::Passed && found.iter().any(|f| f.severity == Severity::Error) {
                judged.verdict = VerdictWord::Faulted;
            }
            judged.findings.extend(found);
        }
    }
}

pub(crate) fn job<'a>(
    ctx: &Context,
    artifact: &'a Artifact,
    plan: &'a ResolvedPlan,
    target: &'static Target,
    oracle: &'a Oracle,
) -> Job<'a> {
    Job {
        artifact,
        plan,
        target,
        inputs: &oracle.inputs.tensors,
        outputs: &oracle.inputs.outputs,
        numerics: ctx.numerics,
        schedule: FIRST,
        max_instructions: INSTRUCTIONS.saturating_add(2 * oracle.work()),
    }
}

fn run_and_judge(
    ctx: &Context,
    subject: &Subject,
    workload: &Workload,
    target: &'static Target,
    compiled: &Compiled,
    plan: &ResolvedPlan,
    result: &mut ResultRecord,
) -> Result<Judged, EvalError> {
    let artifact = compiled
        .artifacts
        .get(target.name)
        .ok_or_else(|| EvalError::Defect(format!("no artifact for {}", target.name)))?;
    let oracle = ctx.oracles.get(&subject.task, workload)?;
    let key = PassKey {
        artifact,
        plan,
        workload,
        task: &subject.task,
        precision: subject.candidate.precision,
        target,
        numerics: ctx.numerics,
        backend: ctx.backend.version(),
    };
    if let Some(pass) = ctx.passes.and_then(|p| p.get(&key)) {
        result.execution = Some(pass.execution);
        result.cached = true;
        result.check_of = pass.earned;
        return Ok(Judged { verdict: VerdictWord::Passed, findings: Vec::new(), check: Some(pass.check) });
    }
    let job = job(ctx, artifact, plan, target, &oracle);
    let run = ctx.backend.run(&job)?;
    result.execution = Some(run.execution.clone());
    if let Some(judged) = stopped(ctx.backend, &run) {
        return Ok(judged);
    }
    let mut judged = judge_outputs(subject, workload, target, &oracle, &run)?;
    if judged.verdict == VerdictWord::Passed && run.execution.warp_instructions <= REPEATED {
        let often = run.execution.warp_instructions <= REPEATED_OFTEN;
        for schedule in &OTHERS[..if often { OTHERS.len() } else { 1 }] {
            let second = repeat(ctx, &Job { schedule: *schedule, ..job }, &run, &mut judged)?;
            // What the order of atomics explains still has to be right.
            if let Some(second) = second {
                let again = judge_outputs(subject, workload, target, &oracle, &second)?;
                if again.verdict != VerdictWord::Passed {
                    judged = again;
                }
            }
            if judged.verdict != VerdictWord::Passed || judged.findings.iter().any(is_schedule_note) {
                break;
            }
        }
    }
    if judged.verdict == VerdictWord::Passed
        && judged.findings.is_empty()
        && let (Some(passes), Some(check)) = (ctx.passes, &judged.check)
    {
        passes.put(&key, check, &run.execution);
    }
    Ok(judged)
}

/// The verdict of a run that came to no good end, or met errors on its way.
pub(crate) fn stopped(backend: &dyn Backend, run: &RunOutcome) -> Option<Judged> {
    let faulted = run.findings.iter().any(|f| f.severity == Severity::Error);
    let mut findings = run.findings.clone();
    let verdict = match &run.end {
        RunEnd::Rejected(f) => {
            findings.insert(0, (**f).clone());
            VerdictWord::Rejected
        }
        RunEnd::Unavailable(f) => {
            findings.insert(0, (**f).clone());
            VerdictWord::Unsupported
        }
        _ if faulted => VerdictWord::Faulted,
        RunEnd::Completed => return None,
        RunEnd::Faulted => {
            findings.push(
                Code::InvalidLaunch
                    .error("correctness", "the launch stopped with an error that the backend did not describe"),
            );
            VerdictWord::Faulted
        }
        RunEnd::LimitReached { what, limit } => {
            let (code, unit) = match what.as_str() {
                "seconds" => (Code::TimeLimit, "seconds"),
                _ => (Code::InstructionLimit, "warp instructions"),
            };
            let mut f = code.error("correctness", format!("the kernel did not end within its limit of {limit} {unit}"));
            f.limit = Some(limit.to_string());
            findings.push(f);
            VerdictWord::TimedOut
        }
        RunEnd::Unsupported { what, file, line } => {
            let mut f = Code::UnsupportedInstruction.error(
                "correctness",
                format!("{} cannot execute {what}; nothing is said about the kernel", who(backend)),
            );
            (f.file, f.line) = (file.clone(), *line);
            findings.push(f);
            VerdictWord::Unsupported
        }
    };
    Some(Judged::of(verdict, findings))
}

fn who(backend: &dyn Backend) -> &'static str {
    match backend.word() {
        "gpu" => "the GPU",
        "fake" => "the fake device",
        _ => "the PTX machine",
    }
}

pub(crate) fn judge_outputs(
    subject: &Subject,
    workload: &Workload,
    target: &Target,
    oracle: &Oracle,
    run: &RunOutcome,
) -> Result<Judged, EvalError> {
    if run.outputs.len() != oracle.outputs.len() || run.inputs.len() != oracle.inputs.tensors.len() {
        return Err(EvalError::Defect("the backend left out a tensor".into()));
    }
    let mut findings = run.findings.clone();
    let broken = guard::violations(oracle, run);
    let mut verdict = if broken.is_empty() { VerdictWord::Passed } else { VerdictWord::Rejected };
    findings.extend(broken);
    let mut checks = BTreeMap::new();
    for (expected, written) in oracle.outputs.iter().zip(&run.outputs) {
        let limits = oracle.limits(expected, &subject.task, target.name, subject.candidate.precision, workload.format);
        let (record, wrong) = check(expected, &limits, &written.bytes);
        if !wrong.is_empty() && verdict == VerdictWord::Passed {
            verdict = VerdictWord::Incorrect;
        }
        findings.extend(wrong);
        checks.insert(expected.spec.name.clone(), record);
    }
    Ok(Judged { verdict, findings, check: Some(checks) })
}

fn is_schedule_note(f: &FindingRecord) -> bool {
    f.code == Code::ScheduleDependent.as_str()
}

/// Another legal order of events: its findings count, and its outputs have to be the same. If they differ and atomics may be
/// the reason, they are given back.
fn repeat(ctx: &Context, job: &Job, first: &RunOutcome, judged: &mut Judged) -> Result<Option<RunOutcome>, EvalError> {
    let second = ctx.backend.run(job)?;
    if let Some(stopped) = stopped(ctx.backend, &second) {
        *judged = Judged { check: None, ..stopped };
        return Ok(None);
    }
    let differing = first.outputs.iter().zip(&second.outputs).zip(job.outputs).find(|((a, b), _)| a.bytes != b.bytes);
    if let Some(((a, b), spec)) = differing {
        let size = spec.dtype.bytes() as usize;
        let at = a.bytes.iter().zip(&b.bytes).position(|(a, b)| a != b).unwrap_or(0) / size;
        let index = spec.index(at);
        let mut f = if first.atomics {
            Code::ScheduleDependent.note(
                "correctness",
                format!(
                    "{} depends on the order of atomic operations; the first difference is {}{index:?}",
                    spec.name, spec.name
                ),
            )
        } else {
            judged.verdict = VerdictWord::Faulted;
            Code::ScheduleDependent.error(
                "correctness",
                format!("{} differs between two legal orders of warps and asynchronous copies: a synchronisation is missing; the first difference is {}{index:?}", spec.name, spec.name),
            )
        };
        (f.tensor, f.index) = (Some(spec.name.clone()), Some(index.iter().map(|i| *i as i64).collect()));
        judged.findings.push(f);
        return Ok(first.atomics.then_some(second));
    }
    Ok(None)
}
