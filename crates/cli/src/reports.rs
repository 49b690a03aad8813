//! Reports as files: what the report crate makes of a run's folder, put where people and CI systems look for it.

use crate::args::Common;
use crate::error::CliError;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;
use warpsmith_report::{self as report, Material};
use warpsmith_spec::record::RunRecord;
use warpsmith_store::{LoadedRun, write_atomic};

/// What the codes of findings mean in a few words.
pub fn titles() -> BTreeMap<String, String> {
    #[derive(Deserialize)]
    struct Row {
        title: String,
    }
    let rows: BTreeMap<String, Row> = toml::from_str(warpsmith_builtin::explain_index()).unwrap_or_default();
    rows.into_iter().map(|(code, row)| (code, row.title)).collect()
}

/// A run as its reports need it.
pub fn material(run: &LoadedRun) -> Material<'_> {
    Material {
        record: &run.record,
        run: run.path.display().to_string(),
        notes: run.notes.clone(),
        sources: run.sources(),
        files: run.files.clone(),
        titles: titles(),
    }
}

/// Writes report.md and report.html of the run in `from` into the folder `to`; the run as it was read.
pub fn write(from: &Path, to: &Path) -> Result<LoadedRun, CliError> {
    let run = LoadedRun::open(from)?;
    let material = material(&run);
    put(&to.join("report.md"), report::markdown(&material).as_bytes())?;
    put(&to.join("report.html"), report::html(&material).as_bytes())?;
    Ok(run)
}

/// SARIF and JUnit, where they are asked for.
pub fn for_ci(common: &Common, record: &RunRecord) -> Result<(), CliError> {
    let material = Material { titles: titles(), ..Material::of(record) };
    if let Some(file) = &common.sarif {
        put(file, report::sarif(&material).as_bytes())?;
    }
    if let Some(file) = &common.junit {
        put(file, report::junit(&material).as_bytes())?;
    }
    Ok(())
}

/// Writes a file whole or not at all, with an error that names it.
pub fn put(file: &Path, bytes: &[u8]) -> Result<(), CliError> {
    write_atomic(file, bytes).map_err(|e| {
        CliError::environment("output-not-writable", format!("cannot write {}: {e}", file.display()))
            .hint("choose a folder that is there and that you may write to")
    })
}
