//! `atom` and `red`.
//! Source: PTX ISA 9.0, "Parallel Synchronization and Communication Instructions: atom, red".

use warpsmith_ptx::ast::{Instruction, Operand, Ty};

use super::integer::operand;
use super::memory::{area, cache_words};
use super::{Decoded, Decoder, Mods, push, width_of};
use crate::code::*;

pub(crate) fn atom_op(word: &str) -> Option<AtomOp> {
    Some(match word {
        "add" => AtomOp::Add,
        "min" => AtomOp::Min,
        "max" => AtomOp::Max,
        "and" => AtomOp::And,
        "or" => AtomOp::Or,
        "xor" => AtomOp::Xor,
        "exch" => AtomOp::Exch,
        "cas" => AtomOp::Cas,
        "inc" => AtomOp::Inc,
        "dec" => AtomOp::Dec,
        _ => return None,
    })
}

/// The elements of a vector operand, or the operand itself.
fn parts(o: &Operand) -> Vec<&Operand> {
    match o {
        Operand::Vector(list) => list.iter().collect(),
        o => vec![o],
    }
}

impl Decoder<'_> {
    pub(super) fn atomics(&mut self, mnemonic: &str, i: &Instruction, m: &mut Mods) -> Option<Decoded> {
        match mnemonic {
            "atom" => Some(self.atomic(true, i, m)),
            "red" => Some(self.atomic(false, i, m)),
            _ => None,
        }
    }

    fn atomic(&mut self, returns: bool, i: &Instruction, m: &mut Mods) -> Decoded {
        if m.take("async") {
            return Err("red.async".into());
        }
        let hint = cache_words(m);
        let release = m.take("release") | m.take("acq_rel");
        let narrow = m.take("cta");
        for word in ["relaxed", "acquire", "cluster", "gpu", "sys", "noftz"] {
            let _ = m.take(word);
        }
        let space = m
            .find(|w| {
                Some(match w {
                    "global" => "global",
                    "shared" | "shared::cta" | "shared::cluster" => "shared",
                    _ => return None,
                })
            })
            .unwrap_or("generic");
        let count = m.find(|w| match w {
            "v2" => Some(2),
            "v4" => Some(4),
            "v8" => Some(8),
            _ => None,
        });
        let op = m.find(atom_op).ok_or("operation")?;
        let ty = m.ty()?;
        let kind = match (op, ty) {
            (_, Ty::U32) | (_, Ty::B32) => AtomTy::U32,
            (_, Ty::S32) => AtomTy::S32,
            (_, Ty::U64) | (_, Ty::B64) => AtomTy::U64,
            (_, Ty::S64) => AtomTy::S64,
            (AtomOp::Cas, Ty::B16) => AtomTy::B16,
            (AtomOp::Add, Ty::F32) => AtomTy::F32,
            (AtomOp::Add, Ty::F64) => AtomTy::F64,
            (AtomOp::Add | AtomOp::Min | AtomOp::Max, Ty::F16) => AtomTy::F16,
            (AtomOp::Add | AtomOp::Min | AtomOp::Max, Ty::Bf16) => AtomTy::Bf16,
            (AtomOp::Add | AtomOp::Min | AtomOp::Max, Ty::F16x2) => AtomTy::F16x2,
            (AtomOp::Add | AtomOp::Min | AtomOp::Max, Ty::Bf16x2) => AtomTy::Bf16x2,
            _ => return Err("type".into()),
        };
        let first = usize::from(returns);
        let expected = first + 2 + usize::from(op == AtomOp::Cas) + usize::from(hint);
        if i.operands.len() != expected {
            return Err("operands".into());
        }
        let targets = if returns { parts(operand(i, 0)?) } else { Vec::new() };
        let sources = parts(operand(i, first + 1)?);
        // v2 and v4 of f32, v2 to v8 of the shorter floats: at most 16 bytes, of global memory.
        let vector = match count {
            None => sources.len() == 1,
            Some(n) => {
                let bytes = n * super::bytes_of(ty) as usize;
                sources.len() == n
                    && bytes <= 16
                    && space == "global"
                    && super::integer::is_float(ty)
                    && ty != Ty::F64
                    && op != AtomOp::Cas
            }
        };
        if !vector || (returns && targets.len() != sources.len()) {
            return Err("vector form".into());
        }
        let mut elements = Vec::with_capacity(sources.len());
        for (n, source) in sources.into_iter().enumerate() {
            let d = match targets.get(n) {
                None | Some(Operand::Sink) => None,
                Some(o) => Some(self.dst(o, width_of(ty)?)?),
            };
            elements.push((d, self.src(source, ty)?));
        }
        let address = self.address(operand(i, first)?)?;
        let (d, b) = elements.remove(0);
        let c = if op == AtomOp::Cas { self.src(operand(i, first + 2)?, ty)? } else { ZERO };
        let mut instr = Instr::new(Op::Atom);
        instr.side = push(
            &mut self.sides.atoms,
            AtomicOp { area: area(space), address, op, ty: kind, release, narrow, d, b, c, more: elements },
        );
        Ok(instr)
    }
}
