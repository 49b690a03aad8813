//! `mma.sync`, `wmma.mma` and the loads and stores of wmma: fragments are gathered into dense matrices, multiplied by
//! `warpsmith_num`'s tensor core, and scattered back. Undefined elements make their rows or columns of the result undefined.
//! Source: PTX ISA 9.0, "Matrix multiply-accumulate operation using mma instruction / wmma instructions".

use warpsmith_num::tensor_core::{self, Accumulator, Element, Product};
use warpsmith_num::{e4m3, e5m2};

use crate::api::FindingKind;
use crate::code::{Area, Elem, Fragment, Instr, MmaOp, Pc, RowId, WmmaMemOp};
use crate::cta::Cta;
use crate::exec::converts::{f16_to_f32, f32_to_f16};
use crate::exec::lane_float;
use crate::exec::memory::{address_undefined, addresses, bad_access};
use crate::exec::{region, sub_byte, undefined};
use crate::registers::Registers;
use crate::warp::Warp;

/// The largest operand has 32 x 32 elements.
const MOST: usize = 1024;

/// Dense operands of the product that is being computed; kept, so that nothing has to be cleared for each instruction.
#[derive(Debug)]
pub struct Scratch {
    a: [f32; MOST],
    b: [f32; MOST],
    c: [f32; MOST],
    d: [f32; MOST],
}

impl Scratch {
    /// All zero.
    pub fn new() -> Box<Scratch> {
        Box::new(Scratch { a: [0.0; MOST], b: [0.0; MOST], c: [0.0; MOST], d: [0.0; MOST] })
    }
}

fn element(e: Elem) -> Element {
    match e {
        Elem::Bf16 => Element::Bf16,
        Elem::Tf32 => Element::Tf32,
        Elem::E4m3 => Element::E4m3,
        Elem::E5m2 => Element::E5m2,
        _ => Element::F16,
    }
}

/// Decodes a fragment into a dense matrix of f32.
#[inline(always)]
fn gather(r: &Registers, f: &Fragment, rows: &[RowId], out: &mut [f32; MOST]) {
    for (n, row) in rows.iter().enumerate() {
        let words = r.r32(*row);
        let dense = &f.dense[n * 32 * f.packed..(n + 1) * 32 * f.packed];
        match f.element {
            Elem::E4m3 | Elem::E5m2 => {
                let table = if f.element == Elem::E4m3 { &e4m3::TABLE } else { &e5m2::TABLE };
                for (l, places) in dense.chunks_exact(4).enumerate() {
                    for (e, place) in places.iter().enumerate() {
                        out[usize::from(*place) % MOST] = table[(words[l] >> (8 * e) & 0xFF) as usize];
                    }
                }
            }
            Elem::F16 => {
                let mut halves = [[0u32; 32]; 2];
                for l in 0..32 {
                    halves[0][l] = f16_to_f32(words[l] & 0xFFFF);
                    halves[1][l] = f16_to_f32(words[l] >> 16);
                }
                for (l, places) in dense.chunks_exact(2).enumerate() {
                    for (e, place) in places.iter().enumerate() {
                        out[usize::from(*place) % MOST] = f32::from_bits(halves[e][l]);
                    }
                }
            }
            Elem::Bf16 => {
                for (l, places) in dense.chunks_exact(2).enumerate() {
                    for (e, place) in places.iter().enumerate() {
                        out[usize::from(*place) % MOST] = f32::from_bits(words[l] >> (16 * e) << 16);
                    }
                }
            }
            Elem::Tf32 => {
                for (l, place) in dense.iter().enumerate() {
                    // The tensor core ignores the 13 low bits.
                    out[usize::from(*place) % MOST] = f32::from_bits(words[l] & 0xFFFF_E000);
                }
            }
            _ => {
                for (l, place) in dense.iter().enumerate() {
                    out[usize::from(*place) % MOST] = f32::from_bits(words[l]);
                }
            }
        }
    }
}

