//! Every code that a finding or an error can carry has a page of its own and a row in the index; and the other way round.

use std::collections::BTreeSet;
use warpsmith_builtin::{explain_index, explain_pages};

/// `[code]` heads of the index. It is plain enough to be read by line.
fn indexed() -> BTreeSet<String> {
    explain_index().lines().filter_map(|l| Some(l.strip_prefix('[')?.strip_suffix(']')?.to_string())).collect()
}

#[test]
fn pages_and_index_agree_and_no_page_stands_for_two_codes() {
    let pages = explain_pages();
    let names: BTreeSet<String> = pages.keys().cloned().collect();
    assert_eq!(names, indexed());
    let texts: BTreeSet<&str> = pages.values().copied().collect();
    assert_eq!(texts.len(), pages.len(), "two codes share a page");
    for (code, page) in &pages {
        assert!(page.contains(code.as_str()) && page.len() >= 1000, "{code}: {} bytes", page.len());
    }
}

#[test]
fn errors_of_files_and_names_have_pages() {
    let pages = explain_pages();
    for code in warpsmith_spec::SpecCode::ALL {
        assert!(pages.contains_key(code.as_str()), "{code}");
    }
}

#[test]
fn what_the_binary_carries_parses() {
    let tasks = warpsmith_builtin::tasks().unwrap();
    assert!(tasks.names().count() >= 3);
    assert!(warpsmith_builtin::kernels(&tasks).unwrap().len() >= 10);
    assert!(warpsmith_builtin::faults(&tasks).unwrap().len() >= 8);
    assert!(!warpsmith_builtin::headers().is_empty());
}
