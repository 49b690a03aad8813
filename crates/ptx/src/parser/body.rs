//! A function's body: nested scopes, declarations, labels and instructions.
//!
//! Registers of all scopes become one dense list; a variable whose name is taken in the function or the module
//! gets a suffix `@2` (no PTX name has an `@`). A branch is resolved when its scope closes: to the label of
//! that scope, else it is handed to the enclosing one.

use std::collections::HashMap;

use super::function::variables;
use super::locations::Locations;
use super::scope::{Entry, Names};
use super::{Parsed, Parser, twice};
use crate::ast::{Function, Guard, InstrId, Instruction, Operand, RegId, Register, Space, Variable};
use crate::lexer::{At, Kind, Token, shortened};
use crate::limits;

/// A use of a label that may stand further down.
struct Pending<'a> {
    name: &'a str,
    at: At,
    place: Place,
}

enum Place {
    /// The first operand of a branch.
    Branch(InstrId),
    /// An operand that names a table (`brx.idx`) or a prototype (`call`).
    Table(InstrId, usize),
    /// An entry of a `.branchtargets` table.
    Target(String, usize),
}

#[derive(Default)]
struct Scope<'a> {
    labels: HashMap<&'a str, InstrId>,
    pending: Vec<Pending<'a>>,
}

/// One body while it is read.
pub struct Body<'p, 'a> {
    pub(super) parser: &'p mut Parser<'a>,
    pub(super) function: &'p mut Function,
    pub(super) names: Names<'a>,
    scopes: Vec<Scope<'a>>,
    /// Variable name -> how often the function has declared it.
    used: HashMap<&'a str, u32>,
    locations: Locations,
}

