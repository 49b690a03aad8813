//! Reads the compiler's messages. Forms of NVRTC (the EDG front end and NVVM behind it) and of ptxas, CUDA 11.8 to 13.x.

use crate::artifact::{Diagnostic, DiagnosticKind};

/// Most messages kept of one log.
const MAX: usize = 200;

/// NVRTC's place for what is wrong with a name expression.
pub(crate) const NAME_MAP: &str = "__nv_name_map";

/// All messages of an NVRTC log:
///
/// ```text
/// mine.cu(3): error: expected an expression
/// mine.cu(1): warning #177-D: variable "u" was declared but never referenced
/// warning: <toolkit>/crt/mma.hpp(91): Warning: cannot perform wmma load or store on local memory
/// nvrtc: error: invalid value for --gpu-architecture (-arch)
///           detected during instantiation of "T f(T) [with T=float]" at line 3
/// ```
pub(crate) fn of_nvrtc(log: &str) -> Vec<Diagnostic> {
    let mut found: Vec<Diagnostic> = Vec::new();
    for line in log.lines() {
        if found.len() >= MAX {
            break;
        }
        if let Some(diagnostic) = nvrtc_line(line) {
            found.push(diagnostic);
            continue;
        }
        // An error inside the toolkit's headers is the doing of the line that instantiates it.
        if let Some(last) = found.last_mut()
            && last.file.as_deref().is_some_and(|f| f.starts_with('<'))
            && let Some((file, at)) = instantiation(line)
        {
            let own = last.file.clone().unwrap_or_default();
            match file {
                Some(file) if !file.starts_with('<') => {
                    last.message = format!("{} (in {own})", last.message);
                    last.file = Some(file);
                    last.line = Some(at);
                }
                _ => {}
            }
        }
    }
    found
}

fn nvrtc_line(line: &str) -> Option<Diagnostic> {
    let trimmed = line.trim_start();
    if line.len() != trimmed.len() {
        return None;
    }
    // NVVM puts its own word in front.
    let body = trimmed.strip_prefix("warning: ").or_else(|| trimmed.strip_prefix("error: ")).unwrap_or(trimmed);
    if let Some((file, number, rest)) = place(body)
        && let Some((kind, message)) = severity(rest)
    {
        return Some(classify(Diagnostic { kind, message, file: Some(file.to_owned()), line: Some(number) }));
    }
    let rest = trimmed.strip_prefix("nvrtc: ").unwrap_or(trimmed);
    let (kind, message) = severity(rest)?;
    Some(classify(Diagnostic { kind, message, file: None, line: None }))
}

/// `mine.cu(3): rest`
fn place(text: &str) -> Option<(&str, u32, &str)> {
    let mut from = 0;
    // A name may hold brackets itself: take the first bracket that holds a number and is followed by a colon.
    while let Some(open) = text[from..].find('(').map(|i| i + from) {
        if let Some(close) = text[open..].find(')').map(|i| i + open)
            && let Ok(number) = text[open + 1..close].parse()
            && let Some(rest) = text[close + 1..].strip_prefix(": ")
            && open > 0
        {
            return Some((&text[..open], number, rest));
        }
        from = open + 1;
    }
    None
}

fn severity(text: &str) -> Option<(DiagnosticKind, String)> {
    for (word, kind) in [
        ("catastrophic error", DiagnosticKind::Error),
        ("internal error", DiagnosticKind::Error),
        ("error", DiagnosticKind::Error),
        ("Error", DiagnosticKind::Error),
        ("fatal", DiagnosticKind::Error),
        ("warning", DiagnosticKind::Warning),
        ("Warning", DiagnosticKind::Warning),
        ("remark", DiagnosticKind::Remark),
    ] {
        if let Some(rest) = text.strip_prefix(word) {
            // `#177-D` may stand between the word and the colon.
            let rest = match rest.trim_start().strip_prefix('#') {
                Some(numbered) => numbered.split_once(':')?.1,
                None => rest.trim_start().strip_prefix(':')?,
            };
            return Some((kind, rest.trim().to_owned()));
        }
    }
    None
}

fn classify(mut d: Diagnostic) -> Diagnostic {
    if d.message.to_lowercase().contains("wmma load or store on local memory") {
        d.kind = DiagnosticKind::WmmaLocalMemory;
    }
    d
}

