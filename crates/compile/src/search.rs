//! The search for a toolkit: `--toolkit DIR`, CUDA_HOME and CUDA_PATH, the system's folder, the running Python's packages, Warpsmith's cache.
//!
//! The first that works and fits is taken; why each other one was passed over is kept.

use crate::child::ChildCommand;
use crate::error::ToolError;
use crate::fetch::{self, FetchEvent};
use crate::layout;
use crate::probe;
use crate::process::{self, Bounds};
use crate::toolkit::{Line, Need, Origin, Toolkit};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What is looked for, and where.
#[derive(Debug, Clone)]
pub struct Search {
    /// `--toolkit DIR`: nothing else is looked at.
    pub explicit: Option<PathBuf>,
    /// Warpsmith's cache folder; toolkits lie in `toolkits/` below it.
    pub cache_dir: PathBuf,
    pub line: Line,
    /// Whether packages may be fetched if nothing fits.
    pub allow_fetch: bool,
    pub need: Need,
    /// How to start the process that runs NVRTC.
    pub child: ChildCommand,
}

/// What the search gave.
#[derive(Debug, Clone, Default)]
pub struct Found {
    pub chosen: Option<Toolkit>,
    /// Each place that was looked at before, or instead, and why it was passed over.
    pub rejected: Vec<(Origin, PathBuf, String)>,
}

impl Found {
    /// `CUDA_HOME (/opt/cuda): version 11.2 is too old: ...`
    pub fn reasons(&self) -> Vec<String> {
        self.rejected.iter().map(|(origin, path, why)| format!("{origin} ({}): {why}", path.display())).collect()
    }
}

/// Looks in all places, in order.
pub fn find(search: &Search) -> Found {
    let mut found = Found::default();
    for (origin, path) in places(search) {
        match examine(search, origin, &path) {
            Ok(toolkit) => {
                found.chosen = Some(toolkit);
                return found;
            }
            Err(why) => found.rejected.push((origin, path, why)),
        }
    }
    if search.explicit.is_none() {
        for path in python_packages() {
            // Most Pythons have no such packages: that is no news.
            match examine(search, Origin::Python, &path) {
                Ok(toolkit) => {
                    found.chosen = Some(toolkit);
                    return found;
                }
                Err(why) if path.join("nvidia").is_dir() => found.rejected.push((Origin::Python, path, why)),
                Err(_) => {}
            }
        }
        for path in fetched(search) {
            match examine(search, Origin::Cache, &path) {
                Ok(toolkit) => {
                    found.chosen = Some(toolkit);
                    return found;
                }
                Err(why) => found.rejected.push((Origin::Cache, path, why)),
            }
        }
    }
    found
}

/// The toolkit that fits; if none does and it is allowed, one is fetched.
pub fn find_or_fetch(search: &Search, progress: &mut dyn FnMut(FetchEvent)) -> Result<Toolkit, ToolError> {
    let found = find(search);
    if let Some(toolkit) = found.chosen {
        return Ok(toolkit);
    }
    if let Some(dir) = &search.explicit {
        let why = found.rejected.into_iter().next().map_or_else(String::new, |(_, _, why)| why);
        return Err(ToolError::BrokenToolkit { path: dir.clone(), why });
    }
    if !search.allow_fetch {
        let next = "Everything built in works without one. For your own kernels let Warpsmith fetch the compiler (warpsmith toolkit --fetch), \
                    or name an installed one with --toolkit DIR";
        return Err(ToolError::NoToolkit { reasons: found.reasons(), next: next.into() });
    }
    fetch::fetch(search, progress)
}

/// Whether this folder holds a toolkit that works and fits.
pub(crate) fn examine(search: &Search, origin: Origin, path: &Path) -> Result<Toolkit, String> {
    let absolute = std::path::absolute(path).map_err(|e| e.to_string())?;
    let parts = layout::discover(&absolute)?;
    let toolkit = probe::probe(parts, &absolute, origin, &search.cache_dir, &search.child)?;
    if search.line == Line::V12 && toolkit.version.0 > 12 && origin != Origin::Option {
        return Err(format!(
            "version {}.{} is not of the 12 line that was asked for",
            toolkit.version.0, toolkit.version.1
        ));
    }
    match search.need.objection(toolkit.version, &toolkit.architectures) {
        Some(why) => Err(why),
        None => Ok(toolkit),
    }
}

fn places(search: &Search) -> Vec<(Origin, PathBuf)> {
    if let Some(dir) = &search.explicit {
        return vec![(Origin::Option, dir.clone())];
    }
    let mut places = Vec::new();
    for (origin, name) in [(Origin::CudaHome, "CUDA_HOME"), (Origin::CudaPath, "CUDA_PATH")] {
        if let Some(path) = std::env::var_os(name).filter(|v| !v.is_empty()) {
            places.push((origin, PathBuf::from(path)));
        }
    }
    // On Windows the installer sets CUDA_PATH.
    let system = Path::new("/usr/local/cuda");
    if system.is_dir() {
        places.push((Origin::System, system.to_path_buf()));
    }
    places
}

/// Package folders of the Python that `python3` starts.
fn python_packages() -> Vec<PathBuf> {
    const SCRIPT: &str = "import site, sys\n\
        found = list(sys.path) + (site.getsitepackages() if hasattr(site, 'getsitepackages') else []) + [site.getusersitepackages()]\n\
        sys.stdout.write('\\n'.join(dict.fromkeys(p for p in found if p)))";
    for python in ["python3", "python"] {
        let mut command = Command::new(python);
        command.args(["-c", SCRIPT]).env("PYTHONIOENCODING", "utf-8");
        let bounds = Bounds { seconds: 10, memory_bytes: None, output_bytes: 1 << 20 };
        if let Ok(ended) = process::run(command, Vec::new(), bounds, &mut || {})
            && ended.status.success()
        {
            return ended.stdout_text().lines().map(PathBuf::from).filter(|p| p.is_absolute() && p.is_dir()).collect();
        }
    }
    Vec::new()
}

/// Toolkits that were fetched before; that of the wanted line first.
fn fetched(search: &Search) -> Vec<PathBuf> {
    let folder = search.cache_dir.join("toolkits");
    let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
    let mut found: Vec<String> =
        entries.filter_map(|e| e.file_name().into_string().ok()).filter(|n| n.starts_with("cuda-")).collect();
    let wanted = format!("cuda-{}.", search.line.major());
    found.sort_by_key(|n| (!n.starts_with(&wanted), std::cmp::Reverse(n.clone())));
    found.into_iter().map(|n| folder.join(n)).collect()
}
