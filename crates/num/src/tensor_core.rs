//! Tensor-core arithmetic: D = A x B + C as `mma.sync`, `wmma` and `wgmma` compute it, bit for bit.
//!
//! An NVIDIA tensor core does not add in f32. It takes C and a chunk of the products of one output, aligns all of them to the
//! largest exponent among them, cuts every one off toward zero at F fractional bits, adds what is left exactly, and converts the
//! sum to the accumulator's type: toward zero for f32, to nearest even for f16. The exponent of a product is the sum of its
//! operands' exponents, before normalisation; subnormal operands have their format's smallest exponent, zeros have none.
//!
//! | generation | operands | terms per step | F | f32 result |
//! |---|---|---|---|---|
//! | Ampere, Ada | f16, bf16 | 8 | 24 | all 23 bits |
//! | Ampere, Ada | tf32 | 4 | 24 | all 23 bits |
//! | Ada | e4m3, e5m2 | 16 | 13 | 13 bits |
//! | Hopper | f16, bf16, tf32 | all of the instruction's k | 25 | all 23 bits |
//! | Hopper, `wmma` | tf32 | 4 | 25 | all 23 bits |
//! | Hopper, `wgmma` | e4m3, e5m2 | 32 | 13 | 13 bits |
//! | Hopper, `mma.sync` | e4m3, e5m2 | see below | 25 | all 23 bits |
//!
//! Hopper has no FP8 `mma.sync`: the compiler converts to f16, runs two f16 steps, the first over the terms with k % 4 < 2 from a zero
//! accumulator, the second over the others from the first's result, and adds C at the end with an ordinary addition (seen in the SASS
//! of ptxas 13.0). `wmma` equals `mma.sync` but for tf32. Overflow of an f32 result gives infinity, not the largest finite value, although lesser results are
//! truncated; a NaN result is 0x7FFFFFFF (f16: 0x7FFF); a result of zero is +0; the lower 13 bits of a tf32 operand are not read.
//!
//! Sources: MMA-Sim (arXiv 2511.10909) for all generations; for Hopper each row and rule above was compared with an H200 (2026-11-21,
//! CUDA 13.0) on six million outputs from random bit patterns, subnormals, infinities, NaN and cancellation, with no difference
//! (`tests/h200.rs` keeps a sample). Limits: Ampere and Ada rest on MMA-Sim alone; no sparse, block-scaled or tcgen05 products.
//!
//! `exact` is the definition in integers; `lanes` computes eight outputs at a time and must agree with it.

mod exact;
mod integer;
mod lanes;
mod registers;
mod simd;
#[cfg(target_arch = "x86_64")]
mod sixteen;

pub use integer::{Overflowing, multiply_accumulate_f64, multiply_accumulate_int};
pub use registers::{Register, multiply_accumulate_registers, register_counts};

use crate::format::Format;

/// Which tensor core is imitated. A property of the target GPU, not of the opcode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Numerics {
    /// The fused, truncating sum of the named GPU generation.
    Faithful(Generation),
    /// Plain f32 accumulation, one product after the other: quicker, and slightly too exact.
    Fast,
}

/// GPU generations that differ in tensor-core arithmetic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Generation {
    Ampere,
    Ada,
    Hopper,
}

/// Element type of A or B.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Element {
    F16,
    Bf16,
    Tf32,
    E4m3,
    E5m2,
}

impl Element {
    /// Its format.
    pub const fn format(self) -> Format {
        match self {
            Element::F16 => Format::F16,
            Element::Bf16 => Format::BF16,
            Element::Tf32 => Format::TF32,
            Element::E4m3 => Format::E4M3,
            Element::E5m2 => Format::E5M2,
        }
    }

    /// Its width in a register: tf32 takes 32 bits.
    pub const fn bits(self) -> usize {
        match self {
            Element::E4m3 | Element::E5m2 => 8,
            Element::F16 | Element::Bf16 => 16,
            Element::Tf32 => 32,
        }
    }

    /// The value of a code in the lowest [`bits`](Element::bits) of a register, exactly.
    pub fn decode(self, code: u32) -> f32 {
        match self {
            Element::F16 => crate::f16::to_f32(code as u16),
            Element::Bf16 => crate::bf16::to_f32(code as u16),
            Element::Tf32 => f32::from_bits(code),
            Element::E4m3 => crate::e4m3::to_f32(code as u8),
            Element::E5m2 => crate::e5m2::to_f32(code as u8),
        }
    }

    /// Whether it has 8 bits.
    pub const fn is_fp8(self) -> bool {
        matches!(self, Element::E4m3 | Element::E5m2)
    }
}

/// Type of C and D.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Accumulator {
    F32,
    F16,
}

/// The instruction that asks for the product: it matters for FP8 on Hopper.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Op {
    MmaSync,
    Wmma,
    Wgmma,
}

