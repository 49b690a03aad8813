//! Sweeps, settings, workloads, and plans resolved to numbers.

mod common;
use common::{PLAIN, tasks};
use warpsmith_spec::plan::Parameter;
use warpsmith_spec::workload::expand;
use warpsmith_spec::*;

const FAMILY: &str = r#"//! task = "fp16_sdpa"
//! targets = ["sm_80", "sm_89", "sm_90"]
//! constraints = ["D == 64 || D == 128"]
//! defines = ["D", "causal"]
//! [levers]
//! USE_SWIZZLE = [1]
//! [[config]]
//! name = "16x64x4x2"
//! set = { BLOCK_M = 16, BLOCK_N = 64, WARPS = 4, STAGES = 2 }
//! [[config]]
//! name = "32x64x4x1"
//! set = { BLOCK_M = 32, BLOCK_N = 64, WARPS = 4, STAGES = 1 }
//! [[config]]
//! name = "32x64x4x2"
//! set = { BLOCK_M = 32, BLOCK_N = 64, WARPS = 4, STAGES = 2 }
//! [[config]]
//! name = "32x32x4x2"
//! set = { BLOCK_M = 32, BLOCK_N = 32, WARPS = 4, STAGES = 2 }
//! [[config]]
//! name = "48x64x8x2"
//! set = { BLOCK_M = 48, BLOCK_N = 64, WARPS = 8, STAGES = 2 }
//! [compile]
//! fast_math = true
//! [[launch]]
//! entry = "sdpa_fp16<BLOCK_M, BLOCK_N>"
//! grid = ["ceil_div(S, BLOCK_M)", "B * H"]
//! block = ["32 * WARPS"]
//! shared_bytes = "2 * BLOCK_N * D * STAGES * 2"
//! args = ["q", "k", "v", "out", "softmax_scale", "S"]
"#;

const TILED: &str = r#"//! task = "fp8_sdpa"
//! constraints = ["D == 64", "BLOCK_M * BLOCK_N <= 1024"]
//! targets = ["sm_89", "sm_90"]
//! formats = ["e4m3", "e5m2"]
//! defines = ["D", "format"]
//! [levers]
//! BLOCK_M = [32, 64]
//! BLOCK_N = [32, 16]
//! LAYOUT = ["row", "swizzled"]
//! MAXREG = [64, 128]
//! [compile]
//! maxrregcount = "MAXREG"
//! fmad = false
//! [workspace.partial]
//! dtype = "f32"
//! shape = ["B * H", "ceil_div(S, 96)", "S", "66"]
//! [workspace.counter]
//! dtype = "u32"
//! shape = [1]
//! init = "zero"
//! [[launch]]
//! entry = "attend"
//! grid = ["ceil_div(S, BLOCK_M)", "min(SM_COUNT, B * H)"]
//! block = [32, 4]
//! shared_bytes = "4 * (BLOCK_M * 65 + 2 * BLOCK_N * 65 + BLOCK_M * (BLOCK_N + 1) + 2 * BLOCK_M)"
//! args = ["q", "k", "v", "q_scale", "k_scale", "partial", "counter", "softmax_scale", "S", "2 * S", 1, 0.5, "BLOCK_N", "causal"]
//! [[launch]]
//! entry = "combine"
//! grid = ["ceil_div(S, 4)", "B * H"]
//! block = [64, 4]
//! args = ["partial", "v_scale", "out", "S"]
"#;

fn candidate(text: &str) -> Candidate {
    Candidate::parse("mine.cu", text.as_bytes(), &tasks()).unwrap()
}

fn sm(name: &str) -> &'static target::Target {
    target::find(name).unwrap()
}

fn workloads(c: &Candidate, shapes: &[&str]) -> Vec<Workload> {
    let tasks = tasks();
    let request = WorkloadRequest { shapes: shapes.iter().map(|s| s.to_string()).collect(), ..Default::default() };
    expand(tasks.get(&c.task).unwrap(), c, &request).unwrap()
}

