//! A proposer outside of the loop: prompts made, a speaker asked, answers read into solutions that can be judged.
//!
//! A candidate is taken only if it is one for the loop's task and target and serves every workload that the start serves: a kernel that
//! excludes the hard shapes by its own constraints would win without having done the work.

use crate::answer::{self, Draft};
use crate::driver::{Answer, Asker, Reading};
use crate::event::Refusal;
use crate::llm::Model;
use crate::prompt::{BYTES_PER_TOKEN, Prompts, Sheet};
use crate::solution::{Levers, Operator, Solution, difference};
use crate::state::State;
use std::cell::RefCell;
use std::collections::BTreeMap;
use warpsmith_spec::workload::{Workload, expand};
use warpsmith_spec::{Candidate, LeverRequest, TaskSet, WorkloadRequest, target};

/// Who is asked.
#[derive(Debug)]
pub enum Speaker {
    Model(Box<Model>),
    Agent {
        command: String,
        seconds: u64,
    },
    /// Nobody: prompts are made and recorded answers read.
    Nobody,
}

/// Everything that a proposer outside needs.
pub struct Outside<'a> {
    pub tasks: &'a TaskSet,
    pub sheet: Sheet,
    pub prompts: Prompts,
    pub speaker: Speaker,
    /// The text of a solution, by its hash.
    pub texts: Box<dyn Fn(&str) -> Result<String, String> + 'a>,
    /// The hash under which a text is kept.
    pub hash: fn(&str) -> String,
    /// Normalised texts by the hash of the text.
    normal: RefCell<BTreeMap<String, String>>,
}

impl<'a> Outside<'a> {
    pub fn new(
        tasks: &'a TaskSet,
        sheet: Sheet,
        prompts: Prompts,
        speaker: Speaker,
        texts: Box<dyn Fn(&str) -> Result<String, String> + 'a>,
        hash: fn(&str) -> String,
    ) -> Outside<'a> {
        Outside { tasks, sheet, prompts, speaker, texts, hash, normal: RefCell::default() }
    }

    fn normal(&self, sha: &str) -> Result<String, String> {
        if let Some(text) = self.normal.borrow().get(sha) {
            return Ok(text.clone());
        }
        let text = answer::normalised(&(self.texts)(sha)?);
        self.normal.borrow_mut().insert(sha.into(), text.clone());
        Ok(text)
    }

    /// The earlier solution that is the same but for comments and white space.
    fn known(&self, state: &State, more: &[Solution], text: &str, levers: &Levers) -> Result<Option<u64>, String> {
        let text = answer::normalised(text);
        for solution in state.solutions.iter().filter(|s| s.levers == *levers) {
            if self.normal(&solution.source_sha256)? == text {
                return Ok(Some(solution.id));
            }
        }
        let sha = |s: &&Solution| self.normal.borrow().get(&s.source_sha256) == Some(&text);
        Ok(more.iter().filter(|s| s.levers == *levers).find(sha).map(|s| s.id))
    }
}

impl Asker for Outside<'_> {
    fn prompt(&self, state: &State, parents: &[u64], fixes: Option<u64>) -> Result<String, String> {
        self.prompts.prompt(state, &self.sheet, parents, fixes, &self.texts).map_err(|e| e.to_string())
    }

    fn ask(
        &mut self,
        _turn: u64,
        prompt: &str,
        most_seconds: Option<f64>,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<Answer, String> {
        // Whole seconds, at least one: a budget that ends within a second is spent then.
        let limit = |seconds: u64| most_seconds.map_or(seconds, |most| seconds.min(most.ceil() as u64)).max(1);
        match &mut self.speaker {
            Speaker::Model(model) => model.call(prompt, limit(model.seconds), cancelled),
            Speaker::Agent { command, seconds } => super::agent::call(command, limit(*seconds), prompt, cancelled),
            Speaker::Nobody => Err("nobody is there to be asked".into()),
        }
    }

    fn read(
        &self,
        state: &State,
        parents: &[u64],
        fixes: Option<u64>,
        text: &str,
        keep: &mut dyn FnMut(&str),
    ) -> Result<Reading, String> {
        let start = state.solutions.first().ok_or("the loop has no start")?;
        let base = fixes.or(parents.first().copied()).unwrap_or(0);
        let base = state.solutions.get(base as usize).unwrap_or(start);
        let base_text = (self.texts)(&base.source_sha256)?;
        let start_text = (self.texts)(&start.source_sha256)?;
        let ground = Ground { tasks: self.tasks, state, start, start_text: &start_text, base, base_text: &base_text };
        let answer::Drafts { drafts, refused } = answer::read(text, Some(&base_text));
        let mut reading = Reading::default();
        reading.refusals.extend(refused.into_iter().map(|why| Refusal::Unreadable { why }));
        for draft in drafts {
            let (name, text, levers) = match ground.taken(&draft) {
                Ok(taken) => taken,
                Err(why) => {
                    reading.refusals.push(Refusal::NotApplicable { why });
                    continue;
                }
            };
            if let Some(of) = self.known(state, &reading.solutions, &text, &levers)? {
                reading.refusals.push(Refusal::Duplicate { of });
                continue;
            }
            let sha = (self.hash)(&text);
            self.normal.borrow_mut().entry(sha.clone()).or_insert_with(|| answer::normalised(&text));
            keep(&text);
            reading.solutions.push(Solution {
                id: (state.solutions.len() + reading.solutions.len()) as u64,
                candidate: name,
                change: ground.change(&draft, &sha, &levers),
                source_sha256: sha,
                levers,
                parents: if fixes.is_some() { vec![base.id] } else { parents.to_vec() },
                operator: match (fixes, parents.len()) {
                    (Some(_), _) => Operator::Fix,
                    (None, 2..) => Operator::Crossover,
                    _ => Operator::Mutation,
                },
                rationale: draft.thought,
            });
        }
        Ok(reading)
    }
}

