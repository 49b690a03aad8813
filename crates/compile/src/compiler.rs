//! Source to artifact: includes, cache, NVRTC in its child, warnings, ptxas, SASS.

use crate::artifact::{Artifact, CompileFailure, Diagnostic, DiagnosticKind, EntryStats};
use crate::child::{self, ChildCommand, ChildEnd, ChildReply, ChildRequest, Job, Limits};
use crate::diagnostics;
use crate::error::ToolError;
use crate::include::Resolved;
use crate::module_id;
use crate::ptx_text;
use crate::ptxas::{self, Assembled};
use crate::request::{BuildKind, Request, sha256};
use crate::sass;
use crate::staging::Staging;
use crate::store::ArtifactCache;
use crate::toolkit::Toolkit;
use crate::wmma;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Largest source.
const MAX_SOURCE: u64 = 4 << 20;

/// A toolkit with a cache in front of it.
#[derive(Debug, Clone)]
pub struct Compiler {
    toolkit: Toolkit,
    /// Header folders, and what links in them lead to.
    readable: Vec<PathBuf>,
    cache: ArtifactCache,
    limits: Limits,
    child: ChildCommand,
}

/// What NVRTC makes of a source.
enum Front {
    Done { ptx: String, lowered: Vec<String>, log: String },
    Refused { code: i32, log: String },
    Failed(CompileFailure),
}

impl Compiler {
    pub fn new(toolkit: Toolkit, cache: ArtifactCache, limits: Limits, child: ChildCommand) -> Compiler {
        let readable = readable(&toolkit.include_dirs);
        Compiler { toolkit, readable, cache, limits, child }
    }

    pub fn toolkit(&self) -> &Toolkit {
        &self.toolkit
    }

    pub fn cache(&self) -> &ArtifactCache {
        &self.cache
    }

    /// Compiles, or finds what the same request gave before. The outer error is the environment's, the inner one the candidate's.
    pub fn compile(&self, request: &Request) -> Result<Result<Artifact, CompileFailure>, ToolError> {
        let resolved = match request.resolve()? {
            Ok(resolved) => resolved,
            Err(failure) => return Ok(Err(failure)),
        };
        let key = request.key(&resolved, &self.toolkit.id);
        if let Some(found) = self.cache.get(&key) {
            return Ok(found);
        }
        let result = self.compile_anew(request, &resolved)?;
        // A full or read-only disk costs the cache, not the answer.
        if result.as_ref().err().is_none_or(CompileFailure::is_stable) {
            let _ = self.cache.put(&key, &result);
        }
        Ok(result)
    }

