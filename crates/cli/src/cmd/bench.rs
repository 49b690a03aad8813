//! `warpsmith bench`: gates 1 to 3 on a GPU of this machine, or with times that a file replays; and runs that were cut off, taken up again.

use super::check::{self, Asked};
use crate::args::{BackendArg, BenchArgs, Cli, Command, Common, GateArg};
use crate::artifacts::Artifacts;
use crate::catalog::Catalog;
use crate::error::CliError;
use crate::session::Session;
use crate::{interrupt, on, output, paths, progress};
use clap::Parser;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use warpsmith_builtin::canonical_name;
use warpsmith_eval::baseline;
use warpsmith_eval::bench::diagnose::Sanitize;
use warpsmith_eval::bench::peers::{FakePeers, NoPeers, Peers};
use warpsmith_eval::bench::python_peers::PythonPeers;
use warpsmith_eval::bench::sanitize::Sanitizer;
use warpsmith_eval::bench::timed::Resident;
use warpsmith_eval::bench::{
    self, BenchContext, BenchEvent, BenchRequest, Fake, FakeFile, Length, Method, Plan, TimedBackend,
};
use warpsmith_eval::pipeline::RunRequest;
use warpsmith_eval::worker::{GpuBackend, GpuOptions};
use warpsmith_eval::{Backend, CompileGate, Context, EvalError, Oracles, PtxMachine, Subject};
use warpsmith_spec::record::{FindingRecord, GateStatus, NotApplicable};
use warpsmith_spec::{Setting, target};
use warpsmith_store::RunDir;

/// Seconds that one request to the device may take.
const SECONDS: u64 = 30;
const MAX_FAKE_BYTES: u64 = 16 << 20;

/// The files named, or all built-in kernels of a task, or a run to finish.
pub fn bench(common: &Common, args: &BenchArgs) -> Result<i32, CliError> {
    if let Some(run) = &args.resume {
        return resume(common, run);
    }
    let mut catalog = Catalog::new()?;
    let asked = check::asked(&mut catalog, &args.check)?;
    go(common, &catalog, asked, args, None)
}

/// Seconds that the main job waits for a device to come up.
const DEVICE_SECONDS: u64 = 20;

/// The main job where there is a GPU: the ladder against its first level, in short. None: there is no GPU.
pub(super) fn ladder(common: &Common, catalog: &Catalog, asked: &Asked) -> Result<Option<i32>, CliError> {
    let options = on::gpu_options(common, common.fake_device)?;
    let start_seconds = if common.on.is_some() { options.start_seconds } else { DEVICE_SECONDS };
    let gpu = match GpuBackend::start(GpuOptions { start_seconds, ..options }) {
        Ok(gpu) => gpu,
        // What was asked for by name has to be there.
        Err(e) if common.on.is_some() || common.fake_device => return Err(EvalError::from(e).into()),
        Err(_) => return Ok(None),
    };
    let first = asked.entries.first().map(|e| e.typed.clone());
    let args = BenchArgs { baselines: Some(first.into_iter().collect()), time: 0.1, ..BenchArgs::default() };
    let timer = Timer::Gpu(Box::new(gpu));
    judge(common, catalog, asked, &args, timer, "ladder", None).map(Some)
}

/// The run's own command line, taken from its journal, for what it has not done.
fn resume(common: &Common, run: &Path) -> Result<i32, CliError> {
    let record = RunDir::load(run)?;
    let unfit = |why: &str| {
        CliError::usage("run-unreadable", format!("{}: {why}", run.display()))
            .hint("`bench --resume` takes the folder of a run of `warpsmith bench`")
    };
    let typed = Cli::try_parse_from(&record.run.command).map_err(|_| unfit("its command line is none of today's"))?;
    let Some(Command::Bench(mut args)) = typed.command else { return Err(unfit("it is no run of `bench`")) };
    args.seed_secret = record.run.seed_secret;
    let common = Common { json: common.json, verbose: common.verbose, ..typed.common };
    let mut catalog = Catalog::new()?;
    let asked = check::asked(&mut catalog, &args.check)?;
    go(&common, &catalog, asked, &args, Some(run))
}

/// Who times.
pub(crate) enum Timer {
    Gpu(Box<GpuBackend>),
    Fake(Box<Fake>),
}

impl Timer {
    pub(crate) fn timed(&self) -> &dyn TimedBackend {
        match self {
            Timer::Gpu(gpu) => &**gpu,
            Timer::Fake(fake) => &**fake,
        }
    }

