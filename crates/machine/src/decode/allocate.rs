//! Gives the registers of a function their rows: a linear scan over live intervals.
//!
//! PTX has a register for every value; thousands of rows would not fit the cache. Liveness is computed for each register over
//! the control-flow graph of a single thread; lanes never share an element of a row, so what holds for one thread holds for
//! the warp. A register that may be read before it is written is live from the function's start and therefore has its row for
//! itself until then, so that "never written" is still seen.
//! Source: Poletto and Sarkar, "Linear scan register allocation" (TOPLAS 1999).

use std::collections::BTreeMap;

use warpsmith_ptx::ast::{AddressBase, Function, Instruction, Operand, RegId};

use super::width_of;
use crate::code::{FIRST_FREE, RowId, SINK, Width};

/// Blocks times registers up to which liveness is computed.
const MOST_BITS: usize = 1 << 30;

/// Rows of a function's registers, and the first free row.
pub struct Rows {
    pub row_of: Vec<RowId>,
    pub next: RowId,
}

/// Takes the next row of the given width; 64-bit rows are pairs.
pub fn fresh(next: &mut RowId, width: Width) -> RowId {
    let row = *next;
    *next += if width == Width::W64 { 2 } else { 1 };
    row
}

/// Registers that an instruction reads and writes.
#[derive(Default)]
struct Access {
    uses: Vec<RegId>,
    defs: Vec<RegId>,
    /// Every lane that executes it overwrites what it writes.
    kills: bool,
}

fn registers(o: &Operand, out: &mut Access, write: bool) {
    match o {
        Operand::Reg(r) | Operand::NotReg(r) => {
            if write {
                out.defs.push(*r)
            } else {
                out.uses.push(*r)
            }
        }
        Operand::Address(AddressBase::Reg(r), _) => out.uses.push(*r),
        Operand::Tensor(base, _, list) => {
            if let AddressBase::Reg(r) = base {
                out.uses.push(*r);
            }
            list.iter().for_each(|o| registers(o, out, false));
        }
        Operand::Vector(list) | Operand::List(list) => list.iter().for_each(|o| registers(o, out, write)),
        Operand::Pair(a, b) => {
            registers(a, out, write);
            registers(b, out, write);
        }
        _ => {}
    }
}

fn access(i: &Instruction) -> Access {
    let mut out = Access { kills: i.guard.is_none(), ..Access::default() };
    if let Some(g) = i.guard {
        out.uses.push(g.reg);
    }
    let has = |word: &str| i.modifiers.iter().any(|m| m == word);
    let writes = match i.mnemonic.as_str() {
        "st" | "stmatrix" | "red" | "bra" | "brx" | "ret" | "exit" | "trap" | "membar" | "fence" | "cp"
        | "prefetch" | "prefetchu" | "nanosleep" | "discard" | "applypriority" | "setmaxnreg" => false,
        "bar" | "barrier" => has("red"),
        "wmma" => !has("store"),
        "mbarrier" => {
            has("arrive") || has("arrive_drop") || has("test_wait") || has("try_wait") || has("pending_count")
        }
        "call" => i.operands.len() > 1 && matches!(i.operands[0], Operand::List(_)),
        _ => true,
    };
    for (n, o) in i.operands.iter().enumerate() {
        registers(o, &mut out, writes && n == 0);
    }
    out
}

/// First instructions of basic blocks, with the blocks that may follow each.
struct Blocks {
    starts: Vec<usize>,
    next: Vec<Vec<usize>>,
}

fn targets(f: &Function, i: &Instruction) -> Vec<usize> {
    i.operands
        .iter()
        .flat_map(|o| match o {
            Operand::Label(t) => vec![*t as usize],
            Operand::Symbol(name, _) if i.mnemonic == "brx" => {
                f.branch_targets.get(name).map_or_else(Vec::new, |t| t.iter().map(|t| *t as usize).collect())
            }
            _ => Vec::new(),
        })
        .collect()
}

