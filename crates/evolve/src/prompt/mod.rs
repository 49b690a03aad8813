//! Prompts: what a proposer outside is told, rendered from templates in files.
//!
//! The variant decides what a prompt holds, and nothing else does: Free has the task (I1) and the current best, Insight has insights (I3)
//! besides, Full has earlier solutions with their figures (I2) as well. A prompt is a pure function of the loop's state, the
//! sheet of its task and the templates. Its size is budgeted in tokens, taken as a quarter of its bytes; what does not fit is left out, the least
//! important first, and the prompt says so.

mod parts;
mod sheet;

use crate::state::State;
use minijinja::{Environment, UndefinedBehavior, context};
pub use sheet::Sheet;
use std::collections::BTreeMap;

/// Bytes that are taken for a token.
pub const BYTES_PER_TOKEN: usize = 4;
/// Tokens of a prompt where nothing is said.
pub const DEFAULT_TOKENS: usize = 32_000;
/// Bytes of one template.
pub const MAX_TEMPLATE_BYTES: usize = 256 << 10;

/// The templates that are part of the program.
pub const TEMPLATES: [(&str, &str); 7] = [
    ("propose.md", include_str!("../../prompts/propose.md")),
    ("fix.md", include_str!("../../prompts/fix.md")),
    ("task.md", include_str!("../../prompts/task.md")),
    ("empty.md", include_str!("../../prompts/empty.md")),
    ("history.md", include_str!("../../prompts/history.md")),
    ("insights.md", include_str!("../../prompts/insights.md")),
    ("format.md", include_str!("../../prompts/format.md")),
];

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PromptError {
    #[error("the template {name}: {why}")]
    Template { name: String, why: String },
    #[error("there is no template {name:?}; there are {}", TEMPLATES.map(|(n, _)| n).join(", "))]
    Unknown { name: String },
    #[error("the prompt has {tokens} tokens at least, more than {most} (--prompt-tokens)")]
    TooLarge { tokens: usize, most: usize },
    #[error("{0}")]
    Text(String),
}

/// Templates, the program's own or others in their places.
#[derive(Debug)]
pub struct Prompts {
    environment: Environment<'static>,
    most_tokens: usize,
}

impl Prompts {
    /// `instead`: texts by the name of the template whose place they take.
    ///
    /// # Errors
    /// A name that no template has, or a text that is none.
    pub fn new(instead: &BTreeMap<String, String>, most_tokens: usize) -> Result<Prompts, PromptError> {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Chainable);
        environment.set_keep_trailing_newline(true);
        if let Some(name) = instead.keys().find(|n| TEMPLATES.iter().all(|(t, _)| t != n)) {
            return Err(PromptError::Unknown { name: name.clone() });
        }
        for (name, own) in TEMPLATES {
            let text = instead.get(name).map_or(own, String::as_str).to_string();
            let wrong = |why: String| PromptError::Template { name: name.into(), why };
            if text.len() > MAX_TEMPLATE_BYTES {
                return Err(wrong(format!("it has {} bytes, more than {MAX_TEMPLATE_BYTES}", text.len())));
            }
            environment.add_template_owned(name, text).map_err(|e| wrong(described(&e)))?;
        }
        Ok(Prompts { environment, most_tokens })
    }

    /// The prompt for these parents, or for mending `fixes`. `texts` gives the text of a solution by its hash.
    ///
    /// # Errors
    /// A template that cannot be rendered, a text that is gone, or a prompt that cannot be made small enough.
    pub fn prompt(
        &self,
        state: &State,
        sheet: &Sheet,
        parents: &[u64],
        fixes: Option<u64>,
        texts: &dyn Fn(&str) -> Result<String, String>,
    ) -> Result<String, PromptError> {
        let mut parts = parts::Parts::of(state, sheet, parents, fixes, texts).map_err(PromptError::Text)?;
        let name = if fixes.is_some() { "fix.md" } else { "propose.md" };
        loop {
            let text = self.render(name, sheet, &parts)?;
            let tokens = text.len().div_ceil(BYTES_PER_TOKEN);
            if tokens <= self.most_tokens {
                return Ok(text);
            }
            if !parts.leave_out() {
                return Err(PromptError::TooLarge { tokens, most: self.most_tokens });
            }
        }
    }

    fn render(&self, name: &str, sheet: &Sheet, parts: &parts::Parts) -> Result<String, PromptError> {
        let wrong = |e: minijinja::Error| PromptError::Template { name: name.into(), why: described(&e) };
        let template = self.environment.get_template(name).map_err(wrong)?;
        let context = context! {
            most => crate::answer::MAX_DRAFTS,
            ..context! { ..minijinja::Value::from_serialize(parts), ..minijinja::Value::from_serialize(sheet) }
        };
        let text = template.render(context).map_err(wrong)?;
        // What is absent leaves empty lines behind; one is enough.
        let mut out = String::with_capacity(text.len());
        let mut fenced = false;
        for line in text.lines() {
            fenced ^= line.starts_with("```");
            if fenced || !line.trim().is_empty() || !out.ends_with("\n\n") {
                out.push_str(if line.trim().is_empty() { "" } else { line });
                out.push('\n');
            }
        }
        Ok(out.trim().to_string() + "\n")
    }
}

fn described(error: &minijinja::Error) -> String {
    let place = error.line().map(|l| format!("line {l}: ")).unwrap_or_default();
    format!("{place}{error}")
}
