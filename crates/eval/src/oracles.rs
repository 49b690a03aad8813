//! Oracles of a run: computed once for each workload, shared by all candidates, dropped when they take too much memory.

use crate::error::EvalError;
use crate::oracle::{Oracle, Secrets};
use std::sync::{Arc, Mutex};
use warpsmith_spec::task::Task;
use warpsmith_spec::workload::Workload;

/// Bytes that kept oracles may hold together, beside the last one.
const MEMORY: usize = 2 << 30;

/// Computes oracles and keeps them.
pub struct Oracles {
    secrets: Secrets,
    kept: Mutex<Vec<(Workload, Arc<Oracle>)>>,
}

impl Oracles {
    pub fn new(secrets: Secrets) -> Oracles {
        Oracles { secrets, kept: Mutex::default() }
    }

    /// The secret of the judged rows is drawn from the system; the inputs' stays the published sequence.
    pub fn with_fresh_rows() -> Oracles {
        use std::hash::{BuildHasher, Hasher, RandomState};
        // The standard library's hasher is seeded by the system, which is secret enough for a choice of rows.
        Oracles::new(Secrets { inputs: 0, rows: RandomState::new().build_hasher().finish() })
    }

    /// Whether the oracle is at hand.
    pub fn has(&self, workload: &Workload) -> bool {
        self.lock().iter().any(|(w, _)| w == workload)
    }

    pub fn get(&self, task: &Task, workload: &Workload) -> Result<Arc<Oracle>, EvalError> {
        if let Some((_, oracle)) = self.lock().iter().find(|(w, _)| w == workload) {
            return Ok(oracle.clone());
        }
        let oracle = Arc::new(Oracle::new(task, workload, self.secrets)?);
        let mut kept = self.lock();
        kept.push((workload.clone(), oracle.clone()));
        while kept.len() > 1 && kept.iter().map(|(_, o)| o.bytes()).sum::<usize>() > MEMORY {
            kept.remove(0);
        }
        Ok(oracle)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<(Workload, Arc<Oracle>)>> {
        self.kept.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
