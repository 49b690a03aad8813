//! Instructions in which lanes act together, divergence, calls.

mod common;
use common::{REGISTERS, kernel, lanes, module, options, run, run_with};
use warpsmith_machine::End;

fn expect(body: &str, f: impl Fn(u32) -> u32) {
    assert_eq!(lanes(body), (0..32).map(f).collect::<Vec<_>>(), "{body}");
}

#[test]
fn what_orders_nothing_here_is_passed_over() {
    for text in [
        "fence.proxy.async;",
        "fence.proxy.async.shared::cta;",
        "fence.proxy.alias;",
        "fence.mbarrier_init.release.cluster;",
        "griddepcontrol.wait;",
        "setmaxnreg.inc.sync.aligned.u32 240;",
    ] {
        assert_eq!(common::value(&format!("mov.u32 %r63, 5;\n{text}"), false), 5, "{text}");
    }
}

#[test]
fn shuffles() {
    expect("shfl.sync.bfly.b32 %r63, %r0, 1, 31, -1;", |l| l ^ 1);
    expect("shfl.sync.down.b32 %r63, %r0, 4, 31, -1;", |l| if l + 4 < 32 { l + 4 } else { l });
    expect("shfl.sync.up.b32 %r63, %r0, 4, 0, -1;", |l| if l >= 4 { l - 4 } else { l });
    expect("shfl.sync.idx.b32 %r63, %r0, 7, 31, -1;", |_| 7);
    // Segments of 8 lanes: c = (32 - 8) << 8 | 31.
    expect("shfl.sync.idx.b32 %r63, %r0, 2, 6175, -1;", |l| l / 8 * 8 + 2);
    expect("shfl.sync.down.b32 %r1|%p0, %r0, 4, 6175, -1;\nselp.u32 %r63, %r1, 99, %p0;", |l| {
        if l % 8 < 4 { l + 4 } else { 99 }
    });
}

#[test]
fn votes_matches_and_reductions() {
    let odd = "and.b32 %r1, %r0, 1;\nsetp.eq.s32 %p0, %r1, 1;\n";
    expect(&format!("{odd}vote.sync.ballot.b32 %r63, %p0, -1;"), |_| 0xAAAA_AAAA);
    expect(
        &format!(
            "{odd}vote.sync.any.pred %p1, %p0, -1;\nvote.sync.all.pred %p2, %p0, -1;\nselp.u32 %r2, 1, 0, %p1;\nselp.u32 %r63, 5, %r2, %p2;"
        ),
        |_| 1,
    );
    expect(&format!("{odd}vote.sync.uni.pred %p1, !%p0, -1;\nselp.u32 %r63, 1, 0, %p1;"), |_| 0);
    expect("and.b32 %r1, %r0, 3;\nmatch.any.sync.b32 %r63, %r1, -1;", |l| 0x1111_1111 << (l % 4));
    expect("mov.u32 %r1, 5;\nmatch.all.sync.b32 %r2|%p0, %r1, -1;\nselp.u32 %r63, %r2, 0, %p0;", |_| u32::MAX);
    expect("redux.sync.add.s32 %r63, %r0, -1;", |_| 496);
    expect("sub.s32 %r1, %r0, 5;\nredux.sync.min.s32 %r63, %r1, -1;", |_| -5i32 as u32);
    expect("sub.s32 %r1, %r0, 5;\nredux.sync.max.u32 %r63, %r1, -1;", |_| u32::MAX);
    expect("redux.sync.xor.b32 %r63, %r0, -1;", |_| 0);
    expect("elect.sync %r1|%p0, -1;\nselp.u32 %r63, 1, 0, %p0;", |l| u32::from(l == 0));
    expect("activemask.b32 %r63;", |_| u32::MAX);
}

