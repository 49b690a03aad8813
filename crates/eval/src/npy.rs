//! NumPy's array files, as far as references need them: little-endian, C order, written in the tensor's own type and read as f64.
//!
//! Source: NumPy's format 1.0 (and 2.0 when reading). bf16, e4m3 and e5m2 have no NumPy type and are written as f32, exactly.

use crate::values::{Tensor, decode};
use warpsmith_spec::words::DType;

/// NumPy's name of an element type; None where there is none.
fn descr(dtype: DType) -> Option<&'static str> {
    Some(match dtype {
        DType::I8 => "|i1",
        DType::U8 => "|u1",
        DType::I16 => "<i2",
        DType::U16 => "<u2",
        DType::I32 => "<i4",
        DType::U32 => "<u4",
        DType::I64 => "<i8",
        DType::U64 => "<u8",
        DType::F16 => "<f2",
        DType::F32 => "<f4",
        DType::F64 => "<f8",
        DType::Bf16 | DType::E4m3 | DType::E5m2 => return None,
    })
}

/// A tensor as a file's bytes.
pub fn write(tensor: &Tensor) -> Vec<u8> {
    match descr(tensor.dtype) {
        Some(word) => file(word, &tensor.shape, &tensor.bytes),
        None => {
            let values: Vec<u8> =
                decode(tensor.dtype, &tensor.bytes).iter().flat_map(|x| (*x as f32).to_le_bytes()).collect();
            file("<f4", &tensor.shape, &values)
        }
    }
}

fn file(descr: &str, shape: &[u64], data: &[u8]) -> Vec<u8> {
    let sizes: String = shape.iter().map(|s| format!("{s},")).collect();
    let mut header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({sizes}), }}");
    // The data starts at a multiple of 64 bytes; the header ends with a newline.
    let padding = 64 - (10 + header.len() + 1) % 64;
    header.push_str(&" ".repeat(padding));
    header.push('\n');
    let mut out = b"\x93NUMPY\x01\x00".to_vec();
    out.extend((header.len() as u16).to_le_bytes());
    out.extend(header.as_bytes());
    out.extend(data);
    out
}

/// A file as it stands.
#[derive(Debug, Clone, PartialEq)]
pub struct Array<'a> {
    /// `<f4`
    pub descr: String,
    pub shape: Vec<u64>,
    pub data: &'a [u8],
}

impl Array<'_> {
    /// The element type, where it is one of ours.
    pub fn dtype(&self) -> Option<DType> {
        let code = |d: DType| descr(d).is_some_and(|w| w[1..] == self.descr[1.min(self.descr.len())..]);
        DType::ALL.iter().copied().find(|d| code(*d))
    }
}

/// Shape and values of a file of floating-point or whole numbers.
pub fn read(bytes: &[u8]) -> Result<(Vec<u64>, Vec<f64>), String> {
    let array = parse(bytes)?;
    let dtype = array
        .dtype()
        .ok_or_else(|| format!("it holds `{}`; numbers in the machine's order are expected", array.descr))?;
    Ok((array.shape, decode(dtype, array.data)))
}

/// A file of numbers in the machine's order, in C order.
pub fn parse(bytes: &[u8]) -> Result<Array<'_>, String> {
    let header_at = match bytes.get(..8) {
        Some([0x93, b'N', b'U', b'M', b'P', b'Y', 1, _]) => 10,
        Some([0x93, b'N', b'U', b'M', b'P', b'Y', 2 | 3, _]) => 12,
        _ => return Err("it is no .npy file".into()),
    };
    let length = match bytes.get(8..header_at) {
        Some([a, b]) => u16::from_le_bytes([*a, *b]) as usize,
        Some([a, b, c, d]) => u32::from_le_bytes([*a, *b, *c, *d]) as usize,
        _ => return Err("its header is cut off".into()),
    };
    let header = bytes.get(header_at..header_at.saturating_add(length)).ok_or("its header is cut off")?;
    let header = std::str::from_utf8(header).map_err(|_| "its header is no text")?;
    let descr = field(header, "'descr':")
        .and_then(|s| s.trim_start().strip_prefix('\'')?.split('\'').next())
        .ok_or("it names no type")?;
    if field(header, "'fortran_order':").is_some_and(|s| s.trim_start().starts_with("True")) {
        return Err("it is in Fortran order; use numpy.ascontiguousarray".into());
    }
    let sizes = field(header, "'shape':")
        .and_then(|s| s.trim_start().strip_prefix('(')?.split(')').next())
        .ok_or("it names no shape")?;
    let shape = sizes
        .split(',')
        .map(str::trim)
        .filter(|s| !s.is_empty())
        .map(|s| s.parse::<u64>().map_err(|_| format!("its shape has `{s}`")))
        .collect::<Result<Vec<u64>, String>>()?;
    if descr.starts_with('>') || !descr.is_ascii() {
        return Err(format!("it holds `{descr}`; numbers in the machine's order are expected"));
    }
    // `<f4`: a mark of the order, a kind, and the bytes of an element.
    let size = descr.get(2..).and_then(|n| n.parse::<u64>().ok()).filter(|n| (1..=16).contains(n));
    let size = size.ok_or_else(|| format!("it holds `{descr}`; an array of numbers is expected"))?;
    let data = &bytes[header_at + length..];
    let elements = shape.iter().try_fold(1u64, |n, s| n.checked_mul(*s)).ok_or("its shape is too large")?;
    if elements.checked_mul(size) != Some(data.len() as u64) {
        return Err(format!("it holds {} bytes for the shape {shape:?} of {descr}", data.len()));
    }
    Ok(Array { descr: descr.to_string(), shape, data })
}

fn field<'a>(header: &'a str, key: &str) -> Option<&'a str> {
    header.split_once(key).map(|(_, rest)| rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::encode;

    #[test]
    fn files_survive_the_round_trip() {
        for (dtype, shape) in
            [(DType::F32, vec![2, 3]), (DType::F16, vec![6]), (DType::E4m3, vec![1, 6, 1]), (DType::I64, vec![3, 2])]
        {
            let values = [0.0f32, 1.0, 2.0, 4.0, 8.0, 16.0];
            let bytes = write(&Tensor { name: "x".into(), dtype, shape: shape.clone(), bytes: encode(dtype, &values) });
            assert_eq!(
                bytes.len() % 64,
                (6 * if dtype == DType::E4m3 { 4 } else { dtype.bytes() } as usize) % 64,
                "data is aligned"
            );
            assert_eq!(read(&bytes), Ok((shape, vec![0.0, 1.0, 2.0, 4.0, 8.0, 16.0])), "{dtype}");
        }
        let scalar = Tensor { name: "x".into(), dtype: DType::F64, shape: vec![], bytes: encode(DType::F64, &[3.0]) };
        assert_eq!(read(&write(&scalar)), Ok((vec![], vec![3.0])));
    }

    #[test]
    fn what_is_no_array_is_refused_with_a_reason() {
        let good = write(&Tensor { name: "x".into(), dtype: DType::F32, shape: vec![4], bytes: vec![0; 16] });
        for (what, bytes) in [
            ("empty", vec![]),
            ("text", b"hello, world".to_vec()),
            ("cut header", good[..20].to_vec()),
            ("cut data", good[..good.len() - 1].to_vec()),
            (
                "huge shape",
                String::from_utf8_lossy(&good[10..])
                    .into_owned()
                    .replace("(4,)", "(99999999999,99999999999)")
                    .into_bytes(),
            ),
        ] {
            assert!(read(&bytes).is_err(), "{what}");
        }
    }
}
