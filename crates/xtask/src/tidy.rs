//! The repository's rules, as a check: no stubs, no paths of one machine, no room too big, documents there.

use std::fs;
use std::path::Path;
use std::process::Command;

const MAX_LINES: usize = 800;
const DOCUMENTS: [&str; 7] =
    ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE", ".ci/run"];

/// # Errors
/// Each breach on a line of its own.
pub fn run(root: &Path) -> Result<(), String> {
    let listed =
        Command::new("git").arg("ls-files").current_dir(root).output().map_err(|e| format!("git ls-files: {e}"))?;
    let files = String::from_utf8_lossy(&listed.stdout);
    let mut breaches: Vec<String> =
        DOCUMENTS.iter().filter(|d| !root.join(d).exists()).map(|d| format!("{d} is missing")).collect();
    for file in files.lines() {
        // Binary files have no lines to judge.
        if let Ok(text) = fs::read_to_string(root.join(file)) {
            judge(file, &text, &mut breaches);
        }
    }
    breaches.extend(crate::ladder_table::check(root).err());
    if breaches.is_empty() {
        println!("tidy: {} files", files.lines().count());
        return Ok(());
    }
    Err(breaches.join("\n"))
}

fn judge(file: &str, text: &str, breaches: &mut Vec<String>) {
    // Spelled in two halves, so that this file does not accuse itself.
    let stubs = [concat!("todo", "!("), concat!("unimplemented", "!("), concat!("#[igno", "re]")];
    let homes = [concat!("/ro", "ot/"), concat!("/ho", "me/"), concat!("/wo", "rk/"), concat!("/tm", "p/")];
    let is_code = file.ends_with(".rs") || file.ends_with(".cu") || file.ends_with(".cuh") || file.ends_with(".py");
    for (i, line) in text.lines().enumerate() {
        let mut say = |what: &str| breaches.push(format!("{file}:{}: {what}", i + 1));
        if file.ends_with(".rs") && stubs.iter().any(|s| line.contains(s)) {
            say("a stub, or an ignored test without its reason");
        }
        if file != "Cargo.lock" && homes.iter().any(|h| line.contains(h)) {
            say("a path of one machine");
        }
        if is_code && line.ends_with([' ', '\t']) {
            say("a blank at the end of the line");
        }
    }
    if is_code && text.lines().count() > MAX_LINES {
        breaches.push(format!("{file}: {} lines, more than {MAX_LINES}", text.lines().count()));
    }
}
