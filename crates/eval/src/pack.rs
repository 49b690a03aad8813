//! Packing of keys and values, by definition: each channel's mean over a head's tokens taken out, the rest as codes and scales.
//!
//! The built-in reference `pack`: of an input `x` (heads ..., tokens, channels) its outputs are `x_codes`, `x_scale` and, where it is
//! asked for, `x_mean`; nothing is taken out of an input whose mean is not. Means are summed in f64 and rounded to f32, differences
//! and scales are f32. Limit: inputs whose channels hardly differ from their mean are ill-conditioned, and are not drawn.

use crate::error::EvalError;
use crate::inputs::{Inputs, Numbers};
use crate::oracle::{Expected, Kind};
use crate::quantise::quantise;
use crate::values::decode;
use warpsmith_num::e4m3;
use warpsmith_spec::task::Task;
use warpsmith_spec::words::Format;
use warpsmith_spec::workload::Workload;

/// Values (heads, tokens, channels) without each channel's mean over the head's tokens; and the means, (heads, channels).
pub fn centre(values: &[f32], tokens: usize, channels: usize) -> (Vec<f32>, Vec<f32>) {
    let head = (tokens * channels).max(1);
    let mut means = Vec::with_capacity(values.len() / tokens.max(1));
    let mut centred = Vec::with_capacity(values.len());
    for rows in values.chunks(head) {
        let first = means.len();
        means.extend((0..channels).map(|x| {
            let sum: f64 = rows.iter().skip(x).step_by(channels).map(|x| f64::from(*x)).sum();
            (sum / tokens as f64) as f32
        }));
        let mean = &means[first..];
        centred.extend(rows.iter().enumerate().map(|(i, x)| x - mean[i % channels]));
    }
    (centred, means)
}

/// What the outputs of a workload have to be.
pub fn outputs(task: &Task, workload: &Workload, inputs: &Inputs) -> Result<Vec<Expected>, EvalError> {
    let wrong = |why: String| EvalError::task(&task.file, format!("the built-in packing: {why}"));
    let Numbers::Tensors { quantised, .. } = &inputs.numbers else {
        return Err(EvalError::Defect("packing has tensors".into()));
    };
    let mut found = Vec::new();
    for spec in &inputs.outputs {
        let (name, what) = spec.name.rsplit_once('_').unwrap_or((&spec.name, ""));
        let input = quantised
            .iter()
            .find(|t| t.name == name)
            .ok_or_else(|| wrong(format!("the output {} belongs to no input", spec.name)))?;
        let [.., tokens, channels] = input.shape[..] else {
            return Err(wrong(format!("{name} has fewer than two dimensions")));
        };
        let values: Vec<f32> = decode(input.dtype, &input.bytes).iter().map(|x| *x as f32).collect();
        let (centred, means) = centre(&values, tokens as usize, channels as usize);
        let centres = inputs.outputs.iter().any(|o| o.name == format!("{name}_mean"));
        let values = if centres { centred } else { values };
        let packed = quantise(Format::E4m3, workload.scales, &input.shape, &values, &task.quantiser).map_err(wrong)?;
        let numbers: Vec<f64> = match what {
            "codes" => packed.codes.iter().map(|c| f64::from(e4m3::to_f32(*c))).collect(),
            "scale" => packed.scales.iter().map(|x| f64::from(*x)).collect(),
            "mean" => means.iter().map(|x| f64::from(*x)).collect(),
            _ => return Err(wrong(format!("an output is called {name}_codes, _scale or _mean, not {}", spec.name))),
        };
        if numbers.len() != spec.elements() {
            return Err(wrong(format!("{} has {} elements, not {}", spec.name, spec.elements(), numbers.len())));
        }
        found.push(Expected {
            spec: spec.clone(),
            kind: Kind::PLAIN,
            width: spec.width(),
            rows: None,
            kernel: numbers,
            end_to_end: None,
        });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_out_is_each_heads_own_mean_of_each_channel() {
        // Two heads of three tokens by two channels.
        let values = [1.0, 10.0, 2.0, 20.0, 3.0, 60.0, -1.0, 0.5, -1.0, 0.5, -1.0, 0.5];
        let (centred, means) = centre(&values, 3, 2);
        assert_eq!(means, [2.0, 30.0, -1.0, 0.5]);
        assert_eq!(centred, [-1.0, -20.0, 0.0, -10.0, 1.0, 30.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
        assert_eq!(centre(&[], 3, 2), (Vec::new(), Vec::new()));
    }
}
