//! What the counters of an execution say about its cost, in sentences: insights for prompts and for people.
//!
//! Shares of clocks are the estimate's ([`crate::estimate`]), by opcode and a device's rates; they are no measurement, and say so.

use crate::estimate::{Device, Launch, occupancy};
use std::collections::BTreeMap;
use warpsmith_spec::opcode::{Pipe, pipe};
use warpsmith_spec::record::LineRecord;

/// Pipes and opcodes that are named.
const MOST: usize = 4;

/// For the launches of one workload, called `shape`.
pub fn of(device: &Device, shape: &str, launches: &[Launch]) -> Vec<String> {
    let mut lines = Vec::new();
    let mut pipes: BTreeMap<&'static str, f64> = BTreeMap::new();
    let mut opcodes: BTreeMap<&str, u64> = BTreeMap::new();
    for launch in launches {
        for (opcode, n) in &launch.opcodes {
            let (name, clocks) = charged(device, opcode);
            *pipes.entry(name).or_default() += *n as f64 * clocks;
            *opcodes.entry(opcode).or_default() += n;
        }
        let fits = occupancy(device, launch);
        lines.push(format!(
            "{shape}: {} of {} warps fit a multiprocessor of the {} at once ({} CTAs, limited by {}); {} CTAs in all for {} multiprocessors",
            fits.warps, device.max_warps, device.name, fits.ctas, fits.limit, launch.ctas, device.sm_count
        ));
        if launch.spill_bytes > 0 {
            lines.push(format!("{shape}: {} bytes of registers spilled by each thread", launch.spill_bytes));
        }
        if launch.bank_conflicts > 0 {
            lines
                .push(format!("{shape}: {} wavefronts of shared memory lost to bank conflicts", launch.bank_conflicts));
        }
        if launch.global_sectors > 0 && launch.tensor_bytes > 0 {
            let times = 32.0 * launch.global_sectors as f64 / launch.tensor_bytes as f64;
            lines.push(format!("{shape}: global memory moves {times:.1} times the tensors' bytes, in sectors of 32"));
        }
    }
    let all: f64 = pipes.values().sum();
    if all > 0.0 {
        let mut shares: Vec<(&str, f64)> = pipes.into_iter().map(|(name, c)| (name, c / all)).collect();
        shares.sort_by(|a, b| b.1.total_cmp(&a.1));
        let shares: Vec<String> =
            shares.iter().take(MOST).map(|(name, s)| format!("{name} {:.0}%", 100.0 * s)).collect();
        lines.push(format!("{shape}: clocks by pipe, as the estimate counts them: {}", shares.join(", ")));
    }
    let total: u64 = opcodes.values().sum();
    if total > 0 {
        let mut most: Vec<(&str, u64)> = opcodes.into_iter().collect();
        most.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
        let most: Vec<String> =
            most.iter().take(MOST).map(|(o, n)| format!("{o} {:.0}%", 100.0 * *n as f64 / total as f64)).collect();
        lines.push(format!("{shape}: {total} warp-instructions, most of them {}", most.join(", ")));
    }
    lines
}

/// The source lines that lose most wavefronts of shared memory to bank conflicts.
pub fn conflicts<'a>(shape: &str, lines: impl Iterator<Item = &'a LineRecord>) -> Vec<String> {
    let lost = |l: &LineRecord| l.traffic.shared_wavefronts.saturating_sub(l.traffic.shared_ideal);
    let mut worst: Vec<(&LineRecord, u64)> = lines.map(|l| (l, lost(l))).filter(|(_, n)| *n > 0).collect();
    let all: u64 = worst.iter().map(|(_, n)| n).sum();
    worst.sort_by_key(|(l, n)| (std::cmp::Reverse(*n), l.file.clone(), l.line));
    let place = |l: &LineRecord| match (&l.file, l.line) {
        (Some(file), Some(line)) => format!("{}:{line}", file.rsplit(['/', '\\']).next().unwrap_or(file)),
        _ => "a line that is not known".into(),
    };
    let told = worst.iter().take(MOST).map(|(l, n)| {
        let percent = 100.0 * *n as f64 / all as f64;
        let times = l.traffic.shared_wavefronts as f64 / l.traffic.shared_ideal.max(1) as f64;
        format!("{shape}: bank conflicts at {}: {percent:.0}% of all, {times:.1} times the fewest wavefronts", place(l))
    });
    told.collect()
}

/// The pipe's name and the clocks that one warp-instruction takes of it.
fn charged(device: &Device, opcode: &str) -> (&'static str, f64) {
    let (unit, clocks) = pipe(opcode);
    match unit {
        Pipe::Float => ("float arithmetic", clocks),
        Pipe::Integer => ("integers and logic", clocks),
        Pipe::Special => ("special functions", clocks),
        Pipe::Narrow => ("narrow conversions", clocks),
        Pipe::Shared | Pipe::Shuffle => ("shared memory and shuffles", clocks),
        Pipe::Global | Pipe::Load => ("global memory", clocks),
        Pipe::Control | Pipe::Barrier | Pipe::Free => ("control", clocks),
        Pipe::Tensor { macs, bits: 8 } => ("tensor cores", f64::from(macs) / device.mma_8bit),
        Pipe::Tensor { macs, .. } => ("tensor cores", f64::from(macs) / device.mma_16bit),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpsmith_spec::record::TrafficRecord;

    #[test]
    fn the_busiest_pipe_comes_first() {
        let opcodes = [("ex2.approx.ftz.f32".to_string(), 100), ("fma.rn.f32".to_string(), 200)].into();
        let launch = Launch {
            ctas: 8,
            threads_per_cta: 128,
            registers: 64,
            shared_bytes: 40_000,
            spill_bytes: 16,
            opcodes,
            ..Launch::default()
        };
        let device = crate::estimate::device("L4").unwrap();
        let text = of(device, "tiny", &[launch]).join("\n");
        for says in ["special functions 80%, float arithmetic 20%", "limited by shared memory", "16 bytes", "300 warp-"]
        {
            assert!(text.contains(says), "{says}: {text}");
        }
        assert_eq!(of(device, "tiny", &[]), Vec::<String>::new());
    }

    #[test]
    fn lines_that_conflict_most_are_named() {
        let line = |line: u32, wavefronts: u64, ideal: u64| LineRecord {
            file: Some("<root>/k.cu".into()),
            line: Some(line),
            traffic: TrafficRecord { shared_wavefronts: wavefronts, shared_ideal: ideal, ..TrafficRecord::default() },
            ..LineRecord::default()
        };
        let lines = [line(3, 10, 10), line(7, 400, 100), line(9, 200, 100)];
        let told = conflicts("tiny", lines.iter());
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].contains("k.cu:7: 75% of all, 4.0 times"), "{told:?}");
    }
}
