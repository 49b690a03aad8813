//! The container of machine code: instances by target and name, each compressed alone or against one other, so that only what runs is unpacked.
//!
//! ```text
//! "WSATTN03" | u32 count | count x (u16 length, "TARGET/NAME", u32 offset, u32 compressed, u32 raw, u32 base) | blobs
//! ```
//!
//! Numbers are little endian, offsets count from the first blob. `base` is 0, or the position, from 1 on, of an earlier instance whose code is the
//! dictionary of this one's: instances of one kernel and head dimension have much in common, and such as differ in their output alone nearly all. A base
//! may have one itself, which has none. Limits: 20 MB in all, 8 MB an instance.

use crate::error::Error;
use std::collections::BTreeMap;

const MAGIC: &[u8; 8] = b"WSATTN03";
/// The most that a container may have.
pub const MAX_BYTES: usize = 20 << 20;
const MAX_INSTANCE_BYTES: usize = 8 << 20;
const LEVEL: i32 = 19;

#[cfg(embedded_kernels)]
static EMBEDDED: &[u8] = include_bytes!("../kernels.bin");
#[cfg(not(embedded_kernels))]
static EMBEDDED: &[u8] = &[];

/// Where an instance's code lies, how long it is, and what it was compressed against.
#[derive(Debug, Clone, Copy)]
struct Entry {
    at: usize,
    packed: usize,
    raw: usize,
    base: usize,
}

/// A container, its index read.
#[derive(Debug, Clone)]
pub struct Bundle<'a> {
    index: BTreeMap<String, usize>,
    entries: Vec<Entry>,
    blobs: &'a [u8],
}

