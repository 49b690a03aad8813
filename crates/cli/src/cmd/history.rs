//! `warpsmith history [KERNEL]`: the runs in a folder over time, from an index that is made again whenever it is stale.

use crate::args::{Common, HistoryArgs};
use crate::error::CliError;
use crate::output::{err, out};
use warpsmith_report::{RunLine, history_text, matches, run_line};
use warpsmith_store::RunIndex;

pub fn history(common: &Common, args: &HistoryArgs) -> Result<i32, CliError> {
    if args.price.is_some_and(|p| !(p.is_finite() && p >= 0.0)) {
        return Err(CliError::usage("wrong-usage", "--price takes dollars, zero or more"));
    }
    let index: RunIndex<RunLine> = RunIndex::open(&args.runs, |run| run_line(&run.record)).map_err(|e| {
        CliError::usage("run-unreadable", format!("cannot read the folder of runs {}: {e}", args.runs.display()))
            .hint("name it with --runs DIR; `warpsmith check` makes ./runs")
    })?;
    let kernel = args.kernel.as_deref();
    let lines: Vec<RunLine> = index
        .runs
        .iter()
        // A folder may have been renamed since; that is the name it is found by.
        .map(|(name, line)| RunLine { name: name.clone(), ..line.clone() })
        .filter(|r| kernel.is_none_or(|k| r.kernels.iter().any(|l| matches(&l.kernel, k))))
        .collect();
    if common.json {
        out(&format!(
            "{}\n",
            serde_json::json!({ "schema": "warpsmith.history/1", "runs": lines, "gpu_seconds": index.gpu_seconds })
        ));
        return Ok(0);
    }
    for note in index.notes.iter().take(8) {
        err(&format!("note: {} is left out: {}\n", note.folder, note.why));
    }
    if lines.is_empty() {
        let what = kernel.map_or_else(|| "no run".into(), |k| format!("no run of {k}"));
        out(&format!("{what} in {}\n", args.runs.display()));
    } else {
        out(&history_text(&lines, kernel, &index.gpu_seconds, args.price));
    }
    Ok(0)
}
