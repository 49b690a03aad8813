//! `warpsmith list`: tasks with their shapes, kernels with their levers, targets, distributions.

use crate::args::Common;
use crate::catalog::{Catalog, Entry};
use crate::error::CliError;
use crate::output::out;
use serde_json::{Value, json};
use warpsmith_spec::target::TARGETS;
use warpsmith_spec::{Distribution, Task};

pub fn list(common: &Common) -> Result<i32, CliError> {
    let catalog = Catalog::new()?;
    let kernels = catalog.all_builtins()?;
    if common.json {
        let tasks: Vec<_> = catalog.tasks.iter().map(task_json).collect();
        let kernels: Vec<_> = kernels.iter().map(kernel_json).collect();
        let targets: Vec<_> = TARGETS.iter().map(|t| t.name).collect();
        out(&format!(
            "{}\n",
            json!({ "tasks": tasks, "kernels": kernels, "targets": targets, "distributions": words(Distribution::ALL) })
        ));
        return Ok(0);
    }
    let mut text = String::from("tasks\n");
    catalog.tasks.iter().for_each(|t| text.push_str(&task_text(t)));
    text.push_str("\nkernels\n");
    kernels.iter().for_each(|k| text.push_str(&kernel_text(k)));
    let targets: Vec<_> = TARGETS.iter().map(|t| t.name).collect();
    text.push_str(&format!("\ntargets        {}\n", targets.join(", ")));
    text.push_str(&format!("distributions  {}\n", words(Distribution::ALL).join(", ")));
    out(&text);
    Ok(0)
}

fn words<T: ToString>(all: &[T]) -> Vec<String> {
    all.iter().map(ToString::to_string).collect()
}

fn task_text(task: &Task) -> String {
    let mut text = format!("  {}: {}\n", task.name, task.title);
    for shape in &task.shapes {
        let sizes: Vec<_> = shape.sizes.iter().map(ToString::to_string).collect();
        let default = if task.default_shapes.contains(&shape.name) { "  (default)" } else { "" };
        text.push_str(&format!("    {:10} {} = {}{default}\n", shape.name, task.symbols.join(" x "), sizes.join("x")));
    }
    let (formats, scales) = (words(&task.formats).join(", "), words(&task.scales).join(", "));
    text.push_str(&format!("    formats {formats}; scales {scales}; masks {}\n", words(&task.masks).join(", ")));
    if task.layouts.len() > 1 {
        text.push_str(&format!("    layouts {}\n", words(&task.layouts).join(", ")));
    }
    if !task.outs.is_empty() {
        let optional: Vec<String> =
            task.outputs().filter(|t| t.optional).map(|t| format!("; optional {}", t.name)).collect();
        text.push_str(&format!("    outputs in {}{}\n", words(&task.outs).join(", "), optional.concat()));
    }
    text
}

fn task_json(task: &Task) -> Value {
    let shapes: serde_json::Map<_, _> = task.shapes.iter().map(|s| (s.name.clone(), json!(s.sizes))).collect();
    json!({
        "name": task.name, "title": task.title, "symbols": task.symbols, "shapes": shapes, "default_shapes": task.default_shapes,
        "formats": words(&task.formats), "scales": words(&task.scales), "masks": words(&task.masks),
        "distributions": words(&task.distributions), "layouts": words(&task.layouts), "outs": words(&task.outs),
    })
}

fn kernel_text(entry: &Entry) -> String {
    let c = &entry.candidate;
    let mut text = format!("  {:14} {} for {}", entry.typed, c.task, c.targets.join(", "));
    for lever in &c.levers {
        text.push_str(&format!("; {} in {}", lever.name, words(&lever.values).join(" ")));
    }
    let configs: Vec<_> = c.configs.iter().map(|c| c.name.as_str()).collect();
    if !configs.is_empty() {
        text.push_str(&format!("; configurations {}", configs.join(", ")));
    }
    text.push('\n');
    text
}

fn kernel_json(entry: &Entry) -> Value {
    let c = &entry.candidate;
    let levers: serde_json::Map<_, _> = c.levers.iter().map(|l| (l.name.clone(), json!(words(&l.values)))).collect();
    let configs: Vec<_> = c.configs.iter().map(|c| c.name.as_str()).collect();
    json!({
        "name": entry.typed, "path": c.name, "task": c.task, "targets": c.targets, "levers": levers, "configs": configs,
        "formats": words(&c.formats), "scales": words(&c.scales), "layouts": words(&c.layouts), "outs": words(&c.outs),
    })
}
