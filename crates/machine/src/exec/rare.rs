//! Lane-wise instructions that are seldom met, run lane by lane: functions of one lane, comparisons of rare types, `set`, carries, packing of many pieces, clocks.

use warpsmith_num::format::Format;
use warpsmith_ptx::ast::Ty;

use crate::code::{CARRY, Cmp, CompareOp, Instr, Op, RowId, Sides, Width, flag};
use crate::exec::lane_integer;
use crate::exec::rows::set_predicates;
use crate::registers::Registers;

/// Computes each active lane's value and writes them as a row of the given width.
pub fn each_lane(r: &mut Registers, m: u32, d: RowId, width: Width, f: impl Fn(&Registers, usize) -> u64) {
    let mut t = [0u64; 32];
    for l in lanes_of(m) {
        t[l] = f(r, l);
    }
    match width {
        Width::W64 => r.put64(d, &t, m),
        Width::W32 => r.put32(d, &t.map(|v| v as u32), m),
        Width::Pred => {
            let bits = lanes_of(m).fold(0, |a, l| a | u32::from(t[l] & 1 != 0) << l);
            r.put_pred(d, bits, m);
        }
    }
}

/// The lanes of a mask, in order.
#[inline(always)]
pub fn lanes_of(m: u32) -> impl Iterator<Item = usize> {
    let mut left = m;
    std::iter::from_fn(move || {
        if left == 0 {
            return None;
        }
        let l = left.trailing_zeros() as usize;
        left &= left - 1;
        Some(l)
    })
}

/// Runs one instruction of this family on the lanes of `m`.
pub fn run(r: &mut Registers, i: &Instr, m: u32, sides: &Sides) {
    match i.op {
        Op::Lane => lanes(r, i, m, sides),
        Op::Bfi => {
            let wide = i.imm == 8;
            each_lane(r, m, i.d, if wide { Width::W64 } else { Width::W32 }, |r, l| {
                let (a, b) = (r.lane(i.a, wide, l), r.lane(i.b, wide, l));
                lane_integer::bfi(a, b, r.r32(i.c)[l], r.r32(i.side)[l], if wide { 64 } else { 32 })
            });
        }
        Op::Lop3Pred => {
            let (table, q) = (i.imm as u32, r.pred(i.side) ^ if i.sub & 4 != 0 { u32::MAX } else { 0 });
            let values: [u32; 32] =
                std::array::from_fn(|l| crate::exec::ints::lop3(r.r32(i.a)[l], r.r32(i.b)[l], r.r32(i.c)[l], table));
            let p = (0..32).fold(0, |p, l| p | u32::from(values[l] != 0) << l);
            r.put32(i.d, &values, m);
            r.put_pred(i.d2, if i.sub & 3 == 1 { p & q } else { p | q }, m);
        }
        Op::SetpLane => {
            let op = &sides.compares[i.side as usize];
            let results: Vec<(bool, bool)> = (0..32).map(|l| compare_lane(r, i, op, l)).collect();
            let mask =
                |f: &dyn Fn(&(bool, bool)) -> bool| (0..32).fold(0u32, |a, l| a | u32::from(f(&results[l])) << l);
            if op.pair {
                let (p, q) = (mask(&|x| x.0), mask(&|x| x.1));
                let c = r.pred(i.c) ^ if i.flags & flag::COMBINE_NOT != 0 { u32::MAX } else { 0 };
                let f = |x: u32| match (i.flags & flag::COMBINE, i.imm) {
                    (0, _) => x,
                    (_, 1) => x & c,
                    (_, 2) => x | c,
                    _ => x ^ c,
                };
                r.put_pred(i.d, f(p), m);
                r.put_pred(i.d2, f(q), m);
            } else {
                set_predicates(r, i, m, mask(&|x| x.0));
            }
        }
        Op::SetLane => {
            let op = &sides.compares[i.side as usize];
            let c = r.pred(i.c) ^ if i.flags & flag::COMBINE_NOT != 0 { u32::MAX } else { 0 };
            each_lane(r, m, i.d, Width::W32, |r, l| {
                let (p, q) = compare_lane(r, i, op, l);
                let combine = |x: bool| match (i.flags & flag::COMBINE, i.imm) {
                    (0, _) => x,
                    (_, 1) => x & (c >> l & 1 != 0),
                    (_, 2) => x | (c >> l & 1 != 0),
                    _ => x ^ (c >> l & 1 != 0),
                };
                set_value(op.to, combine(p), combine(q))
            });
        }
        Op::Carry => carry(r, i, m),
        Op::PackMany => {
            let op = &sides.packs[i.side as usize];
            let width = if op.wide { Width::W64 } else { Width::W32 };
            each_lane(r, m, i.d, width, |r, l| {
                let piece = |row: RowId| u64::from(r.r32(row)[l]) & ((1 << (8 * op.bytes)) - 1);
                op.rows.iter().enumerate().fold(0, |a, (n, row)| a | piece(*row) << (8 * op.bytes as usize * n))
            });
        }
        Op::UnpackMany => {
            let op = &sides.packs[i.side as usize];
            let mut source = [0u64; 32];
            for (l, s) in source.iter_mut().enumerate() {
                *s = r.lane(i.a, op.wide, l);
            }
            for (n, row) in op.rows.iter().enumerate() {
                let cut = (1u64 << (8 * op.bytes)) - 1;
                let t: [u32; 32] = std::array::from_fn(|l| (source[l] >> (8 * op.bytes as usize * n) & cut) as u32);
                r.put32(*row, &t, m);
            }
        }
        // Anything else belongs to another class and never comes here.
        _ => {}
    }
}

