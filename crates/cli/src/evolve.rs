//! What a loop needs of the rest: the gates as its evaluator, the candidates behind its solutions, and the texts about it.

use crate::args::{Common, EvolveArgs};
use crate::artifacts::Artifacts;
use crate::catalog::{Catalog, Entry};
use crate::error::CliError;
use crate::{output, paths};
use indicatif::ProgressBar;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Instant;
use warpsmith_builtin::canonical_name;
use warpsmith_eval::{CompileGate, Context, NumericsChoice, Oracles, Passes, PtxMachine, Subject, evaluate};
use warpsmith_evolve::driver::Evaluator;
use warpsmith_evolve::estimate::{self, Launch};
use warpsmith_evolve::event::{Effect, Refusal};
use warpsmith_evolve::outcome::{Brief, MAX_FINDINGS, Resources};
use warpsmith_evolve::request::ReplayLine;
use warpsmith_evolve::{Estimate, Event, EvolveRecord, Judged, LoopRequest, Score, Solution, State, advice};
use warpsmith_spec::record::{ResultRecord, VerdictWord};
use warpsmith_spec::workload::{Workload, expand};
use warpsmith_spec::{Candidate, LeverValue, Setting, TaskSet, WorkloadRequest, target};
use warpsmith_store::{LoopDir, text_hash};

/// Bytes of a replay file at most.
const MAX_REPLAY_BYTES: u64 = 16 << 20;
/// Lines of a map of errors that are kept.
const MAX_MAP: usize = 16;

/// The candidates of a loop by their texts' hashes, and on what they are judged.
pub struct Gates {
    subjects: RwLock<BTreeMap<String, Arc<Subject>>>,
    /// For texts that were proposed meanwhile: the loop's folder, and what they are parsed and compiled with.
    run: PathBuf,
    tasks: TaskSet,
    include_root: Option<PathBuf>,
    headers: Arc<BTreeMap<String, String>>,
    workloads: Vec<Workload>,
    target: &'static target::Target,
    device: &'static estimate::Device,
    workers: usize,
    /// The error of the environment that ended an evaluation.
    failure: Mutex<Option<CliError>>,
}

/// Oracles of the loop's workloads.
pub struct Bench {
    oracles: Oracles,
    machine: PtxMachine,
    passes: Passes,
}

impl Default for Bench {
    fn default() -> Bench {
        Bench {
            oracles: Oracles::with_fresh_rows(),
            machine: PtxMachine::new(1),
            passes: Passes::new(paths::cache_dir().join("passes")),
        }
    }
}

impl Gates {
    pub fn new(
        catalog: &Catalog,
        request: &LoopRequest,
        entries: Vec<Entry>,
        workers: Option<usize>,
        run: &Path,
    ) -> Result<Gates, CliError> {
        let task = catalog.tasks.find(&request.task)?;
        let first = entries.first().ok_or_else(|| CliError::usage("unknown-name", "the loop has no candidate"))?;
        let asked = WorkloadRequest { shapes: request.shapes.clone(), ..WorkloadRequest::default() };
        let workloads = expand(task, &first.candidate, &asked)?;
        let mut subjects = BTreeMap::new();
        let include_root = first.folder.clone();
        for entry in entries {
            let sha = text_hash(&String::from_utf8_lossy(entry.candidate.source.as_bytes()));
            let subject = Subject {
                task: Arc::new(task.clone()),
                canonical: canonical_name(&entry.candidate.name).to_string(),
                include_root: entry.folder.clone(),
                candidate: Arc::new(entry.candidate),
            };
            subjects.insert(sha, Arc::new(subject));
        }
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let device = estimate::device(&request.device)
            .ok_or_else(|| CliError::usage("unknown-name", format!("there is no model of {}", request.device)))?;
        Ok(Gates {
            subjects: RwLock::new(subjects),
            run: run.to_path_buf(),
            tasks: catalog.tasks.clone(),
            include_root,
            headers: catalog.headers.clone(),
            workloads,
            target: target::find(&request.target)?,
            device,
            workers: workers.unwrap_or(cores).clamp(1, 256),
            failure: Mutex::default(),
        })
    }

