//! From the parsed module to dense code: functions one after the other, one [`Instr`] for each PTX instruction.
//!
//! What the machine does not know becomes [`Op::Unsupported`] with its text; decoding itself never fails, and never
//! guesses: every modifier must be understood by the family that takes the opcode, or the instruction is unsupported.
//! Source: PTX ISA 9.0, chapter "Instruction Set".

mod allocate;
mod atomics;
mod control;
mod convert;
mod float;
mod integer;
mod mbarrier;
mod memory;
mod sites;
mod tensor;
mod warp;

use std::collections::HashMap;

use warpsmith_ptx::ast::{AddressBase, Function, Instruction, Module, Operand, RegId, Space, Ty, Variable};

use crate::code::*;

/// Why an instruction cannot be decoded: words for people.
pub type Unsupported = String;
/// Result of decoding one instruction.
pub type Decoded = Result<Instr, Unsupported>;

/// A module-scope or function-scope variable that lies in global, const or shared memory.
#[derive(Debug, Clone)]
pub struct ModuleVariable {
    pub name: String,
    pub space: Space,
    pub align: u32,
    pub bytes: u64,
    pub is_extern: bool,
    pub init: Vec<u8>,
    /// (byte offset, target, addend)
    pub init_symbols: Vec<(u64, InitTarget, i64)>,
    /// The functions that name it.
    pub used_by: Vec<usize>,
}

/// What an initialiser's address points to.
#[derive(Debug, Clone)]
pub enum InitTarget {
    Variable(usize),
    Function(usize),
}

/// Code and variables of a module.
#[derive(Debug, Default)]
pub struct DecodedModule {
    pub code: Code,
    pub variables: Vec<ModuleVariable>,
}

/// Names of a module.
pub struct Symbols {
    variables: HashMap<String, usize>,
    functions: HashMap<String, usize>,
}

/// Decodes all functions of `module`.
pub fn decode(module: &Module) -> DecodedModule {
    let mut out = DecodedModule::default();
    let mut symbols = Symbols { variables: HashMap::new(), functions: HashMap::new() };
    // A declaration and its definition are one function: the definition wins.
    for f in &module.functions {
        let next = symbols.functions.len();
        symbols.functions.entry(f.name.clone()).or_insert(next);
    }
    for v in &module.variables {
        add_variable(&mut out.variables, &mut symbols, v, "");
    }
    let mut order: Vec<Option<&Function>> = vec![None; symbols.functions.len()];
    for f in &module.functions {
        let slot = &mut order[symbols.functions[&f.name]];
        if slot.is_none() || f.has_body {
            *slot = Some(f);
        }
        // Function-scope shared variables exist once for a CTA, as module-scope ones do.
        for v in f.variables.iter().filter(|v| matches!(v.space, Space::Shared | Space::Global | Space::Const)) {
            add_variable(&mut out.variables, &mut symbols, v, &f.name);
        }
    }
    for v in &module.variables {
        resolve_init(&mut out.variables, &symbols, v);
    }
    let mut sites = sites::SiteTable::new(module);
    for (index, f) in order.into_iter().enumerate() {
        let Some(f) = f else { continue };
        function(module, f, index, &symbols, &mut out, &mut sites);
    }
    (out.code.mnemonics, out.code.places) = (sites.mnemonics, sites.places);
    out
}

/// The key of a function-scope name: two functions may each have a variable of one name.
fn scoped(function: &str, name: &str) -> String {
    if function.is_empty() { name.to_string() } else { format!("{function}\0{name}") }
}

fn add_variable(list: &mut Vec<ModuleVariable>, symbols: &mut Symbols, v: &Variable, function: &str) {
    let key = scoped(function, &v.name);
    if let Some(&at) = symbols.variables.get(&key) {
        // A declaration, then the definition: the definition wins.
        let known: &mut ModuleVariable = &mut list[at];
        if known.is_extern && !v.is_extern {
            (known.is_extern, known.bytes, known.init) = (false, v.bytes, v.init.clone());
        }
        return;
    }
    symbols.variables.insert(key, list.len());
    list.push(ModuleVariable {
        name: v.name.clone(),
        space: v.space,
        align: v.align.max(1),
        bytes: v.bytes,
        is_extern: v.is_extern,
        init: v.init.clone(),
        init_symbols: Vec::new(),
        used_by: Vec::new(),
    });
}

