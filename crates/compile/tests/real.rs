//! With a real toolkit: what people write compiles, what is wrong is said, and nothing reads what is not its business.
//!
//! Where no toolkit is found (CUDA_HOME, the system, Python, Warpsmith's cache) each test says so and passes.

mod common;

use common::{compile, entry, request, toolkit, with};
use warpsmith_compile::*;

const SAXPY: &str = "extern \"C\" __global__ void saxpy(float a, const float* x, float* y, int n)\n{\n    int i = blockIdx.x * blockDim.x + threadIdx.x;\n    if (i < n) y[i] += a * x[i];\n}\n";

#[test]
fn a_kernel_becomes_ptx_cubin_and_statistics() {
    let Some(compiler) = toolkit("a_kernel_becomes_ptx_cubin_and_statistics") else { return };
    let artifact = compile(&compiler, &entry(request(SAXPY), "saxpy")).unwrap();
    let stats = artifact.entry("saxpy").unwrap();
    assert_eq!(stats.params, [4, 8, 8, 4]);
    assert!(stats.registers > 0 && stats.registers < 40);
    assert!(artifact.cubin.as_ref().is_some_and(|c| c.starts_with(b"\x7fELF")));
    assert_eq!(artifact.ptx_sha256, sha256(artifact.ptx.as_bytes()));
    assert!(artifact.ptx.contains(".file\t1 \"mine.cu\""), "file names are canonical");
    assert!(!artifact.ptx.contains(&*std::env::temp_dir().to_string_lossy()), "no path of this machine");
    let again = compiler.compile(&entry(request(SAXPY), "saxpy")).unwrap().unwrap();
    assert_eq!(artifact, again, "the cache gives back what was put, cubin included");
}

#[test]
fn headers_that_kernels_use_compile() {
    let Some(compiler) = toolkit("headers_that_kernels_use_compile") else { return };
    let rows = [
        ("cuda_fp16.h", "x[0] = __half2float(__float2half(1.f));"),
        ("cuda_fp8.h", "x[0] = float(__nv_fp8_e4m3(1.f));"),
        ("cuda_bf16.h", "x[0] = __bfloat162float(__float2bfloat16(1.f));"),
        (
            "mma.h",
            "nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float> f; nvcuda::wmma::fill_fragment(f, x[0]);",
        ),
        ("cuda_pipeline.h", "__pipeline_commit();"),
        ("cooperative_groups.h", "cooperative_groups::this_thread_block().sync();"),
        (
            "stdint.h",
            "uint32_t a = UINT32_MAX; int64_t b = sizeof(uintptr_t); x[0] = a + b; static_assert(sizeof(int64_t) == 8, \"\");",
        ),
        ("cstdint", "std::uint8_t a = 255; x[0] = a;"),
        ("cuda/std/cstdint", "cuda::std::uint8_t a = 255; x[0] = a;"),
        ("cmath", "x[0] = sqrtf(INFINITY) + M_PI;"),
        ("cfloat", "x[0] = FLT_MAX;"),
        ("climits", "x[0] = INT_MAX;"),
        ("cstddef", "std::size_t n = 1; std::ptrdiff_t d = -1; x[n] = d;"),
        ("cstdio", "if (!x) printf(\"%p\", x);"),
        ("cassert", "assert(x);"),
        ("type_traits", "static_assert(std::is_same<int, int>::value, \"\");"),
        ("limits", "x[0] = std::numeric_limits<float>::max();"),
        ("utility", "x[0] = std::move(x[1]);"),
        ("cuda_runtime.h", "x[0] = 1;"),
    ];
    // One program for all, and each by itself only if that fails: NVRTC starts once, not twenty times.
    let all: String = rows.iter().map(|(h, _)| format!("#include <{h}>\n")).collect();
    let bodies: String = rows.iter().map(|(_, b)| format!("{{ {b} }}\n")).collect();
    let text =
        |includes: &str, body: &str| format!("{includes}extern \"C\" __global__ void k(float* x) {{ {body} }}\n");
    if let Err(failure) = compile(&compiler, &entry(request(&text(&all, &bodies)), "k")) {
        for (header, body) in rows {
            if let Err(failure) =
                compile(&compiler, &entry(request(&text(&format!("#include <{header}>\n"), body)), "k"))
            {
                panic!("<{header}>: {failure}\n{}", failure.log());
            }
        }
        panic!("all together: {failure}\n{}", failure.log());
    }
}

