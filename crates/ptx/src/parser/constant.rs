//! Constant expressions of initialisers, array sizes and operands (PTX ISA 4.5.5), over 64-bit integers.
//!
//! Floating literals and symbols take part as far as compilers write them: a sign before a float, an integer
//! added to or taken from a symbol, `generic(symbol)` and byte masks `0xFF00(symbol)`. Integers wrap; signs are
//! those of 64-bit two's complement.

use super::{Parsed, Parser};
use crate::ast::Ty;
use crate::lexer::{At, Kind};

/// What an expression comes to.
#[derive(Debug, Clone, PartialEq)]
pub enum Constant<'a> {
    Int(i64),
    F32(u32),
    F64(u64),
    /// A name plus bytes; where a mask stands in front, that byte of the address.
    Symbol {
        name: &'a str,
        at: At,
        addend: i64,
        byte: Option<u32>,
    },
}

/// Binary operators, weakest first; those of one level bind equally.
const LEVELS: [&[&str]; 10] = [
    &["||"],
    &["&&"],
    &["|"],
    &["^"],
    &["&"],
    &["==", "!="],
    &["<", "<=", ">", ">="],
    &["<<", ">>"],
    &["+", "-"],
    &["*", "/", "%"],
];

impl<'a> Parser<'a> {
    /// A whole expression, `? :` included.
    pub(super) fn constant(&mut self) -> Parsed<Constant<'a>> {
        self.nested(|p| {
            let condition = p.binary(0)?;
            if !p.token.is("?") {
                return Ok(condition);
            }
            let at = p.advance()?.at;
            let yes = p.constant()?;
            p.expect(":")?;
            let no = p.constant()?;
            match condition {
                Constant::Int(0) => Ok(no),
                Constant::Int(_) => Ok(yes),
                _ => Err(at.error("the condition before `?` is no integer")),
            }
        })
    }

    /// An expression whose value is an integer.
    pub(super) fn integer(&mut self, what: &str) -> Parsed<i64> {
        let at = self.token.at;
        if !matches!(self.token.kind, Kind::Int(_)) && !["-", "+", "(", "~", "!"].iter().any(|m| self.token.is(m)) {
            return Err(self.expected(what));
        }
        match self.constant()? {
            Constant::Int(value) => Ok(value),
            _ => Err(at.error(format!("expected {what}, an integer"))),
        }
    }

    fn binary(&mut self, level: usize) -> Parsed<Constant<'a>> {
        if level == LEVELS.len() {
            return self.unary();
        }
        let mut left = self.binary(level + 1)?;
        while self.token.kind == Kind::Mark && LEVELS[level].contains(&self.token.text) {
            let operator = self.advance()?;
            let right = self.binary(level + 1)?;
            left = apply(operator.text, left, right).map_err(|why| operator.at.error(why))?;
        }
        Ok(left)
    }

    fn unary(&mut self) -> Parsed<Constant<'a>> {
        let operator = self.token;
        if !["-", "+", "!", "~"].iter().any(|m| operator.is(m)) {
            return self.primary();
        }
        self.advance()?;
        let value = self.nested(|p| p.unary())?;
        match (operator.text, value) {
            ("+", value) => Ok(value),
            ("-", Constant::Int(v)) => Ok(Constant::Int(v.wrapping_neg())),
            ("-", Constant::F32(bits)) => Ok(Constant::F32(bits ^ (1 << 31))),
            ("-", Constant::F64(bits)) => Ok(Constant::F64(bits ^ (1 << 63))),
            ("~", Constant::Int(v)) => Ok(Constant::Int(!v)),
            ("!", Constant::Int(v)) => Ok(Constant::Int(i64::from(v == 0))),
            _ => Err(operator.at.error(format!("`{}` does not fit this value", operator.text))),
        }
    }

    fn primary(&mut self) -> Parsed<Constant<'a>> {
        let token = self.token;
        match token.kind {
            Kind::Int(mask) => {
                self.advance()?;
                if !self.token.is("(") {
                    return Ok(Constant::Int(mask));
                }
                self.masked(mask as u64, token.at)
            }
            Kind::F32(bits) => self.advance().map(|_| Constant::F32(bits)),
            Kind::F64(bits) => self.advance().map(|_| Constant::F64(bits)),
            Kind::Mark if token.text == "(" => {
                self.advance()?;
                if matches!(self.token.text, "s64" | "u64") && self.token.kind == Kind::Dot {
                    self.advance()?;
                    self.expect(")")?;
                    return self.nested(|p| p.unary());
                }
                let value = self.constant()?;
                self.expect(")")?;
                Ok(value)
            }
            Kind::Word if token.text == "generic" && self.ahead.is("(") => {
                self.advance()?;
                self.advance()?;
                let value = self.constant()?;
                self.expect(")")?;
                Ok(value)
            }
            Kind::Word => {
                self.advance()?;
                Ok(Constant::Symbol { name: token.text, at: token.at, addend: 0, byte: None })
            }
            _ => Err(self.expected("a constant")),
        }
    }

    /// `0xFF00(symbol)`: one byte of an address, as byte arrays of pointers are written.
    fn masked(&mut self, mask: u64, at: At) -> Parsed<Constant<'a>> {
        self.advance()?;
        let value = self.constant()?;
        self.expect(")")?;
        let shift = mask.trailing_zeros().min(63);
        if mask >> shift != 0xff || !shift.is_multiple_of(8) {
            return Err(at.error("a mask before a symbol is 0xFF at a whole byte"));
        }
        match value {
            Constant::Symbol { name, at, addend, byte: None } => {
                Ok(Constant::Symbol { name, at, addend, byte: Some(shift / 8) })
            }
            Constant::Int(value) => Ok(Constant::Int((value as u64 >> shift & 0xff) as i64)),
            _ => Err(at.error("a mask stands before a symbol's name")),
        }
    }
}

