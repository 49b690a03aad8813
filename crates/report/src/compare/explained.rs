//! A measured gain beside what the old side's profile let expect: its first lever, and the Amdahl bound of the phases that became shorter.
//!
//! A gain beyond the bound means that the model is wrong: the samples, the marks, or the measurement. Without samples there is no bound.
//! (Published once: 1.83x, where the phase that was made faster took 40% of the time, which allows 1.67x.)

use serde::Serialize;
use warpsmith_spec::record::{PhaseRecord, ResultRecord};

/// What was expected, and what came of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Explained {
    /// The most promising lever that the old side's profile names, with its range.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lever: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<[f64; 2]>,
    /// Phases that have less to do than before, or, where the new side has no profile, all that have time.
    pub shortened: Vec<String>,
    /// Their share of the old time, by ncu's samples.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<f64>,
    /// 1 / (1 - time).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_most: Option<f64>,
    pub measured: f64,
    /// The gain is more than the phases allow.
    pub beyond: bool,
}

/// None without a profile of the old side.
pub(super) fn explained(old: &ResultRecord, new: &ResultRecord, measured: f64) -> Option<Explained> {
    let profile = old.profile.as_deref()?;
    let work = |r: &ResultRecord| r.execution.as_ref().map_or(0.0, |e| e.warp_instructions as f64);
    let (before, after) = (work(old), work(new));
    let shorter = |p: &&PhaseRecord| match new.profile.as_deref() {
        Some(n) if !n.phases.is_empty() && after > 0.0 => {
            let now = n.phases.iter().find(|q| q.phase == p.phase).map_or(0.0, |q| q.issue_slots * after);
            now < p.issue_slots * before * 0.99
        }
        _ => p.time.is_some(),
    };
    let shortened: Vec<&PhaseRecord> = profile.phases.iter().filter(shorter).collect();
    let sampled = profile.phases.iter().any(|p| p.time.is_some());
    let time = sampled.then(|| shortened.iter().filter_map(|p| p.time).sum::<f64>());
    let at_most = time.filter(|t| *t < 1.0).map(|t| 1.0 / (1.0 - t));
    let first = profile.advice.first();
    Some(Explained {
        lever: first.map(|a| a.lever.clone()),
        expected: first.map(|a| a.gain),
        shortened: shortened.iter().map(|p| p.phase.clone()).collect(),
        time,
        at_most,
        measured,
        beyond: at_most.is_some_and(|bound| measured > bound),
    })
}

/// A line for the terminal.
pub(super) fn line(label: &str, e: &Explained) -> String {
    let expected = match (&e.lever, e.expected) {
        (Some(lever), Some([low, high])) => format!("expected {low} to {high}x by {lever}, "),
        _ => String::new(),
    };
    let bound = match (e.at_most, e.beyond) {
        (Some(bound), true) => format!(
            "; BEYOND the {bound:.2}x that {} allow: the model is wrong (samples, marks or measurement)",
            e.shortened.join(", ")
        ),
        (Some(bound), false) => format!("; at most {bound:.2}x by what {} took", e.shortened.join(", ")),
        (None, _) => "; no samples, so no bound".into(),
    };
    format!("explained: {label}: {expected}measured {:.2}x{bound}\n", e.measured)
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpsmith_spec::record::{AdviceRecord, ProfileRecord};

    fn result(phases: &[(&str, f64, Option<f64>)], instructions: u64) -> ResultRecord {
        let phases = phases.iter().map(|(phase, issue_slots, time)| PhaseRecord {
            phase: (*phase).into(),
            issue_slots: *issue_slots,
            time: *time,
            ..PhaseRecord::default()
        });
        let advice = AdviceRecord { lever: "fewer_exponentials".into(), gain: [1.05, 1.4], ..AdviceRecord::default() };
        let profile = ProfileRecord { phases: phases.collect(), advice: vec![advice], ..ProfileRecord::default() };
        let record = serde_json::json!({
            "candidate": "k", "task": "t", "shape": "s", "symbols": {}, "causal": false, "format": "", "distribution": "", "scales": "",
            "seed": 0, "target": "sm_90", "levers": {}, "backend": "gpu", "numerics": "hardware", "compile": {}, "verdict": "passed",
            "gates": {"compile": "passed", "correctness": "passed", "performance": "passed", "profile": "passed"},
            "execution": {"warp_instructions": instructions, "lane_instructions": 0, "tensor_ops": 0, "static_instructions": 0, "covered_instructions": 0},
            "profile": profile,
        });
        serde_json::from_value(record).unwrap()
    }

    #[test]
    fn a_gain_beyond_what_the_phases_allow_is_flagged() {
        let old = result(&[("softmax", 0.5, Some(0.4)), ("products", 0.5, Some(0.6))], 1000);
        let new = result(&[("softmax", 0.375, None), ("products", 0.625, None)], 800);
        let e = explained(&old, &new, 1.83).unwrap();
        assert_eq!((e.shortened.as_slice(), e.beyond), (&["softmax".to_string()][..], true));
        assert!((e.at_most.unwrap() - 1.0 / 0.6).abs() < 1e-12 && line("k", &e).contains("BEYOND the 1.67x"));
        let within = explained(&old, &new, 1.3).unwrap();
        assert!(!within.beyond && line("k", &within).contains("at most 1.67x"));
        let unsampled = result(&[("softmax", 0.5, None)], 1000);
        let none = explained(&unsampled, &new, 9.0).unwrap();
        assert!(!none.beyond && none.at_most.is_none(), "no samples, no bound");
    }
}
