//! Sequences whose lengths only the device knows, on a real device: `cargo xtask attention-kernels`, then `cargo xtask gpu-tests`.

mod device;

use device::{at, filled, kept_context, written};
use std::collections::BTreeSet;
use warpsmith_attention::{Device, Lengths, Mask, Output, Plan, Pointers, Problem, RawStream};
use warpsmith_cuda::{Context, DeviceBuffer};

/// e4m3 of 1, of 64, and of 448, which is behind what sequences use.
const ONE: u8 = 0x38;
const LARGE: u8 = 0x68;
const BEHIND: u8 = 0x7E;

fn words(context: &Context, words: &[i32]) -> DeviceBuffer {
    written(context, &words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<_>>())
}

/// Queries and keys of each sequence.
type Sequence = (usize, usize);

/// Each query finds its own key: one-hot queries and keys, values that tell keys apart, and behind what a sequence uses keys that all queries would prefer. Rows of no sequence, and of one
/// without keys, are zero.
struct Case {
    problem: Problem,
    sequences: Vec<Sequence>,
}

impl Case {
    /// Which dimension a query asks for.
    fn hot(&self, sequence: usize, head: usize, query: usize) -> usize {
        (7 * head + 3 * query + 5 * sequence) % self.problem.head_dim as usize
    }

    /// A token's row of K: one-hot, or what every query prefers behind the sequence's keys; and of V.
    fn key(&self, token: Option<usize>) -> (Vec<u8>, Vec<u8>) {
        let width = self.problem.head_dim as usize;
        match token {
            Some(token) => {
                let hot = token % width;
                let k = (0..width).map(|d| if d == hot { LARGE } else { 0 }).collect();
                (k, vec![ONE + (hot % 8) as u8; width])
            }
            None => (vec![LARGE; width], vec![BEHIND; width]),
        }
    }

    /// Rows of K and of V for all heads of one token after the other.
    fn tokens(&self, tokens: impl Iterator<Item = Option<usize>>) -> (Vec<u8>, Vec<u8>) {
        let heads = self.problem.heads_kv as usize;
        let (mut k, mut v) = (Vec::new(), Vec::new());
        for (of_k, of_v) in tokens.map(|token| self.key(token)) {
            k.extend(of_k.repeat(heads));
            v.extend(of_v.repeat(heads));
        }
        (k, v)
    }

    /// What a row gives, in f16, and its log-sum-exp.
    fn want(&self, sequence: usize, head: usize, query: usize) -> (u16, f32) {
        let (queries, keys) = self.sequences[sequence];
        let seen = match self.problem.mask {
            Mask::Full => keys,
            Mask::Causal => (keys + query + 1).saturating_sub(queries),
        };
        let width = self.problem.head_dim as usize;
        let hot = self.hot(sequence, head, query);
        let alike = if seen > hot { (seen - hot).div_ceil(width) } else { 0 };
        if seen == 0 {
            return (0, f32::NEG_INFINITY);
        }
        assert!(alike > 0, "the case has a key for each query");
        (0x3C00 + 0x80 * (hot % 8) as u16, 4096.0 / (width as f32).sqrt() + (alike as f32).ln())
    }

