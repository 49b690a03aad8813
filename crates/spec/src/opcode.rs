//! Which unit of a multiprocessor an opcode of PTX keeps busy, and for how many clocks: the one table by which the estimate of a loop charges work
//! and gate 4 tells what a kernel gives most to do. Pure data; it knows no device's tensor rates and no latencies.
//!
//! Sources: instructions for each clock and multiprocessor of the CUDA C++ Programming Guide ("Arithmetic Instructions"), and lanes a clock as
//! measured on an H100 (2026-11-20: ex2 16, conversions to narrow floats 32, integers, comparisons and permutations 64, f32 arithmetic 128,
//! shuffles 32). Limits: PTX is not SASS, so what ptxas merges counts twice.

/// A unit of a multiprocessor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pipe {
    /// 128 lanes a clock: fma, mul, add of f32, f16x2.
    Float,
    /// 64 lanes: integers, logic, comparisons, minimum, permutations.
    Integer,
    /// 16 lanes: ex2, rcp, rsqrt, conversions between integers and floats.
    Special,
    /// 32 lanes: conversions to and from narrow floats.
    Narrow,
    /// 32 lanes: shuffles, which take the way of shared memory and touch none.
    Shuffle,
    /// 128 bytes a clock: accesses of shared memory, where there are no bank conflicts.
    Shared,
    /// Global and local memory, copies that nobody waits for at once.
    Global,
    /// Loads of global memory whose value the warp waits for.
    Load,
    /// Barriers of a CTA.
    Barrier,
    /// Moves between registers and conversions between whole numbers, which machine code mostly does without.
    Free,
    /// Tensor cores, in multiply-adds.
    Tensor { macs: u32, bits: u8 },
    /// Branches and whatever costs a slot at most.
    Control,
}

/// The unit of a warp's instruction and how many of its clocks that takes; of tensor products their device knows the clocks.
pub fn pipe(opcode: &str) -> (Pipe, f64) {
    let words: Vec<&str> = opcode.split('.').collect();
    let has = |word: &str| words.contains(&word);
    match words[0] {
        "mma" => (tensor(&words), 0.0),
        "wgmma" if has("mma_async") => (tensor(&words), 0.0),
        "wmma" if has("mma") => (tensor(&words), 0.0),
        // A tile of 16 x 16: 512 bytes of f16, 1024 of f32.
        "wmma" => (Pipe::Shared, if has("f32") { 8.0 } else { 4.0 }),
        "ex2" | "lg2" | "rcp" | "rsqrt" | "sqrt" | "sin" | "cos" | "tanh" | "div" if is_float(&words) => {
            (Pipe::Special, if has("f16x2") || has("bf16x2") { 4.0 } else { 2.0 })
        }
        "cvt" if has("e4m3x2") || has("e5m2x2") || has("f16x2") || has("bf16x2") => (Pipe::Narrow, 1.0),
        "cvt" if has("f32") && (has("f16") || has("bf16")) => (Pipe::Narrow, 1.0),
        // Between whole numbers it is a choice of registers.
        "cvt" if words[1..].iter().all(|w| w.starts_with(['u', 's'])) => (Pipe::Free, 0.0),
        "cvt" => (Pipe::Special, 2.0),
        "fma" | "add" | "sub" | "mul" | "mad" if is_float(&words) => (Pipe::Float, 0.25),
        "fma" | "add" | "sub" | "mul" | "mad" if has("f64") => (Pipe::Special, 16.0),
        "ldmatrix" | "stmatrix" if has("x4") => (Pipe::Shared, 4.0),
        "ldmatrix" | "stmatrix" if has("x2") => (Pipe::Shared, 2.0),
        "ldmatrix" | "stmatrix" => (Pipe::Shared, 1.0),
        "shfl" | "movmatrix" | "redux" => (Pipe::Shuffle, 1.0),
        "ld" | "st" | "atom" | "red" if words.iter().any(|w| w.starts_with("shared")) => (Pipe::Shared, vector(&words)),
        "ld" | "st" | "atom" | "red" if words.iter().any(|w| w.starts_with("param") || *w == "const") => {
            (Pipe::Control, 0.25)
        }
        "ld" | "atom" => (Pipe::Load, vector(&words)),
        "st" | "red" => (Pipe::Global, vector(&words)),
        "cp" if has("async") && !words.iter().any(|w| WAITS.contains(w)) => (Pipe::Global, 4.0),
        "bar" | "barrier" if !has("warp") && !has("arrive") => (Pipe::Barrier, 0.25),
        "mov" => (Pipe::Free, 0.0),
        "bar" | "barrier" | "mbarrier" | "bra" | "ret" | "exit" | "cp" | "wgmma" | "membar" | "fence" | "cvta"
        | "call" => (Pipe::Control, 0.25),
        _ => (Pipe::Integer, 0.5),
    }
}

