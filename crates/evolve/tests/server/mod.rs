//! A server on this machine that speaks the wire formats of OpenAI, Anthropic, Gemini and Ollama from a script, and keeps what it was asked.

#![allow(dead_code)]

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// One answer of the script.
#[derive(Debug, Clone)]
pub enum Say {
    /// This text, streamed, with these tokens counted.
    Text(String, u64, u64),
    /// This text, all at once.
    Whole(String),
    /// A stream that breaks off after the text.
    BreaksOff(String),
    /// The model refuses, in the format's own way.
    Refuses,
    /// Cut off at the limit of tokens.
    TooLong(String),
    /// This status with this message, and this pause asked for.
    Status(u16, String, Option<&'static str>),
    /// What no client understands.
    Nonsense,
    /// An error in the middle of a stream, as an overloaded server sends it.
    Overloaded,
    /// Nothing, until the client leaves.
    Hangs,
}

#[derive(Debug, Clone)]
pub struct Asked {
    pub path: String,
    pub headers: Vec<(String, String)>,
    pub body: Value,
    pub prompt: String,
}

impl Asked {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }
}

pub struct Server {
    pub url: String,
    pub asked: Arc<Mutex<Vec<Asked>>>,
}

impl Server {
    /// `script` gives the answer to the n-th request.
    pub fn start(script: impl Fn(usize, &Asked) -> Say + Send + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked: Arc<Mutex<Vec<Asked>>> = Arc::default();
        let kept = asked.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let Some(one) = read(&stream) else { continue };
                let n = kept.lock().unwrap().len();
                let say = script(n, &one);
                kept.lock().unwrap().push(one.clone());
                answer(stream, &one.path, say);
            }
        });
        Server { url, asked }
    }

    pub fn prompts(&self) -> Vec<String> {
        self.asked.lock().unwrap().iter().map(|a| a.prompt.clone()).collect()
    }
}

fn read(stream: &TcpStream) -> Option<Asked> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let path = line.split(' ').nth(1)?.to_string();
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim().split_once(':') else { break };
        headers.push((name.to_ascii_lowercase(), value.trim().to_string()));
    }
    let length: usize = headers.iter().find(|(n, _)| n == "content-length")?.1.parse().ok()?;
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let body: Value = serde_json::from_slice(&body).ok()?;
    let prompt = body["messages"][0]["content"].as_str().or(body["contents"][0]["parts"][0]["text"].as_str())?;
    Some(Asked { prompt: prompt.to_string(), path, headers, body })
}

