//! What a run proves and what it does not: each claim verified, partial or missing, with the file that shows it.

use crate::material::{Material, folder};
use crate::measured::measured;
use crate::summary::counted_on;
use std::collections::BTreeSet;
use warpsmith_spec::record::{GateStatus, ResultRecord, VerdictWord};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimStatus {
    Verified,
    Partial,
    Missing,
}

impl ClaimStatus {
    pub fn word(self) -> &'static str {
        match self {
            ClaimStatus::Verified => "verified",
            ClaimStatus::Partial => "partial",
            ClaimStatus::Missing => "missing",
        }
    }
}

/// One thing that a reviewer would want to be true.
#[derive(Debug, Clone, PartialEq)]
pub struct Claim {
    pub what: &'static str,
    pub status: ClaimStatus,
    /// In a sentence: how far, and what is left.
    pub how: String,
    /// A path under the run.
    pub file: Option<String>,
}

/// All of them, the same list for every run, so that what is missing is seen.
pub fn claims(material: &Material) -> Vec<Claim> {
    let results = &material.record.results;
    let all: Vec<&ResultRecord> = results.iter().collect();
    let compiled: Vec<&ResultRecord> = all.iter().copied().filter(|r| r.gates.compile == GateStatus::Passed).collect();
    let right: Vec<&ResultRecord> = all.iter().copied().filter(|r| r.gates.correctness == GateStatus::Passed).collect();
    let on_machine = || right.iter().copied().filter(|r| r.backend == "ptx_machine");
    let record = "summary.json".to_string();
    let first = |list: &[&ResultRecord], part: &str| {
        list.first().and_then(|r| material.evidence(r, part)).map(str::to_string).or(Some(record.clone()))
    };
    let share = |n: usize| format!("{n} of {}", all.len());
    let mut found = vec![
        Claim {
            what: "It compiles for every target that it names",
            status: of(compiled.len(), all.len()),
            how: format!("{} results; targets {}", share(compiled.len()), list(targets(&all))),
            file: first(&compiled, "compile/"),
        },
        values(&all, &right, first(&right, "correctness/")),
        Claim {
            what: "Its memory accesses, races and barriers are clean",
            status: of(on_machine().count(), all.len()),
            how: format!("{} passed under the PTX machine's detectors", share(on_machine().count())),
            file: first(&on_machine().collect::<Vec<_>>(), "correctness/"),
        },
        coverage(&on_machine().collect::<Vec<_>>(), &record),
        breadth(&right, &record),
        tensor_cores(&right, &record),
    ];
    let on_gpu: Vec<_> = right.iter().copied().filter(|r| r.backend == "gpu").collect();
    found.push(Claim {
        what: "It is right on a GPU",
        status: of(on_gpu.len(), all.len()),
        how: match on_gpu.first() {
            Some(_) => format!(
                "{} passed on {}",
                share(on_gpu.len()),
                material.record.environment.device.as_deref().unwrap_or("a GPU")
            ),
            None => match all.iter().find_map(|r| counted_on(r)) {
                Some(device) => format!("launched on {device} for its counters; its values there were not looked at"),
                None => "not run on a GPU".into(),
            },
        },
        file: first(&on_gpu, "correctness/").filter(|_| !on_gpu.is_empty()),
    });
    found.push(targets_executed(&right));
    found.extend(times(&all, &record));
    found
}

/// The same as a Markdown table, cells unescaped but for bars.
pub(crate) fn rows(material: &Material) -> Vec<[String; 4]> {
    claims(material)
        .into_iter()
        .map(|c| [c.what.into(), c.status.word().into(), c.how, c.file.unwrap_or_else(|| "-".into())])
        .collect()
}

fn of(n: usize, all: usize) -> ClaimStatus {
    match n {
        0 => ClaimStatus::Missing,
        n if n == all => ClaimStatus::Verified,
        _ => ClaimStatus::Partial,
    }
}

fn list(words: BTreeSet<&str>) -> String {
    if words.is_empty() { "none".into() } else { words.into_iter().collect::<Vec<_>>().join(", ") }
}

fn targets<'a>(results: &[&'a ResultRecord]) -> BTreeSet<&'a str> {
    results.iter().flat_map(|r| r.compile.keys().map(String::as_str)).collect()
}

fn values(all: &[&ResultRecord], right: &[&ResultRecord], file: Option<String>) -> Claim {
    let sampled = right
        .iter()
        .filter(|r| {
            r.check
                .iter()
                .flat_map(|c| c.values())
                .any(|c| matches!((c.rows_checked, c.rows_total), (Some(a), Some(b)) if a < b))
        })
        .count();
    let mut status = of(right.len(), all.len());
    let mut how = format!("{} of {} within the limits against f64", right.len(), all.len());
    if sampled > 0 {
        how.push_str(&format!("; {sampled} of them on secretly chosen rows, because the shape is large"));
        status = if status == ClaimStatus::Verified { ClaimStatus::Partial } else { status };
    }
    Claim { what: "Its outputs keep the limits, for the whole and for the worst row", status, how, file }
}

