//! The PTX machine as a backend: launches share one memory, scalars take their parameter's width, and what goes wrong is told in
//! the words of tensors and of the plan.

use warpsmith_compile::{Artifact, BuildKind, EntryStats, ToolkitId};
use warpsmith_eval::backend::{Job, RunEnd, RunOutcome, Schedule};
use warpsmith_eval::values::{OutputSpec, Tensor, decode, encode};
use warpsmith_eval::{Backend, NumericsChoice, PtxMachine};
use warpsmith_spec::plan::{ResolvedArg, ResolvedLaunch, ResolvedPlan, ResolvedWorkspace, ScalarValue};
use warpsmith_spec::target;
use warpsmith_spec::words::DType;

/// `to[i] = from[i] * factor` for i below n.
const PTX: &str = r#"
.version 8.4
.target sm_89
.address_size 64
.visible .entry scale(
    .param .u64 p_from, .param .u64 p_to, .param .f32 p_factor, .param .u32 p_n)
{
    .reg .pred %p<2>;
    .reg .b32 %r<4>;
    .reg .f32 %f<4>;
    .reg .b64 %rd<8>;
    ld.param.u64 %rd1, [p_from];
    ld.param.u64 %rd2, [p_to];
    ld.param.f32 %f1, [p_factor];
    ld.param.u32 %r1, [p_n];
    mov.u32 %r2, %tid.x;
    setp.ge.u32 %p1, %r2, %r1;
    @%p1 bra DONE;
    cvta.to.global.u64 %rd3, %rd1;
    cvta.to.global.u64 %rd4, %rd2;
    mul.wide.u32 %rd5, %r2, 4;
    add.s64 %rd6, %rd3, %rd5;
    add.s64 %rd7, %rd4, %rd5;
    ld.global.f32 %f2, [%rd6];
    mul.f32 %f3, %f2, %f1;
    st.global.f32 [%rd7], %f3;
DONE:
    ret;
}
.visible .entry forever()
{
LOOP:
    bra LOOP;
}
"#;

fn tensor(n: usize) -> Tensor {
    let values: Vec<f32> = (0..n).map(|i| i as f32).collect();
    Tensor { name: "x".into(), dtype: DType::F32, shape: vec![n as u64 / 4, 4], bytes: encode(DType::F32, &values) }
}

fn step(entry: &str, args: Vec<ResolvedArg>) -> ResolvedLaunch {
    ResolvedLaunch {
        entry: entry.into(),
        grid: [1, 1, 1],
        block: [32, 1, 1],
        cluster: [1, 1, 1],
        shared_bytes: 0,
        cooperative: false,
        args,
        line: 5,
        args_line: 9,
        entry_line: 6,
    }
}

fn scale(from: ResolvedArg, to: ResolvedArg, factor: f64, n: i64) -> ResolvedLaunch {
    let scalar = |name: &str, value| ResolvedArg::Scalar { name: name.into(), value };
    step("scale", vec![from, to, scalar("factor", ScalarValue::Real(factor)), scalar("n", ScalarValue::Whole(n))])
}

fn x() -> ResolvedArg {
    ResolvedArg::Tensor("x".into())
}

fn out() -> ResolvedArg {
    ResolvedArg::Tensor("out".into())
}

fn middle() -> ResolvedArg {
    ResolvedArg::Workspace("middle".into())
}

fn run(launches: Vec<ResolvedLaunch>, zeroed: bool) -> RunOutcome {
    let artifact = Artifact {
        ptx: PTX.into(),
        ptx_sha256: "test".into(),
        cubin: None,
        entries: ["scale", "forever"]
            .map(|n| EntryStats { expression: n.into(), lowered: n.into(), ..EntryStats::default() })
            .to_vec(),
        warnings: Vec::new(),
        log: String::new(),
        toolkit: ToolkitId("none".into()),
        build: BuildKind::Release,
        target: "sm_89".into(),
    };
    let middle = ResolvedWorkspace { name: "middle".into(), dtype: DType::F32, shape: vec![16], bytes: 64, zeroed };
    let job = Job {
        artifact: &artifact,
        plan: &ResolvedPlan { launches, workspaces: vec![middle], tensor_maps: Vec::new() },
        target: target::find("sm_89").expect("a target"),
        inputs: &[tensor(16)],
        outputs: &[OutputSpec { name: "out".into(), dtype: DType::F32, shape: vec![4, 4] }],
        numerics: NumericsChoice::Faithful,
        schedule: Schedule { seed: 1, early_copies: false },
        max_instructions: 10_000,
    };
    PtxMachine::new(1).run(&job).expect("the machine works")
}

