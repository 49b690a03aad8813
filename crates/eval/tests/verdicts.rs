//! Each way a candidate can behave leads to its verdict, with the finding that people need.
//!
//! A fake backend stands for the kernel: it starts from the honest kernel's outputs and changes what the row says.

use std::collections::BTreeMap;
use std::sync::Arc;
use warpsmith_compile::{
    Artifact, BuildKind, CompileFailure, Diagnostic, DiagnosticKind, EntryStats, Request, ToolError, ToolkitId,
};
use warpsmith_eval::attention::{Geometry, Operand, Problem, RowSet, Scales, Sight, Style, honest};
use warpsmith_eval::backend::{Job, RunEnd, RunOutcome, Written};
use warpsmith_eval::finding::{Code, blank};
use warpsmith_eval::oracle::Secrets;
use warpsmith_eval::values::{decode, encode};
use warpsmith_eval::{
    ArtifactSource, Backend, CompileGate, Context, EvalError, NumericsChoice, Oracles, Passes, RunRequest, Subject, run,
};
use warpsmith_spec::candidate::Candidate;
use warpsmith_spec::record::{ExecutionRecord, GateStatus, ResultRecord, Severity, VerdictWord};
use warpsmith_spec::task::set::TaskSet;
use warpsmith_spec::words::DType;
use warpsmith_spec::workload::WorkloadRequest;

/// Compiles everything to the same artifact, unless the source holds a word for a failure.
struct FakeCompiler;

impl ArtifactSource for FakeCompiler {
    fn artifact(&self, request: &Request) -> Result<Result<Artifact, CompileFailure>, ToolError> {
        if request.source.contains("syntax error") {
            let diagnostics = vec![Diagnostic {
                kind: DiagnosticKind::Error,
                message: "expected an expression".into(),
                file: Some(request.name.clone()),
                line: Some(12),
            }];
            return Ok(Err(CompileFailure::Nvrtc { diagnostics, log: String::new() }));
        }
        let entry = EntryStats {
            expression: request.entries[0].clone(),
            lowered: request.entries[0].clone(),
            registers: 200,
            shared_bytes: 1024,
            spill_store_bytes: 8,
            ..EntryStats::default()
        };
        Ok(Ok(Artifact {
            ptx: ".version 8.8".into(),
            ptx_sha256: "0".repeat(64),
            cubin: None,
            entries: vec![entry],
            warnings: Vec::new(),
            log: String::new(),
            toolkit: ToolkitId("fake".into()),
            build: BuildKind::Release,
            target: request.target.clone(),
        }))
    }
}

type Behaviour = fn(&Job, &mut RunOutcome);

struct FakeKernel(Behaviour);

impl Backend for FakeKernel {
    fn word(&self) -> &'static str {
        "fake"
    }

    fn version(&self) -> String {
        "fake 1".into()
    }

    fn run(&self, job: &Job) -> Result<RunOutcome, EvalError> {
        let out = encode(DType::F16, &honest(&problem(job, |x| x), &RowSet::all(geometry(job)), &Style::f16()));
        let defined = vec![true; out.len()];
        let inputs =
            job.inputs.iter().map(|t| Written { bytes: t.bytes.clone(), defined: vec![true; t.bytes.len()] }).collect();
        let mut outcome = RunOutcome {
            outputs: vec![Written { bytes: out, defined }],
            inputs,
            execution: ExecutionRecord { warp_instructions: 1000, ..ExecutionRecord::default() },
            ..RunOutcome::ended(RunEnd::Completed)
        };
        self.0(job, &mut outcome);
        Ok(outcome)
    }
}

fn geometry(job: &Job) -> Geometry {
    let shape = &job.outputs[0].shape;
    Geometry::square((shape[0] * shape[1]) as usize, shape[2] as usize, shape[3] as usize)
}

