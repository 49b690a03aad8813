//! The machine's own package installers, uv and pip, as far as they are needed: one pinned wheel into a folder, and a plain word when that fails.
//!
//! Their settings (index, proxy, certificates, cache) are theirs and the user's; nothing here names a host. Messages are read by their words, in
//! the C locale: pip 20 to 25, uv 0.4 to 0.13.

use crate::error::ToolError;
use crate::fetch::{Package, Wheel};
use crate::process::{self, Bounds};
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

/// Longest time for one package.
const SECONDS: u64 = 1800;

/// One installer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Client {
    pub kind: Kind,
    pub program: OsString,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Uv,
    /// The program is a Python.
    Pip,
}

/// All installers there are, in the order in which they are tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Clients(pub Vec<Client>);

impl Clients {
    pub fn of_this_machine() -> Result<Clients, ToolError> {
        let tried = [(Kind::Uv, "uv"), (Kind::Pip, "python3"), (Kind::Pip, "python")];
        let mut found: Vec<Client> = Vec::new();
        for (kind, program) in tried {
            let client = Client { kind, program: program.into() };
            if !found.iter().any(|f| f.kind == kind) && client.answers() {
                found.push(client);
            }
        }
        if found.is_empty() {
            return Err(ToolError::NoInstaller { tried: "uv, python3 -m pip, python -m pip".into() });
        }
        Ok(Clients(found))
    }
}

impl Client {
    fn name(&self) -> &'static str {
        match self.kind {
            Kind::Uv => "uv",
            Kind::Pip => "pip",
        }
    }

    fn answers(&self) -> bool {
        let mut command = Command::new(&self.program);
        match self.kind {
            Kind::Uv => command.arg("--version"),
            Kind::Pip => command.args(["-m", "pip", "--version"]),
        };
        let bounds = Bounds { seconds: 30, memory_bytes: None, output_bytes: 64 << 10 };
        process::run(command, Vec::new(), bounds, &mut || {}).is_ok_and(|e| e.status.success())
    }

    fn command(&self, requirements: &Path, target: &Path) -> Command {
        let mut command = Command::new(&self.program);
        match self.kind {
            // Copies: links would tie the toolkit to uv's own cache.
            Kind::Uv => command.args(["pip", "install", "--no-progress", "--color", "never", "--link-mode", "copy"]),
            // A user's setting of --user does not go together with --target.
            Kind::Pip => command.args([
                "-m",
                "pip",
                "install",
                "--no-input",
                "--disable-pip-version-check",
                "--progress-bar",
                "off",
                "--no-user",
                "--no-color",
            ]),
        };
        command
            .args(["--require-hashes", "--no-deps", "--only-binary", ":all:", "--upgrade", "--target"])
            .arg(target)
            .arg("--requirement")
            .arg(requirements);
        command
    }
}

/// Installs one wheel with the first client that can. The error is that which says most.
pub(crate) fn install(
    clients: &Clients,
    package: &Package,
    wheel: &Wheel,
    target: &Path,
    scratch: &Path,
    tick: &mut dyn FnMut(),
) -> Result<(), ToolError> {
    let requirements = scratch.with_extension("requirements.txt");
    let line = format!("{}=={} --hash=sha256:{}\n", package.name, package.version, wheel.sha256);
    let mut worst: Option<ToolError> = None;
    for client in &clients.0 {
        std::fs::write(&requirements, &line).map_err(|e| ToolError::io("cannot write", &requirements, e))?;
        let mut command = client.command(&requirements, target);
        // Beside the cache, so that what is downloaded goes away with it.
        command.envs(["TMPDIR", "TEMP", "TMP"].map(|v| (v, scratch.as_os_str())));
        command.env("LC_ALL", "C.UTF-8").env("PYTHONIOENCODING", "utf-8").env("NO_COLOR", "1");
        let bounds = Bounds { seconds: SECONDS, memory_bytes: None, output_bytes: 1 << 20 };
        let ended = process::run(command, Vec::new(), bounds, tick)?;
        if ended.status.success() && !ended.timed_out {
            return Ok(());
        }
        let said = format!("{}\n{}", ended.stderr_text(), ended.stdout_text());
        let error = if ended.timed_out {
            ToolError::Installer {
                client: client.name().into(),
                package: package.name.clone(),
                detail: format!("it took longer than {SECONDS} s"),
            }
        } else {
            classify(client.name(), &format!("{} {}", package.name, package.version), &said, &ended.how())
        };
        let final_word = matches!(error, ToolError::NoSpace { .. } | ToolError::NoPermission { .. });
        if worst.as_ref().is_none_or(|w| rank(&error) > rank(w)) {
            worst = Some(error);
        }
        if final_word {
            break;
        }
    }
    Err(worst.unwrap_or(ToolError::NoInstaller { tried: String::new() }))
}

fn rank(error: &ToolError) -> u32 {
    match error {
        ToolError::NoSpace { .. } | ToolError::NoPermission { .. } => 5,
        ToolError::Altered { .. } => 4,
        ToolError::NoNetwork { .. } => 3,
        ToolError::NotOffered { .. } => 2,
        _ => 1,
    }
}

