//! The mutation suite: small edits of right kernels, each of which gate 2 has to find, and the kernels as they are, in which it
//! must find nothing. `tests/mutants/mutants.toml` says which; their artifacts are `tests/mutants/layer.bin`, made by the pinned
//! toolkit, so that the suite (the test below) needs no compiler.

mod files;
mod table;

pub use files::write;
pub use table::page;

use serde::Deserialize;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use warpsmith_compile::{Layer, LayerBuilder, Request};
use warpsmith_eval::compile_gate::{Subject, request};
use warpsmith_spec::words::Mask;
use warpsmith_spec::workload::expand;
use warpsmith_spec::{Candidate, LeverRequest, Setting, TaskSet, Workload, WorkloadRequest};

const TABLE: &str = "tests/mutants/mutants.toml";
const FILE: &str = "tests/mutants/layer.bin";
/// Several tiles, the last one ragged, and two heads.
const SHAPE: &str = "1x2x200x64";
const TARGET: &str = "sm_89";

/// One edit of one file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Mutant {
    name: String,
    file: String,
    find: String,
    replace: String,
    /// Which occurrence, from 1; without it there has to be one.
    nth: Option<usize>,
    /// Kinds of findings, one of which has to be there; `incorrect` for wrong values. The first is the class that it is counted in.
    expect: Vec<String>,
    shape: Option<String>,
    mask: Option<String>,
    config: Option<String>,
    /// Layout of the scales, and distribution of the inputs; without them the task's first.
    scales: Option<String>,
    dist: Option<String>,
    /// A note is enough.
    #[serde(default)]
    #[cfg_attr(not(test), allow(dead_code, reason = "the test reads it"))]
    note: bool,
}

#[derive(Debug, Deserialize)]
struct Table {
    mutant: Vec<Mutant>,
}

/// Something to be judged: a mutant, or a file as it is.
struct Case {
    #[cfg_attr(not(test), allow(dead_code, reason = "the test reads it"))]
    mutant: Option<Mutant>,
    subject: Subject,
    setting: Setting,
    workload: Workload,
}

fn read_table(root: &Path) -> Result<Vec<Mutant>, String> {
    let text = fs::read_to_string(root.join(TABLE)).map_err(|e| format!("{TABLE}: {e}"))?;
    toml::from_str::<Table>(&text).map(|t| t.mutant).map_err(|e| format!("{TABLE}: {e}"))
}

impl Mutant {
    /// What a file is judged under; its clean twin is judged once under each.
    fn conditions(&self) -> [Option<String>; 6] {
        let [shape, mask, config] = [&self.shape, &self.mask, &self.config].map(Clone::clone);
        [Some(self.file.clone()), shape, mask, config, self.scales.clone(), self.dist.clone()]
    }

    fn shape(&self) -> String {
        self.shape.clone().unwrap_or_else(|| SHAPE.to_string())
    }

    fn mask(&self) -> Mask {
        if self.mask.as_deref() == Some("causal") { Mask::Causal } else { Mask::None }
    }

    fn apply(&self, source: &str) -> Result<String, String> {
        let count = source.matches(&self.find).count();
        let at = match (self.nth, count) {
            (None, 1) => source.find(&self.find),
            (Some(n), _) if n >= 1 => source.match_indices(&self.find).nth(n - 1).map(|m| m.0),
            _ => None,
        };
        let at = at.ok_or_else(|| format!("{}: what it looks for occurs {count} times in {}", self.name, self.file))?;
        Ok(format!("{}{}{}", &source[..at], self.replace, &source[at + self.find.len()..]))
    }
}

/// A kernel's text, with that of the headers beside it in place of their `#include "..."`: an edit may be anywhere in it.
fn source(root: &Path, file: &str) -> Result<String, String> {
    let mut seen = BTreeSet::new();
    inlined(&root.join(file), &mut seen)
}

