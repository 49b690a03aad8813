//! The estimate by which solutions are ranked where there is no GPU: model cycles of a named device, from what the PTX machine counted
//! and what ptxas allotted. It is not a time, and nothing turns it into one.
//!
//! The model ([`MODEL`]): the warp-instructions of a multiprocessor's share of the grid are charged to pipes by their opcode
//! ([`classify`]); the busiest pipe bounds it from below, and what the warps that fit at once cannot hide of the other pipes and of
//! their own chains of latencies is added. Waves: a last one that is not full costs as much as a full one.
//! Sources: instructions per clock and multiprocessor of the CUDA C++ Programming Guide ("Arithmetic Instructions") and, for
//! sm_90, this project's own measurements on an H100; dense tensor rates of the cards' data sheets. What it leaves out: caches, DRAM beyond its
//! peak, clocks, the SASS that ptxas makes of the PTX. How well it ranks is published beside measured times (docs/estimate.md).

use std::collections::BTreeMap;

/// Changes whenever figures may.
pub const MODEL: &str = "warpsmith-model/1";

/// What a device gives each clock, per multiprocessor unless said.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Device {
    pub name: &'static str,
    pub sm_count: u32,
    pub max_warps: u32,
    pub max_ctas: u32,
    pub registers: u32,
    pub shared_bytes: u32,
    /// Multiply-adds of 16-bit inputs by `mma.sync`.
    pub mma_16bit: f64,
    /// Of 8-bit floats.
    pub mma_8bit: f64,
    /// Bytes from DRAM, all multiprocessors together.
    pub dram_bytes: f64,
    /// Bytes from the L2, all together.
    pub l2_bytes: f64,
}

/// The devices that can be named. L4 and A100: data sheets. H100: `mma.sync` reaches 62% of the wgmma rate, and 8-bit floats run as 16-bit.
pub const DEVICES: [Device; 4] = [
    Device {
        name: "L4",
        sm_count: 58,
        max_warps: 48,
        max_ctas: 24,
        registers: 65536,
        shared_bytes: 102_400,
        mma_16bit: 512.0,
        mma_8bit: 1024.0,
        dram_bytes: 147.0,
        l2_bytes: 1500.0,
    },
    Device {
        name: "A100",
        sm_count: 108,
        max_warps: 64,
        max_ctas: 32,
        registers: 65536,
        shared_bytes: 167_936,
        mma_16bit: 1024.0,
        mma_8bit: 1024.0,
        dram_bytes: 1100.0,
        l2_bytes: 5120.0,
    },
    Device {
        name: "H100",
        sm_count: 132,
        max_warps: 64,
        max_ctas: 32,
        registers: 65536,
        shared_bytes: 233_472,
        mma_16bit: 1270.0,
        mma_8bit: 1100.0,
        dram_bytes: 1900.0,
        l2_bytes: 3000.0,
    },
    Device {
        name: "H200",
        sm_count: 132,
        max_warps: 64,
        max_ctas: 32,
        registers: 65536,
        shared_bytes: 233_472,
        mma_16bit: 1270.0,
        mma_8bit: 1100.0,
        dram_bytes: 2700.0,
        l2_bytes: 3000.0,
    },
];

/// The device of this name.
pub fn device(name: &str) -> Option<&'static Device> {
    DEVICES.iter().find(|d| d.name.eq_ignore_ascii_case(name))
}

/// One launch as it was executed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Launch {
    pub ctas: u64,
    pub threads_per_cta: u32,
    pub registers: u32,
    /// Static and dynamic, of one CTA.
    pub shared_bytes: u64,
    /// Spilled bytes of a thread: stored and loaded once each, at least.
    pub spill_bytes: u64,
    /// Warp-instructions of all CTAs by opcode as PTX has it.
    pub opcodes: BTreeMap<String, u64>,
    /// Shared-memory wavefronts beyond one for each 128 bytes; 0 where they were not counted.
    pub bank_conflicts: u64,
    /// Bytes of inputs and outputs, each once.
    pub tensor_bytes: u64,
}

