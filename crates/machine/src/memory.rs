//! Global memory: buffers of exactly their bytes, each in an address slot of its own, with one shadow byte for each byte.
//!
//! A slot is 64 GiB wide and the buffer lies in its middle, so that an access beyond a buffer by any plausible index
//! still names the buffer that was missed. Threads of the host share buffers; all accesses are relaxed atomic ones, so
//! that a kernel with a race reads old or new bytes, as on hardware, and nothing is undefined here.
//! It knows nothing about tensors or tasks. Races are looked for elsewhere (`global`). Limits: a buffer has at most 16 GiB.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::api::BufferId;

/// Generic addresses of shared memory start here.
pub const SHARED_WINDOW: u64 = 1 << 40;
/// Generic addresses of local memory start here.
pub const LOCAL_WINDOW: u64 = 2 << 40;
/// Bytes of either window.
pub const WINDOW_BYTES: u64 = 1 << 32;
/// The first slot.
pub const ARENA: u64 = 1 << 44;
const SLOT_BITS: u32 = 36;
const HALF: u64 = 1 << (SLOT_BITS - 1);
/// The largest buffer.
pub const MAX_BUFFER: u64 = 16 << 30;

/// Shadow: the byte has a defined value.
pub const DEFINED: u8 = 1;
/// Eight bytes of which each has a defined value.
pub const ALL_DEFINED: u64 = 0x0101_0101_0101_0101;
/// Shadow: an asynchronous copy has the byte in flight.
pub const IN_FLIGHT: u8 = 2;

/// What a buffer holds at first.
#[derive(Debug, Clone, Copy)]
pub enum Contents<'a> {
    Bytes(&'a [u8]),
    /// So many bytes that must not be read before they are written.
    Uninitialized(usize),
    /// The same, filled with 0xFF: a NaN in every float format.
    Poison(usize),
}

/// Bytes that several threads may access at once.
#[derive(Debug)]
pub struct Bytes {
    words: Box<[AtomicU64]>,
    len: usize,
}

macro_rules! accessors {
    ($($load:ident $store:ident $ty:ty, $atomic:ty;)*) => { $(
        /// Reads at `at`, which must be aligned and within the bytes.
        #[inline(always)]
        pub fn $load(&self, at: usize) -> $ty {
            debug_assert!(at + size_of::<$ty>() <= self.len && at % size_of::<$ty>() == 0);
            // SAFETY: callers check bounds and alignment; the memory is made of atomics and lives as long as self.
            unsafe { <$atomic>::from_ptr(self.ptr().add(at).cast()) }.load(Relaxed)
        }
        /// Writes at `at`, which must be aligned and within the bytes.
        #[inline(always)]
        pub fn $store(&self, at: usize, value: $ty) {
            debug_assert!(at + size_of::<$ty>() <= self.len && at % size_of::<$ty>() == 0);
            // SAFETY: as for the load.
            unsafe { <$atomic>::from_ptr(self.ptr().add(at).cast()) }.store(value, Relaxed)
        }
    )* };
}

impl Bytes {
    /// So many bytes, all `fill`.
    pub fn filled(len: usize, fill: u8) -> Bytes {
        let word = u64::from_ne_bytes([fill; 8]);
        Bytes { words: (0..len.div_ceil(8)).map(|_| AtomicU64::new(word)).collect(), len }
    }

    fn from(bytes: &[u8]) -> Bytes {
        let words = bytes.chunks(8).map(|c| {
            let mut word = [0; 8];
            word[..c.len()].copy_from_slice(c);
            AtomicU64::new(u64::from_ne_bytes(word))
        });
        Bytes { words: words.collect(), len: bytes.len() }
    }

    #[inline(always)]
    fn ptr(&self) -> *mut u8 {
        self.words.as_ptr().cast_mut().cast()
    }

    accessors! {
        load8 store8 u8, AtomicU8;
        load16 store16 u16, AtomicU16;
        load32 store32 u32, AtomicU32;
        load64 store64 u64, AtomicU64;
    }

