//! Archives of evidence: a zstd-compressed tar whose first file lists the SHA-256 of all others, with a checksum of the whole at its end.
//!
//! `tar --zstd -xf FILE` opens one. The checksum of the whole stands in a trailing skippable frame (RFC 8878, section 3.1.2), which every
//! zstd reader passes over. So one changed byte anywhere is noticed: in the stream by the checksum, in the trailer by itself. It is no
//! signature: who rewrites all of it makes a new archive. The same files give the same bytes.
//! Limits: 20,000 files, 1 GiB unpacked, 512 MiB packed; plain files with relative names only.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Read, Write};

/// The name of the list, the first file of an archive.
pub const MANIFEST: &str = "MANIFEST.json";
const SCHEMA: &str = "warpsmith.evidence/1";
const MAX_FILES: usize = 20_000;
const MAX_BYTES: u64 = 1 << 30;
const MAX_PACKED_BYTES: usize = 512 << 20;
/// Magic number of a skippable frame, its length, our own word, then 32 bytes of SHA-256.
const FRAME_MAGIC: [u8; 4] = [0x5a, 0x2a, 0x4d, 0x18];
const WORD: &[u8; 8] = b"WSEVIDNC";
const TRAILER_BYTES: usize = 4 + 4 + 8 + 32;

#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    #[error("it is no archive of evidence: {0}")]
    Foreign(String),
    #[error("it was changed or cut short: {0}")]
    Changed(String),
    #[error("it is too large: {0}")]
    TooLarge(String),
    #[error("it cannot be written: {0}")]
    Write(#[from] io::Error),
}

/// What an archive says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    pub schema: String,
    /// The run's name.
    pub run: String,
    pub made_by: String,
    pub files: BTreeMap<String, ManifestFile>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestFile {
    pub sha256: String,
    pub bytes: u64,
}

/// An archive whose checksums all hold.
#[derive(Debug, Clone)]
pub struct Archive {
    pub manifest: Manifest,
    pub files: BTreeMap<String, Vec<u8>>,
    /// SHA-256 of the whole, as it stands at the end.
    pub sha256: String,
}

/// The archive of these files, and the checksum of the whole.
///
/// # Errors
/// Too many or too large, or a name that is no plain relative path.
pub fn pack(run: &str, made_by: &str, files: &BTreeMap<String, Vec<u8>>) -> Result<(Vec<u8>, String), ArchiveError> {
    let total: u64 = files.values().map(|b| b.len() as u64).sum();
    if files.len() > MAX_FILES || total > MAX_BYTES {
        return Err(ArchiveError::TooLarge(format!(
            "{} files of {total} bytes; the limits are {MAX_FILES} and {MAX_BYTES}",
            files.len()
        )));
    }
    if let Some(name) = files.keys().find(|n| !is_plain(n) || *n == MANIFEST) {
        return Err(ArchiveError::Foreign(format!("{name:?} is no name for a file in it")));
    }
    let list =
        files.iter().map(|(n, b)| (n.clone(), ManifestFile { sha256: sha256(b), bytes: b.len() as u64 })).collect();
    let manifest = Manifest { schema: SCHEMA.into(), run: run.into(), made_by: made_by.into(), files: list };
    let text = serde_json::to_vec_pretty(&manifest).map_err(io::Error::other)?;
    let mut tar = tar::Builder::new(zstd::Encoder::new(Vec::new(), 6)?);
    for (name, bytes) in std::iter::once((MANIFEST, &text)).chain(files.iter().map(|(n, b)| (n.as_str(), b))) {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        header.set_mtime(0);
        tar.append_data(&mut header, name, bytes.as_slice())?;
    }
    let mut packed = tar.into_inner()?.finish()?;
    let whole: [u8; 32] = Sha256::digest(&packed).into();
    packed.write_all(&FRAME_MAGIC)?;
    packed.write_all(&(40u32).to_le_bytes())?;
    packed.write_all(WORD)?;
    packed.write_all(&whole)?;
    Ok((packed, hex(&whole)))
}

