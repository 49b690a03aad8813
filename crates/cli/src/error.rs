//! Errors of usage (exit 2) and of the environment (exit 3), said once for people and once in JSON.

use std::path::Path;
use warpsmith_spec::record::ErrorRecord;

/// What a command ends with when it cannot do its work. A candidate's failure is a verdict, never this.
#[derive(Debug, Clone, PartialEq)]
pub struct CliError {
    pub exit: i32,
    pub record: ErrorRecord,
}

impl CliError {
    /// Wrong usage, or a malformed candidate or task file.
    pub fn usage(code: &str, message: impl Into<String>) -> Self {
        Self::new(2, code, message)
    }

    /// The tool or its environment failed.
    pub fn environment(code: &str, message: impl Into<String>) -> Self {
        Self::new(3, code, message)
    }

    fn new(exit: i32, code: &str, message: impl Into<String>) -> Self {
        let record = ErrorRecord { code: code.into(), message: message.into(), file: None, line: None, hint: None };
        CliError { exit, record }
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.record.hint = Some(hint.into());
        self
    }

    pub fn file(mut self, file: &Path) -> Self {
        self.record.file = Some(file.display().to_string());
        self
    }

    /// For people: where, what, and what to do next.
    pub fn text(&self) -> String {
        let place = match (&self.record.file, self.record.line) {
            (Some(file), Some(line)) => format!("{file}:{line}: "),
            (Some(file), None) => format!("{file}: "),
            _ => String::new(),
        };
        let mut text = format!("error: {place}{}\n", self.record.message);
        if let Some(hint) = &self.record.hint {
            text.push_str(&format!("  {hint}\n"));
        }
        text.push_str(&format!("  `warpsmith explain {}` says more\n", self.record.code));
        text
    }

    /// For programs: the one document on stdout.
    pub fn json(&self) -> String {
        serde_json::json!({ "error": self.record }).to_string()
    }
}

impl From<warpsmith_spec::SpecError> for CliError {
    fn from(e: warpsmith_spec::SpecError) -> Self {
        CliError { exit: 2, record: e.record() }
    }
}

impl From<warpsmith_store::RunDirError> for CliError {
    fn from(e: warpsmith_store::RunDirError) -> Self {
        use warpsmith_store::RunDirError::{DamagedJournal, Exists, Journal, NoRun, NotWritable};
        let text = e.to_string();
        match e {
            Exists(_) => CliError::usage("run-exists", text).hint("name another folder with --out, or remove that one"),
            NotWritable { .. } => CliError::environment("output-not-writable", text)
                .hint("choose a folder that you may write to with --out"),
            NoRun { .. } => CliError::usage("run-unreadable", text)
                .hint("name the folder that a run wrote, such as runs/latest; `warpsmith history` lists those here"),
            DamagedJournal { .. } => CliError::usage("run-unreadable", text)
                .hint("take journal.jsonl from where the run was made, or move it away: then summary.json is read"),
            Journal(_) => CliError::usage("run-unreadable", text).hint("is it the folder of a warpsmith run?"),
        }
    }
}

impl From<warpsmith_store::LoopDirError> for CliError {
    fn from(e: warpsmith_store::LoopDirError) -> Self {
        use warpsmith_store::LoopDirError::{Exists, Log, MissingText, NotWritable};
        let text = e.to_string();
        match e {
            Exists(_) => CliError::usage("run-exists", text).hint("name another folder with --out, or remove that one"),
            NotWritable { .. } => CliError::environment("output-not-writable", text)
                .hint("choose a folder that you may write to with --out"),
            Log(warpsmith_store::LogError::Held(_)) => CliError::environment("run-in-use", text)
                .hint("wait until it ends, or end it; its journal can be read meanwhile: `warpsmith report RUN`"),
            Log(_) | MissingText { .. } => {
                CliError::usage("run-unreadable", text).hint("is it the folder of a `warpsmith evolve`?")
            }
        }
    }
}

impl From<warpsmith_eval::EvalError> for CliError {
    fn from(e: warpsmith_eval::EvalError) -> Self {
        let exit = if e.is_usage() { 2 } else { 3 };
        match e {
            warpsmith_eval::EvalError::Tool(tool) => tool.into(),
            other => CliError { exit, record: other.record() },
        }
    }
}
