//! What there is to judge: the tasks and kernels that the binary carries, and the files that people name.

use crate::error::CliError;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use warpsmith_evolve::request::TaskText;
use warpsmith_spec::task::Reference;
use warpsmith_spec::{Candidate, SpecError, TaskSet, suggest};

/// A candidate's file is text that a person, or a model, wrote; larger ones are refused.
const MAX_SOURCE_BYTES: u64 = 4 << 20;

/// A candidate and where it came from.
#[derive(Debug, Clone)]
pub struct Entry {
    /// What was typed, or the built-in's name.
    pub typed: String,
    pub candidate: Candidate,
    /// The file's folder, in which its own includes may lie; none for a built-in.
    pub folder: Option<PathBuf>,
}

/// Tasks and built-in kernels.
pub struct Catalog {
    pub tasks: TaskSet,
    pub headers: Arc<BTreeMap<String, String>>,
    /// The texts of a task that was taken besides.
    pub own_task: Option<TaskText>,
}

impl Catalog {
    /// The tasks that the binary carries.
    pub fn new() -> Result<Self, CliError> {
        Ok(Catalog {
            tasks: warpsmith_builtin::tasks()?,
            headers: Arc::new(warpsmith_builtin::headers()),
            own_task: None,
        })
    }

    /// Takes a task's folder (or its task.toml) besides the built-in ones, and gives the task's name; a plain name is looked up.
    pub fn task_named(&mut self, text: &str) -> Result<String, CliError> {
        let path = Path::new(text);
        let file = if path.is_dir() { path.join("task.toml") } else { path.to_path_buf() };
        if self.tasks.get(text).is_some() || !file.is_file() {
            return Ok(self.tasks.find(text)?.name.clone());
        }
        let folder = file.parent().unwrap_or(Path::new(".")).to_path_buf();
        let folder_name = folder.canonicalize().ok().and_then(|f| Some(f.file_name()?.to_string_lossy().into_owned()));
        let name = folder_name.unwrap_or_else(|| text.to_string());
        let toml = read(&file)?;
        let script = |script: &str| fs::read_to_string(folder.join(script)).ok();
        let task = self.tasks.add(&name, &file.display().to_string(), &toml, &script)?;
        let script = match &task.reference {
            Reference::Script { file, source } => Some((file.clone(), source.clone())),
            Reference::Builtin(_) => None,
        };
        self.own_task = Some(TaskText { toml: String::from_utf8_lossy(&toml).into_owned(), script });
        Ok(name)
    }

    /// Takes a task again from the texts that a loop kept of it.
    pub fn take_task(&mut self, name: &str, text: &TaskText) -> Result<(), CliError> {
        let script = |wanted: &str| text.script.as_ref().filter(|(file, _)| file == wanted).map(|(_, s)| s.clone());
        self.tasks.add(name, "task.toml", text.toml.as_bytes(), &script)?;
        Ok(())
    }

    /// The built-in candidates of a task, in the order of their paths.
    pub fn builtins(&self, task: &str) -> Result<Vec<Entry>, CliError> {
        let entries = self.all_builtins()?;
        Ok(entries.into_iter().filter(|e| e.candidate.task == task).collect())
    }

    pub fn all_builtins(&self) -> Result<Vec<Entry>, CliError> {
        Ok(warpsmith_builtin::kernels(&self.tasks)?.into_iter().map(builtin).collect())
    }

    /// A built-in fault kernel, by its stem.
    pub fn fault(&self, stem: &str) -> Result<Option<Entry>, CliError> {
        let path = format!("tests/faults/{stem}.cu");
        let found = warpsmith_builtin::faults(&self.tasks)?.into_iter().find(|c| c.name == path);
        Ok(found.map(builtin))
    }

    /// What a person typed: a file, else a built-in's name.
    pub fn find(&self, typed: &str) -> Result<Entry, CliError> {
        let path = Path::new(typed);
        if path.is_file() {
            let bytes = read(path)?;
            let candidate = Candidate::parse(typed, &bytes, &self.tasks).map_err(|e| hinted(e, typed))?;
            let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_path_buf();
            return Ok(Entry { typed: typed.to_string(), candidate, folder: Some(folder) });
        }
        if path.is_dir() {
            return Err(CliError::usage("unknown-name", format!("{typed} is a folder, not a candidate's file"))
                .hint("name the .cu files in it"));
        }
        let stem = typed.strip_suffix(".cu").unwrap_or(typed);
        let all = self.all_builtins()?;
        if let Some(entry) = all.iter().find(|e| e.typed == stem || e.candidate.name == typed) {
            return Ok(entry.clone());
        }
        let near = suggest::did_you_mean(stem, all.iter().map(|e| e.typed.as_str()));
        Err(CliError::usage("unknown-name", format!("no file and no built-in kernel is called {typed:?}{near}"))
            .hint("`warpsmith list` shows the built-in kernels, `warpsmith new kernel NAME` makes a file"))
    }
}

impl Catalog {
    /// A candidate from its text alone: what a loop kept of a file that is gone.
    pub fn entry_of(&self, name: &str, text: &str) -> Result<Entry, CliError> {
        let candidate = Candidate::parse(name, text.as_bytes(), &self.tasks).map_err(|e| hinted(e, name))?;
        Ok(Entry { typed: name.to_string(), candidate, folder: None })
    }
}

fn builtin(candidate: Candidate) -> Entry {
    Entry { typed: candidate.stem().to_string(), candidate, folder: None }
}

fn hinted(mut error: SpecError, typed: &str) -> CliError {
    if error.file.is_none() {
        error.file = Some(typed.to_string());
    }
    error.into()
}

fn read(path: &Path) -> Result<Vec<u8>, CliError> {
    let unreadable =
        |e: std::io::Error| CliError::usage("unknown-name", format!("cannot read {}: {e}", path.display())).file(path);
    let size = fs::metadata(path).map_err(unreadable)?.len();
    if size > MAX_SOURCE_BYTES {
        let message = format!("{} has {size} bytes; a candidate has at most {MAX_SOURCE_BYTES}", path.display());
        return Err(CliError::usage("candidate-syntax", message).file(path));
    }
    fs::read(path).map_err(unreadable)
}
