//! The repository's tasks, and what people get wrong in a task's file.

mod common;
use common::tasks;
use warpsmith_spec::task::{Base, Reference};
use warpsmith_spec::workload::expand_for;
use warpsmith_spec::*;

const FP8: &str = include_str!("../../../tasks/fp8_sdpa/task.toml");

#[test]
fn fp8_sdpa_says_what_the_design_says() {
    let tasks = tasks();
    let t = tasks.get("fp8_sdpa").unwrap();
    let shapes: Vec<_> = t.shapes.iter().map(|s| format!("{} {:?}", s.name, s.sizes)).collect();
    assert_eq!(
        shapes,
        [
            "tiny [1, 1, 32, 64]",
            "mission [1, 8, 512, 64]",
            "stage [2, 8, 256, 64]",
            "small [2, 8, 512, 64]",
            "long [2, 8, 2048, 64]",
            "wide [1, 8, 512, 128]",
            "stress [4, 16, 4096, 64]"
        ]
    );
    assert_eq!(t.default_shapes, ["tiny", "mission"]);
    assert_eq!((t.judged_on, t.timed_on), (Distribution::Needles, Distribution::Normal));
    assert_eq!((t.formats[0], t.scales[0], t.seeds.len()), (Format::E4m3, ScaleLayout::Head, 1));
    assert_eq!(t.tolerance.base, Base::HonestAttention { p: Precision::E4m3, fold: 512 });
    assert_eq!(t.tolerance.limits(0.02, 0.03), (0.04, 0.09));
    assert_eq!(t.tolerance.limits(0.001, 0.001), (0.0125, 0.06));
    assert_eq!(t.budget, Default::default(), "it sets none");
    for (ratio, class) in [(2.0, "excellent"), (1.5, "good"), (1.1, "modest"), (0.9, "parity"), (0.89, "regression")] {
        assert_eq!(t.thresholds.class(ratio), class);
    }
    let symbols = t.symbols_of(&[2, 8, 300, 64]);
    for (layout, want) in
        [(ScaleLayout::Tensor, vec![]), (ScaleLayout::Head, vec![2, 8]), (ScaleLayout::Block, vec![2, 8, 3])]
    {
        assert_eq!(t.tensor_sizes(t.scales_of("q").unwrap(), &symbols, layout).unwrap(), want);
    }
    let scale = t.scalar_value(t.scalar("softmax_scale").unwrap(), &symbols, ScaleLayout::Head).unwrap();
    assert_eq!(scale, formula::Number::Real(0.125));
    assert!(
        matches!(&tasks.get("rms_norm").unwrap().reference, Reference::Script { source, .. } if source.contains("numpy"))
    );
    assert_eq!(tasks.get("fp16_sdpa").unwrap().formats, [Format::F16]);
}

#[test]
fn a_shape_is_a_name_or_its_sizes() {
    let tasks = tasks();
    let t = tasks.get("fp8_sdpa").unwrap();
    assert_eq!(t.shape("1x8x777x64").unwrap().sizes, [1, 8, 777, 64]);
    assert_eq!(t.shape("stage").unwrap().sizes, [2, 8, 256, 64]);
    for (text, words) in [
        ("enormous", &["enormous", "mission"][..]),
        ("misson", &["did you mean `mission`"]),
        ("1x8x777", &["3 sizes", "BxHxSxD", "mission"]),
        ("1x8x777x64x1", &["5 sizes"]),
        ("0x8x777x64", &["`0`"]),
        ("1x8x-7x64", &["`-7`"]),
        ("1x8xx64", &["``"]),
        ("1x8x+7x64", &["`+7`"]),
        ("1x8x99999999999999999999x64", &["99999999999999999999"]),
        ("16777216x16777216x1x1", &["elements", "limit"]),
        ("1x8x7.5x64", &["`7.5`"]),
        ("", &["no shape"]),
        ("1\u{1b}x8", &["1\\u{1b}"]),
    ] {
        let e = t.shape(text).expect_err(text);
        let said = format!("{} {}", e.message, e.hint.unwrap_or_default());
        assert_eq!(e.code, SpecCode::UnknownName);
        for word in words {
            assert!(said.contains(word), "{text}: {said}");
        }
    }
}

