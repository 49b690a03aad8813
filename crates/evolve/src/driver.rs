//! Has done what [`decide`] says, and journals both the asking and the answer.
//!
//! Whatever happens outside goes through three traits: [`Evaluator`] (the gates), [`Asker`] (a model or an agent) and [`Journal`].
//! Solutions of a batch are judged at once by as many workers as the evaluator has; their answers are journaled in the order of
//! their ids, so that the number of workers changes nothing that can be read later.

use crate::decide::{Action, decide, effect};
use crate::event::{Event, Refusal};
use crate::outcome::{BaselineTimes, Baselined, Judged};
use crate::solution::Solution;
use crate::state::{State, StateError};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// The gates, as the loop sees them.
pub trait Evaluator: Sync {
    /// Judges one solution on all shapes. An error is the environment's failure, never the solution's.
    fn evaluate(&self, solution: &Solution) -> Result<Judged, String>;

    /// What names a solution's code, found without executing it; None where that cannot be told before.
    fn code(&self, _solution: &Solution) -> Option<String> {
        None
    }

    /// Measures the winner once more, beside these.
    fn remeasure(&self, solution: &Solution, _beside: &[Solution]) -> Result<Judged, String> {
        self.evaluate(solution)
    }

    /// Times what the task's criteria compare with, in common rounds with this correct solution.
    fn baseline(&self, _beside: &Solution) -> Result<Baselined, String> {
        Ok(Baselined::default())
    }

    /// Told of what that brought, before anything else is judged: here, or by whoever ran the loop before.
    fn know(&self, _baselines: &BTreeMap<String, BaselineTimes>) {}

    /// How many solutions may be judged at once.
    fn workers(&self) -> usize {
        1
    }
}

/// An answer of somebody outside.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Answer {
    /// None where there was none; `failure` then says why.
    pub text: Option<String>,
    pub failure: Option<String>,
    pub tokens: u64,
    pub usd: f64,
    pub seconds: f64,
    /// Nobody was reached: no connection, limited or overloaded to the end, silence until the deadline.
    pub unreached: bool,
}

/// What was read out of an answer.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reading {
    pub solutions: Vec<Solution>,
    pub refusals: Vec<Refusal>,
}

/// A proposer outside of the loop.
pub trait Asker {
    /// The prompt: a pure function of state, parents and what is to be mended.
    fn prompt(&self, state: &State, parents: &[u64], fixes: Option<u64>) -> Result<String, String>;

    /// One call, of so many seconds at most where the loop has no more. An answer without a text says why there is none; once `cancelled`
    /// says so it ends without one, soon.
    ///
    /// # Errors
    /// What no later call could mend: it cannot be started, a key that is refused.
    fn ask(
        &mut self,
        turn: u64,
        prompt: &str,
        most_seconds: Option<f64>,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<Answer, String>;

    /// Reads solutions out of an answer: a pure function of both. New texts are handed to `keep`.
    fn read(
        &self,
        state: &State,
        parents: &[u64],
        fixes: Option<u64>,
        text: &str,
        keep: &mut dyn FnMut(&str),
    ) -> Result<Reading, String>;
}

/// Where events and texts go.
pub trait Journal {
    fn push(&mut self, event: &Event) -> Result<(), String>;

    /// Keeps a text under its SHA-256, before an event names it.
    fn keep(&mut self, text: &str) -> Result<String, String>;

    /// Wall seconds since this was asked last, or since the loop was opened; a journal without a clock says 0.
    fn elapsed(&mut self) -> f64 {
        0.0
    }
}

/// Calls in a row that reached nobody after which the loop is left for later: it has not ended, only nobody answers.
const MAX_UNREACHED: u32 = 5;

#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    #[error("the journal cannot be written: {0}")]
    Journal(String),
    #[error("{0}")]
    Evaluator(String),
    #[error("{0}")]
    Asker(String),
    #[error(transparent)]
    State(#[from] StateError),
    #[error("no proposer was given for a loop that asks one")]
    NoAsker,
}

/// How a driven loop ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    Finished,
    /// The caller asked for an end; the loop can be gone on with.
    Cancelled,
}

/// A loop under way.
pub struct Driver<'a> {
    pub state: State,
    pub journal: &'a mut dyn Journal,
    pub evaluator: &'a dyn Evaluator,
    pub asker: Option<&'a mut dyn Asker>,
    /// Told of each event with the state after it.
    pub observe: &'a mut dyn FnMut(&Event, &State),
}

