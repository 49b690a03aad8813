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

/// Steps of a scale over (batch, head, block of 128 tokens); 0 where it is shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ScaleStrides {
    pub batch: i32,
    pub head: i32,
    pub block: i32,
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
        }
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
        // Kernels count tiles and rows in 32 bits.
        let rows = u64::from(self.heads_q) * u64::from(self.batch) * u64::from(self.seqlen_q);
        let keys = u64::from(self.heads_kv) * u64::from(self.batch) * u64::from(self.seqlen_k);
        for (what, value) in [("rows of queries", rows), ("rows of keys", keys)] {
            let limit = i32::MAX as u64;
            if value > limit {
                return Err(ProblemError::TooLarge { what, value, limit });
            }
        }
        let lengths = [
            ("q", self.heads_q, self.seqlen_q),
            ("k", self.heads_kv, self.seqlen_k),
            ("v", self.heads_kv, self.seqlen_k),
        ];
        let strided = if self.packed_values { 2 } else { 3 };
        for ((tensor, heads, tokens), s) in lengths.into_iter().zip(self.strides).take(strided) {
            for (stride, n) in [(s.batch, self.batch), (s.head, heads), (s.token, tokens)] {
                if n > 1 && (stride <= 0 || stride % 16 != 0) {
                    return Err(ProblemError::Stride { tensor, stride });
                }
            }
        }
        if self.softmax_scale.is_some_and(|s| s <= 0.0 || !s.is_finite()) {
            return Err(ProblemError::SoftmaxScale);
        }
        if self.wide_queries && (!self.packed_values || matches!(self.output, Output::E4m3 { .. })) {
            return Err(ProblemError::Wide);
        }
        match self.output {
            Output::E4m3 { scale } if scale <= 0.0 || !scale.is_finite() => Err(ProblemError::OutScale),
            _ => Ok(()),
        }
    }

    /// Whether no scale differs between blocks of tokens, which most kernels want.
    pub fn plain_scales(&self) -> bool {
        self.scales.iter().all(|s| s.block == 0)
    }
}
