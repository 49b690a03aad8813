//! A run: candidates x settings x workloads through gates 1 and 2, with events on the way.
//!
//! It expands what was asked, sets aside what does not apply, and evaluates the rest in order. What a candidate does is a
//! verdict in the results; an error ends the run. It prints nothing and writes no file.

use crate::compile_gate::Subject;
use crate::error::EvalError;
use crate::evaluate::{Context, evaluate};
use warpsmith_spec::error::{SpecCode, SpecError};
use warpsmith_spec::levers::Setting;
use warpsmith_spec::record::{NotApplicable, ResultRecord};
use warpsmith_spec::target::{self, Target};
use warpsmith_spec::workload::{Workload, WorkloadRequest, expand};

/// What is asked of a run.
pub struct RunRequest<'a> {
    /// Candidates with the settings of their levers.
    pub subjects: &'a [(Subject, Vec<Setting>)],
    pub workloads: &'a WorkloadRequest,
    /// The target that gate 2 runs; None: each candidate's first.
    pub target: Option<&'a str>,
}

/// What happens on the way.
#[derive(Debug)]
pub enum Event<'a> {
    Planned {
        evaluations: usize,
        not_applicable: usize,
    },
    /// References are being computed; this may take seconds.
    Reference {
        workload: &'a Workload,
    },
    Started {
        index: usize,
        candidate: &'a str,
        setting: &'a Setting,
        workload: &'a Workload,
        target: &'a str,
    },
    Finished {
        index: usize,
        result: &'a ResultRecord,
    },
}

/// What a run leaves.
#[derive(Debug, Default)]
pub struct RunResults {
    pub results: Vec<ResultRecord>,
    pub not_applicable: Vec<NotApplicable>,
    /// Ended before its time by the caller; the results are those until then.
    pub cancelled: bool,
}

/// One evaluation to be done.
#[derive(Clone)]
pub struct Step<'a> {
    pub subject: &'a Subject,
    pub setting: &'a Setting,
    pub workload: Workload,
    pub target: &'static Target,
}

/// Runs. `cancelled` is asked before each evaluation.
pub fn run(
    request: &RunRequest,
    ctx: &Context,
    cancelled: &dyn Fn() -> bool,
    events: &mut dyn FnMut(Event),
) -> Result<RunResults, EvalError> {
    let (steps, not_applicable) = plan(request, &[])?;
    if steps.is_empty() {
        return Err(nothing_left(&not_applicable).into());
    }
    events(Event::Planned { evaluations: steps.len(), not_applicable: not_applicable.len() });
    let mut done = RunResults { not_applicable, ..RunResults::default() };
    for (index, step) in steps.iter().enumerate() {
        if cancelled() {
            done.cancelled = true;
            break;
        }
        let candidate = &step.subject.candidate.name;
        events(Event::Started {
            index,
            candidate,
            setting: step.setting,
            workload: &step.workload,
            target: step.target.name,
        });
        if !ctx.oracles.has(&step.workload) {
            events(Event::Reference { workload: &step.workload });
        }
        let result = evaluate(ctx, step.subject, step.setting, &step.workload, step.target)?;
        events(Event::Finished { index, result: &result });
        done.results.push(result);
    }
    Ok(done)
}

/// What there is to be done, and what does not apply. Where no target is asked for, a candidate's own that comes first in `preferred` is
/// taken, else its first; with preferences, a candidate that has none of them is not applicable.
pub fn plan<'a>(
    request: &RunRequest<'a>,
    preferred: &[String],
) -> Result<(Vec<Step<'a>>, Vec<NotApplicable>), EvalError> {
    let asked = request.target.map(target::find).transpose()?;
    let (mut steps, mut excluded) = (Vec::new(), Vec::new());
    for (subject, settings) in request.subjects {
        let candidate = &subject.candidate;
        let mut exclude = |shape: &str, why: String| {
            let entry = NotApplicable { candidate: candidate.name.clone(), shape: shape.to_string(), why };
            if !excluded.contains(&entry) {
                excluded.push(entry);
            }
        };
        let workloads = expand(&subject.task, candidate, request.workloads)?;
        let target = match asked {
            Some(target) if !candidate.targets.iter().any(|t| t == target.name) => {
                for workload in &workloads {
                    exclude(
                        &workload.shape,
                        format!("it is not for {}; its targets are {}", target.name, candidate.targets.join(", ")),
                    );
                }
                continue;
            }
            Some(target) => target,
            None if !preferred.is_empty() => match preferred.iter().find(|p| candidate.targets.contains(p)) {
                Some(name) => target::find(name)?,
                None => {
                    for workload in &workloads {
                        exclude(
                            &workload.shape,
                            format!("the device does not run its targets ({})", candidate.targets.join(", ")),
                        );
                    }
                    continue;
                }
            },
            None => {
                let first = candidate
                    .targets
                    .first()
                    .ok_or_else(|| EvalError::Defect(format!("{} has no target", candidate.name)))?;
                target::find(first)?
            }
        };
        for setting in settings {
            for workload in &workloads {
                match candidate.applicable(setting, workload, target) {
                    Ok(()) => steps.push(Step { subject, setting, workload: workload.clone(), target }),
                    Err(why) => exclude(&workload.shape, why),
                }
            }
        }
    }
    Ok((steps, excluded))
}

/// Nothing to judge is wrong usage: it must not look like a pass.
pub fn nothing_left(excluded: &[NotApplicable]) -> SpecError {
    let Some(first) = excluded.first() else {
        return SpecError::new(SpecCode::ConstraintNotMet, "there is nothing to judge: no candidate was named")
            .hint("`warpsmith list` shows what is built in");
    };
    let more = if excluded.len() > 1 { format!(" (and {} more)", excluded.len() - 1) } else { String::new() };
    SpecError::new(
        SpecCode::ConstraintNotMet,
        format!("nothing is left to judge: {} at shape {}: {}{more}", first.candidate, first.shape, first.why),
    )
    .in_file(&first.candidate)
    .hint("choose other shapes, formats, scales or masks, or another target")
}
