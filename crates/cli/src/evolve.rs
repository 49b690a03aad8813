//! What a loop needs of the rest: the gates as its evaluator, the candidates behind its solutions, and the texts about it.

use crate::args::EvolveArgs;
use crate::artifacts::Artifacts;
use crate::catalog::{Catalog, Entry};
use crate::error::CliError;
use crate::paths;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Instant;
use warpsmith_builtin::canonical_name;
use warpsmith_eval::{CompileGate, Context, NumericsChoice, Oracles, Passes, PtxMachine, Subject, evaluate, profile};
use warpsmith_evolve::driver::Evaluator;
use warpsmith_evolve::estimate::{self, Launch};
use warpsmith_evolve::outcome::{Brief, MAX_FINDINGS, Move, Resources};
use warpsmith_evolve::request::ReplayLine;
use warpsmith_evolve::{Estimate, Judged, LoopRequest, Score, Solution, State, advice};
use warpsmith_spec::record::{AcceptRecord, ResultRecord, VerdictWord};
use warpsmith_spec::workload::{Workload, expand};
use warpsmith_spec::{Candidate, LeverValue, Setting, TaskSet, WorkloadRequest, target};
use warpsmith_store::{LoopDir, text_hash};

/// Bytes of a replay file at most.
const MAX_REPLAY_BYTES: u64 = 16 << 20;
/// Advice that is told of one solution.
const MAX_ADVICE: usize = 3;
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
    pub(crate) workloads: Vec<Workload>,
    /// As they were asked for.
    pub(crate) shapes: Vec<String>,
    pub(crate) target: &'static target::Target,
    pub(crate) device: &'static estimate::Device,
    pub(crate) workers: usize,
    /// The error of the environment that ended an evaluation.
    failure: Mutex<Option<CliError>>,
}

/// On what solutions are judged.
pub struct Judging<'a> {
    pub task: &'a str,
    /// As they were asked for; none: the task's default ones.
    pub shapes: &'a [String],
    pub target: &'a str,
    /// Whose rates the estimate takes.
    pub device: &'a str,
}

impl<'a> From<&'a LoopRequest> for Judging<'a> {
    fn from(request: &'a LoopRequest) -> Judging<'a> {
        let LoopRequest { task, shapes, target, device, .. } = request;
        Judging { task, shapes, target, device }
    }
}

/// Oracles of the loop's workloads.
pub struct Bench {
    pub(crate) oracles: Oracles,
    pub(crate) machine: PtxMachine,
    pub(crate) passes: Passes,
}

impl Default for Bench {
    fn default() -> Bench {
        Bench {
            oracles: Oracles::with_fresh_rows(),
            machine: PtxMachine::new(1).counting(),
            passes: Passes::new(paths::cache_dir().join("passes")),
        }
    }
}

impl Gates {
    pub fn new(
        catalog: &Catalog,
        request: &Judging,
        entries: Vec<Entry>,
        workers: Option<usize>,
        run: &Path,
    ) -> Result<Gates, CliError> {
        let task = catalog.tasks.find(request.task)?;
        let first = entries.first().ok_or_else(|| CliError::usage("unknown-name", "the loop has no candidate"))?;
        let asked = WorkloadRequest { shapes: request.shapes.to_vec(), ..WorkloadRequest::default() };
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
        Ok(Gates {
            subjects: RwLock::new(subjects),
            run: run.to_path_buf(),
            tasks: catalog.tasks.clone(),
            include_root,
            headers: catalog.headers.clone(),
            workloads,
            shapes: request.shapes.to_vec(),
            target: target::find(request.target)?,
            device: estimate::like(request.device),
            workers: workers.unwrap_or(cores).clamp(1, 256),
            failure: Mutex::default(),
        })
    }

    pub fn workloads(&self) -> &[Workload] {
        &self.workloads
    }