/// What an instruction is charged to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pipe {
    /// 128 lanes a clock: fma, mul, add of f32, f16x2.
    Float,
    /// 64 lanes: integers, logic, comparisons, minimum, shifts, permutations.
    Integer,
    /// 16 lanes: ex2, rcp, rsqrt, conversions between integers and floats.
    Special,
    /// 32 lanes: conversions to narrow floats.
    Narrow,
    /// 32 lanes: shared memory, shuffles.
    Shared,
    /// Global and local memory.
    Global,
    /// Tensor cores, in multiply-adds.
    Tensor { macs: u32, bits: u8 },
    /// Barriers, branches, moves that cost a slot at most.
    Control,
}

/// The pipe and how many clocks of it a warp's instruction takes.
pub fn classify(opcode: &str) -> (Pipe, f64) {
    let words: Vec<&str> = opcode.split('.').collect();
    let has = |word: &str| words.contains(&word);
    match words[0] {
        "mma" | "wmma" if has("mma") || words[0] == "mma" => (tensor(&words), 0.0),
        "wmma" => (Pipe::Shared, 4.0),
        "ex2" | "lg2" | "rcp" | "rsqrt" | "sqrt" | "sin" | "cos" | "tanh" | "div"
            if has("f32") || has("f16") || has("f16x2") =>
        {
            (Pipe::Special, if has("f16x2") { 4.0 } else { 2.0 })
        }
        "cvt" if has("e4m3x2") || has("e5m2x2") || has("f16x2") || has("bf16x2") => (Pipe::Narrow, 1.0),
        "cvt" if has("f32") && (has("f16") || has("bf16")) => (Pipe::Narrow, 1.0),
        "cvt" => (Pipe::Special, 2.0),
        "fma" | "add" | "sub" | "mul" | "mad"
            if has("f32") || has("f16") || has("f16x2") || has("bf16x2") || has("ftz") =>
        {
            (Pipe::Float, 0.25)
        }
        "fma" | "add" | "sub" | "mul" | "mad" if has("f64") => (Pipe::Special, 16.0),
        "ldmatrix" | "stmatrix" => (
            Pipe::Shared,
            if has("x4") {
                4.0
            } else if has("x2") {
                2.0
            } else {
                1.0
            },
        ),
        "shfl" | "movmatrix" | "redux" => (Pipe::Shared, 1.0),
        "ld" | "st" | "atom" | "red" if has("shared") => (Pipe::Shared, vector(&words)),
        "ld" | "st" | "atom" | "red" if has("param") || has("const") => (Pipe::Control, 0.25),
        "ld" | "st" | "atom" | "red" => (Pipe::Global, vector(&words)),
        "cp" if has("async") && !has("wait_group") && !has("commit_group") && !has("wait_all") => (Pipe::Global, 4.0),
        "bar" | "barrier" | "bra" | "ret" | "exit" | "mov" | "cp" | "membar" | "fence" | "cvta" | "call" => {
            (Pipe::Control, 0.25)
        }
        _ => (Pipe::Integer, 0.5),
    }
}

/// Clocks of 128 bytes each that a warp's access takes without conflicts.
fn vector(words: &[&str]) -> f64 {
    let lanes = if words.contains(&"v4") {
        4.0
    } else if words.contains(&"v2") {
        2.0
    } else {
        1.0
    };
    let bytes = match words.last().map(|w| w.trim_start_matches(|c: char| c.is_ascii_alphabetic())) {
        Some("64") => 8.0,
        Some("16") => 2.0,
        Some("8") => 1.0,
        _ => 4.0,
    };
    (lanes * bytes * 32.0f64 / 128.0).max(1.0)
}

