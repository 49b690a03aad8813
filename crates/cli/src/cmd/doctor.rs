//! `warpsmith doctor`: what works on this machine, what does not, and the next step for each.

use crate::args::Common;
use crate::error::CliError;
use crate::output::out;
use crate::{paths, toolkits};
use serde::Serialize;
use std::process::Command;
use warpsmith_compile::Layer;

/// One thing that was looked at.
#[derive(Debug, Serialize)]
struct Item {
    name: &'static str,
    works: bool,
    detail: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

pub fn doctor(common: &Common) -> Result<i32, CliError> {
    let items = [machine(), layer(), toolkit(common), cache(), fetcher(), numpy(), gpu()];
    if common.json {
        out(&format!("{}\n", serde_json::json!({ "doctor": items })));
        return Ok(0);
    }
    let mut text = String::new();
    for item in &items {
        let mark = if item.works { "works  " } else { "missing" };
        text.push_str(&format!("{mark}  {:13} {}\n", item.name, item.detail));
        if let Some(next) = &item.next {
            text.push_str(&format!("         {:13} next: {next}\n", ""));
        }
    }
    out(&text);
    Ok(0)
}

fn machine() -> Item {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let detail = format!("{} {}, {cores} cores", std::env::consts::OS, std::env::consts::ARCH);
    Item { name: "PTX machine", works: true, detail, next: None }
}

fn layer() -> Item {
    match Layer::from_bytes(warpsmith_builtin::layer()) {
        Ok(layer) => Item {
            name: "artifacts",
            works: !layer.is_empty(),
            detail: format!("{} built in, made by {}", layer.len(), layer.toolkit_id()),
            next: None,
        },
        Err(e) => {
            Item { name: "artifacts", works: false, detail: format!("the built-in layer is damaged: {e}"), next: None }
        }
    }
}

fn toolkit(common: &Common) -> Item {
    let found = toolkits::search(common);
    match &found.chosen {
        Some(toolkit) => Item { name: "CUDA compiler", works: true, detail: toolkits::describe(toolkit), next: None },
        None => Item {
            name: "CUDA compiler",
            works: false,
            detail: "none found; built-in kernels need none".into(),
            next: Some(
                "`warpsmith toolkit --fetch` gets one; so does the first `warpsmith check` of your own kernel".into(),
            ),
        },
    }
}

fn cache() -> Item {
    let folder = paths::cache_dir();
    let works = std::fs::create_dir_all(&folder).is_ok();
    let next = (!works).then(|| "make the folder, or point XDG_CACHE_HOME to one that can be written".to_string());
    Item { name: "cache", works, detail: folder.display().to_string(), next }
}

fn fetcher() -> Item {
    let found = [("uv", vec!["--version"]), ("python3", vec!["-m", "pip", "--version"])]
        .into_iter()
        .find_map(|(program, arguments)| first_line(program, &arguments));
    Item {
        name: "uv or pip",
        works: found.is_some(),
        next: found.is_none().then(|| "install uv or Python's pip, by which the compiler is fetched".to_string()),
        detail: found.unwrap_or_else(|| "neither found".into()),
    }
}

fn numpy() -> Item {
    let found = first_line("python3", &["-c", "import numpy; print('NumPy', numpy.__version__)"]);
    Item {
        name: "NumPy",
        works: found.is_some(),
        next: found
            .is_none()
            .then(|| "`python3 -m pip install numpy`, for tasks whose reference is reference.py".to_string()),
        detail: found.unwrap_or_else(|| "python3 with NumPy not found".into()),
    }
}

fn gpu() -> Item {
    let found = first_line("nvidia-smi", &["--query-gpu=name,driver_version", "--format=csv,noheader"]);
    Item {
        name: "GPU",
        works: found.is_some(),
        detail: found.unwrap_or_else(|| "no NVIDIA driver answers; gates 1 and 2 need none".into()),
        next: None,
    }
}

fn first_line(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok().filter(|o| o.status.success())?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().next().map(|l| l.trim().to_string()).filter(|l| !l.is_empty())
}
