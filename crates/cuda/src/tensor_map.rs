//! Tensor maps: the descriptors by which TMA instructions address a tensor.
//!
//! Source: `cuTensorMapEncodeTiled`. Words are the driver's constants without their common prefix, as in a candidate's front matter.

use crate::driver::Context;
use crate::error::CudaError;
use crate::ffi::RawTensorMapSpec;
use serde::{Deserialize, Serialize};

/// What a tensor map says, besides the address. Innermost dimension first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorMapSpec {
    /// `u8`, `u16`, `u32`, `i32`, `u64`, `i64`, `f16`, `f32`, `f64`, `bf16`; `e4m3`, `e5m2` and `i8` go as `u8`, `i16` as `u16`.
    pub dtype: String,
    pub dims: Vec<u64>,
    /// Bytes, of all dimensions but the innermost.
    pub strides: Vec<u64>,
    pub box_sizes: Vec<u32>,
    pub element_strides: Vec<u32>,
    /// `NONE`, `32B`, `64B`, `128B`
    pub swizzle: String,
    /// `NONE`, `16B`, `32B`
    pub interleave: String,
    /// `NONE`, `NAN_REQUEST_ZERO_FMA`
    pub fill: String,
    /// `NONE`, `L2_64B`, `L2_128B`, `L2_256B`
    pub l2_promotion: String,
}

impl Context {
    /// The descriptor of a tensor at this address: 128 bytes that a kernel takes by value.
    pub fn tensor_map(&self, spec: &TensorMapSpec, address: u64) -> Result<[u8; 128], CudaError> {
        if !self.device().tensor_maps {
            return Err(CudaError::Launch { what: format!("{} has no tensor maps", self.device().name) });
        }
        let raw = numbers(spec, address)?;
        match self.held.bind()?.tensor_map_encode(&raw) {
            Err(CudaError::Call { code: 1, .. }) => {
                Err(CudaError::Launch { what: format!("the driver refuses the tensor map at {address:#x}: {spec:?}") })
            }
            other => other,
        }
    }
}

/// The driver's numbers for it.
fn numbers(spec: &TensorMapSpec, address: u64) -> Result<RawTensorMapSpec<'_>, CudaError> {
    let wrong = |what: String| CudaError::Launch { what };
    let rank = spec.dims.len();
    if !(1..=5).contains(&rank)
        || spec.strides.len() + 1 != rank
        || spec.box_sizes.len() != rank
        || spec.element_strides.len() != rank
    {
        return Err(wrong(format!(
            "a tensor map whose sizes have not the same number of dimensions, from 1 to 5: {spec:?}"
        )));
    }
    let word = |what: &str, given: &str, known: &[&str]| {
        let at = known.iter().position(|k| *k == given);
        at.map(|n| n as u32)
            .ok_or_else(|| wrong(format!("a tensor map has no {what} {given:?}: one of {}", known.join(", "))))
    };
    let data_type = match spec.dtype.as_str() {
        "u8" | "i8" | "e4m3" | "e5m2" => 0,
        "u16" | "i16" => 1,
        "u32" => 2,
        "i32" => 3,
        "u64" => 4,
        "i64" => 5,
        "f16" => 6,
        "f32" => 7,
        "f64" => 8,
        "bf16" => 9,
        other => return Err(wrong(format!("a tensor map has no element type {other:?}"))),
    };
    Ok(RawTensorMapSpec {
        data_type,
        address,
        dims: &spec.dims,
        strides: &spec.strides,
        box_sizes: &spec.box_sizes,
        element_strides: &spec.element_strides,
        interleave: word("interleave", &spec.interleave, &["NONE", "16B", "32B"])?,
        swizzle: word("swizzle", &spec.swizzle, &["NONE", "32B", "64B", "128B"])?,
        l2_promotion: word("L2 promotion", &spec.l2_promotion, &["NONE", "L2_64B", "L2_128B", "L2_256B"])?,
        fill: word("fill", &spec.fill, &["NONE", "NAN_REQUEST_ZERO_FMA"])?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_become_the_drivers_numbers_and_what_does_not_fit_is_refused() {
        let good = TensorMapSpec {
            dtype: "bf16".into(),
            dims: vec![64, 512],
            strides: vec![128],
            box_sizes: vec![64, 64],
            element_strides: vec![1, 1],
            swizzle: "128B".into(),
            interleave: "NONE".into(),
            fill: "NONE".into(),
            l2_promotion: "L2_256B".into(),
        };
        let raw = numbers(&good, 1024).expect("it is well-formed");
        assert_eq!((raw.data_type, raw.swizzle, raw.interleave, raw.l2_promotion, raw.fill), (9, 3, 0, 3, 0));
        for bad in [
            TensorMapSpec { dtype: "c64".into(), ..good.clone() },
            TensorMapSpec { dims: vec![], ..good.clone() },
            TensorMapSpec { strides: vec![], ..good.clone() },
            TensorMapSpec { box_sizes: vec![64], ..good.clone() },
            TensorMapSpec { element_strides: vec![1; 3], ..good.clone() },
            TensorMapSpec { swizzle: "256B".into(), ..good.clone() },
        ] {
            assert!(numbers(&bad, 1024).is_err(), "{bad:?}");
        }
    }
}
