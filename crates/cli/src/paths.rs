//! Where things lie on this machine.

use crate::args::Common;
use std::path::{Path, PathBuf};
use warpsmith_store::stamp_now;

/// The cache: the platform's standard folder for caches, else a folder beside the runs.
pub fn cache_dir() -> PathBuf {
    dirs::cache_dir().unwrap_or_else(|| PathBuf::from("runs/.cache")).join("warpsmith")
}

/// The run's folder: `--out`, else `./runs/STAMP-NAME`, with a number where two runs begin in one second.
pub fn run_dir(common: &Common, name: &str) -> PathBuf {
    if let Some(out) = &common.out {
        return out.clone();
    }
    let stem = format!("{}-{name}", stamp_now());
    let runs = Path::new("runs");
    let mut path = runs.join(&stem);
    let mut n = 2;
    while path.exists() {
        path = runs.join(format!("{stem}-{n}"));
        n += 1;
    }
    path
}
