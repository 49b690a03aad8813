//! The reference of a task that is not built in: `reference.py`, run in a subprocess.
//!
//! The protocol is `warpsmith_spec::protocol`. The script never meets the candidate or its outputs. Limits: 300 seconds; an
//! output that is missing, of another shape or not finite is an error of the task, with the script's own last words.

use crate::npy;
use crate::values::{OutputSpec, Tensor};
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use warpsmith_spec::protocol::Header;

/// Seconds that a reference may take.
pub const LIMIT: Duration = Duration::from_secs(300);

/// Why there is no reference result: the environment's or the task's doing, never the candidate's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReferenceError {
    #[error("python3 was not found, and the reference of task {task} is a Python script")]
    NoPython { task: String },
    #[error("python3 has no NumPy, which the reference of task {task} needs")]
    NoNumPy { task: String },
    #[error("the reference of task {task} took longer than {seconds} s")]
    TimedOut { task: String, seconds: u64 },
    #[error("the reference of task {task} failed: {why}")]
    Failed { task: String, why: String },
    #[error("cannot prepare the reference of task {task}: {why}")]
    Files { task: String, why: String },
}

impl ReferenceError {
    /// kebab-case id with a page in `warpsmith explain`.
    pub fn code(&self) -> &'static str {
        match self {
            ReferenceError::NoPython { .. } | ReferenceError::NoNumPy { .. } => "no-reference",
            ReferenceError::TimedOut { .. } | ReferenceError::Failed { .. } => "reference-failed",
            ReferenceError::Files { .. } => "io",
        }
    }

    /// What to do next.
    pub fn hint(&self) -> &'static str {
        match self {
            ReferenceError::NoPython { .. } => "install Python 3 and NumPy",
            ReferenceError::NoNumPy { .. } => "`python3 -m pip install numpy`",
            ReferenceError::TimedOut { .. } => "try a smaller shape, or make the script quicker",
            ReferenceError::Failed { .. } => "run `python3 reference.py IN_DIR OUT_DIR` by hand",
            ReferenceError::Files { .. } => "make room in the folder for temporary files",
        }
    }
}

/// What the script is asked for.
pub struct Question<'a> {
    pub script: &'a str,
    pub header: &'a Header,
    /// Exactly decoded and dequantised, without scales.
    pub inputs: &'a [Tensor],
    pub outputs: &'a [OutputSpec],
}

/// Runs the script; values of each output, in the order of `outputs`.
pub fn run(q: &Question, python: &str, limit: Duration) -> Result<Vec<Vec<f64>>, ReferenceError> {
    let files = |e: std::io::Error| ReferenceError::Files { task: q.header.task.clone(), why: e.to_string() };
    let folder = tempfile::Builder::new().prefix("warpsmith-reference-").tempdir().map_err(files)?;
    let (input, output) = (folder.path().join("in"), folder.path().join("out"));
    fs::create_dir(&input).and_then(|()| fs::create_dir(&output)).map_err(files)?;
    write_question(q, folder.path(), &input).map_err(files)?;
    call(&q.header.task, python, folder.path(), limit)?;
    q.outputs.iter().map(|o| read_output(&q.header.task, o, &output)).collect()
}

fn write_question(q: &Question, folder: &Path, input: &Path) -> std::io::Result<()> {
    fs::write(folder.join("reference.py"), q.script)?;
    for tensor in q.inputs {
        fs::write(input.join(format!("{}.npy", tensor.name)), npy::write(tensor))?;
    }
    fs::write(input.join("workload.json"), q.header.to_json())
}

fn call(task: &str, python: &str, folder: &Path, limit: Duration) -> Result<(), ReferenceError> {
    let files = |e: std::io::Error| ReferenceError::Files { task: task.into(), why: e.to_string() };
    let words = folder.join("stderr");
    let spawned = Command::new(python)
        .args(["reference.py", "in", "out"])
        .current_dir(folder)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(&words).map_err(files)?)
        .spawn();
    let mut child = match spawned {
        Ok(child) => child,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            return Err(ReferenceError::NoPython { task: task.into() });
        }
        Err(e) => return Err(files(e)),
    };
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().map_err(files)? {
            break status;
        }
        if start.elapsed() > limit {
            // It may have ended meanwhile; either way it is gone after this.
            let _ = child.kill();
            let _ = child.wait();
            return Err(ReferenceError::TimedOut { task: task.into(), seconds: limit.as_secs() });
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    if status.success() {
        return Ok(());
    }
    let said = fs::read(&words).map(|b| String::from_utf8_lossy(&b).into_owned()).unwrap_or_default();
    if said.contains("No module named 'numpy'") {
        return Err(ReferenceError::NoNumPy { task: task.into() });
    }
    let last = said.lines().rev().find(|l| !l.trim().is_empty()).unwrap_or("it said nothing");
    let last: String = last.chars().take(400).collect();
    Err(ReferenceError::Failed { task: task.into(), why: format!("{last} ({status})") })
}

