//! The kernel's file as an artifact: a `.ptx` as it stands, a `.cu` through the compiler, with each launch's entry found in it.
//!
//! It knows neither buffers nor expected values. A source is asked for its entries as C++ names expressions; what that does not find (a
//! mangled name, a name without its namespace) is looked for among the names that the PTX has.

use super::host_code;
use super::names::{self, Miss};
use super::{Kernel, Request};
use crate::compile_gate::{code_of, options};
use crate::error::EvalError;
use crate::finding::Code;
use warpsmith_compile::{
    Artifact, BuildKind, CompileFailure, EntryStats, Request as CompileRequest, ToolkitId, sha256,
};
use warpsmith_machine::{EntryInfo, LoadError, Program};
use warpsmith_spec::record::{FindingRecord, VerdictWord};
use warpsmith_spec::target::{self, Target};
use warpsmith_spec::{SpecCode, SpecError, suggest};

/// What a source is compiled for where the launch file does not say.
const DEFAULT_TARGET: &str = "sm_89";

/// What nvcc's files have without including it, by way of the host's headers; for a source that does not compile without.
const HOST_WORDS: &str = "#include <stdint.h>\n#include <math.h>\n#include <limits.h>\n#include <float.h>\n\
    typedef unsigned int uint;\ntypedef unsigned short ushort;\ntypedef unsigned long ulong;\n#line 1\n";

/// A kernel that can be launched, or why not.
pub(super) enum Loaded {
    Ready(Box<Artifact>),
    Failed(VerdictWord, Box<FindingRecord>),
}

/// The target: the launch file's, else the PTX's own, else the usual one.
pub(super) fn target(request: &Request) -> Result<&'static Target, SpecError> {
    let own = match request.kernel {
        Kernel::Ptx { text } => text.lines().find_map(|l| {
            let words = l.trim_start().strip_prefix(".target")?;
            words.split([',', ' ', '\t']).map(str::trim).find(|w| w.starts_with("sm_"))
        }),
        Kernel::Source { .. } => None,
    };
    match (request.plan.target, own) {
        (Some(target), _) => Ok(target),
        // Older than all that are listed: what it may ask of a block, the oldest of them has.
        (None, Some(own)) => Ok(target::find(own).unwrap_or(&target::TARGETS[0])),
        (None, None) => target::find(DEFAULT_TARGET),
    }
}

pub(super) fn load(request: &Request, target: &Target) -> Result<Loaded, EvalError> {
    match &request.kernel {
        Kernel::Ptx { text } => match Program::load(text) {
            Ok(program) => Ok(Loaded::Ready(Box::new(of_ptx(request, text, &program, target)?))),
            Err(e) => Ok(Loaded::Failed(VerdictWord::CompileFailed, Box::new(syntax(request, &e)))),
        },
        Kernel::Source { .. } => compiled(request, target),
    }
}

fn syntax(request: &Request, e: &LoadError) -> FindingRecord {
    let mut f = Code::PtxSyntax.error("compile", format!("column {}: {}", e.column, e.message));
    (f.file, f.line) = (Some(request.file.to_string()), Some(e.line));
    f
}

fn of_ptx(request: &Request, text: &str, program: &Program, target: &Target) -> Result<Artifact, SpecError> {
    let present = program.entries();
    let entries = distinct(request)
        .into_iter()
        .map(|asked| Ok(stats(asked, resolve(request, asked, &present, None)?)))
        .collect::<Result<_, SpecError>>()?;
    Ok(Artifact {
        ptx: text.to_string(),
        ptx_sha256: sha256(text.as_bytes()),
        cubin: None,
        entries,
        warnings: Vec::new(),
        log: String::new(),
        toolkit: ToolkitId("none: PTX as it was given".into()),
        build: BuildKind::Release,
        target: target.name.to_string(),
    })
}

/// The entries that are launched, each once.
fn distinct<'a>(request: &Request<'a>) -> Vec<&'a str> {
    let mut found: Vec<&str> = Vec::new();
    for launch in &request.plan.launches {
        if !found.contains(&launch.entry.as_str()) {
            found.push(&launch.entry);
        }
    }
    found
}

fn stats(asked: &str, entry: &EntryInfo) -> EntryStats {
    EntryStats {
        expression: asked.to_string(),
        lowered: entry.name.clone(),
        shared_bytes: entry.static_shared_bytes,
        params: entry.params.iter().map(|p| p.bytes).collect(),
        ..EntryStats::default()
    }
}

