//! `warpsmith evolve`: a loop begun, gone on with or worked through again; told while it runs, and left with its record.

use super::check;
use crate::args::{AgainstArg, Common, EvolveArgs, StartArg};
use crate::artifacts::Artifacts;
use crate::catalog::{Catalog, Entry};
use crate::error::CliError;
use crate::evolve::{Bench, Gates};
use crate::evolve_text::{Observed, Outcomes};
use crate::evolve_timed::{self, Compared, TimedEvaluator, Timing};
use crate::{interrupt, output, paths, progress, proposer, session};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Instant;
use warpsmith_evolve::driver::{Asker, Driver, DriverError, Ended, Evaluator, Journal};
use warpsmith_evolve::lessons::Lessons;
use warpsmith_evolve::proposer::outside::{Outside, Speaker};
use warpsmith_evolve::request::{Against, Rules};
use warpsmith_evolve::rerun::{Recorded, differences};
use warpsmith_evolve::solution::{Levers, Operator};
use warpsmith_evolve::{
    Budget, Event, EvolveRecord, LoopRequest, ProposerKind, Solution, Space, State, Variant, estimate, record,
};
use warpsmith_spec::record::{Environment, is_peer};
use warpsmith_spec::task::Task;
use warpsmith_spec::{Candidate, LeverRequest};
use warpsmith_store::{LoopDir, text_hash};

/// Where no file is named: the ladder's kernel with the largest lever space.
const DEFAULT_KERNEL: &str = "level_07";
const DEFAULT_TASK: &str = "fp8_sdpa";
/// Whose rates the estimate takes where nothing is said.
const DEFAULT_ESTIMATE: &str = "L4";
/// The draws that choose a start by lot.
const START_STREAM: u64 = 0x5743;

pub fn evolve(common: &Common, args: &EvolveArgs) -> Result<i32, CliError> {
    if let Some(record) = &args.correlate {
        return super::correlate::correlate(common, args, record);
    }
    if let Some(record) = &args.rehearse {
        return super::correlate::rehearse(common, record);
    }
    match (&args.resume, &args.rerun) {
        (Some(run), _) => resume(common, run, args),
        (None, Some(run)) => rerun(common, run),
        (None, None) => begin(common, args),
    }
}

/// A loop from its beginning.
fn begin(common: &Common, args: &EvolveArgs) -> Result<i32, CliError> {
    let mut catalog = Catalog::new()?;
    let task = args.task.as_deref().map(|t| catalog.task_named(t)).transpose()?;
    let entry = start_candidate(&catalog, args, task.as_deref())?;
    let timing = Timing::of(common, args)?;
    let (request, start) = request(&catalog, args, &entry, timing.as_ref())?;
    let path = paths::run_dir(common, "evolve");
    let state = State::new(request.clone(), start.clone());
    let mut entries = vec![entry];
    // A replay's files are kept too: the loop depends on nothing that may change.
    if let ProposerKind::Replay { lines } = &request.proposer {
        for line in lines {
            entries.push(catalog.find(&line.candidate)?);
        }
    }
    let mut sources: Vec<String> =
        entries.iter().map(|e| String::from_utf8_lossy(e.candidate.source.as_bytes()).into_owned()).collect();
    sources.extend(timing.as_ref().and_then(|t| t.file.clone()));
    let gates = Gates::new(&catalog, &(&request).into(), entries, args.workers, &path)?;
    // A key that is missing is told before anything is made.
    let speaker = proposer::speaker(&request, args.outside.key_file.as_deref())?;
    let first = Event::Started { request: Box::new(request), start: Box::new(start) };
    let texts: Vec<&str> = sources.iter().map(String::as_str).collect();
    let folder = LoopDir::create(&path, &first, &texts)?;
    if common.out.is_none() {
        folder.mark_latest();
    }
    let seats = Seats { timing: timing.as_ref(), speaker, python: args.python.clone() };
    drive(common, folder, state, &gates, &catalog, seats)
}

