//! Gate 2 through a worker process: what a candidate does there comes back in the record's words, and the next job finds a worker.
//!
//! The worker is this test program again, over the fake device of `warpsmith_cuda`; the last test takes a real one.

use std::time::{Duration, Instant};
use warpsmith_compile::{Artifact, BuildKind, EntryStats, ToolkitId};
use warpsmith_cuda::worker::fake::FakeDevice;
use warpsmith_cuda::worker::{Device, WorkerCommand, serve, worker_main};
use warpsmith_eval::backend::{Job, RunEnd, RunOutcome, Schedule};
use warpsmith_eval::values::{OutputSpec, Tensor};
use warpsmith_eval::worker::{GpuBackend, GpuOptions};
use warpsmith_eval::{Backend, EvalError, NumericsChoice};
use warpsmith_spec::plan::{ResolvedArg, ResolvedLaunch, ResolvedPlan, ScalarValue};
use warpsmith_spec::target;
use warpsmith_spec::words::DType;

/// Says that this process is the worker, and of which kind.
const ROLE: &str = "WARPSMITH_TEST_WORKER";
const N: u64 = 250;

#[test]
fn worker_process() {
    match std::env::var(ROLE).as_deref() {
        Ok("fake") => serve(|_| Ok(Box::new(FakeDevice::default()) as Box<dyn Device>)),
        Ok("cuda") => worker_main(),
        _ => {}
    }
}

fn start(role: &str, seconds: u64) -> GpuBackend {
    let command = WorkerCommand {
        program: std::env::current_exe().expect("a running program has a file"),
        args: ["worker_process", "--exact", "--nocapture"].map(Into::into).to_vec(),
        env: vec![(ROLE.into(), role.into())],
        remote: None,
    };
    GpuBackend::start(GpuOptions { command, device: 0, seconds, start_seconds: 60, fake: false }).expect("it starts")
}

fn artifact(entry: &str, params: &[u32]) -> Artifact {
    let stats = EntryStats {
        expression: entry.into(),
        lowered: entry.into(),
        params: params.to_vec(),
        ..EntryStats::default()
    };
    Artifact {
        ptx: ".version 8.0".into(),
        ptx_sha256: "0".repeat(64),
        cubin: None,
        entries: vec![stats],
        warnings: Vec::new(),
        log: String::new(),
        toolkit: ToolkitId("fake".into()),
        build: BuildKind::Release,
        target: "sm_90".into(),
    }
}

/// `entry(x, y, ...)` over N floats.
fn plan(entry: &str, scalars: &[ScalarValue]) -> ResolvedPlan {
    let mut args = vec![ResolvedArg::Tensor("x".into()), ResolvedArg::Tensor("y".into())];
    args.extend(scalars.iter().map(|v| ResolvedArg::Scalar { name: "n".into(), value: *v }));
    let launch = ResolvedLaunch {
        entry: entry.into(),
        grid: [1; 3],
        block: [256, 1, 1],
        cluster: [1; 3],
        shared_bytes: 0,
        cooperative: false,
        args,
        line: 5,
        args_line: 6,
        entry_line: 7,
    };
    ResolvedPlan { launches: vec![launch], workspaces: Vec::new(), tensor_maps: Vec::new() }
}

fn run(backend: &GpuBackend, artifact: &Artifact, plan: &ResolvedPlan) -> Result<RunOutcome, EvalError> {
    let bytes = (0..N).flat_map(|i| (i as f32).to_le_bytes()).collect();
    let inputs = [Tensor { name: "x".into(), dtype: DType::F32, shape: vec![N], bytes }];
    let outputs = [OutputSpec { name: "y".into(), dtype: DType::F32, shape: vec![N] }];
    backend.run(&Job {
        artifact,
        plan,
        target: target::find("sm_90").expect("it is known"),
        inputs: &inputs,
        outputs: &outputs,
        numerics: NumericsChoice::Faithful,
        schedule: Schedule { seed: 1, early_copies: false },
        max_instructions: 0,
    })
}

fn fake(backend: &GpuBackend, entry: &str) -> RunOutcome {
    let bytes = ScalarValue::Whole(4 * N as i64);
    run(backend, &artifact(entry, &[8, 8, 4]), &plan(entry, &[bytes])).expect("whatever a candidate does is data")
}

