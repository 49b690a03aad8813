//! One CTA: its warps, shared memory and barriers; runs them in turns until all have exited, or something is wrong.
//!
//! Warps run one after the other, in an order drawn from the schedule's seed, each until it waits, its turn is over or it
//! exits. A CTA runs on one host thread; one whose warps only poll is put aside for others. When no warp can go on and not all have exited, what they wait for is reported.

use std::collections::HashMap;
use std::sync::atomic::Ordering::{self, Relaxed};

use crate::api::{Detectors, FindingKind, Place, Severity, Traffic};
use crate::code::{BarrierKind, BarrierOp, Op, Pc};
use crate::exec::{self, Flight};
use crate::findings::{Findings, RawFinding};
use crate::global::{Known, MAX_CTA, RecordSpace};
use crate::machine::{Fill, Machine};
use crate::memory::{DEFINED, IN_FLIGHT};
use crate::shared::Shared;
use crate::warp::{Frame, Group, Pause, State, Warp};

/// Warp-instructions of a turn.
const TURN: u64 = 20_000;
/// Bytes of printed text kept for each CTA.
pub const MAX_PRINTED: usize = 64 << 10;
/// Rounds in which every warp only waits, and nothing comes, after which it is a deadlock.
const IDLE_ROUNDS: u32 = 2000;
/// Rounds without an event after which a CTA that meets at barriers between its polls is put aside too.
const QUIET_ROUNDS: u32 = 64;
/// Distance between frames in local memory, so that an overrun of a frame's array is seen.
const LOCAL_GAP: u32 = 256;

/// Strong loads, atomics and sleeps of a warp after which its turn is over: it may be polling for somebody else.
pub const POLLS: u32 = 32;
/// How often an adversarial schedule puts a CTA aside, and after how many of its first atomics and strong accesses it may.
const MAX_PARKS: u32 = 4;
/// How often it does so after a CTA has published something.
const MAX_PUBLISHED: u32 = 64;
const MAX_CHANCES: u32 = 64;

/// How far a CTA has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// To its end, or to a fault.
    Done,
    /// It can go on, but only polls: others should run.
    Stalled,
    /// It can go on, but an adversarial schedule has others go first, for so many turns.
    Aside(u32),
}

/// Why a CTA cannot go on.
#[derive(Debug, Clone, PartialEq)]
pub enum Fault {
    /// A finding says why.
    Finding,
    Limit,
    Unsupported {
        what: String,
        pc: Pc,
    },
    /// Another CTA before this one has a fault.
    Superseded,
}

/// A barrier with arrivals.
#[derive(Debug, Clone, Default)]
struct Barrier {
    /// Threads expected; None: all of the CTA.
    expected: Option<u32>,
    first_pc: Option<Pc>,
    /// Threads that arrived, in warps of 32 for aligned barriers with a count.
    slots: u32,
    threads: u32,
    waiting: Vec<(usize, u32)>,
    clock: Vec<u32>,
    /// What fences of the arriving warps cover; empty without any.
    fenced: Vec<u32>,
    popc: u32,
    all: bool,
    any: bool,
}

/// A barrier that is complete: its waiters go on.
struct Release {
    id: u8,
    barrier: Barrier,
}