/// The candidate that the loop begins with, and whether it fits the task.
fn start_candidate(catalog: &Catalog, args: &EvolveArgs, task: Option<&str>) -> Result<Entry, CliError> {
    let wanted = task.unwrap_or(DEFAULT_TASK);
    let entry = match &args.file {
        Some(file) => catalog.find(file)?,
        None if wanted == DEFAULT_TASK => catalog.find(DEFAULT_KERNEL)?,
        None => {
            let mut all = catalog.builtins(wanted)?;
            all.sort_by_key(|e| std::cmp::Reverse(e.candidate.levers.len()));
            all.into_iter().next().ok_or_else(|| {
                CliError::usage("unknown-name", format!("no built-in kernel computes {wanted}"))
                    .hint("name a file: `warpsmith evolve FILE.cu`")
            })?
        }
    };
    match task {
        Some(task) if entry.candidate.task != task => Err(CliError::usage(
            "unknown-name",
            format!("{} is a candidate for {}, not for {task}", entry.typed, entry.candidate.task),
        )
        .hint("leave --task out, or name another file")),
        _ => Ok(entry),
    }
}

fn request(
    catalog: &Catalog,
    args: &EvolveArgs,
    entry: &Entry,
    timing: Option<&Timing>,
) -> Result<(LoopRequest, Solution), CliError> {
    let candidate = &entry.candidate;
    let levers = LeverRequest { set: args.set.clone(), config: args.config.clone(), sweep: true };
    let settings = candidate.settings(&levers)?;
    let space = Space { settings: settings.into_iter().map(|s| s.levers).collect() };
    let target = target(args, candidate, timing)?;
    let named = args.estimate_for.as_deref().unwrap_or(DEFAULT_ESTIMATE);
    let device = estimate::device(named).ok_or_else(|| {
        let names: Vec<&str> = estimate::DEVICES.iter().map(|d| d.name).collect();
        CliError::usage("unknown-name", format!("there is no model of a device called {named:?}"))
            .hint(format!("there are models of {}", names.join(", ")))
    })?;
    if !(args.elite_min_speedup.is_finite() && args.elite_min_speedup >= 0.0) {
        return Err(CliError::usage("wrong-usage", "--elite-min-speedup takes a number of at least 0"));
    }
    let variant = args.variant.variant();
    let source = String::from_utf8_lossy(candidate.source.as_bytes()).into_owned();
    let lines = || crate::evolve::replay_lines(catalog, entry, args);
    let request = LoopRequest {
        task: candidate.task.clone(),
        task_text: catalog.own_task.clone(),
        ceilings: timing.and_then(|t| super::doctor_gpu::measured(&t.device_name())),
        shapes: args.shapes.clone(),
        target,
        backend: timing.map_or("ptx_machine", Timing::word).into(),
        device: timing.map_or_else(|| device.name.to_string(), Timing::device_name),
        variant,
        population: args.population.unwrap_or_else(|| variant.population()),
        proposer: proposer::kind(args, &lines)?,
        rules: Rules {
            elite_min_speedup: args.elite_min_speedup,
            elite_against: match args.elite_against {
                AgainstArg::Baseline => Against::Baseline,
                AgainstArg::Parent => Against::Parent,
            },
            ..Rules::default()
        },
        budget: args.budget.parse::<Budget>().map_err(|e| CliError::usage("wrong-usage", e.to_string()))?,
        fixes: args.outside.fixes,
        seed: args.seed,
        batch: args.batch.unwrap_or_else(|| timing.map_or(2, Timing::devices).max(2)).clamp(1, 64),
        space,
        lessons: proposer::lessons(args)?,
        prompts: proposer::prompts(args)?,
        until_accepted: args.until_accepted,
        compared: compared(catalog, args, catalog.tasks.find(&candidate.task)?)?,
        times_sha256: timing.and_then(|t| t.file.as_deref()).map(text_hash),
    };
    let start = Solution {
        id: 0,
        candidate: entry.typed.clone(),
        source_sha256: text_hash(&source),
        levers: start_levers(args, entry, &request)?,
        parents: Vec::new(),
        operator: Operator::Start,
        change: "the start".into(),
        rationale: None,
    };
    Ok((request, start))
}

