//! The language by small texts: one row for each form, left as written, right as the tree prints it.

mod support;

use support::{kernel, printed, with_header};
use warpsmith_ptx::ast::{Loc, Space, Ty};

/// Instructions of one kernel body (registers %r %rd %p %f and parameter n) and how they print.
const BODIES: &[(&str, &[&str])] = &[
    ("ret;", &["ret"]),
    ("@%p1 exit; @!%p2 ret;", &["@%p1 exit", "@!%p2 ret"]),
    ("ld.param.u64 %rd1, [n];", &["ld.param.u64 %rd1, [n]"]),
    ("ld.global.nc.v4.f32 {%f0,%f1, %f2 ,_}, [%rd1+16];", &["ld.global.nc.v4.f32 {%f0, %f1, %f2, _}, [%rd1+16]"]),
    (
        "st.shared::cta.b32 [%r1+-4], 0x10; st.b32 [%r1 - 4], -1; st.b32 [64], 07; st.b32 [%r1+4+8], 0b101U;",
        &["st.shared::cta.b32 [%r1-4], 16", "st.b32 [%r1-4], -1", "st.b32 [64], 7", "st.b32 [%r1+12], 5"],
    ),
    (
        "mov.f32 %f1, 0f3F800000; mov.f32 %f1, 0F3f800000; mov.f64 %rd1, 0d3FF0000000000000; mov.f32 %f1, -0f3F800000;",
        &[
            "mov.f32 %f1, 0f3F800000",
            "mov.f32 %f1, 0f3F800000",
            "mov.f64 %rd1, 0d3FF0000000000000",
            "mov.f32 %f1, 0fBF800000",
        ],
    ),
    (
        "createpolicy.fractional.L2::evict_last.b64 %rd1, 0.5; mov.f64 %rd1, 1e-3;",
        &["createpolicy.fractional.L2::evict_last.b64 %rd1, 0d3FE0000000000000", "mov.f64 %rd1, 0d3F50624DD2F1A9FC"],
    ),
    (
        "mov.u64 %rd1, 0xFFFFFFFFFFFFFFFF; mov.u64 %rd1, 18446744073709551615; mov.s64 %rd1, -9223372036854775808;",
        &["mov.u64 %rd1, -1", "mov.u64 %rd1, -1", "mov.s64 %rd1, -9223372036854775808"],
    ),
    (
        "mov.b32 %r1, (1 << 4) | 3; mov.b32 %r1, ~0 & 0xff; mov.b32 %r1, 7 - 2 - 1; mov.b32 %r1, 2 + 3 * 4; mov.b32 %r1, (.s64) 5; mov.b32 %r1, 1 ? 2 : 3;",
        &[
            "mov.b32 %r1, 19",
            "mov.b32 %r1, 255",
            "mov.b32 %r1, 4",
            "mov.b32 %r1, 14",
            "mov.b32 %r1, 5",
            "mov.b32 %r1, 2",
        ],
    ),
    (
        "mov.u32 %r1, %tid.x; mov.u32 %r1, %laneid; mov.u32 %r1, WARP_SZ; mov.u32 %r1, %envreg3; mov.u64 %rd1, %clock64;",
        &[
            "mov.u32 %r1, %tid.x",
            "mov.u32 %r1, %laneid",
            "mov.u32 %r1, WARP_SZ",
            "mov.u32 %r1, %envreg3",
            "mov.u64 %rd1, %clock64",
        ],
    ),
    (
        "shfl.sync.bfly.b32 %r1|%p1, %r2, 1, 31, -1; elect.sync _|%p1, -1; setp.lt.and.s32 %p0|%p1, %r1, 5, !%p2;",
        &[
            "shfl.sync.bfly.b32 %r1|%p1, %r2, 1, 31, -1",
            "elect.sync _|%p1, -1",
            "setp.lt.and.s32 %p0|%p1, %r1, 5, !%p2",
        ],
    ),
    (
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%r1], [%rd1, {%r2, 0}], [%r3], %rd2;",
        &[
            "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%r1], [%rd1, {%r2, 0}], [%r3], %rd2",
        ],
    ),
    (
        "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%f0,%f1,%f2,%f3}, {%r0,%r1,%r2,%r3}, {%r4,%r5}, {%f0,%f1,%f2,%f3};",
        &[
            "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%f0, %f1, %f2, %f3}, {%r0, %r1, %r2, %r3}, {%r4, %r5}, {%f0, %f1, %f2, %f3}",
        ],
    ),
    // Backward, forward, to the end, and out of a scope.
    ("A: bra B; { bra.uni A; @%p1 bra C; } B: C:", &["bra #3", "bra.uni #0", "@%p1 bra #3"]),
    // Scopes repeat labels and registers; the inner ones hide the outer.
    (
        "{ .reg .pred P; L: @P bra L; } { .reg .pred P; L: @P bra L; bra D; D: } mov.b32 %r1, 1;",
        &["@P bra #0", "@P bra #1", "bra #3", "mov.b32 %r1, 1"],
    ),
    ("L: { bra L; L: ret; } bra L;", &["bra #1", "ret", "bra #0"]),
    (
        "{ .param .b64 param0; st.param.b64 [param0+0], %rd1; } { .param .b64 param0; st.param.b64 [param0], %rd1; }",
        &["st.param.b64 [param0], %rd1", "st.param.b64 [param0@2], %rd1"],
    ),
    (".reg .v2 .b32 v; mov.b32 v.y, %r1; st.v2.b32 [%rd1], v;", &["mov.b32 v.y, %r1", "st.v2.b32 [%rd1], {v.x, v.y}"]),
    (".reg .b32 a<3>, b, a12; add.s32 a0, a2, a12;", &["add.s32 a0, a2, a12"]),
    ("T: .branchtargets A, B, A; brx.idx %r1, T; A: ret; B: exit;", &["brx.idx %r1, T", "ret", "exit"]),
    ("brx.idx %r1, T; A: ret; T: .branchtargets A;", &["brx.idx %r1, T", "ret"]),
    (
        "p0: .callprototype (.param .b32 _) _ (.param .b64 _, .param .align 8 .b8 _[16]); { .param .b32 r; .param .b64 a; call (r), %rd1, (a), p0; }",
        &["call (r), %rd1, (a), p0"],
    ),
    ("bar.sync 0; // a comment ; } \n/* and\n} another */ bar.sync 1;;", &["bar.sync 0", "bar.sync 1"]),
    (
        ".pragma \"nounroll\"; .local .align 8 .b8 d[8]; mov.u64 %rd1, d; mov.u64 %rd1, d+4; cvta.local.u64 %rd1, %rd1;",
        &["mov.u64 %rd1, d", "mov.u64 %rd1, d+4", "cvta.local.u64 %rd1, %rd1"],
    ),
];

