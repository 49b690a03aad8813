//! `warpsmith explain CODE`: the page of a finding or an error.

use crate::args::Common;
use crate::error::CliError;
use crate::output::out;
use serde::Deserialize;
use std::collections::BTreeMap;
use warpsmith_spec::suggest;

/// A row of `docs/explain/index.toml`.
#[derive(Debug, Deserialize)]
struct Entry {
    kind: String,
    gate: String,
    title: String,
}

pub fn explain(common: &Common, code: Option<&str>) -> Result<i32, CliError> {
    let index: BTreeMap<String, Entry> = toml::from_str(warpsmith_builtin::explain_index())
        .map_err(|e| CliError::environment("tool-defect", format!("the embedded table of codes is damaged: {e}")))?;
    let pages = warpsmith_builtin::explain_pages();
    let Some(asked) = code else {
        out(&listing(common, &index));
        return Ok(0);
    };
    let wanted = asked.trim().to_lowercase();
    let found = pages.get_key_value(&wanted).or_else(|| pages.get_key_value(&wanted.replace('_', "-"))).or_else(|| {
        let (code, _) = index.iter().find(|(_, e)| e.kind == wanted)?;
        pages.get_key_value(code)
    });
    let Some((code, page)) = found else {
        let near = suggest::nearest(&wanted, pages.keys().map(String::as_str));
        let hint = near.map_or(String::new(), |n| format!("did you mean `{n}`? "));
        return Err(CliError::usage("unknown-name", format!("no finding or error has the code {asked:?}"))
            .hint(format!("{hint}`warpsmith explain` lists all codes")));
    };
    if common.json {
        out(&format!("{}\n", serde_json::json!({ "code": code, "page": page })));
    } else {
        out(&format!("{}\n", page.trim_end()));
    }
    Ok(0)
}

fn listing(common: &Common, index: &BTreeMap<String, Entry>) -> String {
    if common.json {
        let rows: Vec<_> = index
            .iter()
            .map(|(code, e)| serde_json::json!({ "code": code, "kind": e.kind, "gate": e.gate, "title": e.title }))
            .collect();
        return format!("{}\n", serde_json::json!({ "codes": rows }));
    }
    let width = index.keys().map(String::len).max().unwrap_or(0);
    let mut text = String::new();
    for gate in ["compile", "correctness", "performance", "profile", "usage", "environment"] {
        let rows: Vec<_> = index.iter().filter(|(_, e)| e.gate == gate).collect();
        if !rows.is_empty() {
            text.push_str(&format!("{gate}\n"));
            rows.iter().for_each(|(code, e)| text.push_str(&format!("  {code:width$}  {}\n", e.title)));
        }
    }
    text
}
