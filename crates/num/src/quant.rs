//! Quantisers: f32 tensors (B, H, S, D), row-major, to 8-bit codes and f32 scales; x is about code x scale.
//!
//! A group of values (the tensor, a head, or a block of 128 tokens of a head) has one scale: its largest magnitude over the
//! code's largest value, or exactly 1.0 where that magnitude is at most 1e-6, so that zeros decode to zeros and noise does not
//! become signal. A code is the nearest of x / scale, the division rounded to f32, ties to even.
//!
//! NaN and infinities are refused: through the scale one of them would spoil its whole group. Finite values of any size are
//! taken; where the scale is too small for f32 (a subnormal) precision is lost, nothing else.

use rayon::prelude::*;

use crate::{e4m3, e5m2};

/// At most this largest magnitude gives the scale 1.0.
pub const ZERO_THRESHOLD: f32 = 1e-6;

/// Tokens of a block in [`Layout::Block`]; the last block of a head may be shorter.
pub const BLOCK_TOKENS: usize = 128;

/// What the codes mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Code {
    E4m3,
    E5m2,
    /// The older simulated 8 bits: unsigned, midpoint 128, value = code - 128 with the largest magnitude at 127.
    U8,
}

impl Code {
    /// The value that a group's largest magnitude is scaled to.
    pub const fn max(self) -> f32 {
        match self {
            Code::E4m3 => e4m3::MAX,
            Code::E5m2 => e5m2::MAX,
            Code::U8 => 127.0,
        }
    }

    /// The nearest code, beyond the range the last one. NaN becomes NaN in e4m3 and e5m2, and 128 (zero) in u8, which has none.
    pub fn encode(self, value: f32) -> u8 {
        match self {
            Code::E4m3 => e4m3::from_f32(value),
            Code::E5m2 => e5m2::from_f32(value),
            Code::U8 if value.is_nan() => 128,
            Code::U8 => (value.round_ties_even() + 128.0).clamp(0.0, 255.0) as u8,
        }
    }

    /// The value of a code without its scale, exactly.
    pub fn decode(self, code: u8) -> f32 {
        match self {
            Code::E4m3 => e4m3::to_f32(code),
            Code::E5m2 => e5m2::to_f32(code),
            Code::U8 => code as f32 - 128.0,
        }
    }
}

/// Which values share a scale. The scales' order is that of their groups in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Layout {
    /// One scale.
    Tensor,
    /// (B, H)
    Head,
    /// (B, H, ceil(S / 128))
    Block,
}

/// Sizes of a tensor (B, H, S, D).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Sizes {
    pub batch: usize,
    pub heads: usize,
    pub tokens: usize,
    pub dim: usize,
}

impl Sizes {
    /// Elements, if that fits.
    pub fn len(&self) -> Option<usize> {
        self.batch.checked_mul(self.heads)?.checked_mul(self.tokens)?.checked_mul(self.dim)
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }

    /// Scales of a layout. An empty tensor has none.
    pub fn scales(&self, layout: Layout) -> usize {
        match layout {
            _ if self.is_empty() => 0,
            Layout::Tensor => 1,
            Layout::Head => self.batch * self.heads,
            Layout::Block => self.batch * self.heads * self.tokens.div_ceil(BLOCK_TOKENS),
        }
    }

    /// Consecutive elements that make a head, and the longest group of a layout.
    fn head_and_group(&self, layout: Layout) -> (usize, usize) {
        let head = self.tokens * self.dim;
        match layout {
            Layout::Tensor => (self.batch * self.heads * head, self.batch * self.heads * head),
            Layout::Head => (head, head),
            Layout::Block => (head, BLOCK_TOKENS * self.dim),
        }
    }
}

/// Codes and scales of a tensor.
#[derive(Debug, Clone, PartialEq)]
pub struct Quantized {
    pub code: Code,
    pub layout: Layout,
    pub sizes: Sizes,
    /// (B, H, S, D)
    pub codes: Vec<u8>,
    /// As [`Layout`] says.
    pub scales: Vec<f32>,
}

/// Why values could not be quantised, or codes not decoded.
#[derive(Debug, Clone, PartialEq)]
pub enum QuantError {
    /// The slice has another length than the sizes say.
    Length { what: &'static str, want: Option<usize>, got: usize },
    /// NaN or an infinity.
    NotFinite { index: usize, value: f32 },
}

impl std::fmt::Display for QuantError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            QuantError::Length { what, want: Some(want), got } => write!(f, "{want} {what} expected, {got} given"),
            QuantError::Length { what, want: None, got } => {
                write!(f, "the sizes are beyond what memory can hold, {got} {what} given")
            }
            QuantError::NotFinite { index, value } => {
                write!(f, "element {index} is {value}: only finite values have a code and a scale")
            }
        }
    }
}

impl std::error::Error for QuantError {}

/// Quantises a tensor. Groups are done in parallel; the result does not depend on it.
pub fn quantize(code: Code, layout: Layout, sizes: Sizes, values: &[f32]) -> Result<Quantized, QuantError> {
    expect("values", sizes.len(), values.len())?;
    if let Some(index) = values.iter().position(|value| !value.is_finite()) {
        return Err(QuantError::NotFinite { index, value: values[index] });
    }
    let mut codes = vec![0; values.len()];
    let mut scales = vec![1.0; sizes.scales(layout)];
    if !values.is_empty() {
        let (head, group) = sizes.head_and_group(layout);
        let places = codes.chunks_mut(head).flat_map(|head| head.chunks_mut(group));
        let groups = values.chunks(head).flat_map(|head| head.chunks(group));
        let work: Vec<_> = groups.zip(places).zip(&mut scales).collect();
        work.into_par_iter().for_each(|((values, codes), scale)| *scale = quantize_group(code, values, codes));
    }
    Ok(Quantized { code, layout, sizes, codes, scales })
}

/// Quantises one group of finite values into as many codes and returns its scale.
pub fn quantize_group(code: Code, values: &[f32], codes: &mut [u8]) -> f32 {
    let largest = values.iter().fold(0.0f32, |largest, value| largest.max(value.abs()));
    let scale = scale_of(code, largest);
    for (code_out, value) in codes.iter_mut().zip(values) {
        *code_out = code.encode(value / scale);
    }
    scale
}

/// The scale of a group from its largest magnitude.
pub fn scale_of(code: Code, largest: f32) -> f32 {
    if largest <= ZERO_THRESHOLD { 1.0 } else { largest / code.max() }
}

/// The values that codes and scales mean: code x scale, rounded to f32.
pub fn dequantize(quantized: &Quantized) -> Result<Vec<f32>, QuantError> {
    let &Quantized { code, layout, sizes, ref codes, ref scales } = quantized;
    expect("codes", sizes.len(), codes.len())?;
    expect("scales", Some(sizes.scales(layout)), scales.len())?;
    let mut values = Vec::with_capacity(codes.len());
    if !codes.is_empty() {
        let (head, group) = sizes.head_and_group(layout);
        let groups = codes.chunks(head).flat_map(|head| head.chunks(group));
        for (codes, scale) in groups.zip(scales) {
            values.extend(codes.iter().map(|value| code.decode(*value) * scale));
        }
    }
    Ok(values)
}

fn expect(what: &'static str, want: Option<usize>, got: usize) -> Result<(), QuantError> {
    if want == Some(got) { Ok(()) } else { Err(QuantError::Length { what, want, got }) }
}
