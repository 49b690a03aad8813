//! Tensor-core sums, eight outputs of a row at a time, in steps that are exact or whose rounding is the one wanted; so every build,
//! vectorised or not, gives the bits of [`super::exact`].
//!
//! For each output: the largest exponent first; then each product in f32 (exact, 22 bits at most), times the power of two that makes
//! the last kept bit 1 (exact, or so small that nothing is kept), converted toward zero to i32 (that is the truncation), added. A product of
//! formats with 8 exponent bits may leave f32's range, so there (`WIDE`) significands are multiplied, and the power differs from term
//! to term. The AVX2 build is chosen at run time.
//!
//! PERF: `examples/tensor_core_speed.rs` measures it.

use super::simd::{Portable, Simd};
use super::{Accumulator, Element, Output, Plan, Product, exact};

const ROWS: usize = 16;
pub(super) const LANES: usize = 8;
/// Stands for the exponent of a zero: below any other, also when another's is added.
const NONE: i32 = -10_000;
/// Below the exponent of any sum that is not zero.
const FLOOR: i32 = -300;

/// Faithful product; `plan.chunks_are_supported` holds.
pub(super) fn faithful(product: &Product, plan: &Plan, a: &[f32], b: &[f32], c: &[f32], d: &mut [f32]) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2.
        return unsafe { faithful_avx2(product, plan, a, b, c, d) };
    }
    faithful_with::<Portable>(product, plan, a, b, c, d);
}

