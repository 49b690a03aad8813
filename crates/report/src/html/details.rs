//! Each kernel in a fold of its own: resources by entry, checks, warnings, where it errs, its levers, and its lines' counters.

use super::causes::maps;
use super::markup::{Column, count, details, esc, figure, table, word};
use super::results::names;
use crate::material::Material;
use crate::summary::word as verdict;
use std::collections::BTreeMap;
use warpsmith_spec::record::{CheckRecord, ResultRecord};

/// Warnings of one entry that are shown.
const MAX_WARNINGS: usize = 6;
/// Results of one kernel that are shown.
const MAX_RESULTS: usize = 24;

pub(super) fn section(material: &Material) -> String {
    let results = &material.record.results;
    let names = names(results);
    let mut kernels: Vec<(&str, Vec<&ResultRecord>)> = Vec::new();
    let mut at: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for (name, r) in names.iter().zip(results) {
        let i = *at.entry((name, &r.candidate)).or_insert_with(|| {
            kernels.push((name, Vec::new()));
            kernels.len() - 1
        });
        kernels[i].1.push(r);
    }
    let (mut text, mut left) = (String::new(), Vec::new());
    for (n, (name, results)) in kernels.iter().enumerate() {
        if text.len() > super::MAX_DETAILS_BYTES {
            left.push(*name);
            continue;
        }
        let passed = results.iter().filter(|r| verdict(r.verdict) == "passed").count();
        let summary = format!("{}: {passed} of {} passed", esc(name), results.len());
        text.push_str(&details(&summary, &kernel(material, results, n)));
    }
    if !left.is_empty() {
        text.push_str(&format!(
            "<p>{} more kernels are not unfolded here; their files are under <code>candidates/</code>: {}</p>\n",
            left.len(),
            esc(&left.join(", "))
        ));
    }
    text
}

fn kernel(material: &Material, results: &[&ResultRecord], n: usize) -> String {
    let first = results[0];
    let mut text = String::from("<dl>\n");
    let mut line = |name: &str, value: String| text.push_str(&format!("<dt>{name}</dt><dd>{value}</dd>\n"));
    line("Candidate", format!("<code>{}</code>", esc(&first.candidate)));
    line("Task", esc(&first.task));
    if !first.levers.is_empty() {
        line("Levers", esc(&first.levers.iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>().join(", ")));
    }
    if let Some(hash) = &first.source_sha256 {
        line(
            "Source",
            format!(
                "<code>{}</code>{}",
                esc(hash),
                material.evidence(first, "source/").map_or(String::new(), |f| format!(" in <code>{}</code>", esc(f)))
            ),
        );
    }
    text.push_str("</dl>\n");
    text.push_str(&resources(first));
    text.push_str(&checks(results));
    if let Some((r, name, check, map)) = worst_map(results) {
        text.push_str(&format!(
            "<p>Where the outputs err, at {}{} (the worst of this kernel's results):</p>\n",
            esc(&r.shape),
            if r.causal { ", causal" } else { "" }
        ));
        text.push_str(&maps(map, name, check, &format!("d{n}")));
    }
    text.push_str(&super::lines::section(material, results));
    text
}

/// Registers, memory, opcodes and warnings of every entry and target.
fn resources(r: &ResultRecord) -> String {
    let rows = r.compile.iter().flat_map(|(target, entries)| {
        entries.iter().map(move |(entry, e)| {
            let ops: Vec<_> = e.tensor_ops.iter().map(|(op, n)| format!("{} &times; {n}", esc(op))).collect();
            let warnings: Vec<_> =
                e.warnings.iter().take(MAX_WARNINGS).map(|w| esc(&w.chars().take(300).collect::<String>())).collect();
            vec![
                format!("{} {}", esc(target), esc(entry)),
                e.registers.to_string(),
                count(u64::from(e.shared_bytes) + e.dynamic_shared_bytes.unwrap_or(0)),
                count(e.stack_bytes.into()),
                count(e.spill_bytes.into()),
                if ops.is_empty() { "none".into() } else { ops.join(", ") },
                if warnings.is_empty() { "none".into() } else { warnings.join("<br>") },
            ]
        })
    });
    let head = [
        ("target and entry", Column::Text),
        ("registers", Column::Number),
        ("shared, B", Column::Number),
        ("stack, B", Column::Number),
        ("spills, B", Column::Number),
        ("tensor opcodes in the machine code", Column::Text),
        ("warnings", Column::Text),
    ];
    if r.compile.is_empty() {
        String::new()
    } else {
        table("Resources, as ptxas and the disassembler say", &head, rows)
    }
}

fn checks(results: &[&ResultRecord]) -> String {
    let rows = results.iter().take(MAX_RESULTS).flat_map(|r| {
        let place = format!(
            "{}{}, {} {}, seed {}{}",
            esc(&r.shape),
            if r.causal { ", causal" } else { "" },
            esc(&r.format),
            esc(&r.distribution),
            r.seed,
            esc(&crate::rows::variant(r))
        );
        let executed = r.execution.as_ref().map_or("-".into(), |e| {
            format!(
                "{} ({} of {} instructions)",
                count(e.warp_instructions),
                e.covered_instructions,
                e.static_instructions
            )
        });
        let rows: Vec<Vec<String>> = match &r.check {
            Some(outputs) => outputs
                .iter()
                .map(|(name, c)| {
                    let pair = |a: f64, b: f64| format!("{} / {}", figure(a), figure(b));
                    let rows = match (c.rows_checked, c.rows_total) {
                        (Some(a), Some(b)) => format!("{a} of {b}"),
                        _ => "all".into(),
                    };
                    vec![
                        place.clone(),
                        word(verdict(r.verdict)),
                        esc(name),
                        pair(c.kernel.rel_frobenius, c.kernel.limit_rel_frobenius),
                        pair(c.kernel.worst_row, c.kernel.limit_worst_row),
                        pair(c.end_to_end.rel_frobenius, c.end_to_end.limit_rel_frobenius),
                        figure(c.max_abs_err),
                        rows,
                        executed.clone(),
                    ]
                })
                .collect(),
            None => vec![vec![
                place,
                word(verdict(r.verdict)),
                "-".into(),
                "-".into(),
                "-".into(),
                "-".into(),
                "-".into(),
                "-".into(),
                executed,
            ]],
        };
        rows
    });
    let head = [
        ("workload", Column::Text),
        ("verdict", Column::Text),
        ("output", Column::Text),
        ("relF / limit", Column::Number),
        ("worst row / limit", Column::Number),
        ("end to end relF / limit", Column::Number),
        ("largest error", Column::Number),
        ("rows judged", Column::Number),
        ("warp instructions", Column::Text),
    ];
    table("Checks against f64", &head, rows)
}

/// The picture of the result that comes closest to its limit, or is furthest beyond it.
fn worst_map<'a>(
    results: &[&'a ResultRecord],
) -> Option<(&'a ResultRecord, &'a str, &'a CheckRecord, &'a warpsmith_spec::record::ErrorMap)> {
    results
        .iter()
        .flat_map(|r| {
            r.check.iter().flatten().filter_map(|(name, c)| Some((*r, name.as_str(), c, c.error_map.as_ref()?)))
        })
        .max_by(|a, b| score(a.2).total_cmp(&score(b.2)))
}

fn score(c: &CheckRecord) -> f64 {
    c.kernel.worst_row / c.kernel.limit_worst_row.max(f64::MIN_POSITIVE)
}
