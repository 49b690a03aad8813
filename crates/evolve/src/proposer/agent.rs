//! A command as a proposer: the prompt on its standard input, its answer on its standard output.
//!
//! The command line is the shell's (`sh -c`). It runs in a process group of its own, which is killed at the deadline, when the loop is
//! cancelled, when it writes too much, and when the command has ended (children that it left behind end with it). What it writes on
//! standard error is kept only for the message of a failure. It is not known here what a candidate is.

use crate::driver::Answer;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Bytes of standard output that are read.
pub const MAX_OUTPUT: u64 = 1 << 20;
/// Bytes of standard error that are kept, from its end.
const MAX_ERRORS: usize = 4096;
const TICK: Duration = Duration::from_millis(10);
/// What is given to the streams to end after the command did.
const GRACE: Duration = Duration::from_secs(2);

/// One call of the command.
///
/// # Errors
/// It cannot be started.
pub fn call(command: &str, seconds: u64, prompt: &str, cancelled: &dyn Fn() -> bool) -> Result<Answer, String> {
    let began = Instant::now();
    let deadline = began + Duration::from_secs(seconds.clamp(1, 86_400));
    let mut process = Command::new(if cfg!(windows) { "cmd" } else { "sh" });
    process.arg(if cfg!(windows) { "/C" } else { "-c" }).arg(command);
    process.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut process, 0);
    let mut child = process.spawn().map_err(|e| format!("cannot start the agent {command:?}: {e}"))?;
    let group = Group(child.id());
    if let Some(mut input) = child.stdin.take() {
        let prompt = prompt.to_string();
        // A command that does not read its input is no failure; one that blocks on it must not block the loop.
        std::thread::spawn(move || drop(input.write_all(prompt.as_bytes())));
    }
    let output = child.stdout.take().map(|s| reading(s, MAX_OUTPUT + 1));
    let errors = child.stderr.take().map(last_of);
    let ended = wait(&mut child, output.as_ref(), deadline, cancelled);
    group.kill();
    let status = child.wait().ok();
    let text = output.map(|o| o.end()).unwrap_or_default();
    let errors = errors.map(|o| o.end()).unwrap_or_default();
    let mut answer = Answer { seconds: began.elapsed().as_secs_f64(), ..Answer::default() };
    let said = String::from_utf8_lossy(&errors);
    let said = match said.trim() {
        "" => String::new(),
        said => format!(": {}", crate::answer::shortened(said, 300)),
    };
    answer.failure = match ended {
        How::Deadline => Some(format!("the agent was stopped after {seconds} seconds (--proposal-seconds){said}")),
        How::Cancelled => Some("cancelled".into()),
        How::TooMuch => Some(format!("the agent wrote more than {MAX_OUTPUT} bytes")),
        How::Ended => match status {
            Some(status) if status.success() => None,
            Some(status) => Some(format!("the agent ended with {status}{said}")),
            None => Some(format!("how the agent ended is not known{said}")),
        },
    };
    if answer.failure.is_none() {
        match String::from_utf8(text) {
            Ok(text) if !text.trim().is_empty() => answer.text = Some(text),
            Ok(_) => answer.failure = Some(format!("the agent wrote nothing{said}")),
            Err(_) => answer.failure = Some("the agent wrote what is not UTF-8 text".into()),
        }
    }
    Ok(answer)
}

enum How {
    Ended,
    Deadline,
    Cancelled,
    TooMuch,
}

fn wait(child: &mut Child, output: Option<&Stream>, deadline: Instant, cancelled: &dyn Fn() -> bool) -> How {
    loop {
        if output.is_some_and(|o| o.bytes() > MAX_OUTPUT) {
            return How::TooMuch;
        }
        // The status of a child that ended stays to be asked for again, and its number stays its own until it was waited for.
        if !matches!(child.try_wait(), Ok(None)) {
            return How::Ended;
        }
        if cancelled() {
            return How::Cancelled;
        }
        if Instant::now() >= deadline {
            return How::Deadline;
        }
        std::thread::sleep(TICK);
    }
}

/// The command and its children.
struct Group(u32);

impl Group {
    fn kill(&self) {
        #[cfg(unix)]
        if let Some(group) = i32::try_from(self.0).ok().and_then(rustix::process::Pid::from_raw) {
            // That there is nobody left in it is how it should be.
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
    }
}

/// A stream that a thread reads: what came so far, whether or not it ends.
struct Stream {
    read: Arc<Mutex<Vec<u8>>>,
    end: Receiver<()>,
}

impl Stream {
    fn bytes(&self) -> u64 {
        self.read.lock().unwrap_or_else(PoisonError::into_inner).len() as u64
    }

    /// All of it, if it ends soon, else what there is: a child that the command left behind elsewhere may keep it open for ever.
    fn end(self) -> Vec<u8> {
        let _ = self.end.recv_timeout(GRACE);
        std::mem::take(&mut *self.read.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Reads the first `most` bytes and no more.
fn reading(from: impl Read + Send + 'static, most: u64) -> Stream {
    spawn(from.take(most), |_| {})
}

/// Keeps the last bytes.
fn last_of(from: impl Read + Send + 'static) -> Stream {
    spawn(from, |all| drop(all.drain(..all.len().saturating_sub(MAX_ERRORS))))
}

fn spawn(mut from: impl Read + Send + 'static, shorten: fn(&mut Vec<u8>)) -> Stream {
    let read: Arc<Mutex<Vec<u8>>> = Arc::default();
    let (sender, end) = channel();
    let all = read.clone();
    std::thread::spawn(move || {
        let mut part = [0; 8192];
        while let Ok(n @ 1..) = from.read(&mut part) {
            let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
            all.extend_from_slice(&part[..n]);
            shorten(&mut all);
        }
        // Nobody waits for a stream that stayed open.
        let _ = sender.send(());
    });
    Stream { read, end }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn what_a_command_does_becomes_an_answer() {
        for (command, text, failure) in [
            ("cat", Some("the prompt"), ""),
            ("echo hello", Some("hello\n"), ""),
            ("echo no luck >&2; exit 3", None, "no luck"),
            ("true", None, "wrote nothing"),
            ("sleep 60", None, "1 seconds"),
            ("echo begun; sleep 60", None, "1 seconds"),
            ("sleep 60 & echo left a child", Some("left a child\n"), ""),
            // A child that left the group holds the stream open: what was written counts all the same.
            ("setsid sleep 9 & echo left a daemon", Some("left a daemon\n"), ""),
            ("printf '\\377\\376'", None, "not UTF-8"),
            ("yes", None, "more than"),
            ("no-such-command-here", None, "127"),
        ] {
            let answer = call(command, 1, "the prompt", &|| false).unwrap();
            assert_eq!(answer.text.as_deref(), text, "{command}: {answer:?}");
            assert!(answer.failure.as_deref().unwrap_or_default().contains(failure), "{command}: {answer:?}");
            assert_eq!(answer.failure.is_none(), text.is_some(), "{command}: {answer:?}");
        }
    }

    #[test]
    fn it_ends_with_its_children_when_the_loop_is_cancelled() {
        let folder = tempfile::tempdir().unwrap();
        let (begun, mark) = (folder.path().join("begun"), folder.path().join("mark"));
        let command = format!("(touch {}; sleep 1; touch {}) & wait", begun.display(), mark.display());
        let answer = call(&command, 60, "", &|| begun.exists()).unwrap();
        assert_eq!((answer.text, answer.failure.as_deref()), (None, Some("cancelled")));
        std::thread::sleep(Duration::from_millis(1500));
        assert!(!mark.exists(), "a child of the agent lived on");
    }
}
