//! `warpsmith exec` as people use it: teaching kernels with right values, wrong kernels with their line, wrong launch files with theirs.
//! The PTX lies beside the sources, so none of it needs a toolkit.

mod common;

use common::{Place, root, text};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;

fn fixture(name: &str) -> String {
    root().join("tests/exec").join(name).display().to_string()
}

/// Kernels that are right, and their outputs.
const RIGHT: &[(&str, &[&str])] = &[
    ("axpy", &["y"]),
    ("layer_norm", &["y"]),
    ("softmax", &["y"]),
    ("gemm_shared", &["C"]),
    ("gemm_wmma", &["C"]),
    ("reduce", &["total"]),
    ("scan", &["y"]),
    ("histogram", &["bins"]),
    ("fp8", &["a", "b", "y"]),
    ("transpose", &["y"]),
    ("attention", &["out"]),
    ("gelu_bf16", &["y"]),
    ("matvec", &["y"]),
    ("triton_add", &["z"]),
    ("clang_dot", &["sum"]),
    ("grid_sync", &["y"]),
    ("lookback", &["y"]),
    ("block_scan", &["y", "tot"]),
    ("pipeline", &["y"]),
    ("paged_decode", &["o"]),
    ("flash", &["O"]),
    ("clang_flash", &["O"]),
    ("triton_flash", &["o"]),
    ("gemm_int8", &["C"]),
    ("dropout", &["y", "r"]),
    ("match", &["h"]),
    ("groups", &["y", "z", "w"]),
    ("atomics", &["o", "q", "d", "f"]),
    ("virtual", &["y"]),
    ("sgemm_tiles", &["C"]),
    ("wmma_mixed", &["C", "C8"]),
    ("group_scan", &["s", "t"]),
    ("bitonic", &["x"]),
    ("spmv", &["y", "z"]),
    ("conv_const", &["y", "n"]),
    ("fp8_rows", &["s", "y"]),
    ("top_k", &["v", "i"]),
    ("gemm_pipeline", &["C"]),
    ("memcpy_async", &["y", "z"]),
    ("radix", &["x"]),
    ("hash_table", &["y", "c", "m"]),
    ("gemm_tf32", &["C"]),
    ("split_k", &["C"]),
    ("group_norm", &["y"]),
    ("sort_pairs", &["ko", "vo"]),
    ("ring", &["y"]),
    ("roles", &["y"]),
    ("fft", &["y"]),
    ("gemv_int4", &["y"]),
    ("moe_gate", &["ids", "w", "c", "off"]),
    ("lookback_packed", &["y"]),
    ("conv_wmma", &["y"]),
    ("zero_fill", &["y"]),
    ("recursion", &["x"]),
    ("chain", &["y"]),
    ("locks", &["count", "mean", "order", "value", "sum", "mx", "mx2", "hist", "ds", "big"]),
    ("locks_debug", &["count", "mean", "order", "value", "sum", "mx", "mx2", "hist", "ds", "big"]),
    ("compact", &["y", "t"]),
    ("compact_debug", &["y", "t"]),
    ("split_k_debug", &["C"]),
    ("merge_path", &["y"]),
    ("functors", &["o"]),
    ("bfs", &["dist", "parent", "sums"]),
];

/// Runs every right kernel with these options more; `look` sees what else there is to each record.
fn run_right(options: &[&str], look: impl Fn(&str, &Place, &Value)) {
    for (name, outputs) in RIGHT {
        let place = Place::new();
        let (ptx, launch) = (fixture(&format!("{name}.ptx")), fixture(&format!("{name}.toml")));
        let (code, record) = place.json(&[&["exec", &ptx, "--launch", &launch], options].concat());
        assert_eq!((code, &record["verdict"]), (0, &"passed".into()), "{name}: {record:#}");
        for output in *outputs {
            assert_eq!(record["outputs"][output]["ok"], true, "{name} {output}: {record:#}");
        }
        look(name, &place, &record);
    }
}

#[test]
fn teaching_kernels_have_right_values_and_no_findings() {
    run_right(&["--out", "out"], |name, place, record| {
        assert_eq!(record["schema"], "warpsmith.exec/1");
        assert_eq!(record["findings"], Value::Array(vec![]), "{name}");
        assert_eq!(record["fidelity"]["schedules"], 3, "{name}: the first and two others");
        assert!(record["counters"]["warp_instructions"].as_u64() > Some(0), "{name}: something was executed");
        for told in record["outputs"].as_object().unwrap().values() {
            let file = place.path().join("out").join(told["file"].as_str().unwrap());
            assert!(fs::read(&file).unwrap().starts_with(b"\x93NUMPY"), "{name}: {}", file.display());
        }
        let summary = fs::read_to_string(place.path().join("out/summary.json")).unwrap();
        assert_eq!(serde_json::from_str::<Value>(&summary).unwrap(), *record, "{name}");
    });
}

