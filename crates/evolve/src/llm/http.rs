//! One request over HTTP, its answer line by line, with a deadline and an ear for cancelling.
//!
//! The connection is a thread's, so that a server that hangs cannot hold the loop: at the deadline it is left to its own time limit.

use super::Provider;
use super::wire::{Heard, Request, error_text};
use std::io::{BufRead, BufReader, Read};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant, SystemTime};

/// Bytes of one line of an answer, and of an error's body.
const MAX_LINE: u64 = 4 << 20;
const MAX_ERROR: u64 = 64 << 10;
/// Lines of a stream: an endless one of empty lines ends too.
const MAX_LINES: u64 = 2_000_000;
/// So much later than the deadline the client itself gives up.
const SLACK: Duration = Duration::from_secs(5);
const TICK: Duration = Duration::from_millis(50);

/// Why there is no answer.
#[derive(Debug)]
pub struct Failure {
    /// None: no answer over HTTP at all.
    pub status: Option<u16>,
    pub why: String,
    /// The pause that the server asked for.
    pub after: Option<Duration>,
    /// The deadline, or somebody cancelled.
    pub over: bool,
}

impl Failure {
    /// Whether another try may bring more.
    pub fn may_pass(&self) -> bool {
        !self.over && self.status.is_none_or(|s| matches!(s, 408 | 409 | 425 | 429 | 500..=599))
    }

    /// Whether no later call will bring more: a wrong key, model or address.
    pub fn is_final(&self) -> bool {
        matches!(self.status, Some(401 | 403 | 404))
    }
}

pub struct Http<'a> {
    pub deadline: Instant,
    pub cancelled: &'a dyn Fn() -> bool,
}

enum Said {
    Line(String),
    End,
    Failed(Failure),
}

impl Http<'_> {
    /// Sends the request and reads the answer to its end.
    pub fn talk(&mut self, provider: Provider, request: &Request) -> Result<Heard, Failure> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(over("the time for one proposal (--proposal-seconds) is over"));
        }
        let (sender, receiver) = sync_channel(64);
        let (url, headers, body) = (request.url.clone(), request.headers.clone(), request.body.clone());
        std::thread::spawn(move || converse(&url, &headers, &body, left, &sender));
        let mut heard = Heard::default();
        let mut whole = String::new();
        loop {
            let said = match self.next(&receiver) {
                // What came before the time was over is paid for, and may hold a whole variant.
                Err(late) if late.over && !heard.text.is_empty() && !(self.cancelled)() => {
                    heard.problem = Some(late.why);
                    return Ok(heard);
                }
                said => said?,
            };
            match said {
                Said::Line(line) => {
                    if whole.len() < MAX_LINE as usize {
                        whole.push_str(&line);
                    }
                    if !heard.line(provider, &line) {
                        break;
                    }
                }
                Said::End => break,
                Said::Failed(failure) if heard.text.is_empty() => return Err(failure),
                Said::Failed(failure) => {
                    heard.problem = Some(format!("the answer broke off: {}", failure.why));
                    return Ok(heard);
                }
            }
        }
        self.judge(provider, heard, &whole)
    }

    /// An answer that was not streamed is one JSON text; one that is neither is malformed.
    fn judge(&self, provider: Provider, mut heard: Heard, whole: &str) -> Result<Heard, Failure> {
        if heard.text.is_empty()
            && let Ok(value) = serde_json::from_str(whole)
        {
            heard = Heard::default();
            heard.value(provider, &value);
            heard.ended |= heard.problem.is_none();
        }
        if heard.text.is_empty() && !heard.ended {
            let why = heard.problem.unwrap_or_else(|| match whole.trim() {
                "" => "an empty answer".into(),
                text => format!("a malformed answer: {}", crate::answer::shortened(text, 80)),
            });
            // An overloaded server says so in the stream; nonsense is an answer like any other, and no reason to ask the same again.
            let status = if why.starts_with("the server said") { 502 } else { 200 };
            return Err(Failure { status: Some(status), why, after: None, over: false });
        }
        if !heard.ended && heard.problem.is_none() {
            heard.problem = Some("the answer broke off".into());
        }
        Ok(heard)
    }

    fn next(&self, receiver: &Receiver<Said>) -> Result<Said, Failure> {
        loop {
            if (self.cancelled)() {
                return Err(over("cancelled"));
            }
            if Instant::now() >= self.deadline {
                return Err(over("the time for one proposal (--proposal-seconds) is over"));
            }
            match receiver.recv_timeout(TICK) {
                // What fails when the time is over fails because it is.
                Ok(Said::Failed(_)) if Instant::now() >= self.deadline => {}
                Ok(said) => return Ok(said),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(Said::End),
            }
        }
    }

    /// Waits, unless the deadline comes first or somebody cancels; whether there is time for another try.
    pub fn wait(&self, pause: Duration) -> bool {
        let until = Instant::now() + pause;
        if until >= self.deadline {
            return false;
        }
        while Instant::now() < until {
            if (self.cancelled)() {
                return false;
            }
            std::thread::sleep(TICK.min(until.saturating_duration_since(Instant::now())));
        }
        !(self.cancelled)()
    }
}

