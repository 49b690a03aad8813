//! Runs over time, one line each, and one kernel's way through them. Pure functions of what an index keeps.

use crate::measured::measured;
use crate::rows::{figure, worst_check};
use crate::summary::{overall, short, word};
use comfy_table::{ContentArrangement, Table, presets};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use warpsmith_spec::record::{ResultRecord, RunRecord};

/// What an index keeps of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunLine {
    pub name: String,
    pub started: String,
    pub git_commit: Option<String>,
    pub device: Option<String>,
    pub judged: usize,
    pub passed: usize,
    pub kernels: Vec<KernelLine>,
}

/// One kernel in one run: its worst figures over the workloads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KernelLine {
    pub kernel: String,
    pub verdict: String,
    pub results: usize,
    /// Which file it was: two runs with the same one judged the same text.
    pub source: Option<String>,
    /// Relative error as a part of its limit.
    pub error_share: Option<f64>,
    pub registers: Option<u32>,
    /// (shape with mask and method, median in microseconds); empty where nothing was timed or it was replayed.
    pub times: BTreeMap<String, f64>,
}

/// A run's line.
pub fn run_line(record: &RunRecord) -> RunLine {
    let overall = overall(record);
    let mut kernels: Vec<KernelLine> = Vec::new();
    for r in &record.results {
        let name = short(r);
        let at = kernels.iter().position(|k| k.kernel == name).unwrap_or_else(|| {
            kernels.push(KernelLine {
                kernel: name,
                verdict: "passed".into(),
                results: 0,
                source: None,
                error_share: None,
                registers: None,
                times: BTreeMap::new(),
            });
            kernels.len() - 1
        });
        add(&mut kernels[at], r);
    }
    RunLine {
        name: record.run.name.clone(),
        started: record.run.started.clone(),
        git_commit: record.run.git_commit.clone(),
        device: record.environment.device.clone(),
        judged: overall.judged,
        passed: overall.passed,
        kernels,
    }
}

fn add(line: &mut KernelLine, r: &ResultRecord) {
    line.results += 1;
    if word(r.verdict) != "passed" && line.verdict == "passed" {
        line.verdict = word(r.verdict).into();
    }
    line.source = line.source.take().or_else(|| r.source_sha256.clone());
    let share = worst_check(r)
        .map(|c| c.kernel.rel_frobenius / c.kernel.limit_rel_frobenius.max(f64::MIN_POSITIVE))
        .filter(|x| x.is_finite());
    line.error_share = [line.error_share, share].into_iter().flatten().reduce(f64::max);
    let registers = r.compile.get(&r.target).and_then(|e| e.values().map(|e| e.registers).max());
    line.registers = [line.registers, registers].into_iter().flatten().max();
    if let Some(m) = measured(r).filter(|m| !m.replayed)
        && let Some(t) = m.preferred()
    {
        line.times.insert(format!("{}{} {}", r.shape, if r.causal { " causal" } else { "" }, t.method), t.median_us);
    }
}

/// The table; with a kernel's name, that kernel's way, each gain against the last run on the same device that timed the same.
/// `gpu_seconds` is by run's name: how long a device was held; `price` is what an hour of it costs.
pub fn history_text(
    runs: &[RunLine],
    kernel: Option<&str>,
    gpu_seconds: &BTreeMap<String, f64>,
    price: Option<f64>,
) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    match kernel {
        None => fill_runs(&mut table, runs, gpu_seconds, price),
        Some(kernel) => fill_kernel(&mut table, runs, kernel),
    }
    let mut text: String =
        table.lines().map(|l| format!("{}\n", l.trim_end().strip_prefix(' ').unwrap_or(l.trim_end()))).collect();
    let seconds: f64 = runs.iter().filter_map(|r| gpu_seconds.get(&r.name)).sum();
    if seconds > 0.0 {
        text.push_str(&format!("\nGPU-seconds: {seconds:.0}"));
        text.push_str(&price.map_or(String::from("; --price DOLLARS says what an hour costs\n"), |p| {
            format!(", {:.2} dollars at {p} an hour\n", seconds / 3600.0 * p)
        }));
    }
    text
}

fn fill_runs(table: &mut Table, runs: &[RunLine], gpu_seconds: &BTreeMap<String, f64>, price: Option<f64>) {
    table.set_header(["run", "started", "passed", "kernels", "where", "commit", "GPU s", "cost"]);
    for r in runs {
        let names: Vec<&str> = r.kernels.iter().map(|k| k.kernel.as_str()).collect();
        let more = if names.len() > 3 { format!(" and {} more", names.len() - 3) } else { String::new() };
        let seconds = gpu_seconds.get(&r.name);
        table.add_row([
            r.name.clone(),
            r.started.clone(),
            format!("{} of {}", r.passed, r.judged),
            format!("{}{more}", names.iter().take(3).copied().collect::<Vec<_>>().join(", ")),
            r.device.clone().unwrap_or_else(|| "PTX machine".into()),
            r.git_commit.as_deref().and_then(|c| c.get(..9)).unwrap_or("-").into(),
            seconds.map_or("-".into(), |s| format!("{s:.0}")),
            seconds.zip(price).map_or("-".into(), |(s, p)| format!("{:.2}", s / 3600.0 * p)),
        ]);
    }
}

fn fill_kernel(table: &mut Table, runs: &[RunLine], kernel: &str) {
    table.set_header(["run", "kernel", "verdict", "source", "error, % of limit", "registers", "us at", "gain"]);
    let mut last: BTreeMap<(String, String), f64> = BTreeMap::new();
    for (run, k) in
        runs.iter().flat_map(|r| r.kernels.iter().map(move |k| (r, k))).filter(|(_, k)| matches(&k.kernel, kernel))
    {
        let device = run.device.clone().unwrap_or_default();
        let mut times = Vec::new();
        let mut gains = Vec::new();
        for (what, us) in &k.times {
            times.push(format!("{} {what}", figure(*us)));
            gains.push(
                last.insert((device.clone(), what.clone()), *us)
                    .map_or("first".into(), |old| format!("{:.3}x", old / us)),
            );
        }
        table.add_row([
            run.name.clone(),
            k.kernel.clone(),
            format!("{} ({} results)", k.verdict, k.results),
            k.source.as_deref().and_then(|s| s.get(..12)).unwrap_or("-").into(),
            k.error_share.map_or("-".into(), |s| format!("{:.0}", s * 100.0)),
            k.registers.map_or("-".into(), |r| r.to_string()),
            if times.is_empty() { "not timed".into() } else { times.join("; ") },
            if gains.is_empty() { "-".into() } else { gains.join("; ") },
        ]);
    }
}

/// The kernel itself, or its levels: `level` finds `level_00` to `level_08`.
pub fn matches(kernel: &str, asked: &str) -> bool {
    let asked = asked.rsplit(['/', '\\']).next().unwrap_or(asked);
    let asked = asked.strip_suffix(".cu").unwrap_or(asked);
    kernel == asked || kernel.strip_prefix(asked).is_some_and(|rest| rest.starts_with([' ', '_', '-']))
}
