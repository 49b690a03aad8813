//! What the binary carries: the built-in kernels and their headers, the fault kernels, the tasks, the pages of
//! `warpsmith explain`, the program that holds the baselines, and the committed layer of artifacts. So the main job needs no file beside the binary.
//!
//! Nothing here is compiled, executed or judged. Paths are relative to the repository's root, with `/`.

use include_dir::{Dir, DirEntry, include_dir};
use std::collections::BTreeMap;
use warpsmith_spec::{Candidate, SpecError, TaskSet};

static KERNELS: Dir = include_dir!("$CARGO_MANIFEST_DIR/../../kernels");
static TASKS: Dir = include_dir!("$CARGO_MANIFEST_DIR/../../tasks");
static FAULTS: Dir = include_dir!("$CARGO_MANIFEST_DIR/../../tests/faults");
static EXPLAIN: Dir = include_dir!("$CARGO_MANIFEST_DIR/../../docs/explain");
static BASELINES: Dir = include_dir!("$CARGO_MANIFEST_DIR/../../python/warpsmith_baselines");
static LAYER: &[u8] = include_bytes!("../../../artifacts/layer.bin");

/// The tasks.
///
/// # Errors
/// A committed task is malformed, with its file and line.
pub fn tasks() -> Result<TaskSet, SpecError> {
    let mut set = TaskSet::new();
    for (name, files) in task_files() {
        if let Some(toml) = files.get("task.toml") {
            let script = |file: &str| files.get(file).map(ToString::to_string);
            set.add(&name, &format!("tasks/{name}/task.toml"), toml.as_bytes(), &script)?;
        }
    }
    Ok(set)
}

/// What the attention library ships: it is judged where its files are named, as most of them are beyond the PTX machine.
const SHIPPED: &str = "attention/hopper/";

/// Every built-in candidate by its path, sorted: `.cu` files under `kernels/` that open with front matter, but for the attention library's.
///
/// # Errors
/// A committed kernel's front matter is malformed, with its file and line.
pub fn kernels(tasks: &TaskSet) -> Result<Vec<Candidate>, SpecError> {
    parse(candidates(&KERNELS, "kernels"), tasks)
}

/// The examples that lie beside their tasks, right and wrong ones: `tasks/NAME/examples/*.cu`.
///
/// # Errors
/// As for [`kernels`].
pub fn examples(tasks: &TaskSet) -> Result<Vec<Candidate>, SpecError> {
    parse(candidates(&TASKS, "tasks"), tasks)
}

/// The kernels of `tests/faults`, each with one deliberate fault, and their right twins under `tests/faults/right`.
///
/// # Errors
/// As for [`kernels`].
pub fn faults(tasks: &TaskSet) -> Result<Vec<Candidate>, SpecError> {
    parse(candidates(&FAULTS, "tests/faults"), tasks)
}

/// The name under which a candidate's file reaches the compiler, and stands in its PTX: without folders, so that the same
/// text gives the same artifact wherever it lies.
pub fn canonical_name(path: &str) -> &str {
    path.rsplit(['/', '\\']).next().unwrap_or(path)
}

/// Headers for `#include <warpsmith/...>`: `warpsmith/mma.cuh` -> text.
pub fn headers() -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    if let Some(include) = KERNELS.get_dir("include") {
        for (path, text) in files(include) {
            let name = path.strip_prefix("include/").unwrap_or(&path).to_string();
            found.insert(name, text.to_string());
        }
    }
    found
}

/// Task folders: name -> (file name -> text).
fn task_files() -> BTreeMap<String, BTreeMap<String, &'static str>> {
    let mut found: BTreeMap<String, BTreeMap<String, &'static str>> = BTreeMap::new();
    for (path, text) in files(&TASKS) {
        if let Some((task, rest)) = path.split_once('/') {
            found.entry(task.to_string()).or_default().insert(rest.to_string(), text);
        }
    }
    found
}

/// Pages of `warpsmith explain`: code -> Markdown.
pub fn explain_pages() -> BTreeMap<String, &'static str> {
    files(&EXPLAIN).into_iter().filter_map(|(path, text)| Some((path.strip_suffix(".md")?.to_string(), text))).collect()
}

/// The table of codes, as TOML.
pub fn explain_index() -> &'static str {
    EXPLAIN.get_file("index.toml").and_then(|f| f.contents_utf8()).unwrap_or("")
}

/// The committed, read-only layer of compile artifacts; empty before the first `cargo xtask layer`.
pub fn layer() -> &'static [u8] {
    LAYER
}

/// The program that holds the baselines, for a Python that reads it from its standard input: every module, and what makes them importable.
pub fn baseline_program() -> String {
    let mut sources = serde_json::Map::new();
    let mut boot = "";
    for (path, text) in files(&BASELINES) {
        match path.strip_suffix(".py") {
            Some("boot") => boot = text,
            Some("__init__") => drop(sources.insert("warpsmith_baselines".into(), text.into())),
            Some(module) if !module.contains('/') => {
                sources.insert(format!("warpsmith_baselines.{module}"), text.into());
            }
            _ => {}
        }
    }
    // JSON of texts is Python too.
    format!("SOURCES = {}\n{boot}", serde_json::Value::Object(sources))
}

fn parse(found: Vec<(String, &'static str)>, tasks: &TaskSet) -> Result<Vec<Candidate>, SpecError> {
    found.iter().map(|(path, text)| Candidate::parse(path, text.as_bytes(), tasks)).collect()
}

fn candidates(dir: &'static Dir, prefix: &str) -> Vec<(String, &'static str)> {
    let mut found: Vec<_> = files(dir)
        .into_iter()
        .filter(|(path, text)| path.ends_with(".cu") && text.starts_with("//!") && !path.starts_with(SHIPPED))
        .map(|(path, text)| (format!("{prefix}/{path}"), text))
        .collect();
    found.sort();
    found
}

fn files(dir: &'static Dir) -> Vec<(String, &'static str)> {
    let mut found = Vec::new();
    for entry in dir.entries() {
        match entry {
            DirEntry::Dir(inner) => found.extend(files(inner)),
            DirEntry::File(file) => {
                if let Some(text) = file.contents_utf8() {
                    found.push((file.path().to_string_lossy().replace('\\', "/"), text));
                }
            }
        }
    }
    found
}