#[test]
fn sums_that_lanes_rounded_differently_are_a_note() {
    let place = Place::new();
    let arguments = ["exec", &fixture("triton_ln.ptx"), "--launch", &fixture("triton_ln.toml"), "--out", "out"];
    let (code, record) = place.json(&arguments);
    assert_eq!(
        (code, &record["verdict"], &record["outputs"]["o"]["ok"]),
        (0, &"passed".into(), &true.into()),
        "{record:#}"
    );
    for f in record["findings"].as_array().unwrap() {
        assert_eq!((&f["severity"], &f["code"]), (&"note".into(), &"shared-race".into()), "{f}");
    }
}

#[test]
fn a_grid_waits_for_itself_in_a_cooperative_launch_only() {
    let place = Place::new();
    let launch = fs::read_to_string(fixture("grid_sync.toml")).unwrap();
    let launch = launch.replace("[[launch]]\n", "[[launch]]\ncooperative = false\n");
    fs::write(place.path().join("launch.toml"), launch.replace("data/", &fixture("data/"))).unwrap();
    let (code, record) = place.json(&["exec", &fixture("grid_sync.ptx"), "--launch", "launch.toml"]);
    assert_eq!((code, &record["verdict"]), (1, &"faulted".into()), "{record:#}");
    assert_eq!(record["finding"]["code"], "trap", "{record:#}");
}

#[test]
fn what_is_wrong_is_named_with_its_line() {
    // kernel; code of a finding; its line in the source; its other line
    for (name, code, line, other) in [("race", "shared-race", 5, Some(4)), ("beyond", "out-of-bounds", 4, None::<u64>)]
    {
        let place = Place::new();
        let arguments = ["exec", &fixture(&format!("{name}.ptx")), "--launch", &fixture(&format!("{name}.toml"))];
        let (exit, record) = place.json(&arguments);
        let all = record["findings"].as_array().unwrap();
        let f = all.iter().find(|f| f["code"] == code).unwrap_or_else(|| panic!("{name}: {record:#}"));
        assert_eq!((exit, &record["verdict"]), (1, &"faulted".into()), "{name}: {record:#}");
        assert_eq!(record["finding"]["severity"], "error", "{name}");
        assert_eq!(f["file"], format!("{name}.cu"), "{name}");
        let lines = [f["line"].as_u64(), f["other_line"].as_u64()];
        assert!(lines.contains(&Some(line)) && (other.is_none() || lines.contains(&other)), "{name}: {f}");
        let told = text(&place.run(&arguments));
        assert!(told.contains(&format!("{name}.cu:")) && told.contains("faulted"), "{name}: {told}");
    }
}

/// A copy of the axpy fixture to change: the folder has axpy.ptx, launch.toml and data/.
fn copy(place: &Place, edit: impl Fn(String) -> String) -> PathBuf {
    let from = root().join("tests/exec");
    fs::create_dir_all(place.path().join("data")).unwrap();
    for file in ["axpy.ptx", "data/axpy_x.npy", "data/axpy_y.npy", "data/axpy_ref.npy"] {
        fs::copy(from.join(file), place.path().join(file)).unwrap();
    }
    let launch = place.path().join("launch.toml");
    fs::write(&launch, edit(fs::read_to_string(from.join("axpy.toml")).unwrap())).unwrap();
    launch
}

/// What becomes of the launch file; a word of the message or the hint; whether the error has a line.
type Row = (&'static str, fn(String) -> String, &'static str, bool);

const WRONG_FILES: &[Row] = &[
    ("empty", |_| String::new(), "[[launch]]", true),
    ("no TOML", |s| s.replace("\"sm_89\"", "\"sm_89"), "not TOML", true),
    ("unknown key", |s| s.replace("grid =", "gird ="), "grid", true),
    ("unknown key at the top", |s| s.replace("schedules", "schedule"), "schedules", true),
    ("unknown target", |s| s.replace("sm_89", "sm_98"), "sm_98", true),
    ("unknown dtype", |s| s.replacen("\"f32\"", "\"f31\"", 1), "f32", true),
    ("unknown fill", |s| s.replacen("data/axpy_x.npy", "normel", 1), "normal", true),
    ("unknown argument", |s| s.replace("args = [\"x\"", "args = [\"xx\""), "xx", true),
    ("unknown symbol", |s| s.replace("ceil_div(n,", "ceil_div(m,"), "m", true),
    ("unknown entry", |s| s.replace("entry = \"axpy\"", "entry = \"axpi\""), "axpy", true),
    ("no grid", |s| s.replace("grid = [\"ceil_div(n, 256)\"]", ""), "grid", true),
    ("grid of zero", |s| s.replace("ceil_div(n, 256)", "n / 1001"), "grid", true),
    ("block too large", |s| s.replace("block = [256]", "block = [2048]"), "1024", true),
    ("too few arguments", |s| s.replace(", \"n\", \"alpha\"]", "]"), "takes 4", true),
    ("number for a pointer", |s| s.replace("args = [\"x\"", "args = [\"n\""), "8 bytes", true),
    ("number too large", |s| s.replace("i32 = 1000", "i32 = 3000000000"), "2147483647", true),
    ("no such file", |s| s.replace("axpy_x.npy", "nowhere.npy"), "nowhere.npy", true),
    ("file of another shape", |s| s.replace("i32 = 1000", "i32 = 999"), "shape", true),
    ("out of the folder", |s| s.replace("\"y.npy\"", "\"../y.npy\""), "out", true),
    ("out over the record", |s| s.replace("\"y.npy\"", "\"summary.json\""), "out", true),
    ("too many schedules", |s| s.replace("schedules = 2", "schedules = 1000"), "64", true),
    (
        "too much memory",
        |s| s.replace("[[launch]]", "[workspace.w]\ndtype = \"f64\"\nshape = [1000000000]\n[[launch]]"),
        "limit",
        true,
    ),
    (
        "one name twice",
        |s| s.replace("[[launch]]", "[workspace.x]\ndtype = \"f64\"\nshape = [1]\n[[launch]]"),
        "something else",
        true,
    ),
    ("tolerance for nothing", |s| s.replace("expect =", "# expect ="), "expect", true),
    ("huge integer", |s| s.replace("i32 = 1000", "i32 = 99999999999999999999"), "whole number", true),
];

