//! `warpsmith evolve` as a user runs it, without a GPU, a toolkit or a network: the lever space of the ladder's kernel is in the layer.

mod common;

use common::{Place, text};
use serde_json::Value;
use std::fs;

fn summary(place: &Place, run: &str) -> Value {
    serde_json::from_str(&fs::read_to_string(place.path().join(run).join("summary.json")).unwrap()).unwrap()
}

#[test]
fn from_a_corner_it_finds_something_better_that_passes() {
    let place = Place::new();
    let output = place.run(&[
        "evolve",
        "--backend",
        "cpu",
        "--shapes",
        "tiny",
        "--start",
        "random",
        "--seed",
        "3",
        "--budget",
        "12",
        "--out",
        "r",
    ]);
    let said = text(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("an estimate") && said.contains("no time") && said.contains("not run on a GPU"), "{said}");
    let record = summary(&place, "r");
    assert_eq!(record["schema"], "warpsmith.evolve/1");
    assert_eq!(record["evaluations"], 12);
    assert_eq!(record["verdicts"]["passed"], 12);
    let best = &record["best"];
    assert!(best["gain"].as_f64() > Some(1.0), "{best}");
    assert_eq!(best["estimate"]["unit"], "model_cycles");
    assert!(best.get("time_us").is_none() && record["start"].get("time_us").is_none());
    let mut check =
        vec!["check".to_string(), "level_07".into(), "--shapes".into(), "tiny".into(), "--out".into(), "c".into()];
    for (name, value) in best["levers"].as_object().unwrap() {
        check.extend(["--set".into(), format!("{name}={value}")]);
    }
    let check: Vec<&str> = check.iter().map(String::as_str).collect();
    assert_eq!(place.run(&check).status.code(), Some(0), "the best does not pass when it is checked again");
}

#[test]
fn a_loop_that_was_cut_off_goes_on_to_the_same_end() {
    let place = Place::new();
    let base = ["evolve", "--backend", "cpu", "--shapes", "tiny", "--variant", "full", "--seed", "7", "--budget", "8"];
    let whole = place.run(&[&base[..], &["--out", "whole"]].concat());
    assert_eq!(whole.status.code(), Some(0), "{}", text(&whole));
    let journal = fs::read(place.path().join("whole/journal.jsonl")).unwrap();
    // What a kill leaves: the events until then, the last line torn.
    for share in [5, 40, 75, 99] {
        let name = format!("cut{share}");
        let folder = place.path().join(&name);
        fs::create_dir_all(folder.join("texts")).unwrap();
        let first = journal.iter().position(|b| *b == b'\n').unwrap() + 1;
        let end = first + (journal.len() - first) * share / 100;
        fs::write(folder.join("journal.jsonl"), &journal[..end]).unwrap();
        let resumed = place.run(&["evolve", "--resume", &name]);
        assert_eq!(resumed.status.code(), Some(0), "{}", text(&resumed));
        for field in ["best", "evaluations", "verdicts", "archive", "start", "finished"] {
            assert_eq!(summary(&place, &name)[field], summary(&place, "whole")[field], "{field} of {name}");
        }
        let rerun = place.run(&["evolve", "--rerun", &name]);
        assert_eq!(rerun.status.code(), Some(0), "{}", text(&rerun));
    }
}

#[test]
fn a_loop_that_another_process_writes_is_left_alone() {
    let place = Place::new();
    let begin = ["evolve", "--backend", "cpu", "--shapes", "tiny", "--budget", "2", "--out", "r"];
    assert_eq!(place.run(&begin).status.code(), Some(0));
    let journal = place.path().join("r/journal.jsonl");
    let before = fs::read(&journal).unwrap();
    let writer = fs::OpenOptions::new().append(true).open(&journal).unwrap();
    writer.lock().unwrap();
    let output = place.run(&["evolve", "--resume", "r"]);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output));
    assert!(text(&output).contains("run-in-use"), "{}", text(&output));
    // Reading is free.
    assert_eq!(place.run(&["evolve", "--rerun", "r"]).status.code(), Some(0));
    drop(writer);
    assert_eq!(place.run(&["evolve", "--resume", "r"]).status.code(), Some(0));
    assert_eq!(fs::read(&journal).unwrap(), before);
}

#[test]
fn a_kernel_without_levers_says_who_could_change_it() {
    let place = Place::new();
    let file = common::root().join("tests/candidates/right/local_array.cu").display().to_string();
    let output = place.run(&["evolve", "--backend", "cpu", &file, "--shapes", "tiny", "--out", "r"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert!(text(&output).contains("declares no levers") && text(&output).contains("agent:"), "{}", text(&output));
}

#[test]
fn a_replay_keeps_only_what_passes() {
    let place = Place::new();
    let root = common::root();
    let line = |name: &str| {
        serde_json::json!({ "candidate": root.join("tests/candidates").join(name).display().to_string() }).to_string()
    };
    let lines = [
        "right/local_array.cu",
        "wrong/off_by_one_key.cu",
        "wrong/endless.cu",
        "wrong/writes_scale.cu",
        "right/local_array.cu",
    ];
    let text_of_lines: Vec<String> = lines.iter().map(|l| line(l)).collect();
    fs::write(place.path().join("p.jsonl"), text_of_lines.join("\n")).unwrap();
    let output = place.run(&[
        "evolve",
        "--backend",
        "cpu",
        "--shapes",
        "tiny",
        "--proposer",
        "replay:p.jsonl",
        "--population",
        "elite:5",
        "--out",
        "r",
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let record = summary(&place, "r");
    assert_eq!((record["evaluations"].as_u64(), record["proposals"].as_u64()), (Some(5), Some(5)));
    assert_eq!(record["verdicts"]["passed"], 2, "{record}");
    assert_eq!(record["verdicts"]["timed_out"], 1, "{record}");
    for id in record["archive"].as_array().unwrap() {
        assert!([0, 1].contains(&id.as_u64().unwrap()), "{record}");
    }
}

#[test]
fn wrong_usage_says_what_to_write() {
    let place = Place::new();
    for (arguments, says) in [
        (&["evolve", "--backend", "cpu", "--budget", "many"][..], "evaluations=40"),
        (&["evolve", "--backend", "cpu", "--proposer", "oracle"], "replay:FILE"),
        (&["evolve", "--backend", "cpu", "--proposer", "replay:none.jsonl"], "none.jsonl"),
        (&["evolve", "--backend", "cpu", "--estimate-for", "abacus"], "H100"),
        (&["evolve", "--backend", "cpu", "--population", "elite:0"], "from 1 to 1000"),
        (&["evolve", "--resume", "nowhere"], "nowhere"),
        (&["evolve", "--backend", "cpu", "none.cu"], "none.cu"),
        (&["evolve", "--backend", "cpu", "level_07", "--task", "fp16_sdpa"], "fp16_sdpa"),
    ] {
        let output = place.run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", text(&output));
        assert!(text(&output).contains(says), "{arguments:?}: {}", text(&output));
    }
}
