//! Gate 1: a candidate compiles for each of its targets, within its budgets; with the evidence by target and entry.
//!
//! A failure for any target fails the gate. Budgets fail it only where the task or the candidate sets them; beyond 128
//! registers, 48 KB of shared memory or with spills there is a warning.

use crate::error::EvalError;
use crate::finding::Code;
use crate::source::ArtifactSource;
use rayon::prelude::*;
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use warpsmith_compile::{
    Artifact, BuildKind, CompileFailure, CompileOptions, DiagnosticKind, EntryStats, Request, Standard,
};
use warpsmith_spec::candidate::{Candidate, ResolvedOptions};
use warpsmith_spec::levers::Setting;
use warpsmith_spec::plan::ResolvedPlan;
use warpsmith_spec::record::{EntryRecord, FindingRecord};
use warpsmith_spec::task::{Budget, Task};
use warpsmith_spec::workload::Workload;

/// A candidate with what the compiler has to know of where it came from.
#[derive(Debug, Clone)]
pub struct Subject {
    pub candidate: Arc<Candidate>,
    pub task: Arc<Task>,
    /// Canonical relative name: `kernels/attention/ladder/level_00.cu`, or `mine.cu`.
    pub canonical: String,
    /// The folder that its quoted includes may name files of; none for what is built in.
    pub include_root: Option<PathBuf>,
}

/// Registers and shared memory beyond which there is advice.
const ADVICE_REGISTERS: u32 = 128;
const ADVICE_SHARED: u64 = 48 << 10;

/// What gate 1 says of one candidate, setting and workload.
#[derive(Debug, Clone, Default)]
pub struct Compiled {
    /// By target; absent where it did not compile.
    pub artifacts: BTreeMap<String, Arc<Artifact>>,
    /// target -> entry -> evidence; a target that failed has no entries.
    pub records: BTreeMap<String, BTreeMap<String, EntryRecord>>,
    pub findings: Vec<FindingRecord>,
}

impl Compiled {
    pub fn passed(&self) -> bool {
        !self.findings.iter().any(|f| f.severity == warpsmith_spec::record::Severity::Error)
    }
}

type Answer = Arc<Result<Arc<Artifact>, CompileFailure>>;

/// Compiles, remembering answers for the length of a run: most workloads share them.
pub struct CompileGate<'a> {
    source: &'a dyn ArtifactSource,
    headers: Arc<BTreeMap<String, String>>,
    known: Mutex<HashMap<(String, String, Vec<(String, String)>, ResolvedOptions), Answer>>,
}

