//! Running a form on the machine: records in, records and memory out. What a comparison with hardware and the committed vectors share.

use super::{BLOCK, Form, GLOBAL_BYTES, Kernel, kernel};
use crate::api::{Arg, End, Launch, Options};
use crate::{Contents, Memory, Program, launch};

/// What a form is applied to: one record and one piece of memory for each thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operands {
    pub threads: usize,
    /// `threads` records of [`Kernel::input_bytes`].
    pub records: Vec<u8>,
    /// `threads` times [`GLOBAL_BYTES`].
    pub memory: Vec<u8>,
}

/// What it gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Results {
    /// `threads` records of [`Kernel::output_bytes`].
    pub records: Vec<u8>,
    pub memory: Vec<u8>,
}

/// Threads of a block, and blocks, for so many threads: whole warps, as the kernel's collective operations need them.
///
/// # Errors
/// Where the threads do not fill their blocks.
pub fn grid(threads: usize) -> Result<(u32, u32), String> {
    let block = BLOCK.min(threads);
    if threads == 0 || !block.is_multiple_of(32) || !threads.is_multiple_of(block) {
        return Err(format!("{threads} threads do not fill blocks of {BLOCK}"));
    }
    Ok(((threads / block) as u32, block as u32))
}

/// Runs a form's kernel on the machine.
///
/// # Errors
/// In words, where it does not complete without a finding.
pub fn run(form: &Form, k: &Kernel, operands: &Operands, options: &Options) -> Result<Results, String> {
    let (blocks, block) = grid(operands.threads)?;
    let program = Program::load(&k.ptx).map_err(|e| format!("{}: {e}", form.name()))?;
    let mut memory = Memory::new();
    // Zero, not undefined: a branch or an exit leaves nothing, and padding between slots is compared too.
    let empty = vec![0; operands.threads * k.output_bytes.max(16)];
    let filler = [0; 16];
    let records = if operands.records.is_empty() { &filler[..] } else { &operands.records[..] };
    let input = memory.alloc("in", Contents::Bytes(records));
    let output = memory.alloc("out", Contents::Bytes(&empty));
    let mem = memory.alloc("mem", Contents::Bytes(&operands.memory));
    let l = Launch {
        entry: "k".into(),
        grid: [blocks, 1, 1],
        block: [block, 1, 1],
        cluster: [1; 3],
        shared_bytes: 0,
        args: vec![Arg::Buffer(input), Arg::Buffer(output), Arg::Buffer(mem)],
    };
    let outcome = launch(&program, &mut memory, &l, options);
    if outcome.end != End::Completed || !outcome.findings.is_empty() {
        let finding = outcome.findings.first().map_or("", |f| &f.message);
        return Err(format!("{}: {:?} {finding}", form.name(), outcome.end));
    }
    let mut records = memory.read(output);
    records.truncate(operands.threads * k.output_bytes);
    Ok(Results { records, memory: memory.read(mem) })
}

/// The same for a form by itself.
///
/// # Errors
/// As [`run`].
pub fn run_form(form: &Form, operands: &Operands, options: &Options) -> Result<Results, String> {
    run(form, &kernel(form), operands, options)
}

/// Memory of so many threads, all the same byte.
pub fn plain_memory(threads: usize) -> Vec<u8> {
    vec![0x11; threads * GLOBAL_BYTES]
}
