//! What people are told: nothing is claimed of a GPU, a finding is told once with its line, hostile names stay text.

use serde_json::json;
use warpsmith_report::{Material, markdown, next_step, overall, terminal};
use warpsmith_spec::record::RunRecord;

fn result(candidate: &str, shape: &str, verdict: &str, finding: Option<serde_json::Value>) -> serde_json::Value {
    let findings: Vec<_> = finding.iter().cloned().collect();
    json!({
        "candidate": candidate, "task": "fp8_sdpa", "shape": shape, "symbols": {"B": 1, "H": 1, "S": 32, "D": 64},
        "causal": false, "format": "e4m3", "distribution": "needles", "scales": "head", "seed": 0, "target": "sm_89",
        "levers": {}, "backend": "ptx_machine", "numerics": "faithful",
        "gates": {"compile": "passed", "correctness": if verdict == "passed" { "passed" } else { "failed" },
                  "performance": "not_run", "profile": "not_run"},
        "verdict": verdict, "findings": findings, "finding": finding,
        "compile": {"sm_89": {"k": {"registers": 64, "shared_bytes": 128, "stack_bytes": 0, "spill_bytes": 0,
                                    "tensor_ops": {"QMMA": 4}, "ptx_sha256": "00"}}},
    })
}

fn record(results: Vec<serde_json::Value>) -> RunRecord {
    serde_json::from_value(json!({
        "schema": "warpsmith.run/1",
        "run": {"name": "r", "command": ["warpsmith", "check"], "started": "2026-11-21T00:00:00Z", "warpsmith": "0.1.0"},
        "environment": {"os": "linux", "arch": "x86_64", "cpus": 2},
        "results": results,
    }))
    .unwrap()
}

fn fault(line: u32) -> serde_json::Value {
    json!({"severity": "error", "kind": "shared_race", "code": "shared-race", "gate": "correctness",
           "message": "warps 1 and 0 use byte 0", "file": "k.cu", "line": line})
}

#[test]
fn a_pass_on_the_cpu_says_so_in_every_text() {
    let record = record(vec![result("k.cu", "tiny", "passed", None)]);
    for text in [terminal(&record), markdown(&Material::of(&record))] {
        assert!(text.contains("not run on a GPU"), "{text}");
        assert!(!text.to_lowercase().contains("faster"), "{text}");
    }
    assert!(overall(&record).all_passed());
}

/// What the PTX machine does not execute is nothing to mend: it is judged on a GPU. What failed comes first.
#[test]
fn the_next_step_for_what_was_not_executed_is_a_gpu() {
    let not_executed = json!({"severity": "error", "kind": "unsupported_instruction", "code": "unsupported-instruction", "gate": "correctness",
                              "message": "the PTX machine cannot execute x", "file": "ptx.cuh", "line": 98});
    let mut results = vec![result("h.cu", "tiny", "unsupported", Some(not_executed))];
    let next = next_step(&record(results.clone()));
    assert!(
        next.contains("check h.cu --backend gpu") && next.contains("unsupported-instruction") && !next.contains("mend"),
        "{next}"
    );
    results.push(result("k.cu", "tiny", "faulted", Some(fault(17))));
    assert!(next_step(&record(results)).starts_with("next: mend k.cu at k.cu:17"));
}

#[test]
fn nothing_judged_is_no_pass() {
    assert!(!overall(&record(vec![])).all_passed());
}

#[test]
fn the_same_finding_at_many_shapes_is_told_once_with_its_line() {
    let results = ["tiny", "mission", "long"].map(|s| result("k.cu", s, "faulted", Some(fault(17)))).to_vec();
    let text = terminal(&record(results));
    assert_eq!(text.matches("warps 1 and 0 use byte 0").count(), 1, "{text}");
    assert!(
        text.contains("k.cu:17") && text.contains("and 2 more results") && text.contains("explain shared-race"),
        "{text}"
    );
    assert!(text.contains("0 of 3 passed") && text.contains("3 faulted"), "{text}");
}

#[test]
fn findings_at_different_lines_are_each_told() {
    let text = terminal(&record(vec![
        result("k.cu", "tiny", "faulted", Some(fault(17))),
        result("k.cu", "mission", "faulted", Some(fault(18))),
    ]));
    assert!(text.contains("k.cu:17") && text.contains("k.cu:18"), "{text}");
}

#[test]
fn a_hostile_name_cannot_break_out_of_its_cell() {
    let text = markdown(&Material::of(&record(vec![result("a|b<script>\n## x.cu", "tiny", "passed", None)])));
    assert!(!text.contains("<script>") && !text.contains("\n## x"), "{text}");
    let row = text.lines().find(|l| l.starts_with('|') && l.contains("script")).unwrap();
    assert_eq!(row.matches('|').count() - row.matches("\\|").count(), 12, "eleven cells: {row}");
}

