//! Fetching with installers that misbehave: each failure has its own word, and nothing half-installed remains.

use super::*;

#[test]
fn the_committed_tables_are_whole() {
    for (line, _) in PINS {
        let (pins, _) = pins(line);
        assert!(pins.version.starts_with(&format!("{}.", line.major())));
        for platform in ["x86_64-linux", "aarch64-linux", "x86_64-windows"] {
            for package in &pins.packages {
                let wheel = package.wheel.get(platform).unwrap_or_else(|| panic!("{} for {platform}", package.name));
                assert!(
                    wheel.sha256.len() == 64
                        && wheel.sha256.bytes().all(|b| b.is_ascii_hexdigit())
                        && wheel.bytes > 1000
                );
            }
        }
        assert!(pins.packages.iter().all(|p| !p.wheel.keys().any(|k| k.contains("macos"))));
    }
}

#[test]
fn where_there_are_no_packages_the_message_says_what_remains() {
    let dir = tempfile::tempdir().unwrap();
    let child = crate::child::ChildCommand::program("none");
    let search = Search {
        explicit: None,
        cache_dir: dir.path().into(),
        line: Line::V13,
        allow_fetch: true,
        need: Default::default(),
        child,
    };
    let (pins, hash) = pins(Line::V13);
    let error = fetch_with(&search, &pins, &hash, "aarch64-macos", &Clients::of_this_machine, &mut |_| {}).unwrap_err();
    assert_eq!(error.code(), "no-toolkit-packages");
    assert!(error.to_string().contains("Everything built in works") && error.to_string().contains("--on"));
}

#[test]
fn a_lock_ends_with_its_holder_though_a_process_being_started_has_a_copy() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(".lock");
    let held = lock(&path, &mut |_| {}).unwrap().expect("locks work here");
    // What a process has between its fork and its exec.
    let copy = held.0.try_clone().unwrap();
    assert!(matches!(open_lock(&path).unwrap().try_lock(), Err(TryLockError::WouldBlock)));
    drop(held);
    open_lock(&path).unwrap().try_lock().expect("it is free");
    drop(copy);
}

#[cfg(unix)]
mod with_fake_installers {
    use super::*;
    use crate::fakes;
    use crate::installer::{Client, Kind};

    const PINS_TEXT: &str = "version = \"13.0.88\"\n\
    [[package]]\nname = \"fake-nvrtc\"\nversion = \"1\"\nkeep = [\"lib/libnvrtc\", \"include/\"]\nwheel.here = { bytes = 1000, sha256 = \"aa\" }\n\
    [[package]]\nname = \"fake-ptxas\"\nversion = \"2\"\nkeep = [\"bin/ptxas\"]\nwheel.here = { bytes = 500, sha256 = \"bb\" }\n";

    /// What a script sees: `$target`, `$name` of the wanted package.
    const PROLOGUE: &str = "for a in \"$@\"; do case \"$previous\" in --target) target=$a;; --requirement) file=$a;; esac; previous=$a; done\n\
        [ -n \"$file\" ] || exit 0\nname=$(sed 's/==.*//' \"$file\")\ngrep -q -- '--hash=sha256:' \"$file\" || exit 9\necho \"$name\" >> \"$(dirname \"$0\")/asked\"\n";
    /// Does what pip would.
    const GOOD: &str = "mkdir -p \"$target/nvidia/cu13\"\ncd \"$target/nvidia/cu13\" || exit 1\ncase \"$name\" in\n\
        fake-nvrtc) mkdir -p lib include/sub cmake; echo > lib/libnvrtc.so.13; echo > lib/libnvrtc.alt.so.13; echo > lib/libother.a; echo > include/cuda_fp16.h; echo > include/sub/x.h; echo > cmake/y;;\n\
        fake-ptxas) mkdir -p bin; echo > bin/nvcc; printf '#!/bin/sh\\necho \"release 13.0, V13.0.88\"\\n' > bin/ptxas; chmod 755 bin/ptxas;;\nesac\n";

    struct Scene {
        dir: tempfile::TempDir,
        clients: Vec<Client>,
    }

    impl Scene {
        fn new(scripts: &[(Kind, &str)]) -> Scene {
            let dir = tempfile::tempdir().unwrap();
            let clients = scripts.iter().enumerate().map(|(i, (kind, body))| {
                let program = dir.path().join(format!("client{i}/run"));
                fakes::script(&program, &format!("{PROLOGUE}{body}"));
                Client { kind: *kind, program: program.into() }
            });
            let clients = clients.collect();
            Scene { dir, clients }
        }

        fn search(&self) -> Search {
            Search {
                explicit: None,
                cache_dir: self.dir.path().join("cache"),
                line: Line::V13,
                allow_fetch: true,
                need: Default::default(),
                child: fakes::child(self.dir.path()),
            }
        }

        fn fetch(&self) -> (Result<Toolkit, ToolError>, Vec<FetchEvent>) {
            let mut events = Vec::new();
            let pins: Pins = toml::from_str(PINS_TEXT).unwrap();
            let clients = || Ok(Clients(self.clients.clone()));
            let result = fetch_with(&self.search(), &pins, "0123456789", "here", &clients, &mut |e| events.push(e));
            (result, events)
        }

