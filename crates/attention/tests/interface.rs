//! What callers meet without a device: checks of problems and pointers, and the C header's freshness.

use warpsmith_attention::{Device, Error, Mask, Output, Params, Plan, Problem, ProblemError, portable_instances};

const HOPPER: Device = Device { sms: 132, major: 9, minor: 0 };

#[test]
fn wrong_problems_are_refused_before_anything_else() {
    let good = Problem::dense(2, 8, 2, 100, 300, 128);
    assert!(Plan::new(&good, &HOPPER).is_ok());
    let stride = |which: usize, f: fn(&mut warpsmith_attention::Strides)| {
        let mut p = good;
        f(&mut p.strides[which]);
        p
    };
    let rows: Vec<(Problem, ProblemError)> = vec![
        (Problem { head_dim: 96, ..good }, ProblemError::HeadDim(96)),
        (Problem { heads_kv: 3, ..good }, ProblemError::Heads { q: 8, kv: 3 }),
        (Problem { heads_kv: 0, ..good }, ProblemError::Empty("heads_kv")),
        (Problem { seqlen_k: 0, ..good }, ProblemError::Empty("seqlen_k")),
        (Problem { batch: 65_536, ..good }, ProblemError::TooLarge { what: "batch", value: 65_536, limit: 65_535 }),
        (
            Problem { batch: 60_000, seqlen_q: 10_000, ..good },
            ProblemError::TooLarge { what: "rows of queries", value: 4_800_000_000, limit: 2_147_483_647 },
        ),
        (stride(0, |s| s.token = 100), ProblemError::Stride { tensor: "q", stride: 100 }),
        (stride(1, |s| s.head = 0), ProblemError::Stride { tensor: "k", stride: 0 }),
        (stride(2, |s| s.batch = -256), ProblemError::Stride { tensor: "v", stride: -256 }),
        (Problem { softmax_scale: Some(0.0), ..good }, ProblemError::SoftmaxScale),
        (Problem { softmax_scale: Some(f32::NAN), ..good }, ProblemError::SoftmaxScale),
        (Problem { output: Output::E4m3 { scale: -1.0 }, ..good }, ProblemError::OutScale),
    ];
    for (problem, want) in rows {
        assert_eq!(Plan::new(&problem, &HOPPER).unwrap_err(), Error::Problem(want));
    }
    let old = Device { sms: 40, major: 7, minor: 5 };
    assert_eq!(Plan::new(&good, &old).unwrap_err(), Error::Device { major: 7, minor: 5 });
}

#[test]
fn plans_say_what_memory_they_need() {
    let forward = Plan::new(&Problem::dense(4, 16, 16, 4096, 4096, 128), &HOPPER).unwrap();
    assert_eq!((forward.workspace().scratch_bytes, forward.workspace().counters), (0, 0));
    let decode = Plan::new(&Problem::dense(2, 32, 8, 1, 8192, 128), &HOPPER).unwrap();
    assert!(decode.workspace().scratch_bytes > 0);
    assert_eq!(decode.workspace().counters, 16);
    let causal = Problem { mask: Mask::Causal, output: Output::F16, ..Problem::dense(1, 8, 8, 512, 512, 64) };
    let name = Plan::new(&causal, &HOPPER).unwrap().choice().instance.name();
    assert!(name.starts_with("tiny_d64") && name.contains("causal1") && name.ends_with("out1"), "{name}");
}

#[test]
fn other_cards_have_the_portable_kernel() {
    let names: Vec<String> = portable_instances().iter().map(|i| i.name()).collect();
    for (major, minor, target) in
        [(8, 0, "sm_80"), (8, 6, "sm_80"), (8, 9, "sm_89"), (10, 0, "compute_80"), (12, 0, "compute_80")]
    {
        let plan = Plan::new(&Problem::dense(1, 8, 2, 100, 300, 256), &Device { sms: 58, major, minor }).unwrap();
        assert_eq!((plan.target(), plan.choice().grid), (target, [7, 2, 1]));
        assert!(names.contains(&plan.choice().instance.name()));
        assert!(plan.choice().shared_bytes <= 101_376, "what Ada gives");
    }
}

