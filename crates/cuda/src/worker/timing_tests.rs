//! Subjects, times and many launches over the device of ordinary memory.

use super::super::fake::FakeDevice;
use super::super::protocol::{Arg, Bases, Buffer, Fill, Launch, Prepare, Steady, SteadyHead};
use super::super::session::Store;
use super::super::steady::steady;
use super::*;
use crate::error::FaultKind;
use std::collections::BTreeMap;
use std::sync::Arc;

const N: u64 = 1000;

fn contents(base: u8) -> Vec<u8> {
    (0..N).map(|i| (i as u8).wrapping_mul(3).wrapping_add(base)).collect()
}

/// `entry(x, y, N)` with three sets of inputs, in four copies.
fn prepare(entry: &str) -> (Prepare, Store) {
    let mut store = Store::new();
    store.insert("image".into(), Arc::new(b"code".to_vec()));
    let shas: Vec<String> = (0..3).map(|base| sha256(&contents(base))).collect();
    (0..3).for_each(|base| drop(store.insert(shas[base as usize].clone(), Arc::new(contents(base)))));
    let buffer = |name: &str, fill| Buffer { name: name.into(), bytes: N, fill };
    let buffers = [buffer("x", Fill::Contents(shas[0].clone())), buffer("y", Fill::Poison)];
    let args = vec![Arg::Buffer("x".into()), Arg::Buffer("y".into()), Arg::Bytes("e8030000".into())];
    let launch = Launch {
        entry: entry.into(),
        grid: [7, 1, 1],
        block: [32, 1, 1],
        cluster: [1; 3],
        cooperative: false,
        shared_bytes: 0,
        args,
    };
    let mut prepare = Prepare::new("s", "image", &buffers, &[launch], &["y".into()]);
    // The first is what the buffers have themselves.
    prepare.bases = vec![BTreeMap::new(); 3];
    (1..3).for_each(|base| drop(prepare.bases[base].insert("x".into(), shas[base].clone())));
    prepare.copies = 4;
    (prepare, store)
}

fn subject(entry: &str) -> (FakeDevice, Subject) {
    let (prepare, store) = prepare(entry);
    let mut device = FakeDevice::default();
    let (prepared, subject) = Subject::prepare(&mut device, &store, &prepare).expect("it makes sense");
    assert_eq!((prepared.copies, prepared.bases, prepared.copy_bytes), (4, 3, 2 * N));
    (device, subject.expect("it is resident"))
}

fn request(method: Method) -> Time {
    let sample = vec![[0, 0], [2, 3], [4, 1], [4, 2]];
    let (subject, bases) = ("s".to_string(), Bases::Seed(5));
    Time { subject, method, replays: 5, warmup: 2, calls: 0, bases, sample, marked: false, seconds: 0 }
}

fn timed(entry: &str, method: Method) -> Done {
    let (mut device, mut subject) = subject(entry);
    time(&mut device, &mut subject, &request(method)).expect("it is data")
}

#[test]
fn every_method_times_what_is_right_and_sends_what_was_asked_for() {
    for method in Method::ALL {
        let (head, contents_of) = timed("copy", method);
        assert_eq!(head.end, End::Completed, "{method:?}");
        assert_eq!(head.samples.len(), 5);
        assert!(head.changed.is_empty() && head.overruns.is_empty() && head.at.is_none());
        let (calls, copies) = if method == Method::Event { (1, 1) } else { (4, 4) };
        assert_eq!((head.calls, head.copies), (calls, copies), "{method:?}");
        let cold = method != Method::GraphWarm;
        let extra = match method {
            Method::Event => 1.0,
            Method::Eager => 4.0,
            Method::GraphCold | Method::GraphWarm => 0.0,
        };
        let plain = FakeDevice::us(N as usize, cold, 0) + extra;
        assert!(head.samples.iter().all(|us| (plain..=1.1 * plain).contains(us)), "{method:?} {:?}", head.samples);
        let sampled: Vec<(u32, u32)> = head.sampled.iter().map(|s| (s.replay, s.copy)).collect();
        if method == Method::Event {
            // A single call works on one copy, turn by turn, warm-up counted: only the last sample meets its own.
            assert_eq!(sampled, [(4, 2)]);
        } else {
            assert_eq!(sampled, [(0, 0), (2, 3), (4, 1), (4, 2)]);
        }
        for (s, bytes) in head.sampled.iter().zip(&contents_of) {
            assert_eq!(*bytes, contents(s.base as u8), "the output is that of the base it had");
            assert_eq!(s.base, Bases::Seed(5).at(s.replay, s.copy, 3));
            assert!(s.outputs[0].unwritten.is_empty());
        }
        let c = head.conditions;
        assert!(c.before.is_some() && c.during.is_some() && c.after.is_some());
    }
}

