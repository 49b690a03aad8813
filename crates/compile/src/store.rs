//! The cache of artifacts: one file for each key, which appears by rename and carries a checksum. What is damaged is as good as absent.
//!
//! Form of a file: magic, SHA-256 of the rest, then zstd of {length of JSON, JSON of the result, cubin}.

use crate::artifact::{Artifact, CompileFailure};
use crate::error::ToolError;
use sha2::{Digest, Sha256};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

const MAGIC: &[u8; 8] = b"wsart\x001\n";
/// Largest entry, unpacked.
const MAX_BYTES: u64 = 512 << 20;

/// Artifacts and compile failures by the hash of all that made them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArtifactCache {
    dir: Option<PathBuf>,
}

/// What the cache holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheSizes {
    pub artifacts: u64,
    pub bytes: u64,
}

impl ArtifactCache {
    /// A cache in this folder, which is made when something is put.
    pub fn new(dir: impl Into<PathBuf>) -> ArtifactCache {
        ArtifactCache { dir: Some(dir.into()) }
    }

    /// Keeps nothing.
    pub fn disabled() -> ArtifactCache {
        ArtifactCache { dir: None }
    }

    pub fn dir(&self) -> Option<&Path> {
        self.dir.as_deref()
    }

    fn path(&self, key: &str) -> Option<PathBuf> {
        let plain = key.len() == 64 && key.bytes().all(|b| b.is_ascii_hexdigit());
        Some(self.dir.as_ref()?.join(key.get(..2).filter(|_| plain)?).join(format!("{key}.wsa")))
    }

    /// What was kept under a key; a damaged file is removed and counts as absent.
    pub fn get(&self, key: &str) -> Option<Result<Artifact, CompileFailure>> {
        let path = self.path(key)?;
        let bytes = std::fs::read(&path).ok()?;
        let found = decode(&bytes);
        if found.is_none() {
            let _ = std::fs::remove_file(&path);
        }
        found
    }

    /// Keeps a result. Two writers of the same key write the same, and the last rename wins.
    pub fn put(&self, key: &str, result: &Result<Artifact, CompileFailure>) -> Result<(), ToolError> {
        let Some(path) = self.path(key) else { return Ok(()) };
        let parent = path.parent().unwrap_or(Path::new("."));
        std::fs::create_dir_all(parent).map_err(|e| ToolError::io("cannot make", parent, e))?;
        let mut file =
            tempfile::NamedTempFile::new_in(parent).map_err(|e| ToolError::io("cannot write in", parent, e))?;
        let bytes = encode(result).map_err(|e| ToolError::io("cannot pack", &path, e))?;
        file.write_all(&bytes)
            .and_then(|()| file.as_file().sync_data())
            .map_err(|e| ToolError::io("cannot write", &path, e))?;
        file.persist(&path).map_err(|e| ToolError::io("cannot write", &path, e.error))?;
        Ok(())
    }

    /// How much there is.
    pub fn sizes(&self) -> CacheSizes {
        let mut sizes = CacheSizes::default();
        self.each(&mut |path| {
            sizes.artifacts += 1;
            sizes.bytes += std::fs::metadata(path).map_or(0, |m| m.len());
        });
        sizes
    }

    /// Removes all artifacts and returns what there was.
    pub fn clean(&self) -> Result<CacheSizes, ToolError> {
        let sizes = self.sizes();
        let mut problem = None;
        self.each(&mut |path| {
            if let Err(e) = std::fs::remove_file(path) {
                problem.get_or_insert(ToolError::io("cannot remove", path, e));
            }
        });
        problem.map_or(Ok(sizes), Err)
    }

    fn each(&self, visit: &mut dyn FnMut(&Path)) {
        let Some(folders) = self.dir.as_ref().and_then(|d| std::fs::read_dir(d).ok()) else { return };
        for folder in folders.flatten().filter(|f| f.file_name().len() == 2) {
            for file in std::fs::read_dir(folder.path()).into_iter().flatten().flatten() {
                if file.path().extension().is_some_and(|e| e == "wsa") {
                    visit(&file.path());
                }
            }
        }
    }
}

fn encode(result: &Result<Artifact, CompileFailure>) -> std::io::Result<Vec<u8>> {
    let json = serde_json::to_vec(result)?;
    let cubin = result.as_ref().ok().and_then(|a| a.cubin.as_deref());
    let mut plain = Vec::with_capacity(json.len() + cubin.map_or(0, <[u8]>::len) + 16);
    plain.extend((json.len() as u64).to_le_bytes());
    plain.extend(&json);
    plain.push(cubin.is_some() as u8);
    plain.extend(cubin.unwrap_or_default());
    let packed = zstd::encode_all(&plain[..], 3)?;
    let mut out = MAGIC.to_vec();
    out.extend(Sha256::digest(&packed));
    out.extend(packed);
    Ok(out)
}

fn decode(bytes: &[u8]) -> Option<Result<Artifact, CompileFailure>> {
    let rest = bytes.strip_prefix(MAGIC)?;
    let (hash, packed) = rest.split_at_checked(32)?;
    if Sha256::digest(packed).as_slice() != hash {
        return None;
    }
    let mut plain = Vec::new();
    zstd::Decoder::new(packed).ok()?.take(MAX_BYTES).read_to_end(&mut plain).ok()?;
    let (length, rest) = plain.split_at_checked(8)?;
    let length = usize::try_from(u64::from_le_bytes(length.try_into().ok()?)).ok()?;
    let (json, rest) = rest.split_at_checked(length)?;
    let mut result: Result<Artifact, CompileFailure> = serde_json::from_slice(json).ok()?;
    if let (Ok(artifact), [1, cubin @ ..]) = (&mut result, rest) {
        artifact.cubin = Some(cubin.to_vec());
    }
    Some(result)
}
