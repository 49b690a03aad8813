//! Whether to merge, in a headline and two sentences: what a reader of a report has to know in ten seconds. Taken from the record alone.
//!
//! It judges nothing anew: verdicts are the gates', classes of speed-ups the measurement's.

use crate::html::figure;
use crate::measured::measured;
use crate::summary::overall;
use warpsmith_spec::record::{ResultRecord, RunRecord, VerdictWord, is_peer};

/// The class and the words of the verdict on the whole run.
pub(crate) fn headline(record: &RunRecord) -> (&'static str, String) {
    let overall = overall(record);
    let missed = record.accept.iter().filter(|c| c.status == "missed").count();
    if overall.judged == 0 {
        return ("warn", "Nothing was judged".into());
    }
    if !overall.all_passed() {
        return (
            "bad",
            format!("Do not merge: {} of {} results did not pass", overall.judged - overall.passed, overall.judged),
        );
    }
    if missed > 0 {
        return ("bad", format!("Do not merge: right, but {missed} of {} criteria are missed", record.accept.len()));
    }
    if overall.compiled_only {
        return ("warn", "It compiles; nothing was executed".into());
    }
    let beside = Beside::of(&record.results);
    match (overall.on_gpu, &overall.counted_on) {
        _ if beside.compared > 0 && beside.slower > 0 => (
            "warn",
            format!(
                "Right, but slower than {} in {} of {}",
                beside.whom(),
                beside.slower,
                plural(beside.compared, "measurement")
            ),
        ),
        _ if beside.timed > 0 && beside.compared == 0 => ("ok", "Right, and measured on a GPU; beside nothing".into()),
        _ if beside.timed > 0 && beside.faster == 0 => {
            ("ok", format!("Right, and measured on a GPU: about as fast as {}", beside.whom()))
        }
        _ if beside.timed > 0 => ("ok", format!("Right, and measured on a GPU: never slower than {}", beside.whom())),
        (true, _) => ("ok", "Right on a GPU; no time was taken".into()),
        (false, Some(device)) => ("ok", format!("Right on the PTX machine; profiled on {device}, no time was taken")),
        (false, None) => ("ok", "Right on the PTX machine; not run on a GPU, no time was taken".into()),
    }
}

/// How the run's times compare with the fastest peer of each workload. Replayed figures are none.
#[derive(Default)]
pub(crate) struct Beside {
    timed: usize,
    compared: usize,
    faster: usize,
    slower: usize,
    /// The least and the largest ratio, with where.
    range: Option<((f64, String), (f64, String))>,
    peers: bool,
}

impl Beside {
    pub(crate) fn of(results: &[ResultRecord]) -> Beside {
        let mut found = Beside::default();
        for r in results.iter().filter(|r| r.backend == "gpu" && r.verdict == VerdictWord::Passed) {
            let Some(m) = measured(r).filter(|m| !m.replayed) else { continue };
            found.timed += 1;
            let Some((rival, (ratio, ..))) = m.rival() else { continue };
            found.compared += 1;
            found.peers |= is_peer(&rival.name);
            match rival.class.as_str() {
                "regression" => found.slower += 1,
                "excellent" | "good" | "modest" => found.faster += 1,
                _ => {}
            }
            let place =
                format!("{} at {}{}", crate::summary::short(r), r.shape, if r.causal { ", causal" } else { "" });
            let (least, most) = found.range.take().unwrap_or(((ratio, place.clone()), (ratio, place.clone())));
            let here = (ratio, place);
            found.range =
                Some((if here.0 < least.0 { here.clone() } else { least }, if here.0 > most.0 { here } else { most }));
        }
        found
    }

    fn whom(&self) -> &'static str {
        if self.peers { "the fastest peer" } else { "its baseline" }
    }

    pub(crate) fn sentence(&self) -> Option<String> {
        let ((low, worst), (high, best)) = self.range.as_ref()?;
        let close = self.compared - self.faster - self.slower;
        Some(format!(
            "Against {} of each workload it is faster in {}, about equal in {close}, slower in {} of {}: from {}x ({worst}) to {}x ({best}).",
            self.whom(),
            self.faster,
            self.slower,
            self.compared,
            figure(*low),
            figure(*high)
        ))
    }
}

fn plural(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// What the run lets one decide, in one sentence. Nothing where the headline has said it.
pub(crate) fn decision(record: &RunRecord) -> Option<String> {
    let overall = overall(record);
    if !overall.all_passed() || record.accept.iter().any(|c| c.status == "missed") {
        return None;
    }
    if overall.compiled_only {
        return Some("not on this: no value was looked at".into());
    }
    let beside = Beside::of(&record.results);
    let words = match (overall.on_gpu, beside.timed, beside.compared, beside.slower) {
        (false, ..) => "for its values and its use of memory, yes; as a speed-up, not on this: nothing was timed",
        (true, 0, ..) => "for its values on that GPU, yes; as a speed-up, not on this: nothing was timed",
        (_, _, 0, _) => "as a right kernel, yes; whether it is a gain nobody knows: it was timed beside nothing",
        (_, _, _, 0) if !beside.peers => {
            "as a gain over its baseline, yes; whether it beats what people use is not known: no peer was timed"
        }
        (_, _, _, 0) => "yes, at these shapes and on this device",
        (_, _, n, m) if m == n => "as a right kernel, yes; as a faster one, no",
        _ => "as a right kernel, yes; as a faster one, only for the shapes where it is (Times)",
    };
    Some(words.into())
}
