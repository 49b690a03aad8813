//! The process with the baselines, without a GPU: its stand-in for PyTorch answers, times are made up, and whatever one baseline does is its own.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use warpsmith_eval::baseline::protocol::{Bases, Method, Time};
use warpsmith_eval::baseline::{Baselines, Fake, KNOWN, Name, Options, given, judge};
use warpsmith_eval::inputs::inputs;
use warpsmith_eval::oracle::{Oracle, Secrets};
use warpsmith_eval::values::decode;
use warpsmith_spec::task::Task;
use warpsmith_spec::words::{DType, Distribution, Format, Layout, Mask, ScaleLayout};
use warpsmith_spec::workload::{Workload, WorkloadRequest, expand_for};

const LIMIT: u64 = 1 << 30;

/// The process, or None where there is no Python.
fn start(fake: Option<Fake>) -> Option<Baselines> {
    let python = if cfg!(windows) { "python" } else { "python3" };
    if !Command::new(python).arg("--version").output().is_ok_and(|o| o.status.success()) {
        println!("skipped: there is no {python} here");
        return None;
    }
    let options = Options::new(None, warpsmith_builtin::baseline_program());
    Some(Baselines::start(Options { fake, seconds: 20, ..options }))
}

fn task(name: &str) -> Task {
    warpsmith_builtin::tasks().expect("committed tasks parse").get(name).expect("a built-in task").clone()
}

fn workload(task: &Task, format: Format, scales: ScaleLayout, mask: Mask) -> Workload {
    let request = WorkloadRequest {
        shapes: vec!["tiny".into()],
        formats: vec![format],
        scales: vec![scales],
        distributions: vec![Distribution::Normal],
        masks: vec![mask],
        seeds: vec![0],
        ..WorkloadRequest::default()
    };
    expand_for(task, true, &request).expect("the task has all of it").remove(0)
}

fn oracle(task: &Task, workload: &Workload, secret: u64) -> Oracle {
    Oracle::new(task, workload, Secrets { inputs: secret, rows: 1 }).expect("a small shape")
}

fn name(text: &str) -> Name {
    Name::parse(text).expect("a known baseline")
}

fn time(subject: &str, method: Method, replays: u32) -> Time {
    Time {
        subject: subject.into(),
        method,
        replays,
        warmup: 1,
        calls: 0,
        bases: Bases::Seed(77),
        sample: vec![],
        marked: false,
        seconds: 0,
    }
}

fn words(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(k, v)| ((*k).to_string(), (*v).to_string())).collect()
}

#[test]
fn outputs_are_judged_by_the_oracle_of_the_candidates() {
    let Some(mut baselines) = start(Some(Fake::default())) else { return };
    let task = task("fp8_sdpa");
    // Baseline, scales, largest error against the oracle of the codes and of the unquantised inputs.
    for (baseline, scales, kernel, end_to_end) in [
        ("sdpa:auto", ScaleLayout::Head, 0.1, 1e-3),
        ("sdpa:bf16:flash", ScaleLayout::Head, 0.1, 1e-2),
        ("fa3:fp8", ScaleLayout::Head, 1e-5, 0.1),
        ("fa3:fp8", ScaleLayout::Tensor, 1e-5, 0.1),
        ("cudnn:fp8", ScaleLayout::Head, 0.1, 0.1),
        ("cudnn:fp8", ScaleLayout::Tensor, 1e-5, 0.1),
    ] {
        for mask in [Mask::None, Mask::Causal] {
            let workload = workload(&task, Format::E4m3, scales, mask);
            let oracle = oracle(&task, &workload, 5);
            let given = given(name(baseline), &task, &workload, [&oracle.inputs]).expect("it takes e4m3");
            baselines.prepare("s", name(baseline), &given, 4, LIMIT).expect("it is there");
            let values = baselines.output("s", 0).expect("it answers");
            let check = judge(&oracle, &task, "sm_90a", Format::E4m3, &values).expect("of the right size");
            let found = &check["out"];
            let row = format!("{baseline}, scales per {scales}, mask {mask}: {found:?}");
            assert!(found.kernel.rel_frobenius <= kernel, "{row}");
            assert!(found.end_to_end.rel_frobenius <= end_to_end, "{row}");
            assert!(found.end_to_end.rel_frobenius > 1e-6, "it was given what it is to be judged by: {row}");
        }
    }
    baselines.discard("s");
    assert!(baselines.output("s", 0).is_err());
}

