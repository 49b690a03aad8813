//! f32 arithmetic with rounding to nearest, `.ftz` and `.sat`; other types and roundings are in `lane_float`.
//! NaN results are the canonical 0x7FFFFFFF. Source: PTX ISA 9.0, "Floating Point Instructions".

use crate::code::{Instr, Op, flag};
use crate::exec::lane_float::{self, FloatOp};
use crate::exec::rows::*;

versions! {
    /// Runs one instruction of this family on the lanes of `m`.
    fn run(r: R, i: &Instr, m: u32) = body
}

#[inline(always)]
fn flush(bits: u32) -> u32 {
    if bits & 0x7F80_0000 == 0 { bits & 0x8000_0000 } else { bits }
}

#[inline(always)]
fn canonical(bits: u32) -> u32 {
    if bits & 0x7FFF_FFFF > 0x7F80_0000 { 0x7FFF_FFFF } else { bits }
}

#[inline(always)]
fn saturate(bits: u32) -> u32 {
    let v = f32::from_bits(bits);
    // NaN compares false and becomes zero.
    if v >= 1.0 {
        0x3F80_0000
    } else if v > 0.0 {
        bits
    } else {
        0
    }
}

/// A row with subnormal numbers flushed to zero.
fn flushed(a: &[u32; 32]) -> [u32; 32] {
    a.map(flush)
}

/// `.sat` and `.ftz` of a result.
#[inline(never)]
fn finish(t: &mut [u32; 32], flags: u8) {
    if flags & flag::FTZ != 0 {
        *t = flushed(t);
    }
    if flags & flag::SAT != 0 {
        *t = t.map(saturate);
    }
}

/// Products that the host has rounded up to the smallest normal number, where the device flushes them (`lane_float::is_tiny`).
#[inline(never)]
fn at_the_smallest(t: &mut [u32; 32], i: &Instr, (a, b, c): (&[u32; 32], &[u32; 32], &[u32; 32])) {
    if t.iter().fold(false, |any, v| any | (v & 0x7FFF_FFFF == 0x0080_0000)) {
        let op = if i.op == Op::MulF32 { FloatOp::Mul } else { FloatOp::Fma };
        let imm = lane_float::imm(op, lane_float::F32, lane_float::RN, lane_float::FTZ);
        for (l, v) in t.iter_mut().enumerate().filter(|(_, v)| **v & 0x7FFF_FFFF == 0x0080_0000) {
            *v = lane_float::scalar(a[l].into(), b[l].into(), c[l].into(), imm) as u32;
        }
    }
}

/// f32 arithmetic with `.ftz` and `.sat`. PERF: one loop for all flags; the rare ones take a detour before and after it.
#[inline(always)]
fn float3(r: R, i: &Instr, m: u32, f: impl Fn(f32, f32, f32) -> f32) {
    let mut t = [0u32; 32];
    let (x, y, z);
    let (mut a, mut b, mut c) = (r.r32(i.a), r.r32(i.b), r.r32(i.c));
    if i.flags & flag::FTZ != 0 {
        (x, y, z) = (flushed(a), flushed(b), flushed(c));
        (a, b, c) = (&x, &y, &z);
    }
    for l in 0..32 {
        t[l] = canonical(f(f32::from_bits(a[l]), f32::from_bits(b[l]), f32::from_bits(c[l])).to_bits());
    }
    if i.flags & flag::FTZ != 0 && matches!(i.op, Op::MulF32 | Op::FmaF32) {
        at_the_smallest(&mut t, i, (a, b, c));
    }
    if i.flags != 0 {
        finish(&mut t, i.flags);
    }
    r.put32(i.d, &t, m);
}

#[inline(always)]
fn float2(r: R, i: &Instr, m: u32, f: impl Fn(f32, f32) -> f32) {
    float3(r, i, m, |a, b, _| f(a, b));
}

#[inline(always)]
fn float1(r: R, i: &Instr, m: u32, f: impl Fn(f32) -> f32) {
    let ftz = if i.flags & flag::FTZ != 0 { u32::MAX } else { 0 };
    // All ones where a subnormal number counts as zero.
    let tiny = |v: u32| if v & 0x7F80_0000 == 0 { ftz & 0x7FFF_FFFF } else { 0 };
    let mut t = [0u32; 32];
    let a = r.r32(i.a);
    for l in 0..32 {
        let v = canonical(f(f32::from_bits(a[l] & !tiny(a[l]))).to_bits());
        t[l] = v & !tiny(v);
    }
    if i.flags & flag::SAT != 0 {
        finish(&mut t, flag::SAT);
    }
    r.put32(i.d, &t, m);
}

