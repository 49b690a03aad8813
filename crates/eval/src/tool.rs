//! A tool in front of the process that holds the device (ncu, compute-sanitizer), here or behind a launcher, and the files that it leaves.
//!
//! Here a [`Place`] is a temporary folder. There it is one in the other machine's cache: our own program, which `--on` has sent, makes it, starts
//! the tool with itself behind ([`behind`]), and on another connection is asked for what was left, which is then removed ([`serve`]).
//! It knows no metric and no finding. Limits: [`MAX_FILE`] for a file that comes back, [`SECONDS`] for an answer from there.

use crate::bench::sanitize;
use crate::profile::ncu::{self, Ncu, unavailable};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use warpsmith_cuda::worker::{Answer, Link, Remote, WorkerCommand, WorkerError, answer};
use warpsmith_spec::record::UnavailableRecord;

/// First argument of the process that finds tools for another machine and hands on what they left; the folder of all places follows.
pub const SERVE_ARG: &str = "__warpsmith-tool";
/// First argument of the process that starts a tool; its place, the tool and its arguments follow.
pub const BEHIND_ARG: &str = "__warpsmith-behind-tool";
/// Stands for our own program among a tool's arguments.
const SELF: &str = "@warpsmith";
/// Where places lie there; the script that `--on` feeds to a shell makes a path of it.
const PLACES: &str = "@cache/tools";
/// Seconds for an answer from there: ncu reads a report a few times.
const SECONDS: u64 = 400;
/// Bytes of one file that are brought back.
const MAX_FILE: u64 = 256 << 20;
/// How long a log may take to get its last line after the tool has ended.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where a tool writes.
#[derive(Debug)]
pub enum Place {
    Here(tempfile::TempDir),
    There { remote: Remote, name: String },
}

/// What a tool left.
#[derive(Debug, Default)]
pub struct Left {
    /// By name; a page of ncu's report as `raw.csv` and `source.csv`.
    pub files: BTreeMap<String, Vec<u8>>,
    /// Why a report that is there could not be read.
    pub failed: Option<UnavailableRecord>,
}

impl Left {
    pub fn text(&self, name: &str) -> String {
        self.files.get(name).map(|bytes| String::from_utf8_lossy(bytes).into_owned()).unwrap_or_default()
    }
}

/// What is to be brought back.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Wanted {
    pub files: Vec<String>,
    /// A file that is looked at until it holds these words, for a few seconds.
    pub until: Option<(String, String)>,
    /// A report, and the ncu that reads its pages.
    pub report: Option<(String, Ncu)>,
}

impl Place {
    /// On the machine on which this worker runs.
    pub fn beside(worker: &WorkerCommand) -> Result<Place, String> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        match &worker.remote {
            None => tempfile::tempdir().map(Place::Here).map_err(|e| format!("a folder for a tool's files: {e}")),
            Some(remote) => {
                let time = std::time::UNIX_EPOCH.elapsed().map_or(0, |t| t.as_nanos());
                let n = NEXT.fetch_add(1, Ordering::Relaxed);
                Ok(Place::There { remote: remote.clone(), name: format!("{time:x}-{:x}-{n}", std::process::id()) })
            }
        }
    }

    /// A file in it, as the tool is told of it.
    pub fn file(&self, name: &str) -> PathBuf {
        match self {
            Place::Here(folder) => folder.path().join(name),
            Place::There { name: place, .. } => PathBuf::from(format!("{PLACES}/{place}/{name}")),
        }
    }

    /// The worker behind a tool with these arguments.
    pub fn in_front(&self, tool: &Path, args: Vec<OsString>, worker: &WorkerCommand) -> WorkerCommand {
        let mut command = worker.clone();
        match self {
            Place::Here(_) => {
                command.program = tool.into();
                command.args = args;
                command.args.push(worker.program.clone().into());
            }
            Place::There { .. } => {
                command.args = vec![BEHIND_ARG.into(), self.file("").into(), tool.into()];
                command.args.extend(args);
                command.args.push(SELF.into());
            }
        }
        command.args.extend(worker.args.iter().cloned());
        command.env.push(("LC_ALL".into(), "C".into()));
        command
    }

    /// Brings back what the tool left. The place is empty afterwards.
    pub fn take(self, wanted: &Wanted) -> Result<Left, String> {
        match self {
            Place::Here(folder) => Ok(gather(folder.path(), wanted)),
            Place::There { remote, name } => {
                let ask = Ask::Take { place: name, wanted: wanted.clone() };
                let (said, blobs) = asked(&remote, &ask).map_err(|e| e.to_string())?;
                match said {
                    Said::Left { names, failed } => Ok(Left { files: names.into_iter().zip(blobs).collect(), failed }),
                    other => Err(format!("the other side answers something else: {other:?}")),
                }
            }
        }
    }
}

