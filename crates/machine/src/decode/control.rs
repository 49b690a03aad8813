//! Branches, calls, barriers, fences and traps.
//! Source: PTX ISA 9.0, "Control Flow Instructions", "Parallel Synchronization and Communication Instructions".

use warpsmith_ptx::ast::{Instruction, Operand, Ty};

use super::integer::operand;
use super::{Decoded, Decoder, Mods, Unsupported, push};
use crate::code::*;

impl Decoder<'_> {
    pub(super) fn control(&mut self, mnemonic: &str, i: &Instruction, m: &mut Mods) -> Option<Decoded> {
        let _ = m.words.contains(&"uni") && matches!(mnemonic, "bra" | "call" | "ret" | "brx") && m.take("uni");
        Some(match mnemonic {
            "bra" => match operand(i, 0) {
                Ok(Operand::Label(target)) => Ok(Instr { imm: i64::from(self.start + target), ..Instr::new(Op::Bra) }),
                _ => Err("target".into()),
            },
            "brx" => self.branch_index(i, m),
            "call" => self.call(i),
            "ret" => Ok(Instr::new(if self.f.is_entry { Op::Exit } else { Op::Ret })),
            "exit" => Ok(Instr::new(Op::Exit)),
            "trap" | "brkpt" => Ok(Instr::new(Op::Trap)),
            "bar" | "barrier" => self.barrier(mnemonic == "bar", i, m),
            "membar" | "fence" => self.fence(m),
            "nanosleep" => {
                m.words.clear();
                Ok(Instr::new(Op::Sleep))
            }
            // A dependent grid starts after this one here, whatever is said; registers are as many as a thread names.
            "pmevent" | "griddepcontrol" | "setmaxnreg" => {
                m.words.clear();
                Ok(Instr::new(Op::Nop))
            }
            _ => return None,
        })
    }

    fn branch_index(&mut self, i: &Instruction, m: &mut Mods) -> Decoded {
        if !m.take("idx") {
            return Err("form".into());
        }
        let a = self.src(operand(i, 0)?, Ty::U32)?;
        let targets = match operand(i, 1)? {
            Operand::Symbol(name, _) => {
                let table = self.f.branch_targets.get(name).ok_or("branch table")?;
                table.iter().map(|t| self.start + t).collect()
            }
            _ => return Err("branch table".into()),
        };
        let mut instr = Instr::with(Op::BraIndex, SINK, a, ZERO, ZERO);
        instr.side = push(&mut self.sides.tables, targets);
        Ok(instr)
    }

    fn call(&mut self, i: &Instruction) -> Decoded {
        // call [(returns),] target [, (arguments)] [, prototype]
        let mut operands = i.operands.iter().peekable();
        let returns = match operands.peek() {
            Some(Operand::List(list)) => {
                operands.next();
                &list[..]
            }
            _ => &[],
        };
        let target = operands.next().ok_or("target")?;
        let arguments = match operands.next() {
            Some(Operand::List(list)) => &list[..],
            _ => &[],
        };
        let target = match target {
            Operand::Symbol(name, _) => self.callee(name)?,
            Operand::Reg(r) => {
                self.indirect_calls = true;
                CallTarget::Indirect(self.reg(*r, Width::W64)?)
            }
            _ => return Err("target".into()),
        };
        let args = arguments.iter().map(|o| self.call_value(o)).collect::<Result<_, _>>()?;
        let returns = returns.iter().map(|o| self.call_value(o)).collect::<Result<_, _>>()?;
        let mut instr = Instr::new(Op::Call);
        instr.side = push(&mut self.sides.calls, CallOp { target, args, returns });
        Ok(instr)
    }

    fn callee(&mut self, name: &str) -> Result<CallTarget, Unsupported> {
        match name {
            "vprintf" => return Ok(CallTarget::Vprintf),
            "__assertfail" => return Ok(CallTarget::AssertFail),
            _ => {}
        }
        let &index = self.symbols.functions.get(name).ok_or_else(|| format!("call of {name}"))?;
        if !self.functions.iter().any(|f| f.name == name && f.has_body) {
            return Err(format!("call of {name}, which has no body"));
        }
        if !self.callees.contains(&index) {
            self.callees.push(index);
        }
        Ok(CallTarget::Function(index))
    }

    fn call_value(&mut self, o: &Operand) -> Result<CallValue, Unsupported> {
        match o {
            Operand::Symbol(name, 0) if self.locals.iter().any(|l| l.name == *name) => {
                let l = self.locals.iter().find(|l| l.name == *name).ok_or("call operand")?;
                Ok(CallValue::Local { offset: l.offset, bytes: l.bytes })
            }
            Operand::Reg(r) => Ok(CallValue::Row { row: self.rows[*r as usize], width: self.width(*r)? }),
            Operand::Sink => Ok(CallValue::Row { row: SINK, width: Width::W64 }),
            o => Ok(CallValue::Row { row: self.src(o, Ty::B64)?, width: Width::W64 }),
        }
    }

    fn barrier(&mut self, bar: bool, i: &Instruction, m: &mut Mods) -> Decoded {
        if bar && m.take("warp") {
            if !m.take("sync") {
                return Err("form".into());
            }
            let a = self.src(operand(i, 0)?, Ty::B32)?;
            return Ok(Instr::with(Op::BarWarp, SINK, a, ZERO, ZERO));
        }
        if m.words.contains(&"cluster") {
            return Err("cluster barrier".into());
        }
        let _ = m.take("cta");
        // `bar.sync` is `barrier.sync.aligned`.
        let aligned = m.take("aligned") | bar;
        let mut kind = m
            .find(|w| {
                Some(match w {
                    "sync" => BarrierKind::Sync,
                    "arrive" => BarrierKind::Arrive,
                    "red" => BarrierKind::RedPopc,
                    _ => return None,
                })
            })
            .ok_or("form")?;
        let mut d = SINK;
        let mut operands = &i.operands[..];
        let mut pred = None;
        if kind == BarrierKind::RedPopc {
            kind = m
                .find(|w| {
                    Some(match w {
                        "popc" => BarrierKind::RedPopc,
                        "and" => BarrierKind::RedAnd,
                        "or" => BarrierKind::RedOr,
                        _ => return None,
                    })
                })
                .ok_or("reduction")?;
            let _ = m.ty()?;
            let [target, rest @ .., p] = operands else { return Err("operands".into()) };
            d = self.dst(target, if kind == BarrierKind::RedPopc { Width::W32 } else { Width::Pred })?;
            pred = Some(self.pred(p)?);
            operands = rest;
        }
        let (id, count) = match operands {
            [id] => (self.src(id, Ty::U32)?, None),
            [id, count] => (self.src(id, Ty::U32)?, Some(self.src(count, Ty::U32)?)),
            _ => return Err("operands".into()),
        };
        let mut instr = Instr::new(Op::Barrier);
        instr.side = push(&mut self.sides.barriers, BarrierOp { kind, aligned, id, count, pred, d });
        Ok(instr)
    }

    fn fence(&mut self, m: &mut Mods) -> Decoded {
        if m.words.iter().any(|w| w.starts_with("proxy") || w.starts_with("mbarrier")) {
            // Between proxies, or for an mbarrier's first use by another CTA: without bulk copies, tensor maps and clusters there is
            // only the generic proxy, and nothing to order.
            if m.words.iter().any(|w| w.contains("tensormap")) {
                return Err("tensor map fence".into());
            }
            m.words.clear();
            return Ok(Instr::new(Op::Nop));
        }
        let gpu = m.words.iter().any(|w| matches!(*w, "gl" | "gpu" | "sys" | "cluster"));
        m.words.clear();
        Ok(Instr { imm: i64::from(gpu), ..Instr::new(Op::Fence) })
    }
}
