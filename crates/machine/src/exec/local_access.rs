//! `ld.local` and `st.local` of 32 lanes: bounds, alignment, undefined bytes.

use crate::api::Place;
use crate::code::{Area, MemOp, Pc, Width};
use crate::cta::Cta;
use crate::exec::memory::{bad_access, note_place, put, put_defined, put_undefined};
use crate::exec::rare::lanes_of;
use crate::warp::Warp;

/// Whether all active lanes have one offset; None: a finding ended the run.
fn checked(cta: &mut Cta, w: &Warp, pc: Pc, m: u32, at: &[u64; 32], span: u64, write: bool) -> Option<bool> {
    let limit = u64::from(w.local.len());
    let align = span.min(16);
    for l in lanes_of(m) {
        if !at[l].is_multiple_of(align) || at[l].saturating_add(span) > limit {
            bad_access(cta, w, pc, Area::Local, at[l], span as u32, align as u32, 1 << l, write);
            return None;
        }
    }
    let first = at[m.trailing_zeros() as usize & 31];
    Some(lanes_of(m).all(|l| at[l] == first))
}

pub fn load(cta: &mut Cta, w: &mut Warp, op: &MemOp, pc: Pc, m: u32, at: &[u64; 32]) {
    let span = u64::from(op.bytes) * op.rows.len() as u64;
    let Some(same) = checked(cta, w, pc, m, at, span, false) else { return };
    let first = at[m.trailing_zeros() as usize & 31] as u32;
    let mut poison = 0;
    for e in 0..op.rows.len() {
        let step = e as u32 * op.bytes;
        if same && op.bytes == 4 && op.rows[e].1 == Width::W32 {
            let (row, defined) = w.local.row(first + step);
            let row = *row;
            poison |= m & !defined;
            w.regs.put32(op.rows[e].0, &row, m);
            continue;
        }
        let mut v = [0u64; 32];
        for l in lanes_of(m) {
            let (value, ok) = w.local.load(l, at[l] as u32 + step, op.bytes);
            v[l] = value;
            poison |= u32::from(!ok) << l;
        }
        put(w, op, e, &v, m);
    }
    let mut origin = pc;
    if poison != 0 {
        let l = poison.trailing_zeros() as usize;
        origin = w.local.origin(l, at[l] as u32).unwrap_or(pc);
        let f = &cta.m.code.functions[w.frames[w.frame].function];
        let offset = at[l] as i64 - i64::from(w.local_base());
        note_place(&mut cta.undefined_places, pc, || {
            let near = f.locals.iter().rev().find(|n| i64::from(n.offset) <= offset)?;
            // The compiler's own name for a function's arrays says nothing to people.
            let object = (!near.name.starts_with("__local_depot")).then(|| near.name.clone());
            let offset = offset - i64::from(near.offset);
            Some(Place { space: "local", object, offset, bytes: span as u32, object_bytes: near.bytes.into() })
        });
    }
    if poison == 0 {
        put_defined(w, op, m);
        return;
    }
    let mut bits = vec![[0u64; 32]; op.rows.len()];
    for (e, of_lane) in bits.iter_mut().enumerate() {
        for l in lanes_of(m) {
            of_lane[l] = w.local.undefined_bits(l, at[l] as u32 + e as u32 * op.bytes, op.bytes);
        }
    }
    put_undefined(w, op, m, origin, |e, l| bits[e][l]);
}

pub fn store(cta: &mut Cta, w: &mut Warp, op: &MemOp, pc: Pc, m: u32, at: &[u64; 32]) {
    let span = u64::from(op.bytes) * op.rows.len() as u64;
    let Some(same) = checked(cta, w, pc, m, at, span, true) else { return };
    let first = at[m.trailing_zeros() as usize & 31] as u32;
    for (e, (row, width)) in op.rows.iter().enumerate() {
        let step = e as u32 * op.bytes;
        let p = w.regs.poison(*row) & m;
        if same && op.bytes == 4 && p == 0 && *width == Width::W32 {
            w.local.store_row(first + step, w.regs.r32(*row), m);
            continue;
        }
        for l in lanes_of(m) {
            let v = w.regs.lane(*row, *width == Width::W64, l);
            w.local.store(l, at[l] as u32 + step, op.bytes, v, true);
            if p >> l & 1 != 0 {
                let bits = w.regs.undefined_bits(*row, l) & (u64::MAX >> (64 - 8 * op.bytes));
                w.local.undefine(l, at[l] as u32 + step, bits);
                let origin = w.regs.origin(*row, pc);
                w.local.set_origin(l, at[l] as u32 + step, origin);
            }
        }
    }
}
