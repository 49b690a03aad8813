//! Nsight Compute's command line: where it is, what it is asked for, and why it would not answer.
//!
//! It stands in front of the worker, writes a report that is kept, and is then asked for the report's raw and source pages as CSV. The locale is
//! C, so that numbers come with points. Each way in which counters are denied has its own code and remedy.
//! Sources: Nsight Compute's CLI documentation (2022.3 to 2025.3); messages of `ncu` 2022.3 and of reports in issue trackers.
//! Limits: [`SECONDS`] for a page; older than [`OLDEST`] is refused.

use super::metrics::metrics;
use crate::tool::Place;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use warpsmith_cuda::worker::WorkerCommand;
use warpsmith_spec::record::UnavailableRecord;

/// The first that knows Ada and Hopper.
pub const OLDEST: (u32, u32) = (2022, 3);
/// Seconds for one page of a report, and for its version.
const SECONDS: u64 = 120;
/// Bytes of a page or a log that are read.
const MAX_OUTPUT: u64 = 64 << 20;

/// The program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ncu {
    pub program: PathBuf,
    /// `2025.3.1.0`
    pub version: String,
}

/// Why there are no counters, in the words of a code's page.
pub fn unavailable(code: &str, why: impl Into<String>, next: impl Into<String>) -> UnavailableRecord {
    UnavailableRecord { code: code.into(), why: why.into(), next: next.into() }
}

const GET_IT: &str = "install Nsight Compute (it comes with the CUDA toolkit: apt-get install cuda-nsight-compute-13-0), or name it with --ncu PATH";

/// Looks for it: what was named, else on the PATH, in the toolkit's folders, and where its own installer puts it.
pub fn find(named: Option<&Path>) -> Result<Ncu, UnavailableRecord> {
    let program = match named {
        Some(file) if file.is_file() => file.to_path_buf(),
        Some(file) => return Err(unavailable("profiler-missing", format!("there is no {}", file.display()), GET_IT)),
        None => search().ok_or_else(|| missing(std::env::var_os("SUDO_USER").is_some()))?,
    };
    let said = run(Command::new(&program).arg("--version"))
        .map_err(|e| unavailable("profiler-missing", format!("{} does not run: {e}", program.display()), GET_IT))?;
    let version = version(&said.text).ok_or_else(|| {
        unavailable("profiler-missing", format!("{} says no version; it is not ncu", program.display()), GET_IT)
    })?;
    let mut parts = version.split('.').map(|p| p.parse::<u32>().unwrap_or(0));
    let number = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    if number < OLDEST {
        let why = format!(
            "{} is version {version}; the first that knows Ada and Hopper is {}.{}",
            program.display(),
            OLDEST.0,
            OLDEST.1
        );
        return Err(unavailable(
            "profiler-too-old",
            why,
            "install a newer Nsight Compute beside it and name it with --ncu PATH; it needs no newer driver than the toolkit does",
        ));
    }
    Ok(Ncu { program, version })
}

/// sudo gives programs a PATH of its own, on which the toolkit is not.
fn missing(by_sudo: bool) -> UnavailableRecord {
    if by_sudo {
        let next = "sudo env \"PATH=$PATH\" warpsmith profile ..., or --ncu \"$(command -v ncu)\"";
        return unavailable("profiler-missing", "ncu is not on the PATH that sudo sets", next);
    }
    unavailable("profiler-missing", "ncu (Nsight Compute) is not installed, or not on the PATH", GET_IT)
}

fn search() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let toolkits =
        ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(std::env::var_os).map(|t| PathBuf::from(t).join("bin"));
    // `/opt/nvidia/nsight-compute/2025.3.1/ncu`: the newest.
    let mut own: Vec<PathBuf> = std::fs::read_dir("/opt/nvidia/nsight-compute")
        .map(|d| d.filter_map(Result::ok).map(|e| e.path()).collect())
        .unwrap_or_default();
    own.sort();
    let folders = std::env::split_paths(&path).chain(toolkits).chain([PathBuf::from("/usr/local/cuda/bin")]);
    let name = if cfg!(windows) { "ncu.exe" } else { "ncu" };
    folders.chain(own.into_iter().rev()).map(|f| f.join(name)).find(|p| p.is_file())
}

/// `Version 2022.3.0.0 (build 31729285) (public-release)`
fn version(said: &str) -> Option<String> {
    let rest = said.lines().find_map(|l| l.trim().strip_prefix("Version "))?;
    let word = rest.split_whitespace().next()?;
    word.starts_with(|c: char| c.is_ascii_digit()).then(|| word.to_string())
}

/// What is profiled.
#[derive(Debug, Clone)]
pub struct Capture<'a> {
    /// Where the report goes, as `profile` with an ending of ncu's, and the tool's own words, as `log`.
    pub place: &'a Place,
    /// Names of the kernels in the machine code.
    pub kernels: Vec<String>,
    pub launches: u32,
    /// Metrics that this ncu or device does not know.
    pub without: &'a [String],
}

