//! What the machine offers: load PTX, put buffers into its memory, launch a grid, read findings and buffers back.
//! It knows PTX only: no tasks, no tolerances, no candidates. It has no clock.

use std::collections::BTreeMap;

pub use warpsmith_num::tensor_core::Numerics;

/// A global-memory allocation of exactly its bytes, with red zones around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BufferId(pub u32);

/// A kernel argument.
#[derive(Debug, Clone, PartialEq)]
pub enum Arg {
    /// A 64-bit global pointer to the buffer's first byte.
    Buffer(BufferId),
    /// Scalar or struct by value, little endian, of exactly the parameter's size.
    Bytes(Vec<u8>),
}

/// One grid. Dimensions x, y, z.
#[derive(Debug, Clone)]
pub struct Launch {
    pub entry: String,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub cluster: [u32; 3],
    /// Dynamic shared memory in bytes.
    pub shared_bytes: u32,
    pub args: Vec<Arg>,
}

/// How a launch runs.
#[derive(Debug, Clone)]
pub struct Options {
    pub numerics: Numerics,
    /// Warp-instructions of the whole grid; reaching it ends the launch as [`End::LimitReached`].
    pub max_instructions: u64,
    /// Seed of the schedule: the order of warps within a CTA, and in which CTAs are started. 0 and 1 start CTAs in order, odd
    /// seeds backwards, others in steps through the grid; 0 also keeps warps in order.
    pub schedule_seed: u64,
    /// Late: asynchronous copies land at the last legal moment; early: at issue.
    pub async_copies: AsyncCopies,
    /// Shared memory limit of a CTA in bytes (static + dynamic), from the target.
    pub max_shared_bytes: u32,
    /// Host threads; 0: one for each core.
    pub threads: usize,
    /// Counts what accesses cost the memory system ([`LineCounters::traffic`]); takes up to twice the time.
    pub count_traffic: bool,
    /// Off only to measure what they cost.
    pub detectors: Detectors,
    /// Further schedules that [`crate::explore`] runs; a single [`crate::launch`] runs one.
    pub schedules: u32,
    /// A cooperative launch: its CTAs may wait for all others (`grid.sync()`), which traps in any other launch.
    pub cooperative: bool,
}

impl Default for Options {
    /// Fast numerics, ten million warp instructions, a CTA's shared memory as on sm_89, one schedule.
    fn default() -> Options {
        Options {
            numerics: Numerics::Fast,
            max_instructions: 10_000_000,
            schedule_seed: 0,
            async_copies: AsyncCopies::Late,
            max_shared_bytes: 99 << 10,
            threads: 0,
            count_traffic: false,
            detectors: Detectors::On,
            schedules: 0,
            cooperative: false,
        }
    }
}

/// Whether accesses to shared and global memory are checked for races, undefined bytes and copies in flight. Bounds, alignment,
/// barriers and undefined registers are looked at in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detectors {
    On,
    Off,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AsyncCopies {
    Early,
    Late,
}

/// What a finding is about. The words are those of the record's `kind`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FindingKind {
    UninitializedRead,
    OutOfBounds,
    MisalignedAccess,
    SharedRace,
    GlobalRace,
    /// A read of, or write to, bytes that a cp.async still has in flight.
    AsyncInFlight,
    BarrierDivergence,
    Deadlock,
    Trap,
    /// An `.aligned` instruction that part of a warp executes.
    DivergentAligned,
    /// A shuffle from, or a warp-synchronous instruction by, a lane outside the member mask.
    InactiveLane,
    /// A write to constant or parameter memory, a call through a bad pointer, an unsupported address space.
    InvalidAccess,
    /// `assert` failed in the kernel.
    AssertFailed,
    /// Memory differs after two legal orders of warps, CTAs and asynchronous copies.
    ScheduleDependent,
}

