//! Fetches the pinned compiler packages into Warpsmith's cache: once, whole or not at all.
//!
//! Which packages there are is data (`pins/*.toml`): name, version, size and SHA-256 for each platform. Where they come from is the business
//! of the machine's own uv or pip and their settings ([`crate::installer`]); what came is checked there against the SHA-256.
//!
//! A folder `toolkits/cuda-VERSION-HASH` appears by rename when everything is in it and answers. Two processes take turns by a lock that the system
//! releases when its holder dies; what a killed one left behind is removed by the next.

use crate::error::ToolError;
use crate::installer::{self, Clients};
use crate::search::{self, Search};
use crate::toolkit::{Line, Origin, Toolkit, ToolkitId};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Longest wait for another process that fetches.
const LOCK_SECONDS: u64 = 1800;

/// What a fetch is doing, for a progress bar.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FetchEvent {
    /// Another process fetches the same; this one waits for it.
    Waiting,
    /// So many packages and bytes in all.
    Begin {
        line: String,
        packages: usize,
        bytes: u64,
    },
    /// Package `index` of `count`, counted from 1.
    Package {
        index: usize,
        count: usize,
        name: String,
        bytes: u64,
    },
    /// Bytes of the current package that have arrived, where the installer lets that be seen.
    Progress {
        index: usize,
        bytes: u64,
    },
    PackageDone {
        index: usize,
    },
    Done {
        id: ToolkitId,
        root: PathBuf,
    },
}

/// One line's packages.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Pins {
    pub version: String,
    #[serde(rename = "package")]
    pub packages: Vec<Package>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Package {
    pub name: String,
    pub version: String,
    /// What is kept, as beginnings of paths below `nvidia/NAME/`.
    pub keep: Vec<String>,
    /// By platform: `x86_64-linux`.
    pub wheel: BTreeMap<String, Wheel>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wheel {
    pub bytes: u64,
    pub sha256: String,
}

const PINS: [(Line, &str); 2] =
    [(Line::V13, include_str!("../pins/cuda-13.0.toml")), (Line::V12, include_str!("../pins/cuda-12.toml"))];

fn pins(line: Line) -> (Pins, String) {
    let (_, text) = PINS.iter().find(|(l, _)| *l == line).expect("each line has its table");
    let pins = toml::from_str(text).expect("the committed tables are tested");
    (pins, crate::request::sha256(text.as_bytes()))
}

/// Fetches the wanted line's packages and returns the toolkit. If they are here already, nothing is fetched.
pub fn fetch(search: &Search, progress: &mut dyn FnMut(FetchEvent)) -> Result<Toolkit, ToolError> {
    // A driver of the 12.x line loads no cubin of 13.x.
    let line = match search.need.driver {
        Some((12, _)) => Line::V12,
        _ => search.line,
    };
    let (pins, hash) = pins(line);
    fetch_with(search, &pins, &hash, &platform(), &Clients::of_this_machine, progress)
}

/// `x86_64-linux`, `aarch64-macos` ...
fn platform() -> String {
    format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS)
}

/// What there is to do where NVIDIA offers no packages.
fn what_remains() -> String {
    "Everything built in works here without a compiler; to compile your own kernels, let another machine do it (--on LAUNCHER), or name an installed toolkit \
     with --toolkit DIR"
        .into()
}

