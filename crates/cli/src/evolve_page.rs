//! A loop's state as the rows of its page (`report.html`).

use std::collections::BTreeMap;
use warpsmith_evolve::archive::Status;
use warpsmith_evolve::event::Refusal;
use warpsmith_evolve::{EvolveRecord, Score, Solution, State};
use warpsmith_report::{Node, Search, search_html};

/// The whole page.
pub fn page(state: &State, record: &EvolveRecord) -> String {
    let best = record.best.as_ref();
    let gain = best.and_then(|b| b.gain);
    let headline = match (best, gain) {
        (Some(b), Some(gain)) => {
            let by = if b.estimate.is_some() { " by an estimate, no time" } else { "" };
            format!("{gain:.2}x better than the start{by}: {}", all_changes(record).unwrap_or(b.change.clone()))
        }
        (Some(b), None) => format!("#{} passed: {}", b.id, b.change),
        (None, _) => "Nothing passed".into(),
    };
    let mut measure = crate::evolve_text::ranked_by(state);
    measure[..1].make_ascii_uppercase();
    if state.request.backend == "ptx_machine" {
        let passed = if best.is_some() { "The best is" } else { "What passes here is" };
        measure = format!("{measure} {passed} {}.", warpsmith_report::NOT_ON_A_GPU);
    }
    let unit = match record.best.as_ref().or(record.start.as_ref()) {
        Some(one) if one.estimate.is_some() => "model cycles",
        _ => "us",
    };
    search_html(&Search {
        run: record.run.name.clone(),
        warpsmith: record.run.warpsmith.clone(),
        headline,
        passed: best.is_some(),
        measure,
        unit: unit.into(),
        decision: decision(record),
        reasons: reasons(state, record),
        next: next(record),
        facts: facts(state, record),
        nodes: state.solutions.iter().filter_map(|s| node(state, record, s)).collect(),
        gains: gains(state),
        failures: failures(state),
        cost: cost(record),
    })
}

/// All levers in which the best differs from the start; the last step alone says little. None where its text was changed too.
fn all_changes(record: &EvolveRecord) -> Option<String> {
    let (start, best) = (record.start.as_ref()?, record.best.as_ref()?);
    if best.candidate != start.candidate {
        return None;
    }
    let changed: Vec<String> = best
        .levers
        .iter()
        .filter_map(|(lever, value)| {
            let before = start.levers.get(lever)?;
            (before != value).then(|| format!("{lever} {before} -> {value}"))
        })
        .collect();
    (!changed.is_empty()).then(|| changed.join(", "))
}

/// Whether the best is worth taking over, as far as the loop knows.
fn decision(record: &EvolveRecord) -> Option<String> {
    let best = record.best.as_ref()?;
    let gain = best.gain?;
    let words = match (best.estimate.is_some(), best.id == 0, best.gain_interval) {
        (_, true, _) => "nothing to merge: no solution was better than the start".to_string(),
        (true, ..) => "not on this: an estimate tells good from bad and takes no time; measure it first".into(),
        (false, _, Some([low, high])) if low <= 1.0 => {
            format!("no: its gain of {gain:.3}x is not clear of noise (95% interval {low:.3} to {high:.3})")
        }
        (false, _, Some([low, high])) => format!(
            "as a gain over the start at these shapes and on this device, yes ({gain:.3}x, 95% interval {low:.3} to {high:.3}); whether it beats what people use a bench beside peers tells"
        ),
        (false, _, None) => "not yet: the best was not measured beside the start".into(),
    };
    Some(words)
}

/// What the gates said of the best, and of the start beside it.
fn reasons(state: &State, record: &EvolveRecord) -> Vec<(String, Vec<String>)> {
    let of = |id: u64| state.judged.get(&id).map(|j| j.insights.clone()).unwrap_or_default();
    let best = record.best.as_ref().map_or(0, |b| b.id);
    let mut reasons = vec![(format!("The best, #{best}"), of(best))];
    if best != 0 {
        reasons.push(("The start, #0".into(), of(0)));
    }
    reasons
}

/// The command that measures the best, where it is the start with other levers.
fn next(record: &EvolveRecord) -> Option<String> {
    let (start, best) = (record.start.as_ref()?, record.best.as_ref()?);
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    if best.candidate != start.candidate || !best.candidate.chars().all(plain) {
        return None;
    }
    let set: String = best.levers.iter().map(|(k, v)| format!(" --set {k}={v}")).collect();
    Some(format!("warpsmith bench {}{set}", best.candidate))
}

