//! The gates: inputs, oracle, honest kernel, check, guard, backends and the pipeline that makes a verdict of them.
//!
//! It knows tasks and candidates (`spec`), and drives the engines below it; it prints nothing.
//!
//! Picture: task x shape -> [`draw`] -> [`inputs`] -> [`oracle`] (f64, and the honest kernel's error) ; candidate ->
//! [`compile_gate`] -> [`backend`] -> [`guard`], [`check`] -> [`evaluate`] -> [`pipeline`] -> records; [`bench`] goes on from there: gate 3, and [`profile`]: gate 4.

pub mod attention;
pub mod backend;
pub mod baseline;
pub mod bench;
pub mod check;
pub mod compile_gate;
pub mod draw;
pub mod error;
pub mod error_map;
pub mod evaluate;
pub mod exec;
pub mod finding;
pub mod guard;
pub mod inputs;
pub mod metrics;
pub mod npy;
pub mod oracle;
pub mod oracles;
pub mod pack;
pub mod passes;
pub mod pipeline;
pub mod places;
pub mod profile;
pub mod quantise;
pub mod reference;
pub mod rows;
pub mod source;
pub mod suppress;
pub mod tool;
pub mod values;
pub mod worker;

pub use backend::{Backend, NumericsChoice, PtxMachine};
pub use compile_gate::{CompileGate, Subject};
pub use error::EvalError;
pub use evaluate::{Context, evaluate};
pub use oracles::Oracles;
pub use passes::Passes;
pub use pipeline::{Event, RunRequest, RunResults, run};
pub use source::{ArtifactSource, Layered};
