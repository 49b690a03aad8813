//! A loop that is killed at random moments goes on to the same end: 20 kills here, as many as one likes with `cargo xtask killed N`.
#![cfg(unix)]

#[path = "../../xtask/src/killed.rs"]
mod killed;

use std::path::Path;

#[test]
fn killed_at_random_moments_a_loop_ends_as_if_nothing_had_been() {
    let folder = tempfile::tempdir().unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_warpsmith"));
    killed::run(program, folder.path(), 20, 0x5eed).unwrap();
}
