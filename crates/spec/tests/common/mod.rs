//! The repository's tasks, and a right kernel's file to break.
#![allow(dead_code, reason = "each test file uses what it needs")]

use warpsmith_spec::TaskSet;

pub const PLAIN: &str = r#"//! task = "fp8_sdpa"
//! constraints = ["D == 64"]
//! targets = ["sm_89", "sm_90"]
//! [[launch]]
//! entry = "sdpa_plain"
//! grid = ["ceil_div(S, 64)", "B * H"]
//! block = [64]
//! args = ["q", "k", "v", "q_scale", "k_scale", "v_scale", "out", "softmax_scale", "S"]

#include <cuda_fp16.h>
extern "C" __global__ void sdpa_plain(const void* q) {}
"#;

pub fn tasks() -> TaskSet {
    let mut tasks = TaskSet::new();
    let none = |_: &str| None;
    let script = |name: &str| {
        (name == "reference.py").then(|| include_str!("../../../../tasks/rms_norm/reference.py").to_string())
    };
    let texts: [(&str, &[u8]); 4] = [
        ("fp8_sdpa", include_bytes!("../../../../tasks/fp8_sdpa/task.toml")),
        ("fp8_attention", include_bytes!("../../../../tasks/fp8_attention/task.toml")),
        ("fp16_sdpa", include_bytes!("../../../../tasks/fp16_sdpa/task.toml")),
        ("rms_norm", include_bytes!("../../../../tasks/rms_norm/task.toml")),
    ];
    for (name, text) in texts {
        let read: &dyn Fn(&str) -> Option<String> = if name == "rms_norm" { &script } else { &none };
        tasks.add(name, &format!("tasks/{name}/task.toml"), text, read).expect("a task of the repository parses");
    }
    tasks
}
