//! `warpsmith brief RUN`: the state of a run in under 2,000 tokens.

use crate::args::Common;
use crate::error::CliError;
use crate::output::out;
use crate::reports;
use std::path::Path;
use warpsmith_store::LoadedRun;

pub fn brief(common: &Common, run: &Path) -> Result<i32, CliError> {
    let loaded = LoadedRun::open(run)?;
    let text = warpsmith_report::brief(&reports::material(&loaded));
    if common.json {
        out(&format!("{}\n", serde_json::json!({ "run": loaded.record.run.name, "brief": text })));
    } else {
        out(&text);
    }
    Ok(0)
}
