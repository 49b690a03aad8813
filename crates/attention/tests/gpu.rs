//! Plans on a real device, by the embedded kernels: `cargo xtask attention-kernels`, then `cargo xtask gpu-tests`.

mod device;

use device::{at, filled, kept_context, written};
use warpsmith_attention::{
    Device, DevicePtr, Error, Mask, Output, Plan, Pointers, Problem, Quantisation, QuantisePlan, Quantised, RawStream,
    Scales, Wide,
};

/// e4m3 of 1, and f16 of 1.
const ONE: u8 = 0x38;
const HALF_ONE: [u8; 2] = [0x00, 0x3C];

/// Equal keys and values of one: every row that sees a key is one, by whichever kernel the heuristic takes: to the bit, or to 1e-3 where
/// weights are FP16. The log-sum-exp, where asked for, is ln of the keys seen above the score, which is `sqrt(head_dim)`.
#[test]
#[ignore = "needs a CUDA device"]
fn values_of_one_stay_one_by_every_kernel() {
    let context = kept_context();
    let device = Device::current().expect("the context is current");
    let shapes = [
        (1, 8, 8, 512, 512, 64),      // tiny
        (2, 8, 8, 2000, 2000, 128),   // forward_e4m3, with log-sum-exp forward
        (1, 8, 2, 700, 3001, 128),    // the same with fewer row tiles, in groups
        (2, 16, 16, 1500, 1500, 128), // the same by three consumers
        (2, 8, 8, 2000, 2000, 64),    // forward_f16, with log-sum-exp forward
        (1, 8, 2, 700, 3001, 64),     // the same with fewer row tiles, in groups
        (1, 16, 1, 300, 700, 128),    // V transposed before: forward_e4m3, with log-sum-exp forward
        (1, 16, 1, 300, 700, 256),    // the same
        (4, 32, 8, 1, 5000, 128),     // decode
        (2, 8, 1, 8, 5000, 256),      // decode, 16 rows at a time
        (1, 8, 2, 9, 5000, 128),      // the same
        (16, 32, 8, 16, 8192, 128),   // keys over the whole grid
        (1, 5, 1, 33, 77, 64),        // ragged
    ];
    for (batch, heads_q, heads_kv, seqlen_q, seqlen_k, head_dim) in shapes {
        for mask in [Mask::Full, Mask::Causal] {
            let dense = Problem::dense(batch, heads_q, heads_kv, seqlen_q, seqlen_k, head_dim);
            let problem = Problem { mask, output: Output::F16, ..dense };
            let plan = Plan::new(&problem, &device).expect("the problem is right");
            let ready = match plan.load() {
                Err(e @ Error::NoKernel { .. }) => panic!("{e}"),
                other => other.expect("the kernel loads"),
            };
            let rows = u64::from(batch * heads_q * seqlen_q);
            let keys = u64::from(batch * heads_kv * seqlen_k);
            let width = u64::from(head_dim);
            let (q, k, v) = (
                filled(&context, rows * width, ONE),
                filled(&context, keys * width, ONE),
                filled(&context, keys * width, ONE),
            );
            let scales = context.alloc(4 * u64::from(batch * heads_q)).expect("there is room");
            scales.write(0, &1.0f32.to_le_bytes().repeat((batch * heads_q) as usize)).expect("the scales are written");
            let out = filled(&context, 2 * rows * width, 0xFF);
            let work = plan.workspace();
            let scratch = filled(&context, work.scratch_bytes.max(16), 0xFF);
            let counters = filled(&context, 4 * u64::from(work.counters.max(1)), 0);
            let pointers = Pointers {
                q: at(&q),
                k: at(&k),
                v: at(&v),
                v_mean: None,
                q_scale: at(&scales),
                k_scale: at(&scales),
                v_scale: at(&scales),
                out: at(&out),
                lse: None,
                scratch: at(&scratch),
                counters: at(&counters),
                ..Pointers::default()
            };
            let askew = Pointers { k: DevicePtr(k.address() + 1), ..pointers };
            let stream = RawStream(std::ptr::null_mut());
            assert_eq!(ready.launch(&askew, stream).unwrap_err(), Error::Pointer { name: "k", why: "not on 16 bytes" });
            let lse = filled(&context, 4 * rows, 0xFF);
            for (wanted, choice) in [(None, plan.choice()), (Some(at(&lse)), plan.choice_with_lse())] {
                let name = choice.instance.name();
                out.fill(0, 2 * rows * width, 0xFF).expect("the buffer is written");
                for _ in 0..2 {
                    // Twice: the counters are zero again.
                    ready.launch(&Pointers { lse: wanted, ..pointers }, stream).expect("the launch is made");
                }
                context.wait().expect("the kernel ends");
                let mut got = vec![0; (2 * rows * width) as usize];
                out.read(0, &mut got).expect("the output is read");
                let one = u16::from_le_bytes(HALF_ONE);
                // FP16 has steps of 0.0005 below one, and of 0.001 above it.
                let right = if choice.instance.file == "forward_f16" { one - 2..=one + 1 } else { one..=one };
                let wrong = got.chunks(2).position(|x| !right.contains(&u16::from_le_bytes([x[0], x[1]])));
                assert_eq!(wrong, None, "{name}, {mask:?}: element {wrong:?} of {}", got.len() / 2);
                if wanted.is_some() {
                    let mut sums = vec![0; (4 * rows) as usize];
                    lse.read(0, &mut sums).expect("the log-sum-exps are read");
                    for (row, sum) in sums.chunks(4).enumerate() {
                        let query = row as u32 % seqlen_q;
                        let seen = match mask {
                            Mask::Full => seqlen_k,
                            Mask::Causal => seqlen_k - seqlen_q + query + 1,
                        };
                        let want = (head_dim as f32).sqrt() + (seen as f32).ln();
                        let sum = f32::from_le_bytes([sum[0], sum[1], sum[2], sum[3]]);
                        // The tensor core keeps 13 bits of a score.
                        assert!(
                            (sum - want).abs() < 2e-2 + 2e-3 * want,
                            "{name}, {mask:?}: log-sum-exp {sum} of row {row}, not {want}"
                        );
                    }
                }
            }
        }
    }
}

