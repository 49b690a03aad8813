//! Tensor-core arithmetic: D = A x B + C as `mma.sync`, `wmma` and `wgmma` compute it.

use crate::CANONICAL_NAN;
use crate::format::{Format, Overflow, Rounding};

/// Which tensor core is imitated. A property of the target GPU, not of the opcode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Numerics {
    /// The fused, truncating sum of the named GPU generation.
    Faithful(Generation),
    /// Plain f32 accumulation, one product after the other: quicker, and slightly too exact.
    Fast,
}

/// GPU generations that differ in tensor-core arithmetic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Generation {
    Ampere,
    Ada,
    Hopper,
}

/// Element type of A or B.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Element {
    F16,
    Bf16,
    Tf32,
    E4m3,
    E5m2,
}

impl Element {
    /// Its format.
    pub const fn format(self) -> Format {
        match self {
            Element::F16 => Format::F16,
            Element::Bf16 => Format::BF16,
            Element::Tf32 => Format::TF32,
            Element::E4m3 => Format::E4M3,
            Element::E5m2 => Format::E5M2,
        }
    }

    /// Whether it has 8 bits.
    pub const fn is_fp8(self) -> bool {
        matches!(self, Element::E4m3 | Element::E5m2)
    }
}

/// Type of C and D.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Accumulator {
    F32,
    F16,
}

/// The instruction that asks for the product: it matters for FP8 on Hopper.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Op {
    MmaSync,
    Wmma,
    Wgmma,
}

/// One matrix product.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Product {
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub a: Element,
    pub b: Element,
    pub accumulator: Accumulator,
    pub op: Op,
}

/// D = A x B + C.
///
/// `a` is row-major m x k, `b` column-major (`b[j * k + i]`), `c` and `d` row-major m x n; all hold exactly decoded values (for an
/// f16 accumulator `c` holds f16 values, and so will `d`). Slices shorter than that are a bug of the caller.
pub fn multiply_accumulate(numerics: Numerics, product: &Product, a: &[f32], b: &[f32], c: &[f32], d: &mut [f32]) {
    let &Product { m, n, k, .. } = product;
    for i in 0..m {
        for j in 0..n {
            d[i * n + j] = element(numerics, product, &a[i * k..][..k], &b[j * k..][..k], c[i * n + j]);
        }
    }
}

fn element(numerics: Numerics, product: &Product, a: &[f32], b: &[f32], c: f32) -> f32 {
    let generation = match numerics {
        Numerics::Fast => {
            let sum = a.iter().zip(b).fold(c, |sum, (a, b)| sum + a * b);
            return match product.accumulator {
                _ if sum.is_nan() => CANONICAL_NAN,
                Accumulator::F32 => sum,
                Accumulator::F16 => crate::f16::to_f32(crate::f16::from_f32(sum)),
            };
        }
        Numerics::Faithful(generation) => generation,
    };
    let fp8 = product.a.is_fp8() || product.b.is_fp8();
    let (bits, chunk, narrow) = match (generation, product.op) {
        (Generation::Hopper, Op::Wgmma) if fp8 => (13, usize::MAX, true),
        (Generation::Hopper, _) if fp8 => {
            let half = |first: usize, c: f32| {
                let pick = |x: &[f32]| -> Vec<f32> {
                    x.iter().enumerate().filter(|(i, _)| i % 4 / 2 == first).map(|(_, &x)| x).collect()
                };
                fused(product, 25, false, &pick(a), &pick(b), c)
            };
            let sum = half(1, half(0, 0.0)) + c;
            return match product.accumulator {
                _ if sum.is_nan() => CANONICAL_NAN,
                Accumulator::F32 => sum,
                Accumulator::F16 => crate::f16::to_f32(crate::f16::from_f32(sum)),
            };
        }
        (Generation::Hopper, _) => (25, usize::MAX, false),
        _ if fp8 => (13, 16, true),
        _ if product.a == Element::Tf32 => (24, 4, false),
        _ => (24, 8, false),
    };
    let chunk = chunk.min(product.k.max(1));
    a.chunks(chunk).zip(b.chunks(chunk)).fold(c, |c, (a, b)| fused(product, bits, narrow, a, b, c))
}

/// Significand (signed, as an integer) and exponent: value = significand x 2^(exponent - 23), exponent at least the format's.
fn split(value: f32, format: Format) -> (i64, i32) {
    let bits = value.to_bits();
    let field = ((bits >> 23) & 0xff) as i32;
    let fraction = (bits & 0x7f_ffff) as i64;
    let (mut significand, mut exponent) = if field == 0 { (fraction, -126) } else { (fraction | 1 << 23, field - 127) };
    if exponent < format.min_exponent() {
        significand >>= (format.min_exponent() - exponent).min(63);
        exponent = format.min_exponent();
    }
    (if bits >> 31 != 0 { -significand } else { significand }, exponent)
}

fn fused(product: &Product, bits: i32, narrow: bool, a: &[f32], b: &[f32], c: f32) -> f32 {
    let exact: f64 = a.iter().zip(b).map(|(&a, &b)| a as f64 * b as f64).sum::<f64>() + c as f64;
    if exact.is_nan() {
        return CANONICAL_NAN;
    }
    if exact.is_infinite() {
        return exact as f32;
    }
    let truncated = |x: f32, element: Element| if element == Element::Tf32 { crate::tf32::truncate(x) } else { x };
    let accumulator = match product.accumulator {
        Accumulator::F32 => Format::F32,
        Accumulator::F16 => Format::F16,
    };
    let (significand, exponent) = split(c, accumulator);
    let mut terms = vec![((significand as i128) << 23, exponent)];
    for (&a, &b) in a.iter().zip(b) {
        let (sa, ea) = split(truncated(a, product.a), product.a.format());
        let (sb, eb) = split(truncated(b, product.b), product.b.format());
        terms.push((sa as i128 * sb as i128, ea + eb));
    }
    // Zeros have no exponent.
    let largest = terms.iter().filter(|term| term.0 != 0).map(|term| term.1).max().unwrap_or(-126).max(-126);
    let sum: i128 = terms
        .iter()
        .map(|&(significand, exponent)| {
            let shift = 46 - bits + (largest - exponent).min(80);
            significand.signum() * (significand.abs() >> shift.min(127))
        })
        .sum();
    let value = sum as f64 * 2f64.powi(largest - bits);
    match product.accumulator {
        Accumulator::F16 => crate::f16::to_f32(crate::f16::from_f64(value)),
        Accumulator::F32 if narrow => {
            let format = Format { exponent_bits: 8, mantissa_bits: 13, infinities: true };
            format.decode(format.encode(value, Rounding::TowardZero, Overflow::Infinity)) as f32
        }
        Accumulator::F32 => f32::from_bits(Format::F32.encode(value, Rounding::TowardZero, Overflow::Infinity)),
    }
}
