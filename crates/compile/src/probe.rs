//! Asks a toolkit what it is: ptxas for its version, NVRTC (in its child process) for its own and the targets it knows.
//!
//! Loading NVRTC takes a tenth of a second, so answers are kept in the cache under paths, sizes and times of the files.

use crate::child::{self, ChildCommand, ChildEnd, ChildReply, ChildRequest, Job};
use crate::layout::Parts;
use crate::process::{self, Bounds};
use crate::toolkit::{Origin, Toolkit, ToolkitId, Version};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Raised when the answer's meaning changes.
const FORMAT: u32 = 1;

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Answer {
    id: String,
    version: Version,
    architectures: Vec<u32>,
}

/// Headers whose contents tell one release from another for device code; CCCL tells its version itself.
const TELLING_HEADERS: &[&str] = &[
    "cuda_fp16.h",
    "cuda_fp16.hpp",
    "cuda_bf16.h",
    "cuda_bf16.hpp",
    "cuda_fp8.h",
    "cuda_fp8.hpp",
    "cuda_fp6.hpp",
    "cuda_fp4.hpp",
    "mma.h",
    "crt/mma.h",
    "crt/mma.hpp",
    "crt/sm_90_rt.hpp",
    "cooperative_groups.h",
    "cuda_pipeline.h",
    "cuda_pipeline_primitives.h",
    "cuda_awbarrier.h",
    "vector_types.h",
    "vector_functions.hpp",
    "cuda/std/__cccl/version.h",
    "cccl/cuda/std/__cccl/version.h",
    "cuda/std/detail/libcxx/include/__config",
];

/// Runs the parts; the error says why they are no working toolkit.
pub(crate) fn probe(
    parts: Parts,
    root: &Path,
    origin: Origin,
    cache: &Path,
    child: &ChildCommand,
) -> Result<Toolkit, String> {
    let kept = cache.join("probes").join(format!("{}.json", fingerprint(&parts)));
    let read = std::fs::read(&kept).ok().and_then(|t| serde_json::from_slice::<Answer>(&t).ok());
    let answer = match read {
        Some(answer) => answer,
        None => {
            let answer = ask(&parts, child)?;
            keep(&kept, &answer);
            answer
        }
    };
    Ok(Toolkit {
        id: ToolkitId(answer.id),
        version: answer.version,
        origin,
        root: root.to_path_buf(),
        nvrtc: parts.nvrtc,
        nvrtc_builtins: parts.nvrtc_builtins,
        ptxas: parts.ptxas,
        include_dirs: parts.include_dirs,
        nvdisasm: parts.nvdisasm,
        cuobjdump: parts.cuobjdump,
        architectures: answer.architectures,
    })
}

