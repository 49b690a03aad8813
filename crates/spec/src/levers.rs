//! Levers: compile-time numbers that people and evolution choose, one value each; configurations are named tuples of them.
//!
//! It knows nothing of what a lever does. A setting gives every lever of a candidate its value.

use crate::candidate::Candidate;
use crate::error::{SpecCode, SpecError, shown};
use crate::formula::Symbols;
use crate::suggest::{did_you_mean, listed};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A lever's value: a whole number, or a word that is a macro's text.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
pub enum LeverValue {
    Int(i64),
    Text(String),
}

impl LeverValue {
    pub fn as_int(&self) -> Option<i64> {
        match self {
            LeverValue::Int(n) => Some(*n),
            LeverValue::Text(_) => None,
        }
    }
}

impl From<i64> for LeverValue {
    fn from(n: i64) -> LeverValue {
        LeverValue::Int(n)
    }
}

impl std::fmt::Display for LeverValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LeverValue::Int(n) => write!(f, "{n}"),
            LeverValue::Text(text) => f.write_str(text),
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Lever {
    pub name: String,
    /// The first is the default. Values that only configurations use stand last.
    pub values: Vec<LeverValue>,
    /// Whether `[levers]` lists it; else only configurations set it.
    pub listed: bool,
    pub line: u32,
}

/// One `[[config]]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    pub name: String,
    pub set: BTreeMap<String, LeverValue>,
    pub line: u32,
}

/// A value for each lever.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Setting {
    /// The configuration that its tuple is.
    pub config: Option<String>,
    pub levers: BTreeMap<String, LeverValue>,
}

impl Setting {
    /// The levers that are numbers, as symbols of formulas.
    pub fn symbols(&self) -> Symbols {
        self.levers.iter().filter_map(|(k, v)| Some((k.clone(), v.as_int()?))).collect()
    }
}

/// What was asked on the command line.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LeverRequest {
    /// `--set NAME=VALUE`, each as typed.
    pub set: Vec<String>,
    /// `--config NAME`
    pub config: Option<String>,
    /// `--sweep`
    pub sweep: bool,
}

/// Settings that one sweep can have.
pub const MAX_SETTINGS: usize = 4096;

impl Candidate {
    /// The default: the first value of each lever; where there are configurations, the first of them over that.
    pub fn default_setting(&self) -> Setting {
        self.with_config(self.configs.first())
    }

    /// The settings asked for, in order: one, or with `sweep` all configurations times all values of the levers that no
    /// configuration names (without configurations, the whole cross product), less what the constraints on levers exclude.
    /// An unknown lever, value or configuration is an error that lists those there are.
    pub fn settings(&self, request: &LeverRequest) -> Result<Vec<Setting>, SpecError> {
        let config = request.config.as_deref().map(|name| self.find_config(name)).transpose()?;
        let pinned = self.pinned(&request.set)?;
        if !request.sweep {
            let mut setting = self.with_config(config.or(self.configs.first()));
            setting.levers.extend(pinned);
            self.name_config(&mut setting, request.config.as_deref());
            return Ok(vec![setting]);
        }
        let starts: Vec<Setting> = match (config, self.configs.is_empty()) {
            (Some(config), _) => vec![self.with_config(Some(config))],
            (None, true) => vec![self.with_config(None)],
            (None, false) => self.configs.iter().map(|c| self.with_config(Some(c))).collect(),
        };
        let in_configs = |name: &str| self.configs.iter().any(|c| c.set.contains_key(name));
        let free: Vec<&Lever> =
            self.levers.iter().filter(|l| !in_configs(&l.name) && !pinned.contains_key(&l.name)).collect();
        let count = free.iter().fold(starts.len(), |n, l| n.saturating_mul(l.values.len().max(1)));
        if count > MAX_SETTINGS {
            return Err(SpecError::new(
                SpecCode::ConstraintNotMet,
                format!("the sweep of {} has {count} combinations of levers; the limit is {MAX_SETTINGS}", self.name),
            )
            .in_file(&self.name)
            .hint("choose some with --set, or name tuples with [[config]]"));
        }
        let mut settings: Vec<Setting> = Vec::new();
        for start in starts {
            let mut found = vec![start];
            for lever in &free {
                found = found.iter().flat_map(|s| lever.values.iter().map(|v| changed(s, &lever.name, v))).collect();
            }
            for mut setting in found {
                setting.levers.extend(pinned.clone());
                self.name_config(&mut setting, None);
                if self.levers_fit(&setting) && !settings.contains(&setting) {
                    settings.push(setting);
                }
            }
        }
        if settings.is_empty() {
            let constraints: Vec<String> = self.constraints.iter().map(|c| format!("`{}`", c.text())).collect();
            return Err(SpecError::new(
                SpecCode::ConstraintNotMet,
                format!(
                    "no combination of levers satisfies the constraints of {}: {}",
                    self.name,
                    constraints.join(", ")
                ),
            )
            .in_file(&self.name));
        }
        Ok(settings)
    }