impl FindingKind {
    pub const ALL: [FindingKind; 14] = [
        FindingKind::UninitializedRead,
        FindingKind::OutOfBounds,
        FindingKind::MisalignedAccess,
        FindingKind::SharedRace,
        FindingKind::GlobalRace,
        FindingKind::AsyncInFlight,
        FindingKind::BarrierDivergence,
        FindingKind::Deadlock,
        FindingKind::Trap,
        FindingKind::DivergentAligned,
        FindingKind::InactiveLane,
        FindingKind::InvalidAccess,
        FindingKind::AssertFailed,
        FindingKind::ScheduleDependent,
    ];

    /// The word in records and in `// fault: KIND` marks.
    pub fn word(self) -> &'static str {
        match self {
            FindingKind::UninitializedRead => "uninitialized_read",
            FindingKind::OutOfBounds => "out_of_bounds",
            FindingKind::MisalignedAccess => "misaligned_access",
            FindingKind::SharedRace => "shared_race",
            FindingKind::GlobalRace => "global_race",
            FindingKind::AsyncInFlight => "async_in_flight",
            FindingKind::BarrierDivergence => "barrier_divergence",
            FindingKind::Deadlock => "deadlock",
            FindingKind::Trap => "trap",
            FindingKind::DivergentAligned => "divergent_aligned",
            FindingKind::InactiveLane => "inactive_lane",
            FindingKind::InvalidAccess => "invalid_access",
            FindingKind::AssertFailed => "assert_failed",
            FindingKind::ScheduleDependent => "schedule_dependent",
        }
    }
}

/// A place in the kernel: the CUDA line where `.loc` gives one, the PTX line always.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Site {
    /// As `.file` names it; None without line information.
    pub file: Option<String>,
    pub line: Option<u32>,
    pub ptx_line: u32,
    /// The opcode as written.
    pub opcode: String,
}

/// A place in memory, as people name it.
#[derive(Debug, Clone, PartialEq)]
pub struct Place {
    /// `global`, `shared`, `local`, `const`, `param`, `register`
    pub space: &'static str,
    /// The buffer's name as given to [`crate::Memory::alloc`], the variable's or the register's.
    pub object: Option<String>,
    /// Byte offset inside the object; negative or past its end for out-of-bounds.
    pub offset: i64,
    /// Bytes of the access.
    pub bytes: u32,
    /// Bytes of the object.
    pub object_bytes: u64,
}

/// Whether a finding is a defect, or something that people should know of and that changes no verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Severity {
    Error,
    Note,
}

/// One defect, deduplicated by (kind, severity, site, other site); `count` says how often it was met.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    pub kind: FindingKind,
    pub severity: Severity,
    /// One sentence: what happened, with names and numbers.
    pub message: String,
    /// Where. For an uninitialised read: where the undefined value was read, not where it did harm. For a race through global
    /// memory: the write.
    pub site: Site,
    /// The other side: the conflicting access of a race, the use of an undefined value, who is waited for.
    pub other: Option<Site>,
    pub entry: String,
    pub cta: [u32; 3],
    pub warp: u32,
    pub lane: Option<u32>,
    pub place: Option<Place>,
    pub count: u64,
}

/// How a launch ended. A program's misbehaviour is data; only a broken machine is an error.
#[derive(Debug, Clone, PartialEq)]
pub enum End {
    Completed,
    /// Stopped by an error that leaves nothing to go on with (trap, out of bounds, deadlock ...): see the findings.
    Faulted,
    /// `what` is `instructions`.
    LimitReached {
        what: &'static str,
        limit: u64,
    },
    /// An opcode, operand form or resource that the machine does not have.
    Unsupported {
        what: String,
        site: Option<Site>,
    },
    /// The launch itself is impossible: no such entry, a grid of zero, a block over 1024 threads, too much shared
    /// memory, arguments that do not fit the parameters.
    InvalidLaunch {
        what: String,
    },
}

/// What accesses cost the memory system. Ratios of 1 are best.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Warp-level accesses of shared memory, the wavefronts that they take, and how few these could be without bank conflicts.
    pub shared_requests: u64,
    pub shared_wavefronts: u64,
    pub shared_ideal: u64,
    /// Warp-level accesses of global memory, the sectors of 32 bytes that they touch, and how few could hold their bytes.
    pub global_requests: u64,
    pub global_sectors: u64,
    pub global_ideal: u64,
}

