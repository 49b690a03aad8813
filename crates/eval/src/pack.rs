//! Packing of keys and values, by definition: each channel's mean over a head's tokens taken out, the rest as codes and scales.
//!
//! The built-in reference `pack`: of an input `x` (heads ..., tokens, channels) its outputs are `x_codes`, `x_scale` and, where it is
//! asked for, `x_mean`, or `x_sampled`, the mean over up to 64 evenly spaced tokens where these show one, else 0; nothing is taken out of an input of which neither is.
//! `x_t` is the codes again as attention's second product reads them (`transposed`). Means are summed in f64 and rounded to f32, differences
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
    taken_out(values, tokens, channels, |rows, x| {
        let sum: f64 = rows[x..].iter().step_by(channels).map(|x| f64::from(*x)).sum();
        sum / tokens as f64
    })
}

/// The tokens that a sampled mean is of: all of up to 64, else the middles of 64 even stretches, rounded down.
pub fn sampled(tokens: usize) -> Vec<usize> {
    if tokens <= 64 { (0..tokens).collect() } else { (0..64).map(|i| (2 * i + 1) * tokens / 128).collect() }
}

/// The same with the mean over [`sampled`] tokens, of channels where that is more than three of its standard errors from 0: elsewhere those tokens' chance would be taken out.
pub fn centre_on_sampled(values: &[f32], tokens: usize, channels: usize) -> (Vec<f32>, Vec<f32>) {
    let over = sampled(tokens);
    let n = over.len() as f64;
    taken_out(values, tokens, channels, |rows, x| {
        let of = over.iter().map(|token| f64::from(rows[token * channels + x]));
        let (sum, squares) = of.fold((0.0, 0.0), |(sum, squares), x| (sum + x, squares + x * x));
        if (n + 9.0) * sum * sum > 9.0 * n * squares { sum / n } else { 0.0 }
    })
}

/// The same with what `mean` says of a head's rows and a channel.
fn taken_out(
    values: &[f32],
    tokens: usize,
    channels: usize,
    mean: impl Fn(&[f32], usize) -> f64,
) -> (Vec<f32>, Vec<f32>) {
    let head = (tokens * channels).max(1);
    let mut means = Vec::with_capacity(values.len() / tokens.max(1));
    let mut centred = Vec::with_capacity(values.len());
    for rows in values.chunks(head) {
        let first = means.len();
        means.extend((0..channels).map(|x| mean(rows, x) as f32));
        let mean = &means[first..];
        centred.extend(rows.iter().enumerate().map(|(i, x)| x - mean[i % channels]));
    }
    (centred, means)
}

