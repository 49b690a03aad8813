//! Finds the preprocessor directives that read files in a C++ text, without a preprocessor: continuation lines, comments, string and raw
//! string literals and digraphs are understood, conditions are not (what an `#if` would skip is found as well).

/// A directive that reads, or asks for, a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Directive {
    /// Counted from 1, where the directive begins.
    pub line: u32,
    pub target: Target,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    Quoted(String),
    Angled(String),
    /// `__has_include("...")`
    ProbeQuoted(String),
    ProbeAngled(String),
    /// An include whose name is not spelled out.
    Macro(String),
    /// `#include_next`, `#embed`, `#import`, `__has_include` outside a condition ...
    Forbidden(String),
}

/// A text with continuation lines joined and comments blanked, as (character, line).
struct Cleaned {
    chars: Vec<(u8, u32)>,
}

/// For each byte of the text, whether it is code: not in a comment, not in a string. Continuation lines inside literals aside.
pub(crate) fn code_mask(text: &[u8]) -> Vec<bool> {
    let mut mask = vec![true; text.len()];
    let starts = |i: usize, what: &[u8]| text[i..].starts_with(what);
    let mut i = 0;
    while i < text.len() {
        let from = i;
        if starts(i, b"//") {
            while i < text.len() && text[i] != b'\n' {
                i += 1;
            }
        } else if starts(i, b"/*") {
            i += 2;
            while i < text.len() && !starts(i, b"*/") {
                i += 1;
            }
            i = (i + 2).min(text.len());
        } else if text[i] == b'"' {
            i += 1;
            while i < text.len() && text[i] != b'"' && text[i] != b'\n' {
                i += if text[i] == b'\\' { 2 } else { 1 };
            }
            i = (i + 1).min(text.len());
        } else {
            i += 1;
            continue;
        }
        mask[from..i.min(text.len())].fill(false);
    }
    mask
}

/// All directives that read files, in order.
pub(crate) fn directives(text: &[u8]) -> Vec<Directive> {
    let cleaned = clean(text);
    let mut found = Vec::new();
    for line in cleaned.chars.split(|(c, _)| *c == b'\n') {
        let Some(&(_, number)) = line.first() else { continue };
        let bytes: Vec<u8> = line.iter().map(|(c, _)| *c).collect();
        let number = line.iter().find(|(c, _)| !c.is_ascii_whitespace()).map_or(number, |(_, n)| *n);
        scan_line(&bytes, number, &mut found);
    }
    found
}

fn scan_line(line: &[u8], number: u32, found: &mut Vec<Directive>) {
    let trimmed = line.trim_ascii();
    let rest = match trimmed {
        [b'#', rest @ ..] => rest,
        [b'%', b':', rest @ ..] => rest,
        _ => {
            // EDG takes `__has_include` in conditions only, but a macro may carry it there.
            if contains(trimmed, b"__has_include") || contains(trimmed, b"__has_embed") {
                found.push(Directive { line: number, target: Target::Forbidden("__has_include".into()) });
            }
            return;
        }
    };
    let rest = rest.trim_ascii_start();
    let word_len = rest.iter().take_while(|c| c.is_ascii_alphanumeric() || **c == b'_').count();
    let (word, rest) = rest.split_at(word_len);
    let mut push = |target| found.push(Directive { line: number, target });
    match word {
        b"include" => push(spelled(rest.trim_ascii(), false)),
        b"include_next" | b"embed" | b"import" => {
            push(Target::Forbidden(format!("#{}", String::from_utf8_lossy(word))))
        }
        b"if" | b"elif" | b"ifdef" | b"ifndef" => probes(rest, &mut push),
        _ => {
            if contains(rest, b"__has_include") || contains(rest, b"__has_embed") {
                push(Target::Forbidden("__has_include outside a condition".into()));
            }
        }
    }
}

/// The name in an include, or in the parentheses of a probe.
fn spelled(text: &[u8], probe: bool) -> Target {
    let name = |close: u8| {
        let inner = &text[1..];
        inner.iter().position(|c| *c == close).map(|end| String::from_utf8_lossy(&inner[..end]).into_owned())
    };
    let named = match text.first() {
        Some(b'"') => name(b'"').map(|n| if probe { Target::ProbeQuoted(n) } else { Target::Quoted(n) }),
        Some(b'<') => name(b'>').map(|n| if probe { Target::ProbeAngled(n) } else { Target::Angled(n) }),
        _ => None,
    };
    named.unwrap_or_else(|| Target::Macro(String::from_utf8_lossy(&text[..text.len().min(80)]).into_owned()))
}

fn probes(text: &[u8], push: &mut dyn FnMut(Target)) {
    if contains(text, b"__has_embed") || contains(text, b"__has_include_next") {
        return push(Target::Forbidden("__has_include_next".into()));
    }
    const WORD: &[u8] = b"__has_include";
    let mut rest = text;
    while let Some(at) = position(rest, WORD) {
        rest = rest[at + WORD.len()..].trim_ascii_start();
        // `defined(__has_include)` asks for the operator itself.
        if rest.first() == Some(&b'(') {
            push(spelled(rest[1..].trim_ascii_start(), true));
        } else if rest.first().is_some_and(|c| *c == b'"' || *c == b'<') {
            push(spelled(rest, true));
        }
    }
}

