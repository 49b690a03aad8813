//! `evidence verify FILE`: every checksum; that journal, record and files agree; and what can be done again here.

use super::{error, rerun};
use crate::args::Common;
use crate::error::CliError;
use crate::output::out;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use warpsmith_spec::record::RunRecord;
use warpsmith_store::{Archive, LoadedRun, sha256, unpack};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Outcome {
    Holds,
    Fails,
    NotChecked,
}

/// One thing that was looked at.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Finding {
    pub what: String,
    pub outcome: Outcome,
    pub how: String,
}

impl Finding {
    pub fn new(what: &str, outcome: Outcome, how: impl Into<String>) -> Finding {
        Finding { what: what.into(), outcome, how: how.into() }
    }
}

/// 0 where all that could be checked holds, 1 where something does not agree, 2 where the archive was changed or is none.
pub(super) fn verify(common: &Common, file: &Path, rerun_seconds: Option<u64>) -> Result<i32, CliError> {
    let name = file.display().to_string();
    let packed = std::fs::read(file)
        .map_err(|e| CliError::usage("unknown-name", format!("cannot read {name}: {e}")).file(file))?;
    let archive = unpack(&packed).map_err(|e| error(&e, &name))?;
    let mut findings = vec![Finding::new(
        "checksums",
        Outcome::Holds,
        format!("{} files and the whole, sha256 {}", archive.files.len(), archive.sha256),
    )];
    match record(&archive) {
        Ok(record) => {
            findings.push(Finding::new("record", Outcome::Holds, "summary.json is what the journal amounts to"));
            findings.push(hashes(&archive, &record));
            match rerun_seconds {
                Some(seconds) => findings.extend(rerun::rerun(common, &archive, &record, seconds)?),
                None => findings.push(Finding::new("execution", Outcome::NotChecked, "--no-rerun")),
            }
        }
        Err(why) => findings.push(Finding::new("record", Outcome::Fails, why)),
    }
    let fails = findings.iter().any(|f| f.outcome == Outcome::Fails);
    if common.json {
        out(&format!(
            "{}\n",
            serde_json::json!({ "file": name, "run": archive.manifest.run, "made_by": archive.manifest.made_by, "holds": !fails, "checks": findings })
        ));
    } else {
        for f in &findings {
            let word = match f.outcome {
                Outcome::Holds => "holds      ",
                Outcome::Fails => "FAILS      ",
                Outcome::NotChecked => "not checked",
            };
            out(&format!("{word}  {}: {}\n", f.what, f.how));
        }
        out(if fails {
            "the archive does not agree with itself, or with this machine\n"
        } else {
            "all that was checked holds\n"
        });
    }
    Ok(i32::from(fails))
}

/// The record, which has to be the fold of the journal.
fn record(archive: &Archive) -> Result<RunRecord, String> {
    let get = |name: &str| archive.files.get(name).ok_or_else(|| format!("{name} is not in the archive"));
    let summary: RunRecord = serde_json::from_slice(get("summary.json")?).map_err(|e| format!("summary.json: {e}"))?;
    let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
    std::fs::write(folder.path().join("journal.jsonl"), get("journal.jsonl")?).map_err(|e| e.to_string())?;
    let folded = LoadedRun::open(folder.path()).map_err(|e| e.to_string())?.record;
    if folded == summary { Ok(summary) } else { Err("summary.json is not what the journal amounts to".into()) }
}

/// The record names the PTX and the sources by hash; those files have to be there, and be those.
fn hashes(archive: &Archive, record: &RunRecord) -> Finding {
    let missing = missing(&archive.files, record);
    let count = |part: &str, ending: &str| with(&archive.files, part, ending).len();
    if missing.is_empty() {
        Finding::new(
            "sources and PTX",
            Outcome::Holds,
            format!(
                "{} PTX texts and {} sources are those that the record names",
                count("/compile/", ".ptx"),
                count("/source/", "")
            ),
        )
    } else {
        Finding::new(
            "sources and PTX",
            Outcome::Fails,
            format!("not in the archive: {}", missing.iter().take(4).cloned().collect::<Vec<_>>().join("; ")),
        )
    }
}

/// Hashes of the files whose names have this part and this ending.
fn with(files: &BTreeMap<String, Vec<u8>>, part: &str, ending: &str) -> BTreeSet<String> {
    files.iter().filter(|(n, _)| n.contains(part) && n.ends_with(ending)).map(|(_, b)| sha256(b)).collect()
}

/// The PTX and the sources that the record names and that none of these files is.
pub(super) fn missing(files: &BTreeMap<String, Vec<u8>>, record: &RunRecord) -> Vec<String> {
    let (ptx, sources) = (with(files, "/compile/", ".ptx"), with(files, "/source/", ""));
    let mut missing = Vec::new();
    for r in &record.results {
        let named = r.compile.values().flat_map(|e| e.values()).map(|e| &e.ptx_sha256).filter(|h| !h.is_empty());
        missing.extend(named.filter(|h| !ptx.contains(*h)).map(|h| format!("PTX {h} of {}", r.candidate)));
        missing.extend(
            r.source_sha256.iter().filter(|h| !sources.contains(*h)).map(|h| format!("source {h} of {}", r.candidate)),
        );
    }
    missing.sort();
    missing.dedup();
    missing
}