/// One-hot queries and keys, and values that tell keys apart: each row is the values of its own query's key, so no query is another's. In groups whose queries come by
/// boxes, and in one whose come row by row.
#[test]
#[ignore = "needs a CUDA device"]
fn each_query_finds_its_own_key() {
    const LARGE: u8 = 0x68; // e4m3 of 64
    let context = kept_context();
    let device = Device::current().expect("the context is current");
    for (batch, heads_q, heads_kv, seqlen_q, seqlen_k, head_dim, fast) in [
        (2, 8, 2, 70, 600, 128, false),
        (2, 16, 2, 40, 600, 256, false),
        (2, 6, 2, 70, 600, 64, false),
        (1, 16, 1, 300, 700, 64, false),
        (3, 4, 4, 100, 900, 128, false),
        (1, 8, 2, 700, 3001, 64, false),
        (2, 8, 8, 2000, 2000, 128, false),
        (4, 16, 2, 70, 1600, 128, true),
        (4, 8, 8, 1000, 1000, 128, true),
        (2, 8, 8, 4100, 4100, 128, true),
        (2, 8, 8, 3000, 3000, 256, true),
    ] {
        let dense = Problem::dense(batch, heads_q, heads_kv, seqlen_q, seqlen_k, head_dim);
        let problem = Problem { output: Output::F16, fast, ..dense };
        let plan = Plan::new(&problem, &device).expect("the problem is right");
        assert_eq!(plan.choice().instance.defines.contains(&("WS_FAST", 1)), fast, "{problem:?}");
        let ready = plan.load().expect("the kernel loads");
        let (rows, width) = ((batch * heads_q * seqlen_q) as usize, head_dim as usize);
        let key_of = |row: usize| (7 * (row / seqlen_q as usize) + 3 * (row % seqlen_q as usize)) % width;
        let buffer = |bytes: &[u8]| written(&context, bytes);
        let one_hot = |hot: usize| (0..width).map(move |d| if d == hot { LARGE } else { 0 });
        let q = buffer(&(0..rows).flat_map(|row| one_hot(key_of(row))).collect::<Vec<_>>());
        let tokens = (batch * heads_kv) as usize * seqlen_k as usize;
        let key = |token: usize| token % seqlen_k as usize % width;
        let k = buffer(&(0..tokens).flat_map(|token| one_hot(key(token))).collect::<Vec<_>>());
        let v = buffer(&(0..tokens).flat_map(|token| vec![ONE + (key(token) % 8) as u8; width]).collect::<Vec<_>>());
        let scales = buffer(&1.0f32.to_le_bytes().repeat((batch * heads_q) as usize));
        let out = filled(&context, 2 * (rows * width) as u64, 0xFF);
        let work = plan.workspace();
        let scratch = filled(&context, work.scratch_bytes.max(16), 0xFF);
        let counters = filled(&context, 4 * u64::from(work.counters.max(1)), 0);
        let lse = filled(&context, 4 * rows as u64, 0xFF);
        for (wanted, choice) in [(None, plan.choice()), (Some(at(&lse)), plan.choice_with_lse())] {
            let pointers = Pointers {
                q: at(&q),
                k: at(&k),
                v: at(&v),
                q_scale: at(&scales),
                k_scale: at(&scales),
                v_scale: at(&scales),
                out: at(&out),
                lse: wanted,
                scratch: at(&scratch),
                counters: at(&counters),
                ..Pointers::default()
            };
            ready.launch(&pointers, RawStream(std::ptr::null_mut())).expect("the launch is made");
            context.wait().expect("the kernel ends");
            let mut got = vec![0; 2 * rows * width];
            out.read(0, &mut got).expect("the output is read");
            let want = |row: usize| u16::from_le_bytes(HALF_ONE) + 0x80 * (key_of(row) % 8) as u16;
            let wrong =
                got.chunks(2).enumerate().find(|(i, x)| u16::from_le_bytes([x[0], x[1]]).abs_diff(want(i / width)) > 2);
            assert_eq!(wrong, None, "{}: {problem:?}", choice.instance.name());
        }
    }
}