/// The target that is judged: what was asked for, the device's own, or the candidate's first.
fn target(args: &EvolveArgs, candidate: &Candidate, timing: Option<&Timing>) -> Result<String, CliError> {
    let runs = timing.map(Timing::targets).unwrap_or_default();
    if let Some(target) = &args.target {
        return Ok(warpsmith_spec::target::find(target)?.name.to_string());
    }
    if runs.is_empty() {
        return Ok(candidate.targets.first().cloned().unwrap_or_default());
    }
    runs.into_iter().find(|t| candidate.targets.contains(t)).ok_or_else(|| {
        CliError::usage(
            "wrong-usage",
            format!("the device does not run {}'s targets ({})", candidate.name, candidate.targets.join(", ")),
        )
        .hint("add the device's target to the file's `targets`, or rank by the estimate: --backend cpu")
    })
}

/// The default setting, or one drawn by the seed.
fn start_levers(args: &EvolveArgs, entry: &Entry, request: &LoopRequest) -> Result<Levers, CliError> {
    let settings = &request.space.settings;
    if args.start == StartArg::Random && !settings.is_empty() {
        let lots = warpsmith_num::philox::Philox4x32::new(args.seed, START_STREAM).permutation(settings.len());
        return Ok(settings[lots[0]].clone());
    }
    let mut set = args.set.clone();
    if let StartArg::At(values) = &args.start {
        set.extend(values.iter().cloned());
    }
    let levers = LeverRequest { set, config: args.config.clone(), sweep: false };
    Ok(entry.candidate.settings(&levers)?.into_iter().next().unwrap_or_default().levers)
}

/// A loop that was ended before its time.
fn resume(common: &Common, run: &Path, args: &EvolveArgs) -> Result<i32, CliError> {
    if common.out.is_some() {
        return Err(CliError::usage("wrong-usage", "a loop is gone on with in its own folder").hint("leave --out away"));
    }
    let (folder, events) = LoopDir::open::<Event>(run)?;
    let state = State::fold(&events).map_err(|e| unreadable(run, &e.to_string()))?;
    let catalog = catalog_of(&state.request)?;
    let entries = crate::evolve::entries(&catalog, run, &state)?;
    let gates = Gates::new(&catalog, &(&state.request).into(), entries, args.workers, run)?;
    let text = state.request.times_sha256.as_ref().map(|sha| LoopDir::text(run, sha)).transpose()?;
    let timing = if state.finished.is_some() { None } else { Timing::again(common, args, &state.request, text)? };
    let speaker = proposer::speaker(&state.request, args.outside.key_file.as_deref())?;
    let seats = Seats { timing: timing.as_ref(), speaker, python: args.python.clone() };
    drive(common, folder, state, &gates, &catalog, seats)
}

/// What there is, with the loop's own task.
fn catalog_of(request: &LoopRequest) -> Result<Catalog, CliError> {
    let mut catalog = Catalog::new()?;
    if let Some(text) = &request.task_text {
        catalog.take_task(&request.task, text)?;
    }
    Ok(catalog)
}

/// Who is there besides the loop.
struct Seats<'a> {
    timing: Option<&'a Timing>,
    speaker: Option<Speaker>,
    python: Option<PathBuf>,
}

fn drive(
    common: &Common,
    folder: LoopDir,
    state: State,
    gates: &Gates,
    catalog: &Catalog,
    seats: Seats,
) -> Result<i32, CliError> {
    let Seats { timing, speaker, python } = seats;
    let path = folder.path().to_path_buf();
    let mut outside =
        speaker.map(|s| proposer::outside(catalog, &state.request, gates.workloads(), s, &path)).transpose()?;
    let asker = outside.as_mut().map(|o| o as &mut dyn Asker);
    let total = state.request.budget.evaluations;
    let bar = progress::bar(total, common.json);
    bar.set_position(state.account.evaluations);
    let cancelled = interrupt::flag();
    let mut journal = Kept { folder, last: Instant::now() };
    let (artifacts, bench) = (Artifacts::new(common)?, Bench::default());
    let on_machine = gates.evaluator(&artifacts, &bench);
    let timed;
    let evaluator: &dyn Evaluator = match timing {
        None => &on_machine,
        Some(timing) => {
            timed = TimedEvaluator {
                compared: criteria(catalog, &state, python)?,
                known: Mutex::default(),
                gates: gates.evaluator(&artifacts, &bench),
                timing,
            };
            &timed
        }
    };
    let mut observed = Observed::new(&bar, common);
    let mut observe = |event: &Event, state: &State| observed.told(event, state);
    let mut driver = Driver { state, journal: &mut journal, evaluator, asker, observe: &mut observe };
    let ended = driver.run(&|| cancelled.is_set());
    let state = driver.state;
    bar.finish_and_clear();
    let ended = ended.map_err(|e| match gates.outcome() {
        Some(error) => error,
        None => driver_error(&e),
    })?;
    finish(common, &journal.folder, &state, &artifacts, ended)
}