/// One matrix product.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Product {
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub a: Element,
    pub b: Element,
    pub accumulator: Accumulator,
    pub op: Op,
}

/// D = A x B + C.
///
/// `a` is row-major m x k, `b` column-major (`b[j * k + i]`), `c` and `d` row-major m x n; all hold exactly decoded values (for an
/// f16 accumulator `c` holds f16 values, and so will `d`). Any m, n and k will do; those of the instructions are quick.
///
/// # Panics
/// If a slice is shorter than the product says, which is a bug of the caller.
pub fn multiply_accumulate(numerics: Numerics, product: &Product, a: &[f32], b: &[f32], c: &[f32], d: &mut [f32]) {
    let &Product { m, n, k, .. } = product;
    let (a, b, c, d) = (&a[..m * k], &b[..n * k], &c[..m * n], &mut d[..m * n]);
    match Plan::of(numerics, product) {
        Some(plan) if plan.chunks_are_supported(k) => lanes::faithful(product, &plan, a, b, c, d),
        Some(plan) => exact::multiply_accumulate(product, &plan, a, b, c, d),
        None => lanes::fast(product, a, b, c, d),
    }
}

/// The same by the slow definition in integers, whatever the shape: what the quick one is tested against.
#[doc(hidden)]
pub fn multiply_accumulate_by_definition(
    generation: Generation,
    product: &Product,
    a: &[f32],
    b: &[f32],
    c: &[f32],
    d: &mut [f32],
) {
    if let Some(plan) = Plan::of(Numerics::Faithful(generation), product) {
        exact::multiply_accumulate(product, &plan, a, b, c, d);
    }
}

/// How an output is converted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Output {
    /// Toward zero, to this many mantissa bits of an f32.
    F32 { mantissa_bits: u32 },
    /// To nearest even.
    F16,
}

/// How a faithful product is computed: the table in the module's header as data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Plan {
    /// F: fractional bits that each aligned term keeps.
    fraction_bits: i32,
    /// Terms added at once; the last chunk may have fewer.
    chunk: usize,
    output: Output,
    /// Smallest exponents of A, B and C.
    min_exponents: [i32; 3],
    /// Hopper's FP8 `mma.sync`: the chunks take k % 4 < 2 first and then the others, C is added in the end.
    unpacked: bool,
    /// Exponents so wide that products leave the range of f32.
    wide: bool,
    truncate_tf32: [bool; 2],
}

impl Plan {
    fn of(numerics: Numerics, product: &Product) -> Option<Plan> {
        let Numerics::Faithful(generation) = numerics else { return None };
        let &Product { a, b, accumulator, op, .. } = product;
        let fp8 = a.is_fp8() || b.is_fp8();
        let hopper = generation == Generation::Hopper;
        let unpacked = fp8 && hopper && op != Op::Wgmma;
        let narrow = fp8 && !unpacked;
        let chunk = match (hopper, a) {
            _ if unpacked => product.k.div_ceil(2),
            // An m16n16k8 is two steps of four (HMMA.1684 in the SASS of ptxas 13.0, sm_90; an H200).
            (true, Element::Tf32) if op == Op::Wmma => 4,
            (true, _) => product.k,
            _ if fp8 => 16,
            (false, Element::Tf32) => 4,
            (false, _) => 8,
        };
        let format = |element: Element| if unpacked { Format::F16 } else { element.format() };
        let c_format = if accumulator == Accumulator::F16 { Format::F16 } else { Format::F32 };
        Some(Plan {
            fraction_bits: if narrow {
                13
            } else if hopper {
                25
            } else {
                24
            },
            chunk: chunk.clamp(1, product.k.max(1)),
            output: match accumulator {
                Accumulator::F16 => Output::F16,
                Accumulator::F32 => Output::F32 { mantissa_bits: if narrow { 13 } else { 23 } },
            },
            min_exponents: [format(a).min_exponent(), format(b).min_exponent(), c_format.min_exponent()],
            unpacked,
            wide: format(a).exponent_bits > 5 || format(b).exponent_bits > 5,
            truncate_tf32: [a == Element::Tf32, b == Element::Tf32],
        })
    }

    /// The term that stands at place `index` of the order in which chunks take them.
    fn term(&self, index: usize, k: usize) -> usize {
        match self.unpacked {
            false => index,
            true if index < k / 2 => index / 2 * 4 + index % 2,
            true => (index - k / 2) / 2 * 4 + 2 + index % 2,
        }
    }

    /// Whether `lanes` has the chunk length, and the sum of a chunk's products fits its 32 bits.
    fn chunks_are_supported(&self, k: usize) -> bool {
        let terms = [4, 8, 16, 32].contains(&self.chunk);
        let fits = self.fraction_bits == 13 || self.chunk <= 16;
        terms && fits && k.is_multiple_of(self.chunk) && (!self.unpacked || k.is_multiple_of(4))
    }
}
