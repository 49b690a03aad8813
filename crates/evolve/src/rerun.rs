//! Working a journal through again: everything that the loop decided has to follow from what it knew. Prompts are made again, and recorded
//! answers are read again; only judgements stand as they are.

use crate::decide::{Action, decide};
use crate::driver::Asker;
use crate::event::{Effect, Event};
use crate::state::State;

/// A proposer outside with what it said then, by hash. Nobody is asked.
pub struct Recorded<'a> {
    pub asker: &'a dyn Asker,
    /// The text that was kept under this hash.
    pub text: &'a dyn Fn(&str) -> Result<String, String>,
    pub hash: fn(&str) -> String,
}

/// Where the journal does not follow from itself; None where it does. Without `recorded` what a proposer outside said stands as it is.
pub fn differences(events: &[Event], recorded: Option<&Recorded>) -> Option<String> {
    let Some(Event::Started { request, start }) = events.first() else {
        return Some("it does not begin with a `started` event".into());
    };
    let mut state = State::new((**request).clone(), (**start).clone());
    for (seq, event) in events.iter().enumerate().skip(1) {
        let said = recorded.and_then(|recorded| recorded.differs(&state, event));
        if let Some(why) = differs(&state, event).or(said) {
            return Some(format!("event {seq}: {why}"));
        }
        if let Err(why) = state.apply(event) {
            return Some(format!("event {seq}: {why}"));
        }
    }
    None
}

fn differs(state: &State, event: &Event) -> Option<String> {
    let decided = decide(state);
    let same = match (event, &decided) {
        (Event::Proposed { solution }, Action::Propose(own)) => solution == own,
        (Event::Refused { refusal }, Action::Refuse(own)) => refusal == own,
        (Event::Finished { reason }, Action::Finish(own)) => reason == own,
        (Event::Asked { asked: Effect::Evaluate { ids } }, Action::Evaluate(own)) => ids == own,
        (Event::Asked { asked: Effect::Baseline { beside } }, Action::Baseline(own)) => beside == own,
        (Event::Asked { asked: Effect::Remeasure { id } }, Action::Remeasure(own)) => id == own,
        (Event::Asked { asked: Effect::Propose { parents, fixes, .. } }, Action::Ask { parents: p, fixes: f }) => {
            parents == p && fixes == f
        }
        // What came from outside is as it is.
        (Event::Answered { .. } | Event::Evaluated { .. } | Event::Baselined { .. } | Event::Remeasured { .. }, _) => {
            true
        }
        _ => false,
    };
    (!same).then(|| "the loop decides otherwise now".to_string())
}

impl Recorded<'_> {
    /// Why a prompt would be another one now, or an answer be read in another way.
    fn differs(&self, state: &State, event: &Event) -> Option<String> {
        match event {
            Event::Asked { asked: Effect::Propose { parents, fixes, prompt_sha256, .. } } => {
                match self.asker.prompt(state, parents, *fixes) {
                    Ok(prompt) if (self.hash)(&prompt) == *prompt_sha256 => None,
                    Ok(_) => Some("the prompt is another one now".into()),
                    Err(why) => Some(format!("the prompt cannot be made: {why}")),
                }
            }
            Event::Answered { solutions, refusals, answer_sha256: Some(sha), .. } => {
                let Some(Effect::Propose { parents, fixes, .. }) = &state.open else { return None };
                let again =
                    (self.text)(sha).and_then(|answer| self.asker.read(state, parents, *fixes, &answer, &mut |_| {}));
                match again {
                    Ok(reading) if reading.solutions == *solutions && reading.refusals == *refusals => None,
                    Ok(_) => Some("the answer is read in another way now".into()),
                    Err(why) => Some(format!("the answer cannot be read: {why}")),
                }
            }
            _ => None,
        }
    }
}
