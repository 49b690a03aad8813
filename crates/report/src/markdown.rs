//! `report.md`: the run for a pull request or a job summary. Verdict and conditions first, then gates with evidence.

use crate::NOT_ON_A_GPU;
use crate::decision::{Beside, decision, headline};
use crate::material::Material;
use crate::rows::{HEAD, cells, figure, worst_check};
use crate::speed::speed;
use crate::summary::{next_step, overall, place, short, word};
use warpsmith_spec::record::{ResultRecord, RunRecord, Severity, VerdictWord};

/// The whole report. Cells are escaped: a candidate's name or message cannot break out of its table.
pub fn markdown(material: &Material) -> String {
    let record = material.record;
    let mut text = format!(
        "# {}\n\n**{}**\n\n{}.\n\n",
        escape(&record.run.name),
        escape(&headline(record).1),
        overall(record).sentence()
    );
    text.extend(Beside::of(&record.results).sentence().map(|s| format!("{}\n\n", escape(&s))));
    let fastest = crate::chosen::chosen(record).and_then(|c| c.sentence);
    text.extend(fastest.map(|s| format!("{}.\n\n", escape(&s))));
    text.extend(decision(record).map(|d| format!("**Merge?** {}.\n\n", escape(&d))));
    text.push_str(&format!("{}\n\n", escape(&next_step(record))));
    for note in &material.notes {
        text.push_str(&format!("> {}\n\n", escape(note)));
    }
    conditions(record, &mut text);
    speed_section(record, &mut text);
    results(record, &mut text);
    profiles(record, &mut text);
    findings("Findings", record.results.iter().filter(|r| r.verdict != VerdictWord::Passed), &mut text);
    findings("Shown because they must fail", record.examples.iter(), &mut text);
    evidence(record, &mut text);
    proved(material, &mut text);
    not_applicable(record, &mut text);
    accept(record, &mut text);
    reproduce(material, &mut text);
    text
}

/// What is proved and what is not, the same list for every run.
fn proved(material: &Material, text: &mut String) {
    text.push_str("## What is proved, and what is not\n\n| claim | status | how far | shown by |\n|---|---|---|---|\n");
    for cells in crate::claims::rows(material) {
        text.push_str(&row(cells.into_iter()));
    }
    text.push('\n');
}

fn reproduce(material: &Material, text: &mut String) {
    text.push_str("## Next, and how to reproduce\n\n");
    for step in crate::next::next_steps(material) {
        text.push_str(&format!("{}\n\n```\n{}\n```\n\n", escape(&step.why), step.command.replace("```", "")));
    }
    let command = crate::next::typed(&material.record.run.command);
    text.push_str(&format!("This run was made by\n\n```\n{}\n```\n", command.replace("```", "")));
}

fn conditions(record: &RunRecord, text: &mut String) {
    let mut line = |name: &str, value: String| text.push_str(&format!("- {name}: {value}\n"));
    line("started", record.run.started.clone());
    line("warpsmith", record.run.warpsmith.clone());
    if let Some(commit) = &record.run.git_commit {
        let state = if record.run.git_dirty == Some(true) { ", with uncommitted changes" } else { "" };
        line("git commit", format!("{commit}{state}"));
    }
    line("host", format!("{} {}, {} cores", record.environment.os, record.environment.arch, record.environment.cpus));
    line("compiler", record.environment.toolkit.clone().unwrap_or_else(|| "none was needed".into()));
    if let Some(card) = &record.environment.card {
        line("card", format!("{}, driver {}", card.uuid, card.driver));
    }
    line("device", record.environment.device.clone().unwrap_or_else(|| format!("none: what passed is {NOT_ON_A_GPU}")));
    text.push('\n');
}

fn results(record: &RunRecord, text: &mut String) {
    if record.results.is_empty() {
        return;
    }
    text.push_str("## Results\n\n");
    text.push_str(&row(HEAD.iter().map(ToString::to_string)));
    text.push_str(&row(HEAD.iter().map(|_| "---".to_string())));
    for result in &record.results {
        text.push_str(&row(cells(result, &record.results).into_iter()));
    }
    text.push_str("\nrelF and worst row are relative errors against f64 on the quantised inputs; the limits are a factor of what an honest kernel errs on the same inputs. ");
    text.push_str("A time appears only where a GPU was measured.\n\n");
}

/// Gate 4, if it was run.
fn profiles(record: &RunRecord, text: &mut String) {
    let rows = crate::profile::rows(record);
    if rows.is_empty() {
        return;
    }
    text.push_str("## What bounds it, and what to try\n\n| kernel | shape | bound by | try first | hardware counters |\n|---|---|---|---|---|\n");
    for cells in rows {
        text.push_str(&row(cells.into_iter()));
    }
    text.push('\n');
}

