//! `[[launch]]` of a launch file: dimensions as numbers, arguments as what they name.

use super::parse::Reader;
use super::*;
use crate::document::{Item, Value};
use crate::error::{SpecCode, SpecError};
use crate::formula::Number;
use crate::target;
use crate::task::is_name;

const MAX_LAUNCHES: usize = 256;
/// Parameters of a kernel (CUDA allows 4 KiB of them, 32 KiB from sm_70 on with toolkit 12.1).
const MAX_ARGS: usize = 512;
const OWNER: &str = "[[launch]]";

impl Reader<'_> {
    pub(super) fn launches(
        &self,
        buffers: &[BufferDecl],
        workspaces: &[ResolvedWorkspace],
        tensor_maps: &[ResolvedTensorMap],
    ) -> Result<Vec<ExecLaunch>, SpecError> {
        let place = &self.place;
        let item = self.root.get("launch").ok_or_else(|| {
            place
                .error(1, "the launch file has no [[launch]]: what is to be launched?")
                .hint("for example [[launch]], then `entry`, `grid`, `block` and `args`")
        })?;
        let items = item.array(place, "launch").map_err(|_| item.expected(place, "launch", "written as [[launch]]"))?;
        if items.is_empty() || items.len() > MAX_LAUNCHES {
            let message = format!("there are {} launches; a file has from 1 to {MAX_LAUNCHES}", items.len());
            return Err(place.error(item.line, message));
        }
        let named = |name: &str| -> Option<ExecArg> {
            if buffers.iter().any(|b| b.name == name) {
                Some(ExecArg::Buffer(name.into()))
            } else if workspaces.iter().any(|w| w.name == name) {
                Some(ExecArg::Workspace(name.into()))
            } else if tensor_maps.iter().any(|m| m.name == name) {
                Some(ExecArg::TensorMap(name.into()))
            } else {
                self.scalars.iter().find(|(n, _)| n == name).map(|(_, arg)| arg.clone())
            }
        };
        items.iter().map(|i| self.launch(i, &named)).collect()
    }

    fn launch(&self, item: &Item, named: &dyn Fn(&str) -> Option<ExecArg>) -> Result<ExecLaunch, SpecError> {
        let place = &self.place;
        let table = item.table(place, OWNER)?;
        table.only(place, OWNER, &["entry", "grid", "block", "cluster", "shared_bytes", "cooperative", "args"])?;
        let entry_item = table.need(place, OWNER, "entry")?;
        let entry = entry_item.text(place, "entry")?.trim();
        if entry.is_empty() || entry.len() > 1024 || entry.chars().any(char::is_control) {
            return Err(entry_item.expected(
                place,
                "entry",
                "a kernel's name such as \"axpy\" or \"softmax<float, 256>\"",
            ));
        }
        let dims =
            |key: &str, most: &[u64; 3], product: u64| self.dims(table.need(place, OWNER, key)?, key, most, product);
        let grid = dims("grid", &target::MAX_GRID, u64::MAX)?;
        let block = dims("block", &target::MAX_BLOCK, target::MAX_THREADS)?;
        let cluster = match table.get("cluster") {
            None => [1; 3],
            Some(_) => dims("cluster", &[target::MAX_CLUSTER; 3], target::MAX_CLUSTER)?,
        };
        if let Some(i) = (0..3).find(|i| grid[*i] % cluster[*i] != 0) {
            let message =
                format!("the grid ({} in dimension {i}) is no multiple of the cluster ({})", grid[i], cluster[i]);
            return Err(SpecError::new(SpecCode::InvalidLaunch, message).at(&place.file, item.line));
        }
        let shared_bytes = match table.get("shared_bytes") {
            None => 0,
            Some(item) => self.size(item, "shared_bytes", 0, 1 << 30, SpecCode::InvalidLaunch)?,
        };
        let cooperative = match table.get("cooperative") {
            None => true,
            Some(item) => match &item.value {
                Value::Bool(b) => *b,
                _ => return Err(item.expected(place, "cooperative", "true or false")),
            },
        };
        let args_item = table.need(place, OWNER, "args")?;
        let items = args_item.array(place, "args")?;
        if items.len() > MAX_ARGS {
            let message = format!("`args` has {} arguments; a kernel has at most {MAX_ARGS}", items.len());
            return Err(place.error(args_item.line, message));
        }
        let args = items.iter().map(|i| self.arg(i, named)).collect::<Result<_, _>>()?;
        Ok(ExecLaunch {
            entry: entry.to_string(),
            grid,
            block,
            cluster,
            shared_bytes,
            cooperative,
            args,
            line: item.line,
            args_line: args_item.line,
            entry_line: entry_item.line,
        })
    }

    fn arg(&self, item: &Item, named: &dyn Fn(&str) -> Option<ExecArg>) -> Result<ExecArg, SpecError> {
        let Value::Text(text) = &item.value else { return Ok(self.scalar("args", item)?.0) };
        let text = text.trim();
        if let Some(found) = named(text) {
            return Ok(found);
        }
        if is_name(text) && text != "true" && text != "false" {
            let known: Vec<&str> = self.names.iter().map(String::as_str).collect();
            return Err(self.no_such(item.line, "unknown argument", text, &known));
        }
        let value = match self.number(item, "args")? {
            Number::Whole(n) => ScalarValue::Whole(n),
            Number::Truth(b) => ScalarValue::Whole(i64::from(b)),
            Number::Real(x) => ScalarValue::Real(x),
        };
        Ok(ExecArg::Number { name: text.to_string(), value })
    }

    fn dims(&self, item: &Item, name: &str, most: &[u64; 3], product: u64) -> Result<[u32; 3], SpecError> {
        let items = match &item.value {
            Value::Array(items) => items.as_slice(),
            Value::Integer(_) | Value::Text(_) => std::slice::from_ref(item),
            _ => return Err(item.expected(&self.place, name, "an array of 1 to 3 whole numbers or formulas")),
        };
        if items.is_empty() || items.len() > 3 {
            let message = format!("`{name}` has {} dimensions; it has from 1 to 3", items.len());
            return Err(self.place.error(item.line, message));
        }
        let mut found = [1u32; 3];
        for (i, item) in items.iter().enumerate() {
            found[i] = self.size(item, name, 1, most[i], SpecCode::InvalidLaunch)? as u32;
        }
        let all: u64 = found.iter().map(|n| u64::from(*n)).fold(1, u64::saturating_mul);
        if all > product {
            let message = format!("`{name}` is {all} in all; the limit is {product}");
            return Err(SpecError::new(SpecCode::InvalidLaunch, message).at(&self.place.file, item.line));
        }
        Ok(found)
    }
}
