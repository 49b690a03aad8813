//! Every build of [`super`] against the definition in integers, on operands made to hurt.

use super::*;
use crate::philox::Philox4x32;
use crate::tensor_core::{Accumulator, Generation, Numerics, Op};

/// Kinds of operands; each tile takes one for A and B and one for C.
#[derive(Debug, Clone, Copy)]
enum Kind {
    /// Any bits: NaN and infinities among them.
    AnyBits,
    /// Finite, exponents near 0.
    Near,
    /// Finite, any exponent.
    Wide,
    /// Subnormals and the smallest normals.
    Tiny,
    /// The largest exponents.
    Huge,
    /// Mostly zeros of both signs.
    Sparse,
    Zero,
}

const KINDS: [Kind; 7] = [Kind::AnyBits, Kind::Near, Kind::Wide, Kind::Tiny, Kind::Huge, Kind::Sparse, Kind::Zero];

fn code(kind: Kind, format: crate::format::Format, random: [u32; 4]) -> u32 {
    let bits = format.exponent_bits + format.mantissa_bits;
    let top = format.infinity() >> format.mantissa_bits;
    let middle = top / 2;
    let [word, spread, choice, sign] = random;
    let field = match kind {
        Kind::AnyBits => return word & format.sign_bit().wrapping_mul(2).wrapping_sub(1),
        Kind::Near => middle - 3 + spread % 7,
        Kind::Wide => spread % top,
        Kind::Tiny => spread % 3,
        Kind::Huge => top - 1 - spread % 3,
        Kind::Sparse if choice % 4 > 0 => return (sign & 1) << bits,
        Kind::Sparse => spread % top,
        Kind::Zero => return (sign & 1) << bits,
    };
    (sign & 1) << bits | field << format.mantissa_bits | word & ((1 << format.mantissa_bits) - 1)
}

/// All instructions' element types and shapes, and some shapes that no instruction has.
fn products() -> Vec<Product> {
    use Element::*;
    let mut products = Vec::new();
    for op in [Op::MmaSync, Op::Wmma, Op::Wgmma] {
        for (element, other, k) in [
            (F16, F16, 8),
            (F16, F16, 16),
            (Bf16, Bf16, 8),
            (Bf16, Bf16, 16),
            (Tf32, Tf32, 4),
            (Tf32, Tf32, 8),
            (E4m3, E4m3, 16),
            (E4m3, E4m3, 32),
            (E5m2, E5m2, 32),
            (E4m3, E5m2, 32),
            (E5m2, E4m3, 32),
            (F16, F16, 24),
            (E4m3, E4m3, 6),
        ] {
            for accumulator in [Accumulator::F32, Accumulator::F16] {
                let wide = matches!(element, Bf16 | Tf32);
                if !(wide && accumulator == Accumulator::F16) {
                    let (m, n) = if op == Op::Wmma { (19, 13) } else { (16, 8) };
                    products.push(Product { m, n, k, a: element, b: other, accumulator, op });
                }
            }
        }
    }
    products
}

#[test]
fn every_build_agrees_with_the_definition() {
    let random = Philox4x32::new(7, 0);
    let mut at = 0u64;
    let mut draw = |count: usize, kind: Kind, format: crate::format::Format| -> Vec<f32> {
        (0..count)
            .map(|_| {
                at += 1;
                format.decode(code(kind, format, random.at(at))) as f32
            })
            .collect()
    };
    for product in products() {
        let Product { m, n, k, accumulator, .. } = product;
        let c_format = if accumulator == Accumulator::F16 { Element::F16.format() } else { crate::format::Format::F32 };
        for tile in 0..KINDS.len() * KINDS.len() {
            let (kind, c_kind) = (KINDS[tile % KINDS.len()], KINDS[tile / KINDS.len()]);
            let mut a = draw(m * k, kind, product.a.format());
            let mut b = draw(n * k, kind, product.b.format());
            let c = draw(m * n, c_kind, c_format);
            if tile % 2 == 1 {
                // Cancellation: the second half of the terms takes the first away.
                for row in a.chunks_exact_mut(k) {
                    let (first, second) = row.split_at_mut(k / 2);
                    second.iter_mut().zip(first).for_each(|(second, first)| *second = -*first);
                }
                for column in b.chunks_exact_mut(k) {
                    column.copy_within(..k / 2, k / 2);
                }
            }
            for generation in [Generation::Ampere, Generation::Ada, Generation::Hopper] {
                let Some(plan) = Plan::of(Numerics::Faithful(generation), &product) else { unreachable!() };
                let (mut want, mut got, mut plain) = (vec![0.0; m * n], vec![0.0; m * n], vec![0.0; m * n]);
                exact::multiply_accumulate(&product, &plan, &a, &b, &c, &mut want);
                super::super::multiply_accumulate(Numerics::Faithful(generation), &product, &a, &b, &c, &mut got);
                let label = format!("{generation:?} {product:?} of {kind:?} and {c_kind:?}");
                assert_eq!(first_difference(&want, &got), None, "{label}");
                if plan.chunks_are_supported(k) {
                    faithful_with::<Portable>(&product, &plan, &a, &b, &c, &mut plain);
                    assert_eq!(first_difference(&want, &plain), None, "{label}, portable");
                }
            }
            let (mut plain, mut got) = (vec![0.0; m * n], vec![0.0; m * n]);
            fast(&product, &a, &b, &c, &mut got);
            fast_with::<Portable>(&product, &a, &b, &c, &mut plain);
            assert_eq!(first_difference(&plain, &got), None, "fast {product:?} of {kind:?} and {c_kind:?}");
        }
    }
}

#[test]
fn fast_adds_in_the_order_of_k() {
    let product = Product {
        m: 1,
        n: 1,
        k: 40,
        a: Element::Bf16,
        b: Element::Bf16,
        accumulator: Accumulator::F32,
        op: Op::MmaSync,
    };
    let a: Vec<f32> = (0..40).map(|i| 1.0 + i as f32 / 128.0).collect();
    let b: Vec<f32> = (0..40).map(|i| if i % 3 == 0 { -65536.0 } else { 3.0 }).collect();
    let want = a.iter().zip(&b).fold(0.1f32, |sum, (a, b)| sum + a * b);
    let mut d = [0.0];
    fast(&product, &a, &b, &[0.1], &mut d);
    assert_eq!(d, [want]);
}

fn first_difference(want: &[f32], got: &[f32]) -> Option<String> {
    let at = want.iter().zip(got).position(|(want, got)| want.to_bits() != got.to_bits())?;
    Some(format!("at {at}: {:08x} is not {:08x}", got[at].to_bits(), want[at].to_bits()))
}
