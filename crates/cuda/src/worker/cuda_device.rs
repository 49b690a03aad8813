//! A CUDA device as the worker uses it.

use super::device::{Device, LaunchValues, Value};
use crate::device::DeviceInfo;
use crate::driver::{Context, Driver};
use crate::error::CudaError;
use crate::memory::DeviceBuffer;
use crate::module::{Arguments, Module};
use crate::stream::Stream;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What freed memory is left with.
const SCRUB: u8 = 0xa5;
/// Bytes of shared memory beyond which an entry has to be told.
const PLAIN_SHARED_BYTES: u32 = 48 << 10;

/// One device with its primary context.
pub struct CudaDevice {
    context: Context,
    stream: Stream,
    module: Option<Arc<Module>>,
    buffers: BTreeMap<u64, DeviceBuffer>,
}

impl CudaDevice {
    pub fn open(ordinal: u32) -> Result<CudaDevice, CudaError> {
        let context = Driver::load()?.context(ordinal)?;
        context.forget_persisting_l2()?;
        let stream = context.stream()?;
        Ok(CudaDevice { context, stream, module: None, buffers: BTreeMap::new() })
    }

    /// The buffer that holds an address, and the address's place in it.
    fn at(&self, address: u64) -> Result<(&DeviceBuffer, u64), CudaError> {
        let found = self.buffers.range(..=address).next_back().filter(|(start, b)| address - **start < b.len().max(1));
        found
            .map(|(start, b)| (b, address - start))
            .ok_or_else(|| CudaError::Launch { what: format!("no buffer at {address:#x}") })
    }
}

impl Device for CudaDevice {
    fn info(&self) -> DeviceInfo {
        self.context.device().clone()
    }

    fn load(&mut self, image: &[u8]) -> Result<(), CudaError> {
        self.module = None;
        self.module = Some(self.context.load(image)?);
        Ok(())
    }

    fn alloc(&mut self, bytes: u64) -> Result<u64, CudaError> {
        let buffer = self.context.alloc(bytes)?;
        let address = buffer.address();
        self.buffers.insert(address, buffer);
        Ok(address)
    }

    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), CudaError> {
        let (buffer, offset) = self.at(address)?;
        buffer.write(offset, bytes)
    }

    fn fill(&mut self, address: u64, bytes: u64, value: u8) -> Result<(), CudaError> {
        let (buffer, offset) = self.at(address)?;
        buffer.fill(offset, bytes, value)
    }

    fn read(&mut self, address: u64, bytes: &mut [u8]) -> Result<(), CudaError> {
        let (buffer, offset) = self.at(address)?;
        buffer.read(offset, bytes)
    }

    fn launch(&mut self, launch: &LaunchValues) -> Result<(), CudaError> {
        let module = self.module.as_ref().ok_or_else(|| CudaError::Image { why: "nothing is loaded".into() })?;
        let function = module.function(&launch.entry)?;
        if launch.geometry.shared_bytes.saturating_add(function.info().shared_bytes) > PLAIN_SHARED_BYTES {
            function.allow_shared_bytes(launch.geometry.shared_bytes)?;
        }
        let mut arguments = Arguments::new();
        for value in &launch.args {
            match value {
                Value::Address(address) => arguments.address(*address),
                Value::Bytes(bytes) => arguments.push(bytes),
                Value::TensorMap { spec, address } => arguments.push(&self.context.tensor_map(spec, *address)?),
            };
        }
        // What was written to the buffers went through the default stream, which this one does not wait for.
        self.context.wait()?;
        self.stream.launch(&function, &launch.geometry, &arguments)?;
        self.stream.wait()
    }

    fn release(&mut self) {
        for buffer in self.buffers.values() {
            // A lost context has no memory left to overwrite.
            let _ = buffer.fill(0, buffer.len(), SCRUB);
        }
        self.buffers.clear();
        self.module = None;
    }
}