#[test]
fn bases_go_where_the_caller_says() {
    let (mut device, mut subject) = subject("copy");
    let mut request = request(Method::GraphCold);
    request.bases = Bases::Table(vec![vec![0, 1, 2, 1], vec![2], vec![]]);
    request.sample = (0..5).flat_map(|r| (0..4).map(move |c| [r, c])).collect();
    let (head, contents_of) = time(&mut device, &mut subject, &request).expect("it is data");
    let bases: Vec<u32> = head.sampled.iter().map(|s| s.base).collect();
    assert_eq!(bases, [0, 1, 2, 1, 2, 2, 2, 2, 0, 0, 0, 0, 0, 1, 2, 1, 2, 2, 2, 2]);
    assert!(head.sampled.iter().zip(&contents_of).all(|(s, bytes)| *bytes == contents(s.base as u8)));
    // A seed uses all of them, and not the same everywhere.
    let drawn: Vec<u32> = (0..40).map(|i| Bases::Seed(1).at(i / 4, i % 4, 3)).collect();
    assert!((0..3).all(|base| drawn.contains(&base)));
}

#[test]
fn what_a_timed_kernel_does_wrong_is_reported() {
    let (head, _) = timed("changes_input", Method::GraphCold);
    // Each of four calls in each of five replays, and in the two that warm up.
    assert_eq!(head.changed.len(), 28);
    let first = &head.changed[0];
    assert_eq!((first.buffer.as_str(), first.offset, first.bytes, first.copy), ("x", 0, 1, 0));
    let (head, _) = timed("copy_half", Method::Event);
    assert!(head.sampled.iter().all(|s| s.outputs[0].unwritten == [[N / 2, N / 2]]), "{:?}", head.sampled);
    for (entry, offset) in [("overrun", N as i64 + 2), ("underrun", -1)] {
        let (head, _) = timed(entry, Method::Eager);
        let places: Vec<(u32, i64)> = head.overruns.iter().map(|o| (o.copy, o.overrun.offset)).collect();
        assert_eq!(places, (0..4).map(|copy| (copy, offset)).collect::<Vec<_>>(), "{entry}");
    }
}

#[test]
fn red_zones_are_whole_again_for_the_next_request() {
    let (mut device, mut subject) = subject("overrun");
    let mut once = request(Method::Event);
    (once.replays, once.warmup, once.sample) = (1, 0, vec![]);
    for _ in 0..2 {
        let (head, _) = time(&mut device, &mut subject, &once).expect("it is data");
        assert_eq!(head.overruns.len(), 1);
    }
    once.replays = 0;
    assert!(time(&mut device, &mut subject, &once).expect("it is data").0.overruns.is_empty());
}

#[test]
fn a_fault_says_after_how_many_calls_it_came() {
    for (method, first, count) in [(Method::GraphCold, 16, 4), (Method::Event, 19, 1), (Method::GraphWarm, 16, 4)] {
        let (mut device, mut subject) = subject("fails_at_20");
        let mut request = request(method);
        request.replays = 50;
        let (head, _) = time(&mut device, &mut subject, &request).expect("a fault is data");
        assert!(matches!(head.end, End::Faulted { launch: 0, kind: FaultKind::IllegalAddress, .. }), "{method:?}");
        let at = head.at.expect("it stopped");
        assert_eq!((at.first, at.count, at.grid, head.last), (first, count, [7, 1, 1], true), "{method:?}");
    }
}

#[test]
fn launches_that_leave_word_say_which_one_faulted() {
    for method in Method::ALL {
        let (mut device, mut subject) = subject("fails_at_20");
        let request = Time { replays: 50, marked: true, ..request(method) };
        let at = time(&mut device, &mut subject, &request).expect("a fault is data").0.at.expect("it stopped");
        assert_eq!((&at.unfinished[..], at.grid), (&[19][..], [7, 1, 1]), "{method:?}");
    }
    // Without word nobody guesses; a kernel that is right leaves none behind.
    let (mut device, mut subject) = subject("fails_at_20");
    let plain = Time { replays: 50, ..request(Method::GraphCold) };
    let at = time(&mut device, &mut subject, &plain).expect("a fault is data").0.at.expect("it stopped");
    assert!(at.unfinished.is_empty());
}

#[test]
fn a_buffer_of_zeros_is_never_used_twice_in_a_replay() {
    for (zero, calls) in [(true, 4), (false, 10)] {
        let (mut prepare, store) = prepare("copy");
        if zero {
            prepare.buffers.push(Buffer { name: "w".into(), bytes: 16, fill: Fill::Zero });
        }
        let mut device = FakeDevice::default();
        let (_, subject) = Subject::prepare(&mut device, &store, &prepare).expect("it makes sense");
        let mut subject = subject.expect("it is resident");
        for (method, calls) in [(Method::GraphCold, 4), (Method::GraphWarm, calls), (Method::Eager, calls)] {
            let request = Time { calls: 10, ..request(method) };
            let (head, _) = time(&mut device, &mut subject, &request).expect("it is data");
            assert_eq!((head.calls, head.copies), (calls, 4), "{method:?}");
        }
    }
}

