//! The C headers that NVRTC lacks, in the little that device code uses of them, and C++'s names for the same.
//!
//! `<type_traits>`, `<utility>`, `<limits>` and their like are the toolkit's own, under `cuda/std/`; the shims only bring them into `std`.

use sha2::{Digest, Sha256};
use std::sync::OnceLock;

macro_rules! c_header {
    ($name:literal) => {
        include_str!(concat!("shims/", $name))
    };
}

const EMPTY: &str = c_header!("assert.h");

/// The shim that is included before every source.
pub(crate) const PRELUDE: &str = "nvcc_prelude.h";

/// Name under which it is included, and text.
pub(crate) const SHIMS: &[(&str, &str)] = &[
    (PRELUDE, c_header!("prelude.h")),
    ("stdint.h", c_header!("stdint.h")),
    ("stddef.h", c_header!("stddef.h")),
    ("limits.h", c_header!("limits.h")),
    ("float.h", c_header!("float.h")),
    ("math.h", c_header!("math.h")),
    ("assert.h", EMPTY),
    ("stdio.h", EMPTY),
    ("stdlib.h", EMPTY),
    ("string.h", EMPTY),
    (
        "cstdint",
        "#pragma once\n#include <stdint.h>\nnamespace std {\nusing ::int8_t; using ::int16_t; using ::int32_t; using ::int64_t;\nusing ::uint8_t; using ::uint16_t; using ::uint32_t; using ::uint64_t;\nusing ::intptr_t; using ::uintptr_t;\n}\n",
    ),
    ("cstddef", "#pragma once\n#include <stddef.h>\nnamespace std {\nusing ::size_t; using ::ptrdiff_t;\n}\n"),
    ("climits", "#include <limits.h>\n"),
    ("cfloat", "#include <float.h>\n"),
    ("cmath", "#include <math.h>\n"),
    ("cassert", EMPTY),
    ("cstdio", EMPTY),
    ("cstdlib", EMPTY),
    ("cstring", EMPTY),
    ("type_traits", "#pragma once\n#include <cuda/std/type_traits>\nnamespace std { using namespace cuda::std; }\n"),
    ("utility", "#pragma once\n#include <cuda/std/utility>\nnamespace std { using namespace cuda::std; }\n"),
    ("limits", "#pragma once\n#include <cuda/std/limits>\nnamespace std { using namespace cuda::std; }\n"),
    ("array", "#pragma once\n#include <cuda/std/array>\nnamespace std { using namespace cuda::std; }\n"),
    ("tuple", "#pragma once\n#include <cuda/std/tuple>\nnamespace std { using namespace cuda::std; }\n"),
    ("functional", "#pragma once\n#include <cuda/std/functional>\nnamespace std { using namespace cuda::std; }\n"),
];

/// SHA-256 over all shims: part of each key, since they are part of what is compiled.
pub(crate) fn digest() -> &'static str {
    static DIGEST: OnceLock<String> = OnceLock::new();
    DIGEST.get_or_init(|| {
        let mut hash = Sha256::new();
        for (name, text) in SHIMS {
            hash.update(name.as_bytes());
            hash.update([0]);
            hash.update(text.as_bytes());
            hash.update([0]);
        }
        crate::request::hex(&hash.finalize())
    })
}
