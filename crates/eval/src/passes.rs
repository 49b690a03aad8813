//! Passes of gate 2 earned before on this machine, so that an unchanged kernel is not executed again.
//!
//! A pass is named by the hash of everything that made it: the PTX, the resolved plan and workspaces, workload, task, limits and
//! precision, numerics, target and the backend's version. Only clean passes are kept, and a file that cannot be read, or was written
//! for another key, is no pass: it can cost time, never turn a failure into a pass. Nothing here is ever shipped. Limit: the folder
//! is not pruned here; one pass takes about a kilobyte.

use crate::backend::NumericsChoice;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use warpsmith_compile::Artifact;
use warpsmith_spec::plan::ResolvedPlan;
use warpsmith_spec::record::{CheckOfRecord, CheckRecord, ExecutionRecord};
use warpsmith_spec::target::Target;
use warpsmith_spec::task::Task;
use warpsmith_spec::words::Precision;
use warpsmith_spec::workload::Workload;

/// Raised whenever the gate judges otherwise than before.
const GATE: u32 = 1;

/// All that a pass depends on.
pub struct PassKey<'a> {
    pub artifact: &'a Artifact,
    pub plan: &'a ResolvedPlan,
    pub workload: &'a Workload,
    pub task: &'a Task,
    pub precision: Option<Precision>,
    pub target: &'a Target,
    pub numerics: NumericsChoice,
    pub backend: String,
}

impl PassKey<'_> {
    /// The key's text, which is kept beside the pass and compared.
    fn text(&self) -> String {
        let plan = serde_json::to_string(self.plan).unwrap_or_default();
        let workload = serde_json::to_string(self.workload).unwrap_or_default();
        let lowered: Vec<(&str, &str)> =
            self.artifact.entries.iter().map(|e| (e.expression.as_str(), e.lowered.as_str())).collect();
        let task = Sha256::digest(format!("{:?}", self.task).as_bytes());
        let mut text = format!(
            "gate {GATE}\n{}\n{}\n{lowered:?}\n{plan}\n{workload}\n{:?}\n{:?}\n{}\n{}\ntask ",
            env!("CARGO_PKG_VERSION"),
            self.artifact.ptx_sha256,
            self.precision,
            self.target,
            self.numerics.as_str(),
            self.backend
        );
        for byte in task {
            let _ = write!(text, "{byte:02x}");
        }
        text
    }
}

/// What a pass left.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Pass {
    key: String,
    pub check: BTreeMap<String, CheckRecord>,
    pub execution: ExecutionRecord,
    /// The run that earned it.
    #[serde(default)]
    pub earned: Option<CheckOfRecord>,
}

/// The folder of passes.
pub struct Passes {
    folder: PathBuf,
    run: Option<CheckOfRecord>,
}

impl Passes {
    pub fn new(folder: PathBuf) -> Passes {
        Passes { folder, run: None }
    }

    /// Passes are remembered as this run's.
    #[must_use]
    pub fn earned_by(self, run: CheckOfRecord) -> Passes {
        Passes { run: Some(run), ..self }
    }

    fn path(&self, key: &str) -> PathBuf {
        let hash = Sha256::digest(key.as_bytes());
        let name = hash.iter().fold(String::new(), |mut s, b| {
            let _ = write!(s, "{b:02x}");
            s
        });
        self.folder.join(&name[..2]).join(format!("{name}.json"))
    }

    pub fn get(&self, key: &PassKey) -> Option<Pass> {
        let key = key.text();
        let pass: Pass = serde_json::from_slice(&std::fs::read(self.path(&key)).ok()?).ok()?;
        (pass.key == key).then_some(pass)
    }

    /// Keeps a pass; where the disk does not allow it, it is earned again next time.
    pub fn put(&self, key: &PassKey, check: &BTreeMap<String, CheckRecord>, execution: &ExecutionRecord) {
        let key = key.text();
        let path = self.path(&key);
        let Some(folder) = path.parent() else { return };
        let pass = Pass { key, check: check.clone(), execution: execution.clone(), earned: self.run.clone() };
        let write = || -> std::io::Result<()> {
            std::fs::create_dir_all(folder)?;
            let file = tempfile::NamedTempFile::new_in(folder)?;
            serde_json::to_writer(&file, &pass)?;
            file.persist(&path)?;
            Ok(())
        };
        // Losing a pass costs time only.
        let _ = write();
    }
}