fn request(set: &[&str], config: Option<&str>, sweep: bool) -> LeverRequest {
    LeverRequest { set: set.iter().map(|s| s.to_string()).collect(), config: config.map(str::to_string), sweep }
}

#[test]
fn a_sweep_of_configurations_yields_each_by_its_name() {
    let c = candidate(FAMILY);
    let names: Vec<_> = c.settings(&request(&[], None, true)).unwrap().into_iter().map(|s| s.config.unwrap()).collect();
    assert_eq!(names, ["16x64x4x2", "32x64x4x1", "32x64x4x2", "32x32x4x2", "48x64x8x2"]);
    assert_eq!(c.default_setting().config.as_deref(), Some("16x64x4x2"));
    let one = &c.settings(&request(&[], Some("48x64x8x2"), false)).unwrap()[0];
    let plan = c.resolve(tasks().get("fp16_sdpa").unwrap(), one, &workloads(&c, &["mission"])[0], sm("sm_89")).unwrap();
    assert_eq!((plan.launches[0].grid, plan.launches[0].block), ([11, 8, 1], [256, 1, 1]));
    assert_eq!(plan.launches[0].shared_bytes, 2 * 64 * 64 * 2 * 2);
}

#[test]
fn a_sweep_of_levers_is_their_product_less_what_constraints_exclude() {
    let c = candidate(TILED);
    let all = c.settings(&request(&[], None, true)).unwrap();
    assert_eq!(all.len(), (4 - 1) * 2 * 2, "32x32, 32x16, 64x16 are at most 1024; 64x32 is not");
    let pinned = c.settings(&request(&["BLOCK_M=64", "LAYOUT=swizzled"], None, true)).unwrap();
    assert_eq!(pinned.len(), 2);
    assert!(pinned.iter().all(|s| s.levers["BLOCK_N"] == LeverValue::Int(16)));
    let default = &c.settings(&LeverRequest::default()).unwrap()[0];
    assert_eq!(default, &c.default_setting());
    assert_eq!(default.levers["BLOCK_M"], LeverValue::Int(32));
    // Chosen by hand, an excluded combination is not applicable, with the constraint quoted.
    let wrong = &c.settings(&request(&["BLOCK_M=64"], None, false)).unwrap()[0];
    let why = c.applicable(wrong, &workloads(&c, &["tiny"])[0], sm("sm_89")).unwrap_err();
    assert!(why.contains("BLOCK_M * BLOCK_N <= 1024") && why.contains("BLOCK_M = 64"), "{why}");
}

#[test]
fn what_people_choose_has_to_exist() {
    let c = candidate(TILED);
    for (set, config, words) in [
        (&["NOPE=1"][..], None, &["NOPE", "BLOCK_M"][..]),
        (&["BLOCK_M=48"], None, &["BLOCK_M", "48", "32, 64"]),
        (&["BLOCK_M"], None, &["NAME=VALUE"]),
        (&["=3"], None, &["NAME=VALUE"]),
        (&["BLOCK_M=99999999999999999999"], None, &["99999999999999999999"]),
        (&["BLOCK_M=32", "BLOCK_M=64"], None, &["twice"]),
        (&["BLOCK_M=\u{1b}[31m"], None, &["BLOCK_M"]),
        (&[], Some("nope"), &["nope", "none"]),
    ] {
        let e = c.settings(&request(set, config, false)).unwrap_err();
        let said = format!("{} {}", e.message, e.hint.unwrap_or_default());
        assert!(words.iter().all(|w| said.contains(w)), "{said}");
        assert_eq!(e.code, SpecCode::UnknownName);
        assert!(!said.contains('\u{1b}'));
    }
    let e = candidate(FAMILY).settings(&request(&[], Some("nope"), false)).unwrap_err();
    assert!(e.message.contains("nope") && e.hint.unwrap().contains("48x64x8x2"));
}

