//! Doing again on this machine what an archive says was done: compile its sources, compare the PTX, execute gate 2 on the PTX machine.
//!
//! Nothing is fetched: without a compiler only what the committed layer holds can be executed. What ran on a GPU is not repeated here.

use super::verify::{Finding, Outcome};
use crate::args::Common;
use crate::artifacts::Artifacts;
use crate::catalog::Catalog;
use crate::cmd::check::subject;
use crate::error::CliError;
use std::collections::BTreeMap;
use std::path::{Component, Path};
use std::time::{Duration, Instant};
use warpsmith_builtin::canonical_name;
use warpsmith_eval::pipeline::{RunRequest, run};
use warpsmith_eval::{CompileGate, Context, NumericsChoice, Oracles, PtxMachine};
use warpsmith_spec::record::{ResultRecord, RunRecord};
use warpsmith_spec::{LeverRequest, WorkloadRequest};
use warpsmith_store::{Archive, sha256};

/// Differences that are written out.
const SHOWN: usize = 4;

/// What became of one result.
enum Again {
    Same,
    /// The same verdict by another PTX or other bits.
    Otherwise(String),
    Differs(String),
    Skipped(String),
}

pub(super) fn rerun(
    common: &Common,
    archive: &Archive,
    record: &RunRecord,
    seconds: u64,
) -> Result<Vec<Finding>, CliError> {
    let until = Instant::now() + Duration::from_secs(seconds);
    let folder = tempfile::tempdir().map_err(|e| CliError::environment("output-not-writable", e.to_string()))?;
    let bench = Bench {
        catalog: Catalog::new()?,
        artifacts: Artifacts::offline(common)?,
        oracles: Oracles::with_fresh_rows(),
        machine: PtxMachine::new(0),
    };
    let (mut same, mut otherwise, mut differs) = (0, Vec::new(), Vec::new());
    let mut skipped: BTreeMap<String, usize> = BTreeMap::new();
    for r in &record.results {
        let again = if r.backend != "ptx_machine" {
            Again::Skipped(format!("ran on {}", r.backend))
        } else if Instant::now() >= until {
            Again::Skipped(format!("beyond {seconds} s (--seconds)"))
        } else {
            bench.again(archive, r, folder.path())
        };
        let label = || format!("{} {}{}", r.candidate, r.shape, if r.causal { " causal" } else { "" });
        match again {
            Again::Same => same += 1,
            Again::Otherwise(how) => otherwise.push(format!("{}: {how}", label())),
            Again::Differs(how) => differs.push(format!("{}: {how}", label())),
            Again::Skipped(why) => *skipped.entry(why).or_default() += 1,
        }
    }
    let mut findings = Vec::new();
    let some = |list: &[String]| list.iter().take(SHOWN).cloned().collect::<Vec<_>>().join("; ");
    if same > 0 {
        findings.push(Finding::new(
            "execution",
            Outcome::Holds,
            format!("{same} results judged again here: the same PTX, verdict and output bits"),
        ));
    }
    if !otherwise.is_empty() {
        findings.push(Finding::new(
            "execution",
            Outcome::Holds,
            format!("{} results have the same verdict here, by another way: {}", otherwise.len(), some(&otherwise)),
        ));
    }
    if !differs.is_empty() {
        findings.push(Finding::new(
            "execution",
            Outcome::Fails,
            format!("{} results: {}", differs.len(), some(&differs)),
        ));
    }
    for (why, n) in skipped {
        findings.push(Finding::new("execution", Outcome::NotChecked, format!("{n} results: {why}")));
    }
    Ok(findings)
}

struct Bench {
    catalog: Catalog,
    artifacts: Artifacts,
    oracles: Oracles,
    machine: PtxMachine,
}

