//! What a device is: its name, generation, sizes and clocks, and which code it can execute.
//!
//! Source: `cuDeviceGetAttribute`; CUDA C++ Programming Guide on the compatibility of cubins, PTX and architecture-specific targets.

use crate::error::{CudaError, DriverVersion};
use crate::ffi::Api;
use serde::{Deserialize, Serialize};

/// One device, as the driver describes it. Clocks are the rated ones, not those of the moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceInfo {
    pub ordinal: u32,
    /// `NVIDIA H200`
    pub name: String,
    /// `GPU-` and the usual 8-4-4-4-12 hexadecimal digits, as `nvidia-smi -L` shows it.
    pub uuid: String,
    /// `0000:65:00.0`
    pub pci: String,
    /// Major and minor.
    pub compute_capability: (u32, u32),
    pub sm_count: u32,
    pub sm_clock_mhz: u32,
    pub memory_clock_mhz: u32,
    pub memory_bus_bits: u32,
    pub memory_bytes: u64,
    pub l2_bytes: u64,
    /// How much of L2 lines that persist may take; 0: none.
    pub persisting_l2_bytes: u64,
    /// With the opt-in.
    pub shared_bytes_per_block: u32,
    pub shared_bytes_per_sm: u32,
    pub clusters: bool,
    pub tensor_maps: bool,
    pub ecc: bool,
    /// The system ends kernels that take long, as on a device that drives a display.
    pub kernel_time_limit: bool,
    pub driver: DriverVersion,
}

impl DeviceInfo {
    pub(crate) fn read(api: &Api, ordinal: u32) -> Result<DeviceInfo, CudaError> {
        let device = api.device(ordinal)?;
        let get = |attribute: i32| api.device_attribute(attribute, device).map(|n| n.max(0) as u32);
        // Rated clocks may be absent from newer drivers; nothing is judged by them.
        let rated = |attribute: i32| get(attribute).map_or(0, |khz| khz / 1000);
        Ok(DeviceInfo {
            ordinal,
            name: api.device_name(device)?,
            uuid: uuid(&api.device_uuid(device)?),
            pci: format!("{:04x}:{:02x}:{:02x}.0", get(50)?, get(33)?, get(34)?),
            compute_capability: (get(75)?, get(76)?),
            sm_count: get(16)?,
            sm_clock_mhz: rated(13),
            memory_clock_mhz: rated(36),
            memory_bus_bits: get(37)?,
            memory_bytes: api.device_memory(device)?,
            l2_bytes: u64::from(get(38)?),
            persisting_l2_bytes: u64::from(get(108)?),
            shared_bytes_per_block: get(97)?,
            shared_bytes_per_sm: get(81)?,
            clusters: get(120)? != 0,
            tensor_maps: get(127)? != 0,
            ecc: get(32)? != 0,
            kernel_time_limit: get(17)? != 0,
            driver: api.version,
        })
    }

    /// `sm_90`
    pub fn target(&self) -> String {
        let (major, minor) = self.compute_capability;
        format!("sm_{major}{minor}")
    }

    /// Targets whose cubins it executes, the most specific first: `sm_90a`, `sm_90`.
    pub fn cubin_targets(&self) -> Vec<String> {
        let (major, minor) = self.compute_capability;
        let mut found = Vec::new();
        if major >= 9 {
            found.push(format!("sm_{major}{minor}a"));
        }
        // A family's code runs on the same and on later members of it.
        let lower = |suffix: &str| (0..=minor).rev().map(|m| format!("sm_{major}{m}{suffix}")).collect::<Vec<_>>();
        if major >= 10 {
            found.extend(lower("f"));
        }
        found.extend(lower(""));
        found
    }

    /// Whether it executes a cubin for this target.
    pub fn runs_cubin(&self, target: &str) -> bool {
        self.cubin_targets().iter().any(|t| t == target)
    }

    /// Whether the driver can compile PTX for this target for it: plain targets up to its own, and whatever its cubins may be.
    pub fn runs_ptx(&self, target: &str) -> bool {
        let (major, minor) = self.compute_capability;
        let plain = target.strip_prefix("sm_").and_then(|digits| digits.parse::<u32>().ok());
        self.runs_cubin(target) || plain.is_some_and(|n| n <= major * 10 + minor)
    }
}

fn uuid(bytes: &[u8; 16]) -> String {
    let mut text = String::from("GPU");
    for (i, byte) in bytes.iter().enumerate() {
        if [0, 4, 6, 8, 10].contains(&i) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_look_as_nvidia_smi_shows_them() {
        let bytes: [u8; 16] = std::array::from_fn(|i| i as u8);
        assert_eq!(uuid(&bytes), "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f");
    }

    #[test]
    fn code_runs_where_nvidia_says_it_does() {
        let device = |major, minor| DeviceInfo { compute_capability: (major, minor), ..crate::worker::fake::device() };
        // (device, target, as cubin, as PTX)
        for (cc, target, cubin, ptx) in [
            ((9, 0), "sm_90a", true, true),
            ((9, 0), "sm_90", true, true),
            ((9, 0), "sm_89", false, true),
            ((8, 9), "sm_80", true, true),
            ((8, 9), "sm_89", true, true),
            ((8, 0), "sm_89", false, false),
            ((10, 0), "sm_90a", false, false),
            ((10, 3), "sm_100f", true, true),
            ((10, 3), "sm_100a", false, false),
            ((12, 1), "sm_120", true, true),
            ((9, 0), "nonsense", false, false),
        ] {
            let d = device(cc.0, cc.1);
            assert_eq!((d.runs_cubin(target), d.runs_ptx(target)), (cubin, ptx), "{target} on {cc:?}");
        }
    }
}
