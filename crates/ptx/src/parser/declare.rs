//! Declarations outside registers: type, alignment, array dimensions, initialiser, parameters.
//!
//! Opaque types (`.texref` and its like) are read as 64-bit handles. Source: PTX ISA 9.0, 5.1.6, 5.3 and 5.4.

use super::constant::{Constant, encode, size_of};
use super::{Parsed, Parser};
use crate::ast::{Space, Ty, Variable};
use crate::lexer::{Kind, Token};
use crate::limits;

/// What stands before the names of a declaration.
#[derive(Clone, Copy)]
pub struct VariableKind {
    pub ty: Ty,
    /// 1, 2 or 4 elements (`.v2`, `.v4`; `.v8` for the newest targets).
    pub lanes: u32,
    align: u32,
}

/// A declarator's dimensions; the first may be open (`[]`).
struct Dimensions {
    /// Elements from each level on: `[2][3]` gives 6, 3, 1.
    strides: Vec<u64>,
    open: bool,
}

/// An initialiser as it grows.
struct Contents {
    ty: Ty,
    element: u64,
    /// Bytes from one element of each level to the next.
    strides: Vec<u64>,
    /// Bytes at most; None for an open array.
    limit: Option<u64>,
    bytes: Vec<u8>,
    symbols: Vec<(u64, String, i64)>,
}

impl<'a> Parser<'a> {
    /// `[bank] .align 16 .attribute(.managed) .v4 .f32`, in any order. Parameters may say `.ptr .global
    /// .align 8`, which is the alignment of what they point to and says nothing of themselves.
    pub(super) fn variable_kind(&mut self, space: Space) -> Parsed<VariableKind> {
        if space == Space::Const && self.eat("[")? {
            self.unsigned("the number of a constant bank")?;
            self.expect("]")?;
        }
        let (mut ty, mut lanes, mut align, mut of_pointer) = (None, 1, None, false);
        while self.token.kind == Kind::Dot {
            let token = self.advance()?;
            match token.text {
                "align" => {
                    let at = self.token.at;
                    let bytes = self.integer("an alignment in bytes")?;
                    if !(1..=1 << 16).contains(&bytes) || bytes & (bytes - 1) != 0 {
                        return Err(at.error("an alignment is a power of two up to 65536"));
                    }
                    if !of_pointer {
                        align = Some(bytes as u32);
                    }
                }
                "attribute" => self.parenthesised()?,
                "ptr" => of_pointer = true,
                "global" | "shared" | "local" | "const" | "generic" if of_pointer => {}
                "v2" => lanes = 2,
                "v4" => lanes = 4,
                "v8" => lanes = 8,
                text => match ty_of(text) {
                    Some(found) => ty = Some(found),
                    None => {
                        return Err(token.at.error(format!("expected a type, found {}", token.shown())));
                    }
                },
            }
        }
        let Some(ty) = ty else {
            return Err(self.expected("a type such as `.b32`"));
        };
        let align = align.unwrap_or(size_of(ty) * lanes);
        Ok(VariableKind { ty, lanes, align })
    }

    /// `name[2][3] = {...}`.
    pub(super) fn variable(&mut self, kind: &VariableKind, space: Space) -> Parsed<(Token<'a>, Variable)> {
        let name = self.word("a name")?;
        let dimensions = self.dimensions(kind)?;
        let element = u64::from(size_of(kind.ty));
        let limit = (!dimensions.open).then(|| dimensions.strides[0] * element);
        let mut contents = Contents {
            ty: kind.ty,
            element,
            strides: dimensions.strides[1..].iter().map(|s| s * element).collect(),
            limit,
            bytes: Vec::new(),
            symbols: Vec::new(),
        };
        if self.eat("=")? {
            self.initialiser(&mut contents)?;
        }
        let variable = Variable {
            name: name.text.to_string(),
            space,
            ty: kind.ty,
            align: kind.align,
            bytes: limit.unwrap_or(contents.bytes.len() as u64),
            is_extern: false,
            init: contents.bytes,
            init_symbols: contents.symbols,
        };
        Ok((name, variable))
    }

    /// `(.param .u64 a, .param .align 8 .b8 b[24])`; the bracket is the current token.
    pub(super) fn parameters(&mut self) -> Parsed<Vec<(Token<'a>, Variable)>> {
        self.expect("(")?;
        let mut all = Vec::new();
        while !self.token.is(")") {
            let space = match (self.token.kind, self.token.text) {
                (Kind::Dot, "param") => Space::Param,
                (Kind::Dot, "reg") => Space::Reg,
                _ => return Err(self.expected("`.param`")),
            };
            self.advance()?;
            let kind = self.variable_kind(space)?;
            all.push(self.variable(&kind, space)?);
            if !self.eat(",")? {
                break;
            }
        }
        self.expect(")")?;
        Ok(all)
    }

