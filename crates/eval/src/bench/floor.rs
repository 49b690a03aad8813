//! The least time that physics allows: bytes that must be read over the rated bandwidth, operations over the rated peak.
//!
//! A kernel that is faster than that did not do its work, or was not timed. Only what is certain counts: inputs are read once, outputs may
//! stay in a cache; every multiply-add of the definition is two operations of the fastest 8-bit product there is. Source of the peaks:
//! operations of one multiprocessor in one clock, dense, from NVIDIA's architecture whitepapers (A100, Ada, H100, Blackwell).

use super::timed::{Method, Rated};
use crate::inputs::{Inputs, Numbers};
use warpsmith_cuda::DeviceInfo;
use warpsmith_spec::record::FloorRecord;

/// Rated figures are what is sold; clocks may be somewhat above them, and timers have a grain.
const MARGIN: f64 = 0.9;

/// What a device is rated at.
pub fn rated(device: &DeviceInfo) -> Rated {
    // Rated clocks may be missing from the driver's answer; then nothing is judged by them.
    let operations = match device.compute_capability {
        (8, 0) => 4096.0,
        (8, _) => 2048.0,
        (9, _) => 8192.0,
        (10 | 11, _) => 16384.0,
        (12, _) => 4096.0,
        _ => 0.0,
    };
    let product = |factors: &[f64]| Some(factors.iter().product::<f64>()).filter(|x| *x > 0.0);
    // Two transfers in one clock of the memory, as the driver counts it.
    let bandwidth = [f64::from(device.memory_clock_mhz) * 1e6, f64::from(device.memory_bus_bits) / 8.0, 2.0];
    let peak = [f64::from(device.sm_clock_mhz) * 1e6, f64::from(device.sm_count), operations];
    Rated { bytes_per_second: product(&bandwidth), operations_per_second: product(&peak) }
}

/// The floor of a call on these inputs by this method.
pub fn floor(rated: &Rated, inputs: &Inputs, method: Method) -> Option<FloorRecord> {
    let bytes: u64 = inputs.tensors.iter().map(|t| t.bytes.len() as u64).sum();
    // Only a method that flushes L2 makes the inputs come from memory.
    let cold = matches!(method, Method::GraphCold | Method::Event);
    let reading = rated.bytes_per_second.filter(|_| cold).map(|rate| {
        let us = bytes as f64 / rate * 1e6;
        (us, format!("{bytes} bytes of inputs at {:.2} TB/s", rate / 1e12))
    });
    let computing = rated.operations_per_second.zip(operations(inputs)).map(|(rate, operations)| {
        let us = operations / rate * 1e6;
        (us, format!("{:.3} G operations at {:.0} T/s", operations / 1e9, rate / 1e12))
    });
    let (us, what) = reading.into_iter().chain(computing).max_by(|a, b| a.0.total_cmp(&b.0))?;
    Some(FloorRecord { us, why: format!("{what} take {us:.3} us") })
}

/// Whether a time is impossible.
pub fn below(floor: &FloorRecord, median_us: f64) -> bool {
    median_us < MARGIN * floor.us
}

/// Of the definition, where it is known: two products over the pairs of queries and keys that see each other.
fn operations(inputs: &Inputs) -> Option<f64> {
    let Numbers::Attention { quantised, .. } = &inputs.numbers else { return None };
    let g = quantised.geometry;
    let seen = |head: usize| -> u64 {
        let length = quantised.sight.length(g, head).q;
        (0..length).map(|row| quantised.visible(head, row) as u64).sum()
    };
    let pairs: u64 = (0..g.heads).map(seen).sum();
    Some(4.0 * pairs as f64 * g.head_dim as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn h200() -> DeviceInfo {
        let fake = warpsmith_cuda::worker::fake::device();
        DeviceInfo { sm_count: 132, sm_clock_mhz: 1980, memory_clock_mhz: 3201, memory_bus_bits: 6144, ..fake }
    }

    #[test]
    fn an_h200_is_rated_as_it_is_sold() {
        let r = rated(&h200());
        assert!((4.7e12..5.0e12).contains(&r.bytes_per_second.expect("known")), "{r:?}");
        assert!((1.9e15..2.2e15).contains(&r.operations_per_second.expect("known")), "{r:?}");
        let unknown = DeviceInfo { memory_clock_mhz: 0, sm_clock_mhz: 0, ..h200() };
        assert_eq!(rated(&unknown), Rated::default());
    }
}