    /// Compiles without a look at the cache.
    pub fn compile_anew(
        &self,
        request: &Request,
        resolved: &Resolved,
    ) -> Result<Result<Artifact, CompileFailure>, ToolError> {
        if request.source.len() as u64 > MAX_SOURCE {
            return Ok(Err(CompileFailure::TooLarge {
                what: "the source".into(),
                bytes: request.source.len() as u64,
                limit: MAX_SOURCE,
            }));
        }
        if let Some(at) = request.source.find('\0') {
            let line = request.source[..at].matches('\n').count() as u32 + 1;
            let message = "the source holds a NUL byte".to_owned();
            let diagnostics = vec![Diagnostic {
                kind: DiagnosticKind::Error,
                message,
                file: Some(request.name.clone()),
                line: Some(line),
            }];
            return Ok(Err(CompileFailure::Nvrtc { diagnostics, log: String::new() }));
        }
        let number: u32 = request.target.trim_start_matches("sm_").trim_end_matches(['a', 'f']).parse().unwrap_or(0);
        if !self.toolkit.architectures.is_empty() && !self.toolkit.architectures.contains(&number) {
            let supported = self.toolkit.architectures.iter().map(|a| format!("sm_{a}")).collect();
            return Ok(Err(CompileFailure::UnsupportedTarget { target: request.target.clone(), supported }));
        }
        let staging = Staging::new(&request.name, resolved, &self.toolkit)?;
        let (ptx, lowered, log) = match self.front(request, &staging, &request.source, &request.entries)? {
            Front::Done { ptx, lowered, log } => (ptx, lowered, log),
            Front::Failed(failure) => return Ok(Err(failure)),
            Front::Refused { code, log } => return Ok(Err(self.refused(request, &staging, code, log)?)),
        };
        let mut warnings: Vec<Diagnostic> = diagnostics::of_nvrtc(&log).into_iter().filter(is_worth_telling).collect();
        if warnings.iter().any(|d| d.kind == DiagnosticKind::WmmaLocalMemory) {
            let line = self.wmma_line(request, &staging)?;
            return Ok(Err(CompileFailure::WmmaLocalMemory { file: line.map(|_| request.name.clone()), line, log }));
        }
        let ptx = staging.canonical_ptx(&ptx);
        let lowered = lowered.iter().map(|name| module_id::stable_names(name)).collect();
        let mut entries = match select_entries(request, &ptx, lowered) {
            Ok(entries) => entries,
            Err(failure) => return Ok(Err(failure)),
        };
        if request.build == BuildKind::Release {
            warnings.extend(ptx_text::debug_code(&ptx));
        }

        let options = request.options.ptxas_args(request.build);
        let (cubin, ptxas_log) =
            match ptxas::assemble(&self.toolkit, staging.path(), &ptx, &request.target, &options, &self.limits)? {
                Assembled::Cubin { cubin, log } => (cubin, log),
                Assembled::Refused { log } => {
                    let log = staging.canonical_log(&log);
                    return Ok(Err(CompileFailure::Ptxas { diagnostics: diagnostics::of_ptxas(&log), log }));
                }
                Assembled::TimedOut => return Ok(Err(CompileFailure::Timeout { seconds: self.limits.seconds })),
                Assembled::OutOfMemory => return Ok(Err(CompileFailure::Memory { bytes: self.limits.memory_bytes })),
                Assembled::Died { how, log } => {
                    return Ok(Err(CompileFailure::Crashed {
                        what: format!("ptxas, {how}"),
                        log: staging.canonical_log(&log),
                    }));
                }
            };
        warnings.extend(diagnostics::of_ptxas(&ptxas_log));
        let statistics = ptxas::statistics(&ptxas_log);
        let tensor_ops = match sass::count(&self.toolkit, staging.path(), &self.limits)? {
            Ok(counts) => counts,
            Err(why) => {
                let message = format!("tensor-core opcodes were not counted: {why}");
                warnings.push(Diagnostic { kind: DiagnosticKind::NotMeasured, message, file: None, line: None });
                Default::default()
            }
        };
        for entry in &mut entries {
            if let Some(s) = statistics.get(&entry.lowered) {
                entry.registers = s.registers;
                entry.shared_bytes = s.shared_bytes;
                entry.stack_bytes = s.stack_bytes;
                entry.spill_store_bytes = s.spill_store_bytes;
                entry.spill_load_bytes = s.spill_load_bytes;
            }
            entry.tensor_ops = tensor_ops.get(&entry.lowered).cloned().unwrap_or_default();
            let spilled = entry.spill_store_bytes + entry.spill_load_bytes;
            if spilled > 0 {
                let message = format!(
                    "{} spills registers: {} bytes stored, {} loaded",
                    entry.expression, entry.spill_store_bytes, entry.spill_load_bytes
                );
                warnings.push(Diagnostic { kind: DiagnosticKind::Spills, message, file: None, line: None });
            }
        }
        // Times differ from run to run, and the artifact must not.
        let ptxas_log: String =
            ptxas_log.lines().filter(|l| !l.contains("Compile time = ")).map(|l| format!("{l}\n")).collect();
        let log = staging.canonical_log(&format!("{log}{ptxas_log}"));
        let ptx_sha256 = sha256(ptx.as_bytes());
        let toolkit = self.toolkit.id.clone();
        let target = request.target.clone();
        Ok(Ok(Artifact {
            ptx,
            ptx_sha256,
            cubin: Some(cubin),
            entries,
            warnings,
            log,
            toolkit,
            build: request.build,
            target,
        }))
    }

