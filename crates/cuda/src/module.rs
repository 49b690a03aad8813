//! Loaded code: cubins and PTX, their entries, and launches of them.
//!
//! A launch compares its arguments with the entry's parameters before the driver sees them: the driver itself would read past their end.

use crate::driver::{Context, Held};
use crate::error::CudaError;
use crate::ffi::{Block, Handle};
use crate::stream::Stream;
use std::sync::Arc;

/// Loaded code. Its `__device__` variables live as long as it does.
pub struct Module {
    held: Arc<Held>,
    handle: Handle,
}

/// One entry, and what it needs.
pub struct Function {
    module: Arc<Module>,
    handle: Handle,
    info: FunctionInfo,
}

/// What the driver says of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FunctionInfo {
    pub entry: String,
    pub registers: u32,
    /// Static shared memory.
    pub shared_bytes: u32,
    /// Stack and spills of each thread.
    pub local_bytes: u32,
    pub max_threads: u32,
    /// Sizes of the parameters, in order.
    pub parameters: Vec<usize>,
}

/// Sizes of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    pub grid: [u32; 3],
    pub block: [u32; 3],
    /// All 1: no cluster is asked for.
    pub cluster: [u32; 3],
    /// All blocks at once, so that the grid can wait for itself.
    pub cooperative: bool,
    /// Dynamic shared memory.
    pub shared_bytes: u32,
}

/// Values for an entry's parameters, in order.
#[derive(Clone, Default)]
pub struct Arguments {
    blocks: Vec<Block>,
    starts: Vec<usize>,
    sizes: Vec<usize>,
}

impl Arguments {
    pub fn new() -> Arguments {
        Arguments::default()
    }

    /// An address, a scalar, a struct or a tensor map, little endian, of exactly the parameter's size.
    pub fn push(&mut self, bytes: &[u8]) -> &mut Arguments {
        self.starts.push(self.blocks.len());
        self.sizes.push(bytes.len());
        let mut rest = bytes;
        loop {
            let (now, later) = rest.split_at(rest.len().min(128));
            let mut block = Block([0; 128]);
            block.0[..now.len()].copy_from_slice(now);
            self.blocks.push(block);
            if later.is_empty() {
                return self;
            }
            rest = later;
        }
    }

    pub fn address(&mut self, address: u64) -> &mut Arguments {
        self.push(&address.to_le_bytes())
    }
}

/// PTX versions and the CUDA version whose driver first takes them.
const PTX_VERSIONS: [(u32, u32, u32, u32); 11] = [
    (8, 0, 12, 0),
    (8, 1, 12, 1),
    (8, 2, 12, 2),
    (8, 3, 12, 3),
    (8, 4, 12, 4),
    (8, 5, 12, 5),
    (8, 6, 12, 7),
    (8, 7, 12, 8),
    (8, 8, 12, 9),
    (9, 0, 13, 0),
    (9, 1, 13, 1),
];

impl Context {
    /// Loads a cubin, or PTX, which the driver then compiles.
    ///
    /// Errors: [`CudaError::Image`] with what the driver's compiler said, [`CudaError::DriverTooOld`] for PTX of a newer toolkit.
    pub fn load(&self, image: &[u8]) -> Result<Arc<Module>, CudaError> {
        let bad = |why: &str| CudaError::Image { why: why.to_string() };
        let mut whole;
        if image.starts_with(b"\x7fELF") {
            elf_is_whole(image).map_err(bad)?;
            whole = image.to_vec();
        } else {
            let text = std::str::from_utf8(image).map_err(|_| bad("it is neither a cubin nor PTX"))?;
            if text.contains('\0') || !text.contains(".version") {
                return Err(bad("it is neither a cubin nor PTX"));
            }
            if let Some(need) = ptx_needs(text)
                && self.device().driver < need
            {
                let what = "PTX of this version".to_string();
                return Err(CudaError::DriverTooOld { have: self.device().driver, need, what });
            }
            whole = text.as_bytes().to_vec();
            whole.push(0);
        }
        // The driver gets no length: room behind the end costs nothing.
        whole.extend([0; 64]);
        let handle = self.held.bind()?.module_load(&whole)?;
        Ok(Arc::new(Module { held: self.held.clone(), handle }))
    }
}

/// Whether an ELF file's tables lie inside of it. Source: the ELF-64 specification.
fn elf_is_whole(image: &[u8]) -> Result<(), &'static str> {
    let at = |offset: usize, bytes: usize| -> Option<u64> {
        let field = image.get(offset..offset + bytes)?;
        Some(field.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b)))
    };
    let cut = "the cubin is cut off, or damaged";
    let fits = |start: u64, each: u64, count: u64| {
        start.checked_add(each * count).is_some_and(|end| end <= image.len() as u64)
    };
    let field = |offset, bytes| at(offset, bytes).ok_or(cut);
    if image.get(4) != Some(&2) {
        return Err("the cubin is not of 64 bits");
    }
    let (programs, sections) = (field(32, 8)?, field(40, 8)?);
    let (program_bytes, program_count) = (field(54, 2)?, field(56, 2)?);
    let (section_bytes, section_count) = (field(58, 2)?, field(60, 2)?);
    if !fits(programs, program_bytes, program_count) || !fits(sections, section_bytes, section_count) {
        return Err(cut);
    }
    for i in 0..section_count {
        let header = (sections + i * section_bytes) as usize;
        const NO_BITS: u64 = 8;
        let (kind, start, bytes) = (field(header + 4, 4)?, field(header + 24, 8)?, field(header + 32, 8)?);
        if kind != NO_BITS && !fits(start, bytes, 1) {
            return Err(cut);
        }
    }
    Ok(())
}

