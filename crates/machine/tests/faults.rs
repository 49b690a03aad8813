//! Each detector with a kernel that has the fault and a twin that must stay silent.

mod common;
use common::{kernel, one, options, run, run_with};
use warpsmith_machine::{AsyncCopies, End};

const STORE: &str = "mul.wide.u32 %rd30, %r0, 4;\nadd.u64 %rd31, %rd1, %rd30;\nst.global.u32 [%rd31], %r63;\n";
const LANE_WORD: &str = "mov.u32 %r2, s;\nmul.lo.u32 %r1, %r0, 4;\nadd.u32 %r3, %r2, %r1;\n";

/// Runs both; the first must have the finding (alone, at that opcode), the second none and complete.
fn twins(kind: &str, opcode: &str, fault: &str, right: &str, block: u32) {
    for seed in [0, 3] {
        for copies in [AsyncCopies::Early, AsyncCopies::Late] {
            let mut o = options();
            (o.schedule_seed, o.async_copies) = (seed, copies);
            let bad = run_with(&kernel(fault), &[7; 256], 4 * block as usize, 1, block, 0, &o);
            let kinds = bad.kinds();
            assert!(
                kinds.contains(&kind),
                "{kind} not found (seed {seed}): {:?} {:#?}",
                bad.outcome.end,
                bad.outcome.findings
            );
            assert!(kinds.iter().all(|k| *k == kind), "something else was found: {:#?}", bad.outcome.findings);
            let f = bad.outcome.findings.iter().find(|f| f.kind.word() == kind).expect("just found");
            // Which of two racing accesses comes second depends on the schedule.
            let named = |f: &warpsmith_machine::Finding| {
                f.site.opcode == opcode || f.other.as_ref().is_some_and(|o| o.opcode == opcode)
            };
            assert!(bad.outcome.findings.iter().any(named), "at {}: {}", f.site.opcode, f.message);
            let good = run_with(&kernel(right), &[7; 256], 4 * block as usize, 1, block, 0, &o);
            assert_eq!(good.outcome.findings, [], "false alarm of the twin of {kind}");
            assert_eq!(good.outcome.end, End::Completed);
        }
    }
}

#[test]
fn out_of_bounds() {
    let load =
        |bytes: u32| format!("mov.u32 %r63, 0;\nadd.u64 %rd2, %rd0, {bytes};\nld.global.u32 %r63, [%rd2];\n{STORE}");
    twins("out_of_bounds", "ld.global.u32", &load(256), &load(252), 32);
    let before = run(&kernel(&load(0).replace("add.u64 %rd2, %rd0, 0", "sub.u64 %rd2, %rd0, 4")), &[7; 256], 128, 32);
    let f = one(&before);
    let place = f.place.as_ref().expect("a place");
    assert_eq!(
        (place.space, place.object.as_deref(), place.offset, place.object_bytes),
        ("global", Some("in"), -4, 256)
    );
    assert_eq!(before.outcome.end, End::Faulted);
    let store = |n: u32| format!("mov.u32 %r63, 1;\nadd.u32 %r0, %r0, {n};\n{STORE}");
    twins("out_of_bounds", "st.global.u32", &store(1), &store(0), 32);
    let shared = |bytes: u32| {
        format!(".shared .align 4 .b8 s[{bytes}];\n{LANE_WORD}st.shared.u32 [%r3], %r0;\nmov.u32 %r63, 0;\n{STORE}")
    };
    twins("out_of_bounds", "st.shared.u32", &shared(124), &shared(128), 32);
    // Into the next variable, and before one: what lies between belongs to none, in loads as in stores, of constant size or the launch's.
    for next in [".shared .align 16 .b8 t[128];", ".extern .shared .align 16 .b8 t[];"] {
        let launched = if next.starts_with(".extern") { 256 } else { 0 };
        let (module, function) = if next.starts_with(".extern") { (next, "") } else { ("", next) };
        let neighbour = |bytes: u32, access: &str| {
            let text = format!(
                ".shared .align 4 .b8 s[{bytes}];\n{function}\n{LANE_WORD}mov.u32 %r4, t;\nmov.u32 %r63, 0;\nst.shared.u32 [%r4], 1;\nbar.warp.sync -1;\n\
                 {access};\n{STORE}"
            );
            let text = kernel(&text);
            text.replacen(".visible .entry", &format!("{module}\n.visible .entry"), 1)
        };
        for (access, object, offset) in [
            ("st.shared.u32 [%r3], %r0", "s", 124),
            ("ld.shared.u32 %r63, [%r3+4]", "s", 124),
            ("st.shared.u32 [%r4+-4], %r0", "t", -4),
            ("ld.shared.u32 %r63, [%r4+-4]", "t", -4),
        ] {
            let bad = run_with(&neighbour(124, access), &[7; 256], 128, 1, 32, launched, &options());
            let found = &bad.outcome.findings;
            let f = found.iter().find(|f| f.kind.word() == "out_of_bounds");
            let f = f.unwrap_or_else(|| panic!("{access}, {next}: {:?} {found:?}", bad.outcome.end));
            let place = f.place.as_ref().expect("a place");
            assert_eq!((place.object.as_deref(), place.offset), (Some(object), offset), "{access}: {}", f.message);
        }
        let good = run_with(&neighbour(128, "st.shared.u32 [%r3], %r0"), &[7; 256], 128, 1, 32, launched, &options());
        assert_eq!((good.outcome.findings, good.outcome.end), (vec![], End::Completed));
    }
    let local = |at: u32| {
        format!(".local .align 4 .b8 d[16];\nmov.u64 %rd2, d;\nst.local.u32 [%rd2+{at}], 1;\nmov.u32 %r63, 0;\n{STORE}")
    };
    twins("out_of_bounds", "st.local.u32", &local(16), &local(12), 32);
    let null = "mov.u64 %rd2, 0;\nld.global.u32 %r63, [%rd2];\n".to_string() + STORE;
    twins("out_of_bounds", "ld.global.u32", &null, &load(0), 32);
}

