//! What has to be read and mended in PTX as text: names of files, entries with their parameters, traces of debug code.
//!
//! Not a parser of PTX (that is the `ptx` crate): these are the forms that NVRTC writes.

use crate::artifact::{Diagnostic, DiagnosticKind};
use std::collections::BTreeMap;

/// An entry's name and the sizes of its parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub name: String,
    /// In bytes, in order.
    pub params: Vec<u32>,
}

/// PTX with canonical file names and without the comment that numbers the compiler's build, so that its bytes depend on the toolkit's
/// version and the source alone.
pub(crate) fn canonicalize(ptx: &str, canonical: &dyn Fn(&str) -> String) -> String {
    let mut out = String::with_capacity(ptx.len());
    for line in ptx.lines() {
        if line.starts_with("// Compiler Build ID:") {
            continue;
        }
        match file_directive(line) {
            Some((number, name)) => out.push_str(&format!("\t.file\t{number} \"{}\"", canonical(name))),
            None => out.push_str(line.trim_end_matches('\r')),
        }
        out.push('\n');
    }
    out
}

/// `.file 1 "name"` with what may follow (time stamp and size) left out.
fn file_directive(line: &str) -> Option<(u32, &str)> {
    let rest = line.trim_start().strip_prefix(".file")?;
    let (number, rest) = rest.trim_start().split_once(char::is_whitespace)?;
    let rest = rest.trim_start().strip_prefix('"')?;
    let (name, _) = rest.rsplit_once('"')?;
    Some((number.parse().ok()?, name))
}

/// All entries of PTX that is known to be well formed, in order.
pub fn entries(ptx: &str) -> Vec<Entry> {
    let mut found = Vec::new();
    let mut lines = ptx.lines();
    while let Some(line) = lines.next() {
        let Some((before, rest)) = line.split_once(".entry ") else { continue };
        if !before.split_whitespace().all(|w| w.starts_with('.')) || before.trim_start().starts_with("//") {
            continue;
        }
        let (name, rest) = rest.split_at(rest.find(['(', ' ', '\t']).unwrap_or(rest.len()));
        let mut header = rest.to_owned();
        while !header.contains(')') && !header.contains('{') {
            match lines.next() {
                Some(next) => {
                    header.push('\n');
                    header.push_str(next);
                }
                None => break,
            }
        }
        let list = header.split_once('(').map_or("", |(_, l)| l.rsplit_once(')').map_or(l, |(l, _)| l));
        let params = if header.trim_start().starts_with('(') {
            list.split(',').filter_map(param_bytes).collect()
        } else {
            Vec::new()
        };
        found.push(Entry { name: name.to_owned(), params });
    }
    found
}

/// `.param .u64 x` is 8, `.param .align 8 .b8 x[24]` is 24.
fn param_bytes(text: &str) -> Option<u32> {
    let text = text.trim();
    let rest = text.strip_prefix(".param")?;
    let count: u32 = match rest.split_once('[') {
        Some((_, n)) => n.split_once(']')?.0.trim().parse().ok()?,
        None => 1,
    };
    let bits = rest.split_whitespace().find_map(|word| {
        let digits = word.strip_prefix('.')?.trim_start_matches(['b', 'u', 's', 'f']);
        let bits: u32 = digits.parse().ok()?;
        (bits >= 8).then_some(bits)
    })?;
    bits.checked_div(8)?.checked_mul(count)
}

