//! What a loop does next: a pure function of its state.

use crate::archive::{Member, PopulationKind};
use crate::event::{Effect, Refusal};
use crate::outcome::Judged;
use crate::proposer::{levers, replay};
use crate::request::ProposerKind;
use crate::score::Score;
use crate::solution::{Operator, Solution};
use crate::state::State;

/// Turns in a row without a solution after which a proposer outside is given up.
pub const MAX_REFUSALS: usize = 20;

/// Winners that are measured once more at most, each after the one before it failed then.
pub const MAX_REMEASURED: usize = 5;

/// The next thing to be done.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Have these judged; none depends on another.
    Evaluate(Vec<u64>),
    /// Take this proposal of the loop's own in.
    Propose(Box<Solution>),
    /// Note that a proposal of the loop's own is none.
    Refuse(Refusal),
    /// Ask a model or an agent: from these parents, or to mend this failed solution.
    Ask { parents: Vec<u64>, fixes: Option<u64> },
    /// Time what the criteria of acceptance compare with, beside this correct solution.
    Baseline(u64),
    /// Measure the winner once more: its figure is that of this measurement.
    Remeasure(u64),
    /// Nothing more is to be done.
    Finish(String),
    /// The loop had finished.
    Done,
}

impl Action {
    /// Whether somebody outside is to be asked for a proposal.
    pub fn asks(&self) -> bool {
        matches!(self, Action::Ask { .. })
    }
}

/// What comes next.
pub fn decide(state: &State) -> Action {
    if state.finished.is_some() {
        return Action::Done;
    }
    let pending = state.pending();
    let request = &state.request;
    // The start is judged alone: nobody proposes before its figure is known.
    if !pending.is_empty() && !state.judged.contains_key(&0) {
        return Action::Evaluate(vec![0]);
    }
    // A batch that a kill parted is judged to its end first: whoever goes on proposes from the same state then.
    if let Some(Effect::Evaluate { ids }) = &state.open {
        let rest: Vec<u64> = ids.iter().copied().filter(|id| pending.contains(id)).collect();
        if !rest.is_empty() {
            return Action::Evaluate(rest);
        }
    }
    // A call that a kill cut off is made again, and is another call in the accounts.
    if let Some(Effect::Propose { parents, fixes, .. }) = &state.open
        && request.budget.reached(&state.account).is_none()
    {
        return Action::Ask { parents: parents.clone(), fixes: *fixes };
    }
    if let Some(beside) = to_baseline(state) {
        return Action::Baseline(beside);
    }
    if let Some(action) = accepted(state) {
        return action;
    }
    let left = request.budget.evaluations.saturating_sub(state.account.evaluations);
    let room = (request.batch.max(1) as u64).min(left) as usize;
    if let Some(reached) = request.budget.reached(&state.account) {
        // What a call has brought is paid for: it is judged though nobody may be asked any more.
        if !pending.is_empty() && request.budget.judging_ended(&state.account).is_none() {
            return Action::Evaluate(pending[..room.min(pending.len())].to_vec());
        }
        return finish(state, format!("the budget of {reached} is spent"));
    }
    if pending.len() >= room {
        return Action::Evaluate(pending[..room].to_vec());
    }
    let proposal = match &request.proposer {
        ProposerKind::Levers => levers::next(state),
        ProposerKind::Replay { lines } => replay::next(state, lines),
        ProposerKind::Agent { .. } | ProposerKind::Llm { .. } => external(state),
    };
    match proposal {
        Some(action) => action,
        // What was proposed before the proposer ran dry is still judged.
        None if !pending.is_empty() => Action::Evaluate(pending[..room.min(pending.len())].to_vec()),
        None => finish(state, exhausted(state)),
    }
}

fn exhausted(state: &State) -> String {
    match &state.request.proposer {
        ProposerKind::Levers if state.request.space.settings.len() < 2 => {
            "the kernel declares no levers to move; a model or an agent changes its text (--proposer llm:..., agent:...)".into()
        }
        ProposerKind::Levers => "every setting of the levers was tried".into(),
        ProposerKind::Replay { .. } => "the replay's lines are at their end".into(),
        ProposerKind::Agent { .. } | ProposerKind::Llm { .. } => {
            let last = state.last_failure.as_ref().map_or_else(String::new, |why| format!("; the last: {why}"));
            format!("{MAX_REFUSALS} turns in a row brought no new candidate{last}")
        }
    }
}

/// From whom an outside proposer is asked to go on: a failed solution that has fixer turns left, else the best, or by variant.
fn external(state: &State) -> Option<Action> {
    if state.turns.saturating_sub(state.last_proposal_turn) >= MAX_REFUSALS as u64 {
        return None;
    }
    if let Some(failed) = to_fix(state) {
        return Some(Action::Ask { parents: vec![failed], fixes: Some(failed) });
    }
    Some(Action::Ask { parents: parents(state), fixes: None })
}

