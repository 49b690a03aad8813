//! What a worker reports, in the words of the record.
//!
//! A device says that something went wrong, seldom where: there is no line and no thread in these findings. The PTX machine has them.

use crate::backend::{Job, RunEnd, RunOutcome, Written};
use crate::error::EvalError;
use crate::evaluate::CONNECTION_LOST;
use crate::finding::{Code, blank};
use crate::values::coordinates;
use crate::worker::request::at;
use warpsmith_cuda::FaultKind;
use warpsmith_cuda::worker::protocol::{Difference, End, Overrun};
use warpsmith_cuda::worker::{Contents, Ran, WorkerError};
use warpsmith_spec::plan::ResolvedLaunch;
use warpsmith_spec::record::{ExecutionRecord, FindingRecord, Severity};
use warpsmith_spec::words::DType;

const GATE: &str = "correctness";

/// The outcome of a job that the worker has carried out. `seconds` is the limit that it had.
pub(super) fn outcome(job: &Job, ran: Ran, seconds: u64) -> Result<RunOutcome, EvalError> {
    let end = match &ran.end {
        End::Completed => RunEnd::Completed,
        End::Faulted { launch, kind, code, name } => return faulted(job, *launch, *kind, *code, name, seconds),
        End::Rejected { launch, what } => rejected(step(job, *launch)?, Code::InvalidLaunch, what),
        End::MissingEntry { launch } => {
            let step = step(job, *launch)?;
            rejected(step, Code::MissingEntry, &format!("the compiled kernel has no entry `{}`", step.entry))
        }
        End::Unsupported { what } => unsupported(format!("this code: {what}")),
        End::OutOfMemory { what } => unsupported(format!("a shape of this size: {what}")),
    };
    let mut done = RunOutcome::ended(end);
    done.findings.extend(ran.overruns.iter().map(|o| overrun(job, o)));
    done.findings.extend(ran.undefined.iter().map(|d| undefined(job, d)));
    done.atomics = has_atomics(&job.artifact.ptx);
    done.printed = ran.printed;
    done.execution = ExecutionRecord::default();
    if done.end == RunEnd::Completed {
        let mut contents = ran.outputs.into_iter();
        let mut next = |filled: Option<&[u8]>| contents.next().and_then(|c| written(c, filled));
        let left_out = || EvalError::Defect("the worker left out a tensor".into());
        for _ in job.outputs {
            done.outputs.push(next(None).ok_or_else(left_out)?);
        }
        for input in job.inputs {
            done.inputs.push(next(Some(&input.bytes)).ok_or_else(left_out)?);
        }
    }
    Ok(done)
}

/// The outcome of a job that did not end in its time.
pub(super) fn timed_out(seconds: u64) -> RunOutcome {
    RunOutcome::ended(RunEnd::LimitReached { what: "seconds".into(), limit: seconds })
}

/// The outcome of a job whose machine was lost.
pub(super) fn connection_lost(why: &WorkerError) -> RunOutcome {
    let message = format!("{why}; nothing is said about the kernel");
    RunOutcome::ended(RunEnd::Unavailable(Box::new(error(CONNECTION_LOST, message))))
}

/// The outcome of a job that took the worker itself down, twice.
pub(super) fn killed_the_worker(why: &str) -> RunOutcome {
    let mut done = RunOutcome::ended(RunEnd::Faulted);
    done.findings.push(error("trap", format!("the process that ran the kernel ended with it, twice: {why}")));
    done
}

fn error(code: &str, message: String) -> FindingRecord {
    blank(Severity::Error, code, GATE, message)
}

pub(super) fn step<'a>(job: &Job<'a>, launch: usize) -> Result<&'a ResolvedLaunch, EvalError> {
    job.plan.launches.get(launch).ok_or_else(|| EvalError::Defect("the worker names a launch that there is not".into()))
}

fn rejected(step: &ResolvedLaunch, code: Code, what: &str) -> RunEnd {
    RunEnd::Rejected(Box::new(at(code.error(GATE, what), step, step.line)))
}

fn unsupported(what: String) -> RunEnd {
    RunEnd::Unsupported { what, file: None, line: None }
}

pub(super) fn faulted(
    job: &Job,
    launch: usize,
    kind: FaultKind,
    code: i32,
    name: &str,
    seconds: u64,
) -> Result<RunOutcome, EvalError> {
    let word = match kind {
        FaultKind::IllegalAddress
        | FaultKind::InvalidAddressSpace
        | FaultKind::InvalidPc
        | FaultKind::HardwareStack => "invalid-access",
        FaultKind::MisalignedAddress => "misaligned-access",
        FaultKind::IllegalInstruction | FaultKind::LaunchFailed => "trap",
        FaultKind::AssertFailed => "assert-failed",
        FaultKind::LaunchTimeout => return Ok(timed_out(seconds)),
        // Its memory or links failed: nothing is said about the kernel.
        FaultKind::Hardware => return Err(EvalError::Defect(format!("the device reported {} ({name})", kind.words()))),
    };
    let step = step(job, launch)?;
    let which = match job.plan.launches.len() {
        1 => String::new(),
        n => format!(", in launch {} of {n}", launch + 1),
    };
    let mut f = error(word, format!("the device reported {}{which} ({name}, {code})", kind.words()));
    f.entry = Some(step.entry.clone());
    let mut done = RunOutcome::ended(RunEnd::Faulted);
    done.findings.push(f);
    Ok(done)
}