    pub fn workloads(&self) -> &[Workload] {
        &self.workloads
    }

    /// The candidate behind a solution; one that was proposed since the loop began is read from its folder.
    fn subject(&self, solution: &Solution) -> Result<Arc<Subject>, CliError> {
        let sha = &solution.source_sha256;
        if let Some(subject) = self.subjects.read().unwrap_or_else(PoisonError::into_inner).get(sha) {
            return Ok(subject.clone());
        }
        let text = LoopDir::text(&self.run, sha)?;
        let candidate = Candidate::parse(&solution.candidate, text.as_bytes(), &self.tasks)?;
        let subject = Arc::new(Subject {
            task: Arc::new(self.tasks.find(&candidate.task)?.clone()),
            canonical: canonical_name(&candidate.name).to_string(),
            include_root: self.include_root.clone(),
            candidate: Arc::new(candidate),
        });
        self.subjects.write().unwrap_or_else(PoisonError::into_inner).insert(sha.clone(), subject.clone());
        Ok(subject)
    }

    /// The error that ended the loop, if one did.
    pub fn outcome(&self) -> Option<CliError> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub fn evaluator<'a>(&'a self, artifacts: &'a Artifacts, bench: &'a Bench) -> GateEvaluator<'a> {
        GateEvaluator { gates: self, compile: CompileGate::new(artifacts, self.headers.clone()), bench }
    }
}

/// Gates 1 and 2 on the PTX machine, and the estimate.
pub struct GateEvaluator<'a> {
    gates: &'a Gates,
    compile: CompileGate<'a>,
    bench: &'a Bench,
}

impl Evaluator for GateEvaluator<'_> {
    fn evaluate(&self, solution: &Solution) -> Result<Judged, String> {
        self.judge(solution).map_err(|error| {
            let text = error.record.message.clone();
            self.gates.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
            text
        })
    }

    fn workers(&self) -> usize {
        self.gates.workers
    }
}

impl GateEvaluator<'_> {
    fn judge(&self, solution: &Solution) -> Result<Judged, CliError> {
        let began = Instant::now();
        let gates = self.gates;
        let subject = gates.subject(solution)?;
        let setting = Setting { config: None, levers: solution.levers.clone() };
        let bench = self.bench;
        let context = Context {
            compile: &self.compile,
            backend: &bench.machine,
            oracles: &bench.oracles,
            numerics: NumericsChoice::Faithful,
            passes: Some(&bench.passes),
            compile_only: false,
            sanitizer: None,
        };
        let mut judged = Judged {
            verdict: VerdictWord::Passed,
            findings: Vec::new(),
            score: None,
            resources: None,
            code_sha256: None,
            duplicate_of: None,
            insights: Vec::new(),
            wrong_at: Vec::new(),
            seconds: 0.0,
            gpu_seconds: 0.0,
        };
        let mut figures = BTreeMap::new();
        let mut code = String::new();
        for workload in &gates.workloads {
            if subject.candidate.applicable(&setting, workload, gates.target).is_err() {
                continue;
            }
            let result = evaluate(&context, &subject, &setting, workload, gates.target)?;
            judged.resources = resources(&result, gates.target.name).or(judged.resources);
            if result.verdict != VerdictWord::Passed {
                judged.verdict = result.verdict;
                judged.findings = result
                    .findings
                    .iter()
                    .take(MAX_FINDINGS)
                    .map(|f| Brief { code: f.code.clone(), message: f.message.clone(), line: f.line })
                    .collect();
                judged.wrong_at = wrong_at(&result, &shape_name(workload));
                break;
            }
            let plan = subject.candidate.resolve(&subject.task, &setting, workload, gates.target);
            let launches = plan.ok().and_then(|plan| launches(&result, &plan, gates.target.name));
            if let Some((launches, text)) = launches
                && let Some(cycles) = estimate::cycles(gates.device, &launches)
            {
                let _ = write!(code, "{}{text};", hashes(&result, gates.target.name));
                // The workload that costs most is the one to be told of.
                if figures.values().all(|f| *f < cycles) {
                    judged.insights = advice::of(gates.device, &shape_name(workload), &launches);
                }
                figures.insert(shape_name(workload), cycles);
            }
        }
        if judged.passed() {
            judged.score = Estimate::new(gates.device.name, estimate::MODEL, figures).map(Score::Estimate);
            judged.code_sha256 = Some(text_hash(&code));
        }
        judged.seconds = began.elapsed().as_secs_f64();
        Ok(judged)
    }
}

