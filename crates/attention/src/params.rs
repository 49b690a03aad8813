//! The structs that kernels take by value, field for field as `kernels/attention/hopper/params.cuh` has them.

use crate::heuristic::Choice;
use crate::problem::{Output, Problem};

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
        let scale = problem.softmax_scale.unwrap_or(1.0 / (problem.head_dim as f32).sqrt());
        let inverse = match problem.output {
            Output::E4m3 { scale } => 1.0 / scale,
            _ => 1.0,
        };
        let size = |n: u32| n as i32;
        Params {
            addresses: [0; 10],
            strides: problem.strides.map(|s| [s.batch, s.head, s.token]),
            scale_strides: problem.scales.map(|s| [s.batch, s.head, s.block]),
            sizes: [
                size(problem.batch),
                size(problem.heads_q),
                size(problem.heads_kv),
                size(problem.seqlen_q),
                size(problem.seqlen_k),
                size(problem.group()),
            ],
            out_kind: problem.output.kind(),
            out_inverse_scale: inverse,
            softmax_scale_log2: scale * std::f32::consts::LOG2_E,
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

/// A tensor map as the driver encodes it: opaque, on 64 bytes.
#[repr(C, align(64))]
#[derive(Debug, Clone, Copy)]
pub struct TensorMap(pub [u64; 16]);
