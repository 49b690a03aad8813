//! A problem: sizes, strides and options of one call. Pure data, checked before anything is planned.

use crate::error::ProblemError;

/// Which keys a query sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mask {
    /// All.
    Full,
    /// Aligned bottom-right: query i sees keys up to seqlen_k - seqlen_q + i.
    Causal,
}

/// The output's format.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Output {
    Bf16,
    F16,
    /// round(o / scale), to nearest even, saturating.
    E4m3 {
        scale: f32,
    },
}

impl Output {
    /// As the kernels number them (params.cuh).
    pub fn kind(self) -> i32 {
        match self {
            Output::Bf16 => 0,
            Output::F16 => 1,
            Output::E4m3 { .. } => 2,
        }
    }
}

/// Steps in elements over (batch, head, token); the last dimension is contiguous.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Strides {
    pub batch: i64,
    pub head: i64,
    pub token: i64,
}

/// Tokens of a block that may have a scale of its own.
pub(crate) const BLOCK: u32 = 128;

/// Steps of a scale over (batch, head, block of 128 tokens); 0 where it is shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ScaleStrides {
    pub batch: i32,
    pub head: i32,
    pub block: i32,
}

/// Where the tokens of sequences lie, and who knows how many each has. All but the first go with neither packed values nor queries of 16 bits.
/// Lengths on the device are read by each launch, so that a captured graph follows them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Lengths {
    /// Each sequence has `seqlen_q` queries and `seqlen_k` keys.
    #[default]
    Equal,
    /// Sequence b uses the first [`crate::Pointers::used`]`[b]` of the `seqlen_k` keys that it has room for.
    Used,
    /// The same by pages: k and v are pools (pages, page_size, heads_kv, head_dim), whose steps over pages are their strides' `batch`; the i-th page of sequence b is
    /// [`crate::Pointers::pages`]`[b * table_stride + i]`. `seqlen_k` is `page_size` times the pages that a sequence may have.
    Paged { page_size: u32, pages: u32, table_stride: i64 },
    /// Sequences lie one behind another, with so many tokens in all: q (tokens_q, heads_q, head_dim), k and v (tokens_k, heads_kv, head_dim); sequence b is rows
    /// [`crate::Pointers::cu_seqlens_q`]`[b]` to `[b + 1]`, of k `cu_seqlens_k`. No sequence has more than `seqlen_q` queries and `seqlen_k` keys; strides' `batch` is not looked at.
    Varlen { tokens_q: u32, tokens_k: u32 },
}

/// Sizes, strides and options of one call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Problem {
    pub batch: u32,
    pub heads_q: u32,
    pub heads_kv: u32,
    pub seqlen_q: u32,
    pub seqlen_k: u32,
    /// 64, 128 or 256.
    pub head_dim: u32,
    pub mask: Mask,
    pub output: Output,
    /// 1 / sqrt(head_dim) if `None`.
    pub softmax_scale: Option<f32>,
    /// Of q, k and v.
    pub strides: [Strides; 3],
    /// Of q's, k's and v's scales, which are zero or positive, and finite: a negative one gives meaningless values in its head, and harms
    /// nothing else. They lie on the device, so no call looks at them; who has them on the host asks [`check_scales`].
    pub scales: [ScaleStrides; 3],
    /// V is packed: transposed to (batch, heads_kv, head_dim, keys in whole tiles of 128), contiguous, in the order that
    /// `kernels/attention/hopper/transpose.cuh` states, codes of zero behind the last key; `strides[2]` is not looked at. Hopper only, and worth
    /// it where [`crate::heuristic::packed_fits`]; at D 128 a fifth, at 256 a tenth faster where a head's scales of k, and of v, are equal.
    pub packed_values: bool,
    /// Q is of 16 bits, bf16 or f16 as the output is: the kernel makes e4m3 of it, each row with a power of two of its own, by which `q_scale`, if there is one,
    /// is multiplied. With packed values only, and launches make no log-sum-exp.
    pub wide_queries: bool,
    /// Outputs may be rounded more where that is faster: weights linear between powers of two, for many queries over many keys on Hopper, without the
    /// log-sum-exp, at head dimension 128, and at 256 with scales of whole heads. relF of normal inputs is then up to 1.05 times as large (1.10 where scores hardly differ), time 3% less in the mean. Else nothing changes.
    pub fast: bool,
    /// Of sequences whose lengths only the device knows, say.
    pub lengths: Lengths,
}

/// Whether scales, here on the host, are what the kernels take: finite and not negative. `name` is for the message.
///
/// Errors: [`ProblemError::Scale`], the first that is not.
pub fn check_scales(name: &'static str, scales: &[f32]) -> Result<(), ProblemError> {
    match scales.iter().position(|s| !(*s >= 0.0 && s.is_finite())) {
        Some(at) => Err(ProblemError::Scale { name, at, value: scales[at].to_string() }),
        None => Ok(()),
    }
}

