//! Tensor-core sums, eight outputs of a row at a time, in steps that are exact or whose rounding is the one wanted; so every build,
//! vectorised or not, gives the bits of [`super::exact`].
//!
//! For each output: the largest exponent first; then each product in f32 (exact, 22 bits at most), times the power of two that makes
//! the last kept bit 1 (exact, or so small that nothing is kept), converted toward zero to i32 (that is the truncation), added. A product of
//! formats with 8 exponent bits may leave f32's range, so there (`WIDE`) significands are multiplied, and the power differs from term
//! to term. The loops over `[_; 8]` are written for the compiler to vectorise; the AVX2 build is chosen at run time.
//!
//! PERF: m16n8k32 e4m3 on one core of a Xeon with AVX2: see `examples/tensor_core_speed.rs`.

#![allow(clippy::needless_range_loop)]

use super::exact;
use super::{Accumulator, Output, Plan, Product};
use crate::CANONICAL_NAN;

const ROWS: usize = 16;
const LANES: usize = 8;
/// Stands for the exponent of a zero: below any other, also when another zero's is added.
const NONE: i32 = -10_000;

// Plain indices say best what runs side by side. Additions that cannot overflow are `wrapping_add`, so that builds with overflow
// checks vectorise too.
type Lane<T> = [T; LANES];

/// Faithful product; `plan.chunks_are_supported` holds.
pub(super) fn faithful(product: &Product, plan: &Plan, a: &[f32], b: &[f32], c: &[f32], d: &mut [f32]) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2.
        return unsafe { faithful_avx2(product, plan, a, b, c, d) };
    }
    faithful_any(product, plan, a, b, c, d);
}

