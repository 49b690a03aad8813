//! The only module with `unsafe`: the functions of the driver, of the management library and of profilers, and the few that the worker
//! needs of the C library.
//!
//! Handles are plain integers of pointer size here. They come from this module's own creators and are given back once, by the owner
//! types of the modules above, each of which keeps alive what its handle depends on. That is what the SAFETY notes refer to as owners.
//! Source: `cuda.h` of toolkit 13.0; the suffixed symbols are those that its macros select.

mod calls;
mod nvml;
mod nvtx;
pub(crate) mod process;
mod table;

pub(crate) use calls::Api;
pub(crate) use nvml::Nvml;
pub(crate) use nvtx::Nvtx;

/// A context, module, function, stream, event, graph: an opaque pointer of the driver's.
pub(crate) type Handle = usize;
/// An address in the device's memory.
pub(crate) type Address = u64;

/// `CUtensorMap`: 128 bytes that the driver fills.
#[derive(Clone, Copy)]
#[repr(C, align(128))]
pub(crate) struct RawTensorMap(pub [u8; 128]);

/// Arguments of a launch: each begins on an alignment that any parameter is content with.
#[derive(Clone, Copy)]
#[repr(C, align(128))]
pub(crate) struct Block(pub [u8; 128]);

/// `CUlaunchConfig`.
#[repr(C)]
pub(crate) struct RawLaunch {
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub shared_bytes: u32,
    pub stream: Handle,
    pub attributes: *const RawAttribute,
    pub attribute_count: u32,
}

/// `CUlaunchAttribute`: an id, and 64 bytes of which the cluster's sizes are the first twelve.
#[repr(C)]
pub(crate) struct RawAttribute {
    pub id: u32,
    pub pad: [u8; 4],
    pub value: RawValue,
}

#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(crate) struct RawValue(pub [u32; 16]);

/// `CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION`
pub(crate) const ATTRIBUTE_CLUSTER: u32 = 4;
/// `CU_LAUNCH_ATTRIBUTE_COOPERATIVE`, whose value is 1.
pub(crate) const ATTRIBUTE_COOPERATIVE: u32 = 2;

/// Numbers of `cuTensorMapEncodeTiled`, innermost dimension first.
pub(crate) struct RawTensorMapSpec<'a> {
    pub data_type: u32,
    pub address: Address,
    pub dims: &'a [u64],
    pub strides: &'a [u64],
    pub box_sizes: &'a [u32],
    pub element_strides: &'a [u32],
    pub interleave: u32,
    pub swizzle: u32,
    pub l2_promotion: u32,
    pub fill: u32,
}

/// The bytes of page-locked memory; `at` is its owner's address of it.
pub(crate) fn slice(at: &usize, bytes: usize) -> &[u8] {
    // SAFETY: the owner's memory is this long, initialised, and borrowed as long as the owner is.
    unsafe { std::slice::from_raw_parts(*at as *const u8, bytes) }
}

/// The same, to be changed.
pub(crate) fn slice_mut(at: &mut usize, bytes: usize) -> &mut [u8] {
    // SAFETY: as above, and nobody else has it: the owner is borrowed mutably.
    unsafe { std::slice::from_raw_parts_mut(*at as *mut u8, bytes) }
}
