//! The estimate by which solutions are ranked where there is no GPU: model cycles of a named device, from what the PTX machine counted
//! and what ptxas allotted. It is not a time, and nothing turns it into one.
//!
//! The model ([`MODEL`]): the warp-instructions of a multiprocessor's share of the grid are charged to pipes by their opcode
//! ([`warpsmith_spec::opcode`]); the busiest pipe bounds it from below, and what the warps that fit at once cannot hide of the other pipes and of
//! their own chains of latencies is added. Waves: a last one that is not full costs as much as a full one. Unequal CTAs: the fullest
//! multiprocessor has the busiest CTA among its share, which bounds what any order of handing out costs.
//! Sources: instructions per clock and multiprocessor of the CUDA C++ Programming Guide ("Arithmetic Instructions") and, for
//! sm_90, this project's own measurements on an H100; dense tensor rates of the cards' data sheets. What it leaves out: caches, DRAM beyond its
//! peak, clocks, the SASS that ptxas makes of the PTX. How well it ranks is published beside measured times (docs/estimate.md).

use std::collections::BTreeMap;
use warpsmith_spec::opcode::{Pipe, pipe};

/// Changes whenever figures may.
pub const MODEL: &str = "warpsmith-model/3";

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
    /// Conversions that ptxas adds to each m16n8k32 of 8-bit floats, and f32 additions, where the device has no such instruction.
    pub mma_8bit_unpacks: f64,
    pub mma_8bit_adds: f64,
    /// Bytes from DRAM, all multiprocessors together.
    pub dram_bytes: f64,
    /// Bytes from the L2, all together.
    pub l2_bytes: f64,
}

/// The devices that can be named. L4 and A100: data sheets. H100: `mma.sync` reaches 62% of the wgmma rate, and 8-bit floats run as
/// 16-bit: ptxas 13.0 makes 64 HMMA, 160 F2FP and 128 additional FADD of level_07's 32 products.
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
        mma_8bit_unpacks: 0.0,
        mma_8bit_adds: 0.0,
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
        mma_8bit_unpacks: 0.0,
        mma_8bit_adds: 0.0,
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
        mma_8bit_unpacks: 5.0,
        mma_8bit_adds: 4.0,
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
        mma_8bit_unpacks: 5.0,
        mma_8bit_adds: 4.0,
        dram_bytes: 2700.0,
        l2_bytes: 3000.0,
    },
];

/// The device of this name.
pub fn device(name: &str) -> Option<&'static Device> {
    DEVICES.iter().find(|d| d.name.eq_ignore_ascii_case(name))
}

/// The device whose name is part of a longer one (`NVIDIA H200`).
pub fn part_of(name: &str) -> Option<&'static Device> {
    let name = name.to_ascii_uppercase();
    DEVICES.iter().rev().find(|d| name.contains(d.name))
}

/// [`part_of`], else the first.
pub fn like(name: &str) -> &'static Device {
    part_of(name).unwrap_or(&DEVICES[0])
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
    /// Warp-instructions of the CTA that executes most; 0 where that was not counted.
    pub busiest_cta: u64,
    /// Shared-memory wavefronts beyond one for each 128 bytes; 0 where they were not counted.
    pub bank_conflicts: u64,
    /// Sectors of 32 bytes of global memory that the accesses of warps touch; 0 where they were not counted.
    pub global_sectors: u64,
    /// Bytes of inputs and outputs, each once.
    pub tensor_bytes: u64,
}

