//! What compilers really write: every instruction that stands in the text comes out of the tree again.

mod support;

use support::{FIXTURES, print};
use warpsmith_ptx::ast::{Module, Operand};

#[test]
fn fixtures_parse_with_their_functions_and_instructions() {
    // (fixture, functions, entries, instructions, source files)
    let rows = [
        ("clang_language", 5, 1, 271, 0),
        ("nvrtc_debug", 2, 1, 55, 1),
        ("nvrtc_hopper", 1, 1, 55, 1),
        ("nvrtc_language", 10, 3, 761, 0),
        ("nvrtc_lineinfo", 1, 1, 131, 2),
    ];
    for ((name, text), row) in FIXTURES.iter().zip(rows) {
        let module = warpsmith_ptx::parse(text).unwrap_or_else(|why| panic!("{name}: {why}"));
        let functions = &module.functions;
        let found = (
            *name,
            functions.len(),
            functions.iter().filter(|f| f.is_entry).count(),
            functions.iter().map(|f| f.instructions.len()).sum(),
            module.files.len(),
        );
        assert_eq!(found, row);
    }
}

#[test]
fn fixtures_print_back_as_they_stand_in_the_text() {
    for (name, text) in FIXTURES {
        let module = warpsmith_ptx::parse(text).unwrap_or_else(|why| panic!("{name}: {why}"));
        let (compared, differing) = compare(text, &module);
        assert_eq!(differing, Vec::<String>::new(), "{name}");
        let all: usize = module.functions.iter().map(|f| f.instructions.len()).sum();
        assert!(compared * 10 > all * 6, "{name}: {compared} of {all}");
    }
}

/// How many lines with a whole instruction were compared, and those that the tree prints otherwise. Branches are compared up to
/// their target, whose label must stand between the target and the instruction before it.
fn compare(text: &str, module: &Module) -> (usize, Vec<String>) {
    let lines: Vec<&str> = text.lines().collect();
    let mut differing = Vec::new();
    let mut compared = 0;
    let mut seen = vec![0u32; lines.len() + 1];
    for function in &module.functions {
        for i in &function.instructions {
            seen[i.ptx_line as usize] += 1;
        }
    }
    for function in &module.functions {
        for i in &function.instructions {
            let line = lines[i.ptx_line as usize - 1];
            let code = line.split("//").next().unwrap_or("").trim();
            // Inline assembly puts several instructions on a line, calls spread over several.
            if seen[i.ptx_line as usize] > 1 || !code.ends_with(';') {
                continue;
            }
            compared += 1;
            if let Some(Operand::Label(target)) = i.operands.first() {
                let label = code.trim_end_matches(';').split_whitespace().last();
                let label = format!("{}:", label.unwrap_or(""));
                let instructions = &function.instructions;
                let end = instructions.get(*target as usize).map_or(lines.len(), |t| t.ptx_line as usize - 1);
                let start = match *target {
                    0 => 0,
                    n => instructions[n as usize - 1].ptx_line as usize,
                };
                if !lines[start..end].iter().any(|l| l.trim_start().starts_with(&label)) {
                    differing.push(format!("{code} goes to {target}"));
                }
                continue;
            }
            let (found, expected) = (canonical(&print(function, i)), canonical(code));
            if found != expected {
                differing.push(format!("{expected} became {found}"));
            }
        }
    }
    (compared, differing)
}

/// Without blanks, the counts of repeated names, `+0` and the closing `;`; integers in decimal.
fn canonical(code: &str) -> String {
    let is_part = |c: char| c.is_alphanumeric() || "_$%@.".contains(c);
    let mut out = String::new();
    for word in code.split_inclusive(|c| !is_part(c)) {
        let end = word.trim_end_matches(|c| !is_part(c));
        let tail = word[end.len()..].trim_matches([' ', '\t', ';']);
        let name = match end.split_once('@') {
            Some((name, count)) if !name.is_empty() && count.parse::<u32>().is_ok() => name,
            _ => end,
        };
        let number = match name.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).ok(),
            None => name.parse().ok(),
        };
        match number {
            Some(0) if out.ends_with('+') => drop(out.pop()),
            Some(value) => out += &(value as i64).to_string(),
            None => out += name,
        }
        out += tail;
    }
    out.replace("+-", "-")
}
