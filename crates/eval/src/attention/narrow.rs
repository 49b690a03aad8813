//! Products on a tensor core whose accumulator keeps 13 fractional bits: FP8 on Ada's `mma.sync` and Hopper's `wgmma`.
//!
//! Source: MMA-Sim (arXiv 2511.10909) and facts measured there: within a chunk of the inner index the accumulator
//! and all products are aligned to the largest exponent, each truncated toward zero to 13 fractional bits, added
//! exactly, and the sum keeps 13 mantissa bits. A product's exponent is the sum of its factors' exponents.
//! `warpsmith_num::tensor_core` has the same arithmetic for one instruction; here it runs over whole matrices.
//! Limits: factors are codes of 8-bit formats (products of magnitude 2^-30 to 2^20).

/// Fractional bits that survive the alignment.
const BITS: u32 = 13;
/// Columns that are worked on together.
const LANES: usize = 8;
/// Below every product; keeps the scale finite where all products are zero.
const TINY: f32 = f32::from_bits((127 - 100) << 23);

/// Factors with the power of two of each one's exponent, zero for zero.
pub struct Factors {
    pub values: Vec<f32>,
    pub powers: Vec<f32>,
}

impl Factors {
    /// `smallest` is the exponent of the format's subnormal numbers, which are not normalised: -6 for e4m3, -14 for e5m2.
    pub fn new(values: Vec<f32>, smallest: i32) -> Factors {
        let mut powers = vec![0.0; values.len()];
        write_powers(&values, &mut powers, smallest);
        Factors { values, powers }
    }
}

/// The power of two of each value's exponent.
pub fn write_powers(values: &[f32], powers: &mut [f32], smallest: i32) {
    let least = f32::from_bits(((smallest + 127) as u32) << 23);
    for (power, &x) in powers.iter_mut().zip(values) {
        let p = f32::from_bits(x.to_bits() & 0x7f80_0000);
        let p = if p > least { p } else { least };
        *power = if x == 0.0 { 0.0 } else { p };
    }
}

/// A row-major operand: values and powers with one stride.
#[derive(Clone, Copy)]
pub struct Operand<'a> {
    pub values: &'a [f32],
    pub powers: &'a [f32],
    pub stride: usize,
}

/// `c += a * b` with `m` rows, `n` columns and `k` products, the inner index in chunks of `chunk`.
pub fn multiply(c: &mut [f32], c_stride: usize, a: Operand, b: Operand, m: usize, n: usize, k: usize, chunk: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2")]
        fn wide(c: &mut [f32], c_stride: usize, a: Operand, b: Operand, m: usize, n: usize, k: usize, chunk: usize) {
            product(c, c_stride, a, b, m, n, k, chunk);
        }
        if std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: the feature was just detected.
            return unsafe { wide(c, c_stride, a, b, m, n, k, chunk) };
        }
    }
    product(c, c_stride, a, b, m, n, k, chunk);
}

#[inline(always)]
fn product(c: &mut [f32], c_stride: usize, a: Operand, b: Operand, m: usize, n: usize, k: usize, chunk: usize) {
    let full = n - n % LANES;
    for i in 0..m {
        for j in (0..full).step_by(LANES) {
            strip::<LANES>(c, i * c_stride + j, a, i, b, j, k, chunk);
        }
        for j in full..n {
            strip::<1>(c, i * c_stride + j, a, i, b, j, k, chunk);
        }
    }
}

