//! What a candidate may not do whatever its outputs are: change its inputs, leave outputs unwritten.
//!
//! Judged from the pristine copies of the inputs. Accesses beyond buffers are the backend's findings.

use crate::backend::{RunOutcome, Written};
use crate::check;
use crate::finding::Code;
use crate::oracle::Oracle;
use crate::values::{Tensor, coordinates};
use warpsmith_spec::record::FindingRecord;

/// Violations of a completed run.
pub fn violations(oracle: &Oracle, run: &RunOutcome) -> Vec<FindingRecord> {
    let modified = oracle.inputs.tensors.iter().zip(&run.inputs).filter_map(|(before, after)| modified(before, after));
    let unwritten =
        oracle.outputs.iter().zip(&run.outputs).filter_map(|(e, after)| check::unwritten(e, &after.defined));
    modified.chain(unwritten).collect()
}

fn modified(before: &Tensor, after: &Written) -> Option<FindingRecord> {
    let differs = |i: usize| after.bytes.get(i) != before.bytes.get(i) || after.defined.get(i) == Some(&false);
    let first = (0..before.bytes.len().max(after.bytes.len())).find(|i| differs(*i))?;
    let size = before.dtype.bytes() as usize;
    let changed = (0..before.bytes.len()).step_by(size).filter(|at| (*at..at + size).any(differs)).count();
    let index = coordinates(&before.shape, (first / size) as u64);
    let name = &before.name;
    let message = format!(
        "the kernel has changed {changed} of the {} elements of its input {name}; the first is {name}{index:?}",
        before.bytes.len() / size
    );
    let mut f = Code::InputModified.error("correctness", message);
    (f.tensor, f.index, f.count) =
        (Some(name.clone()), Some(index.iter().map(|i| *i as i64).collect()), Some(changed as u64));
    Some(f)
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpsmith_spec::words::DType;

    #[test]
    fn a_changed_byte_is_found_and_an_untouched_input_is_not() {
        let before = Tensor { name: "k".into(), dtype: DType::F16, shape: vec![2, 2], bytes: vec![1; 8] };
        let mut after = Written { bytes: vec![1; 8], defined: vec![true; 8] };
        assert!(modified(&before, &after).is_none());
        after.bytes[5] = 2;
        let f = modified(&before, &after).expect("one element differs");
        assert_eq!((f.code.as_str(), f.index, f.count), ("input-modified", Some(vec![1, 0]), Some(1)));
        after.bytes[5] = 1;
        after.defined[7] = false;
        assert!(modified(&before, &after).is_some(), "an undefined value was stored into it");
    }
}
