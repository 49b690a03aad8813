//! `warpsmith cache`: what is kept, how large it is, and `clean`.

use crate::args::{CacheCommand, Common};
use crate::error::CliError;
use crate::output::out;
use crate::{paths, toolkits};
use serde_json::json;
use std::fs;
use std::path::Path;

pub fn cache(common: &Common, action: Option<&CacheCommand>) -> Result<i32, CliError> {
    match action {
        None => show(common),
        Some(CacheCommand::Clean { toolkit }) => clean(common, *toolkit),
    }
}

fn show(common: &Common) -> Result<i32, CliError> {
    let folder = paths::cache_dir();
    let artifacts = toolkits::artifact_cache().sizes();
    let (passes, toolkit) = (bytes_under(&folder.join("passes")), bytes_under(&folder.join("toolkits")));
    if common.json {
        let parts = json!({ "artifacts": artifacts.artifacts, "artifact_bytes": artifacts.bytes, "pass_bytes": passes, "toolkit_bytes": toolkit });
        out(&format!("{}\n", json!({ "folder": folder, "parts": parts })));
    } else {
        out(&format!(
            "{}\n  artifacts  {} in {}\n  passes     {}\n  toolkits   {}\n",
            folder.display(),
            artifacts.artifacts,
            human(artifacts.bytes),
            human(passes),
            human(toolkit)
        ));
    }
    Ok(0)
}

fn clean(common: &Common, toolkit: bool) -> Result<i32, CliError> {
    let removed = toolkits::artifact_cache().clean()?;
    let folder = paths::cache_dir();
    remove(&folder.join("passes"))?;
    if toolkit {
        remove(&folder.join("toolkits"))?;
    }
    if common.json {
        out(&format!("{}\n", json!({ "removed_artifacts": removed.artifacts, "removed_bytes": removed.bytes })));
    } else {
        out(&format!("removed {} artifacts, {}\n", removed.artifacts, human(removed.bytes)));
    }
    Ok(0)
}

fn remove(folder: &Path) -> Result<(), CliError> {
    match fs::remove_dir_all(folder) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(CliError::environment("output-not-writable", format!("cannot remove {}: {e}", folder.display())))
        }
        _ => Ok(()),
    }
}

/// Bytes of all files below a folder; links are not followed.
fn bytes_under(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    entries
        .flatten()
        .map(|e| match e.file_type() {
            Ok(t) if t.is_dir() => bytes_under(&e.path()),
            Ok(t) if t.is_file() => e.metadata().map_or(0, |m| m.len()),
            _ => 0,
        })
        .sum()
}

fn human(bytes: u64) -> String {
    if bytes < 1 << 20 { format!("{} KB", bytes.div_ceil(1 << 10)) } else { format!("{} MB", bytes >> 20) }
}