#[test]
fn params_have_the_kernels_layout() {
    // params.cuh: ten pointers, nine i64, nine i32, six i32, kind, two floats, five i32.
    assert_eq!(std::mem::size_of::<Params>(), 248);
    let header = include_str!("../../../kernels/attention/hopper/params.cuh");
    let body = header.split("struct Params {").nth(1).unwrap().split("};").next().unwrap();
    let fields: Vec<String> = body
        .lines()
        .map(|l| l.split("//").next().unwrap().trim())
        .filter_map(|l| l.strip_suffix(';'))
        .flat_map(|l| {
            l.trim_start_matches("const ")
                .split_once(' ')
                .unwrap()
                .1
                .split(',')
                .map(|n| n.trim().to_string())
                .collect::<Vec<_>>()
        })
        .collect();
    let want = "q k v q_scale k_scale v_scale out lse partial arrived q_b q_h q_s k_b k_h k_s v_b v_h v_s qs_b qs_h qs_t ks_b ks_h ks_t \
                vs_b vs_h vs_t B Hq Hkv Sq Sk group out_kind out_inverse_scale softmax_scale_log2 tiles_per_unit tiles_per_worker \
                total_tiles row_tiles section";
    assert_eq!(fields.join(" "), want.split_whitespace().collect::<Vec<_>>().join(" "));
}

/// Functions by name with the number of their parameters, and structs with their fields, of the header and of the Rust source.
#[test]
fn the_header_is_fresh() {
    let (header, source) = (include_str!("../include/warpsmith_attention.h"), include_str!("../src/capi.rs"));
    let parameters =
        |text: &str| text.split(')').next().unwrap().split(',').filter(|p| !matches!(p.trim(), "" | "void")).count();
    let mut in_header: Vec<(String, usize)> = Vec::new();
    for line in header.lines().filter(|l| l.ends_with(");") && l.contains("ws_attention_") && !l.starts_with(' ')) {
        let (head, rest) = line.split_once('(').unwrap();
        in_header.push((head.rsplit([' ', '*']).next().unwrap().into(), parameters(rest)));
    }
    let mut in_source: Vec<(String, usize)> = source
        .split("extern \"C\" fn ")
        .skip(1)
        .map(|f| {
            let (name, rest) = f.split_once('(').unwrap();
            (name.into(), parameters(rest))
        })
        .collect();
    in_header.sort();
    in_source.sort();
    assert_eq!(in_header, in_source);
    assert_eq!(in_header.len(), 6);
    for (c, rust) in [("ws_attention_problem", "CProblem"), ("ws_attention_pointers", "CPointers")] {
        let body = header.split(&format!("}} {c};")).next().unwrap().rsplit("typedef struct {").next().unwrap();
        let names = |text: &str, name: fn(&str) -> Option<String>| {
            text.lines().filter_map(|l| name(l.trim())).collect::<Vec<_>>()
        };
        let c_names = names(body, |l| Some(l.split_once(';')?.0.split([' ']).nth(1)?.split('[').next()?.to_string()));
        let body = source.split(&format!("struct {rust} {{")).nth(1).unwrap().split('}').next().unwrap();
        let rust_names = names(body, |l| Some(l.split_once(':')?.0.to_string()).filter(|n| !n.starts_with('/')));
        assert_eq!(c_names, rust_names, "{c}");
        assert!(c_names.len() >= 10);
    }
}

/// A C compiler takes the header, and lays its structs out as Rust does. Where there is no compiler, nothing is said.
#[test]
fn a_c_compiler_takes_the_header() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("use.c");
    let program = "#include <warpsmith_attention.h>\n#include <warpsmith_attention.h>\n#include <stddef.h>\n\
        #define SAME(name, condition) typedef char name[(condition) ? 1 : -1]\n\
        SAME(problem, sizeof(ws_attention_problem) == 152);\n\
        SAME(strides, offsetof(ws_attention_problem, strides) == 40);\n\
        SAME(scales, offsetof(ws_attention_problem, scale_strides) == 112);\n\
        SAME(pointers, sizeof(ws_attention_pointers) == 80);\n\
        int use(ws_attention_problem *p) { return ws_attention_dense(1, 8, 8, 512, 512, 64, p); }\n";
    std::fs::write(&path, program).unwrap();
    let header = concat!(env!("CARGO_MANIFEST_DIR"), "/include");
    let compiled = std::process::Command::new("cc")
        .args(["-std=c99", "-pedantic", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-I", header])
        .arg(&path)
        .output();
    match compiled {
        Ok(output) => assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
        Err(e) => panic!("{e}"),
    }
}
