//! A loop's state: the fold of its events. Two folds of the same events are equal, whoever made the events and when.

use crate::archive::{Archive, Status};
use crate::budget::Account;
use crate::event::{Effect, Event, Refusal};
use crate::lessons::Lessons;
use crate::outcome::{Baselined, Judged};
use crate::request::{Against, LoopRequest};
use crate::rules::{Step, against_best};
use crate::score::Score;
use crate::solution::Solution;
use std::collections::{BTreeMap, BTreeSet};
use warpsmith_num::philox::Philox4x32;

#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum StateError {
    #[error("the journal does not begin with a `started` event: not a loop's journal, or the loop never began")]
    NoStart,
    #[error("event {seq} does not follow from what came before it: {why}")]
    Inconsistent { seq: usize, why: String },
}

/// A step of the search that is told to people.
#[derive(Debug, Clone, PartialEq)]
pub struct Improvement {
    pub id: u64,
    /// Evaluations until then.
    pub evaluations: u64,
    /// Over the best before it.
    pub gain: f64,
    pub announced: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct State {
    pub request: LoopRequest,
    /// By id.
    pub solutions: Vec<Solution>,
    pub judged: BTreeMap<u64, Judged>,
    pub statuses: BTreeMap<u64, Status>,
    pub refusals: Vec<Refusal>,
    pub archive: Archive,
    /// The correct solution from which the search goes on.
    pub best: Option<u64>,
    pub improvements: Vec<Improvement>,
    pub account: Account,
    /// What the criteria of acceptance compare with; None until it was timed.
    pub baselined: Option<Baselined>,
    /// Winners that were measured once more.
    pub remeasured: BTreeMap<u64, Judged>,
    /// Requests to a proposer so far, answered or not.
    pub turns: u64,
    /// The turn that last led to a solution.
    pub last_proposal_turn: u64,
    /// Failed solutions for which a fixer was asked.
    pub fix_asked: BTreeSet<u64>,
    /// Asked last and not answered.
    pub open: Option<Effect>,
    pub finished: Option<String>,
    /// Why the last turn that brought nothing did not.
    pub last_failure: Option<String>,
    /// Those of the request.
    pub lessons: Lessons,
}

impl State {
    /// Folds a journal.
    pub fn fold(events: &[Event]) -> Result<State, StateError> {
        let Some(Event::Started { request, start }) = events.first() else { return Err(StateError::NoStart) };
        let mut state = State::new((**request).clone(), (**start).clone());
        for (seq, event) in events.iter().enumerate().skip(1) {
            state.apply(event).map_err(|why| StateError::Inconsistent { seq, why })?;
        }
        Ok(state)
    }

    pub fn new(request: LoopRequest, start: Solution) -> State {
        // Lessons were read before they were journaled; a text that is none teaches nothing.
        let lessons = request.lessons.as_deref().and_then(|t| Lessons::parse(t).ok()).unwrap_or_default();
        State {
            lessons,
            last_failure: None,
            archive: Archive::new(request.population),
            request,
            solutions: vec![start],
            judged: BTreeMap::new(),
            statuses: BTreeMap::new(),
            refusals: Vec::new(),
            best: None,
            improvements: Vec::new(),
            account: Account::default(),
            baselined: None,
            remeasured: BTreeMap::new(),
            turns: 0,
            last_proposal_turn: 0,
            fix_asked: BTreeSet::new(),
            open: None,
            finished: None,
        }
    }

    /// Takes one event in. What does not follow from the state is refused, and leaves it as it was.
    pub fn apply(&mut self, event: &Event) -> Result<(), String> {
        if self.finished.is_some() {
            return Err("the loop had finished".into());
        }
        match event {
            Event::Started { .. } => return Err("a loop starts once".into()),
            Event::Asked { asked } => {
                if let Effect::Propose { fixes, .. } = asked {
                    self.turns += 1;
                    self.account.calls += 1;
                    self.account.fixes += u64::from(fixes.is_some());
                }
                self.open = Some(asked.clone());
            }
            Event::Answered { turn, solutions, refusals, tokens, usd, seconds, elapsed, failure, .. } => {
                match self.open.take() {
                    Some(Effect::Propose { turn: asked, fixes, .. }) if asked == *turn => self.fix_asked.extend(fixes),
                    _ => return Err(format!("nobody asked for turn {turn}")),
                }
                if solutions.is_empty() {
                    self.last_failure = failure.clone().or_else(|| refusals.first().map(Refusal::words));
                } else {
                    self.last_proposal_turn = *turn;
                }
                self.account.tokens += tokens;
                self.account.usd += usd;
                self.account.seconds += seconds;
                self.account.wall_seconds += elapsed;
                solutions.iter().try_for_each(|s| self.propose(s))?;
                self.refusals.extend(refusals.iter().cloned());
            }
            Event::Proposed { solution } => self.propose(solution)?,
            Event::Refused { refusal } => self.refusals.push(refusal.clone()),
            Event::Evaluated { id, judged, elapsed } => {
                self.evaluated(*id, judged)?;
                self.account.wall_seconds += elapsed;
            }
            Event::Baselined { beside, baselined, elapsed } => {
                self.open = None;
                self.account.wall_seconds += elapsed;
                self.account.seconds += baselined.seconds;
                self.account.gpu_seconds += baselined.gpu_seconds;
                if let Some(judged) = self.judged.get_mut(beside) {
                    judged.accept.clone_from(&baselined.accept);
                    judged.provisional = true;
                }
                self.baselined = Some((**baselined).clone());
            }
            Event::Remeasured { id, judged, elapsed } => {
                self.open = None;
                self.account.wall_seconds += elapsed;
                self.account.seconds += judged.seconds;
                self.account.gpu_seconds += judged.gpu_seconds;
                self.remeasured.insert(*id, (**judged).clone());
                if !judged.passed() {
                    self.unmask(*id, judged);
                }
            }
            Event::Finished { reason } => self.finished = Some(reason.clone()),
        }
        Ok(())
    }

