//! Runs ptxas, and reads what it says of each entry (`--verbose`).

use crate::artifact::EntryStats;
use crate::child::Limits;
use crate::error::ToolError;
use crate::process::{self, Bounds};
use crate::toolkit::Toolkit;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// What ptxas made.
pub(crate) enum Assembled {
    Cubin { cubin: Vec<u8>, log: String },
    Refused { log: String },
    TimedOut,
    OutOfMemory,
    Died { how: String, log: String },
}

/// Assembles PTX in this folder.
pub(crate) fn assemble(
    toolkit: &Toolkit,
    folder: &Path,
    ptx: &str,
    target: &str,
    options: &[String],
    limits: &Limits,
) -> Result<Assembled, ToolError> {
    // Names relative to the working folder, so that no message holds a path of this machine.
    const INPUT: &str = ".kernel.ptx";
    const OUTPUT: &str = ".kernel.cubin";
    let input = folder.join(INPUT);
    std::fs::write(&input, ptx).map_err(|e| ToolError::io("cannot write", &input, e))?;
    let mut command = Command::new(&toolkit.ptxas);
    command
        .current_dir(folder)
        .arg("--verbose")
        .arg(format!("--gpu-name={target}"))
        .args(options)
        .arg(INPUT)
        .arg("--output-file")
        .arg(OUTPUT);
    let bounds = Bounds { seconds: limits.seconds, memory_bytes: Some(limits.memory_bytes), output_bytes: 4 << 20 };
    let ended = process::run(command, Vec::new(), bounds, &mut || {})?;
    let log = format!("{}{}", ended.stdout_text(), ended.stderr_text()).replace("\r\n", "\n");
    if ended.timed_out || crate::child::sandbox::is_cpu_limit(&ended.status) {
        return Ok(Assembled::TimedOut);
    }
    if ended.status.success() {
        let output = folder.join(OUTPUT);
        let cubin = std::fs::read(&output).map_err(|e| ToolError::io("cannot read", &output, e))?;
        return Ok(Assembled::Cubin { cubin, log });
    }
    let lower = log.to_lowercase();
    if lower.contains("bad_alloc") || lower.contains("out of memory") || lower.contains("memory allocation failure") {
        return Ok(Assembled::OutOfMemory);
    }
    if ended.status.code().is_some() && log.contains("ptxas ") {
        return Ok(Assembled::Refused { log });
    }
    Ok(Assembled::Died { how: ended.how(), log })
}

/// The figures by entry; names are those of the PTX.
///
/// ```text
/// ptxas info    : Compiling entry function 'k' for 'sm_89'
/// ptxas info    : Function properties for k
///     8 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads
/// ptxas info    : Used 65 registers, used 1 barriers, 11776 bytes smem, 416 bytes cmem[0]
/// ```
pub(crate) fn statistics(log: &str) -> BTreeMap<String, EntryStats> {
    let mut found: BTreeMap<String, EntryStats> = BTreeMap::new();
    let mut entry: Option<String> = None;
    // Properties are also told of functions that were not inlined; those are no entry's.
    let mut properties_of: Option<String> = None;
    for line in log.lines() {
        let body = line.strip_prefix("ptxas info").and_then(|r| r.trim_start().strip_prefix(':')).map(str::trim);
        match body {
            Some(body) => {
                if let Some(name) = body.strip_prefix("Compiling entry function '").and_then(|r| r.split('\'').next()) {
                    found
                        .entry(name.to_owned())
                        .or_insert_with(|| EntryStats { lowered: name.to_owned(), ..EntryStats::default() });
                    entry = Some(name.to_owned());
                    properties_of = None;
                } else if let Some(name) = body.strip_prefix("Function properties for ") {
                    properties_of = Some(name.trim().to_owned());
                } else if let Some(rest) = body.strip_prefix("Used ")
                    && let Some(stats) = entry.as_ref().and_then(|e| found.get_mut(e))
                {
                    for part in rest.split(',') {
                        let mut words = part.trim().trim_start_matches("used ").splitn(2, ' ');
                        let (Some(Ok(n)), Some(what)) = (words.next().map(str::parse::<u32>), words.next()) else {
                            continue;
                        };
                        match what {
                            "registers" => stats.registers = n,
                            "bytes smem" => stats.shared_bytes = n,
                            "bytes cumulative stack size" => stats.stack_bytes = stats.stack_bytes.max(n),
                            _ => {}
                        }
                    }
                }
            }
            None if line.contains("bytes stack frame") => {
                let Some(stats) = properties_of.as_ref().and_then(|f| found.get_mut(f)) else { continue };
                for part in line.split(',') {
                    let mut words = part.trim().splitn(2, ' ');
                    let (Some(Ok(n)), Some(what)) = (words.next().map(str::parse::<u32>), words.next()) else {
                        continue;
                    };
                    match what.trim() {
                        "bytes stack frame" => stats.stack_bytes = n,
                        "bytes spill stores" => stats.spill_store_bytes = n,
                        "bytes spill loads" => stats.spill_load_bytes = n,
                        _ => {}
                    }
                }
            }
            None => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_go_to_their_own_entry() {
        let log = "ptxas info    : 4 bytes gmem, 8 bytes cmem[4]\n\
            ptxas info    : Compiling entry function 'a' for 'sm_89'\n\
            ptxas info    : Function properties for a\n    \
            48 bytes stack frame, 44 bytes spill stores, 40 bytes spill loads\n\
            ptxas info    : Used 65 registers, used 1 barriers, 48 bytes cumulative stack size, 11776 bytes smem, 416 bytes cmem[0], 40 bytes cmem[2]\n\
            ptxas info    : Compile time = 73.844 ms\n\
            ptxas info    : Function properties for _Z6helperf\n    \
            16 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n\
            ptxas info    : Compiling entry function '_Z1bILi64EEvv' for 'sm_89'\n\
            ptxas info    : Function properties for _Z1bILi64EEvv\n    \
            0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n\
            ptxas info    : Used 8 registers, 352 bytes cmem[0]\n";
        let got = statistics(log);
        assert_eq!(got.len(), 2);
        let a = &got["a"];
        assert_eq!(
            (a.registers, a.shared_bytes, a.stack_bytes, a.spill_store_bytes, a.spill_load_bytes),
            (65, 11776, 48, 44, 40)
        );
        let b = &got["_Z1bILi64EEvv"];
        assert_eq!((b.registers, b.shared_bytes, b.stack_bytes), (8, 0, 0));
    }
}
