//! What gate 4 leaves in a result: counters, resources, what bounds the kernel, what to try, work by phase. Pure data; absent parts are absent.
//!
//! Counters are the hardware's, by ncu; all else is there without them. No time is in it: a profiled launch runs under other
//! conditions than a measured one, so what ncu calls its duration is left in ncu's own files.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Gate 4 of one candidate on one workload.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ProfileRecord {
    /// Why there are no hardware counters, and what to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unavailable: Option<UnavailableRecord>,
    /// `ncu 2025.3.1.0`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// Whose counters they are, as ncu names the device or its compute capability.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Launches that were profiled, in their order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub counters: Vec<LaunchCounters>,
    /// By entry of the executed target, needs no counters.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub entries: Vec<EntryProfile>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound: Option<BoundRecord>,
    /// The most promising first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub advice: Vec<AdviceRecord>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<PhaseRecord>,
    /// Where the stalls' samples lie, by source line, the most first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<SampleRecord>,
    /// What could not be told, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Kept in the run: paths under it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
}

/// Why there are no counters.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct UnavailableRecord {
    /// A page of `warpsmith explain`.
    pub code: String,
    pub why: String,
    /// What to do, as a command where there is one.
    pub next: String,
}

/// What ncu counted of one launch.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LaunchCounters {
    /// As ncu prints it.
    pub kernel: String,
    pub grid: String,
    pub block: String,
    pub counters: Vec<CounterRecord>,
}

/// One counter, as ncu has it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CounterRecord {
    /// The name by which rules speak of it: `tensor_active`.
    pub name: String,
    /// ncu's own: `sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active`
    pub metric: String,
    pub title: String,
    pub value: f64,
    pub unit: String,
    /// What a good kernel has, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub met: Option<bool>,
}

/// An entry without any counter: what ptxas allotted, what fits a multiprocessor, what the machine code consists of.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct EntryProfile {
    pub entry: String,
    pub target: String,
    pub threads: u32,
    pub registers: u32,
    /// Static and dynamic.
    pub shared_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub occupancy: Option<OccupancyRecord>,
    /// SASS opcodes, by how often they stand there; absent without machine code or a disassembler.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub sass: BTreeMap<String, u64>,
}

/// Warps that fit one multiprocessor at once.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct OccupancyRecord {
    pub ctas: u32,
    pub warps: u32,
    pub max_warps: u32,
    /// `registers` | `shared memory` | `warps` | `CTAs`
    pub limit: String,
    /// CTAs of the launch by the multiprocessors of the usual card, if all are filled: below 1 some stay empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waves: Option<f64>,
}

/// What keeps the kernel from being faster.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct BoundRecord {
    /// `compute` | `memory` | `latency` | `exponentials` | `shared_memory` | `fp32` | `issue`
    pub word: String,
    /// `counters`: measured by the hardware. `executed_work`: which unit has most to do, by the PTX machine's counts; no measurement.
    pub source: String,
    /// A sentence.
    pub why: String,
    /// Figures that show it, by name.
    pub proof: BTreeMap<String, f64>,
}

/// A lever to pull.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct AdviceRecord {
    pub lever: String,
    pub title: String,
    pub why: String,
    /// Old time / new time, from and to.
    pub gain: [f64; 2],
    /// `minutes` | `hours` | `days`
    pub effort: String,
    /// Figures that led to it.
    pub proof: BTreeMap<String, f64>,
}

/// Shares of the whole kernel that lie in a phase, 0 to 1.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PhaseRecord {
    /// As marked, or `unmarked`.
    pub phase: String,
    pub issue_slots: f64,
    pub tensor_ops: f64,
    /// Of sectors of global memory and wavefronts of shared memory.
    pub bytes: f64,
    pub bank_conflicts: f64,
    /// From ncu's samples, and only from them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<f64>,
    /// The gain if the phase took no time at all: 1 / (1 - time).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub amdahl: Option<f64>,
}

/// Samples of ncu at a source line.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SampleRecord {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// Where it is inlined: file and line of each call site, the nearest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub via: Vec<(String, u32)>,
    pub samples: u64,
    /// By reason, as ncu has them, the most first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stalls: Vec<(String, u64)>,
}
