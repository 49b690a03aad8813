//! Launches that cannot be, limits, what is not supported, determinism, counters.

mod common;
use common::{kernel, module, options, run, run_with};
use warpsmith_machine::{Arg, Contents, End, Launch, Memory, Program, launch};

fn plain() -> Launch {
    Launch { entry: "k".into(), grid: [1; 3], block: [32, 1, 1], cluster: [1; 3], shared_bytes: 0, args: vec![] }
}

#[test]
fn impossible_launches_say_what_is_wrong() {
    let program = Program::load(&kernel("mov.u32 %r1, 0;")).expect("loads");
    let mut memory = Memory::new();
    let a = memory.alloc("a", Contents::Bytes(&[0; 4]));
    let two = vec![Arg::Buffer(a), Arg::Buffer(a)];
    let with = |f: &dyn Fn(&mut Launch)| {
        let mut l = Launch { args: two.clone(), ..plain() };
        f(&mut l);
        l
    };
    for (l, words) in [
        (with(&|l| l.entry = "other".into()), "no entry other"),
        (with(&|l| l.grid = [0, 1, 1]), "grid of 0 x 1 x 1"),
        (with(&|l| l.grid = [1, 70000, 1]), "65535"),
        (with(&|l| l.block = [1025, 1, 1]), "1025 threads"),
        (with(&|l| l.block = [1, 1, 65]), "64 in z"),
        (with(&|l| l.shared_bytes = 200_000), "200000"),
        (with(&|l| l.args = vec![]), "0 arguments"),
        (with(&|l| l.args[0] = Arg::Bytes(vec![1, 2])), "2 bytes"),
        (with(&|l| l.args[0] = Arg::Buffer(warpsmith_machine::BufferId(99))), "does not exist"),
    ] {
        let outcome = launch(&program, &mut memory, &l, &options());
        match outcome.end {
            End::InvalidLaunch { what } => assert!(what.contains(words), "{what:?} does not speak of {words:?}"),
            other => panic!("{words}: {other:?}"),
        }
    }
    assert_eq!(launch(&program, &mut memory, &with(&|_| ()), &options()).end, End::Completed);
    let clusters = launch(&program, &mut memory, &with(&|l| l.cluster = [2, 1, 1]), &options());
    assert!(matches!(clusters.end, End::Unsupported { .. }));
}

#[test]
fn launch_bounds_hold() {
    let text = module(".visible .entry k()\n.maxntid 64, 1, 1\n{\nret;\n}");
    let program = Program::load(&text).expect("loads");
    assert_eq!(program.entries()[0].max_threads, Some(64));
    for (threads, fine) in [(64, true), (65, false)] {
        let l = Launch { block: [threads, 1, 1], ..plain() };
        let end = launch(&program, &mut Memory::new(), &l, &options()).end;
        assert_eq!(end == End::Completed, fine, "{end:?}");
    }
}

#[test]
fn what_the_machine_does_not_have_is_named() {
    for (body, what) in [
        ("tex.1d.v4.f32.s32 {%f0, %f1, %f2, %f3}, [%rd0, {%r0}];", "tex.1d"),
        ("add.oops.f32 %f0, %f1, %f2;", "add.oops.f32"),
        ("vset.u32.u32.lt %r1, %r2, %r3;", "vset.u32"),
    ] {
        let r = run(&kernel(body), &[0; 4], 4, 32);
        match &r.outcome.end {
            End::Unsupported { what: text, site: Some(site) } => {
                assert!(text.contains(what) && site.ptx_line > 0, "{text}")
            }
            other => panic!("{body}: {other:?}"),
        }
        assert_eq!(r.outcome.counters.warp_instructions, 0, "nothing runs before it is refused");
    }
    // Another entry of the module may have it.
    let text =
        kernel("mov.u32 %r1, 0;") + ".visible .entry other()\n{\n.reg .b32 %r<2>;\nfrobnicate.b32 %r1, %r1;\nret;\n}\n";
    assert_eq!(run(&text, &[0; 4], 4, 32).outcome.end, End::Completed);
}

