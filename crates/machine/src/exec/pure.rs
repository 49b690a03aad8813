//! Lane-wise instructions on whole rows: the loops are over 32 lanes, so that the compiler vectorises them.
//!
//! Undefined values are handled before (`exec::undefined`): here only values are computed.
//! NaN results of f32 arithmetic are the canonical 0x7FFFFFFF. Source: PTX ISA 9.0, "Instruction Set".

use crate::code::{Cmp, Instr, Op, Sides, Width, flag};
use crate::exec::lane_integer;
use crate::exec::rare;
use crate::registers::Registers;

type R<'a> = &'a mut Registers;

#[inline(always)]
fn un32(r: R, i: &Instr, m: u32, f: impl Fn(u32) -> u32) {
    let mut t = [0u32; 32];
    let a = r.r32(i.a);
    for l in 0..32 {
        t[l] = f(a[l]);
    }
    r.put32(i.d, &t, m);
}

#[inline(always)]
fn bin32(r: R, i: &Instr, m: u32, f: impl Fn(u32, u32) -> u32) {
    let mut t = [0u32; 32];
    let (a, b) = (r.r32(i.a), r.r32(i.b));
    for l in 0..32 {
        t[l] = f(a[l], b[l]);
    }
    r.put32(i.d, &t, m);
}

#[inline(always)]
fn tri32(r: R, i: &Instr, m: u32, f: impl Fn(u32, u32, u32) -> u32) {
    let mut t = [0u32; 32];
    let (a, b, c) = (r.r32(i.a), r.r32(i.b), r.r32(i.c));
    for l in 0..32 {
        t[l] = f(a[l], b[l], c[l]);
    }
    r.put32(i.d, &t, m);
}

#[inline(always)]
fn un64(r: R, i: &Instr, m: u32, f: impl Fn(u64) -> u64) {
    let mut t = [0u64; 32];
    let a = r.r64(i.a);
    for l in 0..32 {
        t[l] = f(a[l]);
    }
    r.put64(i.d, &t, m);
}

#[inline(always)]
fn bin64(r: R, i: &Instr, m: u32, f: impl Fn(u64, u64) -> u64) {
    let mut t = [0u64; 32];
    let (a, b) = (r.r64(i.a), r.r64(i.b));
    for l in 0..32 {
        t[l] = f(a[l], b[l]);
    }
    r.put64(i.d, &t, m);
}

#[inline(always)]
fn tri64(r: R, i: &Instr, m: u32, f: impl Fn(u64, u64, u64) -> u64) {
    let mut t = [0u64; 32];
    let (a, b, c) = (r.r64(i.a), r.r64(i.b), r.r64(i.c));
    for l in 0..32 {
        t[l] = f(a[l], b[l], c[l]);
    }
    r.put64(i.d, &t, m);
}

/// 64 bits by a 32-bit amount.
#[inline(always)]
fn shift64(r: R, i: &Instr, m: u32, f: impl Fn(u64, u32) -> u64) {
    let mut t = [0u64; 32];
    let (a, b) = (r.r64(i.a), r.r32(i.b));
    for l in 0..32 {
        t[l] = f(a[l], b[l]);
    }
    r.put64(i.d, &t, m);
}

/// 32 bits to 64.
#[inline(always)]
fn widen2(r: R, i: &Instr, m: u32, f: impl Fn(u32, u32) -> u64) {
    let mut t = [0u64; 32];
    let (a, b) = (r.r32(i.a), r.r32(i.b));
    for l in 0..32 {
        t[l] = f(a[l], b[l]);
    }
    r.put64(i.d, &t, m);
}

#[inline(always)]
fn widen_add(r: R, i: &Instr, m: u32, f: impl Fn(u32, u32) -> u64) {
    let mut t = [0u64; 32];
    let (a, b, c) = (r.r32(i.a), r.r32(i.b), r.r64(i.c));
    for l in 0..32 {
        t[l] = f(a[l], b[l]).wrapping_add(c[l]);
    }
    r.put64(i.d, &t, m);
}

#[inline(always)]
fn flush(bits: u32) -> u32 {
    if bits & 0x7F80_0000 == 0 { bits & 0x8000_0000 } else { bits }
}

#[inline(always)]
fn canonical(bits: u32) -> u32 {
    if bits & 0x7FFF_FFFF > 0x7F80_0000 { 0x7FFF_FFFF } else { bits }
}

