//! The gates: inputs, oracle, honest kernel, check, guard, backends and the pipeline that makes a verdict of them.
//!
//! It knows tasks and candidates (`spec`), and drives the engines below it; it prints nothing.

pub mod attention;
pub mod check;
pub mod compile_gate;
pub mod draw;
pub mod error;
pub mod finding;
pub mod inputs;
pub mod metrics;
pub mod npy;
pub mod oracle;
pub mod quantise;
pub mod reference;
pub mod rows;
pub mod source;
pub mod values;