fn coverage(results: &[&ResultRecord], record: &str) -> Claim {
    let runs: Vec<_> = results.iter().filter_map(|r| r.execution.as_ref()).collect();
    let least = runs
        .iter()
        .filter(|e| e.static_instructions > 0)
        .map(|e| e.covered_instructions as f64 / e.static_instructions as f64)
        .fold(f64::INFINITY, f64::min);
    let approximate: BTreeSet<&str> = runs.iter().flat_map(|e| e.approximate.keys().map(String::as_str)).collect();
    let (status, how) = if runs.is_empty() || !least.is_finite() {
        (ClaimStatus::Missing, "nothing was executed on the PTX machine".to_string())
    } else {
        let mut how = format!("at least {:.0}% of each kernel's instructions were executed", (least * 100.0).floor());
        if !approximate.is_empty() {
            how.push_str(&format!("; imitated, not bit-exact: {}", list(approximate.clone())));
        }
        (if least >= 1.0 && approximate.is_empty() { ClaimStatus::Verified } else { ClaimStatus::Partial }, how)
    };
    Claim {
        what: "Every instruction was executed, bit for bit as the hardware does",
        status,
        how,
        file: Some(record.into()),
    }
}

fn breadth(right: &[&ResultRecord], record: &str) -> Claim {
    let count = |of: &dyn Fn(&ResultRecord) -> String| right.iter().map(|r| of(r)).collect::<BTreeSet<_>>();
    let (shapes, seeds) = (count(&|r| r.shape.clone()), count(&|r| r.seed.to_string()));
    let (inputs, formats) = (count(&|r| r.distribution.clone()), count(&|r| r.format.clone()));
    let masks = count(&|r| if r.causal { "causal".into() } else { "no mask".into() });
    let words = |s: &BTreeSet<String>| list(s.iter().map(String::as_str).collect());
    let wide = [shapes.len() > 1, seeds.len() > 1, inputs.len() > 1].iter().filter(|x| **x).count();
    let status = match (right.is_empty(), wide) {
        (true, _) => ClaimStatus::Missing,
        (_, 3) => ClaimStatus::Verified,
        _ => ClaimStatus::Partial,
    };
    let how = format!(
        "shapes {}; {}; formats {}; inputs {}; seeds {}",
        words(&shapes),
        words(&masks),
        words(&formats),
        words(&inputs),
        words(&seeds)
    );
    Claim {
        what: "It holds over several shapes, seeds and distributions",
        status,
        how,
        file: (!right.is_empty()).then(|| record.into()),
    }
}

fn tensor_cores(right: &[&ResultRecord], record: &str) -> Claim {
    let kernels: BTreeSet<_> = right.iter().map(|r| (&r.candidate, &r.config, format!("{:?}", r.levers))).collect();
    let present =
        |r: &&&ResultRecord| r.compile.values().flat_map(|e| e.values()).any(|e| e.tensor_ops.values().any(|n| *n > 0));
    let executed = |r: &&&ResultRecord| r.execution.as_ref().is_some_and(|e| e.tensor_ops > 0);
    let clean = |r: &&&ResultRecord| !r.findings.iter().any(|f| f.code == "wmma-local-memory");
    let name = |r: &&ResultRecord| (r.candidate.clone(), r.config.clone(), format!("{:?}", r.levers));
    let both: BTreeSet<_> = right.iter().filter(present).filter(executed).filter(clean).map(name).collect();
    let only: BTreeSet<_> = right.iter().filter(present).map(name).collect();
    Claim {
        what: "Tensor cores do the work: opcodes in the machine code, and executed",
        status: of(both.len(), kernels.len()),
        how: format!("{} of {} kernels; {} have the opcodes", both.len(), kernels.len(), only.len()),
        file: (!right.is_empty()).then(|| record.into()),
    }
}

fn targets_executed(right: &[&ResultRecord]) -> Claim {
    let compiled = targets(right);
    let executed: BTreeSet<&str> = right.iter().map(|r| r.target.as_str()).collect();
    Claim {
        what: "Every target's code was executed, not only compiled",
        status: of(executed.len(), compiled.len().max(executed.len())),
        how: format!("executed: {}; compiled: {}", list(executed), list(compiled)),
        file: right.first().map(|r| format!("{}/correctness", folder(&r.candidate))),
    }
}

fn times(all: &[&ResultRecord], record: &str) -> Vec<Claim> {
    let judged: Vec<_> = all.iter().filter(|r| r.verdict == VerdictWord::Passed).collect();
    let timed: Vec<_> = judged.iter().filter(|r| r.backend == "gpu").filter_map(|r| measured(r)).collect();
    let peers: BTreeSet<String> = timed
        .iter()
        .flat_map(|m| m.baselines.iter().filter(|b| b.ratio.is_some() && b.name.contains(':')).map(|b| b.name.clone()))
        .collect();
    let stable = timed.iter().filter(|m| matches!(m.stability, Some((_, Some(true))))).count();
    let profiled = judged.iter().filter(|r| r.gates.profile == GateStatus::Passed).count();
    let file = |n: usize| (n > 0).then(|| record.to_string());
    vec![
        Claim {
            what: "It was timed, under conditions that the record states",
            status: of(timed.len(), judged.len()),
            how: if timed.is_empty() {
                "no time was taken".into()
            } else {
                format!("{} of {} results", timed.len(), judged.len())
            },
            file: file(timed.len()),
        },
        Claim {
            what: "It was compared with other people's kernels in the same run",
            status: of(peers.len().min(1), 1),
            how: if peers.is_empty() {
                "no peer was timed beside it".into()
            } else {
                list(peers.iter().map(String::as_str).collect())
            },
            file: file(peers.len()),
        },
        Claim {
            what: "Many launches in a row give the same bits",
            status: of(stable, judged.len()),
            how: format!("{stable} of {} results", judged.len()),
            file: file(stable),
        },
        Claim {
            what: "Hardware counters say what bounds it",
            status: of(profiled, judged.len()),
            how: if profiled == 0 { "not profiled".into() } else { format!("{profiled} of {} results", judged.len()) },
            file: file(profiled),
        },
    ]
}