/// The attention problem as a kernel finds it in its arguments.
fn problem(job: &Job, change: impl Fn(Problem) -> Problem) -> Problem {
    let values = |name: &str| -> Vec<f32> {
        let t = job.inputs.iter().find(|t| t.name == name).expect("an input");
        decode(t.dtype, &t.bytes).iter().map(|x| *x as f32).collect()
    };
    let scales = |name: &str| Scales::Head(values(&format!("{name}_scale")));
    let operand = |name: &str| Operand { values: values(name), scales: scales(name), means: Vec::new() };
    let geometry = geometry(job);
    let softmax_scale = 1.0 / (geometry.head_dim as f32).sqrt();
    change(Problem {
        geometry,
        sight: Sight::full(false),
        softmax_scale,
        q: operand("q"),
        k: operand("k"),
        v: operand("v"),
    })
}

fn tasks() -> TaskSet {
    let mut tasks = TaskSet::new();
    tasks
        .add("fp8_sdpa", "tasks/fp8_sdpa/task.toml", include_bytes!("../../../tasks/fp8_sdpa/task.toml"), &|_| None)
        .expect("the built-in task");
    tasks
}

const KERNEL: &str = r#"//! task = "fp8_sdpa"
//! targets = ["sm_89", "sm_90"]
//! constraints = ["D == 64"]
//! [[launch]]
//! entry = "k"
//! grid = ["ceil_div(S, 64)", "B * H"]
//! block = [64]
//! args = ["q", "k", "v", "q_scale", "k_scale", "v_scale", "out", "softmax_scale", "S"]
extern "C" __global__ void k() {}
"#;

fn subject(source: &str) -> Subject {
    let tasks = tasks();
    let candidate = Candidate::parse("my/kernel.cu", source.as_bytes(), &tasks).expect("a candidate");
    let task = tasks.find(&candidate.task).expect("its task").clone();
    Subject { candidate: Arc::new(candidate), task: Arc::new(task), canonical: "kernel.cu".into(), include_root: None }
}

fn judge_with(
    source: &str,
    behaviour: Behaviour,
    shapes: &[&str],
    passes: Option<&Passes>,
) -> Result<Vec<ResultRecord>, EvalError> {
    let gate = CompileGate::new(&FakeCompiler, Arc::new(BTreeMap::new()));
    let oracles = Oracles::new(Secrets { inputs: 0, rows: 1 });
    let backend = FakeKernel(behaviour);
    let ctx = Context {
        compile: &gate,
        backend: &backend,
        oracles: &oracles,
        numerics: NumericsChoice::Faithful,
        passes,
        compile_only: false,
        sanitizer: None,
    };
    let subject = subject(source);
    let setting = subject.candidate.default_setting();
    let workloads =
        WorkloadRequest { shapes: shapes.iter().map(|s| s.to_string()).collect(), ..WorkloadRequest::default() };
    let request = RunRequest { subjects: &[(subject, vec![setting])], workloads: &workloads, target: None };
    Ok(run(&request, &ctx, &|| false, &mut |_| {})?.results)
}

fn judge(source: &str, behaviour: Behaviour) -> ResultRecord {
    judge_with(source, behaviour, &["1x2x80x64"], None).expect("a verdict").remove(0)
}