#[test]
fn workloads_come_in_order_and_the_mask_only_where_it_is_taken() {
    let tasks = tasks();
    let t = tasks.get("fp8_sdpa").unwrap();
    let of = |causal: bool, request: &WorkloadRequest| -> Vec<String> {
        let show =
            |w: &Workload| format!("{} {} {} {} {} {}", w.shape, w.format, w.scales, w.distribution, w.mask(), w.seed);
        expand_for(t, causal, request).unwrap().iter().map(show).collect()
    };
    assert_eq!(
        of(false, &WorkloadRequest::default()),
        ["tiny e4m3 head needles none 0", "mission e4m3 head needles none 0"]
    );
    let asked = WorkloadRequest {
        shapes: vec!["tiny".into(), "tiny".into()],
        seeds: vec![7, 3],
        formats: vec![Format::E5m2],
        ..Default::default()
    };
    assert_eq!(
        of(true, &asked),
        [
            "tiny e5m2 head needles none 7",
            "tiny e5m2 head needles none 3",
            "tiny e5m2 head needles causal 7",
            "tiny e5m2 head needles causal 3"
        ]
    );
    let causal = WorkloadRequest { masks: vec![Mask::Causal], shapes: vec!["tiny".into()], ..Default::default() };
    assert_eq!(of(false, &causal), ["tiny e4m3 head needles causal 0"]);
    let rms = tasks.get("rms_norm").unwrap();
    let wrong = WorkloadRequest { distributions: vec![Distribution::Needles], ..Default::default() };
    let e = expand_for(rms, true, &wrong).unwrap_err();
    assert!(e.message.contains("needles") && e.hint.unwrap().contains("normal"));
    assert_eq!(expand_for(rms, true, &WorkloadRequest::default()).unwrap().len(), 2, "it has no mask");
}

