//! A candidate: device code plus a declarative launch plan, both in one `.cu` file whose head is TOML in `//!` lines.
//!
//! Pure data. It knows nothing of compilers, devices or measurements. Limits: 4 MiB of source, 64 launches, 64 workspaces, 64 levers.

mod args;
mod front_matter;
mod options;
mod parse;
mod parse_levers;
mod parse_plan;
mod parse_structs;

pub use options::{CompileOptions, OptionValue, ResolvedOptions};

use crate::formula::Formula;
use crate::levers::{Config, Lever};
use crate::task::Budget;
use crate::words::{DType, Format, Layout, Precision, ScaleLayout};

/// Symbols that formulas of candidates know whatever the task: multiprocessors of the device or the target's usual card, and 0 or 1.
pub const RESERVED_SYMBOLS: [&str; 2] = ["SM_COUNT", "causal"];

/// What a file says.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// As people named it: a path, or a built-in's name.
    pub name: String,
    /// The whole file; the front matter stays, as comments, so that the compiler's lines are the file's.
    pub source: String,
    pub task: String,
    /// Names of [`crate::target::TARGETS`], in the order of the file; never empty.
    pub targets: Vec<String>,
    pub constraints: Vec<Formula>,
    /// Names of the task's shapes, or shapes, that are judged if none are asked for; empty: the task's own.
    pub shapes: Vec<String>,
    pub formats: Vec<Format>,
    pub scales: Vec<ScaleLayout>,
    pub layouts: Vec<Layout>,
    /// Formats of outputs; empty where the task has none.
    pub outs: Vec<DType>,
    pub defines: Vec<Define>,
    /// Asks for another kernel limit than the task's own.
    pub precision: Option<Precision>,
    /// `[levers]` in the order of the file, then those that only configurations name.
    pub levers: Vec<Lever>,
    pub configs: Vec<Config>,
    pub budget: Budget,
    pub compile: CompileOptions,
    pub plan: LaunchPlan,
}

/// A part of the workload that is compiled in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Define {
    /// `WS_D=64`
    Symbol(String),
    /// `WS_CAUSAL=0|1`
    Causal,
    /// `WS_FORMAT=WS_E4M3|WS_E5M2|WS_U8`
    Format,
    /// `WS_SCALES=WS_TENSOR|WS_HEAD|WS_BLOCK`
    Scales,
    /// `WS_LAYOUT=WS_DENSE|WS_TOKENS|WS_LENGTHS|WS_PAGED|WS_RAGGED`
    Layout,
    /// `WS_OUT=0|1|2` for bf16, f16, e4m3
    Out,
}

