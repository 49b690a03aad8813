//! A run read back from its folder, as far as it can be: the record from the journal, what became of the run, and its files.
//!
//! The journal is the run's only state. Where it is gone, a whole `summary.json` still gives the record; where that one is damaged
//! or missing, it is made again from the journal. Whatever had to be mended is said in `notes`; nothing is deleted.
//! Limits: 64 MiB for a summary, 20,000 files, 8 MiB for a source.

use crate::journal::{Event, JournalError, fold, read_journal};
use crate::run_dir::RunDirError;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use warpsmith_spec::record::{RUN_SCHEMA, RunRecord};

const MAX_SUMMARY_BYTES: u64 = 64 << 20;
const MAX_FILES: usize = 20_000;
const MAX_SOURCE_BYTES: u64 = 8 << 20;
const MAX_DEPTH: usize = 12;

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    Finished {
        exit_code: i32,
    },
    /// From outside, in order.
    Interrupted,
    /// It is still going on, or was killed.
    Unfinished,
}

/// What a run's folder holds.
#[derive(Debug, Clone)]
pub struct LoadedRun {
    pub path: PathBuf,
    pub record: RunRecord,
    pub ended: Ended,
    /// What was missing or damaged, and what was done about it; for people.
    pub notes: Vec<String>,
    /// Whether `summary.json` says what the journal says.
    pub summary_whole: bool,
    /// Paths of all files below the folder, with `/`, sorted.
    pub files: BTreeSet<String>,
}