pub(crate) fn fetch_with(
    search: &Search,
    pins: &Pins,
    hash: &str,
    platform: &str,
    clients: &dyn Fn() -> Result<Clients, ToolError>,
    progress: &mut dyn FnMut(FetchEvent),
) -> Result<Toolkit, ToolError> {
    let wheels: Vec<(&Package, &Wheel)> =
        pins.packages.iter().filter_map(|p| Some((p, p.wheel.get(platform)?))).collect();
    if wheels.len() != pins.packages.len() {
        return Err(ToolError::NoPackages { platform: platform.to_owned(), next: what_remains() });
    }
    let clients = clients()?;
    let folder = search.cache_dir.join("toolkits");
    std::fs::create_dir_all(&folder).map_err(|e| ToolError::io("cannot make", &folder, e))?;
    let lock = lock(&folder.join(".lock"), progress)?;
    if lock.is_some() {
        sweep(&folder);
    }
    let place = folder.join(format!("cuda-{}-{}", pins.version, &hash[..8]));
    let check = |at: &Path| {
        let any = Search { need: Default::default(), line: Line::V13, ..search.clone() };
        search::examine(&any, Origin::Cache, at).map_err(|why| ToolError::BrokenToolkit { path: at.to_path_buf(), why })
    };
    if place.is_dir() {
        // Another process was faster, or what is there did not fit this search.
        if let Ok(toolkit) = check(&place) {
            return fits(search, toolkit);
        }
        std::fs::remove_dir_all(&place).map_err(|e| ToolError::io("cannot remove the broken toolkit", &place, e))?;
    }

    let bytes = wheels.iter().map(|(_, w)| w.bytes).sum();
    progress(FetchEvent::Begin { line: pins.version.clone(), packages: wheels.len(), bytes });
    let staging = tempfile::Builder::new()
        .prefix(".staging-")
        .tempdir_in(&folder)
        .map_err(|e| ToolError::io("cannot make a folder in", &folder, e))?;
    let target = staging.path().join("packages");
    let scratch = staging.path().join("tmp");
    // Each package into a folder of its own: pip replaces a folder that two packages share.
    let one = staging.path().join("one");
    let make = |dir: &Path| std::fs::create_dir_all(dir).map_err(|e| ToolError::io("cannot make", dir, e));
    make(&target)?;
    make(&scratch)?;
    let needed_mb = (bytes >> 20) * 4;
    for (i, (package, wheel)) in wheels.iter().enumerate() {
        let index = i + 1;
        progress(FetchEvent::Package {
            index,
            count: wheels.len(),
            name: format!("{} {}", package.name, package.version),
            bytes: wheel.bytes,
        });
        let mut shown = 0;
        let mut tick = || {
            let now = size_of(&scratch).min(wheel.bytes);
            if now > shown {
                shown = now;
                progress(FetchEvent::Progress { index, bytes: now });
            }
        };
        installer::install(&clients, package, wheel, &one, &scratch, &mut tick).map_err(|e| match e {
            ToolError::NoSpace { .. } => ToolError::NoSpace { path: folder.clone(), needed_mb: Some(needed_mb) },
            ToolError::NoPermission { .. } => ToolError::NoPermission { path: folder.clone() },
            e => e,
        })?;
        // At once, so that the disk never holds more than one package's surplus.
        prune(&one, &pins.packages)?;
        merge(&one, &target)?;
        let _ = std::fs::remove_dir_all(&scratch);
        make(&scratch)?;
        progress(FetchEvent::PackageDone { index });
    }
    check(&target).map_err(|e| match e {
        ToolError::BrokenToolkit { why, .. } => ToolError::FetchedBroken { why },
        e => e,
    })?;
    if let Err(e) = std::fs::rename(&target, &place) {
        // Where there are no locks another process may have been faster: then its toolkit is as good.
        check(&place).map_err(|_| ToolError::io("cannot put the toolkit in its place", &place, e))?;
    }
    let toolkit = fits(search, check(&place)?)?;
    progress(FetchEvent::Done { id: toolkit.id.clone(), root: place });
    Ok(toolkit)
}

/// What was fetched is what this version pins; a candidate or a driver may still want another.
fn fits(search: &Search, toolkit: Toolkit) -> Result<Toolkit, ToolError> {
    match search.need.objection(toolkit.version, &toolkit.architectures) {
        None => Ok(toolkit),
        Some(why) => Err(ToolError::NoToolkit {
            reasons: vec![why],
            next: "Name another toolkit with --toolkit DIR, or another line with --toolkit-line".into(),
        }),
    }
}

/// A lock that its holder's end gives up at once. Closing the file is not enough for that: a process that another thread is starting has a copy
/// of it until it becomes the program it shall be.
struct Held(File);

