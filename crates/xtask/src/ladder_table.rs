//! README's table of the ladder: what each level was expected to win over the one before, and what it won in a run of `warpsmith bench`.
//!
//! Expectations are `kernels/attention/ladder/history.toml`; the measurement is the newest `benches/results/*-ladder.json`, the summary.json of
//! `warpsmith bench --task fp8_sdpa --baselines level_00 ...` on a GPU. Without one the table says that nothing was measured. `tidy` sees
//! that the table is fresh.

use serde::Deserialize;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

const BEGIN: &str = "<!-- ladder-table: made by `cargo xtask ladder-table`, from benches/results -->";
const END: &str = "<!-- /ladder-table -->";
/// What is measured: the shape that the kernels are written for.
const SHAPE: &str = "mission";

#[derive(Deserialize)]
struct History {
    level: Vec<Level>,
}

#[derive(Deserialize)]
struct Level {
    name: String,
    change: String,
    expected: Option<[f64; 2]>,
    on: Option<String>,
}

/// Writes the table into README.md.
///
/// # Errors
/// A file that cannot be read or written, or the README has no place for the table.
pub fn write(root: &Path) -> Result<(), String> {
    let (readme, fresh) = both(root)?;
    if readme != fresh {
        fs::write(root.join("README.md"), fresh).map_err(|e| format!("README.md: {e}"))?;
    }
    Ok(())
}

/// Why the table is not fresh.
///
/// # Errors
/// As [`write`], or the table differs from what would be made now.
pub fn check(root: &Path) -> Result<(), String> {
    let (readme, fresh) = both(root)?;
    if readme == fresh {
        Ok(())
    } else {
        Err("README.md: the ladder's table is stale: cargo xtask ladder-table".into())
    }
}

/// The README as it is, and as it has to be.
fn both(root: &Path) -> Result<(String, String), String> {
    let read = |path: PathBuf| fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()));
    let readme = read(root.join("README.md"))?;
    let history: History =
        toml::from_str(&read(root.join("kernels/attention/ladder/history.toml"))?).map_err(|e| e.to_string())?;
    let (before, rest) = readme.split_once(BEGIN).ok_or("README.md has no place for the ladder's table")?;
    let (_, after) = rest.split_once(END).ok_or("README.md: the ladder's table has no end")?;
    let run = match newest(root) {
        None => None,
        Some(path) => {
            let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
            let run: Value = serde_json::from_str(&read(path)?).map_err(|e| format!("{name}: {e}"))?;
            Some((name, run))
        }
    };
    let table = table(&history, run.as_ref().map(|(name, run)| (name.as_str(), run)));
    Ok((readme.clone(), format!("{before}{BEGIN}\n{table}{END}{after}")))
}

/// Names begin with a date.
fn newest(root: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(root.join("benches/results")).ok()?;
    let fits = |p: &PathBuf| p.file_name().is_some_and(|n| n.to_string_lossy().ends_with("-ladder.json"));
    entries.filter_map(|e| Some(e.ok()?.path())).filter(fits).max()
}

fn table(history: &History, run: Option<(&str, &Value)>) -> String {
    let mut text = String::new();
    match run {
        None => text.push_str("Not measured yet; expected gains only.\n\n"),
        Some((name, run)) => {
            let results = run["results"].as_array();
            let m = results.and_then(|r| r.iter().find_map(|r| r.get("measurement")));
            let device = m.and_then(|m| m["device"].as_str()).unwrap_or("an unnamed device");
            let mhz = m.and_then(|m| m["conditions"]["sm_mhz"].as_u64());
            let clock = mhz.map_or(String::new(), |mhz| format!(", SM {mhz} MHz"));
            let started = run["run"]["started"].as_str().unwrap_or("").get(..10).unwrap_or("");
            text.push_str(&format!(
                "{SHAPE} (1x8x512x64), e4m3, no mask, CUDA-graph replay with cold inputs, on {device}{clock}, {started}: [run](benches/results/{name}).\n\n"
            ));
        }
    }
    text.push_str(
        "| level | what changed | expected gain | measured gain | us | against level_00 |\n|---|---|---|---|---|---|\n",
    );
    let time = |name: &str| run.and_then(|(_, run)| median(run, name));
    let mut before: Option<f64> = None;
    let first = history.level.first().and_then(|l| time(&l.name));
    for level in &history.level {
        let us = time(&level.name);
        let expected = level.expected.map_or("-".into(), |[low, high]| {
            let on = level.on.as_ref().filter(|on| *on != "any").map_or(String::new(), |on| format!(" ({on})"));
            format!("{low} to {high}{on}")
        });
        let ratio = |from: Option<f64>| from.zip(us).map_or("-".into(), |(a, b)| format!("{:.2}", a / b));
        text.push_str(&format!(
            "| {} | {} | {expected} | {} | {} | {} |\n",
            level.name,
            level.change,
            ratio(before),
            us.map_or("-".into(), |us| format!("{us:.1}")),
            ratio(first)
        ));
        before = us;
    }
    text
}

/// The median of a level that passed on a GPU, at [`SHAPE`], without a mask.
fn median(run: &Value, level: &str) -> Option<f64> {
    let fits = |r: &&Value| {
        let name = r["candidate"].as_str().unwrap_or("").trim_end_matches(".cu");
        name.rsplit('/').next() == Some(level)
            && r["shape"] == SHAPE
            && r["causal"] == false
            && r["format"] == "e4m3"
            && r["verdict"] == "passed"
            && r["backend"] == "gpu"
    };
    run["results"].as_array()?.iter().find(fits)?["measurement"]["methods"]["graph_cold"]["median_us"].as_f64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn gains_are_those_of_the_run_and_nothing_is_made_up() {
        let history: History = toml::from_str(
            "[[level]]\nname = 'a'\nchange = 'x'\n[[level]]\nname = 'b'\nchange = 'y'\nexpected = [1.5, 2]\n",
        )
        .expect("it is a history");
        let result = |name: &str, us: f64, backend: &str| {
            json!({"candidate": format!("k/{name}.cu"), "shape": SHAPE, "causal": false, "format": "e4m3", "verdict": "passed", "backend": backend,
                   "measurement": {"device": "D", "conditions": {}, "methods": {"graph_cold": {"median_us": us}}}})
        };
        let run = |backend| json!({"run": {"started": "2026-11-21T00:00:00Z"}, "results": [result("a", 30.0, backend), result("b", 10.0, backend)]});
        let text = table(&history, Some(("f.json", &run("gpu"))));
        assert!(text.contains("| b | y | 1.5 to 2 | 3.00 | 10.0 | 3.00 |") && text.contains("on D"), "{text}");
        assert!(table(&history, Some(("f.json", &run("fake")))).contains("| b | y | 1.5 to 2 | - | - | - |"));
        assert!(table(&history, None).contains("Not measured yet"));
    }
}
