//! A TOML document with the line of each key and value, and getters whose errors say what was expected.
//!
//! Used by candidates (front matter) and tasks. It knows no meaning of any key.

use crate::error::{SpecCode, SpecError, shown};
use crate::suggest::did_you_mean;
use toml::de::{DeTable, DeValue};

/// Where messages point: the file, and which class of error belongs to it.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub file: String,
    pub code: SpecCode,
    /// What people call the text: "front matter", "task.toml".
    pub what: &'static str,
}

impl Place {
    pub fn error(&self, line: u32, message: impl Into<String>) -> SpecError {
        SpecError::new(self.code, message).at(&self.file, line)
    }

    pub fn unknown(&self, line: u32, message: impl Into<String>) -> SpecError {
        SpecError::new(SpecCode::UnknownName, message).at(&self.file, line)
    }
}

#[derive(Debug, Clone)]
pub(crate) enum Value {
    Text(String),
    Integer(i64),
    Float(f64),
    Bool(bool),
    Array(Vec<Item>),
    Table(Table),
    /// A whole number beyond 64 bits, or a date: as it was written.
    Other(&'static str, String),
}

#[derive(Debug, Clone)]
pub(crate) struct Item {
    pub value: Value,
    pub line: u32,
}

/// Keys in the order of the file.
#[derive(Debug, Clone)]
pub(crate) struct Table {
    pub entries: Vec<(String, u32, Item)>,
    pub line: u32,
}

/// Parses TOML; `line_of` maps a line of the text (from 1) to a line of the file.
pub(crate) fn parse(place: &Place, text: &str, line_of: &dyn Fn(u32) -> u32) -> Result<Table, SpecError> {
    let starts: Vec<usize> = std::iter::once(0).chain(text.match_indices('\n').map(|(i, _)| i + 1)).collect();
    let line = |offset: usize| line_of(starts.partition_point(|s| *s <= offset).max(1) as u32);
    match DeTable::parse(text) {
        Ok(table) => Ok(convert_table(table.get_ref(), table.span().start, &line)),
        Err(e) => {
            // An unclosed string is reported at the newline that ends it, which belongs to its own line.
            let span = e.span().unwrap_or(0..0);
            let quoted = text
                .get(span.clone())
                .map(str::trim)
                .filter(|t| !t.is_empty() && t.len() <= 60 && !t.contains('\n'))
                .map(|t| format!(", at `{t}`"))
                .unwrap_or_default();
            let message = format!("the {} is not TOML: {}{quoted}", place.what, plain(e.message()));
            Err(place.error(line(span.start.min(text.len())), message))
        }
    }
}

/// The TOML parser's words, made a sentence of one line.
fn plain(message: &str) -> String {
    let message = message.replace('\n', ", ");
    if message.contains("basic string") {
        format!("{message}: an unterminated string, or a character that it may not hold")
    } else {
        message
    }
}

fn convert_table(table: &DeTable<'_>, start: usize, line: &dyn Fn(usize) -> u32) -> Table {
    let mut entries: Vec<(usize, (String, u32, Item))> = table
        .iter()
        .map(|(key, value)| {
            let at = key.span().start;
            // The value of a `[table]` has the header's span, which is where people look for it.
            (at, (key.get_ref().to_string(), line(at), convert(value.get_ref(), value.span().start, line)))
        })
        .collect();
    entries.sort_by_key(|(at, _)| *at);
    Table { entries: entries.into_iter().map(|(_, e)| e).collect(), line: line(start) }
}

fn convert(value: &DeValue<'_>, start: usize, line: &dyn Fn(usize) -> u32) -> Item {
    let converted = match value {
        DeValue::String(s) => Value::Text(s.to_string()),
        DeValue::Integer(i) => match i64::from_str_radix(i.as_str(), i.radix()) {
            Ok(n) => Value::Integer(n),
            Err(_) => Value::Other("a whole number beyond 64 bits", i.as_str().to_string()),
        },
        DeValue::Float(f) => match f.as_str().parse::<f64>() {
            Ok(x) => Value::Float(x),
            Err(_) => Value::Other("a number that cannot be read", f.as_str().to_string()),
        },
        DeValue::Boolean(b) => Value::Bool(*b),
        DeValue::Datetime(d) => Value::Other("a date", d.to_string()),
        DeValue::Array(a) => Value::Array(a.iter().map(|x| convert(x.get_ref(), x.span().start, line)).collect()),
        DeValue::Table(t) => Value::Table(convert_table(t, start, line)),
    };
    Item { value: converted, line: line(start) }
}

impl Item {
    /// What it is, for "expected ..., found ...".
    pub fn described(&self) -> String {
        match &self.value {
            Value::Text(s) => format!("the text \"{}\"", shown(s)),
            Value::Integer(n) => format!("the number {n}"),
            Value::Float(x) => format!("the number {x}"),
            Value::Bool(b) => format!("{b}"),
            Value::Array(a) => format!("an array of {}", a.len()),
            Value::Table(_) => "a table".to_string(),
            Value::Other(what, text) => format!("{what} ({})", shown(text)),
        }
    }

