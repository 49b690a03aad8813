//! Files that are there whole or not at all.

use std::io::{self, Write};
use std::path::Path;

/// Writes `bytes` to `path` by way of a temporary file in the same folder and a rename, so that a reader never sees half of it.
///
/// # Errors
/// Those of the file system: no such folder, not writable, no space.
pub fn write_atomic(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new().prefix(".write-").tempfile_in(folder)?;
    file.write_all(bytes)?;
    file.flush()?;
    readable_by_all(file.path())?;
    file.persist(path).map_err(|e| e.error)?;
    Ok(())
}

/// Temporary files are private to their owner; what a run leaves is as readable as any file the user makes.
#[cfg(unix)]
fn readable_by_all(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o644))
}

#[cfg(not(unix))]
fn readable_by_all(_: &Path) -> io::Result<()> {
    Ok(())
}