#[test]
fn behaviours_lead_to_their_verdicts() {
    use VerdictWord::*;
    let rows: &[(&str, Behaviour, VerdictWord, &str)] = &[
        ("right", |_, _| {}, Passed, ""),
        ("all zeros", |_, o| o.outputs[0].bytes.fill(0), Incorrect, "incorrect-output"),
        ("a NaN", |_, o| o.outputs[0].bytes[10..12].copy_from_slice(&[0xff, 0xff]), Incorrect, "non-finite-output"),
        (
            "an infinity",
            |_, o| o.outputs[0].bytes[10..12].copy_from_slice(&[0x00, 0x7c]),
            Incorrect,
            "non-finite-output",
        ),
        (
            "a row of the last head",
            |_, o| o.outputs[0].bytes[2 * 80 * 64 * 2 - 128..].fill(0),
            Incorrect,
            "incorrect-output",
        ),
        (
            "a prefix of the keys",
            |job, o| {
                let cut = problem(job, |mut p| {
                    // Keys from 40 on are made unattractive: as if the loop ended there.
                    let d = p.geometry.head_dim;
                    p.k.values.iter_mut().enumerate().filter(|(i, _)| i / d % 80 >= 40).for_each(|(_, x)| *x = 0.0);
                    p.v.values.iter_mut().enumerate().filter(|(i, _)| i / d % 80 >= 40).for_each(|(_, x)| *x = 0.0);
                    p
                });
                o.outputs[0].bytes = encode(DType::F16, &honest(&cut, &RowSet::all(geometry(job)), &Style::f16()));
            },
            Incorrect,
            "incorrect-output",
        ),
        ("an element never written", |_, o| o.outputs[0].defined[7] = false, Rejected, "output-unwritten"),
        ("an input changed", |_, o| o.inputs[1].bytes[3] ^= 1, Rejected, "input-modified"),
        ("right by the input it changed", |_, o| o.inputs[2].bytes.fill(0), Rejected, "input-modified"),
        (
            "a race, with right outputs",
            |_, o| o.findings.push(blank(Severity::Error, "shared-race", "correctness", "two lanes".into())),
            Faulted,
            "shared-race",
        ),
        (
            "stopped by a fault",
            |_, o| {
                let mut f = blank(Severity::Error, "out-of-bounds", "correctness", "beyond q".into());
                (f.file, f.line) = (Some("kernel.cu".into()), Some(7));
                *o = RunOutcome { findings: vec![f], ..RunOutcome::ended(RunEnd::Faulted) };
            },
            Faulted,
            "out-of-bounds",
        ),
        (
            "no end",
            |_, o| *o = RunOutcome::ended(RunEnd::LimitReached { what: "instructions".into(), limit: 5 }),
            TimedOut,
            "instruction-limit",
        ),
        (
            "an unknown instruction",
            |_, o| *o = RunOutcome::ended(RunEnd::Unsupported { what: "wgmma".into(), file: None, line: None }),
            Unsupported,
            "unsupported-instruction",
        ),
        (
            "arguments that do not fit",
            |_, o| {
                *o = RunOutcome::ended(RunEnd::Rejected(Box::new(
                    Code::ArgumentMismatch.error("correctness", "9 arguments for 8"),
                )))
            },
            Rejected,
            "argument-mismatch",
        ),
        (
            "another result under another schedule",
            |job, o| {
                if job.schedule.early_copies {
                    o.outputs[0].bytes[0] ^= 1;
                }
            },
            Faulted,
            "schedule-dependent",
        ),
        (
            "the order of its atomics",
            |job, o| {
                o.atomics = true;
                if job.schedule.early_copies {
                    o.outputs[0].bytes[0] ^= 1;
                }
            },
            Passed,
            "",
        ),
        (
            "a fault under another schedule",
            |job, o| {
                if job.schedule.early_copies {
                    o.findings.push(blank(Severity::Error, "shared-race", "correctness", "two lanes".into()));
                }
            },
            Faulted,
            "shared-race",
        ),
    ];
    for (what, behaviour, verdict, code) in rows {
        let r = judge(KERNEL, *behaviour);
        assert_eq!(r.verdict, *verdict, "{what}: {:?}", r.finding);
        assert_eq!(r.finding.as_ref().map_or("", |f| f.code.as_str()), *code, "{what}");
        assert_eq!(r.gates.compile, GateStatus::Passed, "{what}");
        assert_eq!(
            r.gates.correctness,
            if *verdict == Passed { GateStatus::Passed } else { GateStatus::Failed },
            "{what}"
        );
        assert_eq!(r.gates.performance, GateStatus::NotRun, "{what}");
        if let Some(f) = &r.finding {
            assert_eq!(f.file.as_deref(), Some("my/kernel.cu"), "{what}: people see the name they typed");
            assert!(!f.kind.is_empty() && !f.message.is_empty());
        }
        assert_eq!(
            r.check.is_some(),
            matches!(*verdict, Passed | Incorrect)
                || code.starts_with("output")
                || code.starts_with("input")
                || *code == "schedule-dependent",
            "{what}"
        );
        serde_json::to_string(&r).expect("a record is JSON");
    }
}