    pub fn expected(&self, place: &Place, name: &str, what: &str) -> SpecError {
        place.error(self.line, format!("`{name}` has to be {what}, not {}", self.described()))
    }

    pub fn text(&self, place: &Place, name: &str) -> Result<&str, SpecError> {
        match &self.value {
            Value::Text(s) => Ok(s),
            _ => Err(self.expected(place, name, "a text in quotes")),
        }
    }

    /// A whole number inside `low..=high`.
    pub fn within(&self, place: &Place, name: &str, low: i64, high: i64) -> Result<i64, SpecError> {
        match &self.value {
            Value::Integer(n) if (low..=high).contains(n) => Ok(*n),
            _ => Err(self.expected(place, name, &format!("a whole number from {low} to {high}"))),
        }
    }

    /// A finite number.
    pub fn number(&self, place: &Place, name: &str) -> Result<f64, SpecError> {
        match &self.value {
            Value::Integer(n) => Ok(*n as f64),
            Value::Float(x) if x.is_finite() => Ok(*x),
            _ => Err(self.expected(place, name, "a finite number")),
        }
    }

    pub fn array(&self, place: &Place, name: &str) -> Result<&[Item], SpecError> {
        match &self.value {
            Value::Array(a) => Ok(a),
            _ => Err(self.expected(place, name, "an array in [ ]")),
        }
    }

    pub fn table(&self, place: &Place, name: &str) -> Result<&Table, SpecError> {
        match &self.value {
            Value::Table(t) => Ok(t),
            _ => Err(self.expected(place, name, "a table")),
        }
    }

    /// Texts of an array, each with its line; an empty array is refused.
    pub fn texts(&self, place: &Place, name: &str) -> Result<Vec<(&str, u32)>, SpecError> {
        let items = self.array(place, name).map_err(|_| self.expected(place, name, "an array of texts"))?;
        if items.is_empty() {
            return Err(place.error(self.line, format!("`{name}` is empty; name at least one")));
        }
        items.iter().map(|i| Ok((i.text(place, name)?, i.line))).collect()
    }
}

impl Table {
    pub fn get(&self, key: &str) -> Option<&Item> {
        self.entries.iter().find(|(k, _, _)| k == key).map(|(_, _, item)| item)
    }

    /// The item, or an error that says where it is missing.
    pub fn need(&self, place: &Place, owner: &str, key: &str) -> Result<&Item, SpecError> {
        self.get(key).ok_or_else(|| place.error(self.line, format!("{owner} has no `{key}`")))
    }

    /// Refuses keys that do not belong here.
    pub fn only(&self, place: &Place, owner: &str, known: &[&str]) -> Result<(), SpecError> {
        for (key, line, _) in &self.entries {
            if !known.contains(&key.as_str()) {
                let near = did_you_mean(key, known.iter().copied());
                return Err(place
                    .error(*line, format!("unknown key `{}` in {owner}{near}", shown(key)))
                    .hint(format!("{owner} knows {}", known.join(", "))));
            }
        }
        Ok(())
    }
}
