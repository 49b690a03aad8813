//! `cargo xtask attention-kernels`: compiles the listed instances of the attention library into `crates/attention/kernels.bin`, which the
//! next build embeds. Not committed: it follows the kernels. Needs a toolkit, found or fetched; what has not changed comes from the cache.
//!
//! `cargo xtask wheel [--program FILE] [ARGUMENT ...]`: that, the command line's binary (or FILE, which was built elsewhere, for another libc say),
//! and then `maturin build` of `crates/attention-python`, which holds both.

use rayon::prelude::*;
use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use warpsmith_attention::{Instance, PORTABLE_TARGETS, bundle, instances, portable_instances};
use warpsmith_compile::{BuildKind, CompileOptions, Compiler, Request};

const FILE: &str = "crates/attention/kernels.bin";
const FOLDER: &str = "kernels/attention/hopper";

/// Compiles all and writes the container.
pub fn make(root: &Path) -> Result<(), String> {
    let compiler = crate::layer::compiler(true)?;
    let mut all: Vec<(&str, Instance)> = instances().into_iter().map(|i| ("sm_90a", i)).collect();
    for target in PORTABLE_TARGETS {
        all.extend(portable_instances().into_iter().map(|i| (target, i)));
    }
    let done = AtomicUsize::new(0);
    let compiled: Result<BTreeMap<String, Vec<u8>>, String> = all
        .par_iter()
        .map(|(target, instance)| {
            let code = compile(root, &compiler, target, instance)?;
            let n = done.fetch_add(1, Ordering::Relaxed) + 1;
            if n.is_multiple_of(25) || n == all.len() {
                println!("{n} of {}", all.len());
            }
            Ok((format!("{target}/{}", instance.name()), code))
        })
        .collect();
    let bytes = bundle::write(&compiled?).map_err(|e| e.to_string())?;
    fs::write(root.join(FILE), &bytes).map_err(|e| format!("{FILE}: {e}"))?;
    println!("{FILE}: {} instances, {} KB, made by {}", all.len(), bytes.len() >> 10, compiler.toolkit().id);
    Ok(())
}

fn compile(root: &Path, compiler: &Compiler, target: &str, instance: &Instance) -> Result<Vec<u8>, String> {
    let name = format!("{}.cu", instance.file);
    let path = root.join(FOLDER).join(&name);
    let request = Request {
        source: fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?,
        name,
        include_root: Some(root.join(FOLDER)),
        builtin_headers: Arc::default(),
        defines: instance.defines.iter().map(|(n, v)| (n.to_string(), v.to_string())).collect(),
        options: CompileOptions::default(),
        entries: Vec::new(),
        target: target.replace("compute_", "sm_"),
        build: BuildKind::Release,
    };
    let compiled = compiler.compile(&request).map_err(|e| format!("{}: {e}", instance.name()))?;
    let artifact = compiled.map_err(|failure| format!("{}: {failure}", instance.name()))?;
    // Registers run short by a hair, and a product waits for the one before: right, and 15% slower, which no test would see.
    if let Some(serialised) = artifact.warnings.iter().find(|w| w.message.contains("instructions are serialized")) {
        return Err(format!("{}: {}", instance.name(), serialised.message));
    }
    if target.starts_with("compute_") {
        return Ok(artifact.ptx.into_bytes());
    }
    let code = artifact.cubin.ok_or_else(|| format!("{}: there is no machine code", instance.name()))?;
    Ok(without_debug_sections(code))
}

/// Machine code (64-bit ELF, little endian) whose sections for debuggers are empty: the PTX's text and line tables are two thirds of it.
/// Nothing moves: what they held becomes zeros, which compress to nothing. Whatever is no such file stays as it is.
fn without_debug_sections(mut code: Vec<u8>) -> Vec<u8> {
    for (header, bytes) in debug_sections(&code).unwrap_or_default() {
        code[bytes].fill(0);
        code[header + 32..header + 40].fill(0); // sh_size
    }
    code
}