/// The entry that is meant, or the error at the line that asks for it. `why` is what the compiler had to say.
fn resolve<'p>(
    request: &Request,
    asked: &str,
    present: &'p [EntryInfo],
    why: Option<&str>,
) -> Result<&'p EntryInfo, SpecError> {
    let names: Vec<String> = present.iter().map(|e| e.name.clone()).collect();
    let readable: Vec<String> = names.iter().map(|n| names::readable(n)).collect();
    let line = request.plan.launches.iter().find(|l| l.entry == asked).map_or(1, |l| l.entry_line);
    let wrong = |message: String, hint: String| {
        Err(SpecError::new(SpecCode::UnknownName, message).at(&request.plan.name, line).hint(hint))
    };
    match names::find(asked, &names) {
        Ok(name) => match present.iter().find(|e| e.name == name) {
            Some(entry) => Ok(entry),
            None => wrong(format!("{} has no entry `{asked}`", request.file), String::new()),
        },
        Err(Miss::Many(many)) => wrong(
            format!("`{asked}` may be any of {} entries of {}", many.len(), request.file),
            format!("name one of them: {}", suggest::listed(many.iter().map(String::as_str))),
        ),
        Err(Miss::None) => {
            let short: Vec<String> = names.iter().flat_map(|n| names::short(n)).collect();
            let near = suggest::did_you_mean(asked, short.iter().map(String::as_str));
            let said = why.map(|w| format!(": {w}")).unwrap_or_default();
            let hint = match readable.as_slice() {
                [] => "a template has entries only where its arguments are named: `softmax<float, 256>`".to_string(),
                some => format!("its entries: {}", suggest::listed(some.iter().map(String::as_str))),
            };
            wrong(format!("{} has no entry `{asked}`{near}{said}", request.file), hint)
        }
    }
}

fn compiled(request: &Request, target: &Target) -> Result<Loaded, EvalError> {
    let Kernel::Source { text, canonical, include_root, headers } = &request.kernel else {
        return Err(EvalError::Defect("a PTX text is not compiled".into()));
    };
    let asked = distinct(request);
    let settings = request.plan.compile.resolve(&warpsmith_spec::Setting::default());
    let mut ask = CompileRequest {
        name: canonical.to_string(),
        source: text.to_string(),
        include_root: include_root.map(Into::into),
        builtin_headers: headers.clone(),
        defines: request.plan.defines.clone(),
        options: options(&settings)?,
        // A mangled name is no expression of C++.
        entries: asked.iter().filter(|e| !e.starts_with("_Z")).map(|e| e.to_string()).collect(),
        target: target.name.to_string(),
        build: BuildKind::Asserting,
    };
    let mut missing: Vec<(String, String)> = Vec::new();
    let mut whole = true;
    let mut artifact = loop {
        match request.source.artifact(&ask)? {
            Ok(artifact) => break artifact,
            Err(CompileFailure::MissingEntry { name, why, .. }) if ask.entries.contains(&name) => {
                ask.entries.retain(|e| *e != name);
                missing.push((name, why));
            }
            Err(failure) => {
                let host = matches!(failure, CompileFailure::Nvrtc { .. } | CompileFailure::UnsafeInclude { .. });
                if whole && host {
                    let device = host_code::without(text);
                    ask.source = format!("{HOST_WORDS}{}", device.as_deref().unwrap_or(text));
                    whole = false;
                    continue;
                }
                let finding = failed(request, target, &failure, whole);
                return Ok(Loaded::Failed(VerdictWord::CompileFailed, Box::new(finding)));
            }
        }
    };
    let program = match Program::load(&artifact.ptx) {
        Ok(program) => program,
        // The compiler wrote this PTX, so what cannot be read is a construct that the machine lacks.
        Err(e) => {
            let what =
                format!("the PTX machine cannot read what the compiler made: {e}; nothing is said about the kernel");
            let f = Code::UnsupportedInstruction.error("correctness", what);
            return Ok(Loaded::Failed(VerdictWord::Unsupported, Box::new(f)));
        }
    };
    let present = program.entries();
    for asked in asked {
        if artifact.entry(asked).is_none() {
            let why = missing.iter().find(|(name, _)| name == asked).map(|(_, why)| why.as_str());
            let found = resolve(request, asked, &present, why)?;
            artifact.entries.push(stats(asked, found));
        }
    }
    Ok(Loaded::Ready(Box::new(artifact)))
}

fn failed(request: &Request, target: &Target, failure: &CompileFailure, whole: bool) -> FindingRecord {
    let place = failure.diagnostic();
    let mut f = code_of(failure).error("compile", format!("{}: {}", target.name, place.message));
    f.file = Some(place.file.map_or_else(|| request.file.to_string(), |file| request.typed(&file)));
    f.line = place.line;
    // What counts lines by itself does not see `#line`.
    let counted = matches!(failure, CompileFailure::UnsafeInclude { .. } | CompileFailure::WmmaLocalMemory { .. });
    if counted && !whole && f.file.as_deref() == Some(request.file) {
        f.line = f.line.map(|l| l.saturating_sub(HOST_WORDS.lines().count() as u32).max(1));
    }
    f
}
