//! `.entry` and `.func`: header, performance directives, and the declaration that a definition completes.

use super::body::Body;
use super::{Parsed, Parser, twice};
use crate::ast::{Function, Variable};
use crate::lexer::{Kind, Token};

impl<'a> Parser<'a> {
    /// From `.entry` or `.func` to the body's closing brace, or to the `;` of a declaration.
    pub(super) fn function(&mut self, is_entry: bool) -> Parsed<()> {
        self.advance()?;
        let mut directives = self.directives()?;
        let returns = if self.token.is("(") { self.parameters()? } else { Vec::new() };
        directives.extend(self.directives()?);
        let name = self.word("the function's name")?;
        let params = if self.token.is("(") { self.parameters()? } else { Vec::new() };
        directives.extend(self.directives()?);
        let mut function = Function {
            name: name.text.to_string(),
            is_entry,
            params: variables(&params),
            returns: variables(&returns),
            registers: Vec::new(),
            variables: Vec::new(),
            instructions: Vec::new(),
            has_body: false,
            directives,
            prototypes: Default::default(),
            branch_targets: Default::default(),
        };
        let place = self.place(&name, &function)?;
        if self.token.is("{") {
            function.has_body = true;
            Body::new(self, &mut function, params, returns)?.run()?;
        } else {
            self.expect(";")?;
        }
        if function.has_body || !self.module.functions[place].has_body {
            self.module.functions[place] = function;
        }
        Ok(())
    }

    /// The function's index: that of its earlier declaration, where there is one. A function may call itself,
    /// so the place exists before the body is read.
    fn place(&mut self, name: &Token<'a>, function: &Function) -> Parsed<usize> {
        if let Some(&place) = self.functions.get(name.text) {
            let earlier = &self.module.functions[place];
            if self.token.is("{") && earlier.has_body {
                return Err(twice(name));
            }
            return Ok(place);
        }
        if !self.symbols.insert(name.text) {
            return Err(twice(name));
        }
        let place = self.module.functions.len();
        self.module.functions.push(function.clone());
        self.functions.insert(name.text, place);
        Ok(place)
    }

    /// `.maxntid 128, 1, 1`, `.noreturn`, `.pragma "...";`: words with their numbers.
    fn directives(&mut self) -> Parsed<Vec<(String, Vec<u64>)>> {
        let mut all = Vec::new();
        while self.token.kind == Kind::Dot {
            match self.token.text {
                "pragma" => {
                    let words = self.pragma()?;
                    all.extend(words.iter().map(|w| (format!("pragma {w}"), Vec::new())));
                    continue;
                }
                "attribute" => {
                    self.advance()?;
                    self.parenthesised()?;
                    continue;
                }
                _ => {}
            }
            let name = self.advance()?;
            self.count_word(&name)?;
            let mut numbers = Vec::new();
            while matches!(self.token.kind, Kind::Int(_)) {
                self.count_word(&name)?;
                numbers.push(self.unsigned("a number that is not negative")?);
                if !self.eat(",")? {
                    break;
                }
            }
            all.push((name.text.to_string(), numbers));
        }
        Ok(all)
    }
}

pub(super) fn variables(named: &[(Token<'_>, Variable)]) -> Vec<Variable> {
    named.iter().map(|(_, variable)| variable.clone()).collect()
}
