//! What people get wrong, and what they are told: the exit code, the thing by name, its line; the same with `--json`.
//! None of it needs a toolkit.

mod common;

use common::{Place, root, text};
use std::fs;

/// name; what becomes of a right kernel's text; further arguments; a word of the message or the hint; whether it must have a line
type Row = (&'static str, fn(String) -> Vec<u8>, &'static [&'static str], &'static str, bool);

fn same(s: String) -> Vec<u8> {
    s.into_bytes()
}

const ROWS: &[Row] = &[
    ("empty file", |_| Vec::new(), &[], "front matter", false),
    ("not UTF-8", |_| vec![0xff, 0xfe, 0, 1], &[], "UTF-8", false),
    ("no front matter", |s| s[s.find("#include").unwrap()..].into(), &[], "front matter", false),
    ("broken TOML", |s| s.replace("\"fp8_sdpa\"", "\"fp8_sdpa").into(), &[], "string", true),
    ("unknown key", |s| s.replace("//! grid =", "//! gird =").into(), &[], "gird", true),
    ("unknown task", |s| s.replace("\"fp8_sdpa\"", "\"fp9_sdpa\"").into(), &[], "fp9_sdpa", true),
    ("unknown symbol", |s| s.replace("ceil_div(S, 4)", "ceil_div(SEQ, 4)").into(), &[], "SEQ", true),
    ("broken formula", |s| s.replace("ceil_div(S, 4)", "ceil_div(S, ").into(), &[], "ceil_div(S, ", true),
    ("unknown argument", |s| s.replace("\"v_scale\", \"out\"", "\"w_scale\", \"out\"").into(), &[], "w_scale", true),
    ("unknown shape", same, &["--shapes", "enormous"], "mission", false),
    ("shape of zero", same, &["--shapes", "1x1x0x64"], "no size", false),
    ("unknown target", same, &["--target", "sm_999"], "sm_89", false),
    ("unknown lever", same, &["--set", "NOPE=1"], "NOPE", false),
    ("unknown configuration", same, &["--config", "nope"], "nope", false),
    ("unknown option", same, &["--frobnicate"], "frobnicate", false),
    ("unknown format", same, &["--format", "e9m9"], "e9m9", false),
    ("nothing applicable", |s| s.replace("\"D == 64\"", "\"D == 128\"").into(), &[], "D == 128", false),
];

fn right() -> String {
    fs::read_to_string(root().join("tests/candidates/right/trap_guard.cu")).unwrap()
}

#[test]
fn wrong_usage_exits_2_and_names_the_thing() {
    for (name, edit, more, word, has_line) in ROWS {
        let place = Place::new();
        fs::write(place.path().join("mine.cu"), edit(right())).unwrap();
        let arguments = [&["check", "mine.cu", "--backend", "cpu"], *more].concat();
        let output = place.run(&arguments);
        let (code, document) = place.json(&arguments);
        let error = &document["error"];
        let message = error["message"].as_str().unwrap_or_else(|| panic!("{name}: {document}"));
        assert_eq!((output.status.code(), code), (Some(2), 2), "{name}: {message}");
        let told = format!("{message} {}", error["hint"]);
        assert!(told.contains(word), "{name}: {told}");
        assert!(text(&output).contains(message.lines().next().unwrap()), "{name}: people are told something else");
        assert!(!has_line || error["line"].is_u64(), "{name}: {error}");
        assert!(!place.path().join("runs").join("latest").exists(), "{name}: a run that judged nothing is left behind");
    }
}

#[test]
fn a_missing_file_is_named_with_what_is_near() {
    let (code, document) = Place::new().json(&["check", "levle_03"]);
    let message = document["error"]["message"].as_str().unwrap();
    assert!(code == 2 && message.contains("levle_03") && message.contains("level_03"), "{message}");
}

#[test]
fn a_kernel_that_needs_a_compiler_where_none_can_be_had_says_what_to_do() {
    let place = Place::new();
    fs::write(place.path().join("mine.cu"), right() + "// not in the layer\n").unwrap();
    // A toolkit that is named is the only one that is looked at, so nothing is fetched.
    let (code, document) = place.json(&["check", "mine.cu", "--toolkit", "no-such-folder"]);
    assert_eq!(code, 3, "{document}");
    assert!(document["error"]["message"].as_str().unwrap().contains("no-such-folder"), "{document}");
}

#[test]
fn the_record_is_what_json_prints_and_a_run_is_never_overwritten() {
    let place = Place::new();
    let arguments = ["check", "level_07", "--shapes", "tiny", "--out", "r"];
    let (code, document) = place.json(&arguments);
    assert_eq!(code, 0, "{document}");
    let summary: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(place.path().join("r/summary.json")).unwrap()).unwrap();
    assert_eq!(summary, document);
    let journal = fs::read_to_string(place.path().join("r/journal.jsonl")).unwrap();
    for (i, line) in journal.lines().enumerate() {
        let event: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(event["seq"], i);
    }
    let (code, document) = place.json(&arguments);
    assert_eq!((code, document["error"]["code"].as_str()), (2, Some("run-exists")));
}

