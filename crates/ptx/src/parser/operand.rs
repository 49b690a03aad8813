//! Operands of instructions: registers, constants, vectors, addresses, tensor coordinates, call lists.
//!
//! A word is a register or variable of the nearest scope, a special register, or a symbol of the module, in this
//! order; any other word is an error at its token. Source: PTX ISA 9.0, chapter 6 and 9.7.

use super::body::Body;
use super::constant::Constant;
use super::scope::Entry;
use super::{Parsed, expected_at};
use crate::ast::{AddressBase, Operand, RegId};
use crate::lexer::{Kind, Token};

impl<'a> Body<'_, 'a> {
    /// `a, b, ...` up to the token that cannot go on.
    pub(super) fn operands(&mut self, mnemonic: &str, all: &mut Vec<Operand>) -> Parsed<()> {
        loop {
            // Tables and prototypes may be declared after their use.
            let token = self.parser.token;
            let may_be_table = token.kind == Kind::Word
                && match mnemonic {
                    "brx" => all.len() == 1,
                    "call" => all.len() > 1,
                    _ => false,
                };
            if may_be_table && self.names.find(token.text).is_none() {
                self.parser.advance()?;
                self.pend_table(&token, all.len());
                all.push(Operand::Symbol(token.text.to_string(), 0));
            } else {
                all.push(self.operand(mnemonic == "call")?);
            }
            if !self.parser.eat(",")? {
                return Ok(());
            }
        }
    }

    fn operand(&mut self, in_call: bool) -> Parsed<Operand> {
        let token = self.parser.token;
        self.parser.count_word(&token)?;
        let first = match (token.kind, token.text) {
            (Kind::Int(value), _) if self.number_ends() => {
                self.parser.advance()?;
                return Ok(Operand::Int(value));
            }
            (Kind::Word, "_") => self.parser.advance().map(|_| Operand::Sink)?,
            (Kind::Word, _) if token.text != "generic" || !self.parser.ahead.is("(") => self.named(&token)?,
            (Kind::Mark, "!") if self.parser.ahead.kind == Kind::Word => {
                self.parser.advance()?;
                let name = self.parser.advance()?;
                match self.names.find(name.text) {
                    Some(Entry::Reg(id)) => Operand::NotReg(id),
                    _ => return Err(undeclared(&name, "predicate register")),
                }
            }
            (Kind::Mark, "{") => return self.list("{", "}", false).map(Operand::Vector),
            (Kind::Mark, "[") => return self.address(),
            (Kind::Mark, "(") if in_call => return self.list("(", ")", true).map(Operand::List),
            _ => return self.constant(),
        };
        if !self.parser.eat("|")? {
            return Ok(first);
        }
        let second = self.parser.token;
        let second = match (second.kind, second.text) {
            (Kind::Word, "_") => self.parser.advance().map(|_| Operand::Sink)?,
            (Kind::Word, _) => self.named(&second)?,
            _ => return Err(self.parser.expected("the second destination after `|`")),
        };
        Ok(Operand::Pair(Box::new(first), Box::new(second)))
    }

    /// Whether the number that stands here is all of its operand.
    fn number_ends(&self) -> bool {
        let ahead = &self.parser.ahead;
        ahead.kind == Kind::Mark && matches!(ahead.text, "," | ";" | "}" | "]" | ")")
    }

    fn constant(&mut self) -> Parsed<Operand> {
        let token = self.parser.token;
        if token.kind == Kind::Mark && !matches!(token.text, "-" | "+" | "~" | "!" | "(") {
            return Err(expected_at(&token, "an operand"));
        }
        if matches!(token.kind, Kind::Dot | Kind::Text | Kind::End) {
            return Err(expected_at(&token, "an operand"));
        }
        match self.parser.constant()? {
            Constant::Int(value) => Ok(Operand::Int(value)),
            Constant::F32(bits) => Ok(Operand::F32(bits)),
            Constant::F64(bits) => Ok(Operand::F64(bits)),
            Constant::Symbol { name, at, addend, byte: None } => {
                let token = Token { kind: Kind::Word, text: name, at };
                Ok(Operand::Symbol(self.symbol(&token)?, addend))
            }
            Constant::Symbol { .. } => Err(token.at.error("a byte mask is for initialisers")),
        }
    }

    /// A word as an operand, with what may follow it: `.x`, or an offset in bytes.
    fn named(&mut self, token: &Token<'a>) -> Parsed<Operand> {
        self.parser.advance()?;
        match self.names.find(token.text) {
            Some(Entry::Reg(id)) => return Ok(Operand::Reg(id)),
            Some(Entry::RegVector(first, lanes)) => return self.vector_part(first, lanes),
            _ => {}
        }
        if is_special(token.text) {
            let mut name = token.text.trim_start_matches('%').to_string();
            if self.parser.token.kind == Kind::Dot {
                name.push('.');
                name.push_str(self.parser.advance()?.text);
            }
            return Ok(Operand::Special(name));
        }
        let name = self.symbol(token)?;
        let offset = self.offset()?;
        Ok(Operand::Symbol(name, offset))
    }

    fn vector_part(&mut self, first: RegId, lanes: u32) -> Parsed<Operand> {
        let all = || (first..first + lanes).map(Operand::Reg).collect();
        if self.parser.token.kind != Kind::Dot {
            return Ok(Operand::Vector(all()));
        }
        let part = self.parser.advance()?;
        let index = match part.text {
            "x" | "r" => 0,
            "y" | "g" => 1,
            "z" | "b" => 2,
            "w" | "a" => 3,
            _ => lanes,
        };
        if index >= lanes {
            return Err(part.at.error("the register has no such part"));
        }
        Ok(Operand::Reg(first + index))
    }

    /// The name of a variable, parameter, table or module symbol, unique in the function.
    fn symbol(&self, token: &Token<'a>) -> Parsed<String> {
        if let Some(Entry::Named(name)) = self.names.find(token.text) {
            return Ok(name);
        }
        if self.parser.symbols.contains(token.text) {
            return Ok(token.text.to_string());
        }
        Err(undeclared(token, if token.text.starts_with('%') { "register" } else { "name" }))
    }

    /// `+ 16`, `- 4`, `+-4`, or nothing.
    fn offset(&mut self) -> Parsed<i64> {
        let mut sum = 0i64;
        while self.parser.token.is("+") || self.parser.token.is("-") {
            let minus = self.parser.advance()?.is("-");
            let value = match self.parser.token.kind {
                Kind::Int(value) => {
                    self.parser.advance()?;
                    value
                }
                _ => self.parser.integer("an offset in bytes")?,
            };
            sum = if minus { sum.wrapping_sub(value) } else { sum.wrapping_add(value) };
        }
        Ok(sum)
    }

    /// `[base + offset]`, or with coordinates `[base, {x, y}]`.
    fn address(&mut self) -> Parsed<Operand> {
        self.parser.expect("[")?;
        let token = self.parser.token;
        let (base, offset) = match token.kind {
            Kind::Word => {
                self.parser.advance()?;
                let base = match self.names.find(token.text) {
                    Some(Entry::Reg(id)) => AddressBase::Reg(id),
                    Some(Entry::RegVector(first, lanes)) => match self.vector_part(first, lanes)? {
                        Operand::Reg(id) => AddressBase::Reg(id),
                        _ => return Err(token.at.error("a vector register is no address")),
                    },
                    _ => AddressBase::Symbol(self.symbol(&token)?),
                };
                (base, self.offset()?)
            }
            _ => match self.parser.constant()? {
                Constant::Int(value) => (AddressBase::None, value),
                Constant::Symbol { name, at, addend, byte: None } => {
                    let token = Token { kind: Kind::Word, text: name, at };
                    (AddressBase::Symbol(self.symbol(&token)?), addend)
                }
                _ => return Err(expected_at(&token, "an address")),
            },
        };
        if !self.parser.token.is(",") {
            self.parser.expect("]")?;
            return Ok(Operand::Address(base, offset));
        }
        let mut coordinates = Vec::new();
        while self.parser.eat(",")? {
            if self.parser.token.is("{") {
                coordinates.extend(self.list("{", "}", false)?);
            } else {
                coordinates.push(self.operand(false)?);
            }
        }
        self.parser.expect("]")?;
        Ok(Operand::Tensor(base, offset, coordinates))
    }

    fn list(&mut self, open: &str, close: &str, in_call: bool) -> Parsed<Vec<Operand>> {
        self.parser.deeper()?;
        self.parser.expect(open)?;
        let mut all = Vec::new();
        while !self.parser.token.is(close) {
            all.push(self.operand(in_call)?);
            if !self.parser.eat(",")? {
                break;
            }
        }
        self.parser.expect(close)?;
        self.parser.depth -= 1;
        Ok(all)
    }
}