/// What the task's criteria compare with.
fn criteria(catalog: &Catalog, state: &State, python: Option<PathBuf>) -> Result<Compared, CliError> {
    let (peers, own): (Vec<_>, Vec<_>) = state.request.compared.iter().cloned().partition(|n| is_peer(n));
    let mut compared = Compared { peers, python, ..Compared::default() };
    for name in own {
        let entry = catalog.find(&name)?;
        let setting = entry.candidate.default_setting();
        compared.own.push((name, check::subject(catalog, &entry)?, setting));
    }
    Ok(compared)
}

/// What is timed for `--until-accepted`, by name, once it is known that it can be found.
fn compared(catalog: &Catalog, args: &EvolveArgs, task: &Task) -> Result<Vec<String>, CliError> {
    if !args.until_accepted {
        return Ok(Vec::new());
    }
    if task.accept.is_empty() {
        return Err(CliError::usage("wrong-usage", format!("the task {} has no [accept] criteria", task.name))
            .hint("leave --until-accepted out, or write them in the task's task.toml"));
    }
    let names = evolve_timed::named(task);
    for name in &names {
        if is_peer(name) {
            warpsmith_eval::baseline::Name::parse(name)?;
        } else {
            catalog.find(name)?;
        }
    }
    Ok(names)
}

/// A driver's own failure. What the proposer could not be asked for is its environment's; the rest is ours.
fn driver_error(error: &DriverError) -> CliError {
    match error {
        DriverError::Asker(why) => CliError::environment("proposer-unreachable", why.clone())
            .hint("the loop can be gone on with: `warpsmith evolve --resume RUN`"),
        error => CliError::environment("tool-defect", error.to_string()),
    }
}

/// Writes the record and says how it went.
fn finish(
    common: &Common,
    folder: &LoopDir,
    state: &State,
    artifacts: &Artifacts,
    ended: Ended,
) -> Result<i32, CliError> {
    let mut environment: Environment = session::environment(None);
    environment.toolkit = artifacts.toolkit_ids();
    let mut record = record(state, session::info(folder.path()), environment);
    proposer::name_files(folder, state, &mut record)?;
    let lessons = Lessons::of(state, &record.run.name);
    let lessons =
        serde_json::to_string_pretty(&lessons).map_err(|e| CliError::environment("tool-defect", e.to_string()))?;
    folder.write(Path::new("lessons.json"), (lessons + "\n").as_bytes())?;
    let outcomes = Outcomes { state, record: &record };
    folder.write(Path::new("report.md"), outcomes.markdown().as_bytes())?;
    folder.write(Path::new("report.html"), crate::evolve_page::page(state, &record).as_bytes())?;
    let text = text(&record)?;
    folder.write(Path::new("summary.json"), text.as_bytes())?;
    if common.json {
        output::out(&text);
    } else {
        output::out(&outcomes.terminal());
        output::out(&format!("run: {}\n", folder.path().display()));
    }
    if ended == Ended::Cancelled {
        output::err(&format!("go on with: warpsmith evolve --resume {}\n", folder.path().display()));
        return Ok(interrupt::EXIT);
    }
    Ok(exit_code(&record))
}

/// Writes a loop's reports again from its folder, into `to`; None: it is no loop's. Its summary is made again where it is missing.
pub fn report(run: &Path, to: &Path) -> Option<Result<(), CliError>> {
    let events = LoopDir::read::<Event>(run).ok()?;
    let state = State::fold(&events).ok()?;
    Some(write_again(run, to, &state))
}