/// Bytes after the launches, and which of them the kernel gave a value; None if they did not arrive.
pub(super) fn written(contents: Contents, filled: Option<&[u8]>) -> Option<Written> {
    let bytes = contents.bytes.or_else(|| filled.map(<[u8]>::to_vec))?;
    let mut defined = vec![true; bytes.len()];
    for [first, count] in contents.unwritten {
        let end = first.saturating_add(count).min(bytes.len() as u64) as usize;
        defined.get_mut(first as usize..end)?.fill(false);
    }
    Some(Written { bytes, defined })
}

pub(super) fn overrun(job: &Job, o: &Overrun) -> FindingRecord {
    let (dtype, shape) = sizes(&o.buffer, job).unwrap_or((DType::U8, Vec::new()));
    let bytes = shape.iter().product::<u64>().saturating_mul(dtype.bytes()) as i64;
    let place = if o.offset < 0 {
        format!("{} before its start", counted(o.offset.unsigned_abs(), "byte"))
    } else {
        format!("{} behind its end", counted((o.offset - bytes).unsigned_abs() + 1, "byte"))
    };
    let changed = counted(o.bytes, "byte");
    let message = format!(
        "the kernel wrote outside of {}: {changed} that no buffer has were changed, the nearest {place}",
        o.buffer
    );
    let mut f = error("out-of-bounds", message);
    f.tensor = Some(o.buffer.clone());
    f.index = Some(vec![o.offset.div_euclid(dtype.bytes() as i64)]);
    f.count = Some(o.bytes);
    f.entry = only_entry(job);
    f
}

fn undefined(job: &Job, d: &Difference) -> FindingRecord {
    let (dtype, shape) = sizes(&d.buffer, job).unwrap_or((DType::U8, Vec::new()));
    let index: Vec<i64> = coordinates(&shape, d.offset / dtype.bytes()).iter().map(|i| *i as i64).collect();
    let message = format!(
        "{} depends on memory that the kernel was not given: it follows what poisoned buffers, or the bytes around buffers, hold; the first \
         such element is {}{index:?}",
        d.buffer, d.buffer
    );
    let mut f = error("uninitialized-read", message);
    f.tensor = Some(d.buffer.clone());
    f.index = Some(index);
    f.count = Some(d.bytes);
    f.entry = only_entry(job);
    f
}

fn counted(n: u64, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

fn only_entry(job: &Job) -> Option<String> {
    match job.plan.launches.as_slice() {
        [step] => Some(step.entry.clone()),
        _ => None,
    }
}

/// Element type and sizes of a tensor or workspace.
fn sizes(name: &str, job: &Job) -> Option<(DType, Vec<u64>)> {
    let input = job.inputs.iter().find(|t| t.name == name).map(|t| (t.dtype, t.shape.clone()));
    let output = || job.outputs.iter().find(|t| t.name == name).map(|t| (t.dtype, t.shape.clone()));
    let workspace = || job.plan.workspaces.iter().find(|w| w.name == name).map(|w| (w.dtype, w.shape.clone()));
    input.or_else(output).or_else(workspace)
}

/// Whether sums may depend on the order of threads: the PTX has atomic operations.
pub(crate) fn has_atomics(ptx: &str) -> bool {
    const STARTS: [&str; 5] = ["atom.", "red.", "cp.reduce.", "multimem.red.", "multimem.ld_reduce."];
    ptx.split_whitespace().any(|word| STARTS.iter().any(|s| word.starts_with(s)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn atomics_are_opcodes_not_parts_of_words() {
        for (ptx, has) in [
            ("\tatom.global.add.f32 %f1, [%rd1], %f2;", true),
            ("\t@%p1 red.global.add.f32 [%rd1], %f2;", true),
            ("\tshfl.sync.down.b32 %r1|%p1, %r2, 1, 31, -1;\n\tredux.sync.add.s32 %r1, %r2, %r3;", false),
            (".visible .entry red_atom(", false),
        ] {
            assert_eq!(has_atomics(ptx), has, "{ptx}");
        }
    }

    #[test]
    fn unwritten_ranges_become_bytes() {
        let contents = |bytes, unwritten| Contents { name: "y".into(), bytes, unwritten };
        let found = written(contents(Some(vec![7; 4]), vec![[1, 2]]), None).expect("it arrived");
        assert_eq!(found.defined, [true, false, false, true]);
        assert_eq!(written(contents(None, vec![]), Some(&[1, 2])).expect("as it was").bytes, [1, 2]);
        assert_eq!(written(contents(None, vec![]), None), None);
        assert_eq!(written(contents(Some(vec![7; 4]), vec![[9, 2]]), None), None);
    }
}
