//! Counts tensor-core opcodes in the SASS, as nvdisasm or cuobjdump print it.
//!
//! Kinds are the mnemonics before the first dot: HMMA (f16, bf16, tf32), IMMA (integers), QMMA (FP8 on sm_89), HGMMA, QGMMA, IGMMA (warp groups
//! on sm_90a), DMMA, BMMA and, on Blackwell, OMMA and UTC*MMA. On sm_90 an FP8 `mma.sync` is done by HMMA (measured with ptxas 13.0).

use crate::child::Limits;
use crate::error::ToolError;
use crate::process::{self, Bounds};
use crate::toolkit::Toolkit;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Opcodes by function, or why they are not known.
pub(crate) type Counted = Result<BTreeMap<String, BTreeMap<String, u64>>, String>;

/// Counts the opcodes of the cubin that ptxas left in this folder.
pub(crate) fn count(toolkit: &Toolkit, folder: &Path, limits: &Limits) -> Result<Counted, ToolError> {
    // PERF: without data flow and headers nvdisasm needs 0.40 s for level_07 on sm_90 instead of 0.53 (user time), longer than ptxas.
    Ok(listing(toolkit, folder, ".kernel.cubin", limits, &["--print-code", "--no-dataflow"])?.map(|text| parse(&text)))
}

/// The SASS of a cubin as the toolkit's disassembler prints it, or why there is none.
///
/// # Errors
/// The disassembler cannot be started.
pub fn disassemble(
    toolkit: &Toolkit,
    folder: &Path,
    cubin: &str,
    limits: &Limits,
) -> Result<Result<String, String>, ToolError> {
    listing(toolkit, folder, cubin, limits, &[])
}

/// [`disassemble`] with the source line of each instruction in comments, where nvdisasm is there.
///
/// # Errors
/// The disassembler cannot be started.
pub fn disassemble_with_lines(
    toolkit: &Toolkit,
    folder: &Path,
    cubin: &str,
    limits: &Limits,
) -> Result<Result<String, String>, ToolError> {
    listing(toolkit, folder, cubin, limits, &["--print-line-info"])
}

fn listing(
    toolkit: &Toolkit,
    folder: &Path,
    cubin: &str,
    limits: &Limits,
    options: &[&str],
) -> Result<Result<String, String>, ToolError> {
    let mut command = match (&toolkit.nvdisasm, &toolkit.cuobjdump) {
        (Some(nvdisasm), _) => {
            let mut c = Command::new(nvdisasm);
            c.args(options);
            c
        }
        (None, Some(cuobjdump)) => {
            let mut c = Command::new(cuobjdump);
            c.arg("-sass");
            c
        }
        (None, None) => return Ok(Err("this toolkit has no SASS disassembler (nvdisasm or cuobjdump)".into())),
    };
    command.current_dir(folder).arg(cubin);
    let bounds = Bounds { seconds: limits.seconds, memory_bytes: Some(limits.memory_bytes), output_bytes: 256 << 20 };
    let ended = process::run(command, Vec::new(), bounds, &mut || {})?;
    if ended.timed_out || ended.truncated || !ended.status.success() {
        let said = ended.stderr_text();
        return Ok(Err(format!(
            "the SASS disassembler failed ({}): {}",
            ended.how(),
            said.lines().next().unwrap_or("it says nothing")
        )));
    }
    Ok(Ok(ended.stdout_text()))
}

/// Both print instructions as `/*0830*/  @P0 QMMA.16832.F32.E4M3.E4M3 R56, ...`, nvdisasm after a label `.text.NAME:`, cuobjdump after
/// `Function : NAME`.
fn parse(text: &str) -> BTreeMap<String, BTreeMap<String, u64>> {
    let mut found: BTreeMap<String, BTreeMap<String, u64>> = BTreeMap::new();
    let mut function: Option<String> = None;
    for line in text.lines() {
        let line = line.trim();
        if let Some(name) = line.strip_prefix(".text.").and_then(|l| l.strip_suffix(':')) {
            function = Some(name.to_owned());
        } else if let Some(name) = line.strip_prefix("Function : ") {
            function = Some(name.trim().to_owned());
        } else if let Some(rest) = line.strip_prefix("/*")
            && let Some((address, rest)) = rest.split_once("*/")
            && address.bytes().all(|b| b.is_ascii_hexdigit())
        {
            let mut words = rest.split_whitespace();
            let mut opcode = words.next().unwrap_or("");
            if opcode.starts_with('@') {
                opcode = words.next().unwrap_or("");
            }
            let kind = opcode.split(['.', ';']).next().unwrap_or("");
            if let (true, Some(function)) = (is_tensor(kind), &function) {
                *found.entry(function.clone()).or_default().entry(kind.to_owned()).or_default() += 1;
            }
        }
    }
    found
}

fn is_tensor(kind: &str) -> bool {
    // MMA ends nothing else, and MOVM and the like do not end so.
    kind.ends_with("MMA") && kind.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opcodes_are_counted_by_function_and_kind() {
        let text = "\t//----- nvinfo : EIATTR_WMMA_USED\n.text.a:\n\
            \x20       /*0000*/                   MOV R1, c[0x0][0x28] ;\n\
            \x20       /*0830*/                   QMMA.16832.F32.E4M3.E4M3 R56, R8.reuse.ROW, R56.COL, RZ ;\n\
            \x20       /*0840*/              @!P0 HMMA.16816.F32 R32, R24.reuse, R28, RZ ;\n\
            \x20       /*0850*/                   HMMA.16816.F32 R32, R24.reuse, R28, RZ ;\n\
            \x20       /*0860*/                   MOVM.16.MT88 R1, R2 ;\n\
            .text.b:\n        /*0000*/                   EXIT ;\n\t\tFunction : c\n\
            \x20       /*0010*/                   HGMMA.64x64x16.F32 R24, gdesc[UR8], R24 ;   /* 0x00e0 */\n";
        let got = parse(text);
        assert_eq!(got["a"], BTreeMap::from([("HMMA".into(), 2), ("QMMA".into(), 1)]));
        assert_eq!(got["c"], BTreeMap::from([("HGMMA".into(), 1)]));
        assert!(!got.contains_key("b"));
    }
}
