//! A subject on the device: code, copies of the buffers between red zones, sets of inputs, launches that are ready for each copy.
//!
//! Picture: `Prepare` -> [`Subject`] -> [`super::timing::time`], [`super::steady::steady`].
//! What it knows of a launch is what a run knows. Limit: red zones are looked at once a request, inputs after each replay.

use super::device::{Check, Code, Device, Found, Move, Progress, Ready, Recorded, pattern_of};
use super::protocol::{
    Arg, Buffer, Changed, CopyOverrun, End, Fill, Launch, MAX_BASES, MAX_COPIES, MAX_PLACES, Overrun, Prepare,
    Prepared, Stop,
};
use super::session::{RED_ZONE, Store, Trouble, end_of, mix, ranges, rear, secret, values};
use crate::error::CudaError;
use std::collections::HashMap;

/// A run of pattern bytes that is shorter may be there by chance: one in 64 for each byte.
const UNWRITTEN: u64 = 8;

/// What is resident under a name.
pub(super) struct Subject {
    pub label: String,
    code: Code,
    memory: Vec<u64>,
    pub buffers: Vec<Buffer>,
    /// Places of the wanted buffers.
    pub want: Vec<usize>,
    pub launches: Vec<Launch>,
    /// Address of each buffer's first byte, by copy.
    copies: Vec<Vec<u64>>,
    pub ready: Vec<Vec<Ready>>,
    /// Address of the contents of each buffer that has contents, by base.
    bases: Vec<Vec<Option<u64>>>,
    /// By the copies that its calls work on, and whether they leave word.
    graphs: HashMap<(Vec<u32>, bool), Recorded>,
    secret: u64,
    /// How often patterns were drawn.
    drawn: u64,
}

/// Hashes that a subject names and that are not there.
pub(super) fn missing(prepare: &Prepare, store: &Store) -> Vec<String> {
    let contents = prepare.buffers.iter().filter_map(|b| match &b.fill {
        Fill::Contents(sha) => Some(sha),
        Fill::Zero | Fill::Poison => None,
    });
    let all = contents.chain(prepare.bases.iter().flat_map(|b| b.values())).chain([&prepare.image]);
    let mut found: Vec<String> = all.filter(|sha| !store.contains_key(*sha)).cloned().collect();
    found.sort_unstable();
    found.dedup();
    found
}

impl Subject {
    /// Makes it resident. What was taken of the device is given back where that fails.
    pub fn prepare(
        device: &mut dyn Device,
        store: &Store,
        prepare: &Prepare,
    ) -> Result<(Prepared, Option<Subject>), Trouble> {
        check(prepare, store)?;
        let ended = |end, last| Prepared { end, copies: 0, copy_bytes: copy_bytes(prepare), bases: 0, last };
        let code = match device.load(&store[&prepare.image]) {
            Ok(code) => code,
            Err(e) => {
                let (end, last) = end_of(e, 0)?;
                return Ok((ended(end, last), None));
            }
        };
        let mut subject = Subject {
            label: prepare.label.clone(),
            code,
            memory: Vec::new(),
            buffers: prepare.buffers.clone(),
            want: prepare.want.iter().filter_map(|w| prepare.buffers.iter().position(|b| b.name == *w)).collect(),
            launches: prepare.launches.clone(),
            copies: Vec::new(),
            ready: Vec::new(),
            bases: Vec::new(),
            graphs: HashMap::new(),
            secret: secret(),
            drawn: 0,
        };
        match subject.fill(device, store, prepare) {
            Ok(()) => {
                let copies = subject.copies.len() as u32;
                let bases = subject.bases.len() as u32;
                let prepared =
                    Prepared { end: End::Completed, copies, copy_bytes: copy_bytes(prepare), bases, last: false };
                Ok((prepared, Some(subject)))
            }
            Err((launch, Trouble::Device(e))) => {
                subject.discard(device);
                let (end, last) = end_of(e, launch)?;
                Ok((ended(end, last), None))
            }
            Err((_, e)) => {
                subject.discard(device);
                Err(e)
            }
        }
    }

