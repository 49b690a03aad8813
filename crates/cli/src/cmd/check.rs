//! `warpsmith` (the main job) and `warpsmith check`: what was asked, resolved, taken through gates 1 and 2, and told.

use crate::args::{BackendArg, CheckArgs, Common, GateArg, NumericsArg};
use crate::artifacts::Artifacts;
use crate::catalog::{Catalog, Entry};
use crate::error::CliError;
use crate::session::Session;
use crate::{interrupt, on, output, paths, progress};
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use warpsmith_builtin::canonical_name;
use warpsmith_eval::backend::Job;
use warpsmith_eval::bench::sanitize::Sanitizer;
use warpsmith_eval::evaluate::SanitizeJob;
use warpsmith_eval::pipeline::{self, Event, RunRequest};
use warpsmith_eval::suppress::Suppressing;
use warpsmith_eval::worker::{DeviceInfo, GpuBackend};
use warpsmith_eval::{Backend, CompileGate, Context, NumericsChoice, Oracles, Passes, PtxMachine, Subject};
use warpsmith_spec::record::{CheckOfRecord, FindingRecord, GateStatus, NotApplicable, ResultRecord, VerdictWord};
use warpsmith_spec::{LeverRequest, Setting, SpecCode, SpecError, WorkloadRequest, target};

/// The kernel that the main job shows failing.
const EXAMPLE: &str = "uninit_scores";
const DEFAULT_TASK: &str = "fp8_sdpa";

/// The built-in ladder at its default shapes, and the example that must fail.
pub fn main_job(common: &Common) -> Result<i32, CliError> {
    let catalog = Catalog::new()?;
    let entries = catalog.builtins(DEFAULT_TASK)?;
    let example = catalog.fault(EXAMPLE)?;
    let args = CheckArgs::default();
    let asked = Asked { entries, example, from_list: true, args: &args, performance: GateStatus::NotRun };
    // Where there is a GPU its gate 2 is compared with the machine's, and gate 3 follows, in short.
    match super::bench::ladder(common, &catalog, &asked)? {
        Some(code) => Ok(code),
        None => judge(common, &catalog, &asked, "ladder"),
    }
}

/// The files named, or all built-in kernels of a task.
pub fn check(common: &Common, args: &CheckArgs) -> Result<i32, CliError> {
    let mut catalog = Catalog::new()?;
    let asked = asked(&mut catalog, args)?;
    judge(common, &catalog, &asked, "check")
}

/// What the command line names.
pub(super) fn asked<'a>(catalog: &mut Catalog, args: &'a CheckArgs) -> Result<Asked<'a>, CliError> {
    let task = args.task.as_deref().map(|t| catalog.task_named(t)).transpose()?;
    let from_list = args.files.is_empty();
    let entries = if from_list {
        catalog.builtins(task.as_deref().unwrap_or(DEFAULT_TASK))?
    } else {
        args.files.iter().map(|f| catalog.find(f)).collect::<Result<_, _>>()?
    };
    if let Some(task) = &task
        && let Some(other) = entries.iter().find(|e| e.candidate.task != *task)
    {
        let message = format!("{} is a candidate for {}, not for {task}", other.typed, other.candidate.task);
        return Err(CliError::usage("unknown-name", message).hint("leave --task out, or name other files"));
    }
    if entries.is_empty() {
        let name = task.as_deref().unwrap_or(DEFAULT_TASK);
        return Err(CliError::usage("unknown-name", format!("no built-in kernel computes {name}"))
            .hint("name a file: `warpsmith check FILE.cu`"));
    }
    Ok(Asked { entries, example: None, from_list, args, performance: GateStatus::NotRun })
}

/// What is to be judged.
pub(super) struct Asked<'a> {
    pub entries: Vec<Entry>,
    pub example: Option<Entry>,
    /// They come from a task's list: what the machine cannot execute is then not applicable, rather than a failure.
    pub from_list: bool,
    pub args: &'a CheckArgs,
    /// What gate 3 is called, as it is not run here.
    pub performance: GateStatus,
}

