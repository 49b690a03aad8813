//! `mma.sync` of m16n8 on registers as a warp holds them, without a detour through tables of places.
//!
//! For every element type a register of A or B, seen as 128 bytes, is eight rows (columns of B) of sixteen bytes: lane 4g + t holds
//! bytes 4t to 4t + 3 of row g. Register r of A holds rows 8 (r % 2) and up, from byte 16 (r / 2) of the row on; register r of B all
//! columns from byte 16 r on. C and D: two registers of f32 side by side, or one of f16 pairs, are eight rows of eight elements.
//! Source: `crate::fragments::mma_element`, which the tests compare it with.
//!
//! It only lays out and decodes: sums are [`super::lanes`]'s, but for the plain f32 one, which is repeated here because in place it
//! takes half the time. Limits: m16n8 only, no integers, no f64.

use super::lanes::{LANES, side_by_side, truncate_if};
use super::simd::{Portable, Simd};
#[cfg(target_arch = "x86_64")]
use super::sixteen;
use super::{Accumulator, Element, Numerics, Op, Product, multiply_accumulate};

/// A register of all lanes.
pub type Register = [u32; 32];

const ROWS: usize = 16;
/// The longest k.
const MOST: usize = 32;

/// Whether products of elements are exact in f32: 22 bits at most, and exponents far from both ends.
pub(super) fn exact_products(product: &Product) -> bool {
    [product.a, product.b].iter().all(|e| *e == Element::F16 || e.is_fp8())
}

/// Registers that a product of this shape takes for A, B and C; none where [`multiply_accumulate_registers`] cannot do it.
pub fn register_counts(product: &Product) -> Option<[usize; 3]> {
    let &Product { m, n, k, a, b, accumulator, op } = product;
    let per_row = 16 * 8 / a.bits();
    let fits = m == ROWS && n == LANES && op == Op::MmaSync && a.bits() == b.bits();
    (fits && k.is_multiple_of(per_row) && matches!(k, 4 | 8 | 16 | 32)).then(|| {
        let steps = k / per_row;
        [2 * steps, steps, if accumulator == Accumulator::F16 { 2 } else { 4 }]
    })
}

/// D = A x B + C on whole registers; as many of each as [`register_counts`] says.
///
/// # Panics
/// If that says nothing, or there are fewer, which is a bug of the caller.
pub fn multiply_accumulate_registers(
    numerics: Numerics,
    product: &Product,
    a: &[&Register],
    b: &[&Register],
    c: &[&Register],
    d: &mut [Register],
) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::is_x86_feature_detected as has;
        if has!("avx2") && has!("f16c") && has!("fma") {
            if has!("avx512f") && has!("avx512vl") && has!("avx512bw") && has!("avx512dq") {
                // SAFETY: the processor has these.
                return unsafe { with_avx512(numerics, product, a, b, c, d) };
            }
            // SAFETY: the processor has these.
            return unsafe { with_avx2(numerics, product, a, b, c, d) };
        }
    }
    with::<Portable, 8>(numerics, product, a, b, c, d);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c,fma")]
fn with_avx2(n: Numerics, p: &Product, a: &[&Register], b: &[&Register], c: &[&Register], d: &mut [Register]) {
    with::<super::simd::Avx2, 8>(n, p, a, b, c, d);
}

/// Sixteen lanes where they will do, else the same eight with twice the registers to keep sums in.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c,fma,avx512f,avx512vl,avx512bw,avx512dq")]
fn with_avx512(n: Numerics, p: &Product, a: &[&Register], b: &[&Register], c: &[&Register], d: &mut [Register]) {
    if n == Numerics::Fast && sixteen::fits(p) && sixteen::sum(p, a, b, c, d) {
        return;
    }
    with::<super::simd::Avx2, 16>(n, p, a, b, c, d);
}

