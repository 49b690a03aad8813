//! Stability: a subject launched many times over. The first calls are made one by one, on a stream that lasts and on fresh ones, so that a
//! fault has a number; then many at once on several streams, each on a copy of its own, with single ones in between. The outputs of every call
//! are compared with the first one's, bit by bit, on the device.
//!
//! Limit: of calls that were under way together a fault does not say which; those are named that had begun and not ended, one on each stream
//! at most, and the caller makes them again one by one.

use super::device::{Check, Device, Failed, Found, Move, Ready};
use super::protocol::{Differs, End, Fill, Steady, SteadyHead};
use super::session::{Trouble, end_of};
use super::subject::Subject;
use super::timing::mixed;
use super::wire::hex;
use crate::error::CudaError;
use std::time::{Duration, Instant};

/// Calls that are made one by one at the start.
const SINGLES: u64 = 64;
/// Calls under way together at most.
const VOLLEY: u32 = 64;
/// After so many volleys some calls are single again.
const VOLLEYS: u64 = 16;
/// That many.
const BETWEEN: u64 = 8;
/// Bytes of a difference that are shown.
const SHOWN: u64 = 16;

/// Carries out a request.
pub(super) fn steady(device: &mut dyn Device, subject: &mut Subject, steady: &Steady) -> Result<SteadyHead, Trouble> {
    if steady.base >= subject.bases() {
        return Err(Trouble::BadRequest(format!("there is no set of inputs {}", steady.base)));
    }
    let seconds = steady.seconds_at_most.clamp(0.0, 86_400.0);
    let head = SteadyHead {
        end: End::Completed,
        done: 0,
        differing: 0,
        first: None,
        changed: Vec::new(),
        overruns: Vec::new(),
        at: None,
        printed: String::new(),
        last: false,
    };
    let compared = (0..subject.buffers.len())
        .filter(|i| subject.want.contains(i) && !matches!(subject.buffers[*i].fill, Fill::Contents(_)));
    let mut run = Many {
        steady,
        until: Instant::now() + Duration::from_secs_f64(if seconds.is_nan() { 0.0 } else { seconds }),
        compared: compared.collect(),
        references: Vec::new(),
        head,
        under_way: 1,
    };
    device.begin_range(&format!("{} steady", subject.label));
    let done = run.all(device, subject);
    device.end_range();
    device.free(&run.references);
    if let Err(Failed { launch, error }) = done {
        let (end, last) = end_of(error, launch)?;
        (run.head.end, run.head.last) = (end, last);
        let progress = if run.under_way > 1 { device.progress() } else { Vec::new() };
        run.head.at = Some(subject.stop(run.head.done, run.under_way, launch, &progress));
    }
    Ok(run.head)
}

struct Many<'a> {
    steady: &'a Steady,
    until: Instant,
    /// Places of the outputs.
    compared: Vec<usize>,
    /// Where the first call's outputs are kept.
    references: Vec<u64>,
    head: SteadyHead,
    under_way: u64,
}

fn unplaced(error: CudaError) -> Failed {
    Failed { launch: 0, error }
}

