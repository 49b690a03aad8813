//! `vprintf` and `__assertfail`: what CUDA's printf and assert compile to.
//!
//! Conversions are those of C without `%n`; an argument takes 4 or 8 bytes of the buffer at its natural alignment.
//! Source: CUDA C++ Programming Guide, "Formatted Output".

use crate::api::FindingKind;
use crate::code::{Area, CallOp, CallValue, Pc, Width};
use crate::cta::{Cta, MAX_PRINTED};
use crate::exec::memory::classify;
use crate::exec::rare::lanes_of;
use crate::memory::slot_of;
use crate::warp::Warp;

/// Longest text of a printf that is read.
const MAX_TEXT: usize = 4096;

fn argument(w: &Warp, op: &CallOp, n: usize, lane: usize) -> u64 {
    match op.args.get(n) {
        Some(CallValue::Local { offset, bytes }) => {
            w.local.load(lane, w.local_base() + offset, if *bytes >= 8 { 8 } else { 4 }).0
        }
        Some(CallValue::Row { row, width }) => w.regs.lane(*row, *width == Width::W64, lane),
        None => 0,
    }
}

/// A byte of any space, for reading texts.
fn byte(cta: &Cta, w: &Warp, lane: usize, at: u64) -> Option<u8> {
    match classify(at) {
        (Area::Shared, a) => (a < cta.shared.len() as u64).then(|| cta.shared.load(a as usize, 1) as u8),
        (Area::Local, a) => (a < u64::from(w.local.len())).then(|| w.local.load(lane, a as u32, 1).0 as u8),
        (_, a) => {
            let (slot, offset) = slot_of(a)?;
            let b = cta.m.buffers.get(slot)?;
            (offset >= 0 && (offset as u64) < b.bytes).then(|| b.data.load8(offset as usize))
        }
    }
}

