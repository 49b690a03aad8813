//! Loads, stores, matrix loads and asynchronous copies.
//! Source: PTX ISA 9.0, "Data Movement and Conversion Instructions: ld, st, prefetch, cp.async, ldmatrix, stmatrix".

use warpsmith_ptx::ast::{AddressBase, Instruction, Operand, Ty};

use super::integer::operand;
use super::{Decoded, Decoder, Mods, Unsupported, bytes_of, is_signed, push};
use crate::code::*;

/// What the modifiers of an access say.
struct Access {
    space: &'static str,
    strong: bool,
    acquire: bool,
    release: bool,
    narrow: bool,
    relaxed: bool,
    count: usize,
    hint: bool,
}

/// Takes words that steer caches only.
pub(crate) fn cache_words(m: &mut Mods) -> bool {
    for word in ["ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc", "L2::64B", "L2::128B", "L2::256B"] {
        let _ = m.take(word);
    }
    for policy in ["evict_normal", "evict_unchanged", "evict_first", "evict_last", "no_allocate"] {
        let _ = m.take(&format!("L1::{policy}"));
        let _ = m.take(&format!("L2::{policy}"));
    }
    m.take("L2::cache_hint")
}

fn access(m: &mut Mods) -> Access {
    let mut a = Access {
        space: "generic",
        strong: false,
        acquire: false,
        release: false,
        narrow: false,
        relaxed: false,
        count: 1,
        hint: false,
    };
    a.hint = cache_words(m);
    for (word, acquire, release) in [
        ("volatile", false, false),
        ("relaxed", false, false),
        ("acquire", true, false),
        ("release", false, true),
        ("mmio", false, false),
    ] {
        if m.take(word) {
            a.strong = true;
            a.acquire |= acquire;
            a.release |= release;
            a.relaxed |= !acquire && !release;
        }
    }
    let _ = m.take("weak");
    a.narrow = m.take("cta");
    for scope in ["cluster", "gpu", "sys"] {
        let _ = m.take(scope);
    }
    if let Some(space) = m.find(|w| {
        Some(match w {
            "global" => "global",
            "shared" | "shared::cta" | "shared::cluster" => "shared",
            "local" => "local",
            "const" => "const",
            "param" | "param::entry" | "param::func" => "param",
            _ => return None,
        })
    }) {
        a.space = space;
    }
    if let Some(count) = m.find(|w| {
        Some(match w {
            "v2" => 2,
            "v4" => 4,
            "v8" => 8,
            _ => return None,
        })
    }) {
        a.count = count;
    }
    let _ = m.take("unified");
    a
}

pub(crate) fn area(space: &str) -> Area {
    match space {
        "shared" => Area::Shared,
        "local" => Area::Local,
        "global" | "const" => Area::Global,
        _ => Area::Generic,
    }
}

