//! Which program becomes the worker on another machine: our own where the platforms match, a file that was named, or one that is built
//! there from the sources here.
//!
//! It knows platforms by what `uname` says of them. Limits: whether the C library there is new enough shows only when the program is
//! started; a checkout's sources are those that git lists.

use super::WorkerError;
use super::wire::sha256;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Bytes of a worker, or of an archive of sources, at most.
const MAX_BYTES: u64 = 1 << 30;

/// Where the worker's program comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkerBinary {
    /// This very program.
    ThisProgram,
    File(PathBuf),
    /// Built there by cargo from the checkout with this root.
    Build(PathBuf),
}

/// What the other machine says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Platform {
    /// `Linux`, `Darwin`
    pub system: String,
    /// `x86_64`, `aarch64`
    pub machine: String,
    /// `glibc-2.36`, or `other`
    pub libc: String,
}

impl Platform {
    /// From the words of the script's greeting.
    pub(super) fn of(words: &[&str]) -> Option<Platform> {
        let [system, machine, libc, ..] = words else { return None };
        let machine = match *machine {
            "amd64" => "x86_64",
            "arm64" => "aarch64",
            other => other,
        };
        Some(Platform { system: (*system).into(), machine: machine.into(), libc: (*libc).into() })
    }

    fn is_this_one(&self) -> bool {
        let system = match self.system.as_str() {
            "Linux" => "linux",
            "Darwin" => "macos",
            _ => return false,
        };
        system == std::env::consts::OS && self.machine == std::env::consts::ARCH
    }

    fn triple(&self) -> String {
        match self.system.as_str() {
            "Darwin" => format!("{}-apple-darwin", self.machine),
            _ => format!("{}-unknown-linux-gnu", self.machine),
        }
    }
}

impl std::fmt::Display for Platform {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} {}", self.system, self.machine, self.libc)
    }
}

/// Bytes to be sent, and the name under which they are kept there.
pub(super) struct Load {
    pub sha256: String,
    pub bytes: Vec<u8>,
    /// Sources to be built, not a program.
    pub sources: bool,
}

/// What to send to a machine of this platform.
pub(super) fn choose(binary: &WorkerBinary, platform: &Platform) -> Result<Load, WorkerError> {
    match binary {
        WorkerBinary::ThisProgram if platform.is_this_one() => {
            let path = std::env::current_exe().map_err(|e| unfit(format!("this program's own file: {e}"), platform))?;
            program(&path, platform)
        }
        WorkerBinary::ThisProgram => {
            let here = format!("{} {}", std::env::consts::OS, std::env::consts::ARCH);
            Err(unfit(format!("this program is for {here}, the machine there is {platform}"), platform))
        }
        WorkerBinary::File(path) => program(path, platform),
        WorkerBinary::Build(root) => {
            let bytes = archive(root).map_err(|why| unfit(why, platform))?;
            Ok(Load { sha256: sha256(&bytes), bytes, sources: true })
        }
    }
}

fn program(path: &Path, platform: &Platform) -> Result<Load, WorkerError> {
    let bytes = read(path).map_err(|e| unfit(format!("{}: {e}", path.display()), platform))?;
    let is = format(&bytes);
    let fits = match is {
        Some(("any", _)) => true,
        Some((system, machine)) => system == platform.system && machine == platform.machine,
        None => false,
    };
    if !fits {
        let what = match is {
            Some((system, machine)) => format!("a program for {system} {machine}"),
            None => "no program".to_string(),
        };
        return Err(unfit(format!("{} is {what}, the machine there is {platform}", path.display()), platform));
    }
    Ok(Load { sha256: sha256(&bytes), bytes, sources: false })
}

fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    let bytes = std::fs::metadata(path)?.len();
    if bytes > MAX_BYTES {
        return Err(std::io::Error::other(format!("{bytes} bytes; at most {MAX_BYTES} are sent")));
    }
    std::fs::read(path)
}

/// System and machine that a program's header names: ELF (its specification, `e_machine` at 18) and Mach-O. A script is for any machine.
fn format(bytes: &[u8]) -> Option<(&'static str, &'static str)> {
    match bytes {
        [b'#', b'!', ..] => Some(("any", "machine")),
        [0x7f, b'E', b'L', b'F', ..] => Some((
            "Linux",
            match bytes.get(18..20)? {
                [0x3e, 0] => "x86_64",
                [0xb7, 0] => "aarch64",
                _ => "of another kind",
            },
        )),
        [0xcf, 0xfa, 0xed, 0xfe, 0x0c, ..] => Some(("Darwin", "aarch64")),
        [0xcf, 0xfa, 0xed, 0xfe, ..] => Some(("Darwin", "x86_64")),
        _ => None,
    }
}

