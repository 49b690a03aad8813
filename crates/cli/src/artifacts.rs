//! Where this command's artifacts come from: the committed layer, else the cache and a compiler that is found, or fetched, when it
//! is first needed. Remembers what it gave, as evidence of the run.

use crate::args::Common;
use crate::error::CliError;
use crate::toolkits;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use warpsmith_compile::{Artifact, ChildCommand, CompileFailure, Compiler, Layer, Limits, Need, Request, ToolError};
use warpsmith_eval::{ArtifactSource, Layered};

/// An [`ArtifactSource`] that remembers.
pub struct Artifacts {
    source: Layered<'static>,
    /// (candidate's canonical name, file name) -> PTX, or the log of a failure.
    kept: Mutex<BTreeMap<(String, String), String>>,
    toolkits: Mutex<Vec<String>>,
}

impl Artifacts {
    pub fn new(common: &Common) -> Result<Self, CliError> {
        // A toolkit that is asked for by name makes everything anew.
        let layer: Option<&'static Layer> = match &common.toolkit {
            Some(_) => None,
            None if warpsmith_builtin::layer().is_empty() => None,
            None => Some(Box::leak(Box::new(Layer::from_bytes(warpsmith_builtin::layer())?))),
        };
        let common = common.clone();
        let find = move |request: &Request| -> Result<Arc<Compiler>, ToolError> {
            let need = Need::of(std::slice::from_ref(&request.target), [request.source.as_str()]);
            let toolkit = toolkits::find_or_fetch(&common, need)?;
            let child = ChildCommand::this_program()?;
            Ok(Arc::new(Compiler::new(toolkit, toolkits::artifact_cache(), Limits::default(), child)))
        };
        Ok(Artifacts { source: Layered::new(layer, find), kept: Mutex::default(), toolkits: Mutex::default() })
    }

    /// What was given so far: (canonical name, file name) -> text.
    pub fn kept(&self) -> BTreeMap<(String, String), String> {
        lock(&self.kept).clone()
    }

    /// The toolkits that made it.
    pub fn toolkit_ids(&self) -> Option<String> {
        let ids = lock(&self.toolkits);
        (!ids.is_empty()).then(|| ids.join(", "))
    }
}

impl ArtifactSource for Artifacts {
    fn artifact(&self, request: &Request) -> Result<Result<Artifact, CompileFailure>, ToolError> {
        let answer = self.source.artifact(request)?;
        let (name, kept) = match &answer {
            Ok(artifact) => {
                let mut ids = lock(&self.toolkits);
                if !ids.contains(&artifact.toolkit.0) {
                    ids.push(artifact.toolkit.0.clone());
                }
                let short = artifact.ptx_sha256.get(..12).unwrap_or(&artifact.ptx_sha256);
                (format!("{}-{short}.ptx", request.target), artifact.ptx.clone())
            }
            Err(failure) => (format!("{}.log", request.target), format!("{failure}\n\n{}", failure.log())),
        };
        lock(&self.kept).insert((request.name.clone(), name), kept);
        Ok(answer)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
