//! A candidate as a contender: its outputs on each base are judged once against the oracle, then timed, and what timed calls leave is
//! compared with what was judged.
//!
//! A kernel that computes the same bits each time has to leave those bits in timed calls too. One whose sums run in no order (atomic
//! operations) has to keep the limits. Whoever does neither was not timed doing the work.

use super::measure::{Contender, Out, Turn};
use super::timed::{Ask, Resident, SampledOutput, TimedBackend};
use crate::backend::Written;
use crate::check::{check, unwritten};
use crate::compile_gate::Subject;
use crate::error::EvalError;
use crate::evaluate::{Judged, judge_outputs, stopped};
use crate::finding::Code;
use crate::oracle::Oracle;
use crate::worker::outcome::has_atomics;
use std::sync::Arc;
use warpsmith_spec::record::{FindingRecord, OutputsRecord, Severity, VerdictWord};

const GATE: &str = "performance";
/// A finding of each sort is enough.
const MAX_FINDINGS: usize = 8;

/// A candidate that is timed.
pub struct Entrant<'a> {
    backend: &'a dyn TimedBackend,
    subject: &'a Subject,
    pub resident: Arc<Resident>,
    /// Its judged outputs, by base.
    judged: Vec<Vec<Written>>,
    /// Its sums may run in any order.
    pub unordered: bool,
    pub seen: OutputsRecord,
    pub findings: Vec<FindingRecord>,
}

impl<'a> Entrant<'a> {
    /// Judges it on each base. Err: what it does on one of them, with the verdict.
    pub fn judge(
        backend: &'a dyn TimedBackend,
        subject: &'a Subject,
        resident: Arc<Resident>,
    ) -> Result<Result<Entrant<'a>, Box<(VerdictWord, Vec<FindingRecord>)>>, EvalError> {
        let mut judged = Vec::new();
        let mut unordered = has_atomics(&resident.artifact.ptx);
        for (base, oracle) in resident.bases.iter().enumerate() {
            let job = resident.job(base).ok_or_else(|| EvalError::Defect("a base that there is not".into()))?;
            let run = backend.run(&job)?;
            let found = match stopped(backend.as_backend(), &run) {
                Some(stopped) => stopped,
                None => judge_outputs(subject, &resident.workload, resident.target, oracle, &run)?,
            };
            if found.verdict != VerdictWord::Passed {
                return Ok(Err(Box::new(on_timed_inputs(found))));
            }
            unordered |= run.atomics;
            judged.push(run.outputs);
        }
        let seen = OutputsRecord { bases: judged.len(), ..OutputsRecord::default() };
        Ok(Ok(Entrant { backend, subject, resident, judged, unordered, seen, findings: Vec::new() }))
    }

    /// Whether an error was found.
    pub fn violated(&self) -> bool {
        self.findings.iter().any(|f| f.severity == Severity::Error)
    }

    fn look_at(&mut self, sampled: &SampledOutput) -> Result<(), EvalError> {
        self.seen.sampled += 1;
        let (Some(judged), Some(oracle)) =
            (self.judged.get(sampled.base), self.resident.bases.get(sampled.base).cloned())
        else {
            return Err(EvalError::Defect("the backend names a base that there is not".into()));
        };
        if judged.len() != sampled.outputs.len() {
            return Err(EvalError::Defect("the backend left out a tensor of a timed call".into()));
        }
        if *judged == sampled.outputs {
            self.seen.identical += 1;
            return Ok(());
        }
        let findings = self.compare(&oracle, sampled);
        if self.findings.len() < MAX_FINDINGS {
            self.findings.extend(findings);
        }
        Ok(())
    }

    /// What is wrong with outputs that are not those that were judged.
    fn compare(&self, oracle: &Oracle, sampled: &SampledOutput) -> Vec<FindingRecord> {
        let at = |text: &str| format!("{text} (call {} of timed replay {})", sampled.copy + 1, sampled.replay + 1);
        let mut findings = Vec::new();
        for (expected, got) in oracle.outputs.iter().zip(&sampled.outputs) {
            let (task, workload) = (&self.subject.task, &self.resident.workload);
            let precision = self.subject.candidate.precision;
            let limits = oracle.limits(expected, task, self.resident.target.name, precision, workload.format);
            let missing = unwritten(expected, &got.defined).into_iter();
            let wrong: Vec<FindingRecord> = missing.chain(check(expected, &limits, &got.bytes).1).collect();
            if let Some(first) = wrong.first() {
                let why = format!("when it is timed, the kernel does not do its work: {}", first.message);
                let mut f = Code::TimedOutputWrong.error(GATE, at(&why));
                (f.tensor, f.index, f.count) = (first.tensor.clone(), first.index.clone(), first.count);
                findings.push(f);
            } else if !self.unordered {
                let why = format!(
                    "the same call on the same inputs left other bits in {} when it was timed than when it was judged, and no atomic operation explains it",
                    expected.spec.name
                );
                let mut f = Code::Unstable.error(GATE, at(&why));
                f.tensor = Some(expected.spec.name.clone());
                findings.push(f);
            }
        }
        findings
    }
}

/// A kernel that gate 2 has passed fails on the inputs of gate 3: the words say where.
fn on_timed_inputs(judged: Judged) -> (VerdictWord, Vec<FindingRecord>) {
    let mut findings = judged.findings;
    for f in &mut findings {
        f.gate = GATE.into();
        f.message = format!("on the inputs that are timed: {}", f.message);
    }
    (judged.verdict, findings)
}

impl Contender for Entrant<'_> {
    fn turn(&mut self, ask: &Ask) -> Result<Turn, EvalError> {
        let timed = self.backend.time(&self.resident.name, ask)?;
        for sampled in &timed.outputs {
            self.look_at(sampled)?;
        }
        let room = MAX_FINDINGS.saturating_sub(self.findings.len());
        self.findings.extend(timed.findings.into_iter().take(room));
        let out = match timed.stop {
            Some(stop) => Some(Out::Stopped(stop)),
            None => self.violated().then_some(Out::Violated),
        };
        Ok(Turn { samples: timed.samples, readings: timed.readings, out })
    }

    fn output_bytes(&self) -> u64 {
        self.judged.first().map_or(0, |outputs| outputs.iter().map(|o| o.bytes.len() as u64).sum())
    }
}
