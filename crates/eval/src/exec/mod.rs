//! `warpsmith exec`: any kernel from a launch file, on any backend, with all that the gates' backend finds; then compared with what was
//! expected. It has no task, no oracle and no tolerances of its own.
//!
//! Order of blame as in the gates: it does not compile; the launch is impossible; it faults; it never ends or cannot be executed; outputs
//! are left unwritten; they are wrong. What is wrong in the launch file or in an array that it names is wrong usage, never a verdict.

mod arrays;
mod host_code;
mod kernel;
mod names;

use crate::backend::{Backend, Job, NumericsChoice, RunEnd, RunOutcome, Schedule, Written};
use crate::error::EvalError;
use crate::evaluate::stopped;
use crate::finding::Code;
use crate::source::ArtifactSource;
use crate::suppress::suppress;
use crate::values::{OutputSpec, Tensor, coordinates};
use arrays::encode_one;
use kernel::Loaded;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use warpsmith_compile::Artifact;
use warpsmith_spec::exec::{
    BufferDecl, ExecArg, ExecLaunch, Expect, FidelityRecord, Field, From, LaunchFile, Literal, OutputRecord,
};
use warpsmith_spec::plan::{Parameter, ResolvedArg, ResolvedLaunch, ResolvedPlan};
use warpsmith_spec::record::{ExecutionRecord, FindingRecord, Severity, VerdictWord};
use warpsmith_spec::target::Target;
use warpsmith_spec::{SpecCode, SpecError, Suppressions};

/// What is to be run.
pub struct Request<'a> {
    /// The kernel's file as it was typed.
    pub file: &'a str,
    pub kernel: Kernel<'a>,
    pub plan: &'a LaunchFile,
    /// Reads a file that the launch file names.
    pub read: &'a dyn Fn(&str) -> Result<Vec<u8>, String>,
    pub source: &'a dyn ArtifactSource,
    pub backend: &'a dyn Backend,
    pub numerics: NumericsChoice,
    pub suppressions: &'a Suppressions,
}

/// The kernel's text.
pub enum Kernel<'a> {
    Ptx {
        text: &'a str,
    },
    Source {
        text: &'a str,
        /// The name that the compiler knows it by.
        canonical: &'a str,
        /// Where its own includes lie.
        include_root: Option<&'a Path>,
        headers: Arc<BTreeMap<String, String>>,
    },
}

impl Request<'_> {
    /// The name that people typed, where messages have the compiler's.
    fn typed(&self, file: &str) -> String {
        match &self.kernel {
            Kernel::Source { canonical, .. } if file == *canonical => self.file.to_string(),
            _ => file.to_string(),
        }
    }
}

/// What came of it: the record's parts, and the arrays to write.
#[derive(Debug, Clone, PartialEq)]
pub struct Executed {
    pub target: &'static Target,
    pub ptx_sha256: Option<String>,
    /// What the compiler made of a source.
    pub ptx: Option<String>,
    pub toolkit: Option<String>,
    pub verdict: VerdictWord,
    /// Errors first.
    pub findings: Vec<FindingRecord>,
    pub fidelity: FidelityRecord,
    pub counters: ExecutionRecord,
    pub outputs: BTreeMap<String, OutputRecord>,
    /// Name under the run's folder, and bytes.
    pub files: Vec<(String, Vec<u8>)>,
    pub printed: String,
}

/// Compiles, runs and compares.
///
/// # Errors
/// Wrong usage: an entry that the kernel does not have, arguments that do not fit it, an array that is not there. A broken tool.
pub fn exec(request: &Request) -> Result<Executed, EvalError> {
    let target = kernel::target(request)?;
    let memory = Arrays::read(request)?;
    let mut executed = Executed {
        target,
        ptx_sha256: None,
        ptx: None,
        toolkit: None,
        verdict: VerdictWord::Passed,
        findings: Vec::new(),
        fidelity: FidelityRecord::default(),
        counters: ExecutionRecord::default(),
        outputs: BTreeMap::new(),
        files: Vec::new(),
        printed: String::new(),
    };
    let artifact = match kernel::load(request, target)? {
        Loaded::Ready(artifact) => artifact,
        Loaded::Failed(verdict, finding) => {
            executed.verdict = verdict;
            executed.findings.push(*finding);
            return Ok(executed);
        }
    };
    executed.ptx_sha256 = Some(artifact.ptx_sha256.clone());
    if let Kernel::Source { .. } = request.kernel {
        executed.toolkit = Some(artifact.toolkit.0.clone());
        executed.ptx = Some(artifact.ptx.clone());
    }
    let plan = resolved(request, &artifact)?;
    let job = Job {
        artifact: &artifact,
        plan: &plan,
        target,
        inputs: &memory.inputs,
        outputs: &memory.outputs,
        numerics: request.numerics,
        schedule: Schedule { seed: 1, early_copies: false },
        max_instructions: request.plan.max_instructions,
    };
    run(request, &job, &memory, &mut executed)?;
    for f in &mut executed.findings {
        f.file = Some(f.file.as_ref().map_or_else(|| request.file.to_string(), |file| request.typed(file)));
    }
    executed.findings.sort_by_key(|f| f.severity == Severity::Note);
    Ok(executed)
}

