//! The committed layer of artifacts: what the built-in kernels, the faults and the examples compile to, so that the main job
//! and the tests need no toolkit. Made with one pinned toolkit, which is fetched if it is not in the cache.

use rayon::prelude::*;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use warpsmith_builtin::canonical_name;
use warpsmith_compile::{
    Artifact, ArtifactCache, ChildCommand, CompileFailure, Compiler, Layer, LayerBuilder, Limits, Line, Need, Request,
    Search, ToolError, freshness,
};
use warpsmith_eval::compile_gate::{Subject, request};
use warpsmith_spec::workload::expand;
use warpsmith_spec::{Candidate, Setting, Task, TaskSet, WorkloadRequest, target};

const FILE: &str = "artifacts/layer.bin";
/// Shapes whose head dimensions are compiled in: D 64 and D 128; packing's are D 128, D 256 and D 64.
const SHAPES: [&str; 3] = ["tiny", "wide", "ragged"];

/// Of what the layer holds under the right keys, the part that `check` compiles again: one in so many.
const SAMPLE: usize = 24;

/// Writes the layer: compiles what it does not hold yet, or everything with `all`.
pub fn make(root: &Path, all: bool) -> Result<(), String> {
    let compiler = compiler(true)?;
    let mut builder = LayerBuilder::new(compiler.toolkit().id.clone());
    let requests = requests(root)?;
    let results = results(&compiler, &requests, (!all).then(|| root.join(FILE)).as_deref());
    for (request, result) in requests.iter().zip(results) {
        let result = result?;
        if let Err(failure) = &result {
            println!("{} for {}: {failure}", request.name, request.target);
        }
        builder.add(request, &result).map_err(|e| e.to_string())?;
    }
    let bytes = builder.finish().map_err(|e| e.to_string())?;
    fs::write(root.join(FILE), &bytes).map_err(|e| format!("{FILE}: {e}"))?;
    println!("{FILE}: {} artifacts, {} KB, made by {}", requests.len(), bytes.len() >> 10, compiler.toolkit().id);
    Ok(())
}

/// What each request gives: from the layer in `known`, as it lies there now, or else compiled.
pub(crate) fn results(
    compiler: &Compiler,
    requests: &[Request],
    known: Option<&Path>,
) -> Vec<Result<Result<Artifact, CompileFailure>, String>> {
    let layer = known
        .and_then(|file| fs::read(file).ok())
        .and_then(|bytes| Layer::from_bytes(bytes.leak()).ok())
        .filter(|layer| *layer.toolkit_id() == compiler.toolkit().id);
    requests
        .par_iter()
        .map(|r| match layer.as_ref().and_then(|layer| layer.lookup(r)) {
            Some(result) => Ok(result),
            None => compiler.compile(r).map_err(|e| format!("{}: {e}", r.name)),
        })
        .collect()
}

/// Sees that every request is in the layer, whose keys say all that goes into a result, and, where its toolkit is at hand, that
/// compiling a part of them again (with `all`: all of them) gives the same. Which part it is changes with the layer.
pub fn check(root: &Path, all: bool) -> Result<(), String> {
    let layer = Layer::from_bytes(warpsmith_builtin::layer()).map_err(|e| e.to_string())?;
    Layer::verify(warpsmith_builtin::layer()).map_err(|e| e.to_string())?;
    let requests = requests(root)?;
    let absent: Vec<_> =
        requests.iter().filter(|r| layer.lookup(r).is_none()).map(|r| format!("{} for {}", r.name, r.target)).collect();
    if !absent.is_empty() {
        return Err(format!("the layer is stale, make it anew with `cargo xtask layer`: {}", absent.join(", ")));
    }
    let compiler = match compiler(false) {
        Ok(compiler) if compiler.toolkit().id == *layer.toolkit_id() => compiler,
        Ok(compiler) => {
            println!(
                "skipped: compiling again (the toolkit here is {}, the layer's {})",
                compiler.toolkit().id,
                layer.toolkit_id()
            );
            return Ok(());
        }
        Err(why) => {
            println!("skipped: compiling again ({why})");
            return Ok(());
        }
    };
    let bytes = warpsmith_builtin::layer();
    let first = if all { 0 } else { bytes.iter().fold(0, |sum: usize, b| sum.wrapping_add(usize::from(*b))) % SAMPLE };
    let again: Vec<&Request> = requests.iter().skip(first).step_by(if all { 1 } else { SAMPLE }).collect();
    let compared: Result<Vec<Option<String>>, String> = again
        .par_iter()
        .map(|request| {
            let difference = freshness(&layer, &compiler, request).map_err(|e| e.to_string())?;
            Ok(difference.map(|d| format!("{} for {}: {d:?}", request.name, request.target)))
        })
        .collect();
    let stale: Vec<String> = compared?.into_iter().flatten().collect();
    if !stale.is_empty() {
        return Err(format!("the layer is stale, make it anew with `cargo xtask layer`: {}", stale.join("; ")));
    }
    println!("{} artifacts are fresh, {} of them compiled again", requests.len(), again.len());
    Ok(())
}