    fn front(
        &self,
        request: &Request,
        staging: &Staging,
        source: &str,
        expressions: &[String],
    ) -> Result<Front, ToolError> {
        let mut options = vec![format!("--gpu-architecture={}", request.target.replacen("sm_", "compute_", 1))];
        options.extend(request.options.nvrtc_args(request.build));
        options.extend(request.defines.iter().map(|(name, value)| format!("-D{name}={value}")));
        options.extend(staging.include_args().iter().cloned());
        let ask = ChildRequest {
            mark: child::fresh_mark(),
            nvrtc: self.toolkit.nvrtc.clone(),
            builtins: self.toolkit.nvrtc_builtins.clone(),
            readable: self.readable.clone(),
            memory_bytes: self.limits.memory_bytes,
            seconds: self.limits.seconds,
            job: Job::Compile {
                name: request.name.clone(),
                source: source.to_owned(),
                options,
                expressions: expressions.to_vec(),
                ptx_limit: self.limits.ptx_bytes,
            },
        };
        Ok(match child::ask(&self.child, staging.path(), &ask)? {
            ChildEnd::Reply(ChildReply::Compiled { ptx_bytes, .. }) if ptx_bytes > self.limits.ptx_bytes => {
                Front::Failed(CompileFailure::TooLarge {
                    what: "the PTX".into(),
                    bytes: ptx_bytes,
                    limit: self.limits.ptx_bytes,
                })
            }
            ChildEnd::Reply(ChildReply::Compiled { code: 0, log, ptx, lowered, .. }) => {
                Front::Done { ptx, lowered, log: staging.canonical_log(&log) }
            }
            // NVRTC_ERROR_OUT_OF_MEMORY
            ChildEnd::Reply(ChildReply::Compiled { code: 1, .. }) | ChildEnd::OutOfMemory => {
                Front::Failed(CompileFailure::Memory { bytes: self.limits.memory_bytes })
            }
            ChildEnd::Reply(ChildReply::Compiled { log, .. }) if is_memory_log(&log) => {
                Front::Failed(CompileFailure::Memory { bytes: self.limits.memory_bytes })
            }
            ChildEnd::Reply(ChildReply::Compiled { code, log, .. }) => {
                Front::Refused { code, log: staging.canonical_log(&log) }
            }
            ChildEnd::Reply(ChildReply::Broken { why }) => {
                return Err(ToolError::BrokenToolkit { path: self.toolkit.root.clone(), why });
            }
            ChildEnd::Reply(ChildReply::Probed { .. }) => {
                return Err(ToolError::Child { why: "it answered another question".into() });
            }
            ChildEnd::TimedOut => Front::Failed(CompileFailure::Timeout { seconds: self.limits.seconds }),
            ChildEnd::Died { how, said } => Front::Failed(CompileFailure::Crashed {
                what: format!("NVRTC, {how}"),
                log: staging.canonical_log(&said),
            }),
        })
    }

    /// Sorts out why NVRTC refused: the source, or an entry that it does not have.
    fn refused(
        &self,
        request: &Request,
        staging: &Staging,
        code: i32,
        log: String,
    ) -> Result<CompileFailure, ToolError> {
        let all = diagnostics::of_nvrtc(&log);
        let is_name = |d: &Diagnostic| d.file.as_deref() == Some(diagnostics::NAME_MAP);
        let mut own: Vec<Diagnostic> = all.iter().filter(|d| !is_name(d)).cloned().collect();
        let has_own_error = own.iter().any(|d| d.kind == DiagnosticKind::Error);
        if !has_own_error && all.iter().any(is_name) {
            let why = all.iter().find(|d| is_name(d)).map(|d| short_reason(&d.message)).unwrap_or_default();
            let name = missing_name(&log, &request.entries).unwrap_or_else(|| request.entries.join(", "));
            // The source by itself says what it has. Its templates stay unseen, which is why the list may be empty.
            let available = match self.front(request, staging, &request.source, &[])? {
                Front::Done { ptx, .. } => ptx_text::entries(&ptx).iter().map(|e| readable_name(&e.name)).collect(),
                _ => Vec::new(),
            };
            return Ok(CompileFailure::MissingEntry { name, available, why });
        }
        if !has_own_error {
            let said = log.lines().find(|l| !l.trim().is_empty()).unwrap_or("no reason given");
            let message = format!("NVRTC error {code}: {said}");
            own.push(Diagnostic { kind: DiagnosticKind::Error, message, file: None, line: None });
        }
        Ok(CompileFailure::Nvrtc { diagnostics: own, log })
    }

    /// The line of the WMMA load or store on local memory, if one can be found out.
    fn wmma_line(&self, request: &Request, staging: &Staging) -> Result<Option<u32>, ToolError> {
        let calls = wmma::calls(&request.source);
        for keep in 0..calls.len().min(wmma::MAX_CALLS) {
            let source = wmma::only(&request.source, &calls, keep);
            if let Front::Done { log, .. } = self.front(request, staging, &source, &request.entries)?
                && diagnostics::of_nvrtc(&log).iter().any(|d| d.kind == DiagnosticKind::WmmaLocalMemory)
            {
                return Ok(Some(calls[keep].line));
            }
        }
        Ok(calls.first().map(|c| c.line))
    }
}

/// Header folders with the folders that links in them lead to: some package managers install nothing but links.
fn readable(include_dirs: &[PathBuf]) -> Vec<PathBuf> {
    /// A toolkit has about 2,000 headers.
    const MAX_ENTRIES: usize = 50_000;
    let mut found: BTreeSet<PathBuf> = include_dirs.iter().cloned().collect();
    let mut folders: Vec<PathBuf> = include_dirs.to_vec();
    let mut seen = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            seen += 1;
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_symlink() {
                let Ok(real) = std::fs::canonicalize(entry.path()) else { continue };
                if real.is_dir() {
                    // Followed once: links in circles lead to what was found already.
                    if found.insert(real.clone()) {
                        folders.push(real);
                    }
                } else if let Some(parent) = real.parent() {
                    found.insert(parent.to_path_buf());
                }
            } else if kind.is_dir() {
                folders.push(entry.path());
            }
        }
        if seen > MAX_ENTRIES {
            break;
        }
    }
    found.into_iter().collect()
}