/// Words, lower case, that tell what went wrong; the first group that has one of them decides.
const ALTERED: &[&str] = &[
    "do not match the hashes",
    "hash mismatch",
    "hashes mismatch",
    "bad zip",
    "badzipfile",
    "not a zip file",
    "invalid zip",
    "is not a valid wheel",
    "has an invalid wheel",
    "invalid wheel",
    "wheel is invalid",
    "end of central directory",
    "failed to extract",
    "bad crc",
    "crc-32",
    "bad magic number",
    "unexpected end of file",
    "corrupt",
    "failed to read from zip",
];
const NO_SPACE: &[&str] = &[
    "no space left",
    "errno 28",
    "os error 28",
    "disk quota exceeded",
    "not enough space",
    "os error 112",
    "os error 122",
    "errno 122",
];
const NO_PERMISSION: &[&str] = &[
    "permission denied",
    "errno 13",
    "os error 13",
    "read-only file system",
    "os error 30",
    "errno 30",
    "access is denied",
];
const NO_NETWORK: &[&str] = &[
    "name or service not known",
    "name resolution",
    "getaddrinfo",
    "dns error",
    "failed to lookup address",
    "network is unreachable",
    "no route to host",
    "connection refused",
    "connection reset",
    "connection broken",
    "incompleteread",
    "connect timeout",
    "connecttimeout",
    "timed out",
    "timeout",
    "max retries exceeded",
    "error sending request",
    "tcp connect error",
    "failed to establish a new connection",
    "proxyerror",
    "could not connect",
    "connectivity is disabled",
    "failed to fetch",
    "error decoding response body",
    "ssl",
    "certificate",
    "network failure",
    "offline",
];
const NOT_OFFERED: &[&str] = &[
    "no matching distribution",
    "could not find a version",
    "no solution found",
    "not found in the package registry",
    "is not a supported wheel",
    "no wheels",
    "has no wheels",
    "not found",
];

fn classify(client: &str, package: &str, said: &str, how: &str) -> ToolError {
    let lower = said.to_lowercase();
    let has = |words: &[&str]| words.iter().any(|w| lower.contains(w));
    let (client, package) = (client.to_owned(), package.to_owned());
    let pick = |words: &[&str]| detail(said, words);
    if has(NO_SPACE) {
        ToolError::NoSpace { path: Default::default(), needed_mb: None }
    } else if has(ALTERED) {
        ToolError::Altered { detail: pick(ALTERED), client, package }
    } else if has(NO_NETWORK) {
        ToolError::NoNetwork { detail: pick(NO_NETWORK), client }
    } else if has(NO_PERMISSION) {
        ToolError::NoPermission { path: Default::default() }
    } else if has(NOT_OFFERED) {
        ToolError::NotOffered { detail: pick(NOT_OFFERED), client, package }
    } else {
        let last = said.lines().rfind(|l| !l.trim().is_empty()).unwrap_or(how);
        ToolError::Installer { detail: shorten(last), client, package }
    }
}

/// The words that told; whole lines are long and may hold the address of a private index.
fn detail(said: &str, words: &[&str]) -> String {
    let lower = said.to_lowercase();
    words.iter().find(|w| lower.contains(**w)).map_or_else(String::new, |w| (*w).to_owned())
}

fn shorten(line: &str) -> String {
    let hidden: Vec<String> = line
        .split_whitespace()
        .map(
            |word| {
                if word.contains("://") || word.contains("host=") { "<address>".to_owned() } else { word.to_owned() }
            },
        )
        .collect();
    let text = hidden.join(" ");
    text.trim_start_matches(['×', '╰', '─', '▶', ' ']).chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_has_its_own_word() {
        let rows: &[(&str, &str)] = &[
            (
                "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE. If you have updated",
                "altered-package",
            ),
            ("error: Hash mismatch for `nvidia-cuda-nvrtc==13.0.88`", "altered-package"),
            ("ERROR: Wheel 'x' located at /t/x.whl is invalid.", "installer-failed"),
            ("zipfile.BadZipFile: File is not a zip file", "altered-package"),
            (
                "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device",
                "no-disk-space",
            ),
            ("  Caused by: No space left on device (os error 28)", "no-disk-space"),
            (
                "ERROR: Could not install packages due to an OSError: [Errno 13] Permission denied: '/x'",
                "no-permission",
            ),
            (
                "WARNING: Retrying after connection broken by 'NewConnectionError: Failed to establish a new connection: [Errno -3] Temporary failure in name resolution'\n\
                 ERROR: Could not find a version that satisfies the requirement x==1\nERROR: No matching distribution found for x==1",
                "no-network",
            ),
            (
                "error: Request failed after 3 retries\n  Caused by: error sending request for url (https://a.b/c)\n  Caused by: dns error",
                "no-network",
            ),
            ("ERROR: No matching distribution found for nvidia-cuda-nvrtc==13.0.88", "package-not-offered"),
            ("something else", "installer-failed"),
        ];
        for (said, code) in rows {
            let error = classify("pip", "p 1", said, "exit code 1");
            assert_eq!(error.code(), *code, "{said}");
            assert!(!error.to_string().contains("://"), "an address shows: {error}");
        }
    }
}