impl<'p, 'a> Body<'p, 'a> {
    pub fn new(
        parser: &'p mut Parser<'a>,
        function: &'p mut Function,
        params: Vec<(Token<'a>, Variable)>,
        returns: Vec<(Token<'a>, Variable)>,
    ) -> Parsed<Self> {
        let mut body = Body {
            parser,
            function,
            names: Names::default(),
            scopes: Vec::new(),
            used: HashMap::new(),
            locations: Locations::default(),
        };
        body.names.open();
        for (name, variable) in returns.into_iter().chain(params) {
            // `_` names a parameter that nothing uses.
            if name.text == "_" {
                continue;
            }
            let entry = if variable.space == Space::Reg {
                Entry::Reg(body.register(name.text, variable.ty, &name)?)
            } else {
                body.used.insert(name.text, 1);
                Entry::Named(name.text.to_string())
            };
            if !body.names.declare(name.text, entry) {
                return Err(twice(&name));
            }
        }
        Ok(body)
    }

    /// From the opening brace past the closing one.
    pub fn run(mut self) -> Parsed<()> {
        self.open()?;
        while !self.scopes.is_empty() {
            self.statement()?;
        }
        Ok(())
    }

    fn statement(&mut self) -> Parsed<()> {
        let token = self.parser.token;
        match (token.kind, token.text) {
            (Kind::Mark, "{") => self.open(),
            (Kind::Mark, "}") => self.close(),
            (Kind::Mark, ";") => self.parser.advance().map(drop),
            (Kind::Mark, "@") if self.parser.ahead.is("@") => self.parser.dwarf_line(),
            (Kind::Dot, _) => self.directive(),
            (Kind::Word, _) if self.parser.ahead.is(":") => self.label(),
            (Kind::Word, _) | (Kind::Mark, "@") => self.instruction(),
            _ => Err(self.parser.expected("an instruction, a label or `}`")),
        }
    }

    fn open(&mut self) -> Parsed<()> {
        if self.scopes.len() >= limits::DEPTH {
            let at = self.parser.token.at;
            return Err(at.error(format!("nested more than {} scopes deep", limits::DEPTH)));
        }
        self.parser.expect("{")?;
        self.names.open();
        self.scopes.push(Scope::default());
        Ok(())
    }

    fn close(&mut self) -> Parsed<()> {
        self.parser.expect("}")?;
        let mut scope = self.scopes.pop().unwrap_or_default();
        let mut left = Vec::new();
        for pending in std::mem::take(&mut scope.pending) {
            if let Some(&target) = scope.labels.get(pending.name) {
                self.resolve(&pending.place, target);
            } else if let Place::Table(instruction, operand) = pending.place
                && let Some(Entry::Named(name)) = self.names.find(pending.name)
            {
                self.name_table(instruction, operand, name);
            } else {
                left.push(pending);
            }
        }
        self.names.close();
        match self.scopes.last_mut() {
            Some(parent) if parent.pending.is_empty() => parent.pending = left,
            Some(parent) => parent.pending.append(&mut left),
            None => {
                if let Some(first) = left.first() {
                    let name = shortened(first.name);
                    return Err(first.at.error(match first.place {
                        Place::Table(..) => format!("no declaration of `{name}` can be seen here"),
                        _ => format!("no label `{name}` can be seen from here"),
                    }));
                }
            }
        }
        Ok(())
    }

    fn resolve(&mut self, place: &Place, target: InstrId) {
        match place {
            Place::Branch(instruction) | Place::Table(instruction, _) => {
                let operand = if let Place::Table(_, operand) = place { *operand } else { 0 };
                let instruction = &mut self.function.instructions[*instruction as usize];
                if let Some(operand) = instruction.operands.get_mut(operand) {
                    *operand = Operand::Label(target);
                }
            }
            Place::Target(table, index) => {
                if let Some(entry) = self.function.branch_targets.get_mut(table).and_then(|t| t.get_mut(*index)) {
                    *entry = target;
                }
            }
        }
    }

    fn name_table(&mut self, instruction: InstrId, operand: usize, name: String) {
        let instruction = &mut self.function.instructions[instruction as usize];
        if let Some(operand) = instruction.operands.get_mut(operand) {
            *operand = Operand::Symbol(name, 0);
        }
    }

    /// Leaves the use of a label or table for the scope's end.
    pub(super) fn pend_table(&mut self, name: &Token<'a>, operand: usize) {
        let place = Place::Table(self.function.instructions.len() as InstrId, operand);
        self.pend(name, place);
    }

    fn pend(&mut self, name: &Token<'a>, place: Place) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.pending.push(Pending { name: name.text, at: name.at, place });
        }
    }

    fn directive(&mut self) -> Parsed<()> {
        let token = self.parser.token;
        let space = match token.text {
            "reg" => return self.registers(),
            "loc" => {
                self.parser.advance()?;
                let (loc, call_site) = self.parser.location()?;
                self.locations.enter(loc, call_site);
                return Ok(());
            }
            "pragma" => return self.parser.pragma().map(drop),
            "file" => return self.parser.file(),
            "section" => return self.parser.section(),
            "shared" => Space::Shared,
            "local" => Space::Local,
            "param" => Space::Param,
            "global" | "tex" => Space::Global,
            "const" => Space::Const,
            "extern" | "visible" | "weak" => {
                self.parser.advance()?;
                return self.directive_after_extern(token.text == "extern");
            }
            _ => {
                return Err(self.parser.expected("an instruction or a directive of a function body"));
            }
        };
        self.parser.advance()?;
        self.variables(space, false)
    }

    fn directive_after_extern(&mut self, is_extern: bool) -> Parsed<()> {
        let space = match self.parser.token.text {
            "shared" => Space::Shared,
            "global" => Space::Global,
            "const" => Space::Const,
            _ => return Err(self.parser.expected("`.shared`, `.global` or `.const`")),
        };
        self.parser.advance()?;
        self.variables(space, is_extern)
    }

    fn variables(&mut self, space: Space, is_extern: bool) -> Parsed<()> {
        let kind = self.parser.variable_kind(space)?;
        loop {
            let (name, mut variable) = self.parser.variable(&kind, space)?;
            variable.is_extern = is_extern;
            variable.name = self.unique(&name);
            for (_, symbol, _) in &mut variable.init_symbols {
                if let Some(Entry::Named(unique)) = self.names.find(symbol) {
                    *symbol = unique;
                }
            }
            if !self.names.declare(name.text, Entry::Named(variable.name.clone())) {
                return Err(twice(&name));
            }
            self.function.variables.push(variable);
            if !self.parser.eat(",")? {
                return self.parser.expect(";");
            }
        }
    }

    /// The name itself, or with a count where the function or the module has it already.
    fn unique(&mut self, name: &Token<'a>) -> String {
        let taken = u32::from(self.parser.symbols.contains(name.text));
        let count = self.used.entry(name.text).or_insert(taken);
        *count += 1;
        match *count {
            1 => name.text.to_string(),
            n => format!("{}@{n}", name.text),
        }
    }

    /// `.reg .b32 %r<420>, %x;`
    fn registers(&mut self) -> Parsed<()> {
        self.parser.advance()?;
        let kind = self.parser.variable_kind(Space::Reg)?;
        loop {
            let name = self.parser.word("a register's name")?;
            let fresh = if self.parser.eat("<")? {
                let count = self.parser.unsigned("the number of registers")?;
                self.parser.expect(">")?;
                let first = self.function.registers.len() as RegId;
                self.count_registers(count.saturating_mul(u64::from(kind.lanes)), &name)?;
                if kind.lanes > 1 {
                    return Err(name.at.error("a range of vector registers is not read"));
                }
                let new = (0..count).map(|i| Register { name: format!("{}{i}", name.text), ty: kind.ty });
                self.function.registers.extend(new);
                self.names.declare_range(name.text, first, count as u32)
            } else if kind.lanes > 1 {
                let first = self.function.registers.len() as RegId;
                for part in ["x", "y", "z", "w"].iter().take(kind.lanes as usize) {
                    self.register(&format!("{}.{part}", name.text), kind.ty, &name)?;
                }
                let lanes = kind.lanes.min(4);
                self.names.declare(name.text, Entry::RegVector(first, lanes))
            } else {
                let id = self.register(name.text, kind.ty, &name)?;
                self.names.declare(name.text, Entry::Reg(id))
            };
            if !fresh {
                return Err(twice(&name));
            }
            if !self.parser.eat(",")? {
                return self.parser.expect(";");
            }
        }
    }

    fn register(&mut self, name: &str, ty: crate::ast::Ty, at: &Token<'_>) -> Parsed<RegId> {
        self.count_registers(1, at)?;
        let id = self.function.registers.len() as RegId;
        self.function.registers.push(Register { name: name.to_string(), ty });
        Ok(id)
    }

    fn count_registers(&mut self, count: u64, at: &Token<'_>) -> Parsed<()> {
        let all = (self.parser.registers as u64).saturating_add(count);
        if all > limits::REGISTERS as u64 {
            return Err(at.at.error(format!("a module has at most {} registers", limits::REGISTERS)));
        }
        self.parser.registers = all as usize;
        Ok(())
    }

    /// `name:`, alone or before `.branchtargets`, `.callprototype` or `.calltargets`.
    fn label(&mut self) -> Parsed<()> {
        let name = self.parser.advance()?;
        self.parser.expect(":")?;
        if self.parser.token.kind == Kind::Dot {
            match self.parser.token.text {
                "branchtargets" => return self.branch_targets(&name),
                "callprototype" => return self.prototype(&name),
                "calltargets" => return self.call_targets(&name),
                _ => {}
            }
        }
        let here = self.function.instructions.len() as InstrId;
        let fresh = self.scopes.last_mut().is_none_or(|s| s.labels.insert(name.text, here).is_none());
        if fresh { Ok(()) } else { Err(twice(&name)) }
    }

    fn table(&mut self, name: &Token<'a>) -> Parsed<String> {
        self.parser.advance()?;
        let unique = self.unique(name);
        if self.names.declare(name.text, Entry::Named(unique.clone())) { Ok(unique) } else { Err(twice(name)) }
    }

    fn branch_targets(&mut self, name: &Token<'a>) -> Parsed<()> {
        let table = self.table(name)?;
        let mut count = 0;
        loop {
            let target = self.parser.word("a label")?;
            self.parser.count_word(&target)?;
            self.pend(&target, Place::Target(table.clone(), count));
            count += 1;
            if !self.parser.eat(",")? {
                break;
            }
        }
        // Every entry is resolved before the body ends, or the text is refused.
        self.function.branch_targets.insert(table, vec![0; count]);
        self.parser.expect(";")
    }

    fn prototype(&mut self, name: &Token<'a>) -> Parsed<()> {
        let table = self.table(name)?;
        let returns = if self.parser.token.is("(") { self.parser.parameters()? } else { Vec::new() };
        self.parser.word("`_`, which stands for the function")?;
        let params = if self.parser.token.is("(") { self.parser.parameters()? } else { Vec::new() };
        while self.parser.token.kind == Kind::Dot {
            self.parser.advance()?;
            if matches!(self.parser.token.kind, Kind::Int(_)) {
                self.parser.advance()?;
            }
        }
        self.function.prototypes.insert(table, (variables(&returns), variables(&params)));
        self.parser.expect(";")
    }

    fn call_targets(&mut self, name: &Token<'a>) -> Parsed<()> {
        self.table(name)?;
        loop {
            self.parser.word("a function's name")?;
            if !self.parser.eat(",")? {
                return self.parser.expect(";");
            }
        }
    }

    fn instruction(&mut self) -> Parsed<()> {
        let start = self.parser.token;
        let guard = self.guard()?;
        let mnemonic = self.parser.word("an instruction")?;
        let mut modifiers = Vec::new();
        while self.parser.token.kind == Kind::Dot {
            let modifier = self.parser.advance()?;
            self.parser.count_word(&modifier)?;
            modifiers.push(modifier.text.to_string());
        }
        self.parser.instructions += 1;
        if self.parser.instructions > limits::INSTRUCTIONS {
            return Err(start.at.error(format!("a module has at most {} instructions", limits::INSTRUCTIONS)));
        }
        let mut operands = Vec::new();
        if self.parser.token.is("}") || self.parser.token.kind == Kind::End {
            return Err(self.parser.expected("an operand or `;`"));
        }
        if !self.parser.token.is(";") {
            if mnemonic.text == "bra" {
                let label = self.parser.word("a label")?;
                let here = self.function.instructions.len() as InstrId;
                self.pend(&label, Place::Branch(here));
                operands.push(Operand::Label(0));
            } else {
                self.operands(mnemonic.text, &mut operands)?;
            }
        }
        if !self.parser.token.is(";") {
            return Err(self.parser.expected("`,` or `;`"));
        }
        self.parser.advance()?;
        self.function.instructions.push(Instruction {
            guard,
            mnemonic: mnemonic.text.to_string(),
            modifiers,
            operands,
            loc: self.locations.loc,
            inlined_at: self.locations.inlined_at.clone(),
            ptx_line: start.at.line,
        });
        Ok(())
    }

    fn guard(&mut self) -> Parsed<Option<Guard>> {
        if !self.parser.eat("@")? {
            return Ok(None);
        }
        let negated = self.parser.eat("!")?;
        let name = self.parser.word("a predicate register")?;
        match self.names.find(name.text) {
            Some(Entry::Reg(reg)) => Ok(Some(Guard { reg, negated })),
            _ => Err(name.at.error(format!("no predicate register {} is declared", name.shown()))),
        }
    }
}