#[test]
fn results_that_differ_in_levers_or_inputs_can_be_told_apart() {
    let mut a = result("k.cu", "tiny", "passed", None);
    let mut b = a.clone();
    a["levers"] = json!({"BLOCK_M": 32, "STAGES": 2});
    b["levers"] = json!({"BLOCK_M": 64, "STAGES": 2});
    b["distribution"] = json!("shifted");
    let text = terminal(&record(vec![a, b]));
    for words in ["k BLOCK_M=32", "k BLOCK_M=64", "e4m3 needles", "e4m3 shifted"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert!(!text.contains("STAGES"), "what is the same everywhere is not repeated: {text}");
}

/// A result with a time, a peer, a level and a peer that is missing.
fn measured(shape: &str, backend: &str) -> serde_json::Value {
    let mut r = result("level_08", shape, "passed", None);
    r["backend"] = json!(backend);
    r["measurement"] = json!({
        "device": "NVIDIA H200", "conditions": {"sm_mhz": 1980, "throttled": false, "power_w": 420.0}, "method": "graph_cold",
        "methods": {"graph_cold": {"median_us": 9.5, "p10_us": 9.4, "p90_us": 9.7, "n": 2, "samples": [9.4, 9.6], "rounds": 2}},
        "baselines": {
            "fa3:fp8": {"ratio": 1.27, "ratio_low": 1.26, "ratio_high": 1.28, "class": "modest"},
            "sdpa:auto": {"ratio": 1.005, "ratio_low": 0.99, "ratio_high": 1.02, "class": "ambiguous"},
            "level_00": {"ratio": 10.0, "ratio_low": 9.9, "ratio_high": 10.1, "class": "excellent"},
            "cudnn:fp8": {"missing": "pip install nvidia-cudnn-frontend"}},
        "stability": {"launches": 10000, "identical": true}});
    r
}

#[test]
fn measurements_come_with_conditions_intervals_and_the_best_peer() {
    let record = record(vec![measured("mission", "gpu")]);
    for text in [terminal(&record), markdown(&Material::of(&record))] {
        for words in [
            "NVIDIA H200",
            "1980 MHz",
            "not throttled",
            "method graph",
            "9.50",
            "1.27 (1.26 - 1.28) modest",
            "AMBIGUOUS",
            "10000, same bits",
            "missing: pip install",
            "fastest peer at mission none: sdpa:auto",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
        let at = |w: &str| text.find(w).unwrap_or_else(|| panic!("{w}: {text}"));
        assert!(at("1980 MHz") < at("9.50"), "conditions come first");
        assert!(at("vs sdpa:auto") < at("vs fa3:fp8") && at("vs fa3:fp8") < at("vs level"), "{text}");
    }
}

/// Faster than one's own earlier kernel is no reason to call it what people should use.
#[test]
fn a_gain_over_an_own_kernel_alone_is_not_taken_for_the_best() {
    let merge = |baselines: &[&str]| {
        let mut timed = measured("mission", "gpu");
        let all = timed["measurement"]["baselines"].as_object_mut().unwrap();
        all.retain(|name, _| baselines.contains(&name.as_str()));
        let text = markdown(&Material::of(&record(vec![timed])));
        text.lines().find(|l| l.contains("Merge?")).unwrap_or_default().to_string()
    };
    assert!(merge(&["level_00"]).contains("no peer was timed"), "{}", merge(&["level_00"]));
    for peers in [&["fa3:fp8"][..], &["fa3:fp8", "level_00"]] {
        assert!(merge(peers).contains("yes, at these shapes"), "{}", merge(peers));
    }
}

/// Of several kernels the fastest is named with what it takes, one that is as near as noise beside it, and the command that takes all.
#[test]
fn of_several_kernels_the_fastest_is_named() {
    let timed = |candidate: &str, shape: &str, us: f64, backend: &str| {
        let mut r = measured(shape, backend);
        r["candidate"] = json!(candidate);
        r["measurement"]["methods"]["graph_cold"]["median_us"] = json!(us);
        r
    };
    let of = |rows: &[(&str, &str, f64)], backend: &str| {
        let rows = rows.iter().map(|(c, s, us)| timed(c, s, *us, backend)).collect();
        markdown(&Material::of(&record(rows)))
    };
    let rows = [
        ("level_00", "tiny", 8.0),
        ("level_00", "mission", 80.0),
        ("level_05", "tiny", 3.4),
        ("level_05", "mission", 10.0),
        ("level_06", "tiny", 3.5),
        ("level_06", "mission", 9.8),
        // Timed at one shape only: nobody knows about the other.
        ("level_07", "tiny", 1.0),
    ];
    let text = of(&rows, "gpu");
    for words in [
        "level_05 is the fastest of 3 kernels by the geometric mean: 10.00 us at mission, 3.400 us at tiny",
        "level_06 takes 0.4% more",
        "`warpsmith check level_05 --backend cpu`",
        "the fastest of 4 kernels, `warpsmith check level_00 level_05 level_06 level_07 --backend cpu` takes all",
        "warpsmith profile level_05 --shapes tiny",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert!(!of(&rows, "fake").contains("fastest of"), "replayed figures choose nothing");
    assert!(!of(&rows[..2], "gpu").contains("fastest of"), "one kernel is compared with none");
    // Without a time all are named, those of one's own by their files.
    let mut own: Vec<_> = (0..6).map(|i| result(&format!("k{i}.cu"), "tiny", "passed", None)).collect();
    let next = next_step(&record(own.clone()));
    assert!(next.contains("`warpsmith bench k0.cu k1.cu k2.cu k3.cu k4.cu k5.cu`"), "{next}");
    assert!(next_step(&record(own.drain(..1).collect())).contains("run it on a GPU: `warpsmith bench k0.cu`"));
    let swept = ["32", "64"].map(|m| {
        let mut r = timed("level_07", "tiny", if m == "64" { 3.0 } else { 4.0 }, "gpu");
        r["levers"] = json!({"BLOCK_M": m.parse::<i64>().unwrap()});
        r
    });
    let next = next_step(&record(swept.to_vec()));
    assert!(
        next.contains("check level_07 --set BLOCK_M=64 --backend cpu") && next.contains("level_07 --sweep"),
        "{next}"
    );
}

#[test]
fn replayed_figures_are_called_no_times() {
    let record = record(vec![measured("tiny", "fake")]);
    for text in [terminal(&record), markdown(&Material::of(&record))] {
        assert!(text.contains("none of them is a time") && text.contains("replayed us"), "{text}");
        assert!(text.contains("not run on a GPU"), "{text}");
    }
}
