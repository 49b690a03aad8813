//! The plain f32 sum of an m16n8 product of f16 or 8-bit elements with AVX-512: a vector is a column of C, sixteen rows side by side.
//!
//! A product of two such elements is exact in f32, so a fused multiply-add rounds as a multiplication and an addition after it do,
//! and the sum has the bits of [`super::registers`]'s. An e4m3 code is read as an f16
//! whose value is 2^8 times too small; B makes up for it. Lane `4g + i` of a vector is row `4i + g`, the order in which registers
//! fall into it. Limits: f32 accumulators; where an e4m3 is NaN, which f16's fields do not say, nothing is done.
//!
//! PERF: a third of the time that eight lanes with two roundings took; half of what is left are the multiply-adds, two a cycle.

use std::arch::x86_64::*;
use std::mem::transmute;

use super::registers::{Register, exact_products};
use super::{Accumulator, Element, Product};

/// f16 codes of A: for each term sixteen rows.
///
/// PERF: on lines of the cache, here and below, so that no vector lies on two of them.
#[repr(C, align(64))]
struct Codes<const K: usize>([[u16; 16]; K]);

/// Values of B: for each eight terms and each column, those terms.
#[repr(C, align(64))]
struct Values<const EIGHTS: usize>([[[f32; 8]; 8]; EIGHTS]);

/// Whether [`sum`] may be asked.
pub(super) fn fits(product: &Product) -> bool {
    exact_products(product) && product.accumulator == Accumulator::F32
}

/// D = A x B + C for a product that [`fits`]; false: a NaN among e4m3, and D is as it was.
#[target_feature(enable = "avx2,f16c,fma,avx512f,avx512vl,avx512bw,avx512dq")]
pub(super) fn sum(product: &Product, a: &[&Register], b: &[&Register], c: &[&Register], d: &mut [Register]) -> bool {
    match product.k {
        32 => terms::<32, 4>(product, a, b, c, d),
        16 => terms::<16, 2>(product, a, b, c, d),
        8 => terms::<8, 1>(product, a, b, c, d),
        _ => false,
    }
}

/// `K` terms, which are so many eights.
#[target_feature(enable = "avx2,f16c,fma,avx512f,avx512vl,avx512bw,avx512dq")]
fn terms<const K: usize, const EIGHTS: usize>(
    product: &Product,
    a: &[&Register],
    b: &[&Register],
    c: &[&Register],
    d: &mut [Register],
) -> bool {
    let ([c0, c1, c2, c3], [d0, d1, d2, d3]) = (c, d) else { return false };
    if product.a == Element::E4m3 && any_nan(a) || product.b == Element::E4m3 && any_nan(b) {
        return false;
    }
    let binades = |e: Element| if e == Element::E4m3 { 8 } else { 0 };
    let scale = f32::from_bits((127 + binades(product.a) + binades(product.b)) << 23);
    let left = match product.a {
        Element::F16 => halves_of_a::<K>(a),
        Element::E4m3 => bytes_of_a::<K, true>(a),
        _ => bytes_of_a::<K, false>(a),
    };
    let right = match product.b {
        Element::F16 => halves_of_b::<EIGHTS>(b, scale),
        Element::E4m3 => bytes_of_b::<EIGHTS, true>(b, scale),
        _ => bytes_of_b::<EIGHTS, false>(b, scale),
    };
    let [e0, e2, e4, e6] = turn([half(c0, 0), half(c0, 1), half(c2, 0), half(c2, 1)]);
    let [e1, e3, e5, e7] = turn([half(c1, 0), half(c1, 1), half(c3, 0), half(c3, 1)]);
    let mut sums = [e0, e1, e2, e3, e4, e5, e6, e7].map(|e| _mm512_castsi512_ps(e));
    for (rows, columns) in left.0.as_chunks::<8>().0.iter().zip(&right.0) {
        for term in 0..8 {
            let rows = _mm512_cvtph_ps(ymm(&rows[term]));
            for column in 0..8 {
                sums[column] = _mm512_fmadd_ps(rows, _mm512_set1_ps(columns[column][term]), sums[column]);
            }
        }
    }
    let nan = _mm512_set1_ps(crate::CANONICAL_NAN);
    for sum in &mut sums {
        *sum = _mm512_mask_mov_ps(*sum, _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(*sum, *sum), nan);
    }
    let [e0, e1, e2, e3, e4, e5, e6, e7] = sums.map(|s| _mm512_castps_si512(s));
    for ([even, odd], columns) in [([d0, d2], [e0, e2, e4, e6]), ([d1, d3], [e1, e3, e5, e7])] {
        let rows = turn(columns);
        *even = joined(rows[0], rows[1]);
        *odd = joined(rows[2], rows[3]);
    }
    true
}