#[test]
fn lanes_that_part_come_together_again() {
    expect(
        "and.b32 %r1, %r0, 1;\nsetp.eq.s32 %p0, %r1, 1;\n@%p0 bra ODD;\nmov.u32 %r2, 10;\nbra.uni JOIN;\nODD:\nmov.u32 %r2, 20;\n\
         JOIN:\nactivemask.b32 %r3;\nsetp.eq.s32 %p1, %r3, -1;\nselp.u32 %r63, %r2, 0, %p1;",
        |l| if l % 2 == 1 { 20 } else { 10 },
    );
    // Each lane loops as often as its number says.
    expect(
        "mov.u32 %r1, 0;\nmov.u32 %r2, 0;\nLOOP:\nadd.u32 %r2, %r2, %r1;\nadd.u32 %r1, %r1, 1;\nsetp.le.u32 %p0, %r1, %r0;\n@%p0 bra LOOP;\n\
         mov.u32 %r63, %r2;",
        |l| l * (l + 1) / 2,
    );
    expect(
        "and.b32 %r1, %r0, 3;\nts: .branchtargets A, B, C, D;\nbrx.idx %r1, ts;\nA: mov.u32 %r63, 1;\nbra E;\nB: mov.u32 %r63, 2;\nbra E;\n\
         C: mov.u32 %r63, 3;\nbra E;\nD: mov.u32 %r63, 4;\nE:\n",
        |l| l % 4 + 1,
    );
}

#[test]
fn a_lane_may_wait_for_another_of_its_warp() {
    // Lane 1 spins, at a lower program counter, until lane 0 has written.
    let body = "mov.u32 %r63, 0;\nsetp.eq.u32 %p0, %r0, 0;\n@%p0 bra WRITE;\nsetp.ne.u32 %p1, %r0, 1;\n@%p1 bra DONE;\n\
                SPIN:\nld.volatile.shared.u32 %r2, [flag];\nsetp.eq.u32 %p2, %r2, 0;\n@%p2 bra SPIN;\nmov.u32 %r63, %r2;\nbra DONE;\n\
                WRITE:\nst.volatile.shared.u32 [flag], 7;\nDONE:\n";
    let init = "st.shared.u32 [flag], 0;\nbar.sync 0;\n";
    let store = "mul.wide.u32 %rd30, %r0, 4;\nadd.u64 %rd31, %rd1, %rd30;\nst.global.u32 [%rd31], %r63;";
    let text = kernel(&format!(".shared .align 4 .b8 flag[4];\n{init}{body}{store}"));
    let r = run(&text, &[0; 4], 128, 32);
    assert_eq!((&r.outcome.end, r.kinds()), (&End::Completed, vec![]), "{:?}", r.outcome.findings);
    assert_eq!(r.words()[1], 7);
}

#[test]
fn functions_take_and_return_values() {
    let text = module(&format!(
        ".func (.param .b32 back) triangle(.param .b32 n)\n{{\n{REGISTERS}ld.param.u32 %r1, [n];\nsetp.eq.u32 %p0, %r1, 0;\nmov.u32 %r2, 0;\n@%p0 bra END;\n\
         sub.u32 %r3, %r1, 1;\n{{\n.param .b32 arg;\n.param .b32 ret0;\nst.param.b32 [arg], %r3;\ncall.uni (ret0), triangle, (arg);\nld.param.b32 %r4, [ret0];\n}}\n\
         add.u32 %r2, %r4, %r1;\nEND:\nst.param.b32 [back], %r2;\nret;\n}}\n\
         .visible .entry k(.param .u64 in, .param .u64 out)\n{{\n{REGISTERS}ld.param.u64 %rd1, [out];\nmov.u32 %r0, %tid.x;\n{{\n.param .b32 arg;\n.param .b32 ret0;\n\
         st.param.b32 [arg], %r0;\ncall.uni (ret0), triangle, (arg);\nld.param.b32 %r63, [ret0];\n}}\nmul.wide.u32 %rd30, %r0, 4;\nadd.u64 %rd31, %rd1, %rd30;\n\
         st.global.u32 [%rd31], %r63;\nret;\n}}"
    ));
    let r = run(&text, &[0; 4], 128, 32);
    assert_eq!(r.outcome.end, End::Completed, "{:?}", r.outcome.findings);
    assert_eq!(r.outcome.findings, []);
    assert_eq!(r.words(), (0..32).map(|l| l * (l + 1) / 2).collect::<Vec<_>>());
}

