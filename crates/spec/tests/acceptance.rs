//! Criteria over results: held, missed, or not run.

use serde_json::json;
use warpsmith_spec::accept::{Criterion, Status};
use warpsmith_spec::record::ResultRecord;

/// A result with so many registers and spills, and the ratios of its measurement if it has one.
fn result(shape: &str, registers: u32, ratios: Option<(f64, f64)>) -> ResultRecord {
    let mut record = json!({
        "candidate": "k", "task": "t", "shape": shape, "symbols": {"S": 32}, "causal": false, "format": "e4m3", "distribution": "needles",
        "scales": "head", "seed": 0, "target": "sm_89", "levers": {"M": 32, "LAYOUT": "row"}, "backend": "ptx_machine", "numerics": "faithful",
        "gates": {"compile": "passed", "correctness": "passed", "performance": "not_run", "profile": "not_run"},
        "verdict": "passed",
        "compile": {"sm_89": {"k": {"registers": registers, "shared_bytes": 0, "stack_bytes": 0, "spill_bytes": 0, "tensor_ops": {}, "ptx_sha256": ""}}},
        "check": {"out": {"kernel": {"rel_frobenius": 0.02, "worst_row": 0.03, "limit_rel_frobenius": 0.04, "limit_worst_row": 0.1},
            "end_to_end": {"rel_frobenius": 0.02, "worst_row": 0.03, "limit_rel_frobenius": 0.04, "limit_worst_row": 0.1},
            "max_abs_err": 0.1, "mean_abs_err": 0.01, "rmse": 0.02, "pct_bad": 0.0, "cosine": 0.999, "nan": 0, "inf": 0,
            "worst": {"index": [0], "got": null, "want": 1.0}}}
    });
    if let Some((level, peer)) = ratios {
        record["measurement"] = json!({"baselines": {"level_02": {"ratio": level}, "fa3:fp8": {"ratio": peer}, "cudnn:fp8": {"missing": "not installed"}}});
    }
    serde_json::from_value(record).unwrap()
}

#[test]
fn criteria_are_held_missed_or_not_run() {
    let plain = [result("tiny", 96, None), result("mission", 120, None)];
    let timed = [
        result("tiny", 96, Some((1.0, 2.5))),
        result("mission", 120, Some((4.0, 2.0))),
        result("long", 120, Some((2.0, 1.2))),
    ];
    for (text, results, status, actual) in [
        ("registers <= 128", &plain[..], Status::Held, Some(120.0)),
        ("registers < 100", &plain, Status::Missed, Some(120.0)),
        ("spill_bytes == 0", &plain, Status::Held, Some(0.0)),
        ("worst_row <= 0.035", &plain, Status::Held, Some(0.03)),
        ("cosine >= 0.9999", &plain, Status::Missed, Some(0.999)),
        ("passed == 1", &plain, Status::Held, Some(1.0)),
        ("speedup(level_02) >= 1.15", &plain, Status::NotRun, None),
        ("shapes(speedup(best_peer) >= 2.0) >= 2", &plain, Status::NotRun, None),
        ("speedup(level_02) >= 1.15", &timed, Status::Held, Some(2.0)),
        ("speedup(\"fa3:fp8\") >= 3", &timed, Status::Missed, Some(6f64.powf(1.0 / 3.0))),
        ("speedup(best_peer) > 1", &timed, Status::Held, Some(6f64.powf(1.0 / 3.0))),
        ("speedup(\"cudnn:fp8\") > 1", &timed, Status::NotRun, None),
        ("shapes(speedup(best_peer) >= 2.0) >= 2", &timed, Status::Held, Some(2.0)),
        ("shapes(speedup(level_02) >= 2.0) > 2", &timed, Status::Missed, Some(2.0)),
        ("registers <= 128", &[], Status::NotRun, None),
    ] {
        let criterion = Criterion::parse(text).unwrap();
        let (got, figure) = criterion.status(&results.iter().collect::<Vec<_>>());
        assert_eq!(got, status, "{text}");
        match (figure, actual) {
            (Some(a), Some(b)) => assert!((a - b).abs() < 1e-12, "{text}: {a}"),
            (a, b) => assert_eq!(a, b, "{text}"),
        }
        let record = criterion.judge(results);
        assert_eq!((record.criterion.as_str(), record.status.as_str()), (text, status.as_str()));
    }
    let record = Criterion::parse("registers <= 128").unwrap().judge(&plain);
    assert_eq!(record.target, "<= 128");
}

