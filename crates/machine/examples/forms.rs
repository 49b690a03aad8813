//! Writes what the table of instruction forms yields: `forms page FILE [HARDWARE]` the page of what is supported, `forms kernels DIR` one PTX
//! module for each form, with a list of their names.

use std::process::ExitCode;

use warpsmith_machine::forms;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["page", file] => std::fs::write(file, forms::page("")),
        ["page", file, hardware] => {
            std::fs::write(file, forms::page(&std::fs::read_to_string(hardware).unwrap_or_default()))
        }
        ["kernels", dir] => kernels(dir),
        _ => {
            eprintln!("usage: forms page FILE [HARDWARE] | kernels DIR");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::FAILURE
        }
    }
}

fn kernels(dir: &str) -> std::io::Result<()> {
    let mut list = String::new();
    for (n, f) in forms::all().iter().enumerate() {
        let suffix = if f.arch_specific { "a" } else { "" };
        list += &format!("{n}\tsm_{}{suffix}\tptx{}\t{}\t{}\n", f.sm, f.ptx, f.exactness.word(), f.name());
        std::fs::write(format!("{dir}/{n}.ptx"), forms::kernel(f).ptx)?;
    }
    std::fs::write(format!("{dir}/list.tsv"), list)
}
