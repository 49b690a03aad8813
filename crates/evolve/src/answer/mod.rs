//! What a proposer answered, read: one to three variants, each a whole kernel, a change of its parent, or only other levers.
//!
//! It takes what models send: fences of backticks or tildes with or without a language, prose around them, several blocks, JSON, thoughts
//! in tags, SEARCH/REPLACE blocks and unified diffs with wrong line numbers, kernels without front matter (they take their parent's).
//! What it cannot read it says why, in words that go into the record. It refuses to guess: a kernel that leaves code out, or a block that
//! is cut off, is not completed. It does not know whether a kernel is right, or even fits the task.

mod blocks;
mod edits;
mod normal;

use blocks::{Block, Body, blocks};
pub use edits::{Edit, apply};
pub use normal::normalised;

/// Variants that one answer may hold.
pub const MAX_DRAFTS: usize = 3;
/// Bytes of an answer; a kernel has some ten thousand.
pub const MAX_BYTES: usize = 1 << 20;
/// Characters of a name and of a thought that are kept.
const MAX_NAME: usize = 40;
const MAX_THOUGHT: usize = 600;

/// One variant.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Draft {
    /// Letters, digits, `_` and `-`.
    pub name: Option<String>,
    pub thought: Option<String>,
    /// `NAME=VALUE` each.
    pub set: Vec<String>,
    /// The whole text; None: the parent's, with other levers.
    pub text: Option<String>,
}

/// What an answer holds, and why parts of it were not taken.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Drafts {
    pub drafts: Vec<Draft>,
    pub refused: Vec<String>,
}

/// Reads an answer; `base` is the text that changes apply to and whose front matter a kernel without one takes.
pub fn read(answer: &str, base: Option<&str>) -> Drafts {
    if answer.len() > MAX_BYTES {
        let why = format!("the answer has {} bytes; at most {MAX_BYTES} are read", answer.len());
        return Drafts { drafts: Vec::new(), refused: vec![why] };
    }
    let answer = without_thinking(&answer.replace("\r\n", "\n").replace('\r', "\n"));
    if answer.trim().is_empty() {
        return Drafts { drafts: Vec::new(), refused: vec!["the answer is empty".into()] };
    }
    let found = blocks(&answer);
    let mut out = Drafts::default();
    for block in &found {
        match draft(block, base) {
            Ok(Some(draft)) if out.drafts.len() >= MAX_DRAFTS => {
                let name = draft.name.unwrap_or_default();
                out.refused.push(format!("more than {MAX_DRAFTS} variants: {name} was left"));
            }
            Ok(Some(draft)) if out.drafts.iter().any(|d| d.text == draft.text && d.set == draft.set) => {}
            Ok(Some(draft)) => out.drafts.push(draft),
            Ok(None) => {}
            Err(why) => out.refused.push(why),
        }
    }
    if out.drafts.is_empty() && out.refused.is_empty() {
        out.refused.push(nothing_in(&answer, found.len()));
    }
    out
}

fn draft(block: &Block, base: Option<&str>) -> Result<Option<Draft>, String> {
    let called = block.name.as_ref().map(|n| format!(" of {n}")).unwrap_or_default();
    let text = match &block.body {
        Body::Nothing if block.set.is_empty() => return Ok(None),
        Body::Nothing => None,
        Body::Source { text, closed } => {
            if !closed && !normal::balanced(text) {
                return Err(format!("the last block{called} is not closed: the answer was cut off"));
            }
            if let Some(line) = normal::left_out(text) {
                return Err(format!(
                    "the kernel{called} leaves code out (`{line}`): write the whole file, or SEARCH/REPLACE blocks"
                ));
            }
            Some(with_front_matter(text, base))
        }
        Body::Edits(edits) => {
            let base = base.ok_or_else(|| format!("a change{called}, but there is no kernel that it changes"))?;
            Some(apply(base, edits).map_err(|why| format!("the change{called} cannot be made: {why}"))?)
        }
        Body::Unreadable(why) => return Err(format!("the change{called} cannot be read: {why}")),
    };
    Ok(Some(Draft {
        name: block.name.as_deref().map(plain_name).filter(|n| !n.is_empty()),
        thought: block.thought.as_deref().map(|t| shortened(t, MAX_THOUGHT)).filter(|t| !t.is_empty()),
        set: block.set.clone(),
        text,
    }))
}

/// Leading `//!` lines of a candidate.
pub fn front_matter(text: &str) -> String {
    text.lines().take_while(|l| l.starts_with("//!")).flat_map(|l| [l, "\n"]).collect()
}

fn with_front_matter(text: &str, base: Option<&str>) -> String {
    let mut text = text.trim_matches('\n').to_string();
    text.push('\n');
    match base {
        Some(base) if !text.lines().any(|l| l.starts_with("//!")) => format!("{}{text}", front_matter(base)),
        _ => text,
    }
}

/// Thoughts in tags are no part of an answer; one that is never closed stays.
fn without_thinking(answer: &str) -> String {
    let mut text = answer.to_string();
    for tag in ["think", "thinking", "reasoning"] {
        let (open, close) = (format!("<{tag}>"), format!("</{tag}>"));
        let mut kept = String::with_capacity(text.len());
        let mut rest = text.as_str();
        while let Some(from) = rest.find(&open) {
            let Some(to) = rest[from..].find(&close) else { break };
            kept.push_str(&rest[..from]);
            rest = &rest[from + to + close.len()..];
        }
        // Some servers send the end of the thoughts without their beginning, which was part of the prompt.
        match rest.find(&close).filter(|at| rest.find(&open).is_none_or(|open| open > *at)) {
            Some(at) => kept = rest[at + close.len()..].to_string(),
            None => kept.push_str(rest),
        }
        text = kept;
    }
    text
}

fn nothing_in(answer: &str, blocks: usize) -> String {
    let begin = shortened(answer.trim(), 80);
    match blocks {
        0 => format!("the answer has no block of code: it begins with {begin:?}"),
        n => format!(
            "none of the {n} blocks holds a kernel (`__global__`) or a change; the answer begins with {begin:?}"
        ),
    }
}

fn plain_name(text: &str) -> String {
    let text = text.trim().trim_end_matches(".cu");
    let plain = text.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' });
    plain.take(MAX_NAME).collect::<String>().trim_matches(['_', '-']).to_string()
}

/// On one line, at most so many characters.
pub fn shortened(text: &str, most: usize) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= most {
        return line;
    }
    line.chars().take(most).chain(['…']).collect()
}

#[cfg(test)]
mod tests;
