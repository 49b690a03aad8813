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

/// The plain front matter with one line more before its `[[launch]]`, or in it.
fn with(line: &str) -> String {
    PLAIN.replace("//! [[launch]]", &format!("//! {line}\n//! [[launch]]"))
}

fn in_launch(line: &str) -> String {
    PLAIN.replace("//! block = [64]", &format!("//! block = [64]\n//! {line}"))
}

fn grid(value: &str) -> String {
    PLAIN.replace("grid = [\"ceil_div(S, 64)\", \"B * H\"]", &format!("grid = {value}"))
}

fn block(value: &str) -> String {
    PLAIN.replace("block = [64]", &format!("block = {value}"))
}

fn args(value: &str) -> String {
    PLAIN.replace("\"softmax_scale\", \"S\"]", &format!("\"softmax_scale\", {value}]"))
}

#[test]
fn values_of_the_wrong_type_or_size() {
    let syntax = "candidate-syntax";
    for (text, code, line, words) in [
        (grid("3"), syntax, 6, &["grid", "array", "the number 3"][..]),
        (grid("\"S\""), syntax, 6, &["grid", "array", "text \"S\""]),
        (grid("[]"), syntax, 6, &["grid", "0 dimensions", "1 to 3"]),
        (grid("[1, 1, 1, 1]"), syntax, 6, &["grid", "4 dimensions"]),
        (grid("[true]"), syntax, 6, &["grid", "true", "whole number or a formula"]),
        (grid("[1.5]"), syntax, 6, &["grid", "1.5"]),
        (grid("[[1]]"), syntax, 6, &["grid", "array of 1"]),
        (grid("[{ x = 1 }]"), syntax, 6, &["grid", "table"]),
        (grid("[99999999999999999999]"), syntax, 6, &["beyond 64 bits"]),
        (grid("[2026-11-21]"), syntax, 6, &["date"]),
        (grid("[0]"), "invalid-launch", 6, &["grid", "is 0", "at least 1"]),
        (grid("[-1]"), "invalid-launch", 6, &["grid", "-1"]),
        (grid("[-9223372036854775808]"), "invalid-launch", 6, &["grid"]),
        (grid("[2147483648]"), "invalid-launch", 6, &["2147483648", "2147483647"]),
        (grid("[1, 65536]"), "invalid-launch", 6, &["65536", "65535"]),
        (grid("[\"64 - 64\"]"), "invalid-launch", 6, &["grid", "is 0"]),
        (grid("[\"1 / 0\"]"), syntax, 6, &["grid", "1 / 0", "division by zero"]),
        (grid("[\"S / 2.0\"]"), syntax, 6, &["S / 2.0", "not a whole number"]),
        (grid("[\"S == 64\"]"), syntax, 6, &["S == 64", "not a whole number"]),
        (grid("[\"S + (D == 64)\"]"), syntax, 6, &["S + (D == 64)", "does not apply"]),
        (grid("[\"\"]"), syntax, 6, &["empty"]),
        (grid("[\"S; S\"]"), syntax, 6, &["S; S"]),
        (grid("[\"ceil_div(S)\"]"), syntax, 6, &["ceil_div takes 2 arguments, not 1"]),
        (grid("[\"ceildiv(S, 2)\"]"), "unknown-name", 6, &["ceildiv", "did you mean `ceil_div`"]),
        (grid("[\"let x = 3\"]"), syntax, 6, &["grid"]),
        (grid("[\"if S > 3 { 1 } else { 2 }\"]"), syntax, 6, &["grid"]),
        (grid("[\"eval(\\\"1\\\")\"]"), "unknown-name", 6, &["eval"]),
        (grid("[\"'a'\"]"), syntax, 6, &["only numbers"]),
        (grid("[\"S\\u0000\"]"), syntax, 6, &["grid"]),
        (grid("[\"größe\"]"), syntax, 6, &["größe"]),
        (grid(&format!("[\"{}1{}\"]", "(".repeat(300), ")".repeat(300))), syntax, 6, &["grid"]),
        (grid(&format!("[\"{}1\"]", "-".repeat(900))), syntax, 6, &["grid"]),
        (grid(&format!("[\"1{}\"]", "+1".repeat(2000))), syntax, 6, &["longer than 1000"]),
        (grid(&format!("{}1{}", "[".repeat(2000), "]".repeat(2000))), syntax, 6, &["front matter"]),
        (block("[2048]"), "invalid-launch", 7, &["2048", "1024"]),
        (block("[64, 64]"), "invalid-launch", 7, &["4096", "1024"]),
        (block("[1, 1, 65]"), "invalid-launch", 7, &["65", "64"]),
        (block("[8, 8, 8, 8]"), syntax, 7, &["block", "4 dimensions"]),
        (in_launch("cluster = [32]"), "invalid-launch", 8, &["cluster", "32"]),
        (in_launch("shared_bytes = -4"), "invalid-launch", 8, &["shared_bytes", "-4"]),
        (in_launch("shared_bytes = [4]"), syntax, 8, &["shared_bytes", "array of 1"]),
        (in_launch("grid = [1]"), syntax, 8, &["grid", "duplicate"]),
        (args("true"), syntax, 8, &["args", "true"]),
        (args("nan"), syntax, 8, &["args", "NaN"]),
        (args("\"S +\""), syntax, 8, &["S +"]),
        (args("\"\""), syntax, 8, &["args", "empty"]),
        (args("\"q + 1\""), "unknown-name", 8, &["unknown symbol `q`"]),
        (PLAIN.replace("args = [", "args = \"q\" # ["), syntax, 8, &["args", "array"]),
        (PLAIN.replace("\"sdpa_plain\"", "\"\""), syntax, 5, &["entry", "kernel's name"]),
        (PLAIN.replace("\"sdpa_plain\"", "7"), syntax, 5, &["entry", "the number 7"]),
        (PLAIN.replace("\"sdpa_plain\"", "\"a; int x = system()\""), syntax, 5, &["entry"]),
        (PLAIN.replace("\"sdpa_plain\"", "\"a<64\""), syntax, 5, &["entry"]),
        (PLAIN.replace("//! entry = \"sdpa_plain\"\n", ""), syntax, 4, &["[[launch]]", "no `entry`"]),
        (PLAIN.replace("[[launch]]", "[launch]"), syntax, 4, &["launch", "[[launch]]"]),
        (PLAIN.replace("[\"sm_89\", \"sm_90\"]", "[]"), syntax, 3, &["targets", "empty"]),
        (PLAIN.replace("[\"sm_89\", \"sm_90\"]", "\"sm_89\""), syntax, 3, &["targets", "array of texts"]),
        (PLAIN.replace("\"sm_90\"", "\"sm_999\""), "unknown-name", 3, &["sm_999", "sm_89"]),
        (PLAIN.replace("\"sm_90\"", "\"sm_89\""), syntax, 3, &["sm_89 twice"]),
        (PLAIN.replace("\"sm_90\"", "90"), syntax, 3, &["targets", "90"]),
        (PLAIN.replace("\"D == 64\"", "\"D\" , 3"), syntax, 2, &["constraints", "the number 3"]),
        (PLAIN.replace("\"D == 64\"", "\"D * 1.5\""), syntax, 2, &["D * 1.5", "not a condition"]),
        (PLAIN.replace("\"D == 64\"", "\"D == 64 && S\""), syntax, 2, &["conditions"]),
        (PLAIN.replace("task = \"fp8_sdpa\"", "task = 8"), syntax, 1, &["task", "the number 8"]),
    ] {
        assert_ne!(text, PLAIN, "{words:?}");
        check(words[0], &text, code, Some(line), words);
    }
}

