//! A CUDA device as the worker uses it: memory, code, launches. `cuda_timing.rs` beside has what timing needs.

use super::device::{Check, Code, Device, Failed, Found, LaunchValues, Move, Progress, Ready, Recorded, Value};
use super::protocol::Reading;
use crate::device::DeviceInfo;
use crate::driver::{Context, Driver};
use crate::error::CudaError;
use crate::ffi::{Nvml, Nvtx};
use crate::graph::Graph;
use crate::memory::DeviceBuffer;
use crate::module::{Arguments, Function, Geometry, Module};
use crate::stream::Stream;
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

mod marks;
mod timing;

use marks::Marks;
use timing::Support;

/// What freed memory is left with.
const SCRUB: u8 = 0xa5;
/// Bytes of shared memory beyond which an entry has to be told.
const PLAIN_SHARED_BYTES: u32 = 48 << 10;

/// One device with its primary context.
pub struct CudaDevice {
    context: Context,
    stream: Stream,
    codes: HashMap<Code, Loaded>,
    next: u32,
    buffers: BTreeMap<u64, DeviceBuffer>,
    /// Made when something is first timed.
    support: Option<Support>,
    marks: Marks,
    /// Looked for once.
    nvml: Option<Option<Nvml>>,
    nvtx: Option<Option<Nvtx>>,
}

/// Loaded code and what was made of it. Graphs go before what they launch.
struct Loaded {
    graphs: Vec<Graph>,
    ready: Vec<ReadyLaunch>,
    functions: HashMap<String, Arc<Function>>,
    module: Arc<Module>,
}

struct ReadyLaunch {
    function: Arc<Function>,
    geometry: Geometry,
    arguments: Arguments,
}

impl CudaDevice {
    pub fn open(ordinal: u32) -> Result<CudaDevice, CudaError> {
        let context = Driver::load()?.context(ordinal)?;
        context.forget_persisting_l2()?;
        let stream = context.stream()?;
        Ok(CudaDevice {
            context,
            stream,
            codes: HashMap::new(),
            next: 0,
            buffers: BTreeMap::new(),
            support: None,
            marks: Marks::default(),
            nvml: None,
            nvtx: None,
        })
    }

    /// The buffer that holds an address, and the address's place in it.
    fn at(&self, address: u64) -> Result<(&DeviceBuffer, u64), CudaError> {
        let found = self.buffers.range(..=address).next_back().filter(|(start, b)| address - **start < b.len().max(1));
        found
            .map(|(start, b)| (b, address - start))
            .ok_or_else(|| CudaError::Launch { what: format!("no buffer at {address:#x}") })
    }

    fn loaded(&self, code: Code) -> Result<&Loaded, CudaError> {
        self.codes.get(&code).ok_or_else(|| CudaError::Image { why: "it is not loaded".into() })
    }

    /// Encodes a launch, and has its entry allow the shared memory that it asks for.
    fn encode(&mut self, code: Code, launch: &LaunchValues) -> Result<ReadyLaunch, CudaError> {
        let loaded = self.codes.get_mut(&code).ok_or_else(|| CudaError::Image { why: "it is not loaded".into() })?;
        let function = match loaded.functions.get(&launch.entry) {
            Some(function) => function.clone(),
            None => {
                let function = Arc::new(loaded.module.function(&launch.entry)?);
                loaded.functions.insert(launch.entry.clone(), function.clone());
                function
            }
        };
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
        function.fits(&launch.geometry, &arguments)?;
        Ok(ReadyLaunch { function, geometry: launch.geometry, arguments })
    }
}

impl ReadyLaunch {
    fn give_to(&self, stream: &Stream) -> Result<(), CudaError> {
        stream.launch(&self.function, &self.geometry, &self.arguments)
    }
}

impl Device for CudaDevice {
    fn info(&self) -> DeviceInfo {
        self.context.device().clone()
    }

