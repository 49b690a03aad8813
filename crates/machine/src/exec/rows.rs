//! Loops over the 32 lanes of whole rows, which the compiler vectorises. The families of lane-wise instructions are made of them.

use crate::code::{Cmp, Instr, flag};
use crate::registers::Registers;

/// Registers of the warp that runs.
pub type R<'a> = &'a mut Registers;

/// What the processor has: nothing in particular, AVX2 and what comes with it, AVX-512.
pub const ANY: u8 = 0;
pub const AVX2: u8 = 1;
pub const AVX512: u8 = 2;

/// What this processor has.
pub fn width() -> u8 {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::is_x86_feature_detected as has;
        let bits = has!("bmi1") && has!("bmi2") && has!("popcnt") && has!("lzcnt");
        if bits && has!("avx2") && has!("fma") && has!("f16c") {
            let wider = has!("avx512f") && has!("avx512vl") && has!("avx512bw") && has!("avx512dq");
            return if wider { AVX512 } else { AVX2 };
        }
    }
    ANY
}

/// Defines a function three times on x86-64: for any CPU, and for one with what `WIDE` says.
macro_rules! versions {
    ($(#[$doc:meta])* fn $name:ident($($arg:ident: $ty:ty),*) $(-> $result:ty)? = $body:path) => {
        $(#[$doc])*
        #[inline(always)]
        pub fn $name<const WIDE: u8>($($arg: $ty),*) $(-> $result)? {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,popcnt,lzcnt")]
                fn avx2($($arg: $ty),*) $(-> $result)? {
                    $body($($arg),*)
                }
                #[target_feature(
                    enable = "avx2,fma,f16c,bmi1,bmi2,popcnt,lzcnt,avx512f,avx512vl,avx512bw,avx512dq"
                )]
                fn avx512($($arg: $ty),*) $(-> $result)? {
                    $body($($arg),*)
                }
                if WIDE == $crate::exec::rows::AVX512 {
                    // SAFETY: WIDE is what `rows::width` has found, or less.
                    return unsafe { avx512($($arg),*) };
                }
                if WIDE == $crate::exec::rows::AVX2 {
                    // SAFETY: as above.
                    return unsafe { avx2($($arg),*) };
                }
            }
            #[inline(never)]
            fn base($($arg: $ty),*) $(-> $result)? {
                $body($($arg),*)
            }
            base($($arg),*)
        }
    };
}
pub(crate) use versions;

#[inline(always)]
pub fn un32(r: R, i: &Instr, m: u32, f: impl Fn(u32) -> u32) {
    let mut t = [0u32; 32];
    let a = r.r32(i.a);
    for l in 0..32 {
        t[l] = f(a[l]);
    }
    r.put32(i.d, &t, m);
}

#[inline(always)]
pub fn bin32(r: R, i: &Instr, m: u32, f: impl Fn(u32, u32) -> u32) {
    let mut t = [0u32; 32];
    let (a, b) = (r.r32(i.a), r.r32(i.b));
    for l in 0..32 {
        t[l] = f(a[l], b[l]);
    }
    r.put32(i.d, &t, m);
}

#[inline(always)]
pub fn tri32(r: R, i: &Instr, m: u32, f: impl Fn(u32, u32, u32) -> u32) {
    let mut t = [0u32; 32];
    let (a, b, c) = (r.r32(i.a), r.r32(i.b), r.r32(i.c));
    for l in 0..32 {
        t[l] = f(a[l], b[l], c[l]);
    }
    r.put32(i.d, &t, m);
}

#[inline(always)]
pub fn un64(r: R, i: &Instr, m: u32, f: impl Fn(u64) -> u64) {
    let mut t = [0u64; 32];
    let a = r.r64(i.a);
    for l in 0..32 {
        t[l] = f(a[l]);
    }
    r.put64(i.d, &t, m);
}

#[inline(always)]
pub fn bin64(r: R, i: &Instr, m: u32, f: impl Fn(u64, u64) -> u64) {
    let mut t = [0u64; 32];
    let (a, b) = (r.r64(i.a), r.r64(i.b));
    for l in 0..32 {
        t[l] = f(a[l], b[l]);
    }
    r.put64(i.d, &t, m);
}

#[inline(always)]
pub fn tri64(r: R, i: &Instr, m: u32, f: impl Fn(u64, u64, u64) -> u64) {
    let mut t = [0u64; 32];
    let (a, b, c) = (r.r64(i.a), r.r64(i.b), r.r64(i.c));
    for l in 0..32 {
        t[l] = f(a[l], b[l], c[l]);
    }
    r.put64(i.d, &t, m);
}

/// 64 bits by a 32-bit amount.
#[inline(always)]
pub fn shift64(r: R, i: &Instr, m: u32, f: impl Fn(u64, u32) -> u64) {
    let mut t = [0u64; 32];
    let (a, b) = (r.r64(i.a), r.r32(i.b));
    for l in 0..32 {
        t[l] = f(a[l], b[l]);
    }
    r.put64(i.d, &t, m);
}

