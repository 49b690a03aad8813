//! Calls and returns: parameters go through local memory of the two frames, as `.param` variables do.
//! Source: PTX ISA 9.0, "call", "Abstracting the ABI".

use crate::api::FindingKind;
use crate::code::{CallTarget, CallValue, Instr, Pc, Width};
use crate::cta::Cta;
use crate::exec::print;
use crate::exec::rare::lanes_of;
use crate::exec::{Step, undefined};
use crate::local::MAX_LOCAL;
use crate::warp::{Group, Warp};

/// Calls in each other that a warp may have open.
const MAX_DEPTH: u32 = 512;
/// Rows of registers that a warp may have in all its frames: 32 MiB.
pub const MAX_ROWS: usize = 1 << 18;
/// What function handles start from: no address of data looks like one.
pub const FUNCTION_HANDLES: u64 = 0xF0_0000_0000;

pub fn call(cta: &mut Cta, w: &mut Warp, at: usize, i: &Instr, pc: Pc, mask: u32, m: u32) -> Step {
    let machine = cta.m;
    let op = &machine.code.sides.calls[i.side as usize];
    let function = match op.target {
        CallTarget::Function(f) => f,
        CallTarget::Vprintf => {
            print::vprintf(cta, w, op, m);
            return Step::Next;
        }
        CallTarget::AssertFail => {
            print::assert_fail(cta, w, op, pc, m);
            return Step::Next;
        }
        CallTarget::Indirect(row) => {
            if undefined::reaches(cta, w, row, pc, m, "the value is the function to call") {
                return Step::Next;
            }
            let handle = w.regs.r64(row)[m.trailing_zeros() as usize];
            let same = lanes_of(m).filter(|&l| w.regs.r64(row)[l] == handle).fold(0, |a, l| a | 1u32 << l);
            let index = handle.wrapping_sub(FUNCTION_HANDLES) as usize;
            let known = machine.code.functions.get(index).is_some_and(|f| f.has_body && !f.is_entry);
            if !known {
                cta.report(FindingKind::InvalidAccess, w, pc, None, same, true, |_| {
                    (format!("a call through {handle:#x}, which is no function"), None)
                });
                return Step::Next;
            }
            if same != mask {
                // Lanes that call other functions, or none, come later.
                let group = w.groups[at];
                w.groups[at] = Group { pc, mask: same, ..group };
                let (others, passing) = (m & !same, mask & !m);
                if others != 0 {
                    w.groups.push(Group { pc, mask: others, penalty: group.penalty + 1, ..group });
                }
                if passing != 0 {
                    w.groups.push(Group { pc: pc + 1, mask: passing, ..group });
                }
                if others != 0 {
                    return enter(cta, w, at, op, index, pc, same, same);
                }
            }
            index
        }
    };
    enter(cta, w, at, op, function, pc, mask, m)
}

fn enter(
    cta: &mut Cta,
    w: &mut Warp,
    at: usize,
    op: &crate::code::CallOp,
    function: usize,
    pc: Pc,
    mask: u32,
    m: u32,
) -> Step {
    let machine = cta.m;
    let callee = &machine.code.functions[function];
    let caller = w.frame as u32;
    let depth = w.frames[w.frame].depth;
    let rows = w.regs.len() + callee.rows as usize;
    if depth >= MAX_DEPTH || w.local.len() + callee.local_bytes > MAX_LOCAL || rows > MAX_ROWS {
        cta.report(FindingKind::InvalidAccess, w, pc, None, m, true, |_| {
            (format!("the call stack is too deep: {depth} calls, {} bytes of local memory", w.local.len()), None)
        });
        return Step::Next;
    }
    if op.args.len() != callee.params.len() {
        cta.report(FindingKind::InvalidAccess, w, pc, None, m, true, |_| {
            (
                format!(
                    "{} is called with {} arguments, it has {} parameters",
                    callee.name,
                    op.args.len(),
                    callee.params.len()
                ),
                None,
            )
        });
        return Step::Next;
    }
    let group = w.groups[at];
    if m != mask {
        w.groups.push(Group { pc: pc + 1, mask: mask & !m, ..group });
    }
    let base = w.local_base();
    // Register arguments are read while the caller's window is current.
    let registers: Vec<[(u64, u64); 32]> = op
        .args
        .iter()
        .map(|a| match a {
            CallValue::Row { row, width } => {
                std::array::from_fn(|l| (w.regs.lane(*row, *width == Width::W64, l), w.regs.undefined_bits(*row, l)))
            }
            CallValue::Local { .. } => [(0, 0); 32],
        })
        .collect();
    let frame = match w.open_frame(function, (caller, pc)) {
        Some(frame) => {
            cta.reenter(w, frame, m);
            frame
        }
        None => cta.push_frame(w, function, Some((caller, pc))),
    };
    let new_base = w.frames[frame as usize].local_base;
    for ((arg, values), (offset, bytes)) in op.args.iter().zip(&registers).zip(&callee.params) {
        for l in lanes_of(m) {
            match *arg {
                CallValue::Local { offset: from, bytes: has } => {
                    w.local.copy(l, base + from, new_base + offset, has.min(*bytes))
                }
                CallValue::Row { .. } => {
                    let size = bytes.next_power_of_two().min(8);
                    let (value, undefined) = values[l];
                    w.local.store(l, new_base + offset, size, value, true);
                    w.local.undefine(l, new_base + offset, undefined & (u64::MAX >> (64 - 8 * size)));
                }
            }
        }
    }
    w.groups[at] = Group { pc: callee.start, mask: m, frame, ..group };
    Step::Switch
}

pub fn ret(cta: &mut Cta, w: &mut Warp, at: usize, pc: Pc, mask: u32, m: u32) -> Step {
    let frame = w.frames[w.frame];
    let Some((parent, call_pc)) = frame.parent else {
        super::exit(cta, w, at, pc, mask, m);
        return Step::Switch;
    };
    let machine = cta.m;
    let callee = &machine.code.functions[frame.function];
    let instr = &machine.code.instrs[call_pc as usize];
    let op = &machine.code.sides.calls[instr.side as usize];
    let base = w.frames[parent as usize].local_base;
    for (value, (offset, bytes)) in op.returns.iter().zip(&callee.returns) {
        match *value {
            CallValue::Local { offset: to, bytes: has } => {
                for l in lanes_of(m) {
                    w.local.copy(l, frame.local_base + offset, base + to, has.min(*bytes));
                }
            }
            CallValue::Row { row, width } => {
                let size = bytes.next_power_of_two().min(8);
                let mut t = [0u64; 32];
                let mut undefined = [0u64; 32];
                for l in lanes_of(m) {
                    t[l] = w.local.load(l, frame.local_base + offset, size).0;
                    undefined[l] = w.local.undefined_bits(l, frame.local_base + offset, size);
                }
                w.regs.select(w.frames[parent as usize].base);
                match width {
                    Width::W64 => w.regs.put64(row, &t, m),
                    _ => w.regs.put32(row, &t.map(|v| v as u32), m),
                }
                w.regs.set_bits(row, &undefined, 0, m, pc);
                w.regs.select(frame.base);
            }
        }
    }
    let group = w.groups[at];
    if m != mask {
        w.groups.push(Group { pc: pc + 1, mask: mask & !m, ..group });
    }
    w.groups[at] = Group { pc: call_pc + 1, mask: m, frame: parent, ..group };
    w.drop_frames();
    Step::Switch
}
