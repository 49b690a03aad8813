//! Gate 4 on one candidate and workload: gates 1 and 2 first, then all that needs no counters, then the counters.
//!
//! Where counters cannot be had the gate is `unavailable` and the record says why; everything else is there. It passes or is unavailable and
//! never fails a kernel. Limits: the PTX machine counts up to [`COUNTED`] warp-instructions, beyond which its figures are left out.

use super::cubin_lines::{self, Chain, Functions};
use super::metrics::{Figures, counters, figures};
use super::ncu::{self, Capture, Ncu};
use super::occupancy::{Launch, occupancy};
use super::phases::{Phases, Place};
use super::rules::Rules;
use super::{csv, sass, work};
use crate::backend::{Backend, Job, NumericsChoice, PtxMachine, RunEnd};
use crate::compile_gate::Subject;
use crate::error::EvalError;
use crate::evaluate::{Context, Evaluated, Ready, evaluate_ready, job};
use crate::tool::{Place as Folder, Wanted};
use crate::worker::{GpuBackend, GpuOptions};
use std::collections::BTreeMap;
use std::path::Path;
use warpsmith_spec::levers::Setting;
use warpsmith_spec::record::{
    EntryProfile, GateStatus, LaunchCounters, ProfileRecord, ResultRecord, SampleRecord, UnavailableRecord, VerdictWord,
};
use warpsmith_spec::target::Target;
use warpsmith_spec::workload::Workload;

/// Warp-instructions that the PTX machine counts by line.
const COUNTED: u64 = 400_000_000;
/// Seconds for the launches behind ncu, and for it to write its report: each is replayed a few dozen times.
const SECONDS: u64 = 300;
const WRITE_SECONDS: u64 = 60;
/// What makes a job's own deadline as long as [`SECONDS`].
const PATIENT: u64 = 1 << 40;
/// Characters of a log that are read.
const MAX_LOG: usize = 1 << 20;
/// ncu's own file.
const REPORT: &str = "profile.ncu-rep";
/// Launches at most.
pub const MAX_LAUNCHES: u32 = 200;

/// What gate 4 works with.
pub struct Machinery<'a> {
    pub rules: &'a Rules,
    /// How the device's worker is started, and the tool in front of it; else why there are no counters.
    pub tools: Result<(GpuOptions, Ncu), UnavailableRecord>,
    /// Launches of the kernel to profile; those of one pass through the plan if not given.
    pub launches: Option<u32>,
    /// A report, or its raw page as CSV, that was made elsewhere: read in place of running anything.
    pub import: Option<&'a Imported>,
    /// The machine code of a cubin as a disassembler prints it, with source lines; None: none is here.
    pub disassemble: &'a dyn Fn(&[u8]) -> Option<String>,
    /// Sources with their names, in which phases may be marked.
    pub sources: &'a dyn Fn(&Subject) -> Vec<(String, String)>,
}

/// What was read of a profile that somebody made.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Imported {
    pub tool: Option<String>,
    pub counters: Vec<LaunchCounters>,
    pub capability: Option<String>,
    /// The source page, where it could be had.
    pub source_page: Option<String>,
    /// Source lines of the machine code that the report carries.
    pub lines: Functions,
}

/// A result with its profile, and the files that go with it: name -> bytes.
pub struct Gate4 {
    pub record: ResultRecord,
    pub files: Vec<(String, Vec<u8>)>,
}

