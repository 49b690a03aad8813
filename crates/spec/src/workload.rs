//! A workload: a task on one shape with one format, one distribution of inputs and one seed. And how a request becomes workloads.

use crate::candidate::Candidate;
use crate::error::SpecError;
use crate::formula::Symbols;
use crate::task::Task;
use crate::words::{DType, Distribution, Format, Layout, Mask, ScaleLayout};
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
    /// Layout, format of outputs and optional outputs, where the task has such.
    #[serde(default, skip_serializing_if = "Variant::is_plain")]
    pub variant: Variant,
}

/// The parts of a workload that only some tasks have.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct Variant {
    #[serde(default)]
    pub layout: Layout,
    /// The format of outputs of type `out`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub out: Option<DType>,
    /// Optional outputs that the candidate takes, in the task's order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub optional: Vec<String>,
}

impl Variant {
    /// A task without these axes, or their defaults where the default is nothing.
    pub fn is_plain(&self) -> bool {
        *self == Variant::default()
    }
}

/// As tables and messages name it: `paged, out e4m3, with lse`; empty where it is plain.
impl std::fmt::Display for Variant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let layout = (self.layout != Layout::Dense).then(|| self.layout.to_string());
        let out = self.out.map(|o| format!("out {o}"));
        let optional = self.optional.iter().map(|o| format!("with {o}"));
        let words: Vec<String> = layout.into_iter().chain(out).chain(optional).collect();
        f.write_str(&words.join(", "))
    }
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
    /// Empty: all that the candidate takes.
    pub layouts: Vec<Layout>,
    /// Empty: the first that the candidate takes.
    pub outs: Vec<DType>,
}

/// What of a candidate decides its workloads.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Takes {
    pub causal: bool,
    /// Empty: the task's first.
    pub layouts: Vec<Layout>,
    pub outs: Vec<DType>,
    /// Empty: the task's default shapes.
    pub shapes: Vec<String>,
    pub optional: Vec<String>,
    /// Empty, as in `formats`: all of the task's.
    pub scales: Vec<ScaleLayout>,
    pub formats: Vec<Format>,
}

impl Workload {
    pub fn mask(&self) -> Mask {
        if self.causal { Mask::Causal } else { Mask::None }
    }
}

/// The workloads that a request asks of a candidate: shapes, then formats, scales, distributions, masks and seeds, the last varying
/// fastest, under each layout and format of outputs. Both masks only where the candidate takes `causal` (unless masks were asked for). What the task does not have (a format,
/// a distribution) is an error; what the candidate does not take is not ([`Candidate::applicable`] says so).
pub fn expand(task: &Task, candidate: &Candidate, request: &WorkloadRequest) -> Result<Vec<Workload>, SpecError> {
    let optional = task.outputs().filter(|t| t.optional && candidate.names_tensor(&t.name)).map(|t| t.name.clone());
    let takes = Takes {
        causal: candidate.takes_causal(),
        layouts: candidate.layouts.clone(),
        outs: candidate.outs.clone(),
        shapes: candidate.shapes.clone(),
        optional: optional.collect(),
        scales: candidate.scales.clone(),
        formats: candidate.formats.clone(),
    };
    expand_taking(task, &takes, request)
}

/// [`expand`] where only this is known of the candidate.
pub fn expand_for(task: &Task, takes_causal: bool, request: &WorkloadRequest) -> Result<Vec<Workload>, SpecError> {
    expand_taking(task, &Takes { causal: takes_causal, ..Takes::default() }, request)
}

fn expand_taking(task: &Task, takes: &Takes, request: &WorkloadRequest) -> Result<Vec<Workload>, SpecError> {
    let natural = if takes.layouts.is_empty() { &task.layouts[..1] } else { &takes.layouts[..] };
    let layouts = chosen(task, "layout", &request.layouts, &task.layouts, natural)?;
    let natural = if takes.outs.is_empty() { &task.outs } else { &takes.outs };
    let natural = &natural[..natural.len().min(1)];
    let outs = chosen(task, "format of outputs", &request.outs, &task.outs, natural)?;
    let outs: Vec<Option<DType>> = if outs.is_empty() { vec![None] } else { outs.into_iter().map(Some).collect() };
    let mut variants = Vec::new();
    for &layout in &layouts {
        variants.extend(outs.iter().map(|&out| Variant { layout, out, optional: takes.optional.clone() }));
    }
    let natural = if takes.shapes.is_empty() { &task.default_shapes } else { &takes.shapes };
    let shape_names = if request.shapes.is_empty() { natural } else { &request.shapes };
    let shapes = shape_names.iter().map(|s| task.shape(s.trim())).collect::<Result<Vec<_>, _>>()?;
    let formats = chosen(task, "format", &request.formats, &task.formats, first_taken(&task.formats, &takes.formats))?;
    let scales = chosen(task, "scales", &request.scales, &task.scales, first_taken(&task.scales, &takes.scales))?;
    let distributions = chosen(task, "distribution", &request.distributions, &task.distributions, &[task.judged_on])?;
    let natural: Vec<Mask> = if takes.causal { task.masks.clone() } else { task.masks[..1].to_vec() };
    let masks = chosen(task, "mask", &request.masks, &task.masks, &natural)?;
    let seeds = if request.seeds.is_empty() { &task.seeds } else { &request.seeds };

    let mut workloads = Vec::new();
    for (shape, variant) in shapes.iter().flat_map(|s| variants.iter().map(move |v| (s, v))) {
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
                                variant: variant.clone(),
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

/// What is judged where nothing was asked for: the first of the task's that the candidate takes.
fn first_taken<'a, T: PartialEq>(there: &'a [T], taken: &[T]) -> &'a [T] {
    let at = there.iter().position(|t| taken.contains(t)).unwrap_or(0);
    &there[at..=at]
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
