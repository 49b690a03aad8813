//! A loop's folder: a run folder whose journal can be gone on with, and texts by hash that its events name.

use crate::atomic::write_atomic;
use crate::folder::{NotMade, appear};
use crate::log::{Log, LogError};
use crate::run_dir::point_at;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum LoopDirError {
    #[error("{path} exists and is not empty; a loop never writes into another run's folder", path = .0.display())]
    Exists(PathBuf),
    #[error("cannot write the loop to {path}: {source}", path = .path.display())]
    NotWritable { path: PathBuf, source: io::Error },
    #[error("{path} holds no text {sha256}, which its journal names", path = .path.display())]
    MissingText { path: PathBuf, sha256: String },
    #[error(transparent)]
    Log(#[from] LogError),
}

/// An open loop's folder.
#[derive(Debug)]
pub struct LoopDir {
    path: PathBuf,
    log: Log,
}

impl LoopDir {
    /// Makes the folder with its first event and the texts that it names. Until the rename nothing of it can be seen.
    ///
    /// # Errors
    /// `path` is there and not empty, or cannot be written.
    pub fn create<E: Serialize>(path: &Path, first: &E, texts: &[&str]) -> Result<LoopDir, LoopDirError> {
        let begin = |staging: &Path| {
            texts.iter().try_for_each(|text| keep_text(staging, text).map(drop))?;
            let mut log = Log::create(&staging.join("journal.jsonl")).map_err(io::Error::other)?;
            log.push(first).map_err(io::Error::other)?;
            Ok(log)
        };
        let mut log = appear(path, begin).map_err(|e| match e {
            NotMade::Exists => LoopDirError::Exists(path.into()),
            NotMade::Io(source) => LoopDirError::NotWritable { path: path.into(), source },
        })?;
        // The journal stays the same file under its new name.
        log.moved_to(path.join("journal.jsonl"));
        Ok(LoopDir { path: path.into(), log })
    }

    /// Opens a loop's folder to go on with it.
    ///
    /// # Errors
    /// No journal there, a damaged one, or one that cannot be written.
    pub fn open<E: DeserializeOwned>(path: &Path) -> Result<(LoopDir, Vec<E>), LoopDirError> {
        let (log, events) = Log::open(&path.join("journal.jsonl"))?;
        Ok((LoopDir { path: path.into(), log }, events))
    }

    /// The events of a loop's folder, read only.
    ///
    /// # Errors
    /// No journal there, or a damaged one.
    pub fn read<E: DeserializeOwned>(path: &Path) -> Result<Vec<E>, LoopDirError> {
        Ok(Log::read(&path.join("journal.jsonl"))?)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Appends one event.
    ///
    /// # Errors
    /// No space, or the folder is gone.
    pub fn push<E: Serialize>(&mut self, event: &E) -> Result<(), LoopDirError> {
        self.log.push(event)?;
        Ok(())
    }

    /// Keeps a text under its SHA-256 and gives that.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn keep(&self, text: &str) -> Result<String, LoopDirError> {
        keep_text(&self.path, text).map_err(|source| LoopDirError::NotWritable { path: self.path.clone(), source })
    }

    /// A text that was kept.
    ///
    /// # Errors
    /// It is not there, or is not what its name says.
    pub fn text(path: &Path, sha256: &str) -> Result<String, LoopDirError> {
        let missing = || LoopDirError::MissingText { path: path.into(), sha256: sha256.into() };
        if !sha256.chars().all(|c| c.is_ascii_hexdigit()) {
            return Err(missing());
        }
        let text = fs::read_to_string(path.join("texts").join(sha256)).map_err(|_| missing())?;
        if hash(&text) == sha256 { Ok(text) } else { Err(missing()) }
    }

    /// Writes a file of the folder, whole or not at all.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn write(&self, relative: &Path, bytes: &[u8]) -> Result<(), LoopDirError> {
        let path = self.path.join(relative);
        let failed = |source| LoopDirError::NotWritable { path: path.clone(), source };
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(failed)?;
        }
        write_atomic(&path, bytes).map_err(failed)
    }

    /// Points `latest` beside the loop at it, as for a run.
    pub fn mark_latest(&self) {
        let (Some(parent), Some(name)) = (self.path.parent(), self.path.file_name()) else { return };
        // A convenience: that it cannot be made is no reason to fail.
        let _ = point_at(&parent.join("latest"), Path::new(name));
    }
}

fn keep_text(folder: &Path, text: &str) -> io::Result<String> {
    let sha256 = hash(text);
    let texts = folder.join("texts");
    let path = texts.join(&sha256);
    if !path.is_file() {
        fs::create_dir_all(&texts)?;
        write_atomic(&path, text.as_bytes())?;
    }
    Ok(sha256)
}

/// The SHA-256 of a text, in lower-case hexadecimal digits.
pub fn hash(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_appears_whole_is_gone_on_with_and_keeps_texts() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("loop");
        let mut made = LoopDir::create(&path, &serde_json::json!({"event": "started"}), &["a text"]).unwrap();
        let sha = made.keep("another").unwrap();
        made.push(&serde_json::json!({"event": "went"})).unwrap();
        drop(made);
        assert!(matches!(LoopDir::create(&path, &serde_json::json!({}), &[]), Err(LoopDirError::Exists(_))));
        let (mut opened, events) = LoopDir::open::<serde_json::Value>(&path).unwrap();
        assert_eq!(events.len(), 2);
        opened.push(&serde_json::json!({"event": "went on"})).unwrap();
        assert_eq!(LoopDir::read::<serde_json::Value>(&path).unwrap()[2]["seq"], 2);
        assert_eq!(LoopDir::text(&path, &sha).unwrap(), "another");
        assert_eq!(LoopDir::text(&path, &hash("a text")).unwrap(), "a text");
        fs::write(path.join("texts").join(&sha), "changed").unwrap();
        for wrong in [sha.as_str(), "00", "../journal.jsonl"] {
            assert!(LoopDir::text(&path, wrong).is_err(), "{wrong}");
        }
    }
}