#[test]
fn launches_run_in_order_on_one_memory() {
    let r = run(vec![scale(x(), middle(), 2.0, 16), scale(middle(), out(), 0.5, 16)], false);
    assert_eq!((r.end, r.findings.len()), (RunEnd::Completed, 0));
    assert_eq!(decode(DType::F32, &r.outputs[0].bytes), (0..16).map(f64::from).collect::<Vec<_>>());
    assert!(r.outputs[0].defined.iter().all(|d| *d));
    assert_eq!(r.inputs[0].bytes, tensor(16).bytes);
    assert!(r.execution.warp_instructions > 20 && r.execution.covered_instructions > 0);
}

#[test]
fn what_is_not_written_is_known_and_what_is_changed_is_seen() {
    let r = run(vec![scale(x(), out(), 1.0, 3), scale(x(), x(), 3.0, 2)], false);
    assert_eq!(r.outputs[0].defined.iter().filter(|d| **d).count(), 12);
    assert_eq!(decode(DType::F32, &r.inputs[0].bytes)[1], 3.0);
}

#[test]
fn a_workspace_is_poisoned_unless_zeroed() {
    let poisoned = run(vec![scale(middle(), out(), 1.0, 16)], false);
    assert!(poisoned.findings.iter().any(|f| f.code == "uninitialized-read"), "{:?}", poisoned.findings);
    let zeroed = run(vec![scale(middle(), out(), 1.0, 16)], true);
    assert_eq!((zeroed.end, zeroed.findings.len()), (RunEnd::Completed, 0));
    assert!(decode(DType::F32, &zeroed.outputs[0].bytes).iter().all(|x| *x == 0.0));
}

#[test]
fn a_finding_names_tensor_and_element() {
    let r = run(vec![scale(x(), out(), 1.0, 17)], false);
    let f = r.findings.iter().find(|f| f.code == "out-of-bounds").expect("element 16 does not exist");
    assert_eq!(
        (f.kind.as_str(), f.tensor.as_deref(), f.index.clone(), f.lane),
        ("out_of_bounds", Some("x"), Some(vec![16]), Some(16))
    );
    assert_eq!(f.entry.as_deref(), Some("scale"));
}

#[test]
fn impossible_launches_are_rejected_with_their_line() {
    let mut shared = scale(x(), out(), 1.0, 4);
    shared.shared_bytes = 400_000;
    let mut short = scale(x(), out(), 1.0, 4);
    short.args.pop();
    let mut wide = scale(x(), out(), 1.0, 4);
    wide.args[3] = x();
    for (what, launch, code, word, line) in [
        ("too much shared memory", shared, "shared-memory-exceeded", "400000", 5),
        ("too few arguments", short, "argument-mismatch", "argument", 9),
        ("an address for a number", wide, "argument-mismatch", "argument", 9),
        ("no such entry", step("sdpa_fancy", Vec::new()), "missing-entry", "sdpa_fancy", 6),
    ] {
        match run(vec![launch], false).end {
            RunEnd::Rejected(f) => {
                assert_eq!((f.code.as_str(), f.line), (code, Some(line)), "{what}");
                assert!(f.message.contains(word), "{what}: {}", f.message);
            }
            other => panic!("{what} ended as {other:?}"),
        }
    }
}

#[test]
fn a_loop_without_end_reaches_the_limit() {
    let r = run(vec![step("forever", Vec::new())], false);
    assert!(matches!(r.end, RunEnd::LimitReached { limit: 10_000, .. }), "{:?}", r.end);
    assert!(r.outputs.is_empty());
}
