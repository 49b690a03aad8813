//! One run on a device: buffers between red zones, poison, repeats, and what they tell.
//!
//! Red zones are bytes before and behind each buffer that nobody may write: their pattern is drawn anew for each repeat, compared
//! afterwards, and a difference names the buffer. The launches are done once for each poison. A byte of a poisoned buffer that has each
//! poison afterwards was never written. An output that follows the poison and the red zones, reproducibly, comes from reading what it was
//! not given. Limits: reads beyond a buffer that change no output, writes beyond the red zones into mapped memory, and same-value
//! writes are not seen; the PTX machine sees them.

use super::device::{Code, Device, LaunchValues, Value};
use super::protocol::{Arg, Buffer, Difference, End, Fill, Launch, MAX_PLACES, Output, Overrun, RanHead, Run};
use super::wire::{sha256, unhex};
use crate::error::CudaError;
use crate::module::Geometry;
use std::collections::HashMap;
use std::sync::Arc;

/// Bytes before each buffer; those behind it are as many, and up to the next multiple of 256.
pub(super) const RED_ZONE: u64 = 64 << 10;
/// How often two contents are tried against each other before an output is said to follow them.
const CONFIRMATIONS: usize = 2;

/// Blobs by hash.
pub(super) type Store = HashMap<String, Arc<Vec<u8>>>;

/// What a run needs and is not there.
pub(super) fn missing(run: &Run, store: &Store) -> Vec<String> {
    let contents = run.buffers.iter().filter_map(|b| match &b.fill {
        Fill::Contents(sha) => Some(sha),
        Fill::Zero | Fill::Poison => None,
    });
    let mut found: Vec<String> =
        contents.chain([&run.image]).filter(|sha| !store.contains_key(*sha)).cloned().collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// Why a run could not be carried out: the one who asks, or the environment.
#[derive(Debug)]
pub(super) enum Trouble {
    BadRequest(String),
    Device(CudaError),
}

impl From<CudaError> for Trouble {
    fn from(e: CudaError) -> Trouble {
        Trouble::Device(e)
    }
}

/// Carries out a run. The outputs' bytes are those of the first repeat, in the order of [`Run::want`].
pub(super) fn execute(device: &mut dyn Device, store: &Store, run: &Run) -> Result<(RanHead, Vec<Vec<u8>>), Trouble> {
    let job = Job { run, store, secret: secret() };
    let mut taken = Taken::default();
    let done = job.execute(device, &mut taken);
    taken.give_back(device);
    done
}

/// What a run has of the device.
#[derive(Default)]
struct Taken {
    memory: Vec<u64>,
    code: Option<Code>,
}

impl Taken {
    fn give_back(self, device: &mut dyn Device) {
        device.free(&self.memory);
        if let Some(code) = self.code {
            device.unload(code);
        }
    }
}

struct Job<'a> {
    run: &'a Run,
    store: &'a Store,
    secret: u64,
}

/// What one repeat left.
struct Pass {
    end: End,
    lost: bool,
    outputs: Vec<Vec<u8>>,
    overruns: Vec<Overrun>,
}

