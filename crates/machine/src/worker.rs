//! A host thread: takes CTAs one after the other and runs each to its end.
//!
//! A CTA that only polls (for a flag that another CTA sets, at a barrier over the grid) is put aside, and another one runs in
//! its stead, as on a GPU where many are resident. Adversarial schedules also put CTAs aside after some of their first atomics and strong
//! accesses, so that what others do comes in between. When every host thread has given all of its CTAs their turns since the last
//! change anywhere, and they only poll, none will ever go on: a deadlock, however slowly one of the threads is scheduled. Limits: CTAs put aside are limited by number and memory; beyond that they wait
//! their turn, and a CTA that others wait for may then never be started.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use crate::api::Traffic;
use crate::cta::{Cta, Fault, Progress};
use crate::launch::Collected;
use crate::machine::Machine;
use crate::warp::Warp;

/// CTAs of a host thread that wait at once, and the bytes that they may take.
const MAX_WAITING: usize = 2048;
const MAX_WAITING_BYTES: usize = 512 << 20;
/// Turns that all waiting CTAs have in vain, one after the other, before it is a deadlock.
const VAIN_ROUNDS: u32 = 200;

/// What `Machine::vain_at` holds of a host thread that may still change something, and of one that is through.
pub(crate) const BUSY: u64 = u64::MAX - 1;
const GONE: u64 = u64::MAX;

/// A CTA with its warps.
struct Resident<'m> {
    cta: Cta<'m>,
    warps: Vec<Warp>,
    /// Turns that it lets pass.
    aside: u32,
    /// What `cta.counts` summed up to after the CTA before this one.
    counted: u64,
}

/// Runs CTAs until none is left.
/// `thread` is this one's place in `Machine::vain_at`.
pub(crate) fn work(machine: &Machine, thread: usize, ctas: u64, next: &AtomicU64, all: &Mutex<Collected>) {
    let mut w = Worker { machine, thread, busiest: 0, mine: Vec::new(), free: Vec::new(), waiting: VecDeque::new() };
    let mut started = 0;
    let most = most_waiting(machine);
    loop {
        let rank = if w.waiting.len() < most { next.fetch_add(1, Relaxed) } else { u64::MAX };
        if rank < ctas && rank <= machine.stop_at.load(Relaxed) {
            let mut r = w.free.pop().unwrap_or_else(|| Resident {
                cta: Cta::new(machine),
                warps: Vec::new(),
                aside: 0,
                counted: 0,
            });
            r.cta.start(rank, number(rank, ctas, machine.options.schedule_seed), &mut r.warps);
            w.run(r);
            started += 1;
            // Many that wait get their turns less often, so that a grid of them costs no square of turns.
            if started * 8 < w.waiting.len() {
                continue;
            }
        } else if w.waiting.is_empty() {
            break;
        }
        started = 0;
        w.wake(rank < ctas);
    }
    machine.vain_at[thread].store(GONE, Release);
    let mut all = all.lock().unwrap_or_else(|e| e.into_inner());
    all.ctas.append(&mut w.mine);
    all.busiest_cta = all.busiest_cta.max(w.busiest);
    for r in w.free {
        for (sum, n) in all.counts.iter_mut().zip(&r.cta.counts) {
            *sum += n;
        }
        all.guesses.append(&r.cta.guesses);
        all.lane_instructions += r.cta.lane_instructions;
        all.divergent_instructions += r.cta.divergent_instructions;
        all.divergent_branches += r.cta.divergent_branches;
        all.traffic.resize(r.cta.traffic.len(), Traffic::default());
        for (sum, t) in all.traffic.iter_mut().zip(&r.cta.traffic) {
            sum.add(t);
        }
    }
}

