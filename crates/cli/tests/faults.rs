//! Each kernel of `tests/faults` is found faulty at a line that it marks, and its right twin passes: without a toolkit and a GPU.

mod common;

use common::{Place, root};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn sources(folder: &str) -> Vec<PathBuf> {
    let mut found: Vec<_> = fs::read_dir(root().join(folder))
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| p.extension().is_some_and(|e| e == "cu"))
        .collect();
    found.sort();
    found
}

/// `(kind, line)` of every `// fault: KIND`.
fn marks(file: &Path) -> BTreeSet<(String, u64)> {
    let text = fs::read_to_string(file).unwrap();
    text.lines()
        .enumerate()
        .filter_map(|(i, l)| Some((l.split("// fault: ").nth(1)?.split_whitespace().next()?.to_string(), i as u64 + 1)))
        .collect()
}

fn verdicts(document: &Value) -> BTreeSet<String> {
    document["results"].as_array().unwrap().iter().map(|r| r["verdict"].as_str().unwrap().to_string()).collect()
}

#[test]
fn each_fault_is_found_at_the_line_that_is_marked() {
    let files = sources("tests/faults");
    assert!(files.len() >= 4, "{files:?}");
    for file in files {
        let (code, document) = Place::new().json(&["check", file.to_str().unwrap(), "--backend", "cpu"]);
        assert_eq!(code, 1, "{file:?}: {document}");
        let stem = file.file_stem().unwrap().to_str().unwrap();
        if stem == "wmma_local" {
            assert_eq!(verdicts(&document), BTreeSet::from(["compile_failed".into()]));
            assert!(document["results"][0]["finding"]["message"].as_str().unwrap().contains("local memory"));
            continue;
        }
        let marked = marks(&file);
        assert!(!marked.is_empty(), "{stem} marks no line");
        assert_eq!(verdicts(&document), BTreeSet::from(["faulted".into()]), "{stem}");
        for result in document["results"].as_array().unwrap() {
            let finding = &result["finding"];
            let found = (finding["kind"].as_str().unwrap().to_string(), finding["line"].as_u64().unwrap_or(0));
            assert!(marked.contains(&found), "{stem}: found {found:?}, marked {marked:?}: {}", finding["message"]);
        }
    }
}

#[test]
fn each_right_twin_passes() {
    let files = sources("tests/faults/right");
    assert!(files.len() >= 3, "{files:?}");
    for file in files {
        let (code, document) = Place::new().json(&["check", file.to_str().unwrap(), "--backend", "cpu"]);
        assert_eq!(
            (code, verdicts(&document)),
            (0, BTreeSet::from(["passed".into()])),
            "{file:?}: {}",
            document["results"][0]["finding"]
        );
    }
}