#[test]
fn setting_a_lever_of_a_configuration_takes_its_name_away() {
    let c = candidate(FAMILY);
    let s = &c.settings(&request(&["BLOCK_N=32"], None, false)).unwrap()[0];
    assert_eq!(s.config, None);
    let s = &c.settings(&request(&["BLOCK_M=32", "STAGES=1"], None, false)).unwrap()[0];
    assert_eq!(s.config.as_deref(), Some("32x64x4x1"));
}

#[test]
fn a_plan_becomes_numbers() {
    let c = candidate(TILED);
    let task = tasks();
    let task = task.get("fp8_sdpa").unwrap();
    let w = workloads(&c, &["1x3x100x64"]);
    assert_eq!(w.len(), 2, "causal stands among the arguments, so both masks");
    let plan = c.resolve(task, &c.default_setting(), &w[1], sm("sm_89")).unwrap();
    let [attend, combine] = &plan.launches[..] else { panic!("two launches") };
    assert_eq!((attend.grid, attend.block, attend.cluster), ([4, 3, 1], [32, 4, 1], [1, 1, 1]));
    assert_eq!(combine.grid, [25, 3, 1]);
    assert_eq!(plan.workspaces[0].shape, [3, 2, 100, 66]);
    assert_eq!(plan.workspaces[0].bytes, 3 * 2 * 100 * 66 * 4);
    assert!(!plan.workspaces[0].zeroed && plan.workspaces[1].zeroed);
    let scalars: Vec<_> = attend
        .args
        .iter()
        .filter_map(|a| match a {
            ResolvedArg::Scalar { name, value } => Some((name.as_str(), *value)),
            _ => None,
        })
        .collect();
    assert_eq!(
        scalars,
        [
            ("softmax_scale", ScalarValue::Real(0.125)),
            ("S", ScalarValue::Whole(100)),
            ("2 * S", ScalarValue::Whole(200)),
            ("1", ScalarValue::Whole(1)),
            ("0.5", ScalarValue::Real(0.5)),
            ("BLOCK_N", ScalarValue::Whole(32)),
            ("causal", ScalarValue::Whole(1)),
        ]
    );
    assert_eq!(attend.args[5], ResolvedArg::Workspace("partial".into()));
    assert_eq!(combine.args[1], ResolvedArg::Tensor("v_scale".into()));
    let options = c.options_for(&c.default_setting());
    assert_eq!(
        (options.maxrregcount, options.flags),
        (Some(64), vec!["--maxrregcount=64".to_string(), "--fmad=false".to_string()])
    );
    let defines = c.defines_for(&c.default_setting(), &w[0]);
    for (name, value) in [
        ("WS_D", "64"),
        ("WS_FORMAT", "WS_E4M3"),
        ("WS_E4M3", "1"),
        ("WS_E5M2", "2"),
        ("BLOCK_M", "32"),
        ("LAYOUT", "row"),
    ] {
        assert!(defines.contains(&(name.to_string(), value.to_string())), "{name}={value} in {defines:?}");
    }
}

#[test]
fn what_no_launch_can_be_is_a_problem_of_the_plan_and_not_of_the_file() {
    let rows = [
        ("ceil_div(S, 64)", "S - S", "grid"),
        ("ceil_div(S, 64)", "S - 100", "grid"),
        ("ceil_div(S, 64)", "S / (S - S)", "grid"),
        ("ceil_div(S, 64)", "S % (S - 32)", "grid"),
        ("ceil_div(S, 64)", "S * 9223372036854775807", "grid"),
        ("ceil_div(S, 64)", "S ** 40", "grid"),
        ("ceil_div(S, 64)", "S << 70", "grid"),
        ("ceil_div(S, 64)", "S * 100000000", "2147483647"),
        ("\"B * H\"", "\"S * 100000\"", "65535"),
        ("[64]", "[\"S * S + 1\"]", "1024"),
        ("[64]", "[\"S\", \"S\", \"S\"]", "1024"),
        ("block = [64]", "block = [64]\n//! shared_bytes = \"S - 100\"", "shared_bytes"),
        ("block = [64]", "block = [64]\n//! cluster = [3]", "cluster"),
        ("\"softmax_scale\", \"S\"", "\"softmax_scale\", \"1 / (S - S)\"", "argument"),
    ];
    for (from, to, word) in rows {
        let text = PLAIN.replace(from, to);
        assert_ne!(text, PLAIN, "{to}");
        let c = candidate(&text);
        let w = &workloads(&c, &["tiny"])[0];
        let problem = c.resolve(tasks().get("fp8_sdpa").unwrap(), &c.default_setting(), w, sm("sm_89")).expect_err(to);
        assert!(problem.message.contains(word), "{to}: {}", problem.message);
        assert!(problem.line.is_some(), "{to}");
    }
}

