//! The CUDA driver, loaded at run time: the only module here that calls it. Knows nothing of attention.
//!
//! Source: the CUDA Driver API 13.0; every call here is there since 12.0. SAFETY, for all of it: signatures are those of cuda.h, pointers that
//! go in live through the call, and the library is never unloaded.

use crate::error::Error;
use crate::params::TensorMap;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::ptr;
use std::sync::OnceLock;

/// A stream, as the driver names it; null is the default one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawStream(pub *mut c_void);

// SAFETY: a stream's handle is a name; the driver takes it from any thread.
unsafe impl Send for RawStream {}
unsafe impl Sync for RawStream {}

type Status = c_int;

macro_rules! api {
    ($($field:ident = $symbol:literal : fn($($t:ty),*);)*) => {
        struct Api { $($field: unsafe extern "C" fn($($t),*) -> Status,)* }

        fn load() -> Result<Api, String> {
            let names = ["libcuda.so.1", "nvcuda.dll"];
            // SAFETY: see the module; the driver's initialisers are its own affair.
            let library = names.iter().find_map(|n| unsafe { libloading::Library::new(*n) }.ok()).ok_or("libcuda.so.1 is not there")?;
            let library = Box::leak(Box::new(library));
            Ok(Api { $($field: *unsafe { library.get::<unsafe extern "C" fn($($t),*) -> Status>($symbol) }.map_err(|e| e.to_string())?,)* })
        }
    };
}

api! {
    init = b"cuInit\0": fn(c_uint);
    error_name = b"cuGetErrorName\0": fn(c_int, *mut *const c_char);
    context_current = b"cuCtxGetCurrent\0": fn(*mut *mut c_void);
    context_device = b"cuCtxGetDevice\0": fn(*mut c_int);
    device_attribute = b"cuDeviceGetAttribute\0": fn(*mut c_int, c_int, c_int);
    capture_mode = b"cuThreadExchangeStreamCaptureMode\0": fn(*mut c_int);
    module_load = b"cuModuleLoadData\0": fn(*mut *mut c_void, *const c_void);
    module_function = b"cuModuleGetFunction\0": fn(*mut *mut c_void, *mut c_void, *const c_char);
    function_attribute = b"cuFuncSetAttribute\0": fn(*mut c_void, c_int, c_int);
    encode_tiled = b"cuTensorMapEncodeTiled\0": fn(*mut TensorMap, c_int, c_uint, *mut c_void, *const u64, *const u64, *const c_uint, *const c_uint, c_int, c_int, c_int, c_int);
    fill_bytes = b"cuMemsetD8Async\0": fn(u64, u8, usize, *mut c_void);
    fill_words = b"cuMemsetD32Async\0": fn(u64, c_uint, usize, *mut c_void);
    is_capturing = b"cuStreamIsCapturing\0": fn(*mut c_void, *mut c_int);
    launch = b"cuLaunchKernelEx\0": fn(*const Config, *mut c_void, *const *mut c_void, *const *mut c_void);
}

#[repr(C)]
struct Config {
    grid: [c_uint; 3],
    block: [c_uint; 3],
    shared_bytes: c_uint,
    stream: *mut c_void,
    attributes: *const Attribute,
    attribute_count: c_uint,
}

#[repr(C)]
struct Attribute {
    id: c_int,
    pad: c_int,
    value: [u64; 8],
}

fn api() -> Result<&'static Api, Error> {
    static API: OnceLock<Result<Api, String>> = OnceLock::new();
    let api = API.get_or_init(|| {
        let api = load()?;
        // SAFETY: see the module.
        match unsafe { (api.init)(0) } {
            0 => Ok(api),
            code => Err(format!("cuInit says {code}")),
        }
    });
    api.as_ref().map_err(|why| Error::NoDriver { why: why.clone() })
}

fn check(code: Status, call: &'static str) -> Result<(), Error> {
    if code == 0 {
        return Ok(());
    }
    let mut text = ptr::null();
    // SAFETY: see the module; the text is static.
    let name = match api().map(|api| unsafe { (api.error_name)(code, &mut text) }) {
        Ok(0) if !text.is_null() => unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned(),
        _ => code.to_string(),
    };
    Err(Error::Call { call, name })
}

/// What the heuristic needs of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Device {
    pub sms: u32,
    /// Compute capability.
    pub major: u32,
    pub minor: u32,
}

impl Device {
    /// An H100 SXM or H200.
    pub const HOPPER: Device = Device { sms: 132, major: 9, minor: 0 };

    /// The device of this thread's current context. Errors: no driver, no context.
    pub fn current() -> Result<Device, Error> {
        let api = api()?;
        let mut device = 0;
        // SAFETY: see the module.
        check(unsafe { (api.context_device)(&mut device) }, "cuCtxGetDevice")?;
        let get = |attribute| {
            let mut value = 0;
            check(unsafe { (api.device_attribute)(&mut value, attribute, device) }, "cuDeviceGetAttribute")?;
            Ok::<u32, Error>(value.max(0) as u32)
        };
        Ok(Device { sms: get(16)?, major: get(75)?, minor: get(76)? })
    }
}

/// This thread's current context, as a number to tell contexts apart.
pub fn context() -> Result<usize, Error> {
    let mut context = ptr::null_mut();
    // SAFETY: see the module.
    check(unsafe { (api()?.context_current)(&mut context) }, "cuCtxGetCurrent")?;
    if context.is_null() {
        return Err(Error::Call { call: "cuCtxGetCurrent", name: "this thread has no context".into() });
    }
    Ok(context as usize)
}

