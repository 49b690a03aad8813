//! A run as the command line sees it: begun with its conditions, fed with results, finished with record, report and exit code.

use crate::args::Common;
use crate::artifacts::Artifacts;
use crate::error::CliError;
use crate::{interrupt, on, output, reports};
use std::path::{Path, PathBuf};
use std::process::Command;
use warpsmith_report as report;
use warpsmith_spec::Task;
use warpsmith_spec::record::{AcceptRecord, CardRecord, Environment, NotApplicable, ResultRecord, RunInfo, RunRecord};
use warpsmith_store::{Event, RunDir, timestamp_now};

/// An open run.
pub struct Session {
    run: RunDir,
    environment: Environment,
    judged: usize,
    /// It lies where runs lie by default, so `latest` points at it as soon as it holds a result.
    is_latest: bool,
    interrupted: bool,
}

impl Session {
    /// Makes the run's folder with its first event.
    pub fn begin(
        common: &Common,
        path: &Path,
        device: Option<String>,
        seed_secret: Option<u64>,
    ) -> Result<Self, CliError> {
        let environment = environment(device);
        let info = RunInfo { seed_secret, ..info(path) };
        let first = Event::RunStarted { run: info, environment: environment.clone() };
        let run = RunDir::create(path, first)?;
        Ok(Session { run, environment, judged: 0, is_latest: common.out.is_none(), interrupted: false })
    }

    /// Says which card it is that kernels run on.
    pub fn on_card(&mut self, device: &warpsmith_cuda::DeviceInfo) {
        let (uuid, driver) = (device.uuid.clone(), device.driver.to_string());
        self.environment.card = Some(CardRecord { uuid, driver });
    }

    /// Takes up a run that was cut off.
    pub fn resume(path: &Path) -> Result<Self, CliError> {
        let mut run = RunDir::reopen(path)?;
        let record = run.record()?;
        run.push(Event::Resumed { command: std::env::args().collect() })?;
        let judged = record.results.len();
        Ok(Session { run, environment: record.environment, judged, is_latest: false, interrupted: false })
    }

    pub fn result(&mut self, result: ResultRecord) -> Result<(), CliError> {
        self.judged += 1;
        if self.is_latest && self.judged == 1 {
            self.run.mark_latest();
        }
        let folder = candidate_folder(&result.candidate);
        let mask = if result.causal { "causal" } else { "none" };
        let setting = result.config.clone().unwrap_or_else(|| "default".into());
        let name = format!(
            "{}-{mask}-{}-{}-{}-{}.json",
            result.shape,
            result.format,
            result.target,
            safe(&setting),
            self.judged
        );
        let text =
            serde_json::to_vec_pretty(&result).map_err(|e| CliError::environment("tool-defect", e.to_string()))?;
        let gate = match (&result.profile, &result.measurement) {
            (Some(_), _) => "profile",
            (None, Some(_)) => "performance",
            (None, None) => "correctness",
        };
        self.run.write(&folder.join(gate).join(safe(&name)), &text)?;
        Ok(self.run.push(Event::Result { result: Box::new(result) })?)
    }

    /// Keeps what a profile is made of, for the result that comes next; their paths under the run.
    pub fn profile_files(&mut self, candidate: &str, files: &[(String, Vec<u8>)]) -> Result<Vec<String>, CliError> {
        let folder = candidate_folder(candidate).join("profile");
        let n = self.judged + 1;
        let mut paths = Vec::new();
        for (name, bytes) in files {
            let path = folder.join(safe(&format!("{n}-{name}")));
            self.run.write(&path, bytes)?;
            paths.push(path.display().to_string().replace('\\', "/"));
        }
        Ok(paths)
    }

    /// Keeps what compute-sanitizer's tools said of the result that comes next.
    pub fn sanitizer_logs(&mut self, candidate: &str, logs: &[(String, String)]) -> Result<(), CliError> {
        let folder = candidate_folder(candidate).join("sanitizer");
        let n = self.judged + 1;
        for (tool, text) in logs {
            self.run.write(&folder.join(safe(&format!("{n}-{tool}.log"))), text.as_bytes())?;
        }
        Ok(())
    }

    /// What is known of the device that gate 4 launched on: its ceilings, as they were measured on it before.
    pub fn counted_on(&mut self, device: &str) {
        if self.environment.ceilings.is_none() {
            self.environment.ceilings = crate::cmd::doctor_gpu::measured(device);
        }
    }

    pub fn example(&mut self, result: ResultRecord) -> Result<(), CliError> {
        Ok(self.run.push(Event::Example { result: Box::new(result) })?)
    }

