//! A warp: its registers, local memory, call frames and groups of lanes that run together.
//!
//! Lanes that are at one program counter in one call frame form a group. The group that is deepest in calls, then lowest in
//! the code, runs first: NVVM lays blocks out so that this brings lanes together again after a branch. A group that goes
//! round and round while others could run steps back behind them, so that a lane may wait for another of its warp.

use std::cell::Cell;
use std::sync::Arc;

use crate::code::Pc;
use crate::cta::POLLS;
use crate::global::Released;
use crate::local::Local;
use crate::registers::Registers;

/// Whether a group can run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Ready,
    /// At an instruction that needs lanes which are not there yet.
    Parked,
    /// Arrived at the barrier of this number.
    Barrier(u8),
}

/// Lanes that run together.
#[derive(Debug, Clone, Copy)]
pub struct Group {
    pub pc: Pc,
    pub mask: u32,
    pub frame: u32,
    pub state: State,
    /// How often it stepped back.
    pub penalty: u32,
}

/// A function's activation.
#[derive(Debug, Clone, Copy)]
pub struct Frame {
    pub function: usize,
    /// The caller's frame and the call; none for the entry.
    pub parent: Option<(u32, Pc)>,
    /// Where its window of registers starts.
    pub base: usize,
    pub local_base: u32,
    /// Where its local memory ends.
    pub local_end: u32,
    pub depth: u32,
}

/// Why a warp stopped running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pause {
    /// All lanes have exited.
    Exited,
    /// Waits for a barrier.
    Blocked,
    /// Could go on: its turn is over.
    Turn,
    /// Its lanes wait for each other at different places.
    Stuck,
    /// A fault was recorded.
    Fault,
}

/// One warp.
#[derive(Debug)]
pub struct Warp {
    pub index: usize,
    pub regs: Registers,
    pub local: Local,
    pub frames: Vec<Frame>,
    pub groups: Vec<Group>,
    /// Lanes that exist and have not exited.
    pub live: u32,
    /// What this warp knows of each warp's intervals; see `shared`.
    pub clock: Vec<u32>,
    /// What of it is covered by fences of GPU scope: strong writes release it. Empty before the first.
    pub fenced: Vec<u32>,
    /// Whether it has made a strong store of global memory.
    pub told: std::cell::Cell<bool>,
    /// Addresses of relaxed loads since its last fence, and what had been released there.
    pub seen: Vec<(u64, Arc<Released>)>,
    /// Its latest plain loads, in kernels whose atomic operations may check what they gave.
    pub loads: Vec<crate::exec::GuessedLoad>,
    /// Nothing has been released since its last fence of GPU scope.
    pub fresh_fence: Cell<bool>,
    /// A plain write of global memory since this warp's own last fence.
    pub plain_since_fence: Cell<bool>,
    /// Lanes that ran on behind a barrier at which others of this warp wait.
    pub passed: u32,
    /// Committed copy groups by lane.
    pub committed: [u32; 32],
    /// Why it does not run now.
    pub pause: Pause,
    /// Its turn ended with a wait that failed, or it may be polling.
    pub yielded: bool,
    /// Strong loads, atomics and sleeps in this turn.
    pub polls: u32,
    /// The frame that runs.
    pub frame: usize,
}

impl Warp {
    /// A warp with no lanes.
    pub fn new(index: usize) -> Warp {
        Warp {
            index,
            regs: Registers::new(),
            local: Local::default(),
            frames: Vec::new(),
            groups: Vec::new(),
            live: 0,
            clock: Vec::new(),
            fenced: Vec::new(),
            seen: Vec::new(),
            loads: Vec::new(),
            told: std::cell::Cell::new(false),
            fresh_fence: Cell::new(false),
            plain_since_fence: Cell::new(false),
            passed: 0,
            committed: [0; 32],
            pause: Pause::Turn,
            yielded: false,
            polls: 0,
            frame: 0,
        }
    }