/// The host's part: what is launched, in order, on one stream.
#[derive(Debug, Clone, PartialEq)]
pub struct LaunchPlan {
    pub workspaces: Vec<Workspace>,
    pub tensor_maps: Vec<TensorMap>,
    pub launches: Vec<LaunchStep>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WorkspaceInit {
    /// Filled with NaN-like bytes before every evaluation; reading what was not written is a finding.
    Poison,
    Zero,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Workspace {
    pub name: String,
    pub dtype: DType,
    pub shape: Vec<Formula>,
    pub init: WorkspaceInit,
    pub line: u32,
}

/// A TMA descriptor that the host encodes (`cuTensorMapEncodeTiled`).
#[derive(Debug, Clone, PartialEq)]
pub struct TensorMap {
    pub name: String,
    /// A tensor of the task or a workspace.
    pub tensor: String,
    /// Innermost first.
    pub box_sizes: Vec<Formula>,
    /// Global sizes, innermost first; empty: the tensor's own.
    pub dims: Vec<Formula>,
    /// Bytes between elements of all dimensions but the innermost; empty: contiguous.
    pub strides: Vec<Formula>,
    /// Empty: all 1.
    pub element_strides: Vec<Formula>,
    /// As the driver names them: `NONE`, `32B`, `64B`, `128B`.
    pub swizzle: &'static str,
    /// `NONE`, `16B`, `32B`
    pub interleave: &'static str,
    /// `NONE`, `NAN_REQUEST_ZERO_FMA`
    pub fill: &'static str,
    /// `NONE`, `L2_64B`, `L2_128B`, `L2_256B`
    pub l2_promotion: &'static str,
    pub line: u32,
}

/// One `[[launch]]`.
#[derive(Debug, Clone, PartialEq)]
pub struct LaunchStep {
    /// A function's name, or a template instance such as `sdpa_fp8<64, true>`.
    pub entry: String,
    /// One to three.
    pub grid: Vec<Formula>,
    pub block: Vec<Formula>,
    /// Empty: no cluster.
    pub cluster: Vec<Formula>,
    pub shared_bytes: Option<Formula>,
    pub args: Vec<Arg>,
    /// Line of its `[[launch]]`, and of its `args` and `entry`.
    pub line: u32,
    pub args_line: u32,
    pub entry_line: u32,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Arg {
    Tensor(String),
    Workspace(String),
    TensorMap(String),
    /// A scalar of the task.
    Scalar(String),
    Float(f64),
    /// A whole number, a symbol, a lever, or a formula of them.
    Formula(Formula),
    /// A struct by value, `[structs.NAME]`.
    Struct(Struct),
}

/// A struct that a kernel takes by value: its declared layout, and what goes where. Bytes that no field covers are zero.
#[derive(Debug, Clone, PartialEq)]
pub struct Struct {
    pub name: String,
    pub bytes: u64,
    /// A power of two, at least that of each field.
    pub align: u64,
    /// By offset; they do not overlap.
    pub fields: Vec<StructField>,
    pub line: u32,
}

#[derive(Debug, Clone, PartialEq)]
pub struct StructField {
    pub name: String,
    pub kind: FieldType,
    pub offset: u64,
    /// Never a struct, nor a tensor map.
    pub value: Arg,
    pub line: u32,
}

/// The type of a struct's field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldType {
    /// An address of 8 bytes; the number 0 is null.
    Pointer,
    Number(DType),
}

impl FieldType {
    /// Its size, which is its alignment too.
    pub fn bytes(self) -> u64 {
        match self {
            FieldType::Pointer => 8,
            FieldType::Number(dtype) => dtype.bytes(),
        }
    }
}

impl Candidate {
    /// Whether it can be asked for a causal mask: `causal` stands among its arguments or its defines.
    pub fn takes_causal(&self) -> bool {
        self.defines.contains(&Define::Causal)
            || self.plan.launches.iter().flat_map(|l| &l.args).any(|a| match a {
                Arg::Formula(f) => f.symbols().contains("causal"),
                Arg::Struct(s) => {
                    s.fields.iter().any(|f| matches!(&f.value, Arg::Formula(f) if f.symbols().contains("causal")))
                }
                _ => false,
            })
    }

    /// Whether the tensor stands among the arguments of a launch, or in a struct of them.
    pub fn names_tensor(&self, name: &str) -> bool {
        let named = |a: &Arg| matches!(a, Arg::Tensor(n) if n == name);
        self.plan.launches.iter().flat_map(|l| &l.args).any(|a| match a {
            Arg::Struct(s) => s.fields.iter().any(|f| named(&f.value)),
            a => named(a),
        }) || self.plan.tensor_maps.iter().any(|m| m.tensor == name)
    }

    /// The last part of its name without `.cu`.
    pub fn stem(&self) -> &str {
        let file = self.name.rsplit(['/', '\\']).next().unwrap_or(&self.name);
        file.strip_suffix(".cu").unwrap_or(file)
    }

    pub fn lever(&self, name: &str) -> Option<&Lever> {
        self.levers.iter().find(|l| l.name == name)
    }

    /// Distinct entries, in order of first launch.
    pub fn entries(&self) -> Vec<&str> {
        let mut entries: Vec<&str> = Vec::new();
        for launch in &self.plan.launches {
            if !entries.contains(&launch.entry.as_str()) {
                entries.push(&launch.entry);
            }
        }
        entries
    }
}
