//! What a workload's outputs have to be, and how far off an honest kernel is: computed once, shared by all candidates.
//!
//! Two references for each output: from the quantised inputs (the kernel's own task) and from the unquantised ones (end to end).
//! Large shapes are judged on secretly chosen rows. Limits depend on the target too, because the honest kernel accumulates as
//! the target's tensor core does.

use crate::attention::{Accumulation, Problem, RowSet, Style, attention_lse, honest_lse};
use crate::error::EvalError;
use crate::inputs::{Inputs, Numbers, inputs};
use crate::metrics::{Relative, end_to_end_limit, logarithmic, relative};
use crate::pack;
use crate::places::Places;
use crate::reference::{self, Question};
use crate::rows;
use crate::values::{OutputSpec, decode, encode};
use std::collections::HashMap;
use std::sync::Mutex;
use warpsmith_spec::formula::Number;
use warpsmith_spec::protocol::Header;
use warpsmith_spec::task::{Base, Reference, Task};
use warpsmith_spec::words::{DType, Format, Precision};
use warpsmith_spec::workload::Workload;

/// One output's references.
#[derive(Debug, Clone)]
pub struct Expected {
    pub spec: OutputSpec,
    pub kind: Kind,
    /// Numbers in a row.
    pub width: usize,
    /// Which rows are judged, in the order of the references; None: all, in their own.
    pub rows: Option<Vec<u64>>,
    /// From the quantised inputs, judged rows only.
    pub kernel: Vec<f64>,
    /// From the unquantised inputs; None where they are the same numbers.
    pub end_to_end: Option<Vec<f64>>,
}

/// What the numbers of an output are.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// A stored number times this is the value: 1, but where the output has a scale.
    Values { unit: f64 },
    /// Logarithms of sums, -inf where there is nothing to sum. Their absolute error is the sum's relative one, so that is judged:
    /// its root mean square and its largest.
    Logarithms,
}

impl Kind {
    pub const PLAIN: Kind = Kind::Values { unit: 1.0 };

    /// The two figures that limits are set on.
    pub fn errors(self, got: &[f64], want: &[f64], width: usize) -> Relative {
        match self {
            Kind::Values { .. } => relative(got, want, width),
            Kind::Logarithms => logarithmic(got, want),
        }
    }
}

impl Expected {
    /// Position in the whole output of the `i`-th judged element.
    pub fn element(&self, i: usize) -> usize {
        match &self.rows {
            None => i,
            Some(rows) => rows[i / self.width] as usize * self.width + i % self.width,
        }
    }

    /// Rows that there are.
    pub fn rows_total(&self) -> u64 {
        (self.spec.elements() / self.width) as u64
    }

    /// Rows that are judged.
    pub fn rows_checked(&self) -> u64 {
        (self.kernel.len() / self.width) as u64
    }
}

/// Limits of one output.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    pub kernel: Relative,
    pub end_to_end: Relative,
}

/// Inputs and references of one workload.
#[derive(Debug)]
pub struct Oracle {
    pub inputs: Inputs,
    pub outputs: Vec<Expected>,
    judged: RowSet,
    /// The format of outputs is an axis of the workload.
    rounded: bool,
    /// One for each output.
    bases: Mutex<HashMap<(Precision, Accumulation), Vec<Relative>>>,
}

/// What decides inputs and judged rows besides the workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Secrets {
    /// Of the inputs' generator; 0 is the published sequence.
    pub inputs: u64,
    /// Of the choice of judged rows.
    pub rows: u64,
}

impl Oracle {
    pub fn new(task: &Task, workload: &Workload, secrets: Secrets) -> Result<Oracle, EvalError> {
        let inputs = inputs(task, workload, secrets.inputs)?;
        let mut judged = RowSet { heads: Vec::new(), all: 0 };
        let outputs = match (&inputs.numbers, &task.reference) {
            (Numbers::Attention { quantised, unquantised, needles, places, .. }, _) => {
                let (g, sight) = (quantised.geometry, &quantised.sight);
                judged = rows::judged_of(g, sight, needles, rows::ORACLE_WORK, secrets.rows);
                let unit = out_scale(task, workload)?;
                attention_outputs(&inputs, [quantised, unquantised], places, &judged, unit)?
            }
            (Numbers::Tensors { .. }, Reference::Script { source, .. }) => {
                script_outputs(task, workload, &inputs, source)?
            }
            (Numbers::Tensors { .. }, Reference::Builtin(name)) if name == "pack" => {
                pack::outputs(task, workload, &inputs)?
            }
            (Numbers::Tensors { .. }, Reference::Builtin(name)) => {
                return Err(EvalError::task(&task.file, format!("there is no built-in reference `{name}`")));
            }
        };
        let rounded = workload.variant.out.is_some();
        Ok(Oracle { inputs, outputs, judged, rounded, bases: Mutex::default() })
    }