/// The buffers' contents before, and what they should be afterwards.
struct Arrays {
    inputs: Vec<Tensor>,
    outputs: Vec<OutputSpec>,
    /// By buffer, where something is expected.
    expected: BTreeMap<String, Vec<f64>>,
}

impl Arrays {
    fn read(request: &Request) -> Result<Arrays, SpecError> {
        let mut found = Arrays { inputs: Vec::new(), outputs: Vec::new(), expected: BTreeMap::new() };
        let wrong = |file: &str, line: u32, why: String| {
            SpecError::new(SpecCode::LaunchSyntax, format!("{file}: {why}")).at(&request.plan.name, line)
        };
        for b in &request.plan.buffers {
            let bytes = match &b.from {
                From::File(file) => {
                    let bytes = (request.read)(file).and_then(|bytes| arrays::contents(b, &bytes));
                    Some(bytes.map_err(|why| wrong(file, b.from_line, why))?)
                }
                _ => arrays::drawn(b),
            };
            let (name, dtype, shape) = (b.name.clone(), b.dtype, b.shape.clone());
            match bytes {
                Some(bytes) => found.inputs.push(Tensor { name, dtype, shape, bytes }),
                None => found.outputs.push(OutputSpec { name, dtype, shape }),
            }
            if let Some(expect) = &b.expect {
                let values = (request.read)(&expect.file).and_then(|bytes| arrays::expected(b, &bytes));
                let values = values.map_err(|why| wrong(&expect.file, expect.line, why))?;
                found.expected.insert(b.name.clone(), values);
            }
        }
        Ok(found)
    }

    /// A buffer after a run that completed.
    fn after<'r>(&self, run: &'r RunOutcome, name: &str) -> Option<&'r Written> {
        let input = self.inputs.iter().position(|t| t.name == name).and_then(|at| run.inputs.get(at));
        input.or_else(|| self.outputs.iter().position(|o| o.name == name).and_then(|at| run.outputs.get(at)))
    }
}

/// The plan as backends take it, its arguments held against the entries' parameters.
fn resolved(request: &Request, artifact: &Artifact) -> Result<ResolvedPlan, SpecError> {
    let mut launches = Vec::new();
    for launch in &request.plan.launches {
        let step = step(launch);
        if let Some(entry) = artifact.entry(&launch.entry) {
            let parameters: Vec<Parameter> =
                entry.params.iter().map(|n| Parameter { bytes: *n as usize, align: 1 }).collect();
            step.fits_parameters(&request.plan.name, &parameters)?;
        }
        launches.push(step);
    }
    Ok(ResolvedPlan {
        launches,
        workspaces: request.plan.workspaces.clone(),
        tensor_maps: request.plan.tensor_maps.clone(),
    })
}

fn step(launch: &ExecLaunch) -> ResolvedLaunch {
    let arg = |arg: &ExecArg| match arg {
        ExecArg::Buffer(name) => ResolvedArg::Tensor(name.clone()),
        ExecArg::Workspace(name) => ResolvedArg::Workspace(name.clone()),
        ExecArg::TensorMap(name) => ResolvedArg::TensorMap(name.clone()),
        ExecArg::Typed { name, fields } => ResolvedArg::Bytes { name: name.clone(), bytes: structure(fields) },
        ExecArg::Number { name, value } => ResolvedArg::Scalar { name: name.clone(), value: *value },
    };
    ResolvedLaunch {
        entry: launch.entry.clone(),
        grid: launch.grid,
        block: launch.block,
        cluster: launch.cluster,
        shared_bytes: launch.shared_bytes,
        cooperative: launch.cooperative,
        args: launch.args.iter().map(arg).collect(),
        line: launch.line,
        args_line: launch.args_line,
        entry_line: launch.entry_line,
    }
}

/// Numbers as C lays out a structure of them: each at a multiple of its size, the whole a multiple of the largest.
fn structure(fields: &[Field]) -> Vec<u8> {
    let mut bytes: Vec<u8> = Vec::new();
    let mut align = 1;
    for field in fields {
        let size = field.dtype.bytes() as usize;
        align = align.max(size);
        bytes.resize(bytes.len().next_multiple_of(size), 0);
        match field.value {
            Literal::Whole(n) => bytes.extend(&n.to_le_bytes()[..size]),
            Literal::Real(x) => bytes.extend(encode_one(field.dtype, x)),
        }
    }
    bytes.resize(bytes.len().next_multiple_of(align), 0);
    bytes
}

