//! What gate 3 leaves in a result: times with their conditions, ratios to baselines, stability. Pure data; absent parts are absent.
//!
//! Every time is in microseconds for one call. A ratio is the baseline's time / ours, above 1 we are faster; both come from one run, by
//! one method. Where a result's `backend` is `fake` the figures were replayed from a file, and none of them is a time.

use crate::record::CheckRecord;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One candidate on one workload, measured.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct MeasurementRecord {
    /// `NVIDIA H200`
    pub device: String,
    pub conditions: ConditionsRecord,
    /// The method that ratios are of: `graph_cold`, unless it was not asked for.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub method: String,
    /// `graph_cold` | `graph_warm` | `event` | `eager`
    pub methods: BTreeMap<String, TimesRecord>,
    /// By name: `sdpa:auto` for somebody else's, `level_00` for one of our own.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub baselines: BTreeMap<String, BaselineRecord>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stability: Option<StabilityRecord>,
    /// What was seen of the outputs that were timed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outputs: Option<OutputsRecord>,
    /// The least time that the device's rated figures allow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub floor: Option<FloorRecord>,
    /// Gate 2 of the same PTX on the PTX machine, beside the device's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agreement: Option<AgreementRecord>,
    /// How far the same ratio lies apart on two machines with the same device, relative, beside its interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub between_machines: Option<SpreadRecord>,
}

/// What the device did while it was measured; absent where it does not say.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ConditionsRecord {
    /// The median of what was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sm_mhz: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_mhz: Option<u32>,
    /// The clocks were held down, for heat or power, at some time during the measurement.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throttled: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_w: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature_c: Option<u32>,
    /// Why, in the driver's words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub throttle_reasons: Vec<String>,
}

/// Times by one method, microseconds for one call.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TimesRecord {
    pub median_us: f64,
    pub p10_us: f64,
    pub p90_us: f64,
    pub n: usize,
    /// Round by round, the same number in each.
    pub samples: Vec<f64>,
    /// In so many rounds; each subject was timed once in each, in random order.
    pub rounds: usize,
}

/// A baseline: its times and our ratio to it, or why it is missing.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct BaselineRecord {
    /// Why it was not measured: what is not installed and how to get it, or that it does not take the shape.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub methods: BTreeMap<String, TimesRecord>,
    /// Its outputs against the same oracle.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub check: Option<BTreeMap<String, CheckRecord>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    /// The interval holds the ratio with 95%.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio_low: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio_high: Option<f64>,
    /// How far two halves of the same subject's samples lie apart, relative, at least 1%: what is within it is `ambiguous`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub noise_floor: Option<f64>,
    /// `excellent` | `good` | `modest` | `parity` | `regression` | `ambiguous`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// What it is: packages with versions, as its worker says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
}

impl BaselineRecord {
    /// A baseline that was not measured.
    pub fn missing(why: impl Into<String>) -> BaselineRecord {
        BaselineRecord { missing: Some(why.into()), ..BaselineRecord::default() }
    }

    /// The ratio, if it is one.
    pub fn usable_ratio(&self) -> Option<f64> {
        self.ratio.filter(|r| r.is_finite() && *r > 0.0)
    }
}

/// Many launches of the same work.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct StabilityRecord {
    pub launches: u64,
    /// All outputs had the same bits.
    pub identical: bool,
    /// The first launch whose outputs differed, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_difference: Option<u64>,
}

/// Outputs of timed replays, sampled in secret.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct OutputsRecord {
    /// Sets of inputs, each judged against the oracle.
    pub bases: usize,
    pub sampled: u64,
    /// Those with the very bits of the judged output; where the kernel's order of sums is free the others keep the limits.
    pub identical: u64,
}

/// The least time that physics allows on this device, by its rated figures.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct FloorRecord {
    pub us: f64,
    /// The arithmetic.
    pub why: String,
}

/// Whether the CPU was asked too, and what it said.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct AgreementRecord {
    pub compared: bool,
    /// Why it was not compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The PTX machine's verdict on the same workload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ptx_machine: Option<crate::record::VerdictWord>,
}

/// A relative spread and where it comes from.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SpreadRecord {
    pub relative: f64,
    pub source: String,
}

/// Ratios of one candidate to one baseline over the results that passed.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SpeedupRecord {
    pub candidate: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<String>,
    pub baseline: String,
    pub geomean: f64,
    pub best: ExtremeRecord,
    pub worst: ExtremeRecord,
    pub results: usize,
}

/// A result that stands out, by its ratio to the baseline named.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ExtremeRecord {
    pub candidate: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<String>,
    pub shape: String,
    pub causal: bool,
    pub baseline: String,
    pub ratio: f64,
}

/// Whether a baseline of that name is somebody else's implementation rather than a kernel of ours: it has a colon, or is the bare name
/// of a package.
pub fn is_peer(name: &str) -> bool {
    name.contains(':') || matches!(name, "flash_attn" | "sage")
}
