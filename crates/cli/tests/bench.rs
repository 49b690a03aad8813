//! `warpsmith bench` on the backend that replays times from a file: every way in which gate 3 can end, without a GPU.

mod common;

use common::{Place, root, text};
use serde_json::Value;
use std::fs;

/// Times of the peers and of two levels; `rows` come before them.
fn fake(place: &Place, rows: &str) -> String {
    let file = place.path().join("fake.toml");
    let body = format!(
        r#"
device = "Fake H200"
target = "sm_90"
noise = 0.002
{rows}
[conditions]
sm_mhz = 1980
power_w = 400.0
"#
    );
    let (head, subjects) = body.split_once("[[subject]]").map_or((body.clone(), String::new()), |(head, rest)| {
        let (rest, conditions) = rest.split_once("[conditions]").expect("it is there");
        (format!("{head}\n[conditions]\n{conditions}"), format!("[[subject]]{rest}"))
    });
    let usual = r#"
[[subject]]
name = "level_00"
us = 100.0
[[subject]]
name = "level_04"
us = { graph_cold = 20.0, event = 30.0, eager = 40.0 }
[[subject]]
name = "sdpa:auto"
us = 10.0
[[subject]]
name = "fa3:fp8"
us = 30.0
[[subject]]
name = "cudnn:fp8"
missing = "not installed: pip install nvidia-cudnn-frontend"
"#;
    fs::write(&file, format!("{head}\n{subjects}\n{usual}")).expect("a folder of our own");
    "fake:fake.toml".into()
}

const QUICK: [&str; 6] = ["--shapes", "tiny", "--mask", "none", "--iters", "20"];

fn bench(place: &Place, files: &[&str], rows: &str, more: &[&str]) -> (i32, Value) {
    let backend = fake(place, rows);
    place.json(&[&["bench"], files, &["--backend", &backend], &QUICK, more].concat())
}

#[test]
fn times_ratios_classes_and_stability_stand_in_the_record() {
    let place = Place::new();
    let (code, document) = bench(&place, &["level_04"], "", &["--baselines", "sdpa:auto,fa3:fp8,cudnn:fp8,level_00"]);
    let r = &document["results"][0];
    assert_eq!((code, r["verdict"].as_str(), r["backend"].as_str()), (0, Some("passed"), Some("fake")), "{r}");
    assert_eq!((r["gates"]["performance"].as_str(), r["target"].as_str()), (Some("passed"), Some("sm_90")));
    let m = &r["measurement"];
    assert_eq!((m["device"].as_str(), m["conditions"]["sm_mhz"].as_u64()), (Some("Fake H200"), Some(1980)));
    for (method, us) in [("graph_cold", 20.0), ("graph_warm", 20.0), ("event", 30.0), ("eager", 40.0)] {
        let t = &m["methods"][method];
        let median = t["median_us"].as_f64().unwrap();
        assert!((median / us - 1.0).abs() < 0.01, "{method}: {t}");
        assert_eq!((t["n"].as_u64(), t["samples"].as_array().map(Vec::len)), (Some(20), Some(20)));
        assert!(t["p10_us"].as_f64().unwrap() <= median && median <= t["p90_us"].as_f64().unwrap());
    }
    for (name, ratio, class) in
        [("sdpa:auto", 0.5, "regression"), ("fa3:fp8", 1.5, "good"), ("level_00", 5.0, "excellent")]
    {
        let b = &m["baselines"][name];
        let [x, low, high] = ["ratio", "ratio_low", "ratio_high"].map(|k| b[k].as_f64().unwrap_or(f64::NAN));
        assert!((x / ratio - 1.0).abs() < 0.02 && low <= x && x <= high && high / low < 1.05, "{name}: {b}");
        assert!(b["class"] == class || (name == "fa3:fp8" && b["class"] == "modest"), "{name}: {b}");
    }
    assert!(m["baselines"]["cudnn:fp8"]["missing"].as_str().unwrap().contains("pip install"));
    assert_eq!(
        (m["stability"]["launches"].as_u64(), m["stability"]["identical"].as_bool()),
        (Some(10_000), Some(true))
    );
    assert_eq!(m["outputs"]["sampled"], m["outputs"]["identical"]);
    assert!(m["outputs"]["sampled"].as_u64().unwrap() >= 4 && m["outputs"]["bases"].as_u64().unwrap() >= 2);
    assert!(document["run"]["seed_secret"].as_u64().is_some());
    assert!(document["geomean"].as_f64().unwrap() < 1.0 && document["best"]["baseline"] == "sdpa:auto");
}

