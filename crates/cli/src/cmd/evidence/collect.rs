//! The files of an archive of evidence: the run's own, and what is drawn together from them for a reviewer.

use crate::args::Common;
use crate::error::CliError;
use crate::{reports, toolkits};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use warpsmith_compile::Limits;
use warpsmith_report as report;
use warpsmith_spec::record::{GateStatus, ResultRecord};
use warpsmith_store::LoadedRun;

/// Largest file of a run that is taken.
const MAX_FILE_BYTES: u64 = 256 << 20;
/// Cubins that are disassembled.
const MAX_SASS: usize = 64;

const README: &str = "Evidence of a run of warpsmith.

summary.json, journal.jsonl   the record and the events that it is made from
report.html, report.md        the same for people
candidates/NAME/source        what was judged, with the files that it includes; include/ holds the headers of ours
candidates/NAME/compile       PTX, machine code (cubin) where a compiler made it on that machine, ptxas's words
candidates/NAME/correctness   one file for each result
evidence/commands.txt         how it was made, and how to judge each result again
evidence/environment.json     where it was made
evidence/resources.json       registers, memory, spills for each entry, as ptxas says
evidence/tensor_cores.json    for each result: tensor opcodes in the machine code, tensor operations executed, and what would gainsay them
evidence/findings.json        everything that was found
evidence/samples.json         times, where some were taken
evidence/claims.json          what is proved and what is not
evidence/sass/                the disassembled machine code, where a disassembler was at hand
evidence/absent.txt           what is not in here, and why

`warpsmith evidence verify FILE` checks all checksums, that record, journal and files agree, and executes the kernels again.
The checksums show a change; they are no signature.
";

/// Path in the archive -> bytes.
pub(super) fn files(common: &Common, run: &LoadedRun) -> Result<BTreeMap<String, Vec<u8>>, CliError> {
    let mut files = BTreeMap::new();
    let mut absent = Vec::new();
    for name in run.files.iter().filter(|n| !n.starts_with("evidence/") && !n.ends_with(".damaged")) {
        let path = run.path.join(name);
        match fs::metadata(&path).map(|m| m.len()) {
            Ok(size) if size > MAX_FILE_BYTES => absent.push(format!("{name}: {size} bytes are too many")),
            Ok(_) => match fs::read(&path) {
                Ok(bytes) => {
                    files.insert(name.clone(), bytes);
                }
                Err(e) => absent.push(format!("{name}: {e}")),
            },
            Err(e) => absent.push(format!("{name}: {e}")),
        }
    }
    let record = &run.record;
    // The record as the journal has it, whatever became of the file.
    files.insert("summary.json".into(), pretty(&json!(record))?);
    let material = reports::material(run);
    files.insert("report.md".into(), report::markdown(&material).into_bytes());
    files.insert("report.html".into(), report::html(&material).into_bytes());
    files.insert("README.txt".into(), README.as_bytes().to_vec());
    let mut put = |name: &str, value: Value| -> Result<(), CliError> {
        files.insert(format!("evidence/{name}"), pretty(&value)?);
        Ok(())
    };
    put("environment.json", json!({ "run": record.run, "environment": record.environment }))?;
    put(
        "resources.json",
        Value::Array(record.results.iter().map(|r| json!({ "result": name(r), "compile": r.compile })).collect()),
    )?;
    put("tensor_cores.json", Value::Array(record.results.iter().map(tensor_cores).collect()))?;
    put(
        "findings.json",
        Value::Array(
            record
                .results
                .iter()
                .map(|r| json!({ "result": name(r), "verdict": r.verdict, "findings": r.findings }))
                .collect(),
        ),
    )?;
    let samples: Vec<Value> = record
        .results
        .iter()
        .filter(|r| r.measurement.is_some())
        .map(|r| json!({ "result": name(r), "backend": r.backend, "measurement": r.measurement }))
        .collect();
    if samples.is_empty() {
        absent.push("evidence/samples.json: no time was taken".into());
    } else {
        put("samples.json", Value::Array(samples))?;
    }
    let claims: Vec<Value> = report::claims(&material)
        .iter()
        .map(|c| json!({ "claim": c.what, "status": c.status.word(), "how": c.how, "file": c.file }))
        .collect();
    put("claims.json", Value::Array(claims))?;
    sass(common, &mut files, &mut absent);
    if !record.results.iter().any(|r| r.gates.profile == GateStatus::Passed) {
        absent.push("hardware counters: gate 4 did not run".into());
    }
    if !files.keys().any(|k| k.contains("sanitizer")) {
        absent.push(
            "compute-sanitizer's logs: it did not run; memory and races were looked at by the PTX machine".into(),
        );
    }
    let mut commands = format!("{}\n", report::typed(&record.run.command));
    record.results.iter().for_each(|r| commands.push_str(&format!("{}\n", report::again(r))));
    files.insert("evidence/commands.txt".into(), commands.into_bytes());
    files.insert("evidence/absent.txt".into(), (absent.join("\n") + "\n").into_bytes());
    Ok(files)
}

