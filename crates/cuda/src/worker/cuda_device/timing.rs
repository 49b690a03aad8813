//! What timing needs of a CUDA device: tables of moves and checks done by one kernel each, an L2 that is flushed, graphs, events.
//!
//! The device is kept busy (by the flush) while the host asks for the first event and what comes after it, so that no gap of the host's lies
//! between two events. Source of the method: NVBench's cold measurement; CUDA driver API on events (resolution half a microsecond).

use super::super::device::{Check, Failed, Found, Move, Ready, Recorded};
use super::super::protocol::Reading;
use super::{CudaDevice, Loaded, ReadyLaunch};
use crate::error::CudaError;
use crate::memory::DeviceBuffer;
use crate::module::{Arguments, Function, Geometry, Module};
use crate::stream::{Event, EventKind, Stream};
use std::sync::Arc;
use std::time::Instant;

/// By target; what is for no device in particular comes last.
const SUPPORT: [(&str, &[u8]); 3] = [
    ("sm_90", include_bytes!("../support/support.sm_90.cubin")),
    ("sm_89", include_bytes!("../support/support.sm_89.cubin")),
    ("", include_bytes!("../support/support.ptx")),
];
/// Rows of a table; a grid's second dimension has no more.
const ROWS: usize = 1 << 14;
const ROW_BYTES: usize = 32;
const THREADS: u32 = 256;
/// What one block does of a row before there are more of them.
const BLOCK_BYTES: u64 = 32 << 10;
const MAX_BLOCKS: u64 = 256;
/// Streams of a volley.
const STREAMS: usize = 4;
/// Flushed at least, for a device that does not tell its L2's size.
const FLUSH_BYTES: u64 = 64 << 20;

/// The worker's own kernels and memory.
pub(super) struct Support {
    arrange: Function,
    compare: Function,
    overwrite: Function,
    read: Function,
    _module: Arc<Module>,
    table: DeviceBuffer,
    found: DeviceBuffer,
    scratch: DeviceBuffer,
    start: Event,
    end: Event,
    streams: Vec<Stream>,
}

impl CudaDevice {
    /// Has them made, the first time.
    fn make_support(&mut self) -> Result<(), CudaError> {
        if self.support.is_none() {
            let device = self.context.device();
            let image = SUPPORT.iter().find(|(target, _)| target.is_empty() || device.runs_cubin(target));
            let module = self.context.load(image.map_or(&[][..], |(_, image)| image))?;
            let scratch = self.context.alloc((2 * self.context.device().l2_bytes).max(FLUSH_BYTES))?;
            scratch.fill(0, scratch.len(), 0)?;
            self.support = Some(Support {
                arrange: module.function("ws_arrange")?,
                compare: module.function("ws_compare")?,
                overwrite: module.function("ws_overwrite")?,
                read: module.function("ws_read")?,
                _module: module,
                table: self.context.alloc((ROWS * ROW_BYTES) as u64)?,
                found: self.context.alloc((ROWS * ROW_BYTES) as u64)?,
                scratch,
                start: self.context.event(EventKind::Timed)?,
                end: self.context.event(EventKind::Timed)?,
                streams: (0..STREAMS).map(|_| self.context.stream()).collect::<Result<_, _>>()?,
            });
        }
        Ok(())
    }

    fn support(&self) -> Result<&Support, CudaError> {
        self.support.as_ref().ok_or_else(|| CudaError::Image { why: "the worker's own kernels are not loaded".into() })
    }

    fn encoded(&self, ready: Ready) -> Result<&ReadyLaunch, CudaError> {
        let found = self.loaded(ready.code)?.ready.get(ready.index as usize);
        found.ok_or_else(|| CudaError::Launch { what: "there is no such launch".into() })
    }

    pub(super) fn record_graph(&mut self, launches: &[Ready]) -> Result<Recorded, CudaError> {
        let none = || CudaError::Launch { what: "a graph of no launches".into() };
        let code = launches.first().ok_or_else(none)?.code;
        let marked = self.marks.on;
        self.expect_marks(launches.len(), marked)?;
        let graph = self.stream.capture(|| {
            launches.iter().enumerate().try_for_each(|(i, l)| self.give(*l, &self.stream, marked.then_some(i)))
        })?;
        let loaded: &mut Loaded = self.codes.get_mut(&code).ok_or_else(none)?;
        loaded.graphs.push(graph);
        Ok(Recorded { code, index: loaded.graphs.len() as u32 - 1 })
    }

