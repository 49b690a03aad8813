//! What callers meet without a device: checks of problems and pointers, and the C header's freshness.

use warpsmith_attention::params::{CacheValues, FewParams, Pack, Params, Quantise, Ragged, TokenValues, Values};
use warpsmith_attention::{
    Device, Error, Lengths, Mask, Output, PORTABLE_TARGETS, Plan, Problem, ProblemError, Quantisation, QuantisePlan,
    Scales, Wide, Workspace, check_scales, instances, portable_instances,
};

const HOPPER: Device = Device { sms: 132, major: 9, minor: 0 };

#[test]
fn wrong_problems_are_refused_before_anything_else() {
    let good = Problem::dense(2, 8, 2, 100, 300, 128);
    assert!(Plan::new(&good, &HOPPER).is_ok());
    let stride = |which: usize, f: fn(&mut warpsmith_attention::Strides)| {
        let mut p = good;
        f(&mut p.strides[which]);
        p
    };
    let rows: Vec<(Problem, ProblemError)> = vec![
        (Problem { head_dim: 96, ..good }, ProblemError::HeadDim(96)),
        (Problem { heads_kv: 3, ..good }, ProblemError::Heads { q: 8, kv: 3 }),
        (Problem { heads_kv: 0, ..good }, ProblemError::Empty("heads_kv")),
        (Problem { seqlen_k: 0, ..good }, ProblemError::Empty("seqlen_k")),
        (Problem { batch: 65_536, ..good }, ProblemError::TooLarge { what: "batch", value: 65_536, limit: 65_535 }),
        (
            Problem { batch: 60_000, seqlen_q: 10_000, ..good },
            ProblemError::TooLarge { what: "rows of queries", value: 4_800_000_000, limit: 2_147_483_647 },
        ),
        (stride(0, |s| s.token = 100), ProblemError::Stride { tensor: "q", stride: 100 }),
        (stride(1, |s| s.head = 0), ProblemError::Stride { tensor: "k", stride: 0 }),
        (stride(2, |s| s.batch = -256), ProblemError::Stride { tensor: "v", stride: -256 }),
        (Problem { softmax_scale: Some(0.0), ..good }, ProblemError::SoftmaxScale),
        (Problem { softmax_scale: Some(f32::NAN), ..good }, ProblemError::SoftmaxScale),
        (Problem { output: Output::E4m3 { scale: -1.0 }, ..good }, ProblemError::OutScale),
        (Problem { wide_queries: true, ..good }, ProblemError::Wide),
        (
            Problem { wide_queries: true, packed_values: true, output: Output::E4m3 { scale: 1.0 }, ..good },
            ProblemError::Wide,
        ),
    ];
    for (problem, want) in rows {
        assert_eq!(Plan::new(&problem, &HOPPER).unwrap_err(), Error::Problem(want));
    }
    let packed = Problem { packed_values: true, ..stride(2, |s| s.token = 100) };
    assert!(Plan::new(&packed, &HOPPER).is_ok(), "strides of what is packed are not looked at");
    let ada = Device { sms: 58, major: 8, minor: 9 };
    let refused = Error::Problem(ProblemError::Packed { major: 8, minor: 9 });
    assert_eq!(Plan::new(&packed, &ada).unwrap_err(), refused);
    let old = Device { sms: 40, major: 7, minor: 5 };
    assert_eq!(Plan::new(&good, &old).unwrap_err(), Error::Device { major: 7, minor: 5 });
}

