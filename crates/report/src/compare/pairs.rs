//! Which result stands against which, under which conditions, and what differs between the two.

use super::explained::{Explained, explained};
use super::speed::{Speed, speed};
use crate::measured::measured;
use crate::rows::worst_check;
use crate::summary::short;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use warpsmith_spec::record::{Environment, ResultRecord, VerdictWord};

/// Clocks of two measurements may lie so far apart, relative.
const CLOCKS_APART: f64 = 0.02;

/// One side: results, and where they come from.
#[derive(Debug, Clone)]
pub struct Side<'a> {
    pub name: String,
    pub environment: &'a Environment,
    pub results: Vec<&'a ResultRecord>,
    /// One kernel was named, so it stands against whatever the other side names.
    pub chosen: bool,
}

/// A condition that the sides do not share.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Difference {
    pub what: String,
    pub old: String,
    pub new: String,
}

/// What is known of two outputs on the same inputs.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outputs {
    Identical,
    /// They differ by at most this, because both are so near to the reference.
    Differ {
        at_most: f64,
    },
    Unknown,
}

/// A figure before and after.
pub type Change<T> = (T, T);

/// The same workload on both sides.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Pair {
    pub kernel: String,
    pub shape: String,
    pub causal: bool,
    pub old_verdict: VerdictWord,
    pub new_verdict: VerdictWord,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speed: Option<Speed>,
    /// What the old side's profile let expect of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub explained: Option<Explained>,
    /// Relative error of the output that is nearest to its limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rel_frobenius: Option<Change<f64>>,
    pub outputs: Outputs,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub registers: Option<Change<u32>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shared_bytes: Option<Change<u64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spill_bytes: Option<Change<u32>>,
    /// Executed on the PTX machine; work, no time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warp_instructions: Option<Change<u64>>,
    /// Tensor-core opcodes in the machine code, those that differ.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tensor_ops: BTreeMap<String, Change<u64>>,
}

impl Pair {
    pub fn label(&self) -> String {
        format!("{} {}{}", self.kernel, self.shape, if self.causal { " causal" } else { "" })
    }
}

type Paired = (Vec<Pair>, Vec<String>, Vec<String>, Vec<Difference>);

pub(super) fn pair_up(old: &Side, new: &Side) -> Paired {
    // One kernel on each side: their names need not be the same, as two levels of a ladder's are not.
    let by_name = !(old.chosen && new.chosen) && (kernels(old) != 1 || kernels(new) != 1);
    let index = |side: &Side| -> BTreeMap<String, usize> {
        side.results.iter().enumerate().map(|(i, r)| (key(r, by_name), i)).collect()
    };
    let (a, b) = (index(old), index(new));
    let mut unequal = BTreeSet::new();
    conditions(old.environment, new.environment, &mut unequal);
    let mut pairs = Vec::new();
    for (i, r) in old.results.iter().enumerate() {
        let k = key(r, by_name);
        if a.get(&k) == Some(&i)
            && let Some(other) = b.get(&k).map(|j| new.results[*j])
        {
            pairs.push(pair(r, other, &mut unequal));
        }
    }
    let only = |side: &Side, mine: &BTreeMap<String, usize>, other: &BTreeMap<String, usize>| {
        mine.iter().filter(|(k, _)| !other.contains_key(*k)).map(|(_, i)| label(side.results[*i])).collect()
    };
    (pairs, only(old, &a, &b), only(new, &b, &a), unequal.into_iter().collect())
}

fn kernels(side: &Side) -> usize {
    side.results.iter().map(|r| (short(r), levers(r))).collect::<BTreeSet<_>>().len()
}

fn levers(r: &ResultRecord) -> String {
    r.levers.iter().map(|(k, v)| format!(" {k}={v}")).collect()
}

/// What has to be the same for two results to stand against each other.
fn key(r: &ResultRecord, by_name: bool) -> String {
    let name = if by_name { format!("{}{}", short(r), levers(r)) } else { String::new() };
    format!(
        "{name}|{}|{}|{:?}|{}|{}|{}|{}|{}|{}",
        r.task, r.shape, r.symbols, r.causal, r.format, r.scales, r.distribution, r.seed, r.variant
    )
}

fn label(r: &ResultRecord) -> String {
    format!(
        "{} {}{} {} {} seed {}{}",
        short(r),
        r.shape,
        if r.causal { " causal" } else { "" },
        r.format,
        r.distribution,
        r.seed,
        crate::rows::variant(r)
    )
}

fn conditions(old: &Environment, new: &Environment, unequal: &mut BTreeSet<Difference>) {
    let none = || "none".to_string();
    differ(unequal, "device", old.device.clone().unwrap_or_else(none), new.device.clone().unwrap_or_else(none));
    differ(unequal, "compiler", old.toolkit.clone().unwrap_or_else(none), new.toolkit.clone().unwrap_or_else(none));
}

fn differ(unequal: &mut BTreeSet<Difference>, what: &str, old: String, new: String) {
    if old != new {
        unequal.insert(Difference { what: what.into(), old, new });
    }
}

