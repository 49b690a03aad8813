//! How well an estimate orders what was measured: rank correlation, and what it costs to believe it.
//!
//! Source: Spearman's rho, ties by their mean rank. It knows pairs of figures and nothing of where they come from.

use serde::{Deserialize, Serialize};

/// What pairs (estimate, time) show.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Agreement {
    pub n: usize,
    /// From -1 to 1.
    pub spearman: f64,
    /// The time of the one that the estimate puts first, by the least time: 1 where it is the fastest.
    pub first_by_fastest: f64,
}

/// None for fewer than three pairs, and where one side is all the same or holds what is no number.
pub fn agreement(pairs: &[(f64, f64)]) -> Option<Agreement> {
    if pairs.len() < 3 || pairs.iter().any(|(a, b)| !(a.is_finite() && b.is_finite() && *b > 0.0)) {
        return None;
    }
    let (x, y): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
    let (x, y) = (ranks(&x), ranks(&y));
    let mean = (pairs.len() as f64 + 1.0) / 2.0;
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a - mean) * (b - mean)).sum::<f64>();
    let spread = dot(&x, &x) * dot(&y, &y);
    if spread <= 0.0 {
        return None;
    }
    let first = pairs.iter().min_by(|a, b| a.0.total_cmp(&b.0))?.1;
    let fastest = pairs.iter().map(|(_, t)| *t).fold(f64::INFINITY, f64::min);
    Some(Agreement { n: pairs.len(), spearman: dot(&x, &y) / libm::sqrt(spread), first_by_fastest: first / fastest })
}

/// Ranks from 1; equal figures have the mean of theirs.
fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut ranks = vec![0.0; values.len()];
    let mut at = 0;
    while at < order.len() {
        let same = order[at..].iter().take_while(|i| values[**i] == values[order[at]]).count();
        for i in &order[at..at + same] {
            ranks[*i] = at as f64 + (same as f64 + 1.0) / 2.0;
        }
        at += same;
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_and_ties() {
        let of = |pairs: &[(f64, f64)]| agreement(pairs).map(|a| (a.spearman * 1000.0).round() / 1000.0);
        for (pairs, want) in [
            (vec![(1.0, 10.0), (2.0, 20.0), (9.0, 21.0)], Some(1.0)),
            (vec![(3.0, 10.0), (2.0, 20.0), (1.0, 21.0)], Some(-1.0)),
            // Textbook: ranks 1, 2.5, 2.5, 4 against 1, 2, 3, 4.
            (vec![(1.0, 1.0), (2.0, 2.0), (2.0, 3.0), (5.0, 4.0)], Some(0.949)),
            (vec![(1.0, 1.0), (1.0, 2.0), (1.0, 3.0)], None),
            (vec![(1.0, 1.0), (2.0, 2.0)], None),
            (vec![(1.0, 1.0), (2.0, f64::NAN), (3.0, 1.0)], None),
        ] {
            assert_eq!(of(&pairs), want, "{pairs:?}");
        }
        let believed = agreement(&[(1.0, 12.0), (2.0, 10.0), (3.0, 30.0)]).unwrap();
        assert!((believed.first_by_fastest - 1.2).abs() < 1e-12);
    }
}
