//! What is counted: by source line, bank conflicts, sectors, divergence, classes, fidelity.

mod common;
use common::{kernel, options, run_with};
use warpsmith_machine::{Counters, End, InstructionClass, Options, Traffic};

fn counted(body: &str) -> Counters {
    let o = Options { count_traffic: true, ..options() };
    let r = run_with(&kernel(body), &[7; 32768], 4096, 1, 32, 0, &o);
    assert_eq!(r.outcome.end, End::Completed, "{:?}", r.outcome.findings);
    r.outcome.counters
}

/// Wavefronts and the fewest of one load of shared memory, each lane at `step` bytes times its number.
fn shared(load: &str, step: u32) -> (u64, u64) {
    let t = counted(&format!(
        ".shared .align 16 .b8 s[8192];\nmov.u32 %r2, s;\nmad.lo.u32 %r3, %r0, {step}, %r2;\n{load}\n"
    ))
    .traffic;
    assert_eq!(t.shared_requests, 1);
    (t.shared_wavefronts, t.shared_ideal)
}

#[test]
fn bank_conflicts() {
    let (one, two, four) = (
        "ld.shared.u32 %r4, [%r3];",
        "ld.shared.v2.u32 {%r4, %r5}, [%r3];",
        "ld.shared.v4.u32 {%r4, %r5, %r6, %r7}, [%r3];",
    );
    for (load, step, wanted) in [
        (one, 4, (1, 1)),
        (one, 0, (1, 1)),
        (one, 8, (2, 1)),
        (one, 128, (32, 1)),
        (one, 132, (1, 1)),
        ("ld.shared.u8 %r4, [%r3];", 1, (1, 1)),
        (two, 8, (2, 2)),
        (four, 16, (4, 4)),
        (four, 32, (8, 4)),
        (four, 128, (32, 4)),
    ] {
        assert_eq!(shared(load, step), wanted, "{load} at steps of {step}");
    }
    let matrix = |stride: u32| {
        counted(&format!(
            ".shared .align 16 .b8 s[1024];\nmov.u32 %r2, s;\nand.b32 %r1, %r0, 7;\nmad.lo.u32 %r3, %r1, {stride}, %r2;\nldmatrix.sync.aligned.m8n8.x1.shared.b16 {{%r4}}, [%r3];\n"
        ))
        .traffic
    };
    assert_eq!((matrix(16).bank_conflicts(), matrix(128).bank_conflicts(), matrix(80).bank_conflicts()), (0, 7, 0));
}

#[test]
fn sectors() {
    let global = |step: u32| {
        let t = counted(&format!(
            "mul.wide.u32 %rd2, %r0, {step};\nadd.u64 %rd2, %rd2, %rd0;\nld.global.u32 %r4, [%rd2];\n"
        ))
        .traffic;
        (t.global_requests, t.global_sectors, t.global_ideal)
    };
    assert_eq!((global(4), global(0), global(32), global(8)), ((1, 4, 4), (1, 1, 1), (1, 32, 4), (1, 8, 4)));
    let o = run_with(&kernel("ld.global.u32 %r4, [%rd0];"), &[0; 4], 4, 1, 32, 0, &options()).outcome;
    assert_eq!(o.counters.traffic, Traffic::default(), "not asked for");
}

#[test]
fn inlined_code_is_told_by_who_called_it() {
    let body = ".loc 1 10 1\nadd.u32 %r4, %r0, 1;\n.loc 2 3 1, function_name $L__info_string0, inlined_at 1 20 5\nadd.u32 %r5, %r0, 2;\n\
        .loc 2 3 1, function_name $L__info_string0, inlined_at 1 30 5\nadd.u32 %r6, %r0, 3;\nadd.u32 %r7, %r0, 3;\n";
    let ptx = format!("{}\n.file 1 \"k.cu\"\n.file 2 \"h.cuh\"\n", kernel(body));
    let o = Options { count_traffic: true, ..options() };
    let counters = run_with(&ptx, &[7; 32768], 4096, 1, 32, 0, &o).outcome.counters;
    let of = |chain: &[(&str, u32)]| {
        let chain: Vec<(String, u32)> = chain.iter().map(|(f, l)| ((*f).to_string(), *l)).collect();
        counters.places.iter().find(|p| p.chain == chain).map(|p| p.warp_instructions)
    };
    assert_eq!((of(&[("k.cu", 10)]), of(&[("h.cuh", 3), ("k.cu", 20)])), (Some(1), Some(1)), "{:?}", counters.places);
    // What follows a place without a line of its own stays with it: the second sum, and the return.
    assert_eq!(of(&[("h.cuh", 3), ("k.cu", 30)]), Some(3));
    let all: u64 = counters.places.iter().map(|p| p.warp_instructions).sum();
    assert_eq!(all, counters.warp_instructions);
}

#[test]
fn divergence_and_classes() {
    let c = counted(
        "setp.lt.u32 %p0, %r0, 7;\n@%p0 bra A;\nadd.u32 %r1, %r0, 1;\nadd.u32 %r2, %r0, 2;\nA:\nex2.approx.ftz.f32 %f1, 0f00000000;\nbar.sync 0;\n",
    );
    assert_eq!((c.divergent_branches, c.divergent_instructions), (1, 2));
    assert_eq!(c.by_class[&InstructionClass::Synchronisation], 1);
    assert_eq!(c.by_class.values().sum::<u64>(), c.warp_instructions);
    assert_eq!((c.fidelity.approximate, c.fidelity.modelled), (1, 0));
    assert_eq!(c.fidelity.exact + 1, c.warp_instructions);
    let sum: u64 = c.lines.iter().map(|l| l.warp_instructions).sum();
    assert_eq!(sum, c.warp_instructions);
}

/// Block n adds n + 1 times: the last one does most, in whatever order and on however many threads they run.
#[test]
fn the_busiest_cta_is_told_from_the_mean() {
    let body = "mov.u32 %r2, %ctaid.x;\nmov.u32 %r3, 0;\n$more:\nadd.u32 %r3, %r3, 1;\nsetp.le.u32 %p0, %r3, %r2;\n@%p0 bra $more;\n";
    // Three of the head, two before the loop, the return; three for each round.
    let one = |cta: u64| 3 + 2 + 1 + 3 * (cta + 1);
    for (grid, threads, schedule_seed) in [(1, 1, 0), (7, 1, 0), (7, 1, 3), (7, 3, 2), (40, 4, 0)] {
        let o = Options { threads, schedule_seed, ..options() };
        let c = run_with(&kernel(body), &[7; 64], 64, grid, 64, 0, &o).outcome.counters;
        let ctas = u64::from(grid);
        assert_eq!(
            c.busiest_cta,
            2 * one(ctas - 1),
            "{grid} CTAs of two warps, {threads} threads, seed {schedule_seed}"
        );
        assert_eq!(c.warp_instructions, (0..ctas).map(|n| 2 * one(n)).sum::<u64>());
    }
}
