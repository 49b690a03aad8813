//! What the device at hand can do at most, measured on it by kernels that keep one unit busy.
//!
//! The kernels (`data/ceilings.cu`, shipped as PTX) note their beginning and end by the device's own timer; a rate is what all CTAs did
//! between the first beginning and the last end, the best of [`RUNS`] runs. So it works through any worker, and no host's clock is in it.
//! DRAM: 1 GiB read over and over; L2: a part of it that fits; shared memory: 16 bytes a lane without conflicts; tensor cores: `mma.sync`
//! and on sm_90a `wgmma` with operands in shared memory, random values; f32: chains of `fma`; exponentials: chains of `ex2`.
//! Limits: what a device lacks is left out and said; a timer that ticks in microseconds makes an error of up to 1%.

use crate::backend::{Backend, Job, NumericsChoice, RunEnd, Schedule};
use crate::error::EvalError;
use crate::values::OutputSpec;
use warpsmith_compile::{Artifact, BuildKind, EntryStats, ToolkitId, ptx_entries};
use warpsmith_spec::plan::{ResolvedArg, ResolvedLaunch, ResolvedPlan, ResolvedWorkspace, ScalarValue};
use warpsmith_spec::record::CeilingsRecord;
use warpsmith_spec::target::{self, Target};
use warpsmith_spec::words::DType;

/// Runs of each kernel; the first warms up.
const RUNS: usize = 4;
/// Bytes that are read from DRAM, far more than any L2.
const DRAM_BYTES: u64 = 1 << 30;
/// What makes a job's own deadline long: nothing is counted on a device.
const PATIENT: u64 = 1 << 40;

/// The device as far as the kernels have to know it.
#[derive(Debug, Clone)]
pub struct Subject {
    pub name: String,
    /// `(9, 0)`
    pub capability: (u32, u32),
    pub sms: u32,
    pub l2_bytes: u64,
    pub memory_bytes: u64,
}

/// One kernel and what a CTA of it does.
struct Kernel {
    what: &'static str,
    ptx: &'static str,
    target: &'static str,
    entry: &'static str,
    ctas_per_sm: u32,
    threads: u32,
    /// Of the loop.
    steps: i64,
    /// Bytes or operations of a step, by a CTA.
    per_step: f64,
    /// Bytes of the buffer that is read; 0: none.
    buffer: u64,
}

const SM80: &str = include_str!("../../data/ceilings_sm80.ptx");
const SM89: &str = include_str!("../../data/ceilings_sm89.ptx");
const SM90: &str = include_str!("../../data/ceilings_sm90.ptx");

fn kernels(device: &Subject) -> Vec<Kernel> {
    let base = |what, entry, ctas_per_sm, threads, steps, per_step| Kernel {
        what,
        ptx: SM80,
        target: "sm_80",
        entry,
        ctas_per_sm,
        threads,
        steps,
        per_step,
        buffer: 0,
    };
    // One group of loads of every thread, of as many threads as leave half of the L2 free: any less, and nobody reads.
    let group = |ctas_per_sm: u32| u64::from(device.sms * ctas_per_sm) * 512 * 8 * 16;
    let l2_ctas = if group(2) <= device.l2_bytes / 2 { 2 } else { 1 };
    let l2 = group(l2_ctas);
    let dram = DRAM_BYTES.min(device.memory_bytes / 4).max(1 << 26);
    let read = |what, ctas_per_sm: u32, bytes: u64, passes: i64| {
        let ctas = device.sms * ctas_per_sm;
        let each = read_bytes(bytes, ctas, 512) / f64::from(ctas);
        Kernel { buffer: bytes, ..base(what, "ceiling_read", ctas_per_sm, 512, passes, each) }
    };
    let per = |threads: u32, each: f64| f64::from(threads) * each;
    let mut all = vec![
        read("DRAM", 4, dram, 12),
        read("L2", l2_ctas, l2, (24 * (DRAM_BYTES / l2.max(1))) as i64),
        base("shared memory", "ceiling_shared", 2, 1024, 40_000, per(1024, 64.0)),
        base("FP32", "ceiling_fp32", 2, 1024, 20_000, per(1024, 32.0)),
        base("exponentials", "ceiling_exp", 2, 1024, 8_000, per(1024, 8.0)),
        base("FP16", "ceiling_mma", 2, 256, 40_000, per(8, 8.0 * 4096.0)),
    ];
    let number = device.capability.0 * 10 + device.capability.1;
    if number >= 89 {
        let mma = base("FP8", "ceiling_mma", 2, 256, 40_000, per(8, 8.0 * 8192.0));
        all.push(Kernel { ptx: SM89, target: "sm_89", ..mma });
    }
    if number == 90 {
        // Three warpgroups, four products each a step.
        let group = |what, entry, macs: f64| Kernel {
            ptx: SM90,
            target: "sm_90a",
            ..base(what, entry, 1, 384, 60_000, 3.0 * 4.0 * 2.0 * macs)
        };
        all.push(group("FP16", "ceiling_wgmma16", 64.0 * 128.0 * 16.0));
        all.push(group("FP8", "ceiling_wgmma8", 64.0 * 128.0 * 32.0));
    }
    all
}