#[inline(always)]
fn saturate(bits: u32) -> u32 {
    let v = f32::from_bits(bits);
    // NaN compares false and becomes zero.
    if v >= 1.0 { 0x3F80_0000 } else if v > 0.0 { bits } else { 0 }
}

/// f32 arithmetic with `.ftz` and `.sat`.
#[inline(always)]
fn float3(r: R, i: &Instr, m: u32, f: impl Fn(f32, f32, f32) -> f32) {
    let mut t = [0u32; 32];
    let (a, b, c) = (r.r32(i.a), r.r32(i.b), r.r32(i.c));
    if i.flags & flag::FTZ != 0 {
        for l in 0..32 {
            let v = f(f32::from_bits(flush(a[l])), f32::from_bits(flush(b[l])), f32::from_bits(flush(c[l])));
            t[l] = flush(canonical(v.to_bits()));
        }
    } else {
        for l in 0..32 {
            t[l] = canonical(f(f32::from_bits(a[l]), f32::from_bits(b[l]), f32::from_bits(c[l])).to_bits());
        }
    }
    if i.flags & flag::SAT != 0 {
        for v in &mut t {
            *v = saturate(*v);
        }
    }
    r.put32(i.d, &t, m);
}

#[inline(always)]
fn float2(r: R, i: &Instr, m: u32, f: impl Fn(f32, f32) -> f32) {
    float3(r, i, m, |a, b, _| f(a, b));
}

#[inline(always)]
fn float1(r: R, i: &Instr, m: u32, f: impl Fn(f32) -> f32) {
    float3(r, i, m, |a, _, _| f(a));
}

#[inline(always)]
fn min_f32(a: f32, b: f32) -> f32 {
    let lower = a < b || (a == b && a.is_sign_negative());
    if b.is_nan() || lower { a } else { b }
}

#[inline(always)]
fn max_f32(a: f32, b: f32) -> f32 {
    let higher = a > b || (a == b && a.is_sign_positive());
    if b.is_nan() || higher { a } else { b }
}

/// 2^x to within half an ulp of f32 but for rare ties: degree-10 polynomial in f64 on [-1/2, 1/2] (error below 1e-13).
#[inline(always)]
pub fn exp2(x: f32) -> f32 {
    const MAGIC: f64 = 6755399441055744.0;
    let v = f64::from(x);
    let v = if v > 200.0 { 200.0 } else { v };
    let v = if v < -200.0 { -200.0 } else { v };
    let shifted = v + MAGIC;
    let f = v - (shifted - MAGIC);
    const C: [f64; 11] = [
        1.0,
        0.6931471805599453,
        0.2402265069591007,
        0.05550410866482158,
        0.009618129107628477,
        0.0013333558146428443,
        0.00015403530393381608,
        1.5252733804059841e-5,
        1.3215486790144307e-6,
        1.0178086009239699e-7,
        7.0549116208011e-9,
    ];
    let mut p = C[10];
    let mut n = 10;
    while n > 0 {
        n -= 1;
        p = p * f + C[n];
    }
    // The integer part sits in the low bits of `shifted`.
    let bits = p.to_bits().wrapping_add(shifted.to_bits() << 52);
    if x.is_nan() { x } else { f64::from_bits(bits) as f32 }
}

#[inline(always)]
fn mask_of(f: impl Fn(usize) -> bool) -> u32 {
    let mut t = [0u32; 32];
    for (l, v) in t.iter_mut().enumerate() {
        *v = u32::from(f(l)) << l;
    }
    t.iter().fold(0, |a, b| a | b)
}

#[inline(always)]
fn compare<T: Copy + PartialOrd>(sub: u8, a: impl Fn(usize) -> T, b: impl Fn(usize) -> T) -> u32 {
    match sub {
        x if x == Cmp::Eq as u8 => mask_of(|l| a(l) == b(l)),
        x if x == Cmp::Ne as u8 => mask_of(|l| a(l) < b(l) || a(l) > b(l)),
        x if x == Cmp::Lt as u8 => mask_of(|l| a(l) < b(l)),
        x if x == Cmp::Le as u8 => mask_of(|l| a(l) <= b(l)),
        x if x == Cmp::Gt as u8 => mask_of(|l| a(l) > b(l)),
        x if x == Cmp::Ge as u8 => mask_of(|l| a(l) >= b(l)),
        // The unordered comparisons are the negations of the ordered opposites.
        x if x == Cmp::Equ as u8 => !mask_of(|l| a(l) < b(l) || a(l) > b(l)),
        x if x == Cmp::Neu as u8 => !mask_of(|l| a(l) == b(l)),
        x if x == Cmp::Ltu as u8 => !mask_of(|l| a(l) >= b(l)),
        x if x == Cmp::Leu as u8 => !mask_of(|l| a(l) > b(l)),
        x if x == Cmp::Gtu as u8 => !mask_of(|l| a(l) <= b(l)),
        x if x == Cmp::Geu as u8 => !mask_of(|l| a(l) < b(l)),
        x if x == Cmp::Num as u8 => mask_of(|l| a(l) <= b(l) || a(l) > b(l)),
        _ => !mask_of(|l| a(l) <= b(l) || a(l) > b(l)),
    }
}

