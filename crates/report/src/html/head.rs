//! The first screen: whether to merge, in ten seconds; under which conditions; and the gates with their evidence.

use super::markup::{Column, esc, para, prose, table, word};
use crate::NOT_ON_A_GPU;
use crate::chosen::chosen;
use crate::decision::{Beside, decision, headline};
use crate::material::Material;
use crate::measured::{CONDITIONS, condition, measured};
use crate::rows::status;
use crate::summary::{next_step, overall};
use std::collections::BTreeMap;
use warpsmith_spec::record::{GateStatus, ResultRecord, Severity, VerdictWord};

pub(super) fn head(material: &Material) -> String {
    let record = material.record;
    let (class, words) = headline(record);
    let sign = match class {
        "ok" => "\u{2713}",
        "bad" => "\u{2717}",
        _ => "\u{25d0}",
    };
    let overall = overall(record);
    let mut text = format!(
        "<div class=\"verdict {class}\"><strong>{sign} {}</strong>\n<p>{}.</p>",
        esc(&words),
        esc(&overall.sentence())
    );
    if let Some(sentence) = Beside::of(&record.results).sentence() {
        text.push_str(&format!("<p>{}</p>", esc(&sentence)));
    }
    if let Some(sentence) = chosen(record).and_then(|c| c.sentence) {
        text.push_str(&format!("<p><b>Fastest:</b> {}.</p>", esc(&sentence)));
    }
    if let Some(words) = decision(record) {
        text.push_str(&format!("<p><b>Merge?</b> {}.</p>", esc(&words)));
    }
    if let Some(bad) = record.results.iter().find(|r| r.verdict != VerdictWord::Passed)
        && let Some(finding) = bad.findings.iter().find(|f| f.severity == Severity::Error)
    {
        let place = crate::summary::place(finding.file.as_deref(), finding.line);
        text.push_str(&format!(
            "<p><b>Why:</b> {}{}: {}</p>",
            esc(&crate::summary::short(bad)),
            esc(&place),
            esc(&first_sentence(&finding.message))
        ));
    }
    let next = next_step(record);
    text.push_str(&format!("<p><b>Next:</b> {}</p></div>\n", prose(next.strip_prefix("next: ").unwrap_or(&next))));
    for note in &material.notes {
        text.push_str(&format!("<p class=\"warn\">\u{25d0} {}</p>\n", esc(note)));
    }
    text.push_str(&conditions(material));
    text
}

/// A message's beginning, for a place where a long one would hide the rest.
fn first_sentence(message: &str) -> String {
    match message.char_indices().nth(240) {
        Some((at, _)) => format!("{}\u{2026}", &message[..at]),
        None => message.to_string(),
    }
}

fn conditions(material: &Material) -> String {
    let record = material.record;
    let mut rows: Vec<(&str, String)> = vec![
        ("Judged on", judged_on(material)),
        ("Compiler", record.environment.toolkit.clone().unwrap_or_else(|| "none was needed".into())),
        ("Started", record.run.started.clone()),
    ];
    let mut read: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (key, value) in record.results.iter().filter_map(measured).flat_map(|m| m.conditions) {
        read.entry(key).or_default().push(value);
    }
    if !read.is_empty() {
        let mut keys: Vec<&String> = read.keys().collect();
        keys.sort_by_key(|k| CONDITIONS.iter().position(|c| c == k).unwrap_or(CONDITIONS.len()));
        let words: Vec<_> = keys.into_iter().take(12).map(|k| condition(k, &spread(&read[k]))).collect();
        let replayed = record.results.iter().any(|r| r.backend == "fake");
        rows.push((if replayed { "Replayed as" } else { "Measured at" }, words.join(", ")));
    }
    if let Some(remote) = &record.environment.remote {
        let platform = remote.platform.as_deref().unwrap_or("an unknown platform");
        rows.push(("Reached by", format!("{} ({platform}), held for {:.0} s", remote.launcher, remote.held_seconds)));
    }
    if let Some(commit) = &record.run.git_commit {
        let state = if record.run.git_dirty == Some(true) { ", with uncommitted changes" } else { ", clean" };
        rows.push(("Commit", format!("{commit}{state}")));
    }
    rows.push(("Command", record.run.command.join(" ")));
    let mut text = String::from("<dl>\n");
    for (name, value) in rows {
        text.push_str(&format!("<dt>{name}</dt><dd>{}</dd>\n", esc(&value)));
    }
    text.push_str("</dl>\n");
    text
}

