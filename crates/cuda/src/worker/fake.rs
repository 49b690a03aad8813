//! A device of ordinary memory whose kernels are Rust functions: for tests of whoever speaks to a worker, and of the worker itself.
//!
//! An image is any text; the entry's name chooses the function. It has no clock and stands for no hardware.

use super::device::{Device, LaunchValues, Value};
use crate::device::DeviceInfo;
use crate::error::{CudaError, DriverVersion, FaultKind};
use std::collections::BTreeMap;
use std::time::Duration;

/// The entries that there are, and what each does with its arguments (addresses first).
pub const ENTRIES: &[&str] = &[
    "copy",
    "copy_half",
    "overrun",
    "underrun",
    "changes_input",
    "reads_undefined",
    "hang",
    "die",
    "illegal_address",
    "misaligned",
    "trap",
    "count_loads",
    "noise",
];

/// A made-up device.
pub fn device() -> DeviceInfo {
    DeviceInfo {
        ordinal: 0,
        name: "Fake device".into(),
        uuid: "GPU-00000000-0000-0000-0000-000000000000".into(),
        pci: "0000:00:00.0".into(),
        compute_capability: (9, 0),
        sm_count: 4,
        sm_clock_mhz: 0,
        memory_clock_mhz: 0,
        memory_bus_bits: 0,
        memory_bytes: 1 << 30,
        l2_bytes: 1 << 20,
        persisting_l2_bytes: 0,
        shared_bytes_per_block: 227 << 10,
        shared_bytes_per_sm: 228 << 10,
        clusters: true,
        tensor_maps: false,
        ecc: false,
        kernel_time_limit: false,
        driver: DriverVersion::new(13, 0),
    }
}

/// The device.
#[derive(Default)]
pub struct FakeDevice {
    /// By address. Between allocations lies nothing, as far as its kernels can see.
    buffers: BTreeMap<u64, Vec<u8>>,
    next: u64,
    loaded: bool,
    loads: u8,
}

impl FakeDevice {
    fn part(&mut self, address: u64, bytes: usize) -> Result<&mut [u8], CudaError> {
        let illegal = || fault(FaultKind::IllegalAddress, 700, "CUDA_ERROR_ILLEGAL_ADDRESS");
        let (start, buffer) = self.buffers.range_mut(..=address).next_back().ok_or_else(illegal)?;
        let at = (address - start) as usize;
        buffer.get_mut(at..at.saturating_add(bytes)).ok_or_else(illegal)
    }

    /// `to` from `from`, byte by byte.
    fn copy(&mut self, from: u64, to: u64, bytes: usize) -> Result<(), CudaError> {
        let contents = self.part(from, bytes)?.to_vec();
        self.part(to, bytes)?.copy_from_slice(&contents);
        Ok(())
    }
}

fn fault(kind: FaultKind, code: i32, name: &str) -> CudaError {
    CudaError::Fault { kind, code, name: name.into(), call: "fake" }
}

impl Device for FakeDevice {
    fn info(&self) -> DeviceInfo {
        device()
    }

    fn load(&mut self, image: &[u8]) -> Result<(), CudaError> {
        if image.starts_with(b"broken") {
            return Err(CudaError::Image { why: "this image is broken".into() });
        }
        self.loaded = true;
        self.loads = 0;
        Ok(())
    }

    fn alloc(&mut self, bytes: u64) -> Result<u64, CudaError> {
        if bytes > 1 << 30 {
            return Err(CudaError::OutOfMemory { bytes });
        }
        self.next += 1 << 32;
        self.buffers.insert(self.next, vec![0xcd; bytes as usize]);
        Ok(self.next)
    }

    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), CudaError> {
        self.part(address, bytes.len())?.copy_from_slice(bytes);
        Ok(())
    }

    fn fill(&mut self, address: u64, bytes: u64, value: u8) -> Result<(), CudaError> {
        self.part(address, bytes as usize)?.fill(value);
        Ok(())
    }

    fn read(&mut self, address: u64, bytes: &mut [u8]) -> Result<(), CudaError> {
        let n = bytes.len();
        bytes.copy_from_slice(self.part(address, n)?);
        Ok(())
    }

    fn launch(&mut self, launch: &LaunchValues) -> Result<(), CudaError> {
        if !ENTRIES.contains(&launch.entry.as_str()) {
            return Err(CudaError::NoEntry { entry: launch.entry.clone() });
        }
        if launch.geometry.block.iter().product::<u32>() > 1024 {
            return Err(CudaError::Launch { what: "a block of more than 1024 threads".into() });
        }
        let address = |i: usize| match launch.args.get(i) {
            Some(Value::Address(a)) => Ok(*a),
            _ => Err(CudaError::Launch { what: format!("argument {i} is no address") }),
        };
        let number = |i: usize| match launch.args.get(i) {
            Some(Value::Bytes(b)) if b.len() == 4 => Ok(u32::from_le_bytes([b[0], b[1], b[2], b[3]]) as usize),
            _ => Err(CudaError::Launch { what: format!("argument {i} is no number of 4 bytes") }),
        };
        self.loads += 1;
        match launch.entry.as_str() {
            // (x, y, bytes): y = x.
            "copy" => self.copy(address(0)?, address(1)?, number(2)?),
            "copy_half" => self.copy(address(0)?, address(1)?, number(2)? / 2),
            // (x, y, bytes): writes 8 bytes behind y, or 4 before it, as well.
            "overrun" => {
                self.copy(address(0)?, address(1)?, number(2)?)?;
                self.fill(address(1)? + number(2)? as u64 + 2, 6, 1)
            }
            "underrun" => {
                self.copy(address(0)?, address(1)?, number(2)?)?;
                self.fill(address(1)? - 4, 4, 1)
            }
            "changes_input" => {
                self.copy(address(0)?, address(1)?, number(2)?)?;
                self.part(address(0)?, 1)?[0] ^= 1;
                Ok(())
            }
            // (x, y, bytes): y = x but for its first byte, which is what lies behind x.
            "reads_undefined" => {
                self.copy(address(0)?, address(1)?, number(2)?)?;
                self.copy(address(0)? + number(2)? as u64, address(1)?, 1)
            }
            "hang" => loop {
                std::thread::sleep(Duration::from_secs(3600));
            },
            "die" => std::process::exit(9),
            "illegal_address" => Err(fault(FaultKind::IllegalAddress, 700, "CUDA_ERROR_ILLEGAL_ADDRESS")),
            "misaligned" => Err(fault(FaultKind::MisalignedAddress, 716, "CUDA_ERROR_MISALIGNED_ADDRESS")),
            "trap" => Err(fault(FaultKind::LaunchFailed, 719, "CUDA_ERROR_LAUNCH_FAILED")),
            // (y): how many launches there were since the code was loaded.
            "count_loads" => {
                let n = self.loads;
                self.fill(address(0)?, 1, n)
            }
            // (x, y, bytes): y = x, and prints.
            _ => {
                println!("{{\"id\":1,\"reply\":\"missing\",\"sha256\":[]}}");
                self.copy(address(0)?, address(1)?, number(2)?)
            }
        }
    }

    fn release(&mut self) {
        self.buffers.clear();
        self.loaded = false;
    }
}