fn resolve_init(list: &mut [ModuleVariable], symbols: &Symbols, v: &Variable) {
    let targets: Vec<_> = v
        .init_symbols
        .iter()
        .filter_map(|(at, name, addend)| {
            let target = match (symbols.variables.get(name), symbols.functions.get(name)) {
                (Some(&i), _) => InitTarget::Variable(i),
                (_, Some(&i)) => InitTarget::Function(i),
                _ => return None,
            };
            Some((*at, target, *addend))
        })
        .collect();
    if let Some(&i) = symbols.variables.get(&v.name) {
        list[i].init_symbols = targets;
    }
}

fn function(
    module: &Module,
    f: &Function,
    index: usize,
    symbols: &Symbols,
    out: &mut DecodedModule,
    sites: &mut sites::SiteTable,
) {
    let start = out.code.instrs.len() as Pc;
    let map = allocate::allocate(f);
    let mut d = Decoder {
        f,
        symbols,
        sides: &mut out.code.sides,
        start,
        rows: map.row_of,
        next: map.next,
        inits: Vec::new(),
        constants: HashMap::new(),
        locals: Vec::new(),
        local_bytes: 0,
        variables_used: Vec::new(),
        callees: Vec::new(),
        indirect_calls: false,
        functions: &module.functions,
    };
    d.lay_out_locals();
    let mut unsupported = None;
    let mut instrs = Vec::with_capacity(f.instructions.len() + 1);
    for (n, i) in f.instructions.iter().enumerate() {
        let decoded = d.instruction(i).and_then(|instr| d.guarded(i, instr));
        instrs.push(decoded.unwrap_or_else(|why| {
            let pc = start + n as Pc;
            unsupported.get_or_insert_with(|| (pc, why.clone()));
            let mut instr = Instr::new(Op::Unsupported);
            instr.side = push(&mut d.sides.unsupported, why);
            instr
        }));
    }
    // Falling off the end of a body returns; of an entry, exits.
    instrs.push(Instr::new(if f.is_entry { Op::Exit } else { Op::Ret }));
    let range = |d: &Decoder, v: &Variable| {
        let l = d.locals.iter().find(|l| l.name == v.name);
        l.map_or((0, 0), |l| (l.offset, l.bytes))
    };
    let decoded = FunctionCode {
        name: f.name.clone(),
        is_entry: f.is_entry,
        has_body: f.has_body,
        start,
        end: start + instrs.len() as Pc,
        rows: d.next,
        params: if f.is_entry { Vec::new() } else { f.params.iter().map(|v| range(&d, v)).collect() },
        returns: if f.is_entry { Vec::new() } else { f.returns.iter().map(|v| range(&d, v)).collect() },
        inits: std::mem::take(&mut d.inits),
        local_bytes: d.local_bytes,
        locals: std::mem::take(&mut d.locals),
        callees: std::mem::take(&mut d.callees),
        indirect_calls: d.indirect_calls,
        unsupported,
    };
    for v in d.variables_used {
        if !out.variables[v].used_by.contains(&index) {
            out.variables[v].used_by.push(index);
        }
    }
    sites.function(f, &mut out.code);
    out.code.instrs.extend(instrs);
    out.code.functions.push(decoded);
}

/// Appends to a side table and returns the index.
fn push<T>(table: &mut Vec<T>, value: T) -> u32 {
    table.push(value);
    (table.len() - 1) as u32
}

impl Instr {
    /// An instruction with no operands.
    pub fn new(op: Op) -> Instr {
        Instr {
            op,
            class: op.class(),
            sub: 0,
            flags: 0,
            guard_negated: false,
            guard: ALWAYS,
            d: SINK,
            d2: SINK,
            a: ZERO,
            b: ZERO,
            c: ZERO,
            imm: 0,
            side: 0,
        }
    }

    fn with(op: Op, d: RowId, a: RowId, b: RowId, c: RowId) -> Instr {
        Instr { d, a, b, c, ..Instr::new(op) }
    }
}

#[derive(PartialEq, Eq, Hash)]
enum Constant {
    Word(u32),
    Wide(u64),
    Special(Special),
    Variable(usize, i64, bool),
    Function(usize),
    Local(i64, bool),
    Param(u32, u32, bool, bool),
    ParamAddress(i64),
}