    /// The limits of an output for a target and the precision that the candidate asks for.
    pub fn limits(
        &self,
        expected: &Expected,
        task: &Task,
        target: &str,
        asked: Option<Precision>,
        format: Format,
    ) -> Limits {
        let base = match &task.tolerance.base {
            Base::Given { rel_frobenius, worst_row } => Relative { frobenius: *rel_frobenius, worst_row: *worst_row },
            Base::HonestAttention { p, fold } => {
                // A candidate may ask for the stricter limit, never for the laxer one.
                let precision = if asked == Some(Precision::F16) { Precision::F16 } else { *p };
                self.base(expected, precision, accumulation(target, format, precision, *fold))
            }
        };
        let kernel = match expected.kind {
            Kind::Values { .. } => {
                let (frobenius, worst_row) = task.tolerance.limits(base.frobenius, base.worst_row);
                Relative { frobenius, worst_row }
            }
            Kind::Logarithms => {
                let (frobenius, worst_row) = task.tolerance.log_limits(base.frobenius, base.worst_row);
                Relative { frobenius, worst_row }
            }
        };
        let end_to_end = match &expected.end_to_end {
            None => kernel,
            // Absolute errors add up.
            Some(want) if expected.kind == Kind::Logarithms => {
                let exact = logarithmic(&expected.kernel, want);
                Relative {
                    frobenius: exact.frobenius + kernel.frobenius,
                    worst_row: exact.worst_row + kernel.worst_row,
                }
            }
            Some(want) => end_to_end_limit(&expected.kernel, want, expected.width, kernel),
        };
        Limits { kernel, end_to_end }
    }

    /// About how much memory it holds.
    pub fn bytes(&self) -> usize {
        let tensors: usize = self.inputs.tensors.iter().map(|t| t.bytes.len()).sum();
        let numbers = match &self.inputs.numbers {
            Numbers::Attention { quantised, .. } => {
                let g = quantised.geometry;
                2 * 4 * (g.elements() + 2 * g.elements_k())
            }
            Numbers::Tensors { quantised, unquantised } => {
                quantised.iter().chain(unquantised.iter().flatten()).map(|t| t.bytes.len()).sum()
            }
        };
        tensors + numbers + self.outputs.iter().map(|o| 16 * o.kernel.len()).sum::<usize>()
    }

    /// Multiply-adds of the task on this workload, or elements where it is not attention: what the limits of time are made from.
    pub fn work(&self) -> u64 {
        match &self.inputs.numbers {
            Numbers::Attention { quantised, .. } => {
                let g = quantised.geometry;
                g.work(g.heads * g.seqlen).min(u64::MAX as u128 / 4) as u64
            }
            Numbers::Tensors { .. } => {
                let elements = |shape: &[u64]| shape.iter().product::<u64>();
                let inputs: u64 = self.inputs.tensors.iter().map(|t| elements(&t.shape)).sum();
                1000 * (inputs + self.inputs.outputs.iter().map(|o| elements(&o.shape)).sum::<u64>())
            }
        }
    }

    fn base(&self, expected: &Expected, precision: Precision, accumulation: Accumulation) -> Relative {
        let Numbers::Attention { quantised, packed, .. } = &self.inputs.numbers else {
            return Relative { frobenius: 0.0, worst_row: 0.0 };
        };
        let key = (precision, accumulation);
        // The lock is held while it is computed: whoever else wants it would compute the same.
        let mut bases = self.bases.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let found = bases.entry(key).or_insert_with(|| {
            let style = match precision {
                Precision::F16 => Style { accumulation, ..Style::f16() },
                Precision::E4m3 => Style::fp8(accumulation, self.smallest_exponent()),
            };
            let (out, lse) = honest_lse(packed.as_ref().unwrap_or(quantised), &self.judged, &style);
            self.outputs
                .iter()
                .map(|e| {
                    let got: Vec<f64> = match e.kind {
                        Kind::Logarithms => lse.iter().map(|x| f64::from(*x)).collect(),
                        // Where the format of outputs is an axis, its rounding is part of what an honest kernel errs.
                        Kind::Values { unit } if self.rounded => {
                            let stored: Vec<f32> = out.iter().map(|x| (f64::from(*x) / unit) as f32).collect();
                            decode(e.spec.dtype, &encode(e.spec.dtype, &stored)).iter().map(|x| x * unit).collect()
                        }
                        Kind::Values { .. } => out.iter().map(|x| f64::from(*x)).collect(),
                    };
                    e.kind.errors(&got, &e.kernel, e.width)
                })
                .collect()
        });
        let at = self.outputs.iter().position(|e| e.spec.name == expected.spec.name).unwrap_or(0);
        found.get(at).copied().unwrap_or(Relative { frobenius: 0.0, worst_row: 0.0 })
    }

    fn smallest_exponent(&self) -> i32 {
        let e5m2 = self.inputs.tensors.iter().any(|t| t.dtype == warpsmith_spec::words::DType::E5m2);
        if e5m2 { -14 } else { -6 }
    }
}