    /// Gives everything back.
    pub fn discard(self, device: &mut dyn Device) {
        device.unload(self.code);
        device.free(&self.memory);
    }

    /// Bases, copies, launches. An error comes with the launch that it concerns, if any.
    fn fill(&mut self, device: &mut dyn Device, store: &Store, prepare: &Prepare) -> Result<(), (usize, Trouble)> {
        let none = |e: CudaError| (0, Trouble::Device(e));
        // Contents that several bases share are there once.
        let mut there: HashMap<&str, u64> = HashMap::new();
        for base in 0..prepare.bases.len().max(1) {
            let mut addresses = Vec::new();
            for buffer in &prepare.buffers {
                let Fill::Contents(own) = &buffer.fill else {
                    addresses.push(None);
                    continue;
                };
                let sha = prepare.bases.get(base).and_then(|b| b.get(&buffer.name)).unwrap_or(own);
                let at = match there.get(sha.as_str()) {
                    Some(at) => *at,
                    None => {
                        let at = device.alloc(buffer.bytes.max(1)).map_err(none)?;
                        self.memory.push(at);
                        device.write(at, &store[sha]).map_err(none)?;
                        there.insert(sha, at);
                        at
                    }
                };
                addresses.push(Some(at));
            }
            self.bases.push(addresses);
        }
        let room: u64 = self.buffers.iter().map(|b| RED_ZONE + b.bytes + rear(b.bytes)).sum();
        let most = (prepare.copies_bytes / room.max(1)).clamp(1, u64::from(MAX_COPIES)) as u32;
        for copy in 0..prepare.copies.clamp(1, most) {
            let start = match device.alloc(room.max(1)) {
                Ok(start) => start,
                Err(CudaError::OutOfMemory { .. }) if copy > 0 => break,
                Err(e) => return Err(none(e)),
            };
            self.memory.push(start);
            let mut at = start;
            let mut addresses = Vec::new();
            for buffer in &self.buffers {
                addresses.push(at + RED_ZONE);
                at += RED_ZONE + buffer.bytes + rear(buffer.bytes);
            }
            let names = self.buffers.iter().map(|b| b.name.clone()).zip(addresses.iter().copied()).collect();
            let mut ready = Vec::new();
            for (i, launch) in self.launches.iter().enumerate() {
                let values = values(launch, &names).map_err(|e| (i, e))?;
                ready.push(device.ready(self.code, &values).map_err(|e| (i, Trouble::Device(e)))?);
            }
            self.copies.push(addresses);
            self.ready.push(ready);
        }
        self.draw_zones(device).map_err(none)
    }

    pub fn copies(&self) -> u32 {
        self.copies.len() as u32
    }

    pub fn bases(&self) -> u32 {
        self.bases.len() as u32
    }

    /// Of one copy.
    pub fn bytes(&self) -> u64 {
        self.buffers.iter().map(|b| b.bytes).sum()
    }

    /// Whether a call needs its buffers anew.
    pub fn has_zeros(&self) -> bool {
        self.buffers.iter().any(|b| b.fill == Fill::Zero)
    }

    /// The graph of calls on these copies, one after the other; `marked`: as [`Device::mark`] has them at present.
    pub fn graph(&mut self, device: &mut dyn Device, copies: &[u32], marked: bool) -> Result<Recorded, CudaError> {
        let key = (copies.to_vec(), marked);
        if let Some(graph) = self.graphs.get(&key) {
            return Ok(*graph);
        }
        let launches: Vec<Ready> = copies.iter().flat_map(|c| self.ready[*c as usize].iter().copied()).collect();
        let graph = device.record(&launches)?;
        self.graphs.insert(key, graph);
        Ok(graph)
    }

    /// A seed that no pattern had before.
    pub fn draw(&mut self) -> u64 {
        self.drawn += 1;
        mix(self.secret ^ mix(self.drawn))
    }

