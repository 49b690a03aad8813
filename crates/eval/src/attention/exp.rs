//! Exponential functions over slices, vectorised by the compiler and with the same bits on every platform.
//!
//! Only additions, multiplications and bit operations, each rounded once; no platform library. Range reduction by
//! ln 2 in two parts (Cody and Waite), then the Taylor polynomial. Limits: [`exp_f64`] errs by at most 2 ulp for
//! arguments up to 700 and gives 0 below -708; [`exp2_f32`] errs by at most 2 ulp and gives 0 below -126.

/// Adding and subtracting it rounds an f64 below 2^51 to an integer, ties to even.
const ROUND_F64: f64 = 6755399441055744.0;
/// The same for an f32 below 2^22.
const ROUND_F32: f32 = 12582912.0;

/// `x = exp(x)` for each element.
pub fn exp_f64(values: &mut [f64]) {
    dispatch_f64(values)
}

/// `x = 2^x` for each element.
pub fn exp2_f32(values: &mut [f32]) {
    dispatch_f32(values)
}

macro_rules! dispatch {
    ($name:ident, $one:ident, $t:ty) => {
        fn $name(values: &mut [$t]) {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2")]
                fn wide(values: &mut [$t]) {
                    for v in values {
                        *v = $one(*v);
                    }
                }
                if std::arch::is_x86_feature_detected!("avx2") {
                    // SAFETY: the feature was just detected.
                    return unsafe { wide(values) };
                }
            }
            for v in values {
                *v = $one(*v);
            }
        }
    };
}
dispatch!(dispatch_f64, one_f64, f64);
dispatch!(dispatch_f32, one_f32, f32);

#[inline(always)]
fn one_f64(x: f64) -> f64 {
    let inside = if x > -708.0 { x } else { -708.0 };
    let inside = if inside < 709.0 { inside } else { 709.0 };
    let shifted = inside * std::f64::consts::LOG2_E + ROUND_F64;
    let n = shifted - ROUND_F64;
    let r = (inside - n * 6.931_471_803_691_238e-1) - n * 1.908_214_929_270_587_7e-10;
    let mut p = 1.0 / 6227020800.0;
    for c in [
        1.0 / 479001600.0,
        1.0 / 39916800.0,
        1.0 / 3628800.0,
        1.0 / 362880.0,
        1.0 / 40320.0,
        1.0 / 5040.0,
        1.0 / 720.0,
        1.0 / 120.0,
        1.0 / 24.0,
        1.0 / 6.0,
        0.5,
        1.0,
        1.0,
    ] {
        p = p * r + c;
    }
    // The integer sits in the low bits of `shifted`; it goes into the exponent field.
    let power = f64::from_bits(shifted.to_bits().wrapping_add(1023).wrapping_shl(52));
    if x > -708.0 { p * power } else { 0.0 }
}

#[inline(always)]
fn one_f32(x: f32) -> f32 {
    let inside = if x > -126.0 { x } else { -126.0 };
    let inside = if inside < 127.0 { inside } else { 127.0 };
    let shifted = inside + ROUND_F32;
    let r = inside - (shifted - ROUND_F32);
    let mut p = 1.525_273e-5_f32;
    for c in [1.540_353e-4, 1.333_355_8e-3, 9.618_129e-3, 5.550_411e-2, 2.402_265e-1, std::f32::consts::LN_2, 1.0] {
        p = p * r + c;
    }
    let power = f32::from_bits(shifted.to_bits().wrapping_add(127).wrapping_shl(23));
    if x > -126.0 { p * power } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_agree_with_libm() {
        let mut worst = (0.0f64, 0.0f64);
        for i in 0..200_000 {
            let x = -700.0 + i as f64 * 0.00353;
            let mut v = [x];
            exp_f64(&mut v);
            worst.0 = worst.0.max((v[0] / libm::exp(x) - 1.0).abs());
            let y = -125.0 + (i as f32) * 0.00125;
            let mut w = [y];
            exp2_f32(&mut w);
            worst.1 = worst.1.max((w[0] as f64 / libm::exp2(y as f64) - 1.0).abs());
        }
        assert!(worst.0 < 5e-16 && worst.1 < 2.5e-7, "relative errors {worst:?}");
    }

    #[test]
    fn far_below_zero_is_zero_and_zero_is_one() {
        let mut v = [0.0, -1e4, f64::NEG_INFINITY, -708.5];
        exp_f64(&mut v);
        assert_eq!(v, [1.0, 0.0, 0.0, 0.0]);
        let mut w = [0.0, -1e4, f32::NEG_INFINITY, 8.0];
        exp2_f32(&mut w);
        assert_eq!(w, [1.0, 0.0, 0.0, 256.0]);
    }
}