#[test]
fn instructions_print_as_expected() {
    for (body, expected) in BODIES {
        let module = kernel(body).unwrap_or_else(|why| panic!("{body}: {why}"));
        assert_eq!(printed(&module), *expected, "{body}");
    }
}

#[test]
fn module_variables_have_their_sizes_and_contents() {
    // (declaration, space, type, align, bytes, initial bytes, symbols)
    type Row = (&'static str, Space, Ty, u32, u64, &'static [u8], &'static [(u64, &'static str, i64)]);
    let rows: &[Row] = &[
        (".global .align 4 .u32 x = 80;", Space::Global, Ty::U32, 4, 4, &[80, 0, 0, 0], &[]),
        (".visible .global .b8 x[3] = {1, -1};", Space::Global, Ty::B8, 1, 3, &[1, 255], &[]),
        (".const .f32 x[2] = {0f3F800000, 2.0};", Space::Const, Ty::F32, 4, 8, &[0, 0, 128, 63, 0, 0, 0, 64], &[]),
        (".const .f64 x = 1;", Space::Const, Ty::F64, 8, 8, &[0, 0, 0, 0, 0, 0, 240, 63], &[]),
        (".global .v4 .b8 x = {1, 2, 3, 4};", Space::Global, Ty::B8, 4, 4, &[1, 2, 3, 4], &[]),
        (".global .s16 x[2][3] = {{1}, {2, 3}};", Space::Global, Ty::S16, 2, 12, &[1, 0, 0, 0, 0, 0, 2, 0, 3, 0], &[]),
        (".global .s8 x[] = {1, 2, 3};", Space::Global, Ty::S8, 1, 3, &[1, 2, 3], &[]),
        (".global .b8 x[4] = \"ab\";", Space::Global, Ty::B8, 1, 4, &[97, 98, 0], &[]),
        (".extern .shared .align 1024 .b8 x[];", Space::Shared, Ty::B8, 1024, 0, &[], &[]),
        (".shared .b32 x[4 * 8];", Space::Shared, Ty::B32, 4, 128, &[], &[]),
        (".global .attribute(.managed) .align 8 .b64 x;", Space::Global, Ty::B64, 8, 8, &[], &[]),
        (".global .texref x;", Space::Global, Ty::B64, 8, 8, &[], &[]),
        (
            ".global .u64 x[3] = {5, generic(y)+12, y - 4};",
            Space::Global,
            Ty::U64,
            8,
            24,
            &[5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            &[(8, "y", 12), (16, "y", -4)],
        ),
        (
            ".global .u8 x[9] = {1, 0xFF(generic(y)+4), 0xFF00(generic(y)+4), 0xFF0000(generic(y)+4), 0xFF000000(generic(y)+4), 0xFF00000000(generic(y)+4), 0xFF0000000000(generic(y)+4), 0xFF000000000000(generic(y)+4), 0xFF00000000000000(generic(y)+4)};",
            Space::Global,
            Ty::U8,
            1,
            9,
            &[1, 0, 0, 0, 0, 0, 0, 0, 0],
            &[(1, "y", 4)],
        ),
    ];
    for (text, space, ty, align, bytes, init, symbols) in rows {
        let module = warpsmith_ptx::parse(&with_header(text)).unwrap_or_else(|why| panic!("{text}: {why}"));
        let x = &module.variables[0];
        assert_eq!((x.space, x.ty, x.align, x.bytes), (*space, *ty, *align, *bytes), "{text}");
        assert_eq!(x.init, *init, "{text}");
        let found: Vec<_> = x.init_symbols.iter().map(|(at, name, add)| (*at, name.as_str(), *add)).collect();
        assert_eq!(found, *symbols, "{text}");
    }
}