#[test]
fn template_instances_are_entries() {
    let Some(compiler) = toolkit("template_instances_are_entries") else { return };
    let source = "template <int N, bool C> __global__ void k(float* x) { x[threadIdx.x] = N + C; }\nnamespace a { __global__ void plain(float* x) { x[0] = 1; } }\n__device__ float f() { return 1; }\n";
    let mut r = request(source);
    r.entries = vec!["k<64, true>".into(), "a::plain".into(), "k<32,false>".into()];
    let artifact = compile(&compiler, &r).unwrap();
    let names: Vec<_> = artifact.entries.iter().map(|e| (e.expression.as_str(), e.lowered.contains("Li64E"))).collect();
    assert_eq!(names, [("k<64, true>", true), ("a::plain", false), ("k<32,false>", false)]);
    for (wrong, reason) in [("nope", "undefined"), ("k<64>", "which instance"), ("f", "__global__"), ("k<64, >", "")] {
        let failure = compile(&compiler, &entry(request(source), wrong)).unwrap_err();
        let CompileFailure::MissingEntry { name, available, why } = &failure else { panic!("{wrong}: {failure:?}") };
        assert_eq!(name, wrong);
        assert!(why.contains(reason), "{wrong}: {why}");
        assert!(available.contains(&"a::plain".to_owned()), "{available:?}");
    }
}

#[test]
fn what_is_wrong_is_said_with_its_line() {
    let Some(compiler) = toolkit("what_is_wrong_is_said_with_its_line") else { return };
    let rows = [
        ("a syntax error", SAXPY.replace("int i =", "int i = ="), "expected an expression", Some(3)),
        ("a missing header", format!("\n#include \"nowhere.h\"\n{SAXPY}"), "nowhere.h", Some(2)),
        (
            "an instruction that the target lacks",
            SAXPY.replace("if (i", "asm volatile(\"wgmma.fence.sync.aligned;\");\nif (i"),
            "wgmma",
            None,
        ),
        (
            "too much static shared memory",
            SAXPY.replace("if (i", "__shared__ float s[20000]; s[i] = 1; __syncthreads(); y[0] = s[n];\nif (i"),
            "shared data",
            None,
        ),
    ];
    for (what, source, word, line) in rows {
        let failure = compile(&compiler, &entry(request(&source), "saxpy")).unwrap_err();
        let d = failure.diagnostic();
        assert!(d.message.contains(word), "{what}: {d}");
        assert_eq!(d.line, line, "{what}: {d}");
        if line.is_some() {
            assert_eq!(d.file.as_deref(), Some("mine.cu"), "{what}");
        }
        assert_eq!(
            compiler.compile(&entry(request(&source), "saxpy")).unwrap(),
            Err(failure),
            "{what}: failures are cached too"
        );
    }
}

const WMMA_LOCAL: &str = "#include <mma.h>\nusing namespace nvcuda;\nextern \"C\" __global__ void k(const __half* x, float* o)\n{\n\
    wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> a;\n\
    wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::col_major> b;\n\
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> c;\n    wmma::fill_fragment(c, 0.f);\n\
    wmma::load_matrix_sync(a, x, 16);\n    wmma::load_matrix_sync(b, x + 256, 16);\n    wmma::mma_sync(c, a, b, c);\n\
    STORAGE\n    for (int i = 0; i < 256; i++) tile[i] = __float2half(c.x[i % 8]);\n\
    wmma::load_matrix_sync(a, tile, 16);\n    wmma::mma_sync(c, a, b, c);\n    wmma::store_matrix_sync(o, c, 16, wmma::mem_row_major);\n}\n";