fn lanes(r: &mut Registers, i: &Instr, m: u32, sides: &Sides) {
    let op = &sides.lanes[i.side as usize];
    let read = |r: &Registers, row, width, l: usize| match width {
        Width::W32 => u64::from(r.r32(row)[l]),
        Width::W64 => r.r64(row)[l],
        Width::Pred => u64::from(r.pred(row) >> l & 1),
    };
    let cut = if op.cut >= 64 { u64::MAX } else { (1 << op.cut) - 1 };
    each_lane(r, m, i.d, op.d, |r, l| {
        (op.fun)(read(r, i.a, op.a, l), read(r, i.b, op.b, l), read(r, i.c, op.c, l), i.imm as u64) & cut
    });
}

fn set_value(to: Ty, p: bool, q: bool) -> u64 {
    match to {
        Ty::F32 => {
            if p {
                0x3F80_0000
            } else {
                0
            }
        }
        Ty::F16 => {
            if p {
                0x3C00
            } else {
                0
            }
        }
        Ty::Bf16 => {
            if p {
                0x3F80
            } else {
                0
            }
        }
        Ty::F16x2 => (u64::from(p) * 0x3C00) | (u64::from(q) * 0x3C00_0000),
        Ty::Bf16x2 => (u64::from(p) * 0x3F80) | (u64::from(q) * 0x3F80_0000),
        Ty::U16 | Ty::S16 => u64::from(p) * 0xFFFF,
        _ => u64::from(p) * 0xFFFF_FFFF,
    }
}

/// The comparison of a lane; for pairs that of the lower and of the upper half.
fn compare_lane(r: &Registers, i: &Instr, op: &CompareOp, l: usize) -> (bool, bool) {
    let wide = op.width == Width::W64;
    let (a, b) = (r.lane(i.a, wide, l), r.lane(i.b, wide, l));
    let ftz = i.flags & flag::FTZ != 0;
    let small = |f: Format, code: u64| {
        let v = f.decode(code as u32);
        if ftz && v.abs() < f.decode(1 << f.mantissa_bits) { 0.0 } else { v }
    };
    let float = |f: Format, shift: u32| ordered(i.sub, small(f, a >> shift), small(f, b >> shift));
    match op.ty {
        Ty::F64 => (ordered(i.sub, f64::from_bits(a), f64::from_bits(b)), false),
        Ty::F32 => (float(Format::F32, 0), false),
        Ty::F16 => (float(Format::F16, 0), false),
        Ty::Bf16 => (float(Format::BF16, 0), false),
        Ty::F16x2 => (float(Format::F16, 0), float(Format::F16, 16)),
        Ty::Bf16x2 => (float(Format::BF16, 0), float(Format::BF16, 16)),
        Ty::S16 => (ordered(i.sub, a as i16, b as i16), false),
        Ty::S32 => (ordered(i.sub, a as i32, b as i32), false),
        Ty::S64 => (ordered(i.sub, a as i64, b as i64), false),
        _ => (ordered(i.sub, a, b), false),
    }
}