#[inline(always)]
fn scatter(r: &mut Registers, f: &Fragment, rows: &[RowId], from: &[f32; MOST]) {
    for (n, row) in rows.iter().enumerate() {
        let dense = &f.dense[n * 32 * f.packed..(n + 1) * 32 * f.packed];
        let mut t = [0u32; 32];
        if f.element == Elem::F16 {
            for (l, places) in dense.chunks_exact(2).enumerate() {
                for (e, place) in places.iter().enumerate() {
                    t[l] |= f32_to_f16(from[usize::from(*place) % MOST].to_bits()) << (16 * e);
                }
            }
        } else {
            for (l, place) in dense.iter().enumerate() {
                t[l] = from[usize::from(*place) % MOST].to_bits();
            }
        }
        r.put32(*row, &t, u32::MAX);
    }
}

pub fn mma(cta: &mut Cta, w: &mut Warp, i: &Instr, pc: Pc) {
    let machine = cta.m;
    let op = &machine.code.sides.mmas[i.side as usize];
    let poison = undefined_result(w, op, pc);
    match op.a.element {
        Elem::S8 | Elem::U8 => integers(w, op),
        Elem::S4 | Elem::U4 | Elem::B1 => sub_byte::product(&mut w.regs, op),
        Elem::F64 => doubles(w, op),
        _ => floats(cta, w, op),
    }
    match poison {
        None => {
            for row in &op.d_rows {
                w.regs.define(*row, u32::MAX);
            }
        }
        Some((masks, origin)) => {
            for (row, mask) in op.d_rows.iter().zip(masks) {
                w.regs.set_poison(*row, mask, u32::MAX, origin);
            }
        }
    }
}

/// The product of floats that an instruction asks for.
fn product_of(op: &MmaOp) -> Product {
    Product {
        m: op.m,
        n: op.n,
        k: op.k,
        a: element(op.a.element),
        b: element(op.b.element),
        // From f32 to f16 the sum is an f32 that is rounded once more (SASS of ptxas 13.0, sm_90; an H200).
        accumulator: if [op.c.element, op.d.element] == [Elem::F16; 2] { Accumulator::F16 } else { Accumulator::F32 },
        op: if op.wmma { tensor_core::Op::Wmma } else { tensor_core::Op::MmaSync },
    }
}

/// An m16n8 product of floats whose operands registers hold in rows, as the tensor core takes them.
pub fn product_in_registers(op: &MmaOp) -> Option<Product> {
    use Elem::{Bf16, E4m3, E5m2, F16, Tf32};
    let floats = matches!(op.a.element, F16 | Bf16 | Tf32 | E4m3 | E5m2) && op.c.element == op.d.element;
    let product = product_of(op);
    let counts = [op.a_rows.len(), op.b_rows.len(), op.c_rows.len()];
    (floats && tensor_core::register_counts(&product) == Some(counts)).then_some(product)
}

/// Rows on lines of the cache, as the registers are.
#[repr(C, align(64))]
struct Results([[u32; 32]; 4]);

/// PERF: a product straight from the registers.
#[inline(always)]
fn in_registers(numerics: tensor_core::Numerics, r: &mut Registers, op: &MmaOp, product: &Product) {
    let counts = [op.a_rows.len(), op.b_rows.len(), op.c_rows.len()];
    // Never more than four: those of A, or of an f32 accumulator.
    let mut d = Results([[0u32; 32]; 4]);
    let list =
        |rows: &[RowId]| -> [&tensor_core::Register; 4] { std::array::from_fn(|n| r.r32(rows[n.min(rows.len() - 1)])) };
    let [a, b, c] = [list(&op.a_rows), list(&op.b_rows), list(&op.c_rows)];
    tensor_core::multiply_accumulate_registers(
        numerics,
        product,
        &a[..counts[0]],
        &b[..counts[1]],
        &c[..counts[2]],
        &mut d.0[..counts[2]],
    );
    for (row, values) in op.d_rows.iter().zip(&d.0) {
        r.put32(*row, values, u32::MAX);
    }
}

