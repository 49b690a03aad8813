//! The inputs of a workload as a baseline takes them: the codes themselves, or the unquantised values rounded to its type.

use super::client::Absent;
use super::name::{Kind, Name};
use crate::inputs::{Inputs, Numbers};
use crate::quantise::quantise;
use crate::values::{Tensor, decode, encode};
use std::collections::BTreeMap;
use warpsmith_spec::formula::Number;
use warpsmith_spec::task::Task;
use warpsmith_spec::words::{DType, Format, Layout, ScaleLayout};
use warpsmith_spec::workload::Workload;

/// A problem for a baseline, with several sets of inputs.
#[derive(Debug, Clone, PartialEq)]
pub struct Given {
    pub causal: bool,
    pub scalars: BTreeMap<String, f64>,
    pub bases: Vec<Vec<Tensor>>,
}

/// What a baseline is given of a workload; `bases` are its sets of inputs.
pub fn given<'a>(
    name: Name,
    task: &Task,
    workload: &Workload,
    bases: impl IntoIterator<Item = &'a Inputs>,
) -> Result<Given, Absent> {
    if !matches!(workload.variant.layout, Layout::Dense | Layout::Tokens) {
        return Err(Absent::new(format!(
            "{name} is called with dense tensors, not with layout {}",
            workload.variant.layout
        )));
    }
    let mut scalars = BTreeMap::new();
    for scalar in &task.scalars {
        let value = task.scalar_value(scalar, &workload.symbols, workload).map_err(Absent::new)?;
        let value = match value {
            // As a kernel receives it.
            Number::Real(x) if scalar.dtype == DType::F32 => f64::from(x as f32),
            Number::Real(x) => x,
            Number::Whole(n) => n as f64,
            Number::Truth(t) => f64::from(u8::from(t)),
        };
        scalars.insert(scalar.name.clone(), value);
    }
    let mut bases: Vec<Vec<Tensor>> =
        bases.into_iter().map(|inputs| tensors(name, task, workload, inputs)).collect::<Result<_, _>>()?;
    let kind = name.known().kind;
    // Those that were not made anew, as dense ones.
    let as_drawn = kind == Kind::Codes || kind == Kind::CodesPerTensor && workload.scales == ScaleLayout::Tensor;
    if workload.variant.layout == Layout::Tokens && as_drawn {
        let operands = bases.iter_mut().flatten().filter(|t| t.shape.len() == 4 && !t.name.ends_with("_scale"));
        operands.for_each(heads_first);
    }
    Ok(Given { causal: workload.causal, scalars, bases })
}

fn tensors(name: Name, task: &Task, workload: &Workload, inputs: &Inputs) -> Result<Vec<Tensor>, Absent> {
    let known = name.known();
    match (&inputs.numbers, known.task) {
        (Numbers::Attention { .. }, None) => {}
        (_, Some(wanted)) if wanted == task.name => {}
        (_, wanted) => {
            return Err(Absent::new(format!("{name} is for {}, not for {}", wanted.unwrap_or("attention"), task.name)));
        }
    }
    match known.kind {
        Kind::Rounded(dtype) => unquantised(task, workload, inputs)?
            .into_iter()
            .map(|(name, shape, values)| Ok(Tensor { name, dtype, shape, bytes: encode(dtype, &values) }))
            .collect(),
        Kind::Codes | Kind::CodesPerTensor if workload.format != Format::E4m3 => {
            Err(Absent::new(format!("{name} takes e4m3, and the workload's format is {}", workload.format)))
        }
        Kind::Codes => Ok(inputs.tensors.clone()),
        Kind::CodesPerTensor if workload.scales == ScaleLayout::Tensor => Ok(inputs.tensors.clone()),
        Kind::CodesPerTensor => per_tensor(task, workload, inputs),
    }
}

/// Names, sizes and values of the inputs before they were quantised.
fn unquantised(task: &Task, workload: &Workload, inputs: &Inputs) -> Result<Vec<(String, Vec<u64>, Vec<f32>)>, Absent> {
    match &inputs.numbers {
        Numbers::Attention { unquantised, .. } => {
            let operands = [("q", &unquantised.q), ("k", &unquantised.k), ("v", &unquantised.v)];
            operands
                .into_iter()
                .map(|(name, operand)| {
                    let tensor = inputs.tensors.iter().find(|t| t.name == name);
                    let tensor = tensor.ok_or_else(|| Absent::new(format!("task {} has no {name}", task.name)))?;
                    Ok((name.to_string(), dense_shape(workload, tensor), operand.values.clone()))
                })
                .collect()
        }
        Numbers::Tensors { quantised, unquantised } => Ok(unquantised
            .as_ref()
            .unwrap_or(quantised)
            .iter()
            .map(|t| {
                let values = decode(t.dtype, &t.bytes).into_iter().map(|x| x as f32).collect();
                (t.name.clone(), t.shape.clone(), values)
            })
            .collect()),
    }
}

/// Codes with one scale for each tensor.
fn per_tensor(task: &Task, workload: &Workload, inputs: &Inputs) -> Result<Vec<Tensor>, Absent> {
    let mut found = Vec::new();
    for (name, shape, values) in unquantised(task, workload, inputs)? {
        let q = quantise(Format::E4m3, ScaleLayout::Tensor, &shape, &values, &task.quantiser).map_err(Absent::new)?;
        let scale = Tensor {
            name: format!("{name}_scale"),
            dtype: DType::F32,
            shape: Vec::new(),
            bytes: encode(DType::F32, &q.scales),
        };
        found.push(Tensor { name, dtype: DType::E4m3, shape, bytes: q.codes });
        found.push(scale);
    }
    Ok(found)
}

/// A tensor's sizes as (B, H, S, D), the order in which its values are drawn.
fn dense_shape(workload: &Workload, tensor: &Tensor) -> Vec<u64> {
    match (workload.variant.layout, &tensor.shape[..]) {
        (Layout::Tokens, &[b, s, h, d]) => vec![b, h, s, d],
        (_, shape) => shape.to_vec(),
    }
}

/// (B, S, H, D) to (B, H, S, D): baselines arrange their tensors themselves, from that.
fn heads_first(t: &mut Tensor) {
    let &[b, s, h, _] = &t.shape[..] else { return };
    let row = t.bytes.len() / (b * s * h).max(1) as usize;
    let mut bytes = Vec::with_capacity(t.bytes.len());
    for (batch, head, token) in (0..b).flat_map(|b| (0..h).flat_map(move |h| (0..s).map(move |s| (b, h, s)))) {
        let at = ((batch * s + token) * h + head) as usize * row;
        bytes.extend_from_slice(&t.bytes[at..at + row]);
    }
    t.bytes = bytes;
    t.shape.swap(1, 2);
}
