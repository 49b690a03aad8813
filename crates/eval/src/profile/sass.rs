//! A disassembler's listing: the mix of opcodes of each function, and the source line of each instruction.
//!
//! Reads what `nvdisasm --print-line-info` prints (and, without lines, `cuobjdump -sass`): functions under `.text.NAME:`, places in
//! comments (`//## File "k.cu", line 12`, an inlined one with its call site behind it), instructions behind `/*0830*/`. It runs nothing.

use std::collections::BTreeMap;

/// One function of a cubin.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Function {
    /// By how often they stand there: `HMMA.16816.F32` -> 64.
    pub opcodes: BTreeMap<String, u64>,
    /// Offset in bytes -> where the instruction comes from, the innermost place.
    pub lines: BTreeMap<u64, (String, u32)>,
}

/// The functions of a listing by name.
pub fn functions(listing: &str) -> BTreeMap<String, Function> {
    let mut found: BTreeMap<String, Function> = BTreeMap::new();
    let mut name = String::new();
    let mut place: Option<(String, u32)> = None;
    for line in listing.lines() {
        let line = line.trim();
        if let Some(n) = line.strip_prefix(".text.").and_then(|l| l.strip_suffix(':')) {
            (name, place) = (n.to_string(), None);
        } else if let Some(n) = line.strip_prefix("Function : ") {
            (name, place) = (n.trim().to_string(), None);
        } else if let Some(rest) = line.strip_prefix("//## File \"") {
            // `inlined at` names the call site; the line before it was the innermost place.
            let inner = rest.split_once("\", line ").and_then(|(file, tail)| {
                let digits: String = tail.chars().take_while(char::is_ascii_digit).collect();
                Some((file.to_string(), digits.parse().ok()?))
            });
            place = inner.or(place);
        } else if let Some((address, rest)) = line.strip_prefix("/*").and_then(|l| l.split_once("*/"))
            && let Ok(offset) = u64::from_str_radix(address, 16)
            && !name.is_empty()
        {
            let word = rest.split_whitespace().find(|w| !w.starts_with('@')).unwrap_or("");
            let opcode = word.trim_end_matches(';');
            // A second line of an instruction holds its encoding alone.
            if !opcode.starts_with(|c: char| c.is_ascii_uppercase()) {
                continue;
            }
            let function = found.entry(name.clone()).or_default();
            *function.opcodes.entry(opcode.to_string()).or_default() += 1;
            if let Some(place) = &place {
                function.lines.insert(offset, place.clone());
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opcodes_and_lines() {
        let listing = "\t.section\t.text.k,\"ax\"\n.text.k:\n\t//## File \"k.cu\", line 7\n        /*0000*/                   MOV R1, c[0x0][0x28] ;\n\
            \t//## File \"warpsmith/mma.cuh\", line 12 inlined at \"k.cu\", line 9\n        /*0010*/              @!P0 HMMA.16816.F32 R32, R24.reuse, R28, RZ ;\n\
            \x20                                                                          /* 0x004fea0000001800 */\n        /*0020*/  EXIT ;\n";
        let got = functions(listing);
        let k = &got["k"];
        assert_eq!(k.opcodes, [("MOV", 1), ("HMMA.16816.F32", 1), ("EXIT", 1)].map(|(o, n)| (o.to_string(), n)).into());
        assert_eq!(k.lines[&0], ("k.cu".to_string(), 7));
        assert_eq!(k.lines[&0x20], ("warpsmith/mma.cuh".to_string(), 12));
        assert!(functions("nothing\n/*zz*/ X\n").is_empty());
    }
}
