//! Folders that appear whole, by rename, or not at all; and runs that are written when they are over.

use crate::run_dir::{RunDirError, occupied, open_to_all};
use std::fs;
use std::io;
use std::path::Path;

/// Why a folder did not appear.
#[derive(Debug)]
pub(crate) enum NotMade {
    /// It is there, and not empty.
    Exists,
    Io(io::Error),
}

/// Makes the folder `path` by filling another one beside it and renaming that. Until then nothing of it can be seen.
pub(crate) fn appear<T>(path: &Path, fill: impl FnOnce(&Path) -> io::Result<T>) -> Result<T, NotMade> {
    if occupied(path) {
        return Err(NotMade::Exists);
    }
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(parent).map_err(NotMade::Io)?;
    let staging = tempfile::Builder::new().prefix(".run-").tempdir_in(parent).map_err(NotMade::Io)?;
    let filled = fill(staging.path()).map_err(NotMade::Io)?;
    open_to_all(staging.path()).map_err(NotMade::Io)?;
    let staged = staging.keep();
    // An empty folder in the way is replaced, at once where the platform can; one that filled up meanwhile is not.
    let renamed = fs::rename(&staged, path).or_else(|e| match fs::remove_dir(path) {
        Ok(()) => fs::rename(&staged, path),
        Err(_) => Err(e),
    });
    if let Err(e) = renamed {
        let _ = fs::remove_dir_all(&staged);
        return Err(if occupied(path) { NotMade::Exists } else { NotMade::Io(e) });
    }
    Ok(filled)
}

impl NotMade {
    pub(crate) fn at(self, path: &Path) -> RunDirError {
        match self {
            NotMade::Exists => RunDirError::Exists(path.into()),
            NotMade::Io(source) => RunDirError::NotWritable { path: path.into(), source },
        }
    }
}

/// Makes the folder `path` with these files: relative names, bytes.
///
/// # Errors
/// `path` is there and not empty, or cannot be written.
pub fn write_folder(path: &Path, files: &[(String, Vec<u8>)]) -> Result<(), RunDirError> {
    let write = |staging: &Path| {
        files.iter().try_for_each(|(name, bytes)| {
            let file = staging.join(name);
            file.parent().map_or(Ok(()), fs::create_dir_all)?;
            fs::write(file, bytes)
        })
    };
    appear(path, write).map_err(|e| e.at(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_appears_whole_and_never_in_anothers_place() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("a/b");
        let files = [("x/y.npy".to_string(), vec![1, 2]), ("summary.json".to_string(), b"{}".to_vec())];
        write_folder(&path, &files).unwrap();
        assert_eq!(fs::read(path.join("x/y.npy")).unwrap(), [1, 2]);
        assert!(matches!(write_folder(&path, &files), Err(RunDirError::Exists(_))));
        let empty = place.path().join("empty");
        fs::create_dir(&empty).unwrap();
        write_folder(&empty, &files).unwrap();
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 2, "nothing is left over");
    }
}
