//! The container of machine code: instances by target and name, each compressed alone, so that only what runs is unpacked.
//!
//! ```text
//! "WSATTN01" | u32 count | count x (u16 length, "TARGET/NAME", u32 offset, u32 compressed, u32 raw) | blobs
//! ```
//!
//! Numbers are little endian, offsets count from the first blob. Limits: 20 MB in all, 8 MB an instance.

use crate::error::Error;
use std::collections::BTreeMap;

const MAGIC: &[u8; 8] = b"WSATTN01";
/// The most that a container may have.
pub const MAX_BYTES: usize = 20 << 20;
const MAX_INSTANCE_BYTES: usize = 8 << 20;

#[cfg(embedded_kernels)]
static EMBEDDED: &[u8] = include_bytes!("../kernels.bin");
#[cfg(not(embedded_kernels))]
static EMBEDDED: &[u8] = &[];

/// A container, its index read.
#[derive(Debug, Clone)]
pub struct Bundle<'a> {
    index: BTreeMap<String, (usize, usize, usize)>,
    blobs: &'a [u8],
}

impl Bundle<'static> {
    /// What this build carries; without any kernel where none were made before it was built.
    pub fn embedded() -> Result<Bundle<'static>, Error> {
        if EMBEDDED.is_empty() {
            return Ok(Bundle { index: BTreeMap::new(), blobs: &[] });
        }
        Bundle::read(EMBEDDED)
    }
}

impl<'a> Bundle<'a> {
    /// Reads a container's index. Errors: [`Error::Container`].
    pub fn read(bytes: &'a [u8]) -> Result<Bundle<'a>, Error> {
        let damaged = |why| Error::Container { why };
        let mut rest = bytes.strip_prefix(MAGIC.as_slice()).ok_or(damaged("it does not begin as one"))?;
        let mut take = |n: usize| -> Result<&'a [u8], Error> {
            let (now, later) = rest.split_at_checked(n).ok_or(damaged("it is cut off"))?;
            rest = later;
            Ok(now)
        };
        let number = |b: &[u8]| b.iter().rev().fold(0usize, |n, byte| n << 8 | usize::from(*byte));
        let count = number(take(4)?);
        let mut index = BTreeMap::new();
        for _ in 0..count {
            let length = number(take(2)?);
            let name = std::str::from_utf8(take(length)?).map_err(|_| damaged("a name is no text"))?.to_string();
            let place = (number(take(4)?), number(take(4)?), number(take(4)?));
            if place.2 > MAX_INSTANCE_BYTES {
                return Err(damaged("an instance is too large"));
            }
            index.insert(name, place);
        }
        let blobs = rest;
        if index.values().any(|(at, packed, _)| at + packed > blobs.len()) {
            return Err(damaged("it is cut off"));
        }
        Ok(Bundle { index, blobs })
    }

    /// The machine code of an instance for a target, or its PTX; `None` where there is none.
    pub fn find(&self, target: &str, name: &str) -> Option<Result<Vec<u8>, Error>> {
        let (at, packed, raw) = *self.index.get(&format!("{target}/{name}"))?;
        let unpacked = zstd::bulk::decompress(&self.blobs[at..at + packed], raw);
        Some(unpacked.map_err(|_| Error::Container { why: "an instance does not unpack" }))
    }

    /// `TARGET/NAME` of all, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.index.keys().map(String::as_str)
    }

    /// The number of instances.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }
}

/// A container of these (`TARGET/NAME`, code); equal input gives equal bytes. Errors: one that is too large.
pub fn write(entries: &BTreeMap<String, Vec<u8>>) -> Result<Vec<u8>, Error> {
    let (mut head, mut blobs) = (MAGIC.to_vec(), Vec::new());
    head.extend((entries.len() as u32).to_le_bytes());
    for (name, code) in entries {
        if code.len() > MAX_INSTANCE_BYTES || name.len() > usize::from(u16::MAX) {
            return Err(Error::Container { why: "an instance is too large" });
        }
        let packed =
            zstd::bulk::compress(code, 19).map_err(|_| Error::Container { why: "an instance does not compress" })?;
        head.extend((name.len() as u16).to_le_bytes());
        head.extend(name.as_bytes());
        for n in [blobs.len(), packed.len(), code.len()] {
            head.extend((n as u32).to_le_bytes());
        }
        blobs.extend(packed);
    }
    head.extend(blobs);
    if head.len() > MAX_BYTES {
        return Err(Error::Container { why: "it is larger than 20 MB" });
    }
    Ok(head)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let entries: BTreeMap<String, Vec<u8>> =
            [("sm_90a/a".to_string(), vec![7; 100_000]), ("compute_80/b".to_string(), b"text".to_vec())].into();
        let bytes = write(&entries).unwrap();
        assert!(bytes.len() < 1_000);
        let bundle = Bundle::read(&bytes).unwrap();
        assert_eq!(bundle.names().collect::<Vec<_>>(), ["compute_80/b", "sm_90a/a"]);
        assert_eq!(bundle.find("sm_90a", "a").unwrap().unwrap(), vec![7; 100_000]);
        assert!(bundle.find("sm_90a", "b").is_none());
    }

    #[test]
    fn damage_is_an_error_wherever_it_is() {
        let entries: BTreeMap<String, Vec<u8>> = [("sm_90a/a".to_string(), (0..=255).collect())].into();
        let bytes = write(&entries).unwrap();
        for end in 0..bytes.len() {
            assert!(Bundle::read(&bytes[..end]).is_err(), "cut at {end}");
        }
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 0x55;
            // An error, another name, or code that does not unpack or differs; never a panic.
            if let Ok(bundle) = Bundle::read(&bad) {
                let _ = bundle.find("sm_90a", "a");
            }
        }
    }
}
