//! JUnit XML: one test case for each result, a suite for each kernel, as CI systems read it. Pure function of the record.
//!
//! A failed gate is a `failure`; what was not judged for want of an instruction or a device is `skipped`. No case carries a time: what a
//! test took says nothing of a kernel.

use crate::html::esc;
use crate::material::Material;
use crate::summary::{place, short, word};
use warpsmith_spec::record::{ResultRecord, Severity, VerdictWord};

pub fn junit(material: &Material) -> String {
    let record = material.record;
    let mut suites: Vec<(String, Vec<&ResultRecord>)> = Vec::new();
    for result in &record.results {
        let name = short(result);
        match suites.iter_mut().find(|(n, _)| *n == name) {
            Some((_, list)) => list.push(result),
            None => suites.push((name, vec![result])),
        }
    }
    let failed = |list: &[&ResultRecord]| list.iter().filter(|r| r.verdict != VerdictWord::Passed).count();
    let excluded = record.not_applicable.len();
    let all: Vec<&ResultRecord> = record.results.iter().collect();
    let mut text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"warpsmith\" tests=\"{}\" failures=\"{}\" errors=\"0\" skipped=\"{excluded}\">\n",
        all.len() + excluded,
        failed(&all)
    );
    for (name, list) in &suites {
        text.push_str(&format!(
            "  <testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"0\" skipped=\"0\" timestamp=\"{}\">\n",
            esc(name),
            list.len(),
            failed(list),
            esc(record.run.started.trim_end_matches('Z'))
        ));
        list.iter().for_each(|r| case(r, name, &mut text));
        text.push_str("  </testsuite>\n");
    }
    if excluded > 0 {
        text.push_str(&format!("  <testsuite name=\"not applicable\" tests=\"{excluded}\" failures=\"0\" errors=\"0\" skipped=\"{excluded}\">\n"));
        for entry in &record.not_applicable {
            text.push_str(&format!(
                "    <testcase classname=\"{}\" name=\"{}\"><skipped message=\"{}\"/></testcase>\n",
                esc(&entry.candidate),
                esc(&entry.shape),
                esc(&entry.why)
            ));
        }
        text.push_str("  </testsuite>\n");
    }
    text.push_str("</testsuites>\n");
    text
}

fn case(result: &ResultRecord, suite: &str, text: &mut String) {
    let levers: String = if result.config.is_some() {
        String::new()
    } else {
        result.levers.iter().map(|(k, v)| format!(" {k}={v}")).collect()
    };
    let mask = if result.causal { "causal" } else { "no mask" };
    let name = format!(
        "{} {mask} {} {} {} seed {}{} {} {}{levers}",
        result.shape,
        result.format,
        result.scales,
        result.distribution,
        result.seed,
        crate::rows::variant(result),
        result.target,
        result.backend
    );
    let file = result.finding.as_ref().and_then(|f| f.file.clone()).unwrap_or_else(|| result.candidate.clone());
    text.push_str(&format!(
        "    <testcase classname=\"{}\" name=\"{}\" file=\"{}\"",
        esc(suite),
        esc(&name),
        esc(&file)
    ));
    if result.verdict == VerdictWord::Passed {
        text.push_str("/>\n");
        return;
    }
    let errors: Vec<String> = result
        .findings
        .iter()
        .filter(|f| f.severity == Severity::Error)
        .map(|f| format!("{}{}: {}\nwarpsmith explain {}", f.kind, place(f.file.as_deref(), f.line), f.message, f.code))
        .collect();
    let message = result.finding.as_ref().map_or_else(|| word(result.verdict).to_string(), |f| f.message.clone());
    let body = if errors.is_empty() { word(result.verdict).to_string() } else { errors.join("\n") };
    text.push_str(&format!(
        "><failure type=\"{}\" message=\"{}\">{}\n{}</failure></testcase>\n",
        word(result.verdict),
        esc(&message),
        esc(&body),
        esc(&crate::next::again(result))
    ));
}
