//! What needs no toolkit: the cache, the committed layer, the include resolver on a disk.

mod common;

use common::{entry, request};
use std::collections::BTreeMap;
use std::sync::Arc;
use warpsmith_compile::*;

fn artifact(request: &Request, ptx: &str) -> Artifact {
    let stats = EntryStats {
        expression: "k".into(),
        lowered: "k".into(),
        registers: 40,
        params: vec![8, 4],
        tensor_ops: BTreeMap::from([("HMMA".into(), 64)]),
        ..EntryStats::default()
    };
    Artifact {
        ptx: ptx.into(),
        ptx_sha256: sha256(ptx.as_bytes()),
        cubin: Some(vec![0x7f, b'E', 0, 255]),
        entries: vec![stats],
        warnings: vec![Diagnostic {
            kind: DiagnosticKind::Warning,
            message: "w".into(),
            file: Some("mine.cu".into()),
            line: Some(3),
        }],
        log: "said".into(),
        toolkit: ToolkitId("cuda-13.0.88-x".into()),
        build: BuildKind::Release,
        target: request.target.clone(),
    }
}

fn key(request: &Request) -> String {
    request.key(&request.resolve().unwrap().unwrap(), &ToolkitId("cuda-13.0.88-x".into()))
}

#[test]
fn the_cache_gives_back_what_it_was_given_and_nothing_damaged() {
    let dir = tempfile::tempdir().unwrap();
    let cache = ArtifactCache::new(dir.path().join("artifacts"));
    let r = request("one");
    let (good, bad) = (key(&r), key(&request("two")));
    assert!(cache.get(&good).is_none());
    assert_eq!(cache.sizes(), CacheSizes::default());
    let result = Ok(artifact(&r, "ptx"));
    let failure =
        Err(CompileFailure::MissingEntry { name: "k".into(), available: vec!["j".into()], why: "undefined".into() });
    cache.put(&good, &result).unwrap();
    cache.put(&bad, &failure).unwrap();
    assert_eq!(cache.get(&good), Some(result.clone()));
    assert_eq!(cache.get(&bad), Some(failure.clone()));
    assert_eq!(cache.sizes().artifacts, 2);

    // Any flipped byte, any cut and an empty file are noticed; then it can be put again.
    let path = dir.path().join("artifacts").join(&good[..2]).join(format!("{good}.wsa"));
    let whole = std::fs::read(&path).unwrap();
    let mut damaged: Vec<Vec<u8>> = (0..whole.len())
        .map(|i| {
            let mut b = whole.clone();
            b[i] ^= 0x40;
            b
        })
        .collect();
    damaged.extend((0..whole.len()).map(|n| whole[..n].to_vec()));
    for bytes in damaged {
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(cache.get(&good), None);
        assert!(!path.exists(), "a damaged file is removed");
    }
    cache.put(&good, &result).unwrap();
    assert_eq!(cache.get(&good), Some(result.clone()));

    assert_eq!(cache.clean().unwrap().artifacts, 2);
    assert_eq!(cache.sizes(), CacheSizes::default());
    for odd in ["", "..", "../../x", "zz"] {
        assert!(cache.get(odd).is_none());
        cache.put(odd, &result).unwrap();
    }
    let none = ArtifactCache::disabled();
    none.put(&good, &result).unwrap();
    assert!(none.get(&good).is_none());
}

#[test]
fn writers_at_once_leave_one_whole_entry() {
    let dir = tempfile::tempdir().unwrap();
    let cache = ArtifactCache::new(dir.path());
    let r = request("one");
    let k = key(&r);
    let result = Ok(artifact(&r, &"ptx ".repeat(10_000)));
    std::thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| {
                for _ in 0..20 {
                    cache.put(&k, &result).unwrap();
                    assert_eq!(cache.get(&k).as_ref(), Some(&result));
                }
            });
        }
    });
    assert_eq!(cache.sizes().artifacts, 1);
}

fn leak(bytes: Vec<u8>) -> &'static [u8] {
    Box::leak(bytes.into_boxed_slice())
}

