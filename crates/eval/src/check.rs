//! One output against its references: the two relative limits, and the figures reported beside.
//!
//! Errors are relative, of the whole and of the worst row: an absolute limit lets kernels pass that skip 3% of the keys at 4,096
//! keys. NaN and infinities are wrong wherever the reference is finite, and it always is.

use crate::error_map::{error_map, sha256};
use crate::finding::Code;
use crate::metrics::{Relative, elementwise};
use crate::oracle::{Expected, Kind, Limits};
use crate::values::{coordinates, decode_one};
use warpsmith_spec::record::{CheckRecord, FindingRecord, LimitedErrors, WorstElement};

/// Judges an output's bytes, which have its full size. The findings are empty exactly if it passes.
pub fn check(expected: &Expected, limits: &Limits, bytes: &[u8]) -> (CheckRecord, Vec<FindingRecord>) {
    let got = judged(expected, bytes);
    let want = &expected.kernel;
    let kernel = expected.kind.errors(&got, want, expected.width);
    let end_to_end = match &expected.end_to_end {
        Some(want) => expected.kind.errors(&got, want, expected.width),
        None => kernel,
    };
    let e = match expected.kind {
        Kind::Values { .. } => elementwise(&got, want),
        Kind::Logarithms => {
            let (got, want) = without_agreed_infinities(&got, want);
            elementwise(&got, &want)
        }
    };
    let worst_index = expected.spec.index(expected.element(e.worst));
    let (worst_got, worst_want) = (got.get(e.worst).copied(), want.get(e.worst).copied());
    let finite = |x: Option<f64>| x.filter(|x| x.is_finite());
    let record = CheckRecord {
        kernel: limited(kernel, limits.kernel),
        end_to_end: limited(end_to_end, limits.end_to_end),
        max_abs_err: e.max_abs,
        mean_abs_err: e.mean_abs,
        rmse: e.rmse,
        pct_bad: e.pct_bad,
        cosine: e.cosine,
        nan: e.nan,
        inf: e.inf,
        worst: WorstElement {
            index: worst_index.clone(),
            got: finite(worst_got),
            want: finite(worst_want),
            got_text: worst_got.filter(|x| !x.is_finite()).map(|x| format!("{x}")),
        },
        rows_checked: expected.rows.is_some().then(|| expected.rows_checked()),
        rows_total: expected.rows.is_some().then(|| expected.rows_total()),
        sha256: Some(sha256(bytes)),
        error_map: error_map(expected, &got, limits.kernel.worst_row),
    };
    let mut findings = Vec::new();
    let name = &expected.spec.name;
    let place = format!("{name}{worst_index:?}");
    let index = Some(worst_index.iter().map(|i| *i as i64).collect::<Vec<_>>());
    let mut add = |code: Code, message: String, limit: Option<String>, count: Option<u64>| {
        let mut f = code.error("correctness", message);
        (f.tensor, f.index, f.limit, f.count) = (Some(name.clone()), index.clone(), limit, count);
        findings.push(f);
    };
    if e.nan + e.inf > 0 {
        let message = format!(
            "{name} has {} NaN and {} infinities where the reference is finite; the first is {place}",
            e.nan, e.inf
        );
        add(Code::NonFiniteOutput, message, None, Some(e.nan + e.inf));
    }
    let (got, want) = (worst_got.unwrap_or(0.0), worst_want.unwrap_or(0.0));
    let words = match expected.kind {
        Kind::Values { .. } => ["relative error", "worst row"],
        Kind::Logarithms => ["root mean square error", "largest"],
    };
    let quantised = expected.end_to_end.is_some();
    let reference = if quantised { "the reference on the same quantised inputs" } else { "the reference" };
    let judged = [
        (Code::IncorrectOutput, kernel, limits.kernel, reference),
        (Code::IncorrectEndToEnd, end_to_end, limits.end_to_end, "the reference on the unquantised inputs"),
    ];
    // Whoever misses the first misses the second as a rule: once is enough.
    if let Some((code, found, limit, against)) = judged.into_iter().find(|(_, found, limit, _)| !found.within(*limit)) {
        let message = format!(
            "{name} is not {against}: {} {} (limit {}), {} {} (limit {}); worst element {place} is {got:.5}, expected {want:.5}",
            words[0],
            short(found.frobenius),
            short(limit.frobenius),
            words[1],
            short(found.worst_row),
            short(limit.worst_row)
        );
        add(code, message, Some(format!("{} {}", short(limit.frobenius), short(limit.worst_row))), None);
    }
    (record, findings)
}

/// Logarithms, those left at 0 that are -inf on both sides: no figure speaks of them. What is a number where nothing is wanted errs by
/// more than any number can.
fn without_agreed_infinities(got: &[f64], want: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let pair = |(g, w): (&f64, &f64)| match (g.is_finite(), w.is_finite()) {
        _ if g == w && !w.is_finite() => (0.0, 0.0),
        (true, false) => (1e150, 0.0),
        (false, false) => (*g, 0.0),
        _ => (*g, *w),
    };
    got.iter().zip(want).map(pair).unzip()
}

