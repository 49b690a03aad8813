//! Of a run with several kernels, or several settings of one: which a reader looks at first, and the commands that take it or all of them.
//!
//! The fastest is that with the least geometric mean of the medians over all workloads of the run, by each one's own method. It makes no claim about
//! kernels that were not timed at all of them, and none where times were replayed.

use crate::html::figure;
use crate::measured::measured;
use crate::next::quoted;
use crate::summary::short;
use std::collections::{BTreeMap, BTreeSet};
use warpsmith_spec::record::{ResultRecord, RunRecord, VerdictWord};

/// Names that a command lists; beyond it the task is named, which means the kernels that come with it.
const MAX_NAMED: usize = 4;
/// Workloads whose times are told.
const MAX_TOLD: usize = 3;
/// A second kernel that is this near is named too.
const NEAR: f64 = 1.03;

/// What of a run to go on with.
pub(crate) struct Chosen {
    /// The words that name it on a command line, settings included.
    pub subject: String,
    /// The shape with most work.
    pub shape: String,
    /// How many kernels or settings passed.
    pub of: usize,
    /// `kernels` or `settings`
    pub what: &'static str,
    /// Whether it was chosen by its times.
    pub is_fastest: bool,
    /// The words that name all.
    pub all: String,
    /// How fast it is, in a sentence without its stop; where more than one was timed.
    pub sentence: Option<String>,
}

/// None where nothing passed.
pub(crate) fn chosen(record: &RunRecord) -> Option<Chosen> {
    let passed: Vec<&ResultRecord> = record.results.iter().filter(|r| r.verdict == VerdictWord::Passed).collect();
    let first = *passed.first()?;
    let mut subjects: BTreeMap<String, &ResultRecord> = BTreeMap::new();
    for r in &passed {
        subjects.entry(set(r)).or_insert(r);
    }
    let candidates: BTreeSet<&str> = passed.iter().map(|r| r.candidate.as_str()).collect();
    let swept = subjects.len() > candidates.len();
    // Values that nobody asked for are the kernel's own.
    let said = swept || record.run.command.iter().any(|w| w.starts_with("--set") || w.starts_with("--config"));
    let subject = |r: &ResultRecord| if said { set(r) } else { quoted(&r.candidate) };
    let of_all = files(&passed);
    let all = if swept { format!("{of_all} --sweep") } else { of_all };
    let what = if candidates.len() == 1 { "settings" } else { "kernels" };
    let ranked = ranked(&passed);
    let fastest = ranked.first().filter(|_| ranked.len() > 1);
    let size = |r: &ResultRecord| r.symbols.values().map(|n| (*n).max(1) as f64).product::<f64>();
    let largest = passed.iter().copied().fold(first, |most, r| if size(r) > size(most) { r } else { most });
    Some(Chosen {
        shape: quoted(&largest.shape),
        subject: subject(fastest.map_or(first, |f| f.result)),
        of: subjects.len(),
        what,
        is_fastest: fastest.is_some(),
        all,
        sentence: fastest.map(|f| sentence(f, &ranked, swept, what)),
    })
}

/// One that was timed at every workload.
struct Ranked<'a> {
    result: &'a ResultRecord,
    mean_us: f64,
    times: BTreeMap<String, f64>,
}

/// The fastest first.
fn ranked<'a>(passed: &[&'a ResultRecord]) -> Vec<Ranked<'a>> {
    let mut timed: BTreeMap<String, (&ResultRecord, BTreeMap<String, f64>)> = BTreeMap::new();
    let mut workloads = BTreeSet::new();
    for r in passed.iter().filter(|r| r.backend == "gpu") {
        let Some(median) = measured(r).and_then(|m| m.preferred().map(|t| t.median_us)) else { continue };
        let mask = if r.causal { ", causal" } else { "" };
        let more: Vec<String> = [&r.format, &r.scales, &r.distribution].into_iter().cloned().collect();
        // The name first: what is told of it stands before the bar.
        let workload = format!("{}{mask}|{} {} {:?}", r.shape, more.join(" "), r.seed, r.variant);
        workloads.insert(workload.clone());
        timed.entry(set(r)).or_insert((r, BTreeMap::new())).1.insert(workload, median);
    }
    let whole = timed.into_values().filter(|(_, times)| times.len() == workloads.len());
    let mut ranked: Vec<Ranked> = whole
        .map(|(result, times)| {
            let logs: f64 = times.values().map(|t| t.ln()).sum();
            Ranked { result, mean_us: (logs / times.len().max(1) as f64).exp(), times }
        })
        .collect();
    ranked.sort_by(|a, b| a.mean_us.total_cmp(&b.mean_us));
    ranked
}

fn sentence(fastest: &Ranked, ranked: &[Ranked], swept: bool, what: &str) -> String {
    let name = |r: &ResultRecord| {
        let levers: Vec<String> = r.levers.iter().map(|(k, v)| format!(" {k}={v}")).collect();
        format!("{}{}", short(r), if swept { levers.concat() } else { String::new() })
    };
    let mut told: Vec<String> = fastest
        .times
        .iter()
        .take(MAX_TOLD)
        .map(|(w, us)| format!("{} us at {}", figure(*us), w.split('|').next().unwrap_or(w)))
        .collect();
    if fastest.times.len() > MAX_TOLD {
        told.push(format!("{} more under Times", fastest.times.len() - MAX_TOLD));
    }
    let mut text = format!(
        "{} is the fastest of {} {what} by the geometric mean: {}",
        name(fastest.result),
        ranked.len(),
        told.join(", ")
    );
    if let Some(second) = ranked.get(1).filter(|s| s.mean_us < NEAR * fastest.mean_us) {
        let more = 100.0 * (second.mean_us / fastest.mean_us - 1.0);
        text.push_str(&format!("; {} takes {more:.1}% more", name(second.result)));
    }
    text
}

/// The words that name one kernel with its setting.
fn set(r: &ResultRecord) -> String {
    let mut words = quoted(&r.candidate);
    match &r.config {
        Some(config) => words.push_str(&format!(" --config {}", quoted(config))),
        None => r.levers.iter().for_each(|(k, v)| words.push_str(&format!(" --set {}", quoted(&format!("{k}={v}"))))),
    }
    words
}

/// The words that name all kernels of some results.
pub(crate) fn files(results: &[&ResultRecord]) -> String {
    let names: BTreeSet<&str> = results.iter().map(|r| r.candidate.as_str()).collect();
    // Files of one's own do not come with a task.
    let own = names.iter().any(|n| n.contains(['/', '\\']) || n.ends_with(".cu"));
    match results.first() {
        Some(first) if names.len() > MAX_NAMED && !own => format!("--task {}", quoted(&first.task)),
        _ => names.into_iter().map(quoted).collect::<Vec<_>>().join(" "),
    }
}