/// Packed values of one and a mean of one: two, to the bit, for every row that sees a key, by the kernel that takes V transposed.
#[test]
#[ignore = "needs a CUDA device"]
fn packed_values_have_their_mean_added() {
    let context = kept_context();
    let device = Device::current().expect("the context is current");
    for (batch, heads_q, heads_kv, seqlen_q, seqlen_k, head_dim) in
        [(1, 8, 2, 700, 900, 64), (2, 4, 4, 1000, 2000, 128), (1, 2, 1, 300, 500, 256)]
    {
        for (mask, wide) in [(Mask::Full, false), (Mask::Causal, false), (Mask::Full, true), (Mask::Causal, true)] {
            let dense = Problem::dense(batch, heads_q, heads_kv, seqlen_q, seqlen_k, head_dim);
            let problem = Problem { mask, output: Output::F16, packed_values: true, wide_queries: wide, ..dense };
            let plan = Plan::new(&problem, &device).expect("the problem is right");
            let ready = plan.load().expect("the kernel loads");
            let (rows, width) = (u64::from(batch * heads_q * seqlen_q), u64::from(head_dim));
            let heads = u64::from(batch * heads_kv);
            let q = filled(&context, 2 * rows * width, ONE);
            if wide {
                q.write(0, &[0x00, 0x3C].repeat((rows * width) as usize)).expect("queries of one, in f16, are written");
            }
            let k = filled(&context, heads * u64::from(seqlen_k) * width, ONE);
            let v = filled(&context, heads * u64::from(seqlen_k).next_multiple_of(128) * width, ONE);
            let ones = context.alloc(4 * heads.max(u64::from(batch * heads_q)) * width).expect("there is room");
            let count = (heads.max(u64::from(batch * heads_q)) * width) as usize;
            ones.write(0, &1.0f32.to_le_bytes().repeat(count)).expect("scales and means are written");
            let out = filled(&context, 2 * rows * width, 0xFF);
            let work = plan.workspace();
            let scratch = filled(&context, work.scratch_bytes.max(16), 0xFF);
            let counters = filled(&context, 4 * u64::from(work.counters.max(1)), 0);
            let pointers = Pointers {
                q: at(&q),
                k: at(&k),
                v: at(&v),
                scratch: at(&scratch),
                counters: at(&counters),
                v_mean: Some(at(&ones)),
                q_scale: if wide { DevicePtr::default() } else { at(&ones) },
                k_scale: at(&ones),
                v_scale: at(&ones),
                out: at(&out),
                ..Pointers::default()
            };
            ready.launch(&pointers, RawStream(std::ptr::null_mut())).expect("the launch is made");
            context.wait().expect("the kernel ends");
            let mut got = vec![0; (2 * rows * width) as usize];
            out.read(0, &mut got).expect("the output is read");
            let wrong = got.chunks(2).position(|x| x != [0x00, 0x40]);
            let name = plan.choice().instance.name();
            assert_eq!(wrong, None, "{name}, {mask:?}, {wide}: element {wrong:?} of {}", got.len() / 2);
        }
    }
}