#[test]
fn the_same_secret_gives_the_same_run() {
    let take = |secret: &str| {
        let place = Place::new();
        let (_, document) = bench(&place, &["level_04"], "", &["--baselines", "sdpa:auto", "--seed-secret", secret]);
        document["results"][0]["measurement"].clone()
    };
    assert_eq!(take("77"), take("77"));
    assert_ne!(take("77")["methods"], take("78")["methods"]);
}

#[test]
fn each_way_to_fail_has_its_verdict_and_others_keep_theirs() {
    // (what level_04 does, its verdict, the finding's code, words of the message)
    for (what, verdict, code, words) in [
        ("fault_at = 20", "faulted", "invalid-access", "launch 20, grid"),
        ("fault_at = 20", "faulted", "invalid-access", "seen again with each launch leaving word, it is launch 20"),
        ("fault_at = 20\nfault_in_flight_only = true", "faulted", "invalid-access", "several in flight"),
        ("hang = true", "timed_out", "time-limit", "no end"),
        ("wrong_from = 2", "rejected", "timed-output-wrong", "when it is timed"),
        ("unstable_from = 2", "rejected", "unstable", "other bits"),
        ("unstable_from = 5000", "rejected", "unstable", "of 10000 launches"),
        ("changes_input = true", "rejected", "input-changed-in-timing", "input"),
        ("lost_at = 3", "unsupported", "connection-lost", "connection"),
    ] {
        let place = Place::new();
        let row = format!("[[subject]]\nname = \"level_04\"\nus = 20.0\n{what}\n");
        let (exit, document) = bench(&place, &["level_04", "level_00"], &row, &["--baselines", "sdpa:auto"]);
        let [bad, good] = &document["results"].as_array().expect("two results")[..] else { panic!("{document}") };
        let found = (exit, bad["verdict"].as_str().unwrap(), bad["finding"]["code"].as_str().unwrap_or(""));
        assert_eq!(found, (1, verdict, code), "{what}: {}", bad["finding"]);
        assert!(bad["finding"]["message"].as_str().unwrap().contains(words), "{what}: {}", bad["finding"]);
        assert_ne!(bad["gates"]["performance"], "passed", "{what}");
        assert_eq!(good["verdict"], "passed", "{what}: {}", good["finding"]);
        assert!(good["measurement"]["baselines"]["sdpa:auto"]["ratio"].as_f64().is_some());
    }
}

#[test]
fn what_is_below_physics_is_rejected_and_what_is_slow_is_not() {
    for (bandwidth, verdict) in [("4.8", "passed"), ("0.0001", "rejected")] {
        let place = Place::new();
        let (code, document) = bench(
            &place,
            &["level_04"],
            &format!("terabytes_per_second = {bandwidth}\n"),
            &["--baselines", "sdpa:auto"],
        );
        let r = &document["results"][0];
        assert_eq!((r["verdict"].as_str(), code), (Some(verdict), i32::from(verdict != "passed")), "{}", r["finding"]);
        assert!(r["measurement"]["floor"]["why"].as_str().unwrap().contains("bytes of inputs"), "{r}");
        if code == 1 {
            assert_eq!(r["finding"]["code"], "below-physics");
            assert!(r["finding"]["message"].as_str().unwrap().contains("TB/s"));
        }
    }
}

#[test]
fn a_run_that_was_cut_off_is_finished_with_the_same_secret() {
    let place = Place::new();
    let more = ["--baselines", "sdpa:auto", "--out", "run"];
    let backend = fake(&place, "");
    let all = ["bench", "level_04", "level_00", "--backend", &backend, "--shapes", "tiny", "--iters", "20"];
    let (_, whole) = place.json(&[&all[..], &more].concat());
    let journal = place.path().join("run/journal.jsonl");
    let lines: Vec<String> = fs::read_to_string(&journal).unwrap().lines().map(String::from).collect();
    let results = lines.iter().filter(|l| l.contains("\"event\":\"result\"")).count();
    assert_eq!(results, 4);
    // A kill after the first workload: two results are there, and half of a third line.
    let cut = lines.iter().enumerate().filter(|(_, l)| l.contains("\"event\":\"result\"")).nth(1).unwrap().0;
    fs::write(&journal, format!("{}\n{}", lines[..=cut].join("\n"), &lines[cut + 1][..40])).unwrap();
    fs::remove_file(place.path().join("run/summary.json")).unwrap();
    let (code, again) = place.json(&["bench", "--resume", "run"]);
    assert_eq!(code, 0, "{again}");
    assert_eq!(again["run"], whole["run"]);
    assert_eq!(again["results"].as_array().map(Vec::len), Some(4));
    // The order of rounds and the samples are drawn as they would have been.
    for (a, b) in whole["results"].as_array().unwrap().iter().zip(again["results"].as_array().unwrap()) {
        assert_eq!((&a["candidate"], &a["causal"]), (&b["candidate"], &b["causal"]));
        assert_eq!(a["measurement"]["methods"]["event"], b["measurement"]["methods"]["event"]);
    }
    let seqs: Vec<u64> = fs::read_to_string(&journal)
        .unwrap()
        .lines()
        .map(|l| serde_json::from_str::<Value>(l).unwrap()["seq"].as_u64().unwrap())
        .collect();
    assert!(seqs.iter().enumerate().all(|(i, s)| *s == i as u64), "{seqs:?}");
    assert_eq!(place.json(&["bench", "--resume", "run"]).0, 0, "a whole run stays as it is");
}

