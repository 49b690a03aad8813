//! A child process by its standard streams: started in a group of its own, its standard error kept, ended as a group.

use super::WorkerError;
use crate::ffi::process;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Bytes of the standard error that are kept.
const SAID: usize = 4 << 10;

/// The end of what a process says on its standard error.
#[derive(Clone, Default)]
pub(super) struct Said(Arc<(Mutex<Heard>, Condvar)>);

#[derive(Default)]
struct Heard {
    bytes: Vec<u8>,
    closed: bool,
}

impl Said {
    fn lock(&self) -> MutexGuard<'_, Heard> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn listen(&self, mut errors: ChildStderr) {
        let mut part = [0; 1024];
        while let Ok(n @ 1..) = errors.read(&mut part) {
            let kept = &mut self.lock().bytes;
            kept.extend_from_slice(&part[..n]);
            let over = kept.len().saturating_sub(SAID);
            kept.drain(..over);
        }
        self.lock().closed = true;
        self.0.1.notify_all();
    }

    /// What was said so far.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.lock().bytes).trim().to_string()
    }

    /// What a process that is ending has said in all. Those that it started may keep the stream open: nobody waits long for them.
    pub fn last_words(&self) -> String {
        let heard = self.lock();
        drop(self.0.1.wait_timeout_while(heard, Duration::from_millis(500), |h| !h.closed));
        self.text()
    }
}

/// Starts it with all three streams.
pub(super) fn spawn(
    mut process: Command,
    program: &str,
) -> Result<(Child, ChildStdin, ChildStdout, Said), WorkerError> {
    let failed = |why: String| WorkerError::Spawn { program: PathBuf::from(program), why };
    process.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // A group of its own: a launcher's children end with it, and Ctrl-C reaches us only, who end the worker in order.
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut process, 0);
    let mut tries = 0;
    let mut child = loop {
        match process.spawn() {
            Ok(child) => break child,
            // A program that was just written may still be open for writing in a process that another thread is about to start.
            Err(e) if e.kind() == std::io::ErrorKind::ExecutableFileBusy && tries < 50 => {
                tries += 1;
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(e) => return Err(failed(e.to_string())),
        }
    };
    let streams = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (Some(input), Some(output), Some(errors)) = streams else {
        return Err(failed("it has no standard streams".into()));
    };
    let said = Said::default();
    let listener = said.clone();
    std::thread::spawn(move || listener.listen(errors));
    Ok((child, input, output, said))
}

/// How the process ended, if it has within a second.
pub(super) fn how(child: &mut Child) -> String {
    for _ in 0..100 {
        match child.try_wait() {
            Ok(Some(status)) => return status.to_string(),
            Ok(None) => std::thread::sleep(Duration::from_millis(10)),
            Err(e) => return e.to_string(),
        }
    }
    "it closed its output".into()
}

/// Kills the process and those that it started.
pub(super) fn kill(child: &mut Child) {
    // Its status was not taken yet, so the number is still its own.
    if !matches!(child.try_wait(), Ok(Some(_))) {
        process::kill_group(child.id());
        let _ = child.kill();
    }
}

/// Lets the process end by itself, now that its input has ended, but not for long. Nobody waits for that.
pub(super) fn let_go(mut child: Child) {
    std::thread::spawn(move || {
        for _ in 0..100 {
            if !matches!(child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        kill(&mut child);
        let _ = child.wait();
    });
}