#[test]
fn tables_that_do_not_say_what_they_have_to() {
    let syntax = "candidate-syntax";
    for (line, code, at, words) in [
        ("task = \"fp8_sdpa\"", syntax, 4, &["duplicate"][..]),
        ("levers = 3", syntax, 4, &["levers", "table"]),
        ("levers.BLOCK = []", syntax, 4, &["BLOCK", "0 values"]),
        ("levers.BLOCK = 64", syntax, 4, &["BLOCK", "array"]),
        ("levers.BLOCK = [1, 1]", syntax, 4, &["BLOCK", "twice"]),
        ("levers.BLOCK = [1, \"x\"]", syntax, 4, &["BLOCK", "numbers and words"]),
        ("levers.BLOCK = [true]", syntax, 4, &["BLOCK", "0 and 1"]),
        ("levers.BLOCK = [1.5]", syntax, 4, &["BLOCK", "1.5"]),
        ("levers.BLOCK = [9223372036854775807]", syntax, 4, &["BLOCK", "2^53"]),
        ("levers.BLOCK = [\"1; evil\"]", syntax, 4, &["BLOCK", "words"]),
        ("levers.S = [1]", syntax, 4, &["`S`", "already"]),
        ("levers.q = [1]", syntax, 4, &["`q`", "already"]),
        ("levers.SM_COUNT = [1]", syntax, 4, &["SM_COUNT", "already"]),
        ("levers.WS_D = [1]", syntax, 4, &["WS_D", "WS_"]),
        ("levers.int = [1]", syntax, 4, &["`int`", "C++"]),
        ("levers.loop = [1]", syntax, 4, &["`loop`", "formulas"]),
        ("levers.max = [1]", syntax, 4, &["`max`"]),
        ("levers.\"a b\" = [1]", syntax, 4, &["a b", "no name"]),
        ("levers.\"\" = [1]", syntax, 4, &["no name"]),
        ("config = 3", syntax, 4, &["[[config]]"]),
        ("config = [{ name = \"a\" }]", syntax, 4, &["[[config]]", "no `set`"]),
        ("config = [{ set = { X = 1 } }]", syntax, 4, &["[[config]]", "no `name`"]),
        ("config = [{ name = \"a\", set = {} }]", syntax, 4, &["sets nothing"]),
        (
            "config = [{ name = \"a\", set = { X = 1 } }, { name = \"a\", set = { X = 2 } }]",
            syntax,
            4,
            &["`a`", "twice"],
        ),
        (
            "config = [{ name = \"a\", set = { X = 1 } }, { name = \"b\", set = { Y = 2 } }]",
            syntax,
            4,
            &["does not set"],
        ),
        ("formats = []", syntax, 4, &["formats", "empty"]),
        ("formats = [\"e4m4\"]", "unknown-name", 4, &["e4m4", "did you mean `e4m3`"]),
        ("formats = [\"f16\"]", "unknown-name", 4, &["f16", "e4m3, e5m2, u8"]),
        ("formats = \"e4m3\"", syntax, 4, &["formats", "array"]),
        ("scales = [\"token\"]", "unknown-name", 4, &["token", "head, tensor, block"]),
        ("defines = [\"d\"]", "unknown-name", 4, &["`d`", "did you mean `D`"]),
        ("defines = [\"D\", \"D\"]", syntax, 4, &["twice"]),
        ("precision = \"f8\"", "unknown-name", 4, &["f8", "f16"]),
        ("budget.register = 3", syntax, 4, &["register", "did you mean `registers`"]),
        ("budget.registers = -3", syntax, 4, &["registers", "from 1 to 255", "-3"]),
        ("budget.registers = \"128\"", syntax, 4, &["registers", "128"]),
        ("compile.fastmath = true", syntax, 4, &["fastmath", "did you mean `fast_math`"]),
        ("compile.fast_math = 1", syntax, 4, &["fast_math", "true, false"]),
        ("compile.fast_math = \"NOPE\"", "unknown-name", 4, &["NOPE", "no lever"]),
        ("compile.maxrregcount = 0", syntax, 4, &["maxrregcount", "16 to 255"]),
        ("compile.maxrregcount = \"x -o /etc/passwd\"", "unknown-name", 4, &["no lever"]),
        ("compile.std = \"c++03\"", syntax, 4, &["c++17"]),
        ("workspace.w = 3", syntax, 4, &["[workspace.w]", "table"]),
        ("workspace.w = { shape = [1] }", syntax, 4, &["[workspace.w]", "no `dtype`"]),
        ("workspace.w = { dtype = \"f33\", shape = [1] }", "unknown-name", 4, &["f33", "f32"]),
        ("workspace.w = { dtype = \"f32\", shape = [0] }", "invalid-launch", 4, &["shape of [workspace.w]", "is 0"]),
        ("workspace.w = { dtype = \"f32\", shape = [\"S\"], init = \"one\" }", syntax, 4, &["init", "zero"]),
        ("workspace.w = { dtype = \"f32\", shape = [1, 1, 1, 1, 1, 1, 1, 1, 1] }", syntax, 4, &["9 dimensions"]),
        ("workspace.out = { dtype = \"f32\", shape = [1] }", syntax, 4, &["`out`", "something else"]),
        ("tensor_maps.m = { tensor = \"kk\", box = [64] }", "unknown-name", 4, &["kk", "no tensor"]),
        ("tensor_maps.m = { tensor = \"k\", box = [] }", syntax, 4, &["0 dimensions"]),
        ("tensor_maps.m = { tensor = \"k\", box = [64], swizzle = \"96B\" }", syntax, 4, &["swizzle", "128B"]),
        ("unheard = 1", syntax, 4, &["unheard", "the front matter"]),
        ("\"\\u001b[31m\" = 1", syntax, 4, &["unknown key"]),
    ] {
        check(line, with(line), code, Some(at), words);
    }
    check("no launch", "//! task = \"fp8_sdpa\"\n//! targets = [\"sm_89\"]\n", syntax, Some(1), &["[[launch]]"]);
    check("no targets", PLAIN.replace("//! targets = [\"sm_89\", \"sm_90\"]\n", ""), syntax, Some(1), &["targets"]);
    check("no task", PLAIN.replace("//! task = \"fp8_sdpa\"\n", ""), syntax, Some(1), &["`task`", "fp8_sdpa"]);
    check("comments only", "//! # nothing\n", syntax, Some(1), &["task"]);
    check("bare marks", "//!\n//!\n", syntax, Some(1), &["task"]);
}