/// `GROUP` rows are summed at a time.
#[inline(always)]
fn with<S: Simd, const GROUP: usize>(
    numerics: Numerics,
    product: &Product,
    a: &[&Register],
    b: &[&Register],
    c: &[&Register],
    d: &mut [Register],
) {
    match (numerics, product.k, exact_products(product)) {
        (Numerics::Fast, 4, _) => fast::<S, GROUP, 4, false>(product, a, b, c, d),
        (Numerics::Fast, 8, true) => fast::<S, GROUP, 8, true>(product, a, b, c, d),
        (Numerics::Fast, 8, _) => fast::<S, GROUP, 8, false>(product, a, b, c, d),
        (Numerics::Fast, 16, true) => fast::<S, GROUP, 16, true>(product, a, b, c, d),
        (Numerics::Fast, 16, _) => fast::<S, GROUP, 16, false>(product, a, b, c, d),
        (Numerics::Fast, MOST, true) => fast::<S, GROUP, MOST, true>(product, a, b, c, d),
        (_, k, _) => {
            let (mut left, mut right) = ([0f32; ROWS * MOST], [0f32; LANES * MOST]);
            let mut sums = [[0f32; LANES]; ROWS];
            operands::<S>(product, a, b, &mut left, &mut right, k);
            let start = accumulators::<S>(product, c);
            multiply_accumulate(
                numerics,
                product,
                &left[..ROWS * k],
                &right[..LANES * k],
                start.as_flattened(),
                sums.as_flattened_mut(),
            );
            results(product, &sums, d);
        }
    }
}

/// Plain f32 sums in the order of k, each product rounded; `EXACT` says that no product needs it.
#[inline(always)]
fn fast<S: Simd, const GROUP: usize, const K: usize, const EXACT: bool>(
    product: &Product,
    a: &[&Register],
    b: &[&Register],
    c: &[&Register],
    d: &mut [Register],
) {
    let (mut left, mut right) = ([[0f32; K]; ROWS], [[0f32; K]; LANES]);
    operands::<S>(product, a, b, left.as_flattened_mut(), right.as_flattened_mut(), K);
    let right = side_by_side::<S, K>(&right);
    let mut sums = accumulators::<S>(product, c);
    for (sums, left) in sums.as_chunks_mut::<GROUP>().0.iter_mut().zip(left.as_chunks::<GROUP>().0) {
        let mut at = [S::splat(0.0); GROUP];
        for (at, sum) in at.iter_mut().zip(&*sums) {
            *at = S::load(sum);
        }
        for (term, right) in right.iter().enumerate() {
            let right = S::load(right);
            for row in 0..GROUP {
                let left = S::splat(left[row][term]);
                at[row] = if EXACT {
                    S::add_exact_product(at[row], left, right)
                } else {
                    S::add(at[row], S::mul(left, right))
                };
            }
        }
        for (sum, at) in sums.iter_mut().zip(at) {
            S::store(S::canonical(at), sum);
        }
    }
    if product.accumulator == Accumulator::F16 {
        for sum in sums.as_flattened_mut() {
            *sum = if sum.is_nan() { *sum } else { crate::f16::to_f32(crate::f16::from_f32(*sum)) };
        }
    }
    results(product, &sums, d);
}

/// Decodes A by rows and B by columns, each of `k` values.
#[inline(always)]
fn operands<S: Simd>(
    product: &Product,
    a: &[&Register],
    b: &[&Register],
    left: &mut [f32],
    right: &mut [f32],
    k: usize,
) {
    let per_row = 16 * 8 / product.a.bits();
    for (r, register) in a.iter().enumerate().take(2 * k / per_row) {
        let first = 8 * (r % 2) * k + (r / 2) * per_row;
        decode::<S>(product.a, register, &mut left[first..], k);
    }
    for (r, register) in b.iter().enumerate().take(k / per_row) {
        decode::<S>(product.b, register, &mut right[r * per_row..], k);
    }
}

/// Eight rows of sixteen bytes, `stride` values from one to the next.
// NOTE: no closures: see `simd`.
#[inline(always)]
fn decode<S: Simd>(element: Element, register: &Register, out: &mut [f32], stride: usize) {
    let rows = register.as_chunks::<4>().0.iter().enumerate();
    match element {
        Element::E4m3 => {
            for (row, words) in rows {
                let mut halves = [0u16; 16];
                for (half, code) in halves.iter_mut().zip(bytes(words)) {
                    let (sign, magnitude) = (u16::from(code & 0x80), u16::from(code & 0x7F));
                    // The fields are f16's, eight binades up; subnormal codes too. All ones is NaN.
                    *half = sign << 8 | magnitude << 7 | if magnitude == 0x7F { 0x7FFF } else { 0 };
                }
                let (halves, out) = (halves.as_chunks().0, row_of::<16>(out, row * stride).as_chunks_mut().0);
                S::store(S::mul(S::halves(&halves[0]), S::splat(256.0)), &mut out[0]);
                S::store(S::mul(S::halves(&halves[1]), S::splat(256.0)), &mut out[1]);
            }
        }
        Element::E5m2 => {
            for (row, words) in rows {
                let mut halves = [0u16; 16];
                for (half, code) in halves.iter_mut().zip(bytes(words)) {
                    *half = u16::from(code) << 8;
                }
                let (halves, out) = (halves.as_chunks().0, row_of::<16>(out, row * stride).as_chunks_mut().0);
                S::store(S::halves(&halves[0]), &mut out[0]);
                S::store(S::halves(&halves[1]), &mut out[1]);
            }
        }
        Element::F16 => {
            for (row, words) in rows {
                S::store(S::halves(&halves(words)), row_of(out, row * stride));
            }
        }
        Element::Bf16 => {
            for (row, words) in rows {
                for (out, half) in row_of::<8>(out, row * stride).iter_mut().zip(halves(words)) {
                    *out = f32::from_bits(u32::from(half) << 16);
                }
            }
        }
        Element::Tf32 => {
            for (row, words) in rows {
                let out = row_of::<4>(out, row * stride);
                for (out, word) in out.iter_mut().zip(words) {
                    *out = f32::from_bits(*word);
                }
                truncate_if(Element::Tf32, out);
            }
        }
    }
}