    /// Reads 1, 2, 4 or 8 bytes, aligned and within.
    #[inline(always)]
    pub fn load(&self, at: usize, bytes: usize) -> u64 {
        match bytes {
            1 => self.load8(at).into(),
            2 => self.load16(at).into(),
            4 => self.load32(at).into(),
            _ => self.load64(at),
        }
    }

    /// Writes 1, 2, 4 or 8 bytes, aligned and within.
    #[inline(always)]
    pub fn store(&self, at: usize, bytes: usize, value: u64) {
        match bytes {
            1 => self.store8(at, value as u8),
            2 => self.store16(at, value as u16),
            4 => self.store32(at, value as u32),
            _ => self.store64(at, value),
        }
    }

    /// The aligned 32-bit or 64-bit atomic at `at`.
    pub fn atomic32(&self, at: usize) -> &AtomicU32 {
        assert!(at + 4 <= self.words.len() * 8 && at.is_multiple_of(4));
        // SAFETY: in bounds and aligned, as asserted; the memory lives as long as self.
        unsafe { AtomicU32::from_ptr(self.ptr().add(at).cast()) }
    }

    /// The same for 64 bits.
    pub fn atomic64(&self, at: usize) -> &AtomicU64 {
        assert!(at + 8 <= self.words.len() * 8 && at.is_multiple_of(8));
        // SAFETY: as above.
        unsafe { AtomicU64::from_ptr(self.ptr().add(at).cast()) }
    }

    /// Where two of one length differ first.
    pub fn first_difference(&self, other: &Bytes) -> Option<usize> {
        let word = self.words.iter().zip(&other.words).position(|(a, b)| a.load(Relaxed) != b.load(Relaxed))?;
        (8 * word..self.len.min(8 * word + 8)).find(|&at| self.load8(at) != other.load8(at))
    }

    fn to_vec(&self) -> Vec<u8> {
        let mut v: Vec<u8> = self.words.iter().flat_map(|w| w.load(Relaxed).to_ne_bytes()).collect();
        v.truncate(self.len);
        v
    }

    fn write(&mut self, at: usize, bytes: &[u8]) {
        for (n, b) in bytes.iter().enumerate().take(self.len.saturating_sub(at)) {
            self.store8(at + n, *b);
        }
    }
}

impl Clone for Bytes {
    fn clone(&self) -> Bytes {
        Bytes { words: self.words.iter().map(|w| AtomicU64::new(w.load(Relaxed))).collect(), len: self.len }
    }
}

/// One allocation.
#[derive(Debug, Clone)]
pub struct Buffer {
    pub name: String,
    /// `global`, `const` or `param`, as findings name it.
    pub space: &'static str,
    pub bytes: u64,
    pub data: Bytes,
    /// One byte for each byte of data: [`DEFINED`]. Absent when all bytes were given, for then they stay defined unless
    /// an undefined value is stored, which `tainted` keeps.
    pub shadow: Option<Bytes>,
    pub read_only: bool,
    /// Whether a launch has written it; copies of the memory share that, so that one schedule knows what another did.
    pub(crate) written: Arc<AtomicBool>,
}

/// Buffers of a session; modules' own variables too.
#[derive(Debug, Default, Clone)]
pub struct Memory {
    pub(crate) buffers: Vec<Buffer>,
    pub(crate) modules: HashMap<u64, Vec<Option<u32>>>,
}

/// The address of a buffer's first byte.
pub fn address_of(index: u32) -> u64 {
    ARENA + (u64::from(index) << SLOT_BITS) + HALF
}

/// The slot of an address and the offset from the buffer's start.
#[inline(always)]
pub fn slot_of(address: u64) -> Option<(usize, i64)> {
    let from = address.checked_sub(ARENA)?;
    let index = from >> SLOT_BITS;
    let offset = (from & ((1 << SLOT_BITS) - 1)) as i64 - HALF as i64;
    Some((index as usize, offset))
}

