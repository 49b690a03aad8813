//! docs/mutants.md: what compute-sanitizer's four tools and a comparison of values find of the mutants, beside what the PTX machine finds.
//!
//! The rows come from benches/mutants_sanitizer.py, run once on a device; this module counts them and decides nothing. A tool that did not
//! run to its end has the word `failed`, never counted as silent.

use super::read_table;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

const PAGE: &str = "docs/mutants.md";
const TOOLS: [&str; 4] = ["memcheck", "racecheck", "initcheck", "synccheck"];

/// What the script writes.
#[derive(Debug, Deserialize)]
struct Results {
    device: String,
    date: String,
    sanitizer: String,
    cases: Vec<Row>,
}

#[derive(Debug, Deserialize)]
struct Row {
    name: String,
    /// What the machine has to find, the class first; empty for a clean twin.
    expect: Vec<String>,
    values: Said,
    tools: BTreeMap<String, Said>,
}

/// What one judge said of one case.
#[derive(Debug, Deserialize)]
struct Said {
    word: Word,
    #[serde(default)]
    what: String,
}

#[derive(Debug, Deserialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum Word {
    Found,
    Silent,
    /// It reported nothing, because it did not run to its end.
    Failed,
}

impl Row {
    fn by(&self, tool: &str) -> Option<&Said> {
        self.tools.get(tool)
    }

    fn tools_find(&self) -> bool {
        self.tools.values().any(|s| s.word == Word::Found)
    }
}

/// Writes the page from a file of results.
///
/// # Errors
/// Results that are not the script's, that lack a mutant, or a page that cannot be written.
pub fn page(root: &Path, results: &Path) -> Result<(), String> {
    let text = fs::read_to_string(results).map_err(|e| format!("{}: {e}", results.display()))?;
    let results: Results = serde_json::from_str(&text).map_err(|e| format!("{}: {e}", results.display()))?;
    let all = read_table(root)?;
    for m in &all {
        if !results.cases.iter().any(|r| r.name == m.name) {
            eprintln!("note: {} is not among the results", m.name);
        }
    }
    fs::write(root.join(PAGE), written(&results, all.len())).map_err(|e| format!("{PAGE}: {e}"))?;
    println!("{PAGE}: {} cases", results.cases.len());
    Ok(())
}

/// `all`: how many mutants there are now.
fn written(results: &Results, all: usize) -> String {
    let (clean, mutants): (Vec<&Row>, Vec<&Row>) = results.cases.iter().partition(|r| r.expect.is_empty());
    let mut page = format!(
        "# What finds the mutants\n\n\
         Made by `cargo xtask mutants --table` from the results of benches/mutants_sanitizer.py: {}, {}, compute-sanitizer {}.\n\n\
         A mutant is a right kernel with one small edit (tests/mutants/mutants.toml). The PTX machine finds all of them, which \
         `cargo test -p xtask` sees to: it executes them for sm_89, with every detector, without a GPU. The other columns are one run each of \
         the same kernels, compiled for sm_90, on the device: *values* is gate 2 there (outputs against the oracle, guards around \
         them, faults and time limits), and then compute-sanitizer's four tools, each in a process of its own. A tool that did not \
         run to its end (`failed`) is not counted as silent.\n\n\
         What a judge cannot see by design: racecheck looks at shared memory only, initcheck at global memory only, and a comparison of values at \
         what happened to come out in one run.\n\n## By class of bug\n\n",
        results.device,
        results.date,
        results.sanitizer.trim_start_matches("Version ")
    );
    page.push_str(&counts(&mutants));
    let missed = |f: &dyn Fn(&Row) -> bool| mutants.iter().filter(|r| f(r)).count();
    let _ = writeln!(
        page,
        "\nOf {} mutants (of {all} that there are now; the others came later, and the PTX machine alone has judged them), \
         values miss {}, the four tools together miss {}, and both together {}.\n",
        mutants.len(),
        missed(&|r| r.values.word != Word::Found),
        missed(&|r| !r.tools_find()),
        missed(&|r| r.values.word != Word::Found && !r.tools_find()),
    );
    page.push_str("## The kernels as they are\n\n");
    for tool in TOOLS {
        match clean.iter().filter(|r| r.by(tool).is_some_and(|s| s.word == Word::Found)).count() {
            0 => {}
            n => page.push_str(&format!("{tool} reports something in {n} of {} right kernels.\n", clean.len())),
        }
    }
    page.push('\n');
    page.push_str(&rows(&clean));
    page.push_str("\n## Each mutant\n\n");
    page.push_str(&rows(&mutants));
    page
}

