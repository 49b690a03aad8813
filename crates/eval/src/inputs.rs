//! A workload's tensors: drawn, quantised, as bytes for the kernel and as numbers for the reference.
//!
//! Inputs are a function of (task, shape, format, scales, distribution, mask, seed) and the run's secret, the same on every
//! machine. They are made once and shared by all candidates; kernels get copies of the bytes, and are judged from these.

use crate::attention::{Geometry, Operand, Problem, Scales};
use crate::draw::{Needle, Source};
use crate::error::EvalError;
use crate::quantise::{Quantised, quantise};
use crate::values::{OutputSpec, Tensor, decode, encode};
use warpsmith_spec::formula::Number;
use warpsmith_spec::task::{ElementType, Role, Task};
use warpsmith_spec::words::{DType, ScaleLayout};
use warpsmith_spec::workload::Workload;

/// All that a kernel is given and asked for, with the numbers behind it.
#[derive(Debug, Clone)]
pub struct Inputs {
    /// Inputs and scales, in the task's order.
    pub tensors: Vec<Tensor>,
    pub outputs: Vec<OutputSpec>,
    pub numbers: Numbers,
}

/// What the reference computes from.
#[derive(Debug, Clone)]
pub enum Numbers {
    /// The built-in attention: from the codes, and from what was drawn.
    Attention { quantised: Box<Problem>, unquantised: Box<Problem>, needles: Vec<Vec<Needle>> },
    /// Any other task: each input exactly decoded, and unquantised where that differs.
    Tensors { quantised: Vec<Tensor>, unquantised: Option<Vec<Tensor>> },
}

/// Elements that one workload may have on the CPU, over all its tensors: four bytes for each are held several times.
pub const MAX_ELEMENTS: u64 = 1 << 28;

/// Draws the inputs of a workload.
pub fn inputs(task: &Task, workload: &Workload, secret: u64) -> Result<Inputs, EvalError> {
    let maker = Maker { task, workload, source: Source::new(workload.seed, secret) };
    let mut total = 0u64;
    for tensor in &task.tensors {
        total = total.saturating_add(maker.shape(tensor)?.iter().product());
    }
    if total > MAX_ELEMENTS {
        return Err(EvalError::task(
            &task.file,
            format!("shape {} has {total} elements over all tensors; the limit is {MAX_ELEMENTS}", workload.shape),
        ));
    }
    match &task.reference {
        warpsmith_spec::task::Reference::Builtin(name) if name == "attention" => maker.attention(),
        warpsmith_spec::task::Reference::Builtin(name) => {
            Err(EvalError::task(&task.file, format!("there is no built-in reference `{name}`; there is `attention`")))
        }
        warpsmith_spec::task::Reference::Script { .. } => maker.tensors(),
    }
}

struct Maker<'a> {
    task: &'a Task,
    workload: &'a Workload,
    source: Source,
}

