//! The page stands by itself, says what was not done, keeps hostile text as text, and stays small for hundreds of candidates.

use serde_json::{Value, json};
use warpsmith_report::{ClaimStatus, Material, claims, html, junit, markdown, sarif};
use warpsmith_spec::record::RunRecord;

fn map(wrong: bool) -> Value {
    let line = if wrong { "00990000" } else { "00110000" };
    json!({"tiles": vec![line; 8], "leading_per_line": 1, "rows_per_tile": 16, "within": vec!["0000000000000000"; 16], "columns_per_cell": 4})
}

fn result(candidate: &str, passed: bool) -> Value {
    let check = json!({
        "kernel": {"rel_frobenius": if passed { 0.002 } else { 0.7 }, "worst_row": 0.02, "limit_rel_frobenius": 0.0125, "limit_worst_row": 0.06},
        "end_to_end": {"rel_frobenius": 0.02, "worst_row": 0.02, "limit_rel_frobenius": 0.05, "limit_worst_row": 0.1},
        "max_abs_err": 0.1, "mean_abs_err": 0.01, "rmse": 0.01, "pct_bad": 0.0, "cosine": 1.0, "nan": 0, "inf": 0,
        "worst": {"index": [0, 1, 2, 3], "got": null, "want": 1.0, "got_text": "NaN"}, "error_map": map(!passed),
    });
    let mut result = json!({
        "candidate": candidate, "task": "fp8_sdpa", "shape": "mission", "symbols": {"B": 1, "H": 8, "S": 512, "D": 64},
        "causal": false, "format": "e4m3", "distribution": "needles", "scales": "head", "seed": 0, "target": "sm_89",
        "levers": {"BLOCK_M": 64}, "backend": "ptx_machine", "numerics": "faithful",
        "gates": {"compile": "passed", "correctness": if passed { "passed" } else { "failed" }, "performance": "not_run", "profile": "not_run"},
        "verdict": if passed { "passed" } else { "incorrect" }, "findings": [],
        "compile": {"sm_89": {"k": {"registers": 64, "shared_bytes": 128, "stack_bytes": 0, "spill_bytes": 0, "tensor_ops": {"QMMA": 4}, "ptx_sha256": "00"}}},
        "check": {"out": check},
        "execution": {"warp_instructions": 1000, "lane_instructions": 32000, "tensor_ops": 64, "static_instructions": 100, "covered_instructions": 100},
    });
    if !passed {
        let finding = json!({"severity": "error", "kind": "shared_race", "code": "shared-race", "gate": "correctness",
            "message": "warps 1 and 0 <b>use</b> byte 0", "file": candidate, "line": 2, "other_line": 9});
        result["findings"] = json!([finding]);
        result["finding"] = finding;
    }
    result
}

fn record(results: Vec<Value>) -> RunRecord {
    serde_json::from_value(json!({
        "schema": "warpsmith.run/1",
        "run": {"name": "r", "command": ["target/warpsmith", "check", "a b.cu"], "started": "2026-11-21T00:00:00Z", "warpsmith": "0.1.0"},
        "environment": {"os": "linux", "arch": "x86_64", "cpus": 2},
        "results": results,
    }))
    .unwrap()
}

fn material(record: &RunRecord) -> Material<'_> {
    let source = "//! task\n  racy(a < b);\nthird\n4\n5\n6\n7\n8\nnine & ten\n".to_string();
    Material { sources: [("candidates/wrong/source/wrong.cu".to_string(), source)].into(), ..Material::of(record) }
}

#[test]
fn the_page_needs_nothing_else_and_says_what_was_not_done() {
    let record = record(vec![result("right.cu", true), result("wrong.cu", false)]);
    let page = html(&material(&record));
    for words in [
        "lang=\"en\"",
        "<title>",
        "viewport",
        "Do not merge",
        "not run on a GPU",
        "No time was taken",
        "<svg role=\"img\"",
        "prefers-color-scheme",
        "@media print",
    ] {
        assert!(page.contains(words), "{words}");
    }
    for forbidden in ["<script", "@import", "src=", "url(", "<img", ">NaN<", ">null<", ">inf<", "<b>use</b>"] {
        assert!(!page.contains(forbidden), "{forbidden}");
    }
    assert!(page.contains("racy(a &lt; b);") && page.contains("nine &amp; ten"), "both lines of the finding are shown");
    assert!(page.contains("from row 32"), "the pattern of the errors is told in words");
    assert!(page.contains("data sheet of NVIDIA L4"), "ceilings say where they come from");
}

#[test]
fn ids_are_unique_and_every_picture_has_its_texts() {
    let record = record(vec![result("right.cu", true), result("wrong.cu", false), result("other.cu", false)]);
    let page = html(&material(&record));
    let mut ids: Vec<&str> = page.split(" id=\"").skip(1).filter_map(|s| s.split('"').next()).collect();
    let n = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), n, "an id twice");
    for reference in
        page.split("aria-labelledby=\"").skip(1).filter_map(|s| s.split('"').next()).flat_map(|s| s.split(' '))
    {
        assert!(ids.binary_search(&reference).is_ok(), "{reference} names nothing");
    }
}

