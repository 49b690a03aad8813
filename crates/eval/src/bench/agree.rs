//! The GPU's verdict beside the PTX machine's, on the same PTX and the same workload. If they differ, one of them is wrong.
//!
//! Compared where the machine executes the kernel and the shape is within its reach; otherwise the record says why it was not.

use super::diagnose::within_reach;
use crate::compile_gate::Subject;
use crate::error::EvalError;
use crate::evaluate::{Context, evaluate};
use crate::finding::Code;
use warpsmith_spec::levers::Setting;
use warpsmith_spec::record::{AgreementRecord, FindingRecord, GateStatus, ResultRecord, VerdictWord};
use warpsmith_spec::target::Target;
use warpsmith_spec::workload::Workload;

fn not_compared(why: impl Into<String>) -> AgreementRecord {
    AgreementRecord { compared: false, why: Some(why.into()), ptx_machine: None }
}

/// Asks the PTX machine too. `ctx` is the machine's; `gpu` is what the device's gate 2 said. The finding is the disagreement.
pub fn compare(
    ctx: &Context,
    subject: &Subject,
    setting: &Setting,
    workload: &Workload,
    target: &'static Target,
    gpu: &ResultRecord,
) -> Result<(AgreementRecord, Option<FindingRecord>), EvalError> {
    if gpu.gates.correctness != GateStatus::Passed && gpu.verdict != VerdictWord::Incorrect {
        return Ok((not_compared("gate 2 came to no outputs on the device"), None));
    }
    let oracle = ctx.oracles.get(&subject.task, workload)?;
    if oracle.work() > within_reach() {
        return Ok((
            not_compared(
                "the shape is too large for the PTX machine on so few processors; `check --backend cpu` executes it",
            ),
            None,
        ));
    }
    let cpu = evaluate(ctx, subject, setting, workload, target)?;
    let said = cpu.finding.as_ref().map_or(String::new(), |f| format!(": {}: {}", f.kind, f.message));
    match cpu.verdict {
        VerdictWord::Unsupported => Ok((not_compared(format!("the PTX machine does not execute it{said}")), None)),
        VerdictWord::TimedOut => Ok((not_compared(format!("the PTX machine came to no end{said}")), None)),
        verdict => {
            let record = AgreementRecord { compared: true, why: None, ptx_machine: Some(verdict) };
            if verdict == gpu.verdict {
                return Ok((record, None));
            }
            let message = format!(
                "the same PTX on the same inputs is {} on the device and {} on the PTX machine{said}",
                word(gpu.verdict),
                word(verdict)
            );
            let mut f = Code::BackendsDisagree.error("performance", message);
            if let Some(other) = &cpu.finding {
                (f.file, f.line) = (other.file.clone(), other.line);
            }
            Ok((record, Some(f)))
        }
    }
}

fn word(verdict: VerdictWord) -> String {
    serde_json::to_value(verdict).ok().and_then(|v| v.as_str().map(str::to_string)).unwrap_or_default()
}
