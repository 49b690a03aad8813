//! Whether two values that lanes write to one place differ as two roundings of one number do.
//!
//! Triton has all lanes of a warp store what a butterfly reduction left in each. Where the compiler contracted a product with the first
//! of its sums (`fma(x, x, other)`), partners round differently, and the stored sums differ in their last bits: which of them stays is
//! not defined, but none is wrong. So that is a note.
//! Limits: bits do not say what they mean. Whole numbers that read as floating point of a usual size and differ in their last bits look
//! the same; small whole numbers, which read as subnormal, do not.

use crate::code::{MemOp, RowId, Width};
use crate::warp::Warp;

/// Steps of the format that a sum of 32 numbers may be apart.
const STEPS: u64 = 32;

/// How what two lanes write differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Apart {
    Not,
    /// As two roundings of one number.
    Rounding,
    Values,
}

/// Compares the values of one element.
pub fn apart(a: u64, b: u64, bytes: usize) -> Apart {
    if a == b {
        return Apart::Not;
    }
    let (exponents, mantissa, middle) = match bytes {
        4 => (0x7F80_0000u64, 23, 127),
        8 => (0x7FF0_0000_0000_0000, 52, 1023),
        _ => return Apart::Values,
    };
    // Numbers from 2^-64 to 2^64: what lies beyond is as likely an address or a pattern.
    let usual = |v: u64| ((v & exponents) >> mantissa).abs_diff(middle) < 64;
    if usual(a) && usual(b) && a.abs_diff(b) <= STEPS { Apart::Rounding } else { Apart::Values }
}

/// Compares what two lanes write with one instruction.
pub fn lanes_apart(w: &Warp, op: &MemOp, l: usize, k: usize) -> Apart {
    let bytes = op.bytes as usize;
    let cut = if bytes == 8 { u64::MAX } else { (1 << (8 * bytes)) - 1 };
    let of = |row: RowId, wide: bool, lane: usize| w.regs.lane(row, wide, lane) & cut;
    let each = op.rows.iter().map(|(row, width)| {
        let wide = *width == Width::W64;
        apart(of(*row, wide, l), of(*row, wide, k), bytes)
    });
    each.max().unwrap_or(Apart::Not)
}

/// What is said of it.
pub fn told(apart: Apart, l: usize, k: usize, at: i64, object: &str) -> String {
    match apart {
        Apart::Rounding => format!(
            "lanes {l} and {k} write values that differ as roundings do to byte {at} of {object} in one instruction"
        ),
        _ => format!("lanes {l} and {k} write different values to byte {at} of {object} in one instruction"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_last_bits_of_usual_numbers_are_roundings() {
        let f = |x: f32| u64::from(x.to_bits());
        for (a, b, bytes, want) in [
            (f(1.5), f(1.5), 4, Apart::Not),
            (f(1.5), f(1.5) + 1, 4, Apart::Rounding),
            (f(1000.25), f(1000.25) - 20, 4, Apart::Rounding),
            (f(1.5), f(1.5001), 4, Apart::Values),
            (f(1.5), f(-1.5), 4, Apart::Values),
            (0, f(-0.0), 4, Apart::Values),
            // Whole numbers and bytes.
            (7, 8, 4, Apart::Values),
            (7, 8, 1, Apart::Values),
            (0xFFFF_FFFF, 0xFFFF_FFFE, 4, Apart::Values),
            (0.1f64.to_bits(), 0.1f64.to_bits() + 2, 8, Apart::Rounding),
            (0x7F12_3456_7000, 0x7F12_3456_7008, 8, Apart::Values),
        ] {
            assert_eq!(apart(a, b, bytes), want, "{a:#x} {b:#x}");
            assert_eq!(apart(b, a, bytes), want, "{b:#x} {a:#x}");
        }
    }
}
