//! The tasks that candidates can name. Whoever reads files or embeds them fills it; here are only texts.

use super::Task;
use crate::error::{SpecCode, SpecError, shown};
use crate::suggest::{did_you_mean, listed};
use std::collections::BTreeMap;

#[derive(Debug, Clone, Default)]
pub struct TaskSet {
    tasks: BTreeMap<String, Task>,
}

impl TaskSet {
    pub fn new() -> TaskSet {
        TaskSet::default()
    }

    /// Parses a task and adds it; a task of the same name is replaced. `name` is its folder's name, `file` what messages call
    /// its task.toml, `script` reads a file beside it (for `reference = "reference.py"`).
    pub fn add(
        &mut self,
        name: &str,
        file: &str,
        toml: &[u8],
        script: &dyn Fn(&str) -> Option<String>,
    ) -> Result<&Task, SpecError> {
        let task = Task::parse(name, file, toml, script)?;
        self.tasks.insert(name.to_string(), task);
        Ok(&self.tasks[name])
    }

    pub fn insert(&mut self, task: Task) {
        self.tasks.insert(task.name.clone(), task);
    }

    pub fn get(&self, name: &str) -> Option<&Task> {
        self.tasks.get(name)
    }

    /// By name.
    pub fn iter(&self) -> impl Iterator<Item = &Task> {
        self.tasks.values()
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tasks.keys().map(String::as_str)
    }

    /// The task of that name, or an error that lists those there are.
    pub fn find(&self, name: &str) -> Result<&Task, SpecError> {
        self.get(name).ok_or_else(|| {
            SpecError::new(
                SpecCode::UnknownName,
                format!("unknown task `{}`{}", shown(name), did_you_mean(name, self.names())),
            )
            .hint(format!("tasks there are: {}", listed(self.names())))
        })
    }
}
