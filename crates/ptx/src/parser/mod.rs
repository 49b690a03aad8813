//! The grammar at module scope: version, target, files, variables, functions, aliases.
//!
//! Recursive descent with one token of look-ahead. [`body`] has functions, [`operand`] operands, [`declare`]
//! declarations, [`constant`] constant expressions, [`scope`] names.

mod body;
mod constant;
mod declare;
mod function;
mod locations;
mod operand;
mod scope;

use std::collections::{HashMap, HashSet};

use crate::ParseError;
use crate::ast::{Module, Operand, Space};
use crate::lexer::{At, Kind, Lexer, Token};
use crate::limits;

type Parsed<T> = Result<T, ParseError>;

/// Reads a whole text.
pub fn module(text: &str) -> Parsed<Module> {
    let start = At { line: 1, column: 1 };
    if text.len() > limits::TEXT_BYTES {
        return Err(start.error(format!("the text has {} bytes, the limit is {}", text.len(), limits::TEXT_BYTES)));
    }
    let mut parser = Parser::new(text)?;
    parser.module()?;
    Ok(parser.module)
}

/// The state of one run over a text.
struct Parser<'a> {
    lexer: Lexer<'a>,
    token: Token<'a>,
    ahead: Token<'a>,
    module: Module,
    /// Module-scope variables and functions declared so far.
    symbols: HashSet<&'a str>,
    /// Function name -> its place in the module.
    functions: HashMap<&'a str, usize>,
    variables: HashMap<&'a str, usize>,
    aliases: HashMap<String, String>,
    instructions: usize,
    registers: usize,
    words: usize,
    initialised: u64,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Parsed<Self> {
        let mut lexer = Lexer::new(text);
        let token = lexer.next()?;
        let ahead = lexer.next()?;
        Ok(Parser {
            lexer,
            token,
            ahead,
            module: Module::default(),
            symbols: HashSet::new(),
            functions: HashMap::new(),
            variables: HashMap::new(),
            aliases: HashMap::new(),
            instructions: 0,
            registers: 0,
            words: 0,
            initialised: 0,
            depth: 0,
        })
    }

    fn module(&mut self) -> Parsed<()> {
        self.version()?;
        while self.token.kind != Kind::End {
            match (self.token.kind, self.token.text) {
                (Kind::Dot, _) => self.module_directive()?,
                (Kind::Mark, ";") => self.advance().map(drop)?,
                (Kind::Mark, "@") if self.ahead.is("@") => self.dwarf_line()?,
                _ => return Err(self.expected("a directive such as `.entry` or `.global`")),
            }
        }
        if self.module.target.is_empty() {
            return Err(self.expected("`.target`"));
        }
        self.resolve_aliases();
        Ok(())
    }

    fn version(&mut self) -> Parsed<()> {
        if !self.is_dot("version") {
            return Err(self.expected("`.version`, with which every PTX text begins"));
        }
        self.advance()?;
        let token = self.advance()?;
        let (major, minor) = token.text.split_once('.').unwrap_or((token.text, "0"));
        match (major.parse(), minor.parse()) {
            (Ok(major), Ok(minor)) => self.module.version = (major, minor),
            _ => return Err(expected_at(&token, "a version such as `9.0`")),
        }
        Ok(())
    }

    fn module_directive(&mut self) -> Parsed<()> {
        match self.token.text {
            "target" => self.target(),
            "address_size" => {
                self.advance()?;
                let bits = self.unsigned("the address size in bits")?;
                self.module.directives.push(format!("address_size {bits}"));
                Ok(())
            }
            "file" => self.file(),
            "loc" => self.advance().and_then(|_| self.location()).map(drop),
            "section" => self.section(),
            "pragma" => self.pragma().map(drop),
            "alias" => self.alias(),
            "entry" | "func" | "visible" | "extern" | "weak" | "common" | "global" | "const" | "shared" | "tex"
            | "managed" => self.definition(),
            _ => Err(self.expected("a module-scope directive")),
        }
    }

    fn target(&mut self) -> Parsed<()> {
        self.advance()?;
        let first = self.word("a target such as `sm_89`")?;
        if self.module.target.is_empty() {
            self.module.target = first.text.to_string();
        }
        while self.eat(",")? {
            let option = self.word("a target option such as `debug`")?;
            self.count_word(&option)?;
            self.module.directives.push(format!("target {}", option.text));
        }
        Ok(())
    }

    /// `.file 1 "a.cu"` with, optionally, `, timestamp, size`.
    fn file(&mut self) -> Parsed<()> {
        self.advance()?;
        let at = self.token.at;
        let index = self.unsigned("a file number")?;
        let index = u32::try_from(index).map_err(|_| at.error("a file number has 32 bits"))?;
        if self.token.kind != Kind::Text {
            return Err(self.expected("a file name in quotes"));
        }
        let name = self.advance()?;
        self.module.files.insert(index, name.text.to_string());
        while self.eat(",")? {
            self.unsigned("a time stamp or a size")?;
        }
        Ok(())
    }

    /// `.section .debug_str { ... }`: debug information, skipped.
    fn section(&mut self) -> Parsed<()> {
        self.advance()?;
        let at = self.token.at;
        if !matches!(self.token.kind, Kind::Dot | Kind::Word) {
            return Err(self.expected("a section's name"));
        }
        self.advance()?;
        self.expect("{")?;
        while !self.token.is("}") {
            if self.token.kind == Kind::End {
                return Err(at.error("this section has no closing `}`"));
            }
            self.advance()?;
        }
        self.advance().map(drop)
    }

    fn dwarf_line(&mut self) -> Parsed<()> {
        self.lexer.skip_line();
        self.ahead = self.lexer.next()?;
        self.advance().map(drop)
    }

    /// `.pragma "nounroll", "...";`
    fn pragma(&mut self) -> Parsed<Vec<&'a str>> {
        self.advance()?;
        let mut words = Vec::new();
        loop {
            if self.token.kind != Kind::Text {
                return Err(self.expected("a pragma in quotes"));
            }
            let word = self.advance()?;
            self.count_word(&word)?;
            words.push(word.text);
            if !self.eat(",")? {
                break;
            }
        }
        self.expect(";")?;
        Ok(words)
    }

    /// `.alias name, aliasee;`
    fn alias(&mut self) -> Parsed<()> {
        self.advance()?;
        let alias = self.word("the alias's name")?;
        self.expect(",")?;
        let aliasee = self.word("the name of the function it stands for")?;
        self.expect(";")?;
        if !self.functions.contains_key(aliasee.text) {
            return Err(aliasee.at.error(format!("no function is called {}", aliasee.shown())));
        }
        self.symbols.insert(alias.text);
        self.aliases.insert(alias.text.to_string(), aliasee.text.to_string());
        Ok(())
    }

    /// Operands name the aliasee afterwards: an alias has no body of its own.
    fn resolve_aliases(&mut self) {
        if self.aliases.is_empty() {
            return;
        }
        let aliases = &self.aliases;
        let rename = |name: &mut String| {
            if let Some(aliasee) = aliases.get(name) {
                aliasee.clone_into(name);
            }
        };
        for variable in &mut self.module.variables {
            for (_, name, _) in &mut variable.init_symbols {
                rename(name);
            }
        }
        let functions = &mut self.module.functions;
        for instruction in functions.iter_mut().flat_map(|f| &mut f.instructions) {
            for operand in &mut instruction.operands {
                if let Operand::Symbol(name, _) = operand {
                    rename(name);
                }
            }
        }
    }

    /// A variable or a function, from its linkage on.
    fn definition(&mut self) -> Parsed<()> {
        let mut is_extern = false;
        loop {
            match (self.token.kind, self.token.text) {
                (Kind::Dot, "extern") => is_extern = true,
                (Kind::Dot, "visible" | "weak" | "common" | "managed") => {}
                _ => break,
            }
            self.advance()?;
        }
        let space = match (self.token.kind, self.token.text) {
            (Kind::Dot, "entry") => return self.function(true),
            (Kind::Dot, "func") => return self.function(false),
            (Kind::Dot, "global" | "tex") => Space::Global,
            (Kind::Dot, "const") => Space::Const,
            (Kind::Dot, "shared") => Space::Shared,
            _ => return Err(self.expected("`.entry`, `.func` or a state space")),
        };
        self.advance()?;
        self.module_variables(space, is_extern)
    }

    fn module_variables(&mut self, space: Space, is_extern: bool) -> Parsed<()> {
        let kind = self.variable_kind(space)?;
        loop {
            let (name, mut variable) = self.variable(&kind, space)?;
            variable.is_extern = is_extern;
            match self.variables.get(name.text) {
                Some(&index) if is_extern && self.module.variables[index].bytes > 0 => {}
                Some(&index) if self.module.variables[index].is_extern => {
                    self.module.variables[index] = variable;
                }
                _ if !self.symbols.insert(name.text) => return Err(twice(&name)),
                _ => {
                    self.variables.insert(name.text, self.module.variables.len());
                    self.module.variables.push(variable);
                }
            }
            if !self.eat(",")? {
                return self.expect(";");
            }
        }
    }
}