#[test]
fn wrong_lengths_are_refused_before_anything_else() {
    let cached = Problem::cached(4, 8, 2, 1, 4096, 128);
    let paged = Problem::paged(4, 8, 2, 1, 64, 64, 300, 128);
    let varlen = Problem::varlen(4, 8, 2, 1000, 3000, 500, 2000, 128);
    let of_pages = |page_size, pages, table_stride| Problem {
        lengths: Lengths::Paged { page_size, pages, table_stride },
        ..paged
    };
    let of_tokens = |tokens_q, tokens_k| Problem { lengths: Lengths::Varlen { tokens_q, tokens_k }, ..varlen };
    let mut askew = varlen;
    askew.strides[0].token = 8;
    let rows: Vec<(Problem, ProblemError)> = vec![
        (of_pages(0, 300, 64), ProblemError::Empty("page_size")),
        (of_pages(64, 0, 64), ProblemError::Empty("pages")),
        (of_pages(48, 300, 64), ProblemError::Pages { seqlen_k: 4096, page_size: 48 }),
        (of_pages(64, 300, -1), ProblemError::TableStride(-1)),
        (of_tokens(0, 3000), ProblemError::Empty("tokens_q")),
        (of_tokens(1000, 0), ProblemError::Empty("tokens_k")),
        (
            of_tokens(1 << 30, 3000),
            ProblemError::TooLarge { what: "rows of queries", value: 1 << 33, limit: 2_147_483_647 },
        ),
        (askew, ProblemError::Stride { tensor: "q", stride: 8 }),
        (Problem { packed_values: true, ..cached }, ProblemError::Lengths),
        (Problem { packed_values: true, wide_queries: true, ..varlen }, ProblemError::Lengths),
        (Problem { head_dim: 96, ..paged }, ProblemError::HeadDim(96)),
    ];
    for (problem, want) in rows {
        assert_eq!(Plan::new(&problem, &HOPPER).unwrap_err(), Error::Problem(want));
    }
    for problem in [cached, paged, varlen] {
        assert!(Plan::new(&problem, &HOPPER).is_ok(), "{problem:?}");
    }
    // One sequence of those one behind another cannot have more than all.
    let longer = Problem { seqlen_q: 1 << 26, seqlen_k: 1 << 26, ..varlen };
    let as_long = Problem { seqlen_q: 1000, seqlen_k: 3000, ..varlen };
    let [longer, as_long] = [longer, as_long].map(|p| Plan::new(&p, &HOPPER).unwrap());
    assert_eq!((longer.choice(), longer.workspace()), (as_long.choice(), as_long.workspace()));
}

/// What serving asks for goes to the kernels that are for it: tokens to decode.cu, prompts and chunks to few.cuh, odd pages to ragged.cu.
#[test]
fn lengths_go_to_their_kernels() {
    for (problem, file, of_name) in [
        (Problem::cached(8, 32, 8, 1, 8192, 128), "decode", "_spread1_lens1"),
        (Problem::cached(1, 32, 8, 1, 8192, 128), "decode", "_lens1"),
        (Problem::cached(4, 32, 8, 256, 8192, 128), "forward_e4m3", "_few1_lens1"),
        (Problem::paged(8, 32, 8, 1, 256, 16, 5000, 128), "decode", "_lens1"),
        (Problem::paged(8, 32, 8, 1, 256, 24, 5000, 128), "ragged", "_grouped1"),
        (Problem::varlen(8, 32, 8, 8, 30_000, 1, 8192, 128), "decode", "_spread1_lens2"),
        (Problem::varlen(8, 32, 8, 9000, 9000, 4096, 4096, 64), "forward", "_few1_lens2"),
        (Problem::varlen(2, 32, 8, 16_000, 16_000, 8000, 8000, 128), "forward_e4m3", "packed1_blocks0_few1_lens2"),
    ] {
        let plan = Plan::new(&problem, &HOPPER).unwrap();
        let name = plan.choice().instance.name();
        assert!(name.starts_with(file) && name.contains(of_name), "{name}: {problem:?}");
        assert!(plan.choice_with_lse().instance.name().contains(if file == "ragged" { "ragged" } else { "lens" }));
    }
}

