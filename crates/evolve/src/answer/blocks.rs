//! An answer's blocks of code with the labels (name, thought, levers) that stand before them.

use super::edits::{Edit, from_markers, from_unified};

/// One variant as it stands in the answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    pub name: Option<String>,
    pub thought: Option<String>,
    pub set: Vec<String>,
    pub body: Body,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// Labels without code, or code that is neither a kernel nor a change.
    Nothing,
    Source {
        text: String,
        closed: bool,
    },
    Edits(Vec<Edit>),
    Unreadable(String),
}

/// A piece of the answer before its labels and code are joined.
enum Piece<'a> {
    Prose(&'a str),
    Code { tag: String, text: String, closed: bool },
}

pub fn blocks(answer: &str) -> Vec<Block> {
    if let Some(found) = from_json(answer) {
        return found;
    }
    let pieces = pieces(answer);
    if !pieces.iter().any(|p| matches!(p, Piece::Code { .. }))
        && let Some(bare) = bare_kernel(answer)
    {
        let mut one = Gather::default();
        answer.lines().take_while(|l| !bare.starts_with(l) || l.is_empty()).for_each(|l| one.prose(l));
        one.code("", bare, true);
        return one.end();
    }
    let mut gather = Gather::default();
    for piece in pieces {
        match piece {
            Piece::Prose(line) => gather.prose(line),
            // An answer as JSON with prose around it.
            Piece::Code { tag, text, .. }
                if tag.starts_with("json")
                    && let Some(found) = from_json(&text) =>
            {
                gather.flush();
                gather.done.extend(found);
            }
            Piece::Code { tag, text, closed } => gather.code(&tag, text, closed),
        }
    }
    gather.end()
}

/// Splits an answer at its fences; SEARCH/REPLACE blocks outside of fences are code too.
fn pieces(answer: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let mut lines = answer.split('\n');
    while let Some(line) = lines.next() {
        if let Some((mark, length, tag)) = fence(line) {
            let mut text = String::new();
            let mut closed = false;
            for line in lines.by_ref() {
                if fence(line).is_some_and(|(m, n, tag)| m == mark && n >= length && tag.is_empty()) {
                    closed = true;
                    break;
                }
                text.push_str(line);
                text.push('\n');
            }
            pieces.push(Piece::Code { tag, text, closed });
        } else if line.trim_start().starts_with("<<<<<<<") {
            let mut text = format!("{line}\n");
            let mut closed = false;
            for line in lines.by_ref() {
                text.push_str(line);
                text.push('\n');
                if line.trim_start().starts_with(">>>>>>>") {
                    closed = true;
                    break;
                }
            }
            pieces.push(Piece::Code { tag: String::new(), text, closed });
        } else {
            pieces.push(Piece::Prose(line));
        }
    }
    pieces
}

/// The fence that a line is: its character, how often, and what is said after it.
fn fence(line: &str) -> Option<(char, usize, String)> {
    let line = line.trim();
    let mark = line.chars().next().filter(|c| *c == '`' || *c == '~')?;
    let length = line.chars().take_while(|c| *c == mark).count();
    let tag = line.get(length..)?.trim();
    (length >= 3 && !tag.contains('`')).then(|| (mark, length, tag.to_ascii_lowercase()))
}

/// A kernel without any fence: from its first line of front matter or code to the last line that a closing brace ends.
fn bare_kernel(answer: &str) -> Option<String> {
    if !answer.contains("__global__") {
        return None;
    }
    let begins = |l: &&str| {
        ["//!", "#include", "#define", "extern \"C\"", "template", "__global__"].iter().any(|b| l.starts_with(b))
    };
    let lines: Vec<&str> = answer.lines().collect();
    let from = lines.iter().position(begins)?;
    let to = lines
        .iter()
        .rposition(|l| l.trim_end().trim_end_matches(';').ends_with('}'))
        .filter(|to| *to > from)
        .unwrap_or(lines.len() - 1);
    Some(lines[from..=to].join("\n"))
}

#[derive(Default)]
struct Gather {
    done: Vec<Block>,
    name: Option<String>,
    thought: Option<String>,
    set: Vec<String>,
    body: Option<Body>,
    /// The label that lines of prose go on.
    in_thought: bool,
}

