//! `ldmatrix`, `stmatrix` and `movmatrix`: 8x8 matrices of 16-bit elements, a row of 16 bytes for each address.
//! Source: PTX ISA 9.0, "ldmatrix", "stmatrix", "movmatrix".

use crate::code::{Area, Instr, MatrixOp, Pc};
use crate::cta::Cta;
use crate::exec::memory::{address_undefined, addresses};
use crate::exec::rows::versions;
use crate::exec::turn::turn_halves;
use crate::exec::{region, traffic};
use crate::memory::{SHARED_WINDOW, WINDOW_BYTES};
use crate::shared::{Accessor, Lanes};
use crate::warp::Warp;

/// Resolves and checks the rows of all matrices: lanes 8k..8k+7 hold the addresses of matrix k.
fn rows(cta: &mut Cta, w: &mut Warp, op: &MatrixOp, pc: Pc, write: bool) -> Option<[u64; 32]> {
    let used = if op.count == 4 { u32::MAX } else { (1 << (8 * op.count)) - 1 };
    if address_undefined(cta, w, &op.address, pc, used) {
        return None;
    }
    let mut at = addresses(w, &op.address);
    for (lane, a) in at.iter_mut().enumerate().take(8 * op.count) {
        let (area, relative) = region::resolve(op.area, *a);
        let shared = area == Area::Shared;
        let at = if shared { relative } else { u64::MAX - 15 };
        if !region::check(cta, w, pc, Area::Shared, at, 16, 16, lane, write) {
            return None;
        }
        *a = relative;
    }
    traffic::rows(cta, pc, &at[..8 * op.count]);
    Some(at)
}

versions! {
    /// PERF: the usual load at once: all rows in shared memory, defined, and nothing new near them. False: look at each row.
    fn quick_load(cta: &mut Cta, w: &mut Warp, op: &MatrixOp, pc: Pc) -> bool = quick_load_body
}

#[inline(always)]
fn quick_load_body(cta: &mut Cta, w: &mut Warp, op: &MatrixOp, pc: Pc) -> bool {
    let used = if op.count == 4 { u32::MAX } else { (1 << (8 * op.count)) - 1 };
    if w.regs.poison(op.address.row) & used != 0 {
        return false;
    }
    let all = addresses(w, &op.address);
    let (mut rows, mut bad) = ([0u32; 32], 0u64);
    let last = cta.shared.len().saturating_sub(16) as u64;
    let window = if op.area == Area::Generic { WINDOW_BYTES } else { 0 };
    // PERF: no index that depends on the count, so that it is done for many lanes at once.
    for lane in 0..32 {
        let a = all[lane];
        let inside = a.wrapping_sub(SHARED_WINDOW);
        let a = if inside < window { inside } else { a };
        let wrong = u64::from(a > last) | a & 15;
        bad |= if lane < 8 * op.count { wrong } else { 0 };
        rows[lane] = a as u32;
    }
    let at = &rows[..8 * op.count];
    if bad != 0 || cta.shared.len() < 16 || !matches!(op.area, Area::Generic | Area::Shared) {
        return false;
    }
    let who = Accessor { warp: w.index, clock: &w.clock, pc, atomic: false, lanes: Lanes::Wide };
    if cta.detects && (!cta.shared.lanes_defined(at, 16) || !cta.shared.read_rows(at, &who)) {
        return false;
    }
    traffic::rows(cta, pc, &all[..8 * op.count]);
    for (rows, d) in at.as_chunks::<8>().0.iter().zip(&op.rows) {
        let mut matrix = [[0u32; 4]; 8];
        for (row, at) in matrix.iter_mut().zip(rows) {
            *row = cta.shared.sixteen(*at as usize);
        }
        let words = if op.transposed { turn_halves(matrix) } else { matrix };
        w.regs.m32(*d).copy_from_slice(words.as_flattened());
        w.regs.define(*d, u32::MAX);
    }
    true
}

pub fn load<const WIDE: u8>(cta: &mut Cta, w: &mut Warp, i: &Instr, pc: Pc) {
    let machine = cta.m;
    let op = &machine.code.sides.matrices[i.side as usize];
    if quick_load::<WIDE>(cta, w, op, pc) {
        return;
    }
    let Some(at) = rows(cta, w, op, pc, false) else { return };
    for k in 0..op.count {
        let mut t = [0u32; 32];
        let mut poison = 0;
        let row = |r: usize| at[8 * k + r];
        let whole = (0..8).all(|r| cta.shared.is_defined(row(r) as usize, 16));
        for (l, v) in t.iter_mut().enumerate() {
            if op.transposed {
                let (r, c) = (2 * (l % 4), l / 4);
                for h in 0..2 {
                    let from = row(r + h) + 2 * c as u64;
                    *v |= (cta.shared.load(from as usize, 2) as u32) << (16 * h);
                    if !whole && !region::fetch(cta, pc, Area::Shared, from, 2).1 {
                        poison |= 1 << l;
                    }
                }
            } else {
                let from = row(l / 4) + 4 * (l % 4) as u64;
                *v = cta.shared.load(from as usize, 4) as u32;
                if !whole && !region::fetch(cta, pc, Area::Shared, from, 4).1 {
                    poison |= 1 << l;
                }
            }
        }
        w.regs.put32(op.rows[k], &t, u32::MAX);
        let origin = (0..8).find_map(|r| cta.shared.origin_within(row(r) as usize, 16)).unwrap_or(pc);
        w.regs.set_poison(op.rows[k], poison, u32::MAX, origin);
    }
}

pub fn store(cta: &mut Cta, w: &mut Warp, i: &Instr, pc: Pc) {
    let machine = cta.m;
    let op = &machine.code.sides.matrices[i.side as usize];
    let Some(at) = rows(cta, w, op, pc, true) else { return };
    for k in 0..op.count {
        let t = *w.regs.r32(op.rows[k]);
        let poison = w.regs.poison(op.rows[k]);
        let origin = w.regs.origin(op.rows[k], pc);
        for (l, v) in t.iter().enumerate() {
            let from = (poison >> l & 1 != 0).then_some(origin);
            for h in 0..2 {
                let (r, c) = if op.transposed { (2 * (l % 4) + h, l / 4) } else { (l / 4, 2 * (l % 4) + h) };
                let to = at[8 * k + r] + 2 * c as u64;
                region::put(cta, w, pc, Area::Shared, to, 2, u64::from(v >> (16 * h) & 0xFFFF), from, l);
            }
        }
    }
}

/// `movmatrix.sync.aligned.m8n8.trans.b16`
pub fn transpose(w: &mut Warp, i: &Instr, pc: Pc) {
    let a = *w.regs.r32(i.a);
    let p = w.regs.poison(i.a);
    let mut t = [0u32; 32];
    let mut poison = 0;
    for (l, v) in t.iter_mut().enumerate() {
        for h in 0..2 {
            let (row, col) = (2 * (l % 4) + h, l / 4);
            let from = row * 4 + col / 2;
            *v |= (a[from] >> (16 * (col % 2)) & 0xFFFF) << (16 * h);
            poison |= (p >> from & 1) << l;
        }
    }
    let origin = w.regs.origin(i.a, pc);
    w.regs.put32(i.d, &t, u32::MAX);
    w.regs.set_poison(i.d, poison, u32::MAX, origin);
}
