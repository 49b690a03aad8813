//! What comes out of gate 1: an artifact, or the reason why there is none. Pure data, serialisable, the same on every machine.
//!
//! A kernel that does not compile is a [`CompileFailure`], never an error of the tool.

use crate::request::BuildKind;
use crate::toolkit::ToolkitId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A compiled candidate for one target: the very PTX that is executed and shipped, and what ptxas and the SASS say of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Artifact {
    /// PTX with canonical file names, so that its bytes are the same wherever it was made.
    pub ptx: String,
    /// SHA-256 of `ptx`, 64 hexadecimal digits.
    pub ptx_sha256: String,
    /// Absent in the committed layer, which carries no machine code.
    #[serde(default, skip)]
    pub cubin: Option<Vec<u8>>,
    /// In the order of [`Request::entries`](crate::Request::entries); all of the PTX's entries where that list was empty.
    pub entries: Vec<EntryStats>,
    pub warnings: Vec<Diagnostic>,
    /// What NVRTC and ptxas said, paths made canonical.
    pub log: String,
    pub toolkit: ToolkitId,
    pub build: BuildKind,
    /// `sm_89`
    pub target: String,
}

impl Artifact {
    /// The entry that was asked for under this name or name expression.
    pub fn entry(&self, expression: &str) -> Option<&EntryStats> {
        self.entries.iter().find(|e| e.expression == expression)
    }
}

/// What ptxas and the SASS say of one entry.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntryStats {
    /// As asked for: `sdpa` or `sdpa<64, true>`.
    pub expression: String,
    /// The name in PTX and cubin.
    pub lowered: String,
    pub registers: u32,
    /// Static shared memory.
    pub shared_bytes: u32,
    pub stack_bytes: u32,
    pub spill_store_bytes: u32,
    pub spill_load_bytes: u32,
    /// Tensor-core opcodes in the SASS by kind (HMMA, IMMA, QMMA, HGMMA, QGMMA ...); empty if there are none.
    /// Where no disassembler was at hand it is empty too, and a warning of the artifact says so.
    pub tensor_ops: BTreeMap<String, u64>,
    /// Size in bytes of each parameter, in order.
    pub params: Vec<u32>,
}

/// What a message is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DiagnosticKind {
    Error,
    Warning,
    /// "cannot perform wmma load or store on local memory": the compiler has put a trap there.
    WmmaLocalMemory,
    /// `printf` or `assert` left in a release build.
    DebugCodeLeft,
    /// Registers went to memory.
    Spills,
    /// Something could not be measured here, for example no SASS disassembler.
    NotMeasured,
    Remark,
}

/// One message, with its place where it has one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Diagnostic {
    pub kind: DiagnosticKind,
    /// The compiler's words, on one line.
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
}

impl std::fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (&self.file, self.line) {
            (Some(file), Some(line)) => write!(f, "{file}:{line}: {}", self.message),
            (Some(file), None) => write!(f, "{file}: {}", self.message),
            _ => f.write_str(&self.message),
        }
    }
}

/// Why there is no artifact. Each is the candidate's doing; a broken tool is a [`ToolError`](crate::ToolError).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum CompileFailure {
    /// The front end refused the source; `diagnostics` holds at least one error.
    Nvrtc { diagnostics: Vec<Diagnostic>, log: String },
    /// A WMMA load or store addresses a thread's own array; the compiler has replaced everything from there on by a trap.
    WmmaLocalMemory { file: Option<String>, line: Option<u32>, log: String },
    /// ptxas refused the PTX.
    Ptxas { diagnostics: Vec<Diagnostic>, log: String },
    /// An entry that the launch plan names is not in the source.
    MissingEntry { name: String, available: Vec<String>, why: String },
    /// The compiler ran longer than it may.
    Timeout { seconds: u64 },
    /// The compiler wanted more memory than it may have.
    Memory { bytes: u64 },
    /// What it produced is larger than Warpsmith handles.
    TooLarge { what: String, bytes: u64, limit: u64 },
    /// An include that names no file of the toolkit's or the candidate's.
    UnsafeInclude { file: String, name: String, line: u32, why: String },
    /// The toolkit knows no such target.
    UnsupportedTarget { target: String, supported: Vec<String> },
    /// The compiler itself died on this source.
    Crashed { what: String, log: String },
}

