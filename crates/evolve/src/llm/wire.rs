//! The four wire formats: what is sent, and what each line of an answer says.
//!
//! Sources: the API references of OpenAI (chat completions, streaming), Anthropic (messages, streaming), Gemini (`streamGenerateContent`
//! with `alt=sse`) and Ollama (`/api/chat`, one JSON object a line). A server that answers at once, unstreamed, is understood too.

use super::{MAX_ANSWER_BYTES, Model, Provider};
use serde_json::{Value, json};

/// What is sent.
pub struct Request {
    pub url: String,
    pub headers: Vec<(&'static str, String)>,
    pub body: String,
}

/// What an answer said.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Heard {
    pub text: String,
    pub input_tokens: Option<u64>,
    pub output_tokens: Option<u64>,
    /// Cut off, refused, stopped by a filter, an error in the middle: in words.
    pub problem: Option<String>,
    /// The answer said that it ended.
    pub ended: bool,
}

/// The server's address without a slash at its end.
pub fn base(model: &Model) -> String {
    let given = model.base_url.as_deref().unwrap_or_else(|| model.provider.base_url());
    let base = given.trim().trim_end_matches('/');
    let has_path = base.split_once("://").is_some_and(|(_, rest)| rest.contains('/'));
    match model.provider {
        Provider::OpenAi if !has_path => format!("{base}/v1"),
        Provider::OpenAi => base.to_string(),
        Provider::Anthropic => base.trim_end_matches("/v1").to_string(),
        Provider::Gemini => base.trim_end_matches("/v1beta").to_string(),
        Provider::Ollama => base.trim_end_matches("/v1").trim_end_matches("/api").to_string(),
    }
}

/// What of OpenAI's format a server has turned out not to know.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Form {
    /// Leaves out how usage is asked for.
    plain: bool,
    /// The limit of tokens under its other name.
    other_limit: bool,
}

impl Form {
    /// Whether there is another form for a server that refused a request with these words; it is taken.
    pub fn other(&mut self, why: &str) -> bool {
        let before = *self;
        self.plain |= why.contains("stream_options");
        self.other_limit |= why.contains("max_tokens") || why.contains("max_completion_tokens");
        *self != before
    }
}

/// The request for one prompt.
pub fn request(model: &Model, prompt: &str, form: Form) -> Request {
    let base = base(model);
    let messages = json!([{"role": "user", "content": prompt}]);
    let mut headers = vec![("content-type", "application/json".to_string())];
    let key = model.key.as_ref().map(|k| k.0.clone());
    let (url, body) = match model.provider {
        Provider::OpenAi => {
            headers.extend(key.map(|k| ("authorization", format!("Bearer {k}"))));
            let own = model.base_url.is_none();
            let limit = if own != form.other_limit { "max_completion_tokens" } else { "max_tokens" };
            let mut body = json!({"model": model.model, "messages": messages, "stream": true});
            body[limit] = json!(model.answer_tokens);
            if !form.plain {
                body["stream_options"] = json!({"include_usage": true});
            }
            (format!("{base}/chat/completions"), body)
        }
        Provider::Anthropic => {
            headers.push(("anthropic-version", "2023-06-01".into()));
            headers.extend(key.map(|k| ("x-api-key", k)));
            let body = json!({
                "model": model.model, "max_tokens": model.answer_tokens, "messages": messages, "stream": true
            });
            (format!("{base}/v1/messages"), body)
        }
        Provider::Gemini => {
            headers.extend(key.map(|k| ("x-goog-api-key", k)));
            let body = json!({
                "contents": [{"role": "user", "parts": [{"text": prompt}]}],
                "generationConfig": {"maxOutputTokens": model.answer_tokens}
            });
            (format!("{base}/v1beta/models/{}:streamGenerateContent?alt=sse", escaped(&model.model)), body)
        }
        Provider::Ollama => {
            headers.extend(key.map(|k| ("authorization", format!("Bearer {k}"))));
            let body = json!({
                "model": model.model, "messages": messages, "stream": true,
                "options": {"num_predict": model.answer_tokens}
            });
            (format!("{base}/api/chat"), body)
        }
    };
    Request { url, headers, body: body.to_string() }
}

fn escaped(name: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
    name.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}

impl Heard {
    /// Takes in one line of a streamed answer. False ends the reading.
    pub fn line(&mut self, provider: Provider, line: &str) -> bool {
        let line = line.trim();
        let data = match line.strip_prefix("data:") {
            Some(data) => data.trim(),
            // Ollama's lines are JSON themselves; so is an error or an answer that was not streamed.
            None if line.starts_with('{') => line,
            None => return true,
        };
        if data == "[DONE]" {
            self.ended = true;
            return false;
        }
        if let Ok(value) = serde_json::from_str::<Value>(data) {
            self.value(provider, &value);
        } else if !data.is_empty() && self.problem.is_none() {
            self.problem = Some(format!("a malformed line in the answer: {}", crate::answer::shortened(data, 80)));
        }
        if self.text.len() >= MAX_ANSWER_BYTES {
            let mut at = MAX_ANSWER_BYTES;
            while !self.text.is_char_boundary(at) {
                at -= 1;
            }
            self.text.truncate(at);
            self.problem = Some(format!("the answer was cut off at {MAX_ANSWER_BYTES} bytes"));
            self.ended = true;
            return false;
        }
        true
    }

