//! Eight f32 or i32 side by side: the few operations that [`super::lanes`] needs, once as plain loops and once as AVX2 instructions.
//!
//! Each operation gives the same bits in both, so results do not depend on the processor. Rounding conversions to integers are left
//! out on purpose, and fused multiply-adds but for exact products.

/// Eight lanes. `F` are f32, `I` are i32.
pub(super) trait Simd {
    type F: Copy;
    type I: Copy;

    fn splat(value: f32) -> Self::F;
    fn load(values: &[f32; 8]) -> Self::F;
    fn store(values: Self::F, to: &mut [f32; 8]);
    fn mul(a: Self::F, b: Self::F) -> Self::F;
    fn add(a: Self::F, b: Self::F) -> Self::F;
    /// `a` x `b` + `sum`, where the product is exact: rounded once or twice is then the same.
    fn add_exact_product(sum: Self::F, a: Self::F, b: Self::F) -> Self::F;
    /// NaN becomes 0x7FFFFFFF.
    fn canonical(a: Self::F) -> Self::F;
    /// Eight f16 as f32, exactly; a NaN gives any NaN.
    fn halves(bits: &[u16; 8]) -> Self::F;
    /// Rows become columns.
    fn transpose(rows: [Self::F; 8]) -> [Self::F; 8];

    fn splat_i(value: i32) -> Self::I;
    fn load_i(values: &[i32; 8]) -> Self::I;
    fn store_i(values: Self::I, to: &mut [i32; 8]);
    /// Wraps.
    fn add_i(a: Self::I, b: Self::I) -> Self::I;
    /// Wraps.
    fn sub_i(a: Self::I, b: Self::I) -> Self::I;
    fn max_i(a: Self::I, b: Self::I) -> Self::I;
    fn min_i(a: Self::I, b: Self::I) -> Self::I;
    fn and_i(a: Self::I, b: Self::I) -> Self::I;
    fn or_i(a: Self::I, b: Self::I) -> Self::I;
    fn shift_left<const BY: i32>(a: Self::I) -> Self::I;
    /// Zeros come in from above.
    fn shift_right<const BY: i32>(a: Self::I) -> Self::I;
    /// Zeros come in from above; a count over 31 gives 0.
    fn shift_right_each(a: Self::I, by: Self::I) -> Self::I;
    /// `yes` where `a` is 0, else `no`.
    fn if_zero(a: Self::I, yes: Self::I, no: Self::I) -> Self::I;
    /// `-a` where `sign` is negative, else `a`.
    fn negate_if(sign: Self::I, a: Self::I) -> Self::I;

    fn bits(a: Self::F) -> Self::I;
    fn from_bits(a: Self::I) -> Self::F;
    /// Toward zero. Only for finite values of less than 2^31; others give any number.
    fn truncate(a: Self::F) -> Self::I;
    /// (a + b) x 2^exponent, exactly. Exponents of normal f64 only.
    fn scaled_sums(a: Self::I, b: Self::I, exponent: Self::I) -> [f64; 8];
    /// [`Simd::scaled_sums`] with all bits outside `mask` cleared, as f32, and whether some of the sums was a subnormal of f32.
    fn masked_sums(a: Self::I, b: Self::I, exponent: Self::I, mask: u64) -> (Self::F, bool);
}

/// The smallest normal f32.
const MIN_NORMAL: f64 = f32::MIN_POSITIVE as f64;

/// Plain loops: any processor.
pub(super) struct Portable;

#[inline(always)]
fn map<A: Copy, B: Copy + Default>(a: [A; 8], f: impl Fn(A) -> B) -> [B; 8] {
    a.map(f)
}

#[inline(always)]
fn zip<A: Copy, B: Copy, R: Copy + Default>(a: [A; 8], b: [B; 8], f: impl Fn(A, B) -> R) -> [R; 8] {
    std::array::from_fn(|lane| f(a[lane], b[lane]))
}

impl Simd for Portable {
    type F = [f32; 8];
    type I = [i32; 8];

