//! Printing that survives a closed pipe.

use crate::error::CliError;
use std::io::{self, Write};

/// Writes to standard output; that the reader went away is no error of ours.
pub fn out(text: &str) {
    let mut stdout = io::stdout().lock();
    let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
}

/// Writes to standard error.
pub fn err(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// Tells an error, to people or to programs, and gives the exit code.
pub fn error(error: &CliError, json: bool) -> i32 {
    if json {
        out(&format!("{}\n", error.json()));
    } else {
        err(&error.text());
    }
    error.exit
}
