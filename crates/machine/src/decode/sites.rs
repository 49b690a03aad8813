//! Where an instruction comes from: the CUDA line that people should look at.
//!
//! `.loc` gives a chain: the innermost place first, then the places it was inlined at. A line inside a toolkit header
//! (`cuda_fp16.hpp`) says nothing about the mistake, so the first place outside the toolkit's headers is taken. Line 0 marks
//! what the compiler made itself: the next place of the chain, or the last line seen before it, stands in.

use std::collections::HashMap;

use warpsmith_ptx::ast::{Function, Instruction, Loc, Module};

use crate::api::Site;
use crate::code::Code;

/// Builds sites and the table of mnemonics.
pub struct SiteTable<'a> {
    module: &'a Module,
    pub mnemonics: Vec<String>,
    index: HashMap<String, u16>,
    lines: HashMap<(Option<String>, u32), u32>,
    next_line: u32,
    chains: HashMap<Vec<(u32, u32)>, u32>,
    pub places: Vec<Vec<(String, u32)>>,
}

impl<'a> SiteTable<'a> {
    pub fn new(module: &'a Module) -> SiteTable<'a> {
        SiteTable {
            module,
            mnemonics: Vec::new(),
            index: HashMap::new(),
            lines: HashMap::new(),
            next_line: 0,
            chains: HashMap::new(),
            places: vec![Vec::new()],
        }
    }

    /// Appends the sites of a function's instructions and of the implicit return after them.
    pub fn function(&mut self, f: &Function, code: &mut Code) {
        let mut last: Option<Loc> = None;
        let mut last_chain = 0;
        for i in &f.instructions {
            let found = self.place(i);
            let loc = found.or(last);
            last = loc;
            let site = self.site(loc, i.ptx_line, i.opcode());
            code.lines.push(self.line(&site));
            code.sites.push(site);
            // What the compiler made itself belongs to what it was made for.
            last_chain = self.chain(i).unwrap_or(last_chain);
            code.chains.push(last_chain);
            code.mnemonic_of.push(self.mnemonic(mnemonic(i)));
        }
        let line = f.instructions.last().map_or(0, |i| i.ptx_line);
        let site = self.site(last, line, "ret".into());
        code.lines.push(self.line(&site));
        code.sites.push(site);
        code.chains.push(last_chain);
        code.mnemonic_of.push(self.mnemonic("ret".into()));
    }

    /// The number of the chain of call sites that an instruction stands in, if it has a line.
    fn chain(&mut self, i: &Instruction) -> Option<u32> {
        let known = i.loc.iter().chain(&i.inlined_at).filter(|l| l.line > 0);
        let chain: Vec<(u32, u32)> = known.map(|l| (l.file, l.line)).collect();
        if chain.is_empty() {
            return None;
        }
        if let Some(n) = self.chains.get(&chain) {
            return Some(*n);
        }
        let named = |(file, line): &(u32, u32)| Some((self.module.files.get(file)?.clone(), *line));
        self.places.push(chain.iter().filter_map(named).collect());
        let n = (self.places.len() - 1) as u32;
        self.chains.insert(chain, n);
        Some(n)
    }

    fn place(&self, i: &Instruction) -> Option<Loc> {
        let chain = i.loc.iter().chain(&i.inlined_at).filter(|l| l.line > 0);
        chain.clone().find(|l| !self.is_header(l)).or_else(|| chain.clone().next()).copied()
    }

    fn is_header(&self, l: &Loc) -> bool {
        self.module.files.get(&l.file).is_some_and(|p| is_toolkit_header(p))
    }

    fn site(&self, loc: Option<Loc>, ptx_line: u32, opcode: String) -> Site {
        let file = loc.and_then(|l| self.module.files.get(&l.file).cloned());
        let line = if file.is_some() { loc.map(|l| l.line) } else { None };
        Site { file, line, ptx_line, opcode }
    }

    fn line(&mut self, site: &Site) -> u32 {
        let next = self.next_line;
        let number = match site.line {
            Some(line) => *self.lines.entry((site.file.clone(), line)).or_insert(next),
            None => next,
        };
        self.next_line += u32::from(number == next);
        number
    }

    fn mnemonic(&mut self, name: String) -> u16 {
        if let Some(&n) = self.index.get(&name) {
            return n;
        }
        let n = self.mnemonics.len().min(usize::from(u16::MAX) - 1) as u16;
        self.mnemonics.push(name.clone());
        self.index.insert(name, n);
        n
    }
}

/// `wmma.mma` and `cp.async` are mnemonics of their own in counts; others are the first word.
fn mnemonic(i: &Instruction) -> String {
    match (i.mnemonic.as_str(), i.modifiers.first().map(String::as_str)) {
        ("wmma" | "cp" | "bar" | "barrier" | "mbarrier" | "wgmma", Some(second)) => format!("{}.{second}", i.mnemonic),
        _ => i.mnemonic.clone(),
    }
}

/// Headers of the CUDA toolkit: files under an `include` folder or with the toolkit's own names, but not Warpsmith's.
fn is_toolkit_header(path: &str) -> bool {
    let path = path.replace('\\', "/");
    let name = path.rsplit('/').next().unwrap_or(&path);
    let header = [".h", ".hpp", ".inl", ".cuh"].iter().any(|e| name.ends_with(e)) || !name.contains('.');
    let toolkit = path.contains("/include/")
        || path.starts_with("include/")
        || name.starts_with("cuda_")
        || name.starts_with("mma.");
    header && toolkit && !path.contains("warpsmith")
}

#[cfg(test)]
mod tests {
    use super::is_toolkit_header;

    #[test]
    fn toolkit_headers_are_told_from_the_users_files() {
        for (path, expected) in [
            ("/usr/local/cuda/include/cuda_fp8.hpp", true),
            ("C:\\cuda\\include\\mma.hpp", true),
            ("cuda_fp16.hpp", true),
            ("kernel.cu", false),
            ("src/tile.cuh", false),
            ("warpsmith/include/warpsmith/tile.cuh", false),
        ] {
            assert_eq!(is_toolkit_header(path), expected, "{path}");
        }
    }
}
