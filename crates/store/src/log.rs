//! A journal of any event type: one JSON object a line, numbered by `seq` from 0. It knows nothing of what the events mean.
//!
//! Unlike a run's record, a log can be opened again and gone on with: a torn last line, which is what a kill leaves, is cut off. Who writes
//! holds a lock on the file, which ends with the process however that ends; on file systems that know no locks nothing is held.

use crate::run_dir::timestamp_now;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Bytes of a line at most.
const MAX_LINE_BYTES: usize = 16 << 20;

#[derive(Serialize)]
struct Out<'a, E> {
    seq: u64,
    at: &'a str,
    #[serde(flatten)]
    event: &'a E,
}

#[derive(Deserialize)]
struct Seq {
    seq: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum LogError {
    #[error("cannot use the journal {path}: {source}", path = .path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{path}:{line}: not an event of this journal: {why}", path = .path.display())]
    Line { path: PathBuf, line: usize, why: String },
    #[error("{path} is being written by another process", path = .0.display())]
    Held(PathBuf),
}

/// An open journal.
#[derive(Debug)]
pub struct Log {
    path: PathBuf,
    file: File,
    next_seq: u64,
}

impl Log {
    /// A new journal; the file must not be there.
    ///
    /// # Errors
    /// It is there, or cannot be written.
    pub fn create(path: &Path) -> Result<Log, LogError> {
        let file = OpenOptions::new()
            .create_new(true)
            .append(true)
            .open(path)
            .map_err(|source| LogError::Io { path: path.into(), source })?;
        hold(&file, path)?;
        Ok(Log { path: path.into(), file, next_seq: 0 })
    }

    /// Opens a journal to go on with it, and gives what it holds.
    ///
    /// # Errors
    /// It cannot be read or written, another process writes it, a line before the last is damaged, or the numbers do not run 0, 1, 2 ...
    pub fn open<E: DeserializeOwned>(path: &Path) -> Result<(Log, Vec<E>), LogError> {
        let failed = |source| LogError::Io { path: path.into(), source };
        let file = OpenOptions::new().append(true).open(path).map_err(failed)?;
        // Before it is read: what another process still writes would be missed.
        hold(&file, path)?;
        let text = fs::read(path).map_err(failed)?;
        let complete = text.iter().rposition(|b| *b == b'\n').map_or(0, |end| end + 1);
        let events = parse(path, &text[..complete])?;
        if complete < text.len() {
            file.set_len(complete as u64).map_err(failed)?;
        }
        Ok((Log { path: path.into(), file, next_seq: events.len() as u64 }, events))
    }

    /// What a journal holds, read only; a torn last line is dropped.
    ///
    /// # Errors
    /// Those of [`Log::open`].
    pub fn read<E: DeserializeOwned>(path: &Path) -> Result<Vec<E>, LogError> {
        let text = fs::read(path).map_err(|source| LogError::Io { path: path.into(), source })?;
        let complete = text.iter().rposition(|b| *b == b'\n').map_or(0, |end| end + 1);
        parse(path, &text[..complete])
    }

    /// The file is called otherwise from now on: for messages.
    pub(crate) fn moved_to(&mut self, path: PathBuf) {
        self.path = path;
    }

    /// Appends one event; it is on its way to the disk when this returns.
    ///
    /// # Errors
    /// No space, or the file is gone.
    pub fn push<E: Serialize>(&mut self, event: &E) -> Result<u64, LogError> {
        let at = timestamp_now();
        let failed = |source| LogError::Io { path: self.path.clone(), source };
        let mut line = serde_json::to_vec(&Out { seq: self.next_seq, at: &at, event })
            .map_err(io::Error::other)
            .map_err(failed)?;
        line.push(b'\n');
        if line.len() > MAX_LINE_BYTES {
            return Err(failed(io::Error::other(format!(
                "an event has {} bytes, more than {MAX_LINE_BYTES}",
                line.len()
            ))));
        }
        // One write a line, so that a kill tears at most the last one.
        self.file.write_all(&line).and_then(|()| self.file.flush()).map_err(failed)?;
        self.next_seq += 1;
        Ok(self.next_seq - 1)
    }
}

fn hold(file: &File, path: &Path) -> Result<(), LogError> {
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => Err(LogError::Held(path.into())),
        // Without locks it is as it was before there were any.
        Ok(()) | Err(TryLockError::Error(_)) => Ok(()),
    }
}

fn parse<E: DeserializeOwned>(path: &Path, text: &[u8]) -> Result<Vec<E>, LogError> {
    let mut events = Vec::new();
    for (i, line) in text.split(|b| *b == b'\n').filter(|l| !l.is_empty()).enumerate() {
        let at = |why: String| LogError::Line { path: path.into(), line: i + 1, why };
        if line.len() > MAX_LINE_BYTES {
            return Err(at(format!("the line has {} bytes, more than {MAX_LINE_BYTES}", line.len())));
        }
        let head: Seq = serde_json::from_slice(line).map_err(|e| at(e.to_string()))?;
        if head.seq != i as u64 {
            return Err(at(format!("seq is {}, expected {i}", head.seq)));
        }
        events.push(serde_json::from_slice(line).map_err(|e| at(e.to_string()))?);
    }
    Ok(events)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    #[serde(tag = "event", rename_all = "snake_case")]
    enum E {
        Began { name: String },
        Went { far: f64 },
    }

    #[test]
    fn a_torn_last_line_is_cut_off_and_the_numbers_go_on() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.jsonl");
        let mut log = Log::create(&path).unwrap();
        log.push(&E::Began { name: "a".into() }).unwrap();
        log.push(&E::Went { far: 0.1 }).unwrap();
        drop(log);
        let whole = fs::read(&path).unwrap();
        for cut in 0..whole.len() {
            fs::write(&path, &whole[..cut]).unwrap();
            let (mut log, events) = Log::open::<E>(&path).unwrap();
            let kept = whole[..cut].iter().filter(|b| **b == b'\n').count();
            assert_eq!(events.len(), kept, "cut at {cut}");
            assert_eq!(log.push(&E::Went { far: 2.0 }).unwrap(), kept as u64);
            assert_eq!(Log::read::<E>(&path).unwrap().last(), Some(&E::Went { far: 2.0 }));
        }
    }

    #[test]
    fn one_process_writes_and_others_may_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.jsonl");
        let mut log = Log::create(&path).unwrap();
        log.push(&E::Went { far: 1.0 }).unwrap();
        assert!(matches!(Log::open::<E>(&path), Err(LogError::Held(_))));
        assert_eq!(Log::read::<E>(&path).unwrap().len(), 1);
        drop(log);
        let (log, _) = Log::open::<E>(&path).unwrap();
        assert!(matches!(Log::open::<E>(&path), Err(LogError::Held(_))));
        drop(log);
    }

    #[test]
    fn a_damaged_line_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.jsonl");
        for (text, why) in [
            ("{\"seq\":0,\"event\":\"began\",\"name\":\"a\"}\n{\"seq\":0}\n", ":2: "),
            ("{\"seq\":0,\"event\":\"flew\"}\n", ":1: "),
            ("nonsense\n{\"seq\":1}\n", ":1: "),
        ] {
            fs::write(&path, text).unwrap();
            assert!(Log::read::<E>(&path).unwrap_err().to_string().contains(why), "{text}");
        }
    }
}
