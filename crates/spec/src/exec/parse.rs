//! The text of a launch file to [`LaunchFile`]: the top level, and what its parts share.

use super::*;
use crate::document::{self, Place, Table};
use crate::error::{SpecCode, SpecError, shown};
use crate::formula::Symbols;
use crate::suggest::{did_you_mean, listed};
use crate::task::is_name;
use std::collections::BTreeSet;

const MAX_TEXT: usize = 1 << 20;
/// Buffers, workspaces, tensor maps, scalars, macros.
pub(super) const MAX_EACH: usize = 64;
const KEYS: [&str; 10] = [
    "target",
    "schedules",
    "instructions",
    "defines",
    "compile",
    "scalars",
    "buffers",
    "workspace",
    "tensor_maps",
    "launch",
];

/// What is known so far while the file is read from top to bottom.
pub(super) struct Reader<'a> {
    pub place: Place,
    pub root: &'a Table,
    /// Scalars in the order of the file.
    pub scalars: Vec<(String, ExecArg)>,
    /// The whole ones among them, for formulas.
    pub values: Symbols,
    pub symbols: BTreeSet<String>,
    pub names: BTreeSet<String>,
    /// Bytes of buffers and workspaces.
    pub bytes: u64,
}

impl LaunchFile {
    /// Reads a launch file; `name` is what messages call it.
    ///
    /// # Errors
    /// Anything that is not as INTERFACES say, with its line: a key that nobody knows, a name that nothing has, a size beyond its limit.
    pub fn parse(name: &str, bytes: &[u8]) -> Result<LaunchFile, SpecError> {
        let place = Place { file: name.to_string(), code: SpecCode::LaunchSyntax, what: "launch file" };
        if bytes.len() > MAX_TEXT {
            return Err(place.error(1, format!("the launch file has {} bytes; it has at most {MAX_TEXT}", bytes.len())));
        }
        let text = std::str::from_utf8(bytes).map_err(|e| {
            let line = 1 + bytes[..e.valid_up_to()].iter().filter(|b| **b == b'\n').count() as u32;
            place.error(line, format!("the launch file is not UTF-8 text: byte {} cannot be read", e.valid_up_to()))
        })?;
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let root = document::parse(&place, text, &|line| line)?;
        root.only(&place, "the launch file", &KEYS)?;
        let mut reader = Reader {
            place,
            root: &root,
            scalars: Vec::new(),
            values: Symbols::new(),
            symbols: BTreeSet::new(),
            names: BTreeSet::new(),
            bytes: 0,
        };
        reader.file()
    }
}

impl Reader<'_> {
    fn file(&mut self) -> Result<LaunchFile, SpecError> {
        let place = self.place.clone();
        let target = match self.root.get("target") {
            None => None,
            Some(item) => {
                let found = crate::target::find(item.text(&place, "target")?);
                Some(found.map_err(|e| e.at(&place.file, item.line))?)
            }
        };
        let whole = |key: &str, high: i64, default: i64| match self.root.get(key) {
            None => Ok(default),
            Some(item) => item.within(&place, key, i64::from(key == "instructions"), high),
        };
        let schedules = whole("schedules", i64::from(MAX_SCHEDULES), i64::from(DEFAULT_SCHEDULES))? as u32;
        let max_instructions = whole("instructions", 1 << 50, DEFAULT_INSTRUCTIONS as i64)? as u64;
        let compile = match self.root.get("compile") {
            None => CompileOptions::default(),
            Some(item) => CompileOptions::parse(&place, item.table(&place, "compile")?, &[])?,
        };
        let defines = self.defines()?;
        self.scalars()?;
        let buffers = self.buffers()?;
        let workspaces = self.workspaces()?;
        let tensor_maps = self.tensor_maps(&buffers, &workspaces)?;
        let launches = self.launches(&buffers, &workspaces, &tensor_maps)?;
        Ok(LaunchFile {
            name: place.file.clone(),
            target,
            schedules,
            max_instructions,
            defines,
            compile,
            buffers,
            workspaces,
            tensor_maps,
            launches,
        })
    }

    fn defines(&self) -> Result<Vec<(String, String)>, SpecError> {
        use crate::document::Value;
        let Some(item) = self.root.get("defines") else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        for (name, line, item) in &item.table(&self.place, "defines")?.entries {
            if !is_name(name) {
                return Err(self.place.error(*line, format!("`{}` is no name of a macro", shown(name))));
            }
            if found.len() >= MAX_EACH {
                return Err(self.place.error(*line, format!("more than {MAX_EACH} macros")));
            }
            let value = match &item.value {
                Value::Integer(n) => n.to_string(),
                Value::Float(x) => format!("{x:?}"),
                Value::Bool(b) => u8::from(*b).to_string(),
                Value::Text(s) if s.len() <= 1000 && !s.contains(['\n', '\r', '\0']) => s.clone(),
                _ => return Err(item.expected(&self.place, name, "a number, true, false, or a text of one line")),
            };
            found.push((name.clone(), value));
        }
        Ok(found)
    }

    /// A name that nothing else has, taken from now on.
    pub(super) fn take(&mut self, name: &str, line: u32, what: &str) -> Result<(), SpecError> {
        if !is_name(name) {
            return Err(self
                .place
                .error(line, format!("`{}` is no name for a {what}: letters, digits and _", shown(name))));
        }
        if self.names.len() >= 4 * MAX_EACH {
            return Err(self.place.error(line, format!("more than {} names", 4 * MAX_EACH)));
        }
        if !self.names.insert(name.to_string()) {
            return Err(self.place.error(line, format!("the {what} `{}` has the name of something else", shown(name))));
        }
        Ok(())
    }

    /// Adds to what is allocated.
    pub(super) fn allocate(&mut self, bytes: u64, owner: &str, line: u32) -> Result<(), SpecError> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > MAX_BYTES {
            let message = format!("with {owner} ({bytes} bytes) the memory passes the limit of {MAX_BYTES} bytes");
            return Err(self.place.error(line, message));
        }
        Ok(())
    }

    pub(super) fn no_such(&self, line: u32, what: &str, name: &str, known: &[&str]) -> SpecError {
        let near = did_you_mean(name, known.iter().copied());
        self.place
            .unknown(line, format!("{what} `{}`{near}", shown(name)))
            .hint(format!("this file has {}", listed(known.iter().copied())))
    }
}
