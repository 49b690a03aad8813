//! tf32 (PTX `.tf32`): an f32 of which only the upper 19 bits count, kept in the f32's place.
//!
//! NVIDIA's headers convert it on the device only, so no digest covers it: rounding follows the PTX ISA's `cvt.rna.tf32.f32`.

use crate::format::{Format, Overflow, Rounding};

/// Field widths and ends of the range.
pub const FORMAT: Format = Format::TF32;

/// `cvt.rna.tf32.f32`: nearest, ties away from zero.
pub fn from_f32(value: f32) -> f32 {
    rounded(value, Rounding::NearestAway)
}

/// `cvt.rn.tf32.f32` (sm_90): nearest, ties to even.
pub fn from_f32_rn(value: f32) -> f32 {
    rounded(value, Rounding::NearestEven)
}

/// What a tensor core makes of an f32 operand: the lower 13 bits are not read. Infinity and NaN are left alone, so that a NaN
/// whose payload lies in those bits stays one.
pub fn truncate(value: f32) -> f32 {
    if value.is_finite() { f32::from_bits(value.to_bits() & !0x1fff) } else { value }
}

fn rounded(value: f32, rounding: Rounding) -> f32 {
    if value.is_nan() {
        return crate::CANONICAL_NAN;
    }
    f32::from_bits(FORMAT.encode(value as f64, rounding, Overflow::Infinity) << 13)
}
