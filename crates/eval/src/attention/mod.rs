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

pub use honest::{Accumulation, Style, honest};
pub use oracle::attention;
pub use problem::{Geometry, Operand, Problem, RowSet, Scales};
