//! Integer instructions that are run lane by lane. Operands come zero-extended; results are truncated by the caller.
//! Source: PTX ISA 9.0, "Integer Arithmetic Instructions" and "Logic and Shift Instructions".

type Imm = u64;

macro_rules! lanes {
    ($($(#[$doc:meta])* $name:ident($a:ident, $b:ident, $c:ident, $imm:ident) = $body:expr;)*) => {
        $($(#[$doc])* pub fn $name($a: u64, $b: u64, $c: u64, $imm: Imm) -> u64 { let _ = ($b, $c, $imm); $body })*
    };
}

fn s16(v: u64) -> i64 {
    i64::from(v as u16 as i16)
}

fn s32(v: u64) -> i64 {
    i64::from(v as u32 as i32)
}

/// A signed or unsigned value of `imm`'s type: bytes in the low byte, bit 8 signed.
fn typed(v: u64, imm: Imm) -> i128 {
    let bits = 8 * (imm & 0xFF) as u32;
    if bits >= 64 {
        return if imm & 0x100 != 0 { i128::from(v as i64) } else { i128::from(v) };
    }
    let v = v & ((1 << bits) - 1);
    if imm & 0x100 != 0 && v >> (bits - 1) & 1 == 1 { i128::from(v) - (1i128 << bits) } else { i128::from(v) }
}

lanes! {
    slct_s32(a, b, c, _i) = if c as u32 as i32 >= 0 { a } else { b };
    slct_f32(a, b, c, _i) = {
        let c = f32::from_bits(c as u32);
        // NaN selects b; -0.0 counts as zero.
        if c >= 0.0 || (_i != 0 && c.is_subnormal()) { a } else { b }
    };
    add_16x2(a, b, _c, _i) = (a.wrapping_add(b) & 0xFFFF) | ((a >> 16).wrapping_add(b >> 16) << 16);
    sub_16x2(a, b, _c, _i) = (a.wrapping_sub(b) & 0xFFFF) | ((a >> 16).wrapping_sub(b >> 16) << 16);
    min_max_16x2(a, b, _c, imm) = {
        let half = |x: u64, y: u64| {
            let (x, y) = if imm & 1 == 1 { (s16(x), s16(y)) } else { ((x & 0xFFFF) as i64, (y & 0xFFFF) as i64) };
            let r = if imm & 2 != 0 { x.max(y) } else { x.min(y) };
            (if imm & 4 != 0 { r.max(0) } else { r }) as u64 & 0xFFFF
        };
        half(a, b) | half(a >> 16, b >> 16) << 16
    };
    add_sat_s32(a, b, _c, _i) = (a as i32).saturating_add(b as i32) as u32 as u64;
    sub_sat_s32(a, b, _c, _i) = (a as i32).saturating_sub(b as i32) as u32 as u64;
    mul_hi_s64(a, b, _c, _i) = ((i128::from(a as i64) * i128::from(b as i64)) >> 64) as u64;
    mul_hi_u64(a, b, _c, _i) = ((u128::from(a) * u128::from(b)) >> 64) as u64;
    mul_hi_s16(a, b, _c, _i) = ((s16(a) * s16(b)) >> 16) as u64;
    mul_hi_u16(a, b, _c, _i) = (a * b) >> 16;
    mul_wide_s16(a, b, _c, _i) = (s16(a) * s16(b)) as u64;
    mul_wide_u16(a, b, _c, _i) = a * b;
    mad_lo_16(a, b, c, _i) = a.wrapping_mul(b).wrapping_add(c);
    mad_hi_s16(a, b, c, _i) = (((s16(a) * s16(b)) >> 16) as u64).wrapping_add(c);
    mad_hi_u16(a, b, c, _i) = ((a * b) >> 16).wrapping_add(c);
    mad_hi_s32(a, b, c, _i) = (((s32(a) * s32(b)) >> 32) as u64).wrapping_add(c);
    mad_hi_u32(a, b, c, _i) = ((a * b) >> 32).wrapping_add(c);
    mad_hi_sat_s32(a, b, c, _i) = (((s32(a) * s32(b)) >> 32) + s32(c)).clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as u64;
    mad_hi_s64(a, b, c, _i) = mul_hi_s64(a, b, 0, 0).wrapping_add(c);
    mad_hi_u64(a, b, c, _i) = mul_hi_u64(a, b, 0, 0).wrapping_add(c);
    mad_wide_s16(a, b, c, _i) = ((s16(a) * s16(b)) as u64).wrapping_add(c);
    mad_wide_u16(a, b, c, _i) = (a * b).wrapping_add(c);
    mad24(a, b, c, imm) = {
        let cut = |v: u64| if imm & 2 != 0 { i64::from((v as i32) << 8 >> 8) } else { (v & 0xFF_FFFF) as i64 };
        let product = cut(a).wrapping_mul(cut(b));
        let part = if imm & 1 != 0 { product >> 16 } else { product };
        if imm & 4 != 0 {
            (part + s32(c)).clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as u64
        } else {
            (part as u64).wrapping_add(c)
        }
    };
    max_relu_s32(a, b, _c, _i) = (a as i32).max(b as i32).max(0) as u64;
    min_relu_s32(a, b, _c, _i) = (a as i32).min(b as i32).max(0) as u64;
    min_s16(a, b, _c, _i) = s16(a).min(s16(b)) as u64;
    max_s16(a, b, _c, _i) = s16(a).max(s16(b)) as u64;
    /// PTX leaves division by zero open: all ones for quotient and rest (H200).
    div_s16(a, b, _c, _i) = if b as u16 == 0 { 0xFFFF } else { s16(a).wrapping_div(s16(b)) as u64 };
    div_u16(a, b, _c, _i) = a.checked_div(b).unwrap_or(0xFFFF);
    div_s32(a, b, _c, _i) = if b as u32 == 0 { u64::MAX } else { (a as i32).wrapping_div(b as i32) as u32 as u64 };
    div_u32(a, b, _c, _i) = a.checked_div(b).unwrap_or(u64::MAX);
    div_s64(a, b, _c, _i) = if b == 0 { u64::MAX } else { (a as i64).wrapping_div(b as i64) as u64 };
    div_u64(a, b, _c, _i) = a.checked_div(b).unwrap_or(u64::MAX);
    rem_s16(a, b, _c, _i) = if b as u16 == 0 { 0xFFFF } else { s16(a).wrapping_rem(s16(b)) as u64 };
    rem_u16(a, b, _c, _i) = a.checked_rem(b).unwrap_or(0xFFFF);
    rem_s32(a, b, _c, _i) = if b as u32 == 0 { u64::MAX } else { (a as i32).wrapping_rem(b as i32) as u32 as u64 };
    rem_u32(a, b, _c, _i) = a.checked_rem(b).unwrap_or(u64::MAX);
    rem_s64(a, b, _c, _i) = if b == 0 { u64::MAX } else { (a as i64).wrapping_rem(b as i64) as u64 };
    rem_u64(a, b, _c, _i) = a.checked_rem(b).unwrap_or(u64::MAX);
    abs_s32(a, _b, _c, _i) = (a as i32).wrapping_abs() as u32 as u64;
    abs_s64(a, _b, _c, _i) = (a as i64).wrapping_abs() as u64;
    abs_s16(a, _b, _c, _i) = (a as i16).wrapping_abs() as u16 as u64;
    neg_64(a, _b, _c, _i) = a.wrapping_neg();
    neg_16(a, _b, _c, _i) = a.wrapping_neg();
    not_16(a, _b, _c, _i) = !a;
    cnot(a, _b, _c, _i) = u64::from(a == 0);
    shf_clamp_l(a, b, c, _i) = {
        let n = (c as u32).min(32);
        ((b << 32 | (a & 0xFFFF_FFFF)) << n) >> 32
    };
    shf_clamp_r(a, b, c, _i) = {
        let n = (c as u32).min(32);
        (b << 32 | (a & 0xFFFF_FFFF)) >> n
    };
    sad(a, b, c, imm) = {
        let (x, y) = (typed(a, imm), typed(b, imm));
        c.wrapping_add((x - y).unsigned_abs() as u64)
    };
    popc(a, _b, _c, _i) = u64::from(a.count_ones());
    clz(a, _b, _c, imm) = u64::from(a.leading_zeros()) - (64 - 8 * (imm & 0xFF));
    brev(a, _b, _c, imm) = a.reverse_bits() >> (64 - 8 * (imm & 0xFF));
    bfe(a, b, c, imm) = {
        let msb = 8 * (imm & 0xFF) as u32 - 1;
        let (pos, len) = field(b as u32, c as u32, msb + 1);
        let signed = imm & 0x100 != 0;
        let sign = if !signed || len == 0 { 0 } else { a >> (pos + len - 1).min(msb) & 1 };
        let shifted = if pos > msb { 0 } else { a >> pos };
        let avail = if pos > msb { 0 } else { len.min(msb + 1 - pos) };
        let field = if avail >= 64 { shifted } else { shifted & ((1u64 << avail) - 1) };
        if sign == 1 && avail < 64 { field | u64::MAX << avail } else { field }
    };
    bfind(a, _b, _c, imm) = {
        let bits = 8 * (imm & 0xFF) as u32;
        let v = if imm & 0x100 != 0 && a >> (bits - 1) & 1 == 1 { !a } else { a };
        let v = if bits == 32 { v & 0xFFFF_FFFF } else { v };
        if v == 0 {
            u64::from(u32::MAX)
        } else {
            let at = 63 - v.leading_zeros();
            u64::from(if imm & 0x200 != 0 { bits - 1 - at } else { at })
        }
    };
    fns(a, b, c, _i) = {
        let (mask, base, offset) = (a as u32, b as u32, c as u32 as i32);
        find_nth_set(mask, base, offset) as u64
    };
    szext(a, b, _c, imm) = {
        let n = b as u32;
        let n = if imm & 0x400 != 0 { n.min(32) } else { n & 31 };
        let v = a as u32;
        u64::from(match n {
            0 => 0,
            32.. => v,
            n if imm & 0x100 != 0 => ((v << (32 - n)) as i32 >> (32 - n)) as u32,
            n => v & ((1 << n) - 1),
        })
    };
    bmsk(a, b, _c, imm) = {
        let (pos, len) = (a as u32, b as u32);
        let (pos, len) = if imm & 0x400 != 0 { (pos.min(32), len.min(32)) } else { (pos & 31, len & 31) };
        (((1u64 << len) - 1) << pos) & 0xFFFF_FFFF
    };
    prmt_mode(a, b, c, imm) = {
        let (a, b, s) = (a as u32, b as u32, c as u32 & 3);
        let selector = match (imm, s) {
            (1, s) => [0x3210, 0x4321, 0x5432, 0x6543][s as usize],
            (2, s) => [0x5670, 0x6701, 0x7012, 0x0123][s as usize],
            (3, s) => [0x0000, 0x1111, 0x2222, 0x3333][s as usize],
            (4, s) => [0x3210, 0x3211, 0x3222, 0x3333][s as usize],
            (5, s) => [0x0000, 0x1110, 0x2210, 0x3210][s as usize],
            (_, s) => [0x1010, 0x3232, 0x1010, 0x3232][s as usize],
        };
        u64::from(prmt(a, b, selector))
    };
    dp4a(a, b, c, imm) = {
        let byte = |v: u64, n: u32, signed: bool| { let x = (v >> (8 * n)) as u8; if signed { i64::from(x as i8) } else { i64::from(x) } };
        let sum: i64 = (0..4).map(|n| byte(a, n, imm & 1 != 0) * byte(b, n, imm & 2 != 0)).sum();
        c.wrapping_add(sum as u64)
    };
    video(a, b, c, imm) = {
        // Bits of imm: 0-3 the operation, 4-6 signed a, b and d, 7 saturates, 8 adds the parts up, 9 halves instead of bytes,
        // 10 and above the comparison.
        let bits = if imm >> 9 & 1 != 0 { 16 } else { 8 };
        let part = |v: u64, n: u32, signed: bool| {
            let x = (v as u32) << (32 - bits * (n + 1));
            if signed { i64::from(x as i32 >> (32 - bits)) } else { i64::from(x >> (32 - bits)) }
        };
        let (mut sum, mut packed) = (c as u32, 0u32);
        for n in 0..32 / bits {
            let (x, y) = (part(a, n, imm & 16 != 0), part(b, n, imm & 32 != 0));
            let r = match imm & 15 {
                0 => x + y,
                1 => x - y,
                2 => { let s = x + y; (s + i64::from(s >= 0)) >> 1 }
                3 => (x - y).abs(),
                4 => x.min(y),
                6 => i64::from(super::rare::ordered((imm >> 10) as u8, x, y)),
                _ => x.max(y),
            };
            let (low, high) = if imm & 64 != 0 { (-(1i64 << (bits - 1)), (1i64 << (bits - 1)) - 1) } else { (0, (1i64 << bits) - 1) };
            let r = if imm & 128 != 0 { r.clamp(low, high) } else { r };
            sum = sum.wrapping_add(r as u32);
            packed |= (r as u32 & ((1u32 << bits) - 1)) << (bits * n);
        }
        u64::from(if imm & 256 != 0 { sum } else { packed })
    };
    dp2a(a, b, c, imm) = {
        let half = |n: u32| { let x = (a >> (16 * n)) as u16; if imm & 1 != 0 { i64::from(x as i16) } else { i64::from(x) } };
        let byte = |n: u32| { let x = (b >> (8 * n)) as u8; if imm & 2 != 0 { i64::from(x as i8) } else { i64::from(x) } };
        let at = if imm & 4 != 0 { 2 } else { 0 };
        c.wrapping_add((half(0) * byte(at) + half(1) * byte(at + 1)) as u64)
    };
}

/// `prmt` in its default mode: each nibble of the selector names a byte of {b, a}; its top bit replicates the sign.
pub fn prmt(a: u32, b: u32, selector: u32) -> u32 {
    let bytes = u64::from(b) << 32 | u64::from(a);
    (0..4).fold(0, |r, n| {
        let s = selector >> (4 * n);
        let byte = (bytes >> (8 * (s & 7))) as u8;
        let byte = if s & 8 != 0 { ((byte as i8) >> 7) as u8 } else { byte };
        r | u32::from(byte) << (8 * n)
    })
}

/// Position and length of a bit field: of 32 bits their lower bytes count; of 64, where the device shifts instead (SASS of ptxas 13.0, sm_90; an
/// H200), all of their bits.
fn field(pos: u32, len: u32, bits: u32) -> (u32, u32) {
    if bits == 64 { (pos.min(0xFF), len.min(0xFF)) } else { (pos & 0xFF, len & 0xFF) }
}

/// `bfi`: bits of `a` put into `b` at `pos`, `len` of them.
pub fn bfi(a: u64, b: u64, pos: u32, len: u32, bits: u32) -> u64 {
    let (pos, len) = field(pos, len, bits);
    if pos >= bits || len == 0 {
        return b;
    }
    let len = len.min(bits - pos);
    let mask = (if len >= 64 { u64::MAX } else { (1u64 << len) - 1 }) << pos;
    (b & !mask) | ((a << pos) & mask)
}

fn find_nth_set(mask: u32, base: u32, offset: i32) -> u32 {
    // The device negates it, which changes nothing, and takes the first bit for found (an H200).
    if offset == i32::MIN {
        return 0;
    }
    if base > 31 {
        return u32::MAX;
    }
    if offset == 0 {
        return if mask >> base & 1 == 1 { base } else { u32::MAX };
    }
    let (mut left, step) = (offset.unsigned_abs(), if offset > 0 { 1i64 } else { -1 });
    let mut at = i64::from(base);
    while (0..32).contains(&at) {
        if mask >> at & 1 == 1 {
            left -= 1;
            if left == 0 {
                return at as u32;
            }
        }
        at += step;
    }
    u32::MAX
}
