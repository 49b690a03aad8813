//! Loads and stores of all spaces and widths, atomics, asynchronous copies, printing.

mod common;
use common::{REGISTERS, kernel, lanes, module, options, run, run_with};
use warpsmith_machine::{AsyncCopies, End};

fn expect(body: &str, f: impl Fn(u32) -> u32) {
    assert_eq!(lanes(body), (0..32).map(f).collect::<Vec<_>>(), "{body}");
}

/// Input bytes 0, 1, 2, ...
fn counting() -> Vec<u8> {
    (0..=255).collect()
}

fn from_input(body: &str) -> Vec<u32> {
    let store = "mul.wide.u32 %rd30, %r0, 4;\nadd.u64 %rd31, %rd1, %rd30;\nst.global.u32 [%rd31], %r63;";
    let r = run(&kernel(&format!("{body}\n{store}")), &counting(), 128, 32);
    assert_eq!((&r.outcome.end, r.kinds()), (&End::Completed, vec![]), "{body}: {:?}", r.outcome.findings);
    r.words()
}

#[test]
fn global_loads_of_all_widths() {
    let at = |step: u32| format!("mul.wide.u32 %rd2, %r0, {step};\nadd.u64 %rd3, %rd0, %rd2;\n");
    let word = |n: u32| u32::from_le_bytes([n as u8, n as u8 + 1, n as u8 + 2, n as u8 + 3]);
    for (step, load, f) in [
        (1, "ld.global.u8 %r63, [%rd3+200];", (|l| l + 200) as fn(u32) -> u32),
        (1, "ld.global.s8 %r63, [%rd3+200];", |l| (l as i32 + 200 - 256) as u32),
        (1, "ld.global.s8 %h0, [%rd3+200];\ncvt.u32.u16 %r63, %h0;", |l| (l as i32 + 200 - 256) as u16 as u32),
        (2, "ld.global.u16 %r63, [%rd3];", |l| 2 * l + 256 * (2 * l + 1)),
        (4, "ld.global.nc.b32 %r63, [%rd3];", |l| u32::from_le_bytes([0, 1, 2, 3].map(|n| (4 * l) as u8 + n))),
        (8, "ld.global.v2.u32 {%r1, %r63}, [%rd3];", |l| u32::from_le_bytes([4, 5, 6, 7].map(|n| (8 * l) as u8 + n))),
        (8, "ld.global.u64 %rd4, [%rd3];\nshr.u64 %rd4, %rd4, 32;\ncvt.u32.u64 %r63, %rd4;", |l| {
            u32::from_le_bytes([4, 5, 6, 7].map(|n| (8 * l) as u8 + n))
        }),
        (0, "ld.global.v4.u8 {%r1, %r2, %r3, %r63}, [%rd3+8];", |_| 11),
        (0, "ld.u32 %r63, [%rd3+4];", |_| u32::from_le_bytes([4, 5, 6, 7])),
    ] {
        assert_eq!(from_input(&format!("{}{load}", at(step))), (0..32).map(f).collect::<Vec<_>>(), "{load}");
    }
    assert_eq!(from_input("ld.global.v4.u32 {%r1, %r2, %r3, %r63}, [%rd0];")[5], word(12));
}

#[test]
fn shared_memory_of_all_kinds() {
    expect(
        ".shared .align 8 .b8 s[256];\nmul.lo.u32 %r1, %r0, 8;\nmov.u32 %r2, s;\nadd.u32 %r3, %r2, %r1;\nst.shared.v2.u32 [%r3], {%r0, 7};\nbar.warp.sync -1;\nxor.b32 %r4, %r1, 8;\n\
         add.u32 %r5, %r2, %r4;\nld.shared.u32 %r63, [%r5];",
        |l| l ^ 1,
    );
    // Through a generic pointer, and bytes that neighbours write.
    expect(
        ".shared .align 4 .b8 s[32];\nmov.u64 %rd2, s;\ncvta.shared.u64 %rd3, %rd2;\ncvt.u64.u32 %rd4, %r0;\nadd.u64 %rd5, %rd3, %rd4;\nst.u8 [%rd5], %r0;\nbar.warp.sync -1;\n\
         and.b32 %r1, %r0, 28;\ncvt.u64.u32 %rd6, %r1;\nadd.u64 %rd7, %rd3, %rd6;\nld.u32 %r63, [%rd7];",
        |l| 0x0302_0100 + (l & 28) * 0x0101_0101,
    );
    expect(
        "isspacep.shared %p0, %rd1;\nisspacep.global %p1, %rd1;\nselp.u32 %r1, 1, 0, %p1;\nselp.u32 %r63, 9, %r1, %p0;",
        |_| 1,
    );
}

