//! A device of ordinary memory whose kernels are Rust functions: for tests of whoever speaks to a worker, and of the worker itself.
//!
//! An image is any text; the entry's name chooses the function. It has no clock and stands for no hardware: its times come from a formula,
//! [`FakeDevice::us`], and its clocks never change.

use super::device::{
    Check, Code, Device, Failed, Found, LaunchValues, Move, Progress, Ready, Recorded, Value, pattern_of,
};
use super::protocol::Reading;
use crate::device::DeviceInfo;
use crate::error::{CudaError, DriverVersion, FaultKind};
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
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
    "fails_at_20",
    "differs_at_20",
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

/// Executes code that is none of [`ENTRIES`]: an image and a launch, on buffers by address.
pub trait Executor {
    fn execute(
        &mut self,
        image: &[u8],
        launch: &LaunchValues,
        memory: &mut BTreeMap<u64, Vec<u8>>,
    ) -> Result<(), CudaError>;

    /// The device that this makes of it.
    fn info(&self) -> DeviceInfo;
}

/// The device.
#[derive(Default)]
pub struct FakeDevice {
    /// What executes images, where they are more than names.
    executor: Option<Box<dyn Executor>>,
    images: HashMap<Code, Vec<u8>>,
    /// By address. Between allocations lies nothing, as far as its kernels can see.
    buffers: BTreeMap<u64, Vec<u8>>,
    next: u64,
    /// How many launches there were since the code was loaded.
    codes: HashMap<Code, u32>,
    ready: Vec<LaunchValues>,
    graphs: Vec<Vec<Ready>>,
    /// Whether the next replay finds L2 flushed.
    flushed: bool,
    /// How many times were told.
    told: u32,
    marked: bool,
    /// Of the last launches that leave word.
    progress: Vec<Progress>,
    /// What stands for the device's lock; none: nobody else can have it.
    pub lock: Option<PathBuf>,
}

impl FakeDevice {
    /// A device that has images executed.
    pub fn executing(executor: Box<dyn Executor>) -> FakeDevice {
        FakeDevice { executor: Some(executor), ..FakeDevice::default() }
    }

    /// Microseconds of a launch that copies so many bytes, L2 flushed or not; the n-th time told is up to a tenth longer.
    pub fn us(bytes: usize, cold: bool, n: u32) -> f64 {
        let plain = 2.0 + bytes as f64 / if cold { 1000.0 } else { 2000.0 };
        plain * (1.0 + f64::from(n * 7 % 11) / 100.0)
    }

    /// Executes and tells a time.
    fn timed(&mut self, launches: &[Ready]) -> Result<f64, CudaError> {
        let cold = std::mem::take(&mut self.flushed);
        self.told += 1;
        let mut us = 0.0;
        self.progress = vec![Progress::default(); if self.marked { launches.len() } else { 0 }];
        for (i, ready) in launches.iter().enumerate() {
            let launch = self.found(*ready)?;
            let bytes = match launch.args.get(2) {
                Some(Value::Bytes(b)) if b.len() == 4 => u32::from_le_bytes([b[0], b[1], b[2], b[3]]) as usize,
                _ => 0,
            };
            us += FakeDevice::us(bytes, cold, self.told);
            self.tell(i, Progress { begun: true, ended: false });
            self.execute(ready.code, &launch)?;
            self.tell(i, Progress { begun: true, ended: true });
        }
        Ok(us)
    }

    fn tell(&mut self, launch: usize, progress: Progress) {
        if let Some(p) = self.progress.get_mut(launch) {
            *p = progress;
        }
    }

