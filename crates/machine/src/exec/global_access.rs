//! `ld` and `st` of global, const and parameter memory: bounds, alignment, undefined bytes, races (`global_races`).
//!
//! Lanes that do not take part stand at the first active lane's address. Usually all lanes are in one buffer: one look-up then.

use crate::api::FindingKind;
use crate::code::{Area, MemOp, Pc, Width};
use crate::cta::Cta;
use crate::exec::global_races::{self, Lanes, Learns};
use crate::exec::memory::{bad_access, fill, note_place, put, put_defined, put_undefined, undefined_bytes};
use crate::exec::nearly::lanes_apart;
use crate::exec::rare::lanes_of;
use crate::exec::{traffic, undefined};
use crate::memory::{ALL_DEFINED, Buffer, Bytes, DEFINED, slot_of};
use crate::warp::Warp;

/// How the lanes' offsets lie.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    Same,
    /// All lanes active, one after the other.
    Row,
    Any,
}

impl Shape {
    /// The bytes of the one range that all lanes touch.
    #[inline(always)]
    fn range(self, span: usize) -> Option<usize> {
        match self {
            Shape::Same => Some(span),
            Shape::Row => Some(32 * span),
            Shape::Any => None,
        }
    }
}

/// The buffer that holds all lanes' bytes, its slot, their offsets, and how these lie.
#[inline(always)]
fn one_buffer<'m>(
    buffers: &'m [Buffer],
    m: u32,
    at: &[u64; 32],
    span: u64,
) -> Option<(&'m Buffer, usize, [usize; 32], Shape)> {
    let first = at[m.trailing_zeros() as usize & 31];
    let (slot, offset) = slot_of(first)?;
    let b = buffers.get(slot)?;
    let base = first.wrapping_sub(offset as u64);
    let mut t = [0usize; 32];
    let (mut bad, mut differ, mut row) = (0u64, 0u64, 0u64);
    for l in 0..32 {
        let a = if m >> l & 1 != 0 { at[l] } else { first };
        let o = a.wrapping_sub(base);
        // An offset beyond the buffer, or before it: as a number without sign it is huge.
        bad |= u64::from(o > b.bytes) | u64::from(o.wrapping_add(span) > b.bytes) | o & (span - 1);
        differ |= a ^ first;
        row |= a ^ first.wrapping_add(l as u64 * span);
        t[l] = o as usize;
    }
    let shape = match (differ == 0, row == 0 && m == u32::MAX) {
        (true, _) => Shape::Same,
        (_, true) => Shape::Row,
        _ => Shape::Any,
    };
    (bad == 0).then_some((b, slot, t, shape))
}

/// The first lane that is outside every buffer or misaligned, reported.
#[cold]
#[inline(never)]
fn report_bad(cta: &mut Cta, w: &Warp, pc: Pc, m: u32, at: &[u64; 32], span: u64, write: bool) {
    for l in lanes_of(m) {
        if find(cta.m.buffers, at[l], span).is_none() {
            bad_access(cta, w, pc, Area::Global, at[l], span as u32, span as u32, 1 << l, write);
            return;
        }
    }
}

fn find(buffers: &[Buffer], at: u64, span: u64) -> Option<(&Buffer, usize, usize)> {
    let (slot, offset) = slot_of(at)?;
    let b = buffers.get(slot)?;
    (offset >= 0 && offset as u64 + span <= b.bytes && (offset as u64).is_multiple_of(span)).then_some((
        b,
        slot,
        offset as usize,
    ))
}

