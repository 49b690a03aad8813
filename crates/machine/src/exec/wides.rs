//! 64-bit integers and moves, and products of 32 bits by 32 that have 64.
//! Source: PTX ISA 9.0, "Integer Arithmetic", "Logic and Shift".

use crate::code::{Instr, Op};
use crate::exec::rows::*;

versions! {
    /// Runs one instruction of this family on the lanes of `m`.
    fn run(r: R, i: &Instr, m: u32) = body
}

#[inline(always)]
fn body(r: R, i: &Instr, m: u32) {
    match i.op {
        Op::Mov64 => un64(r, i, m, |a| a),
        Op::MulWideS32 => widen2(r, i, m, |a, b| (i64::from(a as i32) * i64::from(b as i32)) as u64),
        Op::MulWideU32 => widen2(r, i, m, |a, b| u64::from(a) * u64::from(b)),
        Op::MadWideS32 => widen_add(r, i, m, |a, b| (i64::from(a as i32) * i64::from(b as i32)) as u64),
        Op::MadWideU32 => widen_add(r, i, m, |a, b| u64::from(a) * u64::from(b)),
        Op::Add64 => bin64(r, i, m, u64::wrapping_add),
        Op::Sub64 => bin64(r, i, m, u64::wrapping_sub),
        Op::MulLo64 => bin64(r, i, m, u64::wrapping_mul),
        Op::MadLo64 => tri64(r, i, m, |a, b, c| a.wrapping_mul(b).wrapping_add(c)),
        Op::And64 => bin64(r, i, m, |a, b| a & b),
        Op::Or64 => bin64(r, i, m, |a, b| a | b),
        Op::Xor64 => bin64(r, i, m, |a, b| a ^ b),
        Op::Not64 => un64(r, i, m, |a| !a),
        Op::Shl64 => shift64(r, i, m, |a, n| a << (n & 63) & u64::from(n < 64).wrapping_neg()),
        Op::ShrU64 => shift64(r, i, m, |a, n| a >> (n & 63) & u64::from(n < 64).wrapping_neg()),
        Op::ShrS64 => shift64(r, i, m, |a, n| ((a as i64) >> n.min(63)) as u64),
        Op::MinS64 => bin64(r, i, m, |a, b| (a as i64).min(b as i64) as u64),
        Op::MaxS64 => bin64(r, i, m, |a, b| (a as i64).max(b as i64) as u64),
        Op::MinU64 => bin64(r, i, m, u64::min),
        Op::MaxU64 => bin64(r, i, m, u64::max),
        Op::SetpS64 => setp64(r, i, m, |a| a as i64),
        Op::SetpU64 => setp64(r, i, m, |a| a),
        Op::Selp64 => {
            let c = r.pred(i.c);
            let mut t = [0u64; 32];
            let (a, b) = (r.r64(i.a), r.r64(i.b));
            for l in 0..32 {
                t[l] = if c >> l & 1 != 0 { a[l] } else { b[l] };
            }
            r.put64(i.d, &t, m);
        }
        // Other operations belong to other families.
        _ => {}
    }
}
