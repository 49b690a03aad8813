//! A workload's tensors: drawn, quantised, as bytes for the kernel and as numbers for the reference.
//!
//! Inputs are a function of (task, shape, format, scales, distribution, mask, seed) and the run's secret, the same on every
//! machine. They are made once and shared by all candidates; kernels get copies of the bytes, and are judged from these.

use crate::attention::{Geometry, Operand, Problem, Scales, Sight};
use crate::draw::{Needle, Source};
use crate::error::EvalError;
use crate::places::{Places, Totals};
use crate::quantise::{Quantised, quantise};
use crate::values::{OutputSpec, Tensor, decode, encode};
use warpsmith_spec::formula::Number;
use warpsmith_spec::task::{ElementType, Reference, Role, Task};
use warpsmith_spec::words::{DType, Distribution, Layout, ScaleLayout};
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
    Attention {
        quantised: Box<Problem>,
        unquantised: Box<Problem>,
        /// Where candidates pack k and v themselves: what an honest one makes of them.
        packed: Option<Box<Problem>>,
        needles: Vec<Vec<Needle>>,
        places: Box<Places>,
    },
    /// Any other task: each input exactly decoded, and unquantised where that differs.
    Tensors { quantised: Vec<Tensor>, unquantised: Option<Vec<Tensor>> },
}

/// Elements that one workload may have on the CPU, over all its tensors: four bytes for each are held several times.
pub const MAX_ELEMENTS: u64 = 1 << 28;