/// Takes one candidate through gates 1, 2 and 4.
pub fn profile(
    ctx: &Context,
    machinery: &Machinery,
    subject: &Subject,
    setting: &Setting,
    workload: &Workload,
    target: &'static Target,
) -> Result<Gate4, EvalError> {
    let Evaluated { mut record, ready } = evaluate_ready(ctx, subject, setting, workload, target)?;
    let Some(Ready { artifact, plan }) = ready else {
        record.gates.profile = GateStatus::Blocked;
        return Ok(Gate4 { record, files: Vec::new() });
    };
    let passed = record.verdict == VerdictWord::Passed;
    let oracle = ctx.oracles.get(&subject.task, workload)?;
    let job = job(ctx, &artifact, &plan, target, &oracle);
    let listing = artifact.cubin.as_deref().and_then(|cubin| (machinery.disassemble)(cubin));
    let functions = listing.as_deref().map(sass::functions).unwrap_or_default();
    let mut found = ProfileRecord { entries: entries(&record, &job, &functions), ..ProfileRecord::default() };
    let places = if passed { count(&job, &mut record)? } else { Vec::new() };

    let mut files = Vec::new();
    // What was sampled knows its lines best; then the cubin that was compiled, by its own table or a disassembler's listing.
    let compiled = artifact.cubin.as_deref().map(cubin_lines::find).unwrap_or_default();
    let at = |sampled: &Functions, kernel: &str, offset: u64| {
        let listed = || functions.get(kernel).and_then(|f| f.lines.get(&offset)).map(|place| vec![place.clone()]);
        cubin_lines::at(sampled, kernel, offset).or_else(|| cubin_lines::at(&compiled, kernel, offset)).or_else(listed)
    };
    let mut page = None;
    match (passed, machinery.import, &machinery.tools) {
        (false, ..) => {}
        (true, Some(imported), _) => {
            (found.tool, found.counters) = (imported.tool.clone(), imported.counters.clone());
            found.device = imported.capability.as_ref().map(|c| format!("compute capability {c}"));
            found.samples = samples(imported.source_page.as_deref(), &|k, o| at(&imported.lines, k, o));
            page = imported.source_page.clone();
        }
        (true, None, Err(why)) => found.unavailable = Some(why.clone()),
        (true, None, Ok((options, ncu))) => match capture(ncu, options, &job, machinery.launches, &mut files)? {
            Err(why) => found.unavailable = Some(why),
            Ok(captured) => {
                found.tool = Some(format!("ncu {}", ncu.version));
                found.device = Some(captured.device);
                found.counters = captured.counters;
                found.samples = samples(captured.source_page.as_deref(), &|k, o| at(&captured.lines, k, o));
                page = captured.source_page;
            }
        },
    }
    // Without a disassembler ncu's own page of instructions tells the mix.
    let mixes = page.as_deref().map(csv::opcodes).unwrap_or_default();
    for entry in found.entries.iter_mut().filter(|e| e.sass.is_empty()) {
        let lowered = artifact.entry(&entry.entry).map_or(entry.entry.as_str(), |e| e.lowered.as_str());
        let only = || mixes.values().next().filter(|_| mixes.len() == 1);
        entry.sass = mixes.get(lowered).or_else(|| mixes.get(&entry.entry)).or_else(only).cloned().unwrap_or_default();
    }
    record.gates.profile = match (passed, found.counters.is_empty()) {
        (false, _) => GateStatus::Blocked,
        (true, true) => GateStatus::Unavailable,
        (true, false) => GateStatus::Passed,
    };
    if passed {
        conclude(&mut found, machinery, subject, &record, &places);
    }
    record.profile = Some(Box::new(found));
    Ok(Gate4 { record, files })
}

/// Bound, levers and phases.
fn conclude(
    found: &mut ProfileRecord,
    machinery: &Machinery,
    subject: &Subject,
    record: &ResultRecord,
    places: &[Place],
) {
    let mut known: Figures = figures(&found.counters);
    // Of several entries the one that least of fits is what waits.
    let fullest = found.entries.iter().filter_map(|e| e.occupancy.as_ref()).min_by_key(|o| o.warps);
    known.extend(record.execution.as_ref().map(|e| work::figures(record, e, fullest)).unwrap_or_default());
    found.bound = machinery.rules.bound(&known);
    found.advice = machinery.rules.advice(&known);
    let sources = (machinery.sources)(subject);
    let phases = Phases::of(sources.iter().map(|(name, text)| (name.as_str(), text.as_str())));
    found.phases = phases.shares(places, &found.samples);
    if found.samples.iter().any(|s| s.samples > 0) && found.samples.iter().all(|s| s.line.is_none()) {
        found.notes.push(
            "the samples have no source lines, so phases have no shares of time: neither the report nor the cubin has a table of lines (`--import` of a report that was taken with it has)".into(),
        );
    }
}