#[test]
fn criteria_that_cannot_be_read_say_why() {
    for (text, word) in [
        ("", "cannot be read"),
        ("registers", "comparison"),
        ("registers <= ", "cannot be read"),
        ("registers <= many", "number"),
        ("regsters <= 128", "did you mean `registers`"),
        ("speedup() >= 1", "speedup takes"),
        ("speedup(1) >= 1", "speedup takes"),
        ("shapes(registers) >= 1", "comparison"),
        ("shapes(shapes(registers < 1) > 1) >= 1", "shapes cannot stand in shapes"),
        ("fast(x) >= 1", "unknown figure"),
        ("registers + 1 <= 2", "figure"),
        ("1 <= registers", "number"),
        ("registers <= 1; registers", "cannot be read"),
        ("registers <= 1e999", "number"),
        (&"(".repeat(3000), "longer"),
    ] {
        let e = Criterion::parse(text).expect_err(text);
        assert!(e.message.contains(word), "{text}: {}", e.message);
    }
}

#[test]
fn a_result_is_the_same_after_json() {
    let one = result("tiny", 96, Some((1.0, 2.5)));
    let text = serde_json::to_string(&one).unwrap();
    assert_eq!(serde_json::from_str::<ResultRecord>(&text).unwrap(), one);
    assert!(!text.contains("\"cached\"") && !text.contains("\"config\""), "absent parts are absent");
    assert!(text.contains(r#""levers":{"LAYOUT":"row","M":32}"#), "{text}");
}

#[test]
fn a_run_is_the_same_after_json_and_absent_parts_are_absent() {
    use warpsmith_spec::record::{ErrorRecord, RunRecord};
    let minimal = json!({
        "schema": "warpsmith.run/1",
        "run": {"name": "20261121-193015-check", "command": ["warpsmith"], "started": "2026-11-21T19:30:15Z", "warpsmith": "0.1.0"},
        "environment": {"os": "linux", "arch": "x86_64", "cpus": 2},
        "results": []
    });
    let mut run: RunRecord = serde_json::from_value(minimal).unwrap();
    run.results.push(result("tiny", 96, None));
    run.accept.push(Criterion::parse("registers <= 128").unwrap().judge(&run.results));
    let text = serde_json::to_string_pretty(&run).unwrap();
    assert_eq!(serde_json::from_str::<RunRecord>(&text).unwrap(), run);
    assert!(!text.contains("toolkit") && !text.contains("git_commit"));

    let error = warpsmith_spec::SpecError::new(warpsmith_spec::SpecCode::UnknownName, "no\n\u{1b}[31m").at("a.cu", 3);
    let record: ErrorRecord = error.into();
    assert_eq!(
        (record.code.as_str(), record.message.as_str(), record.line),
        ("unknown-name", "no\\n\\u{1b}[31m", Some(3))
    );
}

#[test]
fn ratios_are_summed_up_over_what_passed() {
    use warpsmith_spec::speedups::{best_peer, summary};
    let mut failed = result("wide", 96, Some((100.0, 100.0)));
    failed.verdict = warpsmith_spec::record::VerdictWord::Rejected;
    let timed = [result("tiny", 96, Some((1.0, 2.0))), result("mission", 120, Some((4.0, 8.0))), failed];
    // (order of baselines, geometric mean, best, worst)
    for (order, geomean, best, worst) in [
        (vec!["level_02".to_string()], 2.0, 4.0, 1.0),
        (vec!["fa3:fp8".to_string()], 4.0, 8.0, 2.0),
        (vec!["cudnn:fp8".to_string()], 4.0, 8.0, 2.0),
    ] {
        let s = summary(&timed, &order);
        let found = (s.geomean.unwrap(), s.best.as_ref().unwrap().ratio, s.worst.as_ref().unwrap().ratio);
        assert!((found.0 - geomean).abs() < 1e-12 && (found.1, found.2) == (best, worst), "{order:?}: {found:?}");
        assert_eq!(s.best.unwrap().shape, "mission");
        assert_eq!(s.speedups.iter().filter(|s| s.baseline == "best_peer").count(), 1);
    }
    assert_eq!(best_peer(&timed[0]), Some(("fa3:fp8", 2.0)));
    assert_eq!(summary(&timed[2..], &[]), warpsmith_spec::speedups::Summary::default());
    assert_eq!(summary(&[result("tiny", 96, None)], &[]).geomean, None);
}
