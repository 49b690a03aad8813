//! Whole kernels, as NVRTC 13.0 compiled them: right values and no finding from right ones, the right line from wrong ones.

mod common;
use common::options;
use warpsmith_machine::api::Numerics;
use warpsmith_machine::{Arg, AsyncCopies, Contents, End, Launch, Memory, Options, Outcome, Program, launch};
use warpsmith_num::tensor_core::Generation;
use warpsmith_num::{e4m3, f16};

const S: usize = 64;
const D: usize = 64;

/// Deterministic e4m3 codes of moderate size.
fn codes(seed: u32) -> Vec<u8> {
    let mut x = seed;
    (0..S * D)
        .map(|_| {
            x = x.wrapping_mul(1664525).wrapping_add(1013904223);
            e4m3::from_f32((x >> 8) as f32 / (1 << 23) as f32 - 1.0)
        })
        .collect()
}

fn reference(q: &[u8], k: &[u8], v: &[u8], scale: f64) -> Vec<f64> {
    let value = |x: &[u8], i: usize, d: usize| f64::from(e4m3::to_f32(x[i * D + d]));
    let mut out = vec![0.0; S * D];
    for i in 0..S {
        let s: Vec<f64> =
            (0..S).map(|j| (0..D).map(|d| value(q, i, d) * value(k, j, d)).sum::<f64>() * scale).collect();
        let most = s.iter().cloned().fold(f64::MIN, f64::max);
        let p: Vec<f64> = s.iter().map(|v| (v - most).exp()).collect();
        let sum: f64 = p.iter().sum();
        for d in 0..D {
            out[i * D + d] = (0..S).map(|j| p[j] * value(v, j, d)).sum::<f64>() / sum;
        }
    }
    out
}

fn attention(ptx: &str, entry: &str, grid: u32, block: u32, options: &Options) -> (Outcome, f64, Vec<u8>) {
    let program = Program::load(ptx).expect("the fixture loads");
    let mut memory = Memory::new();
    let (q, k, v) = (codes(1), codes(2), codes(3));
    let one = 1f32.to_le_bytes();
    let mut args: Vec<Arg> = Vec::new();
    for (name, bytes) in [
        ("q", &q[..]),
        ("k", &k[..]),
        ("v", &v[..]),
        ("q_scale", &one[..]),
        ("k_scale", &one[..]),
        ("v_scale", &one[..]),
    ] {
        args.push(Arg::Buffer(memory.alloc(name, Contents::Bytes(bytes))));
    }
    let out = memory.alloc("out", Contents::Poison(2 * S * D));
    args.push(Arg::Buffer(out));
    args.push(Arg::Bytes(0.5f32.to_le_bytes().to_vec()));
    args.push(Arg::Bytes((S as i32).to_le_bytes().to_vec()));
    let l = Launch {
        entry: entry.into(),
        grid: [grid, 1, 1],
        block: [block, 1, 1],
        cluster: [1; 3],
        shared_bytes: 0,
        args,
    };
    let outcome = launch(&program, &mut memory, &l, options);
    let bytes = memory.read(out);
    let expected = reference(&q, &k, &v, 0.5);
    let got = bytes.chunks_exact(2).map(|c| f64::from(f16::to_f32(u16::from_le_bytes([c[0], c[1]]))));
    let worst =
        got.zip(&expected).map(|(g, e)| (g - e).abs()).fold(0.0, |a: f64, b| if b.is_nan() { b } else { a.max(b) });
    (outcome, worst, bytes)
}

#[test]
fn right_kernels_give_right_values_and_no_finding() {
    for (ptx, entry, grid, block, tolerance) in [
        (include_str!("kernels/sdpa_mma_e4m3.ptx"), "sdpa_mma_e4m3", 1, 128, 0.03),
        (include_str!("kernels/sdpa_wmma.ptx"), "sdpa_wmma", 4, 32, 0.003),
    ] {
        let mut first: Option<Vec<u8>> = None;
        for (numerics, copies, seed, threads) in [
            (Numerics::Fast, AsyncCopies::Late, 0, 1),
            (Numerics::Fast, AsyncCopies::Early, 11, 2),
            (Numerics::Faithful(Generation::Ada), AsyncCopies::Late, 5, 1),
        ] {
            let o = Options {
                numerics,
                async_copies: copies,
                schedule_seed: seed,
                threads,
                max_instructions: 10_000_000,
                ..options()
            };
            let (outcome, worst, bytes) = attention(ptx, entry, grid, block, &o);
            assert_eq!(outcome.end, End::Completed, "{entry}: {:#?}", outcome.findings);
            assert_eq!(outcome.findings, [], "{entry}");
            assert!(worst < tolerance, "{entry}: off by {worst}");
            assert!(outcome.counters.tensor_ops > 0);
            if numerics == Numerics::Fast {
                let first = first.get_or_insert_with(|| bytes.clone());
                assert_eq!(*first, bytes, "{entry}: the schedule changes the result");
            }
        }
    }
}

#[test]
fn a_missing_barrier_is_found_at_its_lines() {
    let o = Options { max_instructions: 10_000_000, ..options() };
    let (outcome, _, _) =
        attention(include_str!("kernels/sdpa_missing_barrier.ptx"), "sdpa_missing_barrier", 1, 64, &o);
    let races: Vec<_> =
        outcome.findings.iter().map(|f| (f.kind.word(), f.site.line, f.other.as_ref().and_then(|o| o.line))).collect();
    assert!(races.iter().all(|r| r.0 == "shared_race"), "{races:?}");
    // The fill of the key tile (line 26) against its use (line 32) of the round before.
    assert!(
        races.iter().any(|r| (r.1, r.2) == (Some(32), Some(26)) || (r.1, r.2) == (Some(26), Some(32))),
        "{races:?}"
    );
    assert!(outcome.findings[0].site.file.as_deref().is_some_and(|f| f.ends_with("sdpa_missing_barrier.cu")));
}

#[test]
fn a_shuffle_of_what_only_one_lane_has_written_is_found_at_the_shuffle() {
    let program = Program::load(include_str!("kernels/uninit_scores.ptx")).expect("the fixture loads");
    for (entry, faulty) in [("uninit_scores", true), ("right_scores", false)] {
        let mut memory = Memory::new();
        let floats: Vec<u8> = (0..256).flat_map(|n| (n as f32 / 256.0).to_le_bytes()).collect();
        let args = vec![
            Arg::Buffer(memory.alloc("q", Contents::Bytes(&floats[..128]))),
            Arg::Buffer(memory.alloc("k", Contents::Bytes(&floats))),
            Arg::Buffer(memory.alloc("out", Contents::Uninitialized(128))),
            Arg::Bytes(vec![0; 4]),
        ];
        let l = Launch { entry: entry.into(), grid: [1; 3], block: [32, 1, 1], cluster: [1; 3], shared_bytes: 0, args };
        let outcome = launch(&program, &mut memory, &l, &options());
        assert_eq!(outcome.end, End::Completed);
        assert_eq!(outcome.findings.is_empty(), !faulty, "{:#?}", outcome.findings);
        if faulty {
            let f = &outcome.findings[0];
            assert_eq!((f.kind.word(), f.site.line), ("uninitialized_read", Some(16)), "{f:#?}");
            assert!(f.site.opcode.starts_with("shfl.sync"));
        }
    }
}