impl Problem {
    /// Contiguous (batch, heads, tokens, head_dim), a scale for each head, no mask, bf16 out.
    pub fn dense(batch: u32, heads_q: u32, heads_kv: u32, seqlen_q: u32, seqlen_k: u32, head_dim: u32) -> Problem {
        let strides = |heads: u32, tokens: u32| Strides {
            batch: i64::from(heads) * i64::from(tokens) * i64::from(head_dim),
            head: i64::from(tokens) * i64::from(head_dim),
            token: i64::from(head_dim),
        };
        let scale = |heads: u32| ScaleStrides { batch: heads as i32, head: 1, block: 0 };
        Problem {
            batch,
            heads_q,
            heads_kv,
            seqlen_q,
            seqlen_k,
            head_dim,
            mask: Mask::Full,
            output: Output::Bf16,
            softmax_scale: None,
            strides: [strides(heads_q, seqlen_q), strides(heads_kv, seqlen_k), strides(heads_kv, seqlen_k)],
            scales: [scale(heads_q), scale(heads_kv), scale(heads_kv)],
            packed_values: false,
            wide_queries: false,
            fast: false,
            lengths: Lengths::Equal,
        }
    }

    /// The same over packed keys and values, as [`crate::Quantisation::keys`] and [`crate::Quantisation::values`] say: `packed_values`, and scales of k and v of blocks.
    pub fn packed(batch: u32, heads_q: u32, heads_kv: u32, seqlen_q: u32, seqlen_k: u32, head_dim: u32) -> Problem {
        let dense = Problem::dense(batch, heads_q, heads_kv, seqlen_q, seqlen_k, head_dim);
        let blocks = seqlen_k.div_ceil(BLOCK);
        let of_kv = ScaleStrides { batch: heads_kv.saturating_mul(blocks) as i32, head: blocks as i32, block: 1 };
        Problem { packed_values: true, scales: [dense.scales[0], of_kv, of_kv], ..dense }
    }

    /// Queries for caches of `seqlen_k` tokens, of which each sequence uses a part, laid out (batch, tokens, heads_kv, head_dim): decoding, or a prompt's chunk behind what is cached.
    /// The mask is causal to each sequence's own length.
    pub fn cached(batch: u32, heads_q: u32, heads_kv: u32, seqlen_q: u32, seqlen_k: u32, head_dim: u32) -> Problem {
        let dense = Problem::dense(batch, heads_q, heads_kv, seqlen_q, seqlen_k, head_dim);
        let of_kv = Problem::rows(heads_kv, seqlen_k, head_dim);
        let strides = [dense.strides[0], of_kv, of_kv];
        Problem { mask: Mask::Causal, strides, lengths: Lengths::Used, ..dense }
    }

    /// The same with caches in pages, pools (pages, page_size, heads_kv, head_dim), of which a sequence has at most so many, and a contiguous table of them.
    #[allow(clippy::too_many_arguments)]
    pub fn paged(
        batch: u32,
        heads_q: u32,
        heads_kv: u32,
        seqlen_q: u32,
        pages_of_sequence: u32,
        page_size: u32,
        pages: u32,
        head_dim: u32,
    ) -> Problem {
        let seqlen_k = pages_of_sequence.saturating_mul(page_size);
        let cached = Problem::cached(batch, heads_q, heads_kv, seqlen_q, seqlen_k, head_dim);
        let of_kv = Problem::rows(heads_kv, page_size, head_dim);
        let lengths = Lengths::Paged { page_size, pages, table_stride: pages_of_sequence.into() };
        Problem { strides: [cached.strides[0], of_kv, of_kv], lengths, ..cached }
    }

    /// Sequences one behind another, contiguous (tokens, heads, head_dim), of so many tokens in all and at most `seqlen_q` and `seqlen_k` each; causal in each sequence.
    #[allow(clippy::too_many_arguments)]
    pub fn varlen(
        batch: u32,
        heads_q: u32,
        heads_kv: u32,
        tokens_q: u32,
        tokens_k: u32,
        seqlen_q: u32,
        seqlen_k: u32,
        head_dim: u32,
    ) -> Problem {
        let dense = Problem::dense(batch, heads_q, heads_kv, seqlen_q, seqlen_k, head_dim);
        let of = |heads| Problem::rows(heads, 0, head_dim);
        let lengths = Lengths::Varlen { tokens_q, tokens_k };
        Problem { mask: Mask::Causal, strides: [of(heads_q), of(heads_kv), of(heads_kv)], lengths, ..dense }
    }

    /// Steps over contiguous (outer, tokens, heads, head_dim).
    fn rows(heads: u32, tokens: u32, head_dim: u32) -> Strides {
        let token = i64::from(heads) * i64::from(head_dim);
        Strides { batch: i64::from(tokens) * token, head: head_dim.into(), token }
    }

    /// Queries that share a key head.
    pub fn group(&self) -> u32 {
        self.heads_q / self.heads_kv.max(1)
    }

