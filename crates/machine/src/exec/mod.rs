//! The interpreter's loop: picks a group of lanes, runs it instruction by instruction, hands families to their modules.
//!
//! On x86-64 the lane-wise families and the accesses to memory exist three times: for any CPU, with AVX2, FMA, F16C and BMI2, and
//! with AVX-512, chosen at run time (see `rows::versions`).

mod async_copy;
mod atomics;
mod calls;
mod converts;
mod exact_sign;
mod floats;
mod global_access;
mod global_races;
mod guesses;
mod ints;
pub mod lane_convert;
pub mod lane_float;
pub mod lane_integer;
mod local_access;
mod matrix;
mod mbarrier;
mod memory;
mod nearly;
mod passing;
mod print;
pub mod rare;
mod region;
mod rows;
mod shared_access;
mod sub_byte;
mod tensor;
pub mod traffic;
mod turn;
mod undefined;
mod undefined_bits;
mod warp_ops;
mod wides;

pub use async_copy::Flight;
pub use calls::{FUNCTION_HANDLES, MAX_ROWS};
pub use guesses::{Guesses, Load as GuessedLoad, possible as guesses_possible};
pub use mbarrier::Mbarrier;
pub use tensor::{Scratch, product_in_registers};

use crate::api::FindingKind;
use crate::code::{ALWAYS, Class, Code, Instr, Op, Pc};
use crate::cta::{Cta, Fault, POLLS};
use crate::warp::{Group, Pause, State, Warp};

/// Backward jumps of one group after which another of its warp gets a turn.
const PATIENCE: u32 = 256;

/// What comes after an instruction.
pub(crate) enum Step {
    Next,
    Jump(Pc),
    /// The groups have changed: pick one anew.
    Switch,
}

/// Runs a warp until it waits, exits, faults, or `left` instructions are used up.
pub fn run_warp(cta: &mut Cta, w: &mut Warp, left: &mut u64) -> Pause {
    match rows::width() {
        rows::AVX512 => run_groups::<{ rows::AVX512 }>(cta, w, left),
        rows::AVX2 => run_groups::<{ rows::AVX2 }>(cta, w, left),
        _ => run_groups::<{ rows::ANY }>(cta, w, left),
    }
}

/// A lane-wise instruction: first which lanes of the result are undefined, then the values.
#[inline(always)]
fn lane_wise<const WIDE: u8>(w: &mut Warp, i: &Instr, pc: Pc, m: u32, code: &Code) {
    if undefined::sources(&w.regs, i) & m != 0 || undefined::special(i.op) {
        undefined::pure(w, i, m, pc, &code.sides);
    } else {
        w.regs.define(i.d, m);
        w.regs.define(i.d2, m);
    }
    match i.class {
        Class::Ints => ints::run::<WIDE>(&mut w.regs, i, m),
        Class::Floats => floats::run::<WIDE>(&mut w.regs, i, m),
        Class::Wides => wides::run::<WIDE>(&mut w.regs, i, m),
        Class::Converts => converts::run::<WIDE>(&mut w.regs, i, m),
        _ => rare::run(&mut w.regs, i, m, &code.sides),
    }
}