fn blocks(f: &Function) -> Blocks {
    let count = f.instructions.len();
    let mut leader = vec![false; count + 1];
    leader[0] = true;
    let ends = |i: &Instruction| matches!(i.mnemonic.as_str(), "bra" | "brx" | "ret" | "exit" | "trap");
    for (n, i) in f.instructions.iter().enumerate() {
        for t in targets(f, i) {
            leader[t.min(count)] = true;
        }
        if ends(i) {
            leader[n + 1] = true;
        }
    }
    let starts: Vec<usize> = (0..count).filter(|&n| leader[n]).collect();
    let block_at = |n: usize| starts.partition_point(|&s| s <= n).checked_sub(1).filter(|_| n < count);
    let next = (0..starts.len())
        .map(|b| {
            let last = starts.get(b + 1).copied().unwrap_or(count) - 1;
            let i = &f.instructions[last];
            let mut next: Vec<usize> = targets(f, i).into_iter().filter_map(block_at).collect();
            if i.guard.is_some() || !ends(i) {
                next.extend(block_at(last + 1));
            }
            next
        })
        .collect();
    Blocks { starts, next }
}

/// A set of registers.
#[derive(Clone, PartialEq)]
struct Set(Vec<u64>);

impl Set {
    fn new(n: usize) -> Set {
        Set(vec![0; n.div_ceil(64)])
    }

    fn insert(&mut self, r: RegId) {
        self.0[r as usize / 64] |= 1 << (r % 64);
    }

    fn remove(&mut self, r: RegId) {
        self.0[r as usize / 64] &= !(1 << (r % 64));
    }

    /// Adds `other`; true if that changed anything.
    fn join(&mut self, other: &Set) -> bool {
        let mut changed = false;
        for (a, b) in self.0.iter_mut().zip(&other.0) {
            changed |= *b & !*a != 0;
            *a |= b;
        }
        changed
    }

    fn each(&self, mut f: impl FnMut(usize)) {
        for (n, word) in self.0.iter().enumerate() {
            let mut left = *word;
            while left != 0 {
                f(64 * n + left.trailing_zeros() as usize);
                left &= left - 1;
            }
        }
    }
}

/// First and last instruction at which each register holds something.
fn intervals(f: &Function) -> Vec<Option<(usize, usize)>> {
    let registers = f.registers.len();
    let accesses: Vec<Access> = f.instructions.iter().map(access).collect();
    let b = blocks(f);
    let range = |n: usize| b.starts[n]..b.starts.get(n + 1).copied().unwrap_or(f.instructions.len());
    let mut live_out = vec![Set::new(registers); b.starts.len()];
    let mut live_in = live_out.clone();
    let mut changed = true;
    while changed {
        changed = false;
        for n in (0..b.starts.len()).rev() {
            for &next in &b.next[n] {
                changed |= live_out[n].join(&live_in[next]);
            }
            let mut live = live_out[n].clone();
            for a in accesses[range(n)].iter().rev() {
                if a.kills {
                    a.defs.iter().for_each(|r| live.remove(*r));
                }
                a.uses.iter().for_each(|r| live.insert(*r));
            }
            changed |= live_in[n].join(&live);
        }
    }
    let mut spans: Vec<Option<(usize, usize)>> = vec![None; registers];
    let mut cover = |r: usize, at: usize| {
        spans[r] = Some(spans[r].map_or((at, at), |(from, to)| (from.min(at), to.max(at))));
    };
    for n in 0..b.starts.len() {
        let range = range(n);
        live_in[n].each(|r| cover(r, range.start));
        live_out[n].each(|r| cover(r, range.end - 1));
        for at in range {
            let a = &accesses[at];
            a.uses.iter().chain(&a.defs).for_each(|r| cover(*r as usize, at));
        }
    }
    spans
}

