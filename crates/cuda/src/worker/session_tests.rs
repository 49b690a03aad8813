use super::super::fake::FakeDevice;
use super::*;
use crate::error::FaultKind;

const N: u32 = 1000;

/// A run of `entry(x, y, N)` with x given and y poisoned.
fn run_of(entry: &str) -> (Run, Store) {
    let x: Vec<u8> = (0..N).map(|i| (i % 256) as u8).collect();
    let mut store = Store::new();
    store.insert(sha256(&x), Arc::new(x.clone()));
    store.insert("image".into(), Arc::new(b"code".to_vec()));
    let buffer = |name: &str, fill| Buffer { name: name.into(), bytes: u64::from(N), fill };
    let args = vec![Arg::Buffer("x".into()), Arg::Buffer("y".into()), Arg::Bytes("e8030000".into())];
    let launch = Launch {
        entry: entry.into(),
        grid: [1; 3],
        block: [32, 1, 1],
        cluster: [1; 3],
        cooperative: false,
        shared_bytes: 0,
        args,
    };
    let run = Run {
        image: "image".into(),
        buffers: vec![buffer("x", Fill::Contents(sha256(&x))), buffer("y", Fill::Poison)],
        launches: vec![launch],
        want: vec!["y".into(), "x".into()],
        poisons: vec![0xff, 0x7f],
        seconds: 10,
    };
    (run, store)
}

fn execute_entry(entry: &str) -> (RanHead, Vec<Vec<u8>>) {
    let (run, store) = run_of(entry);
    execute(&mut FakeDevice::default(), &store, &run).expect("the fake device works")
}

#[test]
fn an_honest_kernel_leaves_nothing_but_its_output() {
    let (ran, outputs) = execute_entry("copy");
    assert_eq!(ran.end, End::Completed);
    assert_eq!(outputs[0], (0..N).map(|i| (i % 256) as u8).collect::<Vec<u8>>());
    // It wrote both poisons' values somewhere; nothing of that counts as unwritten.
    assert!(ran.outputs.iter().all(|o| o.unwritten.is_empty()));
    assert!(ran.overruns.is_empty() && ran.undefined.is_empty() && !ran.last);
    let (run, _) = run_of("copy");
    assert_eq!(run.buffers[0].fill, Fill::Contents(ran.outputs[1].sha256.clone()), "x is as it was");
}

#[test]
fn bytes_that_were_never_written_are_named() {
    let (ran, _) = execute_entry("copy_half");
    assert_eq!(ran.outputs[0].unwritten, [[u64::from(N) / 2, u64::from(N) / 2]]);
}

#[test]
fn writes_outside_name_the_buffer_and_the_nearest_byte() {
    for (entry, offset, bytes) in [("overrun", i64::from(N) + 2, 6), ("underrun", -1, 4)] {
        let (ran, _) = execute_entry(entry);
        assert_eq!(ran.end, End::Completed);
        let [overrun] = ran.overruns.as_slice() else { panic!("{entry}: {:?}", ran.overruns) };
        assert_eq!((overrun.buffer.as_str(), overrun.offset, overrun.bytes), ("y", offset, bytes), "{entry}");
    }
}

#[test]
fn a_changed_input_has_another_hash() {
    let (ran, _) = execute_entry("changes_input");
    let (run, _) = run_of("copy");
    assert_ne!(run.buffers[0].fill, Fill::Contents(ran.outputs[1].sha256.clone()));
}

#[test]
fn an_output_that_follows_what_was_not_given_is_found() {
    let (ran, _) = execute_entry("reads_undefined");
    // The byte behind x differs between the repeats, or is equal by chance once in 250.
    match ran.undefined.as_slice() {
        [found] => assert_eq!((found.buffer.as_str(), found.offset, found.bytes), ("y", 0, 1)),
        other => assert!(other.is_empty(), "{other:?}"),
    }
}

#[test]
fn faults_and_refusals_are_typed() {
    let fault = |kind, code, name: &str| End::Faulted { launch: 0, kind, code, name: name.into() };
    for (entry, end) in [
        ("illegal_address", fault(FaultKind::IllegalAddress, 700, "CUDA_ERROR_ILLEGAL_ADDRESS")),
        ("misaligned", fault(FaultKind::MisalignedAddress, 716, "CUDA_ERROR_MISALIGNED_ADDRESS")),
        ("trap", fault(FaultKind::LaunchFailed, 719, "CUDA_ERROR_LAUNCH_FAILED")),
        ("nowhere", End::MissingEntry { launch: 0 }),
    ] {
        let (ran, outputs) = execute_entry(entry);
        assert_eq!(ran.end, end);
        assert!(outputs.is_empty());
        assert_eq!(ran.last, matches!(ran.end, End::Faulted { .. }), "{entry}");
    }
}

#[test]
fn code_is_loaded_anew_for_each_repeat() {
    let (mut run, store) = run_of("count_loads");
    run.launches[0].args.remove(0);
    let (ran, outputs) = execute(&mut FakeDevice::default(), &store, &run).expect("the fake device works");
    assert_eq!(outputs[0][0], 1);
    assert!(ran.undefined.is_empty());
}

#[test]
fn requests_that_make_no_sense_are_refused() {
    let changes: [(&str, fn(&mut Run)); 5] = [
        ("no such buffer", |r| r.want.push("z".into())),
        ("two of a name", |r| r.buffers[1].name = "x".into()),
        ("contents of another length", |r| r.buffers[0].bytes = 3),
        ("no bytes", |r| r.launches[0].args[2] = Arg::Bytes("xyz".into())),
        ("no poison", |r| r.poisons.clear()),
    ];
    for (what, change) in changes {
        let (mut run, store) = run_of("copy");
        change(&mut run);
        let done = execute(&mut FakeDevice::default(), &store, &run);
        assert!(matches!(done, Err(Trouble::BadRequest(_))), "{what}: {done:?}");
    }
}

#[test]
fn what_does_not_fit_or_does_not_load_is_data() {
    let (mut run, mut store) = run_of("copy");
    run.buffers[1].bytes = 1 << 40;
    let (ran, _) = execute(&mut FakeDevice::default(), &store, &run).expect("it is data");
    assert!(matches!(ran.end, End::OutOfMemory { .. }));
    let (run, _) = run_of("copy");
    store.insert("image".into(), Arc::new(b"broken".to_vec()));
    let (ran, _) = execute(&mut FakeDevice::default(), &store, &run).expect("it is data");
    assert!(matches!(ran.end, End::Unsupported { .. }));
}

#[test]
fn what_is_missing_is_listed_once() {
    let (mut run, _) = run_of("copy");
    run.image = match &run.buffers[0].fill {
        Fill::Contents(sha) => sha.clone(),
        _ => unreachable!("x has contents"),
    };
    assert_eq!(missing(&run, &Store::new()), [run.image.clone()]);
}