pub(super) fn judge(common: &Common, catalog: &Catalog, asked: &Asked, name: &str) -> Result<i32, CliError> {
    if let Some(name) = &asked.args.target {
        target::find(name)?;
    }
    let workloads = workload_request(asked.args)?;
    let (subjects, excluded) = subjects(catalog, asked)?;
    let artifacts = Artifacts::new(common)?;
    let compile = CompileGate::new(&artifacts, catalog.headers.clone());
    let (backend, device) = backend(common, asked)?;
    let oracles = Oracles::with_fresh_rows();
    let folder = paths::run_dir(common, name);
    let passes = passes(asked.args, &folder);
    let numerics = numerics(asked.args);
    let compile_only = asked.args.gate == Some(GateArg::Compile);
    let sanitized = if asked.args.sanitize { Some(gpu(common)?) } else { None };
    let sanitizer = sanitized.as_ref().map(Tools::new);
    let context = Context {
        compile: &compile,
        backend: &*backend,
        oracles: &oracles,
        numerics,
        passes: passes.as_ref(),
        compile_only,
        sanitizer: sanitizer.as_ref().map(|s| s as &dyn SanitizeJob),
    };
    let logs = || sanitizer.as_ref().and_then(|s| s.0.as_ref().ok()).map(Sanitizer::take_logs).unwrap_or_default();
    let own = device.as_ref().and_then(|d| own_target(d, &subjects));
    let target = asked.args.target.as_deref().or(own.as_deref());
    let request = RunRequest { subjects: &subjects, workloads: &workloads, target };

    let mut session = Session::begin(common, &folder, device.as_ref().map(|d| d.name.clone()), None)?;
    device.iter().for_each(|d| session.on_card(d));
    excluded.into_iter().try_for_each(|e| session.not_applicable(e))?;
    let run = run(common, &request, &context, asked, &mut session, &logs);
    // What was judged before an error is kept; the folder of a run that judged nothing is not.
    if let Err(error) = run {
        session.abandon_if_empty();
        return Err(error);
    }
    if let Some(example) = &asked.example {
        show(example, catalog, &context, &mut session)?;
    }
    let tasks: Vec<_> = catalog.tasks.iter().cloned().collect();
    session.finish(common, &tasks, &artifacts)
}

/// The GPU of this machine, or of the one that `--on` leads to, or what to do about it.
fn gpu(common: &Common) -> Result<GpuBackend, CliError> {
    let options = on::gpu_options(common, common.fake_device)?;
    Ok(GpuBackend::start(options).map_err(warpsmith_eval::EvalError::from)?)
}

/// compute-sanitizer's tools as they were asked for; where they are missing, every result says so.
struct Tools<'a>(Result<Sanitizer<'a>, String>);

impl<'a> Tools<'a> {
    fn new(gpu: &'a GpuBackend) -> Tools<'a> {
        Tools(Sanitizer::new(gpu))
    }
}

impl SanitizeJob for Tools<'_> {
    fn sanitize_job(&self, job: &Job) -> Result<Vec<FindingRecord>, String> {
        self.0.as_ref().map_err(Clone::clone)?.sanitize_job(job)
    }
}

pub(super) fn numerics(args: &CheckArgs) -> NumericsChoice {
    match args.numerics {
        NumericsArg::Faithful => NumericsChoice::Faithful,
        NumericsArg::Fast => NumericsChoice::Fast,
    }
}

/// Passes earned before on this machine, and the run in `folder` to remember those of today by.
pub(super) fn passes(args: &CheckArgs, folder: &Path) -> Option<Passes> {
    let run = folder.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
    let earned = CheckOfRecord { run, at: warpsmith_store::timestamp_now() };
    (!args.fresh).then(|| Passes::new(paths::cache_dir().join("passes")).earned_by(earned))
}

/// The PTX machine, which finds more than a GPU shows, unless a GPU is asked for.
fn backend(common: &Common, asked: &Asked) -> Result<(Box<dyn Backend>, Option<DeviceInfo>), CliError> {
    let elsewhere = common.on.is_some() || common.fake_device;
    let rows = super::exec::suppressions(asked.args.suppressions.as_deref())?;
    let (backend, device) = unsuppressed(common, &asked.args.backend, elsewhere)?;
    Ok(if rows.rows.is_empty() { (backend, device) } else { (Box::new(Suppressing::new(backend, rows)), device) })
}

fn unsuppressed(
    common: &Common,
    backend: &BackendArg,
    elsewhere: bool,
) -> Result<(Box<dyn Backend>, Option<DeviceInfo>), CliError> {
    match backend {
        BackendArg::Fake(file) => return Ok((Box::new(super::bench::fake(common, file)?), None)),
        BackendArg::Cpu if common.on.is_some() => return Err(on::not_on_the_cpu()),
        BackendArg::Auto | BackendArg::Cpu if !elsewhere => return Ok((Box::new(PtxMachine::new(0)), None)),
        _ => {}
    }
    let backend = gpu(common)?;
    let device = backend.device().clone();
    Ok((Box::new(backend), Some(device)))
}

/// The most specific of the device's own targets that all candidates are written for.
fn own_target(device: &DeviceInfo, subjects: &[(Subject, Vec<Setting>)]) -> Option<String> {
    device.cubin_targets().into_iter().find(|t| subjects.iter().all(|(s, _)| s.candidate.targets.contains(t)))
}

