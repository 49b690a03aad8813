//! What `warpsmith.attention` calls where it is installed as a wheel: embedded machine code, the heuristic, and launches of plans without Python between.
//!
//! Python checks arguments and fills in the parameters, once for each layout of tensors; `Launcher` then compares the
//! tensors with that layout and launches. It answers None wherever it is not certain, and Python takes the long way: no argument is ever
//! judged here. Tensors are looked at through DLPack's C exchange interface (torch 2.10 or later; without it `Launcher` cannot be made).

mod choices;
mod dlpack;
mod launcher;

/// The extension module `warpsmith._native`.
#[pyo3::pymodule]
mod _native {
    #[pymodule_export]
    use crate::choices::{choose, choose_lengths, choose_varlen, packed_fits};
    #[pymodule_export]
    use crate::launcher::Launcher;
    use pyo3::exceptions::PyRuntimeError;
    use pyo3::prelude::*;
    use pyo3::types::PyBytes;
    use warpsmith_attention::bundle::Bundle;

    /// The machine code of an instance for a target (sm_90a), or None if this build has none.
    #[pyfunction]
    fn kernel<'py>(py: Python<'py>, target: &str, name: &str) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let failed = |e: warpsmith_attention::Error| PyRuntimeError::new_err(e.to_string());
        let bundle = Bundle::embedded().map_err(failed)?;
        let code = bundle.find(target, name).transpose().map_err(failed)?;
        Ok(code.map(|code| PyBytes::new(py, &code)))
    }

    /// The names, TARGET/INSTANCE, of all machine code in this build.
    #[pyfunction]
    fn kernels() -> PyResult<Vec<String>> {
        let bundle = Bundle::embedded().map_err(|e| PyRuntimeError::new_err(e.to_string()))?;
        Ok(bundle.names().map(str::to_string).collect())
    }
}