fn facts(state: &State, record: &EvolveRecord) -> Vec<(String, String)> {
    let request = &state.request;
    let mut facts = vec![
        ("task", request.task.clone()),
        ("start", state.solutions[0].candidate.clone()),
        ("variant", request.variant.word().to_string()),
        ("target", request.target.clone()),
        ("seed", request.seed.to_string()),
    ];
    if let Some(best) = &record.best {
        let levers: Vec<String> = best.levers.iter().map(|(k, v)| format!("{k}={v}")).collect();
        facts.push(("best", format!("{} {}", best.candidate, levers.join(" "))));
    }
    for other in record.best.iter().flat_map(|b| &b.beside) {
        let g = other.gain;
        let what = if other.of == 0 { "beside the start" } else { "beside its parent" };
        facts.push((what, format!("{:.3}x, 95% interval {:.3} to {:.3}, in common rounds", g.ratio, g.low, g.high)));
    }
    for held in &record.accept {
        let so_far = if record.provisional { ", against times of the loop's beginning" } else { "" };
        facts.push(("criterion", format!("{}: {}{so_far}", held.criterion, held.status)));
    }
    if let Some(reason) = &record.finished {
        facts.push(("ended", reason.clone()));
    }
    facts.into_iter().map(|(k, v)| (k.to_string(), v)).collect()
}

fn node(state: &State, record: &EvolveRecord, solution: &Solution) -> Option<Node> {
    let judged = state.judged.get(&solution.id)?;
    let one = warpsmith_evolve::record::solution(state, solution.id)?;
    let parent = solution.parents.first().and_then(|p| state.score(*p));
    let step = parent.and_then(|p| state.score(solution.id)?.gain_over(p)).map(|g| g.ratio);
    let finding = judged.findings.first().map(|f| {
        let line = f.line.map(|l| format!(" at line {l}")).unwrap_or_default();
        format!("{}{line}: {}", f.code, f.message)
    });
    Some(Node {
        id: solution.id,
        parents: solution.parents.clone(),
        operator: text(&solution.operator),
        change: solution.change.clone(),
        thought: solution.rationale.clone(),
        verdict: text(&judged.verdict),
        finding: judged.duplicate_of.map(|of| format!("the same code as #{of}")).or(finding),
        figure: state.score(solution.id).map(Score::value),
        gain: one.gain,
        step,
        best: record.best.as_ref().is_some_and(|b| b.id == solution.id),
        kept: matches!(state.statuses.get(&solution.id), Some(Status::NewBest | Status::Kept { .. })),
    })
}

/// A word of the record.
fn text<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_value(value).ok().and_then(|v| v.as_str().map(str::to_string)).unwrap_or_default()
}

fn gains(state: &State) -> Vec<(u64, f64)> {
    let over_start = |id: u64| state.score(id)?.gain_over(state.score(0)?).map(|g| g.ratio);
    let steps = state.improvements.iter();
    let all = steps.filter_map(|s| Some((s.evaluations, if s.id == 0 { 1.0 } else { over_start(s.id)? })));
    // One that equals the best so far and is simpler takes its place, but gains nothing.
    let mut found: Vec<(u64, f64)> = Vec::new();
    for (n, gain) in all {
        if found.last().is_none_or(|(_, before)| gain > before * 1.0005) {
            found.push((n, gain));
        }
    }
    found
}

fn failures(state: &State) -> Vec<(String, u64)> {
    let mut kinds: BTreeMap<String, u64> = BTreeMap::new();
    for judged in state.judged.values().filter(|j| !j.passed()) {
        let code = judged.findings.first().map(|f| format!(", {}", f.code)).unwrap_or_default();
        *kinds.entry(format!("{}{code}", text(&judged.verdict))).or_default() += 1;
    }
    for refusal in &state.refusals {
        let kind = match refusal {
            Refusal::Duplicate { .. } => "a proposal that was a duplicate",
            Refusal::Unreadable { .. } => "an answer that could not be read",
            Refusal::Empty => "a call without an answer",
            Refusal::NotApplicable { .. } => "a proposal that does not fit the task",
        };
        *kinds.entry(kind.into()).or_default() += 1;
    }
    let mut all: Vec<(String, u64)> = kinds.into_iter().collect();
    all.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
    all
}

fn cost(record: &EvolveRecord) -> Vec<(String, String)> {
    let s = &record.spent;
    let rows = [
        ("evaluations", s.evaluations.to_string()),
        ("calls of a model or an agent", s.calls.to_string()),
        ("tokens", s.tokens.to_string()),
        ("US dollars", format!("{:.4}", s.usd)),
        ("GPU seconds", format!("{:.1}", s.gpu_seconds)),
        ("seconds of calls and evaluations, added up", format!("{:.1}", s.seconds)),
        ("seconds of wall time", format!("{:.1}", s.wall_seconds)),
    ];
    rows.into_iter().map(|(k, v)| (k.to_string(), v)).collect()
}
