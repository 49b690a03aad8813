//! Working a journal through again: everything that the loop decided has to follow from what it knew, answers from outside as they stand.

use crate::decide::{Action, decide};
use crate::event::{Effect, Event};
use crate::state::State;

/// Where the journal does not follow from itself; None where it does.
pub fn differences(events: &[Event]) -> Option<String> {
    let Some(Event::Started { request, start }) = events.first() else {
        return Some("it does not begin with a `started` event".into());
    };
    let mut state = State::new((**request).clone(), (**start).clone());
    for (seq, event) in events.iter().enumerate().skip(1) {
        if let Some(why) = differs(&state, event) {
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
        (Event::Asked { asked: Effect::Remeasure { id } }, Action::Remeasure(own)) => id == own,
        (Event::Asked { asked: Effect::Propose { parents, fixes, .. } }, Action::Ask { parents: p, fixes: f }) => {
            parents == p && fixes == f
        }
        // What came from outside is as it is.
        (Event::Answered { .. } | Event::Evaluated { .. } | Event::Remeasured { .. }, _) => true,
        _ => false,
    };
    (!same).then(|| "the loop decides otherwise now".to_string())
}