#[test]
fn gate_1_fails_for_any_target_and_blocks_gate_2() {
    let r = judge(&format!("{KERNEL}// syntax error\n"), |_, _| panic!("gate 2 must not run"));
    assert_eq!(
        (r.verdict, r.gates.compile, r.gates.correctness),
        (VerdictWord::CompileFailed, GateStatus::Failed, GateStatus::Blocked)
    );
    let f = r.finding.expect("the reason");
    assert_eq!(
        (f.code.as_str(), f.gate.as_str(), f.file.as_deref(), f.line),
        ("compile-error", "compile", Some("my/kernel.cu"), Some(12))
    );
    assert!(f.message.contains("expected an expression"));
    assert_eq!(r.compile.keys().collect::<Vec<_>>(), ["sm_89", "sm_90"]);
}

#[test]
fn budgets_fail_and_advice_does_not() {
    let advised = judge(KERNEL, |_, _| {});
    assert_eq!(advised.verdict, VerdictWord::Passed);
    assert!(advised.compile["sm_89"]["k"].warnings.iter().any(|w| w.contains("200 registers")));
    let strict =
        KERNEL.replace("//! [[launch]]", "//! [budget]\n//! registers = 128\n//! spill_bytes = 0\n//! [[launch]]");
    let r = judge(&strict, |_, _| {});
    assert_eq!((r.verdict, r.gates.compile), (VerdictWord::CompileFailed, GateStatus::Failed));
    let codes: Vec<&str> = r.findings.iter().map(|f| f.code.as_str()).collect();
    assert!(codes.contains(&"over-register-budget") && codes.contains(&"over-spill-budget"), "{codes:?}");
    assert_eq!(r.finding.and_then(|f| f.limit).as_deref(), Some("128"));
}

#[test]
fn impossible_launches_are_verdicts_of_the_shape() {
    for (from, to, code, word) in [
        ("ceil_div(S, 64)", "S - S", "invalid-launch", "grid"),
        ("block = [64]", "block = [\"S * 64\"]", "block-too-large", "block"),
    ] {
        let r = judge(&KERNEL.replace(from, to), |_, _| panic!("it cannot be launched"));
        let f = r.finding.expect("the reason");
        assert_eq!((r.verdict, f.code.as_str()), (VerdictWord::Rejected, code));
        assert!(f.message.contains(word) && f.line.is_some(), "{}", f.message);
    }
}

#[test]
fn what_does_not_apply_is_listed_and_nothing_left_is_wrong_usage() {
    let results = judge_with(KERNEL, |_, _| {}, &["tiny", "wide"], None).expect("tiny is judged");
    assert_eq!(results.len(), 1);
    let error = judge_with(KERNEL, |_, _| {}, &["wide"], None).expect_err("nothing is left");
    assert!(error.is_usage() && error.to_string().contains("D == 64"), "{error}");
}

#[test]
fn a_pass_is_remembered_and_a_failure_is_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let passes = Passes::new(folder.path().to_path_buf());
    let again =
        |behaviour: Behaviour| judge_with(KERNEL, behaviour, &["tiny"], Some(&passes)).expect("a verdict").remove(0);
    let wrong: Behaviour = |_, o| o.outputs[0].bytes.fill(0);
    assert_eq!(again(wrong).verdict, VerdictWord::Incorrect);
    assert_eq!(again(wrong).verdict, VerdictWord::Incorrect, "a failure is never remembered");
    let first = again(|_, _| {});
    let second = again(|_, _| panic!("it is not run again"));
    assert_eq!(
        (first.verdict, first.cached, second.verdict, second.cached),
        (VerdictWord::Passed, false, VerdictWord::Passed, true)
    );
    let error = |r: &ResultRecord| r.check.as_ref().map_or(-1.0, |c| c["out"].kernel.rel_frobenius);
    assert!((error(&first) - error(&second)).abs() < 1e-15, "the record shows what was found then");
    for file in walk(folder.path()) {
        std::fs::write(file, b"{}").expect("a damaged cache");
    }
    assert_eq!(again(wrong).verdict, VerdictWord::Incorrect, "a damaged file is no pass");
}

fn walk(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    std::fs::read_dir(folder)
        .expect("a folder")
        .flat_map(|e| {
            let path = e.expect("an entry").path();
            if path.is_dir() { walk(&path) } else { vec![path] }
        })
        .collect()
}