#[test]
fn misaligned() {
    let load = |at: u32| format!("ld.global.v2.u32 {{%r63, %r1}}, [%rd0+{at}];\n{STORE}");
    twins("misaligned_access", "ld.global.v2.u32", &load(4), &load(8), 32);
    let shared =
        |at: u32| format!(".shared .align 16 .b8 s[64];\nst.shared.u32 [s+{at}], 1;\nmov.u32 %r63, 0;\n{STORE}");
    twins("misaligned_access", "st.shared.u32", &shared(6), &shared(8), 32);
}

#[test]
fn uninitialised_values_are_followed_to_where_they_matter() {
    // A register that only lane 0 wrote, handed round by a shuffle.
    let shuffle = |from: &str| {
        format!(
            "setp.ne.u32 %p0, %r0, 0;\n@%p0 bra SKIP;\nmov.u32 %r5, 7;\nSKIP:\nshfl.sync.idx.b32 %r63, %r5, {from}, 31, -1;\n{STORE}"
        )
    };
    twins("uninitialized_read", "shfl.sync.idx.b32", &shuffle("3"), &shuffle("0"), 32);
    // Shared memory nobody wrote: the load is the site, the store to global the use.
    let shared = |write: &str| {
        format!(
            ".shared .align 4 .b8 s[128];\n{LANE_WORD}{write}ld.shared.u32 %r5, [%r3];\nadd.u32 %r63, %r5, 1;\n{STORE}"
        )
    };
    twins("uninitialized_read", "ld.shared.u32", &shared(""), &shared("st.shared.u32 [%r3], %r0;\n"), 32);
    let r = run(&kernel(&shared("")), &[7; 256], 128, 32);
    let f = one(&r);
    assert_eq!(f.other.as_ref().map(|o| o.opcode.as_str()), Some("st.global.u32"));
    assert_eq!(f.place.as_ref().and_then(|p| p.object.as_deref()), Some("s"));
    assert_eq!(f.count, 32);
    assert!(r.memory.initialized(r.output).iter().all(|b| !b), "what was stored is still undefined");
    // A branch on an undefined value; the twin reads it, but a defined zero settles the conjunction.
    let branch = |op: &str| {
        format!(
            "setp.eq.u32 %p0, %r5, 3;\nsetp.eq.u32 %p1, %r0, 100;\n{op}\n@%p2 bra END;\nEND:\nmov.u32 %r63, 0;\n{STORE}"
        )
    };
    twins(
        "uninitialized_read",
        "setp.eq.u32",
        &branch("or.pred %p2, %p0, %p1;"),
        &branch("and.pred %p2, %p0, %p1;"),
        32,
    );
    // An undefined address; a selection that takes the defined side.
    let address = |p: &str| {
        format!(
            "setp.ge.u32 %p0, %r0, {p};\nselp.b64 %rd3, 0, %rd5, %p0;\nadd.u64 %rd4, %rd0, %rd3;\nld.global.u32 %r63, [%rd4];\n{STORE}"
        )
    };
    twins("uninitialized_read", "selp.b64", &address("1"), &address("0"), 32);
    // One byte of a word is undefined: taking another out of it is fine; so is copying the word with its padding.
    let bytes = |shift: u32| {
        format!(
            ".shared .align 4 .b8 s[128];\n{LANE_WORD}st.shared.u8 [%r3], %r0;\nst.shared.u8 [%r3+2], %r0;\nld.shared.u32 %r5, [%r3];\nshr.u32 %r6, %r5, {shift};\n\
             and.b32 %r63, %r6, 255;\n{STORE}"
        )
    };
    twins("uninitialized_read", "ld.shared.u32", &bytes(8), &bytes(16), 32);
    let vector = |use_of: &str| {
        format!(
            ".shared .align 8 .b8 s[256];\nmov.u32 %r2, s;\nmad.lo.u32 %r3, %r0, 8, %r2;\nst.shared.u32 [%r3], %r0;\nld.shared.v2.u32 {{%r5, %r6}}, [%r3];\nadd.u32 %r63, {use_of}, 1;\n{STORE}"
        )
    };
    twins("uninitialized_read", "ld.shared.v2.u32", &vector("%r6"), &vector("%r5"), 32);
    let padded = ".shared .align 8 .b8 s[256];\nmov.u32 %r2, s;\nmad.lo.u32 %r3, %r0, 8, %r2;\nst.shared.u8 [%r3], %r0;\nst.shared.u32 [%r3+4], %r0;\nld.shared.v2.u32 {%r5, %r6}, [%r3];\n\
         mul.wide.u32 %rd30, %r0, 8;\nadd.u64 %rd31, %rd1, %rd30;\nst.global.v2.u32 [%rd31], {%r5, %r6};";
    let copied = run(&kernel(padded), &[0; 4], 256, 32);
    assert_eq!((&copied.outcome.end, copied.kinds()), (&End::Completed, vec![]), "{:#?}", copied.outcome.findings);
    assert_eq!(copied.memory.initialized(copied.output)[..8], [true, false, false, false, true, true, true, true]);
    // Multiplication by zero does not make garbage right.
    let times = |a: &str| format!("mul.lo.u32 %r63, {a}, 0;\n{STORE}");
    twins("uninitialized_read", "mul.lo.u32", &times("%r5"), &times("%r0"), 32);
}