/// Bytes that one pass reads: whole groups of eight loads only.
fn read_bytes(buffer: u64, ctas: u32, threads: u32) -> f64 {
    let step = u64::from(ctas) * u64::from(threads);
    let chunks = buffer / 16;
    let groups = |first: u64| chunks.saturating_sub(first + 7 * step).div_ceil(8 * step);
    // Threads differ by one group at most.
    let (most, least) = (groups(0), groups(step - 1));
    let with_most = if most == least { step } else { (chunks.saturating_sub(7 * step)) % (8 * step) };
    (with_most.min(step) * most + (step - with_most.min(step)) * least) as f64 * 128.0
}

/// Measures. Beside the ceilings: what could not be measured, and why.
pub fn measure(backend: &dyn Backend, device: &Subject) -> Result<(CeilingsRecord, Vec<String>), EvalError> {
    let mut found =
        CeilingsRecord { device: device.name.clone(), source: "measured".into(), ..CeilingsRecord::default() };
    let mut missing = Vec::new();
    for kernel in kernels(device) {
        let rate = match run(backend, device, &kernel)? {
            Ok(rate) => rate,
            Err(why) => {
                missing.push(format!("{} by {}: {why}", kernel.what, kernel.entry));
                continue;
            }
        };
        // The better of two ways to the same unit is its ceiling.
        let put = |slot: &mut Option<f64>, value: f64| *slot = Some(slot.unwrap_or(0.0).max(value));
        match kernel.what {
            "DRAM" => put(&mut found.dram_gb, rate / 1e9),
            "L2" => put(&mut found.l2_gb, rate / 1e9),
            "shared memory" => put(&mut found.shared_gb, rate / 1e9),
            "FP32" => put(&mut found.fp32_tflops, rate / 1e12),
            "exponentials" => put(&mut found.exp_tera, rate / 1e12),
            "FP16" => put(&mut found.fp16_tflops, rate / 1e12),
            _ => put(&mut found.fp8_tflops, rate / 1e12),
        }
    }
    Ok((found, missing))
}

