//! Numbers as NVIDIA's hardware has them: small floating-point formats, quantisers, tensor-core sums and the places of matrix
//! elements in a warp's registers. Also the generators from which all test inputs come.
//!
//! It knows no opcode, no kernel and no task. Every function gives the same bits on every platform: transcendental functions are
//! `libm`'s, and vectorised code takes exact steps only.

pub mod bf16;
#[doc(hidden)]
pub mod digests;
pub mod e4m3;
pub mod e5m2;
pub mod f16;
pub mod format;
pub mod fragments;
pub mod philox;
pub mod quant;
pub mod splitmix;
pub mod tensor_core;
pub mod tf32;
pub mod ulp;

/// The NaN that tensor cores and most PTX instructions return: 0x7FFFFFFF.
pub const CANONICAL_NAN: f32 = f32::from_bits(0x7fff_ffff);