fn apply<'a>(operator: &str, left: Constant<'a>, right: Constant<'a>) -> Result<Constant<'a>, String> {
    match (left, right) {
        (Constant::Int(a), Constant::Int(b)) => integers(operator, a, b).map(Constant::Int),
        (Constant::Symbol { name, at, addend, byte: None }, Constant::Int(b)) if matches!(operator, "+" | "-") => {
            Ok(Constant::Symbol { name, at, addend: integers(operator, addend, b)?, byte: None })
        }
        (Constant::Int(a), symbol @ Constant::Symbol { byte: None, .. }) if operator == "+" => {
            apply("+", symbol, Constant::Int(a))
        }
        _ => Err(format!("`{operator}` does not fit these values")),
    }
}

fn integers(operator: &str, a: i64, b: i64) -> Result<i64, String> {
    let shift = u32::try_from(b).ok().filter(|&n| n < 64);
    Ok(match operator {
        "+" => a.wrapping_add(b),
        "-" => a.wrapping_sub(b),
        "*" => a.wrapping_mul(b),
        "/" | "%" if b == 0 => return Err("division by zero".into()),
        "/" => a.wrapping_div(b),
        "%" => a.wrapping_rem(b),
        "<<" => shift.map_or(0, |n| a << n),
        ">>" => a >> shift.unwrap_or(63),
        "&" => a & b,
        "^" => a ^ b,
        "|" => a | b,
        "&&" => i64::from(a != 0 && b != 0),
        "||" => i64::from(a != 0 || b != 0),
        "==" => i64::from(a == b),
        "!=" => i64::from(a != b),
        "<" => i64::from(a < b),
        "<=" => i64::from(a <= b),
        ">" => i64::from(a > b),
        ">=" => i64::from(a >= b),
        _ => return Err(format!("`{operator}` is no operator")),
    })
}

/// The bytes of a constant in an array of `ty`, little endian; floats are converted to the array's type.
pub(super) fn encode(ty: Ty, value: &Constant<'_>) -> Result<[u8; 16], String> {
    let mut bytes = [0u8; 16];
    let float = match *value {
        Constant::F32(bits) => Some(f64::from(f32::from_bits(bits))),
        Constant::F64(bits) => Some(f64::from_bits(bits)),
        Constant::Int(v) => Some(v as f64),
        Constant::Symbol { .. } => None,
    };
    match (ty, value) {
        (Ty::F32 | Ty::B32, Constant::F32(bits)) => bytes[..4].copy_from_slice(&bits.to_le_bytes()),
        (Ty::F64 | Ty::B64, Constant::F64(bits)) => bytes[..8].copy_from_slice(&bits.to_le_bytes()),
        (Ty::F32, _) if float.is_some() => {
            let narrow = float.unwrap_or(0.0) as f32;
            bytes[..4].copy_from_slice(&narrow.to_le_bytes());
        }
        (Ty::F64, _) if float.is_some() => {
            bytes[..8].copy_from_slice(&float.unwrap_or(0.0).to_le_bytes());
        }
        (_, Constant::Int(v)) => {
            bytes[..8].copy_from_slice(&v.to_le_bytes());
            if *v < 0 {
                bytes[8..].fill(0xff);
            }
        }
        _ => return Err("this constant does not fit the variable's type".into()),
    }
    Ok(bytes)
}

/// Bytes of one element.
pub(super) fn size_of(ty: Ty) -> u32 {
    match ty {
        Ty::B8 | Ty::U8 | Ty::S8 | Ty::Pred => 1,
        Ty::B16 | Ty::U16 | Ty::S16 | Ty::F16 | Ty::Bf16 => 2,
        Ty::B32 | Ty::U32 | Ty::S32 | Ty::F32 | Ty::F16x2 | Ty::Bf16x2 => 4,
        Ty::B64 | Ty::U64 | Ty::S64 | Ty::F64 => 8,
        Ty::B128 => 16,
    }
}
