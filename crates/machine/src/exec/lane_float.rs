//! Floating-point instructions that are run lane by lane: every type, rounding and modifier, in its general form.
//! The common f32 forms have vectorised twins in `exec::pure`.
//!
//! f16, bf16 and f32 are computed in f64 with rounding to odd (the last bit keeps whether anything was lost) and then
//! rounded once: 53 bits are more than twice the target's plus two, so the result is the correctly rounded one.
//! Source: PTX ISA 9.0, "Floating Point Instructions"; Boldo and Melquiond, "Emulation of a FMA and correctly rounded sums:
//! proved algorithms using rounding to odd" (2008). Limit: `.approx` functions are correctly rounded here, while the
//! hardware is within the ISA's stated error.

use warpsmith_num::format::{Format, Overflow, Rounding};

use super::exact_sign::exact_sign;

/// What is computed; the low byte of the immediate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum FloatOp {
    Add,
    Sub,
    Mul,
    Fma,
    Div,
    Min,
    Max,
    Abs,
    Neg,
    Sqrt,
    Rsqrt,
    Rcp,
    Ex2,
    Lg2,
    Sin,
    Cos,
    Tanh,
    CopySign,
    IsFinite,
    IsInfinite,
    IsNumber,
    IsNan,
    IsNormal,
    IsSubnormal,
}

const OPS: [FloatOp; 24] = {
    use FloatOp::*;
    [
        Add,
        Sub,
        Mul,
        Fma,
        Div,
        Min,
        Max,
        Abs,
        Neg,
        Sqrt,
        Rsqrt,
        Rcp,
        Ex2,
        Lg2,
        Sin,
        Cos,
        Tanh,
        CopySign,
        IsFinite,
        IsInfinite,
        IsNumber,
        IsNan,
        IsNormal,
        IsSubnormal,
    ]
};

/// Element types of the immediate.
pub const F16: u64 = 0;
pub const BF16: u64 = 1;
pub const F32: u64 = 2;
pub const F64: u64 = 3;

/// Roundings of the immediate.
pub const RN: u64 = 0;
pub const RZ: u64 = 1;
pub const RM: u64 = 2;
pub const RP: u64 = 3;

/// Modifier bits of the immediate.
pub const FTZ: u64 = 1 << 16;
pub const SAT: u64 = 1 << 17;
pub const RELU: u64 = 1 << 18;
pub const NAN: u64 = 1 << 19;
pub const XORSIGN: u64 = 1 << 20;
/// f64: only the upper word of operand and result counts, and subnormal numbers are zero.
pub const HIGH: u64 = 1 << 21;

/// The immediate of an operation.
pub fn imm(op: FloatOp, ty: u64, rounding: u64, modifiers: u64) -> u64 {
    op as u64 | ty << 8 | rounding << 12 | modifiers
}

/// The rounding of an immediate.
pub fn rounding(imm: u64) -> Rounding {
    match imm >> 12 & 3 {
        RZ => Rounding::TowardZero,
        RM => Rounding::Down,
        RP => Rounding::Up,
        _ => Rounding::NearestEven,
    }
}

fn format(ty: u64) -> Format {
    match ty {
        F16 => Format::F16,
        BF16 => Format::BF16,
        _ => Format::F32,
    }
}

/// One element of any type.
pub fn scalar(a: u64, b: u64, c: u64, imm: u64) -> u64 {
    if imm >> 8 & 3 == F64 { double(a, b, c, imm) } else { single(a, b, c, imm) }
}

/// Two 16-bit elements in one register.
pub fn pair(a: u64, b: u64, c: u64, imm: u64) -> u64 {
    let low = single(a & 0xFFFF, b & 0xFFFF, c & 0xFFFF, imm);
    let high = single(a >> 16 & 0xFFFF, b >> 16 & 0xFFFF, c >> 16 & 0xFFFF, imm);
    low & 0xFFFF | (high & 0xFFFF) << 16
}

/// Sum in f64 and what it lost.
fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let s = a + b;
    let t = s - a;
    (s, (a - (s - t)) + (b - t))
}

/// `v + e` rounded to odd.
fn odd(v: f64, e: f64) -> f64 {
    if e == 0.0 || !v.is_finite() || v == 0.0 || !e.is_finite() {
        return v;
    }
    if v.to_bits() & 1 == 1 {
        return v;
    }
    if (e > 0.0) == (v > 0.0) { f64::from_bits(v.to_bits() + 1) } else { f64::from_bits(v.to_bits() - 1) }
}