    #[inline(always)]
    fn splat(value: f32) -> Self::F {
        [value; 8]
    }
    #[inline(always)]
    fn load(values: &[f32; 8]) -> Self::F {
        *values
    }
    #[inline(always)]
    fn store(values: Self::F, to: &mut [f32; 8]) {
        *to = values;
    }
    #[inline(always)]
    fn mul(a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |a, b| a * b)
    }
    #[inline(always)]
    fn add(a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |a, b| a + b)
    }
    #[inline(always)]
    fn add_exact_product(sum: Self::F, a: Self::F, b: Self::F) -> Self::F {
        Self::add(sum, Self::mul(a, b))
    }
    #[inline(always)]
    fn canonical(a: Self::F) -> Self::F {
        map(a, |a| if a.is_nan() { crate::CANONICAL_NAN } else { a })
    }
    #[inline(always)]
    fn halves(bits: &[u16; 8]) -> Self::F {
        map(*bits, crate::f16::to_f32)
    }
    #[inline(always)]
    fn transpose(rows: [Self::F; 8]) -> [Self::F; 8] {
        std::array::from_fn(|column| std::array::from_fn(|row| rows[row][column]))
    }
    #[inline(always)]
    fn splat_i(value: i32) -> Self::I {
        [value; 8]
    }
    #[inline(always)]
    fn load_i(values: &[i32; 8]) -> Self::I {
        *values
    }
    #[inline(always)]
    fn store_i(values: Self::I, to: &mut [i32; 8]) {
        *to = values;
    }
    #[inline(always)]
    fn add_i(a: Self::I, b: Self::I) -> Self::I {
        zip(a, b, i32::wrapping_add)
    }
    #[inline(always)]
    fn sub_i(a: Self::I, b: Self::I) -> Self::I {
        zip(a, b, i32::wrapping_sub)
    }
    #[inline(always)]
    fn max_i(a: Self::I, b: Self::I) -> Self::I {
        zip(a, b, i32::max)
    }
    #[inline(always)]
    fn min_i(a: Self::I, b: Self::I) -> Self::I {
        zip(a, b, i32::min)
    }
    #[inline(always)]
    fn and_i(a: Self::I, b: Self::I) -> Self::I {
        zip(a, b, |a, b| a & b)
    }
    #[inline(always)]
    fn or_i(a: Self::I, b: Self::I) -> Self::I {
        zip(a, b, |a, b| a | b)
    }
    #[inline(always)]
    fn shift_left<const BY: i32>(a: Self::I) -> Self::I {
        map(a, |a| a << BY)
    }
    #[inline(always)]
    fn shift_right<const BY: i32>(a: Self::I) -> Self::I {
        map(a, |a| (a as u32 >> BY) as i32)
    }
    #[inline(always)]
    fn shift_right_each(a: Self::I, by: Self::I) -> Self::I {
        zip(a, by, |a, by| if by as u32 > 31 { 0 } else { (a as u32 >> by) as i32 })
    }
    #[inline(always)]
    fn if_zero(a: Self::I, yes: Self::I, no: Self::I) -> Self::I {
        std::array::from_fn(|lane| if a[lane] == 0 { yes[lane] } else { no[lane] })
    }
    #[inline(always)]
    fn negate_if(sign: Self::I, a: Self::I) -> Self::I {
        zip(sign, a, |sign, a| if sign < 0 { a.wrapping_neg() } else { a })
    }
    #[inline(always)]
    fn bits(a: Self::F) -> Self::I {
        map(a, |a| a.to_bits() as i32)
    }
    #[inline(always)]
    fn from_bits(a: Self::I) -> Self::F {
        map(a, |a| f32::from_bits(a as u32))
    }
    #[inline(always)]
    fn truncate(a: Self::F) -> Self::I {
        map(a, |a| a as i32)
    }
    #[inline(always)]
    fn scaled_sums(a: Self::I, b: Self::I, exponent: Self::I) -> [f64; 8] {
        std::array::from_fn(|lane| {
            (a[lane] as f64 + b[lane] as f64) * f64::from_bits(((exponent[lane] + 1023) as u64) << 52)
        })
    }
    #[inline(always)]
    fn masked_sums(a: Self::I, b: Self::I, exponent: Self::I, mask: u64) -> (Self::F, bool) {
        let sums = Self::scaled_sums(a, b, exponent);
        let subnormal = sums.iter().any(|sum| sum.abs() < MIN_NORMAL && *sum != 0.0);
        (map(sums, |sum| f64::from_bits(sum.to_bits() & mask) as f32), subnormal)
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) use avx2::Avx2;

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use super::{MIN_NORMAL, Simd};
    use std::arch::x86_64::*;
    use std::mem::transmute;

    /// AVX2 instructions, one of F16C and one of FMA.
    ///
    /// Every method may be called from functions with AVX2 enabled only, `halves` with F16C too and `add_exact_product` with FMA;
    /// [`super::super::lanes`] and [`super::super::registers`] see to it. Once inlined there, each is an instruction or two.
    pub(in super::super) struct Avx2;

    // NOTE: no closures around intrinsics, since a closure does not inherit the caller's AVX2 and its instructions become calls.

    /// Half of (a + b) x 2^(field - 1023).
    #[inline(always)]
    fn scaled(a: __m128i, b: __m128i, field: __m128i) -> __m256d {
        // SAFETY: see `Avx2`.
        unsafe {
            let power = _mm256_slli_epi64::<52>(_mm256_cvtepi32_epi64(field));
            _mm256_mul_pd(_mm256_add_pd(_mm256_cvtepi32_pd(a), _mm256_cvtepi32_pd(b)), _mm256_castsi256_pd(power))
        }
    }

    /// Both halves of (a + b) x 2^exponent.
    #[inline(always)]
    fn both_scaled(a: __m256i, b: __m256i, exponent: __m256i) -> [__m256d; 2] {
        // SAFETY: see `Avx2`.
        unsafe {
            let field = _mm256_add_epi32(exponent, _mm256_set1_epi32(1023));
            let low = scaled(_mm256_castsi256_si128(a), _mm256_castsi256_si128(b), _mm256_castsi256_si128(field));
            let high = scaled(
                _mm256_extracti128_si256::<1>(a),
                _mm256_extracti128_si256::<1>(b),
                _mm256_extracti128_si256::<1>(field),
            );
            [low, high]
        }
    }

    /// All ones where the sum is a subnormal of f32.
    #[inline(always)]
    fn subnormal(sum: __m256d) -> __m256d {
        // SAFETY: see `Avx2`.
        unsafe {
            let magnitude = _mm256_andnot_pd(_mm256_set1_pd(-0.0), sum);
            let small = _mm256_cmp_pd::<_CMP_LT_OQ>(magnitude, _mm256_set1_pd(MIN_NORMAL));
            _mm256_and_pd(small, _mm256_cmp_pd::<_CMP_NEQ_OQ>(sum, _mm256_setzero_pd()))
        }
    }

    /// Defines methods whose bodies are intrinsics.
    macro_rules! methods {
        ($(fn $name:ident $(<const $constant:ident: i32>)? ($($argument:ident: $type:ty),*) -> $result:ty $body:block)*) => {
            $(#[inline(always)]
            fn $name $(<const $constant: i32>)? ($($argument: $type),*) -> $result {
                // SAFETY: see `Avx2`.
                unsafe { $body }
            })*
        };
    }

    impl Simd for Avx2 {
        type F = __m256;
        type I = __m256i;

        methods! {
            fn splat(value: f32) -> __m256 { _mm256_set1_ps(value) }
            fn load(values: &[f32; 8]) -> __m256 { transmute::<[f32; 8], __m256>(*values) }
            fn store(values: __m256, to: &mut [f32; 8]) -> () { *to = transmute::<__m256, [f32; 8]>(values) }
            fn mul(a: __m256, b: __m256) -> __m256 { _mm256_mul_ps(a, b) }
            fn add(a: __m256, b: __m256) -> __m256 { _mm256_add_ps(a, b) }
            fn add_exact_product(sum: __m256, a: __m256, b: __m256) -> __m256 { _mm256_fmadd_ps(a, b, sum) }
            fn canonical(a: __m256) -> __m256 {
                _mm256_blendv_ps(a, _mm256_set1_ps(crate::CANONICAL_NAN), _mm256_cmp_ps::<_CMP_UNORD_Q>(a, a))
            }
            fn halves(bits: &[u16; 8]) -> __m256 { _mm256_cvtph_ps(transmute::<[u16; 8], __m128i>(*bits)) }
            fn transpose(rows: [__m256; 8]) -> [__m256; 8] {
                let [a, b, c, d, e, f, g, h] = rows;
                let (ab, ab2) = (_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
                let (cd, cd2) = (_mm256_unpacklo_ps(c, d), _mm256_unpackhi_ps(c, d));
                let (ef, ef2) = (_mm256_unpacklo_ps(e, f), _mm256_unpackhi_ps(e, f));
                let (gh, gh2) = (_mm256_unpacklo_ps(g, h), _mm256_unpackhi_ps(g, h));
                let (top0, top1) = (_mm256_shuffle_ps::<0x44>(ab, cd), _mm256_shuffle_ps::<0xee>(ab, cd));
                let (top2, top3) = (_mm256_shuffle_ps::<0x44>(ab2, cd2), _mm256_shuffle_ps::<0xee>(ab2, cd2));
                let (low0, low1) = (_mm256_shuffle_ps::<0x44>(ef, gh), _mm256_shuffle_ps::<0xee>(ef, gh));
                let (low2, low3) = (_mm256_shuffle_ps::<0x44>(ef2, gh2), _mm256_shuffle_ps::<0xee>(ef2, gh2));
                [
                    _mm256_permute2f128_ps::<0x20>(top0, low0),
                    _mm256_permute2f128_ps::<0x20>(top1, low1),
                    _mm256_permute2f128_ps::<0x20>(top2, low2),
                    _mm256_permute2f128_ps::<0x20>(top3, low3),
                    _mm256_permute2f128_ps::<0x31>(top0, low0),
                    _mm256_permute2f128_ps::<0x31>(top1, low1),
                    _mm256_permute2f128_ps::<0x31>(top2, low2),
                    _mm256_permute2f128_ps::<0x31>(top3, low3),
                ]
            }
            fn splat_i(value: i32) -> __m256i { _mm256_set1_epi32(value) }
            fn load_i(values: &[i32; 8]) -> __m256i { transmute::<[i32; 8], __m256i>(*values) }
            fn store_i(values: __m256i, to: &mut [i32; 8]) -> () { *to = transmute::<__m256i, [i32; 8]>(values) }
            fn add_i(a: __m256i, b: __m256i) -> __m256i { _mm256_add_epi32(a, b) }
            fn sub_i(a: __m256i, b: __m256i) -> __m256i { _mm256_sub_epi32(a, b) }
            fn max_i(a: __m256i, b: __m256i) -> __m256i { _mm256_max_epi32(a, b) }
            fn min_i(a: __m256i, b: __m256i) -> __m256i { _mm256_min_epi32(a, b) }
            fn and_i(a: __m256i, b: __m256i) -> __m256i { _mm256_and_si256(a, b) }
            fn or_i(a: __m256i, b: __m256i) -> __m256i { _mm256_or_si256(a, b) }
            fn shift_left<const BY: i32>(a: __m256i) -> __m256i { _mm256_slli_epi32::<BY>(a) }
            fn shift_right<const BY: i32>(a: __m256i) -> __m256i { _mm256_srli_epi32::<BY>(a) }
            fn shift_right_each(a: __m256i, by: __m256i) -> __m256i { _mm256_srlv_epi32(a, by) }
            fn if_zero(a: __m256i, yes: __m256i, no: __m256i) -> __m256i {
                _mm256_blendv_epi8(no, yes, _mm256_cmpeq_epi32(a, _mm256_setzero_si256()))
            }
            fn negate_if(sign: __m256i, a: __m256i) -> __m256i {
                let mask = _mm256_srai_epi32::<31>(sign);
                _mm256_sub_epi32(_mm256_xor_si256(a, mask), mask)
            }
            fn bits(a: __m256) -> __m256i { _mm256_castps_si256(a) }
            fn from_bits(a: __m256i) -> __m256 { _mm256_castsi256_ps(a) }
            fn truncate(a: __m256) -> __m256i { _mm256_cvttps_epi32(a) }
            fn scaled_sums(a: __m256i, b: __m256i, exponent: __m256i) -> [f64; 8] {
                transmute::<[__m256d; 2], [f64; 8]>(both_scaled(a, b, exponent))
            }
            fn masked_sums(a: __m256i, b: __m256i, exponent: __m256i, mask: u64) -> (__m256, bool) {
                let [low, high] = both_scaled(a, b, exponent);
                let mask = _mm256_castsi256_pd(_mm256_set1_epi64x(mask as i64));
                let (low_half, high_half) = (_mm256_cvtpd_ps(_mm256_and_pd(low, mask)), _mm256_cvtpd_ps(_mm256_and_pd(high, mask)));
                let any = _mm256_movemask_pd(_mm256_or_pd(subnormal(low), subnormal(high))) != 0;
                (_mm256_set_m128(high_half, low_half), any)
            }
        }
    }
}
