//! Tensor-core products as an NVIDIA H200 computed them (2026-11-21, CUDA 13.0): registers in, registers out, bit for bit.
//!
//! `h200_mma.bin` is a sample of six million outputs that were compared: for each instruction the tiles in which plain f32 accumulation
//! goes wrong most often, NaN and infinities mix with numbers, and subnormal results abound. A record is
//! {wgmma?, type of A, type of B, f16 accumulator?, k, tiles, 0, 0}, then for each tile the registers of A, B, C and D, little-endian,
//! lane by lane in register order. So this also tests the places of `fragments` (a warp's part of `wgmma` lies as `mma.sync` does).

use warpsmith_num::fragments::{Operand, mma_element, mma_len};
use warpsmith_num::tensor_core::{Accumulator, Element, Generation, Numerics, Op, Product, multiply_accumulate};
use warpsmith_num::{f16, tensor_core};

/// Registers of an operand of one tile.
struct Registers<'a>(&'a [u8]);

impl<'a> Registers<'a> {
    fn take(bytes: &mut &'a [u8], elements: usize, bits: usize) -> Self {
        let (taken, rest) = bytes.split_at(elements * bits / 8 * 32);
        *bytes = rest;
        Registers(taken)
    }

    fn element(&self, lane: usize, index: usize, bits: usize) -> u32 {
        let packed = 32 / bits;
        let at = (index / packed * 32 + lane) * 4;
        let register = u32::from_le_bytes([self.0[at], self.0[at + 1], self.0[at + 2], self.0[at + 3]]);
        (register >> (index % packed * bits)) & (u32::MAX >> (32 - bits))
    }
}

#[test]
fn products_are_those_of_an_h200() {
    const ELEMENTS: [Element; 5] = [Element::F16, Element::Bf16, Element::Tf32, Element::E4m3, Element::E5m2];
    let mut bytes: &[u8] = include_bytes!("h200_mma.bin");
    let mut tiles = 0;
    while let Some((header, rest)) = bytes.split_at_checked(8) {
        bytes = rest;
        let (a, b) = (ELEMENTS[header[1] as usize], ELEMENTS[header[2] as usize]);
        let accumulator = if header[3] == 1 { Accumulator::F16 } else { Accumulator::F32 };
        let op = if header[0] == 1 { Op::Wgmma } else { Op::MmaSync };
        let product = Product { m: 16, n: 8, k: header[4] as usize, a, b, accumulator, op };
        for tile in 0..header[5] {
            check(&product, &mut bytes, &format!("{product:?}, tile {tile}"));
            tiles += 1;
        }
    }
    assert_eq!(tiles, 63);
}

fn check(product: &Product, bytes: &mut &[u8], label: &str) {
    let &Product { m, n, k, a: a_type, b: b_type, accumulator, .. } = product;
    let c_bits = if accumulator == Accumulator::F16 { 16 } else { 32 };
    let c_value = |code: u32| if c_bits == 16 { f16::to_f32(code as u16) } else { f32::from_bits(code) };
    let len = |operand| mma_len(operand, m, n, k);
    let a_registers = Registers::take(bytes, len(Operand::A), a_type.bits());
    let b_registers = Registers::take(bytes, len(Operand::B), b_type.bits());
    let c_registers = Registers::take(bytes, len(Operand::C), c_bits);
    let d_registers = Registers::take(bytes, len(Operand::C), c_bits);
    let (mut a, mut b, mut c, mut d) = (vec![0.0; m * k], vec![0.0; n * k], vec![0.0; m * n], vec![0.0; m * n]);
    for lane in 0..32 {
        for index in 0..len(Operand::A) {
            let (row, column) = mma_element(Operand::A, m, a_type.bits(), lane, index);
            a[row * k + column] = a_type.decode(a_registers.element(lane, index, a_type.bits()));
        }
        for index in 0..len(Operand::B) {
            let (row, column) = mma_element(Operand::B, m, b_type.bits(), lane, index);
            b[column * k + row] = b_type.decode(b_registers.element(lane, index, b_type.bits()));
        }
        for index in 0..len(Operand::C) {
            let (row, column) = mma_element(Operand::C, m, c_bits, lane, index);
            c[row * n + column] = c_value(c_registers.element(lane, index, c_bits));
        }
    }
    let hopper = Generation::Hopper;
    let mut by_definition = d.clone();
    multiply_accumulate(Numerics::Faithful(hopper), product, &a, &b, &c, &mut d);
    tensor_core::multiply_accumulate_by_definition(hopper, product, &a, &b, &c, &mut by_definition);
    for lane in 0..32 {
        for index in 0..len(Operand::C) {
            let (row, column) = mma_element(Operand::C, m, c_bits, lane, index);
            let want = d_registers.element(lane, index, c_bits);
            for got in [d[row * n + column], by_definition[row * n + column]] {
                let got = if c_bits == 16 { f16::from_f32(got) as u32 } else { got.to_bits() };
                assert_eq!(got, want, "{label}, row {row}, column {column}: {got:08x}, the GPU gave {want:08x}");
            }
        }
    }
}
