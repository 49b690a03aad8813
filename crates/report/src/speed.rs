//! Gate 3 as the terminal and `report.md` show it: conditions first, then for each shape the time, and the ratio to each baseline with its
//! interval and class, the fastest peer beside the others.
//!
//! Where a file has replayed the figures (`backend: fake`) none of them is called a time.

use crate::summary::short;
use std::collections::BTreeSet;
use warpsmith_spec::record::{BaselineRecord, MeasurementRecord, ResultRecord, RunRecord, is_peer};
use warpsmith_spec::speedups::{BEST_PEER, best_peer};

/// What the tables are made of: sentences about the conditions, rows under a head, sentences below.
pub(crate) struct Speed {
    pub title: &'static str,
    pub conditions: Vec<String>,
    pub head: Vec<String>,
    pub rows: Vec<Vec<String>>,
    pub below: Vec<String>,
}

/// None: nothing was measured.
pub(crate) fn speed(record: &RunRecord) -> Option<Speed> {
    let measured: Vec<(&ResultRecord, &MeasurementRecord)> =
        record.results.iter().filter_map(|r| Some((r, r.measurement.as_ref()?))).collect();
    let (first, m) = measured.first()?;
    let fake = first.backend == "fake";
    let names = baselines(&measured);
    let what = if fake { "replayed us" } else { "us" };
    let mut head: Vec<String> = ["kernel", "shape", "mask"].map(String::from).to_vec();
    head.push(format!("{what}, {}", m.method));
    head.push("p10 - p90".into());
    head.extend(names.iter().map(|n| format!("vs {n}")));
    head.push("launches".into());
    Some(Speed {
        title: if fake { "Replayed figures (a fake backend; none of them is a time)" } else { "Speed" },
        conditions: conditions(&measured),
        rows: measured.iter().map(|(r, m)| row(r, m, &names)).collect(),
        head,
        below: below(record, &measured),
    })
}

/// Peers first, PyTorch's own choice before the others, our own levels last; those that are missing everywhere stand below the table.
fn baselines(measured: &[(&ResultRecord, &MeasurementRecord)]) -> Vec<String> {
    let found: BTreeSet<&String> = measured
        .iter()
        .flat_map(|(_, m)| m.baselines.iter().filter(|(_, b)| b.missing.is_none()).map(|(name, _)| name))
        .collect();
    let mut names: Vec<String> = found.into_iter().cloned().collect();
    names.sort_by_key(|n| (!is_peer(n), n != "sdpa:auto"));
    names
}

fn conditions(measured: &[(&ResultRecord, &MeasurementRecord)]) -> Vec<String> {
    let (_, m) = measured[0];
    let c = &m.conditions;
    let clocks: BTreeSet<u32> = measured.iter().filter_map(|(_, m)| m.conditions.sm_mhz).collect();
    let mut parts = vec![m.device.clone()];
    match (clocks.first(), clocks.last()) {
        (Some(low), Some(high)) if low != high => parts.push(format!("SM {low} to {high} MHz")),
        (Some(mhz), _) => parts.push(format!("SM {mhz} MHz")),
        _ => parts.push("clocks unknown".into()),
    }
    parts.extend(c.memory_mhz.map(|mhz| format!("memory {mhz} MHz")));
    parts.extend(c.power_w.map(|w| format!("{w:.0} W")));
    let reasons: BTreeSet<&str> =
        measured.iter().flat_map(|(_, m)| m.conditions.throttle_reasons.iter().map(String::as_str)).collect();
    let throttled = measured.iter().any(|(_, m)| m.conditions.throttled == Some(true));
    parts.push(match (throttled, m.conditions.throttled) {
        (true, _) => format!("clocks held down ({})", reasons.into_iter().collect::<Vec<_>>().join(", ")),
        (false, Some(_)) => "not throttled".into(),
        (false, None) => "throttling unknown".into(),
    });
    vec![parts.join(", "), format!("method {}: {}", m.method, method(&m.method))]
}

