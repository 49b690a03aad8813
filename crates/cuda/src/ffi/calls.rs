//! Each function of the driver as a safe call that returns a typed error.
//!
//! NOTE: asynchronous copies are given raw host addresses; [`crate::memory`] is the one that keeps those alive until they are done.

use super::table::{self, Table};
use super::{
    ATTRIBUTE_CLUSTER, ATTRIBUTE_COOPERATIVE, Address, Block, Handle, RawAttribute, RawLaunch, RawTensorMap,
    RawTensorMapSpec, RawValue,
};
use crate::error::{CudaError, DriverVersion, FaultKind};
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::ptr;

/// The oldest driver with every function that is used here: `cuFuncGetParamInfo` came last.
const NEED: DriverVersion = DriverVersion::new(12, 4);
/// What the driver's compiler may say of a PTX that it refuses.
const LOG_BYTES: usize = 16 << 10;

/// The driver, loaded and initialised.
pub(crate) struct Api {
    table: Table,
    pub version: DriverVersion,
}

impl Api {
    pub fn load() -> Result<Api, CudaError> {
        let library = table::open().map_err(|why| CudaError::NoDriver { why })?;
        let mut number = 0;
        // The version comes first, by itself: an old driver lacks functions of the table.
        {
            // SAFETY: as in the table.
            let get = unsafe { library.get::<unsafe extern "system" fn(*mut c_int) -> c_int>(b"cuDriverGetVersion") };
            let get = get.map_err(|e| CudaError::NoDriver { why: e.to_string() })?;
            // SAFETY: it writes one integer.
            unsafe { get(&mut number) };
        }
        let version = DriverVersion::from_number(number);
        let too_old = |what: &str| CudaError::DriverTooOld { have: version, need: NEED, what: what.to_string() };
        if version < NEED {
            return Err(too_old("Warpsmith"));
        }
        let table = Table::of(library).map_err(too_old)?;
        let api = Api { table, version };
        // SAFETY: the flags have to be 0.
        let code = unsafe { (api.table.init)(0) };
        match code {
            34 => Err(CudaError::NoDriver { why: "the library that was found is a stub for linking".into() }),
            100 | 101 => Err(CudaError::NoDevice { why: api.name(code) }),
            _ => api.check(code, "cuInit").map(|()| api),
        }
    }

    /// The driver's name of a code.
    fn name(&self, code: c_int) -> String {
        let mut text: *const c_char = ptr::null();
        // SAFETY: it writes one pointer to a string that lives as long as the library.
        unsafe {
            if (self.table.error_name)(code, &mut text) == 0 && !text.is_null() {
                return CStr::from_ptr(text).to_string_lossy().into_owned();
            }
        }
        format!("error {code}")
    }

    fn check(&self, code: c_int, call: &'static str) -> Result<(), CudaError> {
        if code == 0 {
            return Ok(());
        }
        let name = self.name(code);
        Err(match FaultKind::of(code) {
            Some(kind) => CudaError::Fault { kind, code, name, call },
            None => CudaError::Call { code, name, call },
        })
    }

    // Devices.

    pub fn device_count(&self) -> Result<u32, CudaError> {
        let mut n = 0;
        // SAFETY: it writes one integer.
        self.check(unsafe { (self.table.device_count)(&mut n) }, "cuDeviceGetCount")?;
        Ok(n.max(0) as u32)
    }

    pub fn device(&self, ordinal: u32) -> Result<i32, CudaError> {
        let mut device = 0;
        // SAFETY: it writes one integer.
        self.check(unsafe { (self.table.device_get)(&mut device, ordinal as c_int) }, "cuDeviceGet")?;
        Ok(device)
    }

    pub fn device_name(&self, device: i32) -> Result<String, CudaError> {
        let mut text = [0u8; 256];
        // SAFETY: it writes at most 255 bytes and a zero.
        self.check(unsafe { (self.table.device_name)(text.as_mut_ptr().cast(), 255, device) }, "cuDeviceGetName")?;
        let end = text.iter().position(|b| *b == 0).unwrap_or(text.len());
        Ok(String::from_utf8_lossy(&text[..end]).into_owned())
    }

    pub fn device_uuid(&self, device: i32) -> Result<[u8; 16], CudaError> {
        let mut id = [0u8; 16];
        // SAFETY: it writes sixteen bytes.
        self.check(unsafe { (self.table.device_uuid)(&mut id, device) }, "cuDeviceGetUuid")?;
        Ok(id)
    }

