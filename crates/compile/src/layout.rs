//! How the parts of a toolkit lie on disk: NVIDIA's installers, the wheels of the 13.x line, and those of the 12.x line with one
//! folder for each package.

use std::path::{Path, PathBuf};

/// Files found under one folder; nothing has been run yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Parts {
    pub nvrtc: PathBuf,
    pub nvrtc_builtins: Option<PathBuf>,
    pub ptxas: PathBuf,
    pub include_dirs: Vec<PathBuf>,
    pub nvdisasm: Option<PathBuf>,
    pub cuobjdump: Option<PathBuf>,
}

/// Finds a toolkit's parts under a folder, which may be the toolkit itself, a folder of Python packages, or its `nvidia` folder.
/// The error says what is missing.
pub(crate) fn discover(dir: &Path) -> Result<Parts, String> {
    if !dir.is_dir() {
        return Err("no such folder".into());
    }
    let mut why = None;
    let packages = [dir.join("nvidia"), dir.to_path_buf()];
    let mut roots: Vec<Vec<PathBuf>> = vec![vec![dir.to_path_buf()]];
    for base in &packages {
        for line in ["cu13", "cu12"] {
            roots.push(vec![base.join(line)]);
        }
        roots.push(
            ["cuda_nvrtc", "cuda_nvcc", "cuda_runtime", "cuda_cccl", "cuda_nvdisasm", "cuda_cuobjdump", "cu13"]
                .map(|p| base.join(p))
                .to_vec(),
        );
    }
    for root in roots {
        match parts(&root) {
            Ok(parts) => return Ok(parts),
            // The first reason that is about more than an absent folder says most.
            Err(e) if root.iter().any(|r| r.is_dir()) && why.is_none() => why = Some(e),
            Err(_) => {}
        }
    }
    Err(why.unwrap_or_else(|| "it has no CUDA compiler".into()))
}

/// The parts in these folders taken together.
fn parts(roots: &[PathBuf]) -> Result<Parts, String> {
    let exe = std::env::consts::EXE_SUFFIX;
    let program = |name: &str| roots.iter().map(|r| r.join("bin").join(format!("{name}{exe}"))).find(|p| p.is_file());
    let (nvrtc, builtins) = roots
        .iter()
        .flat_map(|r| ["lib64", "lib", "lib/x64", "bin/x86_64", "bin/x64", "bin"].map(|l| r.join(l)))
        .find_map(|folder| libraries(&folder))
        .ok_or("it has no NVRTC library")?;
    let ptxas = program("ptxas").ok_or("it has no ptxas")?;
    let mut include_dirs = Vec::new();
    for root in roots {
        for sub in ["include", "include/cccl"] {
            let folder = root.join(sub);
            if folder.is_dir() {
                include_dirs.push(folder);
            }
        }
    }
    if !include_dirs.iter().any(|d| d.join("cuda_fp16.h").is_file()) {
        return Err("it has no headers (cuda_fp16.h)".into());
    }
    Ok(Parts {
        nvrtc,
        nvrtc_builtins: builtins,
        ptxas,
        include_dirs,
        nvdisasm: program("nvdisasm"),
        cuobjdump: program("cuobjdump"),
    })
}

/// NVRTC and its built-ins in a folder, whatever the platform calls them: `libnvrtc.so.13`, `nvrtc64_130_0.dll`.
fn libraries(folder: &Path) -> Option<(PathBuf, Option<PathBuf>)> {
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .ok()?
        .filter_map(|e| e.ok()?.file_name().into_string().ok())
        .filter(|n| !n.contains(".alt.") && !n.contains("static"))
        .collect();
    // The longest name is the fullest version; the plain link may be absent.
    names.sort_by_key(|n| (std::cmp::Reverse(n.len()), n.clone()));
    let nvrtc =
        names.iter().find(|n| n.starts_with("libnvrtc.so") || (n.starts_with("nvrtc64_") && n.ends_with(".dll")))?;
    let builtins = names
        .iter()
        .find(|n| n.starts_with("libnvrtc-builtins.so") || (n.starts_with("nvrtc-builtins64_") && n.ends_with(".dll")));
    Some((folder.join(nvrtc), builtins.map(|b| folder.join(b))))
}