    pub(super) fn arrange_all(&mut self, moves: &[Move]) -> Result<(), CudaError> {
        for part in moves.chunks(ROWS) {
            let rows = part.iter().flat_map(|m| match *m {
                Move::Copy { from, to, bytes } => [to, from, bytes, 0],
                Move::Pattern { to, bytes, seed } => [to, seed, bytes, 1],
                Move::Zero { to, bytes } => [to, 0, bytes, 2],
            });
            let table: Vec<u8> = rows.flat_map(u64::to_le_bytes).collect();
            let longest = part.iter().map(|m| match m {
                Move::Copy { bytes, .. } | Move::Pattern { bytes, .. } | Move::Zero { bytes, .. } => *bytes,
            });
            let geometry = geometry(longest.max().unwrap_or(0), part.len());
            self.upload(&table)?;
            let support = self.support()?;
            let mut arguments = Arguments::new();
            arguments.address(support.table.address());
            self.stream.launch(&support.arrange, &geometry, &arguments)?;
        }
        Ok(())
    }

    pub(super) fn compare_all(&mut self, checks: &[Check]) -> Result<Vec<Option<Found>>, CudaError> {
        let mut all = Vec::with_capacity(checks.len());
        for part in checks.chunks(ROWS) {
            let rows = part.iter().flat_map(|c| match *c {
                Check::Equal { at, with, bytes } => [at, with, bytes, 0],
                Check::Pattern { at, bytes, seed } => [at, seed, bytes, 1],
            });
            let table: Vec<u8> = rows.flat_map(u64::to_le_bytes).collect();
            let longest = part.iter().map(|c| match c {
                Check::Equal { bytes, .. } | Check::Pattern { bytes, .. } => *bytes,
            });
            let geometry = geometry(longest.max().unwrap_or(0), part.len());
            let clear: Vec<u8> = part.iter().flat_map(|_| [u64::MAX, 0, 0, 0]).flat_map(u64::to_le_bytes).collect();
            self.upload(&table)?;
            let support = self.support()?;
            support.found.write(0, &clear)?;
            let mut arguments = Arguments::new();
            arguments.address(support.table.address()).address(support.found.address());
            self.context.wait()?;
            self.stream.launch(&support.compare, &geometry, &arguments)?;
            self.stream.wait()?;
            let mut bytes = vec![0; part.len() * ROW_BYTES];
            self.support()?.found.read(0, &mut bytes)?;
            let words = bytes.chunks_exact(8).map(|w| w.iter().rev().fold(0u64, |n, b| n << 8 | u64::from(*b)));
            let words: Vec<u64> = words.collect();
            let found = words.chunks_exact(4).map(|w| Found { first: w[0], last: w[1], count: w[2] });
            all.extend(found.map(|f| Some(f).filter(|f| f.count > 0)));
        }
        Ok(all)
    }

    /// Puts a table where the worker's kernels read it. The one before may still be read: that is waited for.
    fn upload(&mut self, table: &[u8]) -> Result<(), CudaError> {
        self.make_support()?;
        self.stream.wait()?;
        self.support()?.table.write(0, table)?;
        // The copy goes through the default stream, which ours does not wait for.
        self.context.wait()
    }

    pub(super) fn flush_l2(&mut self) -> Result<(), CudaError> {
        self.context.forget_persisting_l2()?;
        self.make_support()?;
        let support = self.support()?;
        let blocks = 8 * self.context.device().sm_count.max(1);
        let geometry = Geometry {
            grid: [blocks, 1, 1],
            block: [THREADS, 1, 1],
            cluster: [1; 3],
            cooperative: false,
            shared_bytes: 0,
        };
        // Read last: lines that are only read need not be written back while something is timed.
        for (kernel, number) in [(&support.overwrite, 1u32), (&support.read, u32::MAX)] {
            let mut arguments = Arguments::new();
            arguments.address(support.scratch.address());
            arguments.push(&(support.scratch.len() / 16).to_le_bytes()).push(&number.to_le_bytes());
            self.stream.launch(kernel, &geometry, &arguments)?;
        }
        Ok(())
    }

