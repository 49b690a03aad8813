//! What to do next, each with the exact command. Taken from the record alone.

use crate::chosen::{chosen, files};
use crate::material::Material;
use crate::measured::measured;
use crate::summary::short;
use std::collections::BTreeSet;
use warpsmith_spec::record::{ResultRecord, VerdictWord};

/// Failing kernels whose commands are written out.
const MAX_FAILING: usize = 3;

/// One step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    pub why: String,
    pub command: String,
}

/// In the order in which they help.
pub fn next_steps(material: &Material) -> Vec<Step> {
    let results = &material.record.results;
    let mut steps = Vec::new();
    let mut told = BTreeSet::new();
    for r in results.iter().filter(|r| r.verdict != VerdictWord::Passed) {
        let code = r.finding.as_ref().map(|f| f.code.clone()).unwrap_or_default();
        if !told.insert((r.candidate.clone(), code.clone())) || told.len() > MAX_FAILING {
            continue;
        }
        if !code.is_empty() {
            steps.push(Step {
                why: format!("What {code} means, and how to mend it:"),
                command: format!("warpsmith explain {code}"),
            });
        }
        steps.push(Step {
            why: format!("After mending {}, judge it again where it failed:", short(r)),
            command: again(r),
        });
    }
    if results.is_empty() {
        steps
            .push(Step { why: "Nothing was judged; what there is to judge:".into(), command: "warpsmith list".into() });
        return steps;
    }
    let files = files(&results.iter().collect::<Vec<_>>());
    if told.is_empty() {
        if !results.iter().any(|r| r.backend == "gpu") {
            steps.push(Step {
                why: "Run the same gates on a GPU (here, or through a launcher with --on):".into(),
                command: format!("warpsmith check {files} --backend gpu"),
            });
        }
        if !results.iter().any(|r| measured(r).is_some()) {
            steps.push(Step {
                why: "Measure it beside its baselines, on a machine with a GPU:".into(),
                command: format!("warpsmith bench {files}"),
            });
        }
        if !results.iter().any(|r| r.profile.is_some()) {
            steps.extend(chosen(material.record).map(|c| Step {
                why: "See what bounds it and what to try; without a GPU by the work that it executes:".into(),
                command: format!("warpsmith profile {} --shapes {}", c.subject, c.shape),
            }));
        }
        if results.iter().map(|r| r.seed).collect::<BTreeSet<_>>().len() == 1 {
            steps.push(Step {
                why: "Judge it on other inputs too:".into(),
                command: format!("warpsmith check {files} --seeds 1,2,3 --dist needles,normal,outliers"),
            });
        }
    }
    steps.push(Step {
        why: "One archive with all that a reviewer needs:".into(),
        command: format!("warpsmith evidence {} --out evidence.tar.zst", quoted(&material.run)),
    });
    steps
}

/// The command that judges this very result again.
pub fn again(r: &ResultRecord) -> String {
    let mut command =
        format!("warpsmith check {} --shapes {} --seeds {}", quoted(&r.candidate), quoted(&r.shape), r.seed);
    for (option, value, usual) in
        [("--format", &r.format, ""), ("--scales", &r.scales, "none"), ("--dist", &r.distribution, "")]
    {
        if !value.is_empty() && value != usual && value != "none" {
            command.push_str(&format!(" {option} {value}"));
        }
    }
    if r.causal {
        command.push_str(" --mask causal");
    }
    if let Some(out) = r.variant.out {
        command.push_str(&format!(" --layout {} --out-format {out}", r.variant.layout));
    }
    command.push_str(&format!(" --target {}", r.target));
    match &r.config {
        Some(config) => command.push_str(&format!(" --config {}", quoted(config))),
        None => r.levers.iter().for_each(|(k, v)| command.push_str(&format!(" --set {k}={v}"))),
    }
    if r.backend == "gpu" {
        command.push_str(" --backend gpu");
    }
    command
}

/// A command line as it can be typed again.
pub fn typed(words: &[String]) -> String {
    let mut out: Vec<String> = words.iter().map(|w| quoted(w)).collect();
    if let Some(program) = out.first_mut() {
        // Where the binary lay does not matter to whoever types it again.
        *program = words[0].rsplit(['/', '\\']).next().unwrap_or("warpsmith").to_string();
    }
    out.join(" ")
}

/// As a shell takes it for one word. Of a name that could break out of a page or a line only what is harmless is written; the rest are
/// the shell's own `?`, which match it.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@+%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_string();
    }
    if word.contains(|c: char| c.is_control() || "<>`".contains(c)) {
        return word.chars().map(|c| if plain(c) { c } else { '?' }).collect();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}
