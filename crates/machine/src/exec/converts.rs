//! Conversions and packing that are common enough for loops over whole rows; all others are in `lane_convert`.
//! Source: PTX ISA 9.0, "cvt", "mov".

use crate::code::{Instr, Op};
use crate::exec::rows::*;

versions! {
    /// Runs one instruction of this family on the lanes of `m`.
    fn run(r: R, i: &Instr, m: u32) = body
}

/// f16 bits to f32 bits, exactly.
#[inline(always)]
pub fn f16_to_f32(h: u32) -> u32 {
    let magnitude = h & 0x7FFF;
    let sign = (h & 0x8000) << 16;
    let scaled = (f32::from_bits(magnitude << 13) * f32::from_bits((127 + 112) << 23)).to_bits();
    let v = if magnitude >= 0x7C00 { 0x7F80_0000 } else { scaled };
    if magnitude > 0x7C00 { 0x7FFF_FFFF } else { v | sign }
}

/// f32 bits to f16 bits, nearest even, overflow to infinity.
#[inline(always)]
pub fn f32_to_f16(x: u32) -> u32 {
    let sign = x >> 16 & 0x8000;
    let magnitude = x & 0x7FFF_FFFF;
    // Normal results: rebias and round to nearest even on the 13 bits that go.
    let rounded = magnitude.wrapping_add(0xFFF).wrapping_add(magnitude >> 13 & 1).wrapping_sub(112 << 23) >> 13;
    // Subnormal results: adding 0.5 aligns the significand so that the unit's last place is f16's smallest step.
    let small = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0.5f32.to_bits());
    let v = if magnitude < 113 << 23 { small } else { rounded };
    let v = if magnitude >= 0x477F_F000 { 0x7C00 } else { v };
    if magnitude > 0x7F80_0000 { 0x7FFF } else { v | sign }
}

#[inline(always)]
fn f32_to_bf16(x: u32) -> u32 {
    let rounded = x.wrapping_add(0x7FFF).wrapping_add(x >> 16 & 1) >> 16;
    if x & 0x7FFF_FFFF > 0x7F80_0000 { 0x7FFF } else { rounded }
}

/// f32 bits to an e4m3 code, nearest even, saturating.
#[inline(always)]
fn f32_to_e4m3(x: u32) -> u32 {
    let sign = x >> 24 & 0x80;
    let magnitude = x & 0x7FFF_FFFF;
    let rounded = magnitude.wrapping_add(0x7_FFFF).wrapping_add(magnitude >> 20 & 1).wrapping_sub(120 << 23) >> 20;
    // Below 2^-6: steps of 2^-9; adding 2^14 makes that the last place of an f32.
    let small = (f32::from_bits(magnitude) + 16384.0).to_bits().wrapping_sub(16384.0f32.to_bits());
    let v = if magnitude < 121 << 23 { small } else { rounded };
    let v = if magnitude >= 0x43E0_0000 { 0x7E } else { v };
    if magnitude > 0x7F80_0000 { 0x7F } else { v | sign }
}

/// An e4m3 code to f16 bits, exactly.
#[inline(always)]
fn e4m3_to_f16(code: u32) -> u32 {
    let sign = (code & 0x80) << 8;
    let magnitude = code & 0x7F;
    // Normal codes: the same fields, 8 binades up. Subnormal ones, n x 2^-9, are normal in f16: n as an f32 gives the fields.
    let normal = (magnitude << 7) + (8 << 10);
    let small = ((magnitude as f32).to_bits() >> 13).wrapping_sub((127 - 15 + 9) << 10);
    let half = if magnitude >= 8 {
        normal
    } else if magnitude == 0 {
        0
    } else {
        small
    };
    if magnitude == 0x7F { 0x7FFF } else { half | sign }
}

