//! A run that is written when it is over: its folder appears whole, by rename, or not at all.

use crate::run_dir::{RunDirError, occupied, open_to_all};
use std::fs;
use std::path::Path;

/// Makes the folder `path` with these files: relative names, bytes.
///
/// # Errors
/// `path` is there and not empty, or cannot be written.
pub fn write_folder(path: &Path, files: &[(String, Vec<u8>)]) -> Result<(), RunDirError> {
    let failed = |source| RunDirError::NotWritable { path: path.into(), source };
    if occupied(path) {
        return Err(RunDirError::Exists(path.into()));
    }
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(parent).map_err(failed)?;
    let staging = tempfile::Builder::new().prefix(".run-").tempdir_in(parent).map_err(failed)?;
    for (name, bytes) in files {
        let file = staging.path().join(name);
        if let Some(folder) = file.parent() {
            fs::create_dir_all(folder).map_err(failed)?;
        }
        fs::write(file, bytes).map_err(failed)?;
    }
    open_to_all(staging.path()).map_err(failed)?;
    let staged = staging.keep();
    // An empty folder in the way is replaced; one that filled up meanwhile is not.
    let _ = fs::remove_dir(path);
    if let Err(source) = fs::rename(&staged, path) {
        let _ = fs::remove_dir_all(&staged);
        return Err(if occupied(path) { RunDirError::Exists(path.into()) } else { failed(source) });
    }
    Ok(())
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