/// Plain f32 accumulation in the order of k.
pub(super) fn fast(product: &Product, a: &[f32], b: &[f32], c: &[f32], d: &mut [f32]) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2.
        return unsafe { fast_avx2(product, a, b, c, d) };
    }
    fast_any(product, a, b, c, d);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn faithful_avx2(product: &Product, plan: &Plan, a: &[f32], b: &[f32], c: &[f32], d: &mut [f32]) {
    faithful_any(product, plan, a, b, c, d);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn fast_avx2(product: &Product, a: &[f32], b: &[f32], c: &[f32], d: &mut [f32]) {
    fast_any(product, a, b, c, d);
}

#[inline(always)]
fn faithful_any(product: &Product, plan: &Plan, a: &[f32], b: &[f32], c: &[f32], d: &mut [f32]) {
    match (plan.chunk, plan.wide) {
        (4, false) => blocks::<4, false>(product, plan, a, b, c, d),
        (8, false) => blocks::<8, false>(product, plan, a, b, c, d),
        (16, false) => blocks::<16, false>(product, plan, a, b, c, d),
        (32, false) => blocks::<32, false>(product, plan, a, b, c, d),
        (4, true) => blocks::<4, true>(product, plan, a, b, c, d),
        (8, true) => blocks::<8, true>(product, plan, a, b, c, d),
        (16, true) => blocks::<16, true>(product, plan, a, b, c, d),
        _ => exact::multiply_accumulate(product, plan, a, b, c, d),
    }
}

/// All blocks of 16 x 8 outputs, each chunk after chunk of `K` terms.
#[inline(always)]
fn blocks<const K: usize, const WIDE: bool>(
    product: &Product,
    plan: &Plan,
    a: &[f32],
    b: &[f32],
    c: &[f32],
    d: &mut [f32],
) {
    let &Product { m, n, k, .. } = product;
    if !all_finite(a) || !all_finite(b) || !all_finite(c) {
        return exact::multiply_accumulate(product, plan, a, b, c, d);
    }
    for top in (0..m).step_by(ROWS) {
        let rows = ROWS.min(m - top);
        for left in (0..n).step_by(LANES) {
            let columns = LANES.min(n - left);
            let mut sums = [[0f32; LANES]; ROWS];
            if !plan.unpacked {
                load(&mut sums, c, n, top, left, rows, columns);
            }
            for first in (0..k).step_by(K) {
                let left_operand = Rows::<K>::read::<WIDE>(plan, a, k, top, rows, first);
                let right = Columns::<K>::read::<WIDE>(plan, b, k, left, columns, first);
                for (row, sum) in sums.iter_mut().enumerate().take(rows) {
                    *sum =
                        fused::<K, WIDE>(plan, &left_operand.values[row], &left_operand.exponents[row], &right, *sum);
                }
            }
            for row in 0..rows {
                let at = (top + row) * n + left;
                for j in 0..columns {
                    d[at + j] =
                        if plan.unpacked { exact::add(plan.output, sums[row][j], c[at + j]) } else { sums[row][j] };
                }
            }
        }
    }
}

#[inline(always)]
fn load(sums: &mut [Lane<f32>; ROWS], c: &[f32], n: usize, top: usize, left: usize, rows: usize, columns: usize) {
    for row in 0..rows {
        sums[row][..columns].copy_from_slice(&c[(top + row) * n + left..][..columns]);
    }
}

#[inline(always)]
fn all_finite(values: &[f32]) -> bool {
    values.iter().fold(true, |all, value| all & (value.to_bits() & 0x7f80_0000 != 0x7f80_0000))
}

/// A chunk of a block's rows of A: values (`WIDE`: significands) and exponents.
struct Rows<const K: usize> {
    values: [[f32; K]; ROWS],
    exponents: [[i32; K]; ROWS],
}

impl<const K: usize> Rows<K> {
    #[inline(always)]
    fn read<const WIDE: bool>(plan: &Plan, a: &[f32], k: usize, top: usize, rows: usize, first: usize) -> Self {
        let mut this = Rows { values: [[0.0; K]; ROWS], exponents: [[0; K]; ROWS] };
        for row in 0..rows {
            let source = &a[(top + row) * k..][..k];
            let values = &mut this.values[row];
            if plan.unpacked {
                for (index, value) in values.iter_mut().enumerate() {
                    *value = source[plan.term(first + index, k)];
                }
            } else {
                values.copy_from_slice(&source[first..][..K]);
            }
            split::<K, WIDE>(values, &mut this.exponents[row], plan.truncate_tf32[0], plan.min_exponents[0]);
        }
        this
    }
}

/// A chunk of a block's columns of B, the columns side by side.
struct Columns<const K: usize> {
    values: [Lane<f32>; K],
    exponents: [Lane<i32>; K],
}

impl<const K: usize> Columns<K> {
    #[inline(always)]
    fn read<const WIDE: bool>(plan: &Plan, b: &[f32], k: usize, left: usize, columns: usize, first: usize) -> Self {
        let mut this = Columns { values: [[0.0; LANES]; K], exponents: [[0; LANES]; K] };
        for column in 0..columns {
            let source = &b[(left + column) * k..][..k];
            if plan.unpacked {
                for (index, values) in this.values.iter_mut().enumerate() {
                    values[column] = source[plan.term(first + index, k)];
                }
            } else {
                let source = &source[first..][..K];
                for (index, values) in this.values.iter_mut().enumerate() {
                    values[column] = source[index];
                }
            }
        }
        for (values, exponents) in this.values.iter_mut().zip(&mut this.exponents) {
            split::<LANES, WIDE>(values, exponents, plan.truncate_tf32[1], plan.min_exponents[1]);
        }
        this
    }
}

/// Exponents of finite values; `WIDE`: the values become their significands.
#[inline(always)]
fn split<const N: usize, const WIDE: bool>(values: &mut [f32; N], exponents: &mut [i32; N], tf32: bool, min: i32) {
    let mask = if tf32 { !0x1fff } else { !0 };
    for index in 0..N {
        let bits = values[index].to_bits() & mask;
        let field = (bits >> 23 & 0xff) as i32;
        let exponent = (field - 127).max(min);
        exponents[index] = if bits & 0x7fff_ffff == 0 { NONE } else { exponent };
        values[index] = if !WIDE {
            f32::from_bits(bits)
        } else if field == 0 {
            // 2^126: f32's subnormals, which have the smallest exponent of tf32 and bf16 too.
            f32::from_bits(bits) * f32::from_bits((126 + 127) << 23)
        } else {
            f32::from_bits(bits & 0x807f_ffff | 127 << 23)
        };
    }
}

/// One step of eight outputs.
#[inline(always)]
fn fused<const K: usize, const WIDE: bool>(
    plan: &Plan,
    a: &[f32; K],
    a_exponents: &[i32; K],
    b: &Columns<K>,
    c: Lane<f32>,
) -> Lane<f32> {
    let bits = plan.fraction_bits;
    let mut c_exponents = [0; LANES];
    let mut largest = [0; LANES];
    for j in 0..LANES {
        let word = c[j].to_bits() & 0x7fff_ffff;
        c_exponents[j] = ((word >> 23) as i32).max(1).wrapping_sub(127).max(plan.min_exponents[2]);
        // No term has an exponent under -300; what is zero altogether may have any.
        largest[j] = if word == 0 { -300 } else { c_exponents[j] };
    }
    for term in 0..K {
        for j in 0..LANES {
            largest[j] = largest[j].max(a_exponents[term].wrapping_add(b.exponents[term][j]));
        }
    }
    let mut scale = [0f32; LANES];
    for j in 0..LANES {
        // The clamp is met only where all products are zero.
        scale[j] = f32::from_bits(((bits - largest[j] + 127).min(254) as u32) << 23);
    }
    let mut products = [0i32; LANES];
    for term in 0..K {
        for j in 0..LANES {
            let power = if WIDE {
                let exponent = a_exponents[term].wrapping_add(b.exponents[term][j]);
                let field = exponent.wrapping_sub(largest[j]).wrapping_add(bits + 127);
                f32::from_bits((field.max(0) as u32) << 23)
            } else {
                scale[j]
            };
            let scaled = a[term] * b.values[term][j] * power;
            // SAFETY: finite operands, and the product's exponent is at most `largest`: under 4 x 2^25.
            products[j] = products[j].wrapping_add(unsafe { scaled.to_int_unchecked::<i32>() });
        }
    }
    let mut sums = [0f64; LANES];
    for j in 0..LANES {
        sums[j] = products[j] as f64;
    }
    let mut values = [0f64; LANES];
    for j in 0..LANES {
        let word = c[j].to_bits();
        let field = word >> 23 & 0xff;
        let significand = word & 0x7f_ffff | if field == 0 { 0 } else { 1 << 23 };
        // A subnormal of f16 is a normal f32: its exponent is too small by what the significand is to be shifted.
        let below = (c_exponents[j] - (field.max(1) as i32 - 127)) as u32;
        // In units of the last kept bit: 2^(largest - F). F is 13, 24 or 25.
        let units = if bits == 13 { significand >> 10 } else { significand << (bits - 23).max(0) as u32 };
        let shift = ((largest[j] - c_exponents[j]) as u32).saturating_add(below).min(31);
        let kept = (units >> shift) as i32;
        let kept = if word >> 31 != 0 { -kept } else { kept };
        values[j] = (sums[j] + kept as f64) * exact::power_of_two(largest[j] - bits);
    }
    convert(plan.output, values)
}

#[inline(always)]
fn convert(output: Output, values: Lane<f64>) -> Lane<f32> {
    let mut result = [0f32; LANES];
    match output {
        Output::F32 { mantissa_bits } => {
            let mask = u64::MAX << (52 - mantissa_bits);
            let mut subnormal = false;
            for j in 0..LANES {
                // Exact for normal results, and overflow gives infinity: no value rounds up to 2^128.
                result[j] = f64::from_bits(values[j].to_bits() & mask) as f32;
                subnormal |= values[j].abs() < exact::power_of_two(-126) && values[j] != 0.0;
            }
            if subnormal {
                for j in 0..LANES {
                    result[j] = exact::convert(output, values[j]);
                }
            }
        }
        Output::F16 => {
            for j in 0..LANES {
                result[j] = f16(values[j]);
            }
        }
    }
    result
}

/// To the nearest f16, ties to even, -0 made +0.
#[inline(always)]
fn f16(value: f64) -> f32 {
    let bits = value.to_bits();
    // Half of the last kept bit, less one if that bit is even; the carry goes where it must.
    let rounded = f64::from_bits((bits + ((1 << 41) - 1) + (bits >> 42 & 1)) & (u64::MAX << 42));
    // Subnormals are multiples of 2^-24, as is a sum with 1.5 x 2^28 in f64.
    let magic = 1.5 * 268_435_456.0;
    let small = (value + magic) - magic;
    let result = if value.abs() < 6.103515625e-5 { small } else { rounded };
    let result = if result.abs() >= 65536.0 { f64::INFINITY.copysign(result) } else { result };
    result as f32 + 0.0
}

#[inline(always)]
fn fast_any(product: &Product, a: &[f32], b: &[f32], c: &[f32], d: &mut [f32]) {
    let &Product { m, n, k, .. } = product;
    /// Terms whose columns of B are laid side by side at a time.
    const DEPTH: usize = 32;
    let mask = |element: super::Element| if element == super::Element::Tf32 { !0x1fff } else { !0 };
    let (a_mask, b_mask) = (mask(product.a), mask(product.b));
    for left in (0..n).step_by(LANES) {
        let columns = LANES.min(n - left);
        for top in (0..m).step_by(ROWS) {
            let rows = ROWS.min(m - top);
            let mut sums = [[0f32; LANES]; ROWS];
            load(&mut sums, c, n, top, left, rows, columns);
            for first in (0..k).step_by(DEPTH) {
                let depth = DEPTH.min(k - first);
                let mut right = [[0f32; LANES]; DEPTH];
                for column in 0..columns {
                    let source = &b[(left + column) * k + first..][..depth];
                    for (values, source) in right.iter_mut().zip(source) {
                        values[column] = f32::from_bits(source.to_bits() & b_mask);
                    }
                }
                for (row, sums) in sums.iter_mut().enumerate().take(rows) {
                    let source = &a[(top + row) * k + first..][..depth];
                    let mut sum = *sums;
                    for (values, source) in right.iter().zip(source) {
                        let value = f32::from_bits(source.to_bits() & a_mask);
                        for j in 0..LANES {
                            sum[j] += value * values[j];
                        }
                    }
                    *sums = sum;
                }
            }
            for row in 0..rows {
                for j in 0..columns {
                    let sum = sums[row][j];
                    d[(top + row) * n + left + j] = match product.accumulator {
                        _ if sum.is_nan() => CANONICAL_NAN,
                        Accumulator::F32 => sum,
                        Accumulator::F16 => crate::f16::to_f32(crate::f16::from_f32(sum)),
                    };
                }
            }
        }
    }
}