/// The shape that failed, and the maps of the errors of its outputs.
fn wrong_at(result: &ResultRecord, shape: &str) -> Vec<String> {
    let mut lines = vec![format!("On {shape}.")];
    for (output, check) in result.check.iter().flatten() {
        let worst = &check.worst;
        let number = |v: Option<f64>| v.map_or_else(|| "no number".to_string(), |v| format!("{v:.6}"));
        lines.push(format!(
            "{output}: worst element at {:?}, {} where {} is right; {} NaN, {} infinite",
            worst.index,
            worst.got_text.clone().unwrap_or_else(|| number(worst.got)),
            number(worst.want),
            check.nan,
            check.inf
        ));
        let Some(map) = &check.error_map else { continue };
        lines.push(format!(
            "Its error by tiles of {} rows, 0 to 3 inside the limit, 4 to 9 beyond it, n not finite, . not judged; a line for {} of batch and heads:",
            map.rows_per_tile, map.leading_per_line
        ));
        lines.extend(map.tiles.iter().take(MAX_MAP).map(|l| l.chars().take(128).collect()));
        lines.push(format!(
            "All tiles of 16 rows laid upon each other, a line for each row, a character for {} columns:",
            map.columns_per_cell
        ));
        lines.extend(map.within.iter().take(MAX_MAP).map(|l| l.chars().take(128).collect()));
    }
    lines
}

/// `mission`, or `mission causal`.
fn shape_name(workload: &Workload) -> String {
    if workload.causal { format!("{} causal", workload.shape) } else { workload.shape.clone() }
}

fn hashes(result: &ResultRecord, target: &str) -> String {
    let entries = result.compile.get(target).into_iter().flatten();
    entries.map(|(name, e)| format!("{name}={} ", e.ptx_sha256)).collect()
}

fn resources(result: &ResultRecord, target: &str) -> Option<Resources> {
    let entries = result.compile.get(target)?.values();
    entries
        .map(|e| Resources {
            registers: e.registers,
            shared_bytes: u64::from(e.shared_bytes) + e.dynamic_shared_bytes.unwrap_or(0),
            spill_bytes: u64::from(e.spill_bytes),
        })
        .max_by_key(|r| (r.registers, r.shared_bytes))
}

/// The launches of one workload with what they counted, and as text.
fn launches(result: &ResultRecord, plan: &warpsmith_spec::ResolvedPlan, target: &str) -> Option<(Vec<Launch>, String)> {
    let executed = &result.execution.as_ref()?.launches;
    let entries = result.compile.get(target)?;
    let mut launches = Vec::new();
    let mut text = String::new();
    for (step, done) in plan.launches.iter().zip(executed) {
        let entry = entries.get(&step.entry)?;
        let _ = write!(text, "{:?}{:?}{}", step.grid, step.block, step.shared_bytes);
        launches.push(Launch {
            ctas: step.grid.iter().map(|n| u64::from(*n)).product(),
            threads_per_cta: step.block.iter().product(),
            registers: entry.registers,
            shared_bytes: u64::from(entry.shared_bytes) + step.shared_bytes,
            spill_bytes: u64::from(entry.spill_bytes),
            opcodes: done.opcodes.clone(),
            bank_conflicts: 0,
            tensor_bytes: 0,
        });
    }
    Some((launches, text))
}

