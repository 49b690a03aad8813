//! Right and wrong kernels in many styles (`tests/candidates`): the right ones pass, the wrong ones end in the verdict that they name.

mod common;

use common::{Place, root};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

/// S 77 has a tail in every tile size; with two heads a mistaken head shows.
const SHAPES: &str = "tiny,1x2x77x64";

fn sources(kind: &str) -> Vec<PathBuf> {
    let folder = root().join("tests/candidates").join(kind);
    let mut found: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| p.extension().is_some_and(|e| e == "cu"))
        .collect();
    found.sort();
    found
}

fn verdicts(document: &Value, shape: Option<&str>) -> BTreeSet<String> {
    let results = document["results"].as_array().unwrap_or_else(|| panic!("{document}"));
    let chosen = results.iter().filter(|r| shape.is_none_or(|s| r["shape"] == s));
    chosen.map(|r| r["verdict"].as_str().unwrap().to_string()).collect()
}

#[test]
fn right_kernels_pass() {
    let files = sources("right");
    assert!(files.len() >= 12);
    for file in files {
        let (code, document) =
            Place::new().json(&["check", file.to_str().unwrap(), "--backend", "cpu", "--shapes", SHAPES]);
        let finding = &document["results"].as_array().and_then(|r| r.iter().find(|r| r["verdict"] != "passed"));
        assert_eq!((code, verdicts(&document, None)), (0, BTreeSet::from(["passed".into()])), "{file:?}: {finding:?}");
    }
}

#[test]
fn wrong_kernels_end_in_the_verdict_that_they_name() {
    let files = sources("wrong");
    assert!(files.len() >= 12);
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let expected = text
            .lines()
            .find_map(|l| l.strip_prefix("// expect: "))
            .unwrap_or_else(|| panic!("{file:?} expects nothing"));
        let (code, document) =
            Place::new().json(&["check", file.to_str().unwrap(), "--backend", "cpu", "--shapes", SHAPES]);
        // Some need more keys than tiny has.
        let found = verdicts(&document, Some("1x2x77x64"));
        assert_eq!(
            (code, found),
            (1, BTreeSet::from([expected.to_string()])),
            "{file:?}: {}",
            document["results"][0]["finding"]
        );
    }
}