impl Ncu {
    /// The worker behind the tool.
    pub fn in_front_of(&self, worker: &WorkerCommand, capture: &Capture) -> WorkerCommand {
        let mut args: Vec<OsString> = Vec::new();
        let mut push = |words: &[&str]| args.extend(words.iter().map(|w| OsString::from(*w)));
        push(&["--target-processes", "all", "--force-overwrite", "--log-file"]);
        args.push(capture.place.file("log").into());
        let mut push = |words: &[&str]| args.extend(words.iter().map(|w| OsString::from(*w)));
        push(&["--export"]);
        args.push(capture.place.file("profile").into());
        let mut push = |words: &[&str]| args.extend(words.iter().map(|w| OsString::from(*w)));
        let names: Vec<String> = capture.kernels.iter().map(|k| escaped(k)).collect();
        push(&["--kernel-name-base", "mangled", "--kernel-name", &format!("regex:^({})$", names.join("|"))]);
        push(&["--launch-count", &capture.launches.to_string()]);
        // Clocks stay as they are: to hold them down needs rights, and nothing here is a time.
        push(&["--clock-control", "none", "--cache-control", "all"]);
        let asked = metrics()
            .iter()
            .map(|m| m.metric.as_str())
            .filter(|m| !capture.without.iter().any(|w| m.starts_with(w.as_str())));
        push(&["--section", "SourceCounters", "--metrics", &asked.collect::<Vec<_>>().join(",")]);
        capture.place.in_front(&self.program, args, worker)
    }

    /// A page of a report as CSV.
    pub fn page(&self, report: &Path, page: &str) -> Result<String, UnavailableRecord> {
        let mut command = Command::new(&self.program);
        command.arg("--import").arg(report).args(["--csv", "--print-units", "base", "--page", page]).env("LC_ALL", "C");
        let failed = |why: String| {
            let next =
                "is it a report of Nsight Compute (.ncu-rep), made by a version that is not newer than this one?";
            unavailable(
                "profiler-failed",
                format!("ncu {} cannot read {}: {why}", self.version, report.display()),
                next,
            )
        };
        let said = run(&mut command).map_err(failed)?;
        if !said.success {
            return Err(failed(first_error(&said.text)));
        }
        Ok(said.text)
    }
}

/// A name in a regular expression.
fn escaped(name: &str) -> String {
    name.chars().flat_map(|c| (!c.is_ascii_alphanumeric() && c != '_').then_some('\\').into_iter().chain([c])).collect()
}

struct Said {
    success: bool,
    /// Both streams.
    text: String,
}

/// Runs to the end, or for [`SECONDS`].
fn run(command: &mut Command) -> Result<Said, String> {
    use std::io::Read;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| e.to_string())?;
    let reader = |stream: Option<Box<dyn Read + Send>>| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            if let Some(stream) = stream {
                let _ = stream.take(MAX_OUTPUT).read_to_end(&mut bytes);
            }
            String::from_utf8_lossy(&bytes).into_owned()
        })
    };
    let out = reader(child.stdout.take().map(|s| Box::new(s) as Box<dyn Read + Send>));
    let err = reader(child.stderr.take().map(|s| Box::new(s) as Box<dyn Read + Send>));
    let until = Instant::now() + Duration::from_secs(SECONDS);
    let status = loop {
        match child.try_wait().map_err(|e| e.to_string())? {
            Some(status) => break status,
            None if Instant::now() > until => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("it did not end within {SECONDS} s"));
            }
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    let text = [out, err].map(|t| t.join().unwrap_or_default()).concat();
    Ok(Said { success: status.success(), text })
}

fn first_error(text: &str) -> String {
    let line = text.lines().find(|l| l.contains("==ERROR==")).or_else(|| text.lines().find(|l| !l.trim().is_empty()));
    line.map_or_else(
        || "it says nothing".into(),
        |l| l.trim_start_matches("==ERROR==").trim().chars().take(300).collect(),
    )
}

/// Metrics that a log says are not known.
pub fn unknown_metrics(log: &str) -> Vec<String> {
    let names =
        log.lines().filter(|l| l.contains("Failed to find metric") || l.contains("nvalid metric")).flat_map(|l| {
            l.split(|c: char| !c.is_ascii_alphanumeric() && !"_.".contains(c))
                .filter(|w| w.contains("__"))
                .map(|w| w.trim_end_matches('.').to_string())
        });
    names.collect()
}

