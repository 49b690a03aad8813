//! The table of instruction forms: each of its forms is decoded and executed, or said to be missing by name; and what compilers emit is in it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use warpsmith_machine::forms::{self, Exactness, Form};
use warpsmith_machine::{Arg, Contents, End, Launch, Memory, Options, Outcome, Program, launch};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn run(form: &Form) -> Outcome {
    let k = forms::kernel(form);
    let program = Program::load(&k.ptx).unwrap_or_else(|e| panic!("{}: {e}\n{}", form.name(), k.ptx));
    let mut memory = Memory::new();
    let threads = forms::BLOCK;
    // Any bits will do; a byte that is no NaN in any format keeps the values apart from special cases.
    let a = memory.alloc("in", Contents::Bytes(&vec![0x35; threads * k.input_bytes.max(16)]));
    let b = memory.alloc("out", Contents::Uninitialized(threads * k.output_bytes.max(16)));
    let c = memory.alloc("mem", Contents::Bytes(&vec![0x11; threads * forms::GLOBAL_BYTES]));
    let l = Launch {
        entry: "k".into(),
        grid: [1; 3],
        block: [threads as u32, 1, 1],
        cluster: [1; 3],
        shared_bytes: 0,
        args: vec![Arg::Buffer(a), Arg::Buffer(b), Arg::Buffer(c)],
    };
    launch(&program, &mut memory, &l, &Options { threads: 1, ..Options::default() })
}

#[test]
fn every_form_runs_or_is_said_to_be_missing() {
    let mut wrong = Vec::new();
    for form in forms::all().iter().filter(|f| !f.elsewhere) {
        let outcome = run(form);
        let right = match (&outcome.end, form.exactness) {
            (End::Unsupported { what, .. }, Exactness::Unsupported) => what.starts_with(&form.opcode),
            (End::Completed, Exactness::Unsupported) => false,
            (End::Completed, _) => outcome.findings.is_empty(),
            _ => false,
        };
        if !right {
            wrong.push(format!(
                "{}: {:?} {:?}",
                form.name(),
                outcome.end,
                outcome.findings.first().map(|f| &f.message)
            ));
        }
    }
    assert!(wrong.is_empty(), "{} forms:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn approximate_forms_are_counted_as_such() {
    for form in forms::all().iter().filter(|f| !f.elsewhere && f.exactness != Exactness::Unsupported) {
        let counted = run(form).counters.fidelity.approximate > 0;
        assert_eq!(counted, form.exactness == Exactness::Approximate, "{}", form.name());
    }
}

fn ptx_files(folder: &Path, out: &mut Vec<PathBuf>) {
    let Ok(list) = std::fs::read_dir(folder) else { return };
    for entry in list.flatten() {
        let path = entry.path();
        if path.is_dir() {
            ptx_files(&path, out);
        } else if path.extension().is_some_and(|e| e == "ptx") {
            out.push(path);
        }
    }
}

#[test]
fn what_compilers_emit_is_in_the_table() {
    let mut files = Vec::new();
    for folder in ["crates/ptx/tests", "crates/machine/tests"] {
        ptx_files(&root().join(folder), &mut files);
    }
    assert!(files.len() >= 5, "only {} PTX files", files.len());
    let known: BTreeSet<&str> = forms::all().iter().map(|f| f.opcode.as_str()).collect();
    let mut missing = BTreeSet::new();
    for file in files {
        let text = std::fs::read_to_string(&file).expect("a PTX file");
        let Ok(module) = warpsmith_ptx::parse(&text) else { continue };
        for f in &module.functions {
            missing.extend(f.instructions.iter().map(|i| i.opcode()).filter(|o| !known.contains(o.as_str())));
        }
    }
    assert!(missing.is_empty(), "{} opcodes are not in the table:\n{missing:#?}", missing.len());
}

#[test]
fn the_page_is_fresh() {
    let hardware = std::fs::read_to_string(root().join("tests/machine/hardware.tsv")).unwrap_or_default();
    let page = std::fs::read_to_string(root().join("docs/ptx-support.md")).unwrap_or_default();
    assert!(page == forms::page(&hardware), "docs/ptx-support.md is stale: cargo xtask forms");
}