#[inline(always)]
fn body(r: R, i: &Instr, m: u32) {
    match i.op {
        Op::CvtU64U32 => widen2(r, i, m, |a, _| u64::from(a)),
        Op::CvtS64S32 => widen2(r, i, m, |a, _| i64::from(a as i32) as u64),
        Op::CvtLow32 => {
            let mut t = [0u32; 32];
            let a = r.r64(i.a);
            for l in 0..32 {
                t[l] = a[l] as u32;
            }
            r.put32(i.d, &t, m);
        }
        Op::CvtLow16 => un32(r, i, m, |a| a & 0xFFFF),
        Op::CvtF32S32 => un32(r, i, m, |a| (a as i32 as f32).to_bits()),
        Op::CvtF32U32 => un32(r, i, m, |a| (a as f32).to_bits()),
        Op::CvtF32F16 => un32(r, i, m, f16_to_f32),
        Op::CvtF16F32 => un32(r, i, m, f32_to_f16),
        Op::CvtF16x2F32 => bin32(r, i, m, |a, b| f32_to_f16(a) << 16 | f32_to_f16(b)),
        Op::CvtBf16x2F32 => bin32(r, i, m, |a, b| f32_to_bf16(a) << 16 | f32_to_bf16(b)),
        Op::CvtF16x2E4m3x2 => un32(r, i, m, |a| e4m3_to_f16(a >> 8 & 0xFF) << 16 | e4m3_to_f16(a & 0xFF)),
        Op::CvtE4m3x2F32 => bin32(r, i, m, |a, b| f32_to_e4m3(a) << 8 | f32_to_e4m3(b)),
        Op::Pack2x16 => bin32(r, i, m, |a, b| a & 0xFFFF | b << 16),
        Op::Pack2x32 => widen2(r, i, m, |a, b| u64::from(b) << 32 | u64::from(a)),
        Op::Unpack2x16 => {
            let mut t = [[0u32; 32]; 2];
            let a = r.r32(i.a);
            for l in 0..32 {
                t[0][l] = a[l] & 0xFFFF;
                t[1][l] = a[l] >> 16;
            }
            r.put32(i.d, &t[0], m);
            r.put32(i.d2, &t[1], m);
        }
        Op::Unpack2x32 => {
            let mut t = [[0u32; 32]; 2];
            let a = r.r64(i.a);
            for l in 0..32 {
                t[0][l] = a[l] as u32;
                t[1][l] = (a[l] >> 32) as u32;
            }
            r.put32(i.d, &t[0], m);
            r.put32(i.d2, &t[1], m);
        }
        // Other operations belong to other families.
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpsmith_num as num;

    #[test]
    fn quick_conversions_agree_with_the_formats() {
        let mut x = 1u32;
        let mut values: Vec<u32> = (0..200_000)
            .map(|_| {
                x = x.wrapping_mul(1664525).wrapping_add(1013904223);
                x
            })
            .collect();
        // Values around every representable step of the narrow formats.
        for h in 0..=0xFFFFu32 {
            let v = num::f16::to_f32(h as u16).to_bits();
            values.extend([
                v,
                v.wrapping_add(1),
                v.wrapping_sub(1),
                v.wrapping_add(0x1000),
                v.wrapping_add(0x1001),
                v.wrapping_add(0x8_0000),
            ]);
        }
        for v in values {
            let f = f32::from_bits(v);
            assert_eq!(f32_to_f16(v), u32::from(num::f16::from_f32(f)), "f16 of {v:#x}");
            assert_eq!(f32_to_bf16(v), u32::from(num::bf16::from_f32(f)), "bf16 of {v:#x}");
            assert_eq!(f32_to_e4m3(v), u32::from(num::e4m3::from_f32(f)), "e4m3 of {v:#x}");
        }
        for h in 0..=0xFFFFu32 {
            assert_eq!(f16_to_f32(h), num::f16::to_f32(h as u16).to_bits(), "f32 of {h:#x}");
        }
        for c in 0..256u32 {
            assert_eq!(e4m3_to_f16(c), u32::from(num::e4m3::to_f16(c as u8)), "f16 of {c:#x}");
        }
    }
}