    pub fn device_attribute(&self, attribute: c_int, device: i32) -> Result<i32, CudaError> {
        let mut value = 0;
        // SAFETY: it writes one integer.
        self.check(unsafe { (self.table.device_attribute)(&mut value, attribute, device) }, "cuDeviceGetAttribute")?;
        Ok(value)
    }

    pub fn device_memory(&self, device: i32) -> Result<u64, CudaError> {
        let mut bytes = 0;
        // SAFETY: it writes one size.
        self.check(unsafe { (self.table.device_memory)(&mut bytes, device) }, "cuDeviceTotalMem")?;
        Ok(bytes as u64)
    }

    // The primary context.

    pub fn context_retain(&self, device: i32) -> Result<Handle, CudaError> {
        let mut context = 0;
        // SAFETY: it writes one handle.
        let code = unsafe { (self.table.context_retain)(&mut context, device) };
        match code {
            46 => {
                Err(CudaError::NoDevice { why: "another process holds it for itself (exclusive compute mode)".into() })
            }
            _ => self.check(code, "cuDevicePrimaryCtxRetain").map(|()| context),
        }
    }

    pub fn context_release(&self, device: i32) {
        // SAFETY: called once for each retain, by its owner. A lost context answers with an error that changes nothing.
        unsafe { (self.table.context_release)(device) };
    }

    pub fn context_set(&self, context: Handle) -> Result<(), CudaError> {
        // SAFETY: the owner holds the context.
        self.check(unsafe { (self.table.context_set)(context) }, "cuCtxSetCurrent")
    }

    pub fn context_wait(&self) -> Result<(), CudaError> {
        // SAFETY: no arguments.
        self.check(unsafe { (self.table.context_wait)() }, "cuCtxSynchronize")
    }

    pub fn context_limit(&self, limit: u32, value: usize) -> Result<(), CudaError> {
        // SAFETY: two numbers.
        self.check(unsafe { (self.table.context_limit)(limit, value) }, "cuCtxSetLimit")
    }

    pub fn reset_persisting_l2(&self) -> Result<(), CudaError> {
        // SAFETY: no arguments.
        self.check(unsafe { (self.table.reset_persisting_l2)() }, "cuCtxResetPersistingL2Cache")
    }

    // Modules and functions.

    /// `image` is a whole cubin, or PTX that ends with a zero byte; the caller has looked at it.
    pub fn module_load(&self, image: &[u8]) -> Result<Handle, CudaError> {
        let mut module = 0;
        let mut log = vec![0u8; LOG_BYTES];
        // CU_JIT_ERROR_LOG_BUFFER and its size, the latter by value in a pointer's place.
        let mut options: [c_uint; 2] = [5, 6];
        let mut values: [*mut c_void; 2] = [log.as_mut_ptr().cast(), ptr::without_provenance_mut(LOG_BYTES - 1)];
        // SAFETY: both arrays have the two elements that are announced, and the log has more than the announced bytes. The image is
        // whole: a cubin's own headers lie inside of it, and PTX ends with a zero.
        let code = unsafe {
            (self.table.module_load)(&mut module, image.as_ptr().cast(), 2, options.as_mut_ptr(), values.as_mut_ptr())
        };
        if code == 0 {
            return Ok(module);
        }
        let end = log.iter().position(|b| *b == 0).unwrap_or(0);
        let said = String::from_utf8_lossy(&log[..end]).trim().to_string();
        let name = self.name(code);
        Err(match code {
            // Image, binary for another GPU, PTX, PTX version, compiler, source, symbols.
            200 | 209 | 218 | 222 | 221 | 223 | 300..=303 => {
                CudaError::Image { why: if said.is_empty() { name } else { format!("{name}: {said}") } }
            }
            2 => CudaError::OutOfMemory { bytes: image.len() as u64 },
            _ => return self.check(code, "cuModuleLoadDataEx").map(|()| module),
        })
    }

    pub fn module_unload(&self, module: Handle) {
        // SAFETY: called once, by the owner.
        unsafe { (self.table.module_unload)(module) };
    }

    pub fn module_function(&self, module: Handle, entry: &str) -> Result<Handle, CudaError> {
        let missing = || CudaError::NoEntry { entry: entry.to_string() };
        let name = CString::new(entry).map_err(|_| missing())?;
        let mut function = 0;
        // SAFETY: the name ends with a zero; the owner holds the module.
        let code = unsafe { (self.table.module_function)(&mut function, module, name.as_ptr()) };
        if code == 500 {
            return Err(missing());
        }
        self.check(code, "cuModuleGetFunction").map(|()| function)
    }

