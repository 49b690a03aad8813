//! Records -> text for people: a terminal's table, `report.md` and `report.html`. Pure functions; nothing is read, run or judged here.
//!
//! Every text says where the verdict comes from: a pass on the PTX machine is always called `not run on a GPU`.

mod brief;
mod chosen;
mod claims;
mod compare;
mod decision;
mod exec;
mod history;
mod html;
mod junit;
mod markdown;
mod material;
mod measured;
mod next;
mod profile;
mod rows;
mod sarif;
mod speed;
mod summary;
mod terminal;

pub use brief::brief;
pub use claims::{Claim, ClaimStatus, claims};
pub use compare::{
    Comparison, Difference, Explained, Outputs, Pair, Rule, RuleStatus, Side, Speed, SpeedClass, comparison_text,
};
pub use exec::{exec_as_run, exec_text};
pub use history::{KernelLine, RunLine, history_text, matches, run_line};
pub use html::{Node, Search, html, search_html};
pub use junit::junit;
pub use markdown::markdown;
pub use material::{Material, folder, safe};
pub use next::{Step, again, next_steps, typed};
pub use profile::profile_text;
pub use sarif::sarif;
pub use summary::{Overall, next_step, overall};
pub use terminal::terminal;

/// What has to stand beside every pass that no GPU has seen.
pub const NOT_ON_A_GPU: &str = "passed on the PTX machine, not run on a GPU";