/// The n-th schedule besides the first; see the machine's `Options::schedule_seed`: odd seeds start CTAs backwards.
fn schedule(n: u32) -> Schedule {
    let seed = (u64::from(n) + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) & !1 | u64::from(n % 2);
    Schedule { seed, early_copies: n % 2 == 1 }
}

fn run(request: &Request, job: &Job, memory: &Arrays, executed: &mut Executed) -> Result<(), EvalError> {
    let mut first = request.backend.run(job)?;
    suppress(request.suppressions, &mut first);
    executed.counters = first.execution.clone();
    executed.printed = first.printed.clone();
    executed.fidelity = fidelity(&first);
    if let Some(judged) = stopped(request.backend, &first) {
        (executed.verdict, executed.findings) = (judged.verdict, judged.findings);
        // What completed all the same can be looked at.
        outputs(request, memory, &first, executed, false);
        return Ok(());
    }
    executed.findings = first.findings.clone();
    outputs(request, memory, &first, executed, true);
    // A device has schedules of its own.
    let others = if request.backend.word() == "ptx_machine" { request.plan.schedules } else { 0 };
    for n in 1..=others {
        let mut other = request.backend.run(&Job { schedule: schedule(n), ..*job })?;
        if matches!(other.end, RunEnd::LimitReached { .. }) {
            continue;
        }
        suppress(request.suppressions, &mut other);
        executed.fidelity.schedules += 1;
        let judged = stopped(request.backend, &other);
        let (verdict, found) =
            judged.map_or((VerdictWord::Passed, other.findings.clone()), |j| (j.verdict, j.findings));
        for f in found {
            add(&mut executed.findings, f);
        }
        worsen(&mut executed.verdict, verdict);
        if other.end != RunEnd::Completed {
            break;
        }
        for mut f in wrong_in_another_order(request, memory, &other, executed) {
            request.suppressions.apply(&mut f);
            if f.severity == Severity::Error {
                worsen(&mut executed.verdict, VerdictWord::Incorrect);
            }
            executed.findings.push(f);
        }
        if let Some(mut f) = difference(request, memory, &first, &other) {
            request.suppressions.apply(&mut f);
            if f.severity == Severity::Error {
                worsen(&mut executed.verdict, VerdictWord::Faulted);
            }
            add(&mut executed.findings, f);
        }
    }
    Ok(())
}

/// The first verdict that is no pass stays, but a fault comes before wrong values, which it explains.
fn worsen(verdict: &mut VerdictWord, other: VerdictWord) {
    if *verdict == VerdictWord::Passed || other == VerdictWord::Faulted {
        *verdict = other;
    }
}

/// Adds a finding that is not there yet.
fn add(findings: &mut Vec<FindingRecord>, f: FindingRecord) {
    let sides = |f: &FindingRecord| {
        // Either access of a race may be the second one.
        let mut lines = [f.line, f.other_line];
        lines.sort();
        (f.code.clone(), f.severity == Severity::Note, f.file.clone(), f.entry.clone(), lines)
    };
    if !findings.iter().any(|known| sides(known) == sides(&f)) {
        findings.push(f);
    }
}

fn fidelity(run: &RunOutcome) -> FidelityRecord {
    let approximate = run.execution.approximate.clone();
    let modelled = run.execution.modelled;
    let exact = run.execution.warp_instructions.saturating_sub(approximate.values().sum::<u64>() + modelled);
    let unsupported = match &run.end {
        RunEnd::Unsupported { what, .. } => vec![what.clone()],
        _ => Vec::new(),
    };
    FidelityRecord { exact, approximate, modelled, unsupported, schedules: 1 }
}

/// Files and comparisons; `judge`: what is wrong there counts.
fn outputs(request: &Request, memory: &Arrays, run: &RunOutcome, executed: &mut Executed, judge: bool) {
    for b in request.plan.buffers.iter().filter(|b| b.out.is_some() || b.expect.is_some()) {
        let Some(written) = memory.after(run, &b.name) else { continue };
        let mut record = OutputRecord { file: b.out.clone(), ..OutputRecord::default() };
        if let Some(out) = &b.out {
            executed.files.push((out.clone(), arrays::file(b, &written.bytes)));
        }
        let mut found: Vec<(VerdictWord, FindingRecord)> = Vec::new();
        found.extend(unwritten(b, written).map(|f| (VerdictWord::Rejected, f)));
        if let (Some(expect), Some(values)) = (&b.expect, memory.expected.get(&b.name)) {
            let d = arrays::compare(b.dtype, &written.bytes, values, expect);
            found.extend(wrong(request, b, expect, &d).map(|f| (VerdictWord::Incorrect, f)));
            record.max_abs_err = Some(d.max_abs_err);
            record.wrong = Some(d.wrong);
            (record.rtol, record.atol) = (Some(expect.rtol), Some(expect.atol));
            record.ok = Some(d.wrong == 0);
        }
        executed.outputs.insert(b.name.clone(), record);
        for (verdict, mut f) in found {
            request.suppressions.apply(&mut f);
            if judge && f.severity == Severity::Error && executed.verdict == VerdictWord::Passed {
                executed.verdict = verdict;
            }
            executed.findings.push(f);
        }
    }
}

