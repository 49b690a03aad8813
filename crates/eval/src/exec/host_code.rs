//! A source without its host code: what teaching files have besides kernels (`main`, launches with `<<< >>>`, checks with `std::`) is
//! blanked out, so that the compiler of device code accepts the rest, at the same lines.
//!
//! Not a parser of C++: it reads comments, literals and brackets, and looks at each declaration at namespace level. Functions stay if they
//! say `__global__`, `__device__` or `constexpr`; types, constants, templates and macros stay; other functions, includes of headers
//! that only a host has, and variables of their types go. Limit: host code inside of a type that a kernel uses stays, and then does not compile.

/// Headers of the C++ library and the system that device code has no use for.
const HOST_HEADERS: [&str; 38] = [
    "algorithm",
    "atomic",
    "cerrno",
    "chrono",
    "ctime",
    "deque",
    "exception",
    "filesystem",
    "fstream",
    "future",
    "getopt.h",
    "iomanip",
    "ios",
    "iostream",
    "istream",
    "iterator",
    "list",
    "map",
    "memory",
    "mutex",
    "numeric",
    "omp.h",
    "optional",
    "ostream",
    "queue",
    "random",
    "set",
    "sstream",
    "stdexcept",
    "string",
    "string_view",
    "sys/time.h",
    "thread",
    "time.h",
    "unistd.h",
    "unordered_map",
    "unordered_set",
    "vector",
];
/// Headers of CUDA's host libraries.
const HOST_LIBRARIES: [&str; 8] =
    ["cublas", "cudnn", "curand.h", "cusparse", "cusolver", "cufft", "helper_", "thrust/"];

/// The source without host code; None where there is none, and so nothing to try.
pub(super) fn without(source: &str) -> Option<String> {
    let mut text: Vec<u8> = source.as_bytes().to_vec();
    let plain = plain(source);
    let mut changed = blank_includes(source, &mut text);
    for (from, to) in declarations(&plain) {
        if is_host(&plain[from..to]) {
            // Comments and directives before it are not its own.
            let own = plain[from..to].len() - plain[from..to].trim_start().len();
            blank(&mut text, from + own, to);
            changed = true;
        }
    }
    changed.then(|| String::from_utf8_lossy(&text).into_owned())
}

/// Spaces for all but the ends of lines.
fn blank(text: &mut [u8], from: usize, to: usize) {
    for b in &mut text[from..to] {
        if *b != b'\n' {
            *b = b' ';
        }
    }
}

fn blank_includes(source: &str, text: &mut [u8]) -> bool {
    let mut at = 0;
    let mut changed = false;
    for line in source.split_inclusive('\n') {
        let name = line.trim_start().strip_prefix('#').and_then(|l| l.trim_start().strip_prefix("include"));
        let name = name.and_then(|l| l.trim().strip_prefix(['<', '"'])?.split(['>', '"']).next());
        if let Some(name) = name
            && (HOST_HEADERS.contains(&name) || HOST_LIBRARIES.iter().any(|l| name.starts_with(l)))
        {
            blank(text, at, at + line.len());
            changed = true;
        }
        at += line.len();
    }
    changed
}

/// The text with comments, literals and preprocessor lines as blanks, byte for byte in place.
fn plain(source: &str) -> String {
    let s = source.as_bytes();
    let mut out = s.to_vec();
    let mut at = 0;
    let mut line_start = true;
    while at < s.len() {
        let rest = &s[at..];
        let end = if rest.starts_with(b"//") {
            at + rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len())
        } else if rest.starts_with(b"/*") {
            at + rest.windows(2).skip(2).position(|w| w == b"*/").map_or(rest.len(), |n| n + 4)
        } else if rest[0] == b'#' && line_start {
            at + directive(rest)
        } else if rest[0] == b'"' || (rest[0] == b'\'' && !(at > 0 && s[at - 1].is_ascii_alphanumeric())) {
            at + literal(rest)
        } else {
            line_start = rest[0] == b'\n' || (line_start && rest[0].is_ascii_whitespace());
            at += 1;
            continue;
        };
        let end = end.min(s.len());
        // `extern "C"` has to be seen.
        let keep = &s[at..end] == b"\"C\"";
        if !keep {
            blank(&mut out, at, end);
        }
        at = end;
    }
    // Only whole characters were blanked, save inside of literals, where all their bytes were.
    String::from_utf8(out).unwrap_or_else(|e| {
        String::from_utf8_lossy(e.as_bytes()).chars().map(|c| if c.is_ascii() { c } else { ' ' }).collect()
    })
}

/// Bytes of a preprocessor line with those that continue it.
fn directive(rest: &[u8]) -> usize {
    let mut at = 0;
    while at < rest.len() {
        let end = at + rest[at..].iter().position(|b| *b == b'\n').unwrap_or(rest.len() - at);
        let line = rest[at..end].strip_suffix(b"\r").unwrap_or(&rest[at..end]);
        at = end;
        if !line.ends_with(b"\\") {
            break;
        }
        at += 1;
    }
    at.min(rest.len())
}

/// Bytes of a text or a character in quotes; one that does not end, ends with its line.
fn literal(rest: &[u8]) -> usize {
    let quote = rest[0];
    let mut at = 1;
    while at < rest.len() && rest[at] != b'\n' {
        match rest[at] {
            b'\\' => at += 2,
            b if b == quote => return at + 1,
            _ => at += 1,
        }
    }
    at
}