#[inline(always)]
fn strip<const N: usize>(c: &mut [f32], at: usize, a: Operand, i: usize, b: Operand, j: usize, k: usize, chunk: usize) {
    let mut sum: [f32; N] = c[at..at + N].try_into().expect("N elements");
    let mut x = 0;
    while x < k {
        let end = (x + chunk).min(k);
        let mut power: [f32; N] = std::array::from_fn(|y| f32::from_bits(sum[y].to_bits() & 0x7f80_0000));
        for z in x..end {
            let factor = a.powers[i * a.stride + z];
            let line: &[f32; N] = b.powers[z * b.stride + j..z * b.stride + j + N].try_into().expect("N elements");
            for y in 0..N {
                let p = factor * line[y];
                power[y] = if p > power[y] { p } else { power[y] };
            }
        }
        let mut scale = [0.0f32; N];
        let mut total = [0i32; N];
        for y in 0..N {
            power[y] = if power[y] > TINY { power[y] } else { TINY };
            // 2^BITS / power, by subtraction of exponents.
            scale[y] = f32::from_bits(((254 + BITS) << 23) - power[y].to_bits());
            total[y] = truncate(sum[y] * scale[y]);
        }
        for z in x..end {
            let factor = a.values[i * a.stride + z];
            let line: &[f32; N] = b.values[z * b.stride + j..z * b.stride + j + N].try_into().expect("N elements");
            for y in 0..N {
                total[y] += truncate(factor * line[y] * scale[y]);
            }
        }
        for y in 0..N {
            let unit = power[y] * (1.0 / (1 << BITS) as f32);
            let exact = total[y] as f32 * unit;
            sum[y] = f32::from_bits(exact.to_bits() & !((1 << (23 - BITS)) - 1));
        }
        x = end;
    }
    c[at..at + N].copy_from_slice(&sum);
}

/// Toward zero.
#[inline(always)]
fn truncate(x: f32) -> i32 {
    // SAFETY: |x| < 2^16, by the choice of the scale: neither NaN nor out of range. The saturating `as` costs three
    // times as much and would be the larger part of the honest kernel.
    unsafe { x.to_int_unchecked() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpsmith_num::tensor_core::{Accumulator, Element, Generation, Numerics, Op, Product, multiply_accumulate};
    use warpsmith_num::{e4m3, e5m2, philox::Philox4x32};

    /// Against the model of single instructions, bit for bit, chained over two of them.
    #[test]
    fn it_is_the_arithmetic_of_the_instructions() {
        let (m, n, k) = (16, 8, 64);
        for (generation, op, chunk, element) in [
            (Generation::Ada, Op::MmaSync, 16, Element::E4m3),
            (Generation::Ada, Op::MmaSync, 16, Element::E5m2),
            (Generation::Hopper, Op::Wgmma, 32, Element::E4m3),
        ] {
            for seed in 0..20 {
                let codes = |stream: u64, count: usize| -> Vec<f32> {
                    let g = Philox4x32::new(seed, stream);
                    let decode =
                        |code: u8| if element == Element::E4m3 { e4m3::to_f32(code) } else { e5m2::to_f32(code) };
                    // Few large exponents, so that accumulators stay in range, and no NaN.
                    (0..count as u64).map(|i| decode((g.at(i)[0] & 0x87 | (g.at(i)[1] % 5 + 4) << 3) as u8)).collect()
                };
                let (a, b) = (codes(1, m * k), codes(2, n * k));
                let smallest = if element == Element::E4m3 { -6 } else { -14 };
                let right: Vec<f32> = (0..k * n).map(|i| b[i % n * k + i / n]).collect();
                let (fa, fb) = (Factors::new(a.clone(), smallest), Factors::new(right, smallest));
                let mut got = vec![0.0; m * n];
                let (a_in, b_in) = (
                    Operand { values: &fa.values, powers: &fa.powers, stride: k },
                    Operand { values: &fb.values, powers: &fb.powers, stride: n },
                );
                multiply(&mut got, n, a_in, b_in, m, n, k, chunk);
                let mut want = vec![0.0f32; m * n];
                for step in 0..k / 32 {
                    let cut = |x: &[f32], rows: usize| -> Vec<f32> {
                        (0..rows).flat_map(|r| x[r * k + step * 32..][..32].to_vec()).collect()
                    };
                    let product = Product { m, n, k: 32, a: element, b: element, accumulator: Accumulator::F32, op };
                    let c = want.clone();
                    multiply_accumulate(
                        Numerics::Faithful(generation),
                        &product,
                        &cut(&a, m),
                        &cut(&b, n),
                        &c,
                        &mut want,
                    );
                }
                assert_eq!(got, want, "{generation:?} {op:?} {element:?}, seed {seed}");
            }
        }
    }
}