/// How the honest kernel's tensor core adds on a target. Codes of 8 simulated bits are no FP8 operands: f16 products.
fn accumulation(target: &str, format: Format, precision: Precision, fold: u32) -> Accumulation {
    let fp8 = matches!(format, Format::E4m3 | Format::E5m2) && precision == Precision::E4m3;
    match target {
        "sm_89" if fp8 => Accumulation::Narrow { chunk: 16, fold: fold as usize },
        "sm_90a" if fp8 => Accumulation::Narrow { chunk: 32, fold: fold as usize },
        _ => Accumulation::Single,
    }
}

/// What an e4m3 output is to be multiplied by: the task's scalar `out_scale`, as the kernel receives it.
fn out_scale(task: &Task, workload: &Workload) -> Result<f64, EvalError> {
    let Some(scalar) = task.scalar("out_scale").filter(|_| workload.variant.out == Some(DType::E4m3)) else {
        return Ok(1.0);
    };
    match task.scalar_value(scalar, &workload.symbols, workload) {
        Ok(Number::Real(x)) if x > 0.0 => Ok(f64::from(x as f32)),
        Ok(other) => Err(EvalError::task(&task.file, format!("out_scale is {other}, which is no scale"))),
        Err(why) => Err(EvalError::task(&task.file, why)),
    }
}

/// The references of `out` and, where it is asked for, of `lse`; `problems` are the quantised and the unquantised one.
fn attention_outputs(
    inputs: &Inputs,
    problems: [&Problem; 2],
    places: &Places,
    judged: &RowSet,
    unit: f64,
) -> Result<Vec<Expected>, EvalError> {
    let g = problems[0].geometry;
    let [mut kernel, mut end_to_end] = problems.map(|p| attention_lse(p, judged));
    let mut found = Vec::new();
    for spec in &inputs.outputs {
        let (kind, width) = match spec.name.as_str() {
            "out" => (Kind::Values { unit }, g.head_dim),
            "lse" => (Kind::Logarithms, 1),
            other => return Err(EvalError::Defect(format!("the built-in attention has no output {other}"))),
        };
        let place = |(head, row)| match kind {
            Kind::Values { .. } => places.out(head, row),
            Kind::Logarithms => places.lse(head, row),
        };
        let some = judged.len() < judged.all || !places.is_plain();
        let rows = some.then(|| judged.iter().filter_map(place).map(|r| r as u64).collect());
        let take = |from: &mut (Vec<f64>, Vec<f64>)| match kind {
            Kind::Logarithms => std::mem::take(&mut from.1),
            Kind::Values { .. } => {
                let mut values = std::mem::take(&mut from.0);
                if spec.dtype == DType::E4m3 {
                    // What the format holds at most: beyond it the output saturates, and is right to.
                    values.iter_mut().for_each(|x| *x = x.clamp(-448.0 * unit, 448.0 * unit));
                }
                values
            }
        };
        let (kernel, end_to_end) = (take(&mut kernel), take(&mut end_to_end));
        found.push(Expected { spec: spec.clone(), kind, width, rows, kernel, end_to_end: Some(end_to_end) });
    }
    Ok(found)
}

fn script_outputs(task: &Task, workload: &Workload, inputs: &Inputs, script: &str) -> Result<Vec<Expected>, EvalError> {
    let Numbers::Tensors { quantised, unquantised } = &inputs.numbers else {
        return Err(EvalError::Defect("a script's inputs are tensors".into()));
    };
    let header = Header::new(task, workload).map_err(|why| EvalError::task(&task.file, why))?;
    let ask = |tensors| {
        reference::run(
            &Question { script, header: &header, inputs: tensors, outputs: &inputs.outputs },
            "python3",
            reference::LIMIT,
        )
    };
    let kernel = ask(quantised)?;
    let mut end_to_end = match unquantised {
        Some(tensors) => ask(tensors)?.into_iter().map(Some).collect(),
        None => vec![None; kernel.len()],
    }
    .into_iter();
    Ok(kernel
        .into_iter()
        .zip(&inputs.outputs)
        .map(|(kernel, spec)| Expected {
            spec: spec.clone(),
            kind: Kind::PLAIN,
            width: spec.width(),
            rows: None,
            kernel,
            end_to_end: end_to_end.next().flatten(),
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_fp8_on_ada_and_wgmma_accumulate_narrowly() {
        for (target, format, precision, narrow) in [
            ("sm_89", Format::E4m3, Precision::E4m3, true),
            ("sm_90a", Format::E5m2, Precision::E4m3, true),
            ("sm_90", Format::E4m3, Precision::E4m3, false),
            ("sm_80", Format::E4m3, Precision::E4m3, false),
            ("sm_89", Format::U8, Precision::E4m3, false),
            ("sm_89", Format::E4m3, Precision::F16, false),
            ("sm_89", Format::F16, Precision::F16, false),
        ] {
            let found = accumulation(target, format, precision, 512) != Accumulation::Single;
            assert_eq!(found, narrow, "{target} {format} {precision}");
        }
    }
}