#[test]
fn wmma_on_local_memory_fails_with_its_line_and_its_twin_passes() {
    let Some(compiler) = toolkit("wmma_on_local_memory_fails_with_its_line_and_its_twin_passes") else { return };
    let wrong =
        compile(&compiler, &entry(request(&WMMA_LOCAL.replace("STORAGE", "__half tile[256];")), "k")).unwrap_err();
    assert_eq!(wrong.kind(), "wmma_local_memory");
    assert_eq!((wrong.diagnostic().file.as_deref(), wrong.diagnostic().line), (Some("mine.cu"), Some(14)), "{wrong:?}");
    let right =
        compile(&compiler, &entry(request(&WMMA_LOCAL.replace("STORAGE", "__shared__ __half tile[256];")), "k"))
            .unwrap();
    assert!(right.warnings.iter().all(|w| w.kind != DiagnosticKind::WmmaLocalMemory));
    if right.warnings.iter().all(|w| w.kind != DiagnosticKind::NotMeasured) {
        assert!(right.entries[0].tensor_ops["HMMA"] > 0);
    }
}

#[test]
fn debug_code_in_a_release_build_is_reported_and_a_debug_build_is_another_artifact() {
    let Some(compiler) = toolkit("debug_code_in_a_release_build_is_reported_and_a_debug_build_is_another_artifact")
    else {
        return;
    };
    let source = SAXPY.replace(
        "    if (i < n)",
        "    assert(n > 0);\n#ifdef WARPSMITH_DEBUG\n    y[1] = 7;\n#endif\n    printf(\"%d\", i);\n    if (i < n)",
    );
    let mut r = entry(request(&source), "saxpy");
    let release = compile(&compiler, &r).unwrap();
    let left: Vec<_> = release
        .warnings
        .iter()
        .filter(|w| w.kind == DiagnosticKind::DebugCodeLeft)
        .map(|w| (w.message.split(' ').next(), w.line))
        .collect();
    // NDEBUG takes the assert away.
    assert_eq!(left, [(Some("printf"), Some(8))], "{:?}", release.warnings);
    r.build = BuildKind::Asserting;
    let asserting = compile(&compiler, &r).unwrap();
    assert!(asserting.ptx.contains("__assertfail") && asserting.ptx.contains(".loc"));
    r.build = BuildKind::Debug;
    let debug = compile(&compiler, &r).unwrap();
    assert_eq!(debug.build, BuildKind::Debug);
    assert!(debug.ptx.contains("__assertfail") && debug.ptx_sha256 != release.ptx_sha256);
    let again = compiler.compile_anew(&r, &r.resolve().unwrap().unwrap()).unwrap().unwrap();
    assert!(again.ptx == debug.ptx, "a debug build is the same each time too");
}

#[test]
fn kernels_that_are_nobodys_candidate_may_have_more_of_cpp() {
    let Some(compiler) = toolkit("kernels_that_are_nobodys_candidate_may_have_more_of_cpp") else { return };
    let source = "struct Square { template <class T> T operator()(T x) const { return x * x; } };\n\
                  extern \"C\" __global__ void k(unsigned long long* x) {\n  auto high = [](auto a, auto b) { return (unsigned __int128)a * b >> 64; };\n\
                  x[0] = high(x[1], Square()(x[2]));\n}\n";
    let mut r = entry(request(source), "k");
    r.build = BuildKind::Asserting;
    assert!(compile(&compiler, &r).unwrap().ptx.contains("mul.hi.u64"));
}

#[test]
fn files_of_the_candidate_and_built_in_headers_are_found() {
    let Some(compiler) = toolkit("files_of_the_candidate_and_built_in_headers_are_found") else { return };
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("sub")).unwrap();
    std::fs::write(folder.path().join("sub/a.cuh"), "#include \"../b.cuh\"\n#include <warpsmith/c.cuh>\n").unwrap();
    std::fs::write(folder.path().join("b.cuh"), "__device__ inline float b() { return 2; }\n").unwrap();
    let mut r = entry(
        request("#include \"sub/a.cuh\"\nextern \"C\" __global__ void k(float* x) { x[0] = b() + c(x[1]); }\n"),
        "k",
    );
    r.name = "kernels/mine/k.cu".into();
    r.include_root = Some(folder.path().into());
    r.builtin_headers = std::sync::Arc::new(
        [(
            "warpsmith/c.cuh".to_owned(),
            "#pragma once\n__device__ inline float c(float x) { return x * 3 + threadIdx.x; }\n".to_owned(),
        )]
        .into(),
    );
    let first = compile(&compiler, &r).unwrap();
    assert!(first.ptx.contains("\"warpsmith/c.cuh\"") && first.ptx.contains("\"kernels/mine/k.cu\""), "{}", first.ptx);
    // A changed file is another artifact; another folder with the same files is not.
    std::fs::write(folder.path().join("b.cuh"), "__device__ inline float b() { return 4; }\n").unwrap();
    assert_ne!(compile(&compiler, &r).unwrap().ptx_sha256, first.ptx_sha256);
}

