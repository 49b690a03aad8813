//! The driver of this machine, its devices, and their primary contexts.

use crate::device::DeviceInfo;
use crate::error::{CudaError, DriverVersion};
use crate::ffi::{Api, Handle};
use std::fmt;
use std::sync::Arc;

/// The CUDA driver, loaded at run time. Cheap to clone.
#[derive(Clone)]
pub struct Driver {
    pub(crate) api: Arc<Api>,
}

impl Driver {
    /// Loads and initialises it. Errors: [`CudaError::NoDriver`], [`CudaError::NoDevice`], [`CudaError::DriverTooOld`].
    pub fn load() -> Result<Driver, CudaError> {
        Ok(Driver { api: Arc::new(Api::load()?) })
    }

    /// The newest CUDA version that this driver serves.
    pub fn version(&self) -> DriverVersion {
        self.api.version
    }

    /// All devices that this process may see, in the driver's order.
    pub fn devices(&self) -> Result<Vec<DeviceInfo>, CudaError> {
        (0..self.api.device_count()?).map(|ordinal| self.device(ordinal)).collect()
    }

    /// One device's description.
    pub fn device(&self, ordinal: u32) -> Result<DeviceInfo, CudaError> {
        let count = self.api.device_count()?;
        if ordinal >= count {
            return Err(CudaError::NoDevice { why: format!("device {ordinal} is asked for, and there are {count}") });
        }
        DeviceInfo::read(&self.api, ordinal)
    }

    /// The device's primary context, made if there is none yet: that takes tenths of a second.
    pub fn context(&self, ordinal: u32) -> Result<Context, CudaError> {
        let info = self.device(ordinal)?;
        let device = self.api.device(ordinal)?;
        let handle = self.api.context_retain(device)?;
        let context = Context { held: Arc::new(Held { api: self.api.clone(), device, handle, info }) };
        context.held.bind()?;
        Ok(context)
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Driver {}", self.version())
    }
}

/// A retained primary context; everything made in it keeps it alive.
pub(crate) struct Held {
    pub api: Arc<Api>,
    device: i32,
    handle: Handle,
    info: DeviceInfo,
}

impl Held {
    /// Makes it this thread's current context, which most calls need; the driver answers in nanoseconds if it is already.
    pub fn bind(&self) -> Result<&Api, CudaError> {
        self.api.context_set(self.handle)?;
        Ok(&self.api)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.api.context_release(self.device);
    }
}

/// A device, ready for work. Cheap to clone; any thread may use it.
#[derive(Clone)]
pub struct Context {
    pub(crate) held: Arc<Held>,
}

impl Context {
    pub fn device(&self) -> &DeviceInfo {
        &self.held.info
    }

    /// Waits for all work of this context; a kernel's fault shows here at the latest.
    pub fn wait(&self) -> Result<(), CudaError> {
        self.held.bind()?.context_wait()
    }

    /// Free and total bytes of the device's memory.
    pub fn memory(&self) -> Result<(u64, u64), CudaError> {
        self.held.bind()?.memory_info()
    }

    /// Forbids lines that persist in L2, and forgets those there are: no measurement shall live off another's.
    pub fn forget_persisting_l2(&self) -> Result<(), CudaError> {
        let api = self.held.bind()?;
        if self.held.info.persisting_l2_bytes > 0 {
            const PERSISTING_L2: u32 = 6;
            api.context_limit(PERSISTING_L2, 0)?;
            api.reset_persisting_l2()?;
        }
        Ok(())
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Context on {}", self.held.info.name)
    }
}
