//! A candidate's launch plan for one setting and one workload: every formula a number, every argument a thing.
//!
//! What cannot be launched at this shape or on this target is a [`PlanProblem`], which becomes a verdict: the file itself is well-formed.
//! It knows nothing of compilers or machines; the kernel's parameters are told to it.

use crate::candidate::{Arg, Candidate, Define, LaunchStep, ResolvedOptions, TensorMap, WorkspaceInit};
use crate::error::{SpecCode, SpecError};
use crate::formula::{Formula, Number, Symbols};
use crate::levers::Setting;
use crate::target::{self, Target};
use crate::task::{ElementType, Task};
use crate::words::DType;
use crate::workload::Workload;
use serde::{Deserialize, Serialize};

/// A launch that this shape, setting or target makes impossible; code `invalid-launch`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanProblem {
    pub message: String,
    /// Line of the candidate's file.
    pub line: Option<u32>,
    /// The limit that was passed, if it was one.
    pub limit: Option<String>,
}

impl PlanProblem {
    pub const CODE: &'static str = "invalid-launch";
    pub const KIND: &'static str = "invalid_launch";

    fn at(line: u32, message: impl Into<String>) -> PlanProblem {
        PlanProblem { message: message.into(), line: Some(line), limit: None }
    }

    fn limit(mut self, limit: impl Into<String>) -> PlanProblem {
        self.limit = Some(limit.into());
        self
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResolvedPlan {
    pub launches: Vec<ResolvedLaunch>,
    pub workspaces: Vec<ResolvedWorkspace>,
    pub tensor_maps: Vec<ResolvedTensorMap>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResolvedLaunch {
    pub entry: String,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    /// All 1: no cluster.
    pub cluster: [u32; 3],
    /// Dynamic shared memory.
    pub shared_bytes: u64,
    pub args: Vec<ResolvedArg>,
    /// Line of its `[[launch]]`, of its `args` and of its `entry`.
    pub line: u32,
    pub args_line: u32,
    pub entry_line: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResolvedArg {
    /// The address of a tensor of the task.
    Tensor(String),
    /// The address of a workspace.
    Workspace(String),
    /// A descriptor of 128 bytes by value.
    TensorMap(String),
    /// A number; it takes the width of the entry's parameter ([`ScalarValue::encode`]).
    Scalar { name: String, value: ScalarValue },
}

impl ResolvedArg {
    /// As messages name it.
    pub fn name(&self) -> &str {
        match self {
            ResolvedArg::Tensor(n) | ResolvedArg::Workspace(n) | ResolvedArg::TensorMap(n) => n,
            ResolvedArg::Scalar { name, .. } => name,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScalarValue {
    Whole(i64),
    Real(f64),
}

impl ScalarValue {
    /// Little-endian bytes of a parameter of that many bytes: whole numbers as 1, 2, 4 or 8, real ones as 4 or 8.
    pub fn encode(self, bytes: usize) -> Result<Vec<u8>, String> {
        match self {
            ScalarValue::Whole(n) => {
                if !matches!(bytes, 1 | 2 | 4 | 8) {
                    return Err(format!("the whole number {n} does not fit a parameter of {bytes} bytes"));
                }
                // As signed or as unsigned: a parameter's type does not say which, and either reads back what was meant.
                let (low, high) = if bytes == 8 {
                    (i64::MIN, i64::MAX)
                } else {
                    (-(1i64 << (8 * bytes - 1)), (1i64 << (8 * bytes)) - 1)
                };
                if n < low || n > high {
                    return Err(format!("the number {n} does not fit a parameter of {bytes} bytes"));
                }
                Ok(n.to_le_bytes()[..bytes].to_vec())
            }
            ScalarValue::Real(x) => match bytes {
                4 => Ok((x as f32).to_le_bytes().to_vec()),
                8 => Ok(x.to_le_bytes().to_vec()),
                _ => {
                    Err(format!("the number {x} of floating point does not fit a parameter of {bytes} bytes (4 or 8)"))
                }
            },
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResolvedWorkspace {
    pub name: String,
    pub dtype: DType,
    pub shape: Vec<u64>,
    pub bytes: u64,
    /// Zeroed before every evaluation; else poisoned.
    pub zeroed: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResolvedTensorMap {
    pub name: String,
    pub tensor: String,
    pub dtype: DType,
    /// Innermost first, as the driver takes them.
    pub dims: Vec<u64>,
    /// Bytes, of all dimensions but the innermost.
    pub strides: Vec<u64>,
    pub box_sizes: Vec<u32>,
    pub element_strides: Vec<u32>,
    pub swizzle: String,
    pub interleave: String,
    pub fill: String,
    pub l2_promotion: String,
}

/// A parameter of a compiled entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parameter {
    pub bytes: usize,
}

/// Bytes that a candidate's workspaces can have together.
pub const MAX_WORKSPACE_BYTES: u64 = 16 << 30;

impl Candidate {
    /// Why this candidate does not take this workload with this setting, quoting what it says; `Ok` if it does.
    pub fn applicable(&self, setting: &Setting, workload: &Workload, target: &Target) -> Result<(), String> {
        fn words<T: std::fmt::Display>(all: &[T]) -> String {
            all.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
        }
        if !self.formats.contains(&workload.format) {
            return Err(format!("it takes the formats {}, not {}", words(&self.formats), workload.format));
        }
        if !self.scales.contains(&workload.scales) {
            return Err(format!("it takes scales per {}, not {}", words(&self.scales), workload.scales));
        }
        if workload.causal && !self.takes_causal() {
            return Err("it takes no mask: `causal` is neither among its arguments nor its defines".to_string());
        }
        let symbols = symbols(setting, workload, target);
        for constraint in &self.constraints {
            match constraint.holds(&symbols) {
                Ok(true) => {}
                Ok(false) => {
                    let given: Vec<String> = constraint
                        .symbols()
                        .iter()
                        .filter_map(|s| symbols.get(s).map(|v| format!("{s} = {v}")))
                        .collect();
                    let given =
                        if given.is_empty() { "never".to_string() } else { format!("here {}", given.join(", ")) };
                    return Err(format!("its constraint `{}` does not hold: {given}", constraint.text()));
                }
                Err(why) => return Err(format!("its constraint {why}")),
            }
        }
        Ok(())
    }

    /// Macros for the compiler, in a fixed order: the workload's parts that `defines` names (`WS_D`, `WS_CAUSAL`, `WS_FORMAT` ...),
    /// the formats' and scales' constants that those are compared with, and every lever.
    pub fn defines_for(&self, setting: &Setting, workload: &Workload) -> Vec<(String, String)> {
        let mut found = Vec::new();
        for define in &self.defines {
            match define {
                Define::Symbol(name) => {
                    if let Some(value) = workload.symbols.get(name) {
                        found.push((format!("WS_{name}"), value.to_string()));
                    }
                }
                Define::Causal => found.push(("WS_CAUSAL".to_string(), u8::from(workload.causal).to_string())),
                Define::Format => {
                    found.extend(
                        crate::words::Format::ALL
                            .iter()
                            .map(|f| (f.macro_name().to_string(), f.macro_value().to_string())),
                    );
                    found.push(("WS_FORMAT".to_string(), workload.format.macro_name().to_string()));
                }
                Define::Scales => {
                    for layout in crate::words::ScaleLayout::ALL {
                        let (name, value) = layout.macro_name();
                        found.push((name.to_string(), value.to_string()));
                    }
                    found.push(("WS_SCALES".to_string(), workload.scales.macro_name().0.to_string()));
                }
            }
        }
        found.extend(setting.levers.iter().map(|(name, value)| (name.clone(), value.to_string())));
        found
    }

    /// The compiler's options for this setting.
    pub fn options_for(&self, setting: &Setting) -> ResolvedOptions {
        self.compile.resolve(setting)
    }

    /// The plan with every formula evaluated. `task` has to be the candidate's own.
    pub fn resolve(
        &self,
        task: &Task,
        setting: &Setting,
        workload: &Workload,
        target: &Target,
    ) -> Result<ResolvedPlan, PlanProblem> {
        let resolver = Resolver { candidate: self, task, workload, symbols: symbols(setting, workload, target) };
        let workspaces = resolver.workspaces()?;
        let tensor_maps =
            self.plan.tensor_maps.iter().map(|m| resolver.tensor_map(m, &workspaces)).collect::<Result<_, _>>()?;
        let launches = self.plan.launches.iter().map(|l| resolver.launch(l)).collect::<Result<_, _>>()?;
        Ok(ResolvedPlan { launches, workspaces, tensor_maps })
    }
}

/// What formulas of a candidate know.
pub fn symbols(setting: &Setting, workload: &Workload, target: &Target) -> Symbols {
    let mut symbols = setting.symbols();
    symbols.extend(workload.symbols.clone());
    symbols.insert("causal".to_string(), i64::from(workload.causal));
    symbols.insert("SM_COUNT".to_string(), i64::from(target.sm_count));
    symbols
}

struct Resolver<'a> {
    candidate: &'a Candidate,
    task: &'a Task,
    workload: &'a Workload,
    symbols: Symbols,
}

impl Resolver<'_> {
    /// A size, from 1 to `most`.
    fn size(&self, f: &Formula, what: &str, most: u64) -> Result<u64, PlanProblem> {
        let n = f.eval_whole(&self.symbols).map_err(|why| PlanProblem::at(f.line(), format!("{what}: {why}")))?;
        if n < 1 {
            return Err(PlanProblem::at(
                f.line(),
                format!("{what} is {n} (`{}`) at shape {}", f.text(), self.workload.shape),
            ));
        }
        if n as u64 > most {
            let message =
                format!("{what} is {n} (`{}`) at shape {}; the limit is {most}", f.text(), self.workload.shape);
            return Err(PlanProblem::at(f.line(), message).limit(most.to_string()));
        }
        Ok(n as u64)
    }

    fn dimensions(
        &self,
        found: &[Formula],
        what: &str,
        most: &[u64; 3],
        product: u64,
    ) -> Result<[u32; 3], PlanProblem> {
        let mut sizes = [1u32; 3];
        for (i, f) in found.iter().enumerate().take(3) {
            sizes[i] = self.size(f, &format!("the {what}'s {}", ["x", "y", "z"][i]), most[i])? as u32;
        }
        let all: u64 = sizes.iter().map(|n| u64::from(*n)).product();
        if all > product {
            let line = found.first().map_or(1, |f| f.line());
            let message = format!(
                "the {what} has {all} threads ({} x {} x {}); the limit is {product}",
                sizes[0], sizes[1], sizes[2]
            );
            return Err(PlanProblem::at(line, message).limit(product.to_string()));
        }
        Ok(sizes)
    }

    fn workspaces(&self) -> Result<Vec<ResolvedWorkspace>, PlanProblem> {
        let mut total: u64 = 0;
        let mut found = Vec::new();
        for workspace in &self.candidate.plan.workspaces {
            let what = format!("the shape of workspace {}", workspace.name);
            let shape =
                workspace.shape.iter().map(|f| self.size(f, &what, 1 << 40)).collect::<Result<Vec<u64>, _>>()?;
            let bytes = shape.iter().fold(workspace.dtype.bytes(), |n, s| n.saturating_mul(*s));
            total = total.saturating_add(bytes);
            if total > MAX_WORKSPACE_BYTES {
                let message = format!(
                    "with workspace {} ({bytes} bytes) the workspaces pass the limit of {MAX_WORKSPACE_BYTES} bytes",
                    workspace.name
                );
                return Err(PlanProblem::at(workspace.line, message).limit(MAX_WORKSPACE_BYTES.to_string()));
            }
            let zeroed = workspace.init == WorkspaceInit::Zero;
            found.push(ResolvedWorkspace {
                name: workspace.name.clone(),
                dtype: workspace.dtype,
                shape,
                bytes,
                zeroed,
            });
        }
        Ok(found)
    }

    fn launch(&self, step: &LaunchStep) -> Result<ResolvedLaunch, PlanProblem> {
        let grid = self.dimensions(&step.grid, "grid", &target::MAX_GRID, u64::MAX)?;
        let block = self.dimensions(&step.block, "block", &target::MAX_BLOCK, target::MAX_THREADS)?;
        let cluster = self.dimensions(&step.cluster, "cluster", &[target::MAX_CLUSTER; 3], target::MAX_CLUSTER)?;
        if let Some(i) = (0..3).find(|i| grid[*i] % cluster[*i] != 0) {
            let message =
                format!("the grid ({} in dimension {i}) is no multiple of the cluster ({})", grid[i], cluster[i]);
            return Err(PlanProblem::at(step.line, message));
        }
        let shared_bytes = match &step.shared_bytes {
            None => 0,
            Some(f) => {
                let why = |m: String| PlanProblem::at(f.line(), m);
                let n = f.eval_whole(&self.symbols).map_err(|w| why(format!("shared_bytes: {w}")))?;
                u64::try_from(n).map_err(|_| {
                    why(format!("shared_bytes is {n} (`{}`) at shape {}", f.text(), self.workload.shape))
                })?
            }
        };
        Ok(ResolvedLaunch {
            entry: step.entry.clone(),
            grid,
            block,
            cluster,
            shared_bytes,
            args: step.args.iter().map(|a| self.arg(a, step.args_line)).collect::<Result<_, _>>()?,
            line: step.line,
            args_line: step.args_line,
            entry_line: step.entry_line,
        })
    }

    fn arg(&self, arg: &Arg, line: u32) -> Result<ResolvedArg, PlanProblem> {
        let scalar = |name: &str, number: Number| -> Result<ResolvedArg, PlanProblem> {
            let value = match number {
                Number::Whole(n) => ScalarValue::Whole(n),
                Number::Real(x) if x.is_finite() => ScalarValue::Real(x),
                Number::Truth(b) => ScalarValue::Whole(i64::from(b)),
                Number::Real(x) => return Err(PlanProblem::at(line, format!("the argument `{name}` is {x}"))),
            };
            Ok(ResolvedArg::Scalar { name: name.to_string(), value })
        };
        match arg {
            Arg::Tensor(name) => Ok(ResolvedArg::Tensor(name.clone())),
            Arg::Workspace(name) => Ok(ResolvedArg::Workspace(name.clone())),
            Arg::TensorMap(name) => Ok(ResolvedArg::TensorMap(name.clone())),
            Arg::Float(x) => scalar(&format!("{x:?}"), Number::Real(*x)),
            Arg::Formula(f) => {
                let number =
                    f.eval(&self.symbols).map_err(|why| PlanProblem::at(f.line(), format!("an argument: {why}")))?;
                scalar(f.text(), number)
            }
            Arg::Scalar(name) => {
                let value = self
                    .task
                    .scalar(name)
                    .ok_or_else(|| PlanProblem::at(line, format!("the task has no scalar `{name}`")))?;
                let number = self
                    .task
                    .scalar_value(value, &self.symbols)
                    .map_err(|why| PlanProblem::at(line, format!("the scalar {name}: {why}")))?;
                scalar(name, number)
            }
        }
    }

    fn tensor_map(&self, map: &TensorMap, workspaces: &[ResolvedWorkspace]) -> Result<ResolvedTensorMap, PlanProblem> {
        let wrong = |why: String| PlanProblem::at(map.line, format!("tensor map {}: {why}", map.name));
        let (dtype, sizes) = match workspaces.iter().find(|w| w.name == map.tensor) {
            Some(w) => (w.dtype, w.shape.clone()),
            None => {
                let tensor =
                    self.task.tensor(&map.tensor).ok_or_else(|| wrong(format!("there is no tensor {}", map.tensor)))?;
                let dtype = match tensor.element {
                    ElementType::Fixed(dtype) => dtype,
                    ElementType::Format => self.workload.format.dtype(),
                };
                (dtype, self.task.tensor_sizes(tensor, &self.symbols, self.workload.scales).map_err(wrong)?)
            }
        };
        let all = |found: &[Formula], what: &str, most: u64| -> Result<Vec<u64>, PlanProblem> {
            found.iter().map(|f| self.size(f, &format!("{what} of tensor map {}", map.name), most)).collect()
        };
        let dims = if map.dims.is_empty() {
            sizes.iter().rev().copied().collect::<Vec<u64>>()
        } else {
            all(&map.dims, "a dimension", 1 << 32)?
        };
        let box_sizes: Vec<u32> = all(&map.box_sizes, "the box", 256)?.into_iter().map(|n| n as u32).collect();
        let strides = if map.strides.is_empty() {
            let mut at = dtype.bytes();
            dims.iter()
                .take(dims.len().saturating_sub(1))
                .map(|d| {
                    at = at.saturating_mul(*d);
                    at
                })
                .collect()
        } else {
            all(&map.strides, "a stride", 1 << 40)?
        };
        let element_strides: Vec<u32> = if map.element_strides.is_empty() {
            vec![1; dims.len()]
        } else {
            all(&map.element_strides, "an element stride", 8)?.into_iter().map(|n| n as u32).collect()
        };
        let rank = dims.len();
        if box_sizes.len() != rank || element_strides.len() != rank || strides.len() + 1 != rank {
            return Err(wrong(format!(
                "it has {rank} dimensions, but {} sizes of the box, {} strides and {} element strides",
                box_sizes.len(),
                strides.len(),
                element_strides.len()
            )));
        }
        Ok(ResolvedTensorMap {
            name: map.name.clone(),
            tensor: map.tensor.clone(),
            dtype,
            dims,
            strides,
            box_sizes,
            element_strides,
            swizzle: map.swizzle.to_string(),
            interleave: map.interleave.to_string(),
            fill: map.fill.to_string(),
            l2_promotion: map.l2_promotion.to_string(),
        })
    }
}

impl ResolvedLaunch {
    /// Whether the target can launch it: shared memory (with `static_bytes` of the entry's own) and clusters.
    pub fn fits(&self, target: &Target, static_bytes: u64) -> Result<(), PlanProblem> {
        let limit = u64::from(target.shared_bytes_per_block);
        let total = self.shared_bytes.saturating_add(static_bytes);
        if total > limit {
            let message = format!(
                "entry {} asks for {} bytes of dynamic shared memory ({static_bytes} static besides); a block on {} has at most {limit}",
                self.entry, self.shared_bytes, target.name
            );
            return Err(PlanProblem::at(self.line, message).limit(limit.to_string()));
        }
        if !target.clusters && self.cluster != [1, 1, 1] {
            return Err(PlanProblem::at(
                self.line,
                format!("entry {} asks for a cluster, which {} does not have", self.entry, target.name),
            ));
        }
        Ok(())
    }

    /// Whether the arguments fit the entry's parameters, in number and in size. `file` is the candidate's.
    pub fn fits_parameters(&self, file: &str, parameters: &[Parameter]) -> Result<(), SpecError> {
        let wrong = |message: String| Err(SpecError::new(SpecCode::ArgumentMismatch, message).at(file, self.args_line));
        if parameters.len() != self.args.len() {
            let names: Vec<&str> = self.args.iter().map(ResolvedArg::name).collect();
            return wrong(format!(
                "entry {} takes {} arguments, the launch gives {}: {}",
                self.entry,
                parameters.len(),
                self.args.len(),
                names.join(", ")
            ));
        }
        for (i, (arg, parameter)) in self.args.iter().zip(parameters).enumerate() {
            let bytes = match arg {
                ResolvedArg::Tensor(_) | ResolvedArg::Workspace(_) => 8,
                ResolvedArg::TensorMap(_) => 128,
                ResolvedArg::Scalar { name, value } => match value.encode(parameter.bytes) {
                    Ok(_) => continue,
                    Err(why) => return wrong(format!("argument {} (`{name}`) of entry {}: {why}", i + 1, self.entry)),
                },
            };
            if parameter.bytes != bytes {
                let what = if bytes == 8 { "an address of 8 bytes" } else { "a tensor map of 128 bytes" };
                return wrong(format!(
                    "argument {} (`{}`) of entry {} is {what}, but the parameter has {} bytes",
                    i + 1,
                    arg.name(),
                    self.entry,
                    parameter.bytes
                ));
            }
        }
        Ok(())
    }

    /// The error for an entry that the compiled candidate does not have.
    pub fn missing_entry(&self, file: &str, found: &[&str]) -> SpecError {
        let near = crate::suggest::did_you_mean(&self.entry, found.iter().copied());
        SpecError::new(
            SpecCode::UnknownName,
            format!("the kernel has no entry `{}`{near}", crate::error::shown(&self.entry)),
        )
        .at(file, self.entry_line)
        .hint(format!(
            "its entries: {}; a name without a template needs extern \"C\"",
            crate::suggest::listed(found.iter().copied())
        ))
    }
}
