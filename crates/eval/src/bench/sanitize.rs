//! compute-sanitizer's four tools over the process that holds the device, on one candidate.
//!
//! The worker is started behind the tool, executes what it always executes, and the tool's log is read afterwards. A log counts only where the
//! worker has replied that the launches were executed: an empty log of a program that never ran proves nothing. A hazard that only racecheck
//! reports is a note. Source: the Compute Sanitizer documentation, 13.0. Limit: few launches, for the tools make
//! them a hundred times slower.

use super::diagnose::Sanitize;
use super::timed::{Resident, TimedBackend};
use crate::backend::{Backend, Job, RunEnd};
use crate::evaluate::SanitizeJob;
use crate::finding::Code;
use crate::tool::{self, Place, Wanted};
use crate::worker::{GpuBackend, GpuOptions};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock, PoisonError};
use warpsmith_spec::record::{FindingRecord, Severity};

/// Seconds for one tool.
const SECONDS: u64 = 120;
/// Seconds that a tool has for its summary.
const SECONDS_TO_END: u64 = 20;
/// Findings of one tool at most.
const MOST: usize = 5;
/// Characters of a log that are read.
const MAX_LOG: usize = 1 << 20;

/// How the program is got, for messages.
pub const HOW_TO_GET: &str = "it comes with the CUDA toolkit: apt-get install cuda-sanitizer-13-0 from NVIDIA's repository, or conda install -c nvidia cuda-sanitizer-api";

/// The tools, in the order in which they are run.
pub const TOOLS: [&str; 4] = ["memcheck", "racecheck", "initcheck", "synccheck"];

/// The program, and the device's backend whose worker it is put in front of.
pub struct Sanitizer<'a> {
    /// Behind a launcher it is looked for when it is needed first: that takes a connection.
    program: OnceLock<Result<PathBuf, String>>,
    backend: &'a GpuBackend,
    /// Tool and log of every run so far, until they are taken.
    logs: Mutex<Vec<(String, String)>>,
}

/// Looks for the program on the PATH and in the toolkit's folders.
pub fn find() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let toolkits = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(std::env::var_os).map(PathBuf::from);
    let folders = std::env::split_paths(&path)
        .chain(toolkits.flat_map(|t| [t.join("bin"), t.join("compute-sanitizer")]))
        .chain(["/usr/local/cuda/bin", "/usr/local/cuda/compute-sanitizer"].map(PathBuf::from));
    let name = if cfg!(windows) { "compute-sanitizer.exe" } else { "compute-sanitizer" };
    folders.map(|f| f.join(name)).find(|p| p.is_file())
}