/// What the toolkit's own headers are warned of is nothing that a candidate could mend.
fn is_worth_telling(d: &Diagnostic) -> bool {
    match d.kind {
        DiagnosticKind::Error | DiagnosticKind::Remark => false,
        DiagnosticKind::Warning => !d.file.as_deref().is_some_and(|f| f.starts_with('<')),
        _ => true,
    }
}

fn is_memory_log(log: &str) -> bool {
    let lower = log.to_lowercase();
    lower.contains("out of memory") || lower.contains("bad_alloc")
}

/// NVRTC's words without the part that repeats its own question.
fn short_reason(message: &str) -> String {
    message.split(" Input name expression").next().unwrap_or(message).trim_end_matches('.').to_owned()
}

/// The entry that the log complains of: `  #pragma nv_mangled_name sdpa_fancy`.
fn missing_name(log: &str, entries: &[String]) -> Option<String> {
    let named = log.lines().find_map(|l| l.trim().strip_prefix("#pragma nv_mangled_name "))?.trim();
    let bare = |s: &str| s.split_whitespace().collect::<String>();
    Some(entries.iter().find(|e| bare(e) == bare(named)).cloned().unwrap_or_else(|| named.to_owned()))
}

/// The entries that were asked for, with their PTX names; all there are if none was named.
fn select_entries(request: &Request, ptx: &str, lowered: Vec<String>) -> Result<Vec<EntryStats>, CompileFailure> {
    let present = ptx_text::entries(ptx);
    let stats = |expression: &str, e: &ptx_text::Entry| EntryStats {
        expression: expression.to_owned(),
        lowered: e.name.clone(),
        params: e.params.clone(),
        ..EntryStats::default()
    };
    if request.entries.is_empty() {
        return Ok(present.iter().map(|e| stats(&e.name, e)).collect());
    }
    let mut found = Vec::new();
    for (expression, name) in request.entries.iter().zip(&lowered) {
        match present.iter().find(|e| &e.name == name) {
            Some(entry) => found.push(stats(expression, entry)),
            None => {
                let available = present.iter().map(|e| readable_name(&e.name)).collect();
                return Err(CompileFailure::MissingEntry {
                    name: expression.clone(),
                    available,
                    why: "it is no __global__ function".into(),
                });
            }
        }
    }
    Ok(found)
}

/// `k` from `_Z1kPf`, `a::k<...>` from `_ZN1a1kILi64EEEvPf`; names of other forms stay as they are.
fn readable_name(name: &str) -> String {
    let Some(rest) = name.strip_prefix("_Z") else { return name.to_owned() };
    let nested = rest.starts_with('N');
    let mut rest = rest.trim_start_matches('N');
    let mut parts = Vec::new();
    while let Some(digits) = rest.find(|c: char| !c.is_ascii_digit()).filter(|n| *n > 0) {
        let Ok(length) = rest[..digits].parse::<usize>() else { break };
        let Some(part) = rest.get(digits..digits + length) else { break };
        parts.push(part.to_owned());
        rest = &rest[digits + length..];
        if !nested {
            break;
        }
    }
    if parts.is_empty() {
        return name.to_owned();
    }
    let template = if rest.starts_with('I') { "<...>" } else { "" };
    format!("{}{template}", parts.join("::"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mangled_names_are_made_readable() {
        for (mangled, want) in [
            ("k", "k"),
            ("_Z1kPf", "k"),
            ("_ZN1a3nskEPf", "a::nsk"),
            ("_Z1kILi64ELb1EEvP6__halfPf", "k<...>"),
            ("_Z", "_Z"),
            ("_Z99k", "_Z99k"),
        ] {
            assert_eq!(readable_name(mangled), want);
        }
    }

    #[test]
    fn the_entry_that_is_missing_is_named_as_it_was_typed() {
        let log = "__nv_name_map(2): error: identifier \"nope\" is undefined\n  #pragma nv_mangled_name k<64,true>\n                          ^\n";
        assert_eq!(missing_name(log, &["k<64, true>".into()]).as_deref(), Some("k<64, true>"));
        assert_eq!(
            short_reason(
                "Name expression cannot form address of a non-__global__ function. Input name expression was: \" helper\""
            ),
            "Name expression cannot form address of a non-__global__ function"
        );
    }
}
