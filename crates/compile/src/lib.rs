//! Gate 1's engine: finds or fetches a CUDA toolkit and compiles a CUDA source to PTX, cubin and statistics.
//!
//! Picture: [`Request`] -> include resolver -> [`ArtifactCache`] or [`Layer`] -> NVRTC in a child process -> PTX with canonical names ->
//! ptxas -> cubin, statistics -> [`Artifact`] or [`CompileFailure`].
//!
//! Refuses to know: tasks, candidates' front matter, launch plans, budgets, the GPU. What it needs of a source is its text.
//! A kernel that does not compile is data; a [`ToolError`] means that the environment failed.

mod artifact;
mod child;
mod compiler;
mod diagnostics;
mod error;
#[cfg(all(test, unix))]
mod fakes;
mod fetch;
mod include;
mod installer;
mod layer;
mod layout;
mod module_id;
mod probe;
mod process;
mod ptx_text;
mod ptxas;
mod request;
mod sass;
mod scan;
mod search;
mod shims;
mod staging;
mod store;
mod toolkit;
mod wmma;

pub use artifact::{Artifact, CompileFailure, Diagnostic, DiagnosticKind, EntryStats};
pub use child::{CHILD_ARG, ChildCommand, Limits, child_main};
pub use compiler::Compiler;
pub use error::ToolError;
pub use fetch::{FetchEvent, fetch};
pub use include::{IncludedFile, Resolved};
pub use layer::{Difference, Layer, LayerBuilder, freshness};
pub use ptx_text::{Entry as PtxEntry, entries as ptx_entries};
pub use request::{BuildKind, CompileOptions, Request, Standard, sha256};
pub use sass::{disassemble, disassemble_with_lines};
pub use search::{Found, Search, find, find_or_fetch};
pub use store::{ArtifactCache, CacheSizes};
pub use toolkit::{Line, Need, Origin, Toolkit, ToolkitId, Version};
