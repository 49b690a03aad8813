//! `warpsmith exec`: a kernel that is nobody's candidate, run from a launch file.

use crate::args::{BackendArg, Common, ExecArgs, NumericsArg};
use crate::artifacts::Artifacts;
use crate::error::CliError;
use crate::{on, output, paths, reports, session};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use warpsmith_eval::exec::{Executed, Kernel, Request, exec as execute};
use warpsmith_eval::worker::{DeviceInfo, GpuBackend};
use warpsmith_eval::{Backend, NumericsChoice, PtxMachine};
use warpsmith_report as report;
use warpsmith_spec::Suppressions;
use warpsmith_spec::exec::{EXEC_SCHEMA, ExecRecord, LaunchFile};
use warpsmith_spec::record::{Severity, VerdictWord};
use warpsmith_store::write_folder;

/// Largest kernel, PTX or source.
const MAX_KERNEL: u64 = 64 << 20;
/// Largest array that a launch file names, its header included.
const MAX_ARRAY: u64 = warpsmith_spec::exec::MAX_BYTES + (1 << 20);
const MAX_SMALL: u64 = 1 << 20;

pub fn exec(common: &Common, args: &ExecArgs) -> Result<i32, CliError> {
    let plan = LaunchFile::parse(&args.launch.display().to_string(), &read(&args.launch, MAX_SMALL)?)?;
    let rows = suppressions(args.suppressions.as_deref())?;
    let typed = args.file.display().to_string();
    let text = String::from_utf8(read(&args.file, MAX_KERNEL)?).map_err(|_| {
        CliError::usage("wrong-usage", format!("{typed} is no text, neither PTX nor CUDA")).file(&args.file)
    })?;
    let is_ptx = is_ptx(&args.file, &text);
    let canonical = canonical(&args.file);
    let folder = beside(&args.file);
    let kernel = if is_ptx {
        Kernel::Ptx { text: &text }
    } else {
        let headers = Arc::new(warpsmith_builtin::headers());
        Kernel::Source { text: &text, canonical: &canonical, include_root: Some(&folder), headers }
    };
    let path = paths::run_dir(common, "exec");
    let artifacts = Artifacts::new(common)?;
    let (backend, device) = backend(common, args, is_ptx.then_some(typed.as_str()))?;
    let arrays = beside(&args.launch);
    let request = Request {
        file: &typed,
        kernel,
        plan: &plan,
        read: &|name| read_array(&arrays.join(name)),
        source: &artifacts,
        backend: &*backend,
        numerics: match args.numerics {
            NumericsArg::Faithful => NumericsChoice::Faithful,
            NumericsArg::Fast => NumericsChoice::Fast,
        },
        suppressions: &rows,
    };
    let info = session::info(&path);
    let executed = execute(&request)?;
    let mut environment = session::environment(device.map(|d| d.name));
    environment.toolkit.clone_from(&executed.toolkit);
    environment.remote = on::record();
    let numerics = if backend.word() == "gpu" { "hardware" } else { request.numerics.as_str() };
    let record = ExecRecord {
        schema: EXEC_SCHEMA.into(),
        run: info,
        environment,
        file: typed.clone(),
        launch: plan.name.clone(),
        target: executed.target.name.into(),
        backend: backend.word().into(),
        numerics: numerics.into(),
        ptx_sha256: executed.ptx_sha256.clone(),
        verdict: executed.verdict,
        finding: executed.findings.first().filter(|f| f.severity == Severity::Error).cloned(),
        findings: executed.findings.clone(),
        fidelity: executed.fidelity.clone(),
        counters: executed.counters.clone(),
        outputs: executed.outputs.clone(),
        printed: executed.printed.clone(),
    };
    finish(common, &path, &record, executed)
}