#[test]
fn parameters_keep_their_own_alignment() {
    let text = with_header(
        ".entry k(.param .u64 .ptr .global .align 1 a, .param .align 64 .b8 b[128], .param .f32 c)\n\
         .maxntid 128, 1, 1 .minnctapersm 2 .explicitcluster .reqnctapercluster 2, 1, 1 .pragma \"x\";\n{ ret; }",
    );
    let module = warpsmith_ptx::parse(&text).expect("it is PTX");
    let k = &module.functions[0];
    let params: Vec<_> = k.params.iter().map(|p| (p.name.as_str(), p.align, p.bytes)).collect();
    assert_eq!(params, [("a", 8, 8), ("b", 64, 128), ("c", 4, 4)]);
    let directives: Vec<_> = k.directives.iter().map(|(name, n)| (name.as_str(), n.as_slice())).collect();
    let expected: &[(&str, &[u64])] = &[
        ("maxntid", &[128, 1, 1]),
        ("minnctapersm", &[2]),
        ("explicitcluster", &[]),
        ("reqnctapercluster", &[2, 1, 1]),
        ("pragma x", &[]),
    ];
    assert_eq!(directives, expected);
}

#[test]
fn a_definition_completes_its_declaration_and_an_alias_is_resolved() {
    let text = with_header(
        ".extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);\n\
         .weak .func f(.param .b32 x);\n.visible .func g();\n.alias g, f;\n.global .u64 table = g;\n\
         .entry k() { .param .b32 p; call f, (p); call.uni g, (p); ret; }\n\
         .func f(.param .b32 x) .noreturn { ret; }",
    );
    let module = warpsmith_ptx::parse(&text).expect("it is PTX");
    let functions: Vec<_> = module.functions.iter().map(|f| (f.name.as_str(), f.has_body)).collect();
    assert_eq!(functions, [("vprintf", false), ("f", true), ("g", false), ("k", true)]);
    let k = &module.functions[3];
    let calls: Vec<_> = k.instructions.iter().map(|i| support::print(k, i)).collect();
    assert_eq!(calls, ["call f, (p)", "call.uni f, (p)", "ret"]);
    assert_eq!(module.variables[0].init_symbols, [(0, "f".to_string(), 0)]);
}

