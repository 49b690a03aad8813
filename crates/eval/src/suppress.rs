//! A backend whose findings are looked up in a file of suppressions: errors that stand there become notes, which change no verdict.
//!
//! Only what leaves the kernel running can be lived with: a fault that stopped it left no outputs to judge, so it stays an error.

use crate::backend::{Backend, Job, RunEnd, RunOutcome};
use crate::error::EvalError;
use std::hash::{DefaultHasher, Hash, Hasher};
use warpsmith_spec::Suppressions;

/// Any backend, with what is suppressed.
pub struct Suppressing {
    inner: Box<dyn Backend>,
    rows: Suppressions,
}

impl Suppressing {
    pub fn new(inner: Box<dyn Backend>, rows: Suppressions) -> Suppressing {
        Suppressing { inner, rows }
    }
}

impl Backend for Suppressing {
    fn word(&self) -> &'static str {
        self.inner.word()
    }

    /// A pass with suppressions is another one than without.
    fn version(&self) -> String {
        let mut hash = DefaultHasher::new();
        self.rows.hash(&mut hash);
        format!("{} suppressions {:016x}", self.inner.version(), hash.finish())
    }

    fn run(&self, job: &Job) -> Result<RunOutcome, EvalError> {
        let mut outcome = self.inner.run(job)?;
        suppress(&self.rows, &mut outcome);
        Ok(outcome)
    }
}

/// Makes notes of what stands among the suppressions.
pub(crate) fn suppress(rows: &Suppressions, outcome: &mut RunOutcome) {
    if outcome.end == RunEnd::Completed {
        for finding in &mut outcome.findings {
            rows.apply(finding);
        }
    }
}