fn inlined(path: &Path, seen: &mut BTreeSet<String>) -> Result<String, String> {
    let text = fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let named = |line: &str| line.strip_prefix("#include \"")?.strip_suffix('"').map(str::to_string);
    if !text.lines().any(|l| named(l).is_some()) && seen.is_empty() {
        return Ok(text);
    }
    let mut whole = String::new();
    for line in text.lines() {
        match named(line) {
            Some(name) if !seen.insert(name.clone()) => {}
            Some(name) => whole += &inlined(&path.with_file_name(name), seen)?,
            None if line == "#pragma once" => {}
            None => whole = whole + line + "\n",
        }
    }
    Ok(whole)
}

/// All mutants, and each of their files as it is under the same conditions.
fn cases(root: &Path, tasks: &TaskSet) -> Result<Vec<Case>, String> {
    let (mut found, mut seen) = (Vec::new(), BTreeSet::new());
    for m in read_table(root)? {
        let source = source(root, &m.file)?;
        let mutated = m.apply(&source)?;
        if seen.insert(m.conditions()) {
            found.push(case(tasks, &m, &source, None)?);
        }
        found.push(case(tasks, &m, &mutated, Some(m.clone()))?);
    }
    Ok(found)
}

fn case(tasks: &TaskSet, m: &Mutant, source: &str, mutant: Option<Mutant>) -> Result<Case, String> {
    let text = |e: warpsmith_spec::SpecError| format!("{}: {e}", m.name);
    let mut candidate = Candidate::parse(&m.file, source.as_bytes(), tasks).map_err(text)?;
    candidate.targets = vec![TARGET.to_string()];
    let task = tasks.find(&candidate.task).map_err(text)?;
    let setting = match &m.config {
        None => candidate.default_setting(),
        Some(config) => {
            let asked = LeverRequest { config: Some(config.clone()), ..Default::default() };
            candidate.settings(&asked).map_err(text)?.into_iter().next().ok_or("no setting")?
        }
    };
    let asked = WorkloadRequest {
        shapes: vec![m.shape()],
        masks: vec![m.mask()],
        scales: m.scales.iter().map(|s| s.parse()).collect::<Result<_, _>>().map_err(text)?,
        distributions: m.dist.iter().map(|d| d.parse()).collect::<Result<_, _>>().map_err(text)?,
        ..Default::default()
    };
    let workload = expand(task, &candidate, &asked).map_err(text)?.into_iter().next().ok_or("no workload")?;
    let subject = Subject {
        canonical: warpsmith_builtin::canonical_name(&m.file).to_string(),
        task: Arc::new(task.clone()),
        candidate: Arc::new(candidate),
        include_root: None,
    };
    Ok(Case { mutant, subject, setting, workload })
}

fn requests(root: &Path) -> Result<Vec<Request>, String> {
    let tasks = warpsmith_builtin::tasks().map_err(|e| e.to_string())?;
    let headers = Arc::new(warpsmith_builtin::headers());
    let (mut found, mut seen) = (Vec::new(), BTreeSet::new());
    for c in cases(root, &tasks)? {
        let r = request(&c.subject, &c.setting, &c.workload, TARGET, &headers).map_err(|e| e.to_string())?;
        if seen.insert(format!("{}{}{:?}{:?}", r.name, r.source, r.defines, r.options)) {
            found.push(r);
        }
    }
    Ok(found)
}

/// Writes all artifacts; compiles those that are not there yet.
pub fn make(root: &Path) -> Result<(), String> {
    let compiler = crate::layer::compiler(true)?;
    let mut builder = LayerBuilder::new(compiler.toolkit().id.clone());
    let requests = requests(root)?;
    let results = crate::layer::results(&compiler, &requests, Some(&root.join(FILE)));
    for (request, result) in requests.iter().zip(results) {
        let result = result?;
        if let Err(failure) = &result {
            return Err(format!("a mutant of {} does not compile: {failure}", request.name));
        }
        builder.add(request, &result).map_err(|e| e.to_string())?;
    }
    let bytes = builder.finish().map_err(|e| e.to_string())?;
    fs::write(root.join(FILE), &bytes).map_err(|e| format!("{FILE}: {e}"))?;
    println!("{FILE}: {} artifacts, {} KB", requests.len(), bytes.len() >> 10);
    Ok(())
}

