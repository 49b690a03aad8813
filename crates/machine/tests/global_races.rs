//! Races through global memory: each with a kernel that has one and a twin that must stay silent.

mod common;
use common::{Run, kernel, options, run_with};
use warpsmith_machine::api::Severity;
use warpsmith_machine::{End, Options};

/// `in` has 4 KiB of zeros; every thread's word of `out` gets `%r63` at the end.
fn go(body: &str, grid: u32, block: u32, threads: usize, seed: u64) -> Run {
    let store = "mov.u32 %r50, %ctaid.x;\nmov.u32 %r51, %ntid.x;\nmad.lo.u32 %r50, %r50, %r51, %r0;\nmul.wide.u32 %rd30, %r50, 4;\nadd.u64 %rd31, %rd1, %rd30;\n\
                 st.global.u32 [%rd31], %r63;\n";
    let o = Options { threads, schedule_seed: seed, ..options() };
    run_with(
        &kernel(&format!("mov.u32 %r63, 0;\nmov.u32 %r1, %ctaid.x;\n{body}\n{store}")),
        &[0; 4096],
        4 * (grid * block) as usize,
        grid,
        block,
        0,
        &o,
    )
}

fn races(r: &Run) -> Vec<(String, Option<String>, Severity)> {
    let opcode = |o: &warpsmith_machine::Site| o.opcode.clone();
    assert!(r.kinds().iter().all(|k| *k == "global_race"), "{:#?}", r.outcome.findings);
    r.outcome.findings.iter().map(|f| (opcode(&f.site), f.other.as_ref().map(opcode), f.severity)).collect()
}

/// The fault is found whatever the schedule, with these opcodes on its two sides; the twin is silent.
fn twins(fault: &str, right: &str, grid: u32, block: u32, site: &str, other: &str) {
    for (threads, seed) in [(1, 0), (1, 9), (2, 0), (2, 5)] {
        let bad = go(fault, grid, block, threads, seed);
        let found = races(&bad);
        let wanted = (site.to_string(), Some(other.to_string()), Severity::Error);
        assert!(found.contains(&wanted), "{threads} threads, seed {seed}: {found:?}\n{fault}");
        let good = go(right, grid, block, threads, seed);
        assert_eq!((&good.outcome.end, &good.outcome.findings[..]), (&End::Completed, &[][..]), "{right}");
    }
}

/// The address of word `n` (a register) of `in`, in `%rd2`.
fn word(n: &str) -> String {
    format!("mul.wide.u32 %rd2, {n}, 4;\nadd.u64 %rd2, %rd0, %rd2;\n")
}

#[test]
fn ctas_that_write_one_word() {
    let store = |n: &str| format!("mul.lo.u32 %r2, %r1, {n};\n{}st.global.u32 [%rd2], %r1;\n", word("%r2"));
    twins(&store("0"), &store("1"), 3, 1, "st.global.u32", "st.global.u32");
    // Bytes of one word are no conflict.
    let bytes = "cvt.u64.u32 %rd2, %r1;\nadd.u64 %rd2, %rd2, %rd0;\nst.global.u8 [%rd2], %r1;\n";
    assert_eq!(races(&go(bytes, 8, 1, 1, 0)), []);
}

#[test]
fn a_word_that_another_cta_reads() {
    let body = |neighbour: u32| {
        format!(
            "xor.b32 %r2, %r1, {neighbour};\n{}ld.global.u32 %r63, [%rd2];\n{}st.global.u32 [%rd2], 5;\n",
            word("%r2"),
            word("%r1")
        )
    };
    twins(&body(1), &body(0), 2, 1, "st.global.u32", "ld.global.u32");
    let r = go(&body(1), 2, 1, 1, 0);
    let f = &r.outcome.findings[0];
    let place = f.place.as_ref().expect("a place");
    assert_eq!((place.space, place.object.as_deref(), place.bytes), ("global", Some("in"), 4));
    assert!(f.message.contains("CTA (0, 0, 0)") && f.message.contains("CTA (1, 0, 0)"), "{}", f.message);
}

