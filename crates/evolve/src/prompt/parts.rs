//! What of a loop's state goes into a prompt, and in which order it is left out where the prompt would be too large.

use super::sheet::{Header, Sheet};
use crate::answer::shortened;
use crate::request::Against;
use crate::score::Score;
use crate::solution::{Levers, Solution};
use crate::state::State;
use serde::Serialize;
use std::collections::BTreeSet;
use warpsmith_spec::record::VerdictWord;

/// Tried solutions that are told, the latest; earlier solutions whose text is shown.
const MAX_TRIED: usize = 20;
const MAX_HISTORY: usize = 6;
const MAX_LESSONS: usize = 24;
/// Characters of a message, a thought, a change.
const MAX_WORDS: usize = 400;

type Texts<'a> = &'a dyn Fn(&str) -> Result<String, String>;

#[derive(Debug, Serialize)]
pub struct Parts {
    has_history: bool,
    has_insights: bool,
    parents: Vec<Shown>,
    history: Vec<Shown>,
    insights: Vec<String>,
    tried: Vec<String>,
    lessons: Vec<String>,
    /// The speed-up that entry to the elite demands, where none has reached it.
    demanded: Option<String>,
    /// The start's text where nothing is correct.
    start: Option<String>,
    fix: Option<Fix>,
    headers: Vec<Header>,
    cut: BTreeSet<String>,
}

/// A solution as it is shown.
#[derive(Debug, Serialize)]
struct Shown {
    id: u64,
    levers: String,
    figure: String,
    change: String,
    thought: String,
    source: Option<String>,
}

#[derive(Debug, Serialize)]
struct Fix {
    verdict: String,
    levers: String,
    findings: Vec<Found>,
    wrong_at: Vec<String>,
    source: String,
}

#[derive(Debug, Serialize)]
struct Found {
    code: String,
    message: String,
    line: Option<u32>,
    text: String,
}

impl Parts {
    pub fn of(
        state: &State,
        sheet: &Sheet,
        parents: &[u64],
        fixes: Option<u64>,
        texts: Texts,
    ) -> Result<Parts, String> {
        let variant = state.request.variant;
        let mut parts = Parts {
            has_history: variant.has_history(),
            has_insights: variant.has_insights(),
            parents: Vec::new(),
            history: Vec::new(),
            insights: Vec::new(),
            tried: Vec::new(),
            lessons: Vec::new(),
            demanded: None,
            start: None,
            fix: None,
            headers: sheet.all_headers.clone(),
            cut: BTreeSet::new(),
        };
        match fixes {
            Some(failed) => parts.fix = Some(fix(state, failed, texts)?),
            None => {
                for id in parents {
                    parts.parents.push(shown(state, *id, texts, true)?);
                }
                if parents.is_empty() {
                    parts.start = state.solutions.first().map(|s| texts(&s.source_sha256)).transpose()?;
                }
            }
        }
        if variant.has_history() && fixes.is_none() {
            let others = state.archive.members().into_iter().filter(|m| !parents.contains(&m.id));
            for member in others.take(MAX_HISTORY) {
                parts.history.push(shown(state, member.id, texts, true)?);
            }
        }
        if variant.has_history() && state.archive.members().is_empty() && state.best.is_some() {
            let rules = &state.request.rules;
            let over = match rules.elite_against {
                Against::Baseline => "the start",
                Against::Parent => "what they come from",
            };
            parts.demanded = Some(format!("{} times as good as {over}", rules.elite_min_speedup));
        }
        if variant.has_insights() {
            // What the gates saw of a failed one stands beside it.
            let best = parents.first().filter(|_| fixes.is_none());
            parts.insights = best.map(|id| insights(state, *id)).unwrap_or_default();
            parts.tried = tried(state);
            parts.lessons = state.lessons.lines(&state.request).into_iter().take(MAX_LESSONS).collect();
        }
        Ok(parts)
    }

    /// Leaves the least important out that is left; false where nothing can be.
    pub fn leave_out(&mut self) -> bool {
        if let Some(last) = self.history.iter_mut().rev().find(|h| h.source.is_some()) {
            last.source = None;
            self.cut.insert("the texts of earlier solutions".into());
        } else if self.tried.len() > 5 {
            self.tried.remove(0);
            self.cut.insert("what was tried first".into());
        } else if self.lessons.len() > 5 {
            self.lessons.pop();
            self.cut.insert("some lessons".into());
        } else if let Some(header) = self.headers.pop() {
            self.cut.insert(format!("the header <{}>", header.name));
        } else if self.history.pop().is_some() {
            self.cut.insert("earlier solutions".into());
        } else if !self.tried.is_empty() {
            self.tried.remove(0);
            self.cut.insert("what was tried first".into());
        } else if self.lessons.pop().is_some() {
            self.cut.insert("some lessons".into());
        } else if self.insights.pop().is_some() {
            self.cut.insert("some of what the gates saw".into());
        } else if self.parents.len() > 1 {
            // Then it is no crossing any more, and is not called one.
            self.parents.pop();
            self.cut.insert("the second parent".into());
        } else {
            return false;
        }
        true
    }
}

fn shown(state: &State, id: u64, texts: Texts, with_source: bool) -> Result<Shown, String> {
    let solution = solution(state, id)?;
    Ok(Shown {
        id,
        levers: levers(&solution.levers),
        figure: figure(state, id),
        change: shortened(&solution.change, MAX_WORDS),
        thought: shortened(solution.rationale.as_deref().unwrap_or_default(), MAX_WORDS),
        source: with_source.then(|| texts(&solution.source_sha256)).transpose()?.map(ended),
    })
}

