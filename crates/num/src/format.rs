//! The encoding that all small floating-point formats share, by value: sign, exponent field, mantissa field, gradual
//! underflow, and one of two ends of the range (infinities as in IEEE 754, or e4m3's single NaN without infinities).
//!
//! It knows no opcode. Source: IEEE 754-2019 section 3.4; OCP "8-bit Floating Point Specification" 1.0 for e4m3; NaN and
//! overflow as NVIDIA's cuda_fp8.hpp, cuda_fp16.hpp and cuda_bf16.hpp (13.0) have them, which the digests in
//! `tests/digests.rs` pin. Limit: formats of at most 32 bits whose exponent is not wider than f64's.

/// How a value between two codes is rounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Rounding {
    /// PTX `.rn`: to the nearest, ties to the even code.
    NearestEven,
    /// PTX `.rna`: to the nearest, ties away from zero.
    NearestAway,
    /// PTX `.rz`
    TowardZero,
    /// PTX `.rp`
    Up,
    /// PTX `.rm`
    Down,
}

/// What becomes of a value beyond the largest finite one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Overflow {
    /// PTX `.satfinite`: the largest finite value, for infinities too.
    Saturate,
    /// Infinity where the format has one (and the rounding goes there), else NaN with the value's sign.
    Infinity,
}

/// A format: field widths, and whether the topmost exponent means infinity and NaN.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Format {
    pub exponent_bits: u32,
    pub mantissa_bits: u32,
    /// IEEE: topmost exponent is infinity and NaN. Otherwise (e4m3) only the code of all ones is NaN.
    pub infinities: bool,
}

impl Format {
    pub const E4M3: Format = Format { exponent_bits: 4, mantissa_bits: 3, infinities: false };
    pub const E5M2: Format = Format { exponent_bits: 5, mantissa_bits: 2, infinities: true };
    pub const F16: Format = Format { exponent_bits: 5, mantissa_bits: 10, infinities: true };
    pub const BF16: Format = Format { exponent_bits: 8, mantissa_bits: 7, infinities: true };
    /// 19 bits: the topmost ones of an f32.
    pub const TF32: Format = Format { exponent_bits: 8, mantissa_bits: 10, infinities: true };
    pub const F32: Format = Format { exponent_bits: 8, mantissa_bits: 23, infinities: true };

    /// The exponent of the smallest normal number, as a power of two.
    pub const fn min_exponent(self) -> i32 {
        2 - (1 << (self.exponent_bits - 1))
    }

    /// The sign bit alone.
    pub const fn sign_bit(self) -> u32 {
        1 << (self.exponent_bits + self.mantissa_bits)
    }

    /// The canonical NaN: every bit but the sign.
    pub const fn nan(self) -> u32 {
        self.sign_bit() - 1
    }

    /// The code of the largest finite value.
    pub const fn max_finite(self) -> u32 {
        if self.infinities { self.infinity() - 1 } else { self.nan() - 1 }
    }

    /// What is beyond the largest finite value: infinity, or NaN where there is none.
    pub const fn infinity(self) -> u32 {
        if self.infinities { ((1 << self.exponent_bits) - 1) << self.mantissa_bits } else { self.nan() }
    }

    /// The code of `value`. NaN gives the canonical NaN, whatever its sign and payload.
    pub const fn encode(self, value: f64, rounding: Rounding, overflow: Overflow) -> u32 {
        let bits = value.to_bits();
        let negative = bits >> 63 != 0;
        let sign = if negative { self.sign_bit() } else { 0 };
        let field = ((bits >> 52) & 0x7ff) as i32;
        let fraction = bits & ((1 << 52) - 1);
        if field == 0x7ff {
            if fraction != 0 {
                return self.nan();
            }
            return match overflow {
                Overflow::Saturate => sign | self.max_finite(),
                Overflow::Infinity => sign | self.infinity(),
            };
        }
        let (exponent, significand) = if field == 0 { (-1022, fraction) } else { (field - 1023, fraction | 1 << 52) };
        let min = self.min_exponent();
        let below = if exponent < min { (min - exponent) as u32 } else { 0 };
        let shift = 52 - self.mantissa_bits + below;
        // Beyond 63 places nothing but the sticky bit is left: every such value is below a quarter of the smallest code.
        let shift = if shift > 63 { 63 } else { shift };
        let mut code = significand >> shift;
        if below == 0 {
            // The hidden bit, still in `code`, adds the one that the exponent field is ahead of `exponent - min`.
            code += ((exponent - min) as u64) << self.mantissa_bits;
        }
        let rest = significand & ((1 << shift) - 1);
        let half = 1u64 << (shift - 1);
        let away = match rounding {
            Rounding::NearestEven => rest > half || (rest == half && code & 1 != 0),
            Rounding::NearestAway => rest >= half,
            Rounding::TowardZero => false,
            Rounding::Up => rest != 0 && !negative,
            Rounding::Down => rest != 0 && negative,
        };
        code += away as u64;
        if code > self.max_finite() as u64 {
            let saturates = match (overflow, rounding) {
                (Overflow::Saturate, _) | (_, Rounding::TowardZero) => true,
                (_, Rounding::Up) => negative,
                (_, Rounding::Down) => !negative,
                _ => false,
            };
            return sign | if saturates { self.max_finite() } else { self.infinity() };
        }
        sign | code as u32
    }

    /// The value of `code`, exactly; NaN codes give a quiet positive NaN. Bits above the format's width are ignored.
    pub const fn decode(self, code: u32) -> f64 {
        let magnitude = code & self.nan();
        let field = magnitude >> self.mantissa_bits;
        let fraction = magnitude & ((1 << self.mantissa_bits) - 1);
        let sign = if code & self.sign_bit() != 0 { 1u64 << 63 } else { 0 };
        if magnitude > self.max_finite() {
            let infinite = self.infinities && magnitude == self.infinity();
            return f64::from_bits(if infinite { sign | 0x7ff << 52 } else { 0x7fff_ffff_e000_0000 });
        }
        if field == 0 {
            // fraction x 2^(min_exponent - mantissa_bits), both exact in f64.
            let unit = f64::from_bits(((self.min_exponent() - self.mantissa_bits as i32 + 1023) as u64) << 52);
            let value = fraction as f64 * unit;
            return if sign != 0 { -value } else { value };
        }
        let exponent = field as i32 - 1 + self.min_exponent();
        f64::from_bits(sign | ((exponent + 1023) as u64) << 52 | (fraction as u64) << (52 - self.mantissa_bits))
    }

    /// PTX `.relu`: negative codes and -0 become +0, NaN stays the canonical NaN.
    pub const fn relu(self, code: u32) -> u32 {
        if code & self.nan() > self.infinity() || (!self.infinities && code & self.nan() == self.nan()) {
            self.nan()
        } else if code & self.sign_bit() != 0 {
            0
        } else {
            code
        }
    }
}
