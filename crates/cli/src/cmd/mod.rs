//! One file a command.

pub mod bench;
pub mod cache;
pub mod check;
pub mod doctor;
pub mod evolve;
pub mod explain;
pub mod list;
pub mod new;
pub mod report;
pub mod toolkit;
