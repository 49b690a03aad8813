//! Products of matrices of 4-bit integers and of single bits.
//! Source: PTX ISA 9.0, "mma" with .u4, .s4 and .b1; all sums are exact, modulo 2^32 unless `.satfinite`.

use warpsmith_num::tensor_core::{Overflowing, multiply_accumulate_int};

use crate::code::{Elem, Fragment, MmaOp, RowId};
use crate::registers::Registers;

/// Elements of a fragment as a dense matrix: A by rows, B by columns.
fn gather(r: &Registers, f: &Fragment, rows: &[RowId]) -> Vec<i32> {
    let bits = f.element.bits() as u32;
    let mut out = vec![0; f.rows * f.cols];
    for (n, row) in rows.iter().enumerate() {
        let words = r.r32(*row);
        for (at, place) in f.dense[n * 32 * f.packed..(n + 1) * 32 * f.packed].iter().enumerate() {
            let word = words[at / f.packed] << (32 - bits * (at % f.packed + 1) as u32);
            let value = if f.element == Elem::S4 { word as i32 >> (32 - bits) } else { (word >> (32 - bits)) as i32 };
            out[usize::from(*place)] = value;
        }
    }
    out
}

/// D = A x B + C.
pub fn product(r: &mut Registers, op: &MmaOp) {
    let (a, b, c) = (gather(r, &op.a, &op.a_rows), gather(r, &op.b, &op.b_rows), gather(r, &op.c, &op.c_rows));
    let mut d = vec![0; op.m * op.n];
    if op.a.element == Elem::B1 {
        for (at, d) in d.iter_mut().enumerate() {
            let (row, column) = (&a[at / op.n * op.k..][..op.k], &b[at % op.n * op.k..][..op.k]);
            let count: i32 = row.iter().zip(column).map(|(a, b)| if op.and { a & b } else { a ^ b }).sum();
            *d = c[at].wrapping_add(count);
        }
    } else {
        let overflowing = if op.saturate { Overflowing::Saturate } else { Overflowing::Wrap };
        multiply_accumulate_int(overflowing, [op.m, op.n, op.k], &a, &b, &c, &mut d);
    }
    for (n, row) in op.d_rows.iter().enumerate() {
        let t = std::array::from_fn(|l| d[usize::from(op.d.dense[n * 32 + l])] as u32);
        r.put32(*row, &t, u32::MAX);
    }
}