/// Shares what was counted over all launches among them: conflicts by what each charges to shared memory, sectors by what to global memory.
pub fn spread_traffic(launches: &mut [Launch], bank_conflicts: u64, global_sectors: u64) {
    let same = |pipe: Pipe| if pipe == Pipe::Load { Pipe::Global } else { pipe };
    let charged = |launch: &Launch, wanted: Pipe| -> f64 {
        let clocks = launch.opcodes.iter().map(|(opcode, n)| (pipe(opcode), *n as f64));
        clocks.filter(|((pipe, _), _)| same(*pipe) == wanted).map(|((_, clocks), n)| clocks * n).sum()
    };
    for (wanted, total) in [(Pipe::Shared, bank_conflicts), (Pipe::Global, global_sectors)] {
        let shares: Vec<f64> = launches.iter().map(|l| charged(l, wanted)).collect();
        let all: f64 = shares.iter().sum();
        for (launch, share) in launches.iter_mut().zip(shares) {
            let part = if all > 0.0 { (total as f64 * share / all).round() as u64 } else { 0 };
            match wanted {
                Pipe::Shared => launch.bank_conflicts = part,
                _ => launch.global_sectors = part,
            }
        }
    }
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
    let warps = f64::from(launch.threads_per_cta.div_ceil(32).max(1));
    let mut work = Work::default();
    for (opcode, n) in &launch.opcodes {
        work.charge(device, opcode, *n as f64 * per_cta);
    }
    let Work { mut pipes, issue, chain } = work;
    // Where warps hand work to each other, one of them at least computes nothing.
    let has = |word: &str| launch.opcodes.keys().any(|o| o.starts_with(word));
    let idle = if has("bar.arrive") || has("barrier.arrive") || has("mbarrier") { 1.0 } else { 0.0 };
    // A warp's own chain: instructions of one warp follow each other at a third of their latency, for a compiler interleaves them.
    let chain = chain / (warps - idle).max(1.0) / 3.0;
    *pipes.entry("shared").or_default() += launch.bank_conflicts as f64 * per_cta;
    *pipes.entry("global").or_default() += launch.spill_bytes as f64 * f64::from(launch.threads_per_cta) / 32.0;
    let busiest = pipes.values().copied().fold(issue, f64::max);
    let sum: f64 = pipes.values().sum::<f64>().max(issue);
    // CTAs at once hide each other's chains; the rest of the pipes shows in part, the less the more warps there are.
    let at_once = ctas.min(f64::from(fits.ctas));
    let waves = (ctas / f64::from(fits.ctas)).ceil();
    let warps_at_once = at_once * warps;
    let exposed = (sum - busiest) / (1.0 + warps_at_once / 8.0);
    // One of a multiprocessor's CTAs, and of its waves, may be the busiest one; the others are taken as the mean.
    let beyond_mean = imbalance(launch) - 1.0;
    let throughput = (ctas + beyond_mean) * (busiest + exposed);
    let latency = (waves + beyond_mean) * chain;
    let memory = launch.tensor_bytes as f64 / device.dram_bytes;
    let l2 = launch.global_sectors as f64 * 32.0 / device.l2_bytes;
    Some(throughput.max(latency).max(memory).max(l2) + 0.25 * throughput.min(latency) + LAUNCH)
}

/// How many times the mean CTA's work the busiest one does, by the instructions that they execute; 1 where that was not counted.
fn imbalance(launch: &Launch) -> f64 {
    let all: u64 = launch.opcodes.values().sum();
    let mean = all as f64 / launch.ctas.max(1) as f64;
    if all > 0 { (launch.busiest_cta as f64 / mean).max(1.0) } else { 1.0 }
}

/// Launch, first loads and the last stores of a CTA.
const LAUNCH: f64 = 2500.0;

/// What a CTA charges to pipes, in clocks, to issue slots, and to the latencies of all its warps.
#[derive(Default)]
struct Work {
    pipes: BTreeMap<&'static str, f64>,
    issue: f64,
    chain: f64,
}

