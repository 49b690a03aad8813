//! Collects findings of one CTA: each (kind, place, other place) once, with a count.
//! It knows program counters only; `launch` turns them into sites.

use std::collections::HashMap;

use crate::api::{FindingKind, Place, Severity};
use crate::code::Pc;

/// Distinct findings kept of a launch, and of each CTA.
pub const MAX_FINDINGS: usize = 64;

/// A finding before its places have names.
#[derive(Debug, Clone)]
pub struct RawFinding {
    pub kind: FindingKind,
    pub severity: Severity,
    pub key: Key,
    pub pc: Pc,
    pub other: Option<Pc>,
    pub message: String,
    pub cta: [u32; 3],
    pub warp: u32,
    pub lane: Option<u32>,
    pub place: Option<Place>,
    pub count: u64,
}

/// What tells two findings apart: the kind, the severity and both source lines (see [`crate::code::Code::lines`]).
pub type Key = (FindingKind, Severity, u32, Option<u32>);

/// Findings in the order in which they were met.
#[derive(Debug, Default)]
pub struct Findings {
    pub list: Vec<RawFinding>,
    index: HashMap<Key, usize>,
}

impl Findings {
    /// Counts one more of a finding that is known (or is beyond the limit); false when it is new.
    pub fn known(&mut self, key: Key, count: u64) -> bool {
        match self.index.get(&key) {
            Some(&at) => {
                self.list[at].count += count;
                true
            }
            None => self.list.len() >= MAX_FINDINGS,
        }
    }

    /// Adds a finding, or its count to the known one.
    pub fn add(&mut self, finding: RawFinding) {
        let key = finding.key;
        if !self.known(key, finding.count) {
            self.index.insert(key, self.list.len());
            self.list.push(finding);
        }
    }

    /// Takes over the findings of a CTA that comes later.
    pub fn append(&mut self, later: Findings) {
        for f in later.list {
            self.add(f);
        }
    }
}
