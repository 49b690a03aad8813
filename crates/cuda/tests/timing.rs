//! Subjects, times, many launches and the device for one alone, through a worker that is a process of its own, over the fake device.
//!
//! The process is this test program again, told to run one "test" that is the worker.

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};
use warpsmith_cuda::worker::fake::FakeDevice;
use warpsmith_cuda::worker::protocol::{Arg, Bases, Buffer, End, Fill, Launch, Method, Prepare, Run, Steady, Time};
use warpsmith_cuda::worker::{Blobs, Device, Worker, WorkerCommand, WorkerError, serve, sha256};

const ROLE: &str = "WARPSMITH_TEST_TIMING_WORKER";
const LOCK: &str = "WARPSMITH_TEST_TIMING_LOCK";
const N: usize = 1000;

#[test]
fn worker_process() {
    if std::env::var(ROLE).is_ok() {
        serve(|_| {
            let mut device = FakeDevice::default();
            device.lock = std::env::var_os(LOCK).map(Into::into);
            Ok(Box::new(device) as Box<dyn Device>)
        });
    }
}

fn start(lock: Option<&Path>) -> Worker {
    let mut env = vec![(ROLE.into(), "fake".into())];
    env.extend(lock.map(|path| (LOCK.into(), path.as_os_str().to_owned())));
    let command = WorkerCommand {
        program: std::env::current_exe().expect("a running program has a file"),
        args: ["worker_process", "--exact", "--nocapture"].map(Into::into).to_vec(),
        env,
        remote: None,
    };
    Worker::start(&command, 0, 30).expect("it starts")
}

fn x(base: u8) -> Vec<u8> {
    (0..N).map(|i| (i as u8).wrapping_add(base)).collect()
}

fn parts(entry: &str) -> (Vec<Buffer>, Vec<Launch>) {
    let buffer = |name: &str, fill| Buffer { name: name.into(), bytes: N as u64, fill };
    let args = vec![Arg::Buffer("x".into()), Arg::Buffer("y".into()), Arg::Bytes("e8030000".into())];
    let (entry, grid) = (entry.into(), [3, 1, 1]);
    let launch = Launch { entry, grid, block: [1; 3], cluster: [1; 3], cooperative: false, shared_bytes: 0, args };
    (vec![buffer("x", Fill::Contents(sha256(&x(0)))), buffer("y", Fill::Poison)], vec![launch])
}

/// Makes `entry` resident under its own name, with two sets of inputs, in three copies.
fn prepare(worker: &mut Worker, entry: &str) {
    let (buffers, launches) = parts(entry);
    let mut prepare = Prepare::new(entry, &sha256(b"code"), &buffers, &launches, &["y".into()]);
    let second = [("x".to_string(), sha256(&x(1)))].into();
    (prepare.bases, prepare.copies) = (vec![[].into(), second], 3);
    let (a, b) = (x(0), x(1));
    let blobs: Blobs = HashMap::from([(sha256(b"code"), &b"code"[..]), (sha256(&a), &a[..]), (sha256(&b), &b[..])]);
    let prepared = worker.prepare(&prepare, &blobs, 30).expect("it is taken");
    assert_eq!((prepared.end, prepared.copies, prepared.bases), (End::Completed, 3, 2));
}

fn time(subject: &str) -> Time {
    let (subject, bases) = (subject.into(), Bases::Table(vec![vec![0, 1, 0]]));
    let sample = vec![[0, 0], [0, 1], [0, 2], [1, 1]];
    Time {
        subject,
        method: Method::GraphCold,
        replays: 3,
        warmup: 1,
        calls: 0,
        bases,
        sample,
        marked: false,
        seconds: 0,
    }
}

fn steady(subject: &str) -> Steady {
    Steady { subject: subject.into(), launches: 500, seconds_at_most: 30.0, base: 0, seconds: 0 }
}

fn run(worker: &mut Worker, seconds: u64) -> Result<End, WorkerError> {
    let (buffers, launches) = parts("copy");
    let (image, want, poisons) = (sha256(b"code"), vec!["y".into()], vec![0xff, 0x7f]);
    let run = Run { image, buffers, launches, want, poisons, seconds: 0 };
    let x = x(0);
    let blobs: Blobs = HashMap::from([(sha256(b"code"), &b"code"[..]), (sha256(&x), &x[..])]);
    worker.run(&run, &blobs, seconds).map(|ran| ran.end)
}