#[test]
fn a_race_between_two_barriers_of_the_grid() {
    // Whoever polls sees the barrier's word only when others have run on to the next barrier, and so would be ordered after all that they
    // did on the way: adversarial schedules let everybody look before anybody goes on.
    let barrier = |n: u32| {
        format!(
            "membar.gl;\natom.global.add.u32 %r20, [%rd0+2048], 1;\nWAIT{n}:\nld.acquire.gpu.global.u32 %r21, [%rd0+2048];\n\
             setp.lt.u32 %p3, %r21, {};\n@%p3 bra WAIT{n};\n",
            3 * n
        )
    };
    let (mine, next) = (word("%r1"), "add.u32 %r2, %r1, 1;\nrem.u32 %r2, %r2, 3;\n".to_string() + &word("%r2"));
    let body = |between: &str| {
        let (store, load) =
            (format!("{mine}st.global.u32 [%rd2], %r1;\n"), format!("{next}ld.global.u32 %r63, [%rd2];\n"));
        format!("{}{store}{between}{load}{}", barrier(1), barrier(3))
    };
    // The second barrier of the right one; the wrong one counts on without it.
    let (wrong, right) = (body("red.global.add.u32 [%rd0+2048], 1;\n"), body(&barrier(2)));
    for seed in [2, 3, 9] {
        let found = races(&go(&wrong, 3, 1, 1, seed));
        assert!(found.iter().any(|f| f.2 == Severity::Error), "seed {seed}: {found:?}");
    }
    for (threads, seed) in [(1, 0), (1, 2), (1, 3), (2, 0), (2, 9)] {
        let r = go(&right, 3, 1, threads, seed);
        assert_eq!(
            (&r.outcome.end, &r.outcome.findings[..]),
            (&End::Completed, &[][..]),
            "{threads} threads, seed {seed}"
        );
    }
}

/// `old = *p; do { seen = old; old = OP(p, seen, seen + 1); } while (seen != old);` in `space`, of a word that begins as zero.
fn guessed(space: &str, at: &str, operation: &str) -> String {
    format!(
        "ld.{space}.u32 %r2, [{at}];\nAGAIN:\nmov.u32 %r3, %r2;\nadd.u32 %r4, %r3, 1;\n{}\nsetp.ne.u32 %p1, %r2, %r3;\n@%p1 bra AGAIN;\n",
        operation.replace("OP", &format!("atom.{space}"))
    )
}

#[test]
fn a_guess_that_an_atomic_operation_checks() {
    let verified = guessed("global", "%rd0", "OP.cas.b32 %r2, [%rd0], %r3, %r4;");
    // What is exchanged was not compared with anything: increments are lost.
    let exchanged = "ld.global.u32 %r2, [%rd0];\nadd.u32 %r4, %r2, 1;\natom.global.exch.b32 %r5, [%rd0], %r4;\n";
    twins(exchanged, &verified, 3, 64, "atom.global.exch.b32", "ld.global.u32");
    // A plain read of what others count with atomics is no guess.
    let counted = "ld.global.u32 %r63, [%rd0];\natom.global.add.u32 %r5, [%rd0], 1;\n";
    twins(counted, "atom.global.add.u32 %r5, [%rd0], 1;\n", 3, 64, "atom.global.add.u32", "ld.global.u32");
    // To look first at a maximum that only grows is a note.
    let look = "ld.global.u32 %r2, [%rd0];\nadd.u32 %r3, %r0, 1;\nsetp.lt.u32 %p1, %r2, %r3;\n@%p1 red.global.max.u32 [%rd0], %r3;\n";
    for threads in [1, 2] {
        let r = go(look, 3, 64, threads, 0);
        let found = races(&r);
        assert!(!found.is_empty() && found.iter().all(|f| f.2 == Severity::Note), "{found:?}");
    }
}

#[test]
fn a_guess_in_shared_memory() {
    let body = |operation: &str| {
        let begin = ".shared .align 4 .b8 s[4];\nmov.u32 %r9, s;\nsetp.eq.u32 %p0, %r0, 0;\n@%p0 st.shared.u32 [%r9], 0;\nbar.sync 0;\n";
        let end = "bar.sync 0;\nld.shared.u32 %r63, [%r9];\n";
        format!("{begin}{}{end}", guessed("shared", "%r9", operation))
    };
    let r = go(&body("OP.cas.b32 %r2, [%r9], %r3, %r4;"), 1, 96, 1, 0);
    assert_eq!((&r.outcome.end, &r.outcome.findings[..]), (&End::Completed, &[][..]));
    assert_eq!(r.words(), [96; 96]);
    let lost = go(&body("OP.exch.b32 %r5, [%r9], %r4;\nmov.u32 %r2, %r3;"), 1, 96, 1, 0);
    assert!(lost.kinds().contains(&"shared_race"), "{:?}", lost.kinds());
}