/// State while one function is decoded.
pub(crate) struct Decoder<'a> {
    f: &'a Function,
    functions: &'a [Function],
    symbols: &'a Symbols,
    sides: &'a mut Sides,
    start: Pc,
    rows: Vec<RowId>,
    next: RowId,
    inits: Vec<(RowId, RowInit)>,
    constants: HashMap<Constant, RowId>,
    locals: Vec<NamedRange>,
    local_bytes: u32,
    variables_used: Vec<usize>,
    callees: Vec<usize>,
    indirect_calls: bool,
}

/// Width of a register of type `ty`.
pub(crate) fn width_of(ty: Ty) -> Result<Width, Unsupported> {
    Ok(match ty {
        Ty::Pred => Width::Pred,
        Ty::B64 | Ty::U64 | Ty::S64 | Ty::F64 => Width::W64,
        Ty::B128 => return Err("128-bit registers".into()),
        _ => Width::W32,
    })
}

/// Bytes of a type.
pub(crate) fn bytes_of(ty: Ty) -> u32 {
    match ty {
        Ty::B8 | Ty::U8 | Ty::S8 | Ty::Pred => 1,
        Ty::B16 | Ty::U16 | Ty::S16 | Ty::F16 | Ty::Bf16 => 2,
        Ty::B32 | Ty::U32 | Ty::S32 | Ty::F16x2 | Ty::Bf16x2 | Ty::F32 => 4,
        Ty::B64 | Ty::U64 | Ty::S64 | Ty::F64 => 8,
        Ty::B128 => 16,
    }
}

pub(crate) fn is_signed(ty: Ty) -> bool {
    matches!(ty, Ty::S8 | Ty::S16 | Ty::S32 | Ty::S64)
}

/// A type word of PTX.
pub(crate) fn type_word(word: &str) -> Option<Ty> {
    Some(match word {
        "b8" => Ty::B8,
        "b16" => Ty::B16,
        "b32" => Ty::B32,
        "b64" => Ty::B64,
        "b128" => Ty::B128,
        "u8" => Ty::U8,
        "u16" => Ty::U16,
        "u32" => Ty::U32,
        "u64" => Ty::U64,
        "s8" => Ty::S8,
        "s16" => Ty::S16,
        "s32" => Ty::S32,
        "s64" => Ty::S64,
        "f16" => Ty::F16,
        "f16x2" => Ty::F16x2,
        "bf16" => Ty::Bf16,
        "bf16x2" => Ty::Bf16x2,
        "f32" => Ty::F32,
        "f64" => Ty::F64,
        "pred" => Ty::Pred,
        _ => return None,
    })
}

/// The modifiers of an instruction, taken one by one; what remains at the end is not understood.
pub(crate) struct Mods<'a> {
    words: Vec<&'a str>,
}

impl<'a> Mods<'a> {
    fn new(i: &'a Instruction) -> Mods<'a> {
        Mods { words: i.modifiers.iter().map(String::as_str).collect() }
    }

    /// Takes `word` if it is there.
    pub fn take(&mut self, word: &str) -> bool {
        match self.words.iter().position(|w| *w == word) {
            Some(at) => {
                self.words.remove(at);
                true
            }
            None => false,
        }
    }

    /// Takes the first word that `f` understands.
    pub fn find<T>(&mut self, f: impl Fn(&str) -> Option<T>) -> Option<T> {
        let (at, value) = self.words.iter().enumerate().find_map(|(n, w)| f(w).map(|v| (n, v)))?;
        self.words.remove(at);
        Some(value)
    }

    /// Takes the first type word.
    pub fn ty(&mut self) -> Result<Ty, Unsupported> {
        self.find(type_word).ok_or_else(|| "no type".to_string())
    }

    /// All must have been taken.
    pub fn done(&self) -> Result<(), Unsupported> {
        match self.words.first() {
            None => Ok(()),
            Some(w) => Err(format!("modifier .{w}")),
        }
    }
}

impl Decoder<'_> {
    fn lay_out_locals(&mut self) {
        let own = if self.f.is_entry { &[][..] } else { &self.f.params[..] };
        let returns = if self.f.is_entry { &[][..] } else { &self.f.returns[..] };
        let scoped = self.f.variables.iter().filter(|v| matches!(v.space, Space::Local | Space::Param));
        for v in own.iter().chain(returns).chain(scoped) {
            // The frame's base is aligned to 16; a stricter wish is met by aligning within the frame.
            let align = v.align.clamp(1, 256);
            let offset = self.local_bytes.next_multiple_of(align);
            let bytes = v.bytes.min(1 << 24) as u32;
            self.locals.push(NamedRange { name: v.name.clone(), offset, bytes });
            self.local_bytes = offset.saturating_add(bytes);
        }
    }

