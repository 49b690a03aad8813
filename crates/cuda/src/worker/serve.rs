//! The worker's side: reads requests, carries them out one after the other, answers, and ends with its parent or at its deadline.
//!
//! Three threads: one reads (the end of the input ends the process at once, even while a kernel hangs), one watches the deadline, and the
//! main one works. The standard output belongs to the replies alone; what kernels print is collected and sent with the reply.

use super::blob_cache::BlobCache;
use super::client::hashes;
use super::cuda_device::CudaDevice;
use super::device::Device;
use super::lock::Lock;
use super::protocol::{
    BlobHead, Hold, MAX_PRINTED, MAX_SUBJECTS, Message, PROTOCOL, Prepare, Reply, Request, Run, Steady, Time,
};
use super::session::{self, Store, Trouble};
use super::subject::{self, Subject};
use super::wire::{self, WireError};
use super::{steady, timing};
use crate::error::CudaError;
use crate::ffi::process;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, Write};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Bytes of blobs that are kept for later requests.
const STORE_BYTES: u64 = 4 << 30;

/// Seconds before its deadline at which a run waits no longer for the device.
const HELD_GRACE: u64 = 10;

/// How the process ends, besides 0.
pub(super) mod exit {
    pub const BROKEN_OUTPUT: i32 = 2;
    pub const GARBLED_INPUT: i32 = 3;
    pub const DEADLINE: i32 = 4;
    pub const LOST_CONTEXT: i32 = 5;
}

/// The process that holds a CUDA device, from its start to its end.
pub fn worker_main() -> ! {
    serve(|ordinal| CudaDevice::open(ordinal).map(|d| Box::new(d) as Box<dyn Device>))
}

/// What the process's own arguments say of it.
#[derive(Debug, Clone, Default)]
pub struct ServeOptions {
    /// A folder where blobs outlive the process.
    pub blobs: Option<BlobCache>,
}

/// The same with any device: `open` is called with the ordinal of the first request.
pub fn serve(open: impl FnOnce(u32) -> Result<Box<dyn Device>, CudaError>) -> ! {
    serve_with(ServeOptions::default(), open)
}

/// The same with options.
pub fn serve_with(options: ServeOptions, open: impl FnOnce(u32) -> Result<Box<dyn Device>, CudaError>) -> ! {
    let code = match Server::new(options) {
        Ok(mut server) => server.work(open),
        Err(e) => {
            eprintln!("the worker cannot start: {e}");
            exit::BROKEN_OUTPUT
        }
    };
    process::end_now(code)
}

type Received = Result<(Message<Request>, Vec<Vec<u8>>), WireError>;

struct Server {
    requests: mpsc::Receiver<Received>,
    out: BufWriter<File>,
    /// What is printed by anything in this process.
    printed: File,
    deadline: Arc<Mutex<Option<Instant>>>,
    store: Store,
    stored: u64,
    subjects: HashMap<String, Subject>,
    lock: Lock,
    blobs: Option<BlobCache>,
}

impl Server {
    fn new(options: ServeOptions) -> io::Result<Server> {
        let printed = tempfile::tempfile()?;
        let mut out = BufWriter::new(process::take_stdout(&printed)?);
        // Whatever a launcher has printed on this line is not part of the first reply.
        out.write_all(b"\n")?;
        let deadline = Arc::new(Mutex::new(None));
        let watched = deadline.clone();
        std::thread::spawn(move || watch(&watched));
        let (tx, requests) = mpsc::sync_channel(1);
        std::thread::spawn(move || read(&tx));
        Ok(Server {
            requests,
            out,
            printed,
            deadline,
            store: Store::new(),
            stored: 0,
            subjects: HashMap::new(),
            lock: Lock::default(),
            blobs: options.blobs,
        })
    }

