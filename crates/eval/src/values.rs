//! Tensors as bytes, and bytes as numbers. The one place where element types meet arithmetic.
//!
//! Knows no tasks: a tensor here is a name, an element type, sizes and little-endian bytes.

use warpsmith_num::{bf16, e4m3, e5m2, f16};
use warpsmith_spec::words::DType;

/// A tensor as the kernel sees it: contiguous, little-endian.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tensor {
    pub name: String,
    pub dtype: DType,
    pub shape: Vec<u64>,
    pub bytes: Vec<u8>,
}

/// A tensor that the kernel is to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputSpec {
    pub name: String,
    pub dtype: DType,
    pub shape: Vec<u64>,
}

impl OutputSpec {
    pub fn elements(&self) -> usize {
        self.shape.iter().product::<u64>() as usize
    }

    pub fn bytes(&self) -> usize {
        self.elements() * self.dtype.bytes() as usize
    }

    /// Elements of the innermost dimension: what a row is.
    pub fn width(&self) -> usize {
        self.shape.last().copied().unwrap_or(1).max(1) as usize
    }

    /// Coordinates of an element.
    pub fn index(&self, element: usize) -> Vec<u64> {
        coordinates(&self.shape, element as u64)
    }
}

/// Coordinates of the `at`-th element of a contiguous tensor; beyond its end the first coordinate runs on.
pub fn coordinates(shape: &[u64], at: u64) -> Vec<u64> {
    let mut index = vec![0; shape.len()];
    let mut rest = at;
    for (i, &size) in shape.iter().enumerate().rev() {
        let size = size.max(1);
        index[i] = if i == 0 { rest } else { rest % size };
        rest /= size;
    }
    index
}

/// The number that an element's bytes mean. Integers beyond 2^53 are rounded.
pub fn decode_one(dtype: DType, bytes: &[u8]) -> f64 {
    fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
        let mut a = [0; N];
        a.copy_from_slice(&bytes[..N]);
        a
    }
    match dtype {
        DType::I8 => bytes[0] as i8 as f64,
        DType::U8 => bytes[0] as f64,
        DType::I16 => i16::from_le_bytes(array(bytes)) as f64,
        DType::U16 => u16::from_le_bytes(array(bytes)) as f64,
        DType::I32 => i32::from_le_bytes(array(bytes)) as f64,
        DType::U32 => u32::from_le_bytes(array(bytes)) as f64,
        DType::I64 => i64::from_le_bytes(array(bytes)) as f64,
        DType::U64 => u64::from_le_bytes(array(bytes)) as f64,
        DType::F16 => f16::to_f32(u16::from_le_bytes(array(bytes))) as f64,
        DType::Bf16 => bf16::to_f32(u16::from_le_bytes(array(bytes))) as f64,
        DType::F32 => f32::from_le_bytes(array(bytes)) as f64,
        DType::F64 => f64::from_le_bytes(array(bytes)),
        DType::E4m3 => e4m3::to_f32(bytes[0]) as f64,
        DType::E5m2 => e5m2::to_f32(bytes[0]) as f64,
    }
}

/// All elements as numbers; a last, incomplete element is left out.
pub fn decode(dtype: DType, bytes: &[u8]) -> Vec<f64> {
    bytes.chunks_exact(dtype.bytes() as usize).map(|b| decode_one(dtype, b)).collect()
}

/// Numbers as elements: rounded to nearest even for floating point, truncated and clamped for integers.
pub fn encode(dtype: DType, values: &[f32]) -> Vec<u8> {
    let mut out = Vec::with_capacity(values.len() * dtype.bytes() as usize);
    for &x in values {
        match dtype {
            DType::I8 => out.push(x as i8 as u8),
            DType::U8 => out.push(x as u8),
            DType::I16 => out.extend((x as i16).to_le_bytes()),
            DType::U16 => out.extend((x as u16).to_le_bytes()),
            DType::I32 => out.extend((x as i32).to_le_bytes()),
            DType::U32 => out.extend((x as u32).to_le_bytes()),
            DType::I64 => out.extend((x as i64).to_le_bytes()),
            DType::U64 => out.extend((x as u64).to_le_bytes()),
            DType::F16 => out.extend(f16::from_f32(x).to_le_bytes()),
            DType::Bf16 => out.extend(bf16::from_f32(x).to_le_bytes()),
            DType::F32 => out.extend(x.to_le_bytes()),
            DType::F64 => out.extend((x as f64).to_le_bytes()),
            DType::E4m3 => out.push(e4m3::from_f32(x)),
            DType::E5m2 => out.push(e5m2::from_f32(x)),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_decoded() {
        for &dtype in DType::ALL {
            let values = [0.0f32, 1.0, 2.0, 96.0];
            let bytes = encode(dtype, &values);
            assert_eq!(bytes.len() as u64, 4 * dtype.bytes());
            assert_eq!(decode(dtype, &bytes), [0.0, 1.0, 2.0, 96.0], "{dtype}");
        }
        assert!(decode_one(DType::F16, &[0xff, 0xff]).is_nan());
    }

    #[test]
    fn coordinates_of_elements() {
        assert_eq!(coordinates(&[2, 3, 4], 23), [1, 2, 3]);
        assert_eq!(coordinates(&[2, 3, 4], 24), [2, 0, 0]);
        assert_eq!(coordinates(&[], 0), Vec::<u64>::new());
    }
}
