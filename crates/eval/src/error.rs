//! What stops an evaluation that is nobody's verdict: wrong usage, a broken tool, a missing reference.

use crate::reference::ReferenceError;
use warpsmith_compile::ToolError;
use warpsmith_cuda::worker::WorkerError;
use warpsmith_spec::error::{SpecCode, SpecError};
use warpsmith_spec::record::ErrorRecord;

#[derive(Debug, thiserror::Error)]
pub enum EvalError {
    /// Wrong usage, or a malformed candidate or task: exit code 2.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The compiler's environment failed: exit code 3.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// The reference could not be had: exit code 3.
    #[error(transparent)]
    Reference(#[from] ReferenceError),
    /// The GPU's worker could not do its work: exit code 3.
    #[error(transparent)]
    Worker(#[from] WorkerError),
    /// A defect of Warpsmith's own that it noticed: exit code 3.
    #[error("{0}")]
    Defect(String),
    /// The caller asked for the run to end.
    #[error("cancelled")]
    Cancelled,
}

impl EvalError {
    /// An error of the task's file that only shows with a workload.
    pub fn task(file: &str, message: impl Into<String>) -> EvalError {
        EvalError::Spec(SpecError::new(SpecCode::TaskSyntax, message).in_file(file))
    }

    /// Whether it is wrong usage (exit code 2) rather than a failure of the tool or its environment (3).
    pub fn is_usage(&self) -> bool {
        matches!(self, EvalError::Spec(_))
    }

    pub fn record(&self) -> ErrorRecord {
        let plain = |code: &str, hint: Option<&str>| ErrorRecord {
            code: code.to_string(),
            message: self.to_string(),
            file: None,
            line: None,
            hint: hint.map(str::to_string),
        };
        match self {
            EvalError::Spec(e) => e.record(),
            EvalError::Tool(e) => plain(e.code(), None),
            EvalError::Reference(e) => plain(e.code(), Some(e.hint())),
            EvalError::Worker(e) => plain(e.code(), Some(e.hint())),
            EvalError::Defect(_) => plain(
                "tool-defect",
                Some("this is a defect of Warpsmith; please report it with the command that led here"),
            ),
            EvalError::Cancelled => plain("cancelled", None),
        }
    }
}
