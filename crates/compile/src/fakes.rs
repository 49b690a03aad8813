//! Toolkits, compilers' processes and installers made of shell scripts, for tests.

use crate::child::ChildCommand;
use std::path::{Path, PathBuf};

/// An executable script.
pub fn script(path: &Path, body: &str) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    // Written under another name and moved: a script that is still open for writing does not start.
    // Tests make the same script from several threads: each has a draft of its own.
    let draft = path.with_extension(format!("draft-{:?}", std::thread::current().id()));
    std::fs::write(&draft, format!("#!/bin/sh\n{body}\n")).unwrap();
    std::fs::set_permissions(&draft, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::rename(&draft, path).unwrap();
}

/// A process that answers as NVRTC 11.0 would, so that it is never newer than the fake ptxas.
pub fn child(dir: &Path) -> ChildCommand {
    let path = dir.join("fake-child");
    let reply = r#"{"Probed":{"version":[11,0],"architectures":[80,89,90],"release":"fake"}}"#;
    script(
        &path,
        &format!(
            "mark=$(sed -n 's/.*\"mark\":\"\\([^\"]*\\)\".*/\\1/p')\necho noise\nprintf '%s%s\\n' \"$mark\" '{reply}'"
        ),
    );
    ChildCommand::program(path)
}

fn put(path: PathBuf, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

fn ptxas(path: &Path, version: &str) {
    let release = version.rsplit_once('.').unwrap().0;
    script(path, &format!("echo 'Cuda compilation tools, release {release}, V{version}'"));
}

/// All parts in one folder.
pub fn toolkit(root: &Path, version: &str) {
    ptxas(&root.join("bin/ptxas"), version);
    put(root.join("lib/libnvrtc.so.13"), "");
    put(root.join("lib/libnvrtc.alt.so.13"), "");
    put(root.join("lib/libnvrtc-builtins.so.13.0"), "");
    put(root.join("include/cuda_fp16.h"), "// headers\n");
}

/// One folder for each package, as in the 12.x wheels.
pub fn split_toolkit(site: &Path, version: &str) {
    ptxas(&site.join("nvidia/cuda_nvcc/bin/ptxas"), version);
    put(site.join("nvidia/cuda_nvrtc/lib/libnvrtc.so.12"), "");
    put(site.join("nvidia/cuda_nvcc/include/crt/mma.h"), "");
    put(site.join("nvidia/cuda_runtime/include/cuda_fp16.h"), "// headers\n");
}
