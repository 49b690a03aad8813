//! On macOS an extension finds Python's symbols when it is loaded, which its linker has to be told.
fn main() {
    pyo3_build_config::add_extension_module_link_args();
}