#[test]
fn a_layer_gives_back_what_was_added_whatever_the_order() {
    let id = ToolkitId("cuda-13.0.88-x".into());
    let text = |i: usize| format!("{}\n{i}", "mul.f32 %f1, %f2, %f3;\n".repeat(3000));
    let rows: Vec<(Request, Result<Artifact, CompileFailure>)> = (0..150)
        .map(|i| {
            let mut r = entry(request(&format!("source {}", i % 10)), "k");
            r.defines = vec![("D".into(), i.to_string())];
            let result = if i % 7 == 0 {
                Err(CompileFailure::WmmaLocalMemory {
                    file: Some("mine.cu".into()),
                    line: Some(i as u32),
                    log: String::new(),
                })
            } else {
                Ok(artifact(&r, &text(i)))
            };
            (r, result)
        })
        .collect();
    let build = |order: &mut dyn Iterator<Item = &(Request, Result<Artifact, CompileFailure>)>| {
        let mut b = LayerBuilder::new(id.clone());
        order.for_each(|(r, result)| b.add(r, result).unwrap());
        assert_eq!(b.len(), 150);
        b.finish().unwrap()
    };
    let bytes = build(&mut rows.iter());
    assert_eq!(bytes, build(&mut rows.iter().rev()), "the bytes do not hang on the order");
    assert!(bytes.len() < 100_000, "alike texts cost little: {} bytes for {}", bytes.len(), 150 * text(0).len());
    Layer::verify(&bytes).unwrap();
    let layer = Layer::from_bytes(leak(bytes.clone())).unwrap();
    assert_eq!((layer.toolkit_id(), layer.len()), (&id, 150));
    for (r, result) in &rows {
        let mut want = result.clone();
        if let Ok(a) = &mut want {
            a.cubin = None;
        }
        assert_eq!(layer.lookup(r), Some(want));
    }
    assert_eq!(layer.lookup(&request("something else")), None);

    // Damage is an error or an absent artifact, never a panic, and the checksum tells.
    for cut in [0, 1, 8, 20, 47, 60, bytes.len() / 2, bytes.len() - 1] {
        if cut > 0 {
            assert!(Layer::verify(&bytes[..cut]).is_err());
        }
        if let Ok(layer) = Layer::from_bytes(leak(bytes[..cut].to_vec())) {
            rows.iter().for_each(|(r, _)| drop(layer.lookup(r)));
        }
    }
    for at in (0..bytes.len()).step_by(bytes.len() / 60) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x55;
        assert!(Layer::verify(&damaged).is_err());
        if let Ok(layer) = Layer::from_bytes(leak(damaged)) {
            layer.lookup(&rows[1].0);
        }
    }
}

#[test]
fn a_layer_refuses_what_does_not_belong_in_it() {
    let r = request("one");
    let mut other = LayerBuilder::new(ToolkitId("cuda-12.9.86-y".into()));
    assert!(other.add(&r, &Ok(artifact(&r, "ptx"))).is_err(), "made by another toolkit");
    assert!(other.add(&r, &Err(CompileFailure::Timeout { seconds: 1 })).is_err(), "hangs on the machine's load");
    assert!(other.is_empty());
}

#[test]
fn includes_are_found_under_canonical_names() {
    let dir = tempfile::tempdir().unwrap();
    let d = dir.path();
    for (path, text) in [
        ("a.cuh", "#include \"sub/b.cuh\"\n#include <cuda_fp16.h>\n"),
        ("sub/b.cuh", "#include \"../c.cuh\"\n#include \"c.cuh\"\n#include \"mine.cu\"\n"),
        ("c.cuh", "#include <warpsmith/mma.cuh>\n"),
        ("sub/c.cuh", "// nothing\n"),
        ("unused.cuh", ""),
    ] {
        std::fs::create_dir_all(d.join(path).parent().unwrap()).unwrap();
        std::fs::write(d.join(path), text).unwrap();
    }
    let mut r = request("#include \"a.cuh\"\n#if 0\n#include \"nowhere.cuh\"\n#endif\n#include \"a.cuh\"\n");
    r.name = "kernels/x/mine.cu".into();
    r.include_root = Some(d.into());
    let header = |t: &str| (t.to_owned(), "#include \"detail.cuh\"\n#include \"warpsmith/base.cuh\"\n".to_owned());
    r.builtin_headers = Arc::new(BTreeMap::from([
        header("warpsmith/mma.cuh"),
        ("warpsmith/base.cuh".into(), String::new()),
        header("warpsmith/other.cuh"),
    ]));
    let resolved = r.resolve().unwrap().unwrap();
    let names: Vec<(&str, bool)> = resolved.files.iter().map(|f| (f.name.as_str(), f.builtin)).collect();
    assert_eq!(
        names,
        [
            ("kernels/x/a.cuh", false),
            ("kernels/x/c.cuh", false),
            ("kernels/x/sub/b.cuh", false),
            ("kernels/x/sub/c.cuh", false),
            ("warpsmith/base.cuh", true),
            ("warpsmith/mma.cuh", true),
        ]
    );
    // What is not included does not change the hash; what is, does.
    let before = key(&r);
    std::fs::write(d.join("unused.cuh"), "x").unwrap();
    assert_eq!(key(&r), before);
    std::fs::write(d.join("sub/c.cuh"), "x").unwrap();
    assert_ne!(key(&r), before);
}

