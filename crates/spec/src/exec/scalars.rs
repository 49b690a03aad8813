//! `[scalars]`: numbers with their types (`{ i32 = 1000 }`), structures (`{ fields = [...] }`), and plain numbers, which take the width
//! of the parameter. Whole ones can be named in the formulas of what follows.

use super::parse::{MAX_EACH, Reader};
use super::*;
use crate::document::{Item, Table, Value};
use crate::error::{SpecCode, SpecError};
use crate::formula::{Formula, Number};
use crate::task::formula;

/// Numbers of one structure.
const MAX_FIELDS: usize = 512;

impl Reader<'_> {
    pub(super) fn scalars(&mut self) -> Result<(), SpecError> {
        let place = self.place.clone();
        let Some(item) = self.root.get("scalars") else { return Ok(()) };
        for (name, line, item) in &item.table(&place, "scalars")?.entries {
            self.take(name, *line, "scalar")?;
            if self.scalars.len() >= MAX_EACH {
                return Err(place.error(*line, format!("more than {MAX_EACH} scalars")));
            }
            let (arg, whole) = self.scalar(name, item)?;
            if let Some(n) = whole {
                self.values.insert(name.clone(), n);
                self.symbols.insert(name.clone());
            }
            self.scalars.push((name.clone(), arg));
        }
        Ok(())
    }

    /// A number as an argument, and its value where formulas may name it.
    pub(super) fn scalar(&self, name: &str, item: &Item) -> Result<(ExecArg, Option<i64>), SpecError> {
        let number = |value: ScalarValue| ExecArg::Number { name: name.to_string(), value };
        Ok(match &item.value {
            Value::Table(table) => {
                let fields = self.fields(name, item, table)?;
                let whole = match fields.as_slice() {
                    [Field { value: Literal::Whole(n), .. }] => i64::try_from(*n).ok(),
                    _ => None,
                };
                (ExecArg::Typed { name: name.to_string(), fields }, whole)
            }
            Value::Bool(b) => (number(ScalarValue::Whole(i64::from(*b))), Some(i64::from(*b))),
            Value::Integer(n) => (number(ScalarValue::Whole(*n)), Some(*n)),
            Value::Float(x) => (number(ScalarValue::Real(*x)), None),
            Value::Text(_) => match self.number(item, name)? {
                Number::Whole(n) => (number(ScalarValue::Whole(n)), Some(n)),
                Number::Truth(b) => (number(ScalarValue::Whole(i64::from(b))), Some(i64::from(b))),
                Number::Real(x) => (number(ScalarValue::Real(x)), None),
            },
            _ => return Err(item.expected(&self.place, name, "{ TYPE = NUMBER } such as { i32 = 1000 }, or a number")),
        })
    }

    fn fields(&self, name: &str, item: &Item, table: &Table) -> Result<Vec<Field>, SpecError> {
        let place = &self.place;
        let form = "one type with its number, such as { i32 = 1000 }, or { fields = [{ i32 = 1 }, { f32 = 2.0 }] }";
        let [(word, line, value)] = table.entries.as_slice() else { return Err(item.expected(place, name, form)) };
        if word != "fields" {
            return Ok(vec![self.field(word, *line, value)?]);
        }
        let items = value.array(place, "fields")?;
        if items.is_empty() || items.len() > MAX_FIELDS {
            let message = format!("`{name}` has {} fields; it has from 1 to {MAX_FIELDS}", items.len());
            return Err(place.error(value.line, message));
        }
        let mut fields = Vec::new();
        for item in items {
            let Value::Table(table) = &item.value else {
                return Err(item.expected(place, "fields", "a list of { TYPE = NUMBER }"));
            };
            let [(word, line, value)] = table.entries.as_slice() else {
                return Err(item.expected(place, "fields", "a list of { TYPE = NUMBER }"));
            };
            fields.push(self.field(word, *line, value)?);
        }
        Ok(fields)
    }

    fn field(&self, word: &str, line: u32, item: &Item) -> Result<Field, SpecError> {
        let place = &self.place;
        let (dtype, is_bool) = match word {
            "bool" => (DType::U8, true),
            _ => (dtype(word).map_err(|e| e.at(&place.file, line))?, false),
        };
        let given = match &item.value {
            Value::Bool(b) => Literal::Whole(i128::from(*b)),
            Value::Integer(n) => Literal::Whole(i128::from(*n)),
            Value::Float(x) => Literal::Real(*x),
            // Beyond a signed number of 64 bits.
            Value::Other(_, text) if text.parse::<u64>().is_ok() => Literal::Whole(text.parse().unwrap_or(0)),
            Value::Text(_) => match self.number(item, word)? {
                Number::Whole(n) => Literal::Whole(i128::from(n)),
                Number::Truth(b) => Literal::Whole(i128::from(b)),
                Number::Real(x) => Literal::Real(x),
            },
            _ => return Err(item.expected(place, word, "a number")),
        };
        let value = match (dtype.is_float(), given) {
            (true, Literal::Whole(n)) => Literal::Real(n as f64),
            (true, real) => real,
            (false, Literal::Real(_)) => return Err(item.expected(place, word, "a whole number")),
            (false, Literal::Whole(n)) => {
                let (low, high) = if is_bool { (0, 1) } else { range(dtype) };
                if n < low || n > high {
                    return Err(item.expected(place, word, &format!("a whole number from {low} to {high}")));
                }
                given
            }
        };
        Ok(Field { dtype, value })
    }

    /// The number of a formula over the scalars so far.
    pub(super) fn number(&self, item: &Item, name: &str) -> Result<Number, SpecError> {
        let f = formula(&self.place, item, name, &self.symbols)?;
        f.eval(&self.values).map_err(|why| self.place.error(item.line, format!("`{name}`: {why}")))
    }

    /// The whole number, from `low` to `high`, of a formula or a constant.
    pub(super) fn size(&self, item: &Item, name: &str, low: i64, high: u64, code: SpecCode) -> Result<u64, SpecError> {
        let f: Formula = formula(&self.place, item, name, &self.symbols)?;
        let n = f.eval_whole(&self.values).map_err(|why| self.place.error(item.line, format!("`{name}`: {why}")))?;
        if n < low || n as u64 > high {
            let message = format!("`{name}` is {n} (`{}`); it has to be from {low} to {high}", f.text());
            return Err(SpecError::new(code, message).at(&self.place.file, item.line));
        }
        Ok(n as u64)
    }
}

