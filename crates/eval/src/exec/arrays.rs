//! Buffers of a launch file as bytes: read from NumPy's files, drawn, and compared with what was expected.
//!
//! A file has to hold the buffer's own element type: nothing is rounded behind anybody's back. bf16, e4m3 and e5m2, which NumPy does
//! not have, are files of raw u16 and u8, or of numbers that are rounded to them. Shapes agree, or one of both is flat.

use crate::draw::Source;
use crate::npy::{self, Array};
use crate::values::{Tensor, decode, decode_one, encode};
use warpsmith_spec::DType;
use warpsmith_spec::exec::{BufferDecl, Expect, From};

/// The bytes of a buffer that is not read from a file; None: it is poison.
pub(super) fn drawn(decl: &BufferDecl) -> Option<Vec<u8>> {
    let n = decl.elements() as usize;
    Some(match &decl.from {
        From::File(_) | From::Poison => return None,
        From::Zeros => vec![0; decl.bytes() as usize],
        From::Arange => (0..n).flat_map(|i| encode_one(decl.dtype, i as f64)).collect(),
        From::Normal { seed } => encode(decl.dtype, &Source::new(*seed, 0).normal(&decl.name, n)),
        From::Uniform { seed, low, high } => {
            let unit = Source::new(*seed, 0).uniform(&decl.name, n);
            let whole = !decl.dtype.is_float();
            let first = if whole { low.ceil() } else { *low };
            let place =
                |u: f64| if whole { (first + u * (high.ceil() - first)).floor() } else { low + u * (high - low) };
            unit.into_iter().flat_map(|u| encode_one(decl.dtype, place(u))).collect()
        }
    })
}

/// One number as an element: rounded to nearest even for floating point, truncated and clamped for integers.
pub(super) fn encode_one(dtype: DType, x: f64) -> Vec<u8> {
    match dtype {
        DType::I32 => (x as i32).to_le_bytes().to_vec(),
        DType::U32 => (x as u32).to_le_bytes().to_vec(),
        DType::I64 => (x as i64).to_le_bytes().to_vec(),
        DType::U64 => (x as u64).to_le_bytes().to_vec(),
        DType::F64 => x.to_le_bytes().to_vec(),
        _ => encode(dtype, &[x as f32]),
    }
}

/// The bytes that a file gives a buffer.
pub(super) fn contents(decl: &BufferDecl, file: &[u8]) -> Result<Vec<u8>, String> {
    let array = npy::parse(file)?;
    fits(&array, &decl.shape)?;
    let own = decl.dtype;
    if is_raw(&array, own) {
        return Ok(array.data.to_vec());
    }
    match array.dtype() {
        Some(dtype) if dtype == own => Ok(array.data.to_vec()),
        Some(DType::F16 | DType::F32 | DType::F64) if narrow(own) => {
            Ok(decode(array.dtype().unwrap_or(own), array.data).into_iter().flat_map(|x| encode_one(own, x)).collect())
        }
        // The same bits, signed or not.
        Some(dtype) if !dtype.is_float() && !own.is_float() && dtype.bytes() == own.bytes() => Ok(array.data.to_vec()),
        _ => Err(format!("it holds {}, and the buffer {own}; save it as {own}", array.descr)),
    }
}

/// The numbers that are expected of a buffer.
pub(super) fn expected(decl: &BufferDecl, file: &[u8]) -> Result<Vec<f64>, String> {
    let array = npy::parse(file)?;
    fits(&array, &decl.shape)?;
    if is_raw(&array, decl.dtype) {
        return Ok(decode(decl.dtype, array.data));
    }
    match array.dtype() {
        Some(dtype) => Ok(decode(dtype, array.data)),
        None => Err(format!("it holds {}, which are no numbers that {} can be compared with", array.descr, decl.dtype)),
    }
}

/// Types that NumPy does not have.
fn narrow(dtype: DType) -> bool {
    matches!(dtype, DType::Bf16 | DType::E4m3 | DType::E5m2)
}

/// The file holds the buffer's bits as another type of their size.
fn is_raw(array: &Array, own: DType) -> bool {
    let code = array.descr.trim_start_matches(['<', '|', '=']);
    match own {
        DType::Bf16 => matches!(code, "u2" | "i2" | "V2"),
        DType::F16 => matches!(code, "u2" | "V2"),
        // `f1` is how a package names its eight-bit formats.
        DType::E4m3 | DType::E5m2 => matches!(code, "u1" | "i1" | "V1" | "f1"),
        DType::U8 | DType::I8 => code == "b1",
        _ => false,
    }
}

fn fits(array: &Array, shape: &[u64]) -> Result<(), String> {
    let bare = |s: &[u64]| s.iter().copied().filter(|n| *n != 1).collect::<Vec<u64>>();
    let (a, b) = (bare(&array.shape), bare(shape));
    let flat = a.len() <= 1 || b.len() <= 1;
    let same = array.shape.iter().product::<u64>() == shape.iter().product::<u64>();
    if a == b || (flat && same) {
        return Ok(());
    }
    Err(format!("its shape is {:?}, and the buffer's {shape:?}", array.shape))
}

/// A buffer as a file of NumPy's.
pub(super) fn file(decl: &BufferDecl, bytes: &[u8]) -> Vec<u8> {
    let raw = match decl.dtype {
        DType::Bf16 => DType::U16,
        DType::E4m3 | DType::E5m2 => DType::U8,
        dtype => dtype,
    };
    npy::write(&Tensor { name: decl.name.clone(), dtype: raw, shape: decl.shape.clone(), bytes: bytes.to_vec() })
}

/// How a buffer differs from what was expected.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Difference {
    pub max_abs_err: f64,
    pub wrong: u64,
    /// The element furthest beyond the tolerance: index, got, expected.
    pub worst: Option<(u64, f64, f64)>,
}