/// One launch packs keys and values, whatever their numbers; scales of heads want one or two, by how many tokens there are; and what does not go together is refused.
#[test]
fn tensors_are_quantised_together() {
    let plan = |parts: &[Quantisation]| QuantisePlan::new(parts, &HOPPER);
    let (keys, values) =
        (Quantisation::keys(2, 8, 4096, 128, Wide::Bf16), Quantisation::values(2, 8, 4096, 128, Wide::Bf16));
    let packed = plan(&[keys, values]).unwrap();
    assert_eq!((packed.instance().name(), packed.counters()), ("pack_d128_kind0".into(), 0));
    let listed: Vec<String> = instances().iter().map(|i| i.name()).collect();
    let dense = |tokens, dim, from, scales| Quantisation::dense(2, 8, tokens, dim, from, scales);
    for (part, name, counters) in [
        (dense(1000, 96, Wide::F16, Scales::Block), "quantise", 0),
        (dense(1000, 128, Wide::F16, Scales::Block), "pack_d128_kind1", 0),
        (dense(1000, 128, Wide::F16, Scales::Tensor), "quantise", 2),
        (dense(1000, 128, Wide::F16, Scales::Head), "quantise", 33),
        (dense(1000, 128, Wide::F32, Scales::Head), "quantise", 32),
        (dense(100_000, 128, Wide::Bf16, Scales::Head), "quantise", 32),
    ] {
        let plan = plan(&[part]).unwrap();
        assert_eq!((plan.instance().name(), plan.counters()), (name.to_string(), counters));
        assert!(listed.contains(&plan.instance().name()), "{name} is embedded");
    }
    let of_head = dense(1000, 128, Wide::Bf16, Scales::Head);
    let mut askew = of_head;
    askew.strides.token = 132;
    for (parts, want) in [
        (vec![], ProblemError::Parts(0)),
        (vec![keys; 4], ProblemError::Parts(4)),
        (vec![keys, of_head], ProblemError::PartsDiffer("scales")),
        (
            vec![keys, Quantisation::values(2, 8, 4096, 64, Wide::Bf16)],
            ProblemError::PartsDiffer("type and head dimension"),
        ),
        (vec![Quantisation { centred: true, ..of_head }], ProblemError::PackedScales),
        (vec![Quantisation { codes: None, ..keys }], ProblemError::NoCodes),
        (vec![Quantisation { head_dim: 96, ..keys }], ProblemError::HeadDim(96)),
        (vec![Quantisation { head_dim: 100, ..of_head }], ProblemError::QuantisedDim(100)),
        (vec![Quantisation { tokens: 0, ..of_head }], ProblemError::Empty("tokens")),
        (
            vec![Quantisation { batch: 9000, ..of_head }],
            ProblemError::TooLarge { what: "batch * heads", value: 72_000, limit: 65_535 },
        ),
        (vec![askew], ProblemError::QuantisedStride { tensor: "x", stride: 132, step: 8 }),
    ] {
        assert_eq!(plan(&parts).unwrap_err(), Error::Problem(want));
    }
    let ada = Device { sms: 58, major: 8, minor: 9 };
    // Other cards' CTAs do not wait for each other; and their attention takes no V^T.
    let two = QuantisePlan::new(&[of_head], &ada).unwrap();
    assert_eq!((two.counters(), two.instance().name().as_str()), (2 * of_head.batch * of_head.heads, "quantise"));
    assert!(QuantisePlan::new(&[keys], &ada).is_ok());
    let refused = Error::Problem(ProblemError::Packed { major: 8, minor: 9 });
    assert_eq!(QuantisePlan::new(&[values], &ada).unwrap_err(), refused);
    // Attention over what is packed so.
    let attention = Plan::new(&Problem::packed(2, 32, 8, 4096, 4096, 128), &HOPPER).unwrap();
    assert!(attention.choice().instance.name().contains("packed1_even1"), "{}", attention.choice().instance.name());
}

