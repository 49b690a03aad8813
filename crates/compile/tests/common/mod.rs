//! What the tests with a real toolkit share.
#![allow(dead_code)]

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use warpsmith_compile::*;

pub fn child() -> ChildCommand {
    ChildCommand::program(env!("CARGO_BIN_EXE_warpsmith-nvrtc-child"))
}

/// The platform's cache folder, where an earlier fetch may have left a toolkit.
fn user_cache() -> PathBuf {
    let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|h| PathBuf::from(h).join(".cache"));
    let windows = || std::env::var_os("LOCALAPPDATA").map(PathBuf::from);
    base.or_else(home).or_else(windows).unwrap_or_else(std::env::temp_dir).join("warpsmith")
}

fn found() -> Option<&'static Toolkit> {
    static FOUND: OnceLock<Option<Toolkit>> = OnceLock::new();
    FOUND
        .get_or_init(|| {
            let need = Need { min_version: Some(((12, 4), "these tests".into())), ..Need::default() };
            let search = Search {
                explicit: None,
                cache_dir: user_cache(),
                line: Line::V13,
                allow_fetch: false,
                need,
                child: child(),
            };
            find(&search).chosen
        })
        .as_ref()
}

/// A compiler with an empty cache of artifacts, or a visible word that the test is skipped.
pub fn with(test: &str, limits: Limits) -> Option<Compiler> {
    match found() {
        Some(toolkit) => Some(Compiler::new(toolkit.clone(), cache(), limits, child())),
        None => {
            eprintln!("{test}: skipped: no toolkit");
            None
        }
    }
}

pub fn toolkit(test: &str) -> Option<Compiler> {
    with(test, Limits::default())
}

/// A cache of its own, which goes away with the test's process.
fn cache() -> ArtifactCache {
    static FOLDER: OnceLock<tempfile::TempDir> = OnceLock::new();
    static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let folder = FOLDER.get_or_init(|| tempfile::tempdir().unwrap());
    let n = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    ArtifactCache::new(folder.path().join(n.to_string()))
}

pub fn request(source: &str) -> Request {
    Request {
        name: "mine.cu".into(),
        source: source.into(),
        include_root: None,
        builtin_headers: Arc::default(),
        defines: Vec::new(),
        options: CompileOptions::default(),
        entries: Vec::new(),
        target: "sm_89".into(),
        build: BuildKind::Release,
    }
}

pub fn entry(mut request: Request, name: &str) -> Request {
    request.entries = vec![name.into()];
    request
}

pub fn compile(compiler: &Compiler, request: &Request) -> Result<Artifact, CompileFailure> {
    compiler.compile(request).unwrap_or_else(|e| panic!("the environment failed: {e}"))
}

#[cfg(target_os = "linux")]
pub fn landlock() -> bool {
    // SAFETY: asks for the version only.
    unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0usize, 1u32) >= 1 }
}