/// Found of all, by the class that a mutant's first expected finding names.
fn counts(mutants: &[&Row]) -> String {
    let mut classes: BTreeMap<&str, Vec<&Row>> = BTreeMap::new();
    for r in mutants {
        classes.entry(r.expect.first().map_or("", String::as_str)).or_default().push(r);
    }
    let mut text = format!("| class | mutants | PTX machine | values | {} | all four tools |\n", TOOLS.join(" | "));
    text.push_str(&format!("|---|{}\n", "---:|".repeat(4 + TOOLS.len())));
    for (class, rows) in classes {
        text.push_str(&count(class, &rows));
    }
    text.push_str(&count("all", mutants));
    text
}

fn count(class: &str, rows: &[&Row]) -> String {
    let found = |said: &dyn Fn(&Row) -> Option<Word>| {
        let of = |w| rows.iter().filter(|r| said(r) == Some(w)).count();
        match rows.len() - of(Word::Found) - of(Word::Silent) {
            0 => of(Word::Found).to_string(),
            failed => format!("{} ({failed} failed)", of(Word::Found)),
        }
    };
    let mut cells = vec![class.to_string(), rows.len().to_string(), rows.len().to_string()];
    cells.push(found(&|r| Some(r.values.word)));
    cells.extend(TOOLS.iter().map(|t| found(&|r| r.by(t).map(|s| s.word))));
    cells.push(rows.iter().filter(|r| r.tools_find()).count().to_string());
    format!("| {} |\n", cells.join(" | "))
}

fn rows(rows: &[&Row]) -> String {
    let mut text = format!("| kernel | PTX machine | values | {} |\n", TOOLS.join(" | "));
    text.push_str(&format!("|---|{}\n", "---|".repeat(2 + TOOLS.len())));
    for r in rows {
        let machine = if r.expect.is_empty() { "silent".to_string() } else { r.expect.join(" or ") };
        let mut cells = vec![r.name.clone(), machine, cell(Some(&r.values))];
        cells.extend(TOOLS.iter().map(|t| cell(r.by(t))));
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
    text
}

fn cell(said: Option<&Said>) -> String {
    let Some(said) = said else { return "not run".into() };
    let what: String = said.what.replace('|', "/").replace('\n', " ").chars().take(60).collect();
    match said.word {
        Word::Found => what,
        Word::Silent => "-".into(),
        Word::Failed => format!("failed: {what}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESULTS: &str = r#"{"device": "NVIDIA H200", "date": "2026-11-22", "sanitizer": "Compute Sanitizer 13.0", "cases": [
        {"name": "clean-1-a", "expect": [], "values": {"word": "silent"}, "tools": {"memcheck": {"word": "silent"},
            "racecheck": {"word": "silent"}, "initcheck": {"word": "silent"}, "synccheck": {"word": "silent"}}},
        {"name": "no-barrier", "expect": ["shared_race"], "values": {"word": "silent"}, "tools": {"memcheck": {"word": "silent"},
            "racecheck": {"word": "found", "what": "Race reported | here"}, "initcheck": {"word": "silent"}, "synccheck": {"word": "silent"}}},
        {"name": "no-wait", "expect": ["shared_race", "deadlock"], "values": {"word": "found", "what": "incorrect_output"}, "tools": {
            "memcheck": {"word": "silent"}, "racecheck": {"word": "failed", "what": "ended by its limit"}, "initcheck": {"word": "silent"}}}]}"#;

    #[test]
    fn a_tool_that_failed_or_did_not_run_is_not_silent() {
        let page = written(&serde_json::from_str(RESULTS).expect("the script's form"), 3);
        for line in [
            "| shared_race | 2 | 2 | 1 | 0 | 1 (1 failed) | 0 | 0 (1 failed) | 1 |",
            "| clean-1-a | silent | - | - | - | - | - |",
            "| no-barrier | shared_race | - | - | Race reported / here | - | - |",
            "| no-wait | shared_race or deadlock | incorrect_output | - | failed: ended by its limit | - | not run |",
            "Of 2 mutants (of 3 that there are now; the others came later, and the PTX machine alone has judged them), values miss 1, the four tools together miss 1, and both together 0.",
        ] {
            assert!(page.contains(line), "{line} is not in\n{page}");
        }
    }
}
