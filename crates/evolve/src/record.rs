//! The record of a loop (`warpsmith.evolve/1`), made from its state.

use crate::budget::Account;
use crate::outcome::{BaselineTimes, Beside};
use crate::score::Score;
use crate::solution::Levers;
use crate::state::State;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use warpsmith_spec::record::{AcceptRecord, Environment, RunInfo, VerdictWord};

pub const EVOLVE_SCHEMA: &str = "warpsmith.evolve/1";

/// A solution in the record: an estimate or a time, never both.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SolutionRecord {
    pub id: u64,
    pub candidate: String,
    pub levers: Levers,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimate: Option<crate::score::Estimate>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_us: Option<f64>,
    /// The times by shape behind `time_us`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<crate::score::Timed>,
    pub verdict: VerdictWord,
    /// start / this; above 1 is better.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gain: Option<f64>,
    /// The interval of a gain between times; measured in common rounds where the winner was measured once more beside the start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gain_interval: Option<[f64; 2]>,
    /// What the winner was measured beside when it was measured once more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<Beside>,
    pub change: String,
    pub parents: Vec<u64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EvolveRecord {
    pub schema: String,
    pub run: RunInfo,
    pub environment: Environment,
    pub task: String,
    pub variant: String,
    pub backend: String,
    pub seed: u64,
    /// Absent where not even the start was judged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<SolutionRecord>,
    /// Absent where nothing passed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best: Option<SolutionRecord>,
    pub evaluations: u64,
    pub proposals: u64,
    /// Verdict -> evaluations.
    pub verdicts: BTreeMap<String, u64>,
    pub spent: Account,
    /// The kept solutions, best first.
    pub archive: Vec<u64>,
    /// The task's criteria as they stand for the best; empty where the task has none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accept: Vec<AcceptRecord>,
    /// Whether they compare with times of the loop's beginning, for it has not come to measure its best once more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub provisional: bool,
    /// What the criteria compare with, as it was timed when the loop began.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub baselines: BTreeMap<String, BaselineTimes>,
    /// Why it ended; absent while it can be gone on with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished: Option<String>,
}

/// The record of a state.
pub fn record(state: &State, run: RunInfo, environment: Environment) -> EvolveRecord {
    let mut verdicts = BTreeMap::new();
    for judged in state.judged.values().filter(|j| j.duplicate_of.is_none()) {
        *verdicts.entry(word(judged.verdict)).or_insert(0) += 1;
    }
    // The re-measurement decides, where there was one.
    let final_word = state.best.and_then(|id| state.remeasured.get(&id).or_else(|| state.judged.get(&id)));
    EvolveRecord {
        schema: EVOLVE_SCHEMA.into(),
        run,
        environment,
        task: state.request.task.clone(),
        variant: state.request.variant.word().into(),
        backend: state.request.backend.clone(),
        seed: state.request.seed,
        start: solution(state, 0),
        best: state.best.and_then(|id| solution(state, id)),
        evaluations: state.account.evaluations,
        proposals: (state.solutions.len() - 1 + state.refusals.len()) as u64,
        verdicts,
        spent: state.account.clone(),
        archive: state.archive.members().iter().map(|m| m.id).collect(),
        accept: final_word.map(|j| j.accept.clone()).unwrap_or_default(),
        provisional: final_word.is_some_and(|j| j.provisional),
        baselines: state.baselined.as_ref().map(|b| b.baselines.clone()).unwrap_or_default(),
        finished: state.finished.clone(),
    }
}

/// One solution of a state, once it was judged. The winner's figure is that of its re-measurement.
pub fn solution(state: &State, id: u64) -> Option<SolutionRecord> {
    let solution = state.solutions.get(id as usize)?;
    let first = state.judged.get(&id)?;
    let judged = state.remeasured.get(&id).unwrap_or(first);
    let score = judged.score.as_ref().or(first.score.as_ref());
    // A ratio from common rounds is worth more than one between two measurements.
    let common = judged.beside.iter().find(|b| b.of == 0).map(|b| b.gain);
    let gain = common.or_else(|| score.and_then(|s| s.gain_over(state.score(0)?)));
    let is_time = matches!(score, Some(Score::Timed(_)));
    let mut record = SolutionRecord {
        id,
        candidate: solution.candidate.clone(),
        levers: solution.levers.clone(),
        estimate: None,
        time_us: None,
        times: None,
        verdict: judged.verdict,
        gain: gain.map(|g| g.ratio),
        gain_interval: gain.filter(|_| is_time && id != 0).map(|g| [g.low, g.high]),
        beside: judged.beside.clone(),
        change: solution.change.clone(),
        parents: solution.parents.clone(),
    };
    match score {
        Some(Score::Estimate(e)) => record.estimate = Some(e.clone()),
        Some(Score::Timed(t)) => (record.time_us, record.times) = (Some(t.time_us), Some(t.clone())),
        None => {}
    }
    Some(record)
}

pub(crate) fn word(verdict: VerdictWord) -> String {
    serde_json::to_value(verdict).ok().and_then(|v| v.as_str().map(str::to_string)).unwrap_or_default()
}
