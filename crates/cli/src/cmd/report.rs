//! `warpsmith report RUN`: report.md and report.html from what the run's folder holds, whatever became of the run. A loop's folder gets its own
//! page.

use crate::args::Common;
use crate::error::CliError;
use crate::output::{err, out};
use crate::reports;
use std::path::Path;
use warpsmith_store::LoadedRun;

pub fn report(common: &Common, run: &Path) -> Result<i32, CliError> {
    let to = common.out.as_deref().unwrap_or(run);
    if common.out.is_some() {
        std::fs::create_dir_all(to)
            .map_err(|e| CliError::environment("output-not-writable", format!("cannot make {}: {e}", to.display())))?;
    }
    if let Some(done) = super::evolve::report(run, to) {
        done?;
        let files = [to.join("report.md"), to.join("report.html")];
        out(&if common.json {
            format!("{}\n", serde_json::json!({ "run": run, "files": files, "notes": [] }))
        } else {
            format!("{}\n{}\n", files[0].display(), files[1].display())
        });
        return Ok(0);
    }
    let loaded = reports::write(run, to)?;
    mend_summary(&loaded)?;
    reports::for_ci(common, &loaded.record)?;
    if common.json {
        let document = serde_json::json!({
            "run": loaded.record.run.name,
            "files": [to.join("report.md"), to.join("report.html")],
            "notes": loaded.notes,
        });
        out(&format!("{document}\n"));
        return Ok(0);
    }
    for note in &loaded.notes {
        err(&format!("note: {note}\n"));
    }
    out(&format!("{}\n{}\n", to.join("report.md").display(), to.join("report.html").display()));
    Ok(0)
}

/// Makes a damaged or missing summary again from the journal; what was there is kept beside it.
fn mend_summary(run: &LoadedRun) -> Result<(), CliError> {
    if run.summary_whole {
        return Ok(());
    }
    let summary = run.path.join("summary.json");
    if summary.exists() {
        let kept = run.path.join("summary.json.damaged");
        // Only the first damaged one is evidence; a second one is what this command is mending.
        if !kept.exists() {
            let _ = std::fs::rename(&summary, &kept);
            err(&format!("note: what was there is kept as {}\n", kept.display()));
        }
    }
    let text =
        serde_json::to_string_pretty(&run.record).map_err(|e| CliError::environment("tool-defect", e.to_string()))?;
    reports::put(&summary, (text + "\n").as_bytes())
}