/// Whatever the sizes, a plan is made or refused: nothing overflows.
#[test]
fn plans_of_any_size_are_made_or_refused() {
    let mut state = 7u64;
    let mut below = |n: u64| {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 33) % n
    };
    let (mut made, mut refused) = (0, 0);
    for _ in 0..3000 {
        let mut size = |most: u64| {
            let bits = below(most + 1);
            (1u64 << bits).saturating_sub(below(3)).max(1) as u32
        };
        let (batch, heads_kv, group) = (size(17), size(17), size(12));
        let (seqlen_q, seqlen_k, tokens_q, tokens_k) = (size(24), size(27), size(31), size(31));
        let (page_size, pages, of_sequence) = (size(10), size(31), size(17));
        let (head_dim, kind) = ([64, 128, 256][below(3) as usize], below(3));
        let heads_q = heads_kv.saturating_mul(group);
        let problem = match kind {
            0 => Problem::cached(batch, heads_q, heads_kv, seqlen_q, seqlen_k, head_dim),
            1 => Problem::paged(batch, heads_q, heads_kv, seqlen_q, of_sequence, page_size, pages, head_dim),
            _ => Problem::varlen(batch, heads_q, heads_kv, tokens_q, tokens_k, seqlen_q, seqlen_k, head_dim),
        };
        match Plan::new(&problem, &HOPPER) {
            Ok(plan) => {
                made += 1;
                assert!(plan.choice().grid.iter().all(|n| *n > 0), "{problem:?}");
            }
            Err(Error::Problem(_)) => refused += 1,
            Err(other) => panic!("{other}: {problem:?}"),
        }
    }
    assert!(made > 500 && refused > 500, "{made} made, {refused} refused");
}

#[test]
fn scales_on_the_host_are_finite_and_not_negative() {
    assert_eq!(check_scales("k_scale", &[0.0, -0.0, 1e-30, f32::MAX]), Ok(()));
    for (at, bad) in [(0, -1.0), (2, f32::NAN), (1, f32::INFINITY), (2, -f32::MIN_POSITIVE)] {
        let mut scales = [0.5; 3];
        scales[at] = bad;
        let error = check_scales("k_scale", &scales).unwrap_err();
        assert_eq!(error, ProblemError::Scale { name: "k_scale", at, value: bad.to_string() });
        assert!(error.to_string().contains(&format!("k_scale[{at}]")), "{error}");
    }
}

#[test]
fn plans_say_what_memory_they_need() {
    let forward = Plan::new(&Problem::dense(2, 16, 16, 1500, 1500, 128), &HOPPER).unwrap();
    assert_eq!((forward.workspace().scratch_bytes, forward.workspace().counters), (0, 0));
    let packed = Problem { packed_values: true, ..Problem::dense(2, 16, 16, 1500, 1500, 128) };
    let packed = Plan::new(&packed, &HOPPER).unwrap();
    assert!(packed.choice().instance.name().contains("_packed1_"), "{}", packed.choice().instance.name());
    assert!(packed.choice().shared_bytes < forward.choice().shared_bytes, "V's own slots are not there");
    assert_eq!(packed.workspace().counters, 0);
    let masked = Problem { mask: Mask::Causal, packed_values: true, ..Problem::dense(2, 16, 16, 1500, 1500, 128) };
    assert_eq!(Plan::new(&masked, &HOPPER).unwrap().workspace().counters, 1, "its row tiles are drawn");
    let transposing = Plan::new(&Problem::dense(2, 16, 4, 4096, 4000, 256), &HOPPER).unwrap();
    assert!(transposing.choice().transposes);
    assert_eq!(transposing.workspace().scratch_bytes, 2 * 4 * 4096 * 256, "V^T, in whole tiles of keys");
    assert_eq!(transposing.workspace().counters, 32 + 3, "of who makes it beside attention, and of who reads it");
    let decode = Plan::new(&Problem::dense(2, 32, 8, 1, 8192, 128), &HOPPER).unwrap();
    assert!(decode.workspace().scratch_bytes > 0);
    assert_eq!(decode.workspace().counters, 16 * 8, "a warp's slice of a unit has one");
    let causal = Problem { mask: Mask::Causal, output: Output::F16, ..Problem::dense(1, 8, 8, 512, 512, 64) };
    let name = Plan::new(&causal, &HOPPER).unwrap().choice().instance.name();
    assert!(name.starts_with("tiny_d64") && name.contains("causal1") && name.ends_with("out1"), "{name}");
    let one = Problem { mask: Mask::Causal, ..Problem::dense(4, 16, 16, 1, 4096, 64) };
    let name = Plan::new(&one, &HOPPER).unwrap().choice().instance.name();
    assert!(name.contains("causal0"), "a single query sees all keys: {name}");
}

