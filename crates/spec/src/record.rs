//! The record of a run (`warpsmith.run/1`): what `--json` prints and `summary.json` holds. Pure data; absent parts are absent.

pub use crate::ceilings::CeilingsRecord;
pub use crate::measurement::*;
pub use crate::profile::*;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

pub const RUN_SCHEMA: &str = "warpsmith.run/1";

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    pub schema: String,
    pub run: RunInfo,
    pub environment: Environment,
    #[serde(default)]
    pub not_applicable: Vec<NotApplicable>,
    /// Kernels shown because they must fail: not part of what is judged.
    #[serde(default)]
    pub examples: Vec<ResultRecord>,
    pub results: Vec<ResultRecord>,
    #[serde(default)]
    pub accept: Vec<AcceptRecord>,
    /// The geometric mean, over the results that passed, of the ratio to the first baseline that all of them have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub geomean: Option<f64>,
    /// The largest of those ratios.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best: Option<ExtremeRecord>,
    /// The smallest of those ratios.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worst: Option<ExtremeRecord>,
    /// The same for each candidate and each baseline; `best_peer` is each result's fastest peer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub speedups: Vec<SpeedupRecord>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunInfo {
    /// The folder's name, `20261121-193015-check`.
    pub name: String,
    pub command: Vec<String>,
    /// RFC 3339, UTC.
    pub started: String,
    pub warpsmith: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub git_commit: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub git_dirty: Option<bool>,
    /// The secret from which gate 3 draws inputs, order and samples; logged so that the run replays (`--seed-secret`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed_secret: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    pub os: String,
    pub arch: String,
    pub cpus: usize,
    /// Which compiler made the artifacts: a toolkit's id, or the committed layer's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub toolkit: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Which one of its kind it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub card: Option<CardRecord>,
    /// What the device can do at most, as it was measured on it before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceilings: Option<CeilingsRecord>,
    /// The other machine, where kernels ran on one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<RemoteRecord>,
}

/// One card among others of its kind, and what drives it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CardRecord {
    /// `GPU-...`, as the driver names it.
    pub uuid: String,
    /// The newest CUDA version that the driver serves.
    pub driver: String,
}