    /// Checks names and values of a change such as evolution proposes, and makes it.
    pub fn with_lever(&self, setting: &Setting, name: &str, value: &LeverValue) -> Result<Setting, SpecError> {
        self.check_value(name, value)?;
        let mut setting = changed(setting, name, value);
        self.name_config(&mut setting, None);
        Ok(setting)
    }

    /// Whether the constraints that name levers only (and constants) hold.
    pub fn levers_fit(&self, setting: &Setting) -> bool {
        let symbols = setting.symbols();
        self.constraints
            .iter()
            .filter(|c| c.symbols().iter().all(|s| self.lever(s).is_some()))
            .all(|c| c.holds(&symbols).unwrap_or(false))
    }

    fn with_config(&self, config: Option<&Config>) -> Setting {
        let mut levers: BTreeMap<String, LeverValue> =
            self.levers.iter().filter_map(|l| Some((l.name.clone(), l.values.first()?.clone()))).collect();
        if let Some(config) = config {
            levers.extend(config.set.clone());
        }
        Setting { config: config.map(|c| c.name.clone()), levers }
    }

    /// A setting bears a configuration's name exactly if it has its values; `preferred` breaks ties.
    fn name_config(&self, setting: &mut Setting, preferred: Option<&str>) {
        let is = |c: &&Config| c.set.iter().all(|(k, v)| setting.levers.get(k) == Some(v));
        let mut fitting: Vec<&Config> = self.configs.iter().filter(is).collect();
        let preferred = preferred.or(setting.config.as_deref());
        fitting.sort_by_key(|c| Some(c.name.as_str()) != preferred);
        setting.config = fitting.first().map(|c| c.name.clone());
    }

    fn find_config(&self, name: &str) -> Result<&Config, SpecError> {
        self.configs.iter().find(|c| c.name == name).ok_or_else(|| {
            let names = || self.configs.iter().map(|c| c.name.as_str());
            SpecError::new(
                SpecCode::UnknownName,
                format!("{} has no configuration `{}`{}", self.name, shown(name), did_you_mean(name, names())),
            )
            .in_file(&self.name)
            .hint(format!("its configurations: {}", listed(names())))
        })
    }

    fn pinned(&self, set: &[String]) -> Result<BTreeMap<String, LeverValue>, SpecError> {
        let mut pinned = BTreeMap::new();
        for text in set {
            let wrong = || {
                SpecError::new(SpecCode::UnknownName, format!("`--set {}` is not NAME=VALUE", shown(text)))
                    .hint("for example --set BLOCK_M=64")
            };
            let (name, value) = text.split_once('=').ok_or_else(wrong)?;
            let (name, value) = (name.trim(), value.trim());
            if name.is_empty() || value.is_empty() {
                return Err(wrong());
            }
            let value = match value.parse::<i64>() {
                Ok(n) => LeverValue::Int(n),
                Err(_) => LeverValue::Text(value.to_string()),
            };
            self.check_value(name, &value)?;
            if let Some(other) = pinned.insert(name.to_string(), value.clone())
                && other != value
            {
                return Err(SpecError::new(
                    SpecCode::UnknownName,
                    format!(
                        "`--set {name}` is there twice, with {other} and {value}; a setting has one value for each lever"
                    ),
                ));
            }
        }
        Ok(pinned)
    }

    fn check_value(&self, name: &str, value: &LeverValue) -> Result<(), SpecError> {
        let Some(lever) = self.lever(name) else {
            let names = || self.levers.iter().map(|l| l.name.as_str());
            return Err(SpecError::new(
                SpecCode::UnknownName,
                format!("{} has no lever `{}`{}", self.name, shown(name), did_you_mean(name, names())),
            )
            .in_file(&self.name)
            .hint(format!("its levers: {}", listed(names()))));
        };
        if lever.values.contains(value) {
            return Ok(());
        }
        let values: Vec<String> = lever.values.iter().map(|v| v.to_string()).collect();
        Err(SpecError::new(
            SpecCode::UnknownName,
            format!("lever `{name}` of {} cannot be `{}`", self.name, shown(&value.to_string())),
        )
        .in_file(&self.name)
        .hint(format!("its values: {}", values.join(", "))))
    }
}

fn changed(setting: &Setting, name: &str, value: &LeverValue) -> Setting {
    let mut setting = setting.clone();
    setting.levers.insert(name.to_string(), value.clone());
    setting
}