#[test]
fn shared_memory_is_held_against_the_target() {
    let c = candidate(&PLAIN.replace("block = [64]", "block = [64]\n//! shared_bytes = \"400000\""));
    let w = &workloads(&c, &["tiny"])[0];
    let plan = c.resolve(tasks().get("fp8_sdpa").unwrap(), &c.default_setting(), w, sm("sm_89")).unwrap();
    let problem = plan.launches[0].fits(sm("sm_90"), 0).unwrap_err();
    assert!(problem.message.contains("400000"), "{}", problem.message);
    assert_eq!(problem.limit.as_deref(), Some("232448"));
}

#[test]
fn arguments_have_to_fit_the_entry() {
    let c = candidate(PLAIN);
    let w = &workloads(&c, &["tiny"])[0];
    let plan = c.resolve(tasks().get("fp8_sdpa").unwrap(), &c.default_setting(), w, sm("sm_89")).unwrap();
    let launch = &plan.launches[0];
    let fit = |bytes: &[usize]| {
        launch.fits_parameters("mine.cu", &bytes.iter().map(|b| Parameter { bytes: *b, align: *b }).collect::<Vec<_>>())
    };
    assert_eq!(fit(&[8, 8, 8, 8, 8, 8, 8, 4, 4]), Ok(()));
    assert_eq!(fit(&[8, 8, 8, 8, 8, 8, 8, 8, 8]), Ok(()), "a scalar takes the parameter's width");
    for (bytes, words) in [
        (&[8, 8, 8, 8, 8, 8, 8, 8, 4, 4][..], &["takes 10 arguments", "gives 9", "softmax_scale"][..]),
        (&[4, 8, 8, 8, 8, 8, 8, 4, 4], &["argument 1", "`q`", "4 bytes"]),
        (&[8, 8, 8, 8, 8, 8, 8, 2, 4], &["argument 8", "softmax_scale"]),
        (&[8, 8, 8, 8, 8, 8, 8, 4, 128], &["argument 9", "`S`"]),
    ] {
        let e = fit(bytes).unwrap_err();
        assert_eq!((e.code, e.line), (SpecCode::ArgumentMismatch, Some(8)));
        assert!(words.iter().all(|w| e.message.contains(w)), "{}", e.message);
    }
    let e = launch.missing_entry("mine.cu", &["sdpa_plane"]);
    assert!(e.message.contains("sdpa_plain") && e.message.contains("sdpa_plane"), "{}", e.message);
}

#[test]
fn scalars_take_the_width_of_the_parameter() {
    for (value, bytes, want) in [
        (ScalarValue::Whole(-1), 4, Some(vec![255; 4])),
        (ScalarValue::Whole(4_000_000_000), 4, Some(4_000_000_000u32.to_le_bytes().to_vec())),
        (ScalarValue::Whole(1 << 40), 4, None),
        (ScalarValue::Whole(-1), 8, Some(vec![255; 8])),
        (ScalarValue::Whole(1), 1, Some(vec![1])),
        (ScalarValue::Whole(256), 1, None),
        (ScalarValue::Whole(1), 3, None),
        (ScalarValue::Real(0.5), 4, Some(0.5f32.to_le_bytes().to_vec())),
        (ScalarValue::Real(0.5), 8, Some(0.5f64.to_le_bytes().to_vec())),
        (ScalarValue::Real(0.5), 2, None),
    ] {
        assert_eq!(value.encode(bytes).ok(), want, "{value:?} in {bytes}");
    }
}

