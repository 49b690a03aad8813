//! What can go wrong: a problem that is none (found before any launch), a missing kernel, a refusal of the driver.

/// Why a launch is not made, or was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The caller's sizes, strides or options.
    #[error(transparent)]
    Problem(#[from] ProblemError),
    /// A pointer that the kernels cannot read.
    #[error("{name} is {why}")]
    Pointer { name: &'static str, why: &'static str },
    /// No machine code for this instance in this build.
    #[error("no kernel {instance} for {target} in this build: run `cargo xtask attention-kernels` and build again")]
    NoKernel { instance: String, target: String },
    /// The embedded or given container is damaged.
    #[error("the kernels' container is damaged: {why}")]
    Container { why: &'static str },
    /// A device that no kernel is for.
    #[error("no kernel for compute capability {major}.{minor}")]
    Device { major: u32, minor: u32 },
    /// No driver on this machine.
    #[error("no CUDA driver: {why}")]
    NoDriver { why: String },
    /// The driver refused a call.
    #[error("{call}: {name}")]
    Call { call: &'static str, name: String },
}

/// What is wrong with a [`crate::Problem`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProblemError {
    #[error("the head dimension must be 64, 128 or 256, not {0}")]
    HeadDim(u32),
    #[error("{q} query heads must be a multiple of {kv} key heads")]
    Heads { q: u32, kv: u32 },
    #[error("{0} is zero: there is nothing to launch")]
    Empty(&'static str),
    #[error("{what} is {value}, more than {limit}")]
    TooLarge { what: &'static str, value: u64, limit: u64 },
    #[error("{tensor}'s stride {stride} must be a positive multiple of 16")]
    Stride { tensor: &'static str, stride: i64 },
    #[error("softmax_scale must be positive and finite")]
    SoftmaxScale,
    #[error("out_scale must be positive and finite")]
    OutScale,
    #[error("out_format must be 0 (bf16), 1 (f16) or 2 (e4m3), not {0}")]
    OutFormat(u32),
    #[error("packed values are for Hopper (compute capability 9.0), not {major}.{minor}")]
    Packed { major: u32, minor: u32 },
    #[error("sequences of which the device knows the lengths go with neither packed values nor queries of 16 bits")]
    Lengths,
    #[error("seqlen_k {seqlen_k} must be a multiple of the page size, {page_size}")]
    Pages { seqlen_k: u32, page_size: u32 },
    #[error("the page table's stride {0} must not be negative")]
    TableStride(i64),
    #[error("head_dim must be a multiple of 8, not {0}")]
    QuantisedDim(u32),
    #[error("{tensor}'s stride {stride} must be a positive multiple of {step}")]
    QuantisedStride { tensor: &'static str, stride: i64, step: i64 },
    #[error("means, V^T and even scales go with scales of blocks")]
    PackedScales,
    #[error("neither codes nor V^T are wanted: there is nothing to make")]
    NoCodes,
    #[error("one to three tensors go in a launch, not {0}")]
    Parts(usize),
    #[error("tensors of a launch must have one {0}")]
    PartsDiffer(&'static str),
    #[error("{given} tensors are given for a plan of {parts}")]
    Places { given: usize, parts: usize },
    #[error(
        "from must be 0 (bf16), 1 (f16) or 2 (f32), and scales 0 (tensor), 1 (head) or 2 (block), not {from} and {scales}"
    )]
    QuantisedKinds { from: u32, scales: u32 },
    #[error("lengths must be 0 (equal), 1 (used), 2 (paged) or 3 (varlen), not {0}")]
    LengthsKind(u32),
    #[error("a mean is added to packed values only")]
    Mean,
    #[error("queries of 16 bits go with packed values and an output of their kind, bf16 or f16, without log-sum-exp")]
    Wide,
    #[error("{name}[{at}] is {value}: scales must be finite and not negative")]
    Scale { name: &'static str, at: usize, value: String },
}