fn write_again(run: &Path, to: &Path, state: &State) -> Result<(), CliError> {
    // What the summary says of the run itself is kept; all else is the fold of the journal.
    let kept = std::fs::read(run.join("summary.json")).ok();
    let kept: Option<serde_json::Value> = kept.and_then(|text| serde_json::from_slice(&text).ok());
    let part = |name: &str| kept.as_ref().and_then(|k| k.get(name)).cloned();
    let info = part("run").and_then(|v| serde_json::from_value(v).ok()).unwrap_or_else(|| session::info(run));
    let environment =
        part("environment").and_then(|v| serde_json::from_value(v).ok()).unwrap_or_else(|| session::environment(None));
    let record = record(state, info, environment);
    let put = |name: &str, text: String| crate::reports::put(&to.join(name), text.as_bytes());
    put("report.md", Outcomes { state, record: &record }.markdown())?;
    put("report.html", crate::evolve_page::page(state, &record))?;
    if kept.is_none() {
        put("summary.json", text(&record)?)?;
    }
    Ok(())
}

/// 0 when the best passed.
fn exit_code(record: &EvolveRecord) -> i32 {
    let passed = |verdict| verdict == warpsmith_spec::record::VerdictWord::Passed;
    i32::from(!record.best.as_ref().is_some_and(|b| passed(b.verdict)))
}

/// Works a journal through again, without GPU, model or evaluation: prompts are made and recorded answers read anew. Says whether it arrives at the same state.
fn rerun(common: &Common, run: &Path) -> Result<i32, CliError> {
    let events = LoopDir::read::<Event>(run)?;
    let state = State::fold(&events).map_err(|e| unreadable(run, &e.to_string()))?;
    let catalog = catalog_of(&state.request)?;
    let outside = again(&catalog, &state, run)?;
    let text_of = |sha: &str| LoopDir::text(run, sha).map_err(|e| e.to_string());
    let recorded = outside.as_ref().map(|asker| Recorded { asker, text: &text_of, hash: text_hash });
    let differing = differences(&events, recorded.as_ref());
    let record = record(&state, session::info(run), session::environment(None));
    let members: Vec<String> = state.archive.members().iter().map(|m| format!("#{} {}", m.id, m.value)).collect();
    if common.json {
        output::out(&text(&record)?);
    } else {
        output::out(&format!("{} events; the archive is {}\n", events.len(), members.join(", ")));
    }
    match differing {
        None => Ok(0),
        Some(why) => Err(CliError::environment("rerun-differs", format!("{}: {why}", run.display()))
            .hint("was the journal made by another version of warpsmith?")),
    }
}

/// What made the prompts and read the answers, where a proposer outside was asked.
fn again<'a>(catalog: &'a Catalog, state: &State, run: &Path) -> Result<Option<Outside<'a>>, CliError> {
    if !state.request.proposer.is_external() {
        return Ok(None);
    }
    let entries = crate::evolve::entries(catalog, run, state)?;
    let gates = Gates::new(catalog, &(&state.request).into(), entries, None, run)?;
    proposer::outside(catalog, &state.request, gates.workloads(), Speaker::Nobody, run).map(Some)
}

fn text(record: &EvolveRecord) -> Result<String, CliError> {
    let text = serde_json::to_string_pretty(record).map_err(|e| CliError::environment("tool-defect", e.to_string()))?;
    Ok(text + "\n")
}

fn unreadable(run: &Path, why: &str) -> CliError {
    CliError::usage("run-unreadable", format!("{}: {why}", run.display()))
        .hint("is it the folder of a `warpsmith evolve`?")
}

/// The loop's folder as its journal.
struct Kept {
    folder: LoopDir,
    /// When the wall time was asked for last.
    last: Instant,
}

impl Journal for Kept {
    fn push(&mut self, event: &Event) -> Result<(), String> {
        self.folder.push(event).map_err(|e| e.to_string())
    }

    fn keep(&mut self, text: &str) -> Result<String, String> {
        self.folder.keep(text).map_err(|e| e.to_string())
    }

    fn elapsed(&mut self) -> f64 {
        std::mem::replace(&mut self.last, Instant::now()).elapsed().as_secs_f64()
    }
}

impl crate::args::VariantArg {
    fn variant(self) -> Variant {
        match self {
            crate::args::VariantArg::Free => Variant::Free,
            crate::args::VariantArg::Insight => Variant::Insight,
            crate::args::VariantArg::Full => Variant::Full,
        }
    }
}
