//! From the table's text to forms. The language is in the module above.

use super::{Exactness, Form};

const TYPES: [&str; 24] = [
    "b8", "b16", "b32", "b64", "b128", "u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64", "f16", "f16x2", "bf16",
    "bf16x2", "f32", "f64", "pred", "u16x2", "s16x2", "tf32", "f32x2",
];

/// All forms of one file.
pub fn table(text: &'static str) -> Result<Vec<Form>, String> {
    let mut forms = Vec::new();
    let mut group = None;
    for line in text.lines().filter(|l| !l.is_empty() && !l.starts_with('#')) {
        match line.strip_prefix('[').and_then(|l| l.split_once("] ")) {
            Some((name, word)) => group = Some((name, exactness(word)?)),
            None => {
                let (name, exactness) = group.ok_or("a row before the first group")?;
                row(line, name, exactness, &mut forms).map_err(|why| format!("{why}: {line}"))?;
            }
        }
    }
    Ok(forms)
}

fn exactness(word: &str) -> Result<Exactness, String> {
    [Exactness::Exact, Exactness::Approximate, Exactness::Modelled, Exactness::Unsupported]
        .into_iter()
        .find(|e| e.word() == word)
        .ok_or_else(|| format!("no such word: {word}"))
}

fn row(line: &'static str, group: &'static str, exactness: Exactness, out: &mut Vec<Form>) -> Result<(), String> {
    let mut parts = line.split(" | ");
    let form = parts.next().unwrap_or_default().trim();
    let (opcode, operands) = form.split_once(' ').ok_or("no operands")?;
    let mut needs = Needs { sm: 80, ptx: 70, ..Needs::default() };
    for part in parts {
        needs.read(part.trim())?;
    }
    for opcode in choices(opcode, '{', '}')? {
        if !needs.only.is_empty() && !needs.only.iter().any(|o| opcode.contains(o)) {
            continue;
        }
        for operands in choices(operands, '<', '>')? {
            out.push(Form {
                group,
                row: form,
                operands: resolve(&operands, &opcode)?,
                opcode: opcode.clone(),
                exactness: if needs.why.is_some() { Exactness::Unsupported } else { exactness },
                sm: needs.sm,
                arch_specific: needs.arch_specific,
                ptx: needs.ptx,
                decode_only: needs.decode_only,
                elsewhere: needs.elsewhere,
                before: needs.before,
                after: needs.after,
                why: needs.why,
            });
        }
    }
    Ok(())
}

#[derive(Default)]
struct Needs {
    sm: u32,
    arch_specific: bool,
    ptx: u32,
    only: Vec<&'static str>,
    decode_only: bool,
    elsewhere: bool,
    before: Option<&'static str>,
    after: Option<&'static str>,
    why: Option<&'static str>,
}

impl Needs {
    fn read(&mut self, part: &'static str) -> Result<(), String> {
        // What takes the rest of the column comes last.
        let mut part = part;
        for key in ["before=", "after=", "unsupported: "] {
            let Some((words, rest)) = part.split_once(key) else { continue };
            let slot = match key {
                "before=" => &mut self.before,
                "after=" => &mut self.after,
                _ => &mut self.why,
            };
            *slot = Some(rest);
            part = words;
        }
        for word in part.split_whitespace() {
            if let Some(sm) = word.strip_prefix("sm_") {
                self.arch_specific = sm.ends_with('a');
                self.sm = sm.trim_end_matches('a').parse().map_err(|_| format!("no target: {word}"))?;
            } else if let Some(ptx) = word.strip_prefix("ptx") {
                self.ptx = ptx.parse().map_err(|_| format!("no version: {word}"))?;
            } else if let Some(only) = word.strip_prefix("only=") {
                self.only = only.split(',').collect();
            } else if word == "decode-only" {
                self.decode_only = true;
            } else if word == "elsewhere" {
                self.elsewhere = true;
            } else {
                return Err(format!("no such need: {word}"));
            }
        }
        Ok(())
    }
}

/// All texts that choices in a pattern allow: `{a,b}` (brackets as given) and, in opcodes, `[.a|.b]`.
fn choices(pattern: &str, open: char, close: char) -> Result<Vec<String>, String> {
    let mut out = vec![String::new()];
    let mut rest = pattern;
    let optional = open == '{';
    while let Some(at) = rest.find(|c| c == open || optional && c == '[') {
        let bracket = rest[at..].starts_with('[');
        let end = rest[at..].find(if bracket { ']' } else { close }).ok_or("an open bracket")? + at;
        let inner = &rest[at + 1..end];
        let list: Vec<&str> =
            if bracket { std::iter::once("").chain(inner.split('|')).collect() } else { inner.split(',').collect() };
        out = out
            .iter()
            .flat_map(|o| list.iter().map(|l| format!("{o}{}{l}", &rest[..at])).collect::<Vec<_>>())
            .collect();
        rest = &rest[end + 1..];
    }
    out.iter_mut().for_each(|o| o.push_str(rest));
    Ok(out)
}

/// Replaces `t` and `t1` by the opcode's types.
fn resolve(operands: &str, opcode: &str) -> Result<String, String> {
    let types: Vec<&str> = opcode.split('.').skip(1).filter(|w| TYPES.contains(w)).collect();
    let mut out = String::new();
    let mut rest = operands;
    while let Some(at) = rest.find(['=', '$']) {
        let end = rest[at + 1..].find(|c: char| !c.is_ascii_alphanumeric()).map_or(rest.len(), |e| e + at + 1);
        let word = match &rest[at + 1..end] {
            "t" => types.last().copied().ok_or("no type")?,
            "t1" => types.first().copied().ok_or("no type")?,
            word => word,
        };
        out.push_str(&rest[..=at]);
        out.push_str(word);
        rest = &rest[end..];
    }
    out.push_str(rest);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_become_forms() {
        let text = "[G] exact\n# comment\nadd[.sat].{u32,s32} =t, $t, $b16 | sm_90 ptx78 only=.u32\n";
        let names: Vec<String> = table(text).unwrap().iter().map(Form::name).collect();
        assert_eq!(names, ["add.u32 =u32, $u32, $b16", "add.sat.u32 =u32, $u32, $b16"]);
    }

    #[test]
    fn no_form_is_there_twice() {
        let mut names: Vec<String> = super::super::all().iter().map(Form::name).collect();
        names.sort();
        let twice: Vec<_> = names.windows(2).filter(|w| w[0] == w[1]).map(|w| &w[0]).collect();
        assert!(twice.is_empty(), "{twice:?}");
    }

    #[test]
    fn a_broken_row_is_named() {
        for text in ["add.u32 =u32", "[G] exact\nadd{.sat =t", "[G] exact\nadd.u32 =t | sm_x", "[G] so-so\n"] {
            assert!(table(text).is_err(), "{text}");
        }
    }
}
