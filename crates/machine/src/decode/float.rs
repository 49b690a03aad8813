//! Floating-point arithmetic: f32, f64, f16, bf16 and their pairs.
//! Source: PTX ISA 9.0, "Floating Point Instructions", "Half Precision Floating-Point Instructions".

use warpsmith_ptx::ast::{Instruction, Ty};

use super::integer::is_float;
use super::{Decoded, Decoder, Mods};
use crate::code::*;
use crate::exec::lane_float::{self as lane, FloatOp, imm};

impl Decoder<'_> {
    pub(super) fn float(&mut self, mnemonic: &str, i: &Instruction, m: &mut Mods) -> Option<Decoded> {
        let op = match mnemonic {
            "add" => FloatOp::Add,
            "sub" => FloatOp::Sub,
            "mul" => FloatOp::Mul,
            "fma" | "mad" => FloatOp::Fma,
            "div" => FloatOp::Div,
            "min" => FloatOp::Min,
            "max" => FloatOp::Max,
            "abs" => FloatOp::Abs,
            "neg" => FloatOp::Neg,
            "sqrt" => FloatOp::Sqrt,
            "rsqrt" => FloatOp::Rsqrt,
            "rcp" => FloatOp::Rcp,
            "ex2" => FloatOp::Ex2,
            "lg2" => FloatOp::Lg2,
            "sin" => FloatOp::Sin,
            "cos" => FloatOp::Cos,
            "tanh" => FloatOp::Tanh,
            "copysign" => FloatOp::CopySign,
            "testp" => FloatOp::IsFinite,
            _ => return None,
        };
        if !m.peek_ty().is_some_and(is_float) {
            return None;
        }
        Some(self.float_op(op, i, m))
    }

    fn float_op(&mut self, op: FloatOp, i: &Instruction, m: &mut Mods) -> Decoded {
        let mut op = op;
        if op == FloatOp::IsFinite {
            op = m
                .find(|w| {
                    Some(match w {
                        "finite" => FloatOp::IsFinite,
                        "infinite" => FloatOp::IsInfinite,
                        "number" => FloatOp::IsNumber,
                        "notanumber" => FloatOp::IsNan,
                        "normal" => FloatOp::IsNormal,
                        "subnormal" => FloatOp::IsSubnormal,
                        _ => return None,
                    })
                })
                .ok_or("testp without a property")?;
        }
        let rounding = m.find(rounding_word).unwrap_or(lane::RN);
        let quick = m.take("approx");
        let approx = quick | m.take("full");
        let mut modifiers = 0;
        for (word, bit) in [("ftz", lane::FTZ), ("sat", lane::SAT), ("relu", lane::RELU), ("NaN", lane::NAN)] {
            if m.take(word) {
                modifiers |= bit;
            }
        }
        if m.take("xorsign") {
            if !m.take("abs") {
                return Err("xorsign without abs".into());
            }
            modifiers |= lane::XORSIGN;
        }
        // `add.noftz.f16` and `fma.rn.oob` exist: the first changes nothing here, the second is not known.
        let _ = m.take("noftz");
        let mut types = Vec::new();
        while let Some(t) = m.find(super::type_word) {
            types.push(t);
        }
        let [ty] = types[..] else { return Err("mixed types".into()) };
        let sources = match op {
            FloatOp::Fma => 3,
            FloatOp::Add
            | FloatOp::Sub
            | FloatOp::Mul
            | FloatOp::Div
            | FloatOp::Min
            | FloatOp::Max
            | FloatOp::CopySign => 2,
            _ => 1,
        };
        if ty == Ty::F64 && approx && modifiers & lane::FTZ != 0 {
            modifiers |= lane::HIGH;
        }
        let srcs = [ty; 3];
        let srcs = &srcs[..sources];
        let plain = modifiers & !(lane::FTZ | lane::SAT) == 0 && rounding == lane::RN;
        if ty == Ty::F32 && plain {
            let fast = match op {
                FloatOp::Add => Some(Op::AddF32),
                FloatOp::Sub => Some(Op::SubF32),
                FloatOp::Mul => Some(Op::MulF32),
                FloatOp::Fma => Some(Op::FmaF32),
                FloatOp::Div => Some(Op::DivF32),
                FloatOp::Min => Some(Op::MinF32),
                FloatOp::Max => Some(Op::MaxF32),
                FloatOp::Neg => Some(Op::NegF32),
                FloatOp::Abs => Some(Op::AbsF32),
                FloatOp::Ex2 => Some(Op::Ex2F32),
                FloatOp::Rcp => Some(Op::RcpF32),
                FloatOp::Sqrt => Some(Op::SqrtF32),
                FloatOp::Rsqrt => Some(Op::RsqrtF32),
                _ => None,
            };
            if let Some(fast) = fast {
                let mut instr = self.pure(fast, i, ty, srcs)?;
                instr.flags = if modifiers & lane::FTZ != 0 { flag::FTZ } else { 0 }
                    | if modifiers & lane::SAT != 0 { flag::SAT } else { 0 };
                instr.sub = u8::from(approx || op == FloatOp::Ex2) | if quick && op == FloatOp::Div { 2 } else { 0 };
                return Ok(instr);
            }
        }
        let predicate = matches!(
            op,
            FloatOp::IsFinite
                | FloatOp::IsInfinite
                | FloatOp::IsNumber
                | FloatOp::IsNan
                | FloatOp::IsNormal
                | FloatOp::IsSubnormal
        );
        let d = if predicate { Ty::Pred } else { ty };
        let (kind, fun): (u64, LaneFn) = match ty {
            Ty::F16 => (lane::F16, lane::scalar),
            Ty::Bf16 => (lane::BF16, lane::scalar),
            Ty::F32 => (lane::F32, lane::scalar),
            Ty::F64 => (lane::F64, lane::scalar),
            Ty::F16x2 => (lane::F16, lane::pair),
            Ty::Bf16x2 => (lane::BF16, lane::pair),
            _ => return Err("type".into()),
        };
        let instr = self.lane(fun, imm(op, kind, rounding, modifiers), i, d, srcs)?;
        let transcendental =
            matches!(op, FloatOp::Ex2 | FloatOp::Lg2 | FloatOp::Sin | FloatOp::Cos | FloatOp::Tanh | FloatOp::Rsqrt);
        self.sides.lanes[instr.side as usize].approximate = approx || transcendental;
        Ok(instr)
    }
}

/// The rounding words of arithmetic.
pub(crate) fn rounding_word(word: &str) -> Option<u64> {
    Some(match word {
        "rn" => lane::RN,
        "rz" => lane::RZ,
        "rm" => lane::RM,
        "rp" => lane::RP,
        _ => return None,
    })
}