#[test]
fn local_memory_is_each_threads_own() {
    expect(
        ".local .align 8 .b8 depot[64];\nmov.u64 %rd2, depot;\ncvta.local.u64 %rd3, %rd2;\nst.local.u32 [%rd2+4], %r0;\nmul.wide.u32 %rd4, %r0, 1;\nand.b64 %rd4, %rd4, 7;\n\
         shl.b64 %rd4, %rd4, 2;\nadd.u64 %rd5, %rd3, %rd4;\nst.u32 [%rd5+32], %r0;\nld.u32 %r1, [%rd5+32];\nld.local.u32 %r2, [%rd2+4];\nadd.u32 %r63, %r1, %r2;",
        |l| 2 * l,
    );
}

#[test]
fn constants_and_globals_have_their_initial_values() {
    let text = module(&format!(
        ".const .align 4 .b32 table[4] = {{10, 20, 30, 40}};\n.global .align 4 .b32 counter[1] = {{5}};\n.global .align 8 .u64 pointer[1] = {{generic(counter)}};\n\
         .visible .entry k(.param .u64 in, .param .u64 out)\n{{\n{REGISTERS}ld.param.u64 %rd1, [out];\nmov.u32 %r0, %tid.x;\nand.b32 %r1, %r0, 3;\nmul.wide.u32 %rd2, %r1, 4;\n\
         mov.u64 %rd3, table;\nadd.u64 %rd4, %rd3, %rd2;\nld.const.u32 %r2, [%rd4];\nld.global.u64 %rd5, [pointer];\nld.u32 %r3, [%rd5];\nadd.u32 %r63, %r2, %r3;\n\
         mul.wide.u32 %rd30, %r0, 4;\nadd.u64 %rd31, %rd1, %rd30;\nst.global.u32 [%rd31], %r63;\nret;\n}}"
    ));
    let r = run(&text, &[0; 4], 128, 32);
    assert_eq!((&r.outcome.end, r.kinds()), (&End::Completed, vec![]), "{:?}", r.outcome.findings);
    assert_eq!(r.words(), (0..32).map(|l| 10 * (l % 4 + 1) + 5).collect::<Vec<_>>());
}

#[test]
fn dynamic_shared_memory_lies_after_the_static_one() {
    let text = module(&format!(
        ".extern .shared .align 16 .b8 dyn[];\n.visible .entry k(.param .u64 in, .param .u64 out)\n{{\n{REGISTERS}.shared .align 4 .b8 fixed[4];\nld.param.u64 %rd1, [out];\n\
         mov.u32 %r0, %tid.x;\nmov.u32 %r1, dyn;\nmov.u32 %r2, fixed;\nmov.u32 %r3, %dynamic_smem_size;\nmad.lo.u32 %r4, %r1, 100, %r3;\nst.shared.u32 [fixed], 1;\n\
         mad.lo.u32 %r5, %r0, 4, %r1;\nst.shared.u32 [%r5], %r4;\nld.shared.u32 %r63, [%r5];\nmul.wide.u32 %rd30, %r0, 4;\nadd.u64 %rd31, %rd1, %rd30;\nst.global.u32 [%rd31], %r63;\nret;\n}}"
    ));
    let r = run_with(&text, &[0; 4], 128, 1, 32, 128, &options());
    assert_eq!((&r.outcome.end, r.kinds()), (&End::Completed, vec![]), "{:?}", r.outcome.findings);
    // Behind a guard of 1024 bytes.
    assert_eq!(r.words(), [100 * (16 + 1024) + 128; 32]);
}

