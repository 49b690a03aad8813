//! A language model as a proposer: one prompt out, one answer back, over the wire formats of OpenAI (and the many servers that speak it),
//! Anthropic, Gemini and Ollama, streamed.
//!
//! Rate limits and overloaded servers are waited out with growing pauses (or the pause that the server names). Everything has a limit: the
//! seconds of a call, the bytes of an answer. The key appears in one header and nowhere else: not in errors, not in answers, not in
//! journals. It does not know what a kernel is.

mod http;
pub mod price;
mod wire;

use crate::driver::Answer;
use http::{Failure, Http};
pub use price::Price;
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};
use wire::Heard;

/// Bytes of an answer that are read; a longer one is cut off there and said to be.
pub const MAX_ANSWER_BYTES: usize = 1 << 20;
/// Times that one call is tried.
const TRIES: u32 = 6;
/// Where no server ever answered.
const TRIES_UNHEARD: u32 = 3;
/// The first pause, doubled each time, and the longest.
const PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// Whose wire format is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Provider {
    OpenAi,
    Anthropic,
    Gemini,
    Ollama,
}

impl Provider {
    pub const ALL: [Provider; 4] = [Provider::OpenAi, Provider::Anthropic, Provider::Gemini, Provider::Ollama];

    pub fn word(self) -> &'static str {
        match self {
            Provider::OpenAi => "openai",
            Provider::Anthropic => "anthropic",
            Provider::Gemini => "gemini",
            Provider::Ollama => "ollama",
        }
    }

    pub fn of(word: &str) -> Option<Provider> {
        Provider::ALL.into_iter().find(|p| p.word() == word)
    }

    /// The environment's variable that holds a key.
    pub fn key_variable(self) -> Option<&'static str> {
        match self {
            Provider::OpenAi => Some("OPENAI_API_KEY"),
            Provider::Anthropic => Some("ANTHROPIC_API_KEY"),
            Provider::Gemini => Some("GEMINI_API_KEY"),
            Provider::Ollama => None,
        }
    }

    pub fn base_url(self) -> &'static str {
        match self {
            Provider::OpenAi => "https://api.openai.com/v1",
            Provider::Anthropic => "https://api.anthropic.com",
            Provider::Gemini => "https://generativelanguage.googleapis.com",
            Provider::Ollama => "http://localhost:11434",
        }
    }
}

/// A key. It is never printed.
#[derive(Clone)]
pub struct Key(String);

impl Key {
    /// Without the white space around it; None where nothing is left, or it cannot stand in a header.
    pub fn new(text: &str) -> Option<Key> {
        let key = text.trim();
        (!key.is_empty() && key.bytes().all(|b| b.is_ascii_graphic())).then(|| Key(key.to_string()))
    }

    /// A text without the key in it: servers repeat what they refuse.
    fn hide(&self, text: &str) -> String {
        // The short "key" of a local server (`none`, `EMPTY`) is a word, and would blank ordinary ones.
        let is_word = self.0.len() < 8 && self.0.bytes().all(|b| b.is_ascii_alphabetic());
        if is_word || self.0.len() < 4 { text.to_string() } else { text.replace(&self.0, "[key]") }
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("[key]")
    }
}

/// A model to talk to.
#[derive(Debug, Clone)]
pub struct Model {
    pub provider: Provider,
    pub model: String,
    /// The provider's own where none is given.
    pub base_url: Option<String>,
    pub key: Option<Key>,
    pub price: Option<Price>,
    /// Tokens that an answer may have.
    pub answer_tokens: u64,
    /// For one call, waiting included.
    pub seconds: u64,
    /// Before a second try; tests make it nothing.
    pub pause: Duration,
    /// Whether a call was ever answered: then what looks like a wrong key or address may pass.
    answered: bool,
}

impl Model {
    pub fn new(provider: Provider, model: &str) -> Model {
        Model {
            provider,
            model: model.to_string(),
            base_url: None,
            key: None,
            price: None,
            answer_tokens: 16_000,
            seconds: 600,
            pause: PAUSE,
            answered: false,
        }
    }

    /// One call of so many seconds at most, waiting included.
    ///
    /// # Errors
    /// What no later call could mend: no such server or model, a key that is refused.
    pub fn call(&mut self, prompt: &str, seconds: u64, cancelled: &dyn Fn() -> bool) -> Result<Answer, String> {
        let began = Instant::now();
        let deadline = began + Duration::from_secs(seconds.clamp(1, 86_400));
        let mut http = Http { deadline, cancelled };
        let mut answer = Answer::default();
        let mut pause = self.pause;
        let mut form = wire::Form::default();
        for attempt in 1..=TRIES {
            let request = wire::request(self, prompt, form);
            match http.talk(self.provider, &request) {
                Ok(heard) => {
                    self.take(prompt, heard, &mut answer);
                    break;
                }
                Err(failure) => {
                    let why = self.hide(&failure.why);
                    let tries = if attempt > 1 { format!(" ({attempt} tries)") } else { String::new() };
                    answer.failure = Some(format!("{why}{tries}"));
                    // Servers that speak OpenAI's format do not all know all of it.
                    if failure.status == Some(400) && form.other(&failure.why) {
                        continue;
                    }
                    if failure.is_final() && !self.answered {
                        return Err(self.hopeless(&failure, &why));
                    }
                    let tries = if failure.status.is_none() && !self.answered { TRIES_UNHEARD } else { TRIES };
                    answer.unreached = failure.may_pass() || failure.over;
                    if !failure.may_pass() || attempt >= tries || !http.wait(failure.after.unwrap_or(pause)) {
                        if failure.status.is_none() && !failure.over && !self.answered {
                            return Err(self.hopeless(&failure, &why));
                        }
                        break;
                    }
                    pause = (pause * 2).min(MAX_PAUSE);
                }
            }
        }
        answer.seconds = began.elapsed().as_secs_f64();
        Ok(answer)
    }

    fn take(&mut self, prompt: &str, heard: Heard, answer: &mut Answer) {
        self.answered = true;
        let text = self.hide(&heard.text);
        // A server that does not count: a token is about four bytes.
        let input = heard.input_tokens.unwrap_or(prompt.len() as u64 / 4);
        let output = heard.output_tokens.unwrap_or(text.len() as u64 / 4);
        answer.tokens = input.saturating_add(output);
        answer.usd = self.price.as_ref().map_or(0.0, |p| p.of(input, output));
        answer.unreached = false;
        answer.failure = heard.problem.map(|p| self.hide(&p));
        answer.text = Some(text).filter(|t| !t.trim().is_empty());
        if answer.text.is_none() && answer.failure.is_none() {
            answer.failure = Some("an empty answer".into());
        }
    }

    fn hide(&self, text: &str) -> String {
        self.key.as_ref().map_or_else(|| text.to_string(), |k| k.hide(text))
    }

    fn hopeless(&self, failure: &Failure, why: &str) -> String {
        let next = match (failure.status, self.provider.key_variable()) {
            (Some(401 | 403), Some(variable)) if self.key.is_none() => {
                format!("; set {variable}, or give --key-file FILE")
            }
            (Some(401 | 403), _) => "; is the key right?".into(),
            (Some(_), _) => format!("; is there a model {:?}?", self.model),
            (None, _) => "; is --base-url right, and does the server run?".into(),
        };
        format!("{} at {}: {why}{next}", self.provider.word(), wire::base(self))
    }
}
