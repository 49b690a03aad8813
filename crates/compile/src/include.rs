//! The include resolver: which files, besides the toolkit's, a source reads, and whether they are its business.
//!
//! A quoted include may name a file in the candidate's folder (not one that lies outside it, nor through `..` or a link) or a header that
//! Warpsmith carries; an include in angle brackets, a header that Warpsmith carries or one of the toolkit's. Everything else is refused
//! before any compiler sees it, whether or not an `#if` would skip it. What is found is copied under its canonical name and goes into the
//! artifact's hash. The compiler's process is fenced in besides (`child::sandbox`), where the system can do that.
//!
//! Knows nothing of macros: an include whose name is a macro is refused, because nobody could say what it reads.

use crate::artifact::CompileFailure;
use crate::request::Request;
use crate::scan::{self, Directive, Target};
use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};

/// Most files one candidate may include.
const MAX_FILES: usize = 256;
/// Largest included file.
const MAX_FILE_BYTES: u64 = 4 << 20;
/// Largest sum of all.
const MAX_TOTAL_BYTES: u64 = 16 << 20;

/// A file that the source includes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IncludedFile {
    /// Canonical: relative to the same root as the request's name, or, if built in, as it is included.
    pub name: String,
    pub text: Vec<u8>,
    pub builtin: bool,
}

/// All files that a source includes, sorted by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resolved {
    pub files: Vec<IncludedFile>,
}

/// Names that the compiler's working folder keeps for itself.
const RESERVED: [&str; 4] = [".toolkit", ".builtin", ".shim", ".kernel."];

/// Whether a name is relative, has no `.`, `..` or empty part, and no character that a path or a PTX string could misread.
pub(crate) fn is_canonical(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 512
        && name.split('/').all(|part| !matches!(part, "" | "." | ".."))
        && !RESERVED.iter().any(|r| name.starts_with(r))
        && !name.contains(['\\', ':', '"', '<', '>', '|', '?', '*'])
        && !name.chars().any(char::is_control)
}

enum Origin {
    /// In the candidate's folder; the name is relative to it.
    Candidate(String),
    Builtin(String),
}

/// Walks all includes, breadth first.
pub(crate) fn resolve(request: &Request) -> Result<Resolved, CompileFailure> {
    // The request's name may have folders in front: those of the candidate's files get the same.
    let prefix = request.name.rsplit_once('/').map_or(String::new(), |(folder, _)| format!("{folder}/"));
    let own_name = &request.name[prefix.len()..];
    let root = match &request.include_root {
        Some(path) => std::fs::canonicalize(path).ok(),
        None => None,
    };
    let mut files: BTreeMap<(bool, String), Vec<u8>> = BTreeMap::new();
    let mut total = 0u64;
    let mut queue: VecDeque<(Origin, Vec<u8>)> = VecDeque::new();
    queue.push_back((Origin::Candidate(own_name.to_owned()), request.source.clone().into_bytes()));

    while let Some((origin, text)) = queue.pop_front() {
        let (shown, folder) = match &origin {
            Origin::Candidate(name) => (format!("{prefix}{name}"), Some(parent(name))),
            Origin::Builtin(name) => (name.clone(), None),
        };
        for Directive { line, target } in scan::directives(&text) {
            let refuse = |name: &str, why: String| CompileFailure::UnsafeInclude {
                file: shown.clone(),
                name: name.to_owned(),
                line,
                why,
            };
            let (name, quoted, probe) = match target {
                Target::Quoted(name) => (name, true, false),
                Target::Angled(name) => (name, false, false),
                Target::ProbeQuoted(name) => (name, true, true),
                Target::ProbeAngled(name) => (name, false, true),
                Target::Macro(text) => {
                    return Err(refuse(
                        &text,
                        "its name is a macro's, so that nobody can say which file it reads; write the name itself"
                            .into(),
                    ));
                }
                Target::Forbidden(what) => {
                    return Err(refuse(&what, format!("{what} is not allowed in a candidate")));
                }
            };
            check_name(&name).map_err(|why| refuse(&name, why))?;
            let base = match (&origin, quoted) {
                (Origin::Candidate(_), true) => folder.as_deref(),
                _ => None,
            };
            let found = find(&name, base, root.as_deref(), request).map_err(|why| refuse(&name, why))?;
            let Some((found, text)) = found else { continue };
            let key = match &found {
                Origin::Candidate(name) if name == own_name => continue,
                Origin::Candidate(name) => (false, format!("{prefix}{name}")),
                Origin::Builtin(name) => (true, name.clone()),
            };
            if probe && text.is_none() {
                continue;
            }
            if files.contains_key(&key) {
                continue;
            }
            let text = match text {
                Some(text) => text,
                None => continue,
            };
            total += text.len() as u64;
            if files.len() >= MAX_FILES {
                return Err(refuse(&name, format!("the candidate includes more than {MAX_FILES} files")));
            }
            if total > MAX_TOTAL_BYTES {
                return Err(refuse(&name, format!("the included files have more than {} MiB", MAX_TOTAL_BYTES >> 20)));
            }
            files.insert(key, text.clone());
            queue.push_back((found, text));
        }
    }
    let files = files.into_iter().map(|((builtin, name), text)| IncludedFile { name, text, builtin }).collect();
    Ok(Resolved { files })
}

