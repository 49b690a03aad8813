//! How far a result is from the oracle: relative errors over all and of the worst row, and the figures reported beside.
//!
//! Pure functions of numbers. A value that is not finite counts as zero in every sum and is counted apart, so that each
//! figure is a number; whoever judges looks at the counts first.

/// Relative errors, the two figures that limits are set on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Relative {
    /// |got - want| / |want| over all elements.
    pub frobenius: f64,
    /// The largest |got_i - want_i| / |want_i| of a row.
    pub worst_row: f64,
}

impl Relative {
    /// The larger of error / limit; above 1 is refused.
    pub fn score(self, limit: Relative) -> f64 {
        (self.frobenius / limit.frobenius).max(self.worst_row / limit.worst_row)
    }

    pub fn within(self, limit: Relative) -> bool {
        self.frobenius <= limit.frobenius && self.worst_row <= limit.worst_row
    }
}

/// Relative errors of rows of `width` numbers.
pub fn relative(got: &[f64], want: &[f64], width: usize) -> Relative {
    let (mut all, mut norm, mut worst) = (0.0, 0.0, 0.0f64);
    for (got, want) in got.chunks(width).zip(want.chunks(width)) {
        let (mut error, mut size) = (0.0, 0.0);
        for (&g, &w) in got.iter().zip(want) {
            let g = if g.is_finite() { g } else { 0.0 };
            error += (g - w) * (g - w);
            size += w * w;
        }
        all += error;
        norm += size;
        worst = worst.max(ratio(error, size));
    }
    Relative { frobenius: ratio(all, norm), worst_row: worst }
}

/// Absolute errors of logarithms: the root mean square and the largest. What is -inf has to be so, and nothing else may be.
pub fn logarithmic(got: &[f64], want: &[f64]) -> Relative {
    let (mut all, mut worst) = (0.0, 0.0f64);
    for (&g, &w) in got.iter().zip(want) {
        let error = match (g.is_finite(), w.is_finite()) {
            (true, true) => (g - w).abs().min(1e150),
            _ if g == w => 0.0,
            _ => 1e150,
        };
        all += error * error;
        worst = worst.max(error);
    }
    Relative { frobenius: (all / want.len().max(1) as f64).sqrt(), worst_row: worst }
}

/// Square root of a quotient of squares. Nothing over nothing is no error; something over nothing is beyond any limit.
fn ratio(error: f64, size: f64) -> f64 {
    if error == 0.0 { 0.0 } else { (error.sqrt() / size.sqrt().max(1e-300)).min(1e300) }
}

/// Limits on the whole route from unquantised inputs: what an exact kernel on the quantised inputs (`exact`) errs against `want`, plus
/// the kernel limit, which is relative to `exact` and therefore weighed with its size.
pub fn end_to_end_limit(exact: &[f64], want: &[f64], width: usize, kernel: Relative) -> Relative {
    let (mut all, mut size, mut norm, mut worst) = (0.0, 0.0, 0.0, 0.0f64);
    for (exact, want) in exact.chunks(width).zip(want.chunks(width)) {
        let error: f64 = exact.iter().zip(want).map(|(e, w)| (e - w) * (e - w)).sum();
        let (e, w): (f64, f64) = (exact.iter().map(|x| x * x).sum(), want.iter().map(|x| x * x).sum());
        all += error;
        size += e;
        norm += w;
        worst = worst.max(ratio(error, w) + kernel.worst_row * grown(e, w));
    }
    Relative {
        frobenius: ratio(all, norm) + kernel.frobenius * grown(size, norm),
        worst_row: worst.max(kernel.worst_row).min(1e300),
    }
}

/// How much larger the exact result is than the wanted one, at least 1.
fn grown(exact: f64, want: f64) -> f64 {
    if want == 0.0 { 1.0 } else { (exact / want).sqrt().max(1.0) }
}

/// Elementwise figures, reported and not judged.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Elementwise {
    pub max_abs: f64,
    pub mean_abs: f64,
    pub rmse: f64,
    /// Percent of elements that err by more than `BAD` times the oracle's RMS.
    pub pct_bad: f64,
    pub cosine: f64,
    pub nan: u64,
    pub inf: u64,
    /// Where the largest error is; an element that is not finite before any other.
    pub worst: usize,
}

/// An element is counted as bad beyond this share of the oracle's root mean square.
pub const BAD: f64 = 0.1;

