//! The worker behind launchers: `sh` is started by a command, takes a program, becomes the worker; and what its user sees when the launcher
//! drops, stalls, garbles, or never gets there. The "other machine" is this one, with a cache folder of its own.
#![cfg(unix)]

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use warpsmith_cuda::worker::fake::FakeDevice;
use warpsmith_cuda::worker::protocol::{Arg, Buffer, End, Fill, Launch, Run};
use warpsmith_cuda::worker::{
    BLOB_BYTES, BlobCache, Blobs, Device, Launcher, Ran, Remote, ServeOptions, Worker, WorkerBinary, WorkerCommand,
    WorkerError, serve_with, sha256,
};

const ROLE: &str = "WARPSMITH_TEST_REMOTE";
/// What the other side was sent, a hash on a line.
const BLOBS: &str = "WARPSMITH_TEST_BLOBS";
const START_SECONDS: u64 = 30;
const IDLE_SECONDS: u64 = 2;
/// More than what is kept on disk at least.
const N: usize = 100_000;

#[test]
fn worker_process() {
    if std::env::var(ROLE).is_ok() {
        let blobs = std::env::var_os(BLOBS).map(|folder| BlobCache::new(folder, BLOB_BYTES));
        serve_with(ServeOptions { blobs }, |_| Ok(Box::new(FakeDevice::default()) as Box<dyn Device>));
    }
}

/// A folder with a worker program that is this test program, and launchers.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Place {
        let place = Place(tempfile::tempdir().expect("a folder"));
        let me = std::env::current_exe().expect("a running program has a file");
        place.script(
            "worker",
            &format!(
                "[ \"$1\" = --version ] && exec echo test\nexec env {ROLE}=1 '{}' worker_process --exact --nocapture",
                me.display()
            ),
        );
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn script(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("it is written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it may be run");
    }

    /// A way that leads through the words of a launcher to a shell whose cache is here.
    fn remote(&self, launcher: &str) -> Remote {
        let cache = self.path("cache");
        let blobs = self.path("blobs");
        let words = format!("env XDG_CACHE_HOME={} {BLOBS}={} {launcher}", cache.display(), blobs.display());
        let launcher = Launcher::parse(words.trim()).expect("a launcher");
        Remote::with_idle_seconds(launcher, WorkerBinary::File(self.path("worker")), IDLE_SECONDS)
    }

    /// The same with a launcher that is a script here.
    fn by_script(&self, text: &str) -> Remote {
        self.script("launcher", text);
        self.remote(&self.path("launcher").display().to_string())
    }
}

fn start(remote: &Remote) -> Result<Worker, WorkerError> {
    Worker::start(&WorkerCommand::on(remote, &["__warpsmith-worker"]), 0, START_SECONDS)
}

fn x() -> Vec<u8> {
    (0..N).map(|i| (i / 7) as u8).collect()
}

fn go(worker: &mut Worker, entry: &str, seconds: u64) -> Result<Ran, WorkerError> {
    let x = x();
    let buffer = |name: &str, fill| Buffer { name: name.into(), bytes: N as u64, fill };
    let bytes: String = (N as u32).to_le_bytes().iter().map(|b| format!("{b:02x}")).collect();
    let run = Run {
        image: sha256(b"code"),
        buffers: vec![buffer("x", Fill::Contents(sha256(&x))), buffer("y", Fill::Poison)],
        launches: vec![Launch {
            entry: entry.into(),
            grid: [1; 3],
            block: [1; 3],
            cluster: [1; 3],
            cooperative: false,
            shared_bytes: 0,
            args: vec![Arg::Buffer("x".into()), Arg::Buffer("y".into()), Arg::Bytes(bytes)],
        }],
        want: vec!["y".into(), "x".into()],
        poisons: vec![0xff, 0x7f],
        seconds: 0,
    };
    let blobs: Blobs = HashMap::from([(sha256(b"code"), &b"code"[..]), (sha256(&x), &x[..])]);
    worker.run(&run, &blobs, seconds)
}

fn works(worker: &mut Worker) {
    let ran = go(worker, "copy", 30).expect("it runs");
    assert_eq!(ran.end, End::Completed);
    assert_eq!(ran.outputs[0].bytes.as_deref(), Some(&x()[..]));
}

