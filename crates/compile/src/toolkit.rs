//! A CUDA toolkit as this crate uses it: NVRTC, ptxas, a SASS disassembler where there is one, and the headers.
//!
//! Its id names versions only, never paths: two machines with the same compiler have the same id.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Names a compiler: `cuda-13.0.88-1a2b3c4d`, the version of ptxas and a hash of NVRTC's, ptxas's and the headers' versions.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ToolkitId(pub String);

impl std::fmt::Display for ToolkitId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Where a toolkit was found, in the order of the search.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// `--toolkit DIR`
    Option,
    CudaHome,
    CudaPath,
    /// The platform's usual folder.
    System,
    /// The running Python's `nvidia/` packages.
    Python,
    /// Fetched by Warpsmith.
    Cache,
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Origin::Option => "--toolkit",
            Origin::CudaHome => "CUDA_HOME",
            Origin::CudaPath => "CUDA_PATH",
            Origin::System => "the system's folder",
            Origin::Python => "Python's packages",
            Origin::Cache => "Warpsmith's cache",
        })
    }
}

/// Major, minor, build: 13.0.88.
pub type Version = (u32, u32, u32);

/// A toolkit that was found and answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Toolkit {
    pub id: ToolkitId,
    /// Of ptxas; NVRTC's major and minor are no newer.
    pub version: Version,
    pub origin: Origin,
    /// The folder that was looked at.
    pub root: PathBuf,
    pub nvrtc: PathBuf,
    /// NVRTC loads it by name; loading it first spares it a search path.
    pub nvrtc_builtins: Option<PathBuf>,
    pub ptxas: PathBuf,
    /// In the order of the search; their files are all called `<toolkit>/...`.
    pub include_dirs: Vec<PathBuf>,
    pub nvdisasm: Option<PathBuf>,
    pub cuobjdump: Option<PathBuf>,
    /// Targets that NVRTC compiles for: 80, 86, 89, 90 ...
    pub architectures: Vec<u32>,
}

/// Which line of toolkits is wanted, `--toolkit-line`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Line {
    /// 13.x; cubins need a driver 580 or newer.
    #[default]
    V13,
    /// 12.x, for older drivers.
    V12,
}

impl Line {
    pub fn major(self) -> u32 {
        match self {
            Line::V13 => 13,
            Line::V12 => 12,
        }
    }

    /// Reads `13`, `13.0`, `12` ...
    pub fn parse(text: &str) -> Option<Line> {
        match text.split('.').next() {
            Some("13") => Some(Line::V13),
            Some("12") => Some(Line::V12),
            _ => None,
        }
    }
}

/// What a candidate and a driver ask of a toolkit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Need {
    /// Oldest (major, minor), with what asks for it.
    pub min_version: Option<((u32, u32), String)>,
    /// Targets such as `sm_89` that it has to know.
    pub targets: Vec<String>,
    /// The CUDA version that the driver speaks, (12, 4); cubins of a newer major version do not load.
    pub driver: Option<(u32, u32)>,
}

/// Targets and instructions with the first toolkit that has them. Source: PTX ISA, release notes of PTX 7.0 to 9.0, and, for e4m3
/// `mma.sync`, ptxas 12.2 that refuses it and 12.4 that takes it (facts of 2026-11-20).
const FIRST_FOR_TARGET: &[(&str, (u32, u32))] = &[
    ("sm_80", (11, 0)),
    ("sm_86", (11, 1)),
    ("sm_87", (11, 4)),
    ("sm_89", (11, 8)),
    ("sm_90", (11, 8)),
    ("sm_90a", (12, 0)),
    ("sm_100", (12, 8)),
    ("sm_100a", (12, 8)),
    ("sm_120", (12, 8)),
    ("sm_120a", (12, 8)),
    ("sm_103", (12, 9)),
    ("sm_121", (12, 9)),
];
const FIRST_FOR_TEXT: &[(&[&str], &str, (u32, u32))] = &[
    (&["mma.sync", ".e4m3"], "mma.sync with e4m3", (12, 4)),
    (&["mma.sync", ".e5m2"], "mma.sync with e5m2", (12, 4)),
    (&["wgmma."], "wgmma", (12, 0)),
    (&["cp.async.bulk"], "cp.async.bulk", (12, 0)),
    (&["tcgen05."], "tcgen05", (12, 8)),
    (&["cuda_fp8.h"], "cuda_fp8.h", (11, 8)),
    (&["cuda_fp4.h"], "cuda_fp4.h", (12, 8)),
];

