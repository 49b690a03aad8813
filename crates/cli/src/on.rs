//! `--on LAUNCHER`: the way to the other machine, and how workers are started there or here.
//!
//! There is one way in a run, so that the seconds for which a launcher ran are counted in one place.

use crate::args::Common;
use crate::error::CliError;
use std::sync::OnceLock;
use warpsmith_eval::EvalError;
use warpsmith_eval::worker::{
    BLOBS_ARG, FAKE_ARG, GpuOptions, Launcher, Remote, WORKER_ARG, WorkerBinary, WorkerCommand, checkout,
};
use warpsmith_spec::record::RemoteRecord;

/// Seconds for the start of a worker: its connection, and on a machine that was just rented the driver's own start.
const START_SECONDS: u64 = 120;

static WAY: OnceLock<Remote> = OnceLock::new();

/// The way to the other machine, if one is asked for; nothing is started yet.
pub fn remote(common: &Common) -> Result<Option<Remote>, CliError> {
    let Some(text) = &common.on else { return Ok(None) };
    let launcher = Launcher::parse(text).map_err(|why| {
        CliError::usage("wrong-usage", format!("--on: {why}"))
            .hint("for example --on 'ssh gpu' or --on 'docker exec -i box'")
    })?;
    let binary = match &common.worker {
        None => WorkerBinary::ThisProgram,
        Some(word) if word.as_os_str() == "build" => WorkerBinary::Build(sources()?),
        Some(file) if file.is_file() => WorkerBinary::File(file.clone()),
        Some(file) => {
            return Err(CliError::usage("unknown-name", "--worker: there is no such file")
                .file(file)
                .hint("it is a file, or `build`"));
        }
    };
    Ok(Some(WAY.get_or_init(|| Remote::new(launcher, binary)).clone()))
}

/// The way, once [`remote`] was called.
pub fn opened() -> Option<Remote> {
    WAY.get().cloned()
}

/// The checkout whose sources are built there: the current folder's, else that which this program was built in.
fn sources() -> Result<std::path::PathBuf, CliError> {
    let program = std::env::current_exe().ok();
    let found = std::env::current_dir().ok().and_then(|f| checkout(&f)).or_else(|| program.and_then(|p| checkout(&p)));
    found.ok_or_else(|| {
        CliError::usage("wrong-usage", "--worker build: this is no checkout of Warpsmith's sources")
            .hint("run it inside of one, or name a file from the release page")
    })
}

/// How workers are started: there, or here. A fake device is one that runs kernels on the PTX machine.
pub fn gpu_options(common: &Common, fake: bool) -> Result<GpuOptions, CliError> {
    let mut options = match remote(common)? {
        Some(remote) => {
            let mut args = vec![WORKER_ARG, BLOBS_ARG, "@cache/blobs"];
            args.extend(fake.then_some(FAKE_ARG));
            let start_seconds = START_SECONDS;
            GpuOptions { start_seconds, ..GpuOptions::of(WorkerCommand::on(&remote, &args)) }
        }
        None => {
            let mut options = GpuOptions::this_program().map_err(EvalError::from)?;
            options.command.args.extend(fake.then(|| FAKE_ARG.into()));
            options
        }
    };
    (options.device, options.fake) = (common.device, fake);
    if fake {
        // The PTX machine takes longer than a GPU does.
        options.seconds = 600;
    }
    Ok(options)
}

/// What was had of the other machine, for the record.
pub fn record() -> Option<RemoteRecord> {
    let remote = opened()?;
    let held = remote.held();
    Some(RemoteRecord {
        launcher: remote.launcher().text().to_string(),
        platform: held.platform.map(|p| p.to_string()),
        worker_sha256: held.program,
        connections: held.connections,
        held_seconds: (held.seconds * 1000.0).round() / 1000.0,
    })
}

/// `--on` with `--backend cpu`.
pub fn not_on_the_cpu() -> CliError {
    CliError::usage(
        "wrong-usage",
        "--on runs kernels on another machine's GPU, and --backend cpu on this machine's processor",
    )
    .hint("leave one of them out")
}
