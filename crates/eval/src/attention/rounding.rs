//! Rounding of probabilities to narrow formats, as values in f32 and quick enough for millions of them.
//!
//! For numbers from 0 to below the format's largest only: no signs, no saturation, no NaN. `warpsmith_num` has the
//! whole formats; a test holds the two together.

/// The precision in which a kernel keeps its probabilities.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Weights {
    F32,
    F16,
    Bf16,
    E4m3,
    E5m2,
}

impl Weights {
    /// Rounds each value to the nearest of the format, ties to even.
    pub fn round(self, values: &mut [f32]) {
        match self {
            Weights::F32 => {}
            Weights::F16 => values.iter_mut().for_each(|x| *x = nearest::<10, -14>(*x)),
            Weights::Bf16 => values.iter_mut().for_each(|x| *x = nearest::<7, -126>(*x)),
            Weights::E4m3 => values.iter_mut().for_each(|x| *x = nearest::<3, -6>(*x)),
            Weights::E5m2 => values.iter_mut().for_each(|x| *x = nearest::<2, -14>(*x)),
        }
    }
}

/// To M mantissa bits; below 2^E, the smallest normal number, to multiples of 2^(E - M).
#[inline(always)]
fn nearest<const M: u32, const E: i32>(x: f32) -> f32 {
    let drop = 23 - M;
    let bits = x.to_bits();
    let rounded = (bits + (1 << (drop - 1)) - 1 + (bits >> drop & 1)) & !((1 << drop) - 1);
    // Adding a power of two whose last place is the wanted unit rounds to that unit.
    let magic = f32::from_bits(((E - M as i32 + 23 + 127) as u32) << 23);
    if x < f32::from_bits(((E + 127) as u32) << 23) { (x + magic) - magic } else { f32::from_bits(rounded) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpsmith_num::{bf16, e4m3, e5m2, f16};

    #[test]
    fn it_agrees_with_the_formats() {
        let mut values: Vec<f32> =
            (0..40_000).map(|i| f32::from_bits(0x3000_0000 + i * 6007)).filter(|x| *x <= 256.0).collect();
        values.extend([
            0.0,
            2f32.powi(-10),
            1.5 * 2f32.powi(-9),
            2f32.powi(-6),
            0.99 * 2f32.powi(-6),
            17.0,
            19.0,
            256.0,
        ]);
        for x in values {
            for (kind, want) in [
                (Weights::E4m3, e4m3::to_f32(e4m3::from_f32(x))),
                (Weights::E5m2, e5m2::to_f32(e5m2::from_f32(x))),
                (Weights::F16, f16::to_f32(f16::from_f32(x))),
                (Weights::Bf16, bf16::to_f32(bf16::from_f32(x))),
                (Weights::F32, x),
            ] {
                let mut got = [x];
                kind.round(&mut got);
                assert_eq!(got[0], want, "{x:e} as {kind:?}");
            }
        }
    }
}