/// The numbers of a whole type.
pub(super) fn range(dtype: DType) -> (i128, i128) {
    let bits = 8 * dtype.bytes() as u32;
    match dtype {
        DType::U8 | DType::U16 | DType::U32 | DType::U64 => (0, (1i128 << bits) - 1),
        _ => (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1),
    }
}

/// An element type by our word or by NumPy's.
pub(super) fn dtype(word: &str) -> Result<DType, SpecError> {
    Ok(match word.trim_start_matches(['<', '|', '=']) {
        "i1" | "int8" => DType::I8,
        "u1" | "uint8" | "bool" | "b1" => DType::U8,
        "i2" | "int16" => DType::I16,
        "u2" | "uint16" => DType::U16,
        "i4" | "int32" | "int" => DType::I32,
        "u4" | "uint32" => DType::U32,
        // `i8` is eight bits here; NumPy's code of that name, 64 bits, has its mark before it.
        "i8" if word.starts_with(['<', '=']) => DType::I64,
        "u8" if word.starts_with(['<', '=']) => DType::U64,
        "int64" => DType::I64,
        "uint64" => DType::U64,
        "f2" | "float16" | "half" => DType::F16,
        "f4" | "float32" | "float" => DType::F32,
        "f8" | "float64" | "double" => DType::F64,
        "bfloat16" => DType::Bf16,
        "float8_e4m3fn" | "float8_e4m3" => DType::E4m3,
        "float8_e5m2" => DType::E5m2,
        _ => word.parse()?,
    })
}