/// The fastest kernels at D 64 and 128 do not know the log-sum-exp well enough: launches that want it are another one's.
#[test]
fn launches_with_and_without_log_sum_exp_may_be_two_kernels() {
    let rows = [
        (Problem::dense(4, 16, 16, 4096, 4096, 64), "forward_f16_d64_wgs4_causal0_out0", "forward_d64"),
        (Problem::dense(1, 8, 2, 2000, 2000, 64), "forward_f16_d64_wgs2_causal0_out0", "forward_d64"),
        (
            Problem::dense(4, 16, 16, 4096, 4096, 128),
            "forward_e4m3_d128_wgs3_causal0_packed1_blocks0_drawn1_out0",
            "forward_d128_wgs3_causal0_keep0_poly0_packed1_blocks0_out0",
        ),
        (Problem::dense(4, 16, 16, 1500, 4096, 128), "forward_e4m3_d128_wgs3_causal0_out0", "forward_d128"),
        (Problem::dense(1, 8, 8, 2000, 2000, 128), "forward_e4m3_d128_wgs2_causal0_out0", "forward_d128"),
        (
            Problem::dense(4, 16, 16, 4096, 4096, 256),
            "forward_e4m3_d256_wgs2_causal0_packed1_blocks0_out0",
            "forward_d256_wgs2_causal0_keep0_poly0_packed1_blocks0_out0",
        ),
        (Problem::dense(4, 16, 16, 1000, 4096, 256), "forward_d256", "forward_d256"),
        (
            Problem::dense(1, 8, 8, 512, 512, 64),
            "tiny_d64_keys256_wgs1_ctas2_causal0_grouped0_poly3_blocks2_out0",
            "tiny_d64_keys256_wgs1_ctas2_causal0_grouped0_poly3_blocks2_lse1",
        ),
        (Problem::dense(4, 16, 16, 1, 4096, 64), "decode_d64", "decode_d64"),
        (
            Problem { packed_values: true, ..Problem::dense(4, 16, 16, 4096, 4096, 64) },
            "forward_f16_d64_wgs4_causal0_packed1",
            "forward_d64",
        ),
        (
            Problem { packed_values: true, ..Problem::dense(4, 16, 16, 4096, 4096, 128) },
            "forward_e4m3_d128_wgs3_causal0_packed1_even1",
            "forward_d128",
        ),
        (
            Problem { packed_values: true, wide_queries: true, ..Problem::dense(4, 16, 16, 4096, 4096, 128) },
            "forward_e4m3_d128_wgs3_causal0_packed1_wideq1_even1_out0",
            "forward_e4m3_d128_wgs3_causal0_packed1_wideq1_even1_out0",
        ),
    ];
    for (problem, without, with) in rows {
        let plan = Plan::new(&problem, &HOPPER).unwrap();
        let names = [plan.choice(), plan.choice_with_lse()].map(|c| c.instance.name());
        assert!(names[0].starts_with(without) && names[1].starts_with(with), "{names:?}");
        assert_eq!(names[0] == names[1], without == with, "{names:?}");
        let always = plan.clone().with_lse();
        assert_eq!([always.choice(), always.choice_with_lse()], [plan.choice_with_lse(); 2]);
        let (less, all) = (always.workspace(), plan.workspace());
        assert!(less.scratch_bytes <= all.scratch_bytes && less.counters <= all.counters, "{less:?} {all:?}");
    }
    for (head_dim, of_outputs, scales) in [
        (64, "forward_d64", "_blocks1"),
        (128, "forward_e4m3_d128", "_packed1_out0"),
        (256, "forward_d256", "_packed1_out0"),
    ] {
        let mut blocks = Problem::dense(4, 16, 16, 4096, 4096, head_dim);
        blocks.scales[1].block = 1;
        let name = Plan::new(&blocks, &HOPPER).unwrap().choice().instance.name();
        assert!(name.starts_with(of_outputs) && name.contains(scales), "{name}");
    }
    let ada = Plan::new(&Problem::dense(4, 16, 16, 4096, 4096, 64), &Device { sms: 58, major: 8, minor: 9 }).unwrap();
    assert_eq!(ada.choice(), ada.choice_with_lse());
    // A step over blocks of which there is one changes nothing.
    let one = Problem::dense(1, 8, 8, 100, 128, 64);
    let mut of_blocks = one;
    for s in &mut of_blocks.scales {
        s.block = 1;
    }
    let [one, of_blocks] = [one, of_blocks].map(|p| Plan::new(&p, &HOPPER).unwrap());
    assert_eq!(one, of_blocks);
}

