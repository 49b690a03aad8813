//! The definition of a tensor core's sum, one output at a time in 128-bit integers. Slow; it serves the rare operands that [`super::lanes`]
//! leaves out (infinities, NaN, odd shapes) and is what that is tested against.

use super::{Output, Plan, Product};
use crate::CANONICAL_NAN;
use crate::format::{Format, Overflow, Rounding};

pub(super) fn multiply_accumulate(product: &Product, plan: &Plan, a: &[f32], b: &[f32], c: &[f32], d: &mut [f32]) {
    let &Product { m, n, k, .. } = product;
    for i in 0..m {
        for j in 0..n {
            d[i * n + j] = output(plan, &a[i * k..][..k], &b[j * k..][..k], c[i * n + j]);
        }
    }
}

/// One output from a row of A and a column of B.
pub(super) fn output(plan: &Plan, a: &[f32], b: &[f32], c: f32) -> f32 {
    let k = a.len();
    // Without the multiple of four there is no such instruction; the pairs are then taken as they come.
    let plan = &Plan { unpacked: plan.unpacked && k.is_multiple_of(4), ..*plan };
    let mut sum = if plan.unpacked { 0.0 } else { c };
    for first in (0..k).step_by(plan.chunk) {
        let terms = (first..k.min(first + plan.chunk)).map(|index| plan.term(index, k));
        sum = fused(plan, terms.map(|term| (read(plan, 0, a[term]), read(plan, 1, b[term]))), sum);
    }
    if plan.unpacked { add(plan.output, sum, c) } else { sum }
}

/// An operand as the tensor core reads it.
fn read(plan: &Plan, operand: usize, value: f32) -> f32 {
    if plan.truncate_tf32[operand] { crate::tf32::truncate(value) } else { value }
}

/// The ordinary addition of C that follows Hopper's unpacked FP8 steps.
pub(super) fn add(output: Output, sum: f32, c: f32) -> f32 {
    let sum = sum + c;
    match output {
        _ if sum.is_nan() => CANONICAL_NAN,
        Output::F32 { .. } => sum,
        // Rounding the sum of two f16 to f32 before f16 is harmless: f32 has 2 x 11 + 2 bits.
        Output::F16 => crate::f16::to_f32(crate::f16::from_f32(sum)),
    }
}

/// Signed significand in units of 2^-23 and the exponent, at least the format's smallest. Zero has significand 0.
fn split(value: f32, min_exponent: i32) -> (i128, i32) {
    let bits = value.to_bits();
    let field = (bits >> 23 & 0xff) as i32;
    let fraction = (bits & 0x7f_ffff) as i128;
    let (mut significand, mut exponent) = if field == 0 { (fraction, -126) } else { (fraction | 1 << 23, field - 127) };
    if exponent < min_exponent {
        significand >>= (min_exponent - exponent).min(127);
        exponent = min_exponent;
    }
    (if bits >> 31 != 0 { -significand } else { significand }, exponent)
}

fn fused(plan: &Plan, operands: impl Iterator<Item = (f32, f32)> + Clone, c: f32) -> f32 {
    if let Some(special) = infinite_or_nan(operands.clone(), c) {
        return special;
    }
    let (significand, exponent) = split(c, plan.min_exponents[2]);
    // Significands in units of 2^-46, as the products have them.
    let terms = std::iter::once((significand << 23, exponent)).chain(operands.map(|(a, b)| {
        let (a, ea) = split(a, plan.min_exponents[0]);
        let (b, eb) = split(b, plan.min_exponents[1]);
        (a * b, ea + eb)
    }));
    let largest = terms.clone().filter(|term| term.0 != 0).map(|term| term.1).max().unwrap_or(0);
    let sum: i128 = terms
        .map(|(significand, exponent)| {
            let shift = 46 - plan.fraction_bits + largest - exponent;
            // A zero may have an exponent above all others.
            significand.signum() * (significand.abs() >> shift.clamp(0, 127))
        })
        .sum();
    // Both are exact: the sum has fewer than 53 bits, the power is far inside the range of f64.
    convert(plan.output, sum as f64 * power_of_two(largest - plan.fraction_bits))
}

/// Infinity and NaN among the terms decide the sum as they do in IEEE 754. A product of finite operands is not one of them, however large.
fn infinite_or_nan(operands: impl Iterator<Item = (f32, f32)>, c: f32) -> Option<f32> {
    let products = operands.map(|(a, b)| a as f64 * b as f64);
    let sum: f64 = products.chain([c as f64]).filter(|term| !term.is_finite()).sum();
    match sum {
        _ if sum.is_nan() => Some(CANONICAL_NAN),
        _ if sum.is_infinite() => Some(sum as f32),
        _ => None,
    }
}

/// 2^exponent for a normal f64.
pub(super) fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((exponent + 1023) as u64) << 52)
}

/// The exact finite sum as the accumulator's type holds it.
pub(super) fn convert(output: Output, value: f64) -> f32 {
    let result = match output {
        Output::F16 => crate::f16::to_f32(crate::f16::from_f64(value)),
        Output::F32 { .. } if value.abs() >= power_of_two(128) => f32::INFINITY.copysign(value as f32),
        Output::F32 { mantissa_bits } => {
            let format = Format { exponent_bits: 8, mantissa_bits, infinities: true };
            format.decode(format.encode(value, Rounding::TowardZero, Overflow::Infinity)) as f32
        }
    };
    // What is truncated or rounded to zero becomes +0.
    result + 0.0
}