impl Driver<'_> {
    /// Runs to the end, or until `cancelled`.
    ///
    /// # Errors
    /// What is not the solutions' doing. The loop can be gone on with.
    pub fn run(&mut self, cancelled: &dyn Fn() -> bool) -> Result<Ended, DriverError> {
        let mut unreached = 0;
        if let Some(known) = &self.state.baselined {
            self.evaluator.know(&known.baselines);
        }
        loop {
            if cancelled() {
                return Ok(Ended::Cancelled);
            }
            match decide(&self.state) {
                Action::Done => return Ok(Ended::Finished),
                Action::Finish(reason) => self.push(Event::Finished { reason })?,
                Action::Propose(solution) => self.push(Event::Proposed { solution })?,
                Action::Refuse(refusal) => self.push(Event::Refused { refusal })?,
                Action::Evaluate(ids) => self.evaluate(&ids, cancelled)?,
                Action::Baseline(beside) => self.baseline(beside, cancelled)?,
                Action::Remeasure(id) => self.remeasure(id, cancelled)?,
                Action::Ask { parents, fixes } => match self.ask(parents, fixes, cancelled)? {
                    Some(why) if unreached + 1 >= MAX_UNREACHED && decide(&self.state).asks() => {
                        return Err(DriverError::Asker(format!(
                            "{MAX_UNREACHED} calls in a row reached nobody: {why}"
                        )));
                    }
                    why => unreached = if why.is_some() { unreached + 1 } else { 0 },
                },
            }
        }
    }

    fn push(&mut self, event: Event) -> Result<(), DriverError> {
        let mut next = self.state.clone();
        next.apply(&event).map_err(|why| StateError::Inconsistent { seq: 0, why })?;
        self.journal.push(&event).map_err(DriverError::Journal)?;
        self.state = next;
        (self.observe)(&event, &self.state);
        Ok(())
    }

    fn evaluate(&mut self, ids: &[u64], cancelled: &dyn Fn() -> bool) -> Result<(), DriverError> {
        if let Some(asked) = effect(&Action::Evaluate(ids.to_vec()), 0, None) {
            self.push(Event::Asked { asked })?;
        }
        let solutions: Vec<Solution> = ids.iter().map(|id| self.state.solutions[*id as usize].clone()).collect();
        let state = &self.state;
        let answers = judge_all(self.evaluator, &solutions, &|code| state.same_code(code));
        for (id, answer) in ids.iter().zip(answers) {
            let mut judged = match answer {
                Ok(judged) => judged,
                // What an ending loop did not get an answer to is asked again when it is gone on with.
                Err(_) if cancelled() => return Ok(()),
                Err(e) => return Err(DriverError::Evaluator(e)),
            };
            // A twin within a batch is told what its other half was, as it would be had it come later; what it cost is its own.
            if let Some((of, known)) = judged.code_sha256.as_deref().and_then(|code| self.state.same_code(code)) {
                let (seconds, gpu_seconds) = (judged.seconds, judged.gpu_seconds);
                judged = Judged { duplicate_of: Some(of), seconds, gpu_seconds, beside: Vec::new(), ..known };
            }
            let elapsed = self.journal.elapsed();
            self.push(Event::Evaluated { id: *id, judged: Box::new(judged), elapsed })?;
        }
        Ok(())
    }

    fn baseline(&mut self, beside: u64, cancelled: &dyn Fn() -> bool) -> Result<(), DriverError> {
        if let Some(asked) = effect(&Action::Baseline(beside), 0, None) {
            self.push(Event::Asked { asked })?;
        }
        let baselined = match self.evaluator.baseline(&self.state.solutions[beside as usize]) {
            Ok(baselined) => baselined,
            Err(_) if cancelled() => return Ok(()),
            Err(e) => return Err(DriverError::Evaluator(e)),
        };
        self.evaluator.know(&baselined.baselines);
        let elapsed = self.journal.elapsed();
        self.push(Event::Baselined { beside, baselined: Box::new(baselined), elapsed })
    }

    fn remeasure(&mut self, id: u64, cancelled: &dyn Fn() -> bool) -> Result<(), DriverError> {
        if let Some(asked) = effect(&Action::Remeasure(id), 0, None) {
            self.push(Event::Asked { asked })?;
        }
        let solution = &self.state.solutions[id as usize];
        let mut beside: Vec<u64> = vec![0];
        beside.extend(solution.parents.iter().filter(|p| self.state.score(**p).is_some()).take(1));
        beside.retain(|of| *of != id && self.state.score(*of).is_some());
        beside.dedup();
        let beside: Vec<Solution> = beside.iter().map(|of| self.state.solutions[*of as usize].clone()).collect();
        let judged = match self.evaluator.remeasure(solution, &beside) {
            Ok(judged) => judged,
            Err(_) if cancelled() => return Ok(()),
            Err(e) => return Err(DriverError::Evaluator(e)),
        };
        let elapsed = self.journal.elapsed();
        self.push(Event::Remeasured { id, judged: Box::new(judged), elapsed })
    }

    /// One call with its events; why, where it reached nobody.
    fn ask(
        &mut self,
        parents: Vec<u64>,
        fixes: Option<u64>,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<Option<String>, DriverError> {
        let asker = self.asker.as_deref().ok_or(DriverError::NoAsker)?;
        let prompt = asker.prompt(&self.state, &parents, fixes).map_err(DriverError::Asker)?;
        let sha = self.journal.keep(&prompt).map_err(DriverError::Journal)?;
        let turn = self.state.turns + 1;
        if let Some(asked) = effect(&Action::Ask { parents: parents.clone(), fixes }, turn, Some(sha)) {
            self.push(Event::Asked { asked })?;
        }
        let asker = self.asker.as_deref_mut().ok_or(DriverError::NoAsker)?;
        let most = self.state.request.budget.seconds_left(&self.state.account);
        let answer = asker.ask(turn, &prompt, most, cancelled).map_err(DriverError::Asker)?;
        // What was asked when the loop was ended stays open, and is asked again, as another call, when it is gone on with.
        if answer.text.is_none() && cancelled() {
            return Ok(None);
        }
        let mut reading = Reading::default();
        let mut answer_sha256 = None;
        match &answer.text {
            Some(text) => {
                answer_sha256 = Some(self.journal.keep(text).map_err(DriverError::Journal)?);
                let mut texts: Vec<String> = Vec::new();
                reading = asker
                    .read(&self.state, &parents, fixes, text, &mut |text| texts.push(text.to_string()))
                    .map_err(DriverError::Asker)?;
                for text in &texts {
                    self.journal.keep(text).map_err(DriverError::Journal)?;
                }
            }
            None => reading.refusals.push(Refusal::Empty),
        }
        let unreached = answer.failure.clone().filter(|_| answer.unreached);
        let elapsed = self.journal.elapsed();
        self.push(Event::Answered {
            turn,
            solutions: reading.solutions,
            refusals: reading.refusals,
            answer_sha256,
            tokens: answer.tokens,
            usd: answer.usd,
            seconds: answer.seconds,
            elapsed,
            failure: answer.failure,
        })?;
        Ok(unreached)
    }
}