impl Drop for Held {
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

fn open_lock(path: &Path) -> Result<File, ToolError> {
    let opened = File::options().create(true).truncate(false).write(true).open(path);
    opened.map_err(|e| ToolError::io("cannot write", path, e))
}

fn lock(path: &Path, progress: &mut dyn FnMut(FetchEvent)) -> Result<Option<Held>, ToolError> {
    let file = open_lock(path)?;
    let start = Instant::now();
    let mut told = false;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(Some(Held(file))),
            Err(TryLockError::WouldBlock) => {
                if !told {
                    progress(FetchEvent::Waiting);
                    told = true;
                }
                if start.elapsed() > Duration::from_secs(LOCK_SECONDS) {
                    return Err(ToolError::Locked { path: path.to_path_buf(), seconds: LOCK_SECONDS });
                }
                std::thread::sleep(Duration::from_millis(200));
            }
            // Some network file systems know no locks; the rename at the end still lets only whole toolkits appear.
            Err(TryLockError::Error(_)) => return Ok(None),
        }
    }
}

/// Removes what killed fetches left; the lock says that none is running.
fn sweep(folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(".staging-") {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// Removes from `nvidia/NAME/` what no package wants kept. Licences lie outside, in `*.dist-info`.
fn prune(target: &Path, packages: &[Package]) -> Result<(), ToolError> {
    let wanted = |path: &str| {
        packages.iter().flat_map(|p| &p.keep).any(|k| path.starts_with(k.as_str())) && !path.contains(".alt.")
    };
    let nvidia = target.join("nvidia");
    let mut folders: Vec<(PathBuf, String)> = Vec::new();
    for entry in std::fs::read_dir(&nvidia).into_iter().flatten().flatten().filter(|e| e.path().is_dir()) {
        folders.push((entry.path(), String::new()));
    }
    while let Some((folder, below)) = folders.pop() {
        for entry in std::fs::read_dir(&folder).map_err(|e| ToolError::io("cannot read", &folder, e))?.flatten() {
            let name = format!("{below}{}", entry.file_name().to_string_lossy());
            let path = entry.path();
            let is_dir = entry.file_type().is_ok_and(|t| t.is_dir());
            // A folder of which nothing below can be wanted goes as a whole.
            if is_dir
                && packages
                    .iter()
                    .flat_map(|p| &p.keep)
                    .any(|k| k.starts_with(&format!("{name}/")) || format!("{name}/").starts_with(k.as_str()))
            {
                folders.push((path, format!("{name}/")));
            } else if is_dir {
                std::fs::remove_dir_all(&path).map_err(|e| ToolError::io("cannot remove", &path, e))?;
            } else if !wanted(&name) {
                std::fs::remove_file(&path).map_err(|e| ToolError::io("cannot remove", &path, e))?;
            }
        }
    }
    Ok(())
}

/// Moves all files below one folder into another.
fn merge(from: &Path, into: &Path) -> Result<(), ToolError> {
    std::fs::create_dir_all(into).map_err(|e| ToolError::io("cannot make", into, e))?;
    for entry in std::fs::read_dir(from).map_err(|e| ToolError::io("cannot read", from, e))?.flatten() {
        let (path, to) = (entry.path(), into.join(entry.file_name()));
        if entry.file_type().is_ok_and(|t| t.is_dir()) {
            merge(&path, &to)?;
        } else {
            std::fs::rename(&path, &to).map_err(|e| ToolError::io("cannot move", &path, e))?;
        }
    }
    std::fs::remove_dir_all(from).map_err(|e| ToolError::io("cannot remove", from, e))
}

fn size_of(folder: &Path) -> u64 {
    let mut total = 0;
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            match entry.metadata() {
                Ok(meta) if meta.is_dir() => folders.push(entry.path()),
                Ok(meta) => total += meta.len(),
                Err(_) => {}
            }
        }
    }
    total
}

#[cfg(test)]
#[path = "fetch_tests.rs"]
mod tests;
