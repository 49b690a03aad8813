//! `warpsmith new`: a starting point that passes its gates as it stands. Never overwrites.

use crate::args::{Common, NewCommand};
use crate::error::CliError;
use crate::output::out;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use warpsmith_spec::templates;

pub fn new(common: &Common, what: &NewCommand) -> Result<i32, CliError> {
    match what {
        NewCommand::Kernel { name, task, from: None } => {
            let text = templates::kernel(name, task)?;
            let file = format!("{name}.cu");
            create(Path::new(&file), &text)?;
            told(common, &file, &format!("warpsmith check {file}"))
        }
        NewCommand::Kernel { name, from: Some(source), .. } => {
            let bytes = fs::read(source).map_err(|e| cannot_read(source, &e))?;
            let text = templates::kernel_from(name, &source.display().to_string(), &bytes)?;
            let file = format!("{name}.cu");
            create(Path::new(&file), &text)?;
            told(common, &file, &format!("warpsmith check {file}"))
        }
        NewCommand::Task { name } => {
            let files = templates::task(name)?;
            let folder = Path::new(name);
            if folder.exists() {
                return Err(exists(folder));
            }
            for (relative, text) in &files {
                let path = folder.join(relative);
                let parent = path.parent().unwrap_or(folder);
                fs::create_dir_all(parent).map_err(|e| cannot_write(parent, &e))?;
                create(&path, text)?;
            }
            told(
                common,
                name,
                &format!(
                    "warpsmith check KERNEL.cu --task {name}`, and name the task in KERNEL.cu: `task = \"{name}\""
                ),
            )
        }
    }
}

fn told(common: &Common, made: &str, next: &str) -> Result<i32, CliError> {
    if common.json {
        out(&format!("{}\n", serde_json::json!({ "made": made, "next": next })));
    } else {
        out(&format!("made {made}\nnext: `{next}`\n"));
    }
    Ok(0)
}

fn create(path: &Path, text: &str) -> Result<(), CliError> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(path).map_err(|e| match e.kind() {
        io::ErrorKind::AlreadyExists => exists(path),
        _ => cannot_write(path, &e),
    })?;
    file.write_all(text.as_bytes()).map_err(|e| cannot_write(path, &e))
}

fn exists(path: &Path) -> CliError {
    CliError::usage("run-exists", format!("{} exists already and is left as it is", path.display()))
        .hint("choose another name")
}

fn cannot_write(path: &Path, e: &io::Error) -> CliError {
    CliError::environment("output-not-writable", format!("cannot write {}: {e}", path.display()))
        .hint("go to a folder that you may write to")
}

fn cannot_read(path: &Path, e: &io::Error) -> CliError {
    CliError::usage("unknown-name", format!("cannot read {}: {e}", path.display())).file(path)
}