    /// What makes a copy's inputs those of a base.
    pub fn refresh(&self, copy: u32, base: u32, moves: &mut Vec<Move>) {
        for (i, buffer) in self.buffers.iter().enumerate() {
            if let Some(from) = self.bases[base as usize][i] {
                moves.push(Move::Copy { from, to: self.copies[copy as usize][i], bytes: buffer.bytes });
            }
        }
    }

    /// What makes a copy's other buffers poison and zeros.
    pub fn poison(&self, copy: u32, seed: u64, moves: &mut Vec<Move>) {
        for (i, buffer) in self.buffers.iter().enumerate() {
            let (to, bytes) = (self.copies[copy as usize][i], buffer.bytes);
            match buffer.fill {
                Fill::Contents(_) => {}
                Fill::Zero => moves.push(Move::Zero { to, bytes }),
                Fill::Poison => moves.push(Move::Pattern { to, bytes, seed }),
            }
        }
    }

    /// Inputs of these copies that are not what their base says.
    pub fn changed(
        &self,
        device: &mut dyn Device,
        copies: &[(u32, u32)],
        replay: u32,
        found: &mut Vec<Changed>,
    ) -> Result<(), CudaError> {
        let mut checks = Vec::new();
        let mut places = Vec::new();
        for (copy, base) in copies {
            for (i, buffer) in self.buffers.iter().enumerate() {
                if let Some(with) = self.bases[*base as usize][i] {
                    checks.push(Check::Equal { at: self.copies[*copy as usize][i], with, bytes: buffer.bytes });
                    places.push((*copy, i));
                }
            }
        }
        for (difference, (copy, i)) in device.compare(&checks)?.into_iter().zip(places) {
            if let Some(Found { first, count, .. }) = difference
                && found.len() < MAX_PLACES
            {
                let buffer = self.buffers[i].name.clone();
                found.push(Changed { replay, copy, buffer, offset: first, bytes: count });
            }
        }
        Ok(())
    }

    /// Draws the red zones of all copies anew.
    fn draw_zones(&mut self, device: &mut dyn Device) -> Result<(), CudaError> {
        let moves = self.zones().map(|(at, bytes, ..)| Move::Pattern { to: at, bytes, seed: self.secret });
        device.arrange(&moves.collect::<Vec<_>>())
    }