fn pair(old: &ResultRecord, new: &ResultRecord, unequal: &mut BTreeSet<Difference>) -> Pair {
    differ(unequal, "where it ran", old.backend.clone(), new.backend.clone());
    differ(unequal, "target", old.target.clone(), new.target.clone());
    differ(unequal, "numerics", old.numerics.clone(), new.numerics.clone());
    let (a, b) = (measured(old), measured(new));
    if let (Some(a), Some(b)) = (&a, &b) {
        let text = |x: &Option<String>| x.clone().unwrap_or_else(|| "unknown".into());
        differ(unequal, "device", text(&a.device), text(&b.device));
        let get = |m: &crate::measured::Measured, key: &str| {
            m.conditions.iter().find(|(k, _)| k == key).map(|(_, v)| v.clone())
        };
        differ(unequal, "throttled", get(a, "throttled").unwrap_or_default(), get(b, "throttled").unwrap_or_default());
        for clock in ["sm_mhz", "memory_mhz"] {
            let (x, y) = (get(a, clock), get(b, clock));
            let number = |t: &Option<String>| t.as_ref().and_then(|t| t.parse::<f64>().ok());
            if let (Some(p), Some(q)) = (number(&x), number(&y))
                && (p / q - 1.0).abs() > CLOCKS_APART
            {
                differ(unequal, clock, x.unwrap_or_default(), y.unwrap_or_default());
            }
        }
    }
    let speed = a.as_ref().zip(b.as_ref()).and_then(|(a, b)| speed(a, b));
    if let (Some(a), Some(b), None) = (&a, &b, &speed) {
        let methods =
            |m: &crate::measured::Measured| m.timings.iter().map(|t| t.method.clone()).collect::<Vec<_>>().join(", ");
        differ(unequal, "methods of timing", methods(a), methods(b));
    }
    let most = |r: &ResultRecord, of: &dyn Fn(&warpsmith_spec::record::EntryRecord) -> u64| {
        r.compile.get(&r.target).and_then(|e| e.values().map(of).max())
    };
    let both = |of: &dyn Fn(&warpsmith_spec::record::EntryRecord) -> u64| most(old, of).zip(most(new, of));
    Pair {
        kernel: if short(old) == short(new) { short(new) } else { format!("{} -> {}", short(old), short(new)) },
        shape: new.shape.clone(),
        causal: new.causal,
        old_verdict: old.verdict,
        new_verdict: new.verdict,
        explained: speed.as_ref().filter(|s| !s.replayed).and_then(|s| explained(old, new, s.ratio)),
        speed,
        rel_frobenius: worst_check(old)
            .zip(worst_check(new))
            .map(|(a, b)| (a.kernel.rel_frobenius, b.kernel.rel_frobenius)),
        outputs: outputs(old, new),
        registers: both(&|e| e.registers.into()).map(|(a, b)| (a as u32, b as u32)),
        shared_bytes: both(&|e| u64::from(e.shared_bytes) + e.dynamic_shared_bytes.unwrap_or(0)),
        spill_bytes: both(&|e| e.spill_bytes.into()).map(|(a, b)| (a as u32, b as u32)),
        warp_instructions: work(old).zip(work(new)),
        tensor_ops: tensor_ops(old, new),
    }
}

fn work(r: &ResultRecord) -> Option<u64> {
    r.execution.as_ref().map(|e| e.warp_instructions).filter(|n| *n > 0)
}

fn outputs(old: &ResultRecord, new: &ResultRecord) -> Outputs {
    let (Some(a), Some(b)) = (&old.check, &new.check) else { return Outputs::Unknown };
    if a.is_empty() || a.keys().ne(b.keys()) {
        return Outputs::Unknown;
    }
    let mut identical = true;
    let mut at_most = 0.0f64;
    for (x, y) in a.values().zip(b.values()) {
        let (Some(p), Some(q)) = (&x.sha256, &y.sha256) else { return Outputs::Unknown };
        identical &= p == q;
        // What is not finite, or was not looked at, has no bound.
        if x.nan + x.inf + y.nan + y.inf > 0 || x.rows_checked != x.rows_total || y.rows_checked != y.rows_total {
            at_most = f64::INFINITY;
        }
        at_most = at_most.max(x.max_abs_err + y.max_abs_err);
    }
    match (identical, at_most.is_finite()) {
        (true, _) => Outputs::Identical,
        (false, true) => Outputs::Differ { at_most },
        (false, false) => Outputs::Unknown,
    }
}

fn tensor_ops(old: &ResultRecord, new: &ResultRecord) -> BTreeMap<String, Change<u64>> {
    let count = |r: &ResultRecord| -> BTreeMap<String, u64> {
        let mut all = BTreeMap::new();
        for (op, n) in r.compile.get(&r.target).into_iter().flat_map(|e| e.values()).flat_map(|e| &e.tensor_ops) {
            *all.entry(op.clone()).or_default() += n;
        }
        all
    };
    let (a, b) = (count(old), count(new));
    let names: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    let both = names.into_iter().map(|n| (n.clone(), (a.get(n).copied().unwrap_or(0), b.get(n).copied().unwrap_or(0))));
    both.filter(|(_, (x, y))| x != y).collect()
}
