//! Baselines: what people use today (PyTorch, FlashAttention, cuDNN ...), in a Python process that times them by the candidates' methods.
//!
//! Picture: [`Name`] -> [`given`] (the workload's inputs as this baseline takes them) -> [`Baselines::prepare`], `time`, `output` ->
//! [`judge`] against the candidates' own oracle. `docs/baselines.md` says what each name is; the process is `python/warpsmith_baselines`.
//!
//! A baseline that is not installed, does not take a problem, crashes or hangs is [`Absent`] with the reason, and nobody else is touched.
//! It refuses to know candidates, verdicts and how ratios are made. The process holds no oracle and no limits. Limit: one device.

mod client;
mod command;
pub mod given;
mod judge;
mod name;
pub mod protocol;

pub use client::{Absent, Baselines, Options, Timed};
pub use given::{Given, given};
pub use judge::judge;
pub use name::{KNOWN, Kind, Known, Name};
pub use protocol::{Fake, Ready};
pub use warpsmith_spec::record::is_peer;
