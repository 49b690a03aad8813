//! Small transposes: rows of sixteen bytes become columns. On x86-64 by the shuffles that every such processor has.
//!
//! They know nothing of memory or lanes. Limits: words of four bytes in fours, of two bytes in eights.

/// Sixteen bytes.
pub type Sixteen = [u32; 4];

/// Four rows of four words: word n of all rows becomes row n.
#[inline(always)]
pub fn turn_words(rows: [Sixteen; 4]) -> [Sixteen; 4] {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::*;
        use std::mem::transmute;
        // SAFETY: SSE2 is part of x86-64, and the types have the same size and no invalid values.
        unsafe {
            let [a, b, c, d] = transmute::<[Sixteen; 4], [__m128i; 4]>(rows);
            let (ab, cd) = (_mm_unpacklo_epi32(a, b), _mm_unpacklo_epi32(c, d));
            let (ab2, cd2) = (_mm_unpackhi_epi32(a, b), _mm_unpackhi_epi32(c, d));
            transmute::<[__m128i; 4], [Sixteen; 4]>([
                _mm_unpacklo_epi64(ab, cd),
                _mm_unpackhi_epi64(ab, cd),
                _mm_unpacklo_epi64(ab2, cd2),
                _mm_unpackhi_epi64(ab2, cd2),
            ])
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    turn_words_anywhere(rows)
}

/// Eight rows of eight halves of words, the lower one first: half n of all rows becomes row n.
#[inline(always)]
pub fn turn_halves(rows: [Sixteen; 8]) -> [Sixteen; 8] {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::*;
        use std::mem::transmute;
        // SAFETY: as above.
        unsafe {
            let [a, b, c, d, e, f, g, h] = transmute::<[Sixteen; 8], [__m128i; 8]>(rows);
            let low = [
                _mm_unpacklo_epi16(a, b),
                _mm_unpacklo_epi16(c, d),
                _mm_unpacklo_epi16(e, f),
                _mm_unpacklo_epi16(g, h),
            ];
            let high = [
                _mm_unpackhi_epi16(a, b),
                _mm_unpackhi_epi16(c, d),
                _mm_unpackhi_epi16(e, f),
                _mm_unpackhi_epi16(g, h),
            ];
            let low = turn_words(transmute::<[__m128i; 4], [Sixteen; 4]>(low));
            let high = turn_words(transmute::<[__m128i; 4], [Sixteen; 4]>(high));
            transmute::<[[Sixteen; 4]; 2], [Sixteen; 8]>([low, high])
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    turn_halves_anywhere(rows)
}

#[cfg(any(test, not(target_arch = "x86_64")))]
fn turn_words_anywhere(rows: [Sixteen; 4]) -> [Sixteen; 4] {
    std::array::from_fn(|n| std::array::from_fn(|row| rows[row][n]))
}

#[cfg(any(test, not(target_arch = "x86_64")))]
fn turn_halves_anywhere(rows: [Sixteen; 8]) -> [Sixteen; 8] {
    let half = |row: usize, n: usize| rows[row][n / 2] >> (16 * (n % 2)) & 0xFFFF;
    std::array::from_fn(|n| std::array::from_fn(|pair| half(2 * pair, n) | half(2 * pair + 1, n) << 16))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_become_columns() {
        let rows: [Sixteen; 8] =
            std::array::from_fn(|r| std::array::from_fn(|n| (r << 24 | n << 16 | r << 8 | n) as u32 * 7));
        assert_eq!(turn_halves(rows), turn_halves_anywhere(rows));
        assert_eq!(turn_halves_anywhere(turn_halves_anywhere(rows)), rows);
        let four = [rows[0], rows[3], rows[5], rows[6]];
        assert_eq!(turn_words(four), turn_words_anywhere(four));
        assert_eq!(turn_words_anywhere(four)[1], [rows[0][1], rows[3][1], rows[5][1], rows[6][1]]);
    }
}
