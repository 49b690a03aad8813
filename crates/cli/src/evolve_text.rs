//! What is told of a loop: while it runs, at its end in the terminal, and as report.md.

use crate::args::Common;
use crate::output;
use indicatif::ProgressBar;
use std::fmt::Write as _;
use warpsmith_evolve::event::{Effect, Refusal};
use warpsmith_evolve::outcome::Baselined;
use warpsmith_evolve::record::SolutionRecord;
use warpsmith_evolve::{Event, EvolveRecord, State};

/// Live progress: what is best so far, and each improvement as it is found.
pub struct Observed<'a> {
    bar: &'a ProgressBar,
    verbose: bool,
    quiet: bool,
    told: usize,
}

impl<'a> Observed<'a> {
    pub fn new(bar: &'a ProgressBar, common: &Common) -> Observed<'a> {
        Observed { bar, verbose: common.verbose && !common.json, quiet: common.json, told: 0 }
    }

    pub fn told(&mut self, event: &Event, state: &State) {
        match event {
            Event::Evaluated { .. } => {}
            Event::Asked { asked: Effect::Propose { turn, fixes, .. } } => {
                let what = fixes.map_or_else(String::new, |id| format!(" to mend #{id}"));
                return self.bar.set_message(format!("asking for proposal {turn}{what}"));
            }
            Event::Asked { asked: Effect::Baseline { .. } } => {
                return self.bar.set_message("timing what the criteria compare with");
            }
            Event::Baselined { baselined, .. } => return self.tell_missing(baselined),
            Event::Answered { turn, refusals, failure, .. } if self.verbose => {
                let why = failure.iter().cloned().chain(refusals.iter().map(Refusal::words));
                return why.for_each(|why| output::err(&format!("proposal {turn}: {why}\n")));
            }
            _ => return,
        }
        self.bar.set_position(state.account.evaluations);
        let gain = state.best.and_then(|b| state.score(b)?.gain_over(state.score(0)?));
        let passed = state.judged.values().filter(|j| j.passed()).count();
        let failed = state.judged.len() - passed;
        let gain = gain.map_or_else(String::new, |g| format!("{:.2}x the start, ", g.ratio));
        self.bar.set_message(format!("best {gain}{passed} passed, {failed} failed{}", spent(state)));
        self.tell_failure(event, state);
        for step in state.improvements.iter().skip(self.told.max(1)) {
            if self.verbose {
                let change = &state.solutions[step.id as usize].change;
                let small = if step.announced { "" } else { " (less than is announced)" };
                output::err(&format!("#{} {:.3}x better{small}: {change}\n", step.id, step.gain));
            }
        }
        self.told = state.improvements.len();
    }

    /// What cannot be compared with: criteria about it cannot end the loop.
    fn tell_missing(&self, baselined: &Baselined) {
        for (name, times) in baselined.baselines.iter().filter(|_| !self.quiet) {
            for (shape, why) in times.missing.iter().take(1) {
                output::err(&format!("{name} has no time at {shape}; a criterion that names it cannot hold: {why}\n"));
            }
        }
    }

    /// What was learned from a solution that failed.
    fn tell_failure(&self, event: &Event, state: &State) {
        let Event::Evaluated { id, judged, .. } = event else { return };
        if self.verbose && !judged.passed() {
            let why = judged.findings.first().map_or_else(String::new, |f| format!(": {}, {}", f.code, f.message));
            let change = &state.solutions[*id as usize].change;
            output::err(&format!("#{id} {:?}{why} ({change})\n", judged.verdict));
        }
    }
}

/// What of the budgets is spent, besides evaluations.
fn spent(state: &State) -> String {
    let (budget, spent) = (&state.request.budget, &state.account);
    let of = |limit: Option<String>| limit.map_or_else(String::new, |l| format!("/{l}"));
    let mut text = String::new();
    if spent.calls > 0 {
        let _ = write!(text, ", {}{} calls", spent.calls, of(budget.calls.map(|c| c.to_string())));
    }
    if spent.usd > 0.0 {
        let _ = write!(text, ", {:.2}{} USD", spent.usd, of(budget.usd.map(|u| u.to_string())));
    }
    if spent.gpu_seconds > 0.0 {
        let _ = write!(text, ", {:.0}{} GPU s", spent.gpu_seconds, of(budget.gpu_seconds.map(|s| s.to_string())));
    }
    text
}

/// The texts about a loop.
pub struct Outcomes<'a> {
    pub state: &'a State,
    pub record: &'a EvolveRecord,
}

