//! A point of the search: a candidate's text with a value for each lever, and where it came from.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use warpsmith_spec::LeverValue;

pub type Levers = BTreeMap<String, LeverValue>;

/// How a solution came to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operator {
    /// What the loop began with.
    Start,
    /// One parent, one lever or one idea changed.
    Mutation,
    /// One parent, two levers changed.
    Pair,
    /// Two parents.
    Crossover,
    /// Another place, after the search around a best one brought nothing: more than two levers changed.
    Restart,
    /// A failed solution mended.
    Fix,
    /// A line of a file.
    Replay,
}

/// A proposal that was understood.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Solution {
    /// Counts up from 0, which is the start.
    pub id: u64,
    /// What `warpsmith check` takes: a built-in's name, or a file.
    pub candidate: String,
    /// Of the candidate's text.
    pub source_sha256: String,
    pub levers: Levers,
    pub parents: Vec<u64>,
    pub operator: Operator,
    /// What it changed against its first parent, in one line.
    pub change: String,
    /// Why, in the proposer's own words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rationale: Option<String>,
}

impl Solution {
    /// Whether it is the same text with the same levers.
    pub fn same_as(&self, source_sha256: &str, levers: &Levers) -> bool {
        self.source_sha256 == source_sha256 && self.levers == *levers
    }
}

/// The levers that differ, as `BLOCK_M 64 -> 32, STAGES 2 -> 3`.
pub fn difference(from: &Levers, to: &Levers) -> String {
    let changes: Vec<String> = to
        .iter()
        .filter(|(name, value)| from.get(*name) != Some(value))
        .map(|(name, value)| match from.get(name) {
            Some(old) => format!("{name} {old} -> {value}"),
            None => format!("{name} = {value}"),
        })
        .collect();
    if changes.is_empty() { "nothing".into() } else { changes.join(", ") }
}
