//! `warpsmith profile`: gates 1, 2 and 4. Counters by Nsight Compute where they can be had; resources, occupancy, executed work by line and by
//! phase, what bounds the kernel and what to try without them.

use super::check::{Asked, asked, numerics, passes, record, subjects, workload_request};
use crate::args::{Common, ProfileArgs};
use crate::artifacts::Artifacts;
use crate::catalog::Catalog;
use crate::error::CliError;
use crate::session::Session;
use crate::{interrupt, on, output, paths, progress, toolkits};
use std::fs;
use std::path::Path;
use warpsmith_compile::{Limits, Toolkit, disassemble_with_lines};
use warpsmith_eval::compile_gate::Subject;
use warpsmith_eval::pipeline::{RunRequest, nothing_left, plan};
use warpsmith_eval::profile::cubin_lines;
use warpsmith_eval::profile::gate::{Imported, pages, read_raw};
use warpsmith_eval::profile::ncu::{self, unavailable};
use warpsmith_eval::profile::rules::Rules;
use warpsmith_eval::profile::{Machinery, csv, metrics, profile as gate4};
use warpsmith_eval::tool::find_ncu;
use warpsmith_eval::worker::{GpuBackend, GpuOptions};
use warpsmith_eval::{CompileGate, Context, Oracles, PtxMachine};
use warpsmith_report as report;
use warpsmith_spec::record::{ProfileRecord, UnavailableRecord};

/// Bytes of a report that is imported, and of rules.
const MAX_REPORT: u64 = 1 << 30;
const MAX_RULES: u64 = 1 << 20;

pub fn profile(common: &Common, args: &ProfileArgs) -> Result<i32, CliError> {
    let rules = rules(args.rules.as_deref())?;
    let imported = args.import.as_deref().map(|file| import(file, args.ncu.as_deref())).transpose()?;
    if let (Some((imported, _)), true) = (&imported, args.check.files.is_empty()) {
        return Ok(tell(common, imported, &rules));
    }
    if args.check.files.is_empty() && args.check.task.is_none() {
        return Err(CliError::usage("wrong-usage", "which kernel is to be profiled?")
            .hint("`warpsmith profile FILE.cu`, or a built-in's name; --import FILE.ncu-rep reads a profile"));
    }
    let mut catalog = Catalog::new()?;
    let asked = asked(&mut catalog, &args.check)?;
    judge(common, args, &catalog, &asked, &rules, imported)
}