#[inline(always)]
fn floats(cta: &mut Cta, w: &mut Warp, op: &MmaOp) {
    let numerics = cta.m.options.numerics;
    if let Some(product) = &op.in_registers {
        in_registers(numerics, &mut w.regs, op, product);
        return;
    }
    let (m, n, k) = (op.m, op.n, op.k);
    let product = product_of(op);
    let Scratch { a, b, c, d } = &mut *cta.scratch;
    gather(&w.regs, &op.a, &op.a_rows, a);
    gather(&w.regs, &op.b, &op.b_rows, b);
    gather(&w.regs, &op.c, &op.c_rows, c);
    tensor_core::multiply_accumulate(numerics, &product, &a[..m * k], &b[..n * k], &c[..m * n], &mut d[..m * n]);
    scatter(&mut w.regs, &op.d, &op.d_rows, d);
}

fn integers(w: &mut Warp, op: &MmaOp) {
    let bytes = |r: &Registers, f: &Fragment, rows: &[RowId]| {
        let mut out = vec![0i64; f.rows * f.cols];
        for (n, row) in rows.iter().enumerate() {
            let words = r.r32(*row);
            for (at, place) in f.dense[n * 128..(n + 1) * 128].iter().enumerate() {
                let byte = (words[at / 4] >> (8 * (at % 4))) as u8;
                out[usize::from(*place)] = if f.element == Elem::S8 { i64::from(byte as i8) } else { i64::from(byte) };
            }
        }
        out
    };
    let (a, b) = (bytes(&w.regs, &op.a, &op.a_rows), bytes(&w.regs, &op.b, &op.b_rows));
    let rows: Vec<[u32; 32]> = op.c_rows.iter().map(|r| *w.regs.r32(*r)).collect();
    for (n, row) in op.d_rows.iter().enumerate() {
        let mut t = [0u32; 32];
        for (l, v) in t.iter_mut().enumerate() {
            let (r, c) = op.d.places[n * 32 + l];
            let (r, c) = (usize::from(r), usize::from(c));
            let sum: i64 = (0..op.k).map(|k| a[r * op.k + k] * b[c * op.k + k]).sum();
            let sum = sum + i64::from(rows[n][l] as i32);
            *v = if op.saturate { sum.clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as u32 } else { sum as u32 };
        }
        w.regs.put32(*row, &t, u32::MAX);
    }
}

fn doubles(w: &mut Warp, op: &MmaOp) {
    let dense = |r: &Registers, f: &Fragment, rows: &[RowId]| {
        let mut out = vec![0f64; f.rows * f.cols];
        for (n, row) in rows.iter().enumerate() {
            let words = r.r64(*row);
            for l in 0..32 {
                out[usize::from(f.dense[n * 32 + l])] = f64::from_bits(words[l]);
            }
        }
        out
    };
    let (a, b) = (dense(&w.regs, &op.a, &op.a_rows), dense(&w.regs, &op.b, &op.b_rows));
    let rows: Vec<[u64; 32]> = op.c_rows.iter().map(|r| *w.regs.r64(*r)).collect();
    for (n, row) in op.d_rows.iter().enumerate() {
        let mut t = [0u64; 32];
        for (l, v) in t.iter_mut().enumerate() {
            let (r, c) = op.d.places[n * 32 + l];
            let (r, c) = (usize::from(r), usize::from(c));
            // A chain of IEEE fused multiply-adds, in order of k.
            let sum = (0..op.k)
                .fold(f64::from_bits(rows[n][l]), |s, k| lane_float::fma64(a[r * op.k + k], b[c * op.k + k], s));
            *v = sum.to_bits();
        }
        w.regs.put64(*row, &t, u32::MAX);
    }
}

/// Undefined lanes of the result's rows, if any: an element is undefined if its row of A, its column of B or its own C is.
#[inline(always)]
fn undefined_result(w: &Warp, op: &MmaOp, pc: Pc) -> Option<(Vec<u32>, Pc)> {
    let r = &w.regs;
    let any = |rows: &[RowId]| rows.iter().fold(0, |p, row| p | r.poison(*row));
    if any(&op.a_rows) | any(&op.b_rows) | any(&op.c_rows) == 0 {
        return None;
    }
    spread_undefined(r, op, pc)
}

