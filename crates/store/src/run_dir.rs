//! One run's folder: made in one step, appended to, read back.

use crate::atomic::write_atomic;
use crate::folder::appear;
use crate::journal::{Event, JournalError, Line, fold, read_journal};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use warpsmith_spec::record::RunRecord;

#[derive(Debug, thiserror::Error)]
pub enum RunDirError {
    #[error("{path} exists and is not empty; a run never writes into another one's folder", path = .0.display())]
    Exists(PathBuf),
    #[error("cannot write the run to {path}: {source}", path = .path.display())]
    NotWritable { path: PathBuf, source: io::Error },
    #[error("{path} is not the folder of a run: {why}", path = .path.display())]
    NoRun { path: PathBuf, why: String },
    #[error("{source}; its summary.json is whole and can be read by itself")]
    DamagedJournal { source: JournalError },
    #[error(transparent)]
    Journal(#[from] JournalError),
}

/// A run that is being written.
#[derive(Debug)]
pub struct RunDir {
    path: PathBuf,
    journal: File,
    next_seq: u64,
    events: Vec<Event>,
}

impl RunDir {
    /// Makes the folder `path` with `first` as its first event. Until the rename nothing of it can be seen.
    ///
    /// # Errors
    /// `path` is there and not empty, or cannot be written.
    pub fn create(path: &Path, first: Event) -> Result<Self, RunDirError> {
        let begin = |staging: &Path| {
            let mut journal = OpenOptions::new().create_new(true).append(true).open(staging.join("journal.jsonl"))?;
            append(&mut journal, 0, &first)?;
            Ok(journal)
        };
        let journal = appear(path, begin).map_err(|e| e.at(path))?;
        Ok(RunDir { path: path.into(), journal, next_seq: 1, events: vec![first] })
    }

    /// Opens a run that was cut off, to go on with it. What a kill has left of a last line is removed.
    ///
    /// # Errors
    /// No journal there, a damaged one, or one that cannot be written.
    pub fn reopen(path: &Path) -> Result<Self, RunDirError> {
        let file = path.join("journal.jsonl");
        let events = read_journal(&file)?;
        fold(&file, &events)?;
        let failed = |source| RunDirError::NotWritable { path: file.clone(), source };
        let text = fs::read(&file).map_err(failed)?;
        let whole = text.iter().rposition(|b| *b == b'\n').map_or(0, |end| end + 1);
        let journal = OpenOptions::new().append(true).open(&file).map_err(failed)?;
        journal.set_len(whole as u64).map_err(failed)?;
        Ok(RunDir { path: path.into(), journal, next_seq: events.len() as u64, events })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Appends one event; it is on its way to the disk when this returns.
    ///
    /// # Errors
    /// No space, or the folder is gone.
    pub fn push(&mut self, event: Event) -> Result<(), RunDirError> {
        append(&mut self.journal, self.next_seq, &event)
            .map_err(|source| RunDirError::NotWritable { path: self.path.join("journal.jsonl"), source })?;
        self.next_seq += 1;
        self.events.push(event);
        Ok(())
    }

    /// What has happened so far, as a record.
    pub fn record(&self) -> Result<RunRecord, RunDirError> {
        Ok(fold(&self.path.join("journal.jsonl"), &self.events)?)
    }

    /// Writes a file of evidence under the run, making its folders.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn write(&self, relative: &Path, bytes: &[u8]) -> Result<(), RunDirError> {
        let path = self.path.join(relative);
        let failed = |source| RunDirError::NotWritable { path: path.clone(), source };
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(failed)?;
        }
        write_atomic(&path, bytes).map_err(failed)
    }

    /// Points `latest` beside the run at it, where the platform has symbolic links; elsewhere writes its name there.
    pub fn mark_latest(&self) {
        let (Some(parent), Some(name)) = (self.path.parent(), self.path.file_name()) else { return };
        let latest = parent.join("latest");
        // A convenience: that it cannot be made is no reason to fail a run.
        let _ = point_at(&latest, Path::new(name));
    }

    /// A finished or interrupted run's record, folded from its journal.
    ///
    /// # Errors
    /// No journal there, or a damaged one.
    pub fn load(path: &Path) -> Result<RunRecord, RunDirError> {
        let journal = path.join("journal.jsonl");
        Ok(fold(&journal, &read_journal(&journal)?)?)
    }
}

pub(crate) fn occupied(path: &Path) -> bool {
    match fs::read_dir(path) {
        Ok(mut entries) => entries.next().is_some(),
        Err(_) => path.symlink_metadata().is_ok(),
    }
}

fn append(journal: &mut File, seq: u64, event: &Event) -> io::Result<()> {
    let line = Line { seq, at: timestamp_now(), event: event.clone() };
    let mut bytes = serde_json::to_vec(&line).map_err(io::Error::other)?;
    bytes.push(b'\n');
    // One write a line, so that a kill tears at most the last one.
    journal.write_all(&bytes)?;
    journal.flush()
}

#[cfg(unix)]
pub(crate) fn open_to_all(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755))
}

#[cfg(not(unix))]
pub(crate) fn open_to_all(_: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(unix)]
pub(crate) fn point_at(latest: &Path, name: &Path) -> io::Result<()> {
    if latest.is_symlink() {
        fs::remove_file(latest)?;
    }
    std::os::unix::fs::symlink(name, latest)
}

#[cfg(not(unix))]
pub(crate) fn point_at(latest: &Path, name: &Path) -> io::Result<()> {
    fs::write(latest, name.to_string_lossy().as_bytes())
}

/// Now, as RFC 3339 in UTC, to the second.
pub fn timestamp_now() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now()).to_string()
}

/// Now, as it stands in a run's name: `20261121-193015`, UTC.
pub fn stamp_now() -> String {
    timestamp_now()
        .chars()
        .filter(|c| c.is_ascii_digit() || *c == 'T')
        .map(|c| if c == 'T' { '-' } else { c })
        .collect()
}