/// 32 bits to 64.
#[inline(always)]
pub fn widen2(r: R, i: &Instr, m: u32, f: impl Fn(u32, u32) -> u64) {
    let mut t = [0u64; 32];
    let (a, b) = (r.r32(i.a), r.r32(i.b));
    for l in 0..32 {
        t[l] = f(a[l], b[l]);
    }
    r.put64(i.d, &t, m);
}

#[inline(always)]
pub fn widen_add(r: R, i: &Instr, m: u32, f: impl Fn(u32, u32) -> u64) {
    let mut t = [0u64; 32];
    let (a, b, c) = (r.r32(i.a), r.r32(i.b), r.r64(i.c));
    for l in 0..32 {
        t[l] = f(a[l], b[l]).wrapping_add(c[l]);
    }
    r.put64(i.d, &t, m);
}

#[inline(always)]
pub fn mask_of(f: impl Fn(usize) -> bool) -> u32 {
    let mut t = [0u32; 32];
    for (l, v) in t.iter_mut().enumerate() {
        *v = u32::from(f(l)) << l;
    }
    t.iter().fold(0, |a, b| a | b)
}

#[inline(always)]
pub fn compare<T: Copy + PartialOrd>(sub: u8, a: impl Fn(usize) -> T, b: impl Fn(usize) -> T) -> u32 {
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
pub fn setp32<T: Copy + PartialOrd>(r: R, i: &Instr, m: u32, f: impl Fn(u32) -> T) {
    let result = {
        let (a, b) = (r.r32(i.a), r.r32(i.b));
        compare(i.sub, |l| f(a[l]), |l| f(b[l]))
    };
    set_predicates(r, i, m, result);
}

#[inline(always)]
pub fn setp64<T: Copy + PartialOrd>(r: R, i: &Instr, m: u32, f: impl Fn(u64) -> T) {
    let result = {
        let (a, b) = (r.r64(i.a), r.r64(i.b));
        compare(i.sub, |l| f(a[l]), |l| f(b[l]))
    };
    set_predicates(r, i, m, result);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::{Class, Op};
    use crate::exec::{converts, floats, ints, wides};

    /// The registers after one instruction of a family, as one build runs it.
    fn after<const WIDE: u8>(i: &Instr, m: u32, values: &[u32]) -> Vec<u32> {
        let mut r = Registers::new();
        r.push_window(values.len() / 32);
        for (row, words) in values.as_chunks::<32>().0.iter().enumerate() {
            r.put32(row as u32, words, u32::MAX);
        }
        match i.class {
            Class::Ints => ints::run::<WIDE>(&mut r, i, m),
            Class::Floats => floats::run::<WIDE>(&mut r, i, m),
            Class::Wides => wides::run::<WIDE>(&mut r, i, m),
            _ => converts::run::<WIDE>(&mut r, i, m),
        }
        (0..values.len() / 32).flat_map(|row| *r.r32(row as u32)).collect()
    }

    #[test]
    fn every_build_gives_the_same_bits() {
        let mut x = 3u32;
        let mut next = || {
            x = x.wrapping_mul(1664525).wrapping_add(1013904223);
            x ^ x >> 15
        };
        let families = [Class::Ints, Class::Floats, Class::Wides, Class::Converts];
        for (op, round) in Op::ALL.iter().flat_map(|op| (0..12).map(move |round| (*op, round))) {
            if !families.contains(&op.class()) {
                continue;
            }
            // Any bits, small numbers, numbers near one, and a third operand that all lanes share.
            let mut values: Vec<u32> = (0..32 * 14).map(|_| next()).collect();
            for v in &mut values {
                *v = match round % 4 {
                    0 => *v,
                    1 => *v % 41,
                    2 => *v & 0x81FF_FFFF | 0x3E00_0000,
                    _ => *v & 0x807F_FFFF | (*v >> 5 & 0x0380_0000),
                };
            }
            if round >= 6 {
                let selector = values[0] & 0x7777;
                values[32 * 10..32 * 12].fill(selector);
            }
            let m = if round % 3 == 2 { next() } else { u32::MAX };
            let flags = [0, flag::FTZ, flag::SAT, flag::FTZ | flag::SAT][round / 3];
            let i = Instr {
                a: 6,
                b: 8,
                c: 10,
                d: 2,
                d2: 12,
                sub: (next() % 14) as u8,
                flags,
                imm: (next() & 0xFF).into(),
                ..Instr::new(op)
            };
            let want = after::<ANY>(&i, m, &values);
            if width() >= AVX2 {
                assert_eq!(after::<AVX2>(&i, m, &values), want, "AVX2, {i:?}, round {round}");
            }
            if width() >= AVX512 {
                assert_eq!(after::<AVX512>(&i, m, &values), want, "AVX-512, {i:?}, round {round}");
            }
        }
    }
}