/// No program fits, and how to get one.
pub(super) fn unfit(why: String, platform: &Platform) -> WorkerError {
    let triple = platform.triple();
    WorkerError::Launcher {
        code: "worker-binary",
        message: format!("no worker for that machine: {why}"),
        hint: format!(
            "name one with --worker FILE: warpsmith-worker-{triple} of the release page, or one made by `cargo build --release --target {triple}`; \
             --worker build makes it there, where that machine has cargo and this program runs in a checkout"
        ),
    }
}

/// The checkout that a folder lies in.
pub fn checkout(folder: &Path) -> Option<PathBuf> {
    let is_root = |f: &&Path| f.join("crates/cli/Cargo.toml").is_file() && f.join("Cargo.lock").is_file();
    folder.ancestors().find(is_root).map(Path::to_path_buf)
}

/// The files of a checkout as a tar archive that is the same wherever and whenever it is made.
fn archive(root: &Path) -> Result<Vec<u8>, String> {
    // New files too, but not what git ignores.
    let listed = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .stdin(Stdio::null())
        .output()
        .map_err(|e| format!("git, which lists the sources, cannot be run: {e}"))?;
    if !listed.status.success() {
        return Err(format!("{} is no checkout: {}", root.display(), String::from_utf8_lossy(&listed.stderr).trim()));
    }
    let text = String::from_utf8_lossy(&listed.stdout);
    // What the program is built from: the crates and what they embed.
    let part = |name: &&str| {
        let first = name.split('/').next().unwrap_or_default();
        matches!(
            first,
            "crates" | "kernels" | "tasks" | "tests" | "artifacts" | "docs" | "Cargo.toml" | "Cargo.lock" | ".cargo"
        )
    };
    let mut names: Vec<&str> = text.split('\0').filter(|n| !n.is_empty()).filter(part).collect();
    names.sort_unstable();
    names.dedup();
    let mut tar = tar::Builder::new(Vec::new());
    let mut total = 0;
    for name in names {
        let path = root.join(name);
        // A file that git still lists may be gone.
        if !path.is_file() {
            continue;
        }
        let bytes = read(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        total += bytes.len() as u64;
        if total > MAX_BYTES {
            return Err(format!("the sources have more than {MAX_BYTES} bytes"));
        }
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        header.set_mtime(1);
        tar.append_data(&mut header, name, &bytes[..]).map_err(|e| format!("{name}: {e}"))?;
    }
    tar.into_inner().map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn platform(machine: &str) -> Platform {
        Platform::of(&["Linux", machine, "glibc-2.36"]).expect("three words")
    }

    #[test]
    fn a_program_of_another_platform_is_refused_with_the_name_of_the_right_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut elf = b"\x7fELF".to_vec();
        elf.resize(64, 0);
        elf[18] = 0xb7;
        for (bytes, machine, fits) in [
            (elf.clone(), "aarch64", true),
            (elf.clone(), "arm64", true),
            (elf, "x86_64", false),
            (b"\xcf\xfa\xed\xfe\x0c".to_vec(), "aarch64", false),
            (b"text".to_vec(), "x86_64", false),
        ] {
            let path = folder.path().join("worker");
            std::fs::write(&path, &bytes).expect("it is written");
            match program(&path, &platform(machine)) {
                Ok(load) => assert!(fits && load.bytes == bytes),
                Err(e) => {
                    assert!(!fits, "{e}");
                    assert_eq!(e.code(), "worker-binary");
                    assert!(e.hint().contains(&platform(machine).triple()), "{}", e.hint());
                }
            }
        }
    }

    #[test]
    fn our_own_program_goes_to_its_own_platform_only() {
        for (system, machine) in [("Linux", "riscv64"), ("FreeBSD", "amd64"), ("Darwin", "powerpc")] {
            let there = Platform::of(&[system, machine, "other"]).expect("three words");
            assert!(choose(&WorkerBinary::ThisProgram, &there).is_err(), "{there}");
        }
    }
}