fn parent(name: &str) -> String {
    name.rsplit_once('/').map_or(String::new(), |(folder, _)| folder.to_owned())
}

/// Refuses names that no file of the toolkit's or the candidate's can have.
fn check_name(name: &str) -> Result<(), String> {
    let bytes = name.as_bytes();
    let drive = bytes.len() >= 2 && bytes[1] == b':' && bytes[0].is_ascii_alphabetic();
    if name.is_empty() {
        return Err("it names no file".into());
    }
    if name.starts_with(['/', '\\', '~']) || drive {
        return Err(
            "absolute paths are not allowed; only files of the toolkit and of the candidate's folder are".into()
        );
    }
    if name.contains('\\') || name.chars().any(char::is_control) {
        return Err("write folders with /".into());
    }
    // A name that climbs above its start anywhere leaves some root.
    let mut depth = 0i32;
    for part in name.split('/') {
        match part {
            "" | "." => {}
            ".." => depth -= 1,
            _ => depth += 1,
        }
    }
    if depth < -64 || name.len() > 512 {
        return Err("the name is too long".into());
    }
    Ok(())
}

/// Joins a name to a folder inside the root; `None` where `..` climbs out of it.
fn join(folder: &str, name: &str) -> Option<String> {
    let mut parts: Vec<&str> = folder.split('/').filter(|p| !p.is_empty()).collect();
    for part in name.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// Finds the file behind a name. `Ok(None)`: neither the candidate's nor built in, so the toolkit's or nobody's, which the compiler will say.
fn find(
    name: &str,
    base: Option<&str>,
    root: Option<&Path>,
    request: &Request,
) -> Result<Option<(Origin, Option<Vec<u8>>)>, String> {
    if let Some(text) = request.builtin_headers.get(name) {
        return Ok(Some((Origin::Builtin(name.to_owned()), Some(text.clone().into_bytes()))));
    }
    let Some(base) = base else {
        return if name.split('/').any(|p| p == "..") {
            Err("it leaves the folders of the toolkit's headers".into())
        } else {
            Ok(None)
        };
    };
    let Some(relative) = join(base, name) else {
        return Err("it leaves the candidate's folder".into());
    };
    let Some(root) = root else { return Ok(None) };
    match read_inside(root, &relative)? {
        Some(text) => {
            if !is_canonical(&relative) {
                return Err("its name has characters that a candidate's file may not have".into());
            }
            Ok(Some((Origin::Candidate(relative), Some(text))))
        }
        None => Ok(None),
    }
}

/// Reads a plain file that really lies under the root, links followed.
fn read_inside(root: &Path, relative: &str) -> Result<Option<Vec<u8>>, String> {
    let path: PathBuf = root.join(relative);
    let real = match std::fs::canonicalize(&path) {
        Ok(real) => real,
        Err(_) => return Ok(None),
    };
    if !real.starts_with(root) {
        return Err("it is a link that leaves the candidate's folder".into());
    }
    let meta = std::fs::metadata(&real).map_err(|e| format!("it cannot be read: {e}"))?;
    if !meta.is_file() {
        return Err("it is no plain file".into());
    }
    if meta.len() > MAX_FILE_BYTES {
        return Err(format!("it has {} bytes, more than {} MiB", meta.len(), MAX_FILE_BYTES >> 20));
    }
    // Read no more than the limit even if the file grows meanwhile.
    let mut text = Vec::new();
    use std::io::Read;
    std::fs::File::open(&real)
        .and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_end(&mut text))
        .map_err(|e| format!("it cannot be read: {e}"))?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(format!("it has more than {} MiB", MAX_FILE_BYTES >> 20));
    }
    Ok(Some(text))
}
