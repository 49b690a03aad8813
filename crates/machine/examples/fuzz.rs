//! `fuzz COUNT [SEED [FOLDER ...]]`: mutants of small modules, one for each instruction form, or of the PTX files of folders, through reader and decoder. Ends with 1 at the first that
//! panics or takes more than two seconds, and shows it. The mutants of a seed are the same in every run.

use std::panic::catch_unwind;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use warpsmith_machine::{Program, forms};

/// SplitMix64 (Steele, Lea, Flood 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

const WORDS: [&str; 20] = [
    "{",
    "}",
    "[",
    "]",
    "(",
    ")",
    ";",
    ",",
    "|",
    "!",
    "_",
    "-1",
    "4294967296",
    "0f7F800000",
    "%tid.x",
    ".reg .b64 %x;",
    ".shared .b8 s[4096];",
    "@%v0 ",
    ".sat",
    ".v4",
];

/// A modifier of another form in place of one, a word from the list, or bytes that are changed, doubled or left out.
fn mutate(seed: &str, other: &str, r: &mut Random) -> String {
    let mut bytes = seed.as_bytes().to_vec();
    for _ in 0..1 + r.below(3) {
        if bytes.is_empty() {
            break;
        }
        let at = r.below(bytes.len());
        let end = (at + 1 + r.below(24)).min(bytes.len());
        match r.below(7) {
            0 => bytes[at] = r.next() as u8,
            1 => bytes[at] ^= 1 << r.below(7),
            2 => drop(bytes.drain(at..end)),
            3 => {
                let copy = bytes[at..end].to_vec();
                bytes.splice(at..at, copy);
            }
            4 => {
                let from = r.below(other.len());
                let to = (from + 1 + r.below(32)).min(other.len());
                bytes.splice(at..end, other.as_bytes()[from..to].iter().copied());
            }
            _ => {
                let word = WORDS[r.below(WORDS.len())];
                bytes.splice(at..at, word.bytes());
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The PTX files of a folder.
fn texts(folder: &str) -> Vec<String> {
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path());
    let mut files: Vec<_> = files.filter(|p| p.extension().is_some_and(|e| e == "ptx")).collect();
    files.sort();
    files.iter().filter_map(|p| std::fs::read_to_string(p).ok()).filter(|t| !t.is_empty()).collect()
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let Some(Ok(count)) = arguments.next().map(|a| a.parse::<u64>()) else {
        eprintln!("usage: fuzz COUNT [SEED [FOLDER ...]]");
        return ExitCode::from(2);
    };
    let mut random = Random(arguments.next().and_then(|a| a.parse().ok()).unwrap_or(1));
    let mut seeds: Vec<String> = arguments.flat_map(|folder| texts(&folder)).collect();
    if seeds.is_empty() {
        seeds = forms::all().iter().filter(|f| !f.elsewhere).map(forms::bare).collect();
    }
    println!("{} seeds", seeds.len());
    let (mut loaded, mut slowest, begin) = (0u64, Duration::ZERO, Instant::now());
    for n in 0..count {
        let (a, b) = (random.below(seeds.len()), random.below(seeds.len()));
        let mutant = mutate(&seeds[a], &seeds[b], &mut random);
        let start = Instant::now();
        let result = catch_unwind(|| Program::load(&mutant).is_ok());
        slowest = slowest.max(start.elapsed());
        match result {
            Ok(ok) if slowest < Duration::from_secs(2) => loaded += u64::from(ok),
            _ => {
                println!("input {n}:\n{mutant}");
                return ExitCode::FAILURE;
            }
        }
        if (n + 1).is_multiple_of(250_000) {
            println!("{} inputs, {loaded} loaded, slowest {slowest:?}, {:?}", n + 1, begin.elapsed());
        }
    }
    println!("{count} inputs, {loaded} loaded, slowest {slowest:?}, {:?}", begin.elapsed());
    ExitCode::SUCCESS
}
