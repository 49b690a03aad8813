//! Where this command's artifacts come from: the committed layer, else the cache and a compiler that is found, or fetched, when it
//! is first needed. Remembers what it gave, as evidence of the run.

use crate::args::Common;
use crate::error::CliError;
use crate::on_compile::RemoteCompiler;
use crate::{on, toolkits};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use warpsmith_compile::{Artifact, ChildCommand, CompileFailure, Compiler, Layer, Limits, Need, Request, ToolError};
use warpsmith_eval::error_map::sha256;
use warpsmith_eval::{ArtifactSource, Layered};

/// Evidence of a run: (candidate's canonical name, or nothing for what all share; path under that folder) -> bytes. Sources with what they include, PTX, machine code
/// where a compiler made it here, ptxas's words, or the log of a failure.
pub type Kept = BTreeMap<(String, String), Vec<u8>>;

/// An [`ArtifactSource`] that remembers.
pub struct Artifacts {
    source: Layered<'static>,
    kept: Mutex<Kept>,
    toolkits: Mutex<Vec<String>>,
}

impl Artifacts {
    pub fn new(common: &Common) -> Result<Self, CliError> {
        Self::with(common, true)
    }

    /// With what is on this machine only: nothing is fetched.
    pub fn offline(common: &Common) -> Result<Self, CliError> {
        Self::with(common, false)
    }

    fn with(common: &Common, fetch: bool) -> Result<Self, CliError> {
        // A toolkit that is asked for by name makes everything anew.
        let layer: Option<&'static Layer> = match &common.toolkit {
            Some(_) => None,
            None if warpsmith_builtin::layer().is_empty() => None,
            None => Some(Box::leak(Box::new(Layer::from_bytes(warpsmith_builtin::layer())?))),
        };
        let common = common.clone();
        let find = move |request: &Request| -> Result<Arc<Box<dyn ArtifactSource + Send>>, ToolError> {
            let need = Need::of(std::slice::from_ref(&request.target), [request.source.as_str()]);
            // A machine without a compiler has the one that runs kernels compile them too.
            if let Some(remote) = on::opened()
                && common.toolkit.is_none()
                && toolkits::find(&common, need.clone()).is_err()
            {
                return Ok(Arc::new(Box::new(RemoteCompiler::new(remote, &common))));
            }
            let toolkit = if fetch { toolkits::find_or_fetch(&common, need)? } else { toolkits::find(&common, need)? };
            let child = ChildCommand::this_program()?;
            Ok(Arc::new(Box::new(Compiler::new(toolkit, toolkits::artifact_cache(), Limits::default(), child))))
        };
        Ok(Artifacts { source: Layered::new(layer, find), kept: Mutex::default(), toolkits: Mutex::default() })
    }

    /// What was given so far.
    pub fn kept(&self) -> Kept {
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
        let mut files = Vec::new();
        match &answer {
            Ok(artifact) => {
                let mut ids = lock(&self.toolkits);
                if !ids.contains(&artifact.toolkit.0) {
                    ids.push(artifact.toolkit.0.clone());
                }
                let short = artifact.ptx_sha256.get(..12).unwrap_or(&artifact.ptx_sha256);
                let stem = format!("compile/{}-{short}", request.target);
                files.push((format!("{stem}.ptx"), artifact.ptx.clone().into_bytes()));
                files.push((format!("{stem}.log"), artifact.log.clone().into_bytes()));
                files.extend(artifact.cubin.clone().map(|cubin| (format!("{stem}.cubin"), cubin)));
            }
            Err(failure) => {
                let text = format!("{failure}\n\n{}", failure.log());
                files.push((format!("compile/{}.log", request.target), text.into_bytes()));
            }
        }
        let mut kept = lock(&self.kept);
        for (path, bytes) in files {
            kept.insert((request.name.clone(), path), bytes);
        }
        keep_source(&mut kept, request);
        Ok(answer)
    }
}

/// The candidate's file and what it includes. Two files of one name in one run are told apart by their hash.
fn keep_source(kept: &mut Kept, request: &Request) {
    let name = warpsmith_builtin::canonical_name(&request.name);
    put(kept, &request.name, format!("source/{name}"), request.source.as_bytes());
    // What cannot be resolved is a failure of the compile gate, which says so itself.
    let Ok(Ok(resolved)) = request.resolve() else { return };
    for file in &resolved.files {
        if file.builtin {
            // The same for all candidates, so the run keeps it once.
            kept.entry((String::new(), format!("include/{}", file.name))).or_insert_with(|| file.text.clone());
        } else {
            put(kept, &request.name, format!("source/{}", file.name), &file.text);
        }
    }
}

fn put(kept: &mut Kept, name: &str, mut path: String, bytes: &[u8]) {
    if kept.get(&(name.to_string(), path.clone())).is_some_and(|there| there != bytes) {
        let hash = &sha256(bytes)[..12];
        path = match path.rsplit_once('.') {
            Some((stem, ending)) => format!("{stem}-{hash}.{ending}"),
            None => format!("{path}-{hash}"),
        };
    }
    kept.insert((name.to_string(), path), bytes.to_vec());
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
