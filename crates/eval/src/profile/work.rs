//! Which unit of a multiprocessor a kernel gives most to do, by what the PTX machine executed. It is no time and no measurement: a comparison of
//! amounts, each as a part of what its unit takes in a clock.
//!
//! Sources: what each opcode keeps busy is [`warpsmith_spec::opcode`]'s; tensor rates are of data sheets. Limits: PTX is not SASS, so
//! instructions that ptxas merges count twice; caches and latencies are not looked at.

use super::metrics::Figures;
use super::occupancy::capability;
use std::collections::BTreeMap;
use warpsmith_spec::opcode::{Pipe, pipe};
use warpsmith_spec::record::{ExecutionRecord, OccupancyRecord, ResultRecord, TrafficRecord};

/// Units, with the figure that tells how busy each is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unit {
    Tensor,
    Exponentials,
    Fp32,
    Integer,
    Convert,
    Shared,
    Global,
    Control,
}

impl Unit {
    fn figure(self) -> Option<&'static str> {
        Some(match self {
            Unit::Tensor => "load_tensor",
            Unit::Exponentials => "load_exponentials",
            Unit::Fp32 => "load_fp32",
            Unit::Integer => "load_integer",
            Unit::Convert => "load_convert",
            Unit::Shared => "load_shared",
            Unit::Global => "load_global",
            Unit::Control => return None,
        })
    }
}

/// Where a warp's instruction goes, and how many of its unit's clocks it takes there. For tensor products: multiply-adds. What accesses of memory
/// take is known better from their wavefronts and sectors, so the instructions themselves take nothing.
fn unit(opcode: &str) -> (Unit, f64) {
    let (unit, clocks) = pipe(opcode);
    match unit {
        Pipe::Tensor { macs, .. } => (Unit::Tensor, f64::from(macs)),
        Pipe::Special => (Unit::Exponentials, clocks),
        Pipe::Float => (Unit::Fp32, clocks),
        Pipe::Integer => (Unit::Integer, clocks),
        Pipe::Narrow => (Unit::Convert, clocks),
        Pipe::Shuffle => (Unit::Shared, clocks),
        Pipe::Shared => (Unit::Shared, 0.0),
        Pipe::Global | Pipe::Load | Pipe::Barrier | Pipe::Free | Pipe::Control => (Unit::Control, 0.0),
    }
}

/// Multiply-adds of one clock and multiprocessor: of 16-bit inputs, of 8-bit ones, and those of a warpgroup (None: it has none).
fn tensor_rates(capability: u32) -> (f64, f64, Option<(f64, f64)>) {
    match capability {
        0..=79 => (512.0, 512.0, None),
        80 => (1024.0, 1024.0, None),
        81..=88 => (256.0, 256.0, None),
        89 => (512.0, 1024.0, None),
        // mma.sync reaches 62% of wgmma, and 8-bit floats are widened inside.
        90 => (1270.0, 1270.0, Some((2048.0, 4096.0))),
        _ => (2048.0, 4096.0, Some((4096.0, 8192.0))),
    }
}

fn is_eight_bit(opcode: &str) -> bool {
    matches!(pipe(opcode).0, Pipe::Tensor { bits: 8, .. })
}

/// What one clock of a multiprocessor brings from the L2, in sectors of 32 bytes (64 bytes a clock).
const SECTORS: f64 = 2.0;