/// The number of the CTA that is started as the `rank`-th: in order for seeds 0 and 1, backwards for odd seeds, else in steps.
fn number(rank: u64, ctas: u64, seed: u64) -> u64 {
    if seed <= 1 {
        return rank;
    }
    if seed % 2 == 1 {
        return ctas - 1 - rank;
    }
    // A step that has no factor in common with the number of CTAs visits each once.
    let gcd = |mut a: u64, mut b: u64| {
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let mut step = (ctas as f64 * 0.618) as u64 | 1;
    while gcd(step, ctas) != 1 {
        step += 1;
    }
    ((u128::from(rank) * u128::from(step) + u128::from(seed)) % u128::from(ctas)) as u64
}

fn most_waiting(machine: &Machine) -> usize {
    // Bytes, shadow, and two entries of eight bytes for each word and warp; registers.
    let shared = machine.shared_bytes as usize * (2 + 4 * machine.warps);
    let registers = machine.code.functions[machine.entry].rows as usize * 256 * machine.warps;
    (MAX_WAITING_BYTES / (shared + registers + 1)).clamp(2, MAX_WAITING)
}

struct Worker<'m> {
    machine: &'m Machine<'m>,
    thread: usize,
    /// Warp-instructions of the CTA that executed most.
    busiest: u64,
    mine: Vec<(u64, crate::findings::Findings, Option<Fault>, String)>,
    free: Vec<Resident<'m>>,
    waiting: VecDeque<Resident<'m>>,
}

impl<'m> Worker<'m> {
    /// Goes on with a CTA until it is done or waits.
    fn run(&mut self, mut r: Resident<'m>) {
        match r.cta.resume(&mut r.warps) {
            Progress::Stalled => self.waiting.push_back(r),
            Progress::Aside(turns) => {
                r.aside = turns;
                self.waiting.push_back(r);
            }
            Progress::Done => self.done(r),
        }
    }

    fn done(&mut self, mut r: Resident<'m>) {
        self.machine.progress.fetch_add(1, Release);
        // The counts go on over CTAs.
        let counted = r.cta.counts.iter().sum::<u64>();
        self.busiest = self.busiest.max(counted - r.counted);
        r.counted = counted;
        let (rank, fault) = (r.cta.rank, r.cta.fault.take());
        if matches!(fault, Some(Fault::Finding | Fault::Limit | Fault::Unsupported { .. })) {
            self.machine.stop_at.fetch_min(rank, Relaxed);
        }
        let findings = std::mem::take(&mut r.cta.findings);
        let printed = std::mem::take(&mut r.cta.printed);
        if fault.is_some() || !findings.list.is_empty() || !printed.is_empty() {
            self.mine.push((rank, findings, fault, printed));
        }
        self.free.push(r);
    }

    /// Gives each waiting CTA a turn; where no more can be started, until one is done or all wait in vain.
    fn wake(&mut self, more: bool) {
        let m = self.machine;
        let (mut vain, mut since) = (0, 0);
        while !self.waiting.is_empty() {
            let (before, count) = (m.progress.load(Acquire), self.waiting.len());
            // A change between two rounds ends a row of vain ones as a change within a round does.
            if before != since {
                (vain, since) = (0, before);
            }
            let mut passed = false;
            for _ in 0..count {
                match self.waiting.pop_front() {
                    // While there are others to start, or that poll.
                    Some(mut r) if r.aside > 0 && (more || count > 1) => {
                        r.aside -= 1;
                        self.waiting.push_back(r);
                        passed = true;
                    }
                    Some(r) => self.run(r),
                    None => {}
                }
            }
            let done = self.waiting.len() < count;
            vain = if done || passed || m.progress.load(Acquire) != before { 0 } else { vain + 1 };
            if vain > VAIN_ROUNDS {
                // Nothing has changed since `before`, as far as this thread's CTAs can see: is it so for all?
                m.vain_at[self.thread].store(before, Release);
                std::thread::yield_now();
                if m.vain_at.iter().map(|at| at.load(Acquire)).all(|at| at == GONE || at == before)
                    && m.progress.load(Acquire) == before
                    && let Some(mut r) = self.waiting.pop_front()
                {
                    r.cta.starved(&r.warps);
                    self.done(r);
                }
            }
            if more || done {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn every_cta_is_started_once_in_any_order() {
        for ctas in [1u64, 2, 7, 64, 100, 997] {
            for seed in [0, 1, 2, 3, 8, 0x5eed, u64::MAX - 1] {
                let mut seen: Vec<u64> = (0..ctas).map(|r| number(r, ctas, seed)).collect();
                seen.sort_unstable();
                assert!(seen.into_iter().eq(0..ctas), "{ctas} CTAs, seed {seed}");
            }
        }
    }
}
