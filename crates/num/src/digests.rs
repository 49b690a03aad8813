//! Digests of whole conversion tables, for comparison with the same tables made by NVIDIA's headers.
//!
//! A table lists what a conversion makes of a set of inputs; its digest is FNV-1a over the results as 32-bit words, chunk by chunk, and
//! over the chunks' digests. `cargo xtask num-digests` makes the same digests from cuda_fp8.h, cuda_fp16.h and cuda_bf16.h, and
//! `tests/nvidia_digests.txt` holds them. 8 and 16-bit inputs are complete. For f32 and f64 inputs there are two sets: [`Set::Classes`],
//! for every sign and exponent all values of the upper 11 mantissa bits, each with the lower bits zero, all ones, and only their lowest or
//! highest set: what a rounding to at most 11 bits can tell apart; and [`Set::All`], every f32 (equal to the headers of CUDA 13.0 on
//! 2026-11-21, all 2^32 for each of the twelve tables).

use rayon::prelude::*;

use crate::format::Rounding;
use crate::{bf16, e4m3, e5m2, f16};

/// Which f32 inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Set {
    Classes,
    All,
}

/// A table's name and how a f32 becomes its word.
type FromF32 = (&'static str, fn(f32) -> u32);
type FromF64 = (&'static str, fn(f64) -> u32);
type FromCode = (&'static str, u32, fn(u32) -> u32);

const FROM_F32: &[FromF32] = &[
    ("f32 -> e4m3 satfinite", |x| e4m3::from_f32(x) as u32),
    ("f32 -> e4m3 nosat", |x| e4m3::from_f32_nosat(x) as u32),
    ("f32 -> e5m2 satfinite", |x| e5m2::from_f32(x) as u32),
    ("f32 -> e5m2 nosat", |x| e5m2::from_f32_nosat(x) as u32),
    ("f32 -> f16 rn", |x| f16::from_f32(x) as u32),
    ("f32 -> f16 rz", |x| f16::from_f32_rz(x) as u32),
    ("f32 -> f16 rd", |x| f16::from_f64_rounded(x as f64, Rounding::Down) as u32),
    ("f32 -> f16 ru", |x| f16::from_f64_rounded(x as f64, Rounding::Up) as u32),
    ("f32 -> bf16 rn", |x| bf16::from_f32(x) as u32),
    ("f32 -> bf16 rz", |x| bf16::from_f32_rz(x) as u32),
    ("f32 -> bf16 rd", |x| bf16::from_f64_rounded(x as f64, Rounding::Down) as u32),
    ("f32 -> bf16 ru", |x| bf16::from_f64_rounded(x as f64, Rounding::Up) as u32),
];

const FROM_F64: &[FromF64] = &[
    ("f64 -> e4m3 satfinite", |x| e4m3::from_f64(x) as u32),
    ("f64 -> e5m2 satfinite", |x| e5m2::from_f64(x) as u32),
    ("f64 -> f16 rn", |x| f16::from_f64(x) as u32),
    ("f64 -> bf16 rn", |x| bf16::from_f64(x) as u32),
];

const FROM_CODE: &[FromCode] = &[
    ("f16 -> e4m3 satfinite", 16, |x| e4m3::from_f16(x as u16) as u32),
    ("f16 -> e5m2 satfinite", 16, |x| e5m2::from_f16(x as u16) as u32),
    ("f16 -> e4m3 nosat", 16, |x| e4m3::from_f32_nosat(f16::to_f32(x as u16)) as u32),
    ("f16 -> e5m2 nosat", 16, |x| e5m2::from_f32_nosat(f16::to_f32(x as u16)) as u32),
    ("bf16 -> e4m3 satfinite", 16, |x| e4m3::from_f32(bf16::to_f32(x as u16)) as u32),
    ("bf16 -> e5m2 satfinite", 16, |x| e5m2::from_f32(bf16::to_f32(x as u16)) as u32),
    ("f16 -> f32", 16, |x| f16::to_f32(x as u16).to_bits()),
    ("bf16 -> f32", 16, |x| bf16::to_f32(x as u16).to_bits()),
    ("e4m3 -> f16", 8, |x| e4m3::to_f16(x as u8) as u32),
    ("e5m2 -> f16", 8, |x| e5m2::to_f16(x as u8) as u32),
    ("e4m3 -> f32", 8, |x| e4m3::to_f32(x as u8).to_bits()),
    ("e5m2 -> f32", 8, |x| e5m2::to_f32(x as u8).to_bits()),
    ("e4m3x2 -> f16x2", 16, |x| e4m3::unpack_f16x2(x as u16)),
    ("e5m2x2 -> f16x2", 16, |x| e5m2::unpack_f16x2(x as u16)),
    // The halves are x and x with its bits turned round, so that a mix-up shows.
    ("f16x2 -> e4m3x2", 16, |x| e4m3::pack_f16x2(x | ((x as u16).reverse_bits() as u32) << 16) as u32),
    ("f16x2 -> e5m2x2", 16, |x| e5m2::pack_f16x2(x | ((x as u16).reverse_bits() as u32) << 16) as u32),
];

/// Name and digest of every table; with [`Set::All`] only of those from f32.
pub fn tables(set: Set) -> Vec<(&'static str, u64)> {
    let mut digests: Vec<(&'static str, u64)> = FROM_F32.iter().map(|&(name, to)| (name, of_f32(set, to))).collect();
    if set == Set::Classes {
        digests.extend(FROM_F64.iter().map(|&(name, to)| (name, of_f64(to))));
        digests.extend(FROM_CODE.iter().map(|&(name, bits, to)| (name, fold((0..1 << bits).map(to)))));
    }
    digests
}

fn of_f32(set: Set, to: fn(f32) -> u32) -> u64 {
    let chunks: Vec<u64> = (0..512u32)
        .into_par_iter()
        .map(|chunk| match set {
            Set::Classes => fold(mantissas(23).map(|mantissa| to(f32::from_bits(chunk << 23 | mantissa as u32)))),
            Set::All => fold((0..1 << 23).map(|mantissa| to(f32::from_bits(chunk << 23 | mantissa)))),
        })
        .collect();
    fold_chunks(&chunks)
}

/// Both signs of: zero and subnormals, the smallest and the largest normal numbers, infinity, and all exponents that any of the formats
/// can tell apart. NaN is left out: the headers keep its sign and payload there, PTX has no such conversion.
fn of_f64(to: fn(f64) -> u32) -> u64 {
    let exponents = [0u64, 1].into_iter().chain(1023 - 160..=1023 + 140).chain([2046]);
    let fields: Vec<u64> = exponents.flat_map(|exponent| [exponent, exponent | 1 << 11]).collect();
    let mut chunks: Vec<u64> = fields
        .par_iter()
        .map(|field| fold(mantissas(52).map(|mantissa| to(f64::from_bits(field << 52 | mantissa)))))
        .collect();
    chunks.push(fold([to(f64::INFINITY), to(f64::NEG_INFINITY)].into_iter()));
    fold_chunks(&chunks)
}

/// All values of the upper 11 of `bits` bits, each with the lower ones zero, all ones, and their ends alone.
fn mantissas(bits: u32) -> impl Iterator<Item = u64> {
    let low = bits - 11;
    (0..1u64 << 11)
        .flat_map(move |high| [0, (1 << low) - 1, 1, 1 << (low - 1)].into_iter().map(move |rest| high << low | rest))
}

const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x100_0000_01b3;

fn fold(words: impl Iterator<Item = u32>) -> u64 {
    words.fold(OFFSET, |hash, word| (hash ^ word as u64).wrapping_mul(PRIME))
}

fn fold_chunks(chunks: &[u64]) -> u64 {
    fold(chunks.iter().flat_map(|chunk| [*chunk as u32, (*chunk >> 32) as u32]))
}