    fn found(&self, ready: Ready) -> Result<LaunchValues, CudaError> {
        let found = self.ready.get(ready.index as usize).cloned();
        found.ok_or_else(|| CudaError::Launch { what: "there is no such launch".into() })
    }

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
        self.executor.as_ref().map_or_else(device, |e| e.info())
    }

    fn lock_file(&self) -> Option<PathBuf> {
        self.lock.clone()
    }

    fn load(&mut self, image: &[u8]) -> Result<Code, CudaError> {
        if image.starts_with(b"broken") {
            return Err(CudaError::Image { why: "this image is broken".into() });
        }
        self.next += 1;
        let code = Code(self.next as u32);
        self.codes.insert(code, 0);
        self.images.insert(code, image.to_vec());
        Ok(code)
    }

    fn unload(&mut self, code: Code) {
        self.codes.remove(&code);
        self.images.remove(&code);
    }

    fn alloc(&mut self, bytes: u64) -> Result<u64, CudaError> {
        if bytes > 1 << 30 {
            return Err(CudaError::OutOfMemory { bytes });
        }
        self.next += 1;
        let address = self.next << 32;
        self.buffers.insert(address, vec![0xcd; bytes as usize]);
        Ok(address)
    }

    fn free(&mut self, addresses: &[u64]) {
        addresses.iter().for_each(|at| drop(self.buffers.remove(at)));
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

    fn launch(&mut self, code: Code, launch: &LaunchValues) -> Result<(), CudaError> {
        self.execute(code, launch)
    }

    fn ready(&mut self, code: Code, launch: &LaunchValues) -> Result<Ready, CudaError> {
        if self.executor.is_none() && !ENTRIES.contains(&launch.entry.as_str()) {
            return Err(CudaError::NoEntry { entry: launch.entry.clone() });
        }
        self.ready.push(launch.clone());
        Ok(Ready { code, index: self.ready.len() as u32 - 1 })
    }

    fn record(&mut self, launches: &[Ready]) -> Result<Recorded, CudaError> {
        let first = launches.first().ok_or(CudaError::Launch { what: "a graph of no launches".into() })?;
        self.graphs.push(launches.to_vec());
        Ok(Recorded { code: first.code, index: self.graphs.len() as u32 - 1 })
    }

    fn arrange(&mut self, moves: &[Move]) -> Result<(), CudaError> {
        moves.iter().try_for_each(|m| match *m {
            Move::Copy { from, to, bytes } => self.copy(from, to, bytes as usize),
            Move::Pattern { to, bytes, seed } => self.write(to, &pattern_of(seed, to, bytes)),
            Move::Zero { to, bytes } => self.fill(to, bytes, 0),
        })
    }

    fn compare(&mut self, checks: &[Check]) -> Result<Vec<Option<Found>>, CudaError> {
        let found = checks.iter().map(|check| {
            let (at, bytes, want) = match *check {
                Check::Equal { at, with, bytes } => (at, bytes, self.part(with, bytes as usize)?.to_vec()),
                Check::Pattern { at, bytes, seed } => (at, bytes, pattern_of(seed, at, bytes)),
            };
            let got = self.part(at, bytes as usize)?;
            let differs: Vec<u64> = (0..bytes).filter(|i| got[*i as usize] != want[*i as usize]).collect();
            let ends = differs.first().zip(differs.last());
            Ok(ends.map(|(first, last)| Found { first: *first, last: *last, count: differs.len() as u64 }))
        });
        found.collect()
    }

    fn flush(&mut self) -> Result<(), CudaError> {
        self.flushed = true;
        Ok(())
    }

    fn forget_persisting(&mut self) -> Result<(), CudaError> {
        Ok(())
    }

    fn replay(&mut self, graph: Recorded, observe: bool) -> Result<(f64, Option<Reading>), CudaError> {
        let launches = self.graphs.get(graph.index as usize).cloned().unwrap_or_default();
        let us = self.timed(&launches)?;
        Ok((us, if observe { self.reading() } else { None }))
    }

    fn event(&mut self, launches: &[Ready]) -> Result<f64, CudaError> {
        self.timed(launches).map(|us| us + 1.0)
    }

    fn eager(&mut self, launches: &[Ready]) -> Result<f64, CudaError> {
        self.timed(launches).map(|us| us + 4.0 * launches.len() as f64)
    }

    fn single(&mut self, call: &[Ready], _fresh: bool) -> Result<(), Failed> {
        for (launch, ready) in call.iter().enumerate() {
            let done = self.found(*ready).and_then(|values| self.execute(ready.code, &values));
            done.map_err(|error| Failed { launch, error })?;
        }
        Ok(())
    }

    fn volley(&mut self, calls: &[&[Ready]]) -> Result<(), CudaError> {
        let launches: Vec<Ready> = calls.iter().flat_map(|call| call.iter().copied()).collect();
        let before = std::mem::replace(&mut self.marked, true);
        let done = self.timed(&launches).map(drop);
        self.marked = before;
        done
    }

    fn mark(&mut self, on: bool) {
        self.marked = on;
    }

    fn progress(&self) -> Vec<Progress> {
        self.progress.clone()
    }

    fn reading(&mut self) -> Option<Reading> {
        Some(Reading {
            sm_mhz: Some(1500),
            memory_mhz: Some(2000),
            power_w: Some(100.0),
            temperature_c: Some(40),
            throttle: Vec::new(),
        })
    }
}

impl FakeDevice {
    fn execute(&mut self, code: Code, launch: &LaunchValues) -> Result<(), CudaError> {
        if let Some(executor) = &mut self.executor {
            let image = self.images.get(&code).map_or(&[][..], Vec::as_slice);
            return executor.execute(image, launch, &mut self.buffers);
        }
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
        let launches = self.codes.get_mut(&code).ok_or(CudaError::Image { why: "it is not loaded".into() })?;
        *launches += 1;
        let launches = *launches;
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
            "count_loads" => self.fill(address(0)?, 1, launches as u8),
            // (x, y, bytes): y = x, but the 20th launch since the code was loaded faults, or leaves another byte.
            "fails_at_20" | "differs_at_20" => {
                self.copy(address(0)?, address(1)?, number(2)?)?;
                match launch.entry.as_str() {
                    _ if launches != 20 => Ok(()),
                    "fails_at_20" => Err(fault(FaultKind::IllegalAddress, 700, "CUDA_ERROR_ILLEGAL_ADDRESS")),
                    _ => {
                        self.part(address(1)? + 9, 1)?[0] ^= 1;
                        Ok(())
                    }
                }
            }
            // (x, y, bytes): y = x, and prints.
            _ => {
                println!("{{\"id\":1,\"reply\":\"missing\",\"sha256\":[]}}");
                self.copy(address(0)?, address(1)?, number(2)?)
            }
        }
    }
}
