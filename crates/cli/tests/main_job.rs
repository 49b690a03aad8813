//! The main job as a stranger runs it: no toolkit, no cache, no network, in an empty folder.

mod common;

use common::{Place, text};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;

#[test]
fn the_ladder_passes_and_the_example_that_must_fail_fails() {
    let place = Place::new();
    let output = place.run(&["--out", "run"]);
    let said = text(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("not run on a GPU"), "{said}");
    let record: Value =
        serde_json::from_str(&fs::read_to_string(place.path().join("run/summary.json")).unwrap()).unwrap();
    let mut seen = BTreeSet::new();
    for result in record["results"].as_array().unwrap() {
        assert_eq!(result["verdict"], "passed", "{}: {}", result["candidate"], result["finding"]);
        assert_eq!(result["backend"], "ptx_machine");
        assert_eq!(result["gates"]["performance"], "not_run");
        assert!(result.get("measurement").is_none(), "a time without a GPU");
        let run = &result["execution"];
        assert!(run["covered_instructions"].as_u64() > Some(0), "a pass of a kernel that executed nothing");
        seen.insert((
            result["candidate"].as_str().unwrap().to_string(),
            result["shape"].as_str().unwrap().to_string(),
            result["causal"].as_bool().unwrap(),
        ));
    }
    for level in 0..=8 {
        for shape in ["tiny", "mission"] {
            for causal in [false, true] {
                assert!(
                    seen.iter().any(|(c, s, m)| c.contains(&format!("level_0{level}")) && s == shape && *m == causal),
                    "level_0{level} {shape} causal {causal} is missing"
                );
            }
        }
    }
    let example = &record["examples"][0];
    assert_eq!(example["finding"]["kind"], "uninitialized_read", "{example}");
    assert!(fs::read_to_string(place.path().join("run/report.md")).unwrap().contains("not run on a GPU"));
    assert!(place.path().join("run/journal.jsonl").exists());
}