/// Resources, what fits a multiprocessor, and the machine code's mix, of each entry that is launched.
fn entries(record: &ResultRecord, job: &Job, functions: &BTreeMap<String, sass::Function>) -> Vec<EntryProfile> {
    let mut found: Vec<EntryProfile> = Vec::new();
    for step in &job.plan.launches {
        if found.iter().any(|e| e.entry == step.entry) {
            continue;
        }
        let stats = record.compile.get(&record.target).and_then(|e| e.get(&step.entry));
        let threads = step.block.iter().product();
        let shared_bytes = step.shared_bytes + stats.map_or(0, |s| u64::from(s.shared_bytes));
        let registers = stats.map_or(0, |s| s.registers);
        let launch = Launch {
            threads,
            registers,
            shared_bytes,
            ctas: step.grid.iter().map(|n| u64::from(*n)).product(),
            sms: job.target.sm_count,
        };
        let lowered = job.artifact.entry(&step.entry).map_or(step.entry.as_str(), |e| e.lowered.as_str());
        found.push(EntryProfile {
            entry: step.entry.clone(),
            target: record.target.clone(),
            threads,
            registers,
            shared_bytes,
            occupancy: stats.and_then(|_| occupancy(&record.target, &launch)),
            sass: functions.get(lowered).map(|f| f.opcodes.clone()).unwrap_or_default(),
        });
    }
    found
}

/// What the PTX machine counts, by line and by chain of call sites. Values do not matter here, so its arithmetic is the quick one.
fn count(job: &Job, record: &mut ResultRecord) -> Result<Vec<Place>, EvalError> {
    let job = Job { numerics: NumericsChoice::Fast, max_instructions: job.max_instructions.min(COUNTED), ..*job };
    let run = PtxMachine::new(0).counting().run(&job)?;
    if run.end != RunEnd::Completed {
        return Ok(Vec::new());
    }
    record.execution = Some(run.execution);
    Ok(run.places)
}

fn samples(page: Option<&str>, at: &dyn Fn(&str, u64) -> Option<Chain>) -> Vec<SampleRecord> {
    page.and_then(|p| csv::samples(p, at).ok()).unwrap_or_default()
}

struct Captured {
    device: String,
    counters: Vec<LaunchCounters>,
    source_page: Option<String>,
    lines: Functions,
}

/// Runs the job behind ncu. The inner error says why there are no counters.
fn capture(
    ncu: &Ncu,
    options: &GpuOptions,
    job: &Job,
    launches: Option<u32>,
    files: &mut Vec<(String, Vec<u8>)>,
) -> Result<Result<Captured, UnavailableRecord>, EvalError> {
    let lowered = |entry: &str| job.artifact.entry(entry).map_or_else(|| entry.to_string(), |e| e.lowered.clone());
    let mut kernels: Vec<String> = job.plan.launches.iter().map(|l| lowered(&l.entry)).collect();
    kernels.sort();
    kernels.dedup();
    let launches = launches.unwrap_or(job.plan.launches.len() as u32).clamp(1, MAX_LAUNCHES);
    let mut without: Vec<String> = Vec::new();
    for attempt in 0..2 {
        let place = Folder::beside(&options.command).map_err(EvalError::Defect)?;
        let capture = Capture { place: &place, kernels: kernels.clone(), launches, without: &without };
        let device = behind(ncu, options, job, &capture);
        let wanted = Wanted {
            files: vec!["log".into(), REPORT.into()],
            until: None,
            report: Some((REPORT.into(), ncu.clone())),
        };
        let mut left = match place.take(&wanted) {
            Ok(left) => left,
            Err(why) => return Ok(Err(unreached(&why, &device))),
        };
        let text: String = left.text("log").chars().take(MAX_LOG).collect();
        files.retain(|(name, _)| name != "ncu.log");
        files.push(("ncu.log".into(), text.clone().into_bytes()));
        let Some(bytes) = left.files.remove(REPORT) else {
            let unknown = ncu::unknown_metrics(&text);
            if attempt == 0 && !unknown.is_empty() {
                without = unknown;
                continue;
            }
            // Without a driver ncu says so on its standard streams, not in its log.
            return Ok(Err(ncu::classify(&format!("{text}{}", device.err().unwrap_or_default()))));
        };
        let lines = cubin_lines::find(&bytes);
        files.push((REPORT.into(), bytes));
        if let Some(why) = left.failed {
            return Ok(Err(why));
        }
        let (raw, source_page) = (left.text("raw.csv"), left.files.remove("source.csv"));
        files.push(("raw.csv".into(), raw.clone().into_bytes()));
        files.extend(source_page.iter().map(|page| ("source.csv".to_string(), page.clone())));
        return Ok(read_raw(&raw).map(|(counters, _)| Captured {
            device: device.unwrap_or_default(),
            counters,
            source_page: source_page.map(|page| String::from_utf8_lossy(&page).into_owned()),
            lines,
        }));
    }
    Ok(Err(ncu::classify("")))
}

