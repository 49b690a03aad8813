//! Source lines of machine code, from the line table (`.debug_line`) of the cubin itself: for toolkits without a disassembler, and for the very
//! code that ncu has sampled, which its report carries.
//!
//! A row of the table may have a call site: an operation of NVIDIA's own (0x90, the row's number in the table, from 1; 0 ends it) that the rows
//! after it keep. So a place is a chain, innermost first. Of several rows at one address the last one counts, which is the innermost.
//! Sources: DWARF 2 to 5, section 6.2; NVIDIA's operation as LLVM's NVPTX documentation has it, checked on cubins of CUDA 13.0 (2026-11-22).
//! Limits: [`MAX_IMAGES`] cubins of a report, [`MAX_ROWS`] rows of a table, [`MAX_CHAIN`] call sites. What cannot be read has no lines.

use gimli::{AttributeValue, DebugLine, DebugLineOffset, EndianSlice, LineInstruction, LineRow, LittleEndian};
use object::{Object, ObjectSection, ObjectSymbol, RelocationTarget};
use std::collections::BTreeMap;

/// File and line, innermost first, then its call sites.
pub type Chain = Vec<(String, u32)>;
/// Name of a function in the machine code -> offset -> place.
pub type Functions = BTreeMap<String, BTreeMap<u64, Chain>>;

const MAX_IMAGES: usize = 64;
const MAX_ROWS: usize = 1 << 20;
const MAX_CHAIN: usize = 32;
/// NVIDIA's inlined call.
const INLINED_CALL: u8 = 0x90;
/// Bits of an offset within a function; those above say which function it is.
const OFFSET_BITS: u32 = 40;

/// The lines of all cubins inside of these bytes: a cubin, or a report of ncu's, which carries what it has profiled.
pub fn find(bytes: &[u8]) -> Functions {
    const MAGIC: &[u8] = b"\x7fELF\x02\x01";
    let mut found = Functions::new();
    let mut from = 0;
    for _ in 0..MAX_IMAGES {
        let Some(at) = bytes[from..].windows(MAGIC.len()).position(|w| w == MAGIC) else { break };
        found.extend(of_cubin(&bytes[from + at..]).unwrap_or_default());
        from += at + MAGIC.len();
    }
    found
}

/// Where an instruction comes from. A function's name may be written out with its parameters; a single function is meant by any name.
pub fn at(functions: &Functions, kernel: &str, offset: u64) -> Option<Chain> {
    let plain = kernel.split(['(', '<']).next().unwrap_or(kernel).trim_start_matches("void ").trim();
    let only = || functions.values().next().filter(|_| functions.len() == 1);
    let lines = functions.get(kernel).or_else(|| functions.get(plain)).or_else(only)?;
    // A row reaches to the next one.
    lines.range(..=offset).next_back().map(|(_, chain)| chain.clone())
}

fn of_cubin(image: &[u8]) -> Option<Functions> {
    let file = object::File::parse(image).ok()?;
    let section = file.section_by_name(".debug_line")?;
    let mut bytes = section.data().ok()?.to_vec();
    let mut names: Vec<String> = Vec::new();
    // An address in the table is that of a function, which the linker would have put there: its number takes the place.
    for (offset, relocation) in section.relocations() {
        let RelocationTarget::Symbol(index) = relocation.target() else { continue };
        let symbol = file.symbol_by_index(index).ok()?;
        let in_section = symbol.section_index().and_then(|i| file.section_by_index(i).ok());
        let name = in_section.as_ref().and_then(|s| s.name().ok()).and_then(|n| n.strip_prefix(".text."));
        let name = name.or_else(|| symbol.name().ok()).unwrap_or_default();
        names.push(name.to_string());
        let value = (names.len() as u64) << OFFSET_BITS;
        let place = usize::try_from(offset).ok().and_then(|at| bytes.get_mut(at..at.checked_add(8)?))?;
        place.copy_from_slice(&value.to_le_bytes());
    }
    let mut found = Functions::new();
    let table = DebugLine::new(&bytes, LittleEndian);
    let mut at = 0usize;
    while at + 4 < bytes.len() {
        let length = u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?) as usize;
        if unit(&table, at, &names, &mut found).is_none() && found.is_empty() {
            return None;
        }
        // Whatever a unit holds, the next one begins where it says that it ends.
        at = at.checked_add(4)?.checked_add(length)?;
    }
    Some(found)
}