fn position(text: &[u8], word: &[u8]) -> Option<usize> {
    text.windows(word.len()).position(|w| w == word)
}

fn contains(text: &[u8], word: &[u8]) -> bool {
    position(text, word).is_some()
}

/// Joins continuation lines, blanks comments, and takes newlines out of raw strings so that their lines are not taken for directives.
fn clean(text: &[u8]) -> Cleaned {
    let spliced = splice(text);
    let mut out: Vec<(u8, u32)> = Vec::with_capacity(spliced.len());
    let at = |i: usize| spliced.get(i).map_or(0, |(c, _)| *c);
    let mut i = 0;
    // Inside an include's line quotes and brackets hold file names, in which // and ' mean nothing.
    let mut in_include = false;
    let mut line_start = 0;
    while i < spliced.len() {
        let (c, line) = spliced[i];
        match c {
            b'\n' => {
                out.push((c, line));
                line_start = out.len();
                in_include = false;
                i += 1;
            }
            b'/' if at(i + 1) == b'/' && !in_include => {
                while i < spliced.len() && at(i) != b'\n' {
                    i += 1;
                }
            }
            b'/' if at(i + 1) == b'*' && !in_include => {
                i += 2;
                // A comment is one blank, even over several lines.
                while i < spliced.len() && !(at(i) == b'*' && at(i + 1) == b'/') {
                    i += 1;
                }
                i = (i + 2).min(spliced.len());
                out.push((b' ', line));
            }
            b'<' if starts_include(&out[line_start..]) => {
                in_include = true;
                out.push((c, line));
                i += 1;
            }
            b'"' if starts_include(&out[line_start..]) => {
                // A file name: no escapes.
                out.push((c, line));
                i += 1;
                while i < spliced.len() && at(i) != b'"' && at(i) != b'\n' {
                    out.push(spliced[i]);
                    i += 1;
                }
                if at(i) == b'"' {
                    out.push(spliced[i]);
                    i += 1;
                }
            }
            b'"' if is_raw(&out) => i = raw_string(&spliced, i, &mut out),
            b'"' => i = literal(&spliced, i, b'"', &mut out),
            // A ' between digits separates them.
            b'\''
                if !out.last().is_some_and(|(p, _)| p.is_ascii_alphanumeric() || *p == b'_')
                    || is_char_prefix(&out) =>
            {
                i = literal(&spliced, i, b'\'', &mut out);
            }
            _ => {
                if c == b'>' {
                    in_include = false;
                }
                out.push((c, line));
                i += 1;
            }
        }
    }
    Cleaned { chars: out }
}

/// Removes backslash-newline, with blanks between them as compilers allow, and carriage returns.
fn splice(text: &[u8]) -> Vec<(u8, u32)> {
    let mut out = Vec::with_capacity(text.len());
    let mut line = 1;
    let mut i = 0;
    while i < text.len() {
        match text[i] {
            b'\\' => {
                let mut j = i + 1;
                while j < text.len() && matches!(text[j], b' ' | b'\t' | b'\r') {
                    j += 1;
                }
                if j < text.len() && text[j] == b'\n' {
                    line += 1;
                    i = j + 1;
                } else {
                    out.push((b'\\', line));
                    i += 1;
                }
            }
            // A lone carriage return ends a line for some compilers: treating it so finds more directives, never fewer.
            b'\r' => {
                if text.get(i + 1) != Some(&b'\n') {
                    out.push((b'\n', line));
                }
                i += 1;
            }
            c => {
                out.push((c, line));
                if c == b'\n' {
                    line += 1;
                }
                i += 1;
            }
        }
    }
    out
}

/// Whether what stands in this line so far is `#include` or a probe, so that a quote or bracket opens a file name.
fn starts_include(line: &[(u8, u32)]) -> bool {
    // Longer lines are no includes; the limit keeps a hostile line from costing its length for each of its quotes.
    if line.len() > 1024 {
        return false;
    }
    let text: Vec<u8> = line.iter().map(|(c, _)| *c).collect();
    let text = text.trim_ascii();
    let Some(rest) = text.strip_prefix(b"#").or_else(|| text.strip_prefix(b"%:")) else { return false };
    let rest = rest.trim_ascii();
    rest == b"include" || rest.ends_with(b"__has_include(") || rest.ends_with(b"__has_include")
}

fn is_raw(out: &[(u8, u32)]) -> bool {
    let word: Vec<u8> = out
        .iter()
        .rev()
        .take(4)
        .take_while(|(c, _)| c.is_ascii_alphanumeric() || *c == b'_')
        .map(|(c, _)| *c)
        .collect();
    matches!(&word[..], b"R" | b"Ru" | b"RU" | b"RL" | b"R8u")
}

