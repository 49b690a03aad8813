//! The messages of subjects: code and memory that stay on the device to be timed, and launched many times over.
//!
//! A *subject* is what a run has, resident under a name: its image, its buffers in several *copies* (each copy has its own memory for every
//! buffer), its launches for each copy, and several *bases*, complete sets of inputs. Whoever asks says which base goes into which copy
//! before each replay and which of the outputs come back; the kernel can know neither.

use super::{Buffer, End, Launch, Output, Overrun};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Subjects that a worker keeps at most.
pub const MAX_SUBJECTS: usize = 256;
/// Copies of a subject's buffers at most.
pub const MAX_COPIES: u32 = 4096;
/// Sets of inputs of a subject at most.
pub const MAX_BASES: usize = 64;
/// Replays of one request at most, those that warm up included.
pub const MAX_REPLAYS: u32 = 1 << 20;

/// Makes a subject resident. One of the same name is discarded first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Prepare {
    pub subject: String,
    /// For people and profilers: candidate and shape.
    #[serde(default)]
    pub label: String,
    /// SHA-256 of the cubin or PTX.
    pub image: String,
    pub buffers: Vec<Buffer>,
    /// One call: these in order.
    pub launches: Vec<Launch>,
    /// Buffers that are outputs, as in a run.
    pub want: Vec<String>,
    /// Sets of inputs: the hash of the contents of each buffer that has contents, by name. A buffer that a set leaves out has its own
    /// contents in it. Without any set there is one: the buffers' own contents.
    #[serde(default)]
    pub bases: Vec<BTreeMap<String, String>>,
    /// So many are wanted; at least one is made.
    pub copies: u32,
    /// For all copies together. Fewer are made rather than more than this.
    pub copies_bytes: u64,
    /// After so many the worker ends itself; the parent's own deadline comes first.
    pub seconds: u64,
}

/// What came of [`Prepare`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Prepared {
    /// [`End::Completed`]: it is resident. Nothing has been launched.
    pub end: End,
    pub copies: u32,
    /// Of one copy, without what surrounds its buffers.
    pub copy_bytes: u64,
    pub bases: u32,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub last: bool,
}

/// How calls are made and timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// Replays of a graph whose calls each work on a copy that nothing has touched since L2 was flushed.
    #[default]
    GraphCold,
    /// Replays of a graph whose calls work on copies that lie in L2 together.
    GraphWarm,
    /// One call between two events, L2 flushed before.
    Event,
    /// Calls given to a stream one after the other; the host's time until all are done.
    Eager,
}

impl Method {
    pub const ALL: [Method; 4] = [Method::GraphCold, Method::GraphWarm, Method::Event, Method::Eager];

    /// `graph_cold`
    pub fn word(self) -> &'static str {
        match self {
            Method::GraphCold => "graph_cold",
            Method::GraphWarm => "graph_warm",
            Method::Event => "event",
            Method::Eager => "eager",
        }
    }
}

/// Times a subject. Before each replay, outside of what is timed, the inputs are copied anew, outputs and poisoned workspaces are filled
/// with a pattern nobody can foresee, and zero ones with zeros.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Time {
    pub subject: String,
    pub method: Method,
    /// Samples that are kept: one for each replay; for `event` one for each call.
    pub replays: u32,
    /// Replays before, made alike, whose times are not kept.
    pub warmup: u32,
    /// Calls of one replay; 0: as many as there are copies. A graph that is to be cold, and a subject with a buffer of zeros, has at most
    /// as many as copies; else they go round. `event` has one.
    #[serde(default)]
    pub calls: u32,
    pub bases: Bases,
    /// [replay, copy]: outputs that are wanted, replays counted from the first that is kept. A copy that the replay does not use has none.
    #[serde(default)]
    pub sample: Vec<[u32; 2]>,
    /// Each launch leaves word of its beginning and end, so that a fault has a number. What is timed so is no measurement.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub marked: bool,
    pub seconds: u64,
}

/// Which inputs a copy has in a replay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bases {
    /// The worker draws them: [`Bases::at`].
    Seed(u64),
    /// By replay (warm-up not counted; it has the first's), then by copy. Shorter lists go round.
    Table(Vec<Vec<u32>>),
}