#[test]
fn shared_races() {
    let exchange = |barrier: &str| {
        format!(
            ".shared .align 4 .b8 s[256];\n{LANE_WORD}st.shared.u32 [%r3], %r0;\n{barrier}xor.b32 %r4, %r1, 128;\nadd.u32 %r5, %r2, %r4;\nld.shared.u32 %r63, [%r5];\n"
        )
    };
    // Without the barrier the read may also find nothing: both are findings; look for the race itself.
    let bad = run(&kernel(&format!("{}mov.u32 %r63, 0;\n{STORE}", exchange(""))), &[0; 4], 256, 64);
    assert!(!bad.kinds().is_empty() && bad.kinds().iter().all(|k| *k == "shared_race"), "{:#?}", bad.outcome.findings);
    let good = run(&kernel(&format!("{}{STORE}", exchange("bar.sync 0;\n"))), &[0; 4], 256, 64);
    assert_eq!((&good.outcome.end, good.kinds()), (&End::Completed, vec![]));
    // A second round that writes before all have read.
    let rounds = |barrier: &str| format!("{}{barrier}st.shared.u32 [%r3], %r0;\n{STORE}", exchange("bar.sync 0;\n"));
    twins("shared_race", "st.shared.u32", &rounds(""), &rounds("bar.sync 0;\n"), 64);
    // Both sides of the story: the write names the read that it may overtake.
    let f = run(&kernel(&rounds("")), &[0; 4], 256, 64);
    let sides = |f: &warpsmith_machine::Finding| (f.site.opcode.clone(), f.other.as_ref().map(|o| o.opcode.clone()));
    assert!(f.outcome.findings.iter().map(sides).any(|s| s == ("st.shared.u32".into(), Some("ld.shared.u32".into()))));
    // Bytes of one word by different warps are no race; the same byte is.
    let bytes = |mul: u32| {
        format!(
            ".shared .align 4 .b8 s[64];\nmov.u32 %r2, s;\nand.b32 %r4, %r0, {mul};\nadd.u32 %r3, %r2, %r4;\nst.shared.u8 [%r3], %r0;\nmov.u32 %r63, 0;\n{STORE}"
        )
    };
    twins("shared_race", "st.shared.u8", &bytes(31), &bytes(63), 64);
    // Lanes of one warp: different values to one place in one instruction; the same value is fine.
    let lanes = |v: &str| format!(".shared .align 4 .b8 s[4];\nst.shared.u32 [s], {v};\nmov.u32 %r63, 0;\n{STORE}");
    twins("shared_race", "st.shared.u32", &lanes("%r0"), &lanes("7"), 32);
    // Several warps set one flag to the same value: no race, but different values are one.
    let flag = |v: &str| {
        format!(
            ".shared .align 4 .b8 s[4];\nshr.u32 %r4, %r0, 5;\nst.shared.u32 [s], {v};\nbar.sync 0;\nld.shared.u32 %r63, [s];\n{STORE}"
        )
    };
    twins("shared_race", "st.shared.u32", &flag("%r4"), &flag("7"), 64);
    // Atomics order nothing else, but do not race with each other.
    let atomics = |last: &str| {
        format!(
            ".shared .align 4 .b8 s[4];\nsetp.eq.u32 %p0, %r0, 0;\n@%p0 st.shared.u32 [s], 0;\nbar.sync 0;\nred.shared.add.u32 [s], 1;\n{last}ld.shared.u32 %r63, [s];\n{STORE}"
        )
    };
    twins("shared_race", "ld.shared.u32", &atomics(""), &atomics("bar.sync 0;\n"), 64);
}

