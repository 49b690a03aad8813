//! Progress of long work, on standard error and only where a person watches a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;

/// A bar for `total` steps; hidden where standard error is no terminal, or the output is for programs.
pub fn bar(total: u64, json: bool) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(total), target(json));
    let style =
        ProgressStyle::with_template("{pos}/{len} {wide_bar} {msg}").unwrap_or_else(|_| ProgressStyle::default_bar());
    bar.set_style(style);
    bar
}

/// A bar that counts bytes.
pub fn bytes(json: bool) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, target(json));
    let style = ProgressStyle::with_template("{msg} {bytes}/{total_bytes} {wide_bar} {bytes_per_sec}")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    bar.set_style(style);
    bar
}

fn target(json: bool) -> ProgressDrawTarget {
    if json || !std::io::stderr().is_terminal() { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() }
}
