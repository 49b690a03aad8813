//! The PTX machine: executes a kernel's real PTX on the CPU, one warp of 32 lanes at a time, with all detectors on.
//!
//! ```text
//! ptx::parse -> decode (Code, dense) -> launch -> cta (warps in turns) -> exec (families of instructions)
//!                                                  |                        |
//!                                               shared, global (races)   memory (buffers), local, registers (undefined values)
//! ```
//!
//! It knows PTX only: no tasks, no tolerances, no candidates. It has no clock: times come from GPUs.
//! What a kernel does wrong is data ([`Outcome`]); an opcode that the machine does not have is [`api::End::Unsupported`].

pub mod api;
mod code;
mod cta;
mod decode;
mod exec;
mod findings;
pub mod forms;
mod global;
mod launch;
mod local;
mod machine;
mod memory;
mod program;
mod registers;
mod schedules;
mod shared;
mod warp;
mod worker;

pub use api::{
    Arg, AsyncCopies, BufferId, Counters, Detectors, End, Fidelity, Finding, FindingKind, InstructionClass, Launch,
    LineCounters, Options, Outcome, Place, PlaceCounters, Severity, Site, Traffic,
};
pub use launch::launch;
pub use memory::{Contents, Memory, address_of};
pub use program::{EntryInfo, LoadError, ParamInfo, Program};
pub use schedules::{Explored, Step, explore};
