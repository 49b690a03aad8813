//! What the worker needs of a device. One implementation drives CUDA, one is made of ordinary memory.
//!
//! Code, launches and graphs are numbers here that their device gave out. What is asked of a device for timing is given to one stream, in
//! order; what has a result waits for it.

use super::protocol::Reading;
use crate::device::DeviceInfo;
use crate::error::CudaError;
use crate::module::Geometry;
use crate::tensor_map::TensorMapSpec;
use std::path::PathBuf;

/// A value for a parameter.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Address(u64),
    Bytes(Vec<u8>),
    /// A descriptor of the tensor at this address, by value.
    TensorMap {
        spec: TensorMapSpec,
        address: u64,
    },
}

/// One launch with its addresses known.
#[derive(Debug, Clone, PartialEq)]
pub struct LaunchValues {
    pub entry: String,
    pub geometry: Geometry,
    pub args: Vec<Value>,
}

/// Loaded code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Code(pub u32);

/// A launch of loaded code whose entry was looked up and whose arguments were encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ready {
    pub code: Code,
    pub index: u32,
}

/// A graph of such launches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Recorded {
    pub code: Code,
    pub index: u32,
}

/// Something to be done to memory between launches. Buffers begin at multiples of 256.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Move {
    Copy {
        from: u64,
        to: u64,
        bytes: u64,
    },
    /// [`pattern`] of this seed.
    Pattern {
        to: u64,
        bytes: u64,
        seed: u64,
    },
    Zero {
        to: u64,
        bytes: u64,
    },
}

/// Something to be looked at after launches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Check {
    /// Is it what is there?
    Equal { at: u64, with: u64, bytes: u64 },
    /// Does it still hold the pattern of this seed?
    Pattern { at: u64, bytes: u64, seed: u64 },
}

/// Where a check finds a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// Offset of the first byte that differs.
    pub first: u64,
    pub last: u64,
    pub count: u64,
}

/// How far a launch has come, as the device itself has left word of it, a fault notwithstanding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    pub begun: bool,
    pub ended: bool,
}

/// A launch that failed, by its place in its call.
#[derive(Debug)]
pub struct Failed {
    pub launch: usize,
    pub error: CudaError,
}

/// Memory, loaded code, launches, times. Whoever uses it keeps to the memory that it was given.
pub trait Device {
    fn info(&self) -> DeviceInfo;

    /// The file whose lock stands for the device; none: nobody else can have it.
    fn lock_file(&self) -> Option<PathBuf>;

    /// Loads a cubin or PTX, with fresh variables.
    fn load(&mut self, image: &[u8]) -> Result<Code, CudaError>;

    /// Forgets code, and the launches and graphs of it.
    fn unload(&mut self, code: Code);

    /// Memory with any contents, aligned to 256.
    fn alloc(&mut self, bytes: u64) -> Result<u64, CudaError>;

    /// Gives memory back. Its contents are overwritten first: nobody finds them there later.
    fn free(&mut self, addresses: &[u64]);

    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), CudaError>;

    fn fill(&mut self, address: u64, bytes: u64, value: u8) -> Result<(), CudaError>;

    fn read(&mut self, address: u64, bytes: &mut [u8]) -> Result<(), CudaError>;

    /// Launches and waits for the end.
    fn launch(&mut self, code: Code, launch: &LaunchValues) -> Result<(), CudaError>;

    /// Looks the entry up and encodes the arguments.
    fn ready(&mut self, code: Code, launch: &LaunchValues) -> Result<Ready, CudaError>;

    /// Records launches, at least one, all of one code, one after the other.
    fn record(&mut self, launches: &[Ready]) -> Result<Recorded, CudaError>;

    fn arrange(&mut self, moves: &[Move]) -> Result<(), CudaError>;

    /// Waits, and answers in the order of the checks.
    fn compare(&mut self, checks: &[Check]) -> Result<Vec<Option<Found>>, CudaError>;

    /// Has all of L2 hold something else.
    fn flush(&mut self) -> Result<(), CudaError>;

    /// Has no line of L2 stay longer than the others.
    fn forget_persisting(&mut self) -> Result<(), CudaError>;

    /// Replays a graph and waits: microseconds on the device; the state of the device while it ran, if that is asked for.
    fn replay(&mut self, graph: Recorded, observe: bool) -> Result<(f64, Option<Reading>), CudaError>;

    /// Launches between two events, and waits: microseconds between them.
    fn event(&mut self, launches: &[Ready]) -> Result<f64, CudaError>;

    /// Waits for what was asked before, launches, waits for the end: microseconds of the host.
    fn eager(&mut self, launches: &[Ready]) -> Result<f64, CudaError>;

    /// Makes one call, waiting for each of its launches; on a stream made for it alone, if `fresh`.
    fn single(&mut self, call: &[Ready], fresh: bool) -> Result<(), Failed>;

    /// Makes calls on several streams, turn by turn, and waits for all.
    fn volley(&mut self, calls: &[&[Ready]]) -> Result<(), CudaError>;

    /// From now on, whether launches between events, on behalf of the host, or in graphs that are recorded leave word of their beginning and
    /// end; that takes longer than they do. A volley always does.
    fn mark(&mut self, on: bool);

    /// How far each launch of the last replay or volley came, in the order in which they were given; empty where no word was left.
    fn progress(&self) -> Vec<Progress>;

    /// What the device says of its clocks, power and heat; nothing where nobody can tell.
    fn reading(&mut self) -> Option<Reading>;

    /// Names for profilers: everything until [`Device::end_range`] belongs to it.
    fn begin_range(&mut self, _name: &str) {}

    fn end_range(&mut self) {}
}

/// Eight bytes of a pattern: those of the addresses from 8 x `index` on. Each byte has its second bit set and its highest clear, so that
/// 0, 1 and 255, which are written most, never are part of it. `support.cu` has the same.
pub fn pattern(seed: u64, index: u64) -> [u8; 8] {
    let x = seed.wrapping_add(index.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((x ^ x >> 31) & 0x7f7f_7f7f_7f7f_7f7f | 0x0202_0202_0202_0202).to_le_bytes()
}

/// What a pattern has in a range of addresses.
pub fn pattern_of(seed: u64, at: u64, bytes: u64) -> Vec<u8> {
    let mut found = Vec::with_capacity(bytes as usize + 16);
    for index in at / 8..(at + bytes).div_ceil(8) {
        found.extend(pattern(seed, index));
    }
    found.drain(..(at % 8) as usize);
    found.truncate(bytes as usize);
    found
}