    fn guarded(&mut self, i: &Instruction, mut instr: Instr) -> Decoded {
        if let Some(g) = i.guard {
            instr.guard = self.reg(g.reg, Width::Pred)?;
            instr.guard_negated = g.negated;
        }
        Ok(instr)
    }

    fn instruction(&mut self, i: &Instruction) -> Decoded {
        let mut m = Mods::new(i);
        let opcode = || i.opcode();
        let mnemonic = i.mnemonic.as_str();
        let decoded = self
            .integer(mnemonic, i, &mut m)
            .or_else(|| self.float(mnemonic, i, &mut m))
            .or_else(|| self.convert(mnemonic, i, &mut m))
            .or_else(|| self.mbarrier(mnemonic, i, &mut m))
            .or_else(|| self.memory(mnemonic, i, &mut m))
            .or_else(|| self.atomics(mnemonic, i, &mut m))
            .or_else(|| self.control(mnemonic, i, &mut m))
            .or_else(|| self.warp(mnemonic, i, &mut m))
            .or_else(|| self.tensor(mnemonic, i, &mut m));
        match decoded {
            None => Err(opcode()),
            Some(Ok(instr)) => match m.done() {
                Ok(()) => Ok(instr),
                Err(why) => Err(format!("{} ({why})", opcode())),
            },
            Some(Err(why)) => Err(format!("{} ({why})", opcode())),
        }
    }

    fn fresh(&mut self, width: Width) -> RowId {
        allocate::fresh(&mut self.next, width)
    }

    fn constant(&mut self, key: Constant, init: RowInit, width: Width) -> RowId {
        if let Some(&row) = self.constants.get(&key) {
            return row;
        }
        let row = self.fresh(width);
        self.inits.push((row, init));
        self.constants.insert(key, row);
        row
    }

    pub(crate) fn word(&mut self, value: u32) -> RowId {
        if value == 0 {
            return ZERO;
        }
        self.constant(Constant::Word(value), RowInit::Word(value), Width::W32)
    }

    pub(crate) fn wide(&mut self, value: u64) -> RowId {
        if value == 0 {
            return ZERO;
        }
        self.constant(Constant::Wide(value), RowInit::Wide(value), Width::W64)
    }

    fn width(&self, reg: RegId) -> Result<Width, Unsupported> {
        let r = self.f.registers.get(reg as usize).ok_or("a register that is not declared")?;
        width_of(r.ty)
    }

    pub(crate) fn reg(&self, reg: RegId, width: Width) -> Result<RowId, Unsupported> {
        if self.width(reg)? != width {
            return Err(format!("register {} of another width", self.f.registers[reg as usize].name));
        }
        Ok(self.rows[reg as usize])
    }

    /// A destination of the given width.
    pub(crate) fn dst(&self, o: &Operand, width: Width) -> Result<RowId, Unsupported> {
        match o {
            Operand::Reg(r) => self.reg(*r, width),
            Operand::Sink => Ok(SINK),
            _ => Err("destination form".into()),
        }
    }

    /// A destination register with whatever width it has.
    pub(crate) fn dst_any(&self, o: &Operand) -> Result<(RowId, Width), Unsupported> {
        match o {
            Operand::Reg(r) => Ok((self.rows[*r as usize], self.width(*r)?)),
            Operand::Sink => Ok((SINK, Width::W64)),
            _ => Err("destination form".into()),
        }
    }

