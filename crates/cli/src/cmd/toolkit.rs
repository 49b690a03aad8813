//! `warpsmith toolkit`: which CUDA compiler is used, why, and what was passed over.

use crate::args::Common;
use crate::error::CliError;
use crate::output::out;
use crate::toolkits;
use serde_json::json;
use warpsmith_compile::{Layer, Need};

pub fn toolkit(common: &Common, fetch: bool) -> Result<i32, CliError> {
    if fetch {
        toolkits::find_or_fetch(common, Need::default())?;
    }
    let found = toolkits::search(common);
    if common.json {
        let chosen = found.chosen.as_ref().map(|t| {
            json!({ "id": t.id.0, "version": format!("{}.{}.{}", t.version.0, t.version.1, t.version.2),
                    "origin": t.origin.to_string(), "root": t.root })
        });
        out(&format!("{}\n", json!({ "chosen": chosen, "passed_over": found.reasons() })));
    } else {
        out(&text(&found));
    }
    // That none is there is no failure, unless one was named.
    match (&found.chosen, &common.toolkit) {
        (None, Some(dir)) => {
            let why = found.reasons().join("; ");
            Err(CliError::environment(
                "toolkit-missing",
                format!("no working CUDA toolkit in {}: {why}", dir.display()),
            )
            .hint("name the folder that holds bin/ptxas and the NVRTC library"))
        }
        _ => Ok(0),
    }
}

fn text(found: &warpsmith_compile::Found) -> String {
    let mut text = String::new();
    if let Ok(layer) = Layer::from_bytes(warpsmith_builtin::layer()) {
        text.push_str(&format!(
            "built-in kernels  {} artifacts made by {}; no toolkit is needed\n",
            layer.len(),
            layer.toolkit_id()
        ));
    }
    match &found.chosen {
        Some(toolkit) => text.push_str(&format!("your own kernels  {}\n", toolkits::describe(toolkit))),
        None => text.push_str(
            "your own kernels  none found; `warpsmith toolkit --fetch` gets the pinned one, as does the first `warpsmith check FILE`\n",
        ),
    }
    for reason in found.reasons() {
        text.push_str(&format!("passed over       {reason}\n"));
    }
    text
}