#[test]
fn a_function_reads_its_parameters_through_their_address() {
    // As clang writes it without optimisation: a structure by value.
    let text = module(&format!(
        ".func (.param .align 4 .b8 back[8]) swap(.param .align 4 .b8 v[8])\n{{\n{REGISTERS}mov.b64 %rd1, v;\nld.param.b32 %r1, [%rd1];\n\
         ld.param.b32 %r2, [%rd1+4];\nst.param.b32 [back+0], %r2;\nst.param.b32 [back+4], %r1;\nret;\n}}\n\
         .visible .entry k(.param .u64 in, .param .u64 out)\n{{\n{REGISTERS}ld.param.u64 %rd1, [out];\nmov.u32 %r0, %tid.x;\n\
         {{\n.param .align 4 .b8 arg[8];\n.param .align 4 .b8 ret0[8];\nst.param.b32 [arg+0], %r0;\nst.param.b32 [arg+4], 7;\ncall.uni (ret0), swap, (arg);\n\
         ld.param.b32 %r1, [ret0+0];\nld.param.b32 %r2, [ret0+4];\n}}\nmad.lo.u32 %r63, %r1, 100, %r2;\nmul.wide.u32 %rd30, %r0, 4;\n\
         add.u64 %rd31, %rd1, %rd30;\nst.global.u32 [%rd31], %r63;\nret;\n}}"
    ));
    let r = run(&text, &[0; 4], 128, 32);
    assert_eq!((&r.outcome.end, r.kinds()), (&End::Completed, vec![]), "{:?}", r.outcome.findings);
    assert_eq!(r.words(), (0..32).map(|l| 700 + l).collect::<Vec<_>>());
}

#[test]
fn calls_in_a_loop_need_no_more_memory_than_one() {
    // Odd lanes call f, even ones g, which both have something on the stack; now and then a lane is behind.
    let f = |name: &str, add: u32| {
        format!(
            ".func (.param .b32 back) {name}(.param .b32 n)\n{{\n{REGISTERS}.local .align 4 .b8 own[64];\nld.param.u32 %r1, [n];\nst.local.u32 [own+8], %r1;\n\
             ld.local.u32 %r2, [own+8];\nadd.u32 %r2, %r2, {add};\nst.param.b32 [back], %r2;\nret;\n}}\n"
        )
    };
    let call = |name: &str| {
        format!(
            "{{\n.param .b32 arg;\n.param .b32 ret0;\nst.param.b32 [arg], %r63;\ncall.uni (ret0), {name}, (arg);\nld.param.b32 %r63, [ret0];\n}}\n"
        )
    };
    let text = module(&format!(
        "{}{}.visible .entry k(.param .u64 in, .param .u64 out)\n{{\n{REGISTERS}ld.param.u64 %rd1, [out];\nmov.u32 %r0, %tid.x;\nmov.u32 %r63, 0;\nmov.u32 %r1, 0;\n\
         and.b32 %r2, %r0, 1;\nsetp.eq.u32 %p0, %r2, 0;\nLOOP:\n@%p0 bra EVEN;\n{}bra NEXT;\nEVEN:\n{}NEXT:\nadd.u32 %r1, %r1, 1;\nsetp.lt.u32 %p1, %r1, 5000;\n\
         @%p1 bra LOOP;\nmul.wide.u32 %rd30, %r0, 4;\nadd.u64 %rd31, %rd1, %rd30;\nst.global.u32 [%rd31], %r63;\nret;\n}}",
        f("f", 1),
        f("g", 2),
        call("f"),
        call("g")
    ));
    let r = run(&text, &[0; 4], 128, 32);
    assert_eq!((&r.outcome.end, r.kinds()), (&End::Completed, vec![]), "{:?}", r.outcome.findings);
    assert_eq!(r.words(), (0..32).map(|l| if l % 2 == 0 { 10_000 } else { 5000 }).collect::<Vec<_>>());
}

