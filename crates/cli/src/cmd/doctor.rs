//! `warpsmith doctor`: what works on this machine, what does not, and the next step for each; with `--on`, on the other one too.

use crate::args::Common;
use crate::error::CliError;
use crate::output::out;
use crate::{on, paths, toolkits};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, Read};
use std::process::Command;
use warpsmith_compile::Layer;
use warpsmith_cuda::worker::{Remote, WorkerError};

/// One thing that was looked at.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Item {
    pub name: String,
    pub works: bool,
    pub detail: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

impl Item {
    pub(super) fn works(name: &str, detail: impl Into<String>) -> Item {
        Item { name: name.into(), works: true, detail: detail.into(), next: None }
    }

    pub(super) fn missing(name: &str, detail: impl Into<String>, next: impl Into<String>) -> Item {
        Item { name: name.into(), works: false, detail: detail.into(), next: Some(next.into()) }
    }
}

pub fn doctor(common: &Common, measure: bool) -> Result<i32, CliError> {
    if measure {
        return super::doctor_gpu::ceilings(common);
    }
    let mut items = vec![machine(), layer(), toolkit(common), cache(), fetcher(), numpy()];
    items.extend(super::doctor_gpu::items(common));
    if let Some(remote) = on::remote(common)? {
        items.extend(there(&remote));
    }
    if common.json {
        out(&format!("{}\n", serde_json::json!({ "doctor": items })));
        return Ok(0);
    }
    let mut text = String::new();
    for item in &items {
        let mark = if item.works { "works  " } else { "missing" };
        text.push_str(&format!("{mark}  {:20} {}\n", item.name, item.detail));
        if let Some(next) = &item.next {
            text.push_str(&format!("         {:20} next: {next}\n", ""));
        }
    }
    out(&text);
    Ok(0)
}

/// What our own program says of the other machine, once it is there.
fn there(remote: &Remote) -> Vec<Item> {
    /// Bytes of its answer at most.
    const MAX_BYTES: u64 = 1 << 20;
    #[derive(Deserialize)]
    struct Answer {
        doctor: Vec<Item>,
    }
    let launcher = |works: bool, detail: String, next: Option<String>| Item {
        name: "there: launcher".into(),
        works,
        detail,
        next,
    };
    let failed = |e: &WorkerError| vec![launcher(false, e.to_string(), Some(e.hint().to_string()))];
    let mut connection = match remote.open(&["doctor", "--json"]) {
        Ok(connection) => connection,
        Err(e) => return failed(&e),
    };
    drop(connection.take_input());
    let mut text = String::new();
    if let Some(output) = connection.take_output() {
        for line in output.take(MAX_BYTES).lines().map_while(Result::ok) {
            if connection.ended(&line).is_some() {
                break;
            }
            text.push_str(&line);
        }
    }
    let Ok(answer) = serde_json::from_str::<Answer>(text.trim()) else {
        return failed(&WorkerError::Lost { how: "no answer".into(), said: connection.said() });
    };
    let held = remote.held();
    let platform = held.platform.map_or_else(String::new, |p| p.to_string());
    let detail = format!("`{}` leads to {platform} in {:.1} s", remote.launcher().text(), held.seconds);
    let items = answer.doctor.into_iter().map(|i| Item { name: format!("there: {}", i.name), ..i });
    [launcher(true, detail, None)].into_iter().chain(items).collect()
}

fn machine() -> Item {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let detail = format!("{} {}, {cores} cores", std::env::consts::OS, std::env::consts::ARCH);
    Item { name: "PTX machine".into(), works: true, detail, next: None }
}

fn layer() -> Item {
    match Layer::from_bytes(warpsmith_builtin::layer()) {
        Ok(layer) => Item {
            name: "artifacts".into(),
            works: !layer.is_empty(),
            detail: format!("{} built in, made by {}", layer.len(), layer.toolkit_id()),
            next: None,
        },
        Err(e) => Item {
            name: "artifacts".into(),
            works: false,
            detail: format!("the built-in layer is damaged: {e}"),
            next: None,
        },
    }
}

fn toolkit(common: &Common) -> Item {
    let found = toolkits::search(common);
    match &found.chosen {
        Some(toolkit) => {
            Item { name: "CUDA compiler".into(), works: true, detail: toolkits::describe(toolkit), next: None }
        }
        None => Item {
            name: "CUDA compiler".into(),
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
    Item { name: "cache".into(), works, detail: folder.display().to_string(), next }
}

fn fetcher() -> Item {
    let found = [("uv", vec!["--version"]), ("python3", vec!["-m", "pip", "--version"])]
        .into_iter()
        .find_map(|(program, arguments)| first_line(program, &arguments));
    Item {
        name: "uv or pip".into(),
        works: found.is_some(),
        next: found.is_none().then(|| "install uv or Python's pip, by which the compiler is fetched".to_string()),
        detail: found.unwrap_or_else(|| "neither found".into()),
    }
}

fn numpy() -> Item {
    let found = first_line("python3", &["-c", "import numpy; print('NumPy', numpy.__version__)"]);
    Item {
        name: "NumPy".into(),
        works: found.is_some(),
        next: found
            .is_none()
            .then(|| "`python3 -m pip install numpy`, for tasks whose reference is reference.py".to_string()),
        detail: found.unwrap_or_else(|| "python3 with NumPy not found".into()),
    }
}

/// The first line that a program prints, if it ends well.
pub(super) fn first_line(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok().filter(|o| o.status.success())?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().next().map(|l| l.trim().to_string()).filter(|l| !l.is_empty())
}
