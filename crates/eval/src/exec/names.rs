//! Which entry of a PTX text a person means: by its own name, or by the C++ name that was mangled into it.
//!
//! `axpy` means `_Z4axpyPfS_if`, `softmax<float, 256>` its instance, `k` a `ns::k`, wherever only one entry can be meant. Source: the
//! Itanium C++ ABI's mangling, by way of `cpp_demangle`. It reads names only, never code.

use cpp_demangle::Symbol;

/// Longer names are no kernel's that a person would type.
const MAX_NAME: usize = 4096;

/// Why no entry was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Miss {
    None,
    /// Several, as C++ writes them.
    Many(Vec<String>),
}

/// The entry that is meant.
pub(super) fn find<'a>(asked: &str, entries: &'a [String]) -> Result<&'a str, Miss> {
    if let Some(exact) = entries.iter().find(|e| *e == asked) {
        return Ok(exact);
    }
    let asked = bare(asked);
    let names: Vec<(&'a String, Name)> = entries.iter().map(|e| (e, Name::of(e))).collect();
    let levels: [&dyn Fn(&Name) -> bool; 4] =
        [&|n| n.whole == asked, &|n| n.qualified == asked, &|n| n.without_arguments() == asked, &|n| {
            n.last() == asked || n.last_without_arguments() == asked
        }];
    for level in levels {
        let found: Vec<&(&'a String, Name)> = names.iter().filter(|(_, n)| level(n)).collect();
        match found.as_slice() {
            [] => continue,
            [(entry, _)] => return Ok(entry),
            many => return Err(Miss::Many(many.iter().map(|(e, _)| readable(e)).collect())),
        }
    }
    Err(Miss::None)
}

/// A name as C++ writes it, or as it stands.
pub(super) fn readable(entry: &str) -> String {
    if !entry.starts_with("_Z") || entry.len() > MAX_NAME {
        return entry.to_string();
    }
    Symbol::new(entry).ok().and_then(|s| s.demangle().ok()).unwrap_or_else(|| entry.to_string())
}

/// What people may call it: with its template arguments, and without.
pub(super) fn short(entry: &str) -> [String; 2] {
    let name = Name::of(entry);
    [name.last().to_string(), name.last_without_arguments().to_string()]
}

/// A demangled name without blanks.
struct Name {
    /// With its parameters.
    whole: String,
    /// `ns::k<float,256>`
    qualified: String,
}

impl Name {
    fn of(entry: &str) -> Name {
        let text = readable(entry);
        let head = text.strip_suffix(')').map_or(text.as_str(), |_| &text[..parameters(&text)]);
        // A template's instance is written with the type that it returns.
        let qualified = &head[last_outside(head, ' ').map_or(0, |at| at + 1)..];
        Name { whole: bare(&text), qualified: bare(qualified) }
    }

    fn without_arguments(&self) -> &str {
        cut(&self.qualified)
    }

    fn last(&self) -> &str {
        let end = cut(&self.qualified).len();
        let from = self.qualified[..end].rfind("::").map_or(0, |at| at + 2);
        &self.qualified[from..]
    }

    fn last_without_arguments(&self) -> &str {
        cut(self.last())
    }
}

/// Before the template arguments that end the name.
fn cut(name: &str) -> &str {
    if !name.ends_with('>') {
        return name;
    }
    let mut depth = 0;
    for (at, c) in name.char_indices().rev() {
        depth += i32::from(c == '>') - i32::from(c == '<');
        if depth == 0 {
            return &name[..at];
        }
    }
    name
}

/// Where the list of parameters begins that ends the text.
fn parameters(text: &str) -> usize {
    let mut depth = 0;
    for (at, c) in text.char_indices().rev() {
        depth += i32::from(c == ')') - i32::from(c == '(');
        if depth == 0 {
            return at;
        }
    }
    text.len()
}

/// The last such character outside of all brackets.
fn last_outside(text: &str, wanted: char) -> Option<usize> {
    let mut depth = 0;
    for (at, c) in text.char_indices().rev() {
        depth += i32::from(")>".contains(c)) - i32::from("(<".contains(c));
        if depth == 0 && c == wanted {
            return Some(at);
        }
    }
    None
}

/// Without blanks, and with numbers as they are written without a type: `256u` and `(unsigned int)256` are `256`.
fn bare(text: &str) -> String {
    let dense: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    let mut out = String::new();
    let mut in_number = false;
    let mut rest = dense.as_str();
    while let Some(c) = rest.chars().next() {
        if let Some(after) = rest.strip_prefix('(').filter(|_| out.ends_with(['<', ',']))
            && let Some((kind, number)) = after.split_once(')')
            && number.starts_with(|n: char| n.is_ascii_digit() || n == '-')
            && kind.chars().all(|k| k.is_alphanumeric() || k == '_' || k == ':')
        {
            rest = number;
            continue;
        }
        rest = &rest[c.len_utf8()..];
        let suffix = in_number && matches!(c, 'u' | 'U' | 'l' | 'L');
        if !suffix {
            let begins = !out.ends_with(|p: char| p.is_alphanumeric() || p == '_');
            in_number = c.is_ascii_digit() && (in_number || begins);
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_found_by_what_people_call_them() {
        let entries: Vec<String> = [
            "_Z4axpyPfS_if",
            "_Z7softmaxIfLi256EEvPKT_PS0_i",
            "_Z7softmaxI6__halfLi128EEvPKT_PS1_i",
            "_ZN3lib4gemmILb1ELj16EEEvPfS1_",
            "_ZN12_GLOBAL__N_16hiddenEPf",
            "plain",
            "_Z3addPii",
            "_Z3addPff",
        ]
        .map(String::from)
        .to_vec();
        // asked; which entry, or how many it might be
        for (asked, want) in [
            ("axpy", Ok(0)),
            ("_Z4axpyPfS_if", Ok(0)),
            ("axpy(float*, float*, int, float)", Ok(0)),
            ("softmax<float, 256>", Ok(1)),
            ("softmax< float,256 >", Ok(1)),
            ("softmax<__half, 128>", Ok(2)),
            ("softmax", Err(2)),
            ("lib::gemm<true, 16u>", Ok(3)),
            ("lib::gemm<true, 16>", Ok(3)),
            ("gemm", Ok(3)),
            ("gemm<true, 16>", Ok(3)),
            ("lib::gemm", Ok(3)),
            ("hidden", Ok(4)),
            ("plain", Ok(5)),
            ("add", Err(2)),
            ("add(float*, float)", Ok(7)),
            ("nothing", Err(0)),
            ("softmax<double, 256>", Err(0)),
        ] {
            let got = match find(asked, &entries) {
                Ok(name) => Ok(entries.iter().position(|e| e == name).unwrap()),
                Err(Miss::None) => Err(0),
                Err(Miss::Many(names)) => Err(names.len()),
            };
            assert_eq!(got, want, "{asked}");
        }
    }
}
