//! What was executed, as the PTX machine counted it: instructions by opcode, launch by launch.
//!
//! Counters by source line (bank conflicts, coalescing) belong here too, once records carry them.

use super::markup::{Column, count, esc, table};
use super::svg::bar;
use crate::material::Material;
use warpsmith_spec::record::ResultRecord;

/// Opcodes of one launch that are shown.
const MAX_OPCODES: usize = 12;

/// The mix of the result that executed most. Nothing where the record has none.
pub(super) fn section(_material: &Material, results: &[&ResultRecord]) -> String {
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
    text
}