    /// The candidate behind a solution; one that was proposed since the loop began is read from its folder.
    pub(crate) fn subject(&self, solution: &Solution) -> Result<Arc<Subject>, CliError> {
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

    /// Keeps an error of the environment, for it ends the loop, and gives its words.
    pub(crate) fn kept<T>(&self, answer: Result<T, CliError>) -> Result<T, String> {
        answer.map_err(|error| {
            let text = error.record.message.clone();
            self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
            text
        })
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
    pub(crate) gates: &'a Gates,
    pub(crate) compile: CompileGate<'a>,
    pub(crate) bench: &'a Bench,
}

impl Evaluator for GateEvaluator<'_> {
    fn evaluate(&self, solution: &Solution) -> Result<Judged, String> {
        self.gates.kept(self.judge(solution))
    }

    fn code(&self, solution: &Solution) -> Option<String> {
        self.code_of(solution).ok().flatten()
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
        let mut judged = Judged::of(VerdictWord::Passed);
        let (mut figures, mut results) = (BTreeMap::new(), Vec::new());
        for workload in &gates.workloads {
            if subject.candidate.applicable(&setting, workload, gates.target).is_err() {
                continue;
            }
            let result = self.on_machine(&subject, &setting, workload)?;
            take(&mut judged, &result, workload, gates.target.name);
            if !judged.passed() {
                break;
            }
            if let Some(launches) = self.launches(&subject, &setting, workload, &result)?
                && let Some(cycles) = estimate::cycles(gates.device, &launches)
            {
                // The workload that costs most is the one to be told of.
                if figures.values().all(|f| *f < cycles) {
                    judged.insights = self.insights(workload, &launches, &result);
                    self.advise(&launches, &result, true, &mut judged);
                }
                figures.insert(shape_name(workload), cycles);
            }
            results.push(result);
        }
        if judged.passed() {
            judged.score = Estimate::new(gates.device.name, estimate::MODEL, figures).map(Score::Estimate);
        }
        judged.accept = accept(&subject, &results);
        judged.code_sha256 = self.code_of(solution)?;
        judged.seconds = began.elapsed().as_secs_f64();
        Ok(judged)
    }

    /// Gates 1 and 2 on the PTX machine.
    pub(crate) fn on_machine(
        &self,
        subject: &Subject,
        setting: &Setting,
        workload: &Workload,
    ) -> Result<ResultRecord, CliError> {
        let context = Context {
            compile: &self.compile,
            backend: &self.bench.machine,
            oracles: &self.bench.oracles,
            numerics: NumericsChoice::Faithful,
            passes: Some(&self.bench.passes),
            compile_only: false,
            sanitizer: None,
        };
        Ok(evaluate(&context, subject, setting, workload, self.gates.target)?)
    }

    /// Names all that executes, over all workloads: the PTX but for where its lines come from, and the launches. None where it does not
    /// compile. Two texts that differ in comments, names and dead code are one.
    pub(crate) fn code_of(&self, solution: &Solution) -> Result<Option<String>, CliError> {
        let gates = self.gates;
        let subject = gates.subject(solution)?;
        let setting = Setting { config: None, levers: solution.levers.clone() };
        let mut text = String::new();
        for workload in &gates.workloads {
            if subject.candidate.applicable(&setting, workload, gates.target).is_err() {
                continue;
            }
            let Ok(plan) = subject.candidate.resolve(&subject.task, &setting, workload, gates.target) else {
                return Ok(None);
            };
            let compiled = self.compile.judge(&subject, &setting, workload, Some(&plan))?;
            let Some(artifact) = compiled.artifacts.get(gates.target.name).filter(|_| compiled.passed()) else {
                return Ok(None);
            };
            let lines =
                artifact.ptx.lines().map(str::trim).filter(|l| {
                    !(l.is_empty() || l.starts_with("//") || l.starts_with(".loc") || l.starts_with(".file"))
                });
            // Debug sections stand at the end and hold line tables only.
            let lines: Vec<&str> = lines.take_while(|l| !l.starts_with(".section")).collect();
            let _ = write!(text, "{} {} ", shape_name(workload), text_hash(&lines.join("\n")));
            for step in &plan.launches {
                let (grid, block, cluster) = (step.grid, step.block, step.cluster);
                let _ =
                    write!(text, "{} {grid:?}{block:?}{cluster:?}{} {:?} ", step.entry, step.shared_bytes, step.args);
            }
            let _ = writeln!(text, "{:?}", plan.workspaces);
        }
        Ok(Some(text_hash(&text)))
    }

    /// The launches of one workload with what they counted. None where it was not executed on the machine.
    pub(crate) fn launches(
        &self,
        subject: &Subject,
        setting: &Setting,
        workload: &Workload,
        result: &ResultRecord,
    ) -> Result<Option<Vec<Launch>>, CliError> {
        let target = self.gates.target;
        let plan = subject.candidate.resolve(&subject.task, setting, workload, target);
        let (Ok(plan), Some(execution), Some(entries)) = (plan, &result.execution, result.compile.get(target.name))
        else {
            return Ok(None);
        };
        let oracle = self.bench.oracles.get(&subject.task, workload)?;
        let inputs = oracle.inputs.tensors.iter().map(|t| t.bytes.len() as u64).sum::<u64>();
        let tensor_bytes = inputs + oracle.inputs.outputs.iter().map(|o| o.bytes() as u64).sum::<u64>();
        let mut launches = Vec::new();
        for (step, done) in plan.launches.iter().zip(&execution.launches) {
            let Some(entry) = entries.get(&step.entry) else { return Ok(None) };
            launches.push(Launch {
                ctas: step.grid.iter().map(|n| u64::from(*n)).product(),
                threads_per_cta: step.block.iter().product(),
                registers: entry.registers,
                shared_bytes: u64::from(entry.shared_bytes) + step.shared_bytes,
                spill_bytes: u64::from(entry.spill_bytes),
                opcodes: done.opcodes.clone(),
                busiest_cta: done.busiest_cta,
                tensor_bytes: if launches.is_empty() { tensor_bytes } else { 0 },
                ..Launch::default()
            });
        }
        if let Some(t) = execution.traffic {
            estimate::spread_traffic(
                &mut launches,
                t.shared_wavefronts.saturating_sub(t.shared_ideal),
                t.global_sectors,
            );
        }
        Ok(Some(launches))
    }

    /// What the gates saw of a solution, as sentences.
    pub(crate) fn insights(&self, workload: &Workload, launches: &[Launch], result: &ResultRecord) -> Vec<String> {
        let shape = shape_name(workload);
        let mut lines = advice::of(self.gates.device, &shape, launches);
        let execution = result.execution.iter().flat_map(|e| &e.lines);
        lines.extend(advice::conflicts(&shape, execution));
        lines
    }
}

impl GateEvaluator<'_> {
    /// What the rules of gate 4 advise by the work that was executed. `is_typical`: the workload is what the search is about, and so is how
    /// many CTAs it has.
    pub(crate) fn advise(&self, launches: &[Launch], result: &ResultRecord, is_typical: bool, judged: &mut Judged) {
        let Some(execution) = &result.execution else { return };
        let fits = launches.iter().filter_map(|l| {
            let launch = profile::occupancy::Launch {
                threads: l.threads_per_cta,
                registers: l.registers,
                shared_bytes: l.shared_bytes,
                ctas: if is_typical { l.ctas } else { 0 },
                sms: self.gates.device.sm_count,
            };
            profile::occupancy::occupancy(&result.target, &launch)
        });
        let fullest = fits.min_by_key(|o| o.warps);
        let figures = profile::work::figures(result, execution, fullest.as_ref());
        let rules = profile::rules::Rules::built_in();
        judged.moves = rules
            .moves(&figures)
            .into_iter()
            .map(|m| Move { lever: m.lever, more: m.more, gain: m.gain, rule: m.rule })
            .collect();
        let advice = rules.advice(&figures).into_iter().take(MAX_ADVICE);
        judged.insights.extend(advice.map(|a| format!("{}: {} ({})", result.shape, a.title, a.why)));
    }
}

/// What a result adds to a judgement: resources, and where it failed what was found.
pub(crate) fn take(judged: &mut Judged, result: &ResultRecord, workload: &Workload, target: &str) {
    judged.resources = resources(result, target).or(judged.resources);
    if result.verdict != VerdictWord::Passed {
        judged.verdict = result.verdict;
        judged.findings = result
            .findings
            .iter()
            .take(MAX_FINDINGS)
            .map(|f| Brief { code: f.code.clone(), message: f.message.clone(), line: f.line })
            .collect();
        judged.wrong_at = wrong_at(result, &shape_name(workload));
    }
}

/// The task's criteria over the results of all workloads.
pub(crate) fn accept(subject: &Subject, results: &[ResultRecord]) -> Vec<AcceptRecord> {
    subject.task.accept.iter().map(|criterion| criterion.judge(results)).collect()
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
pub(crate) fn shape_name(workload: &Workload) -> String {
    if workload.causal { format!("{} causal", workload.shape) } else { workload.shape.clone() }
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