fn is_char_prefix(out: &[(u8, u32)]) -> bool {
    let word: Vec<u8> = out
        .iter()
        .rev()
        .take(4)
        .take_while(|(c, _)| c.is_ascii_alphanumeric() || *c == b'_')
        .map(|(c, _)| *c)
        .collect();
    matches!(&word[..], b"u" | b"U" | b"L" | b"8u")
}

/// Skips an ordinary literal; it ends at its line's end at the latest.
fn literal(text: &[(u8, u32)], mut i: usize, quote: u8, out: &mut Vec<(u8, u32)>) -> usize {
    out.push(text[i]);
    i += 1;
    while i < text.len() {
        let (c, line) = text[i];
        if c == b'\n' {
            return i;
        }
        out.push((if c == quote { c } else { b'.' }, line));
        i += 1;
        if c == quote {
            return i;
        }
        if c == b'\\' && i < text.len() && text[i].0 != b'\n' {
            out.push((b'.', line));
            i += 1;
        }
    }
    i
}

fn raw_string(text: &[(u8, u32)], start: usize, out: &mut Vec<(u8, u32)>) -> usize {
    let delimiter: Vec<u8> = text[start + 1..].iter().map(|(c, _)| *c).take(17).take_while(|c| *c != b'(').collect();
    if text.get(start + 1 + delimiter.len()).is_none_or(|(c, _)| *c != b'(')
        || delimiter.iter().any(|c| c.is_ascii_whitespace())
    {
        return literal(text, start, b'"', out);
    }
    let mut close = vec![b')'];
    close.extend(&delimiter);
    close.push(b'"');
    out.push((b'"', text[start].1));
    let mut i = start + 2 + delimiter.len();
    while i < text.len() {
        if text.len() - i >= close.len() && text[i..i + close.len()].iter().map(|(c, _)| c).eq(close.iter()) {
            out.push((b'"', text[i].1));
            return i + close.len();
        }
        i += 1;
    }
    i
}

#[cfg(test)]
mod tests {
    use super::*;
    use Target::*;

    #[test]
    fn finds_every_way_to_name_a_file() {
        let q = |s: &str| Quoted(s.into());
        let a = |s: &str| Angled(s.into());
        let rows: &[(&str, &[(u32, Target)])] = &[
            ("#include <a.h>\n#include \"b.h\"\n", &[(1, a("a.h")), (2, q("b.h"))]),
            ("  #  include\t\"b.h\" // c", &[(1, q("b.h"))]),
            ("#include\\\n \"b.h\"", &[(1, q("b.h"))]),
            ("#inc\\\nlude \"b\\  \n.h\"", &[(1, q("b.h"))]),
            ("/* x */ # /* y */ include /* z */ \"b.h\"", &[(1, q("b.h"))]),
            ("/*\n*/#include \"b.h\"", &[(2, q("b.h"))]),
            ("%:include \"b.h\"", &[(1, q("b.h"))]),
            ("#if 0\n#include \"b.h\"\n#endif", &[(2, q("b.h"))]),
            ("// #include \"b.h\"\n/* \n#include \"c.h\"\n*/", &[]),
            ("const char* s = \"\\\"/*\";\n#include \"b.h\"", &[(2, q("b.h"))]),
            ("const char* s = R\"x(\n#include \"no.h\"\n)\" )x\";\n#include \"b.h\"", &[(4, q("b.h"))]),
            ("auto n = 1'000; auto c = '\"';\n#include \"b.h\"", &[(2, q("b.h"))]),
            ("#include <a//b.h>", &[(1, a("a//b.h"))]),
            ("#include \"a/*b.h\"\n#include \"c.h\"", &[(1, q("a/*b.h")), (2, q("c.h"))]),
            ("#include NAME(x)", &[(1, Macro("NAME(x)".into()))]),
            ("#include_next <a.h>", &[(1, Forbidden("#include_next".into()))]),
            ("#embed \"x\"", &[(1, Forbidden("#embed".into()))]),
            (
                "#if __has_include(\"x\") && __has_include ( <y> )",
                &[(1, ProbeQuoted("x".into())), (1, ProbeAngled("y".into()))],
            ),
            ("#ifdef __has_include\n#endif\n#if defined(__has_include)", &[]),
            ("#define P __has_include(\"x\")", &[(1, Forbidden("__has_include outside a condition".into()))]),
            ("int x;\r#include \"b.h\"\r\n", &[(1, q("b.h"))]),
        ];
        for (text, want) in rows {
            let got: Vec<(u32, Target)> = directives(text.as_bytes()).into_iter().map(|d| (d.line, d.target)).collect();
            assert_eq!(&got[..], *want, "{text:?}");
        }
    }

    #[test]
    fn any_bytes_are_taken() {
        for text in [
            &b"R\"("[..],
            b"\"",
            b"'",
            b"/*",
            b"#",
            b"#include",
            b"#include <",
            b"\\",
            b"#if __has_include(",
            b"\xff\xfe\0#include \"\xff\"",
            b"R\"abcdefghijklmnopqrstuvw(x",
        ] {
            directives(text);
        }
    }
}
