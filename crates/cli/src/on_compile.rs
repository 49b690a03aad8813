//! Compiling on the other machine, where this one has no compiler: the request travels with every file that it includes, the artifact comes
//! back by its hash. Verdicts and hashes are those of a local compilation, because nothing of either machine is part of them.
//!
//! Both sides are this program: [`RemoteCompiler`] here, [`serve`] there, which finds or fetches a toolkit as `check` does.
//! Limits: one request at a time; 15 minutes for each, the first of which may fetch a toolkit.

use crate::args::Common;
use crate::{output, toolkits};
use clap::Parser;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use warpsmith_compile::{
    Artifact, BuildKind, ChildCommand, CompileFailure, CompileOptions, Compiler, Limits, Need, Request, ToolError,
    sha256,
};
use warpsmith_cuda::worker::{Answer, Link, Remote, WorkerCommand, WorkerError, answer};
use warpsmith_eval::ArtifactSource;

/// First argument of the process that compiles for another machine.
pub const ARG: &str = "__warpsmith-remote-compile";
const SECONDS: u64 = 900;

/// A compilation without its files, which follow as blobs: the source, then [`Ask::files`] in order.
#[derive(Debug, Serialize, Deserialize)]
struct Ask {
    name: String,
    files: Vec<File>,
    defines: Vec<(String, String)>,
    options: CompileOptions,
    entries: Vec<String>,
    target: String,
    build: BuildKind,
    toolkit_line: u8,
}

#[derive(Debug, Serialize, Deserialize)]
struct File {
    name: String,
    builtin: bool,
}

/// What comes back; blobs: the result as JSON, and the cubin if there is one.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
struct Said {
    outcome: Outcome,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Outcome {
    Compiled {
        cubin: bool,
    },
    /// The environment there failed.
    Failed {
        message: String,
    },
}

impl Answer for Said {
    fn complaint(&self) -> Option<&str> {
        None
    }
}

/// A compiler behind a launcher.
pub struct RemoteCompiler {
    remote: Remote,
    toolkit_line: u8,
    link: Mutex<Option<Link<Said>>>,
}

impl RemoteCompiler {
    pub fn new(remote: Remote, common: &Common) -> RemoteCompiler {
        RemoteCompiler { remote, toolkit_line: common.toolkit_line, link: Mutex::default() }
    }

