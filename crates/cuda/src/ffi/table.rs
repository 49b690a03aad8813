//! The driver library, loaded at run time, and the addresses of its functions.

use super::{Address, Handle, RawLaunch, RawTensorMap};
use libloading::Library;
use std::ffi::{c_char, c_int, c_uint, c_void};

/// Where the driver is looked for, in this order.
#[cfg(windows)]
pub(super) const NAMES: &[&str] = &["nvcuda.dll"];
#[cfg(not(windows))]
pub(super) const NAMES: &[&str] =
    &["libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1", "/usr/local/nvidia/lib64/libcuda.so.1"];

macro_rules! functions {
    ($($field:ident = $symbol:literal($($type:ty),*);)*) => {
        /// Addresses, and the library that they point into.
        pub(super) struct Table {
            $(pub $field: unsafe extern "system" fn($($type),*) -> c_int,)*
            _library: Library,
        }

        impl Table {
            /// The functions of an open library, or the symbol that it lacks.
            pub fn of(library: Library) -> Result<Table, &'static str> {
                $(
                    // SAFETY: the signature is the one that cuda.h of toolkit 13.0 declares for this symbol, whose ABI does not change
                    // while the name, version suffix included, stays. The address is kept beside the library that it points into.
                    let $field = unsafe {
                        *library
                            .get::<unsafe extern "system" fn($($type),*) -> c_int>($symbol.as_bytes())
                            .map_err(|_| $symbol)?
                    };
                )*
                Ok(Table { $($field,)* _library: library })
            }
        }
    };
}

functions! {
    init = "cuInit"(c_uint);
    error_name = "cuGetErrorName"(c_int, *mut *const c_char);
    device_count = "cuDeviceGetCount"(*mut c_int);
    device_get = "cuDeviceGet"(*mut c_int, c_int);
    device_name = "cuDeviceGetName"(*mut c_char, c_int, c_int);
    device_uuid = "cuDeviceGetUuid_v2"(*mut [u8; 16], c_int);
    device_attribute = "cuDeviceGetAttribute"(*mut c_int, c_int, c_int);
    device_memory = "cuDeviceTotalMem_v2"(*mut usize, c_int);
    context_retain = "cuDevicePrimaryCtxRetain"(*mut Handle, c_int);
    context_release = "cuDevicePrimaryCtxRelease_v2"(c_int);
    context_set = "cuCtxSetCurrent"(Handle);
    context_wait = "cuCtxSynchronize"();
    context_limit = "cuCtxSetLimit"(c_uint, usize);
    reset_persisting_l2 = "cuCtxResetPersistingL2Cache"();
    module_load = "cuModuleLoadDataEx"(*mut Handle, *const c_void, c_uint, *mut c_uint, *mut *mut c_void);
    module_unload = "cuModuleUnload"(Handle);
    module_function = "cuModuleGetFunction"(*mut Handle, Handle, *const c_char);
    function_attribute = "cuFuncGetAttribute"(*mut c_int, c_int, Handle);
    function_set = "cuFuncSetAttribute"(Handle, c_int, c_int);
    function_parameter = "cuFuncGetParamInfo"(Handle, usize, *mut usize, *mut usize);
    memory_info = "cuMemGetInfo_v2"(*mut usize, *mut usize);
    memory_alloc = "cuMemAlloc_v2"(*mut Address, usize);
    memory_free = "cuMemFree_v2"(Address);
    pinned_alloc = "cuMemHostAlloc"(*mut *mut c_void, usize, c_uint);
    pinned_free = "cuMemFreeHost"(*mut c_void);
    copy_in = "cuMemcpyHtoD_v2"(Address, *const c_void, usize);
    copy_out = "cuMemcpyDtoH_v2"(*mut c_void, Address, usize);
    copy_in_async = "cuMemcpyHtoDAsync_v2"(Address, *const c_void, usize, Handle);
    copy_out_async = "cuMemcpyDtoHAsync_v2"(*mut c_void, Address, usize, Handle);
    copy_within_async = "cuMemcpyDtoDAsync_v2"(Address, Address, usize, Handle);
    fill = "cuMemsetD8_v2"(Address, u8, usize);
    fill_async = "cuMemsetD8Async"(Address, u8, usize, Handle);
    stream_create = "cuStreamCreate"(*mut Handle, c_uint);
    stream_destroy = "cuStreamDestroy_v2"(Handle);
    stream_wait = "cuStreamSynchronize"(Handle);
    stream_query = "cuStreamQuery"(Handle);
    stream_wait_event = "cuStreamWaitEvent"(Handle, Handle, c_uint);
    event_create = "cuEventCreate"(*mut Handle, c_uint);
    event_destroy = "cuEventDestroy_v2"(Handle);
    event_record = "cuEventRecord"(Handle, Handle);
    event_wait = "cuEventSynchronize"(Handle);
    event_query = "cuEventQuery"(Handle);
    event_elapsed = "cuEventElapsedTime"(*mut f32, Handle, Handle);
    launch = "cuLaunchKernelEx"(*const RawLaunch, Handle, *mut *mut c_void, *mut *mut c_void);
    capture_begin = "cuStreamBeginCapture_v2"(Handle, c_uint);
    capture_end = "cuStreamEndCapture"(Handle, *mut Handle);
    graph_nodes = "cuGraphGetNodes"(Handle, *mut Handle, *mut usize);
    graph_destroy = "cuGraphDestroy"(Handle);
    graph_instantiate = "cuGraphInstantiateWithFlags"(*mut Handle, Handle, u64);
    graph_launch = "cuGraphLaunch"(Handle, Handle);
    graph_exec_destroy = "cuGraphExecDestroy"(Handle);
    tensor_map_encode = "cuTensorMapEncodeTiled"(
        *mut RawTensorMap, c_uint, u32, Address, *const u64, *const u64, *const u32, *const u32, c_uint, c_uint, c_uint, c_uint
    );
}

/// Opens the first library of [`NAMES`] that there is; else what the system says of each.
pub(super) fn open() -> Result<Library, String> {
    let mut said = Vec::new();
    for name in NAMES {
        // SAFETY: the driver's initialisers may run in any program, as in every one that is linked with it.
        match unsafe { Library::new(*name) } {
            Ok(library) => return Ok(library),
            Err(e) => said.push(e.to_string()),
        }
    }
    Err(said.into_iter().next().unwrap_or_default())
}
