//! The management library, loaded at run time: clocks, power, temperature, and why clocks are held down. Where it is absent, or does not
//! know the device, there is nothing to tell. Source: nvml.h of toolkit 13.0.

use crate::worker::protocol::Reading;
use libloading::Library;
use std::ffi::{CString, c_char, c_int, c_uint, c_ulonglong};
use std::ptr;

#[cfg(windows)]
const NAMES: &[&str] = &["nvml.dll"];
#[cfg(not(windows))]
const NAMES: &[&str] =
    &["libnvidia-ml.so.1", "/usr/lib/wsl/lib/libnvidia-ml.so.1", "/usr/local/nvidia/lib64/libnvidia-ml.so.1"];

/// `nvmlClocksEventReasons` and their words; that the device is idle (bit 0) is none.
const REASONS: [(u64, &str); 8] = [
    (0x02, "application_clocks"),
    (0x04, "sw_power_cap"),
    (0x08, "hw_slowdown"),
    (0x10, "sync_boost"),
    (0x20, "sw_thermal"),
    (0x40, "hw_thermal"),
    (0x80, "hw_power_brake"),
    (0x100, "display_clocks"),
];

/// One device, as the library knows it.
pub(crate) struct Nvml {
    device: usize,
    clock: unsafe extern "C" fn(usize, c_int, *mut c_uint) -> c_int,
    power: unsafe extern "C" fn(usize, *mut c_uint) -> c_int,
    temperature: unsafe extern "C" fn(usize, c_int, *mut c_uint) -> c_int,
    reasons: unsafe extern "C" fn(usize, *mut c_ulonglong) -> c_int,
    _library: Library,
}

impl Nvml {
    /// The device of this identifier, as `nvidia-smi -L` shows it.
    pub fn open(uuid: &str) -> Option<Nvml> {
        let uuid = CString::new(uuid).ok()?;
        // SAFETY: the library's initialisers may run in any program.
        let library = NAMES.iter().find_map(|name| unsafe { Library::new(*name) }.ok())?;
        // SAFETY: the signatures are nvml.h's, whose ABI does not change while the name stays; the addresses are kept beside the library.
        // The handle is an opaque pointer that the library owns; the identifier ends with a zero.
        unsafe {
            let init = library.get::<unsafe extern "C" fn() -> c_int>(b"nvmlInit_v2").ok()?;
            let find = library
                .get::<unsafe extern "C" fn(*const c_char, *mut usize) -> c_int>(b"nvmlDeviceGetHandleByUUID")
                .ok()?;
            let clock = *library.get(b"nvmlDeviceGetClockInfo").ok()?;
            let power = *library.get(b"nvmlDeviceGetPowerUsage").ok()?;
            let temperature = *library.get(b"nvmlDeviceGetTemperature").ok()?;
            let reasons = *library.get(b"nvmlDeviceGetCurrentClocksThrottleReasons").ok()?;
            let mut device = 0;
            if init() != 0 || find(uuid.as_ptr(), ptr::from_mut(&mut device)) != 0 {
                return None;
            }
            Some(Nvml { device, clock, power, temperature, reasons, _library: library })
        }
    }

    pub fn reading(&self) -> Reading {
        const SM: c_int = 1;
        const MEMORY: c_int = 2;
        let number = |get: &dyn Fn(*mut c_uint) -> c_int| {
            let mut value = 0;
            (get(&mut value) == 0).then_some(value)
        };
        // SAFETY: each call writes one number; the library is open.
        unsafe {
            let mut reasons = 0;
            let known = (self.reasons)(self.device, &mut reasons) == 0;
            let throttle = REASONS.iter().filter(|(bit, _)| known && reasons & bit != 0);
            Reading {
                sm_mhz: number(&|to| (self.clock)(self.device, SM, to)),
                memory_mhz: number(&|to| (self.clock)(self.device, MEMORY, to)),
                power_w: number(&|to| (self.power)(self.device, to)).map(|mw| f64::from(mw) / 1000.0),
                temperature_c: number(&|to| (self.temperature)(self.device, 0, to)),
                throttle: throttle.map(|(_, word)| (*word).to_string()).collect(),
            }
        }
    }
}