fn flush(f: Format, code: u32) -> u32 {
    if code & f.nan() < 1 << f.mantissa_bits { code & f.sign_bit() } else { code }
}

fn single(a: u64, b: u64, c: u64, imm: u64) -> u64 {
    let op = OPS[(imm & 0xFF) as usize % OPS.len()];
    let ty = imm >> 8 & 3;
    let f = format(ty);
    let (mut ca, mut cb, mut cc) = (a as u32, b as u32, c as u32);
    if imm & FTZ != 0 {
        (ca, cb, cc) = (flush(f, ca), flush(f, cb), flush(f, cc));
    }
    let is_nan = |code: u32| code & f.nan() > f.infinity();
    // Bit operations do not round; min and max choose.
    let chosen = match op {
        // On the device these are additions of -0 (SASS of ptxas 13.0, sm_90), which make any NaN the canonical one.
        FloatOp::Abs | FloatOp::Neg if is_nan(ca) => Some(f.nan()),
        FloatOp::Abs => Some(ca & !f.sign_bit()),
        FloatOp::Neg => Some(ca ^ f.sign_bit()),
        // copysign.f32 d, a, b: the sign of a, the magnitude of b.
        FloatOp::CopySign => Some(ca & f.sign_bit() | cb & !f.sign_bit()),
        FloatOp::Min | FloatOp::Max => {
            let (x, y) = if imm & XORSIGN != 0 { (ca & !f.sign_bit(), cb & !f.sign_bit()) } else { (ca, cb) };
            let chosen = match (is_nan(x), is_nan(y)) {
                (true, true) => f.nan(),
                (true, false) | (false, true) if imm & NAN != 0 => f.nan(),
                (true, false) => y,
                (false, true) => x,
                _ => {
                    // Order by value with -0 below +0: two's complement of sign-magnitude.
                    let key = |v: u32| {
                        if v & f.sign_bit() != 0 { -i64::from(v & f.nan()) - 1 } else { i64::from(v & f.nan()) }
                    };
                    if (key(x) < key(y)) == (op == FloatOp::Min) { x } else { y }
                }
            };
            Some(if imm & XORSIGN != 0 && !is_nan(chosen) { chosen | (ca ^ cb) & f.sign_bit() } else { chosen })
        }
        FloatOp::IsFinite => return u64::from(ca & f.nan() < f.infinity()),
        FloatOp::IsInfinite => return u64::from(ca & f.nan() == f.infinity()),
        FloatOp::IsNumber => return u64::from(!is_nan(ca)),
        FloatOp::IsNan => return u64::from(is_nan(ca)),
        // Zero is one for the device.
        FloatOp::IsNormal => {
            let v = ca & f.nan();
            return u64::from(v < f.infinity() && (v == 0 || v >= 1 << f.mantissa_bits));
        }
        FloatOp::IsSubnormal => return u64::from(ca & f.nan() != 0 && ca & f.nan() < 1 << f.mantissa_bits),
        _ => None,
    };
    let code = chosen.unwrap_or_else(|| {
        let (x, y, z) = (f.decode(ca), f.decode(cb), f.decode(cc));
        let v = compute(op, x, y, z, rounding(imm));
        let code = f.encode(v, rounding(imm), Overflow::Infinity);
        if v.is_nan() { f.nan() } else { code }
    });
    let code = if imm & FTZ != 0 { flush(f, code) } else { code };
    let code = if chosen.is_none() && imm & FTZ != 0 && code & f.nan() == 1 << f.mantissa_bits {
        let (x, y, z) = (f.decode(ca), f.decode(cb), f.decode(cc));
        if is_tiny(f, compute(op, x, y, z, rounding(imm)), rounding(imm)) { code & f.sign_bit() } else { code }
    } else {
        code
    };
    let code = if imm & RELU != 0 { f.relu(code) } else { code };
    u64::from(if imm & SAT != 0 { saturate(f, code) } else { code })
}

/// Whether a value that was rounded to the smallest normal number would lie below it were there no subnormal numbers, which is where the device
/// flushes it (H200: (1 - 2^-24) x 2^-126 is zero in f32). Scaled up, as the exponent's end is then far away.
fn is_tiny(f: Format, v: f64, rounding: Rounding) -> bool {
    let code = f.encode(v * 16.0, rounding, Overflow::Infinity);
    code & f.nan() < 5 << f.mantissa_bits
}

