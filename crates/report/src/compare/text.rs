//! A comparison as a terminal shows it: conditions first, then a row for each pair, then what it comes to.

use super::pairs::{Outputs, Pair};
use super::{Comparison, RuleStatus, SpeedClass};
use crate::rows::figure;
use crate::summary::word;
use comfy_table::{ContentArrangement, Table, presets};
use std::fmt::Display;

/// Names that are listed before "and so many more".
const LISTED: usize = 6;

pub fn comparison_text(c: &Comparison) -> String {
    let mut text = format!("old: {}\nnew: {}\n", c.old, c.new);
    for d in &c.unequal {
        text.push_str(&format!("unequal: {}: {} and {}\n", d.what, d.old, d.new));
    }
    if !c.pairs.is_empty() {
        text.push('\n');
        text.push_str(&table(c));
    }
    for (what, list) in [("only in old", &c.only_old), ("only in new", &c.only_new)] {
        if !list.is_empty() {
            let more = if list.len() > LISTED { format!(", and {} more", list.len() - LISTED) } else { String::new() };
            text.push_str(&format!(
                "{what}: {}{more}\n",
                list.iter().take(LISTED).cloned().collect::<Vec<_>>().join("; ")
            ));
        }
    }
    text.push_str(&sentence(c));
    for p in &c.pairs {
        text.extend(p.explained.iter().map(|e| super::explained::line(&p.label(), e)));
    }
    for p in c.lost() {
        text.push_str(&format!("lost: {} was passed and is {}\n", p.label(), word(p.new_verdict)));
    }
    for r in &c.rules {
        text.push_str(&match r.status {
            RuleStatus::Held => format!("--fail-if '{}': held\n", r.rule),
            RuleStatus::NotRun => format!("--fail-if '{}': not judged, no pair has the figure\n", r.rule),
            RuleStatus::Missed => format!("--fail-if '{}': MISSED by {}\n", r.rule, r.broken_by.join(", ")),
        });
    }
    text
}

fn sentence(c: &Comparison) -> String {
    let count =
        |class: SpeedClass| c.pairs.iter().filter(|p| p.speed.as_ref().is_some_and(|s| s.class == class)).count();
    let timed = c.pairs.iter().filter(|p| p.speed.is_some()).count();
    let same = c.pairs.iter().filter(|p| p.outputs == Outputs::Identical).count();
    let times = if timed == 0 {
        "no times to compare".to_string()
    } else {
        let what = if c.pairs.iter().any(|p| p.speed.as_ref().is_some_and(|s| s.replayed)) {
            " (replayed figures, no times)"
        } else {
            ""
        };
        format!(
            "{} faster, {} slower, {} ambiguous{what}",
            count(SpeedClass::Faster),
            count(SpeedClass::Slower),
            count(SpeedClass::Ambiguous)
        )
    };
    format!("\n{} pairs: {times}; outputs bit-identical in {same}\n", c.pairs.len())
}

fn table(c: &Comparison) -> String {
    let timed = c.pairs.iter().any(|p| p.speed.is_some());
    let mut head = vec!["kernel", "shape", "mask", "verdict"];
    if timed {
        head.extend(["old us", "new us", "old / new (95%)", "class"]);
    }
    head.extend(["relF", "outputs", "registers", "shared B", "spills B", "warp instructions", "tensor opcodes"]);
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled).set_header(head);
    for p in &c.pairs {
        table.add_row(row(p, timed));
    }
    table.lines().map(|l| format!("{}\n", l.trim_end().strip_prefix(' ').unwrap_or(l.trim_end()))).collect()
}

fn row(p: &Pair, timed: bool) -> Vec<String> {
    let mut cells = vec![
        p.kernel.clone(),
        p.shape.clone(),
        if p.causal { "causal" } else { "none" }.into(),
        change(&Some((word(p.old_verdict), word(p.new_verdict)))),
    ];
    if timed {
        cells.extend(match &p.speed {
            Some(s) => [
                figure(s.old_us),
                figure(s.new_us),
                format!("{:.3} ({:.3} to {:.3})", s.ratio, s.ratio_low, s.ratio_high),
                format!("{}, {}", s.class.word(), percent(s.ratio)),
            ],
            None => ["-".into(), "-".into(), "-".into(), "not timed".into()],
        });
    }
    cells.push(change(&p.rel_frobenius.map(|(a, b)| (figure(a), figure(b)))));
    cells.push(match &p.outputs {
        Outputs::Identical => "identical".into(),
        Outputs::Differ { at_most } => format!("differ, at most {}", figure(*at_most)),
        Outputs::Unknown => "-".into(),
    });
    cells.push(change(&p.registers));
    cells.push(change(&p.shared_bytes));
    cells.push(change(&p.spill_bytes));
    cells.push(change(&p.warp_instructions));
    cells.push(if p.tensor_ops.is_empty() {
        "same".into()
    } else {
        p.tensor_ops.iter().map(|(op, (a, b))| format!("{op} {a} -> {b}")).collect::<Vec<_>>().join(", ")
    });
    cells
}

/// A percentage says of what.
fn percent(ratio: f64) -> String {
    let share = (1.0 / ratio - 1.0) * 100.0;
    if share <= 0.0 { format!("{:.1}% less time than old", -share) } else { format!("{share:.1}% more time than old") }
}

fn change<T: Display + PartialEq>(change: &Option<(T, T)>) -> String {
    match change {
        None => "-".into(),
        Some((a, b)) if a == b => a.to_string(),
        Some((a, b)) => format!("{a} -> {b}"),
    }
}
