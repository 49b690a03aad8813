//! The sign of a sum of f64 products, exactly: what a directed rounding has to know of the part that the nearest value lost.
//!
//! A fixed-point accumulator that is wide enough for any product of two finite numbers. Source: Kulisch, "Computer Arithmetic and Validity" (2008).
//! Slow, and only used by `.rz`, `.rm` and `.rp` in f64.

/// Words of the accumulator: bit 0 has the weight 2^-2148, the square of the least subnormal; 2^2048 and some carries fit above.
const WORDS: usize = 68;
/// Weight of bit 0.
const LEAST: i32 = -2148;

/// Magnitude and exponent: |v| = magnitude x 2^exponent.
fn split(v: f64) -> (u64, i32) {
    let bits = v.to_bits();
    let (field, fraction) = ((bits >> 52 & 0x7FF) as i32, bits & ((1 << 52) - 1));
    if field == 0 { (fraction, -1074) } else { (fraction | 1 << 52, field - 1075) }
}

/// Sign of the sum of `a * b` over the pairs, all finite: -1, 0 or 1.
pub fn exact_sign(pairs: &[(f64, f64)]) -> i32 {
    let mut sums = [[0u64; WORDS]; 2];
    for (a, b) in pairs {
        let ((ma, ea), (mb, eb)) = (split(*a), split(*b));
        let product = u128::from(ma) * u128::from(mb);
        add(
            &mut sums[usize::from(a.is_sign_negative() != b.is_sign_negative())],
            product,
            (ea + eb - LEAST).max(0) as usize,
        );
    }
    let [positive, negative] = sums;
    match positive.iter().rev().cmp(negative.iter().rev()) {
        std::cmp::Ordering::Less => -1,
        std::cmp::Ordering::Equal => 0,
        std::cmp::Ordering::Greater => 1,
    }
}

fn add(sum: &mut [u64; WORDS], value: u128, bit: usize) {
    let (word, shift) = (bit / 64, bit % 64);
    // 106 bits shifted by less than 64 take three words.
    let low = value << shift;
    let high = if shift == 0 { 0 } else { (value >> (128 - shift)) as u64 };
    let mut carry = false;
    let parts = [low as u64, (low >> 64) as u64, high];
    for (n, slot) in sum.iter_mut().enumerate().skip(word) {
        let part = parts.get(n - word).copied().unwrap_or(0);
        let (v, first) = slot.overflowing_add(part);
        let (v, second) = v.overflowing_add(u64::from(carry));
        (*slot, carry) = (v, first || second);
        if n >= word + 2 && !carry {
            break;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::exact_sign;

    #[test]
    fn what_f64_cannot_hold_is_seen() {
        let tiny = f64::from_bits(1);
        for (pairs, sign) in [
            (&[(1.0, 1.0), (tiny, tiny), (-1.0, 1.0)][..], 1),
            (&[(f64::MAX, f64::MAX), (tiny, -tiny), (-f64::MAX, f64::MAX)][..], -1),
            (&[(3.0, 5.0), (-15.0, 1.0)][..], 0),
            (&[(1e308, 1e308), (1e308, -1e308)][..], 0),
            (&[(0.1, 3.0), (-0.3, 1.0)][..], 1),
        ] {
            assert_eq!(exact_sign(pairs), sign, "{pairs:?}");
        }
    }
}