#[test]
fn other_cards_have_the_portable_kernel() {
    let names: Vec<String> = portable_instances().iter().map(|i| i.name()).collect();
    for (major, minor, target) in [
        (8, 0, "sm_80"),
        (8, 6, "sm_80"),
        (8, 9, "sm_89"),
        (10, 0, "sm_100"),
        (10, 3, "sm_100"),
        (11, 0, "compute_80"),
        (12, 0, "sm_120"),
        (12, 1, "sm_120"),
        (13, 0, "compute_80"),
    ] {
        assert!(PORTABLE_TARGETS.contains(&target));
        for (problem, grid) in [
            (Problem::dense(1, 8, 2, 100, 128, 256), [7, 2, 1]),
            (Problem::cached(3, 8, 2, 1, 100, 256), [1, 2, 3]),
            (Problem::paged(3, 8, 2, 100, 5, 48, 40, 256), [7, 2, 3]),
            (Problem::varlen(3, 8, 2, 250, 300, 100, 128, 256), [7, 2, 3]),
        ] {
            let plan = Plan::new(&problem, &Device { sms: 58, major, minor }).unwrap();
            assert_eq!((plan.target(), plan.choice().grid), (target, grid));
            assert_eq!(
                plan.workspace(),
                Workspace { scratch_bytes: 0, counters: 0 },
                "keys are few: nobody shares them"
            );
            assert!(names.contains(&plan.choice().instance.name()));
            assert!(plan.choice().shared_bytes <= 101_376, "what Ada gives");
            let bytes = if ["sm_89", "sm_100", "sm_120"].contains(&target) { 49_152 } else { 83_968 };
            assert_eq!(plan.choice().shared_bytes, bytes, "where products are in e4m3 bytes, not halves");
        }
    }
}

/// A token over a long cache would leave most SMs without work: their CTAs share its keys, in scratch and with counters that the workspace counts, by no more than fit.
#[test]
fn other_cards_share_the_keys_of_few_rows() {
    let l4 = Device { sms: 58, major: 8, minor: 9 };
    let shares = |problem: &Problem| Plan::new(problem, &l4).unwrap().choice().tiles_per_worker;
    let token = Problem::cached(1, 32, 8, 1, 8192, 128);
    // What portable.cu adds goes through shared memory: a flag, 2,048 largest scores and sums, 64 rows' factors.
    for (head_dim, minor) in [64, 128, 256].into_iter().flat_map(|d| [(d, 0), (d, 9)]) {
        let plan = Plan::new(&Problem::dense(1, 1, 1, 64, 65_536, head_dim), &Device { minor, ..l4 }).unwrap();
        assert!(plan.choice().tiles_per_worker > 1 && plan.choice().shared_bytes >= 16 + 8 * 2048 + 4 * 64);
    }
    let plan = Plan::new(&token, &l4).unwrap();
    assert_eq!((plan.choice().grid, shares(&token)), ([1, 8 * 13, 1], 13));
    assert_eq!(plan.workspace(), Workspace { scratch_bytes: 8 * 13 * 4 * (128 + 4) * 4, counters: 8 });
    assert_eq!(shares(&Problem::dense(1, 32, 8, 1, 8192, 128)), 13, "lengths that the host knows");
    assert_eq!(shares(&Problem::dense(1, 32, 8, 1, 300, 128)), 3, "a block of keys each");
    assert_eq!(shares(&Problem::dense(1, 8, 8, 64, 600, 128)), 3, "of five blocks");
    assert_eq!(shares(&Problem::cached(16, 32, 8, 1, 8192, 128)), 1, "there is work for all SMs");
    assert_eq!(shares(&Problem::dense(1, 1, 1, 64, 8192, 128)), 13, "one CTA adds 64 rows of each part");
    // Eight sequences of 300 tokens in all are 8 x 8 row tiles and a few, however long one might be.
    assert_eq!(shares(&Problem::varlen(8, 32, 8, 300, 300, 300, 300, 128)), 1);
    assert_eq!(shares(&Problem::varlen(2, 8, 2, 2, 20_000, 1, 10_000, 128)), 27);
}

