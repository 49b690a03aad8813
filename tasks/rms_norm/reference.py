"""The reference of rms_norm in f64: `python3 reference.py IN_DIR OUT_DIR` (README.md has the protocol). Needs NumPy."""
import json
import sys
from pathlib import Path

import numpy as np


def main(in_dir: Path, out_dir: Path) -> None:
    header = json.loads((in_dir / "workload.json").read_text())
    x, weight = (np.load(in_dir / header["inputs"][name]["file"]).astype(np.float64) for name in ("x", "weight"))
    scale = np.sqrt((x * x).mean(axis=-1, keepdims=True) + header["scalars"]["eps"])
    np.save(out_dir / header["outputs"]["out"]["file"], x / scale * weight)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