impl Memory {
    /// No buffers.
    pub fn new() -> Memory {
        Memory::default()
    }

    /// Adds a buffer; kernels may read and write it. Over 16 GiB it is cut to that.
    pub fn alloc(&mut self, name: &str, contents: Contents<'_>) -> BufferId {
        let cut = |len: usize| len.min(MAX_BUFFER as usize);
        let (data, shadow) = match contents {
            Contents::Bytes(b) => (Bytes::from(&b[..cut(b.len())]), None),
            Contents::Uninitialized(len) => (Bytes::filled(cut(len), 0), Some(Bytes::filled(cut(len), 0))),
            Contents::Poison(len) => (Bytes::filled(cut(len), 0xFF), Some(Bytes::filled(cut(len), 0))),
        };
        // A buffer whose bytes were all given needs a shadow too, for an undefined value may be stored into it.
        let shadow = Some(shadow.unwrap_or_else(|| Bytes::filled(data.len, DEFINED)));
        self.push(Buffer {
            name: name.to_string(),
            space: "global",
            bytes: data.len as u64,
            data,
            shadow,
            read_only: false,
            written: Arc::default(),
        })
    }

    pub(crate) fn push(&mut self, buffer: Buffer) -> BufferId {
        self.buffers.push(buffer);
        BufferId((self.buffers.len() - 1) as u32)
    }

    /// Read-only bytes: parameters and constants.
    pub(crate) fn push_fixed(&mut self, name: &str, space: &'static str, bytes: &[u8]) -> BufferId {
        let data = Bytes::from(bytes);
        let read_only = space != "global";
        let shadow = if read_only { None } else { Some(Bytes::filled(data.len, DEFINED)) };
        self.push(Buffer {
            name: name.to_string(),
            space,
            bytes: bytes.len() as u64,
            data,
            shadow,
            read_only,
            written: Arc::default(),
        })
    }

    /// A buffer's contents; empty for an unknown id.
    pub fn read(&self, id: BufferId) -> Vec<u8> {
        self.buffers.get(id.0 as usize).map_or_else(Vec::new, |b| b.data.to_vec())
    }

    /// Overwrites a buffer from `offset` on and marks the bytes as defined; what does not fit is left out.
    pub fn write(&mut self, id: BufferId, offset: usize, bytes: &[u8]) {
        if let Some(b) = self.buffers.get_mut(id.0 as usize) {
            b.data.write(offset, bytes);
            if let Some(s) = &mut b.shadow {
                s.write(offset, &vec![DEFINED; bytes.len()]);
            }
        }
    }

    /// For each byte: whether it has a defined value.
    pub fn initialized(&self, id: BufferId) -> Vec<bool> {
        self.buffers.get(id.0 as usize).map_or_else(Vec::new, |b| match &b.shadow {
            Some(s) => s.to_vec().into_iter().map(|v| v & DEFINED != 0).collect(),
            None => vec![true; b.bytes as usize],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_beyond_a_buffer_still_name_it() {
        for (index, offset) in [(0, -4i64), (0, 1 << 30), (3, 0), (3, -(1 << 33))] {
            let address = address_of(index).wrapping_add(offset as u64);
            assert_eq!(slot_of(address), Some((index as usize, offset)));
        }
        assert_eq!(slot_of(0), None);
    }

    #[test]
    fn bytes_keep_what_is_written() {
        let mut memory = Memory::new();
        let id = memory.alloc("x", Contents::Uninitialized(7));
        memory.write(id, 2, &[1, 2, 3]);
        assert_eq!(memory.read(id), [0, 0, 1, 2, 3, 0, 0]);
        assert_eq!(memory.initialized(id), [false, false, true, true, true, false, false]);
        let id = memory.alloc("y", Contents::Poison(2));
        assert_eq!(memory.read(id), [0xFF, 0xFF]);
        assert_eq!(memory.initialized(id), [false, false]);
    }
}
