//! What people get wrong in a candidate's file: the code, the line and the words they are told.

mod common;
use common::{PLAIN, tasks};
use warpsmith_spec::{Candidate, SpecError};

fn parse(text: impl AsRef<[u8]>) -> Result<Candidate, SpecError> {
    Candidate::parse("mine.cu", text.as_ref(), &tasks())
}

/// A row: what becomes of the plain kernel; code, line, and words that message or hint hold.
fn check(name: &str, text: impl AsRef<[u8]>, code: &str, line: Option<u32>, words: &[&str]) {
    let e = parse(text).expect_err(name);
    let said = format!("{} {}", e.message, e.hint.clone().unwrap_or_default());
    assert_eq!((e.code.as_str(), e.line), (code, line), "{name}: {said}");
    assert_eq!(e.file.as_deref(), Some("mine.cu"), "{name}");
    assert!(!e.message.contains('\n'), "{name}: {said}");
    for word in words {
        assert!(said.contains(word), "{name}: `{word}` is not in: {said}");
    }
}

#[test]
fn the_plain_kernel_is_right() {
    let c = parse(PLAIN).unwrap();
    assert_eq!(c.entries(), ["sdpa_plain"]);
    assert_eq!(c.source, PLAIN);
}

#[test]
fn each_mistake_is_named_with_its_line() {
    let rows: &[(&str, &str, &str, &str, Option<u32>, &[&str])] = &[
        ("broken TOML", "task = \"fp8_sdpa\"", "task = \"fp8_sdpa", "candidate-syntax", Some(1), &["string"]),
        ("unknown key", "//! grid =", "//! gird =", "candidate-syntax", Some(6), &["gird", "did you mean `grid`"]),
        (
            "unknown task",
            "\"fp8_sdpa\"",
            "\"fp9_sdpa\"",
            "unknown-name",
            Some(1),
            &["fp9_sdpa", "did you mean `fp8_sdpa`", "rms_norm"],
        ),
        (
            "unknown symbol",
            "ceil_div(S, 64)",
            "ceil_div(SEQ, 64)",
            "unknown-name",
            Some(6),
            &["SEQ", "SM_COUNT", "B, D, H, S"],
        ),
        ("broken formula", "ceil_div(S, 64)", "ceil_div(S, ", "candidate-syntax", Some(6), &["ceil_div(S, "]),
        (
            "unknown argument",
            "\"v_scale\", \"out\"",
            "\"w_scale\", \"out\"",
            "unknown-name",
            Some(8),
            &["w_scale", "v_scale"],
        ),
    ];
    for (name, from, to, code, line, words) in rows {
        let text = PLAIN.replace(from, to);
        assert_ne!(text, PLAIN, "{name}");
        check(name, text, code, *line, words);
    }
    check("empty", "", "candidate-syntax", Some(1), &["front matter"]);
    check("not UTF-8", b"\xff\xfe\x00\x01".repeat(50), "candidate-syntax", Some(1), &["UTF-8"]);
    check("no front matter", &PLAIN[PLAIN.find("#include").unwrap()..], "candidate-syntax", Some(1), &["front matter"]);
}
