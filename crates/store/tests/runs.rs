//! A run's folder is whole or not there, survives a kill in mid-write, and never overwrites another.

use std::fs;
use std::path::Path;
use warpsmith_spec::record::{Environment, NotApplicable, RunInfo};
use warpsmith_store::{Event, RunDir, RunDirError, read_journal};

fn started() -> Event {
    Event::RunStarted {
        run: RunInfo {
            name: "t".into(),
            command: vec!["warpsmith".into()],
            started: "2026-11-21T00:00:00Z".into(),
            warpsmith: "0".into(),
            git_commit: None,
            git_dirty: None,
            seed_secret: None,
        },
        environment: Environment {
            os: "linux".into(),
            arch: "x86_64".into(),
            cpus: 2,
            toolkit: None,
            device: None,
            card: None,
            ceilings: None,
            remote: None,
        },
    }
}

fn excluded(n: usize) -> Event {
    Event::NotApplicable {
        entry: NotApplicable { candidate: format!("k{n}"), shape: "wide".into(), why: "D == 64".into() },
    }
}

#[test]
fn the_folder_appears_with_its_first_event_and_the_record_is_a_fold() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("deep/run");
    let mut run = RunDir::create(&path, started()).unwrap();
    assert_eq!(read_journal(&path.join("journal.jsonl")).unwrap(), vec![started()]);
    run.push(excluded(0)).unwrap();
    run.push(excluded(1)).unwrap();
    assert_eq!(RunDir::load(&path).unwrap(), run.record().unwrap());
    assert_eq!(run.record().unwrap().not_applicable.len(), 2);
    let left: Vec<_> = fs::read_dir(path.parent().unwrap()).unwrap().collect();
    assert_eq!(left.len(), 1, "no staging folder is left behind");
}

#[test]
fn a_torn_last_line_is_dropped_and_a_damaged_one_before_it_is_named() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("run");
    let mut run = RunDir::create(&path, started()).unwrap();
    run.push(excluded(0)).unwrap();
    let journal = path.join("journal.jsonl");
    let whole = fs::read_to_string(&journal).unwrap();
    fs::write(&journal, format!("{whole}{{\"seq\":2,\"at\":\"x\",\"ev")).unwrap();
    assert_eq!(read_journal(&journal).unwrap().len(), 2);
    fs::write(&journal, whole.replacen("\"seq\":1", "\"seq\":5", 1)).unwrap();
    let error = read_journal(&journal).unwrap_err().to_string();
    assert!(error.contains("journal.jsonl:2") && error.contains("seq is 5"), "{error}");
}

#[test]
fn an_existing_folder_is_refused_and_an_empty_one_is_taken() {
    let home = tempfile::tempdir().unwrap();
    let empty = home.path().join("empty");
    fs::create_dir(&empty).unwrap();
    RunDir::create(&empty, started()).unwrap();
    assert!(matches!(RunDir::create(&empty, started()), Err(RunDirError::Exists(_))));
    let file = home.path().join("file");
    fs::write(&file, "mine").unwrap();
    assert!(matches!(RunDir::create(&file, started()), Err(RunDirError::Exists(_))));
    assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
}

#[cfg(target_os = "linux")]
#[test]
fn a_place_that_cannot_be_written_is_named() {
    let error = RunDir::create(Path::new("/proc/none/run"), started()).unwrap_err();
    assert!(matches!(error, RunDirError::NotWritable { .. }) && error.to_string().contains("/proc/none/run"));
}

#[test]
fn files_of_evidence_are_whole_and_the_latest_run_is_marked() {
    let home = tempfile::tempdir().unwrap();
    let run = RunDir::create(&home.path().join("20261121-000000-check"), started()).unwrap();
    run.write(Path::new("candidates/a/compile/a.ptx"), b"x").unwrap();
    assert_eq!(fs::read(run.path().join("candidates/a/compile/a.ptx")).unwrap(), b"x");
    run.mark_latest();
    assert!(home.path().join("latest").exists());
}