#[test]
fn calls_through_a_pointer_reach_the_right_function() {
    let f = |name: &str, add: u32| {
        format!(
            ".func (.param .b32 back) {name}(.param .b32 n)\n{{\n{REGISTERS}ld.param.u32 %r1, [n];\nadd.u32 %r2, %r1, {add};\nst.param.b32 [back], %r2;\nret;\n}}\n"
        )
    };
    let text = module(&format!(
        "{}{}.visible .entry k(.param .u64 in, .param .u64 out)\n{{\n{REGISTERS}ld.param.u64 %rd1, [out];\nmov.u32 %r0, %tid.x;\nmov.u64 %rd2, f;\nmov.u64 %rd3, g;\n\
         and.b32 %r1, %r0, 1;\nsetp.eq.u32 %p0, %r1, 0;\nselp.b64 %rd4, %rd2, %rd3, %p0;\n{{\n.param .b32 arg;\n.param .b32 ret0;\nst.param.b32 [arg], %r0;\n\
         proto: .callprototype (.param .b32 _) _ (.param .b32 _);\ncall (ret0), %rd4, (arg), proto;\nld.param.b32 %r63, [ret0];\n}}\nmul.wide.u32 %rd30, %r0, 4;\n\
         add.u64 %rd31, %rd1, %rd30;\nst.global.u32 [%rd31], %r63;\nret;\n}}",
        f("f", 100),
        f("g", 200)
    ));
    let r = run(&text, &[0; 4], 128, 32);
    assert_eq!(r.outcome.end, End::Completed, "{:?}", r.outcome.findings);
    assert_eq!(r.words(), (0..32).map(|l| l + if l % 2 == 0 { 100 } else { 200 }).collect::<Vec<_>>());
}

#[test]
fn lanes_that_call_one_after_the_other_meet_in_the_function() {
    // Lane 0 goes round a loop, so that the others are in the function first, where they wait for it. What a lane has there is its own.
    let program = |meet: &str, before: &str| {
        module(&format!(
            ".func (.param .b32 back) f(.param .b32 n)\n{{\n{REGISTERS}.local .align 4 .b8 own[4];\nmov.u32 %r0, %tid.x;\nsetp.ne.u32 %p0, %r0, 0;\n\
             ld.param.u32 %r1, [n];\n{before}st.local.u32 [own], %r1;\n{meet}\nld.local.u32 %r3, [own];\nadd.u32 %r2, %r2, %r3;\nst.param.b32 [back], %r2;\nret;\n}}\n\
             .visible .entry k(.param .u64 in, .param .u64 out)\n{{\n{REGISTERS}ld.param.u64 %rd1, [out];\nmov.u32 %r0, %tid.x;\nmov.u32 %r1, 0;\n\
             setp.ne.u32 %p0, %r0, 0;\n@%p0 bra MEET;\nLATE:\nadd.u32 %r1, %r1, 1;\nsetp.lt.u32 %p1, %r1, 2000;\n@%p1 bra LATE;\n\
             MEET:\n{{\n.param .b32 arg;\n.param .b32 ret0;\nst.param.b32 [arg], %r0;\ncall.uni (ret0), f, (arg);\nld.param.b32 %r63, [ret0];\n}}\n\
             mul.wide.u32 %rd30, %r0, 4;\nadd.u64 %rd31, %rd1, %rd30;\nst.global.u32 [%rd31], %r63;\nret;\n}}"
        ))
    };
    for (meet, value) in [
        ("shfl.sync.bfly.b32 %r2, %r1, 1, 31, -1;", (|l| l ^ 1) as fn(u32) -> u32),
        ("bar.red.popc.u32 %r2, 0, %p0;", |_| 31),
        ("bar.warp.sync -1;\nredux.sync.add.s32 %r2, %r1, -1;", |_| 496),
    ] {
        let r = run(&program(meet, ""), &[0; 4], 128, 32);
        assert_eq!((&r.outcome.end, r.kinds()), (&End::Completed, vec![]), "{meet}: {:#?}", r.outcome.findings);
        assert_eq!(r.words(), (0..32).map(|l| value(l) + l).collect::<Vec<_>>(), "{meet}");
    }
    // A register and a word of the depot that only the others have written.
    for before in [
        "@%p0 mov.u32 %r5, %r1;\nadd.u32 %r1, %r1, %r5;\n",
        "@%p0 st.local.u32 [own], %r1;\nld.local.u32 %r5, [own];\nadd.u32 %r1, %r1, %r5;\n",
    ] {
        let r = run(&program("mov.u32 %r2, 0;", before), &[0; 4], 128, 32);
        assert_eq!(r.kinds(), ["uninitialized_read"], "{before}: {:#?}", r.outcome.findings);
        assert_eq!(r.outcome.findings[0].lane, Some(0), "{before}");
    }
}

