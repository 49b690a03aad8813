//! Embeds `kernels.bin` where `cargo xtask attention-kernels` has put it; a build without it says so at run time.
use std::path::Path;

fn main() {
    println!("cargo:rerun-if-changed=kernels.bin");
    println!("cargo:rustc-check-cfg=cfg(embedded_kernels)");
    if Path::new("kernels.bin").exists() {
        println!("cargo:rustc-cfg=embedded_kernels");
    }
}
