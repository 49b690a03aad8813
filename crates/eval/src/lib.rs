//! The gates: inputs, oracle, honest kernel, check, guard, backends and the pipeline that makes a verdict of them.
//!
//! It knows tasks and candidates (`spec`), and drives the engines below it; it prints nothing.

pub mod attention;
pub mod draw;
pub mod metrics;
pub mod rows;
