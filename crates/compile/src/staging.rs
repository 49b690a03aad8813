//! The folder that the compiler works in: copies of all files that a source may read, under their canonical names.
//!
//! ```text
//! FOLDER/kernels/mine.cuh      the candidate's files, under the request's own prefix
//! FOLDER/.builtin/warpsmith/   headers that Warpsmith carries
//! FOLDER/.shim/                the C headers that NVRTC lacks
//! FOLDER/.toolkit/0, 1 ...     links to the toolkit's header folders
//! ```
//!
//! Where the system lets us make no links, the header folders are named by their own paths, and [`Staging::canonical`] mends what is said of them.

use crate::error::ToolError;
use crate::include::Resolved;
use crate::module_id;
use crate::ptx_text;
use crate::shims::{PRELUDE, SHIMS};
use crate::toolkit::Toolkit;
use std::path::{Path, PathBuf};

const PREFIX: &str = "warpsmith-";
const RANDOM: usize = 8;
/// Length of the folder's path, where the system's folder for temporary files leaves room for it.
const PATH_LENGTH: usize = 96;

pub(crate) struct Staging {
    folder: tempfile::TempDir,
    /// As the system itself spells it, links followed.
    real: PathBuf,
    include_args: Vec<String>,
    toolkit_dirs: Vec<String>,
}

impl Staging {
    /// Writes all files. `name` is the request's, whose folders have to exist.
    pub fn new(name: &str, resolved: &Resolved, toolkit: &Toolkit) -> Result<Staging, ToolError> {
        let temp = std::env::temp_dir();
        // A debug build's PTX holds this path, with offsets that hang on its length: the length is the same wherever it can be.
        let real_temp = std::fs::canonicalize(&temp).unwrap_or_else(|_| temp.clone());
        let pad = PATH_LENGTH.saturating_sub(real_temp.to_string_lossy().len() + 1 + PREFIX.len() + RANDOM);
        let folder = tempfile::Builder::new()
            .prefix(&format!("{PREFIX}{}", "-".repeat(pad)))
            .rand_bytes(RANDOM)
            .tempdir()
            .map_err(|e| ToolError::io("cannot make a folder in", &temp, e))?;
        let root = folder.path();
        let put = |at: PathBuf, text: &[u8]| -> Result<(), ToolError> {
            let parent = at.parent().unwrap_or(root);
            std::fs::create_dir_all(parent).map_err(|e| ToolError::io("cannot make", parent, e))?;
            std::fs::write(&at, text).map_err(|e| ToolError::io("cannot write", &at, e))
        };
        for file in &resolved.files {
            let base = if file.builtin { root.join(".builtin") } else { root.to_path_buf() };
            put(base.join(&file.name), &file.text)?;
        }
        for (shim, text) in SHIMS {
            put(root.join(".shim").join(shim), text.as_bytes())?;
        }
        if let Some((parent, _)) = name.rsplit_once('/') {
            let parent = root.join(parent);
            std::fs::create_dir_all(&parent).map_err(|e| ToolError::io("cannot make", &parent, e))?;
        }
        let mut include_args = vec!["-I.builtin".to_owned()];
        let mut toolkit_dirs = Vec::new();
        for (i, dir) in toolkit.include_dirs.iter().enumerate() {
            // An absolute path, since the compiler's working folder is another.
            let real = std::fs::canonicalize(dir).unwrap_or_else(|_| dir.clone());
            let link = format!(".toolkit/{i}");
            include_args.push(if link_dir(&real, &root.join(&link)) {
                format!("-I{link}")
            } else {
                format!("-I{}", real.display())
            });
            toolkit_dirs.push(link);
            for spelled in [&real, dir].into_iter().filter(|d| d.is_absolute()) {
                toolkit_dirs.push(slashes(&spelled.to_string_lossy()));
            }
        }
        // After the toolkit's, so that a toolkit that has such a header uses its own.
        include_args.push("-I.shim".to_owned());
        include_args.push(format!("--pre-include={PRELUDE}"));
        // A folder inside another one has to be tried first.
        toolkit_dirs.sort_by_key(|d| std::cmp::Reverse(d.len()));
        toolkit_dirs.dedup();
        let real = std::fs::canonicalize(root).unwrap_or_else(|_| root.to_path_buf());
        Ok(Staging { folder, real, include_args, toolkit_dirs })
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// `-I` arguments in order, and the prelude.
    pub fn include_args(&self) -> &[String] {
        &self.include_args
    }

    /// A file's canonical name, from whatever the compiler calls it: `mine.cu`, `warpsmith/mma.cuh`, `<toolkit>/cuda_fp8.hpp`.
    pub fn canonical(&self, name: &str) -> String {
        let name = slashes(name);
        let mut name = name.as_str();
        for root in [&self.real, &self.folder.path().to_path_buf()] {
            let root = slashes(&root.to_string_lossy());
            if let Some(rest) = name.strip_prefix(root.as_str()) {
                name = rest.trim_start_matches('/');
                break;
            }
        }
        name = name.strip_prefix("./").unwrap_or(name);
        for dir in &self.toolkit_dirs {
            if let Some(rest) = name.strip_prefix(dir.as_str())
                && let Some(rest) = rest.strip_prefix('/')
            {
                return format!("<toolkit>/{rest}");
            }
        }
        if let Some(rest) = name.strip_prefix(".builtin/") {
            return rest.to_owned();
        }
        if let Some(rest) = name.strip_prefix(".shim/") {
            return format!("<shim>/{rest}");
        }
        name.to_owned()
    }

    /// PTX with canonical file names and, in a debug build's tables, a canonical name of the same length for this folder.
    pub fn canonical_ptx(&self, ptx: &str) -> String {
        // The compiler writes forty bytes to a line.
        let bytes = |path: &str| {
            let line = |chunk: &[u8]| {
                let numbers: Vec<String> = chunk.iter().map(u8::to_string).collect();
                format!(".b8 {}\n", numbers.join(","))
            };
            path.as_bytes().chunks(40).map(line).collect::<String>()
        };
        let path = self.real.to_string_lossy();
        let stand_in = format!("<root>{}", "-".repeat(path.len().saturating_sub("<root>".len())));
        let ptx = ptx_text::canonicalize(ptx, &|name| self.canonical(name));
        module_id::stable(&ptx.replace(&bytes(&path), &bytes(&stand_in)))
    }

    /// A log with canonical names in place of paths.
    pub fn canonical_log(&self, log: &str) -> String {
        let mut text = log.replace("\r\n", "\n");
        for root in [&self.real, &self.folder.path().to_path_buf()] {
            let root = root.to_string_lossy();
            text = text.replace(&format!("{root}/"), "").replace(&format!("{root}\\"), "");
        }
        for dir in &self.toolkit_dirs {
            text = text.replace(&format!("{dir}/"), "<toolkit>/");
        }
        text.replace(".builtin/", "").replace(".shim/", "<shim>/")
    }
}

fn slashes(path: &str) -> String {
    // Windows puts \\?\ before paths that it made canonical.
    path.strip_prefix(r"\\?\").unwrap_or(path).replace('\\', "/")
}

fn link_dir(target: &Path, at: &Path) -> bool {
    if at.parent().is_none_or(|p| std::fs::create_dir_all(p).is_err()) {
        return false;
    }
    #[cfg(unix)]
    return std::os::unix::fs::symlink(target, at).is_ok();
    #[cfg(windows)]
    return std::os::windows::fs::symlink_dir(target, at).is_ok();
    #[cfg(not(any(unix, windows)))]
    return false;
}
