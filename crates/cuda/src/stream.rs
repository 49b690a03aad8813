//! Streams and events.

use crate::driver::{Context, Held};
use crate::error::CudaError;
use crate::ffi::Handle;
use std::sync::Arc;

/// A queue of work on the device that waits for no other one, the default stream included.
pub struct Stream {
    pub(crate) held: Arc<Held>,
    pub(crate) handle: Handle,
}

/// Whether an event remembers when it happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    Timed,
    /// For order only; cheaper.
    Untimed,
}

/// A mark in a stream.
pub struct Event {
    held: Arc<Held>,
    handle: Handle,
}

impl Context {
    pub fn stream(&self) -> Result<Stream, CudaError> {
        let handle = self.held.bind()?.stream_create()?;
        Ok(Stream { held: self.held.clone(), handle })
    }

    pub fn event(&self, kind: EventKind) -> Result<Event, CudaError> {
        const DISABLE_TIMING: u32 = 2;
        let flags = if kind == EventKind::Timed { 0 } else { DISABLE_TIMING };
        let handle = self.held.bind()?.event_create(flags)?;
        Ok(Event { held: self.held.clone(), handle })
    }
}

impl Stream {
    /// Waits for all its work; a kernel's fault shows here.
    pub fn wait(&self) -> Result<(), CudaError> {
        self.held.bind()?.stream_wait(self.handle)
    }

    /// Whether all its work is done.
    pub fn is_idle(&self) -> Result<bool, CudaError> {
        self.held.bind()?.stream_query(self.handle)
    }

    /// Work that is given to it from now on waits for the event.
    pub fn wait_for(&self, event: &Event) -> Result<(), CudaError> {
        self.held.bind()?.stream_wait_event(self.handle, event.handle)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if let Ok(api) = self.held.bind() {
            api.stream_destroy(self.handle);
        }
    }
}

impl Event {
    /// Marks the stream's end as it is now.
    pub fn record(&self, stream: &Stream) -> Result<(), CudaError> {
        self.held.bind()?.event_record(self.handle, stream.handle)
    }

    pub fn wait(&self) -> Result<(), CudaError> {
        self.held.bind()?.event_wait(self.handle)
    }

    pub fn has_happened(&self) -> Result<bool, CudaError> {
        self.held.bind()?.event_query(self.handle)
    }

    /// Microseconds from `start` to this one; both are timed and have happened. The device's resolution is half a microsecond.
    pub fn us_since(&self, start: &Event) -> Result<f64, CudaError> {
        Ok(f64::from(self.held.bind()?.event_elapsed_ms(start.handle, self.handle)?) * 1000.0)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if let Ok(api) = self.held.bind() {
            api.event_destroy(self.handle);
        }
    }
}