impl Bench {
    fn again(&self, archive: &Archive, r: &ResultRecord, folder: &Path) -> Again {
        let file = match unpacked(archive, r, folder) {
            Ok(file) => file,
            Err(why) => return Again::Skipped(why),
        };
        let judged = (|| -> Result<Option<ResultRecord>, CliError> {
            let entry = self.catalog.find(&file)?;
            let subject = subject(&self.catalog, &entry)?;
            let set = if r.config.is_some() {
                Vec::new()
            } else {
                r.levers.iter().map(|(k, v)| format!("{k}={v}")).collect()
            };
            let settings = entry.candidate.settings(&LeverRequest { set, config: r.config.clone(), sweep: false })?;
            let workloads = WorkloadRequest {
                shapes: vec![r.shape.clone()],
                seeds: vec![r.seed],
                formats: r.format.parse().into_iter().collect(),
                scales: r.scales.parse().into_iter().collect(),
                distributions: r.distribution.parse().into_iter().collect(),
                masks: vec![if r.causal { "causal" } else { "none" }.parse()?],
                layouts: vec![r.variant.layout],
                outs: r.variant.out.into_iter().collect(),
            };
            let compile = CompileGate::new(&self.artifacts, self.catalog.headers.clone());
            let numerics = if r.numerics == "fast" { NumericsChoice::Fast } else { NumericsChoice::Faithful };
            let context = Context {
                compile: &compile,
                backend: &self.machine,
                oracles: &self.oracles,
                numerics,
                passes: None,
                compile_only: false,
                sanitizer: None,
            };
            let request =
                RunRequest { subjects: &[(subject, settings)], workloads: &workloads, target: Some(&r.target) };
            Ok(run(&request, &context, &|| false, &mut |_| {})?.results.into_iter().next())
        })();
        match judged {
            Ok(Some(again)) => compared(r, &again),
            Ok(None) => Again::Skipped("this version says that it is not applicable".into()),
            Err(e) => Again::Skipped(e.record.message.lines().next().unwrap_or_default().to_string()),
        }
    }
}

fn compared(r: &ResultRecord, again: &ResultRecord) -> Again {
    if r.verdict != again.verdict {
        let word = |x: &ResultRecord| {
            serde_json::to_value(x.verdict).ok().and_then(|v| v.as_str().map(str::to_string)).unwrap_or_default()
        };
        return Again::Differs(format!("{} there, {} here", word(r), word(again)));
    }
    let ptx = |x: &ResultRecord| {
        x.compile.get(&x.target).map(|e| e.values().map(|e| e.ptx_sha256.clone()).collect::<Vec<_>>())
    };
    let bits = |x: &ResultRecord| x.check.as_ref().map(|c| c.values().map(|c| c.sha256.clone()).collect::<Vec<_>>());
    match (ptx(r) == ptx(again), bits(r) == bits(again)) {
        (true, true) => Again::Same,
        (false, _) => Again::Otherwise("another compiler's PTX".into()),
        // The machine executes the same text to the same bits, unless its version changed.
        (true, false) => Again::Otherwise("other output bits".into()),
    }
}

/// Writes the candidate's sources under `folder`, its own file by the name that the compiler saw.
fn unpacked(archive: &Archive, r: &ResultRecord, folder: &Path) -> Result<String, String> {
    let hash = r.source_sha256.as_deref().ok_or("the record does not name its source")?;
    let own = archive
        .files
        .iter()
        .find(|(n, b)| n.contains("/source/") && sha256(b) == hash)
        .ok_or("its source is not in the archive")?;
    let root = own.0.split("/source/").next().unwrap_or_default();
    let to = folder.join(sha256(root.as_bytes())).join(&hash[..hash.len().min(16)]);
    let prefix = format!("{root}/source/");
    let write = |relative: &str, bytes: &[u8]| -> std::io::Result<()> {
        let path = Path::new(relative);
        if !path.components().all(|c| matches!(c, Component::Normal(_))) {
            return Ok(());
        }
        let path = to.join(path);
        std::fs::create_dir_all(path.parent().unwrap_or(&to))?;
        std::fs::write(path, bytes)
    };
    for (name, bytes) in archive.files.range(prefix.clone()..).take_while(|(n, _)| n.starts_with(&prefix)) {
        write(&name[prefix.len()..], bytes).map_err(|e| e.to_string())?;
    }
    let candidate = canonical_name(&r.candidate);
    let name = if candidate.ends_with(".cu") { candidate.to_string() } else { format!("{candidate}.cu") };
    write(&name, own.1).map_err(|e| e.to_string())?;
    Ok(to.join(name).display().to_string())
}
