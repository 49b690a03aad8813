//! Findings that somebody has looked at and lives with: a file of codes, places and reasons (`--suppressions FILE`).
//!
//! ```toml
//! [[suppress]]
//! code = "global-race"
//! entry = "histogram"        # optional, as `file` and `line` are
//! line = 42
//! reason = "all threads write the same flag"
//! ```
//!
//! What is suppressed becomes a note and stays in the record, with its reason. It knows no codes: one that nothing has suppresses nothing.

use crate::document::{self, Place};
use crate::error::{SpecCode, SpecError};
use crate::record::{FindingRecord, Severity};

const MAX_BYTES: usize = 1 << 20;
const MAX_ROWS: usize = 1000;
/// All three are what people write for a list of these.
const LISTS: [&str; 3] = ["suppress", "suppression", "suppressions"];
const KEYS: [&str; 5] = ["code", "entry", "file", "line", "reason"];

/// One row of the file.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Suppression {
    /// Kebab-case, as a finding's code.
    pub code: String,
    pub entry: Option<String>,
    /// The end of the finding's file.
    pub file: Option<String>,
    /// The finding's line or its other one.
    pub line: Option<u32>,
    pub reason: String,
}

/// A file of them; empty: nothing is suppressed.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Suppressions {
    pub rows: Vec<Suppression>,
}

impl Suppressions {
    /// Reads a file; `name` is what messages call it.
    ///
    /// # Errors
    /// Broken TOML, an unknown key, a row without a code or a reason.
    pub fn parse(name: &str, bytes: &[u8]) -> Result<Suppressions, SpecError> {
        let place = Place { file: name.to_string(), code: SpecCode::LaunchSyntax, what: "file of suppressions" };
        let text = std::str::from_utf8(bytes).ok().filter(|_| bytes.len() <= MAX_BYTES);
        let text = text.ok_or_else(|| place.error(1, format!("it is no UTF-8 text of at most {MAX_BYTES} bytes")))?;
        let root = document::parse(&place, text, &|line| line)?;
        let mut known = LISTS.to_vec();
        known.extend(KEYS);
        root.only(&place, "the file of suppressions", &known)?;
        let mut rows = Vec::new();
        if root.get("code").is_some() {
            rows.push(row(&place, &root)?);
        }
        for list in LISTS {
            let Some(item) = root.get(list) else { continue };
            for item in item.array(&place, list)? {
                rows.push(row(&place, item.table(&place, list)?)?);
            }
        }
        if rows.len() > MAX_ROWS {
            return Err(place.error(1, format!("it has {} rows; there can be {MAX_ROWS}", rows.len())));
        }
        Ok(Suppressions { rows })
    }

    /// Makes a note of an error that a row is about; whether it did.
    pub fn apply(&self, f: &mut FindingRecord) -> bool {
        if f.severity == Severity::Note {
            return false;
        }
        let Some(row) = self.rows.iter().find(|row| row.covers(f)) else { return false };
        f.severity = Severity::Note;
        f.message = format!("{} (suppressed: {})", f.message, row.reason);
        true
    }
}

impl Suppression {
    fn covers(&self, f: &FindingRecord) -> bool {
        let near = |line: u32| f.line == Some(line) || f.other_line == Some(line);
        self.code == f.code
            && self.entry.as_ref().is_none_or(|e| f.entry.as_ref() == Some(e))
            && self.file.as_ref().is_none_or(|file| f.file.as_ref().is_some_and(|is| ends_with(is, file)))
            && self.line.is_none_or(near)
    }
}

/// Whole parts of a path from its end.
fn ends_with(path: &str, end: &str) -> bool {
    path.strip_suffix(end).is_some_and(|before| before.is_empty() || before.ends_with(['/', '\\']))
}

fn row(place: &Place, table: &document::Table) -> Result<Suppression, SpecError> {
    const OWNER: &str = "a suppression";
    table.only(place, OWNER, &KEYS)?;
    let text = |key: &str| table.get(key).map(|i| i.text(place, key).map(|t| t.trim().to_string())).transpose();
    let code = table.need(place, OWNER, "code")?.text(place, "code")?.trim().replace('_', "-");
    let reason = table.need(place, OWNER, "reason")?;
    let said = reason.text(place, "reason")?.trim();
    if said.is_empty() || said.len() > 1000 {
        return Err(reason.expected(place, "reason", "a sentence that says why this is no error here"));
    }
    let line = match table.get("line") {
        None => None,
        Some(item) => Some(item.within(place, "line", 1, i64::from(u32::MAX))? as u32),
    };
    Ok(Suppression { code, entry: text("entry")?, file: text("file")?, line, reason: said.to_string() })
}
