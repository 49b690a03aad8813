//! A candidate's front matter to [`Candidate`]. Every error has the file's line and says what was expected.

use super::args::{self, Names};
use super::front_matter;
use super::*;
use crate::document::{self, Item, Place, Table, Value};
use crate::error::{SpecCode, SpecError, shown};
use crate::formula::{Number, Symbols};
use crate::levers::LeverValue;
use crate::suggest::{did_you_mean, listed};
use crate::target;
use crate::task::set::TaskSet;
use crate::task::{Task, budget, formula, formulas, is_name};
use std::collections::{BTreeMap, BTreeSet};

const KEYS: [&str; 14] = [
    "task",
    "targets",
    "constraints",
    "formats",
    "scales",
    "defines",
    "precision",
    "levers",
    "config",
    "budget",
    "compile",
    "workspace",
    "tensor_maps",
    "launch",
];
const MAX_EACH: usize = 64;
/// Values of one lever, and configurations.
const MAX_VALUES: usize = 256;

impl Candidate {
    /// Parses a candidate's file. `name` is what people call it (a path, or a built-in's name) and what messages call the file.
    pub fn parse(name: &str, bytes: &[u8], tasks: &TaskSet) -> Result<Candidate, SpecError> {
        let head = front_matter::split(name, bytes)?;
        let place = Place { file: name.to_string(), code: SpecCode::CandidateSyntax, what: "front matter" };
        let first_line = head.first_line;
        let root = document::parse(&place, &head.toml, &|line| line + first_line - 1)?;
        root.only(&place, "the front matter", &KEYS)?;
        let item = root.get("task").ok_or_else(|| {
            place
                .error(first_line, "the front matter names no `task`")
                .hint(format!("tasks there are: {}", listed(tasks.names())))
        })?;
        let task = tasks.find(item.text(&place, "task")?).map_err(|e| e.at(name, item.line))?;
        let mut parser = Parser {
            place,
            root: &root,
            task,
            symbols: BTreeSet::new(),
            words: BTreeSet::new(),
            trial: Symbols::new(),
        };
        parser.candidate(name, head.source, first_line)
    }
}

struct Parser<'a> {
    place: Place,
    root: &'a Table,
    task: &'a Task,
    /// Symbols of formulas.
    symbols: BTreeSet<String>,
    /// Levers that are words.
    words: BTreeSet<String>,
    /// Some value for each symbol: a formula that is of the wrong type with these is so with all.
    trial: Symbols,
}

