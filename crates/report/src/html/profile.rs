//! What bounds each kernel and what to try: bound with its proof, levers, occupancy, phases, counters beside their targets.
//!
//! Shares of work by phase come from the PTX machine and say so; time only from ncu's samples. It makes no time of a profile.

use super::markup::{Column, count, details, esc, figure, prose, table, word};
use super::svg::bar;
use crate::material::Material;
use crate::profile::by;
use crate::summary::short;
use std::collections::BTreeMap;
use warpsmith_spec::record::{ProfileRecord, ResultRecord};

/// Profiles that are shown in full.
const MAX_PROFILES: usize = 40;
/// Profiles up to which none is folded.
const OPEN: usize = 2;
/// SASS opcodes of an entry that are shown.
const MAX_OPCODES: usize = 10;

pub(super) fn section(material: &Material) -> String {
    let profiled: Vec<(&ResultRecord, &ProfileRecord)> =
        material.record.results.iter().filter_map(|r| Some((r, r.profile.as_deref()?))).collect();
    if profiled.is_empty() {
        return not_asked(material);
    }
    let mut text = if profiled.len() > 1 { summary(&profiled) } else { String::new() };
    let mut told: BTreeMap<&str, ()> = BTreeMap::new();
    for (_, p) in &profiled {
        if let Some(u) = &p.unavailable
            && told.insert(&u.code, ()).is_none()
        {
            text.push_str(&format!(
                "<p class=\"warn\">\u{25d0} No hardware counters: {}. <b>Next:</b> {} (<code>warpsmith explain {}</code>)</p>\n",
                prose(&u.why),
                prose(&u.next),
                esc(&u.code)
            ));
        }
    }
    for (r, p) in profiled.iter().take(MAX_PROFILES) {
        let mask = if r.causal { ", causal" } else { "" };
        let title = format!("{} at {}{mask}, {}", esc(&short(r)), esc(&r.shape), esc(&r.target));
        // A few are read, many are looked up.
        let shown = profiled.len() <= OPEN;
        text.push_str(&if shown { format!("<h3>{title}</h3>\n{}", one(p)) } else { details(&title, &one(p)) });
    }
    if profiled.len() > MAX_PROFILES {
        text.push_str(&format!("<p>{} more profiles are in summary.json.</p>\n", profiled.len() - MAX_PROFILES));
    }
    text
}

/// Times without a reason: who asks why finds the command.
fn not_asked(material: &Material) -> String {
    let results = &material.record.results;
    let timed = results.iter().any(|r| crate::measured::measured(r).is_some_and(|m| !m.replayed));
    let Some(chosen) = crate::chosen::chosen(material.record).filter(|_| timed) else {
        return String::new();
    };
    format!(
        "<p>This run took times and asked for no reasons. <code>warpsmith profile {} --shapes {}</code> says what bounds the kernel, phase by phase, and what to try: by hardware counters where they may be read, else by the work that it executes. How near the times come to the device's ceilings stands under Roofline.</p>\n",
        esc(&chosen.subject),
        esc(&chosen.shape)
    )
}

/// A row for each profile: bound, and the first lever.
fn summary(profiled: &[(&ResultRecord, &ProfileRecord)]) -> String {
    let rows = profiled.iter().take(MAX_PROFILES).map(|(r, p)| {
        let mask = if r.causal { ", causal" } else { "" };
        let bound = p.bound.as_ref().map_or("-".into(), |b| {
            format!(
                "<b>{}</b>: {} <span class=\"muted\">({})</span>",
                esc(&b.word.replace('_', " ")),
                esc(&b.why),
                by(&b.source)
            )
        });
        let lever = p.advice.first().map_or("nothing that the rules know".into(), |a| {
            format!(
                "{} <span class=\"muted\">({} to {}x, {})</span>",
                esc(&a.title),
                a.gain[0],
                a.gain[1],
                esc(&a.effort)
            )
        });
        vec![esc(&short(r)), format!("{}{mask}", esc(&r.shape)), bound, lever]
    });
    table(
        "What keeps each kernel from being faster, and what to try first",
        &[("kernel", Column::Text), ("shape", Column::Text), ("bound by", Column::Text), ("try first", Column::Text)],
        rows,
    )
}

fn one(p: &ProfileRecord) -> String {
    let mut text = String::new();
    if let Some(b) = &p.bound {
        text.push_str(&format!(
            "<p><b>Bound by {}</b> ({}): {}. Shown by {}.</p>\n",
            esc(&b.word.replace('_', " ")),
            by(&b.source),
            esc(&b.why),
            proof(&b.proof)
        ));
    }
    if !p.advice.is_empty() {
        let rows = p.advice.iter().map(|a| {
            let gain = format!("{} to {}x", a.gain[0], a.gain[1]);
            vec![esc(&a.title), esc(&a.why), gain, esc(&a.effort), proof(&a.proof)]
        });
        let head = [
            ("lever", Column::Text),
            ("why", Column::Text),
            ("expected gain", Column::Number),
            ("effort", Column::Text),
            ("figures", Column::Text),
        ];
        text.push_str(&table("What to try, the most promising first (old time / new time)", &head, rows));
    }
    text.push_str(&phases(p));
    for note in &p.notes {
        text.push_str(&format!("<p class=\"muted\">{}</p>\n", prose(note)));
    }
    text.push_str(&entries(p));
    text.push_str(&counters(p));
    text
}

