//! Blobs on disk by their hash, so that a worker that is started anew does not ask for gigabytes again. Size-limited: the least recently
//! used go first. A file appears by rename, and is compared with its name when it is read: what is damaged is as good as absent.
//!
//! A full or read-only disk costs the cache, never the evaluation. Limit: blobs of less than [`SMALLEST`] bytes are not kept.

use super::wire::sha256;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Smaller ones travel as quickly as they are read.
pub const SMALLEST: u64 = 64 << 10;
/// Bytes of all of them together.
pub const LIMIT: u64 = 8 << 30;

/// A folder of blobs.
#[derive(Debug, Clone)]
pub struct BlobCache {
    folder: PathBuf,
    limit: u64,
}

impl BlobCache {
    /// The folder is made when something is put.
    pub fn new(folder: impl Into<PathBuf>, limit: u64) -> BlobCache {
        BlobCache { folder: folder.into(), limit }
    }

    fn path(&self, sha: &str) -> Option<PathBuf> {
        let plain = sha.len() == 64 && sha.bytes().all(|b| b.is_ascii_hexdigit());
        plain.then(|| self.folder.join(sha))
    }

    /// A blob, if it is here; it is then the most recently used one.
    pub fn get(&self, sha: &str) -> Option<Vec<u8>> {
        let path = self.path(sha)?;
        let bytes = fs::read(&path).ok()?;
        if sha256(&bytes) != sha {
            let _ = fs::remove_file(&path);
            return None;
        }
        if let Ok(file) = fs::File::options().append(true).open(&path) {
            let _ = file.set_modified(SystemTime::now());
        }
        Some(bytes)
    }

    /// Keeps a blob, and drops those that were not used for longest where all would be too much.
    pub fn put(&self, sha: &str, bytes: &[u8]) {
        let size = bytes.len() as u64;
        let Some(path) = self.path(sha).filter(|_| (SMALLEST..=self.limit).contains(&size)) else { return };
        if !path.exists() {
            let _ = self.write(&path, bytes);
        }
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> std::io::Result<()> {
        fs::create_dir_all(&self.folder)?;
        self.make_room(bytes.len() as u64)?;
        let mut file = tempfile::Builder::new().prefix(".new").tempfile_in(&self.folder)?;
        file.write_all(bytes)?;
        file.persist(path).map_err(|e| e.error)?;
        Ok(())
    }

    fn make_room(&self, needed: u64) -> std::io::Result<()> {
        let mut kept: Vec<(SystemTime, u64, PathBuf)> = Vec::new();
        for entry in fs::read_dir(&self.folder)?.flatten() {
            if let Ok(data) = entry.metadata()
                && data.is_file()
            {
                kept.push((data.modified().unwrap_or(SystemTime::UNIX_EPOCH), data.len(), entry.path()));
            }
        }
        kept.sort();
        let mut total = kept.iter().fold(needed, |n, (_, bytes, _)| n.saturating_add(*bytes));
        for (_, bytes, path) in kept {
            if total <= self.limit {
                break;
            }
            fs::remove_file(path)?;
            total -= bytes;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn blob(value: u8) -> (String, Vec<u8>) {
        let bytes = vec![value; SMALLEST as usize];
        (sha256(&bytes), bytes)
    }

    fn age(cache: &BlobCache, sha: &str, seconds: u64) {
        let file = fs::File::options().append(true).open(cache.folder.join(sha)).expect("it is there");
        file.set_modified(SystemTime::now() - Duration::from_secs(seconds)).expect("its time can be set");
    }

    #[test]
    fn the_least_recently_used_go_first() {
        let folder = tempfile::tempdir().expect("a folder");
        let cache = BlobCache::new(folder.path().join("blobs"), 3 * SMALLEST);
        let blobs: Vec<_> = (0..4).map(blob).collect();
        for (i, (sha, bytes)) in blobs[..3].iter().enumerate() {
            cache.put(sha, bytes);
            age(&cache, sha, 100 - i as u64);
        }
        assert_eq!(cache.get(&blobs[0].0).as_ref(), Some(&blobs[0].1), "and now it is the newest");
        cache.put(&blobs[3].0, &blobs[3].1);
        let there: Vec<bool> = blobs.iter().map(|(sha, _)| cache.get(sha).is_some()).collect();
        assert_eq!(there, [true, false, true, true]);
    }

    #[test]
    fn what_is_damaged_small_or_misnamed_is_absent() {
        let folder = tempfile::tempdir().expect("a folder");
        let cache = BlobCache::new(folder.path(), LIMIT);
        let (sha, bytes) = blob(7);
        cache.put(&sha, &bytes);
        fs::write(folder.path().join(&sha), b"something else").expect("it is written");
        assert_eq!(cache.get(&sha), None);
        assert!(!folder.path().join(&sha).exists(), "it would only be read again");
        cache.put(&sha256(b"small"), b"small");
        assert_eq!(cache.get(&sha256(b"small")), None);
        cache.put("../outside", &bytes);
        assert_eq!(cache.get("../outside"), None);
    }
}
