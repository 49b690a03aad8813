//! Finds the line behind "cannot perform wmma load or store on local memory". The compiler names a line of its own header only, and leaves
//! no trace in the PTX: everything from there on has become a trap.
//!
//! Method: compile again with all WMMA loads and stores but one replaced by a function that does nothing except let its pointers escape. If the
//! warning stays, that one is the culprit. Its limit: calls in the candidate's main file only, spelled out as calls.

use crate::scan;

/// Calls tried at most; beyond, the first call stands for all.
pub(crate) const MAX_CALLS: usize = 24;

const CALLS: [&str; 2] = ["load_matrix_sync", "store_matrix_sync"];
/// As long as neither of the two, so that lines, not columns, stay.
const ELSEWHERE: &str = "warpsmith_elsewhere";

/// Put in front of a source whose calls were replaced; `#line 1` keeps the line numbers.
pub(crate) const PRELUDE: &str = "namespace nvcuda { namespace wmma {\n\
    template <class T> __device__ __forceinline__ void warpsmith_escape(T& x) { asm volatile(\"\" :: \"l\"(&x) : \"memory\"); }\n\
    template <class T> __device__ __forceinline__ void warpsmith_escape(T* const& x) { asm volatile(\"\" :: \"l\"(x) : \"memory\"); }\n\
    template <class A, class B, class... R> __device__ __forceinline__ void warpsmith_elsewhere(A&& a, B&& b, R&&...) { warpsmith_escape(a); warpsmith_escape(b); }\n\
    } }\n#line 1\n";

/// A call's place in the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Call {
    start: usize,
    len: usize,
    pub line: u32,
}

/// All calls that are code, not comment or string.
pub(crate) fn calls(source: &str) -> Vec<Call> {
    let mut found = Vec::new();
    let code = scan::code_mask(source.as_bytes());
    for name in CALLS {
        for (start, _) in source.match_indices(name) {
            let before = source[..start].chars().next_back();
            let after = source[start + name.len()..].trim_start();
            let whole = !before.is_some_and(|c| c.is_alphanumeric() || c == '_');
            if whole && after.starts_with('(') && code.get(start).copied().unwrap_or(false) {
                let line = source[..start].matches('\n').count() as u32 + 1;
                found.push(Call { start, len: name.len(), line });
            }
        }
    }
    found.sort_by_key(|c| c.start);
    found
}

/// The source with every call but one replaced.
pub(crate) fn only(source: &str, calls: &[Call], keep: usize) -> String {
    let mut out = String::with_capacity(source.len() + PRELUDE.len() + calls.len() * ELSEWHERE.len());
    out.push_str(PRELUDE);
    let mut at = 0;
    for (i, call) in calls.iter().enumerate() {
        if i == keep {
            continue;
        }
        out.push_str(&source[at..call.start]);
        out.push_str(ELSEWHERE);
        at = call.start + call.len;
    }
    out.push_str(&source[at..]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_call_is_kept_and_lines_stay() {
        let source = "// load_matrix_sync(a)\nwmma::load_matrix_sync(a, p, 16);\n\"load_matrix_sync(\";\nmy_load_matrix_sync(x);\nstore_matrix_sync (o, c, 16);\n";
        let calls = calls(source);
        assert_eq!(calls.iter().map(|c| c.line).collect::<Vec<_>>(), [2, 5]);
        let text = only(source, &calls, 0);
        let body = text.strip_prefix(PRELUDE).unwrap();
        assert_eq!(body.lines().nth(1), Some("wmma::load_matrix_sync(a, p, 16);"));
        assert_eq!(body.lines().nth(4), Some("warpsmith_elsewhere (o, c, 16);"));
        assert_eq!(body.lines().count(), source.lines().count());
    }
}
