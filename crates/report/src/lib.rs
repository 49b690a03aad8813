//! Records -> text for people: a terminal's table and `report.md`. Pure functions; nothing is read, run or judged here.
//!
//! Every text says where the verdict comes from: a pass on the PTX machine is always called `not run on a GPU`.

mod markdown;
mod rows;
mod summary;
mod terminal;

pub use markdown::markdown;
pub use summary::{Overall, next_step, overall};
pub use terminal::terminal;

/// What has to stand beside every pass that no GPU has seen.
pub const NOT_ON_A_GPU: &str = "passed on the PTX machine, not run on a GPU";