    /// A source row of type `ty`: register, immediate, special register or symbol.
    pub(crate) fn src(&mut self, o: &Operand, ty: Ty) -> Result<RowId, Unsupported> {
        let width = width_of(ty)?;
        match o {
            Operand::Reg(r) => self.reg(*r, width),
            Operand::Int(v) => match width {
                Width::W64 => {
                    let v = if ty == Ty::F64 { (*v as f64).to_bits() } else { *v as u64 };
                    Ok(self.wide(v))
                }
                Width::W32 => {
                    let v = match ty {
                        Ty::F32 => (*v as f32).to_bits(),
                        _ if bytes_of(ty) == 1 => *v as u32 & 0xFF,
                        _ if bytes_of(ty) == 2 => *v as u32 & 0xFFFF,
                        _ => *v as u32,
                    };
                    Ok(self.word(v))
                }
                Width::Pred => Ok(self.predicate(*v != 0)),
            },
            Operand::F32(bits) => match ty {
                Ty::F64 => Ok(self.wide((f32::from_bits(*bits) as f64).to_bits())),
                _ if width == Width::W32 => Ok(self.word(*bits)),
                _ => Err("operand form".into()),
            },
            Operand::F64(bits) => match ty {
                Ty::F32 => Ok(self.word((f64::from_bits(*bits) as f32).to_bits())),
                _ if width == Width::W64 => Ok(self.wide(*bits)),
                _ => Err("operand form".into()),
            },
            Operand::Special(name) if name == "WARP_SZ" => {
                Ok(if width == Width::W64 { self.wide(32) } else { self.word(32) })
            }
            // Of the driver and of performance monitors: nothing is said of them, and they read as zero. Clusters are of one CTA.
            Operand::Special(name)
                if special(name).is_none()
                    && (name.starts_with("envreg") || name.starts_with("pm") || name == "is_explicit_cluster") =>
            {
                Ok(ZERO)
            }
            Operand::Special(name) => {
                let special = special(name).ok_or_else(|| format!("%{name}"))?;
                if width == Width::W64 {
                    // The machine runs one grid, whose number is small.
                    return if special == Special::GridId { Ok(ZERO) } else { Err(format!("%{name} as 64 bits")) };
                }
                Ok(self.constant(Constant::Special(special), RowInit::Special(special), Width::W32))
            }
            Operand::Symbol(name, offset) => self.symbol(name, *offset, width == Width::W64),
            _ => Err("operand form".into()),
        }
    }

    /// A source register with whatever width it has, or an immediate of type `ty`.
    pub(crate) fn src_any(&mut self, o: &Operand, ty: Ty) -> Result<(RowId, Width), Unsupported> {
        match o {
            Operand::Reg(r) => Ok((self.rows[*r as usize], self.width(*r)?)),
            _ => Ok((self.src(o, ty)?, width_of(ty)?)),
        }
    }

    fn predicate(&mut self, value: bool) -> RowId {
        // A predicate row is a mask in its first word; all ones or zero.
        self.word(if value { u32::MAX } else { 0 })
    }

    /// A predicate source and whether it is negated.
    pub(crate) fn pred(&mut self, o: &Operand) -> Result<(RowId, bool), Unsupported> {
        match o {
            Operand::Reg(r) => Ok((self.reg(*r, Width::Pred)?, false)),
            Operand::NotReg(r) => Ok((self.reg(*r, Width::Pred)?, true)),
            Operand::Int(v) => Ok((self.predicate(*v != 0), false)),
            _ => Err("predicate form".into()),
        }
    }

    /// The address of a named object.
    pub(crate) fn symbol(&mut self, name: &str, offset: i64, wide: bool) -> Result<RowId, Unsupported> {
        let width = if wide { Width::W64 } else { Width::W32 };
        if let Some(l) = self.locals.iter().find(|l| l.name == name) {
            let offset = offset.wrapping_add(i64::from(l.offset));
            return Ok(self.constant(Constant::Local(offset, wide), RowInit::Local { offset, wide }, width));
        }
        if let Some(offset) = self.kernel_param(name).map(|(at, _)| offset.wrapping_add(i64::from(at))) {
            if !wide {
                return Err("32-bit address of a parameter".into());
            }
            return Ok(self.constant(Constant::ParamAddress(offset), RowInit::ParamAddress { offset }, width));
        }
        let scoped = scoped(&self.f.name, name);
        if let Some(&variable) = self.symbols.variables.get(&scoped).or_else(|| self.symbols.variables.get(name)) {
            self.variables_used.push(variable);
            let init = RowInit::Variable { variable, offset, wide };
            return Ok(self.constant(Constant::Variable(variable, offset, wide), init, width));
        }
        if let (Some(&function), true) = (self.symbols.functions.get(name), wide) {
            self.indirect_calls |= !matches!(name, "vprintf");
            return Ok(self.constant(Constant::Function(function), RowInit::Function { function }, width));
        }
        Err(format!("symbol {name}"))
    }