/// Codes (heads, tokens, channels) as rows of channels, in tiles of 128 tokens, zeros behind the last: what a transposing copy of shared
/// memory by pairs leaves. Row 16 c + r of a tile is channel 16 c + 2 r, or for r of 8 and more 16 c + 2 (r - 8) + 1; the byte 4 j + i of
/// each 16 is token 2 j + [0, 1, 8, 9][i] of them.
pub fn transposed(codes: &[u8], tokens: usize, channels: usize) -> Vec<u8> {
    let width = tokens.div_ceil(128) * 128;
    let mut made = Vec::with_capacity(codes.len() / tokens.max(1) * width);
    for rows in codes.chunks((tokens * channels).max(1)) {
        for n in 0..channels {
            let (c, r) = (n / 16, n % 16);
            let channel = 16 * c + if r < 8 { 2 * r } else { 2 * (r - 8) + 1 };
            made.extend((0..width).map(|at| {
                let token = at / 16 * 16 + at % 16 / 4 * 2 + [0, 1, 8, 9][at % 4];
                if token < tokens { rows[token * channels + channel] } else { 0 }
            }));
        }
    }
    made
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
        let asked = |what: &str| inputs.outputs.iter().any(|o| o.name == format!("{name}_{what}"));
        let (tokens, channels) = (tokens as usize, channels as usize);
        let (values, means) = match (asked("mean"), asked("sampled")) {
            (true, true) => return Err(wrong(format!("{name}_mean and {name}_sampled: one of them is taken out"))),
            (true, false) => centre(&values, tokens, channels),
            (false, true) => centre_on_sampled(&values, tokens, channels),
            (false, false) => (values, Vec::new()),
        };
        let packed = quantise(Format::E4m3, workload.scales, &input.shape, &values, &task.quantiser).map_err(wrong)?;
        let numbers: Vec<f64> = match what {
            "codes" => packed.codes.iter().map(|c| f64::from(e4m3::to_f32(*c))).collect(),
            "scale" => packed.scales.iter().map(|x| f64::from(*x)).collect(),
            "t" if channels % 16 == 0 => {
                transposed(&packed.codes, tokens, channels).iter().map(|c| f64::from(e4m3::to_f32(*c))).collect()
            }
            "t" => return Err(wrong(format!("{} needs channels in sixteens", spec.name))),
            "mean" | "sampled" => means.iter().map(|x| f64::from(*x)).collect(),
            _ => {
                return Err(wrong(format!(
                    "an output is called {name}_codes, _scale, _mean, _sampled or _t, not {}",
                    spec.name
                )));
            }
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

    #[test]
    fn a_sampled_mean_is_taken_out_where_it_is_no_chance() {
        // Of 200 tokens by four channels: constant; alternating by sample; the same, and four of its standard errors more; with one that no sample sees.
        let tokens = 200;
        let of = sampled(tokens);
        let sign =
            |token: usize| of.iter().position(|t| *t == token).map_or(0.0, |i| if i % 2 == 0 { 1.0 } else { -1.0 });
        let values: Vec<f32> =
            (0..tokens).flat_map(|t| [3.0, sign(t), sign(t) + 0.5, if t == 0 { 1e6 } else { 2.0 }]).collect();
        let (centred, means) = centre_on_sampled(&values, tokens, 4);
        assert_eq!(means, [3.0, 0.0, 0.5, 2.0]);
        assert_eq!(centred[..4], [0.0, sign(0), sign(0), 1e6 - 2.0]);
        let less: Vec<f32> = values.iter().enumerate().map(|(i, x)| if i % 4 == 2 { x - 0.2 } else { *x }).collect();
        assert_eq!(centre_on_sampled(&less, tokens, 4).1[2], 0.0, "2.4 of them");
        assert_eq!(centre_on_sampled(&[5.0, -1.0], 1, 2).1, [5.0, -1.0]);
    }

    #[test]
    fn samples_are_spaced_evenly() {
        assert_eq!(sampled(5), [0, 1, 2, 3, 4]);
        assert_eq!(sampled(64), (0..64).collect::<Vec<_>>());
        assert_eq!(sampled(65), (0..64).map(|i| if i < 32 { i } else { i + 1 }).collect::<Vec<_>>());
        assert_eq!(sampled(4096), (0..64).map(|i| 64 * i + 32).collect::<Vec<_>>());
    }

    #[test]
    fn a_transposed_tile_pairs_channels_and_tokens() {
        // Two heads of 130 tokens by 16; a code says where it is from.
        let codes: Vec<u8> = (0..2 * 130 * 16).map(|i| (i % 251) as u8 + 1).collect();
        let made = transposed(&codes, 130, 16);
        let at = |head: usize, token: usize, channel: usize| codes[(head * 130 + token) * 16 + channel];
        assert_eq!(made.len(), 2 * 16 * 256);
        assert_eq!(
            made[..8],
            [at(0, 0, 0), at(0, 1, 0), at(0, 8, 0), at(0, 9, 0), at(0, 2, 0), at(0, 3, 0), at(0, 10, 0), at(0, 11, 0)]
        );
        assert_eq!((made[256], made[8 * 256], made[15 * 256 + 16]), (at(0, 0, 2), at(0, 0, 1), at(0, 16, 15)));
        assert_eq!(made[16 * 256 + 128..16 * 256 + 132], [at(1, 128, 0), at(1, 129, 0), 0, 0]);
        assert!(made[16 * 256 + 130..16 * 256 + 256].iter().all(|x| *x == 0));
        assert!(transposed(&[], 0, 16).is_empty());
    }
}