impl<'a> Sanitizer<'a> {
    /// Err: why there is none, and how to get it.
    pub fn new(backend: &'a GpuBackend) -> Result<Sanitizer<'a>, String> {
        let worker = &backend.options().command;
        let program = OnceLock::new();
        if worker.remote.is_none() {
            let _ = program.set(Ok(tool::find_sanitizer(worker)?));
        }
        Ok(Sanitizer { program, backend, logs: Mutex::default() })
    }

    /// The logs of what was run since they were taken last: tool, text.
    pub fn take_logs(&self) -> Vec<(String, String)> {
        std::mem::take(&mut *self.logs.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// All four tools on one run of a job.
    pub fn run(&self, job: &Job) -> Result<Vec<FindingRecord>, String> {
        let mut findings = Vec::new();
        for tool in TOOLS {
            findings.extend(self.tool(tool, job)?);
        }
        Ok(judged(findings))
    }

    fn tool(&self, tool: &str, job: &Job) -> Result<Vec<FindingRecord>, String> {
        let failed = |why: String| format!("compute-sanitizer's {tool} could not be run: {why}");
        let worker = &self.backend.options().command;
        let program = self.program.get_or_init(|| tool::find_sanitizer(worker)).clone()?;
        let place = Place::beside(worker).map_err(&failed)?;
        let mut words: Vec<OsString> =
            ["--tool", tool, "--print-limit", "20", "--log-file"].iter().map(Into::into).collect();
        words.push(place.file("log").into());
        let options = GpuOptions {
            command: place.in_front(&program, words, worker),
            start_seconds: self.backend.options().start_seconds.max(SECONDS),
            seconds: SECONDS,
            ..self.backend.options().clone()
        };
        let backend = GpuBackend::alone(options).map_err(|e| failed(e.to_string()))?;
        let outcome = backend.run(job).map_err(|e| failed(e.to_string()))?;
        // The tool writes its summary when the process behind it ends by itself; killed with it, it would write none.
        backend.finish(SECONDS_TO_END);
        if !matches!(outcome.end, RunEnd::Completed | RunEnd::Faulted) {
            return Err(failed("the launches were not seen to execute, so its log counts for nothing".into()));
        }
        let until = Some(("log".to_string(), "SUMMARY".to_string()));
        let left = place.take(&Wanted { files: vec!["log".into()], until, report: None }).map_err(&failed)?;
        let text: String = left.text("log").chars().take(MAX_LOG).collect();
        self.logs.lock().unwrap_or_else(PoisonError::into_inner).push((tool.to_string(), text.clone()));
        if !text.contains("COMPUTE-SANITIZER") {
            return Err(failed("it left no log".into()));
        }
        if let Some(line) = text.lines().find(|l| l.contains("Error: ") && l.contains("not supported")) {
            return Err(failed(line.trim_start_matches(['=', ' ']).to_string()));
        }
        Ok(read(tool, &text))
    }
}

impl SanitizeJob for Sanitizer<'_> {
    fn sanitize_job(&self, job: &Job) -> Result<Vec<FindingRecord>, String> {
        self.run(job)
    }
}

impl Sanitize for Sanitizer<'_> {
    fn sanitize(&self, resident: &Resident) -> Result<Vec<FindingRecord>, String> {
        let job = resident.job(0).ok_or("a subject without inputs")?;
        // The process behind the tool wants the device too, and whoever times holds it.
        self.backend.release();
        let found = self.run(&job);
        match self.backend.hold() {
            Ok(Ok(())) => found,
            Ok(Err(who)) => Err(format!("the device was taken by {who} meanwhile")),
            Err(e) => Err(e.to_string()),
        }
    }
}

/// What a tool's log reports, each message once.
pub fn read(tool: &str, log: &str) -> Vec<FindingRecord> {
    const REPORTS: [&str; 9] = [
        "Invalid __",
        "Misaligned",
        "Uninitialized",
        "Race reported",
        "Barrier error",
        "Program hit",
        "Illegal",
        "Out-of-range",
        "hazard detected",
    ];
    /// The worker asks for parameters until there are no more; that answer is no error.
    const OURS: &str = "cuFuncGetParamInfo";
    let lines: Vec<&str> = log.lines().filter_map(|l| l.trim_end().strip_prefix("=========")).collect();
    let mut found: Vec<FindingRecord> = Vec::new();
    for (i, line) in lines.iter().enumerate() {
        let head = line.strip_prefix(' ').filter(|l| !l.starts_with(' ')).unwrap_or("");
        // The driver's own messages about a fault repeat what the tool has said of its cause.
        if !REPORTS.iter().any(|r| head.contains(r))
            || head.contains(OURS)
            || (head.contains("Program hit") && !found.is_empty())
        {
            continue;
        }
        let details: Vec<&str> =
            lines[i + 1..].iter().take_while(|l| l.starts_with("  ")).map(|l| l.trim()).take(3).collect();
        let (file, line) = details.iter().find_map(|d| place(d)).unzip();
        let mut f = Code::SanitizerFinding
            .error("correctness", format!("compute-sanitizer's {tool}: {head}; {}", details.join("; ")));
        (f.file, f.line) = (file, line);
        if found.iter().all(|other| other.message != f.message) {
            found.push(f);
        }
        if found.len() == MOST {
            break;
        }
    }
    found
}

/// `at kernel+0x70 in file.cu:12` and the like.
fn place(detail: &str) -> Option<(String, u32)> {
    let after = detail.split(" in ").last().filter(|_| detail.contains(" in "))?;
    let (file, line) = after.trim_end_matches(')').rsplit_once(':')?;
    let name = file.rsplit('/').next()?.to_string();
    // `6 [4096 hazards]`: what follows the number is none of it.
    let digits = line.split(|c: char| !c.is_ascii_digit()).next()?;
    Some((name, digits.parse().ok()?))
}

/// Racecheck alone is no proof.
fn judged(mut findings: Vec<FindingRecord>) -> Vec<FindingRecord> {
    let is_race = |f: &FindingRecord| f.message.starts_with("compute-sanitizer's racecheck");
    if findings.iter().all(is_race) {
        for f in &mut findings {
            f.severity = Severity::Note;
            f.message.push_str(" (nothing else confirms it)");
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMCHECK: &str = "========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at shift(const float *, float *, int)+0x90 in shift.cu:5
=========     by thread (96,0,0) in block (0,0,0)
=========     Access at 0x7f is out of bounds
=========
========= Program hit unspecified launch failure (error 719) on CUDA API call to cuCtxSynchronize.
========= ERROR SUMMARY: 2 errors
";

    #[test]
    fn logs_are_read_with_tool_and_line() {
        let race = "========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at pairs+0xd0 in pairs.cu:4
=========     and Read access at pairs+0x120 in pairs.cu:6 [4096 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
";
        let ours = "========= COMPUTE-SANITIZER
========= Program hit CUDA_ERROR_INVALID_VALUE (error 1) due to \"invalid argument\" on CUDA API call to cuFuncGetParamInfo.
=========     Saved host backtrace up to driver entry point at error
========= ERROR SUMMARY: 1 error
";
        for (tool, log, count, line) in [
            ("memcheck", MEMCHECK, 1, Some(5)),
            ("memcheck", ours, 0, None),
            ("racecheck", race, 1, Some(6)),
            ("initcheck", "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n", 0, None),
        ] {
            let found = read(tool, log);
            assert_eq!((found.len(), found.first().and_then(|f| f.line)), (count, line), "{tool}: {found:?}");
            assert!(found.iter().all(|f| f.message.contains(tool)));
        }
    }

    #[test]
    fn a_race_by_itself_is_a_note() {
        let race = read("racecheck", "========= Error: Race reported between Write access\n");
        assert_eq!(judged(race.clone())[0].severity, Severity::Note);
        let both = judged([race, read("memcheck", MEMCHECK)].concat());
        assert!(both.iter().all(|f| f.severity == Severity::Error));
    }
}