impl Parser<'_> {
    fn candidate(&mut self, name: &str, source: String, first_line: u32) -> Result<Candidate, SpecError> {
        let configs = self.configs()?;
        let levers = self.levers(&configs)?;
        self.collect_symbols(&levers);
        let workspaces = self.workspaces()?;
        let workspace_names: Vec<String> = workspaces.iter().map(|w| w.name.clone()).collect();
        let tensor_maps = self.tensor_maps(&workspaces)?;
        let map_names: Vec<String> = tensor_maps.iter().map(|m| m.name.clone()).collect();
        let compile = match self.root.get("compile") {
            Some(item) => CompileOptions::parse(&self.place, item.table(&self.place, "compile")?, &levers)?,
            None => CompileOptions::default(),
        };
        let candidate = Candidate {
            name: name.to_string(),
            source,
            task: self.task.name.clone(),
            targets: self.targets(first_line)?,
            constraints: self.constraints()?,
            formats: self.axis("formats", &self.task.formats)?,
            scales: self.axis("scales", &self.task.scales)?,
            defines: self.defines()?,
            precision: self.precision()?,
            budget: self.root.get("budget").map_or(Ok(Default::default()), |i| budget(&self.place, i))?,
            plan: LaunchPlan {
                launches: self.launches(first_line, &workspace_names, &map_names)?,
                workspaces,
                tensor_maps,
            },
            levers,
            configs,
            compile,
        };
        Ok(candidate)
    }

    fn targets(&self, first_line: u32) -> Result<Vec<String>, SpecError> {
        let place = &self.place;
        let item = self.root.get("targets").ok_or_else(|| {
            place
                .error(first_line, "the front matter names no `targets`")
                .hint("for example `//! targets = [\"sm_89\", \"sm_90\"]`")
        })?;
        let mut targets: Vec<String> = Vec::new();
        for (name, line) in item.texts(place, "targets")? {
            let found = target::find(name).map_err(|e| e.at(&place.file, line))?;
            if targets.iter().any(|t| t == found.name) {
                return Err(place.error(line, format!("`targets` has {name} twice")));
            }
            targets.push(found.name.to_string());
        }
        Ok(targets)
    }

    fn constraints(&self) -> Result<Vec<Formula>, SpecError> {
        let place = &self.place;
        let Some(item) = self.root.get("constraints") else { return Ok(Vec::new()) };
        let items = item.array(place, "constraints")?;
        if items.len() > MAX_VALUES {
            return Err(place.error(item.line, format!("`constraints` has more than {MAX_VALUES} entries")));
        }
        items
            .iter()
            .map(|i| {
                i.text(place, "constraints")?;
                let f = formula(place, i, "constraints", &self.symbols)?;
                match f.type_error(&self.trial) {
                    Some(why) => Err(place.error(i.line, format!("`constraints`: {why}"))),
                    None if matches!(f.eval(&self.trial), Ok(Number::Real(_))) => Err(place.error(
                        i.line,
                        format!("the constraint `{}` is not a condition, such as `D == 64`", shown(f.text())),
                    )),
                    None => Ok(f),
                }
            })
            .collect()
    }

    /// `formats` or `scales`: of those that the task has; left out, the task's first.
    fn axis<T>(&self, key: &str, of_task: &[T]) -> Result<Vec<T>, SpecError>
    where
        T: std::str::FromStr<Err = SpecError> + PartialEq + Copy + std::fmt::Display,
    {
        let place = &self.place;
        let Some(item) = self.root.get(key) else { return Ok(of_task.iter().take(1).copied().collect()) };
        let mut found: Vec<T> = Vec::new();
        for (word, line) in item.texts(place, key)? {
            let known = || of_task.iter().map(|t| t.to_string()).collect::<Vec<_>>().join(", ");
            let value: T = word
                .parse()
                .map_err(|e: SpecError| e.at(&place.file, line).hint(format!("{} has {}", self.task.name, known())))?;
            if !of_task.contains(&value) {
                return Err(place.unknown(
                    line,
                    format!("task {} has no `{value}` among its {key}: it has {}", self.task.name, known()),
                ));
            }
            if found.contains(&value) {
                return Err(place.error(line, format!("`{key}` has `{word}` twice")));
            }
            found.push(value);
        }
        Ok(found)
    }

    fn defines(&self) -> Result<Vec<Define>, SpecError> {
        let place = &self.place;
        let Some(item) = self.root.get("defines") else { return Ok(Vec::new()) };
        let mut defines = Vec::new();
        for (name, line) in item.texts(place, "defines")? {
            let define = match name {
                "causal" if self.task.has_causal() => Define::Causal,
                "format" => Define::Format,
                "scales" => Define::Scales,
                _ if self.task.symbols.iter().any(|s| s == name) => Define::Symbol(name.to_string()),
                _ => {
                    let causal = self.task.has_causal().then_some("causal");
                    let known =
                        || self.task.symbols.iter().map(String::as_str).chain(causal).chain(["format", "scales"]);
                    return Err(place
                        .unknown(
                            line,
                            format!(
                                "`defines` names `{}`, which is no part of a workload{}",
                                shown(name),
                                did_you_mean(name, known())
                            ),
                        )
                        .hint(format!(
                            "parts of a workload of {}: {}; levers are defined anyway",
                            self.task.name,
                            listed(known())
                        )));
                }
            };
            if defines.contains(&define) {
                return Err(place.error(line, format!("`defines` has `{name}` twice")));
            }
            defines.push(define);
        }
        Ok(defines)
    }

    fn precision(&self) -> Result<Option<Precision>, SpecError> {
        let Some(item) = self.root.get("precision") else { return Ok(None) };
        let word = item.text(&self.place, "precision")?;
        word.parse().map(Some).map_err(|e: SpecError| e.at(&self.place.file, item.line))
    }

    // ---- levers and configurations

    fn configs(&self) -> Result<Vec<Config>, SpecError> {
        let place = &self.place;
        let Some(item) = self.root.get("config") else { return Ok(Vec::new()) };
        let items = item.array(place, "config").map_err(|_| item.expected(place, "config", "written as [[config]]"))?;
        let mut configs: Vec<Config> = Vec::new();
        for item in items {
            const OWNER: &str = "[[config]]";
            let table = item.table(place, "config")?;
            table.only(place, OWNER, &["name", "set"])?;
            let name_item = table.need(place, OWNER, "name")?;
            let name = name_item.text(place, "name")?;
            if name.is_empty() || name.len() > 64 || name.chars().any(|c| c.is_control() || c.is_whitespace()) {
                return Err(name_item.expected(place, "name", "a name without spaces, of at most 64 characters"));
            }
            if configs.iter().any(|c| c.name == name) {
                return Err(place.error(name_item.line, format!("the configuration `{name}` is there twice")));
            }
            let set_item = table.need(place, OWNER, "set")?;
            let mut set = BTreeMap::new();
            for (lever, line, value) in &set_item.table(place, "set")?.entries {
                self.lever_name(lever, *line)?;
                set.insert(lever.clone(), self.lever_value(lever, value)?);
            }
            if set.is_empty() {
                return Err(place.error(set_item.line, format!("the configuration `{name}` sets nothing")));
            }
            if configs.len() >= MAX_VALUES {
                return Err(place.error(item.line, format!("more than {MAX_VALUES} configurations")));
            }
            configs.push(Config { name: name.to_string(), set, line: item.line });
        }
        Ok(configs)
    }

    fn levers(&self, configs: &[Config]) -> Result<Vec<Lever>, SpecError> {
        let place = &self.place;
        let mut levers: Vec<Lever> = Vec::new();
        if let Some(item) = self.root.get("levers") {
            for (name, line, item) in &item.table(place, "levers")?.entries {
                self.lever_name(name, *line)?;
                let items = item
                    .array(place, name)
                    .map_err(|_| item.expected(place, name, "an array of the lever's values"))?;
                if items.is_empty() || items.len() > MAX_VALUES {
                    return Err(place.error(
                        item.line,
                        format!("the lever `{name}` has {} values; it has from 1 to {MAX_VALUES}", items.len()),
                    ));
                }
                let mut values: Vec<LeverValue> = Vec::new();
                for item in items {
                    let value = self.lever_value(name, item)?;
                    if values.contains(&value) {
                        return Err(place.error(item.line, format!("the lever `{name}` has the value {value} twice")));
                    }
                    values.push(value);
                }
                levers.push(Lever { name: name.clone(), values, listed: true, line: *line });
            }
        }
        for config in configs {
            for (name, value) in &config.set {
                match levers.iter_mut().find(|l| l.name == *name) {
                    Some(lever) if !lever.values.contains(value) => lever.values.push(value.clone()),
                    Some(_) => {}
                    None => levers.push(Lever {
                        name: name.clone(),
                        values: vec![value.clone()],
                        listed: false,
                        line: config.line,
                    }),
                }
            }
        }
        for lever in &levers {
            let numbers = lever.values.iter().filter(|v| v.as_int().is_some()).count();
            if numbers != 0 && numbers != lever.values.len() {
                return Err(place.error(
                    lever.line,
                    format!("the lever `{}` has numbers and words; it has one or the other", lever.name),
                ));
            }
            if let Some(config) = configs.iter().find(|c| !lever.listed && !c.set.contains_key(&lever.name)) {
                return Err(place.error(
                    config.line,
                    format!(
                        "the configuration `{}` does not set `{}`, which others set and [levers] does not list",
                        config.name, lever.name
                    ),
                ));
            }
        }
        if levers.len() > MAX_EACH {
            return Err(place.error(levers[MAX_EACH].line, format!("more than {MAX_EACH} levers")));
        }
        Ok(levers)
    }

    fn lever_name(&self, name: &str, line: u32) -> Result<(), SpecError> {
        let place = &self.place;
        if !is_name(name) {
            return Err(place.error(
                line,
                format!("`{}` is no name for a lever: letters, digits and _, as a macro's", shown(name)),
            ));
        }
        let task = self.task;
        let taken = task.symbols.iter().any(|s| s == name)
            || task.tensor(name).is_some()
            || task.scalar(name).is_some()
            || RESERVED_SYMBOLS.contains(&name);
        if taken {
            return Err(
                place.error(line, format!("`{name}` cannot be a lever: task {} has that name already", task.name))
            );
        }
        if name.starts_with("WS_") || name.starts_with("__") || name == "defined" {
            return Err(
                place.error(line, format!("`{name}` cannot be a lever: names that begin with WS_ or __ are taken"))
            );
        }
        Ok(())
    }

    fn lever_value(&self, name: &str, item: &Item) -> Result<LeverValue, SpecError> {
        let place = &self.place;
        match &item.value {
            Value::Integer(n) if n.unsigned_abs() <= 1 << 53 => Ok(LeverValue::Int(*n)),
            Value::Text(text) if is_macro_text(text) => Ok(LeverValue::Text(text.clone())),
            Value::Bool(_) => Err(item.expected(place, name, "whole numbers; 0 and 1 for off and on")),
            _ => {
                Err(item.expected(place, name, "whole numbers of at most 2^53, or words of letters, digits, _ and ::"))
            }
        }
    }

    fn collect_symbols(&mut self, levers: &[Lever]) {
        let task = self.task;
        self.symbols.extend(task.symbols.iter().cloned());
        self.symbols.insert("SM_COUNT".to_string());
        self.trial.insert("SM_COUNT".to_string(), 132);
        if task.has_causal() {
            self.symbols.insert("causal".to_string());
            self.trial.insert("causal".to_string(), 0);
        }
        if let Some(shape) = task.shapes.first() {
            self.trial.extend(task.symbols_of(&shape.sizes));
        }
        for lever in levers {
            match lever.values.first() {
                Some(LeverValue::Int(n)) => {
                    self.symbols.insert(lever.name.clone());
                    self.trial.insert(lever.name.clone(), *n);
                }
                _ => {
                    self.words.insert(lever.name.clone());
                }
            }
        }
    }

    // ---- workspaces and tensor maps

    fn own_name(&self, name: &str, line: u32, what: &str, others: &[&str]) -> Result<(), SpecError> {
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

    fn workspaces(&self) -> Result<Vec<Workspace>, SpecError> {
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

    fn tensor_maps(&self, workspaces: &[Workspace]) -> Result<Vec<TensorMap>, SpecError> {
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
        let word = |key: &str, prefix: &str, known: &[&'static str]| -> Result<&'static str, SpecError> {
            let Some(item) = table.get(key) else { return Ok("NONE") };
            let text = item.text(place, key)?;
            let short = text.strip_prefix(prefix).unwrap_or(text);
            known
                .iter()
                .find(|k| k.eq_ignore_ascii_case(short))
                .copied()
                .ok_or_else(|| item.expected(place, key, &format!("one of {}", known.join(", "))))
        };
        Ok(TensorMap {
            name: name.to_string(),
            tensor: tensor.to_string(),
            dims: optional("dims")?,
            strides: optional("strides")?,
            element_strides: optional("element_strides")?,
            box_sizes,
            swizzle: word("swizzle", "CU_TENSOR_MAP_SWIZZLE_", &["NONE", "32B", "64B", "128B"])?,
            interleave: word("interleave", "CU_TENSOR_MAP_INTERLEAVE_", &["NONE", "16B", "32B"])?,
            fill: word("fill", "CU_TENSOR_MAP_FLOAT_OOB_FILL_", &["NONE", "NAN_REQUEST_ZERO_FMA"])?,
            l2_promotion: word(
                "l2_promotion",
                "CU_TENSOR_MAP_L2_PROMOTION_",
                &["NONE", "L2_64B", "L2_128B", "L2_256B"],
            )?,
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
    fn whole(&self, f: &Formula, name: &str, least: i64) -> Result<Option<i64>, SpecError> {
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

    // ---- launches

    fn launches(
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
        let names = Names { task: self.task, workspaces, tensor_maps, symbols: &self.symbols, words: &self.words };
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

/// A macro's text that cannot smuggle in anything else.
fn is_macro_text(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 64
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b':')
        && text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
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