#[test]
fn includes_that_are_none_of_a_candidates_business_are_refused_with_their_line() {
    let dir = tempfile::tempdir().unwrap();
    let d = dir.path().join("candidate");
    std::fs::create_dir_all(d.join("sub")).unwrap();
    std::fs::write(dir.path().join("secret.h"), "secret").unwrap();
    std::fs::write(d.join("inner.cuh"), "\n\n#include \"../secret.h\"\n").unwrap();
    std::fs::write(d.join("huge.cuh"), vec![b' '; (4 << 20) + 1]).unwrap();
    std::fs::write(d.join("many.cuh"), (0..300).map(|i| format!("#include \"sub/{i}.h\"\n")).collect::<String>())
        .unwrap();
    (0..300).for_each(|i| std::fs::write(d.join(format!("sub/{i}.h")), "").unwrap());
    std::fs::create_dir(d.join(".shim")).unwrap();
    std::fs::write(d.join(".shim/x.h"), "").unwrap();
    let rows = [
        ("#include \"/etc/passwd\"", "absolute", "mine.cu", 2),
        ("#include </etc/passwd>", "absolute", "mine.cu", 2),
        ("#include \"C:/x.h\"", "absolute", "mine.cu", 2),
        ("#include \"\\\\server\\x.h\"", "absolute", "mine.cu", 2),
        ("#include \"../secret.h\"", "leaves", "mine.cu", 2),
        ("#include <../secret.h>", "leaves", "mine.cu", 2),
        ("#include \"sub/../../secret.h\"", "leaves", "mine.cu", 2),
        ("#include \"inner.cuh\"", "leaves", "inner.cuh", 3),
        ("#include \"huge.cuh\"", "more than 4 MiB", "mine.cu", 2),
        ("#include \"many.cuh\"", "more than 256 files", "many.cuh", 256),
        ("#include \"sub\"", "no plain file", "mine.cu", 2),
        ("#include \".shim/x.h\"", "characters", "mine.cu", 2),
        ("#include HEADER", "macro", "mine.cu", 2),
        ("#include", "macro", "mine.cu", 2),
        ("#include_next <x.h>", "not allowed", "mine.cu", 2),
        ("#embed \"x\"", "not allowed", "mine.cu", 2),
        ("#if __has_include(\"/etc/passwd\")\n#endif", "absolute", "mine.cu", 2),
        ("#include \"\"", "no file", "mine.cu", 2),
    ];
    for (text, want, file, line) in rows {
        let mut r = request(&format!("// first\n{text}\n"));
        r.include_root = Some(d.clone());
        let failure = r.resolve().unwrap().expect_err(text);
        assert_eq!(failure.kind(), "unsafe_include", "{text}");
        let at = failure.diagnostic();
        assert!(at.message.contains(want), "{text}: {at}");
        assert_eq!((at.file.as_deref(), at.line), (Some(file), Some(line)), "{text}: {at}");
    }
    // Without a folder nothing is read from the disk at all, and the compiler says what is missing.
    let r = request("#include \"inner.cuh\"\n");
    assert!(r.resolve().unwrap().unwrap().files.is_empty());
}

#[test]
fn failures_say_the_same_in_words_and_in_data() {
    let failures = [
        CompileFailure::Nvrtc {
            diagnostics: vec![
                Diagnostic { kind: DiagnosticKind::Warning, message: "w".into(), file: None, line: None },
                Diagnostic {
                    kind: DiagnosticKind::Error,
                    message: "expected an expression".into(),
                    file: Some("mine.cu".into()),
                    line: Some(3),
                },
            ],
            log: "log".into(),
        },
        CompileFailure::WmmaLocalMemory { file: Some("mine.cu".into()), line: Some(9), log: String::new() },
        CompileFailure::Ptxas { diagnostics: vec![], log: "ptxas fatal".into() },
        CompileFailure::MissingEntry { name: "a".into(), available: vec!["b".into()], why: "undefined".into() },
        CompileFailure::Timeout { seconds: 3 },
        CompileFailure::Memory { bytes: 1 << 30 },
        CompileFailure::TooLarge { what: "the PTX".into(), bytes: 9, limit: 8 },
        CompileFailure::UnsafeInclude { file: "mine.cu".into(), name: "/x".into(), line: 1, why: "absolute".into() },
        CompileFailure::UnsupportedTarget { target: "sm_20".into(), supported: vec!["sm_89".into()] },
        CompileFailure::Crashed { what: "signal 11".into(), log: String::new() },
    ];
    for failure in failures {
        let text = serde_json::to_string(&failure).unwrap();
        assert!(
            text.contains(&format!("\"kind\":\"{}\"", failure.kind())) || failure.kind().starts_with("compile"),
            "{text}"
        );
        assert_eq!(serde_json::from_str::<CompileFailure>(&text).unwrap(), failure);
        assert_eq!(failure.diagnostic().message, failure.to_string());
        assert!(!failure.to_string().contains('\n'));
    }
}
