//! Automation for developers: `cargo xtask COMMAND`.
//!
//!     attention-kernels         compile what the attention library embeds
//!     wheel [--program FILE] [ARGUMENT ...]   that, the command line and the Python package in one wheel (needs maturin)
//!     header                    crates/attention/include/warpsmith_attention.h, from the C interface's source
//!     tidy                      the repository's rules
//!     layer [--check] [--all]   add to the committed layer of artifacts what it lacks, or see that it is fresh; all: compile each again
//!     ladder-table              README's table of the ladder, from the newest run in benches/results
//!     mutants [--check]         make the artifacts of the mutation suite, or see that they are fresh
//!     mutants --write DIR       each mutant and each clean twin as a file that `check` takes on sm_90, for benches/mutants_sanitizer.py
//!     mutants --table FILE      docs/mutants.md: what compute-sanitizer and a comparison of values find of them, from that script's results
//!     forms                     docs/ptx-support.md, from the table of instruction forms
//!     conformance [OPTION ...]  each instruction form on the machine and on a GPU: --backend gpu --bless
//!     num-digests INCLUDE_DIR   conversion tables from NVIDIA's headers, compared with the committed digests
//!     killed [N]                kill loops N times (200) at random moments; each has to end as if nothing had been
//!     gpu-tests                 the tests that need a CUDA device, on one

mod attention_kernels;
mod killed;
mod ladder_table;
mod layer;
mod mutants;
mod num_digests;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // NVRTC runs in a process of its own, which is this program again.
    if arguments.first().is_some_and(|a| a == warpsmith_compile::CHILD_ARG) {
        warpsmith_compile::child_main();
    }
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["header"] => attention_kernels::header(&root()),
        ["tidy"] => tidy::run(&root()),
        ["ladder-table"] => ladder_table::write(&root()),
        ["layer"] => layer::make(&root(), false),
        ["layer", "--all"] => layer::make(&root(), true),
        ["layer", "--check"] => layer::check(&root(), false),
        ["layer", "--check", "--all"] => layer::check(&root(), true),
        ["mutants"] => mutants::make(&root()),
        ["mutants", "--check"] => mutants::check(&root()),
        ["mutants", "--write", folder] => mutants::write(&root(), Path::new(folder)),
        ["mutants", "--table", results] => mutants::page(&root(), Path::new(results)),
        ["num-digests", ..] => num_digests::run(),
        ["attention-kernels"] => attention_kernels::make(&root()),
        ["wheel", rest @ ..] => attention_kernels::wheel(&root(), rest),
        ["killed"] => kill("200"),
        ["killed", kills] => kill(kills),
        ["forms"] => cargo(&[
            "run", "-p", "warpsmith-machine", "--example", "forms", "--", "page", "docs/ptx-support.md", "tests/machine/hardware.tsv",
        ]),
        ["conformance", rest @ ..] => cargo(&[&["run", "--release", "-p", "warpsmith-conformance", "--"][..], rest].concat()),
        ["gpu-tests"] => gpu_tests(),
        _ => Err("usage: cargo xtask attention-kernels | wheel | header | tidy | ladder-table | layer [--check] [--all] | mutants [--check | --write DIR | --table FILE] | num-digests INCLUDE_DIR | killed [N] | forms | conformance | gpu-tests"
            .into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
    }
}

fn kill(kills: &str) -> Result<(), String> {
    let kills = kills.parse::<usize>().map_err(|e| format!("{kills:?}: {e}"))?;
    let build = Command::new("cargo").args(["build", "-p", "warpsmith-cli"]).current_dir(root()).status();
    if !build.map_err(|e| format!("cargo: {e}"))?.success() {
        return Err("the command line does not build".into());
    }
    // The command line lies beside this program.
    let own = std::env::current_exe().map_err(|e| e.to_string())?;
    let program = own.with_file_name(format!("warpsmith{}", std::env::consts::EXE_SUFFIX));
    let folder = std::env::temp_dir().join(format!("warpsmith-killed-{}", std::process::id()));
    std::fs::create_dir_all(&folder).map_err(|e| e.to_string())?;
    let done = killed::run(&program, &folder, kills, u64::from(std::process::id()));
    // What went wrong is left to be looked at.
    match done {
        Ok(said) => {
            println!("{said}");
            std::fs::remove_dir_all(&folder).map_err(|e| e.to_string())
        }
        Err(why) => Err(format!("{why} (in {})", folder.display())),
    }
}

fn gpu_tests() -> Result<(), String> {
    cargo(&["test", "--workspace", "--", "--ignored"]).map_err(|_| "some GPU test failed".into())
}

/// Runs cargo in the repository's root.
fn cargo(arguments: &[&str]) -> Result<(), String> {
    let status =
        Command::new("cargo").args(arguments).current_dir(root()).status().map_err(|e| format!("cargo: {e}"))?;
    if status.success() { Ok(()) } else { Err(format!("cargo {} failed", arguments.join(" "))) }
}

/// The repository's root: two folders above this crate.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).map(Path::to_path_buf).unwrap_or_default()
}
