//! `cvt` lane by lane, in its general form; the common conversions have vectorised twins in `exec::pure`.
//! Source: PTX ISA 9.0, "cvt"; the formats' bits are `warpsmith_num`'s.

use warpsmith_num::format::{Format, Overflow, Rounding};

use crate::memory::{LOCAL_WINDOW, SHARED_WINDOW, WINDOW_BYTES};

/// Element types of `cvt`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    U8,
    S8,
    U16,
    S16,
    U32,
    S32,
    U64,
    S64,
    F16,
    Bf16,
    F32,
    F64,
    Tf32,
}

const KINDS: [Kind; 13] = {
    use Kind::*;
    [U8, S8, U16, S16, U32, S32, U64, S64, F16, Bf16, F32, F64, Tf32]
};

/// Packed types of `cvt`; `F32` stands for two f32 operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Packed {
    F32,
    F16x2,
    Bf16x2,
    E4m3x2,
    E5m2x2,
}

impl Packed {
    /// The type of a word.
    pub fn word(word: &str) -> Option<Packed> {
        Some(match word {
            // A lone f32 source belongs to a packed form only beside a packed destination.
            "f32" => Packed::F32,
            "f16x2" => Packed::F16x2,
            "bf16x2" => Packed::Bf16x2,
            "e4m3x2" => Packed::E4m3x2,
            "e5m2x2" => Packed::E5m2x2,
            _ => return None,
        })
    }

    fn format(self) -> Format {
        match self {
            Packed::F32 => Format::F32,
            Packed::F16x2 => Format::F16,
            Packed::Bf16x2 => Format::BF16,
            Packed::E4m3x2 => Format::E4M3,
            Packed::E5m2x2 => Format::E5M2,
        }
    }
}

const PACKED: [Packed; 5] = [Packed::F32, Packed::F16x2, Packed::Bf16x2, Packed::E4m3x2, Packed::E5m2x2];

/// Roundings.
pub const RN: u64 = 0;
pub const RZ: u64 = 1;
pub const RM: u64 = 2;
pub const RP: u64 = 3;
pub const RNI: u64 = 4;
pub const RZI: u64 = 5;
pub const RMI: u64 = 6;
pub const RPI: u64 = 7;
pub const RNA: u64 = 8;
pub const NONE: u64 = 9;

/// Modifier bits.
pub const FTZ: u64 = 1 << 16;
pub const SAT: u64 = 1 << 17;
pub const RELU: u64 = 1 << 18;
pub const SATFINITE: u64 = 1 << 19;
/// The destination register has 16 bits.
pub const CUT16: u64 = 1 << 20;

/// The immediate of a conversion.
pub fn imm(to: Kind, from: Kind, rounding: u64, flags: u64) -> u64 {
    to as u64 | (from as u64) << 4 | rounding << 8 | flags
}

/// The immediate of a packed conversion.
pub fn packed_imm(to: Packed, from: Packed, rounding: u64, flags: u64) -> u64 {
    to as u64 | (from as u64) << 4 | rounding << 8 | flags
}

fn direction(rounding: u64) -> Rounding {
    match rounding {
        RZ | RZI => Rounding::TowardZero,
        RM | RMI => Rounding::Down,
        RP | RPI => Rounding::Up,
        RNA => Rounding::NearestAway,
        _ => Rounding::NearestEven,
    }
}

fn float_of(kind: Kind) -> Option<Format> {
    Some(match kind {
        Kind::F16 => Format::F16,
        Kind::Bf16 => Format::BF16,
        Kind::F32 => Format::F32,
        Kind::Tf32 => Format::TF32,
        _ => return None,
    })
}

/// Bits and sign of an integer kind.
fn integer_of(kind: Kind) -> Option<(u32, bool)> {
    Some(match kind {
        Kind::U8 => (8, false),
        Kind::S8 => (8, true),
        Kind::U16 => (16, false),
        Kind::S16 => (16, true),
        Kind::U32 => (32, false),
        Kind::S32 => (32, true),
        Kind::U64 => (64, false),
        Kind::S64 => (64, true),
        _ => return None,
    })
}

