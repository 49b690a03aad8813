//! Starting points as text: a kernel, a task, and front matter for a CUDA file that has none. Whoever calls writes the files.
//!
//! The kernel passes its gates as it stands. What is proposed for a file of one's own is a proposal: comments mark what was guessed.

mod propose;
mod signature;

use crate::error::{SpecCode, SpecError, shown};
use crate::task::is_name;
use crate::words::is_cpp_word;

pub use propose::kernel_from;

const KERNEL: &str = include_str!("../../templates/kernel.cu");
const ATTENTION_KERNEL: &str = include_str!("../../templates/attention_kernel.cu");
const TASK: &str = include_str!("../../templates/task.toml");
const REFERENCE: &str = include_str!("../../templates/reference.py");
const TASK_KERNEL: &str = include_str!("../../templates/task_kernel.cu");

/// Names that the kernel template uses itself.
const OWN_WORDS: [&str; 10] =
    ["warp_max", "warp_sum", "kHeadDim", "kTile", "kAll", "kLog2e", "kMasked", "WARPS", "i64", "dec"];

/// `new kernel NAME`: a small, right FP8 attention kernel for `fp8_sdpa` or `fp8_attention` with its front matter.
pub fn kernel(name: &str, task: &str) -> Result<String, SpecError> {
    checked(name, "kernel")?;
    let template = match task {
        "fp8_sdpa" => KERNEL,
        "fp8_attention" => ATTENTION_KERNEL,
        _ => {
            return Err(SpecError::new(
                SpecCode::UnknownName,
                format!("there is no kernel to begin with for a task `{}`", shown(task)),
            )
            .hint("for fp8_sdpa and fp8_attention there is; `warpsmith new task` writes a task with its example"));
        }
    };
    Ok(template.replace("@NAME@", name))
}

/// `new task NAME`: the files of a task's folder, as (path in it, text).
pub fn task(name: &str) -> Result<Vec<(String, String)>, SpecError> {
    checked(name, "task")?;
    let text = |template: &str| template.replace("@NAME@", name);
    Ok(vec![
        ("task.toml".to_string(), text(TASK)),
        ("reference.py".to_string(), text(REFERENCE)),
        (format!("examples/{name}.cu"), text(TASK_KERNEL)),
    ])
}

fn checked(name: &str, what: &str) -> Result<(), SpecError> {
    let wrong = |why: &str| {
        Err(SpecError::new(SpecCode::UnknownName, format!("`{}` cannot be a {what}'s name: {why}", shown(name)))
            .hint(format!("for example `warpsmith new {what} my_{what}`")))
    };
    if !is_name(name) {
        return wrong("it has to be a C identifier of at most 64 letters, digits and _, and begin with a letter");
    }
    if is_cpp_word(name) || OWN_WORDS.contains(&name) || name.starts_with("__") || name.starts_with("WS_") {
        return wrong("C++, CUDA or the kernel itself has it already");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_to_be_identifiers() {
        for name in ["", "9mine", "a b", "../x", "größe", "int", "__x", "a-b", "x;", "warp_max", &"x".repeat(65)] {
            assert!(kernel(name, "fp8_sdpa").is_err(), "{name}");
            assert!(task(name).is_err(), "{name}");
        }
        for of in ["fp8_sdpa", "fp8_attention"] {
            let text = kernel("mine", of).unwrap();
            assert!(text.contains("entry = \"mine\"") && !text.contains('@'), "{of}");
        }
        assert!(kernel("mine", "rms_norm").is_err());
        assert!(task("scaled").unwrap().iter().all(|(_, text)| !text.contains('@')));
    }
}
