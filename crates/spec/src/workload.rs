//! A workload: a task on one shape with one format, one distribution of inputs and one seed. And how a request becomes workloads.

use crate::candidate::Candidate;
use crate::error::SpecError;
use crate::formula::Symbols;
use crate::task::Task;
use crate::words::{Distribution, Format, Mask, ScaleLayout};
use serde::{Deserialize, Serialize};

/// Everything that decides inputs and reference; levers and targets are not part of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Workload {
    pub task: String,
    /// The shape's name, or the literal that was typed.
    pub shape: String,
    pub symbols: Symbols,
    pub causal: bool,
    pub format: Format,
    pub scales: ScaleLayout,
    pub distribution: Distribution,
    pub seed: u64,
}

/// What was asked on the command line; an empty list is the task's default.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WorkloadRequest {
    /// Names or literals.
    pub shapes: Vec<String>,
    pub formats: Vec<Format>,
    pub scales: Vec<ScaleLayout>,
    pub distributions: Vec<Distribution>,
    pub masks: Vec<Mask>,
    pub seeds: Vec<u64>,
}

impl Workload {
    pub fn mask(&self) -> Mask {
        if self.causal { Mask::Causal } else { Mask::None }
    }
}

/// The workloads that a request asks of a candidate: shapes, then formats, scales, distributions, masks and seeds, the last varying
/// fastest. Both masks only where the candidate takes `causal` (unless masks were asked for). What the task does not have (a format,
/// a distribution) is an error; what the candidate does not take is not ([`Candidate::applicable`] says so).
pub fn expand(task: &Task, candidate: &Candidate, request: &WorkloadRequest) -> Result<Vec<Workload>, SpecError> {
    expand_for(task, candidate.takes_causal(), request)
}

/// [`expand`] where only this is known of the candidate.
pub fn expand_for(task: &Task, takes_causal: bool, request: &WorkloadRequest) -> Result<Vec<Workload>, SpecError> {
    let shape_names = if request.shapes.is_empty() { &task.default_shapes } else { &request.shapes };
    let shapes = shape_names.iter().map(|s| task.shape(s.trim())).collect::<Result<Vec<_>, _>>()?;
    let formats = chosen(task, "format", &request.formats, &task.formats, &task.formats[..1])?;
    let scales = chosen(task, "scales", &request.scales, &task.scales, &task.scales[..1])?;
    let distributions = chosen(task, "distribution", &request.distributions, &task.distributions, &[task.judged_on])?;
    let natural: Vec<Mask> = if takes_causal { task.masks.clone() } else { task.masks[..1].to_vec() };
    let masks = chosen(task, "mask", &request.masks, &task.masks, &natural)?;
    let seeds = if request.seeds.is_empty() { &task.seeds } else { &request.seeds };

    let mut workloads = Vec::new();
    for shape in &shapes {
        for &format in &formats {
            for &scales in &scales {
                for &distribution in &distributions {
                    for &mask in &masks {
                        for &seed in seeds {
                            let workload = Workload {
                                task: task.name.clone(),
                                shape: shape.name.clone(),
                                symbols: task.symbols_of(&shape.sizes),
                                causal: mask == Mask::Causal,
                                format,
                                scales,
                                distribution,
                                seed,
                            };
                            // The same shape asked for twice is judged once.
                            if !workloads.contains(&workload) {
                                workloads.push(workload);
                            }
                        }
                    }
                }
            }
        }
    }
    Ok(workloads)
}

fn chosen<T>(task: &Task, what: &str, asked: &[T], there: &[T], default: &[T]) -> Result<Vec<T>, SpecError>
where
    T: Copy + PartialEq + std::fmt::Display,
{
    if asked.is_empty() {
        return Ok(default.to_vec());
    }
    match asked.iter().find(|a| !there.contains(a)) {
        None => Ok(asked.to_vec()),
        Some(a) => {
            let words: Vec<String> = there.iter().map(T::to_string).collect();
            Err(SpecError::new(crate::error::SpecCode::UnknownName, format!("task {} has no {what} `{a}`", task.name))
                .hint(format!("it has {}", words.join(", "))))
        }
    }
}
