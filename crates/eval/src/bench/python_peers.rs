//! Peers in a Python process ([`crate::baseline`]) as contenders.
//!
//! The process is started ahead, because PyTorch takes seconds to come up; it is waited for when the first peer is wanted.

use super::measure::{Contender, Out, Turn};
use super::peers::{Peer, PeerAsk, Peers};
use super::timed::{Ask, Stop};
use crate::baseline::protocol::Time;
use crate::baseline::{Absent, Baselines, Name, Options, given, judge};
use crate::error::EvalError;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use warpsmith_cuda::worker::protocol::Bases;
use warpsmith_spec::record::CheckRecord;

/// The process.
pub struct PythonPeers {
    baselines: Mutex<Baselines>,
}

impl PythonPeers {
    /// Begins to start it.
    pub fn start(options: Options) -> PythonPeers {
        PythonPeers { baselines: Mutex::new(Baselines::start(options)) }
    }

    fn lock(&self) -> MutexGuard<'_, Baselines> {
        self.baselines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn prepare(&self, ask: &PeerAsk) -> Result<PythonPeer<'_>, Absent> {
        let name = Name::parse(ask.name).map_err(|e| Absent::new(e.message))?;
        let inputs = given(name, ask.task, ask.workload, ask.bases.iter().map(|b| &b.inputs))?;
        let subject = format!("{}-{}-{}", ask.name, ask.workload.shape, ask.workload.mask());
        let mut baselines = self.lock();
        let ready = baselines.prepare(&subject, name, &inputs, ask.copies, ask.copies_bytes)?;
        let values = baselines.output(&subject, 0)?;
        let check =
            ask.bases.first().and_then(|oracle| judge(oracle, ask.task, ask.target, ask.workload.format, &values).ok());
        let versions = baselines.greeting().map(|g| g.versions).unwrap_or_default();
        let mut provider: Vec<String> = versions.iter().map(|(package, v)| format!("{package} {v}")).collect();
        provider.extend((!ready.detail.is_empty()).then_some(ready.detail));
        Ok(PythonPeer { peers: self, subject, check, provider: provider.join(", ") })
    }
}

impl Peers for PythonPeers {
    fn peer<'a>(&'a self, ask: &PeerAsk) -> Result<Result<Box<dyn Peer + 'a>, String>, EvalError> {
        Ok(match self.prepare(ask) {
            Ok(peer) => Ok(Box::new(peer) as Box<dyn Peer + 'a>),
            Err(absent) => Err(absent.why),
        })
    }
}

struct PythonPeer<'a> {
    peers: &'a PythonPeers,
    subject: String,
    check: Option<BTreeMap<String, CheckRecord>>,
    provider: String,
}

impl Contender for PythonPeer<'_> {
    fn turn(&mut self, ask: &Ask) -> Result<Turn, EvalError> {
        let time = Time {
            subject: self.subject.clone(),
            method: ask.method,
            replays: ask.replays,
            warmup: ask.warmup,
            calls: ask.calls,
            bases: Bases::Seed(ask.seed),
            sample: Vec::new(),
            marked: false,
            seconds: ask.seconds,
        };
        Ok(match self.peers.lock().time(&time) {
            Ok(timed) => {
                let c = timed.head.conditions;
                let readings = [c.before, c.during, c.after].into_iter().flatten().collect();
                Turn { samples: timed.head.samples, readings, out: None }
            }
            Err(absent) => Turn { out: Some(Out::Stopped(Stop::Lost { why: absent.why })), ..Turn::default() },
        })
    }

    /// Its outputs were judged when it was prepared.
    fn output_bytes(&self) -> u64 {
        u64::MAX
    }
}

impl Peer for PythonPeer<'_> {
    fn check(&self) -> Option<BTreeMap<String, CheckRecord>> {
        self.check.clone()
    }

    fn provider(&self) -> Option<String> {
        Some(self.provider.clone())
    }
}

impl Drop for PythonPeer<'_> {
    fn drop(&mut self) {
        self.peers.lock().discard(&self.subject);
    }
}