    /// Works until something ends it; the process's exit code.
    fn work(&mut self, open: impl FnOnce(u32) -> Result<Box<dyn Device>, CudaError>) -> i32 {
        let mut open = Some(open);
        let mut device: Option<Box<dyn Device>> = None;
        while let Ok(received) = self.requests.recv() {
            let (message, blobs) = match received {
                Ok(received) => received,
                Err(e) => {
                    let _ = self.error(0, "bad-request", format!("{e:?}"));
                    return exit::GARBLED_INPUT;
                }
            };
            self.keep(&message.blobs, blobs);
            self.recall(&message.body);
            let id = message.id;
            let done = match (message.body, &mut device) {
                (Request::Hello { protocol, .. }, _) if protocol != PROTOCOL => self
                    .error(id, "bad-request", format!("this worker speaks protocol {PROTOCOL}, not {protocol}"))
                    .map(|()| false),
                (Request::Hello { device: ordinal, .. }, None) => match open.take().map(|open| open(ordinal)) {
                    Some(Ok(opened)) => {
                        let info = opened.info();
                        device = Some(opened);
                        let version = env!("CARGO_PKG_VERSION").to_string();
                        self.reply(id, Reply::Hello { protocol: PROTOCOL, version, device: info }, &[]).map(|()| false)
                    }
                    Some(Err(e)) => self.error(id, e.code(), e.to_string()).map(|()| true),
                    None => self.error(id, "no-device", "the device could not be opened before".into()).map(|()| true),
                },
                (Request::Hello { .. }, Some(_)) => {
                    self.error(id, "bad-request", "this worker has a device already".into()).map(|()| false)
                }
                (_, None) => self.error(id, "bad-request", "hello comes first".into()).map(|()| false),
                (Request::Run(run), Some(device)) => self.run(id, &run, device.as_mut()),
                (Request::Prepare(prepare), Some(device)) => self.prepare(id, &prepare, device.as_mut()),
                (Request::Time(time), Some(device)) => self.time(id, &time, device.as_mut()),
                (Request::Steady(steady), Some(device)) => self.steady(id, &steady, device.as_mut()),
                (Request::Discard { subject }, Some(device)) => {
                    self.subjects.remove(&subject).into_iter().for_each(|s| s.discard(device.as_mut()));
                    self.reply(id, Reply::Done, &[]).map(|()| false)
                }
                (Request::Hold(hold), Some(device)) => self.hold(id, &hold, device.as_ref()),
                (Request::Release, Some(_)) => {
                    self.lock.release();
                    self.reply(id, Reply::Done, &[]).map(|()| false)
                }
            };
            match done {
                Ok(false) => {}
                Ok(true) => return exit::LOST_CONTEXT,
                Err(_) => return exit::BROKEN_OUTPUT,
            }
        }
        0
    }

    /// Carries out a run and answers; true when the context is lost.
    fn run(&mut self, id: u64, run: &Run, device: &mut dyn Device) -> io::Result<bool> {
        let missing = session::missing(run, &self.store);
        if !missing.is_empty() {
            return self.reply(id, Reply::Missing { sha256: missing }, &[]).map(|()| false);
        }
        self.set_deadline(run.seconds);
        // Whoever times on this device is waited for, and the others are kept waiting until this is done.
        let wait = Duration::from_secs(run.seconds.saturating_sub(HELD_GRACE));
        let shared = match self.lock.share(device.lock_file().as_deref(), wait) {
            Ok(Ok(shared)) => shared,
            Ok(Err(holder)) => {
                self.clear_deadline();
                let who = holder.map_or_else(|| "another process".into(), |id| format!("process {id}"));
                let message = format!("{who} holds the device for timing, for longer than this run could wait");
                return self.error(id, "device-held", message).map(|()| false);
            }
            // Without a file to lock the device is shared as it always was.
            Err(_) => None,
        };
        let done = session::execute(device, &self.store, run);
        drop(shared);
        self.clear_deadline();
        let printed = self.take_printed();
        match done {
            Ok((mut ran, outputs)) => {
                ran.printed = printed;
                let lost = ran.last;
                // What is as it was filled need not travel.
                let fills: Vec<_> = run.buffers.iter().map(|b| (&b.name, &b.fill)).collect();
                let changed = |i: usize| {
                    let output = &ran.outputs[i];
                    let same = super::protocol::Fill::Contents(output.sha256.clone());
                    !fills.iter().any(|(name, fill)| **name == output.name && **fill == same)
                };
                let sent: Vec<&[u8]> =
                    outputs.iter().enumerate().filter(|(i, _)| changed(*i)).map(|(_, b)| b.as_slice()).collect();
                self.reply(id, Reply::Ran(ran), &sent).map(|()| lost)
            }
            Err(trouble) => self.trouble(id, trouble),
        }
    }

    fn trouble(&mut self, id: u64, trouble: Trouble) -> io::Result<bool> {
        match trouble {
            Trouble::BadRequest(what) => self.error(id, "bad-request", what).map(|()| false),
            Trouble::Device(e) => self.error(id, e.code(), e.to_string()).map(|()| e.loses_context()),
        }
    }

    fn prepare(&mut self, id: u64, prepare: &Prepare, device: &mut dyn Device) -> io::Result<bool> {
        let missing = subject::missing(prepare, &self.store);
        if !missing.is_empty() {
            return self.reply(id, Reply::Missing { sha256: missing }, &[]).map(|()| false);
        }
        self.subjects.remove(&prepare.subject).into_iter().for_each(|s| s.discard(device));
        if self.subjects.len() >= MAX_SUBJECTS {
            let message = format!("{MAX_SUBJECTS} subjects are resident; discard some");
            return self.error(id, "bad-request", message).map(|()| false);
        }
        self.set_deadline(prepare.seconds);
        let done = Subject::prepare(device, &self.store, prepare);
        self.clear_deadline();
        match done {
            Ok((prepared, subject)) => {
                let lost = prepared.last;
                self.subjects.extend(subject.map(|s| (prepare.subject.clone(), s)));
                self.reply(id, Reply::Prepared(prepared), &[]).map(|()| lost)
            }
            Err(trouble) => self.trouble(id, trouble),
        }
    }

