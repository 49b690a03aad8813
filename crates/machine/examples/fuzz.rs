//! `fuzz COUNT [SEED [FOLDER ...]]`: mutants of small modules, one for each instruction form, or of the PTX files of folders, through reader and decoder. Ends with 1 at the first that
//! panics or takes more than two seconds, and shows it. The mutants of a seed are the same in every run.

use std::panic::catch_unwind;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use warpsmith_machine::{Program, forms};
use warpsmith_num::splitmix::SplitMix64;

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
fn mutate(seed: &str, other: &str, r: &mut SplitMix64) -> String {
    let mut bytes = seed.as_bytes().to_vec();
    for _ in 0..1 + r.index(3) {
        if bytes.is_empty() {
            break;
        }
        let at = r.index(bytes.len());
        let end = (at + 1 + r.index(24)).min(bytes.len());
        match r.index(7) {
            0 => bytes[at] = r.bits() as u8,
            1 => bytes[at] ^= 1 << r.index(7),
            2 => drop(bytes.drain(at..end)),
            3 => {
                let copy = bytes[at..end].to_vec();
                bytes.splice(at..at, copy);
            }
            4 => {
                let from = r.index(other.len());
                let to = (from + 1 + r.index(32)).min(other.len());
                bytes.splice(at..end, other.as_bytes()[from..to].iter().copied());
            }
            _ => {
                let word = WORDS[r.index(WORDS.len())];
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
    let mut random = SplitMix64(arguments.next().and_then(|a| a.parse().ok()).unwrap_or(1));
    let mut seeds: Vec<String> = arguments.flat_map(|folder| texts(&folder)).collect();
    if seeds.is_empty() {
        seeds = forms::all().iter().filter(|f| !f.elsewhere).map(forms::bare).collect();
    }
    println!("{} seeds", seeds.len());
    let (mut loaded, mut slowest, begin) = (0u64, Duration::ZERO, Instant::now());
    for n in 0..count {
        let (a, b) = (random.index(seeds.len()), random.index(seeds.len()));
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
