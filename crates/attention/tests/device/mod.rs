//! What tests on a device share: its context, and memory with contents.

use warpsmith_attention::DevicePtr;
use warpsmith_cuda::{Context, DeviceBuffer, Driver};

/// The device's context, held until the process ends: kernels stay loaded in it, for the next test too.
pub fn kept_context() -> Context {
    let driver = Driver::load().expect("there is a driver");
    std::mem::forget(driver.context(0).expect("there is a device"));
    driver.context(0).expect("there is a device")
}

pub fn at(buffer: &DeviceBuffer) -> DevicePtr {
    DevicePtr(buffer.address())
}

/// So many bytes, at least 16, of that value.
pub fn filled(context: &Context, bytes: u64, value: u8) -> DeviceBuffer {
    let buffer = context.alloc(bytes.max(16)).expect("there is room");
    buffer.fill(0, bytes.max(16), value).expect("the buffer is written");
    buffer
}

/// These bytes.
pub fn written(context: &Context, bytes: &[u8]) -> DeviceBuffer {
    let buffer = context.alloc(bytes.len().max(16) as u64).expect("there is room");
    buffer.write(0, bytes).expect("the buffer is written");
    buffer
}
