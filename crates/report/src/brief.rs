//! `warpsmith brief`: a run in under 2,000 tokens, for a colleague or a coding agent. Goal, state by gate, best, failures with lines,
//! the next action and its command. Plain text. Limit: [`MAX_CHARS`], at some three characters to a token.

use crate::material::Material;
use crate::measured::measured;
use crate::next::next_steps;
use crate::rows::{figure, resources, status, worst_check};
use crate::summary::{overall, place, short, word};
use std::collections::BTreeMap;
use warpsmith_spec::record::{GateStatus, ResultRecord, Severity, VerdictWord};

/// 2,000 tokens of English and code are some 7,000 characters; this leaves room.
const MAX_CHARS: usize = 5600;
const MAX_FAILURES: usize = 8;
const MAX_STEPS: usize = 4;

pub fn brief(material: &Material) -> String {
    let record = material.record;
    let mut text = String::new();
    let mut line = |words: String| {
        // What does not fit is left out whole; the end of the text, what to do next, has its room kept free.
        if text.len() + words.len() < MAX_CHARS {
            text.push_str(&words);
            text.push('\n');
        }
    };
    let tasks: Vec<String> = unique(record.results.iter().map(|r| r.task.clone()));
    let kernels = unique(record.results.iter().map(short));
    line(format!("run: {} ({})", record.run.name, record.run.started));
    if kernels.is_empty() {
        line("goal: not known, for nothing was judged yet".into());
    } else {
        line(format!(
            "goal: {} right for {} through the gates compile, correctness, performance, profile",
            some(&kernels, 6),
            some(&tasks, 3)
        ));
    }
    line(format!("state: {}", overall(record).sentence()));
    material.notes.iter().take(3).for_each(|n| line(format!("note: {}", cut(n, 200))));
    line(format!(
        "where: {}; compiler {}",
        record.environment.device.as_deref().unwrap_or("PTX machine on the CPU, no GPU"),
        record.environment.toolkit.as_deref().unwrap_or("none")
    ));
    type Of = fn(&ResultRecord) -> GateStatus;
    let gates: [(&str, Of); 4] = [
        ("compile", |r| r.gates.compile),
        ("correctness", |r| r.gates.correctness),
        ("performance", |r| r.gates.performance),
        ("profile", |r| r.gates.profile),
    ];
    for (name, of) in gates {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        record.results.iter().for_each(|r| *counts.entry(status(of(r))).or_default() += 1);
        let words: Vec<_> = counts.iter().map(|(s, n)| format!("{n} {s}")).collect();
        line(format!("gate {name}: {}", if words.is_empty() { "nothing judged".into() } else { words.join(", ") }));
    }
    line(best(&record.results));
    for c in record.accept.iter().take(6) {
        line(format!(
            "criterion: {} is {} (actual {})",
            cut(&c.criterion, 120),
            c.status,
            c.actual.map_or("none".into(), figure)
        ));
    }
    let failures = failures(&record.results);
    if !failures.is_empty() {
        line("failures:".into());
        failures.iter().take(MAX_FAILURES).for_each(|f| line(format!("- {f}")));
        if failures.len() > MAX_FAILURES {
            line(format!("- and {} more kinds, in summary.json", failures.len() - MAX_FAILURES));
        }
    }
    if !record.not_applicable.is_empty() {
        let first = &record.not_applicable[0];
        line(format!(
            "not applicable: {} entries, first {} {}: {}",
            record.not_applicable.len(),
            cut(&first.candidate, 80),
            first.shape,
            cut(&first.why, 120)
        ));
    }
    text.push_str("next:\n");
    for step in next_steps(material).iter().take(MAX_STEPS) {
        text.push_str(&format!("- {} {}\n", cut(&step.why, 120), cut(&step.command, 260)));
    }
    text
}

/// The fastest measured kernel, or the one nearest to the oracle where nothing was measured.
fn best(results: &[ResultRecord]) -> String {
    let passed: Vec<&ResultRecord> = results.iter().filter(|r| r.verdict == VerdictWord::Passed).collect();
    let ratio = |r: &&&ResultRecord| {
        measured(r).and_then(|m| {
            m.baselines.iter().filter_map(|b| Some((b.ratio?.0, b.name.clone()))).max_by(|a, b| a.0.total_cmp(&b.0))
        })
    };
    let fastest = passed.iter().filter_map(|r| Some((ratio(&r)?, *r))).max_by(|a, b| a.0.0.total_cmp(&b.0.0));
    if let Some(((ratio, name), r)) = fastest {
        return format!("best: {} on {}, {}x {name} (old time / new time)", short(r), r.shape, figure(ratio));
    }
    let error = |r: &&ResultRecord| worst_check(r).map_or(f64::INFINITY, |c| c.kernel.rel_frobenius);
    match passed.iter().copied().min_by(|a, b| error(a).total_cmp(&error(b))) {
        Some(r) => format!(
            "best: nothing was measured; nearest to f64 is {} on {} (relF {}; registers, shared, spills {})",
            short(r),
            r.shape,
            figure(error(&r)),
            resources(r)
        ),
        None => "best: nothing passed".into(),
    }
}

/// Each different failure once, with its line and how often it was seen.
fn failures(results: &[ResultRecord]) -> Vec<String> {
    let mut seen: Vec<(String, usize)> = Vec::new();
    for r in results.iter().filter(|r| r.verdict != VerdictWord::Passed) {
        let text = match r.findings.iter().find(|f| f.severity == Severity::Error) {
            Some(f) => format!(
                "{} ({}): {}{}: {}",
                short(r),
                word(r.verdict),
                f.kind,
                place(f.file.as_deref(), f.line),
                cut(&f.message, 260)
            ),
            None => format!("{} ({})", short(r), word(r.verdict)),
        };
        // At another shape the figures differ, not the fault.
        let key = text.split(": ").take(2).collect::<Vec<_>>().join(": ");
        match seen.iter_mut().find(|(t, _)| t.starts_with(&key)) {
            Some((_, n)) => *n += 1,
            None => seen.push((text, 1)),
        }
    }
    seen.into_iter().map(|(t, n)| if n > 1 { format!("{t} [{n} results]") } else { t }).collect()
}

fn unique(words: impl Iterator<Item = String>) -> Vec<String> {
    let mut found = Vec::new();
    words.for_each(|w| {
        if !found.contains(&w) {
            found.push(w);
        }
    });
    found
}

fn some(words: &[String], n: usize) -> String {
    let shown: Vec<String> = words.iter().take(n).map(|w| cut(w, 60)).collect();
    match words.len() {
        0 => "nothing".into(),
        all if all > n => format!("{} and {} more", shown.join(", "), all - n),
        _ => shown.join(", "),
    }
}

/// On one line, and no longer than this.
fn cut(text: &str, chars: usize) -> String {
    let plain: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if plain.chars().count() <= chars { plain } else { plain.chars().take(chars).collect::<String>() + "..." }
}
