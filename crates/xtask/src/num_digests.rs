//! `cargo xtask num-digests INCLUDE_DIR [--write] [--all]`: conversion tables made by NVIDIA's headers, compiled for the host with g++,
//! against the digests that are committed and those that `warpsmith_num` makes.
//!
//! INCLUDE_DIR holds cuda_fp8.h, cuda_fp16.h and cuda_bf16.h. `--write` commits the headers' digests; `--all` compares the tables from f32 over
//! all 2^32 inputs, which takes some processor minutes. Without it the inputs are those that the test uses.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use warpsmith_num::digests::{Set, tables};

/// Compiles, runs, compares; an error names the first table that differs.
pub fn run() -> Result<(), String> {
    const USAGE: &str = "usage: cargo xtask num-digests INCLUDE_DIR [--write] [--all]";
    let arguments: Vec<String> = std::env::args().skip(2).collect();
    let (flags, folders): (Vec<&String>, Vec<&String>) = arguments.iter().partition(|word| word.starts_with("--"));
    let [include] = folders.as_slice() else { return Err(USAGE.into()) };
    let flag = |name: &str| flags.iter().any(|flag| *flag == name);
    if flags.iter().any(|flag| !["--write", "--all"].contains(&flag.as_str())) {
        return Err(USAGE.into());
    }
    let set = if flag("--all") { Set::All } else { Set::Classes };
    let (nvidia, version) = nvidia_digests(Path::new(include), set)?;
    if flag("--write") && set == Set::Classes {
        let path = committed_path();
        let text = format!(
            "# FNV-1a digests of conversion tables made by cuda_fp8.h, cuda_fp16.h and cuda_bf16.h of CUDA {version}.\n\
             # Written by `cargo xtask num-digests INCLUDE_DIR --write`.\n{nvidia}"
        );
        std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    } else if set == Set::Classes {
        let path = committed_path();
        let committed = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let committed: String =
            committed.lines().filter(|line| !line.starts_with('#')).map(|line| format!("{line}\n")).collect();
        compare(&nvidia, &committed, "the committed digests")?;
    }
    let mut ours = String::new();
    for (name, digest) in tables(set) {
        let _ = writeln!(ours, "{digest:016x}\t{name}");
    }
    compare(&nvidia, &ours, "warpsmith-num")?;
    println!("{} tables agree with NVIDIA's headers of CUDA {version}", nvidia.lines().count());
    Ok(())
}

fn committed_path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../num/tests/nvidia_digests.txt")
}

/// The digests as text, and the toolkit's version.
fn nvidia_digests(include: &Path, set: Set) -> Result<(String, String), String> {
    let folder = std::env::temp_dir().join(format!("warpsmith-num-digests-{}", std::process::id()));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/num_digests.cpp");
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let program = folder.join("digests");
    let result = (|| {
        let mut compiler = Command::new("g++");
        compiler.args(["-std=c++17", "-O2", "-pthread", "-I"]).arg(include).arg("-o").arg(&program).arg(&source);
        output(&mut compiler)?;
        output(Command::new(&program).args((set == Set::All).then_some("all")))
    })();
    // What is left behind in a temporary folder harms nobody.
    let _ = std::fs::remove_dir_all(&folder);
    Ok((result?, toolkit_version(include)))
}

/// As cuda.h beside the headers says, e.g. 13.0.
fn toolkit_version(include: &Path) -> String {
    let text = std::fs::read_to_string(include.join("cuda.h")).unwrap_or_default();
    let number = text.lines().find_map(|line| line.strip_prefix("#define CUDA_VERSION ")?.trim().parse::<u32>().ok());
    number.map_or("an unknown version".into(), |number| format!("{}.{}", number / 1000, number % 1000 / 10))
}

fn output(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| format!("{name}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{name} failed: {}", String::from_utf8_lossy(&output.stderr)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn compare(nvidia: &str, other: &str, whose: &str) -> Result<(), String> {
    let mut others = other.lines();
    for line in nvidia.lines() {
        let theirs = others.next().unwrap_or("nothing");
        if line != theirs {
            return Err(format!("NVIDIA's headers give {line:?}, {whose} have {theirs:?}"));
        }
    }
    match others.next() {
        Some(line) => Err(format!("{whose} have {line:?}, which NVIDIA's headers were not asked for")),
        None => Ok(()),
    }
}