#[test]
fn what_does_not_fit_or_makes_no_sense_is_said_before_anything_runs() {
    type Change = fn(&mut Prepare);
    let ends: [(&str, Change, fn(&End) -> bool); 4] = [
        (
            "an entry that is not there",
            |p| p.launches[0].entry = "nowhere".into(),
            |e| *e == End::MissingEntry { launch: 0 },
        ),
        ("too large", |p| p.buffers[1].bytes = 1 << 40, |e| matches!(e, End::OutOfMemory { .. })),
        ("no bytes", |p| p.launches[0].args[0] = Arg::Bytes("00".into()), |e| *e == End::Completed),
        ("code for another device", |p| p.image = "broken".into(), |e| matches!(e, End::Unsupported { .. })),
    ];
    for (what, change, right) in ends {
        let (mut request, mut store) = prepare("copy");
        store.insert("broken".into(), Arc::new(b"broken".to_vec()));
        change(&mut request);
        let mut device = FakeDevice::default();
        let (prepared, subject) = Subject::prepare(&mut device, &store, &request).expect("it is data");
        assert!(right(&prepared.end), "{what}: {prepared:?}");
        assert_eq!(subject.is_some(), prepared.end == End::Completed, "{what}");
    }
    let refused: [(&str, Change); 6] = [
        ("no launches", |p| p.launches.clear()),
        ("two of a name", |p| p.buffers[1].name = "x".into()),
        ("no such output", |p| p.want.push("z".into())),
        ("a base of another length", |p| p.buffers[0].bytes = 3),
        ("a base for what has no contents", |p| drop(p.bases[0].insert("y".into(), "image".into()))),
        ("too many bases", |p| p.bases = vec![BTreeMap::new(); 65]),
    ];
    for (what, change) in refused {
        let (mut request, store) = prepare("copy");
        change(&mut request);
        let done = Subject::prepare(&mut FakeDevice::default(), &store, &request);
        assert!(matches!(done, Err(Trouble::BadRequest(_))), "{what}");
    }
    let (mut device, mut subject) = subject("copy");
    for sample in [[5, 0], [0, 4]] {
        let request = Time { sample: vec![sample], ..request(Method::Event) };
        assert!(matches!(time(&mut device, &mut subject, &request), Err(Trouble::BadRequest(_))));
    }
}

#[test]
fn as_many_copies_are_made_as_the_limit_allows() {
    let one = 2 * (128 << 10) + 2048;
    for (wanted, limit, made) in [(4, 4 << 30, 4), (100, 3 * one, 3), (100, 1, 1), (0, 4 << 30, 1)] {
        let (mut request, store) = prepare("copy");
        (request.copies, request.copies_bytes) = (wanted, limit);
        let (prepared, _) = Subject::prepare(&mut FakeDevice::default(), &store, &request).expect("it makes sense");
        assert_eq!(prepared.copies, made, "{wanted} in {limit} bytes");
    }
}

fn many(entry: &str, launches: u64, seconds_at_most: f64) -> SteadyHead {
    let (mut device, mut subject) = subject(entry);
    let request = Steady { subject: "s".into(), launches, seconds_at_most, base: 1, seconds: 0 };
    steady(&mut device, &mut subject, &request).expect("it is data")
}

#[test]
fn a_steady_kernel_is_identical_ten_thousand_times() {
    let head = many("copy", 2_000, 60.0);
    assert_eq!((head.end.clone(), head.done, head.identical()), (End::Completed, 2_000, true));
    assert!(head.first.is_none() && head.changed.is_empty() && head.overruns.is_empty());
    // The time limit holds; the first call is made whatever it is.
    assert_eq!(many("copy", 2_000, 0.0).done, 1);
    assert_eq!(many("copy", 0, 60.0).done, 0);
    assert_eq!(many("copy", 65, 60.0).done, 65);
}

#[test]
fn the_launch_that_fails_or_differs_has_its_number() {
    let head = many("fails_at_20", 10_000, 60.0);
    assert!(matches!(head.end, End::Faulted { launch: 0, .. }) && head.last);
    let at = head.at.expect("it stopped");
    assert_eq!((at.first, at.count, at.grid), (19, 1, [7, 1, 1]));
    let head = many("differs_at_20", 100, 60.0);
    assert_eq!((head.end.clone(), head.done, head.differing), (End::Completed, 100, 1));
    let first = head.first.expect("one differs");
    assert_eq!((first.launch, first.buffer.as_str(), first.offset, first.bytes), (19, "y", 8, 1));
    assert_eq!(first.want[..8], super::super::wire::hex(&contents(1)[8..12]));
    assert_ne!(first.got, first.want);
    assert_eq!(many("changes_input", 100, 60.0).changed.len(), 4, "each copy's input");
    assert_eq!(many("overrun", 100, 60.0).overruns.len(), 4);
}
