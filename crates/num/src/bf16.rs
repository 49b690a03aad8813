//! bfloat16 (PTX `.bf16`): the upper half of an f32, as bits in a `u16`.
//!
//! NaN and overflow follow NVIDIA's conversion functions; `tests/digests.rs` pins every code against them.

use crate::format::{Format, Overflow, Rounding};

/// Field widths and ends of the range.
pub const FORMAT: Format = Format::BF16;
/// The canonical NaN, which every NaN input becomes.
pub const NAN: u16 = FORMAT.nan() as u16;
/// The code of the largest finite value.
pub const MAX_FINITE: u16 = FORMAT.max_finite() as u16;

/// Nearest, ties to even, beyond the range infinity (`cvt.rn`).
pub fn from_f32(value: f32) -> u16 {
    from_f64(value as f64)
}

/// As [`from_f32`], in one rounding.
pub fn from_f64(value: f64) -> u16 {
    FORMAT.encode(value, Rounding::NearestEven, Overflow::Infinity) as u16
}

/// With any of PTX's roundings (`cvt.rn`, `.rz`, `.rp`, `.rm`).
pub fn from_f64_rounded(value: f64, rounding: Rounding) -> u16 {
    FORMAT.encode(value, rounding, Overflow::Infinity) as u16
}

/// Toward zero (`cvt.rz`): beyond the range the largest finite value, infinity stays.
pub fn from_f32_rz(value: f32) -> u16 {
    from_f64_rounded(value as f64, Rounding::TowardZero)
}

/// Nearest, ties to even, beyond the range the largest finite value (`cvt.rn.satfinite`), infinities too.
pub fn from_f32_sat(value: f32) -> u16 {
    FORMAT.encode(value as f64, Rounding::NearestEven, Overflow::Saturate) as u16
}

/// Nearest, ties to even, beyond the range infinity: [`from_f32`] by the name that the 8-bit formats have for it.
pub fn from_f32_nosat(value: f32) -> u16 {
    from_f32(value)
}

/// The value of a code, exactly.
pub fn to_f64(bits: u16) -> f64 {
    to_f32(bits) as f64
}

/// The `.relu` of a code: negative becomes +0, NaN the canonical one.
pub fn relu(bits: u16) -> u16 {
    FORMAT.relu(bits as u32) as u16
}

/// The value of a code, exactly; the payload of a NaN is kept.
pub fn to_f32(bits: u16) -> f32 {
    f32::from_bits((bits as u32) << 16)
}
