//! Gate 4: what bounds a kernel and what to try next, with the hardware's counters where they can be had.
//!
//! ncu is put in front of the worker that holds the device, as compute-sanitizer is, and its report is read back as CSV: [`ncu`], [`csv`]. What needs
//! no counters is always there: [`occupancy`] from ptxas's figures, the mix of [`sass`] opcodes, and [`work`], which says from the PTX
//! machine's counts which unit has most to do. [`rules`] are data; [`phases`] are marks in the source. No time is kept: a profiled launch
//! is replayed with flushed caches and is slower than a measured one. Limits: launches of one workload at a time; ncu of this machine.

pub mod ceilings;
pub mod csv;
pub mod cubin_lines;
pub mod gate;
pub mod metrics;
pub mod ncu;
pub mod occupancy;
pub mod phases;
pub mod rules;
pub mod sass;
pub mod work;

pub use gate::{Gate4, Machinery, profile};
pub use metrics::Figures;