/// Numbers from the least to the largest, words each with how many results have it.
fn spread(values: &[String]) -> String {
    let numbers: Option<Vec<f64>> = values.iter().map(|v| v.parse().ok()).collect();
    if let Some(numbers) = numbers {
        let least = numbers.iter().copied().fold(f64::INFINITY, f64::min);
        let most = numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        return if least == most { format!("{least}") } else { format!("{least} to {most}") };
    }
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for value in values {
        *counts.entry(value).or_default() += 1;
    }
    match counts.len() {
        1 => values[0].clone(),
        _ => counts.iter().map(|(v, n)| format!("{v} ({n} results)")).collect::<Vec<_>>().join(", "),
    }
}

/// Where the verdicts come from. A device that only figures were replayed of has judged nothing.
fn judged_on(material: &Material) -> String {
    let record = material.record;
    let machine = format!(
        "the PTX machine on the CPU ({} {}): what passed is {NOT_ON_A_GPU}",
        record.environment.os, record.environment.arch
    );
    let replayed = record.results.iter().any(|r| r.backend == "fake");
    match &record.environment.device {
        Some(device) if replayed => format!("{machine}; figures were replayed from a file as those of {device}"),
        Some(device) => format!("GPU: {device}"),
        None => match overall(record).counted_on {
            Some(device) => format!(
                "values: the PTX machine on the CPU ({} {}); counters: {device}",
                record.environment.os, record.environment.arch
            ),
            None => machine,
        },
    }
}

/// One row for each gate: how many results passed it, and what shows that.
pub(super) fn gates(material: &Material) -> String {
    let results = &material.record.results;
    if results.is_empty() {
        return para("No result: no candidate was applicable, or the run ended before its first one.");
    }
    type Of = fn(&ResultRecord) -> GateStatus;
    let gates: [(&str, &str, Of, &str); 4] = [
        (
            "1 compile",
            "for all targets, within the budgets that are set",
            |r| r.gates.compile,
            "PTX and ptxas's words under candidates/*/compile, the sources under candidates/*/source",
        ),
        (
            "2 correctness",
            "values against f64 by two limits; memory, races, barriers",
            |r| r.gates.correctness,
            "one file for each result under candidates/*/correctness",
        ),
        (
            "3 performance",
            "timed by stated methods, beside baselines",
            |r| r.gates.performance,
            "samples and conditions in summary.json, under measurement",
        ),
        (
            "4 profile",
            "hardware counters and what bounds the kernel",
            |r| r.gates.profile,
            "under candidates/*/profile",
        ),
    ];
    let rows = gates.map(|(name, what, of, evidence)| {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for r in results {
            *counts.entry(status(of(r))).or_default() += 1;
        }
        let words: Vec<_> = counts.iter().map(|(s, n)| format!("{} {n} of {}", word(s), results.len())).collect();
        // Gate 4 leaves what needs no counters even where it is unavailable.
        let partly = name.starts_with('4') && results.iter().any(|r| r.profile.is_some());
        let ran = partly || counts.keys().any(|s| matches!(*s, "passed" | "failed"));
        let evidence = if ran { esc(evidence) } else { "<span class=\"muted\">nothing: it did not run</span>".into() };
        vec![esc(name), esc(what), words.join("<br>"), evidence]
    });
    table(
        "Each gate is looked at only where the one before it passed",
        &[
            ("gate", Column::Text),
            ("what it asks", Column::Text),
            ("results", Column::Text),
            ("evidence in the run", Column::Text),
        ],
        rows,
    )
}

#[cfg(test)]
mod tests {
    use super::spread;

    #[test]
    fn readings_are_told_as_a_range_and_words_with_their_counts() {
        for (values, told) in [
            (&["1980", "1980"][..], "1980"),
            (&["124.6", "134.4", "130"], "124.6 to 134.4"),
            (&["no", "no"], "no"),
            (&["no", "yes", "no"], "no (2 results), yes (1 results)"),
        ] {
            let values: Vec<String> = values.iter().map(|v| (*v).to_string()).collect();
            assert_eq!(spread(&values), told);
        }
    }
}