#[test]
fn each_mistake_is_named_with_its_line() {
    let line = |text: &str, needle: &str| 1 + text.lines().position(|l| l.contains(needle)).unwrap() as u32;
    for (from, to, marker, words) in [
        ("title =", "titel =", "titel", &["titel", "did you mean `title`"][..]),
        ("tiny = [1, 1, 32, 64]", "tiny = [1, 1, 32]", "tiny = [1", &["tiny", "3 sizes", "4 symbols"]),
        ("tiny = [1, 1, 32, 64]", "tiny = [1, 1, 32, -64]", "tiny = [1", &["tiny", "-64"]),
        ("tiny = [1, 1, 32, 64]", "tiny = [1, 1, 32, \"64\"]", "tiny = [1", &["tiny", "whole number"]),
        ("stress = [4, 16, 4096, 64]", "stress = [16777216, 16777216, 2, 2]", "[shapes]", &["stress", "elements"]),
        ("\"mission\"]", "\"mision\"]", "default_shapes", &["mision", "did you mean `mission`"]),
        ("judged_on = \"needles\"", "judged_on = \"needle\"", "judged_on", &["needle", "did you mean `needles`"]),
        ("\"needles\", \"normal\"", "\"normal\"", "judged_on", &["needles", "distributions"]),
        ("builtin:attention", "builtin:atention", "reference", &["atention"]),
        ("builtin:attention", "reference.py", "reference", &["reference.py", "not beside"]),
        ("builtin:attention", "../reference.py", "reference", &["Python file beside"]),
        ("role = \"output\"", "role = \"outputs\"", "role = \"outputs\"", &["outputs", "\"output\""]),
        ("dtype = \"f16\"", "dtype = \"f17\"", "f17", &["f17", "f16"]),
        ("scales = \"v\"", "scales = \"w\"", "scales = \"w\"", &["`w`", "no input"]),
        ("1.0 / sqrt(D)", "1.0 / sqrt(E)", "sqrt(E)", &["unknown symbol `E`", "B, D, H, S"]),
        ("1.0 / sqrt(D)", "1.0 / sqr(D)", "sqr(D)", &["sqr", "did you mean `sqrt`"]),
        ("p = \"e4m3\"", "p = \"e4m4\"", "e4m4", &["e4m4"]),
        ("fold = 512", "fold = 0", "fold = 0", &["fold", "from 1"]),
        ("rel_frobenius = 2.0", "rel_frobenius = -2.0", "-2.0", &["rel_frobenius", "not negative"]),
        ("rel_frobenius = 2.0", "rel_frobenius = nan", "nan", &["rel_frobenius", "finite"]),
        ("parity = 0.9", "parity = 1.2", "[verdict]", &["fall"]),
        ("seeds = [0]", "seeds = []", "seeds", &["seeds", "empty"]),
        ("seeds = [0]", "seeds = [-1]", "seeds", &["seeds", "-1"]),
        ("symbols = [\"B\"", "symbols = [\"causal\"", "symbols", &["causal"]),
        ("symbols = [\"B\", \"H\"", "symbols = [\"B\", \"B\"", "symbols", &["`B`", "twice"]),
        ("[quantiser]", "[accept]\ncriteria = [\"registers < many\"]\n[quantiser]", "many", &["registers < many"]),
        ("[quantiser]", "[budget]\nregisters = 300\n[quantiser]", "= 300", &["registers", "255"]),
        ("[quantiser]", "[quantizer]", "[quantizer]", &["quantizer", "did you mean `quantiser`"]),
        ("symbols = [\"B\"", "symbols = [\"loop\"", "symbols", &["loop", "already"]),
        ("seeds = [0]", "seeds = [0", "seeds", &["not TOML"]),
    ] {
        let text = FP8.replacen(from, to, 1);
        assert_ne!(text, FP8, "{to}");
        let e = Task::parse("t", "t/task.toml", text.as_bytes(), &|_| None).expect_err(to);
        let said = format!("{} {}", e.message, e.hint.unwrap_or_default());
        for word in words {
            assert!(said.contains(word), "{to}: {said}");
        }
        assert_eq!(e.file.as_deref(), Some("t/task.toml"));
        let at = e.line.unwrap_or_else(|| panic!("{to}: no line: {said}"));
        let near = line(&text, marker);
        assert!(at == near || (said.contains("not TOML") && at >= near), "{to}: line {at}, expected {near}: {said}");
    }
    let script = |_: &str| Some("import numpy".to_string());
    let text = FP8.replace("builtin:attention", "reference.py");
    let e = Task::parse("t", "t/task.toml", text.as_bytes(), &script).unwrap_err();
    assert!(e.message.contains("needles"), "{e}");
    let parse = |name: &str, bytes: &[u8]| Task::parse(name, "t/task.toml", bytes, &|_| None).unwrap_err();
    assert!(parse("t", b"\xff").message.contains("UTF-8"));
    assert!(parse("t", b"").message.contains("symbols"));
    assert!(parse("a/b", FP8.as_bytes()).message.contains("a/b"));
    assert!(parse("t", &vec![b'#'; 2 << 20]).message.contains("bytes"));
}

#[test]
fn no_damage_to_a_task_makes_the_parser_panic() {
    for i in (0..FP8.len()).step_by(3) {
        let _ = Task::parse("t", "f", &FP8.as_bytes()[..i], &|_| None);
        for byte in [b'"', b'[', b'=', b'\n', b'-', b'{', b'9', 0x80] {
            let mut bytes = FP8.as_bytes().to_vec();
            bytes[i] = byte;
            let _ = Task::parse("t", "f", &bytes, &|_| None);
        }
    }
}
