//! `mbarrier`: barriers in shared memory that count arrivals and bytes, phase by phase.
//!
//! The object's eight bytes are opaque; its state is kept beside the shared memory, by address. A phase is over when all
//! expected arrivals and all expected bytes have come; what the arriving threads did before is then ordered before what a
//! thread does that has seen the phase's end. A failed wait ends the warp's turn. Source: PTX ISA 9.0, "mbarrier".

use crate::api::FindingKind;
use crate::code::{Area, Instr, MbarrierKind, MbarrierOp, Pc};
use crate::cta::Cta;
use crate::exec::memory::{address_undefined, addresses, bad_access, race};
use crate::exec::rare::lanes_of;
use crate::exec::{Step, async_copy, region, undefined};
use crate::memory::DEFINED;
use crate::shared::{Accessor, Lanes};
use crate::warp::Warp;

/// Most arrivals that a barrier can expect.
const MAX_COUNT: u32 = (1 << 20) - 1;

/// One barrier.
#[derive(Debug, Clone, Default)]
pub struct Mbarrier {
    expected: u32,
    pending: u32,
    /// Bytes announced and not yet here; copies that would bring them are not simulated, so it only ever waits.
    bytes: i64,
    phase: u64,
    /// What the threads knew that have arrived in this phase.
    arriving: Vec<u32>,
    /// What everybody knows who has seen the last phase end.
    done: Vec<u32>,
}

impl Mbarrier {
    fn join(&mut self, clock: &[u32]) {
        self.arriving.resize(clock.len(), 0);
        for (mine, theirs) in self.arriving.iter_mut().zip(clock) {
            *mine = (*mine).max(*theirs);
        }
    }

    fn settle(&mut self) {
        if self.pending == 0 && self.bytes <= 0 {
            self.phase += 1;
            self.pending = self.expected;
            self.done = std::mem::take(&mut self.arriving);
        }
    }
}

/// Runs one instruction for the lanes of `mask`, in lane order.
pub fn run(cta: &mut Cta, w: &mut Warp, at: usize, i: &Instr, pc: Pc, mask: u32) -> Step {
    let machine = cta.m;
    let op = &machine.code.sides.mbarriers[i.side as usize];
    if op.kind == MbarrierKind::PendingCount {
        let row = op.value.unwrap_or(0);
        let t = std::array::from_fn(|l| (w.regs.r64(row)[l] >> 32) as u32);
        if let Some(d) = op.d {
            w.regs.put32(d, &t, mask);
            w.regs.define(d, mask);
        }
        return Step::Next;
    }
    if address_undefined(cta, w, &op.address, pc, mask) {
        return Step::Next;
    }
    if let Some(row) = op.value
        && undefined::reaches(
            cta,
            w,
            row,
            pc,
            mask,
            "the value is a count, a phase or a number of bytes of an mbarrier",
        )
    {
        return Step::Next;
    }
    if matches!(op.kind, MbarrierKind::CopiesArrive { .. }) {
        async_copy::land(cta, w, mask);
    }
    let places = addresses(w, &op.address);
    let mut tokens = [0u64; 32];
    let mut ready = 0u32;
    for l in lanes_of(mask) {
        let (area, start) = region::resolve(op.area, places[l]);
        if area != Area::Shared || start % 8 != 0 || start + 8 > cta.shared.len() as u64 {
            bad_access(cta, w, pc, area, start, 8, 8, 1 << l, true);
            return Step::Next;
        }
        let plain = matches!(op.kind, MbarrierKind::Init | MbarrierKind::Inval);
        let who = Accessor { warp: w.index, clock: &w.clock, pc, atomic: !plain, lanes: Lanes::One(l as u32) };
        if let Some(c) = cta.shared.write(start as usize, 8, &who) {
            race(cta, w, pc, c, 1 << l, true);
        }
        if !one(cta, w, op, pc, l, start as u32, &mut tokens[l], &mut ready) {
            return Step::Next;
        }
    }
    match (op.kind, op.d) {
        (MbarrierKind::Wait, Some(d)) => {
            w.regs.put_pred(d, ready, mask);
            w.regs.define(d, mask);
        }
        (_, Some(d)) => {
            w.regs.put64(d, &tokens, mask);
            w.regs.define(d, mask);
        }
        _ => {}
    }
    if op.kind == MbarrierKind::Wait && ready != mask {
        // Others must run before asking again makes sense.
        let most = w.groups.iter().map(|g| g.penalty).max().unwrap_or(0);
        w.groups[at].penalty = most.saturating_add(u32::from(w.groups.len() > 1));
        w.groups[at].pc = pc + 1;
        w.yielded = true;
        return Step::Switch;
    }
    Step::Next
}