/// `Retry-After`: seconds, or a date (RFC 9110, 10.2.3) in its only form that may still be sent.
fn pause(text: &str, now: SystemTime) -> Option<Duration> {
    if let Ok(seconds) = text.parse::<f64>() {
        return (0.0..=86_400.0).contains(&seconds).then(|| Duration::from_secs_f64(seconds));
    }
    let words: Vec<&str> = text.split([' ', ':']).collect();
    let [_, day, month, year, hour, minute, second, "GMT"] = words[..] else { return None };
    let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let month = months.iter().position(|m| *m == month)? as i64 + 1;
    let number = |t: &str, most: i64| t.parse::<i64>().ok().filter(|n| (0..=most).contains(n));
    let (day, year) = (number(day, 31)?, number(year, 9999)?);
    // Days since 1970 of a date of the Gregorian calendar, whose year begins in March here (Hinnant, "chrono-compatible algorithms").
    let shifted = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (shifted.div_euclid(400), shifted.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468;
    let then = days * 86_400 + number(hour, 23)? * 3600 + number(minute, 59)? * 60 + number(second, 60)?;
    let now = now.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_secs() as i64;
    Some(Duration::from_secs((then - now).clamp(0, 86_400) as u64))
}

fn over(why: &str) -> Failure {
    Failure { status: None, why: why.into(), after: None, over: true }
}

/// The thread's part. Nobody listens any more once sending fails.
fn converse(url: &str, headers: &[(&'static str, String)], body: &str, left: Duration, to: &SyncSender<Said>) {
    let agent: ureq::Agent = ureq::Agent::config_builder()
        // The deadline is kept by who listens; this only ends a thread that nobody listens to any more.
        .timeout_global(Some(left + SLACK))
        .http_status_as_error(false)
        .max_redirects(0)
        // Where a request goes is said by the command line, not by the environment.
        .proxy(None)
        .build()
        .into();
    let mut request = agent.post(url);
    for (name, value) in headers {
        request = request.header(*name, value);
    }
    let failed = |why: String| Failure { status: None, why, after: None, over: false };
    let response = match request.send(body) {
        Ok(response) => response,
        Err(e) => {
            let _ = to.send(Said::Failed(failed(e.to_string())));
            return;
        }
    };
    let status = response.status().as_u16();
    let after = response.headers().get("retry-after").and_then(|v| pause(v.to_str().ok()?.trim(), SystemTime::now()));
    let mut reader = BufReader::new(response.into_body().into_reader());
    if !(200..300).contains(&status) {
        let mut text = String::new();
        // What of the body can be read explains; that it cannot be is no second failure.
        let _ = reader.by_ref().take(MAX_ERROR).read_to_string(&mut text);
        let why = match serde_json::from_str::<serde_json::Value>(&text) {
            Ok(value) => error_text(value.get("error").unwrap_or(&value)),
            Err(_) => crate::answer::shortened(&text, 200),
        };
        let why = format!("HTTP {status}: {why}");
        let _ = to.send(Said::Failed(Failure { status: Some(status), why, after, over: false }));
        return;
    }
    for _ in 0..MAX_LINES {
        let mut line = Vec::new();
        match reader.by_ref().take(MAX_LINE).read_until(b'\n', &mut line) {
            Ok(0) => break,
            Ok(_) => {
                if to.send(Said::Line(String::from_utf8_lossy(&line).into_owned())).is_err() {
                    return;
                }
            }
            Err(e) => {
                let _ = to.send(Said::Failed(failed(e.to_string())));
                return;
            }
        }
    }
    let _ = to.send(Said::End);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_seconds_or_a_date() {
        // 2026-11-22T05:00:00Z
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_323_600);
        for (text, seconds) in [
            ("0", Some(0)),
            ("30", Some(30)),
            ("Sun, 22 Nov 2026 05:00:07 GMT", Some(7)),
            ("Sun, 22 Nov 2026 04:59:00 GMT", Some(0)),
            ("Mon, 23 Nov 2026 04:00:00 GMT", Some(82_800)),
            ("Tue, 29 Feb 2028 00:00:00 GMT", Some(86_400)),
            ("-1", None),
            ("soon", None),
            ("Sun, 22 Nov 2026 05:00:07 CET", None),
            ("Sun, 22 Brumaire 2026 05:00:07 GMT", None),
        ] {
            assert_eq!(pause(text, now), seconds.map(Duration::from_secs), "{text}");
        }
    }
}