/// Reads an archive back and checks everything that it says of itself.
///
/// # Errors
/// It is none, or not one byte the same.
pub fn unpack(packed: &[u8]) -> Result<Archive, ArchiveError> {
    if packed.len() > MAX_PACKED_BYTES {
        return Err(ArchiveError::TooLarge(format!("{} bytes, more than {MAX_PACKED_BYTES}", packed.len())));
    }
    if !packed.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        return Err(ArchiveError::Foreign("it does not begin as zstd does".into()));
    }
    let Some(at) = packed.len().checked_sub(TRAILER_BYTES) else {
        return Err(ArchiveError::Changed("it ends before its checksum".into()));
    };
    let (stream, trailer) = packed.split_at(at);
    if trailer[..4] != FRAME_MAGIC || trailer[4..8] != 40u32.to_le_bytes() || &trailer[8..16] != WORD {
        return Err(ArchiveError::Changed("its checksum is not at its end".into()));
    }
    let whole: [u8; 32] = Sha256::digest(stream).into();
    if whole != trailer[16..] {
        return Err(ArchiveError::Changed("the checksum of the whole does not hold".into()));
    }
    let mut files = read(stream).map_err(|e| ArchiveError::Changed(e.to_string()))?;
    let text = files.remove(MANIFEST).ok_or_else(|| ArchiveError::Foreign(format!("it holds no {MANIFEST}")))?;
    let manifest: Manifest =
        serde_json::from_slice(&text).map_err(|e| ArchiveError::Foreign(format!("{MANIFEST}: {e}")))?;
    if manifest.schema != SCHEMA {
        return Err(ArchiveError::Foreign(format!(
            "its schema is {:?}; this version reads {SCHEMA:?}",
            manifest.schema
        )));
    }
    for (name, listed) in &manifest.files {
        let bytes = files.get(name).ok_or_else(|| ArchiveError::Changed(format!("{name} is listed and not there")))?;
        if sha256(bytes) != listed.sha256 {
            return Err(ArchiveError::Changed(format!("the checksum of {name} does not hold")));
        }
    }
    if let Some(name) = files.keys().find(|n| !manifest.files.contains_key(*n)) {
        return Err(ArchiveError::Changed(format!("{name} is there and not listed")));
    }
    Ok(Archive { manifest, files, sha256: hex(&whole) })
}

/// All files of the stream, within the limits.
fn read(stream: &[u8]) -> io::Result<BTreeMap<String, Vec<u8>>> {
    let too_large = || io::Error::other(format!("it unpacks to more than {MAX_FILES} files or {MAX_BYTES} bytes"));
    let mut tar = tar::Archive::new(zstd::Decoder::new(stream)?.take(MAX_BYTES + (64 << 20)));
    let (mut files, mut total) = (BTreeMap::new(), 0u64);
    for entry in tar.entries()? {
        let mut entry = entry?;
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        if !entry.header().entry_type().is_file() || !is_plain(&name) {
            return Err(io::Error::other(format!("{name:?} is no plain file in it")));
        }
        total = total.saturating_add(entry.size());
        if total > MAX_BYTES || files.len() >= MAX_FILES {
            return Err(too_large());
        }
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes)?;
        if files.insert(name.clone(), bytes).is_some() {
            return Err(io::Error::other(format!("{name} is there twice")));
        }
    }
    Ok(files)
}

/// Relative, without `.` and `..`, and nothing that another system could read otherwise.
fn is_plain(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 512
        && name.split('/').all(|part| !matches!(part, "" | "." | ".."))
        && !name.contains(['\\', ':', '\0'])
}

/// 64 hexadecimal digits.
pub fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut s, b| {
        let _ = write!(s, "{b:02x}");
        s
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files() -> BTreeMap<String, Vec<u8>> {
        let text: Vec<u8> = (0..3000u32).flat_map(|i| (i.wrapping_mul(2_654_435_761)).to_le_bytes()).collect();
        [("summary.json".to_string(), b"{}".to_vec()), ("candidates/a/source/a.cu".to_string(), text)].into()
    }

    #[test]
    fn what_was_packed_comes_back_and_the_same_files_give_the_same_bytes() {
        let (packed, sum) = pack("r", "warpsmith 0", &files()).unwrap();
        assert_eq!(pack("r", "warpsmith 0", &files()).unwrap().0, packed);
        let archive = unpack(&packed).unwrap();
        assert_eq!((archive.files, archive.sha256), (files(), sum));
        assert!(zstd::decode_all(packed.as_slice()).is_ok(), "any zstd reader opens it");
    }

    #[test]
    fn any_changed_byte_is_noticed() {
        let (packed, _) = pack("r", "warpsmith 0", &files()).unwrap();
        for at in (0..packed.len()).step_by(97).chain(packed.len() - TRAILER_BYTES..packed.len()) {
            let mut bad = packed.clone();
            bad[at] ^= 1;
            assert!(unpack(&bad).is_err(), "byte {at}");
        }
        for length in [0, 3, 40, packed.len() / 2, packed.len() - 1] {
            assert!(unpack(&packed[..length]).is_err(), "cut to {length}");
        }
        assert!(unpack(&[packed.clone(), vec![0]].concat()).is_err(), "longer");
    }

    #[test]
    fn names_that_leave_the_archive_are_refused() {
        for name in ["../x", "/x", "a//b", "a/./b", "C:x", "", MANIFEST] {
            assert!(pack("r", "w", &[(name.to_string(), vec![1])].into()).is_err(), "{name}");
        }
    }
}