#[test]
fn not_applicable_says_why() {
    let c = candidate(PLAIN);
    let target = sm("sm_89");
    let s = c.default_setting();
    let w = workloads(&c, &["tiny", "wide"]);
    assert_eq!(w.len(), 2, "no mask where the candidate does not take causal");
    assert_eq!(c.applicable(&s, &w[0], target), Ok(()));
    assert!(c.applicable(&s, &w[1], target).unwrap_err().contains("D == 64"));
    for (w, word) in [
        (Workload { format: Format::E5m2, ..w[0].clone() }, "e5m2"),
        (Workload { scales: ScaleLayout::Block, ..w[0].clone() }, "block"),
        (Workload { causal: true, ..w[0].clone() }, "causal"),
    ] {
        let why = c.applicable(&s, &w, target).unwrap_err();
        assert!(why.contains(word), "{why}");
    }
}

#[test]
fn a_candidate_may_ask_for_a_stricter_limit_and_not_for_a_laxer_one() {
    use warpsmith_spec::task::Base;
    let tasks = tasks();
    let with = |task: &str, precision: &str| {
        let text = PLAIN.replace("fp8_sdpa", task).replace("\"q_scale\", \"k_scale\", \"v_scale\", ", "");
        let text = text.replace("//! [[launch]]", &format!("//! precision = \"{precision}\"\n//! [[launch]]"));
        Candidate::parse("mine.cu", text.as_bytes(), &tasks)
    };
    let c = with("fp8_sdpa", "f16").unwrap();
    let base = tasks.get("fp8_sdpa").unwrap().tolerance.base_for(c.precision);
    assert_eq!(base, Base::HonestAttention { p: Precision::F16, fold: 512 });
    assert!(with("fp8_sdpa", "e4m3").is_ok() && with("fp16_sdpa", "f16").is_ok());
    assert!(with("fp16_sdpa", "e4m3").unwrap_err().message.contains("laxer"));
}

#[test]
fn tensor_maps_take_their_sizes_from_the_tensor() {
    let text = PLAIN
        .replace("\"k\", \"v\"", "\"k_map\", \"v\"")
        .replace("//! [[launch]]", "//! [tensor_maps.k_map]\n//! tensor = \"k\"\n//! box = [\"D\", 64, 1, 1]\n//! swizzle = \"CU_TENSOR_MAP_SWIZZLE_64B\"\n//! [[launch]]");
    let c = candidate(&text);
    let w = &workloads(&c, &["2x8x100x64"])[0];
    let tasks = tasks();
    let plan = c.resolve(tasks.get("fp8_sdpa").unwrap(), &c.default_setting(), w, sm("sm_90")).unwrap();
    let map = &plan.tensor_maps[0];
    assert_eq!((map.dims.clone(), map.strides.clone()), (vec![64, 100, 8, 2], vec![64, 6400, 51200]));
    assert_eq!((map.box_sizes.clone(), map.swizzle.as_str(), map.dtype), (vec![64, 64, 1, 1], "64B", DType::E4m3));
    assert_eq!(plan.launches[0].args[1], ResolvedArg::TensorMap("k_map".into()));
    let short = candidate(&text.replace("[\"D\", 64, 1, 1]", "[\"D\", 64]"));
    let problem = short.resolve(tasks.get("fp8_sdpa").unwrap(), &short.default_setting(), w, sm("sm_90")).unwrap_err();
    assert!(problem.message.contains("4 dimensions"), "{}", problem.message);
}
