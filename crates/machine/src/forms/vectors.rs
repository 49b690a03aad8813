//! Committed operands and results of forms: `tests/machine/*.txt`. The form of the files is in `tests/machine/README.md`.

use super::trial::{self, Operands};
use super::{BLOCK, Form, Kernel, Slot, all, kernel};
use crate::api::{Numerics, Options};

/// One form with its rows: the values of inputs and outputs, slot by slot.
#[derive(Debug, Clone)]
pub struct Vector {
    pub form: &'static Form,
    pub rows: Vec<(Vec<u64>, Vec<u64>)>,
    /// 1-based line of the form's head.
    pub line: usize,
}

/// Bits of a slot that mean something.
pub fn bits_of(ty: &str) -> u32 {
    match ty {
        "pred" => 1,
        "b8" | "u8" | "s8" => 8,
        "b16" | "u16" | "s16" | "f16" | "bf16" => 16,
        "b64" | "u64" | "s64" | "f64" => 64,
        _ => 32,
    }
}

/// Reads a file of vectors.
///
/// # Errors
/// With the line, where it is not as the README says, or names a form that the table has not.
pub fn parse(text: &str) -> Result<Vec<Vector>, String> {
    let mut out: Vec<Vector> = Vec::new();
    for (n, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(name) = line.strip_prefix("form ") {
            let form =
                all().iter().find(|f| f.name() == name).ok_or_else(|| format!("line {}: no form {name}", n + 1))?;
            out.push(Vector { form, rows: Vec::new(), line: n + 1 });
            continue;
        }
        let row = line.split_once("->").and_then(|(i, o)| Some((numbers(i)?, numbers(o)?)));
        let (Some(row), Some(vector)) = (row, out.last_mut()) else { return Err(format!("line {}: no row", n + 1)) };
        vector.rows.push(row);
    }
    Ok(out)
}

/// The numerics that a file asks for with a line `# numerics: hopper`; fast where it does not.
pub fn numerics(text: &str) -> Numerics {
    use warpsmith_num::tensor_core::Generation;
    match text.lines().find_map(|l| l.strip_prefix("# numerics: ")).map(str::trim) {
        Some("ampere") => Numerics::Faithful(Generation::Ampere),
        Some("ada") => Numerics::Faithful(Generation::Ada),
        Some("hopper") => Numerics::Faithful(Generation::Hopper),
        _ => Numerics::Fast,
    }
}

fn numbers(text: &str) -> Option<Vec<u64>> {
    text.split_whitespace().map(|w| u64::from_str_radix(w, 16).ok()).collect()
}

/// Puts rows of values into records.
fn records(k: &Kernel, rows: &[(Vec<u64>, Vec<u64>)], threads: usize) -> Vec<u8> {
    let mut out = vec![0; threads * k.input_bytes];
    for t in 0..threads {
        // The last block is filled up with the first rows once more.
        for (slot, value) in k.inputs.iter().zip(&rows[t % rows.len()].0) {
            let at = t * k.input_bytes + slot.offset;
            out[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
    }
    out
}

/// A slot of a thread's output record.
pub fn value(k: &Kernel, records: &[u8], thread: usize, slot: &Slot) -> u64 {
    let at = thread * k.output_bytes + slot.offset;
    let bytes = records.get(at..at + 8).and_then(|b| b.try_into().ok()).unwrap_or_default();
    u64::from_le_bytes(bytes) & (u64::MAX >> (64 - bits_of(&slot.ty)))
}

/// Runs a vector on the machine: what differs, in words.
///
/// # Errors
/// Where the kernel does not complete.
pub fn check(vector: &Vector, numerics: Numerics) -> Result<Vec<String>, String> {
    let k = kernel(vector.form);
    if let Some((i, o)) = vector.rows.iter().find(|(i, o)| i.len() != k.inputs.len() || o.len() != k.outputs.len()) {
        return Err(format!(
            "line {}: {} has {} operands and {} results, the row {} and {}",
            vector.line,
            vector.form.name(),
            k.inputs.len(),
            k.outputs.len(),
            i.len(),
            o.len()
        ));
    }
    if vector.rows.is_empty() {
        return Ok(Vec::new());
    }
    let threads = vector.rows.len().next_multiple_of(BLOCK);
    let operands =
        Operands { threads, records: records(&k, &vector.rows, threads), memory: trial::plain_memory(threads) };
    let options = Options { numerics, threads: 1, ..Options::default() };
    let results = trial::run(vector.form, &k, &operands, &options)?;
    let mut wrong = Vec::new();
    for (t, (i, o)) in vector.rows.iter().enumerate() {
        let got: Vec<u64> = k.outputs.iter().map(|s| value(&k, &results.records, t, s)).collect();
        if got != *o {
            wrong.push(format!("{} of {i:x?}: {got:x?}, expected {o:x?}", vector.form.opcode));
        }
    }
    Ok(wrong)
}
