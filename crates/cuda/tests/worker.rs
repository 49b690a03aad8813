//! A worker as a process of its own, over the fake device: what its parent sees when kernels behave, hang, die, and when it is not there.
//!
//! The process is this test program again, told to run one "test" that is the worker; what the test harness prints before stands for the
//! noise of a launcher.

use std::collections::HashMap;
use std::time::{Duration, Instant};
use warpsmith_cuda::CudaError;
use warpsmith_cuda::FaultKind;
use warpsmith_cuda::worker::fake::FakeDevice;
use warpsmith_cuda::worker::protocol::{Arg, Buffer, End, Fill, Launch, Run};
use warpsmith_cuda::worker::{Blobs, Device, Worker, WorkerCommand, WorkerError, serve, sha256};

/// Says that this process is the worker, and of which kind.
const ROLE: &str = "WARPSMITH_TEST_WORKER";
const START_SECONDS: u64 = 30;
const N: usize = 1000;

#[test]
fn worker_process() {
    match std::env::var(ROLE).as_deref() {
        Ok("fake") => serve(|_| Ok(Box::new(FakeDevice::default()) as Box<dyn Device>)),
        Ok("no device") => serve(|_| Err(CudaError::NoDriver { why: "libcuda.so.1: not found".into() })),
        Ok("dead") => std::process::exit(7),
        Ok("silent") => std::thread::sleep(Duration::from_secs(3600)),
        Ok("chatter") => loop {
            println!("a launcher that only talks");
        },
        Ok("other version") => {
            use std::io::Write;
            let hello = warpsmith_cuda::worker::protocol::Message {
                id: 1,
                body: warpsmith_cuda::worker::protocol::Reply::Hello {
                    protocol: 99,
                    version: "9.9.9".into(),
                    device: warpsmith_cuda::worker::fake::device(),
                },
                blobs: vec![],
            };
            let line = serde_json::to_string(&hello).expect("plain data");
            let mut out = std::io::stdout().lock();
            out.write_all(format!("\n{line}\nthen nonsense\n").as_bytes()).expect("the parent listens");
            out.flush().expect("the parent listens");
            std::thread::sleep(Duration::from_secs(60));
        }
        _ => {}
    }
}

fn command(role: &str) -> WorkerCommand {
    WorkerCommand {
        program: std::env::current_exe().expect("a running program has a file"),
        args: ["worker_process", "--exact", "--nocapture"].map(Into::into).to_vec(),
        env: vec![(ROLE.into(), role.into())],
        remote: None,
    }
}

fn start(role: &str) -> Result<Worker, WorkerError> {
    Worker::start(&command(role), 0, START_SECONDS)
}

fn x() -> Vec<u8> {
    (0..N).map(|i| i as u8).collect()
}

fn run_of(entry: &str) -> Run {
    let buffer = |name: &str, fill| Buffer { name: name.into(), bytes: N as u64, fill };
    let args = vec![Arg::Buffer("x".into()), Arg::Buffer("y".into()), Arg::Bytes("e8030000".into())];
    Run {
        image: sha256(b"code"),
        buffers: vec![buffer("x", Fill::Contents(sha256(&x()))), buffer("y", Fill::Poison)],
        launches: vec![Launch {
            entry: entry.into(),
            grid: [1; 3],
            block: [1; 3],
            cluster: [1; 3],
            cooperative: false,
            shared_bytes: 0,
            args,
        }],
        want: vec!["y".into(), "x".into()],
        poisons: vec![0xff, 0x7f],
        seconds: 0,
    }
}

fn go(worker: &mut Worker, entry: &str, seconds: u64) -> Result<warpsmith_cuda::worker::Ran, WorkerError> {
    let x = x();
    let blobs: Blobs = HashMap::from([(sha256(b"code"), &b"code"[..]), (sha256(&x), &x[..])]);
    worker.run(&run_of(entry), &blobs, seconds)
}

#[test]
fn one_worker_serves_many_runs() {
    let mut worker = start("fake").expect("it starts behind the harness's noise");
    assert_eq!(worker.device().name, "Fake device");
    assert_eq!(worker.version(), env!("CARGO_PKG_VERSION"));
    for _ in 0..20 {
        let ran = go(&mut worker, "copy", 30).expect("it runs");
        assert_eq!(ran.end, End::Completed);
        assert_eq!(ran.outputs[0].bytes.as_deref(), Some(&x()[..]));
        assert_eq!(ran.outputs[1].bytes, None, "an input that is as it was does not travel");
    }
    let half = go(&mut worker, "copy_half", 30).expect("it runs");
    assert_eq!(half.outputs[0].unwritten, [[500, 500]]);
    let changed = go(&mut worker, "changes_input", 30).expect("it runs");
    assert_eq!(changed.outputs[1].bytes.as_ref().map(|b| b[0]), Some(1));
    let overrun = go(&mut worker, "overrun", 30).expect("it runs");
    assert_eq!((overrun.overruns[0].buffer.as_str(), overrun.overruns[0].offset), ("y", 1002));
}

