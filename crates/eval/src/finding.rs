//! Findings of the gates, in the record's form, and their codes.
//!
//! A code is the kebab-case name of a page in `warpsmith explain`; a kind is the same words in snake_case.

use warpsmith_spec::record::{FindingRecord, Severity};

/// What the gates themselves find; the machine's findings bring their own words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Code {
    // Gate 1.
    CompileError,
    /// A PTX text that cannot be read as one.
    PtxSyntax,
    WmmaLocalMemory,
    PtxasError,
    MissingEntry,
    CompileTimeout,
    CompileMemory,
    CompileTooLarge,
    UnsafeInclude,
    UnsupportedTarget,
    CompilerCrashed,
    OverRegisterBudget,
    OverSharedBudget,
    OverSpillBudget,
    DebugCodeLeft,
    // The launch.
    InvalidLaunch,
    SharedMemoryExceeded,
    BlockTooLarge,
    ArgumentMismatch,
    UnsupportedInstruction,
    InstructionLimit,
    /// A deadline of wall-clock time: on a GPU.
    TimeLimit,
    // Gate 2.
    IncorrectOutput,
    IncorrectEndToEnd,
    NonFiniteOutput,
    OutputUnwritten,
    InputModified,
    ScheduleDependent,
    // Gate 3.
    TimedOutputWrong,
    Unstable,
    InputChangedInTiming,
    BelowPhysics,
    BackendsDisagree,
    NotMeasured,
    ConnectionLost,
    SanitizerFinding,
    SanitizerMissing,
}

impl Code {
    pub const ALL: [Code; 37] = [
        Code::CompileError,
        Code::PtxSyntax,
        Code::WmmaLocalMemory,
        Code::PtxasError,
        Code::MissingEntry,
        Code::CompileTimeout,
        Code::CompileMemory,
        Code::CompileTooLarge,
        Code::UnsafeInclude,
        Code::UnsupportedTarget,
        Code::CompilerCrashed,
        Code::OverRegisterBudget,
        Code::OverSharedBudget,
        Code::OverSpillBudget,
        Code::DebugCodeLeft,
        Code::InvalidLaunch,
        Code::SharedMemoryExceeded,
        Code::BlockTooLarge,
        Code::ArgumentMismatch,
        Code::UnsupportedInstruction,
        Code::InstructionLimit,
        Code::TimeLimit,
        Code::IncorrectOutput,
        Code::IncorrectEndToEnd,
        Code::NonFiniteOutput,
        Code::OutputUnwritten,
        Code::InputModified,
        Code::ScheduleDependent,
        Code::TimedOutputWrong,
        Code::Unstable,
        Code::InputChangedInTiming,
        Code::BelowPhysics,
        Code::BackendsDisagree,
        Code::NotMeasured,
        Code::ConnectionLost,
        Code::SanitizerFinding,
        Code::SanitizerMissing,
    ];

    /// The kebab-case id.
    pub fn as_str(self) -> &'static str {
        match self {
            Code::CompileError => "compile-error",
            Code::PtxSyntax => "ptx-syntax",
            Code::WmmaLocalMemory => "wmma-local-memory",
            Code::PtxasError => "ptxas-error",
            Code::MissingEntry => "missing-entry",
            Code::CompileTimeout => "compile-timeout",
            Code::CompileMemory => "compile-memory",
            Code::CompileTooLarge => "compile-too-large",
            Code::UnsupportedTarget => "unsupported-target",
            Code::CompilerCrashed => "compiler-crashed",
            Code::UnsafeInclude => "unsafe-include",
            Code::OverRegisterBudget => "over-register-budget",
            Code::OverSharedBudget => "over-shared-budget",
            Code::OverSpillBudget => "over-spill-budget",
            Code::DebugCodeLeft => "debug-code-left",
            Code::InvalidLaunch => "invalid-launch",
            Code::SharedMemoryExceeded => "shared-memory-exceeded",
            Code::BlockTooLarge => "block-too-large",
            Code::ArgumentMismatch => "argument-mismatch",
            Code::UnsupportedInstruction => "unsupported-instruction",
            Code::InstructionLimit => "instruction-limit",
            Code::TimeLimit => "time-limit",
            Code::IncorrectOutput => "incorrect-output",
            Code::IncorrectEndToEnd => "incorrect-end-to-end",
            Code::NonFiniteOutput => "non-finite-output",
            Code::OutputUnwritten => "output-unwritten",
            Code::InputModified => "input-modified",
            Code::ScheduleDependent => "schedule-dependent",
            Code::TimedOutputWrong => "timed-output-wrong",
            Code::Unstable => "unstable",
            Code::InputChangedInTiming => "input-changed-in-timing",
            Code::BelowPhysics => "below-physics",
            Code::BackendsDisagree => "backends-disagree",
            Code::NotMeasured => "not-measured",
            Code::ConnectionLost => "connection-lost",
            Code::SanitizerFinding => "sanitizer-finding",
            Code::SanitizerMissing => "sanitizer-missing",
        }
    }

    /// An error of this code.
    pub fn error(self, gate: &str, message: impl Into<String>) -> FindingRecord {
        blank(Severity::Error, self.as_str(), gate, message.into())
    }

    /// A note of this code; it changes no verdict.
    pub fn note(self, gate: &str, message: impl Into<String>) -> FindingRecord {
        blank(Severity::Note, self.as_str(), gate, message.into())
    }
}

/// A finding with nothing but its words.
pub fn blank(severity: Severity, code: &str, gate: &str, message: String) -> FindingRecord {
    FindingRecord {
        severity,
        kind: code.replace('-', "_"),
        code: code.to_string(),
        gate: gate.to_string(),
        message,
        file: None,
        line: None,
        other_line: None,
        limit: None,
        entry: None,
        cta: None,
        warp: None,
        lane: None,
        tensor: None,
        index: None,
        count: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_a_page() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/explain");
        for code in Code::ALL {
            let page = folder.join(format!("{}.md", code.as_str()));
            assert!(page.exists(), "`warpsmith explain {}` has no page", code.as_str());
        }
    }
}