/// State of the CTA that runs; warps are beside it, so that both can be borrowed.
pub struct Cta<'m> {
    pub m: &'m Machine<'m>,
    pub index: [u32; 3],
    pub linear: u64,
    /// The how-manyth it was to be started.
    pub rank: u64,
    order: Vec<usize>,
    idle_rounds: u32,
    /// Likewise, but barriers that released somebody do not end them.
    quiet_rounds: u32,
    pub shared: Shared,
    pub findings: Findings,
    /// Executions by pc.
    pub counts: Vec<u64>,
    pub lane_instructions: u64,
    pub divergent_instructions: u64,
    pub divergent_branches: u64,
    /// By pc; empty unless it is counted.
    pub traffic: Vec<Traffic>,
    /// Whether accesses to shared and global memory are looked at.
    pub detects: bool,
    pub printed: String,
    pub fault: Option<Fault>,
    pub live_threads: u32,
    pub ticks: u64,
    /// What undefined bytes that were read are called, by the reading instruction.
    pub undefined_places: HashMap<Pc, Place>,
    /// Copies in flight of all warps, in the order of their issue.
    #[allow(clippy::vec_box, reason = "they move between two lists for each copy")]
    pub flights: Vec<Box<Flight>>,
    /// Flights that have landed: their memory serves again.
    #[allow(clippy::vec_box, reason = "as above")]
    pub landed: Vec<Box<Flight>>,
    /// What was released at an address by atomics and strong stores.
    pub sync_clocks: HashMap<u64, Vec<u32>>,
    /// Fences executed so far, of any scope.
    pub fences: u64,
    /// What strong reads of global memory have acquired.
    pub known: Vec<Known>,
    /// What was seen of writes that no fence parts from those before them.
    pub seen: Vec<Known>,
    /// Loads that were only guesses.
    pub guesses: exec::Guesses,
    /// An atomic or a strong access of global memory has been made since [`Cta::put_aside`] was asked.
    pub spoke: bool,
    /// What a fence of GPU scope covers has been released.
    pub published: bool,
    publishings: u32,
    /// It has waited for others: an adversarial schedule lets it look once, and others go first.
    waited: bool,
    turns: u32,
    peeks: bool,
    peeked: bool,
    parked: bool,
    parks: u32,
    chances: u32,
    /// The record of an instruction of a warp: of which interval, and its number; see `global`.
    marks: Vec<(u32, u32)>,
    records: RecordSpace,
    pub scratch: Box<exec::Scratch>,
    /// By shared address.
    pub mbarriers: HashMap<u32, exec::Mbarrier>,
    /// Arrivals at mbarriers, strong stores and atomics so far: whether anything happens while warps only wait.
    pub events: u64,
    /// Counts lanes' groups that a barrier let go on.
    released: u64,
    barriers: Vec<Barrier>,
    releases: Vec<Release>,
}

