//! Other people's implementations, as contenders: timed on the same inputs by the same methods, their outputs judged by the same oracle.
//!
//! Who is not installed, or does not take the shape, is missing with the reason; a peer that crashes loses itself only.

use super::fake::Fake;
use super::fake_file::FakeSubject;
use super::measure::{Contender, Out, Turn};
use super::timed::{Ask, Stop, TimedBackend};
use crate::error::EvalError;
use crate::oracle::Oracle;
use std::collections::BTreeMap;
use std::sync::Arc;
use warpsmith_spec::record::CheckRecord;
use warpsmith_spec::task::Task;
use warpsmith_spec::workload::Workload;

/// Which peer is wanted, on what.
pub struct PeerAsk<'a> {
    /// `sdpa:auto`
    pub name: &'a str,
    pub task: &'a Task,
    pub workload: &'a Workload,
    /// The candidates' target: limits are as its tensor cores have them.
    pub target: &'a str,
    pub bases: &'a [Arc<Oracle>],
    pub copies: u32,
    pub copies_bytes: u64,
}

/// A peer that is ready to be timed.
pub trait Peer: Contender {
    /// Its outputs against the oracle, for the record; it is not judged by them.
    fn check(&self) -> Option<BTreeMap<String, CheckRecord>>;

    /// Packages and versions.
    fn provider(&self) -> Option<String>;
}

/// Where peers come from.
pub trait Peers {
    /// Err: why it is missing, with what to install.
    fn peer<'a>(&'a self, ask: &PeerAsk) -> Result<Result<Box<dyn Peer + 'a>, String>, EvalError>;
}

/// A place without any.
pub struct NoPeers(pub String);

impl Peers for NoPeers {
    fn peer<'a>(&'a self, _: &PeerAsk) -> Result<Result<Box<dyn Peer + 'a>, String>, EvalError> {
        Ok(Err(self.0.clone()))
    }
}

/// Those of the fake backend's file.
pub struct FakePeers<'f>(pub &'f Fake);

impl Peers for FakePeers<'_> {
    fn peer<'a>(&'a self, ask: &PeerAsk) -> Result<Result<Box<dyn Peer + 'a>, String>, EvalError> {
        let Some(row) = self.0.file.subject(ask.name, None, &BTreeMap::new(), &ask.workload.shape, ask.workload.causal)
        else {
            return Ok(Err("the file of the fake backend has no such subject".into()));
        };
        if row.name == "*" {
            return Ok(Err("the file of the fake backend does not name it".into()));
        }
        if let Some(why) = &row.missing {
            return Ok(Err(why.clone()));
        }
        Ok(Ok(Box::new(FakePeer { fake: self.0, row: row.clone(), asks: 0 })))
    }
}

struct FakePeer<'a> {
    fake: &'a Fake,
    row: FakeSubject,
    asks: u64,
}

impl Contender for FakePeer<'_> {
    fn turn(&mut self, ask: &Ask) -> Result<Turn, EvalError> {
        if self.row.hang {
            return Ok(Turn { out: Some(Out::Stopped(Stop::TimedOut { seconds: ask.seconds })), ..Turn::default() });
        }
        let samples = self.fake.samples(&self.row, &self.row.name, ask, self.asks);
        self.asks += 1;
        self.fake.spend(samples.iter().sum::<f64>() * 1e-6 * f64::from(ask.calls.max(1)));
        Ok(Turn { samples, readings: vec![self.fake.reading()], out: None })
    }

    fn output_bytes(&self) -> u64 {
        0
    }
}

impl Peer for FakePeer<'_> {
    fn check(&self) -> Option<BTreeMap<String, CheckRecord>> {
        None
    }

    fn provider(&self) -> Option<String> {
        Some(format!("{}: a file", self.fake.device_name()))
    }
}