#[test]
fn what_a_kernel_prints_is_kept_apart_from_the_replies() {
    let mut worker = start("fake").expect("it starts");
    let ran = go(&mut worker, "noise", 30).expect("a forged reply does no harm");
    assert_eq!(ran.end, End::Completed);
    // Once for each repeat.
    assert_eq!(ran.printed.lines().count(), 2, "{}", ran.printed);
    let quiet = go(&mut worker, "copy", 30).expect("it runs");
    assert_eq!(quiet.printed, "");
}

#[test]
fn a_fault_is_typed_and_ends_the_worker() {
    let mut worker = start("fake").expect("it starts");
    let ran = go(&mut worker, "illegal_address", 30).expect("a fault is data");
    assert!(matches!(ran.end, End::Faulted { kind: FaultKind::IllegalAddress, launch: 0, .. }));
    assert!(ran.last);
    assert!(matches!(go(&mut worker, "copy", 30), Err(WorkerError::Died { .. })));
    let ran = go(&mut start("fake").expect("another starts"), "copy", 30).expect("and works");
    assert_eq!(ran.end, End::Completed);
}

#[test]
fn a_hang_is_killed_at_its_deadline() {
    let mut worker = start("fake").expect("it starts");
    let id = worker.process_id().expect("it runs");
    let begun = Instant::now();
    assert_eq!(go(&mut worker, "hang", 1), Err(WorkerError::TimedOut { seconds: 1 }));
    assert!(begun.elapsed() < Duration::from_secs(20), "nobody waits for the process to be gone");
    assert!(gone(id), "it was killed");
}

/// Whether a process has ended, or does within some seconds.
fn gone(id: u32) -> bool {
    let stat = format!("/proc/{id}/stat");
    (0..200).any(|_| {
        std::thread::sleep(Duration::from_millis(50));
        // A zombie has ended.
        std::fs::read_to_string(&stat).map_or(true, |s| s.contains(") Z "))
    })
}

#[test]
fn a_worker_ends_with_its_parent_even_while_a_kernel_hangs() {
    if !cfg!(target_os = "linux") {
        return;
    }
    // What the parent does on the worker's input, done by hand: greet, ask for a hang, go away.
    use std::io::Write;
    use std::process::{Command, Stdio};
    let c = command("fake");
    let mut child = Command::new(&c.program)
        .args(&c.args)
        .envs(c.env.iter().map(|(k, v)| (k, v)))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("this program starts again");
    let mut input = child.stdin.take().expect("it was asked for");
    writeln!(input, r#"{{"id":1,"op":"hello","protocol":2,"device":0}}"#).expect("it listens");
    let mut run = run_of("hang");
    (run.buffers, run.want, run.seconds) = (vec![], vec![], 3600);
    run.launches[0].args.clear();
    let sha = run.image.clone();
    let mut request = serde_json::to_value(&run).expect("plain data");
    request["id"] = 2.into();
    request["op"] = "run".into();
    request["blobs"] = serde_json::json!([{"sha256": sha, "bytes": 4}]);
    write!(input, "{request}\ncode").expect("it listens");
    std::thread::sleep(Duration::from_millis(300));
    assert!(matches!(child.try_wait(), Ok(None)), "it hangs");
    drop(input);
    let ended = (0..200).any(|_| {
        std::thread::sleep(Duration::from_millis(50));
        matches!(child.try_wait(), Ok(Some(_)))
    });
    let _ = child.kill();
    assert!(ended);
}

#[test]
fn a_worker_that_dies_says_how() {
    let mut worker = start("fake").expect("it starts");
    match go(&mut worker, "die", 30) {
        Err(WorkerError::Died { how, .. }) => assert!(how.contains('9'), "{how}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_worker_that_cannot_be_had_is_an_error_that_says_why() {
    let missing = Worker::start(&WorkerCommand::program("no/such/program"), 0, START_SECONDS);
    assert!(matches!(missing, Err(WorkerError::Spawn { .. })));
    for (role, seconds, code) in [
        ("no device", START_SECONDS, "no-device"),
        ("dead", START_SECONDS, "worker-failed"),
        ("silent", 1, "time-limit"),
        ("chatter", START_SECONDS, "worker-failed"),
        ("other version", START_SECONDS, "worker-failed"),
        // The harness itself runs to its end and says nothing that is a message.
        ("nobody", START_SECONDS, "worker-failed"),
    ] {
        match Worker::start(&command(role), 0, seconds) {
            Err(e) => assert_eq!(e.code(), code, "{role}: {e}"),
            Ok(_) => panic!("{role} has started"),
        }
    }
}

#[test]
fn a_refused_request_does_not_end_the_worker() {
    let mut worker = start("fake").expect("it starts");
    let mut run = run_of("copy");
    run.want.push("z".into());
    let x = x();
    let blobs: Blobs = HashMap::from([(sha256(b"code"), &b"code"[..]), (sha256(&x), &x[..])]);
    assert!(matches!(worker.run(&run, &blobs, 30), Err(WorkerError::Refused { .. })));
    assert!(worker.run(&run_of("copy"), &Blobs::new(), 30).is_ok(), "the worker still has the blobs");
    let other = Run { image: sha256(b"other"), ..run_of("copy") };
    assert!(matches!(worker.run(&other, &Blobs::new(), 30), Err(WorkerError::Refused { .. })), "nobody has this one");
    assert_eq!(go(&mut worker, "copy", 30).expect("it goes on").end, End::Completed);
}