/// Runs the gates, journaling each result as it comes.
fn run(
    common: &Common,
    request: &RunRequest,
    context: &Context,
    asked: &Asked,
    session: &mut Session,
    logs: &dyn Fn() -> Vec<(String, String)>,
) -> Result<(), CliError> {
    let bar = progress::bar(0, common.json);
    let cancelled = interrupt::flag();
    let mut failure = None;
    let outcome = pipeline::run(request, context, &|| cancelled.is_set(), &mut |event| match event {
        Event::Planned { evaluations, .. } => bar.set_length(evaluations as u64),
        Event::Reference { workload } => bar.set_message(format!("reference for {}", workload.shape)),
        Event::Started { candidate, workload, target, .. } => {
            let mask = if workload.causal { "causal" } else { "none" };
            bar.set_message(format!("{} {} {mask} {target}", canonical_name(candidate), workload.shape));
        }
        Event::Finished { result, .. } => {
            bar.inc(1);
            if common.verbose && !common.json {
                output::err(&format!("{} {} {:?}\n", result.candidate, result.shape, result.verdict));
            }
            let kept = session.sanitizer_logs(&named(&result.candidate, asked), &logs());
            if let Err(e) = kept.and_then(|()| record(result, asked, session)) {
                failure.get_or_insert(e);
            }
        }
    });
    bar.finish_and_clear();
    let results = outcome?;
    if let Some(e) = failure {
        return Err(e);
    }
    for entry in results.not_applicable {
        session.not_applicable(NotApplicable { candidate: named(&entry.candidate, asked), ..entry })?;
    }
    if results.cancelled {
        session.interrupted()?;
    }
    Ok(())
}

pub(super) fn record(result: &ResultRecord, asked: &Asked, session: &mut Session) -> Result<(), CliError> {
    let mut result = result.clone();
    if result.verdict == VerdictWord::Passed && result.gates.performance == GateStatus::NotRun {
        result.gates.performance = asked.performance;
    }
    result.candidate = named(&result.candidate, asked);
    if result.backend == "gpu" {
        // The device computes as it computes; nothing is imitated.
        result.numerics = "hardware".into();
    }
    if asked.from_list && result.verdict == VerdictWord::Unsupported {
        let why = result.finding.map_or_else(String::new, |f| f.message);
        return session.not_applicable(NotApplicable { candidate: result.candidate, shape: result.shape, why });
    }
    session.result(result)
}

/// What was typed, or a built-in's name, for the name that messages about its file carry.
pub(super) fn named(candidate: &str, asked: &Asked) -> String {
    asked.entries.iter().find(|e| e.candidate.name == candidate).map_or(candidate, |e| &e.typed).to_string()
}

/// The example at the smallest shape.
pub(super) fn show(
    example: &Entry,
    catalog: &Catalog,
    context: &Context,
    session: &mut Session,
) -> Result<(), CliError> {
    let subject = subject(catalog, example)?;
    let settings = vec![example.candidate.default_setting()];
    let subjects = [(subject, settings)];
    let shapes = WorkloadRequest { shapes: vec!["tiny".into()], ..WorkloadRequest::default() };
    let request = RunRequest { subjects: &subjects, workloads: &shapes, target: None };
    for mut result in pipeline::run(&request, context, &|| false, &mut |_| {})?.results {
        result.candidate = example.typed.clone();
        session.example(result)?;
    }
    Ok(())
}

/// A candidate with its task, as the gates take it.
pub(super) fn subject(catalog: &Catalog, entry: &Entry) -> Result<Subject, CliError> {
    Ok(Subject {
        candidate: Arc::new(entry.candidate.clone()),
        task: Arc::new(catalog.tasks.find(&entry.candidate.task)?.clone()),
        canonical: canonical_name(&entry.candidate.name).to_string(),
        include_root: entry.folder.clone(),
    })
}

/// Candidates with their settings. In a list, kernels that lack a lever that was set are not applicable.
#[allow(clippy::type_complexity)]
pub(super) fn subjects(
    catalog: &Catalog,
    asked: &Asked,
) -> Result<(Vec<(Subject, Vec<Setting>)>, Vec<NotApplicable>), CliError> {
    let levers =
        LeverRequest { set: asked.args.set.clone(), config: asked.args.config.clone(), sweep: asked.args.sweep };
    let (mut found, mut excluded, mut first_error) = (Vec::new(), Vec::new(), None);
    for entry in &asked.entries {
        match entry.candidate.settings(&levers) {
            Ok(settings) => found.push((subject(catalog, entry)?, settings)),
            Err(e) if asked.from_list && e.code == SpecCode::UnknownName => {
                let why = e.message.clone();
                excluded.push(NotApplicable { candidate: entry.typed.clone(), shape: "any".into(), why });
                first_error.get_or_insert(e);
            }
            Err(e) => return Err(e.into()),
        }
    }
    match first_error {
        Some(e) if found.is_empty() => Err(e.into()),
        _ => Ok((found, excluded)),
    }
}

pub(super) fn workload_request(args: &CheckArgs) -> Result<WorkloadRequest, CliError> {
    Ok(WorkloadRequest {
        shapes: args.shapes.clone(),
        seeds: args.seeds.clone(),
        formats: words(&args.format)?,
        scales: words(&args.scales)?,
        distributions: words(&args.dist)?,
        masks: words(&args.mask)?,
        layouts: words(&args.layout)?,
        outs: words(&args.out_format)?,
    })
}

fn words<T: FromStr<Err = SpecError>>(typed: &[String]) -> Result<Vec<T>, CliError> {
    typed.iter().map(|t| t.trim().parse().map_err(|e: SpecError| e.into())).collect()
}
