//! Any bytes: the parser answers with a tree or an error, soon, and in bounded memory.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = warpsmith_ptx::parse(text);
    }
});