impl Need {
    /// What these targets and the text of these sources ask for. A text that names an instruction is taken to use it.
    pub fn of<'a>(targets: &[String], sources: impl IntoIterator<Item = &'a str>) -> Need {
        let mut min: Option<((u32, u32), String)> = None;
        let mut raise = |version: (u32, u32), what: &str| {
            if min.as_ref().is_none_or(|(v, _)| *v < version) {
                min = Some((version, what.to_owned()));
            }
        };
        for target in targets {
            if let Some((name, version)) = FIRST_FOR_TARGET.iter().find(|(name, _)| name == target) {
                raise(*version, name);
            }
        }
        for text in sources {
            for (words, what, version) in FIRST_FOR_TEXT {
                if words.iter().all(|w| text.contains(w)) {
                    raise(*version, what);
                }
            }
        }
        Need { min_version: min, targets: targets.to_vec(), driver: None }
    }

    /// Why a toolkit does not fit, if it does not.
    pub fn objection(&self, version: Version, architectures: &[u32]) -> Option<String> {
        if let Some(((major, minor), what)) = &self.min_version
            && (version.0, version.1) < (*major, *minor)
        {
            return Some(format!("version {}.{} is too old: {what} needs {major}.{minor}", version.0, version.1));
        }
        if let Some((major, minor)) = self.driver
            && version.0 > major
        {
            return Some(format!(
                "version {}.{} is too new: the driver speaks CUDA {major}.{minor}",
                version.0, version.1
            ));
        }
        let missing = self.targets.iter().find(|t| {
            let number = t.trim_start_matches("sm_").trim_end_matches(['a', 'f']).parse().unwrap_or(0);
            !architectures.is_empty() && !architectures.contains(&number)
        });
        missing.map(|t| format!("version {}.{} does not compile for {t}", version.0, version.1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_candidate_asks_for_decides_which_toolkit_fits() {
        let targets = |t: &[&str]| t.iter().map(|t| t.to_string()).collect::<Vec<_>>();
        let rows: &[(&[&str], &str, Option<(u32, u32)>, Version, Option<&str>)] = &[
            (&["sm_89"], "", None, (13, 0, 88), None),
            (&["sm_89"], "", None, (11, 7, 0), Some("too old: sm_89 needs 11.8")),
            (&["sm_90a"], "", None, (11, 8, 0), Some("sm_90a needs 12.0")),
            (
                &["sm_89"],
                "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32",
                None,
                (12, 2, 140),
                Some("mma.sync with e4m3 needs 12.4"),
            ),
            (&["sm_89"], "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", None, (12, 4, 0), None),
            (&["sm_89"], "", Some((12, 4)), (13, 0, 88), Some("too new: the driver speaks CUDA 12.4")),
            (&["sm_89"], "", Some((12, 4)), (12, 9, 86), None),
            (&["sm_70"], "", None, (13, 0, 88), Some("does not compile for sm_70")),
        ];
        for (t, text, driver, version, want) in rows {
            let need = Need { driver: *driver, ..Need::of(&targets(t), [*text]) };
            let got = need.objection(*version, &[80, 89, 90]);
            match (&got, want) {
                (None, None) => {}
                (Some(got), Some(want)) if got.contains(want) => {}
                _ => panic!("{t:?} {text} {version:?}: {got:?}, wanted {want:?}"),
            }
        }
    }
}