/// Sees that every artifact is there.
pub fn check(root: &Path) -> Result<(), String> {
    let layer = layer(root)?;
    let absent = requests(root)?.iter().filter(|r| layer.lookup(r).is_none()).count();
    if absent > 0 {
        return Err(format!("{absent} artifacts are not in {FILE}: make it anew with `cargo xtask mutants`"));
    }
    println!("{FILE}: {} artifacts are there", layer.len());
    Ok(())
}

fn layer(root: &Path) -> Result<Layer, String> {
    let bytes = fs::read(root.join(FILE)).map_err(|e| format!("{FILE}: {e}"))?;
    Layer::verify(&bytes).map_err(|e| e.to_string())?;
    // A layer lives as long as the program, for usually it is part of it.
    Layer::from_bytes(bytes.leak()).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rayon::prelude::*;
    use warpsmith_compile::ToolError;
    use warpsmith_eval::evaluate::evaluate;
    use warpsmith_eval::{CompileGate, Context, Layered, NumericsChoice, Oracles, PtxMachine};
    use warpsmith_spec::record::{ResultRecord, Severity, VerdictWord};
    use warpsmith_spec::target;

    /// What is wrong with a result, if anything.
    fn complaint(case: &Case, r: &ResultRecord) -> Option<String> {
        let found: Vec<(Severity, &str)> = r.findings.iter().map(|f| (f.severity, f.kind.as_str())).collect();
        let Some(m) = &case.mutant else {
            let silent = r.verdict == VerdictWord::Passed && found.is_empty();
            return (!silent)
                .then(|| format!("{} as it is: {:?} {:?}", case.subject.candidate.name, r.verdict, r.findings));
        };
        let hit = |(severity, kind): &(Severity, &str)| {
            let kind = if kind.starts_with("incorrect_") { "incorrect" } else { kind };
            (m.note || *severity == Severity::Error) && m.expect.iter().any(|e| e == kind)
        };
        let judged = m.note || r.verdict != VerdictWord::Passed;
        (!judged || !found.iter().any(hit))
            .then(|| format!("{}: {:?}, {found:?} instead of {:?}", m.name, r.verdict, m.expect))
    }

    #[test]
    fn every_mutant_is_found_and_its_clean_twin_is_silent() {
        let root = crate::root();
        let tasks = warpsmith_builtin::tasks().expect("the built-in tasks are right");
        let cases = cases(&root, &tasks).expect("the table fits the kernels");
        let layer = layer(&root).expect("the artifacts are there");
        let source = Layered::new(Some(&layer), |r| {
            Err::<Arc<warpsmith_compile::Compiler>, _>(ToolError::BadRequest {
                what: format!("{}: make the layer of mutants anew with `cargo xtask mutants`", r.name),
            })
        });
        let compile = CompileGate::new(&source, Arc::new(warpsmith_builtin::headers()));
        let (backend, oracles) = (PtxMachine::new(1), Oracles::with_fresh_rows());
        let target = target::find(TARGET).expect("it is known");
        let complaints: Vec<String> = cases
            .par_iter()
            .filter_map(|c| {
                let context = Context {
                    compile: &compile,
                    backend: &backend,
                    oracles: &oracles,
                    numerics: NumericsChoice::Faithful,
                    passes: None,
                    compile_only: false,
                    sanitizer: None,
                };
                match evaluate(&context, &c.subject, &c.setting, &c.workload, target) {
                    Ok(r) => complaint(c, &r),
                    Err(e) => Some(format!("{}: {e}", c.subject.candidate.name)),
                }
            })
            .collect();
        assert!(complaints.is_empty(), "{} of {}:\n{}", complaints.len(), cases.len(), complaints.join("\n"));
        let mutants = cases.iter().filter(|c| c.mutant.is_some()).count();
        assert!(mutants >= 110, "{mutants} mutants");
    }
}
