//! What `doctor` looks at around a GPU: device, memory, clocks, who may read counters, tools; and its ceilings, measured on request.
//!
//! It reads what `nvidia-smi` and the driver's own files say. Limits: the device that `--device` names; on Linux only for the driver's files.

use super::doctor::{Item, first_line};
use crate::args::Common;
use crate::error::CliError;
use crate::{on, output, paths};
use std::path::PathBuf;
use warpsmith_eval::profile::ceilings::{Subject, measure};
use warpsmith_eval::profile::ncu;
use warpsmith_eval::worker::GpuBackend;
use warpsmith_spec::ceilings::rated;
use warpsmith_spec::record::CeilingsRecord;
use warpsmith_store::timestamp_now;

/// In the order of [`Smi`]; all of them are known to every driver that this program works with.
const QUERY: &str =
    "name,driver_version,memory.total,memory.used,clocks.sm,clocks.max.sm,temperature.gpu,power.draw,compute_mode";

/// Device, memory, clocks, counters, tools.
pub(super) fn items(common: &Common) -> Vec<Item> {
    let device = common.device.to_string();
    let smi = |query: &str| {
        first_line("nvidia-smi", &["-i", &device, &format!("--query-gpu={query}"), "--format=csv,noheader,nounits"])
    };
    let mut items = match smi(QUERY) {
        Some(line) => {
            let name = line.split(',').next().unwrap_or("").trim();
            let mut found = told(&line, smi("clocks_throttle_reasons.active").as_deref());
            found.push(ceilings_of(name, measured(name).as_ref()));
            found
        }
        None => vec![Item::missing(
            "GPU",
            "no NVIDIA driver answers; gates 1 and 2 need none",
            "on a machine with an NVIDIA GPU: install its driver (580 or later for CUDA 13), until `nvidia-smi` works; in a container: --gpus all; or on another machine: `warpsmith doctor --on 'ssh HOST'`",
        )],
    };
    let with_device = items[0].works;
    items.push(counters(std::fs::read_to_string("/proc/driver/nvidia/params").ok().as_deref(), with_device));
    items.push(match ncu::find(None) {
        Ok(ncu) => Item::works("Nsight Compute", format!("{} at {}", ncu.version, ncu.program.display())),
        Err(u) => Item::missing("Nsight Compute", format!("{}; gate 4 does without its counters", u.why), u.next),
    });
    items.push(match warpsmith_eval::bench::sanitize::find() {
        Some(program) => Item::works("compute-sanitizer", program.display().to_string()),
        None => Item::missing(
            "compute-sanitizer",
            "not found; `check --sanitize` and the diagnosis of faults in `bench` do without",
            warpsmith_eval::bench::sanitize::HOW_TO_GET,
        ),
    });
    items.push(python());
    items
}

/// Whether the roofline has figures of this device's own.
fn ceilings_of(device: &str, kept: Option<&CeilingsRecord>) -> Item {
    match kept {
        Some(c) => {
            let at = c.at.as_deref().and_then(|at| at.split('T').next()).map_or(String::new(), |d| format!(" on {d}"));
            Item::works("ceilings", format!("measured{at}; reports draw their roofline from them"))
        }
        None => Item::missing(
            "ceilings",
            if rated(device).is_some() {
                "not measured; the roofline has the data sheet's figures"
            } else {
                "not measured, and no data sheet of this device is known here"
            },
            "`warpsmith doctor --measure`: half a minute, once",
        ),
    }
}

