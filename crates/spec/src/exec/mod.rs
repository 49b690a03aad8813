//! A launch file: what `warpsmith exec` puts into memory, launches and compares, for a kernel that is nobody's candidate.
//!
//! Pure data, resolved: every formula is a number already, for all it may name are the file's own scalars. It reads no other file (the
//! arrays that it names are the caller's to read) and knows no compiler. Limits: 1 MiB of text, 64 buffers, workspaces, tensor maps and
//! scalars each, 256 launches, 64 schedules, 4 GiB of memory in all.

mod buffers;
mod launches;
mod parse;
mod record;
mod scalars;

pub use record::*;

use crate::candidate::CompileOptions;
use crate::plan::{ResolvedTensorMap, ResolvedWorkspace, ScalarValue};
use crate::target::Target;
use crate::words::DType;

/// Schedules besides the first, where the file does not say.
pub const DEFAULT_SCHEDULES: u32 = 2;
pub const MAX_SCHEDULES: u32 = 64;
/// Warp-instructions of all launches together, where the file does not say.
pub const DEFAULT_INSTRUCTIONS: u64 = 2_000_000_000;
/// Bytes of all buffers and workspaces: the machine keeps two copies and as many bytes of state.
pub const MAX_BYTES: u64 = 4 << 30;

/// What the file says.
#[derive(Debug, Clone)]
pub struct LaunchFile {
    /// As it was named.
    pub name: String,
    /// None: the PTX's own, or sm_89 for a source.
    pub target: Option<&'static Target>,
    /// Adversarial schedules besides the first.
    pub schedules: u32,
    pub max_instructions: u64,
    /// Macros for a source, in the order of the file.
    pub defines: Vec<(String, String)>,
    /// Options for a source, as a candidate's `[compile]`.
    pub compile: CompileOptions,
    pub buffers: Vec<BufferDecl>,
    pub workspaces: Vec<ResolvedWorkspace>,
    pub tensor_maps: Vec<ResolvedTensorMap>,
    pub launches: Vec<ExecLaunch>,
}

/// One allocation of exactly its shape.
#[derive(Debug, Clone, PartialEq)]
pub struct BufferDecl {
    pub name: String,
    pub dtype: DType,
    pub shape: Vec<u64>,
    pub from: From,
    /// Written under the run's folder.
    pub out: Option<String>,
    pub expect: Option<Expect>,
    /// Line of its table, and of its `from`.
    pub line: u32,
    pub from_line: u32,
}

impl BufferDecl {
    pub fn elements(&self) -> u64 {
        self.shape.iter().product()
    }

    pub fn bytes(&self) -> u64 {
        self.elements() * self.dtype.bytes()
    }
}

/// What a buffer holds at first.
#[derive(Debug, Clone, PartialEq)]
pub enum From {
    /// A file of NumPy's, beside the launch file.
    File(String),
    Normal {
        seed: u64,
    },
    /// Numbers in [low, high): of floating point, or whole ones for whole element types.
    Uniform {
        seed: u64,
        low: f64,
        high: f64,
    },
    /// 0, 1, 2 ...
    Arange,
    Zeros,
    /// Never written by the host: to read it before the kernel has written it is a finding.
    Poison,
}

/// What a buffer has to hold after the last launch.
#[derive(Debug, Clone, PartialEq)]
pub struct Expect {
    pub file: String,
    pub line: u32,
    /// An element may differ by `atol + rtol * |expected|`.
    pub rtol: f64,
    pub atol: f64,
}

impl Expect {
    /// (rtol, atol) where the file does not say: whole numbers exactly, others by about two steps of their format at the numbers of a sum.
    pub fn tolerance(dtype: DType) -> (f64, f64) {
        match dtype {
            DType::F64 => (1e-9, 1e-12),
            DType::F32 => (1e-4, 1e-5),
            DType::F16 => (5e-3, 1e-3),
            DType::Bf16 => (2e-2, 1e-2),
            DType::E4m3 => (0.13, 2e-3),
            DType::E5m2 => (0.26, 2e-5),
            _ => (0.0, 0.0),
        }
    }
}

/// One `[[launch]]`.
#[derive(Debug, Clone, PartialEq)]
pub struct ExecLaunch {
    /// A name as PTX has it, or as C++ does: `axpy`, `softmax<float, 256>`.
    pub entry: String,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub cluster: [u32; 3],
    /// Dynamic shared memory.
    pub shared_bytes: u64,
    /// A cooperative launch, in which `grid.sync()` works; so it is unless the file says no.
    pub cooperative: bool,
    pub args: Vec<ExecArg>,
    /// Line of its `[[launch]]`, of its `args` and of its `entry`.
    pub line: u32,
    pub args_line: u32,
    pub entry_line: u32,
}

/// One argument.
#[derive(Debug, Clone, PartialEq)]
pub enum ExecArg {
    Buffer(String),
    Workspace(String),
    TensorMap(String),
    /// A number, or a structure of numbers, of stated types.
    Typed {
        name: String,
        fields: Vec<Field>,
    },
    /// A number that takes the width of the entry's parameter.
    Number {
        name: String,
        value: ScalarValue,
    },
}

/// A number with its type.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Field {
    pub dtype: DType,
    pub value: Literal,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Literal {
    /// In the range of its type.
    Whole(i128),
    /// NaN and infinities too.
    Real(f64),
}
