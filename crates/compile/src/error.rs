//! What can go wrong with the tool and its environment, each with what to do next. A bad kernel is never one of these.

use std::path::PathBuf;

/// The environment failed, not the candidate.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    #[error("no CUDA toolkit fits{}{}. {next}", if .reasons.is_empty() { "" } else { ": " }, .reasons.join("; "))]
    NoToolkit { reasons: Vec<String>, next: String },

    #[error("there are no CUDA compiler packages for {platform}. {next}")]
    NoPackages { platform: String, next: String },

    #[error(
        "neither uv nor pip is here to fetch the CUDA compiler with ({tried}). Install uv, or Python 3 with pip \
         (python3 -m ensurepip), or name a toolkit with --toolkit DIR"
    )]
    NoInstaller { tried: String },

    #[error(
        "no network: {client} could not reach its package index ({detail}). Connect, or name a toolkit with --toolkit DIR"
    )]
    NoNetwork { client: String, detail: String },

    #[error(
        "the package {package} arrived truncated or altered: it is not what its pinned SHA-256 says ({client}: {detail}). Nothing of it was \
         kept. Clear {client}'s cache and run again"
    )]
    Altered { client: String, package: String, detail: String },

    #[error("{client}'s package index has no {package} for this machine ({detail}). Name a toolkit with --toolkit DIR")]
    NotOffered { client: String, package: String, detail: String },

    #[error(
        "no space left on the disk of {}{}. Make room, or choose another disk by the platform's cache folder (XDG_CACHE_HOME)",
        path.display(), match .needed_mb { Some(n) => format!(" (the toolkit needs about {n} MB)"), None => String::new() }
    )]
    NoSpace { path: PathBuf, needed_mb: Option<u64> },

    #[error("no permission to write under {}. Make it writable, or choose another by the platform's cache folder (XDG_CACHE_HOME)", path.display())]
    NoPermission { path: PathBuf },

    #[error("{client} failed on {package}: {detail}. Try its command by hand, or name a toolkit with --toolkit DIR")]
    Installer { client: String, package: String, detail: String },

    #[error("another Warpsmith has been fetching the toolkit into {} for {seconds} s. Wait for it, or remove that file if none runs", path.display())]
    Locked { path: PathBuf, seconds: u64 },

    #[error("the toolkit in {} does not work: {why}. Name another with --toolkit DIR, or remove it (warpsmith cache clean)", path.display())]
    BrokenToolkit { path: PathBuf, why: String },

    #[error(
        "the fetched CUDA compiler does not work: {why}. Nothing of it was kept. Run again, or name a toolkit with --toolkit DIR"
    )]
    FetchedBroken { why: String },

    #[error("cannot run {}: {why}", path.display())]
    Spawn { path: PathBuf, why: String },

    #[error(
        "the compiler's process did not answer: {why}. Run again; if it stays, name another toolkit with --toolkit DIR"
    )]
    Child { why: String },

    #[error("{what} {}: {error}", path.display())]
    Io { what: &'static str, path: PathBuf, error: std::io::Error },

    /// Another machine was to compile.
    #[error("compiling on the other machine failed: {why}. Next: {next}")]
    Elsewhere { why: String, next: String },

    #[error("{what}")]
    BadRequest { what: String },

    #[error("the committed layer of artifacts is damaged: {why}. Build it again with `cargo xtask layer`")]
    Layer { why: String },
}

impl ToolError {
    /// kebab-case id for the record and for `warpsmith explain`.
    pub fn code(&self) -> &'static str {
        match self {
            ToolError::NoToolkit { .. } => "no-toolkit",
            ToolError::NoPackages { .. } => "no-toolkit-packages",
            ToolError::NoInstaller { .. } => "no-installer",
            ToolError::NoNetwork { .. } => "no-network",
            ToolError::Altered { .. } => "altered-package",
            ToolError::NotOffered { .. } => "package-not-offered",
            ToolError::NoSpace { .. } => "no-disk-space",
            ToolError::NoPermission { .. } => "no-permission",
            ToolError::Installer { .. } => "installer-failed",
            ToolError::Locked { .. } => "toolkit-locked",
            ToolError::BrokenToolkit { .. } => "broken-toolkit",
            ToolError::FetchedBroken { .. } => "fetched-toolkit-broken",
            ToolError::Spawn { .. } => "cannot-run",
            ToolError::Child { .. } => "compiler-process",
            ToolError::Io { .. } => "io",
            ToolError::Elsewhere { .. } => "tool-failure",
            ToolError::BadRequest { .. } => "bad-request",
            ToolError::Layer { .. } => "damaged-layer",
        }
    }

    /// Turns what the system says of a file into the error that helps: full disk and missing permission have their own.
    pub fn io(what: &'static str, path: impl Into<PathBuf>, error: std::io::Error) -> ToolError {
        let path = path.into();
        match error.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
                ToolError::NoSpace { path, needed_mb: None }
            }
            std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem => {
                ToolError::NoPermission { path }
            }
            _ => ToolError::Io { what, path, error },
        }
    }
}
