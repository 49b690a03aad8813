//! `[workspace.*]`, `[tensor_maps.*]` and `[[launch]]` of a front matter.
//!
//! What is a constant is held here against limits that every target has; what depends on shape, levers or target is not.

use super::args::{self, Names};
use super::parse::Parser;
use super::*;
use crate::document::Item;
use crate::error::{SpecCode, SpecError, shown};
use crate::formula::Number;
use crate::suggest::{did_you_mean, listed};
use crate::target;
use crate::task::{formula, formulas, is_name};
use crate::tensor_map::Modes;

/// Workspaces, tensor maps, launches.
const MAX_EACH: usize = 64;

impl Parser<'_> {
    pub(super) fn own_name(&self, name: &str, line: u32, what: &str, others: &[&str]) -> Result<(), SpecError> {
        let place = &self.place;
        if !is_name(name) {
            return Err(place.error(line, format!("`{}` is no name for a {what}: letters, digits and _", shown(name))));
        }
        let task = self.task;
        let taken = task.tensor(name).is_some()
            || task.scalar(name).is_some()
            || self.symbols.contains(name)
            || self.words.contains(name)
            || others.contains(&name);
        if taken {
            return Err(place.error(line, format!("the {what} `{name}` has the name of something else")));
        }
        Ok(())
    }

    pub(super) fn workspaces(&self) -> Result<Vec<Workspace>, SpecError> {
        let place = &self.place;
        let Some(item) = self.root.get("workspace") else { return Ok(Vec::new()) };
        let mut workspaces = Vec::new();
        for (name, line, item) in &item.table(place, "workspace")?.entries {
            self.own_name(name, *line, "workspace", &[])?;
            let owner = format!("[workspace.{name}]");
            let table = item.table(place, &owner)?;
            table.only(place, &owner, &["dtype", "shape", "init"])?;
            let dtype = table.need(place, &owner, "dtype")?;
            let shape = table.need(place, &owner, "shape")?;
            let init = match table.get("init") {
                None => WorkspaceInit::Poison,
                Some(item) => match item.text(place, "init")? {
                    "poison" => WorkspaceInit::Poison,
                    "zero" => WorkspaceInit::Zero,
                    _ => return Err(item.expected(place, "init", "\"zero\" or \"poison\"")),
                },
            };
            if workspaces.len() >= MAX_EACH {
                return Err(place.error(*line, format!("more than {MAX_EACH} workspaces")));
            }
            let word = dtype.text(place, "dtype")?;
            workspaces.push(Workspace {
                name: name.clone(),
                dtype: word.parse().map_err(|e: SpecError| e.at(&place.file, dtype.line))?,
                shape: self.sizes(shape, &format!("shape of {owner}"), 1)?,
                init,
                line: *line,
            });
        }
        Ok(workspaces)
    }

    pub(super) fn tensor_maps(&self, workspaces: &[Workspace]) -> Result<Vec<TensorMap>, SpecError> {
        let place = &self.place;
        let Some(item) = self.root.get("tensor_maps") else { return Ok(Vec::new()) };
        let taken: Vec<&str> = workspaces.iter().map(|w| w.name.as_str()).collect();
        let mut maps = Vec::new();
        for (name, line, item) in &item.table(place, "tensor_maps")?.entries {
            self.own_name(name, *line, "tensor map", &taken)?;
            if maps.len() >= MAX_EACH {
                return Err(place.error(*line, format!("more than {MAX_EACH} tensor maps")));
            }
            maps.push(self.tensor_map(name, *line, item, &taken)?);
        }
        Ok(maps)
    }

    fn tensor_map(&self, name: &str, line: u32, item: &Item, workspaces: &[&str]) -> Result<TensorMap, SpecError> {
        let place = &self.place;
        let owner = format!("[tensor_maps.{name}]");
        let table = item.table(place, &owner)?;
        table.only(
            place,
            &owner,
            &["tensor", "box", "dims", "strides", "element_strides", "swizzle", "interleave", "fill", "l2_promotion"],
        )?;
        let tensor_item = table.need(place, &owner, "tensor")?;
        let tensor = tensor_item.text(place, "tensor")?;
        if self.task.tensor(tensor).is_none() && !workspaces.contains(&tensor) {
            let names = || self.task.tensors.iter().map(|t| t.name.as_str()).chain(workspaces.iter().copied());
            return Err(place
                .unknown(
                    tensor_item.line,
                    format!("{owner} maps `{}`, which is no tensor{}", shown(tensor), did_you_mean(tensor, names())),
                )
                .hint(format!("tensors and workspaces: {}", listed(names()))));
        }
        let optional =
            |key: &str| table.get(key).map_or(Ok(Vec::new()), |i| self.sizes(i, &format!("{key} of {owner}"), 1));
        let box_sizes = self.sizes(table.need(place, &owner, "box")?, &format!("box of {owner}"), 1)?;
        if box_sizes.is_empty() || box_sizes.len() > 5 {
            return Err(place.error(
                line,
                format!("the box of {owner} has {} dimensions; a tensor map has from 1 to 5", box_sizes.len()),
            ));
        }
        // The driver's constants without their common prefix; the whole constant is taken too.
        let modes = Modes::of(table, place)?;
        Ok(TensorMap {
            name: name.to_string(),
            tensor: tensor.to_string(),
            dims: optional("dims")?,
            strides: optional("strides")?,
            element_strides: optional("element_strides")?,
            box_sizes,
            swizzle: modes.swizzle,
            interleave: modes.interleave,
            fill: modes.fill,
            l2_promotion: modes.l2_promotion,
            line,
        })
    }

    /// Formulas that give sizes; constants below `least` are wrong whatever the shape.
    fn sizes(&self, item: &Item, name: &str, least: i64) -> Result<Vec<Formula>, SpecError> {
        let found = formulas(&self.place, item, name, &self.symbols)?;
        for f in &found {
            self.whole(f, name, least)?;
        }
        Ok(found)
    }

    /// Refuses a formula that gives no whole number whatever the shape, or a constant below `least`. Returns a constant's value.
    pub(super) fn whole(&self, f: &Formula, name: &str, least: i64) -> Result<Option<i64>, SpecError> {
        let place = &self.place;
        if let Some(why) = f.type_error(&self.trial) {
            return Err(place.error(f.line(), format!("`{name}`: {why}")));
        }
        match f.eval(&self.trial) {
            Ok(Number::Real(_) | Number::Truth(_)) => {
                let why = f.eval_whole(&self.trial).err().unwrap_or_default();
                Err(place.error(f.line(), format!("`{name}`: {why}")))
            }
            Err(why) if f.symbols().is_empty() => Err(place.error(f.line(), format!("`{name}`: {why}"))),
            Ok(Number::Whole(n)) if f.symbols().is_empty() => {
                if n >= least {
                    return Ok(Some(n));
                }
                let message = format!("`{name}` is {n}; it has to be at least {least}");
                Err(SpecError::new(SpecCode::InvalidLaunch, message).at(&place.file, f.line()))
            }
            _ => Ok(None),
        }
    }

    pub(super) fn launches(
        &self,
        first_line: u32,
        workspaces: &[String],
        tensor_maps: &[String],
    ) -> Result<Vec<LaunchStep>, SpecError> {
        let place = &self.place;
        let item = self.root.get("launch").ok_or_else(|| {
            place
                .error(first_line, "the front matter has no [[launch]]: what is to be launched?")
                .hint("for example `//! [[launch]]`, then `entry`, `grid`, `block` and `args`, each in a `//!` line")
        })?;
        let items = item.array(place, "launch").map_err(|_| item.expected(place, "launch", "written as [[launch]]"))?;
        if items.is_empty() || items.len() > MAX_EACH {
            return Err(place.error(
                item.line,
                format!("there are {} launches; a candidate has from 1 to {MAX_EACH}", items.len()),
            ));
        }
        let mut names = Names {
            task: self.task,
            workspaces,
            tensor_maps,
            structs: &[],
            symbols: &self.symbols,
            words: &self.words,
        };
        let structs = self.structs(&names)?;
        names.structs = &structs;
        items.iter().map(|i| self.launch(i, &names)).collect()
    }

    fn launch(&self, item: &Item, names: &Names<'_>) -> Result<LaunchStep, SpecError> {
        let place = &self.place;
        const OWNER: &str = "[[launch]]";
        let table = item.table(place, OWNER)?;
        table.only(place, OWNER, &["entry", "grid", "block", "cluster", "shared_bytes", "args"])?;
        let entry_item = table.need(place, OWNER, "entry")?;
        let entry = entry_item.text(place, "entry")?.trim();
        if !is_entry(entry) {
            return Err(entry_item.expected(
                place,
                "entry",
                "a kernel's name, or a template instance such as \"sdpa_fp8<64, true>\"",
            ));
        }
        let grid = self.dimensions(table.need(place, OWNER, "grid")?, "grid", &target::MAX_GRID, u64::MAX)?;
        let block =
            self.dimensions(table.need(place, OWNER, "block")?, "block", &target::MAX_BLOCK, target::MAX_THREADS)?;
        let cluster = match table.get("cluster") {
            Some(item) => self.dimensions(item, "cluster", &[target::MAX_CLUSTER; 3], target::MAX_CLUSTER)?,
            None => Vec::new(),
        };
        let shared_bytes = match table.get("shared_bytes") {
            Some(item) => {
                let f = formula(place, item, "shared_bytes", &self.symbols)?;
                self.whole(&f, "shared_bytes", 0)?;
                Some(f)
            }
            None => None,
        };
        let args_item = table.need(place, OWNER, "args")?;
        let args = args::args(place, args_item, names)?;
        for arg in &args {
            if let Arg::Formula(f) = arg
                && let Some(why) = f.type_error(&self.trial)
            {
                return Err(place.error(f.line(), format!("`args`: {why}")));
            }
        }
        Ok(LaunchStep {
            entry: entry.to_string(),
            grid,
            block,
            cluster,
            shared_bytes,
            args,
            line: item.line,
            args_line: args_item.line,
            entry_line: entry_item.line,
        })
    }

    /// One to three sizes; what is a constant is checked against the limits of every target here and now.
    fn dimensions(&self, item: &Item, name: &str, most: &[u64; 3], product: u64) -> Result<Vec<Formula>, SpecError> {
        let place = &self.place;
        let items = item
            .array(place, name)
            .map_err(|_| item.expected(place, name, "an array of 1 to 3 whole numbers or formulas"))?;
        if items.is_empty() || items.len() > 3 {
            return Err(place.error(item.line, format!("`{name}` has {} dimensions; it has from 1 to 3", items.len())));
        }
        let found = formulas(place, item, name, &self.symbols)?;
        let mut threads: u64 = 1;
        let invalid =
            |line: u32, message: String| Err(SpecError::new(SpecCode::InvalidLaunch, message).at(&place.file, line));
        for (f, most) in found.iter().zip(most) {
            let Some(n) = self.whole(f, name, 1)? else { continue };
            if n as u64 > *most {
                return invalid(f.line(), format!("`{name}` is {n} in one dimension; the limit is {most}"));
            }
            threads = threads.saturating_mul(n as u64);
        }
        if threads > product {
            return invalid(item.line, format!("`{name}` is {threads} in all; the limit is {product}"));
        }
        Ok(found)
    }
}

/// A name, perhaps in a namespace, perhaps with template arguments: what NVRTC takes as a name expression.
fn is_entry(entry: &str) -> bool {
    let (name, arguments) = match entry.find('<') {
        Some(at) => (&entry[..at], Some(&entry[at..])),
        None => (entry, None),
    };
    let named = entry.len() <= 512 && name.trim_end().split("::").all(is_name);
    let fits = arguments.is_none_or(|a| {
        let allowed = |c: char| c.is_ascii_alphanumeric() || "_:<>, +-*/%()&|=!.'".contains(c);
        a.ends_with('>') && a.len() > 2 && a.chars().all(allowed)
    });
    named && fits
}
