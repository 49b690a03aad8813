//! The driver's wrappers and the worker on a real device. Each test is ignored unless asked for: `cargo xtask gpu-tests`.
//!
//! `kernels/probe.ptx` runs on any device, `kernels/probe.sm_90.cubin` on compute capability 9.0; probe.cu says how they are made.

use std::collections::HashMap;
use std::time::{Duration, Instant};
use warpsmith_cuda::worker::protocol::{Arg, Buffer, End, Fill, Launch, Run};
use warpsmith_cuda::worker::{Blobs, Ran, Worker, WorkerCommand, WorkerError, sha256, worker_main};
use warpsmith_cuda::{Arguments, Context, CudaError, Driver, EventKind, FaultKind, Geometry, TensorMapSpec};

const PTX: &[u8] = include_bytes!("kernels/probe.ptx");
const CUBIN: &[u8] = include_bytes!("kernels/probe.sm_90.cubin");
const ROLE: &str = "WARPSMITH_TEST_WORKER";
const N: usize = 1000;

#[test]
fn worker_process() {
    if std::env::var(ROLE).is_ok() {
        worker_main();
    }
}

fn context() -> Context {
    Driver::load().expect("there is a driver").context(0).expect("there is a device")
}

/// Machine code where it is for this device, else PTX.
fn image(context: &Context) -> &'static [u8] {
    if context.device().runs_cubin("sm_90") { CUBIN } else { PTX }
}

fn line(threads: u32) -> Geometry {
    Geometry { grid: [1; 3], block: [threads, 1, 1], cluster: [1; 3], cooperative: false, shared_bytes: 0 }
}

fn floats(n: usize) -> Vec<u8> {
    (0..n).flat_map(|i| (i as f32).to_le_bytes()).collect()
}

fn to_floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