/// One element.
pub fn scalar(a: u64, _b: u64, _c: u64, imm: u64) -> u64 {
    let to = KINDS[(imm & 15) as usize % KINDS.len()];
    let from = KINDS[(imm >> 4 & 15) as usize % KINDS.len()];
    let rounding = imm >> 8 & 15;
    if to == Kind::Tf32 && from == Kind::F32 && rounding == RNA && imm & RELU == 0 {
        // Half of the last place is added to the magnitude; infinities and NaN are cut, and for `.satfinite` one place less, NaN too
        // (SASS of ptxas 13.0, sm_90).
        let finite = |v: u64| v & 0x7FFF_FFFF < 0x7F80_0000;
        let cut = (a & 0xFFFF_FFFF).wrapping_add(if finite(a) { 0x1000 } else { 0 }) & 0xFFFF_E000;
        return if imm & SATFINITE != 0 && !finite(cut) { cut - 0x2000 } else { cut };
    }
    let result = match (integer_of(from), integer_of(to)) {
        (Some(f), Some(t)) => integer(a, f, t, imm & SAT != 0),
        (Some(f), None) => to_float(wide(a, f), to, rounding, imm),
        (None, Some(t)) => to_integer(value(a, from, imm), t, rounding, from == Kind::F64),
        (None, None) => float(a, from, to, rounding, imm),
    };
    if imm & CUT16 != 0 { result & 0xFFFF } else { result }
}

fn wide(a: u64, (bits, signed): (u32, bool)) -> i128 {
    let shift = 64 - bits;
    if signed { i128::from((a << shift) as i64 >> shift) } else { i128::from(a << shift >> shift) }
}

fn limits((bits, signed): (u32, bool)) -> (i128, i128) {
    if signed { (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) } else { (0, (1 << bits) - 1) }
}

fn integer(a: u64, from: (u32, bool), to: (u32, bool), sat: bool) -> u64 {
    let v = wide(a, from);
    let (low, high) = limits(to);
    if sat {
        return v.clamp(low, high) as u64;
    }
    // Narrowing cuts; the cut value is then extended by the destination type's sign, as into a wider register.
    wide(v as u64, to) as u64
}

fn value(a: u64, from: Kind, imm: u64) -> f64 {
    match float_of(from) {
        None => f64::from_bits(a),
        Some(f) => {
            let code = a as u32;
            let subnormal = code & f.nan() < 1 << f.mantissa_bits;
            // To f16 the device does not flush (H200; seen where it rounds up or down).
            let flushes = imm & FTZ != 0 && from == Kind::F32 && KINDS[(imm & 15) as usize % KINDS.len()] != Kind::F16;
            f.decode(if flushes && subnormal { code & f.sign_bit() } else { code })
        }
    }
}

fn to_integer(v: f64, to: (u32, bool), rounding: u64, from_double: bool) -> u64 {
    let (low, high) = limits(to);
    if v.is_nan() {
        // PTX ISA 9.0, "cvt": zero, unless the source is f64 or the result has 64 bits; then the topmost bit alone.
        return match from_double || to.0 == 64 {
            true if to.1 => low as u64,
            true => 1 << (to.0 - 1),
            false => 0,
        };
    }
    let rounded = match direction(rounding) {
        Rounding::TowardZero => v.trunc(),
        Rounding::Down => v.floor(),
        Rounding::Up => v.ceil(),
        _ => v.round_ties_even(),
    };
    (rounded.clamp(-1e30, 1e30) as i128).clamp(low, high) as u64
}

fn to_float(v: i128, to: Kind, rounding: u64, imm: u64) -> u64 {
    let Some(f) = float_of(to) else {
        let nearest = v as f64;
        let lost = v - nearest as i128;
        let r = match direction(rounding) {
            Rounding::Down if lost < 0 => nearest.next_down(),
            Rounding::Up if lost > 0 => nearest.next_up(),
            Rounding::TowardZero if lost != 0 && (lost < 0) == (v > 0) => {
                if v > 0 {
                    nearest.next_down()
                } else {
                    nearest.next_up()
                }
            }
            _ => nearest,
        };
        return if imm & SAT != 0 { r.clamp(0.0, 1.0).to_bits() } else { r.to_bits() };
    };
    // Rounding to odd on the way to 53 bits, so that the second rounding is the only one that counts.
    let nearest = v as f64;
    let lost = v - nearest as i128;
    let odd = if lost != 0 && nearest.to_bits() & 1 == 0 {
        if (lost > 0) == (v > 0) {
            f64::from_bits(nearest.to_bits() + 1)
        } else {
            f64::from_bits(nearest.to_bits() - 1)
        }
    } else {
        nearest
    };
    u64::from(finish(f, odd, rounding, imm))
}