    /// What the kernels assume, as an error each.
    pub fn check(&self) -> Result<(), ProblemError> {
        if !matches!(self.head_dim, 64 | 128 | 256) {
            return Err(ProblemError::HeadDim(self.head_dim));
        }
        let sizes = [
            ("batch", self.batch, 65_535),
            ("heads_q", self.heads_q, 1 << 20),
            ("heads_kv", self.heads_kv, 65_535),
            ("seqlen_q", self.seqlen_q, 1 << 26),
            ("seqlen_k", self.seqlen_k, 1 << 26),
        ];
        for (what, value, limit) in sizes {
            if value == 0 {
                return Err(ProblemError::Empty(what));
            }
            if value > limit {
                return Err(ProblemError::TooLarge { what, value: value.into(), limit: limit.into() });
            }
        }
        if !self.heads_q.is_multiple_of(self.heads_kv) {
            return Err(ProblemError::Heads { q: self.heads_q, kv: self.heads_kv });
        }
        self.check_sizes()?;
        self.check_strides()?;
        if self.softmax_scale.is_some_and(|s| s <= 0.0 || !s.is_finite()) {
            return Err(ProblemError::SoftmaxScale);
        }
        if self.wide_queries && (!self.packed_values || matches!(self.output, Output::E4m3 { .. })) {
            return Err(ProblemError::Wide);
        }
        if self.lengths != Lengths::Equal && (self.packed_values || self.wide_queries) {
            return Err(ProblemError::Lengths);
        }
        match self.output {
            Output::E4m3 { scale } if scale <= 0.0 || !scale.is_finite() => Err(ProblemError::OutScale),
            _ => Ok(()),
        }
    }

    /// Kernels count tiles and rows in 32 bits.
    fn check_sizes(&self) -> Result<(), ProblemError> {
        const LIMIT: u64 = i32::MAX as u64;
        let at_most = |what, value: u64, limit: u64| match value {
            0 => Err(ProblemError::Empty(what)),
            _ if value > limit => Err(ProblemError::TooLarge { what, value, limit }),
            _ => Ok(()),
        };
        let [heads_q, heads_kv, batch] = [self.heads_q, self.heads_kv, self.batch].map(u64::from);
        let (mut rows, mut keys) = (batch * u64::from(self.seqlen_q), batch * u64::from(self.seqlen_k));
        match self.lengths {
            Lengths::Equal | Lengths::Used => {}
            Lengths::Paged { page_size, pages, table_stride } => {
                at_most("page_size", page_size.into(), 1 << 26)?;
                at_most("pages", pages.into(), LIMIT)?;
                if !self.seqlen_k.is_multiple_of(page_size) {
                    return Err(ProblemError::Pages { seqlen_k: self.seqlen_k, page_size });
                }
                if table_stride < 0 {
                    return Err(ProblemError::TableStride(table_stride));
                }
                // Sequences may share pages.
                at_most("keys of all sequences", heads_kv * keys, 1 << 40)?;
                keys = u64::from(pages) * u64::from(page_size);
            }
            Lengths::Varlen { tokens_q, tokens_k } => {
                at_most("tokens_q", tokens_q.into(), LIMIT)?;
                at_most("tokens_k", tokens_k.into(), LIMIT)?;
                (rows, keys) = (tokens_q.into(), tokens_k.into());
            }
        }
        at_most("rows of queries", heads_q * rows, LIMIT)?;
        at_most("rows of keys", heads_kv * keys, LIMIT)
    }

    fn check_strides(&self) -> Result<(), ProblemError> {
        let (of_q, of_k) = match self.lengths {
            Lengths::Equal | Lengths::Used => ((self.batch, self.seqlen_q), (self.batch, self.seqlen_k)),
            Lengths::Paged { page_size, pages, .. } => ((self.batch, self.seqlen_q), (pages, page_size)),
            Lengths::Varlen { tokens_q, tokens_k } => ((1, tokens_q), (1, tokens_k)),
        };
        let tensors = [("q", self.heads_q, of_q), ("k", self.heads_kv, of_k), ("v", self.heads_kv, of_k)];
        let strided = if self.packed_values { 2 } else { 3 };
        for ((tensor, heads, (outer, tokens)), s) in tensors.into_iter().zip(self.strides).take(strided) {
            for (stride, n) in [(s.batch, outer), (s.head, heads), (s.token, tokens)] {
                if n > 1 && (stride <= 0 || stride % 16 != 0) {
                    return Err(ProblemError::Stride { tensor, stride });
                }
            }
        }
        Ok(())
    }

    /// The same problem with steps of zero where there is nothing to step over, and no sequence longer than all of them that lie one behind another.
    pub(crate) fn normal(mut self) -> Problem {
        if let Lengths::Varlen { tokens_q, tokens_k } = self.lengths {
            self.seqlen_q = self.seqlen_q.min(tokens_q);
            self.seqlen_k = self.seqlen_k.min(tokens_k);
            for s in &mut self.strides {
                s.batch = 0;
            }
        }
        for (scale, tokens) in self.scales.iter_mut().zip([self.seqlen_q, self.seqlen_k, self.seqlen_k]) {
            if tokens <= BLOCK {
                scale.block = 0;
            }
        }
        self
    }

    /// Whether no scale differs between blocks of tokens, which most kernels want.
    pub fn plain_scales(&self) -> bool {
        self.normal().scales.iter().all(|s| s.block == 0)
    }
}