fn unwritten(b: &BufferDecl, written: &Written) -> Option<FindingRecord> {
    let size = b.dtype.bytes() as usize;
    let missing = |d: &[bool]| d.iter().any(|defined| !defined);
    let first = written.defined.chunks(size).position(missing)?;
    let count = written.defined.chunks(size).filter(|d| missing(d)).count() as u64;
    let index = coordinates(&b.shape, first as u64);
    let all = b.elements();
    let message =
        format!("{count} of {all} elements of {} hold no defined value; the first is {}{index:?}", b.name, b.name);
    let mut f = Code::OutputUnwritten.error("correctness", message);
    (f.tensor, f.index) = (Some(b.name.clone()), Some(index.iter().map(|i| *i as i64).collect()));
    f.count = Some(count);
    Some(f)
}

fn wrong(request: &Request, b: &BufferDecl, expect: &Expect, d: &arrays::Difference) -> Option<FindingRecord> {
    let (at, got, want) = d.worst?;
    let index = coordinates(&b.shape, at);
    let message = format!(
        "{} of {} elements of {} are not what {} expects (rtol {}, atol {}); the worst is {}{index:?}: {got:?}, expected {want:?}",
        d.wrong,
        b.elements(),
        b.name,
        expect.file,
        expect.rtol,
        expect.atol,
        b.name
    );
    let mut f = Code::IncorrectOutput.error("correctness", message);
    (f.file, f.line) = (Some(request.plan.name.clone()), Some(expect.line));
    (f.tensor, f.index) = (Some(b.name.clone()), Some(index.iter().map(|i| *i as i64).collect()));
    f.count = Some(d.wrong);
    Some(f)
}

/// What is not as expected only in a schedule besides the first: the order of atomics explains a difference, but no wrong value.
fn wrong_in_another_order(
    request: &Request,
    memory: &Arrays,
    run: &RunOutcome,
    executed: &Executed,
) -> Vec<FindingRecord> {
    let right = |b: &&BufferDecl| executed.outputs.get(&b.name).is_some_and(|o| o.ok == Some(true));
    let told = |b: &&BufferDecl| {
        let of = |f: &FindingRecord| f.code == Code::IncorrectOutput.as_str() && f.tensor.as_ref() == Some(&b.name);
        executed.findings.iter().any(of)
    };
    let judged = request.plan.buffers.iter().filter(|b| right(b) && !told(b));
    let found = judged.filter_map(|b| {
        let (expect, values) = (b.expect.as_ref()?, memory.expected.get(&b.name)?);
        let d = arrays::compare(b.dtype, &memory.after(run, &b.name)?.bytes, values, expect);
        let mut f = wrong(request, b, expect, &d)?;
        f.message = format!("in another legal order of CTAs, warps and asynchronous copies {}", f.message);
        Some(f)
    });
    found.collect()
}

/// Where two schedules leave different outputs. Only what is asked for counts: a workspace may hold anything.
fn difference(request: &Request, memory: &Arrays, a: &RunOutcome, b: &RunOutcome) -> Option<FindingRecord> {
    let asked = request.plan.buffers.iter().filter(|d| d.out.is_some() || d.expect.is_some());
    let (decl, at) = asked.into_iter().find_map(|decl| {
        let (x, y) = (memory.after(a, &decl.name)?, memory.after(b, &decl.name)?);
        let at = x.bytes.iter().zip(&y.bytes).position(|(x, y)| x != y)?;
        Some((decl, at / decl.dtype.bytes() as usize))
    })?;
    let index = coordinates(&decl.shape, at as u64);
    let name = &decl.name;
    let mut f = if a.atomics {
        let message =
            format!("{name} depends on the order of atomic operations; the first difference is {name}{index:?}");
        Code::ScheduleDependent.note("correctness", message)
    } else {
        let message = format!(
            "{name} differs between two legal orders of CTAs, warps and asynchronous copies: a synchronisation is missing; the first difference is {name}{index:?}"
        );
        Code::ScheduleDependent.error("correctness", message)
    };
    (f.tensor, f.index) = (Some(name.clone()), Some(index.iter().map(|i| *i as i64).collect()));
    Some(f)
}