impl Maker<'_> {
    fn shape(&self, tensor: &warpsmith_spec::task::Tensor) -> Result<Vec<u64>, EvalError> {
        self.task
            .tensor_sizes(tensor, &self.workload.symbols, self.workload.scales)
            .map_err(|why| EvalError::task(&self.task.file, why))
    }

    fn dtype(&self, element: ElementType) -> DType {
        match element {
            ElementType::Fixed(dtype) => dtype,
            ElementType::Format => self.workload.format.dtype(),
        }
    }

    fn outputs(&self) -> Result<Vec<OutputSpec>, EvalError> {
        self.task
            .outputs()
            .map(|t| Ok(OutputSpec { name: t.name.clone(), dtype: self.dtype(t.element), shape: self.shape(t)? }))
            .collect()
    }

    /// Codes and scales of drawn values: the input's tensor, the scale's if it has one, and the numbers they mean.
    fn codes(
        &self,
        input: &warpsmith_spec::task::Tensor,
        drawn: &[f32],
    ) -> Result<(Tensor, Option<Tensor>, Quantised), EvalError> {
        let shape = self.shape(input)?;
        let dtype = self.dtype(input.element);
        let Some(scale) = self.task.scales_of(&input.name) else {
            let bytes = encode(dtype, drawn);
            let values = decode(dtype, &bytes).iter().map(|x| *x as f32).collect();
            let q = Quantised { codes: Vec::new(), values, scales: Vec::new(), per_head: 0 };
            return Ok((Tensor { name: input.name.clone(), dtype, shape, bytes }, None, q));
        };
        let wrong = |why: String| EvalError::task(&self.task.file, why);
        let q =
            quantise(self.workload.format, self.workload.scales, &shape, drawn, &self.task.quantiser).map_err(wrong)?;
        let scale_shape = self.shape(scale)?;
        if scale_shape.iter().product::<u64>() != q.scales.len() as u64 {
            return Err(wrong(format!(
                "scales per {} of {} are {}, not the {} of {}",
                self.workload.scales,
                input.name,
                q.scales.len(),
                scale_shape.iter().product::<u64>(),
                scale.name
            )));
        }
        let scales = Tensor {
            name: scale.name.clone(),
            dtype: DType::F32,
            shape: scale_shape,
            bytes: encode(DType::F32, &q.scales),
        };
        Ok((Tensor { name: input.name.clone(), dtype, shape, bytes: q.codes.clone() }, Some(scales), q))
    }

    fn attention(&self) -> Result<Inputs, EvalError> {
        let wrong = |why: &str| EvalError::task(&self.task.file, format!("the built-in attention: {why}"));
        let tensor = |name: &str| {
            self.task
                .tensor(name)
                .filter(|t| t.role == Role::Input)
                .ok_or_else(|| wrong(&format!("the task has no input `{name}`")))
        };
        let shape = self.shape(tensor("q")?)?;
        let [.., s, d] = shape[..] else { return Err(wrong("q has fewer than two dimensions")) };
        for name in ["k", "v", "out"] {
            let other = self.task.tensor(name).ok_or_else(|| wrong(&format!("the task has no tensor `{name}`")))?;
            if self.shape(other)? != shape {
                return Err(wrong(&format!("{name} has another shape than q")));
            }
        }
        let g = Geometry {
            heads: shape[..shape.len() - 2].iter().product::<u64>() as usize,
            seqlen: s as usize,
            head_dim: d as usize,
        };
        let drawn = self.source.attention(self.workload.distribution, g, self.workload.causal);
        let softmax_scale = self.softmax_scale()?;
        let mut tensors = Vec::new();
        let mut scale_tensors = Vec::new();
        let mut operands = Vec::new();
        for (name, values) in [("q", &drawn.q), ("k", &drawn.k), ("v", &drawn.v)] {
            let (codes, scales, q) = self.codes(tensor(name)?, values)?;
            let layout = match (&scales, self.workload.scales) {
                (None, _) | (_, ScaleLayout::None) => Scales::One,
                (_, ScaleLayout::Tensor) => Scales::Tensor(q.scales[0]),
                (_, ScaleLayout::Head) => Scales::Head(q.scales.clone()),
                (_, ScaleLayout::Block) => Scales::Block {
                    values: q.scales.clone(),
                    per_head: q.per_head,
                    tokens: self.task.quantiser.block_tokens as usize,
                },
            };
            operands.push(Operand { values: q.values, scales: layout });
            tensors.push(codes);
            scale_tensors.extend(scales);
        }
        tensors.extend(scale_tensors);
        let order = |t: &Tensor| self.task.tensors.iter().position(|x| x.name == t.name);
        tensors.sort_by_key(order);
        let problem = |operands: Vec<Operand>| -> Result<Problem, EvalError> {
            let [q, k, v] = <[Operand; 3]>::try_from(operands)
                .map_err(|_| EvalError::Defect("attention has three inputs".into()))?;
            Ok(Problem { geometry: g, causal: self.workload.causal, softmax_scale, q, k, v })
        };
        let quantised = problem(operands)?;
        let unquantised = problem(
            [drawn.q, drawn.k, drawn.v].into_iter().map(|values| Operand { values, scales: Scales::One }).collect(),
        )?;
        Ok(Inputs {
            tensors,
            outputs: self.outputs()?,
            numbers: Numbers::Attention {
                quantised: Box::new(quantised),
                unquantised: Box::new(unquantised),
                needles: drawn.needles,
            },
        })
    }

    /// As the kernel receives it: rounded to f32.
    fn softmax_scale(&self) -> Result<f32, EvalError> {
        let wrong = |why: String| EvalError::task(&self.task.file, why);
        let scalar = self
            .task
            .scalar("softmax_scale")
            .ok_or_else(|| wrong("the built-in attention needs the scalar softmax_scale".into()))?;
        match self.task.scalar_value(scalar, &self.workload.symbols).map_err(wrong)? {
            Number::Real(x) => Ok(x as f32),
            Number::Whole(n) => Ok(n as f32),
            Number::Truth(_) => Err(wrong("softmax_scale is no number".into())),
        }
    }

    fn tensors(&self) -> Result<Inputs, EvalError> {
        let (mut tensors, mut quantised, mut unquantised) = (Vec::new(), Vec::new(), Vec::new());
        for input in self.task.inputs() {
            let shape = self.shape(input)?;
            let n = shape.iter().product::<u64>() as usize;
            let dtype = self.dtype(input.element);
            let mut drawn = self.source.tensor(self.workload.distribution, &input.name, n);
            if !dtype.is_float() && self.task.scales_of(&input.name).is_none() {
                // Whole numbers of a few digits, not negative where the type has no sign.
                let signed = matches!(dtype, DType::I8 | DType::I16 | DType::I32 | DType::I64);
                drawn
                    .iter_mut()
                    .for_each(|x| *x = if signed { (*x * 16.0).round() } else { (*x * 16.0).round().abs() });
            }
            let (codes, scales, q) = self.codes(input, &drawn)?;
            let exact: Vec<f32> = match self.workload.scales {
                _ if scales.is_none() => q.values.clone(),
                layout => {
                    let [.., s, d] = shape[..] else {
                        return Err(EvalError::task(
                            &self.task.file,
                            format!("input {} has scales and fewer than two dimensions", input.name),
                        ));
                    };
                    let block = self.task.quantiser.block_tokens as usize;
                    (0..n)
                        .map(|i| {
                            q.values[i] * q.scale(layout, i / (s * d) as usize, i / d as usize % s as usize, block)
                        })
                        .collect()
                }
            };
            let reference_type = match dtype {
                DType::F64 => DType::F64,
                d if !d.is_float() && scales.is_none() => d,
                _ => DType::F32,
            };
            let as_tensor = |values: &[f32]| Tensor {
                name: input.name.clone(),
                dtype: reference_type,
                shape: shape.clone(),
                bytes: encode(reference_type, values),
            };
            quantised.push(as_tensor(&exact));
            unquantised.push(as_tensor(&drawn));
            tensors.push(codes);
            tensors.extend(scales);
        }
        tensors.sort_by_key(|t| self.task.tensors.iter().position(|x| x.name == t.name));
        let unquantised = (unquantised != quantised).then_some(unquantised);
        Ok(Inputs { tensors, outputs: self.outputs()?, numbers: Numbers::Tensors { quantised, unquantised } })
    }
}