impl Many<'_> {
    fn all(&mut self, device: &mut dyn Device, subject: &mut Subject) -> Result<(), Failed> {
        let copies: Vec<u32> = (0..subject.copies().min(VOLLEY)).collect();
        let mut moves = Vec::new();
        copies.iter().for_each(|copy| subject.refresh(*copy, self.steady.base, &mut moves));
        device.arrange(&moves).map_err(unplaced)?;
        for i in &self.compared {
            self.references.push(device.alloc(subject.buffers[*i].bytes.max(1)).map_err(unplaced)?);
        }
        let mut volleys = 0;
        while self.left() > 0 && (self.head.done == 0 || Instant::now() < self.until) {
            if self.head.done < SINGLES || copies.len() == 1 {
                self.singles(device, subject, &copies, 1)?;
                continue;
            }
            let width = self.left().min(copies.len() as u64) as usize;
            self.volley(device, subject, &copies[..width])?;
            volleys += 1;
            if volleys % VOLLEYS == 0 {
                self.singles(device, subject, &copies, BETWEEN)?;
            }
        }
        let inputs: Vec<(u32, u32)> = copies.iter().map(|c| (*c, self.steady.base)).collect();
        subject.changed(device, &inputs, 0, &mut self.head.changed).map_err(unplaced)?;
        self.head.overruns = subject.overruns(device, 0).map_err(unplaced)?;
        Ok(())
    }

    fn left(&self) -> u64 {
        self.steady.launches.saturating_sub(self.head.done)
    }

    /// Calls one by one, every other one on a stream of its own.
    fn singles(
        &mut self,
        device: &mut dyn Device,
        subject: &mut Subject,
        copies: &[u32],
        count: u64,
    ) -> Result<(), Failed> {
        for _ in 0..count.min(self.left()) {
            let copy = copies[(self.head.done % copies.len() as u64) as usize];
            self.under_way = 1;
            self.poison(device, subject, &[copy])?;
            device.single(&subject.ready[copy as usize], self.head.done % 2 == 1)?;
            self.compare(device, subject, &[copy])?;
        }
        Ok(())
    }

    /// One call on each of these copies, on several streams at once.
    fn volley(&mut self, device: &mut dyn Device, subject: &mut Subject, copies: &[u32]) -> Result<(), Failed> {
        self.under_way = copies.len() as u64;
        self.poison(device, subject, copies)?;
        let calls: Vec<&[Ready]> = copies.iter().map(|c| subject.ready[*c as usize].as_slice()).collect();
        device.volley(&calls).map_err(unplaced)?;
        self.compare(device, subject, copies)
    }

    fn poison(&self, device: &mut dyn Device, subject: &mut Subject, copies: &[u32]) -> Result<(), Failed> {
        let seed = subject.draw();
        let mut moves = Vec::new();
        copies.iter().for_each(|copy| subject.poison(*copy, mixed(seed, *copy), &mut moves));
        device.arrange(&moves).map_err(unplaced)
    }

    /// Compares what these copies hold with the first call's outputs, or keeps it as those.
    fn compare(&mut self, device: &mut dyn Device, subject: &Subject, copies: &[u32]) -> Result<(), Failed> {
        let outputs = || self.compared.iter().zip(&self.references);
        if self.head.done == 0 {
            let moves = outputs().map(|(i, to)| Move::Copy {
                from: subject.at(copies[0], *i),
                to: *to,
                bytes: subject.buffers[*i].bytes,
            });
            device.arrange(&moves.collect::<Vec<_>>()).map_err(unplaced)?;
        }
        let checks = copies.iter().flat_map(|copy| {
            outputs().map(move |(i, with)| Check::Equal {
                at: subject.at(*copy, *i),
                with: *with,
                bytes: subject.buffers[*i].bytes,
            })
        });
        let found = device.compare(&checks.collect::<Vec<_>>()).map_err(unplaced)?;
        let per_call = self.compared.len();
        for (call, copy) in copies.iter().enumerate() {
            let of_call = found.get(call * per_call..(call + 1) * per_call).unwrap_or(&[]);
            let Some(which) = of_call.iter().position(Option::is_some) else { continue };
            self.head.differing += 1;
            if let (None, Some(found)) = (&self.head.first, of_call[which]) {
                let launch = self.head.done + call as u64;
                self.head.first = Some(self.differs(device, subject, launch, *copy, which, found).map_err(unplaced)?);
            }
        }
        self.head.done += copies.len() as u64;
        Ok(())
    }

    fn differs(
        &self,
        device: &mut dyn Device,
        subject: &Subject,
        launch: u64,
        copy: u32,
        which: usize,
        found: Found,
    ) -> Result<Differs, CudaError> {
        let i = self.compared[which];
        let buffer = &subject.buffers[i];
        let offset = found.first / 4 * 4;
        let mut got = vec![0; SHOWN.min(buffer.bytes - offset) as usize];
        let mut want = got.clone();
        device.read(subject.at(copy, i) + offset, &mut got)?;
        device.read(self.references[which] + offset, &mut want)?;
        let (got, want) = (hex(&got), hex(&want));
        Ok(Differs { launch, buffer: buffer.name.clone(), offset, bytes: found.count, got, want })
    }
}