/// The judged elements as numbers.
fn judged(expected: &Expected, bytes: &[u8]) -> Vec<f64> {
    let unit = match expected.kind {
        Kind::Values { unit } => unit,
        Kind::Logarithms => 1.0,
    };
    let size = expected.spec.dtype.bytes() as usize;
    (0..expected.kernel.len())
        .map(|i| {
            let at = expected.element(i) * size;
            // An output shorter than its shape would be a defect of the backend; missing elements count as wrong.
            bytes.get(at..at + size).map_or(f64::NAN, |b| unit * decode_one(expected.spec.dtype, b))
        })
        .collect()
}

fn limited(found: Relative, limit: Relative) -> LimitedErrors {
    LimitedErrors {
        rel_frobenius: found.frobenius,
        worst_row: found.worst_row,
        limit_rel_frobenius: limit.frobenius,
        limit_worst_row: limit.worst_row,
    }
}

fn short(x: f64) -> String {
    if x == 0.0 || (1e-3..1e4).contains(&x) { format!("{x:.4}") } else { format!("{x:.1e}") }
}

/// Elements of an output that were never written, as a finding.
pub fn unwritten(expected: &Expected, written: &[bool]) -> Option<FindingRecord> {
    let size = expected.spec.dtype.bytes() as usize;
    let mut missing = written.chunks(size).enumerate().filter(|(_, bytes)| !bytes.iter().all(|w| *w)).map(|(i, _)| i);
    let first = missing.next()?;
    let count = 1 + missing.count() as u64;
    let index = coordinates(&expected.spec.shape, first as u64);
    let name = &expected.spec.name;
    let message = format!(
        "{count} of the {} elements of {name} were never written; the first is {name}{index:?}",
        expected.spec.elements()
    );
    let mut f = Code::OutputUnwritten.error("correctness", message);
    (f.tensor, f.index, f.count) = (Some(name.clone()), Some(index.iter().map(|i| *i as i64).collect()), Some(count));
    Some(f)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::{OutputSpec, encode};
    use warpsmith_spec::words::DType;

    fn expected() -> Expected {
        Expected {
            spec: OutputSpec { name: "out".into(), dtype: DType::F16, shape: vec![2, 2, 2] },
            kind: Kind::PLAIN,
            width: 2,
            rows: None,
            kernel: vec![1.0, 2.0, 0.5, -0.5, 3.0, 0.0, 1.0, 1.0],
            end_to_end: Some(vec![1.01, 2.0, 0.5, -0.5, 3.0, 0.0, 1.0, 1.0]),
        }
    }

    const LIMITS: Limits = {
        let kernel = Relative { frobenius: 0.0125, worst_row: 0.06 };
        Limits { kernel, end_to_end: Relative { frobenius: 0.02, worst_row: 0.07 } }
    };

    fn codes(values: &[f32]) -> (CheckRecord, Vec<String>) {
        let (record, findings) = check(&expected(), &LIMITS, &encode(DType::F16, values));
        (record, findings.iter().map(|f| f.code.clone()).collect())
    }

    #[test]
    fn a_right_output_passes_and_a_wrong_row_is_named() {
        let right = [1.0, 2.0, 0.5, -0.5, 3.0, 0.0, 1.0, 1.0];
        let (record, found) = codes(&right);
        assert!(found.is_empty() && record.kernel.rel_frobenius == 0.0 && record.end_to_end.rel_frobenius > 0.0);
        let mut wrong = right;
        wrong[3] = 0.5;
        let (record, found) = codes(&wrong);
        assert_eq!(found, ["incorrect-output"]);
        assert_eq!((record.worst.index, record.worst.got, record.worst.want), (vec![0, 1, 1], Some(0.5), Some(-0.5)));
    }

    #[test]
    fn one_nan_fails_and_the_record_stays_json() {
        let (record, found) = codes(&[1.0, 2.0, 0.5, -0.5, 3.0, f32::NAN, 1.0, 1.0]);
        assert_eq!(found[0], "non-finite-output");
        assert_eq!((record.nan, record.worst.got, record.worst.got_text.as_deref()), (1, None, Some("NaN")));
        assert!(!serde_json::to_string(&record).expect("numbers").contains("null,\"want\":null"));
    }

    #[test]
    fn judged_rows_only() {
        let e = Expected { rows: Some(vec![0, 3]), kernel: vec![1.0, 2.0, 1.0, 1.0], end_to_end: None, ..expected() };
        let (record, found) = check(&e, &LIMITS, &encode(DType::F16, &[1.0, 2.0, 9.0, 9.0, 9.0, 9.0, 1.0, 1.0]));
        assert!(found.is_empty());
        assert_eq!((record.rows_checked, record.rows_total), (Some(2), Some(4)));
        let (record, _) = check(&e, &LIMITS, &encode(DType::F16, &[1.0, 2.0, 9.0, 9.0, 9.0, 9.0, 1.0, 5.0]));
        assert_eq!(record.worst.index, [1, 1, 1]);
    }

    #[test]
    fn unwritten_elements_are_counted_with_the_first() {
        let mut written = vec![true; 16];
        assert!(unwritten(&expected(), &written).is_none());
        (written[6], written[15]) = (false, false);
        let f = unwritten(&expected(), &written).expect("two are missing");
        assert_eq!((f.count, f.index, f.code.as_str()), (Some(2), Some(vec![0, 1, 1]), "output-unwritten"));
    }
}