/// What was had of another machine (`--on`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RemoteRecord {
    /// As it was typed.
    pub launcher: String,
    /// `Linux x86_64 glibc-2.36`
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<String>,
    /// SHA-256 of the worker's program there, or of the sources that it was built from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_sha256: Option<String>,
    /// Launchers that were started, one after the other or beside each other.
    pub connections: u64,
    /// Seconds during which a launcher ran, from its start to its end.
    pub held_seconds: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NotApplicable {
    pub candidate: String,
    pub shape: String,
    pub why: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GateStatus {
    Passed,
    Failed,
    Blocked,
    NotRun,
    Unavailable,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VerdictWord {
    Passed,
    CompileFailed,
    Faulted,
    Incorrect,
    Rejected,
    TimedOut,
    Unsupported,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gates {
    pub compile: GateStatus,
    pub correctness: GateStatus,
    pub performance: GateStatus,
    pub profile: GateStatus,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    Error,
    Note,
}

/// One thing that was found, by any gate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FindingRecord {
    pub severity: Severity,
    /// snake_case class, for example `uninitialized_read`.
    pub kind: String,
    /// kebab-case id with a page in `warpsmith explain`, for example `uninitialized-read`.
    pub code: String,
    /// `compile` | `correctness` | `performance` | `profile`
    pub gate: String,
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other_line: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entry: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cta: Option<[u32; 3]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warp: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lane: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tensor: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<Vec<i64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
}

/// What ptxas and the SASS say of one entry for one target.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct EntryRecord {
    pub registers: u32,
    /// Static shared memory.
    pub shared_bytes: u32,
    /// Dynamic shared memory of the launch plan at this shape.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dynamic_shared_bytes: Option<u64>,
    pub stack_bytes: u32,
    pub spill_bytes: u32,
    /// SASS tensor-core opcodes by kind (HMMA, QMMA, QGMMA, HGMMA, IMMA), with how many there are.
    pub tensor_ops: BTreeMap<String, u64>,
    pub ptx_sha256: String,
    #[serde(default)]
    pub warnings: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LimitedErrors {
    pub rel_frobenius: f64,
    pub worst_row: f64,
    pub limit_rel_frobenius: f64,
    pub limit_worst_row: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorstElement {
    pub index: Vec<u64>,
    /// None stands for a value that JSON cannot hold (NaN, infinities); `got_text` says which.
    pub got: Option<f64>,
    pub want: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub got_text: Option<String>,
}

/// One output against its oracle.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CheckRecord {
    pub kernel: LimitedErrors,
    pub end_to_end: LimitedErrors,
    pub max_abs_err: f64,
    pub mean_abs_err: f64,
    pub rmse: f64,
    /// Share (percent) of elements beyond a tolerance scaled with the output's RMS; reported, not judged.
    pub pct_bad: f64,
    pub cosine: f64,
    pub nan: u64,
    pub inf: u64,
    pub worst: WorstElement,
    /// Rows judged and rows there are; fewer where the shape is too large to do whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows_checked: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows_total: Option<u64>,
    /// SHA-256 of the whole output's bytes: two runs with the same one gave the same bits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// Where it errs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_map: Option<ErrorMap>,
}

/// Where an output errs, one character for each cell, at most a few kilobytes in all.
///
/// A character is the relative error of the cell's worst row as a part of the limit on rows: `0` up to 1/8, `1` up to 1/4, `2` up to
/// 1/2, `3` up to the limit itself; beyond it `4` up to 2 times, `5` 4, `6` 8, `7` 16, `8` 64 times, `9` more; `n` holds a value
/// that is not finite, `.` was not judged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorMap {
    /// A line for each group of the leading indices (batch and head), a character for each tile of rows.
    pub tiles: Vec<String>,
    /// Leading indices that a line stands for, and rows that a character does.
    pub leading_per_line: u64,
    pub rows_per_tile: u64,
    /// All tiles of 16 rows laid upon each other: a line for each row of the tile, a character for each group of columns. Faults in
    /// the layout of fragments show here.
    pub within: Vec<String>,
    pub columns_per_cell: u64,
}

impl ErrorMap {
    /// A character for an error as a part of the limit.
    pub fn level(share: f64) -> char {
        const STEPS: [f64; 9] = [0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 64.0];
        if !share.is_finite() {
            return 'n';
        }
        let at = STEPS.iter().position(|s| share <= *s).unwrap_or(STEPS.len());
        char::from_digit(at as u32, 10).unwrap_or('9')
    }
}

/// One candidate on one workload for one target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResultRecord {
    pub candidate: String,
    pub task: String,
    pub shape: String,
    pub symbols: BTreeMap<String, i64>,
    pub causal: bool,
    pub format: String,
    pub distribution: String,
    pub scales: String,
    pub seed: u64,
    /// Layout, format of outputs and optional outputs, where the task has such.
    #[serde(default, skip_serializing_if = "crate::workload::Variant::is_plain")]
    pub variant: crate::workload::Variant,
    pub target: String,
    /// SHA-256 of the candidate's file; the run keeps the text under the candidate's `source/`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_sha256: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<String>,
    pub levers: BTreeMap<String, crate::levers::LeverValue>,
    pub backend: String,
    pub numerics: String,
    pub gates: Gates,
    pub verdict: VerdictWord,
    #[serde(default)]
    pub findings: Vec<FindingRecord>,
    /// The first error of `findings`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finding: Option<FindingRecord>,
    /// target -> entry -> evidence.
    pub compile: BTreeMap<String, BTreeMap<String, EntryRecord>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub check: Option<BTreeMap<String, CheckRecord>>,
    /// Filled by gate 3 only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measurement: Option<MeasurementRecord>,
    /// Filled by gate 4 only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<Box<ProfileRecord>>,
    /// What the machine executed: instructions, coverage, approximations. Never a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub execution: Option<ExecutionRecord>,
    /// True where this pass was earned before, by the same artifact, plan, workload and limits.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cached: bool,
    /// Whose check a remembered pass is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check_of: Option<CheckOfRecord>,
}

/// The run that earned a pass.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CheckOfRecord {
    /// The run's name.
    pub run: String,
    /// RFC 3339, UTC.
    pub at: String,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ExecutionRecord {
    pub warp_instructions: u64,
    pub lane_instructions: u64,
    pub tensor_ops: u64,
    pub static_instructions: u64,
    pub covered_instructions: u64,
    #[serde(default)]
    pub approximate: BTreeMap<String, u64>,
    /// By launch, in the plan's order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub launches: Vec<LaunchExecution>,
    /// Warp-instructions whose sums follow a model of the tensor cores.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub modelled: u64,
    /// Warp-instructions that only part of a warp's living lanes executed, and branches at which lanes parted.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub divergent_instructions: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub divergent_branches: u64,
    /// What accesses cost the memory system, where it was counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic: Option<TrafficRecord>,
    /// By source line, the most executed first; where traffic was counted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<LineRecord>,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// Accesses of warps, and how few wavefronts and sectors of 32 bytes could have served them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TrafficRecord {
    pub shared_requests: u64,
    pub shared_wavefronts: u64,
    pub shared_ideal: u64,
    pub global_requests: u64,
    pub global_sectors: u64,
    pub global_ideal: u64,
}

/// What one source line did.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct LineRecord {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    pub warp_instructions: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tensor_ops: u64,
    #[serde(flatten)]
    pub traffic: TrafficRecord,
}

/// What one launch executed.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct LaunchExecution {
    pub entry: String,
    /// Warp-instructions by opcode as PTX has it.
    pub opcodes: BTreeMap<String, u64>,
    /// Warp-instructions of the CTA that executed most; 0 in records from before it was counted.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub busiest_cta: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AcceptRecord {
    pub criterion: String,
    pub target: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actual: Option<f64>,
    /// `held` | `missed` | `not_run`
    pub status: String,
}

/// `{"error": ...}` on stdout with `--json`, for errors of usage (exit 2) and environment (exit 3).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ErrorRecord {
    pub code: String,
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}
