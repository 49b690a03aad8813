//! A command as a proposer: the prompt on its standard input, its answer on its standard output.
//!
//! The command line is the shell's (`sh -c`). It runs in a process group of its own, which is killed at the deadline, when the loop is
//! cancelled, when it writes too much, and when the command has ended (children that it left behind end with it). What it writes on
//! standard error is kept only for the message of a failure. It is not known here what a candidate is.

use crate::driver::Answer;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
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

/// A stream that a thread reads.
struct Stream {
    count: std::sync::Arc<std::sync::atomic::AtomicU64>,
    end: Receiver<Vec<u8>>,
}

impl Stream {
    fn bytes(&self) -> u64 {
        self.count.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// All of it, if it ends soon.
    fn end(self) -> Vec<u8> {
        let until = Instant::now() + GRACE;
        loop {
            match self.end.try_recv() {
                Ok(bytes) => return bytes,
                Err(TryRecvError::Disconnected) => return Vec::new(),
                Err(TryRecvError::Empty) if Instant::now() >= until => return Vec::new(),
                Err(TryRecvError::Empty) => std::thread::sleep(TICK),
            }
        }
    }
}

fn reading(mut from: impl Read + Send + 'static, most: u64) -> Stream {
    spawn(move |count| {
        let (mut all, mut part) = (Vec::new(), [0; 8192]);
        while let Ok(n @ 1..) = from.read(&mut part) {
            all.extend_from_slice(&part[..n]);
            count(all.len() as u64);
            if all.len() as u64 >= most {
                break;
            }
        }
        all
    })
}

fn last_of(mut from: impl Read + Send + 'static) -> Stream {
    spawn(move |_| {
        let (mut all, mut part) = (Vec::new(), [0; 4096]);
        while let Ok(n @ 1..) = from.read(&mut part) {
            all.extend_from_slice(&part[..n]);
            all.drain(..all.len().saturating_sub(MAX_ERRORS));
        }
        all
    })
}

fn spawn(read: impl FnOnce(&dyn Fn(u64)) -> Vec<u8> + Send + 'static) -> Stream {
    let count = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let (sender, end) = channel();
    let counted = count.clone();
    std::thread::spawn(move || {
        let all = read(&|n| counted.store(n, std::sync::atomic::Ordering::Relaxed));
        // Nobody waits for a stream that stayed open.
        let _ = sender.send(all);
    });
    Stream { count, end }
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