    pub fn function_attribute(&self, attribute: c_int, function: Handle) -> Result<i32, CudaError> {
        let mut value = 0;
        // SAFETY: it writes one integer; the owner holds the function's module.
        self.check(unsafe { (self.table.function_attribute)(&mut value, attribute, function) }, "cuFuncGetAttribute")?;
        Ok(value)
    }

    pub fn function_set(&self, function: Handle, attribute: c_int, value: i32) -> Result<(), CudaError> {
        // SAFETY: the owner holds the function's module.
        self.check(unsafe { (self.table.function_set)(function, attribute, value) }, "cuFuncSetAttribute")
    }

    /// Sizes of the parameters, in order.
    pub fn function_parameters(&self, function: Handle) -> Result<Vec<usize>, CudaError> {
        let mut sizes = Vec::new();
        // No kernel has more than 32,764 bytes of parameters.
        while sizes.len() < 32_764 {
            let (mut offset, mut size) = (0, 0);
            // SAFETY: it writes two sizes; the owner holds the function's module.
            match unsafe { (self.table.function_parameter)(function, sizes.len(), &mut offset, &mut size) } {
                0 => sizes.push(size),
                // Invalid value: there is none of that index.
                1 => break,
                code => return self.check(code, "cuFuncGetParamInfo").map(|()| sizes),
            }
        }
        Ok(sizes)
    }

    // Memory.

