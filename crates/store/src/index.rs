//! An index of the runs in a folder: one entry of any type for each run, made from its journal, kept in a file that can be thrown away.
//!
//! The journals are the truth: an entry whose journal has another size or time is made again, and so is the whole index when its file is
//! missing, damaged or of another version. SQLite was weighed and left out: compiling its bundled source takes 44 s of one core (gcc -O2,
//! libsqlite3-sys 0.35), which every clean build would pay.
//! Limits: 10,000 runs, 64 MiB of index.

use crate::atomic::write_atomic;
use crate::journal::read_journal;
use crate::loaded::LoadedRun;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::UNIX_EPOCH;

const FILE: &str = ".index.json";
const VERSION: u32 = 1;
const MAX_RUNS: usize = 10_000;
const MAX_INDEX_BYTES: u64 = 64 << 20;

#[derive(Serialize, Deserialize)]
struct Stored<T> {
    version: u32,
    runs: BTreeMap<String, Entry<T>>,
}

#[derive(Clone, Serialize, Deserialize)]
struct Entry<T> {
    bytes: u64,
    nanos: u128,
    gpu_seconds: Option<f64>,
    value: T,
}

/// A folder that looks like a run and cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexNote {
    pub folder: String,
    pub why: String,
}

/// Runs by their folder's name, which begins with the time of their start.
#[derive(Debug, Clone)]
pub struct RunIndex<T> {
    pub runs: Vec<(String, T)>,
    /// For how long a GPU was held, by folder's name.
    pub gpu_seconds: BTreeMap<String, f64>,
    pub notes: Vec<IndexNote>,
    /// Entries that were made now, and those taken from the index.
    pub read: usize,
    pub kept: usize,
}

impl<T: Clone + Serialize + DeserializeOwned> RunIndex<T> {
    /// The runs below `folder`; `line` makes an entry of a run. What cannot be read is noted, and hinders nothing else. That the index
    /// cannot be written costs time only.
    ///
    /// # Errors
    /// There is no such folder.
    pub fn open(folder: &Path, line: impl Fn(&LoadedRun) -> T) -> Result<RunIndex<T>, std::io::Error> {
        let path = folder.join(FILE);
        let mut names: Vec<String> = fs::read_dir(folder)?
            .flatten()
            .filter(|e| e.file_type().is_ok_and(|t| t.is_dir()) && e.path().join("journal.jsonl").is_file())
            .map(|e| e.file_name().to_string_lossy().into_owned())
            .filter(|n| !n.starts_with('.'))
            .collect();
        names.sort();
        let mut old = stored(&path);
        let mut found =
            RunIndex { runs: Vec::new(), gpu_seconds: BTreeMap::new(), notes: Vec::new(), read: 0, kept: 0 };
        let mut runs = BTreeMap::new();
        for name in names.into_iter().rev().take(MAX_RUNS).collect::<Vec<_>>().into_iter().rev() {
            let run = folder.join(&name);
            let (bytes, nanos) = stamp(&run.join("journal.jsonl"));
            let entry = match old.remove(&name).filter(|e| (e.bytes, e.nanos) == (bytes, nanos)) {
                Some(entry) => {
                    found.kept += 1;
                    entry
                }
                None => match LoadedRun::open(&run) {
                    Ok(loaded) => {
                        found.read += 1;
                        Entry { bytes, nanos, gpu_seconds: gpu_seconds(&loaded), value: line(&loaded) }
                    }
                    Err(e) => {
                        found.notes.push(IndexNote { folder: name, why: e.to_string() });
                        continue;
                    }
                },
            };
            found.gpu_seconds.extend(entry.gpu_seconds.map(|s| (name.clone(), s)));
            found.runs.push((name.clone(), entry.value.clone()));
            runs.insert(name, entry);
        }
        if found.read > 0 || !old.is_empty() {
            let text = serde_json::to_vec(&Stored { version: VERSION, runs }).unwrap_or_default();
            let _ = write_atomic(&path, &text);
        }
        Ok(found)
    }
}

/// For how long a run held a GPU: what its launchers ran, else from its first event to its last. None where it had none.
pub fn gpu_seconds(run: &LoadedRun) -> Option<f64> {
    // A device that figures were only replayed of was not held.
    run.record.results.iter().find(|r| r.backend == "gpu")?;
    if let Some(remote) = &run.record.environment.remote {
        return Some(remote.held_seconds).filter(|s| s.is_finite() && *s >= 0.0);
    }
    let journal = run.path.join("journal.jsonl");
    // Only what can be folded is a journal; its lines' times are then sound.
    read_journal(&journal).ok()?;
    let text = fs::read_to_string(&journal).ok()?;
    let at = |line: &str| {
        let value: serde_json::Value = serde_json::from_str(line).ok()?;
        humantime::parse_rfc3339(value.get("at")?.as_str()?).ok()
    };
    let (first, last) = (at(text.lines().next()?)?, text.lines().rev().find_map(at)?);
    last.duration_since(first).ok().map(|d| d.as_secs_f64())
}

fn stored<T: DeserializeOwned>(path: &Path) -> BTreeMap<String, Entry<T>> {
    if !fs::metadata(path).is_ok_and(|m| m.len() <= MAX_INDEX_BYTES) {
        return BTreeMap::new();
    }
    let read = fs::read(path).ok().and_then(|bytes| serde_json::from_slice::<Stored<T>>(&bytes).ok());
    read.filter(|s| s.version == VERSION).map(|s| s.runs).unwrap_or_default()
}

fn stamp(path: &Path) -> (u64, u128) {
    let Ok(meta) = fs::metadata(path) else { return (0, 0) };
    let time = meta.modified().ok().and_then(|t| t.duration_since(UNIX_EPOCH).ok());
    (meta.len(), time.map_or(0, |t| t.as_nanos()))
}
