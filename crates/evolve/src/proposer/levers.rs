//! Proposals without a model: moves in the candidate's lever space.
//!
//! Local search around the best: settings that differ from it in one lever; after [`PAIRS_AFTER`] moves in vain those that differ in two as
//! well; after [`RESTARTS_AFTER`] any other. Which one comes next is decided by what is expected of it ([`super::surrogate`]), so that a
//! local optimum is left without all of its neighbours having been tried. The variant Full crosses two of the elite every third time. All
//! draws follow from the state.
//!
//! The constants were chosen on made-up costs and on the times of level_07's 108 settings on an H200 (docs/evolve.md).

use super::surrogate::Surrogate;
use crate::decide::Action;
use crate::outcome::Move;
use crate::solution::{Levers, Operator, Solution, difference};
use crate::space::Space;
use crate::state::State;
use std::collections::BTreeSet;
use warpsmith_spec::LeverValue;

/// A move of a later kind is made where one of an earlier kind promises less than this share of what it does.
const SHARE: f64 = 0.95;
/// Moves in vain since the best was found after which pairs are moves too, and any other place in the space.
const PAIRS_AFTER: usize = 1;
const RESTARTS_AFTER: usize = 3;
/// What advice may make of an expectation.
const MOST_ADVICE: f64 = 1.5;

/// The next setting to try; None where all were.
pub fn next(state: &State) -> Option<Action> {
    let start = state.solutions.first()?;
    let known: BTreeSet<&Levers> = state.solutions.iter().map(|s| &s.levers).collect();
    let untried = |i: &usize| !known.contains(&state.request.space.settings[*i]);
    let parent = &state.solutions[best(state) as usize];
    let space = &state.request.space;
    let draws = state.draws(2);
    let surrogate = Surrogate::of(state);
    // What earlier loops learned, and what the evidence about the parent advises, scale what is expected; without them the factor is 1.
    let advice = state.judged.get(&parent.id).map_or(&[][..], |j| j.moves.as_slice());
    let prior = |i: usize| {
        let to = &space.settings[i];
        state.lessons.prior(&state.request, &parent.levers, to) * advised(advice, &parent.levers, to)
    };
    let expected = |i: usize| surrogate.as_ref().map_or(0.0, |s| s.expected_improvement(&space.settings[i])) * prior(i);
    let ranked = |options: &[usize]| -> Option<(usize, f64)> {
        // Equal expectations are decided by lot.
        let lots = draws.permutation(options.len());
        lots.into_iter().map(|k| (options[k], expected(options[k]))).max_by(|a, b| a.1.total_cmp(&b.1))
    };
    let (operator, second, chosen) = choose(state, parent, &untried, &ranked)?;
    let levers = space.settings[chosen].clone();
    let parents = [Some(parent.id), second].into_iter().flatten().collect();
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

/// How much more, or less, is to be expected of going from one setting to another by the evidence's advice.
fn advised(moves: &[Move], from: &Levers, to: &Levers) -> f64 {
    let mut sum = 0.0;
    for advice in moves.iter().filter(|m| m.gain.is_finite() && m.gain > 0.0) {
        let value = |levers: &Levers| levers.get(&advice.lever).and_then(LeverValue::as_int);
        let (Some(old), Some(new)) = (value(from), value(to)) else { continue };
        if old != new {
            let sign = if (new > old) == advice.more { 1.0 } else { -1.0 };
            sum += sign * libm::log(advice.gain);
        }
    }
    // Advice orders what is alike; what was seen says more.
    libm::exp(sum).clamp(1.0 / MOST_ADVICE, MOST_ADVICE)
}

/// The operator, a second parent, and the setting.
fn choose(
    state: &State,
    parent: &Solution,
    untried: &dyn Fn(&usize) -> bool,
    ranked: &dyn Fn(&[usize]) -> Option<(usize, f64)>,
) -> Option<(Operator, Option<u64>, usize)> {
    let space = &state.request.space;
    if state.request.variant.has_history()
        && state.solutions.len() % 3 == 2
        && let Some((second, options)) = crossover(state, parent, space, untried)
    {
        return Some((Operator::Crossover, Some(second), ranked(&options)?.0));
    }
    let at = |distance: usize| space.at_distance(&parent.levers, distance).filter(untried).collect::<Vec<_>>();
    let elsewhere: Vec<usize> = (0..space.settings.len())
        .filter(untried)
        .filter(|i| Space::distance(&parent.levers, &space.settings[*i]) > 2)
        .collect();
    // Moves since the best was found that brought nothing, those under way among them.
    let in_vain = state.solutions.len() - 1 - parent.id as usize;
    let kinds = [
        (Operator::Mutation, at(1), 0),
        (Operator::Pair, at(2), PAIRS_AFTER),
        (Operator::Restart, elsewhere, RESTARTS_AFTER),
    ];
    let found = kinds.into_iter().filter_map(|(operator, options, after)| Some((operator, ranked(&options)?, after)));
    let found: Vec<_> = found.collect();
    let mut open: Vec<_> = found.iter().filter(|(.., after)| in_vain >= *after).collect();
    if open.is_empty() {
        open.extend(found.first());
    }
    let most = open.iter().map(|(_, (_, hope), _)| *hope).fold(0.0, f64::max);
    let chosen = open.into_iter().find(|(_, (_, hope), _)| *hope >= SHARE * most);
    let chosen = chosen.map(|(operator, (setting, _), _)| (*operator, *setting));
    chosen.map(|(operator, setting)| (operator, None, setting))
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

/// The solution of the least cost, or the start.
fn best(state: &State) -> u64 {
    let value = |id: &u64| state.score(*id).map(crate::Score::value);
    let scored = state.solutions.iter().map(|s| s.id).filter(|id| value(id).is_some());
    scored.min_by(|a, b| value(a).unwrap_or(f64::INFINITY).total_cmp(&value(b).unwrap_or(f64::INFINITY))).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_scales_what_is_expected_within_bounds() {
        let at = |stages: i64, block: i64| -> Levers {
            [("STAGES".to_string(), LeverValue::Int(stages)), ("BLOCK_M".to_string(), LeverValue::Int(block))].into()
        };
        let advice = |lever: &str, more, gain| Move { lever: lever.into(), more, gain, rule: "r".into() };
        let moves = [advice("STAGES", true, 1.2), advice("BLOCK_M", false, 1.1), advice("NONE", true, 9.0)];
        for (to, want) in [
            (at(3, 64), 1.2),
            (at(1, 64), 1.0 / 1.2),
            (at(3, 32), 1.2 * 1.1),
            (at(3, 128), 1.2 / 1.1),
            (at(2, 64), 1.0),
        ] {
            assert!((advised(&moves, &at(2, 64), &to) - want).abs() < 1e-9, "{to:?}");
        }
        assert_eq!(advised(&[advice("STAGES", true, 100.0)], &at(2, 64), &at(4, 64)), MOST_ADVICE);
        assert_eq!(advised(&[advice("STAGES", true, f64::NAN)], &at(2, 64), &at(4, 64)), 1.0);
    }
}