/// The candidates behind a loop's solutions: the start as it is named in the journal, others by their kept texts.
pub fn entries(catalog: &Catalog, run: &Path, state: &State) -> Result<Vec<Entry>, CliError> {
    let mut found: BTreeMap<String, Entry> = BTreeMap::new();
    let mut names: Vec<(&str, &str)> =
        state.solutions.iter().map(|s| (s.candidate.as_str(), s.source_sha256.as_str())).collect();
    if let warpsmith_evolve::ProposerKind::Replay { lines } = &state.request.proposer {
        names.extend(lines.iter().map(|l| (l.candidate.as_str(), l.source_sha256.as_str())));
    }
    for (name, sha) in names {
        if found.contains_key(sha) {
            continue;
        }
        let entry = catalog.find(name).ok().filter(|e| text_hash(&source(e)) == sha);
        let entry = match entry {
            Some(entry) => entry,
            // The file is gone, or is another one now: the loop goes on with the text that it began with.
            None => catalog.entry_of(name, &LoopDir::text(run, sha)?)?,
        };
        found.insert(sha.to_string(), entry);
    }
    let first = state.solutions.first().map(|s| s.source_sha256.clone()).unwrap_or_default();
    let mut all: Vec<(String, Entry)> = found.into_iter().collect();
    all.sort_by_key(|(sha, _)| *sha != first);
    Ok(all.into_iter().map(|(_, e)| e).collect())
}

fn source(entry: &Entry) -> String {
    String::from_utf8_lossy(entry.candidate.source.as_bytes()).into_owned()
}

/// The lines of `--proposer replay:FILE`, resolved.
pub fn replay_lines(catalog: &Catalog, start: &Entry, args: &EvolveArgs) -> Result<Vec<ReplayLine>, CliError> {
    #[derive(serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Line {
        #[serde(default)]
        candidate: Option<String>,
        #[serde(default)]
        set: BTreeMap<String, LeverValue>,
    }
    let file = args.proposer.strip_prefix("replay:").unwrap_or_default();
    let path = Path::new(file);
    let unreadable =
        |why: String| CliError::usage("wrong-usage", format!("cannot read the replay {file:?}: {why}")).file(path);
    let size = std::fs::metadata(path).map_err(|e| unreadable(e.to_string()))?.len();
    if size > MAX_REPLAY_BYTES {
        return Err(unreadable(format!("it has {size} bytes, more than {MAX_REPLAY_BYTES}")));
    }
    let text = std::fs::read_to_string(path).map_err(|e| unreadable(e.to_string()))?;
    let mut lines = Vec::new();
    for (n, line) in text.lines().enumerate().filter(|(_, l)| !l.trim().is_empty()) {
        let line: Line = serde_json::from_str(line).map_err(|e| {
            let mut error = unreadable(e.to_string());
            error.record.line = Some(n as u32 + 1);
            error
        })?;
        let entry = line.candidate.as_deref().map(|c| catalog.find(c)).transpose()?.unwrap_or_else(|| start.clone());
        let set = line.set.iter().map(|(k, v)| format!("{k}={v}")).collect();
        let asked = warpsmith_spec::LeverRequest { set, config: None, sweep: false };
        let setting = entry.candidate.settings(&asked)?.into_iter().next().unwrap_or_default();
        lines.push(ReplayLine {
            candidate: entry.typed.clone(),
            source_sha256: text_hash(&source(&entry)),
            levers: setting.levers,
        });
    }
    Ok(lines)
}

/// Live progress: what is best so far, and each improvement as it is found.
pub struct Observed<'a> {
    bar: &'a ProgressBar,
    verbose: bool,
    told: usize,
}