    pub(super) fn replay_graph(&mut self, graph: Recorded, observe: bool) -> Result<(f64, Option<Reading>), CudaError> {
        self.make_support()?;
        self.marks.clear();
        {
            let support = self.support()?;
            let found = self.loaded(graph.code)?.graphs.get(graph.index as usize).ok_or_else(lost)?;
            support.start.record(&self.stream)?;
            self.stream.replay(found)?;
            support.end.record(&self.stream)?;
        }
        let reading = if observe { super::Device::reading(self) } else { None };
        Ok((self.elapsed()?, reading))
    }

    /// Gives a launch to a stream; with a place, it leaves word there.
    fn give(&self, ready: Ready, stream: &Stream, place: Option<usize>) -> Result<(), CudaError> {
        let launch = self.encoded(ready)?;
        match place {
            None => launch.give_to(stream),
            Some(place) => {
                self.marks.begun(place, stream)?;
                launch.give_to(stream)?;
                self.marks.ended(place, stream)
            }
        }
    }

    /// Has room for word of so many launches, none of which has begun; nothing is under way.
    fn expect_marks(&mut self, launches: usize, marked: bool) -> Result<(), CudaError> {
        self.marks.expect(&self.context, if marked { launches } else { 0 })
    }

    pub(super) fn between_events(&mut self, launches: &[Ready]) -> Result<f64, CudaError> {
        self.make_support()?;
        let marked = self.marks.on;
        self.expect_marks(launches.len(), marked)?;
        let support = self.support()?;
        support.start.record(&self.stream)?;
        launches.iter().enumerate().try_for_each(|(i, l)| self.give(*l, &self.stream, marked.then_some(i)))?;
        support.end.record(&self.stream)?;
        self.elapsed()
    }

    fn elapsed(&self) -> Result<f64, CudaError> {
        let support = self.support()?;
        self.stream.wait()?;
        support.end.us_since(&support.start)
    }

    pub(super) fn by_the_host(&mut self, launches: &[Ready]) -> Result<f64, CudaError> {
        let marked = self.marks.on;
        self.stream.wait()?;
        self.expect_marks(launches.len(), marked)?;
        if marked {
            launches.iter().enumerate().try_for_each(|(i, l)| self.give(*l, &self.stream, Some(i)))?;
            return self.stream.wait().map(|()| 0.0);
        }
        let encoded: Vec<&ReadyLaunch> = launches.iter().map(|l| self.encoded(*l)).collect::<Result<_, _>>()?;
        let begun = Instant::now();
        encoded.iter().try_for_each(|l| l.give_to(&self.stream))?;
        self.stream.wait()?;
        Ok(begun.elapsed().as_secs_f64() * 1e6)
    }

    pub(super) fn one_by_one(&mut self, call: &[Ready], fresh: bool) -> Result<(), Failed> {
        let at = |launch| move |error| Failed { launch, error };
        self.stream.wait().map_err(at(0))?;
        let made;
        let stream = if fresh {
            made = self.context.stream().map_err(at(0))?;
            &made
        } else {
            &self.stream
        };
        for (i, ready) in call.iter().enumerate() {
            let done = self.encoded(*ready).and_then(|l| l.give_to(stream)).and_then(|()| stream.wait());
            done.map_err(at(i))?;
        }
        Ok(())
    }

    pub(super) fn many_at_once(&mut self, calls: &[&[Ready]]) -> Result<(), CudaError> {
        self.make_support()?;
        self.stream.wait()?;
        self.expect_marks(calls.iter().map(|c| c.len()).sum(), true)?;
        let support = self.support()?;
        let mut place = 0;
        for (i, call) in calls.iter().enumerate() {
            for launch in *call {
                self.give(*launch, &support.streams[i % STREAMS], Some(place))?;
                place += 1;
            }
        }
        support.streams.iter().try_for_each(Stream::wait)
    }
}

fn lost() -> CudaError {
    CudaError::Launch { what: "there is no such graph".into() }
}

fn geometry(longest: u64, rows: usize) -> Geometry {
    let blocks = longest.div_ceil(BLOCK_BYTES).clamp(1, MAX_BLOCKS) as u32;
    Geometry {
        grid: [blocks, rows as u32, 1],
        block: [THREADS, 1, 1],
        cluster: [1; 3],
        cooperative: false,
        shared_bytes: 0,
    }
}
