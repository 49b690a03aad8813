//! Stability: the same work launched thousands of times, many in flight, some on fresh streams, and every output compared.
//!
//! A kernel that passes once and dies on its twentieth call is the commonest bad surprise there is.

use super::timed::{Faulted, SteadyRun, Stop, TimedBackend};
use crate::error::EvalError;
use crate::finding::Code;
use warpsmith_spec::record::{FindingRecord, StabilityRecord, VerdictWord};
use warpsmith_spec::task::Task;
use warpsmith_spec::workload::Workload;

const GATE: &str = "performance";
/// At the task's smallest default shape.
pub const LAUNCHES: u64 = 10_000;
/// Elsewhere as many as fit.
pub const SECONDS: f64 = 0.5;
/// For a count that was asked for.
const SECONDS_AT_MOST: f64 = 120.0;
/// For all launches at the smallest shape; a kernel that never ends costs no more.
const SECONDS_FOR_ALL: f64 = 20.0;

/// How many launches, within how many seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Trial {
    pub launches: u64,
    pub seconds: f64,
}

impl Trial {
    /// What a workload is tried with; `asked` is the command line's.
    pub fn of(task: &Task, workload: &Workload, asked: Option<u64>) -> Trial {
        match asked {
            Some(launches) => Trial { launches, seconds: SECONDS_AT_MOST },
            None if is_smallest(task, workload) => Trial { launches: LAUNCHES, seconds: SECONDS_FOR_ALL },
            None => Trial { launches: LAUNCHES, seconds: SECONDS },
        }
    }
}

/// Whether no default shape of the task is smaller.
fn is_smallest(task: &Task, workload: &Workload) -> bool {
    let sizes = |symbols: &warpsmith_spec::formula::Symbols| -> u128 {
        task.symbols.iter().filter_map(|s| symbols.get(s)).map(|n| (*n).max(1) as u128).product()
    };
    let own = sizes(&workload.symbols);
    let shapes = task.default_shapes.iter().filter_map(|name| task.shape(name).ok());
    shapes.map(|shape| sizes(&task.symbols_of(&shape.sizes))).min().is_none_or(|least| own <= least)
}

/// What a trial showed.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Outcome {
    pub record: StabilityRecord,
    pub findings: Vec<FindingRecord>,
    /// None: it is stable.
    pub verdict: Option<VerdictWord>,
    pub stop: Option<Stop>,
}

/// Tries a resident subject. `unordered`: its sums may run in any order.
pub fn judge(backend: &dyn TimedBackend, name: &str, trial: Trial, unordered: bool) -> Result<Outcome, EvalError> {
    let run = backend.steady(name, trial.launches, trial.seconds)?;
    let mut outcome = Outcome { record: record(&run), findings: run.findings.clone(), ..Outcome::default() };
    if !outcome.findings.is_empty() {
        outcome.verdict = Some(VerdictWord::Rejected);
    }
    if let Some(first) = &run.first {
        let message = format!(
            "of {} launches on the same inputs {} left other bits than the first; the first of them is launch {}, in {} from byte {} on",
            run.done, run.differing, first.launch, first.tensor, first.offset
        );
        let mut f = if unordered {
            Code::Unstable.note(GATE, format!("{message}: atomic operations in another order explain it"))
        } else {
            outcome.verdict = Some(VerdictWord::Rejected);
            Code::Unstable.error(GATE, format!("{message}, and no atomic operation explains it"))
        };
        (f.tensor, f.count) = (Some(first.tensor.clone()), Some(run.differing));
        outcome.findings.push(f);
    }
    outcome.stop = run.stop;
    Ok(outcome)
}

fn record(run: &SteadyRun) -> StabilityRecord {
    StabilityRecord {
        launches: run.done,
        identical: run.differing == 0 && run.stop.is_none(),
        first_difference: run.first.as_ref().map(|f| f.launch),
    }
}

/// Which launch it was, in words.
pub fn place(fault: &Faulted) -> String {
    let [x, y, z] = fault.grid;
    let which = match (fault.call(), &fault.unfinished[..]) {
        (Some(call), _) => format!("launch {call}"),
        (None, []) => format!(
            "one of the launches {} to {}, which were under way together",
            fault.before + 1,
            fault.before + fault.together
        ),
        (None, some) => {
            let some: Vec<String> = some.iter().map(u64::to_string).collect();
            format!("one of the launches {}, which had begun and not ended", some.join(", "))
        }
    };
    format!("{which}, grid {x}x{y}x{z}")
}