/// Plain f32 accumulation in the order of k.
pub(super) fn fast(product: &Product, a: &[f32], b: &[f32], c: &[f32], d: &mut [f32]) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2.
        return unsafe { fast_avx2(product, a, b, c, d) };
    }
    fast_with::<Portable>(product, a, b, c, d);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn faithful_avx2(product: &Product, plan: &Plan, a: &[f32], b: &[f32], c: &[f32], d: &mut [f32]) {
    faithful_with::<super::simd::Avx2>(product, plan, a, b, c, d);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn fast_avx2(product: &Product, a: &[f32], b: &[f32], c: &[f32], d: &mut [f32]) {
    fast_with::<super::simd::Avx2>(product, a, b, c, d);
}

#[inline(always)]
fn all_finite(values: &[f32]) -> bool {
    values.iter().map(|value| value.to_bits() & 0x7fff_ffff).fold(0, u32::max) < 0x7f80_0000
}

#[inline(always)]
fn faithful_with<S: Simd>(product: &Product, plan: &Plan, a: &[f32], b: &[f32], c: &[f32], d: &mut [f32]) {
    if !all_finite(a) || !all_finite(b) || !all_finite(c) {
        return exact::multiply_accumulate(product, plan, a, b, c, d);
    }
    match (plan.chunk, plan.wide) {
        (4, false) => blocks::<S, 4, false>(product, plan, a, b, c, d),
        (8, false) => blocks::<S, 8, false>(product, plan, a, b, c, d),
        (16, false) => blocks::<S, 16, false>(product, plan, a, b, c, d),
        (32, false) => blocks::<S, 32, false>(product, plan, a, b, c, d),
        (4, true) => blocks::<S, 4, true>(product, plan, a, b, c, d),
        (8, true) => blocks::<S, 8, true>(product, plan, a, b, c, d),
        (16, true) => blocks::<S, 16, true>(product, plan, a, b, c, d),
        _ => exact::multiply_accumulate(product, plan, a, b, c, d),
    }
}

/// All blocks of 16 x 8 outputs, chunk after chunk of `K` terms; between chunks the sums lie in `d`.
#[inline(always)]
fn blocks<S: Simd, const K: usize, const WIDE: bool>(
    product: &Product,
    plan: &Plan,
    a: &[f32],
    b: &[f32],
    c: &[f32],
    d: &mut [f32],
) {
    let &Product { m, n, k, .. } = product;
    let mut worst = S::splat_i(0);
    for top in (0..m).step_by(ROWS) {
        let rows = ROWS.min(m - top);
        for first in (0..k).step_by(K) {
            let left_operand = Rows::<K>::read::<S, WIDE>(plan, &a[top * k..][..rows * k], k, first);
            for left in (0..n).step_by(LANES) {
                let columns = LANES.min(n - left);
                let right = Columns::<K>::read::<S, WIDE>(plan, &b[left * k..][..columns * k], k, first);
                for row in 0..rows {
                    let place = (top + row) * n + left..(top + row) * n + left + columns;
                    let mut sum = [0f32; LANES];
                    if first > 0 {
                        copy(&mut sum, &d[place.clone()]);
                    } else if !plan.unpacked {
                        copy(&mut sum, &c[place.clone()]);
                    }
                    let (values, exponents) = (&left_operand.values[row], &left_operand.exponents[row]);
                    sum = fused::<S, K, WIDE>(plan, values, exponents, &right, sum);
                    worst = S::max_i(worst, S::and_i(S::bits(S::load(&sum)), S::splat_i(0x7fff_ffff)));
                    let d = &mut d[place];
                    match <&mut [f32; LANES]>::try_from(&mut *d) {
                        Ok(d) => *d = sum,
                        Err(_) => d.copy_from_slice(&sum[..columns]),
                    }
                }
            }
        }
    }
    let mut magnitudes = [0; LANES];
    S::store_i(worst, &mut magnitudes);
    if k > K && magnitudes.iter().any(|magnitude| *magnitude >= 0x7f80_0000) {
        // A sum that overflowed before its last chunk: rare, and not for here.
        return exact::multiply_accumulate(product, plan, a, b, c, d);
    }
    if plan.unpacked {
        for (d, c) in d.iter_mut().zip(c) {
            *d = exact::add(plan.output, *d, *c);
        }
    }
}

/// Copies at most eight values; eight, the usual case, without a call.
#[inline(always)]
fn copy(to: &mut [f32; LANES], from: &[f32]) {
    match <&[f32; LANES]>::try_from(from) {
        Ok(from) => *to = *from,
        Err(_) => to[..from.len()].copy_from_slice(from),
    }
}

/// `K` terms of a row or column, in the order in which the chunks take them.
#[inline(always)]
fn terms<const K: usize>(plan: &Plan, source: &[f32], first: usize) -> [f32; K] {
    let mut values = [0.0; K];
    if plan.unpacked {
        // As `Plan::term` says, pair by pair.
        let (offset, start) = if first == 0 { (0, 0) } else { (2, first - source.len() / 2) };
        for (pair, four) in values.chunks_exact_mut(2).zip(source[start * 2..].chunks_exact(4)) {
            pair.copy_from_slice(&four[offset..offset + 2]);
        }
    } else {
        values.copy_from_slice(&source[first..][..K]);
    }
    values
}

/// A chunk of a block's rows of A: values (`WIDE`: significands) and exponents.
struct Rows<const K: usize> {
    values: [[f32; K]; ROWS],
    exponents: [[i32; K]; ROWS],
}

impl<const K: usize> Rows<K> {
    #[inline(always)]
    fn read<S: Simd, const WIDE: bool>(plan: &Plan, a: &[f32], k: usize, first: usize) -> Self {
        let mut this = Rows { values: [[0.0; K]; ROWS], exponents: [[0; K]; ROWS] };
        for (values, source) in this.values.iter_mut().zip(a.chunks_exact(k)) {
            *values = terms(plan, source, first);
        }
        let values = this.values.as_flattened_mut().as_chunks_mut::<LANES>().0;
        let exponents = this.exponents.as_flattened_mut().as_chunks_mut::<LANES>().0;
        for (values, exponents) in values.iter_mut().zip(exponents) {
            split::<S, WIDE>(values, exponents, plan.truncate_tf32[0], plan.min_exponents[0]);
        }
        this
    }
}

/// A chunk of a block's columns of B, the columns side by side.
struct Columns<const K: usize> {
    values: [[f32; LANES]; K],
    exponents: [[i32; LANES]; K],
}

impl<const K: usize> Columns<K> {
    #[inline(always)]
    fn read<S: Simd, const WIDE: bool>(plan: &Plan, b: &[f32], k: usize, first: usize) -> Self {
        let mut columns = [[0f32; K]; LANES];
        for (values, source) in columns.iter_mut().zip(b.chunks_exact(k)) {
            *values = terms(plan, source, first);
        }
        let mut this = Columns { values: side_by_side::<S, K>(&columns), exponents: [[0; LANES]; K] };
        for (values, exponents) in this.values.iter_mut().zip(&mut this.exponents) {
            split::<S, WIDE>(values, exponents, plan.truncate_tf32[1], plan.min_exponents[1]);
        }
        this
    }
}

/// The transpose of eight columns.
#[inline(always)]
pub(super) fn side_by_side<S: Simd, const K: usize>(columns: &[[f32; K]; LANES]) -> [[f32; LANES]; K] {
    let mut values = [[0.0; LANES]; K];
    let (blocks, rest) = values.as_chunks_mut::<LANES>();
    for (index, block) in blocks.iter_mut().enumerate() {
        let rows: [S::F; LANES] = std::array::from_fn(|column| {
            let (eights, _) = columns[column].as_chunks::<LANES>();
            S::load(&eights[index])
        });
        for (row, values) in S::transpose(rows).into_iter().zip(block) {
            S::store(row, values);
        }
    }
    let done = K - rest.len();
    for (index, values) in rest.iter_mut().enumerate() {
        for (value, column) in values.iter_mut().zip(columns) {
            *value = column[done + index];
        }
    }
    values
}

/// Exponents of finite values; `WIDE`: the values become their significands.
#[inline(always)]
fn split<S: Simd, const WIDE: bool>(values: &mut [f32; LANES], exponents: &mut [i32; LANES], tf32: bool, min: i32) {
    let bits = S::and_i(S::bits(S::load(values)), S::splat_i(if tf32 { !0x1fff } else { !0 }));
    let magnitude = S::and_i(bits, S::splat_i(0x7fff_ffff));
    let field = S::shift_right::<23>(magnitude);
    let exponent = S::max_i(S::sub_i(field, S::splat_i(127)), S::splat_i(min));
    S::store_i(S::if_zero(magnitude, S::splat_i(NONE), exponent), exponents);
    if WIDE {
        let normal = S::or_i(S::and_i(bits, S::splat_i(!0x7f80_0000)), S::splat_i(127 << 23));
        // f32's subnormals, which have the smallest exponent of tf32 and bf16 too: exact.
        let subnormal = S::mul(S::from_bits(bits), S::splat(f32::from_bits((126 + 127) << 23)));
        S::store(S::from_bits(S::if_zero(field, S::bits(subnormal), normal)), values);
    } else {
        S::store(S::from_bits(bits), values);
    }
}

/// One step of eight outputs.
#[inline(always)]
fn fused<S: Simd, const K: usize, const WIDE: bool>(
    plan: &Plan,
    a: &[f32; K],
    a_exponents: &[i32; K],
    b: &Columns<K>,
    c: [f32; LANES],
) -> [f32; LANES] {
    let c = S::bits(S::load(&c));
    let magnitude = S::and_i(c, S::splat_i(0x7fff_ffff));
    let field = S::shift_right::<23>(magnitude);
    let c_exponent = S::sub_i(S::max_i(field, S::splat_i(1)), S::splat_i(127));
    let shown = S::max_i(c_exponent, S::splat_i(plan.min_exponents[2]));
    let mut largest = S::if_zero(magnitude, S::splat_i(FLOOR), shown);
    for (a, b) in a_exponents.iter().zip(&b.exponents) {
        let exponent = S::add_i(S::splat_i(*a), S::load_i(b));
        largest = S::max_i(largest, exponent);
    }
    // The power of two that makes the last kept bit 1; the limit is met only where all products are zero.
    let to_units = S::sub_i(S::splat_i(plan.fraction_bits + 127), largest);
    let power = S::from_bits(S::shift_left::<23>(S::min_i(to_units, S::splat_i(254))));
    let mut products = S::splat_i(0);
    for term in 0..K {
        let power = if WIDE {
            let exponent = S::add_i(S::splat_i(a_exponents[term]), S::load_i(&b.exponents[term]));
            S::from_bits(S::shift_left::<23>(S::max_i(S::add_i(exponent, to_units), S::splat_i(0))))
        } else {
            power
        };
        // Less than 4 x 2^25, because no product's exponent is above `largest`; and K of them fit 31 bits.
        let scaled = S::mul(S::mul(S::splat(a[term]), S::load(&b.values[term])), power);
        products = S::add_i(products, S::truncate(scaled));
    }
    let hidden = S::if_zero(field, S::splat_i(0), S::splat_i(1 << 23));
    let significand = S::or_i(S::and_i(c, S::splat_i(0x7f_ffff)), hidden);
    // In units of 2^-25 first. A subnormal of f16 is a normal f32, and its own exponent, not the shown one, places it.
    let dropped = S::add_i(S::sub_i(largest, c_exponent), S::splat_i(25 - plan.fraction_bits));
    let kept = S::shift_right_each(S::shift_left::<2>(significand), S::max_i(dropped, S::splat_i(0)));
    let kept = S::negate_if(c, kept);
    let exponent = S::sub_i(largest, S::splat_i(plan.fraction_bits));
    convert::<S>(plan.output, products, kept, exponent)
}

/// (products + kept) x 2^exponent in the accumulator's type.
#[inline(always)]
fn convert<S: Simd>(output: Output, products: S::I, kept: S::I, exponent: S::I) -> [f32; LANES] {
    let mut result = [0f32; LANES];
    if let Output::F32 { mantissa_bits } = output {
        // Exact for normal results, and overflow gives infinity: what is left after the mask never rounds.
        let (sums, subnormal) = S::masked_sums(products, kept, exponent, u64::MAX << (52 - mantissa_bits));
        S::store(sums, &mut result);
        if !subnormal {
            return result;
        }
        let sums = S::scaled_sums(products, kept, exponent);
        return std::array::from_fn(|lane| exact::convert(output, sums[lane]));
    }
    for (result, sum) in result.iter_mut().zip(S::scaled_sums(products, kept, exponent)) {
        *result = f16(sum);
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

/// Terms whose columns of B are laid side by side at a time.
const DEPTH: usize = 32;
/// Rows summed at a time, so that one addition need not wait for the other.
const GROUP: usize = 8;

#[inline(always)]
fn fast_with<S: Simd>(product: &Product, a: &[f32], b: &[f32], c: &[f32], d: &mut [f32]) {
    let &Product { m, n, k, .. } = product;
    d.copy_from_slice(c);
    for first in (0..k).step_by(DEPTH) {
        let depth = DEPTH.min(k - first);
        for left in (0..n).step_by(LANES) {
            let columns = LANES.min(n - left);
            let mut right = [[0f32; DEPTH]; LANES];
            for (column, values) in right.iter_mut().enumerate().take(columns) {
                values[..depth].copy_from_slice(&b[(left + column) * k + first..][..depth]);
                truncate_if(product.b, values);
            }
            let right = &side_by_side::<S, DEPTH>(&right);
            for top in (0..m).step_by(GROUP) {
                let rows = GROUP.min(m - top);
                let mut sums = [S::splat(0.0); GROUP];
                for (row, sum) in sums.iter_mut().enumerate().take(rows) {
                    let mut values = [0f32; LANES];
                    copy(&mut values, &d[(top + row) * n + left..][..columns]);
                    *sum = S::load(&values);
                }
                let mut rows_of_a = [[0f32; DEPTH]; GROUP];
                for (row, values) in rows_of_a.iter_mut().enumerate().take(rows) {
                    values[..depth].copy_from_slice(&a[(top + row) * k + first..][..depth]);
                    truncate_if(product.a, values);
                }
                for (term, right) in right.iter().enumerate().take(depth) {
                    let right = S::load(right);
                    for row in 0..GROUP {
                        sums[row] = S::add(sums[row], S::mul(S::splat(rows_of_a[row][term]), right));
                    }
                }
                for (row, sum) in sums.iter().enumerate().take(rows) {
                    let mut values = [0f32; LANES];
                    S::store(S::canonical(*sum), &mut values);
                    let d = &mut d[(top + row) * n + left..][..columns];
                    match <&mut [f32; LANES]>::try_from(&mut *d) {
                        Ok(d) => *d = values,
                        Err(_) => d.copy_from_slice(&values[..columns]),
                    }
                }
            }
        }
    }
    if product.accumulator == Accumulator::F16 {
        for d in d {
            *d = if d.is_nan() { *d } else { crate::f16::to_f32(crate::f16::from_f32(*d)) };
        }
    }
}

#[inline(always)]
pub(super) fn truncate_if(element: Element, values: &mut [f32]) {
    if element == Element::Tf32 {
        for value in values {
            *value = crate::tf32::truncate(*value);
        }
    }
}

#[cfg(test)]
#[path = "lanes_tests.rs"]
mod tests;
