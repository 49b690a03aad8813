//! How the process is started: a Python that reads the program from its standard input, so that nothing has to be installed where it runs.

use std::path::Path;
use warpsmith_cuda::worker::WorkerCommand;

/// What Python runs first: it takes the program's length and the program, and says that it did. Neither quotes of a shell nor newlines, so
/// that it passes any launcher.
const BOOT: &str = concat!(
    r#"import sys;b=sys.stdin.buffer;t=b.read(int(b.readline()));"#,
    r#"sys.stdout.write("\n{\"id\":0,\"reply\":\"ready\"}\n");sys.stdout.flush();exec(compile(t,"warpsmith_baselines","exec"))"#
);

/// The command for a Python: `--python`'s, else the one called `python3`.
pub fn command(python: Option<&Path>) -> WorkerCommand {
    let usual = if cfg!(windows) { "python" } else { "python3" };
    let mut command = WorkerCommand::program(python.unwrap_or(Path::new(usual)));
    command.args = ["-u", "-B", "-c", BOOT].map(Into::into).to_vec();
    command
}

/// The program with its length before it.
pub(super) fn payload(program: &str) -> Vec<u8> {
    [format!("{}\n", program.len()).as_bytes(), program.as_bytes()].concat()
}
