//! The C header, made from `capi.rs` and `capi_quantise.rs`: its structs, constants and functions with their doc comments. `cargo xtask header` writes it, a test keeps it
//! fresh. Knows the few types that the interface has, and nothing else of Rust.

use std::fmt::Write;

const SOURCE: &str = concat!(include_str!("capi.rs"), include_str!("capi_quantise.rs"));

const FRONT: &str = "\
/* FP8 (e4m3) attention over device pointers and a stream. The library is the crate warpsmith-attention, built as a shared one:
 * `cargo build --release -p warpsmith-attention` (after `cargo xtask attention-kernels`, which makes what it embeds).
 *
 *     ws_attention_problem p;
 *     ws_attention_dense(1, 8, 8, 512, 512, 64, &p);          contiguous tensors, a scale for each head; change what differs
 *     ws_attention_plan(&p, &plan);                           checks all, loads the kernel into the current context
 *     ws_attention_workspace(plan, &bytes, &counters);        allocate both; zero the counters once
 *     ws_attention_launch(plan, &pointers, stream);           as often as wanted, from any thread: no allocation, no waiting, capturable
 *
 * Sequences whose lengths only the device knows, in caches, in pages, or one behind another: ws_attention_cached, _paged and _varlen give the problem to change.
 * Launches that may overlap need scratch memory and counters of their own. Whole programs: examples/attention.c, and examples/paged.c.
 * Codes and scales of bf16, f16 or f32: ws_attention_quantise_dense, _plan, _launch; packed keys and values, over which long prompts are faster:
 * ws_attention_pack_keys and _pack_values in one plan, and then ws_attention_packed.
 * Made from src/capi.rs and src/capi_quantise.rs by `cargo xtask header`: do not edit. */
#ifndef WARPSMITH_ATTENTION_H
#define WARPSMITH_ATTENTION_H
#include <stdint.h>

#ifdef __cplusplus
extern \"C\" {
#endif
";
const BACK: &str = "
#ifdef __cplusplus
}
#endif
#endif
";

/// The header's text.
pub fn text() -> String {
    let mut out = FRONT.to_string();
    let constants: Vec<_> = SOURCE.lines().filter_map(constant).collect();
    out += "\n/* What functions give back: 0, or why not. */\nenum {\n";
    for (i, (name, value)) in constants.iter().enumerate() {
        let comma = if i + 1 < constants.len() { "," } else { "" };
        let _ = writeln!(out, "    WS_ATTENTION_{name} = {value}{comma}");
    }
    out += "};\n";
    for (at, _) in SOURCE.match_indices("#[repr(C)]") {
        structure(&mut out, &SOURCE[at..], docs(&SOURCE[..at]));
    }
    for (at, _) in SOURCE.match_indices("#[unsafe(no_mangle)]") {
        function(&mut out, &SOURCE[at..], docs(&SOURCE[..at]));
    }
    out + BACK
}

/// `const NAME: c_int = VALUE;`
fn constant(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.trim_start_matches("pub(crate) ").strip_prefix("const ")?.split_once(": c_int = ")?;
    Some((name, value.strip_suffix(';')?))
}

/// The doc comment that ends the text.
fn docs(before: &str) -> Vec<&str> {
    let mut lines: Vec<_> =
        before.lines().rev().map_while(|l| l.trim_start().strip_prefix("///")).map(str::trim).collect();
    lines.reverse();
    lines
}

fn comment(out: &mut String, lines: &[&str]) {
    if !lines.is_empty() {
        let _ = writeln!(out, "/* {} */", lines.join("\n * "));
    }
}

fn structure(out: &mut String, text: &str, about: Vec<&str>) {
    let Some((_, body)) = text.split_once(" {\n") else { return };
    let body = body.split_once("\n}").map_or(body, |(b, _)| b);
    let Some((name, about)) = about.split_first() else { return };
    let name = name.trim_matches(|c| matches!(c, '`' | '.'));
    out.push('\n');
    comment(out, about);
    *out += "typedef struct {\n";
    let mut said: Vec<&str> = Vec::new();
    for line in body.lines().map(str::trim) {
        if let Some(doc) = line.strip_prefix("///") {
            said.push(doc.trim());
        } else if let Some((field, of)) = line.trim_end_matches(',').split_once(": ") {
            let declared = format!("    {};", declaration(of, field));
            match said.is_empty() {
                true => *out += &declared,
                false => *out += &format!("{declared:<34}/* {} */", said.join(" ")),
            }
            out.push('\n');
            said.clear();
        }
    }
    let _ = writeln!(out, "}} {name};");
}

fn function(out: &mut String, text: &str, about: Vec<&str>) {
    let Some((_, rest)) = text.split_once("extern \"C\" fn ") else { return };
    let (Some((name, rest)), Some((head, _))) = (rest.split_once('('), rest.split_once(" {\n")) else { return };
    let arguments = rest.split_once(')').map_or("", |(a, _)| a);
    let gives = head.rsplit_once("-> ").map_or("void", |(_, t)| t);
    let listed: Vec<_> =
        arguments.split(',').filter_map(|a| a.trim().split_once(": ")).map(|(n, t)| declaration(t, n)).collect();
    let listed = if listed.is_empty() { "void".to_string() } else { listed.join(", ") };
    out.push('\n');
    comment(out, &about);
    let _ = writeln!(out, "{}({listed});", declaration(gives, name));
}

/// `uint32_t batch`, `int64_t strides[3][3]`, `const void *plan`
fn declaration(of: &str, name: &str) -> String {
    if let Some((inner, n)) = of.strip_prefix('[').and_then(|t| t.strip_suffix(']')).and_then(|t| t.rsplit_once("; ")) {
        return declaration(inner, &format!("{name}[{n}]"));
    }
    if let Some(inner) = of.strip_prefix("*mut ") {
        return declaration(inner, &format!("*{name}"));
    }
    if let Some(inner) = of.strip_prefix("*const ") {
        return format!("const {}", declaration(inner, &format!("*{name}")));
    }
    let word = match of {
        "u32" => "uint32_t",
        "i32" => "int32_t",
        "u64" => "uint64_t",
        "i64" => "int64_t",
        "f32" => "float",
        "c_int" => "int",
        "c_char" => "char",
        "c_void" | "void" => "void",
        "CProblem" => "ws_attention_problem",
        "CQuantisation" => "ws_attention_quantisation",
        "CQuantised" => "ws_attention_quantised",
        "CPointers" => "ws_attention_pointers",
        other => other, // no C compiler takes it, which a test sees
    };
    format!("{word} {name}")
}
