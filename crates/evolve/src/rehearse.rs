//! A search rehearsed on a table of times: settings that were all measured before, so that what a search finds is compared with the best there is.
//!
//! The loop is the real one, with its journal in memory; only evaluations are looked up. It measures nothing.

use crate::driver::{Driver, Evaluator, Journal};
use crate::event::Event;
use crate::outcome::Judged;
use crate::request::{LoopRequest, ProposerKind, Rules, Variant};
use crate::score::{Score, Timed};
use crate::solution::{Levers, Operator, Solution};
use crate::space::Space;
use crate::state::State;
use crate::{Budget, DriverError};
use serde::{Deserialize, Serialize};
use warpsmith_spec::record::VerdictWord;

/// Settings with their times; one that did not pass has none.
pub struct Table {
    pub rows: Vec<(Levers, Option<Timed>)>,
}

/// What one search came to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rehearsal {
    pub variant: String,
    pub seed: u64,
    pub evaluations: u64,
    /// Its best by the best of all.
    pub best_by_optimum: f64,
    /// Evaluations until it was within 3% of the best of all; absent where it never was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within_3_percent_after: Option<u64>,
}

impl Table {
    fn value(&self, levers: &Levers) -> Option<f64> {
        self.rows.iter().find(|(l, _)| l == levers).and_then(|(_, t)| t.as_ref()).map(|t| t.time_us)
    }

    /// The slowest setting and the least time. None where nothing passed.
    fn ends(&self) -> Option<(&Levers, f64)> {
        let passed = || self.rows.iter().filter_map(|(l, t)| Some((l, t.as_ref()?.time_us)));
        let worst = passed().max_by(|a, b| a.1.total_cmp(&b.1))?;
        Some((worst.0, passed().map(|(_, t)| t).fold(f64::INFINITY, f64::min)))
    }

    /// One search from the slowest setting.
    ///
    /// # Errors
    /// The table has no time, or the loop cannot go on.
    pub fn rehearse(&self, variant: Variant, seed: u64, evaluations: u64) -> Result<Rehearsal, DriverError> {
        let nothing = || DriverError::Evaluator("the table holds no time".into());
        let (worst, optimum) = self.ends().ok_or_else(nothing)?;
        let device = self.rows.iter().find_map(|(_, t)| t.as_ref()).map(|t| t.device.clone()).unwrap_or_default();
        let start = Solution {
            id: 0,
            candidate: "table".into(),
            source_sha256: "0".into(),
            levers: worst.clone(),
            parents: Vec::new(),
            operator: Operator::Start,
            change: "the start".into(),
            rationale: None,
        };
        let request = LoopRequest {
            task: "table".into(),
            task_text: None,
            ceilings: None,
            shapes: Vec::new(),
            target: String::new(),
            backend: "fake".into(),
            device,
            variant,
            population: variant.population(),
            proposer: ProposerKind::Levers,
            rules: Rules::default(),
            budget: Budget { evaluations, ..Budget::default() },
            fixes: 0,
            seed,
            batch: 2,
            space: Space { settings: self.rows.iter().map(|(l, _)| l.clone()).collect() },
            lessons: None,
            prompts: Default::default(),
            until_accepted: false,
            compared: Vec::new(),
            times_sha256: None,
        };
        let mut reached = None;
        let mut nowhere = Nowhere;
        let mut observe = |event: &Event, state: &State| {
            if let Event::Evaluated { id, .. } = event
                && state.score(*id).is_some_and(|s| s.value() <= 1.03 * optimum)
            {
                reached.get_or_insert(state.account.evaluations);
            }
        };
        let state = State::new(request, start);
        let mut driver = Driver { state, journal: &mut nowhere, evaluator: self, asker: None, observe: &mut observe };
        driver.run(&|| false)?;
        let state = driver.state;
        // The winner is what the loop says it is, not the least figure that it saw.
        let best = state.best.and_then(|b| self.value(&state.solutions[b as usize].levers)).ok_or_else(nothing)?;
        Ok(Rehearsal {
            variant: variant.word().into(),
            seed,
            evaluations: state.account.evaluations,
            best_by_optimum: best / optimum,
            within_3_percent_after: reached,
        })
    }
}

impl Evaluator for Table {
    fn evaluate(&self, solution: &Solution) -> Result<Judged, String> {
        let row = self.rows.iter().find(|(levers, _)| *levers == solution.levers).ok_or("not in the table")?;
        Ok(match &row.1 {
            Some(timed) => Judged { score: Some(Score::Timed(timed.clone())), ..Judged::of(VerdictWord::Passed) },
            None => Judged::of(VerdictWord::Incorrect),
        })
    }
}

struct Nowhere;

impl Journal for Nowhere {
    fn push(&mut self, _event: &Event) -> Result<(), String> {
        Ok(())
    }

    fn keep(&mut self, text: &str) -> Result<String, String> {
        Ok(text.len().to_string())
    }
}