/// Writes the run's folder whole, tells it, and gives the exit code.
fn finish(common: &Common, path: &Path, record: &ExecRecord, executed: Executed) -> Result<i32, CliError> {
    let text = serde_json::to_string_pretty(record).map_err(|e| CliError::environment("tool-defect", e.to_string()))?;
    let text = text + "\n";
    let mut files = executed.files;
    files.extend(executed.ptx.map(|ptx| ("kernel.ptx".to_string(), ptx.into_bytes())));
    files.push(("summary.json".into(), text.clone().into_bytes()));
    write_folder(path, &files)?;
    if common.sarif.is_some() || common.junit.is_some() {
        reports::for_ci(common, &report::exec_as_run(record))?;
    }
    if common.json {
        output::out(&text);
    } else {
        output::out(&report::exec_text(record));
        output::out(&format!("run: {}\n", path.display()));
    }
    Ok(i32::from(record.verdict != VerdictWord::Passed))
}

/// A file of suppressions; none suppresses nothing.
pub(super) fn suppressions(file: Option<&Path>) -> Result<Suppressions, CliError> {
    let Some(file) = file else { return Ok(Suppressions::default()) };
    Ok(Suppressions::parse(&file.display().to_string(), &read(file, MAX_SMALL)?)?)
}

fn backend(
    common: &Common,
    args: &ExecArgs,
    ptx_file: Option<&str>,
) -> Result<(Box<dyn Backend>, Option<DeviceInfo>), CliError> {
    let elsewhere = common.on.is_some() || common.fake_device;
    match &args.backend {
        BackendArg::Fake(_) => {
            return Err(CliError::usage("wrong-usage", "`exec` takes no fake backend: it reports no times")
                .hint("--backend cpu or gpu"));
        }
        BackendArg::Cpu if common.on.is_some() => return Err(on::not_on_the_cpu()),
        BackendArg::Auto | BackendArg::Cpu if !elsewhere => {
            let machine = match ptx_file {
                Some(file) => PtxMachine::of_ptx_file(0, file),
                None => PtxMachine::new(0),
            };
            return Ok((Box::new(machine.counting()), None));
        }
        _ => {}
    }
    let backend =
        GpuBackend::start(on::gpu_options(common, common.fake_device)?).map_err(warpsmith_eval::EvalError::from)?;
    let device = backend.device().clone();
    Ok((Box::new(backend), Some(device)))
}

/// By its ending; a file of another ending is PTX if it begins as one.
fn is_ptx(file: &Path, text: &str) -> bool {
    match file.extension().and_then(|e| e.to_str()) {
        Some("ptx") => true,
        Some("cu" | "cuh" | "cpp" | "h") => false,
        _ => text.lines().take(200).any(|l| l.trim_start().starts_with(".version")),
    }
}

/// The name that the compiler knows the file by.
fn canonical(file: &Path) -> String {
    let name = file.file_name().map_or_else(|| "kernel.cu".into(), |n| n.to_string_lossy().into_owned());
    let kept: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' }).collect();
    if kept.trim_matches('.').is_empty() || kept.starts_with('.') { "kernel.cu".into() } else { kept }
}

fn beside(file: &Path) -> PathBuf {
    file.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_path_buf()
}

fn read(file: &Path, limit: u64) -> Result<Vec<u8>, CliError> {
    let unreadable =
        |e: std::io::Error| CliError::usage("unknown-name", format!("cannot read {}: {e}", file.display())).file(file);
    let size = fs::metadata(file).map_err(unreadable)?.len();
    if size > limit {
        let message = format!("{} has {size} bytes; the limit is {limit}", file.display());
        return Err(CliError::usage("wrong-usage", message).file(file));
    }
    fs::read(file).map_err(unreadable)
}

fn read_array(file: &Path) -> Result<Vec<u8>, String> {
    let size = fs::metadata(file).map_err(|e| format!("it cannot be read: {e}"))?.len();
    if size > MAX_ARRAY {
        return Err(format!("it has {size} bytes; the limit is {MAX_ARRAY}"));
    }
    fs::read(file).map_err(|e| format!("it cannot be read: {e}"))
}