impl Bases {
    /// The base of a copy in a replay, of so many bases.
    pub fn at(&self, replay: u32, copy: u32, bases: u32) -> u32 {
        let n = bases.max(1);
        match self {
            Bases::Seed(seed) => {
                let x = super::super::session::mix(
                    seed ^ super::super::session::mix(u64::from(replay) << 32 | u64::from(copy)),
                );
                (x % u64::from(n)) as u32
            }
            Bases::Table(rows) => {
                let row = rows.get(replay as usize % rows.len().max(1));
                row.and_then(|row| row.get(copy as usize % row.len().max(1))).map_or(0, |b| b % n)
            }
        }
    }
}

/// What came of [`Time`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TimedHead {
    pub end: End,
    /// Microseconds for one call, in the order of the replays. What was measured before a fault stays.
    pub samples: Vec<f64>,
    /// Calls of one replay.
    pub calls: u32,
    /// Copies that the calls of one replay used.
    pub copies: u32,
    /// In the order of [`Time::sample`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sampled: Vec<Sampled>,
    /// Inputs that were changed, at most [`super::MAX_PLACES`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<Changed>,
    /// Copies whose red zones were written to, at most [`super::MAX_PLACES`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overruns: Vec<CopyOverrun>,
    pub conditions: Conditions,
    /// Where it stopped, unless it completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Stop>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub printed: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub last: bool,
}

/// Outputs of one copy after one replay. Contents follow as blobs, each once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sampled {
    pub replay: u32,
    pub copy: u32,
    /// The inputs that it had.
    pub base: u32,
    /// In the order of [`Prepare::want`].
    pub outputs: Vec<Output>,
}

/// An input that has other contents after the calls.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changed {
    pub replay: u32,
    pub copy: u32,
    pub buffer: String,
    /// The first byte that differs.
    pub offset: u64,
    /// How many differ.
    pub bytes: u64,
}

/// Writes outside of a copy's buffer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyOverrun {
    pub replay: u32,
    pub copy: u32,
    #[serde(flatten)]
    pub overrun: Overrun,
}

/// Calls among which the one is that did not complete.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stop {
    /// Calls that had been made before in this request, those whose time is not kept included.
    pub first: u64,
    /// How many were under way together; 1: it is this very one.
    pub count: u64,
    /// Of the launch that failed, or the call's first where it is not known.
    pub grid: [u32; 3],
    /// The calls, counted as `first` is, that had begun and not ended; empty where nobody knows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unfinished: Vec<u64>,
}

/// What the device's management library says, before the replays, while one of them ran, and after them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Conditions {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Reading>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub during: Option<Reading>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Reading>,
}

/// The device's state at one moment; what it does not tell is absent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sm_mhz: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_mhz: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_w: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature_c: Option<u32>,
    /// Why clocks are held down, other than that the device is idle: `sw_power_cap`, `hw_slowdown`, `sync_boost`, `sw_thermal`,
    /// `hw_thermal`, `hw_power_brake`; `application_clocks` and `display_clocks` are settings, not distress.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub throttle: Vec<String>,
}

impl Reading {
    /// Whether clocks are held down by heat or power rather than by a setting.
    pub fn throttled(&self) -> bool {
        self.throttle.iter().any(|why| !matches!(why.as_str(), "application_clocks" | "display_clocks"))
    }
}

/// Launches a subject many times over, on one stream and several, and compares what it leaves.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Steady {
    pub subject: String,
    pub launches: u64,
    /// No further launches are begun after so many seconds.
    pub seconds_at_most: f64,
    /// The inputs.
    #[serde(default)]
    pub base: u32,
    pub seconds: u64,
}

/// What came of [`Steady`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SteadyHead {
    pub end: End,
    /// Calls that were made and whose outputs were compared.
    pub done: u64,
    /// Calls whose outputs differ from the first one's.
    pub differing: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<Differs>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<Changed>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overruns: Vec<CopyOverrun>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Stop>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub printed: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub last: bool,
}

impl SteadyHead {
    /// Whether every call left the same bits.
    pub fn identical(&self) -> bool {
        self.differing == 0
    }
}

/// The first call that left other bits than call 0.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Differs {
    /// Counted from 0.
    pub launch: u64,
    pub buffer: String,
    /// The first byte that differs, rounded down to a multiple of 4.
    pub offset: u64,
    /// How many bytes differ.
    pub bytes: u64,
    /// Up to 16 bytes from there, in hexadecimal.
    pub got: String,
    pub want: String,
}

/// Asks for the device, for oneself alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// How long it waits for the others.
    pub wait_seconds: u64,
    pub seconds: u64,
}

/// What came of [`Hold`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HoldHead {
    pub held: bool,
    /// Who has it: the number of a process on the worker's machine, where it says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<u32>,
    /// Seconds that it waited.
    pub waited: f64,
}