/// 2^126.
const DIV_APPROX_MOST: f32 = 8.507_059e37;

#[inline(always)]
fn min_f32(a: f32, b: f32) -> f32 {
    let lower = a < b || (a == b && a.is_sign_negative());
    if b.is_nan() || lower { a } else { b }
}

#[inline(always)]
fn max_f32(a: f32, b: f32) -> f32 {
    let higher = a > b || (a == b && a.is_sign_positive());
    if b.is_nan() || higher { a } else { b }
}

/// 2^x to within half an ulp of f32 but for rare ties: degree-10 polynomial in f64 on [-1/2, 1/2] (error below 1e-13).
#[inline(always)]
pub fn exp2(x: f32) -> f32 {
    const MAGIC: f64 = 6755399441055744.0;
    let v = f64::from(x);
    let v = if v > 200.0 { 200.0 } else { v };
    let v = if v < -200.0 { -200.0 } else { v };
    let shifted = v + MAGIC;
    let f = v - (shifted - MAGIC);
    // ln(2)^n / n!, up to the tenth power.
    const C: [f64; 11] = {
        let mut c = [1.0; 11];
        let mut n = 1;
        while n < 11 {
            c[n] = c[n - 1] * std::f64::consts::LN_2 / n as f64;
            n += 1;
        }
        c
    };
    let mut p = C[10];
    let mut n = 10;
    while n > 0 {
        n -= 1;
        p = p * f + C[n];
    }
    // The integer part sits in the low bits of `shifted`.
    let bits = p.to_bits().wrapping_add(shifted.to_bits() << 52);
    if x.is_nan() { x } else { f64::from_bits(bits) as f32 }
}

#[inline(always)]
fn body(r: R, i: &Instr, m: u32) {
    match i.op {
        Op::AddF32 => float2(r, i, m, |a, b| a + b),
        Op::SubF32 => float2(r, i, m, |a, b| a - b),
        Op::MulF32 => float2(r, i, m, |a, b| a * b),
        Op::FmaF32 => float3(r, i, m, f32::mul_add),
        // PTX ISA 9.0, "div": a reciprocal that would be subnormal is zero in `div.approx`.
        Op::DivF32 if i.sub & 2 != 0 => {
            float2(r, i, m, |a, b| if b.abs() > DIV_APPROX_MOST { a * 0f32.copysign(b) } else { a / b })
        }
        Op::DivF32 => float2(r, i, m, |a, b| a / b),
        Op::MinF32 => float2(r, i, m, min_f32),
        Op::MaxF32 => float2(r, i, m, max_f32),
        // An addition of -0 on the device (SASS of ptxas 13.0, sm_90): NaN becomes the canonical one.
        Op::NegF32 => float1(r, i, m, |a| -a),
        Op::AbsF32 => float1(r, i, m, f32::abs),
        Op::Ex2F32 => float1(r, i, m, exp2),
        Op::RcpF32 => float1(r, i, m, |a| 1.0 / a),
        Op::SqrtF32 => float1(r, i, m, f32::sqrt),
        Op::RsqrtF32 => float1(r, i, m, |a| (1.0 / f64::from(a).sqrt()) as f32),
        Op::SetpF32 if i.flags & flag::FTZ != 0 => setp32(r, i, m, |a| f32::from_bits(flush(a))),
        Op::SetpF32 => setp32(r, i, m, f32::from_bits),
        // Other operations belong to other families.
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp2_is_right_to_the_last_bit_or_next_to_it() {
        let mut x = 7u32;
        for _ in 0..100_000 {
            x = x.wrapping_mul(1664525).wrapping_add(1013904223);
            let v = (x as i32 as f32) / 1.3e7;
            let expected = libm::exp2(f64::from(v)) as f32;
            let got = exp2(v);
            assert!(got.to_bits().abs_diff(expected.to_bits()) <= 1, "{v}: {got} {expected}");
        }
        for (v, expected) in [
            (f32::INFINITY, f32::INFINITY),
            (f32::NEG_INFINITY, 0.0),
            (0.0, 1.0),
            (-149.0, f32::from_bits(1)),
            (10.0, 1024.0),
        ] {
            assert_eq!(exp2(v), expected);
        }
        assert!(exp2(f32::NAN).is_nan());
    }
}
