//! Counters beside the kernel's source lines, as the PTX machine counted them: bank conflicts, coalescing, tensor operations.

use crate::material::Material;
use warpsmith_spec::record::ResultRecord;

/// Nothing where the record has no counters by line.
pub(super) fn section(_material: &Material, _results: &[&ResultRecord]) -> String {
    String::new()
}