/// Writes p and q of a `setp`, combined with a third predicate where the instruction says so.
#[inline(always)]
pub fn set_predicates(r: R, i: &Instr, m: u32, result: u32) {
    let (mut p, mut q) = (result, !result);
    if i.flags & flag::COMBINE != 0 {
        let c = r.pred(i.c) ^ if i.flags & flag::COMBINE_NOT != 0 { u32::MAX } else { 0 };
        let f = |x: u32| match i.imm {
            1 => x & c,
            2 => x | c,
            _ => x ^ c,
        };
        (p, q) = (f(p), f(q));
    }
    r.put_pred(i.d, p, m);
    r.put_pred(i.d2, q, m);
}

#[inline(always)]
fn setp32<T: Copy + PartialOrd>(r: R, i: &Instr, m: u32, f: impl Fn(u32) -> T) {
    let result = {
        let (a, b) = (r.r32(i.a), r.r32(i.b));
        compare(i.sub, |l| f(a[l]), |l| f(b[l]))
    };
    set_predicates(r, i, m, result);
}

#[inline(always)]
fn setp64<T: Copy + PartialOrd>(r: R, i: &Instr, m: u32, f: impl Fn(u64) -> T) {
    let result = {
        let (a, b) = (r.r64(i.a), r.r64(i.b));
        compare(i.sub, |l| f(a[l]), |l| f(b[l]))
    };
    set_predicates(r, i, m, result);
}

#[inline(always)]
fn shl(a: u32, n: u32) -> u32 {
    if n < 32 { a << n } else { 0 }
}

#[inline(always)]
fn shr(a: u32, n: u32) -> u32 {
    if n < 32 { a >> n } else { 0 }
}

#[inline(always)]
fn sar(a: u32, n: u32) -> u32 {
    ((a as i32) >> n.min(31)) as u32
}

/// Any function of three bits, by its truth table.
#[inline(always)]
fn lop3(a: u32, b: u32, c: u32, table: u32) -> u32 {
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

#[inline(always)]
fn prmt_rows(r: R, i: &Instr, m: u32) {
    tri32(r, i, m, |a, b, c| {
        let pool = u64::from(b) << 32 | u64::from(a);
        let mut out = 0;
        let mut n = 0;
        while n < 4 {
            let s = c >> (4 * n);
            let byte = (pool >> (8 * (s & 7))) as u32 & 0xFF;
            let sign = if byte & 0x80 != 0 { 0xFF } else { 0 };
            out |= (if s & 8 != 0 { sign } else { byte }) << (8 * n);
            n += 1;
        }
        out
    });
}

/// f16 bits to f32 bits, exactly.
#[inline(always)]
pub fn f16_to_f32(h: u32) -> u32 {
    let magnitude = h & 0x7FFF;
    let sign = (h & 0x8000) << 16;
    let scaled = (f32::from_bits(magnitude << 13) * f32::from_bits((127 + 112) << 23)).to_bits();
    let v = if magnitude >= 0x7C00 { 0x7F80_0000 } else { scaled };
    if magnitude > 0x7C00 { 0x7FFF_FFFF } else { v | sign }
}

/// f32 bits to f16 bits, nearest even, overflow to infinity.
#[inline(always)]
pub fn f32_to_f16(x: u32) -> u32 {
    let sign = x >> 16 & 0x8000;
    let magnitude = x & 0x7FFF_FFFF;
    // Normal results: rebias and round to nearest even on the 13 bits that go.
    let rounded = magnitude.wrapping_add(0xFFF).wrapping_add(magnitude >> 13 & 1).wrapping_sub(112 << 23) >> 13;
    // Subnormal results: adding 0.5 aligns the significand so that the unit's last place is f16's smallest step.
    let small = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0.5f32.to_bits());
    let v = if magnitude < 113 << 23 { small } else { rounded };
    let v = if magnitude >= 0x477F_F000 { 0x7C00 } else { v };
    if magnitude > 0x7F80_0000 { 0x7FFF } else { v | sign }
}