fn tensor(words: &[&str]) -> Pipe {
    let shape = words.iter().find(|w| w.starts_with('m') && w.contains('n') && w.contains('k'));
    let macs = shape
        .and_then(|s| {
            let (m, rest) = s[1..].split_once('n')?;
            let (n, k) = rest.split_once('k')?;
            Some(m.parse::<u32>().ok()? * n.parse::<u32>().ok()? * k.parse::<u32>().ok()?)
        })
        .unwrap_or(16 * 8 * 16);
    let narrow = words.iter().any(|w| matches!(*w, "e4m3" | "e5m2" | "s8" | "u8"));
    Pipe::Tensor { macs, bits: if narrow { 8 } else { 16 } }
}

/// Warps of one multiprocessor that fit at once, and what limits them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Occupancy {
    pub ctas: u32,
    pub warps: u32,
    pub limit: &'static str,
}

/// How many CTAs of a launch fit one multiprocessor at once; 0 where not even one does.
pub fn occupancy(device: &Device, launch: &Launch) -> Occupancy {
    let warps = launch.threads_per_cta.div_ceil(32).max(1);
    // Registers are allotted to a warp in units of 256.
    let per_warp = (launch.registers.max(1) * 32).div_ceil(256) * 256;
    // A CTA's shared memory has a kilobyte of the system's on top.
    let shared = (launch.shared_bytes + 1024).min(u64::from(u32::MAX)) as u32;
    let limits = [
        (device.max_warps / warps, "warps"),
        (device.registers / (per_warp * warps), "registers"),
        (device.shared_bytes / shared, "shared memory"),
        (device.max_ctas, "CTAs"),
    ];
    let (ctas, limit) = limits.into_iter().min_by_key(|(ctas, _)| *ctas).unwrap_or((1, "warps"));
    Occupancy { ctas, warps: ctas * warps, limit }
}

/// Model cycles of one launch. None where it cannot run on the device.
pub fn launch_cycles(device: &Device, launch: &Launch) -> Option<f64> {
    let fits = occupancy(device, launch);
    if fits.ctas == 0 || launch.ctas == 0 {
        return None;
    }
    let sms = f64::from(device.sm_count);
    let per_cta = 1.0 / launch.ctas as f64;
    // A multiprocessor's share, by the CTAs that the fullest one gets.
    let ctas = (launch.ctas as f64 / sms).ceil();
    let mut pipes: BTreeMap<&'static str, f64> = BTreeMap::new();
    let (mut issue, mut chain) = (0.0, 0.0);
    let warps = f64::from(launch.threads_per_cta.div_ceil(32).max(1));
    for (opcode, n) in &launch.opcodes {
        let n = *n as f64 * per_cta;
        let (pipe, clocks) = classify(opcode);
        let (name, clocks, latency) = match pipe {
            Pipe::Float => ("float", clocks, 4.0),
            Pipe::Integer => ("integer", clocks, 5.0),
            Pipe::Special => ("special", clocks, 20.0),
            Pipe::Narrow => ("narrow", clocks, 8.0),
            Pipe::Shared => ("shared", clocks, 24.0),
            Pipe::Global => ("global", clocks, 60.0),
            Pipe::Control => ("control", 0.0, 4.0),
            Pipe::Tensor { macs, bits } => {
                let rate = if bits == 8 { device.mma_8bit } else { device.mma_16bit };
                ("tensor", f64::from(macs) / rate, 18.0)
            }
        };
        *pipes.entry(name).or_default() += n * clocks;
        issue += n * 0.25;
        // A warp's own chain: instructions of one warp follow each other at a third of their latency, for a compiler interleaves them.
        chain += n / warps * latency / 3.0;
    }
    *pipes.entry("shared").or_default() += launch.bank_conflicts as f64 * per_cta;
    *pipes.entry("global").or_default() += launch.spill_bytes as f64 * f64::from(launch.threads_per_cta) / 32.0;
    let busiest = pipes.values().copied().fold(issue, f64::max);
    let sum: f64 = pipes.values().sum::<f64>().max(issue);
    // CTAs at once hide each other's chains; the rest of the pipes shows in part, the less the more warps there are.
    let at_once = ctas.min(f64::from(fits.ctas));
    let waves = (ctas / f64::from(fits.ctas)).ceil();
    let warps_at_once = at_once * warps;
    let exposed = (sum - busiest) / (1.0 + warps_at_once / 8.0);
    let throughput = ctas * (busiest + exposed);
    let latency = waves * chain;
    let memory = launch.tensor_bytes as f64 / device.dram_bytes;
    // Launch, first loads and the last stores of a CTA.
    Some(throughput.max(latency).max(memory) + 0.25 * throughput.min(latency) + 1500.0)
}

