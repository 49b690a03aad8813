//! A run's ratios summed up: the geometric mean, the best and the worst, for each candidate and baseline and for the run. Pure functions.
//!
//! Only results that passed count: a time of a wrong kernel is none.

use crate::record::{ExtremeRecord, ResultRecord, SpeedupRecord, VerdictWord};
use std::collections::BTreeSet;

/// The name of each result's fastest peer.
pub const BEST_PEER: &str = "best_peer";

/// What [`RunRecord`](crate::record::RunRecord) says beside its results.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Summary {
    pub geomean: Option<f64>,
    pub best: Option<ExtremeRecord>,
    pub worst: Option<ExtremeRecord>,
    pub speedups: Vec<SpeedupRecord>,
}

/// The ratio of a result to a baseline, or to its fastest peer. A peer is somebody else's implementation, named with its provider
/// (`fa3:fp8`); our own levels have no colon.
pub fn ratio(result: &ResultRecord, baseline: &str) -> Option<f64> {
    let baselines = &result.measurement.as_ref()?.baselines;
    if baseline == BEST_PEER {
        return best_peer(result).map(|(_, ratio)| ratio);
    }
    baselines.get(baseline)?.usable_ratio()
}

/// The fastest peer's name, and our ratio to it.
pub fn best_peer(result: &ResultRecord) -> Option<(&str, f64)> {
    let peers = result.measurement.as_ref()?.baselines.iter().filter(|(name, _)| crate::measurement::is_peer(name));
    peers.filter_map(|(name, b)| Some((name.as_str(), b.usable_ratio()?))).min_by(|a, b| a.1.total_cmp(&b.1))
}

/// Sums results up. The run's own figures are about the first baseline in `order` that every measured result has, else the best peer.
pub fn summary(results: &[ResultRecord], order: &[String]) -> Summary {
    let measured: Vec<&ResultRecord> =
        results.iter().filter(|r| r.verdict == VerdictWord::Passed && r.measurement.is_some()).collect();
    let mut names: Vec<String> = order.to_vec();
    let found: BTreeSet<&String> =
        measured.iter().filter_map(|r| r.measurement.as_ref()).flat_map(|m| m.baselines.keys()).collect();
    names.extend(found.into_iter().filter(|n| !order.contains(n)).cloned());
    names.push(BEST_PEER.into());
    let mut speedups = Vec::new();
    let mut seen = BTreeSet::new();
    for result in &measured {
        if seen.insert((&result.candidate, &result.config)) {
            let same = |r: &&&ResultRecord| r.candidate == result.candidate && r.config == result.config;
            let own: Vec<&ResultRecord> = measured.iter().filter(same).copied().collect();
            speedups.extend(names.iter().filter_map(|name| speedup(&own, name)));
        }
    }
    let all = names.iter().find(|n| !measured.is_empty() && measured.iter().all(|r| ratio(r, n).is_some()));
    match all.and_then(|name| speedup(&measured, name)) {
        None => Summary { speedups, ..Summary::default() },
        Some(s) => Summary { geomean: Some(s.geomean), best: Some(s.best), worst: Some(s.worst), speedups },
    }
}

fn speedup(results: &[&ResultRecord], baseline: &str) -> Option<SpeedupRecord> {
    let ratios: Vec<(&ResultRecord, f64)> =
        results.iter().filter_map(|r| ratio(r, baseline).map(|x| (*r, x))).collect();
    let first = ratios.first()?.0;
    let extreme = |(r, ratio): &(&ResultRecord, f64)| ExtremeRecord {
        candidate: r.candidate.clone(),
        config: r.config.clone(),
        shape: r.shape.clone(),
        causal: r.causal,
        baseline: baseline.to_string(),
        ratio: *ratio,
    };
    let geomean = (ratios.iter().map(|(_, x)| x.ln()).sum::<f64>() / ratios.len() as f64).exp();
    Some(SpeedupRecord {
        candidate: first.candidate.clone(),
        config: first.config.clone(),
        baseline: baseline.to_string(),
        geomean,
        best: ratios.iter().max_by(|a, b| a.1.total_cmp(&b.1)).map(extreme)?,
        worst: ratios.iter().min_by(|a, b| a.1.total_cmp(&b.1)).map(extreme)?,
        results: ratios.len(),
    })
}