fn codes(outcome: &RunOutcome) -> Vec<&str> {
    outcome.findings.iter().map(|f| f.code.as_str()).collect()
}

#[test]
fn what_candidates_do_comes_back_as_findings_and_the_others_keep_their_verdicts() {
    let backend = start("fake", 30);
    assert_eq!(backend.word(), "gpu");
    let honest = |when: &str| {
        let good = fake(&backend, "copy");
        assert_eq!((&good.end, codes(&good)), (&RunEnd::Completed, vec![]), "{when}");
        assert_eq!(good.outputs[0].bytes, good.inputs[0].bytes, "{when}");
        assert!(good.outputs[0].defined.iter().all(|d| *d), "{when}");
    };
    honest("first");
    for (entry, end, code, tensor) in [
        ("illegal_address", RunEnd::Faulted, "invalid-access", None),
        ("misaligned", RunEnd::Faulted, "misaligned-access", None),
        ("trap", RunEnd::Faulted, "trap", None),
        ("die", RunEnd::Faulted, "trap", None),
        ("overrun", RunEnd::Completed, "out-of-bounds", Some("y")),
        ("underrun", RunEnd::Completed, "out-of-bounds", Some("y")),
    ] {
        let outcome = fake(&backend, entry);
        assert_eq!((&outcome.end, codes(&outcome)), (&end, vec![code]), "{entry}");
        assert_eq!(outcome.findings[0].tensor.as_deref(), tensor, "{entry}");
        assert_eq!(outcome.findings[0].entry.as_deref(), Some(entry).filter(|_| entry != "die"), "{entry}");
        honest(entry);
    }
    assert_eq!(backend.workers_lost(), 5, "three faults, and two workers for the one that kills its process");
    let overrun = fake(&backend, "overrun");
    let found = &overrun.findings[0];
    assert_eq!(found.index, Some(vec![N as i64]), "{}", found.message);
    assert!(found.message.contains("3 bytes behind its end"), "{}", found.message);

    let half = fake(&backend, "copy_half");
    assert_eq!(half.outputs[0].defined.iter().filter(|d| **d).count(), 2 * N as usize);
    let changed = fake(&backend, "changes_input");
    assert_ne!(changed.inputs[0].bytes, fake(&backend, "copy").inputs[0].bytes);
}

#[test]
fn a_hang_ends_at_the_limit_and_the_next_job_finds_a_worker() {
    let backend = start("fake", 2);
    assert_eq!(fake(&backend, "copy").end, RunEnd::Completed);
    assert_eq!(fake(&backend, "hang").end, RunEnd::LimitReached { what: "seconds".into(), limit: 2 });
    let begun = Instant::now();
    assert_eq!(fake(&backend, "copy").end, RunEnd::Completed);
    assert!(begun.elapsed() < Duration::from_secs(30));

    // PTX that the driver compiles for some seconds is given them.
    let bytes = ScalarValue::Whole(4 * N as i64);
    let mut long = artifact("hang", &[8, 8, 4]);
    long.ptx_sha256 = "1".repeat(64);
    long.ptx.push_str(&"\n// A long one.".repeat(5_000));
    let limited = |artifact: &Artifact| run(&backend, artifact, &plan("hang", &[bytes])).expect("a hang is data").end;
    assert_eq!(limited(&long), RunEnd::LimitReached { what: "seconds".into(), limit: 2 + 3 });
    let compiled = Artifact { cubin: Some(vec![0; 64]), ptx_sha256: "2".repeat(64), ..long };
    assert_eq!(
        limited(&compiled),
        RunEnd::LimitReached { what: "seconds".into(), limit: 2 },
        "nothing is left to compile"
    );
}