/// Model cycles of launches one after the other. None where one cannot run on the device.
pub fn cycles(device: &Device, launches: &[Launch]) -> Option<f64> {
    launches.iter().map(|l| launch_cycles(device, l)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(ctas: u64, opcodes: &[(&str, u64)]) -> Launch {
        let opcodes = opcodes.iter().map(|(o, n)| ((*o).to_string(), *n)).collect();
        Launch { ctas, threads_per_cta: 128, registers: 96, shared_bytes: 20_480, opcodes, ..Launch::default() }
    }

    #[test]
    fn pipes() {
        for (opcode, pipe) in [
            ("ex2.approx.ftz.f32", Pipe::Special),
            ("fma.rn.ftz.f32", Pipe::Float),
            ("max.ftz.f32", Pipe::Integer),
            ("cvt.rn.satfinite.e4m3x2.f32", Pipe::Narrow),
            ("ldmatrix.sync.aligned.m8n8.x4.shared.b16", Pipe::Shared),
            ("st.global.v4.u32", Pipe::Global),
            ("ld.param.u64", Pipe::Control),
            ("cp.async.cg.shared.global", Pipe::Global),
            ("cp.async.wait_group", Pipe::Control),
            ("bar.sync", Pipe::Control),
            ("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", Pipe::Tensor { macs: 4096, bits: 8 }),
            ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", Pipe::Tensor { macs: 2048, bits: 16 }),
            ("wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32", Pipe::Tensor { macs: 4096, bits: 16 }),
        ] {
            assert_eq!(classify(opcode).0, pipe, "{opcode}");
        }
    }

    #[test]
    fn occupancy_names_its_limit() {
        let l4 = device("l4").unwrap();
        let base = launch(1, &[]);
        for (launch, want) in [
            (Launch { shared_bytes: 50_000, ..base.clone() }, (2, "shared memory")),
            (Launch { registers: 255, shared_bytes: 0, ..base.clone() }, (2, "registers")),
            (Launch { registers: 16, shared_bytes: 0, threads_per_cta: 1024, ..base.clone() }, (1, "warps")),
            (Launch { registers: 16, shared_bytes: 0, threads_per_cta: 32, ..base.clone() }, (24, "CTAs")),
            (Launch { shared_bytes: 200_000, ..base }, (0, "shared memory")),
        ] {
            let got = occupancy(l4, &launch);
            assert_eq!((got.ctas, got.limit), want, "{launch:?}");
        }
    }

    /// What an engineer expects of it: more of the same work costs more, half the tensor work less, conflicts and spills something.
    #[test]
    fn it_orders_what_is_plain() {
        let l4 = device("L4").unwrap();
        let work = [("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", 500_000), ("ex2.approx.ftz.f32", 100_000)];
        let base = launch(256, &work);
        let of = |l: &Launch| launch_cycles(l4, l).unwrap();
        assert!(of(&launch(512, &[(work[0].0, 1_000_000), (work[1].0, 200_000)])) > 1.5 * of(&base));
        let wide = [("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", 1_000_000), work[1]];
        assert!(of(&launch(256, &wide)) > 1.2 * of(&base));
        assert!(of(&Launch { bank_conflicts: 20_000_000, ..base.clone() }) > of(&base));
        assert!(of(&Launch { spill_bytes: 4096, ..base.clone() }) > of(&base));
        assert!(of(&Launch { registers: 255, ..base.clone() }) >= of(&base));
        assert_eq!(launch_cycles(l4, &Launch { shared_bytes: 1 << 20, ..base }), None);
    }
}