impl Outcomes<'_> {
    pub fn terminal(&self) -> String {
        let r = self.record;
        let mut text = String::new();
        let verdicts: Vec<String> = r.verdicts.iter().map(|(word, n)| format!("{n} {word}")).collect();
        let _ = writeln!(text, "{} evaluations: {}", r.evaluations, verdicts.join(", "));
        if r.spent.calls > 0 {
            let refused = self.state.refusals.len();
            let _ = writeln!(
                text,
                "{} calls, {} tokens, {:.4} USD; {refused} answers or parts of them were no new candidate",
                r.spent.calls, r.spent.tokens, r.spent.usd
            );
        }
        for step in &self.state.improvements {
            let solution = &self.state.solutions[step.id as usize];
            if step.id > 0 {
                let _ = writeln!(text, "  {:>4} evaluations  {:.3}x  {}", step.evaluations, step.gain, solution.change);
            }
        }
        match &r.best {
            Some(best) => {
                let levers: Vec<String> = best.levers.iter().map(|(k, v)| format!("{k}={v}")).collect();
                let _ = writeln!(text, "best: {} with {}", best.candidate, levers.join(" "));
                text.push_str(&figure(best));
                self.add_beside(&mut text);
                text.push_str(match r.backend.as_str() {
                    "gpu" => "passed gates 1 to 3 on the GPU\n",
                    "fake" => "the device is none: its figures are replayed or made up, and are no times\n",
                    _ => "passed on the PTX machine, not run on a GPU\n",
                });
            }
            None => text.push_str("nothing passed\n"),
        }
        for held in &r.accept {
            let actual = held.actual.map_or_else(String::new, |a| format!(", {a:.3}"));
            let so_far = if r.provisional { ", against times of the loop's beginning" } else { "" };
            let _ = writeln!(text, "criterion {}: {}{actual}{so_far}", held.criterion, held.status);
        }
        if let Some(reason) = &r.finished {
            let _ = writeln!(text, "ended: {reason}");
        }
        text
    }

    /// What the winner was measured beside.
    fn add_beside(&self, text: &mut String) {
        for other in self.record.best.iter().flat_map(|b| &b.beside) {
            let what = match other.of {
                0 => "the start".to_string(),
                of => format!("#{of}, from which it came"),
            };
            let g = other.gain;
            let _ = writeln!(
                text,
                "measured once more in common rounds with {what}: {:.3}x, 95% interval {:.3} to {:.3}",
                g.ratio, g.low, g.high
            );
        }
    }

    pub fn markdown(&self) -> String {
        let r = self.record;
        let mut text = format!(
            "# Evolution of {}\n\nTask {}, variant {}, seed {}; {}\n\n",
            self.state.solutions[0].candidate,
            r.task,
            r.variant,
            r.seed,
            ranked_by(self.state)
        );
        text.push_str("| # | from | change | verdict | figure | gain over the start |\n|---|---|---|---|---|---|\n");
        for solution in &self.state.solutions {
            let Some(one) = warpsmith_evolve::record::solution(self.state, solution.id) else { continue };
            let parents: Vec<String> = one.parents.iter().map(|p| format!("#{p}")).collect();
            let estimate = one.estimate.map(|e| format!("{:.0} {}", e.value, e.unit));
            let estimate = estimate.or(one.time_us.map(|us| format!("{us:.2} us"))).unwrap_or_default();
            let gain = one.gain.map_or_else(String::new, |g| format!("{g:.3}"));
            let verdict = serde_json::to_value(one.verdict).ok().and_then(|v| v.as_str().map(str::to_string));
            let best = if r.best.as_ref().is_some_and(|b| b.id == one.id) { " **best**" } else { "" };
            let _ = writeln!(
                text,
                "| {}{best} | {} | {} | {} | {estimate} | {gain} |",
                one.id,
                parents.join(" "),
                one.change.replace('|', "\\|"),
                verdict.unwrap_or_default()
            );
        }
        let _ = write!(text, "\n```\n{}```\n", self.terminal());
        text
    }
}

/// The figure of the best and its gain, in a line.
fn figure(best: &SolutionRecord) -> String {
    let gain = best.gain.map_or_else(String::new, |g| format!(", {g:.2}x better than the start"));
    match (&best.estimate, &best.times) {
        (Some(e), _) => {
            format!("an estimate for {}, no time: {:.0} {}{gain} ({})\n", e.device, e.value, e.unit, e.model)
        }
        (None, Some(t)) => format!("{:.2} us on the {} by {}{gain}\n", t.time_us, t.device, t.method),
        (None, None) => String::new(),
    }
}

/// What solutions are compared by, in words.
pub fn ranked_by(state: &State) -> String {
    let device = &state.request.device;
    match state.request.backend.as_str() {
        "gpu" => format!("ranked by times on the {device}."),
        "fake" => format!("ranked by figures of {device}, which are replayed or made up and are no times."),
        _ => format!("ranked by an estimate for the {device} from the PTX machine's counters, which is no time."),
    }
}