/// Draws the inputs of a workload.
pub fn inputs(task: &Task, workload: &Workload, secret: u64) -> Result<Inputs, EvalError> {
    let maker = Maker { task, workload, source: Source::new(workload.seed, secret) };
    let mut total = 0u64;
    for tensor in task.tensors.iter().filter(|t| task.has_tensor(t, workload)) {
        total = total.saturating_add(maker.shape(tensor)?.iter().product());
    }
    if total > MAX_ELEMENTS {
        return Err(EvalError::task(
            &task.file,
            format!("shape {} has {total} elements over all tensors; the limit is {MAX_ELEMENTS}", workload.shape),
        ));
    }
    match &task.reference {
        Reference::Builtin(name) if name == "attention" => maker.attention(),
        Reference::Builtin(name) if name == "pack" => maker.tensors(),
        Reference::Builtin(name) => Err(EvalError::task(
            &task.file,
            format!("there is no built-in reference `{name}`; there are `attention` and `pack`"),
        )),
        Reference::Script { .. } => maker.tensors(),
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
            .tensor_sizes(tensor, &self.workload.symbols, self.workload)
            .map_err(|why| EvalError::task(&self.task.file, why))
    }

    fn dtype(&self, element: ElementType) -> DType {
        match element {
            ElementType::Fixed(dtype) => dtype,
            ElementType::Format => self.workload.format.dtype(),
            ElementType::Out => self.workload.variant.out.unwrap_or(DType::F16),
        }
    }

    fn outputs(&self) -> Result<Vec<OutputSpec>, EvalError> {
        self.task
            .outputs_of(self.workload)
            .map(|t| Ok(OutputSpec { name: t.name.clone(), dtype: self.dtype(t.element), shape: self.shape(t)? }))
            .collect()
    }

    /// Codes and scales of drawn values: the input's tensor, the scale's if it has one, and the numbers they mean.
    fn codes(
        &self,
        input: &warpsmith_spec::task::Tensor,
        shape: Vec<u64>,
        drawn: &[f32],
    ) -> Result<(Tensor, Option<Tensor>, Quantised), EvalError> {
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
        let (g, batch) = self.geometry()?;
        let places = self.places(g, batch)?;
        let sight = Sight { causal: self.workload.causal, lengths: places.lengths.clone() };
        let drawn = self.source.attention_of(self.workload.distribution, g, &sight);
        let softmax_scale = self.softmax_scale()?;
        let mut tensors = Vec::new();
        let mut scale_tensors = Vec::new();
        let mut operands = Vec::new();
        // What the kernel of layout `wide` computes from instead, once it has packed k and v.
        let mut packed = Vec::new();
        let layout = self.workload.variant.layout;
        for (name, values) in [("q", &drawn.q), ("k", &drawn.k), ("v", &drawn.v)] {
            let tokens = if name == "q" { [g.heads, g.seqlen] } else { [g.heads_k, g.seqlen_k] };
            let logical = vec![tokens[0] as u64, tokens[1] as u64, g.head_dim as u64];
            let wide = match layout {
                Layout::Wide if name != "q" => Some(self.wide(tensor(&format!("{name}_wide"))?, values)?),
                _ => None,
            };
            let values = wide.as_ref().map_or(values, |(_, values)| values);
            let centred = (name != "q" && matches!(layout, Layout::Packed | Layout::Wide))
                .then(|| crate::pack::centre(values, g.seqlen_k, g.head_dim));
            let (values, means) = centred.as_ref().map_or((values, &[][..]), |(values, means)| (values, means));
            let (mut codes, scales, q) = self.codes(tensor(name)?, logical, values)?;
            let scales_of = match (&scales, self.workload.scales) {
                (None, _) | (_, ScaleLayout::None) => Scales::One,
                (_, ScaleLayout::Tensor) => Scales::Tensor(q.scales[0]),
                (_, ScaleLayout::Head) => Scales::Head(q.scales.clone()),
                (_, ScaleLayout::Block) => Scales::Block {
                    values: q.scales.clone(),
                    per_head: q.per_head,
                    tokens: self.task.quantiser.block_tokens as usize,
                },
            };
            let operand = Operand { values: q.values, scales: scales_of, means: means.to_vec() };
            packed.push(operand.clone());
            if let Some((tensor, values)) = wide {
                operands.push(Operand { values, scales: Scales::One, means: Vec::new() });
                tensors.push(tensor);
                continue;
            }
            operands.push(operand);
            if !means.is_empty() {
                let input = tensor(&format!("{name}_mean"))?;
                let (shape, dtype) = (self.shape(input)?, self.dtype(input.element));
                tensors.push(Tensor { name: input.name.clone(), dtype, shape, bytes: encode(dtype, means) });
            }
            codes.shape = self.shape(tensor(name)?)?;
            codes.bytes = places.place(codes.dtype, &codes.bytes, &codes.shape, name != "q");
            tensors.push(codes);
            scale_tensors.extend(scales);
        }
        tensors.extend(scale_tensors);
        let told = self.task.inputs().filter(|t| self.task.has_tensor(t, self.workload));
        let made: Vec<String> = tensors.iter().map(|t| t.name.clone()).collect();
        for input in told.filter(|t| !made.contains(&t.name)) {
            let shape = self.shape(input)?;
            let found = places.tensor(&input.name, &shape);
            let found = found.filter(|t| t.bytes.len() as u64 == 4 * shape.iter().product::<u64>());
            tensors.push(found.ok_or_else(|| {
                wrong(&format!(
                    "it has no input {} of shape {shape:?} in layout {}",
                    input.name, self.workload.variant.layout
                ))
            })?);
        }
        let order = |t: &Tensor| self.task.tensors.iter().position(|x| x.name == t.name);
        tensors.sort_by_key(order);
        let problem = |operands: Vec<Operand>| -> Result<Problem, EvalError> {
            let [q, k, v] = <[Operand; 3]>::try_from(operands)
                .map_err(|_| EvalError::Defect("attention has three inputs".into()))?;
            Ok(Problem { geometry: g, sight: sight.clone(), softmax_scale, q, k, v })
        };
        let quantised = problem(operands)?;
        let unquantised = problem(
            [drawn.q, drawn.k, drawn.v]
                .into_iter()
                .map(|values| Operand { values, scales: Scales::One, means: Vec::new() })
                .collect(),
        )?;
        let packed = if layout == Layout::Wide { Some(Box::new(problem(packed)?)) } else { None };
        Ok(Inputs {
            tensors,
            outputs: self.outputs()?,
            numbers: Numbers::Attention {
                quantised: Box::new(quantised),
                unquantised: Box::new(unquantised),
                packed,
                needles: drawn.needles,
                places: Box::new(places),
            },
        })
    }

    /// An input that is not quantised, and the numbers that its elements hold.
    fn wide(&self, input: &warpsmith_spec::task::Tensor, drawn: &[f32]) -> Result<(Tensor, Vec<f32>), EvalError> {
        let (shape, dtype) = (self.shape(input)?, self.dtype(input.element));
        let bytes = encode(dtype, drawn);
        let values = decode(dtype, &bytes).iter().map(|x| *x as f32).collect();
        Ok((Tensor { name: input.name.clone(), dtype, shape, bytes }, values))
    }

    /// Sizes of the problem, and how many sequences there are: by the symbols B, Hq, Hkv, Sq, Sk and D, or of q's shape, which all
    /// tensors then share.
    fn geometry(&self) -> Result<(Geometry, usize), EvalError> {
        let wrong = |why: &str| EvalError::task(&self.task.file, format!("the built-in attention: {why}"));
        let symbol = |name: &str| self.workload.symbols.get(name).map(|n| *n as usize);
        let symbols = ["B", "Hq", "Hkv", "Sq", "Sk", "D"].map(symbol);
        if let [Some(b), Some(hq), Some(hkv), Some(sq), Some(sk), Some(d)] = symbols {
            if hq % hkv != 0 {
                return Err(wrong(&format!("{hq} query heads are no multiple of {hkv} key heads")));
            }
            return Ok((Geometry { heads: b * hq, seqlen: sq, heads_k: b * hkv, seqlen_k: sk, head_dim: d }, b));
        }
        let shape_of = |name: &str| {
            let tensor = self.task.tensor(name).ok_or_else(|| wrong(&format!("the task has no tensor `{name}`")))?;
            self.shape(tensor)
        };
        let shape = shape_of("q")?;
        let [.., s, d] = shape[..] else { return Err(wrong("q has fewer than two dimensions")) };
        for name in ["k", "v", "out"] {
            if shape_of(name)? != shape {
                return Err(wrong(&format!("{name} has another shape than q")));
            }
        }
        let heads = shape[..shape.len() - 2].iter().product::<u64>() as usize;
        Ok((Geometry::square(heads, s as usize, d as usize), 1))
    }

    fn places(&self, g: Geometry, batch: usize) -> Result<Places, EvalError> {
        let size = |name: &str, at: usize| -> Result<usize, EvalError> {
            match self.task.tensor(name) {
                Some(tensor) => Ok(self.shape(tensor)?.get(at).copied().unwrap_or(0) as usize),
                None => Ok(0),
            }
        };
        let layout = self.workload.variant.layout;
        let mut totals = Totals::default();
        match layout {
            Layout::Ragged => (totals.q, totals.k) = (size("q", 0)?, size("k", 0)?),
            Layout::Paged => (totals.pages, totals.page_size) = (size("k", 0)?, size("k", 1)?),
            _ => {}
        }
        Places::new(&self.source, layout, g, batch, totals)
            .map_err(|why| EvalError::task(&self.task.file, format!("the built-in attention: {why}")))
    }

    /// As the kernel receives it: rounded to f32.
    fn softmax_scale(&self) -> Result<f32, EvalError> {
        let wrong = |why: String| EvalError::task(&self.task.file, why);
        let scalar = self
            .task
            .scalar("softmax_scale")
            .ok_or_else(|| wrong("the built-in attention needs the scalar softmax_scale".into()))?;
        match self.task.scalar_value(scalar, &self.workload.symbols, self.workload).map_err(wrong)? {
            Number::Real(x) => Ok(x as f32),
            Number::Whole(n) => Ok(n as f32),
            Number::Truth(_) => Err(wrong("softmax_scale is no number".into())),
        }
    }

    fn tensors(&self) -> Result<Inputs, EvalError> {
        let (mut tensors, mut quantised, mut unquantised) = (Vec::new(), Vec::new(), Vec::new());
        for input in self.task.inputs().filter(|t| self.task.has_tensor(t, self.workload)) {
            let shape = self.shape(input)?;
            let n = shape.iter().product::<u64>() as usize;
            let dtype = self.dtype(input.element);
            let mut drawn = match (&self.task.reference, self.workload.distribution) {
                // An offset of each channel is what packing is about.
                (Reference::Builtin(_), Distribution::Shifted) => self.source.channels(&input.name, &shape),
                (_, distribution) => self.source.tensor(distribution, &input.name, n),
            };
            if !dtype.is_float() && self.task.scales_of(&input.name).is_none() {
                // Whole numbers of a few digits, not negative where the type has no sign.
                let signed = matches!(dtype, DType::I8 | DType::I16 | DType::I32 | DType::I64);
                drawn
                    .iter_mut()
                    .for_each(|x| *x = if signed { (*x * 16.0).round() } else { (*x * 16.0).round().abs() });
            }
            let (codes, scales, q) = self.codes(input, shape.clone(), &drawn)?;
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