/// What the kernel did in a second, at best; or why it is not known.
fn run(backend: &dyn Backend, device: &Subject, kernel: &Kernel) -> Result<Result<f64, String>, EvalError> {
    let target: &'static Target = target::find(kernel.target).map_err(|e| EvalError::Defect(e.message))?;
    let ctas = device.sms * kernel.ctas_per_sm;
    let artifact = Artifact {
        ptx: kernel.ptx.into(),
        ptx_sha256: crate::error_map::sha256(kernel.ptx.as_bytes()),
        cubin: None,
        entries: vec![EntryStats {
            expression: kernel.entry.into(),
            lowered: kernel.entry.into(),
            params: ptx_entries(kernel.ptx)
                .into_iter()
                .find(|e| e.name == kernel.entry)
                .map_or_else(Vec::new, |e| e.params),
            ..EntryStats::default()
        }],
        warnings: Vec::new(),
        log: String::new(),
        toolkit: ToolkitId("shipped".into()),
        build: BuildKind::Release,
        target: kernel.target.into(),
    };
    let number = |name: &str, value: i64| ResolvedArg::Scalar { name: name.into(), value: ScalarValue::Whole(value) };
    let (times, sink) = (ResolvedArg::Tensor("times".into()), ResolvedArg::Workspace("sink".into()));
    let args = if kernel.buffer > 0 {
        let data = ResolvedArg::Workspace("data".into());
        vec![data, number("chunks", (kernel.buffer / 16) as i64), number("passes", kernel.steps), times, sink]
    } else {
        vec![number("steps", kernel.steps), times, sink]
    };
    let workspace = |name: &str, bytes: u64, zeroed: bool| ResolvedWorkspace {
        name: name.into(),
        dtype: DType::F32,
        shape: vec![bytes / 4],
        bytes,
        zeroed,
    };
    let mut workspaces = vec![workspace("sink", 256, true)];
    if kernel.buffer > 0 {
        workspaces.push(workspace("data", kernel.buffer, false));
    }
    let launch = ResolvedLaunch {
        entry: kernel.entry.into(),
        grid: [ctas, 1, 1],
        block: [kernel.threads, 1, 1],
        cluster: [1, 1, 1],
        shared_bytes: 0,
        cooperative: false,
        args,
        line: 1,
        args_line: 1,
        entry_line: 1,
    };
    let job = Job {
        artifact: &artifact,
        plan: &ResolvedPlan { launches: vec![launch], workspaces, tensor_maps: Vec::new() },
        target,
        inputs: &[],
        outputs: &[OutputSpec { name: "times".into(), dtype: DType::F32, shape: vec![u64::from(ctas) * 4] }],
        numerics: NumericsChoice::Fast,
        schedule: Schedule { seed: 1, early_copies: false },
        max_instructions: PATIENT,
    };
    let mut best: Option<u64> = None;
    for _ in 0..RUNS {
        let outcome = backend.run(&job)?;
        match &outcome.end {
            RunEnd::Completed => {}
            RunEnd::Unsupported { what, .. } => return Ok(Err(what.clone())),
            RunEnd::Rejected(f) | RunEnd::Unavailable(f) => return Ok(Err(f.message.clone())),
            RunEnd::LimitReached { what, limit } => return Ok(Err(format!("it reached the limit of {limit} {what}"))),
            RunEnd::Faulted => {
                let why = outcome.findings.first().map_or("it faulted".into(), |f| f.message.clone());
                return Ok(Err(why));
            }
        }
        let Some(nanoseconds) = outcome.outputs.first().and_then(|o| span(&o.bytes)) else {
            return Ok(Err("the device's timer did not move".into()));
        };
        best = Some(best.map_or(nanoseconds, |b| b.min(nanoseconds)));
    }
    let Some(nanoseconds) = best else { return Ok(Err("it was not run".into())) };
    let work = kernel.per_step * kernel.steps as f64 * f64::from(ctas);
    Ok(Ok(work / (nanoseconds as f64 * 1e-9)))
}