#[test]
fn without_a_device_it_says_what_to_do() {
    let place = Place::new();
    if place.run(&["check", "level_00", "--backend", "gpu", "--shapes", "tiny"]).status.success() {
        println!("skipped: there is a device here");
        return;
    }
    let (code, document) = place.json(&["bench", "level_00", "--shapes", "tiny"]);
    assert_eq!((code, document["error"]["code"].as_str()), (3, Some("no-device")), "{document}");
    assert!(document["error"]["hint"].as_str().unwrap().contains("--allow-no-gpu"));
    let (code, document) = place.json(&["bench", "level_00", "--shapes", "tiny", "--allow-no-gpu"]);
    let r = &document["results"][0];
    assert_eq!((code, r["gates"]["performance"].as_str()), (0, Some("unavailable")), "{r}");
    assert!(r.get("measurement").is_none() && r["backend"] == "ptx_machine");
}

#[test]
fn wrong_usage_is_told_before_anything_runs() {
    let place = Place::new();
    fake(&place, "");
    fs::write(place.path().join("bad.toml"), "devise = 1").unwrap();
    for (arguments, code, words) in [
        (vec!["--backend", "fake:none.toml"], "unknown-name", "cannot read"),
        (vec!["--backend", "fake:bad.toml"], "task-syntax", "devise"),
        (vec!["--backend", "tpu"], "wrong-usage", "fake:FILE"),
        (vec!["--backend", "cpu"], "wrong-usage", "no clock"),
        (vec!["--backend", "fake:fake.toml", "--methods", "stopwatch"], "unknown-name", "graph_cold"),
        (vec!["--backend", "fake:fake.toml", "--baselines", "fa4:fp8"], "unknown-name", "fa3:fp8"),
        (vec!["--backend", "fake:fake.toml", "--baselines", "level_77"], "unknown-name", "level_77"),
        (vec!["--backend", "fake:fake.toml", "--iters", "0"], "wrong-usage", "iters"),
        (vec!["--resume", "nowhere"], "run-unreadable", "nowhere"),
    ] {
        let (exit, document) = place.json(&[&["bench", "level_00", "--shapes", "tiny"], &arguments[..]].concat());
        let e = &document["error"];
        assert_eq!((exit, e["code"].as_str()), (2, Some(code)), "{arguments:?}: {document}");
        assert!(format!("{e}").contains(words), "{arguments:?}: {e}");
    }
}

#[test]
fn reports_say_that_replayed_figures_are_no_times() {
    let place = Place::new();
    let backend = fake(&place, "");
    let arguments = ["bench", "level_04", "--backend", &backend, "--baselines", "sdpa:auto", "--out", "run"];
    let shown = text(&place.run(&[&arguments[..], &QUICK].concat()));
    let report = fs::read_to_string(place.path().join("run/report.md")).unwrap();
    for text in [&shown, &report] {
        assert!(text.contains("none of them is a time") && text.contains("regression"), "{text}");
    }
    assert!(root().join("docs/fake-backend.md").is_file());
}

#[test]
fn a_gate_can_be_the_last_one() {
    let place = Place::new();
    for (gate, compile, correctness) in [("1", "passed", "not_run"), ("correctness", "passed", "passed")] {
        let (code, document) = place.json(&["check", "level_00", "--shapes", "tiny", "--gate", gate]);
        let gates = &document["results"][0]["gates"];
        assert_eq!(
            (code, gates["compile"].as_str(), gates["correctness"].as_str()),
            (0, Some(compile), Some(correctness))
        );
    }
}
