//! The task `fp8_attention`: layouts, formats of outputs, optional outputs, tensors that a layout does not have; and structs by value.

mod common;
use common::tasks;
use warpsmith_spec::plan::{Parameter, ResolvedArg};
use warpsmith_spec::words::Layout;
use warpsmith_spec::workload::expand;
use warpsmith_spec::*;

const SHIPPED: &str = include_str!("../../../kernels/attention/hopper/gate_any_portable.cu");

fn candidate(text: &str) -> Result<Candidate, SpecError> {
    Candidate::parse("mine.cu", text.as_bytes(), &tasks())
}

fn workloads(c: &Candidate, request: &WorkloadRequest) -> Vec<Workload> {
    expand(tasks().get("fp8_attention").unwrap(), c, request).unwrap()
}

#[test]
fn workloads_are_what_the_candidate_takes() {
    let c = candidate(SHIPPED).unwrap();
    let tiny = WorkloadRequest { shapes: vec!["tiny".into()], ..WorkloadRequest::default() };
    let shown: Vec<String> = workloads(&c, &tiny).iter().map(|w| format!("{} {}", w.variant, w.mask())).collect();
    let want = [
        "out bf16, with lse none",
        "out bf16, with lse causal",
        "tokens, out bf16, with lse none",
        "tokens, out bf16, with lse causal",
    ];
    assert_eq!(shown, want);
    let asked = WorkloadRequest { layouts: vec![Layout::Paged], outs: vec![DType::E4m3], ..tiny };
    let w = &workloads(&c, &asked)[0];
    let why = c.applicable(&c.default_setting(), w, target::find("sm_89").unwrap()).unwrap_err();
    assert!(why.contains("dense, tokens, not paged"), "{why}");
    let blind = candidate(&SHIPPED.replace("value = \"lse\"", "value = 0")).unwrap();
    assert!(workloads(&blind, &asked)[0].variant.optional.is_empty());
}

/// Where no scales are asked for, the task's first are judged that the candidate takes.
#[test]
fn a_candidate_of_one_layout_of_scales_is_judged_in_that() {
    let c = candidate(SHIPPED).unwrap();
    let line = SHIPPED.lines().find(|l| l.starts_with("//! scales")).unwrap();
    let only = |scales: &str| candidate(&SHIPPED.replace(line, &format!("//! scales = [{scales}]"))).unwrap();
    let judged = |c: &Candidate| workloads(c, &WorkloadRequest::default())[0].scales;
    assert_eq!(judged(&c), ScaleLayout::Head);
    assert_eq!(judged(&only("\"block\", \"tensor\"")), judged(&only("\"tensor\", \"block\"")));
    assert_eq!(judged(&only("\"block\"")), ScaleLayout::Block);
    let asked = WorkloadRequest { scales: vec![ScaleLayout::Head], ..WorkloadRequest::default() };
    assert_eq!(workloads(&only("\"block\""), &asked)[0].scales, ScaleLayout::Head);
}

/// A kernel for one head dimension is judged at shapes of its own, unless others are asked for; what is no shape is an error of its line.
#[test]
fn a_candidate_may_name_its_shapes() {
    let named = |shapes: &str| SHIPPED.replacen("//! scales", &format!("//! shapes = {shapes}\n//! scales"), 1);
    let c = candidate(&named("[\"wide\", \"1x4x2x9x40x128\"]")).unwrap();
    let shapes = |request: &WorkloadRequest| {
        let mut found: Vec<String> = workloads(&c, request).into_iter().map(|w| w.shape).collect();
        found.dedup();
        found
    };
    assert_eq!(shapes(&WorkloadRequest::default()), ["wide", "1x4x2x9x40x128"]);
    let asked = WorkloadRequest { shapes: vec!["deep".into()], ..WorkloadRequest::default() };
    assert_eq!(shapes(&asked), ["deep"]);
    for wrong in ["[\"huge\"]", "[\"1x2x3\"]", "[\"wide\", \"wide\"]", "\"wide\""] {
        let e = candidate(&named(wrong)).unwrap_err();
        assert_eq!(e.line, Some(4), "{wrong}: {e}");
    }
}

