//! Small dense products for the oracle and the honest kernel: `c += a * b`, row-major, any sizes.
//!
//! Each output sums its products in ascending order of the inner index, and multiplication and addition stay
//! separate operations, so a result has the same bits whatever the vector width: the record's numbers are the same
//! on every platform. Knows nothing of attention. PERF: the same loop is compiled twice on x86-64, once with AVX2.

use std::ops::{Add, Mul};

/// A row-major matrix inside a slice: its first element and the distance between rows.
#[derive(Clone, Copy)]
pub struct Rows<'a, T> {
    pub data: &'a [T],
    pub stride: usize,
}

/// `c[i][j] += sum over x of a[i][x] * b[x][j]`, with `m` rows, `n` columns and `k` products, in f64.
pub fn multiply_f64(c: &mut [f64], c_stride: usize, a: Rows<f64>, b: Rows<f64>, m: usize, n: usize, k: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2")]
        fn wide(c: &mut [f64], c_stride: usize, a: Rows<f64>, b: Rows<f64>, m: usize, n: usize, k: usize) {
            product::<f64, 4, 8>(c, c_stride, a, b, m, n, k);
        }
        if std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: the feature was just detected.
            return unsafe { wide(c, c_stride, a, b, m, n, k) };
        }
    }
    product::<f64, 4, 4>(c, c_stride, a, b, m, n, k);
}

/// [`multiply_f64`] in f32.
pub fn multiply_f32(c: &mut [f32], c_stride: usize, a: Rows<f32>, b: Rows<f32>, m: usize, n: usize, k: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2")]
        fn wide(c: &mut [f32], c_stride: usize, a: Rows<f32>, b: Rows<f32>, m: usize, n: usize, k: usize) {
            product::<f32, 4, 16>(c, c_stride, a, b, m, n, k);
        }
        if std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: the feature was just detected.
            return unsafe { wide(c, c_stride, a, b, m, n, k) };
        }
    }
    product::<f32, 4, 8>(c, c_stride, a, b, m, n, k);
}

trait Number: Copy + Add<Output = Self> + Mul<Output = Self> {}
impl Number for f32 {}
impl Number for f64 {}

#[inline(always)]
fn product<T: Number, const R: usize, const N: usize>(
    c: &mut [T],
    c_stride: usize,
    a: Rows<T>,
    b: Rows<T>,
    m: usize,
    n: usize,
    k: usize,
) {
    let full = n - n % N;
    let mut i = 0;
    while i + R <= m {
        for j in (0..full).step_by(N) {
            tile::<T, R, N>(c, c_stride, a, b, i, j, k);
        }
        for j in full..n {
            tile::<T, R, 1>(c, c_stride, a, b, i, j, k);
        }
        i += R;
    }
    while i < m {
        for j in (0..full).step_by(N) {
            tile::<T, 1, N>(c, c_stride, a, b, i, j, k);
        }
        for j in full..n {
            tile::<T, 1, 1>(c, c_stride, a, b, i, j, k);
        }
        i += 1;
    }
}

/// R rows by N columns of the output, held in registers over the whole inner index.
#[allow(clippy::needless_range_loop)] // Plain indices are what the vectoriser understands best.
#[inline(always)]
fn tile<T: Number, const R: usize, const N: usize>(
    c: &mut [T],
    c_stride: usize,
    a: Rows<T>,
    b: Rows<T>,
    i: usize,
    j: usize,
    k: usize,
) {
    let mut sum: [[T; N]; R] = std::array::from_fn(|r| std::array::from_fn(|x| c[(i + r) * c_stride + j + x]));
    let rows: [&[T]; R] = std::array::from_fn(|r| &a.data[(i + r) * a.stride..(i + r) * a.stride + k]);
    for x in 0..k {
        let line: &[T; N] = b.data[x * b.stride + j..x * b.stride + j + N].try_into().expect("N elements");
        for r in 0..R {
            let factor = rows[r][x];
            for y in 0..N {
                sum[r][y] = sum[r][y] + factor * line[y];
            }
        }
    }
    for r in 0..R {
        c[(i + r) * c_stride + j..(i + r) * c_stride + j + N].copy_from_slice(&sum[r]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_gives_the_bits_of_the_plain_loop() {
        for (m, n, k) in [(1, 1, 1), (4, 8, 16), (5, 17, 3), (9, 64, 33), (3, 7, 0)] {
            let a: Vec<f64> = (0..m * k).map(|i| (i as f64 * 0.37).sin()).collect();
            let b: Vec<f64> = (0..k * n).map(|i| (i as f64 * 0.91).cos()).collect();
            let mut want: Vec<f64> = (0..m * n).map(|i| i as f64).collect();
            let (mut got, mut single) = (want.clone(), want.iter().map(|&x| x as f32).collect::<Vec<_>>());
            let mut want_single = single.clone();
            let (a32, b32): (Vec<f32>, Vec<f32>) =
                (a.iter().map(|&x| x as f32).collect(), b.iter().map(|&x| x as f32).collect());
            for i in 0..m {
                for j in 0..n {
                    for x in 0..k {
                        want[i * n + j] += a[i * k + x] * b[x * n + j];
                        want_single[i * n + j] += a32[i * k + x] * b32[x * n + j];
                    }
                }
            }
            multiply_f64(&mut got, n, Rows { data: &a, stride: k }, Rows { data: &b, stride: n }, m, n, k);
            multiply_f32(&mut single, n, Rows { data: &a32, stride: k }, Rows { data: &b32, stride: n }, m, n, k);
            assert_eq!(got, want, "{m}x{n}x{k} in f64");
            assert_eq!(single, want_single, "{m}x{n}x{k} in f32");
        }
    }
}
