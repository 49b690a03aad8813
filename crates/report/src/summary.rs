//! The overall verdict and the step that follows from it.

use crate::chosen::chosen;
use std::collections::BTreeMap;
use warpsmith_spec::record::{GateStatus, ResultRecord, RunRecord, VerdictWord};

/// How a run as a whole ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Overall {
    pub judged: usize,
    pub passed: usize,
    /// Verdicts that are not `passed`, with how often each was given.
    pub others: BTreeMap<VerdictWord, usize>,
    /// Some result comes from a GPU.
    pub on_gpu: bool,
    /// Gate 2 was not asked for.
    pub compiled_only: bool,
    /// The device whose counters gate 4 read while it launched the kernel; values were judged elsewhere.
    pub counted_on: Option<String>,
}

impl Overall {
    pub fn all_passed(&self) -> bool {
        self.judged > 0 && self.passed == self.judged
    }

    /// One sentence.
    pub fn sentence(&self) -> String {
        let place = match (self.on_gpu, self.compiled_only, &self.counted_on) {
            (true, ..) => "on the GPU".to_string(),
            (false, true, _) => "gate 1; nothing was executed".into(),
            (false, false, Some(device)) => {
                format!(
                    "on the PTX machine; launched on {device} for its counters, its values there were not looked at"
                )
            }
            (false, false, None) => "on the PTX machine, not run on a GPU".into(),
        };
        let mut text = format!("{} of {} passed {place}", self.passed, self.judged);
        if !self.others.is_empty() {
            let parts: Vec<_> = self.others.iter().map(|(v, n)| format!("{n} {}", word(*v))).collect();
            text.push_str(&format!("; {}", parts.join(", ")));
        }
        text
    }
}

/// Sums a record up. Examples are not judged and do not count.
pub fn overall(record: &RunRecord) -> Overall {
    let mut others = BTreeMap::new();
    let mut passed = 0;
    for result in &record.results {
        if result.verdict == VerdictWord::Passed {
            passed += 1;
        } else {
            *others.entry(result.verdict).or_insert(0) += 1;
        }
    }
    let on_gpu = record.results.iter().any(|r| r.backend == "gpu");
    let not_executed = |r: &ResultRecord| r.gates.correctness == GateStatus::NotRun;
    let compiled_only = !record.results.is_empty() && record.results.iter().all(not_executed);
    let counted_on = record.results.iter().find_map(counted_on).map(str::to_string);
    Overall { judged: record.results.len(), passed, others, on_gpu, compiled_only, counted_on }
}

/// The device on which gate 4 launched this kernel and read counters. None where the profile was made elsewhere, or nothing was counted.
pub(crate) fn counted_on(r: &ResultRecord) -> Option<&str> {
    let profile = r.profile.as_deref().filter(|p| !p.counters.is_empty())?;
    // An imported report knows the capability of its device only.
    profile.device.as_deref().filter(|d| !d.starts_with("compute capability"))
}

/// What to do next, with the command.
pub fn next_step(record: &RunRecord) -> String {
    let failed = |r: &&ResultRecord| r.verdict != VerdictWord::Passed;
    // What can be mended comes before what was not judged.
    let mended = record.results.iter().filter(failed).find(|r| r.verdict != VerdictWord::Unsupported);
    let Some(bad) = mended.or_else(|| record.results.iter().find(failed)) else {
        return after_success(record);
    };
    let again = format!("warpsmith check {} --shapes {} --seeds {}", bad.candidate, bad.shape, bad.seed);
    match &bad.finding {
        Some(f) if f.code == "unsupported-instruction" && bad.backend != "gpu" => format!(
            "next: judge it where it can be executed: `warpsmith check {} --backend gpu`, or --on for another machine's GPU; `warpsmith explain {}` says why not here",
            bad.candidate, f.code
        ),
        Some(f) => {
            // Without a line the file says nothing that the candidate's name does not.
            let place = f.line.map_or_else(String::new, |_| place(f.file.as_deref(), f.line));
            format!("next: mend {}{place}, see `warpsmith explain {}`, then `{again}`", bad.candidate, f.code)
        }
        None => format!("next: `{again}`"),
    }
}

/// What follows where everything passed: of several kernels the fastest is named, and how all are taken.
fn after_success(record: &RunRecord) -> String {
    let Some(c) = chosen(record) else {
        return "next: nothing was judged; `warpsmith list` shows tasks, shapes and kernels".into();
    };
    let others = |verb: &str, options: &str| match (c.of, c.is_fastest) {
        (1, _) => String::new(),
        (n, true) => format!("; it is the fastest of {n} {}, `warpsmith {verb} {}{options}` takes all", c.what, c.all),
        (n, false) => format!("; `warpsmith {verb} {}{options}` takes all {n} {}", c.all, c.what),
    };
    match record.results.first() {
        Some(r) if r.backend == "gpu" => format!(
            "next: `warpsmith check {} --backend cpu`, if it has not passed there: the PTX machine finds what a GPU does not show{}",
            c.subject,
            others("check", " --backend cpu")
        ),
        Some(r) if counted_on(r).is_some() => format!(
            "next: `warpsmith bench {}` times it on that GPU beside what people use, and judges its values there{}",
            c.subject,
            others("bench", "")
        ),
        _ => format!(
            "next: run {} on a GPU: `warpsmith bench {}`, there or with `--on`; the PTX machine proves values and memory behaviour, never a time",
            if c.of > 1 { "them" } else { "it" },
            if c.of > 1 { &c.all } else { &c.subject }
        ),
    }
}

pub(crate) fn place(file: Option<&str>, line: Option<u32>) -> String {
    match (file, line) {
        (Some(file), Some(line)) => format!(" at {file}:{line}"),
        (Some(file), None) => format!(" in {file}"),
        (None, Some(line)) => format!(" at line {line}"),
        (None, None) => String::new(),
    }
}

/// The word that records and people use.
pub(crate) fn word(verdict: VerdictWord) -> &'static str {
    match verdict {
        VerdictWord::Passed => "passed",
        VerdictWord::CompileFailed => "compile_failed",
        VerdictWord::Faulted => "faulted",
        VerdictWord::Incorrect => "incorrect",
        VerdictWord::Rejected => "rejected",
        VerdictWord::TimedOut => "timed_out",
        VerdictWord::Unsupported => "unsupported",
    }
}

/// A candidate's short name: the file's stem, for tables.
pub(crate) fn short(result: &ResultRecord) -> String {
    let name = result.candidate.rsplit(['/', '\\']).next().unwrap_or(&result.candidate);
    let stem = name.strip_suffix(".cu").unwrap_or(name);
    match &result.config {
        Some(config) => format!("{stem} {config}"),
        None => stem.to_string(),
    }
}
