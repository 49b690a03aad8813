//! `[levers]` and `[[config]]` of a front matter, and the symbols that formulas then know.

use super::parse::Parser;
use super::*;
use crate::document::{Item, Value};
use crate::error::{SpecError, shown};
use crate::levers::LeverValue;
use crate::task::is_name;
use std::collections::BTreeMap;

/// Values of one lever, and configurations.
const MAX_VALUES: usize = 256;
const MAX_LEVERS: usize = 64;

impl Parser<'_> {
    pub(super) fn configs(&self) -> Result<Vec<Config>, SpecError> {
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
            let entries = &set_item.table(place, "set")?.entries;
            self.few_levers(entries.len(), set_item.line)?;
            let mut set = BTreeMap::new();
            for (lever, line, value) in entries {
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

    pub(super) fn levers(&self, configs: &[Config]) -> Result<Vec<Lever>, SpecError> {
        let place = &self.place;
        let mut levers: Vec<Lever> = Vec::new();
        if let Some(item) = self.root.get("levers") {
            let entries = &item.table(place, "levers")?.entries;
            self.few_levers(entries.len(), item.line)?;
            for (name, line, item) in entries {
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
        self.few_levers(levers.len(), levers.last().map_or(1, |l| l.line))?;
        Ok(levers)
    }

    fn few_levers(&self, count: usize, line: u32) -> Result<(), SpecError> {
        if count > MAX_LEVERS {
            return Err(self
                .place
                .error(line, format!("there are {count} levers; a candidate has at most {MAX_LEVERS}")));
        }
        Ok(())
    }

    fn lever_name(&self, name: &str, line: u32) -> Result<(), SpecError> {
        let place = &self.place;
        if !is_name(name) {
            return Err(place.error(
                line,
                format!("`{}` is no name for a lever: letters, digits and _, as a macro's", shown(name)),
            ));
        }
        if crate::words::is_cpp_word(name) || !crate::formula::is_free(name) {
            return Err(
                place.error(line, format!("`{name}` cannot be a lever: C++, CUDA or formulas have that word already"))
            );
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

    pub(super) fn collect_symbols(&mut self, levers: &[Lever]) {
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
}

/// A macro's text that cannot smuggle in anything else.
fn is_macro_text(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 64
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b':')
        && text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
}
