//! Integer, logic, shift, comparison, selection and move instructions.
//! Source: PTX ISA 9.0, "Integer Arithmetic", "Extended-Precision", "Comparison and Selection", "Logic and Shift", "Data Movement: mov".

use warpsmith_ptx::ast::{Instruction, Operand, Ty};

use super::{Decoded, Decoder, Mods, Unsupported, bytes_of, is_signed, push, type_word, width_of};
use crate::code::*;
use crate::exec::lane_integer as lane;

impl Mods<'_> {
    /// The last type word, left in place.
    pub(crate) fn peek_ty(&self) -> Option<Ty> {
        self.words.iter().rev().find_map(|w| type_word(w))
    }
}

pub(crate) fn is_float(ty: Ty) -> bool {
    matches!(ty, Ty::F16 | Ty::F16x2 | Ty::Bf16 | Ty::Bf16x2 | Ty::F32 | Ty::F64)
}

/// Bits that a destination of this type keeps in its row.
fn cut_of(ty: Ty) -> u8 {
    if bytes_of(ty) == 2 { 16 } else { 64 }
}

/// The operand at `n`.
pub(crate) fn operand(i: &Instruction, n: usize) -> Result<&Operand, Unsupported> {
    i.operands.get(n).ok_or_else(|| "too few operands".into())
}

/// Exactly `n` operands.
pub(crate) fn arity(i: &Instruction, n: usize) -> Result<(), Unsupported> {
    if i.operands.len() == n { Ok(()) } else { Err(format!("{} operands", i.operands.len())) }
}