/// Where the headers and the bytes of such sections lie.
fn debug_sections(code: &[u8]) -> Option<Vec<(usize, Range<usize>)>> {
    let number = |at: usize, bytes: usize| {
        let field = code.get(at..at.checked_add(bytes)?)?;
        usize::try_from(field.iter().rev().fold(0u64, |n, b| n << 8 | u64::from(*b))).ok()
    };
    if !code.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let (headers, size, count, names) = (number(0x28, 8)?, number(0x3A, 2)?, number(0x3C, 2)?, number(0x3E, 2)?);
    let header = |i: usize| headers.checked_add(i * size);
    let names = number(header(names)? + 24, 8)?;
    let mut found = Vec::new();
    for i in 0..count {
        let header = header(i)?;
        let name = code.get(names.checked_add(number(header, 4)?)?..)?;
        let name = name.strip_prefix(b".rela").unwrap_or(name);
        if name.starts_with(b".debug_") || name.starts_with(b".nv_debug_") {
            let (from, bytes) = (number(header + 24, 8)?, number(header + 32, 8)?);
            let section = from..from.checked_add(bytes)?;
            code.get(section.clone())?;
            code.get(header..header + 64)?;
            found.push((header, section));
        }
    }
    Some(found)
}

/// The library's C header.
pub fn header(root: &Path) -> Result<(), String> {
    let path = root.join("crates/attention/include/warpsmith_attention.h");
    fs::write(&path, warpsmith_attention::header::text()).map_err(|e| format!("{}: {e}", path.display()))
}

/// The wheel, in `target/wheels`.
pub fn wheel(root: &Path, arguments: &[&str]) -> Result<(), String> {
    make(root)?;
    let run = |program: &str, arguments: &[&str]| {
        let status =
            Command::new(program).args(arguments).current_dir(root).status().map_err(|e| format!("{program}: {e}"))?;
        if status.success() { Ok(()) } else { Err(format!("{program} {} failed", arguments.join(" "))) }
    };
    let exe = if cfg!(windows) { "warpsmith.exe" } else { "warpsmith" };
    let target = std::env::var("CARGO_TARGET_DIR").map_or_else(|_| root.join("target"), Into::into);
    let (from, arguments) = match arguments {
        ["--program", file, rest @ ..] => (Path::new(file).to_path_buf(), rest),
        _ => {
            run("cargo", &["build", "--release", "-p", "warpsmith-cli"])?;
            (target.join("release").join(exe), arguments)
        }
    };
    let folder = root.join("crates/attention-python/package/warpsmith");
    copy_package(root, &folder)?;
    let to = folder.join("bin").join(exe);
    fs::create_dir_all(folder.join("bin")).map_err(|e| e.to_string())?;
    fs::copy(&from, &to).map_err(|e| format!("{}: {e}", from.display()))?;
    // Four fifths of the program are for debuggers. Without the tool the wheel is larger, and works.
    match Command::new("strip").arg("--strip-all").arg(&to).status() {
        Ok(status) if status.success() => {}
        _ => println!("strip is not there: the wheel keeps the program's symbols"),
    }
    for (from, to) in
        [("python/README.md", "README.md"), ("LICENSE-MIT", "LICENSE-MIT"), ("LICENSE-APACHE", "LICENSE-APACHE")]
    {
        fs::copy(root.join(from), folder.join("..").join(to)).map_err(|e| format!("{from}: {e}"))?;
    }
    let mut build = vec!["build", "--release", "--strip", "-m", "crates/attention-python/Cargo.toml"];
    build.extend(arguments);
    run("maturin", &build)
}

