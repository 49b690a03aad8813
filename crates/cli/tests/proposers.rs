//! `warpsmith evolve` with proposers that are asked, as a user runs it: a model behind a scripted server that speaks the real formats, and
//! commands. Kernels and lever settings are those of the layer, so there is neither toolkit nor network.

mod common;
#[path = "../../evolve/tests/server/mod.rs"]
mod server;

use common::{Place, root, text};
use serde_json::Value;
use server::{Say, Server};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const KEY: &str = "sk-never-to-be-written-42";

fn summary(place: &Place, run: &str) -> Value {
    serde_json::from_str(&fs::read_to_string(place.path().join(run).join("summary.json")).unwrap()).unwrap()
}

fn events(place: &Place, run: &str) -> Vec<Value> {
    let journal = fs::read_to_string(place.path().join(run).join("journal.jsonl")).unwrap();
    journal.lines().map(|l| serde_json::from_str(l).unwrap()).collect()
}

fn files(folder: &Path) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|e| e.unwrap().path());
    entries.flat_map(|p| if p.is_dir() { files(&p) } else { vec![p] }).collect()
}

fn kernel(path: &str) -> String {
    let name = Path::new(path).file_stem().unwrap().to_string_lossy().into_owned();
    let source = fs::read_to_string(root().join(path)).unwrap();
    format!("Here is my idea.\n\nname: {name}\nthought: THOUGHT of {name}\n```cuda\n{source}```\nGood luck!")
}

/// From a right candidate: another right one, a wrong one, a rate limit, a refusal, nonsense, prose, the same again.
fn script(n: usize) -> Say {
    match n {
        0 => Say::Text(kernel("tests/candidates/right/noinline_calls.cu"), 900, 90),
        1 => Say::Status(429, "slow down".into(), Some("0")),
        2 => Say::Text(kernel("tests/candidates/wrong/off_by_one_key.cu"), 900, 90),
        3 => Say::Refuses,
        4 => Say::Nonsense,
        5 => Say::Text("I would use tensor cores.".into(), 900, 9),
        6 => Say::Text(kernel("tests/candidates/right/noinline_calls.cu").replace("{\n", "{  // again\n"), 900, 90),
        7 => Say::TooLong(kernel("tests/candidates/right/local_array.cu")[..900].to_string()),
        8 => Say::Text("z".repeat(2 << 20), 900, 90),
        _ => Say::Text(kernel("tests/candidates/right/template_instance.cu"), 900, 90),
    }
}

#[test]
fn a_model_is_asked_in_each_format_and_each_variant() {
    let start = root().join("tests/candidates/right/local_array.cu").display().to_string();
    for (provider, variant) in [("openai", "free"), ("anthropic", "insight"), ("ollama", "full")] {
        let place = Place::new();
        fs::write(place.path().join("key"), format!("{KEY}\n")).unwrap();
        let server = Server::start(|n, _| script(n));
        let (model, base) = (format!("llm:{provider}/some-model"), server.url.clone());
        let arguments = [
            "evolve",
            "--backend",
            "cpu",
            &start,
            "--shapes",
            "tiny",
            "--proposer",
            &model,
            "--base-url",
            &base,
            "--key-file",
            "key",
            "--variant",
            variant,
            "--budget",
            "evaluations=4,calls=20,usd=5",
            "--price",
            "1,10",
            "--batch",
            "1",
            "--out",
            "r",
        ];
        let output = place.run(&arguments);
        assert_eq!(output.status.code(), Some(0), "{provider}: {}", text(&output));
        let record = summary(&place, "r");
        assert_eq!(
            (record["evaluations"].as_u64(), record["variant"].as_str()),
            (Some(4), Some(variant)),
            "{provider}: {record}"
        );
        assert_eq!(record["verdicts"]["incorrect"], 1, "{provider}: {record}");
        assert!(
            record["spent"]["usd"].as_f64() > Some(0.0) && record["spent"]["tokens"].as_u64() > Some(2000),
            "{record}"
        );
        let best = record["best"]["candidate"].as_str().unwrap().to_string();
        assert_eq!(
            place.run(&["check", &best, "--shapes", "tiny", "--out", "c"]).status.code(),
            Some(0),
            "{provider}: {best}"
        );
        for file in files(&place.path().join("r")) {
            assert!(!String::from_utf8_lossy(&fs::read(&file).unwrap()).contains(KEY), "{}", file.display());
        }
        assert!(!text(&output).contains(KEY));
        let last = server.prompts().last().unwrap().clone();
        assert_eq!(last.contains("## Insights"), variant != "free", "{provider}: {last}");
        assert_eq!(last.contains("## Earlier solutions"), variant == "full", "{provider}: {last}");
        assert_eq!(last.contains("clocks by pipe"), variant != "free", "{provider}: {last}");
        assert_eq!(place.run(&["evolve", "--rerun", "r"]).status.code(), Some(0));
    }
}