fn judge(
    common: &Common,
    args: &ProfileArgs,
    catalog: &Catalog,
    asked: &Asked,
    rules: &Rules,
    imported: Option<(Imported, Vec<(String, Vec<u8>)>)>,
) -> Result<i32, CliError> {
    let workloads = workload_request(&args.check)?;
    let (subjects, excluded) = subjects(catalog, asked)?;
    let artifacts = Artifacts::new(common)?;
    let compile = CompileGate::new(&artifacts, catalog.headers.clone());
    let oracles = Oracles::with_fresh_rows();
    let folder = paths::run_dir(common, "profile");
    let passes = passes(&args.check, &folder);
    let backend = PtxMachine::new(0);
    let context = Context {
        compile: &compile,
        backend: &backend,
        oracles: &oracles,
        numerics: numerics(&args.check),
        passes: passes.as_ref(),
        compile_only: false,
        sanitizer: None,
    };
    let tools = if imported.is_some() { Err(UnavailableRecord::default()) } else { tools(common, args) };
    let toolkit = toolkits::search(common).chosen;
    let listing = |cubin: &[u8]| disassembled(toolkit.as_ref(), cubin);
    let sources = |subject: &Subject| sources(&artifacts, subject);
    let machinery = Machinery {
        rules,
        tools,
        launches: args.launches,
        import: imported.as_ref().map(|(i, _)| i),
        disassemble: &listing,
        sources: &sources,
    };
    let request = RunRequest { subjects: &subjects, workloads: &workloads, target: args.check.target.as_deref() };
    let (steps, not_applicable) = plan(&request, &[])?;
    if steps.is_empty() {
        return Err(nothing_left(&not_applicable).into());
    }
    let mut session = Session::begin(common, &folder, None, None)?;
    excluded.into_iter().chain(not_applicable).try_for_each(|e| session.not_applicable(e))?;
    let bar = progress::bar(steps.len() as u64, common.json);
    let cancelled = interrupt::flag();
    for step in &steps {
        if cancelled.is_set() {
            session.interrupted()?;
            break;
        }
        bar.set_message(format!("{} {}", step.subject.canonical, step.workload.shape));
        let done = gate4(&context, &machinery, step.subject, step.setting, &step.workload, step.target);
        let mut done = match done {
            Ok(done) => done,
            Err(e) => {
                session.abandon_if_empty();
                return Err(e.into());
            }
        };
        if let Some((_, files)) = &imported {
            done.files.extend(files.iter().cloned());
        }
        if let Some(found) = &mut done.record.profile {
            found.files = session.profile_files(&done.record.candidate, &done.files)?;
            if let Some(device) = &found.device {
                session.counted_on(device);
            }
        }
        record(&done.record, asked, &mut session)?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    let tasks: Vec<_> = catalog.tasks.iter().cloned().collect();
    session.finish(common, &tasks, &artifacts)
}

/// The device and ncu, or why there are no counters.
fn tools(common: &Common, args: &ProfileArgs) -> Result<(GpuOptions, ncu::Ncu), UnavailableRecord> {
    let options = on::gpu_options(common, common.fake_device)
        .map_err(|e| unavailable("no-device", e.record.message, e.record.hint.unwrap_or_default()))?;
    // Whether there is a device is known before the tool is looked for: without one nothing is to be installed.
    GpuBackend::alone(options.clone()).map_err(|e| {
        let no_device = e.code() == "no-device";
        let next = "`nvidia-smi` has to work first; --import FILE.ncu-rep reads a profile that was taken elsewhere";
        unavailable(e.code(), e.to_string(), if no_device || e.hint().is_empty() { next } else { e.hint() })
    })?;
    let ncu = find_ncu(&options.command, args.ncu.as_deref())?;
    Ok((options, ncu))
}

/// A report, by the ncu that is here; or its raw page as it was printed.
fn import(file: &Path, named: Option<&Path>) -> Result<(Imported, Vec<(String, Vec<u8>)>), CliError> {
    let usage = |message: String| CliError::usage("profiler-failed", message).file(file);
    let told = |u: UnavailableRecord| {
        let error = if u.code == "profiler-failed" {
            CliError::usage(&u.code, u.why)
        } else {
            CliError::environment(&u.code, u.why)
        };
        error.file(file).hint(u.next)
    };
    let size = fs::metadata(file).map_err(|e| CliError::usage("unknown-name", e.to_string()).file(file))?.len();
    if size > MAX_REPORT {
        return Err(usage(format!("it has {size} bytes; the limit is {MAX_REPORT}")));
    }
    let bytes = fs::read(file).map_err(|e| CliError::usage("unknown-name", e.to_string()).file(file))?;
    // A report is binary; its pages are text.
    let text =
        String::from_utf8(bytes).ok().filter(|t| t.contains("\"ID\"") || file.extension().is_some_and(|e| e == "csv"));
    if let Some(text) = text {
        if text.len() > csv::MAX_BYTES {
            return Err(usage(format!("it has {} bytes; the limit is {}", text.len(), csv::MAX_BYTES)));
        }
        let (counters, capability) = read_raw(&text).map_err(told)?;
        let imported = Imported { counters, capability, ..Imported::default() };
        return Ok((imported, vec![("raw.csv".into(), text.into_bytes())]));
    }
    let ncu = ncu::find(named).map_err(told)?;
    let mut files = Vec::new();
    let (counters, capability, source_page) = pages(&ncu, file, &mut files).map_err(told)?;
    let tool = Some(format!("ncu {}", ncu.version));
    let lines = fs::read(file).map(|bytes| cubin_lines::find(&bytes)).unwrap_or_default();
    Ok((Imported { tool, counters, capability, source_page, lines }, files))
}

/// A profile without its kernel: counters, what bounds it, what to try.
fn tell(common: &Common, imported: &Imported, rules: &Rules) -> i32 {
    let figures = metrics::figures(&imported.counters);
    let record = ProfileRecord {
        tool: imported.tool.clone(),
        device: imported.capability.as_ref().map(|c| format!("compute capability {c}")),
        counters: imported.counters.clone(),
        bound: rules.bound(&figures),
        advice: rules.advice(&figures),
        ..ProfileRecord::default()
    };
    if common.json {
        let mut document = serde_json::json!({ "schema": "warpsmith.profile/1" });
        if let (Some(all), Ok(serde_json::Value::Object(more))) =
            (document.as_object_mut(), serde_json::to_value(&record))
        {
            all.extend(more);
        }
        output::out(&format!("{document}\n"));
    } else {
        output::out(&report::profile_text(&record));
    }
    0
}

fn rules(file: Option<&Path>) -> Result<Rules, CliError> {
    let Some(file) = file else { return Ok(Rules::built_in()) };
    let unreadable = |e: std::io::Error| CliError::usage("unknown-name", format!("cannot be read: {e}")).file(file);
    if fs::metadata(file).map_err(unreadable)?.len() > MAX_RULES {
        return Err(CliError::usage("wrong-usage", format!("more than {MAX_RULES} bytes of rules")).file(file));
    }
    let text = fs::read_to_string(file).map_err(unreadable)?;
    Rules::built_in().with(&text).map_err(|why| {
        CliError::usage("wrong-usage", why).file(file).hint("docs/profile.md shows a rule; built-in ones stay")
    })
}

fn disassembled(toolkit: Option<&Toolkit>, cubin: &[u8]) -> Option<String> {
    let folder = tempfile::tempdir().ok()?;
    fs::write(folder.path().join("k.cubin"), cubin).ok()?;
    disassemble_with_lines(toolkit?, folder.path(), "k.cubin", &Limits::default()).ok()?.ok()
}

/// What the run keeps of a candidate's sources, and of the headers.
fn sources(artifacts: &Artifacts, subject: &Subject) -> Vec<(String, String)> {
    let kept = artifacts.kept().into_iter();
    let own = kept.filter(|((candidate, path), _)| {
        (candidate.is_empty() || *candidate == subject.canonical)
            && (path.starts_with("source/") || path.starts_with("include/"))
    });
    let mut found: Vec<(String, String)> =
        own.filter_map(|((_, path), bytes)| Some((path, String::from_utf8(bytes).ok()?))).collect();
    found.push((subject.canonical.clone(), subject.candidate.source.clone()));
    found
}
