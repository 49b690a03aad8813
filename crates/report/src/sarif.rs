//! SARIF 2.1.0: findings as code hosts and editors show them, beside the lines. Pure function of the record.
//!
//! Source: OASIS, Static Analysis Results Interchange Format 2.1.0. A verdict without a finding becomes a result of its own, so that no
//! failure is silent. Limit: 5,000 results, the most that GitHub shows.

use crate::material::Material;
use crate::summary::{short, word};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use warpsmith_spec::record::{FindingRecord, ResultRecord, Severity, VerdictWord};

const MAX_RESULTS: usize = 5000;

/// The document, pretty-printed.
pub fn sarif(material: &Material) -> String {
    let record = material.record;
    let mut results = Vec::new();
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for result in &record.results {
        for finding in &result.findings {
            add(&mut results, &mut seen, entry(result, Some(finding)));
        }
        if result.verdict != VerdictWord::Passed && result.findings.is_empty() {
            add(&mut results, &mut seen, entry(result, None));
        }
    }
    let codes: BTreeSet<String> = results.iter().filter_map(|r| r["ruleId"].as_str().map(str::to_string)).collect();
    let rules: Vec<Value> = codes
        .iter()
        .map(|code| {
            let title = material.titles.get(code).cloned().unwrap_or_else(|| code.replace('-', " "));
            json!({
                "id": code,
                "shortDescription": { "text": title },
                "help": { "text": format!("`warpsmith explain {code}` shows a wrong kernel, the right one, and how to mend it.") },
            })
        })
        .collect();
    for result in &mut results {
        let at = codes.iter().position(|c| result["ruleId"] == json!(c)).unwrap_or(0);
        result["ruleIndex"] = json!(at);
    }
    let document = json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": "warpsmith",
                "semanticVersion": record.run.warpsmith,
                "informationUri": "https://github.com/warpsmith/warpsmith",
                "rules": rules,
            } },
            "invocations": [{ "commandLine": record.run.command.join(" "), "executionSuccessful": true, "startTimeUtc": record.run.started }],
            "automationDetails": { "id": format!("warpsmith/{}", record.run.name) },
            "columnKind": "unicodeCodePoints",
            "results": results,
        }],
    });
    serde_json::to_string_pretty(&document).unwrap_or_default() + "\n"
}

/// The same finding at many shapes stands once, with how often it was seen.
fn add(results: &mut Vec<Value>, seen: &mut BTreeMap<String, usize>, (key, value): (String, Value)) {
    if let Some(&at) = seen.get(&key) {
        let n = results[at]["occurrenceCount"].as_u64().unwrap_or(1) + 1;
        results[at]["occurrenceCount"] = json!(n);
    } else if results.len() < MAX_RESULTS {
        seen.insert(key, results.len());
        results.push(value);
    }
}

fn entry(result: &ResultRecord, finding: Option<&FindingRecord>) -> (String, Value) {
    let code = finding.map_or_else(|| word(result.verdict).replace('_', "-"), |f| f.code.clone());
    let file = finding.and_then(|f| f.file.clone()).unwrap_or_else(|| result.candidate.clone());
    let line = finding.and_then(|f| f.line);
    let level = match finding.map(|f| f.severity) {
        Some(Severity::Note) => "note",
        _ => "error",
    };
    let mask = if result.causal { ", causal" } else { "" };
    let message = finding.map_or_else(|| word(result.verdict).to_string(), |f| f.message.clone());
    let text = format!("{message} ({} on {}{mask}: {})", short(result), result.shape, word(result.verdict));
    let place = |line: u32| {
        json!({ "physicalLocation": {
            "artifactLocation": { "uri": uri(&file) },
            // A place without a line is the head of the file: some readers show nothing without one.
            "region": { "startLine": line.max(1) },
        } })
    };
    let key = format!("{code}\n{file}\n{line:?}\n{}", short(result));
    let mut value = json!({
        "ruleId": code,
        "level": level,
        "message": { "text": text },
        "locations": [place(line.unwrap_or(1))],
        "partialFingerprints": { "warpsmith/v1": format!("{code}:{}:{}", short(result), line.unwrap_or(0)) },
    });
    if let Some(other) = finding.and_then(|f| f.other_line) {
        let mut related = place(other);
        related["message"] = json!({ "text": "the other side" });
        value["relatedLocations"] = json!([related]);
    }
    (key, value)
}

/// A path as a relative URI reference.
fn uri(path: &str) -> String {
    let path = path.replace('\\', "/");
    let mut out = String::new();
    for byte in path.trim_start_matches("./").bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    // An absolute path needs its scheme to be one.
    if out.starts_with('/') { format!("file://{out}") } else { out }
}