    /// Address, size, copy, buffer, and whether it lies behind the buffer.
    fn zones(&self) -> impl Iterator<Item = (u64, u64, u32, usize, bool)> + '_ {
        self.copies.iter().enumerate().flat_map(move |(copy, addresses)| {
            addresses.iter().zip(&self.buffers).enumerate().flat_map(move |(i, (at, buffer))| {
                let front = (at - RED_ZONE, RED_ZONE, copy as u32, i, false);
                [front, (at + buffer.bytes, rear(buffer.bytes), copy as u32, i, true)]
            })
        })
    }

    /// Writes outside of buffers since the last time; the zones are whole again afterwards.
    pub fn overruns(&mut self, device: &mut dyn Device, replay: u32) -> Result<Vec<CopyOverrun>, CudaError> {
        let checks = self.zones().map(|(at, bytes, ..)| Check::Pattern { at, bytes, seed: self.secret });
        let differences = device.compare(&checks.collect::<Vec<_>>())?;
        let overruns = self.zones().zip(differences).filter_map(|((_, _, copy, i, behind), found)| {
            let (found, buffer) = (found?, &self.buffers[i]);
            // The byte nearest to the buffer tells most: before it that is the last one.
            let offset = if behind { (buffer.bytes + found.first) as i64 } else { found.last as i64 - RED_ZONE as i64 };
            let overrun = Overrun { buffer: buffer.name.clone(), offset, bytes: found.count };
            Some(CopyOverrun { replay, copy, overrun })
        });
        let overruns: Vec<CopyOverrun> = overruns.take(MAX_PLACES).collect();
        if !overruns.is_empty() {
            self.draw_zones(device)?;
        }
        Ok(overruns)
    }

    /// The address of a copy's buffer.
    pub fn at(&self, copy: u32, buffer: usize) -> u64 {
        self.copies[copy as usize][buffer]
    }

    /// Ranges of a buffer that still hold the pattern that they were filled with.
    pub fn unwritten(&self, copy: u32, buffer: usize, seed: u64, bytes: &[u8]) -> Vec<[u64; 2]> {
        if self.buffers[buffer].fill != Fill::Poison {
            return Vec::new();
        }
        let pattern = pattern_of(seed, self.at(copy, buffer), bytes.len() as u64);
        let least = UNWRITTEN.min(bytes.len() as u64);
        let mut kept = vec![false; bytes.len()];
        let mut start = 0;
        for end in 0..=bytes.len() {
            if end == bytes.len() || bytes[end] != pattern[end] {
                if end > start && (end - start) as u64 >= least {
                    kept[start..end].fill(true);
                }
                start = end + 1;
            }
        }
        ranges(bytes.len() as u64, |at| kept[at as usize])
    }

    /// Where calls stopped, of which so many were under way; `progress` is of their launches, if there was word of them.
    pub fn stop(&self, first: u64, count: u64, launch: usize, progress: &[Progress]) -> Stop {
        let each = self.launches.len().max(1);
        let open = |(i, p): (usize, &Progress)| (p.begun && !p.ended).then_some(i);
        let open: Vec<usize> = progress.iter().enumerate().filter_map(open).collect();
        let launch = if let [one] = open[..] { one % each } else { launch };
        let grid = self.launches.get(launch).map_or([0; 3], |l| l.grid);
        let mut unfinished: Vec<u64> = open.iter().map(|i| first + (i / each) as u64).collect();
        unfinished.dedup();
        Stop { first, count, grid, unfinished }
    }
}

fn copy_bytes(prepare: &Prepare) -> u64 {
    prepare.buffers.iter().fold(0, |n, b| n.saturating_add(b.bytes))
}

/// Refuses what makes no sense whatever the device.
fn check(prepare: &Prepare, store: &Store) -> Result<(), Trouble> {
    let bad = |what: String| Err(Trouble::BadRequest(what));
    let named = |name: &str| prepare.buffers.iter().filter(|b| b.name == name).count();
    let as_long = |sha: &str, bytes: u64| store.get(sha).is_some_and(|b| b.len() as u64 == bytes);
    for buffer in &prepare.buffers {
        if named(&buffer.name) != 1 {
            return bad(format!("two buffers are called {}", buffer.name));
        }
        if buffer.bytes > 1 << 48 {
            return bad(format!("{} has {} bytes", buffer.name, buffer.bytes));
        }
        if let Fill::Contents(sha) = &buffer.fill
            && !as_long(sha, buffer.bytes)
        {
            return bad(format!("the contents of {} are not as long as it is", buffer.name));
        }
    }
    if prepare.bases.len() > MAX_BASES {
        return bad(format!("{} sets of inputs; {MAX_BASES} are taken", prepare.bases.len()));
    }
    for (name, sha) in prepare.bases.iter().flatten() {
        let buffer = prepare.buffers.iter().find(|b| b.name == *name && matches!(b.fill, Fill::Contents(_)));
        match buffer {
            None => return bad(format!("a set of inputs names {name}, which has no contents")),
            Some(b) if !as_long(sha, b.bytes) => return bad(format!("contents of {name} are not as long as it is")),
            Some(_) => {}
        }
    }
    let args = prepare.launches.iter().flat_map(|l| &l.args).flat_map(Arg::buffers);
    if let Some(name) = args.chain(&prepare.want).find(|name| named(name) == 0) {
        return bad(format!("there is no buffer {name}"));
    }
    if prepare.launches.is_empty() { bad("there is nothing to launch".into()) } else { Ok(()) }
}
