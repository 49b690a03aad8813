//! The text a terminal shows at the end of a run.

use crate::rows::{HEAD, cells};
use crate::speed::speed;
use crate::summary::{next_step, overall, place, short, word};
use comfy_table::{ContentArrangement, Table, presets};
use std::collections::BTreeMap;
use warpsmith_spec::record::{FindingRecord, ResultRecord, RunRecord, Severity, VerdictWord};

/// Findings are repeated for every shape and mask; a screen shows this many different ones, the record all.
const MAX_FINDINGS: usize = 12;

/// The whole text: table, findings, what was not applicable, verdict, next step.
pub fn terminal(record: &RunRecord) -> String {
    let mut text = String::new();
    if !record.results.is_empty() {
        text.push_str(&table(&record.results));
    }
    text.push_str(&speed_table(record));
    text.push_str(&crate::profile::section(record));
    text.push_str(&findings(&record.results));
    for example in &record.examples {
        text.push_str(&format!("\nshown because it must fail: {} is {}\n", short(example), word(example.verdict)));
        for finding in example.finding.iter() {
            text.push_str(&describe(finding));
        }
    }
    if !record.not_applicable.is_empty() {
        text.push_str(&not_applicable(record));
    }
    for criterion in &record.accept {
        let actual = criterion.actual.map_or("-".into(), |a| format!("{a}"));
        text.push_str(&format!(
            "accept: {}: target {}, actual {actual}, {}\n",
            criterion.criterion, criterion.target, criterion.status
        ));
    }
    let overall = overall(record);
    text.push_str(&format!("\n{}\n{}\n", overall.sentence(), next_step(record)));
    text
}

/// Gate 3, if it was run.
fn speed_table(record: &RunRecord) -> String {
    let Some(speed) = speed(record) else { return String::new() };
    let mut text = format!("\n{}\n", speed.title);
    text.extend(speed.conditions.iter().map(|c| format!("  {c}\n")));
    text.push_str(&lines_of(speed.head, speed.rows));
    text.extend(speed.below.iter().map(|line| format!("  {line}\n")));
    text
}

fn table(results: &[ResultRecord]) -> String {
    lines_of(HEAD.map(String::from).to_vec(), results.iter().map(|r| cells(r, results).to_vec()).collect())
}

fn lines_of(head: Vec<String>, rows: Vec<Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled).set_header(head);
    for row in rows {
        table.add_row(row);
    }
    // Cells are padded with a blank on each side; a screen's left edge needs none.
    table.lines().map(|l| format!("{}\n", l.trim_end().strip_prefix(' ').unwrap_or(l.trim_end()))).collect()
}

/// Each different finding once, with how many results it stands in.
fn findings(results: &[ResultRecord]) -> String {
    let mut seen: Vec<(&ResultRecord, &FindingRecord, usize)> = Vec::new();
    let mut places: BTreeMap<(String, &str, &str, Option<u32>), usize> = BTreeMap::new();
    for result in results.iter().filter(|r| r.verdict != VerdictWord::Passed) {
        for finding in result.findings.iter().filter(|f| f.severity == Severity::Error) {
            let key = (short(result), finding.code.as_str(), finding.file.as_deref().unwrap_or(""), finding.line);
            match places.get(&key) {
                Some(&at) => seen[at].2 += 1,
                None => {
                    places.insert(key, seen.len());
                    seen.push((result, finding, 1));
                }
            }
        }
    }
    let mut text = String::new();
    for (result, finding, count) in seen.iter().take(MAX_FINDINGS) {
        let more = if *count > 1 { format!(", and {} more results", count - 1) } else { String::new() };
        text.push_str(&format!(
            "\n{} ({}, {}{more}):\n",
            short(result),
            result.shape,
            if result.causal { "causal" } else { "no mask" }
        ));
        text.push_str(&describe(finding));
    }
    if seen.len() > MAX_FINDINGS {
        text.push_str(&format!("\n... and {} more findings in summary.json\n", seen.len() - MAX_FINDINGS));
    }
    text
}

pub(crate) fn describe(finding: &FindingRecord) -> String {
    let mut text = format!("  {}{}: {}\n", finding.kind, place(finding.file.as_deref(), finding.line), finding.message);
    if let Some(other) = finding.other_line {
        text.push_str(&format!("  the other side is line {other}\n"));
    }
    text.push_str(&format!("  `warpsmith explain {}` says what it means\n", finding.code));
    text
}

fn not_applicable(record: &RunRecord) -> String {
    let mut by_reason: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for entry in &record.not_applicable {
        by_reason.entry(&entry.why).or_default().push(format!("{} {}", entry.candidate, entry.shape));
    }
    by_reason.into_iter().map(|(why, what)| format!("\nnot applicable: {}: {why}\n", what.join(", "))).collect()
}