    /// The local memory offset of the running frame.
    pub fn local_base(&self) -> u32 {
        self.frames[self.frame].local_base
    }

    /// One more strong load, atomic or sleep: after enough of them the turn is over.
    pub fn poll(&mut self) {
        self.polls += 1;
        self.yielded |= self.polls >= POLLS;
    }

    /// Joins groups that have come to one place and picks the one to run.
    pub fn schedule(&mut self) -> Option<usize> {
        if self.groups.len() == 1 {
            return (self.groups[0].state == State::Ready).then_some(0);
        }
        self.groups.retain(|g| g.mask != 0);
        let mut n = 0;
        while n < self.groups.len() {
            let mut k = n + 1;
            while k < self.groups.len() {
                let (a, b) = (self.groups[n], self.groups[k]);
                let waiting = |g: &Group| matches!(g.state, State::Barrier(_));
                if a.pc == b.pc && a.frame == b.frame && !waiting(&a) && !waiting(&b) {
                    self.groups[n] =
                        Group { mask: a.mask | b.mask, state: State::Ready, penalty: a.penalty.min(b.penalty), ..a };
                    self.groups.swap_remove(k);
                } else {
                    k += 1;
                }
            }
            n += 1;
        }
        let depth = |g: &Group| self.frames[g.frame as usize].depth;
        let ready = self.groups.iter().enumerate().filter(|(_, g)| g.state == State::Ready);
        ready.min_by_key(|(_, g)| (g.penalty, std::cmp::Reverse(depth(g)), g.pc)).map(|(n, _)| n)
    }

    /// The program counter at which the running group has caught up with another.
    pub fn stop_for(&self, running: usize) -> Pc {
        let g = self.groups[running];
        let others = self.groups.iter().enumerate().filter(|(n, o)| *n != running && o.frame == g.frame && o.pc > g.pc);
        others.filter(|(_, o)| !matches!(o.state, State::Barrier(_))).map(|(_, o)| o.pc).min().unwrap_or(Pc::MAX)
    }

    /// Lanes have exited or arrived: those that wait for lanes may look again.
    pub fn wake_parked(&mut self) {
        for g in &mut self.groups {
            if g.state == State::Parked {
                g.state = State::Ready;
            }
        }
    }

    /// Whether a group is in a frame, or will come back to it.
    fn uses(&self, n: usize) -> bool {
        self.groups.iter().any(|g| {
            let mut at = Some(g.frame);
            while let Some(f) = at {
                if f as usize == n {
                    return true;
                }
                at = self.frames[f as usize].parent.map(|p| p.0);
            }
            false
        })
    }

    /// The frame of a function for lanes that call it, if there is one already: that of other lanes which made the same call, so that
    /// they can meet there as they would in code that is written out in its place; else one that nobody is in any more.
    pub fn open_frame(&mut self, function: usize, caller: (u32, Pc)) -> Option<u32> {
        if self.groups.len() == 1 {
            return None;
        }
        let of = |f: &Frame| f.function == function;
        if let Some(n) = self.frames.iter().position(|f| of(f) && f.parent == Some(caller)) {
            return Some(n as u32);
        }
        let n = (1..self.frames.len()).find(|n| of(&self.frames[*n]) && !self.uses(*n))?;
        let depth = self.frames[caller.0 as usize].depth + 1;
        self.frames[n] = Frame { parent: Some(caller), depth, ..self.frames[n] };
        Some(n as u32)
    }

    /// Drops frames that no group is in any more.
    pub fn drop_frames(&mut self) {
        while self.frames.len() > 1 && !self.uses(self.frames.len() - 1) {
            if let Some(f) = self.frames.pop() {
                self.regs.truncate(f.base);
                // The gap before it goes too.
                self.local.resize(self.frames.last().map_or(0, |f| f.local_end));
            }
        }
    }
}
