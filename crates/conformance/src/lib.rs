//! Compares the PTX machine with a GPU, form by form: the table of instruction forms, each applied to many operands on both.
//!
//! Picture: `forms` (crate machine) -> [`operands`] -> [`device::Backend`] twice -> [`compare`] -> [`Report`] -> `tests/machine/hardware.tsv`,
//! vectors, and with them the page of what is supported. It is a tool for developers; the machine does not know of it.

pub mod compare;
pub mod device;
pub mod operands;

use std::collections::BTreeMap;

use compare::{Compared, compare, inputs};
use device::Backend;
use warpsmith_machine::forms::vectors::value;
use warpsmith_machine::forms::{Exactness, Form, Kernel, all, kernel};

/// Threads for forms that are exact, and for approximate functions.
pub const THREADS: [usize; 2] = [1 << 12, 1 << 20];

/// What is compared.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// Only forms whose name contains this.
    pub only: String,
    /// Instead of [`THREADS`].
    pub threads: Option<usize>,
}

/// One form's comparison, or why there is none.
#[derive(Debug, Clone)]
pub struct Entry {
    pub form: &'static Form,
    pub result: Result<Compared, String>,
    /// Rows of the first threads as files of vectors have them, from the second backend.
    pub rows: Vec<String>,
}

/// All of it.
#[derive(Debug, Clone)]
pub struct Report {
    pub device: String,
    pub compute_capability: Option<u32>,
    pub entries: Vec<Entry>,
    /// Forms that the device cannot have.
    pub skipped: usize,
}

/// Compares two backends on the forms that both can have; `progress` hears of each.
pub fn run(
    ours: &mut dyn Backend,
    theirs: &mut dyn Backend,
    selection: &Selection,
    progress: &mut dyn FnMut(&Entry),
) -> Report {
    let capability = theirs.compute_capability();
    let mut report = Report { device: theirs.name(), compute_capability: capability, entries: Vec::new(), skipped: 0 };
    for form in all().iter().filter(|f| f.exactness != Exactness::Unsupported && !f.elsewhere && !f.decode_only) {
        if !form.name().contains(&selection.only) {
            continue;
        }
        // What needs `sm_90a` runs on that generation only.
        if capability.is_some_and(|c| c < form.sm || form.arch_specific && c != form.sm) {
            report.skipped += 1;
            continue;
        }
        let entry = one(ours, theirs, form, selection);
        progress(&entry);
        report.entries.push(entry);
    }
    report
}

fn one(ours: &mut dyn Backend, theirs: &mut dyn Backend, form: &'static Form, selection: &Selection) -> Entry {
    let k = kernel(form);
    let usual = THREADS[usize::from(form.exactness == Exactness::Approximate)];
    let operands = operands::operands(form, &k, selection.threads.unwrap_or(usual));
    let mut rows = Vec::new();
    let both = ours.run(form, &k, &operands).and_then(|a| Ok((a, theirs.run(form, &k, &operands)?)));
    let result = both.map(|(a, b)| {
        // Registers only: what lies in memory has no place in a row.
        // Nor has what a whole block makes of its operands.
        let whole_block = form.opcode.contains(".red.") && form.opcode.starts_with("bar");
        let collective = form.group.contains("atrix") || form.group.contains("WMMA") || form.group.contains("Shuffle");
        if !whole_block
            && !k.memory
            && !k.outputs.is_empty()
            && !k.inputs.is_empty()
            && form.exactness != Exactness::Approximate
        {
            for t in 0..if collective { 32 } else { 4 } {
                let hex = |v: Vec<u64>| v.iter().map(|v| format!("{v:x}")).collect::<Vec<_>>().join(" ");
                let outputs = k.outputs.iter().map(|s| value(&k, &b.records, t, s)).collect();
                rows.push(format!("{} -> {}", hex(inputs(&k, &operands, t)), hex(outputs)));
            }
        }
        // The bits of an mbarrier are the device's own.
        let opaque = form.opcode.contains("mbarrier");
        compare(&Kernel { memory: k.memory && !opaque, ..k.clone() }, &operands, &a, &b)
    });
    Entry { form, result, rows }
}

impl Entry {
    /// Whether the machine does what it says of itself.
    pub fn agrees(&self) -> bool {
        match &self.result {
            Ok(c) => c.differ == 0 || (self.form.exactness == Exactness::Approximate && c.ulp < u64::MAX),
            Err(_) => false,
        }
    }
}

/// So many units of the last place are told as an absolute difference too.
const FAR: u64 = 1 << 16;

impl Report {
    /// The text of `hardware.tsv`: one line for each row of the table.
    pub fn hardware(&self) -> String {
        let mut rows: BTreeMap<&str, (Compared, usize)> = BTreeMap::new();
        for e in &self.entries {
            let (sum, failed) = rows.entry(e.form.row).or_default();
            match &e.result {
                Ok(c) => {
                    sum.threads += c.threads;
                    sum.differ += c.differ;
                    sum.nan_bits += c.nan_bits;
                    sum.ulp = sum.ulp.max(c.ulp);
                    sum.absolute = sum.absolute.max(c.absolute);
                }
                Err(_) => *failed += 1,
            }
        }
        let mut out = format!("# {}\n", self.device);
        for (row, (c, failed)) in rows {
            let text = match (c.differ, c.ulp) {
                _ if failed > 0 => format!("{failed} forms did not run"),
                (0, _) if c.nan_bits > 0 => format!("{}: equal, but for the bits of {} NaN", c.threads, c.nan_bits),
                (0, _) => format!("{}: equal", c.threads),
                (n, u64::MAX) => format!("{}: {n} differ", c.threads),
                (n, 0) => format!("{}: {n} differ", c.threads),
                (n, u) if u >= FAR && c.absolute > 0.0 => format!(
                    "{}: {n} differ, by {u} ulp at most, near zero; by 2^{:.2} at most where the result is below 1",
                    c.threads,
                    c.absolute.log2()
                ),
                (n, u) => format!("{}: {n} differ, by {u} ulp at most", c.threads),
            };
            out += &format!("{row}\t{text}\n");
        }
        out
    }

    /// Vectors as files have them, from the device.
    pub fn vectors(&self) -> String {
        let numerics = match self.compute_capability {
            Some(..89) => "ampere",
            Some(89) => "ada",
            _ => "hopper",
        };
        let mut out = format!("# source: {}\n# numerics: {numerics}\n", self.device);
        for e in self.entries.iter().filter(|e| e.result.is_ok() && !e.rows.is_empty()) {
            out += &format!("\nform {}\n{}\n", e.form.name(), e.rows.join("\n"));
        }
        out
    }
}
