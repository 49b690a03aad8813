//! What a name means at a place of a function body: registers, variables and tables of nested scopes.
//!
//! One map from name to its declarations, innermost last, so that a look-up costs the same at any depth;
//! closing a scope takes its declarations away again. Labels are not here: they may be used before they stand.

use std::collections::HashMap;

use crate::ast::RegId;

/// What a declared name stands for.
#[derive(Debug, Clone, PartialEq)]
pub enum Entry {
    Reg(RegId),
    /// A `.v2` or `.v4` register: its parts follow one another.
    RegVector(RegId, u32),
    /// A variable, a parameter or a table, by its name unique in the function.
    Named(String),
}

#[derive(Clone, Copy)]
struct Range {
    scope: u32,
    first: RegId,
    count: u32,
}

/// The declarations that can be seen.
#[derive(Default)]
pub struct Names<'a> {
    names: HashMap<&'a str, Vec<(u32, Entry)>>,
    ranges: HashMap<&'a str, Vec<Range>>,
    /// Names declared by each open scope; true for ranges.
    declared: Vec<Vec<(&'a str, bool)>>,
}

impl<'a> Names<'a> {
    pub fn open(&mut self) {
        self.declared.push(Vec::new());
    }

    pub fn close(&mut self) {
        for (name, is_range) in self.declared.pop().unwrap_or_default() {
            if is_range {
                if let Some(all) = self.ranges.get_mut(name) {
                    all.pop();
                }
            } else if let Some(all) = self.names.get_mut(name) {
                all.pop();
            }
        }
    }

    pub fn depth(&self) -> usize {
        self.declared.len()
    }

    /// False where the innermost scope has this name already.
    pub fn declare(&mut self, name: &'a str, entry: Entry) -> bool {
        let scope = self.depth() as u32;
        let all = self.names.entry(name).or_default();
        if all.last().is_some_and(|&(s, _)| s == scope) {
            return false;
        }
        all.push((scope, entry));
        self.note(name, false);
        true
    }

    /// `prefix<count>`: the names `prefix0` to `prefix(count - 1)`.
    pub fn declare_range(&mut self, prefix: &'a str, first: RegId, count: u32) -> bool {
        let scope = self.depth() as u32;
        let all = self.ranges.entry(prefix).or_default();
        if all.last().is_some_and(|r| r.scope == scope) {
            return false;
        }
        all.push(Range { scope, first, count });
        self.note(prefix, true);
        true
    }

    /// The innermost declaration of `name`.
    pub fn find(&self, name: &str) -> Option<Entry> {
        let named = self.names.get(name).and_then(|all| all.last());
        match (named, self.find_in_ranges(name)) {
            (Some((scope, _)), Some((range_scope, id))) if range_scope > *scope => Some(Entry::Reg(id)),
            (Some((_, entry)), _) => Some(entry.clone()),
            (None, Some((_, id))) => Some(Entry::Reg(id)),
            (None, None) => None,
        }
    }

    fn find_in_ranges(&self, name: &str) -> Option<(u32, RegId)> {
        let prefix = name.trim_end_matches(|c: char| c.is_ascii_digit());
        let digits = &name[prefix.len()..];
        if digits.is_empty() {
            return None;
        }
        // `%r<420>` is what compilers write; `%r1<8>`, whose number 2 is `%r12`, is legal too. A number has at
        // most seven digits, the limit being a million registers.
        (0..digits.len().min(7)).rev().find_map(|back| {
            let split = name.len() - 1 - back;
            let (prefix, digits) = name.split_at(split);
            if digits.len() > 1 && digits.starts_with('0') {
                return None;
            }
            let index: u32 = digits.parse().ok()?;
            self.ranges.get(prefix)?.iter().rev().find(|r| index < r.count).map(|r| (r.scope, r.first + index))
        })
    }

    fn note(&mut self, name: &'a str, is_range: bool) {
        if let Some(scope) = self.declared.last_mut() {
            scope.push((name, is_range));
        }
    }
}