fn text(cta: &Cta, w: &Warp, lane: usize, at: u64) -> String {
    let mut bytes = Vec::new();
    while bytes.len() < MAX_TEXT {
        match byte(cta, w, lane, at.wrapping_add(bytes.len() as u64)) {
            None | Some(0) => break,
            Some(b) => bytes.push(b),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

pub fn vprintf(cta: &mut Cta, w: &mut Warp, op: &CallOp, m: u32) {
    for lane in lanes_of(m) {
        if cta.printed.len() >= MAX_PRINTED {
            break;
        }
        let format = text(cta, w, lane, argument(w, op, 0, lane));
        let from = argument(w, op, 1, lane);
        let mut at = from;
        let mut next = |bytes: u64| {
            at = at.next_multiple_of(bytes);
            let v = (0..bytes).fold(0, |v, n| v | u64::from(byte(cta, w, lane, at + n).unwrap_or(0)) << (8 * n));
            at += bytes;
            v
        };
        let line = render(&format, &mut next, &|at| text(cta, w, lane, at));
        let room = MAX_PRINTED - cta.printed.len();
        cta.printed.extend(line.chars().scan(0, |used, c| {
            *used += c.len_utf8();
            (*used <= room).then_some(c)
        }));
    }
    if let [CallValue::Local { offset, .. }] = op.returns[..] {
        let base = w.local_base();
        for lane in lanes_of(m) {
            w.local.store(lane, base + offset, 4, 0, true);
        }
    } else if let [CallValue::Row { row, .. }] = op.returns[..] {
        w.regs.put32(row, &[0; 32], m);
        w.regs.define(row, m);
    }
}

/// printf's formatting.
fn render(format: &str, next: &mut dyn FnMut(u64) -> u64, string: &dyn Fn(u64) -> String) -> String {
    let mut out = String::new();
    let mut chars = format.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let (mut flags, mut width, mut precision, mut long) = (String::new(), String::new(), None::<String>, 0);
        while let Some(&f) = chars.peek().filter(|f| "-+ #0".contains(**f)) {
            flags.push(f);
            chars.next();
        }
        let mut number = |chars: &mut std::iter::Peekable<std::str::Chars>| {
            let mut digits = String::new();
            while let Some(&d) = chars.peek().filter(|d| d.is_ascii_digit() || **d == '*') {
                chars.next();
                if d == '*' { digits = (next(4) as i32).to_string() } else { digits.push(d) }
            }
            digits
        };
        width.push_str(&number(&mut chars));
        if chars.peek() == Some(&'.') {
            chars.next();
            precision = Some(number(&mut chars));
        }
        while let Some(&l) = chars.peek().filter(|l| "hlLzjt".contains(**l)) {
            long += usize::from(l != 'h');
            chars.next();
        }
        let Some(kind) = chars.next() else { break };
        let places = precision.as_ref().map(|p| p.parse::<usize>().unwrap_or(0).min(100));
        let body = match kind {
            '%' => "%".to_string(),
            'd' | 'i' => (if long > 0 { next(8) as i64 } else { i64::from(next(4) as i32) }).to_string(),
            'u' => (if long > 0 { next(8) } else { next(4) }).to_string(),
            'x' => format!("{:x}", if long > 0 { next(8) } else { next(4) }),
            'X' => format!("{:X}", if long > 0 { next(8) } else { next(4) }),
            'o' => format!("{:o}", if long > 0 { next(8) } else { next(4) }),
            'c' => char::from(next(4) as u8).to_string(),
            'p' => format!("{:#x}", next(8)),
            's' => {
                let s = string(next(8));
                places.map_or(s.clone(), |p| s.chars().take(p).collect())
            }
            'f' | 'F' => format!("{:.*}", places.unwrap_or(6), f64::from_bits(next(8))),
            'e' | 'E' => exponent(f64::from_bits(next(8)), places.unwrap_or(6)),
            'g' | 'G' | 'a' | 'A' => format!("{}", f64::from_bits(next(8))),
            other => format!("%{other}"),
        };
        let body = if flags.contains('+') && "dif".contains(kind) && !body.starts_with('-') {
            format!("+{body}")
        } else {
            body
        };
        let width: i64 = width.parse().unwrap_or(0);
        let pad = (width.unsigned_abs() as usize).min(1000).saturating_sub(body.chars().count());
        if flags.contains('-') || width < 0 {
            out.push_str(&body);
            out.extend(std::iter::repeat_n(' ', pad));
        } else if flags.contains('0') && "diuxXfeEgo".contains(kind) {
            let (sign, digits) = body.strip_prefix('-').map_or(("", body.as_str()), |d| ("-", d));
            out.push_str(sign);
            out.extend(std::iter::repeat_n('0', pad));
            out.push_str(digits);
        } else {
            out.extend(std::iter::repeat_n(' ', pad));
            out.push_str(&body);
        }
    }
    out
}

/// C's `%e`: at least two digits of exponent, with a sign.
fn exponent(v: f64, places: usize) -> String {
    let s = format!("{v:.places$e}");
    match s.split_once('e') {
        Some((mantissa, e)) => {
            let (sign, digits) = e.strip_prefix('-').map_or(('+', e), |d| ('-', d));
            format!("{mantissa}e{sign}{digits:0>2}")
        }
        None => s,
    }
}

pub fn assert_fail(cta: &mut Cta, w: &mut Warp, op: &CallOp, pc: Pc, m: u32) {
    let lane = m.trailing_zeros() as usize;
    let what = text(cta, w, lane, argument(w, op, 0, lane));
    let file = text(cta, w, lane, argument(w, op, 1, lane));
    let line = argument(w, op, 2, lane) as u32;
    cta.report(FindingKind::AssertFailed, w, pc, None, m, true, |_| {
        (format!("assertion `{what}` failed ({file}:{line})"), None)
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats() {
        let run = |format: &str, args: &[u64]| {
            let mut left = args.iter().copied();
            render(format, &mut |_| left.next().unwrap_or(0), &|at| format!("<{at}>"))
        };
        for (format, args, expected) in [
            ("i=%d x=%08x\n", &[u64::from(-3i32 as u32), 0xAB][..], "i=-3 x=000000ab\n"),
            ("%5.2f|%-6d|%e", &[1.5f64.to_bits(), 7, 12345.678f64.to_bits()], " 1.50|7     |1.234568e+04"),
            ("%s %c %% %lld", &[9, 65, u64::MAX], "<9> A % -1"),
            ("%", &[], ""),
        ] {
            assert_eq!(run(format, args), expected);
        }
    }
}