impl<'m> Cta<'m> {
    /// A context that runs CTAs one after the other; counts add up over them.
    pub fn new(m: &'m Machine<'m>) -> Cta<'m> {
        Cta {
            m,
            index: [0; 3],
            linear: 0,
            rank: 0,
            order: Vec::new(),
            idle_rounds: 0,
            quiet_rounds: 0,
            shared: Shared::default(),
            findings: Findings::default(),
            counts: vec![0; m.code.instrs.len()],
            lane_instructions: 0,
            divergent_instructions: 0,
            divergent_branches: 0,
            traffic: vec![Traffic::default(); if m.options.count_traffic { m.code.instrs.len() } else { 0 }],
            detects: m.options.detectors == Detectors::On,
            printed: String::new(),
            fault: None,
            live_threads: 0,
            ticks: 0,
            undefined_places: HashMap::new(),
            flights: Vec::new(),
            landed: Vec::new(),
            sync_clocks: HashMap::new(),
            fences: 0,
            known: Vec::new(),
            seen: Vec::new(),
            guesses: exec::Guesses::default(),
            spoke: false,
            published: false,
            publishings: 0,
            waited: false,
            turns: 0,
            peeks: false,
            peeked: false,
            parked: false,
            parks: 0,
            chances: 0,
            marks: Vec::new(),
            records: RecordSpace::default(),
            scratch: exec::Scratch::new(),
            mbarriers: HashMap::new(),
            events: 0,
            released: 0,
            barriers: Vec::new(),
            releases: Vec::new(),
        }
    }

    /// Begins with CTA number `linear`, the `rank`-th to be started.
    pub fn start(&mut self, rank: u64, linear: u64, warps: &mut Vec<Warp>) {
        self.rank = rank;
        self.begin(linear, warps);
        self.order = order(warps.len(), self.m.options.schedule_seed, linear);
        (self.idle_rounds, self.quiet_rounds) = (0, 0);
    }

    /// Runs until the CTA is done, or only polls.
    pub fn resume(&mut self, warps: &mut [Warp]) -> Progress {
        let order = std::mem::take(&mut self.order);
        self.turns = self.turns.wrapping_add(1);
        // Now and then it goes on at once, so that all of its warps come to their turn.
        self.peeks =
            std::mem::take(&mut self.waited) && self.m.options.schedule_seed > 1 && !self.turns.is_multiple_of(4);
        let progress = self.rounds(&order, warps);
        self.order = order;
        progress
    }

    fn rounds(&mut self, order: &[usize], warps: &mut [Warp]) -> Progress {
        let mut granted = 0;
        let mut stalled = false;
        let mut aside = false;
        loop {
            let mut ran = false;
            let (mut waiting, mut polls, events, released) = (true, 0, self.events, self.released);
            for &n in order {
                let w = &mut warps[n];
                if !matches!(w.pause, Pause::Turn) {
                    continue;
                }
                if self.m.stop_at.load(Relaxed) < self.rank {
                    self.fault = Some(Fault::Superseded);
                    break;
                }
                ran = true;
                if granted == 0 {
                    granted = self.m.take_budget(TURN);
                    if granted == 0 {
                        self.fault = Some(Fault::Limit);
                        break;
                    }
                }
                let mut left = granted;
                w.pause = exec::run_warp(self, w, &mut left);
                granted = left;
                waiting &= w.yielded || w.pause != Pause::Turn;
                polls = polls.max(w.polls);
                self.release(warps);
                if self.fault.is_some() || self.parked || self.peeked {
                    break;
                }
            }
            if self.fault.is_some() {
                break;
            }
            if std::mem::take(&mut self.peeked) {
                // It has looked once: others that wait for the same look too, before it goes on.
                stalled = true;
                self.waited = true;
                break;
            }
            if std::mem::take(&mut self.parked) {
                // What it has just stored is to be seen: whoever looked before looks again.
                self.m.progress.fetch_add(1, Ordering::Release);
                aside = true;
                break;
            }
            let quiet = waiting && events == self.events;
            self.quiet_rounds = if quiet { self.quiet_rounds.saturating_add(1) } else { 0 };
            let idle = quiet && released == self.released;
            self.idle_rounds = if idle { self.idle_rounds + 1 } else { 0 };
            if ran && quiet && (polls >= POLLS || polls > 0 && self.quiet_rounds > QUIET_ROUNDS) {
                // Whether it polls in vain is for the grid to say, not for the number of its turns.
                self.idle_rounds = 0;
                stalled = true;
                self.waited = true;
                break;
            }
            if !idle {
                self.m.progress.fetch_add(1, Ordering::Release);
            }
            if !ran || self.idle_rounds > IDLE_ROUNDS {
                if warps.iter().any(|w| w.pause != Pause::Exited) {
                    self.deadlock(warps, false);
                }
                break;
            }
        }
        self.m.return_budget(granted);
        match (aside, stalled) {
            (true, _) => Progress::Aside(self.parks.max(1)),
            (false, true) => Progress::Stalled,
            (false, false) => Progress::Done,
        }
    }

    /// An instruction that other CTAs may see has been executed. Adversarial schedules put the CTA aside after some of them, so that
    /// others come in between; returns whether this one does.
    pub fn put_aside(&mut self) -> bool {
        self.spoke = false;
        let seed = self.m.options.schedule_seed;
        let published = std::mem::take(&mut self.published);
        if std::mem::take(&mut self.peeks) {
            self.peeked = true;
            return true;
        }
        if published && seed > 1 && self.m.ctas > 1 && self.publishings < MAX_PUBLISHED {
            self.publishings += 1;
            self.parked = true;
            return true;
        }
        if seed <= 1 || self.parks >= MAX_PARKS || self.chances >= MAX_CHANCES || self.m.ctas == 1 {
            return false;
        }
        self.chances += 1;
        let mut x = seed ^ self.linear.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ u64::from(self.chances) << 32;
        x = (x ^ x >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ x >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        self.parked = x >> 63 == 1;
        self.parks += u32::from(self.parked);
        self.parked
    }

    /// Something happened that others may wait for.
    pub fn progressed(&mut self) {
        self.events += 1;
        self.m.progress.fetch_add(1, Ordering::Release);
    }

    /// Nobody in the grid can go on: this CTA only polls.
    pub fn starved(&mut self, warps: &[Warp]) {
        self.deadlock(warps, true);
    }

    fn begin(&mut self, linear: u64, warps: &mut Vec<Warp>) {
        let m = self.m;
        self.linear = linear;
        self.index = m.cta_index(linear);
        self.fault = None;
        self.printed.clear();
        self.findings = Findings::default();
        self.live_threads = m.threads;
        self.barriers.clear();
        self.barriers.resize(16, Barrier::default());
        self.releases.clear();
        self.flights.clear();
        self.mbarriers.clear();
        self.undefined_places.clear();
        self.sync_clocks.clear();
        self.fences = 0;
        self.known.clear();
        self.seen.clear();
        (self.spoke, self.parked, self.parks, self.chances) = (false, false, 0, 0);
        (self.published, self.publishings) = (false, 0);
        (self.waited, self.turns, self.peeks, self.peeked) = (false, 0, false, false);
        let before = self.shared.reset(m.shared_bytes as usize, m.warps);
        if !self.detects {
            self.shared.mark(0, m.shared_bytes as usize, DEFINED);
        } else {
            // What nobody may touch is watched as bytes are that a copy has in flight.
            for (start, end) in &m.guards {
                self.shared.mark(*start as usize, (end - start) as usize, IN_FLIGHT);
            }
        }
        if before == 0 {
            // Intervals are counted anew.
            self.marks.clear();
        }
        let first = self.shared.tick();
        warps.truncate(m.warps);
        while warps.len() < m.warps {
            warps.push(Warp::new(warps.len()));
        }
        for w in warps.iter_mut() {
            let threads = m.threads - (w.index as u32) * 32;
            w.live = if threads >= 32 { u32::MAX } else { (1 << threads) - 1 };
            w.clock.clear();
            w.clock.resize(m.warps, before);
            w.clock[w.index] = first;
            w.fenced.clear();
            w.seen.clear();
            w.loads.clear();
            w.told.set(false);
            w.fresh_fence.set(false);
            w.plain_since_fence.set(false);
            w.passed = 0;
            w.committed = [0; 32];
            w.frames.clear();
            w.regs.truncate(0);
            w.local.resize(0);
            w.pause = Pause::Turn;
            self.push_frame(w, m.entry, None);
            let pc = m.code.functions[m.entry].start;
            w.groups.clear();
            w.groups.push(Group { pc, mask: w.live, frame: 0, state: State::Ready, penalty: 0 });
        }
    }

    /// Opens a frame of a function; its number.
    pub fn push_frame(&self, w: &mut Warp, function: usize, parent: Option<(u32, Pc)>) -> u32 {
        let f = &self.m.code.functions[function];
        let depth = parent.map_or(0, |p| w.frames[p.0 as usize].depth + 1);
        let used = w.local.len();
        let local_base = if w.frames.is_empty() { 0 } else { (used + LOCAL_GAP).next_multiple_of(256) };
        w.local.resize(local_base + f.local_bytes);
        let base = w.regs.push_window(f.rows as usize);
        let local_end = local_base + f.local_bytes;
        w.frames.push(Frame { function, parent, base, local_base, local_end, depth });
        self.fill(w, function, local_base, u32::MAX);
        (w.frames.len() - 1) as u32
    }

    /// Lanes come to an activation in which others of their warp are: all that is theirs is new.
    pub fn reenter(&self, w: &mut Warp, frame: u32, lanes: u32) {
        let Frame { function, base, local_base, .. } = w.frames[frame as usize];
        let f = &self.m.code.functions[function];
        w.local.renew(local_base, f.local_bytes, lanes);
        w.regs.select(base);
        w.regs.renew(f.rows as usize, lanes);
        self.fill(w, function, local_base, lanes);
    }

    /// Constants and special registers of a function's window.
    fn fill(&self, w: &mut Warp, function: usize, local_base: u32, lanes: u32) {
        let zero = [0u64; 32];
        w.regs.put64(crate::code::ZERO, &zero, lanes);
        w.regs.define(crate::code::ZERO, lanes);
        w.regs.define(crate::code::ZERO + 1, lanes);
        w.regs.define(crate::code::SINK, lanes);
        for (row, fill) in &self.m.fills[function] {
            match *fill {
                Fill::Word(v) => w.regs.put32(*row, &[v; 32], lanes),
                Fill::Wide(v) => w.regs.put64(*row, &[v; 32], lanes),
                Fill::Special(s) => {
                    let warp = w.index as u32;
                    let t = std::array::from_fn(|l| self.m.special(s, self.index, warp, l as u32));
                    w.regs.put32(*row, &t, lanes);
                }
                Fill::Local { offset, wide } => {
                    let at = (i64::from(local_base) + offset) as u64;
                    if wide {
                        w.regs.put64(*row, &[at; 32], lanes)
                    } else {
                        w.regs.put32(*row, &[at as u32; 32], lanes)
                    }
                }
            }
            w.regs.define(*row, lanes);
        }
    }

    /// Adds a finding of a warp. `fatal` ends the CTA.
    pub fn report(
        &mut self,
        kind: FindingKind,
        w: &Warp,
        pc: Pc,
        other: Option<Pc>,
        lanes: u32,
        fatal: bool,
        what: impl FnOnce(&Machine) -> (String, Option<Place>),
    ) {
        if fatal {
            self.fault = Some(Fault::Finding);
        }
        self.found(kind, Severity::Error, w, pc, other, lanes, what);
    }

    /// Adds a finding of a warp that changes no verdict.
    pub fn note(
        &mut self,
        kind: FindingKind,
        w: &Warp,
        pc: Pc,
        other: Option<Pc>,
        lanes: u32,
        what: impl FnOnce(&Machine) -> (String, Option<Place>),
    ) {
        self.found(kind, Severity::Note, w, pc, other, lanes, what);
    }

    fn found(
        &mut self,
        kind: FindingKind,
        severity: Severity,
        w: &Warp,
        pc: Pc,
        other: Option<Pc>,
        lanes: u32,
        what: impl FnOnce(&Machine) -> (String, Option<Place>),
    ) {
        let (m, index) = (self.m, self.index);
        self.add(kind, severity, pc, other, u64::from(lanes.count_ones().max(1)), || {
            let (message, place) = what(m);
            (message, place, index, w.index as u32, (lanes != 0).then(|| lanes.trailing_zeros()))
        });
    }

    /// Adds a finding whose details are asked for only if it is a new one: message, place, CTA, warp, lane.
    pub fn add(
        &mut self,
        kind: FindingKind,
        severity: Severity,
        pc: Pc,
        other: Option<Pc>,
        count: u64,
        details: impl FnOnce() -> (String, Option<Place>, [u32; 3], u32, Option<u32>),
    ) {
        let lines = &self.m.code.lines;
        let key = (kind, severity, lines[pc as usize], other.map(|o| lines[o as usize]));
        if self.findings.known(key, count) {
            return;
        }
        let (message, place, cta, warp, lane) = details();
        self.findings.add(RawFinding { kind, severity, key, pc, other, message, cta, warp, lane, place, count });
    }

    /// The record of accesses of an instruction in the warp's interval; 0: they are not looked at.
    #[inline(always)]
    pub fn mark(&mut self, w: &Warp, pc: Pc) -> u32 {
        let (stamp, at) = (w.clock[w.index], w.index * self.m.code.instrs.len() + pc as usize);
        match self.marks.get(at) {
            Some((s, record)) if *s == stamp => *record,
            _ => self.new_mark(at, stamp, pc),
        }
    }

    #[cold]
    #[inline(never)]
    fn new_mark(&mut self, at: usize, stamp: u32, pc: Pc) -> u32 {
        if self.marks.is_empty() {
            self.marks = vec![(0, 0); self.m.warps * self.m.code.instrs.len()];
        }
        let record = if self.linear > MAX_CTA { 0 } else { self.m.global.record(&mut self.records, stamp, pc) };
        self.marks[at] = (stamp, record);
        record
    }

    /// Lanes of a warp have exited: barriers that wait for all threads may be complete.
    pub fn lanes_exited(&mut self, lanes: u32) {
        self.live_threads -= lanes.count_ones();
        for id in 0..self.barriers.len() {
            self.complete(id);
        }
    }

    /// A group arrives at a barrier. True: it waits.
    pub fn arrive(&mut self, w: &mut Warp, pc: Pc, op: &BarrierOp, id: usize, count: Option<u32>, mask: u32) -> bool {
        let b = &mut self.barriers[id];
        match b.first_pc {
            None => {
                b.first_pc = Some(pc);
                b.expected = count;
                b.all = true;
            }
            Some(first) if b.expected != count => {
                let (had, has) = (b.expected, count);
                let threads = |c: Option<u32>| c.map_or("all threads".to_string(), |n| format!("{n} threads"));
                self.report(FindingKind::BarrierDivergence, w, pc, Some(first), mask, true, |_| {
                    (
                        format!(
                            "barrier {id} is used with {} here, while others wait with {}",
                            threads(has),
                            threads(had)
                        ),
                        None,
                    )
                });
                return true;
            }
            Some(_) => {}
        }
        let b = &mut self.barriers[id];
        b.threads += mask.count_ones();
        b.slots += if op.aligned { 32 } else { mask.count_ones() };
        b.clock.resize(w.clock.len(), 0);
        for (mine, theirs) in b.clock.iter_mut().zip(&w.clock) {
            *mine = (*mine).max(*theirs);
        }
        join(&mut b.fenced, &w.fenced);
        if let Some((row, negated)) = op.pred {
            let p = (w.regs.pred(row) ^ if negated { u32::MAX } else { 0 }) & mask;
            b.popc += p.count_ones();
            b.any |= p != 0;
            b.all &= p == mask;
        }
        let waits = op.kind != BarrierKind::Arrive;
        if waits {
            b.waiting.push((w.index, mask));
        }
        w.clock[w.index] = self.shared.tick();
        if let Some(expected) = self.barriers[id].expected
            && self.barriers[id].slots > expected
        {
            let (slots, first) = (self.barriers[id].slots, self.barriers[id].first_pc);
            self.report(FindingKind::BarrierDivergence, w, pc, first.filter(|f| *f != pc), mask, true, |_| {
                (format!("{slots} threads arrived at barrier {id}, which expects {expected}"), None)
            });
            return true;
        }
        self.complete(id);
        waits
    }

    fn complete(&mut self, id: usize) {
        let b = &self.barriers[id];
        let done = match b.expected {
            _ if b.first_pc.is_none() => false,
            Some(n) => b.slots >= n,
            None => b.threads >= self.live_threads,
        };
        if done {
            let barrier = std::mem::take(&mut self.barriers[id]);
            self.releases.push(Release { id: id as u8, barrier });
        }
    }

    /// Lets the waiters of completed barriers go on.
    fn release(&mut self, warps: &mut [Warp]) {
        for release in std::mem::take(&mut self.releases) {
            let b = release.barrier;
            for (n, mask) in b.waiting {
                let w = &mut warps[n];
                for (mine, theirs) in w.clock.iter_mut().zip(&b.clock) {
                    *mine = (*mine).max(*theirs);
                }
                join(&mut w.fenced, &b.fenced);
                let Some(at) = w.groups.iter().position(|g| g.state == State::Barrier(release.id) && g.mask == mask)
                else {
                    continue;
                };
                let g = w.groups[at];
                let instr = &self.m.code.instrs[g.pc as usize];
                let op = &self.m.code.sides.barriers[instr.side as usize];
                w.regs.select(w.frames[g.frame as usize].base);
                match op.kind {
                    BarrierKind::RedPopc => w.regs.put32(op.d, &[b.popc; 32], mask),
                    BarrierKind::RedAnd => w.regs.put_pred(op.d, if b.all { u32::MAX } else { 0 }, mask),
                    BarrierKind::RedOr => w.regs.put_pred(op.d, if b.any { u32::MAX } else { 0 }, mask),
                    BarrierKind::Sync | BarrierKind::Arrive => {}
                }
                if op.kind != BarrierKind::Sync {
                    w.regs.define(op.d, mask);
                }
                w.groups[at] = Group { pc: g.pc + 1, state: State::Ready, penalty: 0, ..g };
                w.pause = Pause::Turn;
                self.released += 1;
            }
        }
    }

    /// No warp can go on: says who waits where.
    fn deadlock(&mut self, warps: &[Warp], starved: bool) {
        let m = self.m;
        let place = |pc: Pc| {
            let s = &m.code.sites[pc as usize];
            match s.line {
                Some(line) => format!("{} at line {line}", s.opcode),
                None => format!("{} at PTX line {}", s.opcode, s.ptx_line),
            }
        };
        let mut waits: Vec<(usize, Group)> = Vec::new();
        for w in warps {
            waits.extend(w.groups.iter().map(|g| (w.index, *g)));
        }
        let parked = waits.iter().find(|(_, g)| g.state == State::Parked).copied();
        let Some(&(n, first)) = waits.first() else { return };
        // Whoever polls could go on: the others of its warp wait for it.
        let polling = waits.iter().find(|(_, g)| starved && g.state == State::Ready).copied();
        let (n, g) = polling.or(parked).unwrap_or((n, first));
        let other = waits.iter().find(|(k, o)| o.pc != g.pc && *k == n).or(waits.iter().find(|(_, o)| o.pc != g.pc));
        let op = m.code.instrs[g.pc as usize].op;
        let kind = match (g.state, op) {
            (State::Parked, Op::Barrier) => FindingKind::BarrierDivergence,
            (State::Parked, Op::Shfl | Op::Vote | Op::Match | Op::Redux | Op::BarWarp | Op::Elect) => {
                FindingKind::InactiveLane
            }
            (State::Parked, _) => FindingKind::DivergentAligned,
            _ => FindingKind::Deadlock,
        };
        let mut lines: Vec<String> = Vec::new();
        for (n, g) in &waits {
            let line = format!("{} of warp {n}: {}", lanes_text(g.mask), place(g.pc));
            if lines.len() < 4 && !lines.contains(&line) {
                lines.push(line);
            }
        }
        let text = match kind {
            FindingKind::BarrierDivergence => {
                "a barrier is reached by some lanes of a warp only, while the others wait elsewhere"
            }
            FindingKind::InactiveLane => "a warp-synchronous instruction waits for lanes that never come to it",
            FindingKind::DivergentAligned => "an .aligned instruction is reached by some lanes of a warp only",
            _ if starved => "no warp can go on, and what is polled for never comes from this or any other CTA",
            _ => "no warp can go on",
        };
        let message = format!("{text}: {}", lines.join("; "));
        self.report(kind, &warps[n], g.pc, other.map(|o| o.1.pc), g.mask, true, |_| (message, None));
    }
}

