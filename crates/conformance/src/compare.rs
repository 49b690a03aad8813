//! Two results of one form, slot by slot.

use warpsmith_machine::forms::trial::{Operands, Results};
use warpsmith_machine::forms::vectors::{bits_of, value};
use warpsmith_machine::forms::{Kernel, Slot};

/// What a comparison found.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Compared {
    pub threads: usize,
    /// Threads whose results differ, NaN against NaN aside.
    pub differ: usize,
    /// Results that are NaN on both sides, with other bits.
    pub nan_bits: usize,
    /// Largest difference of finite floats in units of the last place; `u64::MAX` where one side is NaN, or infinite and the other is not near.
    pub ulp: u64,
    /// Largest difference of f32 results below one in magnitude: what PTX bounds sin, cos, and lg2 near one by, for the last place of a
    /// result near zero says nothing.
    pub absolute: f64,
    /// The first difference, for people.
    pub first: Option<String>,
}

/// Exponent and mantissa bits of a float type, elements in a slot.
fn floats(ty: &str) -> Option<(u32, u32, u32)> {
    Some(match ty {
        "f16" => (5, 10, 1),
        "f16x2" => (5, 10, 2),
        "bf16" => (8, 7, 1),
        "bf16x2" => (8, 7, 2),
        "f32" => (8, 23, 1),
        "f64" => (11, 52, 1),
        _ => return None,
    })
}

/// Distance of two codes of a format along the number line; None: both NaN.
fn ulp((e, m): (u32, u32), a: u64, b: u64) -> Option<u64> {
    let sign = 1u64 << (e + m);
    let nan = |v: u64| v & (sign - 1) > ((1 << e) - 1) << m;
    match (nan(a), nan(b)) {
        (true, true) => return None,
        (true, false) | (false, true) => return Some(u64::MAX),
        _ => {}
    }
    let place = |v: u64| if v & sign != 0 { -i128::from(v & (sign - 1)) } else { i128::from(v) };
    Some(place(a).abs_diff(place(b)).min(u128::from(u64::MAX)) as u64)
}

/// Compares what two backends made of the same operands.
pub fn compare(k: &Kernel, operands: &Operands, ours: &Results, theirs: &Results) -> Compared {
    let mut out = Compared { threads: operands.threads, ..Compared::default() };
    let per_thread = operands.memory.len() / operands.threads;
    for t in 0..operands.threads {
        let mut wrong = None;
        for slot in &k.outputs {
            let (a, b) = (value(k, &ours.records, t, slot), value(k, &theirs.records, t, slot));
            if a != b && slot_differs(slot, a, b, &mut out) {
                wrong.get_or_insert_with(|| format!("{}: machine {a:x}, device {b:x}", slot.ty));
            }
        }
        let range = t * per_thread..(t + 1) * per_thread;
        if k.memory && ours.memory.get(range.clone()) != theirs.memory.get(range.clone()) {
            let at = range.clone().find(|n| ours.memory.get(*n) != theirs.memory.get(*n)).unwrap_or(range.start);
            let byte = |m: &[u8]| m.get(at).copied().unwrap_or_default();
            let what = format!(
                "byte {}: machine {:x}, device {:x}",
                at - range.start,
                byte(&ours.memory),
                byte(&theirs.memory)
            );
            wrong.get_or_insert(what);
        }
        if let Some(what) = wrong {
            out.differ += 1;
            out.first.get_or_insert_with(|| format!("thread {t}, operands {:x?}: {what}", inputs(k, operands, t)));
        }
    }
    out
}

fn slot_differs(slot: &Slot, a: u64, b: u64, out: &mut Compared) -> bool {
    let Some((e, m, elements)) = floats(&slot.ty) else { return true };
    let (bits, mut differs) = (1 + e + m, false);
    for n in 0..elements {
        let part = |v: u64| v >> (n * bits) & (u64::MAX >> (64 - bits));
        match ulp((e, m), part(a), part(b)) {
            _ if part(a) == part(b) => {}
            None => out.nan_bits += 1,
            Some(distance) => {
                out.ulp = out.ulp.max(distance);
                if slot.ty == "f32" {
                    let [ours, theirs] = [a, b].map(|v| f64::from(f32::from_bits(v as u32)));
                    if ours.abs() < 1.0 && theirs.is_finite() {
                        out.absolute = out.absolute.max((ours - theirs).abs());
                    }
                }
                differs = true;
            }
        }
    }
    differs
}

/// A thread's operands.
pub fn inputs(k: &Kernel, operands: &Operands, thread: usize) -> Vec<u64> {
    let read = |slot: &Slot| {
        let at = thread * k.input_bytes + slot.offset;
        let bytes = operands.records.get(at..at + 8).and_then(|b| b.try_into().ok()).unwrap_or_default();
        u64::from_le_bytes(bytes) & (u64::MAX >> (64 - bits_of(&slot.ty)))
    };
    k.inputs.iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::ulp;

    #[test]
    fn distances_along_the_number_line() {
        let f = (8, 23);
        let bits = |v: f32| u64::from(v.to_bits());
        assert_eq!(ulp(f, bits(1.0), bits(1.0)), Some(0));
        assert_eq!(ulp(f, bits(1.0), bits(1.0f32.next_up())), Some(1));
        assert_eq!(ulp(f, bits(0.0), bits(-0.0)), Some(0));
        assert_eq!(ulp(f, 1, 1 << 31 | 1), Some(2));
        assert_eq!(ulp(f, bits(f32::MAX), bits(f32::INFINITY)), Some(1));
        assert_eq!(ulp(f, bits(f32::NAN), bits(1.0)), Some(u64::MAX));
        assert_eq!(ulp(f, bits(f32::NAN), 0x7FFF_FFFF), None);
    }
}
