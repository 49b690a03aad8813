//! Attention in numbers: the problem, the f64 oracle, and the honest kernel whose error sets the limits.
//!
//! Nothing here knows tasks, candidates, files or formats' codes: numbers and scales in, numbers out.

pub mod exp;
pub mod honest;
pub mod matmul;
pub mod narrow;
pub mod oracle;
pub mod problem;
pub mod rounding;

pub use honest::{Accumulation, Style, honest, honest_lse};
pub use oracle::{attention, attention_lse};
pub use problem::{Geometry, Length, Operand, Problem, RowSet, Scales, Sight};