/// Each different compile request of what the binary carries, and of the candidates that the tests judge.
fn requests(root: &Path) -> Result<Vec<Request>, String> {
    let tasks = warpsmith_builtin::tasks().map_err(|e| e.to_string())?;
    let headers = Arc::new(warpsmith_builtin::headers());
    let mut candidates = warpsmith_builtin::kernels(&tasks).map_err(|e| e.to_string())?;
    candidates.extend(warpsmith_builtin::examples(&tasks).map_err(|e| e.to_string())?);
    candidates.extend(warpsmith_builtin::faults(&tasks).map_err(|e| e.to_string())?);
    candidates.extend(tested(root, &tasks)?);
    let mut found: Vec<Request> = Vec::new();
    let mut seen = BTreeSet::new();
    let alone = candidates.into_iter().map(|c| (c, None));
    for (candidate, include_root) in alone.chain(shipped(root, &tasks)?) {
        let task = tasks.find(&candidate.task).map_err(|e| e.to_string())?;
        let subject = Subject {
            canonical: canonical_name(&candidate.name).to_string(),
            task: Arc::new(task.clone()),
            candidate: Arc::new(candidate),
            include_root,
        };
        for (setting, workload, target) in cases(&subject.candidate, task)? {
            let request = request(&subject, &setting, &workload, &target, &headers).map_err(|e| e.to_string())?;
            if seen.insert(format!(
                "{}{}{:?}{:?}{:?}",
                request.name, request.source, request.target, request.defines, request.options
            )) {
                found.push(request);
            }
        }
    }
    Ok(found)
}

/// What the attention library ships and the PTX machine executes, with the folder of its headers: tests judge it where there is no toolkit.
fn shipped(root: &Path, tasks: &TaskSet) -> Result<Vec<(Candidate, Option<PathBuf>)>, String> {
    let folder = "kernels/attention/hopper";
    let one = |file: &str| {
        let name = format!("{folder}/{file}");
        let bytes = fs::read(root.join(&name)).map_err(|e| format!("{name}: {e}"))?;
        let candidate = Candidate::parse(&name, &bytes, tasks).map_err(|e| e.to_string())?;
        Ok((candidate, Some(root.join(folder))))
    };
    [
        "gate_any_forward_f16_plain.cu",
        "gate_any_forward_f16_packed_plain.cu",
        "gate_any_forward_e4m3_plain.cu",
        "gate_any_forward_e4m3_blocks_plain.cu",
        "gate_any_forward_e4m3_packed_plain.cu",
        "gate_any_forward_e4m3_transposed_plain.cu",
        "gate_any_forward_transposed_plain.cu",
        "gate_any_forward_plain.cu",
        "gate_any_forward_few_plain.cu",
        "gate_any_forward_few_blocks_plain.cu",
        "gate_any_forward_few_lengths_plain.cu",
        "gate_any_forward_few_varlen_plain.cu",
        "gate_any_forward_e4m3_few_plain.cu",
        "gate_any_forward_e4m3_few_blocks_plain.cu",
        "gate_any_forward_e4m3_few_lengths_plain.cu",
        "gate_any_forward_e4m3_few_varlen_plain.cu",
        "gate_any_forward_e4m3_few_varlen_made_plain.cu",
        "gate_any_forward_e4m3_few_lengths_made_plain.cu",
        "gate_any_forward_f16_few_plain.cu",
        "gate_any_forward_f16_few_lengths_plain.cu",
        "gate_any_forward_f16_few_varlen_plain.cu",
        "gate_any_decode_plain.cu",
        "gate_any_decode_lengths_plain.cu",
        "gate_any_decode_tokens_plain.cu",
        "gate_any_ragged_plain.cu",
        "gate_any_split_plain.cu",
        "gate_any_portable.cu",
        "gate_any_portable_f16.cu",
        "gate_any_portable_lengths.cu",
        "gate_any_portable_f16_lengths.cu",
        "gate_any_portable_packed.cu",
        "gate_any_pack.cu",
        "gate_any_pack_head.cu",
        "gate_any_pack_attend.cu",
        "gate_any_pack_keys.cu",
        "gate_any_pack_all.cu",
    ]
    .into_iter()
    .map(one)
    .collect()
}

