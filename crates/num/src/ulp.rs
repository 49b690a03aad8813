//! Distances in units of the last place, for tests that allow the last bit or two to differ.

/// Codes between two f32: 0 for equal ones (+0 and -0 too), `None` where just one is NaN. Two NaN are equal.
pub fn distance_f32(a: f32, b: f32) -> Option<u32> {
    match (a.is_nan(), b.is_nan()) {
        (true, true) => Some(0),
        (false, false) => Some(ordered(a.to_bits(), 31).abs_diff(ordered(b.to_bits(), 31)) as u32),
        _ => None,
    }
}

/// The same for f16 codes.
pub fn distance_f16(a: u16, b: u16) -> Option<u32> {
    let nan = |code: u16| code & 0x7fff > 0x7c00;
    match (nan(a), nan(b)) {
        (true, true) => Some(0),
        (false, false) => Some(ordered(a as u32, 15).abs_diff(ordered(b as u32, 15)) as u32),
        _ => None,
    }
}

/// Codes in the order of their values.
fn ordered(code: u32, sign: u32) -> i64 {
    let magnitude = (code & !(1 << sign)) as i64;
    if code >> sign & 1 == 1 { -magnitude } else { magnitude }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_count_codes() {
        let rows = [
            (1.0, 1.0, Some(0)),
            (0.0, -0.0, Some(0)),
            (1.0, 1.0 + f32::EPSILON, Some(1)),
            (1.0, 1.0 - f32::EPSILON / 2.0, Some(1)),
            (-f32::from_bits(1), f32::from_bits(1), Some(2)),
            (f32::MAX, f32::INFINITY, Some(1)),
            (f32::NEG_INFINITY, f32::INFINITY, Some(2 * 0x7f80_0000)),
            (f32::NAN, 1.0, None),
            (f32::NAN, -f32::NAN, Some(0)),
        ];
        for (a, b, want) in rows {
            assert_eq!(distance_f32(a, b), want, "{a} and {b}");
            assert_eq!(distance_f32(b, a), want, "{b} and {a}");
        }
        let rows = [(0x3c00, 0x3c01, Some(1)), (0x8000, 0, Some(0)), (0x8001, 2, Some(3)), (0x7e00, 0, None)];
        for (a, b, want) in rows {
            assert_eq!(distance_f16(a, b), want, "{a:#x} and {b:#x}");
        }
    }
}