#[test]
fn five_hundred_candidates_stay_under_ten_megabytes() {
    let results: Vec<Value> = (0..2000)
        .map(|i| {
            let mut r = result(&format!("runs/evolve/candidate_{:04}.cu", i / 4), i % 3 != 0);
            r["seed"] = json!(i % 4);
            r
        })
        .collect();
    let page = html(&material(&record(results)));
    assert!(page.len() < 10 << 20, "{} bytes", page.len());
    assert!(page.contains("candidate_0499") && page.contains("<details>"));
}

#[test]
fn a_claim_is_verified_only_by_what_was_done() {
    let status = |record: &RunRecord, words: &str| {
        claims(&material(record)).into_iter().find(|c| c.what.contains(words)).map(|c| c.status).unwrap()
    };
    let cpu = record(vec![result("right.cu", true)]);
    let rows = [
        ("compiles", ClaimStatus::Verified),
        ("keep the limits", ClaimStatus::Verified),
        ("Tensor cores", ClaimStatus::Verified),
        ("several shapes", ClaimStatus::Partial),
        ("on a GPU", ClaimStatus::Missing),
        ("was timed", ClaimStatus::Missing),
        ("Hardware counters", ClaimStatus::Missing),
    ];
    for (words, expected) in rows {
        assert_eq!(status(&cpu, words), expected, "{words}");
    }
    let mixed = record(vec![result("right.cu", true), result("wrong.cu", false)]);
    assert_eq!(status(&mixed, "keep the limits"), ClaimStatus::Partial);
    let none = record(vec![]);
    assert!(
        claims(&material(&none)).iter().all(|c| c.status == ClaimStatus::Missing),
        "nothing judged verifies nothing"
    );
}

#[test]
fn an_empty_run_makes_a_page_too() {
    let record = record(vec![]);
    assert!(html(&material(&record)).contains("Nothing was judged"));
    assert!(markdown(&material(&record)).contains("| missing |"));
}

#[test]
fn a_measurement_gives_speed_ups_with_intervals_and_a_replayed_one_is_no_time() {
    let mut timed = result("right.cu", true);
    timed["backend"] = json!("gpu");
    timed["measurement"] = json!({"device": "NVIDIA H200", "conditions": {"sm_mhz": 1980, "throttled": false}, "method": "graph_cold",
        "methods": {"graph_cold": {"median_us": 8.0, "p10_us": 7.9, "p90_us": 8.2, "n": 4, "samples": [8.0, 7.9, 8.2, 8.0], "rounds": 2}},
        "baselines": {"sdpa:auto": {"ratio": 1.16, "ratio_low": 1.14, "ratio_high": 1.18, "class": "good",
            "methods": {"graph_cold": {"median_us": 9.3, "p10_us": 9.2, "p90_us": 9.4, "n": 2, "samples": [9.3, 9.3], "rounds": 2}}},
            "fa3:fp8": {"missing": "flash-attn 3 is not installed"}},
        "stability": {"launches": 10000, "identical": true}});
    let page = html(&material(&record(vec![timed.clone()])));
    for words in [
        "1.160x (1.140 to 1.180)",
        "Latency distributions",
        "flash-attn 3 is not installed",
        "10000 launches",
        "SM 1980 MHz",
        "NVIDIA H200 SXM",
        "Right, and measured",
    ] {
        assert!(page.contains(words), "{words}");
    }
    timed["backend"] = json!("fake");
    let page = html(&material(&record(vec![timed])));
    assert!(page.contains("None of them is a time") && !page.contains("measured on a GPU"));
}

#[test]
fn findings_reach_ci_systems_with_their_lines() {
    let record = record(vec![result("right.cu", true), result("wrong.cu", false), result("wrong.cu", false)]);
    let material = material(&record);
    let document: Value = serde_json::from_str(&sarif(&material)).unwrap();
    let results = document["runs"][0]["results"].as_array().unwrap();
    assert_eq!((document["version"].as_str(), results.len()), (Some("2.1.0"), 1), "the same finding stands once");
    assert_eq!(results[0]["occurrenceCount"], 2);
    assert_eq!(results[0]["locations"][0]["physicalLocation"]["region"]["startLine"], 2);
    assert_eq!(results[0]["relatedLocations"][0]["physicalLocation"]["region"]["startLine"], 9);
    assert_eq!(document["runs"][0]["tool"]["driver"]["rules"][0]["id"], "shared-race");
    let xml = junit(&material);
    assert!(
        xml.contains("tests=\"3\" failures=\"2\"") && xml.contains("&lt;b&gt;use") && !xml.contains("time="),
        "{xml}"
    );
}
