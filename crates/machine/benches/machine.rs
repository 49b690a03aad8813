//! How fast the machine executes two kernels of the ladder: `cargo bench -p warpsmith-machine [-- THREADS [REPETITIONS [ROW]]]`, where
//! ROW is part of the names of the rows that are wanted.
//!
//! The kernels are fixtures, as NVRTC 13.0.88 compiled levels 00 and 07 for sm_89, so that figures stay comparable when the ladder
//! changes. Each row is the best of several runs with detectors on, and with those of memory off: what they cost. Targets are for two
//! idle cores. With one thread, on Linux, it is time on the processor, which other work on the host does not lengthen much. The time of a launch is all of it: buffers' shadows are made before, findings and counters after it.

use std::time::Instant;

use warpsmith_machine::api::Numerics;
use warpsmith_machine::{Arg, Contents, Detectors, End, Launch, Memory, Options, Program, launch};
use warpsmith_num::tensor_core::Generation;

const LEVEL_00: &str = include_str!("kernels/level_00.ptx");
const LEVEL_07: &str = include_str!("kernels/level_07.ptx");

struct Row {
    name: &'static str,
    ptx: &'static str,
    entry: &'static str,
    shared_bytes: u32,
    heads: u32,
    seq: u32,
    numerics: Numerics,
    /// Seconds, with detectors on.
    target: f64,
}

const FAITHFUL: Numerics = Numerics::Faithful(Generation::Ada);

#[rustfmt::skip]
const ROWS: [Row; 5] = [
    Row { name: "level_07, 1x8x512x64, fast", ptx: LEVEL_07, entry: "fp8_sdpa_level_07", shared_bytes: 20480, heads: 8, seq: 512, numerics: Numerics::Fast, target: 0.08 },
    Row { name: "level_07, 1x8x512x64, faithful", ptx: LEVEL_07, entry: "fp8_sdpa_level_07", shared_bytes: 20480, heads: 8, seq: 512, numerics: FAITHFUL, target: 0.2 },
    Row { name: "level_07, 2x8x2048x64, fast", ptx: LEVEL_07, entry: "fp8_sdpa_level_07", shared_bytes: 20480, heads: 16, seq: 2048, numerics: Numerics::Fast, target: 1.5 },
    Row { name: "level_07, 2x8x2048x64, faithful", ptx: LEVEL_07, entry: "fp8_sdpa_level_07", shared_bytes: 20480, heads: 16, seq: 2048, numerics: FAITHFUL, target: 4.0 },
    Row { name: "level_00, 1x8x512x64, scalar", ptx: LEVEL_00, entry: "fp8_sdpa_level_00", shared_bytes: 0, heads: 8, seq: 512, numerics: Numerics::Fast, target: 0.6 },
];

/// Codes of e4m3 of up to 2 in size.
fn codes(seed: u32, count: usize) -> Vec<u8> {
    let mut x = seed;
    let mut next = || {
        x = x.wrapping_mul(1664525).wrapping_add(1013904223);
        let code = (x >> 24) as u8;
        if code & 0x7F > 0x40 { code & 0x87 | 0x38 } else { code }
    };
    (0..count).map(|_| next()).collect()
}

/// Seconds of one launch.
fn once(row: &Row, program: &Program, threads: usize, detectors: Detectors) -> Result<f64, String> {
    let (heads, seq) = (row.heads as usize, row.seq as usize);
    let mut memory = Memory::new();
    let mut args: Vec<Arg> = Vec::new();
    for (n, name) in ["q", "k", "v"].into_iter().enumerate() {
        let bytes = codes(n as u32 + 1, heads * seq * 64);
        args.push(Arg::Buffer(memory.alloc(name, Contents::Bytes(&bytes))));
    }
    for name in ["q_scale", "k_scale", "v_scale"] {
        args.push(Arg::Buffer(memory.alloc(name, Contents::Bytes(&1f32.to_le_bytes().repeat(heads)))));
    }
    args.push(Arg::Buffer(memory.alloc("out", Contents::Poison(2 * heads * seq * 64))));
    args.push(Arg::Bytes(0.125f32.to_le_bytes().to_vec()));
    args.push(Arg::Bytes(row.seq.to_le_bytes().to_vec()));
    args.push(Arg::Bytes(vec![0; 4]));
    let l = Launch {
        entry: row.entry.into(),
        grid: [row.seq.div_ceil(64), row.heads, 1],
        block: [128, 1, 1],
        cluster: [1; 3],
        shared_bytes: row.shared_bytes,
        args,
    };
    let o = Options { numerics: row.numerics, max_instructions: u64::MAX, threads, detectors, ..Options::default() };
    let (started, before) = (Instant::now(), on_processor());
    let outcome = launch(program, &mut memory, &l, &o);
    let seconds = match (threads, before, on_processor()) {
        (1, Some(before), Some(after)) => after - before,
        _ => started.elapsed().as_secs_f64(),
    };
    if outcome.end != End::Completed || !outcome.findings.is_empty() {
        return Err(format!("{}: {:?}, {} findings", row.name, outcome.end, outcome.findings.len()));
    }
    Ok(seconds)
}

/// Seconds that this thread has run, where the system tells.
fn on_processor() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_whitespace().next()?.parse::<f64>().ok().map(|nanoseconds| nanoseconds / 1e9)
}

fn best(repetitions: usize, mut f: impl FnMut() -> Result<f64, String>) -> Result<f64, String> {
    (0..repetitions.max(1)).try_fold(f64::INFINITY, |least, _| Ok(least.min(f()?)))
}

fn run(threads: usize, repetitions: usize, wanted: &str) -> Result<(), String> {
    let what = if threads == 1 && on_processor().is_some() { "time on the processor" } else { "elapsed time" };
    println!("{threads} host threads, {what}, best of {repetitions}");
    println!("{:34} {:>9} {:>9} {:>7} {:>7}", "kernel, shape, sums", "on", "off", "on/off", "target");
    for row in ROWS.iter().filter(|row| row.name.contains(wanted)) {
        let program = Program::load(row.ptx).map_err(|e| e.to_string())?;
        let on = best(repetitions, || once(row, &program, threads, Detectors::On))?;
        let off = best(repetitions, || once(row, &program, threads, Detectors::Off))?;
        println!("{:34} {on:7.3} s {off:7.3} s {:7.2} {:5.2} s", row.name, on / off, row.target);
    }
    for (name, ptx) in [("level_00", LEVEL_00), ("level_07", LEVEL_07)] {
        let load = best(5 * repetitions, || {
            let started = Instant::now();
            Program::load(ptx).map_err(|e| e.to_string())?;
            Ok(started.elapsed().as_secs_f64())
        })?;
        println!("parse and decode {name:17} {:7.2} ms {:25} 5 ms", load * 1e3, "");
    }
    Ok(())
}

fn main() -> std::process::ExitCode {
    // Cargo adds an argument of its own.
    let (numbers, words): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).filter(|a| a != "--bench").partition(|a| a.parse::<usize>().is_ok());
    let mut numbers = numbers.iter().filter_map(|a| a.parse().ok());
    let (threads, repetitions) = (numbers.next().unwrap_or(2), numbers.next().unwrap_or(5));
    match run(threads, repetitions, words.first().map_or("", |w| w)) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            std::process::ExitCode::FAILURE
        }
    }
}
