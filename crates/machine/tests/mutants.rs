//! Mutated kernels: whatever a text says, the machine answers with an outcome or a load error, never with a panic, and soon.
//! Deleted, doubled and swapped lines, changed numbers, types and registers; seeds are fixed.

mod common;
use common::options;
use warpsmith_machine::{Arg, Contents, End, Launch, Memory, Options, Program, launch};

struct Draw(u64);

impl Draw {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % n.max(1)
    }
}

fn mutate(text: &str, draw: &mut Draw) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_string).collect();
    for _ in 0..=draw.below(4) {
        let at = draw.below(lines.len());
        match draw.below(6) {
            0 => {
                lines.remove(at);
            }
            1 => lines.insert(at, lines[at].clone()),
            2 => {
                let other = draw.below(lines.len());
                lines.swap(at, other);
            }
            3 => {
                let digits: Vec<usize> =
                    lines[at].char_indices().filter(|c| c.1.is_ascii_digit()).map(|c| c.0).collect();
                if !digits.is_empty() {
                    let d = digits[draw.below(digits.len())];
                    let new = draw.below(10).to_string();
                    lines[at].replace_range(d..d + 1, &new);
                }
            }
            4 => {
                let types = [
                    ("u32", "s8"),
                    ("f32", "f16x2"),
                    ("b32", "b64"),
                    ("s32", "u16"),
                    ("u64", "u32"),
                    ("shared", "local"),
                    ("global", "const"),
                ];
                let (from, to) = types[draw.below(types.len())];
                lines[at] = lines[at].replacen(from, to, 1);
            }
            _ => {
                let other = lines[draw.below(lines.len())].clone();
                lines.insert(at, other);
            }
        }
    }
    lines.join("\n")
}

#[test]
fn no_text_makes_the_machine_panic() {
    let kernels = [
        (include_str!("kernels/sdpa_mma_e4m3.ptx"), "sdpa_mma_e4m3", 128),
        (include_str!("kernels/sdpa_wmma.ptx"), "sdpa_wmma", 32),
        (include_str!("kernels/sdpa_missing_barrier.ptx"), "sdpa_missing_barrier", 64),
    ];
    let options = Options { max_instructions: 30_000, ..options() };
    let (mut loaded, mut completed, mut faulted) = (0, 0, 0);
    for (n, (text, entry, block)) in kernels.into_iter().enumerate() {
        let mut draw = Draw(n as u64 + 1);
        for _ in 0..120 {
            let text = mutate(text, &mut draw);
            let Ok(program) = Program::load(&text) else { continue };
            loaded += 1;
            let mut memory = Memory::new();
            let ids: Vec<_> =
                (0..7).map(|n| memory.alloc("tensor", Contents::Bytes(&vec![n as u8 + 0x30; 64 * 64]))).collect();
            let mut args: Vec<Arg> = ids.into_iter().map(Arg::Buffer).collect();
            args.push(Arg::Bytes(1f32.to_le_bytes().to_vec()));
            args.push(Arg::Bytes(16i32.to_le_bytes().to_vec()));
            let l = Launch {
                entry: entry.into(),
                grid: [1; 3],
                block: [block, 1, 1],
                cluster: [1; 3],
                shared_bytes: 0,
                args,
            };
            let outcome = launch(&program, &mut memory, &l, &options);
            completed += usize::from(outcome.end == End::Completed);
            faulted += usize::from(outcome.end == End::Faulted);
            assert!(outcome.end != End::Faulted || !outcome.findings.is_empty(), "a fault without a finding");
        }
    }
    assert!(
        loaded > 100 && completed > 10 && faulted > 10,
        "{loaded} loaded, {completed} completed, {faulted} faulted"
    );
}
