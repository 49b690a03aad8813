//! Drawn values to codes and scales, in the layout of the workload; and the numbers that the codes mean, without their scales.
//!
//! The layouts' groups are formed here, what a group becomes is `warpsmith_num`'s. A largest magnitude of at most the task's
//! threshold gives the scale 1.0 exactly.

use rayon::prelude::*;
use warpsmith_num::quant::Code;
use warpsmith_spec::task::Quantiser;
use warpsmith_spec::words::{Format, ScaleLayout};

/// A quantised tensor (heads, seqlen, head_dim).
#[derive(Debug, Clone, PartialEq)]
pub struct Quantised {
    pub codes: Vec<u8>,
    /// What each code means, without its scale: exact in f32.
    pub values: Vec<f32>,
    /// One for the tensor, for each head, or for each block of each head.
    pub scales: Vec<f32>,
    /// Blocks in a head.
    pub per_head: usize,
}

impl Quantised {
    /// The scale of a token.
    pub fn scale(&self, layout: ScaleLayout, head: usize, token: usize, block: usize) -> f32 {
        match layout {
            ScaleLayout::None => 1.0,
            ScaleLayout::Tensor => self.scales[0],
            ScaleLayout::Head => self.scales[head],
            ScaleLayout::Block => self.scales[head * self.per_head + token / block],
        }
    }
}

/// Quantises a tensor whose last two sizes are tokens and head_dim.
pub fn quantise(
    format: Format,
    layout: ScaleLayout,
    shape: &[u64],
    values: &[f32],
    q: &Quantiser,
) -> Result<Quantised, String> {
    let [.., tokens, width] = *shape else { return Err("scales need tensors of at least two dimensions".into()) };
    let (tokens, width) = (tokens as usize, width as usize);
    let head = tokens * width;
    let code = match format {
        Format::E4m3 => Code::E4m3,
        Format::E5m2 => Code::E5m2,
        Format::U8 => Code::U8,
        other => return Err(format!("the format {other} has no scales")),
    };
    let block = (q.block_tokens as usize).max(1) * width;
    let groups: Vec<&[f32]> = match layout {
        ScaleLayout::Tensor => vec![values],
        ScaleLayout::Head => values.chunks(head).collect(),
        ScaleLayout::Block => values.chunks(head).flat_map(|h| h.chunks(block)).collect(),
        ScaleLayout::None => return Err(format!("the format {format} needs scales, and the workload has none")),
    };
    let made: Vec<(f32, Vec<u8>, Vec<f32>)> = groups
        .par_iter()
        .map(|group| {
            let largest = group.iter().fold(0.0f32, |m, x| m.max(x.abs()));
            let scale = if (largest as f64) <= q.zero_threshold { 1.0 } else { largest / code.max() };
            let codes: Vec<u8> = group.iter().map(|x| code.encode(x / scale)).collect();
            let values = codes.iter().map(|c| code.decode(*c)).collect();
            (scale, codes, values)
        })
        .collect();
    let mut out = Quantised {
        codes: Vec::with_capacity(values.len()),
        values: Vec::with_capacity(values.len()),
        scales: Vec::new(),
        per_head: tokens.div_ceil((q.block_tokens as usize).max(1)),
    };
    for (scale, codes, values) in made {
        out.scales.push(scale);
        out.codes.extend(codes);
        out.values.extend(values);
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    const Q: Quantiser = Quantiser { zero_threshold: 1e-6, block_tokens: 128 };

    #[test]
    fn each_group_uses_its_whole_range() {
        // Two heads of 200 tokens by 4, the second a hundred times larger.
        let values: Vec<f32> = (0..1600).map(|i| (i as f32 * 0.7).sin() * if i < 800 { 1.0 } else { 100.0 }).collect();
        for (layout, groups) in [(ScaleLayout::Tensor, 1), (ScaleLayout::Head, 2), (ScaleLayout::Block, 4)] {
            for (format, close) in [(Format::E4m3, 0.04), (Format::E5m2, 0.08), (Format::U8, 0.005)] {
                let q = quantise(format, layout, &[2, 200, 4], &values, &Q).expect("three formats, three layouts");
                assert_eq!(q.scales.len(), groups, "{format} per {layout}");
                for (i, x) in values.iter().enumerate() {
                    let y = q.values[i] * q.scale(layout, i / 800, i / 4 % 200, 128);
                    let size = if layout == ScaleLayout::Tensor || i >= 800 { 100.0 } else { 1.0 };
                    assert!((x - y).abs() <= close * size, "{format} per {layout}: {x} became {y}");
                }
            }
        }
    }

    #[test]
    fn the_threshold_gives_one_exactly_and_zeros_stay_zeros() {
        for format in [Format::E4m3, Format::E5m2, Format::U8] {
            for (largest, one) in [(0.0, true), (1e-6, true), (1.1e-6, false)] {
                let q =
                    quantise(format, ScaleLayout::Tensor, &[1, 2], &[largest, 0.0], &Q).expect("a scale per tensor");
                assert_eq!(q.scales[0] == 1.0, one, "{format}, {largest}");
                assert_eq!(q.values[1], 0.0);
            }
        }
        assert!(quantise(Format::F16, ScaleLayout::Head, &[1, 2], &[0.0; 2], &Q).is_err());
    }
}
