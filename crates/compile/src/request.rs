//! What is asked of the compiler, and the hash that names the answer.
//!
//! A request names its files canonically (relative, with `/`), so that its key and its PTX are the same wherever it runs.

use crate::artifact::CompileFailure;
use crate::error::ToolError;
use crate::include::{self, Resolved};
use crate::toolkit::ToolkitId;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// Raised whenever what this crate makes of the same request changes. Part of each key.
const FORMAT: u32 = 1;

/// Release or debug: a debug build can never be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BuildKind {
    /// `-lineinfo -DNDEBUG`
    Release,
    /// `-lineinfo`: release, but an `assert` stays, as it does in nvcc's builds, and more of C++ is taken; for kernels that are nobody's candidate.
    Asserting,
    /// `-G -DWARPSMITH_DEBUG`
    Debug,
}

/// A language standard that NVRTC knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Standard {
    #[serde(rename = "c++17")]
    Cpp17,
    #[serde(rename = "c++20")]
    Cpp20,
}

/// The compiler options that a candidate may set in `[compile]`; there are no others.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CompileOptions {
    /// Most registers a thread may have, 16 to 255.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maxrregcount: Option<u32>,
    /// Approximate division and functions, flushed denormals.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub fast_math: bool,
    /// Flush denormals to zero.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ftz: Option<bool>,
    /// IEEE division.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prec_div: Option<bool>,
    /// IEEE square root.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prec_sqrt: Option<bool>,
    /// Contraction of products and sums into FMA.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fmad: Option<bool>,
    /// Pointers among the parameters do not alias.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub restrict: bool,
    /// C++17 if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub standard: Option<Standard>,
    /// ptxas's level of optimisation, 0 to 3; 3 if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ptxas_level: Option<u8>,
}

impl CompileOptions {
    /// The names of all options, for messages.
    pub const NAMES: [&'static str; 9] =
        ["maxrregcount", "fast_math", "ftz", "prec_div", "prec_sqrt", "fmad", "restrict", "standard", "ptxas_level"];

    /// Checks the ranges; the message names the option and what it takes.
    pub fn validate(&self) -> Result<(), String> {
        if let Some(n) = self.maxrregcount
            && !(16..=255).contains(&n)
        {
            return Err(format!("maxrregcount = {n}: expected 16 to 255"));
        }
        if let Some(n) = self.ptxas_level
            && n > 3
        {
            return Err(format!("ptxas_level = {n}: expected 0 to 3"));
        }
        Ok(())
    }

    /// NVRTC's arguments for these options and this build.
    pub(crate) fn nvrtc_args(&self, build: BuildKind) -> Vec<String> {
        let mut args = vec![match self.standard.unwrap_or(Standard::Cpp17) {
            Standard::Cpp17 => "-std=c++17".to_owned(),
            Standard::Cpp20 => "-std=c++20".to_owned(),
        }];
        match build {
            BuildKind::Release => args.extend(["-lineinfo".to_owned(), "-DNDEBUG".to_owned()]),
            // What is annotated for nobody is taken for the device (generic lambdas, what a class has of itself), and 128-bit numbers
            // are there, as nvcc's users have them.
            BuildKind::Asserting => {
                args.extend(["-lineinfo", "--device-as-default-execution-space", "--device-int128"].map(str::to_owned))
            }
            BuildKind::Debug => args.extend(["-G".to_owned(), "-DWARPSMITH_DEBUG".to_owned()]),
        }
        if let Some(n) = self.maxrregcount {
            args.push(format!("--maxrregcount={n}"));
        }
        if self.fast_math {
            args.push("--use_fast_math".to_owned());
        }
        for (name, value) in
            [("ftz", self.ftz), ("prec-div", self.prec_div), ("prec-sqrt", self.prec_sqrt), ("fmad", self.fmad)]
        {
            if let Some(on) = value {
                args.push(format!("--{name}={on}"));
            }
        }
        if self.restrict {
            args.push("--restrict".to_owned());
        }
        args
    }

    /// ptxas's arguments for these options and this build.
    pub(crate) fn ptxas_args(&self, build: BuildKind) -> Vec<String> {
        let mut args = match build {
            BuildKind::Release | BuildKind::Asserting => vec!["--generate-line-info".to_owned()],
            BuildKind::Debug => vec!["--device-debug".to_owned()],
        };
        if let Some(n) = self.maxrregcount {
            args.push(format!("--maxrregcount={n}"));
        }
        if let (Some(n), BuildKind::Release | BuildKind::Asserting) = (self.ptxas_level, build) {
            args.push(format!("--opt-level={n}"));
        }
        args
    }
}

/// One compilation: a source, for one target.
#[derive(Debug, Clone)]
pub struct Request {
    /// Canonical relative name with `/`: `kernels/attention/ladder/level_00.cu`, or `mine.cu` for a file of the user's.
    pub name: String,
    pub source: String,
    /// The candidate's folder, whose files its quoted includes may name; none for what is built in.
    pub include_root: Option<PathBuf>,
    /// Headers by the name under which they are included: `warpsmith/mma.cuh`.
    pub builtin_headers: Arc<BTreeMap<String, String>>,
    /// Macro names with their values.
    pub defines: Vec<(String, String)>,
    pub options: CompileOptions,
    /// Plain names or name expressions such as `sdpa<64, true>`; empty takes all entries there are.
    pub entries: Vec<String>,
    /// `sm_89`, `sm_90a`
    pub target: String,
    pub build: BuildKind,
}

impl Request {
    /// Finds every file that the source includes, and refuses what is none of the candidate's business.
    pub fn resolve(&self) -> Result<Result<Resolved, CompileFailure>, ToolError> {
        self.validate()?;
        Ok(include::resolve(self))
    }