    /// Skips `( ... )`, brackets inside included.
    pub(super) fn parenthesised(&mut self) -> Parsed<()> {
        self.expect("(")?;
        let mut open = 1usize;
        while open > 0 {
            if self.token.kind == Kind::End {
                return Err(self.expected("`)`"));
            }
            open += usize::from(self.token.is("("));
            open -= usize::from(self.token.is(")"));
            self.advance()?;
        }
        Ok(())
    }

    fn dimensions(&mut self, kind: &VariableKind) -> Parsed<Dimensions> {
        let mut sizes = Vec::new();
        let mut open = false;
        while self.token.is("[") {
            let at = self.advance()?.at;
            if self.token.is("]") && sizes.is_empty() {
                open = true;
                sizes.push(1);
            } else {
                let size = self.integer("a number of elements")?;
                match u64::try_from(size) {
                    Ok(size) if size <= limits::VARIABLE_BYTES => sizes.push(size),
                    _ => return Err(at.error("an array's size is 0 to 2^30")),
                }
            }
            if sizes.len() > limits::DEPTH {
                return Err(at.error(format!("more than {} dimensions", limits::DEPTH)));
            }
            self.expect("]")?;
        }
        let at = self.token.at;
        if kind.lanes > 1 {
            sizes.push(u64::from(kind.lanes));
        }
        let most = limits::VARIABLE_BYTES / u64::from(size_of(kind.ty));
        let mut strides = vec![1u64];
        for size in sizes.iter().rev() {
            let all = strides[strides.len() - 1] * size;
            if all > most {
                return Err(at.error(format!("a variable has at most {} bytes", limits::VARIABLE_BYTES)));
            }
            strides.push(all);
        }
        strides.reverse();
        Ok(Dimensions { strides, open })
    }

    fn initialiser(&mut self, contents: &mut Contents) -> Parsed<()> {
        if self.token.kind == Kind::Text {
            let text = self.advance()?;
            let mut at = 0;
            for byte in text.text.bytes().chain([0]) {
                self.store(contents, at, &Constant::Int(i64::from(byte)), &text)?;
                at += contents.element;
            }
            return Ok(());
        }
        if self.token.is("{") {
            return self.braces(contents, 0, 0);
        }
        let token = self.token;
        let value = self.constant()?;
        self.store(contents, 0, &value, &token)
    }

    /// `{1, 2, {3, 4}}` from byte `start` on, one brace a dimension.
    fn braces(&mut self, contents: &mut Contents, level: usize, start: u64) -> Parsed<()> {
        self.nested(|p| {
            p.expect("{")?;
            let row = contents.strides.get(level).copied().unwrap_or(contents.element);
            let mut at = start;
            while !p.token.is("}") {
                if p.token.is("{") {
                    p.braces(contents, level + 1, at)?;
                    at += row.max(contents.element);
                } else {
                    let token = p.token;
                    let value = p.constant()?;
                    p.store(contents, at, &value, &token)?;
                    at += contents.element;
                }
                if !p.eat(",")? {
                    break;
                }
            }
            p.expect("}")
        })
    }

    fn store(&mut self, contents: &mut Contents, at: u64, value: &Constant<'_>, token: &Token<'_>) -> Parsed<()> {
        let end = at + contents.element;
        if contents.limit.is_some_and(|limit| end > limit) {
            return Err(token.at.error("more initial values than the variable holds"));
        }
        let held = contents.bytes.len() as u64;
        if end > held {
            self.initialised += end - held;
            if self.initialised > limits::INITIALISED_BYTES {
                return Err(token
                    .at
                    .error(format!("a module has at most {} initialised bytes", limits::INITIALISED_BYTES)));
            }
            contents.bytes.resize(end as usize, 0);
        }
        match *value {
            Constant::Symbol { name, addend, byte, .. } => match byte {
                // Bytes 1 to 7 of an address whose byte 0 was met: one pointer.
                Some(byte) if byte > 0 => {
                    let first = at.checked_sub(u64::from(byte) * contents.element);
                    let known = contents.symbols.last();
                    if known.is_none_or(|s| Some(s.0) != first || s.1 != name) {
                        return Err(token.at.error("the bytes of an address stand one after the other"));
                    }
                }
                None if contents.element < 4 => {
                    return Err(token.at.error("an address needs 4 or 8 bytes"));
                }
                _ => {
                    self.count_word(token)?;
                    contents.symbols.push((at, name.to_string(), addend));
                }
            },
            _ => {
                let bytes = encode(contents.ty, value).map_err(|why| token.at.error(why))?;
                let place = &mut contents.bytes[at as usize..end as usize];
                place.copy_from_slice(&bytes[..place.len()]);
            }
        }
        Ok(())
    }
}

/// A fundamental type by its word.
pub fn ty_of(text: &str) -> Option<Ty> {
    Some(match text {
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
        "texref" | "samplerref" | "surfref" => Ty::B64,
        _ => return None,
    })
}