#[cold]
#[inline(never)]
fn spread_undefined(r: &Registers, op: &MmaOp, pc: Pc) -> Option<(Vec<u32>, Pc)> {
    let mut all = op.a_rows.iter().chain(&op.b_rows).chain(&op.c_rows);
    let first = all.find(|row| r.poison(**row) != 0)?;
    let origin = r.origin(*first, pc);
    let (mut rows, mut cols) = ([false; 32], [false; 32]);
    let mark = |f: &Fragment, list: &[RowId], by_row: bool, out: &mut [bool; 32]| {
        for (n, row) in list.iter().enumerate() {
            let p = r.poison(*row);
            for (at, (i, j)) in f.places[n * 32 * f.packed..(n + 1) * 32 * f.packed].iter().enumerate() {
                if p >> (at / f.packed) & 1 != 0 {
                    out[usize::from(if by_row { *i } else { *j }) % 32] = true;
                }
            }
        }
    };
    mark(&op.a, &op.a_rows, true, &mut rows);
    mark(&op.b, &op.b_rows, false, &mut cols);
    let masks = op.d_rows.iter().enumerate().map(|(n, _)| {
        let packed = op.d.packed;
        let mut mask = 0;
        for (at, (i, j)) in op.d.places[n * 32 * packed..(n + 1) * 32 * packed].iter().enumerate() {
            if rows[usize::from(*i) % 32] || cols[usize::from(*j) % 32] {
                mask |= 1 << (at / packed);
            }
        }
        // C may be packed otherwise than D (f16 into f32): then any undefined C spreads over the row's lanes.
        let own = if op.c.packed == packed {
            r.poison(op.c_rows[n])
        } else {
            op.c_rows.iter().fold(0, |p, row| p | r.poison(*row))
        };
        mask | own
    });
    Some((masks.collect(), origin))
}

/// Base and stride of a matrix in memory, which all lanes must agree on.
fn matrix(cta: &mut Cta, w: &Warp, op: &WmmaMemOp, pc: Pc, mask: u32) -> Option<(Area, u64, u64)> {
    if address_undefined(cta, w, &op.address, pc, mask)
        || undefined::reaches(cta, w, op.stride, pc, mask, "the value is a matrix's stride")
    {
        return None;
    }
    let at = addresses(w, &op.address);
    let stride = w.regs.r32(op.stride);
    let first = mask.trailing_zeros() as usize;
    let agree = (0..32).all(|l| mask >> l & 1 == 0 || at[l] == at[first] && stride[l] == stride[first]);
    if !agree {
        cta.report(FindingKind::InvalidAccess, w, pc, None, mask, true, |_| {
            ("lanes of a warp give different matrix addresses or strides".into(), None)
        });
        return None;
    }
    let (area, base) = region::resolve(op.area, at[first]);
    let stride = u64::from(stride[first] / op.per_word) * op.fragment.element.bytes() as u64;
    if !stride.is_multiple_of(16) {
        bad_access(cta, w, pc, area, base + stride, stride as u32, 16, mask, false);
        return None;
    }
    Some((area, base, stride))
}

/// Checks all lines of the matrix; their count and length.
fn lines(cta: &mut Cta, w: &Warp, op: &WmmaMemOp, pc: Pc, area: Area, base: u64, stride: u64, write: bool) -> bool {
    let f = &op.fragment;
    let (count, elements) = if op.column_major { (f.cols, f.rows) } else { (f.rows, f.cols) };
    let len = (elements * f.element.bytes()) as u32;
    (0..count as u64).all(|n| region::check(cta, w, pc, area, base.wrapping_add(n * stride), len, 16, 0, write))
}

fn place(op: &WmmaMemOp, base: u64, stride: u64, (row, col): (u16, u16)) -> u64 {
    let (line, at) = if op.column_major { (col, row) } else { (row, col) };
    base + u64::from(line) * stride + u64::from(at) * op.fragment.element.bytes() as u64
}

