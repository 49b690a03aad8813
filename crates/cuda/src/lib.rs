//! The CUDA driver API, loaded at run time, and the worker process that touches the device.
//!
//! Picture: [`Driver`] -> [`Context`] -> [`Module`] -> [`Function`], [`DeviceBuffer`], [`Stream`] -> launches, [`Graph`], [`Event`].
//! [`worker`] puts a process and a protocol around it, so that a kernel that faults or hangs takes nobody with it.
//!
//! Refuses to know: tasks, tolerances, references, verdicts. It builds and tests where there is no driver: [`Driver::load`] says so then.
//! `unsafe` is in [`ffi`] alone. Source: the CUDA driver API of toolkit 13.0; drivers from 12.4 on serve.

#![deny(unsafe_code)]

mod device;
mod driver;
mod error;
#[allow(unsafe_code)]
mod ffi;
mod graph;
mod memory;
mod module;
mod stream;
mod tensor_map;
pub mod worker;

pub use device::DeviceInfo;
pub use driver::{Context, Driver};
pub use error::{CudaError, DriverVersion, FaultKind};
pub use graph::Graph;
pub use memory::{DeviceBuffer, InFlight, Pinned};
pub use module::{Arguments, Function, FunctionInfo, Geometry, Module};
pub use stream::{Event, EventKind, Stream};
pub use tensor_map::TensorMapSpec;
