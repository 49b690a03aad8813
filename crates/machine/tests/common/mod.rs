//! Shared by the tests: kernels from a few lines of PTX.
#![allow(dead_code, reason = "each test file uses a part")]

use warpsmith_machine::api::Numerics;
use warpsmith_machine::{
    Arg, AsyncCopies, BufferId, Contents, End, Finding, Launch, Memory, Options, Outcome, Program, launch,
};

/// Registers of every kind, for bodies of tests.
pub const REGISTERS: &str = ".reg .pred %p<16>;\n.reg .b16 %h<32>;\n.reg .b32 %r<64>;\n.reg .b64 %rd<32>;\n.reg .f32 %f<32>;\n.reg .f64 %d<16>;\n";

pub fn options() -> Options {
    Options {
        numerics: Numerics::Fast,
        max_instructions: 1_000_000,
        schedule_seed: 0,
        async_copies: AsyncCopies::Late,
        max_shared_bytes: 100 << 10,
        threads: 1,
        ..Options::default()
    }
}

/// A module around function-level or module-level text.
pub fn module(text: &str) -> String {
    format!(".version 8.7\n.target sm_90\n.address_size 64\n{text}\n")
}

/// A kernel `k(in, out)`: `%rd0` and `%rd1` hold the two pointers, `%r0` the thread's number in the block.
pub fn kernel(body: &str) -> String {
    module(&format!(
        ".visible .entry k(.param .u64 in, .param .u64 out)\n{{\n{REGISTERS}ld.param.u64 %rd0, [in];\nld.param.u64 %rd1, [out];\n\
         mov.u32 %r0, %tid.x;\n{body}\nret;\n}}"
    ))
}

pub struct Run {
    pub outcome: Outcome,
    pub memory: Memory,
    pub output: BufferId,
}

impl Run {
    pub fn words(&self) -> Vec<u32> {
        self.memory.read(self.output).chunks_exact(4).map(|c| u32::from_le_bytes([c[0], c[1], c[2], c[3]])).collect()
    }

    /// The findings' words, in order.
    pub fn kinds(&self) -> Vec<&'static str> {
        self.outcome.findings.iter().map(|f| f.kind.word()).collect()
    }
}

/// Runs `k` of a module with an input buffer and an uninitialised output of `out` bytes.
pub fn run_with(ptx: &str, input: &[u8], out: usize, grid: u32, block: u32, shared: u32, options: &Options) -> Run {
    let program = Program::load(ptx).unwrap_or_else(|e| panic!("{e}\n{ptx}"));
    let mut memory = Memory::new();
    let a = memory.alloc("in", Contents::Bytes(input));
    let output = memory.alloc("out", Contents::Uninitialized(out));
    let l = Launch {
        entry: "k".into(),
        grid: [grid, 1, 1],
        block: [block, 1, 1],
        cluster: [1; 3],
        shared_bytes: shared,
        args: vec![Arg::Buffer(a), Arg::Buffer(output)],
    };
    let outcome = launch(&program, &mut memory, &l, options);
    Run { outcome, memory, output }
}

pub fn run(ptx: &str, input: &[u8], out: usize, block: u32) -> Run {
    run_with(ptx, input, out, 1, block, 0, &options())
}

/// Runs a body for one warp; the words that its lanes stored at `out + 4 * lane` from `%r63`.
pub fn lanes(body: &str) -> Vec<u32> {
    let store = "mul.wide.u32 %rd30, %r0, 4;\nadd.u64 %rd31, %rd1, %rd30;\nst.global.u32 [%rd31], %r63;";
    let run = run(&kernel(&format!("{body}\n{store}")), &[0; 4], 128, 32);
    assert_eq!(run.outcome.end, End::Completed, "{body}\n{:?}", run.outcome.findings);
    assert_eq!(run.outcome.findings, [], "{body}");
    run.words()
}

/// The one value that all lanes get in `%r63` or, for 64 bits, `%rd29`.
pub fn value(body: &str, wide: bool) -> u64 {
    let words = lanes(&if wide { format!("{body}\nmov.b64 {{%r63, %r62}}, %rd29;") } else { body.to_string() });
    assert!(words.iter().all(|w| *w == words[0]), "lanes differ: {body}");
    let low = u64::from(words[0]);
    if wide { low | u64::from(lanes(&format!("{body}\nmov.b64 {{%r62, %r63}}, %rd29;"))[0]) << 32 } else { low }
}

pub fn one(run: &Run) -> &Finding {
    assert_eq!(run.outcome.findings.len(), 1, "{:#?}", run.outcome.findings);
    &run.outcome.findings[0]
}

/// Rows of (body that leaves its result in `%r63`, expected).
pub fn check32(rows: &[(&str, u32)]) {
    for (body, expected) in rows {
        let got = value(body, false) as u32;
        assert_eq!(got, *expected, "{body}: got {got:#x}, expected {expected:#x}");
    }
}

/// Rows of (body that leaves its result in `%rd29`, expected).
pub fn check64(rows: &[(&str, u64)]) {
    for (body, expected) in rows {
        let got = value(body, true);
        assert_eq!(got, *expected, "{body}: got {got:#x}, expected {expected:#x}");
    }
}
