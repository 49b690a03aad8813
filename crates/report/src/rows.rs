//! One result as the cells that every table shows.

use crate::summary::{short, word};
use warpsmith_spec::record::{CheckRecord, GateStatus, ResultRecord};

pub(crate) const HEAD: [&str; 11] = [
    "kernel",
    "shape",
    "dims",
    "mask",
    "inputs",
    "compile",
    "correct",
    "relF / limit",
    "worst row / limit",
    "regs, shared, spills",
    "verdict",
];

/// `all` are the results of the table: what differs among those of one kernel stands in its name.
pub(crate) fn cells(result: &ResultRecord, all: &[ResultRecord]) -> [String; 11] {
    let dims: Vec<_> = ["B", "H", "Hq", "Hkv", "S", "Sq", "Sk", "D"]
        .iter()
        .filter_map(|s| result.symbols.get(*s))
        .map(ToString::to_string)
        .collect();
    let dims = if dims.is_empty() {
        result.symbols.iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>().join(" ")
    } else {
        dims.join(" ")
    };
    let check = worst_check(result);
    [
        name(result, all),
        result.shape.clone(),
        dims,
        if result.causal { "causal" } else { "none" }.into(),
        inputs(result),
        status(result.gates.compile).into(),
        status(result.gates.correctness).into(),
        check.map_or("-".into(), |c| pair(c.kernel.rel_frobenius, c.kernel.limit_rel_frobenius)),
        check.map_or("-".into(), |c| pair(c.kernel.worst_row, c.kernel.limit_worst_row)),
        resources(result),
        word(result.verdict).into(),
    ]
}

/// The kernel with its configuration, or with the levers in which it differs from other results of the same kernel.
fn name(result: &ResultRecord, all: &[ResultRecord]) -> String {
    let mut text = short(result);
    if result.config.is_none() {
        let same = || all.iter().filter(|r| r.candidate == result.candidate);
        for (lever, value) in &result.levers {
            if same().any(|r| r.levers.get(lever) != Some(value)) {
                text.push_str(&format!(" {lever}={value}"));
            }
        }
    }
    text
}

/// Format and distribution, and what differs from the usual: scales per head, seed 0.
fn inputs(result: &ResultRecord) -> String {
    let mut text = format!("{} {}", result.format, result.distribution);
    if !matches!(result.scales.as_str(), "head" | "none") {
        text.push_str(&format!(" {}", result.scales));
    }
    if result.seed != 0 {
        text.push_str(&format!(" seed {}", result.seed));
    }
    text.push_str(&variant(result));
    text
}

/// Layout, format of outputs and optional outputs, after a comma; nothing where the task has none.
pub(crate) fn variant(result: &ResultRecord) -> String {
    let text = result.variant.to_string();
    if text.is_empty() { text } else { format!(", {text}") }
}

/// The output that comes closest to, or exceeds, its limit.
pub(crate) fn worst_check(result: &ResultRecord) -> Option<&CheckRecord> {
    let score = |c: &CheckRecord| c.kernel.rel_frobenius / c.kernel.limit_rel_frobenius.max(f64::MIN_POSITIVE);
    result.check.as_ref()?.values().max_by(|a, b| score(a).total_cmp(&score(b)))
}

fn pair(value: f64, limit: f64) -> String {
    format!("{} / {}", figure(value), figure(limit))
}

/// Four places, or a power of ten where those would all be zero.
pub(crate) fn figure(value: f64) -> String {
    if value != 0.0 && value.abs() < 5e-4 { format!("{value:.1e}") } else { format!("{value:.4}") }
}

/// Registers, shared memory and spills of the judged target, the largest over its entries.
pub(crate) fn resources(result: &ResultRecord) -> String {
    let Some(entries) = result.compile.get(&result.target).filter(|e| !e.is_empty()) else { return "-".into() };
    let registers = entries.values().map(|e| e.registers).max().unwrap_or(0);
    let shared =
        entries.values().map(|e| u64::from(e.shared_bytes) + e.dynamic_shared_bytes.unwrap_or(0)).max().unwrap_or(0);
    let spills = entries.values().map(|e| e.spill_bytes).max().unwrap_or(0);
    format!("{registers}, {shared} B, {spills}")
}

pub(crate) fn status(status: GateStatus) -> &'static str {
    match status {
        GateStatus::Passed => "passed",
        GateStatus::Failed => "failed",
        GateStatus::Blocked => "blocked",
        GateStatus::NotRun => "not_run",
        GateStatus::Unavailable => "unavailable",
    }
}
