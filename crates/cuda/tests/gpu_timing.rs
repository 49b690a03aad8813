//! Timing on a real device, through a worker. Each test is ignored unless asked for: `cargo xtask gpu-tests`.
//!
//! Bounds are wide and relative where they can be: they tell a method that works from one that measures something else, not one device from another.

use std::collections::HashMap;
use std::time::{Duration, Instant};
use warpsmith_cuda::worker::protocol::{Arg, Bases, Buffer, End, Fill, Launch, Method, Prepare, Steady, Time};
use warpsmith_cuda::worker::{Blobs, Timed, Worker, WorkerCommand, WorkerError, sha256, worker_main};

const PTX: &[u8] = include_bytes!("kernels/timed.ptx");
const ROLE: &str = "WARPSMITH_TEST_TIMING_WORKER";
const N: usize = 1000;

#[test]
fn worker_process() {
    if std::env::var(ROLE).is_ok() {
        worker_main();
    }
}

/// A worker that has the device for itself: the tests of this file run beside each other.
fn start() -> Worker {
    let command = WorkerCommand {
        program: std::env::current_exe().expect("a running program has a file"),
        args: ["worker_process", "--exact", "--nocapture"].map(Into::into).to_vec(),
        env: vec![(ROLE.into(), "device".into())],
        remote: None,
    };
    let mut worker = Worker::start(&command, 0, 60).expect("there is a device");
    let held = worker.hold(300).expect("it answers");
    assert!(held.held, "{held:?}");
    worker
}

fn floats(n: usize, base: usize) -> Vec<u8> {
    (0..n).flat_map(|i| ((i * 7 + base) as f32).to_le_bytes()).collect()
}

struct Case {
    entry: &'static str,
    /// Of x; y has as many, but for kernels that read much.
    floats: usize,
    out: usize,
    blocks: u32,
    zero: bool,
    copies: u32,
}

impl Case {
    fn new(entry: &'static str) -> Case {
        Case { entry, floats: N, out: N, blocks: 1, zero: false, copies: 64 }
    }

    /// Makes it resident under its entry's name, with two sets of inputs.
    fn prepare(&self, worker: &mut Worker) -> u32 {
        let inputs = [floats(self.floats, 0), floats(self.floats, 5)];
        let buffer = |name: &str, n: usize, fill| Buffer { name: name.into(), bytes: 4 * n as u64, fill };
        let mut buffers =
            vec![buffer("x", self.floats, Fill::Contents(sha256(&inputs[0]))), buffer("y", self.out, Fill::Poison)];
        let n: String = (self.floats as u32).to_le_bytes().iter().map(|b| format!("{b:02x}")).collect();
        let mut args = vec![Arg::Buffer("x".into()), Arg::Buffer("y".into()), Arg::Bytes(n)];
        if self.zero {
            buffers.push(buffer("zero", 1, Fill::Zero));
            args.push(Arg::Buffer("zero".into()));
        }
        let (grid, block) = ([self.blocks, 1, 1], [256, 1, 1]);
        let launch = Launch {
            entry: self.entry.into(),
            grid,
            block,
            cluster: [1; 3],
            cooperative: false,
            shared_bytes: 0,
            args,
        };
        let mut prepare = Prepare::new(self.entry, &sha256(PTX), &buffers, &[launch], &["y".into()]);
        let second = [("x".to_string(), sha256(&inputs[1]))].into();
        (prepare.bases, prepare.copies, prepare.label) = (vec![[].into(), second], self.copies, "test".into());
        let mut blobs: Blobs = HashMap::from([(sha256(PTX), PTX)]);
        blobs.extend(inputs.iter().map(|bytes| (sha256(bytes), &bytes[..])));
        let prepared = worker.prepare(&prepare, &blobs, 60).expect("it is taken");
        assert_eq!((prepared.end, prepared.bases), (End::Completed, 2), "{}", self.entry);
        prepared.copies
    }
}

fn time(worker: &mut Worker, subject: &str, method: Method, replays: u32) -> Timed {
    let sample = [0, replays / 2, replays - 1].iter().flat_map(|r| (0..4).map(|copy| [*r, copy])).collect();
    let request = Time {
        subject: subject.into(),
        method,
        replays,
        warmup: 2,
        calls: 0,
        bases: Bases::Seed(9),
        sample,
        marked: false,
        seconds: 0,
    };
    let timed = worker.time(&request, 60).expect("it is timed");
    assert_eq!(timed.head.end, End::Completed, "{subject}");
    assert_eq!(timed.head.samples.len(), replays as usize);
    timed
}

fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

fn all_methods(worker: &mut Worker, subject: &str) -> [f64; 4] {
    Method::ALL.map(|method| {
        let begun = Instant::now();
        let timed = time(worker, subject, method, 21);
        let us = median(&timed.head.samples);
        println!("{subject} {} {us:.3} us, {} calls, {:?}", method.word(), timed.head.calls, begun.elapsed());
        us
    })
}

