//! Tensor-core arithmetic (being written).

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
