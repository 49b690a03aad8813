//! What can be wrong in a file or in the names that people type: one type, with file, line and what to do next.
//!
//! It knows nothing of exit codes or colours; the command line turns it into both. A message's first line stands alone.

use crate::record::ErrorRecord;

/// The class of an error, with a page of its own in `warpsmith explain`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SpecCode {
    /// The candidate's file cannot be read as one: no front matter, broken TOML, a key or a type that does not belong there.
    CandidateSyntax,
    /// The same of a task's file.
    TaskSyntax,
    /// The same of a launch file, or of a file that it names.
    LaunchSyntax,
    /// A name that nothing has: task, shape, symbol, argument, lever, configuration, target.
    UnknownName,
    /// Levers or shapes that the candidate's own constraints exclude, so that nothing is left to judge.
    ConstraintNotMet,
    /// The arguments of a launch do not fit the entry's parameters.
    ArgumentMismatch,
    /// A launch that no shape makes possible: a block of more than 1024 threads, a grid of zero.
    InvalidLaunch,
}

impl SpecCode {
    pub const ALL: [SpecCode; 7] = [
        SpecCode::CandidateSyntax,
        SpecCode::TaskSyntax,
        SpecCode::LaunchSyntax,
        SpecCode::UnknownName,
        SpecCode::ConstraintNotMet,
        SpecCode::ArgumentMismatch,
        SpecCode::InvalidLaunch,
    ];

    /// The kebab-case id.
    pub fn as_str(self) -> &'static str {
        match self {
            SpecCode::CandidateSyntax => "candidate-syntax",
            SpecCode::TaskSyntax => "task-syntax",
            SpecCode::LaunchSyntax => "launch-syntax",
            SpecCode::UnknownName => "unknown-name",
            SpecCode::ConstraintNotMet => "constraint-not-met",
            SpecCode::ArgumentMismatch => "argument-mismatch",
            SpecCode::InvalidLaunch => "invalid-launch",
        }
    }
}

impl std::fmt::Display for SpecCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Something wrong in a candidate, a task, or a name typed by a person: wrong usage, exit code 2.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SpecError {
    pub code: SpecCode,
    /// One line: what is wrong, by name, and what was expected.
    pub message: String,
    /// The file as it was named to the parser.
    pub file: Option<String>,
    /// Line of that file, from 1.
    pub line: Option<u32>,
    /// What to do next.
    pub hint: Option<String>,
}

impl SpecError {
    pub fn new(code: SpecCode, message: impl Into<String>) -> SpecError {
        SpecError { code, message: one_line(&message.into()), file: None, line: None, hint: None }
    }

    pub fn at(mut self, file: &str, line: u32) -> SpecError {
        self.file = Some(file.to_string());
        self.line = Some(line);
        self
    }

    pub fn in_file(mut self, file: &str) -> SpecError {
        self.file = Some(file.to_string());
        self
    }

    pub fn hint(mut self, hint: impl Into<String>) -> SpecError {
        self.hint = Some(one_line(&hint.into()));
        self
    }

    /// As the record of an error says it.
    pub fn record(&self) -> ErrorRecord {
        ErrorRecord {
            code: self.code.as_str().to_string(),
            message: self.message.clone(),
            file: self.file.clone(),
            line: self.line,
            hint: self.hint.clone(),
        }
    }
}

impl From<SpecError> for ErrorRecord {
    fn from(error: SpecError) -> ErrorRecord {
        error.record()
    }
}

/// Control characters would break a message's line, or a terminal; what people typed is shown escaped.
fn one_line(text: &str) -> String {
    const LIMIT: usize = 2000;
    let mut out = String::new();
    for c in text.chars() {
        if out.len() > LIMIT {
            out.push_str("...");
            break;
        }
        if c.is_control() { out.extend(c.escape_default()) } else { out.push(c) }
    }
    out
}

/// A piece of what people typed, short enough for a message.
pub(crate) fn shown(text: &str) -> String {
    const LIMIT: usize = 120;
    if text.chars().count() <= LIMIT {
        return text.to_string();
    }
    text.chars().take(LIMIT).chain("...".chars()).collect()
}
