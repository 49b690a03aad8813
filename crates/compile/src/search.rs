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

/// What the machine says of itself; a test says something else.
#[derive(Debug, Clone, Default)]
pub(crate) struct Surroundings {
    /// Environment variables and the system's folder, in order.
    pub places: Vec<(Origin, PathBuf)>,
    /// Package folders of the running Python, asked for only if nothing before fits.
    pub python: Option<fn() -> Vec<PathBuf>>,
}

/// Looks in all places, in order.
pub fn find(search: &Search) -> Found {
    find_in(search, &Surroundings { places: places(), python: Some(python_packages) })
}

pub(crate) fn find_in(search: &Search, around: &Surroundings) -> Found {
    let mut found = Found::default();
    let mut consider = |origin: Origin, path: PathBuf, silent: bool| {
        match examine(search, origin, &path) {
            Ok(toolkit) => found.chosen = Some(toolkit),
            Err(_) if silent => {}
            Err(why) => found.rejected.push((origin, path, why)),
        }
        found.chosen.is_some()
    };
    if let Some(dir) = &search.explicit {
        consider(Origin::Option, dir.clone(), false);
        return found;
    }
    let done = around.places.iter().any(|(origin, path)| consider(*origin, path.clone(), false))
        // Most Pythons have no such packages: that is no news.
        || around.python.map_or_else(Vec::new, |ask| ask()).into_iter().any(|path| {
            let silent = !path.join("nvidia").is_dir();
            consider(Origin::Python, path, silent)
        });
    if !done {
        let _ = fetched(search).into_iter().any(|path| consider(Origin::Cache, path, false));
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

fn places() -> Vec<(Origin, PathBuf)> {
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

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use crate::fakes;

    fn search(cache: &Path, child: ChildCommand) -> Search {
        Search {
            explicit: None,
            cache_dir: cache.into(),
            line: Line::V13,
            allow_fetch: false,
            need: Need::default(),
            child,
        }
    }

    #[test]
    fn the_first_that_works_and_fits_is_taken_and_the_reasons_of_the_others_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let d = dir.path();
        let child = fakes::child(d);
        fakes::toolkit(&d.join("old"), "11.2.152");
        fakes::toolkit(&d.join("new"), "13.0.88");
        fakes::toolkit(&d.join("cache/toolkits/cuda-12.9.86-abc"), "12.9.86");
        std::fs::create_dir(d.join("empty")).unwrap();
        let around = Surroundings {
            places: vec![
                (Origin::CudaHome, d.join("nowhere")),
                (Origin::CudaPath, d.join("empty")),
                (Origin::System, d.join("old")),
                (Origin::Python, d.join("new")),
            ],
            python: None,
        };
        let mut s = search(&d.join("cache"), child);
        s.need = Need::of(&["sm_89".into()], []);
        let found = find_in(&s, &around);
        let toolkit = found.chosen.clone().unwrap();
        assert_eq!((toolkit.version, toolkit.origin), ((13, 0, 88), Origin::Python));
        let reasons = found.reasons();
        for (reason, want) in reasons.iter().zip(["no such folder", "no NVRTC", "too old: sm_89 needs 11.8"]) {
            assert!(reason.contains(want), "{reason}");
        }
        assert_eq!(reasons.len(), 3);

        // A driver of the 12 line takes the one of the cache, and says why not the newer one.
        s.need.driver = Some((12, 4));
        let found = find_in(&s, &around);
        assert_eq!(found.chosen.as_ref().map(|t| t.origin), Some(Origin::Cache));
        assert!(found.reasons()[3].contains("too new: the driver speaks CUDA 12.4"), "{:?}", found.reasons());
        s.need.driver = None;
        s.line = Line::V12;
        assert_eq!(find_in(&s, &around).chosen.map(|t| t.version.0), Some(12));

        // The one that was named is the only one that counts.
        s.explicit = Some(d.join("empty"));
        let found = find_in(&s, &around);
        assert!(found.chosen.is_none() && found.rejected.len() == 1 && found.rejected[0].0 == Origin::Option);
        assert!(matches!(find_or_fetch(&s, &mut |_| {}), Err(ToolError::BrokenToolkit { .. })));
    }

    #[test]
    fn each_layout_is_understood_and_the_id_names_versions_only() {
        let dir = tempfile::tempdir().unwrap();
        let d = dir.path();
        let child = fakes::child(d);
        fakes::toolkit(&d.join("plain"), "13.0.88");
        fakes::toolkit(&d.join("site/nvidia/cu13"), "13.0.88");
        fakes::split_toolkit(&d.join("site12"), "12.9.86");
        let s = search(&d.join("cache"), child);
        let look = |path: &str| examine(&s, Origin::Option, &d.join(path)).unwrap();
        let (plain, wheels, split) = (look("plain"), look("site"), look("site12"));
        assert_eq!(plain.id, wheels.id);
        assert_ne!(plain.id, split.id);
        assert_eq!(look("site/nvidia").id, plain.id);
        assert!(plain.id.0.starts_with("cuda-13.0.88-") && !plain.id.0.contains('/'));
        assert_eq!(split.include_dirs.len(), 2);
    }

    #[test]
    fn a_broken_one_is_passed_over_with_its_reason() {
        let dir = tempfile::tempdir().unwrap();
        let d = dir.path();
        let child = fakes::child(d);
        let s = search(&d.join("cache"), child);
        let rows: [(&str, fn(&Path), &str); 4] = [
            ("no ptxas", |t| std::fs::remove_file(t.join("bin/ptxas")).unwrap(), "no ptxas"),
            ("no library", |t| std::fs::remove_file(t.join("lib/libnvrtc.so.13")).unwrap(), "no NVRTC"),
            ("no headers", |t| std::fs::remove_dir_all(t.join("include")).unwrap(), "no headers"),
            ("ptxas of another system", |t| fakes::script(&t.join("bin/ptxas"), "exit 126"), "does not run"),
        ];
        for (what, damage, want) in rows {
            let t = d.join(what);
            fakes::toolkit(&t, "13.0.88");
            damage(&t);
            let why = examine(&s, Origin::System, &t).unwrap_err();
            assert!(why.contains(want), "{what}: {why}");
        }
        let silent = ChildCommand::program("/bin/true");
        fakes::toolkit(&d.join("silent"), "13.0.88");
        let why = examine(&Search { child: silent, ..s }, Origin::System, &d.join("silent")).unwrap_err();
        assert!(why.contains("NVRTC"), "{why}");
    }
}