/// Words that stand in a file that no candidate may read.
const SECRET: &str = "k9x2_secret_words";

#[test]
fn hostile_includes_neither_succeed_nor_leak() {
    let Some(compiler) = toolkit("hostile_includes_neither_succeed_nor_leak") else { return };
    let outside = tempfile::tempdir().unwrap();
    let secret = outside.path().join("secret.h");
    std::fs::write(&secret, format!("{SECRET} here\n")).unwrap();
    let folder = outside.path().join("candidate");
    std::fs::create_dir(&folder).unwrap();
    let path = secret.to_string_lossy().replace('\\', "/");
    let mut rows = vec![
        format!("#include \"{path}\""),
        format!("#include <{path}>"),
        format!("#  include \\\n  \"{path}\""),
        "#include \"../secret.h\"".to_owned(),
        "#include \"sub/../../secret.h\"".to_owned(),
        format!("#define H \"{path}\"\n#include H"),
        format!("#define S(x) #x\n#define T(x) S(x)\n#include T({path})"),
        format!("%:include \"{path}\""),
        format!("#if __has_include(\"{path}\")\n#error {SECRET}\n#endif"),
        format!("#include_next \"{path}\""),
        format!("#embed \"{path}\""),
        "#include \"/dev/zero\"".to_owned(),
        "#include \"/proc/self/environ\"".to_owned(),
        format!("_Pragma(\"include_alias(\\\"a.h\\\", \\\"{path}\\\")\")\n#include \"a.h\""),
        format!("R\"x(\n)x\"\n#include \"{path}\""),
    ];
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(&secret, folder.join("link.h")).unwrap();
        std::os::unix::fs::symlink(outside.path(), folder.join("up")).unwrap();
        rows.push("#include \"link.h\"".to_owned());
        rows.push("#include \"up/secret.h\"".to_owned());
        let fifo = std::ffi::CString::new(folder.join("fifo.h").to_str().unwrap()).unwrap();
        // SAFETY: a plain system call.
        assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o600) }, 0);
        rows.push("#include \"fifo.h\"".to_owned());
    }
    std::fs::create_dir(folder.join("dir.h")).unwrap();
    rows.push("#include \"dir.h\"".to_owned());
    std::fs::write(folder.join("huge.h"), vec![b'\n'; 5 << 20]).unwrap();
    rows.push("#include \"huge.h\"".to_owned());
    for row in rows {
        let mut r = entry(request(&format!("{row}\n{SAXPY}")), "saxpy");
        r.include_root = Some(folder.clone());
        let failure = compile(&compiler, &r).expect_err(&row);
        let said = format!("{failure} {} {:?}", failure.log(), failure.diagnostic());
        assert!(!said.contains("secret_words here"), "{row}: {said}");
        assert!(!row.contains("include") || failure.diagnostic().line.is_some(), "{row}: {failure:?}");
    }
}

/// The fence by itself: what the resolver would have refused, asked of the compiler's process directly.
#[test]
#[cfg(target_os = "linux")]
fn the_compilers_process_reads_nothing_else() {
    let Some(compiler) = toolkit("the_compilers_process_reads_nothing_else") else { return };
    // A macro in a built-in header stands for whatever the resolver may one day overlook: the request is resolved by hand.
    let outside = tempfile::tempdir().unwrap();
    let secret = outside.path().join("secret.h");
    std::fs::write(&secret, format!("{SECRET} here\n")).unwrap();
    let source = format!("#include \"{}\"\n{SAXPY}", secret.display());
    let r = entry(request(&source), "saxpy");
    let result = compiler.compile_anew(&r, &Resolved::default()).unwrap();
    if !common::landlock() {
        eprintln!("skipped: this kernel has no Landlock");
        return;
    }
    let failure = result.unwrap_err();
    assert!(failure.to_string().contains("cannot open source file"), "{failure}");
    assert!(!failure.log().contains("secret_words here"), "{}", failure.log());
}

