//! Operations whose undefined bits are followed one by one: moves, logic, shifts, permutations, packing, narrowing.

use crate::code::{Instr, Op, Pc, RowId};
use crate::exec::lane_integer::prmt;
use crate::exec::rare::lanes_of;
use crate::registers::Registers;

/// Whether [`pure`] knows the operation.
pub fn follows(op: Op) -> bool {
    matches!(
        op,
        Op::Mov32
            | Op::Mov64
            | Op::And32
            | Op::Or32
            | Op::Xor32
            | Op::Not32
            | Op::And64
            | Op::Or64
            | Op::Xor64
            | Op::Not64
            | Op::Shl32
            | Op::ShrU32
            | Op::Shl16
            | Op::ShrU16
            | Op::Shl64
            | Op::ShrU64
            | Op::Prmt
            | Op::Bfe32
            | Op::Selp32
            | Op::Selp64
            | Op::CvtU64U32
            | Op::CvtLow32
            | Op::CvtLow16
            | Op::Pack2x16
            | Op::Pack2x32
            | Op::Unpack2x16
            | Op::Unpack2x32
    )
}

/// Works out the undefined bits of the results; before the values are computed.
pub fn pure(r: &mut Registers, i: &Instr, m: u32, pc: Pc) {
    let (mut low, mut high) = ([0u64; 32], [0u64; 32]);
    for l in lanes_of(m) {
        (low[l], high[l]) = lane(r, i, l);
    }
    let sources = [i.a, i.b, i.c];
    let from = sources.iter().find(|row| r.poison(**row) & m != 0).map_or(pc, |row| r.origin(*row, pc));
    let copied = if matches!(i.op, Op::Mov32 | Op::Mov64) { r.copied(i.a) } else { 0 };
    if matches!(i.op, Op::Unpack2x16 | Op::Unpack2x32) {
        r.set_bits(i.d2, &high, 0, m, from);
    }
    r.set_bits(i.d, &low, copied, m, from);
}

fn lane(r: &Registers, i: &Instr, l: usize) -> (u64, u64) {
    use Op::*;
    let wide = matches!(i.op, And64 | Or64 | Xor64 | Not64 | Shl64 | ShrU64 | Mov64 | Selp64);
    let all = match i.op {
        Shl16 | ShrU16 | CvtLow16 => 0xFFFF,
        _ if wide || matches!(i.op, CvtU64U32 | Pack2x32) => u64::MAX,
        _ => 0xFFFF_FFFF,
    };
    let undefined = |row: RowId| r.undefined_bits(row, l);
    let value = |row: RowId| r.lane(row, wide, l);
    // An amount or a selector of undefined value makes everything undefined.
    let amount = |row: RowId| if r.poison(row) >> l & 1 != 0 { None } else { Some(r.r32(row)[l]) };
    let (ua, ub) = (undefined(i.a), undefined(i.b));
    let low = match i.op {
        Mov32 | Mov64 | Not32 | Not64 => ua,
        // A defined zero settles an and, a defined one an or.
        And32 | And64 => (ua & ub) | (ua & value(i.b)) | (ub & value(i.a)),
        Or32 | Or64 => (ua & ub) | (ua & !value(i.b)) | (ub & !value(i.a)),
        Xor32 | Xor64 => ua | ub,
        Shl32 | Shl16 | Shl64 => match amount(i.b) {
            Some(n) if n < 64 => ua << n,
            Some(_) => 0,
            None => all,
        },
        ShrU32 | ShrU16 | ShrU64 => match amount(i.b) {
            Some(n) if n < 64 => (ua & all) >> n,
            Some(_) => 0,
            None => all,
        },
        Bfe32 => match (amount(i.b), amount(i.c)) {
            (Some(pos), Some(len)) => {
                let (pos, len) = (pos & 0xFF, len & 0xFF);
                let shifted = if pos < 32 { (ua & all) >> pos } else { 0 };
                if len < 32 { shifted & ((1 << len) - 1) } else { shifted }
            }
            _ => all,
        },
        Prmt => match amount(i.c) {
            Some(selector) => {
                let bytes = u64::from(prmt(ua as u32, ub as u32, selector & 0x7777));
                // A replicated sign is undefined as soon as its byte is.
                (0..4).filter(|n| selector >> (4 * n) & 8 != 0).fold(bytes, |bits, n| {
                    let byte = 0xFF << (8 * n);
                    if bits & byte != 0 { bits | byte } else { bits }
                })
            }
            None => all,
        },
        Selp32 | Selp64 => {
            if r.poison(i.c) >> l & 1 != 0 {
                all
            } else if r.pred(i.c) >> l & 1 != 0 {
                ua
            } else {
                ub
            }
        }
        CvtU64U32 => ua & 0xFFFF_FFFF,
        CvtLow32 | CvtLow16 => ua,
        Pack2x16 => ua & 0xFFFF | ub << 16,
        Pack2x32 => ua & 0xFFFF_FFFF | ub << 32,
        Unpack2x16 => return (ua & 0xFFFF, ua >> 16 & 0xFFFF),
        Unpack2x32 => return (ua & 0xFFFF_FFFF, ua >> 32),
        _ => all,
    };
    (low & all, 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::{SINK, ZERO};

    #[test]
    fn bits_are_followed() {
        // Row 5 has undefined bits 0xFF00 in lane 0; row 6 is a defined operand.
        let cases = [
            (Op::And32, 0xFFu32, 0u64),
            (Op::And32, 0x1FF, 0x100),
            (Op::Or32, 0xFF00, 0),
            (Op::Or32, 0x7F00, 0x8000),
            (Op::Xor32, 0, 0xFF00),
            (Op::Shl32, 8, 0xFF_0000),
            (Op::ShrU32, 16, 0),
            (Op::ShrU32, 8, 0xFF),
            (Op::CvtLow16, 0, 0xFF00),
        ];
        for (op, b, expected) in cases {
            let mut r = Registers::new();
            r.push_window(16);
            for row in [ZERO, 6] {
                r.define(row, u32::MAX);
            }
            r.put32(6, &[b; 32], u32::MAX);
            r.put32(5, &[0; 32], u32::MAX);
            r.set_bits(5, &[0xFF00; 32], 0, u32::MAX, 1);
            let i = Instr { d: 8, d2: SINK, a: 5, b: 6, ..Instr::new(op) };
            pure(&mut r, &i, 1, 9);
            assert_eq!(r.undefined_bits(8, 0), expected, "{op:?} {b:#x}");
            assert_eq!(r.poison(8) & 1 == 0, expected == 0);
        }
    }
}