    /// Offset and bytes of a parameter of this entry.
    pub(crate) fn kernel_param(&self, name: &str) -> Option<(u32, u32)> {
        if !self.f.is_entry {
            return None;
        }
        param_layout(&self.f.params)
            .into_iter()
            .zip(&self.f.params)
            .find(|(_, v)| v.name == name)
            .map(|(at, v)| (at, v.bytes as u32))
    }

    /// The bytes of a parameter as a constant row.
    pub(crate) fn param_row(&mut self, offset: u32, bytes: u32, signed: bool, width: Width) -> RowId {
        let wide = width == Width::W64;
        let init = RowInit::Param { offset, bytes, signed, wide };
        self.constant(Constant::Param(offset, bytes, signed, wide), init, width)
    }

    /// `[base + offset]`.
    pub(crate) fn address(&mut self, o: &Operand) -> Result<AddressOperand, Unsupported> {
        let Operand::Address(base, offset) = o else { return Err("address form".into()) };
        self.address_parts(base, *offset)
    }

    pub(crate) fn address_parts(&mut self, base: &AddressBase, offset: i64) -> Result<AddressOperand, Unsupported> {
        match base {
            AddressBase::Reg(r) => {
                let wide = match self.width(*r)? {
                    Width::W64 => true,
                    Width::W32 => false,
                    Width::Pred => return Err("a predicate as address".into()),
                };
                Ok(AddressOperand { row: self.rows[*r as usize], wide, offset })
            }
            AddressBase::Symbol(name) => {
                Ok(AddressOperand { row: self.symbol(name, offset, true)?, wide: true, offset: 0 })
            }
            AddressBase::None => Ok(AddressOperand { row: ZERO, wide: true, offset }),
        }
    }
}

/// Offsets of an entry's parameters.
fn param_layout(params: &[Variable]) -> Vec<u32> {
    param_layout_of(params.iter().map(|v| (v.bytes.min(1 << 20) as u32, v.align)))
}

/// Offsets of parameters of given bytes and alignment.
pub(crate) fn param_layout_of(params: impl Iterator<Item = (u32, u32)>) -> Vec<u32> {
    let mut at = 0u32;
    let place = |(bytes, align): (u32, u32)| {
        let offset = at.next_multiple_of(align.clamp(1, 4096));
        at = offset.saturating_add(bytes);
        offset
    };
    params.map(place).collect()
}

fn special(name: &str) -> Option<Special> {
    let (head, tail) = name.split_once('.').unwrap_or((name, ""));
    let dim = match tail {
        "x" => Some(0),
        "y" => Some(1),
        "z" => Some(2),
        _ => None,
    };
    Some(match (head, dim) {
        ("tid", Some(n)) => Special::Tid(n),
        ("ntid", Some(n)) => Special::Ntid(n),
        ("ctaid", Some(n)) => Special::Ctaid(n),
        ("nctaid", Some(n)) => Special::Nctaid(n),
        ("clusterid", Some(n)) => Special::ClusterId(n),
        ("nclusterid", Some(n)) => Special::NclusterId(n),
        ("cluster_ctaid", Some(_)) | ("cluster_ctarank", _) => Special::ClusterZero,
        ("cluster_nctaid", Some(_)) | ("cluster_nctarank", _) => Special::ClusterOne,
        ("laneid", _) => Special::LaneId,
        ("warpid", _) => Special::WarpId,
        ("nwarpid", _) => Special::NwarpId,
        ("lanemask_eq", _) => Special::LaneMaskEq,
        ("lanemask_le", _) => Special::LaneMaskLe,
        ("lanemask_lt", _) => Special::LaneMaskLt,
        ("lanemask_ge", _) => Special::LaneMaskGe,
        ("lanemask_gt", _) => Special::LaneMaskGt,
        ("smid", _) => Special::SmId,
        ("nsmid", _) => Special::NsmId,
        ("gridid", _) => Special::GridId,
        ("dynamic_smem_size", _) => Special::DynamicShared,
        ("total_smem_size", _) => Special::TotalShared,
        ("aggr_smem_size", _) => Special::AggregateShared,
        // Not in the PTX manual: cooperative_groups/details/driver_abi.h and memory.h (CUDA 13.0).
        ("envreg1", _) => Special::GridWorkspace(1),
        ("envreg2", _) => Special::GridWorkspace(2),
        ("reserved_smem_offset_1", _) => Special::ReservedShared,
        _ => return None,
    })
}
