//! The messages between an evaluation and the process that holds the device. Pure data; `docs/worker-protocol.md` describes them.

mod timing;

pub use timing::*;

use crate::device::DeviceInfo;
use crate::error::FaultKind;
use crate::tensor_map::TensorMapSpec;
use serde::{Deserialize, Serialize};

/// Both sides have to speak the same one.
pub const PROTOCOL: u32 = 2;
/// Bytes of a line at most.
pub const MAX_LINE: usize = 4 << 20;
/// Bytes of the blobs of one message at most.
pub const MAX_BLOB_BYTES: u64 = 64 << 30;
/// Bytes of a kernel's output that are kept.
pub const MAX_PRINTED: usize = 64 << 10;
/// Places of each kind that a reply lists at most; counts go on.
pub const MAX_PLACES: usize = 256;

/// A message with its number and the blobs that follow its line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Message<T> {
    /// A reply has its request's.
    pub id: u64,
    #[serde(flatten)]
    pub body: T,
    /// Raw bytes that follow the line, in this order, with nothing between them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blobs: Vec<BlobHead>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlobHead {
    pub sha256: String,
    pub bytes: u64,
}

/// What the worker is asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Request {
    /// The first message; opens the device.
    Hello {
        protocol: u32,
        device: u32,
    },
    Run(Run),
    Prepare(Prepare),
    Time(Time),
    Steady(Steady),
    /// Forgets a subject and gives its memory back; one that is not there is no error.
    Discard {
        subject: String,
    },
    Hold(Hold),
    /// Gives up what [`Hold`] got.
    Release,
}

/// Launches in order on buffers of their own, all made anew.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// SHA-256 of the cubin or PTX.
    pub image: String,
    pub buffers: Vec<Buffer>,
    pub launches: Vec<Launch>,
    /// Buffers whose contents afterwards are wanted.
    pub want: Vec<String>,
    /// Bytes that poisoned buffers are filled with: the launches are done once for each. Two that differ tell what was never written.
    pub poisons: Vec<u8>,
    /// After so many the worker ends itself; the parent's own deadline comes first.
    pub seconds: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Buffer {
    pub name: String,
    pub bytes: u64,
    pub fill: Fill,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fill {
    /// The blob of this SHA-256, as long as the buffer.
    Contents(String),
    Zero,
    Poison,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Launch {
    pub entry: String,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub cluster: [u32; 3],
    /// All blocks at once, so that the grid can wait for itself.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cooperative: bool,
    pub shared_bytes: u32,
    pub args: Vec<Arg>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Arg {
    /// The address of a buffer.
    Buffer(String),
    /// Little-endian bytes in hexadecimal.
    Bytes(String),
    TensorMap {
        buffer: String,
        map: Box<TensorMapSpec>,
    },
    /// A struct by value: its bytes in hexadecimal, and addresses of buffers that go into it, 8 bytes each, by their offsets.
    Struct {
        bytes: String,
        buffers: Vec<(u64, String)>,
    },
}

impl Arg {
    /// The buffers that it names.
    pub(crate) fn buffers(&self) -> Vec<&String> {
        match self {
            Arg::Buffer(name) | Arg::TensorMap { buffer: name, .. } => vec![name],
            Arg::Bytes(_) => Vec::new(),
            Arg::Struct { buffers, .. } => buffers.iter().map(|(_, name)| name).collect(),
        }
    }
}

/// What the worker answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case")]
pub enum Reply {
    Hello {
        protocol: u32,
        /// Warpsmith's version.
        version: String,
        device: DeviceInfo,
    },
    Ran(RanHead),
    Prepared(Prepared),
    Timed(Box<TimedHead>),
    Steady(Box<SteadyHead>),
    Held(HoldHead),
    /// What was asked for is done, and there is nothing to say about it.
    Done,
    /// Blobs that the worker does not have, or no longer; the request was not carried out.
    Missing {
        sha256: Vec<String>,
    },
    /// The request was not carried out, and why: a failure of the environment, or of the one who asks.
    Error {
        code: String,
        message: String,
    },
}

/// What came of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RanHead {
    pub end: End,
    /// In the order of [`Run::want`]; empty unless it completed.
    pub outputs: Vec<Output>,
    /// Buffers whose red zones were written to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overruns: Vec<Overrun>,
    /// Outputs that follow from bytes that the launches were not given: poisoned ones, or ones outside of buffers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub undefined: Vec<Difference>,
    /// What the kernels printed, at most 64 KiB.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub printed: String,
    /// The worker ends after this reply: its context is lost.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub last: bool,
}

/// How the launches ended. The numbers are the launch's place in [`Run::launches`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    Completed,
    Faulted {
        launch: usize,
        kind: FaultKind,
        code: i32,
        name: String,
    },
    /// The driver, or the check before it, does not take the launch.
    Rejected {
        launch: usize,
        what: String,
    },
    MissingEntry {
        launch: usize,
    },
    /// The code is not for this device.
    Unsupported {
        what: String,
    },
    OutOfMemory {
        what: String,
    },
}

/// A wanted buffer's contents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Output {
    pub name: String,
    /// Of its contents after the launches; they follow as a blob unless they are what it was filled with.
    pub sha256: String,
    /// Ranges of poisoned bytes that were never written, as [first, count]; at most [`MAX_PLACES`], the last one then reaching to the end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unwritten: Vec<[u64; 2]>,
}

/// Writes outside of a buffer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overrun {
    pub buffer: String,
    /// Of the byte nearest to the buffer, from its start: negative before it, its size or more behind it.
    pub offset: i64,
    /// Changed bytes on that side.
    pub bytes: u64,
}

/// Where an output differs between two contents of what it may not depend on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    pub buffer: String,
    /// The first differing byte.
    pub offset: u64,
    pub bytes: u64,
}