impl LoadedRun {
    /// Reads a run's folder; nothing in it is changed.
    ///
    /// # Errors
    /// Neither a journal nor a summary can be read there, or the journal is damaged before its last line.
    pub fn open(path: &Path) -> Result<LoadedRun, RunDirError> {
        if !path.is_dir() {
            return Err(RunDirError::NoRun { path: path.into(), why: missing(path) });
        }
        let mut notes = Vec::new();
        let summary = read_summary(&path.join("summary.json"));
        let journal = path.join("journal.jsonl");
        let (record, ended) = match read_journal(&journal)
            .and_then(|events| Ok((fold(&journal, &events)?, ended(&events))))
        {
            Ok(read) => read,
            Err(JournalError::Read { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => match summary {
                Ok(record) => {
                    notes.push("journal.jsonl is missing: the record is that of summary.json, and cannot be checked against it".into());
                    let files = files(path);
                    return Ok(LoadedRun {
                        path: path.into(),
                        record,
                        ended: Ended::Unfinished,
                        notes,
                        summary_whole: true,
                        files,
                    });
                }
                Err(why) => {
                    let why = format!("it holds no journal.jsonl, and {why}");
                    return Err(RunDirError::NoRun { path: path.into(), why });
                }
            },
            Err(_) if is_loop(&journal) => {
                let why = "it is a loop of `warpsmith evolve`, which `warpsmith report` shows; check or bench the kernel that it found, and name that run";
                return Err(RunDirError::NoRun { path: path.into(), why: why.into() });
            }
            Err(e) => {
                return Err(match summary {
                    Ok(_) => RunDirError::DamagedJournal { source: e },
                    Err(_) => RunDirError::Journal(e),
                });
            }
        };
        let summary_whole = match summary {
            Ok(told) if told == record => true,
            Ok(_) => {
                notes.push("summary.json differs from the journal: the journal is what counts".into());
                false
            }
            Err(why) => {
                notes.push(format!("{why}: the record was made again from journal.jsonl"));
                false
            }
        };
        if ended == Ended::Unfinished {
            notes.push(format!(
                "the run has not come to its end (it is going on, or was killed); {} results so far",
                record.results.len()
            ));
        }
        let files = files(path);
        Ok(LoadedRun { path: path.into(), record, ended, notes, summary_whole, files })
    }

    /// The candidates' sources that the run keeps: path under the run -> text. What is too large or no text is left out.
    pub fn sources(&self) -> BTreeMap<String, String> {
        let is_source = |p: &&String| p.contains("/source/") || p.starts_with("include/");
        self.files.iter().filter(is_source).filter_map(|p| Some((p.clone(), self.text(p)?))).collect()
    }

    /// A file of the run as text.
    pub fn text(&self, relative: &str) -> Option<String> {
        let path = self.path.join(relative);
        let small = fs::metadata(&path).is_ok_and(|m| m.len() <= MAX_SOURCE_BYTES);
        if small { fs::read_to_string(path).ok() } else { None }
    }
}

/// Whether this is the journal of a loop, whose events are others.
fn is_loop(journal: &Path) -> bool {
    use std::io::{BufRead, BufReader, Read};
    let mut line = Vec::new();
    let read = fs::File::open(journal).and_then(|f| BufReader::new(f.take(1 << 20)).read_until(b'\n', &mut line));
    let event = serde_json::from_slice::<serde_json::Value>(&line).ok();
    read.is_ok() && event.is_some_and(|e| e.get("event").and_then(|e| e.as_str()) == Some("started"))
}

/// A record from a file of its own: a stored baseline, or a summary that was copied elsewhere.
///
/// # Errors
/// It is not there, too large, or no record of a run; in words that begin with the file's name.
pub fn read_summary(path: &Path) -> Result<RunRecord, String> {
    let name = path.file_name().map_or_else(|| path.display().to_string(), |n| n.to_string_lossy().into_owned());
    let size = match fs::metadata(path) {
        Ok(m) => m.len(),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Err(format!("{name} is missing")),
        Err(e) => return Err(format!("{name} cannot be read: {e}")),
    };
    if size > MAX_SUMMARY_BYTES {
        return Err(format!("{name} has {size} bytes, more than {MAX_SUMMARY_BYTES}"));
    }
    let bytes = fs::read(path).map_err(|e| format!("{name} cannot be read: {e}"))?;
    let document: serde_json::Value = serde_json::from_slice(&bytes).map_err(|e| format!("{name} is damaged ({e})"))?;
    match document.get("schema").and_then(|s| s.as_str()) {
        Some(RUN_SCHEMA) => serde_json::from_value(document).map_err(|e| format!("{name} is damaged ({e})")),
        Some(other) => Err(format!("{name} has the schema {other:?}; this version reads {RUN_SCHEMA:?}")),
        None => Err(format!("{name} is no record of a run: it names no schema")),
    }
}

fn ended(events: &[Event]) -> Ended {
    // What was said before the run was taken up again no longer counts.
    let last = events.iter().rposition(|e| matches!(e, Event::Resumed { .. })).map_or(0, |at| at + 1);
    let events = &events[last..];
    if events.iter().any(|e| matches!(e, Event::Interrupted)) {
        return Ended::Interrupted;
    }
    let exit_code = events.iter().rev().find_map(|e| match e {
        Event::RunFinished { exit_code } => Some(*exit_code),
        _ => None,
    });
    exit_code.map_or(Ended::Unfinished, |exit_code| Ended::Finished { exit_code })
}

fn missing(path: &Path) -> String {
    if path.exists() { "it is a file, not a folder".into() } else { "there is no such folder".into() }
}

/// Links are not followed: a run's evidence lies in the run.
fn files(root: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut folders = vec![(root.to_path_buf(), String::new(), 0)];
    while let Some((folder, prefix, depth)) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries.flatten() {
            let (Ok(kind), name) = (entry.file_type(), entry.file_name().to_string_lossy().into_owned()) else {
                continue;
            };
            let relative = if prefix.is_empty() { name } else { format!("{prefix}/{name}") };
            if kind.is_dir() && depth < MAX_DEPTH {
                folders.push((entry.path(), relative, depth + 1));
            } else if kind.is_file() && found.len() < MAX_FILES {
                found.insert(relative);
            }
        }
    }
    found
}