#[test]
fn lanes_of_a_warp_race_too() {
    let sync = "bar.warp.sync -1;\n";
    // A lane reads what another has written, by words, by vectors, after a shuffle (which orders no memory).
    let exchange = |sync: &str, load: &str| {
        format!(
            ".shared .align 16 .b8 s[512];\n{LANE_WORD}st.shared.u32 [%r3], %r0;\n{sync}xor.b32 %r4, %r1, 4;\nadd.u32 %r5, %r2, %r4;\n{load}\n{STORE}"
        )
    };
    let one = "ld.shared.u32 %r63, [%r5];";
    twins("shared_race", "ld.shared.u32", &exchange("", one), &exchange(sync, one), 32);
    twins(
        "shared_race",
        "ld.shared.u32",
        &exchange("shfl.sync.idx.b32 %r6, %r0, 0, 31, -1;\n", one),
        &exchange(sync, one),
        32,
    );
    let broadcast = "ld.shared.u32 %r63, [s+8];";
    twins("shared_race", "ld.shared.u32", &exchange("", broadcast), &exchange(sync, broadcast), 32);
    let own = "ld.shared.u32 %r63, [%r3];";
    assert_eq!(run(&kernel(&exchange("", own)), &[0; 4], 128, 32).kinds(), Vec::<&str>::new(), "a lane's own word");
    // The other way round: a lane overwrites what others may still read.
    let overwrite = |sync: &str| {
        format!(
            ".shared .align 4 .b8 s[128];\n{LANE_WORD}st.shared.u32 [%r3], %r0;\n{sync}ld.shared.u32 %r63, [s+12];\n{}st.shared.u32 [%r3], 5;\n{STORE}",
            if sync.is_empty() { "" } else { sync }
        )
    };
    twins(
        "shared_race",
        "st.shared.u32",
        &overwrite("").replace("ld.shared.u32 %r63, [s+12]", "bar.sync 0;\nld.shared.u32 %r63, [s+12]"),
        &overwrite(sync),
        32,
    );
    // Only some lanes take part; what the others would have done does not count.
    let some = |limit: u32| {
        format!(
            ".shared .align 4 .b8 s[128];\n{LANE_WORD}mov.u32 %r63, 0;\nsetp.ne.u32 %p0, %r0, {limit};\n@%p0 bra OUT;\nst.shared.u32 [s+8], 3;\nld.shared.u32 %r63, [s+8];\nst.shared.u32 [s+8], 4;\nOUT:\n{STORE}"
        )
    };
    assert_eq!(run(&kernel(&some(7)), &[0; 4], 128, 32).kinds(), Vec::<&str>::new());
    // volatile accesses are no data race.
    let volatile =
        exchange("", one).replace("st.shared", "st.volatile.shared").replace("ld.shared", "ld.volatile.shared");
    assert_eq!(run(&kernel(&volatile), &[0; 4], 128, 32).kinds(), Vec::<&str>::new());
    // ldmatrix brings the lanes together: a note.
    let matrix = |sync: &str| {
        format!(
            ".shared .align 16 .b8 s[128];\n{LANE_WORD}st.shared.u32 [%r3], %r0;\n{sync}and.b32 %r7, %r0, 7;\nmad.lo.u32 %r8, %r7, 16, %r2;\nldmatrix.sync.aligned.m8n8.x1.shared.b16 {{%r63}}, [%r8];\n{STORE}"
        )
    };
    let noted = run(&kernel(&matrix("")), &[0; 4], 128, 32);
    assert_eq!((noted.kinds(), one_severity(&noted)), (vec!["shared_race"], warpsmith_machine::Severity::Note));
    assert_eq!(run(&kernel(&matrix(sync)), &[0; 4], 128, 32).kinds(), Vec::<&str>::new());
}