/// `at line 3 of "mine.cu"` or, in the same file, `at line 3`.
fn instantiation(line: &str) -> Option<(Option<String>, u32)> {
    let (_, rest) = line.rsplit_once(" at line ")?;
    let mut words = rest.splitn(2, ' ');
    let number = words.next()?.trim_end_matches(['.', ',']).parse().ok()?;
    let file = words.next().and_then(|w| w.trim().strip_prefix("of ")).map(|f| f.trim_matches('"').to_owned());
    Some((file, number))
}

/// All messages of a ptxas log: `ptxas x.ptx, line 12; error   : ...`, `ptxas error   : ...`, `ptxas fatal   : ...`.
pub(crate) fn of_ptxas(log: &str) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    for line in log.lines().take(10_000) {
        let Some(rest) = line.strip_prefix("ptxas ") else { continue };
        let (rest, number) = match rest.split_once(", line ").and_then(|(_, r)| r.split_once(';')) {
            Some((n, rest)) => (rest.trim_start(), n.parse::<u32>().ok()),
            None => (rest, None),
        };
        let Some((word, message)) = rest.split_once(':') else { continue };
        let kind = match word.trim().to_lowercase().as_str() {
            "error" | "fatal" => DiagnosticKind::Error,
            "warning" => DiagnosticKind::Warning,
            // Numbered remarks are about speed: `(C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized`.
            "info" if message.trim_start().starts_with("(C") => DiagnosticKind::Warning,
            _ => continue,
        };
        let message = match number {
            // A line of the PTX, not of the source: it stays in the words.
            Some(n) => format!("{} (line {n} of the PTX)", message.trim()),
            None => message.trim().to_owned(),
        };
        found.push(Diagnostic { kind, message, file: None, line: None });
        if found.len() >= MAX {
            break;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use DiagnosticKind::*;

    #[test]
    fn every_form_of_a_message_is_read() {
        let rows: &[(&str, DiagnosticKind, &str, Option<&str>, Option<u32>)] = &[
            (
                "mine.cu(3): error: expected an expression\n  int x = = 3;\n          ^\n",
                Error,
                "expected an expression",
                Some("mine.cu"),
                Some(3),
            ),
            ("a/b (1).cu(12): error: x", Error, "x", Some("a/b (1).cu"), Some(12)),
            (
                "mine.cu(1): warning #177-D: variable \"u\" was declared: never used",
                Warning,
                "variable \"u\" was declared: never used",
                Some("mine.cu"),
                Some(1),
            ),
            (
                "mine.cu(3): catastrophic error: cannot open source file \"no.h\"",
                Error,
                "cannot open source file \"no.h\"",
                Some("mine.cu"),
                Some(3),
            ),
            (
                "warning: <toolkit>/crt/mma.hpp(91): Warning: cannot perform wmma load or store on local memory",
                WmmaLocalMemory,
                "cannot perform wmma load or store on local memory",
                Some("<toolkit>/crt/mma.hpp"),
                Some(91),
            ),
            (
                "nvrtc: error: invalid value for --gpu-architecture (-arch)",
                Error,
                "invalid value for --gpu-architecture (-arch)",
                None,
                None,
            ),
            (
                "<toolkit>/cuda_fp16.hpp(80): error: no suitable conversion\n          detected during instantiation of \"T f(T)\" at line 9 of \"mine.cu\"",
                Error,
                "no suitable conversion (in <toolkit>/cuda_fp16.hpp)",
                Some("mine.cu"),
                Some(9),
            ),
        ];
        for (log, kind, message, file, line) in rows {
            let got = of_nvrtc(log);
            assert_eq!(got.len(), 1, "{log}: {got:?}");
            assert_eq!(
                (got[0].kind, got[0].message.as_str(), got[0].file.as_deref(), got[0].line),
                (*kind, *message, *file, *line),
                "{log}"
            );
        }
        assert!(of_nvrtc("1 error detected in the compilation of \"mine.cu\".\n\nRemark: The warnings can be suppressed with \"-diag-suppress\"\n").is_empty());
    }

    #[test]
    fn ptxas_messages_are_read() {
        let log = "ptxas info    : 0 bytes gmem\nptxas error   : Entry function 'k' uses too much shared data (0x20000 bytes, 0xc000 max)\n\
            ptxas k.ptx, line 42; error   : Unexpected instruction types specified for 'mma'\nptxas fatal   : Ptx assembly aborted due to errors\n\
            ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to x in function 'k'\n";
        let got = of_ptxas(log);
        assert_eq!(got.len(), 4);
        assert_eq!(got[3].kind, Warning);
        assert!(got[0].message.starts_with("Entry function 'k' uses too much shared data"));
        assert_eq!(got[1].message, "Unexpected instruction types specified for 'mma' (line 42 of the PTX)");
    }
}
