"""Warpsmith: proves, measures and evolves CUDA kernels. `warpsmith.attention` holds the FP8 attention that it ships."""
import os
import subprocess
import sys
from pathlib import Path


def main() -> None:
    """The command line, which a wheel carries."""
    program = Path(__file__).resolve().parent / "bin" / ("warpsmith.exe" if os.name == "nt" else "warpsmith")
    if not program.exists():
        sys.exit("this installation has no command line: build it with `cargo build --release`")
    if os.name != "nt":
        if not os.access(program, os.X_OK):   # not every installer keeps the mode
            program.chmod(0o755)
        os.execv(program, [str(program), *sys.argv[1:]])
    sys.exit(subprocess.call([str(program), *sys.argv[1:]]))