/// The Python package beside its kernels' sources, as the wheel has it.
fn copy_package(root: &Path, to: &Path) -> Result<(), String> {
    let _ = fs::remove_dir_all(to); // what an earlier wheel left; there may be nothing
    for (from, into) in [
        ("python/warpsmith", to.to_path_buf()),
        ("python/warpsmith/attention", to.join("attention")),
        (FOLDER, to.join("attention/hopper")),
    ] {
        fs::create_dir_all(&into).map_err(|e| e.to_string())?;
        let entries = fs::read_dir(root.join(from)).map_err(|e| format!("{from}: {e}"))?;
        for path in entries.flatten().map(|e| e.path()) {
            // Gates are for judging, from a checkout.
            let judge = path.file_name().is_some_and(|n| n.to_string_lossy().starts_with("gate_"));
            let wanted = path.extension().is_some_and(|e| ["py", "pyi", "typed", "cu", "cuh"].iter().any(|w| e == *w));
            let wanted = wanted && !judge;
            if let (true, Some(name)) = (wanted, path.file_name()) {
                fs::copy(&path, into.join(name)).map_err(|e| format!("{}: {e}", path.display()))?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of sections as (name, contents): the ELF header, the contents, the names, the headers.
    fn elf(sections: &[(&str, &[u8])]) -> Vec<u8> {
        let (mut code, mut names, mut headers) = (vec![0u8; 64], vec![0u8], vec![0u8; 64]);
        code[..6].copy_from_slice(b"\x7fELF\x02\x01");
        let mut add = |name: &str, from: usize, bytes: usize, names: &mut Vec<u8>| {
            let mut header = [0u8; 64];
            header[..4].copy_from_slice(&(names.len() as u32).to_le_bytes());
            header[24..32].copy_from_slice(&(from as u64).to_le_bytes());
            header[32..40].copy_from_slice(&(bytes as u64).to_le_bytes());
            headers.extend(header);
            names.extend(name.as_bytes());
            names.push(0);
        };
        for (name, contents) in sections {
            add(name, code.len(), contents.len(), &mut names);
            code.extend(*contents);
        }
        let (from, last) = (code.len(), sections.len() + 1);
        add(".shstrtab", from, names.len() + ".shstrtab".len() + 1, &mut names);
        code.extend(names);
        let at = code.len() as u64;
        code[0x28..0x30].copy_from_slice(&at.to_le_bytes());
        for (at, value) in [(0x3A, 64), (0x3C, last as u16 + 1), (0x3E, last as u16)] {
            code[at..at + 2].copy_from_slice(&value.to_le_bytes());
        }
        code.extend(headers);
        code
    }

    #[test]
    fn only_sections_for_debuggers_become_empty() {
        let sections: [(&str, &[u8]); 5] = [
            (".text.kernel", b"machine code"),
            (".nv_debug_ptx_txt", b"the text of the PTX"),
            (".debug_line", b"lines"),
            (".rela.debug_line", b"relocations"),
            (".nv.info.kernel", b"registers"),
        ];
        let stripped = without_debug_sections(elf(&sections));
        assert_eq!(stripped.len(), elf(&sections).len());
        for (i, (name, contents)) in sections.iter().enumerate() {
            let kept = stripped.windows(contents.len()).any(|w| w == *contents);
            assert_eq!(kept, !name.contains("debug"), "{name}");
            let headers = u64::from_le_bytes(stripped[0x28..0x30].try_into().expect("eight bytes")) as usize;
            let size = headers + 64 * (i + 1) + 32;
            assert_eq!(stripped[size] as usize, if kept { contents.len() } else { 0 }, "{name}");
        }
    }

    #[test]
    fn what_is_no_whole_elf_stays() {
        let whole = elf(&[(".debug_line", b"lines")]);
        for cut in [0, 5, 63, whole.len() - 64] {
            assert_eq!(without_debug_sections(whole[..cut].to_vec()), &whole[..cut]);
        }
        let mut beyond = whole.clone();
        beyond[0x28..0x30].fill(0xFF);
        assert_eq!(without_debug_sections(beyond.clone()), beyond);
    }
}
