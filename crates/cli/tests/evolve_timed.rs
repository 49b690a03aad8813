//! Loops that are ranked by times, with the backend that replays them from a file, and behind workers of a device that is none: what is kept,
//! what is measured again, what a lost worker costs, and searches over exhaustive times.

mod common;
#[path = "../../xtask/src/times.rs"]
mod times;

use common::{Place, text};
use serde_json::Value;
use std::fs;

fn summary(place: &Place, run: &str) -> Value {
    serde_json::from_str(&fs::read_to_string(place.path().join(run).join("summary.json")).unwrap()).unwrap()
}

fn events(place: &Place, run: &str) -> Vec<Value> {
    let journal = fs::read_to_string(place.path().join(run).join("journal.jsonl")).unwrap();
    journal.lines().map(|l| serde_json::from_str(l).unwrap()).collect()
}

/// Two levers are free, the others are kept: nine settings, all in the layer.
const KEPT: [&str; 6] = ["--set", "STAGES=2", "--set", "SWIZZLE=1", "--set", "Q_REGISTERS=1"];

/// The fastest has BLOCK_M = 128; with BLOCK_N = 128 outputs of timed calls are not those that were judged, though it claims to be faster still.
const TIMES: [times::Row; 5] = [
    ("*", "BLOCK_N = 128", "us = 2.0\nwrong_from = 3"),
    ("*", "BLOCK_M = 128, BLOCK_N = 32", "us = 6.0"),
    ("*", "BLOCK_M = 128", "us = 7.0"),
    ("*", "BLOCK_M = 32", "us = 12.0"),
    ("*", "", "us = 10.0"),
];

fn evolve<'a>(more: &[&'a str]) -> Vec<&'a str> {
    let common = ["evolve", "level_07", "--shapes", "tiny", "--backend", "fake:times.toml", "--seed", "2"];
    [&common[..], &KEPT, more].concat()
}

#[test]
fn times_take_the_estimates_place_and_a_cheat_is_not_kept() {
    let place = Place::new();
    fs::write(place.path().join("times.toml"), times::file(&TIMES)).unwrap();
    let output = place.run(&evolve(&["--budget", "9", "--out", "r"]));
    let said = text(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("are no times") && said.contains("measured once more"), "{said}");
    let record = summary(&place, "r");
    let best = &record["best"];
    assert_eq!(
        (record["backend"].as_str(), record["verdicts"]["rejected"].as_u64()),
        (Some("fake"), Some(3)),
        "{record}"
    );
    assert_eq!(
        (best["levers"]["BLOCK_M"].as_i64(), best["levers"]["BLOCK_N"].as_i64()),
        (Some(128), Some(32)),
        "{best}"
    );
    assert!(best["time_us"].as_f64().is_some_and(|us| (us - 6.0).abs() < 0.1), "{best}");
    assert!(best.get("estimate").is_none() && record["start"].get("estimate").is_none(), "{record}");
    // The gain is a ratio of times from common rounds, with its interval.
    let (gain, interval) = (best["gain"].as_f64().unwrap(), &best["gain_interval"]);
    assert_eq!(best["beside"][0]["of"], 0);
    assert_eq!(best["beside"][0]["gain"]["ratio"].as_f64(), Some(gain));
    assert!(interval[0].as_f64() <= Some(gain) && interval[1].as_f64() >= Some(gain) && gain > 1.5, "{best}");
    assert!(record["spent"]["gpu_seconds"].as_f64() > Some(0.0), "{record}");
    for id in record["archive"].as_array().unwrap() {
        let judged = events(&place, "r").into_iter().find(|e| e["event"] == "evaluated" && e["id"] == *id).unwrap();
        assert_eq!(judged["judged"]["verdict"], "passed");
    }
    let page = fs::read_to_string(place.path().join("r/report.html")).unwrap();
    assert!(page.contains("are no times") && page.contains("in common rounds"));
    assert_eq!(place.run(&["evolve", "--rerun", "r"]).status.code(), Some(0));
    // Work beside each other changes nothing but how long it takes.
    assert_eq!(
        place.run(&evolve(&["--budget", "9", "--workers", "3", "--batch", "2", "--out", "w"])).status.code(),
        Some(0)
    );
    for field in ["best", "evaluations", "verdicts", "archive", "start"] {
        assert_eq!(summary(&place, "w")[field], record[field], "{field}");
    }
}