#[test]
fn what_only_a_table_of_functions_names_need_not_be_there() {
    // The destructor that frees, of a class with virtual functions whose objects lie on the stack.
    let program = |called: &str| {
        module(&format!(
            ".extern .func free(.param .b64 p)\n;\n\
             .func (.param .b32 back) f(.param .b32 n)\n{{\n{REGISTERS}ld.param.u32 %r1, [n];\nadd.u32 %r1, %r1, 5;\nst.param.b32 [back], %r1;\nret;\n}}\n\
             .func (.param .b32 back) gone(.param .b32 n)\n{{\n{REGISTERS}mov.u64 %rd1, 0;\n{{\n.param .b64 p0;\nst.param.b64 [p0], %rd1;\ncall.uni free, (p0);\n}}\n\
             st.param.b32 [back], 0;\nret;\n}}\n\
             .global .align 8 .u64 table[2] = {{f, gone}};\n\
             .visible .entry k(.param .u64 in, .param .u64 out)\n{{\n{REGISTERS}ld.param.u64 %rd1, [out];\nmov.u32 %r0, %tid.x;\nld.global.u64 %rd4, [table+{called}];\n{{\n\
             .param .b32 arg;\n.param .b32 ret0;\nst.param.b32 [arg], %r0;\nproto: .callprototype (.param .b32 _) _ (.param .b32 _);\n\
             call (ret0), %rd4, (arg), proto;\nld.param.b32 %r63, [ret0];\n}}\nmul.wide.u32 %rd30, %r0, 4;\nadd.u64 %rd31, %rd1, %rd30;\nst.global.u32 [%rd31], %r63;\nret;\n}}"
        ))
    };
    let r = run(&program("0"), &[0; 4], 128, 32);
    assert_eq!((&r.outcome.end, r.kinds()), (&End::Completed, vec![]), "{:?}", r.outcome.findings);
    assert_eq!(r.words(), (5..37).collect::<Vec<_>>());
    let end = run(&program("8"), &[0; 4], 128, 32).outcome.end;
    assert!(matches!(&end, End::Unsupported { what, .. } if what.contains("free")), "{end:?}");
}