/// What drafts are judged against before they become solutions.
struct Ground<'a> {
    tasks: &'a TaskSet,
    state: &'a State,
    start: &'a Solution,
    start_text: &'a str,
    base: &'a Solution,
    base_text: &'a str,
}

impl Ground<'_> {
    /// Name, text and levers of a draft that can be judged, or why it cannot.
    fn taken(&self, draft: &Draft) -> Result<(String, String, Levers), String> {
        let text = draft.text.clone().unwrap_or_else(|| self.base_text.to_string());
        let name = match &draft.text {
            None => self.base.candidate.clone(),
            Some(_) => self.name(draft),
        };
        // One that fills the prompt would be the last: nobody could be asked to go on from it.
        let most = (self.state.request.prompts.tokens.saturating_mul(BYTES_PER_TOKEN) / 2).max(self.start_text.len());
        if text.len() > most {
            return Err(format!(
                "it has {} bytes; prompts have room for {most} of a kernel (--prompt-tokens)",
                text.len()
            ));
        }
        let candidate = self.parsed(&name, &text)?;
        if candidate.task != self.state.request.task {
            return Err(format!("it is for the task {}, not {}", candidate.task, self.state.request.task));
        }
        if !candidate.targets.contains(&self.state.request.target) {
            return Err(format!("its targets leave {} out", self.state.request.target));
        }
        let levers = self.levers(&candidate, draft)?;
        self.serves_all(&candidate, &levers)?;
        Ok((name, text, levers))
    }

    fn parsed(&self, name: &str, text: &str) -> Result<Candidate, String> {
        Candidate::parse(name, text.as_bytes(), self.tasks).map_err(|e| e.to_string())
    }

    /// A file's name for the text: what the proposer called it, with a number where that is another text's.
    fn name(&self, draft: &Draft) -> String {
        let called = draft.name.clone().unwrap_or_else(|| "candidate".into());
        let name = format!("{called}.cu");
        let file = |c: &str| c.rsplit(['/', '\\']).next().unwrap_or(c).trim_end_matches(".cu").to_string();
        if draft.name.is_some() && self.state.solutions.iter().all(|s| file(&s.candidate) != called) {
            return name;
        }
        format!("{called}-{}.cu", self.state.turns)
    }

    /// The parent's values where the parent's text is kept, the candidate's own defaults else; over both what the draft sets.
    fn levers(&self, candidate: &Candidate, draft: &Draft) -> Result<Levers, String> {
        let mut set: Vec<String> = Vec::new();
        if draft.text.is_none() {
            set.extend(self.base.levers.iter().map(|(k, v)| format!("{k}={v}")));
            let named = |s: &String| s.split('=').next().map(str::trim).map(str::to_string);
            let changed: Vec<String> = draft.set.iter().filter_map(named).collect();
            set.retain(|s| named(s).is_none_or(|n| !changed.contains(&n)));
        }
        set.extend(draft.set.iter().cloned());
        let request = LeverRequest { set, config: None, sweep: false };
        let setting = candidate.settings(&request).map_err(|e| e.to_string())?.into_iter().next().unwrap_or_default();
        if !candidate.levers_fit(&setting) {
            return Err("its levers have values that its own constraints exclude".into());
        }
        Ok(setting.levers)
    }

    fn serves_all(&self, candidate: &Candidate, levers: &Levers) -> Result<(), String> {
        let request = &self.state.request;
        let (Some(task), Ok(target)) = (self.tasks.get(&request.task), target::find(&request.target)) else {
            return Err(format!("there is no task {} or no target {}", request.task, request.target));
        };
        let begun = self.parsed(&self.start.candidate, self.start_text)?;
        let asked = WorkloadRequest { shapes: request.shapes.clone(), ..WorkloadRequest::default() };
        let workloads: Vec<Workload> = expand(task, &begun, &asked).map_err(|e| e.to_string())?;
        let setting = |levers: &Levers| warpsmith_spec::Setting { config: None, levers: levers.clone() };
        let (old, new) = (setting(&self.start.levers), setting(levers));
        for workload in workloads.iter().filter(|w| begun.applicable(&old, w, target).is_ok()) {
            candidate.applicable(&new, workload, target).map_err(|why| {
                let mask = if workload.causal { ", causal" } else { "" };
                format!("it does not serve {}{mask}: {why}", workload.shape)
            })?;
        }
        Ok(())
    }

    fn change(&self, draft: &Draft, sha: &str, levers: &Levers) -> String {
        if self.base.source_sha256 == sha {
            return difference(&self.base.levers, levers);
        }
        let name = draft.name.clone().unwrap_or_else(|| "a new text".into());
        if draft.set.is_empty() { name } else { format!("{name}, {}", draft.set.join(", ")) }
    }
}