impl Decoder<'_> {
    /// An instruction `d, a[, b[, c]]` of given types.
    pub(crate) fn pure(&mut self, op: Op, i: &Instruction, d: Ty, srcs: &[Ty]) -> Decoded {
        arity(i, srcs.len() + 1)?;
        let d = self.dst(&i.operands[0], width_of(d)?)?;
        let mut rows = [ZERO; 3];
        for (n, ty) in srcs.iter().enumerate() {
            rows[n] = self.src(&i.operands[n + 1], *ty)?;
        }
        Ok(Instr::with(op, d, rows[0], rows[1], rows[2]))
    }

    /// The same, run lane by lane by `fun`.
    pub(crate) fn lane(&mut self, fun: LaneFn, imm: u64, i: &Instruction, d: Ty, srcs: &[Ty]) -> Decoded {
        let mut instr = self.pure(Op::Lane, i, d, srcs)?;
        let width = |n: usize| srcs.get(n).map_or(Ok(Width::W32), |t| width_of(*t));
        instr.imm = imm as i64;
        let side = LaneOp {
            fun,
            d: width_of(d)?,
            a: width(0)?,
            b: width(1)?,
            c: width(2)?,
            cut: cut_of(d),
            approximate: false,
        };
        instr.side = push(&mut self.sides.lanes, side);
        Ok(instr)
    }

    pub(super) fn integer(&mut self, mnemonic: &str, i: &Instruction, m: &mut Mods) -> Option<Decoded> {
        let ty = m.peek_ty();
        let float = ty.is_some_and(is_float);
        Some(match mnemonic {
            "mov" => self.mov(i, m),
            "setp" | "set" => self.setp(mnemonic == "set", i, m),
            "selp" => self.selp(i, m),
            "slct" => self.slct(i, m),
            "add" | "sub" if !float => self.add_sub(mnemonic == "sub", i, m),
            "addc" | "subc" | "madc" => self.carry(mnemonic, i, m),
            "mul" if !float => self.mul(i, m),
            "mad" if !float => self.mad(i, m),
            "mul24" | "mad24" => self.mul24(mnemonic, i, m),
            "min" | "max" if !float => self.min_max(mnemonic == "max", i, m),
            "div" | "rem" if !float => self.div_rem(mnemonic == "rem", i, m),
            "abs" | "neg" if !float => self.abs_neg(mnemonic == "neg", i, m),
            "and" | "or" | "xor" | "not" | "cnot" => self.logic(mnemonic, i, m),
            "shl" | "shr" => self.shift(mnemonic == "shl", i, m),
            "shf" => self.funnel(i, m),
            "sad" | "popc" | "clz" | "brev" | "bfe" | "bfi" | "bfind" | "fns" | "szext" | "bmsk" => {
                self.bits(mnemonic, i, m)
            }
            "prmt" => self.prmt(i, m),
            "lop3" => self.lop3(i, m),
            "dp4a" | "dp2a" => self.dot(mnemonic, i, m),
            "vadd4" | "vsub4" | "vavrg4" | "vabsdiff4" | "vmin4" | "vmax4" | "vadd2" | "vsub2" | "vavrg2"
            | "vabsdiff2" | "vmin2" | "vmax2" | "vset2" | "vset4" => self.video(mnemonic, i, m),
            _ => return None,
        })
    }

    fn mov(&mut self, i: &Instruction, m: &mut Mods) -> Decoded {
        let ty = m.ty()?;
        arity(i, 2)?;
        if let Operand::Special(name) = &i.operands[1] {
            let kind = match name.as_str() {
                "clock" => Some(0),
                "clock_hi" => Some(1),
                "clock64" | "globaltimer" => Some(2),
                "globaltimer_lo" => Some(0),
                "globaltimer_hi" => Some(1),
                _ => None,
            };
            if let Some(kind) = kind {
                let (d, width) = self.dst_any(&i.operands[0])?;
                return Ok(Instr {
                    sub: kind,
                    imm: i64::from(width == Width::W64),
                    ..Instr::with(Op::Clock, d, ZERO, ZERO, ZERO)
                });
            }
        }
        match (&i.operands[0], &i.operands[1]) {
            (Operand::Vector(parts), source) => self.unpack(ty, parts, source),
            (target, Operand::Vector(parts)) => self.pack(ty, target, parts),
            (Operand::Reg(r), _) if self.width(*r)? == Width::Pred => self.pure(Op::MovPred, i, Ty::Pred, &[Ty::Pred]),
            _ if width_of(ty)? == Width::W64 => self.pure(Op::Mov64, i, ty, &[ty]),
            _ => self.pure(Op::Mov32, i, ty, &[ty]),
        }
    }

    fn pack(&mut self, ty: Ty, target: &Operand, parts: &[Operand]) -> Decoded {
        let total = bytes_of(ty);
        let d = self.dst(target, width_of(ty)?)?;
        match (total, parts.len()) {
            (4, 2) => {
                Ok(Instr::with(Op::Pack2x16, d, self.src(&parts[0], Ty::B16)?, self.src(&parts[1], Ty::B16)?, ZERO))
            }
            (8, 2) => {
                Ok(Instr::with(Op::Pack2x32, d, self.src(&parts[0], Ty::B32)?, self.src(&parts[1], Ty::B32)?, ZERO))
            }
            (_, n) if n > 0 && (total as usize).is_multiple_of(n) => {
                let bytes = total / n as u32;
                let part = if bytes == 1 { Ty::B8 } else { Ty::B16 };
                let rows = parts.iter().map(|p| self.src(p, part)).collect::<Result<_, _>>()?;
                let mut instr = Instr::with(Op::PackMany, d, ZERO, ZERO, ZERO);
                instr.side = push(&mut self.sides.packs, PackOp { rows, bytes, wide: total == 8 });
                Ok(instr)
            }
            _ => Err("vector move form".into()),
        }
    }

    fn unpack(&mut self, ty: Ty, parts: &[Operand], source: &Operand) -> Decoded {
        let total = bytes_of(ty);
        let a = self.src(source, ty)?;
        match (total, parts.len()) {
            (4, 2) => {
                let (d, d2) = (self.dst(&parts[0], Width::W32)?, self.dst(&parts[1], Width::W32)?);
                Ok(Instr { d2, ..Instr::with(Op::Unpack2x16, d, a, ZERO, ZERO) })
            }
            (8, 2) => {
                let (d, d2) = (self.dst(&parts[0], Width::W32)?, self.dst(&parts[1], Width::W32)?);
                Ok(Instr { d2, ..Instr::with(Op::Unpack2x32, d, a, ZERO, ZERO) })
            }
            (_, n) if n > 0 && (total as usize).is_multiple_of(n) => {
                let rows = parts.iter().map(|p| self.dst(p, Width::W32)).collect::<Result<_, _>>()?;
                let mut instr = Instr::with(Op::UnpackMany, SINK, a, ZERO, ZERO);
                let side = PackOp { rows, bytes: total / n as u32, wide: total == 8 };
                instr.side = push(&mut self.sides.packs, side);
                Ok(instr)
            }
            _ => Err("vector move form".into()),
        }
    }

    fn setp(&mut self, set: bool, i: &Instruction, m: &mut Mods) -> Decoded {
        let cmp = m.find(comparison).ok_or("no comparison")?;
        let boolean = m.find(|w| {
            Some(match w {
                "and" => 1i64,
                "or" => 2,
                "xor" => 3,
                _ => return None,
            })
        });
        let ftz = m.take("ftz");
        // `set` has a destination type in front of the source type.
        let to = if set { m.ty()? } else { Ty::Pred };
        let ty = m.ty()?;
        arity(i, if boolean.is_some() { 4 } else { 3 })?;
        let (d, d2) = match &i.operands[0] {
            Operand::Pair(p, q) => (self.dst(p, Width::Pred)?, self.dst(q, Width::Pred)?),
            o => (self.dst(o, width_of(to)?)?, SINK),
        };
        let (a, b) = (self.src(&i.operands[1], ty)?, self.src(&i.operands[2], ty)?);
        let mut instr = Instr { d2, sub: cmp as u8, ..Instr::with(Op::SetpLane, d, a, b, ZERO) };
        if ftz {
            instr.flags |= flag::FTZ;
        }
        if let Some(boolean) = boolean {
            let (c, negated) = self.pred(&i.operands[3])?;
            instr.c = c;
            instr.flags |= flag::COMBINE | if negated { flag::COMBINE_NOT } else { 0 };
            instr.imm = boolean;
        }
        instr.op = match ty {
            Ty::S32 => Op::SetpS32,
            Ty::U32 | Ty::B32 => Op::SetpU32,
            Ty::S16 => Op::SetpS16,
            Ty::U16 | Ty::B16 => Op::SetpU16,
            Ty::S64 => Op::SetpS64,
            Ty::U64 | Ty::B64 => Op::SetpU64,
            Ty::F32 => Op::SetpF32,
            Ty::F64 | Ty::F16 | Ty::Bf16 | Ty::F16x2 | Ty::Bf16x2 => Op::SetpLane,
            _ => return Err("comparison type".into()),
        };
        if set || instr.op == Op::SetpLane {
            // NOTE: one general form for all that is rare; `set` writes a number, not a predicate.
            instr.op = if set { Op::SetLane } else { Op::SetpLane };
            let side = CompareOp { ty, to, width: width_of(ty)?, pair: matches!(ty, Ty::F16x2 | Ty::Bf16x2) };
            instr.side = push(&mut self.sides.compares, side);
        }
        instr.class = instr.op.class();
        Ok(instr)
    }

    fn selp(&mut self, i: &Instruction, m: &mut Mods) -> Decoded {
        let ty = m.ty()?;
        arity(i, 4)?;
        let op = match width_of(ty)? {
            Width::W64 => Op::Selp64,
            Width::W32 => Op::Selp32,
            Width::Pred => return Err("selp type".into()),
        };
        let mut instr = self.pure(op, i, ty, &[ty, ty, Ty::Pred]).or_else(|_| {
            let d = self.dst(&i.operands[0], width_of(ty)?)?;
            let (a, b) = (self.src(&i.operands[1], ty)?, self.src(&i.operands[2], ty)?);
            Ok::<_, Unsupported>(Instr::with(op, d, a, b, ZERO))
        })?;
        let (c, negated) = self.pred(&i.operands[3])?;
        instr.c = c;
        if negated {
            std::mem::swap(&mut instr.a, &mut instr.b);
        }
        Ok(instr)
    }

    fn slct(&mut self, i: &Instruction, m: &mut Mods) -> Decoded {
        let ftz = m.take("ftz");
        let ty = m.ty()?;
        let c = m.ty()?;
        match c {
            Ty::S32 => self.lane(lane::slct_s32, 0, i, ty, &[ty, ty, c]),
            Ty::F32 => self.lane(lane::slct_f32, u64::from(ftz), i, ty, &[ty, ty, c]),
            _ => Err("slct type".into()),
        }
    }

    fn add_sub(&mut self, sub: bool, i: &Instruction, m: &mut Mods) -> Decoded {
        if m.words.contains(&"cc") {
            return self.carry(if sub { "sub" } else { "add" }, i, m);
        }
        let sat = m.take("sat");
        // Signed or not: the bits of a wrapping sum are the same.
        if m.take("s16x2") || m.take("u16x2") {
            if sat {
                return Err("sat of a pair".into());
            }
            let fun = if sub { lane::sub_16x2 } else { lane::add_16x2 };
            return self.lane(fun, 0, i, Ty::B32, &[Ty::B32, Ty::B32]);
        }
        let ty = m.ty()?;
        if sat {
            if ty != Ty::S32 {
                return Err("sat".into());
            }
            let fun = if sub { lane::sub_sat_s32 } else { lane::add_sat_s32 };
            return self.lane(fun, 0, i, ty, &[ty, ty]);
        }
        let op = match (bytes_of(ty), sub) {
            (2, false) => Op::Add16,
            (2, true) => Op::Sub16,
            (4, false) => Op::Add32,
            (4, true) => Op::Sub32,
            (8, false) => Op::Add64,
            (8, true) => Op::Sub64,
            _ => return Err("type".into()),
        };
        self.pure(op, i, ty, &[ty, ty])
    }

    fn carry(&mut self, mnemonic: &str, i: &Instruction, m: &mut Mods) -> Decoded {
        let writes = m.take("cc");
        let high = m.take("hi");
        let low = m.take("lo");
        let ty = m.ty()?;
        let mad = mnemonic.starts_with("mad");
        let reads = mnemonic.ends_with('c');
        if !matches!(bytes_of(ty), 4 | 8) || mad != (high || low) {
            return Err("carry form".into());
        }
        let srcs: &[Ty] = if mad { &[ty, ty, ty] } else { &[ty, ty] };
        let mut instr = self.pure(Op::Carry, i, ty, srcs)?;
        let kind = match mnemonic.trim_end_matches('c') {
            "add" => 0,
            "sub" => 1,
            _ if high && is_signed(ty) => 4,
            _ if high => 3,
            _ => 2,
        };
        instr.sub =
            kind | if bytes_of(ty) == 8 { 8 } else { 0 } | if reads { 16 } else { 0 } | if writes { 32 } else { 0 };
        if writes {
            instr.d2 = CARRY;
        }
        Ok(instr)
    }

    fn mul(&mut self, i: &Instruction, m: &mut Mods) -> Decoded {
        let (lo, hi, wide) = (m.take("lo"), m.take("hi"), m.take("wide"));
        let ty = m.ty()?;
        let two = [ty, ty];
        match (lo, hi, wide, ty) {
            (true, _, _, Ty::S16 | Ty::U16) => self.pure(Op::MulLo16, i, ty, &two),
            (true, _, _, Ty::S32 | Ty::U32) => self.pure(Op::MulLo32, i, ty, &two),
            (true, _, _, Ty::S64 | Ty::U64) => self.pure(Op::MulLo64, i, ty, &two),
            (_, true, _, Ty::S32) => self.pure(Op::MulHiS32, i, ty, &two),
            (_, true, _, Ty::U32) => self.pure(Op::MulHiU32, i, ty, &two),
            (_, true, _, Ty::S64) => self.lane(lane::mul_hi_s64, 0, i, ty, &two),
            (_, true, _, Ty::U64) => self.lane(lane::mul_hi_u64, 0, i, ty, &two),
            (_, true, _, Ty::S16) => self.lane(lane::mul_hi_s16, 0, i, ty, &two),
            (_, true, _, Ty::U16) => self.lane(lane::mul_hi_u16, 0, i, ty, &two),
            (_, _, true, Ty::S32) => self.pure(Op::MulWideS32, i, Ty::B64, &two),
            (_, _, true, Ty::U32) => self.pure(Op::MulWideU32, i, Ty::B64, &two),
            (_, _, true, Ty::S16) => self.lane(lane::mul_wide_s16, 0, i, Ty::B32, &two),
            (_, _, true, Ty::U16) => self.lane(lane::mul_wide_u16, 0, i, Ty::B32, &two),
            _ => Err("mul form".into()),
        }
    }

    fn mad(&mut self, i: &Instruction, m: &mut Mods) -> Decoded {
        if m.words.contains(&"cc") {
            return self.carry("mad", i, m);
        }
        let (lo, hi, wide, sat) = (m.take("lo"), m.take("hi"), m.take("wide"), m.take("sat"));
        let ty = m.ty()?;
        let three = [ty, ty, ty];
        match (lo, hi, wide, ty) {
            (false, true, _, Ty::S32) if sat => self.lane(lane::mad_hi_sat_s32, 0, i, ty, &three),
            _ if sat => Err("sat".into()),
            (true, _, _, Ty::S32 | Ty::U32) => self.pure(Op::MadLo32, i, ty, &three),
            (true, _, _, Ty::S64 | Ty::U64) => self.pure(Op::MadLo64, i, ty, &three),
            (true, _, _, Ty::S16 | Ty::U16) => self.lane(lane::mad_lo_16, 0, i, ty, &three),
            (_, true, _, Ty::S16) => self.lane(lane::mad_hi_s16, 0, i, ty, &three),
            (_, true, _, Ty::U16) => self.lane(lane::mad_hi_u16, 0, i, ty, &three),
            (_, true, _, Ty::S32) => self.lane(lane::mad_hi_s32, 0, i, ty, &three),
            (_, true, _, Ty::U32) => self.lane(lane::mad_hi_u32, 0, i, ty, &three),
            (_, true, _, Ty::S64) => self.lane(lane::mad_hi_s64, 0, i, ty, &three),
            (_, true, _, Ty::U64) => self.lane(lane::mad_hi_u64, 0, i, ty, &three),
            (_, _, true, Ty::S32) => self.pure(Op::MadWideS32, i, Ty::B64, &[ty, ty, Ty::B64]),
            (_, _, true, Ty::U32) => self.pure(Op::MadWideU32, i, Ty::B64, &[ty, ty, Ty::B64]),
            (_, _, true, Ty::S16) => self.lane(lane::mad_wide_s16, 0, i, Ty::B32, &[ty, ty, Ty::B32]),
            (_, _, true, Ty::U16) => self.lane(lane::mad_wide_u16, 0, i, Ty::B32, &[ty, ty, Ty::B32]),
            _ => Err("mad form".into()),
        }
    }

    fn mul24(&mut self, mnemonic: &str, i: &Instruction, m: &mut Mods) -> Decoded {
        let (lo, hi) = (m.take("lo"), m.take("hi"));
        let ty = m.ty()?;
        if lo == hi || !matches!(ty, Ty::U32 | Ty::S32) {
            return Err("24-bit form".into());
        }
        let sat = m.take("sat");
        if sat && (mnemonic != "mad24" || !hi || ty != Ty::S32) {
            return Err("sat".into());
        }
        let imm = u64::from(hi) | u64::from(is_signed(ty)) << 1 | u64::from(sat) << 2;
        let srcs: &[Ty] = if mnemonic == "mad24" { &[ty, ty, ty] } else { &[ty, ty] };
        self.lane(lane::mad24, imm, i, ty, srcs)
    }

    fn min_max(&mut self, max: bool, i: &Instruction, m: &mut Mods) -> Decoded {
        let relu = m.take("relu");
        if let Some(signed) = m.find(|w| match w {
            "s16x2" => Some(1u64),
            "u16x2" => Some(0),
            _ => None,
        }) {
            let imm = signed | u64::from(max) << 1 | u64::from(relu) << 2;
            return self.lane(lane::min_max_16x2, imm, i, Ty::B32, &[Ty::B32, Ty::B32]);
        }
        let ty = m.ty()?;
        let two = [ty, ty];
        if relu {
            if ty != Ty::S32 {
                return Err("relu".into());
            }
            let fun = if max { lane::max_relu_s32 } else { lane::min_relu_s32 };
            return self.lane(fun, 0, i, ty, &two);
        }
        let op = match (ty, max) {
            (Ty::S32, false) => Op::MinS32,
            (Ty::S32, true) => Op::MaxS32,
            (Ty::U32, false) => Op::MinU32,
            (Ty::U32, true) => Op::MaxU32,
            (Ty::S64, false) => Op::MinS64,
            (Ty::S64, true) => Op::MaxS64,
            (Ty::U64, false) => Op::MinU64,
            (Ty::U64, true) => Op::MaxU64,
            (Ty::S16, false) => return self.lane(lane::min_s16, 0, i, ty, &two),
            (Ty::S16, true) => return self.lane(lane::max_s16, 0, i, ty, &two),
            // 16-bit values are held zero-extended.
            (Ty::U16, false) => Op::MinU32,
            (Ty::U16, true) => Op::MaxU32,
            _ => return Err("type".into()),
        };
        self.pure(op, i, ty, &two)
    }

    fn div_rem(&mut self, rem: bool, i: &Instruction, m: &mut Mods) -> Decoded {
        let ty = m.ty()?;
        let fun: LaneFn = match (ty, rem) {
            (Ty::S16, false) => lane::div_s16,
            (Ty::U16, false) => lane::div_u16,
            (Ty::S32, false) => lane::div_s32,
            (Ty::U32, false) => lane::div_u32,
            (Ty::S64, false) => lane::div_s64,
            (Ty::U64, false) => lane::div_u64,
            (Ty::S16, true) => lane::rem_s16,
            (Ty::U16, true) => lane::rem_u16,
            (Ty::S32, true) => lane::rem_s32,
            (Ty::U32, true) => lane::rem_u32,
            (Ty::S64, true) => lane::rem_s64,
            (Ty::U64, true) => lane::rem_u64,
            _ => return Err("type".into()),
        };
        self.lane(fun, 0, i, ty, &[ty, ty])
    }

    fn abs_neg(&mut self, neg: bool, i: &Instruction, m: &mut Mods) -> Decoded {
        let ty = m.ty()?;
        match (ty, neg) {
            (Ty::S32, true) => self.pure(Op::Neg32, i, ty, &[ty]),
            (Ty::S32, false) => self.lane(lane::abs_s32, 0, i, ty, &[ty]),
            (Ty::S64, true) => self.lane(lane::neg_64, 0, i, ty, &[ty]),
            (Ty::S64, false) => self.lane(lane::abs_s64, 0, i, ty, &[ty]),
            (Ty::S16, true) => self.lane(lane::neg_16, 0, i, ty, &[ty]),
            (Ty::S16, false) => self.lane(lane::abs_s16, 0, i, ty, &[ty]),
            _ => Err("type".into()),
        }
    }

    fn logic(&mut self, mnemonic: &str, i: &Instruction, m: &mut Mods) -> Decoded {
        let ty = m.ty()?;
        if ty == Ty::Pred {
            let op = match mnemonic {
                "and" => Op::AndPred,
                "or" => Op::OrPred,
                "xor" => Op::XorPred,
                "not" => Op::NotPred,
                _ => return Err("type".into()),
            };
            return self.pure(op, i, ty, if mnemonic == "not" { &[Ty::Pred] } else { &[Ty::Pred, Ty::Pred] });
        }
        let wide = width_of(ty)? == Width::W64;
        let two = [ty, ty];
        match (mnemonic, wide, bytes_of(ty)) {
            ("and", false, _) => self.pure(Op::And32, i, ty, &two),
            ("or", false, _) => self.pure(Op::Or32, i, ty, &two),
            ("xor", false, _) => self.pure(Op::Xor32, i, ty, &two),
            ("and", true, _) => self.pure(Op::And64, i, ty, &two),
            ("or", true, _) => self.pure(Op::Or64, i, ty, &two),
            ("xor", true, _) => self.pure(Op::Xor64, i, ty, &two),
            ("not", false, 4) => self.pure(Op::Not32, i, ty, &[ty]),
            ("not", true, _) => self.pure(Op::Not64, i, ty, &[ty]),
            ("not", false, _) => self.lane(lane::not_16, 0, i, ty, &[ty]),
            ("cnot", _, n) => self.lane(lane::cnot, u64::from(n), i, ty, &[ty]),
            _ => Err("type".into()),
        }
    }

    fn shift(&mut self, left: bool, i: &Instruction, m: &mut Mods) -> Decoded {
        let ty = m.ty()?;
        let op = match (bytes_of(ty), left, is_signed(ty)) {
            (2, true, _) => Op::Shl16,
            (2, false, true) => Op::ShrS16,
            (2, false, false) => Op::ShrU16,
            (4, true, _) => Op::Shl32,
            (4, false, true) => Op::ShrS32,
            (4, false, false) => Op::ShrU32,
            (8, true, _) => Op::Shl64,
            (8, false, true) => Op::ShrS64,
            (8, false, false) => Op::ShrU64,
            _ => return Err("type".into()),
        };
        self.pure(op, i, ty, &[ty, Ty::U32])
    }

    fn funnel(&mut self, i: &Instruction, m: &mut Mods) -> Decoded {
        let (l, r, wrap, clamp) = (m.take("l"), m.take("r"), m.take("wrap"), m.take("clamp"));
        let ty = m.ty()?;
        if l == r || wrap == clamp || ty != Ty::B32 {
            return Err("funnel form".into());
        }
        let three = [Ty::B32, Ty::B32, Ty::U32];
        match (l, wrap) {
            (true, true) => self.pure(Op::ShfWrapL, i, ty, &three),
            (false, true) => self.pure(Op::ShfWrapR, i, ty, &three),
            (true, false) => self.lane(lane::shf_clamp_l, 0, i, ty, &three),
            (false, false) => self.lane(lane::shf_clamp_r, 0, i, ty, &three),
        }
    }

    fn bits(&mut self, mnemonic: &str, i: &Instruction, m: &mut Mods) -> Decoded {
        let shiftamt = m.take("shiftamt");
        let (wrap, clamp) = (m.take("wrap"), m.take("clamp"));
        let ty = m.ty()?;
        let (bytes, signed) = (bytes_of(ty), is_signed(ty));
        let imm = u64::from(bytes) | u64::from(signed) << 8 | u64::from(shiftamt) << 9 | u64::from(clamp) << 10;
        match mnemonic {
            "sad" => self.lane(lane::sad, imm, i, ty, &[ty, ty, ty]),
            "popc" => self.lane(lane::popc, imm, i, Ty::U32, &[ty]),
            "clz" => self.lane(lane::clz, imm, i, Ty::U32, &[ty]),
            "brev" => self.lane(lane::brev, imm, i, ty, &[ty]),
            "bfe" if ty == Ty::U32 => self.pure(Op::Bfe32, i, ty, &[ty, Ty::U32, Ty::U32]),
            "bfe" => self.lane(lane::bfe, imm, i, ty, &[ty, Ty::U32, Ty::U32]),
            "bfind" => self.lane(lane::bfind, imm, i, Ty::U32, &[ty]),
            "fns" => self.lane(lane::fns, imm, i, Ty::U32, &[Ty::B32, Ty::U32, Ty::S32]),
            "szext" if wrap != clamp => self.lane(lane::szext, imm, i, ty, &[ty, Ty::U32]),
            "bmsk" if wrap != clamp => self.lane(lane::bmsk, imm, i, ty, &[Ty::U32, Ty::U32]),
            "bfi" => {
                // bfi d, a, b, c, len: position and length travel packed in the third operand where both are immediate.
                arity(i, 5)?;
                let d = self.dst(&i.operands[0], width_of(ty)?)?;
                let (a, b) = (self.src(&i.operands[1], ty)?, self.src(&i.operands[2], ty)?);
                let (pos, len) = (self.src(&i.operands[3], Ty::U32)?, self.src(&i.operands[4], Ty::U32)?);
                let mut instr = Instr::with(Op::Bfi, d, a, b, pos);
                instr.imm = i64::from(bytes);
                instr.side = len;
                Ok(instr)
            }
            _ => Err("form".into()),
        }
    }

    fn prmt(&mut self, i: &Instruction, m: &mut Mods) -> Decoded {
        let mode = m.find(|w| {
            Some(match w {
                "f4e" => 1u64,
                "b4e" => 2,
                "rc8" => 3,
                "ecl" => 4,
                "ecr" => 5,
                "rc16" => 6,
                _ => return None,
            })
        });
        let ty = m.ty()?;
        let three = [ty, ty, Ty::B32];
        match mode {
            None => self.pure(Op::Prmt, i, ty, &three),
            Some(mode) => self.lane(lane::prmt_mode, mode, i, ty, &three),
        }
    }

    fn lop3(&mut self, i: &Instruction, m: &mut Mods) -> Decoded {
        let boolean = m.find(|w| match w {
            "or" => Some(2u8),
            "and" => Some(1),
            _ => None,
        });
        let ty = m.ty()?;
        if ty != Ty::B32 {
            return Err("type".into());
        }
        if let Some(boolean) = boolean {
            return self.lop3_predicate(boolean, i);
        }
        arity(i, 5)?;
        let Operand::Int(lut) = i.operands[4] else { return Err("table form".into()) };
        let d = self.dst(&i.operands[0], Width::W32)?;
        let rows = [self.src(&i.operands[1], ty)?, self.src(&i.operands[2], ty)?, self.src(&i.operands[3], ty)?];
        Ok(Instr { imm: lut & 0xFF, ..Instr::with(Op::Lop3, d, rows[0], rows[1], rows[2]) })
    }

    /// `lop3.or.b32 d|p, a, b, c, lut, q`: p tells whether d is not zero, combined with q.
    fn lop3_predicate(&mut self, boolean: u8, i: &Instruction) -> Decoded {
        arity(i, 6)?;
        let Operand::Int(lut) = i.operands[4] else { return Err("table form".into()) };
        let Operand::Pair(d, p) = &i.operands[0] else { return Err("destination".into()) };
        let (d, d2) = (self.dst(d, Width::W32)?, self.dst(p, Width::Pred)?);
        let mut rows = Vec::with_capacity(3);
        for o in &i.operands[1..4] {
            rows.push(self.src(o, Ty::B32)?);
        }
        let (q, negated) = self.pred(&i.operands[5])?;
        let mut instr = Instr {
            d2,
            sub: boolean | u8::from(negated) << 2,
            ..Instr::with(Op::Lop3Pred, d, rows[0], rows[1], rows[2])
        };
        instr.imm = lut & 0xFF;
        instr.side = q;
        Ok(instr)
    }

    fn dot(&mut self, mnemonic: &str, i: &Instruction, m: &mut Mods) -> Decoded {
        let high = m.take("hi");
        let _ = m.take("lo");
        let (a, b) = (m.ty()?, m.ty()?);
        let imm = u64::from(is_signed(a)) | u64::from(is_signed(b)) << 1 | u64::from(high) << 2;
        let c = if is_signed(a) || is_signed(b) { Ty::S32 } else { Ty::U32 };
        let fun = if mnemonic == "dp4a" { lane::dp4a } else { lane::dp2a };
        self.lane(fun, imm, i, c, &[a, b, c])
    }
}