/// Tokens before heads are another order in memory of the same numbers: baselines are given those numbers. Places behind a table are not theirs.
#[test]
fn every_dense_layout_gives_baselines_the_same_numbers() {
    let task = task("fp8_attention");
    assert!(task.baselines.iter().all(|b| Name::parse(b).is_ok()) && !task.baselines.is_empty());
    let of = |layout: Layout, scales: ScaleLayout| {
        let dense = workload(&task, Format::E4m3, scales, Mask::Causal);
        let variant = warpsmith_spec::workload::Variant { layout, ..dense.variant.clone() };
        Workload { variant, ..dense }
    };
    for scales in [ScaleLayout::Head, ScaleLayout::Tensor] {
        let (dense, tokens, paged) = (of(Layout::Dense, scales), of(Layout::Tokens, scales), of(Layout::Paged, scales));
        let drawn = |w: &Workload| inputs(&task, w, 3).expect("a small shape");
        let (a, b, c) = (drawn(&dense), drawn(&tokens), drawn(&paged));
        assert!(a.tensors != b.tensors, "another order in memory");
        for text in ["sdpa:auto", "fa3:fp8", "cudnn:fp8"] {
            let bases = |w: &Workload, x| given(name(text), &task, w, [x]).expect("it takes dense tensors").bases;
            assert!(bases(&dense, &a) == bases(&tokens, &b), "{text}, scales per {scales}"); // too large to be shown
            let absent = given(name(text), &task, &paged, [&c]).expect_err("pages");
            assert!(absent.why.contains("not with layout paged"), "{absent}");
        }
    }
}

#[test]
fn timed_outputs_are_those_of_the_inputs_that_were_drawn() {
    let told = Fake { us: BTreeMap::from([("sdpa:auto".into(), 9.0)]), ..Fake::default() };
    let Some(mut baselines) = start(Some(told)) else { return };
    let task = task("fp8_sdpa");
    let workload = workload(&task, Format::E4m3, ScaleLayout::Head, Mask::None);
    let oracles: Vec<Oracle> = (1..4).map(|secret| oracle(&task, &workload, secret)).collect();
    let baseline = name("sdpa:auto");
    let given = given(baseline, &task, &workload, oracles.iter().map(|o| &o.inputs)).expect("it takes all");
    let ready = baselines.prepare("a", baseline, &given, 4, LIMIT).expect("it is there");
    assert_eq!((ready.copies, ready.bases), (4, 3));
    for method in Method::ALL {
        let sample: Vec<[u32; 2]> = (0..5).flat_map(|r| (0..4).map(move |c| [r, c])).collect();
        let asked = Time { sample: sample.clone(), ..time("a", method, 5) };
        let timed = baselines.time(&asked).expect("it is timed");
        assert_eq!(timed.head.samples.len(), 5);
        assert!(timed.head.samples.iter().all(|us| (8.0..10.0).contains(us)), "{:?}", timed.head.samples);
        assert_eq!(timed.outputs().count(), sample.len());
        for (head, values) in timed.outputs() {
            assert_eq!(head.base as u32, asked.bases.at(head.replay, head.copy, 3), "the same lot on both sides");
            let check = judge(&oracles[head.base], &task, "sm_90a", Format::E4m3, values).expect("of the right size");
            assert!(check["out"].end_to_end.rel_frobenius < 1e-3, "{head:?}");
        }
    }
    let greeting = baselines.greeting().expect("it answers");
    assert_eq!(greeting.device.map(|d| d.name), Some("Fake device".into()));
}

/// `env` stands for `ssh gpu`: whatever comes before `sh`.
#[cfg(unix)]
#[test]
fn the_same_through_a_launcher() {
    use warpsmith_cuda::worker::{Launcher, Remote, WorkerBinary};
    if start(Some(Fake::default())).is_none() {
        return;
    }
    let mut options = Options::new(None, warpsmith_builtin::baseline_program());
    let launcher = Launcher::parse("env").expect("a command");
    options.command.remote = Some(Remote::new(launcher, WorkerBinary::ThisProgram));
    options.fake = Some(Fake { ends: words(&[("sdpa:flash", "crash")]), ..Fake::default() });
    let mut baselines = Baselines::start(options);
    let task = task("fp16_sdpa");
    let workload = workload(&task, Format::F16, ScaleLayout::None, Mask::Causal);
    let oracle = oracle(&task, &workload, 1);
    for text in ["sdpa:auto", "sdpa:flash"] {
        let given = given(name(text), &task, &workload, [&oracle.inputs]).expect("it takes f16");
        baselines.prepare(text, name(text), &given, 2, LIMIT).expect("it is there");
    }
    assert!(baselines.time(&time("sdpa:flash", Method::Event, 2)).is_err());
    assert_eq!(baselines.time(&time("sdpa:auto", Method::Event, 2)).expect("it goes on").head.samples.len(), 2);
    let values = baselines.output("sdpa:auto", 0).expect("it answers");
    let check = judge(&oracle, &task, "sm_90a", Format::F16, &values).expect("of the right size");
    assert!(check["out"].kernel.rel_frobenius < 1e-3);
}