fn read_output(task: &str, output: &OutputSpec, folder: &Path) -> Result<Vec<f64>, ReferenceError> {
    let failed = |why: String| ReferenceError::Failed { task: task.into(), why };
    let name = format!("{}.npy", output.name);
    let path = folder.join(&name);
    let size = fs::metadata(&path).map_err(|_| failed(format!("it wrote no {name}")))?.len();
    if size > output.elements() as u64 * 8 + 65_536 {
        return Err(failed(format!(
            "{name} has {size} bytes, more than the output's {} elements need",
            output.elements()
        )));
    }
    let bytes = fs::read(&path).map_err(|e| failed(format!("{name}: {e}")))?;
    let (shape, values) = npy::read(&bytes).map_err(|why| failed(format!("{name}: {why}")))?;
    if shape != output.shape {
        return Err(failed(format!("{name} has the shape {shape:?}, expected {:?}", output.shape)));
    }
    match values.iter().position(|x| !x.is_finite()) {
        Some(at) => Err(failed(format!("{name} is not finite at {:?}", output.index(at)))),
        None => Ok(values),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::encode;
    use warpsmith_spec::protocol::{Array, SCHEMA};
    use warpsmith_spec::words::DType;

    fn ask(script: &str, limit: Duration) -> Result<Vec<Vec<f64>>, ReferenceError> {
        let array = |name: &str| [(name.to_string(), Array { file: format!("{name}.npy"), shape: vec![3] })].into();
        let header = Header {
            schema: SCHEMA.into(),
            task: "double".into(),
            shape: "tiny".into(),
            symbols: [("N".to_string(), 3)].into(),
            scalars: [("by".to_string(), 2.0)].into(),
            causal: false,
            seed: 0,
            inputs: array("x"),
            outputs: array("out"),
        };
        let inputs = [Tensor {
            name: "x".into(),
            dtype: DType::F32,
            shape: vec![3],
            bytes: encode(DType::F32, &[1.0, 2.0, 3.0]),
        }];
        let outputs = [OutputSpec { name: "out".into(), dtype: DType::F32, shape: vec![3] }];
        let q = Question { script, header: &header, inputs: &inputs, outputs: &outputs };
        run(&q, "python3", limit)
    }

    /// NumPy's own reader and writer by hand, so that the protocol is tested where NumPy is missing.
    const PLAIN: &str = r#"
import json, struct, sys
h = json.load(open(sys.argv[1] + "/workload.json"))
raw = open(sys.argv[1] + "/" + h["inputs"]["x"]["file"], "rb").read()[-12:]
x = [v * h["scalars"]["by"] for v in struct.unpack("<3f", raw)]
head = "{'descr': '<f8', 'fortran_order': False, 'shape': (3,), }"
head += " " * (117 - len(head)) + "\n"
open(sys.argv[2] + "/" + h["outputs"]["out"]["file"], "wb").write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + struct.pack("<3d", *x))
"#;

    fn has_python() -> bool {
        let found = Command::new("python3")
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|s| s.success());
        if !found {
            eprintln!("skipped: python3 is not here");
        }
        found
    }

    #[test]
    fn a_script_is_asked_and_answers() {
        if has_python() {
            assert_eq!(ask(PLAIN, LIMIT), Ok(vec![vec![2.0, 4.0, 6.0]]));
        }
    }

    #[test]
    fn each_way_to_fail_says_what_happened() {
        if !has_python() {
            return;
        }
        for (script, limit, word) in [
            ("raise ValueError('no such thing')", LIMIT, "no such thing"),
            ("pass", LIMIT, "wrote no out.npy"),
            ("import time; time.sleep(60)", Duration::from_millis(200), "longer"),
            ("import sys; open(sys.argv[2] + '/out.npy', 'wb').write(b'x')", LIMIT, "no .npy file"),
            ("raise ModuleNotFoundError(\"No module named 'numpy'\")", LIMIT, "no NumPy"),
            ("x = 1 +", LIMIT, "SyntaxError"),
        ] {
            let error = ask(script, limit).expect_err(word);
            assert!(error.to_string().contains(word), "{error}");
        }
        assert!(
            ask(&PLAIN.replace("*x)", "x[0], x[1], float('nan'))"), LIMIT)
                .expect_err("NaN")
                .to_string()
                .contains("not finite at [2]")
        );
    }
}
