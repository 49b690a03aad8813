//! The built-in kernels on a device, from the committed layer's PTX: what passes on the PTX machine has to pass here, and what is faulty may
//! not be called right where a device can tell.

use std::sync::Arc;
use std::time::Instant;
use warpsmith_compile::{Compiler, Layer, ToolError};
use warpsmith_cuda::worker::{WorkerCommand, worker_main};
use warpsmith_eval::worker::{GpuBackend, GpuOptions};
use warpsmith_eval::{
    Backend, CompileGate, Context, EvalError, Layered, NumericsChoice, Oracles, RunRequest, Subject, run,
};
use warpsmith_spec::candidate::Candidate;
use warpsmith_spec::record::{ResultRecord, VerdictWord};
use warpsmith_spec::workload::WorkloadRequest;

/// Says that this process is the worker.
const ROLE: &str = "WARPSMITH_TEST_WORKER";

#[test]
fn worker_process() {
    if std::env::var(ROLE).is_ok() {
        worker_main();
    }
}

fn start() -> GpuBackend {
    let command = WorkerCommand {
        program: std::env::current_exe().expect("a running program has a file"),
        args: ["worker_process", "--exact", "--nocapture"].map(Into::into).to_vec(),
        env: vec![(ROLE.into(), "cuda".into())],
        remote: None,
    };
    GpuBackend::start(GpuOptions { command, device: 0, seconds: 30, start_seconds: 60, fake: false })
        .expect("there is a device")
}

/// The candidate's results for these shapes on a device of this target; nothing where the layer lacks it.
fn judge(
    backend: &dyn Backend,
    own: &str,
    oracles: &Oracles,
    candidate: &Candidate,
    shapes: &[&str],
) -> Vec<ResultRecord> {
    let tasks = warpsmith_builtin::tasks().expect("the built-in tasks are right");
    let layer = Layer::from_bytes(warpsmith_builtin::layer()).expect("the layer is whole");
    let source = Layered::new(Some(&layer), |request| {
        Err::<Arc<Compiler>, _>(ToolError::BadRequest { what: format!("{} is not in the layer", request.name) })
    });
    let compile = CompileGate::new(&source, Arc::new(warpsmith_builtin::headers()));
    let context = Context {
        compile: &compile,
        backend,
        oracles,
        numerics: NumericsChoice::Faithful,
        passes: None,
        compile_only: false,
        sanitizer: None,
    };
    let subject = Subject {
        candidate: Arc::new(candidate.clone()),
        task: Arc::new(tasks.find(&candidate.task).expect("it is built in").clone()),
        canonical: warpsmith_builtin::canonical_name(&candidate.name).to_string(),
        include_root: None,
    };
    let subjects = [(subject, vec![candidate.default_setting()])];
    let workloads =
        WorkloadRequest { shapes: shapes.iter().map(|s| s.to_string()).collect(), ..WorkloadRequest::default() };
    // The target that is nearest to the device's among those that the layer has.
    let target = candidate.targets.iter().find(|t| *t == own).or_else(|| candidate.targets.first());
    let request = RunRequest { subjects: &subjects, workloads: &workloads, target: target.map(String::as_str) };
    match run(&request, &context, &|| false, &mut |_| {}) {
        Ok(done) => done.results,
        Err(EvalError::Tool(e)) => {
            println!("skipped: {e}");
            Vec::new()
        }
        Err(e) => panic!("{}: {e}", candidate.name),
    }
}

fn line(r: &ResultRecord, begun: Instant) -> String {
    let check = r.check.as_ref().and_then(|c| c.values().next());
    let errors = check.map_or_else(String::new, |c| {
        format!(" rel_f {:.5} of {:.5}", c.kernel.rel_frobenius, c.kernel.limit_rel_frobenius)
    });
    let found = r.finding.as_ref().map_or_else(String::new, |f| format!(" [{}] {}", f.code, f.message));
    format!("{} {} {} {:?}{errors}{found} ({:?} in all)", r.candidate, r.shape, r.target, r.verdict, begun.elapsed())
}

#[test]
#[ignore = "needs a CUDA device"]
fn every_kernel_of_the_ladder_passes() {
    let (backend, oracles) = (start(), Oracles::with_fresh_rows());
    let tasks = warpsmith_builtin::tasks().expect("the built-in tasks are right");
    let mut judged = 0;
    let mut wrong = Vec::new();
    for candidate in warpsmith_builtin::kernels(&tasks).expect("the built-in kernels are right") {
        let begun = Instant::now();
        for r in judge(&backend, &backend.device().target(), &oracles, &candidate, &["tiny", "mission"]) {
            println!("{}", line(&r, begun));
            judged += 1;
            if r.verdict != VerdictWord::Passed {
                wrong.push(line(&r, begun));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(judged > 0, "the layer has none of them");
    assert_eq!(backend.workers_lost(), 0);
}

#[test]
#[ignore = "needs a CUDA device"]
fn faulty_kernels_do_not_pass_where_a_device_can_tell() {
    let (backend, oracles) = (start(), Oracles::with_fresh_rows());
    let tasks = warpsmith_builtin::tasks().expect("the built-in tasks are right");
    for candidate in warpsmith_builtin::faults(&tasks).expect("the built-in faults are right") {
        let begun = Instant::now();
        for r in judge(&backend, &backend.device().target(), &oracles, &candidate, &["tiny"]) {
            println!("{}", line(&r, begun));
            if candidate.name.contains("/right/") {
                assert_eq!(r.verdict, VerdictWord::Passed, "{}", line(&r, begun));
            } else if ["misaligned", "trap_reached"].contains(&candidate.stem()) {
                assert_eq!(r.verdict, VerdictWord::Faulted, "{}", line(&r, begun));
            }
        }
    }
}
