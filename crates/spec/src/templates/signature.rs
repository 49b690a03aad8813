//! Finds `__global__` functions in CUDA source: name, parameters, launch bounds. A scanner for proposals, not a C++ parser.
//!
//! Comments, string literals and preprocessor lines are blanked first. What it does not understand (macros that make kernels, function
//! pointers) it leaves out.

/// A kernel's declaration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Signature {
    pub name: String,
    pub parameters: Vec<Parameter>,
    /// The number in `__launch_bounds__(N)`, if it is one.
    pub max_threads: Option<u32>,
    /// It follows `template <...>`, so that its entry needs arguments.
    pub is_template: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Parameter {
    pub name: String,
    /// The declaration without the name, `const __half *`.
    pub type_text: String,
    pub is_pointer: bool,
}

/// All kernels, in the order of the file; a declaration and its definition are one.
pub(super) fn kernels(source: &str) -> Vec<Signature> {
    let code = blanked(source);
    let mut found: Vec<Signature> = Vec::new();
    for (at, _) in code.match_indices("__global__") {
        if let Some(signature) = signature(&code, at)
            && !found.iter().any(|s| s.name == signature.name)
        {
            found.push(signature);
        }
    }
    found
}

fn signature(code: &str, at: usize) -> Option<Signature> {
    let mut rest = &code[at + "__global__".len()..];
    let mut max_threads = None;
    let mut name = "";
    // Words up to the name: void, attributes, __launch_bounds__(...). The name is the word before the parameters.
    loop {
        rest = rest.trim_start();
        if let Some(after) = rest.strip_prefix("[[") {
            rest = &after[after.find("]]")? + 2..];
            continue;
        }
        if rest.starts_with('(') {
            let inside = balanced(rest)?;
            if name == "__launch_bounds__" || name == "__cluster_dims__" || name == "__attribute__" {
                if name == "__launch_bounds__" {
                    max_threads = inside.split(',').next().and_then(|n| n.trim().parse().ok());
                }
                rest = &rest[inside.len() + 2..];
                continue;
            }
            let is_template = code[..at].trim_end().trim_end_matches("static").trim_end().ends_with('>');
            let usable = crate::task::is_name(name);
            return usable.then(|| Signature {
                name: name.to_string(),
                parameters: parameters(inside),
                max_threads,
                is_template,
            });
        }
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(rest.len());
        if end == 0 {
            return None;
        }
        name = &rest[..end];
        rest = &rest[end..];
    }
}

/// The text inside the parentheses that `text` begins with.
fn balanced(text: &str) -> Option<&str> {
    let mut depth = 0;
    for (i, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => {
                depth -= 1;
                if depth == 0 {
                    return text.get(1..i);
                }
            }
            _ => {}
        }
    }
    None
}

fn parameters(inside: &str) -> Vec<Parameter> {
    let mut parts = vec![String::new()];
    let mut depth = 0;
    for c in inside.chars() {
        match c {
            '(' | '<' | '[' | '{' => depth += 1,
            ')' | '>' | ']' | '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(String::new());
                continue;
            }
            _ => {}
        }
        if let Some(part) = parts.last_mut() {
            part.push(c);
        }
    }
    parts.iter().filter_map(|p| parameter(p)).collect()
}

fn parameter(text: &str) -> Option<Parameter> {
    // `float x = 1.f` and `float x[]` are a value and a pointer.
    let text = text.split('=').next().unwrap_or(text).trim();
    let (text, array) = match text.find('[') {
        Some(at) => (text[..at].trim_end(), true),
        None => (text, false),
    };
    let start = text.rfind(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).map_or(0, |i| i + 1);
    let (type_text, name) = (text[..start].trim(), &text[start..]);
    if type_text.is_empty() || !crate::task::is_name(name) {
        return None;
    }
    let type_text = type_text.replace("__restrict__", "").replace("__grid_constant__", "").replace("restrict", "");
    let type_text = type_text.split_whitespace().collect::<Vec<_>>().join(" ");
    let is_pointer = array || type_text.contains('*');
    Some(Parameter { name: name.to_string(), type_text, is_pointer })
}

/// The source with comments, literals and preprocessor lines made spaces; length and line ends stay.
fn blanked(source: &str) -> String {
    #[derive(PartialEq)]
    enum In {
        Code,
        Line,
        Block,
        Text(char),
    }
    let mut out = String::with_capacity(source.len());
    let mut state = In::Code;
    let mut chars = source.chars().peekable();
    let mut line_start = true;
    while let Some(c) = chars.next() {
        let next = chars.peek().copied();
        match state {
            In::Code if c == '/' && next == Some('/') => state = In::Line,
            In::Code if c == '#' && line_start => state = In::Line,
            In::Code if c == '/' && next == Some('*') => {
                state = In::Block;
                chars.next();
                out.push(' ');
            }
            In::Code if c == '"' || c == '\'' => state = In::Text(c),
            In::Line if c == '\n' => state = In::Code,
            // A line that ends in a backslash goes on.
            In::Line if c == '\\' && next == Some('\n') => {
                chars.next();
                out.push_str(" \n");
                continue;
            }
            In::Block if c == '*' && next == Some('/') => {
                state = In::Code;
                chars.next();
                out.push_str("  ");
                continue;
            }
            In::Text(_) if c == '\\' => {
                chars.next();
                out.push(' ');
            }
            In::Text(quote) if c == quote || c == '\n' => {
                state = In::Code;
                out.push(if c == '\n' { c } else { ' ' });
                continue;
            }
            _ => {}
        }
        line_start = c == '\n' || (line_start && c.is_whitespace());
        out.push(if state == In::Code || c == '\n' { c } else { ' ' });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_found_with_their_parameters() {
        let source = r#"
// __global__ void commented(int a);
#define K __global__ void macro(int x)
const char* text = "__global__ void quoted(int a)";
template <int D, bool C>
__global__ void __launch_bounds__(128, 2) attend(const __half* __restrict__ q, /* keys */ const __nv_fp8_e4m3 *k, float scale = 1.f,
                                                 unsigned long long n, const float x[], std::pair<int, int> p);
extern "C" __global__ __launch_bounds__(THREADS) void plain() {}
[[nodiscard]] __global__ void [[maybe]] broken(
"#;
        let found = kernels(source);
        let names: Vec<_> = found.iter().map(|s| (s.name.as_str(), s.max_threads, s.is_template)).collect();
        assert_eq!(names, [("attend", Some(128), true), ("plain", None, false)]);
        let parameters: Vec<_> =
            found[0].parameters.iter().map(|p| (p.name.as_str(), p.type_text.as_str(), p.is_pointer)).collect();
        assert_eq!(
            parameters,
            [
                ("q", "const __half*", true),
                ("k", "const __nv_fp8_e4m3 *", true),
                ("scale", "float", false),
                ("n", "unsigned long long", false),
                ("x", "const float", true),
                ("p", "std::pair<int, int>", false),
            ]
        );
    }

    #[test]
    fn broken_source_is_left_out() {
        for source in [
            "__global__",
            "__global__ void",
            "__global__ void f",
            "__global__ void f(",
            "__global__ ((((",
            "\"",
            "/*",
            "'\\",
            "é__global__ void é(int x)",
        ] {
            assert_eq!(kernels(source), [], "{source}");
        }
    }
}
