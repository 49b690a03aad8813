//! Runs kernels of a PTX file on the machine, from the command line:
//!
//! ```text
//! run_ptx FILE.ptx --in q=q.bin --out o=4096 --launch ENTRY 1,1,1 128,1,1 0 q o i32:64 f32:0.125 [--launch ...]
//!         [--dump o=o.bin] [--numerics fast|ampere|ada|hopper] [--threads N] [--seed N] [--early] [--limit N]
//! ```
//! `--in` gives a buffer's bytes, `--out` the size of one that starts uninitialised. Findings go to standard output.

use std::collections::HashMap;
use std::process::ExitCode;

use warpsmith_machine::api::Numerics;
use warpsmith_machine::{Arg, AsyncCopies, BufferId, Contents, Launch, Memory, Options, Program, launch};
use warpsmith_num::tensor_core::Generation;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

fn dims(text: &str) -> Result<[u32; 3], String> {
    let mut d = [1; 3];
    for (n, part) in text.split(',').take(3).enumerate() {
        d[n] = part.parse().map_err(|_| format!("dimension {part}"))?;
    }
    Ok(d)
}

fn argument(text: &str, buffers: &HashMap<String, BufferId>) -> Result<Arg, String> {
    let bad = |_| format!("argument {text}");
    Ok(match text.split_once(':') {
        Some(("i32", v)) => Arg::Bytes(v.parse::<i32>().map_err(|e| bad(e.to_string()))?.to_le_bytes().to_vec()),
        Some(("i64", v)) => Arg::Bytes(v.parse::<i64>().map_err(|e| bad(e.to_string()))?.to_le_bytes().to_vec()),
        Some(("f32", v)) => Arg::Bytes(v.parse::<f32>().map_err(|e| bad(e.to_string()))?.to_le_bytes().to_vec()),
        Some(("hex", v)) => {
            let digit = |n: usize| v.get(n..n + 2).and_then(|d| u8::from_str_radix(d, 16).ok());
            let bytes: Option<Vec<u8>> = (0..v.len()).step_by(2).map(digit).collect();
            Arg::Bytes(bytes.ok_or_else(|| bad("hex digits".into()))?)
        }
        Some(("f64", v)) => Arg::Bytes(v.parse::<f64>().map_err(|e| bad(e.to_string()))?.to_le_bytes().to_vec()),
        _ => Arg::Buffer(*buffers.get(text).ok_or_else(|| format!("no buffer {text}"))?),
    })
}

fn run() -> Result<(), String> {
    let mut args = std::env::args().skip(1).peekable();
    let file = args.next().ok_or("run_ptx FILE.ptx ...")?;
    let ptx = std::fs::read_to_string(&file).map_err(|e| format!("{file}: {e}"))?;
    let started = std::time::Instant::now();
    let program = Program::load(&ptx).map_err(|e| e.to_string())?;
    eprintln!("loaded in {:.1} ms", started.elapsed().as_secs_f64() * 1e3);
    let mut memory = Memory::new();
    let mut buffers = HashMap::new();
    let mut options = Options {
        numerics: Numerics::Fast,
        max_instructions: u64::MAX,
        schedule_seed: 0,
        async_copies: AsyncCopies::Late,
        max_shared_bytes: 232_448,
        threads: 0,
        ..Options::default()
    };
    let (mut launches, mut dumps) = (Vec::new(), Vec::new());
    while let Some(word) = args.next() {
        let mut value = || args.next().ok_or(format!("{word} needs a value"));
        let number = |v: String| v.parse::<u64>().map_err(|_| format!("number {v}"));
        match word.as_str() {
            "--in" | "--out" | "--dump" => {
                let v = value()?;
                let (name, what) = v.split_once('=').ok_or(format!("{word} NAME=..."))?;
                match word.as_str() {
                    "--in" => {
                        let bytes = std::fs::read(what).map_err(|e| format!("{what}: {e}"))?;
                        buffers.insert(name.to_string(), memory.alloc(name, Contents::Bytes(&bytes)));
                    }
                    "--out" => {
                        let len = number(what.to_string())? as usize;
                        buffers.insert(name.to_string(), memory.alloc(name, Contents::Uninitialized(len)));
                    }
                    _ => dumps.push((name.to_string(), what.to_string())),
                }
            }
            "--numerics" => {
                options.numerics = match value()?.as_str() {
                    "ampere" => Numerics::Faithful(Generation::Ampere),
                    "ada" => Numerics::Faithful(Generation::Ada),
                    "hopper" => Numerics::Faithful(Generation::Hopper),
                    _ => Numerics::Fast,
                }
            }
            "--threads" => options.threads = number(value()?)? as usize,
            "--seed" => options.schedule_seed = number(value()?)?,
            "--limit" => options.max_instructions = number(value()?)?,
            "--early" => options.async_copies = AsyncCopies::Early,
            "--launch" => {
                let (entry, grid, block) = (value()?, dims(&value()?)?, dims(&value()?)?);
                let shared_bytes = number(value()?)? as u32;
                let mut list = Vec::new();
                while let Some(a) = args.next_if(|a| !a.starts_with("--")) {
                    list.push(a);
                }
                launches.push((Launch { entry, grid, block, cluster: [1; 3], shared_bytes, args: Vec::new() }, list));
            }
            other => return Err(format!("unknown option {other}")),
        }
    }
    for (mut l, list) in launches {
        l.args = list.iter().map(|a| argument(a, &buffers)).collect::<Result<_, _>>()?;
        let started = std::time::Instant::now();
        let outcome = launch(&program, &mut memory, &l, &options);
        let seconds = started.elapsed().as_secs_f64();
        println!("{}: {:?}", l.entry, outcome.end);
        let c = &outcome.counters;
        println!(
            "  {} of {} instructions covered, {} executed by warps, {} by lanes, {} tensor operations; the machine took {seconds:.3} s",
            c.covered_instructions, c.static_instructions, c.warp_instructions, c.lane_instructions, c.tensor_ops
        );
        for f in &outcome.findings {
            println!(
                "  {} at {:?}:{:?} ({}, PTX {}): {}",
                f.kind.word(),
                f.site.file,
                f.site.line,
                f.site.opcode,
                f.site.ptx_line,
                f.message
            );
            if let Some(o) = &f.other {
                println!("    other: line {:?} ({}, PTX {})", o.line, o.opcode, o.ptx_line);
            }
            println!("    cta {:?} warp {} lane {:?}, {} times", f.cta, f.warp, f.lane, f.count);
        }
        print!("{}", outcome.printed);
    }
    for (name, file) in dumps {
        let id = buffers.get(&name).ok_or(format!("no buffer {name}"))?;
        std::fs::write(&file, memory.read(*id)).map_err(|e| format!("{file}: {e}"))?;
    }
    Ok(())
}