/// Gate 3, if it was run.
fn speed_section(record: &RunRecord, text: &mut String) {
    let Some(speed) = speed(record) else { return };
    text.push_str(&format!("## {}\n\n", speed.title));
    text.extend(speed.conditions.iter().map(|c| format!("- {}\n", escape(c))));
    text.push('\n');
    let rule = vec!["---".to_string(); speed.head.len()];
    text.push_str(&row(speed.head.into_iter()));
    text.push_str(&row(rule.into_iter()));
    speed.rows.into_iter().for_each(|cells| text.push_str(&row(cells.into_iter())));
    text.push('\n');
    text.extend(speed.below.iter().map(|line| format!("- {}\n", escape(line))));
    text.push('\n');
}

fn findings<'a>(title: &str, results: impl Iterator<Item = &'a ResultRecord>, text: &mut String) {
    let mut started = false;
    for result in results {
        for finding in &result.findings {
            if !std::mem::replace(&mut started, true) {
                text.push_str(&format!("## {title}\n\n"));
            }
            let level = if finding.severity == Severity::Error { "error" } else { "note" };
            text.push_str(&format!(
                "- **{}** on {}{}: {} `{}`{}: {}\n",
                escape(&short(result)),
                escape(&result.shape),
                if result.causal { ", causal" } else { "" },
                level,
                finding.kind,
                escape(&place(finding.file.as_deref(), finding.line)),
                escape(&finding.message)
            ));
        }
        if result.findings.is_empty() && result.verdict != VerdictWord::Passed {
            text.push_str(&format!("- **{}**: {}\n", escape(&short(result)), word(result.verdict)));
        }
    }
    if started {
        text.push('\n');
    }
}

fn evidence(record: &RunRecord, text: &mut String) {
    let judged: Vec<_> = record.results.iter().filter(|r| r.execution.is_some() || r.check.is_some()).collect();
    if judged.is_empty() {
        return;
    }
    text.push_str("## Evidence\n\n| kernel | shape | mask | warp instructions | tensor operations | coverage | end to end relF / limit | tensor opcodes |\n|---|---|---|---|---|---|---|---|\n");
    for result in judged {
        let run = result.execution.clone().unwrap_or_default();
        let end = worst_check(result).map_or("-".into(), |c| {
            format!("{} / {}", figure(c.end_to_end.rel_frobenius), figure(c.end_to_end.limit_rel_frobenius))
        });
        let opcodes: Vec<_> = result
            .compile
            .iter()
            .flat_map(|(target, entries)| {
                entries.values().flat_map(move |e| e.tensor_ops.iter().map(move |(op, n)| format!("{target} {op} {n}")))
            })
            .collect();
        text.push_str(&row([
            short(result),
            result.shape.clone(),
            if result.causal { "causal" } else { "none" }.into(),
            run.warp_instructions.to_string(),
            run.tensor_ops.to_string(),
            format!("{} of {}", run.covered_instructions, run.static_instructions),
            end,
            if opcodes.is_empty() { "none".into() } else { opcodes.join(", ") },
        ]
        .into_iter()));
    }
    text.push('\n');
}

fn not_applicable(record: &RunRecord, text: &mut String) {
    if record.not_applicable.is_empty() {
        return;
    }
    text.push_str("## Not applicable\n\n");
    for entry in &record.not_applicable {
        text.push_str(&format!("- {} {}: {}\n", escape(&entry.candidate), escape(&entry.shape), escape(&entry.why)));
    }
    text.push('\n');
}

fn accept(record: &RunRecord, text: &mut String) {
    if record.accept.is_empty() {
        return;
    }
    text.push_str("## Criteria\n\n| criterion | target | actual | status |\n|---|---|---|---|\n");
    for c in &record.accept {
        let actual = c.actual.map_or("-".into(), |a| a.to_string());
        text.push_str(&row([c.criterion.clone(), c.target.clone(), actual, c.status.clone()].into_iter()));
    }
    text.push('\n');
}

fn row(cells: impl Iterator<Item = String>) -> String {
    let cells: Vec<_> = cells.map(|c| escape(&c)).collect();
    format!("| {} |\n", cells.join(" | "))
}

/// Names and messages may come from a hostile candidate: no markup of theirs reaches the page.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\r' => out.push(' '),
            '|' | '*' | '_' | '<' | '>' | '[' | ']' | '#' if c != '_' || !out.ends_with(char::is_alphanumeric) => {
                out.push('\\');
                out.push(c);
            }
            c if c.is_control() => {}
            c => out.push(c),
        }
    }
    out
}