/// Nanoseconds from the first beginning to the last end.
fn span(bytes: &[u8]) -> Option<u64> {
    let stamps: Vec<u64> =
        bytes.chunks_exact(8).map(|c| u64::from_le_bytes(c.try_into().unwrap_or_default())).collect();
    let begin = stamps.iter().step_by(2).min()?;
    let end = stamps.iter().skip(1).step_by(2).max()?;
    end.checked_sub(*begin).filter(|n| *n > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{RunOutcome, Written};
    use warpsmith_spec::plan::Parameter;

    /// A device whose every kernel takes 10 ms; one without a kernel for warpgroups.
    struct Fake;

    impl Backend for Fake {
        fn word(&self) -> &'static str {
            "fake"
        }
        fn version(&self) -> String {
            "fake".into()
        }
        fn run(&self, job: &Job) -> Result<RunOutcome, EvalError> {
            let launch = &job.plan.launches[0];
            // As a worker does before it launches.
            let sizes = &job.artifact.entry(&launch.entry).unwrap().params;
            let parameters: Vec<_> = sizes.iter().map(|b| Parameter { bytes: *b as usize, align: 1 }).collect();
            launch.fits_parameters("", &parameters).unwrap();
            if launch.entry == "ceiling_wgmma8" {
                let what = "no warpgroups".to_string();
                return Ok(RunOutcome::ended(RunEnd::Unsupported { what, file: None, line: None }));
            }
            let stamps = (0..u64::from(launch.grid[0])).flat_map(|c| [1_000 + c, 1_000 + 10_000_000 - (c % 7)]);
            let bytes: Vec<u8> = stamps.flat_map(u64::to_le_bytes).collect();
            assert_eq!(bytes.len(), 4 * job.outputs[0].elements());
            let outputs = vec![Written { defined: vec![true; bytes.len()], bytes }];
            Ok(RunOutcome { outputs, ..RunOutcome::ended(RunEnd::Completed) })
        }
    }

    #[test]
    fn rates_are_work_over_the_devices_own_time() {
        let device = Subject {
            name: "NVIDIA H200".into(),
            capability: (9, 0),
            sms: 132,
            l2_bytes: 50 << 20,
            memory_bytes: 140 << 30,
        };
        let (found, missing) = measure(&Fake, &device).unwrap();
        assert!(found.is_measured() && found.device == "NVIDIA H200");
        let near = |got: Option<f64>, want: f64| assert!((got.unwrap() / want - 1.0).abs() < 0.02, "{got:?} {want}");
        near(found.dram_gb, 12.0 * (1u64 << 30) as f64 / 0.01 / 1e9);
        // Every kernel has work: here all take as long.
        near(found.l2_gb, 24.0 * (1u64 << 30) as f64 / 0.01 / 1e9);
        near(found.exp_tera, 132.0 * 2.0 * 1024.0 * 8.0 * 8_000.0 / 0.01 / 1e12);
        near(found.fp16_tflops, 132.0 * 12.0 * 2.0 * 131_072.0 * 60_000.0 / 0.01 / 1e12);
        assert!(found.fp8_tflops.is_some(), "the other way to FP8 stands");
        assert!(missing.len() == 1 && missing[0].contains("no warpgroups"), "{missing:?}");
        let old = Subject { capability: (8, 0), ..device };
        assert_eq!(measure(&Fake, &old).unwrap().0.fp8_tflops, None);
    }

    #[test]
    fn what_a_pass_reads_is_counted_as_the_kernel_does() {
        for (buffer, ctas, threads) in
            [(1u64 << 20, 4u32, 32u32), ((1 << 20) + 16 * 777, 3, 32), (1 << 16, 2, 64), (4096, 8, 64)]
        {
            let (step, chunks) = (u64::from(ctas * threads), buffer / 16);
            let mut loads = 0u64;
            for first in 0..step {
                let mut i = first;
                while i + 7 * step < chunks {
                    loads += 8;
                    i += 8 * step;
                }
            }
            assert_eq!(read_bytes(buffer, ctas, threads), loads as f64 * 16.0, "{buffer} {ctas} {threads}");
        }
    }

    #[test]
    fn the_shipped_kernels_have_their_entries() {
        for capability in [(8, 0), (8, 9), (9, 0), (12, 0)] {
            let device = Subject { name: "d".into(), capability, sms: 10, l2_bytes: 1 << 22, memory_bytes: 1 << 33 };
            for kernel in kernels(&device) {
                assert!(kernel.ptx.contains(&format!(".entry {}(", kernel.entry)), "{}", kernel.entry);
                let wanted = format!(".target {}", kernel.target);
                assert!(kernel.ptx.contains(&wanted), "{wanted}");
            }
        }
        assert_eq!(span(&[]), None);
        assert_eq!(span(&[0; 16]), None);
    }
}