impl Bundle<'static> {
    /// What this build carries; without any kernel where none were made before it was built.
    pub fn embedded() -> Result<Bundle<'static>, Error> {
        if EMBEDDED.is_empty() {
            return Ok(Bundle { index: BTreeMap::new(), entries: Vec::new(), blobs: &[] });
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
        let (mut index, mut entries) = (BTreeMap::new(), Vec::<Entry>::new());
        for i in 0..count {
            let length = number(take(2)?);
            let name = std::str::from_utf8(take(length)?).map_err(|_| damaged("a name is no text"))?.to_string();
            let entry =
                Entry { at: number(take(4)?), packed: number(take(4)?), raw: number(take(4)?), base: number(take(4)?) };
            if entry.raw > MAX_INSTANCE_BYTES {
                return Err(damaged("an instance is too large"));
            }
            let base_of = |e: &Entry| e.base.checked_sub(1).map(|at| entries[at]);
            if entry.base > i || base_of(&entry).and_then(|e| base_of(&e)).is_some_and(|e| e.base > 0) {
                return Err(damaged("an instance was compressed against one that is not there"));
            }
            entries.push(entry);
            index.insert(name, i);
        }
        let blobs = rest;
        if entries.iter().any(|e| e.at + e.packed > blobs.len()) {
            return Err(damaged("it is cut off"));
        }
        Ok(Bundle { index, entries, blobs })
    }

    /// The machine code of an instance for a target, or its PTX; `None` where there is none.
    pub fn find(&self, target: &str, name: &str) -> Option<Result<Vec<u8>, Error>> {
        let entry = &self.entries[*self.index.get(&format!("{target}/{name}"))?];
        Some(self.unpack(entry).map_err(|_| Error::Container { why: "an instance does not unpack" }))
    }

    fn unpack(&self, entry: &Entry) -> std::io::Result<Vec<u8>> {
        let packed = &self.blobs[entry.at..entry.at + entry.packed];
        if entry.base == 0 {
            return zstd::bulk::decompress(packed, entry.raw);
        }
        let dictionary = self.unpack(&self.entries[entry.base - 1])?;
        zstd::bulk::Decompressor::with_dictionary(&dictionary)?.decompress(packed, entry.raw)
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

/// Instances that share a dictionary: of one target, kernel file and first define, which is the head dimension.
fn family(name: &str) -> &str {
    let (target, instance) = name.split_at(name.find('/').map_or(0, |at| at + 1));
    let end = instance.match_indices('_').nth(1).map_or(instance.len(), |(at, _)| at);
    &name[..target.len() + end]
}

/// The instance whose outputs are of the first kind, if this one differs from it in that alone.
fn sibling(name: &str) -> Option<String> {
    let (rest, kind) = name.rsplit_once("_out")?;
    matches!(kind, "1" | "2").then(|| format!("{rest}_out0"))
}

/// A container of these (`TARGET/NAME`, code); equal input gives equal bytes. Errors: one that is too large.
pub fn write(entries: &BTreeMap<String, Vec<u8>>) -> Result<Vec<u8>, Error> {
    let failed = |_| Error::Container { why: "an instance does not compress" };
    let (mut head, mut blobs) = (MAGIC.to_vec(), Vec::new());
    head.extend((entries.len() as u32).to_le_bytes());
    let mut bases: BTreeMap<&str, usize> = BTreeMap::new();
    let all: Vec<(&String, &Vec<u8>)> = entries.iter().collect();
    for (i, (name, code)) in entries.iter().enumerate() {
        if code.len() > MAX_INSTANCE_BYTES || name.len() > usize::from(u16::MAX) {
            return Err(Error::Container { why: "an instance is too large" });
        }
        let near = sibling(name).and_then(|s| all.binary_search_by_key(&&s, |(name, _)| name).ok());
        let (base, packed) = match near.or(bases.get(family(name)).copied()) {
            Some(base) => {
                let packed =
                    zstd::bulk::Compressor::with_dictionary(LEVEL, all[base].1).and_then(|mut c| c.compress(code));
                (base + 1, packed.map_err(failed)?)
            }
            None => {
                bases.insert(family(name), i);
                (0, zstd::bulk::compress(code, LEVEL).map_err(failed)?)
            }
        };
        head.extend((name.len() as u16).to_le_bytes());
        head.extend(name.as_bytes());
        for n in [blobs.len(), packed.len(), code.len(), base] {
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

    /// Of instances of one kernel and head dimension the second is hardly more than what it has of its own; those of another one stand alone.
    #[test]
    fn what_instances_have_in_common_is_there_once() {
        let mut state = 1u32;
        let mut noise = |n: usize| -> Vec<u8> {
            let mut next = || {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 24) as u8
            };
            (0..n).map(|_| next()).collect()
        };
        let (common, other, third) = (noise(50_000), noise(50_000), noise(50_000));
        let own = |code: &[u8], last: u8| [code, &[last; 1000]].concat();
        let entries: BTreeMap<String, Vec<u8>> = [
            ("sm_90a/tiny_d64_causal0".to_string(), own(&common, 1)),
            ("sm_90a/tiny_d64_causal1_out0".to_string(), [own(&common, 2), third.clone()].concat()),
            ("sm_90a/tiny_d64_causal1_out1".to_string(), [own(&common, 5), third.clone()].concat()),
            ("sm_90a/tiny_d64_causal2_out2".to_string(), own(&common, 6)),
            ("sm_90a/tiny_d128_causal0".to_string(), own(&other, 3)),
            ("sm_90a/quantise".to_string(), own(&other, 4)),
        ]
        .into();
        let bytes = write(&entries).unwrap();
        assert!((200_000..205_000).contains(&bytes.len()), "{}", bytes.len());
        let bundle = Bundle::read(&bytes).unwrap();
        for (name, code) in &entries {
            let (target, name) = name.split_once('/').unwrap();
            assert_eq!(bundle.find(target, name).unwrap().unwrap(), *code, "{name}");
        }
    }

    #[test]
    fn damage_is_an_error_wherever_it_is() {
        let code: Vec<u8> = (0..=255).collect();
        let entries: BTreeMap<String, Vec<u8>> =
            [("sm_90a/a_d64_x".to_string(), code.clone()), ("sm_90a/a_d64_y".to_string(), code)].into();
        let bytes = write(&entries).unwrap();
        for end in 0..bytes.len() {
            assert!(Bundle::read(&bytes[..end]).is_err(), "cut at {end}");
        }
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 0x55;
            // An error, another name, or code that does not unpack or differs; never a panic.
            if let Ok(bundle) = Bundle::read(&bad) {
                let _ = (bundle.find("sm_90a", "a_d64_x"), bundle.find("sm_90a", "a_d64_y"));
            }
        }
    }
}