#[test]
fn limits_of_time_and_memory_hold() {
    let bomb = "template <int N> struct F { static constexpr int v = F<N - 1>::v + F<N - 2>::v; };\ntemplate <> struct F<0> { static constexpr int v = 1; };\ntemplate <> struct F<1> { static constexpr int v = 1; };\n\
        template <int A, int N> struct G { static constexpr int v = G<A * 2, N - 1>::v + G<A * 2 + 1, N - 1>::v; };\ntemplate <int A> struct G<A, 0> { static constexpr int v = A; };\n\
        extern \"C\" __global__ void saxpy(int* x) { x[0] = G<0, 26>::v; }\n";
    let limits = Limits { seconds: 2, ..Limits::default() };
    let Some(compiler) = with("limits_of_time_and_memory_hold", limits) else { return };
    let failure = compile(&compiler, &entry(request(bomb), "saxpy")).unwrap_err();
    assert!(matches!(failure, CompileFailure::Timeout { seconds: 2 } | CompileFailure::Memory { .. }), "{failure:?}");
    #[cfg(target_os = "linux")]
    {
        let limits = Limits { seconds: 60, memory_bytes: 400 << 20, ..Limits::default() };
        let Some(compiler) = with("limits_of_time_and_memory_hold", limits) else { return };
        let failure = compile(&compiler, &entry(request(bomb), "saxpy")).unwrap_err();
        assert!(matches!(failure, CompileFailure::Memory { .. }), "{failure:?}");
    }
}

#[test]
fn every_listed_option_is_taken() {
    let Some(compiler) = toolkit("every_listed_option_is_taken") else { return };
    let mut r = entry(request(&SAXPY.replace("a * x[i]", "a / x[i]")), "saxpy");
    let plain = compile(&compiler, &r).unwrap();
    r.options = CompileOptions {
        maxrregcount: Some(32),
        fast_math: true,
        ftz: Some(true),
        prec_div: Some(false),
        prec_sqrt: Some(false),
        fmad: Some(true),
        restrict: true,
        standard: Some(Standard::Cpp20),
        ptxas_level: Some(1),
    };
    let fast = compile(&compiler, &r).unwrap();
    assert!(plain.ptx.contains("div.rn.f32") && !fast.ptx.contains("div.rn.f32"));
    assert!(fast.entries[0].registers <= 32);
}

#[test]
fn a_target_that_the_toolkit_lacks_is_named() {
    let Some(compiler) = toolkit("a_target_that_the_toolkit_lacks_is_named") else { return };
    let mut r = entry(request(SAXPY), "saxpy");
    r.target = "sm_20".into();
    let failure = compile(&compiler, &r).unwrap_err();
    assert!(matches!(failure, CompileFailure::UnsupportedTarget { .. }), "{failure:?}");
    assert!(failure.to_string().contains("sm_89"));
    for target in ["sm_80", "sm_90a"] {
        r.target = target.into();
        compile(&compiler, &r).unwrap();
    }
}

#[test]
fn a_fresh_layer_is_fresh_and_a_changed_source_is_not() {
    let Some(compiler) = toolkit("a_fresh_layer_is_fresh_and_a_changed_source_is_not") else { return };
    let right = entry(request(SAXPY), "saxpy");
    let wrong = entry(request(&SAXPY.replace("int i =", "int i = =")), "saxpy");
    let mut builder = LayerBuilder::new(compiler.toolkit().id.clone());
    for r in [&right, &wrong] {
        builder.add(r, &compiler.compile(r).unwrap()).unwrap();
    }
    let layer = Layer::from_bytes(Box::leak(builder.finish().unwrap().into_boxed_slice())).unwrap();
    for r in [&right, &wrong] {
        assert_eq!(freshness(&layer, &compiler, r).unwrap(), None);
    }
    let found = layer.lookup(&right).unwrap().unwrap();
    assert!(found.cubin.is_none() && found.entry("saxpy").is_some());
    let mut changed = right.clone();
    changed.source.push('\n');
    assert_eq!(freshness(&layer, &compiler, &changed).unwrap(), Some(Difference::Absent));
}