/// A line of nvidia-smi's, as items.
fn told(line: &str, throttle: Option<&str>) -> Vec<Item> {
    let cells: Vec<&str> = line.split(',').map(str::trim).collect();
    let cell = |i: usize| cells.get(i).copied().unwrap_or("?");
    let number = |i: usize| cell(i).parse::<f64>().ok();
    let driver_new = cell(1).split('.').next().and_then(|v| v.parse::<u32>().ok()).is_none_or(|v| v >= 550);
    let mut items = vec![if driver_new {
        Item::works("GPU", format!("{}, driver {}", cell(0), cell(1)))
    } else {
        Item::missing(
            "GPU",
            format!("{}, but driver {} is older than 12.4 of CUDA (550)", cell(0), cell(1)),
            "update the driver; `--toolkit-line 12` compiles for older ones meanwhile",
        )
    }];
    if let (Some(total), Some(used)) = (number(2), number(3)) {
        let detail = format!("{used:.0} of {total:.0} MiB are used");
        items.push(if total - used > 4096.0 {
            Item::works("GPU memory", detail)
        } else {
            Item::missing(
                "GPU memory",
                format!("{detail}; less than 4 GiB are free"),
                "`nvidia-smi` names the processes that hold it",
            )
        });
    }
    // A bit for each reason; 1 is that nothing runs, 2 that an application has set its clocks.
    let reasons =
        throttle.and_then(|t| u64::from_str_radix(t.trim_start_matches("0x"), 16).ok()).map(|bits| bits & !0x3);
    let clocks = format!("SM {} of {} MHz, {} C, {} W", cell(4), cell(5), cell(6), cell(7));
    items.push(match reasons {
        None | Some(0) => Item::works("GPU clocks", clocks),
        Some(bits) => Item::missing(
            "GPU clocks",
            format!("{clocks}; they are held down ({bits:#x})"),
            "`nvidia-smi -q -d PERFORMANCE` says why (heat, power, a limit that somebody set); times that are taken meanwhile say so",
        ),
    });
    if cell(8) != "Default" && cell(8) != "?" {
        items.push(Item::missing(
            "GPU mode",
            format!("compute mode {}: a second process may find the device taken", cell(8)),
            "`sudo nvidia-smi -c DEFAULT`, or let nobody else use it",
        ));
    }
    items
}

/// Who may read performance counters, by the driver's own parameters.
fn counters(params: Option<&str>, with_device: bool) -> Item {
    const NAME: &str = "counters";
    let restricted = params.and_then(|p| p.lines().find_map(|l| l.trim().strip_prefix("RmProfilingAdminOnly:")));
    match (with_device, restricted.map(str::trim)) {
        (false, _) => {
            Item::missing(NAME, "no device has any", "gate 4 shows all that needs none: `warpsmith profile NAME`")
        }
        (true, Some("0")) => Item::works(NAME, "every user may read them".to_string()),
        (true, Some(_)) => Item::missing(
            NAME,
            "the driver lets only administrators read them (RmProfilingAdminOnly)",
            "`warpsmith explain counters-denied`: a line in /etc/modprobe.d, or sudo env \"PATH=$PATH\" warpsmith profile ...",
        ),
        (true, None) => {
            Item::works(NAME, "the driver does not say who may read them; `warpsmith profile` finds out".to_string())
        }
    }
}

/// What `bench` compares with.
fn python() -> Item {
    const CODE: &str = "import importlib.util as u, importlib.metadata as m\n\
        found = [n + ' ' + m.version(d) for n, d in [('torch','torch'),('triton','triton'),('flash_attn','flash-attn'),('cudnn','nvidia-cudnn-frontend')] if u.find_spec(n)]\n\
        print(', '.join(found) or 'none')";
    match first_line("python3", &["-c", CODE]) {
        Some(found) if found != "none" => Item::works("baselines", found),
        found => Item::missing(
            "baselines",
            if found.is_some() { "python3 has no package that `bench` compares with" } else { "no python3" },
            "`python3 -m pip install torch nvidia-cudnn-frontend`, or `bench --python PATH`; docs/baselines.md names all",
        ),
    }
}

/// Where the ceilings of a device are kept.
fn file(device: &str) -> PathBuf {
    paths::cache_dir().join("ceilings").join(format!("{}.json", warpsmith_report::safe(device)))
}

/// What was measured of a device before.
pub fn measured(device: &str) -> Option<CeilingsRecord> {
    let text = std::fs::read(file(device)).ok().filter(|t| t.len() < 1 << 16)?;
    serde_json::from_slice::<CeilingsRecord>(&text).ok().filter(|c| c.device == device && c.is_measured())
}