fn one_severity(r: &common::Run) -> warpsmith_machine::Severity {
    one(r).severity
}

#[test]
fn copies_in_flight() {
    let copy = |wait: &str| {
        format!(
            ".shared .align 16 .b8 s[512];\nmov.u32 %r2, s;\nmul.lo.u32 %r1, %r0, 16;\nadd.u32 %r3, %r2, %r1;\nmov.u32 %r63, 0;\nst.shared.v4.u32 [%r3], {{%r63, %r63, %r63, %r63}};\n\
             cp.async.cg.shared.global [%r3], [%rd0], 16;\ncp.async.commit_group;\n{wait}ld.shared.u32 %r63, [%r3];\ncp.async.wait_group 0;\n{STORE}"
        )
    };
    twins("async_in_flight", "ld.shared.u32", &copy("cp.async.wait_group 1;\n"), &copy("cp.async.wait_group 0;\n"), 32);
    // Another warp reads after the owner has waited, but without a barrier.
    let cross = |barrier: &str| {
        format!(
            ".shared .align 16 .b8 s[1024];\nmov.u32 %r2, s;\nmul.lo.u32 %r1, %r0, 16;\nadd.u32 %r3, %r2, %r1;\ncp.async.cg.shared.global [%r3], [%rd0], 16;\ncp.async.wait_all;\n{barrier}\
             xor.b32 %r4, %r1, 512;\nadd.u32 %r5, %r2, %r4;\nld.shared.u32 %r6, [%r5];\nmov.u32 %r63, 0;\n{STORE}"
        )
    };
    let bad = run(&kernel(&cross("")), &[7; 256], 256, 64);
    assert!(bad.kinds().contains(&"shared_race"), "{:#?}", bad.outcome.findings);
    assert_eq!(run(&kernel(&cross("bar.sync 0;\n")), &[7; 256], 256, 64).kinds(), Vec::<&str>::new());
    // A buffer that is refilled while another warp may still read it: seen at the copy's issue.
    let refill = |barrier: &str| {
        format!(
            ".shared .align 16 .b8 s[1024];\nmov.u32 %r2, s;\nmul.lo.u32 %r1, %r0, 16;\nadd.u32 %r3, %r2, %r1;\ncp.async.cg.shared.global [%r3], [%rd0], 16;\ncp.async.wait_all;\nbar.sync 0;\n\
             xor.b32 %r4, %r1, 512;\nadd.u32 %r5, %r2, %r4;\nld.shared.u32 %r63, [%r5];\n{barrier}cp.async.cg.shared.global [%r3], [%rd0], 16;\ncp.async.wait_all;\n{STORE}"
        )
    };
    twins("shared_race", "cp.async.cg.shared.global", &refill(""), &refill("bar.sync 0;\n"), 64);
}

