//! Proposals without a model: moves in the candidate's lever space.
//!
//! Local search around the best of a climb: settings that differ from it in one lever, then in two; when [`PATIENCE`] of those in
//! two brought nothing, a new climb begins at a place drawn by lot. Which neighbour comes first is decided by what is expected of it
//! ([`super::surrogate`]), and pairs come before the last single moves where much more is expected of them. The variant Full crosses two of
//! the elite every third time. All draws follow from the state.

use super::surrogate::Surrogate;
use crate::decide::Action;
use crate::solution::{Levers, Operator, Solution, difference};
use crate::space::Space;
use crate::state::State;
use std::collections::BTreeSet;

/// Settings at distance two that are tried in vain before the search begins elsewhere.
pub const PATIENCE: usize = 6;
/// A pair comes before a single move of which less than this share of the improvement is expected.
const SINGLE_SHARE: f64 = 0.5;

/// The next setting to try; None where all were.
pub fn next(state: &State) -> Option<Action> {
    let start = state.solutions.first()?;
    let known: BTreeSet<&Levers> = state.solutions.iter().map(|s| &s.levers).collect();
    let untried = |i: &usize| !known.contains(&state.request.space.settings[*i]);
    let climb = Climb::of(state);
    let parent = &state.solutions[climb.best as usize];
    let space = &state.request.space;
    let draws = state.draws(2);
    let surrogate = Surrogate::of(state);
    // What earlier loops learned scales what is expected; without lessons the factor is 1.
    let prior = |i: usize| state.lessons.prior(&state.request, &parent.levers, &space.settings[i]);
    let expected = |i: usize| surrogate.as_ref().map_or(0.0, |s| s.expected_improvement(&space.settings[i])) * prior(i);
    let ranked = |options: &[usize]| -> Option<(usize, f64)> {
        // Equal expectations are decided by lot.
        let lots = draws.permutation(options.len());
        lots.into_iter().map(|k| (options[k], expected(options[k]))).max_by(|a, b| a.1.total_cmp(&b.1))
    };
    let (operator, second, chosen) = choose(state, &climb, parent, &untried, &ranked, draws.uniform(1 << 20))?;
    let levers = space.settings[chosen].clone();
    let parents = match operator {
        Operator::Restart => Vec::new(),
        _ => [Some(parent.id), second].into_iter().flatten().collect(),
    };
    let change = difference(&parent.levers, &levers);
    Some(Action::Propose(Box::new(Solution {
        id: state.solutions.len() as u64,
        candidate: start.candidate.clone(),
        source_sha256: start.source_sha256.clone(),
        levers,
        parents,
        operator,
        change,
        rationale: None,
    })))
}

/// The operator, a second parent, and the setting.
fn choose(
    state: &State,
    climb: &Climb,
    parent: &Solution,
    untried: &dyn Fn(&usize) -> bool,
    ranked: &dyn Fn(&[usize]) -> Option<(usize, f64)>,
    lot: f64,
) -> Option<(Operator, Option<u64>, usize)> {
    let space = &state.request.space;
    if state.request.variant.has_history()
        && state.solutions.len() % 3 == 2
        && let Some((second, options)) = crossover(state, parent, space, untried)
    {
        return Some((Operator::Crossover, Some(second), ranked(&options)?.0));
    }
    let at = |distance: usize| space.at_distance(&parent.levers, distance).filter(untried).collect::<Vec<_>>();
    let single = ranked(&at(1));
    let pair = ranked(&at(2)).filter(|_| climb.pairs < PATIENCE);
    match (single, pair) {
        (Some((one, hope)), Some((_, more))) if hope >= SINGLE_SHARE * more => Some((Operator::Mutation, None, one)),
        (_, Some((two, _))) => Some((Operator::Pair, None, two)),
        (Some((one, _)), None) => Some((Operator::Mutation, None, one)),
        (None, None) => {
            let all: Vec<usize> = (0..space.settings.len()).filter(untried).collect();
            let at = (lot * all.len() as f64) as usize;
            all.get(at.min(all.len().saturating_sub(1))).map(|i| (Operator::Restart, None, *i))
        }
    }
}

/// Untried settings each of whose levers has the value of one of two parents.
fn crossover(
    state: &State,
    first: &Solution,
    space: &Space,
    untried: &dyn Fn(&usize) -> bool,
) -> Option<(u64, Vec<usize>)> {
    state.archive.members().into_iter().filter(|m| m.id != first.id).find_map(|m| {
        let second = &state.solutions[m.id as usize].levers;
        let mixed = |i: &usize| {
            space.settings[*i].iter().all(|(name, v)| first.levers.get(name) == Some(v) || second.get(name) == Some(v))
        };
        let options: Vec<usize> = (0..space.settings.len()).filter(untried).filter(mixed).collect();
        (!options.is_empty()).then_some((m.id, options))
    })
}

/// The climb under way: since the last restart.
struct Climb {
    /// Its best, or where it began.
    best: u64,
    /// Pairs that were proposed since it last got better.
    pairs: usize,
}

impl Climb {
    fn of(state: &State) -> Climb {
        let begin = state.solutions.iter().rposition(|s| s.operator == Operator::Restart).unwrap_or(0);
        let value = |id: u64| state.score(id).map_or(f64::INFINITY, |s| s.value());
        let mut climb = Climb { best: begin as u64, pairs: 0 };
        for solution in &state.solutions[begin..] {
            if value(solution.id) < value(climb.best) {
                climb = Climb { best: solution.id, pairs: 0 };
            } else if solution.operator == Operator::Pair {
                climb.pairs += 1;
            }
        }
        climb
    }
}
