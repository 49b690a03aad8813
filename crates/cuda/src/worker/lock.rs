//! The device for oneself alone: a lock of the system's on a file that is named after it.
//!
//! Whoever times takes it exclusively; whoever runs shares it with others who run. The system gives it up when the process ends, however it
//! ends. Limits: it binds those who ask for it, on one machine, with one temporary folder.

use super::protocol::HoldHead;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::Path;
use std::time::{Duration, Instant};

/// How often it is tried again.
const PAUSE: Duration = Duration::from_millis(5);

/// What one process does with the device's file.
#[derive(Default)]
pub(super) struct Lock {
    held: Option<Taken>,
}

/// A lock taken, given up when this is dropped. Closing the file is not enough for that: a process that another thread is starting has a copy
/// of it until it becomes the program it shall be.
pub(super) struct Taken {
    file: File,
    /// Taken exclusively: the file names this process.
    alone: bool,
}

impl Drop for Taken {
    fn drop(&mut self) {
        if self.alone {
            let _ = self.file.set_len(0);
        }
        let _ = self.file.unlock();
    }
}

impl Lock {
    /// Takes it exclusively, waiting for the others at most until then.
    pub fn hold(&mut self, path: Option<&Path>, wait: Duration) -> io::Result<HoldHead> {
        let begun = Instant::now();
        let Some(path) = path.filter(|_| self.held.is_none()) else {
            return Ok(HoldHead { held: true, holder: None, waited: 0.0 });
        };
        let mut file = open(path)?;
        let held = taken(&file, File::try_lock, begun + wait)?;
        let waited = begun.elapsed().as_secs_f64();
        if !held {
            return Ok(HoldHead { held, holder: holder(&mut file), waited });
        }
        // Another user's file cannot be written; the lock holds all the same.
        let _ = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| write!(file, "{}", std::process::id()));
        self.held = Some(Taken { file, alone: true });
        Ok(HoldHead { held, holder: None, waited })
    }

    pub fn release(&mut self) {
        self.held = None;
    }

    /// Takes it together with others who do not time; nothing to do for the one who holds it. Err inside: who has it.
    pub fn share(&self, path: Option<&Path>, wait: Duration) -> io::Result<Result<Option<Taken>, Option<u32>>> {
        let Some(path) = path.filter(|_| self.held.is_none()) else { return Ok(Ok(None)) };
        let mut file = open(path)?;
        if taken(&file, File::try_lock_shared, Instant::now() + wait)? {
            Ok(Ok(Some(Taken { file, alone: false })))
        } else {
            Ok(Err(holder(&mut file)))
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    // A file that is there is opened without asking for its creation: systems refuse that for other people's files in a shared folder.
    let there = OpenOptions::new().read(true).write(true).open(path);
    let made = there.or_else(|e| match e.kind() {
        io::ErrorKind::NotFound => OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path),
        _ => Err(e),
    });
    made.or_else(|_| File::open(path))
}

fn taken(file: &File, take: impl Fn(&File) -> Result<(), TryLockError>, until: Instant) -> io::Result<bool> {
    loop {
        match take(file) {
            Ok(()) => return Ok(true),
            Err(TryLockError::WouldBlock) if Instant::now() >= until => return Ok(false),
            Err(TryLockError::WouldBlock) => std::thread::sleep(PAUSE),
            Err(TryLockError::Error(e)) => return Err(e),
        }
    }
}

/// The process that says it has the lock.
fn holder(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.rewind().ok()?;
    file.take(32).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_times_while_others_wait_and_all_run_together() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("device.lock");
        let now = Duration::ZERO;
        let (mut a, mut b) = (Lock::default(), Lock::default());
        assert!(a.hold(Some(&path), now).expect("it opens").held);
        let refused = b.hold(Some(&path), Duration::from_millis(20)).expect("it opens");
        assert_eq!((refused.held, refused.holder), (false, Some(std::process::id())));
        assert!(refused.waited >= 0.02);
        assert_eq!(b.share(Some(&path), now).expect("it opens").err(), Some(Some(std::process::id())));
        // Who holds it runs, and may hold it again.
        assert!(matches!(a.share(Some(&path), now), Ok(Ok(None))));
        assert!(a.hold(Some(&path), now).expect("it opens").held);
        a.release();
        let first = b.share(Some(&path), now).expect("it opens").expect("it is free");
        let second = a.share(Some(&path), now).expect("it opens").expect("it is shared");
        assert!(first.is_some() && second.is_some());
        assert!(!a.hold(Some(&path), now).expect("it opens").held);
        // What a process that is being started has of the files holds nobody up.
        let copies = [first, second].map(|taken| taken.expect("it is shared").file.try_clone().expect("a copy"));
        assert!(b.hold(Some(&path), now).expect("it opens").held);
        let copy = b.held.as_ref().expect("it is held").file.try_clone().expect("a copy");
        drop(b);
        assert!(a.hold(Some(&path), now).expect("it opens").held, "the end of the one who had it frees it");
        drop((copies, copy));
    }

    #[test]
    fn a_device_without_a_file_is_ones_own() {
        let mut lock = Lock::default();
        assert!(lock.hold(None, Duration::ZERO).expect("nothing to open").held);
        assert!(matches!(lock.share(None, Duration::ZERO), Ok(Ok(None))));
        lock.release();
    }
}