#[test]
fn the_same_value_is_a_note() {
    let r = go("st.global.u32 [%rd0], 7;\n", 4, 1, 1, 0);
    assert_eq!(races(&r), [("st.global.u32".into(), Some("st.global.u32".into()), Severity::Note)]);
    assert_eq!(r.outcome.end, End::Completed);
}

#[test]
fn lanes_of_one_instruction() {
    let store = |v: &str| format!("st.global.u32 [%rd0], {v};\n");
    let r = go(&store("%r0"), 1, 32, 1, 0);
    assert_eq!(races(&r), [("st.global.u32".into(), None, Severity::Error)]);
    assert_eq!(races(&go(&store("3"), 1, 32, 1, 0)), []);
    // Two roundings of one number: which one stays is chance, but neither is wrong.
    let nearly = "and.b32 %r2, %r0, 1;\nadd.u32 %r2, %r2, 0x3FC00000;\nst.global.u32 [%rd0], %r2;\n";
    assert_eq!(races(&go(nearly, 1, 32, 1, 0)), [("st.global.u32".into(), None, Severity::Note)]);
}

#[test]
fn warps_of_one_cta() {
    let body = |barrier: &str| {
        format!(
            "{}st.global.u32 [%rd2], %r0;\n{barrier}xor.b32 %r2, %r0, 32;\n{}ld.global.u32 %r63, [%rd2];\n",
            word("%r0"),
            word("%r2")
        )
    };
    twins(&body(""), &body("bar.sync 0;\n"), 1, 64, "st.global.u32", "ld.global.u32");
}

#[test]
fn the_last_cta_sums_up() {
    // Every CTA writes its partial result, then counts itself; the last one reads them all.
    let body = |before: &str, after: &str| {
        format!(
            "add.u32 %r2, %r1, 8;\n{}st.global.u32 [%rd2], %r1;\n{before}setp.ne.u32 %p0, %r0, 0;\n.shared .align 4 .b8 last[4];\n@%p0 bra NEXT;\n\
             atom.global.add.u32 %r3, [%rd0], 1;\nst.shared.u32 [last], %r3;\nNEXT:\nbar.sync 0;\nld.shared.u32 %r3, [last];\nsetp.ne.u32 %p1, %r3, 3;\n@%p1 bra END;\n{after}\
             add.u32 %r2, %r0, 8;\n{}ld.global.u32 %r63, [%rd2];\nst.global.u32 [%rd2], 0;\n@%p0 bra END;\nst.global.u32 [%rd0], 0;\nEND:\n",
            word("%r2"),
            word("%r2")
        )
    };
    // The partial result is thread 0's alone here, so that lanes do not clash.
    let one = |text: String| {
        text.replace("st.global.u32 [%rd2], %r1;", "setp.eq.u32 %p2, %r0, 0;\n@%p2 st.global.u32 [%rd2], %r1;")
    };
    for fence in ["membar.gl;\nbar.sync 0;\n", "bar.sync 0;\nfence.acq_rel.gpu;\n", "bar.sync 0;\nmembar.sys;\n"] {
        twins(
            &one(body("bar.sync 0;\n", "")),
            &one(body(fence, "membar.gl;\n")),
            4,
            4,
            "st.global.u32",
            "ld.global.u32",
        );
    }
    // A fence of a CTA's scope orders nothing between CTAs.
    assert!(!races(&go(&one(body("membar.cta;\nbar.sync 0;\n", "")), 4, 4, 1, 0)).is_empty());
    // A releasing atomic needs no fence.
    let releasing = one(body("bar.sync 0;\n", "")).replace("atom.global.add", "atom.acq_rel.gpu.global.add");
    assert_eq!(races(&go(&releasing, 4, 4, 2, 0)), []);
}