/// The `N` values from `first` on.
#[inline(always)]
fn row_of<const N: usize>(out: &mut [f32], first: usize) -> &mut [f32; N] {
    match out[first..].first_chunk_mut() {
        Some(row) => row,
        None => unreachable!("the operand has a row of {N} values from {first} on"),
    }
}

#[inline(always)]
fn bytes(words: &[u32; 4]) -> [u8; 16] {
    let mut out = [0; 16];
    for (out, word) in out.as_chunks_mut::<4>().0.iter_mut().zip(words) {
        *out = word.to_le_bytes();
    }
    out
}

#[inline(always)]
fn halves(words: &[u32; 4]) -> [u16; 8] {
    let (mut out, bytes) = ([0; 8], bytes(words));
    for (out, pair) in out.iter_mut().zip(bytes.as_chunks::<2>().0) {
        *out = u16::from_le_bytes(*pair);
    }
    out
}

/// C by rows.
#[inline(always)]
fn accumulators<S: Simd>(product: &Product, c: &[&Register]) -> [[f32; LANES]; ROWS] {
    let mut out = [[0f32; LANES]; ROWS];
    for (half, rows) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        if product.accumulator == Accumulator::F16 {
            decode::<S>(Element::F16, c[half], rows.as_flattened_mut(), LANES);
        } else {
            let (even, odd) = (c[2 * half], c[2 * half + 1]);
            for (lane, pair) in rows.as_flattened_mut().as_chunks_mut::<2>().0.iter_mut().enumerate() {
                *pair = [f32::from_bits(even[lane]), f32::from_bits(odd[lane])];
            }
        }
    }
    out
}

/// Rows to registers of D; for f16 all values are such already.
#[inline(always)]
fn results(product: &Product, sums: &[[f32; LANES]; ROWS], d: &mut [Register]) {
    for (half, rows) in sums.as_chunks::<8>().0.iter().enumerate() {
        let (pairs, _) = rows.as_flattened().as_chunks::<2>();
        if product.accumulator == Accumulator::F16 {
            for (word, pair) in d[half].iter_mut().zip(pairs) {
                *word = code_of(pair[0]) | code_of(pair[1]) << 16;
            }
        } else {
            let (even, odd) = d[2 * half..].split_at_mut(1);
            for ((even, odd), pair) in even[0].iter_mut().zip(&mut odd[0]).zip(pairs) {
                (*even, *odd) = (pair[0].to_bits(), pair[1].to_bits());
            }
        }
    }
}

