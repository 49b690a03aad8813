//! A baseline's output against the candidates' own oracle: reported beside its time, never a verdict.

use crate::check::check;
use crate::oracle::{Expected, Oracle};
use crate::values::OutputSpec;
use std::collections::BTreeMap;
use warpsmith_spec::record::CheckRecord;
use warpsmith_spec::task::Task;
use warpsmith_spec::words::{DType, Format};

/// Judges values (f32, little-endian) on the inputs that the oracle is of. `kernel` is the error against the oracle of the quantised inputs,
/// which a baseline that was given unquantised ones does not try to meet; `end_to_end` is against the unquantised ones, and comparable.
///
/// The error says why the values are not the output.
pub fn judge(
    oracle: &Oracle,
    task: &Task,
    target: &str,
    format: Format,
    values: &[u8],
) -> Result<BTreeMap<String, CheckRecord>, String> {
    let [expected] = &oracle.outputs[..] else { return Err("the task has more than one output".into()) };
    let elements = expected.spec.elements();
    if values.len() != 4 * elements {
        return Err(format!("its output has {} elements, {} has {elements}", values.len() / 4, expected.spec.name));
    }
    let limits = oracle.limits(expected, task, target, None, format);
    let as_values = Expected { spec: OutputSpec { dtype: DType::F32, ..expected.spec.clone() }, ..expected.clone() };
    let (record, _) = check(&as_values, &limits, values);
    Ok(BTreeMap::from([(expected.spec.name.clone(), record)]))
}