#[test]
#[ignore = "needs a CUDA device"]
fn an_empty_kernel_costs_what_a_node_costs() {
    let mut worker = start();
    let begun = Instant::now();
    assert_eq!(Case::new("empty").prepare(&mut worker), 64);
    println!("prepare {:?}", begun.elapsed());
    let [cold, warm, event, eager] = all_methods(&mut worker, "empty");
    for us in [cold, warm] {
        assert!((0.3..=1.5).contains(&us), "a node of {us} us");
    }
    assert!(event >= cold && event < 50.0, "{event}");
    assert!(eager >= cold && eager < 50.0, "{eager}");
    let timed = time(&mut worker, "empty", Method::GraphCold, 5);
    assert_eq!(timed.head.sampled[0].outputs[0].unwritten, [[0, 4 * N as u64]], "it writes nothing");
    println!("{:?}", timed.head.conditions);
    let during = timed.head.conditions.during.expect("the management library is there");
    assert!(during.sm_mhz.is_some_and(|mhz| mhz > 100) && during.power_w.is_some_and(|w| w > 1.0), "{during:?}");
    worker.release().expect("it is given up");
}

#[test]
#[ignore = "needs a CUDA device"]
fn cold_is_slower_than_warm_even_for_a_kernel_that_asks_l2_to_keep_its_inputs() {
    let mut worker = start();
    let l2 = worker.device().l2_bytes as usize;
    let blocks = 4 * worker.device().sm_count;
    let mut cold = Vec::new();
    for entry in ["read_all", "read_and_keep"] {
        // A quarter of L2, so that one copy fits half of it.
        let case = Case { floats: l2 / 16 / 4 * 4, out: 256 * blocks as usize, blocks, copies: 8, ..Case::new(entry) };
        assert_eq!(case.prepare(&mut worker), 8);
        let us = all_methods(&mut worker, entry);
        assert!(us[0] > 1.15 * us[1], "{entry}: cold {} us, warm {} us", us[0], us[1]);
        assert!(us[2] > 0.9 * us[0], "{entry}: event {} us, cold {} us", us[2], us[0]);
        cold.push(us[0]);
    }
    assert!(cold[1] > 0.85 * cold[0], "what was to be kept was not forgotten: {cold:?}");
}

#[test]
#[ignore = "needs a CUDA device"]
fn the_inputs_are_those_that_were_asked_for_and_the_outputs_theirs() {
    let mut worker = start();
    Case { copies: 7, ..Case::new("copy") }.prepare(&mut worker);
    for method in Method::ALL {
        let sample = (0..9).flat_map(|r| (0..7).map(move |c| [r, c])).collect();
        let (subject, bases) = ("copy".into(), Bases::Seed(77));
        let request =
            Time { subject, method, replays: 9, warmup: 3, calls: 7, bases, sample, marked: false, seconds: 0 };
        let timed = worker.time(&request, 60).expect("it is timed");
        assert_eq!(timed.head.sampled.len(), if method == Method::Event { 9 } else { 63 });
        assert!(timed.head.changed.is_empty() && timed.head.overruns.is_empty());
        for s in &timed.head.sampled {
            assert_eq!(s.base, Bases::Seed(77).at(s.replay, s.copy, 2));
            assert_eq!(timed.contents[&s.outputs[0].sha256], floats(N, 5 * s.base as usize), "{method:?}");
            assert!(s.outputs[0].unwritten.is_empty());
        }
    }
}

#[test]
#[ignore = "needs a CUDA device"]
fn what_is_wrong_with_a_timed_kernel_is_reported() {
    let mut worker = start();
    for entry in ["changes_input", "half_written", "overrun", "lazy"] {
        Case { copies: 4, ..Case::new(entry) }.prepare(&mut worker);
    }
    let changed = time(&mut worker, "changes_input", Method::GraphCold, 3).head.changed;
    assert_eq!(changed.len(), 20);
    // One float of x: two bytes of it at most stay as they were.
    assert!(changed.iter().all(|c| c.buffer == "x" && (12..16).contains(&c.offset) && c.bytes <= 4), "{changed:?}");
    let head = time(&mut worker, "half_written", Method::Event, 8).head;
    assert_eq!(head.sampled[0].outputs[0].unwritten, [[2 * N as u64, 2 * N as u64]]);
    let head = time(&mut worker, "overrun", Method::Eager, 3).head;
    assert_eq!(head.overruns.len(), 4);
    let overrun = &head.overruns[0].overrun;
    assert!(overrun.buffer == "y" && (overrun.offset - 4 * N as i64).abs() <= 2, "{overrun:?}");
    let head = time(&mut worker, "lazy", Method::GraphWarm, 3).head;
    assert!(head.sampled.iter().all(|s| s.outputs[0].unwritten == [[0, 4 * N as u64]]), "it wrote once, long ago");
    Case { zero: true, copies: 4, ..Case::new("counts") }.prepare(&mut worker);
    for method in Method::ALL {
        let timed = time(&mut worker, "counts", method, 8);
        for s in &timed.head.sampled {
            let y = &timed.contents[&s.outputs[0].sha256];
            assert_eq!(y[..4], (5.0 * s.base as f32 + 1.0).to_le_bytes(), "zeros are zeros in each replay: {method:?}");
        }
    }
}