#[inline(always)]
pub fn load(cta: &mut Cta, w: &mut Warp, op: &MemOp, pc: Pc, m: u32, at: &[u64; 32]) {
    let size = op.bytes as usize;
    let span = size * op.rows.len();
    let machine = cta.m;
    let Some((b, slot, t, shape)) = one_buffer(machine.buffers, m, at, span as u64) else {
        scattered_load(cta, w, op, pc, m, at);
        return;
    };
    let same = shape == Shape::Same;
    for e in 0..op.rows.len() {
        let step = e * size;
        if same {
            put(w, op, e, &[b.data.load(t[0] + step, size); 32], m);
            continue;
        }
        match size {
            1 => fill(w, op, e, m, |l| b.data.load8(t[l] + step).into()),
            2 => fill(w, op, e, m, |l| b.data.load16(t[l] + step).into()),
            4 => fill(w, op, e, m, |l| b.data.load32(t[l] + step).into()),
            _ => fill(w, op, e, m, |l| b.data.load64(t[l] + step)),
        }
    }
    if op.strong {
        acquire(cta, w, m, at, learns(op));
    }
    traffic::global(cta, pc, m, &t, span);
    let lanes = Lanes { slot, mask: m, at: &t, span, range: shape.range(span) };
    global_races::read(cta, w, pc, b, lanes, op.strong);
    let mut bad = 0u64;
    if let Some(s) = b.shadow.as_ref().filter(|_| cta.detects) {
        let all = if size == 8 { ALL_DEFINED } else { ALL_DEFINED & ((1 << (8 * size)) - 1) };
        let lanes = if same { 1 } else { 32 };
        for e in 0..op.rows.len() {
            let step = e * size;
            match size {
                1 => {
                    for o in &t[..lanes] {
                        bad |= u64::from(s.load8(o + step)) ^ all;
                    }
                }
                2 => {
                    for o in &t[..lanes] {
                        bad |= u64::from(s.load16(o + step)) ^ all;
                    }
                }
                4 => {
                    for o in &t[..lanes] {
                        bad |= u64::from(s.load32(o + step)) ^ all;
                    }
                }
                _ => {
                    for o in &t[..lanes] {
                        bad |= s.load64(o + step) ^ all;
                    }
                }
            }
        }
        if bad != 0 {
            let undefined = |e: usize, l: usize| undefined_bits(s, t[l] + e * size, size);
            let first = lanes_of(m).find(|&l| (0..op.rows.len()).any(|e| undefined(e, l) != 0));
            if let Some(l) = first {
                note_place(&mut cta.undefined_places, pc, || machine.global_place(slot, t[l] as i64, span as u32));
            }
            put_undefined(w, op, m, pc, undefined);
            return;
        }
    }
    put_defined(w, op, m);
}

/// The undefined bits of an element.
fn undefined_bits(shadow: &Bytes, at: usize, bytes: usize) -> u64 {
    (0..bytes).fold(0, |a, n| if shadow.load8(at + n) & DEFINED == 0 { a | 0xFF << (8 * n) } else { a })
}

/// Lanes in different buffers, or a bad address among them.
#[cold]
#[inline(never)]
fn scattered_load(cta: &mut Cta, w: &mut Warp, op: &MemOp, pc: Pc, m: u32, at: &[u64; 32]) {
    let size = op.bytes as usize;
    let span = (size * op.rows.len()) as u64;
    let machine = cta.m;
    let mut values = vec![[0u64; 32]; op.rows.len()];
    let mut bits = vec![[0u64; 32]; op.rows.len()];
    for l in lanes_of(m) {
        let Some((b, slot, offset)) = find(machine.buffers, at[l], span) else {
            report_bad(cta, w, pc, m, at, span, false);
            return;
        };
        if op.strong {
            global_races::acquire(cta, w, at[l], learns(op));
        }
        let place = [offset; 32];
        let lanes = Lanes { slot, mask: 1 << l, at: &place, span: span as usize, range: None };
        global_races::read(cta, w, pc, b, lanes, op.strong);
        for (e, v) in values.iter_mut().enumerate() {
            v[l] = b.data.load(offset + e * size, size);
            bits[e][l] = b.shadow.as_ref().map_or(0, |s| undefined_bits(s, offset + e * size, size));
            if bits[e][l] != 0 {
                note_place(&mut cta.undefined_places, pc, || machine.global_place(slot, offset as i64, span as u32));
            }
        }
    }
    for (e, v) in values.iter().enumerate() {
        put(w, op, e, v, m);
    }
    put_undefined(w, op, m, pc, |e, l| bits[e][l]);
}

/// What a strong load learns. A volatile one is a relaxed one (PTX ISA 9.0, "ld.volatile"): what follows may come from a stale L1.
fn learns(op: &MemOp) -> Learns {
    match (op.narrow, op.relaxed) {
        (true, _) => Learns::OfItsCta,
        (false, true) => Learns::AtAFence,
        (false, false) => Learns::Now,
    }
}

/// A strong load has been made: once for each address.
#[cold]
#[inline(never)]
fn acquire(cta: &mut Cta, w: &mut Warp, m: u32, at: &[u64; 32], learns: Learns) {
    w.poll();
    let mut last = None;
    for l in lanes_of(m) {
        if last != Some(at[l]) {
            global_races::acquire(cta, w, at[l], learns);
            last = Some(at[l]);
        }
    }
}

/// A strong store comes next: once for each address.
#[cold]
#[inline(never)]
fn tell(cta: &mut Cta, w: &mut Warp, m: u32, at: &[u64; 32], op: &MemOp) {
    let mut last = None;
    for l in lanes_of(m) {
        if last != Some(at[l]) {
            global_races::tell(cta, w, at[l], op.release, op.narrow);
            last = Some(at[l]);
        }
    }
}