#[test]
fn an_endless_loop_reaches_the_limit() {
    let mut o = options();
    o.max_instructions = 10_000;
    let r = run_with(&kernel("LOOP:\nbra LOOP;"), &[0; 4], 4, 4, 64, 0, &o);
    assert_eq!(r.outcome.end, End::LimitReached { what: "instructions", limit: 10_000 });
}

#[test]
fn text_that_is_no_ptx_is_an_error_with_its_line() {
    let e = Program::load(".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k( {\n").expect_err("no PTX");
    assert!(e.line >= 4, "{e}");
}

#[test]
fn outcomes_do_not_depend_on_the_number_of_threads() {
    // Blocks 5 and 9 read beyond the input; block 5's finding is the one that counts.
    let body = "mov.u32 %r1, %ctaid.x;\nsetp.eq.u32 %p0, %r1, 5;\nsetp.eq.u32 %p1, %r1, 9;\nor.pred %p2, %p0, %p1;\nmov.u64 %rd2, %rd0;\nselp.u32 %r2, 4096, 0, %p2;\n\
                cvt.u64.u32 %rd3, %r2;\nadd.u64 %rd2, %rd0, %rd3;\nld.global.u32 %r63, [%rd2];\nmad.lo.u32 %r3, %r1, 32, %r0;\nmul.wide.u32 %rd30, %r3, 4;\n\
                add.u64 %rd31, %rd1, %rd30;\nst.global.u32 [%rd31], %r63;";
    let mut all = Vec::new();
    for threads in [1, 2, 5] {
        let mut o = options();
        o.threads = threads;
        let r = run_with(&kernel(body), &[1; 4], 16 * 128, 16, 32, 0, &o);
        assert_eq!(r.outcome.end, End::Faulted);
        assert_eq!(r.outcome.findings[0].cta, [5, 0, 0]);
        all.push((r.outcome.end, r.outcome.findings));
    }
    assert!(all.windows(2).all(|w| w[0] == w[1]));
}

#[test]
fn counters_say_what_ran() {
    let body = "setp.gt.u32 %p0, %r0, 100;\n@%p0 bra NEVER;\nex2.approx.f32 %f0, 0f3F800000;\nbra END;\nNEVER:\nmov.u32 %r1, 1;\nEND:";
    let r = run(&kernel(body), &[0; 4], 4, 48);
    let c = &r.outcome.counters;
    assert_eq!((c.static_instructions, c.covered_instructions), (9, 8));
    assert_eq!(c.warp_instructions, 16);
    assert_eq!(c.lane_instructions, 8 * 48);
    assert_eq!(c.by_mnemonic["bra"], 4);
    assert_eq!(c.approximate["ex2.approx.f32"], 2);
}

#[test]
fn entries_are_listed_with_their_parameters() {
    let text = module(
        ".visible .entry k(.param .u64 .ptr .global .align 4 p, .param .align 4 .b8 s[12], .param .f32 x)\n{\n.shared .align 16 .b8 a[20];\n.reg .b32 %r<2>;\nmov.u32 %r1, a;\nret;\n}",
    );
    let e = Program::load(&text).expect("loads").entries();
    assert_eq!(e.len(), 1);
    let shown: Vec<_> = e[0].params.iter().map(|p| (p.name.as_str(), p.bytes, p.is_pointer_sized)).collect();
    assert_eq!(shown, [("p", 8, true), ("s", 12, false), ("x", 4, false)]);
    assert_eq!(e[0].static_shared_bytes, 20);
}

#[test]
fn a_shape_of_any_size_is_refused_at_once() {
    let body = "wmma.load.a.sync.aligned.row.m4000000000n16k4000000000.f16 {%r1, %r2}, [%rd0], 16;";
    let r = run(&kernel(body), &[0; 4], 4, 32);
    assert!(matches!(&r.outcome.end, End::Unsupported { what, .. } if what.contains("shape")), "{:?}", r.outcome.end);
}

#[test]
fn missing_operands_are_no_panic() {
    for body in [
        "cvt.rn.satfinite.e4m3x2.f16x2 %h1;",
        "cvt.rn.f16x2.f32 %r1;",
        "atom.global.add.u32 %r1;",
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%r1};",
    ] {
        let r = run(&kernel(body), &[0; 4], 4, 32);
        assert!(matches!(r.outcome.end, End::Unsupported { .. }), "{body}: {:?}", r.outcome.end);
    }
}