/// Rows for all registers: those that are never needed at once share.
pub fn allocate(f: &Function) -> Rows {
    let mut next = FIRST_FREE;
    let mut row_of = vec![SINK; f.registers.len()];
    if f.instructions.is_empty() {
        return Rows { row_of, next };
    }
    // A text with this many registers and blocks comes from no compiler; its rows are not shared.
    let labels = f.instructions.iter().filter(|i| i.operands.iter().any(|o| matches!(o, Operand::Label(_)))).count();
    if labels.saturating_mul(f.registers.len()) > MOST_BITS {
        let row_of = f.registers.iter().map(|r| fresh(&mut next, width_of(r.ty).unwrap_or(Width::W64))).collect();
        return Rows { row_of, next };
    }
    let spans = intervals(f);
    let mut order: Vec<usize> = (0..spans.len()).filter(|&r| spans[r].is_some()).collect();
    order.sort_by_key(|&r| spans[r]);
    // Rows in use by the end of their interval; free rows by width.
    let mut busy: BTreeMap<(usize, RowId), Width> = BTreeMap::new();
    let mut free: [Vec<RowId>; 3] = Default::default();
    let pool = |w: Width| match w {
        Width::W32 => 0,
        Width::W64 => 1,
        Width::Pred => 2,
    };
    for r in order {
        let (start, end) = spans[r].unwrap_or_default();
        // A row is free only after the last instruction that reads it: no instruction reads and writes one row.
        while let Some((&(until, row), &width)) = busy.first_key_value()
            && until < start
        {
            busy.remove(&(until, row));
            free[pool(width)].push(row);
        }
        let width = width_of(f.registers[r].ty).unwrap_or(Width::W64);
        let row = free[pool(width)].pop().unwrap_or_else(|| fresh(&mut next, width));
        row_of[r] = row;
        busy.insert((end, row), width);
    }
    Rows { row_of, next }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(body: &str) -> (Function, Rows) {
        let text = format!(".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k()\n{{\n{body}\n}}\n");
        let module = warpsmith_ptx::parse(&text).expect("the text parses");
        let f = module.functions.into_iter().next().expect("one function");
        let rows = allocate(&f);
        (f, rows)
    }

    fn row(f: &Function, rows: &Rows, name: &str) -> RowId {
        let at = f.registers.iter().position(|r| r.name.trim_start_matches('%') == name).expect("register");
        rows.row_of[at]
    }

    #[test]
    fn values_that_are_never_needed_at_once_share_a_row() {
        let (f, r) = rows(
            ".reg .b32 %r<9>;\nmov.u32 %r1, 1;\nadd.u32 %r2, %r1, %r1;\nadd.u32 %r3, %r2, %r2;\nadd.u32 %r4, %r3, %r3;\nret;",
        );
        assert_eq!(row(&f, &r, "r1"), row(&f, &r, "r3"));
        assert_ne!(row(&f, &r, "r1"), row(&f, &r, "r2"), "an instruction does not read and write one row");
    }

    #[test]
    fn a_value_that_a_loop_carries_keeps_its_row() {
        let (f, r) = rows(
            ".reg .b32 %r<9>;\n.reg .pred %p<3>;\nmov.u32 %r1, 0;\nmov.u32 %r5, 7;\nLOOP:\nadd.u32 %r2, %r1, 1;\nadd.u32 %r3, %r2, %r2;\n\
             mov.u32 %r1, %r2;\nsetp.lt.u32 %p1, %r3, %r5;\n@%p1 bra LOOP;\nret;",
        );
        for other in ["r2", "r3"] {
            assert_ne!(row(&f, &r, "r5"), row(&f, &r, other));
            assert_ne!(row(&f, &r, "r1"), row(&f, &r, other));
        }
    }

    #[test]
    fn a_register_that_may_be_read_unwritten_shares_with_nobody_before() {
        let (f, r) = rows(
            ".reg .b32 %r<9>;\n.reg .pred %p<3>;\nmov.u32 %r1, %tid.x;\nsetp.eq.u32 %p1, %r1, 0;\n@!%p1 bra SKIP;\nmov.u32 %r2, 5;\n\
             SKIP:\nadd.u32 %r3, %r2, 1;\nret;",
        );
        assert_ne!(row(&f, &r, "r1"), row(&f, &r, "r2"));
    }
}