#[inline(always)]
fn f32_to_bf16(x: u32) -> u32 {
    let rounded = x.wrapping_add(0x7FFF).wrapping_add(x >> 16 & 1) >> 16;
    if x & 0x7FFF_FFFF > 0x7F80_0000 { 0x7FFF } else { rounded }
}

/// f32 bits to an e4m3 code, nearest even, saturating.
#[inline(always)]
fn f32_to_e4m3(x: u32) -> u32 {
    let sign = x >> 24 & 0x80;
    let magnitude = x & 0x7FFF_FFFF;
    let rounded = magnitude.wrapping_add(0x7_FFFF).wrapping_add(magnitude >> 20 & 1).wrapping_sub(120 << 23) >> 20;
    // Below 2^-6: steps of 2^-9; adding 2^14 makes that the last place of an f32.
    let small = (f32::from_bits(magnitude) + 16384.0).to_bits().wrapping_sub(16384.0f32.to_bits());
    let v = if magnitude < 121 << 23 { small } else { rounded };
    let v = if magnitude >= 0x43E0_0000 { 0x7E } else { v };
    if magnitude > 0x7F80_0000 { 0x7F } else { v | sign }
}

/// An e4m3 code to f16 bits, exactly.
#[inline(always)]
fn e4m3_to_f16(code: u32) -> u32 {
    let sign = (code & 0x80) << 8;
    let magnitude = code & 0x7F;
    // As an f16 the fields are 8 binades too low (bias 15 against 7): one exact multiplication in f32 mends all codes.
    let v = f32::from_bits(f16_to_f32(magnitude << 7)) * 256.0;
    let half = f32_to_f16(v.to_bits());
    if magnitude == 0x7F { 0x7FFF } else { half | sign }
}