/// Queries quantised by heads, keys and values packed in one launch, and attention over them: values that are constants of their channels come back as they were, whatever the keys.
#[test]
#[ignore = "needs a CUDA device"]
fn what_is_packed_is_attended_to() {
    let context = kept_context();
    let device = Device::current().expect("the context is current");
    let bf16 = |x: f32| ((x.to_bits() >> 16) as u16).to_le_bytes();
    for (batch, heads_q, heads_kv, seqlen_q, seqlen_k, head_dim) in
        [(2, 8, 2, 700, 900, 64), (1, 8, 8, 1500, 2000, 128), (1, 4, 2, 300, 130, 256)]
    {
        let width = head_dim as usize;
        let wide = |heads: u32, tokens: u32, of: &dyn Fn(usize, usize) -> f32| {
            let rows = (batch * heads * tokens) as usize;
            let bytes: Vec<u8> = (0..rows * width).flat_map(|i| bf16(of(i / width, i % width))).collect();
            written(&context, &bytes)
        };
        let channel = |d: usize| 0.5 + (d % 32) as f32 / 16.0;
        let wave = |row: usize, d: usize| ((row * 37 + d * 11) as f32).sin();
        let (q, k) = (wide(heads_q, seqlen_q, &wave), wide(heads_kv, seqlen_k, &wave));
        let v = wide(heads_kv, seqlen_k, &|_, d| channel(d));
        let (rows, heads) = (u64::from(batch * heads_q * seqlen_q), u64::from(batch * heads_kv));
        let (width_of, tiles) = (u64::from(head_dim), u64::from(seqlen_k).div_ceil(128));
        let room = |bytes: u64| filled(&context, bytes, 0xFF);
        let (q8, q_scale) = (room(rows * width_of), room(4 * u64::from(batch * heads_q)));
        let (k8, k_scale) = (room(heads * u64::from(seqlen_k) * width_of), room(4 * heads * tiles));
        let (v_t, v_scale) = (room(heads * width_of * 128 * tiles), room(4 * heads * tiles));
        let (k_mean, v_mean) = (room(4 * heads * width_of), room(4 * heads * width_of));
        let stream = RawStream(std::ptr::null_mut());
        let queries = Quantisation::dense(batch, heads_q, seqlen_q, head_dim, Wide::Bf16, Scales::Head);
        let plan = QuantisePlan::new(&[queries], &device).expect("the queries are right").load().expect("it loads");
        let counters = filled(&context, 4 * u64::from(plan.plan().counters()), 0);
        let to = Quantised { x: at(&q), codes: at(&q8), scale: at(&q_scale), ..Quantised::default() };
        plan.launch(&[to], at(&counters), stream).expect("the launch is made");
        // By the code for other cards, which the driver compiles for this one, too: the same bytes.
        let other = Device { major: 11, minor: 0, ..device };
        let others = QuantisePlan::new(&[queries], &other).expect("the queries are right").load().expect("it loads");
        let (its_q8, its_scale) = (room(rows * width_of), room(4 * u64::from(batch * heads_q)));
        let its = Quantised { codes: at(&its_q8), scale: at(&its_scale), ..to };
        others.launch(&[its], at(&counters), stream).expect("the launch is made");
        context.wait().expect("the kernels end");
        for (ours, theirs, bytes) in
            [(&q8, &its_q8, rows * width_of), (&q_scale, &its_scale, 4 * u64::from(batch * heads_q))]
        {
            let [ours, theirs] = [ours, theirs].map(|buffer| {
                let mut found = vec![0; bytes as usize];
                buffer.read(0, &mut found).expect("it is read");
                found
            });
            assert!(ours == theirs, "{head_dim}: other codes or scales");
        }
        let askew = Quantised { codes: DevicePtr(1), ..to };
        let error = Error::Pointer { name: "codes", why: "not on 16 bytes" };
        assert_eq!(plan.launch(&[askew], at(&counters), stream).unwrap_err(), error);
        let parts = [
            Quantisation::keys(batch, heads_kv, seqlen_k, head_dim, Wide::Bf16),
            Quantisation::values(batch, heads_kv, seqlen_k, head_dim, Wide::Bf16),
        ];
        let of_k = Quantised { x: at(&k), codes: at(&k8), scale: at(&k_scale), mean: at(&k_mean), ..to };
        let of_v = Quantised { x: at(&v), scale: at(&v_scale), mean: at(&v_mean), transposed: at(&v_t), ..to };
        let plan = QuantisePlan::new(&parts, &device).expect("they are right").load().expect("it loads");
        plan.launch(&[of_k, of_v], DevicePtr::default(), stream).expect("the launch is made");
        let packed = Problem::packed(batch, heads_q, heads_kv, seqlen_q, seqlen_k, head_dim);
        let problem = Problem { output: Output::F16, ..packed };
        let plan = Plan::new(&problem, &device).expect("the problem is right");
        let ready = plan.load().expect("the kernel loads");
        let out = room(2 * rows * width_of);
        let scratch = room(plan.workspace().scratch_bytes.max(16));
        let counters = filled(&context, 4 * u64::from(plan.workspace().counters.max(1)), 0);
        let pointers = Pointers {
            q: at(&q8),
            k: at(&k8),
            v: at(&v_t),
            v_mean: Some(at(&v_mean)),
            q_scale: at(&q_scale),
            k_scale: at(&k_scale),
            v_scale: at(&v_scale),
            out: at(&out),
            scratch: at(&scratch),
            counters: at(&counters),
            ..Pointers::default()
        };
        ready.launch(&pointers, stream).expect("the launch is made");
        context.wait().expect("the kernels end");
        let mut got = vec![0; (2 * rows * width_of) as usize];
        out.read(0, &mut got).expect("the output is read");
        // Sixteenths from 1/2 to 5/2 are whole numbers of f16's steps.
        let want = |d: usize| {
            let x = channel(d);
            let exponent = x.log2().floor();
            ((exponent as i32 + 15) << 10) as u16 + ((x / exponent.exp2() - 1.0) * 1024.0) as u16
        };
        let wrong = got.chunks(2).enumerate().find(|(i, x)| u16::from_le_bytes([x[0], x[1]]) != want(i % width));
        assert_eq!(wrong, None, "{}: {problem:?}", plan.choice().instance.name());
    }
}