    fn validate(&self) -> Result<(), ToolError> {
        let bad = |what: String| Err(ToolError::BadRequest { what });
        if !include::is_canonical(&self.name) {
            return bad(format!("\"{}\" is no canonical relative name", self.name));
        }
        if !is_target(&self.target) {
            return bad(format!("\"{}\" is no target such as sm_89 or sm_90a", self.target));
        }
        for (name, value) in &self.defines {
            let mut chars = name.chars();
            let first = chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
            if !first || !chars.all(|c| c.is_ascii_alphanumeric() || c == '_') {
                return bad(format!("\"{name}\" is no macro name"));
            }
            if value.contains(['\n', '\r', '\0']) {
                return bad(format!("the value of the macro {name} has more than one line"));
            }
        }
        if let Some(entry) =
            self.entries.iter().find(|e| e.trim().is_empty() || e.contains(['\n', '\r', '\0']) || e.len() > 4096)
        {
            return bad(format!("\"{}\" is no name of an entry", entry.escape_debug()));
        }
        self.options.validate().or_else(bad)
    }

    /// SHA-256 over everything that makes the answer: source, included files, options, defines, entries, target, toolkit,
    /// build kind and this crate's own version. 64 hexadecimal digits.
    pub fn key(&self, resolved: &Resolved, toolkit: &ToolkitId) -> String {
        let mut hash = Sha256::new();
        // Each field is preceded by its length, so that no two requests run together.
        let mut field = |bytes: &[u8]| {
            hash.update((bytes.len() as u64).to_le_bytes());
            hash.update(bytes);
        };
        field(&FORMAT.to_le_bytes());
        field(crate::shims::digest().as_bytes());
        field(toolkit.0.as_bytes());
        field(self.target.as_bytes());
        field(match self.build {
            BuildKind::Release => b"release",
            BuildKind::Asserting => b"asserting",
            BuildKind::Debug => b"debug",
        });
        for list in [self.options.nvrtc_args(self.build), self.options.ptxas_args(self.build)] {
            field(&(list.len() as u64).to_le_bytes());
            list.iter().for_each(|a| field(a.as_bytes()));
        }
        field(&(self.defines.len() as u64).to_le_bytes());
        for (name, value) in &self.defines {
            field(name.as_bytes());
            field(value.as_bytes());
        }
        field(&(self.entries.len() as u64).to_le_bytes());
        self.entries.iter().for_each(|e| field(e.as_bytes()));
        field(self.name.as_bytes());
        field(self.source.as_bytes());
        for file in &resolved.files {
            field(file.name.as_bytes());
            field(&[file.builtin as u8]);
            field(&file.text);
        }
        hex(&hash.finalize())
    }
}

fn is_target(target: &str) -> bool {
    let Some(rest) = target.strip_prefix("sm_") else { return false };
    let digits = rest.trim_end_matches(['a', 'f']);
    rest.len() - digits.len() <= 1 && (2..=3).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit())
}

/// Lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut s, b| {
        let _ = write!(s, "{b:02x}");
        s
    })
}

/// SHA-256 as 64 hexadecimal digits.
pub fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn request() -> Request {
        Request {
            name: "mine.cu".into(),
            source: "extern \"C\" __global__ void k(float* x) { x[0] = 1; }\n".into(),
            include_root: None,
            builtin_headers: Arc::default(),
            defines: vec![("D".into(), "64".into())],
            options: CompileOptions::default(),
            entries: vec!["k".into()],
            target: "sm_89".into(),
            build: BuildKind::Release,
        }
    }

    #[test]
    fn every_part_of_a_request_changes_its_key() {
        let id = ToolkitId("cuda-13.0.88-abc".into());
        let base = request();
        let key = |r: &Request| r.key(&r.resolve().unwrap().unwrap(), &id);
        let same = key(&base);
        assert_eq!(same, key(&base.clone()));
        let edits: [(&str, fn(&mut Request)); 9] = [
            ("name", |r| r.name = "other.cu".into()),
            ("source", |r| r.source.push(' ')),
            ("define", |r| r.defines[0].1 = "128".into()),
            ("a define split differently", |r| r.defines[0] = ("D6".into(), "4".into())),
            ("option", |r| r.options.fast_math = true),
            ("entry", |r| r.entries = vec!["k<1>".into()]),
            ("target", |r| r.target = "sm_90a".into()),
            ("build", |r| r.build = BuildKind::Debug),
            ("ptxas option", |r| r.options.ptxas_level = Some(1)),
        ];
        for (what, edit) in edits {
            let mut r = base.clone();
            edit(&mut r);
            assert_ne!(same, key(&r), "{what}");
        }
        assert_ne!(same, base.key(&base.resolve().unwrap().unwrap(), &ToolkitId("cuda-12.9.86-abc".into())));
    }

    #[test]
    fn what_the_command_line_could_not_carry_is_refused() {
        let edits: [(&str, fn(&mut Request)); 6] = [
            ("absolute name", |r| r.name = "/mine.cu".into()),
            ("name that leaves", |r| r.name = "../mine.cu".into()),
            ("target", |r| r.target = "sm_89 -I/".into()),
            ("macro name", |r| r.defines[0].0 = "D=1 -I".into()),
            ("entry", |r| r.entries[0] = "k\n#include".into()),
            ("registers", |r| r.options.maxrregcount = Some(1000)),
        ];
        for (what, edit) in edits {
            let mut r = request();
            edit(&mut r);
            assert!(matches!(r.resolve(), Err(ToolError::BadRequest { .. })), "{what}");
        }
    }
}
