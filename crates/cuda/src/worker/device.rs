//! What the worker needs of a device. One implementation drives CUDA, one is made of ordinary memory.

use crate::device::DeviceInfo;
use crate::error::CudaError;
use crate::module::Geometry;
use crate::tensor_map::TensorMapSpec;

/// A value for a parameter.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Address(u64),
    Bytes(Vec<u8>),
    /// A descriptor of the tensor at this address, by value.
    TensorMap {
        spec: TensorMapSpec,
        address: u64,
    },
}

/// One launch with its addresses known.
#[derive(Debug, Clone, PartialEq)]
pub struct LaunchValues {
    pub entry: String,
    pub geometry: Geometry,
    pub args: Vec<Value>,
}

/// Memory, loaded code, launches. Whoever uses it keeps to the memory that it was given.
pub trait Device {
    fn info(&self) -> DeviceInfo;

    /// Loads a cubin or PTX, with fresh variables, in place of what was loaded.
    fn load(&mut self, image: &[u8]) -> Result<(), CudaError>;

    /// Memory with any contents, aligned to 256; released by [`Device::release`].
    fn alloc(&mut self, bytes: u64) -> Result<u64, CudaError>;

    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), CudaError>;

    fn fill(&mut self, address: u64, bytes: u64, value: u8) -> Result<(), CudaError>;

    fn read(&mut self, address: u64, bytes: &mut [u8]) -> Result<(), CudaError>;

    /// Launches and waits for the end.
    fn launch(&mut self, launch: &LaunchValues) -> Result<(), CudaError>;

    /// Unloads the code and gives all memory back. Its contents are overwritten first: nobody finds them there later.
    fn release(&mut self);
}
