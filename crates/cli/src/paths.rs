//! Where things lie on this machine.

use crate::args::Common;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use warpsmith_store::stamp_now;

/// The cache: the platform's standard folder for caches, else a folder beside the runs.
pub fn cache_dir() -> PathBuf {
    dirs::cache_dir().unwrap_or_else(|| PathBuf::from("runs/.cache")).join("warpsmith")
}

/// The folder that this process has taken for its run, empty until the run is written, and whether `runs` was made for it.
static TAKEN: OnceLock<(PathBuf, bool)> = OnceLock::new();

/// The run's folder: `--out`, else `./runs/STAMP-NAME`, with a number where two runs begin in one second. The latter is made at once, empty, so that
/// no other process takes it.
pub fn run_dir(common: &Common, name: &str) -> PathBuf {
    if let Some(out) = &common.out {
        return out.clone();
    }
    let stem = format!("{}-{name}", stamp_now());
    let runs = Path::new("runs");
    let is_new = !runs.exists();
    // That nothing can be written here is said by who writes the run.
    let _ = fs::create_dir_all(runs);
    let mut path = runs.join(&stem);
    let mut n = 2;
    loop {
        match fs::create_dir(&path) {
            Err(e) if e.kind() == ErrorKind::AlreadyExists => path = runs.join(format!("{stem}-{n}")),
            Err(_) => return path,
            Ok(()) => {
                let _ = TAKEN.set((path.clone(), is_new));
                return path;
            }
        }
        n += 1;
    }
}

/// At the process's end: a folder that no run was written to goes away.
pub fn give_back() {
    if let Some((path, is_new)) = TAKEN.get()
        && fs::remove_dir(path).is_ok()
        && *is_new
    {
        let _ = fs::remove_dir("runs");
    }
}
