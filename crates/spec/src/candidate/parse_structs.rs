//! `[structs.NAME]` of a front matter: a struct that a kernel takes by value, with its layout and what goes into each field.
//!
//! Offsets are the front matter's word and are held against one another here; against the entry's parameter (its size, its alignment)
//! when it is compiled. Limits: 4,096 bytes (what CUDA lets a kernel take at least), 256 fields, 64 structs.

use super::args::{self, Names};
use super::parse::Parser;
use super::*;
use crate::document::Item;
use crate::error::{SpecError, shown};
use crate::task::is_name;

const MAX_EACH: usize = 64;
const MAX_FIELDS: usize = 256;
const MAX_BYTES: i64 = 4096;

impl Parser<'_> {
    /// The structs, in the order of the file. `names` knows none yet: a struct holds no struct.
    pub(super) fn structs(&self, names: &Names<'_>) -> Result<Vec<Struct>, SpecError> {
        let place = &self.place;
        let Some(item) = self.root.get("structs") else { return Ok(Vec::new()) };
        let taken: Vec<&str> = names.workspaces.iter().chain(names.tensor_maps).map(String::as_str).collect();
        let mut found = Vec::new();
        for (name, line, item) in &item.table(place, "structs")?.entries {
            self.own_name(name, *line, "struct", &taken)?;
            if found.len() >= MAX_EACH {
                return Err(place.error(*line, format!("more than {MAX_EACH} structs")));
            }
            found.push(self.structure(name, *line, item, names)?);
        }
        Ok(found)
    }

    fn structure(&self, name: &str, line: u32, item: &Item, names: &Names<'_>) -> Result<Struct, SpecError> {
        let place = &self.place;
        let owner = format!("[structs.{name}]");
        let table = item.table(place, &owner)?;
        table.only(place, &owner, &["bytes", "align", "fields"])?;
        let bytes = table.need(place, &owner, "bytes")?.within(place, "bytes", 1, MAX_BYTES)? as u64;
        let align = match table.get("align") {
            None => 8,
            Some(item) => match item.within(place, "align", 1, 128)? as u64 {
                n if n.is_power_of_two() => n,
                n => return Err(place.error(item.line, format!("`align` is {n}, which is no power of two"))),
            },
        };
        let fields_item = table.need(place, &owner, "fields")?;
        let items = fields_item.array(place, "fields")?;
        if items.is_empty() || items.len() > MAX_FIELDS {
            let message = format!("{owner} has {} fields; a struct has from 1 to {MAX_FIELDS}", items.len());
            return Err(place.error(fields_item.line, message));
        }
        let mut fields: Vec<StructField> = Vec::new();
        for item in items {
            let field = self.field(&owner, item, names)?;
            let size = field.kind.bytes();
            let wrong = |why: String| Err(place.error(field.line, format!("field `{}` of {owner} {why}", field.name)));
            if !field.offset.is_multiple_of(size) {
                return wrong(format!(
                    "has {size} bytes and lies at {}: it has to lie at a multiple of its size",
                    field.offset
                ));
            }
            if size > align {
                return wrong(format!("has {size} bytes, but the struct is aligned to {align} only"));
            }
            if field.offset + size > bytes {
                return wrong(format!("ends at {}, but the struct has {bytes} bytes", field.offset + size));
            }
            let overlaps = |f: &&StructField| {
                f.name == field.name || (f.offset < field.offset + size && field.offset < f.offset + f.kind.bytes())
            };
            if let Some(other) = fields.iter().find(overlaps) {
                return wrong(format!("overlaps `{}` at {}, or has its name", other.name, other.offset));
            }
            fields.push(field);
        }
        fields.sort_by_key(|f| f.offset);
        Ok(Struct { name: name.to_string(), bytes, align, fields, line })
    }

    fn field(&self, owner: &str, item: &Item, names: &Names<'_>) -> Result<StructField, SpecError> {
        let place = &self.place;
        let table = item.table(place, owner)?;
        table.only(place, "a field", &["name", "type", "offset", "value"])?;
        let name_item = table.need(place, "a field", "name")?;
        let name = name_item.text(place, "name")?;
        if !is_name(name) {
            let message = format!("`{}` is no name for a field: letters, digits and _", shown(name));
            return Err(place.error(name_item.line, message));
        }
        let type_item = table.need(place, "a field", "type")?;
        let kind = match type_item.text(place, "type")? {
            "ptr" => FieldType::Pointer,
            word => match word.parse::<DType>() {
                Ok(dtype @ (DType::F32 | DType::F64)) => FieldType::Number(dtype),
                Ok(dtype) if !dtype.is_float() => FieldType::Number(dtype),
                _ => return Err(type_item.expected(place, "type", "\"ptr\", f32, f64, or a type of whole numbers")),
            },
        };
        let offset = table.need(place, "a field", "offset")?.within(place, "offset", 0, MAX_BYTES - 1)? as u64;
        let value_item = table.need(place, "a field", "value")?;
        let value = args::arg(place, value_item, names)?;
        let fits = match (&value, kind) {
            (Arg::Tensor(_) | Arg::Workspace(_), kind) => kind == FieldType::Pointer,
            (Arg::TensorMap(_) | Arg::Struct(_), _) => false,
            (Arg::Formula(f), FieldType::Pointer) => f.text() == "0",
            (Arg::Float(_) | Arg::Scalar(_), FieldType::Pointer) => false,
            _ => true,
        };
        if !fits {
            let message = format!(
                "field `{name}` of {owner}: an address goes with the type ptr, and ptr with an address or 0; a tensor map is an argument of its own"
            );
            return Err(place.error(value_item.line, message));
        }
        if let Arg::Formula(f) = &value
            && let Some(why) = f.type_error(&self.trial)
        {
            return Err(place.error(f.line(), format!("field `{name}` of {owner}: {why}")));
        }
        Ok(StructField { name: name.to_string(), kind, offset, value, line: item.line })
    }
}
