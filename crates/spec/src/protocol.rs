//! What a task's reference script is told: `python3 reference.py IN_DIR OUT_DIR`.
//!
//! IN_DIR holds `workload.json` (a [`Header`]) and one `NAME.npy` for each input, C order, exactly decoded: f32, or f64 where the
//! dtype is f64, or the integers as they are. Inputs that have scales come dequantised (code * scale), without their scales. The
//! script writes `NAME.npy` in f64 for each output into OUT_DIR, of the shape that the header says, and exits 0; what it says on
//! stderr is shown if it does not. It gets the unquantised or the quantised inputs, one call each, and does not know which.

use crate::formula::Number;
use crate::task::{Role, Task};
use crate::workload::Workload;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

pub const SCHEMA: &str = "warpsmith.reference/1";

/// `workload.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Header {
    pub schema: String,
    pub task: String,
    pub shape: String,
    pub symbols: BTreeMap<String, i64>,
    pub scalars: BTreeMap<String, f64>,
    pub causal: bool,
    pub seed: u64,
    pub inputs: BTreeMap<String, Array>,
    pub outputs: BTreeMap<String, Array>,
}

/// One `.npy` file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Array {
    /// `NAME.npy`, in the folder.
    pub file: String,
    pub shape: Vec<u64>,
}

impl Header {
    /// The header of a workload; the error says which size or scalar has no value.
    pub fn new(task: &Task, workload: &Workload) -> Result<Header, String> {
        let mut inputs = BTreeMap::new();
        let mut outputs = BTreeMap::new();
        for tensor in task.tensors.iter().filter(|t| task.has_tensor(t, workload)) {
            let shape = task.tensor_sizes(tensor, &workload.symbols, workload)?;
            let array = Array { file: format!("{}.npy", tensor.name), shape };
            match tensor.role {
                Role::Input => inputs.insert(tensor.name.clone(), array),
                Role::Output => outputs.insert(tensor.name.clone(), array),
                Role::Scale => None,
            };
        }
        let mut scalars = BTreeMap::new();
        for scalar in &task.scalars {
            let value = match task.scalar_value(scalar, &workload.symbols, workload)? {
                Number::Whole(n) => n as f64,
                Number::Real(x) => x,
                Number::Truth(b) => f64::from(u8::from(b)),
            };
            // The kernel is given the scalar in its dtype, so the reference computes with that value too.
            let value = if scalar.dtype == crate::words::DType::F32 { f64::from(value as f32) } else { value };
            scalars.insert(scalar.name.clone(), value);
        }
        Ok(Header {
            schema: SCHEMA.to_string(),
            task: task.name.clone(),
            shape: workload.shape.clone(),
            symbols: workload.symbols.clone(),
            scalars,
            causal: workload.causal,
            seed: workload.seed,
            inputs,
            outputs,
        })
    }

    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default()
    }
}