#[test]
fn barriers_count_vote_and_pair() {
    // Each thread reads what another warp wrote; barrier reductions over all threads.
    let body = ".shared .align 4 .b8 s[1024];\nmul.lo.u32 %r1, %r0, 4;\nmov.u32 %r2, s;\nadd.u32 %r3, %r2, %r1;\nst.shared.u32 [%r3], %r0;\nbar.sync 0;\n\
                sub.u32 %r4, 255, %r0;\nmul.lo.u32 %r5, %r4, 4;\nadd.u32 %r6, %r2, %r5;\nld.shared.u32 %r7, [%r6];\nsetp.lt.u32 %p0, %r0, 100;\n\
                bar.red.popc.u32 %r8, 1, %p0;\nbar.red.and.pred %p1, 2, %p0;\nselp.u32 %r9, 5000, 0, %p1;\nadd.u32 %r63, %r7, %r8;\nadd.u32 %r63, %r63, %r9;\n\
                mul.wide.u32 %rd30, %r0, 4;\nadd.u64 %rd31, %rd1, %rd30;\nst.global.u32 [%rd31], %r63;";
    for seed in [0, 1, 2] {
        let mut o = options();
        o.schedule_seed = seed;
        let r = run_with(&kernel(body), &[0; 4], 1024, 1, 256, 0, &o);
        assert_eq!((&r.outcome.end, r.kinds()), (&End::Completed, vec![]), "{:?}", r.outcome.findings);
        assert_eq!(r.words(), (0..256).map(|t| 255 - t + 100).collect::<Vec<_>>());
    }
}

#[test]
fn a_producer_arrives_and_a_consumer_waits() {
    // Warp 0 fills and arrives, warp 1 waits and reads; the other way round for the next round.
    let body = ".shared .align 4 .b8 s[128];\nmov.u32 %r2, s;\nand.b32 %r1, %r0, 31;\nmul.lo.u32 %r3, %r1, 4;\nadd.u32 %r3, %r2, %r3;\nmov.u32 %r10, 0;\nmov.u32 %r11, 0;\n\
                setp.ge.u32 %p0, %r0, 32;\n@%p0 bra CONSUME;\n\
                PRODUCE:\nsetp.eq.u32 %p1, %r10, 0;\n@%p1 bra FIRST;\nbar.sync 2, 64;\nFIRST:\nadd.u32 %r4, %r10, %r1;\nst.shared.u32 [%r3], %r4;\nbar.arrive 1, 64;\n\
                add.u32 %r10, %r10, 1;\nsetp.lt.u32 %p2, %r10, 4;\n@%p2 bra PRODUCE;\nbra DONE;\n\
                CONSUME:\nbar.sync 1, 64;\nxor.b32 %r5, %r1, 1;\nmul.lo.u32 %r6, %r5, 4;\nadd.u32 %r6, %r2, %r6;\nld.shared.u32 %r7, [%r6];\nadd.u32 %r11, %r11, %r7;\n\
                add.u32 %r10, %r10, 1;\nsetp.ge.u32 %p3, %r10, 4;\n@%p3 bra STORE;\nbar.arrive 2, 64;\nbra CONSUME;\n\
                STORE:\nmul.wide.u32 %rd30, %r1, 4;\nadd.u64 %rd31, %rd1, %rd30;\nst.global.u32 [%rd31], %r11;\nDONE:\n";
    for seed in [0, 5] {
        let mut o = options();
        o.schedule_seed = seed;
        let r = run_with(&kernel(body), &[0; 4], 128, 1, 64, 0, &o);
        assert_eq!((&r.outcome.end, r.kinds()), (&End::Completed, vec![]), "{:#?}", r.outcome.findings);
        assert_eq!(r.words(), (0..32).map(|l: u32| 4 * (l ^ 1) + 6).collect::<Vec<_>>());
    }
}

