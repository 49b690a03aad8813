//! `conformance [--backend machine|gpu] [--device N] [--only TEXT] [--threads N] [--bless] [--root DIR]`: see the library.
//!
//! With `--backend machine` (what runs by default) the machine is compared with itself: it says that every form runs, and makes no claim of hardware.
//! `--bless` writes `tests/machine/hardware.tsv`, `tests/machine/hardware.txt` and `docs/ptx-support.md` under the root (the current folder).

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use warpsmith_conformance::device::{Backend, Gpu, Machine, numerics_of};
use warpsmith_conformance::{Report, Selection, run};

#[derive(Default)]
struct Arguments {
    gpu: bool,
    device: u32,
    selection: Selection,
    bless: bool,
    root: PathBuf,
}

fn arguments() -> Result<Arguments, String> {
    let mut out = Arguments { root: PathBuf::from("."), ..Arguments::default() };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
        match word.as_str() {
            "--backend" => {
                out.gpu = match value()?.as_str() {
                    "gpu" => true,
                    "machine" => false,
                    other => return Err(format!("no such backend: {other}")),
                }
            }
            "--device" => out.device = value()?.parse().map_err(|e| format!("--device: {e}"))?,
            "--only" => out.selection.only = value()?,
            "--threads" => out.selection.threads = Some(value()?.parse().map_err(|e| format!("--threads: {e}"))?),
            "--root" => out.root = value()?.into(),
            "--bless" => out.bless = true,
            other => return Err(format!("no such option: {other}")),
        }
    }
    if out.bless && !(out.gpu && out.selection.only.is_empty()) {
        return Err("--bless wants --backend gpu and all forms: what is blessed is hardware's".into());
    }
    Ok(out)
}

fn write(root: &Path, report: &Report) -> Result<(), String> {
    let hardware = report.hardware();
    for (file, text) in [
        ("tests/machine/hardware.tsv", hardware.clone()),
        ("tests/machine/hardware.txt", report.vectors()),
        ("docs/ptx-support.md", warpsmith_machine::forms::page(&hardware)),
    ] {
        let path = root.join(file);
        let folder = path.parent().unwrap_or(root);
        std::fs::create_dir_all(folder)
            .and_then(|()| std::fs::write(&path, text))
            .map_err(|e| format!("{file}: {e}"))?;
    }
    Ok(())
}

fn work() -> Result<bool, String> {
    let a = arguments()?;
    let mut theirs: Box<dyn Backend> =
        if a.gpu { Box::new(Gpu::open(a.device)?) } else { Box::new(Machine { numerics: numerics_of(None) }) };
    let mut ours = Machine { numerics: numerics_of(theirs.compute_capability()) };
    let (mut done, mut wrong) = (0, 0);
    let report = run(&mut ours, theirs.as_mut(), &a.selection, &mut |entry| {
        done += 1;
        match &entry.result {
            Err(why) => println!("did not run: {why}"),
            Ok(c) if c.differ + c.nan_bits > 0 => println!(
                "{}: {} of {} differ, ulp {}, absolute {:.3e} below 1, NaN bits {}: {}",
                entry.form.name(),
                c.differ,
                c.threads,
                c.ulp,
                c.absolute,
                c.nan_bits,
                c.first.as_deref().unwrap_or("-")
            ),
            Ok(_) => {}
        }
        wrong += usize::from(!entry.agrees());
    });
    println!(
        "{done} forms compared with {}, {wrong} not as the table says, {} beyond the device",
        report.device, report.skipped
    );
    if a.bless {
        write(&a.root, &report)?;
    }
    Ok(wrong == 0)
}

fn main() -> ExitCode {
    if std::env::args().nth(1).is_some_and(|a| a == warpsmith_cuda::worker::WORKER_ARG) {
        warpsmith_cuda::worker::worker_main();
    }
    match work() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(why) => {
            eprintln!("error: {why}");
            ExitCode::from(3)
        }
    }
}