/// What of the copies is no copy.
const WAITS: [&str; 3] = ["wait_group", "commit_group", "wait_all"];

/// Floats that 32-bit lanes compute with.
fn is_float(words: &[&str]) -> bool {
    words.iter().any(|w| matches!(*w, "f32" | "f16" | "f16x2" | "bf16" | "bf16x2"))
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
    let macs = words.iter().find_map(|w| shape(w)).unwrap_or(16 * 8 * 16);
    let narrow = words.iter().any(|w| matches!(*w, "e4m3" | "e5m2" | "s8" | "u8"));
    Pipe::Tensor { macs, bits: if narrow { 8 } else { 16 } }
}

/// Multiply-adds of `m16n8k32`.
fn shape(word: &str) -> Option<u32> {
    let (m, rest) = word.strip_prefix('m')?.split_once('n')?;
    let (n, k) = rest.split_once('k')?;
    let of = |s: &str| s.parse::<u32>().ok();
    of(m)?.checked_mul(of(n)?)?.checked_mul(of(k)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opcodes_go_to_their_units() {
        let product = |macs, bits| Pipe::Tensor { macs, bits };
        for (opcode, want, clocks) in [
            ("ex2.approx.ftz.f32", Pipe::Special, 2.0),
            ("ex2.approx.ftz.f16x2", Pipe::Special, 4.0),
            ("fma.rn.ftz.f32", Pipe::Float, 0.25),
            ("fma.rn.bf16x2", Pipe::Float, 0.25),
            ("fma.rn.f64", Pipe::Special, 16.0),
            ("max.ftz.f32", Pipe::Integer, 0.5),
            ("prmt.b32", Pipe::Integer, 0.5),
            ("cvt.rn.satfinite.e4m3x2.f32", Pipe::Narrow, 1.0),
            ("cvt.f32.f16", Pipe::Narrow, 1.0),
            ("cvt.u64.u32", Pipe::Free, 0.0),
            ("cvt.rn.f32.s32", Pipe::Special, 2.0),
            ("cvt.rni.s32.f32", Pipe::Special, 2.0),
            ("mov.f32", Pipe::Free, 0.0),
            ("ldmatrix.sync.aligned.m8n8.x4.shared.b16", Pipe::Shared, 4.0),
            ("ld.shared.v4.f32", Pipe::Shared, 4.0),
            ("ld.shared::cta.u8", Pipe::Shared, 1.0),
            ("wmma.load.a.sync.aligned.row.m16n16k16.shared.f16", Pipe::Shared, 4.0),
            ("shfl.sync.bfly.b32", Pipe::Shuffle, 1.0),
            ("st.global.v4.u32", Pipe::Global, 4.0),
            ("ld.global.nc.v4.u32", Pipe::Load, 4.0),
            ("ld.param.u64", Pipe::Control, 0.25),
            ("cp.async.cg.shared.global", Pipe::Global, 4.0),
            ("cp.async.wait_group", Pipe::Control, 0.25),
            ("bar.sync", Pipe::Barrier, 0.25),
            ("bar.arrive", Pipe::Control, 0.25),
            ("bar.warp.sync", Pipe::Control, 0.25),
            ("mbarrier.try_wait.parity.shared.b64", Pipe::Control, 0.25),
            ("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", product(4096, 8), 0.0),
            ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", product(2048, 16), 0.0),
            ("wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32", product(4096, 16), 0.0),
            ("wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3", product(262_144, 8), 0.0),
            ("wgmma.wait_group.sync.aligned", Pipe::Control, 0.25),
            ("mma.m99999n99999k99999", product(2048, 16), 0.0),
            ("", Pipe::Integer, 0.5),
        ] {
            assert_eq!(pipe(opcode), (want, clocks), "{opcode}");
        }
    }
}
