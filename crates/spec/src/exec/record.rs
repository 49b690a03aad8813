//! The record of `warpsmith exec` (`warpsmith.exec/1`): what `--json` prints and `summary.json` holds. Absent parts are absent.

use crate::record::{Environment, ExecutionRecord, FindingRecord, RunInfo, VerdictWord};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

pub const EXEC_SCHEMA: &str = "warpsmith.exec/1";

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExecRecord {
    pub schema: String,
    pub run: RunInfo,
    pub environment: Environment,
    /// As they were typed.
    pub file: String,
    pub launch: String,
    pub target: String,
    /// `ptx_machine` | `gpu` | `fake`
    pub backend: String,
    /// `faithful` | `fast` | `hardware`
    pub numerics: String,
    /// SHA-256 of the PTX that ran; absent where it did not compile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ptx_sha256: Option<String>,
    pub verdict: VerdictWord,
    pub findings: Vec<FindingRecord>,
    /// The first error of `findings`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finding: Option<FindingRecord>,
    pub fidelity: FidelityRecord,
    /// What the first schedule executed. Never a time.
    pub counters: ExecutionRecord,
    pub outputs: BTreeMap<String, OutputRecord>,
    /// What the kernel printed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub printed: String,
}

/// How far what was executed is what a GPU executes.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct FidelityRecord {
    /// Warp-instructions whose result is the hardware's to the bit.
    pub exact: u64,
    /// By opcode, those whose result is within a stated distance of it.
    pub approximate: BTreeMap<String, u64>,
    /// Sums of tensor cores, by the target's model; in plain f32 with fast numerics.
    #[serde(default)]
    pub modelled: u64,
    /// What could not be executed, and ended the run.
    pub unsupported: Vec<String>,
    /// Legal orders of events that ran to their end, the first one included.
    pub schedules: u32,
}

/// A buffer after the last launch.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct OutputRecord {
    /// Under the run's folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The largest difference to what was expected, over finite numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_abs_err: Option<f64>,
    /// Elements beyond the tolerance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wrong: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtol: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub atol: Option<f64>,
    /// Whether all elements are what was expected; absent where nothing was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ok: Option<bool>,
}