fn method(word: &str) -> &'static str {
    match word {
        "graph_cold" => "replays of a CUDA graph, every call on inputs that are not in L2",
        "graph_warm" => "replays of a CUDA graph, inputs in L2",
        "event" => "one launch between two events, L2 flushed",
        "eager" => "calls one after the other, the host's time",
        _ => "as the record says",
    }
}

fn row(r: &ResultRecord, m: &MeasurementRecord, names: &[String]) -> Vec<String> {
    let mask = if r.causal { "causal" } else { "none" };
    let mut cells = vec![short(r), r.shape.clone(), mask.to_string()];
    match m.methods.get(&m.method).filter(|t| t.n > 0) {
        Some(t) => cells.extend([us(t.median_us), format!("{} - {}", us(t.p10_us), us(t.p90_us))]),
        None => cells.extend(["-".to_string(), "-".to_string()]),
    }
    cells.extend(names.iter().map(|n| m.baselines.get(n).map_or("-".into(), ratio)));
    cells.push(match &m.stability {
        None => "-".into(),
        Some(s) if s.identical => format!("{}, same bits", s.launches),
        Some(s) => format!("{}, bits differ", s.launches),
    });
    cells
}

fn us(x: f64) -> String {
    if x < 100.0 { format!("{x:.2}") } else { format!("{x:.1}") }
}

/// `1.27 (1.26 - 1.28) modest`
fn ratio(b: &BaselineRecord) -> String {
    let Some(ratio) = b.ratio else { return if b.missing.is_some() { "missing".into() } else { "-".into() } };
    let interval = match (b.ratio_low, b.ratio_high) {
        (Some(low), Some(high)) => format!(" ({low:.2} - {high:.2})"),
        _ => String::new(),
    };
    let class = b.class.as_deref().unwrap_or("");
    // What cannot be told from the noise has to catch the eye.
    let class = if class == "ambiguous" { "AMBIGUOUS" } else { class };
    format!("{ratio:.2}{interval} {class}")
}

fn below(record: &RunRecord, measured: &[(&ResultRecord, &MeasurementRecord)]) -> Vec<String> {
    let mut lines =
        vec!["a ratio is the baseline's time / ours: above 1 we are faster; in brackets its 95% interval".to_string()];
    let mut missing = BTreeSet::new();
    for (_, m) in measured {
        missing
            .extend(m.baselines.iter().filter_map(|(n, b)| Some(format!("{n} is missing: {}", b.missing.as_ref()?))));
    }
    lines.extend(missing);
    let shown =
        |name: &str| if name == BEST_PEER { "the fastest peer of each result".to_string() } else { name.to_string() };
    for s in &record.speedups {
        let kernel = s.candidate.rsplit(['/', '\\']).next().unwrap_or(&s.candidate);
        let config = s.config.as_ref().map_or(String::new(), |c| format!(" {c}"));
        lines.push(format!(
            "{kernel}{config} against {}: geometric mean {:.2} over {} results, best {:.2} ({}), worst {:.2} ({})",
            shown(&s.baseline),
            s.geomean,
            s.results,
            s.best.ratio,
            s.best.shape,
            s.worst.ratio,
            s.worst.shape
        ));
    }
    for (r, _) in measured {
        if let Some((name, x)) = best_peer(r) {
            lines.push(format!(
                "fastest peer at {} {}: {name} ({} {x:.2})",
                r.shape,
                if r.causal { "causal" } else { "none" },
                short(r)
            ));
        }
    }
    // The same for every kernel of a workload is said once for each.
    let mut seen = BTreeSet::new();
    lines.retain(|l| seen.insert(l.clone()));
    let relied: BTreeSet<String> =
        measured.iter().filter_map(|(r, _)| r.check_of.as_ref().map(|c| format!("{} of {}", c.run, c.at))).collect();
    if !relied.is_empty() {
        lines.push(format!(
            "gate 2 relies on remembered checks of the same code: {}",
            relied.into_iter().collect::<Vec<_>>().join("; ")
        ));
    }
    if let Some(spread) = measured.iter().find_map(|(_, m)| m.between_machines.as_ref()) {
        lines.push(format!(
            "between two machines ratios may lie {:.0}% apart besides ({})",
            spread.relative * 100.0,
            spread.source
        ));
    }
    lines
}