/// `tests/candidates`: not in the binary, but judged by tests that have no toolkit.
fn tested(root: &Path, tasks: &TaskSet) -> Result<Vec<Candidate>, String> {
    let mut found = Vec::new();
    for folder in ["tests/candidates/right", "tests/candidates/wrong", "tests/candidates/attention"] {
        let entries = fs::read_dir(root.join(folder)).map_err(|e| format!("{folder}: {e}"))?;
        for path in entries.flatten().map(|e| e.path()).filter(|p| p.extension().is_some_and(|e| e == "cu")) {
            let bytes = fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?;
            let name = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().replace('\\', "/");
            found.push(Candidate::parse(&name, &bytes, tasks).map_err(|e| e.to_string())?);
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

type Case = (Setting, warpsmith_spec::Workload, String);

/// The default setting and each configuration, on each workload whose parts may be compiled in, for each target.
fn cases(candidate: &Candidate, task: &Task) -> Result<Vec<Case>, String> {
    let text = |e: warpsmith_spec::SpecError| e.to_string();
    let mut settings = vec![candidate.default_setting()];
    for config in &candidate.configs {
        let asked = warpsmith_spec::LeverRequest { config: Some(config.name.clone()), ..Default::default() };
        settings.extend(candidate.settings(&asked).map_err(text)?);
    }
    let named: Vec<String> = SHAPES.iter().filter(|s| task.shape(s).is_ok()).map(ToString::to_string).collect();
    let shapes = if named.is_empty() { task.default_shapes.clone() } else { named };
    // Scales per head, the default: the other layouts would treble the layer.
    let asked = WorkloadRequest { shapes, formats: candidate.formats.clone(), ..Default::default() };
    let mut found = applicable(candidate, &settings, &expand(task, candidate, &asked).map_err(text)?)?;
    // And its own shapes, of which some may be compiled otherwise.
    let own = WorkloadRequest { formats: candidate.formats.clone(), ..Default::default() };
    found.extend(applicable(candidate, &settings, &expand(task, candidate, &own).map_err(text)?)?);
    found.extend(lever_space(candidate, task)?);
    Ok(found)
}

/// Every setting of a built-in kernel's levers on the default workloads: the space that `warpsmith evolve` searches without a compiler.
fn lever_space(candidate: &Candidate, task: &Task) -> Result<Vec<Case>, String> {
    let text = |e: warpsmith_spec::SpecError| e.to_string();
    if candidate.levers.is_empty() || !candidate.configs.is_empty() || !candidate.name.starts_with("kernels/") {
        return Ok(Vec::new());
    }
    let sweep = warpsmith_spec::LeverRequest { sweep: true, ..Default::default() };
    let settings = candidate.settings(&sweep).map_err(text)?;
    let workloads = expand(task, candidate, &WorkloadRequest::default()).map_err(text)?;
    applicable(candidate, &settings, &workloads)
}

fn applicable(
    candidate: &Candidate,
    settings: &[Setting],
    workloads: &[warpsmith_spec::Workload],
) -> Result<Vec<Case>, String> {
    let mut found = Vec::new();
    for workload in workloads {
        for setting in settings {
            for name in &candidate.targets {
                let target = target::find(name).map_err(|e| e.to_string())?;
                if candidate.applicable(setting, workload, target).is_ok() {
                    found.push((setting.clone(), workload.clone(), name.clone()));
                }
            }
        }
    }
    Ok(found)
}

/// The compiler of the pinned line, from the cache; fetched where that is allowed.
pub(crate) fn compiler(fetch: bool) -> Result<Compiler, String> {
    let cache_dir = dirs::cache_dir().ok_or("no folder for caches")?.join("warpsmith");
    let child = ChildCommand::this_program().map_err(|e| e.to_string())?;
    let search = Search {
        explicit: None,
        cache_dir: cache_dir.clone(),
        line: Line::V13,
        allow_fetch: fetch,
        need: Need::default(),
        child,
    };
    let toolkit = find(&search).map_err(|e| e.to_string())?;
    Ok(Compiler::new(toolkit, ArtifactCache::new(cache_dir.join("artifacts")), Limits::default(), search.child))
}

fn find(search: &Search) -> Result<warpsmith_compile::Toolkit, ToolError> {
    if search.allow_fetch {
        return warpsmith_compile::fetch(search, &mut |event| println!("{event:?}"));
    }
    warpsmith_compile::find_or_fetch(search, &mut |_| {})
}