fn proof(figures: &BTreeMap<String, f64>) -> String {
    let words: Vec<String> = figures.iter().map(|(n, v)| format!("<code>{}</code> {}", esc(n), figure(*v))).collect();
    words.join(", ")
}

fn phases(p: &ProfileRecord) -> String {
    if p.phases.is_empty() {
        return String::new();
    }
    let share = |x: f64| match x {
        0.0 => "<span class=\"muted\">-</span>".to_string(),
        x => format!("{}{:.0}%", bar(x, None, false), x * 100.0),
    };
    let sampled = p.phases.iter().any(|p| p.time.is_some());
    let rows = p.phases.iter().map(|p| {
        let mut row =
            vec![esc(&p.phase), share(p.issue_slots), share(p.tensor_ops), share(p.bytes), share(p.bank_conflicts)];
        if sampled {
            row.push(p.time.map_or("-".into(), share));
            row.push(p.amdahl.map_or("-".into(), |a| format!("{a:.2}x")));
        }
        row
    });
    let mut head = vec![
        ("phase", Column::Text),
        ("issue slots", Column::Bar),
        ("tensor operations", Column::Bar),
        ("bytes moved", Column::Bar),
        ("bank conflicts", Column::Bar),
    ];
    if sampled {
        head.extend([("time (ncu's samples)", Column::Bar), ("gain at most", Column::Number)]);
    }
    let caption = if sampled {
        "By phase: work as the PTX machine counted it, time by ncu's samples; the gain if that phase took no time at all"
    } else {
        "Work by phase, as the PTX machine counted it; it has no time, and without samples there is none"
    };
    table(caption, &head, rows)
}

fn entries(p: &ProfileRecord) -> String {
    let rows = p.entries.iter().map(|e| {
        let (fits, limit, waves) = match &e.occupancy {
            Some(o) => (
                format!("{} of {} warps ({} CTAs)", o.warps, o.max_warps, o.ctas),
                esc(&o.limit),
                o.waves.map_or("-".into(), figure),
            ),
            None => ("-".into(), "-".into(), "-".into()),
        };
        let mut sass: Vec<(&String, &u64)> = e.sass.iter().collect();
        sass.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
        let sass: Vec<String> =
            sass.iter().take(MAX_OPCODES).map(|(op, n)| format!("{} &times; {n}", esc(op))).collect();
        vec![
            format!("<code>{}</code>", esc(&e.entry)),
            e.threads.to_string(),
            e.registers.to_string(),
            count(e.shared_bytes),
            fits,
            limit,
            waves,
            if sass.is_empty() { "no machine code here".into() } else { sass.join(", ") },
        ]
    });
    if p.entries.is_empty() {
        return String::new();
    }
    let head = [
        ("entry", Column::Text),
        ("threads", Column::Number),
        ("registers", Column::Number),
        ("shared, B", Column::Number),
        ("fits a multiprocessor", Column::Text),
        ("limited by", Column::Text),
        ("waves", Column::Number),
        ("machine code", Column::Text),
    ];
    table("Theoretical occupancy, and what the machine code consists of", &head, rows)
}

/// As ncu says it; whole numbers with their thousands apart.
fn value(value: f64, unit: &str) -> String {
    let number =
        if value.fract() == 0.0 && (0.0..1e15).contains(&value) { count(value as u64) } else { value.to_string() };
    format!("{number} {}", esc(unit)).trim_end().to_string()
}

fn counters(p: &ProfileRecord) -> String {
    let mut text = String::new();
    for launch in &p.counters {
        let rows = launch.counters.iter().map(|c| {
            let target = match (&c.target, c.met) {
                (Some(t), Some(met)) => {
                    format!("<span class=\"nw\">{} {}</span>", word(if met { "held" } else { "missed" }), esc(t))
                }
                _ => "-".into(),
            };
            vec![esc(&c.title), value(c.value, &c.unit), target, format!("<code>{}</code>", esc(&c.metric))]
        });
        let caption = format!(
            "Counters of {} (grid {}, block {}), by {}{}",
            launch.kernel,
            launch.grid,
            launch.block,
            p.tool.as_deref().unwrap_or("ncu, imported"),
            p.device.as_ref().map_or(String::new(), |d| format!(" on {d}"))
        );
        let head =
            [("counter", Column::Text), ("value", Column::Number), ("target", Column::Text), ("metric", Column::Text)];
        text.push_str(&table(&caption, &head, rows));
    }
    if let Some(file) = p.files.iter().find(|f| f.ends_with(".ncu-rep")).or(p.files.first()) {
        text.push_str(&format!("<p>ncu's own report is kept as <code>{}</code>.</p>\n", esc(file)));
    }
    text
}