/// Runs one instruction of class `Pure` on the lanes of `m`.
#[inline(always)]
pub fn run(r: R, i: &Instr, m: u32, sides: &Sides) {
    match i.op {
        Op::Nop => {}
        Op::Mov32 => un32(r, i, m, |a| a),
        Op::Mov64 => un64(r, i, m, |a| a),
        Op::MovPred => {
            let a = r.pred(i.a);
            r.put_pred(i.d, a, m);
        }
        Op::Add32 => bin32(r, i, m, u32::wrapping_add),
        Op::Sub32 => bin32(r, i, m, u32::wrapping_sub),
        Op::MulLo32 => bin32(r, i, m, u32::wrapping_mul),
        Op::MadLo32 => tri32(r, i, m, |a, b, c| a.wrapping_mul(b).wrapping_add(c)),
        Op::MulWideS32 => widen2(r, i, m, |a, b| (i64::from(a as i32) * i64::from(b as i32)) as u64),
        Op::MulWideU32 => widen2(r, i, m, |a, b| u64::from(a) * u64::from(b)),
        Op::MadWideS32 => widen_add(r, i, m, |a, b| (i64::from(a as i32) * i64::from(b as i32)) as u64),
        Op::MadWideU32 => widen_add(r, i, m, |a, b| u64::from(a) * u64::from(b)),
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
        Op::Add64 => bin64(r, i, m, u64::wrapping_add),
        Op::Sub64 => bin64(r, i, m, u64::wrapping_sub),
        Op::MulLo64 => bin64(r, i, m, u64::wrapping_mul),
        Op::MadLo64 => tri64(r, i, m, |a, b, c| a.wrapping_mul(b).wrapping_add(c)),
        Op::And64 => bin64(r, i, m, |a, b| a & b),
        Op::Or64 => bin64(r, i, m, |a, b| a | b),
        Op::Xor64 => bin64(r, i, m, |a, b| a ^ b),
        Op::Not64 => un64(r, i, m, |a| !a),
        Op::Shl64 => shift64(r, i, m, |a, n| if n < 64 { a << n } else { 0 }),
        Op::ShrU64 => shift64(r, i, m, |a, n| if n < 64 { a >> n } else { 0 }),
        Op::ShrS64 => shift64(r, i, m, |a, n| ((a as i64) >> n.min(63)) as u64),
        Op::MinS64 => bin64(r, i, m, |a, b| (a as i64).min(b as i64) as u64),
        Op::MaxS64 => bin64(r, i, m, |a, b| (a as i64).max(b as i64) as u64),
        Op::MinU64 => bin64(r, i, m, u64::min),
        Op::MaxU64 => bin64(r, i, m, u64::max),
        Op::AddF32 => float2(r, i, m, |a, b| a + b),
        Op::SubF32 => float2(r, i, m, |a, b| a - b),
        Op::MulF32 => float2(r, i, m, |a, b| a * b),
        Op::FmaF32 => float3(r, i, m, f32::mul_add),
        Op::DivF32 => float2(r, i, m, |a, b| a / b),
        Op::MinF32 => float2(r, i, m, min_f32),
        Op::MaxF32 => float2(r, i, m, max_f32),
        Op::NegF32 if i.flags == 0 => un32(r, i, m, |a| a ^ 0x8000_0000),
        Op::AbsF32 if i.flags == 0 => un32(r, i, m, |a| a & 0x7FFF_FFFF),
        Op::NegF32 => float1(r, i, m, |a| -a),
        Op::AbsF32 => float1(r, i, m, f32::abs),
        Op::Ex2F32 => float1(r, i, m, exp2),
        Op::RcpF32 => float1(r, i, m, |a| 1.0 / a),
        Op::SqrtF32 => float1(r, i, m, f32::sqrt),
        Op::RsqrtF32 => float1(r, i, m, |a| (1.0 / f64::from(a).sqrt()) as f32),
        Op::SetpS32 => setp32(r, i, m, |a| a as i32),
        Op::SetpU32 | Op::SetpU16 => setp32(r, i, m, |a| a),
        Op::SetpS16 => setp32(r, i, m, |a| a as u16 as i16),
        Op::SetpF32 if i.flags & flag::FTZ != 0 => setp32(r, i, m, |a| f32::from_bits(flush(a))),
        Op::SetpF32 => setp32(r, i, m, f32::from_bits),
        Op::SetpS64 => setp64(r, i, m, |a| a as i64),
        Op::SetpU64 => setp64(r, i, m, |a| a),
        Op::Selp32 => {
            let c = r.pred(i.c);
            let mut t = [0u32; 32];
            let (a, b) = (r.r32(i.a), r.r32(i.b));
            for l in 0..32 {
                t[l] = if c >> l & 1 != 0 { a[l] } else { b[l] };
            }
            r.put32(i.d, &t, m);
        }
        Op::Selp64 => {
            let c = r.pred(i.c);
            let mut t = [0u64; 32];
            let (a, b) = (r.r64(i.a), r.r64(i.b));
            for l in 0..32 {
                t[l] = if c >> l & 1 != 0 { a[l] } else { b[l] };
            }
            r.put64(i.d, &t, m);
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
        Op::CvtU64U32 => widen2(r, i, m, |a, _| u64::from(a)),
        Op::CvtS64S32 => widen2(r, i, m, |a, _| i64::from(a as i32) as u64),
        Op::CvtLow32 => {
            let mut t = [0u32; 32];
            let a = r.r64(i.a);
            for l in 0..32 {
                t[l] = a[l] as u32;
            }
            r.put32(i.d, &t, m);
        }
        Op::CvtLow16 => un32(r, i, m, |a| a & 0xFFFF),
        Op::CvtF32S32 => un32(r, i, m, |a| (a as i32 as f32).to_bits()),
        Op::CvtF32U32 => un32(r, i, m, |a| (a as f32).to_bits()),
        Op::CvtF32F16 => un32(r, i, m, f16_to_f32),
        Op::CvtF16F32 => un32(r, i, m, f32_to_f16),
        Op::CvtF16x2F32 => bin32(r, i, m, |a, b| f32_to_f16(a) << 16 | f32_to_f16(b)),
        Op::CvtBf16x2F32 => bin32(r, i, m, |a, b| f32_to_bf16(a) << 16 | f32_to_bf16(b)),
        Op::CvtF16x2E4m3x2 => un32(r, i, m, |a| e4m3_to_f16(a >> 8 & 0xFF) << 16 | e4m3_to_f16(a & 0xFF)),
        Op::CvtE4m3x2F32 => bin32(r, i, m, |a, b| f32_to_e4m3(a) << 8 | f32_to_e4m3(b)),
        Op::Pack2x16 => bin32(r, i, m, |a, b| a & 0xFFFF | b << 16),
        Op::Pack2x32 => widen2(r, i, m, |a, b| u64::from(b) << 32 | u64::from(a)),
        Op::Unpack2x16 => {
            let mut t = [[0u32; 32]; 2];
            let a = r.r32(i.a);
            for l in 0..32 {
                t[0][l] = a[l] & 0xFFFF;
                t[1][l] = a[l] >> 16;
            }
            r.put32(i.d, &t[0], m);
            r.put32(i.d2, &t[1], m);
        }
        Op::Unpack2x32 => {
            let mut t = [[0u32; 32]; 2];
            let a = r.r64(i.a);
            for l in 0..32 {
                t[0][l] = a[l] as u32;
                t[1][l] = (a[l] >> 32) as u32;
            }
            r.put32(i.d, &t[0], m);
            r.put32(i.d2, &t[1], m);
        }
        Op::Lane => lanes(r, i, m, sides),
        Op::Bfi => {
            let wide = i.imm == 8;
            rare::each_lane(r, m, i.d, if wide { Width::W64 } else { Width::W32 }, |r, l| {
                let (a, b) = (r.lane(i.a, wide, l), r.lane(i.b, wide, l));
                lane_integer::bfi(a, b, r.r32(i.c)[l], r.r32(i.side)[l], if wide { 64 } else { 32 })
            });
        }
        _ => rare::run(r, i, m, sides),
    }
}

fn lanes(r: R, i: &Instr, m: u32, sides: &Sides) {
    let op = &sides.lanes[i.side as usize];
    let read = |r: &Registers, row, width, l: usize| match width {
        Width::W32 => u64::from(r.r32(row)[l]),
        Width::W64 => r.r64(row)[l],
        Width::Pred => u64::from(r.pred(row) >> l & 1),
    };
    let cut = cut_of(op.cut);
    rare::each_lane(r, m, i.d, op.d, |r, l| {
        (op.fun)(read(r, i.a, op.a, l), read(r, i.b, op.b, l), read(r, i.c, op.c, l), i.imm as u64) & cut
    });
}

fn cut_of(bits: u8) -> u64 {
    if bits >= 64 { u64::MAX } else { (1 << bits) - 1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpsmith_num as num;

    #[test]
    fn quick_conversions_agree_with_the_formats() {
        let mut x = 1u32;
        let mut values: Vec<u32> = (0..200_000).map(|_| { x = x.wrapping_mul(1664525).wrapping_add(1013904223); x }).collect();
        // Values around every representable step of the narrow formats.
        for h in 0..=0xFFFFu32 {
            let v = num::f16::to_f32(h as u16).to_bits();
            values.extend([v, v.wrapping_add(1), v.wrapping_sub(1), v.wrapping_add(0x1000), v.wrapping_add(0x1001), v.wrapping_add(0x8_0000)]);
        }
        for v in values {
            let f = f32::from_bits(v);
            assert_eq!(f32_to_f16(v), u32::from(num::f16::from_f32(f)), "f16 of {v:#x}");
            assert_eq!(f32_to_bf16(v), u32::from(num::bf16::from_f32(f)), "bf16 of {v:#x}");
            assert_eq!(f32_to_e4m3(v), u32::from(num::e4m3::from_f32(f)), "e4m3 of {v:#x}");
        }
        for h in 0..=0xFFFFu32 {
            assert_eq!(f16_to_f32(h), num::f16::to_f32(h as u16).to_bits(), "f32 of {h:#x}");
        }
        for c in 0..256u32 {
            assert_eq!(e4m3_to_f16(c), u32::from(num::e4m3::to_f16(c as u8)), "f16 of {c:#x}");
        }
    }

    #[test]
    fn exp2_is_right_to_the_last_bit_or_next_to_it() {
        let mut x = 7u32;
        for _ in 0..100_000 {
            x = x.wrapping_mul(1664525).wrapping_add(1013904223);
            let v = (x as i32 as f32) / 1.3e7;
            let expected = libm::exp2(f64::from(v)) as f32;
            let got = exp2(v);
            assert!(got.to_bits().abs_diff(expected.to_bits()) <= 1, "{v}: {got} {expected}");
        }
        for (v, expected) in [(f32::INFINITY, f32::INFINITY), (f32::NEG_INFINITY, 0.0), (0.0, 1.0), (-149.0, f32::from_bits(1)), (10.0, 1024.0)] {
            assert_eq!(exp2(v), expected);
        }
        assert!(exp2(f32::NAN).is_nan());
    }
}