#[test]
fn what_cannot_be_launched_is_rejected_with_its_line() {
    let backend = start("fake", 30);
    let plain = |entry: &str| plan(entry, &[ScalarValue::Whole(4)]);
    let mut shared = plain("copy");
    shared.launches[0].shared_bytes = 1 << 20;
    let mut block = plain("copy");
    block.launches[0].block = [2048, 1, 1];
    for (what, artifact, plan, code, line) in [
        ("an entry that the file does not have", artifact("copy", &[8, 8, 4]), plain("cpoy"), "missing-entry", 7),
        ("an entry that the code does not have", artifact("nowhere", &[8, 8, 4]), plain("nowhere"), "missing-entry", 5),
        ("two parameters", artifact("copy", &[8, 8]), plain("copy"), "argument-mismatch", 6),
        ("a parameter of three bytes", artifact("copy", &[8, 8, 3]), plain("copy"), "argument-mismatch", 6),
        ("too much shared memory", artifact("copy", &[8, 8, 4]), shared, "shared-memory-exceeded", 5),
        ("a block that is too large", artifact("copy", &[8, 8, 4]), block, "invalid-launch", 5),
    ] {
        match run(&backend, &artifact, &plan).expect("it is data").end {
            RunEnd::Rejected(f) => assert_eq!((f.code.as_str(), f.line), (code, Some(line)), "{what}: {}", f.message),
            other => panic!("{what}: {other:?}"),
        }
    }
    let mut other = artifact("copy", &[8, 8, 4]);
    other.target = "sm_100a".into();
    match run(&backend, &other, &plain("copy")).expect("it is data").end {
        RunEnd::Unsupported { what, .. } => assert!(what.contains("sm_100a"), "{what}"),
        other => panic!("{other:?}"),
    }
    assert!(backend.runs("sm_80") && !backend.runs("sm_100a"));
}

#[test]
fn a_worker_that_cannot_be_had_is_an_error_with_a_code() {
    let command = WorkerCommand::program("no/such/program");
    let options = GpuOptions { command, device: 0, seconds: 1, start_seconds: 1, fake: false };
    assert_eq!(GpuBackend::start(options).err().map(|e| e.code().to_string()).as_deref(), Some("cannot-run"));
}

#[test]
#[ignore = "needs a CUDA device"]
fn a_device_runs_jobs_and_survives_candidates() {
    let backend = start("cuda", 5);
    let device = |entry: &str, params: &[u32], scalars: &[ScalarValue]| {
        let mut artifact = artifact(entry, params);
        artifact.ptx = include_str!("../../cuda/tests/kernels/probe.ptx").into();
        artifact.target = "sm_75".into();
        run(&backend, &artifact, &plan(entry, scalars)).expect("whatever a candidate does is data")
    };
    let scale = || device("scale", &[8, 8, 4, 4], &[ScalarValue::Real(2.0), ScalarValue::Whole(N as i64)]);
    let good = scale();
    assert_eq!((&good.end, codes(&good)), (&RunEnd::Completed, vec![]));
    assert_eq!(good.outputs[0].bytes[4..8], 2.0f32.to_le_bytes());
    assert!(!good.atomics);
    // Entries of one argument get x, which is wrong on purpose here: those below take y first.
    let one = |entry: &str, params: &[u32], scalars: &[ScalarValue]| {
        let mut artifact = artifact(entry, params);
        artifact.ptx = include_str!("../../cuda/tests/kernels/probe.ptx").into();
        artifact.target = "sm_75".into();
        let mut plan = plan(entry, scalars);
        plan.launches[0].args.remove(0);
        run(&backend, &artifact, &plan).expect("whatever a candidate does is data")
    };
    for (entry, code) in [("illegal_address", "invalid-access"), ("misaligned", "misaligned-access")] {
        assert_eq!(codes(&one(entry, &[8], &[])), [code]);
        let begun = Instant::now();
        assert_eq!(scale().end, RunEnd::Completed, "after {entry}");
        println!("the job after {entry}: {:?}", begun.elapsed());
    }
    assert_eq!(codes(&one("trapped", &[8, 4], &[ScalarValue::Whole(1)])), ["trap"]);
    let over = one("overrun", &[8, 4, 4], &[ScalarValue::Whole(N as i64), ScalarValue::Whole(1)]);
    assert_eq!(codes(&over), ["out-of-bounds"], "{:?}", over.findings);
    assert_eq!(one("hang", &[8], &[]).end, RunEnd::LimitReached { what: "seconds".into(), limit: 5 });
    let begun = Instant::now();
    assert_eq!(scale().end, RunEnd::Completed);
    println!("the job after a hang: {:?}", begun.elapsed());
}
