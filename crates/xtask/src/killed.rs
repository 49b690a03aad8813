//! Loops that are killed (SIGKILL) at random moments and gone on with, until they have been killed so often: `cargo xtask killed N`, and a
//! test of the command line with few.
//!
//! Each loop ends as an undisturbed one with the same seed does: the same best, evaluations, verdicts and archive; its journal is whole, each
//! evaluation is in it once, and it works through again. Moments are drawn by growth of the journal and by lot, so none is left out; what is
//! asserted does not depend on where they fell.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

#[path = "times.rs"]
mod times;

/// Budget of one loop: a few kernels at the smallest shape.
const EVALUATIONS: &str = "12";
/// Kills of one loop at most; then it goes on to its end.
const KILLS_OF_ONE: usize = 10;

/// Every other loop is ranked by replayed times, and may end by a criterion about a peer, so that baselines and re-measurements are cut off too.
const TIMES: [times::Row; 3] =
    [("sdpa:auto", "", "us = 9.5"), ("*", "BLOCK_M = 128", "us = 6.5"), ("*", "", "us = 10.0")];
const CRITERIA: &str = "\n[accept]\ncriteria = [\"speedup(best_peer) >= 1.4\"]\n";

/// Runs loops until `kills` kills were made, and says how many loops that took.
pub fn run(program: &Path, folder: &Path, kills: usize, seed: u64) -> Result<String, String> {
    let (mut made, mut loops, mut lots) = (0, 0, Lots(seed | 1));
    write_task(folder).map_err(|e| e.to_string())?;
    while made < kills {
        let one = One { program, folder: folder.to_path_buf(), seed: loops % 4 };
        made += one.killed(&format!("killed-{loops}"), (kills - made).min(KILLS_OF_ONE), &mut lots)?;
        loops += 1;
        if loops as usize > 20 * kills + 20 {
            return Err(format!("{loops} loops ended before they could be killed"));
        }
    }
    Ok(format!("{made} kills of {loops} loops; all went on to the end of an undisturbed one"))
}

/// The task with its criterion, and the times.
fn write_task(folder: &Path) -> std::io::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap_or(Path::new("."));
    let own = folder.join("own/fp8_sdpa");
    std::fs::create_dir_all(&own)?;
    let task = std::fs::read_to_string(root.join("tasks/fp8_sdpa/task.toml"))?;
    std::fs::write(own.join("task.toml"), task + CRITERIA)?;
    std::fs::write(folder.join("times.toml"), times::file(&TIMES))
}

struct One<'a> {
    program: &'a Path,
    folder: PathBuf,
    seed: u64,
}

impl One<'_> {
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.program);
        command.args(arguments).current_dir(&self.folder).env("XDG_CACHE_HOME", self.folder.join("cache"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    /// One loop, killed so often at most; how often it was.
    fn killed(&self, name: &str, most: usize, lots: &mut Lots) -> Result<usize, String> {
        let seed = self.seed.to_string();
        let begin = |name: &str| {
            let words = ["evolve", "--shapes", "tiny", "--variant", "full", "--budget", EVALUATIONS];
            let backend: &[&str] = if self.seed.is_multiple_of(2) {
                &["--backend", "cpu"]
            } else {
                &["level_07", "--backend", "fake:times.toml", "--task", "own/fp8_sdpa", "--until-accepted"]
            };
            [&words[..], backend, &["--seed", &seed, "--out", name]]
                .concat()
                .into_iter()
                .map(str::to_string)
                .collect::<Vec<_>>()
        };
        let whole = format!("whole-{seed}");
        if !self.folder.join(&whole).exists() {
            self.ended(&begin(&whole))?;
        }
        let mut kills = 0;
        let journal = self.folder.join(name).join("journal.jsonl");
        let lines = || std::fs::read(&journal).map_or(0, |b| b.iter().filter(|b| **b == b'\n').count());
        let mut arguments = begin(name);
        while kills < most {
            let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
            let mut child = self.command(&words).spawn().map_err(|e| e.to_string())?;
            let until = lines() + (lots.draw() % 4) as usize;
            let mut over = false;
            while !over && lines() <= until {
                over = child.try_wait().map_err(|e| e.to_string())?.is_some();
                std::thread::sleep(Duration::from_millis(1));
            }
            std::thread::sleep(Duration::from_micros(lots.draw() % 30_000));
            if over || child.try_wait().map_err(|e| e.to_string())?.is_some() {
                // One that ended before it could be killed is not begun again.
                if journal.exists() {
                    arguments = vec!["evolve".into(), "--resume".into(), name.into()];
                }
                break;
            }
            child.kill().map_err(|e| e.to_string())?;
            child.wait().map_err(|e| e.to_string())?;
            kills += 1;
            if journal.exists() {
                arguments = vec!["evolve".into(), "--resume".into(), name.into()];
            }
        }
        self.ended(&arguments)?;
        self.same(name, &whole)?;
        self.ended(&["evolve".into(), "--rerun".into(), name.into()])?;
        Ok(kills)
    }

    fn ended(&self, arguments: &[String]) -> Result<(), String> {
        let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let output = self.command(&words).stderr(Stdio::piped()).output().map_err(|e| e.to_string())?;
        if output.status.success() {
            return Ok(());
        }
        Err(format!("{arguments:?}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr)))
    }

    fn same(&self, name: &str, whole: &str) -> Result<(), String> {
        let summary = |name: &str| -> Result<Value, String> {
            let text = std::fs::read_to_string(self.folder.join(name).join("summary.json"));
            serde_json::from_str(&text.map_err(|e| e.to_string())?).map_err(|e| e.to_string())
        };
        let (killed, undisturbed) = (summary(name)?, summary(whole)?);
        for field in ["start", "best", "evaluations", "proposals", "verdicts", "archive", "finished"] {
            if killed[field] != undisturbed[field] {
                return Err(format!("{field} of {name}: {} is not {}", killed[field], undisturbed[field]));
            }
        }
        let journal = std::fs::read_to_string(self.folder.join(name).join("journal.jsonl"));
        let mut evaluated = Vec::new();
        for (seq, line) in journal.map_err(|e| e.to_string())?.lines().enumerate() {
            let event: Value = serde_json::from_str(line).map_err(|e| format!("{name}, line {}: {e}", seq + 1))?;
            if event["seq"] != seq as u64 {
                return Err(format!("{name}: line {} has the number {}", seq + 1, event["seq"]));
            }
            match event["event"].as_str() {
                Some("evaluated") => evaluated.push(event["id"].as_u64()),
                // Once as well, under a number that no solution has.
                Some("baselined") => evaluated.push(None),
                _ => {}
            }
        }
        let all = evaluated.len();
        evaluated.sort_unstable();
        evaluated.dedup();
        if evaluated.len() == all { Ok(()) } else { Err(format!("{name}: an evaluation is journaled twice")) }
    }
}

/// Numbers that only have to differ (xorshift64).
struct Lots(u64);

impl Lots {
    fn draw(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}