#[test]
fn the_program_is_sent_once_and_serves_as_a_local_one_does() {
    let place = Place::new();
    let remote = place.by_script("echo 'Welcome!'; echo '{\"id\":1}'; \"$@\"; echo bye");
    let size = fs::metadata(place.path("worker")).expect("it is there").len();
    for _ in 0..2 {
        let mut worker = start(&remote).expect("it starts behind a greeting");
        assert_eq!(worker.device().name, "Fake device");
        for _ in 0..3 {
            works(&mut worker);
        }
    }
    let held = remote.held();
    assert_eq!((held.connections, held.reached, held.program_bytes), (2, 2, size), "sent once");
    assert!(held.seconds > 0.0 && held.platform.is_some());
    // What lies there is what was sent, under its hash.
    let program = held.program.expect("it has a hash");
    let there = fs::read(place.path("cache/warpsmith/worker").join(&program)).expect("it is kept");
    assert_eq!(sha256(&there), program);
    // Cut short there, it is sent again.
    fs::write(place.path("cache/warpsmith/worker").join(&program), "x").expect("it is written");
    works(&mut start(&remote).expect("it starts"));
    assert_eq!(remote.held().program_bytes, 2 * size);
}

#[test]
fn every_shell_that_is_here_can_be_the_other_side() {
    for shell in ["dash", "bash", "busybox sh", "mksh", "zsh", "ksh"] {
        let there = std::process::Command::new("sh").args(["-c", &format!("command -v {shell}")]).output();
        if there.is_ok_and(|o| o.status.success()) {
            let place = Place::new();
            works(&mut start(&place.by_script(&format!("exec {shell}"))).unwrap_or_else(|e| panic!("{shell}: {e}")));
        }
    }
}

#[test]
fn large_blobs_are_sent_once_however_often_the_worker_is_started() {
    let place = Place::new();
    // What is sent passes through a file.
    let log = place.path("sent");
    let remote = place.by_script(&format!("tee -a '{}' | \"$@\"", log.display()));
    let mut sizes = Vec::new();
    for _ in 0..3 {
        works(&mut start(&remote).expect("it starts"));
        sizes.push(fs::metadata(&log).expect("it is there").len());
    }
    assert!(sizes[0] > N as u64, "{sizes:?}");
    assert!(sizes[2] - sizes[1] < N as u64 / 2, "{sizes:?}");
}

/// name; what the launcher does the first time, `"$@"` being the shell; a word of the error. From then on it works.
const TROUBLES: [(&str, &str, &str); 4] = [
    ("drops", "\"$@\" | { dd bs=1 count=60000 2>/dev/null; kill -9 0; }", "launcher: signal: 9"),
    ("stalls", "\"$@\" | { dd bs=1 count=60000 2>/dev/null; exec sleep 600; }", "silent"),
    ("garbles", "\"$@\" | { dd bs=1 count=60000 2>/dev/null; while echo nonsense; do :; done; }", ""),
    ("is killed", "( sleep 1; kill -9 0 ) & \"$@\"", "closed"),
];