        /// What lies in the toolkits' folder, the lock aside.
        fn left(&self) -> Vec<String> {
            let entries = std::fs::read_dir(self.dir.path().join("cache/toolkits")).unwrap();
            let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
            names.retain(|n| n != ".lock");
            names
        }

        fn asked(&self, client: usize) -> usize {
            std::fs::read_to_string(self.dir.path().join(format!("client{client}/asked")))
                .map_or(0, |t| t.lines().count())
        }
    }

    #[test]
    fn a_toolkit_appears_whole_once_and_small() {
        let scene = Scene::new(&[(Kind::Pip, GOOD)]);
        let (result, events) = scene.fetch();
        let toolkit = result.unwrap();
        assert_eq!((toolkit.version, toolkit.origin), ((13, 0, 88), Origin::Cache));
        assert_eq!(scene.left(), ["cuda-13.0.88-01234567"]);
        let base = toolkit.root.join("nvidia/cu13");
        for (path, there) in [
            ("lib/libnvrtc.so.13", true),
            ("include/sub/x.h", true),
            ("bin/ptxas", true),
            ("lib/libnvrtc.alt.so.13", false),
            ("lib/libother.a", false),
            ("bin/nvcc", false),
            ("cmake", false),
        ] {
            assert_eq!(base.join(path).exists(), there, "{path}");
        }
        assert!(matches!(&events[0], FetchEvent::Begin { packages: 2, bytes: 1500, .. }));
        assert_eq!(events.iter().filter(|e| matches!(e, FetchEvent::PackageDone { .. })).count(), 2);
        assert!(matches!(events.last(), Some(FetchEvent::Done { .. })));
        let (again, events) = scene.fetch();
        assert_eq!(again.unwrap().id, toolkit.id);
        assert!(events.is_empty() && scene.asked(0) == 2, "nothing is fetched twice: {events:?}");
    }

    #[test]
    fn each_failure_has_its_own_error_and_leaves_nothing() {
        let half = "mkdir -p \"$target/nvidia/cu13/lib\"; echo half > \"$target/nvidia/cu13/lib/libnvrtc.so.13\"\n";
        let rows = [
            (
                "echo 'ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.' >&2; exit 1",
                "altered-package",
            ),
            ("echo 'error: Failed to extract archive: invalid zip' >&2; exit 2", "altered-package"),
            ("echo 'ERROR: [Errno 28] No space left on device' >&2; exit 1", "no-disk-space"),
            (
                "echo 'Temporary failure in name resolution' >&2; echo 'ERROR: No matching distribution found' >&2; exit 1",
                "no-network",
            ),
            ("echo 'ERROR: No matching distribution found for fake-nvrtc==1' >&2; exit 1", "package-not-offered"),
            ("echo 'ERROR: [Errno 13] Permission denied' >&2; exit 1", "no-permission"),
            ("echo 'a traceback' >&2; exit 1", "installer-failed"),
            ("kill -9 $$", "installer-failed"),
            // It says that all went well, but what it installed is no toolkit.
            ("exit 0", "fetched-toolkit-broken"),
        ];
        for (body, code) in rows {
            let scene = Scene::new(&[(Kind::Pip, &format!("{half}{body}"))]);
            let (result, _) = scene.fetch();
            let error = result.unwrap_err();
            assert_eq!(error.code(), code, "{body}: {error}");
            assert!(scene.left().is_empty(), "{body}: {:?}", scene.left());
            assert!(error.to_string().len() > 40, "it says what to do: {error}");
        }
    }

    #[test]
    fn what_one_installer_cannot_the_other_may() {
        let offline = "echo 'dns error' >&2; exit 2";
        let scene = Scene::new(&[(Kind::Uv, offline), (Kind::Pip, GOOD)]);
        scene.fetch().0.unwrap();
        assert_eq!((scene.asked(0), scene.asked(1)), (2, 2));
        let scene = Scene::new(&[(Kind::Uv, offline), (Kind::Pip, "echo odd >&2; exit 1")]);
        assert_eq!(scene.fetch().0.unwrap_err().code(), "no-network", "the clearer reason is told");
    }

    #[test]
    fn two_at_once_fetch_once() {
        let scene = Scene::new(&[(Kind::Pip, &format!("sleep 0.3\n{GOOD}"))]);
        let results: Vec<_> = std::thread::scope(|s| {
            let all: Vec<_> = (0..3).map(|_| s.spawn(|| scene.fetch())).collect();
            all.into_iter().map(|t| t.join().unwrap()).collect()
        });
        assert!(results.iter().all(|(r, _)| r.is_ok()), "{results:?}");
        assert_eq!(scene.asked(0), 2, "each package once");
        assert_eq!(scene.left().len(), 1);
    }

    #[test]
    fn leftovers_of_a_killed_fetch_go_and_a_broken_toolkit_is_replaced() {
        let scene = Scene::new(&[(Kind::Pip, GOOD)]);
        let toolkits = scene.dir.path().join("cache/toolkits");
        std::fs::create_dir_all(toolkits.join(".staging-old/packages")).unwrap();
        std::fs::create_dir_all(toolkits.join("cuda-13.0.88-01234567/nvidia")).unwrap();
        scene.fetch().0.unwrap();
        assert_eq!(scene.left(), ["cuda-13.0.88-01234567"]);
    }
}