/// What a log says about why nothing was counted.
pub fn classify(log: &str) -> UnavailableRecord {
    let has = |words: &str| log.contains(words);
    let said = first_error(log);
    if has("ERR_NVGPUCTRPERM") {
        return unavailable(
            "counters-denied",
            "the driver lets only administrators read the performance counters (ERR_NVGPUCTRPERM)",
            "for good: put `options nvidia NVreg_RestrictProfilingToAdminUsers=0` into /etc/modprobe.d/nvidia-profiler.conf and restart; \
             once: sudo env \"PATH=$PATH\" warpsmith profile ...; in a container: --cap-add=SYS_ADMIN",
        );
    }
    if has("nsight-compute-lock") || has("InterprocessLock") || has("trying to lock file") {
        return unavailable(
            "profiler-locked",
            format!("ncu's lock file is another user's, or another profile is being taken: {said}"),
            "wait until that one has ended; if none runs: sudo rm \"${TMPDIR:-/tmp}\"/nsight-compute-lock, or give ncu a folder of your own with TMPDIR=$HOME/tmp",
        );
    }
    if has("ERR_NVCMPGPU") || has("nsupported GPU") || has("not supported on this device") || has("Unsupported device")
    {
        return unavailable(
            "profiler-failed",
            format!("ncu does not profile this device: {said}"),
            "take another device with --device N, or a newer ncu with --ncu PATH",
        );
    }
    if has("already in use") || has("another tool") || has("CUPTI") || has("driver resource was unavailable") {
        return unavailable(
            "profiler-locked",
            format!("another tool holds the counters: {said}"),
            "end the other profiler (DCGM: `dcgmi profdeviceinfo`, `dcgmi profpause`) and try again",
        );
    }
    if has("failed to connect to the CUDA driver") {
        return unavailable(
            "no-device",
            said,
            "`nvidia-smi` has to work first; --import FILE.ncu-rep reads a profile that was taken elsewhere",
        );
    }
    if has("No kernels were profiled") {
        return unavailable(
            "profiler-failed",
            "ncu saw no launch of the kernel",
            "`warpsmith check FILE --backend gpu` has to pass first; the run keeps ncu's log",
        );
    }
    unavailable(
        "profiler-failed",
        format!("ncu: {said}"),
        "the run keeps ncu's log; `ncu --version` beside the driver's version (`nvidia-smi`) often explains it",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_of_being_denied_has_its_remedy() {
        for (log, code, next) in [
            (
                "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters on the target device 0.",
                "counters-denied",
                "NVreg_RestrictProfilingToAdminUsers=0",
            ),
            (
                "==ERROR== Error in trying to lock file '/var/lib/nsight-compute-lock'",
                "profiler-locked",
                "nsight-compute-lock",
            ),
            ("==ERROR== InterprocessLockFailed", "profiler-locked", "TMPDIR"),
            (
                "==ERROR== Nsight Compute failed to connect to the CUDA driver (stub libcuda.so[.1] on path?).",
                "no-device",
                "--import",
            ),
            ("==WARNING== No kernels were profiled.", "profiler-failed", "check FILE"),
            (
                "==ERROR== Failed to prepare kernel for profiling\n==ERROR== Unknown error on device 0.",
                "profiler-failed",
                "log",
            ),
            ("", "profiler-failed", "log"),
        ] {
            let u = classify(log);
            assert_eq!(u.code, code, "{log}");
            assert!(u.next.contains(next), "{log}: {}", u.next);
        }
        assert!(missing(true).next.contains("sudo env \"PATH=$PATH\"") && missing(false).next.contains("install"));
    }

    #[test]
    fn versions_and_unknown_metrics() {
        assert_eq!(
            version("NVIDIA (R) Nsight\nVersion 2022.3.0.0 (build 31729285) (public-release)\n").as_deref(),
            Some("2022.3.0.0")
        );
        assert_eq!(version("Version x"), None);
        assert_eq!(unknown_metrics("==ERROR== Failed to find metric sm__a.sum\n==PROF== x\n"), ["sm__a.sum"]);
        assert!(find(Some(Path::new("/nonexistent/ncu"))).is_err_and(|u| u.code == "profiler-missing"));
    }

    #[test]
    fn the_worker_stands_behind_the_tool() {
        let ncu = Ncu { program: "ncu".into(), version: "2025.1".into() };
        let worker = WorkerCommand::program("warpsmith");
        let place = Place::beside(&worker).unwrap();
        let capture = Capture {
            place: &place,
            kernels: vec!["k".into(), "_Z1aIfE.b".into()],
            launches: 2,
            without: &["dram__bytes.sum".into()],
        };
        let command = ncu.in_front_of(&worker, &capture);
        let args: Vec<String> = command.args.iter().map(|a| a.to_string_lossy().into_owned()).collect();
        let words = args.join(" ");
        for part in
            ["--log-file /", "--export /", "regex:^(k|_Z1aIfE\\.b)$", "--launch-count 2", "--clock-control none"]
        {
            assert!(words.contains(part), "{words}");
        }
        assert!(!words.contains("dram__bytes.sum") && words.contains("dram__throughput"));
        assert!(!words.contains("gpu__time_duration"), "a profile's time is nobody's performance");
        let program = args.iter().position(|a| a == "warpsmith").unwrap();
        assert!(program > 5 && args.len() == program + 2, "the worker and its argument come last");
    }
}
