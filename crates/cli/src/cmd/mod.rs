//! One file a command.

pub mod bench;
pub mod brief;
pub mod cache;
pub mod check;
pub mod compare;
pub mod correlate;
pub mod doctor;
pub mod doctor_gpu;
pub mod evidence;
pub mod evolve;
pub mod exec;
pub mod explain;
pub mod history;
pub mod list;
pub mod new;
pub mod profile;
pub mod report;
pub mod toolkit;
