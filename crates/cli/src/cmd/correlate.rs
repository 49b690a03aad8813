//! `warpsmith evolve --correlate RECORD`: how well the estimate orders what a run has measured; `--rehearse RECORD`: how a search does on the
//! exhaustive times of a run. Both read a run's record and measure nothing.

use crate::args::{Common, EvolveArgs};
use crate::artifacts::Artifacts;
use crate::catalog::{Catalog, Entry};
use crate::error::CliError;
use crate::evolve::{Bench, Gates, Judging, shape_name};
use crate::evolve_timed::time;
use crate::output;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use warpsmith_evolve::Variant;
use warpsmith_evolve::correlate::{Agreement, agreement};
use warpsmith_evolve::estimate;
use warpsmith_evolve::rehearse::{Rehearsal, Table};
use warpsmith_evolve::score::{Timed, geometric_mean};
use warpsmith_evolve::solution::Levers;
use warpsmith_spec::Setting;
use warpsmith_spec::record::{ResultRecord, RunRecord, VerdictWord};

const MAX_BYTES: u64 = 256 << 20;
const SEEDS: u64 = 5;

/// One kernel with one setting of its levers on one workload.
#[derive(Debug, Clone, Serialize)]
struct Row {
    candidate: String,
    levers: Levers,
    workload: String,
    us: f64,
    model_cycles: f64,
}

#[derive(Debug, Serialize)]
struct Correlation {
    schema: &'static str,
    model: &'static str,
    /// Whose rates the model was given, and who timed.
    model_device: &'static str,
    device: String,
    /// By workload; `all` over the geometric means of what was measured on every workload.
    agreement: BTreeMap<String, Agreement>,
    left_out: Vec<String>,
    rows: Vec<Row>,
}

fn load(file: &Path) -> Result<RunRecord, CliError> {
    let file = if file.is_dir() { file.join("summary.json") } else { file.to_path_buf() };
    let unreadable = |why: String| {
        CliError::usage("run-unreadable", format!("{}: {why}", file.display()))
            .hint("it is the folder of a `warpsmith bench`, or its summary.json")
    };
    let size = std::fs::metadata(&file).map_err(|e| unreadable(e.to_string()))?.len();
    if size > MAX_BYTES {
        return Err(unreadable(format!("it has {size} bytes, more than {MAX_BYTES}")));
    }
    let text = std::fs::read_to_string(&file).map_err(|e| unreadable(e.to_string()))?;
    serde_json::from_str(&text).map_err(|e| unreadable(e.to_string()))
}

fn median(result: &ResultRecord) -> Option<f64> {
    let measured = result.measurement.as_ref().filter(|_| result.verdict == VerdictWord::Passed)?;
    Some(measured.methods.get(&measured.method)?.median_us)
}

/// The estimate beside each time of the record.
pub fn correlate(common: &Common, args: &EvolveArgs, file: &Path) -> Result<i32, CliError> {
    let record = load(file)?;
    let timed: Vec<&ResultRecord> = record.results.iter().filter(|r| median(r).is_some()).collect();
    let Some(first) = timed.first() else {
        return Err(CliError::usage("run-unreadable", format!("{} holds no times", file.display())));
    };
    let device = first.measurement.as_ref().map(|m| m.device.clone()).unwrap_or_default();
    let named = args.estimate_for.clone().unwrap_or_else(|| device.clone());
    let catalog = Catalog::new()?;
    let (mut entries, mut left_out): (BTreeMap<String, Entry>, Vec<String>) = Default::default();
    for result in &timed {
        if !entries.contains_key(&result.candidate) {
            let entry = catalog.find(&result.candidate)?;
            let now = warpsmith_store::text_hash(&String::from_utf8_lossy(entry.candidate.source.as_bytes()));
            if result.source_sha256.as_ref().is_some_and(|then| *then != now) {
                left_out.push(format!("{}: its text is not the one that was timed", result.candidate));
            }
            entries.insert(result.candidate.clone(), entry);
        }
    }
    let mut shapes: Vec<String> = timed.iter().map(|r| r.shape.clone()).collect();
    shapes.sort();
    shapes.dedup();
    let judging = Judging { task: &first.task, shapes: &shapes, target: &first.target, device: &named };
    let all: Vec<Entry> = entries.values().cloned().collect();
    let gates = Gates::new(&catalog, &judging, all, args.workers, file)?;
    let (artifacts, bench) = (Artifacts::new(common)?, Bench::default());
    let evaluator = gates.evaluator(&artifacts, &bench);
    let estimated = |result: &ResultRecord| -> Result<Option<Row>, CliError> {
        let subject = super::check::subject(&catalog, &entries[&result.candidate])?;
        let setting = Setting { config: None, levers: result.levers.clone() };
        let found = gates.workloads.iter().find(|w| w.shape == result.shape && w.causal == result.causal);
        let Some(workload) = found else { return Ok(None) };
        let judged = evaluator.on_machine(&subject, &setting, workload)?;
        let launches = evaluator.launches(&subject, &setting, workload, &judged)?;
        let cycles = launches.and_then(|l| estimate::cycles(gates.device, &l));
        Ok(cycles.zip(median(result)).map(|(model_cycles, us)| Row {
            candidate: result.candidate.clone(),
            levers: result.levers.clone(),
            workload: shape_name(workload),
            us,
            model_cycles,
        }))
    };
    let rows = all_of(&timed, gates.workers, &estimated)?;
    let report = Correlation {
        schema: "warpsmith.correlate/1",
        model: estimate::MODEL,
        model_device: gates.device.name,
        device,
        agreement: agreements(&rows),
        left_out,
        rows,
    };
    if common.json {
        output::out(&json(&report)?);
    } else {
        output::out(&text(&report));
    }
    Ok(0)
}

