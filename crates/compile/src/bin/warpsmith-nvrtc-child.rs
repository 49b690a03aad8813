//! The process that runs NVRTC, for this crate's own tests. The product's binary serves itself.

fn main() {
    warpsmith_compile::child_main()
}
