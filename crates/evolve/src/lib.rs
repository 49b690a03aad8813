//! The evolution loop (EvoEngineer, arXiv:2510.03760): minimise a kernel's cost subject to its compiling and being correct.
//!
//! The paper's two halves are kept apart: what a proposer is told ([`information`](request::Variant)), and how the population is
//! kept ([`archive`]). The loop is ask/tell: [`decide`] says what comes next, the [`driver`] has it done by a proposer or an
//! evaluator, and both the asking and the answer are events. State is the fold of those events and nothing else, random draws
//! included, so a loop that is killed goes on from where it was.
//!
//! It does not know how a kernel is judged, compiled or timed ([`driver::Evaluator`] does), holds no clock, and prints nothing.

pub mod advice;
pub mod answer;
pub mod archive;
pub mod budget;
pub mod correlate;
pub mod decide;
pub mod driver;
pub mod estimate;
pub mod event;
pub mod lessons;
pub mod llm;
pub mod outcome;
pub mod prompt;
pub mod proposer;
pub mod record;
pub mod rehearse;
pub mod request;
pub mod rerun;
pub mod rules;
pub mod score;
pub mod solution;
pub mod space;
pub mod state;

pub use budget::Budget;
pub use decide::{Action, decide};
pub use driver::{Driver, DriverError, Evaluator};
pub use event::Event;
pub use outcome::Judged;
pub use record::{EvolveRecord, record};
pub use request::{LoopRequest, ProposerKind, Variant};
pub use score::{Estimate, Score, Timed};
pub use solution::Solution;
pub use space::Space;
pub use state::State;