    fn time(&mut self, id: u64, time: &Time, device: &mut dyn Device) -> io::Result<bool> {
        let Some(mut subject) = self.subjects.remove(&time.subject) else { return self.nobody(id, &time.subject) };
        self.set_deadline(time.seconds);
        let done = timing::time(device, &mut subject, time);
        self.clear_deadline();
        self.subjects.insert(time.subject.clone(), subject);
        let printed = self.take_printed();
        match done {
            Ok((mut head, contents)) => {
                head.printed = printed;
                let lost = head.last;
                // The same contents travel once.
                let mut sent = HashSet::new();
                let contents: Vec<&[u8]> =
                    contents.iter().map(Vec::as_slice).filter(|bytes| sent.insert(*bytes)).collect();
                self.reply(id, Reply::Timed(Box::new(head)), &contents).map(|()| lost)
            }
            Err(trouble) => self.trouble(id, trouble),
        }
    }

    fn steady(&mut self, id: u64, steady: &Steady, device: &mut dyn Device) -> io::Result<bool> {
        let Some(mut subject) = self.subjects.remove(&steady.subject) else {
            return self.nobody(id, &steady.subject);
        };
        self.set_deadline(steady.seconds);
        let done = steady::steady(device, &mut subject, steady);
        self.clear_deadline();
        self.subjects.insert(steady.subject.clone(), subject);
        let printed = self.take_printed();
        match done {
            Ok(mut head) => {
                head.printed = printed;
                let lost = head.last;
                self.reply(id, Reply::Steady(Box::new(head)), &[]).map(|()| lost)
            }
            Err(trouble) => self.trouble(id, trouble),
        }
    }

    fn nobody(&mut self, id: u64, subject: &str) -> io::Result<bool> {
        self.error(id, "bad-request", format!("there is no subject {subject}")).map(|()| false)
    }

    fn hold(&mut self, id: u64, hold: &Hold, device: &dyn Device) -> io::Result<bool> {
        self.set_deadline(hold.seconds);
        let done = self.lock.hold(device.lock_file().as_deref(), Duration::from_secs(hold.wait_seconds));
        self.clear_deadline();
        match done {
            Ok(held) => self.reply(id, Reply::Held(held), &[]).map(|()| false),
            Err(e) => self.error(id, "io", format!("the device's lock: {e}")).map(|()| false),
        }
    }

    fn reply(&mut self, id: u64, body: Reply, blobs: &[&[u8]]) -> io::Result<()> {
        let heads = blobs.iter().map(|b| BlobHead { sha256: wire::sha256(b), bytes: b.len() as u64 }).collect();
        wire::send(&mut self.out, &Message { id, body, blobs: heads }, blobs)
    }

    fn error(&mut self, id: u64, code: &str, message: String) -> io::Result<()> {
        self.reply(id, Reply::Error { code: code.to_string(), message }, &[])
    }

    fn keep(&mut self, heads: &[BlobHead], blobs: Vec<Vec<u8>>) {
        let new: u64 = heads.iter().map(|h| h.bytes).sum();
        if self.stored + new > STORE_BYTES {
            // The parent sends again what is then missing.
            self.store.clear();
            self.stored = 0;
        }
        for (head, blob) in heads.iter().zip(blobs) {
            if let Some(cache) = &self.blobs {
                cache.put(&head.sha256, &blob);
            }
            self.stored += head.bytes;
            self.store.insert(head.sha256.clone(), Arc::new(blob));
        }
    }

    /// Fetches what a request names and an earlier process was sent.
    fn recall(&mut self, request: &Request) {
        let Some(cache) = &self.blobs else { return };
        for sha in hashes(request) {
            if !self.store.contains_key(sha)
                && let Some(blob) = cache.get(sha)
            {
                self.stored += blob.len() as u64;
                self.store.insert(sha.clone(), Arc::new(blob));
            }
        }
    }

    fn set_deadline(&self, seconds: u64) {
        let at = Instant::now().checked_add(Duration::from_secs(seconds));
        *self.deadline.lock().unwrap_or_else(PoisonError::into_inner) = at;
    }

    fn clear_deadline(&self) {
        *self.deadline.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// What was printed since the last time.
    fn take_printed(&mut self) -> String {
        process::flush_c_output();
        let _ = io::stdout().flush();
        let mut bytes = Vec::new();
        let taken =
            self.printed.rewind().and_then(|()| (&self.printed).take(MAX_PRINTED as u64).read_to_end(&mut bytes));
        let _ = taken.and_then(|_| self.printed.set_len(0)).and_then(|()| self.printed.rewind());
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// Ends the process when a deadline has passed.
fn watch(deadline: &Mutex<Option<Instant>>) {
    loop {
        std::thread::sleep(Duration::from_millis(50));
        let at = *deadline.lock().unwrap_or_else(PoisonError::into_inner);
        if at.is_some_and(|at| Instant::now() >= at) {
            process::end_now(exit::DEADLINE);
        }
    }
}

/// Hands requests on; ends the process when the parent is gone.
fn read(requests: &mpsc::SyncSender<Received>) {
    let mut input = BufReader::new(io::stdin());
    loop {
        let received = wire::line(&mut input).and_then(|line| wire::message(&line, &mut input));
        match received {
            Err(WireError::Closed | WireError::Broken(_)) => process::end_now(0),
            received => {
                let stop = received.is_err();
                if requests.send(received).is_err() || stop {
                    return;
                }
            }
        }
    }
}
