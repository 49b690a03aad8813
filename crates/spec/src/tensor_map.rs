//! The driver's words for how a tensor map copies, as candidates and launch files write them: with or without the prefix of the
//! driver's header, in any case. Knows no sizes.

use crate::document::{Place, Table};
use crate::error::{SpecError, shown};

/// The ways of a tensor map that have names; `NONE` where the table does not say.
pub(crate) struct Modes {
    pub swizzle: &'static str,
    pub interleave: &'static str,
    pub fill: &'static str,
    pub l2_promotion: &'static str,
}

impl Modes {
    pub fn of(table: &Table, place: &Place) -> Result<Modes, SpecError> {
        let word = |key: &str, prefix: &str, known: &[&'static str]| {
            let Some(item) = table.get(key) else { return Ok("NONE") };
            let text = item.text(place, key)?;
            let short = text.strip_prefix(prefix).unwrap_or(text);
            let found = known.iter().copied().find(|k| k.eq_ignore_ascii_case(short));
            found.ok_or_else(|| {
                item.expected(place, key, &format!("one of {}, not `{}`", known.join(", "), shown(text)))
            })
        };
        Ok(Modes {
            swizzle: word("swizzle", "CU_TENSOR_MAP_SWIZZLE_", &["NONE", "32B", "64B", "128B"])?,
            interleave: word("interleave", "CU_TENSOR_MAP_INTERLEAVE_", &["NONE", "16B", "32B"])?,
            fill: word("fill", "CU_TENSOR_MAP_FLOAT_OOB_FILL_", &["NONE", "NAN_REQUEST_ZERO_FMA"])?,
            l2_promotion: word(
                "l2_promotion",
                "CU_TENSOR_MAP_L2_PROMOTION_",
                &["NONE", "L2_64B", "L2_128B", "L2_256B"],
            )?,
        })
    }
}