impl Gather {
    fn prose(&mut self, line: &str) {
        let bare = line.trim().trim_start_matches(['#', '*', '-', '>', ' ']).trim_start();
        let label = bare.split_once(':').map(|(k, v)| (k.trim_matches(['*', '`', ' ']).to_ascii_lowercase(), v));
        let value = |v: &str| v.trim().trim_matches(['*', '`']).trim().to_string();
        match label {
            Some((key, v)) if ["name", "variant", "title"].contains(&key.as_str()) => {
                self.flush();
                self.name = Some(value(v));
                self.in_thought = false;
            }
            Some((key, v)) if ["thought", "thoughts", "rationale", "idea", "insight"].contains(&key.as_str()) => {
                if self.body.is_some() {
                    self.flush();
                }
                self.thought = Some(value(v));
                self.in_thought = true;
            }
            Some((key, v)) if ["levers", "lever", "set"].contains(&key.as_str()) => {
                if self.body.is_some() {
                    self.flush();
                }
                let parts = v.split([',', ' ', ';']).map(|p| p.trim().trim_matches(['*', '`']));
                self.set.extend(parts.filter(|p| p.contains('=')).map(str::to_string));
                self.in_thought = false;
            }
            _ if line.trim().is_empty() => self.in_thought = false,
            _ => {
                if let Some(thought) = self.thought.as_mut().filter(|_| self.in_thought) {
                    thought.push(' ');
                    thought.push_str(line.trim());
                }
            }
        }
    }

    fn code(&mut self, tag: &str, text: String, closed: bool) {
        self.in_thought = false;
        let body = classify(tag, text, closed);
        match (&mut self.body, body) {
            // Several changes under one name are one variant.
            (Some(Body::Edits(all)), Body::Edits(more)) => all.extend(more),
            (_, Body::Nothing) => {
                // An example, a command: not a variant, but it shows that there were blocks.
                if self.body.is_none() && self.name.is_none() && self.set.is_empty() {
                    self.done.push(Block { name: None, thought: None, set: Vec::new(), body: Body::Nothing });
                }
            }
            (None, body) => self.body = Some(body),
            (Some(_), body) => {
                self.flush();
                self.body = Some(body);
            }
        }
    }

    fn flush(&mut self) {
        let body = self.body.take();
        let labelled = self.name.is_some() && !self.set.is_empty();
        if body.is_some() || labelled || !self.set.is_empty() {
            self.done.push(Block {
                name: self.name.take(),
                thought: self.thought.take(),
                set: std::mem::take(&mut self.set),
                body: body.unwrap_or(Body::Nothing),
            });
        }
    }

    fn end(mut self) -> Vec<Block> {
        self.flush();
        self.done
    }
}

fn classify(tag: &str, text: String, closed: bool) -> Body {
    let any = |what: &str| text.lines().any(|l| l.trim_start().starts_with(what));
    if any("<<<<<<<") {
        return from_markers(&text).map_or_else(Body::Unreadable, Body::Edits);
    }
    let is_diff = ["diff", "patch", "udiff"].iter().any(|t| tag.starts_with(t));
    if is_diff || (text.lines().any(|l| l.starts_with("@@")) && text.lines().any(|l| l.starts_with(['+', '-']))) {
        return from_unified(&text).map_or_else(Body::Unreadable, Body::Edits);
    }
    if text.contains("__global__") { Body::Source { text, closed } } else { Body::Nothing }
}

/// Code as JSON has it: some put it into a fence there too.
fn unfenced(code: &str) -> Body {
    let fenced = pieces(code).into_iter().find_map(|p| match p {
        Piece::Code { tag, text, closed } => Some(classify(&tag, text, closed)),
        Piece::Prose(_) => None,
    });
    fenced.filter(|_| code.trim_start().starts_with(['`', '~'])).unwrap_or_else(|| classify("", code.to_string(), true))
}

/// An answer that is JSON: an object, a list of them, or an object that holds such a list.
fn from_json(answer: &str) -> Option<Vec<Block>> {
    let trimmed = answer.trim();
    let inner = trimmed.strip_prefix("```json").and_then(|t| t.strip_suffix("```")).unwrap_or(trimmed).trim();
    if !inner.starts_with(['{', '[']) {
        return None;
    }
    let value: serde_json::Value = serde_json::from_str(inner).ok()?;
    let list = match &value {
        serde_json::Value::Array(all) => all.clone(),
        serde_json::Value::Object(one) => {
            let inside = ["variants", "candidates", "kernels"].iter().find_map(|k| one.get(*k)?.as_array());
            inside.cloned().unwrap_or_else(|| vec![value.clone()])
        }
        _ => return None,
    };
    let blocks = list.iter().map(|one| {
        let text = |keys: &[&str]| keys.iter().find_map(|k| Some(one.get(*k)?.as_str()?.to_string()));
        let levers = one.get("levers").or(one.get("set"));
        let set = match levers {
            Some(serde_json::Value::Object(all)) => {
                let plain = |v: &serde_json::Value| v.as_str().map_or_else(|| v.to_string(), str::to_string);
                all.iter().map(|(k, v)| format!("{k}={}", plain(v))).collect()
            }
            Some(serde_json::Value::String(s)) => {
                s.split([',', ' ']).filter(|p| p.contains('=')).map(str::to_string).collect()
            }
            _ => Vec::new(),
        };
        let body = text(&["code", "source", "candidate", "kernel", "diff"])
            .map_or(Body::Nothing, |code| unfenced(&code.replace("\r\n", "\n")));
        Block { name: text(&["name"]), thought: text(&["thought", "rationale"]), set, body }
    });
    Some(blocks.collect())
}