/// ncu on the machine on which this worker runs. `named` is a path there.
pub fn find_ncu(worker: &WorkerCommand, named: Option<&Path>) -> Result<Ncu, UnavailableRecord> {
    let Some(remote) = &worker.remote else { return ncu::find(named) };
    let ask = Ask::Ncu { named: named.map(|n| n.display().to_string()) };
    match asked(remote, &ask) {
        Ok((Said::Ncu { found }, _)) => found
            .map_err(|u| UnavailableRecord { why: format!("{} (there: `{}`)", u.why, remote.launcher().text()), ..u }),
        Ok((other, _)) => Err(unavailable("profiler-failed", format!("a strange answer: {other:?}"), "run again")),
        Err(e) => Err(unavailable(e.code(), e.to_string(), e.hint())),
    }
}

/// compute-sanitizer on the machine on which this worker runs. Err: why there is none, and how to get it.
pub fn find_sanitizer(worker: &WorkerCommand) -> Result<PathBuf, String> {
    let none = |place: &str| format!("compute-sanitizer is not installed{place}; {}", sanitize::HOW_TO_GET);
    let Some(remote) = &worker.remote else { return sanitize::find().ok_or_else(|| none("")) };
    match asked(remote, &Ask::Sanitizer) {
        Ok((Said::Sanitizer { program }, _)) => {
            program.map(PathBuf::from).ok_or_else(|| none(&format!(" there (`{}`)", remote.launcher().text())))
        }
        Ok((other, _)) => Err(format!("a strange answer: {other:?}")),
        Err(e) => Err(e.to_string()),
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Ask {
    Ncu { named: Option<String> },
    Sanitizer,
    Take { place: String, wanted: Wanted },
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Said {
    Ncu {
        found: Result<Ncu, UnavailableRecord>,
    },
    Sanitizer {
        program: Option<String>,
    },
    /// The files follow as blobs.
    Left {
        names: Vec<String>,
        failed: Option<UnavailableRecord>,
    },
}

impl Answer for Said {
    fn complaint(&self) -> Option<&str> {
        None
    }
}

/// One question. The connection ends with its answer: some launchers give a device to one process at a time.
fn asked(remote: &Remote, ask: &Ask) -> Result<(Said, Vec<Vec<u8>>), WorkerError> {
    let mut link: Link<Said> = Link::start(&WorkerCommand::on(remote, &[SERVE_ARG, PLACES]))?;
    let (said, blobs) = link.ask(ask, &[], SECONDS)?;
    link.finish(2);
    Ok((said, blobs.into_iter().map(|(_, bytes)| bytes).collect()))
}

/// The process on the other machine, until its input ends.
pub fn serve(places: &Path) -> i32 {
    let done = answer(|ask: Ask, _| match ask {
        Ask::Ncu { named } => (Said::Ncu { found: ncu::find(named.as_deref().map(Path::new)) }, Vec::new()),
        Ask::Sanitizer => (Said::Sanitizer { program: sanitize::find().map(|p| p.display().to_string()) }, Vec::new()),
        Ask::Take { place, wanted } => {
            // The name becomes a path that is removed: it is one plain word.
            let plain = !place.is_empty() && place.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
            let folder = places.join(if plain { place.as_str() } else { "none" });
            let left = gather(&folder, &wanted);
            if plain {
                let _ = std::fs::remove_dir_all(&folder);
            }
            let (names, blobs) = left.files.into_iter().unzip();
            (Said::Left { names, failed: left.failed }, blobs)
        }
    });
    i32::from(done.is_err())
}

/// Starts a tool there, our own program behind it, on the same streams: place, tool, arguments. Its exit code.
pub fn behind(words: &[OsString]) -> i32 {
    let [place, tool, args @ ..] = words else { return 2 };
    let Ok(own) = std::env::current_exe() else { return 3 };
    if std::fs::create_dir_all(place).is_err() {
        return 3;
    }
    let args = args.iter().map(|a| if a == SELF { own.clone().into_os_string() } else { a.clone() });
    let status = std::process::Command::new(tool).args(args).env("LC_ALL", "C").status();
    status.map_or(3, |s| s.code().unwrap_or(1))
}

/// Reads a place.
fn gather(folder: &Path, wanted: &Wanted) -> Left {
    if let Some((name, words)) = &wanted.until {
        let until = Instant::now() + PATIENCE;
        while !String::from_utf8_lossy(&read(&folder.join(name)).unwrap_or_default()).contains(words.as_str())
            && Instant::now() < until
        {
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    let plain = |name: &&String| Path::new(name.as_str()).file_name().is_some_and(|f| f == name.as_str());
    let mut left = Left::default();
    for name in wanted.files.iter().filter(plain) {
        if let Some(bytes) = read(&folder.join(name)) {
            left.files.insert(name.clone(), bytes);
        }
    }
    if let Some((name, ncu)) = &wanted.report
        && left.files.contains_key(name)
    {
        match ncu.page(&folder.join(name), "raw") {
            Ok(text) => {
                left.files.insert("raw.csv".into(), text.into_bytes());
                if let Ok(text) = ncu.page(&folder.join(name), "source") {
                    left.files.insert("source.csv".into(), text.into_bytes());
                }
            }
            Err(u) => left.failed = Some(u),
        }
    }
    left
}

fn read(file: &Path) -> Option<Vec<u8>> {
    let size = std::fs::metadata(file).ok()?.len();
    if size > MAX_FILE { None } else { std::fs::read(file).ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_here_gives_what_was_left_and_nothing_from_elsewhere() {
        let place = Place::beside(&WorkerCommand::program("warpsmith")).unwrap();
        std::fs::write(place.file("log"), "a line\nSUMMARY").unwrap();
        let wanted = Wanted {
            files: ["log", "none", "../log", "/etc/hostname"].map(String::from).to_vec(),
            until: Some(("log".into(), "SUMMARY".into())),
            report: None,
        };
        let left = place.take(&wanted).unwrap();
        assert_eq!(left.files.keys().collect::<Vec<_>>(), ["log"]);
        assert!(left.text("log").contains("a line") && left.text("none").is_empty());
    }

    #[test]
    fn the_tool_stands_in_front_and_the_worker_behind() {
        let worker = WorkerCommand::program("ours");
        let place = Place::beside(&worker).unwrap();
        let command = place.in_front(Path::new("tool"), vec!["--log".into(), place.file("log").into()], &worker);
        let words: Vec<String> = command.args.iter().map(|a| a.to_string_lossy().into_owned()).collect();
        assert_eq!(
            (command.program.as_path(), words[0].as_str(), words[2].as_str()),
            (Path::new("tool"), "--log", "ours")
        );
        assert_eq!(words.len(), 4, "the worker's own argument comes last");
    }
}