#[test]
fn dynamic_shared_memory_that_no_variable_names_is_out_of_bounds() {
    // Three words and a store to the fourth: with memory of the launch's size behind them, which the kernel does not use.
    let body = |at: u32| format!(".shared .align 4 .b8 fixed[12];\nst.shared.u32 [fixed+{at}], 1;\n");
    for (at, kinds) in [(8, vec![]), (12, vec!["out_of_bounds"])] {
        let r = run_with(&kernel(&body(at)), &[0; 4], 4, 1, 1, 128, &options());
        assert_eq!(r.kinds(), kinds, "{:?}", r.outcome.findings);
    }
}

#[test]
fn atomics_return_what_was_there() {
    let init = ".shared .align 8 .b8 s[16];\nst.shared.u32 [s], 3;\nst.shared.u32 [s+4], 0;\nst.shared.u64 [s+8], 0;\nbar.warp.sync -1;\n";
    expect(&format!("{init}atom.shared.add.u32 %r63, [s], 2;"), |l| 3 + 2 * l);
    expect(&format!("{init}atom.shared.max.s32 %r1, [s], -5;\nmov.u32 %r63, %r1;"), |_| 3);
    expect(&format!("{init}atom.shared.cas.b32 %r63, [s], 3, 9;"), |l| if l == 0 { 3 } else { 9 });
    expect(&format!("{init}atom.shared.exch.b32 %r63, [s], %r0;"), |l| if l == 0 { 3 } else { l - 1 });
    expect(&format!("{init}atom.shared.inc.u32 %r63, [s+4], 3;"), |l| l % 4);
    expect(&format!("{init}atom.shared.add.u64 %rd2, [s+8], 1;\ncvt.u32.u64 %r63, %rd2;"), |l| l);
    expect(&format!("{init}atom.shared.add.f32 %f0, [s+4], 0f3F800000;\ncvt.rzi.u32.f32 %r63, %f0;"), |l| l);
    expect(&format!("{init}red.shared.add.u32 [s], 1;\nbar.warp.sync -1;\nld.shared.u32 %r63, [s];"), |_| 35);
    // Global, over several blocks and host threads.
    let text = module(&format!(
        ".global .align 4 .b32 sum[1];\n.visible .entry k(.param .u64 in, .param .u64 out)\n{{\n{REGISTERS}ld.param.u64 %rd1, [out];\nred.global.add.u32 [sum], 1;\n\
         atom.global.add.u32 %r1, [sum], 0;\nst.global.u32 [%rd1], 1;\nret;\n}}\n\
         .visible .entry after(.param .u64 out)\n{{\n{REGISTERS}ld.param.u64 %rd1, [out];\nld.global.u32 %r1, [sum];\nst.global.u32 [%rd1], %r1;\nret;\n}}"
    ));
    let program = warpsmith_machine::Program::load(&text).expect("loads");
    let mut memory = warpsmith_machine::Memory::new();
    let out = memory.alloc("out", warpsmith_machine::Contents::Uninitialized(4));
    let mut o = options();
    o.threads = 2;
    for (entry, grid, block, args) in [("k", 8, 64, 2), ("after", 1, 1, 1)] {
        let l = warpsmith_machine::Launch {
            entry: entry.into(),
            grid: [grid, 1, 1],
            block: [block, 1, 1],
            cluster: [1; 3],
            shared_bytes: 0,
            args: vec![warpsmith_machine::Arg::Buffer(out); args],
        };
        let outcome = warpsmith_machine::launch(&program, &mut memory, &l, &o);
        assert_eq!(outcome.end, End::Completed, "{:?}", outcome.findings);
    }
    assert_eq!(memory.read(out), 512u32.to_le_bytes(), "a module's variable keeps its value between launches");
}