fn run_groups<const WIDE: u8>(cta: &mut Cta, w: &mut Warp, left: &mut u64) -> Pause {
    let code = cta.m.code;
    w.yielded = false;
    w.polls = 0;
    loop {
        let Some(at) = w.schedule() else {
            if warp_ops::rendezvous(cta, w) {
                continue;
            }
            return idle(w);
        };
        if w.groups.len() > 1 {
            passing::look(cta, w, at);
        }
        let Group { mut pc, mask, frame, .. } = w.groups[at];
        w.frame = frame as usize;
        w.regs.select(w.frames[w.frame].base);
        let stop = w.stop_for(at);
        let alone = w.groups.len() == 1;
        let lanes = u64::from(mask.count_ones());
        let partial = u64::from(mask != w.live);
        let mut back = 0;
        loop {
            if *left == 0 {
                w.groups[at].pc = pc;
                return Pause::Turn;
            }
            *left -= 1;
            let i = &code.instrs[pc as usize];
            cta.counts[pc as usize] += 1;
            cta.lane_instructions += lanes;
            cta.divergent_instructions += partial;
            let mut m = mask;
            if i.guard != ALWAYS {
                if w.regs.poison(i.guard) & mask != 0 {
                    undefined::guard(cta, w, i, pc, mask);
                }
                let p = w.regs.pred(i.guard);
                m &= if i.guard_negated { !p } else { p };
            }
            let step = match i.class {
                Class::Ints | Class::Wides | Class::Floats | Class::Converts | Class::Rare => {
                    if m != 0 {
                        lane_wise::<WIDE>(w, i, pc, m, code);
                    }
                    pc += 1;
                    if pc >= stop {
                        w.groups[at].pc = pc;
                        break;
                    }
                    continue;
                }
                Class::Memory => {
                    if m != 0 {
                        memory_step::<WIDE>(cta, w, i, pc, m);
                        w.yielded |= cta.spoke && cta.put_aside();
                        if w.yielded && cta.fault.is_none() {
                            // What is polled for may come from other lanes of this warp.
                            let most = w.groups.iter().map(|g| g.penalty).max().unwrap_or(0);
                            w.groups[at].penalty = most.saturating_add(u32::from(w.groups.len() > 1));
                            w.groups[at].pc = pc + 1;
                            break;
                        }
                    }
                    Step::Next
                }
                Class::Control => control(cta, w, at, i, pc, mask, m),
                Class::Warp => {
                    if m == 0 {
                        Step::Next
                    } else if m != mask {
                        // The lanes that do not take part go on; the others meet the instruction as a group of their own.
                        w.groups[at] = Group { pc: pc + 1, mask: mask & !m, ..w.groups[at] };
                        let group = w.groups[at];
                        w.groups.push(Group { pc, mask: m, ..group });
                        Step::Switch
                    } else {
                        warp_step::<WIDE>(cta, w, at, i, pc, mask)
                    }
                }
            };
            match step {
                Step::Next => pc += 1,
                Step::Jump(target) => {
                    if target <= pc && !alone {
                        back += 1;
                        if back >= PATIENCE {
                            let most = w.groups.iter().map(|g| g.penalty).max().unwrap_or(0);
                            w.groups[at].penalty = most.saturating_add(1);
                            w.groups[at].pc = target;
                            break;
                        }
                    }
                    pc = target;
                }
                Step::Switch => break,
            }
            if cta.fault.is_some() {
                w.groups[at].pc = pc;
                return Pause::Fault;
            }
            if pc >= stop {
                w.groups[at].pc = pc;
                break;
            }
        }
        if cta.fault.is_some() {
            return Pause::Fault;
        }
        if w.yielded {
            return Pause::Turn;
        }
    }
}

fn idle(w: &mut Warp) -> Pause {
    if w.groups.is_empty() {
        Pause::Exited
    } else if w.groups.iter().any(|g| matches!(g.state, State::Barrier(_))) {
        Pause::Blocked
    } else {
        Pause::Stuck
    }
}

#[inline(always)]
fn memory_step<const WIDE: u8>(cta: &mut Cta, w: &mut Warp, i: &Instr, pc: Pc, m: u32) {
    match i.op {
        Op::Load => memory::load::<WIDE>(cta, w, i, pc, m),
        Op::Store => memory::store::<WIDE>(cta, w, i, pc, m),
        Op::Atom => atomics::atomic(cta, w, i, pc, m),
        Op::CpAsync => async_copy::issue::<WIDE>(cta, w, i, pc, m),
        Op::CpAsyncCommit => async_copy::commit(w, m),
        Op::CpAsyncWait => async_copy::wait::<WIDE>(cta, w, i, m),
        Op::Clock => rare_clock(cta, w, i, m),
        _ => {}
    }
}

/// Clocks advance with executed instructions: the machine has no time.
fn rare_clock(cta: &mut Cta, w: &mut Warp, i: &Instr, m: u32) {
    cta.ticks += 1;
    let now = cta.lane_instructions / 32 + cta.ticks;
    let v = if i.sub == 1 { now >> 32 } else { now };
    if i.imm == 1 {
        w.regs.put64(i.d, &[v; 32], m)
    } else {
        w.regs.put32(i.d, &[v as u32; 32], m)
    }
    w.regs.define(i.d, m);
}