#[test]
fn a_loop_with_times_goes_on_from_its_own_copy_of_them() {
    let place = Place::new();
    fs::write(place.path().join("times.toml"), times::file(&TIMES)).unwrap();
    assert_eq!(place.run(&evolve(&["--budget", "9", "--out", "whole"])).status.code(), Some(0));
    let journal = fs::read(place.path().join("whole/journal.jsonl")).unwrap();
    fs::write(place.path().join("times.toml"), "device = 'Another'\n").unwrap();
    let lines: Vec<usize> = journal.iter().enumerate().filter(|(_, b)| **b == b'\n').map(|(i, _)| i + 1).collect();
    // Cut before the end, where the winner was asked to be measured again, and in the middle.
    for (name, end) in [("late", lines[lines.len() - 3]), ("middle", lines[lines.len() / 2])] {
        let folder = place.path().join(name);
        fs::create_dir_all(folder.join("texts")).unwrap();
        for file in fs::read_dir(place.path().join("whole/texts")).unwrap() {
            let file = file.unwrap();
            fs::copy(file.path(), folder.join("texts").join(file.file_name())).unwrap();
        }
        fs::write(folder.join("journal.jsonl"), &journal[..end]).unwrap();
        let resumed = place.run(&["evolve", "--resume", name]);
        assert_eq!(resumed.status.code(), Some(0), "{}", text(&resumed));
        for field in ["best", "evaluations", "verdicts", "archive"] {
            assert_eq!(summary(&place, name)[field], summary(&place, "whole")[field], "{field} of {name}");
        }
    }
}

