//! `cvt` and the conversions of addresses: `cvta`, `isspacep`.
//! Source: PTX ISA 9.0, "Data Movement and Conversion Instructions: cvt, cvt.pack, cvta, isspacep".

use warpsmith_ptx::ast::{Instruction, Operand, Ty};

use super::integer::{arity, is_float};
use super::{Decoded, Decoder, Mods, push, type_word, width_of};
use crate::code::*;
use crate::exec::lane_convert::{self as lane, Kind};

fn kind(ty: Ty) -> Option<Kind> {
    Some(match ty {
        Ty::U8 | Ty::B8 => Kind::U8,
        Ty::S8 => Kind::S8,
        Ty::U16 | Ty::B16 => Kind::U16,
        Ty::S16 => Kind::S16,
        Ty::U32 | Ty::B32 => Kind::U32,
        Ty::S32 => Kind::S32,
        Ty::U64 | Ty::B64 => Kind::U64,
        Ty::S64 => Kind::S64,
        Ty::F16 => Kind::F16,
        Ty::Bf16 => Kind::Bf16,
        Ty::F32 => Kind::F32,
        Ty::F64 => Kind::F64,
        _ => return None,
    })
}

impl Decoder<'_> {
    pub(super) fn convert(&mut self, mnemonic: &str, i: &Instruction, m: &mut Mods) -> Option<Decoded> {
        Some(match mnemonic {
            "cvt" => self.cvt(i, m),
            "cvta" => self.cvta(i, m),
            "isspacep" => self.isspacep(i, m),
            _ => return None,
        })
    }

    fn cvt(&mut self, i: &Instruction, m: &mut Mods) -> Decoded {
        if m.take("pack") {
            return self.cvt_pack(i, m);
        }
        let rounding = m.find(|w| {
            Some(match w {
                "rn" => lane::RN,
                "rz" => lane::RZ,
                "rm" => lane::RM,
                "rp" => lane::RP,
                "rni" => lane::RNI,
                "rzi" => lane::RZI,
                "rmi" => lane::RMI,
                "rpi" => lane::RPI,
                "rna" => lane::RNA,
                _ => return None,
            })
        });
        let mut flags = 0;
        for (word, bit) in
            [("ftz", lane::FTZ), ("sat", lane::SAT), ("relu", lane::RELU), ("satfinite", lane::SATFINITE)]
        {
            if m.take(word) {
                flags |= bit;
            }
        }
        let words: Vec<String> = m.words.drain(..).map(str::to_string).collect();
        let [to, from] = &words[..] else { return Err("types".into()) };
        if to.ends_with("x2") || from.ends_with("x2") {
            return self.cvt_packed(i, to, from, rounding.unwrap_or(lane::RN), flags);
        }
        let (Some(to_ty), to_tf32) = (type_word(if to == "tf32" { "b32" } else { to }), to == "tf32") else {
            return Err("type".into());
        };
        let from_ty = type_word(from).ok_or("type")?;
        let to_kind = if to_tf32 { Kind::Tf32 } else { kind(to_ty).ok_or("type")? };
        let from_kind = kind(from_ty).ok_or("type")?;
        let float = is_float(to_ty) || is_float(from_ty) || to_tf32;
        let rounding = rounding.unwrap_or(lane::NONE);
        arity(i, 2)?;
        // The destination register may be wider than the type (the result is extended), the source too (it is cut).
        let (d, dw) = self.dst_any(&i.operands[0])?;
        let (a, aw) = self.src_any(&i.operands[1], from_ty)?;
        let exact = dw == width_of(to_ty)? && aw == width_of(from_ty)?;
        if exact && flags & !lane::FTZ == 0 {
            let fast = match (to_ty, from_ty, rounding) {
                (Ty::U64 | Ty::S64, Ty::U32, _) => Some(Op::CvtU64U32),
                (Ty::U64 | Ty::S64, Ty::S32, _) => Some(Op::CvtS64S32),
                (Ty::U32 | Ty::S32, Ty::U64 | Ty::S64, _) => Some(Op::CvtLow32),
                (Ty::U16 | Ty::S16, Ty::U32 | Ty::S32, _) => Some(Op::CvtLow16),
                (Ty::U32 | Ty::S32, Ty::U16, _) => Some(Op::Mov32),
                (Ty::F32, Ty::S32, lane::RN) => Some(Op::CvtF32S32),
                (Ty::F32, Ty::U32, lane::RN) => Some(Op::CvtF32U32),
                (Ty::F32, Ty::Bf16, lane::NONE) if flags == 0 => {
                    // The upper half of an f32, NaN included.
                    let sixteen = self.word(16);
                    return Ok(Instr::with(Op::Shl32, d, a, sixteen, ZERO));
                }
                (Ty::F32, Ty::F16, lane::NONE) if flags == 0 => Some(Op::CvtF32F16),
                (Ty::F16, Ty::F32, lane::RN) if flags == 0 => Some(Op::CvtF16F32),
                _ => None,
            };
            if let (Some(op), false) = (fast, to_tf32) {
                return Ok(Instr::with(op, d, a, ZERO, ZERO));
            }
        }
        if float && rounding == lane::NONE && is_float(from_ty) && !is_float(to_ty) && !to_tf32 {
            return Err("no rounding".into());
        }
        // Sub-word results are sign-extended into a wider register for signed types; 16-bit registers keep 16 bits.
        let sixteen = matches!(i.operands[0], Operand::Reg(r) if super::bytes_of(self.f.registers[r as usize].ty) == 2);
        let imm = lane::imm(to_kind, from_kind, rounding, flags) | if sixteen { lane::CUT16 } else { 0 };
        let mut instr = Instr { imm: imm as i64, ..Instr::with(Op::Lane, d, a, ZERO, ZERO) };
        let side =
            LaneOp { fun: lane::scalar, d: dw, a: aw, b: Width::W32, c: Width::W32, cut: 64, approximate: false };
        instr.side = push(&mut self.sides.lanes, side);
        Ok(instr)
    }

    /// `cvt.pack.sat.u8.s32.b32 d, a, b, c;` and `cvt.pack.sat.s16.s32 d, a, b;`
    fn cvt_pack(&mut self, i: &Instruction, m: &mut Mods) -> Decoded {
        let sat = m.take("sat");
        let (to, from) = (m.ty()?, m.ty()?);
        let narrow = matches!(to, Ty::U8 | Ty::S8);
        if !sat || !matches!(from, Ty::S32 | Ty::U32) || !(narrow || matches!(to, Ty::U16 | Ty::S16)) {
            return Err("pack form".into());
        }
        if narrow && m.ty()? != Ty::B32 {
            return Err("pack form".into());
        }
        let imm = kind(to).ok_or("type")? as u64 | if from == Ty::S32 { 16 } else { 0 };
        let three = [from, from, Ty::B32];
        self.lane(lane::pack, imm, i, Ty::B32, if narrow { &three } else { &three[..2] })
    }

    fn cvt_packed(&mut self, i: &Instruction, to: &str, from: &str, rounding: u64, flags: u64) -> Decoded {
        use lane::Packed;
        let (to, from) = (Packed::word(to), Packed::word(from));
        let (Some(to), Some(from)) = (to, from) else { return Err("packed types".into()) };
        let two = i.operands.len() == 3;
        if two != (from == Packed::F32) {
            return Err("packed operands".into());
        }
        arity(i, if two { 3 } else { 2 })?;
        let d = self.dst(&i.operands[0], Width::W32)?;
        let ty = match from {
            Packed::F32 => Ty::F32,
            Packed::E4m3x2 | Packed::E5m2x2 => Ty::B16,
            Packed::F16x2 | Packed::Bf16x2 => Ty::B32,
        };
        let a = self.src(&i.operands[1], ty)?;
        let b = if two { self.src(&i.operands[2], ty)? } else { ZERO };
        let fast = match (to, from, rounding, flags) {
            (Packed::F16x2, Packed::F32, lane::RN, 0) => Some(Op::CvtF16x2F32),
            (Packed::Bf16x2, Packed::F32, lane::RN, 0) => Some(Op::CvtBf16x2F32),
            (Packed::F16x2, Packed::E4m3x2, lane::RN, 0) => Some(Op::CvtF16x2E4m3x2),
            (Packed::E4m3x2, Packed::F32, lane::RN, lane::SATFINITE) => Some(Op::CvtE4m3x2F32),
            _ => None,
        };
        if let Some(op) = fast {
            return Ok(Instr::with(op, d, a, b, ZERO));
        }
        let to_fp8 = matches!(to, Packed::E4m3x2 | Packed::E5m2x2);
        if to == Packed::F32 || (to_fp8 && flags & lane::SATFINITE == 0) {
            return Err("packed form".into());
        }
        let mut instr =
            Instr { imm: lane::packed_imm(to, from, rounding, flags) as i64, ..Instr::with(Op::Lane, d, a, b, ZERO) };
        let w = Width::W32;
        let side = LaneOp { fun: lane::packed, d: w, a: w, b: w, c: w, cut: 64, approximate: false };
        instr.side = push(&mut self.sides.lanes, side);
        Ok(instr)
    }

    fn cvta(&mut self, i: &Instruction, m: &mut Mods) -> Decoded {
        let to = m.take("to");
        let space = m
            .find(|w| {
                Some(match w {
                    "global" | "const" | "param" | "param::entry" => Area::Global,
                    "shared" | "shared::cta" | "shared::cluster" => Area::Shared,
                    "local" => Area::Local,
                    _ => return None,
                })
            })
            .ok_or("space")?;
        let ty = m.ty()?;
        if ty != Ty::U64 {
            return Err("32-bit addresses".into());
        }
        arity(i, 2)?;
        let base = match space {
            Area::Shared => crate::memory::SHARED_WINDOW,
            Area::Local => crate::memory::LOCAL_WINDOW,
            _ => return self.pure(Op::Mov64, i, ty, &[ty]),
        };
        let d = self.dst(&i.operands[0], Width::W64)?;
        let a = match &i.operands[1] {
            // `cvta.shared.u64 %rd, variable;`
            Operand::Symbol(name, offset) => self.symbol(name, *offset, true)?,
            o => self.src(o, ty)?,
        };
        let b = self.wide(if to { base.wrapping_neg() } else { base });
        Ok(Instr::with(Op::Add64, d, a, b, ZERO))
    }

    fn isspacep(&mut self, i: &Instruction, m: &mut Mods) -> Decoded {
        let space = m
            .find(|w| {
                Some(match w {
                    "global" | "const" => 0,
                    "shared" | "shared::cta" | "shared::cluster" => 1,
                    "local" => 2,
                    _ => return None,
                })
            })
            .ok_or("space")?;
        self.lane(lane::is_space, space, i, Ty::Pred, &[Ty::U64])
    }
}