fn solution(state: &State, id: u64) -> Result<&Solution, String> {
    state.solutions.get(id as usize).ok_or_else(|| format!("there is no solution {id}"))
}

fn ended(text: String) -> String {
    if text.ends_with('\n') { text } else { text + "\n" }
}

pub fn levers(levers: &Levers) -> String {
    levers.iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>().join(" ")
}

/// The score with its unit, by shape, and the gain over the start.
fn figure(state: &State, id: u64) -> String {
    let Some(score) = state.score(id) else { return "It has no figure.".into() };
    let gain = state.score(0).filter(|_| id != 0).and_then(|start| score.gain_over(start));
    let gain = gain.map_or_else(String::new, |g| format!(", {:.3} times as good as the start", g.ratio));
    let (what, by_shape): (String, Vec<String>) = match score {
        Score::Estimate(e) => (
            format!("Estimate {:.0} model cycles on the {}", e.value, e.device),
            e.shapes.iter().map(|(s, v)| format!("{s} {v:.0}")).collect(),
        ),
        Score::Timed(t) => (
            format!("Time {:.2} us on the {}", t.time_us, t.device),
            t.shapes.iter().map(|(s, v)| format!("{s} {:.2}", v.median_us)).collect(),
        ),
    };
    format!("{what}{gain} ({}).", by_shape.join(", "))
}

fn insights(state: &State, id: u64) -> Vec<String> {
    let Some(judged) = state.judged.get(&id) else { return Vec::new() };
    let mut lines = Vec::new();
    if let Some(r) = judged.resources {
        let spills = if r.spill_bytes > 0 { format!(", {} bytes spilled", r.spill_bytes) } else { String::new() };
        lines.push(format!("{} registers a thread, {} bytes of shared memory{spills}", r.registers, r.shared_bytes));
    }
    lines.extend(judged.insights.iter().map(|l| shortened(l, MAX_WORDS)));
    lines.extend(judged.findings.iter().map(|f| {
        let line = f.line.map(|l| format!(" at line {l}")).unwrap_or_default();
        format!("{}{line}: {}", f.code, shortened(&f.message, MAX_WORDS))
    }));
    lines
}

/// The latest solutions with how they ended; a rejected one is never forgotten.
fn tried(state: &State) -> Vec<String> {
    let ended: Vec<u64> = state.judged.keys().copied().filter(|id| *id != 0).collect();
    let from = ended.len().saturating_sub(MAX_TRIED);
    let rejected = |id: &u64| state.judged.get(id).is_some_and(|j| j.verdict == VerdictWord::Rejected);
    let mut told: Vec<u64> = ended[..from].iter().copied().filter(rejected).collect();
    told.drain(..told.len().saturating_sub(MAX_TRIED));
    told.extend(&ended[from..]);
    told.into_iter().filter_map(|id| one_tried(state, id)).collect()
}

fn one_tried(state: &State, id: u64) -> Option<String> {
    let (solution, judged) = (state.solutions.get(id as usize)?, state.judged.get(&id)?);
    let thought = solution.rationale.as_deref().map(|t| format!(" ({})", shortened(t, 200))).unwrap_or_default();
    let end = if let Some(of) = judged.duplicate_of {
        format!("the same code as #{of}")
    } else if !judged.passed() {
        let found = judged.findings.first().map(|f| {
            let line = f.line.map(|l| format!(" at line {l}")).unwrap_or_default();
            format!(": {}{line}, {}", f.code, shortened(&f.message, 160))
        });
        format!("{}{}", crate::record::word(judged.verdict), found.unwrap_or_default())
    } else {
        let parent = solution.parents.first().and_then(|p| state.score(*p)).or(state.score(0));
        match parent.and_then(|p| judged.score.as_ref()?.gain_over(p)) {
            Some(gain) => format!("correct, {:.3} times as good as what it came from", gain.ratio),
            None => "correct".into(),
        }
    };
    let from = solution.parents.first().map(|p| format!(" from #{p}")).unwrap_or_default();
    Some(format!("#{id}{from}: {}{thought}: {end}", shortened(&solution.change, 200)))
}

fn fix(state: &State, id: u64, texts: Texts) -> Result<Fix, String> {
    let solution = solution(state, id)?;
    let judged = state.judged.get(&id).ok_or_else(|| format!("solution {id} was not judged"))?;
    let source = ended(texts(&solution.source_sha256)?);
    let lines: Vec<&str> = source.lines().collect();
    let findings = judged.findings.iter().map(|f| Found {
        code: f.code.clone(),
        message: shortened(&f.message, 2 * MAX_WORDS),
        line: f.line,
        text: f
            .line
            .and_then(|l| lines.get(l.checked_sub(1)? as usize))
            .map(|l| l.trim().to_string())
            .unwrap_or_default(),
    });
    let verdict = match judged.verdict {
        VerdictWord::CompileFailed => "It does not compile",
        VerdictWord::Faulted => "It makes accesses or uses barriers that are errors",
        VerdictWord::Incorrect => "Its output is wrong",
        VerdictWord::Rejected => "It was rejected",
        VerdictWord::TimedOut => "It did not come to its end",
        VerdictWord::Unsupported => "It uses what cannot be executed here",
        VerdictWord::Passed => "It passed",
    };
    Ok(Fix {
        verdict: verdict.into(),
        levers: levers(&solution.levers),
        findings: findings.collect(),
        wrong_at: judged.wrong_at.clone(),
        source,
    })
}
