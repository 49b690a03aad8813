//! Which compiler there is, found when it is first needed; the committed layer before all.

use crate::args::Common;
use crate::error::CliError;
use crate::{output, paths, progress};
use indicatif::ProgressBar;
use std::path::Path;
use warpsmith_compile::{ArtifactCache, ChildCommand, FetchEvent, Found, Line, Need, Search, ToolError, Toolkit};

/// Where artifacts are kept.
pub fn artifact_cache() -> ArtifactCache {
    ArtifactCache::new(paths::cache_dir().join("artifacts"))
}

/// A search with the options of the command line.
pub fn request(common: &Common, need: Need, allow_fetch: bool) -> Result<Search, ToolError> {
    Ok(Search {
        explicit: common.toolkit.clone(),
        cache_dir: paths::cache_dir(),
        line: if common.toolkit_line == 12 { Line::V12 } else { Line::V13 },
        allow_fetch,
        need,
        child: ChildCommand::this_program()?,
    })
}

/// Looks for any toolkit; fetches nothing.
pub fn search(common: &Common) -> Found {
    match request(common, Need::default(), false) {
        Ok(search) => warpsmith_compile::find(&search),
        Err(_) => Found::default(),
    }
}

/// The toolkit that fits, fetched if there is none, with a progress bar.
pub fn find_or_fetch(common: &Common, need: Need) -> Result<Toolkit, ToolError> {
    let search = request(common, need, true)?;
    let mut shown = Shown { json: common.json, bar: progress::bytes(common.json), arrived: 0 };
    warpsmith_compile::find_or_fetch(&search, &mut |event| shown.event(&event))
}

/// The toolkit that fits, if this machine has one.
pub fn find(common: &Common, need: Need) -> Result<Toolkit, ToolError> {
    let found = warpsmith_compile::find(&request(common, need, false)?);
    let reasons = found.reasons();
    found.chosen.ok_or_else(|| ToolError::NoToolkit { reasons, next: "`warpsmith toolkit --fetch` gets one".into() })
}

/// One line about a toolkit.
pub fn describe(toolkit: &Toolkit) -> String {
    let (major, minor, patch) = toolkit.version;
    format!("{} (CUDA {major}.{minor}.{patch}) from {}, {}", toolkit.id.0, toolkit.origin, toolkit.root.display())
}

impl From<ToolError> for CliError {
    fn from(e: ToolError) -> Self {
        use ToolError::*;
        let code = match &e {
            NoToolkit { .. } | NoPackages { .. } | BrokenToolkit { .. } => "toolkit-missing",
            NoInstaller { .. } | NoNetwork { .. } | Altered { .. } | NotOffered { .. } => "toolkit-fetch",
            FetchedBroken { .. } | NoSpace { .. } | NoPermission { .. } | Installer { .. } | Locked { .. } => {
                "toolkit-fetch"
            }
            _ => "tool-failure",
        };
        CliError::environment(code, e.to_string())
    }
}

/// The fetch as people see it: a bar on a terminal, a line a package elsewhere.
struct Shown {
    json: bool,
    bar: ProgressBar,
    /// Bytes of the packages that are done.
    arrived: u64,
}

impl Shown {
    fn event(&mut self, event: &FetchEvent) {
        match event {
            FetchEvent::Waiting => self.say("waiting for another Warpsmith that fetches the CUDA compiler"),
            FetchEvent::Begin { line, packages, bytes } => {
                self.bar.set_length(*bytes);
                self.say(&format!(
                    "fetching the CUDA {line} compiler: {packages} packages, {} MB, once, into {}",
                    bytes >> 20,
                    short(&paths::cache_dir())
                ));
            }
            FetchEvent::Package { index, count, name, bytes } => {
                self.bar.set_message(format!("{index}/{count} {name}"));
                self.say(&format!("  {index}/{count} {name}, {} MB", bytes >> 20));
            }
            FetchEvent::Progress { bytes, .. } => self.bar.set_position(self.arrived + bytes),
            FetchEvent::PackageDone { .. } => self.arrived = self.bar.position(),
            FetchEvent::Done { id, .. } => {
                self.bar.finish_and_clear();
                self.say(&format!("fetched {}", id.0));
            }
        }
    }

    fn say(&self, text: &str) {
        if self.json {
            return;
        }
        if self.bar.is_hidden() {
            output::err(&format!("{text}\n"));
        } else {
            self.bar.println(text);
        }
    }
}

fn short(path: &Path) -> String {
    path.display().to_string()
}
