//! Formulas to numbers, names to things; and whether a candidate takes a workload at all.

use super::*;
use crate::candidate::{
    Arg, Candidate, Define, FieldType, LaunchStep, ResolvedOptions, Struct, TensorMap, WorkspaceInit,
};
use crate::formula::{Formula, Number, Symbols};
use crate::levers::Setting;
use crate::target;
use crate::task::{ElementType, Task};
use crate::workload::Workload;

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
        let variant = &workload.variant;
        if !self.layouts.contains(&variant.layout) {
            return Err(format!("it takes the layouts {}, not {}", words(&self.layouts), variant.layout));
        }
        if let Some(out) = variant.out.filter(|o| !self.outs.contains(o)) {
            return Err(format!("it writes {}, not {out}", words(&self.outs)));
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
                Define::Layout => {
                    for layout in crate::words::Layout::ALL {
                        let (name, value) = layout.macro_name();
                        found.push((name.to_string(), value.to_string()));
                    }
                    found.push(("WS_LAYOUT".to_string(), workload.variant.layout.macro_name().0.to_string()));
                }
                Define::Out => {
                    let kind = workload.variant.out.map_or(3, |o| o.out_kind());
                    found.push(("WS_OUT".to_string(), kind.to_string()));
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
            cooperative: false,
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
            // What does not exist in this layout is null.
            Arg::Tensor(name) => match self.task.tensor(name) {
                Some(tensor) if !self.exists(tensor) => scalar(name, Number::Whole(0)),
                _ => Ok(ResolvedArg::Tensor(name.clone())),
            },
            Arg::Struct(of) => self.structure(of),
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
                    .scalar_value(value, &self.symbols, self.workload)
                    .map_err(|why| PlanProblem::at(line, format!("the scalar {name}: {why}")))?;
                scalar(name, number)
            }
        }
    }

    fn exists(&self, tensor: &crate::task::Tensor) -> bool {
        let asked = !tensor.optional || self.workload.variant.optional.contains(&tensor.name);
        asked && self.task.has_tensor(tensor, self.workload)
    }

    fn structure(&self, of: &Struct) -> Result<ResolvedArg, PlanProblem> {
        let mut bytes = vec![0u8; of.bytes as usize];
        let mut addresses = Vec::new();
        for field in &of.fields {
            let wrong = |why: String| PlanProblem::at(field.line, format!("{}.{}: {why}", of.name, field.name));
            let size = field.kind.bytes() as usize;
            let value = match self.arg(&field.value, field.line)? {
                address @ (ResolvedArg::Tensor(_) | ResolvedArg::Workspace(_)) => {
                    addresses.push(ResolvedAddress { offset: field.offset, of: address.name().to_string() });
                    continue;
                }
                ResolvedArg::Scalar { value, .. } => value,
                other => return Err(wrong(format!("`{}` cannot stand in a struct", other.name()))),
            };
            let encoded = match (field.kind, value) {
                (FieldType::Number(dtype), ScalarValue::Whole(n)) if dtype.is_float() => {
                    ScalarValue::Real(n as f64).encode(size)
                }
                (FieldType::Number(dtype), ScalarValue::Real(x)) if !dtype.is_float() => {
                    Err(format!("the number {x} is no whole number, and the field's type is {dtype}"))
                }
                (_, value) => value.encode(size),
            };
            let at = field.offset as usize;
            bytes[at..at + size].copy_from_slice(&encoded.map_err(wrong)?);
        }
        Ok(ResolvedArg::Struct { name: of.name.clone(), align: of.align, bytes, addresses })
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
                    ElementType::Out => self.workload.variant.out.unwrap_or(DType::F16),
                };
                (dtype, self.task.tensor_sizes(tensor, &self.symbols, self.workload).map_err(wrong)?)
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
