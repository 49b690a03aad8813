//! The comparison against devices that are known: the machine itself, and one that is wrong in a single place.

use warpsmith_conformance::device::{Backend, Gpu, Machine, numerics_of};
use warpsmith_conformance::{Selection, run};
use warpsmith_cuda::worker::WorkerCommand;
use warpsmith_machine::forms::trial::{Operands, Results};
use warpsmith_machine::forms::vectors::parse;
use warpsmith_machine::forms::{Form, Kernel};

/// The machine, whose `add.u32` is wrong in one bit of one thread.
struct Wrong(Machine);

impl Backend for Wrong {
    fn name(&self) -> String {
        "a wrong device".into()
    }

    fn compute_capability(&self) -> Option<u32> {
        Some(80)
    }

    fn run(&mut self, form: &Form, k: &Kernel, operands: &Operands) -> Result<Results, String> {
        let mut r = self.0.run(form, k, operands)?;
        if form.opcode == "add.u32" || form.opcode == "sqrt.approx.f32" {
            r.records[5 * k.output_bytes] ^= 1;
        }
        Ok(r)
    }
}

fn selection(only: &str) -> Selection {
    Selection { only: only.into(), threads: Some(128) }
}

#[test]
fn a_wrong_bit_is_found_and_named() {
    let mut ours = Machine { numerics: numerics_of(None) };
    let mut wrong = Wrong(Machine { numerics: numerics_of(None) });
    let report = run(&mut ours, &mut wrong, &selection("add.u"), &mut |_| {});
    let off: Vec<_> = report.entries.iter().filter(|e| !e.agrees()).map(|e| e.form.opcode.as_str()).collect();
    assert_eq!(off, ["add.u32"]);
    let found = report.entries.iter().find_map(|e| e.result.as_ref().ok()?.first.clone()).unwrap_or_default();
    assert!(found.starts_with("thread 5,"), "{found}");
    assert!(report.hardware().contains("1 differ"), "{}", report.hardware());
    // Packed 16-bit addition is of sm_90.
    assert!(report.skipped > 0);
    assert!(!parse(&report.vectors()).expect("vectors").is_empty());
}

#[test]
fn approximate_functions_have_a_distance() {
    let mut ours = Machine { numerics: numerics_of(None) };
    let mut wrong = Wrong(Machine { numerics: numerics_of(None) });
    let report = run(&mut ours, &mut wrong, &selection("sqrt.approx.f32"), &mut |_| {});
    assert!(report.entries.iter().all(|e| e.agrees()), "{report:?}");
    assert!(report.hardware().contains("by 1 ulp at most"), "{}", report.hardware());
}

#[test]
#[ignore = "needs a CUDA device"]
fn a_gpu_agrees_on_integers() {
    let worker = WorkerCommand::program(env!("CARGO_BIN_EXE_warpsmith-conformance"));
    let mut gpu = Gpu::by(worker, 0).expect("a device");
    let mut ours = Machine { numerics: numerics_of(gpu.compute_capability()) };
    let report = run(&mut ours, &mut gpu, &selection("add."), &mut |_| {});
    let off: Vec<_> = report.entries.iter().filter(|e| !e.agrees()).map(|e| e.form.name()).collect();
    assert!(off.is_empty(), "{off:?}");
}
