//! Times a subject: before each replay everything a call reads or writes is made anew, outside of what is timed; after it inputs are
//! compared with what they were, and the outputs that were asked for are read.
//!
//! Cold: L2 is flushed last, and each call of the graph works on a copy of its own. Warm: the same graph has run just before, on as many
//! copies as half of L2 holds. Source: NVBench's cold and hot measurements; published ways of cheating a benchmark's clock, hence fresh
//! values, a poison that nobody can recognise, and outputs of timed calls that are looked at.

use super::device::{Device, Move};
use super::protocol::{Conditions, End, MAX_REPLAYS, Method, Output, Sampled, Time, TimedHead};
use super::session::{Trouble, end_of};
use super::subject::Subject;
use super::wire::sha256;
use crate::error::CudaError;

/// Calls of one replay at most, whatever is asked for.
const MAX_CALLS: u32 = 4096;

/// Bytes of the outputs that one request samples at most.
const MAX_SAMPLED_BYTES: u64 = 4 << 30;

/// What came of it, and the contents that the outputs name, each once.
pub(super) type Done = (TimedHead, Vec<Vec<u8>>);

/// Carries out a request.
pub(super) fn time(device: &mut dyn Device, subject: &mut Subject, time: &Time) -> Result<Done, Trouble> {
    let bad = |what: &str| Err(Trouble::BadRequest(what.into()));
    if time.replays.saturating_add(time.warmup) > MAX_REPLAYS {
        return bad("too many replays");
    }
    if time.sample.iter().any(|[replay, copy]| *replay >= time.replays || *copy >= subject.copies()) {
        return bad("a sample of a replay, or a copy, that there is not");
    }
    let wanted: u64 = subject.want.iter().map(|i| subject.buffers[*i].bytes).sum();
    if wanted.saturating_mul(time.sample.len() as u64) > MAX_SAMPLED_BYTES {
        return bad("the sampled outputs have too many bytes");
    }
    let plan = plan(device, subject, time);
    let mut used = plan.clone();
    used.sort_unstable();
    used.dedup();
    let head = TimedHead {
        end: End::Completed,
        samples: Vec::new(),
        calls: plan.len() as u32,
        copies: used.len() as u32,
        sampled: Vec::new(),
        changed: Vec::new(),
        overruns: Vec::new(),
        conditions: Conditions { before: device.reading(), ..Conditions::default() },
        at: None,
        printed: String::new(),
        last: false,
    };
    let mut timing = Timing { time, plan, used, head, contents: Vec::new(), made: 0 };
    device.begin_range(&format!("{} {}", subject.label, time.method.word()));
    device.mark(time.marked);
    let done = timing.all(device, subject);
    device.mark(false);
    device.end_range();
    match done {
        Ok(()) => {}
        Err(e) => {
            let (end, last) = end_of(e, 0)?;
            (timing.head.end, timing.head.last) = (end, last);
            let progress = if time.marked { device.progress() } else { Vec::new() };
            timing.head.at = Some(subject.stop(timing.made, u64::from(timing.head.calls), 0, &progress));
        }
    }
    Ok((timing.head, timing.contents))
}

/// The copies that the calls of a replay work on, in order.
fn plan(device: &dyn Device, subject: &Subject, time: &Time) -> Vec<u32> {
    let copies = match time.method {
        Method::GraphWarm => {
            let fit = device.info().l2_bytes / 2 / subject.bytes().max(1);
            subject.copies().min(fit.clamp(1, u64::from(u32::MAX)) as u32)
        }
        Method::GraphCold | Method::Event | Method::Eager => subject.copies(),
    };
    let wanted = if time.calls == 0 { subject.copies() } else { time.calls };
    let once = time.method == Method::GraphCold || subject.has_zeros();
    let calls = match time.method {
        Method::Event => 1,
        _ => wanted.min(if once { copies } else { MAX_CALLS }),
    };
    (0..calls).map(|i| i % copies).collect()
}

struct Timing<'a> {
    time: &'a Time,
    plan: Vec<u32>,
    /// The copies of the plan, each once.
    used: Vec<u32>,
    head: TimedHead,
    contents: Vec<Vec<u8>>,
    /// Calls before this replay.
    made: u64,
}