    pub(crate) fn backend(&self) -> &dyn Backend {
        self.timed().as_backend()
    }

    /// Targets that it runs, the most specific first.
    pub(crate) fn targets(&self) -> Vec<String> {
        match self {
            Timer::Gpu(gpu) => runnable(gpu),
            Timer::Fake(fake) => fake.target().map(str::to_string).into_iter().collect(),
        }
    }
}

/// The device's own, then those whose PTX its driver compiles, newest first.
fn runnable(gpu: &GpuBackend) -> Vec<String> {
    let mut found = gpu.device().cubin_targets();
    let others = target::TARGETS.iter().rev().map(|t| t.name).filter(|t| gpu.runs(t));
    found.extend(others.map(str::to_string));
    let mut seen = BTreeSet::new();
    found.retain(|t| seen.insert(t.clone()));
    found
}

/// The backend of that file.
pub(crate) fn fake(common: &Common, file: &Path) -> Result<Fake, CliError> {
    let unreadable =
        |e: std::io::Error| CliError::usage("unknown-name", format!("cannot read {}: {e}", file.display())).file(file);
    if std::fs::metadata(file).map_err(unreadable)?.len() > MAX_FAKE_BYTES {
        return Err(CliError::usage("wrong-usage", format!("{} is too large", file.display())));
    }
    let text = std::fs::read_to_string(file).map_err(unreadable)?;
    let fake = Fake::new(FakeFile::parse(&file.display().to_string(), &text)?);
    if common.on.is_none() {
        return Ok(fake);
    }
    // The file's times, and values from a fake device on the other machine.
    let worker = GpuBackend::start(on::gpu_options(common, true)?).map_err(EvalError::from)?;
    Ok(fake.over(Box::new(worker)))
}

/// None: there is no device, and that is allowed.
fn timer(common: &Common, args: &BenchArgs) -> Result<Option<Timer>, CliError> {
    match &args.check.backend {
        BackendArg::Fake(file) => return Ok(Some(Timer::Fake(Box::new(fake(common, file)?)))),
        BackendArg::Cpu if common.on.is_some() => return Err(on::not_on_the_cpu()),
        BackendArg::Cpu if args.allow_no_gpu => return Ok(None),
        BackendArg::Cpu => {
            return Err(CliError::usage(
                "wrong-usage",
                "`bench` takes times, and the PTX machine on the CPU has no clock",
            )
            .hint("`warpsmith check` runs gates 1 and 2 on the CPU; --allow-no-gpu lets them decide here"));
        }
        BackendArg::Auto | BackendArg::Gpu => {}
    }
    match GpuBackend::start(on::gpu_options(common, common.fake_device)?) {
        Ok(gpu) => Ok(Some(Timer::Gpu(Box::new(gpu)))),
        Err(e) if e.code() == "no-device" && args.allow_no_gpu => Ok(None),
        Err(e) => {
            let no_device = e.code() == "no-device";
            let error = CliError::from(EvalError::from(e));
            Err(if no_device {
                error.hint(
                    "`nvidia-smi` has to work first; with --allow-no-gpu gates 1 and 2 on the CPU decide and no time is taken",
                )
            } else {
                error
            })
        }
    }
}

/// Peers on that device. PyTorch takes seconds to come up: it does so while gates 1 and 2 are run.
pub(crate) fn python_peers(gpu: &GpuBackend, python: Option<&Path>) -> PythonPeers {
    let mut options = baseline::Options::new(python, warpsmith_builtin::baseline_program());
    options.command.remote.clone_from(&gpu.options().command.remote);
    options.device_uuid = Some(gpu.device().uuid.clone());
    PythonPeers::start(options)
}

/// Finds who times; without a device, where that is allowed, gates 1 and 2 on the CPU decide.
fn go(
    common: &Common,
    catalog: &Catalog,
    mut asked: Asked,
    args: &BenchArgs,
    taken_up: Option<&Path>,
) -> Result<i32, CliError> {
    if args.check.gate.is_some_and(|g| g < GateArg::Performance) {
        return check::judge(common, catalog, &asked, "bench");
    }
    match timer(common, args)? {
        Some(timer) => judge(common, catalog, &asked, args, timer, "bench", taken_up),
        None => {
            asked.performance = GateStatus::Unavailable;
            let cpu = crate::args::CheckArgs { backend: BackendArg::Cpu, ..args.check.clone() };
            check::judge(common, catalog, &Asked { args: &cpu, ..asked }, "bench")
        }
    }
}

