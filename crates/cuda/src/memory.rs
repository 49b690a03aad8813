//! Memory of the device, and of the host where the device copies from and to it while the host goes on.

use crate::driver::{Context, Held};
use crate::error::CudaError;
use crate::ffi::Address;
use crate::stream::Stream;
use std::sync::Arc;

/// An allocation on the device; freed when dropped. Its first byte is aligned to 256.
pub struct DeviceBuffer {
    held: Arc<Held>,
    address: Address,
    bytes: u64,
}

impl Context {
    /// Memory with undefined contents.
    pub fn alloc(&self, bytes: u64) -> Result<DeviceBuffer, CudaError> {
        let address = self.held.bind()?.memory_alloc(bytes.max(1))?;
        Ok(DeviceBuffer { held: self.held.clone(), address, bytes })
    }

    /// Page-locked host memory, zeroed: the only kind that asynchronous copies take.
    pub fn pinned(&self, bytes: usize) -> Result<Pinned, CudaError> {
        let at = self.held.bind()?.pinned_alloc(bytes.max(1))?;
        let mut pinned = Pinned { held: self.held.clone(), at: at as usize, bytes };
        pinned.bytes_mut().fill(0);
        Ok(pinned)
    }
}

impl DeviceBuffer {
    pub fn address(&self) -> u64 {
        self.address
    }

    pub fn len(&self) -> u64 {
        self.bytes
    }

    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The address of a part, if it lies inside.
    fn part(&self, offset: u64, bytes: u64) -> Result<Address, CudaError> {
        match offset.checked_add(bytes) {
            Some(end) if end <= self.bytes => Ok(self.address + offset),
            _ => Err(CudaError::Launch {
                what: format!("{bytes} bytes at offset {offset} do not lie in a buffer of {} bytes", self.bytes),
            }),
        }
    }

    /// Copies in, and waits.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), CudaError> {
        let to = self.part(offset, bytes.len() as u64)?;
        if bytes.is_empty() { Ok(()) } else { self.held.bind()?.copy_in(to, bytes) }
    }

    /// Copies out, after all that was launched before on blocking streams; wait for other streams first.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<(), CudaError> {
        let from = self.part(offset, bytes.len() as u64)?;
        if bytes.is_empty() { Ok(()) } else { self.held.bind()?.copy_out(bytes, from) }
    }

    /// Sets every byte of a part.
    pub fn fill(&self, offset: u64, bytes: u64, value: u8) -> Result<(), CudaError> {
        let at = self.part(offset, bytes)?;
        if bytes == 0 { Ok(()) } else { self.held.bind()?.fill(at, value, bytes as usize) }
    }

    /// Sets every byte, in the stream's order.
    pub fn fill_async(&self, value: u8, stream: &Stream) -> Result<(), CudaError> {
        if self.bytes == 0 {
            Ok(())
        } else {
            self.held.bind()?.fill_async(self.address, value, self.bytes as usize, stream.handle)
        }
    }

    /// Copies all of another buffer that is at most as large, in the stream's order.
    pub fn copy_from_async(&self, from: &DeviceBuffer, stream: &Stream) -> Result<(), CudaError> {
        let to = self.part(0, from.bytes)?;
        if from.bytes == 0 {
            Ok(())
        } else {
            self.held.bind()?.copy_within_async(to, from.address, from.bytes as usize, stream.handle)
        }
    }

    /// Copies in from page-locked memory, in the stream's order; the memory comes back from [`InFlight::wait`].
    pub fn write_async<'a>(&self, offset: u64, from: Pinned, stream: &'a Stream) -> Result<InFlight<'a>, CudaError> {
        let to = self.part(offset, from.bytes as u64)?;
        self.held.bind()?.copy_in_async(to, from.at as *const u8, from.bytes, stream.handle)?;
        Ok(InFlight { stream, memory: Some(from) })
    }

    /// Copies its first byte to a place in page-locked memory that outlives the stream's work, in the stream's order.
    pub(crate) fn leave(&self, to: &Pinned, byte: usize, stream: &Stream) -> Result<(), CudaError> {
        let from = self.part(0, 1)?;
        if byte >= to.bytes {
            return Err(CudaError::Launch { what: format!("byte {byte} of {} bytes of host memory", to.bytes) });
        }
        self.held.bind()?.copy_out_async((to.at + byte) as *mut u8, from, 1, stream.handle)
    }

    /// Copies out to page-locked memory, in the stream's order.
    pub fn read_async<'a>(&self, offset: u64, to: Pinned, stream: &'a Stream) -> Result<InFlight<'a>, CudaError> {
        let from = self.part(offset, to.bytes as u64)?;
        self.held.bind()?.copy_out_async(to.at as *mut u8, from, to.bytes, stream.handle)?;
        Ok(InFlight { stream, memory: Some(to) })
    }
}

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        if let Ok(api) = self.held.bind() {
            api.memory_free(self.address);
        }
    }
}

/// Page-locked host memory.
pub struct Pinned {
    held: Arc<Held>,
    at: usize,
    bytes: usize,
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if let Ok(api) = self.held.bind() {
            api.pinned_free(self.at as *mut u8);
        }
    }
}

impl Pinned {
    pub fn bytes(&self) -> &[u8] {
        crate::ffi::slice(&self.at, self.bytes)
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        crate::ffi::slice_mut(&mut self.at, self.bytes)
    }
}

/// A copy that may still be going on; it keeps its host memory until the stream has come so far.
#[must_use = "the memory comes back from wait()"]
pub struct InFlight<'a> {
    stream: &'a Stream,
    memory: Option<Pinned>,
}

impl InFlight<'_> {
    /// Waits for the stream and gives the memory back.
    pub fn wait(mut self) -> Result<Pinned, CudaError> {
        self.stream.wait()?;
        self.memory.take().ok_or(CudaError::Launch { what: "the memory was given back already".into() })
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take()
            && self.stream.wait().is_err()
        {
            // The device may still write there: rather lose the memory than free it.
            std::mem::forget(memory);
        }
    }
}
