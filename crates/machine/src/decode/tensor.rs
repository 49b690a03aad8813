//! `mma.sync`, `wmma` and `movmatrix`.
//! Source: PTX ISA 9.0, "Warp Level Matrix Multiply-Accumulate Instructions"; fragment places are `warpsmith_num`'s.

use warpsmith_num::fragments::{self, Operand as Side};
use warpsmith_ptx::ast::{Instruction, Operand, Ty};

use super::integer::operand;
use super::{Decoded, Decoder, Mods, Unsupported, push};
use crate::code::*;

fn shape(word: &str) -> Option<(usize, usize, usize)> {
    let (m, rest) = word.strip_prefix('m')?.split_once('n')?;
    let (n, k) = rest.split_once('k')?;
    Some((m.parse().ok()?, n.parse().ok()?, k.parse().ok()?))
}

/// Shapes of wmma whose matrices have elements of this type.
fn wmma_shapes(element: Elem) -> &'static [(usize, usize, usize)] {
    match element {
        Elem::F16 | Elem::Bf16 | Elem::S8 | Elem::U8 => &[(16, 16, 16), (32, 8, 16), (8, 32, 16)],
        Elem::F32 => &[(16, 16, 16), (32, 8, 16), (8, 32, 16), (16, 16, 8)],
        Elem::S32 => &[(16, 16, 16), (32, 8, 16), (8, 32, 16), (8, 8, 32), (8, 8, 128)],
        Elem::Tf32 => &[(16, 16, 8)],
        Elem::F64 => &[(8, 8, 4)],
        Elem::S4 | Elem::U4 => &[(8, 8, 32)],
        Elem::B1 => &[(8, 8, 128)],
        Elem::E4m3 | Elem::E5m2 => &[],
    }
}

/// What single bits are multiplied by: `xor.popc` or `and.popc`; true is `and`.
fn bit_product(m: &mut Mods) -> Option<bool> {
    if !m.take("popc") {
        return None;
    }
    if m.take("and") { Some(true) } else { m.take("xor").then_some(false) }
}

fn element(word: &str) -> Option<Elem> {
    Some(match word {
        "f16" => Elem::F16,
        "bf16" => Elem::Bf16,
        "tf32" => Elem::Tf32,
        "f32" => Elem::F32,
        "f64" => Elem::F64,
        "e4m3" => Elem::E4m3,
        "e5m2" => Elem::E5m2,
        "s8" => Elem::S8,
        "u8" => Elem::U8,
        "s4" => Elem::S4,
        "u4" => Elem::U4,
        "b1" => Elem::B1,
        "s32" => Elem::S32,
        _ => return None,
    })
}

fn fragment(wmma: bool, side: Side, (m, n, k): (usize, usize, usize), element: Elem, bits: usize) -> Fragment {
    let len = if wmma { fragments::wmma_len(side, m, n, k) } else { fragments::mma_len(side, m, n, k) };
    // An f16 A or B fragment of wmma has 16 elements whatever the shape: beyond the distinct ones they repeat.
    let per_lane = if wmma && side != Side::C && element == Elem::F16 { 16 } else { len };
    let packed = (32 / element.bits()).max(1);
    let (mut places, mut dense) = (Vec::with_capacity(32 * per_lane), Vec::with_capacity(32 * per_lane));
    for register in 0..per_lane / packed {
        for lane in 0..32 {
            for e in register * packed..(register + 1) * packed {
                let (row, col) = if wmma {
                    fragments::wmma_element(side, m, n, k, bits, lane, e)
                } else {
                    fragments::mma_element(side, m, bits, lane, e)
                };
                places.push((row as u16, col as u16));
                dense.push(match side {
                    Side::A => row * k + col,
                    Side::B => col * k + row,
                    Side::C => row * n + col,
                } as u16);
            }
        }
    }
    let (rows, cols) = match side {
        Side::A => (m, k),
        Side::B => (k, n),
        Side::C => (m, n),
    };
    Fragment { rows, cols, element, dense, places, packed, per_lane }
}

/// Registers of a fragment whose elements are distinct.
fn registers(f: &Fragment, side: Side, (m, n, k): (usize, usize, usize), wmma: bool) -> usize {
    let len = if wmma { fragments::wmma_len(side, m, n, k) } else { fragments::mma_len(side, m, n, k) };
    len.div_ceil(f.packed)
}