/// The code of a value that is an f16's.
#[inline(always)]
fn code_of(value: f32) -> u32 {
    let (sign, magnitude) = (value.to_bits() >> 16 & 0x8000, value.to_bits() & 0x7FFF_FFFF);
    let normal = magnitude.wrapping_sub(112 << 23) >> 13;
    // Adding 0.5 aligns the significand so that the unit's last place is f16's smallest step.
    let small = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0.5f32.to_bits());
    let code = if magnitude < 113 << 23 { small } else { normal };
    let code = if magnitude >= 0x4780_0000 { 0x7C00 } else { code };
    if magnitude > 0x7F80_0000 { 0x7FFF } else { sign | code }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fragments::{Operand, mma_element, mma_len};
    use crate::philox::Philox4x32;
    use crate::tensor_core::Generation;

    /// One lane's element of a fragment: its place, register and shift.
    fn places(operand: Operand, p: &Product, bits: usize) -> Vec<(usize, usize, usize, usize, usize)> {
        let mut out = Vec::new();
        let packed = 32 / bits;
        for lane in 0..32 {
            for index in 0..mma_len(operand, p.m, p.n, p.k) {
                let (row, column) = mma_element(operand, p.m, bits, lane, index);
                out.push((row, column, lane, index / packed, index % packed * bits));
            }
        }
        out
    }

    #[test]
    fn registers_give_what_dense_operands_give() {
        use Element::*;
        let random = Philox4x32::new(11, 0);
        let mut at = 0;
        let mut next = || {
            at += 1;
            random.at(at)[0]
        };
        for (a, b, ks) in [
            (E4m3, E4m3, [16, 32]),
            (E5m2, E4m3, [16, 32]),
            (F16, F16, [8, 16]),
            (Bf16, Bf16, [8, 16]),
            (Tf32, Tf32, [4, 8]),
        ] {
            for (k, accumulator, round) in ks.into_iter().flat_map(|k| {
                [Accumulator::F32, Accumulator::F16]
                    .into_iter()
                    .flat_map(move |c| (0..8).map(move |round| (k, c, round)))
            }) {
                if accumulator == Accumulator::F16 && matches!(a, Bf16 | Tf32) {
                    continue;
                }
                let p = Product { m: 16, n: 8, k, a, b, accumulator, op: Op::MmaSync };
                let counts = register_counts(&p).expect("an instruction's shape");
                // Any bits at first, NaN and infinity among them, then tame exponents, then anything but e4m3's NaN.
                let tame = match a {
                    E4m3 if round > 5 => 0xFEFE_FEFE,
                    E4m3 | E5m2 => 0xBFBF_BFBF,
                    _ => 0xBFFF_BFFF,
                };
                let mut fill = |n: usize, mask: u32| -> Vec<Register> {
                    (0..n).map(|_| std::array::from_fn(|_| next() & if round < 2 { u32::MAX } else { mask })).collect()
                };
                let registers = [fill(counts[0], tame), fill(counts[1], tame), fill(counts[2], 0xBFFF_BFFF)];
                let (mut dense_a, mut dense_b, mut dense_c) = ([0f32; 512], [0f32; 256], [0f32; 128]);
                for (row, column, lane, r, shift) in places(Operand::A, &p, a.bits()) {
                    dense_a[row * k + column] = a.decode(registers[0][r][lane] >> shift);
                }
                for (row, column, lane, r, shift) in places(Operand::B, &p, b.bits()) {
                    dense_b[column * k + row] = b.decode(registers[1][r][lane] >> shift);
                }
                let c_bits = if accumulator == Accumulator::F16 { 16 } else { 32 };
                for (row, column, lane, r, shift) in places(Operand::C, &p, c_bits) {
                    let word = registers[2][r][lane] >> shift;
                    dense_c[row * 8 + column] =
                        if c_bits == 16 { crate::f16::to_f32(word as u16) } else { f32::from_bits(word) };
                }
                for numerics in
                    [Numerics::Fast, Numerics::Faithful(Generation::Ada), Numerics::Faithful(Generation::Hopper)]
                {
                    let mut want = [0f32; 128];
                    let (x, y) = (&dense_a[..16 * k], &dense_b[..8 * k]);
                    multiply_accumulate(numerics, &p, x, y, &dense_c, &mut want);
                    let of = |n: usize| -> Vec<&Register> { registers[n].iter().collect() };
                    let mut outputs = vec![("chosen", vec![[0u32; 32]; counts[2]]); 2];
                    #[cfg(target_arch = "x86_64")]
                    if is_x86_feature_detected!("avx2")
                        && is_x86_feature_detected!("f16c")
                        && is_x86_feature_detected!("fma")
                    {
                        let mut d = vec![[0u32; 32]; counts[2]];
                        // SAFETY: the processor has these.
                        unsafe { with_avx2(numerics, &p, &of(0), &of(1), &of(2), &mut d) };
                        outputs.push(("AVX2", d));
                    }
                    multiply_accumulate_registers(numerics, &p, &of(0), &of(1), &of(2), &mut outputs[0].1);
                    outputs[1].0 = "portable";
                    with::<Portable, 8>(numerics, &p, &of(0), &of(1), &of(2), &mut outputs[1].1);
                    for (build, got) in outputs {
                        for (row, column, lane, r, shift) in places(Operand::C, &p, c_bits) {
                            let value = want[row * 8 + column];
                            let want =
                                if c_bits == 16 { u32::from(crate::f16::from_f32(value)) } else { value.to_bits() };
                            let got = got[r][lane] >> shift & (u32::MAX >> (32 - c_bits));
                            assert_eq!(got, want, "{build} {p:?} {numerics:?} row {row} column {column} round {round}");
                        }
                    }
                }
            }
        }
    }
}