fn ask(parts: &Parts, child: &ChildCommand) -> Result<Answer, String> {
    let mut command = Command::new(&parts.ptxas);
    command.arg("--version").current_dir(std::env::temp_dir());
    let bounds = Bounds { seconds: 20, memory_bytes: None, output_bytes: 64 << 10 };
    let said = process::run(command, Vec::new(), bounds, &mut || {}).map_err(|e| e.to_string())?;
    if !said.status.success() {
        return Err(format!(
            "its ptxas does not run ({}): {}",
            said.how(),
            said.stderr_text().lines().next().unwrap_or("it says nothing")
        ));
    }
    let text = said.stdout_text();
    let version = release(&text).ok_or("its ptxas does not say its version")?;

    let request = ChildRequest {
        mark: child::fresh_mark(),
        nvrtc: parts.nvrtc.clone(),
        builtins: parts.nvrtc_builtins.clone(),
        readable: Vec::new(),
        memory_bytes: 6 << 30,
        seconds: 30,
        job: Job::Probe,
    };
    let (nvrtc, architectures, nvrtc_release) = match child::ask(child, &std::env::temp_dir(), &request)
        .map_err(|e| e.to_string())?
    {
        ChildEnd::Reply(ChildReply::Probed { version, architectures, release }) => (version, architectures, release),
        ChildEnd::Reply(ChildReply::Broken { why }) => return Err(why),
        ChildEnd::TimedOut => return Err("its NVRTC does not answer within 30 s".into()),
        ChildEnd::Died { how, said } => {
            return Err(format!(
                "its NVRTC does not run ({how}): {}",
                said.lines().last().unwrap_or("it says nothing")
            ));
        }
        ChildEnd::OutOfMemory | ChildEnd::Reply(_) => return Err("its NVRTC does not answer".into()),
    };
    let nvrtc_version = (u32::try_from(nvrtc.0).unwrap_or(0), u32::try_from(nvrtc.1).unwrap_or(0));
    if nvrtc_version > (version.0, version.1) {
        return Err(format!(
            "its NVRTC ({}.{}) is newer than its ptxas ({}.{})",
            nvrtc.0, nvrtc.1, version.0, version.1
        ));
    }
    let mut hash = Sha256::new();
    let mut field = |text: &str| {
        hash.update(text.len().to_le_bytes());
        hash.update(text.as_bytes());
    };
    field(&format!("{version:?}"));
    field(&format!("{nvrtc_version:?}"));
    field(&nvrtc_release);
    // Without a disassembler the statistics lack the tensor-core opcodes.
    field(if parts.nvdisasm.is_some() || parts.cuobjdump.is_some() { "sass" } else { "no sass" });
    for name in TELLING_HEADERS {
        let text = parts.include_dirs.iter().find_map(|d| std::fs::read_to_string(d.join(name)).ok());
        // Line ends differ between platforms.
        field(&text.unwrap_or_default().replace("\r\n", "\n"));
    }
    let digest = crate::request::hex(&hash.finalize());
    let id = format!("cuda-{}.{}.{}-{}", version.0, version.1, version.2, &digest[..8]);
    Ok(Answer { id, version, architectures })
}

/// `Cuda compilation tools, release 13.0, V13.0.88`
pub(crate) fn release(text: &str) -> Option<Version> {
    let (_, rest) = text.split_once(", V")?;
    let mut numbers = rest.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    match (numbers.next(), numbers.next(), numbers.next()) {
        (Some(Ok(a)), Some(Ok(b)), Some(Ok(c))) => Some((a, b, c)),
        _ => None,
    }
}

fn fingerprint(parts: &Parts) -> String {
    let mut hash = Sha256::new();
    hash.update(FORMAT.to_le_bytes());
    let mut field = |path: &Path| {
        hash.update(path.as_os_str().as_encoded_bytes());
        if let Ok(meta) = std::fs::metadata(path) {
            hash.update(meta.len().to_le_bytes());
            let time = meta
                .modified()
                .ok()
                .and_then(|t| t.duration_since(std::time::UNIX_EPOCH).ok())
                .map_or(0, |d| d.as_nanos());
            hash.update(time.to_le_bytes());
        }
    };
    let files = [
        Some(&parts.nvrtc),
        Some(&parts.ptxas),
        parts.nvrtc_builtins.as_ref(),
        parts.nvdisasm.as_ref(),
        parts.cuobjdump.as_ref(),
    ];
    files.into_iter().flatten().for_each(|f| field(f));
    for dir in &parts.include_dirs {
        TELLING_HEADERS.iter().for_each(|h| field(&dir.join(h)));
    }
    crate::request::hex(&hash.finalize())[..32].to_owned()
}

/// Keeping the answer is a convenience: a disk that takes none costs a tenth of a second each time.
fn keep(at: &PathBuf, answer: &Answer) {
    let Some(parent) = at.parent() else { return };
    let Ok(text) = serde_json::to_vec(answer) else { return };
    if std::fs::create_dir_all(parent).is_ok()
        && let Ok(file) = tempfile::NamedTempFile::new_in(parent)
        && std::fs::write(file.path(), text).is_ok()
    {
        let _ = file.persist(at);
    }
}
