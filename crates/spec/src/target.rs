//! The GPU architectures that candidates can name, with the limits that a launch has to keep. A table; it knows no compiler.
//!
//! Source: CUDA C++ Programming Guide, "Compute Capabilities" (maximum shared memory of a block, opt-in).

use crate::error::{SpecCode, SpecError, shown};
use crate::suggest::{did_you_mean, listed};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    /// As in `targets = ["sm_89"]`.
    pub name: &'static str,
    /// Shared memory that one block can have (static and dynamic), in bytes.
    pub shared_bytes_per_block: u32,
    /// Multiprocessors of the usual card: what `SM_COUNT` is where no device says otherwise.
    pub sm_count: u32,
    /// It has thread-block clusters.
    pub clusters: bool,
}

const fn target(name: &'static str, shared_kib: u32, sm_count: u32, clusters: bool) -> Target {
    Target { name, shared_bytes_per_block: shared_kib * 1024, sm_count, clusters }
}

/// All targets that toolkit 13.0 compiles for, oldest first. The cards of `sm_count`: T4, A100, A10, Orin, an embedded Ampere, L4,
/// H100 SXM, B200, B300, Thor, RTX 5090, GB10.
pub const TARGETS: [Target; 23] = [
    target("sm_75", 64, 40, false),
    target("sm_80", 163, 108, false),
    target("sm_86", 99, 72, false),
    target("sm_87", 163, 16, false),
    target("sm_88", 99, 10, false),
    target("sm_89", 99, 58, false),
    target("sm_90", 227, 132, true),
    target("sm_90a", 227, 132, true),
    target("sm_100", 227, 148, true),
    target("sm_100a", 227, 148, true),
    target("sm_100f", 227, 148, true),
    target("sm_103", 227, 148, true),
    target("sm_103a", 227, 148, true),
    target("sm_103f", 227, 148, true),
    target("sm_110", 227, 20, true),
    target("sm_110a", 227, 20, true),
    target("sm_110f", 227, 20, true),
    target("sm_120", 99, 170, true),
    target("sm_120a", 99, 170, true),
    target("sm_120f", 99, 170, true),
    target("sm_121", 99, 48, true),
    target("sm_121a", 99, 48, true),
    target("sm_121f", 99, 48, true),
];

/// Threads that one block can have.
pub const MAX_THREADS: u64 = 1024;
/// Largest block in x, y and z.
pub const MAX_BLOCK: [u64; 3] = [1024, 1024, 64];
/// Largest grid in x, y and z.
pub const MAX_GRID: [u64; 3] = [2_147_483_647, 65_535, 65_535];
/// Blocks that one cluster can have without the non-portable attribute.
pub const MAX_CLUSTER: u64 = 8;

/// The target of that name, or an error that lists those there are.
pub fn find(name: &str) -> Result<&'static Target, SpecError> {
    TARGETS.iter().find(|t| t.name == name).ok_or_else(|| {
        let known = || TARGETS.iter().map(|t| t.name);
        SpecError::new(
            SpecCode::UnknownName,
            format!("unknown target `{}`{}", shown(name), did_you_mean(name, known())),
        )
        .hint(format!("known targets: {}", listed(known())))
    })
}