/// The other machine did not answer, after the launches or before.
fn unreached(why: &str, device: &Result<String, String>) -> UnavailableRecord {
    let before = device.as_ref().err().map_or(String::new(), |e| format!("; before: {e}"));
    ncu::unavailable(
        "connection-lost",
        format!("what ncu left could not be brought back: {why}{before}"),
        "run again; on that machine itself: `warpsmith profile`, whose report `--import FILE.ncu-rep` reads here",
    )
}

/// The launches of a worker behind the tool; the device's name, or what went wrong.
fn behind(ncu: &Ncu, options: &GpuOptions, job: &Job, capture: &Capture) -> Result<String, String> {
    let options = GpuOptions {
        command: ncu.in_front_of(&options.command, capture),
        seconds: SECONDS,
        start_seconds: options.start_seconds.max(SECONDS),
        ..options.clone()
    };
    let backend = GpuBackend::alone(options).map_err(|e| e.to_string())?;
    let device = backend.device().name.clone();
    // How it ends is gate 2's matter; here only what ncu saw of it counts.
    let run = backend.run(&Job { max_instructions: PATIENT * 1_000, ..*job });
    backend.finish(WRITE_SECONDS);
    run.map(|_| device).map_err(|e| e.to_string())
}

/// Counters, capability and source page of a report; the pages are kept beside it.
#[allow(clippy::type_complexity)]
pub fn pages(
    ncu: &Ncu,
    report: &Path,
    files: &mut Vec<(String, Vec<u8>)>,
) -> Result<(Vec<LaunchCounters>, Option<String>, Option<String>), UnavailableRecord> {
    let text = ncu.page(report, "raw")?;
    let (counters, capability) = read_raw(&text)?;
    files.push(("raw.csv".into(), text.into_bytes()));
    let source_page = ncu.page(report, "source").ok();
    files.extend(source_page.iter().map(|text| ("source.csv".to_string(), text.clone().into_bytes())));
    Ok((counters, capability, source_page))
}

/// Counters and compute capability of a raw page.
pub fn read_raw(text: &str) -> Result<(Vec<LaunchCounters>, Option<String>), UnavailableRecord> {
    let launched = csv::raw(text).map_err(|e| {
        ncu::unavailable(
            "profiler-failed",
            format!("this is no raw page of ncu's: {e}"),
            "make it with `ncu --import FILE.ncu-rep --csv --page raw > FILE.csv`",
        )
    })?;
    let capability = launched.first().map(|l| l.capability.clone()).filter(|c| !c.is_empty());
    let counters: Vec<LaunchCounters> = launched.iter().map(counters).filter(|l| !l.counters.is_empty()).collect();
    if counters.is_empty() {
        return Err(ncu::unavailable(
            "profiler-failed",
            "the report has none of the metrics that are asked for",
            "take it with `--set full`, or let `warpsmith profile` take it",
        ));
    }
    Ok((counters, capability))
}