/// `printf` and `assert` that were left in: one message for each kind and source line.
pub(crate) fn debug_code(ptx: &str) -> Vec<Diagnostic> {
    let files: BTreeMap<u32, &str> = ptx.lines().filter_map(file_directive).collect();
    let mut found: Vec<Diagnostic> = Vec::new();
    let mut place: Option<(u32, u32)> = None;
    let mut in_call = false;
    for line in ptx.lines() {
        let text = line.trim_start();
        if let Some(rest) = text.strip_prefix(".loc") {
            let mut numbers = rest.split_whitespace().map(|n| n.trim_end_matches(',').parse::<u32>());
            if let (Some(Ok(file)), Some(Ok(line))) = (numbers.next(), numbers.next()) {
                place = Some((file, line));
            }
            continue;
        }
        if text.starts_with(".func")
            || text.starts_with(".entry")
            || text.starts_with(".visible")
            || text.starts_with(".extern")
        {
            place = None;
            continue;
        }
        in_call |= text.starts_with("call") || text.contains("\tcall") || text.contains(" call");
        if !in_call {
            continue;
        }
        for (function, what) in [("vprintf", "printf"), ("__assertfail", "assert"), ("__assert_fail", "assert")] {
            if text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|w| w == function) {
                let file = place.and_then(|(f, _)| files.get(&f)).map(|f| f.to_string());
                let line = place.map(|(_, l)| l);
                let message =
                    format!("{what} is left in a release build; a kernel that is measured should not carry it");
                let one = Diagnostic { kind: DiagnosticKind::DebugCodeLeft, message, file, line };
                if !found.contains(&one) {
                    found.push(one);
                }
            }
        }
        if text.contains(';') {
            in_call = false;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const PTX: &str = "//\n// Generated by NVIDIA NVVM Compiler\n// Compiler Build ID: CL-36424714\n// Cuda compilation tools, release 13.0, V13.0.88\n\
        .version 9.0\n.target sm_89\n.address_size 64\n\n\t// .globl\tplain\n.extern .func (.param .b32 r) vprintf\n(\n\t.param .b64 a\n)\n;\n\
        .visible .entry plain(\n\t.param .u64 .ptr .align 1 plain_param_0,\n\t.param .align 8 .b8 plain_param_1[24],\n\t.param .f32 plain_param_2,\n\
        \t.param .u8 plain_param_3\n)\n.maxntid 128, 1, 1\n{\n\t.loc\t1 5 28\n\t{\n\tcall.uni (retval0), \n\tvprintf, \n\t(\n\tparam0, \n\tparam1\n\t);\n\t}\n\
        \t.loc 2 9 1, function_name $L__info_string0, inlined_at 1 12 3\n\tcall.uni \n\t__assertfail, \n\t(param0);\n\tret;\n}\n\
        .weak .entry _Z1kv()\n{\n\tret;\n}\n\t.file\t1 \"/some/where/mine.cu\"\n\t.file\t2 \"/some/where/a\\\"b.h\", 17, 18\n";

    #[test]
    fn reads_entries_and_their_parameters() {
        let found = entries(PTX);
        assert_eq!(found[0], Entry { name: "plain".into(), params: vec![8, 24, 4, 1] });
        assert_eq!(found[1], Entry { name: "_Z1kv".into(), params: vec![] });
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn file_names_become_canonical_and_the_build_number_goes() {
        let got = canonicalize(PTX, &|n| n.replace("/some/where/", ""));
        assert!(got.contains("\t.file\t1 \"mine.cu\"\n"), "{got}");
        assert!(got.contains("\t.file\t2 \"a\\\"b.h\"\n"), "{got}");
        assert!(!got.contains("CL-36424714") && got.contains("V13.0.88"));
        assert_eq!(got, canonicalize(&got, &|n| n.to_owned()), "canonical PTX stays as it is");
    }

    #[test]
    fn debug_code_is_found_with_its_line_and_clean_code_is_not() {
        let found = debug_code(&canonicalize(PTX, &|n| n.replace("/some/where/", "")));
        let brief: Vec<_> =
            found.iter().map(|d| (d.message.split(' ').next().unwrap(), d.file.as_deref(), d.line)).collect();
        assert_eq!(brief, [("printf", Some("mine.cu"), Some(5)), ("assert", Some("a\\\"b.h"), Some(9))]);
        assert!(debug_code(".extern .func vprintf\n(\n)\n;\n.visible .entry k()\n{\n\tret;\n}\n").is_empty());
    }
}