#[test]
fn barriers_that_do_not_meet() {
    let divergent = |p: &str| {
        format!(
            "setp.lt.u32 %p0, %r0, {p};\n@%p0 bra A;\nbar.sync 0;\nbra B;\nA:\nbar.sync 1;\nB:\nmov.u32 %r63, 0;\n{STORE}"
        )
    };
    twins("barrier_divergence", "bar.sync", &divergent("16"), &divergent("32"), 32);
    let counts = |n: u32| {
        format!(
            "setp.lt.u32 %p0, %r0, 32;\n@%p0 bra A;\nbar.sync 1, 64;\nbra B;\nA:\nbar.sync 1, {n};\nB:\nmov.u32 %r63, 0;\n{STORE}"
        )
    };
    twins("barrier_divergence", "bar.sync", &counts(96), &counts(64), 64);
    // Warp 0 waits for a barrier that nobody else comes to.
    let deadlock =
        |n: u32| format!("setp.ge.u32 %p0, %r0, 32;\n@%p0 bra B;\nbar.sync 1, {n};\nB:\nmov.u32 %r63, 0;\n{STORE}");
    twins("deadlock", "bar.sync", &deadlock(64), &deadlock(32), 64);
    // Threads that have left are not waited for.
    let left = "setp.ge.u32 %p0, %r0, 40;\nmov.u32 %r63, 0;\n@%p0 bra END;\nbar.sync 0;\nEND:\n".to_string() + STORE;
    let r = run(&kernel(&left), &[0; 4], 256, 64);
    assert_eq!(r.outcome.end, End::Completed, "{:?}", r.outcome.findings);
}

#[test]
fn traps_and_asserts() {
    let trap = |n: u32| format!("setp.ne.u32 %p0, %r0, {n};\n@%p0 bra OK;\ntrap;\nOK:\nmov.u32 %r63, 0;\n{STORE}");
    twins("trap", "trap", &trap(3), &trap(77), 32);
}

#[test]
fn lanes_outside_a_mask() {
    let shuffle = |mask: &str| {
        format!(
            "setp.ge.u32 %p0, %r0, 16;\nmov.u32 %r63, 0;\n@%p0 bra END;\nshfl.sync.bfly.b32 %r63, %r0, {mask}, 31, 0xFFFF;\nEND:\n{STORE}"
        )
    };
    twins("inactive_lane", "shfl.sync.bfly.b32", &shuffle("16"), &shuffle("8"), 32);
    let member = |mask: &str| format!("shfl.sync.bfly.b32 %r63, %r0, 1, 31, {mask};\n{STORE}");
    twins("inactive_lane", "shfl.sync.bfly.b32", &member("0x7FFFFFFF"), &member("-1"), 32);
}

#[test]
fn matrix_instructions_by_part_of_a_warp() {
    let part = |n: u32| {
        format!(
            ".shared .align 16 .b8 s[128];\n{LANE_WORD}st.shared.u32 [%r3], %r0;\nbar.sync 0;\nand.b32 %r7, %r0, 7;\nmad.lo.u32 %r8, %r7, 16, %r2;\nmov.u32 %r63, 0;\n\
             setp.ge.u32 %p0, %r0, {n};\n@%p0 bra WAIT;\nldmatrix.sync.aligned.m8n8.x1.shared.b16 {{%r63}}, [%r8];\nbra END;\nWAIT:\nbar.sync 0;\nEND:\n{STORE}"
        )
    };
    let r = run(&kernel(&part(16)), &[0; 4], 128, 32);
    assert_eq!(r.outcome.end, End::Faulted);
    assert!(
        r.kinds().iter().all(|k| *k == "divergent_aligned" || *k == "barrier_divergence"),
        "{:?}",
        r.outcome.findings
    );
    assert_eq!(run(&kernel(&part(32)), &[0; 4], 128, 32).kinds(), Vec::<&str>::new());
}

#[test]
fn read_only_memory_is_not_written() {
    let body =
        "mov.u64 %rd2, in;\ncvta.param.u64 %rd3, %rd2;\nst.u32 [%rd3], 1;\nmov.u32 %r63, 0;\n".to_string() + STORE;
    let r = run(&kernel(&body), &[0; 4], 128, 32);
    assert_eq!(r.kinds(), ["invalid_access"], "{:?}", r.outcome.findings);
}