#[test]
fn a_local_that_hides_a_module_variable_gets_its_own_name() {
    let text = with_header(".shared .b32 x;\n.entry k() { .shared .b32 x; .reg .b64 d; mov.u64 d, x; ret; }");
    let module = warpsmith_ptx::parse(&text).expect("it is PTX");
    assert_eq!(printed(&module)[0], "mov.u64 d, x@2");
    assert_eq!(module.functions[0].variables[0].name, "x@2");
}

#[test]
fn branch_tables_are_instruction_indices() {
    let module = kernel("T: .branchtargets A, B, A; brx.idx %r1, T; A: ret; B: exit;").expect("PTX");
    assert_eq!(module.functions[0].branch_targets["T"], [1, 2, 1]);
}

#[test]
fn locations_follow_inlining_outwards() {
    let body = ".loc 1 50 0\nret;\n\
         .loc 1 20 9, function_name $L__info_string0, inlined_at 1 52 9\nret;\n\
         .loc 2 1684 13, function_name $L__info_string1+16, inlined_at 1 20 9\nret;\n\
         .loc 2 483 5, function_name $L__info_string2, inlined_at 2 1684 13\nret;\n\
         .loc 2 0 3, function_name $L__info_string2, inlined_at 2 1684 13\nret;\n\
         .loc 1 0 3\nret;\n\
         .loc 3 7 7, function_name $L__info_string2, inlined_at 3 7 7\nret;";
    let at = |file, line, column| Loc { file, line, column };
    let call = at(1, 52, 9);
    let inner = at(1, 20, 9);
    let deep = at(2, 1684, 13);
    let rows = [
        (Some(at(1, 50, 0)), vec![]),
        (Some(inner), vec![call]),
        (Some(deep), vec![inner, call]),
        (Some(at(2, 483, 5)), vec![deep, inner, call]),
        // Line 0 is the compiler's own: its call site stands for it.
        (Some(deep), vec![inner, call]),
        (None, vec![]),
        (Some(at(3, 7, 7)), vec![at(3, 7, 7)]),
    ];
    let module = kernel(body).expect("PTX");
    for (i, (loc, inlined_at)) in module.functions[0].instructions.iter().zip(rows) {
        assert_eq!((i.loc, &i.inlined_at), (loc, &inlined_at), "PTX line {}", i.ptx_line);
    }
}

#[test]
fn debug_information_is_skipped() {
    let text = with_header(
        ".entry k() { L: ret; }\n.file 1 \"a b.cu\", 1700000000, 42\n.file 2 \"c.h\"\n@@DWARF .byte { ( 1\n\
         .section .debug_info {\n.b64 L\n$x:\n.b32 .debug_abbrev\n.b32 $a-$b // }\n.b8 1, 2\n}\n.section .empty { }",
    );
    let module = warpsmith_ptx::parse(&text).expect("PTX");
    let files: Vec<_> = module.files.iter().map(|(n, path)| (*n, path.as_str())).collect();
    assert_eq!(files, [(1, "a b.cu"), (2, "c.h")]);
    assert_eq!((module.version, module.target.as_str()), ((8, 5), "sm_89"));
}