impl Timing<'_> {
    fn all(&mut self, device: &mut dyn Device, subject: &mut Subject) -> Result<(), CudaError> {
        let graph = match self.time.method {
            Method::GraphCold | Method::GraphWarm => Some(subject.graph(device, &self.plan, self.time.marked)?),
            Method::Event | Method::Eager => None,
        };
        let mut last = 0;
        for replay in 0..self.time.warmup + self.time.replays {
            let kept = replay.checked_sub(self.time.warmup);
            let row = kept.unwrap_or(0);
            if self.time.method == Method::Event {
                // Turn by turn: none is used again before the others were.
                self.plan = vec![replay % subject.copies()];
                self.used.clone_from(&self.plan);
            }
            let bases: Vec<(u32, u32)> =
                self.used.iter().map(|c| (*c, self.time.bases.at(row, *c, subject.bases()))).collect();
            let mut moves = Vec::new();
            bases.iter().for_each(|(copy, base)| subject.refresh(*copy, *base, &mut moves));
            let mut seed = subject.draw();
            self.used.iter().for_each(|copy| subject.poison(*copy, mixed(seed, *copy), &mut moves));
            device.arrange(&moves)?;
            let observe = kept == Some(self.time.replays / 2);
            let us = match (self.time.method, graph) {
                (Method::GraphWarm, Some(graph)) => {
                    device.forget_persisting()?;
                    device.replay(graph, false)?;
                    self.made += self.plan.len() as u64;
                    seed = subject.draw();
                    let mut moves: Vec<Move> = Vec::new();
                    self.used.iter().for_each(|copy| subject.poison(*copy, mixed(seed, *copy), &mut moves));
                    device.arrange(&moves)?;
                    self.replay(device, graph, observe)?
                }
                (_, Some(graph)) => {
                    device.flush()?;
                    self.replay(device, graph, observe)?
                }
                (method, None) => {
                    let calls = self.plan.iter().flat_map(|c| subject.ready[*c as usize].iter().copied());
                    let launches: Vec<_> = calls.collect();
                    device.flush()?;
                    let us = if method == Method::Event { device.event(&launches) } else { device.eager(&launches) }?;
                    if observe {
                        self.head.conditions.during = device.reading();
                    }
                    us
                }
            };
            if let Some(kept) = kept {
                self.head.samples.push(us / self.plan.len() as f64);
                self.sample(device, subject, kept, &bases, seed)?;
                last = kept;
            }
            subject.changed(device, &bases, row, &mut self.head.changed)?;
            self.made += self.plan.len() as u64;
        }
        self.head.conditions.after = device.reading();
        self.head.overruns = subject.overruns(device, last)?;
        Ok(())
    }

    fn replay(
        &mut self,
        device: &mut dyn Device,
        graph: super::device::Recorded,
        observe: bool,
    ) -> Result<f64, CudaError> {
        let (us, reading) = device.replay(graph, observe)?;
        if observe {
            self.head.conditions.during = reading;
        }
        Ok(us)
    }

    /// Reads the outputs that were asked for.
    fn sample(
        &mut self,
        device: &mut dyn Device,
        subject: &Subject,
        replay: u32,
        bases: &[(u32, u32)],
        seed: u64,
    ) -> Result<(), CudaError> {
        for [_, copy] in self.time.sample.iter().filter(|[r, _]| *r == replay) {
            let Some((_, base)) = bases.iter().find(|(c, _)| c == copy) else { continue };
            let mut outputs = Vec::new();
            for buffer in &subject.want {
                let mut bytes = vec![0; subject.buffers[*buffer].bytes as usize];
                device.read(subject.at(*copy, *buffer), &mut bytes)?;
                let unwritten = subject.unwritten(*copy, *buffer, mixed(seed, *copy), &bytes);
                let name = subject.buffers[*buffer].name.clone();
                outputs.push(Output { name, sha256: sha256(&bytes), unwritten });
                self.contents.push(bytes);
            }
            self.head.sampled.push(Sampled { replay, copy: *copy, base: *base, outputs });
        }
        Ok(())
    }
}

/// The seed of a copy's poison.
pub(super) fn mixed(seed: u64, copy: u32) -> u64 {
    super::session::mix(seed ^ u64::from(copy))
}

#[cfg(test)]
#[path = "timing_tests.rs"]
mod tests;