    fn lock_file(&self) -> Option<PathBuf> {
        Some(std::env::temp_dir().join(format!("warpsmith-{}.lock", self.context.device().uuid)))
    }

    fn load(&mut self, image: &[u8]) -> Result<Code, CudaError> {
        let module = self.context.load(image)?;
        self.next += 1;
        let code = Code(self.next);
        let loaded = Loaded { graphs: Vec::new(), ready: Vec::new(), functions: HashMap::new(), module };
        self.codes.insert(code, loaded);
        Ok(code)
    }

    fn unload(&mut self, code: Code) {
        self.codes.remove(&code);
    }

    fn alloc(&mut self, bytes: u64) -> Result<u64, CudaError> {
        let buffer = self.context.alloc(bytes)?;
        let address = buffer.address();
        self.buffers.insert(address, buffer);
        Ok(address)
    }

    fn free(&mut self, addresses: &[u64]) {
        for address in addresses {
            if let Some(buffer) = self.buffers.remove(address) {
                // A lost context has no memory left to overwrite.
                let _ = buffer.fill(0, buffer.len(), SCRUB);
            }
        }
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

    fn launch(&mut self, code: Code, launch: &LaunchValues) -> Result<(), CudaError> {
        let ready = self.encode(code, launch)?;
        // What was written to the buffers went through the default stream, which this one does not wait for.
        self.context.wait()?;
        ready.give_to(&self.stream)?;
        self.stream.wait()
    }

    fn ready(&mut self, code: Code, launch: &LaunchValues) -> Result<Ready, CudaError> {
        let encoded = self.encode(code, launch)?;
        let loaded = self.codes.get_mut(&code).ok_or_else(|| CudaError::Image { why: "it is not loaded".into() })?;
        loaded.ready.push(encoded);
        Ok(Ready { code, index: loaded.ready.len() as u32 - 1 })
    }

    fn record(&mut self, launches: &[Ready]) -> Result<Recorded, CudaError> {
        self.record_graph(launches)
    }

    fn arrange(&mut self, moves: &[Move]) -> Result<(), CudaError> {
        self.arrange_all(moves)
    }

    fn compare(&mut self, checks: &[Check]) -> Result<Vec<Option<Found>>, CudaError> {
        self.compare_all(checks)
    }

    fn flush(&mut self) -> Result<(), CudaError> {
        self.flush_l2()
    }

    fn forget_persisting(&mut self) -> Result<(), CudaError> {
        self.context.forget_persisting_l2()
    }

    fn replay(&mut self, graph: Recorded, observe: bool) -> Result<(f64, Option<Reading>), CudaError> {
        self.replay_graph(graph, observe)
    }

    fn event(&mut self, launches: &[Ready]) -> Result<f64, CudaError> {
        self.between_events(launches)
    }

    fn eager(&mut self, launches: &[Ready]) -> Result<f64, CudaError> {
        self.by_the_host(launches)
    }

    fn single(&mut self, call: &[Ready], fresh: bool) -> Result<(), Failed> {
        self.one_by_one(call, fresh)
    }

    fn volley(&mut self, calls: &[&[Ready]]) -> Result<(), CudaError> {
        self.many_at_once(calls)
    }

    fn mark(&mut self, on: bool) {
        self.marks.on = on;
    }

    fn progress(&self) -> Vec<Progress> {
        self.marks.progress()
    }

    fn reading(&mut self) -> Option<Reading> {
        let uuid = &self.context.device().uuid;
        self.nvml.get_or_insert_with(|| Nvml::open(uuid)).as_ref().map(Nvml::reading)
    }

    fn begin_range(&mut self, name: &str) {
        if let Some(nvtx) = self.nvtx.get_or_insert_with(Nvtx::open) {
            nvtx.push(name);
        }
    }

    fn end_range(&mut self) {
        if let Some(Some(nvtx)) = &self.nvtx {
            nvtx.pop();
        }
    }
}
