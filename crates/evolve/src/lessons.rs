//! Lessons: what helped and what hurt in a loop, by task and device, with its evidence; for later loops that are told to read them.
//!
//! A lesson is a change (a lever's value, or an idea in words) with how often it helped, hurt and failed, counted over the solutions that
//! made it against their first parent. Estimates and times are kept apart. A loop reads lessons only from the text in its request.

use crate::answer::shortened;
use crate::request::LoopRequest;
use crate::score::{Gain, Score};
use crate::solution::Levers;
use crate::state::State;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use warpsmith_spec::LeverValue;

pub const LESSONS_SCHEMA: &str = "warpsmith.lessons/1";
/// Bytes of a file of lessons; lessons of a file.
pub const MAX_BYTES: usize = 1 << 20;
const MAX_LESSONS: usize = 500;
const MAX_EVIDENCE: usize = 8;
/// How far lessons can move a setting's place: factors of what is expected of it.
const MOST_PRIOR: f64 = 4.0;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Lessons {
    pub schema: String,
    pub lessons: Vec<Lesson>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Lesson {
    pub task: String,
    /// The kernel that the loop began with.
    pub kernel: String,
    pub device: String,
    /// `estimate` | `time` | `replay`
    pub measure: String,
    #[serde(flatten)]
    pub change: Change,
    pub helped: u64,
    pub hurt: u64,
    /// Did not pass.
    pub failed: u64,
    /// Geometric mean of the gains of those that passed; absent where none did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gain: Option<f64>,
    pub evidence: Vec<Evidence>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Change {
    Lever { name: String, from: String, to: String },
    Idea { text: String },
}

/// One solution that made the change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    pub run: String,
    pub solution: u64,
    pub parent: u64,
    pub verdict: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gain: Option<f64>,
    /// The first finding of one that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finding: Option<String>,
}

impl Lessons {
    /// Reads a file's text.
    ///
    /// # Errors
    /// Too large, not of this schema, or not such a file.
    pub fn parse(text: &str) -> Result<Lessons, String> {
        if text.len() > MAX_BYTES {
            return Err(format!("it has {} bytes, more than {MAX_BYTES}", text.len()));
        }
        let lessons: Lessons = serde_json::from_str(text).map_err(|e| e.to_string())?;
        if lessons.schema != LESSONS_SCHEMA {
            return Err(format!("its schema is {:?}, not {LESSONS_SCHEMA:?}", lessons.schema));
        }
        Ok(lessons)
    }

    /// What a loop taught, called `run` in the evidence.
    pub fn of(state: &State, run: &str) -> Lessons {
        let mut found: BTreeMap<Change, Vec<(Option<Gain>, Evidence)>> = BTreeMap::new();
        for (id, judged) in state.judged.iter().filter(|(id, j)| **id != 0 && j.duplicate_of.is_none()) {
            let Some(solution) = state.solutions.get(*id as usize) else { continue };
            let Some(parent) = solution.parents.first().and_then(|p| state.solutions.get(*p as usize)) else {
                continue;
            };
            let Some(before) = state.score(parent.id) else { continue };
            let Some(change) = change(parent, solution) else { continue };
            let gain = judged.score.as_ref().filter(|_| judged.passed()).and_then(|s| s.gain_over(before));
            let evidence = Evidence {
                run: run.into(),
                solution: *id,
                parent: parent.id,
                verdict: crate::record::word(judged.verdict),
                gain: gain.map(|g| g.ratio),
                finding: judged.findings.first().map(|f| shortened(&format!("{}: {}", f.code, f.message), 200)),
            };
            found.entry(change).or_default().push((gain, evidence));
        }
        let kernel = state.solutions.first().map(|s| stem(&s.candidate)).unwrap_or_default();
        let mut lessons: Vec<Lesson> = found.into_iter().map(|(c, all)| lesson(state, &kernel, c, all)).collect();
        // What moved most comes first, whichever way.
        let moved = |l: &Lesson| l.gain.map_or(0.0, |g| libm::fabs(libm::log(g)));
        lessons.sort_by(|a, b| moved(b).total_cmp(&moved(a)).then(a.change.cmp(&b.change)));
        lessons.truncate(MAX_LESSONS);
        Lessons { schema: LESSONS_SCHEMA.into(), lessons }
    }

    fn for_task<'a>(&'a self, request: &'a LoopRequest) -> impl Iterator<Item = &'a Lesson> {
        self.lessons.iter().filter(move |l| l.task == request.task)
    }

    /// As sentences for prompts, those of the loop's own device first.
    pub fn lines(&self, request: &LoopRequest) -> Vec<String> {
        let mut all: Vec<&Lesson> = self.for_task(request).collect();
        all.sort_by_key(|l| l.device != request.device);
        all.into_iter().map(line).collect()
    }

    /// How much more, or less, is to be expected of going from one setting to another, by the levers' lessons: 1 where there are none.
    pub fn prior(&self, request: &LoopRequest, from: &Levers, to: &Levers) -> f64 {
        let mut sum = 0.0;
        for lesson in self.for_task(request) {
            let Change::Lever { name, from: old, to: new } = &lesson.change else { continue };
            let is = |levers: &Levers, text: &str| levers.get(name).is_some_and(|v| same(v, text));
            let sign = match (is(from, old) && is(to, new), is(from, new) && is(to, old)) {
                (true, _) => 1.0,
                // What helped one way hurts the other.
                (_, true) if lesson.gain.is_some() => -1.0,
                _ => continue,
            };
            let tried = (lesson.helped + lesson.hurt + lesson.failed).max(1) as f64;
            // One that failed says as much as one that is half as good.
            let gain = lesson.gain.filter(|g| *g > 0.0 && g.is_finite()).map_or(0.0, libm::log);
            let passed = (lesson.helped + lesson.hurt) as f64 / tried;
            let failed = lesson.failed as f64 / tried;
            let weight = if lesson.device == request.device { 2.0 } else { 1.0 };
            sum += weight * sign * (gain * passed - core::f64::consts::LN_2 * failed);
        }
        libm::exp(sum).clamp(1.0 / MOST_PRIOR, MOST_PRIOR)
    }
}

fn same(value: &LeverValue, text: &str) -> bool {
    value.to_string() == text
}

fn stem(candidate: &str) -> String {
    let file = candidate.rsplit(['/', '\\']).next().unwrap_or(candidate);
    file.strip_suffix(".cu").unwrap_or(file).to_string()
}

/// What a solution changed, if it can be said as one thing.
fn change(parent: &crate::Solution, child: &crate::Solution) -> Option<Change> {
    if parent.source_sha256 != child.source_sha256 {
        let text = child.rationale.as_deref().unwrap_or(&child.change);
        return Some(Change::Idea { text: shortened(text, 300) });
    }
    let mut differing = child.levers.iter().filter(|(name, value)| parent.levers.get(*name) != Some(value));
    let (name, to) = differing.next()?;
    // Which of two levers it was cannot be told apart.
    if differing.next().is_some() {
        return None;
    }
    let from = parent.levers.get(name)?;
    Some(Change::Lever { name: name.clone(), from: from.to_string(), to: to.to_string() })
}

fn lesson(state: &State, kernel: &str, change: Change, all: Vec<(Option<Gain>, Evidence)>) -> Lesson {
    let gains: Vec<Gain> = all.iter().filter_map(|(g, _)| *g).collect();
    let logs: f64 = gains.iter().map(|g| libm::log(g.ratio)).sum();
    let timed = state.judged.values().any(|j| matches!(j.score, Some(Score::Timed(_))));
    Lesson {
        task: state.request.task.clone(),
        kernel: kernel.into(),
        device: state.request.device.clone(),
        // What a file replays teaches nothing about a device.
        measure: match (timed, state.request.backend.as_str()) {
            (false, _) => "estimate",
            (true, "fake") => "replay",
            (true, _) => "time",
        }
        .into(),
        change,
        helped: gains.iter().filter(|g| g.low > 1.0).count() as u64,
        hurt: gains.iter().filter(|g| g.high < 1.0).count() as u64,
        failed: all.iter().filter(|(_, e)| e.verdict != "passed").count() as u64,
        gain: (!gains.is_empty()).then(|| libm::exp(logs / gains.len() as f64)),
        evidence: all.into_iter().map(|(_, e)| e).take(MAX_EVIDENCE).collect(),
    }
}

fn line(lesson: &Lesson) -> String {
    let what = match &lesson.change {
        Change::Lever { name, from, to } => format!("{name} {from} -> {to}"),
        Change::Idea { text } => text.clone(),
    };
    let gain = lesson.gain.map(|g| format!(", {g:.3} times as good on average")).unwrap_or_default();
    let finding = lesson.evidence.iter().find_map(|e| e.finding.as_ref()).map(|f| format!(" ({f})"));
    format!(
        "{what}: helped {}, hurt {}, failed {}{}{gain}, by {} on the {}, from {}",
        lesson.helped,
        lesson.hurt,
        lesson.failed,
        finding.unwrap_or_default(),
        match lesson.measure.as_str() {
            "time" => "times",
            "replay" => "replayed figures",
            _ => "estimates",
        },
        lesson.device,
        lesson.kernel
    )
}