pub(super) fn compare(dtype: DType, bytes: &[u8], expected: &[f64], tolerance: &Expect) -> Difference {
    let mut found = Difference::default();
    let mut worst = 0.0;
    for (n, (element, want)) in bytes.chunks_exact(dtype.bytes() as usize).zip(expected).enumerate() {
        let got = decode_one(dtype, element);
        let same = got == *want || (got.is_nan() && want.is_nan());
        let error = (got - want).abs();
        if !same && error.is_finite() {
            found.max_abs_err = found.max_abs_err.max(error);
        }
        let limit = tolerance.atol + tolerance.rtol * want.abs();
        if same || (error.is_finite() && error <= limit) {
            continue;
        }
        found.wrong += 1;
        // How many times the limit; what is not finite is beyond all.
        let times = if error.is_finite() { error / limit.max(f64::MIN_POSITIVE) } else { f64::INFINITY };
        if found.worst.is_none() || times > worst {
            worst = times;
            found.worst = Some((n as u64, got, *want));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decl(dtype: DType, shape: &[u64], from: From) -> BufferDecl {
        let shape = shape.to_vec();
        BufferDecl { name: "x".into(), dtype, shape, from, out: None, expect: None, line: 1, from_line: 1 }
    }

    #[test]
    fn what_is_drawn_lies_in_its_range_and_repeats() {
        for (dtype, low, high) in [(DType::I32, -3.0, 4.0), (DType::U8, 0.0, 256.0), (DType::F32, -1.0, 1.0)] {
            let d = decl(dtype, &[10_000], From::Uniform { seed: 7, low, high });
            let x = decode(dtype, &drawn(&d).unwrap());
            assert!(x.iter().all(|x| *x >= low && *x < high), "{dtype}");
            let (least, most) = x.iter().fold((f64::MAX, f64::MIN), |(a, b), x| (a.min(*x), b.max(*x)));
            assert!(
                least < low + 0.01 * (high - low) && most >= high - 1.0 - 0.01 * (high - low),
                "{dtype}: {least} {most}"
            );
            assert_eq!(drawn(&d), drawn(&d));
        }
        let big = decl(DType::I64, &[3], From::Arange);
        assert_eq!(decode(DType::I64, &drawn(&big).unwrap()), [0.0, 1.0, 2.0]);
        assert_eq!(encode_one(DType::I32, 16_777_217.0), 16_777_217i32.to_le_bytes());
        assert_eq!(drawn(&decl(DType::F32, &[3], From::Poison)), None);
    }

    #[test]
    fn files_fill_buffers_of_their_own_type_and_others_are_refused() {
        let of = |dtype, shape: &[u64], values: &[f32]| {
            npy::write(&Tensor { name: "x".into(), dtype, shape: shape.to_vec(), bytes: encode(dtype, values) })
        };
        let f32s = of(DType::F32, &[2, 2], &[1.0, 2.0, 3.0, 4.0]);
        // buffer; file; whether it is taken
        for (dtype, shape, file, fine) in [
            (DType::F32, vec![2, 2], &f32s, true),
            (DType::F32, vec![4], &f32s, true),
            (DType::F32, vec![1, 2, 2], &f32s, true),
            (DType::F32, vec![5], &f32s, false),
            (DType::F64, vec![4], &f32s, false),
            (DType::I32, vec![4], &f32s, false),
            (DType::Bf16, vec![4], &f32s, true),
            (DType::E4m3, vec![4], &f32s, true),
            (DType::Bf16, vec![2], &of(DType::U16, &[2], &[16256.0, 16384.0]), true),
            (DType::E5m2, vec![2], &of(DType::U8, &[2], &[60.0, 61.0]), true),
            (DType::U32, vec![2], &of(DType::I32, &[2], &[1.0, 2.0]), true),
            (DType::I32, vec![2], &of(DType::I64, &[2], &[1.0, 2.0]), false),
            (DType::F32, vec![2, 3], &of(DType::F32, &[3, 2], &[0.0; 6]), false),
        ] {
            assert_eq!(contents(&decl(dtype, &shape, From::Poison), file).is_ok(), fine, "{dtype} {shape:?}");
        }
        let raw = of(DType::U16, &[2], &[16256.0, 16384.0]);
        let bytes = contents(&decl(DType::Bf16, &[2], From::Poison), &raw).unwrap();
        assert_eq!(decode(DType::Bf16, &bytes), [1.0, 2.0], "raw bits stay bits");
        assert_eq!(file(&decl(DType::Bf16, &[2], From::Poison), &bytes), raw, "and are written as they were read");
    }

    #[test]
    fn differences_are_counted_and_the_worst_is_named() {
        let tolerance = Expect { file: String::new(), line: 1, rtol: 0.0, atol: 0.5 };
        let nan = f64::NAN;
        for (got, want, wrong, worst) in [
            (vec![1.0f32, 2.0, 3.0], vec![1.0, 2.5, 3.0], 0, None),
            (vec![1.0, 2.0, 3.0], vec![1.0, 3.0, 9.0], 2, Some(2)),
            (vec![f32::NAN, f32::INFINITY], vec![nan, f64::INFINITY], 0, None),
            (vec![f32::NAN, 5.0], vec![1.0, 1.0], 2, Some(0)),
            (vec![f32::INFINITY], vec![f64::NEG_INFINITY], 1, Some(0)),
        ] {
            let found = compare(DType::F32, &encode(DType::F32, &got), &want, &tolerance);
            assert_eq!((found.wrong, found.worst.map(|w| w.0)), (wrong, worst), "{got:?} {want:?}");
            assert!(found.max_abs_err.is_finite());
        }
    }
}
