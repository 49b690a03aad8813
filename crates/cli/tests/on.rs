//! Gates on another machine, which is this one: behind launchers that are scripts, and behind a real `sshd` with keys of its own. A fake device
//! takes the place of the GPU, so that all of it runs anywhere; what needs `sshd` says so where that is missing.
#![cfg(unix)]

mod common;

use common::{Place, root, text};
use serde_json::Value;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What every check here has in common: two quick kernels on a device that is none.
const CHECK: [&str; 7] = ["check", "level_00", "level_02", "--shapes", "tiny", "--fake-device", "--fresh"];

fn with<'a>(arguments: &[&'a str], more: &[&'a str]) -> Vec<&'a str> {
    [arguments, more].concat()
}

/// A launcher that is a script in a place; `"$@"` is the shell behind it.
fn launcher(place: &Place, script: &str) -> String {
    let path = place.path().join("launcher");
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path.display().to_string()
}

fn results(record: &Value) -> &Vec<Value> {
    record["results"].as_array().unwrap_or_else(|| panic!("{record}"))
}

#[test]
fn a_check_elsewhere_has_the_record_of_one_here() {
    let place = Place::new();
    let (code, here) = place.json(&with(&CHECK, &["--out", "here"]));
    assert_eq!(code, 0, "{here}");
    assert_eq!(here["environment"]["remote"], Value::Null);
    let way = launcher(&place, "echo 'Welcome to the other machine'; exec \"$@\"");
    let (code, there) = place.json(&with(&CHECK, &["--out", "there", "--on", &way]));
    assert_eq!(code, 0, "{there}");
    assert_eq!(results(&here), results(&there));
    assert!(results(&here).iter().all(|r| r["backend"] == "fake" && r["verdict"] == "passed"));
    let remote = &there["environment"]["remote"];
    assert_eq!(remote["launcher"].as_str(), Some(way.as_str()));
    assert!(remote["held_seconds"].as_f64().is_some_and(|s| s > 0.0), "{remote}");
    assert!(remote["platform"].as_str().is_some_and(|p| p.contains(std::env::consts::ARCH)), "{remote}");
    // The program is there now, under its hash.
    let sha = remote["worker_sha256"].as_str().unwrap();
    assert!(place.path().join("cache/warpsmith/worker").join(sha).is_file());
}

#[test]
fn a_lost_connection_costs_the_evaluation_under_way_and_no_other() {
    let place = Place::new();
    // The first connection is cut while outputs are on their way; later ones hold.
    let once = place.path().join("once");
    let script = format!(
        "if [ -e '{0}' ]; then exec \"$@\"; fi; touch '{0}'; \"$@\" | {{ dd bs=1 count=40000 2>/dev/null; kill -9 0; }}",
        once.display()
    );
    let way = launcher(&place, &script);
    let arguments = with(&CHECK, &["--mask", "none", "--seeds", "1,2", "--on", &way]);
    let (code, record) = place.json(&arguments);
    assert_eq!(code, 1, "{record}");
    let (lost, kept): (Vec<_>, Vec<_>) = results(&record).iter().partition(|r| r["verdict"] != "passed");
    assert_eq!((lost.len(), kept.len()), (1, 3), "{record}");
    assert_eq!(lost[0]["finding"]["code"], "connection-lost");
    assert_eq!(lost[0]["gates"]["correctness"], "unavailable");
    assert!(record["environment"]["remote"]["connections"].as_u64().is_some_and(|n| n >= 2));
}

#[test]
fn a_machine_that_stays_away_ends_the_run_and_what_was_judged_is_kept() {
    let place = Place::new();
    let once = place.path().join("once");
    let script = format!(
        "if [ -e '{0}' ]; then echo 'no such pod' >&2; exit 1; fi; touch '{0}'; \"$@\" | {{ dd bs=1 count=40000 2>/dev/null; kill -9 0; }}",
        once.display()
    );
    let way = launcher(&place, &script);
    let (code, document) = place.json(&with(&CHECK, &["--seeds", "1,2", "--out", "run", "--on", &way]));
    assert_eq!(code, 3, "{document}");
    assert_eq!(document["error"]["code"], "launcher-failed");
    assert!(document["error"]["message"].as_str().is_some_and(|m| m.contains("no such pod")), "{document}");
    let journal = fs::read_to_string(place.path().join("run/journal.jsonl")).unwrap();
    assert!(journal.contains("connection-lost"), "{journal}");
}

#[test]
fn wrong_ways_are_refused_before_anything_is_started() {
    let place = Place::new();
    fs::write(place.path().join("page.html"), "<html>").unwrap();
    for (more, exit, word) in [
        (vec!["--on", "ssh 'gpu"], 2, "quote"),
        (vec!["--on", " "], 2, "empty"),
        (vec!["--on", "env", "--worker", "missing"], 2, "no such file"),
        (vec!["--on", "env", "--worker", "page.html"], 3, "is no program"),
        (vec!["--on", "no-such-launcher gpu"], 3, "no-such-launcher"),
        (vec!["--worker", "page.html"], 2, "--on"),
    ] {
        let (code, document) = place.json(&with(&CHECK, &more));
        let told = document["error"].to_string();
        assert_eq!(code, exit, "{more:?}: {told}");
        assert!(told.contains(word), "{more:?}: {told}");
    }
    let (code, document) = place.json(&["check", "level_00", "--backend", "cpu", "--on", "env"]);
    assert_eq!(code, 2, "{document}");
}

#[test]
fn doctor_looks_at_the_other_machine_too() {
    let place = Place::new();
    let (code, document) = place.json(&["doctor", "--on", "env"]);
    assert_eq!(code, 0);
    let items = document["doctor"].as_array().unwrap();
    let there: Vec<_> = items.iter().filter_map(|i| i["name"].as_str()).filter(|n| n.starts_with("there: ")).collect();
    assert!(there.contains(&"there: GPU") && there.contains(&"there: launcher"), "{document}");
    let (code, document) = place.json(&["doctor", "--on", "false"]);
    assert_eq!(code, 0, "a doctor reports, it does not fail");
    let launcher = document["doctor"].as_array().unwrap().iter().find(|i| i["name"] == "there: launcher").unwrap();
    assert_eq!(launcher["works"], false, "{launcher}");
}

/// An `sshd` of our own, on a port of its own, that lets our key in.
struct Sshd {
    server: Child,
    folder: tempfile::TempDir,
    port: u16,
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

impl Sshd {
    /// None where there is no `sshd`, which is said.
    fn start(cache: &Path) -> Option<Sshd> {
        let skip = |why: &str| {
            println!("skipped: {why}; Debian's openssh-server has it");
            None
        };
        let program =
            ["/usr/sbin/sshd", "/usr/local/sbin/sshd", "/usr/bin/sshd"].iter().find(|p| Path::new(p).is_file());
        let Some(program) = program else { return skip("there is no sshd here") };
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for key in ["host", "own", "other"] {
            let made = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(at(key)).status();
            if !made.is_ok_and(|s| s.success()) {
                return skip("ssh-keygen makes no key");
            }
        }
        fs::copy(at("own.pub"), at("authorized")).unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let config = format!(
            "Port {port}\nListenAddress 127.0.0.1\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\nStrictModes no\n\
             PasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin yes\nSetEnv XDG_CACHE_HOME={} PATH=/usr/bin:/bin\n",
            at("host").display(),
            at("authorized").display(),
            cache.display()
        );
        fs::write(at("config"), config).unwrap();
        // Debian's wants its folder for privilege separation; only root can make it.
        let _ = fs::create_dir_all("/run/sshd");
        let host = fs::read_to_string(at("host.pub")).unwrap();
        fs::write(at("known"), format!("[127.0.0.1]:{port} {host}")).unwrap();
        let log = fs::File::create(at("log")).unwrap();
        let server =
            Command::new(program).args(["-D", "-e", "-f"]).arg(at("config")).stderr(log).stdin(Stdio::null()).spawn();
        let Ok(server) = server else { return skip("sshd cannot be started") };
        let sshd = Sshd { server, folder, port };
        for _ in 0..100 {
            let works = Command::new("ssh")
                .args(sshd.words("own", "known").split(' ').skip(1))
                .arg("true")
                .stdin(Stdio::null())
                .output();
            if works.is_ok_and(|o| o.status.success()) {
                return Some(sshd);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        println!("{}", fs::read_to_string(sshd.folder.path().join("log")).unwrap_or_default());
        skip("this sshd lets nobody in")
    }

    /// `ssh` with this key and these known hosts.
    fn words(&self, key: &str, known: &str) -> String {
        let at = |name: &str| self.folder.path().join(name).display().to_string();
        format!(
            "ssh -F none -p {} -i {} -o IdentitiesOnly=yes -o BatchMode=yes -o StrictHostKeyChecking=yes -o UserKnownHostsFile={} 127.0.0.1",
            self.port,
            at(key),
            at(known)
        )
    }

    /// The same without the option that a user would not give.
    fn way(&self, key: &str, known: &str) -> String {
        self.words(key, known).replace(" -o BatchMode=yes -o StrictHostKeyChecking=yes", "")
    }
}

#[test]
fn everything_works_through_ssh() {
    let place = Place::new();
    let cache = place.path().join("their-cache");
    let Some(sshd) = Sshd::start(&cache) else { return };
    let way = sshd.way("own", "known");
    let (_, here) = place.json(&with(&CHECK, &["--out", "here"]));
    let mut programs = Vec::new();
    for out in ["first", "second"] {
        let (code, there) = place.json(&with(&CHECK, &["--out", out, "--on", &way]));
        assert_eq!(code, 0, "{there}");
        assert_eq!(results(&here), results(&there));
        let kept: Vec<PathBuf> =
            fs::read_dir(cache.join("warpsmith/worker")).unwrap().map(|e| e.unwrap().path()).collect();
        assert_eq!(kept.len(), 1, "{kept:?}");
        programs.push(fs::metadata(&kept[0]).unwrap().created().ok());
    }
    assert_eq!(programs[0], programs[1], "the program is sent once");
}

#[test]
fn ssh_that_would_ask_fails_at_once_with_what_to_do() {
    let place = Place::new();
    let Some(sshd) = Sshd::start(&place.path().join("their-cache")) else { return };
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let closed = format!("ssh -F none -p {free} 127.0.0.1");
    for (way, code, step) in [
        (sshd.way("own", "nobody"), "ssh-host-key", "ssh-keyscan"),
        (sshd.way("other", "known"), "ssh-denied", "ssh-copy-id"),
        (closed, "ssh-unreachable", "ssh -p"),
        ("ssh -F none no-such-host.invalid".into(), "ssh-unreachable", "ssh -G"),
    ] {
        let begun = Instant::now();
        let (exit, document) = place.json(&with(&CHECK, &["--on", &way]));
        let error = &document["error"];
        assert_eq!((exit, error["code"].as_str()), (3, Some(code)), "{way}: {error}");
        assert!(error["hint"].as_str().is_some_and(|h| h.contains(step)), "{way}: {error}");
        assert!(begun.elapsed() < Duration::from_secs(20), "{way}: at once");
        let told = text(&place.run(&["explain", code]));
        assert!(told.contains(code), "{told}");
    }
}

#[test]
fn a_connection_of_ssh_that_is_cut_costs_its_evaluation_only() {
    let place = Place::new();
    let Some(sshd) = Sshd::start(&place.path().join("their-cache")) else { return };
    let once = place.path().join("once");
    // ssh itself is killed, in the middle of what it brings.
    let script = format!(
        "if [ -e '{0}' ]; then exec {1} \"$@\"; fi; touch '{0}'; {1} \"$@\" | {{ dd bs=1 count=40000 2>/dev/null; kill -9 0; }}",
        once.display(),
        sshd.way("own", "known")
    );
    let way = launcher(&place, &script);
    let (code, record) = place.json(&with(&CHECK, &["--mask", "none", "--seeds", "1,2", "--on", &way]));
    assert_eq!(code, 1, "{record}");
    let verdicts: Vec<_> =
        results(&record).iter().map(|r| (r["verdict"].as_str().unwrap(), r["finding"]["code"].as_str())).collect();
    assert_eq!(verdicts.iter().filter(|(v, _)| *v == "passed").count(), 3, "{verdicts:?}");
    assert!(verdicts.contains(&("unsupported", Some("connection-lost"))), "{verdicts:?}");
}

#[test]
fn times_of_the_fake_backend_come_with_values_from_elsewhere() {
    let place = Place::new();
    fs::write(place.path().join("times.toml"), "device = \"made up\"\n[[subject]]\nname = \"*\"\nus = 10.0\n").unwrap();
    let arguments = [
        "bench",
        "level_00",
        "--shapes",
        "tiny",
        "--mask",
        "none",
        "--baselines",
        "none",
        "--iters",
        "5",
        "--stability",
        "10",
        "--fresh",
    ];
    let (code, record) = place.json(&with(&arguments, &["--backend", "fake:times.toml", "--on", "env"]));
    assert_eq!(code, 0, "{record}");
    let result = &results(&record)[0];
    assert_eq!((result["backend"].as_str(), result["verdict"].as_str()), (Some("fake"), Some("passed")), "{result}");
    assert_eq!(result["gates"]["performance"], "passed");
    assert!(record["environment"]["remote"]["connections"].as_u64().is_some_and(|n| n >= 1));
    assert!(root().join("docs/remote.md").is_file());
}
