//! Proposals from a file's lines, one after the other.

use crate::decide::Action;
use crate::event::Refusal;
use crate::request::ReplayLine;
use crate::solution::{Operator, Solution};
use crate::state::State;

/// The next line; None after the last.
pub fn next(state: &State, lines: &[ReplayLine]) -> Option<Action> {
    // Each line became a solution or a refusal; solution 0 is the start.
    let line = lines.get(state.solutions.len() - 1 + state.refusals.len())?;
    if let Some(of) = state.known(&line.source_sha256, &line.levers) {
        return Some(Action::Refuse(Refusal::Duplicate { of }));
    }
    Some(Action::Propose(Box::new(Solution {
        id: state.solutions.len() as u64,
        candidate: line.candidate.clone(),
        source_sha256: line.source_sha256.clone(),
        levers: line.levers.clone(),
        parents: state.best.into_iter().collect(),
        operator: Operator::Replay,
        change: format!("line {} of the replay", state.solutions.len() + state.refusals.len()),
        rationale: None,
    })))
}
