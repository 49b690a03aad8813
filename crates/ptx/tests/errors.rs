//! Refused texts: each names the place and what was expected there.

mod support;

use support::with_header;

/// (text after the three header lines, line, column, part of the message)
const ROWS: &[(&str, u32, u32, &str)] = &[
    (".entry k( { ret; }", 4, 11, "expected `.param`, found `{`"),
    (".entry k() { ret }", 4, 18, "expected an operand or `;`, found `}`"),
    (".entry k() { ret;", 4, 18, "found the end of the text"),
    (".entry k() {\n  add.s32 %r1, 1, 2;\n}", 5, 11, "no register `%r1` is declared here"),
    (".entry k() { .reg .b32 %r<2>; mov.b32 %r1, %r2; }", 4, 44, "no register `%r2` is declared"),
    (".entry k() { .reg .b32 a; mov.b32 a, b; }", 4, 38, "no name `b` is declared here"),
    (".entry k() { bra L; }", 4, 18, "no label `L` can be seen from here"),
    (".entry k() { { L: ret; } bra L; }", 4, 30, "no label `L`"),
    (".entry k() { L: L: ret; }", 4, 17, "`L` is declared twice"),
    (".entry k() { .reg .b32 a, a; }", 4, 27, "`a` is declared twice"),
    (".entry k() { ret; }\n.entry k() { ret; }", 5, 8, "`k` is declared twice"),
    (".entry k() { @%p1 ret; }", 4, 15, "no predicate register `%p1` is declared"),
    (".entry k() { .reg .b32 a; mov.b32 a, }", 4, 38, "expected an operand, found `}`"),
    (".entry k() { .reg .b32 a; mov.b32 a 1; }", 4, 37, "expected `,` or `;`, found `1`"),
    (".entry k() { .reg .b32 a; ld.b32 a, [a; }", 4, 39, "expected `]`, found `;`"),
    (".entry k() { .reg .b32 a; ld.b32 a, [a+a]; }", 4, 40, "expected an offset in bytes, found `a`"),
    (".entry k() { .reg .f32 a; mov.f32 a, 0f3F8; }", 4, 38, "has 8 digits, not 3"),
    (".entry k() { .reg .b32 a; mov.b32 a, 99999999999999999999; }", 4, 38, "is no 64-bit integer"),
    (".entry k() { .reg .b32 a; mov.b32 a, 09; }", 4, 38, "is no 64-bit integer of base 8"),
    (".entry k() { .reg .b32 a; mov.b32 a, 1/0; }", 4, 39, "division by zero"),
    (".entry k() { .foo; }", 4, 14, "a directive of a function body, found `.foo`"),
    (".entry k() { .reg .q32 a; }", 4, 19, "expected a type, found `.q32`"),
    (".entry k() { .reg .b32 a<1000001>; }", 4, 24, "at most 1000000 registers"),
    (".shared .b8 x[4294967296];", 4, 14, "an array's size"),
    (".shared .b32 x[1024][1024][1024];", 4, 33, "at most 1073741824 bytes"),
    (".global .b8 x[2] = {1, 2, 3};", 4, 27, "more initial values"),
    (".global .align 3 .b8 x;", 4, 16, "a power of two"),
    (".global .b8 x[1] = {y};", 4, 21, "an address needs 4 or 8 bytes"),
    (".global .b8 x[1] = {0xFF00(y)};", 4, 21, "one after the other"),
    (".global .b32 x = {1;", 4, 20, "expected `}`, found `;`"),
    (".section .debug_info { .b8 1", 4, 10, "no closing `}`"),
    (".bogus 1", 4, 1, "expected a module-scope directive, found `.bogus`"),
    ("/* never ends", 4, 1, "this comment has no end"),
    (".file 1 \"never ends\n", 4, 9, "this string has no end"),
    (".alias a, b;", 4, 11, "no function is called `b`"),
    ("ret;", 4, 1, "expected a directive such as"),
    (".entry k() { r\u{e9}t; }", 4, 15, "unexpected character"),
];

#[test]
fn errors_point_at_the_token() {
    let mut wrong = Vec::new();
    for (text, line, column, part) in ROWS {
        let why = warpsmith_ptx::parse(&with_header(text)).expect_err(text);
        if !why.message.contains(part) || (why.line, why.column) != (*line, *column) {
            wrong.push(format!("{text}: {why}"));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn texts_without_a_header_are_no_ptx() {
    let rows = [
        ("", "every PTX text begins"),
        ("int main() {}", "every PTX text begins"),
        (".version x", "a version such as"),
        (".version 8.0", "expected `.target`"),
        ("\u{feff}.version 8.0", "unexpected character"),
    ];
    for (text, part) in rows {
        let why = warpsmith_ptx::parse(text).expect_err(text);
        assert!(why.to_string().contains(part), "{text}: {why}");
    }
}

#[test]
fn a_message_is_one_short_line() {
    let long = "x".repeat(100_000);
    let why = warpsmith_ptx::parse(&with_header(&long)).expect_err("no PTX");
    assert!(why.to_string().len() < 200);
}

#[test]
fn deep_nesting_is_refused_and_does_not_exhaust_the_stack() {
    let rows = [
        ("{", "nested more than 64 scopes deep"),
        ("mov.b32 a, (", "nested more than 64 levels deep"),
        ("mov.b32 a, - ", "nested more than 64 levels deep"),
        ("mov.b32 a, {", "nested more than 64 levels deep"),
        ("call (", "nested more than 64 levels deep"),
        ("mov.b32 a, 1 ? ", "nested more than 64 levels deep"),
        ("mov.b32 a, 0xFF(", "nested more than 64 levels deep"),
    ];
    for (text, part) in rows {
        let (start, unit) = text.split_at(text.rfind(' ').map_or(0, |at| match &text[..at] {
            "mov.b32 a, -" | "mov.b32 a, 1 ?" => "mov.b32 a, ".len(),
            _ => at + 1,
        }));
        let body = format!(".entry k() {{ .reg .b32 a; {start}{}", unit.repeat(200_000));
        let why = warpsmith_ptx::parse(&with_header(&body)).expect_err("refused");
        assert!(why.message.contains(part), "{text}: {why}");
    }
    let braces = with_header(&format!(".global .b8 x[9] = {}", "{".repeat(200_000)));
    let why = warpsmith_ptx::parse(&braces).expect_err("refused");
    assert!(why.message.contains("levels deep"), "{why}");
}