#[test]
#[ignore = "needs a CUDA device"]
fn ten_thousand_launches_take_little_and_the_one_that_fails_has_its_number() {
    let mut worker = start();
    let many = |worker: &mut Worker, subject: &str, launches| {
        let request = Steady { subject: subject.into(), launches, seconds_at_most: 30.0, base: 0, seconds: 0 };
        let begun = Instant::now();
        let head = worker.steady(&request, 60).expect("it is data");
        println!("{subject}: {} launches in {:?}", head.done, begun.elapsed());
        (head, begun.elapsed())
    };
    for (case, copies) in [(Case::new("copy"), 64), (Case { zero: true, copies: 1, ..Case::new("counts") }, 1)] {
        assert_eq!(case.prepare(&mut worker), copies);
        let launches = if copies == 1 { 1000 } else { 10_000 };
        let (head, took) = many(&mut worker, case.entry, launches);
        assert_eq!((head.end.clone(), head.done, head.identical()), (End::Completed, launches, true), "{head:?}");
        assert!(head.changed.is_empty() && head.overruns.is_empty());
        assert!(took < Duration::from_secs(10), "{took:?}");
    }
    Case::new("differs_at_500").prepare(&mut worker);
    let (head, _) = many(&mut worker, "differs_at_500", 1000);
    assert_eq!((head.done, head.differing), (1000, 1));
    let first = head.first.expect("one differs");
    // Of those that are under way together any may be the 500th.
    assert!((450..565).contains(&first.launch) && first.offset == 308 && first.bytes <= 4, "{first:?}");
    Case::new("changes_input").prepare(&mut worker);
    let (head, _) = many(&mut worker, "changes_input", 200);
    assert!(head.differing > 0 && head.changed.len() == 64, "{head:?}");
    Case::new("fails_at_20").prepare(&mut worker);
    let (head, _) = many(&mut worker, "fails_at_20", 10_000);
    assert!(matches!(head.end, End::Faulted { launch: 0, .. }) && head.last, "{head:?}");
    assert_eq!(head.at.map(|at| (at.first, at.count, at.grid)), Some((19, 1, [1, 1, 1])));
    let mut worker = start();
    Case::new("fails_at_500").prepare(&mut worker);
    let (head, _) = many(&mut worker, "fails_at_500", 10_000);
    let at = head.at.expect("it stopped");
    assert_eq!((at.first, at.count), (448, 64), "{at:?}");
    // One on each stream at most; those of a volley may overtake each other.
    assert!((1..=4).contains(&at.unfinished.len()), "{at:?}");
    assert!(at.unfinished.iter().all(|call| (448..512).contains(call)), "{at:?}");
}

#[test]
#[ignore = "needs a CUDA device"]
fn a_fault_or_a_hang_while_timing_ends_that_worker_only() {
    let mut worker = start();
    Case { copies: 4, ..Case::new("fails_at_20") }.prepare(&mut worker);
    let (subject, bases) = ("fails_at_20".into(), Bases::Seed(1));
    let request = Time {
        subject,
        method: Method::GraphCold,
        replays: 9,
        warmup: 0,
        calls: 0,
        bases,
        sample: vec![],
        marked: false,
        seconds: 0,
    };
    let timed = worker.time(&request, 60).expect("a fault is data");
    println!("{:?} {:?}", timed.head.end, timed.head.at);
    assert!(matches!(timed.head.end, End::Faulted { .. }) && timed.head.last);
    assert_eq!(timed.head.at.map(|at| (at.first, at.count)), Some((16, 4)));
    assert_eq!(timed.head.samples.len(), 4);
    for method in [Method::GraphCold, Method::GraphWarm, Method::Event, Method::Eager] {
        let mut worker = start();
        Case { copies: 4, ..Case::new("fails_at_20") }.prepare(&mut worker);
        let timed =
            worker.time(&Time { method, marked: true, replays: 40, ..request.clone() }, 60).expect("it is data");
        let at = timed.head.at.expect("it stopped");
        assert_eq!((&at.unfinished[..], at.grid), (&[19][..], [1, 1, 1]), "{method:?}");
    }
    for method in [Method::GraphCold, Method::Eager] {
        let mut worker = start();
        Case { copies: 4, ..Case::new("hang") }.prepare(&mut worker);
        let request = Time { subject: "hang".into(), method, ..request.clone() };
        let begun = Instant::now();
        assert_eq!(worker.time(&request, 2), Err(WorkerError::TimedOut { seconds: 2 }));
        assert!(begun.elapsed() < Duration::from_secs(4));
    }
    // The one that hung held the device; its end gives it back.
    let mut worker = start();
    Case::new("copy").prepare(&mut worker);
    time(&mut worker, "copy", Method::Event, 5);
}
