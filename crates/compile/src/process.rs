//! Runs a program with a deadline, a limit of memory where the system has one, and bounded output.

use crate::child::sandbox;
use crate::error::ToolError;
use std::io::{Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// How a program ended.
pub(crate) struct Ended {
    pub status: ExitStatus,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    pub timed_out: bool,
    /// The output was longer than it may be; the rest was dropped.
    pub truncated: bool,
}

impl Ended {
    pub fn stdout_text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    pub fn stderr_text(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// `exit code 1`, `killed by signal 11`.
    pub fn how(&self) -> String {
        #[cfg(unix)]
        if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&self.status) {
            return format!("killed by signal {signal}");
        }
        match self.status.code() {
            Some(code) => format!("exit code {code}"),
            None => "killed".into(),
        }
    }
}

/// What a program may use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub seconds: u64,
    pub memory_bytes: Option<u64>,
    pub output_bytes: u64,
}

/// Kills its process if it is dropped before it was waited for.
struct Guard(Option<Child>);

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Runs the command to its end or to its deadline. `tick` is called about five times a second meanwhile.
pub(crate) fn run(
    mut command: Command,
    input: Vec<u8>,
    bounds: Bounds,
    tick: &mut dyn FnMut(),
) -> Result<Ended, ToolError> {
    let program = std::path::PathBuf::from(command.get_program());
    command
        .stdin(if input.is_empty() { Stdio::null() } else { Stdio::piped() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if let Some(bytes) = bounds.memory_bytes {
        sandbox::limit_command(&mut command, bytes, bounds.seconds);
    }
    let mut tries = 0;
    let child = loop {
        match command.spawn() {
            Ok(child) => break child,
            // A program that was just written may still be open for writing in a process that another thread is about to start.
            Err(e) if e.kind() == std::io::ErrorKind::ExecutableFileBusy && tries < 50 => {
                tries += 1;
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(e) => return Err(ToolError::Spawn { path: program.clone(), why: e.to_string() }),
        }
    };
    let mut guard = Guard(Some(child));
    let child = guard.0.as_mut().expect("just put there");
    let deadline = Instant::now() + Duration::from_secs(bounds.seconds);

    if let Some(mut stdin) = child.stdin.take() {
        // A program that dies early closes the pipe; how it ended says why.
        std::thread::spawn(move || drop(stdin.write_all(&input)));
    }
    let (tx, rx) = mpsc::channel();
    let watch = |index: usize, pipe: Option<Box<dyn Read + Send>>| {
        let tx = tx.clone();
        let limit = bounds.output_bytes;
        std::thread::spawn(move || {
            let mut kept = Vec::new();
            let mut truncated = false;
            if let Some(mut pipe) = pipe {
                let _ = (&mut pipe).take(limit).read_to_end(&mut kept);
                // Read on, or the program would stand still at a full pipe.
                truncated = std::io::copy(&mut pipe, &mut std::io::sink()).is_ok_and(|n| n > 0);
            }
            let _ = tx.send((index, kept, truncated));
        });
    };
    watch(0, child.stdout.take().map(|p| Box::new(p) as _));
    watch(1, child.stderr.take().map(|p| Box::new(p) as _));

    let mut outputs: [Option<Vec<u8>>; 2] = [None, None];
    let mut truncated = false;
    let mut timed_out = false;
    let mut take = |outputs: &mut [Option<Vec<u8>>; 2], wait: Duration| match rx.recv_timeout(wait) {
        Ok((index, kept, cut)) => {
            outputs[index] = Some(kept);
            truncated |= cut;
        }
        Err(_) => tick(),
    };
    while outputs.iter().any(Option::is_none) {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            timed_out = true;
            break;
        }
        take(&mut outputs, left.min(Duration::from_millis(200)));
    }
    // Both pipes are closed: the program has ended, or is about to.
    let mut child = guard.0.take().expect("taken once");
    let status = loop {
        if timed_out {
            let _ = child.kill();
        }
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() < deadline || timed_out => std::thread::sleep(Duration::from_millis(1)),
            Ok(None) => timed_out = true,
            Err(e) => return Err(ToolError::Spawn { path: program, why: e.to_string() }),
        }
    };
    if timed_out {
        // A grandchild may hold the pipes open: do not wait for it.
        for _ in 0..2 {
            if outputs.iter().any(Option::is_none) {
                take(&mut outputs, Duration::from_millis(100));
            }
        }
    }
    let [stdout, stderr] = outputs.map(Option::unwrap_or_default);
    Ok(Ended { status, stdout, stderr, timed_out, truncated })
}