#[test]
fn a_flag_hands_data_on() {
    // CTA 1 waits for CTA 0's flag at word 0, then all its threads read what it wrote.
    let body = |store: &str, barrier: &str| {
        format!(
            "setp.ne.u32 %p0, %r1, 0;\n@%p0 bra READ;\nadd.u32 %r2, %r0, 8;\n{}st.global.u32 [%rd2], 77;\nbar.sync 0;\nsetp.ne.u32 %p1, %r0, 0;\n@%p1 bra END;\n{store}\nbra END;\n\
             READ:\nsetp.ne.u32 %p1, %r0, 0;\n@%p1 bra GO;\nWAIT:\nld.acquire.gpu.global.u32 %r3, [%rd0];\nsetp.eq.u32 %p2, %r3, 0;\n@%p2 bra WAIT;\nGO:\n{barrier}\nxor.b32 %r2, %r0, 32;\nadd.u32 %r2, %r2, 8;\n{}\
             ld.global.u32 %r63, [%rd2];\nEND:\n",
            word("%r2"),
            word("%r2")
        )
    };
    let right = body("st.release.gpu.global.u32 [%rd0], 1;", "bar.sync 0;");
    twins(
        &body("st.relaxed.gpu.global.u32 [%rd0], 1;", "bar.sync 0;"),
        &right,
        2,
        64,
        "st.global.u32",
        "ld.global.u32",
    );
    // The other warp reads without having waited for the one that saw the flag.
    twins(&body("st.release.gpu.global.u32 [%rd0], 1;", ""), &right, 2, 64, "st.global.u32", "ld.global.u32");
    let fenced = body("membar.gl;\nst.volatile.global.u32 [%rd0], 1;", "bar.sync 0;");
    assert_eq!(races(&go(&fenced, 2, 64, 1, 0)), []);
    // The reading side: a relaxed load acquires with the next fence only, and a scope of one CTA reaches no other.
    for (from, to) in [
        ("ld.acquire.gpu.global.u32 %r3", "ld.relaxed.gpu.global.u32 %r3"),
        ("ld.acquire.gpu.global.u32 %r3", "ld.volatile.global.u32 %r3"),
        ("ld.acquire.gpu.global.u32 %r3", "ld.acquire.cta.global.u32 %r3"),
        ("st.release.gpu.global.u32 [%rd0]", "st.release.cta.global.u32 [%rd0]"),
    ] {
        let wrong = right.replace(from, to);
        assert_ne!(wrong, right);
        twins(&wrong, &right, 2, 64, "st.global.u32", "ld.global.u32");
    }
    for (poll, fence) in [("ld.relaxed.gpu", "fence.acq_rel.gpu"), ("ld.volatile", "membar.gl")] {
        let late = right.replace("ld.acquire.gpu", poll).replace("GO:\n", &format!("{fence};\nGO:\n"));
        assert_eq!(races(&go(&late, 2, 64, 1, 0)), []);
    }
}

#[test]
fn who_has_seen_a_flag_or_a_count_may_reset_it() {
    // CTA 0 sets the flag, or counts; CTA 1 waits for it, and overwrites it with a plain store.
    let body = |set: &str, wait: &str| {
        format!(
            "setp.ne.u32 %p0, %r1, 0;\n@%p0 bra WAIT;\n{set}\nbra END;\nWAIT:\n{wait}\nsetp.eq.u32 %p2, %r3, 0;\n@%p2 bra WAIT;\n\
             st.global.u32 [%rd0], 0;\nEND:\n"
        )
    };
    let load = "ld.acquire.gpu.global.u32 %r3, [%rd0];";
    let (release, fenced) =
        ("st.release.gpu.global.u32 [%rd0], 1;", "membar.gl;\nst.relaxed.gpu.global.u32 [%rd0], 1;");
    let relaxed = "st.relaxed.gpu.global.u32 [%rd0], 1;";
    twins(&body(relaxed, load), &body(release, load), 2, 1, "st.relaxed.gpu.global.u32", "st.global.u32");
    for set in
        [fenced, "membar.gl;\natom.global.add.u32 %r4, [%rd0], 1;", "atom.release.gpu.global.add.u32 %r4, [%rd0], 1;"]
    {
        for (threads, seed) in [(1, 0), (1, 9), (2, 0), (2, 5)] {
            assert_eq!(races(&go(&body(set, load), 2, 1, threads, seed)), [], "{set}");
        }
    }
}