impl Job<'_> {
    fn execute(&self, device: &mut dyn Device, taken: &mut Taken) -> Result<(RanHead, Vec<Vec<u8>>), Trouble> {
        self.check()?;
        let addresses = match self.allocate(device, &mut taken.memory) {
            Ok(addresses) => addresses,
            Err(Trouble::Device(e @ CudaError::OutOfMemory { .. })) => {
                return Ok((head(End::OutOfMemory { what: e.to_string() }, false), Vec::new()));
            }
            Err(e) => return Err(e),
        };
        let mut passes: Vec<Pass> = Vec::new();
        for repeat in 0..self.run.poisons.len() {
            let pass = self.pass(device, taken, &addresses, repeat)?;
            let stop = pass.end != End::Completed || !pass.overruns.is_empty();
            passes.push(pass);
            if stop {
                break;
            }
        }
        let undefined = self.undefined(device, taken, &addresses, &passes)?;
        let last = passes.pop().ok_or_else(|| Trouble::BadRequest("no poison is given".into()))?;
        let mut ran = head(last.end.clone(), last.lost);
        (ran.overruns, ran.undefined) = (last.overruns.clone(), undefined);
        if last.end != End::Completed {
            return Ok((ran, Vec::new()));
        }
        passes.push(last);
        let outputs = self.wanted().enumerate().map(|(i, buffer)| self.output(buffer, i, &passes));
        ran.outputs = outputs.collect();
        Ok((ran, passes.swap_remove(0).outputs))
    }

    fn wanted(&self) -> impl Iterator<Item = &Buffer> {
        self.run.want.iter().filter_map(|name| self.run.buffers.iter().find(|b| b.name == *name))
    }

    /// Refuses what makes no sense whatever the device.
    fn check(&self) -> Result<(), Trouble> {
        let bad = |what: String| Err(Trouble::BadRequest(what));
        let named = |name: &str| self.run.buffers.iter().filter(|b| b.name == name).count();
        for buffer in &self.run.buffers {
            if named(&buffer.name) != 1 {
                return bad(format!("two buffers are called {}", buffer.name));
            }
            if let Fill::Contents(sha) = &buffer.fill
                && self.store.get(sha).is_some_and(|b| b.len() as u64 != buffer.bytes)
            {
                return bad(format!("the contents of {} are not as long as it is", buffer.name));
            }
        }
        let args = self.run.launches.iter().flat_map(|l| &l.args).flat_map(Arg::buffers);
        if let Some(name) = args.chain(&self.run.want).find(|name| named(name) == 0) {
            return bad(format!("there is no buffer {name}"));
        }
        Ok(())
    }

    /// Addresses of the buffers' first bytes, by name.
    fn allocate(&self, device: &mut dyn Device, memory: &mut Vec<u64>) -> Result<HashMap<String, u64>, Trouble> {
        let mut addresses = HashMap::new();
        for buffer in &self.run.buffers {
            let all = buffer.bytes.checked_add(RED_ZONE + rear(buffer.bytes));
            let all = all.ok_or_else(|| Trouble::BadRequest(format!("{} has {} bytes", buffer.name, buffer.bytes)))?;
            let at = device.alloc(all)?;
            memory.push(at);
            addresses.insert(buffer.name.clone(), at + RED_ZONE);
        }
        Ok(addresses)
    }

    /// Loads, fills, launches, reads back.
    fn pass(
        &self,
        device: &mut dyn Device,
        taken: &mut Taken,
        addresses: &HashMap<String, u64>,
        repeat: usize,
    ) -> Result<Pass, Trouble> {
        let poison = self.run.poisons[repeat];
        let ended = |end: End, lost: bool| Ok(Pass { end, lost, outputs: Vec::new(), overruns: Vec::new() });
        let image = &self.store[&self.run.image];
        if let Some(code) = taken.code.take() {
            device.unload(code);
        }
        let code = match device.load(image) {
            Ok(code) => code,
            Err(CudaError::Image { why }) => return ended(End::Unsupported { what: why }, false),
            Err(e) => return Err(e.into()),
        };
        taken.code = Some(code);
        for (i, buffer) in self.run.buffers.iter().enumerate() {
            let at = addresses[&buffer.name];
            let (front, back) = self.zones(i, buffer, repeat);
            device.write(at - RED_ZONE, &front)?;
            device.write(at + buffer.bytes, &back)?;
            match &buffer.fill {
                Fill::Contents(sha) => device.write(at, &self.store[sha])?,
                Fill::Zero => device.fill(at, buffer.bytes, 0)?,
                Fill::Poison => device.fill(at, buffer.bytes, poison)?,
            }
        }
        for (i, launch) in self.run.launches.iter().enumerate() {
            let values = values(launch, addresses)?;
            if let Err(e) = device.launch(code, &values) {
                let (end, lost) = end_of(e, i)?;
                return ended(end, lost);
            }
        }
        let mut overruns = Vec::new();
        for (i, buffer) in self.run.buffers.iter().enumerate() {
            let (front, back) = self.zones(i, buffer, repeat);
            let at = addresses[&buffer.name];
            let mut found = vec![0; front.len()];
            device.read(at - RED_ZONE, &mut found)?;
            // The byte nearest to the buffer tells most: before it that is the last one.
            if let Some((_, last, bytes)) = changed(&front, &found) {
                overruns.push(Overrun { buffer: buffer.name.clone(), offset: last as i64 - RED_ZONE as i64, bytes });
            }
            let mut found = vec![0; back.len()];
            device.read(at + buffer.bytes, &mut found)?;
            if let Some((first, _, bytes)) = changed(&back, &found) {
                let offset = (buffer.bytes + first as u64) as i64;
                overruns.push(Overrun { buffer: buffer.name.clone(), offset, bytes });
            }
        }
        let outputs = self.wanted().map(|buffer| {
            let mut bytes = vec![0; buffer.bytes as usize];
            device.read(addresses[&buffer.name], &mut bytes).map(|()| bytes)
        });
        let outputs = outputs.collect::<Result<_, _>>()?;
        Ok(Pass { end: End::Completed, lost: false, outputs, overruns })
    }

    /// What the red zones of a buffer hold in a repeat. Zones differ from each other, so that copying one to another shows too.
    fn zones(&self, index: usize, buffer: &Buffer, repeat: usize) -> (Vec<u8>, Vec<u8>) {
        let poison = self.run.poisons[repeat];
        let seed = mix(self.secret ^ mix((index as u64) << 32 | u64::from(poison)));
        (pattern(seed, RED_ZONE), pattern(seed ^ 1, rear(buffer.bytes)))
    }

    /// Bytes of a wanted buffer after the first repeat, and what was never written in any.
    fn output(&self, buffer: &Buffer, index: usize, passes: &[Pass]) -> Output {
        // One poison alone cannot tell a byte that was written with just that value.
        let unwritten = if buffer.fill == Fill::Poison && passes.len() > 1 {
            let kept = |at: u64| {
                passes.iter().zip(&self.run.poisons).all(|(p, poison)| p.outputs[index][at as usize] == *poison)
            };
            ranges(buffer.bytes, kept)
        } else {
            Vec::new()
        };
        Output { name: buffer.name.clone(), sha256: sha256(&passes[0].outputs[index]), unwritten }
    }

    /// Outputs that follow the poison: they differ between the first two repeats though both wrote them, and do so every time.
    fn undefined(
        &self,
        device: &mut dyn Device,
        taken: &mut Taken,
        addresses: &HashMap<String, u64>,
        passes: &[Pass],
    ) -> Result<Vec<Difference>, Trouble> {
        let [first, second, ..] = passes else { return Ok(Vec::new()) };
        if second.end != End::Completed || !second.overruns.is_empty() {
            return Ok(Vec::new());
        }
        let mut found: Vec<Difference> = Vec::new();
        for (i, buffer) in self.wanted().enumerate() {
            let kept = |at: usize| {
                buffer.fill == Fill::Poison
                    && first.outputs[i][at] == self.run.poisons[0]
                    && second.outputs[i][at] == self.run.poisons[1]
            };
            let differs = |at: &usize| first.outputs[i][*at] != second.outputs[i][*at] && !kept(*at);
            if let Some(offset) = (0..buffer.bytes as usize).find(differs) {
                let bytes = (offset..buffer.bytes as usize).filter(differs).count() as u64;
                found.push(Difference { buffer: buffer.name.clone(), offset: offset as u64, bytes });
            }
        }
        if found.is_empty() {
            return Ok(found);
        }
        // An output that merely depends on the order of threads differs now and then, not with the poison.
        for _ in 0..CONFIRMATIONS {
            for (repeat, known) in [first, second].into_iter().enumerate() {
                let again = self.pass(device, taken, addresses, repeat)?;
                if again.end != End::Completed || again.outputs != known.outputs {
                    return Ok(Vec::new());
                }
            }
        }
        Ok(found)
    }
}