    fn propose(&mut self, solution: &Solution) -> Result<(), String> {
        if solution.id != self.solutions.len() as u64 {
            return Err(format!("solution {} is not the next one", solution.id));
        }
        self.solutions.push(solution.clone());
        Ok(())
    }

    fn evaluated(&mut self, id: u64, judged: &Judged) -> Result<(), String> {
        let Some(solution) = self.solutions.get(id as usize).cloned() else {
            return Err(format!("there is no solution {id}"));
        };
        if self.judged.contains_key(&id) {
            return Err(format!("solution {id} was judged before"));
        }
        self.account.seconds += judged.seconds;
        self.account.gpu_seconds += judged.gpu_seconds;
        if judged.duplicate_of.is_none() {
            self.account.evaluations += 1;
        }
        self.judged.insert(id, judged.clone());
        if let Some(Effect::Evaluate { ids }) = &self.open
            && ids.iter().all(|id| self.judged.contains_key(id))
        {
            self.open = None;
        }
        let status = self.place(&solution, judged);
        self.statuses.insert(id, status);
        Ok(())
    }

    /// Gives a judged solution its place in the population, and moves the search.
    fn place(&mut self, solution: &Solution, judged: &Judged) -> Status {
        let Some(score) = judged.score.as_ref().filter(|_| judged.passed()) else { return Status::NotCorrect };
        if judged.duplicate_of.is_some() {
            return Status::NotKept;
        }
        let best = self.best.and_then(|best| self.score(best)).cloned();
        let step = best.as_ref().map(|best| against_best(&self.request.rules, score, best));
        let moved = match step {
            None => Some((1.0, true)),
            Some(Step::Announce(gain)) => Some((gain.ratio, true)),
            Some(Step::Move(gain)) => Some((gain.ratio, false)),
            Some(Step::Discard(_) | Step::Incomparable) => return Status::NotKept,
            Some(Step::Stay(_)) => None,
        };
        if let Some((gain, announced)) = moved {
            self.best = Some(solution.id);
            let evaluations = self.account.evaluations;
            self.improvements.push(Improvement { id: solution.id, evaluations, gain, announced });
        }
        let entry = self.request.rules.elite_min_speedup;
        let speedup = self.demanded_over(solution).and_then(|other| score.gain_over(other)).map(|g| g.ratio);
        if speedup.is_some_and(|s| s < entry) {
            return Status::BelowEntry;
        }
        self.archive.add(solution.id, score.value(), &solution.parents)
    }

    /// Over what a solution's gain is demanded; parents without a figure give way to the start.
    fn demanded_over(&self, solution: &Solution) -> Option<&Score> {
        let parents = solution.parents.iter().filter_map(|p| self.score(*p));
        let better = parents.min_by(|a, b| a.value().total_cmp(&b.value()));
        better.filter(|_| self.request.rules.elite_against == Against::Parent).or(self.score(0))
    }

    /// A winner that failed when it was measured once more is no solution any more; the best of the others is the best.
    fn unmask(&mut self, id: u64, judged: &Judged) {
        let (seconds, gpu_seconds) = self.judged.get(&id).map_or((0.0, 0.0), |j| (j.seconds, j.gpu_seconds));
        self.judged.insert(id, Judged { seconds, gpu_seconds, ..judged.clone() });
        self.statuses.insert(id, Status::NotCorrect);
        self.archive.remove(id);
        self.improvements.retain(|i| i.id != id);
        let others = self.judged.iter().filter(|(_, j)| j.duplicate_of.is_none());
        let scored = others.filter_map(|(id, j)| Some((*id, j.score.as_ref().filter(|_| j.passed())?.value())));
        self.best = scored.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(id, _)| id);
    }

    /// The score of a correct solution.
    pub fn score(&self, id: u64) -> Option<&Score> {
        self.judged.get(&id).filter(|j| j.passed()).and_then(|j| j.score.as_ref())
    }

    /// Proposed and not judged yet, in order.
    pub fn pending(&self) -> Vec<u64> {
        (0..self.solutions.len() as u64).filter(|id| !self.judged.contains_key(id)).collect()
    }

    /// The first solution that was judged with this code, and what was said of it.
    pub fn same_code(&self, code: &str) -> Option<(u64, Judged)> {
        let found = self.judged.iter().find(|(_, j)| j.code_sha256.as_deref() == Some(code));
        found.map(|(id, judged)| (judged.duplicate_of.unwrap_or(*id), judged.clone()))
    }

    /// The solution with this text and these levers, if it was proposed before.
    pub fn known(&self, source_sha256: &str, levers: &crate::solution::Levers) -> Option<u64> {
        self.solutions.iter().find(|s| s.same_as(source_sha256, levers)).map(|s| s.id)
    }

    /// Random numbers for the proposal that comes next: a function of the seed and of how much was proposed.
    pub fn draws(&self, purpose: u32) -> Philox4x32 {
        let step = self.solutions.len() as u64 + self.refusals.len() as u64 + (self.turns << 20);
        Philox4x32::new(self.request.seed, (u64::from(purpose) << 40) ^ step)
    }
}