    fn run(&self, context: &Context, device: &Device) -> Vec<String> {
        let p = &self.problem;
        let plan = Plan::new(p, device).expect("the problem is right");
        let ready = plan.load().expect("the kernel loads");
        let (width, heads_q, room) = (p.head_dim as usize, p.heads_q as usize, p.seqlen_k as usize);
        let used: Vec<i32> = self.sequences.iter().map(|s| s.1 as i32).collect();
        let begins = |of: fn(&Sequence) -> usize| -> Vec<i32> {
            let sums = self.sequences.iter().scan(0, |sum, s| {
                *sum += of(s) as i32;
                Some(*sum)
            });
            std::iter::once(0).chain(sums).collect()
        };
        let (cu_q, cu_k) = (begins(|s| s.0), begins(|s| s.1));
        let varlen = matches!(p.lengths, Lengths::Varlen { .. });
        let in_cache = |b: usize, t: usize| (t < used[b] as usize).then_some(t);
        // Where a row of q, and of out, lies: (sequence, head, query).
        let rows: Vec<Option<(usize, usize, usize)>> = match p.lengths {
            Lengths::Varlen { tokens_q, .. } => {
                let of =
                    |b: usize| (0..self.sequences[b].0).flat_map(move |i| (0..heads_q).map(move |h| Some((b, h, i))));
                let mut rows: Vec<_> = (0..self.sequences.len()).flat_map(of).collect();
                rows.resize(tokens_q as usize * heads_q, None);
                rows
            }
            _ => {
                let of =
                    |b: usize| (0..heads_q).flat_map(move |h| (0..p.seqlen_q as usize).map(move |i| Some((b, h, i))));
                (0..self.sequences.len()).flat_map(of).collect()
            }
        };
        let mut table = Vec::new();
        let (k, v) = match p.lengths {
            Lengths::Equal => panic!("a case of lengths"),
            Lengths::Used => {
                self.tokens((0..used.len()).flat_map(|b| (0..room).map(move |t| (b, t))).map(|(b, t)| in_cache(b, t)))
            }
            Lengths::Paged { page_size, pages, .. } => {
                // Pages of all sequences by turns, the last ones first; entries behind what is used lead nowhere.
                let (size, of_each) = (page_size as usize, room / page_size as usize);
                let mut pool = vec![None; pages as usize];
                table = vec![-1; used.len() * of_each];
                let mut free = pages as usize;
                for i in 0..of_each {
                    for b in 0..used.len() {
                        if i * size < used[b] as usize {
                            free -= 1;
                            (pool[free], table[b * of_each + i]) = (Some((b, i)), free as i32);
                        }
                    }
                }
                let tokens = pool
                    .into_iter()
                    .flat_map(|page| (0..size).map(move |t| page.map(|(b, i): (usize, usize)| (b, i * size + t))));
                self.tokens(tokens.map(|token| token.and_then(|(b, t)| in_cache(b, t))))
            }
            Lengths::Varlen { tokens_k, .. } => {
                let mut tokens: Vec<_> = self.sequences.iter().flat_map(|s| (0..s.1).map(Some)).collect();
                tokens.resize(tokens_k as usize, None);
                self.tokens(tokens.into_iter())
            }
        };
        let one_hot = |row: &Option<(usize, usize, usize)>| match row {
            Some((b, h, i)) => (0..width).map(|d| if d == self.hot(*b, *h, *i) { LARGE } else { 0 }).collect(),
            None => vec![BEHIND; width],
        };
        let q = written(context, &rows.iter().flat_map(one_hot).collect::<Vec<_>>());
        let (k, v) = (written(context, &k), written(context, &v));
        let scales = written(context, &1.0f32.to_le_bytes().repeat(used.len() * heads_q));
        let (used, table) = (words(context, &used), words(context, &table));
        let (cu_q, cu_k) = (words(context, &cu_q), words(context, &cu_k));
        let (out, lse) =
            (filled(context, (2 * rows.len() * width) as u64, 0xFF), filled(context, (4 * rows.len()) as u64, 0xFF));
        let work = plan.workspace();
        let scratch = filled(context, work.scratch_bytes, 0xFF);
        let counters = filled(context, 4 * u64::from(work.counters), 0);
        let mut names = Vec::new();
        for (wanted, choice) in [(None, plan.choice()), (Some(at(&lse)), plan.choice_with_lse())] {
            let name = choice.instance.name();
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
                used: Some(at(&used)),
                pages: Some(at(&table)),
                cu_seqlens_q: Some(at(&cu_q)),
                cu_seqlens_k: Some(at(&cu_k)),
                ..Pointers::default()
            };
            out.fill(0, 2 * (rows.len() * width) as u64, 0xFF).expect("the buffer is written");
            for _ in 0..2 {
                // Twice: the counters are zero again.
                ready.launch(&pointers, RawStream(std::ptr::null_mut())).expect("the launch is made");
            }
            context.wait().expect("the kernel ends");
            let mut got = vec![0; 2 * rows.len() * width];
            out.read(0, &mut got).expect("the output is read");
            let mut sums = vec![0; 4 * rows.len()];
            lse.read(0, &mut sums).expect("the log-sum-exps are read");
            for (i, row) in rows.iter().enumerate() {
                let want = row.map_or((0, f32::NEG_INFINITY), |(b, h, query)| self.want(b, h, query));
                let of_row = &got[2 * i * width..2 * (i + 1) * width];
                let wrong = of_row.chunks(2).position(|x| u16::from_le_bytes([x[0], x[1]]).abs_diff(want.0) > 2);
                assert_eq!(wrong, None, "{name}: row {i}, {row:?}: {:x?}, not {:x}: {p:?}", &of_row[..2], want.0);
                if wanted.is_some() {
                    // Of sequences one behind another log-sum-exps are (heads, tokens).
                    let at = if varlen { i % heads_q * (rows.len() / heads_q) + i / heads_q } else { i };
                    let sum = f32::from_le_bytes(sums[4 * at..4 * at + 4].try_into().expect("four bytes"));
                    // The tensor core keeps 13 bits of a score.
                    let right = sum == want.1 || (sum - want.1).abs() < 2e-2 + 2e-3 * want.1;
                    assert!(right, "{name}: log-sum-exp {sum} of row {i}, {row:?}, not {}: {p:?}", want.1);
                }
            }
            names.push(name);
        }
        names
    }
}