pub fn wmma_load(cta: &mut Cta, w: &mut Warp, i: &Instr, pc: Pc, mask: u32) {
    let machine = cta.m;
    let op = &machine.code.sides.wmmas[i.side as usize];
    let Some((area, base, stride)) = matrix(cta, w, op, pc, mask) else { return };
    if !lines(cta, w, op, pc, area, base, stride, false) {
        return;
    }
    let f = &op.fragment;
    let bytes = f.element.bytes();
    let (count, length) = if op.column_major { (f.cols, f.rows * bytes) } else { (f.rows, f.cols * bytes) };
    if area == Area::Shared
        && bytes < 8
        && (0..count).all(|n| cta.shared.is_defined(base as usize + n * stride as usize, length))
    {
        // PERF: the usual case, with nothing to remember about undefined bytes; two halves side by side are one word.
        let (first, second) = (f.places[0], f.places[f.packed - 1]);
        let beside = if op.column_major { (first.0 + 1, first.1) } else { (first.0, first.1 + 1) };
        if f.packed == 2 && second == beside {
            for (n, row) in op.rows.iter().enumerate() {
                let mut t = [0u32; 32];
                for (l, v) in t.iter_mut().enumerate() {
                    *v = cta.shared.load(place(op, base, stride, f.places[n * 64 + 2 * l]) as usize, 4) as u32;
                }
                w.regs.put32(*row, &t, u32::MAX);
                w.regs.define(*row, u32::MAX);
            }
            return;
        }
        for (n, row) in op.rows.iter().enumerate() {
            let mut t = [0u32; 32];
            for (at, which) in f.places[n * 32 * f.packed..(n + 1) * 32 * f.packed].iter().enumerate() {
                let v = cta.shared.load(place(op, base, stride, *which) as usize, bytes) as u32;
                t[at / f.packed] |= v << (8 * bytes * (at % f.packed));
            }
            w.regs.put32(*row, &t, u32::MAX);
            w.regs.define(*row, u32::MAX);
        }
        return;
    }
    for (n, row) in op.rows.iter().enumerate() {
        let mut t = [0u64; 32];
        let mut poison = 0;
        for (at, which) in f.places[n * 32 * f.packed..(n + 1) * 32 * f.packed].iter().enumerate() {
            let (l, e) = (at / f.packed, at % f.packed);
            let (v, ok) = region::fetch(cta, pc, area, place(op, base, stride, *which), bytes);
            t[l] |= v << (8 * bytes * e);
            poison |= u32::from(!ok) << l;
        }
        if f.element == Elem::F64 {
            w.regs.put64(*row, &t, u32::MAX)
        } else {
            w.regs.put32(*row, &t.map(|v| v as u32), u32::MAX)
        }
        let origin = if poison != 0 && area == Area::Shared {
            let len = stride as usize * (if op.column_major { f.cols } else { f.rows });
            let end = (base as usize + len).min(cta.shared.len());
            cta.shared.origin_within(base as usize, end - base as usize).unwrap_or(pc)
        } else {
            pc
        };
        w.regs.set_poison(*row, poison, u32::MAX, origin);
    }
}

pub fn wmma_store(cta: &mut Cta, w: &mut Warp, i: &Instr, pc: Pc, mask: u32) {
    let machine = cta.m;
    let op = &machine.code.sides.wmmas[i.side as usize];
    let Some((area, base, stride)) = matrix(cta, w, op, pc, mask) else { return };
    if !lines(cta, w, op, pc, area, base, stride, true) {
        return;
    }
    let f = &op.fragment;
    let bytes = f.element.bytes();
    let cut = if bytes == 8 { u64::MAX } else { (1 << (8 * bytes)) - 1 };
    for (n, row) in op.rows.iter().enumerate() {
        let poison = w.regs.poison(*row);
        let origin = w.regs.origin(*row, pc);
        for (at, which) in f.places[n * 32 * f.packed..(n + 1) * 32 * f.packed].iter().enumerate() {
            let (l, e) = (at / f.packed, at % f.packed);
            let v = w.regs.lane(*row, f.element == Elem::F64, l) >> (8 * bytes * e) & cut;
            let from = (poison >> l & 1 != 0).then_some(origin);
            region::put(cta, w, pc, area, place(op, base, stride, *which), bytes, v, from, l);
        }
    }
}