#[test]
fn wrong_launch_files_exit_2_with_their_line() {
    for (name, edit, word, has_line) in WRONG_FILES {
        let place = Place::new();
        copy(&place, edit);
        let (code, document) = place.json(&["exec", "axpy.ptx", "--launch", "launch.toml", "--out", "out"]);
        let error = &document["error"];
        let message = error["message"].as_str().unwrap_or_else(|| panic!("{name}: {document:#}"));
        let told = format!("{message} {}", error["hint"]);
        assert_eq!(code, 2, "{name}: {told}");
        assert!(told.contains(word), "{name}: {told}");
        assert!(!has_line || error["line"].is_u64(), "{name}: {error}");
        assert_eq!(error["file"], "launch.toml", "{name}");
        assert!(!place.path().join("out").exists(), "{name}: a run that ran nothing is left behind");
    }
}

#[test]
fn wrong_values_unwritten_outputs_and_broken_ptx_are_verdicts() {
    // what becomes of the launch file, of the PTX; verdict; code
    type Edit = fn(String) -> String;
    let same: Edit = |s| s;
    let rows: [(Edit, Edit, &str, &str); 5] = [
        (|s| s.replace("f32 = 2.5", "f32 = 2.25"), same, "incorrect", "incorrect-output"),
        (|s| s.replace("from = \"data/axpy_y.npy\"\n", ""), same, "faulted", "uninitialized-read"),
        (|s| s.replace("ceil_div(n, 256)", "3"), same, "incorrect", "incorrect-output"),
        (same, |p| p.replace("fma.rn.f32", "fma.rn.f32 ???"), "compile_failed", "ptx-syntax"),
        (same, |p| p.replace("fma.rn.f32", "fma.rn.f31"), "unsupported", "unsupported-instruction"),
    ];
    for (edit, change, verdict, code) in rows {
        let place = Place::new();
        copy(&place, edit);
        let ptx = place.path().join("axpy.ptx");
        fs::write(&ptx, change(fs::read_to_string(&ptx).unwrap())).unwrap();
        let (exit, record) = place.json(&["exec", "axpy.ptx", "--launch", "launch.toml", "--out", "out"]);
        assert_eq!(
            (exit, &record["verdict"], &record["finding"]["code"]),
            (1, &verdict.into(), &code.into()),
            "{record:#}"
        );
        assert!(record["finding"]["line"].is_u64(), "{}", record["finding"]);
    }
}

#[test]
fn what_is_suppressed_is_a_note_with_its_reason() {
    let place = Place::new();
    let rows = "[[suppress]]\ncode = \"shared-race\"\nentry = \"reverse\"\nline = 5\nreason = \"shown in a lecture\"\n";
    fs::write(place.path().join("known.toml"), rows).unwrap();
    let arguments = ["exec", &fixture("race.ptx"), "--launch", &fixture("race.toml"), "--suppressions", "known.toml"];
    let (_, record) = place.json(&arguments);
    let races: Vec<&Value> =
        record["findings"].as_array().unwrap().iter().filter(|f| f["code"] == "shared-race").collect();
    assert!(!races.is_empty() && races.iter().all(|f| f["severity"] == "note"), "{record:#}");
    assert!(races[0]["message"].as_str().unwrap().contains("shown in a lecture"));
    fs::write(place.path().join("known.toml"), rows.replace("reason", "raeson")).unwrap();
    let (code, document) = place.json(&arguments);
    assert_eq!((code, &document["error"]["line"]), (2, &5.into()), "{document}");
}

#[test]
fn a_worker_launches_cooperatively_what_waits_for_its_grid() {
    let place = Place::new();
    let arguments = ["exec", &fixture("grid_sync.ptx"), "--launch", &fixture("grid_sync.toml"), "--fake-device"];
    let (code, record) = place.json(&arguments);
    assert_eq!((code, &record["verdict"]), (0, &"passed".into()), "{record:#}");
    assert_eq!(record["backend"], "fake", "{record:#}");
}

#[test]
#[ignore = "needs a CUDA device"]
fn a_gpu_computes_what_the_machine_does() {
    run_right(&["--backend", "gpu"], |_, _, _| {});
}