    fn ask(&self, ask: &Ask, blobs: &[(&str, &[u8])]) -> Result<(Said, Vec<(String, Vec<u8>)>), WorkerError> {
        let mut kept = self.link.lock().unwrap_or_else(PoisonError::into_inner);
        let mut link = match kept.take() {
            Some(link) => link,
            None => Link::start(&WorkerCommand::on(&self.remote, &[ARG]))?,
        };
        let answer = link.ask(ask, blobs, SECONDS)?;
        *kept = Some(link);
        Ok(answer)
    }
}

impl ArtifactSource for RemoteCompiler {
    fn artifact(&self, request: &Request) -> Result<Result<Artifact, CompileFailure>, ToolError> {
        let resolved = match request.resolve()? {
            Ok(resolved) => resolved,
            Err(failure) => return Ok(Err(failure)),
        };
        let ask = Ask {
            name: request.name.clone(),
            files: resolved.files.iter().map(|f| File { name: f.name.clone(), builtin: f.builtin }).collect(),
            defines: request.defines.clone(),
            options: request.options.clone(),
            entries: request.entries.clone(),
            target: request.target.clone(),
            build: request.build,
            toolkit_line: self.toolkit_line,
        };
        let texts = [request.source.as_bytes()].into_iter().chain(resolved.files.iter().map(|f| &f.text[..]));
        let texts: Vec<(String, &[u8])> = texts.map(|text| (sha256(text), text)).collect();
        let blobs: Vec<(&str, &[u8])> = texts.iter().map(|(sha, text)| (sha.as_str(), *text)).collect();
        // A connection that was lost says nothing about the source: a second one is tried.
        let answer = self.ask(&ask, &blobs).or_else(|_| self.ask(&ask, &blobs));
        let (said, received) =
            answer.map_err(|e| ToolError::Elsewhere { why: e.to_string(), next: e.hint().to_string() })?;
        let mut received = received.into_iter().map(|(_, bytes)| bytes);
        let broken = || ToolError::Elsewhere { why: "its answer is not whole".into(), next: "run again".into() };
        match said.outcome {
            Outcome::Failed { message } => {
                Err(ToolError::Elsewhere { why: message, next: "see to it on that machine".into() })
            }
            Outcome::Compiled { cubin } => {
                let json = received.next().ok_or_else(broken)?;
                let mut result: Result<Artifact, CompileFailure> =
                    serde_json::from_slice(&json).map_err(|_| broken())?;
                if let Ok(artifact) = &mut result {
                    artifact.cubin = if cubin { Some(received.next().ok_or_else(broken)?) } else { None };
                    if sha256(artifact.ptx.as_bytes()) != artifact.ptx_sha256 {
                        return Err(broken());
                    }
                }
                Ok(result)
            }
        }
    }
}

/// The process on the other machine, until its input ends.
pub fn serve() -> ! {
    let done = answer(|ask: Ask, blobs: Vec<Vec<u8>>| match compile(ask, blobs) {
        Ok(result) => {
            let cubin = result.as_ref().ok().and_then(|a| a.cubin.clone());
            let outcome = Outcome::Compiled { cubin: cubin.is_some() };
            match serde_json::to_vec(&result) {
                Ok(json) => (Said { outcome }, [json].into_iter().chain(cubin).collect()),
                Err(e) => (Said { outcome: Outcome::Failed { message: e.to_string() } }, Vec::new()),
            }
        }
        Err(message) => (Said { outcome: Outcome::Failed { message } }, Vec::new()),
    });
    if let Err(e) = &done {
        output::err(&format!("{e}\n"));
    }
    std::process::exit(i32::from(done.is_err()));
}

fn compile(ask: Ask, blobs: Vec<Vec<u8>>) -> Result<Result<Artifact, CompileFailure>, String> {
    if blobs.len() != ask.files.len() + 1 {
        return Err("a file is missing".into());
    }
    let mut blobs = blobs.into_iter();
    let source = String::from_utf8(blobs.next().unwrap_or_default()).map_err(|e| e.to_string())?;
    // The candidate's own files get a folder; its name has the folders that theirs have.
    let folder = tempfile::tempdir().map_err(|e| format!("a folder for the sources: {e}"))?;
    let prefix = ask.name.rsplit_once('/').map_or(String::new(), |(before, _)| format!("{before}/"));
    let mut builtin_headers = BTreeMap::new();
    for (file, text) in ask.files.iter().zip(blobs) {
        if file.builtin {
            let text = String::from_utf8(text).map_err(|e| format!("{}: {e}", file.name))?;
            builtin_headers.insert(file.name.clone(), text);
            continue;
        }
        let name = file.name.strip_prefix(&prefix).unwrap_or(&file.name);
        let plain = name.split('/').all(|part| !matches!(part, "" | "." | "..")) && !name.contains(['\\', ':', '\0']);
        if !plain {
            return Err(format!("{name} is no plain name"));
        }
        let path = folder.path().join(name);
        let parent = path.parent().unwrap_or(folder.path());
        std::fs::create_dir_all(parent)
            .and_then(|()| std::fs::write(&path, text))
            .map_err(|e| format!("{name}: {e}"))?;
    }
    let request = Request {
        name: ask.name,
        source,
        include_root: Some(folder.path().to_path_buf()),
        builtin_headers: Arc::new(builtin_headers),
        defines: ask.defines,
        options: ask.options,
        entries: ask.entries,
        target: ask.target,
        build: ask.build,
    };
    let mut common = crate::args::Cli::try_parse_from(["warpsmith", "--json"]).map_err(|e| e.to_string())?.common;
    common.toolkit_line = ask.toolkit_line;
    let need = Need::of(std::slice::from_ref(&request.target), [request.source.as_str()]);
    let toolkit = toolkits::find_or_fetch(&common, need).map_err(|e| e.to_string())?;
    let child = ChildCommand::this_program().map_err(|e| e.to_string())?;
    let compiler = Compiler::new(toolkit, toolkits::artifact_cache(), Limits::default(), child);
    compiler.compile(&request).map_err(|e| e.to_string())
}