/// A command that is good, wrong, crashing, hanging and cheating by turns.
const AGENT: &str = r#"
n=$(cat n 2>/dev/null || echo 0); echo $((n + 1)) > n
show() { echo "name: $(basename $1)"; echo "thought: try $1"; echo '```cuda'; cat "ROOT/tests/candidates/$1.cu"; echo '```'; }
case $n in
  0) show right/noinline_calls ;;
  1) echo 'no idea' >&2; exit 3 ;;
  2) show wrong/off_by_one_key ;;
  3) sleep 60 & sleep 60 ;;
  4) show wrong/endless ;;
  5) kill -9 $$ ;;
  6) show wrong/writes_scale ;;
  7) head -c 3000000 /dev/zero ;;
  8) show wrong/null_pointer; show wrong/reads_output ;;
  9) show right/template_instance ;;
  10) show right/noinline_calls ;;
  *) cat > /dev/null ;;
esac
"#;

#[test]
fn the_archive_holds_only_the_good() {
    let place = Place::new();
    fs::write(place.path().join("agent.sh"), AGENT.replace("ROOT", &root().display().to_string())).unwrap();
    let start = root().join("tests/candidates/right/local_array.cu").display().to_string();
    let output = place.run(&[
        "evolve",
        "--backend",
        "cpu",
        &start,
        "--shapes",
        "tiny",
        "--proposer",
        "agent:sh agent.sh",
        "--proposal-seconds",
        "2",
        "--variant",
        "full",
        "--population",
        "elite:9",
        "--batch",
        "1",
        "--budget",
        "evaluations=40,calls=14",
        "--out",
        "r",
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let record = summary(&place, "r");
    assert_eq!((record["evaluations"].as_u64(), record["spent"]["calls"].as_u64()), (Some(8), Some(14)), "{record}");
    for (verdict, n) in [("passed", 3), ("incorrect", 1), ("timed_out", 1)] {
        assert_eq!(record["verdicts"][verdict], n, "{verdict}: {record}");
    }
    let events = events(&place, "r");
    let judged: Vec<&Value> = events.iter().filter(|e| e["event"] == "evaluated").collect();
    assert!(!record["archive"].as_array().unwrap().is_empty());
    for id in record["archive"].as_array().unwrap() {
        let one = judged.iter().find(|e| e["id"] == *id).unwrap();
        assert_eq!(one["judged"]["verdict"], "passed");
    }
    let failures: Vec<&str> = events.iter().filter_map(|e| e["failure"].as_str()).collect();
    for says in ["no idea", "--proposal-seconds", "137", "more than", "wrote nothing"] {
        assert!(failures.iter().any(|f| f.contains(says)), "{says}: {failures:?}");
    }
}

#[test]
fn a_loop_killed_in_a_call_asks_again_and_counts_it() {
    let place = Place::new();
    let agent = "agent:echo x >> calls; [ $(wc -l < calls) -gt 1 ] || sleep 60; echo 'levers: BLOCK_M=32'";
    let arguments = [
        "evolve",
        "--backend",
        "cpu",
        "level_07",
        "--shapes",
        "tiny",
        "--proposer",
        agent,
        "--budget",
        "evaluations=2",
        "--batch",
        "1",
        "--out",
        "r",
    ];
    let mut child = Command::new(env!("CARGO_BIN_EXE_warpsmith"))
        .args(arguments)
        .current_dir(place.path())
        .env("XDG_CACHE_HOME", place.path().join("cache"))
        .env("HOME", place.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let began = Instant::now();
    while !place.path().join("calls").exists() && began.elapsed() < Duration::from_secs(120) {
        std::thread::sleep(Duration::from_millis(50));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(events(&place, "r").last().unwrap()["asked"]["effect"], "propose");
    let output = place.run(&["evolve", "--resume", "r"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let record = summary(&place, "r");
    assert_eq!((record["evaluations"].as_u64(), record["spent"]["calls"].as_u64()), (Some(2), Some(2)), "{record}");
    assert_eq!(place.run(&["evolve", "--rerun", "r"]).status.code(), Some(0));
}

#[test]
fn lessons_are_left_and_read_only_on_request() {
    let place = Place::new();
    let base = ["evolve", "--backend", "cpu", "--shapes", "tiny", "--seed", "5", "--budget", "6"];
    assert_eq!(place.run(&[&base[..], &["--start", "random", "--out", "one"]].concat()).status.code(), Some(0));
    let lessons: Value =
        serde_json::from_str(&fs::read_to_string(place.path().join("one/lessons.json")).unwrap()).unwrap();
    assert_eq!(lessons["schema"], "warpsmith.lessons/1");
    let first = &lessons["lessons"][0];
    assert!(
        first["evidence"][0]["run"].is_string() && first["device"] == "L4" && first["measure"] == "estimate",
        "{lessons}"
    );
    let output = place.run(&[&base[..], &["--lessons", "one/lessons.json", "--out", "two"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    fs::remove_file(place.path().join("one/lessons.json")).unwrap();
    // The copy in the journal is all that it depends on.
    assert_eq!(place.run(&["evolve", "--rerun", "two"]).status.code(), Some(0));
    assert!(events(&place, "two")[0]["request"]["lessons"].is_string());
    assert!(events(&place, "one")[0]["request"]["lessons"].is_null());
}

#[test]
fn wrong_usage_says_what_to_write() {
    let place = Place::new();
    fs::write(place.path().join("not.json"), "{}").unwrap();
    fs::write(place.path().join("format.md"), "{% if %}").unwrap();
    fs::create_dir(place.path().join("none")).unwrap();
    fs::write(place.path().join("key"), "two words").unwrap();
    for (arguments, says) in [
        (&["--proposer", "oracle"][..], "llm:PROVIDER/MODEL"),
        (&["--proposer", "agent:"], "agent:COMMAND"),
        (&["--proposer", "llm:openai"], "llm:PROVIDER/MODEL"),
        (&["--proposer", "llm:nobody/x"], "anthropic"),
        (&["--proposer", "llm:openai/x"], "OPENAI_API_KEY"),
        (&["--proposer", "llm:openai/x", "--key-file", "key"], "holds no key"),
        (&["--proposer", "llm:openai/x", "--budget", "usd=5"], "--price"),
        (&["--proposer", "llm:openai/x", "--base-url", "http://me:pw@host"], "--base-url"),
        (&["--price", "3"], "IN,OUT"),
        (&["--lessons", "nowhere.json"], "nowhere.json"),
        (&["--lessons", "not.json"], "no lessons"),
        (&["--prompts", "none"], "propose.md"),
        (&["--prompts", "."], "format.md"),
    ] {
        let output = place.run(&[&["evolve"], arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", text(&output));
        assert!(text(&output).contains(says), "{arguments:?}: {}", text(&output));
    }
    let output = place.run(&[
        "evolve",
        "--backend",
        "cpu",
        "--shapes",
        "tiny",
        "--proposer",
        "llm:ollama/x",
        "--base-url",
        "http://127.0.0.1:9",
    ]);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output));
    assert!(text(&output).contains("proposer-unreachable"), "{}", text(&output));
}