    /// Takes in one JSON value: an event of a stream, or a whole answer.
    pub fn value(&mut self, provider: Provider, value: &Value) {
        if let Some(error) = value.get("error").filter(|e| !e.is_null()) {
            self.problem = Some(format!("the server said: {}", error_text(error)));
        }
        match provider {
            Provider::OpenAi => self.open_ai(value),
            Provider::Anthropic => self.anthropic(value),
            Provider::Gemini => self.gemini(value),
            Provider::Ollama => self.ollama(value),
        }
    }

    /// A text, or a list of parts that have one, as some servers send it.
    fn say(&mut self, text: Option<&Value>) {
        match text {
            Some(Value::String(text)) => self.text.push_str(text),
            Some(Value::Array(parts)) => {
                parts.iter().filter_map(|p| p.get("text")?.as_str()).for_each(|t| self.text.push_str(t));
            }
            _ => {}
        }
    }

    fn stopped(&mut self, reason: Option<&Value>) {
        let Some(reason) = reason.and_then(Value::as_str) else { return };
        self.ended = true;
        let lower = reason.to_ascii_lowercase();
        if ["length", "max_tokens", "model_context_window_exceeded"].contains(&lower.as_str()) {
            self.problem = Some("the answer was cut off at its limit of tokens (--answer-tokens)".into());
        } else if ["content_filter", "refusal", "safety", "prohibited_content", "blocklist", "recitation"]
            .contains(&lower.as_str())
        {
            self.problem = Some(format!("the model refused ({reason})"));
        }
    }

    fn open_ai(&mut self, value: &Value) {
        let choice = &value["choices"][0];
        for part in [&choice["delta"], &choice["message"]] {
            self.say(part.get("content"));
            if let Some(refusal) = part.get("refusal").and_then(Value::as_str).filter(|r| !r.is_empty()) {
                let before = self.problem.take().filter(|p| p.starts_with("the model refused: "));
                self.problem = Some(before.unwrap_or_else(|| "the model refused: ".into()) + refusal);
            }
        }
        self.stopped(choice.get("finish_reason"));
        self.input_tokens = value["usage"]["prompt_tokens"].as_u64().or(self.input_tokens);
        self.output_tokens = value["usage"]["completion_tokens"].as_u64().or(self.output_tokens);
    }

    fn anthropic(&mut self, value: &Value) {
        self.say(value["delta"].get("text"));
        for part in value["content"].as_array().into_iter().flatten() {
            self.say(part.get("text"));
        }
        self.stopped(value["delta"].get("stop_reason").or(value.get("stop_reason")));
        for usage in [&value["message"]["usage"], &value["usage"]] {
            let of = |name: &str| usage[name].as_u64();
            if let Some(fresh) = of("input_tokens") {
                let cached = ["cache_read_input_tokens", "cache_creation_input_tokens"];
                self.input_tokens = Some(cached.iter().filter_map(|n| of(n)).fold(fresh, u64::saturating_add));
            }
            self.output_tokens = of("output_tokens").or(self.output_tokens);
        }
        self.ended |= value["type"] == "message_stop";
    }

    fn gemini(&mut self, value: &Value) {
        let candidate = &value["candidates"][0];
        for part in candidate["content"]["parts"].as_array().into_iter().flatten() {
            if part["thought"] != true {
                self.say(part.get("text"));
            }
        }
        self.stopped(candidate.get("finishReason"));
        if let Some(why) = value["promptFeedback"]["blockReason"].as_str() {
            self.problem = Some(format!("the model refused ({why})"));
            self.ended = true;
        }
        let usage = &value["usageMetadata"];
        self.input_tokens = usage["promptTokenCount"].as_u64().or(self.input_tokens);
        if let Some(said) = usage["candidatesTokenCount"].as_u64() {
            self.output_tokens = Some(said.saturating_add(usage["thoughtsTokenCount"].as_u64().unwrap_or(0)));
        }
    }

    fn ollama(&mut self, value: &Value) {
        self.say(value["message"].get("content"));
        if value["done"] == true {
            self.stopped(value.get("done_reason"));
            self.ended = true;
        }
        self.input_tokens = value["prompt_eval_count"].as_u64().or(self.input_tokens);
        self.output_tokens = value["eval_count"].as_u64().or(self.output_tokens);
    }
}

/// An error's own words.
pub fn error_text(error: &Value) -> String {
    let words = error.get("message").and_then(Value::as_str).or(error.as_str());
    crate::answer::shortened(words.unwrap_or(&error.to_string()), 300)
}