fn judge(
    common: &Common,
    catalog: &Catalog,
    asked: &Asked,
    args: &BenchArgs,
    timer: Timer,
    name: &str,
    taken_up: Option<&Path>,
) -> Result<i32, CliError> {
    if let Some(name) = &args.check.target {
        target::find(name)?;
    }
    let plan = plan(args)?;
    let workloads = check::workload_request(&args.check)?;
    let (subjects, excluded) = check::subjects(catalog, asked)?;
    let baselines = baselines(catalog, asked, args, &subjects)?;
    let artifacts = Artifacts::new(common)?;
    let compile = CompileGate::new(&artifacts, catalog.headers.clone());
    let oracles = Oracles::with_fresh_rows();
    let folder = taken_up.map_or_else(|| paths::run_dir(common, name), Path::to_path_buf);
    let passes = check::passes(&args.check, &folder);
    let machine = PtxMachine::new(0);
    let context = |backend| Context {
        compile: &compile,
        backend,
        oracles: &oracles,
        numerics: check::numerics(&args.check),
        passes: passes.as_ref(),
        compile_only: false,
        sanitizer: None,
    };
    let (gates, on_cpu) = (context(timer.backend()), context(&machine));
    let peers: Box<dyn Peers + '_> = match &timer {
        Timer::Fake(fake) => Box::new(FakePeers(fake)),
        Timer::Gpu(_) if baselines.peers.values().all(Vec::is_empty) => Box::new(NoPeers(String::new())),
        Timer::Gpu(gpu) => Box::new(python_peers(gpu, args.python.as_deref())),
    };
    let sanitizer = match &timer {
        Timer::Gpu(gpu) => Some(ForFaults(Sanitizer::new(gpu))),
        Timer::Fake(_) => None,
    };
    let ctx = BenchContext {
        gates: &gates,
        timed: timer.timed(),
        machine: matches!(timer, Timer::Gpu(_)).then_some(&on_cpu),
        peers: &*peers,
        sanitizer: sanitizer.as_ref().map(|s| s as &dyn Sanitize),
        plan: &plan,
        stability: args.stability,
        inputs: None,
    };

    let mut session = match taken_up {
        Some(run) => Session::resume(run)?,
        None => Session::begin(common, &folder, Some(timer.timed().device_name()), Some(plan.secret))?,
    };
    if let Timer::Gpu(gpu) = &timer {
        session.on_card(gpu.device());
    }
    let done = taken_up.map_or(Ok(BTreeSet::new()), |run| done(run, asked))?;
    if taken_up.is_none() {
        excluded.into_iter().try_for_each(|e| session.not_applicable(e))?;
    }
    let request = BenchRequest {
        gates: RunRequest { subjects: &subjects, workloads: &workloads, target: args.check.target.as_deref() },
        preferred: timer.targets(),
        own_baselines: &baselines.own,
        peers: &baselines.peers,
        done: &done,
    };
    if let Err(error) = run(common, &request, &ctx, asked, &mut session, taken_up.is_none()) {
        session.abandon_if_empty();
        return Err(error);
    }
    if let Some(example) = &asked.example {
        check::show(example, catalog, &on_cpu, &mut session)?;
    }
    let tasks: Vec<_> = catalog.tasks.iter().cloned().collect();
    session.finish(common, &tasks, &artifacts)
}

/// compute-sanitizer for faults that nothing else explains, or why it is not there.
struct ForFaults<'a>(Result<Sanitizer<'a>, String>);

impl Sanitize for ForFaults<'_> {
    fn sanitize(&self, resident: &Resident) -> Result<Vec<FindingRecord>, String> {
        self.0.as_ref().map_err(Clone::clone)?.sanitize(resident)
    }
}

fn plan(args: &BenchArgs) -> Result<Plan, CliError> {
    let mut methods = Vec::new();
    for word in &args.methods {
        let method = Method::ALL.into_iter().find(|m| m.word() == word.trim()).ok_or_else(|| {
            CliError::usage("unknown-name", format!("there is no method `{word}`"))
                .hint("methods: graph_cold, graph_warm, event, eager")
        })?;
        if !methods.contains(&method) {
            methods.push(method);
        }
    }
    if !(args.time.is_finite() && (0.0..=3600.0).contains(&args.time)) {
        return Err(CliError::usage("wrong-usage", "--time takes seconds from 0 to 3600"));
    }
    Ok(Plan {
        methods,
        length: args.iters.map_or(Length::Seconds(args.time), Length::Samples),
        warmup: args.warmup,
        secret: args.seed_secret.unwrap_or_else(bench::fresh_secret),
        seconds: SECONDS,
    })
}

