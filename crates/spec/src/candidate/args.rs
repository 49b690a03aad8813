//! The arguments of a launch: what each text or number means. Names are looked up once, here; later parts see only [`Arg`].

use super::{Arg, Struct};
use crate::document::{Item, Place, Value};
use crate::error::{SpecError, shown};
use crate::formula::Formula;
use crate::suggest::{did_you_mean, listed};
use crate::task::Task;
use std::collections::BTreeSet;

/// Parameters of a kernel (CUDA allows 4 KiB of them, 32 KiB from sm_70 on with toolkit 12.1).
const MAX_ARGS: usize = 512;

/// What names there are.
pub(super) struct Names<'a> {
    pub task: &'a Task,
    pub workspaces: &'a [String],
    pub tensor_maps: &'a [String],
    pub structs: &'a [Struct],
    /// Symbols of formulas: the task's, levers that are numbers, SM_COUNT, causal.
    pub symbols: &'a BTreeSet<String>,
    /// Levers that are words.
    pub words: &'a BTreeSet<String>,
}

impl Names<'_> {
    /// All names that an argument can be, in the order in which a message lists them.
    fn all(&self) -> Vec<&str> {
        let task = self.task;
        let tensors = task.tensors.iter().map(|t| t.name.as_str());
        let scalars = task.scalars.iter().map(|s| s.name.as_str());
        let structs = self.structs.iter().map(|s| &s.name);
        let own = self.workspaces.iter().chain(self.tensor_maps).chain(structs).map(String::as_str);
        tensors.chain(scalars).chain(own).chain(self.symbols.iter().map(String::as_str)).collect()
    }
}

pub(super) fn args(place: &Place, item: &Item, names: &Names<'_>) -> Result<Vec<Arg>, SpecError> {
    let items = item.array(place, "args")?;
    if items.len() > MAX_ARGS {
        return Err(
            place.error(item.line, format!("`args` has {} arguments; a kernel has at most {MAX_ARGS}", items.len()))
        );
    }
    items.iter().map(|i| arg(place, i, names)).collect()
}

pub(super) fn arg(place: &Place, item: &Item, names: &Names<'_>) -> Result<Arg, SpecError> {
    let text = match &item.value {
        Value::Integer(n) => return Ok(Arg::Formula(Formula::constant(*n, item.line))),
        Value::Float(x) if x.is_finite() => return Ok(Arg::Float(*x)),
        Value::Text(text) => text.trim(),
        _ => return Err(item.expected(place, "args", "names, numbers or formulas")),
    };
    let is = |list: &[String]| list.iter().any(|n| n == text);
    if names.task.tensor(text).is_some() {
        Ok(Arg::Tensor(text.to_string()))
    } else if names.task.scalar(text).is_some() {
        Ok(Arg::Scalar(text.to_string()))
    } else if is(names.workspaces) {
        Ok(Arg::Workspace(text.to_string()))
    } else if is(names.tensor_maps) {
        Ok(Arg::TensorMap(text.to_string()))
    } else if let Some(found) = names.structs.iter().find(|s| s.name == text) {
        Ok(Arg::Struct(found.clone()))
    } else if names.words.contains(text) {
        Err(place.error(
            item.line,
            format!("the lever `{text}` is a word, so it cannot be an argument; it is a macro of that text"),
        ))
    } else if crate::task::is_name(text) && !names.symbols.contains(text) && text != "true" && text != "false" {
        let all = names.all();
        Err(place
            .unknown(
                item.line,
                format!("unknown argument `{}`{}", shown(text), did_you_mean(text, all.iter().copied())),
            )
            .hint(format!("arguments can be {}; numbers; and formulas", listed(all))))
    } else {
        Formula::parse(text, item.line, names.symbols)
            .map(Arg::Formula)
            .map_err(|e| e.at(place, item.line, "args", text, names.symbols))
    }
}
