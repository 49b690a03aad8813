//! The products that need no imitation: integers, which are exact, and f64, which is a chain of IEEE 754 fused multiply-adds (compared
//! with an H200 on 2026-11-21: m8n8k4 and m16n8k16, 49,152 outputs, no difference).

/// What becomes of a 32-bit sum that does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Overflowing {
    /// Modulo 2^32.
    Wrap,
    /// PTX `.satfinite`: the nearest end of the range.
    Saturate,
}

/// D = A x B + C for s8, u8, s4 and u4 operands, widened by the caller to i32. Layouts as in [`super::multiply_accumulate`].
///
/// # Panics
/// If a slice is shorter than the dimensions say, which is a bug of the caller.
pub fn multiply_accumulate_int(
    overflowing: Overflowing,
    [m, n, k]: [usize; 3],
    a: &[i32],
    b: &[i32],
    c: &[i32],
    d: &mut [i32],
) {
    for i in 0..m {
        let row = &a[i * k..][..k];
        for j in 0..n {
            let column = &b[j * k..][..k];
            let at = i * n + j;
            d[at] = match overflowing {
                Overflowing::Wrap => {
                    row.iter().zip(column).fold(c[at], |sum, (&a, &b)| sum.wrapping_add(a.wrapping_mul(b)))
                }
                Overflowing::Saturate => {
                    let sum: i64 = row.iter().zip(column).map(|(&a, &b)| a as i64 * b as i64).sum();
                    (c[at] as i64 + sum).clamp(i32::MIN as i64, i32::MAX as i64) as i32
                }
            };
        }
    }
}

/// D = A x B + C in f64, k ascending, one rounding a term. Layouts as in [`super::multiply_accumulate`].
///
/// # Panics
/// If a slice is shorter than the dimensions say, which is a bug of the caller.
pub fn multiply_accumulate_f64([m, n, k]: [usize; 3], a: &[f64], b: &[f64], c: &[f64], d: &mut [f64]) {
    for i in 0..m {
        for j in 0..n {
            let terms = a[i * k..][..k].iter().zip(&b[j * k..][..k]);
            d[i * n + j] = terms.fold(c[i * n + j], |sum, (a, b)| a.mul_add(*b, sum));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integer_sums_wrap_or_saturate() {
        let (a, b) = ([-128, 127, 1, -1], [-128, 127, -1, 2]);
        let exact = 128 * 128 + 127 * 127 - 1 - 2;
        let rows = [
            (Overflowing::Wrap, 5, 5 + exact),
            (Overflowing::Saturate, 5, 5 + exact),
            (Overflowing::Wrap, i32::MAX, i32::MIN + exact - 1),
            (Overflowing::Saturate, i32::MAX, i32::MAX),
            (Overflowing::Saturate, i32::MIN, i32::MIN + exact),
        ];
        for (overflowing, c, want) in rows {
            let mut d = [0];
            multiply_accumulate_int(overflowing, [1, 1, 4], &a, &b, &[c], &mut d);
            assert_eq!(d, [want], "{overflowing:?} from {c}");
        }
    }

    #[test]
    fn f64_rounds_once_a_term() {
        let tiny = 2f64.powi(-53);
        let mut d = [0.0];
        // Were the product rounded first, or the terms added before C, the result would be 1.
        multiply_accumulate_f64([1, 1, 2], &[1.0 + 2.0 * tiny, -1.0], &[1.0 + 2.0 * tiny, 1.0], &[0.0], &mut d);
        assert_eq!(d, [4.0 * tiny]);
    }
}
