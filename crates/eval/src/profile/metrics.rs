//! The metrics that gate 4 asks for, as data, and figures by name made of them.
//!
//! Source: `ncu --query-metrics` of Nsight Compute 2022.3 for GA100, AD102 and GH100.

use super::csv::Launched;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::OnceLock;
use warpsmith_spec::record::{CounterRecord, LaunchCounters};

/// What rules speak of: name -> value.
pub type Figures = BTreeMap<String, f64>;

/// One metric of the set.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metric {
    pub name: String,
    pub metric: String,
    pub title: String,
    pub above: Option<f64>,
    pub below: Option<f64>,
}

/// The set, in the order in which it is shown.
pub fn metrics() -> &'static [Metric] {
    #[derive(Deserialize)]
    struct File {
        metric: Vec<Metric>,
    }
    static SET: OnceLock<Vec<Metric>> = OnceLock::new();
    SET.get_or_init(|| {
        // A test reads the table; a damaged one asks for nothing.
        toml::from_str::<File>(include_str!("../../data/metrics.toml")).map(|f| f.metric).unwrap_or_default()
    })
}

/// A launch's counters beside their targets. What ncu could not count (`n/a`) is left out.
pub fn counters(launch: &Launched) -> LaunchCounters {
    let counters = metrics().iter().filter_map(|m| {
        let (value, unit) = launch.values.get(&m.metric)?;
        let (target, met) = match (m.above, m.below) {
            (Some(above), _) => (Some(format!("above {above}")), Some(*value > above)),
            (None, Some(below)) => (Some(format!("below {below}")), Some(*value < below)),
            (None, None) => (None, None),
        };
        Some(CounterRecord {
            name: m.name.clone(),
            metric: m.metric.clone(),
            title: m.title.clone(),
            value: *value,
            unit: unit.clone(),
            target,
            met,
        })
    });
    LaunchCounters {
        kernel: launch.kernel.clone(),
        grid: launch.grid.clone(),
        block: launch.block.clone(),
        counters: counters.collect(),
    }
}

/// Figures of the launch that executed most instructions; where that was not counted, of the first.
pub fn figures(launches: &[LaunchCounters]) -> Figures {
    let value = |l: &LaunchCounters, name: &str| l.counters.iter().find(|c| c.name == name).map(|c| c.value);
    let most = launches.iter().max_by(|a, b| {
        let of = |l: &LaunchCounters| value(l, "instructions").unwrap_or(0.0);
        of(a).total_cmp(&of(b))
    });
    let Some(launch) = most else { return Figures::new() };
    let mut figures: Figures = launch.counters.iter().map(|c| (c.name.clone(), c.value)).collect();
    if let (Some(conflicts), Some(wavefronts)) = (figures.get("shared_conflicts"), figures.get("shared_wavefronts"))
        && *wavefronts > 0.0
    {
        let share = conflicts / wavefronts;
        figures.insert("conflict_share".into(), share);
    }
    figures
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_set_is_whole_and_names_are_used_once() {
        let set = metrics();
        assert!((20..=40).contains(&set.len()), "{}", set.len());
        for key in [|m: &Metric| m.name.clone(), |m: &Metric| m.metric.clone()] {
            let mut all: Vec<String> = set.iter().map(key).collect();
            all.sort();
            all.dedup();
            assert_eq!(all.len(), set.len());
        }
    }

    #[test]
    fn counters_stand_beside_their_targets_and_what_was_not_counted_is_left_out() {
        let value = |metric: &str, v: f64, unit: &str| (metric.to_string(), (v, unit.to_string()));
        let launch = Launched {
            values: [
                value("dram__throughput.avg.pct_of_peak_sustained_elapsed", 71.5, "%"),
                value("l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum", 50.0, ""),
                value("l1tex__data_pipe_lsu_wavefronts_mem_shared.sum", 200.0, ""),
                value("somebody__elses.sum", 1.0, ""),
            ]
            .into(),
            ..Launched::default()
        };
        let counted = counters(&launch);
        let dram = &counted.counters[0];
        assert_eq!((dram.name.as_str(), dram.met, dram.target.as_deref()), ("dram", Some(false), Some("below 70")));
        assert_eq!(counted.counters.len(), 3);
        assert_eq!(figures(&[counted])["conflict_share"], 0.25);
    }
}