impl Decoder<'_> {
    pub(super) fn tensor(&mut self, mnemonic: &str, i: &Instruction, m: &mut Mods) -> Option<Decoded> {
        Some(match mnemonic {
            "mma" => self.mma(i, m),
            "wmma" => self.wmma(i, m),
            "movmatrix" => self.movmatrix(i, m),
            _ => return None,
        })
    }

    fn rows(&mut self, o: &Operand, f: &Fragment, write: bool) -> Result<Vec<RowId>, Unsupported> {
        let list: Vec<&Operand> = match o {
            Operand::Vector(v) => v.iter().collect(),
            o => vec![o],
        };
        let expected = f.per_lane / f.packed;
        if list.len() != expected {
            return Err(format!("{} registers, {expected} expected", list.len()));
        }
        let ty = if f.element == Elem::F64 { Ty::F64 } else { Ty::B32 };
        let width = if f.element == Elem::F64 { Width::W64 } else { Width::W32 };
        list.into_iter().map(|o| if write { self.dst(o, width) } else { self.src(o, ty) }).collect()
    }

    fn mma(&mut self, i: &Instruction, m: &mut Mods) -> Decoded {
        if !m.take("sync") || !m.take("aligned") {
            return Err("form".into());
        }
        let dims = m.find(shape).ok_or("shape")?;
        if !m.take("row") || !m.take("col") {
            return Err("layouts".into());
        }
        let saturate = m.take("satfinite");
        let _ = m.take("rn");
        let bits = bit_product(m);
        let mut types = Vec::new();
        while let Some(t) = m.find(element) {
            types.push(t);
        }
        let [d, a, b, c] = types[..] else { return Err("types".into()) };
        self.product(false, dims, [d, a, b, c], (saturate, bits), i)
    }

    fn product(
        &mut self,
        wmma: bool,
        dims: (usize, usize, usize),
        types: [Elem; 4],
        (saturate, bit_product): (bool, Option<bool>),
        i: &Instruction,
    ) -> Decoded {
        let [d, a, b, c] = types;
        let integers = matches!(a, Elem::S8 | Elem::U8 | Elem::S4 | Elem::U4);
        let fits = match (a, b) {
            (Elem::F16, Elem::F16) => matches!(d, Elem::F16 | Elem::F32) && matches!(c, Elem::F16 | Elem::F32),
            (Elem::Bf16, Elem::Bf16) | (Elem::Tf32, Elem::Tf32) => d == Elem::F32 && c == Elem::F32,
            (Elem::E4m3 | Elem::E5m2, Elem::E4m3 | Elem::E5m2) => matches!(d, Elem::F16 | Elem::F32) && d == c,
            (Elem::S8 | Elem::U8, Elem::S8 | Elem::U8) => d == Elem::S32 && c == Elem::S32,
            (Elem::S4 | Elem::U4, Elem::S4 | Elem::U4) => d == Elem::S32 && c == Elem::S32,
            (Elem::B1, Elem::B1) => d == Elem::S32 && c == Elem::S32 && bit_product.is_some(),
            (Elem::F64, Elem::F64) => d == Elem::F64 && c == Elem::F64,
            _ => false,
        };
        let bits = a.bits();
        let shapes: &[(usize, usize, usize)] = match (wmma, a) {
            (false, Elem::F16) => &[(16, 8, 8), (16, 8, 16)],
            (false, Elem::Bf16) => &[(16, 8, 8), (16, 8, 16)],
            (false, Elem::Tf32) => &[(16, 8, 4), (16, 8, 8)],
            (false, Elem::E4m3 | Elem::E5m2) => &[(16, 8, 16), (16, 8, 32)],
            (false, Elem::S8 | Elem::U8) => &[(8, 8, 16), (16, 8, 16), (16, 8, 32)],
            (false, Elem::F64) => &[(8, 8, 4), (16, 8, 4), (16, 8, 8), (16, 8, 16)],
            (false, Elem::S4 | Elem::U4) => &[(8, 8, 32), (16, 8, 32), (16, 8, 64)],
            (false, Elem::B1) => &[(8, 8, 128), (16, 8, 128), (16, 8, 256)],
            (true, Elem::S4 | Elem::U4) => &[(8, 8, 32)],
            (true, Elem::B1) => &[(8, 8, 128)],
            (true, Elem::F16 | Elem::Bf16 | Elem::S8 | Elem::U8) => &[(16, 16, 16), (32, 8, 16), (8, 32, 16)],
            (true, Elem::Tf32) => &[(16, 16, 8)],
            (true, Elem::F64) => &[(8, 8, 4)],
            _ => &[],
        };
        if !fits || !shapes.contains(&dims) || (saturate && !integers) || bit_product.is_some() != (a == Elem::B1) {
            return Err("types or shape".into());
        }
        let fragments = [
            fragment(wmma, Side::A, dims, a, bits),
            fragment(wmma, Side::B, dims, b, bits),
            fragment(wmma, Side::C, dims, c, 32),
            fragment(wmma, Side::C, dims, d, 32),
        ];
        if i.operands.len() != 4 {
            return Err("operands".into());
        }
        let [fa, fb, fc, fd] = fragments;
        let d_rows = self.rows(operand(i, 0)?, &fd, true)?;
        let mut a_rows = self.rows(operand(i, 1)?, &fa, false)?;
        let mut b_rows = self.rows(operand(i, 2)?, &fb, false)?;
        let c_rows = self.rows(operand(i, 3)?, &fc, false)?;
        // The device reads the first of the registers that hold an element (SASS of ptxas 13.0, sm_90).
        a_rows.truncate(registers(&fa, Side::A, dims, wmma));
        b_rows.truncate(registers(&fb, Side::B, dims, wmma));
        let mut instr = Instr::new(Op::Mma);
        let (m, n, k) = dims;
        let and = bit_product == Some(true);
        let in_registers = None;
        let mut side = MmaOp {
            in_registers,
            m,
            n,
            k,
            wmma,
            a: fa,
            b: fb,
            c: fc,
            d: fd,
            a_rows,
            b_rows,
            c_rows,
            d_rows,
            saturate,
            and,
        };
        side.in_registers = crate::exec::product_in_registers(&side);
        instr.side = push(&mut self.sides.mmas, side);
        Ok(instr)
    }

    fn wmma(&mut self, i: &Instruction, m: &mut Mods) -> Decoded {
        let kind = m.find(|w| matches!(w, "load" | "store" | "mma").then(|| w.to_string())).ok_or("form")?;
        if kind == "mma" {
            return self.wmma_mma(i, m);
        }
        let side = m
            .find(|w| {
                Some(match w {
                    "a" => Side::A,
                    "b" => Side::B,
                    "c" | "d" => Side::C,
                    _ => return None,
                })
            })
            .ok_or("operand")?;
        if !m.take("sync") || !m.take("aligned") {
            return Err("form".into());
        }
        let (row, col) = (m.take("row"), m.take("col"));
        let dims = m.find(shape).ok_or("shape")?;
        let area = m
            .find(|w| {
                Some(match w {
                    "global" => Area::Global,
                    "shared" | "shared::cta" => Area::Shared,
                    _ => return None,
                })
            })
            .unwrap_or(Area::Generic);
        let element = m.find(element).ok_or("type")?;
        if row == col {
            return Err("layout".into());
        }
        let bits = match side {
            Side::C => 32,
            _ => element.bits(),
        };
        if !wmma_shapes(element).contains(&dims) {
            return Err("shape".into());
        }
        // Elements of less than a byte travel in words: the fragment is one of words, along k.
        let per_word = if element.bits() < 8 { 32 / element.bits() } else { 1 };
        let f = if per_word > 1 {
            let (m, n, k) = dims;
            if !matches!(
                (side, row, per_word, dims),
                (Side::A, true, 8, (8, 8, 32))
                    | (Side::B, false, 8, (8, 8, 32))
                    | (Side::A, true, 32, (8, 8, 128))
                    | (Side::B, false, 32, (8, 8, 128))
            ) {
                return Err("shape or layout".into());
            }
            fragment(true, side, (m, n, k / per_word), Elem::S32, 32)
        } else {
            fragment(true, side, dims, element, bits)
        };
        let load = kind == "load";
        let (registers, address) =
            if load { (operand(i, 0)?, operand(i, 1)?) } else { (operand(i, 1)?, operand(i, 0)?) };
        let rows = self.rows(registers, &f, load)?;
        let address = self.address(address)?;
        let stride = match i.operands.get(2) {
            Some(o) => self.src(o, Ty::U32)?,
            // Without a stride the matrix is dense.
            None => self.word((per_word * if row { f.cols } else { f.rows }) as u32),
        };
        let mut instr = Instr::new(if load { Op::WmmaLoad } else { Op::WmmaStore });
        let op = WmmaMemOp { area, address, stride, per_word: per_word as u32, column_major: col, fragment: f, rows };
        instr.side = push(&mut self.sides.wmmas, op);
        Ok(instr)
    }

    fn wmma_mma(&mut self, i: &Instruction, m: &mut Mods) -> Decoded {
        if !m.take("sync") || !m.take("aligned") {
            return Err("form".into());
        }
        let mut layouts = 0;
        while m.find(|w| matches!(w, "row" | "col").then_some(())).is_some() {
            layouts += 1;
        }
        let dims = m.find(shape).ok_or("shape")?;
        let saturate = m.take("satfinite");
        let _ = m.take("rn");
        let bits = bit_product(m);
        let mut types = Vec::new();
        while let Some(t) = m.find(element) {
            types.push(t);
        }
        let types = match types[..] {
            // f16: D and C types only, the operands' is implied.
            [d, c] => [d, Elem::F16, Elem::F16, c],
            [d, a, b, c] => [d, a, b, c],
            _ => return Err("types".into()),
        };
        if layouts != 2 {
            return Err("layouts".into());
        }
        self.product(true, dims, types, (saturate, bits), i)
    }

    fn movmatrix(&mut self, i: &Instruction, m: &mut Mods) -> Decoded {
        for word in ["sync", "aligned", "m8n8", "trans", "b16"] {
            if !m.take(word) {
                return Err("form".into());
            }
        }
        let d = self.dst(operand(i, 0)?, Width::W32)?;
        let a = self.src(operand(i, 1)?, Ty::B32)?;
        Ok(Instr::with(Op::MovMatrix, d, a, ZERO, ZERO))
    }
}
