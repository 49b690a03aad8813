//! Where artifacts come from: the committed layer, the cache, or a toolkit. The gates ask; who answers is the caller's choice.

use std::sync::{Arc, Mutex};
use warpsmith_compile::{Artifact, CompileFailure, Compiler, Layer, Request, ToolError};

/// Answers a compile request. The outer error is the environment's, the inner one the candidate's.
pub trait ArtifactSource: Sync {
    fn artifact(&self, request: &Request) -> Result<Result<Artifact, CompileFailure>, ToolError>;
}

impl ArtifactSource for Compiler {
    fn artifact(&self, request: &Request) -> Result<Result<Artifact, CompileFailure>, ToolError> {
        self.compile(request)
    }
}

impl ArtifactSource for Box<dyn ArtifactSource + Send> {
    fn artifact(&self, request: &Request) -> Result<Result<Artifact, CompileFailure>, ToolError> {
        (**self).artifact(request)
    }
}

type Found = Arc<dyn ArtifactSource + Send>;

/// The layer first, then a compiler, which is looked for (or fetched) only when the layer does not have the answer.
pub struct Layered<'a> {
    layer: Option<&'a Layer>,
    find: Box<dyn Fn(&Request) -> Result<Found, ToolError> + Send + Sync + 'a>,
    /// By target: another target may need another toolkit.
    found: Mutex<Vec<(String, Found)>>,
}

impl<'a> Layered<'a> {
    /// `layer` is None where a toolkit was asked for by name. `find` is called once for each target.
    pub fn new<S: ArtifactSource + Send + 'static>(
        layer: Option<&'a Layer>,
        find: impl Fn(&Request) -> Result<Arc<S>, ToolError> + Send + Sync + 'a,
    ) -> Layered<'a> {
        let find = move |request: &Request| find(request).map(|found| found as Found);
        Layered { layer, find: Box::new(find), found: Mutex::default() }
    }

    fn compiler(&self, request: &Request) -> Result<Found, ToolError> {
        let mut found = self.found.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some((_, compiler)) = found.iter().find(|(target, _)| *target == request.target) {
            return Ok(compiler.clone());
        }
        let compiler = (self.find)(request)?;
        found.push((request.target.clone(), compiler.clone()));
        Ok(compiler)
    }
}

impl ArtifactSource for Layered<'_> {
    fn artifact(&self, request: &Request) -> Result<Result<Artifact, CompileFailure>, ToolError> {
        if let Some(answer) = self.layer.and_then(|layer| layer.lookup(request)) {
            return Ok(answer);
        }
        self.compiler(request)?.artifact(request)
    }
}