impl Decoder<'_> {
    /// `vadd4` and its like: four bytes or two halves at once.
    fn video(&mut self, mnemonic: &str, i: &Instruction, m: &mut Mods) -> Decoded {
        let (name, lanes) = mnemonic.split_at(mnemonic.len() - 1);
        let op = match name {
            "vset" => 6,
            "vadd" => 0,
            "vsub" => 1,
            "vavrg" => 2,
            "vabsdiff" => 3,
            "vmin" => 4,
            _ => 5,
        };
        let cmp = if op == 6 { m.find(comparison).ok_or("no comparison")? as u64 } else { 0 };
        let (d, a, b) = if op == 6 { (Ty::U32, m.ty()?, m.ty()?) } else { (m.ty()?, m.ty()?, m.ty()?) };
        if [d, a, b].iter().any(|t| !matches!(t, Ty::U32 | Ty::S32)) {
            return Err("type".into());
        }
        let signed = |t: Ty| u64::from(t == Ty::S32);
        let flags = [(m.take("sat"), 1 << 7), (m.take("add"), 1 << 8)];
        let imm = op | signed(a) << 4 | signed(b) << 5 | signed(d) << 6 | u64::from(lanes == "2") << 9 | cmp << 10;
        let imm = flags.iter().fold(imm, |imm, (on, bit)| if *on { imm | bit } else { imm });
        self.lane(lane::video, imm, i, Ty::U32, &[Ty::U32, Ty::U32, Ty::U32])
    }
}

fn comparison(word: &str) -> Option<Cmp> {
    Some(match word {
        "eq" => Cmp::Eq,
        "ne" => Cmp::Ne,
        "lt" | "lo" => Cmp::Lt,
        "le" | "ls" => Cmp::Le,
        "gt" | "hi" => Cmp::Gt,
        "ge" | "hs" => Cmp::Ge,
        "equ" => Cmp::Equ,
        "neu" => Cmp::Neu,
        "ltu" => Cmp::Ltu,
        "leu" => Cmp::Leu,
        "gtu" => Cmp::Gtu,
        "geu" => Cmp::Geu,
        "num" => Cmp::Num,
        "nan" => Cmp::Nan,
        _ => return None,
    })
}
