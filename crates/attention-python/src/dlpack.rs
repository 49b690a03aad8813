//! DLPack's C exchange interface, as dlpack.h 1.3 declares it: the only module here that calls foreign functions besides PyO3.
//!
//! SAFETY, for all of it: the capsule's producer keeps its table for the life of the process; tensors are borrowed for one call under the
//! interpreter's lock, and what `look` gives points into a tensor that the caller holds.

use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::{c_int, c_void};

#[repr(C)]
struct Header {
    major: u32,
    minor: u32,
    previous: *const Header,
}

#[repr(C)]
struct Table {
    header: Header,
    allocate: *const c_void,
    managed_from: *const c_void,
    managed_to: *const c_void,
    tensor_from: Option<unsafe extern "C" fn(*mut c_void, *mut Tensor) -> c_int>,
    current_stream: Option<unsafe extern "C" fn(c_int, i32, *mut *mut c_void) -> c_int>,
}

/// `DLTensor`.
#[repr(C)]
struct Tensor {
    data: *mut c_void,
    device_kind: i32,
    device: i32,
    dimensions: i32,
    dtype: [u8; 4],
    shape: *const i64,
    strides: *const i64,
    offset: u64,
}

/// Kind, device, dtype, sizes and strides of a tensor of at most four dimensions, as numbers to compare.
pub type Layout = [i64; 10];

/// What launches need of torch's tensors.
pub struct Exchange {
    tensor_from: unsafe extern "C" fn(*mut c_void, *mut Tensor) -> c_int,
    current_stream: unsafe extern "C" fn(c_int, i32, *mut *mut c_void) -> c_int,
    /// torch.Tensor itself: others are not looked at.
    class: Py<PyAny>,
}

const CUDA: c_int = 2;

impl Exchange {
    /// From `torch.Tensor.__dlpack_c_exchange_api__`.
    pub fn new(class: &Bound<'_, PyAny>) -> PyResult<Exchange> {
        let capsule = class.getattr("__dlpack_c_exchange_api__")?;
        let missing = || PyRuntimeError::new_err("this torch has another exchange interface");
        // SAFETY: see the module; a null pointer comes with a Python error, which is taken.
        let table =
            unsafe { ffi::PyCapsule_GetPointer(capsule.as_ptr(), c"dlpack_exchange_api".as_ptr()) }.cast::<Table>();
        if table.is_null() {
            return Err(PyErr::fetch(class.py()));
        }
        let table = unsafe { &*table };
        if table.header.major != 1 {
            return Err(missing());
        }
        Ok(Exchange {
            tensor_from: table.tensor_from.ok_or_else(missing)?,
            current_stream: table.current_stream.ok_or_else(missing)?,
            class: class.clone().unbind(),
        })
    }

    /// A tensor's layout and address; nothing for what is no plain tensor.
    pub fn look(&self, x: &Bound<'_, PyAny>) -> Option<(Layout, u64)> {
        let mut t = Tensor {
            data: std::ptr::null_mut(),
            device_kind: 0,
            device: 0,
            dimensions: 0,
            dtype: [0; 4],
            shape: std::ptr::null(),
            strides: std::ptr::null(),
            offset: 0,
        };
        // SAFETY: see the module; the class is compared first, as torch does not.
        unsafe {
            if ffi::Py_TYPE(x.as_ptr()).cast() != self.class.as_ptr() {
                return None;
            }
            if (self.tensor_from)(x.as_ptr().cast(), &mut t) != 0 {
                ffi::PyErr_Clear();
                return None;
            }
        }
        let n = usize::try_from(t.dimensions).ok().filter(|n| *n <= 4)?;
        let mut layout = [0; 10];
        layout[0] = i64::from(t.device_kind) << 32 | i64::from(t.dimensions);
        layout[1] = i64::from(t.device) << 32 | i64::from(u32::from_le_bytes(t.dtype));
        if n > 0 {
            if t.shape.is_null() || t.strides.is_null() {
                return None;
            }
            // SAFETY: see the module; both have as many numbers as the tensor has dimensions.
            unsafe {
                layout[2..2 + n].copy_from_slice(std::slice::from_raw_parts(t.shape, n));
                layout[6..6 + n].copy_from_slice(std::slice::from_raw_parts(t.strides, n));
            }
        }
        Some((layout, (t.data as u64).wrapping_add(t.offset)))
    }

    /// The current stream of a CUDA device.
    pub fn stream(&self, device: i32) -> Option<*mut c_void> {
        let mut stream = std::ptr::null_mut();
        // SAFETY: see the module.
        let failed = unsafe { (self.current_stream)(CUDA, device, &mut stream) } != 0;
        if failed {
            // SAFETY: the interpreter's lock is held.
            unsafe { ffi::PyErr_Clear() };
            return None;
        }
        Some(stream)
    }
}
