//! 32- and 16-bit integers, logic, predicates and 32-bit moves.
//! Undefined values are handled before (`exec::undefined`). Source: PTX ISA 9.0, "Integer Arithmetic", "Logic and Shift".

use crate::code::{Instr, Op};
use crate::exec::rows::*;

versions! {
    /// Runs one instruction of this family on the lanes of `m`.
    fn run(r: R, i: &Instr, m: u32) = body
}

/// All ones if a shift stays within 32 bits. PERF: a mask instead of a branch keeps the loops vectorised.
#[inline(always)]
fn within(n: u32) -> u32 {
    u32::from(n < 32).wrapping_neg()
}

#[inline(always)]
fn shl(a: u32, n: u32) -> u32 {
    a << (n & 31) & within(n)
}

#[inline(always)]
fn shr(a: u32, n: u32) -> u32 {
    a >> (n & 31) & within(n)
}

#[inline(always)]
fn sar(a: u32, n: u32) -> u32 {
    ((a as i32) >> n.min(31)) as u32
}

/// Any function of three bits, by its truth table.
#[inline(always)]
pub(super) fn lop3(a: u32, b: u32, c: u32, table: u32) -> u32 {
    let mut r = 0;
    let mut n = 0;
    while n < 8 {
        let all = if table >> n & 1 != 0 { u32::MAX } else { 0 };
        let x = if n & 4 != 0 { a } else { !a };
        let y = if n & 2 != 0 { b } else { !b };
        let z = if n & 1 != 0 { c } else { !c };
        r |= all & x & y & z;
        n += 1;
    }
    r
}

/// PERF: a selector that is the same for all lanes, and that copies no signs, is taken apart once.
#[inline(always)]
fn prmt_rows(r: R, i: &Instr, m: u32) {
    let selectors = r.r32(i.c);
    let selector = selectors[0];
    if selector & 0x8888 == 0 && selectors.iter().fold(0, |other, s| other | (s ^ selector)) == 0 {
        let place = |n: u32| selector >> (4 * n) & 7;
        let (from, shift) = ([0, 1, 2, 3].map(|n| place(n) >= 4), [0, 1, 2, 3].map(|n| 8 * (place(n) & 3)));
        let mut t = [0u32; 32];
        let words = from.map(|second| if second { r.r32(i.b) } else { r.r32(i.a) });
        for l in 0..32 {
            t[l] = words[0][l] >> shift[0] & 0xFF
                | (words[1][l] >> shift[1] & 0xFF) << 8
                | (words[2][l] >> shift[2] & 0xFF) << 16
                | words[3][l] >> shift[3] << 24;
        }
        r.put32(i.d, &t, m);
        return;
    }
    tri32(r, i, m, |a, b, c| {
        let mut out = 0;
        let mut n = 0;
        while n < 4 {
            let s = c >> (4 * n);
            let word = if s & 4 != 0 { b } else { a };
            let byte = word >> (8 * (s & 3)) & 0xFF;
            let sign = if byte & 0x80 != 0 { 0xFF } else { 0 };
            out |= (if s & 8 != 0 { sign } else { byte }) << (8 * n);
            n += 1;
        }
        out
    });
}

#[inline(always)]
fn body(r: R, i: &Instr, m: u32) {
    match i.op {
        Op::Nop => {}
        Op::Mov32 => un32(r, i, m, |a| a),
        Op::MovPred => {
            let a = r.pred(i.a);
            r.put_pred(i.d, a, m);
        }
        Op::Add32 => bin32(r, i, m, u32::wrapping_add),
        Op::Sub32 => bin32(r, i, m, u32::wrapping_sub),
        Op::MulLo32 => bin32(r, i, m, u32::wrapping_mul),
        Op::MadLo32 => tri32(r, i, m, |a, b, c| a.wrapping_mul(b).wrapping_add(c)),
        Op::MulHiU32 => bin32(r, i, m, |a, b| ((u64::from(a) * u64::from(b)) >> 32) as u32),
        Op::MulHiS32 => bin32(r, i, m, |a, b| ((i64::from(a as i32) * i64::from(b as i32)) >> 32) as u32),
        Op::MinS32 => bin32(r, i, m, |a, b| (a as i32).min(b as i32) as u32),
        Op::MaxS32 => bin32(r, i, m, |a, b| (a as i32).max(b as i32) as u32),
        Op::MinU32 => bin32(r, i, m, u32::min),
        Op::MaxU32 => bin32(r, i, m, u32::max),
        Op::And32 => bin32(r, i, m, |a, b| a & b),
        Op::Or32 => bin32(r, i, m, |a, b| a | b),
        Op::Xor32 => bin32(r, i, m, |a, b| a ^ b),
        Op::Not32 => un32(r, i, m, |a| !a),
        Op::Neg32 => un32(r, i, m, u32::wrapping_neg),
        Op::Shl32 => bin32(r, i, m, shl),
        Op::ShrU32 => bin32(r, i, m, shr),
        Op::ShrS32 => bin32(r, i, m, sar),
        Op::Shl16 => bin32(r, i, m, |a, b| shl(a, b) & 0xFFFF),
        Op::ShrU16 => bin32(r, i, m, shr),
        Op::ShrS16 => bin32(r, i, m, |a, b| sar(a as u16 as i16 as u32, b) & 0xFFFF),
        Op::Add16 => bin32(r, i, m, |a, b| a.wrapping_add(b) & 0xFFFF),
        Op::Sub16 => bin32(r, i, m, |a, b| a.wrapping_sub(b) & 0xFFFF),
        Op::MulLo16 => bin32(r, i, m, |a, b| a.wrapping_mul(b) & 0xFFFF),
        Op::Lop3 => {
            let table = i.imm as u32;
            tri32(r, i, m, |a, b, c| lop3(a, b, c, table));
        }
        Op::Prmt => prmt_rows(r, i, m),
        Op::Bfe32 => tri32(r, i, m, |a, b, c| {
            let (pos, len) = (b & 0xFF, c & 0xFF);
            let v = shr(a, pos);
            if len < 32 { v & ((1u32 << len) - 1) } else { v }
        }),
        Op::ShfWrapL => tri32(r, i, m, |a, b, c| ((u64::from(b) << 32 | u64::from(a)) << (c & 31) >> 32) as u32),
        Op::ShfWrapR => tri32(r, i, m, |a, b, c| ((u64::from(b) << 32 | u64::from(a)) >> (c & 31)) as u32),
        Op::SetpS32 => setp32(r, i, m, |a| a as i32),
        Op::SetpU32 | Op::SetpU16 => setp32(r, i, m, |a| a),
        Op::SetpS16 => setp32(r, i, m, |a| a as u16 as i16),
        Op::Selp32 => {
            let c = r.pred(i.c);
            let mut t = [0u32; 32];
            let (a, b) = (r.r32(i.a), r.r32(i.b));
            for l in 0..32 {
                t[l] = if c >> l & 1 != 0 { a[l] } else { b[l] };
            }
            r.put32(i.d, &t, m);
        }
        Op::AndPred => {
            let v = r.pred(i.a) & r.pred(i.b);
            r.put_pred(i.d, v, m);
        }
        Op::OrPred => {
            let v = r.pred(i.a) | r.pred(i.b);
            r.put_pred(i.d, v, m);
        }
        Op::XorPred => {
            let v = r.pred(i.a) ^ r.pred(i.b);
            r.put_pred(i.d, v, m);
        }
        Op::NotPred => {
            let v = !r.pred(i.a);
            r.put_pred(i.d, v, m);
        }
        // Other operations belong to other families.
        _ => {}
    }
}