/// `.sat`: NaN and negative to +0, above one to one.
fn saturate(f: Format, code: u32) -> u32 {
    let one = ((1u32 << (f.exponent_bits - 1)) - 1) << f.mantissa_bits;
    if code & f.sign_bit() != 0 || code & f.nan() > f.infinity() { 0 } else { code.min(one) }
}

fn compute(op: FloatOp, x: f64, y: f64, z: f64, rounding: Rounding) -> f64 {
    let sum = |a: f64, b: f64| {
        let (v, e) = two_sum(a, b);
        // An exact zero of terms with opposite signs is -0 when rounding down.
        if v == 0.0 && e == 0.0 && rounding == Rounding::Down && (a.is_sign_negative() || b.is_sign_negative()) {
            -0.0
        } else {
            odd(v, e)
        }
    };
    match op {
        FloatOp::Add => sum(x, y),
        FloatOp::Sub => sum(x, -y),
        // Products of two 24-bit significands are exact in f64.
        FloatOp::Mul => x * y,
        FloatOp::Fma => sum(x * y, z),
        FloatOp::Div => {
            let q = x / y;
            let rest = f64::mul_add(-q, y, x);
            odd(q, if y < 0.0 { -rest } else { rest })
        }
        FloatOp::Rcp => {
            let q = 1.0 / x;
            let rest = f64::mul_add(-q, x, 1.0);
            odd(q, if x < 0.0 { -rest } else { rest })
        }
        FloatOp::Sqrt => {
            let s = x.sqrt();
            odd(s, f64::mul_add(-s, s, x))
        }
        FloatOp::Rsqrt => 1.0 / x.sqrt(),
        FloatOp::Ex2 => libm::exp2(x),
        FloatOp::Lg2 => libm::log2(x),
        FloatOp::Sin => sine(turns(x)),
        FloatOp::Cos => cosine(turns(x)),
        FloatOp::Tanh => libm::tanh(x),
        _ => x,
    }
}

/// What the device takes the sine of: the operand times 1/(2 pi) in f32, toward zero, in turns (SASS of ptxas 13.0, sm_90); here the
/// rest of the last turn.
fn turns(x: f64) -> f64 {
    let f = Format::F32;
    let code = f.encode(x * f64::from(f32::from_bits(0x3E22_F983)), Rounding::TowardZero, Overflow::Infinity);
    let r = f.decode(flush(f, code));
    // In steps of 2^-24 of a turn, zero with its sign: an H200 gives zero up to half of a step, and the sine of a whole one from there on.
    let rest = if r.fract() == 0.0 { 0f64.copysign(r) } else { r - r.round() };
    (rest * STEPS_OF_A_TURN).round() / STEPS_OF_A_TURN
}

/// 2^24.
const STEPS_OF_A_TURN: f64 = (1u64 << 24) as f64;

/// The sine of an angle in turns, and its cosine, which is zero at a quarter.
fn sine(r: f64) -> f64 {
    if r == 0.0 || r.abs() == 0.5 { 0f64.copysign(r) } else { libm::sin(r * std::f64::consts::TAU) }
}

fn cosine(r: f64) -> f64 {
    if r.abs() == 0.25 { 0.0 } else { libm::cos(r * std::f64::consts::TAU) }
}

/// `rcp.approx.ftz.f64` and `rsqrt.approx.ftz.f64`: from upper word to upper word.
fn upper_word(op: FloatOp, a: u64) -> u64 {
    let f = |bits: u64| if bits & 0x7FF0_0000_0000_0000 == 0 { bits & 1 << 63 } else { bits };
    let x = f64::from_bits(f(a & !0xFFFF_FFFF));
    let r = if op == FloatOp::Rcp { 1.0 / x } else { 1.0 / x.sqrt() };
    if r.is_nan() { 0x7FFF_FFFF_0000_0000 } else { f(r.to_bits().wrapping_add(0x8000_0000) & !0xFFFF_FFFF) }
}

