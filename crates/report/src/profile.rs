//! Gate 4 for a terminal and for Markdown: what bounds a kernel, what to try, counters beside their targets, work by phase.
//!
//! Pure functions. Profiles hold no time, and nothing here makes one.

use crate::summary::short;
use warpsmith_spec::record::{GateStatus, ProfileRecord, ResultRecord, RunRecord};

/// Profiles that a screen shows in full; the record has all.
const MAX_PROFILES: usize = 6;

/// All profiles of a run, for a terminal. Nothing where gate 4 did not run.
pub(crate) fn section(record: &RunRecord) -> String {
    let profiled = || record.results.iter().filter_map(|r| Some((r, r.profile.as_deref()?)));
    let mut text = String::new();
    for (result, profile) in profiled().take(MAX_PROFILES) {
        let mask = if result.causal { "causal" } else { "no mask" };
        text.push_str(&format!("\n{} ({}, {mask}, {}):\n", short(result), result.shape, result.target));
        text.push_str(&profile_text(profile));
    }
    let more = profiled().count().saturating_sub(MAX_PROFILES);
    if more > 0 {
        text.push_str(&format!("\n... and {more} more profiles in summary.json and report.html\n"));
    }
    text
}

/// One profile.
pub fn profile_text(profile: &ProfileRecord) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String| text.push_str(&format!("  {name:<10} {value}\n"));
    if let Some(bound) = &profile.bound {
        line("bound", format!("{} ({}): {}", bound.word.replace('_', " "), by(&bound.source), bound.why));
    }
    for (n, advice) in profile.advice.iter().enumerate() {
        line(
            if n == 0 { "try" } else { "" },
            format!(
                "{}: {}; expected {} to {}x, {}",
                advice.title, advice.why, advice.gain[0], advice.gain[1], advice.effort
            ),
        );
    }
    for e in &profile.entries {
        if let Some(o) = &e.occupancy {
            let waves = o.waves.map_or(String::new(), |w| format!(", {w:.2} waves"));
            line(
                "occupancy",
                format!(
                    "{}: {} of {} warps ({} CTAs), limited by {}{waves}",
                    e.entry, o.warps, o.max_warps, o.ctas, o.limit
                ),
            );
        }
    }
    for p in &profile.phases {
        let time = p.time.map_or(String::new(), |t| format!(", {:.0}% of the samples", t * 100.0));
        line(
            "phase",
            format!(
                "{}: {:.0}% of issue slots, {:.0}% of tensor operations, {:.0}% of bytes, {:.0}% of bank conflicts{time}",
                p.phase,
                p.issue_slots * 100.0,
                p.tensor_ops * 100.0,
                p.bytes * 100.0,
                p.bank_conflicts * 100.0
            ),
        );
    }
    for launch in profile.counters.iter().take(1) {
        for c in &launch.counters {
            let target = match (&c.target, c.met) {
                (Some(target), Some(true)) => format!("  ({target}: met)"),
                (Some(target), _) => format!("  ({target}: not met)"),
                _ => String::new(),
            };
            line("counter", format!("{}: {} {}{target}", c.title, c.value, c.unit));
        }
        if profile.counters.len() > 1 {
            line("", format!("of {}; {} launches were profiled", launch.kernel, profile.counters.len()));
        }
    }
    for note in &profile.notes {
        line("note", note.clone());
    }
    if let Some(u) = &profile.unavailable {
        line("counters", format!("unavailable: {}", u.why));
        line("next", u.next.clone());
        line("", format!("`warpsmith explain {}` says more", u.code));
    }
    text
}

/// Where a bound comes from.
pub(crate) fn by(source: &str) -> &'static str {
    match source {
        "counters" => "hardware counters",
        _ => "executed work, not measured",
    }
}

/// For Markdown: a table of what bounds each kernel, the first lever, and where its counters are. Cells unescaped.
pub(crate) fn rows(record: &RunRecord) -> Vec<[String; 5]> {
    let row = |r: &ResultRecord| {
        let p = r.profile.as_deref()?;
        let bound =
            p.bound.as_ref().map_or("-".into(), |b| format!("{} ({})", b.word.replace('_', " "), by(&b.source)));
        let lever = p.advice.first().map_or("-".into(), |a| format!("{} ({} to {}x)", a.title, a.gain[0], a.gain[1]));
        let counters = match (&p.unavailable, r.gates.profile) {
            (Some(u), _) => format!("unavailable: {}", u.why),
            (None, GateStatus::Passed) => p.tool.clone().unwrap_or_else(|| "imported".into()),
            _ => "-".into(),
        };
        let mask = if r.causal { ", causal" } else { "" };
        Some([short(r), format!("{}{mask}", r.shape), bound, lever, counters])
    };
    record.results.iter().filter_map(row).collect()
}
