//! The committed vectors: operands of instruction forms with their results, by exact arithmetic or from a device.

use std::path::Path;

use warpsmith_machine::api::Numerics;
use warpsmith_machine::forms::vectors::{check, numerics, parse};

#[test]
fn every_committed_vector_holds() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/machine");
    let mut files: Vec<_> = std::fs::read_dir(&folder)
        .expect("tests/machine")
        .flatten()
        .map(|e| e.path())
        .filter(|p| p.extension().is_some_and(|e| e == "txt"))
        .collect();
    files.sort();
    let (mut rows, mut forms, mut wrong) = (0, 0, Vec::new());
    for file in &files {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(file).expect("a file of vectors");
        let vectors = parse(&text).unwrap_or_else(|e| panic!("{name}: {e}"));
        for v in &vectors {
            rows += v.rows.len();
            forms += 1;
            let found = check(v, numerics(&text)).unwrap_or_else(|e| vec![e]);
            wrong.extend(found.into_iter().take(3).map(|w| format!("{name}: {w}")));
        }
    }
    assert!(wrong.is_empty(), "{} of {forms} forms, {rows} rows:\n{}", wrong.len(), wrong.join("\n"));
    assert!(forms >= 1000 && rows >= 20_000, "only {forms} forms and {rows} rows");
}

#[test]
fn a_wrong_vector_is_found() {
    let name = "add.u32 =u32, $u32, $u32";
    let holds = |text: &str| check(&parse(text).expect("a vector")[0], Numerics::Fast).expect("runs").is_empty();
    assert!(holds(&format!("form {name}\n00000001 00000002 -> 00000003\n")));
    assert!(!holds(&format!("form {name}\n00000001 00000002 -> 00000004\n")));
    for broken in ["form add.u33 =u32, $u32\n", "1 2 -> 3\n", &format!("form {name}\n1 x -> 3\n")] {
        assert!(parse(broken).is_err(), "{broken}");
    }
}