/// A strong store, marked already, is about to be made.
#[cold]
#[inline(never)]
fn release(cta: &mut Cta, w: &mut Warp, m: u32, at: &[u64; 32], op: &MemOp) {
    cta.progressed();
    let mut last = None;
    for l in lanes_of(m) {
        if last != Some(at[l]) {
            global_races::release(cta, w, at[l], op.release, op.narrow);
            w.told.set(true);
            last = Some(at[l]);
        }
    }
}

/// Whether what a lane stores is there already.
#[inline(always)]
fn unchanged(w: &Warp, op: &MemOp, b: &Buffer, offset: usize, l: usize) -> bool {
    let size = op.bytes as usize;
    let cut = if size == 8 { u64::MAX } else { (1 << (8 * size)) - 1 };
    op.rows.iter().enumerate().all(|(e, (row, width))| {
        let at = offset + e * size;
        w.regs.lane(*row, *width == Width::W64, l) & cut == b.data.load(at, size)
            && w.regs.poison(*row) >> l & 1 == 0
            && b.shadow.as_ref().is_none_or(|s| s.load(at, size) == ALL_DEFINED & cut)
    })
}

#[inline(always)]
pub fn store(cta: &mut Cta, w: &mut Warp, op: &MemOp, pc: Pc, m: u32, at: &[u64; 32]) {
    let size = op.bytes as usize;
    let span = (size * op.rows.len()) as u64;
    let machine = cta.m;
    match one_buffer(machine.buffers, m, at, span) {
        Some((b, slot, t, shape)) => {
            if b.read_only {
                refuse(cta, w, pc, m, b, slot, t[0]);
                return;
            }
            if op.strong {
                tell(cta, w, m, at, op);
            }
            traffic::global(cta, pc, m, &t, span as usize);
            let lanes = Lanes { slot, mask: m, at: &t, span: span as usize, range: shape.range(span as usize) };
            global_races::write(cta, w, pc, b, lanes, op.strong, |l| unchanged(w, op, b, t[l], l));
            // What is released has this store in it: who sees its value may overwrite it.
            if op.strong {
                release(cta, w, m, at, op);
            } else {
                global_races::same_place(cta, w, pc, lanes, |l, k| lanes_apart(w, op, l, k));
            }
            for l in lanes_of(m) {
                write(w, op, b, t[l], l);
            }
        }
        None => {
            for l in lanes_of(m) {
                let Some((b, slot, offset)) = find(machine.buffers, at[l], span) else {
                    report_bad(cta, w, pc, m, at, span, true);
                    return;
                };
                if b.read_only {
                    refuse(cta, w, pc, 1 << l, b, slot, offset);
                    return;
                }
                if op.strong {
                    global_races::tell(cta, w, at[l], op.release, op.narrow);
                }
                let place = [offset; 32];
                let lanes = Lanes { slot, mask: 1 << l, at: &place, span: span as usize, range: None };
                global_races::write(cta, w, pc, b, lanes, op.strong, |l| unchanged(w, op, b, offset, l));
                if op.strong {
                    global_races::release(cta, w, at[l], op.release, op.narrow);
                }
                write(w, op, b, offset, l);
            }
        }
    }
    for (row, _) in &op.rows {
        undefined::stored(cta, w, *row, pc, m);
    }
}

#[inline(always)]
fn write(w: &Warp, op: &MemOp, b: &Buffer, offset: usize, l: usize) {
    let size = op.bytes as usize;
    for (e, (row, width)) in op.rows.iter().enumerate() {
        let v = w.regs.lane(*row, *width == Width::W64, l);
        b.data.store(offset + e * size, size, v);
        if let Some(s) = &b.shadow {
            s.store(offset + e * size, size, ALL_DEFINED);
            if w.regs.poison(*row) >> l & 1 != 0 {
                let bytes = undefined_bytes(w, *row, l, op.bytes);
                for n in (0..size).filter(|n| bytes >> n & 1 != 0) {
                    s.store8(offset + e * size + n, 0);
                }
            }
        }
    }
}

#[cold]
#[inline(never)]
fn refuse(cta: &mut Cta, w: &Warp, pc: Pc, lanes: u32, b: &Buffer, slot: usize, offset: usize) {
    let place = cta.m.global_place(slot, offset as i64, 0);
    let text = format!("a write to {} memory ({})", b.space, b.name);
    cta.report(FindingKind::InvalidAccess, w, pc, None, lanes, true, |_| (text, place));
}