fn undeclared(token: &Token<'_>, what: &str) -> crate::ParseError {
    token.at.error(format!("no {what} {} is declared here", token.shown()))
}

/// PTX ISA 9.0, chapter 10: the registers that every kernel has.
fn is_special(text: &str) -> bool {
    let Some(name) = text.strip_prefix('%') else {
        return text == "WARP_SZ";
    };
    let numbered = |prefix: &str| {
        name.strip_prefix(prefix).is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|c| c.is_ascii_digit()))
    };
    matches!(
        name,
        "tid"
            | "ntid"
            | "laneid"
            | "warpid"
            | "nwarpid"
            | "ctaid"
            | "nctaid"
            | "smid"
            | "nsmid"
            | "gridid"
            | "is_explicit_cluster"
            | "clusterid"
            | "nclusterid"
            | "cluster_ctaid"
            | "cluster_nctaid"
            | "cluster_ctarank"
            | "cluster_nctarank"
            | "lanemask_eq"
            | "lanemask_le"
            | "lanemask_lt"
            | "lanemask_ge"
            | "lanemask_gt"
            | "clock"
            | "clock_hi"
            | "clock64"
            | "globaltimer"
            | "globaltimer_lo"
            | "globaltimer_hi"
            | "reserved_smem_offset_begin"
            | "reserved_smem_offset_end"
            | "reserved_smem_offset_cap"
            | "total_smem_size"
            | "aggr_smem_size"
            | "dynamic_smem_size"
            | "current_graph_exec"
    ) || numbered("pm")
        || numbered("envreg")
        || numbered("reserved_smem_offset_")
        || name.strip_prefix("pm").and_then(|n| n.strip_suffix("_64")).is_some_and(|n| n.len() == 1)
}
