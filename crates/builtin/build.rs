//! New files in the embedded folders have to reach the binary too.
fn main() {
    for folder in ["kernels", "tasks", "tests/faults", "docs/explain", "artifacts", "python/warpsmith_baselines"] {
        println!("cargo:rerun-if-changed=../../{folder}");
    }
}
