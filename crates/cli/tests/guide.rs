//! The guide's commands, run as a reader types them: in order, in one folder, with the exit codes that stand beside them.

mod common;

use common::{Place, root, text};
use std::fs;

/// (line in the file, words, exit code) of the blocks that need neither a GPU nor a compiler.
fn commands(guide: &str) -> Vec<(usize, Vec<String>, i32)> {
    let mut found = Vec::new();
    let mut inside = false;
    for (i, line) in guide.lines().enumerate() {
        if line.starts_with("```") {
            inside = line == "```console";
        } else if let Some(command) = line.strip_prefix("$ warpsmith").filter(|_| inside) {
            let (command, note) = command.split_once('#').unwrap_or((command, ""));
            let code = note.trim().strip_prefix("exit ").map_or(0, |c| c.trim().parse().expect("an exit code"));
            found.push((i + 1, words(command), code));
        }
    }
    found
}

/// As a shell splits them, single quotes being the only ones that the guide uses.
fn words(command: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (i, part) in command.split('\'').enumerate() {
        if i % 2 == 1 {
            found.push(part.to_string());
        } else {
            found.extend(part.split_whitespace().map(str::to_string));
        }
    }
    found
}

#[test]
fn the_guides_commands_do_what_it_says() {
    let guide = fs::read_to_string(root().join("docs/guide.md")).unwrap();
    let place = Place::new();
    let fault = "tests/faults/uninit_scores.cu";
    fs::create_dir_all(place.path().join("tests/faults")).unwrap();
    fs::copy(root().join(fault), place.path().join(fault)).unwrap();
    let commands = commands(&guide);
    assert!(commands.len() >= 15, "only {} commands were found", commands.len());
    for (line, words, code) in commands {
        let arguments: Vec<&str> = words.iter().map(String::as_str).collect();
        let output = place.run(&arguments);
        assert_eq!(
            output.status.code(),
            Some(code),
            "docs/guide.md:{line}: warpsmith {}\n{}",
            words.join(" "),
            text(&output)
        );
    }
    assert!(place.path().join("runs/first/report.html").exists() && place.path().join("mine.cu").exists());
}