/// The newest failed solution for which no fixer was asked and whose line of fixes is not used up.
fn to_fix(state: &State) -> Option<u64> {
    let spent = state.request.budget.fixes.is_some_and(|most| state.account.fixes >= most);
    if state.request.fixes == 0 || spent {
        return None;
    }
    let failed = |s: &&Solution| s.id != 0 && state.judged.get(&s.id).is_some_and(|j| !j.passed());
    let open = |s: &&Solution| !state.fix_asked.contains(&s.id) && fixes_before(state, s) < state.request.fixes;
    state.solutions.iter().rev().filter(failed).find(open).map(|s| s.id)
}

/// Fixer turns that a solution's line has behind it.
fn fixes_before(state: &State, solution: &Solution) -> u64 {
    let (mut at, mut tries) = (solution, 0);
    while at.operator == Operator::Fix {
        tries += 1;
        match at.parents.first().and_then(|p| state.solutions.get(*p as usize)) {
            Some(parent) => at = parent,
            None => break,
        }
    }
    tries
}

/// The correct solution beside which the criteria's baselines are timed, where they were not yet and something is left to be found.
fn to_baseline(state: &State) -> Option<u64> {
    let wanted = state.baselined.is_none() && state.request.until_accepted && !state.request.compared.is_empty();
    let best = state.best.filter(|_| wanted && state.request.budget.reached(&state.account).is_none())?;
    is_timed(state, best).then_some(best)
}

/// The end, where the best holds what the task demands and the loop was to go on until then. Times end it only in common rounds with
/// what they are compared with: one that seems to hold is measured once more, and where it does not hold then the search goes on.
fn accepted(state: &State) -> Option<Action> {
    let best = state.best.filter(|_| state.request.until_accepted)?;
    let seems = state.judged.get(&best).is_some_and(Judged::accepted);
    let end = || Action::Finish(format!("#{best} holds all criteria of acceptance of the task"));
    match state.remeasured.get(&best) {
        Some(again) if again.accepted() => Some(end()),
        None if seems && is_timed(state, best) => Some(Action::Remeasure(best)),
        None if seems => Some(end()),
        _ => None,
    }
}

fn is_timed(state: &State, id: u64) -> bool {
    matches!(state.score(id), Some(Score::Timed(_)))
}

/// One parent, or by turns two where the variant crosses and the elite has two. None where nothing is correct yet.
fn parents(state: &State) -> Vec<u64> {
    let members = island(state);
    if state.request.variant.has_history() && members.len() >= 2 && state.turns % 2 == 1 {
        let second = 1 + (state.draws(1).uniform(0) * (members.len() - 1) as f64) as usize;
        return vec![members[0].id, members[second.min(members.len() - 1)].id];
    }
    let islands = matches!(state.request.population, PopulationKind::Islands { .. });
    let best = if state.request.variant.has_history() || islands { members.first().map(|m| m.id) } else { state.best };
    best.or(state.best).into_iter().collect()
}

/// The members from which this turn goes on: islands take turns, and one that is empty goes on from all.
fn island(state: &State) -> Vec<Member> {
    let islands = state.archive.islands();
    let own = &islands[(state.turns % islands.len().max(1) as u64) as usize];
    if own.is_empty() { state.archive.members() } else { own.clone() }
}

/// Times are measured once more for the winner; estimates would only repeat themselves.
fn finish(state: &State, reason: String) -> Action {
    match state.best {
        // One that fails is the best no longer, and the next one is measured; some have failed, and the rest is believed no less.
        Some(best)
            if !state.remeasured.contains_key(&best)
                && state.remeasured.values().filter(|j| !j.passed()).count() < MAX_REMEASURED
                && is_timed(state, best) =>
        {
            Action::Remeasure(best)
        }
        _ => Action::Finish(reason),
    }
}

/// The effect that an action has outside, if any.
pub fn effect(action: &Action, turn: u64, prompt_sha256: Option<String>) -> Option<Effect> {
    match action {
        Action::Evaluate(ids) => Some(Effect::Evaluate { ids: ids.clone() }),
        Action::Baseline(beside) => Some(Effect::Baseline { beside: *beside }),
        Action::Remeasure(id) => Some(Effect::Remeasure { id: *id }),
        Action::Ask { parents, fixes } => Some(Effect::Propose {
            turn,
            parents: parents.clone(),
            fixes: *fixes,
            prompt_sha256: prompt_sha256.unwrap_or_default(),
        }),
        _ => None,
    }
}