pub(super) fn ordered<T: PartialOrd>(cmp: u8, a: T, b: T) -> bool {
    let known = a.partial_cmp(&b);
    use std::cmp::Ordering::{Equal, Greater, Less};
    let is = |list: &[std::cmp::Ordering]| known.is_some_and(|o| list.contains(&o));
    let unordered = known.is_none();
    match cmp {
        x if x == Cmp::Eq as u8 => is(&[Equal]),
        x if x == Cmp::Ne as u8 => is(&[Less, Greater]),
        x if x == Cmp::Lt as u8 => is(&[Less]),
        x if x == Cmp::Le as u8 => is(&[Less, Equal]),
        x if x == Cmp::Gt as u8 => is(&[Greater]),
        x if x == Cmp::Ge as u8 => is(&[Greater, Equal]),
        x if x == Cmp::Equ as u8 => unordered || is(&[Equal]),
        x if x == Cmp::Neu as u8 => unordered || is(&[Less, Greater]),
        x if x == Cmp::Ltu as u8 => unordered || is(&[Less]),
        x if x == Cmp::Leu as u8 => unordered || is(&[Less, Equal]),
        x if x == Cmp::Gtu as u8 => unordered || is(&[Greater]),
        x if x == Cmp::Geu as u8 => unordered || is(&[Greater, Equal]),
        x if x == Cmp::Num as u8 => !unordered,
        _ => unordered,
    }
}

/// Extended-precision arithmetic: the carry flag is a predicate row.
/// `sub`: 0 add, 1 sub, 2 mad.lo, 3 mad.hi.u, 4 mad.hi.s; plus 8 for 64 bits, 16 reads, 32 writes the flag.
fn carry(r: &mut Registers, i: &Instr, m: u32) {
    let wide = i.sub & 8 != 0;
    let bits = if wide { 64 } else { 32 };
    let flags = if i.sub & 16 != 0 { r.pred(CARRY) } else { 0 };
    let mut out = 0u32;
    let mut t = [0u64; 32];
    for l in lanes_of(m) {
        let (a, b, c) = (r.lane(i.a, wide, l), r.lane(i.b, wide, l), r.lane(i.c, wide, l));
        let carry = u128::from(flags >> l & 1);
        let limit = (1u128 << bits) - 1;
        let (x, y) = match i.sub & 7 {
            0 => (u128::from(a), u128::from(b)),
            // a - b - borrow as a + !b + carry: the flag is the adder's carry, which is the borrow's opposite.
            // NVRTC's division of 128-bit numbers reads it with addc after a subtraction, and relies on that.
            1 => (u128::from(a), u128::from(!b) & limit),
            2 => ((u128::from(a) * u128::from(b)) & limit, u128::from(c)),
            3 => ((u128::from(a) * u128::from(b)) >> bits & limit, u128::from(c)),
            _ => {
                let s = |v: u64| if wide { i128::from(v as i64) } else { i128::from(v as u32 as i32) };
                (((s(a) * s(b)) >> bits) as u128 & limit, u128::from(c))
            }
        };
        let first = i.sub & 16 == 0;
        let sum = x + y + if i.sub & 7 == 1 && first { 1 } else { carry };
        out |= u32::from(sum > limit) << l;
        t[l] = (sum & limit) as u64;
    }
    if wide {
        r.put64(i.d, &t, m)
    } else {
        r.put32(i.d, &t.map(|v| v as u32), m)
    }
    if i.sub & 32 != 0 {
        r.put_pred(CARRY, out, m);
    }
}