#[test]
fn subjects_stay_and_are_timed_beside_runs() {
    let mut worker = start(None);
    prepare(&mut worker, "copy");
    prepare(&mut worker, "differs_at_20");
    for _ in 0..3 {
        let timed = worker.time(&time("copy"), 30).expect("it is timed");
        assert_eq!((timed.head.end.clone(), timed.head.samples.len(), timed.head.calls), (End::Completed, 3, 3));
        assert_eq!(timed.contents.len(), 2, "equal contents travel once");
        for sampled in &timed.head.sampled {
            assert_eq!(timed.contents[&sampled.outputs[0].sha256], x(sampled.base as u8));
        }
        assert_eq!(timed.head.sampled.len(), 4);
        assert_eq!(run(&mut worker, 30).expect("it runs"), End::Completed);
    }
    let head = worker.steady(&steady("copy"), 30).expect("it is launched");
    assert_eq!((head.done, head.identical()), (500, true));
    let head = worker.steady(&steady("differs_at_20"), 30).expect("it is launched");
    assert_eq!((head.done, head.differing, head.first.map(|f| f.launch)), (500, 1, Some(19)));
    worker.discard("copy").expect("it is forgotten");
    worker.discard("copy").expect("once more does no harm");
    match worker.time(&time("copy"), 30) {
        Err(WorkerError::Refused { message }) => assert!(message.contains("copy"), "{message}"),
        other => panic!("{other:?}"),
    }
    prepare(&mut worker, "copy");
    assert!(worker.time(&time("copy"), 30).is_ok(), "it can be made again");
}

#[test]
fn a_fault_ends_the_worker_and_says_where() {
    let mut worker = start(None);
    prepare(&mut worker, "fails_at_20");
    let head = worker.steady(&steady("fails_at_20"), 30).expect("a fault is data");
    assert!(matches!(head.end, End::Faulted { .. }) && head.last);
    assert_eq!(head.at.map(|at| (at.first, at.count, at.grid)), Some((19, 1, [3, 1, 1])));
    assert!(matches!(worker.time(&time("fails_at_20"), 30), Err(WorkerError::Died { .. })));
    let mut worker = start(None);
    prepare(&mut worker, "fails_at_20");
    let timed = worker.time(&Time { replays: 50, ..time("fails_at_20") }, 30).expect("a fault is data");
    assert!(matches!(timed.head.end, End::Faulted { .. }) && timed.head.last);
    assert_eq!(timed.head.samples.len(), 5, "what was measured before stays");
}

#[test]
fn a_hang_while_timing_is_killed_at_its_deadline() {
    for what in ["time", "steady"] {
        let mut worker = start(None);
        prepare(&mut worker, "hang");
        let begun = Instant::now();
        let failed = match what {
            "time" => worker.time(&time("hang"), 1).map(drop),
            _ => worker.steady(&steady("hang"), 1).map(drop),
        };
        assert_eq!(failed, Err(WorkerError::TimedOut { seconds: 1 }), "{what}");
        assert!(begun.elapsed() < Duration::from_secs(20), "nobody waits for the process to be gone");
    }
}

#[test]
fn one_worker_has_the_device_for_itself() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("device.lock");
    let (mut a, mut b) = (start(Some(&path)), start(Some(&path)));
    assert!(a.hold(5).expect("it answers").held);
    let refused = b.hold(0).expect("it answers");
    assert_eq!((refused.held, refused.holder), (false, a.process_id()));
    assert_eq!(run(&mut a, 30).expect("the one who holds it runs"), End::Completed);
    // It waits for as long as its own limit allows, which is not at all.
    match run(&mut b, 1) {
        Err(e @ WorkerError::Device { .. }) => assert_eq!(e.code(), "device-held", "{e}"),
        other => panic!("{other:?}"),
    }
    a.release().expect("it is given up");
    let mut b = start(Some(&path));
    assert_eq!(run(&mut b, 30).expect("it is free"), End::Completed);
    assert!(b.hold(5).expect("it answers").held);
    drop(b);
    assert!(a.hold(20).expect("it answers").held, "the end of the one who had it frees it");
}
