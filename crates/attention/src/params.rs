//! The structs that kernels take by value, field for field as `kernels/attention/hopper/params.cuh` has them.

use crate::heuristic::Choice;
use crate::problem::{Lengths, Output, Problem};

/// What every kernel is told of its tensors.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Params {
    /// q, k, v, q_scale, k_scale, v_scale, out, lse, partial, arrived.
    pub addresses: [u64; 10],
    /// Steps over (batch, head, token) of q, k and v.
    pub strides: [[i64; 3]; 3],
    /// Steps over (batch, head, block) of the scales.
    pub scale_strides: [[i32; 3]; 3],
    /// B, Hq, Hkv, Sq, Sk, group.
    pub sizes: [i32; 6],
    pub out_kind: i32,
    pub out_inverse_scale: f32,
    pub softmax_scale_log2: f32,
    pub tiles_per_unit: i32,
    pub tiles_per_worker: i32,
    pub total_tiles: i32,
    pub row_tiles: i32,
    pub section: i32,
    /// Of packed values: what is added to the output, or 0.
    pub v_mean: u64,
}

impl Params {
    /// All but the addresses.
    pub fn new(problem: &Problem, choice: &Choice) -> Params {
        let scale = problem.softmax_scale.map_or_else(|| f64::from(problem.head_dim).sqrt().recip(), f64::from);
        let inverse = match problem.output {
            Output::E4m3 { scale } => f64::from(scale).recip(),
            _ => 1.0,
        };
        let size = |n: u32| n as i32;
        let group = choice.group(problem);
        Params {
            addresses: [0; 10],
            strides: problem.strides.map(|s| [s.batch, s.head, s.token]),
            scale_strides: problem.scales.map(|s| [s.batch, s.head, s.block]),
            sizes: [
                size(problem.batch),
                size(problem.heads_q),
                size(problem.heads_q / group),
                size(problem.seqlen_q),
                size(problem.seqlen_k),
                size(group),
            ],
            out_kind: problem.output.kind(),
            out_inverse_scale: inverse as f32,
            softmax_scale_log2: (scale * std::f64::consts::LOG2_E) as f32,
            tiles_per_unit: size(choice.tiles_per_unit),
            tiles_per_worker: size(choice.tiles_per_worker),
            total_tiles: size(choice.total_tiles),
            row_tiles: size(choice.row_tiles),
            section: size(choice.section),
            v_mean: 0,
        }
    }
}

/// What transpose.cu is told of V and V^T beside their tensor maps.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Values {
    /// Counters, zero, by which attention sees how far it is; or null.
    pub made: u64,
    /// Hkv, Sk, heads of all sequences, and how many of them are made one block of keys after the other.
    pub sizes: [i32; 4],
}

impl Values {
    /// For attention by that choice, its counters aside.
    pub fn new(problem: &Problem, choice: &Choice) -> Values {
        let heads = problem.batch * problem.heads_kv;
        let section = if choice.tiles_per_worker > 0 { choice.tiles_per_unit } else { heads };
        Values { made: 0, sizes: [problem.heads_kv, problem.seqlen_k, heads, section].map(|n| n as i32) }
    }
}

/// Where sequences lie whose lengths only the device knows: `Ragged` of ragged.cuh.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Ragged {
    /// cu_q, cu_k, used, pages; null where there are none.
    pub addresses: [u64; 4],
    pub pages_b: i64,
    /// Steps over (batch, head, token) of out, and of the log-sum-exps.
    pub out_strides: [i64; 3],
    pub lse_strides: [i64; 3],
    /// total_q, total_k, page_size, page_count, splits.
    pub sizes: [i32; 5],
}

impl Ragged {
    /// All but the addresses; `None` where all sequences have as many tokens.
    pub fn new(problem: &Problem, choice: &Choice) -> Option<Ragged> {
        let [heads, queries, width] = [problem.heads_q, problem.seqlen_q, problem.head_dim].map(i64::from);
        let whole = Ragged {
            out_strides: [heads * queries * width, queries * width, width],
            lse_strides: [heads * queries, queries, 1],
            sizes: [0, 0, 0, 0, choice.splits as i32],
            ..Ragged::default()
        };
        match problem.lengths {
            Lengths::Equal => None,
            Lengths::Used => Some(whole),
            Lengths::Paged { page_size, pages, table_stride } => {
                let sizes = [0, 0, page_size as i32, pages as i32, choice.splits as i32];
                Some(Ragged { pages_b: table_stride, sizes, ..whole })
            }
            Lengths::Varlen { tokens_q, tokens_k } => Some(Ragged {
                out_strides: [0, width, heads * width],
                lse_strides: [0, tokens_q.into(), 1],
                sizes: [tokens_q as i32, tokens_k as i32, 0, 0, choice.splits as i32],
                ..whole
            }),
        }
    }
}

/// What few.cuh takes where sequences have lengths of their own: both as one.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct FewParams {
    pub params: Params,
    pub ragged: Ragged,
}

/// What transpose.cu is told where sequences lie one behind another.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct TokenValues {
    /// cu_seqlens of keys.
    pub cu: u64,
    /// Hkv, tokens of k, B.
    pub sizes: [i32; 3],
}

/// The same where they use a part of a cache, or pages.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct CacheValues {
    pub used: u64,
    pub pages: u64,
    pub pages_b: i64,
    /// Hkv, Sk, B, page_size, page_count.
    pub sizes: [i32; 5],
}

/// What transpose.cu is told, in any of these.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Making {
    Equal(Values),
    Tokens(TokenValues),
    Caches(CacheValues),
}

impl Making {
    /// All but the addresses.
    pub fn new(problem: &Problem, choice: &Choice) -> Making {
        let [heads, keys, batch] = [problem.heads_kv, problem.seqlen_k, problem.batch].map(|n| n as i32);
        match problem.lengths {
            Lengths::Equal => Making::Equal(Values::new(problem, choice)),
            Lengths::Used => {
                Making::Caches(CacheValues { sizes: [heads, keys, batch, 0, 0], ..CacheValues::default() })
            }
            Lengths::Paged { page_size, pages, table_stride } => {
                let sizes = [heads, keys, batch, page_size as i32, pages as i32];
                Making::Caches(CacheValues { pages_b: table_stride, sizes, ..CacheValues::default() })
            }
            Lengths::Varlen { tokens_k, .. } => {
                Making::Tokens(TokenValues { cu: 0, sizes: [heads, tokens_k as i32, batch] })
            }
        }
    }
}

/// One tensor's part in a launch of quantise.cu.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Quantise {
    /// x, shift, codes, scale, amax.
    pub addresses: [u64; 5],
    /// Steps over (batch, head, token) of x, then of codes.
    pub strides: [i64; 6],
    /// H, heads of all sequences, S, D, kind, per.
    pub sizes: [i32; 6],
}

/// One tensor's part in a launch of pack.cu.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Pack {
    pub x: u64,
    pub codes: u64,
    pub transposed: u64,
    pub scale: u64,
    pub mean: u64,
    /// Steps over (batch, head) of x, then of codes.
    pub strides: [i64; 4],
    /// Steps over tokens of x and of codes, H, heads of all sequences, S, even.
    pub sizes: [i32; 6],
}

/// A tensor map as the driver encodes it: opaque, on 64 bytes.
#[repr(C, align(64))]
#[derive(Debug, Clone, Copy)]
pub struct TensorMap(pub [u64; 16]);
