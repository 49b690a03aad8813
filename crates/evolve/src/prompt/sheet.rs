//! The sheet of a loop's task (I1): what every prompt holds, whatever the variant. Made once, from the task and the start.

use crate::estimate;
use serde::Serialize;
use std::collections::BTreeMap;
use warpsmith_spec::formula::Formula;
use warpsmith_spec::record::CeilingsRecord;
use warpsmith_spec::task::{Base, ElementType, Role, Task, When};
use warpsmith_spec::workload::Workload;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Sheet {
    pub task: TaskSheet,
    pub device: Vec<String>,
    pub target: String,
    /// What is minimised, in words.
    pub measure: String,
    /// Per cent.
    pub announce: String,
    #[serde(skip)]
    pub all_headers: Vec<Header>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TaskSheet {
    pub name: String,
    pub title: String,
    pub symbols: String,
    pub lines: Vec<String>,
}

/// A header that kernels may include.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Header {
    pub name: String,
    pub text: String,
}

impl Sheet {
    /// `workloads` are those that every solution is judged on; `device` is the one whose rates the estimate takes, or the one that times.
    pub fn new(
        task: &Task,
        workloads: &[Workload],
        target: &str,
        device: &str,
        is_estimate: bool,
        announce: f64,
        headers: &BTreeMap<String, String>,
    ) -> Sheet {
        let measure = if is_estimate {
            format!("an estimate for the {device}, in model cycles, from what the kernel executes (it is no time)")
        } else {
            format!("the measured time on the {device}, as the geometric mean over the shapes")
        };
        Sheet {
            task: TaskSheet {
                name: task.name.clone(),
                title: task.title.clone(),
                symbols: task.symbols.join(", "),
                lines: lines(task, workloads),
            },
            device: device_lines(device),
            target: target.into(),
            measure,
            // Ratios as percents, without what binary fractions add.
            announce: format!("{}", libm::round((announce - 1.0) * 1000.0) / 10.0),
            all_headers: headers.iter().map(|(name, text)| Header { name: name.clone(), text: text.clone() }).collect(),
        }
    }
}

impl Sheet {
    /// With what was measured of the device that times.
    #[must_use]
    pub fn with(mut self, ceilings: Option<&CeilingsRecord>) -> Sheet {
        self.device.extend(ceilings.and_then(measured));
        self
    }
}

fn lines(task: &Task, workloads: &[Workload]) -> Vec<String> {
    let mut lines = Vec::new();
    fn words<T: ToString>(all: &[T]) -> Vec<String> {
        all.iter().map(ToString::to_string).collect()
    }
    let formats = words(&task.formats);
    for tensor in &task.tensors {
        let role = match tensor.role {
            Role::Input => "input".to_string(),
            Role::Scale => format!("scales of {} (x = code * scale)", tensor.scales.as_deref().unwrap_or("an input")),
            Role::Output => "output".to_string(),
        };
        let dtype = match &tensor.element {
            ElementType::Fixed(dtype) => dtype.to_string(),
            ElementType::Out => format!("the output's format ({})", words(&task.outs).join(", ")),
            ElementType::Format => format!("8-bit codes ({})", formats.join(", ")),
        };
        let shapes: Vec<String> = tensor
            .shapes
            .iter()
            .map(|(layout, sizes)| {
                let sizes: Vec<String> = sizes.iter().map(|s| s.text().to_string()).collect();
                let of = if tensor.shapes.len() > 1 { format!(" {layout}") } else { String::new() };
                format!("({}){of}", sizes.join(", "))
            })
            .collect();
        lines.push(format!("`{}`: {role}, {dtype}, shape {}", tensor.name, shapes.join(", or ")));
    }
    for scalar in &task.scalars {
        let value = |(when, f): &(When, Formula)| format!("{} {when}", f.text()).trim_end().to_string();
        let values: Vec<String> = scalar.values.iter().map(value).collect();
        lines.push(format!("`{}`: scalar, {}, {}", scalar.name, scalar.dtype, values.join(", or ")));
    }
    if task.has_causal() {
        lines.push("`causal`: scalar, whether query i sees keys 0 to i only".into());
    }
    let mut shapes: Vec<String> = workloads
        .iter()
        .map(|w| {
            let sizes: Vec<String> = w.symbols.iter().map(|(k, v)| format!("{k}={v}")).collect();
            let mask = if w.causal { ", causal" } else { "" };
            format!("{} ({}{mask}, {}, scales per {})", w.shape, sizes.join(" "), w.format, w.scales)
        })
        .collect();
    shapes.dedup();
    lines.push(format!("Judged on: {}", shapes.join("; ")));
    let t = &task.tolerance;
    let base = match &t.base {
        Base::HonestAttention { p, .. } => format!("what an honest kernel errs on the same inputs (P kept in {p})"),
        Base::Given { rel_frobenius, worst_row } => format!("{rel_frobenius} and {worst_row}"),
    };
    lines.push(format!(
        "Limits of the error against f64: relative Frobenius norm {} times, worst row {} times {base}, but {} and {} are always allowed",
        t.factor_rel_frobenius, t.factor_worst_row, t.floor_rel_frobenius, t.floor_worst_row
    ));
    lines
}

fn device_lines(name: &str) -> Vec<String> {
    let Some(d) = estimate::part_of(name) else { return vec![name.to_string()] };
    vec![
        format!(
            "{name}: {} multiprocessors, each with {} registers, {} KB of shared memory, {} warps, {} CTAs at most",
            d.sm_count,
            d.registers,
            d.shared_bytes / 1024,
            d.max_warps,
            d.max_ctas
        ),
        format!(
            "Multiply-adds a clock and multiprocessor by mma.sync: {} of 16-bit inputs, {} of 8-bit floats",
            d.mma_16bit, d.mma_8bit
        ),
        "Lanes a clock and multiprocessor: 128 of f32 arithmetic, 64 of integers, 16 of ex2, rcp and rsqrt".to_string(),
        format!(
            "Bytes a clock: {} from memory and {} from the L2, all multiprocessors together",
            d.dram_bytes, d.l2_bytes
        ),
    ]
}

/// What micro-kernels reached on the device itself, in a line.
fn measured(c: &CeilingsRecord) -> Option<String> {
    let told: Vec<String> =
        c.rows().into_iter().filter_map(|(what, x, unit)| Some(format!("{what} {} {unit}", Short(x?)))).collect();
    let clock = c.sm_mhz.map_or_else(String::new, |mhz| format!(", at {mhz} MHz"));
    (!told.is_empty()).then(|| format!("Measured on this device, the most that it gives{clock}: {}", told.join(", ")))
}

/// A figure with the digits that it is worth.
struct Short(f64);

impl std::fmt::Display for Short {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        if self.0 < 100.0 { write!(f, "{:.2}", self.0) } else { write!(f, "{:.0}", self.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_measured_is_told_and_nothing_else() {
        let some = CeilingsRecord {
            sm_mhz: Some(1980),
            dram_gb: Some(4123.4),
            exp_tera: Some(4.181),
            ..CeilingsRecord::default()
        };
        let line = measured(&some).unwrap();
        assert!(line.ends_with(", at 1980 MHz: DRAM 4123 GB/s, exponentials 4.18 10^12/s"), "{line}");
        assert_eq!(measured(&CeilingsRecord::default()), None);
    }
}
