//! What the driver can answer instead of success, typed as far as callers act on it.
//!
//! A [`CudaError::Fault`] is the kernel's doing and ends the context; everything else is the environment's or the caller's.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A version of the driver API: what `cuDriverGetVersion` says, 12040 being 12.4.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DriverVersion {
    pub major: u32,
    pub minor: u32,
}

impl DriverVersion {
    pub const fn new(major: u32, minor: u32) -> DriverVersion {
        DriverVersion { major, minor }
    }

    /// From the driver's number, 1000 x major + 10 x minor.
    pub fn from_number(n: i32) -> DriverVersion {
        let n = n.max(0) as u32;
        DriverVersion { major: n / 1000, minor: n % 1000 / 10 }
    }
}

impl fmt::Display for DriverVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// What a kernel did that ended its context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    IllegalAddress,
    MisalignedAddress,
    IllegalInstruction,
    InvalidAddressSpace,
    InvalidPc,
    HardwareStack,
    /// `trap`, and what the device cannot describe.
    LaunchFailed,
    AssertFailed,
    /// The system's own time limit on kernels of a device that drives a display.
    LaunchTimeout,
    /// Memory or links of the device failed: not the kernel's doing.
    Hardware,
}

impl FaultKind {
    /// The fault that this code of the driver stands for.
    pub fn of(code: i32) -> Option<FaultKind> {
        Some(match code {
            214 | 220 | 226 => FaultKind::Hardware,
            700 => FaultKind::IllegalAddress,
            702 => FaultKind::LaunchTimeout,
            710 => FaultKind::AssertFailed,
            714 => FaultKind::HardwareStack,
            715 => FaultKind::IllegalInstruction,
            716 => FaultKind::MisalignedAddress,
            717 => FaultKind::InvalidAddressSpace,
            718 => FaultKind::InvalidPc,
            719 | 721 => FaultKind::LaunchFailed,
            _ => return None,
        })
    }

    /// In plain words, after "the device reported".
    pub fn words(self) -> &'static str {
        match self {
            FaultKind::IllegalAddress => "an access to an address that is not mapped",
            FaultKind::MisalignedAddress => "an access to a misaligned address",
            FaultKind::IllegalInstruction => "an illegal instruction",
            FaultKind::InvalidAddressSpace => "an address of the wrong state space",
            FaultKind::InvalidPc => "a jump to an invalid address",
            FaultKind::HardwareStack => "an overflow or a corruption of the call stack",
            FaultKind::LaunchFailed => "a failed launch, as after a trap",
            FaultKind::AssertFailed => "a failed assertion",
            FaultKind::LaunchTimeout => "that the system's own time limit on kernels was reached",
            FaultKind::Hardware => "a failure of its own memory or links",
        }
    }
}

/// Why something on the device, or on the way to it, did not work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CudaError {
    #[error("no CUDA driver: {why}")]
    NoDriver { why: String },

    #[error("the CUDA driver finds no device: {why}")]
    NoDevice { why: String },

    #[error("the CUDA driver is too old: it has {have}, and {what} needs {need}")]
    DriverTooOld { have: DriverVersion, need: DriverVersion, what: String },

    /// The context is lost with it.
    #[error("the device reported {} ({name}, {code}, seen by {call})", .kind.words())]
    Fault { kind: FaultKind, code: i32, name: String, call: &'static str },

    #[error("the device's memory does not hold {bytes} bytes more")]
    OutOfMemory { bytes: u64 },

    /// A cubin or PTX that the driver, or the check before it, does not take.
    #[error("the module cannot be loaded: {why}")]
    Image { why: String },

    #[error("the module has no entry {entry}")]
    NoEntry { entry: String },

    /// Arguments or a geometry that do not fit the entry.
    #[error("{what}")]
    Launch { what: String },

    #[error("{call} failed with {name} ({code})")]
    Call { code: i32, name: String, call: &'static str },
}

impl CudaError {
    /// kebab-case id for the record and for `warpsmith explain`.
    pub fn code(&self) -> &'static str {
        match self {
            CudaError::NoDriver { .. } | CudaError::NoDevice { .. } | CudaError::DriverTooOld { .. } => "no-device",
            CudaError::Launch { .. } => "invalid-launch",
            CudaError::NoEntry { .. } => "missing-entry",
            CudaError::Fault { .. }
            | CudaError::OutOfMemory { .. }
            | CudaError::Image { .. }
            | CudaError::Call { .. } => "device-failure",
        }
    }

    /// Whether nothing more can be done in this process's context.
    pub fn loses_context(&self) -> bool {
        match self {
            CudaError::Fault { .. } => true,
            // Deinitialised, destroyed, unknown: the driver says no more than that it is over.
            CudaError::Call { code, .. } => matches!(code, 4 | 46 | 201 | 709 | 999),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_told_from_other_codes() {
        for (code, kind) in
            [(700, FaultKind::IllegalAddress), (716, FaultKind::MisalignedAddress), (719, FaultKind::LaunchFailed)]
        {
            assert_eq!(FaultKind::of(code), Some(kind));
        }
        // Launch out of resources, invalid value, not found: nothing ran.
        for code in [0, 1, 2, 500, 701, 912] {
            assert_eq!(FaultKind::of(code), None, "{code}");
        }
    }

    #[test]
    fn versions_are_read_and_ordered() {
        assert_eq!(DriverVersion::from_number(12040), DriverVersion::new(12, 4));
        assert_eq!(DriverVersion::from_number(13000).to_string(), "13.0");
        assert!(DriverVersion::new(12, 10) > DriverVersion::new(12, 4));
    }
}
