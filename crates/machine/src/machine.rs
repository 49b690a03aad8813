//! What all CTAs of a launch share: code, buffers, dimensions, resolved constants, limits.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::api::{Launch, Options, Place};
use crate::code::{Code, RowId, Special};
use crate::global::GlobalShadow;
use crate::memory::Buffer;

/// A row's contents at the start of a frame, with addresses resolved for this launch.
#[derive(Debug, Clone, Copy)]
pub enum Fill {
    Word(u32),
    Wide(u64),
    Special(Special),
    Local { offset: i64, wide: bool },
}

/// Shared memory that the system keeps for itself in each CTA, from compute capability 8.0 on (CUDA C++ Programming Guide; an H200 says so too).
const RESERVED_SHARED: u32 = 1024;

/// A named range of shared memory.
#[derive(Debug, Clone)]
pub struct SharedRange {
    pub name: String,
    pub offset: u32,
    pub bytes: u32,
}

/// A launch that is about to run.
#[derive(Debug)]
pub struct Machine<'a> {
    pub code: &'a Code,
    pub buffers: &'a [Buffer],
    pub launch: &'a Launch,
    pub options: &'a Options,
    pub entry: usize,
    /// By function.
    pub fills: Vec<Vec<(RowId, Fill)>>,
    pub shared: Vec<SharedRange>,
    /// Static and dynamic.
    pub shared_bytes: u32,
    /// The same without what lies between variables: what the kernel is told.
    pub shared_said: u32,
    /// Start and end of what lies between variables of shared memory and belongs to none.
    pub guards: Vec<(u32, u32)>,
    pub warps: usize,
    pub ctas: u64,
    pub threads: u32,
    /// Instructions that may still be executed.
    pub budget: AtomicU64,
    /// CTAs from this number on need not run any more.
    pub stop_at: AtomicU64,
    pub grid_id: u32,
    /// Address of what a cooperative launch offers, else 0.
    pub grid_workspace: u64,
    /// Where cooperative groups keep their barriers in shared memory.
    pub reserved_shared: u32,
    /// Counts whatever may let a polling CTA go on.
    pub progress: AtomicU64,
    /// For each host thread: the `progress` since which all of its CTAs polled in vain.
    pub vain_at: Vec<AtomicU64>,
    pub global: GlobalShadow,
    /// Whether loads are remembered that atomic operations may check.
    pub guesses: bool,
}

impl Machine<'_> {
    /// Takes up to `n` instructions out of the budget.
    pub fn take_budget(&self, n: u64) -> u64 {
        let mut taken = 0;
        let _ = self.budget.fetch_update(Relaxed, Relaxed, |left| {
            taken = left.min(n);
            Some(left - taken)
        });
        taken
    }

    /// Gives back what was not used.
    pub fn return_budget(&self, n: u64) {
        self.budget.fetch_add(n, Relaxed);
    }

    /// A CTA's coordinates.
    pub fn cta_index(&self, linear: u64) -> [u32; 3] {
        let (x, y) = (u64::from(self.launch.grid[0]), u64::from(self.launch.grid[1]));
        [(linear % x) as u32, (linear / x % y) as u32, (linear / x / y) as u32]
    }

    /// A place in shared memory by name.
    pub fn shared_place(&self, at: i64, bytes: u32) -> Place {
        let after = self.shared.partition_point(|s| i64::from(s.offset) <= at);
        let (before, next) = (after.checked_sub(1).and_then(|n| self.shared.get(n)), self.shared.get(after));
        // Between two variables it is the nearer one that was left.
        let beyond = |s: &SharedRange| at - i64::from(s.offset) - i64::from(s.bytes);
        let near = match (before, next) {
            (Some(b), Some(n)) if beyond(b) > i64::from(n.offset) - at => Some(n),
            (b, n) => b.or(n),
        };
        match near {
            Some(s) => Place {
                space: "shared",
                object: Some(s.name.clone()),
                offset: at - i64::from(s.offset),
                bytes,
                object_bytes: s.bytes.into(),
            },
            None => Place { space: "shared", object: None, offset: at, bytes, object_bytes: self.shared_bytes.into() },
        }
    }

    /// A place in a global buffer by name.
    pub fn global_place(&self, slot: usize, offset: i64, bytes: u32) -> Option<Place> {
        let b = self.buffers.get(slot)?;
        Some(Place { space: b.space, object: Some(b.name.clone()), offset, bytes, object_bytes: b.bytes })
    }

    /// The value of a special register for a lane of a warp of a CTA.
    pub fn special(&self, which: Special, cta: [u32; 3], warp: u32, lane: u32) -> u32 {
        let block = self.launch.block;
        let thread = warp * 32 + lane;
        match which {
            Special::Tid(0) => thread % block[0],
            Special::Tid(1) => thread / block[0] % block[1],
            Special::Tid(_) => thread / block[0] / block[1],
            Special::Ntid(n) => block[n as usize % 3],
            Special::Ctaid(n) | Special::ClusterId(n) => cta[n as usize % 3],
            Special::Nctaid(n) | Special::NclusterId(n) => self.launch.grid[n as usize % 3],
            Special::LaneId => lane,
            Special::WarpId => warp,
            Special::NwarpId => self.warps as u32,
            Special::LaneMaskEq => 1 << lane,
            Special::LaneMaskLe => (2u64 << lane).wrapping_sub(1) as u32,
            Special::LaneMaskLt => (1 << lane) - 1,
            Special::LaneMaskGe => u32::MAX << lane,
            Special::LaneMaskGt => ((u64::from(u32::MAX) << lane) << 1) as u32,
            // One streaming multiprocessor, number 0: no kernel may rely on more.
            Special::SmId | Special::ClusterZero => 0,
            Special::NsmId | Special::ClusterOne => 1,
            Special::GridId => self.grid_id,
            Special::DynamicShared => self.launch.shared_bytes,
            Special::TotalShared => self.shared_said,
            Special::AggregateShared => self.shared_said + RESERVED_SHARED,
            Special::GridWorkspace(1) => (self.grid_workspace >> 32) as u32,
            Special::GridWorkspace(_) => self.grid_workspace as u32,
            Special::ReservedShared => self.reserved_shared,
        }
    }
}
