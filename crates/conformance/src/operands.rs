//! What forms are applied to: random bits, special values, and values that meet each other. The same in every run.

use warpsmith_machine::forms::{Form, GLOBAL_BYTES, Kernel, trial::Operands};
use warpsmith_num::splitmix::SplitMix64;

/// Bits of exponent and mantissa.
fn layout(ty: &str) -> Option<(u32, u32)> {
    Some(match ty {
        "f16" => (5, 10),
        "bf16" => (8, 7),
        "f32" | "tf32" => (8, 23),
        "f64" => (11, 52),
        "e4m3" => (4, 3),
        "e5m2" => (5, 2),
        _ => return None,
    })
}

/// A floating-point number. Kinds: 0 any bits or a special value, 1 about one, so that sums cancel, 2 the same with subnormal numbers, 3 with
/// infinities and NaN now and then.
fn float(ty: (u32, u32), kind: u64, r: &mut SplitMix64) -> u64 {
    let (e, m) = ty;
    let (sign, bias) = (r.below(2) << (e + m), (1u64 << (e - 1)) - 1);
    let fraction = r.bits() & ((1 << m) - 1);
    let top = ((1u64 << e) - 1) << m;
    let about_one = sign | (bias + r.below(7) - 3) << m | fraction;
    match (kind, r.below(16)) {
        (0, 0..=3) => {
            let specials = [
                0,
                1,
                (1 << m) - 1,
                1 << m,
                bias << m,
                (bias << m) + 1,
                (bias << m) - 1,
                top - 1,
                top,
                top | 1 << (m - 1),
                (bias + u64::from(m)) << m,
            ];
            sign | specials[r.below(specials.len() as u64) as usize]
        }
        (0, 4..=8) => r.bits() >> (63 - e - m),
        (0, _) => {
            let spread = bias.min(12);
            sign | (bias + r.below(2 * spread) - spread).min((1 << e) - 1) << m | fraction
        }
        (2, 0..=7) => sign | fraction,
        (3, 0) if r.below(8) == 0 => sign | top | if r.below(2) == 0 { 0 } else { 1 << (m - 1) },
        _ => about_one,
    }
}

fn integer(bits: u32, r: &mut SplitMix64) -> u64 {
    let mask = u64::MAX >> (64 - bits);
    let value = match r.below(8) {
        0 => [0, 1, 2, 31, 32, 33, 63, 64, 255, mask, mask >> 1, (mask >> 1) + 1][r.below(12) as usize],
        1 | 2 => r.bits() >> (64 - 1 - r.below(u64::from(bits))),
        _ => r.bits(),
    };
    value & mask
}

/// The element type that registers of a matrix product are packed with, if the form is one.
fn packed(form: &Form) -> Option<&'static str> {
    if !form.opcode.contains("mma.") {
        return None;
    }
    ["e4m3", "e5m2", "bf16", "tf32", "f16", "f64"].into_iter().find(|t| form.opcode.split('.').skip(1).any(|w| w == *t))
}

/// One operand.
fn operand(ty: &str, element: Option<&str>, kind: u64, r: &mut SplitMix64) -> u64 {
    if let (Some(l), "b32") = (element.and_then(layout), ty) {
        let width = 1 + l.0 + l.1;
        return (0..32 / width).fold(0, |v, n| v | float(l, kind, r) << (n * width));
    }
    match ty {
        "pred" => r.below(2),
        "f16x2" | "bf16x2" => {
            let l = layout(ty.trim_end_matches("x2")).unwrap_or((5, 10));
            float(l, 0, r) | float(l, 0, r) << 16
        }
        "b8" | "u8" | "s8" => integer(8, r),
        "b16" | "u16" | "s16" => integer(16, r),
        "b64" | "u64" | "s64" => integer(64, r),
        ty => match layout(ty) {
            Some(l) => float(l, if element.is_some() { kind } else { 0 }, r),
            None => integer(32, r),
        },
    }
}

/// Operands of so many threads.
pub fn operands(form: &Form, k: &Kernel, threads: usize) -> Operands {
    let seed =
        form.name().bytes().fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
    let mut r = SplitMix64(seed);
    let element = packed(form);
    let mut records = vec![0; threads * k.input_bytes];
    for t in 0..threads {
        for slot in &k.inputs {
            let value = operand(&slot.ty, element, t as u64 / 32 % 4, &mut r);
            let at = t * k.input_bytes + slot.offset;
            records[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
    }
    // Atomics and loads of floats meet numbers too: a word in four is one about one.
    let mut memory = vec![0; if k.memory { threads * GLOBAL_BYTES } else { 16 }];
    for word in memory.chunks_exact_mut(4) {
        let value = if r.below(4) == 0 { !(float((8, 23), 1, &mut r) as u32) } else { r.bits() as u32 };
        word.copy_from_slice(&value.to_le_bytes());
    }
    Operands { threads, records, memory }
}