#[test]
fn runs_that_begin_together_have_folders_of_their_own() {
    let place = Place::new();
    let (ptx, launch) = (root().join("tests/exec/axpy.ptx"), root().join("tests/exec/axpy.toml"));
    let arguments = ["exec", ptx.to_str().unwrap(), "--launch", launch.to_str().unwrap()];
    std::thread::scope(|s| {
        for _ in 0..8 {
            s.spawn(|| assert_eq!(place.run(&arguments).status.code(), Some(0)));
        }
    });
    let runs = fs::read_dir(place.path().join("runs")).unwrap().flatten();
    let whole = runs.filter(|e| !e.file_type().unwrap().is_symlink() && e.path().join("summary.json").is_file());
    assert_eq!(whole.count(), 8);
    let elsewhere = Place::new();
    fs::copy(&launch, elsewhere.path().join("axpy.toml")).unwrap(); // whose arrays are not there
    let refused = elsewhere.run(&["exec", ptx.to_str().unwrap(), "--launch", "axpy.toml"]);
    assert_eq!(refused.status.code(), Some(2), "{}", text(&refused));
    assert!(!elsewhere.path().join("runs").exists(), "what was refused leaves nothing");
}

#[test]
fn a_pass_is_remembered_and_said_to_be() {
    let place = Place::new();
    let arguments = ["check", "level_07", "--shapes", "tiny"];
    let (_, first) = place.json(&arguments);
    let (_, second) = place.json(&arguments);
    assert!(first["results"][0].get("cached").is_none() && second["results"][0]["cached"] == true);
    assert_eq!(first["results"][0]["check"], second["results"][0]["check"]);
    let (_, fresh) = place.json(&[&arguments[..], &["--fresh"]].concat());
    assert!(fresh["results"][0].get("cached").is_none());
}

#[test]
fn a_new_kernel_is_not_overwritten() {
    let place = Place::new();
    assert_eq!(place.run(&["new", "kernel", "mine"]).status.code(), Some(0));
    let made = fs::read(place.path().join("mine.cu")).unwrap();
    assert_eq!(place.run(&["new", "kernel", "mine"]).status.code(), Some(2));
    assert_eq!(fs::read(place.path().join("mine.cu")).unwrap(), made);
    assert_eq!(place.run(&["new", "kernel", "not a name"]).status.code(), Some(2));
    assert_eq!(place.run(&["new", "kernel", "grouped", "--task", "fp8_attention"]).status.code(), Some(0));
    assert!(fs::read_to_string(place.path().join("grouped.cu")).unwrap().starts_with("//! task = \"fp8_attention\""));
    assert_eq!(place.run(&["new", "kernel", "other", "--task", "rms_norm"]).status.code(), Some(2));
}

#[test]
fn explain_has_a_page_for_codes_and_kinds_and_refuses_others() {
    let place = Place::new();
    for word in ["uninitialized-read", "uninitialized_read", "wmma-local-memory"] {
        let output = place.run(&["explain", word]);
        assert!(output.status.code() == Some(0) && text(&output).contains("```cuda"), "{word}");
    }
    assert_eq!(place.run(&["explain", "no-such-code"]).status.code(), Some(2));
}

#[cfg(target_os = "linux")]
#[test]
fn a_place_that_cannot_be_written_is_the_environments_fault() {
    let (code, document) = Place::new().json(&["check", "level_07", "--shapes", "tiny", "--out", "/proc/none/run"]);
    assert_eq!(code, 3, "{document}");
    assert!(document["error"]["message"].as_str().unwrap().contains("/proc/none"), "{document}");
}