#[test]
fn mbarriers_count_phases() {
    let program = |init: &str, wait: &str| {
        kernel(&format!(
            ".shared .align 8 .b8 bar[8];\n.shared .align 4 .b8 s[256];\nmov.u32 %r2, s;\nmov.u32 %r9, bar;\nmul.lo.u32 %r1, %r0, 4;\nadd.u32 %r3, %r2, %r1;\n\
             setp.ne.u32 %p0, %r0, 0;\n@%p0 bra READY;\n{init}\nREADY:\nbar.sync 0;\nst.shared.u32 [%r3], %r0;\nmbarrier.arrive.shared.b64 %rd3, [%r9];\n{wait}\
             xor.b32 %r4, %r1, 128;\nadd.u32 %r5, %r2, %r4;\nld.shared.u32 %r63, [%r5];\nmul.wide.u32 %rd30, %r0, 4;\nadd.u64 %rd31, %rd1, %rd30;\nst.global.u32 [%rd31], %r63;"
        ))
    };
    let init = "mbarrier.init.shared.b64 [%r9], 64;";
    for wait in [
        "WAIT:\nmbarrier.test_wait.shared.b64 %p1, [%r9], %rd3;\n@!%p1 bra WAIT;\n",
        "WAIT:\nmbarrier.try_wait.parity.shared::cta.b64 %p1, [%r9], 0;\n@!%p1 bra WAIT;\n",
    ] {
        let r = run(&program(init, wait), &[0; 4], 256, 64);
        assert_eq!((&r.outcome.end, r.kinds()), (&End::Completed, vec![]), "{:#?}", r.outcome.findings);
        assert_eq!(r.words(), (0..64).map(|t| t ^ 32).collect::<Vec<_>>());
    }
    let unwaited = run(&program(init, ""), &[0; 4], 256, 64);
    assert!(unwaited.kinds().contains(&"shared_race"), "{:?}", unwaited.kinds());
    let never = run(
        &program(
            "mbarrier.init.shared.b64 [%r9], 65;",
            "WAIT:\nmbarrier.test_wait.shared.b64 %p1, [%r9], %rd3;\n@!%p1 bra WAIT;\n",
        ),
        &[0; 4],
        256,
        64,
    );
    assert_eq!(never.kinds(), ["deadlock"], "{:?}", never.outcome.end);
    assert_eq!(run(&program("", ""), &[0; 4], 256, 64).kinds(), ["invalid_access"], "used without init");
}

#[test]
fn lanes_that_go_past_a_barrier_and_exit() {
    // `skip`: where odd lanes go instead of to the barrier.
    let body = |skip: &str, behind: &str| {
        format!(
            "mov.u32 %r63, 7;\nand.b32 %r1, %r0, 1;\nsetp.ne.u32 %p0, %r1, 0;\n@%p0 bra {skip};\nbar.sync 0;\nJOIN:\n{behind}"
        )
    };
    let passed = run(&kernel(&body("JOIN", "add.u32 %r63, %r63, 1;\n")), &[0; 4], 256, 64);
    assert_eq!(passed.kinds(), ["barrier_divergence"], "{:#?}", passed.outcome.findings);
    let f = &passed.outcome.findings[0];
    assert!(f.site.opcode.starts_with("bar.sync") && f.message.contains("went on without it"), "{}", f.message);
    assert_eq!(passed.outcome.end, End::Completed, "as on hardware, what has exited is not waited for");
    // Lanes that leave before the barrier, or come to it later, are none.
    let early = body("OUT", "add.u32 %r63, %r63, 1;\n");
    let early = kernel(&early).replace("ret;\n}", "ret;\nOUT:\nret;\n}");
    assert_eq!(run(&early, &[0; 4], 256, 64).kinds(), Vec::<&str>::new());
    let later = "mov.u32 %r4, 0;\nLOOP:\nand.b32 %r1, %r0, 1;\nsetp.ne.u32 %p0, %r1, 0;\n@%p0 bra SLOW;\nbra MEET;\nMEET:\nbar.sync 0;\nadd.u32 %r4, %r4, 1;\n\
                 setp.lt.u32 %p1, %r4, 3;\n@%p1 bra LOOP;\nbra DONE;\nSLOW:\nadd.u32 %r5, %r4, 1;\nbra MEET;\nDONE:\n";
    let r = run(&kernel(later), &[0; 4], 256, 64);
    assert_eq!((r.outcome.end.clone(), r.kinds()), (End::Completed, vec![]), "{:#?}", r.outcome.findings);
}
