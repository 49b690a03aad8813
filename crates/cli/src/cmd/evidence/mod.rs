//! `warpsmith evidence RUN`: one archive with all that a reviewer needs; `evidence verify FILE`: whether it still says what it said.

mod collect;
mod rerun;
mod verify;

use crate::args::{Common, EvidenceArgs, EvidenceCommand};
use crate::error::CliError;
use crate::output::{err, out};
use crate::reports;
use std::path::PathBuf;
use warpsmith_store::{ArchiveError, LoadedRun, pack};

/// Files that are told to be missing.
const MAX_TOLD: usize = 4;

pub fn evidence(common: &Common, args: &EvidenceArgs) -> Result<i32, CliError> {
    match &args.action {
        Some(EvidenceCommand::Verify { file, no_rerun, seconds }) => {
            verify::verify(common, file, (!no_rerun).then_some(*seconds))
        }
        None => make(common, args),
    }
}

fn make(common: &Common, args: &EvidenceArgs) -> Result<i32, CliError> {
    let run = LoadedRun::open(&args.run)?;
    run.notes.iter().for_each(|note| err(&format!("note: {note}\n")));
    let files = collect::files(common, &run)?;
    // An archive that will not hold is made all the same, for what is whole in it; whoever makes it hears of that first.
    for what in verify::missing(&files, &run.record).iter().take(MAX_TOLD) {
        err(&format!(
            "note: the run's folder has not what was judged: {what}; `evidence verify` will say so: judge it again for an archive that holds\n"
        ));
    }
    let made_by = format!("warpsmith {}", env!("CARGO_PKG_VERSION"));
    let (bytes, sha256) =
        pack(&run.record.run.name, &made_by, &files).map_err(|e| error(&e, &args.run.display().to_string()))?;
    let file = common.out.clone().unwrap_or_else(|| PathBuf::from(format!("{}-evidence.tar.zst", run.record.run.name)));
    reports::put(&file, &bytes)?;
    if common.json {
        out(&format!(
            "{}\n",
            serde_json::json!({ "file": file, "files": files.len(), "bytes": bytes.len(), "sha256": sha256 })
        ));
    } else {
        out(&format!(
            "{}: {} files, {} KB\nsha256 {sha256}\n`warpsmith evidence verify {}` checks it; `tar --zstd -xf` opens it\n",
            file.display(),
            files.len(),
            bytes.len().div_ceil(1024),
            file.display()
        ));
    }
    Ok(0)
}

fn error(e: &ArchiveError, what: &str) -> CliError {
    match e {
        ArchiveError::Write(_) => CliError::environment("output-not-writable", format!("{what}: {e}")),
        ArchiveError::TooLarge(_) => {
            CliError::usage("evidence-changed", format!("{what}: {e}")).hint("keep fewer kernels in one run")
        }
        ArchiveError::Foreign(_) | ArchiveError::Changed(_) => {
            CliError::usage("evidence-changed", format!("{what}: {e}"))
                .hint("get the archive again from whoever made it; its checksum is on their terminal")
        }
    }
}
