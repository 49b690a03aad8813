//! A candidate's launch plan for one setting and one workload: every formula a number, every argument a thing.
//!
//! What cannot be launched at this shape or on this target is a [`PlanProblem`], which becomes a verdict: the file itself is well-formed.
//! It knows nothing of compilers or machines; the kernel's parameters are told to it.

mod resolve;

pub use resolve::symbols;

use crate::error::{SpecCode, SpecError};
use crate::target::Target;
use crate::words::DType;
use serde::{Deserialize, Serialize};

/// A launch that this shape, setting or target makes impossible; code `invalid-launch`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanProblem {
    pub message: String,
    /// Line of the candidate's file.
    pub line: Option<u32>,
    /// The limit that was passed, if it was one.
    pub limit: Option<String>,
}

impl PlanProblem {
    pub const CODE: &'static str = "invalid-launch";
    pub const KIND: &'static str = "invalid_launch";

    fn at(line: u32, message: impl Into<String>) -> PlanProblem {
        PlanProblem { message: message.into(), line: Some(line), limit: None }
    }

    fn limit(mut self, limit: impl Into<String>) -> PlanProblem {
        self.limit = Some(limit.into());
        self
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResolvedPlan {
    pub launches: Vec<ResolvedLaunch>,
    pub workspaces: Vec<ResolvedWorkspace>,
    pub tensor_maps: Vec<ResolvedTensorMap>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResolvedLaunch {
    pub entry: String,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    /// All 1: no cluster.
    pub cluster: [u32; 3],
    /// Dynamic shared memory.
    pub shared_bytes: u64,
    /// CTAs may wait for all others (`grid.sync()`); launch files of `exec` only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cooperative: bool,
    pub args: Vec<ResolvedArg>,
    /// Line of its `[[launch]]`, of its `args` and of its `entry`.
    pub line: u32,
    pub args_line: u32,
    pub entry_line: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResolvedArg {
    /// The address of a tensor of the task.
    Tensor(String),
    /// The address of a workspace.
    Workspace(String),
    /// A descriptor of 128 bytes by value.
    TensorMap(String),
    /// A value of stated types, little endian.
    Bytes { name: String, bytes: Vec<u8> },
    /// A struct by value: its bytes, and where in them addresses of tensors and workspaces go (8 bytes each, zero so far).
    Struct { name: String, align: u64, bytes: Vec<u8>, addresses: Vec<ResolvedAddress> },
    /// A number; it takes the width of the entry's parameter ([`ScalarValue::encode`]).
    Scalar { name: String, value: ScalarValue },
}

impl ResolvedArg {
    /// As messages name it.
    pub fn name(&self) -> &str {
        match self {
            ResolvedArg::Tensor(n) | ResolvedArg::Workspace(n) | ResolvedArg::TensorMap(n) => n,
            ResolvedArg::Scalar { name, .. } | ResolvedArg::Bytes { name, .. } | ResolvedArg::Struct { name, .. } => {
                name
            }
        }
    }
}

/// An address within a struct.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResolvedAddress {
    pub offset: u64,
    /// A tensor of the task or a workspace.
    pub of: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScalarValue {
    Whole(i64),
    Real(f64),
}

impl ScalarValue {
    /// Little-endian bytes of a parameter of that many bytes: whole numbers as 1, 2, 4 or 8, real ones as 4 or 8.
    pub fn encode(self, bytes: usize) -> Result<Vec<u8>, String> {
        match self {
            ScalarValue::Whole(n) => {
                if !matches!(bytes, 1 | 2 | 4 | 8) {
                    return Err(format!("the whole number {n} does not fit a parameter of {bytes} bytes"));
                }
                // As signed or as unsigned: a parameter's type does not say which, and either reads back what was meant.
                let (low, high) = if bytes == 8 {
                    (i64::MIN, i64::MAX)
                } else {
                    (-(1i64 << (8 * bytes - 1)), (1i64 << (8 * bytes)) - 1)
                };
                if n < low || n > high {
                    return Err(format!("the number {n} does not fit a parameter of {bytes} bytes"));
                }
                Ok(n.to_le_bytes()[..bytes].to_vec())
            }
            ScalarValue::Real(x) => match bytes {
                4 => Ok((x as f32).to_le_bytes().to_vec()),
                8 => Ok(x.to_le_bytes().to_vec()),
                _ => {
                    Err(format!("the number {x} of floating point does not fit a parameter of {bytes} bytes (4 or 8)"))
                }
            },
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResolvedWorkspace {
    pub name: String,
    pub dtype: DType,
    pub shape: Vec<u64>,
    pub bytes: u64,
    /// Zeroed before every evaluation; else poisoned.
    pub zeroed: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResolvedTensorMap {
    pub name: String,
    pub tensor: String,
    pub dtype: DType,
    /// Innermost first, as the driver takes them.
    pub dims: Vec<u64>,
    /// Bytes, of all dimensions but the innermost.
    pub strides: Vec<u64>,
    pub box_sizes: Vec<u32>,
    pub element_strides: Vec<u32>,
    pub swizzle: String,
    pub interleave: String,
    pub fill: String,
    pub l2_promotion: String,
}

/// A parameter of a compiled entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parameter {
    pub bytes: usize,
    /// As the PTX states it.
    pub align: usize,
}

/// Bytes that a candidate's workspaces can have together.
pub const MAX_WORKSPACE_BYTES: u64 = 16 << 30;

impl ResolvedLaunch {
    /// Whether the target can launch it: shared memory (with `static_bytes` of the entry's own) and clusters.
    pub fn fits(&self, target: &Target, static_bytes: u64) -> Result<(), PlanProblem> {
        let limit = u64::from(target.shared_bytes_per_block);
        let total = self.shared_bytes.saturating_add(static_bytes);
        if total > limit {
            let message = format!(
                "entry {} asks for {} bytes of dynamic shared memory ({static_bytes} static besides); a block on {} has at most {limit}",
                self.entry, self.shared_bytes, target.name
            );
            return Err(PlanProblem::at(self.line, message).limit(limit.to_string()));
        }
        if !target.clusters && self.cluster != [1, 1, 1] {
            return Err(PlanProblem::at(
                self.line,
                format!("entry {} asks for a cluster, which {} does not have", self.entry, target.name),
            ));
        }
        Ok(())
    }

    /// Whether the arguments fit the entry's parameters, in number and in size. `file` is the candidate's.
    pub fn fits_parameters(&self, file: &str, parameters: &[Parameter]) -> Result<(), SpecError> {
        let wrong = |message: String| Err(SpecError::new(SpecCode::ArgumentMismatch, message).at(file, self.args_line));
        if parameters.len() != self.args.len() {
            let names: Vec<&str> = self.args.iter().map(ResolvedArg::name).collect();
            return wrong(format!(
                "entry {} takes {} arguments, the launch gives {}: {}",
                self.entry,
                parameters.len(),
                self.args.len(),
                names.join(", ")
            ));
        }
        for (i, (arg, parameter)) in self.args.iter().zip(parameters).enumerate() {
            let (bytes, what) = match arg {
                ResolvedArg::Tensor(_) | ResolvedArg::Workspace(_) => (8, "an address of"),
                ResolvedArg::TensorMap(_) => (128, "a tensor map of"),
                ResolvedArg::Bytes { bytes, .. } => (bytes.len(), "a value of"),
                ResolvedArg::Struct { name, align, .. } if parameter.align as u64 > *align => {
                    return wrong(format!(
                        "argument {} (`{name}`) of entry {} is a struct aligned to {align} bytes, but the parameter is aligned to {}",
                        i + 1,
                        self.entry,
                        parameter.align
                    ));
                }
                ResolvedArg::Struct { bytes, .. } => (bytes.len(), "a struct of"),
                ResolvedArg::Scalar { name, value } => match value.encode(parameter.bytes) {
                    Ok(_) => continue,
                    Err(why) => return wrong(format!("argument {} (`{name}`) of entry {}: {why}", i + 1, self.entry)),
                },
            };
            if parameter.bytes != bytes {
                return wrong(format!(
                    "argument {} (`{}`) of entry {} is {what} {bytes} bytes, but the parameter has {} bytes",
                    i + 1,
                    arg.name(),
                    self.entry,
                    parameter.bytes
                ));
            }
        }
        Ok(())
    }

    /// The error for an entry that the compiled candidate does not have.
    pub fn missing_entry(&self, file: &str, found: &[&str]) -> SpecError {
        let near = crate::suggest::did_you_mean(&self.entry, found.iter().copied());
        SpecError::new(
            SpecCode::UnknownName,
            format!("the kernel has no entry `{}`{near}", crate::error::shown(&self.entry)),
        )
        .at(file, self.entry_line)
        .hint(format!(
            "its entries: {}; a name without a template needs extern \"C\"",
            crate::suggest::listed(found.iter().copied())
        ))
    }
}