/// The later of two clocks, warp by warp; an empty one is nobody's.
fn join(mine: &mut Vec<u32>, theirs: &[u32]) {
    if mine.len() < theirs.len() {
        mine.resize(theirs.len(), 0);
    }
    for (mine, theirs) in mine.iter_mut().zip(theirs) {
        *mine = (*mine).max(*theirs);
    }
}

/// `lanes 0-15`, for people.
pub fn lanes_text(mask: u32) -> String {
    if mask == u32::MAX {
        return "all lanes".into();
    }
    let (low, high) = (mask.trailing_zeros(), 31 - mask.leading_zeros());
    let full = mask.count_ones() == high - low + 1;
    match (mask.count_ones(), full) {
        (1, _) => format!("lane {low}"),
        (_, true) => format!("lanes {low}-{high}"),
        (n, false) => format!("{n} lanes from {low} to {high}"),
    }
}

/// Warps in an order drawn from the seed; seed 0 keeps them in order.
fn order(warps: usize, seed: u64, linear: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..warps).collect();
    if seed == 0 {
        return order;
    }
    let draw = warpsmith_num::philox::Philox4x32::new(seed, linear);
    for n in (1..warps).rev() {
        order.swap(n, draw.at(n as u64)[0] as usize % (n + 1));
    }
    order
}