    pub fn not_applicable(&mut self, entry: NotApplicable) -> Result<(), CliError> {
        Ok(self.run.push(Event::NotApplicable { entry })?)
    }

    pub fn interrupted(&mut self) -> Result<(), CliError> {
        self.interrupted = true;
        Ok(self.run.push(Event::Interrupted)?)
    }

    /// Removes the folder of a run that judged nothing before it met an error: it would only be in the way.
    pub fn abandon_if_empty(self) {
        if self.judged == 0 {
            let path = self.run.path().to_path_buf();
            drop(self);
            let _ = std::fs::remove_dir_all(path);
        }
    }

    /// Writes evidence, record and report, tells them, and gives the exit code.
    pub fn finish(mut self, common: &Common, tasks: &[Task], artifacts: &Artifacts) -> Result<i32, CliError> {
        self.environment.toolkit = artifacts.toolkit_ids().or(self.environment.toolkit);
        self.environment.remote = on::record();
        self.run.push(Event::Environment { environment: self.environment.clone() })?;
        for ((candidate, file), bytes) in artifacts.kept() {
            let folder = if candidate.is_empty() { PathBuf::new() } else { candidate_folder(&candidate) };
            let file: PathBuf = file.split('/').map(safe).collect();
            self.run.write(&folder.join(file), &bytes)?;
        }
        let criteria = criteria(&self.run.record()?, tasks);
        if !criteria.is_empty() {
            self.run.push(Event::Accept { criteria })?;
        }
        let record = self.run.record()?;
        let exit_code = if self.interrupted { interrupt::EXIT } else { exit_code(&record) };
        self.run.push(Event::RunFinished { exit_code })?;
        let text = summary(&record)?;
        self.run.write(Path::new("summary.json"), text.as_bytes())?;
        reports::write(self.run.path(), self.run.path())?;
        reports::for_ci(common, &record)?;
        if common.json {
            output::out(&text);
        } else {
            output::out(&report::terminal(&record));
            output::out(&format!("run: {}\n", self.run.path().display()));
        }
        Ok(exit_code)
    }
}

fn summary(record: &RunRecord) -> Result<String, CliError> {
    let text = serde_json::to_string_pretty(record).map_err(|e| CliError::environment("tool-defect", e.to_string()))?;
    Ok(text + "\n")
}

/// 0 where all that was judged passed and no criterion is missed.
fn exit_code(record: &RunRecord) -> i32 {
    let missed = record.accept.iter().any(|c| c.status == "missed");
    i32::from(missed || !report::overall(record).all_passed())
}

/// What the judged tasks demand.
fn criteria(record: &RunRecord, tasks: &[Task]) -> Vec<AcceptRecord> {
    let mut found = Vec::new();
    for task in tasks {
        let results: Vec<_> = record.results.iter().filter(|r| r.task == task.name).cloned().collect();
        if !results.is_empty() {
            found.extend(task.accept.iter().map(|c| c.judge(&results)));
        }
    }
    found
}

/// This machine.
pub fn environment(device: Option<String>) -> Environment {
    Environment {
        os: std::env::consts::OS.into(),
        arch: std::env::consts::ARCH.into(),
        cpus: std::thread::available_parallelism().map_or(1, usize::from),
        toolkit: None,
        ceilings: device.as_deref().and_then(crate::cmd::doctor_gpu::measured),
        device,
        card: None,
        remote: None,
    }
}

/// This command, as a run at `path`.
pub fn info(path: &Path) -> RunInfo {
    let name = path.file_name().map_or_else(|| path.display().to_string(), |n| n.to_string_lossy().into_owned());
    RunInfo {
        name,
        command: std::env::args().collect(),
        started: timestamp_now(),
        warpsmith: env!("CARGO_PKG_VERSION").into(),
        git_commit: git(&["rev-parse", "HEAD"]),
        git_dirty: git(&["status", "--porcelain", "--untracked-files=no"]).map(|s| !s.is_empty()),
        seed_secret: None,
    }
}

/// What git says of the current folder; nothing where it is no checkout, or git is not there.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok().filter(|o| o.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_string())
}

fn candidate_folder(candidate: &str) -> PathBuf {
    let name = warpsmith_builtin::canonical_name(candidate);
    Path::new("candidates").join(safe(name.strip_suffix(".cu").unwrap_or(name)))
}

/// A name as a part of a path: candidates choose theirs.
fn safe(name: &str) -> String {
    let kept: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' }).take(120).collect();
    if kept.trim_matches('.').is_empty() { "_".into() } else { kept }
}