/// Judges all, as many at once as the evaluator has workers; answers in the order of the solutions.
///
/// `same` gives what was said of a code before: it is not judged again.
fn judge_all(
    evaluator: &dyn Evaluator,
    solutions: &[Solution],
    same: &(dyn Fn(&str) -> Option<(u64, Judged)> + Sync),
) -> Vec<Result<Judged, String>> {
    let judge = |solution: &Solution| {
        let known = evaluator.code(solution).and_then(|code| same(&code));
        match known {
            Some((of, judged)) => {
                Ok(Judged { duplicate_of: Some(of), seconds: 0.0, gpu_seconds: 0.0, beside: Vec::new(), ..judged })
            }
            None => evaluator.evaluate(solution),
        }
    };
    let next = AtomicUsize::new(0);
    let answers: Mutex<Vec<Option<Result<Judged, String>>>> = Mutex::new(solutions.iter().map(|_| None).collect());
    std::thread::scope(|scope| {
        for _ in 0..evaluator.workers().clamp(1, solutions.len().max(1)) {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(solution) = solutions.get(at) else { return };
                    let answer = judge(solution);
                    answers.lock().unwrap_or_else(PoisonError::into_inner)[at] = Some(answer);
                }
            });
        }
    });
    let answers = answers.into_inner().unwrap_or_else(PoisonError::into_inner);
    answers.into_iter().map(|a| a.unwrap_or_else(|| Err("an evaluation was left out".into()))).collect()
}