#[test]
#[ignore = "needs a CUDA device"]
fn sequences_have_lengths_of_their_own() {
    let context = kept_context();
    let device = Device::current().expect("the context is current");
    // As on a card for which there is the portable kernel's PTX alone: the driver compiles it for this one, too.
    let other = Device { major: 11, minor: 0, ..device };
    let mut names = BTreeSet::new();
    for (heads_q, heads_kv, head_dim) in [(8, 2, 64), (8, 8, 128), (10, 2, 128), (8, 1, 256), (6, 2, 256)] {
        for mask in [Mask::Full, Mask::Causal] {
            for (queries, keys) in [
                (1, vec![300, 0, 1024, 777]),
                (3, vec![1500, 400, 260, 2048, 999, 0, 512]),
                (70, vec![2000, 400, 0, 650]),
                (400, vec![700, 1000]),
            ] {
                let batch = keys.len() as u32;
                let sequences: Vec<Sequence> = keys.iter().map(|n| (queries as usize, *n)).collect();
                let changed = |problem: Problem| Problem { mask, output: Output::F16, ..problem };
                let cached = Problem::cached(batch, heads_q, heads_kv, queries, 2048, head_dim);
                let mut problems = vec![changed(cached)];
                for size in [16, 24, 64, 128, 256] {
                    let of_each = 2048u32.div_ceil(size);
                    let pages = batch * of_each + 3;
                    problems.push(changed(Problem::paged(
                        batch, heads_q, heads_kv, queries, of_each, size, pages, head_dim,
                    )));
                }
                for problem in problems {
                    for device in [&device, &other] {
                        names.extend(Case { problem, sequences: sequences.clone() }.run(&context, device));
                    }
                }
            }
            // One behind another: prompts, chunks, single tokens, both, and tokens of no sequence behind them.
            for sequences in [
                vec![(300, 300), (1000, 1000), (0, 0), (513, 513)],
                vec![(100, 1000), (64, 2000), (1, 400)],
                vec![(1, 400), (1, 3000), (1, 300), (1, 512), (2, 999)],
                vec![(900, 1500), (1, 3000), (1, 300), (1, 512), (1, 999), (1, 444), (1, 2000)],
                vec![(1, 20_000)],
                vec![(4000, 4000), (3000, 3000)],
            ] {
                let [queries, keys] = [|s: &Sequence| s.0, |s: &Sequence| s.1].map(|of| {
                    [sequences.iter().map(of).sum::<usize>() as u32, sequences.iter().map(of).max().unwrap_or(0) as u32]
                });
                // A prompt's first queries see no key that is theirs.
                let of_mask = if sequences.iter().any(|s| s.0 == s.1 && s.0 > 0) { Mask::Full } else { mask };
                let problem = Problem::varlen(
                    sequences.len() as u32,
                    heads_q,
                    heads_kv,
                    queries[0] + 3,
                    keys[0] + 7,
                    queries[1],
                    keys[1],
                    head_dim,
                );
                let problem = Problem { mask: of_mask, output: Output::F16, ..problem };
                for device in [&device, &other] {
                    names.extend(Case { problem, sequences: sequences.clone() }.run(&context, device));
                }
            }
        }
    }
    for file in ["decode_", "forward_", "forward_f16_", "forward_e4m3_", "ragged_", "portable_"] {
        assert!(names.iter().any(|name| name.starts_with(file)), "{file}: {names:?}");
    }
    for kind in ["_lens1", "_lens2", "_spread1", "packed1"] {
        assert!(names.iter().any(|name| name.contains(kind)), "{kind}: {names:?}");
    }
}

/// So many row tiles that no kernel that writes rows of no sequence takes them: they are cleared before.
#[test]
#[ignore = "needs a CUDA device"]
fn rows_of_no_sequence_are_cleared() {
    let context = kept_context();
    let device = Device::current().expect("the context is current");
    let sequences = vec![(40, 200), (1, 300), (0, 0)];
    let problem = Problem::varlen(3, 4096, 1, 150, 510, 150, 510, 64);
    let problem = Problem { output: Output::F16, mask: Mask::Full, ..problem };
    let names = Case { problem, sequences }.run(&context, &device);
    assert!(names.iter().all(|name| name.starts_with("ragged_")), "{names:?}");
}