impl Decoder<'_> {
    pub(super) fn memory(&mut self, mnemonic: &str, i: &Instruction, m: &mut Mods) -> Option<Decoded> {
        Some(match mnemonic {
            "ld" | "ldu" => self.load(i, m),
            "st" => self.store(i, m),
            "prefetch" | "prefetchu" | "discard" | "applypriority" => {
                m.words.clear();
                Ok(Instr::new(Op::Prefetch))
            }
            "createpolicy" => {
                // A policy steers caches only: any value will do.
                m.words.clear();
                operand(i, 0).and_then(|o| self.dst(o, Width::W64)).map(|d| Instr::with(Op::Mov64, d, ZERO, ZERO, ZERO))
            }
            "cp" => self.copy(i, m),
            "ldmatrix" => self.matrix(true, i, m),
            "stmatrix" => self.matrix(false, i, m),
            _ => return None,
        })
    }

    fn load(&mut self, i: &Instruction, m: &mut Mods) -> Decoded {
        let a = access(m);
        let ty = m.ty()?;
        let targets: Vec<&Operand> = match operand(i, 0)? {
            Operand::Vector(v) => v.iter().collect(),
            o => vec![o],
        };
        if targets.len() != a.count || i.operands.len() != 2 + usize::from(a.hint) {
            return Err("operands".into());
        }
        let source = operand(i, 1)?;
        if a.space == "param"
            && let Operand::Address(AddressBase::Symbol(name), offset) = source
            && let Some((at, bytes)) = self.kernel_param(name)
            && let [Operand::Reg(r)] = targets[..]
        {
            let size = bytes_of(ty);
            let width = self.width(*r)?;
            if *offset < 0 || *offset + i64::from(size) > i64::from(bytes) || size > 8 {
                return Err("a parameter read past its end".into());
            }
            let row = self.param_row(at + *offset as u32, size, is_signed(ty), width);
            let d = self.rows[*r as usize];
            return match width {
                Width::W32 => Ok(Instr::with(Op::Mov32, d, row, ZERO, ZERO)),
                Width::W64 => Ok(Instr::with(Op::Mov64, d, row, ZERO, ZERO)),
                Width::Pred => Err("a predicate as destination".into()),
            };
        }
        let area = self.param_area(&a, source);
        let address = self.address(source)?;
        let mut rows = Vec::new();
        for t in &targets {
            rows.push(self.dst_any(t)?);
        }
        let extend = match targets[..] {
            [Operand::Reg(r), ..] if is_signed(ty) => 8 * bytes_of(self.f.registers[*r as usize].ty),
            _ => 0,
        };
        self.mem(Op::Load, area, address, ty, rows, &a, extend)
    }

    /// `.param` inside a function is the frame's local memory; in an entry the parameter buffer, at a generic address.
    fn param_area(&self, a: &Access, source: &Operand) -> Area {
        if a.space != "param" {
            return area(a.space);
        }
        match source {
            Operand::Address(AddressBase::Symbol(name), _) if self.locals.iter().any(|l| l.name == *name) => {
                Area::Local
            }
            // A function that takes the address of its own parameter, as LLVM without optimisation does.
            Operand::Address(AddressBase::Reg(_), _) if !self.f.is_entry => Area::Local,
            _ => Area::Generic,
        }
    }

    fn mem(
        &mut self,
        op: Op,
        area: Area,
        address: AddressOperand,
        ty: Ty,
        rows: Vec<(RowId, Width)>,
        a: &Access,
        extend: u32,
    ) -> Decoded {
        let bytes = bytes_of(ty);
        if bytes > 8 || rows.iter().any(|r| r.1 == Width::Pred) {
            return Err("element type".into());
        }
        let mut instr = Instr::new(op);
        let side = MemOp {
            area,
            address,
            bytes,
            rows,
            extend,
            strong: a.strong,
            acquire: a.acquire,
            release: a.release,
            narrow: a.narrow,
            relaxed: a.relaxed,
        };
        instr.side = push(&mut self.sides.mems, side);
        Ok(instr)
    }

    fn store(&mut self, i: &Instruction, m: &mut Mods) -> Decoded {
        if m.take("async") {
            return Err("st.async".into());
        }
        let a = access(m);
        let ty = m.ty()?;
        if i.operands.len() != 2 + usize::from(a.hint) {
            return Err("operands".into());
        }
        let area = self.param_area(&a, operand(i, 0)?);
        let address = self.address(operand(i, 0)?)?;
        let sources: Vec<&Operand> = match operand(i, 1)? {
            Operand::Vector(v) => v.iter().collect(),
            o => vec![o],
        };
        if sources.len() != a.count {
            return Err("operands".into());
        }
        let mut rows = Vec::new();
        for s in sources {
            rows.push(self.src_any(s, ty)?);
        }
        if a.space == "const" {
            return Err("a store to const".into());
        }
        self.mem(Op::Store, area, address, ty, rows, &a, 0)
    }

    fn copy(&mut self, i: &Instruction, m: &mut Mods) -> Decoded {
        if !m.take("async") {
            return Err("form".into());
        }
        if m.take("commit_group") {
            return Ok(Instr::new(Op::CpAsyncCommit));
        }
        if m.take("wait_all") {
            return Ok(Instr { imm: 0, sub: 1, ..Instr::new(Op::CpAsyncWait) });
        }
        if m.take("wait_group") {
            let Operand::Int(n) = operand(i, 0)? else { return Err("operand form".into()) };
            return Ok(Instr { imm: *n, ..Instr::new(Op::CpAsyncWait) });
        }
        if m.words.iter().any(|w| w.starts_with("bulk") || w.starts_with("mbarrier")) {
            return Err("form".into());
        }
        let l1 = m.take("ca");
        let hint = cache_words(m);
        if !(m.take("shared") || m.take("shared::cta") || m.take("shared::cluster")) || !m.take("global") {
            return Err("spaces".into());
        }
        let shared = self.address(operand(i, 0)?)?;
        let global = self.address(operand(i, 1)?)?;
        let Operand::Int(bytes) = operand(i, 2)? else { return Err("size form".into()) };
        if !matches!((l1, bytes), (_, 16) | (true, 4 | 8)) {
            return Err("size".into());
        }
        let rest = i.operands.len() - 3 - usize::from(hint);
        let (mut src_size, mut ignore) = (None, None);
        match (rest, i.operands.get(3)) {
            (0, _) => {}
            (1, Some(Operand::Reg(r))) if self.width(*r)? == Width::Pred => {
                ignore = Some((self.rows[*r as usize], false))
            }
            (1, Some(Operand::NotReg(r))) => ignore = Some((self.rows[*r as usize], true)),
            (1, Some(o)) => src_size = Some(self.src(o, Ty::U32)?),
            _ => return Err("operands".into()),
        }
        let mut instr = Instr::new(Op::CpAsync);
        instr.side = push(&mut self.sides.copies, CopyOp { shared, global, bytes: *bytes as u32, src_size, ignore });
        Ok(instr)
    }

    fn matrix(&mut self, load: bool, i: &Instruction, m: &mut Mods) -> Decoded {
        if !m.take("sync") || !m.take("aligned") || !m.take("m8n8") {
            return Err("shape".into());
        }
        let count = m.find(|w| {
            Some(match w {
                "x1" => 1,
                "x2" => 2,
                "x4" => 4,
                _ => return None,
            })
        });
        let count = count.ok_or("count")?;
        let transposed = m.take("trans");
        let shared = m.take("shared") || m.take("shared::cta");
        if m.ty()? != Ty::B16 {
            return Err("type".into());
        }
        let (registers, address) =
            if load { (operand(i, 0)?, operand(i, 1)?) } else { (operand(i, 1)?, operand(i, 0)?) };
        let address = self.address(address)?;
        let list: Vec<&Operand> = match registers {
            Operand::Vector(v) => v.iter().collect(),
            o => vec![o],
        };
        if list.len() != count {
            return Err("operands".into());
        }
        let rows = list
            .into_iter()
            .map(|o| if load { self.dst(o, Width::W32) } else { self.src(o, Ty::B32) })
            .collect::<Result<Vec<_>, Unsupported>>()?;
        let area = if shared { Area::Shared } else { Area::Generic };
        let mut instr = Instr::new(if load { Op::LoadMatrix } else { Op::StoreMatrix });
        instr.side = push(&mut self.sides.matrices, MatrixOp { area, address, count, transposed, rows });
        Ok(instr)
    }
}
