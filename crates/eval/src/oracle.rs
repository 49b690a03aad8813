//! What a workload's outputs have to be, and how far off an honest kernel is: computed once, shared by all candidates.
//!
//! Two references for each output: from the quantised inputs (the kernel's own task) and from the unquantised ones (end to end).
//! Large shapes are judged on secretly chosen rows. Limits depend on the target too, because the honest kernel accumulates as
//! the target's tensor core does.

use crate::attention::{Accumulation, Problem, RowSet, Style, attention, honest};
use crate::error::EvalError;
use crate::inputs::{Inputs, Numbers, inputs};
use crate::metrics::{Relative, end_to_end_limit, relative};
use crate::reference::{self, Question};
use crate::rows;
use crate::values::OutputSpec;
use std::collections::HashMap;
use std::sync::Mutex;
use warpsmith_spec::protocol::Header;
use warpsmith_spec::task::{Base, Reference, Task};
use warpsmith_spec::words::{Format, Precision};
use warpsmith_spec::workload::Workload;

/// One output's references.
#[derive(Debug, Clone)]
pub struct Expected {
    pub spec: OutputSpec,
    /// Numbers in a row.
    pub width: usize,
    /// Which rows are judged, in ascending order; None: all.
    pub rows: Option<Vec<u64>>,
    /// From the quantised inputs, judged rows only.
    pub kernel: Vec<f64>,
    /// From the unquantised inputs; None where they are the same numbers.
    pub end_to_end: Option<Vec<f64>>,
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
    bases: Mutex<HashMap<(Precision, Accumulation), Relative>>,
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
            (Numbers::Attention { quantised, unquantised, needles }, _) => {
                judged = rows::judged(quantised.geometry, needles, rows::ORACLE_WORK, secrets.rows);
                attention_outputs(&inputs, quantised, unquantised, &judged)?
            }
            (Numbers::Tensors { .. }, Reference::Script { source, .. }) => {
                script_outputs(task, workload, &inputs, source)?
            }
            (Numbers::Tensors { .. }, Reference::Builtin(name)) => {
                return Err(EvalError::task(&task.file, format!("there is no built-in reference `{name}`")));
            }
        };
        Ok(Oracle { inputs, outputs, judged, bases: Mutex::default() })
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
        let (frobenius, worst_row) = task.tolerance.limits(base.frobenius, base.worst_row);
        let kernel = Relative { frobenius, worst_row };
        let end_to_end = match &expected.end_to_end {
            None => kernel,
            Some(want) => end_to_end_limit(&expected.kernel, want, expected.width, kernel),
        };
        Limits { kernel, end_to_end }
    }

    /// About how much memory it holds.
    pub fn bytes(&self) -> usize {
        let tensors: usize = self.inputs.tensors.iter().map(|t| t.bytes.len()).sum();
        let numbers = match &self.inputs.numbers {
            Numbers::Attention { quantised, .. } => 6 * 4 * quantised.geometry.elements(),
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
        let Numbers::Attention { quantised, .. } = &self.inputs.numbers else {
            return Relative { frobenius: 0.0, worst_row: 0.0 };
        };
        let key = (precision, accumulation);
        // The lock is held while it is computed: whoever else wants it would compute the same.
        let mut bases = self.bases.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        *bases.entry(key).or_insert_with(|| {
            let style = match precision {
                Precision::F16 => Style { accumulation, ..Style::f16() },
                Precision::E4m3 => Style::fp8(accumulation, self.smallest_exponent()),
            };
            let got: Vec<f64> = honest(quantised, &self.judged, &style).iter().map(|x| *x as f64).collect();
            relative(&got, &expected.kernel, expected.width)
        })
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

fn attention_outputs(
    inputs: &Inputs,
    quantised: &Problem,
    unquantised: &Problem,
    judged: &RowSet,
) -> Result<Vec<Expected>, EvalError> {
    let g = quantised.geometry;
    let [spec] = &inputs.outputs[..] else {
        return Err(EvalError::Defect("the built-in attention has one output".into()));
    };
    let rows =
        (judged.len() < judged.all).then(|| judged.iter().map(|(head, row)| (head * g.seqlen + row) as u64).collect());
    Ok(vec![Expected {
        spec: spec.clone(),
        width: g.head_dim,
        rows,
        kernel: attention(quantised, judged),
        end_to_end: Some(attention(unquantised, judged)),
    }])
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
