//! Parses PTX files and says what they hold, how long it took, or where they fail.
//!
//! `cargo run --release -p warpsmith-ptx --example parse -- a.ptx b.ptx`

use std::process::ExitCode;
use std::time::Instant;

fn main() -> ExitCode {
    let mut failed = false;
    for path in std::env::args().skip(1) {
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(why) => {
                eprintln!("{path}: {why}");
                failed = true;
                continue;
            }
        };
        let start = Instant::now();
        match warpsmith_ptx::parse(&text) {
            Ok(module) => {
                let taken = start.elapsed();
                let bodies = module.functions.iter().filter(|f| f.has_body);
                let instructions: usize = bodies.map(|f| f.instructions.len()).sum();
                println!(
                    "{path}: {} bytes, {} functions, {instructions} instructions, {:.2} ms",
                    text.len(),
                    module.functions.len(),
                    taken.as_secs_f64() * 1e3
                );
            }
            Err(why) => {
                eprintln!("{path}: {why}");
                failed = true;
            }
        }
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