/// The driver that PTX of this version needs; nothing for versions that every supported driver takes.
fn ptx_needs(text: &str) -> Option<crate::DriverVersion> {
    let line = text.lines().map(str::trim).find_map(|l| l.strip_prefix(".version"))?;
    let (major, minor) = line.split_whitespace().next()?.split_once('.')?;
    let version: (u32, u32) = (major.parse().ok()?, minor.parse().ok()?);
    let known = PTX_VERSIONS.iter().find(|row| (row.0, row.1) == version);
    let newer = || PTX_VERSIONS.last().filter(|row| version > (row.0, row.1));
    known.or_else(newer).map(|row| crate::DriverVersion::new(row.2, row.3))
}

impl Drop for Module {
    fn drop(&mut self) {
        if let Ok(api) = self.held.bind() {
            api.module_unload(self.handle);
        }
    }
}

impl Module {
    /// The entry of this name, as in the PTX.
    pub fn function(self: &Arc<Self>, entry: &str) -> Result<Function, CudaError> {
        let api = self.held.bind()?;
        let handle = api.module_function(self.handle, entry)?;
        let get = |attribute: i32| api.function_attribute(attribute, handle).map(|n| n.max(0) as u32);
        let info = FunctionInfo {
            entry: entry.to_string(),
            registers: get(4)?,
            shared_bytes: get(1)?,
            local_bytes: get(3)?,
            max_threads: get(0)?,
            parameters: api.function_parameters(handle)?,
        };
        Ok(Function { module: self.clone(), handle, info })
    }
}

impl Function {
    pub fn info(&self) -> &FunctionInfo {
        &self.info
    }

    /// Lets launches ask for so much dynamic shared memory; needed beyond 48 KiB, and harmless below.
    pub fn allow_shared_bytes(&self, bytes: u32) -> Result<(), CudaError> {
        const MAX_DYNAMIC_SHARED: i32 = 8;
        let value = i32::try_from(bytes).unwrap_or(i32::MAX);
        match self.module.held.bind()?.function_set(self.handle, MAX_DYNAMIC_SHARED, value) {
            Err(CudaError::Call { code: 1, .. }) => Err(CudaError::Launch {
                what: format!(
                    "entry {} asks for {bytes} bytes of dynamic shared memory ({} static besides), more than this device gives",
                    self.info.entry, self.info.shared_bytes
                ),
            }),
            other => other,
        }
    }

    /// Whether a launch with these is possible as far as the entry's own properties say.
    pub(crate) fn fits(&self, geometry: &Geometry, arguments: &Arguments) -> Result<(), CudaError> {
        let wrong = |what: String| Err(CudaError::Launch { what });
        let entry = &self.info.entry;
        if arguments.sizes != self.info.parameters {
            return wrong(format!(
                "entry {entry} takes parameters of {:?} bytes, the launch gives {:?}",
                self.info.parameters, arguments.sizes
            ));
        }
        let threads = geometry.block.iter().fold(1u64, |n, d| n.saturating_mul(u64::from(*d)));
        if threads > u64::from(self.info.max_threads) {
            return wrong(format!("a block of {threads} threads: entry {entry} can have {}", self.info.max_threads));
        }
        Ok(())
    }
}

impl Stream {
    /// Gives a launch to the stream and returns at once. A launch that is impossible is [`CudaError::Launch`].
    pub fn launch(&self, function: &Function, geometry: &Geometry, arguments: &Arguments) -> Result<(), CudaError> {
        function.fits(geometry, arguments)?;
        let cluster = Some(geometry.cluster).filter(|c| *c != [1, 1, 1]);
        self.held.bind()?.launch(
            function.handle,
            geometry.grid,
            geometry.block,
            cluster,
            geometry.cooperative,
            geometry.shared_bytes,
            &arguments.blocks,
            &arguments.starts,
            self.handle,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DriverVersion;

    #[test]
    fn ptx_says_which_driver_it_needs() {
        for (text, need) in [
            ("//\n.version 9.0\n.target sm_90\n", Some(DriverVersion::new(13, 0))),
            (".version 8.7\n", Some(DriverVersion::new(12, 8))),
            (".version 7.8\n", None),
            (".version 42.0\n", Some(DriverVersion::new(13, 1))),
            ("nothing", None),
        ] {
            assert_eq!(ptx_needs(text), need, "{text}");
        }
    }

    #[test]
    fn a_cubin_that_is_cut_off_is_refused_before_the_driver_sees_it() {
        let whole = include_bytes!("../tests/kernels/probe.sm_90.cubin");
        assert_eq!(elf_is_whole(whole), Ok(()));
        for length in [5, 40, 63, 64, 500, whole.len() - 1] {
            assert!(elf_is_whole(&whole[..length]).is_err(), "{length} bytes");
        }
    }

    #[test]
    fn arguments_keep_their_alignment() {
        let mut arguments = Arguments::new();
        arguments.push(&[1; 4]).push(&[2; 130]).address(3).push(&[]);
        assert_eq!(arguments.starts, [0, 1, 3, 4]);
        assert_eq!(arguments.sizes, [4, 130, 8, 0]);
        assert_eq!(arguments.blocks[2].0[..3], [2, 2, 0]);
    }
}