#[test]
fn heads_of_all_kinds() {
    let right = [
        PLAIN.replace('\n', "\r\n"),
        format!("\u{feff}{PLAIN}"),
        format!("\n\n{PLAIN}"),
        PLAIN.replace("//! ", "//!"),
        PLAIN.replace("//! ", "//!\t"),
        PLAIN.replace("//! [[launch]]", "//! # größe: 数\n//!\n//! [[launch]]"),
        PLAIN
            .replace("#include", "//! doxygen of a function\n#include")
            .replace("\n\n//! doxygen", "\nint x;\n//! doxygen"),
        PLAIN.trim_end().to_string(),
    ];
    for text in right {
        let c = parse(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
        assert_eq!(c.source.lines().count(), text.lines().count(), "the compiler's lines are the file's");
    }
    let syntax = "candidate-syntax";
    check("CRLF lines", PLAIN.replace("grid", "gird").replace('\n', "\r\n"), syntax, Some(6), &["gird"]);
    check("BOM lines", format!("\u{feff}{}", PLAIN.replace("grid", "gird")), syntax, Some(6), &["gird"]);
    check("late lines", format!("\n\n{}", PLAIN.replace("grid", "gird")), syntax, Some(8), &["gird"]);
    check("late head", format!("// mine\n{PLAIN}"), syntax, Some(2), &["begin the file"]);
    check("interrupted", PLAIN.replace("//! [[launch]]", "\n//! [[launch]]"), syntax, Some(4), &["interrupted"]);
    check("a NUL", format!("{PLAIN}\0"), syntax, Some(12), &["NUL"]);
    check("UTF-16", PLAIN.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>(), syntax, Some(1), &["UTF-16"]);
    check("spaces", "  \n\t\n", syntax, Some(1), &["front matter"]);
    check("too long", vec![b'/'; 5 << 20], syntax, None, &["bytes"]);
    check("multi-line string", PLAIN.replace("\"D == 64\"", "\"\"\"D ==\n//! 65 +\"\"\""), syntax, Some(2), &["D =="]);
}

#[test]
fn no_damage_to_a_file_makes_the_parser_panic() {
    let (tasks, head) = (tasks(), PLAIN.split("\n#include").next().unwrap());
    for i in 0..head.len() {
        let _ = Candidate::parse("cut", &head.as_bytes()[..i], &tasks);
        for byte in [b'"', b'[', b']', b'=', b'\n', b'.', b'{', b'0', b'-', b'(', b',', 0, 0x80, 0xff] {
            let mut bytes = head.as_bytes().to_vec();
            bytes[i] = byte;
            let _ = Candidate::parse("changed", &bytes, &tasks);
            bytes.insert(i, byte);
            let _ = Candidate::parse("doubled", &bytes, &tasks);
        }
    }
}

#[test]
fn monstrous_files_are_refused_quickly() {
    let deep = |n: usize| vec!["a"; n].join(".");
    let many = |n: usize, line: &dyn Fn(usize) -> String| (0..n).map(line).collect::<Vec<_>>().join("\n//! ");
    for (name, line) in [
        ("a deep dotted key", format!("{} = 1", deep(200_000))),
        ("a deep header", format!("[{}]", deep(200_000))),
        ("a deep inline table", format!("x = {}1{}", "{a=".repeat(100_000), "}".repeat(100_000))),
        ("a deep array", format!("x = {}{}", "[".repeat(100_000), "]".repeat(100_000))),
        ("many levers", many(50_000, &|i| format!("levers.L{i} = [1]"))),
        ("many values", format!("levers.L = [{}]", (0..200_000).map(|i| i.to_string()).collect::<Vec<_>>().join(","))),
        ("many configurations", many(20_000, &|i| format!("[[config]]\n//! name = \"c{i}\"\n//! set = {{ X = {i} }}"))),
        (
            "a large configuration",
            format!("[[config]]\n//! name = \"c\"\n//! [config.set]\n//! {}", many(50_000, &|i| format!("L{i} = 1"))),
        ),
        ("many workspaces", many(20_000, &|i| format!("[workspace.w{i}]\n//! dtype = \"f32\"\n//! shape = [1]"))),
        ("many constraints", format!("constraints = [{}]", vec!["\"S > 1\""; 100_000].join(","))),
        ("many comments", many(200_000, &|_| "# nothing".to_string())),
        ("a long text", format!("precision = \"{}\"", "x".repeat(3_000_000))),
    ] {
        let text = PLAIN
            .replace("//! constraints = [\"D == 64\"]\n", "")
            .replace("//! [[launch]]", &format!("//! {line}\n//! [[launch]]"));
        let result = Candidate::parse("big.cu", text.as_bytes(), &tasks());
        assert_eq!(result.is_ok(), name == "many comments", "{name}");
        if let Err(e) = result {
            assert!(e.message.len() < 3000, "{name}: {} letters", e.message.len());
        }
    }
}