/// How launches ended with an error of one of them, and whether the context is lost; an error that is not the launch's doing stays one.
pub(super) fn end_of(error: CudaError, launch: usize) -> Result<(End, bool), CudaError> {
    Ok(match error {
        CudaError::Fault { kind, code, name, .. } => (End::Faulted { launch, kind, code, name }, true),
        CudaError::Launch { what } => (End::Rejected { launch, what }, false),
        CudaError::NoEntry { .. } => (End::MissingEntry { launch }, false),
        CudaError::Image { why } => (End::Unsupported { what: why }, false),
        e @ CudaError::OutOfMemory { .. } => (End::OutOfMemory { what: e.to_string() }, false),
        e => return Err(e),
    })
}

/// Where it holds, as [first, count]; beyond [`MAX_PLACES`] ranges the last one reaches to the end.
pub(super) fn ranges(bytes: u64, holds: impl Fn(u64) -> bool) -> Vec<[u64; 2]> {
    let mut found: Vec<[u64; 2]> = Vec::new();
    for at in (0..bytes).filter(|at| holds(*at)) {
        let full = found.len() == MAX_PLACES;
        match found.last_mut() {
            Some([first, count]) if *first + *count == at => *count += 1,
            Some([first, count]) if full => {
                *count = bytes - *first;
                break;
            }
            _ => found.push([at, 1]),
        }
    }
    found
}