/// Steps over tokens.
impl<'a> Parser<'a> {
    /// The current token, which is left behind.
    fn advance(&mut self) -> Parsed<Token<'a>> {
        let token = std::mem::replace(&mut self.token, self.ahead);
        self.ahead = self.lexer.next()?;
        Ok(token)
    }

    fn is_dot(&self, text: &str) -> bool {
        self.token.kind == Kind::Dot && self.token.text == text
    }

    fn eat(&mut self, mark: &str) -> Parsed<bool> {
        if !self.token.is(mark) {
            return Ok(false);
        }
        self.advance()?;
        Ok(true)
    }

    fn expect(&mut self, mark: &str) -> Parsed<()> {
        if self.eat(mark)? { Ok(()) } else { Err(self.expected(&format!("`{mark}`"))) }
    }

    fn word(&mut self, what: &str) -> Parsed<Token<'a>> {
        if self.token.kind == Kind::Word { self.advance() } else { Err(self.expected(what)) }
    }

    /// A plain number, or a constant expression that is not negative.
    fn unsigned(&mut self, what: &str) -> Parsed<u64> {
        if let Kind::Int(value) = self.token.kind
            && value >= 0
        {
            self.advance()?;
            return Ok(value as u64);
        }
        Err(self.expected(what))
    }

    fn expected(&self, what: &str) -> ParseError {
        expected_at(&self.token, what)
    }

    /// Counts what takes memory of its own, whatever its form.
    fn count_word(&mut self, token: &Token<'_>) -> Parsed<()> {
        self.words += 1;
        if self.words > limits::WORDS {
            return Err(token.at.error(format!("a module has at most {} operands and modifiers", limits::WORDS)));
        }
        Ok(())
    }

    /// One level deeper; the caller goes up again unless it fails.
    fn deeper(&mut self) -> Parsed<()> {
        if self.depth >= limits::DEPTH {
            let message = format!("nested more than {} levels deep", limits::DEPTH);
            return Err(self.token.at.error(message));
        }
        self.depth += 1;
        Ok(())
    }

    /// One level deeper, for as long as `inside` runs.
    fn nested<T>(&mut self, inside: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        self.deeper()?;
        let result = inside(self);
        self.depth -= 1;
        result
    }
}

fn expected_at(token: &Token<'_>, what: &str) -> ParseError {
    token.at.error(format!("expected {what}, found {}", token.shown()))
}

fn twice(name: &Token<'_>) -> ParseError {
    name.at.error(format!("{} is declared twice in this scope", name.shown()))
}