/// Figures from the executed work; nothing where opcodes were not counted.
pub fn figures(result: &ResultRecord, execution: &ExecutionRecord, occupancy: Option<&OccupancyRecord>) -> Figures {
    let mut figures = Figures::new();
    let sm = capability(&result.target).unwrap_or(0);
    let mut opcodes: BTreeMap<&str, u64> = BTreeMap::new();
    for (opcode, n) in execution.launches.iter().flat_map(|l| &l.opcodes) {
        *opcodes.entry(opcode).or_default() += n;
    }
    let mut put = |name: &str, value: f64| {
        if value.is_finite() {
            figures.insert(name.to_string(), value);
        }
    };
    put("sm", f64::from(sm));
    let spills: u32 =
        result.compile.get(&result.target).into_iter().flat_map(|e| e.values()).map(|e| e.spill_bytes).sum();
    put("spill_bytes", f64::from(spills));
    if let Some(o) = occupancy {
        put("occupancy", f64::from(o.warps) / f64::from(o.max_warps.max(1)));
        if let Some(waves) = o.waves {
            put("waves", waves);
            put("filled", waves * f64::from(o.ctas));
        }
    }
    if opcodes.is_empty() {
        return figures;
    }
    let (half, byte, group) = tensor_rates(sm);
    let mut clocks: BTreeMap<Unit, f64> = BTreeMap::new();
    let (mut issued, mut macs, mut scalar) = (0.0, 0.0, 0.0);
    for (opcode, n) in &opcodes {
        let (unit, cost) = unit(opcode);
        let n = *n as f64;
        issued += n * 0.25;
        match unit {
            Unit::Tensor => {
                let (half, byte) =
                    if opcode.starts_with("wgmma") { group.unwrap_or((half, byte)) } else { (half, byte) };
                macs += n * cost;
                *clocks.entry(unit).or_default() += n * cost / if is_eight_bit(opcode) { byte } else { half };
            }
            _ => *clocks.entry(unit).or_default() += n * cost,
        }
        if opcode.starts_with("fma.") && unit == Unit::Fp32 {
            scalar += n * 32.0;
        }
    }
    let traffic = execution.traffic.unwrap_or_default();
    *clocks.entry(Unit::Shared).or_default() += traffic.shared_wavefronts as f64;
    *clocks.entry(Unit::Global).or_default() += traffic.global_sectors as f64 / SECTORS;
    let busiest = clocks.values().copied().fold(issued, f64::max);
    if busiest > 0.0 {
        put("load_issue", issued / busiest);
        for (unit, n) in &clocks {
            if let Some(name) = unit.figure() {
                put(name, n / busiest);
            }
        }
        // What was never executed is a load of nothing, not an unknown one.
        for name in ["load_tensor", "load_exponentials", "load_fp32", "load_convert"] {
            figures.entry(name.to_string()).or_insert(0.0);
        }
    }
    more(&mut figures, result, execution, &opcodes, &traffic, macs, scalar);
    figures
}

/// Shares, and what the kernel uses at all.
fn more(
    figures: &mut Figures,
    result: &ResultRecord,
    execution: &ExecutionRecord,
    opcodes: &BTreeMap<&str, u64>,
    traffic: &TrafficRecord,
    macs: f64,
    scalar: f64,
) {
    let any = |test: &dyn Fn(&str) -> bool| f64::from(u8::from(opcodes.keys().any(|o| test(o))));
    let mut put = |name: &str, value: f64| {
        if value.is_finite() {
            figures.insert(name.to_string(), value);
        }
    };
    if macs + scalar > 0.0 {
        put("scalar_macs", scalar / (macs + scalar));
    }
    if macs > 0.0 {
        put("shared_for_tensor", traffic.shared_wavefronts as f64 / (macs / 2048.0));
    }
    let waits = |o: &str| ["wait_group", "commit_group", "wait_all"].iter().any(|w| o.contains(w));
    put("async_copies", any(&|o| o.starts_with("cp.async") && !waits(o)));
    put("tensor_maps", any(&|o| o.starts_with("cp.async.bulk.tensor")));
    put("wmma", any(&|o| o.starts_with("wmma.mma")));
    put("wgmma", any(&|o| o.starts_with("wgmma.mma_async")));
    put(
        "fp8_mma",
        any(&|o| (o.starts_with("mma") || o.starts_with("wgmma")) && (o.contains("e4m3") || o.contains("e5m2"))),
    );
    put("fp8_inputs", f64::from(u8::from(matches!(result.format.as_str(), "e4m3" | "e5m2"))));
    let excess = |ideal: u64, real: u64| if real > 0 { 1.0 - ideal.min(real) as f64 / real as f64 } else { 0.0 };
    if execution.traffic.is_some() {
        put("bank_conflicts", excess(traffic.shared_ideal, traffic.shared_wavefronts));
        put("uncoalesced", excess(traffic.global_ideal, traffic.global_sectors));
    }
    if execution.warp_instructions > 0 {
        put("divergent", execution.divergent_instructions as f64 / execution.warp_instructions as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accesses_are_counted_by_what_they_move() {
        for (opcode, want) in [
            ("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", (Unit::Tensor, 4096.0)),
            ("wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3", (Unit::Tensor, 262_144.0)),
            ("ex2.approx.ftz.f32", (Unit::Exponentials, 2.0)),
            ("cvt.rn.satfinite.e4m3x2.f32", (Unit::Convert, 1.0)),
            ("fma.rn.f32", (Unit::Fp32, 0.25)),
            ("shfl.sync.bfly.b32", (Unit::Shared, 1.0)),
            ("ld.shared.v4.f32", (Unit::Shared, 0.0)),
            ("ld.global.f32", (Unit::Control, 0.0)),
            ("bar.sync", (Unit::Control, 0.0)),
        ] {
            assert_eq!(unit(opcode), want, "{opcode}");
        }
    }
}