impl<'a> CompileGate<'a> {
    pub fn new(source: &'a dyn ArtifactSource, headers: Arc<BTreeMap<String, String>>) -> CompileGate<'a> {
        CompileGate { source, headers, known: Mutex::default() }
    }

    /// Gate 1 for all the candidate's targets. `plan` gives dynamic shared memory, where it could be resolved.
    pub fn judge(
        &self,
        subject: &Subject,
        setting: &Setting,
        workload: &Workload,
        plan: Option<&ResolvedPlan>,
    ) -> Result<Compiled, EvalError> {
        let mut compiled = Compiled::default();
        let budget = subject.candidate.budget.and(subject.task.budget);
        // The compiler is a process of its own: targets need not wait for each other.
        let answers: Vec<(&String, Answer)> = subject
            .candidate
            .targets
            .par_iter()
            .map(|target| {
                let request = request(subject, setting, workload, target, &self.headers)?;
                Ok((target, self.answer(subject, &request, setting)?))
            })
            .collect::<Result<_, EvalError>>()?;
        for (target, answer) in answers {
            match &*answer {
                Ok(artifact) => {
                    let mut records = BTreeMap::new();
                    for entry in &artifact.entries {
                        let record = evidence(artifact, entry, plan);
                        over_budget(subject, target, entry, &record, &budget, &mut compiled.findings);
                        records.insert(entry.expression.clone(), record);
                    }
                    for d in artifact.warnings.iter().filter(|d| d.kind == DiagnosticKind::DebugCodeLeft) {
                        let mut note = Code::DebugCodeLeft.note("compile", d.message.clone());
                        (note.file, note.line) = (d.file.as_ref().map(|f| typed(subject, f)), d.line);
                        if !compiled.findings.contains(&note) {
                            compiled.findings.push(note);
                        }
                    }
                    compiled.artifacts.insert(target.clone(), artifact.clone());
                    compiled.records.insert(target.clone(), records);
                }
                Err(failure) => {
                    compiled.findings.push(failed(subject, target, failure));
                    compiled.records.insert(target.clone(), BTreeMap::new());
                }
            }
        }
        Ok(compiled)
    }

    fn answer(&self, subject: &Subject, request: &Request, setting: &Setting) -> Result<Answer, EvalError> {
        let source = warpsmith_compile::sha256(request.source.as_bytes());
        let options = subject.candidate.options_for(setting);
        let key = (
            format!("{}\n{source}\n{}", request.name, request.entries.join("\n")),
            request.target.clone(),
            request.defines.clone(),
            options,
        );
        if let Some(answer) = self.lock().get(&key) {
            return Ok(answer.clone());
        }
        let answer = Arc::new(self.source.artifact(request)?.map(Arc::new));
        self.lock().insert(key, answer.clone());
        Ok(answer)
    }

    fn lock(
        &self,
    ) -> std::sync::MutexGuard<'_, HashMap<(String, String, Vec<(String, String)>, ResolvedOptions), Answer>> {
        self.known.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// The compile request of a candidate for a target: what the layer is made from, too.
pub fn request(
    subject: &Subject,
    setting: &Setting,
    workload: &Workload,
    target: &str,
    headers: &Arc<BTreeMap<String, String>>,
) -> Result<Request, EvalError> {
    let candidate = &subject.candidate;
    Ok(Request {
        name: subject.canonical.clone(),
        source: candidate.source.clone(),
        include_root: subject.include_root.clone(),
        builtin_headers: headers.clone(),
        defines: candidate.defines_for(setting, workload),
        options: options(&candidate.options_for(setting))?,
        entries: candidate.entries().iter().map(|e| e.to_string()).collect(),
        target: target.to_string(),
        build: BuildKind::Release,
    })
}

/// A candidate's flags as the compiler's options.
pub(crate) fn options(resolved: &ResolvedOptions) -> Result<CompileOptions, EvalError> {
    let mut options = CompileOptions { maxrregcount: resolved.maxrregcount, ..CompileOptions::default() };
    for flag in &resolved.flags {
        let (name, value) = flag.split_once('=').unwrap_or((flag, "true"));
        let on = value == "true";
        match name {
            "--maxrregcount" => {}
            "--use_fast_math" => options.fast_math = true,
            "--ftz" => options.ftz = Some(on),
            "--prec-div" => options.prec_div = Some(on),
            "--prec-sqrt" => options.prec_sqrt = Some(on),
            "--fmad" => options.fmad = Some(on),
            "--restrict" => options.restrict = true,
            "--std" => options.standard = Some(if value == "c++20" { Standard::Cpp20 } else { Standard::Cpp17 }),
            _ => return Err(EvalError::Defect(format!("the compiler has no option for `{flag}`"))),
        }
    }
    Ok(options)
}

/// The name that people typed, where the compiler's messages have the canonical one.
pub fn typed(subject: &Subject, file: &str) -> String {
    if file == subject.canonical { subject.candidate.name.clone() } else { file.to_string() }
}

fn evidence(artifact: &Artifact, entry: &EntryStats, plan: Option<&ResolvedPlan>) -> EntryRecord {
    let dynamic =
        plan.and_then(|p| p.launches.iter().filter(|l| l.entry == entry.expression).map(|l| l.shared_bytes).max());
    let spills = entry.spill_store_bytes + entry.spill_load_bytes;
    let shared = entry.shared_bytes as u64 + dynamic.unwrap_or(0);
    let mut warnings = Vec::new();
    if entry.registers > ADVICE_REGISTERS {
        warnings.push(format!(
            "{} registers a thread: over {ADVICE_REGISTERS}, fewer warps fit a multiprocessor",
            entry.registers
        ));
    }
    if shared > ADVICE_SHARED {
        warnings
            .push(format!("{shared} bytes of shared memory: over {ADVICE_SHARED}, fewer CTAs fit a multiprocessor"));
    }
    if spills > 0 {
        warnings.push(format!(
            "registers spill: {} bytes stored, {} loaded",
            entry.spill_store_bytes, entry.spill_load_bytes
        ));
    }
    // Spills are said above, with figures; the rest stands with the first entry, for the compiler names none.
    if artifact.entries.first().is_some_and(|first| first == entry) {
        warnings.extend(artifact.warnings.iter().filter(|d| d.kind != DiagnosticKind::Spills).map(|d| d.to_string()));
    }
    EntryRecord {
        registers: entry.registers,
        shared_bytes: entry.shared_bytes,
        dynamic_shared_bytes: dynamic,
        stack_bytes: entry.stack_bytes,
        spill_bytes: spills,
        tensor_ops: entry.tensor_ops.clone(),
        ptx_sha256: artifact.ptx_sha256.clone(),
        warnings,
    }
}

fn over_budget(
    subject: &Subject,
    target: &str,
    entry: &EntryStats,
    record: &EntryRecord,
    budget: &Budget,
    findings: &mut Vec<FindingRecord>,
) {
    let shared = record.shared_bytes as u64 + record.dynamic_shared_bytes.unwrap_or(0);
    for (code, what, used, limit) in [
        (Code::OverRegisterBudget, "registers a thread", record.registers as u64, budget.registers.map(u64::from)),
        (Code::OverSharedBudget, "bytes of shared memory", shared, budget.shared_bytes),
        (Code::OverSpillBudget, "bytes of spills", record.spill_bytes as u64, budget.spill_bytes),
    ] {
        if let Some(limit) = limit.filter(|limit| used > *limit) {
            let mut f = code
                .error("compile", format!("{} has {used} {what} on {target}; the budget is {limit}", entry.expression));
            (f.file, f.entry, f.limit) =
                (Some(subject.candidate.name.clone()), Some(entry.expression.clone()), Some(limit.to_string()));
            findings.push(f);
        }
    }
}

/// The code of a failure.
pub(crate) fn code_of(failure: &CompileFailure) -> Code {
    match failure {
        CompileFailure::Nvrtc { .. } => Code::CompileError,
        CompileFailure::UnsupportedTarget { .. } => Code::UnsupportedTarget,
        CompileFailure::Crashed { .. } => Code::CompilerCrashed,
        CompileFailure::WmmaLocalMemory { .. } => Code::WmmaLocalMemory,
        CompileFailure::Ptxas { .. } => Code::PtxasError,
        CompileFailure::MissingEntry { .. } => Code::MissingEntry,
        CompileFailure::Timeout { .. } => Code::CompileTimeout,
        CompileFailure::Memory { .. } => Code::CompileMemory,
        CompileFailure::TooLarge { .. } => Code::CompileTooLarge,
        CompileFailure::UnsafeInclude { .. } => Code::UnsafeInclude,
    }
}

fn failed(subject: &Subject, target: &str, failure: &CompileFailure) -> FindingRecord {
    let code = code_of(failure);
    let place = failure.diagnostic();
    let mut f = code.error("compile", format!("{target}: {}", place.message));
    f.file = Some(place.file.map_or_else(|| subject.candidate.name.clone(), |file| typed(subject, &file)));
    f.line = place.line;
    match failure {
        CompileFailure::MissingEntry { name, .. } => {
            f.entry = Some(name.clone());
            f.line = subject.candidate.plan.launches.iter().find(|l| l.entry == *name).map(|l| l.entry_line);
        }
        CompileFailure::Timeout { seconds } => f.limit = Some(format!("{seconds} s")),
        CompileFailure::Memory { bytes } => f.limit = Some(format!("{bytes} bytes")),
        CompileFailure::TooLarge { limit, .. } => f.limit = Some(limit.to_string()),
        _ => {}
    }
    f
}
