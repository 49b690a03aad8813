//! A candidate's front matter to [`Candidate`]. Every error has the file's line and says what was expected.

use super::front_matter;
use super::*;
use crate::document::{self, Place, Table};
use crate::error::{SpecCode, SpecError, shown};
use crate::formula::{Number, Symbols};
use crate::suggest::{did_you_mean, listed};
use crate::target;
use crate::task::set::TaskSet;
use crate::task::{Base, Task, budget, formula};
use std::collections::BTreeSet;

const KEYS: [&str; 18] = [
    "task",
    "targets",
    "constraints",
    "shapes",
    "formats",
    "scales",
    "layouts",
    "outs",
    "defines",
    "precision",
    "levers",
    "config",
    "budget",
    "compile",
    "workspace",
    "tensor_maps",
    "structs",
    "launch",
];
const MAX_CONSTRAINTS: usize = 256;

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

pub(super) struct Parser<'a> {
    pub(super) place: Place,
    pub(super) root: &'a Table,
    pub(super) task: &'a Task,
    /// Symbols of formulas.
    pub(super) symbols: BTreeSet<String>,
    /// Levers that are words.
    pub(super) words: BTreeSet<String>,
    /// Some value for each symbol: a formula that is of the wrong type with these is so with all.
    pub(super) trial: Symbols,
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
            shapes: self.shapes()?,
            formats: self.axis("formats", &self.task.formats)?,
            scales: self.axis("scales", &self.task.scales)?,
            layouts: self.axis("layouts", &self.task.layouts)?,
            outs: self.axis("outs", &self.task.outs)?,
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

    /// Shapes that are judged if none are asked for; left out, the task's.
    fn shapes(&self) -> Result<Vec<String>, SpecError> {
        let place = &self.place;
        let Some(item) = self.root.get("shapes") else { return Ok(Vec::new()) };
        let mut found: Vec<String> = Vec::new();
        for (name, line) in item.texts(place, "shapes")? {
            self.task.shape(name).map_err(|e| e.at(&place.file, line))?;
            if found.iter().any(|n| n == name) {
                return Err(place.error(line, format!("`shapes` has {} twice", shown(name))));
            }
            found.push(name.to_string());
        }
        Ok(found)
    }

    fn constraints(&self) -> Result<Vec<Formula>, SpecError> {
        let place = &self.place;
        let Some(item) = self.root.get("constraints") else { return Ok(Vec::new()) };
        let items = item.array(place, "constraints")?;
        if items.len() > MAX_CONSTRAINTS {
            return Err(place.error(item.line, format!("`constraints` has more than {MAX_CONSTRAINTS} entries")));
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
                "layout" if self.task.layouts.len() > 1 => Define::Layout,
                "out" if !self.task.outs.is_empty() => Define::Out,
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
        let place = &self.place;
        let asked: Precision =
            item.text(place, "precision")?.parse().map_err(|e: SpecError| e.at(&place.file, item.line))?;
        match self.task.tolerance.base {
            Base::HonestAttention { p: Precision::F16, .. } if asked == Precision::E4m3 => Err(place.error(
                item.line,
                format!(
                    "`precision` asks for a stricter limit; {asked} is laxer than the f16 of task {}",
                    self.task.name
                ),
            )),
            Base::HonestAttention { .. } => Ok(Some(asked)),
            Base::Given { .. } => Err(place.error(
                item.line,
                format!("task {} gives its limits as figures, so there is no `precision`", self.task.name),
            )),
        }
    }
}
