//! Gate 4 from the command line, with a stand-in for ncu: it starts the worker as ncu does, and prints a report's pages as ncu does.

mod common;

use common::{Place, text};
use std::fs;

const HEAD: &str = "\"ID\",\"Process ID\",\"Process Name\",\"Host Name\",\"Kernel Name\",\"Context\",\"Stream\",\"Block Size\",\"Grid Size\",\"Device\",\"CC\"";
const METRICS: [(&str, &str, &str); 6] = [
    ("sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active", "%", "62.53"),
    ("dram__throughput.avg.pct_of_peak_sustained_elapsed", "%", "11.07"),
    ("smsp__inst_executed.sum", "inst", "1,234,567"),
    ("l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum", "", "500"),
    ("l1tex__data_pipe_lsu_wavefronts_mem_shared.sum", "", "2,000"),
    ("gpu__time_duration.sum", "ns", "9,999"),
];

/// The raw page, a column for each metric.
fn raw() -> String {
    let column = |pick: fn(&(&'static str, &'static str, &'static str)) -> &'static str| -> String {
        METRICS.iter().map(|m| format!(",\"{}\"", pick(m))).collect()
    };
    let launch =
        "\"0\",\"7\",\"warpsmith\",\"h\",\"fp8_sdpa_level_07\",\"1\",\"7\",\"(128, 1, 1)\",\"(4, 2, 1)\",\"0\",\"9.0\"";
    let none = ["\"\""; 11].join(",");
    format!("{HEAD}{}\n{none}{}\n{launch}{}\n", column(|m| m.0), column(|m| m.1), column(|m| m.2))
}

#[cfg(unix)]
fn with_ncu(denied: Option<&str>) -> Place {
    let place = Place::new();
    // A program that this process had just written might still be open in a child of another test, and not be started then.
    let script = common::root().join("crates/cli/tests/ncu.sh");
    std::os::unix::fs::symlink(script, place.path().join("ncu")).unwrap();
    fs::write(place.path().join("raw.csv"), raw()).unwrap();
    let source = "\"File Name\",\"level_07.cu\"\n\"Line No\",\"Source\",\"Warp Stall Sampling (All Samples)\",\"stall_barrier\"\n\"100\",\"x;\",\"75\",\"70\"\n\"101\",\"y;\",\"25\",\"1\"\n";
    fs::write(place.path().join("source.csv"), source).unwrap();
    if let Some(said) = denied {
        fs::write(place.path().join("denied"), said).unwrap();
    }
    place
}

#[cfg(unix)]
fn profile(place: &Place) -> (i32, serde_json::Value) {
    place.json(&[
        "profile",
        "level_07",
        "--shapes",
        "tiny",
        "--mask",
        "none",
        "--fake-device",
        "--ncu",
        "./ncu",
        "--out",
        "r",
    ])
}

#[cfg(unix)]
#[test]
fn counters_are_ncus_own_and_its_report_is_kept() {
    let place = with_ncu(None);
    let (code, record) = profile(&place);
    let result = &record["results"][0];
    let profile = &result["profile"];
    assert_eq!((code, &result["gates"]["profile"]), (0, &"passed".into()), "{profile:#}");
    let counters = profile["counters"][0]["counters"].as_array().unwrap();
    let value = |name: &str| &counters.iter().find(|c| c["name"] == name).unwrap()["value"];
    assert_eq!((value("tensor_active"), value("instructions")), (&62.53.into(), &1_234_567.0.into()));
    assert_eq!((&profile["bound"]["word"], &profile["bound"]["source"]), (&"compute".into(), &"counters".into()));
    assert!(profile["advice"].as_array().unwrap().iter().any(|a| a["lever"] == "swizzle"), "a quarter are conflicts");
    assert!(
        !record.to_string().contains("time_duration") && result.get("measurement").is_none(),
        "no time of a profile"
    );
    assert_eq!((&profile["samples"][0]["line"], &profile["samples"][0]["samples"]), (&100.into(), &75.into()));
    for ending in [".ncu-rep", "raw.csv", "source.csv", "ncu.log"] {
        let files = profile["files"].as_array().unwrap();
        let file = files.iter().filter_map(|f| f.as_str()).find(|f| f.ends_with(ending)).expect(ending);
        assert!(place.path().join("r").join(file).exists(), "{file}");
    }
    let page = fs::read_to_string(place.path().join("r/report.html")).unwrap();
    for words in ["What bounds it", "62.53", "compute", "The lines that were executed most", "tensor cores are busy"] {
        assert!(page.contains(words), "{words}");
    }
}

#[cfg(unix)]
#[test]
fn where_counters_are_denied_the_rest_is_there() {
    let denied = "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters on the target device 0.\n";
    let place = with_ncu(Some(denied));
    let (code, record) = profile(&place);
    let (result, profile) = (&record["results"][0], &record["results"][0]["profile"]);
    assert_eq!((code, &result["gates"]["profile"]), (0, &"unavailable".into()), "{profile:#}");
    assert_eq!(profile["unavailable"]["code"], "counters-denied");
    assert!(profile["unavailable"]["next"].as_str().unwrap().contains("NVreg_RestrictProfilingToAdminUsers=0"));
    assert!(profile["entries"][0]["occupancy"]["warps"].as_u64().unwrap() > 0);
    assert_eq!(profile["bound"]["source"], "executed_work");
    let execution = &result["execution"];
    assert!(
        execution["lines"].as_array().unwrap().len() > 5
            && execution["traffic"]["shared_wavefronts"].as_u64() > Some(0)
    );
    assert!(profile["files"][0].as_str().unwrap().ends_with("ncu.log"), "what ncu said is kept");
}

/// The launcher is this machine, with a folder of tools on its PATH that ours has not.
#[cfg(unix)]
fn there(place: &Place) -> String {
    format!("env PATH={}:/usr/local/bin:/usr/bin:/bin", place.path().display())
}

#[cfg(unix)]
#[test]
fn counters_are_taken_behind_a_launcher_and_come_back() {
    let arguments = ["profile", "level_07", "--shapes", "tiny", "--mask", "none", "--fake-device"];
    let place = with_ncu(None);
    let way = there(&place);
    let (code, record) = place.json(&[&arguments[..], &["--on", &way, "--out", "r"]].concat());
    let (result, profile) = (&record["results"][0], &record["results"][0]["profile"]);
    assert_eq!((code, &result["gates"]["profile"]), (0, &"passed".into()), "{profile:#}");
    let counters = profile["counters"][0]["counters"].as_array().unwrap();
    assert!(counters.iter().any(|c| c["name"] == "tensor_active" && c["value"] == 62.53), "{counters:?}");
    assert_eq!((&profile["samples"][0]["line"], &profile["samples"][0]["samples"]), (&100.into(), &75.into()));
    for ending in [".ncu-rep", "raw.csv", "source.csv", "ncu.log"] {
        let files = profile["files"].as_array().unwrap();
        let file = files.iter().filter_map(|f| f.as_str()).find(|f| f.ends_with(ending)).expect(ending);
        assert!(place.path().join("r").join(file).exists(), "{file}");
    }
    let left = fs::read_dir(place.path().join("cache/warpsmith/tools")).unwrap().count();
    assert_eq!(left, 0, "nothing stays on the other machine");

    // Each way of being denied keeps its remedy.
    let denied = "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters on the target device 0.\n";
    let place = with_ncu(Some(denied));
    let way = there(&place);
    for (more, code, next) in [
        (&["--on", &way][..], "counters-denied", "NVreg_RestrictProfilingToAdminUsers=0"),
        (&["--on", &way, "--ncu", "nowhere"], "profiler-missing", "--ncu"),
        (&["--on", "false"], "launcher-failed", ""),
    ] {
        let (exit, record) = place.json(&[&arguments[..], more].concat());
        let unavailable = &record["results"][0]["profile"]["unavailable"];
        assert_eq!((exit, unavailable["code"].as_str()), (0, Some(code)), "{more:?}: {unavailable}");
        let told = unavailable["next"].as_str().unwrap();
        assert!(told.contains(next) && !told.is_empty(), "{more:?}: {told}");
        assert_eq!(record["results"][0]["profile"]["bound"]["source"], "executed_work", "the rest is there");
    }
}

#[cfg(unix)]
#[test]
fn sanitizers_tools_are_run_behind_a_launcher_and_their_logs_come_back() {
    let place = Place::new();
    let script = common::root().join("crates/cli/tests/sanitizer.sh");
    std::os::unix::fs::symlink(script, place.path().join("compute-sanitizer")).unwrap();
    let arguments =
        ["check", "level_07", "--shapes", "tiny", "--mask", "none", "--fake-device", "--fresh", "--sanitize"];
    let way = there(&place);
    let (code, record) = place.json(&[&arguments[..], &["--on", &way, "--out", "clean"]].concat());
    assert_eq!((code, &record["results"][0]["verdict"]), (0, &"passed".into()), "{record:#}");
    for tool in ["memcheck", "racecheck", "initcheck", "synccheck"] {
        let log = place.path().join(format!("clean/candidates/level_07/sanitizer/1-{tool}.log"));
        assert!(fs::read_to_string(&log).is_ok_and(|t| t.contains("SUMMARY")), "{}", log.display());
    }
    let found = "========= Invalid __global__ read of size 4 bytes\n=========     at k+0x90 in level_07.cu:5\n";
    fs::write(place.path().join("memcheck.said"), found).unwrap();
    let (code, record) = place.json(&[&arguments[..], &["--on", &way, "--out", "found"]].concat());
    let finding = &record["results"][0]["finding"];
    assert_eq!((code, finding["code"].as_str(), &finding["line"]), (1, Some("sanitizer-finding"), &5.into()));
    // Where there is none, the result says so and stands. A toolkit's own folder is looked into whatever the PATH says.
    if ["bin", "compute-sanitizer"]
        .iter()
        .any(|f| fs::exists(format!("/usr/local/cuda/{f}/compute-sanitizer")).unwrap_or(false))
    {
        return;
    }
    let (code, record) = place.json(&[&arguments[..], &["--on", "env PATH=/usr/bin:/bin", "--out", "none"]].concat());
    let note = record["results"][0]["findings"][0].clone();
    assert_eq!((code, note["code"].as_str()), (0, Some("sanitizer-missing")), "{record:#}");
    assert!(note["message"].as_str().unwrap().contains("there"), "{note}");
}

#[test]
fn a_report_that_somebody_made_is_read() {
    let place = Place::new();
    fs::write(place.path().join("theirs.csv"), raw()).unwrap();
    fs::write(place.path().join("other.csv"), "a,b\n1,2\n").unwrap();
    let (code, document) = place.json(&["profile", "--import", "theirs.csv"]);
    assert_eq!(
        (code, &document["schema"], &document["bound"]["word"]),
        (0, &"warpsmith.profile/1".into(), &"compute".into())
    );
    let told = text(&place.run(&["profile", "--import", "theirs.csv"]));
    assert!(told.contains("62.53") && told.contains("above 50: met") && !told.contains("9999"), "{told}");
    let both = ["profile", "level_07", "--shapes", "tiny", "--mask", "none", "--import", "theirs.csv", "--out", "r"];
    let (code, record) = place.json(&both);
    assert_eq!((code, &record["results"][0]["gates"]["profile"]), (0, &"passed".into()));
    for (arguments, words) in [
        (&["profile", "--import", "other.csv"][..], "no raw page"),
        (&["profile", "--import", "nowhere.ncu-rep"], "nowhere.ncu-rep"),
        (&["profile"], "which kernel"),
        (&["profile", "level_07", "--rules", "other.csv"], "other.csv"),
    ] {
        let output = place.run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", text(&output));
        assert!(text(&output).contains(words), "{arguments:?}: {}", text(&output));
    }
}

#[test]
fn without_ncu_the_gate_says_so_and_nothing_fails() {
    let place = Place::new();
    let arguments = [
        "profile",
        "level_03",
        "--shapes",
        "tiny",
        "--mask",
        "none",
        "--fake-device",
        "--ncu",
        "nowhere",
        "--out",
        "r",
    ];
    let (code, record) = place.json(&arguments);
    let result = &record["results"][0];
    assert_eq!((code, &result["verdict"], &result["gates"]["profile"]), (0, &"passed".into(), &"unavailable".into()));
    assert_eq!(result["profile"]["unavailable"]["code"], "profiler-missing");
    let levers: Vec<&str> =
        result["profile"]["advice"].as_array().unwrap().iter().filter_map(|a| a["lever"].as_str()).collect();
    assert!(levers.contains(&"scores_in_registers"), "{levers:?}");
}

#[test]
fn a_doctor_says_what_is_missing_and_what_to_do() {
    let place = Place::new();
    let (code, document) = place.json(&["doctor"]);
    assert_eq!(code, 0);
    let items = document["doctor"].as_array().unwrap();
    for name in ["GPU", "counters", "Nsight Compute", "compute-sanitizer", "baselines"] {
        let item = items.iter().find(|i| i["name"] == name).unwrap_or_else(|| panic!("{name}"));
        assert!(item["works"] == true || item["next"].as_str().is_some_and(|n| !n.is_empty()), "{item}");
    }
}