#[test]
fn what_one_baseline_does_is_its_own() {
    // How it ends, and what is said of it.
    for (end, says) in [
        ("crash", "its process ended"),
        ("fail", "illegal memory access"),
        ("lost", "illegal memory access"),
        ("hang", "did not answer within"),
    ] {
        let told = Fake { ends: words(&[("sdpa:flash", end)]), ..Fake::default() };
        let Some(mut baselines) = start(Some(told)) else { return };
        let task = task("fp16_sdpa");
        let workload = workload(&task, Format::F16, ScaleLayout::None, Mask::None);
        let inputs = inputs(&task, &workload, 1).expect("a small shape");
        for text in ["sdpa:auto", "sdpa:flash", "sdpa:math"] {
            let given = given(name(text), &task, &workload, [&inputs]).expect("it takes f16");
            baselines.prepare(text, name(text), &given, 2, LIMIT).expect("it is there");
        }
        for round in 0..2 {
            for text in ["sdpa:auto", "sdpa:flash", "sdpa:math"] {
                let seconds = if end == "hang" { 1 } else { 20 };
                let done = baselines.time(&Time { seconds, ..time(text, Method::GraphCold, 3) });
                match (text, done) {
                    ("sdpa:flash", Err(absent)) => assert!(absent.why.contains(says), "{end}: {absent}"),
                    ("sdpa:flash", Ok(_)) => panic!("{end}: it was timed"),
                    (_, done) => assert_eq!(done.expect(end).head.samples.len(), 3, "{end}, {text}, round {round}"),
                }
            }
        }
    }
}

#[test]
fn what_is_not_there_says_why() {
    let why = "the package flash-attn is not installed: python3 -m pip install flash-attn";
    let Some(mut baselines) = start(Some(Fake { absent: words(&[("flash_attn", why)]), ..Fake::default() })) else {
        return;
    };
    let task = task("fp8_sdpa");
    let head = workload(&task, Format::E4m3, ScaleLayout::Head, Mask::None);
    let base = inputs(&task, &head, 1).expect("a small shape");
    let taken = given(name("flash_attn"), &task, &head, [&base]).expect("rounded to f16");
    assert_eq!(baselines.prepare("f", name("flash_attn"), &taken, 1, LIMIT).expect_err("it is absent").why, why);

    let e5m2 = workload(&task, Format::E5m2, ScaleLayout::Head, Mask::None);
    let base = inputs(&task, &e5m2, 1).expect("a small shape");
    for text in ["fa3:fp8", "cudnn:fp8"] {
        let absent = given(name(text), &task, &e5m2, [&base]).expect_err("it takes e4m3 only");
        assert!(absent.why.contains("takes e4m3"), "{absent}");
    }
    let absent = given(name("torch:rms_norm"), &task, &e5m2, [&base]).expect_err("another task's");
    assert!(absent.why.contains("is for rms_norm, not for fp8_sdpa"), "{absent}");

    let block = workload(&task, Format::E4m3, ScaleLayout::Block, Mask::None);
    let base = inputs(&task, &block, 1).expect("a small shape");
    let mut shown = given(name("fa3:fp8"), &task, &block, [&base]).expect("these are its codes");
    // Two blocks: more keys than one has.
    for tensor in shown.bases[0].iter_mut().filter(|t| t.name.ends_with("_scale")) {
        (tensor.shape, tensor.bytes) = (vec![1, 1, 2], tensor.bytes.repeat(2));
    }
    baselines.prepare("b", name("fa3:fp8"), &shown, 1, LIMIT).expect("it is resident");
    assert!(baselines.output("b", 0).expect_err("block scales").why.contains("one scale for each head"));
}

#[test]
fn no_python_and_no_torch_are_reasons_too() {
    let options = Options::new(Some(Path::new("no-such-python")), warpsmith_builtin::baseline_program());
    let mut baselines = Baselines::start(options);
    let why = baselines.greeting().expect_err("there is none").why;
    assert!(why.contains("no-such-python was not found") && why.contains("--python"), "{why}");

    let Some(mut baselines) = start(None) else { return };
    match baselines.greeting() {
        Ok(greeting) => println!("skipped: PyTorch with a device is here: {:?}", greeting.device),
        Err(absent) => assert!(absent.why.contains("PyTorch"), "{absent}"),
    }
}

#[test]
fn a_task_that_is_no_attention_has_its_own() {
    let Some(mut baselines) = start(Some(Fake::default())) else { return };
    let task = task("rms_norm");
    let workload = workload(&task, Format::F32, ScaleLayout::None, Mask::None);
    let inputs = inputs(&task, &workload, 3).expect("a small shape");
    let baseline = name("torch:rms_norm");
    let given = given(baseline, &task, &workload, [&inputs]).expect("its own task");
    baselines.prepare("r", baseline, &given, 1, LIMIT).expect("it is there");
    let got = decode(DType::F32, &baselines.output("r", 0).expect("it answers"));
    let of = |name: &str| {
        let tensor = inputs.tensors.iter().find(|t| t.name == name).expect("an input");
        decode(DType::F32, &tensor.bytes)
    };
    let (x, weight) = (of("x"), of("weight"));
    let mean = x[..weight.len()].iter().map(|x| x * x).sum::<f64>() / weight.len() as f64;
    for i in 0..weight.len() {
        let want = x[i] / (mean + 0.001).sqrt() * weight[i];
        assert!((got[i] - want).abs() < 1e-5 * (1.0 + want.abs()), "{i}: {} instead of {want}", got[i]);
    }
    assert_eq!(got.len(), x.len());
    for text in KNOWN.iter().map(|k| k.name).filter(|n| *n != "torch:rms_norm") {
        assert!(warpsmith_eval::baseline::given(name(text), &task, &workload, [&inputs]).is_err(), "{text}");
    }
}