impl CompileFailure {
    /// Snake-case name of the variant, for records.
    pub fn kind(&self) -> &'static str {
        match self {
            CompileFailure::Nvrtc { .. } => "nvrtc",
            CompileFailure::WmmaLocalMemory { .. } => "wmma_local_memory",
            CompileFailure::Ptxas { .. } => "ptxas",
            CompileFailure::MissingEntry { .. } => "missing_entry",
            CompileFailure::Timeout { .. } => "compile_timeout",
            CompileFailure::Memory { .. } => "compile_memory",
            CompileFailure::TooLarge { .. } => "compile_too_large",
            CompileFailure::UnsafeInclude { .. } => "unsafe_include",
            CompileFailure::UnsupportedTarget { .. } => "unsupported_target",
            CompileFailure::Crashed { .. } => "compiler_crashed",
        }
    }

    /// The one message that matters most, with its place. Its message is that of `Display`.
    pub fn diagnostic(&self) -> Diagnostic {
        let (file, line) = match self {
            CompileFailure::Nvrtc { diagnostics, .. } | CompileFailure::Ptxas { diagnostics, .. } => {
                first_error(diagnostics).map_or((None, None), |d| (d.file.clone(), d.line))
            }
            CompileFailure::WmmaLocalMemory { file, line, .. } => (file.clone(), *line),
            CompileFailure::UnsafeInclude { file, line, .. } => (Some(file.clone()), Some(*line)),
            _ => (None, None),
        };
        let kind = match self {
            CompileFailure::WmmaLocalMemory { .. } => DiagnosticKind::WmmaLocalMemory,
            _ => DiagnosticKind::Error,
        };
        Diagnostic { kind, message: self.to_string(), file, line }
    }

    /// The compiler's log, where there is one.
    pub fn log(&self) -> &str {
        match self {
            CompileFailure::Nvrtc { log, .. }
            | CompileFailure::WmmaLocalMemory { log, .. }
            | CompileFailure::Ptxas { log, .. }
            | CompileFailure::Crashed { log, .. } => log,
            _ => "",
        }
    }

    /// Whether the same request fails in the same way each time; what hangs on the machine's load is not kept in the cache.
    pub fn is_stable(&self) -> bool {
        !matches!(self, CompileFailure::Timeout { .. } | CompileFailure::Memory { .. } | CompileFailure::Crashed { .. })
    }
}

fn first_error(diagnostics: &[Diagnostic]) -> Option<&Diagnostic> {
    diagnostics.iter().find(|d| d.kind == DiagnosticKind::Error).or(diagnostics.first())
}

impl std::fmt::Display for CompileFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            CompileFailure::Nvrtc { diagnostics, log } => match first_error(diagnostics) {
                Some(first) => {
                    write!(f, "the compiler says: {}", first.message)?;
                    let more = diagnostics.iter().filter(|d| d.kind == DiagnosticKind::Error).count().saturating_sub(1);
                    if more > 0 {
                        write!(f, " (and {more} more error{})", if more == 1 { "" } else { "s" })?;
                    }
                    Ok(())
                }
                None => write!(f, "the compiler says: {}", log.lines().next().unwrap_or("nothing")),
            },
            CompileFailure::WmmaLocalMemory { .. } => f.write_str(
                "cannot perform wmma load or store on local memory: the compiler has replaced everything from there on by a trap. \
                 Stage the tile in shared or global memory",
            ),
            CompileFailure::Ptxas { diagnostics, log } => match first_error(diagnostics) {
                Some(first) => write!(f, "ptxas says: {}", first.message),
                None => write!(f, "ptxas says: {}", log.lines().next().unwrap_or("nothing")),
            },
            CompileFailure::MissingEntry { name, available, why } => {
                write!(f, "the source has no kernel \"{name}\": {why}")?;
                if !available.is_empty() {
                    write!(f, "; it has {}", available.join(", "))?;
                }
                Ok(())
            }
            CompileFailure::Timeout { seconds } => write!(f, "compiling took longer than the limit of {seconds} s"),
            CompileFailure::Memory { bytes } => write!(f, "the compiler wanted more than its limit of {} MiB of memory", bytes >> 20),
            CompileFailure::TooLarge { what, bytes, limit } => write!(f, "{what} has {bytes} bytes, more than the limit of {limit}"),
            CompileFailure::UnsafeInclude { name, why, .. } => write!(f, "#include of {name} refused: {why}"),
            CompileFailure::UnsupportedTarget { target, supported } => {
                write!(f, "this toolkit does not know the target {target}; it knows {}", supported.join(", "))
            }
            CompileFailure::Crashed { what, .. } => write!(f, "the compiler died on this source: {what}"),
        }
    }
}
