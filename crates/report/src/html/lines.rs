//! What was executed, as the PTX machine counted it: instructions by opcode, launch by launch, and by source line with bank conflicts and
//! coalescing beside the text, where the record has them (gate 4 and `exec` count them).

use super::markup::{Column, count, esc, table};
use super::svg::bar;
use crate::material::Material;
use warpsmith_spec::record::{LineRecord, ProfileRecord, ResultRecord};

/// Source lines of one kernel that are shown.
const MAX_LINES: usize = 24;
/// Characters of a source line.
const MAX_TEXT: usize = 110;

/// Opcodes of one launch that are shown.
const MAX_OPCODES: usize = 12;

/// The mix of the result that executed most. Nothing where the record has none.
pub(super) fn section(material: &Material, results: &[&ResultRecord]) -> String {
    let executed =
        results.iter().filter_map(|r| r.execution.as_ref().map(|e| (*r, e))).filter(|(_, e)| !e.launches.is_empty());
    let Some((r, execution)) = executed.max_by_key(|(_, e)| e.warp_instructions) else { return String::new() };
    let mut text = String::new();
    for (n, launch) in execution.launches.iter().enumerate() {
        let mut opcodes: Vec<(&String, u64)> = launch.opcodes.iter().map(|(op, n)| (op, *n)).collect();
        opcodes.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
        let all: u64 = opcodes.iter().map(|(_, n)| n).sum();
        if all == 0 {
            continue;
        }
        let rest: u64 = opcodes.iter().skip(MAX_OPCODES).map(|(_, n)| n).sum();
        let row = |name: String, n: u64| {
            let share = n as f64 / all as f64;
            vec![name, count(n), format!("{}{:.1}%", bar(share, None, false), share * 100.0)]
        };
        let mut rows: Vec<Vec<String>> =
            opcodes.iter().take(MAX_OPCODES).map(|(op, n)| row(format!("<code>{}</code>", esc(op)), *n)).collect();
        if rest > 0 {
            rows.push(row(format!("{} others", opcodes.len() - MAX_OPCODES), rest));
        }
        let mask = if r.causal { ", causal" } else { "" };
        let caption =
            format!("Launch {} ({}) at {}{mask}: warp instructions by PTX opcode", n + 1, launch.entry, r.shape);
        text.push_str(&table(
            &caption,
            &[("opcode", Column::Text), ("warp instructions", Column::Number), ("share", Column::Bar)],
            rows,
        ));
    }
    text.push_str(&by_line(material, r, &execution.lines));
    text
}

/// The lines that cost most, each with its text.
fn by_line(material: &Material, r: &ResultRecord, lines: &[LineRecord]) -> String {
    let all: u64 = lines.iter().map(|l| l.warp_instructions).sum();
    let mut shown: Vec<&LineRecord> = lines.iter().filter(|l| l.line.is_some()).collect();
    // What is executed often, and what takes turns at the banks, however seldom it is executed.
    shown.sort_by_key(|l| std::cmp::Reverse(l.warp_instructions + 8 * conflicts(l)));
    shown.truncate(MAX_LINES);
    if shown.is_empty() || all == 0 {
        return String::new();
    }
    let profile: Option<&ProfileRecord> = r.profile.as_deref();
    let sampled = profile.is_some_and(|p| !p.samples.is_empty());
    let samples: u64 = profile.map_or(0, |p| p.samples.iter().map(|s| s.samples).sum());
    let rows = shown.iter().map(|l| {
        let file = l.file.as_deref().unwrap_or(&r.candidate);
        let base = file.rsplit(['/', '\\']).next().unwrap_or(file);
        let number = l.line.unwrap_or(0);
        let source = material.source(r, file).and_then(|(_, text)| text.lines().nth(number.saturating_sub(1) as usize));
        let source: String = source.unwrap_or("").trim().chars().take(MAX_TEXT).collect();
        let share = l.warp_instructions as f64 / all as f64;
        let mut row = vec![
            format!("{}:{number}", esc(base)),
            format!("<code>{}</code>", esc(&source)),
            format!("{}{:.1}%", bar(share, None, false), share * 100.0),
            banks(l),
            sectors(l),
        ];
        if sampled {
            let here = profile.into_iter().flat_map(|p| &p.samples).filter(|s| {
                s.line == l.line && s.file.as_deref().is_none_or(|f| f.rsplit(['/', '\\']).next() == Some(base))
            });
            let (mut n, mut why) = (0, None);
            for s in here {
                n += s.samples;
                why = why.or(s.stalls.first().map(|(reason, _)| reason.clone()));
            }
            let why = why.map_or(String::new(), |w| format!(" ({})", esc(&w.replace('_', " "))));
            row.push(if n > 0 { format!("{:.1}%{why}", 100.0 * n as f64 / samples.max(1) as f64) } else { "-".into() });
        }
        row
    });
    let mut head = vec![
        ("line", Column::Text),
        ("source", Column::Text),
        ("issue slots", Column::Bar),
        ("shared memory: wavefronts, of these bank conflicts", Column::Text),
        ("global memory: sectors, of these used", Column::Text),
    ];
    if sampled {
        head.push(("ncu's samples, main stall", Column::Text));
    }
    table("The lines that were executed most, as the PTX machine counted them", &head, rows)
}

fn conflicts(l: &LineRecord) -> u64 {
    l.traffic.shared_wavefronts.saturating_sub(l.traffic.shared_ideal)
}

fn banks(l: &LineRecord) -> String {
    let (all, over) = (l.traffic.shared_wavefronts, conflicts(l));
    match (all, over) {
        (0, _) => "-".into(),
        (all, 0) => format!("{}, none", count(all)),
        (all, over) => {
            let share = 100.0 * over as f64 / all as f64;
            format!("{}, <span class=\"warn\">\u{25d0} {} ({share:.0}%)</span>", count(all), count(over))
        }
    }
}

fn sectors(l: &LineRecord) -> String {
    match l.traffic.global_sectors {
        0 => "-".into(),
        all => {
            let used = (100.0 * l.traffic.global_ideal as f64 / all as f64).min(100.0);
            let text = format!("{}, {used:.0}%", count(all));
            if used < 70.0 { format!("<span class=\"warn\">\u{25d0} {text}</span>") } else { text }
        }
    }
}