impl<'a> Observed<'a> {
    pub fn new(bar: &'a ProgressBar, common: &Common) -> Observed<'a> {
        Observed { bar, verbose: common.verbose && !common.json, told: 0 }
    }

    pub fn told(&mut self, event: &Event, state: &State) {
        match event {
            Event::Evaluated { .. } => {}
            Event::Asked { asked: Effect::Propose { turn, fixes, .. } } => {
                let what = fixes.map_or_else(String::new, |id| format!(" to mend #{id}"));
                return self.bar.set_message(format!("asking for proposal {turn}{what}"));
            }
            Event::Answered { turn, refusals, failure, .. } if self.verbose => {
                let why = failure.iter().cloned().chain(refusals.iter().map(Refusal::words));
                return why.for_each(|why| output::err(&format!("proposal {turn}: {why}\n")));
            }
            _ => return,
        }
        self.bar.set_position(state.account.evaluations);
        let gain = state.best.and_then(|b| state.score(b)?.gain_over(state.score(0)?));
        let failed = state.judged.values().filter(|j| !j.passed()).count();
        let gain = gain.map_or_else(String::new, |g| format!("{:.2}x the start, ", g.ratio));
        self.bar.set_message(format!("best {gain}{failed} failed"));
        for step in state.improvements.iter().skip(self.told.max(1)) {
            if self.verbose {
                let change = &state.solutions[step.id as usize].change;
                output::err(&format!("#{} {:.3}x better: {change}\n", step.id, step.gain));
            }
        }
        self.told = state.improvements.len();
    }
}

/// The texts about a loop.
pub struct Outcomes<'a> {
    pub state: &'a State,
    pub record: &'a EvolveRecord,
}

impl Outcomes<'_> {
    pub fn terminal(&self) -> String {
        let r = self.record;
        let mut text = String::new();
        let verdicts: Vec<String> = r.verdicts.iter().map(|(word, n)| format!("{n} {word}")).collect();
        let _ = writeln!(text, "{} evaluations: {}", r.evaluations, verdicts.join(", "));
        if r.spent.calls > 0 {
            let refused = self.state.refusals.len();
            let _ = writeln!(
                text,
                "{} calls, {} tokens, {:.4} USD; {refused} answers or parts of them were no new candidate",
                r.spent.calls, r.spent.tokens, r.spent.usd
            );
        }
        for step in &self.state.improvements {
            let solution = &self.state.solutions[step.id as usize];
            if step.id > 0 {
                let _ = writeln!(text, "  {:>4} evaluations  {:.3}x  {}", step.evaluations, step.gain, solution.change);
            }
        }
        match &r.best {
            Some(best) => {
                let levers: Vec<String> = best.levers.iter().map(|(k, v)| format!("{k}={v}")).collect();
                let _ = writeln!(text, "best: {} with {}", best.candidate, levers.join(" "));
                if let (Some(gain), Some(e)) = (best.gain, &best.estimate) {
                    let _ = writeln!(
                        text,
                        "an estimate for {}, no time: {:.0} {}, {gain:.2}x better than the start ({})",
                        e.device, e.value, e.unit, e.model
                    );
                }
                let _ = writeln!(text, "passed on the PTX machine, not run on a GPU");
            }
            None => text.push_str("nothing passed\n"),
        }
        if let Some(reason) = &r.finished {
            let _ = writeln!(text, "ended: {reason}");
        }
        text
    }

    pub fn markdown(&self) -> String {
        let r = self.record;
        let mut text = format!(
            "# Evolution of {}\n\nTask {}, variant {}, seed {}; ranked by an estimate from the PTX machine's counters, which is no time.\n\n",
            self.state.solutions[0].candidate, r.task, r.variant, r.seed
        );
        text.push_str("| # | from | change | verdict | estimate | gain over the start |\n|---|---|---|---|---|---|\n");
        for solution in &self.state.solutions {
            let Some(one) = warpsmith_evolve::record::solution(self.state, solution.id) else { continue };
            let parents: Vec<String> = one.parents.iter().map(|p| format!("#{p}")).collect();
            let estimate = one.estimate.map_or_else(String::new, |e| format!("{:.0} {}", e.value, e.unit));
            let gain = one.gain.map_or_else(String::new, |g| format!("{g:.3}"));
            let verdict = serde_json::to_value(one.verdict).ok().and_then(|v| v.as_str().map(str::to_string));
            let best = if r.best.as_ref().is_some_and(|b| b.id == one.id) { " **best**" } else { "" };
            let _ = writeln!(
                text,
                "| {}{best} | {} | {} | {} | {estimate} | {gain} |",
                one.id,
                parents.join(" "),
                one.change.replace('|', "\\|"),
                verdict.unwrap_or_default()
            );
        }
        let _ = write!(text, "\n```\n{}```\n", self.terminal());
        text
    }
}