pub fn elementwise(got: &[f64], want: &[f64]) -> Elementwise {
    let n = want.len().max(1) as f64;
    let rms = (want.iter().map(|w| w * w).sum::<f64>() / n).sqrt();
    let mut e =
        Elementwise { max_abs: 0.0, mean_abs: 0.0, rmse: 0.0, pct_bad: 0.0, cosine: 0.0, nan: 0, inf: 0, worst: 0 };
    let (mut dot, mut gg, mut ww) = (0.0, 0.0, 0.0);
    let mut worst = -1.0;
    for (i, (&g, &w)) in got.iter().zip(want).enumerate() {
        e.nan += g.is_nan() as u64;
        e.inf += g.is_infinite() as u64;
        let value = if g.is_finite() { g } else { 0.0 };
        let error = (value - w).abs();
        let rank = if g.is_finite() { error } else { f64::INFINITY };
        if rank > worst {
            worst = rank;
            e.worst = i;
        }
        e.max_abs = e.max_abs.max(error);
        e.mean_abs += error / n;
        e.rmse += error * error / n;
        e.pct_bad += (!g.is_finite() || error > BAD * rms) as u64 as f64 * 100.0 / n;
        dot += value * w;
        gg += value * value;
        ww += w * w;
    }
    e.rmse = e.rmse.sqrt();
    // Two zero vectors point the same way; one zero vector points nowhere.
    e.cosine = if gg == 0.0 && ww == 0.0 { 1.0 } else { dot / (gg.sqrt() * ww.sqrt()).max(1e-300) };
    e.cosine = e.cosine.clamp(-1.0, 1.0);
    e
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_errors_of_the_whole_and_the_worst_row() {
        let r = relative(&[3.0, 4.0, 1.0, 0.0], &[3.0, 4.0, 0.0, 1.0], 2);
        assert!((r.worst_row - 2f64.sqrt()).abs() < 1e-15);
        assert!((r.frobenius - (2.0f64 / 26.0).sqrt()).abs() < 1e-15);
    }

    #[test]
    fn zeros_are_right_only_where_zeros_are_wanted() {
        let limit = Relative { frobenius: 0.0125, worst_row: 0.06 };
        assert_eq!(relative(&[0.0, -0.0], &[0.0, 0.0], 2), Relative { frobenius: 0.0, worst_row: 0.0 });
        assert!(!relative(&[1e-7, 0.0], &[0.0, 0.0], 2).within(limit));
        assert!(!relative(&[0.0, 0.0], &[1e-7, 0.0], 2).within(limit));
        assert_eq!(elementwise(&[0.0], &[0.0]).cosine, 1.0);
    }

    #[test]
    fn what_is_not_finite_is_counted_and_leaves_every_figure_a_number() {
        let e = elementwise(&[f64::NAN, f64::INFINITY, 1.0], &[1.0, 1.0, 1.0]);
        assert_eq!((e.nan, e.inf, e.worst, e.max_abs), (1, 1, 0, 1.0));
        assert!((e.pct_bad - 200.0 / 3.0).abs() < 1e-9 && e.cosine.is_finite());
        assert!(relative(&[f64::NAN], &[1.0], 1).frobenius == 1.0);
    }

    #[test]
    fn logarithms_of_nothing_are_minus_infinity_on_both_sides() {
        const NONE: f64 = f64::NEG_INFINITY;
        assert_eq!(logarithmic(&[NONE, 2.0], &[NONE, 2.0]), Relative { frobenius: 0.0, worst_row: 0.0 });
        for (got, want) in [(NONE, 2.0), (0.0, NONE), (f64::NAN, 2.0), (f64::INFINITY, NONE), (f64::NAN, NONE)] {
            assert!(logarithmic(&[got], &[want]).worst_row > 1e100, "{got} for {want}");
        }
        assert!((logarithmic(&[1.0, 3.0], &[1.0, 2.5]).frobenius - 0.125f64.sqrt()).abs() < 1e-15);
    }

    #[test]
    fn a_kernel_inside_its_limit_is_inside_the_end_to_end_limit() {
        let kernel = Relative { frobenius: 0.05, worst_row: 0.1 };
        let (exact, want) = ([2.0, 0.1, -1.0, 0.3], [1.0, 0.1, -1.1, 0.2]);
        let got = exact.map(|x| x * 1.05);
        assert!(relative(&got, &exact, 2).frobenius < 0.0500001);
        assert!(relative(&got, &want, 2).within(end_to_end_limit(&exact, &want, 2, kernel)));
    }
}