    /// Free and total bytes.
    pub fn memory_info(&self) -> Result<(u64, u64), CudaError> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: it writes two sizes.
        self.check(unsafe { (self.table.memory_info)(&mut free, &mut total) }, "cuMemGetInfo")?;
        Ok((free as u64, total as u64))
    }

    pub fn memory_alloc(&self, bytes: u64) -> Result<Address, CudaError> {
        let mut address = 0;
        let size = usize::try_from(bytes).map_err(|_| CudaError::OutOfMemory { bytes })?;
        // SAFETY: it writes one address.
        let code = unsafe { (self.table.memory_alloc)(&mut address, size) };
        if code == 2 {
            return Err(CudaError::OutOfMemory { bytes });
        }
        self.check(code, "cuMemAlloc").map(|()| address)
    }

    pub fn memory_free(&self, address: Address) {
        // SAFETY: called once, by the owner.
        unsafe { (self.table.memory_free)(address) };
    }

    pub fn pinned_alloc(&self, bytes: usize) -> Result<*mut u8, CudaError> {
        let mut at = ptr::null_mut();
        // SAFETY: it writes one pointer.
        let code = unsafe { (self.table.pinned_alloc)(&mut at, bytes, 0) };
        if code == 2 {
            return Err(CudaError::OutOfMemory { bytes: bytes as u64 });
        }
        self.check(code, "cuMemHostAlloc").map(|()| at.cast())
    }

    pub fn pinned_free(&self, at: *mut u8) {
        // SAFETY: called once, by the owner.
        unsafe { (self.table.pinned_free)(at.cast()) };
    }

    /// The caller has checked that the bytes fit the allocation.
    pub fn copy_in(&self, to: Address, bytes: &[u8]) -> Result<(), CudaError> {
        // SAFETY: the driver reads exactly the slice, and is done with it when it returns.
        self.check(unsafe { (self.table.copy_in)(to, bytes.as_ptr().cast(), bytes.len()) }, "cuMemcpyHtoD")
    }

    pub fn copy_out(&self, bytes: &mut [u8], from: Address) -> Result<(), CudaError> {
        // SAFETY: the driver writes exactly the slice, and is done with it when it returns.
        self.check(unsafe { (self.table.copy_out)(bytes.as_mut_ptr().cast(), from, bytes.len()) }, "cuMemcpyDtoH")
    }

    /// `from` stays alive and unchanged until the stream has come so far; the caller sees to it.
    pub fn copy_in_async(&self, to: Address, from: *const u8, bytes: usize, stream: Handle) -> Result<(), CudaError> {
        // SAFETY: the caller's, as said above.
        self.check(unsafe { (self.table.copy_in_async)(to, from.cast(), bytes, stream) }, "cuMemcpyHtoDAsync")
    }

    /// `to` stays alive and untouched until the stream has come so far; the caller sees to it.
    pub fn copy_out_async(&self, to: *mut u8, from: Address, bytes: usize, stream: Handle) -> Result<(), CudaError> {
        // SAFETY: the caller's, as said above.
        self.check(unsafe { (self.table.copy_out_async)(to.cast(), from, bytes, stream) }, "cuMemcpyDtoHAsync")
    }

    pub fn copy_within_async(&self, to: Address, from: Address, bytes: usize, stream: Handle) -> Result<(), CudaError> {
        // SAFETY: device memory only.
        self.check(unsafe { (self.table.copy_within_async)(to, from, bytes, stream) }, "cuMemcpyDtoDAsync")
    }

    pub fn fill(&self, at: Address, value: u8, bytes: usize) -> Result<(), CudaError> {
        // SAFETY: device memory only.
        self.check(unsafe { (self.table.fill)(at, value, bytes) }, "cuMemsetD8")
    }

    pub fn fill_async(&self, at: Address, value: u8, bytes: usize, stream: Handle) -> Result<(), CudaError> {
        // SAFETY: device memory only.
        self.check(unsafe { (self.table.fill_async)(at, value, bytes, stream) }, "cuMemsetD8Async")
    }

    // Streams and events.

    pub fn stream_create(&self) -> Result<Handle, CudaError> {
        let mut stream = 0;
        // SAFETY: it writes one handle. CU_STREAM_NON_BLOCKING: nothing waits for the default stream.
        self.check(unsafe { (self.table.stream_create)(&mut stream, 1) }, "cuStreamCreate")?;
        Ok(stream)
    }

    pub fn stream_destroy(&self, stream: Handle) {
        // SAFETY: called once, by the owner.
        unsafe { (self.table.stream_destroy)(stream) };
    }

    pub fn stream_wait(&self, stream: Handle) -> Result<(), CudaError> {
        // SAFETY: the owner holds the stream.
        self.check(unsafe { (self.table.stream_wait)(stream) }, "cuStreamSynchronize")
    }

    /// Whether all that was given to it is done.
    pub fn stream_query(&self, stream: Handle) -> Result<bool, CudaError> {
        // SAFETY: the owner holds the stream.
        self.ready(unsafe { (self.table.stream_query)(stream) }, "cuStreamQuery")
    }

    pub fn stream_wait_event(&self, stream: Handle, event: Handle) -> Result<(), CudaError> {
        // SAFETY: the owners hold both.
        self.check(unsafe { (self.table.stream_wait_event)(stream, event, 0) }, "cuStreamWaitEvent")
    }

    fn ready(&self, code: c_int, call: &'static str) -> Result<bool, CudaError> {
        if code == 600 { Ok(false) } else { self.check(code, call).map(|()| true) }
    }

    pub fn event_create(&self, flags: c_uint) -> Result<Handle, CudaError> {
        let mut event = 0;
        // SAFETY: it writes one handle.
        self.check(unsafe { (self.table.event_create)(&mut event, flags) }, "cuEventCreate")?;
        Ok(event)
    }

    pub fn event_destroy(&self, event: Handle) {
        // SAFETY: called once, by the owner.
        unsafe { (self.table.event_destroy)(event) };
    }

    pub fn event_record(&self, event: Handle, stream: Handle) -> Result<(), CudaError> {
        // SAFETY: the owners hold both.
        self.check(unsafe { (self.table.event_record)(event, stream) }, "cuEventRecord")
    }

    pub fn event_wait(&self, event: Handle) -> Result<(), CudaError> {
        // SAFETY: the owner holds the event.
        self.check(unsafe { (self.table.event_wait)(event) }, "cuEventSynchronize")
    }

    pub fn event_query(&self, event: Handle) -> Result<bool, CudaError> {
        // SAFETY: the owner holds the event.
        self.ready(unsafe { (self.table.event_query)(event) }, "cuEventQuery")
    }

    pub fn event_elapsed_ms(&self, from: Handle, to: Handle) -> Result<f32, CudaError> {
        let mut ms = 0.0;
        // SAFETY: it writes one number; the owners hold both events.
        self.check(unsafe { (self.table.event_elapsed)(&mut ms, from, to) }, "cuEventElapsedTime")?;
        Ok(ms)
    }

    // Launches and graphs.

    /// `starts` gives the block of `blocks` that each argument begins with. The caller has compared their number and sizes with the
    /// function's parameters.
    pub fn launch(
        &self,
        function: Handle,
        grid: [u32; 3],
        block: [u32; 3],
        cluster: Option<[u32; 3]>,
        cooperative: bool,
        shared_bytes: u32,
        blocks: &[Block],
        starts: &[usize],
        stream: Handle,
    ) -> Result<(), CudaError> {
        let mut attributes = Vec::with_capacity(2);
        if let Some(sizes) = cluster {
            let mut value = [0u32; 16];
            value[..3].copy_from_slice(&sizes);
            attributes.push(RawAttribute { id: ATTRIBUTE_CLUSTER, pad: [0; 4], value: RawValue(value) });
        }
        if cooperative {
            let mut value = [0u32; 16];
            value[0] = 1;
            attributes.push(RawAttribute { id: ATTRIBUTE_COOPERATIVE, pad: [0; 4], value: RawValue(value) });
        }
        let attribute_count = attributes.len() as u32;
        let config = RawLaunch { grid, block, shared_bytes, stream, attributes: attributes.as_ptr(), attribute_count };
        let mut pointers: Vec<*mut c_void> =
            starts.iter().map(|s| ptr::from_ref(&blocks[*s]).cast_mut().cast::<c_void>()).collect();
        // SAFETY: the configuration and its attributes outlive the call, which copies the arguments. There are as many pointers as
        // the function has parameters, each to at least its size. The owner holds the function's module and the stream.
        let code = unsafe { (self.table.launch)(&config, function, pointers.as_mut_ptr(), ptr::null_mut()) };
        match code {
            // Invalid value, out of resources, invalid cluster size and their like: the launch did not happen.
            1 | 701 | 720 | 912 | 914 | 915 => Err(CudaError::Launch {
                what: format!(
                    "the driver refuses the launch with {}: grid {grid:?}, block {block:?}, {shared_bytes} bytes of dynamic shared memory{}{}",
                    self.name(code),
                    cluster.map_or_else(String::new, |c| format!(", cluster {c:?}")),
                    if cooperative { ", all blocks at once" } else { "" }
                ),
            }),
            _ => self.check(code, "cuLaunchKernelEx"),
        }
    }

    pub fn capture_begin(&self, stream: Handle) -> Result<(), CudaError> {
        // SAFETY: the owner holds the stream. CU_STREAM_CAPTURE_MODE_THREAD_LOCAL.
        self.check(unsafe { (self.table.capture_begin)(stream, 1) }, "cuStreamBeginCapture")
    }

    pub fn capture_end(&self, stream: Handle) -> Result<Handle, CudaError> {
        let mut graph = 0;
        // SAFETY: it writes one handle; the owner holds the stream.
        self.check(unsafe { (self.table.capture_end)(stream, &mut graph) }, "cuStreamEndCapture")?;
        Ok(graph)
    }

    pub fn graph_nodes(&self, graph: Handle) -> Result<usize, CudaError> {
        let mut n = 0;
        // SAFETY: with no array it writes the number only; the owner holds the graph.
        self.check(unsafe { (self.table.graph_nodes)(graph, ptr::null_mut(), &mut n) }, "cuGraphGetNodes")?;
        Ok(n)
    }

    pub fn graph_destroy(&self, graph: Handle) {
        // SAFETY: called once, by the owner.
        unsafe { (self.table.graph_destroy)(graph) };
    }

    pub fn graph_instantiate(&self, graph: Handle) -> Result<Handle, CudaError> {
        let mut exec = 0;
        // SAFETY: it writes one handle; the owner holds the graph.
        self.check(unsafe { (self.table.graph_instantiate)(&mut exec, graph, 0) }, "cuGraphInstantiate")?;
        Ok(exec)
    }

    pub fn graph_launch(&self, exec: Handle, stream: Handle) -> Result<(), CudaError> {
        // SAFETY: the owners hold both.
        self.check(unsafe { (self.table.graph_launch)(exec, stream) }, "cuGraphLaunch")
    }

    pub fn graph_exec_destroy(&self, exec: Handle) {
        // SAFETY: called once, by the owner.
        unsafe { (self.table.graph_exec_destroy)(exec) };
    }

    /// All slices but the strides have one number for each dimension, the strides one less; the caller has checked it.
    pub fn tensor_map_encode(&self, spec: &RawTensorMapSpec) -> Result<[u8; 128], CudaError> {
        let mut map = RawTensorMap([0; 128]);
        let rank = spec.dims.len() as u32;
        // SAFETY: it writes 128 aligned bytes and reads as many numbers of each slice as the rank says. The address is only stored.
        let code = unsafe {
            (self.table.tensor_map_encode)(
                &mut map,
                spec.data_type,
                rank,
                spec.address,
                spec.dims.as_ptr(),
                spec.strides.as_ptr(),
                spec.box_sizes.as_ptr(),
                spec.element_strides.as_ptr(),
                spec.interleave,
                spec.swizzle,
                spec.l2_promotion,
                spec.fill,
            )
        };
        self.check(code, "cuTensorMapEncodeTiled").map(|()| map.0)
    }
}