/// The neighbour of the nearest value that a directed rounding wants. `pairs` sum up to what the nearest value lost, times `scale`.
fn directed(r: f64, rounding: Rounding, inputs: &[f64], pairs: &[(f64, f64)], scale: f64) -> f64 {
    if rounding == Rounding::NearestEven || r.is_nan() || inputs.iter().any(|v| !v.is_finite()) {
        return r;
    }
    let inward = |r: f64| f64::MAX.copysign(r);
    if r.is_infinite() {
        // Too large for the nearest value. A division by zero is exactly infinite.
        let exact = scale == 0.0;
        return match rounding {
            _ if exact => r,
            Rounding::TowardZero => inward(r),
            Rounding::Down if r > 0.0 => inward(r),
            Rounding::Up if r < 0.0 => inward(r),
            _ => r,
        };
    }
    let lost = exact_sign(pairs) * if scale < 0.0 { -1 } else { 1 };
    // A result that was rounded to zero keeps its sign.
    match (rounding, lost) {
        (Rounding::Down, -1) => {
            if r == 0.0 {
                -f64::from_bits(1)
            } else {
                r.next_down()
            }
        }
        (Rounding::Up, 1) => {
            if r == 0.0 {
                f64::from_bits(1)
            } else {
                r.next_up()
            }
        }
        (Rounding::TowardZero, -1) if r > 0.0 => r.next_down(),
        (Rounding::TowardZero, 1) if r < 0.0 => r.next_up(),
        _ => r,
    }
}

/// Invalid operations give the NaN of CUDA's `math_constants.h`; the first operand that is one is passed on, quiet.
fn nan_of(inputs: &[f64]) -> u64 {
    inputs.iter().find(|v| v.is_nan()).map_or(0xFFF8_0000_0000_0000, |v| v.to_bits() | 1 << 51)
}

/// A fused multiply-add whose NaN is the device's: of several operands that are NaN the second, the third, then the first is passed on (an H200's
/// `mma.sync` of f64: all of 252 outputs).
pub fn fma64(x: f64, y: f64, z: f64) -> f64 {
    let r = x.mul_add(y, z);
    if r.is_nan() { f64::from_bits(nan_of(&[y, z, x])) } else { r }
}

fn double(a: u64, b: u64, c: u64, imm: u64) -> u64 {
    let op = OPS[(imm & 0xFF) as usize % OPS.len()];
    let (x, y, z) = (f64::from_bits(a), f64::from_bits(b), f64::from_bits(c));
    let mode = rounding(imm);
    if imm & HIGH != 0 {
        return upper_word(op, a);
    }
    let sum = |y: f64| {
        let r = x + y;
        // An exact zero of terms that are not both +0 is -0 when rounding down.
        let negative = r == 0.0 && mode == Rounding::Down && (x.is_sign_negative() || y.is_sign_negative());
        if negative { -0.0 } else { directed(r, mode, &[x, y], &[(x, 1.0), (y, 1.0), (-r, 1.0)], 1.0) }
    };
    let r = match op {
        FloatOp::Add => sum(y),
        FloatOp::Sub => sum(-y),
        FloatOp::Mul => {
            let r = x * y;
            directed(r, mode, &[x, y], &[(x, y), (-r, 1.0)], 1.0)
        }
        FloatOp::Fma => {
            let r = x.mul_add(y, z);
            let zero = r == 0.0 && mode == Rounding::Down && exact_zero(x, y, z);
            let both_positive = (x.is_sign_negative() == y.is_sign_negative()) && !z.is_sign_negative();
            if zero && !both_positive {
                -0.0
            } else {
                directed(r, mode, &[x, y, z], &[(x, y), (z, 1.0), (-r, 1.0)], 1.0)
            }
        }
        FloatOp::Div => {
            let q = x / y;
            directed(q, mode, &[x, y], &[(x, 1.0), (-q, y)], y)
        }
        FloatOp::Rcp => {
            let q = 1.0 / x;
            directed(q, mode, &[x], &[(1.0, 1.0), (-q, x)], x)
        }
        FloatOp::Sqrt => {
            let s = x.sqrt();
            directed(s, mode, &[x], &[(x, 1.0), (-s, s)], 1.0)
        }
        FloatOp::Rsqrt => 1.0 / x.sqrt(),
        // Additions of -0 on the device, which pass a NaN on with its sign.
        FloatOp::Abs | FloatOp::Neg if x.is_nan() => return nan_of(&[x]),
        FloatOp::Abs => return a & !(1 << 63),
        FloatOp::Neg => return a ^ 1 << 63,
        FloatOp::CopySign => return a & 1 << 63 | b & !(1 << 63),
        FloatOp::Min | FloatOp::Max => {
            let first = match (x.is_nan(), y.is_nan()) {
                // SASS of ptxas 13.0, sm_90: the second, quiet.
                (true, true) => return b | 1 << 51,
                (true, false) => false,
                (false, true) => true,
                _ if x == y => (a >> 63 == 1) == (op == FloatOp::Min),
                _ => (x < y) == (op == FloatOp::Min),
            };
            if first { x } else { y }
        }
        FloatOp::IsFinite => return u64::from(x.is_finite()),
        FloatOp::IsInfinite => return u64::from(x.is_infinite()),
        FloatOp::IsNumber => return u64::from(!x.is_nan()),
        FloatOp::IsNan => return u64::from(x.is_nan()),
        FloatOp::IsNormal => return u64::from(x.is_normal() || x == 0.0),
        FloatOp::IsSubnormal => return u64::from(x.is_subnormal()),
        _ => compute(op, x, y, z, mode),
    };
    let inputs = match op {
        FloatOp::Fma => &[y, z, x][..],
        FloatOp::Add | FloatOp::Sub | FloatOp::Mul => &[y, x][..],
        FloatOp::Div => &[x, y][..],
        _ => &[x][..],
    };
    if r.is_nan() { nan_of(inputs) } else { r.to_bits() }
}