#[test]
fn params_have_the_kernels_layout() {
    // params.cuh: ten pointers, nine i64, nine i32, six i32, kind, two floats, five i32, a pointer.
    assert_eq!(std::mem::size_of::<Params>(), 256);
    let params = include_str!("../../../kernels/attention/hopper/params.cuh");
    let want = "q k v q_scale k_scale v_scale out lse partial arrived q_b q_h q_s k_b k_h k_s v_b v_h v_s qs_b qs_h qs_t ks_b ks_h ks_t \
                vs_b vs_h vs_t B Hq Hkv Sq Sk group out_kind out_inverse_scale softmax_scale_log2 tiles_per_unit tiles_per_worker \
                total_tiles row_tiles section v_mean";
    assert_eq!(fields(params, "Params", 1).join(" "), want.split_whitespace().collect::<Vec<_>>().join(" "));
    assert_eq!(std::mem::size_of::<Values>(), 24);
    let transpose = include_str!("../../../kernels/attention/hopper/transpose.cu");
    // Of sequences whose lengths only the device knows: one behind another, and in caches.
    assert_eq!(fields(transpose, "Values", 1).join(" "), "cu H S B");
    assert_eq!(fields(transpose, "Values", 2).join(" "), "used pages pages_b H S B page_size page_count");
    assert_eq!(fields(transpose, "Values", 3).join(" "), "made H S heads section");
    assert_eq!((std::mem::size_of::<TokenValues>(), std::mem::size_of::<CacheValues>()), (24, 48));
    let ragged = include_str!("../../../kernels/attention/hopper/ragged.cuh");
    let want = "cu_q cu_k used pages pages_b o_b o_h o_s l_b l_h l_s total_q total_k page_size page_count splits";
    assert_eq!(fields(ragged, "Ragged", 1).join(" ").replace('*', ""), want);
    assert_eq!((std::mem::size_of::<Ragged>(), std::mem::size_of::<FewParams>()), (112, 368));
    let quantise = include_str!("../../../kernels/attention/hopper/quantise.cu");
    let want = "x shift codes scale amax x_b x_h x_s c_b c_h c_s H heads S D kind per";
    assert_eq!(fields(quantise, "Quantise", 1).join(" "), want);
    let pack = include_str!("../../../kernels/attention/hopper/pack.cu");
    let want = "x codes transposed scale mean x_b x_h c_b c_h x_s c_s H heads S even";
    assert_eq!(fields(pack, "Pack", 1).join(" "), want);
    assert_eq!((std::mem::size_of::<Quantise>(), std::mem::size_of::<Pack>()), (112, 96));
}

/// The names of the fields of the n-th struct of that name.
fn fields(text: &str, name: &str, n: usize) -> Vec<String> {
    let body = text.split(&format!("struct {name} {{")).nth(n).unwrap().split("};").next().unwrap();
    body.lines()
        .map(|l| l.split("//").next().unwrap().trim())
        .filter_map(|l| l.strip_suffix(';'))
        .flat_map(|l| {
            l.trim_start_matches("const ")
                .split_once(' ')
                .unwrap()
                .1
                .split(',')
                .map(|n| n.trim().to_string())
                .collect::<Vec<_>>()
        })
        .collect()
}

#[test]
fn the_header_is_fresh() {
    let made = warpsmith_attention::header::text();
    assert_eq!(include_str!("../include/warpsmith_attention.h"), made, "renew it: cargo xtask header");
    for wanted in [
        "    int64_t strides[3][3]; ",
        "int ws_attention_plan(const ws_attention_problem *problem, void **into);",
        "int ws_attention_launch(const void *plan, const ws_attention_pointers *pointers, void *stream);",
        "void ws_attention_free(void *plan);",
        "const char *ws_attention_message(void);",
        "    WS_ATTENTION_DRIVER = 3\n",
    ] {
        assert!(made.contains(wanted), "{wanted}");
    }
}