#[test]
fn asynchronous_copies_arrive_and_fill_with_zeros() {
    let body = ".shared .align 16 .b8 s[512];\nmul.lo.u32 %r1, %r0, 16;\nmov.u32 %r2, s;\nadd.u32 %r3, %r2, %r1;\nand.b32 %r4, %r1, 240;\ncvt.u64.u32 %rd2, %r4;\nadd.u64 %rd3, %rd0, %rd2;\n\
                setp.lt.u32 %p0, %r0, 16;\nselp.u32 %r5, 16, 4, %p0;\ncp.async.cg.shared.global [%r3], [%rd3], 16, %r5;\ncp.async.commit_group;\ncp.async.wait_group 0;\nbar.sync 0;\n\
                xor.b32 %r6, %r1, 16;\nadd.u32 %r7, %r2, %r6;\nld.shared.v2.u32 {%r8, %r9}, [%r7];\nadd.u32 %r63, %r8, %r9;";
    let store = "mul.wide.u32 %rd30, %r0, 4;\nadd.u64 %rd31, %rd1, %rd30;\nst.global.u32 [%rd31], %r63;";
    let word = |n: u32| u32::from_le_bytes([0, 1, 2, 3].map(|k| (n + k) as u8));
    let expected: Vec<u32> = (0..32u32)
        .map(|l| l ^ 1)
        .map(|l| word(l % 16 * 16).wrapping_add(if l < 16 { word(l % 16 * 16 + 4) } else { 0 }))
        .collect();
    for copies in [AsyncCopies::Early, AsyncCopies::Late] {
        let mut o = options();
        o.async_copies = copies;
        let r = run_with(&kernel(&format!("{body}\n{store}")), &counting(), 128, 1, 32, 0, &o);
        assert_eq!((&r.outcome.end, r.kinds()), (&End::Completed, vec![]), "{:?}", r.outcome.findings);
        assert_eq!(r.words(), expected, "{copies:?}");
    }
}

#[test]
fn matrices_of_eight_by_eight() {
    // Element (r, c) of the 8x8 matrix is the 16-bit number 8r + c.
    let fill = ".shared .align 16 .b8 s[128];\nmov.u32 %r2, s;\nmul.lo.u32 %r1, %r0, 4;\nadd.u32 %r3, %r2, %r1;\nmul.lo.u32 %r4, %r0, 2;\nadd.u32 %r5, %r4, 1;\nshl.b32 %r5, %r5, 16;\n\
                or.b32 %r6, %r4, %r5;\nst.shared.u32 [%r3], %r6;\nbar.sync 0;\nand.b32 %r7, %r0, 7;\nmad.lo.u32 %r8, %r7, 16, %r2;\n";
    let pair = |l: u32| (2 * l) | ((2 * l + 1) << 16);
    let transposed = |l: u32| (2 * (l % 4) * 8 + l / 4) | ((2 * (l % 4) + 1) * 8 + l / 4) << 16;
    expect(&format!("{fill}ldmatrix.sync.aligned.m8n8.x1.shared.b16 {{%r63}}, [%r8];"), pair);
    expect(&format!("{fill}ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {{%r63}}, [%r8];"), transposed);
    expect(&format!("{fill}movmatrix.sync.aligned.m8n8.trans.b16 %r63, %r6;"), transposed);
    expect(
        &format!(
            "{fill}bar.sync 0;\nstmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [%r8], {{%r6}};\nbar.sync 0;\nld.shared.u32 %r63, [%r3];"
        ),
        transposed,
    );
}

#[test]
fn printing() {
    let text = module(&format!(
        ".extern .func (.param .b32 back) vprintf(.param .b64 f, .param .b64 a);\n.global .align 1 .b8 format[16] = {{110, 61, 37, 100, 32, 37, 46, 50, 102, 10, 0}};\n\
         .visible .entry k(.param .u64 in, .param .u64 out)\n{{\n{REGISTERS}.local .align 8 .b8 depot[16];\nmov.u64 %rd2, depot;\ncvta.local.u64 %rd3, %rd2;\nst.local.u32 [%rd2], 42;\n\
         st.local.f64 [%rd2+8], 0d3FF8000000000000;\nmov.u64 %rd4, format;\ncvta.global.u64 %rd5, %rd4;\n{{\n.param .b64 p0;\n.param .b64 p1;\n.param .b32 r;\nst.param.b64 [p0], %rd5;\n\
         st.param.b64 [p1], %rd3;\ncall.uni (r), vprintf, (p0, p1);\nld.param.b32 %r1, [r];\n}}\nret;\n}}"
    ));
    let r = run(&text, &[0; 4], 4, 1);
    assert_eq!(r.outcome.end, End::Completed, "{:?}", r.outcome.findings);
    assert_eq!(r.outcome.printed, "n=42 1.50\n");
}
