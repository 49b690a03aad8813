//! Instructions in which the lanes of a warp act together.
//! Source: PTX ISA 9.0, "shfl.sync", "vote.sync", "match.sync", "redux.sync", "activemask", "elect.sync", "movmatrix".

use warpsmith_ptx::ast::{Instruction, Operand, Ty};

use super::atomics::atom_op;
use super::integer::operand;
use super::{Decoded, Decoder, Mods, push};
use crate::code::*;

impl Decoder<'_> {
    pub(super) fn warp(&mut self, mnemonic: &str, i: &Instruction, m: &mut Mods) -> Option<Decoded> {
        Some(match mnemonic {
            "shfl" => self.shfl(i, m),
            "vote" => self.vote(i, m),
            "match" => self.matching(i, m),
            "redux" => self.redux(i, m),
            "activemask" => {
                let _ = m.ty();
                operand(i, 0)
                    .and_then(|o| self.dst(o, Width::W32))
                    .map(|d| Instr::with(Op::ActiveMask, d, ZERO, ZERO, ZERO))
            }
            "elect" => self.elect(i, m),
            _ => return None,
        })
    }

    fn shfl(&mut self, i: &Instruction, m: &mut Mods) -> Decoded {
        let sync = m.take("sync");
        let mode = m
            .find(|w| {
                Some(match w {
                    "up" => ShflMode::Up,
                    "down" => ShflMode::Down,
                    "bfly" => ShflMode::Bfly,
                    "idx" => ShflMode::Idx,
                    _ => return None,
                })
            })
            .ok_or("mode")?;
        if !sync || m.ty()? != Ty::B32 || i.operands.len() != 5 {
            return Err("form".into());
        }
        let (d, pred) = match operand(i, 0)? {
            Operand::Pair(d, p) => (self.dst(d, Width::W32)?, Some(self.dst(p, Width::Pred)?)),
            o => (self.dst(o, Width::W32)?, None),
        };
        let a = self.src(operand(i, 1)?, Ty::B32)?;
        let b = self.src(operand(i, 2)?, Ty::U32)?;
        let c = self.src(operand(i, 3)?, Ty::U32)?;
        let members = self.src(operand(i, 4)?, Ty::B32)?;
        let mut instr = Instr::new(Op::Shfl);
        instr.side = push(&mut self.sides.shfls, ShflOp { mode, d, pred, a, b, c, members });
        Ok(instr)
    }

    fn vote(&mut self, i: &Instruction, m: &mut Mods) -> Decoded {
        if !m.take("sync") {
            return Err("form".into());
        }
        let mode = m
            .find(|w| {
                Some(match w {
                    "all" => VoteMode::All,
                    "any" => VoteMode::Any,
                    "uni" => VoteMode::Uni,
                    "ballot" => VoteMode::Ballot,
                    _ => return None,
                })
            })
            .ok_or("mode")?;
        let _ = m.ty()?;
        let d = self.dst(operand(i, 0)?, if mode == VoteMode::Ballot { Width::W32 } else { Width::Pred })?;
        let (pred, negated) = self.pred(operand(i, 1)?)?;
        let members = self.src(operand(i, 2)?, Ty::B32)?;
        let mut instr = Instr::new(Op::Vote);
        instr.side = push(&mut self.sides.votes, VoteOp { mode, d, pred, negated, members });
        Ok(instr)
    }

    fn matching(&mut self, i: &Instruction, m: &mut Mods) -> Decoded {
        let (any, all) = (m.take("any"), m.take("all"));
        if !m.take("sync") || any == all {
            return Err("form".into());
        }
        let ty = m.ty()?;
        let (d, pred) = match operand(i, 0)? {
            Operand::Pair(d, p) => (self.dst(d, Width::W32)?, Some(self.dst(p, Width::Pred)?)),
            o => (self.dst(o, Width::W32)?, None),
        };
        let a = self.src(operand(i, 1)?, ty)?;
        let members = self.src(operand(i, 2)?, Ty::B32)?;
        let wide = super::width_of(ty)? == Width::W64;
        let mut instr = Instr::new(Op::Match);
        instr.side = push(&mut self.sides.matches, MatchOp { all, wide, d, pred, a, members });
        Ok(instr)
    }

    fn redux(&mut self, i: &Instruction, m: &mut Mods) -> Decoded {
        if !m.take("sync") {
            return Err("form".into());
        }
        let op = m.find(atom_op).ok_or("operation")?;
        let abs = m.take("abs");
        let nan = m.take("NaN");
        let ty = m.ty()?;
        let float = (ty == Ty::F32).then_some((abs, nan));
        let fits = match ty {
            Ty::U32 | Ty::S32 => matches!(op, AtomOp::Add | AtomOp::Min | AtomOp::Max),
            Ty::B32 => matches!(op, AtomOp::And | AtomOp::Or | AtomOp::Xor),
            Ty::F32 => matches!(op, AtomOp::Min | AtomOp::Max),
            _ => false,
        };
        if !fits || (ty != Ty::F32 && (abs || nan)) {
            return Err("type".into());
        }
        let d = self.dst(operand(i, 0)?, Width::W32)?;
        let a = self.src(operand(i, 1)?, ty)?;
        let members = self.src(operand(i, 2)?, Ty::B32)?;
        let mut instr = Instr::new(Op::Redux);
        instr.side = push(&mut self.sides.reduxes, ReduxOp { op, signed: ty == Ty::S32, float, d, a, members });
        Ok(instr)
    }

    fn elect(&mut self, i: &Instruction, m: &mut Mods) -> Decoded {
        if !m.take("sync") {
            return Err("form".into());
        }
        let Operand::Pair(d, p) = operand(i, 0)? else { return Err("destination".into()) };
        let (d, d2) = (self.dst(d, Width::W32)?, self.dst(p, Width::Pred)?);
        let a = self.src(operand(i, 1)?, Ty::B32)?;
        Ok(Instr { d2, ..Instr::with(Op::Elect, d, a, ZERO, ZERO) })
    }
}