/// The stream of one format: pieces of a text, its end, the count of tokens.
fn stream(path: &str, text: &str, input: u64, output: u64, reason: Option<&str>) -> String {
    let chars: Vec<char> = text.chars().collect();
    let pieces: Vec<String> = chars.chunks(700).map(|c| c.iter().collect()).collect();
    let sse = |v: Value| format!("data: {v}\n\n");
    if path.contains("chat/completions") {
        let mut all = sse(json!({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}));
        all.push_str(": a comment\n\n");
        pieces.iter().for_each(|p| {
            all += &sse(json!({"id": "x", "choices": [{"index": 0, "delta": {"content": p}, "finish_reason": null}]}))
        });
        let Some(reason) = reason else { return all };
        all += &sse(json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}));
        all += &sse(
            json!({"choices": [], "usage": {"prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output}}),
        );
        all += "data: [DONE]\n\n";
        all
    } else if path.contains("/v1/messages") {
        let event = |name: &str, v: Value| format!("event: {name}\n{}", sse(v));
        let mut all = event(
            "message_start",
            json!({"type": "message_start", "message": {"content": [], "usage": {"input_tokens": input, "output_tokens": 1}}}),
        );
        all += &event(
            "content_block_start",
            json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        );
        all += &event("ping", json!({"type": "ping"}));
        pieces.iter().for_each(|p| {
            all += &event(
                "content_block_delta",
                json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": p}}),
            );
        });
        let Some(reason) = reason else { return all };
        let reason = if reason == "stop" { "end_turn" } else { reason };
        all += &event(
            "message_delta",
            json!({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": output}}),
        );
        all += &event("message_stop", json!({"type": "message_stop"}));
        all
    } else if path.contains("generateContent") || path.contains("streamGenerateContent") {
        let mut all: String = pieces
            .iter()
            .map(|p| sse(json!({"candidates": [{"content": {"parts": [{"text": p}], "role": "model"}}]})))
            .collect();
        let Some(reason) = reason else { return all };
        all += &sse(json!({"candidates": [{"content": {"parts": []}, "finishReason": reason.to_uppercase()}],
            "usageMetadata": {"promptTokenCount": input, "candidatesTokenCount": output}}));
        all
    } else {
        let mut all: String = pieces
            .iter()
            .map(|p| {
                format!("{}\n", json!({"model": "m", "message": {"role": "assistant", "content": p}, "done": false}))
            })
            .collect();
        let Some(reason) = reason else { return all };
        all += &format!(
            "{}\n",
            json!({"message": {"role": "assistant", "content": ""}, "done": true, "done_reason": reason,
            "prompt_eval_count": input, "eval_count": output})
        );
        all
    }
}

fn whole(path: &str, text: &str) -> Value {
    if path.contains("chat/completions") {
        json!({"choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 7, "completion_tokens": 3}})
    } else if path.contains("/v1/messages") {
        json!({"type": "message", "content": [{"type": "text", "text": text}], "stop_reason": "end_turn", "usage": {"input_tokens": 7, "output_tokens": 3}})
    } else if path.contains("enerateContent") {
        json!({"candidates": [{"content": {"parts": [{"text": text}]}, "finishReason": "STOP"}], "usageMetadata": {"promptTokenCount": 7, "candidatesTokenCount": 3}})
    } else {
        json!({"message": {"content": text}, "done": true, "done_reason": "stop", "prompt_eval_count": 7, "eval_count": 3})
    }
}

fn refusal(path: &str) -> String {
    if path.contains("chat/completions") {
        let delta = json!({"choices": [{"index": 0, "delta": {"refusal": "I can't help with that."}}]});
        format!("data: {delta}\n\n{}", stream(path, "", 5, 2, Some("stop")))
    } else if path.contains("enerateContent") {
        format!("data: {}\n\n", json!({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}}))
    } else if path.contains("/v1/messages") {
        stream(path, "", 5, 2, Some("refusal"))
    } else {
        stream(path, "I'm sorry, I can't help with that.", 5, 2, Some("stop"))
    }
}

fn answer(mut stream_: TcpStream, path: &str, say: Say) {
    let kind = if path.contains("/api/chat") { "application/x-ndjson" } else { "text/event-stream" };
    let reason = if path.contains("/v1/messages") || path.contains("enerateContent") { "max_tokens" } else { "length" };
    let (status, extra, body) = match say {
        Say::Text(text, input, output) => (200, String::new(), stream(path, &text, input, output, Some("stop"))),
        Say::Whole(text) => (200, String::new(), whole(path, &text).to_string()),
        Say::BreaksOff(text) => (200, String::new(), stream(path, &text, 5, 5, None)),
        Say::TooLong(text) => (200, String::new(), stream(path, &text, 5, 5, Some(reason))),
        Say::Refuses => (200, String::new(), refusal(path)),
        Say::Status(status, message, after) => {
            let after = after.map_or_else(String::new, |a| format!("retry-after: {a}\r\n"));
            (status, after, json!({"error": {"type": "an_error", "message": message}}).to_string())
        }
        Say::Nonsense => (200, String::new(), "<html>not what you asked for</html>".into()),
        Say::Overloaded => {
            let error = json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}});
            (
                200,
                String::new(),
                if kind.contains("ndjson") { error.to_string() } else { format!("event: error\ndata: {error}\n\n") },
            )
        }
        Say::Hangs => {
            std::thread::spawn(move || {
                let mut rest = Vec::new();
                let _ = stream_.read_to_end(&mut rest);
            });
            return;
        }
    };
    // In two writes, so that lines arrive in parts.
    let head = format!(
        "HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\n{extra}connection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let half = body.len() / 2;
    let _ = stream_.write_all(head.as_bytes());
    let _ = stream_.write_all(&body.as_bytes()[..half]);
    let _ = stream_.flush();
    let _ = stream_.write_all(&body.as_bytes()[half..]);
}