/// Sixteen lanes of a register: four rows (columns of B) of sixteen bytes.
#[inline(always)]
fn half(register: &Register, which: usize) -> __m512i {
    let (halves, _) = register.as_chunks::<16>();
    // SAFETY: both are 64 bytes, and any bits are valid.
    unsafe { transmute::<[u32; 16], __m512i>(halves[which]) }
}

#[inline(always)]
fn joined(low: __m512i, high: __m512i) -> Register {
    // SAFETY: both are 128 bytes, and any bits are valid.
    unsafe { transmute::<[__m512i; 2], Register>([low, high]) }
}

#[inline(always)]
fn ymm(codes: &[u16; 16]) -> __m256i {
    // SAFETY: both are 32 bytes, and any bits are valid.
    unsafe { transmute::<[u16; 16], __m256i>(*codes) }
}

/// Four by four 32-bit elements in each part of 128 bits: element n of all vectors becomes vector n.
#[target_feature(enable = "avx512f")]
fn turn(v: [__m512i; 4]) -> [__m512i; 4] {
    let (low, low2) = (_mm512_unpacklo_epi32(v[0], v[1]), _mm512_unpacklo_epi32(v[2], v[3]));
    let (high, high2) = (_mm512_unpackhi_epi32(v[0], v[1]), _mm512_unpackhi_epi32(v[2], v[3]));
    [
        _mm512_unpacklo_epi64(low, low2),
        _mm512_unpackhi_epi64(low, low2),
        _mm512_unpacklo_epi64(high, high2),
        _mm512_unpackhi_epi64(high, high2),
    ]
}

/// Whether an e4m3 code is NaN.
#[target_feature(enable = "avx512f,avx512bw")]
fn any_nan(registers: &[&Register]) -> bool {
    let mut most = _mm512_setzero_si512();
    for register in registers {
        for which in 0..2 {
            // Twice the code: the sign is gone, and NaN is the largest.
            let codes = half(register, which);
            most = _mm512_max_epu8(most, _mm512_add_epi8(codes, codes));
        }
    }
    _mm512_cmpeq_epi8_mask(most, _mm512_set1_epi8(0xFEu8 as i8)) != 0
}

/// 8-bit codes, each in the upper byte of a word, to f16.
#[target_feature(enable = "avx512f,avx512bw")]
fn f16_codes<const E4M3: bool>(words: __m512i) -> __m512i {
    if E4M3 {
        // The exponent has four bits, f16's five: its upper one is zero, and not the sign that is shifted in.
        _mm512_and_si512(_mm512_srai_epi16::<1>(words), _mm512_set1_epi16(0xBFFFu16 as i16))
    } else {
        words
    }
}

/// Two terms' codes of A.
#[inline(always)]
fn put_codes(to: &mut [[u16; 16]], codes: __m512i) {
    if let Some(to) = to.first_chunk_mut::<2>() {
        // SAFETY: both are 64 bytes, and any bits are valid.
        *to = unsafe { transmute::<__m512i, [[u16; 16]; 2]>(codes) };
    }
}

#[target_feature(enable = "avx512f,avx512bw")]
fn halves_of_a<const K: usize>(a: &[&Register]) -> Codes<K> {
    let mut codes = Codes([[0u16; 16]; K]);
    for (pair, out) in a.as_chunks::<2>().0.iter().zip(codes.0.as_chunks_mut::<8>().0) {
        let rows = [half(pair[0], 0), half(pair[0], 1), half(pair[1], 0), half(pair[1], 1)];
        let (low, low2) = (_mm512_unpacklo_epi16(rows[0], rows[1]), _mm512_unpacklo_epi16(rows[2], rows[3]));
        let (high, high2) = (_mm512_unpackhi_epi16(rows[0], rows[1]), _mm512_unpackhi_epi16(rows[2], rows[3]));
        let two = [
            _mm512_unpacklo_epi32(low, low2),
            _mm512_unpackhi_epi32(low, low2),
            _mm512_unpacklo_epi32(high, high2),
            _mm512_unpackhi_epi32(high, high2),
        ];
        // Each part of 128 bits has four rows of one term, then of the next.
        let order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
        for (n, two) in two.into_iter().enumerate() {
            put_codes(&mut out[2 * n..], _mm512_permutexvar_epi64(order, two));
        }
    }
    codes
}