#[test]
fn tensors_and_scalars_follow_the_layout() {
    let tasks = tasks();
    let task = tasks.get("fp8_attention").unwrap();
    let symbols = task.symbols_of(&task.shape("2x4x2x24x72x64").unwrap().sizes);
    let size = |name: &str, layout: Layout| {
        let axes = task::Axes { layout, scales: ScaleLayout::Head, out: Some(DType::Bf16), format: None };
        task.tensor_sizes(task.tensor(name).unwrap(), &symbols, axes).ok()
    };
    assert_eq!(size("k", Layout::Dense), Some(vec![2, 2, 72, 64]));
    assert_eq!(size("k", Layout::Tokens), Some(vec![2, 72, 2, 64]));
    assert_eq!(size("k", Layout::Paged), Some(vec![5, 64, 2, 64]));
    assert_eq!(size("out", Layout::Ragged), Some(vec![36, 4, 64]));
    assert_eq!(size("page_table", Layout::Paged), Some(vec![2, 2]));
    assert_eq!(size("page_table", Layout::Dense), None);
    assert_eq!((size("k_mean", Layout::Packed), size("k_mean", Layout::Dense)), (Some(vec![2, 2, 64]), None));
    // Where a candidate packs k itself there are no codes of it, and no scales of codes.
    let axes = task::Axes { layout: Layout::Wide, scales: ScaleLayout::Head, out: Some(DType::Bf16), format: None };
    let there = |name: &str| task.has_tensor(task.tensor(name).unwrap(), axes);
    let found = ["q", "q_scale", "k_wide", "k", "k_scale", "k_mean"].map(there);
    assert_eq!(found, [true, true, true, false, false, false]);
    assert!(task.shape("1x4x2x8x8x64").is_ok() && task.shape("1x8x64").is_err());
}

#[test]
fn a_struct_holds_what_its_fields_say() {
    let c = candidate(SHIPPED).unwrap();
    let tasks = tasks();
    let request = WorkloadRequest { shapes: vec!["tiny".into()], ..WorkloadRequest::default() };
    let w = &workloads(&c, &request)[0];
    let sm = target::find("sm_89").unwrap();
    let plan = c.resolve(tasks.get("fp8_attention").unwrap(), &c.default_setting(), w, sm).unwrap();
    let ResolvedArg::Struct { bytes, align, addresses, .. } = &plan.launches[0].args[0] else {
        panic!("{:?}", plan.launches[0].args)
    };
    let word = |at: usize| i32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let places: Vec<(u64, &str)> = addresses.iter().map(|a| (a.offset, a.of.as_str())).collect();
    assert_eq!((bytes.len(), *align, places.len()), (256, 8, 10));
    assert_eq!((places[0], places[7], places[9]), ((0, "q"), (56, "lse"), (72, "arrived")));
    // Hq, Sk, and the head's stride of k.
    assert_eq!((word(192), word(204), word(112)), (4, 72, 72 * 64));
    assert_eq!(f32::from_bits(word(220) as u32), std::f32::consts::LOG2_E / 8.0);
    let fits = |bytes, align| plan.launches[0].fits_parameters("mine.cu", &[Parameter { bytes, align }]);
    assert!(fits(256, 8).is_ok());
    assert!(fits(264, 8).unwrap_err().message.contains("a struct of 256 bytes, but the parameter has 264"));
    assert!(fits(256, 16).unwrap_err().message.contains("aligned to 16"));
}

#[test]
fn structs_that_cannot_be_are_refused_with_their_line() {
    for (from, to, word) in [
        ("bytes = 256", "bytes = 248", "ends at 256"),
        ("bytes = 256", "bytes = 5000", "4096"),
        ("align = 8", "align = 4", "aligned to 4 only"),
        ("align = 8", "align = 6", "power of two"),
        ("offset = 8, value = \"k\"", "offset = 0, value = \"k\"", "overlaps `q`"),
        ("offset = 8, value = \"k\"", "offset = 12, value = \"k\"", "multiple of its size"),
        ("name = \"k\", type = \"ptr\"", "name = \"k\", type = \"i64\"", "goes with the type ptr"),
        ("name = \"k\", type = \"ptr\"", "name = \"k\", type = \"f16\"", "\"ptr\", f32, f64"),
        ("value = \"k\" }", "value = \"keys\" }", "unknown argument `keys`"),
        ("value = \"k\" }", "value = 3 }", "goes with the type ptr"),
        ("[structs.p]", "[structs.q]", "has the name of something else"),
        ("args = [\"p\"]", "args = [\"pp\"]", "unknown argument `pp`"),
    ] {
        assert!(SHIPPED.contains(from), "{from}");
        let e = candidate(&SHIPPED.replacen(from, to, 1)).unwrap_err();
        assert!(e.to_string().contains(word) && e.line.is_some(), "{to}: {e}");
    }
}