/// What a C compiler says of a program with the header before it; nothing where there is no compiler.
fn cc(program: &str, arguments: &[&str]) -> Option<std::process::Output> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("use.c");
    std::fs::write(&path, program).unwrap();
    let header = concat!(env!("CARGO_MANIFEST_DIR"), "/include");
    let made = std::process::Command::new("cc")
        .args(["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-I", header, "-o"])
        .args([folder.path().join("made"), path])
        .args(arguments)
        .output();
    match made {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => None,
        Ok(output) if output.status.success() && !arguments.contains(&"-c") => {
            Some(std::process::Command::new(folder.path().join("made")).output().unwrap())
        }
        other => Some(other.unwrap()),
    }
}

/// A C compiler takes the header, twice, and lays its structs out as Rust does.
#[test]
fn a_c_compiler_takes_the_header() {
    let program = "#include <warpsmith_attention.h>\n#include <warpsmith_attention.h>\n#include <stddef.h>\n\
        #define SAME(name, condition) typedef char name[(condition) ? 1 : -1]\n\
        SAME(problem, sizeof(ws_attention_problem) == 192);\n\
        SAME(strides, offsetof(ws_attention_problem, strides) == 40);\n\
        SAME(scales, offsetof(ws_attention_problem, scale_strides) == 112);\n\
        SAME(packed, offsetof(ws_attention_problem, packed_values) == 148);\n\
        SAME(wide, offsetof(ws_attention_problem, wide_queries) == 152);\n\
        SAME(fast, offsetof(ws_attention_problem, fast) == 156);\n\
        SAME(table, offsetof(ws_attention_problem, table_stride) == 160);\n\
        SAME(lengths, offsetof(ws_attention_problem, lengths) == 168);\n\
        SAME(tokens, offsetof(ws_attention_problem, tokens_k) == 184);\n\
        SAME(pointers, sizeof(ws_attention_pointers) == 120);\n\
        SAME(used, offsetof(ws_attention_pointers, used) == 88);\n\
        SAME(quantisation, sizeof(ws_attention_quantisation) == 88);\n\
        SAME(codes, offsetof(ws_attention_quantisation, codes) == 72);\n\
        SAME(quantised, sizeof(ws_attention_quantised) == 40);\n\
        int look(const float *s) { return ws_attention_check_scales(s, 3); }\n\
        int use(ws_attention_problem *p) { return ws_attention_dense(1, 8, 8, 512, 512, 64, p); }\n";
    if let Some(said) = cc(program, &["-c"]) {
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    }
}

/// The examples are linked with the shared library and run. Without a device they still plan nothing and say why.
#[cfg(target_os = "linux")]
#[test]
fn the_examples_link_and_run() {
    // The shared library lies beside this test.
    let built = std::env::current_exe().unwrap();
    let folder = built.parent().unwrap();
    let library = folder.join("libwarpsmith_attention.so");
    if !library.exists() {
        return; // a build of tests alone need not make it
    }
    let rpath = format!("-Wl,-rpath,{}", folder.display());
    // Wrong arguments are told from a missing driver, whatever the machine has; a build without kernels plans nothing.
    for (program, told) in [
        (include_str!("../examples/attention.c"), "a head dimension of 96: the head dimension must be 64, 128 or 256"),
        (include_str!("../examples/paged.c"), "pages of 60: seqlen_k 1024 must be a multiple of the page size, 60"),
    ] {
        let Some(said) = cc(program, &[library.to_str().unwrap(), &rpath, "-ldl"]) else { return };
        let text = String::from_utf8_lossy(&said.stdout).into_owned() + &String::from_utf8_lossy(&said.stderr);
        assert!(text.contains(told), "{text}");
        assert!(text.contains("without a driver: ") || text.contains("planned: "), "{text}");
    }
}