fn head(end: End, last: bool) -> RanHead {
    RanHead { end, outputs: Vec::new(), overruns: Vec::new(), undefined: Vec::new(), printed: String::new(), last }
}

/// Bytes of the red zone behind a buffer.
pub(super) fn rear(bytes: u64) -> u64 {
    RED_ZONE + (256 - bytes % 256) % 256
}

/// First and last differing byte, and how many differ.
fn changed(before: &[u8], after: &[u8]) -> Option<(usize, usize, u64)> {
    if before == after {
        return None;
    }
    let differs = |i: &usize| before[*i] != after[*i];
    let first = (0..before.len()).find(differs)?;
    let last = (0..before.len()).rfind(differs)?;
    Some((first, last, (first..=last).filter(differs).count() as u64))
}

pub(super) fn values(launch: &Launch, addresses: &HashMap<String, u64>) -> Result<LaunchValues, Trouble> {
    let args = launch.args.iter().map(|arg| match arg {
        Arg::Buffer(name) => Ok(Value::Address(addresses[name])),
        Arg::TensorMap { buffer, map } => Ok(Value::TensorMap { spec: (**map).clone(), address: addresses[buffer] }),
        Arg::Bytes(text) => {
            unhex(text).map(Value::Bytes).ok_or_else(|| Trouble::BadRequest(format!("{text} are no bytes")))
        }
        Arg::Struct { bytes: text, buffers } => {
            let mut bytes = unhex(text).ok_or_else(|| Trouble::BadRequest(format!("{text} are no bytes")))?;
            for (offset, name) in buffers {
                let end = offset.checked_add(8).filter(|end| *end <= bytes.len() as u64);
                let end = end.ok_or_else(|| Trouble::BadRequest(format!("{name} lies behind its struct's end")))?;
                bytes[*offset as usize..end as usize].copy_from_slice(&addresses[name].to_le_bytes());
            }
            Ok(Value::Bytes(bytes))
        }
    });
    let geometry = Geometry {
        grid: launch.grid,
        block: launch.block,
        cluster: launch.cluster,
        cooperative: launch.cooperative,
        shared_bytes: launch.shared_bytes,
    };
    Ok(LaunchValues { entry: launch.entry.clone(), geometry, args: args.collect::<Result<_, _>>()? })
}

/// Unknown to the kernel, which therefore cannot restore a red zone.
pub(super) fn secret() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}

/// SplitMix64's finaliser.
pub(super) fn mix(mut x: u64) -> u64 {
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

/// Bytes from 2 to 251: what overruns write most, 0, 1 and 255, always shows.
fn pattern(seed: u64, bytes: u64) -> Vec<u8> {
    let mut found = Vec::with_capacity(bytes as usize + 8);
    for i in 0..bytes.div_ceil(8) {
        let word = mix(seed.wrapping_add(i.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        found.extend(word.to_le_bytes().map(|b| 2 + b % 250));
    }
    found.truncate(bytes as usize);
    found
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