/// `doctor --measure`: runs the micro-kernels and keeps what they reach.
pub fn ceilings(common: &Common) -> Result<i32, CliError> {
    let options = on::gpu_options(common, common.fake_device)?;
    let options = warpsmith_eval::worker::GpuOptions { seconds: 120, ..options };
    let backend = GpuBackend::start(options).map_err(warpsmith_eval::EvalError::from)?;
    let d = backend.device();
    let subject = Subject {
        name: d.name.clone(),
        capability: d.compute_capability,
        sms: d.sm_count,
        l2_bytes: d.l2_bytes,
        memory_bytes: d.memory_bytes,
    };
    let clock = first_line(
        "nvidia-smi",
        &["-i", &common.device.to_string(), "--query-gpu=clocks.sm", "--format=csv,noheader,nounits"],
    );
    let (mut found, missing) = measure(&backend, &subject)?;
    found.at = Some(timestamp_now());
    found.sm_mhz = clock.filter(|_| common.on.is_none()).and_then(|c| c.parse().ok());
    let any = found.dram_gb.or(found.fp16_tflops).or(found.fp32_tflops).is_some();
    // A fake device's figures are nobody's.
    let kept = any && !common.fake_device;
    if kept {
        let path = file(&found.device);
        let text =
            serde_json::to_vec_pretty(&found).map_err(|e| CliError::environment("tool-defect", e.to_string()))?;
        std::fs::create_dir_all(path.parent().unwrap_or(&path))
            .map_err(|e| CliError::environment("output-not-writable", e.to_string()).file(&path))?;
        crate::reports::put(&path, &text)?;
    }
    if common.json {
        output::out(&format!("{}\n", serde_json::json!({ "ceilings": found, "missing": missing, "kept": kept })));
    } else {
        output::out(&text(&found, &missing, kept));
    }
    Ok(if any { 0 } else { 3 })
}

fn text(found: &CeilingsRecord, missing: &[String], kept: bool) -> String {
    let rated = rated(&found.device).unwrap_or_default();
    let mut text = format!("{}\n{:36}{:>12}{:>14}\n", found.device, "", "measured", "data sheet");
    let shown =
        |x: Option<f64>| x.map_or("-".to_string(), |x| if x < 100.0 { format!("{x:.2}") } else { format!("{x:.0}") });
    for ((name, got, unit), (_, sheet, _)) in found.rows().into_iter().zip(rated.rows()) {
        let name = format!("{name}, {unit}");
        text.push_str(&format!("{name:36}{:>12}{:>14}\n", shown(got), shown(sheet)));
    }
    text.extend(missing.iter().map(|m| format!("not measured: {m}\n")));
    text.push_str(if kept { "kept: runs on this device carry these ceilings\n" } else { "nothing was kept\n" });
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_told_with_what_is_wrong_with_it() {
        let fine = told("NVIDIA H200, 580.159, 143771, 3, 1980, 1980, 31, 77.2, Default", Some("0x0000000000000001"));
        assert!(fine.len() == 3 && fine.iter().all(|i| i.works && i.next.is_none()), "{fine:?}");
        let bad =
            told("NVIDIA L4, 535.1, 23034, 22000, 600, 2040, 85, 72, Exclusive_Process", Some("0x0000000000000020"));
        assert!(bad.len() == 4 && bad.iter().all(|i| !i.works && i.next.is_some()), "{bad:?}");
        assert!(told("nonsense", None).iter().any(|i| i.name == "GPU"));
    }

    #[test]
    fn ceilings_are_told_with_their_day_or_with_the_command_that_measures_them() {
        let kept = CeilingsRecord { at: Some("2026-11-22T07:00:00Z".into()), ..CeilingsRecord::default() };
        let item = ceilings_of("NVIDIA H200", Some(&kept));
        assert!(item.works && item.detail.contains("on 2026-11-22"), "{item:?}");
        for (device, words) in [("NVIDIA H200", "data sheet's"), ("Some Card", "no data sheet")] {
            let item = ceilings_of(device, None);
            assert!(!item.works && item.detail.contains(words), "{item:?}");
            assert!(item.next.is_some_and(|n| n.contains("warpsmith doctor --measure")));
        }
    }

    #[test]
    fn who_may_read_counters() {
        for (params, device, works) in [
            (Some("Foo: 1\nRmProfilingAdminOnly: 1\n"), true, false),
            (Some("RmProfilingAdminOnly: 0\n"), true, true),
            (None, true, true),
            (None, false, false),
        ] {
            assert_eq!(counters(params, device).works, works, "{params:?}");
        }
    }
}