/// A NaN from or to f64: its sign and the upper bits of its payload stay, and it is quiet (an H200). None: no such.
fn wide_nan(a: u64, from: Kind, to: Kind, imm: u64) -> Option<u64> {
    let plain = imm & (SAT | RELU | SATFINITE) == 0;
    if !plain || !(from == Kind::F64 || to == Kind::F64) || !value(a, from, imm).is_nan() {
        return None;
    }
    let wide = match float_of(from) {
        None => a,
        Some(f) => {
            let fraction = a & ((1 << f.mantissa_bits) - 1);
            let sign = u64::from(a as u32 & f.sign_bit() != 0) << 63;
            sign | 0x7FF << 52 | fraction << (52 - f.mantissa_bits)
        }
    } | 1 << 51;
    Some(match float_of(to) {
        None => wide,
        Some(f) => {
            let top = u64::from(f.infinity()) | (wide & ((1 << 52) - 1)) >> (52 - f.mantissa_bits);
            top | if wide >> 63 != 0 { u64::from(f.sign_bit()) } else { 0 }
        }
    })
}

fn float(a: u64, from: Kind, to: Kind, rounding: u64, imm: u64) -> u64 {
    if let Some(nan) = wide_nan(a, from, to, imm) {
        return nan;
    }
    let v = value(a, from, imm);
    let v = if (RNI..=RPI).contains(&rounding) {
        match direction(rounding) {
            Rounding::TowardZero => v.trunc(),
            Rounding::Down => v.floor(),
            Rounding::Up => v.ceil(),
            _ => v.round_ties_even(),
        }
    } else {
        v
    };
    match float_of(to) {
        None => {
            // A zero is +0 then.
            let v = if imm & SAT != 0 { if v.is_nan() || v <= 0.0 { 0.0 } else { v.min(1.0) } } else { v };
            if v.is_nan() { 0x7FFF_FFFF_FFFF_FFFF } else { v.to_bits() }
        }
        Some(f) => {
            let code = finish(f, v, rounding, imm);
            u64::from(if imm & FTZ != 0 && to == Kind::F32 && code & f.nan() < 1 << f.mantissa_bits {
                code & f.sign_bit()
            } else {
                code
            })
        }
    }
}

/// Encodes, then applies `.sat` and `.relu`. tf32 codes stand at the top of an f32's bits.
fn finish(f: Format, v: f64, rounding: u64, imm: u64) -> u32 {
    let v = if imm & SAT != 0 { if v.is_nan() || v <= 0.0 { 0.0 } else { v.min(1.0) } } else { v };
    let overflow = if imm & SATFINITE != 0 { Overflow::Saturate } else { Overflow::Infinity };
    let code = f.encode(v, direction(rounding), overflow);
    let code = if imm & RELU != 0 { f.relu(code) } else { code };
    if f == Format::TF32 { code << 13 } else { code }
}

/// `cvt.pack.sat`: a and b saturated; 8-bit results push the lower half of c up.
pub fn pack(a: u64, b: u64, c: u64, imm: u64) -> u64 {
    let to = KINDS[(imm & 15) as usize % KINDS.len()];
    let Some(bits) = integer_of(to) else { return 0 };
    let (low, high) = limits(bits);
    let from = if imm & 16 != 0 { (32, true) } else { (32, false) };
    let mask = (1u64 << bits.0) - 1;
    let cut = |v: u64| wide(v, from).clamp(low, high) as u64 & mask;
    let pair = cut(a) << bits.0 | cut(b);
    if bits.0 == 8 { (c & 0xFFFF) << 16 | pair } else { pair }
}

/// Two elements: `cvt.rn.f16x2.f32 d, a, b` puts a into the upper half.
pub fn packed(a: u64, b: u64, _c: u64, imm: u64) -> u64 {
    let to = PACKED[(imm & 15) as usize % PACKED.len()];
    let from = PACKED[(imm >> 4 & 15) as usize % PACKED.len()];
    let (f, t) = (from.format(), to.format());
    let (high, low) = match from {
        Packed::F32 => (f32::from_bits(a as u32) as f64, f32::from_bits(b as u32) as f64),
        Packed::F16x2 | Packed::Bf16x2 => (f.decode((a >> 16) as u32 & 0xFFFF), f.decode(a as u32 & 0xFFFF)),
        Packed::E4m3x2 | Packed::E5m2x2 => (f.decode((a >> 8) as u32 & 0xFF), f.decode(a as u32 & 0xFF)),
    };
    let rounding = imm >> 8 & 15;
    let (high, low) = (finish(t, high, rounding, imm), finish(t, low, rounding, imm));
    u64::from(match to {
        Packed::E4m3x2 | Packed::E5m2x2 => high << 8 | low,
        _ => high << 16 | low,
    })
}

/// `isspacep`: 0 global, 1 shared, 2 local.
pub fn is_space(a: u64, _b: u64, _c: u64, space: u64) -> u64 {
    let within = |base: u64| a >= base && a < base + WINDOW_BYTES;
    u64::from(match space {
        1 => within(SHARED_WINDOW),
        2 => within(LOCAL_WINDOW),
        _ => !within(SHARED_WINDOW) && !within(LOCAL_WINDOW),
    })
}