fn control(cta: &mut Cta, w: &mut Warp, at: usize, i: &Instr, pc: Pc, mask: u32, m: u32) -> Step {
    match i.op {
        Op::Bra => {
            let target = i.imm as Pc;
            if m == mask {
                return Step::Jump(target);
            }
            if m == 0 {
                return Step::Next;
            }
            cta.divergent_branches += 1;
            let group = w.groups[at];
            w.groups[at] = Group { pc: pc + 1, mask: mask & !m, ..group };
            w.groups.push(Group { pc: target, mask: m, ..group });
            Step::Switch
        }
        _ if m == 0 => Step::Next,
        Op::BraIndex => branch_index(cta, w, at, i, pc, mask, m),
        Op::Exit => {
            exit(cta, w, at, pc, mask, m);
            Step::Switch
        }
        Op::Call => calls::call(cta, w, at, i, pc, mask, m),
        Op::Ret => calls::ret(cta, w, at, pc, mask, m),
        Op::Trap => {
            cta.report(FindingKind::Trap, w, pc, None, m, true, |_| {
                ("the kernel executes a trap: the compiler puts one where code cannot be right, or the source asks for it".into(), None)
            });
            Step::Next
        }
        Op::Fence => {
            global_races::fence(cta, w, i.imm != 0);
            Step::Next
        }
        Op::Sleep => {
            w.polls = POLLS;
            w.yielded = true;
            let most = w.groups.iter().map(|g| g.penalty).max().unwrap_or(0);
            w.groups[at].penalty = most.saturating_add(u32::from(w.groups.len() > 1));
            w.groups[at].pc = pc + 1;
            Step::Switch
        }
        _ => {
            let what = cta.m.code.sides.unsupported.get(i.side as usize).cloned().unwrap_or_default();
            cta.fault = Some(Fault::Unsupported { what, pc });
            Step::Next
        }
    }
}

fn exit(cta: &mut Cta, w: &mut Warp, at: usize, pc: Pc, mask: u32, m: u32) {
    if w.passed & m != 0 {
        passing::exited(cta, w, pc, m);
    }
    w.live &= !m;
    if m == mask {
        w.groups.swap_remove(at);
    } else {
        w.groups[at] = Group { pc: pc + 1, mask: mask & !m, ..w.groups[at] };
    }
    w.wake_parked();
    cta.lanes_exited(m);
}

fn branch_index(cta: &mut Cta, w: &mut Warp, at: usize, i: &Instr, pc: Pc, mask: u32, m: u32) -> Step {
    if undefined::reaches(cta, w, i.a, pc, m, "a branch target depends on an undefined value") {
        return Step::Next;
    }
    let table = &cta.m.code.sides.tables[i.side as usize];
    let group = w.groups[at];
    let mut left = m;
    let mut rest = mask & !m;
    while left != 0 {
        let index = w.regs.r32(i.a)[left.trailing_zeros() as usize];
        let same = rare::lanes_of(left).filter(|&l| w.regs.r32(i.a)[l] == index).fold(0, |a, l| a | 1 << l);
        left &= !same;
        match table.get(index as usize) {
            Some(&target) => w.groups.push(Group { pc: target, mask: same, ..group }),
            None => {
                cta.report(FindingKind::InvalidAccess, w, pc, None, same, true, |_| {
                    (format!("branch index {index} is beyond the table of {} targets", table.len()), None)
                });
                rest |= same;
            }
        }
    }
    if rest == 0 {
        w.groups.swap_remove(at);
    } else {
        w.groups[at] = Group { pc: pc + 1, mask: rest, ..group };
    }
    Step::Switch
}

fn warp_step<const WIDE: u8>(cta: &mut Cta, w: &mut Warp, at: usize, i: &Instr, pc: Pc, mask: u32) -> Step {
    let aligned = match i.op {
        Op::Barrier => cta.m.code.sides.barriers[i.side as usize].aligned,
        Op::Mma | Op::LoadMatrix | Op::StoreMatrix | Op::WmmaLoad | Op::WmmaStore | Op::MovMatrix => true,
        _ => false,
    };
    if aligned && mask != w.live {
        w.groups[at].state = State::Parked;
        w.groups[at].pc = pc;
        return Step::Switch;
    }
    match i.op {
        Op::Barrier => warp_ops::barrier(cta, w, at, i, pc, mask),
        Op::Mbarrier => mbarrier::run(cta, w, at, i, pc, mask),
        Op::Mma => {
            tensor::mma(cta, w, i, pc);
            Step::Next
        }
        Op::LoadMatrix => {
            matrix::load::<WIDE>(cta, w, i, pc);
            Step::Next
        }
        Op::StoreMatrix => {
            matrix::store(cta, w, i, pc);
            Step::Next
        }
        Op::WmmaLoad => {
            tensor::wmma_load(cta, w, i, pc, mask);
            Step::Next
        }
        Op::WmmaStore => {
            tensor::wmma_store(cta, w, i, pc, mask);
            Step::Next
        }
        Op::MovMatrix => {
            matrix::transpose(w, i, pc);
            Step::Next
        }
        _ => warp_ops::run(cta, w, at, i, pc, mask),
    }
}