/// The table of one unit.
fn unit(
    table: &DebugLine<EndianSlice<'_, LittleEndian>>,
    at: usize,
    names: &[String],
    found: &mut Functions,
) -> Option<()> {
    let program = table.program(DebugLineOffset(at), 8, None, None).ok()?;
    let header = program.header().clone();
    let mut instructions = header.instructions();
    let mut program = program;
    let mut row = LineRow::new(&header);
    // Of each row: its place, and the number of the row that called it.
    let mut rows: Vec<((String, u32), usize)> = Vec::new();
    let mut caller = 0usize;
    while let Ok(Some(instruction)) = instructions.next_instruction(&header) {
        if let LineInstruction::UnknownExtended(code, mut reader) = instruction {
            if code.0 == INLINED_CALL {
                caller =
                    gimli::Reader::read_uleb128(&mut reader).ok().and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
            }
            continue;
        }
        if !row.execute(instruction, &mut program).ok()? {
            continue;
        }
        if row.end_sequence() {
            caller = 0;
        } else {
            if rows.len() == MAX_ROWS {
                return None;
            }
            let name = match header.file(row.file_index()).map(|f| f.path_name()) {
                Some(AttributeValue::String(name)) => name.to_string_lossy().into_owned(),
                _ => String::new(),
            };
            let line = row.line().and_then(|l| u32::try_from(l.get()).ok()).unwrap_or(0);
            rows.push(((name, line), caller));
            let address = row.address();
            let function = usize::try_from(address >> OFFSET_BITS).ok()?;
            let name = names.get(function.wrapping_sub(1)).cloned().unwrap_or_default();
            let offset = address & ((1 << OFFSET_BITS) - 1);
            found.entry(name).or_default().insert(offset, chain(&rows));
        }
        // gimli's row forgets what it was told only for this row.
        row.reset(&header);
    }
    Some(())
}

/// The last row with its call sites.
fn chain(rows: &[((String, u32), usize)]) -> Chain {
    let mut places = Chain::new();
    let mut at = rows.len();
    while at > 0 && places.len() < MAX_CHAIN {
        let (place, caller) = &rows[at - 1];
        places.push(place.clone());
        // A call site stands before what it calls; anything else would go round in circles.
        at = if *caller < at { *caller } else { 0 };
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cubin of level_07 for sm_90, as a report that ncu took on an H200 carries it, without its machine code.
    const CUBIN: &[u8] = include_bytes!("../../tests/fixtures/h200_level_07.cubin");

    #[test]
    fn instructions_have_their_lines_and_call_sites() {
        // What stands before it in a report does not matter.
        let report = [b"NVR\0 and more".as_slice(), CUBIN].concat();
        let functions = find(&report);
        assert_eq!(functions.keys().collect::<Vec<_>>(), ["fp8_sdpa_level_07"]);
        let place = |file: &str, line: u32| (file.to_string(), line);
        for (offset, want) in [
            (0x00, vec![place("level_07.cu", 119)]),
            (0x60, vec![place("level_07.cu", 133)]),
            (0xb0, vec![place("level_07.cu", 99), place("level_07.cu", 114), place("level_07.cu", 149)]),
            (0xe0, vec![place("cp_async.cuh", 11), place("level_07.cu", 114), place("level_07.cu", 149)]),
        ] {
            assert_eq!(at(&functions, "fp8_sdpa_level_07", offset), Some(want), "{offset:#x}");
        }
        assert!(at(&functions, "void fp8_sdpa_level_07(const unsigned char *)", 0x20).is_some());
        assert!(at(&Functions::new(), "k", 0).is_none());
    }

    #[test]
    fn damaged_bytes_have_no_lines_and_do_no_harm() {
        for n in (0..CUBIN.len()).step_by(97) {
            let mut bytes = CUBIN.to_vec();
            bytes[n] ^= 0xff;
            find(&bytes);
            find(&CUBIN[..n]);
        }
        assert!(find(b"").is_empty() && find(b"\x7fELF\x02\x01").is_empty());
    }
}