/// Whether the stream is being captured. Errors, too, where it is the default one and another that blocks it is.
pub fn is_capturing(stream: RawStream) -> Result<bool, Error> {
    let mut status = 0;
    // SAFETY: see the module.
    check(unsafe { (api()?.is_capturing)(stream.0, &mut status) }, "cuStreamIsCapturing")?;
    Ok(status != 0)
}

/// A kernel in a context. It is never unloaded: what runs may be captured in a graph.
#[derive(Debug, Clone, Copy)]
pub struct Function(*mut c_void);

// SAFETY: a function's handle is a name; the driver takes it from any thread.
unsafe impl Send for Function {}
unsafe impl Sync for Function {}

impl Function {
    /// A kernel that was loaded elsewhere.
    ///
    /// # Safety
    /// It is a `CUfunction` that stays loaded.
    pub unsafe fn from_handle(handle: *mut c_void) -> Function {
        Function(handle)
    }

    /// Loads an image, a cubin or PTX text, into the current context.
    pub fn load(image: &[u8], entry: &str, shared_bytes: u32) -> Result<Function, Error> {
        let api = api()?;
        // PTX wants its end marked, and the driver gets no length: room behind the end costs nothing.
        let mut image = image.to_vec();
        image.extend([0; 64]);
        let entry = CString::new(entry).map_err(|_| Error::Container { why: "an entry's name has a zero in it" })?;
        let (mut module, mut function) = (ptr::null_mut(), ptr::null_mut());
        const RELAXED: c_int = 2;
        let mut mode = RELAXED;
        // SAFETY: see the module. A graph's capture forbids loading in other modes, though it disturbs no stream.
        unsafe {
            check((api.capture_mode)(&mut mode), "cuThreadExchangeStreamCaptureMode")?;
            let loaded = check((api.module_load)(&mut module, image.as_ptr().cast()), "cuModuleLoadData");
            check((api.capture_mode)(&mut mode), "cuThreadExchangeStreamCaptureMode")?;
            loaded?;
            check((api.module_function)(&mut function, module, entry.as_ptr()), "cuModuleGetFunction")?;
            const MAX_DYNAMIC_SHARED: c_int = 8;
            check((api.function_attribute)(function, MAX_DYNAMIC_SHARED, shared_bytes as c_int), "cuFuncSetAttribute")?;
        }
        Ok(Function(function))
    }

    /// Gives a launch to the stream. `arguments` are the addresses of the parameters. Dependent: the kernel may be placed while earlier
    /// ones end, and waits for them itself before it touches memory.
    pub fn launch(
        self,
        grid: [u32; 3],
        block: u32,
        shared_bytes: u32,
        stream: RawStream,
        dependent: bool,
        arguments: &[*mut c_void],
    ) -> Result<(), Error> {
        const PROGRAMMATIC_STREAM_SERIALIZATION: c_int = 6;
        let attribute = Attribute { id: PROGRAMMATIC_STREAM_SERIALIZATION, pad: 0, value: [1, 0, 0, 0, 0, 0, 0, 0] };
        let config = Config {
            grid,
            block: [block, 1, 1],
            shared_bytes,
            stream: stream.0,
            attributes: &attribute,
            attribute_count: u32::from(dependent),
        };
        // SAFETY: see the module; the plan gives as many parameters, of the sizes, as the kernel takes.
        check(unsafe { (api()?.launch)(&config, self.0, arguments.as_ptr(), ptr::null()) }, "cuLaunchKernelEx")
    }
}

/// Writes so many zeros on the stream.
pub fn clear(address: u64, bytes: u64, stream: RawStream) -> Result<(), Error> {
    // SAFETY: see the module; the caller says that so many bytes are there.
    check(unsafe { (api()?.fill_bytes)(address, 0, bytes as usize, stream.0) }, "cuMemsetD8Async")
}

/// Writes so many words on the stream.
pub fn fill_words(address: u64, word: u32, words: u64, stream: RawStream) -> Result<(), Error> {
    // SAFETY: see the module; the caller says that so many words are there.
    check(unsafe { (api()?.fill_words)(address, word, words as usize, stream.0) }, "cuMemsetD32Async")
}

/// Encodes a byte tensor's map: dims and box innermost first, strides in bytes from the second dimension on. The box's width is the swizzle's.
pub fn encode_bytes(address: u64, dims: [u64; 4], strides: [u64; 3], boxes: [u32; 4]) -> Result<TensorMap, Error> {
    let mut map = TensorMap([0; 16]);
    let (swizzle_64, swizzle_128, promote_128) = (2, 3, 2); // 256 bytes: decoding is 5% slower
    let swizzle = if boxes[0] == 64 { swizzle_64 } else { swizzle_128 };
    // SAFETY: see the module; the map is on 64 bytes.
    let code = unsafe {
        (api()?.encode_tiled)(
            &mut map,
            0,
            4,
            address as *mut c_void,
            dims.as_ptr(),
            strides.as_ptr(),
            boxes.as_ptr(),
            [1; 4].as_ptr(),
            0,
            swizzle,
            promote_128,
            0,
        )
    };
    check(code, "cuTensorMapEncodeTiled")?;
    Ok(map)
}