fn to_ints(bytes: &[u8]) -> Vec<i32> {
    bytes.chunks_exact(4).map(|b| i32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

#[test]
#[ignore = "needs a CUDA device"]
fn devices_describe_themselves() {
    let driver = Driver::load().expect("there is a driver");
    for device in driver.devices().expect("they can be counted") {
        println!("{device:#?}");
        assert!(device.sm_count > 0 && device.memory_bytes > 1 << 30 && device.l2_bytes > 0);
        assert!(device.uuid.starts_with("GPU-") && device.uuid.len() == 40, "{}", device.uuid);
        assert!(device.runs_cubin(&device.target()));
    }
    assert!(matches!(driver.device(1000), Err(CudaError::NoDevice { .. })));
}

#[test]
#[ignore = "needs a CUDA device"]
fn ptx_and_cubin_launch_on_streams_and_in_graphs() {
    let context = context();
    for image in [PTX, image(&context)] {
        let module = context.load(image).expect("it loads");
        let scale = module.function("scale").expect("it is there");
        assert_eq!(scale.info().parameters, [8, 8, 4, 4]);
        assert!(scale.info().registers > 0);
        let (x, y) = (context.alloc(4 * N as u64).expect("room"), context.alloc(4 * N as u64).expect("room"));
        x.write(0, &floats(N)).expect("it fits");
        y.fill(0, y.len(), 0xff).expect("it fits");
        let mut args = Arguments::new();
        args.address(x.address()).address(y.address()).push(&2.0f32.to_le_bytes()).push(&(N as i32).to_le_bytes());
        let stream = context.stream().expect("a stream");
        let geometry = Geometry { grid: [8, 1, 1], ..line(128) };
        context.wait().expect("the copies are done");
        let (start, end) =
            (context.event(EventKind::Timed).expect("an event"), context.event(EventKind::Timed).expect("an event"));
        start.record(&stream).expect("recorded");
        stream.launch(&scale, &geometry, &args).expect("it launches");
        end.record(&stream).expect("recorded");
        // Page-locked memory takes the result while the host goes on.
        let copy = y.read_async(0, context.pinned(4 * N).expect("room"), &stream).expect("it fits");
        let pinned = copy.wait().expect("it is done");
        assert!(to_floats(pinned.bytes()).iter().enumerate().all(|(i, v)| *v == 2.0 * i as f32));
        assert!(end.us_since(&start).expect("both happened") > 0.0);
        assert!(stream.is_idle().expect("a stream answers"));

        // y = 2x, x = 2y, and so on: five launches in one graph, twice.
        let mut back = Arguments::new();
        back.address(y.address()).address(x.address()).push(&2.0f32.to_le_bytes()).push(&(N as i32).to_le_bytes());
        let graph = stream
            .capture(|| {
                (0..5).try_for_each(|i| stream.launch(&scale, &geometry, if i % 2 == 0 { &args } else { &back }))
            })
            .expect("it records");
        assert_eq!(graph.nodes(), 5);
        for _ in 0..2 {
            stream.replay(&graph).expect("it replays");
        }
        stream.wait().expect("it is done");
        let mut bytes = vec![0; 4 * N];
        x.read(0, &mut bytes).expect("it fits");
        // Of ten launches the x side was written by two in each replay.
        assert_eq!(to_floats(&bytes)[3], 3.0 * 16.0 * 16.0);
        // A recording that fails leaves the stream usable.
        let failed = stream.capture(|| Err(CudaError::Launch { what: "changed my mind".into() }));
        assert!(matches!(failed, Err(CudaError::Launch { .. })));
        stream.launch(&scale, &geometry, &args).expect("it launches");
        stream.wait().expect("it is done");
    }
}

#[test]
#[ignore = "needs a CUDA device"]
fn shared_memory_beyond_48_kib_has_to_be_allowed_and_may_not_be_endless() {
    let context = context();
    let module = context.load(image(&context)).expect("it loads");
    let f = module.function("through_shared").expect("it is there");
    let x = context.alloc(4 * N as u64).expect("room");
    x.write(0, &floats(N)).expect("it fits");
    context.wait().expect("the copy is done");
    let most = context.device().shared_bytes_per_block;
    let offset = (most as usize / 4 - N) as i32;
    let mut args = Arguments::new();
    args.address(x.address()).push(&(N as i32).to_le_bytes()).push(&offset.to_le_bytes());
    let stream = context.stream().expect("a stream");
    let geometry = Geometry { shared_bytes: most, ..line(256) };
    assert!(matches!(stream.launch(&f, &geometry, &args), Err(CudaError::Launch { .. })), "it was not allowed yet");
    f.allow_shared_bytes(most).expect("the device has it");
    stream.launch(&f, &geometry, &args).expect("it launches");
    stream.wait().expect("it is done");
    let mut bytes = vec![0; 4 * N];
    x.read(0, &mut bytes).expect("it fits");
    assert_eq!(to_floats(&bytes)[0], 2.0 * (N - 1) as f32);
    assert!(matches!(f.allow_shared_bytes(most + 1024), Err(CudaError::Launch { .. })));
}

#[test]
#[ignore = "needs a CUDA device"]
fn clusters_and_tensor_maps_reach_the_kernel() {
    let context = context();
    if !context.device().runs_cubin("sm_90") {
        eprintln!("skipped: {} is not of compute capability 9.0", context.device().name);
        return;
    }
    let module = context.load(CUBIN).expect("it loads");
    let stream = context.stream().expect("a stream");
    let y = context.alloc(4 * 256).expect("room");
    let mut args = Arguments::new();
    args.address(y.address());
    let ranks = module.function("cluster_ranks").expect("it is there");
    stream.launch(&ranks, &Geometry { grid: [8, 1, 1], cluster: [4, 1, 1], ..line(32) }, &args).expect("it launches");
    stream.wait().expect("it is done");
    let mut bytes = vec![0; 4 * 16];
    y.read(0, &mut bytes).expect("it fits");
    assert_eq!(to_ints(&bytes), [0, 4, 1, 4, 2, 4, 3, 4, 0, 4, 1, 4, 2, 4, 3, 4]);

    // A tensor of 64 columns and 32 rows, from which the tile at column 32, row 28 is taken: its last four rows lie outside, and are 0.
    let x = context.alloc(4 * 64 * 32).expect("room");
    x.write(0, &(0..64 * 32).flat_map(|i: i32| i.to_le_bytes()).collect::<Vec<u8>>()).expect("it fits");
    context.wait().expect("the copy is done");
    let spec = TensorMapSpec {
        dtype: "i32".into(),
        dims: vec![64, 32],
        strides: vec![256],
        box_sizes: vec![32, 8],
        element_strides: vec![1, 1],
        swizzle: "NONE".into(),
        interleave: "NONE".into(),
        fill: "NONE".into(),
        l2_promotion: "NONE".into(),
    };
    let map = context.tensor_map(&spec, x.address()).expect("it is well-formed");
    let mut args = Arguments::new();
    args.push(&map).address(y.address()).push(&32i32.to_le_bytes()).push(&28i32.to_le_bytes());
    let tile = module.function("tma_tile").expect("it is there");
    stream.launch(&tile, &line(32), &args).expect("it launches");
    stream.wait().expect("it is done");
    let mut bytes = vec![0; 4 * 256];
    y.read(0, &mut bytes).expect("it fits");
    let want: Vec<i32> = (0..256).map(|i| if i / 32 < 4 { (28 + i / 32) * 64 + 32 + i % 32 } else { 0 }).collect();
    assert_eq!(to_ints(&bytes), want);
    assert!(context.tensor_map(&spec, x.address() + 4).is_err(), "the address has to be a multiple of 16");
}

#[test]
#[ignore = "needs a CUDA device"]
fn what_does_not_fit_is_refused_before_it_runs() {
    let context = context();
    assert!(matches!(context.load(b"no code"), Err(CudaError::Image { .. })));
    assert!(matches!(context.load(&CUBIN[..CUBIN.len() / 2]), Err(CudaError::Image { .. })));
    let broken = String::from_utf8_lossy(PTX).replace("ld.param.u64", "ld.param.u65");
    match context.load(broken.as_bytes()) {
        Err(CudaError::Image { why }) => assert!(why.contains("u65") || why.contains("line"), "{why}"),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it has loaded"),
    }
    let module = context.load(image(&context)).expect("it loads");
    assert!(matches!(module.function("nowhere"), Err(CudaError::NoEntry { .. })));
    let scale = module.function("scale").expect("it is there");
    let stream = context.stream().expect("a stream");
    let mut few = Arguments::new();
    few.address(0);
    let mut args = Arguments::new();
    args.address(0).address(0).push(&[0; 4]).push(&[0; 4]);
    for (what, geometry, args) in [
        ("too few arguments", line(32), &few),
        ("a block of 2,048 threads", line(2048), &args),
        ("no threads", line(0), &args),
        ("no blocks", Geometry { grid: [0, 1, 1], ..line(32) }, &args),
        ("a grid too high", Geometry { grid: [1, 70_000, 1], ..line(32) }, &args),
        ("a grid that no cluster divides", Geometry { grid: [3, 1, 1], cluster: [2, 1, 1], ..line(32) }, &args),
    ] {
        let refused = stream.launch(&scale, &geometry, args);
        assert!(matches!(refused, Err(CudaError::Launch { .. })), "{what}: {refused:?}");
    }
    stream.wait().expect("nothing ran");
    let (free, total) = context.memory().expect("it answers");
    assert!(free <= total);
    assert!(matches!(context.alloc(total * 2), Err(CudaError::OutOfMemory { .. })));
    let small = context.alloc(16).expect("room");
    assert!(small.write(8, &[0; 9]).is_err() && small.read(u64::MAX, &mut [0; 2]).is_err());
}

// The worker. Its process has the device's context; these tests do not.

fn start() -> Worker {
    let command = WorkerCommand {
        program: std::env::current_exe().expect("a running program has a file"),
        args: ["worker_process", "--exact", "--nocapture"].map(Into::into).to_vec(),
        env: vec![(ROLE.into(), "device".into())],
        remote: None,
    };
    Worker::start(&command, 0, 60).expect("there is a device")
}

/// `entry` with these arguments on x (given) and y (poisoned), N floats each, by blocks of 128 threads.
fn run_of(worker: &Worker, entry: &str, args: &[&str], numbers: &[i32]) -> Run {
    let code = if worker.device().runs_cubin("sm_90") { CUBIN } else { PTX };
    let buffer = |name: &str, fill| Buffer { name: name.into(), bytes: 4 * N as u64, fill };
    let pointers = args.iter().map(|name| Arg::Buffer((*name).into()));
    let scalars = numbers.iter().map(|n| Arg::Bytes(n.to_le_bytes().iter().map(|b| format!("{b:02x}")).collect()));
    let launch = Launch {
        entry: entry.into(),
        grid: [1; 3],
        block: [128, 1, 1],
        cluster: [1; 3],
        cooperative: false,
        shared_bytes: 0,
        args: pointers.chain(scalars).collect(),
    };
    Run {
        image: sha256(code),
        buffers: vec![
            buffer("x", Fill::Contents(sha256(&floats(N)))),
            buffer("y", Fill::Poison),
            buffer("w", Fill::Poison),
        ],
        launches: vec![launch],
        want: vec!["y".into(), "x".into()],
        poisons: vec![0xff, 0x7f],
        seconds: 0,
    }
}

fn go(worker: &mut Worker, run: &Run, seconds: u64) -> Result<Ran, WorkerError> {
    let x = floats(N);
    let blobs: Blobs = HashMap::from([(sha256(PTX), PTX), (sha256(CUBIN), CUBIN), (sha256(&x), &x[..])]);
    worker.run(run, &blobs, seconds)
}

fn scale(worker: &Worker) -> Run {
    let mut run = run_of(worker, "scale", &["x", "y"], &[0x4000_0000, N as i32]);
    run.launches[0].grid = [8, 1, 1];
    run
}

#[test]
#[ignore = "needs a CUDA device"]
fn the_worker_judges_nothing_and_reports_all() {
    let begun = Instant::now();
    let mut worker = start();
    println!("start {:?}", begun.elapsed());
    let begun = Instant::now();
    for _ in 0..20 {
        let run = scale(&worker);
        let ran = go(&mut worker, &run, 30).expect("it runs");
        assert_eq!(ran.end, End::Completed);
        let y = to_floats(ran.outputs[0].bytes.as_ref().expect("it was poisoned"));
        assert!(y.iter().enumerate().all(|(i, v)| *v == 2.0 * i as f32));
        assert!(ran.outputs[0].unwritten.is_empty() && ran.overruns.is_empty() && ran.undefined.is_empty());
        assert_eq!(ran.outputs[1].bytes, None);
    }
    println!("a run of two repeats {:?}", begun.elapsed() / 20);

    let half = run_of(&worker, "half_written", &["y"], &[N as i32]);
    let ran = go(&mut worker, &half, 30).expect("it runs");
    assert_eq!(ran.outputs[0].unwritten, [[2 * N as u64, 2 * N as u64]]);

    for (extra, offset) in [(1, 4 * N as i64), (-1, -1)] {
        let run = run_of(&worker, "overrun", &["y"], &[N as i32, extra]);
        let ran = go(&mut worker, &run, 30).expect("it runs");
        assert_eq!(ran.overruns.len(), 1);
        assert_eq!(ran.overruns[0].buffer, "y");
        // A byte of the pattern can have the written value by chance.
        assert!((ran.overruns[0].offset - offset).abs() <= 2, "{:?}", ran.overruns);
    }

    let mut run = run_of(&worker, "copy_unwritten", &["w", "y"], &[N as i32]);
    run.launches[0].grid = [8, 1, 1];
    let ran = go(&mut worker, &run, 30).expect("it runs");
    // A copy of poison is poison: every byte counts as unwritten.
    assert_eq!(ran.outputs[0].unwritten, [[0, 4 * N as u64]]);

    let run = run_of(&worker, "changes_input", &["x"], &[]);
    let ran = go(&mut worker, &run, 30).expect("it runs");
    assert_eq!(to_floats(ran.outputs[1].bytes.as_ref().expect("it has changed"))[0], 1.0);

    let run = run_of(&worker, "count_launches", &["y"], &[]);
    for _ in 0..2 {
        let ran = go(&mut worker, &run, 30).expect("it runs");
        assert_eq!(
            to_ints(ran.outputs[0].bytes.as_ref().expect("it was poisoned"))[0],
            1,
            "variables are fresh each time"
        );
    }

    let mut run = run_of(&worker, "talk", &["y"], &[]);
    run.launches[0].block = [2, 1, 1];
    let ran = go(&mut worker, &run, 30).expect("it runs");
    assert_eq!(ran.printed, "line 0 of a kernel\nline 1 of a kernel\n".repeat(2));

    let run = run_of(&worker, "nowhere", &[], &[]);
    assert_eq!(go(&mut worker, &run, 30).expect("it is data").end, End::MissingEntry { launch: 0 });
    let mut run = scale(&worker);
    run.launches[0].block = [2048, 1, 1];
    assert!(matches!(go(&mut worker, &run, 30).expect("it is data").end, End::Rejected { launch: 0, .. }));
    run = scale(&worker);
    run.launches[0].shared_bytes = 1 << 20;
    assert!(matches!(go(&mut worker, &run, 30).expect("it is data").end, End::Rejected { launch: 0, .. }));
    run = scale(&worker);
    run.buffers[2].bytes = 1 << 44;
    assert!(matches!(go(&mut worker, &run, 30).expect("it is data").end, End::OutOfMemory { .. }));
    assert_eq!(go(&mut worker, &scale(&start()), 30).expect("it goes on").end, End::Completed);
}

#[test]
#[ignore = "needs a CUDA device"]
fn faults_end_the_worker_with_a_type_and_the_next_one_works() {
    for (entry, numbers, kinds) in [
        ("illegal_address", &[][..], &[FaultKind::IllegalAddress][..]),
        ("misaligned", &[][..], &[FaultKind::MisalignedAddress][..]),
        ("trapped", &[1][..], &[FaultKind::LaunchFailed, FaultKind::IllegalInstruction][..]),
    ] {
        let mut worker = start();
        let run = run_of(&worker, entry, &["y"], numbers);
        let ran = go(&mut worker, &run, 30).expect("a fault is data");
        println!("{entry}: {:?}", ran.end);
        match ran.end {
            End::Faulted { launch: 0, kind, .. } => assert!(kinds.contains(&kind), "{entry}: {kind:?}"),
            other => panic!("{entry}: {other:?}"),
        }
        assert!(ran.last);
    }
    let mut worker = start();
    let run = scale(&worker);
    assert_eq!(go(&mut worker, &run, 30).expect("it works").end, End::Completed);
}

#[test]
#[ignore = "needs a CUDA device"]
fn a_hanging_kernel_is_killed_and_the_next_worker_works() {
    let mut worker = start();
    let run = run_of(&worker, "hang", &["y"], &[]);
    let begun = Instant::now();
    assert_eq!(go(&mut worker, &run, 2).expect_err("it hangs"), WorkerError::TimedOut { seconds: 2 });
    assert!(begun.elapsed() < Duration::from_secs(4));
    let begun = Instant::now();
    let mut worker = start();
    let run = scale(&worker);
    assert_eq!(go(&mut worker, &run, 60).expect("it works").end, End::Completed);
    println!("the next worker's first run, after a hang: {:?}", begun.elapsed());
}