impl Work {
    fn charge(&mut self, device: &Device, opcode: &str, n: f64) {
        let (pipe, clocks) = pipe(opcode);
        let (name, clocks, latency) = match pipe {
            Pipe::Float => ("float", clocks, 4.0),
            Pipe::Integer => ("integer", clocks, 5.0),
            Pipe::Special => ("special", clocks, 20.0),
            Pipe::Narrow => ("narrow", clocks, 8.0),
            Pipe::Shared | Pipe::Shuffle => ("shared", clocks, 24.0),
            Pipe::Global => ("global", clocks, 60.0),
            Pipe::Load => ("global", clocks, 200.0),
            Pipe::Barrier => ("control", 0.0, 90.0),
            Pipe::Control => ("control", 0.0, 4.0),
            Pipe::Free => return,
            Pipe::Tensor { macs, bits } => {
                // A product of twice the depth passes through twice.
                let deep = f64::from(macs) / if bits == 8 && device.mma_8bit_unpacks == 0.0 { 4096.0 } else { 2048.0 };
                if bits == 8 {
                    self.unpack(device, n * f64::from(macs) / 4096.0);
                }
                let rate = if bits == 8 { device.mma_8bit } else { device.mma_16bit };
                ("tensor", f64::from(macs) / rate, 25.0 * deep)
            }
        };
        self.pipes.entry(name).and_modify(|c| *c += n * clocks).or_insert(n * clocks);
        self.issue += n * 0.25;
        self.chain += n * latency;
    }

    /// What 8-bit products cost more on a device that has none.
    fn unpack(&mut self, device: &Device, products: f64) {
        let (unpacks, adds) = (products * device.mma_8bit_unpacks, products * device.mma_8bit_adds);
        if unpacks > 0.0 {
            *self.pipes.entry("narrow").or_default() += unpacks;
            *self.pipes.entry("float").or_default() += adds * 0.25;
            self.issue += (unpacks + adds + products) * 0.25;
            self.chain += unpacks * 8.0 + adds * 4.0;
        }
    }
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
        assert!(of(&Launch { global_sectors: 1 << 30, ..base.clone() }) > 2.0 * of(&base));
        assert_eq!(launch_cycles(l4, &Launch { shared_bytes: 1 << 20, ..base }), None);
    }

    /// A causal mask halves the work and not the time while every CTA has a multiprocessor of its own; with many for each it matters little.
    #[test]
    fn the_busiest_cta_decides_where_ctas_are_few() {
        let l4 = device("L4").unwrap();
        // Work for each CTA: one clock of the special functions each.
        let of = |ctas: u64, mean: u64, busiest_cta: u64| {
            let one = launch(ctas, &[("ex2.approx.ftz.f32", ctas * mean)]);
            launch_cycles(l4, &Launch { busiest_cta, ..one }).unwrap()
        };
        let whole = of(32, 100_000, 100_000);
        assert_eq!(of(32, 100_000, 0), whole, "records that do not know count the mean");
        assert!((of(32, 50_000, 100_000) / whole - 1.0).abs() < 0.01, "the busiest CTA alone is as long as all were");
        let (equal, unequal) = (of(58 * 50, 10_000, 10_000), of(58 * 50, 10_000, 20_000));
        assert!(unequal > equal && unequal < 1.03 * equal, "{equal} {unequal}");
        assert!(of(58 * 2, 10_000, 40_000) > 2.0 * of(58 * 2, 10_000, 10_000));
    }

    /// 8-bit products are native on Ada, and made of 16-bit ones on Hopper, where they gain nothing.
    #[test]
    fn eight_bit_products_are_worth_what_the_device_makes_of_them() {
        let narrow = launch(4096, &[("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", 4_000_000)]);
        let wide = launch(4096, &[("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", 8_000_000)]);
        for (name, gains) in [("L4", true), ("H100", false), ("H200", false)] {
            let of = |l: &Launch| launch_cycles(device(name).unwrap(), l).unwrap();
            assert_eq!(of(&wide) > 1.3 * of(&narrow), gains, "{name}");
        }
    }

    #[test]
    fn traffic_is_shared_among_launches_by_what_they_access() {
        let shared = launch(8, &[("ld.shared.v4.f32", 300), ("ld.global.f32", 10)]);
        let global = launch(8, &[("ld.shared.v4.f32", 100), ("st.global.f32", 10)]);
        let mut both = [shared, global];
        spread_traffic(&mut both, 40, 8);
        assert_eq!((both[0].bank_conflicts, both[1].bank_conflicts), (30, 10));
        assert_eq!(both[0].global_sectors + both[1].global_sectors, 8);
        spread_traffic(&mut [], 40, 8);
    }
}