#[test]
fn a_launcher_in_trouble_costs_the_request_that_is_under_way() {
    for (name, text, word) in TROUBLES {
        let place = Place::new();
        let once = place.path("once");
        let text = format!("if [ -e '{0}' ]; then exec \"$@\"; fi; touch '{0}'; {text}", once.display());
        let remote = place.by_script(&text);
        let begun = Instant::now();
        let mut worker = start(&remote).unwrap_or_else(|e| panic!("{name}: {e}"));
        // It shows while an output is on its way, or while the kernel runs.
        let entry = if name == "is killed" { "hang" } else { "copy" };
        match go(&mut worker, entry, 5) {
            Err(e @ WorkerError::Lost { .. }) => {
                assert_eq!(e.code(), "connection-lost", "{name}");
                assert!(e.to_string().contains(word), "{name}: {e}");
            }
            other => panic!("{name}: {other:?}"),
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{name}: nobody waits for ever");
        assert!(matches!(go(&mut worker, "copy", 5), Err(WorkerError::Died { .. })), "{name}: it is over");
        works(&mut start(&remote).unwrap_or_else(|e| panic!("{name}: the next one: {e}")));
    }
}

#[test]
fn what_the_kernel_does_is_told_from_what_the_connection_does() {
    let place = Place::new();
    let remote = place.remote("");
    let hang = go(&mut start(&remote).expect("it starts"), "hang", 1);
    assert_eq!(hang, Err(WorkerError::TimedOut { seconds: 1 }), "the worker's own limit ended it");
    match go(&mut start(&remote).expect("it starts"), "die", 30) {
        Err(WorkerError::Died { how, .. }) => assert!(how.contains('9'), "{how}"),
        other => panic!("{other:?}"),
    }
    let mut worker = start(&remote).expect("it starts");
    assert!(go(&mut worker, "illegal_address", 30).is_ok_and(|ran| ran.last), "a fault is data");
}

#[test]
fn a_launcher_or_a_worker_that_is_not_there_is_named() {
    let place = Place::new();
    fs::write(place.path("worker"), "text").expect("it is written");
    let absent = Remote::new(launcher("no-such-launcher gpu"), WorkerBinary::ThisProgram);
    for (remote, code, word) in
        [(absent, "cannot-run", "no-such-launcher"), (place.remote(""), "worker-binary", "is no program")]
    {
        match start(&remote) {
            Err(e) => {
                assert_eq!(e.code(), code, "{e}");
                assert!(e.to_string().contains(word), "{e}");
            }
            Ok(_) => panic!("{word}: it has started"),
        }
    }
}

#[test]
fn a_launcher_that_never_leads_to_a_shell_says_why() {
    for (name, text, word) in [
        ("it fails", "echo 'no such pod' >&2; exit 7", "no such pod"),
        ("it is silent", "exec sleep 600", "nothing came back for 2 s"),
        ("it only talks", "while echo hello; do :; done", "without end"),
        ("a terminal", "\"$@\" | sed -u 's/$/\\r/'", "terminal"),
    ] {
        let place = Place::new();
        match start(&place.by_script(text)) {
            Err(e) => {
                assert_eq!(e.code(), "launcher-failed", "{name}: {e}");
                assert!(format!("{e} {}", e.hint()).contains(word), "{name}: {e}: {}", e.hint());
            }
            Ok(_) => panic!("{name} has started"),
        }
    }
}

#[test]
fn a_program_that_does_not_start_there_is_named_and_not_kept() {
    let place = Place::new();
    place.script("worker", "echo \"libc.so.6: version 'GLIBC_9.9' not found\" >&2; exit 1");
    let remote = place.remote("");
    match start(&remote) {
        Err(e) => {
            assert_eq!(e.code(), "worker-binary");
            assert!(e.to_string().contains("GLIBC_9.9") && e.hint().contains("--worker"), "{e}: {}", e.hint());
        }
        Ok(_) => panic!("it has started"),
    }
    let kept = fs::read_dir(place.path("cache/warpsmith/worker")).map_or(0, Iterator::count);
    assert_eq!(kept, 0);
}

#[test]
fn a_worker_can_be_built_there() {
    let place = Place::new();
    let root = place.path("sources");
    fs::create_dir_all(root.join("crates/cli")).expect("a folder");
    for file in ["Cargo.toml", "Cargo.lock", "crates/cli/Cargo.toml"] {
        fs::write(root.join(file), "# nothing").expect("it is written");
    }
    let git = std::process::Command::new("git").args(["init", "-q"]).current_dir(&root).status();
    if !git.is_ok_and(|s| s.success()) {
        println!("skipped: git is not here");
        return;
    }
    // Stands for cargo: what it makes is the worker, and it counts how often it is called.
    place.script(
        "cargo",
        &format!(
            "[ -f crates/cli/Cargo.toml ] || exit 1\necho x >>'{}'\nmkdir -p \"$6/release\"\ncp '{}' \"$6/release/warpsmith\"",
            place.path("built").display(),
            place.path("worker").display()
        ),
    );
    let path = format!("PATH={}:/usr/bin:/bin", place.0.path().display());
    let words = format!("env XDG_CACHE_HOME={} {path}", place.path("cache").display());
    let remote = Remote::new(launcher(&words), WorkerBinary::Build(root.clone()));
    for _ in 0..2 {
        works(&mut start(&remote).unwrap_or_else(|e| panic!("{e}")));
    }
    assert_eq!(fs::read_to_string(place.path("built")).expect("it was called"), "x\n", "built once");
    fs::write(root.join("crates/cli/new.rs"), "// changed").expect("it is written");
    fs::write(place.path("cargo"), "#!/bin/sh\necho 'error: it does not compile' >&2\nexit 1\n")
        .expect("it is written");
    match start(&remote) {
        Err(e) => assert!(e.to_string().contains("it does not compile"), "{e}"),
        Ok(_) => panic!("other sources are another program"),
    }
}

fn launcher(text: &str) -> Launcher {
    Launcher::parse(text).expect("a launcher")
}

#[test]
fn a_cache_that_cannot_be_written_does_no_harm() {
    let place = Place::new();
    fs::write(place.path("file"), "").expect("it is written");
    let words =
        format!("env -u HOME XDG_CACHE_HOME={} TMPDIR={}", place.path("file").display(), place.0.path().display());
    let remote = Remote::new(launcher(&words), WorkerBinary::File(place.path("worker")));
    works(&mut start(&remote).unwrap_or_else(|e| panic!("{e}")));
    let left = || {
        let names = fs::read_dir(place.0.path()).expect("it is there").flatten();
        names.filter(|e| is_temporary(&e.path())).count()
    };
    let gone = (0..100).any(|_| {
        std::thread::sleep(Duration::from_millis(50));
        left() == 0
    });
    assert!(gone, "the folder goes with the connection");
}

fn is_temporary(path: &Path) -> bool {
    path.file_name().is_some_and(|n| n.to_string_lossy().starts_with("warpsmith-"))
}
