//! What a worker is asked for besides runs: subjects that stay, times, many launches, the device for oneself alone.

use super::super::protocol::{
    Buffer, Fill, Hold, HoldHead, Launch, Prepare, Prepared, Reply, Request, Steady, SteadyHead, Time, TimedHead,
};
use super::{Blobs, GRACE, Worker, WorkerError, unexpected};
use std::collections::{BTreeSet, HashMap};

/// What came of timing.
#[derive(Debug, Clone, PartialEq)]
pub struct Timed {
    pub head: TimedHead,
    /// By hash: the contents of the sampled outputs.
    pub contents: HashMap<String, Vec<u8>>,
}

impl Worker {
    /// Makes a subject resident, within `seconds`, transfers included. `blobs` holds what it names by hash; what the worker has already
    /// does not travel again. [`Prepare::seconds`] is set here.
    pub fn prepare(&mut self, prepare: &Prepare, blobs: &Blobs, seconds: u64) -> Result<Prepared, WorkerError> {
        let request = Prepare { seconds: seconds + GRACE, ..prepare.clone() };
        let needed = needed(&request);
        match self.ask(Request::Prepare(request.clone()), &needed, blobs, seconds)? {
            (Reply::Prepared(prepared), _) => {
                self.end_if(prepared.last);
                Ok(prepared)
            }
            (other, _) => self.stray(&other),
        }
    }

    /// Times a subject, within `seconds`. [`Time::seconds`] is set here.
    pub fn time(&mut self, time: &Time, seconds: u64) -> Result<Timed, WorkerError> {
        let request = Request::Time(Time { seconds: seconds + GRACE, ..time.clone() });
        match self.ask(request, &[], &Blobs::new(), seconds)? {
            (Reply::Timed(head), received) => {
                self.end_if(head.last);
                let contents: HashMap<String, Vec<u8>> = received.into_iter().collect();
                let outputs = || head.sampled.iter().flat_map(|s| &s.outputs);
                if outputs().any(|o| !contents.contains_key(&o.sha256)) {
                    return self.garbled("a sampled output's bytes are missing");
                }
                Ok(Timed { head: *head, contents })
            }
            (other, _) => self.stray(&other),
        }
    }

    /// Launches a subject many times over, within `seconds`. [`Steady::seconds`] is set here.
    pub fn steady(&mut self, steady: &Steady, seconds: u64) -> Result<SteadyHead, WorkerError> {
        let request = Request::Steady(Steady { seconds: seconds + GRACE, ..steady.clone() });
        match self.ask(request, &[], &Blobs::new(), seconds)? {
            (Reply::Steady(head), _) => {
                self.end_if(head.last);
                Ok(*head)
            }
            (other, _) => self.stray(&other),
        }
    }

    /// Takes the device for this worker alone, waiting for others so long at most. It is given up by [`Worker::release`], by the worker's
    /// end, however it comes, and by nothing else. While it is held, runs of other workers on the device wait.
    pub fn hold(&mut self, wait_seconds: u64) -> Result<HoldHead, WorkerError> {
        let seconds = wait_seconds + GRACE;
        match self.ask(Request::Hold(Hold { wait_seconds, seconds: seconds + GRACE }), &[], &Blobs::new(), seconds)? {
            (Reply::Held(head), _) => Ok(head),
            (other, _) => self.stray(&other),
        }
    }

    /// Gives the device back to all.
    pub fn release(&mut self) -> Result<(), WorkerError> {
        self.done(Request::Release)
    }

    /// Forgets a subject.
    pub fn discard(&mut self, subject: &str) -> Result<(), WorkerError> {
        self.done(Request::Discard { subject: subject.to_string() })
    }

    fn done(&mut self, request: Request) -> Result<(), WorkerError> {
        const SECONDS: u64 = 30;
        match self.ask(request, &[], &Blobs::new(), SECONDS)? {
            (Reply::Done, _) => Ok(()),
            (other, _) => self.stray(&other),
        }
    }

    fn end_if(&mut self, last: bool) {
        if last {
            self.link.end();
        }
    }

    fn stray<T>(&mut self, reply: &Reply) -> Result<T, WorkerError> {
        self.link.end();
        Err(unexpected(reply))
    }
}

/// Hashes that a subject names, without repetition.
pub(super) fn needed(prepare: &Prepare) -> Vec<&String> {
    let contents = prepare.buffers.iter().filter_map(|b| match &b.fill {
        Fill::Contents(sha) => Some(sha),
        Fill::Zero | Fill::Poison => None,
    });
    let based = prepare.bases.iter().flat_map(|base| base.values());
    let found: BTreeSet<&String> = contents.chain(based).chain([&prepare.image]).collect();
    found.into_iter().collect()
}

impl Prepare {
    /// A subject of what a run would execute, with one base, one copy and at most 4 GiB.
    pub fn new(subject: &str, image: &str, buffers: &[Buffer], launches: &[Launch], want: &[String]) -> Prepare {
        Prepare {
            subject: subject.into(),
            label: String::new(),
            image: image.into(),
            buffers: buffers.to_vec(),
            launches: launches.to_vec(),
            want: want.to_vec(),
            bases: Vec::new(),
            copies: 1,
            copies_bytes: 4 << 30,
            seconds: 0,
        }
    }
}