/// What is compared with.
struct Baselines {
    own: Vec<(String, Subject, Setting)>,
    /// By task.
    peers: BTreeMap<String, Vec<String>>,
}

/// Peers have a provider in their name, or are known without one; all else is a kernel of our own.
fn baselines(
    catalog: &Catalog,
    asked: &Asked,
    args: &BenchArgs,
    subjects: &[(Subject, Vec<Setting>)],
) -> Result<Baselines, CliError> {
    let mut found = Baselines { own: Vec::new(), peers: BTreeMap::new() };
    let mut own: Vec<String> = Vec::new();
    for (subject, _) in subjects {
        let names = match &args.baselines {
            Some(names) if names.iter().any(|n| n == "none") => Vec::new(),
            Some(names) => names.iter().map(|n| n.trim().to_string()).filter(|n| !n.is_empty()).collect(),
            None => {
                let mut names = subject.task.baselines.clone();
                // A whole list of levels is a history: each is compared with where it began.
                names.extend(asked.entries.first().filter(|_| asked.from_list).map(|e| e.typed.clone()));
                names
            }
        };
        let (peers, kernels): (Vec<_>, Vec<_>) = names.into_iter().partition(|n| warpsmith_spec::record::is_peer(n));
        for name in &peers {
            baseline::Name::parse(name)?;
        }
        found.peers.insert(subject.task.name.clone(), peers);
        own.extend(kernels);
    }
    let mut seen = BTreeSet::new();
    own.retain(|n| seen.insert(n.clone()));
    for name in own {
        let entry = match asked.entries.iter().find(|e| e.typed == name) {
            Some(entry) => entry.clone(),
            None => catalog.find(&name)?,
        };
        let setting = entry.candidate.default_setting();
        found.own.push((name, check::subject(catalog, &entry)?, setting));
    }
    Ok(found)
}

/// Evaluations that the run has done, by their key. One in which the connection was lost is not.
fn done(run: &Path, asked: &Asked) -> Result<BTreeSet<String>, CliError> {
    let record = RunDir::load(run)?;
    let lost = |f: &warpsmith_spec::record::FindingRecord| f.code == "connection-lost";
    let results = record.results.iter().filter(|r| !r.finding.as_ref().is_some_and(lost));
    let named = |typed: &str| {
        asked.entries.iter().find(|e| e.typed == typed).map_or(typed.to_string(), |e| e.candidate.name.clone())
    };
    Ok(results.map(|r| bench::key_of_record(&named(&r.candidate), r)).collect())
}

/// Runs the gates, journaling each result as it comes.
fn run(
    common: &Common,
    request: &BenchRequest,
    ctx: &BenchContext,
    asked: &Asked,
    session: &mut Session,
    is_new: bool,
) -> Result<(), CliError> {
    let bar = progress::bar(0, common.json);
    let cancelled = interrupt::flag();
    let mut failure = None;
    let outcome = bench::run(request, ctx, &|| cancelled.is_set(), &mut |event| match event {
        BenchEvent::Planned { evaluations, done, .. } => {
            bar.set_length(evaluations as u64);
            if done > 0 && !common.json {
                output::err(&format!("{done} evaluations are done already, {evaluations} are left\n"));
            }
        }
        BenchEvent::Started { candidate, workload, target, .. } => {
            bar.set_message(format!("{} {} {} {target}", canonical_name(candidate), workload.shape, workload.mask()));
        }
        BenchEvent::Measuring { workload, candidates } => {
            bar.set_message(format!("timing {candidates} at {} {}", workload.shape, workload.mask()));
        }
        BenchEvent::Finished { result } => {
            bar.inc(1);
            if common.verbose && !common.json {
                output::err(&format!("{} {} {:?}\n", result.candidate, result.shape, result.verdict));
            }
            if let Err(e) = check::record(result, asked, session) {
                failure.get_or_insert(e);
            }
        }
    });
    bar.finish_and_clear();
    let end = outcome?;
    if let Some(e) = failure {
        return Err(e);
    }
    for entry in end.not_applicable.into_iter().filter(|_| is_new) {
        session.not_applicable(NotApplicable { candidate: check::named(&entry.candidate, asked), ..entry })?;
    }
    if end.cancelled {
        session.interrupted()?;
    }
    Ok(())
}