fn agreements(rows: &[Row]) -> BTreeMap<String, Agreement> {
    let mut by_workload: BTreeMap<&str, Vec<(f64, f64)>> = BTreeMap::new();
    let mut by_kernel: BTreeMap<(&str, &Levers), Vec<(f64, f64)>> = BTreeMap::new();
    for row in rows {
        by_workload.entry(&row.workload).or_default().push((row.model_cycles, row.us));
        by_kernel.entry((&row.candidate, &row.levers)).or_default().push((row.model_cycles, row.us));
    }
    let workloads = by_workload.len();
    let whole = by_kernel.values().filter(|pairs| pairs.len() == workloads);
    let means: Vec<(f64, f64)> = whole
        .filter_map(|pairs| {
            Some((geometric_mean(pairs.iter().map(|p| p.0))?, geometric_mean(pairs.iter().map(|p| p.1))?))
        })
        .collect();
    let each = by_workload.iter().filter_map(|(name, pairs)| Some((name.to_string(), agreement(pairs)?)));
    each.chain(agreement(&means).map(|a| ("all".to_string(), a))).collect()
}

/// As many at once as there are workers; rows in the order of the results.
fn all_of(
    results: &[&ResultRecord],
    workers: usize,
    estimated: &(dyn Fn(&ResultRecord) -> Result<Option<Row>, CliError> + Sync),
) -> Result<Vec<Row>, CliError> {
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, Result<Option<Row>, CliError>)>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..workers.clamp(1, results.len().max(1)) {
            scope.spawn(|| {
                while let Some((at, result)) =
                    Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|at| results.get(at).map(|result| (at, result)))
                {
                    let row = estimated(result);
                    done.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((at, row));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().filter_map(|(_, row)| row.transpose()).collect()
}

fn text(report: &Correlation) -> String {
    let mut text = format!("{} for the {} beside times on the {}\n", report.model, report.model_device, report.device);
    for row in &report.rows {
        let levers: Vec<String> = row.levers.iter().map(|(k, v)| format!("{k}={v}")).collect();
        let _ = writeln!(
            text,
            "  {:<16} {:<24} {:>10.2} us {:>12.0} model cycles  {}",
            row.workload,
            row.candidate,
            row.us,
            row.model_cycles,
            levers.join(" ")
        );
    }
    for (workload, a) in &report.agreement {
        let _ = writeln!(
            text,
            "{workload}: Spearman {:.3} over {}; the estimate's first is {:.3} x the fastest",
            a.spearman, a.n, a.first_by_fastest
        );
    }
    report.left_out.iter().for_each(|why| {
        let _ = writeln!(text, "note: {why}");
    });
    text
}

#[derive(Debug, Serialize)]
struct Rehearsals {
    schema: &'static str,
    device: String,
    settings: usize,
    budget: u64,
    searches: Vec<Rehearsal>,
}

/// Five searches of each variant over a run's exhaustive times, each from the slowest setting and with a quarter of its evaluations.
pub fn rehearse(common: &Common, file: &Path) -> Result<i32, CliError> {
    let record = load(file)?;
    let mut by_setting: BTreeMap<Levers, Vec<&ResultRecord>> = BTreeMap::new();
    let mut names: Vec<&str> = record.results.iter().map(|r| r.candidate.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    if names.len() != 1 {
        let why = format!("{} holds {} candidates; a search needs all settings of one", file.display(), names.len());
        return Err(CliError::usage("wrong-usage", why).hint("warpsmith bench level_07 --sweep --baselines none"));
    }
    for result in &record.results {
        by_setting.entry(result.levers.clone()).or_default().push(result);
    }
    let most = by_setting.values().map(Vec::len).max().unwrap_or(0);
    let mut table = Table { rows: Vec::new() };
    let mut device = String::new();
    for (levers, results) in by_setting {
        let mut times = BTreeMap::new();
        for result in &results {
            let mask = if result.causal { " causal" } else { "" };
            if let Some(time) = median(result).and_then(|_| time(result)) {
                device = result.measurement.as_ref().map(|m| m.device.clone()).unwrap_or_default();
                times.insert(format!("{}{mask}", result.shape), time);
            }
        }
        let whole = times.len() == most;
        table.rows.push((levers, if whole { Timed::new(&device, "graph_cold", times) } else { None }));
    }
    let budget = (table.rows.len() as u64 / 4).max(1);
    let mut searches = Vec::new();
    for variant in Variant::ALL {
        for seed in 0..SEEDS {
            let one = table.rehearse(variant, seed, budget);
            searches.push(one.map_err(|e| CliError::usage("run-unreadable", e.to_string()))?);
        }
    }
    let all_within = searches.iter().all(|s| s.best_by_optimum <= 1.03);
    let report = Rehearsals { schema: "warpsmith.rehearsal/1", device, settings: table.rows.len(), budget, searches };
    if common.json {
        output::out(&json(&report)?);
    } else {
        let mut text = format!(
            "{} settings on the {}; searches of {} evaluations from the slowest\n",
            report.settings, report.device, report.budget
        );
        for s in &report.searches {
            let after = s.within_3_percent_after.map_or("never".into(), |n| format!("after {n} evaluations"));
            let _ = writeln!(
                text,
                "  {:<8} seed {}: its best takes {:.4} x the least time; within 3%: {after}",
                s.variant, s.seed, s.best_by_optimum
            );
        }
        output::out(&text);
    }
    Ok(i32::from(!all_within))
}

fn json<T: Serialize>(report: &T) -> Result<String, CliError> {
    let text = serde_json::to_string_pretty(report).map_err(|e| CliError::environment("tool-defect", e.to_string()))?;
    Ok(text + "\n")
}
