//! The committed layer: artifacts of what is built in, made with one pinned toolkit, read-only, embedded in the binary.
//!
//! Holds PTX, statistics, failures and hashes, no machine code. Texts that are alike lie side by side in large blocks, so that a further configuration of a
//! kernel costs little. The bytes are a function of the contents alone.
//!
//! Form: magic, SHA-256 of the rest, length and zstd of the index (JSON), blocks (zstd). The index says in which block and where a result lies.

use crate::artifact::{Artifact, CompileFailure};
use crate::compiler::Compiler;
use crate::error::ToolError;
use crate::request::Request;
use crate::toolkit::ToolkitId;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::sync::OnceLock;

const MAGIC: &[u8; 8] = b"wslayer1";
/// Plain bytes that share a block: a look-up unpacks one.
const BLOCK_BYTES: usize = 4 << 20;
const LEVEL: i32 = 19;
/// zstd's window, 2^23: a whole block.
const WINDOW_LOG: u32 = 23;
const MAX_INDEX_BYTES: u64 = 64 << 20;

#[derive(Debug, Serialize, Deserialize)]
struct Index {
    toolkit: ToolkitId,
    /// Packed lengths.
    blocks: Vec<u64>,
    /// By key.
    results: BTreeMap<String, Place>,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Place {
    block: u32,
    start: u64,
    length: u64,
}

/// A read-only set of artifacts by key.
#[derive(Debug)]
pub struct Layer {
    index: Index,
    packed: Vec<&'static [u8]>,
    plain: Vec<OnceLock<Option<Vec<u8>>>>,
}

impl Layer {
    /// Reads the index; blocks are unpacked when they are asked for. An empty slice is a layer without artifacts.
    pub fn from_bytes(bytes: &'static [u8]) -> Result<Layer, ToolError> {
        let broken = |why: &str| ToolError::Layer { why: why.into() };
        if bytes.is_empty() {
            let index = Index { toolkit: ToolkitId("none".into()), blocks: Vec::new(), results: BTreeMap::new() };
            return Ok(Layer { index, packed: Vec::new(), plain: Vec::new() });
        }
        let rest = bytes.strip_prefix(MAGIC).ok_or_else(|| broken("it does not begin as a layer does"))?;
        let (_, rest) = rest.split_at_checked(32).ok_or_else(|| broken("it is cut short"))?;
        let (length, rest) = rest.split_at_checked(8).ok_or_else(|| broken("it is cut short"))?;
        let length = u64::from_le_bytes(length.try_into().map_err(|_| broken("it is cut short"))?);
        let split = usize::try_from(length).ok().and_then(|n| rest.split_at_checked(n));
        let (index, mut rest) = split.ok_or_else(|| broken("it is cut short"))?;
        let index = unpack(index, MAX_INDEX_BYTES).ok_or_else(|| broken("its index does not unpack"))?;
        let index: Index =
            serde_json::from_slice(&index).map_err(|e| broken(&format!("its index does not read: {e}")))?;
        let mut packed = Vec::new();
        for length in &index.blocks {
            let split = usize::try_from(*length).ok().and_then(|n| rest.split_at_checked(n));
            let (block, after) = split.ok_or_else(|| broken("it is cut short"))?;
            packed.push(block);
            rest = after;
        }
        let plain = packed.iter().map(|_| OnceLock::new()).collect();
        Ok(Layer { index, packed, plain })
    }

    /// Compares the whole with its checksum; for tests, not for each start.
    pub fn verify(bytes: &[u8]) -> Result<(), ToolError> {
        let rest = bytes.strip_prefix(MAGIC).and_then(|r| r.split_at_checked(32));
        match rest {
            _ if bytes.is_empty() => Ok(()),
            Some((hash, rest)) if Sha256::digest(rest).as_slice() == hash => Ok(()),
            _ => Err(ToolError::Layer { why: "its checksum differs".into() }),
        }
    }

    /// The toolkit that made it.
    pub fn toolkit_id(&self) -> &ToolkitId {
        &self.index.toolkit
    }

    pub fn len(&self) -> usize {
        self.index.results.len()
    }

    pub fn is_empty(&self) -> bool {
        self.index.results.is_empty()
    }

    /// What the pinned toolkit made of this request, if it is among the built-in ones. An include that is refused needs no toolkit.
    pub fn lookup(&self, request: &Request) -> Option<Result<Artifact, CompileFailure>> {
        let resolved = match request.resolve().ok()? {
            Ok(resolved) => resolved,
            Err(failure) => return Some(Err(failure)),
        };
        self.get(&request.key(&resolved, &self.index.toolkit))
    }

    /// The result under a key.
    pub fn get(&self, key: &str) -> Option<Result<Artifact, CompileFailure>> {
        let place = self.index.results.get(key)?;
        let block = place.block as usize;
        let packed = self.packed.get(block)?;
        // One result may be larger than a block: the limit is there for damaged layers only.
        let plain = self.plain[block].get_or_init(|| unpack(packed, 256 << 20)).as_ref()?;
        let end = place.start.checked_add(place.length)?;
        serde_json::from_slice(plain.get(place.start as usize..end as usize)?).ok()
    }

    /// All keys, sorted.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.index.results.keys().map(String::as_str)
    }
}

/// Collects results for a layer.
#[derive(Debug)]
pub struct LayerBuilder {
    toolkit: ToolkitId,
    /// By (name, rest of the order, key): similar texts become neighbours.
    results: BTreeMap<(String, String, String), Vec<u8>>,
}

