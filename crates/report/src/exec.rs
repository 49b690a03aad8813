//! What `warpsmith exec` tells: findings, outputs, how far to trust them. And its record in the form that SARIF and JUnit are made from.

use crate::summary::word;
use crate::terminal::describe;
use crate::{NOT_ON_A_GPU, rows::figure};
use std::collections::BTreeMap;
use warpsmith_spec::exec::{ExecRecord, OutputRecord};
use warpsmith_spec::record::{GateStatus, Gates, RUN_SCHEMA, ResultRecord, RunRecord, Severity, VerdictWord};

/// A screen shows so many findings, the record all.
const MAX_FINDINGS: usize = 20;

/// For a terminal.
pub fn exec_text(record: &ExecRecord) -> String {
    let mut text = String::new();
    for finding in record.findings.iter().take(MAX_FINDINGS) {
        if finding.severity == Severity::Note {
            text.push_str("  note:");
        }
        text.push_str(&describe(finding));
    }
    if record.findings.len() > MAX_FINDINGS {
        text.push_str(&format!("... and {} more findings in summary.json\n", record.findings.len() - MAX_FINDINGS));
    }
    if !record.printed.is_empty() {
        text.push_str("the kernel printed:\n");
        text.extend(record.printed.lines().take(MAX_FINDINGS).map(|l| format!("  {l}\n")));
    }
    for (name, output) in &record.outputs {
        text.push_str(&format!("  {name}: {}\n", told(output)));
    }
    let c = &record.counters;
    if c.static_instructions > 0 {
        let (done, all) = (c.covered_instructions, c.static_instructions);
        text.push_str(&format!(
            "{} warp instructions, {} tensor operations; {done} of {all} static instructions executed; {} schedule{}\n",
            c.warp_instructions,
            c.tensor_ops,
            record.fidelity.schedules,
            if record.fidelity.schedules == 1 { "" } else { "s" }
        ));
    }
    if let Some(t) = &c.traffic {
        let more = |got: u64, ideal: u64| if ideal == 0 { 1.0 } else { got as f64 / ideal as f64 };
        text.push_str(&format!(
            "shared memory: {} wavefronts, {:.2} x the fewest; global: {} sectors, {:.2} x the fewest\n",
            t.shared_wavefronts,
            more(t.shared_wavefronts, t.shared_ideal),
            t.global_sectors,
            more(t.global_sectors, t.global_ideal)
        ));
    }
    if !record.fidelity.approximate.is_empty() {
        let list: Vec<&str> = record.fidelity.approximate.keys().map(String::as_str).collect();
        text.push_str(&format!("not to the bit as on hardware: {}\n", list.join(", ")));
    }
    let end = match (record.verdict, record.backend.as_str()) {
        (VerdictWord::Passed, "gpu") => "passed on the GPU".to_string(),
        (VerdictWord::Passed, _) => NOT_ON_A_GPU.to_string(),
        (other, _) => word(other).to_string(),
    };
    text.push_str(&format!("\n{} for {}: {end}\n", record.file, record.target));
    text
}

fn told(output: &OutputRecord) -> String {
    let mut parts: Vec<String> = Vec::new();
    match (output.ok, output.max_abs_err) {
        (Some(true), Some(e)) => parts.push(format!("as expected, largest difference {}", figure(e))),
        (Some(false), Some(e)) => {
            let wrong = output.wrong.unwrap_or(0);
            parts.push(format!("{wrong} elements are not as expected, largest finite difference {}", figure(e)));
        }
        _ => {}
    }
    parts.extend(output.file.iter().map(|f| format!("written to {f}")));
    parts.join("; ")
}

/// As a run of one result, for the reports that CI systems read.
pub fn exec_as_run(record: &ExecRecord) -> RunRecord {
    let passed = record.verdict == VerdictWord::Passed;
    let compiled = record.verdict != VerdictWord::CompileFailed;
    let result = ResultRecord {
        candidate: record.file.clone(),
        task: "exec".into(),
        shape: record.launch.clone(),
        symbols: BTreeMap::new(),
        causal: false,
        format: "none".into(),
        distribution: "given".into(),
        scales: "none".into(),
        seed: 0,
        variant: Default::default(),
        target: record.target.clone(),
        source_sha256: None,
        config: None,
        levers: BTreeMap::new(),
        backend: record.backend.clone(),
        numerics: record.numerics.clone(),
        gates: Gates {
            compile: if compiled { GateStatus::Passed } else { GateStatus::Failed },
            correctness: match (compiled, passed) {
                (false, _) => GateStatus::Blocked,
                (true, true) => GateStatus::Passed,
                (true, false) => GateStatus::Failed,
            },
            performance: GateStatus::NotRun,
            profile: GateStatus::NotRun,
        },
        verdict: record.verdict,
        findings: record.findings.clone(),
        finding: record.finding.clone(),
        compile: BTreeMap::new(),
        check: None,
        measurement: None,
        profile: None,
        execution: Some(record.counters.clone()),
        cached: false,
        check_of: None,
    };
    RunRecord {
        schema: RUN_SCHEMA.into(),
        run: record.run.clone(),
        environment: record.environment.clone(),
        not_applicable: Vec::new(),
        examples: Vec::new(),
        results: vec![result],
        accept: Vec::new(),
        geomean: None,
        best: None,
        worst: None,
        speedups: Vec::new(),
    }
}