impl Traffic {
    /// Sums up.
    pub fn add(&mut self, t: &Traffic) {
        self.shared_requests += t.shared_requests;
        self.shared_wavefronts += t.shared_wavefronts;
        self.shared_ideal += t.shared_ideal;
        self.global_requests += t.global_requests;
        self.global_sectors += t.global_sectors;
        self.global_ideal += t.global_ideal;
    }

    /// Wavefronts that bank conflicts cost.
    pub fn bank_conflicts(&self) -> u64 {
        self.shared_wavefronts - self.shared_ideal.min(self.shared_wavefronts)
    }
}

/// What one source line did.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LineCounters {
    /// As `.file` names it; None for instructions without line information.
    pub file: Option<String>,
    pub line: Option<u32>,
    pub warp_instructions: u64,
    pub tensor_ops: u64,
    /// All zero unless [`Options::count_traffic`].
    pub traffic: Traffic,
}

/// What the instructions of one chain of call sites did.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PlaceCounters {
    /// File as `.file` names it, and line: the innermost place first, then where it was inlined. Empty without line information.
    pub chain: Vec<(String, u32)>,
    pub warp_instructions: u64,
    pub tensor_ops: u64,
    /// All zero unless [`Options::count_traffic`].
    pub traffic: Traffic,
}

/// How true to hardware the instructions were that ran, as warp-instructions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fidelity {
    /// Bit for bit what PTX defines.
    pub exact: u64,
    /// Functions that hardware approximates in its own way, within the documented error: `ex2.approx` and its like.
    pub approximate: u64,
    /// Tensor-core sums by the named model; plain f32 sums with fast numerics.
    pub modelled: u64,
    /// Opcodes of the module's other functions that the machine does not have; one that a launch reaches ends it.
    pub unsupported: Vec<String>,
}

/// Families of instructions, for [`Counters::by_class`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum InstructionClass {
    Integer,
    Float,
    Conversion,
    Memory,
    Control,
    /// Shuffles, votes, barriers.
    Synchronisation,
    Tensor,
}

/// What was executed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Counters {
    pub warp_instructions: u64,
    /// Warp-instructions of the CTA that executed most: how unequal the CTAs' work is, beside the mean.
    pub busiest_cta: u64,
    pub lane_instructions: u64,
    /// By tensor-core mnemonic (`mma`, `wmma.mma`): warp-level operations.
    pub tensor_ops: u64,
    /// Atomics on floating-point numbers in global memory: the order of their sums is chance.
    pub float_atomics: u64,
    /// Static instructions of the entry, and how many of them executed at least once.
    pub static_instructions: u64,
    pub covered_instructions: u64,
    /// Warp-instructions by mnemonic.
    pub by_mnemonic: BTreeMap<String, u64>,
    /// Warp-instructions by opcode as written, modifiers included.
    pub by_opcode: BTreeMap<String, u64>,
    pub by_class: BTreeMap<InstructionClass, u64>,
    /// By source line, the most executed first.
    pub lines: Vec<LineCounters>,
    /// By chain of call sites, so that inlined code can be told by who called it. Only with [`Options::count_traffic`].
    pub places: Vec<PlaceCounters>,
    /// All lines together; all zero unless [`Options::count_traffic`].
    pub traffic: Traffic,
    /// Warp-instructions that only part of a warp's living lanes executed, and branches at which lanes parted.
    pub divergent_instructions: u64,
    pub divergent_branches: u64,
    pub fidelity: Fidelity,
    /// Opcodes that ran with an approximation of the hardware's result.
    pub approximate: BTreeMap<String, u64>,
}

/// All that a launch leaves, besides the buffers' contents.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    pub end: End,
    pub findings: Vec<Finding>,
    pub counters: Counters,
    /// What the kernel printed, at most 64 KiB.
    pub printed: String,
}
