//! What `warpsmith new` writes is well-formed as it stands, or says what is left to do.

mod common;
use common::tasks;
use warpsmith_spec::words::Layout;
use warpsmith_spec::{Candidate, LeverRequest, Task, templates};

#[test]
fn the_kernel_template_is_a_candidate() {
    let text = templates::kernel("mine", "fp8_sdpa").unwrap();
    let c = Candidate::parse("mine.cu", text.as_bytes(), &tasks()).unwrap();
    assert_eq!((c.task.as_str(), c.entries(), c.takes_causal()), ("fp8_sdpa", vec!["mine"], true));
    assert_eq!(c.settings(&LeverRequest { sweep: true, ..Default::default() }).unwrap().len(), 2);
}

/// It takes all that the task has of codes with scales, so that there is only something to leave out.
#[test]
fn the_attention_template_takes_every_layout_scale_and_output() {
    let text = templates::kernel("mine", "fp8_attention").unwrap();
    let all = tasks();
    let c = Candidate::parse("mine.cu", text.as_bytes(), &all).unwrap();
    let task = all.get("fp8_attention").unwrap();
    assert_eq!((&c.task, c.takes_causal()), (&task.name, true));
    let layouts = task.layouts.iter().copied().filter(|l| !matches!(l, Layout::Packed | Layout::Wide));
    assert_eq!(c.layouts, layouts.collect::<Vec<_>>());
    assert_eq!((c.outs.len(), c.scales.len()), (task.outs.len(), task.scales.len()));
    assert!(c.names_tensor("lse") && c.names_tensor("page_table"));
}

#[test]
fn the_task_template_is_a_task_and_its_example_a_candidate() {
    let files = templates::task("scaled_sum").unwrap();
    let text = |name: &str| files.iter().find(|(n, _)| n == name).map(|(_, t)| t.clone());
    let mut all = tasks();
    all.insert(
        Task::parse("scaled_sum", "scaled_sum/task.toml", text("task.toml").unwrap().as_bytes(), &|f| text(f)).unwrap(),
    );
    assert_eq!(all.get("scaled_sum").unwrap().accept.len(), 2);
    let c = Candidate::parse("x.cu", text("examples/scaled_sum.cu").unwrap().as_bytes(), &all).unwrap();
    assert_eq!(c.task, "scaled_sum");
}

#[test]
fn the_examples_of_rms_norm_are_candidates() {
    for text in [
        include_str!("../../../tasks/rms_norm/examples/rms_norm.cu"),
        include_str!("../../../tasks/rms_norm/examples/rms_norm_mean.cu"),
    ] {
        let c = Candidate::parse("x.cu", text.as_bytes(), &tasks()).unwrap();
        assert_eq!(c.formats.len(), 1);
        assert!(!c.takes_causal());
    }
}

#[test]
fn front_matter_is_proposed_for_a_kernel_that_exists() {
    let source = "#include <cuda_fp16.h>\nextern \"C\" __global__ void __launch_bounds__(256) attend(const e4m3* Q, const e4m3* K, const e4m3* V, const float* q_descale,\n  const float* k_descale, const float* v_descale, __half* O, float* partial, float sm_scale, int seqlen, bool is_causal) {}\n";
    let text = templates::kernel_from("mine", "attend.cu", source.as_bytes()).unwrap();
    assert!(text.ends_with(source), "the source stays as it is");
    let c = Candidate::parse("mine.cu", text.as_bytes(), &tasks()).unwrap_or_else(|e| panic!("{e}\n{text}"));
    assert_eq!(c.task, "fp8_sdpa");
    assert!(c.takes_causal() && text.contains("block = [256]") && c.plan.workspaces[0].name == "partial");

    let half =
        "extern \"C\" __global__ void f(const __half* q, const __half* k, const __half* v, __half* o, int strange) {}";
    let text = templates::kernel_from("mine", "f.cu", half.as_bytes()).unwrap();
    let e = Candidate::parse("mine.cu", text.as_bytes(), &tasks()).unwrap_err();
    assert!(text.contains("fp16_sdpa") && e.message.contains("strange"), "{e}\n{text}");

    let other =
        templates::kernel_from("mine", "f.cu", b"__global__ void axpy(float a, const float* x, float* y, int n) {}")
            .unwrap();
    let e = Candidate::parse("mine.cu", other.as_bytes(), &tasks()).unwrap_err();
    assert!(
        e.message.contains("unknown task `mine`") && other.contains("args = [\"a\", \"x\", \"y\", \"n\"]"),
        "{e}\n{other}"
    );

    for (source, word) in [
        (&b"int x;"[..], "__global__"),
        (b"\xff\xfe", "UTF-8"),
        (b"//! task = \"x\"\n__global__ void f() {}", "already"),
        (b"", "__global__"),
    ] {
        let e = templates::kernel_from("mine", "f.cu", source).unwrap_err();
        assert!(e.message.contains(word), "{e}");
        assert_eq!(e.file.as_deref(), Some("f.cu"));
    }
}
