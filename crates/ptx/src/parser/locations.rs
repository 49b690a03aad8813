//! `.loc`: where in the CUDA source an instruction comes from, through inlining.
//!
//! A `.loc` that was inlined names its call site by file, line and column only. That call site may itself lie in
//! an inlined function, which an earlier `.loc` of the same position says; so chains are put together from the
//! last `.loc` of each position in the function. Line 0 is the compiler's own code: then the nearest call site
//! with a line stands for it. Source: PTX ISA 9.0, 11.5.5 `.loc`.

use std::collections::HashMap;

use super::{Parsed, Parser};
use crate::ast::Loc;
use crate::limits;

/// The current place of a function body.
#[derive(Default)]
pub struct Locations {
    pub loc: Option<Loc>,
    pub inlined_at: Vec<Loc>,
    /// Position -> the call site of the function it lies in.
    callers: HashMap<Loc, Option<Loc>>,
}

impl Locations {
    /// Takes the next `.loc` in.
    pub fn enter(&mut self, loc: Loc, call_site: Option<Loc>) {
        self.callers.insert(loc, call_site);
        self.inlined_at.clear();
        let mut next = call_site;
        while let Some(site) = next {
            if self.inlined_at.len() == limits::INLINE_CHAIN || self.inlined_at.contains(&site) {
                break;
            }
            self.inlined_at.push(site);
            next = self.callers.get(&site).copied().flatten();
        }
        self.loc = (loc.line > 0).then_some(loc);
        if self.loc.is_none()
            && let Some(known) = self.inlined_at.iter().position(|l| l.line > 0)
        {
            self.loc = Some(self.inlined_at[known]);
            self.inlined_at.drain(..=known);
        }
    }
}

impl Parser<'_> {
    /// `1 20 9, function_name $L__info_string0, inlined_at 1 52 9`: the position and its call site.
    pub(super) fn location(&mut self) -> Parsed<(Loc, Option<Loc>)> {
        let loc = self.position()?;
        let mut call_site = None;
        while self.token.is(",") {
            self.advance()?;
            let word = self.word("`function_name` or `inlined_at`")?;
            match word.text {
                "inlined_at" => call_site = Some(self.position()?),
                "function_name" => {
                    self.word("a label of the debug strings")?;
                    if self.eat("+")? {
                        self.unsigned("an offset into the debug strings")?;
                    }
                }
                _ => {
                    return Err(word
                        .at
                        .error(format!("expected `function_name` or `inlined_at`, found {}", word.shown())));
                }
            }
        }
        Ok((loc, call_site))
    }

    fn position(&mut self) -> Parsed<Loc> {
        let mut numbers = [0u32; 3];
        for (number, what) in numbers.iter_mut().zip(["a file number", "a line number", "a column number"]) {
            let at = self.token.at;
            *number = u32::try_from(self.unsigned(what)?).map_err(|_| at.error(format!("{what} has 32 bits")))?;
        }
        let [file, line, column] = numbers;
        Ok(Loc { file, line, column })
    }
}