#[target_feature(enable = "avx512f,avx512bw")]
fn bytes_of_a<const K: usize, const E4M3: bool>(a: &[&Register]) -> Codes<K> {
    let mut codes = Codes([[0u16; 16]; K]);
    for (pair, out) in a.as_chunks::<2>().0.iter().zip(codes.0.as_chunks_mut::<16>().0) {
        let rows = [half(pair[0], 0), half(pair[0], 1), half(pair[1], 0), half(pair[1], 1)];
        let (low, low2) = (_mm512_unpacklo_epi8(rows[0], rows[1]), _mm512_unpacklo_epi8(rows[2], rows[3]));
        let (high, high2) = (_mm512_unpackhi_epi8(rows[0], rows[1]), _mm512_unpackhi_epi8(rows[2], rows[3]));
        let four = [
            _mm512_unpacklo_epi16(low, low2),
            _mm512_unpackhi_epi16(low, low2),
            _mm512_unpacklo_epi16(high, high2),
            _mm512_unpackhi_epi16(high, high2),
        ];
        // Each part of 128 bits has four rows of one term, then of the next, of four terms: brought where the bytes
        // that become words lie in order of the terms.
        let order = _mm512_setr_epi32(0, 4, 2, 6, 8, 12, 10, 14, 1, 5, 3, 7, 9, 13, 11, 15);
        for (n, four) in four.into_iter().enumerate() {
            let (four, zero) = (_mm512_permutexvar_epi32(order, four), _mm512_setzero_si512());
            put_codes(&mut out[4 * n..], f16_codes::<E4M3>(_mm512_unpacklo_epi8(zero, four)));
            put_codes(&mut out[4 * n + 2..], f16_codes::<E4M3>(_mm512_unpackhi_epi8(zero, four)));
        }
    }
    codes
}

/// Four columns' values of eight terms.
#[target_feature(enable = "avx512f")]
fn put_values(to: &mut [[f32; 8]], codes: __m512i, scale: f32) {
    let scale = _mm512_set1_ps(scale);
    let low = _mm512_mul_ps(_mm512_cvtph_ps(_mm512_castsi512_si256(codes)), scale);
    let high = _mm512_mul_ps(_mm512_cvtph_ps(_mm512_extracti64x4_epi64::<1>(codes)), scale);
    if let Some(to) = to.first_chunk_mut::<4>() {
        // SAFETY: both are 128 bytes, and any bits are valid.
        *to = unsafe { transmute::<[__m512; 2], [[f32; 8]; 4]>([low, high]) };
    }
}

#[target_feature(enable = "avx512f,avx512bw")]
fn halves_of_b<const EIGHTS: usize>(b: &[&Register], scale: f32) -> Values<EIGHTS> {
    let mut values = Values([[[0f32; 8]; 8]; EIGHTS]);
    for (register, out) in b.iter().zip(&mut values.0) {
        for which in 0..2 {
            put_values(&mut out[4 * which..], half(register, which), scale);
        }
    }
    values
}

#[target_feature(enable = "avx512f,avx512bw")]
fn bytes_of_b<const EIGHTS: usize, const E4M3: bool>(b: &[&Register], scale: f32) -> Values<EIGHTS> {
    let mut values = Values([[[0f32; 8]; 8]; EIGHTS]);
    for (register, out) in b.iter().zip(values.0.as_chunks_mut::<2>().0) {
        for which in 0..2 {
            let (columns, zero) = (half(register, which), _mm512_setzero_si512());
            let (first, second) = (_mm512_unpacklo_epi8(zero, columns), _mm512_unpackhi_epi8(zero, columns));
            put_values(&mut out[0][4 * which..], f16_codes::<E4M3>(first), scale);
            put_values(&mut out[1][4 * which..], f16_codes::<E4M3>(second), scale);
        }
    }
    values
}
