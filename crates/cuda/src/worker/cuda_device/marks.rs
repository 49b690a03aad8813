//! Word that launches leave of their beginning and end: a byte each, copied by the stream that they are on to memory of the host, which a
//! fault leaves as it is.
//!
//! Limit: two launches on different streams end in an order that this does not tell, and the word of one that has ended a moment before
//! another's fault may be lost.

use super::super::device::Progress;
use crate::driver::Context;
use crate::error::CudaError;
use crate::memory::{DeviceBuffer, Pinned};
use crate::stream::Stream;

/// Launches that can leave word at once; beyond, none does.
const MOST: usize = 16_384;

/// Where word is left.
#[derive(Default)]
pub(super) struct Marks {
    /// Whether launches are to leave word.
    pub on: bool,
    words: Option<Words>,
    /// Launches of which there is to be word.
    expected: usize,
}

struct Words {
    /// Two bytes for each launch: begun, ended. Recorded graphs hold its address, so it stays where it is.
    host: Pinned,
    /// One byte that is 1.
    one: DeviceBuffer,
}

impl Marks {
    /// Has room for so many launches, and no word of any. Nothing that leaves word is under way.
    pub fn expect(&mut self, context: &Context, launches: usize) -> Result<(), CudaError> {
        self.expected = if launches <= MOST { launches } else { 0 };
        if self.expected > 0 && self.words.is_none() {
            let one = context.alloc(1)?;
            one.fill(0, 1, 1)?;
            context.wait()?;
            self.words = Some(Words { host: context.pinned(2 * MOST)?, one });
        }
        self.clear();
        Ok(())
    }

    /// No word of any launch.
    pub fn clear(&mut self) {
        if let Some(words) = &mut self.words {
            words.host.bytes_mut().fill(0);
        }
    }

    pub fn begun(&self, launch: usize, stream: &Stream) -> Result<(), CudaError> {
        self.tell(2 * launch, stream)
    }

    pub fn ended(&self, launch: usize, stream: &Stream) -> Result<(), CudaError> {
        self.tell(2 * launch + 1, stream)
    }

    fn tell(&self, byte: usize, stream: &Stream) -> Result<(), CudaError> {
        match &self.words {
            Some(words) if byte < 2 * self.expected => words.one.leave(&words.host, byte, stream),
            _ => Ok(()),
        }
    }

    /// What was left, in the order of the launches, up to the last that has begun.
    pub fn progress(&self) -> Vec<Progress> {
        let Some(words) = &self.words else { return Vec::new() };
        let pairs = words.host.bytes().chunks_exact(2);
        let mut all: Vec<Progress> = pairs.map(|pair| Progress { begun: pair[0] != 0, ended: pair[1] != 0 }).collect();
        all.truncate(all.iter().rposition(|p| p.begun).map_or(0, |last| last + 1));
        all
    }
}