impl LayerBuilder {
    pub fn new(toolkit: ToolkitId) -> LayerBuilder {
        LayerBuilder { toolkit, results: BTreeMap::new() }
    }

    /// Adds what a request gave. The cubin is left out.
    pub fn add(&mut self, request: &Request, result: &Result<Artifact, CompileFailure>) -> Result<(), ToolError> {
        let broken = |why: String| ToolError::Layer { why };
        if let Ok(artifact) = result
            && artifact.toolkit != self.toolkit
        {
            return Err(broken(format!("{} was made by {}, not by {}", request.name, artifact.toolkit, self.toolkit)));
        }
        if let Err(failure) = result
            && !failure.is_stable()
        {
            return Err(broken(format!("{}: {failure}", request.name)));
        }
        // A refused include needs no toolkit and no layer: the look-up says it by itself.
        let Ok(resolved) = request.resolve()? else { return Ok(()) };
        let key = request.key(&resolved, &self.toolkit);
        let json = serde_json::to_vec(result).map_err(|e| broken(e.to_string()))?;
        let order = format!("{}|{:?}|{:?}", request.target, request.entries, request.defines);
        self.results.insert((request.name.clone(), order, key), json);
        Ok(())
    }

    pub fn len(&self) -> usize {
        self.results.len()
    }

    pub fn is_empty(&self) -> bool {
        self.results.is_empty()
    }

    /// The layer's bytes: the same for the same contents, in whatever order they were added.
    pub fn finish(self) -> Result<Vec<u8>, ToolError> {
        let mut index = Index { toolkit: self.toolkit, blocks: Vec::new(), results: BTreeMap::new() };
        let mut blocks: Vec<Vec<u8>> = vec![Vec::new()];
        for ((_, _, key), json) in self.results {
            if !blocks[blocks.len() - 1].is_empty() && blocks[blocks.len() - 1].len() + json.len() > BLOCK_BYTES {
                blocks.push(Vec::new());
            }
            let number = blocks.len() - 1;
            let block = &mut blocks[number];
            index
                .results
                .insert(key, Place { block: number as u32, start: block.len() as u64, length: json.len() as u64 });
            block.extend(json);
        }
        let pack = |plain: &[u8]| pack(plain).map_err(|e| ToolError::Layer { why: e.to_string() });
        let packed: Vec<Vec<u8>> = blocks.iter().map(|b| pack(b)).collect::<Result<_, _>>()?;
        index.blocks = packed.iter().map(|p| p.len() as u64).collect();
        let json = serde_json::to_vec(&index).map_err(|e| ToolError::Layer { why: e.to_string() })?;
        let index = pack(&json)?;
        let mut rest = (index.len() as u64).to_le_bytes().to_vec();
        rest.extend(index);
        packed.into_iter().for_each(|p| rest.extend(p));
        let mut out = MAGIC.to_vec();
        out.extend(Sha256::digest(&rest));
        out.extend(rest);
        Ok(out)
    }
}

fn pack(plain: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut encoder = zstd::Encoder::new(Vec::new(), LEVEL)?;
    encoder.window_log(WINDOW_LOG)?;
    encoder.include_contentsize(true)?;
    encoder.write_all(plain)?;
    encoder.finish()
}

fn unpack(packed: &[u8], limit: u64) -> Option<Vec<u8>> {
    let mut plain = Vec::new();
    zstd::Decoder::new(packed).ok()?.take(limit).read_to_end(&mut plain).ok()?;
    Some(plain)
}

/// How a layer differs from what its toolkit makes today.
#[derive(Debug, Clone, PartialEq)]
pub enum Difference {
    /// The layer has nothing under this request's key: a source, a header or an option has changed since.
    Absent,
    /// The layer has something else; a few words on what.
    Changed(String),
}

/// Compiles a request again and compares: `None` is fresh. The compiler's toolkit has to be the layer's.
pub fn freshness(layer: &Layer, compiler: &Compiler, request: &Request) -> Result<Option<Difference>, ToolError> {
    if compiler.toolkit().id != *layer.toolkit_id() {
        let what = format!(
            "the layer was made by {}, and the toolkit at hand is {}",
            layer.toolkit_id(),
            compiler.toolkit().id
        );
        return Err(ToolError::BadRequest { what });
    }
    let Some(kept) = layer.lookup(request) else { return Ok(Some(Difference::Absent)) };
    let resolved = match request.resolve()? {
        Ok(resolved) => resolved,
        Err(failure) => return Ok((kept != Err(failure)).then(|| Difference::Changed("an include is refused".into()))),
    };
    let mut now = compiler.compile_anew(request, &resolved)?;
    if let Ok(artifact) = &mut now {
        artifact.cubin = None;
    }
    Ok(match (&kept, &now) {
        _ if kept == now => None,
        (Ok(a), Ok(b)) if a.ptx != b.ptx => {
            Some(Difference::Changed(format!("PTX {} is now {}", &a.ptx_sha256[..12], &b.ptx_sha256[..12])))
        }
        (Ok(a), Ok(b)) if a.entries != b.entries => Some(Difference::Changed("the statistics of an entry".into())),
        (Ok(_), Ok(_)) => Some(Difference::Changed("warnings or log".into())),
        (Err(_), Ok(_)) => Some(Difference::Changed("it compiles now".into())),
        (_, Err(b)) => Some(Difference::Changed(b.to_string())),
    })
}