/// Whether a product and an addend of finite numbers cancel, or are both zero.
fn exact_zero(x: f64, y: f64, z: f64) -> bool {
    x.is_finite() && y.is_finite() && z.is_finite() && exact_sign(&[(x, y), (z, 1.0)]) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn f32_op(op: FloatOp, rounding: u64, modifiers: u64, a: f32, b: f32, c: f32) -> u32 {
        scalar(a.to_bits().into(), b.to_bits().into(), c.to_bits().into(), imm(op, F32, rounding, modifiers)) as u32
    }

    #[test]
    fn directed_roundings_bracket_the_nearest() {
        let tiny = f32::from_bits(1);
        for (op, a, b, c) in [
            (FloatOp::Add, 1.0f32, 1e-10, 0.0),
            (FloatOp::Add, 1.0, -tiny, 0.0),
            (FloatOp::Mul, 1.1, 1.3, 0.0),
            (FloatOp::Fma, 1.1, 1.3, -7.7e-5),
            (FloatOp::Div, 1.0, 3.0, 0.0),
            (FloatOp::Sqrt, 2.0, 0.0, 0.0),
        ] {
            let at = |r| f32::from_bits(f32_op(op, r, 0, a, b, c));
            let (n, z, m, p) = (at(RN), at(RZ), at(RM), at(RP));
            assert!(m < p && m.next_up() == p, "{op:?}: {m:e} {p:e}");
            assert!(n == m || n == p, "{op:?}");
            assert_eq!(z, if n > 0.0 { m } else { p }, "{op:?}");
        }
    }

    #[test]
    fn single_precision_agrees_with_the_host() {
        let values = [0.0f32, -0.0, 1.0, -1.5, 3.3e-39, 1e38, -2e38, f32::INFINITY, 0.1, 7.25e-20, 1.0000001];
        for a in values {
            for b in values {
                for (op, expected) in [(FloatOp::Add, a + b), (FloatOp::Mul, a * b), (FloatOp::Div, a / b)] {
                    let got = f32_op(op, RN, 0, a, b, 0.0);
                    let expected = if expected.is_nan() { 0x7FFF_FFFF } else { expected.to_bits() };
                    assert_eq!(got, expected, "{op:?} {a:e} {b:e}");
                }
                for c in values {
                    let expected = a.mul_add(b, c);
                    let expected = if expected.is_nan() { 0x7FFF_FFFF } else { expected.to_bits() };
                    assert_eq!(f32_op(FloatOp::Fma, RN, 0, a, b, c), expected, "fma {a:e} {b:e} {c:e}");
                }
            }
        }
    }

    #[test]
    fn modifiers() {
        let nan = f32::NAN;
        for (op, modifiers, a, b, expected) in [
            (FloatOp::Add, SAT, 0.7f32, 0.7, 1.0f32.to_bits()),
            (FloatOp::Add, SAT, nan, 0.7, 0),
            (FloatOp::Add, FTZ, 1e-39, 0.0, 0),
            (FloatOp::Max, 0, nan, 2.0, 2.0f32.to_bits()),
            (FloatOp::Max, NAN, nan, 2.0, 0x7FFF_FFFF),
            (FloatOp::Min, 0, 0.0, -0.0, (-0.0f32).to_bits()),
            (FloatOp::Max, 0, -0.0, 0.0, 0),
            (FloatOp::Max, XORSIGN, -3.0, 2.0, (-3.0f32).to_bits()),
        ] {
            assert_eq!(f32_op(op, RN, modifiers, a, b, 0.0), expected, "{op:?} {modifiers:x} {a} {b}");
        }
    }
}
