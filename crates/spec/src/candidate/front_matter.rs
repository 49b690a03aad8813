//! Takes the `//!` lines off a candidate's head. It knows nothing of what they say.
//!
//! The head is the unbroken run of `//!` lines that begins the file (empty lines before it are allowed). Windows line ends and a
//! byte-order mark are taken as they come.

use crate::error::{SpecCode, SpecError};

const MAX_BYTES: usize = 4 << 20;
const HINT: &str = "a candidate begins with `//! task = \"fp8_sdpa\"`; `warpsmith new kernel NAME` writes one, \
                    `warpsmith new kernel NAME --from FILE.cu` proposes the front matter for a kernel that exists";

#[derive(Debug)]
pub(super) struct FrontMatter {
    /// The whole file, without a byte-order mark.
    pub source: String,
    /// The TOML text; its line n is the file's line `first_line + n - 1`.
    pub toml: String,
    pub first_line: u32,
}

pub(super) fn split(file: &str, bytes: &[u8]) -> Result<FrontMatter, SpecError> {
    let wrong = |message: String| SpecError::new(SpecCode::CandidateSyntax, message).in_file(file);
    if bytes.len() > MAX_BYTES {
        return Err(wrong(format!("the file has {} bytes; a candidate has at most {MAX_BYTES}", bytes.len())));
    }
    let text = std::str::from_utf8(bytes).map_err(|e| {
        let line = 1 + bytes[..e.valid_up_to()].iter().filter(|b| **b == b'\n').count() as u32;
        wrong(format!("the file is not UTF-8 text: byte {} cannot be read", e.valid_up_to())).at(file, line)
    })?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if let Some(at) = text.find('\0') {
        let line = 1 + text[..at].matches('\n').count() as u32;
        let message = match at {
            0..=3 => "the file is not UTF-8 text but UTF-16, by its NUL characters; save it as UTF-8",
            _ => "the file has a NUL character, where the compiler would stop reading",
        };
        return Err(wrong(message.to_string()).at(file, line));
    }

    let mut toml = String::new();
    let mut first_line = 0;
    let mut end = 0;
    let lines: Vec<&str> = text.lines().collect();
    for (i, line) in lines.iter().enumerate() {
        match line.strip_prefix("//!") {
            Some(rest) => {
                if first_line == 0 {
                    first_line = i as u32 + 1;
                }
                toml.push_str(rest.strip_prefix(' ').unwrap_or(rest).trim_end_matches('\r'));
                toml.push('\n');
                end = i + 1;
            }
            None if first_line == 0 && line.trim().is_empty() => continue,
            None => break,
        }
    }
    let later = |from: usize| {
        lines.iter().skip(from).position(|l| l.trim_start().starts_with("//!")).map(|i| (from + i) as u32 + 1)
    };
    if first_line == 0 {
        let message = match later(0) {
            Some(line) => format!("the front matter has to begin the file; here it begins in line {line}"),
            None if text.trim().is_empty() => "the file is empty: it has no front matter and no kernel".to_string(),
            None => "the file has no front matter: its first lines have to begin with `//!`".to_string(),
        };
        return Err(wrong(message).at(file, later(0).unwrap_or(1)).hint(HINT));
    }
    let next = lines.iter().skip(end).position(|l| !l.trim().is_empty()).map_or(lines.len(), |i| end + i);
    if next > end && lines.get(next).is_some_and(|l| l.starts_with("//!")) {
        return Err(wrong("the front matter is interrupted by an empty line; write `//!` there".to_string())
            .at(file, end as u32 + 1));
    }
    Ok(FrontMatter { source: text.to_string(), toml, first_line })
}
