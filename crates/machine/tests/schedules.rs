//! Orders of CTAs and copies: CTAs that wait for each other, and results that depend on who comes first.

mod common;
use common::{kernel, options, run_with};
use warpsmith_machine::api::Severity;
use warpsmith_machine::{Arg, Contents, End, Explored, FindingKind, Launch, Memory, Options, Program, Step, explore};

/// Explores `k` on 64 words of zeros and an output of one word for each thread, with `schedules` further schedules.
fn explored(body: &str, grid: u32, block: u32, schedules: u32) -> (Explored, Vec<u8>) {
    let program = Program::load(&kernel(body)).unwrap_or_else(|e| panic!("{e}"));
    let mut memory = Memory::new();
    let (a, b) = (
        memory.alloc("in", Contents::Bytes(&[0; 256])),
        memory.alloc("out", Contents::Bytes(&vec![0; 4 * (grid * block) as usize])),
    );
    let launch = Launch {
        entry: "k".into(),
        grid: [grid, 1, 1],
        block: [block, 1, 1],
        cluster: [1; 3],
        shared_bytes: 0,
        args: vec![Arg::Buffer(a), Arg::Buffer(b)],
    };
    let o = Options { schedules, ..options() };
    let e = explore(&mut memory, &[Step { program: &program, launch: &launch }], &o);
    let out = memory.read(b);
    (e, out)
}

/// CTA n waits until n CTAs have counted themselves, then counts itself.
const CHAIN: &str = "mov.u32 %r1, %ctaid.x;\nWAIT:\nld.acquire.gpu.global.u32 %r2, [%rd0];\nsetp.ne.u32 %p0, %r2, %r1;\n@%p0 bra WAIT;\nmul.wide.u32 %rd2, %r1, 4;\nadd.u64 %rd2, %rd1, %rd2;\n\
                     st.global.u32 [%rd2], %r2;\nadd.u32 %r2, %r2, 1;\nst.release.gpu.global.u32 [%rd0], %r2;\n";

#[test]
fn ctas_may_wait_for_others_in_whatever_order_they_start() {
    for (threads, seed) in [(1, 0), (1, 3), (1, 4), (2, 3), (3, 6)] {
        let o = Options { threads, schedule_seed: seed, ..options() };
        let r = run_with(&kernel(CHAIN), &[0; 4], 4 * 24, 24, 1, 0, &o);
        assert_eq!((&r.outcome.end, r.kinds()), (&End::Completed, vec![]), "{threads} threads, seed {seed}");
        assert_eq!(r.words(), (0..24).collect::<Vec<_>>());
    }
    // A barrier over the grid: all CTAs count themselves, then wait for the last.
    let barrier = "atom.add.release.gpu.global.u32 %r2, [%rd0], 1;\nWAIT:\nld.acquire.gpu.global.u32 %r2, [%rd0];\nsetp.lt.u32 %p0, %r2, 40;\n@%p0 bra WAIT;\n";
    let r = run_with(&kernel(barrier), &[0; 4], 4, 40, 1, 0, &Options { threads: 2, ..options() });
    assert_eq!((&r.outcome.end, r.kinds()), (&End::Completed, vec![]));
}

#[test]
fn a_wait_may_be_long() {
    // The CTA that is started first waits for the last of 3,000, then meets at a barrier.
    let last = "mov.u32 %r1, %ctaid.x;\nsetp.ne.u32 %p0, %r1, 2999;\n@%p0 bra SET;\nWAIT:\nld.acquire.gpu.global.u32 %r2, [%rd0];\nsetp.eq.u32 %p1, %r2, 0;\n@!%p1 bra MET;\nnanosleep.u32 50;\nbra WAIT;\n\
                MET:\nbar.sync 0;\nbra DONE;\nSET:\nsetp.ne.u32 %p0, %r1, 0;\n@%p0 bra DONE;\nmov.u32 %r2, 1;\nst.release.gpu.global.u32 [%rd0], %r2;\nDONE:\n";
    for threads in [1, 2, 5] {
        let o = Options { threads, schedule_seed: 3, ..options() };
        let r = run_with(&kernel(last), &[0; 4], 4, 3000, 32, 0, &o);
        assert_eq!((&r.outcome.end, r.kinds()), (&End::Completed, vec![]), "{threads} threads");
    }
    // Barriers that follow each other, with nothing between them.
    let barriers =
        "mov.u32 %r1, 0;\nNEXT:\nbar.sync 0;\nadd.u32 %r1, %r1, 1;\nsetp.lt.u32 %p0, %r1, 5000;\n@%p0 bra NEXT;\n";
    let r = run_with(&kernel(barriers), &[0; 4], 4, 1, 64, 0, &options());
    assert_eq!((&r.outcome.end, r.kinds()), (&End::Completed, vec![]));
    // A barrier between two looks at the flag: the CTA that sets it is started later.
    let met = "mov.u32 %r1, %ctaid.x;\nsetp.eq.u32 %p0, %r1, 0;\n@%p0 bra SET;\nWAIT:\nbar.sync 0;\nld.acquire.gpu.global.u32 %r2, [%rd0];\nsetp.eq.u32 %p1, %r2, 0;\n@%p1 bra WAIT;\nbra DONE;\n\
               SET:\nmov.u32 %r2, 1;\nst.release.gpu.global.u32 [%rd0], %r2;\nDONE:\n";
    let r = run_with(&kernel(met), &[0; 4], 4, 1500, 64, 0, &Options { schedule_seed: 3, ..options() });
    assert_eq!((&r.outcome.end, r.kinds()), (&End::Completed, vec![]), "{:?}", r.outcome.findings);
}