#[test]
fn exhaustive_times_of_a_run_are_searched_and_replayed() {
    let place = Place::new();
    fs::write(place.path().join("times.toml"), times::file(&TIMES).replace("wrong_from = 3\n", "")).unwrap();
    let sweep = ["bench", "level_07", "--shapes", "tiny", "--sweep", "--baselines", "none"];
    let quick =
        ["--methods", "graph_cold", "--iters", "20", "--stability", "10", "--backend", "fake:times.toml", "--out", "s"];
    let output = place.run(&[&sweep[..], &KEPT, &quick].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let (_, found) = place.json(&["evolve", "--rehearse", "s"]);
    assert_eq!(
        (found["settings"].as_u64(), found["searches"].as_array().map(Vec::len)),
        (Some(9), Some(15)),
        "{found}"
    );
    let (code, found) = place.json(&["evolve", "--correlate", "s", "--estimate-for", "L4"]);
    assert_eq!((code, found["rows"].as_array().map(Vec::len)), (0, Some(18)), "{found}");
    let rho = found["agreement"]["tiny"]["spearman"].as_f64().unwrap();
    assert!((-1.0..=1.0).contains(&rho), "{found}");
    // The run's times drive a loop.
    let output = place.run(
        &[
            &["evolve", "level_07", "--shapes", "tiny", "--backend", "fake:s/summary.json", "--budget", "4"][..],
            &KEPT,
            &["--start", "BLOCK_M=32,BLOCK_N=64", "--out", "r"],
        ]
        .concat(),
    );
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let start = summary(&place, "r")["start"].clone();
    assert_eq!(start["levers"]["BLOCK_M"], 32);
    assert!(start["time_us"].as_f64().is_some_and(|us| (us - 12.0).abs() < 0.3), "{start}");
    // What the run did not measure has no time: it is not made up.
    let others =
        ["evolve", "level_00", "--shapes", "tiny", "--backend", "fake:s/summary.json", "--budget", "1", "--out", "o"];
    place.run(&others);
    let start = summary(&place, "o")["start"].clone();
    assert!(start.get("time_us").is_none() && start["verdict"] == "passed", "{start}");
}

/// All 108 settings of level_07 as an H200 timed them: each variant, with each of five seeds, finds one within 3% of the best from the slowest,
/// with a quarter of the evaluations.
#[test]
fn the_published_times_are_searched_with_a_quarter_of_the_evaluations() {
    let place = Place::new();
    let times = common::root().join("benches/results/2026-11-22-h200-level-07-sweep.json").display().to_string();
    let (code, found) = place.json(&["evolve", "--rehearse", &times]);
    assert_eq!((code, found["settings"].as_u64(), found["budget"].as_u64()), (0, Some(108), Some(27)), "{found}");
    for search in found["searches"].as_array().unwrap() {
        assert!(search["best_by_optimum"].as_f64().unwrap() <= 1.03, "{search}");
        assert!(search["evaluations"].as_u64().unwrap() <= 27, "{search}");
    }
}

/// A task of one's own whose criterion is about a peer: the loop ends when the winner holds it in common rounds, here and gone on with.
#[test]
fn a_criterion_about_a_peer_ends_the_loop() {
    let place = Place::new();
    let folder = place.path().join("mine/fp8_sdpa");
    fs::create_dir_all(&folder).unwrap();
    let task = fs::read_to_string(common::root().join("tasks/fp8_sdpa/task.toml")).unwrap();
    for (target, row, status) in
        [("1.3", "us = 9.5", "held"), ("9.0", "us = 9.5", "missed"), ("1.3", "missing = \"not here\"", "not_run")]
    {
        let criteria = format!("\n[accept]\ncriteria = [\"speedup(best_peer) >= {target}\", \"registers <= 255\"]\n");
        fs::write(folder.join("task.toml"), task.clone() + &criteria).unwrap();
        let rows = [&[("sdpa:auto", "", row)], &TIMES[..]].concat();
        fs::write(place.path().join("times.toml"), times::file(&rows)).unwrap();
        let task = "mine/fp8_sdpa";
        let arguments = ["evolve", "level_07", "--task", task, "--shapes", "tiny", "--backend", "fake:times.toml"];
        let name = format!("r-{status}");
        let more = ["--seed", "2", "--budget", "9", "--until-accepted", "--out", &name];
        let output = place.run(&[&arguments[..], &KEPT, &more].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
        let record = summary(&place, &name);
        let finished = record["finished"].as_str().unwrap();
        assert_eq!(finished.contains("holds all criteria"), status == "held", "{finished}");
        assert_eq!(text(&output).contains("not here"), status == "not_run", "{}", text(&output));
        assert_eq!(record["accept"][0]["status"], status, "{record}");
        assert_eq!(place.run(&["evolve", "--rerun", &name]).status.code(), Some(0));
        // Cut after the baselines were asked for: they are timed again, and all comes out the same, the task's files gone.
        fs::remove_file(folder.join("task.toml")).unwrap();
        let journal = fs::read_to_string(place.path().join(&name).join("journal.jsonl")).unwrap();
        let asked = journal.lines().position(|l| l.contains("\"baseline\"")).unwrap();
        let cut: String = journal.lines().take(asked + 1).map(|l| l.to_string() + "\n").collect();
        fs::write(place.path().join(&name).join("journal.jsonl"), cut).unwrap();
        let resumed = place.run(&["evolve", "--resume", &name]);
        assert_eq!(resumed.status.code(), Some(0), "{}", text(&resumed));
        for field in ["best", "evaluations", "accept", "archive", "finished"] {
            assert_eq!(summary(&place, &name)[field], record[field], "{field} of {name}");
        }
    }
}

/// Which of these ends how; where it passes on the values, what goes wrong when it is timed.
const MIXED: [(&str, &str, &str); 9] = [
    ("right/noinline_calls", "us = 8.0", "passed"),
    ("wrong/off_by_one_key", "us = 1.0", "incorrect"),
    ("wrong/endless", "us = 1.0", "timed_out"),
    ("wrong/null_pointer", "us = 1.0", "faulted"),
    ("wrong/writes_scale", "us = 1.0", "faulted"),
    ("right/template_instance", "us = 1.0\nfault_at = 5", "faulted"),
    ("right/two_pass_atomics", "us = 1.0\nhang = true", "timed_out"),
    ("right/pipeline", "us = 1.0\nchanges_input = true", "rejected"),
    ("right/persistent", "us = 9.0", "passed"),
];

#[test]
fn of_good_wrong_crashing_hanging_and_cheating_kernels_only_the_good_are_kept() {
    let place = Place::new();
    let file =
        |name: &str| common::root().join("tests/candidates").join(name).with_extension("cu").display().to_string();
    let rows = MIXED.map(|(name, row, _)| (name.split('/').nth(1).unwrap(), "", row));
    let lines: String =
        MIXED.iter().map(|(name, ..)| format!("{}\n", serde_json::json!({ "candidate": file(name) }))).collect();
    fs::write(place.path().join("times.toml"), times::file(&rows)).unwrap();
    fs::write(place.path().join("p.jsonl"), lines).unwrap();
    let start = file("right/local_array");
    let arguments =
        ["evolve", &start, "--shapes", "tiny", "--backend", "fake:times.toml", "--proposer", "replay:p.jsonl"];
    let output = place.run(&[&arguments[..], &["--population", "elite:20", "--batch", "3", "--out", "r"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let verdicts: Vec<String> = events(&place, "r")
        .iter()
        .filter(|e| e["event"] == "evaluated")
        .map(|e| e["judged"]["verdict"].as_str().unwrap().to_string())
        .collect();
    let wanted: Vec<&str> = std::iter::once("passed").chain(MIXED.iter().map(|(_, _, v)| *v)).collect();
    assert_eq!(verdicts, wanted);
    let record = summary(&place, "r");
    let kept: Vec<u64> = record["archive"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap()).collect();
    assert_eq!(kept, [1, 9, 0], "{record}");
    assert!(record["best"]["candidate"].as_str().unwrap().contains("noinline_calls"));
}

#[cfg(unix)]
#[test]
fn a_lost_worker_costs_its_attempt_and_nothing_else() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    // The second connection is cut while it works; the others hold.
    let (count, way) = (place.path().join("count"), place.path().join("launcher"));
    let script = format!(
        "#!/bin/sh\nn=$(cat '{0}' 2>/dev/null || echo 0); echo $((n + 1)) > '{0}'\nif [ $n = 0 ]; then \"$@\" | {{ dd bs=1 count=40000 2>/dev/null; kill -9 0; }}; else exec \"$@\"; fi\n",
        count.display()
    );
    fs::write(&way, script).unwrap();
    fs::set_permissions(&way, fs::Permissions::from_mode(0o755)).unwrap();
    let way = way.display().to_string();
    // Values come from a device that is none, behind the launcher; times from the file.
    fs::write(place.path().join("times.toml"), times::file(&TIMES)).unwrap();
    let output = place.run(&evolve(&["--on", &way, "--budget", "2", "--start", "BLOCK_M=32", "--out", "r"]));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let record = summary(&place, "r");
    assert_eq!((record["evaluations"].as_u64(), record["verdicts"]["passed"].as_u64()), (Some(2), Some(2)), "{record}");
    assert!(fs::read_to_string(&count).unwrap().trim().parse::<u64>().unwrap() >= 2, "no connection was lost");
    assert_eq!(record["backend"], "fake");
}

/// On a device: a whole loop with times, ready for one.
#[test]
#[ignore = "needs a CUDA device"]
fn on_a_gpu_a_loop_is_ranked_by_times() {
    let place = Place::new();
    let arguments = [
        "evolve",
        "level_07",
        "--backend",
        "gpu",
        "--shapes",
        "tiny,mission",
        "--start",
        "random",
        "--budget",
        "12",
        "--out",
        "r",
    ];
    let output = place.run(&arguments);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let record = summary(&place, "r");
    assert_eq!(record["backend"], "gpu");
    assert!(record["best"]["time_us"].as_f64() > Some(0.0) && record["best"].get("estimate").is_none(), "{record}");
    assert!(record["best"]["beside"].is_array() && record["spent"]["gpu_seconds"].as_f64() > Some(0.0), "{record}");
}

/// What `doctor --measure` kept of the device that times is part of the first event, and of prompts.
#[test]
fn prompts_hold_what_was_measured_of_the_device() {
    let place = Place::new();
    fs::write(place.path().join("times.toml"), times::file(&TIMES)).unwrap();
    let kept = place.path().join("cache/warpsmith/ceilings");
    fs::create_dir_all(&kept).unwrap();
    let record = serde_json::json!({"device": "Made-up GPU", "source": "measured", "dram_gb": 4123.0, "exp_tera": 4.2});
    fs::write(kept.join("Made-up_GPU.json"), record.to_string()).unwrap();
    place.run(&evolve(&["--proposer", "agent:cat >prompt.md; false", "--budget", "calls=1", "--out", "r"]));
    let prompt = fs::read_to_string(place.path().join("prompt.md")).unwrap();
    assert!(prompt.contains("most that it gives: DRAM 4123 GB/s, exponentials 4.20 10^12/s"), "{prompt}");
    fs::remove_dir_all(&kept).unwrap();
    assert_eq!(place.run(&["evolve", "--rerun", "r"]).status.code(), Some(0), "the prompt needs nothing from outside");
}
