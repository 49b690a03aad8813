//! The messages to the process that holds the baselines: `docs/baselines.md` describes them, `python/warpsmith_baselines` is the other side.
//!
//! Framing, blobs, methods and the choice of inputs are the device worker's (`docs/worker-protocol.md`); what differs is that a subject is
//! a baseline's name with tensors instead of code with buffers, and that outputs come back as values. Pure data.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
pub use warpsmith_cuda::worker::protocol::{Bases, Conditions, Method, Time};

/// Both sides have to speak the same one.
pub const PROTOCOL: u32 = 1;

/// What the process is asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Request {
    /// The first message: imports PyTorch and takes the device.
    Hello(Hello),
    Prepare(Prepare),
    Time(Time),
    /// One call on a base; its output's values.
    Output {
        subject: String,
        base: usize,
        seconds: u64,
    },
    /// Forgets a subject and gives its memory back; one that is not there is no error.
    Discard {
        subject: String,
    },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Hello {
    pub protocol: u32,
    /// `GPU-...`; which device, whatever its number is in that process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_uuid: Option<String>,
    /// Its number, where the UUID is not known.
    pub device: u32,
    /// In place of PyTorch: made-up times and what else is to happen. For tests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fake: Option<Fake>,
    pub seconds: u64,
}

/// What the stand-in for PyTorch does.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Fake {
    /// Microseconds of a call, by baseline.
    #[serde(default)]
    pub us: BTreeMap<String, f64>,
    /// Why a baseline is not there.
    #[serde(default)]
    pub absent: BTreeMap<String, String>,
    /// How a baseline ends when it is timed: `crash`, `hang`, `fail`, `lost`.
    #[serde(default)]
    pub ends: BTreeMap<String, String>,
}

/// Makes a baseline resident. A subject of the same name is discarded first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Prepare {
    pub subject: String,
    pub baseline: String,
    pub causal: bool,
    pub scalars: BTreeMap<String, f64>,
    /// Sets of inputs.
    pub bases: Vec<Vec<TensorHead>>,
    /// So many are wanted; at least one is made.
    pub copies: u32,
    /// For all copies together. Fewer are made rather than more than this.
    pub copies_bytes: u64,
    /// After so many the process ends itself; the parent's own deadline comes first.
    pub seconds: u64,
}

/// A tensor whose bytes are a blob: contiguous, little-endian.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorHead {
    pub name: String,
    /// As in a task: `f16`, `e4m3` ...
    pub dtype: String,
    pub shape: Vec<u64>,
    pub sha256: String,
}

/// What the process answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case")]
pub enum Reply {
    /// The interpreter is there and takes the program; its number is 0.
    Ready,
    Hello(Greeting),
    Prepared(Ready),
    Timed(Box<TimedHead>),
    Output(OutputHead),
    Done,
    /// Blobs that it does not have, or no longer; the request was not carried out.
    Missing {
        sha256: Vec<String>,
    },
    /// Not installed, or it does not take this problem.
    Absent {
        why: String,
    },
    /// It broke while it was called. `last`: the process ends, its device context is lost.
    Failed {
        why: String,
        #[serde(default)]
        last: bool,
    },
    /// The one who asks is at fault.
    Error {
        code: String,
        message: String,
    },
}

/// Who answers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Greeting {
    pub protocol: u32,
    /// Packages that there are, with Python, CUDA and cuDNN as PyTorch has them.
    pub versions: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<Device>,
    /// Why no baseline at all can be had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unusable: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    pub name: String,
    pub uuid: String,
    pub l2_bytes: u64,
}

/// A baseline is resident.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    pub copies: u32,
    /// Of one copy: inputs and output, as the implementation has them.
    pub copy_bytes: u64,
    pub bases: u32,
    /// For people: which of its ways an implementation chose.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
}

/// What came of [`Time`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TimedHead {
    /// Microseconds for one call, in the order of the replays.
    pub samples: Vec<f64>,
    /// Calls of one replay.
    pub calls: u32,
    /// Copies that they used.
    pub copies: u32,
    /// In the order of the replays.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sampled: Vec<SampledHead>,
    /// [replay, copy] of sampled calls after which an input had other contents.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<[u32; 2]>,
    #[serde(default)]
    pub conditions: Conditions,
}

/// The output of one timed call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SampledHead {
    pub replay: u32,
    pub copy: u32,
    /// The inputs that it had.
    pub base: usize,
    #[serde(flatten)]
    pub output: OutputHead,
}

/// An output's values: `f32`, in the task's order, whatever type and order the implementation has; a scale is multiplied in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputHead {
    pub dtype: String,
    pub shape: Vec<u64>,
    pub sha256: String,
}