#[test]
fn ctas_that_wait_in_vain_are_a_deadlock_at_the_poll() {
    let vain = CHAIN.replace("setp.ne.u32 %p0, %r2, %r1", "add.u32 %r3, %r1, 1;\nsetp.ne.u32 %p0, %r2, %r3");
    for threads in [1, 2] {
        let r = run_with(&kernel(&vain), &[0; 4], 4 * 6, 6, 1, 0, &Options { threads, ..options() });
        assert_eq!((&r.outcome.end, r.kinds()), (&End::Faulted, vec!["deadlock"]), "{:?}", r.outcome.findings);
        assert!(r.outcome.findings[0].message.contains("polled"), "{}", r.outcome.findings[0].message);
    }
    // Within a CTA: a flag in shared memory that nobody sets.
    let shared = ".shared .align 4 .b8 s[4];\nst.volatile.shared.u32 [s], 0;\nbar.sync 0;\nWAIT:\nld.volatile.shared.u32 %r2, [s];\nsetp.eq.u32 %p0, %r2, 0;\n@%p0 bra WAIT;\n";
    let r = run_with(&kernel(shared), &[0; 4], 4, 1, 64, 0, &options());
    assert_eq!((&r.outcome.end, r.kinds()), (&End::Faulted, vec!["deadlock"]));
}

#[test]
fn a_wait_that_sleeps_between_its_questions_is_a_deadlock_too() {
    // A barrier of two arrivals has one; each round of the wait asks twice and sleeps.
    let body = ".shared .align 8 .b64 bar;\nsetp.ne.u32 %p0, %r0, 0;\n@%p0 bra DONE;\nmbarrier.init.shared.b64 [bar], 2;\n\
                mbarrier.arrive.shared.b64 %rd2, [bar];\nAGAIN:\nmbarrier.test_wait.shared.b64 %p1, [bar], %rd2;\n@%p1 bra DONE;\n\
                mbarrier.test_wait.shared.b64 %p1, [bar], %rd2;\n@%p1 bra DONE;\nnanosleep.u32 32;\nbra AGAIN;\nDONE:\n";
    let r = run_with(&kernel(body), &[0; 4], 4, 4, 32, 0, &options());
    assert_eq!((&r.outcome.end, r.kinds()), (&End::Faulted, vec!["deadlock"]), "{:?}", r.outcome.findings);
}

#[test]
fn what_depends_on_the_order_is_found() {
    // Who comes first takes ticket 0: strong accesses only, so no race is there to be found.
    let ticket = "atom.global.add.u32 %r1, [%rd0], 1;\nmov.u32 %r2, %ctaid.x;\nmul.wide.u32 %rd2, %r2, 4;\nadd.u64 %rd2, %rd1, %rd2;\nst.global.u32 [%rd2], %r1;\n";
    let (e, _) = explored(ticket, 5, 1, 2);
    let f = &e.outcomes[0].findings;
    assert_eq!(
        f.iter().map(|f| (f.kind, f.severity)).collect::<Vec<_>>(),
        [(FindingKind::ScheduleDependent, Severity::Error)]
    );
    assert_eq!(f[0].place.as_ref().and_then(|p| p.object.as_deref()), Some("out"));
    assert_eq!(explored(ticket, 5, 1, 0).0.outcomes[0].findings, [], "one schedule shows nothing");
    assert_eq!(explored(ticket, 1, 1, 3).0.schedules, 4);
    // Sums of integers do not care; those of floating-point numbers may, which is a note.
    let sum = |op: &str, value: &str| {
        format!(
            "mov.u32 %r1, %ctaid.x;\nsetp.eq.u32 %p0, %r1, 0;\nselp.f32 %f1, 0f4B800000, 0f3F800000, %p0;\nred.global.add.{op} [%rd0], {value};\n"
        )
    };
    assert_eq!(explored(&sum("u32", "%r1"), 40, 1, 3).0.outcomes[0].findings, []);
    let (e, _) = explored(&sum("f32", "%f1"), 40, 1, 3);
    let f = &e.outcomes[0].findings;
    assert_eq!(
        f.iter().map(|f| (f.kind, f.severity)).collect::<Vec<_>>(),
        [(FindingKind::ScheduleDependent, Severity::Note)]
    );
}

#[test]
fn the_first_schedule_leaves_its_memory() {
    let (e, out) = explored(
        "mov.u32 %r1, %ctaid.x;\nmul.wide.u32 %rd2, %r1, 4;\nadd.u64 %rd2, %rd1, %rd2;\nst.global.u32 [%rd2], %r1;\n",
        3,
        1,
        2,
    );
    assert_eq!((e.schedules, out), (3, vec![0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0]));
}