#[test]
fn words_that_say_themselves_whether_they_are_there() {
    // CTA 0 empties a word and counts itself, then writes it and another, without a fence. CTA 1 has seen the count, and then the later word: it waits for the earlier one, too.
    let body = |empty: &str, count: &str, late: &str| {
        let wait = |at: u32| {
            format!(
                "AT{at}:\nld.relaxed.gpu.global.u32 %r3, [%rd0+{at}];\nsetp.ne.u32 %p2, %r3, 5;\n@%p2 bra AT{at};\n"
            )
        };
        format!(
            "setp.ne.u32 %p0, %r1, 0;\n@%p0 bra WAIT;\n{empty}\n{count}\n{late}\nst.relaxed.gpu.global.u32 [%rd0+32], 5;\n\
             st.relaxed.gpu.global.u32 [%rd0+48], 5;\nbra END;\nWAIT:\nld.acquire.gpu.global.u32 %r3, [%rd0];\nsetp.eq.u32 %p2, %r3, 0;\n@%p2 bra WAIT;\n{}{}END:\n",
            wait(48),
            wait(32)
        )
    };
    let (empty, count) = ("st.relaxed.gpu.global.u32 [%rd0+32], 0;", "red.release.gpu.global.add.u32 [%rd0], 1;");
    let right = body(empty, count, "");
    for (threads, seed) in [(1, 0), (1, 9), (2, 0), (2, 5)] {
        assert_eq!(races(&go(&right, 2, 1, threads, seed)), []);
    }
    // Never emptied: a first look may find anything. Emptied behind the count: the look may be earlier still.
    for fault in [body("", count, ""), body("", count, empty)] {
        twins(&fault, &right, 2, 1, "st.relaxed.gpu.global.u32", "ld.relaxed.gpu.global.u32");
    }
}

#[test]
fn every_reader_of_a_word_that_is_written_later_counts() {
    // CTAs 0 to 4 read word 8 and count themselves; CTA 5 waits for `n` of them and writes the word. Word 9 is written first, so that the
    // buffer is known to be one that is written.
    let body = |n: u32, skip: u32| {
        format!(
            "add.u32 %r2, %r1, 16;\n{}st.global.u32 [%rd2], %r1;\nsetp.eq.u32 %p0, %r1, 5;\n@%p0 bra WRITE;\nld.global.u32 %r63, [%rd0+32];\nmembar.gl;\n\
             setp.eq.u32 %p1, %r1, {skip};\n@!%p1 red.global.add.u32 [%rd0], 1;\nbra END;\n\
             WRITE:\nld.acquire.gpu.global.u32 %r3, [%rd0];\nsetp.lt.u32 %p2, %r3, {n};\n@%p2 bra WRITE;\nst.global.u32 [%rd0+32], 1;\nEND:\n",
            word("%r2")
        )
    };
    for forgotten in 0..5 {
        twins(&body(4, forgotten), &body(5, 99), 6, 1, "st.global.u32", "ld.global.u32");
    }
}

#[test]
fn what_comes_between_two_atomics_of_a_cta_is_tried() {
    // Each CTA reads a counter, adds one and writes it back, with strong accesses: right if nobody comes in between.
    let body = "ld.relaxed.gpu.global.u32 %r2, [%rd0];\nadd.u32 %r2, %r2, 1;\nst.relaxed.gpu.global.u32 [%rd0], %r2;\nmov.u32 %r63, %r2;\n";
    let largest = |seed: u64| go(body, 8, 1, 1, seed).words().into_iter().max();
    assert_eq!((largest(0), largest(1)), (Some(8), Some(8)), "in order");
    assert!((2..8).any(|seed| largest(seed) < Some(8)), "no schedule loses an addition");
}

#[test]
fn atomics_race_with_plain_accesses_only() {
    let body = |plain: &str| format!("red.global.add.u32 [%rd0], 1;\n{plain}");
    twins(
        &body("ld.global.u32 %r63, [%rd0];\n"),
        &body("ld.relaxed.gpu.global.u32 %r63, [%rd0];\n"),
        3,
        1,
        "red.global.add.u32",
        "ld.global.u32",
    );
}

#[test]
fn what_a_copy_still_reads_is_not_written() {
    let body = |wait: &str, late: &str| {
        format!(
            ".shared .align 16 .b8 s[16];\ncp.async.cg.shared.global [s], [%rd0], 16;\ncp.async.commit_group;\n{wait}st.global.u32 [%rd0+8], 1;\n{late}"
        )
    };
    let bad = go(&body("", "cp.async.wait_group 0;\n"), 1, 1, 1, 0);
    assert_eq!(bad.kinds(), ["async_in_flight"]);
    assert_eq!(go(&body("cp.async.wait_group 0;\n", ""), 1, 1, 1, 0).kinds(), Vec::<&str>::new());
}
