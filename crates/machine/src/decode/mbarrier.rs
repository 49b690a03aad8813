//! `mbarrier` and the arrival of asynchronous copies at one.
//! Source: PTX ISA 9.0, "Parallel Synchronization and Communication Instructions: mbarrier", "cp.async.mbarrier.arrive".
//! Not here: remote arrivals in a cluster, `mbarrier.complete_tx`, and all bulk copies.

use warpsmith_ptx::ast::{Instruction, Operand, Ty};

use super::integer::operand;
use super::{Decoded, Decoder, Mods, push};
use crate::code::*;

impl Decoder<'_> {
    pub(super) fn mbarrier(&mut self, mnemonic: &str, i: &Instruction, m: &mut Mods) -> Option<Decoded> {
        let copies = mnemonic == "cp" && m.words.first() == Some(&"async") && m.words.get(1) == Some(&"mbarrier");
        (mnemonic == "mbarrier" || copies).then(|| self.mbarrier_op(copies, i, m))
    }

    fn mbarrier_op(&mut self, copies: bool, i: &Instruction, m: &mut Mods) -> Decoded {
        let mut op = MbarrierOp {
            kind: MbarrierKind::Init,
            area: Area::Generic,
            address: AddressOperand { row: ZERO, wide: true, offset: 0 },
            d: None,
            value: None,
            parity: false,
        };
        if copies {
            for word in ["async", "mbarrier", "arrive"] {
                if !m.take(word) {
                    return Err("form".into());
                }
            }
            op.kind = MbarrierKind::CopiesArrive { counted: m.take("noinc") };
        } else {
            op.kind = m
                .find(|w| {
                    Some(match w {
                        "init" => MbarrierKind::Init,
                        "inval" => MbarrierKind::Inval,
                        "arrive" => MbarrierKind::Arrive,
                        "arrive_drop" => MbarrierKind::ArriveDrop,
                        "expect_tx" => MbarrierKind::ExpectTx,
                        "test_wait" | "try_wait" => MbarrierKind::Wait,
                        "pending_count" => MbarrierKind::PendingCount,
                        _ => return None,
                    })
                })
                .ok_or("form")?;
        }
        let expect = op.kind == MbarrierKind::Arrive && m.take("expect_tx");
        if expect {
            op.kind = MbarrierKind::ArriveExpectTx;
        }
        op.parity = m.take("parity");
        for word in ["relaxed", "acquire", "release", "cta", "cluster", "noComplete"] {
            let _ = m.take(word);
        }
        if m.take("shared") || m.take("shared::cta") {
            op.area = Area::Shared;
        }
        if m.ty()? != Ty::B64 {
            return Err("type".into());
        }
        let rest = &i.operands[..];
        match op.kind {
            MbarrierKind::PendingCount => {
                op.d = Some(self.dst(operand(i, 0)?, Width::W32)?);
                op.value = Some(self.src(operand(i, 1)?, Ty::B64)?);
            }
            MbarrierKind::Init | MbarrierKind::ExpectTx => {
                op.address = self.address(operand(i, 0)?)?;
                op.value = Some(self.src(operand(i, 1)?, Ty::U32)?);
            }
            MbarrierKind::Inval | MbarrierKind::CopiesArrive { .. } => op.address = self.address(operand(i, 0)?)?,
            MbarrierKind::Arrive | MbarrierKind::ArriveDrop | MbarrierKind::ArriveExpectTx => {
                op.d = match operand(i, 0)? {
                    Operand::Sink => None,
                    o => Some(self.dst(o, Width::W64)?),
                };
                op.address = self.address(operand(i, 1)?)?;
                op.value = match rest.get(2) {
                    Some(o) => Some(self.src(o, Ty::U32)?),
                    None => None,
                };
            }
            MbarrierKind::Wait => {
                op.d = Some(self.dst(operand(i, 0)?, Width::Pred)?);
                op.address = self.address(operand(i, 1)?)?;
                // A time limit may follow: the machine has no time, and the wait may fail at any moment.
                op.value = Some(self.src(operand(i, 2)?, if op.parity { Ty::U32 } else { Ty::B64 })?);
            }
        }
        let mut instr = Instr::new(Op::Mbarrier);
        instr.side = push(&mut self.sides.mbarriers, op);
        Ok(instr)
    }
}
