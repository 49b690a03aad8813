//! 8-bit e4m3 (PTX `.e4m3`): largest value 448, no infinities, NaN 0x7F whatever the sign of the input.
//!
//! NaN and overflow follow NVIDIA's conversion functions; `tests/digests.rs` pins every code against them.

use crate::format::{Format, Overflow, Rounding};

/// Field widths and ends of the range.
pub const FORMAT: Format = Format::E4M3;
/// The canonical NaN, which every NaN input becomes.
pub const NAN: u8 = FORMAT.nan() as u8;
/// The code of the largest finite value.
pub const MAX_FINITE: u8 = FORMAT.max_finite() as u8;
/// The largest finite value.
pub const MAX: f32 = VALUES[MAX_FINITE as usize];

/// The value of every code; NaN codes hold the canonical f32 NaN 0x7FFFFFFF.
pub static TABLE: [f32; 256] = VALUES;

const VALUES: [f32; 256] = {
    let mut table = [0.0; 256];
    let mut code = 0;
    while code < 256 {
        let value = FORMAT.decode(code as u32);
        table[code] = if value.is_nan() { crate::CANONICAL_NAN } else { value as f32 };
        code += 1;
    }
    table
};

/// Nearest, ties to even, beyond the range the largest finite value (`cvt.rn.satfinite`).
pub fn from_f32(value: f32) -> u8 {
    from_f64(value as f64)
}

/// As [`from_f32`], in one rounding.
pub fn from_f64(value: f64) -> u8 {
    FORMAT.encode(value, Rounding::NearestEven, Overflow::Saturate) as u8
}

/// Nearest, ties to even, beyond the range what the format has there (`__NV_NOSAT`): NaN with the value's sign in e4m3, infinity
/// in e5m2.
pub fn from_f32_nosat(value: f32) -> u8 {
    FORMAT.encode(value as f64, Rounding::NearestEven, Overflow::Infinity) as u8
}

/// The value of a code, exactly.
pub fn to_f32(code: u8) -> f32 {
    TABLE[code as usize]
}

/// The value of a code, exactly.
pub fn to_f64(code: u8) -> f64 {
    TABLE[code as usize] as f64
}

/// From the bits of an f16, as `cvt.rn.satfinite.*.f16x2` does each half.
pub fn from_f16(bits: u16) -> u8 {
    from_f32(crate::f16::to_f32(bits))
}

/// To the bits of an f16, exactly, as `cvt.rn.f16x2.*` does each half. NaN becomes 0x7FFF.
pub fn to_f16(code: u8) -> u16 {
    crate::f16::from_f32(to_f32(code))
}

/// `cvt.rn.satfinite.*x2.f32 d, high, low`.
pub fn pack_f32(high: f32, low: f32) -> u16 {
    u16::from_le_bytes([from_f32(low), from_f32(high)])
}

/// `cvt.rn.satfinite.*x2.f16x2 d, a`.
pub fn pack_f16x2(halves: u32) -> u16 {
    u16::from_le_bytes([from_f16(halves as u16), from_f16((halves >> 16) as u16)])
}

/// `cvt.rn.f16x2.*x2 d, a`.
pub fn unpack_f16x2(codes: u16) -> u32 {
    let [low, high] = codes.to_le_bytes();
    (to_f16(high) as u32) << 16 | to_f16(low) as u32
}

/// The `.relu` of a code: negative becomes +0, NaN stays.
pub fn relu(code: u8) -> u8 {
    FORMAT.relu(code as u32) as u8
}