/// One lane's part; false: a finding ended the run.
fn one(
    cta: &mut Cta,
    w: &mut Warp,
    op: &MbarrierOp,
    pc: Pc,
    l: usize,
    start: u32,
    token: &mut u64,
    ready: &mut u32,
) -> bool {
    let value = |w: &Warp| {
        op.value.map(|row| {
            if op.kind == MbarrierKind::Wait && !op.parity { w.regs.r64(row)[l] } else { w.regs.r32(row)[l].into() }
        })
    };
    let given = value(w);
    if op.kind == MbarrierKind::Init {
        let count = given.unwrap_or(0) as u32;
        if count == 0 || count > MAX_COUNT {
            return fail(cta, w, pc, l, format!("an mbarrier is initialised with a count of {count}"));
        }
        let b = Mbarrier { expected: count, pending: count, ..Mbarrier::default() };
        cta.mbarriers.insert(start, b);
        cta.shared.mark(start as usize, 8, DEFINED);
        return true;
    }
    if op.kind == MbarrierKind::Inval {
        return cta.mbarriers.remove(&start).is_some()
            || fail(cta, w, pc, l, "an mbarrier that was never initialised is invalidated".into());
    }
    let Some(b) = cta.mbarriers.get_mut(&start) else {
        return fail(cta, w, pc, l, "an mbarrier is used that was never initialised".into());
    };
    let arrivals = match op.kind {
        MbarrierKind::Arrive | MbarrierKind::ArriveDrop => given.unwrap_or(1) as u32,
        MbarrierKind::ArriveExpectTx => 1,
        // Without `.noinc` the copies' arrival is added to those expected, and then comes: nothing changes.
        MbarrierKind::CopiesArrive { counted } => u32::from(counted),
        _ => 0,
    };
    match op.kind {
        MbarrierKind::ExpectTx | MbarrierKind::ArriveExpectTx => b.bytes += given.unwrap_or(0) as u32 as i64,
        MbarrierKind::Wait => {
            let given = given.unwrap_or(0);
            // Parity p: the phase of that parity is over when the running one has the other.
            let over = if op.parity { b.phase & 1 != given & 1 } else { b.phase != given & 0xFFFF_FFFF };
            if over {
                *ready |= 1 << l;
                for (mine, theirs) in w.clock.iter_mut().zip(&b.done) {
                    *mine = (*mine).max(*theirs);
                }
            }
            return true;
        }
        _ => {}
    }
    // The token: the phase, and above it the arrivals still pending, for `pending_count`.
    *token = b.phase & 0xFFFF_FFFF | u64::from(b.pending) << 32;
    if matches!(op.kind, MbarrierKind::CopiesArrive { .. }) || arrivals > 0 {
        b.join(&w.clock);
        if arrivals > b.pending {
            let pending = b.pending;
            return fail(
                cta,
                w,
                pc,
                l,
                format!("{arrivals} arrivals at an mbarrier that expects only {pending} more in this phase"),
            );
        }
        b.pending -= arrivals;
        if op.kind == MbarrierKind::ArriveDrop {
            b.expected -= arrivals.min(b.expected);
        }
        b.settle();
        w.clock[w.index] = cta.shared.tick();
        cta.progressed();
    }
    true
}

fn fail(cta: &mut Cta, w: &Warp, pc: Pc, l: usize, text: String) -> bool {
    cta.report(FindingKind::InvalidAccess, w, pc, None, 1 << l, true, |_| (text, None));
    false
}