/// Where each declaration at namespace level begins and ends.
fn declarations(plain: &str) -> Vec<(usize, usize)> {
    let s = plain.as_bytes();
    let mut found = Vec::new();
    let (mut from, mut at) = (0, 0);
    while at < s.len() {
        match s[at] {
            b';' => {
                found.push((from, at + 1));
                from = at + 1;
            }
            b'{' if is_scope(&plain[from..at]) => from = at + 1,
            b'{' | b'(' | b'[' => {
                let open = s[at];
                at = closing(s, at);
                // A function's body ends it; a type, or a list of values, goes on to its semicolon.
                if open == b'{' && is_function(&plain[from..at.min(s.len())]) {
                    found.push((from, (at + 1).min(s.len())));
                    from = (at + 1).min(s.len());
                }
            }
            b'}' => from = at + 1,
            _ => {}
        }
        at += 1;
    }
    found
}

/// The bracket that closes the one at `at`, or the end.
fn closing(s: &[u8], at: usize) -> usize {
    let mut depth = 0usize;
    for (n, b) in s.iter().enumerate().skip(at) {
        match b {
            b'{' | b'(' | b'[' => depth += 1,
            b'}' | b')' | b']' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return n;
                }
            }
            _ => {}
        }
    }
    s.len()
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).filter(|w| !w.is_empty())
}

/// A namespace, or `extern "C"`: what stands in it is at namespace level too.
fn is_scope(head: &str) -> bool {
    let bare = head.trim();
    (words(bare).any(|w| w == "namespace") && !bare.contains('('))
        || (bare.starts_with("extern") && bare.ends_with("\"C\""))
}

/// A definition that is a function's: what stands before its brace ends with its parameters, or with words that follow those.
fn is_function(text: &str) -> bool {
    let mut head = text[..text.find('{').unwrap_or(text.len())].trim_end();
    while let Some(rest) = ["const", "noexcept", "override", "final"].iter().find_map(|w| head.strip_suffix(w)) {
        head = rest.trim_end();
    }
    head.ends_with(')') || (head.contains("->") && head.contains('('))
}

fn is_host(declaration: &str) -> bool {
    let kept = [
        "__global__",
        "__device__",
        "__constant__",
        "__managed__",
        "constexpr",
        "typedef",
        "using",
        "static_assert",
        "asm",
    ];
    let head = &declaration[..declaration.find('{').unwrap_or(declaration.len())];
    // Without the host's headers there is nothing in `std` to use.
    if words(head).eq(["using", "namespace", "std"]) {
        return true;
    }
    if words(head).any(|w| kept.contains(&w)) {
        return false;
    }
    is_function(declaration) && declaration.contains('{')
        || host_prototype(declaration)
        || words(head).any(|w| w == "std")
}

/// A function that is declared and not defined here.
fn host_prototype(declaration: &str) -> bool {
    let head = declaration.trim();
    head.ends_with(");") && !head.contains('=') && !words(head).any(|w| w == "template") && words(head).count() > 1
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"// axpy, as a first lesson
#include <cuda_fp16.h>
#include <iostream>
#include <vector>
using namespace std;
#define CHECK(call) do { \
    if (call) exit(1); } while (0)
constexpr int kThreads = 256;
struct Pair { float a; float b; float sum() const { return a + b; } };
std::vector<float> host_values = {1.0f, 2.0f};
static float cpu(const float* x, int n = 4) { float s = 0; for (int i = 0; i < n; ++i) s += x[i]; return s; }
void launch(float* x);
__device__ __forceinline__ float half_of(float x) { return x / 2; }
template <typename T = float>
__global__ void axpy(const T* x, T* y, int n) {
    int i = threadIdx.x;  // { not a bracket
    if (i < n) y[i] += half_of(x[i]);
}
namespace inner {
__constant__ float table[4] = {1, 2, 3, 4};
int host() { return '{' + 1'000; }
extern "C" __global__ void k(float* y) { y[0] = table[threadIdx.x]; }
}
int main(int argc, char** argv) {
    std::cout << "}" << std::endl;
    axpy<float><<<1, kThreads>>>(nullptr, nullptr, 0);
    return 0;
}
"#;

    #[test]
    fn host_code_goes_and_device_code_stays_in_its_line() {
        let got = without(FILE).unwrap();
        assert_eq!(got.lines().count(), FILE.lines().count());
        for (line, (was, is)) in FILE.lines().zip(got.lines()).enumerate() {
            let gone = [
                "namespace std",
                "<iostream>",
                "<vector>",
                "std::",
                "cpu(",
                "launch(float",
                "int host()",
                "main(",
                "<<<",
                "return 0;",
            ];
            // The lone bracket is main's.
            if gone.iter().any(|g| was.contains(g)) || line == FILE.lines().count() - 1 {
                assert_eq!(is.trim(), "", "line {}: {is}", line + 1);
            } else {
                assert_eq!(is, was, "line {}", line + 1);
            }
        }
        assert_eq!(without("__global__ void k(float* x) { x[0] = 1; }\n"), None);
    }

    #[test]
    fn no_text_makes_it_panic() {
        for text in ["", "{", "}", "\"", "'", "/*", "#", "#\\", "int f(", "ä{ö}ü(", "int main() { \"ä", "\\", "'\\"]
        {
            let _ = without(text);
            let _ = without(&format!("{text}\n#include <vector>\n{text}"));
        }
    }
}