fn pretty(value: &Value) -> Result<Vec<u8>, CliError> {
    let text = serde_json::to_string_pretty(value).map_err(|e| CliError::environment("tool-defect", e.to_string()))?;
    Ok((text + "\n").into_bytes())
}

fn name(r: &ResultRecord) -> Value {
    json!({ "candidate": r.candidate, "shape": r.shape, "causal": r.causal, "format": r.format, "seed": r.seed, "target": r.target, "config": r.config, "levers": r.levers })
}

/// Opcodes present and executed, no trap reached, no warning that the compiler went round them.
fn tensor_cores(r: &ResultRecord) -> Value {
    let present: BTreeMap<String, u64> =
        r.compile.get(&r.target).into_iter().flat_map(|e| e.values()).flat_map(|e| &e.tensor_ops).fold(
            BTreeMap::new(),
            |mut all, (op, n)| {
                *all.entry(op.clone()).or_default() += n;
                all
            },
        );
    let executed = r.execution.as_ref().map_or(0, |e| e.tensor_ops);
    let against: Vec<&str> = r
        .findings
        .iter()
        .filter(|f| matches!(f.code.as_str(), "trap" | "wmma-local-memory"))
        .map(|f| f.code.as_str())
        .collect();
    let warnings: Vec<&String> = r
        .compile
        .values()
        .flat_map(|e| e.values())
        .flat_map(|e| &e.warnings)
        .filter(|w| w.to_lowercase().contains("mma"))
        .collect();
    json!({
        "result": name(r),
        "present": present,
        "executed": executed,
        "executed_on": r.backend,
        "against": against,
        "warnings": warnings,
        "proved": !present.is_empty() && executed > 0 && against.is_empty() && warnings.is_empty(),
    })
}

/// Disassembles the run's cubins, where this machine has a disassembler.
fn sass(common: &Common, files: &mut BTreeMap<String, Vec<u8>>, absent: &mut Vec<String>) {
    let cubins: Vec<String> = files.keys().filter(|k| k.ends_with(".cubin")).cloned().collect();
    if cubins.is_empty() {
        absent.push("machine code and SASS: the artifacts are of the committed layer, which carries PTX and statistics only; --toolkit DIR makes them anew".into());
        return;
    }
    let Some(toolkit) = toolkits::search(common).chosen else {
        absent.push("SASS: there is no toolkit on this machine to disassemble with".into());
        return;
    };
    let Ok(folder) = tempfile::tempdir() else { return };
    for cubin in cubins.iter().take(MAX_SASS) {
        if fs::write(folder.path().join("kernel.cubin"), &files[cubin]).is_err() {
            return;
        }
        match warpsmith_compile::disassemble(&toolkit, folder.path(), "kernel.cubin", &Limits::default()) {
            Ok(Ok(text)) => {
                let stem = cubin.trim_start_matches("candidates/").trim_end_matches(".cubin").replace("/compile/", "/");
                files.insert(format!("evidence/sass/{stem}.sass"), text.into_bytes());
            }
            Ok(Err(why)) => absent.push(format!("SASS of {cubin}: {why}")),
            Err(e) => absent.push(format!("SASS of {cubin}: {e}")),
        }
    }
    if cubins.len() > MAX_SASS {
        absent.push(format!("SASS of {} more cubins: the first {MAX_SASS} were disassembled", cubins.len() - MAX_SASS));
    }
}
